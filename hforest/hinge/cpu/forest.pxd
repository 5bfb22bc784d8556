"""Structs and small functions that the modules of hinge's CPU backend share."""

from libc.stdint cimport int32_t, uint32_t

cimport hforest.core.arrays as cnp
from hforest.core.machine cimport hf_threads_for

cdef extern from "core/simd.h" nogil:
    int HF_PATH_PLAIN
    void hf_fetch(const void* start, Py_ssize_t n_bytes)

cdef extern from "hinge/cpu/simd/transpose.h" nogil:
    void hf_transpose(
        const int32_t* source, Py_ssize_t step, Py_ssize_t n_rows, Py_ssize_t n_columns, int32_t* target,
        Py_ssize_t target_step)

ctypedef fused real:
    float
    double

ctypedef fused element:
    int32_t
    float
    double

cdef enum:
    GROUP = 16            # trees whose routes are transposed together: one cache line of float32 per sample
    PAIR_NS = 10          # nanoseconds per pair of a sample and a tree
    SAMPLES = 16          # samples of a unit of work that share cache lines of an array (n_trees, n_samples)


# Trees or ferns; a fern has one vertex per level. `real` is float or double, selected by itemsize.
cdef struct Forest:
    bint fern
    int depth, itemsize
    Py_ssize_t n_trees, n_vertices, n_leaves, n_outputs
    void* thresholds      # (n_trees, n_vertices) real
    int32_t* features     # (n_trees, n_vertices)
    void* weights         # (n_trees, n_leaves, n_outputs) real, or NULL


# Routes of samples: element n * sample_step + m * tree_step of each array belongs to sample n and tree m. One
# of the steps is 1. The samples of a tree are contiguous if sample_step is 1.
cdef struct Route:
    int32_t* leaf         # (n_samples, n_trees), or NULL if no route is requested
    void* margin          # (n_samples, n_trees) real
    int32_t* vertex       # (n_samples, n_trees)
    Py_ssize_t sample_step, tree_step


cdef inline int threads_for(Py_ssize_t n_pairs) noexcept nogil:
    """Returns the number of threads for n_pairs pairs of a sample and a tree."""
    return hf_threads_for(<double> PAIR_NS * n_pairs)


cdef inline Py_ssize_t samples_each(Py_ssize_t n_samples, int threads, Py_ssize_t least) noexcept nogil:
    """Returns the samples per unit of work: a multiple of `least`, several units per thread if possible."""
    return max(<Py_ssize_t> 1, min(<Py_ssize_t> 32, n_samples // (8 * threads * least))) * least


cdef inline Py_ssize_t aligned(Py_ssize_t n_bytes) noexcept nogil:
    """Returns n_bytes, rounded up to a multiple of two cache lines."""
    return (n_bytes + 127) // 128 * 128


cdef inline void* start_of(a):
    """Returns the address of a C-contiguous array; NULL for None, and a TypeError for what is no array."""
    return NULL if a is None else cnp.PyArray_DATA(<cnp.ndarray?> a)


cdef inline Forest forest_of(bint fern, thresholds, features, weights):
    """Returns the struct of the arrays; each may be None, but not both thresholds and weights."""
    cdef Forest forest
    forest.fern = fern
    forest.itemsize = (weights if thresholds is None else thresholds).itemsize
    vertices = thresholds if features is None else features
    forest.n_trees, forest.n_vertices = (len(weights), 0) if vertices is None else vertices.shape
    forest.depth = forest.n_vertices if fern else (int(forest.n_vertices) + 1).bit_length() - 1
    forest.n_leaves, forest.n_outputs = (0, 0) if weights is None else weights.shape[1:]
    forest.thresholds, forest.features = start_of(thresholds), <int32_t*> start_of(features)
    forest.weights = start_of(weights)
    return forest


cdef inline Route route_of(route):
    """Returns the struct of a tuple (leaf, margin, vertex) of arrays in one order; all NULL for None."""
    cdef Route rows
    leaf, margin, vertex = (None, None, None) if route is None else route
    rows.leaf, rows.vertex = <int32_t*> start_of(leaf), <int32_t*> start_of(vertex)
    rows.margin = start_of(margin)
    rows.sample_step, rows.tree_step = 0, 0
    if leaf is not None:
        rows.sample_step = leaf.strides[0] // sizeof(int32_t)
        rows.tree_step = leaf.strides[1] // sizeof(int32_t)
    return rows


cdef inline uint32_t bounded(int32_t feature, Py_ssize_t n_features) noexcept nogil:
    """Returns a feature, or the last one if another thread has written one out of range since the check."""
    return min(<uint32_t> feature, <uint32_t> (n_features - 1))


cdef inline void transpose(
    int path, const element* source, Py_ssize_t step, Py_ssize_t n_rows, Py_ssize_t n_columns,
    element* target, Py_ssize_t target_step,
) noexcept nogil:
    """Writes target[c * target_step + r] = source[r * step + c] for all rows r and columns c."""
    cdef Py_ssize_t rows = 0, columns = 0, r, c
    if element is not double:
        if path != HF_PATH_PLAIN:
            rows, columns = n_rows // 4 * 4, n_columns // 4 * 4
            hf_transpose(<const int32_t*> source, step, rows, columns, <int32_t*> target, target_step)
    for r in range(n_rows):
        for c in range(columns if r < rows else 0, n_columns):
            target[c * target_step + r] = source[r * step + c]
