"""Estimators of small size and their data, for tests."""
# ruff: noqa: E402 (modules that need scikit-learn are imported where it is known to be there)

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn", minversion="1.6", reason="needs scikit-learn 1.6 or newer")

from sklearn.datasets import load_diabetes, load_iris

import hforest.sklearn as hs

X, Y = load_iris(return_X_y=True)
X_TARGETS, TARGETS = (a[:150] for a in load_diabetes(return_X_y=True))
TEXT = np.array(["setosa", "versicolor", "virginica"], object)[Y]


# Small sizes by kind, and the arguments of the function of hforest that grows the same forest.
HINGE = {"n_members": 2, "n_projections": 10, "max_iter": 60, "max_depth": 4}
NETWORK = {"max_iter": 300, "max_depth": 4, "n_inner_products": 20}
SIZES = {
    "HingeForest": HINGE,
    "HingeNetwork": NETWORK,
    "NeuralForest": {"max_depth": 4, "max_iter": 4},
    "CascadeForest": {"n_forests": 1, "max_levels": 2},
}
KINDS = sorted(hs.__all__)
CLASSIFIERS = [name for name in KINDS if name.endswith("Classifier")]
REGRESSORS = [name for name in KINDS if name.endswith("Regressor")]
WEIGHTED = [name for name in KINDS if not name.startswith(("Honest", "HingeNetwork"))]
GROWN = [name for name in KINDS if not name.startswith(("Hinge", "Neural", "Cascade"))]
BOOTSTRAPPED = [name for name in GROWN if name in WEIGHTED and not name.startswith("Alternating")]


def small(name, **settings):
    """Returns an estimator of eight trees."""
    kind = name.removesuffix("Classifier").removesuffix("Regressor")
    return getattr(hs, name)(**{"n_estimators": 8, "random_state": 0, **SIZES.get(kind, {}), **settings})


def data(name):
    return (X, Y) if name in CLASSIFIERS else (X_TARGETS, TARGETS)


def parts(name):
    """Returns training samples, their targets, and other samples."""
    x, y = data(name)
    return x[::2], y[::2], x[1::2]


def mixed(name, **settings):
    """Returns an estimator whose leaves have several classes or targets, so that weights change predictions."""
    return small(
        name, **settings, **({} if name.startswith(("Hinge", "Neural")) else {"min_samples_leaf": 8})
    )


def outputs(model, x):
    return model.predict_proba(x) if hasattr(model, "predict_proba") else model.predict(x)
