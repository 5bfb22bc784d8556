"""hforest's estimators under scikit-learn's names: what docs/coming-from.md lists as different is translated.

Forests are `hforest.sklearn`'s own classes. A single tree is a forest of one tree without bootstrap.
`estimators_[i].tree_`, which hforest has as `estimators_[i].forest_`, is computed from the training samples.
"""

from dataclasses import dataclass
from functools import wraps
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from scipy.special import xlogy
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import Bunch, check_random_state

import hforest.sklearn as hs
from hforest import tree
from hforest.sklearn.grown import GrownForest, visited

IMPURITY = {
    "gini": lambda y: 1 - (y**2).sum(axis=1),
    "entropy": lambda y: -xlogy(y, y).sum(axis=1) / np.log(2),
}
IMPURITY["log_loss"] = IMPURITY["entropy"]


class Arrays:
    """The attributes of scikit-learn's `tree_`, of a single tree of hforest and the samples it was grown on."""

    def __init__(self, model: Any, forest: Any, x: Any, goals: list, criterion: str, weight: Any):
        """Computes statistics of nodes.

        goals: an array for each output, (n_samples, n_classes) of zeros and ones, or (n_samples, 1) targets.
        weight: (n_samples,): in-bag count times sample weight.
        """
        self._model, self._forest = model, forest
        is_leaf = forest.feature == -1
        self.node_count = self.capacity = len(forest.feature)
        self.n_leaves = int(is_leaf.sum())
        self.n_features, self.n_outputs = int(forest.n_features), len(goals)
        self.children_left = np.where(is_leaf, -1, forest.left).astype(np.int64)
        self.children_right = np.where(is_leaf, -1, forest.left + 1).astype(np.int64)
        self.feature = np.where(is_leaf, -2, forest.feature).astype(np.int64)
        self.threshold = np.where(is_leaf, -2.0, forest.threshold)
        self.missing_go_to_left = forest.default_left & 1
        self.max_depth = int(tree.depth(forest).max())
        counted = weight > 0
        path = self.decision_path(x)[counted].T.tocsr().astype(np.float64)
        weight = np.asarray(weight, np.float64)[counted]
        self.n_node_samples = np.asarray(path.sum(axis=1)).ravel().astype(np.int64)
        self.weighted_n_node_samples = path @ weight
        total = np.maximum(self.weighted_n_node_samples, np.finfo(float).tiny)[:, None]
        impurities, values = [], []
        for goal in goals:
            y = goal[counted]
            mean = path @ (y * weight[:, None]) / total
            values.append(mean)
            if criterion in IMPURITY:
                impurities.append(IMPURITY[criterion](mean))
            elif criterion == "poisson":
                impurities.append((path @ (xlogy(y, y) * weight[:, None]) / total - xlogy(mean, mean))[:, 0])
            else:  # of centred targets, which loses no digits
                centred = y - y.mean()
                square = path @ (centred**2 * weight[:, None]) / total
                impurities.append((square - (path @ (centred * weight[:, None]) / total) ** 2)[:, 0])
        self.impurity = np.maximum(np.mean(impurities, axis=0), 0.0)
        self.impurity[self.n_node_samples == 1] = 0.0
        self.n_classes = np.array([value.shape[1] for value in values])
        self.value = np.zeros((self.node_count, len(values), self.n_classes.max()))
        for k, value in enumerate(values):
            self.value[:, k, : value.shape[1]] = value
        signs = getattr(model, "monotonic_cst", None)
        if signs is not None and len(values) == 1 and self.n_classes[0] == 1:
            self._clip(np.asarray(signs))
        if len(values) == 1:  # what the tree predicts
            self.value[is_leaf, 0] = forest.value[forest.left[is_leaf]]

    def _clip(self, signs: np.ndarray) -> None:
        """Clips values of inner nodes to the bounds that the splits above them set, as scikit-learn does."""
        value = self.value[:, 0, 0]
        low, high = np.full(self.node_count, -np.inf), np.full(self.node_count, np.inf)
        for node in np.flatnonzero(self.feature >= 0):
            sides = (left, right) = self.children_left[node], self.children_right[node]
            for side in sides:
                low[side], high[side] = low[node], high[node]
                value[side] = np.clip(value[side], low[side], high[side])
            middle, sign = (value[left] + value[right]) / 2, signs[self.feature[node]]
            if sign:
                below, above = sides if sign > 0 else sides[::-1]
                high[below] = low[above] = middle

    def apply(self, x: Any) -> np.ndarray:
        return tree.apply(self._forest, x)[:, 0]

    def decision_path(self, x: Any) -> Any:
        return visited(self._forest, tree.apply(self._forest, x))

    def compute_feature_importances(self, normalize: bool = True) -> np.ndarray:
        split = self.feature >= 0
        left, right = self.children_left[split], self.children_right[split]
        share = self.weighted_n_node_samples * self.impurity
        gain = share[split] - share[left] - share[right]
        of_feature = np.bincount(self.feature[split], gain, self.n_features) / self.weighted_n_node_samples[0]
        return of_feature / of_feature.sum() if normalize and of_feature.sum() > 0 else of_feature


def tree_of(model: Any) -> Arrays:
    """Returns `tree_` of an estimator of a single tree."""
    trained = vars(model)["_trained"]
    x, y, weight = trained["X"], np.asarray(trained["y"]), trained["sample_weight"]
    x = x.tocsr() if hasattr(x, "tocsr") else np.asarray(x)
    if hasattr(model, "classes_"):
        labels = y.reshape(len(y), -1)
        classes = model.classes_ if labels.shape[1] > 1 else [np.ravel(model.classes_)]
        goals = [(labels[:, k][:, None] == c[None]).astype(float) for k, c in enumerate(classes)]
    else:
        goals = list(y.reshape(len(y), -1).T.astype(float)[:, :, None])
    of_sample = np.ones(len(y)) if weight is None else np.broadcast_to(np.asarray(weight, float), len(y))
    of_sample = of_sample * np.bincount(model.estimators_samples_[0], minlength=len(y))
    return Arrays(model, model.forest_, x, goals, model.criterion, of_sample)


def _recorded(fit: Any) -> Any:
    @wraps(fit)
    def call(self: Any, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self._trained = {"X": X, "y": y, "sample_weight": sample_weight}
        return fit(self, X, y, sample_weight)

    return call


GrownForest.fit = _recorded(GrownForest.fit)
GrownForest.tree_ = property(tree_of)
# "best" and "random" accept sparse matrices.
GrownForest.estimator = property(lambda self: SimpleNamespace(splitter=self._fixed.get("splitter", "best")))


class _Single:
    """What a single tree of scikit-learn has in addition to a forest of one tree, or in another shape."""

    def apply(self, X: Any, check_input: bool = True) -> np.ndarray:
        return super().apply(X)[:, 0]

    def decision_path(self, X: Any, check_input: bool = True) -> Any:
        return visited(self.forest_, super().apply(X))

    def _grow(self, x: Any, y: Any, settings: Any) -> Any:
        fixed = {"splitter": self.splitter}
        return super()._grow(x, y, {**settings, **fixed})

    def cost_complexity_pruning_path(self, X: Any, y: Any, sample_weight: Any = None) -> Bunch:
        grown = clone(self).set_params(ccp_alpha=0.0).fit(X, y, sample_weight)
        forest, arrays = grown.forest_, grown.tree_
        split = forest.feature != -1
        least = tree.pruning_alphas(forest, X, sample_weight=sample_weight)[split]
        gain = forest.gain[split] / arrays.weighted_n_node_samples[0]
        alphas = np.unique(np.append(least, 0.0))
        impurities = [arrays.impurity[0] - gain[least > alpha].sum() for alpha in alphas]
        return Bunch(ccp_alphas=alphas, impurities=np.array(impurities))

    @property
    def max_features_(self) -> int:
        n = self.n_features_in_
        words = {"sqrt": np.sqrt(n), "log2": np.log2(n), None: n}
        value = self.max_features
        number = words[value] if value in words else value * n if isinstance(value, float) else value
        return max(1, int(number))


@dataclass(kw_only=True, eq=False, repr=False)
class DecisionTreeClassifier(_Single, hs.RandomForestClassifier):
    n_estimators: int = 1
    bootstrap: bool = False
    max_features: Any = None
    splitter: str = "best"


@dataclass(kw_only=True, eq=False, repr=False)
class DecisionTreeRegressor(_Single, hs.RandomForestRegressor):
    n_estimators: int = 1
    bootstrap: bool = False
    max_features: Any = None
    splitter: str = "best"


@dataclass(kw_only=True, eq=False, repr=False)
class ExtraTreeClassifier(_Single, hs.RandomForestClassifier):
    n_estimators: int = 1
    bootstrap: bool = False
    max_features: Any = "sqrt"
    splitter: str = "random"


@dataclass(kw_only=True, eq=False, repr=False)
class ExtraTreeRegressor(_Single, hs.RandomForestRegressor):
    n_estimators: int = 1
    bootstrap: bool = False
    max_features: Any = 1.0
    splitter: str = "random"


@dataclass(kw_only=True, eq=False, repr=False)
class RandomTreesEmbedding(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, hs.CompletelyRandomForestRegressor
):
    """Completely random trees of random targets; samples become indicators of their leaves."""

    max_depth: int | None = 5
    sparse_output: bool = True
    criterion: ClassVar[str] = "squared_error"

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        self.fit_transform(X, y, sample_weight)
        return self

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        random = check_random_state(self.random_state).uniform(size=n)
        super().fit(X, random, sample_weight)
        self._encoder = OneHotEncoder(sparse_output=self.sparse_output)
        encoded = self._encoder.fit_transform(self.apply(X))
        self._n_features_out = encoded.shape[1]
        return encoded

    def transform(self, X: Any) -> Any:
        return self._encoder.transform(self.apply(X))


FORESTS = ("RandomForestClassifier", "RandomForestRegressor", "ExtraTreesClassifier", "ExtraTreesRegressor")
SINGLE = (DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, ExtraTreeRegressor)
