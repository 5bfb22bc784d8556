"""Shapley values on the CPU. A thread owns a block of samples and adds up their trees in order."""

from cython.parallel cimport prange
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.string cimport memset

import numpy as np

from hforest.core import series

cimport hforest.core.arrays as cnp
from hforest.core.arena cimport hf_arena, release, take, take_zeros
from hforest.core.machine cimport (
    hf_begin, hf_end, hf_has_stopped, hf_stop, hf_stopped_after, hf_threads_for, hf_units, hf_watch,
    raise_interrupt, raise_stopped, start_watch,
)
from hforest.tree.cpu.shap_background cimport add_background, background_block
from hforest.tree.cpu.shap_paths cimport add_paths, paths_block
from hforest.tree.cpu.walk cimport Walk, hf_forest, walk_of

cnp.import_array()


# ----------------------------------------------------------------------------------------------- sizes

cdef void _count(
    const hf_forest* f, int64_t v, int change, int32_t* n_splits, int64_t* n_players
) noexcept nogil:
    # Adds a split to the path, or takes it off.
    cdef int64_t j, first = 0, last = 1
    cdef int32_t i = f.feature[v]
    if i < 0:
        first, last = f.indptr[v], f.indptr[v + 1]
    for j in range(first, last):
        if f.feature[v] < 0:
            i = f.indices[j]
        if change > 0 and n_splits[i] == 0:
            n_players[0] += 1
        n_splits[i] += change
        if change < 0 and n_splits[i] == 0:
            n_players[0] -= 1


cdef Size _size(const Walk* w, hf_watch* watch) noexcept nogil:
    # Returns the maxima over all paths; on an error the watch has stopped.
    cdef const hf_forest* f = &w.forest
    cdef int64_t tree, root, level, v, n_players = 0, most = 1, n_steps = 0
    cdef Size size
    cdef hf_arena arena
    cdef int64_t* node
    cdef int8_t* n_visited
    cdef int32_t* n_splits
    memset(&size, 0, sizeof(Size))
    for tree in range(w.n_trees):
        most = max(most, (f.tree_start[tree + 1] - f.tree_start[tree] + 1) // 2)
    memset(&arena, 0, sizeof(hf_arena))
    node = <int64_t*> take(&arena, (most + 1) * sizeof(int64_t))
    n_visited = <int8_t*> take_zeros(&arena, most + 1)
    n_splits = <int32_t*> take_zeros(&arena, (w.n_features + 1) * sizeof(int32_t))
    if arena.failed:
        hf_stop(watch)
    for tree in range(0 if arena.failed else w.n_trees):
        root, level = f.tree_start[tree], 0
        size.n_nodes = max(size.n_nodes, f.tree_start[tree + 1] - root)
        node[0] = root
        while level >= 0 and not hf_stopped_after(watch, &n_steps, 1):
            v = node[level]
            if f.feature[v] == -1:
                size.depth, size.n_players = max(size.depth, level), max(size.n_players, n_players)
            elif n_visited[level] < 2:
                if n_visited[level] == 0:
                    _count(f, v, 1, n_splits, &n_players)
                node[level + 1] = root + f.left[v] + n_visited[level]
                n_visited[level] += 1
                level += 1
                continue
            else:
                _count(f, v, -1, n_splits, &n_players)
            n_visited[level] = 0
            level -= 1
        if hf_has_stopped(watch):
            break
    release(&arena)
    return size


# ---------------------------------------------------------------------------------------------------- calls

cdef enum:
    NODE_NS = 20          # nanoseconds per pair of a sample and a node


cdef void _run(Job* job) noexcept nogil:
    cdef const Walk* w = &job.walk
    cdef int64_t block, n
    cdef double nodes = w.forest.tree_start[w.n_trees]
    cdef int threads = hf_threads_for(NODE_NS * nodes * w.n_samples)
    if job.share != NULL:
        job.block = paths_block(job, w.n_samples, threads)
    else:
        job.block = background_block(w.n_samples, threads)
    n = job.block
    cdef int64_t n_units = hf_units(w.watch, (w.n_samples + n - 1) // n, threads)
    for block in prange(n_units, schedule="dynamic", num_threads=threads):
        if hf_begin(w.watch, block):
            if job.share != NULL:
                add_paths(job, block * n, min(block * n + n, w.n_samples))
            else:
                add_background(job, block * n, min(block * n + n, w.n_samples))
            hf_end(w.watch)


cdef Job _job(x, forest, cnp.ndarray values, hf_watch* watch) except *:
    cdef cnp.ndarray value = forest.value
    cdef Job job
    memset(&job, 0, sizeof(Job))
    job.walk = walk_of(x, forest)
    job.walk.value, job.walk.n_outputs = cnp.PyArray_DATA(value), cnp.PyArray_DIM(value, 1)
    job.walk.watch, job.n_outputs = watch, job.walk.n_outputs
    job.values = <double*> cnp.PyArray_DATA(values)
    with nogil:
        job.size = _size(&job.walk, watch)
    raise_stopped(watch, "forest: no memory to walk it; pass fewer trees at a time")
    return job


def shap_path_dependent(x, forest, const double[::1] share, values):
    """Adds path-dependent SHAP values. share: (n_nodes,), of the samples of the parent in each node."""
    cdef hf_watch watch
    start_watch(&watch)
    cdef Job job = _job(x, forest, values, &watch)
    cdef const double[:, ::1] points = _points(job.size.n_players)
    job.share, job.n_points = &share[0], points.shape[1]
    job.point, job.rest, job.cold, job.weight = &points[0, 0], &points[1, 0], &points[2, 0], &points[3, 0]
    with nogil:
        _run(&job)
    raise_stopped(&watch, "forest: no memory for sums along its deepest path; use fewer threads")


def _points(n_players):
    # Returns t, 1 - t, -1 / (1 - t) and the weights of the points that integrate polynomials of a degree
    # below n_players from 0 to 1.
    # By Gauss and Legendre, with Newton's method, as the eigenvalues of LAPACK differ between processors.
    n = max((n_players + 1) // 2, 1)
    point = -series.cos_of_turns((np.arange(n) + 0.75) / (2 * n + 1))
    for _ in range(6):
        before, here = np.ones(n), point
        for k in range(2, n + 1):
            before, here = here, ((2 * k - 1) * point * here - (k - 1) * before) / k
        slope = n * (point * here - before) / (point * point - 1)
        point = point - here / slope
    weight = 2 / ((1 - point * point) * (slope * slope))
    rest = (1 - point) / 2
    return np.array([(1 + point) / 2, rest, -1 / rest, weight / 2])


def _table():
    # Returns the results of _shapley for fewer than TABLE features from x, and from b.
    n_x, n_b = np.arange(1, TABLE)[:, None], np.arange(TABLE)
    table = np.zeros((TABLE, TABLE))
    np.cumprod(np.maximum(n_b, 1) / (n_x + n_b), axis=1, out=table[1:])
    return table


def shap_interventional(x, forest, background, const double[::1] weight, int64_t max_branches, values):
    """Adds interventional SHAP values. Returns whether no tree needed more branches at projections.

    weight: (n_background,), weights of the rows of the background, sum 1.
    """
    cdef hf_watch watch
    start_watch(&watch)
    cdef Job job = _job(x, forest, values, &watch)
    cdef cnp.ndarray rows = background
    cdef const double[::1] scaled = np.divide(weight, len(forest.tree_start) - 1)
    cdef const double[:, ::1] table = _table()
    cdef int8_t[::1] too_many = np.zeros(len(x), np.int8)
    job.background, job.n_background = <const char*> cnp.PyArray_DATA(rows), weight.shape[0]
    job.row_weight, job.table, job.max_branches = &scaled[0], &table[0, 0], max_branches
    job.too_many = &too_many[0]
    with nogil:
        _run(&job)
    raise_interrupt(&watch)
    if np.any(too_many):
        return False
    raise_stopped(&watch, "forest: no memory for sums along its deepest path; use fewer threads")
    return True
