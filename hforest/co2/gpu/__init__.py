"""Surrogates, oblique stumps, trees of stumps and their refinement on a GPU; the kernels are in gpu.cu.

One block fits a stump. Trees grow level by level, as in `growth`: one launch fits the stumps of a level. One
block takes the steps of a tree that `refine` has.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core import launch as launcher
from ...core.aliases import Array
from ...core.dispatch import array_module, to_numpy
from ...core.launch import launch, launch_each, numbers
from ...core.philox import keys, philox
from ...growth.bins import Bins
from ...growth.gpu.builder import grow_trees
from ...growth.gpu.candidates import ColumnSource, columns_of, sides, task_of
from ...growth.gpu.structs import NodeEntries, no_node_entries
from ...growth.trees import Batch, Objective
from .. import checks, whole_trees

PACKAGE = Path(__file__).parent.parent
READS_WINDOWS = False

LANES, CHUNK = numbers("co2/fit.h", "HF_LANES", "HF_CHUNK")
BLOCK, WARP, EACH = numbers("co2/gpu/gpu.cu", "BLOCK", "WARP", "EACH")
(STUMP,) = numbers("co2/gpu/stumps.cuh", "STUMP")
FEW = 256  # stumps of a launch up to which a block has STUMP threads
N_STATES, NO_SAMPLE = numbers("co2/gpu/trees.cuh", "N_STATES", "NO_SAMPLE")


# Structs of gpu.cu, which describes their members. Another one is Schedule of descent.py.


class Samples(NamedTuple):
    """Samples with labels or targets."""

    x: Array
    labels: Array | None
    targets: Array | None
    weight: Array
    rows: Array | None
    has_labels: int
    has_rows: int
    n: int
    n_features: int
    n_outputs: int


class Nodes(NamedTuple):
    """Nodes to split, and the limits of their splits."""

    begin: Array
    u: Array
    q: Array | None
    total: Array
    mean: Array
    exponent: Array
    root_weight: Array
    n_nodes: int
    criterion: int
    min_samples_leaf: int
    min_impurity_decrease: float
    min_weight_fraction_leaf: float


class Places(NamedTuple):
    """Where blocks that fit stumps have their state: a struct of stumps.cuh."""

    state: Array
    n_state: int
    n_front: int
    stride: int


class Choice(NamedTuple):
    """The choices for nodes."""

    left: Array
    taken: Array
    n_left: Array
    gain: Array


class Trees(NamedTuple):
    """Trees that are refined."""

    first_split: Array
    first_leaf: Array
    child: Array
    w: Array
    theta: Array
    value: Array
    v: Array
    best_w: Array
    slope: Array
    speed: Array
    best_theta: Array
    table: Array
    sums: Array
    low: Array
    high: Array
    state: Array
    first_at_split: Array
    first_in_leaf: Array
    order: Array
    leaf: Array
    sample: Array
    split: Array
    moved: Array
    changed: Array
    factor: Array
    n_trees: int
    n_splits: int
    n_leaves: int
    width: int
    n: int
    batch: int


class _Terms(NamedTuple):
    """Results that surrogates and their gradients share."""

    samples: Samples
    theta: Array
    table: Array
    term: Array
    side: Array
    factor: Array


def _samples(a: checks.Samples, rows: Array | None, n_outputs: int) -> Samples:
    flags = int(a.labels is not None), int(rows is not None)
    return Samples(*a, rows, *flags, len(a.weight), a.x.shape[1], n_outputs)


def _terms(split: checks.Split, a: checks.Samples) -> _Terms:
    x, (w, *thetas) = a.x, split
    xp, n = array_module(x), len(x)
    samples = _samples(a, None, len(thetas[0]))
    theta = xp.concatenate(thetas)
    table = xp.empty(theta.shape)
    launch(PACKAGE, "tables", x.dtype, 1, (samples, theta, table), threads=2 * WARP)
    term, side, factor = xp.empty(n), xp.empty(n, np.int32), xp.empty(n, x.dtype)
    arguments = (samples, w, theta, table, term, side, factor)
    launch(PACKAGE, "terms", x.dtype, -(-LANES * n // (EACH * BLOCK)), arguments, threads=BLOCK)
    return _Terms(samples, theta, table, term, side, factor)


def surrogate(split: checks.Split, samples: checks.Samples, out: Array) -> None:
    """Writes the surrogate, a sum over samples (eq. 10), to out[0]."""
    term, dtype = _terms(split, samples).term, samples.x.dtype
    n_chunks = -(-len(term) // CHUNK)
    part = array_module(term).empty(n_chunks)
    launch(PACKAGE, "chunk_terms", dtype, n_chunks, (term, len(term), part), threads=BLOCK)
    launch_each(PACKAGE, "total", dtype, 1, (part, n_chunks, out))


def surrogate_grad(split: checks.Split, samples: checks.Samples, grads: checks.Split) -> None:
    """Writes the subgradient of the surrogate."""
    x, (grad_w, *grad_thetas) = samples.x, grads
    xp = array_module(x)
    of_split, theta, table, _, side, factor = _terms(split, samples)
    n, n_features = x.shape
    n_chunks = -(-n // CHUNK)
    slope, part = xp.empty((n_chunks, n_features), x.dtype), xp.empty((n_chunks, len(theta) + 2))
    launch_each(PACKAGE, "chunk_slopes", x.dtype, slope.size, (x, factor, n, n_features, n_chunks, slope))
    launch_each(PACKAGE, "chunk_sums", x.dtype, n_features, (slope, n_features, n_chunks, grad_w))
    launch(PACKAGE, "chunk_sides", x.dtype, n_chunks, (of_split, side, part), threads=BLOCK)
    arguments = of_split, theta, table, part, n_chunks, *grad_thetas
    launch_each(PACKAGE, "theta_slopes", x.dtype, len(theta), arguments)


def fit_stump(samples: checks.Samples, schedule: Any, key: int, split: checks.Split, history: Array) -> None:
    """Fits w, in place, and theta (Alg. 1); writes surrogates, at first and after each round, to history."""
    xp, (w, theta0, theta1) = array_module(samples.x), split
    theta = xp.empty((1, 2, len(theta0)))
    first = xp.array([0, len(samples.x)], np.int64)
    keys = xp.array([key], np.uint64)
    _fit_stumps(_samples(samples, None, len(theta0)), first, keys, schedule, w[None], theta, history)
    theta0[:], theta1[:] = theta[0]


def _fit_stumps(
    samples: Samples, first: Array, keys: Array, schedule: Any, w: Array, theta: Array, history: Array
) -> None:
    xp, n = array_module(w), samples.n
    n_stumps, width = w.shape
    n_bytes = 8 * (width + 8 * samples.n_outputs + 3) + 2 * width * w.itemsize
    is_local = n_bytes <= launcher.compiler.block_bytes() // 4
    n_state = 0 if is_local else -(-n_bytes // 8)
    front, stride = _buffers(samples, schedule.batch, n_stumps, w.itemsize, is_local * n_bytes)
    term, ints, state = xp.empty(n), xp.empty(3 * n, np.int32), xp.empty(n_stumps * n_state)
    places = Places(state, n_state, front // 8, stride)
    arguments = (samples, first, keys, schedule, w, theta, history, term, ints, places)
    threads = STUMP if n_stumps <= FEW else BLOCK
    launch(PACKAGE, "fit_stumps", w.dtype, n_stumps, arguments, threads, front + is_local * n_bytes)


def _buffers(samples: Samples, batch: int, n_stumps: int, itemsize: int, n_bytes: int) -> tuple[int, int]:
    """Returns the bytes of block_memory in front of a state of n_bytes, and the stride of rows in buffers.

    The stride is 0 if there are no buffers, because they do not fit or because blocks have few threads.
    """
    # So halves of a warp, which read the same columns of rows four apart, use different banks.
    stride = (samples.n_features + 3) // 8 * 8 + 4
    most, weights, static = min(batch, samples.n), 8 * CHUNK, CHUNK * (9 + itemsize) + 256
    front = max(weights, 2 * (-(-most // 4) * 4) * (8 + stride * itemsize))
    fits = 2 * most <= CHUNK and front + n_bytes + static <= launcher.compiler.block_bytes()
    return (front, stride) if fits and n_stumps <= FEW else (weights, 0)


class _Stumps(NamedTuple):
    """A source of candidates for `growth`: the best column of each node, and the stump fitted from it."""

    columns: Any
    x: Array
    labels: Array | None
    targets: Array | None
    schedule: Any

    @property
    def projected(self) -> bool:
        return True

    def slots(self, task: Any) -> int:
        return self.columns.slots(task)

    def block_source(self, task: Any, n_nodes: int) -> None:
        """None: all blocks fit stumps."""

    def bytes_a_node(self, task: Any) -> int:
        """Returns the bytes of the workspace of a pending node, without its keys."""
        return self.columns.bytes_a_node(task) + 64 * self.x.shape[1]

    def split(self, task: Any, level: Any, pending: Any, end: Array) -> tuple[Any, NodeEntries, None]:
        """Returns the splits of nodes, and the entries of their projections, node by node."""
        xp, n_features = task.xp, self.x.shape[1]
        any_gain = task.limits._replace(min_impurity_decrease=-np.inf)
        split, _, _ = self.columns.split(task._replace(limits=any_gain), level, pending, end)
        no_stumps = no_node_entries(xp, level.n_nodes, end)._replace(factor=xp.empty(0, task.real))
        n_left = split.n_left
        open_ = xp.flatnonzero(n_left >= 0)
        if not len(open_):
            return split, no_stumps, None
        node = pending.node[open_]
        sizes = level.count[node]
        begin = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(sizes)]).astype(np.int64)
        n_samples, n_stumps = int(begin[-1]), len(node)
        # The places of the samples of these nodes among those of the level, and among those of the part.
        each = to_numpy(sizes).tolist()
        at = xp.arange(n_samples) + xp.repeat(level.first[node] - begin[:-1], each)
        in_part = xp.arange(n_samples) + xp.repeat(pending.begin[open_] - begin[:-1], each)
        rows, u, target = level.sample[at], level.u[at], task.target
        record = xp.repeat(level.tree[node].astype(np.int64) * target.n, each) + rows
        weights = u.astype(np.float64) if target.is_whole else target.weight.ravel()[record]
        q = target.q.reshape(-1, task.n_outputs)[record] if task.fit_targets else None
        exponent = xp.zeros((n_stumps, 2), np.int64)
        if task.has_units:
            exponent[:] = level.unit[node, :2]
        w = xp.zeros((n_stumps, n_features + 1), task.real)
        start = level.feature[node], level.threshold[node], n_stumps, n_features, w
        launch_each(PACKAGE, "start_stumps", task.real, n_stumps, start)
        theta = xp.empty((n_stumps, 2, task.n_outputs))
        history = xp.empty((n_stumps, self.schedule.max_rounds + 1))
        of_part = checks.Samples(self.x, self.labels, self.targets, weights)
        samples = _samples(of_part, rows, task.n_outputs)
        _fit_stumps(samples, begin, level.key[node], self.schedule, w, theta, history)
        limit = xp.empty(n_stumps)
        launch_each(PACKAGE, "limits_of_stumps", task.real, n_stumps, (w, n_stumps, n_features, limit))
        right = xp.empty(n_samples, np.int64)
        nodes = Nodes(
            begin, u, q, level.total[node], level.mean[node if task.fit_targets else slice(0)], exponent,
            level.root_weight[level.tree[node]], n_stumps, task.criterion, task.limits.min_samples_leaf,
            task.limits.min_impurity_decrease, task.limits.min_weight_fraction_leaf,
        )  # fmt: skip
        launch_each(PACKAGE, "stump_sides", task.real, n_samples, (samples, nodes, w, limit, right))
        univariate = split.right[in_part].astype(np.int64)
        taken, count = xp.empty(n_stumps, np.int64), xp.empty(n_stumps, np.int64)
        gain = level.gain[node]
        choice = Choice(xp.empty((n_stumps, task.n_outputs), np.int64), taken, count, gain)
        launch_each(PACKAGE, "take_stumps", task.real, n_stumps, (samples, nodes, right, univariate, choice))
        oblique, leaf = taken == 2, taken == 0
        split.right[in_part] = xp.where(xp.repeat(oblique, each), right, univariate).astype(np.uint8)
        level.feature[node] = xp.where(leaf, -1, xp.where(oblique, -2, level.feature[node])).astype(np.int32)
        level.threshold[node] = xp.where(leaf, 0.0, xp.where(oblique, limit, level.threshold[node]))
        level.gain[node] = xp.where(leaf, 0.0, gain)
        n_left[open_] = xp.where(leaf, -1, count)
        # This compares bits, because a kernel of CuPy would take float32 subnormals for 0.
        bits = w[:, :n_features].view(f"i{w.itemsize}")
        used = (bits << 1 != 0) & oblique[:, None]
        sides(task, level, pending, split)
        count = used.sum(axis=1).astype(np.int64)
        no_stumps.count[node], no_stumps.begin[node] = count, xp.cumsum(count) - count
        index, factor = xp.nonzero(used)[1].astype(np.int32), w[:, :n_features][used]
        end[0] = len(index)
        return split, no_stumps._replace(index=index, factor=factor), None


def grow(
    x: Array, bins: Bins, objective: Objective, max_features: int, schedule: Any, search: Any, batch: Batch
) -> None:
    """Appends the trees of a batch to `batch.trees` (OUT), as `growth.grow_projected` does."""
    del search  # OC1 runs on the CPU alone; the public function refuses it on a GPU
    labels, targets, *_ = objective.target
    columns = ColumnSource(columns_of(bins, max_features))
    stumps = _Stumps(columns, x, labels, targets, schedule)
    grow_trees(task_of(objective, x.dtype), stumps, objective.sample_weight, batch)


def _trees(a: whole_trees.Trees, samples: Samples, batch: int) -> Trees:
    """Returns trees on the device of samples, with their workspace."""
    xp, real, n, n_outputs = array_module(samples.x), a.w.dtype, samples.n, samples.n_outputs
    n_trees, of_w, of_theta = len(a.first_split) - 1, a.w.shape, a.theta.shape
    of_batch, of_bounds = (n_trees, batch), (n_trees, n_outputs)
    first_split, first_leaf, child, w, theta, value = map(xp.asarray, a)
    sample, split, moved, changed = (xp.empty(of_batch, np.int32) for _ in range(4))
    return Trees(
        first_split, first_leaf, child, w, theta, value,
        v=xp.zeros(of_w, real), best_w=xp.empty(of_w, real), slope=xp.zeros(of_w, real),
        speed=xp.zeros(of_theta), best_theta=xp.empty(of_theta), table=xp.empty(of_theta),
        sums=xp.empty((len(theta) + n_trees, n_outputs + 1)), low=xp.empty(of_bounds),
        high=xp.empty(of_bounds), state=xp.zeros((n_trees, N_STATES)),
        first_at_split=xp.full(len(w), NO_SAMPLE, np.int32),
        first_in_leaf=xp.full(len(theta), NO_SAMPLE, np.int32), order=xp.empty((n_trees, n), np.int32),
        leaf=xp.empty((n_trees, n), np.int32), sample=sample, split=split, moved=moved, changed=changed,
        factor=xp.empty(of_batch, real), n_trees=n_trees, n_splits=len(w), n_leaves=len(theta),
        width=w.shape[1], n=n, batch=batch,
    )  # fmt: skip


def refine(
    trees: whole_trees.Trees, samples: checks.Samples, judge: checks.Samples | None, schedule: Any, seed: int,
    first_tree: int, history: Array,
) -> None:  # fmt: skip
    """Writes w, theta and the values of the leaves of some trees, and the bounds of each to its history.

    The trees and history are on the host. first_tree: number of the first of these trees in its forest.
    """
    x, n_outputs = samples.x, trees.theta.shape[1]
    xp, s = array_module(x), _samples(samples, None, n_outputs)
    t = _trees(trees, s, min(schedule.batch, s.n))
    key = xp.array([keys(philox(seed, first_tree + m, 0))[0] for m in range(t.n_trees)], np.uint64)
    bounds = xp.asarray(history)

    def sum_leaves() -> None:
        launch_each(PACKAGE, "find_leaves", x.dtype, t.n_trees * t.n, (s, t))
        launch_each(PACKAGE, "sum_leaves", x.dtype, t.sums.size, (s, t))

    launch_each(PACKAGE, "start_splits", x.dtype, t.n_splits, (t, schedule.nu))
    room = xp.empty_like(t.order)
    launch(PACKAGE, "shuffle_samples", x.dtype, t.n_trees, (t, key, room), threads=BLOCK)
    sum_leaves()
    launch_each(PACKAGE, "start_leaves", x.dtype, t.n_leaves, (s, t, schedule.smooth))
    launch_each(PACKAGE, "start_bounds", x.dtype, t.low.size, (s, t))
    summed = [(s, 0)] if judge is None else [(s, 0), (_samples(judge, None, n_outputs), 1)]
    parts = [xp.empty((t.n_trees, -(-a.n // CHUNK))) for a, _ in summed]
    for round_ in range(schedule.max_rounds + 1):
        for (a, of_losses), part in zip(summed, parts, strict=True):
            arguments = a, t, of_losses, part.shape[1], part
            launch(PACKAGE, "tree_bounds", x.dtype, part.size, arguments, threads=BLOCK)
        judged = parts[1] if judge is not None else xp.empty((t.n_trees, 0))
        rounds = s, t, schedule, round_, key, parts[0], parts[0].shape[1], judged, judged.shape[1], bounds
        launch(PACKAGE, "tree_rounds", x.dtype, t.n_trees, rounds, threads=BLOCK)
    sum_leaves()
    launch_each(PACKAGE, "values_of_leaves", x.dtype, t.n_leaves, (s, t))
    for to, made in ((trees.w, t.w), (trees.theta, t.theta), (trees.value, t.value), (history, bounds)):
        to[:] = to_numpy(made)
