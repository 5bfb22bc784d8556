"""The tree builder of the GPU: grows trees level by level. Kernels: gpu.cu, levels.cuh.

Trees grow together, as many as the memory holds. The device lists the pending nodes of a level. The host
reads how many there are, once a level, and launches by that; nodes, samples and trees stay on the device.
Below them blocks grow small nodes: small_nodes.py.
"""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple
from typing import cast as typed

import numpy as np

from ...core.aliases import Array, IntArray
from ...core.defaults import larger_left
from ...core.dispatch import to_numpy
from ...core.gpu import cast
from ...core.launch import numbers
from ..trees import Batch, GrownTree, Roots, kept_splits, left_of
from . import small_nodes
from .candidates import COUNT_BYTES, FEW, INHERITED, LARGE, SPREAD, Task, tree_keys
from .small_nodes import GrownNodes, grow_small, no_small, trimmed
from .structs import Children, Level, NodeEntries, Pending, SmallNodes, Split

(LEAF_TOTALS,) = numbers("growth/leaf.h", "HF_LEAF_TOTALS")
(LEAF_SAMPLES,) = numbers("growth/gpu/units.cuh", "LEAF_SAMPLES")
NODES, FIRST_BITS, COUNTS = numbers("growth/gpu/levels.cuh", "NODES", "FIRST_BITS", "COUNTS")
ROOT_BITS = (1 << FIRST_BITS) - 1
"""Bits of a place that have the position of the first sample."""

MEMORY_SHARE = 0.5
"""Fraction of the free memory of a device in which trees grow."""

HOST_MEMORY = 1 << 28
"""Bytes in which trees grow where the device is the host."""

_SAMPLE_BYTES = 96
"""Bytes of a sample of a tree without keys and targets: counts, weights, u and samples of two levels."""
_KEY_BYTES = 40
"""Bytes of a sample of a candidate: key, order, workspace of a sort. Where bins are counted, chunks take
at most 22 and a candidate, which has two samples or more, 32."""
_NODE_BYTES = 160
"""Bytes of a node of a level in arrays that every task has."""
_BOUND_BYTES = 128
"""Bytes of a sample of a tree with monotonic constraints: two nodes, which keep their bounds."""
_SAMPLES_A_NODE = 4
"""Average number of samples of a pending node in a level with many nodes, at least."""
_MAX_SUM = 2.0**53


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


def bytes_a_sample(task: Task, source: Any) -> int:
    """Returns the maximum number of bytes per sample that a growing tree takes."""
    slots = source.slots(task)
    node = (
        _NODE_BYTES
        + 8 * task.n_sums * (4 + slots * task.random_thresholds)
        + 8 * task.n_measures
        + source.bytes_a_node(task)
    )
    level = _KEY_BYTES * slots + node // _SAMPLES_A_NODE
    # Leaves may have a sample each.
    leaves = 8 * (task.n_measures + 3 * task.n_sums + LEAF_TOTALS * task.n_outputs + 8) * task.fit_targets
    targets = 8 * task.n_outputs * task.fit_targets
    bounds = _BOUND_BYTES * task.is_monotonic
    return _SAMPLE_BYTES + targets + bounds + max(level, leaves, small_nodes.bytes_a_sample(task, source))


def grow_trees(task: Task, source: Any, weight: Array, batch: Batch) -> None:
    """Appends the trees of a batch, on columns, projections or hyperplanes, to `batch.trees`."""
    of_trees = weight if batch.weight is None else batch.weight
    is_whole = bool((of_trees == task.xp.floor(of_trees)).all())
    task = task._replace(target=task.target._replace(is_whole=int(is_whole)))
    n_samples = memory(task.xp) // bytes_a_sample(task, source)
    if batch.roots is not None:
        for roots in _parts(batch.roots, n_samples):
            _grow(task, source, weight, batch._replace(n_trees=len(roots.key), roots=roots))
        return
    together = max(1, n_samples // len(weight))
    for first in range(0, batch.n_trees, together):
        n_trees = min(together, batch.n_trees - first)
        counts = None if batch.counts is None else batch.counts[first : first + n_trees]
        own = None if batch.weight is None else batch.weight[first : first + n_trees]
        some = batch._replace(first=batch.first + first, n_trees=n_trees, counts=counts, weight=own)
        _grow(task, source, weight, some)


def _parts(roots: Roots, n_samples: int) -> Iterator[Roots]:
    """Yields roots in parts of n_samples samples at most, or of one root."""
    first, n = 0, len(roots.key)
    while first < n:
        most = roots.indptr[first] + n_samples
        last = max(first + 1, int(np.searchsorted(roots.indptr, most, side="right")) - 1)
        indptr, some = roots.indptr[first : last + 1], slice(first, last)
        yield Roots(
            indptr - indptr[0], roots.key[some], roots.weight[some], roots.depth[some],
            sample=typed(IntArray, roots.sample)[indptr[0] : indptr[-1]],
        )  # fmt: skip
        first = last


class _Start(NamedTuple):
    """The roots of trees that grow together."""

    weights: Array
    """(n_trees, n) float64, or (1, n) if all trees have the same."""
    size: Array
    """(n_trees,) int64: number of samples."""
    sample: Array
    """(n_samples,) int32: samples of the trees, one after another."""
    heaviest: Array
    """(n_trees,) float64: greatest weight of a sample."""
    are_whole: Array
    """(n_trees,) bool: whether all weights of samples are whole."""
    key: Array
    root_weight: Array | None
    """(n_trees,) float64; None: the sum of the weights of the samples."""
    of_samples: Array
    """(n_samples,) float64: weights of the samples in their trees."""


def _start_of_trees(task: Task, weight: Array, batch: Batch) -> _Start:
    """Returns the roots of whole trees."""
    xp, counts, n_trees = task.xp, batch.counts, batch.n_trees
    weights: Any = xp.broadcast_to(weight, (n_trees, len(weight))) if counts is None else weight * counts
    if batch.weight is not None:
        weights = batch.weight
    # Where only samples without weight were drawn, the tree takes all.
    weights = xp.where((weights > 0).any(axis=1)[:, None], weights, weight)
    drawn = weights > 0
    return _Start(
        weights, drawn.sum(axis=1).astype(np.int64, copy=False), xp.nonzero(drawn)[1].astype(np.int32),
        weights.max(axis=1), (weights == xp.floor(weights)).all(axis=1),
        tree_keys(xp, batch.seed, batch.first, n_trees), None, weights[drawn],
    )  # fmt: skip


def _start_of_roots(task: Task, weight: Array, roots: Roots) -> _Start:
    """Returns roots that are nodes of other trees."""
    xp, sample, first = task.xp, roots.sample, roots.indptr[:-1]
    of_samples = to_numpy(weight)[sample]
    is_fraction = of_samples != np.floor(of_samples)
    return _Start(
        weight[None], *map(xp.asarray, (
            np.diff(roots.indptr), sample, np.maximum.reduceat(of_samples, first),
            ~np.logical_or.reduceat(is_fraction, first), roots.key, roots.weight, of_samples,
        )),
    )  # fmt: skip


def _grow(task: Task, source: Any, weight: Array, batch: Batch) -> None:
    """Appends trees that grow together, level by level."""
    xp, n_trees, target = task.xp, batch.n_trees, task.target
    if batch.roots is None:
        start = _start_of_trees(task, weight, batch)
    else:
        start = _start_of_roots(task, weight, batch.roots)
        target = target._replace(stride=0)
    weights, size, sample = start[:3]
    whole = start.are_whole & (size * start.heaviest < _MAX_SUM)
    n_whole, largest = to_numpy(xp.stack([whole.sum(), start.heaviest.max()])).tolist()
    is_whole = n_whole == n_trees
    u = start.of_samples.astype(np.int64) if is_whole else xp.empty(len(sample), np.int64)
    q = xp.empty((n_trees, target.n, target.n_outputs), np.int64) if task.fit_targets else None
    target = target._replace(
        q=q, weight=None if is_whole else weights, whole=whole.astype(np.uint8), is_whole=int(is_whole)
    )
    weight_bits = int(largest).bit_length() if is_whole and not task.fit_targets else 0
    narrow = 0 < weight_bits <= 32 - len(weight).bit_length()
    task = task._replace(target=target, weight_bits=weight_bits, counts_bins=4 if narrow else 8)
    task = task._replace(n_bins=task.n_bins if task.count_bytes <= COUNT_BYTES else 0)
    tree = xp.arange(n_trees, dtype=np.int32)
    ends = xp.cumsum(size)
    nodes = Children(ends - size, size, tree, start.key, sample, u, task.units(n_trees), None, n_trees)
    # Nodes of a level divide the places of their parents, so samples of small nodes and leaves stay there.
    free = xp.empty_like(sample), xp.empty_like(u)
    most = min(small_nodes.SMALL, small_nodes.MOST) if source.block_source(task, 0) else 0
    small = no_small(task, len(sample) // 2 if most else 0)
    level = _level(task, nodes, start.root_weight, 0)
    del start
    levels: list[GrownNodes] = []
    above, end = None, xp.zeros(COUNTS + 2, np.uint64)
    while True:
        pending, n_entries, n_small = _pending(task, level, above, most, small, end)
        small = small._replace(n_nodes=small.n_nodes + n_small)
        if levels and levels[-1].node_entries is not None:
            levels[-1] = levels[-1]._replace(node_entries=trimmed(levels[-1].node_entries, n_entries))
        grown = GrownNodes(
            level.place, level.count, level.feature, level.threshold, level.gain, level.default_left,
            level.value, None, None, level.unit if task.is_monotonic else None,
        )  # fmt: skip
        if pending.n_nodes == 0:
            levels.append(grown)
            break
        end = xp.zeros(COUNTS + 2, np.uint64)
        split, node_entries, words = source.split(task, level, pending, end[COUNTS + 1 :])
        levels.append(grown._replace(node_entries=node_entries, words=words))
        nodes = _children(task, level, pending, split, free, n_trees)
        free = level.sample, level.u
        level, above = _level(task, nodes, level.root_weight, len(levels)), pending
    samples = (level.sample, level.u), free
    even, odd = samples if level.number % 2 == 0 else samples[::-1]
    if small.n_nodes:
        levels.append(grow_small(task, source, small, even, odd, level.root_weight))
    _collect(task, source.projected, levels, ends, (even, odd), batch.trees)


def _level(task: Task, nodes: Children, root_weight: Array | None, number: int) -> Level:
    """Returns the level of some nodes before they have sums; without root_weight the nodes are roots."""
    xp, n_nodes, K = task.xp, len(nodes.first), task.n_outputs
    weight = xp.empty(n_nodes)
    total = xp.zeros((n_nodes, task.n_sums), np.int64) if nodes.total is None else nodes.total
    return Level(
        nodes.first, nodes.count, nodes.tree, nodes.key, weight if root_weight is None else root_weight,
        nodes.sample, nodes.u, xp.zeros((n_nodes, task.n_measures), np.uint64), nodes.unit, total,
        xp.empty((n_nodes if task.fit_targets else 0, K)), weight,
        None if task.fit_targets else task.leaf_rows(n_nodes),
        xp.empty(n_nodes, np.int32), xp.empty(n_nodes), xp.empty(n_nodes),
        xp.zeros(n_nodes if task.has_defaults else 0, np.uint8), xp.empty(n_nodes, np.int64), n_nodes,
        len(nodes.sample), number,
    )  # fmt: skip


def _pending(
    task: Task, level: Level, above: Pending | None, most: int, small: SmallNodes, end: Array
) -> tuple[Pending, int, int]:  # fmt: skip
    """Returns the pending nodes of a level, the number of entries of the nodes above, and of small nodes.

    above: the pending nodes of the level above; None: the level has roots. Nodes of at most `most` samples
    are added to `small` in place of the pending nodes."""
    xp, n_nodes = task.xp, level.n_nodes
    if above is None and task.has_units:
        task.make_units(level, None)
    elif above is None or task.has_units:
        task.measure((INHERITED, SPREAD) if SPREAD in task.stages else (INHERITED,), level, above)
    n_blocks, counts_bins = -(-n_nodes // NODES), task.counts_bins if task.n_bins else 0
    n_large = level.n_samples // (FEW if counts_bins else LARGE)
    marks, counts = xp.empty(n_nodes, np.uint8), xp.empty((n_blocks, COUNTS), np.int64)
    sizes = n_nodes, n_nodes + 1, n_large, n_large + 1
    node, begin, large, run = (xp.empty(n, np.int64) for n in sizes)
    pending = Pending(node, begin, large, run, 0, 0, 0, 0, counts_bins, most)
    task.launch_blocks("settle", n_blocks, task.target, task.limits, level, pending, marks, counts, end)
    task.launch_blocks("list_pending", n_blocks, task.target, level, marks, counts, pending, small, end)
    pending_nodes, samples, large_nodes, runs, n_small, n_units, n_entries = to_numpy(end).tolist()
    if n_units:
        task.make_units(level, above, marks)
    pending = pending._replace(n_nodes=pending_nodes, n_samples=samples, n_large=large_nodes, n_runs=runs)
    return pending, n_entries, n_small


def _children(
    task: Task, level: Level, pending: Pending, split: Split, free: tuple[Array, Array], n_trees: int
) -> Children:
    """Returns the children of the pending nodes, with their samples in `free`."""
    xp, n_nodes = task.xp, 2 * pending.n_nodes
    children = Children(
        xp.empty(n_nodes, np.int64), xp.empty(n_nodes, np.int64), xp.empty(n_nodes, np.int32),
        xp.empty(n_nodes, np.uint64), *free, task.units(n_nodes),
        None if task.has_units else xp.zeros((n_nodes, task.n_sums), np.int64), n_trees,
    )  # fmt: skip
    task.launch_blocks("move_samples", len(split.tail), task.target, level, pending, split, children)
    return children


def _collect(
    task: Task, projected: bool, levels: list[GrownNodes], ends: Array, by_parity: Any, trees: list[GrownTree]
) -> None:  # fmt: skip
    """Appends to `trees` the nodes of all levels, tree by tree, breadth-first. `ends`: where the samples of a
    tree end."""
    xp, n_trees = task.xp, len(ends)

    def joined(name: str) -> Array:
        return xp.concatenate([getattr(grown, name) for grown in levels])

    place = joined("place")
    tree = xp.searchsorted(ends, place & ROOT_BITS, side="right")
    order = xp.lexsort(xp.stack([place, tree]))
    starts = to_numpy(xp.searchsorted(tree[order], xp.arange(n_trees + 1))).astype(np.int64)
    order = order[: starts[-1]]  # behind it are places without a node
    feature, gain, most = joined("feature"), xp.ldexp(joined("gain"), task.scale), task.limits.max_leaf_nodes
    if most:
        leaf = order[feature[order] == -1]
        by_parity = (_samples_of_leaves(xp, place[leaf[xp.argsort(place[leaf] & ROOT_BITS)]], by_parity),) * 2
        kept, stays = _kept(feature[order], gain[order], starts, most)
        feature[order[xp.asarray(~kept)]] = -1
        order, starts = order[xp.asarray(stays)], np.append(0, np.cumsum(stays))[starts]
    of_tree, feature = tree[order], feature[order]
    is_leaf = feature == -1

    def of_splits(a: Array) -> Array:
        """Returns an array of all nodes in order, with 0 for leaves."""
        a = a[order]
        if most:
            a[is_leaf] = 0
        return a

    left = left_of(is_leaf, starts)
    leaf_starts = (starts + np.arange(n_trees + 1)) // 2
    threshold, gain = (cast(of_splits(a), task.real) for a in (joined("threshold"), gain))
    leaf = order[is_leaf]
    if task.fit_targets:
        unit = joined("unit")[leaf] if task.is_monotonic else None
        value = _leaves_of_targets(task, place[leaf], joined("count")[leaf], tree[leaf], unit, by_parity)
    else:
        value = joined("value")[leaf]
    entries = _entries(task, levels, of_splits) if projected else None
    entry_starts = None if entries is None else to_numpy(entries[0][xp.asarray(starts)])
    if task.has_defaults:
        default_left = of_splits(joined("default_left"))
    else:
        count = joined("count")[order]
        default_left = xp.zeros(len(order), np.uint8)
        children = (xp.asarray(starts)[of_tree] + left)[~is_leaf]
        default_left[~is_leaf] = larger_left(count[children], count[children + 1])
    n_words, word = _words(task, levels, order, of_splits)
    word_starts = np.zeros(n_trees + 1, np.int64)
    if len(word):
        word_starts[1:] = to_numpy(xp.cumsum(n_words)[xp.asarray(starts[1:] - 1)])
    for m in range(n_trees):
        nodes, rows = slice(*starts[m : m + 2]), slice(*leaf_starts[m : m + 2])
        grown = GrownTree(
            feature=feature[nodes], threshold=threshold[nodes], left=left[nodes], gain=gain[nodes],
            value=value[rows], default_left=default_left[nodes],
        )  # fmt: skip
        if entries is not None and entry_starts is not None:
            entry, index, factor = entries
            some = slice(*entry_starts[m : m + 2])
            grown = grown._replace(
                first_entry=entry[nodes] - some.start, indices=index[some], data=factor[some]
            )
        if task.has_defaults:
            grown = grown._replace(n_words=n_words[nodes], words=word[slice(*word_starts[m : m + 2])])
        trees.append(grown)


def _kept(feature: Array, gain: Array, starts: IntArray, most: int) -> tuple[Array, Array]:
    """Returns which nodes are splits of trees with at most `most` leaves, and which are nodes there.

    Nodes are in order, tree after tree and breadth-first: those of tree m are starts[m] to starts[m + 1] - 1.
    """
    is_split, gain = to_numpy(feature != -1), to_numpy(gain)
    kept, stays = np.zeros(len(is_split), bool), np.ones(len(is_split), bool)
    for first, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        split = is_split[first:stop]
        kept[first:stop] = kept_splits(split, 2 * np.cumsum(split) - 1, gain[first:stop], most)
        stays[first + 1 : stop] = np.repeat(kept[first:stop][split], 2)
    return kept, stays


def _samples_of_leaves(xp: ModuleType, place: Array, by_parity: Any) -> tuple[Array, Array]:
    """Returns samples and u of leaves. place: of all leaves of trees, in the order of their samples.

    by_parity: samples and u of even and of odd levels, whose leaves keep their places there.
    """
    at = xp.searchsorted(place & ROOT_BITS, xp.arange(len(by_parity[0][0])), side="right") - 1
    is_odd = (place >> FIRST_BITS & 1)[at] == 1
    sample, u = (xp.where(is_odd, odd, even) for even, odd in zip(*by_parity, strict=True))
    return sample, u


def _leaves_of_targets(
    task: Task, place: Array, count: Array, tree: Array, unit: Array | None, by_parity: Any
) -> Array:
    """Returns the rows of leaves; a unit is made for each. unit: has their bounds, if there are any.

    by_parity: see `_samples_of_leaves`.
    """
    xp, n = task.xp, len(place)
    order = xp.argsort(place & ROOT_BITS)
    place = place[order]
    sample, u = _samples_of_leaves(xp, place, by_parity)
    nodes = Children(
        place & ROOT_BITS, count[order], tree[order].astype(np.int32), place.view(np.uint64), sample, u,
        task.units(n) if unit is None else unit[order], None, 0,
    )  # fmt: skip
    leaves = _level(task, nodes, None, 0)._replace(value=task.leaf_rows(n))
    totals = xp.zeros((n, task.n_outputs, LEAF_TOTALS), np.int64)
    task = task._replace(target=task.target._replace(from_0=0))
    task.make_units(leaves, None)
    task.launch("sum_leaves", -(-len(sample) // LEAF_SAMPLES), task.target, leaves, totals)
    task.launch("write_leaves", n, task.target, leaves, totals)
    value = task.leaf_rows(n)
    value[order] = leaves.value
    return value


def _entries(
    task: Task, levels: list[GrownNodes], of_splits: Callable[[Array], Array]
) -> tuple[Array, Array, Array]:
    """Returns where the entries of each node begin, and all entries; nodes in the order of `of_splits`."""
    xp, begins, counts = task.xp, [], []
    index, factor = [xp.empty(0, np.int32)], [xp.empty(0, np.float32)]
    n_entries = 0
    for grown in levels:
        n_nodes, node_entries = len(grown.place), grown.node_entries
        if node_entries is None:
            node_entries = NodeEntries(
                xp.zeros(n_nodes, np.int64), xp.zeros(n_nodes, np.int64), index[0], factor[0], None
            )
        begins.append(node_entries.begin + n_entries)
        counts.append(node_entries.count)
        index.append(node_entries.index)
        factor.append(node_entries.factor)
        n_entries += len(node_entries.index)
    begin, count = (of_splits(xp.concatenate(parts)) for parts in (begins, counts))
    entry = xp.zeros(len(count) + 1, np.int64)
    entry[1:] = xp.cumsum(count)
    if task.limits.max_leaf_nodes:
        n_entries = int(entry[-1])
    # The node of each entry is the last one that begins there or before: nodes without entries end there.
    at = xp.arange(n_entries)
    node = xp.searchsorted(entry[1:], at, side="right")
    source = begin[node] + at - entry[node]
    return entry, xp.concatenate(index)[source], xp.concatenate(factor)[source]


def _words(
    task: Task, levels: list[GrownNodes], order: Array, of_splits: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Returns the number of words of each node's set of categories, and all words; nodes are in `order`."""
    xp = task.xp
    if all(grown.words is None for grown in levels):
        return xp.zeros(len(order), np.int64), xp.empty(0, np.uint32)
    width = max(grown.words.word.shape[1] for grown in levels if grown.words is not None)
    counts, words = [], []
    for grown in levels:
        n_nodes = len(grown.place)
        counts.append(xp.zeros(n_nodes, np.int64) if grown.words is None else grown.words.count)
        words.append(xp.zeros((n_nodes, width), np.uint32) if grown.words is None else grown.words.word)
    count = of_splits(xp.concatenate(counts))
    return count, xp.concatenate(words)[order][xp.arange(width) < count[:, None]]
