"""Random hinge trees and ferns on the CPU (p1 = Lay et al., Random Hinge Forest).

Each output element is computed by one thread: parallel loops run over tiles of (samples, trees) when routing,
over samples for `y` and `grad_x`, over trees for the parameters. No sum is shared between threads, nothing is
atomic, and the result has the same bits at every number of threads.

Calls that write results alone stop for a signal (core/watch.h). Steps of Adam are in place and do not.
"""

import numpy as np

from cython.parallel cimport parallel, prange, threadid
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memmove, memset

from hforest.core.machine cimport (
    hf_has_stopped, hf_share, hf_stopped, hf_stopped_after, hf_take, hf_threads, hf_watch, raise_interrupt,
    simd_path, start_watch,
)
from hforest.hinge.kernels cimport (
    HF_WIDTH, hf_has_lanes, hf_route_lanes, hf_route_plain_f32, hf_route_plain_f64, hf_sum_f32, hf_sum_f64,
)
from hforest.optim.adam cimport adam_pass, adam_settings, adam_step, adam_tables, hf_adam

from ..optim.exact import bias

cdef extern from "core/watch.h" nogil:
    void hf_start_watch(hf_watch* watch, int is_main_thread)

cdef extern from "hinge/bits.h" nogil:
    int hf_lowest_bit(uint64_t word)
    void hf_mark_columns(int path, const int32_t*, Py_ssize_t step, Py_ssize_t n, int count, uint64_t* seen)
    void hf_mark_bytes(
        const int32_t*, Py_ssize_t step, Py_ssize_t n, int count, Py_ssize_t n_slots, unsigned char* seen)
    Py_ssize_t hf_list_bytes(
        const unsigned char* seen, Py_ssize_t n_slots, int64_t offset, Py_ssize_t most, int64_t* rows)

ctypedef fused real:
    float
    double

cdef extern from "hinge/vectors.h" nogil:
    int HF_TILE
    ctypedef struct hf_tree:
        pass
    int hf_has_route(int path)
    void hf_prepare_f32(hf_tree*, int n_vertices, int depth, const float*, const int32_t*, int32_t* packed)
    void hf_prepare_f64(hf_tree*, int n_vertices, int depth, const double*, const int32_t*, int32_t* packed)
    void hf_route_f32(const hf_tree*, int path, int fern, const float*, int32_t*, float*, int32_t*)
    void hf_route_f64(const hf_tree*, int path, int fern, const double*, int32_t*, double*, int32_t*)

cdef extern from "hinge/route.h" nogil:
    int HF_GROUP
    void hf_fill_tile_f32(
        int path, const float*, ptrdiff_t step, ptrdiff_t first, ptrdiff_t last, int n, float*)
    void hf_fill_tile_f64(
        int path, const double*, ptrdiff_t step, ptrdiff_t first, ptrdiff_t last, int n, double*)
    void hf_load_words(int path, const int32_t*, ptrdiff_t, int n_trees, ptrdiff_t, int32_t*, ptrdiff_t)
    void hf_load_doubles(const double*, ptrdiff_t, int n_trees, ptrdiff_t, double*, ptrdiff_t)
    void hf_store_words(int path, const int32_t*, ptrdiff_t, int n_trees, ptrdiff_t, int32_t*, ptrdiff_t)
    void hf_store_doubles(const double*, ptrdiff_t, int n_trees, ptrdiff_t, double*, ptrdiff_t)

cdef extern from "hinge/ferns.h" nogil:
    int hf_has_ferns(int path, int itemsize, int depth)
    void hf_route_ferns(
        const float* tile, Py_ssize_t n, const float*, const int32_t*, int depth, int count,
        int32_t*, float*, int32_t*, Py_ssize_t step, const float* weights, double* total,
    )

cdef extern from "core/simd.h" nogil:
    void hf_fetch(const void* start, Py_ssize_t n_bytes)

cdef extern from "hinge/sums.h" nogil:
    int HF_AHEAD, HF_TOGETHER
    ctypedef struct hf_visits:
        const int32_t* leaf
        const int32_t* next
        ptrdiff_t n_samples, n_outputs, width, step
        double* total
    ctypedef struct hf_next:
        const void* weights
        const void* m
        const void* v
    ptrdiff_t hf_sum_width(ptrdiff_t n_outputs)
    void hf_visits_f32(
        int path, const hf_visits*, const float* grad, const float* margin, const float* weights,
        const hf_next*, double divisor, float* slope)
    void hf_visits_f64(
        int path, const hf_visits*, const double* grad, const double* margin, const double* weights,
        const hf_next*, double divisor, double* slope)
    void hf_single_f32(
        int path, const int32_t* leaf, const float* grad, Py_ssize_t step, const float* margin,
        const float* weights, Py_ssize_t n, double divisor, double* total, float* slope)
    void hf_single_f64(
        int path, const int32_t* leaf, const double* grad, Py_ssize_t step, const double* margin,
        const double* weights, Py_ssize_t n, double divisor, double* total, double* slope)
    void hf_sum_single_f32(
        const int32_t* leaf, const float* margin, const float* weights, ptrdiff_t n_trees,
        ptrdiff_t n_leaves, ptrdiff_t n, double divisor, float* y)
    void hf_sum_single_f64(
        const int32_t* leaf, const double* margin, const double* weights, ptrdiff_t n_trees,
        ptrdiff_t n_leaves, ptrdiff_t n, double divisor, double* y)

cdef enum:
    COLUMNS = 256         # of a tile that one thread transposes, where several do
    SAMPLES = 64          # of a tile of the plain loop: their input rows stay in L1 or L2
    TREES = 16            # of that tile: one cache line of float32 results a sample
    PAIRS = 1 << 17       # (sample, tree) pairs routed before their leaves are summed: L2 holds them
    SMALL = 1 << 14       # (sample, tree) pairs below which a second thread does not pay
    STRETCH = 1024        # samples whose routes through sixteen trees are transposed together: L2 holds them
    MAX_SUMS = 1 << 13    # of a tree, if those of sixteen trees are to stay in L2
    BLOCK = 256           # samples of a vector block at most: a tree is read once for each block
    LANES_BLOCK = 1024    # the same where trees are the lanes
    TILE_BYTES = 1 << 19  # of a tile, above which a gather is faster than single loads
    BLOCK_BYTES = 1 << 20  # of the input of a block at most, if 64 samples fit: L2 holds it


cdef int _threads(Py_ssize_t pairs) noexcept nogil:
    return 1 if pairs < SMALL else hf_threads()


cdef Py_ssize_t _samples_each(Py_ssize_t n_samples, int threads, Py_ssize_t least) noexcept nogil:
    # Samples of one parallel step, a multiple of `least`: few steps, but several for each thread.
    return max(<Py_ssize_t> 1, min(<Py_ssize_t> 32, n_samples // (8 * threads * least))) * least


# ------------------------------------------------------------------------------------------ routing

cdef enum Way:
    PLAIN                 # plain.h
    LANES                 # lanes.h: trees in the lanes of a vector
    FERNS                 # ferns.h: samples in the lanes
    TILES                 # vectors.h: tiles of samples, results transposed by route.h

# How a call is routed. A unit of work is some samples (at most `block`) and `tree_step` trees.
cdef struct Plan:
    Way way
    int path, depth, fern, threads
    Py_ssize_t n_samples, n_features, n_trees, n_vertices, itemsize, block, tree_step, workspace_bytes
    hf_watch* watch


# Workspace of a thread for one unit of TILES: its input feature-major, one packed tree, results of a group.
cdef struct Workspace:
    void* tiles
    int32_t* packed
    int32_t* leaf
    void* margin
    int32_t* vertex


cdef Py_ssize_t _align(Py_ssize_t n_bytes) noexcept nogil:
    return (n_bytes + 127) // 128 * 128


cdef Workspace _workspace(const Plan* plan, unsigned char* start) noexcept nogil:
    cdef Workspace workspace
    cdef Py_ssize_t block = plan.block
    workspace.tiles = start
    start += _align(block * plan.n_features * plan.itemsize)
    workspace.packed = <int32_t*> start
    start += _align(plan.n_vertices * 4)
    workspace.margin = start
    start += _align(HF_GROUP * block * plan.itemsize)
    workspace.leaf = <int32_t*> start
    start += _align(HF_GROUP * block * 4)
    workspace.vertex = <int32_t*> start
    return workspace


cdef Py_ssize_t _workspace_bytes(const Plan* plan) noexcept nogil:
    if plan.way == FERNS:
        return 128 + _align(plan.block * 8) + plan.block * plan.n_features * 4
    if plan.way == TILES:
        return (
            128 + _align(plan.block * plan.n_features * plan.itemsize) + _align(plan.n_vertices * 4)
            + _align(HF_GROUP * plan.block * plan.itemsize) + 2 * _align(HF_GROUP * plan.block * 4)
        )
    return 1


cdef Plan _plan(Py_ssize_t n, Py_ssize_t n_features, Py_ssize_t n_trees, Py_ssize_t n_vertices,
                Py_ssize_t itemsize, int depth, bint fern, hf_watch* watch) noexcept nogil:
    # The kernel, and the size of its blocks of samples.
    cdef Plan plan
    plan.watch = watch
    cdef Py_ssize_t block = max(<Py_ssize_t> 64, BLOCK_BYTES // (n_features * itemsize))
    plan.path, plan.depth, plan.fern, plan.threads = simd_path(), depth, fern, _threads(n * n_trees)
    plan.n_samples, plan.n_features, plan.n_trees = n, n_features, n_trees
    plan.n_vertices, plan.itemsize = n_vertices, itemsize
    plan.tree_step = n_trees
    # The columns of a tile are read from L2, if they fit; else trees are the lanes, and the row of a sample
    # is in L1.
    cdef bint wide = n < HF_TILE or HF_TILE * n_features * itemsize > TILE_BYTES
    if wide and not fern and hf_has_lanes(plan.path, <int> itemsize, depth):
        plan.way, plan.block = LANES, min(block, <Py_ssize_t> LANES_BLOCK)
    elif n < 8 or n_features > 8 * n_trees * depth or n_features > 1 << 20:
        # Transposing an element of the input costs about as much as a level of a pair; feature numbers are
        # multiplied by the width of the tile in 32 bits.
        plan.way, plan.block = PLAIN, SAMPLES
    elif fern and hf_has_ferns(plan.path, <int> itemsize, depth):
        plan.way, plan.block = FERNS, min(block // 2, <Py_ssize_t> BLOCK)
    elif hf_has_route(plan.path):
        plan.way, plan.block = TILES, min(block, <Py_ssize_t> BLOCK)
    else:
        plan.way, plan.block = PLAIN, SAMPLES
    _fit_block(&plan, plan.block)
    return plan


cdef void _fit_block(Plan* plan, Py_ssize_t block) noexcept nogil:
    block = max(<Py_ssize_t> 1, min(block, plan.n_samples))
    if plan.way == FERNS or plan.way == TILES:
        block = (block + HF_TILE - 1) // HF_TILE * HF_TILE
    plan.block = block
    plan.workspace_bytes = _workspace_bytes(plan)


cdef void _share_trees(Plan* plan) noexcept nogil:
    # Threads share blocks of samples and, where these are few, groups of trees too.
    cdef Py_ssize_t blocks = (plan.n_samples + plan.block - 1) // plan.block
    if plan.way == PLAIN:
        plan.tree_step = TREES
    elif plan.threads > 1 and blocks < 4 * plan.threads:
        plan.tree_step = (plan.n_trees * blocks // (2 * plan.threads) + HF_GROUP) // HF_GROUP * HF_GROUP


cdef void _fill_tile(
    const Plan* plan, const real* x, Py_ssize_t n, Py_ssize_t first, Py_ssize_t last, real* tile
) noexcept nogil:
    cdef int count = <int> min(<Py_ssize_t> HF_TILE, n)
    if real is float:
        hf_fill_tile_f32(plan.path, x, plan.n_features, first, last, count, tile)
    else:
        hf_fill_tile_f64(plan.path, x, plan.n_features, first, last, count, tile)


cdef void _fill(const Plan* plan, const real* x, Py_ssize_t n, real* tiles) noexcept nogil:
    cdef Py_ssize_t s = 0
    while s < n:
        _fill_tile(
            plan, x + s * plan.n_features, n - s, 0, plan.n_features, tiles + s * plan.n_features
        )
        s += HF_TILE


cdef void _fill_together(const Plan* plan, const real[:, ::1] x, real* tiles) noexcept nogil:
    # The tiles of all samples; threads share the features of each.
    cdef Py_ssize_t parts = (plan.n_features + COLUMNS - 1) // COLUMNS, unit = 0, s = 0, f = 0
    hf_share(plan.watch, (plan.n_samples + HF_TILE - 1) // HF_TILE * parts)
    with parallel(num_threads=plan.threads):
        unit = hf_take(plan.watch)
        while unit >= 0:
            s = unit // parts * HF_TILE
            f = unit % parts * COLUMNS
            _fill_tile(
                plan, &x[s, 0], plan.n_samples - s, f, min(f + COLUMNS, plan.n_features),
                tiles + s * plan.n_features,
            )
            unit = hf_take(plan.watch)


cdef void _route_tree(
    const Plan* plan, Py_ssize_t n, const real* thresholds, const int32_t* features, Workspace workspace,
    Py_ssize_t at,
) noexcept nogil:
    # Routes n samples of a filled block through one tree; results begin at `at`.
    cdef hf_tree tree
    cdef Py_ssize_t s = 0
    # Packing reads each vertex of the tree; it does not pay for few samples in a deep tree.
    cdef int32_t* packed = workspace.packed if not plan.fern and plan.n_vertices <= 32 * n else NULL
    if real is float:
        hf_prepare_f32(&tree, <int> plan.n_vertices, plan.depth, thresholds, features, packed)
    else:
        hf_prepare_f64(&tree, <int> plan.n_vertices, plan.depth, thresholds, features, packed)
    while s < n:
        if real is float:
            hf_route_f32(
                &tree, plan.path, plan.fern, <float*> workspace.tiles + s * plan.n_features,
                workspace.leaf + at + s, <float*> workspace.margin + at + s, workspace.vertex + at + s,
            )
        else:
            hf_route_f64(
                &tree, plan.path, plan.fern, <double*> workspace.tiles + s * plan.n_features,
                workspace.leaf + at + s, <double*> workspace.margin + at + s, workspace.vertex + at + s,
            )
        s += HF_TILE


cdef void _route_tiles(
    const Plan* plan, const real* x, Py_ssize_t n, const real* thresholds, const int32_t* features,
    Py_ssize_t first, Py_ssize_t last, Workspace workspace, real* tiles, int32_t* leaf, real* margin,
    int32_t* vertex,
) noexcept nogil:
    cdef Py_ssize_t j, at, block = plan.block, step = plan.n_trees
    cdef int64_t n_steps = 0
    cdef int count
    if tiles == NULL:
        _fill(plan, x, n, <real*> workspace.tiles)
    else:
        workspace.tiles = tiles
    while first < last:
        count = <int> min(<Py_ssize_t> HF_GROUP, last - first)
        if hf_stopped_after(plan.watch, &n_steps, n * count * plan.depth):
            return
        for j in range(count):
            # The next tree is prefetched where there are enough samples to read most of its lines.
            if not plan.fern and plan.n_vertices <= 8 * n and first + j + 1 < last:
                at = (first + j + 1) * plan.n_vertices
                hf_fetch(thresholds + at, plan.n_vertices * plan.itemsize)
                hf_fetch(features + at, plan.n_vertices * sizeof(int32_t))
            at = (first + j) * plan.n_vertices
            _route_tree(plan, n, thresholds + at, features + at, workspace, j * block)
        hf_store_words(plan.path, workspace.leaf, block, count, n, leaf + first, step)
        hf_store_words(plan.path, workspace.vertex, block, count, n, vertex + first, step)
        if real is float:
            hf_store_words(
                plan.path, <int32_t*> workspace.margin, block, count, n, <int32_t*> (margin + first), step
            )
        else:
            hf_store_doubles(<double*> workspace.margin, block, count, n, margin + first, step)
        first += HF_GROUP


cdef void _fern_tile(
    const Plan* plan, const float* tile, Py_ssize_t n, const float* thresholds, const int32_t* features,
    Py_ssize_t first, Py_ssize_t last, int32_t* leaf, float* margin, int32_t* vertex,
    const float* weights, double* total,
) noexcept nogil:
    # n samples of one tile; leaf or weights may be NULL.
    cdef Py_ssize_t at
    cdef bint store = leaf != NULL
    while first < last:
        at = first * plan.n_vertices
        hf_route_ferns(
            tile, n, thresholds + at, features + at, plan.depth,
            <int> min(<Py_ssize_t> HF_GROUP, last - first),
            leaf + first if store else NULL, margin + first if store else NULL,
            vertex + first if store else NULL, plan.n_trees,
            weights + (first << plan.depth) if weights != NULL else NULL, total,
        )
        first += HF_GROUP


cdef void _route_ferns(
    const Plan* plan, const float* x, Py_ssize_t n, const float* thresholds, const int32_t* features,
    Py_ssize_t first, Py_ssize_t last, unsigned char* scratch, float* tiles, int32_t* leaf, float* margin,
    int32_t* vertex, const float* weights, double divisor, float* y,
) noexcept nogil:
    # Writes routes unless leaf is NULL, and sums of leaves of one output unless weights is NULL. Where routes
    # are written, a tile passes through all ferns, as groups of results share cache lines of a row. Where
    # they are not, all tiles pass through a group, whose leaves are then read from L1 or L2.
    cdef double* total = <double*> scratch
    cdef Py_ssize_t s = 0, at, m, step = HF_GROUP if leaf == NULL else last - first
    cdef int64_t n_steps = 0
    if tiles == NULL:
        tiles = <float*> (scratch + _align(plan.block * 8))
        _fill(plan, x, n, tiles)
    if weights != NULL:
        memset(total, 0, plan.block * sizeof(double))
    m = first
    while m < last:
        s = 0
        while s < n:
            if hf_stopped_after(plan.watch, &n_steps, HF_TILE * step * plan.depth // 8):
                return
            at = s * plan.n_trees
            _fern_tile(
                plan, tiles + s * plan.n_features, min(<Py_ssize_t> HF_TILE, n - s), thresholds, features,
                m, min(m + step, last), leaf + at if leaf != NULL else NULL, margin + at, vertex + at,
                weights, total + s,
            )
            s += HF_TILE
        m += step
    if weights != NULL:
        for s in range(n):
            y[s] = <float> (total[s] / divisor)


cdef void _route(
    const Plan* plan, const real* x, Py_ssize_t n, const real* thresholds, const int32_t* features,
    Py_ssize_t first, Py_ssize_t last, unsigned char* scratch, real* tiles, int32_t* leaf, real* margin,
    int32_t* vertex,
) noexcept nogil:
    # Routes n samples, the first at x, through trees first to last - 1. The results of a sample are a row of
    # n_trees. Tiles are filled here where the caller has none (NULL).
    cdef Py_ssize_t m = first, at
    cdef int64_t n_steps = 0
    cdef int count
    scratch += 127 - (<size_t> scratch + 127) % 128
    if plan.way == TILES:
        _route_tiles(
            plan, x, n, thresholds, features, first, last, _workspace(plan, scratch), tiles, leaf, margin,
            vertex,
        )
        return
    if plan.way == FERNS:
        if real is float:
            _route_ferns(
                plan, x, n, thresholds, features, first, last, scratch, tiles, leaf, margin, vertex,
                NULL, 1, NULL,
            )
        return
    while m < last:
        count = <int> min(<Py_ssize_t> HF_WIDTH, last - m)
        if hf_stopped_after(plan.watch, &n_steps, n * count * plan.depth):
            return
        at = m * plan.n_vertices
        if real is float:
            if plan.way == LANES:
                hf_route_lanes(
                    x, plan.n_features, n, thresholds + at, features + at, <int> plan.n_vertices, plan.depth,
                    count, leaf + m, margin + m, vertex + m, plan.n_trees,
                )
            else:
                hf_route_plain_f32(
                    x, plan.n_features, n, thresholds + at, features + at, plan.n_vertices, plan.depth,
                    plan.fern, count, leaf + m, margin + m, vertex + m, plan.n_trees,
                )
        else:
            hf_route_plain_f64(
                x, plan.n_features, n, thresholds + at, features + at, plan.n_vertices, plan.depth,
                plan.fern, count, leaf + m, margin + m, vertex + m, plan.n_trees,
            )
        m += HF_WIDTH


cdef void _traverse_units(
    const Plan* plan, const real[:, ::1] x, const real[:, ::1] thresholds, const int32_t[:, ::1] features,
    unsigned char[:, ::1] scratch, real[::1] shared, int32_t[:, ::1] leaf, real[:, ::1] margin,
    int32_t[:, ::1] vertex,
) noexcept nogil:
    cdef real* tiles = NULL
    cdef Py_ssize_t parts = (plan.n_trees + plan.tree_step - 1) // plan.tree_step, unit = 0, first = 0, m = 0
    if shared is not None:
        tiles = &shared[0]
        tiles += (127 - (<size_t> tiles + 127) % 128) // sizeof(real)
        _fill_together(plan, x, tiles)
    hf_share(plan.watch, (plan.n_samples + plan.block - 1) // plan.block * parts)
    with parallel(num_threads=plan.threads):
        unit = hf_take(plan.watch)
        while unit >= 0:
            first = unit // parts * plan.block
            m = unit % parts * plan.tree_step
            _route(
                plan, &x[first, 0], min(plan.block, plan.n_samples - first), &thresholds[0, 0],
                &features[0, 0], m, min(m + plan.tree_step, plan.n_trees), &scratch[threadid(), 0],
                tiles + first * plan.n_features if tiles != NULL else NULL,
                &leaf[first, 0], &margin[first, 0], &vertex[first, 0],
            )
            unit = hf_take(plan.watch)


def _traverse(x, thresholds, features, int depth, bint fern, leaf, margin, vertex):
    cdef Plan plan
    cdef hf_watch watch
    if x.shape[0] == 0:
        return
    start_watch(&watch)
    plan = _plan(
        x.shape[0], x.shape[1], thresholds.shape[0], thresholds.shape[1], x.dtype.itemsize, depth, fern,
        &watch,
    )
    _share_trees(&plan)
    scratch = np.empty((plan.threads, plan.workspace_bytes), np.uint8)
    shared = None
    if plan.tree_step < plan.n_trees and (plan.way == FERNS or plan.way == TILES):
        # Threads share the trees of a block, whose input is transposed once for all of them. Tiles are whole
        # and begin at multiples of 128 bytes.
        n_tiles = (plan.n_samples + HF_TILE - 1) // HF_TILE
        shared = np.empty(n_tiles * HF_TILE * plan.n_features + 128 // plan.itemsize, x.dtype)
    if plan.itemsize == 4:
        _traverse_units[float](&plan, x, thresholds, features, scratch, shared, leaf, margin, vertex)
    else:
        _traverse_units[double](&plan, x, thresholds, features, scratch, shared, leaf, margin, vertex)
    raise_interrupt(&watch)


def tree_traverse(x, thresholds, features, leaf, margin, vertex):
    """p1 Alg. 3, HingeTreeTraversal."""
    depth = (thresholds.shape[1] + 1).bit_length() - 1
    _traverse(x, thresholds, features, depth, False, leaf, margin, vertex)


def fern_traverse(x, thresholds, features, leaf, margin, vertex):
    """p1 Alg. 3 with one decision per level."""
    _traverse(x, thresholds, features, thresholds.shape[1], True, leaf, margin, vertex)


# ---------------------------------------------------------------------------------------- outputs

cdef void _each_output(
    const int32_t[:, ::1] leaf, const real[:, ::1] margin, const real[:, :, ::1] weights, real[:, :, ::1] y,
    hf_watch* watch,
) noexcept nogil:
    cdef Py_ssize_t n_samples = leaf.shape[0], n_trees = leaf.shape[1], block = 0, n = 0, m = 0, k = 0
    cdef int threads = _threads(n_samples * n_trees)
    cdef Py_ssize_t step = _samples_each(n_samples, threads, 1)
    hf_share(watch, (n_samples + step - 1) // step)
    with parallel(num_threads=threads):
        block = hf_take(watch)
        while block >= 0:
            for n in range(block * step, min((block + 1) * step, n_samples)):
                for m in range(n_trees):
                    for k in range(weights.shape[2]):
                        y[n, m, k] = weights[m, leaf[n, m], k] * fabs(margin[n, m])
            block = hf_take(watch)


cdef void _sum_block(
    int path, Py_ssize_t n, const int32_t* leaf, const real* margin, const real[:, :, ::1] weights,
    double divisor, double* total, real* y,
) noexcept nogil:
    # Outputs of n samples, summed over the trees.
    cdef Py_ssize_t n_trees = weights.shape[0], n_leaves = weights.shape[1], s = 0
    cdef Py_ssize_t n_outputs = weights.shape[2]
    while s < n:
        if n_outputs == 1:
            if real is float:
                hf_sum_single_f32(
                    leaf + s * n_trees, margin + s * n_trees, &weights[0, 0, 0], n_trees, n_leaves,
                    min(<Py_ssize_t> HF_TOGETHER, n - s), divisor, y + s,
                )
            else:
                hf_sum_single_f64(
                    leaf + s * n_trees, margin + s * n_trees, &weights[0, 0, 0], n_trees, n_leaves,
                    min(<Py_ssize_t> HF_TOGETHER, n - s), divisor, y + s,
                )
            s += HF_TOGETHER
        else:
            if real is float:
                hf_sum_f32(
                    path, leaf + s * n_trees, margin + s * n_trees, &weights[0, 0, 0], n_trees, n_leaves,
                    n_outputs, divisor, total, y + s * n_outputs,
                )
            else:
                hf_sum_f64(
                    path, leaf + s * n_trees, margin + s * n_trees, &weights[0, 0, 0], n_trees, n_leaves,
                    n_outputs, divisor, total, y + s * n_outputs,
                )
            s += 1


cdef void _sum_outputs(
    const int32_t[:, ::1] leaf, const real[:, ::1] margin, const real[:, :, ::1] weights, double divisor,
    int path, double[:, ::1] total, real[:, ::1] y, hf_watch* watch,
) noexcept nogil:
    cdef Py_ssize_t n_samples = leaf.shape[0], block = 0, n = 0
    cdef int threads = <int> total.shape[0]
    cdef Py_ssize_t step = _samples_each(n_samples, threads, HF_TOGETHER)
    hf_share(watch, (n_samples + step - 1) // step)
    with parallel(num_threads=threads):
        block = hf_take(watch)
        while block >= 0:
            n = block * step
            _sum_block(
                path, min(step, n_samples - n), &leaf[n, 0], &margin[n, 0], weights, divisor,
                &total[threadid(), 0], &y[n, 0],
            )
            block = hf_take(watch)


def leaf_outputs(leaf, margin, weights, double divisor, y):
    """p1 eq 10 for known routes."""
    cdef hf_watch watch
    if leaf.shape[0] == 0:
        return
    start_watch(&watch)
    if y.ndim == 3:
        if y.dtype.itemsize == 4:
            _each_output[float](leaf, margin, weights, y, &watch)
        else:
            _each_output[double](leaf, margin, weights, y, &watch)
        raise_interrupt(&watch)
        return
    # One line of partial sums a thread, padded so that threads do not share cache lines.
    total = np.empty((_threads(leaf.size), weights.shape[2] + 8))
    if y.dtype.itemsize == 4:
        _sum_outputs[float](leaf, margin, weights, divisor, simd_path(), total, y, &watch)
    else:
        _sum_outputs[double](leaf, margin, weights, divisor, simd_path(), total, y, &watch)
    raise_interrupt(&watch)


cdef void _forward_block(
    const Plan* plan, const real* x, Py_ssize_t n, const real* thresholds, const int32_t* features,
    const real[:, :, ::1] weights, double divisor, unsigned char* scratch, double* total, bint keep,
    int32_t* leaf, real* margin, int32_t* vertex, real* y,
) noexcept nogil:
    if real is float:
        if plan.way == FERNS and weights.shape[2] == 1:
            scratch += 127 - (<size_t> scratch + 127) % 128
            _route_ferns(
                plan, x, n, thresholds, features, 0, plan.n_trees, scratch, NULL,
                leaf if keep else NULL, margin, vertex, &weights[0, 0, 0], divisor, y,
            )
            return
    _route(plan, x, n, thresholds, features, 0, plan.n_trees, scratch, NULL, leaf, margin, vertex)
    # A route that was left unfinished is not to be followed.
    if hf_has_stopped(plan.watch):
        return
    _sum_block(plan.path, n, leaf, margin, weights, divisor, total, y)


cdef void _forward_blocks(
    const Plan* plan, const real[:, ::1] x, const real[:, ::1] thresholds, const int32_t[:, ::1] features,
    const real[:, :, ::1] weights, double divisor, unsigned char[:, ::1] scratch, double[:, ::1] total,
    bint keep, int32_t[:, ::1] leaf, real[:, ::1] margin, int32_t[:, ::1] vertex, real[:, ::1] y,
) noexcept nogil:
    # The route of a block is read while it is in cache. Routes that are not returned go to rows of the
    # thread.
    cdef Py_ssize_t block = 0, first = 0, row = 0
    hf_share(plan.watch, (plan.n_samples + plan.block - 1) // plan.block)
    with parallel(num_threads=plan.threads):
        block = hf_take(plan.watch)
        while block >= 0:
            first = block * plan.block
            row = first if keep else threadid() * plan.block
            _forward_block(
                plan, &x[first, 0], min(plan.block, plan.n_samples - first), &thresholds[0, 0],
                &features[0, 0], weights, divisor, &scratch[threadid(), 0], &total[threadid(), 0], keep,
                &leaf[row, 0], &margin[row, 0], &vertex[row, 0], &y[first, 0],
            )
            block = hf_take(plan.watch)


def _forward(x, thresholds, features, int depth, bint fern, weights, double divisor, y, route):
    cdef Plan plan
    cdef Py_ssize_t n = x.shape[0], n_trees = thresholds.shape[0], chunk = max(1, PAIRS // n_trees), block
    cdef bint keep = route is not None
    cdef hf_watch watch
    if n == 0:
        return
    start_watch(&watch)
    plan = _plan(n, x.shape[1], n_trees, thresholds.shape[1], x.dtype.itemsize, depth, fern, &watch)
    block = chunk
    if plan.threads > 1:
        block = min(chunk, max(<Py_ssize_t> HF_TILE, n // (4 * plan.threads)))
    if plan.way == FERNS or plan.way == TILES:
        # Their input is transposed: each thread has a copy of a block of it.
        block = min(block, plan.block)
    if block > HF_TILE:
        block = block // HF_TILE * HF_TILE
    if y.ndim == 2 and n > block * (plan.threads - 1):
        _fit_block(&plan, block)
        rows = n if keep else plan.threads * plan.block
        leaf, margin, vertex = route if keep else _empty_route(rows, n_trees, x.dtype)
        scratch = np.empty((plan.threads, plan.workspace_bytes), np.uint8)
        # A line of partial sums for each thread, padded so that threads do not share cache lines.
        total = np.empty((plan.threads, weights.shape[2] + 8))
        if plan.itemsize == 4:
            _forward_blocks[float](
                &plan, x, thresholds, features, weights, divisor, scratch, total, keep, leaf, margin, vertex,
                y,
            )
        else:
            _forward_blocks[double](
                &plan, x, thresholds, features, weights, divisor, scratch, total, keep, leaf, margin, vertex,
                y,
            )
        raise_interrupt(&watch)
        return
    # Trees are kept apart, or threads share the trees of few samples; extra memory is constant.
    whole = route
    if not keep:
        whole = _empty_route(min(chunk, n), n_trees, x.dtype)
    for start in range(0, n, chunk):
        part = slice(start, start + chunk)
        leaf, margin, vertex = (a[part] if keep else a[: min(chunk, n - start)] for a in whole)
        _traverse(x[part], thresholds, features, depth, fern, leaf, margin, vertex)
        leaf_outputs(leaf, margin, weights, divisor, y[part])
        # The watches of these calls may each be too short for a look.
        if hf_stopped(&watch):
            break
    raise_interrupt(&watch)


def _empty_route(Py_ssize_t n, Py_ssize_t n_trees, dtype):
    return tuple(np.empty((n, n_trees), kind) for kind in (np.int32, dtype, np.int32))


def tree_forward(x, thresholds, features, weights, divisor, y, route=None):
    """p1 Alg. 3, then eq 10; leaf, margin and vertex as well if there is a route."""
    depth = (thresholds.shape[1] + 1).bit_length() - 1
    _forward(x, thresholds, features, depth, False, weights, divisor, y, route)


def fern_forward(x, thresholds, features, weights, divisor, y, route=None):
    """p1 Alg. 3 for ferns, then eq 10."""
    _forward(x, thresholds, features, thresholds.shape[1], True, weights, divisor, y, route)


# --------------------------------------------------------------------------------------- gradients

cdef void _visit_tree(
    const real* grad, Py_ssize_t step, Py_ssize_t n_samples, const int32_t* leaf, const int32_t* next_leaf,
    const hf_next* next, const real* margin, const real* weights, Py_ssize_t n_outputs, double divisor,
    int path, double* total, real* slope,
) noexcept nogil:
    # Slopes of the samples in one tree; their products are added to the sums of its leaves.
    cdef hf_visits visits
    visits.leaf, visits.next, visits.total = leaf, next_leaf, total
    visits.n_samples, visits.n_outputs, visits.step = n_samples, n_outputs, step
    visits.width = hf_sum_width(n_outputs)
    if real is float:
        hf_visits_f32(path, &visits, grad, margin, weights, next, divisor, slope)
    else:
        hf_visits_f64(path, &visits, grad, margin, weights, next, divisor, slope)


cdef void _load_group(
    const int32_t[:, ::1] leaf, const real[:, ::1] margin, const int32_t[:, ::1] vertex,
    Py_ssize_t start, Py_ssize_t n, Py_ssize_t first, int count, int path, int32_t* words, real* margins,
) noexcept nogil:
    # Routes of some samples and trees, transposed: leaves (HF_GROUP, n), vertices (HF_GROUP, n), margins.
    cdef Py_ssize_t n_trees = leaf.shape[1]
    hf_load_words(path, &leaf[start, first], n_trees, count, n, words, n)
    hf_load_words(path, &vertex[start, first], n_trees, count, n, words + HF_GROUP * n, n)
    if real is float:
        hf_load_words(path, <const int32_t*> &margin[start, first], n_trees, count, n, <int32_t*> margins, n)
    else:
        hf_load_doubles(&margin[start, first], n_trees, count, n, margins, n)


cdef void _add_slopes(const int32_t* vertex, const real* slope, Py_ssize_t n, double* total) noexcept nogil:
    # p1 eq 11 by the thresholds: r falls as t rises.
    cdef Py_ssize_t i
    for i in range(n):
        total[vertex[i]] -= slope[i]


cdef void _take_row(double* total, Py_ssize_t n_outputs, double divisor, real* row) noexcept nogil:
    # Writes the sums of a row and sets them to 0 for the next tree. A division costs more than everything
    # else here, and most divisors are 1.
    cdef Py_ssize_t k
    if divisor == 1:
        for k in range(n_outputs):
            row[k] = <real> total[k]
            total[k] = 0
    else:
        for k in range(n_outputs):
            row[k] = <real> (total[k] / divisor)
            total[k] = 0


cdef void _take_all(
    double* total, const int32_t* leaf, Py_ssize_t n_samples, Py_ssize_t n_leaves, Py_ssize_t n_outputs,
    double divisor, unsigned char* seen, real* grad,
) noexcept nogil:
    # Dense sums of a tree. With few samples most leaves have none: only those reached are read.
    cdef Py_ssize_t width = hf_sum_width(n_outputs), i, at
    if n_leaves <= 2 * n_samples:
        for at in range(n_leaves):
            _take_row(total + at * width, n_outputs, divisor, grad + at * n_outputs)
        return
    memset(grad, 0, n_leaves * n_outputs * sizeof(real))
    for i in range(n_samples):
        seen[leaf[i]] = 1
    for i in range(n_samples):
        at = leaf[i]
        if seen[at]:
            seen[at] = 0
            _take_row(total + at * width, n_outputs, divisor, grad + at * n_outputs)


cdef void _take_some(
    double* total, const int64_t* rows, Py_ssize_t n_rows, Py_ssize_t first, Py_ssize_t n_outputs,
    double divisor, real* grad,
) noexcept nogil:
    # Writes the sums at rows - first.
    cdef Py_ssize_t width = hf_sum_width(n_outputs), i
    for i in range(n_rows):
        _take_row(total + (rows[i] - first) * width, n_outputs, divisor, grad + i * n_outputs)


cdef void _group_gradients(
    const real[:, :, ::1] grad_y, const int32_t[:, ::1] leaf, const real[:, ::1] margin,
    const int32_t[:, ::1] vertex, const int32_t[:, ::1] features, const real[:, :, ::1] weights,
    double divisor, int path, Py_ssize_t first, Py_ssize_t count, Py_ssize_t stretch, Py_ssize_t sets,
    double* totals, unsigned char* seen, int32_t* words, real* margins,
    const int64_t[::1] vertex_start, const int64_t[::1] vertex_rows,
    const int64_t[::1] leaf_start, const int64_t[::1] leaf_rows,
    real* grad_thresholds, real* grad_weights, real[:, ::1] slope, hf_watch* watch,
) noexcept nogil:
    # Parameter gradients of some trees, and their slopes. Without row lists gradients are dense; grad_y has
    # one tree when the trees share it (aggregated), all of them otherwise. Sums are 0 between trees: with one
    # stretch a tree is finished at once, and the next uses the same sums; with several, each tree has its own
    # (sets).
    cdef Py_ssize_t n_samples = leaf.shape[0], n_leaves = weights.shape[1], n_vertices = features.shape[1]
    cdef Py_ssize_t n_outputs = weights.shape[2], size = n_leaves * hf_sum_width(n_outputs)
    cdef Py_ssize_t own = grad_y.shape[1] > 1, step = grad_y.shape[1] * n_outputs, start = 0, n, j, m, a, b
    cdef double* total
    cdef double* by_vertex
    cdef const real* grad
    cdef int64_t n_steps = 0
    while start < n_samples:
        n = min(stretch, n_samples - start)
        _load_group(leaf, margin, vertex, start, n, first, <int> count, path, words, margins)
        for j in range(count):
            if hf_stopped_after(watch, &n_steps, n * (n_outputs // 4 + 1)):
                return
            m = first + j
            total = totals + (j if sets > 1 else 0) * (size + n_vertices)
            by_vertex = total + size
            grad = &grad_y[start, m if own else 0, 0]
            if n_outputs > 1:
                _visit_tree(
                    grad, step, n, words + j * n, NULL, NULL, margins + j * n, &weights[m, 0, 0], n_outputs,
                    divisor, path, total, &slope[m, start],
                )
            elif real is float:
                hf_single_f32(
                    path, words + j * n, grad, step, margins + j * n, &weights[m, 0, 0], n, divisor, total,
                    &slope[m, start],
                )
            else:
                hf_single_f64(
                    path, words + j * n, grad, step, margins + j * n, &weights[m, 0, 0], n, divisor, total,
                    &slope[m, start],
                )
            _add_slopes(words + (HF_GROUP + j) * n, &slope[m, start], n, by_vertex)
            if start + n < n_samples:
                continue
            if leaf_rows is None:
                # Several stretches have more samples than leaves: `words` need not hold them all.
                _take_all(
                    total, words + j * n, n_samples, n_leaves, n_outputs, divisor, seen,
                    grad_weights + m * n_leaves * n_outputs,
                )
                _take_all(
                    by_vertex, words + (HF_GROUP + j) * n, n_samples, n_vertices, 1, 1, seen,
                    grad_thresholds + m * n_vertices,
                )
            else:
                # Every tree has a row of each: there are samples.
                a, b = vertex_start[m], leaf_start[m]
                _take_some(
                    total, &leaf_rows[b], leaf_start[m + 1] - b, m * n_leaves, n_outputs, divisor,
                    grad_weights + b * n_outputs,
                )
                _take_some(
                    by_vertex, &vertex_rows[a], vertex_start[m + 1] - a, m * n_vertices, 1, 1,
                    grad_thresholds + a,
                )
        start += n


cdef void _input_tile(
    const real[:, ::1] slope, const int32_t[:, ::1] vertex, const int32_t[:, ::1] features,
    real[:, ::1] grad_x, Py_ssize_t first, Py_ssize_t last,
) noexcept nogil:
    cdef Py_ssize_t n_trees = slope.shape[0], n, m
    memset(&grad_x[first, 0], 0, (last - first) * grad_x.shape[1] * sizeof(real))
    for m in range(n_trees):
        if m + HF_AHEAD < n_trees:
            hf_fetch(&slope[m + HF_AHEAD, first], (last - first) * sizeof(real))
        for n in range(first, last):
            grad_x[n, features[m, vertex[n, m]]] += slope[m, n]


cdef void _input_gradients(
    const real[:, ::1] slope, const int32_t[:, ::1] vertex, const int32_t[:, ::1] features,
    real[:, ::1] grad_x, int threads, hf_watch* watch,
) noexcept nogil:
    # A sample is computed by one thread, which adds the trees in their order. A tile of samples shares the
    # cache lines of slope, whose first axis is trees.
    cdef Py_ssize_t n_samples = slope.shape[1], step = _samples_each(n_samples, threads, TREES)
    cdef Py_ssize_t block = 0, first = 0, last = 0
    hf_share(watch, (n_samples + step - 1) // step)
    with parallel(num_threads=threads):
        block = hf_take(watch)
        while block >= 0:
            first = block * step
            last = min(first + step, n_samples)
            while first < last:
                _input_tile(slope, vertex, features, grad_x, first, min(first + TREES, n_samples))
                first = first + TREES
            block = hf_take(watch)


cdef void _gradients(
    const real[:, :, ::1] grad_y, const int32_t[:, ::1] leaf, const real[:, ::1] margin,
    const int32_t[:, ::1] vertex, const int32_t[:, ::1] features, const real[:, :, ::1] weights,
    double divisor, int path, Py_ssize_t group, Py_ssize_t stretch, Py_ssize_t sets, int threads,
    double[:, ::1] totals, unsigned char[:, ::1] seen, int32_t[:, ::1] words, real[:, ::1] margins,
    const int64_t[::1] vertex_start, const int64_t[::1] vertex_rows,
    const int64_t[::1] leaf_start, const int64_t[::1] leaf_rows,
    real[:, ::1] grad_x, real[::1] grad_thresholds, real[::1] grad_weights, real[:, ::1] slope,
    hf_watch* watch,
) noexcept nogil:
    cdef Py_ssize_t n_trees = leaf.shape[1], i = 0
    hf_share(watch, (n_trees + group - 1) // group)
    with parallel(num_threads=<int> words.shape[0]):
        i = hf_take(watch)
        while i >= 0:
            _group_gradients(
                grad_y, leaf, margin, vertex, features, weights, divisor, path, i * group,
                min(group, n_trees - i * group), stretch, sets, &totals[threadid(), 0], &seen[threadid(), 0],
                &words[threadid(), 0], &margins[threadid(), 0], vertex_start, vertex_rows, leaf_start,
                leaf_rows, &grad_thresholds[0], &grad_weights[0], slope, watch,
            )
            i = hf_take(watch)
    _input_gradients(slope, vertex, features, grad_x, threads, watch)


def _backward(
    grad_y, leaf, margin, vertex, features, weights, double divisor, touched,
    grad_x, grad_thresholds, grad_weights,
):
    cdef Py_ssize_t n_trees = leaf.shape[1], group = HF_GROUP, n = leaf.shape[0], stretch, sets
    cdef Py_ssize_t n_leaves = weights.shape[1], n_outputs = weights.shape[2], n_vertices = features.shape[1]
    cdef Py_ssize_t n_sums = n_leaves * hf_sum_width(n_outputs) + n_vertices
    cdef int threads = _threads(leaf.size), workers
    cdef hf_watch watch
    # Whole groups are transposed fastest by far; with few trees, smaller ones share the work better.
    while group > 4 and n_trees < 3 * threads * group and threads > 1:
        group //= 2
    # A thread without a group needs no workspace for sums.
    workers = <int> min(<Py_ssize_t> threads, (n_trees + group - 1) // group)
    # Where samples are many, routes are transposed a stretch at a time, so that they stay in L2; but only if
    # the sums of sixteen trees, which are used again by the next stretch, stay in L2 too.
    stretch = max(<Py_ssize_t> STRETCH, n_leaves)
    if stretch >= n or n_sums > MAX_SUMS:
        stretch = n
    sets = HF_GROUP if stretch < n else 1
    dtype = margin.dtype
    grad_y = grad_y.reshape(n, -1, n_outputs)
    totals, seen = np.zeros((workers, sets * n_sums)), np.zeros((workers, n_leaves), np.uint8)
    words = np.empty((workers, 2 * HF_GROUP * stretch), np.int32)
    margins = np.empty((workers, HF_GROUP * stretch), dtype)
    vertex_start, vertex_rows, leaf_start, leaf_rows = touched
    grad_thresholds, grad_weights = grad_thresholds.reshape(-1), grad_weights.reshape(-1)
    slope = np.empty((n_trees, n), dtype)
    start_watch(&watch)
    if dtype.itemsize == 4:
        _gradients[float](
            grad_y, leaf, margin, vertex, features, weights, divisor, simd_path(), group, stretch, sets,
            threads, totals, seen, words, margins, vertex_start, vertex_rows, leaf_start, leaf_rows, grad_x,
            grad_thresholds, grad_weights, slope, &watch,
        )
    else:
        _gradients[double](
            grad_y, leaf, margin, vertex, features, weights, divisor, simd_path(), group, stretch, sets,
            threads, totals, seen, words, margins, vertex_start, vertex_rows, leaf_start, leaf_rows, grad_x,
            grad_thresholds, grad_weights, slope, &watch,
        )
    raise_interrupt(&watch)


def backward(
    grad_y, leaf, margin, vertex, features, weights, divisor, grad_x, grad_thresholds, grad_weights
):
    """Dense gradients, p1 eq 11-12."""
    if leaf.shape[0] == 0:
        grad_thresholds[...] = 0
        grad_weights[...] = 0
        return
    _backward(
        grad_y, leaf, margin, vertex, features, weights, divisor, (None,) * 4,
        grad_x, grad_thresholds, grad_weights,
    )


def backward_sparse(
    grad_y, leaf, margin, vertex, features, weights, divisor,
    vertex_start, vertex_rows, leaf_start, leaf_rows, grad_x, grad_thresholds, grad_weights,
):
    """The same gradients at the touched rows only; rows of tree m are at start[m]:start[m + 1]."""
    if leaf.shape[0] == 0:
        return
    _backward(
        grad_y, leaf, margin, vertex, features, weights, divisor,
        (vertex_start, vertex_rows, leaf_start, leaf_rows), grad_x, grad_thresholds, grad_weights,
    )


# ------------------------------------------------------------------------------------ touched rows

cdef enum:
    STRIP = 256           # samples whose indices are transposed at a time
    BYTE_SLOTS = 2048     # slots up to which a byte marks each: L1 holds those of sixteen trees


cdef void _mark(
    const int32_t[:, ::1] index, Py_ssize_t first, Py_ssize_t count, int path, uint64_t* seen,
    Py_ssize_t n_words, int32_t* strip,
) noexcept nogil:
    # Sets a bit for each value in the column of a tree, for `count` trees at once.
    cdef Py_ssize_t n_samples = index.shape[0], s, n, i, j
    cdef int32_t value
    if n_words == 1:
        hf_mark_columns(path, &index[0, first], index.shape[1], n_samples, <int> count, seen)
        return
    memset(seen, 0, count * n_words * sizeof(uint64_t))
    for s in range((n_samples + STRIP - 1) // STRIP):
        n = min(<Py_ssize_t> STRIP, n_samples - s * STRIP)
        hf_load_words(path, &index[s * STRIP, first], index.shape[1], <int> count, n, strip, STRIP)
        for j in range(count):
            for i in range(n):
                value = strip[j * STRIP + i]
                seen[j * n_words + (value >> 6)] |= (<uint64_t> 1) << (value & 63)


cdef int64_t _list_marks(
    const uint64_t* seen, Py_ssize_t n_words, int64_t offset, int64_t* rows
) noexcept nogil:
    # Writes offset + the number of each set bit, in ascending order; returns the number of them.
    cdef Py_ssize_t word, i = 0
    cdef uint64_t left
    for word in range(n_words):
        left = seen[word]
        while left:
            rows[i] = offset + 64 * word + hf_lowest_bit(left)
            left &= left - 1
            i += 1
    return i


cdef void _touched_group(
    const int32_t[:, ::1] index, Py_ssize_t n_slots, Py_ssize_t first, int path, unsigned char* scratch,
    int64_t[::1] start, int64_t[::1] rows,
) noexcept nogil:
    # The rows of tree m are written at m * capacity.
    cdef Py_ssize_t n_words = (n_slots + 63) // 64, capacity = rows.shape[0] // index.shape[1], m
    cdef Py_ssize_t n_trees = min(<Py_ssize_t> HF_GROUP, index.shape[1] - first)
    cdef uint64_t* seen = <uint64_t*> scratch
    if 64 < n_slots <= BYTE_SLOTS:
        hf_mark_bytes(&index[0, first], index.shape[1], index.shape[0], <int> n_trees, n_slots, scratch)
        for m in range(n_trees):
            start[first + m + 1] = hf_list_bytes(
                scratch + m * n_slots, n_slots, (first + m) * n_slots, capacity, &rows[(first + m) * capacity]
            )
        return
    _mark(index, first, n_trees, path, seen, n_words, <int32_t*> (seen + HF_GROUP * n_words))
    for m in range(first, first + n_trees):
        start[m + 1] = _list_marks(seen + (m - first) * n_words, n_words, m * n_slots, &rows[m * capacity])


cdef void _touched(
    const int32_t[:, ::1] index, Py_ssize_t n_slots, int path, unsigned char[:, ::1] scratch,
    int64_t[::1] start, int64_t[::1] rows, hf_watch* watch,
) noexcept nogil:
    cdef Py_ssize_t n_trees = index.shape[1], capacity = rows.shape[0] // n_trees, group = 0, m
    hf_share(watch, (n_trees + HF_GROUP - 1) // HF_GROUP)
    with parallel(num_threads=<int> scratch.shape[0]):
        group = hf_take(watch)
        while group >= 0:
            _touched_group(index, n_slots, group * HF_GROUP, path, &scratch[threadid(), 0], start, rows)
            group = hf_take(watch)
    if hf_has_stopped(watch):
        return
    start[0] = 0
    for m in range(n_trees):
        memmove(&rows[start[m]], &rows[m * capacity], start[m + 1] * sizeof(int64_t))
        start[m + 1] += start[m]


def touched(index, n_slots, start, rows):
    """Distinct values of each index[:, m], as rows m * n_slots + value, at start[m]:start[m + 1]."""
    cdef hf_watch watch
    if index.shape[0] == 0:
        start[...] = 0
        return
    # For each thread: a bit for each slot of the trees of a group, and a strip of their indices; or a byte a
    # slot.
    n_bytes = HF_GROUP * max((n_slots + 63) // 64 * 8 + STRIP * 4, min(n_slots, BYTE_SLOTS))
    scratch = np.empty((_threads(index.size), n_bytes), np.uint8)
    start_watch(&watch)
    _touched(index, n_slots, simd_path(), scratch, start, rows, &watch)
    raise_interrupt(&watch)


cdef void _count_tree(const int32_t[:, ::1] leaf, Py_ssize_t m, int64_t[:, ::1] counts) noexcept nogil:
    cdef Py_ssize_t n
    for n in range(leaf.shape[0]):
        counts[m, leaf[n, m]] += 1


cdef void _count(const int32_t[:, ::1] leaf, int64_t[:, ::1] counts, hf_watch* watch) noexcept nogil:
    cdef Py_ssize_t m = 0
    hf_share(watch, leaf.shape[1])
    with parallel(num_threads=_threads(leaf.shape[0] * leaf.shape[1])):
        m = hf_take(watch)
        while m >= 0:
            _count_tree(leaf, m, counts)
            m = hf_take(watch)


def leaf_counts(leaf, counts):
    """Samples in each leaf of each tree."""
    cdef hf_watch watch
    counts[...] = 0
    start_watch(&watch)
    _count(leaf, counts, &watch)
    raise_interrupt(&watch)


# ---------------------------------------------------------------------------------- steps of training

cdef enum:
    EAGER = 1023          # vertices of a tree that move at every step: training.EAGER
    EAGER_LEVELS = 10


cdef void _catch_up_tree(
    const int32_t[:, ::1] leaf, Py_ssize_t m, real[:, :, ::1] weights, real[:, :, ::1] w_m,
    real[:, :, ::1] w_v, int64_t[:, ::1] last, int64_t reach, const hf_adam* a, int path,
) noexcept nogil:
    # A leaf that several samples reach is up to date after the first.
    cdef Py_ssize_t n, n_samples = leaf.shape[0], width = weights.shape[2] * sizeof(real)
    cdef int32_t slot
    for n in range(n_samples):
        if n + 2 * HF_AHEAD < n_samples:
            hf_fetch(&last[m, leaf[n + 2 * HF_AHEAD, m]], sizeof(int64_t))
        if n + HF_AHEAD < n_samples:
            slot = leaf[n + HF_AHEAD, m]
            if last[m, slot] < reach:
                hf_fetch(&weights[m, slot, 0], width)
                hf_fetch(&w_m[m, slot, 0], width)
                hf_fetch(&w_v[m, slot, 0], width)
        slot = leaf[n, m]
        if last[m, slot] < reach:
            adam_pass(
                path, &weights[m, slot, 0], &w_m[m, slot, 0], &w_v[m, slot, 0], weights.shape[2],
                last[m, slot], reach, a,
            )
            last[m, slot] = reach


cdef void _catch_up_leaves(
    const int32_t[:, ::1] leaf, real[:, :, ::1] weights, real[:, :, ::1] w_m, real[:, :, ::1] w_v,
    int64_t[:, ::1] last, int64_t reach, const hf_adam* a, int path,
) noexcept nogil:
    cdef Py_ssize_t m
    for m in prange(
        leaf.shape[1], schedule="dynamic", chunksize=HF_GROUP,
        num_threads=_threads(leaf.shape[0] * leaf.shape[1]),
    ):
        _catch_up_tree(leaf, m, weights, w_m, w_v, last, reach, a, path)


cdef void _descend_tree(
    const real[:, ::1] x, real[:, ::1] thresholds, const int32_t[:, ::1] features, int depth, Py_ssize_t m,
    real[:, ::1] t_m, real[:, ::1] t_v, int64_t[:, ::1] last, int64_t reach, const hf_adam* a, int path,
    int32_t[:, ::1] leaf, real[:, ::1] margin, int32_t[:, ::1] vertex,
) noexcept nogil:
    # From level EAGER_LEVELS on: a vertex is brought up to date when a sample reaches it. Level by level, so
    # that what a sample reads next is prefetched while the others are processed.
    cdef Py_ssize_t n, n_samples = x.shape[0]
    cdef int level, right
    cdef int32_t at, first
    cdef real r
    for level in range(EAGER_LEVELS, depth):
        first = <int32_t> ((1u << level) - 1)
        for n in range(n_samples):
            at = first + leaf[n, m]
            # Without a first moment a vertex does not move, however many steps it has missed.
            if t_m[m, at] != 0 and last[m, at] < reach:
                adam_pass(path, &thresholds[m, at], &t_m[m, at], &t_v[m, at], 1, last[m, at], reach, a)
                last[m, at] = reach
            r = x[n, features[m, at]] - thresholds[m, at]
            if fabs(r) < fabs(margin[n, m]):
                margin[n, m] = r
                vertex[n, m] = at
            right = r > 0
            leaf[n, m] = 2 * leaf[n, m] + right
            at = 2 * at + right + 1
            if level + 1 < depth:
                hf_fetch(&last[m, at], sizeof(int64_t))
                hf_fetch(&features[m, at], sizeof(int32_t))
                hf_fetch(&thresholds[m, at], sizeof(real))
                hf_fetch(&t_m[m, at], sizeof(real))
                hf_fetch(&t_v[m, at], sizeof(real))


cdef void _descend(
    const real[:, ::1] x, real[:, ::1] thresholds, const int32_t[:, ::1] features, int depth,
    real[:, ::1] t_m, real[:, ::1] t_v, int64_t[:, ::1] last, int64_t reach, const hf_adam* a, int path,
    int32_t[:, ::1] leaf, real[:, ::1] margin, int32_t[:, ::1] vertex,
) noexcept nogil:
    cdef Py_ssize_t m
    for m in prange(
        thresholds.shape[0], schedule="dynamic", chunksize=HF_GROUP,
        num_threads=_threads(x.shape[0] * thresholds.shape[0]),
    ):
        _descend_tree(
            x, thresholds, features, depth, m, t_m, t_v, last, reach, a, path, leaf, margin, vertex
        )


def _adam_forward(
    x, thresholds, features, int depth, bint fern, weights, state, step, double lr, double beta1,
    double beta2, double eps, missed, divisor, leaf, margin, vertex, y,
):
    cdef hf_adam a = adam_settings(lr, beta1, beta2, eps, 0, 0)
    cdef int path = simd_path()
    cdef bint deep = not fern and depth > EAGER_LEVELS
    adam_tables(&a, missed)
    _traverse(x, thresholds, features, EAGER_LEVELS if deep else depth, fern, leaf, margin, vertex)
    if deep:
        if x.dtype.itemsize == 4:
            _descend[float](
                x, thresholds, features, depth, state.thresholds_m, state.thresholds_v,
                state.thresholds_last, step - 1, &a, path, leaf, margin, vertex,
            )
        else:
            _descend[double](
                x, thresholds, features, depth, state.thresholds_m, state.thresholds_v,
                state.thresholds_last, step - 1, &a, path, leaf, margin, vertex,
            )
    if x.dtype.itemsize == 4:
        _catch_up_leaves[float](
            leaf, weights, state.weights_m, state.weights_v, state.weights_last, step - 1, &a, path
        )
    else:
        _catch_up_leaves[double](
            leaf, weights, state.weights_m, state.weights_v, state.weights_last, step - 1, &a, path
        )
    leaf_outputs(leaf, margin, weights, divisor, y)


def tree_adam_forward(
    x, thresholds, features, weights, state, step, lr, beta1, beta2, eps, missed, divisor,
    leaf, margin, vertex, y,
):
    """What the batch reads to step - 1, then p1 Alg. 3 and eq 10."""
    depth = (thresholds.shape[1] + 1).bit_length() - 1
    _adam_forward(
        x, thresholds, features, depth, False, weights, state, step, lr, beta1, beta2, eps, missed, divisor,
        leaf, margin, vertex, y,
    )


def fern_adam_forward(
    x, thresholds, features, weights, state, step, lr, beta1, beta2, eps, missed, divisor,
    leaf, margin, vertex, y,
):
    """The same for ferns."""
    _adam_forward(
        x, thresholds, features, thresholds.shape[1], True, weights, state, step, lr, beta1, beta2, eps,
        missed, divisor, leaf, margin, vertex, y,
    )


cdef void _step_tree(
    const real[:, ::1] grad_y, const int32_t* leaf, const int32_t* next_leaf, const real* margin,
    const int32_t* vertex, Py_ssize_t m, real[:, ::1] thresholds, const int32_t[:, ::1] features,
    real[:, :, ::1] weights, real[:, ::1] t_m, real[:, ::1] t_v, int64_t[:, ::1] t_last,
    real[:, :, ::1] w_m, real[:, :, ::1] w_v, int64_t[:, ::1] w_last,
    int64_t step, const hf_adam* a, double divisor, int path, double* total, double* by_vertex,
    unsigned char* seen, real* eager, real* row, real* slope,
) noexcept nogil:
    cdef Py_ssize_t n, n_samples = grad_y.shape[0], n_outputs = weights.shape[2]
    cdef Py_ssize_t next_tree = min(m + 1, weights.shape[0] - 1), width = hf_sum_width(n_outputs)
    cdef real value
    cdef int32_t at
    cdef hf_next next
    next.weights = &weights[next_tree, 0, 0]
    next.m, next.v = &w_m[next_tree, 0, 0], &w_v[next_tree, 0, 0]
    _visit_tree(
        &grad_y[0, 0], n_outputs, n_samples, leaf, next_leaf, &next, margin, &weights[m, 0, 0], n_outputs,
        divisor, path, total, slope,
    )
    _add_slopes(vertex, slope, n_samples, by_vertex)
    for n in range(n_samples):
        seen[leaf[n]] = 1
    for n in range(n_samples):
        at = leaf[n]
        if not seen[at]:
            continue
        seen[at] = 0
        _take_row(total + at * width, n_outputs, divisor, row)
        adam_pass(
            path, &weights[m, at, 0], &w_m[m, at, 0], &w_v[m, at, 0], n_outputs, w_last[m, at], step - 1, a
        )
        adam_step(path, &weights[m, at, 0], row, &w_m[m, at, 0], &w_v[m, at, 0], n_outputs, a)
        w_last[m, at] = step
    # A vertex may occur more than once: its sum is used, and set to 0, the first time.
    for n in range(n_samples):
        at = vertex[n]
        if at < EAGER:
            if by_vertex[at] != 0:
                eager[at] = <real> by_vertex[at]
        elif t_last[m, at] < step:
            value = <real> by_vertex[at]
            adam_pass(path, &thresholds[m, at], &t_m[m, at], &t_v[m, at], 1, t_last[m, at], step - 1, a)
            adam_step(path, &thresholds[m, at], &value, &t_m[m, at], &t_v[m, at], 1, a)
            t_last[m, at] = step
        by_vertex[at] = 0
    adam_step(
        path, &thresholds[m, 0], eager, &t_m[m, 0], &t_v[m, 0],
        min(thresholds.shape[1], <Py_ssize_t> EAGER), a,
    )
    for n in range(n_samples):
        if vertex[n] < EAGER:
            eager[vertex[n]] = 0


cdef void _step_group(
    const real[:, ::1] grad_y, const int32_t[:, ::1] leaf, const real[:, ::1] margin,
    const int32_t[:, ::1] vertex, Py_ssize_t first, Py_ssize_t count, int32_t* words, real* margins,
    real[:, ::1] thresholds, const int32_t[:, ::1] features, real[:, :, ::1] weights,
    real[:, ::1] t_m, real[:, ::1] t_v, int64_t[:, ::1] t_last,
    real[:, :, ::1] w_m, real[:, :, ::1] w_v, int64_t[:, ::1] w_last,
    int64_t step, const hf_adam* a, double divisor, int path, double* total, double* by_vertex,
    unsigned char* seen, real* eager, real* row, real[:, ::1] slope,
) noexcept nogil:
    cdef Py_ssize_t n = leaf.shape[0], j
    cdef int32_t* leaves = words
    cdef int32_t* vertices = words + HF_GROUP * n
    _load_group(leaf, margin, vertex, 0, n, first, <int> count, path, words, margins)
    for j in range(count):
        _step_tree(
            grad_y, leaves + j * n, leaves + (j + 1) * n if j + 1 < count else NULL, margins + j * n,
            vertices + j * n, first + j, thresholds, features, weights, t_m, t_v, t_last, w_m, w_v, w_last,
            step, a, divisor, path, total, by_vertex, seen, eager, row, &slope[first + j, 0],
        )


cdef void _steps(
    const real[:, ::1] grad_y, const int32_t[:, ::1] leaf, const real[:, ::1] margin,
    const int32_t[:, ::1] vertex, real[:, ::1] thresholds, const int32_t[:, ::1] features,
    real[:, :, ::1] weights, real[:, ::1] t_m, real[:, ::1] t_v, int64_t[:, ::1] t_last,
    real[:, :, ::1] w_m, real[:, :, ::1] w_v, int64_t[:, ::1] w_last,
    int64_t step, const hf_adam* a, double divisor, int path,
    int32_t[:, ::1] words, real[:, ::1] margins, double[:, ::1] total, double[:, ::1] by_vertex,
    unsigned char[:, ::1] seen, real[:, ::1] eager, real[:, ::1] row,
    real[:, ::1] slope,
) noexcept nogil:
    cdef Py_ssize_t n_trees = leaf.shape[1], i
    for i in prange(
        (n_trees + HF_GROUP - 1) // HF_GROUP, schedule="dynamic", num_threads=<int> words.shape[0]
    ):
        _step_group(
            grad_y, leaf, margin, vertex, i * HF_GROUP, min(<Py_ssize_t> HF_GROUP, n_trees - i * HF_GROUP),
            &words[threadid(), 0], &margins[threadid(), 0], thresholds, features, weights,
            t_m, t_v, t_last, w_m, w_v, w_last, step, a, divisor, path, &total[threadid(), 0],
            &by_vertex[threadid(), 0], &seen[threadid(), 0], &eager[threadid(), 0], &row[threadid(), 0],
            slope,
        )


def adam_backward(
    grad_y, leaf, margin, vertex, thresholds, features, weights, state, step, double lr, double beta1,
    double beta2, double eps, missed, divisor, grad_x,
):
    """p1 eq 11-12 and a step of Adam, tree by tree."""
    cdef hf_adam a = adam_settings(lr, beta1, beta2, eps, bias(beta1, step), bias(beta2, step))
    cdef int threads = _threads(leaf.size)
    cdef hf_watch deaf
    # The step is in place: it is finished, whatever signals come.
    hf_start_watch(&deaf, False)
    adam_tables(&a, missed)
    dtype, n_trees, (n_leaves, n_outputs) = margin.dtype, leaf.shape[1], weights.shape[1:]
    if leaf.shape[0] == 0:
        # The thresholds of the first levels move all the same, as with a sample whose gradient is zero.
        grad_y, margin, grad_x = (np.zeros((1, k), dtype) for k in (n_outputs, n_trees, grad_x.shape[1]))
        leaf, vertex = np.zeros((2, 1, n_trees), np.int32)
    n = leaf.shape[0]
    words = np.empty((threads, 2 * HF_GROUP * n), np.int32)
    margins = np.empty((threads, HF_GROUP * n), dtype)
    total = np.zeros((threads, n_leaves * hf_sum_width(n_outputs)))
    by_vertex, seen = np.zeros((threads, thresholds.shape[1])), np.zeros((threads, n_leaves), np.uint8)
    eager = np.zeros((threads, min(thresholds.shape[1], EAGER)), dtype)
    row = np.empty((threads, n_outputs), dtype)
    slope = np.empty((n_trees, n), dtype)
    if dtype.itemsize == 4:
        _steps[float](
            grad_y, leaf, margin, vertex, thresholds, features, weights, state.thresholds_m,
            state.thresholds_v, state.thresholds_last, state.weights_m, state.weights_v,
            state.weights_last, step, &a, divisor, simd_path(), words, margins, total, by_vertex,
            seen, eager, row, slope,
        )
        _input_gradients[float](slope, vertex, features, grad_x, threads, &deaf)
    else:
        _steps[double](
            grad_y, leaf, margin, vertex, thresholds, features, weights, state.thresholds_m,
            state.thresholds_v, state.thresholds_last, state.weights_m, state.weights_v,
            state.weights_last, step, &a, divisor, simd_path(), words, margins, total, by_vertex,
            seen, eager, row, slope,
        )
        _input_gradients[double](slope, vertex, features, grad_x, threads, &deaf)
