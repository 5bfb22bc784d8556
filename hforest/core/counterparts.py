"""Counterparts of names of other libraries and of earlier names, for errors about wrong attributes."""

_GROW = "classic.grow(x, y, n_trees)"
NAMES = {
    # scikit-learn
    "RandomForestClassifier": f"{_GROW}, or sklearn.RandomForestClassifier",
    "RandomForestRegressor": 'classic.grow(x, y, task="regression"), or sklearn.RandomForestRegressor',
    "ExtraTreesClassifier": "classic.grow_extra(x, y), or sklearn.ExtraTreesClassifier",
    "ExtraTreesRegressor": 'classic.grow_extra(x, y, task="regression"), or sklearn.ExtraTreesRegressor',
    "DecisionTreeClassifier": "classic.grow(x, y, 1, bootstrap=False, max_features=None)",
    "DecisionTreeRegressor": 'classic.grow(x, y, 1, bootstrap=False, task="regression")',
    "RandomTreesEmbedding": "classic.grow_random(x, y), then tree.apply(forest, x)",
    "fit": f"{_GROW}; also tabular.fit, neural.fit, images.fit",
    "predict": "tree.predict(forest, x)",
    "predict_proba": "tree.predict(forest, x)",
    "predict_quantiles": "tree.quantiles(forest, targets, x)",
    "decision_path": "tree.path(forest, x, tree)",
    "feature_importances_": 'tree.importance(forest, by="gain")',
    "oob_score_": "tree.out_of_bag(forest, x, counts)",
    "oob_decision_function_": "tree.out_of_bag(forest, x, counts)",
    "estimators_": "forest.n_trees and the arrays of the forest; tree m begins at forest.tree_start[m]",
    "n_estimators": "forest.n_trees",
    "n_features_in_": "forest.n_features",
    "n_classes_": "forest.n_classes",
    "export_text": "tree.to_text(forest)",
    "plot_tree": "plot.tree(forest)",
    "DecisionBoundaryDisplay": "plot.regions(predict, x, y)",
    "score": "(tree.predict(forest, x).argmax(axis=1) == y).mean()",
    "dump": "tree.save(file, forest)",
    # treeple
    "ObliqueRandomForestClassifier":
        'manifold.grow(x, y, projection="sparse"), or sklearn.ObliqueForestClassifier',
    "PatchObliqueRandomForestClassifier":
        'manifold.grow(x, y, projection="patch", shape=...), or sklearn.ManifoldForestClassifier',
    "ExtraObliqueRandomForestClassifier": 'manifold.grow(x, y, projection="sparse", splitter="random")',
    "HonestForestClassifier": "stats.honest_counts(y, n_trees), or sklearn.HonestForestClassifier",
    "compute_similarity_matrix": "tree.proximity(forest, x)",
    "build_oob_forest": "stats.posterior(forest, x, y, counts)",
    # deep-forest, HingeTreeForTorch, grf
    "HingeForest": "torch.HingeForest; on arrays hinge.forward",
    "CascadeForestClassifier": "cascade.grow(x, y, forests), or sklearn.CascadeForestClassifier",
    "RandomHingeForest": 'torch.HingeForest(kind="tree"); on arrays hinge.forward',
    "RandomHingeFern": 'torch.HingeForest(kind="fern"); on arrays hinge.forward',
    "regression_forest": "sklearn.HonestForestRegressor; on arrays stats.honest_counts",
    "probability_forest": "sklearn.HonestForestClassifier; on arrays stats.honest_counts",
    # PyTorch
    "Conv2d": "torch.HingeConv2d; on arrays layers.conv2d",
    "Embedding": "torch.HingeForest(sparse=True)",
    "Adam": "optim.adam; for rows torch.RowAdam",
    "SparseAdam": "torch.RowAdam; on arrays optim.adam_rows",
    "BatchNorm1d": "torch.RunningNorm; on arrays layers.normalize",
    "CrossEntropyLoss": "layers.softmax_loss(scores, y)",
    "manual_seed": "the argument rng of each function, such as classic.grow(x, y, rng=0)",
    "state_dict": "the arrays themselves; numpy.savez writes them",
    "cross_entropy": "layers.softmax_loss(scores, y)",
    "mse_loss": "layers.squared_loss(p, y)",
    "batch_norm": "layers.normalize; in PyTorch torch.RunningNorm",
    "SGD": "p -= lr * gradient, in NumPy",
    "AdamW": "optim.adam(..., weight_decay=...); for rows torch.RowAdam",
    "HingeFern": 'torch.HingeForest(kind="fern"); on arrays hinge.forward',
    # XGBoost, LightGBM
    "XGBClassifier": "tabular.fit(x, y); models convert by treelite",
    "LGBMClassifier": "tabular.fit(x, y); models convert by treelite",
    **dict.fromkeys(
        ("CascadeForestRegressor", "causal_forest", "instrumental_forest", "GradientBoostingClassifier"),
        "another library: hforest has no counterpart",
    ),
    # Earlier names
    "Engine": "growth.by_level.Engine",
    "tree_greedy_init": "hinge.greedy_init",
    "tree_from_forest": "hinge.from_forest",
    "tree_from_oblique_forest": "hinge.from_forest(kernel=True)",
    "tree_thresholds_consistent": "hinge.thresholds_consistent",
    "tree_repair_thresholds": "hinge.repair_thresholds",
    "ObliqueStart": "hinge.ForestStart",
    "LinearHingeForest": 'torch.HingeForest(margin="projection")',
    "split_gains": "demo.select_features",
}  # fmt: skip
"""Counterpart of a name of another library, or of an earlier name; names of hforest without "hforest."."""
_LOOP = "hinge.from_forest(x, y, forest), or a loop of hinge.forward_with_route and hinge.backward"
_OF_MODELS = {
    package: {
        "fit": f"{package}.{fit}(x, y)",
        "predict": f"{package}.predict({model}, x)",
        "predict_proba": f"{package}.predict({model}, x)",
        "score": f"({package}.predict({model}, x).argmax(axis=1) == y).mean()",
        "dump": f"{package}.save(file, {model})",
    }
    for package, fit, model in (("tabular", "fit", "model"), ("cascade", "grow", "levels"))
}
OF_PACKAGE = {
    **_OF_MODELS,
    "tabular": _OF_MODELS["tabular"] | dict.fromkeys(
        ("importance", "permutation_importance", "feature_importances_", "explain"),
        "sklearn.HingeForestClassifier, which permutation_importance of scikit-learn takes",
    ),
    "hinge": {
        "fit": _LOOP,
        "train": _LOOP,
        "predict": 'hinge.forward(x, *parameters, aggregate="sum")',
        "predict_proba": 'the softmax of hinge.forward(x, *parameters, aggregate="sum")',
    },
    "scale": dict.fromkeys(
        ("levels", "best_splits", "batches", "parts", "planning", "edges", "nodes"), "growth.by_level"
    ),
    "stats": {"pvalue": "p_value"},
}  # fmt: skip
"""Counterparts in a subpackage, and of attributes of its classes, before those of `NAMES`."""
_OPERATORS = ("init", "traverse", "forward", "backward", "median_thresholds", "adam_forward", "adam_backward")
for _kind in ("tree", "fern"):
    NAMES[f"hinge_{_kind}"] = f'torch.hinge_forest(..., kind="{_kind}"), or jax.hinge_forest'
    NAMES[f"hinge_{_kind}_conv"] = f'torch.hinge_forest(..., kind="{_kind}", windows=...)'
    NAMES[f"hinge_{_kind}_linear"] = f'torch.hinge_forest(..., kind="{_kind}", margin="projection")'
    for _operator in _OPERATORS:
        NAMES[f"{_kind}_{_operator}"] = f'hinge.{_operator}(..., kind="{_kind}")'
    for _operator in _OPERATORS[1:4]:
        NAMES[f"{_kind}_linear_{_operator}"] = f'hinge.{_operator}(..., kind="{_kind}", margin="projection")'
        NAMES[f"{_kind}_conv_{_operator}"] = f'hinge.{_operator}(..., kind="{_kind}", windows=...)'
