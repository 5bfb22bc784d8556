"""Routing by an inner product at each vertex (Lay et al. 2018, Fig. 2 and Alg. 3).

A unit of work is a block of samples and a group of trees. All samples of the block go through one tree
before the next, so that the samples and the tree's upper projections stay in cache. Inner products are
computed at the vertices of a sample's path alone.
"""

from cython.parallel cimport parallel
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t

from hforest.core.machine cimport (
    hf_share, hf_stopped_after, hf_take, hf_watch, raise_interrupt, simd_path, start_watch,
)
from hforest.hinge.forest cimport GROUP, real, route_of, start_of, threads_for

cdef extern from "hinge/simd/products.h" nogil:
    const hf_products* hf_products_of(int path, int itemsize)

cdef enum:
    TOGETHER = 8          # samples on one level of a tree: their inner products do not wait for each other
    LANES = 8             # partial sums of an inner product: element k goes to k % LANES
    MAX_BLOCK = 256       # samples of a block at most: a tree is read once for each block
    BLOCK_BYTES = 1 << 20  # of the input of a block at most, if 64 samples fit: L2 holds it
    PAIR = 64             # elements of inner products that take as long as a pair of forest.pxd


cdef inline double inner_product(const real* a, const real* b, Py_ssize_t n) noexcept nogil:
    """Returns the inner product of n elements; the partial sums are added in the order of backward.pyx."""
    cdef double lane[LANES]
    cdef Py_ssize_t k = 0, i
    for i in range(LANES):
        lane[i] = 0
    while k + LANES <= n:
        for i in range(LANES):
            lane[i] += <double> a[k + i] * <double> b[k + i]
        k += LANES
    for i in range(n - k):
        lane[i] += <double> a[k + i] * <double> b[k + i]
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]))


cdef void _route_some(
    const LinearCall* call, const real* x, Py_ssize_t m, Py_ssize_t first, int count
) noexcept nogil:
    """Writes the routes of samples first to first + count - 1, at most TOGETHER, in tree m.

    x  IN (n_samples, n_features)
    """
    cdef Py_ssize_t n_features = call.n_features, at
    cdef const real* t = <const real*> call.thresholds + m * call.n_vertices
    cdef const real* p = <const real*> call.projections + m * call.n_vertices * n_features
    cdef const real* samples[TOGETHER]
    cdef const real* rows[TOGETHER]
    cdef double product[TOGETHER]
    cdef real lowest[TOGETHER]
    cdef int32_t v[TOGETHER]
    cdef int32_t nearest[TOGETHER]
    cdef int32_t leaf[TOGETHER]
    cdef real r
    cdef int level, right, closer, i
    for i in range(count):
        samples[i] = x + (first + i) * n_features
        v[i] = nearest[i] = leaf[i] = 0
        lowest[i] = 0
    for level in range(call.depth):
        for i in range(count):
            rows[i] = p + v[i] * n_features
        if call.bodies != NULL:
            call.bodies.multiply(count, <const void**> rows, <const void**> samples, n_features, product)
        else:
            for i in range(count):
                product[i] = inner_product(rows[i], samples[i], n_features)
        for i in range(count):
            r = <real> product[i] - t[v[i]]
            right = r > 0
            # Strictly closer: on equal margins the vertex nearest the root stays.
            closer = level == 0 or fabs(r) < fabs(lowest[i])
            lowest[i] = r if closer else lowest[i]
            nearest[i] = v[i] if closer else nearest[i]
            leaf[i] = 2 * leaf[i] + right
            v[i] = v[i] + 1 if call.fern else 2 * v[i] + right + 1
    for i in range(count):
        at = (first + i) * call.n_trees + m
        call.route.leaf[at], call.route.vertex[at] = leaf[i], nearest[i]
        (<real*> call.route.margin)[at] = lowest[i]


cdef const hf_products* products_of(int itemsize) noexcept nogil:
    return hf_products_of(simd_path(), itemsize)


cdef LinearCall linear_call_of(bint fern, x, thresholds, projections, route):
    """Returns the struct of the arrays."""
    cdef LinearCall call
    call.fern, call.route = fern, route_of(route)
    call.n_samples = x.shape[0]
    call.n_trees, call.n_vertices, call.n_features = projections.shape
    call.depth = call.n_vertices if fern else (projections.shape[1] + 1).bit_length() - 1
    call.bodies = products_of(x.itemsize)
    call.thresholds, call.projections = start_of(thresholds), start_of(projections)
    return call


cdef int route_linear(LinearCall call, const real* x) except -1:
    """Writes the routes of all samples of a call.

    x  IN (n_samples, n_features)
    """
    cdef hf_watch watch
    cdef Py_ssize_t row = call.n_features * sizeof(real), n = call.n_samples
    cdef Py_ssize_t cost = call.depth * (1 + call.n_features // PAIR), group = GROUP
    cdef Py_ssize_t block = min(<Py_ssize_t> MAX_BLOCK, max(<Py_ssize_t> 64, BLOCK_BYTES // row))
    cdef int threads = threads_for(n * call.n_trees * cost)
    cdef Py_ssize_t n_blocks = (n + block - 1) // block, n_groups, unit = 0
    # Neighbouring trees share cache lines of the result; with few blocks, smaller groups share work better.
    while group > 1 and n_blocks * (call.n_trees // group) < 4 * threads and threads > 1:
        group //= 2
    n_groups = (call.n_trees + group - 1) // group
    start_watch(&watch)
    hf_share(&watch, n_blocks * n_groups)
    with nogil, parallel(num_threads=threads):
        unit = hf_take(&watch)
        while unit >= 0:
            _route_unit(&call, x, unit // n_groups * block, block, unit % n_groups * group, group, &watch)
            unit = hf_take(&watch)
    return raise_interrupt(&watch)


cdef void _route_unit(
    const LinearCall* call, const real* x, Py_ssize_t first, Py_ssize_t block, Py_ssize_t m,
    Py_ssize_t group, hf_watch* watch,
) noexcept nogil:
    # Routes of samples first to first + block - 1 in trees m to m + group - 1, as far as there are so many.
    cdef Py_ssize_t last = min(first + block, call.n_samples), stop = min(m + group, call.n_trees), n
    cdef int64_t n_steps = 0
    while m < stop:
        if hf_stopped_after(watch, &n_steps, (last - first) * call.depth * (1 + call.n_features // 4)):
            return
        n = first
        while n < last:
            _route_some(call, x, m, n, <int> min(<Py_ssize_t> TOGETHER, last - n))
            n += TOGETHER
        m += 1
