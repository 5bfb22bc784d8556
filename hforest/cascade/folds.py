"""What levels and scanners share: folds, forests of several folds as one, and class vectors nobody saw."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import classic, tree
from ..core import check
from ..core.dispatch import is_cupy
from ..growth import Windows
from ..tree import Forest

Grower = Callable[..., Forest]
"""grow(x, y, *, n_classes, rng) -> Forest: a room's `grow` with its settings bound by functools.partial."""

VECTORS = ("folds", "bags")


def assign(y: np.ndarray, n_classes: int, n_folds: int, rng: np.random.Generator) -> np.ndarray:
    """The fold of each sample; every class is spread evenly over all folds."""
    fold = np.empty(len(y), np.int64)
    first = 0
    for k in range(n_classes):
        members = rng.permutation(np.flatnonzero(y == k))
        fold[members] = (first + np.arange(len(members))) % n_folds
        first += len(members)
    return fold


def check_folds(y: np.ndarray, n_classes: int, n_folds: int) -> None:
    """Every class that is present can be spread over all folds."""
    counts = np.bincount(y, minlength=n_classes)
    few = np.flatnonzero((counts > 0) & (counts < n_folds))
    if len(few):
        raise ValueError(
            f"y: expected at least folds = {n_folds} samples of each class, got {counts[few[0]]} of class "
            f"{few[0]}; lower folds, or leave such classes out"
        )


def key(seed: int, *place: int) -> np.random.Generator:
    """The generator of one place in the cascade: growth can go on anywhere, with the same bits."""
    return np.random.default_rng([seed, *place])


def join(forests: Sequence[Forest]) -> Forest:
    """The trees of several forests as one forest."""
    oblique = any(forest.start.size for forest in forests)
    starts, entries, nodes = [np.zeros(1, np.int64)], 0, 0
    roots = [np.zeros(1, np.int64)]
    for forest in forests:
        roots.append(forest.tree_start[1:] + nodes)
        nodes += forest.feature.size
        if oblique:
            given = forest.start if forest.start.size else np.zeros(forest.feature.size + 1, np.int64)
            starts.append(given[1:] + entries)
            entries += forest.index.size
    arrays = {
        name: np.concatenate([getattr(forest, name) for forest in forests])
        for name in ("feature", "threshold", "left", "value", "gain", "index", "weight")
    }
    return Forest(
        n_features=forests[0].n_features,
        tree_start=np.concatenate(roots),
        start=np.concatenate(starts) if oblique else np.zeros(0, np.int64),
        **arrays,
    )


def part(forest: Forest, first: int, last: int) -> Forest:
    """Trees first to last - 1 of a forest."""
    a, b = int(forest.tree_start[first]), int(forest.tree_start[last])
    rows = slice((a + first) // 2, (b + last) // 2)
    oblique = bool(forest.start.size)
    entries = slice(int(forest.start[a]), int(forest.start[b])) if oblique else slice(0, 0)
    return Forest(
        n_features=forest.n_features,
        tree_start=forest.tree_start[first : last + 1] - a,
        feature=forest.feature[a:b],
        threshold=forest.threshold[a:b],
        left=forest.left[a:b],
        value=forest.value[rows],
        gain=forest.gain[a:b],
        start=forest.start[a : b + 1] - entries.start if oblique else forest.start,
        index=forest.index[entries],
        weight=forest.weight[entries],
    )


def _probabilities(name: str, p: np.ndarray) -> np.ndarray:
    total = p.sum(axis=1, dtype=np.float64)
    if bool((abs(total - 1) > 1e-3).any()) or bool((p < 0).any()):
        worst = total[abs(total - 1).argmax()]
        raise ValueError(
            f"{name}: expected a forest whose leaf values are shares of the classes, which sum to 1, "
            f"got a sum of {worst:g}; pass growers of classification forests"
        )
    return p


def grown(
    name: str, grower: Grower, x: np.ndarray | Windows, y: np.ndarray, n_classes: int, **more: Any
) -> Forest:
    """A forest from a caller's grower, checked."""
    forest = grower(x, y, n_classes=n_classes, **more)
    if not isinstance(forest, Forest):
        raise TypeError(
            f"{name}: expected a function that returns a hforest.tree.Forest, got a {type(forest).__name__}; "
            "pass a room's grow, its settings bound by functools.partial"
        )
    tree.check(forest)
    if forest.value.shape[1] != n_classes or int(forest.n_features) != x.shape[1]:
        raise ValueError(
            f"{name}: expected a forest of n_features = {x.shape[1]} and n_classes = {n_classes}, got "
            f"{int(forest.n_features)} and {forest.value.shape[1]}; grow on the arrays that are given"
        )
    return forest


def grow_folds(
    name: str, grower: Grower, x: np.ndarray, y: np.ndarray, n_classes: int, fold: np.ndarray,
    n_folds: int, seed: int, place: tuple[int, ...],
) -> Forest:  # fmt: skip
    """One forest for each fold, grown on the others, as one forest in the order of the folds."""
    forests = []
    for k in range(n_folds):
        others = np.flatnonzero(fold != k)
        forests.append(grown(name, grower, x[others], y[others], n_classes, rng=key(seed, *place, k)))
    if len({forest.tree_start.size for forest in forests}) > 1:
        raise ValueError(f"{name}: expected equally many trees at every call, got others; fix n_trees")
    return join(forests)


def fold_vectors(name: str, forest: Forest, x: np.ndarray, fold: np.ndarray, n_folds: int) -> np.ndarray:
    """Class vectors of the training samples, each from the trees grown without it."""
    n_trees = (forest.tree_start.size - 1) // n_folds
    vectors = np.empty((len(x), forest.value.shape[1]), forest.value.dtype)
    for k in range(n_folds):
        members = np.flatnonzero(fold == k)
        vectors[members] = tree.predict(part(forest, k * n_trees, (k + 1) * n_trees), x[members])
    return _probabilities(name, vectors)


def bags_of(n: int, n_trees: int, seed: int, place: tuple[int, ...]) -> np.ndarray:
    """How often each tree draws each sample."""
    return classic.draw_bags(n, n_trees, rng=key(seed, *place, 1))


def grow_bags(
    name: str, grower: Grower, x: np.ndarray, y: np.ndarray, n_classes: int, n_trees: int, seed: int,
    place: tuple[int, ...],
) -> Forest:  # fmt: skip
    """One forest on bags that are known."""
    bags = bags_of(len(x), n_trees, seed, place)
    return grown(name, grower, x, y, n_classes, bootstrap=bags, rng=key(seed, *place, 0))


def bag_vectors(
    name: str, forest: Forest, x: np.ndarray, y: np.ndarray, seed: int, place: tuple[int, ...]
) -> np.ndarray:
    """Class vectors of the training samples, each from the trees that did not draw it."""
    vectors = classic.out_of_bag(forest, x, bags_of(len(x), forest.tree_start.size - 1, seed, place))
    shares = np.bincount(y, minlength=vectors.shape[1]) / len(y)
    drawn_by_all = np.isnan(vectors).any(axis=1)
    vectors[drawn_by_all] = shares
    return _probabilities(name, vectors)


def check_growers(forests: Sequence[Grower]) -> tuple[Grower, ...]:
    """A sequence of functions, at least one."""
    if callable(forests) or not isinstance(forests, Sequence) or not all(map(callable, forests)):
        raise TypeError(
            f"forests: expected a sequence of functions, got {type(forests).__name__}; pass such as "
            "[functools.partial(hforest.classic.grow, n_trees=500)]"
        )
    if not forests:
        raise ValueError("forests: expected at least one function, got none; leave it out for the default")
    return tuple(forests)


def check_samples(x: np.ndarray, y: np.ndarray, n_classes: int | None) -> int:
    """x and y of a classification; the number of classes."""
    check_cpu(x=x, y=y)
    sizes: check.Sizes = {}
    check.array("x", x, check.floating("x", x), ("n", "n_features"), sizes)
    check.at_least_one(sizes, "n", "n_features")
    check.finite("x", x)
    check.array("y", y, check.INT32, ("n",), sizes)
    if n_classes is None:
        n_classes = int(y.max()) + 1
    n_classes = check.integer("n_classes", n_classes, 1, 2**20)
    check.indices("y", y, n_classes, "n_classes")
    return n_classes


def check_cpu(**arrays: Any) -> None:
    """NumPy arrays."""
    for name, a in arrays.items():
        if is_cupy(a):
            raise TypeError(
                f"{name}: expected a numpy.ndarray, got a CuPy array; cascades live on the CPU: pass "
                f"cupy.asnumpy({name})"
            )
    check.same_device(**arrays)
