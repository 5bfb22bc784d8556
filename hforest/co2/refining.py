"""Refinement of all splits and leaves of grown trees together (Norouzi, Collins, Johnson, Fleet and Kohli
2015).
"""

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ..core import check, dispatch, machine, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray, Progress, Rng, Task
from ..core.philox import keys, philox
from ..core.progress import check_progress, reporting
from ..core.units import Units, standardized
from ..tree import Forest
from ..tree.forest import check_comparisons, check_layout, check_numbers, marked, trusted
from . import checks, units
from .any_loss import Loss, Node
from .descent import LANES, Schedule
from .stump import StumpSettings, check_loss, schedule
from .whole_trees import OfPair, Trees, descend

_PACKAGE = "hforest.co2"

_TOGETHER = 2**27  # samples of all trees that a GPU refines at a time; each takes 12 bytes

_Samples = checks.Samples | Node


class _Units(NamedTuple):
    """Deviations in which trees are refined."""

    x: Units
    y: Units | None


def _check_forest(forest: Forest, x: object) -> Forest:
    """Returns a forest on the host."""
    if dispatch.is_cupy(getattr(forest, "feature", None)):
        check_layout(forest, x)
        forest = Forest(*map(dispatch.to_numpy, forest))
    forest = trusted(forest, x)
    check_comparisons("forest", forest)
    check_numbers(forest, "threshold")
    check.require(
        not forest.class_start.size, "forest", "one label a sample", f"{len(forest.class_start) - 1} labels",
        "refine a forest of one of them",
    )  # fmt: skip
    return forest


def _matrix(name: str, x: ArrayLike, forest: Forest) -> FloatArray:
    """Returns samples in the dtype of the forest."""
    x = supervised.matrix(name, x, forest.threshold.dtype)
    supervised.check_sizes(name, x.shape)
    n_features = int(forest.n_features)
    check.require(
        x.shape[1] == n_features, name, f"n_features = {n_features} columns", x.shape[1],
        "pass the columns on which the forest was grown",
    )  # fmt: skip
    checks.moderate(name, x)
    return x


def _target(
    x: FloatArray, y: ArrayLike, weight: ArrayLike | None, task: Task, n_outputs: int
) -> checks.Samples:
    n_classes = n_outputs if task == "classification" else None
    target, of_samples = checks.target_and_weight(x, y, weight, task, n_classes)
    check.require(
        target.n_outputs == n_outputs, "y", f"the {n_outputs} targets of the forest", target.n_outputs,
        "pass the targets on which the forest was grown",
    )  # fmt: skip
    return checks.Samples(x, target.labels, target.targets, of_samples)


def _judge(
    validation: object, x: FloatArray, forest: Forest, task: Task, loss: Loss | None
) -> _Samples | None:
    """Returns the validation samples, in the units of the caller."""
    if validation is None:
        return None
    remedy = "pass a tuple (x, y)"
    check.instance("validation", validation, tuple, "None or a tuple (x, y)", remedy)
    pair: Any = validation
    check.require(len(pair) == 2, "validation", "a tuple (x, y)", f"{len(pair)} items", remedy)
    with check.fields_of("validation"):
        other = _matrix("x", pair[0], forest)
        if loss is not None:
            return Node(other, pair[1], loss, None)
        target = _target(other, pair[1], None, task, forest.value.shape[1])
    check.same_device(**{"x": x, "validation[0]": other})
    return target


def _units(samples: _Samples) -> _Units:
    """Returns the deviations of samples; those of targets for the squared loss only."""
    of_x, targets = units.of_samples(samples.x, samples.weight), getattr(samples, "targets", None)
    return _Units(of_x, None if targets is None else units.of_targets(targets, samples.weight))


def _standardized(samples: _Samples, of: _Units) -> _Samples:
    """Returns samples of positive weight, in deviations."""
    heavy = samples.weight > 0
    x = standardized(samples.x[heavy], of.x)
    if isinstance(samples, Node):
        samples.x, samples.y, samples.weight = x, check.owned(samples.y[heavy]), samples.weight[heavy]
        return samples
    labels = None if samples.labels is None else samples.labels[heavy]
    targets = samples.targets
    if targets is not None and of.y is not None:
        targets = standardized(targets[heavy], of.y)
    return checks.Samples(x, labels, targets, samples.weight[heavy])


def _rows(forest: Forest, trees: slice) -> slice:
    """Returns the rows of `value` of some trees."""
    first, last = trees.start, trees.stop
    return slice((int(forest.tree_start[first]) + first) // 2, (int(forest.tree_start[last]) + last) // 2)


def _hyperplanes(forest: Forest, nodes: slice, of_x: Units, nu: float) -> FloatArray:
    """Returns w of the splits among some nodes, with offsets, for samples in deviations; ``|w|**2 = nu``."""
    n_features, feature = len(of_x.mean), forest.feature[nodes]
    split = np.cumsum(feature != -1) - 1
    w = np.zeros((int(split[-1]) + 1, -(-(n_features + 1) // LANES) * LANES))
    single, inner = feature >= 0, feature != -1
    f = feature[single]
    w[split[single], f] = of_x.deviation[f]
    w[:, n_features] = forest.threshold[nodes][inner]
    w[split[single], n_features] -= of_x.mean[f]
    if forest.indptr.size:
        indptr = forest.indptr[nodes.start : nodes.stop + 1]
        some = slice(indptr[0], indptr[-1])
        row, j = np.repeat(split, np.diff(indptr)), forest.indices[some]
        with np.errstate(over="ignore", invalid="ignore"):
            np.add.at(w, (row, j), forest.data[some] * of_x.deviation[j])
            w[:, n_features] -= np.bincount(row, forest.data[some] * of_x.mean[j], len(w))
    largest = abs(w).max(axis=1, initial=0)
    check.require(
        np.isfinite(largest).all(), "forest.data", "weights whose products with deviations of x are finite",
        f"products up to {largest.max(initial=0):g}", "scale the projections of the forest",
    )  # fmt: skip
    w /= np.where(largest > 0, largest, 1)[:, None]
    length = np.sqrt((w * w).sum(axis=1))
    return (w * (np.sqrt(nu) / np.where(length > 0, length, 1))[:, None]).astype(forest.threshold.dtype)


def _trees(forest: Forest, trees: slice, of_x: Units, nu: float) -> Trees:
    """Returns some trees for the backends."""
    start = forest.tree_start[trees.start : trees.stop + 1]
    nodes, rows = slice(int(start[0]), int(start[-1])), _rows(forest, trees)
    sizes = np.diff(start)
    first_split, first_leaf = (np.concatenate([[0], np.cumsum(n)]) for n in (sizes // 2, sizes // 2 + 1))
    tree, left = np.repeat(np.arange(len(sizes)), sizes), forest.left[nodes]
    inner = forest.feature[nodes] != -1
    number = np.where(inner, np.cumsum(inner) - 1 - first_split[tree], -1 - left).astype(np.int32)
    first = (start[tree] - start[0] + left)[inner]
    shape = rows.stop - rows.start, forest.value.shape[1]
    return Trees(
        first_split, first_leaf, np.stack([number[first], number[first + 1]], axis=1),
        _hyperplanes(forest, nodes, of_x, nu), np.zeros(shape), np.zeros(shape),
    )  # fmt: skip


def _descend_pair(
    forest: Forest, rows: slice, trees: Trees, problem: Any, judge: Any, c: Schedule, seed: int, first: int,
    history: FloatArray,
) -> None:  # fmt: skip
    """Does what `refine` of the backends does, with a caller's loss; thetas start at values of the forest."""
    trees.theta[:] = forest.value[rows]
    n_weights = problem.x.shape[1] + 1
    for m in range(len(trees.first_split) - 1):
        splits, leaves = (slice(*ends[m : m + 2]) for ends in (trees.first_split, trees.first_leaf))
        child, w, theta = trees.child[splits], trees.w[splits, :n_weights], trees.theta[leaves]
        of_judge = None if judge is None else OfPair(judge, child)
        key = keys(philox(seed, first + m, 0))[0]
        w[:], theta[:] = descend(OfPair(problem, child), of_judge, c, key, w, theta, history[m])
    trees.value[:] = trees.theta


class _Refined(NamedTuple):
    """Arrays of refined trees, in deviations."""

    n_entries: IntArray
    """Of all nodes."""
    threshold: FloatArray
    """Of all nodes."""
    indices: IntArray
    data: FloatArray
    value: FloatArray


def _refined(forest: Forest, trees: slice, fitted: Trees) -> _Refined:
    nodes = slice(*forest.tree_start[[trees.start, trees.stop]])
    inner = forest.feature[nodes] != -1
    real, w = fitted.w.dtype.type, fitted.w[:, : int(forest.n_features)]
    split, indices = np.nonzero(w)
    n_entries, threshold = np.zeros(len(inner), np.int64), np.zeros(len(inner), real)
    n_entries[inner] = np.bincount(split, minlength=len(w))
    threshold[inner] = np.nextafter(fitted.w[:, int(forest.n_features)], real(-np.inf))
    return _Refined(n_entries, threshold, indices.astype(np.int32), w[split, indices], fitted.value)


def _as_forest(forest: Forest, refined: list[_Refined], n_trees: int, of: _Units, xp: ModuleType) -> Forest:
    """Returns the first trees of a forest as they were refined, in the caller's units, as arrays of `xp`."""
    n_entries, threshold, indices, data, value = (np.concatenate(a) for a in zip(*refined, strict=True))
    nodes, real = slice(0, len(n_entries)), forest.threshold.dtype
    if of.y is not None:
        value = value * of.y.deviation + of.y.mean
    with np.errstate(over="ignore"):
        value = value.astype(real)
    check.require(
        np.isfinite(value).all(), "loss", f"values of leaves in the range of {real}", "larger ones",
        "lower lr, or pass a forest of float64",
    )  # fmt: skip
    feature = np.where(forest.feature[nodes] == -1, -1, -2).astype(np.int32)
    result = Forest(
        n_features=forest.n_features.copy(), tree_start=forest.tree_start[: n_trees + 1].copy(),
        feature=feature, threshold=threshold, left=forest.left[nodes].copy(), value=value,
        gain=forest.gain[nodes].copy(), indptr=np.concatenate([[0], np.cumsum(n_entries)]), indices=indices,
        data=data, default_left=forest.default_left[nodes].copy(),
    )  # fmt: skip
    return marked(Forest(*map(xp.asarray, units.with_units(result, of.x, None))))


def refine(
    forest: Forest,
    x: ArrayLike,
    y: ArrayLike,
    *,
    nu: float = 40.0,
    lr: float = 0.3,
    max_rounds: int = 20,
    stump: StumpSettings = StumpSettings(),  # noqa: B008 (a tuple)
    sample_weight: ArrayLike | None = None,
    task: Task = "classification",
    loss: Loss | None = None,
    validation: tuple[ArrayLike, ArrayLike] | None = None,
    history: list[list[float]] | None = None,
    progress: Progress = None,
    rng: Rng = None,
) -> Forest:
    """Returns a forest whose splits and leaves are optimised together, tree by tree, from a grown one
    (Norouzi, Collins, Johnson, Fleet and Kohli 2015).

    Other parameters: see `fit_stump`.

    Parameters
    ----------
    forest : Forest
        Grown forest, axis-aligned or oblique: the start. Its number of classes or targets is kept.
    x, y : array-likes
        Samples (n_samples, n_features), finite, at least one; converted to the dtype of the forest. Trees are
        fitted in standard deviations of the samples of positive weight. Labels 0 to n_classes - 1 or targets,
        (n_samples,) or (n_samples, n_outputs); with `loss` any array with a row for each sample.
    nu : float
        Bound on ``||w||**2`` of each split, above 0. A lower one gives wider margins; targets have standard
        deviation 1.
    loss : pair of functions (value, gradient), optional
        A convex loss in place of that of the task, as in `surrogate`. theta is a row of
        values of a leaf, which starts at that of the forest. Such a loss runs in NumPy.
    validation : tuple (x, y), optional
        Samples by which each tree takes its best round, that of the least loss. By default that of the least
        bound on the training samples is taken.
    history : list of lists, optional
        A list is appended for each tree: its bounds, summed over samples, at the start and after each round.
    progress : bool or function, optional
        Reports of trees, see `hforest.growth.Settings`. If it stops, the forest has the trees so far.

    Returns
    -------
    Forest
        Forest with projections as splits, in the order of the nodes of `forest`. Leaf values are
        shares of the classes or mean targets of the samples there, or those of theta where there are none;
        with `loss` they are thetas. `gain` is that of `forest`.

    Raises
    ------
    TypeError
        CuPy arrays with `loss`.
    ValueError
        Numbers beyond 1e15; a forest that splits by sets of categories, or that is for several labels a
        sample.

    Notes
    -----
    Let h be the signs of all Wx of a tree. The loss of a sample is at most ``max_g (g.Wx + loss(leaf(g), y))
    - max_h h.Wx`` (eq. 4). Here g differs from h at one split at most, so a sample takes the largest of its
    loss and, for each split of its path, the loss of the leaf after a flip there less ``2 |w.x|``. A step
    adds the gradients of a batch: that of ``-2 |w.x|`` at the flipped split, and that of the loss at the leaf
    of the largest term. Then w is scaled to ``||w||**2 <= nu``. Splits start with ``||w||**2 = nu``, leaves
    at smoothed shares or means of the samples there.

    A step changes the splits and leaves that have a gradient, and their velocities only. The signs h are
    those of the present W: the paper's variant that keeps them for some steps is not implemented.
    `stump.convex_rounds` has no effect. Splits send missing values to the side to which `forest` sends them.
    If no round helps, the forest comes back in the same form, up to rounding.

    Results are the same for every number of threads, and on a GPU. A thread takes a tree or, if there is one
    tree only, samples; on a GPU a block takes a tree. Cost: per sample and epoch the splits of its path, and
    a walk for each of them that is near, at most ``depth**2`` inner products.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(600, 4))
    >>> y = x[:, 0] + x[:, 1] > x[:, 2]
    >>> forest = hforest.grow(x[:300], y[:300], 5, max_depth=3, rng=0)
    >>> refined = hforest.co2.refine(forest, x[:300], y[:300], rng=0)
    >>> def error(forest):
    ...     return float((hforest.tree.predict(forest, x[300:]).argmax(axis=1) != y[300:]).mean())
    >>> error(refined) < 0.5 * error(forest)
    True
    """
    check_progress(progress)
    check.history(history)
    c = schedule(nu, lr, max_rounds, stump)
    if loss is not None:
        check.on_cpu(x=x, y=y, sample_weight=sample_weight)
    feature = getattr(forest, "feature", None)
    forest = _check_forest(forest, x)
    check.choice("task", task, supervised.TASKS)
    check_loss(loss, task)
    x, n_outputs = _matrix("x", x, forest), forest.value.shape[1]
    check.same_device(**{"x": x, "forest.feature": feature})
    samples: _Samples
    if loss is None:
        samples = _target(x, y, sample_weight, task, n_outputs)
    else:
        samples = Node(x, y, loss, sample_weight)
        checks.moderate("forest.value", forest.value)
    judge = _judge(validation, x, forest, task, loss)
    of = _units(samples)
    samples = _standardized(samples, of)
    judge = None if judge is None else _standardized(judge, of)
    seed, refined, n_trees = check.seed(rng), [], len(forest.tree_start) - 1
    backend, xp, done = dispatch.backend(_PACKAGE, x), dispatch.array_module(x), 0
    batch = machine.get_num_threads() if xp is np else max(1, _TOGETHER // len(x))
    with reporting(progress, n_trees, "tree") as report:
        for first in range(0, n_trees, batch):
            some = slice(first, min(first + batch, n_trees))
            fitted = _trees(forest, some, of.x, c.nu)
            bounds = np.full((some.stop - first, c.max_rounds + 1), np.nan)
            if loss is None:
                backend.refine(fitted, samples, judge, c, seed, first, bounds)
            else:
                _descend_pair(forest, _rows(forest, some), fitted, samples, judge, c, seed, first, bounds)
            refined.append(_refined(forest, some, fitted))
            if history is not None:
                history.extend([float(a) for a in row if a == a] for row in bounds)
            done = some.stop
            if not report(done):
                break
    return _as_forest(forest, refined, done, of, xp)
