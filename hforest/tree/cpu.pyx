"""Forests applied on the CPU. A thread owns a block of samples and adds trees up in their order."""

from cython.parallel cimport parallel
from libc.math cimport isnan
from libc.stdint cimport int32_t, int64_t, uint32_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

cimport numpy as cnp

from hforest.core.machine cimport (
    hf_has_stopped, hf_share, hf_stop, hf_stopped, hf_stopped_after, hf_take, hf_threads, hf_watch,
    raise_interrupt, simd_gathers, simd_path, start_watch,
)

cnp.import_array()

cdef extern from "tree/walk.h" nogil:
    ctypedef struct hf_forest_f32:
        const int64_t* tree_start
        const int32_t* feature
        const float* threshold
        const int32_t* left
        const int64_t* indptr
        const int32_t* indices
        const float* data
    ctypedef struct hf_forest_f64:
        const int64_t* tree_start
        const int32_t* feature
        const double* threshold
        const int32_t* left
        const int64_t* indptr
        const int32_t* indices
        const double* data
    ctypedef struct hf_node_f32:
        pass
    ctypedef struct hf_node_f64:
        pass
    ctypedef struct hf_top_f32:
        pass
    ctypedef struct hf_columns_f32:
        pass
    ctypedef struct hf_columns_f64:
        pass
    ctypedef struct hf_top_f64:
        pass
    int HF_BY_COLUMNS
    int hf_way_f32(int path, int gathers, int64_t n_features, int64_t n_trees, int64_t n_nodes)
    void hf_pack_f32(int way, const hf_forest_f32*, int64_t n_features, int64_t tree, hf_node_f32*)
    void hf_pack_keys_f32(
        const hf_forest_f32*, int64_t n_features, int64_t tree, hf_node_f32*, hf_top_f32*, int32_t* depth
    )
    void hf_make_columns_f32(const float* x, int64_t n_features, int64_t n, hf_columns_f32*)
    int hf_way_f64(int path, int gathers, int64_t n_features, int64_t n_trees, int64_t n_nodes)
    void hf_pack_f64(int way, const hf_forest_f64*, int64_t n_features, int64_t tree, hf_node_f64*)
    void hf_pack_keys_f64(
        const hf_forest_f64*, int64_t n_features, int64_t tree, hf_node_f64*, hf_top_f64*, int32_t* depth
    )
    void hf_make_columns_f64(const double* x, int64_t n_features, int64_t n, hf_columns_f64*)
    void hf_leaves_f32(
        int path, int way, const hf_forest_f32*, const hf_node_f32*, const hf_top_f32*, const float* x,
        const hf_columns_f32*, int64_t n_features, int64_t n, int64_t first, int64_t last, int32_t* scratch,
        int32_t* leaf, int64_t row_stride, int64_t tree_stride,
    )
    void hf_leaves_f64(
        int path, int way, const hf_forest_f64*, const hf_node_f64*, const hf_top_f64*, const double* x,
        const hf_columns_f64*, int64_t n_features, int64_t n, int64_t first, int64_t last, int32_t* scratch,
        int32_t* leaf, int64_t row_stride, int64_t tree_stride,
    )
    int hf_class_leaves_f32(
        int path, const hf_forest_f32*, const float* value, int64_t n_outputs, int vote, int64_t tree,
        int32_t* class_of,
    )
    int hf_class_leaves_f64(
        int path, const hf_forest_f64*, const double* value, int64_t n_outputs, int vote, int64_t tree,
        int32_t* class_of,
    )
    void hf_add_leaves_f32(
        int path, const hf_forest_f32*, const float* value, int64_t n_outputs, int vote, int64_t first,
        int64_t last, int64_t n, const int32_t* leaf, int64_t tree_stride, double* total,
    )
    void hf_add_leaves_f64(
        int path, const hf_forest_f64*, const double* value, int64_t n_outputs, int vote, int64_t first,
        int64_t last, int64_t n, const int32_t* leaf, int64_t tree_stride, double* total,
    )

ctypedef fused real:
    float
    double

cdef enum:
    MIN_BLOCK = 128       # samples of a block, at least
    MAX_BLOCK = 2048      # and at most: the more, the longer a tree is used from L1
    ROWS = 1 << 18        # bytes of their rows, which stay in L2 with a tree
    GROUP = 16            # samples walked in a tree at once: HF_DOWN of walk.h
    LINE = 64             # bytes of a cache line
    TREES = 8             # trees walked before their leaf values are added: HF_WALKS of walk.h
    SMALL = 1 << 10       # pairs of a sample and a tree below which a second thread does not pay
    STEPS = 32            # nodes for each walk up to which packing them pays
    WALKS = 1 << 16       # walks between two looks for signals,
    OBLIQUE_WALKS = 1 << 12   # and through projections


cdef struct Batch:
    # What a call works on, whatever the dtype.
    const void* forest
    const void* nodes
    const void* tops
    const void* x
    const void* value
    int64_t n_trees
    int64_t n_features
    int64_t n_samples
    int64_t n_outputs
    int vote
    int path
    int way
    # Samples of a block; of packed forests: classes of the leaves, and which trees have them.
    int64_t block
    const int64_t* tree_start
    int32_t* class_of
    char* has_classes
    # Walks between two looks for signals.
    int64_t walks
    hf_watch* watch


cdef void _walk(
    const Batch* b, bint wide, const void* columns, int64_t first, int64_t n, int64_t tree, int64_t last,
    int32_t* scratch, int32_t* leaf, int64_t row_stride, int64_t tree_stride,
) noexcept nogil:
    if wide:
        hf_leaves_f64(
            b.path, b.way, <const hf_forest_f64*> b.forest, <const hf_node_f64*> b.nodes,
            <const hf_top_f64*> b.tops, <const double*> b.x + first * b.n_features,
            <const hf_columns_f64*> columns, b.n_features, n, tree, last, scratch, leaf, row_stride,
            tree_stride,
        )
    else:
        hf_leaves_f32(
            b.path, b.way, <const hf_forest_f32*> b.forest, <const hf_node_f32*> b.nodes,
            <const hf_top_f32*> b.tops, <const float*> b.x + first * b.n_features,
            <const hf_columns_f32*> columns, b.n_features, n, tree, last, scratch, leaf, row_stride,
            tree_stride,
        )


cdef void _add(
    const Batch* b, bint wide, int64_t n, int64_t tree, int64_t last, const int32_t* leaf,
    int64_t tree_stride, double* total,
) noexcept nogil:
    cdef const int32_t* class_of
    cdef int64_t i
    if b.has_classes != NULL and b.has_classes[tree]:
        class_of = b.class_of + b.tree_start[tree]
        for i in range(n):
            total[i * b.n_outputs + class_of[leaf[i]]] += 1
    elif wide:
        hf_add_leaves_f64(
            b.path, <const hf_forest_f64*> b.forest, <const double*> b.value, b.n_outputs, b.vote, tree,
            last, n, leaf, tree_stride, total,
        )
    else:
        hf_add_leaves_f32(
            b.path, <const hf_forest_f32*> b.forest, <const float*> b.value, b.n_outputs, b.vote, tree,
            last, n, leaf, tree_stride, total,
        )


cdef int _block(const Batch* b, bint wide, int64_t first, int32_t* leaf, void* y) noexcept nogil:
    # Returns 0 if memory is out.
    cdef int64_t n = min(b.block, b.n_samples - first), tree = 0, last, i, n_steps = 0
    cdef int64_t n_sums = n * b.n_outputs if y != NULL else 0
    # Whole groups of samples; a column of them begins with a cache line.
    cdef int64_t whole = (n + GROUP - 1) // GROUP * GROUP
    cdef int64_t n_bytes = whole * max(b.n_features, <int64_t> 1) * (8 if wide else 4)
    n_bytes += sizeof(hf_columns_f64) if wide else sizeof(hf_columns_f32)
    cdef char* workspace
    cdef char* columns = NULL
    cdef double* total
    cdef int32_t* reached
    if b.nodes == NULL or b.way != HF_BY_COLUMNS:
        n_bytes = 0
    workspace = <char*> malloc(LINE + n_bytes + n_sums * sizeof(double) + TREES * whole * sizeof(int32_t))
    if workspace == NULL:
        return 0
    columns = workspace + (-<uintptr_t> workspace) % LINE
    total = <double*> (columns + n_bytes)
    reached = <int32_t*> (columns + n_bytes + n_sums * sizeof(double))
    if n_bytes and wide:
        hf_make_columns_f64(
            <const double*> b.x + first * b.n_features, b.n_features, n, <hf_columns_f64*> columns
        )
    elif n_bytes:
        hf_make_columns_f32(
            <const float*> b.x + first * b.n_features, b.n_features, n, <hf_columns_f32*> columns
        )
    if y == NULL:
        leaf += first * b.n_trees
        while tree < b.n_trees and not hf_stopped(b.watch):
            last = min(tree + max(b.walks // n // TREES, 1) * TREES, b.n_trees)
            _walk(b, wide, columns, first, n, tree, last, reached, leaf + tree, b.n_trees, 1)
            tree = last
        free(workspace)
        return 1
    memset(total, 0, n_sums * sizeof(double))
    while tree < b.n_trees:
        # One tree if leaves are classes, which stay in cache with it; else several, whose rows are
        # added at once.
        last = tree + 1
        if b.has_classes == NULL or not b.has_classes[tree]:
            while last < min(tree + TREES, b.n_trees) and (b.has_classes == NULL or not b.has_classes[last]):
                last += 1
        _walk(b, wide, columns, first, n, tree, last, NULL, reached, 1, whole)
        _add(b, wide, n, tree, last, reached, whole, total)
        n_steps += n * (last - tree)
        tree = last
        if n_steps >= b.walks:
            n_steps = 0
            if hf_stopped(b.watch):
                break
    if wide:
        for i in range(n_sums):
            (<double*> y)[first * b.n_outputs + i] = total[i] / b.n_trees
    else:
        for i in range(n_sums):
            (<float*> y)[first * b.n_outputs + i] = <float> (total[i] / b.n_trees)
    free(workspace)
    return 1


cdef void _prepare(Batch* b, bint wide, int64_t tree, void* nodes, void* tops) noexcept nogil:
    # The depths of nodes are kept in the array of their classes, which are written later.
    cdef int32_t* depth = b.class_of + b.tree_start[tree]
    if b.way == HF_BY_COLUMNS and wide:
        hf_pack_keys_f64(
            <const hf_forest_f64*> b.forest, b.n_features, tree, <hf_node_f64*> nodes,
            <hf_top_f64*> tops + tree, depth,
        )
    elif b.way == HF_BY_COLUMNS:
        hf_pack_keys_f32(
            <const hf_forest_f32*> b.forest, b.n_features, tree, <hf_node_f32*> nodes,
            <hf_top_f32*> tops + tree, depth,
        )
    elif wide:
        hf_pack_f64(b.way, <const hf_forest_f64*> b.forest, b.n_features, tree, <hf_node_f64*> nodes)
    else:
        hf_pack_f32(b.way, <const hf_forest_f32*> b.forest, b.n_features, tree, <hf_node_f32*> nodes)
    if b.has_classes != NULL and wide:
        b.has_classes[tree] = hf_class_leaves_f64(
            b.path, <const hf_forest_f64*> b.forest, <const double*> b.value, b.n_outputs, b.vote, tree,
            b.class_of,
        )
    elif b.has_classes != NULL:
        b.has_classes[tree] = hf_class_leaves_f32(
            b.path, <const hf_forest_f32*> b.forest, <const float*> b.value, b.n_outputs, b.vote, tree,
            b.class_of,
        )


cdef int _run(Batch* b, bint wide, int32_t* leaf, void* y, int64_t n_nodes, bint oblique) noexcept nogil:
    # Returns 0 if memory is out.
    cdef int64_t n_blocks, block = 0, tree = 0, row = b.n_features * (8 if wide else 4)
    cdef int64_t node = sizeof(hf_node_f64) if wide else sizeof(hf_node_f32)
    cdef int64_t top = sizeof(hf_top_f64) if wide else sizeof(hf_top_f32)
    cdef int threads = 1 if b.n_samples * b.n_trees < SMALL else hf_threads()
    cdef char* nodes = NULL
    cdef char* tops
    if not oblique and b.n_samples * b.n_trees * STEPS >= n_nodes:
        nodes = <char*> malloc(b.n_trees * (top + 1) + n_nodes * (node + sizeof(int32_t)))
        if nodes == NULL:
            return 0
        tops = nodes + n_nodes * node
        b.tops = tops
        b.class_of = <int32_t*> (tops + b.n_trees * top)
        if y != NULL:
            b.has_classes = <char*> (b.class_of + n_nodes)
        hf_share(b.watch, b.n_trees)
        with parallel(num_threads=threads):
            tree = hf_take(b.watch)
            while tree >= 0:
                _prepare(b, wide, tree, nodes, tops)
                tree = hf_take(b.watch)
    b.nodes = nodes
    # Blocks as large as caches and a fair share of the threads allow.
    b.block = min(MAX_BLOCK, min(ROWS // max(row, 1), b.n_samples // (4 * threads)))
    b.block = max(MIN_BLOCK, b.block) // GROUP * GROUP
    n_blocks = (b.n_samples + b.block - 1) // b.block
    if n_blocks == 1:
        # Without the cost of a parallel region. Trees may have been left unprepared.
        if hf_has_stopped(b.watch) or not _block(b, wide, 0, leaf, y):
            hf_stop(b.watch)
    else:
        hf_share(b.watch, n_blocks)
        with parallel(num_threads=threads):
            block = hf_take(b.watch)
            while block >= 0:
                if not _block(b, wide, block * b.block, leaf, y):
                    hf_stop(b.watch)
                block = hf_take(b.watch)
    free(nodes)
    return not b.watch.stopped


cdef int _call(
    cnp.ndarray x, cnp.ndarray tree_start, cnp.ndarray feature, cnp.ndarray threshold, cnp.ndarray left,
    cnp.ndarray indptr, cnp.ndarray indices, cnp.ndarray data, cnp.ndarray leaf, cnp.ndarray value, bint vote,
    cnp.ndarray y,
) except -1:
    # Pointers taken once: a memoryview of each array would cost more than a sample's walks.
    cdef hf_forest_f32 narrow
    cdef hf_forest_f64 doubles
    cdef Batch b
    cdef bint wide = cnp.PyArray_ITEMSIZE(x) == 8, oblique = cnp.PyArray_DIM(indptr, 0) > 0
    cdef int64_t n_nodes = cnp.PyArray_DIM(feature, 0)
    cdef int32_t* leaves_to = NULL if leaf is None else <int32_t*> cnp.PyArray_DATA(leaf)
    cdef void* y_to = NULL if y is None else cnp.PyArray_DATA(y)
    cdef hf_watch watch
    cdef int done
    start_watch(&watch)
    b.watch = &watch
    b.walks = OBLIQUE_WALKS if oblique else WALKS
    b.x = cnp.PyArray_DATA(x)
    b.value = NULL if value is None else cnp.PyArray_DATA(value)
    b.n_trees = cnp.PyArray_DIM(tree_start, 0) - 1
    b.n_samples = cnp.PyArray_DIM(x, 0)
    b.n_features = cnp.PyArray_DIM(x, 1)
    b.n_outputs = 0 if value is None else cnp.PyArray_DIM(value, 1)
    b.vote = vote
    b.path = simd_path()
    if wide:
        b.way = hf_way_f64(b.path, simd_gathers(), b.n_features, b.n_trees, n_nodes)
    else:
        b.way = hf_way_f32(b.path, simd_gathers(), b.n_features, b.n_trees, n_nodes)
    b.tree_start = <const int64_t*> cnp.PyArray_DATA(tree_start)
    b.tops, b.class_of, b.has_classes = NULL, NULL, NULL
    # Both hold the same pointers; the dtype says which is read.
    doubles.tree_start = narrow.tree_start = <const int64_t*> cnp.PyArray_DATA(tree_start)
    doubles.feature = narrow.feature = <const int32_t*> cnp.PyArray_DATA(feature)
    doubles.left = narrow.left = <const int32_t*> cnp.PyArray_DATA(left)
    doubles.indptr = narrow.indptr = <const int64_t*> cnp.PyArray_DATA(indptr) if oblique else NULL
    doubles.indices = narrow.indices = <const int32_t*> cnp.PyArray_DATA(indices)
    narrow.threshold = <const float*> cnp.PyArray_DATA(threshold)
    doubles.threshold = <const double*> cnp.PyArray_DATA(threshold)
    narrow.data = <const float*> cnp.PyArray_DATA(data)
    doubles.data = <const double*> cnp.PyArray_DATA(data)
    b.forest = <const void*> &doubles if wide else <const void*> &narrow
    with nogil:
        done = _run(&b, wide, leaves_to, y_to, n_nodes, oblique)
    raise_interrupt(&watch)
    if not done:
        raise MemoryError("forest: no memory to walk it; pass fewer samples or trees at a time")
    return 0


def apply(x, tree_start, feature, threshold, left, indptr, indices, data, leaf):
    """Writes the leaf that each sample reaches in each tree, numbered within the tree."""
    _call(x, tree_start, feature, threshold, left, indptr, indices, data, leaf, None, False, None)


def predict(x, tree_start, feature, threshold, left, indptr, indices, data, value, vote, y):
    """Writes the mean over trees of the leaf values, or the share of the trees that vote for each class."""
    _call(x, tree_start, feature, threshold, left, indptr, indices, data, None, value, vote, y)


cdef int _fault(
    int64_t at, int64_t v, int64_t n_nodes, const int32_t[::1] feature, const real[::1] threshold,
    const int32_t[::1] left, const int64_t[::1] indptr, const int32_t[::1] indices, int64_t n_features,
) noexcept nogil:
    cdef int64_t f = feature[at], to = left[at], j
    if f == -1:
        return 0 if 0 <= to < (n_nodes + 1) // 2 else 1
    # Children come after their parent: no cycles.
    if not v < to < n_nodes - 1:
        return 2
    if isnan(threshold[at]):
        return 3
    if f == -2 and indptr.shape[0]:
        if not 0 <= indptr[at] <= indptr[at + 1] <= indices.shape[0]:
            return 5
        for j in range(indptr[at], indptr[at + 1]):
            if not 0 <= indices[j] < n_features:
                return 6
        return 0
    return 0 if 0 <= f < n_features else 4


cdef int _is_plain(
    uint32_t n_nodes, const int32_t* feature, const real* threshold, const int32_t* left, int64_t n_features
) noexcept nogil:
    # Whether a tree is sound, without projections and breadth-first: the children of the next split are
    # nodes n_known and n_known + 1, so that nodes 1 to n_known - 1 have one parent each. It has no branches:
    # half the nodes are leaves, so that one would often be guessed wrong.
    cdef uint32_t n_leaves = (n_nodes + 1) // 2, most = <uint32_t> min(n_features, <int64_t> 1 << 31)
    cdef uint32_t n_known = 1, bad = 0, v, split
    for v in range(n_nodes):
        split = feature[v] != -1
        bad |= <uint32_t> left[v] - (n_known & (0 - split)) >= (1 if split else n_leaves)
        bad |= (<uint32_t> feature[v] + 1 > most) | (threshold[v] != threshold[v]) | (v >= n_known)
        n_known += 2 * split
    return not bad and n_known == n_nodes


cdef int _tree_faults(
    int64_t root, int64_t n_nodes, const int32_t[::1] feature, const real[::1] threshold,
    const int32_t[::1] left, const int64_t[::1] indptr, const int32_t[::1] indices, int64_t n_features,
    int64_t[::1] found,
) noexcept nogil:
    # Returns 0 if memory is out.
    cdef char* n_parents
    cdef int64_t v
    cdef int kind
    if indptr.shape[0] == 0:
        if _is_plain(<uint32_t> n_nodes, &feature[root], &threshold[root], &left[root], n_features):
            return 1
    # 0, 1 or 2 for each node; 2 stands for more, too. The root needs no parent.
    n_parents = <char*> calloc(n_nodes, 1)
    if n_parents == NULL:
        return 0
    n_parents[0] = 1
    for v in range(n_nodes):
        kind = _fault(root + v, v, n_nodes, feature, threshold, left, indptr, indices, n_features)
        if kind == 0 and n_parents[v] != 1:
            # Parents come before their children: all parents of v have been counted.
            kind = 7 if n_parents[v] else 8
        if kind:
            found[0] = root + v
            found[1] = kind
            break
        if feature[root + v] != -1:
            _count(n_parents + left[root + v])
            _count(n_parents + left[root + v] + 1)
    free(n_parents)
    return 1


cdef inline void _count(char* n_parents) noexcept nogil:
    n_parents[0] = 2 if n_parents[0] else 1


cdef int _faults(
    const int64_t[::1] tree_start, const int32_t[::1] feature, const real[::1] threshold,
    const int32_t[::1] left, const int64_t[::1] indptr, const int32_t[::1] indices, int64_t n_features,
    int64_t[::1] found, hf_watch* watch,
) except -1 nogil:
    cdef int64_t tree, n_steps = 0
    cdef int done
    found[0] = -1
    found[1] = 0
    for tree in range(tree_start.shape[0] - 1):
        done = _tree_faults(
            tree_start[tree], tree_start[tree + 1] - tree_start[tree], feature, threshold, left, indptr,
            indices, n_features, found,
        )
        if not done:
            raise MemoryError("forest: no memory to check it; free a byte for each node of its largest tree")
        if found[1] or hf_stopped_after(watch, &n_steps, tree_start[tree + 1] - tree_start[tree]):
            break
    return 0


def faults(tree_start, feature, threshold, left, indptr, indices, n_features, found):
    """found[0] = the first node with a fault, or -1; found[1] = the number of the fault, or 0."""
    cdef hf_watch watch
    start_watch(&watch)
    if threshold.dtype.itemsize == 4:
        _faults[float](tree_start, feature, threshold, left, indptr, indices, n_features, found, &watch)
    else:
        _faults[double](tree_start, feature, threshold, left, indptr, indices, n_features, found, &watch)
    raise_interrupt(&watch)
