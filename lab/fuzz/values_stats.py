"""Good values of the arguments of hforest.stats."""

import functools
from typing import Any

import numpy as np

import hforest
from hforest import growth, stats, tree

from .growing import _regression, _y
from .values import Setting, options, value

options("stats.n_trees", 20, 30)
options("stats.n_permutations", 3, 1)
options("stats.n_bootstrap", 5, 1)
options("stats.max_exceed", None, 1, 10)
options("stats.draw", "fixed", "bootstrap")
options("stats.in_bag", None, 0.7)
options("stats.structure_share", 0.5, 0.6)
options("stats.by", "mdi_oob", "ufi")
options("stats.importance_test.by", "mdi_oob", "ufi", "error")


def _by_error(s: Setting) -> bool:
    return s.target.last == "importance_test" and s.argument("by") == "error"


@value("stats.screen")
def _screen(s: Setting) -> Any:
    return None if _by_error(s) else s.choice((None, 1))


@value("stats.groups")
def _groups(s: Setting) -> Any:
    # Each has one label: of single rows.
    if s.n < 2 or _by_error(s):
        return None
    return s.choice((None, [f"subject {i:04}" for i in range(s.n)]))


@value("stats.strata")
def _strata(s: Setting) -> Any:
    return s.choice((None, np.arange(s.n) // 2)) if s.n > 3 and s.target.last != "split_test" else None


options("stats.trees_per_half", None)  # another must be that of the counts
value("stats.confidence_intervals.feature")(lambda s: None if s.argument("values") is None else 0)
value("stats.confidence_intervals.values")(lambda s: s.numbers(2))


@value("growth.bootstrap_counts.groups", "tree.out_of_bag.groups")
def _subjects(s: Setting) -> Any:
    weighted = s.target.last == "bootstrap_counts" and s.argument("sample_weight") is not None
    return None if weighted or s.n < 2 else [f"subject {i // 2 if s.n > 2 else i}" for i in range(s.n)]


@value("stats.adjust")
def _adjust(s: Setting) -> Any:
    labels = not _by_error(s) and s.argument("groups") is None
    return s.choice(("holm", "bh", "by", *["max"] * labels))


options("stats.allow_invalid", False, True)
options("stats.weighting", "counts", "shares")
options("stats.missing", "error", "omit")
options("stats.least", 1e-6, 0.5, 1.0)
options("stats.specificity", 0.98, 0.5, 0.0)
options("stats.n_subsample", None, 3)
options("stats.columns", 0, [0])
options("stats.importance_test.columns", None, 0, [0], [[0], range(1)])
options("stats.coverage", 0.95, 0.5)
options("stats.n_copies", 3, 1)
options("stats.split_test.structure_share", 0.5, 0.0)
options("stats.grow", None, functools.partial(hforest.grow, max_depth=2))

_OF_CLASSES = {"accuracy": stats.accuracy, "information": stats.information}


@value("stats.x", "stats.z")
def _samples(s: Setting) -> np.ndarray:
    return s.numbers(s.n, s.n_features)


@value("stats.conditional_test.x", "stats.conditional_randomization_test.x")
def _tested(s: Setting) -> np.ndarray:
    return s.numbers(s.n, *s.choice(((2,), (), (1,))))


def _distribution(x: np.ndarray, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=x.shape)


value("stats.sampler")(lambda s: _distribution)


@value("stats.statistic")
def _statistic(s: Setting) -> Any:
    words: tuple[Any, ...] = (None, "mse") if _regression(s) else (None, *_OF_CLASSES, *_OF_CLASSES.values())
    return s.choice((*words, "distance_correlation") if s.target.last == "split_test" else words)


@value("stats.of_x", "stats.of_y")
def _distances(s: Setting) -> np.ndarray:
    a = s.positive(s.n, s.n)
    symmetric: np.ndarray = a + a.T
    return symmetric


_TWO = ("auc", "partial_auc", "sensitivity")


@value("stats.p")
def _posteriors(s: Setting) -> np.ndarray:
    n_classes = 2 if s.target.last in _TWO else s.n_classes
    if s.target.last == "mse":
        return s.numbers(s.n, n_classes)
    p = s.positive(s.n, n_classes)
    p /= p.sum(axis=1, keepdims=True)
    if s.argument("missing") == "omit":
        p[1 + s.indices(2, 1)] = np.nan
    return p


@value("stats.auc.y", "stats.partial_auc.y", "stats.sensitivity.y")
def _two_labels(s: Setting) -> np.ndarray:
    return np.arange(s.n) % 2


@value("stats.accuracy.y", "stats.information.y", "stats.mutual_information.y")
def _labels(s: Setting) -> np.ndarray:
    return np.arange(s.n) % s.n_classes


value("stats.mse.y")(lambda s: s.numbers(*s.argument("p").shape))


@value("stats.honest_counts.y")
def _labels_or_rows(s: Setting) -> Any:
    return s.choice((np.arange(s.n) % s.n_classes, s.n, np.arange(s.n) % 2 == 0))


@value("stats.x_test")
def _new_samples(s: Setting) -> np.ndarray:
    return s.numbers(6, s.n_features)


@value("stats.y_test")
def _new_targets(s: Setting) -> np.ndarray:
    y = s.argument("y")
    return s.numbers(6, *y.shape[1:]) if _regression(s) else np.arange(6) % s.n_classes


@value("stats.oob_importance.counts")
def _in_bag(s: Setting) -> np.ndarray:
    counts = growth.bootstrap_counts(s.n, len(s.argument("forest").tree_start) - 1, rng=0)
    counts[0, 0] = 0
    return counts


value("stats.posterior.sample_weight")(lambda s: s.positive(s.n))


@value("stats.posterior.y", "stats.oob_importance.y")
def _learned(s: Setting) -> np.ndarray:
    return _y(s)


@value("stats.counts")
def _counts(s: Setting) -> stats.HonestCounts:
    return stats.honest_counts(s.n, s.n_trees if s.given("forest") is None else len(s.argument("forest").tree_start) - 1, rng=0)  # fmt: skip


@value("stats.forest")
def _forest(s: Setting) -> tree.Forest:
    x, n_trees = s.argument("x"), s.choice((3, 1))
    return hforest.grow(x, np.arange(s.n) % s.n_classes, n_trees, rng=0)


@value("stats.confidence_intervals.forest")
def _several_trees(s: Setting) -> tree.Forest:
    task = s.choice(("classification", "regression"))
    return hforest.grow(s.argument("x"), np.arange(s.n) % s.n_classes, s.choice((2, 5)), task=task, rng=0)
