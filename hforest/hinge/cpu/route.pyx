"""Routing of samples (Lay et al. 2018, Alg. 3, HingeTreeTraversal), and the results computed from routes.

A unit of work is a block of samples and some trees. The trees are processed in groups of 16, whose routes
stay in cache until they are transposed to the rows of the result, or used for outputs (Lay et al. 2018, eq.
10), or both.

way     when                                                         side by side             input
PLAIN   no vectors, or too few samples or trees for tiles to pay     -                        rows
TILES   at least 32 samples (ferns: 8)                               32 samples in one tree   tiles
ROWS    fewer samples, in trees                                      one sample in 16 trees   rows

Tiles and rows of windows are copied from the images one block at a time (windows.pyx).

Each element is computed by one thread, and all ways are bit-identical.

Versions: trees in the lanes of a vector (ROWS) take half the time of PLAIN. The next tree is prefetched, and
two threads share whole groups of 16 trees. Left out: a way for calls of at most 1024 pairs, and a cache of
the memory of large results. They saved 16 to 26 microseconds of a small call; `out=` does what the cache did,
without state of the process.
"""

import numpy as np

from cython.parallel cimport prange, threadid
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcpy, memset

from hforest.core.machine cimport (
    hf_begin, hf_end, hf_stopped_after, hf_units, hf_watch, raise_interrupt, simd_path, start_watch,
)
from hforest.hinge.cpu.forest cimport (
    GROUP, Forest, Route, aligned, bounded, element, forest_of, hf_fetch, real, route_of, start_of,
    threads_for, transpose,
)
from hforest.hinge.cpu.leaf_sums cimport Group, Known, add_outputs, divide_sums, sum_leaves, write_outputs
from hforest.hinge.cpu.windows cimport fill_rows, fill_tile, windows_of

cdef extern from "hinge/cpu/simd/route.h" nogil:
    int HF_TILE
    ctypedef struct hf_trees:
        const void* thresholds
        const int32_t* features
        Py_ssize_t n_vertices
        int depth, count
        uint32_t last_feature, mask
        const uint32_t* offsets
    size_t hf_feature(const hf_trees* trees, int32_t feature)
    ctypedef void (*hf_router)(const hf_trees*, const void* x, int32_t* leaf, void* margin, int32_t* vertex)
    hf_router hf_tile_router(int path, int itemsize, int fern)
    hf_router hf_row_router(int path, int itemsize)

cdef enum:
    MAX_BLOCK = 256       # samples per block at most: a tree is read once per block
    BLOCK_BYTES = 1 << 20  # input of a block at most, unless 64 samples need more: fits in L2
    SUM_BYTES = 1 << 18   # sums of a block at most, unless 32 samples need more
    MAX_OFFSETS = 1 << 26  # features whose offsets in a tile have 32 bits
    PAYS = 1              # vertices of a tree per comparison, up to which a copy of features pays
    COLUMNS = 256         # columns of a tile that one thread transposes, if several share a tile

cdef enum Way:
    PLAIN
    TILES
    ROWS


# How a call is executed.
cdef struct Plan:
    Way way
    int path, threads
    uint32_t mask         # these two: see hf_trees
    const uint32_t* offsets  # (n_trees, n_vertices), or NULL
    Py_ssize_t beyond     # numbers of a tile from n_features to `mask`, of which nothing is expected
    hf_router router
    Py_ssize_t block, n_blocks, tree_step, n_parts
    Py_ssize_t tile_bytes, sum_bytes, result_bytes


# Workspace of one thread.
cdef struct Workspace:
    void* tiles           # real (n_tiles, n_features, HF_TILE), or rows (block, n_features) of windows
    double* total         # (block, n_outputs)
    Group group           # routes of GROUP trees and the samples of the block


cdef Plan _plan(const Call* call) noexcept nogil:
    cdef Plan plan
    cdef int bit = 1
    cdef const Forest* forest = &call.forest
    cdef Py_ssize_t row = call.n_features * forest.itemsize, n = call.n_samples, block = MAX_BLOCK
    plan.path, plan.threads, plan.offsets = simd_path(), threads_for(n * forest.n_trees), NULL
    plan.way, plan.router = TILES, hf_tile_router(plan.path, forest.itemsize, forest.fern)
    if plan.router == NULL:
        plan.way = PLAIN
    elif not forest.fern and n < HF_TILE:
        plan.way, plan.router = ROWS, hf_row_router(plan.path, forest.itemsize)
    elif n < 8 or (not call.windowed and call.n_features > 8 * forest.n_trees * forest.depth):
        # Transposing one element of the input costs about as much as one level of a (sample, tree) pair.
        plan.way = PLAIN
    plan.mask = <uint32_t> (call.n_features - 1)
    while bit < 32:
        plan.mask |= plan.mask >> bit
        bit *= 2
    plan.beyond = (<Py_ssize_t> plan.mask + 1 - call.n_features) * HF_TILE
    block = min(block, max(<Py_ssize_t> 64, BLOCK_BYTES // row))
    if call.summed:
        block = min(block, max(<Py_ssize_t> HF_TILE, SUM_BYTES // (8 * forest.n_outputs)))
        if plan.threads > 1:
            block = min(block, max(<Py_ssize_t> HF_TILE, n // (4 * plan.threads)))
    # A block consists of whole tiles.
    plan.block = min((n + HF_TILE - 1) // HF_TILE, block // HF_TILE) * HF_TILE
    plan.n_blocks = (n + plan.block - 1) // plan.block
    # Threads share blocks of samples and, if there are few blocks, groups of trees too.
    plan.tree_step = forest.n_trees
    if plan.threads > 1 and plan.n_blocks < 4 * plan.threads and not call.summed:
        plan.tree_step = (forest.n_trees * plan.n_blocks // (2 * plan.threads) + GROUP) // GROUP * GROUP
    plan.n_parts = (forest.n_trees + plan.tree_step - 1) // plan.tree_step
    plan.tile_bytes = 0
    if plan.way == TILES or call.windowed:
        plan.tile_bytes = aligned(plan.block * row + plan.beyond * forest.itemsize)
    plan.sum_bytes = aligned(plan.block * forest.n_outputs * 8) if call.summed else 0
    plan.result_bytes = aligned(GROUP * plan.block * 8)
    return plan


cdef Workspace _workspace(const Plan* plan, unsigned char* start) noexcept nogil:
    # The routes of one tree are contiguous; in ROWS, those of one sample.
    cdef Workspace w
    start += 127 - (<size_t> start + 127) % 128
    w.tiles, w.total = start, <double*> (start + plan.tile_bytes)
    start += plan.tile_bytes + plan.sum_bytes
    w.group.leaf, w.group.margin = <int32_t*> start, start + plan.result_bytes
    w.group.vertex = <int32_t*> (start + 2 * plan.result_bytes)
    w.group.sample_step = GROUP if plan.way == ROWS else 1
    w.group.tree_step = 1 if plan.way == ROWS else plan.block
    return w


cdef void _fill_tile(
    const Call* call, const Plan* plan, const real* x, Py_ssize_t sample, Py_ssize_t first, Py_ssize_t last,
    real* tile,
) noexcept nogil:
    # Writes features first to last - 1 of the HF_TILE samples that begin at `sample`; unused lanes are 0.
    cdef Py_ssize_t f, s, n = min(call.n_samples - sample, <Py_ssize_t> HF_TILE)
    if call.windowed:
        fill_tile(&call.windows, x, sample, n, first, last, tile)
        return
    transpose(
        plan.path, x + sample * call.n_features + first, call.n_features, n, last - first,
        tile + first * HF_TILE, HF_TILE,
    )
    if n < HF_TILE:
        for f in range(first, last):
            for s in range(n, HF_TILE):
                tile[f * HF_TILE + s] = 0


cdef void _fill_together(
    const Call* call, const Plan* plan, const real* x, real* tiles, hf_watch* watch
) noexcept nogil:
    # Writes the tiles of all samples; threads share the features of each tile.
    cdef Py_ssize_t n_features = call.n_features, parts = (n_features + COLUMNS - 1) // COLUMNS
    cdef Py_ssize_t n_units = (call.n_samples + HF_TILE - 1) // HF_TILE * parts, unit, s, f
    for unit in prange(
        hf_units(watch, n_units, plan.threads), schedule="dynamic", num_threads=plan.threads
    ):
        if hf_begin(watch, unit):
            s = unit // parts * HF_TILE
            f = unit % parts * COLUMNS
            _fill_tile(call, plan, x, s, f, min(f + COLUMNS, n_features), tiles + s * n_features)
            hf_end(watch)


cdef void _route_plain(
    const hf_trees* tree, bint fern, const real* x, Py_ssize_t n_features, const Group* group, Py_ssize_t at,
) noexcept nogil:
    """Routes the group's samples in one tree or fern, by the loop to which all others are bit-identical.

    x      IN (n, n_features)
    group  OUT leaf, margin and vertex, from element `at` on
    """
    cdef const real* t = <const real*> tree.thresholds
    cdef const int32_t* f = tree.features
    cdef Py_ssize_t s
    cdef int32_t v, nearest, leaf
    cdef real r, lowest
    cdef int _level, right
    for s in range(group.n):
        lowest = x[hf_feature(tree, f[0])] - t[0]
        v = nearest = leaf = 0
        for _level in range(tree.depth):
            r = x[hf_feature(tree, f[v])] - t[v]
            right = r > 0
            # Strict comparison: of equal margins, the one nearest the root is kept.
            if fabs(r) < fabs(lowest):
                lowest = r
                nearest = v
            leaf = 2 * leaf + right
            v = v + 1 if fern else 2 * v + right + 1
        group.leaf[at + s], group.vertex[at + s] = leaf, nearest
        (<real*> group.margin)[at + s] = lowest
        x += n_features


cdef void _route_group(
    const Call* call, const Plan* plan, const real* x, const real* tiles, Py_ssize_t first,
    const Group* group,
) noexcept nogil:
    """Routes the group's samples in trees first to first + n_trees - 1.

    x      IN (n, n_features)
    tiles  IN (n_tiles, n_features, HF_TILE), read only in TILES
    group  OUT the routes; if call has none, leaves and margins, of whose signs nothing is expected
    """
    cdef const Forest* forest = &call.forest
    cdef Py_ssize_t at = first * forest.n_vertices, n_features = call.n_features, j, s = 0
    cdef real* margin = <real*> group.margin
    cdef bint least = call.route.leaf == NULL
    cdef hf_trees trees
    trees.depth, trees.n_vertices, trees.count = forest.depth, forest.n_vertices, <int> group.n_trees
    trees.thresholds, trees.features = <const real*> forest.thresholds + at, forest.features + at
    trees.last_feature, trees.mask, trees.offsets = <uint32_t> (n_features - 1), plan.mask, NULL
    if plan.way == ROWS:
        for s in range(group.n):
            plan.router(
                &trees, x + s * n_features, group.leaf + s * GROUP, margin + s * GROUP,
                group.vertex + s * GROUP,
            )
        return
    for j in range(group.n_trees):
        at = (first + j) * forest.n_vertices
        trees.thresholds, trees.features = <const real*> forest.thresholds + at, forest.features + at
        if plan.offsets != NULL:
            trees.offsets = plan.offsets + at
        if plan.way == PLAIN:
            _route_plain(&trees, forest.fern, x, n_features, group, j * group.tree_step)
            continue
        # The next tree is prefetched if there are enough samples to read most of its cache lines.
        if forest.n_vertices <= 8 * group.n and first + j + 1 < forest.n_trees:
            hf_fetch(<const real*> trees.thresholds + forest.n_vertices, forest.n_vertices * sizeof(real))
            hf_fetch(trees.features + forest.n_vertices, forest.n_vertices * sizeof(int32_t))
        at = j * group.tree_step
        s = 0
        while s < group.n:
            plan.router(
                &trees, tiles + s * n_features, group.leaf + at + s, margin + at + s,
                NULL if least else group.vertex + at + s,
            )
            s += HF_TILE


cdef void _store(
    const Plan* plan, const Group* group, const element* source, bint along, element* target, Py_ssize_t step
) noexcept nogil:
    # Writes an array of a group, whose lines are trees (in ROWS, samples), to lines or columns of the result.
    cdef Py_ssize_t n = group.n_trees, length = group.n, line = plan.block, i
    if plan.way == ROWS:
        n, length, line = group.n, group.n_trees, GROUP
    if not along:
        transpose(plan.path, source, line, n, length, target, step)
        return
    for i in range(n):
        memcpy(target + i * step, source + i * line, length * sizeof(element))


cdef void _store_group(
    const Call* call, const Plan* plan, const Group* group, Py_ssize_t at, real* margin
) noexcept nogil:
    """Writes the routes of a group to the results, from element `at` on; margin is that of call.route."""
    cdef const Route* route = &call.route
    cdef bint by_tree = route.sample_step == 1, along = by_tree == (plan.way != ROWS)
    cdef Py_ssize_t step = route.tree_step if by_tree else route.sample_step
    _store(plan, group, group.leaf, along, route.leaf + at, step)
    _store(plan, group, group.vertex, along, route.vertex + at, step)
    _store(plan, group, <real*> group.margin, along, margin + at, step)


cdef void _run_unit(
    const Call* call, const Plan* plan, Py_ssize_t unit, const real* x, const real* tiles,
    unsigned char* scratch, hf_watch* watch,
) noexcept nogil:
    # tiles  IN of all samples, or NULL.
    cdef const Forest* forest = &call.forest
    cdef Workspace w = _workspace(plan, scratch)
    cdef Py_ssize_t start = unit // plan.n_parts * plan.block, m = unit % plan.n_parts * plan.tree_step, s = 0
    cdef Py_ssize_t last = min(m + plan.tree_step, forest.n_trees), n_outputs = forest.n_outputs
    cdef const real* weights
    cdef int64_t n_steps = 0
    cdef Py_ssize_t at
    cdef bint in_place
    w.group.n = min(plan.block, call.n_samples - start)
    # Whole tiles of ferns are written to a result in which the samples of a fern are contiguous. Walks in
    # trees are slower if they write there.
    in_place = forest.fern and call.route.sample_step == 1 and plan.way == TILES
    in_place = in_place and w.group.n % HF_TILE == 0
    if in_place:
        w.group.tree_step = call.route.tree_step
    if tiles != NULL:
        tiles += start * call.n_features
    elif plan.way == TILES:
        tiles = <const real*> w.tiles
        while s < w.group.n:
            _fill_tile(
                call, plan, x, start + s, 0, call.n_features, <real*> w.tiles + s * call.n_features
            )
            s += HF_TILE
    if call.windowed:
        if plan.way != TILES:
            fill_rows(&call.windows, x, start, w.group.n, <real*> w.tiles)
        x = <const real*> w.tiles
    else:
        x += start * call.n_features
    if call.summed:
        memset(w.total, 0, w.group.n * n_outputs * sizeof(double))
    while m < last:
        w.group.n_trees = min(<Py_ssize_t> GROUP, last - m)
        if hf_stopped_after(watch, &n_steps, w.group.n * w.group.n_trees * (forest.depth + n_outputs // 4)):
            return
        at = start * call.route.sample_step + m * call.route.tree_step
        if in_place:
            w.group.leaf, w.group.vertex = call.route.leaf + at, call.route.vertex + at
            w.group.margin = <real*> call.route.margin + at
        _route_group(call, plan, x, tiles, m, &w.group)
        if call.route.leaf != NULL and not in_place:
            _store_group(call, plan, &w.group, at, <real*> call.route.margin)
        if call.y != NULL:
            weights = <const real*> forest.weights + m * forest.n_leaves * n_outputs
            if call.summed:
                add_outputs(plan.path, forest, &w.group, weights, w.total)
            else:
                write_outputs(
                    forest, &w.group, weights, <real*> call.y + (start * forest.n_trees + m) * n_outputs,
                    forest.n_trees * n_outputs,
                )
        m += GROUP
    if call.summed:
        divide_sums(w.total, w.group.n * n_outputs, call.divisor, <real*> call.y + start * n_outputs)


cdef void _fill_offsets(
    const int32_t* features, Py_ssize_t n, Py_ssize_t n_features, uint32_t* offsets
) noexcept nogil:
    # Writes offsets (n,) of hf_trees.
    cdef Py_ssize_t i
    for i in range(n):
        offsets[i] = bounded(features[i], n_features) * <uint32_t> HF_TILE


cdef int run(Call call, const real* x) except -1:
    """Routes all samples of a call, and writes the results that it requests.

    x  IN (n_samples, n_features), or images
    """
    cdef Plan plan
    cdef Known known
    cdef hf_watch watch
    cdef Py_ssize_t unit
    cdef real* tiles = NULL
    cdef real[::1] shared
    cdef uint32_t[::1] offsets
    cdef Py_ssize_t n_pairs
    cdef unsigned char[:, ::1] scratch
    dtype = np.float32 if real is float else np.float64
    if call.n_samples == 0:
        return 0
    plan = _plan(&call)
    if call.summed and plan.n_blocks < plan.threads:
        # With few samples, threads first share the trees, and then the samples.
        known.forest, known.n_samples, known.summed = call.forest, call.n_samples, True
        known.divisor, known.y = call.divisor, call.y
        route = None
        if call.route.leaf == NULL:
            shape = (call.n_samples, call.forest.n_trees)
            route = [np.empty(shape, kind) for kind in (np.int32, dtype, np.int32)]
            call.route = route_of(route)
        call.y, call.summed = NULL, False
        run(call, x)
        known.route = call.route
        return sum_leaves(known, x)
    start_watch(&watch)
    n_bytes = 128 + plan.tile_bytes + plan.sum_bytes + 3 * plan.result_bytes
    scratch = np.empty((plan.threads, n_bytes), np.uint8)
    if plan.way == TILES and plan.n_parts > 1:
        # Several threads share the trees of a block; its input is transposed once for all of them.
        n_tiles = (call.n_samples + HF_TILE - 1) // HF_TILE
        shared = np.empty(n_tiles * HF_TILE * call.n_features + plan.beyond + 128 // sizeof(real), dtype)
        tiles = &shared[0]
        tiles += (127 - (<size_t> tiles + 127) % 128) // sizeof(real)
    n_pairs = call.forest.n_trees * call.forest.n_vertices
    if (
        plan.way == TILES and not call.forest.fern and call.n_features < MAX_OFFSETS
        and PAYS * call.n_samples * call.forest.depth >= call.forest.n_vertices
    ):
        # A bounded copy costs less than to bound each feature that is read.
        offsets = np.empty(n_pairs, np.uint32)
        _fill_offsets(call.forest.features, n_pairs, call.n_features, &offsets[0])
        plan.offsets = &offsets[0]
    with nogil:
        if tiles != NULL:
            _fill_together(&call, &plan, x, tiles, &watch)
        for unit in prange(
            hf_units(&watch, plan.n_blocks * plan.n_parts, plan.threads),
            schedule="dynamic", num_threads=plan.threads,
        ):
            if hf_begin(&watch, unit):
                _run_unit(&call, &plan, unit, x, tiles, &scratch[threadid(), 0], &watch)
                hf_end(&watch)
    return raise_interrupt(&watch)


cdef Call call_of(
    bint fern, x, thresholds, features, weights, double divisor, y, route, windows, taps
):
    """Returns the struct of a call; weights, y, route, windows and their taps may be None."""
    cdef Call call
    call.forest, call.route = forest_of(fern, thresholds, features, weights), route_of(route)
    call.y, call.summed, call.divisor = start_of(y), y is not None and y.ndim == 2, divisor
    call.n_samples, call.n_features = x.shape
    call.windowed = windows is not None
    if call.windowed:
        call.windows = windows_of(windows, call.n_samples, taps)
        call.n_samples, call.n_features = call.n_samples * windows.n_positions, taps.shape[0]
    return call
