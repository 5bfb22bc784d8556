"""Base class of estimators with grown forests: fit, out-of-bag scores, leaves, paths, importances."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Number
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from .. import growth, tree
from ..core.aliases import ArrayLike
from ..core.bootstraps import number_of_draws
from ..core.class_factors import applied, are_of_trees
from ..core.several import target_or_several
from .base import Estimator, check_flag

Metric = Callable[..., float]


def weight_of(sample_weight: Any) -> Any:
    """Returns `sample_weight` as hforest accepts it; None for a single number, which is the same for all."""
    return None if isinstance(sample_weight, Number) else sample_weight


def drawing_weight(y: np.ndarray, settings: dict[str, Any]) -> np.ndarray | None:
    """Returns (n_samples,) float64, sample weight times class weight; None if neither is given.

    Classes that are balanced in each tree are no part of it.
    """
    of_samples, of_classes = settings["sample_weight"], settings.get("class_weight")
    if are_of_trees(of_classes):
        of_classes = None
    if of_samples is None and of_classes is None:
        return None
    if of_samples is None:
        weight = np.ones(len(y))
    else:
        weight = check_array(of_samples, dtype=np.float64, ensure_2d=False, input_name="sample_weight")
    if of_classes is None or weight.shape != (len(y),):  # another shape is refused where it is read
        return weight
    target = target_or_several(y, len(y), "classification", settings["n_classes"])
    return applied(of_classes, target, weight)


def parents(forest: tree.Forest) -> np.ndarray:
    """Returns the parent of each node, (n_nodes,) int64, numbered over all trees; of a root -1."""
    start = np.repeat(forest.tree_start[:-1], np.diff(forest.tree_start))
    split = np.flatnonzero(forest.feature != -1)
    left = start[split] + forest.left[split]
    parent = np.full(len(forest.feature), -1, np.int64)
    parent[left], parent[left + 1] = split, split
    return parent


def visited(forest: tree.Forest, leaf: np.ndarray) -> csr_matrix:
    """Returns (n_samples, n_nodes), 1 for the nodes on the paths to `leaf`, (n_samples, n_trees), else 0."""
    parent = parents(forest)
    sample = np.repeat(np.arange(len(leaf)), leaf.shape[1])
    node = (leaf + forest.tree_start[:-1]).ravel()
    samples, nodes = [], []
    while len(node):
        samples.append(sample)
        nodes.append(node)
        above = parent[node]
        inside = above >= 0
        sample, node = sample[inside], above[inside]
    rows, columns = np.concatenate(samples), np.concatenate(nodes)
    path = csr_matrix((np.ones(len(rows), np.int64), (rows, columns)), shape=(len(leaf), len(parent)))
    path.sort_indices()
    return path


@dataclass(kw_only=True, eq=False, repr=False)
class GrownForest(Estimator):
    """Estimators whose model is a `hforest.tree.Forest`."""

    max_depth: int | None = None
    min_samples_split: int | float = 2
    min_samples_leaf: int | float = 1
    min_weight_fraction_leaf: float = 0.0
    oob_score: bool | Metric = False
    _finite: ClassVar[bool | str] = "allow-nan"
    _sparse: ClassVar[list[str] | bool] = ["csr", "csc"]

    _function: ClassVar[Callable[..., Any]] = staticmethod(growth.grow)
    _fixed: ClassVar[dict[str, Any]] = {}
    """Settings of the function that are no parameters of the estimator."""

    def _splits_by_categories(self) -> bool:
        return self._learner() is growth.grow

    def _projections(self, n_features: int) -> dict[str, Any]:
        """Returns the settings of forests whose nodes sample projections; none for others."""
        return {}

    def _grow(self, x: np.ndarray, y: np.ndarray, settings: dict[str, Any]) -> tree.Forest:
        samples = growth.samples(x, **self._settings(growth.samples))
        forest: tree.Forest = self._learner()(
            samples, y, **{**settings, **self._fixed, **self._projections(x.shape[1])}
        )
        return forest

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Grows the forest and returns the estimator.

        Parameters
        ----------
        X : (n_samples, n_features) array-like of real numbers
            An array, a pandas or polars DataFrame, or a sparse matrix. Values are finite, or NaN where
            missing. CO2 forests accept neither NaN nor sparse matrices.
        y : (n_samples,) or (n_samples, n_outputs) array-like of labels or targets
            Labels or targets; several labels a sample are for trees that `hforest.grow` grows.
        sample_weight : (n_samples,) array-like, optional
            Weights of the samples, at least 0, not all 0.

        Returns
        -------
        self
        """
        with self._computing():
            x, target, settings = self._learned(X, y)
            if not callable(self.oob_score):
                check_flag("oob_score", self.oob_score, " or a function of (y, predicted)")
            settings |= {"sample_weight": weight_of(sample_weight), "rng": self._seed()}
            settings = self._settings() | settings
            settings |= self._drawn(x, target, settings)
            self._hold(self._grow(x, target, settings))
            if self.oob_score:
                self._score_out_of_bag(self._out_of_bag(x, target, settings), target)
        return self

    def _drawn(self, x: np.ndarray, y: np.ndarray, settings: dict[str, Any]) -> dict[str, Any]:
        """Returns settings with the samples of each tree, if the function is not to draw them itself."""
        return {}

    def _hold(self, forest: tree.Forest) -> None:
        """Stores a prepared forest. `forest_` is the prepared forest's read-only arrays."""
        self._prepared = tree.prepare(forest)
        self.forest_ = self._prepared.forest

    def _forest(self) -> tree.Forest | tree.Prepared:
        """Returns the forest to apply: the prepared one, unless `forest_` was replaced later."""
        prepared: tree.Prepared | None = vars(self).get("_prepared")
        return self.forest_ if prepared is None or prepared.forest is not self.forest_ else prepared

    def __getstate__(self) -> dict[str, Any]:
        # The prepared forest is made anew of forest_.
        return {name: value for name, value in super().__getstate__().items() if name != "_prepared"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        forest = vars(self).get("forest_")
        # Arrays that joblib maps into memory stay there.
        if isinstance(forest, tree.Forest) and all(type(a) is np.ndarray for a in forest):
            self._hold(forest)

    def _out_of_bag(self, x: np.ndarray, y: np.ndarray, settings: dict[str, Any]) -> np.ndarray:
        counts = settings["bootstrap"]
        if np.ndim(counts) != 2:
            counts = growth.bootstrap_counts(x.shape[0], settings["n_trees"], rng=settings["rng"])
        return tree.out_of_bag(self.forest_, x, counts)

    def _score_out_of_bag(self, outputs: np.ndarray, y: np.ndarray) -> None:
        self._keep_out_of_bag(outputs)
        seen = ~np.isnan(outputs[:, 0])
        if not seen.all():
            warnings.warn(
                f"{np.count_nonzero(~seen)} of {len(seen)} samples were drawn by every tree and have no "
                "out-of-bag prediction; raise n_estimators",
                UserWarning,
                stacklevel=3,
            )
        metric = self.oob_score if callable(self.oob_score) else self._metric
        answers = self._answers(outputs[seen])
        true = self._labels(y[seen]) if hasattr(self, "classes_") else y[seen]
        self.oob_score_ = float(metric(true, answers)) if seen.any() else np.nan

    def _outputs(self, x: np.ndarray) -> np.ndarray:
        return tree.predict(self._forest(), x)

    @property
    def feature_importances_(self) -> np.ndarray:
        """Returns (n_features,) float64: share of each feature in the total gain of all splits.

        Equal to `hforest.tree.importance` by gain: the gain of a split on a projection counts for each of its
        features.
        """
        check_is_fitted(self)
        return self._of_columns(tree.importance(self.forest_, by="gain"))

    def apply(self, X: ArrayLike) -> np.ndarray:
        """Returns the leaf that each sample reaches in each tree; X as in `predict`.

        Returns
        -------
        (n_samples, n_trees) array of int32
            Numbers of nodes within their trees.
        """
        x = self._samples(X)
        with self._computing():
            return tree.apply(self._forest(), x)

    def decision_path(self, X: ArrayLike) -> tuple[csr_matrix, np.ndarray]:
        """Returns the nodes that samples visit; X as in `predict`.

        Returns
        -------
        indicator : (n_samples, n_nodes) scipy.sparse.csr_matrix of int64
            1 where a sample visits a node, from the root to the leaf in every tree.
        n_nodes_ptr : (n_trees + 1,) array of int64
            First column of each tree in `indicator`; the last entry is n_nodes.
        """
        leaf = self.apply(X)
        return visited(self.forest_, leaf), self.forest_.tree_start.copy()


@dataclass(kw_only=True, eq=False, repr=False)
class BootstrapForest(GrownForest):
    """Grown forests whose trees may draw samples with replacement."""

    _several: ClassVar[bool] = True

    bootstrap: bool = True
    max_samples: int | float | None = None
    bootstrap_weights: Literal["multiply", "draw"] = "multiply"

    def _drawn(self, x: np.ndarray, y: np.ndarray, settings: dict[str, Any]) -> dict[str, Any]:
        """Returns settings with the samples of each tree, if the function is not to draw them itself."""
        weights = self.bootstrap_weights
        if not isinstance(weights, str) or weights not in ("multiply", "draw"):
            raise ValueError(
                f"bootstrap_weights: expected 'multiply' or 'draw', got {weights!r}; pass one of them"
            )
        never = isinstance(self.bootstrap, bool | np.bool_) and not self.bootstrap
        for name, default in (("oob_score", False), ("max_samples", None), ("bootstrap_weights", "multiply")):
            value = getattr(self, name)
            if never and np.any(value != default):
                raise ValueError(
                    f"{name}: expected {default!r} with bootstrap=False, got {value!r}; pass bootstrap=True"
                )
        weight = drawing_weight(y, settings) if weights == "draw" else None
        if self.max_samples is None and weight is None:
            return {}
        n_draws = number_of_draws(self.max_samples, x.shape[0] if weight is None else weight.sum())
        counts = growth.bootstrap_counts(
            x.shape[0], settings["n_trees"], n_draws=n_draws, sample_weight=weight, rng=settings["rng"]
        )
        drawn = dict.fromkeys({"max_samples"} & set(settings))
        if weight is not None:
            drawn |= dict.fromkeys({"sample_weight", "class_weight"} & set(settings))
        if are_of_trees(settings.get("class_weight")):
            drawn.pop("class_weight", None)
        return {**drawn, "bootstrap": counts}
