"""Random hinge trees and ferns on the CPU (p1 = Lay et al., Random Hinge Forest).

Parallel loops run over whole owners of output: tiles of (samples, trees) when routing, samples for
`y` and `grad_x`, trees for the parameters. So no sum is shared between threads, nothing is atomic, and
the result has the same bits at every number of threads.
"""

import numpy as np

from cython.parallel cimport prange, threadid
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

cdef extern from "cpu_features.h" nogil:
    int omp_get_max_threads()

cdef extern from "kernels.h" nogil:
    int hf_popcount(uint64_t word)
    int hf_lowest_bit(uint64_t word)
    void hf_prefetch(const void* address)

ctypedef fused real:
    float
    double

cdef enum:
    SAMPLES = 64          # of a routing tile: their input rows stay in L1 or L2
    TREES = 16            # of a routing tile: one cache line of float32 results a sample
    PAIRS = 1 << 17       # (sample, tree) pairs routed before their leaves are summed: L2 holds them
    SMALL = 1 << 11       # (sample, tree) pairs below which a second thread does not pay
    AHEAD = 8             # trees ahead whose leaf row is prefetched


cdef int _threads(Py_ssize_t pairs) noexcept nogil:
    return 1 if pairs < SMALL else omp_get_max_threads()


# ---------------------------------------------------------------------------------------- routing

cdef void _route_tile(
    const real[:, ::1] x, const real[:, ::1] thresholds, const int32_t[:, ::1] features, int depth,
    bint fern, Py_ssize_t first_sample, Py_ssize_t first_tree,
    int32_t[:, ::1] leaf, real[:, ::1] margin, int32_t[:, ::1] vertex,
) noexcept nogil:
    # Level by level over the samples of the tile: their chains of dependent loads overlap.
    cdef int32_t at[SAMPLES]
    cdef int32_t bits[SAMPLES]
    cdef int32_t lowest_vertex[SAMPLES]
    cdef real lowest[SAMPLES]
    cdef Py_ssize_t n_samples = min(<Py_ssize_t> SAMPLES, x.shape[0] - first_sample)
    cdef Py_ssize_t i, m, last_tree = min(first_tree + TREES, thresholds.shape[0])
    cdef int32_t v
    cdef int level, right, closer
    cdef real r
    for m in range(first_tree, last_tree):
        for i in range(n_samples):
            at[i] = 0
            bits[i] = 0
            lowest_vertex[i] = 0
            lowest[i] = x[first_sample + i, features[m, 0]] - thresholds[m, 0]
        for level in range(depth):
            for i in range(n_samples):
                v = level if fern else at[i]
                r = x[first_sample + i, features[m, v]] - thresholds[m, v]
                # Strictly closer: on equal margins the vertex nearest the root stays.
                closer = fabs(r) < fabs(lowest[i])
                lowest[i] = r if closer else lowest[i]
                lowest_vertex[i] = v if closer else lowest_vertex[i]
                right = r > 0
                bits[i] = 2 * bits[i] + right
                at[i] = 2 * v + right + 1
        for i in range(n_samples):
            leaf[first_sample + i, m] = bits[i]
            margin[first_sample + i, m] = lowest[i]
            vertex[first_sample + i, m] = lowest_vertex[i]


cdef void _route(
    const real[:, ::1] x, const real[:, ::1] thresholds, const int32_t[:, ::1] features, int depth,
    bint fern, int32_t[:, ::1] leaf, real[:, ::1] margin, int32_t[:, ::1] vertex,
) noexcept nogil:
    cdef Py_ssize_t tree_tiles = (thresholds.shape[0] + TREES - 1) // TREES
    cdef Py_ssize_t n_tiles = (x.shape[0] + SAMPLES - 1) // SAMPLES * tree_tiles
    cdef Py_ssize_t tile
    for tile in prange(
        n_tiles, schedule="dynamic", num_threads=_threads(x.shape[0] * thresholds.shape[0])
    ):
        _route_tile(
            x, thresholds, features, depth, fern,
            tile // tree_tiles * SAMPLES, tile % tree_tiles * TREES, leaf, margin, vertex,
        )


def tree_traverse(x, thresholds, features, leaf, margin, vertex):
    """p1 Alg. 3, HingeTreeTraversal."""
    cdef int depth = (thresholds.shape[1] + 1).bit_length() - 1
    if x.dtype.itemsize == 4:
        _route[float](x, thresholds, features, depth, False, leaf, margin, vertex)
    else:
        _route[double](x, thresholds, features, depth, False, leaf, margin, vertex)


def fern_traverse(x, thresholds, features, leaf, margin, vertex):
    """p1 Alg. 3 with one decision per level."""
    cdef int depth = thresholds.shape[1]
    if x.dtype.itemsize == 4:
        _route[float](x, thresholds, features, depth, True, leaf, margin, vertex)
    else:
        _route[double](x, thresholds, features, depth, True, leaf, margin, vertex)


# ---------------------------------------------------------------------------------------- outputs

cdef void _each_output(
    const int32_t[:, ::1] leaf, const real[:, ::1] margin, const real[:, :, ::1] weights, real[:, :, ::1] y
) noexcept nogil:
    cdef Py_ssize_t n_samples = leaf.shape[0], n_trees = leaf.shape[1], n, m, k
    for n in prange(n_samples, schedule="static", num_threads=_threads(n_samples * n_trees)):
        for m in range(n_trees):
            for k in range(weights.shape[2]):
                y[n, m, k] = weights[m, leaf[n, m], k] * fabs(margin[n, m])


cdef void _sum_one(
    const int32_t[:, ::1] leaf, const real[:, ::1] margin, const real[:, :, ::1] weights, double divisor,
    Py_ssize_t n, double* total, real* y,
) noexcept nogil:
    cdef Py_ssize_t m, k, n_trees = leaf.shape[1], n_outputs = weights.shape[2]
    cdef const real* row
    cdef real r
    for k in range(n_outputs):
        total[k] = 0
    for m in range(n_trees):
        if m + AHEAD < n_trees:
            hf_prefetch(&weights[m + AHEAD, leaf[n, m + AHEAD], 0])
        row = &weights[m, leaf[n, m], 0]
        r = fabs(margin[n, m])
        for k in range(n_outputs):
            total[k] += <double> (row[k] * r)
    for k in range(n_outputs):
        y[k] = <real> (total[k] / divisor)


cdef void _sum_outputs(
    const int32_t[:, ::1] leaf, const real[:, ::1] margin, const real[:, :, ::1] weights, double divisor,
    double[:, ::1] total, real[:, ::1] y,
) noexcept nogil:
    cdef Py_ssize_t n_samples = leaf.shape[0], n
    for n in prange(n_samples, schedule="static", num_threads=<int> total.shape[0]):
        _sum_one(leaf, margin, weights, divisor, n, &total[threadid(), 0], &y[n, 0])


def leaf_outputs(leaf, margin, weights, double divisor, y):
    """p1 eq 10 for routes already known."""
    if leaf.shape[0] == 0:
        return
    if y.ndim == 3:
        if y.dtype.itemsize == 4:
            _each_output[float](leaf, margin, weights, y)
        else:
            _each_output[double](leaf, margin, weights, y)
        return
    # One line of partial sums a thread, padded so that threads do not share cache lines.
    total = np.empty((_threads(leaf.size), weights.shape[2] + 8))
    if y.dtype.itemsize == 4:
        _sum_outputs[float](leaf, margin, weights, divisor, total, y)
    else:
        _sum_outputs[double](leaf, margin, weights, divisor, total, y)


def _forward(traverse, x, thresholds, features, weights, divisor, y):
    # In chunks of samples, so that extra memory is constant and routes are still in cache when read.
    n_trees = thresholds.shape[0]
    chunk = min(max(1, PAIRS // n_trees), x.shape[0])
    leaf = np.empty((chunk, n_trees), np.int32)
    vertex = np.empty((chunk, n_trees), np.int32)
    margin = np.empty((chunk, n_trees), x.dtype)
    for start in range(0, x.shape[0], chunk or 1):
        part = slice(start, start + chunk)
        n = x[part].shape[0]
        traverse(x[part], thresholds, features, leaf[:n], margin[:n], vertex[:n])
        leaf_outputs(leaf[:n], margin[:n], weights, divisor, y[part])


def tree_forward(x, thresholds, features, weights, divisor, y):
    """p1 Alg. 3, then eq 10."""
    _forward(tree_traverse, x, thresholds, features, weights, divisor, y)


def fern_forward(x, thresholds, features, weights, divisor, y):
    """p1 Alg. 3 for ferns, then eq 10."""
    _forward(fern_traverse, x, thresholds, features, weights, divisor, y)


# --------------------------------------------------------------------------------------- gradients

cdef enum:
    LANES = 8             # independent partial sums of a dot product over the outputs


cdef double _dot(const real* w, const real* g, Py_ssize_t n_outputs) noexcept nogil:
    # Fixed lanes added in a fixed order: the compiler may vectorise, the bits do not move.
    cdef double lane[LANES]
    cdef Py_ssize_t k = 0, i
    for i in range(LANES):
        lane[i] = 0
    while k + LANES <= n_outputs:
        for i in range(LANES):
            lane[i] += <double> w[k + i] * <double> g[k + i]
        k += LANES
    for i in range(n_outputs - k):
        lane[i] += <double> w[k + i] * <double> g[k + i]
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]))


cdef void _branch_gradients(
    const real[:, :, ::1] grad_y, const int32_t[:, ::1] leaf, const real[:, ::1] margin,
    const int32_t[:, ::1] vertex, const int32_t[:, ::1] features, const real[:, :, ::1] weights,
    double divisor, real[:, ::1] slope, real[:, ::1] grad_x,
) noexcept nogil:
    # eq 11 for each pair: slope = sgn(r*) w_leaf . dL/dy, and its sum by input feature. Samples are
    # owners. grad_y has one tree when the trees share it (aggregated), all of them otherwise.
    cdef Py_ssize_t n_samples = leaf.shape[0], n_trees = leaf.shape[1], n_outputs = weights.shape[2]
    cdef Py_ssize_t step = grad_y.shape[1] > 1
    cdef Py_ssize_t n, m
    cdef double s
    cdef real r
    for n in prange(n_samples, schedule="static", num_threads=_threads(n_samples * n_trees)):
        memset(&grad_x[n, 0], 0, grad_x.shape[1] * sizeof(real))
        for m in range(n_trees):
            if m + AHEAD < n_trees:
                hf_prefetch(&weights[m + AHEAD, leaf[n, m + AHEAD], 0])
            r = margin[n, m]
            s = _dot(&weights[m, leaf[n, m], 0], &grad_y[n, m * step, 0], n_outputs) / divisor
            s = s if r > 0 else (-s if r < 0 else 0.0)
            slope[n, m] = <real> s
            grad_x[n, features[m, vertex[n, m]]] += slope[n, m]


cdef void _tree_sums(
    const real[:, :, ::1] grad_y, const int32_t[:, ::1] leaf, const real[:, ::1] margin,
    const int32_t[:, ::1] vertex, double divisor, const real[:, ::1] slope, Py_ssize_t m,
    const int32_t* vertex_slot, Py_ssize_t n_vertex_slots,
    const int32_t* leaf_slot, Py_ssize_t n_leaf_slots,
    int32_t* start, int32_t* order, double* total,
    real* grad_thresholds, real* grad_weights, Py_ssize_t n_outputs,
) noexcept nogil:
    # Parameter gradients of tree m. A slot map of NULL is the identity (dense gradients). Samples are
    # sorted by leaf (counting sort, stable), so that each leaf's row is summed in registers or L1 and
    # written once.
    cdef Py_ssize_t n_samples = leaf.shape[0], n, k, i, slot
    cdef Py_ssize_t step = grad_y.shape[1] > 1
    cdef double r
    cdef const real* g
    cdef real* row
    memset(total, 0, n_vertex_slots * sizeof(double))
    memset(start, 0, (n_leaf_slots + 1) * sizeof(int32_t))
    for n in range(n_samples):
        slot = vertex[n, m] if vertex_slot == NULL else vertex_slot[vertex[n, m]]
        total[slot] -= slope[n, m]
        slot = leaf[n, m] if leaf_slot == NULL else leaf_slot[leaf[n, m]]
        start[slot + 1] += 1
    for slot in range(n_vertex_slots):
        grad_thresholds[slot] = <real> total[slot]
    for slot in range(n_leaf_slots):
        start[slot + 1] += start[slot]
    for n in range(n_samples):
        slot = leaf[n, m] if leaf_slot == NULL else leaf_slot[leaf[n, m]]
        order[start[slot]] = <int32_t> n
        start[slot] += 1
    # start[slot] is now the end of the slot's samples and start[slot - 1] their beginning.
    i = 0
    for slot in range(n_leaf_slots):
        row = grad_weights + slot * n_outputs
        if i == start[slot]:
            memset(row, 0, n_outputs * sizeof(real))
            continue
        for k in range(n_outputs):
            total[k] = 0
        while i < start[slot]:
            n = order[i]
            r = fabs(<double> margin[n, m])
            g = &grad_y[n, m * step, 0]
            for k in range(n_outputs):
                total[k] += r * <double> g[k]
            i += 1
        for k in range(n_outputs):
            row[k] = <real> (total[k] / divisor)


cdef void _dense(
    const real[:, :, ::1] grad_y, const int32_t[:, ::1] leaf, const real[:, ::1] margin,
    const int32_t[:, ::1] vertex, double divisor, const real[:, ::1] slope,
    int32_t[:, ::1] start, int32_t[:, ::1] order, double[:, ::1] total,
    real[:, ::1] grad_thresholds, real[:, :, ::1] grad_weights,
) noexcept nogil:
    cdef Py_ssize_t m
    for m in prange(leaf.shape[1], schedule="dynamic", num_threads=<int> start.shape[0]):
        _tree_sums(
            grad_y, leaf, margin, vertex, divisor, slope, m,
            NULL, grad_thresholds.shape[1], NULL, grad_weights.shape[1],
            &start[threadid(), 0], &order[threadid(), 0], &total[threadid(), 0],
            &grad_thresholds[m, 0], &grad_weights[m, 0, 0], grad_weights.shape[2],
        )


cdef void _fill_slots(const int64_t[::1] rows, Py_ssize_t first, Py_ssize_t last, int64_t offset, int32_t* slots) noexcept nogil:
    # Only the slots of touched rows are written, and only those are read.
    cdef Py_ssize_t i
    for i in range(first, last):
        slots[rows[i] - offset] = <int32_t> (i - first)


cdef void _sparse(
    const real[:, :, ::1] grad_y, const int32_t[:, ::1] leaf, const real[:, ::1] margin,
    const int32_t[:, ::1] vertex, double divisor, const real[:, ::1] slope,
    const int64_t[::1] vertex_start, const int64_t[::1] vertex_rows,
    const int64_t[::1] leaf_start, const int64_t[::1] leaf_rows, Py_ssize_t n_vertices, Py_ssize_t n_leaves,
    int32_t[:, ::1] slots, int32_t[:, ::1] start, int32_t[:, ::1] order, double[:, ::1] total,
    real[::1] grad_thresholds, real[:, ::1] grad_weights,
) noexcept nogil:
    cdef Py_ssize_t m
    for m in prange(leaf.shape[1], schedule="dynamic", num_threads=<int> start.shape[0]):
        _fill_slots(vertex_rows, vertex_start[m], vertex_start[m + 1], m * n_vertices, &slots[threadid(), 0])
        _fill_slots(
            leaf_rows, leaf_start[m], leaf_start[m + 1], m * n_leaves, &slots[threadid(), n_vertices]
        )
        _tree_sums(
            grad_y, leaf, margin, vertex, divisor, slope, m,
            &slots[threadid(), 0], vertex_start[m + 1] - vertex_start[m],
            &slots[threadid(), n_vertices], leaf_start[m + 1] - leaf_start[m],
            &start[threadid(), 0], &order[threadid(), 0], &total[threadid(), 0],
            &grad_thresholds[vertex_start[m]], &grad_weights[leaf_start[m], 0], grad_weights.shape[1],
        )


def _slopes(grad_y, leaf, margin, vertex, features, weights, divisor, grad_x):
    slope = np.empty_like(margin)
    if margin.dtype.itemsize == 4:
        _branch_gradients[float](
            grad_y, leaf, margin, vertex, features, weights, divisor, slope, grad_x
        )
    else:
        _branch_gradients[double](
            grad_y, leaf, margin, vertex, features, weights, divisor, slope, grad_x
        )
    return slope


def _scratch(leaf, n_vertex_slots, n_leaf_slots, n_outputs):
    # For each thread: where each leaf's samples start, the samples in that order, float64 sums.
    threads = _threads(leaf.size)
    return (
        np.empty((threads, n_leaf_slots + 17), np.int32),
        np.empty((threads, leaf.shape[0] + 16), np.int32),
        np.empty((threads, max(n_vertex_slots, n_outputs) + 8)),
    )


def backward(grad_y, leaf, margin, vertex, features, weights, double divisor, grad_x, grad_thresholds, grad_weights):
    """Dense gradients, p1 eq 11-12."""
    if leaf.shape[0] == 0:
        grad_thresholds[...] = 0
        grad_weights[...] = 0
        return
    grad_y = grad_y.reshape(leaf.shape[0], -1, weights.shape[2])
    slope = _slopes(grad_y, leaf, margin, vertex, features, weights, divisor, grad_x)
    start, order, total = _scratch(leaf, features.shape[1], weights.shape[1], weights.shape[2])
    if margin.dtype.itemsize == 4:
        _dense[float](
            grad_y, leaf, margin, vertex, divisor, slope, start, order, total, grad_thresholds, grad_weights
        )
    else:
        _dense[double](
            grad_y, leaf, margin, vertex, divisor, slope, start, order, total, grad_thresholds, grad_weights
        )


def backward_sparse(
    grad_y, leaf, margin, vertex, features, weights, double divisor,
    vertex_start, vertex_rows, leaf_start, leaf_rows, grad_x, grad_thresholds, grad_weights,
):
    """The same gradients at the touched rows alone; rows of tree m are at start[m]:start[m + 1]."""
    if leaf.shape[0] == 0:
        return
    n_leaves, n_outputs = weights.shape[1:]
    grad_y = grad_y.reshape(leaf.shape[0], -1, n_outputs)
    slope = _slopes(grad_y, leaf, margin, vertex, features, weights, divisor, grad_x)
    most = min(leaf.shape[0], n_leaves)
    start, order, total = _scratch(leaf, min(leaf.shape[0], features.shape[1]), most, n_outputs)
    slots = np.empty((start.shape[0], features.shape[1] + n_leaves), np.int32)
    if margin.dtype.itemsize == 4:
        _sparse[float](
            grad_y, leaf, margin, vertex, divisor, slope, vertex_start, vertex_rows, leaf_start, leaf_rows,
            features.shape[1], n_leaves, slots, start, order, total, grad_thresholds, grad_weights,
        )
    else:
        _sparse[double](
            grad_y, leaf, margin, vertex, divisor, slope, vertex_start, vertex_rows, leaf_start, leaf_rows,
            features.shape[1], n_leaves, slots, start, order, total, grad_thresholds, grad_weights,
        )


# ------------------------------------------------------------------------------------ touched rows

cdef void _mark(const int32_t[:, ::1] index, Py_ssize_t m, uint64_t[::1] seen) noexcept nogil:
    cdef Py_ssize_t n, word
    for word in range(seen.shape[0]):
        seen[word] = 0
    for n in range(index.shape[0]):
        seen[index[n, m] >> 6] |= (<uint64_t> 1) << (index[n, m] & 63)


cdef int64_t _count_marks(const uint64_t[::1] seen) noexcept nogil:
    cdef int64_t count = 0
    cdef Py_ssize_t word
    for word in range(seen.shape[0]):
        count += hf_popcount(seen[word])
    return count


cdef void _list_marks(const uint64_t[::1] seen, int64_t offset, int64_t[::1] rows, Py_ssize_t i) noexcept nogil:
    cdef Py_ssize_t word
    cdef uint64_t left
    for word in range(seen.shape[0]):
        left = seen[word]
        while left:
            rows[i] = offset + 64 * word + hf_lowest_bit(left)
            left &= left - 1
            i += 1


cdef void _touched(
    const int32_t[:, ::1] index, Py_ssize_t n_slots, uint64_t[:, ::1] seen,
    int64_t[::1] count, const int64_t[::1] start, int64_t[::1] rows,
) noexcept nogil:
    cdef Py_ssize_t m
    for m in prange(index.shape[1], schedule="static", num_threads=<int> seen.shape[0]):
        _mark(index, m, seen[threadid()])
        if rows is None:
            count[m] = _count_marks(seen[threadid()])
        else:
            _list_marks(seen[threadid()], m * n_slots, rows, start[m])


def _bits(index, n_slots):
    # A bit for each slot of a tree, for each thread.
    return np.empty((_threads(index.size), (n_slots + 63) // 64), np.uint64)


def touched_count(index, n_slots, count):
    """Distinct values of index[:, m] for each tree m."""
    _touched(index, n_slots, _bits(index, n_slots), count, None, None)


def touched_rows(index, n_slots, start, rows):
    """Those values in ascending order, as rows m * n_slots + value, at start[m]:start[m + 1]."""
    _touched(index, n_slots, _bits(index, n_slots), None, start, rows)


cdef void _count(const int32_t[:, ::1] leaf, int64_t[:, ::1] counts) noexcept nogil:
    cdef Py_ssize_t n, m
    for m in prange(leaf.shape[1], schedule="static", num_threads=_threads(leaf.shape[0] * leaf.shape[1])):
        for n in range(leaf.shape[0]):
            counts[m, leaf[n, m]] += 1


def leaf_counts(leaf, counts):
    """Samples in each leaf of each tree."""
    counts[...] = 0
    _count(leaf, counts)
