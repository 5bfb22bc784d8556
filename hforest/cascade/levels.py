"""The cascade: levels of forests, grown until validation no longer improves."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .. import classic, tree
from ..core import check
from ..tree import Forest
from . import folds as f
from .folds import VECTORS, Grower


class Cascade(NamedTuple):
    """Levels of forests; n_levels of them, the same number of forests in each."""

    n_classes: int
    """Classes."""
    n_features: tuple[int, ...]
    """Features of each grain that `predict` must be given; level l sees grain l mod n_grains."""
    vectors: str
    """How class vectors of training samples came about: "folds" or "bags"."""
    n_folds: int
    """Folds; a forest holds equally many trees of each, in their order. 1 with "bags"."""
    seed: int
    """All randomness of the growth comes from it and the place in the cascade."""
    scores: tuple[float, ...]
    """Validation accuracy of each level: of the mean class vectors of training samples, 0 to 1."""
    levels: tuple[tuple[Forest, ...], ...]
    """The forests of each level. Level 0 sees the input, others the input and then the class vectors of the
    level before, forest by forest."""


Progress = Callable[[Cascade], Any]


def default_forests(n_trees: int = 500) -> tuple[Grower, ...]:
    """The published level: four random forests and four completely random ones (p4 section 3).

    Parameters
    ----------
    n_trees : int
        Trees of a forest, for each fold.

    Returns
    -------
    tuple of functions
        For `grow`: partial calls of `hforest.classic.grow` and `hforest.classic.grow_random`.

    Raises
    ------
    TypeError, ValueError
        Not a positive int.

    Examples
    --------
    >>> import hforest
    >>> len(hforest.cascade.default_forests(100))
    8
    """
    n_trees = check.integer("n_trees", n_trees, 1, 2**31 - 1)
    random = partial(classic.grow, n_trees=n_trees)
    completely = partial(classic.grow_random, n_trees=n_trees)
    return (random,) * 4 + (completely,) * 4


def _grains(x: Any) -> tuple[np.ndarray, ...]:
    return tuple(x) if isinstance(x, list | tuple) else (x,)


def _check_grains(grains: tuple[np.ndarray, ...]) -> None:
    if not grains:
        raise ValueError("x: expected an array or a sequence of them, got none; pass the samples")
    f.check_cpu(**{f"x[{g}]" if len(grains) > 1 else "x": a for g, a in enumerate(grains)})
    dtype = check.floating("x", grains[0])
    sizes: check.Sizes = {}
    for g, a in enumerate(grains):
        name = f"x[{g}]" if len(grains) > 1 else "x"
        check.array(name, a, dtype, ("n", f"n_features[{g}]"), sizes)
        check.finite(name, a)


def _input(grain: np.ndarray, vectors: list[np.ndarray]) -> np.ndarray:
    """What a level sees."""
    return np.concatenate([grain, *vectors], axis=1) if vectors else grain


def _names(forests: Sequence[Any]) -> list[str]:
    return [f"forests[{i}]" for i in range(len(forests))]


class _Training(NamedTuple):
    """What every level of one growth is grown with."""

    y: np.ndarray
    n_classes: int
    vectors: str
    n_folds: int
    seed: int

    def fold(self, level: int) -> np.ndarray:
        return f.assign(self.y, self.n_classes, self.n_folds, f.key(self.seed, level, 0))

    def forest(self, name: str, grower: Grower, z: np.ndarray, place: tuple[int, ...]) -> Forest:
        if self.vectors == "bags":
            settings = getattr(grower, "keywords", {})
            n_trees = check.integer("n_trees", settings.get("n_trees"), 1, 2**31 - 1)
            return f.grow_bags(name, grower, z, self.y, self.n_classes, n_trees, self.seed, place)
        return f.grow_folds(
            name, grower, z, self.y, self.n_classes, self.fold(place[0]), self.n_folds, self.seed, place
        )

    def unseen(self, name: str, forest: Forest, z: np.ndarray, place: tuple[int, ...]) -> np.ndarray:
        if self.vectors == "bags":
            return f.bag_vectors(name, forest, z, self.y, self.seed, place)
        return f.fold_vectors(name, forest, z, self.fold(place[0]), self.n_folds)


def _check_resume(resume: Cascade, cascade: Cascade, n_forests: int) -> None:
    if not isinstance(resume, Cascade):
        raise TypeError(
            f"resume: expected a Cascade, got {type(resume).__name__}; pass what progress was called with"
        )
    for name in ("n_classes", "n_features", "vectors", "n_folds", "seed"):
        here, there = getattr(cascade, name), getattr(resume, name)
        if here != there:
            raise ValueError(
                f"resume: expected {name} = {here} as in this call, got {there}; "
                "go on with the same data and settings"
            )
    if any(len(level) != n_forests for level in resume.levels):
        raise ValueError(
            f"resume: expected levels of {n_forests} forests, got others; go on with the same forests"
        )


def best(cascade: Cascade) -> Cascade:
    """The levels up to the best one; of equal ones the first."""
    n_levels = int(np.argmax(cascade.scores)) + 1
    return cascade._replace(scores=cascade.scores[:n_levels], levels=cascade.levels[:n_levels])


def grow(
    x: np.ndarray | Sequence[np.ndarray],
    y: np.ndarray,
    forests: Sequence[Grower] | None = None,
    *,
    n_classes: int | None = None,
    vectors: str = "folds",
    folds: int = 3,
    patience: int = 1,
    max_levels: int = 20,
    progress: Progress | None = None,
    resume: Cascade | None = None,
    rng: Any = None,
) -> Cascade:
    """A cascade of forests (p4 section 3).

    Parameters
    ----------
    x : (n, n_features) array of float32 or float64, or a sequence of such arrays
        Samples, finite, at least one; of several arrays (grains, from `scan_vectors`) level l sees array
        l mod n_grains.
    y : (n,) array of int32
        Labels 0 to n_classes - 1.
    forests : sequence of functions, optional
        Each is called as grow(x, y, n_classes=..., rng=...) and returns a classification Forest with a fixed
        number of trees; by default `default_forests()`.
    n_classes : int, optional
        By default the largest label and 1.
    vectors : "folds" or "bags"
        Class vectors of training samples by cross-validation, or from the trees of a forest that did not draw
        a sample: a third of the growing. With "bags" each function is also given `bootstrap`, as
        `classic.grow` takes it, and is a functools.partial that binds n_trees.
    folds : int
        2 or more; every class that is present has at least so many samples. Unused with "bags".
    patience : int
        Levels without a better validation accuracy after which growth stops.
    max_levels : int
        Levels at most.
    progress : callable, optional
        Called as progress(cascade) after every level with all levels so far; True ends the growth. Save what
        it is given to go on later.
    resume : Cascade, optional
        What progress was last called with, of a growth with the same arguments: goes on to the same bits.
    rng : None, int or numpy.random.Generator
        Where the seed comes from. To go on with `resume` pass the same int.

    Returns
    -------
    Cascade
        The levels up to the best one.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong kind or dtype, or CuPy arrays; wrong shape, a number out of its range, a class of fewer samples
        than folds; labels out of range; a forest whose values are not shares; another cascade in `resume`.

    Notes
    -----
    A level's score is the accuracy of the mean of its forests' class vectors, each from trees that did not
    see the sample. A sample that every tree of a bagged forest drew gets the shares of the classes. Memory:
    twice the input with one level's vectors, and the trees. Cost: that of n_levels n_forests (folds)
    forests.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> from functools import partial
    >>> x = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    >>> y = (x[:, 0] > x[:, 1]).astype(np.int32)
    >>> few = [partial(hforest.classic.grow, n_trees=10), partial(hforest.classic.grow_random, n_trees=10)]
    >>> cascade = hforest.cascade.grow(x, y, few, rng=0)
    >>> p = hforest.cascade.predict(cascade, x)
    >>> bool((p.argmax(axis=1) == y).mean() > 0.95)
    True
    """
    grains = _grains(x)
    _check_grains(grains)
    n_classes = f.check_samples(grains[0], y, n_classes)
    growers = f.check_growers(default_forests() if forests is None else forests)
    check.choice("vectors", vectors, VECTORS)
    n_folds = check.integer("folds", folds, 2, 2**20) if vectors == "folds" else 1
    if vectors == "folds":
        f.check_folds(y, n_classes, n_folds)
    elif not all("n_trees" in getattr(grower, "keywords", {}) for grower in growers):
        raise TypeError(
            'forests: expected functools.partial objects that bind n_trees with vectors="bags", got others; '
            "pass such as functools.partial(hforest.classic.grow, n_trees=500)"
        )
    patience = check.integer("patience", patience, 1, 2**20)
    max_levels = check.integer("max_levels", max_levels, 1, 2**20)
    seed = int(check.generator(rng).integers(2**63))
    sizes = tuple(grain.shape[1] for grain in grains)
    cascade = Cascade(n_classes, sizes, vectors, n_folds, seed, (), ())
    if resume is not None:
        _check_resume(resume, cascade, len(growers))
    training = _Training(y, n_classes, vectors, n_folds, seed)
    known = () if resume is None else resume.levels
    names = _names(growers)
    found: list[np.ndarray] = []
    for level in range(max_levels):
        scores = cascade.scores
        if scores and len(scores) - 1 - int(np.argmax(scores)) >= patience:
            break
        z = _input(grains[level % len(grains)], found)
        if level < len(known):
            row = known[level]
        else:
            row = tuple(
                training.forest(name, grower, z, (level, 1 + i))
                for i, (name, grower) in enumerate(zip(names, growers, strict=True))
            )
        found = [
            training.unseen(name, forest, z, (level, 1 + i))
            for i, (name, forest) in enumerate(zip(names, row, strict=True))
        ]
        guess = np.mean(found, axis=0, dtype=np.float64).argmax(axis=1)
        cascade = cascade._replace(
            scores=(*scores, float((guess == y).mean())), levels=(*cascade.levels, row)
        )
        if level >= len(known) and progress is not None and progress(cascade) is True:
            break
    return best(cascade)


def predict(cascade: Cascade, x: np.ndarray | Sequence[np.ndarray]) -> np.ndarray:
    """Class probabilities: the mean of the last level's class vectors.

    Parameters
    ----------
    cascade : Cascade
        From `grow` or `load`.
    x : (n, n_features) array, or a sequence of such arrays
        Samples, of the dtype and the grains that the cascade was grown on.

    Returns
    -------
    (n, n_classes) array, dtype of x
        Rows sum to 1.

    Raises
    ------
    TypeError, ValueError
        Wrong kind, dtype or device; wrong shape or layout, NaN or infinity; another number of grains.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> from functools import partial
    >>> x = np.arange(20, dtype=np.float32).reshape(-1, 1)
    >>> y = np.repeat(np.array([0, 1], np.int32), 10)
    >>> cascade = hforest.cascade.grow(x, y, [partial(hforest.classic.grow, n_trees=5)], rng=0)
    >>> hforest.cascade.predict(cascade, x).shape
    (20, 2)
    """
    if not isinstance(cascade, Cascade):
        raise TypeError(f"cascade: expected a Cascade, got {type(cascade).__name__}; grow or load one")
    grains = _grains(x)
    _check_grains(grains)
    sizes = tuple(grain.shape[1] for grain in grains)
    if sizes != cascade.n_features:
        raise ValueError(
            f"x: expected arrays of n_features = {cascade.n_features}, got {sizes}; pass the grains that the "
            "cascade was grown on"
        )
    found: list[np.ndarray] = []
    for level, row in enumerate(cascade.levels):
        z = _input(grains[level % len(grains)], found)
        found = [tree.predict(forest, z) for forest in row]
    return np.mean(found, axis=0, dtype=np.float64).astype(grains[0].dtype)
