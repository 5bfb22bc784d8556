"""Forests of other libraries for bench/grow.py and bench/predict.py, if they are installed.

    scikit-learn, scikit-learn-intelex (oneDAL), treeple, ydf        growing, with the settings of hforest
    scikit-learn, xgboost, lightgbm, onnxruntime (by skl2onnx)       applying

Trees are grown to purity on bootstrap samples, with the square root of the number of features as candidates
of a node. The oblique forests of treeple and ydf draw 1.5 features per projection on average, and as many
projections as a node has candidates; treeple's patches have the minimum and maximum sizes of hforest.
lightgbm and xgboost grow a tree for each class and round, so they apply their own forests, only for two
classes, with the same number and depth of trees.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

Labels = Callable[[Any], Any]  # samples to classes
Growers = dict[str, Callable[[], Labels]]


def _sklearn(model: Any, x: Any, y: Any) -> Labels:
    return model.fit(x, y).predict


def _ydf(learner: Any, x: Any, y: Any) -> Labels:
    model = learner.train({"x": x, "y": y})
    classes = np.array([int(name) for name in model.label_classes()])

    def labels(samples: Any) -> Any:
        p = model.predict({"x": samples})
        return classes[p.argmax(axis=1) if p.ndim == 2 else (p > 0.5).astype(int)]

    return labels


def growers(x: Any, y: Any, n_trees: int, threads: int, patches: tuple[int, ...]) -> Growers:
    """Returns functions that grow a forest and return a function from samples to classes.

    `patches` holds the sides of the largest patches.
    """
    calls: Growers = {}
    settings = {"n_estimators": n_trees, "n_jobs": threads, "random_state": 0}
    try:
        from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
    except ImportError:
        pass
    else:
        calls["scikit-learn"] = lambda: _sklearn(RandomForestClassifier(**settings), x, y)
        calls["scikit-learn, extra trees"] = lambda: _sklearn(ExtraTreesClassifier(**settings), x, y)
    try:
        from sklearnex.ensemble import RandomForestClassifier as OneDAL
    except ImportError:
        pass
    else:
        calls["scikit-learn-intelex"] = lambda: _sklearn(OneDAL(**settings), x, y)
    try:
        from treeple import ObliqueRandomForestClassifier, PatchObliqueRandomForestClassifier
    except ImportError:
        pass
    else:
        calls["treeple, oblique"] = lambda: _sklearn(
            ObliqueRandomForestClassifier(feature_combinations=1.5, **settings), x, y
        )
        side = int(x.shape[1] ** 0.5)

        def patched(size: int) -> Labels:
            model = PatchObliqueRandomForestClassifier(
                min_patch_dims=np.array([1, 1]), max_patch_dims=np.array([size, size]),
                data_dims=np.array([side, side]), **settings,
            )  # fmt: skip
            return _sklearn(model, x, y)

        for size in patches:
            calls[f"treeple, patches to {size}x{size}"] = partial(patched, size)
    try:
        import ydf
    except ImportError:
        return calls
    ydf.verbose(0)
    common = {
        "label": "y", "task": ydf.Task.CLASSIFICATION, "num_trees": n_trees, "max_depth": -1,
        "min_examples": 1, "winner_take_all": False, "compute_oob_performances": False,
        "num_threads": threads, "num_candidate_attributes": max(1, int(x.shape[1] ** 0.5)),
    }  # fmt: skip
    oblique = {
        "split_axis": "SPARSE_OBLIQUE", "sparse_oblique_weights": "BINARY",
        "sparse_oblique_projection_density_factor": 1.5, "sparse_oblique_num_projections_exponent": 0.5,
    }  # fmt: skip
    calls["ydf"] = lambda: _ydf(ydf.RandomForestLearner(**common), x, y)
    calls["ydf, oblique"] = lambda: _ydf(ydf.RandomForestLearner(**common, **oblique), x, y)
    return calls


def onnx_session(model: Any, n_features: int, threads: int) -> Any:
    """Returns scikit-learn's forest in onnxruntime as a function of samples, or None without onnxruntime."""
    try:
        import onnxruntime
        from skl2onnx import convert_sklearn
        from skl2onnx.common.data_types import FloatTensorType
    except ImportError:
        return None
    kind = [("x", FloatTensorType([None, n_features]))]
    text = convert_sklearn(model, initial_types=kind, options={"zipmap": False}).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    return lambda samples: session.run(None, {"x": samples})[1]


def lightgbms(x: Any, y: Any, n_trees: int, depth: int) -> Any:
    """Returns a forest of lightgbm for two classes, or None if it is not installed."""
    try:
        import lightgbm
    except ImportError:
        return None
    settings = {
        "objective": "binary", "boosting": "rf", "bagging_fraction": 0.632, "bagging_freq": 1,
        "feature_fraction_bynode": x.shape[1] ** -0.5, "max_depth": depth or -1,
        "num_leaves": 2**depth if depth else len(x), "min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 0.0,
        "verbose": -1, "num_threads": 1,
    }  # fmt: skip
    return lightgbm.train(settings, lightgbm.Dataset(x, y), n_trees)


def xgboosts(x: Any, y: Any, n_trees: int, depth: int) -> Any:
    """Returns a forest of xgboost for two classes, or None if it is not installed."""
    try:
        import xgboost
    except ImportError:
        return None
    settings = {
        "objective": "reg:squarederror", "num_parallel_tree": n_trees, "max_depth": depth,
        "subsample": 0.632, "colsample_bynode": x.shape[1] ** -0.5, "eta": 1.0, "lambda": 0.0,
        "min_child_weight": 0, "base_score": 0.0, "max_bin": 256, "tree_method": "hist",
    }  # fmt: skip
    return xgboost.train(settings, xgboost.DMatrix(x, y), 1)
