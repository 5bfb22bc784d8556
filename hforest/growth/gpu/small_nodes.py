"""Small nodes on a GPU: a block grows each to its leaves, below the levels of builder.py.

Kernels: small_nodes.cuh.
"""

from types import ModuleType
from typing import Any, NamedTuple, cast

import numpy as np

from ...core.aliases import Array
from ...core.launch import numbers
from .candidates import NEAR, Task
from .structs import CategorySets, NodeEntries, SmallNodes, no_node_entries

SMALL = 512
"""Maximum number of samples of a small node; 0: all nodes grow level by level. see small_nodes.cuh."""

(MOST,) = numbers("growth/gpu/small_nodes.cuh", "MOST")
"""The largest number that SMALL may be."""

BLOCK_BYTES = 40 << 10
"""Bytes of the `block_memory` of grow_small, at most, but the keys of one slot fit in any case. With it four
blocks have the shared memory of a multiprocessor of an H100."""

_KEY_BYTES = 12
"""Bytes of a key in a block's memory, with its place in two orders."""

(NOWHERE,) = numbers("growth/gpu/levels.cuh", "NOWHERE")
"""`place` of an element without a node."""

_LITTLE = 1 << 20
"""Bytes of the memory for entries of a level up to which its unused rest is kept."""


def no_small(task: Task, room: int) -> SmallNodes:
    """Returns memory for a list of `room` small nodes, of which there are none yet."""
    xp = task.xp
    first, count = (xp.empty(room, np.int64) for _ in range(2))
    tree, depth = (xp.empty(room, np.int32) for _ in range(2))
    return SmallNodes(first, count, tree, xp.empty(room, np.uint64), depth, task.units(room), 0)


class Workspace(NamedTuple):
    """Nodes below small nodes, and workspace of blocks: a struct of small_nodes.cuh."""

    first: Array
    count: Any
    tree: Array
    key: Array
    value: Array | None
    feature: Array
    threshold: Array
    gain: Array
    default_left: Array
    place: Array
    unit: Array | None
    measured: Array | None
    total: Array
    mean: Array
    weight: Array
    root_weight: Array | None
    sample: Array | None
    u: Array | None
    other_sample: Array | None
    other_u: Array | None
    marks: Array
    pending: Array
    swap: Array
    column: Array
    score: Array
    n_right: Array
    greatest: Array
    bound: Array
    flipped: Array
    left: Array
    keys: Array
    chosen: Array
    split: Array
    n_left: Array
    right: Array
    entry: Array
    factor: Array
    n_entries: Array
    n_trees: int
    slots: int
    value_bits: int
    max_entries: int
    is_random: int
    counts_bins: int
    n_before: int
    n_keys: int


class GrownNodes(NamedTuple):
    """Nodes that do not change any more: those of a level, or those below small nodes."""

    place: Array
    count: Any
    feature: Array
    threshold: Array
    gain: Array
    default_left: Array
    value: Array | None
    """(n_nodes, n_outputs): values of nodes as leaves of labels; None for targets."""
    node_entries: NodeEntries | None
    words: CategorySets | None
    unit: Array | None = None
    """(n_nodes, 8): units and bounds (constraints.cuh), if there are monotonic constraints."""


def trimmed(node_entries: NodeEntries, n_entries: int) -> NodeEntries:
    """Returns the first n_entries entries, as a copy if the memory of all is large: a copy is a launch."""
    index, factor = node_entries.index[:n_entries], node_entries.factor[:n_entries]
    if node_entries.index.nbytes > _LITTLE:
        index, factor = index.copy(), factor.copy()
    return node_entries._replace(index=index, factor=factor)


def _block(task: Task, slots: int) -> tuple[int, int, int]:
    """Returns the members n_before and n_keys of Workspace, and the bytes of `block_memory`."""
    most, is_sorted = min(SMALL, MOST), not (task.n_bins or task.random_thresholds)
    n_bytes = task.count_bytes if task.n_bins else task.sum_bytes * (is_sorted and task.n_outputs <= NEAR)
    n_before = -(-n_bytes // 8)
    n_bytes = 8 * (n_before + most + 1)
    n_keys = max(most, min(most * slots, (BLOCK_BYTES - n_bytes) // _KEY_BYTES)) * is_sorted
    return n_before, n_keys, n_bytes + n_keys * _KEY_BYTES


def _workspace(task: Task, source: Any, n: int, n_trees: int) -> Workspace:
    """Returns memory for small nodes of n samples together; samples and root_weight are still None."""
    xp, K, slots = task.xp, task.n_outputs, source.slots(task)
    of, places, candidates = source.block_source(task, 0), 2 * n, n // 2 * slots
    n_before, n_keys, _ = _block(task, slots)
    n_entries, n_draws = candidates if of.max_entries else 0, candidates * (n_keys == 0)
    n_sums = candidates * K if task.random_thresholds or K > NEAR else 0

    def bytes_(n: int) -> Array:
        return xp.empty(n, np.uint8)

    def ints(n: int) -> Array:
        return xp.empty(n, np.int32)

    def longs(n: int) -> Array:
        return xp.empty(n, np.int64)

    def words(n: int) -> Array:
        return xp.empty(n, np.uint64)

    return Workspace(
        first=longs(places), count=longs(places), tree=ints(places), key=words(places),
        value=None if task.fit_targets else task.leaf_rows(places),
        feature=ints(places), threshold=xp.empty(places),
        gain=xp.empty(places), default_left=xp.zeros(places if task.has_defaults else 0, np.uint8),
        place=xp.full(places, NOWHERE, np.int64),
        unit=task.units(places), measured=words(n * task.n_measures),
        total=longs(n * task.n_sums), mean=xp.empty((n if task.fit_targets else 0, K)),
        weight=xp.empty(n), root_weight=None, sample=None, u=None, other_sample=None, other_u=None,
        marks=bytes_(n), pending=longs(2 * n), swap=ints(n // 2 * of.columns.n_columns),
        column=ints(candidates),
        score=words(candidates), n_right=words(candidates), greatest=words(n_draws), bound=xp.empty(n_draws),
        flipped=ints(n_draws if task.has_defaults else 0), left=longs(n_sums),
        keys=words(n * slots * task.random_thresholds), chosen=longs(n // 2), split=words(n // 2),
        n_left=longs(n // 2), right=bytes_(n), entry=ints(n_entries * of.max_entries),
        factor=xp.empty(n_entries * of.max_entries, np.float32), n_entries=longs(n_entries), n_trees=n_trees,
        slots=slots, value_bits=of.value_bits, max_entries=of.max_entries,
        is_random=int(task.random_thresholds), counts_bins=task.counts_bins if task.n_bins else 0,
        n_before=n_before, n_keys=n_keys,
    )  # fmt: skip


def _room_for_entries(xp: ModuleType, max_entries: int, n: int) -> NodeEntries:
    """Returns memory for the entries of the nodes below small nodes, which have n samples."""
    return no_node_entries(xp, 2 * n if max_entries else 0, xp.zeros(1, np.uint64), n * max_entries)


def bytes_a_sample(task: Task, source: Any) -> int:
    """Returns the maximum number of bytes per sample that small nodes take, beside their samples."""
    of, n = source.block_source(task, 0), 64
    if of is None or not SMALL:
        return 0
    arrays = (*_workspace(task._replace(xp=np), source, n, 0), *_room_for_entries(np, of.max_entries, n))
    return -(-sum(a.nbytes for a in arrays if isinstance(a, np.ndarray)) // n) + 2  # of Orders.flipped


def grow_small(
    task: Task, source: Any, small: SmallNodes, even: tuple[Array, Array], odd: tuple[Array, Array],
    root_weight: Array,
) -> GrownNodes:  # fmt: skip
    """Returns the nodes below small nodes, in any order. `even` and `odd` have the samples of levels of such
    numbers, and their u: workspace."""
    xp, n, of = task.xp, len(even[0]), source.block_source(task, len(even[0]) // 2)
    workspace = _workspace(task, source, n, len(root_weight))._replace(
        root_weight=root_weight,
        sample=even[0],
        u=even[1],
        other_sample=odd[0],
        other_u=odd[1],
    )
    arguments, node_entries = (
        (*task.rules, small, workspace, of.columns, of.orders),
        _room_for_entries(xp, of.max_entries, n),
    )
    name, more = ("grow_counted", ()) if task.n_bins else ("grow_small", (of.projected, node_entries))
    task.launch_blocks(
        name, small.n_nodes, *arguments, *more, n_bytes=_block(task, workspace.slots)[-1]
    )  # fmt: skip
    names = ["place", "count", "feature", "threshold", "gain", "default_left", "value"]
    names += ["unit"] * task.is_monotonic
    arrays = {name: getattr(workspace, name) for name in names}
    del workspace, arguments  # the workspace
    used = xp.flatnonzero(arrays["place"] != NOWHERE)
    some = {name: a[used] if a is not None and len(a) else a for name, a in arrays.items()}
    grown = GrownNodes(**some, node_entries=None, words=None)
    if of.max_entries:
        node_entries = node_entries._replace(begin=node_entries.begin[used], count=node_entries.count[used])
        grown = grown._replace(node_entries=trimmed(node_entries, int(cast(Any, node_entries.end)[0])))
    return grown
