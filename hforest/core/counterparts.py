"""Errors about wrong names of public modules, which say the name to use instead."""

import sys
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

__all__ = ["lookup"]

BY_THEIR_OWN_NAME = ("dask", "demo", "jax", "onnx", "plot", "scale", "sklearn", "torch", "treelite")
"""Subpackages that ``import hforest`` does not import."""
NAMES = {
    "RandomForestClassifier": "grow(x, y, n_trees), or sklearn.RandomForestClassifier",
    "RandomForestRegressor": 'grow(x, y, n_trees, task="regression"), or sklearn.RandomForestRegressor',
    "ExtraTreesClassifier": 'grow(x, y, splitter="random", bootstrap=False), or sklearn.ExtraTreesClassifier',
    "ExtraTreesRegressor": "grow as for ExtraTreesClassifier, with task; or sklearn.ExtraTreesRegressor",
    "DecisionTreeClassifier": "grow(x, y, 1, bootstrap=False, max_features=None)",
    "RandomTreesEmbedding": 'grow(x, y, splitter="random", max_features=1), then tree.apply(forest, x)',
    "fit": "grow(x, y, n_trees); also hinge.from_forest, tabular.fit, neural.fit, images.fit",
    "predict": "tree.predict(forest, x); also predict of cascade, images, neural and tabular",
    "predict_proba": "tree.predict(forest, x); also predict of cascade, neural and tabular",
    "decision_path": "tree.path(forest, x, tree)",
    "feature_importances_": 'tree.importance(forest, by="gain")',
    "oob_decision_function_": "tree.out_of_bag(forest, x, counts)",
    "export_text": "tree.to_text(forest)",
    "plot_tree": "plot.tree(forest)",
    "score": "(tree.predict(forest, x).argmax(axis=1) == y).mean()",
    "dump": "tree.save(file, forest)",
    "DecisionBoundaryDisplay": "plot.regions(predict, x, y)",
    "Conv2d": "torch.HingeConv2d; on arrays layers.conv2d",
    "Embedding": "torch.HingeForest(sparse=True)",
    "Adam": "optim.adam; for rows torch.RowAdam",
    "SparseAdam": "torch.RowAdam; on arrays optim.adam_rows",
    "BatchNorm1d": "torch.RunningNorm; on arrays layers.normalize",
    "CrossEntropyLoss": "layers.softmax_loss(scores, y)",
    "state_dict": "the arrays themselves; numpy.savez writes them",
    "manual_seed": "the argument rng, such as grow(x, y, rng=0)",
}
"""Counterparts of names of scikit-learn and PyTorch; names of hforest without "hforest."."""


def lookup(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` of a public module, whose error says the right name, and `__dir__`."""
    module = sys.modules[package]

    def get(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        others = [f"hforest.{other}" for other in (*sys.modules["hforest"].__all__, *BY_THEIR_OWN_NAME)]
        owners = [other for other in others if name in getattr(sys.modules.get(other), "__all__", ())]
        known = [f"write {owner}.{name}" for owner in owners]
        if package == "hforest" and name in BY_THEIR_OWN_NAME:
            known = [f"write import hforest.{name}"]
        elif name in NAMES:
            known = [f"use {NAMES[name]}"]
        known += [f"write {package}.{other}" for other in get_close_matches(name, module.__all__, 1, 0.7)]
        text = f"expected one of its names, got {name!r}; {(*known, 'call dir() for a list of them')[0]}"
        raise AttributeError(f"{package}: {text}", name=name, obj=module)

    return get, lambda: sorted(module.__all__)
