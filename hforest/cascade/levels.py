"""The cascade: levels of forests, grown until validation no longer improves."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .. import growth
from ..core import check, supervised
from ..core import progress as progresses
from ..core.aliases import ArrayLike, ClassVectors, ClassWeight, FloatArray, Progress, Rng
from ..core.keywords import answered
from ..tree import Forest
from ..tree.callers import check_forest
from . import folds as f
from .folds import CLASS_VECTORS, Grower


class Cascade(NamedTuple):
    """Levels of forests; n_levels of them, the same number of forests in each."""

    n_classes: int
    """Number of classes."""
    n_features: tuple[int, ...]
    """Number of features of each grain that `predict` takes; level l reads grain l mod n_grains."""
    class_vectors: ClassVectors
    """Where class vectors of training samples come from: "out_of_fold" or "out_of_bag"."""
    n_folds: int
    """Number of folds; a forest has the same number of trees of each, in order. 1 with "out_of_bag"."""
    seed: int
    """Seed, on which, with the place in the cascade, all random numbers of the growth depend."""
    scores: tuple[float, ...]
    """Validation accuracy of each level: of the mean class vectors of training samples, 0 to 1."""
    levels: tuple[tuple[Forest, ...], ...]
    """The forests of each level. Level 0 reads the input, others the input and then the class vectors of the
    level before, forest by forest."""


def default_forests(n_trees: int = 500) -> tuple[Grower, ...]:
    """Returns the functions of a level: four random and four completely random forests (Zhou and Feng 2017).

    Parameters
    ----------
    n_trees : int
        Number of trees per forest and fold.

    Returns
    -------
    tuple of functions
        For `grow`: partial calls of `hforest.grow`, half of them for completely random trees. (The
        figure of a level in Zhang 2017 shows two and two.)

    Examples
    --------
    >>> import hforest
    >>> len(hforest.cascade.default_forests(100))
    8
    """
    n_trees = check.integer("n_trees", n_trees, 1, check.MAX_TREES)
    return (partial(growth.grow, n_trees=n_trees),) * 4 + (partial(f.completely_random, n_trees=n_trees),) * 4


def _grains(x: ArrayLike | Sequence[ArrayLike]) -> tuple[ArrayLike, ...]:
    """Returns the arrays of samples in x: a list or tuple of matrices has several, a list of rows is one."""
    if not isinstance(x, list | tuple):
        return (x,)
    if not x:
        raise ValueError(
            "x: expected an array or a sequence of arrays, got an empty sequence; pass the samples"
        )
    try:
        several = np.ndim(x[0]) >= 2
    except Exception:  # any error of a caller's object; the check of x then names its type
        several = False
    return tuple(x) if several else (x,)


def _grain_names(grains: Sequence[ArrayLike]) -> list[str]:
    return [f"x[{g}]" for g in range(len(grains))] if len(grains) > 1 else ["x"]


def _knows_missing(cascade: Cascade, grain: int, n_grains: int) -> bool:
    """Returns whether the forests that read a grain accept missing values."""
    readers = [forest for level in cascade.levels[grain::n_grains] for forest in level]
    return bool(readers) and all(forest.default_left.size for forest in readers)


def _check_lengths(grains: Sequence[FloatArray]) -> None:
    for g, a in enumerate(grains):
        if len(a) != len(grains[0]):
            raise ValueError(
                f"x[{g}]: expected n_samples = {len(grains[0])} rows like x[0], got {len(a)}; pass grains of "
                "the same samples"
            )


def _training_grains(x: ArrayLike | Sequence[ArrayLike]) -> tuple[FloatArray, ...]:
    """Returns training samples; all grains have one dtype, float64 if one of them needs it."""
    arrays = _grains(x)
    names = _grain_names(arrays)
    check.on_cpu(**dict(zip(names, arrays, strict=True)))
    grains = [supervised.samples_or_missing(name, a)[0] for name, a in zip(names, arrays, strict=True)]
    _check_lengths(grains)
    dtype = np.result_type(*grains)
    return tuple(a.astype(dtype, copy=False) for a in grains)


def _input(grain: np.ndarray, vectors: list[np.ndarray]) -> np.ndarray:
    """Returns the input of a level."""
    return np.concatenate([grain, *vectors], axis=1) if vectors else grain


def _names(forests: Sequence[Any]) -> list[str]:
    return [f"forests[{i}]" for i in range(len(forests))]


class _Training(NamedTuple):
    """Arguments that all levels of one growth share."""

    y: np.ndarray
    weight: np.ndarray | None
    """(n_samples,) float64, above 0; None if functions receive no weights."""
    n_classes: int
    class_vectors: ClassVectors
    n_folds: int
    seed: int
    max_bins: int | None

    def fold(self, level: int) -> np.ndarray | None:
        """Returns the fold of each sample; None without folds."""
        if self.class_vectors == "out_of_bag":
            return None
        return f.assign(self.y, self.n_classes, self.n_folds, f.key(self.seed, level, 0))

    def forest(
        self, name: str, grower: Grower, z: np.ndarray, fold: np.ndarray | None, place: tuple[int, ...]
    ) -> Forest:
        if fold is None:
            n_trees = f.bound_trees(name, grower)
            samples = f.Samples(z, self.y, self.weight, self.max_bins)
            return f.grow_bootstrap(name, grower, samples, self.n_classes, n_trees, self.seed, place)
        samples = f.Samples(z, self.y, self.weight, self.max_bins)
        return f.grow_folds(name, grower, samples, self.n_classes, fold, self.n_folds, self.seed, place)

    def vectors(
        self, name: str, forest: Forest, z: np.ndarray, fold: np.ndarray | None, place: tuple[int, ...]
    ) -> np.ndarray:
        """Returns (n_samples, n_classes): class vectors of training samples, by trees grown without them."""
        if fold is None:
            return f.out_of_bag_vectors(name, forest, f.Samples(z, self.y, self.weight), self.seed, place)
        return f.out_of_fold_vectors(name, forest, z, fold, self.n_folds)


def check_levels(name: str, cascade: Cascade, dtype: np.dtype | None = None) -> None:
    """Checks that the fields of a caller's cascade have the right kinds, and its forests fit them."""
    n_classes = check.integer(f"{name}.n_classes", cascade.n_classes, 1, supervised.MAX_CLASSES)
    check.choice(f"{name}.class_vectors", cascade.class_vectors, CLASS_VECTORS)
    n_folds = check.integer(f"{name}.n_folds", cascade.n_folds, 1, 2**20)
    check.integer(f"{name}.seed", cascade.seed, 0, 2**63 - 1)
    for field in ("n_features", "scores", "levels"):
        value = getattr(cascade, field)
        check.instance(
            f"{name}.{field}", value, tuple | list, "a tuple", "pass the cascade that grow or load returned"
        )
    sizes = [
        check.integer(f"{name}.n_features[{g}]", size, 1, check.MAX_COUNT)
        for g, size in enumerate(cascade.n_features)
    ]
    if not sizes:
        raise ValueError(
            f"{name}.n_features: expected at least one grain, got none; pass the cascade that grow returned"
        )
    for level, score in enumerate(cascade.scores):
        check.number(f"{name}.scores[{level}]", score, 0.0, 1.0)
    if len(cascade.scores) != len(cascade.levels):
        raise ValueError(
            f"{name}.scores: expected a number for each of {len(cascade.levels)} levels, got "
            f"{len(cascade.scores)}; pass the cascade that grow or load returned, unchanged"
        )
    before = 0
    for level, row in enumerate(cascade.levels):
        place = f"{name}.levels[{level}]"
        check.instance(place, row, tuple | list, "a tuple of forests", "pass the cascade that grow returned")
        if not row or (level and len(row) != len(cascade.levels[0])):
            expected = len(cascade.levels[0]) or "at least one"
            raise ValueError(
                f"{place}: expected as many forests as in every level, {expected}, got {len(row)}; pass "
                "the cascade that grow or load returned, unchanged"
            )
        for i, forest in enumerate(row):
            check_forest(f"{place}[{i}]", forest)
            dtype = forest.threshold.dtype if dtype is None else dtype
            f.check_fit(
                f"{place}[{i}]", forest, sizes[level % len(sizes)] + before, n_classes, dtype, n_folds
            )
        before = len(row) * n_classes


def _check_resume(resume: Cascade, cascade: Cascade, n_forests: int, dtype: np.dtype) -> None:
    check.instance("resume", resume, Cascade, "a Cascade", "pass the cascade that checkpoint received")
    check_levels("resume", resume, dtype)
    for name in ("n_classes", "n_features", "class_vectors", "n_folds", "seed"):
        here, there = getattr(cascade, name), getattr(resume, name)
        if here != (tuple(there) if name == "n_features" else there):
            raise ValueError(
                f"resume: expected {name} = {here} as in this call, got {there}; "
                "resume with the same data and settings"
            )
    if resume.levels and len(resume.levels[0]) != n_forests:
        raise ValueError(
            f"resume: expected levels of {n_forests} forests, got levels of other sizes; resume with the "
            "same forests"
        )


def _rounds_waited(scores: Sequence[float], n_grains: int) -> int:
    """Returns the number of whole rounds after the round with the best score; 0 within a round."""
    n_rounds, n_more = divmod(len(scores), n_grains)
    if not n_rounds or n_more:
        return 0
    return n_rounds - 1 - int(np.argmax(scores)) // n_grains


def best(cascade: Cascade) -> Cascade:
    """Returns the levels up to the best one, which is the first of equal ones."""
    n_levels = int(np.argmax(cascade.scores)) + 1
    return cascade._replace(scores=cascade.scores[:n_levels], levels=cascade.levels[:n_levels])


@answered
def grow(
    x: ArrayLike | Sequence[ArrayLike],
    y: ArrayLike,
    forests: Sequence[Grower] | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    class_weight: ClassWeight = None,
    max_bins: int | None = None,
    class_vectors: ClassVectors = "out_of_fold",
    n_folds: int = 3,
    patience: int = 1,
    max_levels: int = 20,
    n_classes: int | None = None,
    resume: Cascade | None = None,
    checkpoint: Callable[[Cascade], object] | None = None,
    progress: Progress = None,
    rng: Rng = None,
) -> Cascade:
    """Returns a cascade of forests, grown level by level (Zhou and Feng 2017; Zhang 2017, section 3).

    Parameters
    ----------
    x : (n_samples, n_features) array_like, or a list or tuple of such arrays
        Samples, at least one, of any real dtype. They are finite, or NaN for missing values if all functions
        accept them (as `hforest.grow` does). Computation is in float32 if it represents every number of the
        dtype, else in float64. With several arrays (grains, from `scan_vectors`) level l reads array
        l mod n_grains, and all share one dtype.
    y : (n_samples,) array_like of any integer dtype or bool
        Labels, 0 to n_classes - 1.
    forests : sequence of functions, optional
        Each is called as grow(x, y, n_classes=..., rng=...) with an array of float32 or float64 and labels of
        int32, and returns a Forest. The Forest is for classification, has the dtype of x and a fixed number
        of trees; by default `default_forests()`.
    sample_weight : (n_samples,) array_like of real numbers, optional
        Weights of the samples, at least 0, not all 0; samples of weight 0 are omitted. The functions then
        also receive `sample_weight`, and validation accuracies are weighted. By default all weights are
        equal.
    max_bins : int, optional
        Maximum number of bins of a feature, 1 to 256, as in `hforest.samples`: functions receive Samples in
        place of an array.
    class_vectors : "out_of_fold" or "out_of_bag"
        Whether class vectors of training samples come from cross-validation, or from the trees whose
        bootstrap sample lacks them, at a third of the cost of three folds. With "out_of_bag" each function
        must be a functools.partial that binds n_trees, and also receives `bootstrap`, as for `hforest.grow`.
    n_folds : int
        Number of folds, 2 or more; each class that occurs has at least n_folds samples. Not used with
        "out_of_bag".
    patience : int
        Number of rounds without a better validation accuracy after which growth stops. A round is one level
        per grain; for a single array each level is a round.
    max_levels : int
        Maximum number of levels (not rounds); growth can end within a round.
    resume : Cascade, optional
        Last argument of `checkpoint` in a call with the same arguments, of which `rng` is an int: growth
        continues from it. The result is bit-identical to that of one call.
    checkpoint : callable, optional
        Called as checkpoint(cascade) after every level with all levels so far, which can be saved to resume
        later.
    progress : callable or bool, optional
        Called as progress(done, max_levels) after every level. If it returns False, growth ends and the
        levels up to the best one so far are returned. True shows a bar.

    Returns
    -------
    Cascade
        The levels up to the best one.

    Raises
    ------
    ValueError
        Before the first forest grows: a class with fewer samples than folds; without `n_classes`, labels with
        gaps; an invalid or different cascade in `resume`. Later: a forest whose values are not shares.

    Notes
    -----
    A level's score is the accuracy of the mean class vector of its forests, from trees grown without the
    sample. A sample in the bootstrap sample of every tree has the class shares as its class vector. Memory:
    twice the input with one level's vectors, and the trees. Cost: that of n_levels n_forests n_folds forests,
    or n_levels n_forests out of bag.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> from functools import partial
    >>> x = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    >>> y = x[:, 0] > x[:, 1]
    >>> few = [partial(hforest.grow, n_trees=10), partial(hforest.grow, n_trees=10, splitter="random")]
    >>> cascade = hforest.cascade.grow(x, y, few, rng=0)
    >>> p = hforest.cascade.predict(cascade, x)
    >>> bool((p.argmax(axis=1) == y).mean() > 0.95)
    True
    """
    grains = _training_grains(x)
    y, n_classes = f.labels(y, len(grains[0]), n_classes)
    weight = None
    if sample_weight is not None or class_weight is not None:
        weight = f.weights(y, n_classes, sample_weight, class_weight)
        positive = np.flatnonzero(weight > 0)
        grains, y, weight = tuple(grain[positive] for grain in grains), y[positive], weight[positive]
    check.choice("class_vectors", class_vectors, CLASS_VECTORS)
    forests_or_default = default_forests() if forests is None else forests
    growers = f.check_growers(forests_or_default, class_vectors, weighted=weight is not None)
    n_folds = check.integer("n_folds", n_folds, 2 if class_vectors == "out_of_fold" else 1, 2**20)
    if class_vectors == "out_of_fold":
        f.check_folds(y, n_classes, n_folds)
    else:
        n_folds = 1
    patience = check.integer("patience", patience, 1, 2**20)
    max_levels = check.integer("max_levels", max_levels, 1, 2**20)
    check.function("checkpoint", checkpoint, "cascade")
    progresses.check_progress(progress)
    seed = int(check.generator(rng).integers(2**63))
    sizes = tuple(grain.shape[1] for grain in grains)
    cascade = Cascade(n_classes, sizes, class_vectors, n_folds, seed, (), ())
    if resume is not None:
        _check_resume(resume, cascade, len(growers), grains[0].dtype)
    training = _Training(y, weight, n_classes, class_vectors, n_folds, seed, supervised.max_bins(max_bins))
    known = () if resume is None else resume.levels
    names = _names(growers)
    level_vectors: list[np.ndarray] = []
    with progresses.reporting(progress, max_levels, "level") as report:
        for level in range(max_levels):
            scores = cascade.scores
            if _rounds_waited(scores, len(grains)) >= patience:
                break
            z = _input(grains[level % len(grains)], level_vectors)
            fold = training.fold(level)
            if level < len(known):
                row = known[level]
            else:
                row = tuple(
                    training.forest(name, grower, z, fold, (level, 1 + i))
                    for i, (name, grower) in enumerate(zip(names, growers, strict=True))
                )
            level_vectors = [
                training.vectors(name, forest, z, fold, (level, 1 + i))
                for i, (name, forest) in enumerate(zip(names, row, strict=True))
            ]
            guess = np.mean(level_vectors, axis=0, dtype=np.float64).argmax(axis=1)
            cascade = cascade._replace(
                scores=(*scores, float(np.average(guess == y, weights=weight))), levels=(*cascade.levels, row)
            )
            if level < len(known):
                continue
            if checkpoint is not None:
                checkpoint(cascade)
            if not report(level + 1):
                break
    return best(cascade)


def predict(cascade: Cascade, x: ArrayLike | Sequence[ArrayLike]) -> FloatArray:
    """Returns class probabilities: the mean of the last level's class vectors.

    Parameters
    ----------
    cascade : Cascade
        From `grow` or `load`.
    x : array_like, or a list or tuple of array_likes
        Samples, finite, of any real dtype, with the grains that the cascade was grown on; converted to the
        dtype of its forests. NaN is accepted if all forests that read the grain were grown with missing
        values.

    Returns
    -------
    (n_samples, n_classes) array, dtype of the forests
        Rows sum to 1.

    Raises
    ------
    ValueError
        Another number of grains; a forest that `hforest.tree.check` refuses.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> from functools import partial
    >>> x = np.arange(20).reshape(-1, 1)
    >>> y = np.repeat([0, 1], 10)
    >>> cascade = hforest.cascade.grow(x, y, [partial(hforest.grow, n_trees=5)], rng=0)
    >>> hforest.cascade.predict(cascade, x).shape
    (20, 2)
    """
    check.instance("cascade", cascade, Cascade, "a Cascade", "pass a Cascade from grow or load")
    check_levels("cascade", cascade)
    if not cascade.levels:
        raise ValueError("cascade: expected at least one level, got none; pass a cascade from grow or load")
    arrays = _grains(x)
    names = _grain_names(arrays)
    check.on_cpu(**dict(zip(names, arrays, strict=True)))
    dtype = cascade.levels[0][0].threshold.dtype
    known = [_knows_missing(cascade, g, len(arrays)) for g in range(len(arrays))]
    grains = [
        supervised.matrix(name, a, dtype, missing=missing)
        for name, a, missing in zip(names, arrays, known, strict=True)
    ]
    _check_lengths(grains)
    sizes = tuple(grain.shape[1] for grain in grains)
    if sizes != tuple(cascade.n_features):
        raise ValueError(
            f"x: expected arrays of n_features = {cascade.n_features}, got {sizes}; pass the same grains "
            "as to grow"
        )
    vectors: list[np.ndarray] = []
    for level, row in enumerate(cascade.levels):
        z = _input(grains[level % len(grains)], vectors)
        vectors = [f.predicted(forest, z) for forest in row]
    return np.mean(vectors, axis=0, dtype=np.float64).astype(dtype)
