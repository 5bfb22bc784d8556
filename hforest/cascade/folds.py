"""Folds and out-of-fold class vectors, which levels and scanners share."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .. import growth, tree
from ..core import check, class_factors, keywords, supervised
from ..core.aliases import ArrayLike, ClassVectors
from ..tree import Forest
from ..tree.callers import grown, join_any, trusted
from ..tree.forest import of_leaves

Grower = Callable[..., Forest]
"""grow(x, y, *, n_classes, rng) -> Forest, such as `growth.grow`; functools.partial binds settings."""

completely_random = partial(growth.grow, splitter="random", max_features=1, bootstrap=False)
"""Grows completely random trees (Zhou and Feng 2017)."""

CLASS_VECTORS = ("out_of_fold", "out_of_bag")


def assign(y: np.ndarray, n_classes: int, n_folds: int, rng: np.random.Generator) -> np.ndarray:
    """Returns the fold of each sample; every class is spread evenly over all folds."""
    members = np.argsort(y, kind="stable")
    first = 0
    for stop in np.cumsum(np.bincount(y, minlength=n_classes)).tolist():
        if stop - first > 1:  # for fewer the generator draws no number
            rng.shuffle(members[first:stop])
        first = stop
    fold = np.empty(len(y), np.int64)
    fold[members] = np.arange(len(y)) % n_folds
    return fold


def check_folds(y: np.ndarray, n_classes: int, n_folds: int) -> None:
    """Checks that every class that occurs has at least n_folds samples."""
    counts = np.bincount(y, minlength=n_classes)
    few = np.flatnonzero((counts > 0) & (counts < n_folds))
    if len(few):
        raise ValueError(
            f"y: expected at least n_folds = {n_folds} samples of each class, got {counts[few[0]]} of "
            f"class {few[0]}; lower n_folds, or leave out classes with fewer samples"
        )


def key(seed: int, *place: int) -> np.random.Generator:
    """Returns the generator of one place in the cascade, so that growth can be resumed anywhere."""
    return np.random.default_rng([seed, *place])


def part(forest: Forest, first: int, last: int) -> Forest:
    """Returns the trees first to last - 1 of a forest."""
    a, b = int(forest.tree_start[first]), int(forest.tree_start[last])
    rows = slice((a + first) // 2, (b + last) // 2)
    oblique = bool(forest.indptr.size)
    entries = slice(int(forest.indptr[a]), int(forest.indptr[b])) if oblique else slice(0, 0)
    sets = forest.category_indptr
    bits = slice(int(sets[a]), int(sets[b])) if sets.size else slice(0, 0)
    return Forest(
        n_features=forest.n_features,
        tree_start=forest.tree_start[first : last + 1] - a,
        feature=forest.feature[a:b],
        threshold=forest.threshold[a:b],
        left=forest.left[a:b],
        **of_leaves(forest, rows),
        gain=forest.gain[a:b],
        indptr=forest.indptr[a : b + 1] - entries.start if oblique else forest.indptr,
        indices=forest.indices[entries],
        data=forest.data[entries],
        default_left=forest.default_left[a:b],
        category_indptr=sets[a : b + 1] - bits.start if bits.stop > bits.start else sets[:0],
        category_bits=forest.category_bits[bits],
        class_start=forest.class_start,
    )


def _probabilities(name: str, p: np.ndarray) -> np.ndarray:
    total = p.sum(axis=1, dtype=np.float64)
    if bool((abs(total - 1) > 1e-3).any()) or bool((p < 0).any()):
        worst = total[abs(total - 1).argmax()]
        raise ValueError(
            f"{name}: expected a forest whose leaf values are class shares that sum to 1, got a sum of "
            f"{worst:g}; pass functions that grow classification forests"
        )
    return p


def predicted(forest: Forest, x: np.ndarray | growth.Samples) -> np.ndarray:
    """Returns class vectors of samples; both arguments have been checked."""
    forest = trusted(forest)
    with check.unchecked():
        return tree.predict(forest, x)


def check_fit(
    name: str, forest: Forest, n_features: int, n_classes: int, dtype: np.dtype, n_folds: int = 1
) -> None:
    """Checks that a checked forest has the sizes and the dtype that its place needs."""
    n_trees = forest.tree_start.size - 1
    for what, expected, got in (
        ("n_features", n_features, int(forest.n_features)),
        ("n_classes", n_classes, forest.value.shape[1]),
        ("dtype", dtype, forest.threshold.dtype),
    ):
        if expected != got:
            raise ValueError(
                f"{name}: expected a forest of {what} = {expected} at this place, got {got}; pass the "
                "object that grow or load returned, unchanged"
            )
    if n_trees % n_folds:
        raise ValueError(
            f"{name}: expected a number of trees divisible by n_folds = {n_folds}, got {n_trees}; pass the "
            "object that grow or load returned, unchanged"
        )


class Samples(NamedTuple):
    """Samples that a forest learns from."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None
    """(n_samples,) float64, or None if functions receive no weights."""
    max_bins: int | None = None
    """Maximum number of bins of a feature; None: functions receive the array."""

    def some(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray | growth.Samples:
        """Returns x, or some of its rows, as functions receive it."""
        x = self.x[rows]
        return x if self.max_bins is None else growth.samples(x, max_bins=self.max_bins)

    def more(self, rows: np.ndarray | slice = slice(None)) -> dict[str, Any]:
        """Returns the argument with the weights of some samples, or no argument without weights."""
        return {} if self.weight is None else {"sample_weight": self.weight[rows].copy()}


def weights(y: np.ndarray, n_classes: int, sample_weight: Any, class_weight: Any) -> np.ndarray:
    """Returns the weights of samples of these labels, (n_samples,) float64, not all 0."""
    of_samples = supervised.sample_weight(sample_weight, y)
    total = class_factors.applied(class_weight, supervised.Target(y, None, n_classes), of_samples)
    supervised.similar("sample_weight", total)
    return np.asarray(total)


def grow_folds(
    name: str, grower: Grower, samples: Samples, n_classes: int, fold: np.ndarray,
    n_folds: int, seed: int, place: tuple[int, ...],
) -> Forest:  # fmt: skip
    """Returns one forest for each fold, grown on the others, as one forest in the order of the folds."""
    forests = []
    for k in range(n_folds):
        others = np.flatnonzero(fold != k)
        x, y, more = samples.some(others), samples.y[others], samples.more(others)
        forests.append(grown(name, grower, x, y, n_classes, rng=key(seed, *place, k), **more))
    if len({forest.tree_start.size for forest in forests}) > 1:
        raise ValueError(
            f"{name}: expected the same number of trees from every call, got different numbers; fix n_trees"
        )
    return join_any(forests)


def out_of_fold_vectors(
    name: str, forest: Forest, x: np.ndarray, fold: np.ndarray, n_folds: int
) -> np.ndarray:
    """Returns class vectors of the training samples, each from the trees grown without it."""
    n_trees = (forest.tree_start.size - 1) // n_folds
    vectors = np.empty((len(x), forest.value.shape[1]), forest.value.dtype)
    for k in range(n_folds):
        members = np.flatnonzero(fold == k)
        vectors[members] = predicted(part(forest, k * n_trees, (k + 1) * n_trees), x[members])
    return _probabilities(name, vectors)


def in_bag_counts(n: int, n_trees: int, seed: int, place: tuple[int, ...]) -> np.ndarray:
    """Returns the number of times that each bootstrap sample contains each sample."""
    return growth.bootstrap_counts(n, n_trees, rng=key(seed, *place, 1))


def grow_bootstrap(
    name: str, grower: Grower, samples: Samples, n_classes: int, n_trees: int, seed: int,
    place: tuple[int, ...],
) -> Forest:  # fmt: skip
    """Returns one forest on the bootstrap samples of `in_bag_counts`."""
    counts = in_bag_counts(len(samples.x), n_trees, seed, place)
    rng = key(seed, *place, 0)
    return grown(
        name, grower, samples.some(), samples.y.copy(), n_classes, bootstrap=counts, rng=rng, **samples.more()
    )


def out_of_bag_vectors(
    name: str, forest: Forest, samples: Samples, seed: int, place: tuple[int, ...]
) -> np.ndarray:
    """Returns class vectors of training samples, each from trees whose bootstrap sample lacks it."""
    x, y, weight, _ = samples
    counts = in_bag_counts(len(x), forest.tree_start.size - 1, seed, place)
    with check.unchecked():
        vectors = tree.out_of_bag(forest, x, counts)
    in_every_tree = np.isnan(vectors).any(axis=1)
    of_class = np.bincount(y, weight, vectors.shape[1])
    vectors[in_every_tree] = of_class / of_class.sum()
    return _probabilities(name, vectors)


def check_growers(
    forests: Sequence[Grower], class_vectors: ClassVectors = "out_of_fold", *, weighted: bool = False
) -> tuple[Grower, ...]:
    """Returns a checked sequence of functions, at least one, that can be called as a level calls them."""
    if isinstance(forests, str | bytes) or not isinstance(forests, Sequence):
        raise TypeError(
            f"forests: expected a sequence of functions, got {type(forests).__name__}; pass a list such as "
            "[functools.partial(hforest.grow, n_trees=500)]"
        )
    if not forests:
        raise ValueError("forests: expected at least one function, got none; leave it out for the default")
    arguments = "x, y, n_classes=..., rng=..."
    if class_vectors == "out_of_bag":
        arguments = "x, y, n_classes=..., bootstrap=..., rng=..."
    if weighted:
        arguments = arguments.replace("rng=", "sample_weight=..., rng=")
    for i, grower in enumerate(forests):
        keywords.grower(f"forests[{i}]", grower, arguments)
        if class_vectors == "out_of_bag":
            bound_trees(f"forests[{i}]", grower)
    return tuple(forests)


def bound_trees(name: str, grower: Grower) -> int:
    """Returns the number of trees that a functools.partial binds."""
    if not isinstance(grower, partial) or "n_trees" not in grower.keywords:
        raise TypeError(
            f'{name}: expected a functools.partial that binds n_trees for class_vectors="out_of_bag", got '
            "another function; pass a function such as functools.partial(hforest.grow, n_trees=500)"
        )
    return check.integer(f"{name}.keywords['n_trees']", grower.keywords["n_trees"], 1, check.MAX_TREES)


def labels(y: ArrayLike, n: int, n_classes: int | None) -> tuple[np.ndarray, int]:
    """Returns the labels of `n` samples as int32, and the number of classes."""
    check.on_cpu(y=y)
    return supervised.labels("y", y, n, n_classes)
