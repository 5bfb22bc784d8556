"""Outputs of routed samples (Lay et al. 2018, eq. 10): the weights of a leaf times the least margin.

Outputs are written per tree, or summed over the trees in float64 in the order of the trees.
"""

import numpy as np

from cython.parallel cimport prange, threadid
from libc.math cimport fabs
from libc.string cimport memset

from hforest.core.machine cimport (
    hf_begin, hf_end, hf_units, hf_watch, raise_interrupt, simd_path, start_watch,
)
from hforest.hinge.cpu.forest cimport GROUP, Forest, hf_fetch, real, samples_each, threads_for

cdef extern from "hinge/cpu/simd/sums.h" nogil:
    ctypedef struct hf_sums:
        Group group
        const void* weights
        double* total
        Py_ssize_t n_leaves, n_outputs, next_samples, next_trees
    ctypedef void (*hf_adder)(const hf_sums* a) noexcept nogil
    hf_adder hf_adder_of(int path, int itemsize)

cdef enum:
    FEWEST = 4            # least number of outputs for vector bodies
    TOGETHER = 4          # samples summed together, where each leaf read is a random memory access
    BLOCK = 256           # samples summed together if those of a tree are contiguous
    SAMPLES_AHEAD = 2     # samples between the prefetch of a leaf and its use
    PAIRS_AHEAD = 32      # (sample, tree) pairs between the prefetch of a leaf and its use


cdef void add_outputs(
    int path, const Forest* forest, const Group* group, const real* weights, double* total,
) noexcept nogil:
    """Adds the outputs of the group's trees to total (n, n_outputs).

    weights   IN (n_trees, n_leaves, n_outputs), of the group's trees
    """
    cdef Py_ssize_t n_outputs = forest.n_outputs, tree = forest.n_leaves * n_outputs, j, s, k, at
    cdef Py_ssize_t ahead = max(<Py_ssize_t> 1, PAIRS_AHEAD // group.n)
    cdef const int32_t* leaf = group.leaf
    cdef const real* margin = <const real*> group.margin
    cdef const real* row
    cdef double* sums
    cdef real size
    cdef hf_sums sums_of
    cdef hf_adder body = hf_adder_of(path, sizeof(real)) if n_outputs >= FEWEST else NULL
    if body != NULL:
        sums_of.group, sums_of.weights, sums_of.total = group[0], weights, total
        sums_of.n_leaves, sums_of.n_outputs = forest.n_leaves, n_outputs
        sums_of.next_samples = 0 if group.n <= TOGETHER else SAMPLES_AHEAD
        sums_of.next_trees = PAIRS_AHEAD if group.n <= TOGETHER else 0
        body(&sums_of)
        return
    for j in range(group.n_trees):
        if n_outputs == 1 and group.n > TOGETHER:
            # With more samples than TOGETHER most leaves of a tree are read: prefetching does not pay.
            for s in range(group.n):
                at = s * group.sample_step + j * group.tree_step
                total[s] += <double> (weights[leaf[at]] * <real> fabs(margin[at]))
            weights += tree
            continue
        for s in range(group.n):
            at = s * group.sample_step + j * group.tree_step
            if j + ahead < group.n_trees:
                hf_fetch(
                    weights + ahead * tree + leaf[at + ahead * group.tree_step] * n_outputs,
                    n_outputs * sizeof(real),
                )
            size = fabs(margin[at])
            row = weights + leaf[at] * n_outputs
            sums = total + s * n_outputs
            for k in range(n_outputs):
                sums[k] += <double> (row[k] * size)
        weights += tree


cdef void write_outputs(
    const Forest* forest, const Group* group, const real* weights, real* y, Py_ssize_t y_step,
) noexcept nogil:
    """Writes the outputs of each of the group's trees.

    weights   IN (n_trees, n_leaves, n_outputs), of the group's trees
    y         OUT (n, n_trees, n_outputs), y_step elements from a sample to the next
    """
    cdef Py_ssize_t n_outputs = forest.n_outputs, tree = forest.n_leaves * n_outputs, j, s, k, at
    cdef const real* row
    cdef real* out
    cdef real size
    for s in range(group.n):
        out = y + s * y_step
        for j in range(group.n_trees):
            at = s * group.sample_step + j * group.tree_step
            row = weights + j * tree + group.leaf[at] * n_outputs
            size = fabs((<const real*> group.margin)[at])
            for k in range(n_outputs):
                out[k] = row[k] * size
            out += n_outputs


cdef void divide_sums(const double* total, Py_ssize_t n, double divisor, real* y) noexcept nogil:
    """Writes y (n,) = total / divisor, rounded."""
    cdef Py_ssize_t i
    for i in range(n):
        y[i] = <real> (total[i] / divisor)


cdef inline Py_ssize_t _together(const Known* a) noexcept nogil:
    # Returns the number of samples that are summed together.
    return BLOCK if a.route.sample_step == 1 else TOGETHER


cdef void _few_samples(
    const Known* a, int path, Py_ssize_t first, Py_ssize_t last, double* total, real* y,
) noexcept nogil:
    cdef Py_ssize_t n_trees = a.forest.n_trees, n_outputs = a.forest.n_outputs
    cdef const real* weights = <const real*> a.forest.weights
    cdef Group group
    cdef Py_ssize_t step = a.route.sample_step, together = _together(a), m
    cdef Py_ssize_t trees = GROUP if together == BLOCK else n_trees
    group.n_trees, group.sample_step, group.tree_step = n_trees, step, a.route.tree_step
    while first < last:
        group.n = min(together, last - first)
        group.leaf, group.margin = a.route.leaf + first * step, <real*> a.route.margin + first * step
        if a.summed:
            memset(total, 0, group.n * n_outputs * sizeof(double))
            m = 0
            while m < n_trees:
                # The leaves of a few trees stay in cache for the samples of a block.
                group.n_trees = min(trees, n_trees - m)
                add_outputs(path, &a.forest, &group, weights + m * a.forest.n_leaves * n_outputs, total)
                group.leaf += group.n_trees * group.tree_step
                group.margin = <real*> group.margin + group.n_trees * group.tree_step
                m += group.n_trees
            divide_sums(total, group.n * n_outputs, a.divisor, y + first * n_outputs)
        else:
            write_outputs(
                &a.forest, &group, weights, y + first * n_trees * n_outputs, n_trees * n_outputs
            )
        first += group.n


cdef int sum_leaves(Known a, const real* tag) except -1:
    """Writes the outputs of known routes: per tree, or their sum over the trees divided by a.divisor."""
    cdef hf_watch watch
    cdef int threads = threads_for(a.n_samples * a.forest.n_trees)
    cdef int path = simd_path()
    cdef Py_ssize_t together = _together(&a), unit, n_units
    cdef Py_ssize_t step = samples_each(a.n_samples, threads, together)
    cdef double[:, ::1] total
    if a.n_samples == 0:
        return 0
    # One row per thread, padded so that threads do not share cache lines.
    total = np.empty((threads, together * a.forest.n_outputs + 16 if a.summed else 1))
    start_watch(&watch)
    n_units = hf_units(&watch, (a.n_samples + step - 1) // step, threads)
    for unit in prange(n_units, schedule="dynamic", num_threads=threads, nogil=True):
        if hf_begin(&watch, unit):
            _few_samples(
                &a, path, unit * step, min((unit + 1) * step, a.n_samples), &total[threadid(), 0], <real*> a.y
            )
            hf_end(&watch)
    return raise_interrupt(&watch)
