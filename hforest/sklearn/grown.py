"""Base class of estimators with grown forests: fit, out-of-bag scores, leaves, paths, importances."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Number
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from .. import growth, stats, tree
from ..core.aliases import ArrayLike
from ..core.bootstraps import number_of_draws
from ..core.class_factors import applied, are_of_trees, balanced_in_trees
from ..core.several import target_or_several
from .base import Estimator, check_choice, check_flag
from .trees import Trees, parents, single

Metric = Callable[..., float]


def weight_of(sample_weight: Any) -> Any:
    """Returns `sample_weight` as hforest accepts it; None for a single number, which is the same for all."""
    return None if isinstance(sample_weight, Number) else sample_weight


_OF_ALL_TREES = (
    *("_importances", "_errors", "leaf_targets_"),
    *("oob_score_", "oob_prediction_", "oob_decision_function_", "oob_votes_"),
)
"""Attributes of all trees, which an estimator of one of them does not have."""


def once(n_samples: int, n_trees: int, first_tree: int = 0) -> np.ndarray:
    """Returns the in-bag counts of trees that do not draw, (n_trees, n_samples) int32."""
    return np.ones((n_trees, n_samples), np.int32)


def _range(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the number of trees and that of the first one among settings."""
    return {"n_trees": settings["n_trees"], "first_tree": settings.get("first_tree", 0)}


def _same(a: Any, b: Any) -> bool:
    """Returns whether two values are equal: arrays, tuples or lists of them, or others."""
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(np.array_equal(a, b))


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
    max_leaf_nodes: int | None = None
    ccp_alpha: float = 0.0
    oob_score: bool | Metric = False
    warm_start: bool = False
    importance_type: Literal["gain", "mdi_oob", "ufi"] = "gain"
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
        return forest if self.ccp_alpha == 0 else self._pruned(forest, x, y, settings)

    def _pruned(
        self, forest: tree.Forest, x: np.ndarray, y: np.ndarray, settings: dict[str, Any]
    ) -> tree.Forest:
        """Returns a forest pruned with `ccp_alpha`, by the in-bag counts and weights of its growth."""
        counts, balances = settings.get("bootstrap", False), are_of_trees(settings.get("class_weight"))
        if isinstance(counts, bool | np.bool_):
            drawn = {"first_tree": settings.get("first_tree", 0), "rng": settings["rng"]}
            counts = growth.bootstrap_counts(x.shape[0], settings["n_trees"], **drawn) if counts else None
        if balances and counts is None:  # trees of all samples have the same weights
            settings, balances = settings | {"class_weight": "balanced"}, False
        weight = drawing_weight(y, settings)
        if balances:
            target = target_or_several(y, len(y), "classification", settings["n_classes"])
            weight = balanced_in_trees(target, np.ones(len(y)) if weight is None else weight, counts)
            counts = None
        return tree.prune(forest, self.ccp_alpha, x, sample_weight=weight, counts=counts)

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
        self._check_words()
        kept = dict(vars(self)) if self.warm_start and hasattr(self, "forest_") else {}
        with self._computing():
            x, target, settings = self._learned(X, y)
            settings |= {
                "sample_weight": weight_of(sample_weight),
                "rng": kept["_rng"] if kept else self._seed(),
            }
            settings = self._settings() | settings
            if kept:
                self._continue(kept, x, target, settings)
            else:
                self._add([], x, target, settings)
                self._rng = settings["rng"]
            self._finish(x, target, settings)
        return self

    def _check_words(self) -> None:
        """Checks the parameters that `fit` itself reads."""
        if not callable(self.oob_score):
            check_flag("oob_score", self.oob_score, " or a function of (y, predicted)")
        check_flag("warm_start", self.warm_start)
        check_choice("importance_type", self.importance_type, ("gain", "mdi_oob", "ufi"))

    def _add(
        self, earlier: list[tree.Forest], x: np.ndarray, y: np.ndarray, settings: dict[str, Any]
    ) -> None:
        """Grows trees and holds them after those of an earlier fit, if there is one."""
        draw, drawn = self._drawn(x, y, settings)
        grown = self._grow(x, y, {**settings, **drawn})
        self._draws: list[partial[Any]] = [*(self._draws if earlier else ()), draw]
        self._hold(tree.join([*earlier, grown]) if earlier else grown)

    def _continue(self, kept: dict[str, Any], x: np.ndarray, y: np.ndarray, settings: dict[str, Any]) -> None:
        """Adds trees to the forest of an earlier fit, whose attributes are `kept`.

        They are those that one fit with all trees grows on the same samples.
        """
        for name in ("classes_", "n_outputs_", "columns_"):
            if not _same(kept.get(name), vars(self).get(name)):
                self.__dict__.update(kept)
                raise ValueError(
                    f"{name}: expected those of the first fit with warm_start=True, got others; pass "
                    "warm_start=False"
                )
        first, n_trees = kept["forest_"].n_trees, settings["n_trees"]
        more = n_trees - first if isinstance(n_trees, Integral) else n_trees  # which is refused below
        if isinstance(more, Integral) and more < 0:
            raise ValueError(
                f"n_estimators: expected at least the {first} trees of the earlier fit with warm_start=True, "
                f"got {n_trees}; pass more, or warm_start=False"
            )
        if more == 0:
            warnings.warn(
                "Warm-start fitting without increasing n_estimators does not fit new trees.",
                UserWarning,
                stacklevel=3,
            )
        else:
            self._add([kept["forest_"]], x, y, settings | {"n_trees": more, "first_tree": first})

    def _finish(self, x: np.ndarray, y: np.ndarray, settings: dict[str, Any]) -> None:
        """Computes what estimators keep beside the forest; `settings` are those of the function."""
        for name in _OF_ALL_TREES:
            self.__dict__.pop(name, None)
        if self.oob_score:
            self._score_out_of_bag(self._out_of_bag(x, y, settings), y)
        if self.importance_type != "gain":
            learned = {name: settings[name] for name in ("task", "n_classes") if name in settings}
            self._importances = stats.oob_importance(
                self.forest_, x, y, self._in_bag(len(y)), by=self.importance_type, **learned
            )[0]

    def _drawn(
        self, x: np.ndarray, y: np.ndarray, settings: dict[str, Any]
    ) -> tuple[partial[Any], dict[str, Any]]:
        """Returns the function of the in-bag counts of new trees, and settings for the function that grows.

        Here each tree has every sample once.
        """
        return partial(once, x.shape[0], **_range(settings)), {}

    def _counts(self, draw: partial[Any]) -> np.ndarray:
        """Returns in-bag counts of the trees of one call, (n_trees, n_samples) int32."""
        counts: np.ndarray = draw()
        return counts

    def _in_bag(self, n_samples: int | None = None) -> np.ndarray:
        """Returns in-bag counts of all trees; ValueError if some are not of n_samples samples."""
        counts = [self._counts(draw) for draw in self._draws]
        sizes = {a.shape[1] for a in counts}
        if len({n_samples or counts[0].shape[1], *sizes}) > 1:
            raise ValueError(
                "X: expected the samples of the first fit, since out-of-bag samples are those of all trees, "
                f"got other numbers of samples, {sorted(sizes)}; pass warm_start=False"
            )
        return counts[0] if len(counts) == 1 else np.concatenate(counts)

    def _single(self, m: int) -> Any:
        """Returns the estimator with tree m alone."""
        view = object.__new__(type(self))
        view.__dict__.update(
            {name: value for name, value in vars(self).items() if name not in ("_prepared", *_OF_ALL_TREES)}
        )
        first = 0
        for draw in self._draws:
            n_trees = draw.keywords["n_trees"]
            if m < first + n_trees:
                view._draws = [partial(draw, n_trees=1, first_tree=m)]
                break
            first += n_trees
        one = {"n_estimators": 1, "oob_score": False, "importance_type": "gain", "random_state": self._rng}
        one |= {
            "bootstrap": False,
            "max_samples": None,
            "bootstrap_weights": "multiply",
            "leaf_targets": False,
        }
        view.__dict__.update({name: value for name, value in one.items() if hasattr(view, name)})
        view._hold(single(self.forest_, m))
        return view

    @property
    def estimators_(self) -> Trees:
        """Returns the trees, each as a fitted estimator of one tree, made at each access.

        ``model.estimators_[0].forest_`` is a tree as arrays. Labels are those of the fit, not their numbers
        as in scikit-learn.
        """
        check_is_fitted(self)
        return Trees(self)

    @property
    def estimators_samples_(self) -> list[np.ndarray]:
        """Returns the samples that each tree drew, int32, ascending, each as often as it was drawn."""
        check_is_fitted(self)
        return [
            np.repeat(np.arange(counts.shape[1], dtype=np.int32), row)
            for counts in map(self._counts, self._draws)
            for row in counts
        ]

    def __len__(self) -> int:
        return len(self.estimators_)

    def __getitem__(self, index: Any) -> Any:
        return self.estimators_[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.estimators_)

    def get_depth(self) -> int:
        """Returns the number of splits from a root to its deepest leaf, over all trees."""
        check_is_fitted(self)
        return int(tree.depth(self.forest_).max())

    def get_n_leaves(self) -> int:
        """Returns the number of leaves of all trees."""
        check_is_fitted(self)
        return len(self.forest_.value)

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
        return tree.out_of_bag(self.forest_, x, self._in_bag(x.shape[0]))

    def _score_out_of_bag(self, outputs: np.ndarray, y: np.ndarray) -> None:
        self._keep_out_of_bag(outputs)
        seen = ~np.isnan(outputs[:, 0])
        if not seen.all():
            warnings.warn(
                f"{np.count_nonzero(~seen)} of {len(seen)} samples were drawn by every tree and have no "
                "out-of-bag prediction; raise n_estimators",
                UserWarning,
                stacklevel=4,
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
        features. With another `importance_type`, that of `hforest.stats.oob_importance`.
        """
        check_is_fitted(self)
        if self.importance_type == "gain":
            return self._of_columns(tree.importance(self.forest_, by="gain"))
        if "_importances" not in vars(self):
            raise AttributeError(
                f"feature_importances_: expected a fit with importance_type={self.importance_type!r}, got "
                "none; call fit again"
            )
        return self._of_columns(self._importances)

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

    def _drawn(
        self, x: np.ndarray, y: np.ndarray, settings: dict[str, Any]
    ) -> tuple[partial[Any], dict[str, Any]]:
        weights = check_choice("bootstrap_weights", self.bootstrap_weights, ("multiply", "draw"))
        never = isinstance(self.bootstrap, bool | np.bool_) and not self.bootstrap
        unused = {"oob_score": False, "max_samples": None, "bootstrap_weights": "multiply"}
        for name, default in {**unused, "importance_type": "gain"}.items():
            value = getattr(self, name)
            if never and np.any(value != default):
                raise ValueError(
                    f"{name}: expected {default!r} with bootstrap=False, got {value!r}; pass bootstrap=True"
                )
        if never:
            return super()._drawn(x, y, settings)
        n = x.shape[0]
        weight = drawing_weight(y, settings) if weights == "draw" else None
        draw = partial(
            growth.bootstrap_counts,
            n,
            **_range(settings),
            n_draws=number_of_draws(self.max_samples, n if weight is None else weight.sum()),
            sample_weight=weight,
            rng=settings["rng"],
        )
        if self.max_samples is None and weight is None:
            return draw, {}
        drawn = dict.fromkeys({"max_samples"} & set(settings))
        if weight is not None:
            drawn |= dict.fromkeys({"sample_weight", "class_weight"} & set(settings))
        if are_of_trees(settings.get("class_weight")):
            drawn.pop("class_weight", None)
        return draw, {**drawn, "bootstrap": draw()}
