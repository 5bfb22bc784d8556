"""The tree builder of the GPU: grows trees level by level. Kernels: gpu.cu, levels.cuh.

Trees grow together, as many as the memory holds. The device lists the pending nodes of a level. The host
reads how many there are, once a level, and launches by that; nodes, samples and trees stay on the device.
Below them blocks grow small nodes: gpu_small.py.
"""

from types import ModuleType
from typing import Any

import numpy as np

from ..core.aliases import Array
from ..core.dispatch import array_module, to_numpy
from ..core.gpu import cast
from ..core.launch import numbers
from . import gpu_small
from .gpu_builder import FEW, LARGE, Task, tree_keys
from .gpu_small import Grown, grow_small, no_small, trimmed
from .gpu_structs import Children, Kept, Level, Part, Small, Split
from .trees import Batch

NODES, FIRST_BITS = numbers("growth/levels.cuh", "NODES", "FIRST_BITS")

MEMORY_SHARE = 0.5
"""The part of the free memory of a device that trees grow in."""

HOST_MEMORY = 1 << 28
"""Bytes in place of it where the device is the host."""

_SAMPLE_BYTES = 96
"""Of a tree's sample, beside its keys: counts, weights and samples of two levels."""
_KEY_BYTES = 40
"""Of a sample and candidate: keys, their order, and what a sort needs. Counts of bins take at most 22 of
chunks, and 32 of a pair, which has two samples."""
_NODE_BYTES = 160
_SAMPLES_A_NODE = 4
"""Samples of a pending node of a level of many, on average, at least."""
_MAX_SUM = 2**53


def memory(xp: ModuleType) -> int:
    """Returns the bytes that trees may grow in: of the free memory, or of the limit of CuPy's pool."""
    if not hasattr(xp, "get_default_memory_pool"):
        return HOST_MEMORY
    pool = xp.get_default_memory_pool()
    free = xp.cuda.runtime.memGetInfo()[0] + pool.free_bytes()
    limit = pool.get_limit()
    if limit:
        free = min(free, limit - pool.used_bytes())
    return max(1, int(MEMORY_SHARE * free))


def trees_at_once(xp: ModuleType, n_samples: int) -> int:
    """Returns the maximum number of trees that a call grows between two reports; xp is an array module."""
    return max(1, memory(xp) // (_SAMPLE_BYTES * n_samples))


def bytes_a_sample(task: Task, candidates: Any) -> int:
    """Returns the maximum number of bytes per sample that a growing tree takes."""
    slots = candidates.slots(task)
    node = (
        _NODE_BYTES
        + 8 * task.n_outputs * (4 + slots * task.random_thresholds)
        + candidates.bytes_a_node(task)
    )
    level = _KEY_BYTES * slots + node // _SAMPLES_A_NODE
    return _SAMPLE_BYTES + max(level, gpu_small.bytes_a_sample(task, candidates))


def grow_trees(task: Task, candidates: Any, weight: Array, batch: Batch) -> None:
    """Appends the trees of a batch, on columns, projections or hyperplanes, to `batch.trees`."""
    together = max(1, memory(task.xp) // (bytes_a_sample(task, candidates) * len(weight)))
    for first in range(0, batch.n_trees, together):
        n_trees = min(together, batch.n_trees - first)
        counts = None if batch.counts is None else batch.counts[first : first + n_trees]
        some = batch._replace(first=batch.first + first, n_trees=n_trees, counts=counts)
        _grow(task, candidates, weight, some)


def _grow(task: Task, candidates: Any, weight: Array, batch: Batch) -> None:
    """Appends trees that grow at once."""
    xp, counts, n_trees, K = task.xp, batch.counts, batch.n_trees, task.n_outputs
    weights: Any = xp.broadcast_to(weight, (n_trees, len(weight))) if counts is None else weight * counts
    # Where only samples without weight were drawn, the tree takes all.
    weights = xp.where((weights > 0).any(axis=1)[:, None], weights, weight)
    drawn = weights > 0
    size = drawn.sum(axis=1).astype(np.int64, copy=False)
    sample, sample_weight = xp.nonzero(drawn)[1].astype(np.int32), weights[drawn]
    weight_bits = 0 if task.fit_targets else _weight_bits(weights)
    exact = 0 < weight_bits <= 32 - len(weight).bit_length()
    task = task._replace(weight_bits=weight_bits, n_bins=task.n_bins if exact else 0)
    is_whole = int(weight_bits > 0)
    key = tree_keys(xp, batch.seed, batch.first, n_trees)
    tree = xp.arange(n_trees, dtype=np.int32)
    sums = xp.zeros((n_trees if is_whole else 0, K), np.uint64)
    ends = xp.cumsum(size)
    nodes = Children(ends - size, size, tree, key, sample, sample_weight, sums, n_trees, is_whole)
    # Nodes of a level divide the places of their parents, so samples of small nodes stay where they are.
    free = xp.empty_like(sample), xp.empty_like(sample_weight)
    most = min(gpu_small.SMALL, gpu_small.MOST) if candidates.of_block(task, 0) else 0
    small = no_small(xp, len(sample) // 2 if most else 0)
    level = _level(task, nodes, None, 0)
    if is_whole:
        task.launch("sum_whole", level.n_samples, task.target, level, sums)
    levels: list[Grown] = []
    above, end = None, xp.zeros(6, np.uint64)
    while True:
        part, n_kept, n_small = _pending(task, level, above, nodes, most, small, end)
        small = small._replace(n_nodes=small.n_nodes + n_small)
        if levels and levels[-1].kept is not None:
            levels[-1] = levels[-1]._replace(kept=trimmed(levels[-1].kept, n_kept))
        grown = Grown(
            level.place,
            level.feature,
            level.threshold,
            level.gain,
            level.default_left,
            level.value,
            None,
            None,
        )
        if part.n_nodes == 0:
            levels.append(grown)
            break
        end = xp.zeros(6, np.uint64)
        split, kept, words = candidates.split(task, level, part, end[5:])
        levels.append(grown._replace(kept=kept, words=words))
        nodes = _children(task, level, part, split, free, n_trees)
        free = level.sample, level.sample_weight
        level, above = _level(task, nodes, level.root_weight, len(levels)), part
    if small.n_nodes:
        samples = (level.sample, level.sample_weight), free
        even, odd = samples if level.number % 2 == 0 else samples[::-1]
        levels.append(grow_small(task, candidates, small, even, odd, level.root_weight))
    _collect(task, candidates.projected, levels, ends, batch.trees)


def _weight_bits(weights: Array) -> int:
    """Returns the bits of the largest weight if all are whole and their sums exact, or 0."""
    xp = array_module(weights)
    largest, fractions = to_numpy(xp.stack([weights.max(), (weights != xp.floor(weights)).sum()]))
    if fractions or largest >= 2**32 or largest * weights.shape[1] >= _MAX_SUM:
        return 0
    return int(largest).bit_length()


def _level(task: Task, nodes: Children, root_weight: Array | None, number: int) -> Level:
    """Returns a level before its sums are known; without root_weight, of roots."""
    xp, n_nodes, K = task.xp, len(nodes.first), task.n_outputs
    weight = xp.empty(n_nodes)
    return Level(
        nodes.first, nodes.count, nodes.tree, nodes.key, weight if root_weight is None else root_weight,
        nodes.sample, nodes.sample_weight, xp.empty((n_nodes, K)),
        xp.empty((n_nodes if task.fit_targets else 0, K)), weight, xp.empty((n_nodes, K), task.real),
        xp.empty(n_nodes, np.int32), xp.empty(n_nodes), xp.empty(n_nodes),
        xp.zeros(n_nodes if task.has_defaults else 0, np.uint8), xp.empty(n_nodes, np.int64), n_nodes,
        len(nodes.sample), number,
    )  # fmt: skip


def _pending(
    task: Task, level: Level, above: Part | None, nodes: Children, most: int, small: Small, end: Array
) -> tuple[Part, int, int]:  # fmt: skip
    """Returns the pending nodes of a level below a part, the entries that its nodes have kept, and the number
    of pending nodes of at most `most` samples, which are added to `small` instead."""
    xp, n_nodes, K = task.xp, level.n_nodes, task.n_outputs
    mixed = xp.zeros(0 if nodes.is_whole else n_nodes, np.int32)
    if not nodes.is_whole:
        n_blocks = 0 if not task.by_blocks else n_nodes if above is None else 2 * above.n_large
        large = xp.empty(0, np.int64) if above is None else above.large
        task.both(
            "sum_up", n_blocks, n_nodes * K, task.target, level, large, int(above is None), n_blocks, mixed
        )
    n_blocks, counts_bins = -(-n_nodes // NODES), int(task.n_bins > 0)
    n_large = level.n_samples // (FEW if counts_bins else LARGE)
    pending, counts = xp.empty(n_nodes, np.uint8), xp.empty((n_blocks, 5), np.int64)
    sizes = n_nodes, n_nodes + 1, n_large, n_large + 1
    node, begin, large, run = (xp.empty(n, np.int64) for n in sizes)
    part = Part(node, begin, large, run, 0, 0, 0, 0, counts_bins, most)
    task.launch_blocks(
        "settle", n_blocks, task.target, task.limits, level, nodes.is_whole, part, nodes.sum,
        mixed, pending, counts,
    )  # fmt: skip
    task.launch_blocks("list_pending", n_blocks, level, pending, counts, part, small, end)
    pending_nodes, samples, large_nodes, runs, n_small, n_kept = to_numpy(end).tolist()
    part = part._replace(n_nodes=pending_nodes, n_samples=samples, n_large=large_nodes, n_runs=runs)
    return part, n_kept, n_small


def _children(
    task: Task, level: Level, part: Part, split: Split, free: tuple[Array, Array], n_trees: int
) -> Children:
    """Returns the children of the nodes of a part, with their samples in `free`."""
    xp, n_nodes, is_whole = task.xp, 2 * part.n_nodes, int(task.weight_bits > 0)
    children = Children(
        xp.empty(n_nodes, np.int64), xp.empty(n_nodes, np.int64), xp.empty(n_nodes, np.int32),
        xp.empty(n_nodes, np.uint64), *free,
        xp.zeros((n_nodes if is_whole else 0, task.n_outputs), np.uint64), n_trees, is_whole,
    )  # fmt: skip
    task.launch_blocks("move_samples", len(split.tail), task.target, level, part, split, children)
    return children


def _collect(
    task: Task, projected: bool, levels: list[Grown], ends: Array, trees: list[tuple[Array, ...]]
) -> None:
    """From nodes in any order to nodes by tree, breadth-first. The samples of trees end at `ends`."""
    xp, n_trees = task.xp, len(ends)

    def joined(name: str) -> Array:
        return xp.concatenate([getattr(grown, name) for grown in levels])

    place = joined("place")
    tree = xp.searchsorted(ends, place & ((1 << FIRST_BITS) - 1), side="right")
    order = xp.lexsort(xp.stack([place, tree]))
    starts = to_numpy(xp.searchsorted(tree[order], xp.arange(n_trees + 1))).astype(np.int64)
    order = order[: starts[-1]]  # behind it are places without a node
    of_tree, feature = tree[order], joined("feature")[order]
    is_leaf = feature == -1
    before = xp.zeros(len(order) + 1, np.int64)
    before[1:] = xp.cumsum(is_leaf)
    first_leaf = before[xp.asarray(starts)]
    leaf_starts = to_numpy(first_leaf)
    # Children follow the root in the order of their parents; leaves are numbered in the order of nodes.
    leaves = before[:-1] - first_leaf[of_tree]
    parents = xp.arange(len(order)) - xp.asarray(starts)[of_tree] - leaves
    left = xp.where(is_leaf, leaves, 2 * parents + 1).astype(np.int32)
    threshold, gain = (cast(joined(name)[order], task.real) for name in ("threshold", "gain"))
    value = joined("value")[order[is_leaf]]
    entries = _entries(task, levels, order) if projected else None
    entry_starts = None if entries is None else to_numpy(entries[0][xp.asarray(starts)])
    default_left = joined("default_left")[order] if task.has_defaults else None
    n_words, word = _words(task, levels, order)
    word_starts = np.zeros(n_trees + 1, np.int64)
    if len(word):
        word_starts[1:] = to_numpy(xp.cumsum(n_words)[xp.asarray(starts[1:] - 1)])
    for m in range(n_trees):
        nodes, rows = slice(*starts[m : m + 2]), slice(*leaf_starts[m : m + 2])
        grown: tuple[Array, ...] = (
            feature[nodes], threshold[nodes], left[nodes], gain[nodes], value[rows].ravel()
        )  # fmt: skip
        if entries is not None and entry_starts is not None:
            entry, index, factor = entries
            some = slice(*entry_starts[m : m + 2])
            grown += entry[nodes] - some.start, index[some], factor[some]
        if default_left is not None:
            grown += default_left[nodes], n_words[nodes], word[slice(*word_starts[m : m + 2])]
        trees.append(grown)


def _entries(task: Task, levels: list[Grown], order: Array) -> tuple[Array, Array, Array]:
    """Returns where the entries of each node begin, and all entries, of nodes in an order."""
    xp, begins, counts = task.xp, [], []
    index, factor = [xp.empty(0, np.int32)], [xp.empty(0, np.float32)]
    n_entries = 0
    for grown in levels:
        n_nodes, kept = len(grown.place), grown.kept
        if kept is None:
            kept = Kept(xp.zeros(n_nodes, np.int64), xp.zeros(n_nodes, np.int64), index[0], factor[0], None)
        begins.append(kept.begin + n_entries)
        counts.append(kept.count)
        index.append(kept.index)
        factor.append(kept.factor)
        n_entries += len(kept.index)
    begin, count = (xp.concatenate(parts)[order] for parts in (begins, counts))
    entry = xp.zeros(len(order) + 1, np.int64)
    entry[1:] = xp.cumsum(count)
    # The node of each entry is the last one that begins there or before: nodes without entries end there.
    at = xp.arange(n_entries)
    node = xp.searchsorted(entry[1:], at, side="right")
    source = begin[node] + at - entry[node]
    return entry, xp.concatenate(index)[source], xp.concatenate(factor)[source]


def _words(task: Task, levels: list[Grown], order: Array) -> tuple[Array, Array]:
    """Returns how many words the set of each node has, and all words, of nodes in an order."""
    xp = task.xp
    if all(grown.words is None for grown in levels):
        return xp.zeros(len(order), np.int64), xp.empty(0, np.uint32)
    width = max(grown.words.word.shape[1] for grown in levels if grown.words is not None)
    counts, words = [], []
    for grown in levels:
        n_nodes = len(grown.place)
        counts.append(xp.zeros(n_nodes, np.int64) if grown.words is None else grown.words.count)
        words.append(xp.zeros((n_nodes, width), np.uint32) if grown.words is None else grown.words.word)
    count = xp.concatenate(counts)[order]
    return count, xp.concatenate(words)[order][xp.arange(width) < count[:, None]]
