"""Surrogates, stumps and trees of them on a GPU; the kernels are in gpu.cu. A stump is one block's work.

Trees grow on the engine of univariate ones, level by level: the nodes of a level are fitted at once.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.aliases import Array
from ..core.dispatch import array_module, to_numpy
from ..core.launch import launch, launch_each
from ..growth import Bins
from ..growth.gpu_builder import columns_of, grow_trees, task_of
from ..growth.trees import Batch, Learned

PACKAGE = Path(__file__).parent

CHUNK = 1024
"""Samples whose slopes are summed in the dtype of x."""

LANES = 16
"""Threads that share a product w.x."""

BLOCK = 128
"""Threads of a block whose products meet in shared memory, as gpu.cu has it."""


def _samples(
    xp: Any, x: Array, labels: Array | None, targets: Array | None, weight: Array
) -> tuple[Any, ...]:
    n_outputs = 0 if targets is None else targets.shape[1]
    return (
        x,
        xp.empty(0, np.int32) if labels is None else labels,
        xp.empty((0, 0)) if targets is None else targets,
        weight,
        *x.shape,
        n_outputs,
        int(labels is None),
    )


def _terms(
    w: Array,
    theta0: Array,
    theta1: Array,
    x: Array,
    labels: Array | None,
    targets: Array | None,
    weight: Array,
) -> tuple[Any, ...]:
    xp = array_module(x)
    theta = xp.concatenate([theta0, theta1])
    table = xp.empty(theta.shape)
    *arrays, n, n_features, _, squared = _samples(xp, x, labels, targets, weight)
    samples = (*arrays, n, n_features, len(theta0), squared)
    launch_each(PACKAGE, "tables", x.dtype, 2, (x, arrays[1], len(theta0), squared, theta, table))
    term, side, factor = xp.empty(n), xp.empty(n, np.int32), xp.empty(n, x.dtype)
    arguments = (w, theta, table, *samples, term, side, factor)
    launch(PACKAGE, "terms", x.dtype, -(-LANES * n // BLOCK), arguments, threads=BLOCK)
    return samples, theta, table, term, side, factor


def surrogate(
    w: Array,
    theta0: Array,
    theta1: Array,
    x: Array,
    labels: Array | None,
    targets: Array | None,
    weight: Array,
    out: Array,
) -> None:
    """out[0] = the surrogate, a sum over samples (eq 10)."""
    _, _, _, term, _, _ = _terms(w, theta0, theta1, x, labels, targets, weight)
    launch_each(PACKAGE, "total", x.dtype, 1, (term, len(term), out))


def surrogate_grad(
    w: Array,
    theta0: Array,
    theta1: Array,
    x: Array,
    labels: Array | None,
    targets: Array | None,
    weight: Array,
    grad_w: Array,
    grad_theta0: Array,
    grad_theta1: Array,
) -> None:
    """Its subgradient."""
    xp = array_module(x)
    samples, theta, table, _, side, factor = _terms(w, theta0, theta1, x, labels, targets, weight)
    n, n_features = x.shape
    n_chunks = -(-n // CHUNK)
    slope = xp.empty((n_chunks, n_features), x.dtype)
    launch_each(
        PACKAGE, "chunk_slopes", x.dtype, slope.size, (x, factor, n, n_features, CHUNK, n_chunks, slope)
    )
    launch_each(PACKAGE, "chunk_sums", x.dtype, n_features, (slope, n_features, n_chunks, grad_w))
    launch_each(
        PACKAGE, "theta_slopes", x.dtype, theta.size,
        (theta, table, side, *samples, xp.empty(theta.shape), grad_theta0, grad_theta1),
    )  # fmt: skip


def fit_stump(
    x: Array,
    labels: Array | None,
    targets: Array | None,
    weight: Array,
    schedule: Any,
    key: int,
    w: Array,
    theta0: Array,
    theta1: Array,
    history: Array,
) -> None:
    """Fits w, in place, and theta (Alg. 1); the surrogate at the start and after each round."""
    xp = array_module(x)
    theta = xp.empty((1, 2, len(theta0)))
    first = xp.array([0, len(x)], np.int64)
    keys = xp.array([key], np.uint64)
    _fit_stumps(x, labels, targets, weight, None, first, len(x), keys, schedule, w[None], theta, history)
    theta0[:], theta1[:] = theta[0, 0], theta[0, 1]


def _fit_stumps(
    x: Array,
    labels: Array | None,
    targets: Array | None,
    weight: Array,
    rows: Array | None,
    first: Array,
    n: int,
    keys: Array,
    schedule: Any,
    w: Array,
    theta: Array,
    history: Array,
) -> None:
    xp = array_module(x)
    arrays = _samples(xp, x, labels, targets, weight)[:4]
    n_stumps, width = w.shape
    n_outputs = theta.shape[2]
    reals = xp.empty(2 * n_stumps * width + n, x.dtype)
    doubles, ints = xp.empty(8 * n_stumps * n_outputs + n), xp.empty(3 * n, np.int32)
    launch(
        PACKAGE, "fit_stumps", x.dtype, n_stumps,
        (
            *arrays, xp.empty(0, np.int32) if rows is None else rows, int(rows is not None), first, keys,
            x.shape[1], n_outputs, int(labels is None), *schedule, w, reals, theta, doubles, ints, history,
        ),
        threads=BLOCK,
    )  # fmt: skip


class _Stumps(NamedTuple):
    """Candidates of growth's level: the best column of each node, and a stump from there."""

    columns: Any
    x: Array
    labels: Array | None
    targets: Array | None
    schedule: Any

    @property
    def projected(self) -> bool:
        return True

    def slots(self) -> int:
        return self.columns.slots()

    def workspace_size(self) -> int:
        return max(self.columns.workspace_size(), 2 * self.x.shape[1])

    def split(self, task: Any, level: Any, part: Any, n_left: Array, n_kept: Array) -> tuple[Array, Array]:
        """Splits nodes, and gives the entries of their projections, node by node."""
        xp, n_features = task.xp, self.x.shape[1]
        self.columns.split(task._replace(min_decrease=-np.inf), level, part, n_left)
        n_kept[:] = 0
        open_ = xp.flatnonzero(n_left >= 0)
        if not len(open_):
            return xp.empty(0, np.int32), xp.empty(0, task.real)
        node = part.node[open_]
        sizes = level.first[node + 1] - level.first[node]
        begin = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(sizes)]).astype(np.int64)
        n_samples, n_stumps = int(begin[-1]), len(node)
        # Where the samples of these nodes lie among those of the level.
        at = xp.arange(n_samples) + xp.repeat(level.first[node] - begin[:-1], to_numpy(sizes).tolist())
        rows, weights = level.sample[at], level.sample_weight[at]
        w = xp.zeros((n_stumps, n_features + 1), task.real)
        w[xp.arange(n_stumps), level.feature[node]] = 1
        w[:, n_features] = level.threshold[node]
        theta = xp.empty((n_stumps, 2, task.n_outputs))
        history = xp.empty((n_stumps, self.schedule.max_rounds + 1))
        _fit_stumps(
            self.x, self.labels, self.targets, weights, rows, begin, n_samples, level.key[node],
            self.schedule, w, theta, history,
        )  # fmt: skip
        # `<= limit` goes left: w.x < offset.
        limit = xp.nextafter(w[:, n_features], task.real.type(-np.inf))
        right = xp.empty(n_samples, np.int64)
        launch_each(
            PACKAGE, "stump_sides", task.real, n_samples,
            (self.x, rows, begin, n_stumps, n_features, w, limit, n_samples, right),
        )  # fmt: skip
        univariate = level.right[at]
        taken, count = xp.empty(n_stumps, np.int64), xp.empty(n_stumps, np.int64)
        gain = level.gain[node]
        launch_each(
            PACKAGE, "take_stumps", task.real, n_stumps,
            (
                rows, weights, *task.learned, task.criterion, task.min_leaf, task.min_decrease, begin, right,
                univariate, level.total[node], level.mean[node if task.fit_targets else slice(0)],
                level.weight[node], level.root_weight[level.tree[node]], n_stumps,
                xp.empty((n_stumps, task.n_outputs)), taken, count, gain,
            ),
        )  # fmt: skip
        oblique, leaf = taken == 2, taken == 0
        level.right[at] = xp.where(xp.repeat(oblique, to_numpy(sizes).tolist()), right, univariate)
        level.feature[node] = xp.where(leaf, -1, xp.where(oblique, -2, level.feature[node])).astype(np.int32)
        level.threshold[node] = xp.where(
            leaf, 0.0, xp.where(oblique, limit.astype(np.float64), level.threshold[node])
        )
        level.gain[node] = xp.where(leaf, 0.0, gain)
        n_left[open_] = xp.where(leaf, -1, count)
        used = (w[:, :n_features] != 0) & oblique[:, None]
        n_kept[open_] = used.sum(axis=1)
        return xp.nonzero(used)[1].astype(np.int32), w[:, :n_features][used]


def grow(
    x: Array, bins: Bins, learned: Learned, max_features: int, schedule: Any, search: Any, batch: Batch
) -> None:
    """Appends the trees of a batch to `batch.trees` (OUT), as grow_projected of growth does."""
    del search  # OC1 runs on the CPU alone: the public function refuses it here
    labels, targets, _ = learned.target
    columns = columns_of(bins, max_features, False)
    stumps = _Stumps(columns, x, labels, targets, schedule)
    grow_trees(task_of(learned, x.dtype), stumps, learned.sample_weight, batch)
