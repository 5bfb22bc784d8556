"""Small nodes on a GPU: a block grows each to its leaves, below the levels of gpu_levels.py.

Kernels: small.cuh.
"""

from types import ModuleType
from typing import Any, NamedTuple, cast

import numpy as np

from ..core.aliases import Array
from .gpu_builder import (
    NEAR,
    NO_ORDERS,
    NO_PAIRS,
    Children,
    Entries,
    Kept,
    Level,
    Orders,
    Pairs,
    Part,
    Small,
    Split,
    Task,
    Words,
    nothing_kept,
)

SMALL = 4096
"""Samples of a small node, at most (no more than small.cuh has); 0: there are none."""

_LITTLE = 1 << 20
"""Bytes of the room for entries of a level that are not given back."""


def no_small(xp: ModuleType, room: int, n_trees: int) -> Small:
    """Returns no small nodes, and room for some."""
    first, count = (xp.empty(room, np.int64) for _ in range(2))
    tree, depth = (xp.empty(room, np.int32) for _ in range(2))
    return Small(first, count, tree, xp.empty(room, np.uint64), depth, 0, n_trees)


class Rooms(NamedTuple):
    """Samples, and workspace of blocks: a struct of small.cuh."""

    sample: Array | None
    sample_weight: Array | None
    mixed: Array
    pending: Array
    swap: Array
    column: Array
    order: Array
    other: Array


class Grown(NamedTuple):
    """Nodes that are done, of one level or below small nodes."""

    first: Array
    depth: Array
    tree: Array
    feature: Array
    threshold: Array
    gain: Array
    default_left: Array
    value: Array
    kept: Kept | None
    words: Words | None


def trimmed(kept: Kept, n_entries: int) -> Kept:
    """Returns entries without the room that they did not need; little room stays, as a copy is a launch."""
    index, factor = kept.index[:n_entries], kept.factor[:n_entries]
    if kept.index.nbytes > _LITTLE:
        index, factor = index.copy(), factor.copy()
    return kept._replace(index=index, factor=factor)


class _Room(NamedTuple):
    """Arrays of all blocks."""

    level: Level
    part: Part
    grown: Children
    rooms: Rooms
    orders: Orders
    pairs: Pairs
    split: Split
    entries: Entries
    kept: Kept
    words: Words


def _room(task: Task, candidates: Any, n: int, n_trees: int) -> _Room:
    """Returns room for nodes of n samples in all, before their samples are known."""
    xp, K, slots, is_whole = task.xp, task.n_outputs, candidates.slots(task), int(task.weight_bits > 0)
    places, half = 2 * n, n // 2
    pairs, of = half * slots, candidates.of_block(task, half)
    n_keys, is_sorted = 0 if task.n_bins else n * slots, not (task.n_bins or task.random_thresholds)
    n_entries, n_draws = pairs if of.max_entries else 0, 0 if is_sorted else pairs
    n_sums = pairs * K if task.random_thresholds or K > NEAR else 0
    order, unknown = xp.empty(n_keys if is_sorted else 0, np.int64), cast(Any, None)

    def ints(n: int) -> Array:
        return xp.empty(n, np.int32)

    def longs(n: int) -> Array:
        return xp.empty(n, np.int64)

    def words(n: int) -> Array:
        return xp.empty(n, np.uint64)

    return _Room(
        Level(
            unknown, unknown, unknown, unknown, unknown, unknown, unknown, xp.empty((n, K)),
            xp.empty((n if task.fit_targets else 0, K)), xp.empty(n), xp.empty((places, K), task.real),
            ints(places), xp.empty(places), xp.empty(places),
            xp.zeros(places if task.has_defaults else 0, np.uint8), ints(places), 0, n, 0,
        ),
        Part(longs(n), longs(n), longs(n), longs(n), 0, 0, 0, 0, int(task.n_bins > 0), 0),
        Children(
            longs(places), longs(places), xp.full(places, n_trees, np.int32), words(places), unknown, unknown,
            xp.empty((n if is_whole else 0, K), np.uint64), n_trees, is_whole,
        ),
        Rooms(
            None, None, ints(0 if is_whole else n), xp.empty(n, np.uint8),
            ints(half * of.columns.n_columns), ints(pairs), order, xp.empty_like(order),
        ),
        of.orders,
        NO_PAIRS._replace(
            key=words(n_keys), order=order if is_sorted else None, left=xp.empty(n_sums), score=words(pairs),
            n_right=words(pairs), greatest=words(n_draws), threshold=xp.empty(n_draws),
            flipped=ints(n_draws if task.has_defaults else 0), slots=slots, value_bits=of.bits.value,
        ),
        Split(longs(half), words(half), longs(half), xp.empty(n, np.uint8), longs(0)),
        Entries(
            ints(n_entries * of.max_entries), xp.empty(n_entries * of.max_entries, np.float32),
            longs(n_entries), of.max_entries,
        ),
        nothing_kept(xp, places if of.max_entries else 0, xp.zeros(1, np.uint64), n * of.max_entries),
        Words(longs(0), xp.empty(0, np.uint32), 0),
    )  # fmt: skip


def bytes_a_sample(task: Task, candidates: Any) -> int:
    """Returns the maximum number of bytes per sample that small nodes take, beside their samples."""
    if candidates.of_block(task, 0) is None or not SMALL:
        return 0
    # Keys take more than counts do, and sums of whole weights more than marks.
    some, n = task._replace(xp=np, n_bins=0, weight_bits=int(not task.fit_targets)), 64
    room = _room(some, candidates, n, 0)
    structs: Any = (*room._replace(orders=NO_ORDERS._replace(flipped=room.orders.flipped)),)
    arrays = {id(a): a.nbytes for struct in structs for a in struct if hasattr(a, "nbytes")}
    return -(-sum(arrays.values()) // n)


def grow_small(
    task: Task, candidates: Any, small: Small, even: tuple[Array, Array], odd: tuple[Array, Array],
    root_weight: Array,
) -> Grown:  # fmt: skip
    """Returns the nodes below small nodes, in any order. `even` and `odd` have the samples of levels of such
    numbers, and their weights: workspace."""
    room = _room(task, candidates, len(even[0]), small.n_trees)
    room = room._replace(
        level=room.level._replace(root_weight=root_weight),
        grown=room.grown._replace(sample=odd[0], sample_weight=odd[1]),
        rooms=room.rooms._replace(sample=even[0], sample_weight=even[1]),
    )
    of = candidates.of_block(task, 0)
    rules = (*task.rules, small, room.level, room.part, room.grown, room.rooms, of.columns, room.orders)
    if task.n_bins:
        arguments = (*rules, room.pairs._replace(key=None), room.split, room.kept)
        task.launch_blocks("grow_counted", small.n_nodes, *arguments, n_bytes=task.count_bytes)
    else:
        task.launch_blocks(
            "grow_small", small.n_nodes, *rules, of.bits, room.pairs, room.split, of.projected, room.entries,
            room.kept, room.words, int(task.by_blocks), int(task.random_thresholds),
        )  # fmt: skip
    level, grown, kept, end = room.level, room.grown, room.kept, cast(Any, room.kept.end)
    del room, rules  # the workspace
    used = task.xp.flatnonzero(grown.tree < small.n_trees)
    if of.max_entries:
        kept = trimmed(kept._replace(begin=kept.begin[used], count=kept.count[used]), int(end[0]))
    return Grown(
        grown.first[used], level.depth[used], grown.tree[used], level.feature[used], level.threshold[used],
        level.gain[used], level.default_left[used] if task.has_defaults else level.default_left,
        level.value[used], kept if of.max_entries else None, None,
    )  # fmt: skip
