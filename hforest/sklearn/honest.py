"""Honest forests: the splits of a tree come from some samples, its leaf values from others."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from .. import project, stats, tree
from ..core.aliases import ArrayLike, Criterion, Draw, Empty, MaxFeatures
from .base import check_flag
from .grown import GrownForest
from .intervals import ForestRegressor
from .oblique import patches
from .targets import Classifier

_TREES: dict[str, dict[str, Any]] = {
    "classic": {}, "extra": {"splitter": "random"}, "oblique": {}, "patches": {}
}  # fmt: skip
"""Settings of `hforest.grow` for each kind of trees."""

_PROJECTED = ("oblique", "patches")
"""Kinds of trees with projections."""


_DRAWN = ("n_trees", "first_tree", "rng")
"""Settings of the growth that `hforest.stats.honest_counts` takes, too."""


def _learned(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings for labels or targets, and weights."""
    return {name: settings[name] for name in ("task", "n_classes", "sample_weight") if name in settings}


def tree_rows(forest: tree.Forest, leaf: np.ndarray) -> np.ndarray:
    """Returns the rows of `forest.value` of leaves (n_samples, n_trees), numbered within their trees."""
    root = forest.tree_start[:-1]
    rows: np.ndarray = (root + np.arange(len(root))) // 2 + forest.left[root + leaf]
    return rows


@dataclass(kw_only=True, eq=False, repr=False)
class _Honest(GrownForest):
    """Base class of forests of honest trees, with splits of any kind."""

    trees: Literal["classic", "extra", "oblique", "patches"] = "classic"
    draw: Draw = "fixed"
    in_bag: float | None = None
    structure_share: float = 0.5
    trees_per_half: int | None = None
    criterion: Criterion = "gini"
    max_features: MaxFeatures = "sqrt"
    density: float = 1.5
    n_projections: int | Sequence[int] | None = None
    feature_groups: Sequence[ArrayLike] | None = None
    shape: Sequence[int] | None = None
    patch_min: int | Sequence[int] = 1
    patch_max: int | Sequence[int] = 3
    channels: bool = False
    cyclic: bool = False
    empty: Empty = "prune"
    min_impurity_decrease: float = 0.0
    max_bins: int | None = None

    def _learner(self) -> Callable[..., Any]:
        if not isinstance(self.trees, str) or self.trees not in _TREES:
            names = ", ".join(map(repr, _TREES))
            raise ValueError(f"trees: expected one of {names}, got {self.trees!r}; pass one of them")
        return super()._learner()

    def _splits_by_categories(self) -> bool:
        return self.trees not in _PROJECTED

    def _check_words(self) -> None:
        super()._check_words()
        check_flag("channels", self.channels)
        check_flag("cyclic", self.cyclic)

    def _settings(self, function: Callable[..., Any] | None = None) -> dict[str, Any]:
        # Projections have neither sampled features nor bins, other trees no projections.
        without = {"max_features", "max_bins"} if self.trees in _PROJECTED else {"n_projections"}
        return {name: value for name, value in super()._settings(function).items() if name not in without}

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Grows the forest on samples, or groups of them, and returns the estimator.

        Parameters: see `RandomForestClassifier.fit`.

        Parameters
        ----------
        groups : (n_samples,) array-like of the group of each sample, optional
            Groups of samples that belong together, as in `hforest.stats.honest_counts`: trees draw whole
            groups, which are out-of-bag together.

        Returns
        -------
        self
        """
        self._groups = groups
        try:
            return super().fit(X, y, sample_weight)
        finally:
            del self._groups

    def _drawn(
        self, x: np.ndarray, y: np.ndarray, settings: dict[str, Any]
    ) -> tuple[partial[Any], dict[str, Any]]:
        n = x.shape[0]
        if n < 3:
            raise ValueError(f"X: expected at least 3 samples, got {n} samples; pass more rows")
        # Halves vary the shares of classes, too: see `hforest.stats.confidence_intervals`.
        goals = n if settings["task"] == "regression" or self.trees_per_half is not None else y
        own: dict[str, Any] = {name: settings[name] for name in _DRAWN if name in settings}
        if vars(self).get("_groups") is not None:
            own["groups"] = self._groups
        keywords: dict[str, Any] = {**self._settings(stats.honest_counts), **own}
        draw = partial(stats.honest_counts, goals, **keywords)
        counts = draw()
        if self.trees_per_half is not None and len(counts.leaf) % self.trees_per_half:
            raise ValueError(
                f"n_estimators: expected a multiple of trees_per_half = {self.trees_per_half}, got "
                f"{len(counts.leaf)}; grow whole halves"
            )
        return draw, {"bootstrap": counts}

    def _counts(self, draw: partial[Any]) -> np.ndarray:
        counts = draw()
        both: np.ndarray = counts.structure + counts.leaf
        return both

    def _grow(self, x: np.ndarray, y: np.ndarray, settings: dict[str, Any]) -> tree.Forest:
        counts = settings["bootstrap"]
        weight = settings["sample_weight"]
        if weight is not None:
            weight = check_array(weight, dtype=np.float64, ensure_2d=False, input_name="sample_weight")
            if weight.shape == (x.shape[0],) and not (counts.structure @ (weight > 0)).all():
                raise ValueError(
                    "sample_weight: expected samples of weight above 0 for the splits of each tree, got only "
                    "zeros for one; raise some weights"
                )
        grown = super()._grow(x, y, settings | {"bootstrap": counts.structure} | _TREES[self.trees])
        honest = tree.refit(grown, x, y, counts=counts.leaf, empty=self.empty, **_learned(settings))
        self.fallback_: np.ndarray | None = None
        if self.empty == "abstain":
            of_class = np.bincount(y, weight, settings["n_classes"])
            self.fallback_ = of_class / of_class.sum()
        return honest

    def _outputs(self, x: np.ndarray) -> np.ndarray:
        outputs = super()._outputs(x)
        fallback = vars(self).get("fallback_")
        if fallback is None:
            return outputs
        # Rows sum to the share of trees that vote. Where none votes, classes have the shares of all samples.
        votes = outputs.sum(axis=1, keepdims=True)
        fallback = np.broadcast_to(fallback.astype(outputs.dtype), outputs.shape).copy()
        return np.divide(outputs, votes, out=fallback, where=votes > 0)

    def _projections(self, n_features: int) -> dict[str, Any]:
        """Returns the settings of oblique trees; with groups each projection is within one of them."""
        groups: Any = self.feature_groups
        if self.trees == "patches" and groups is None:
            return {"projections": patches(self, n_features)}
        if self.trees != "oblique":
            if groups is not None:
                raise ValueError(
                    f"feature_groups: expected None with trees={self.trees!r}, got {type(groups).__name__}; "
                    'pass trees="oblique"'
                )
            return {}
        base = project.sparse_distribution(n_features, self.density)
        if groups is None:
            return {"projections": base}
        if isinstance(groups, list | tuple):
            groups = [self._numbers_of("feature_groups", group) for group in groups]
        try:
            views = project.grouped_distribution(base, groups, self.n_projections)
        except (TypeError, ValueError, IndexError) as error:
            if not str(error).startswith("groups"):
                raise
            raise type(error)(f"feature_{error}") from None
        return {"projections": views, "n_projections": None}

    def _out_of_bag(self, x: np.ndarray, y: np.ndarray, settings: dict[str, Any]) -> np.ndarray:
        counts = self.counts_
        p, self.oob_votes_ = stats.posterior(
            self.forest_, x, y, counts, weighting="shares", **_learned(settings)
        )
        if self.empty in ("uniform", "prior"):  # every leaf votes
            used = counts.structure + counts.leaf
            self.oob_votes_ = (used == 0).sum(axis=0)
            p = tree.out_of_bag(self.forest_, x, used)
        return p

    def _intervals(self, X: ArrayLike, coverage: float) -> stats.ConfidenceIntervals:
        """Returns the result of `hforest.stats.confidence_intervals`; warns of too few trees."""
        if self.empty == "abstain":
            raise ValueError(
                "empty: expected a forest whose trees all vote, for intervals, got 'abstain'; pass "
                'empty="prune" and fit again'
            )
        x = self._samples(X)
        drawn = self._draws[0].keywords
        of_draws = {name: drawn[name] for name in ("groups", "trees_per_half") if name in drawn}
        with self._computing():
            intervals = stats.confidence_intervals(
                self.forest_, self.counts_, x, coverage=coverage, **of_draws
            )
        n_noisy = np.count_nonzero((intervals.noise > 0.9).any(axis=1))
        if n_noisy:
            warnings.warn(
                f"more than nine tenths of the variance is Monte Carlo bias for {n_noisy} of "
                f"{len(intervals.mean)} samples, whose standard errors are unreliable; raise n_estimators",
                UserWarning,
                stacklevel=3,
            )
        return intervals

    @property
    def counts_(self) -> stats.HonestCounts:
        """Returns the counts of each sample in the draws for the splits and for the leaf values of each tree.

        Computed from the seed at each access.
        """
        check_is_fitted(self)
        counts = (draw() for draw in self._draws)
        return stats.HonestCounts(*map(np.concatenate, zip(*counts, strict=True)))


@dataclass(kw_only=True, eq=False, repr=False)
class HonestForestClassifier(Classifier, _Honest):
    """Honest forest classifier: some of each tree's samples grow its splits, the others give its leaf values
    (`hforest.stats.honest_counts`, `hforest.tree.refit`).

    Trees on projections do not use max_features. Other parameters and attributes: see
    `hforest.stats.honest_counts`, `hforest.project.patch_distribution`, `ObliqueForestClassifier` and
    `RandomForestClassifier`.

    Parameters
    ----------
    trees : "classic", "extra", "oblique" or "patches"
        What grows the splits: random forests, extra trees, oblique trees of sparse projections, or trees on
        sums over patches with `shape`, `patch_min`, `patch_max`, `channels` and `cyclic` as in
        `ManifoldForestClassifier`.
    n_projections : int or list of ints, optional
        Number of projections sampled at a node, per group with `feature_groups`. By default the square root
        of the number of features (of the group), rounded up.
    feature_groups : list of array-likes of int or str, optional
        Groups (views) of columns, by number or name; every column is in one group. Each projection of an
        oblique tree uses columns of one group; see `hforest.project.grouped_distribution`.
    trees_per_half : int or None
        As in `hforest.stats.honest_counts`: 2 or more for `predict_interval`; samples of all classes are then
        drawn alike.
    empty : "prune", "abstain", "uniform" or "prior"
        Treatment of leaves without samples, as in `hforest.tree.refit`. With "abstain" probabilities are
        means over the trees that vote.

    Attributes
    ----------
    counts_ : hforest.stats.HonestCounts
        How often each sample was drawn for each tree, one row per tree.
    oob_votes_ : (n_samples,) array of int64
        Number of trees that did not draw a sample; set with `oob_score`.

    Examples
    --------
    >>> from hforest.sklearn import HonestForestClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> model = HonestForestClassifier(oob_score=True, random_state=0).fit(x, y)
    >>> model.oob_score_ > 0.93, int(model.oob_votes_.min()) > 5
    (True, True)
    """

    def predict_proba_per_tree(self, X: ArrayLike) -> np.ndarray:
        """Returns the probabilities of the classes by each tree; X as in `predict`.

        Returns
        -------
        (n_trees, n_samples, n_classes) array of float32 or float64
            NaN where a tree abstains.
        """
        leaf = self.apply(X)
        p = self.forest_.value[tree_rows(self.forest_, leaf)].transpose(1, 0, 2)
        return np.where(p.any(axis=2, keepdims=True), p, np.nan).astype(p.dtype, copy=False)

    def predict_interval(self, X: ArrayLike, *, coverage: float = 0.95) -> stats.ConfidenceIntervals:
        """Returns the probabilities of classes with standard errors and confidence intervals, in 0 to 1.

        The fit needs `trees_per_half`. Other parameters: see `HonestForestClassifier.predict` and
        `hforest.stats.confidence_intervals`.

        Returns
        -------
        hforest.stats.ConfidenceIntervals of (n_samples, n_classes) arrays
        """
        check_is_fitted(self)
        if self._draws[0].keywords.get("trees_per_half") is None:
            raise ValueError(
                "trees_per_half: expected an int in fit, got None; pass trees_per_half=2 and fit again"
            )
        intervals = self._intervals(X, coverage)
        return intervals._replace(low=np.maximum(intervals.low, 0), high=np.minimum(intervals.high, 1))


@dataclass(kw_only=True, eq=False, repr=False)
class HonestForestRegressor(ForestRegressor, _Honest):
    """Honest forest for one or several targets, with confidence intervals of their means: of subsamples, as
    `HonestForestClassifier` (Wager and Athey 2018).

    Parameters and attributes: see `HonestForestClassifier` and `RandomForestRegressor`.

    Examples
    --------
    >>> from hforest.sklearn import HonestForestRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> model = HonestForestRegressor(2000, min_samples_leaf=5, random_state=0).fit(x[:300], y[:300])
    >>> mean, standard_error, low, high, noise = model.predict_interval(x[300:], coverage=0.9)
    >>> bool((low < mean).all()), mean.shape
    (True, (142,))
    """

    in_bag: float | None = 0.5
    criterion: Criterion = "squared_error"
    max_features: MaxFeatures = 1.0

    def _held(self, x: np.ndarray) -> dict[str, Any]:
        return {"counts": self.counts_.leaf}

    def predict_interval(self, X: ArrayLike, *, coverage: float = 0.95) -> stats.ConfidenceIntervals:
        """Returns the predicted means of targets with standard errors and confidence intervals.

        Parameters: see `HonestForestRegressor.predict` and `hforest.stats.confidence_intervals`.

        Returns
        -------
        hforest.stats.ConfidenceIntervals
            (mean, standard_error, low, high, noise), of arrays of float64, (n_samples,) or (n_samples,
            n_outputs) each. Intervals are for means, not for single targets; see
            `hforest.stats.confidence_intervals` for what they omit. Without `trees_per_half` set
            `n_estimators` to several times the number of training samples: a warning gives the number of
            samples with noise above 0.9.
        """
        return stats.ConfidenceIntervals(*(self._answers(a) for a in self._intervals(X, coverage)))
