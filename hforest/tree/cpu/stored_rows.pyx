"""Walks of the rows of a sparse matrix.

A row is written to an array of all features, which is 0 between two rows; a bit set marks the features that
the row stores. Few features are stored, so that most comparisons read 0 from the bits alone, which stay in
cache:

    stored      . . 3 . . . 7 .
    row         0 0 3 0 0 0 7 0
    bits        0 0 1 0 0 0 1 0
"""

from cython.parallel cimport prange, threadid
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset

cimport hforest.core.arrays as cnp
from hforest.core.arena cimport hf_arena, release, take, take_zeros
from hforest.core.machine cimport (
    hf_begin, hf_end, hf_stop, hf_stopped, hf_threads_for, hf_units, hf_watch, raise_stopped, start_watch,
)
from hforest.core.views cimport start
from hforest.tree.cpu.walk cimport (
    BY_ROWS, HF_WALKS, Walk, add_leaves, find_leaves, hf_double_node, hf_float_node, node_size, pack_tree,
    real, walk_of,
)

cnp.import_array()

cdef enum:
    ROW_BLOCK = 256       # rows per block at most, for which a group of trees stays in cache
    TREES = 32            # trees per group
    PAIR_NS = 100         # nanoseconds per pair of a row and a tree
    STEPS = 32            # nodes per walk up to which packing the trees pays


# The rows of a sparse matrix: row i stores entries indptr[i] to indptr[i + 1] - 1.
cdef struct Rows:
    const int64_t* indptr
    const int32_t* feature
    const void* number        # float if `single` of the walk, else double


# The workspace of one thread.
cdef struct Space:
    hf_arena arena
    char* row                 # (n_features,) float or double; 0 between two rows
    uint64_t* bits            # (n_features // 64 + 1,); a bit is 1 if the row stores the feature
    int32_t* leaf             # (TREES,)
    double* total             # (rows per block, n_outputs)


cdef void _spread(const Walk* w, const Rows* rows, int64_t i, bint clear, Space* s) noexcept nogil:
    # Writes the values of a row to their features, and sets their bits; or clears both.
    cdef int64_t e
    cdef int32_t f
    for e in range(rows.indptr[i], rows.indptr[i + 1]):
        f = rows.feature[e]
        if clear:
            s.bits[f >> 6] = 0
        else:
            s.bits[f >> 6] |= <uint64_t> 1 << (f & 63)
        if w.single:
            (<float*> s.row)[f] = 0 if clear else (<const float*> rows.number)[e]
        else:
            (<double*> s.row)[f] = 0 if clear else (<const double*> rows.number)[e]


cdef inline int32_t _step(
    const Walk* w, const char* tree, int32_t v, const real* row, const uint64_t* bits
) noexcept nogil:
    # Returns the child of a packed node; the node itself if it is a leaf.
    cdef const hf_float_node* floats
    cdef const hf_double_node* doubles
    cdef real value = 0
    if real is float:
        floats = <const hf_float_node*> tree + v
        if bits[floats.feature >> 6] >> (floats.feature & 63) & 1:
            value = row[floats.feature]
        return floats.next + (value > floats.threshold)
    else:
        doubles = <const hf_double_node*> tree + v
        if bits[doubles.feature >> 6] >> (doubles.feature & 63) & 1:
            value = row[doubles.feature]
        return doubles.next + (value > doubles.threshold)


cdef void _walk_packed(
    const Walk* w, int64_t first, int64_t last, const real* row, const uint64_t* bits, int32_t* leaf
) noexcept nogil:
    # Writes the leaves that a row reaches in packed trees. Walks are interleaved; when one ends, the walk of
    # the next tree takes its slot.
    cdef const char* tree[HF_WALKS]
    cdef int32_t* to[HF_WALKS]
    cdef int32_t v[HF_WALKS]
    cdef int32_t next
    cdef int64_t entered = first
    cdef int n = 0, g
    while n < HF_WALKS and entered < last:
        tree[n], v[n] = w.nodes + w.forest.tree_start[entered] * node_size(w), 0
        to[n] = leaf + (entered - first)
        n += 1
        entered += 1
    while n:
        g = 0
        while g < n:
            next = _step(w, tree[g], v[g], row, bits)
            if next != v[g]:
                v[g] = next
                g += 1
                continue
            to[g][0] = next
            if entered < last:
                tree[g], v[g] = w.nodes + w.forest.tree_start[entered] * node_size(w), 0
                to[g] = leaf + (entered - first)
                entered += 1
                g += 1
            else:
                n -= 1
                tree[g], v[g], to[g] = tree[n], v[n], to[n]


cdef void _find(const Walk* w, int64_t first, int64_t last, Space* s) noexcept nogil:
    # Writes the leaves of a row in trees [first, last).
    if w.nodes == NULL:
        find_leaves(w, s.row, NULL, NULL, 1, first, last, NULL, s.leaf, 1, 1)
    elif w.single:
        _walk_packed(w, first, last, <const float*> s.row, s.bits, s.leaf)
    else:
        _walk_packed(w, first, last, <const double*> s.row, s.bits, s.leaf)


cdef void _add(const Walk* w, int64_t first, int64_t last, const int32_t* leaf, double* total) noexcept nogil:
    # Adds the leaf values, or votes, of a row.
    cdef int64_t tree = first, stop
    while tree < last:
        stop = min(tree + HF_WALKS, last)
        if w.single:
            add_leaves(w, <const float*> w.value, tree, stop, 1, leaf + (tree - first), 1, total)
        else:
            add_leaves(w, <const double*> w.value, tree, stop, 1, leaf + (tree - first), 1, total)
        tree = stop


cdef void _block(const Walk* w, const Rows* rows, int64_t first, int64_t n, Space* s) noexcept nogil:
    # Writes the leaves, or the means, of n rows from `first` on. A group of trees stays in cache while all
    # rows pass it.
    cdef int64_t tree = 0, last, i
    if w.y != NULL:
        memset(s.total, 0, n * w.n_outputs * sizeof(double))
    while tree < w.n_trees and not hf_stopped(w.watch):
        last = min(tree + TREES, w.n_trees)
        for i in range(n):
            _spread(w, rows, first + i, False, s)
            _find(w, tree, last, s)
            _spread(w, rows, first + i, True, s)
            if w.y == NULL:
                memcpy(w.leaf + (first + i) * w.n_trees + tree, s.leaf, (last - tree) * sizeof(int32_t))
            else:
                _add(w, tree, last, s.leaf, s.total + i * w.n_outputs)
        tree = last
    if w.y == NULL:
        return
    for i in range(n * w.n_outputs):
        if w.single:
            (<float*> w.y)[first * w.n_outputs + i] = <float> (s.total[i] / w.n_trees)
        else:
            (<double*> w.y)[first * w.n_outputs + i] = s.total[i] / w.n_trees


cdef bint _start(const Walk* w, int64_t size, Space* s) noexcept nogil:
    # Allocates the workspace of a thread before its first block, of at most `size` rows; returns whether
    # there was memory.
    cdef hf_arena* arena = &s.arena
    if arena.last == NULL:
        s.row = <char*> take_zeros(arena, w.n_features * (4 if w.single else 8))
        s.bits = <uint64_t*> take_zeros(arena, (w.n_features // 64 + 1) * 8)
        s.leaf = <int32_t*> take(arena, TREES * sizeof(int32_t))
        s.total = <double*> take(arena, size * w.n_outputs * sizeof(double))
    return not arena.failed


cdef void _run_block(const Walk* w, const Rows* rows, int64_t first, int64_t size, Space* s) noexcept nogil:
    # Processes a block of at most `size` rows.
    if _start(w, size, s):
        _block(w, rows, first, min(size, w.n_samples - first), s)
    else:
        hf_stop(w.watch)


cdef void _pack(Walk* w, int64_t n_nodes, hf_arena* arena) noexcept nogil:
    # Packs the nodes of all trees, if there is memory.
    cdef int64_t tree
    w.nodes, w.way = <char*> take(arena, n_nodes * node_size(w)), BY_ROWS
    for tree in range(0 if arena.failed else w.n_trees):
        if w.single:
            pack_tree(w, <const float*> w.forest.threshold, tree)
        else:
            pack_tree(w, <const double*> w.forest.threshold, tree)


cdef void _run(Walk* w, const Rows* rows, int64_t n_nodes) noexcept nogil:
    cdef int threads = hf_threads_for(<double> PAIR_NS * w.n_samples * w.n_trees), t
    cdef int64_t size = max(1, min(ROW_BLOCK, w.n_samples // (4 * threads)))
    cdef int64_t n_blocks = (w.n_samples + size - 1) // size, block
    cdef hf_arena arena
    cdef Space* spaces
    memset(&arena, 0, sizeof(hf_arena))
    spaces = <Space*> take_zeros(&arena, threads * sizeof(Space))
    if not w.node_by_node and w.n_samples * w.n_trees * STEPS >= n_nodes:
        _pack(w, n_nodes, &arena)
    if arena.failed:
        hf_stop(w.watch)
    for block in prange(hf_units(w.watch, n_blocks, threads), schedule="dynamic", num_threads=threads):
        if hf_begin(w.watch, block):
            _run_block(w, rows, block * size, size, &spaces[threadid()])
            hf_end(w.watch)
    for t in range(0 if spaces == NULL else threads):
        release(&spaces[t].arena)
    release(&arena)


cdef int call_rows(rows, forest, bint vote, int32_t[:, ::1] leaf, cnp.ndarray y) except -1:
    # Writes leaves, means or vote shares of the rows of a sparse matrix.
    cdef cnp.ndarray number = rows.data, value = forest.value
    cdef const int32_t[::1] feature = rows.indices
    cdef const int64_t[::1] indptr = rows.indptr
    cdef Walk w = walk_of(number.reshape(1, -1), forest)
    cdef int64_t n_nodes = len(forest.feature)
    cdef Rows a
    cdef hf_watch watch
    a.indptr, a.feature, a.number = &indptr[0], start(feature), cnp.PyArray_DATA(number)
    w.n_samples, w.n_features = indptr.shape[0] - 1, rows.n_minor
    w.value, w.n_outputs, w.vote = cnp.PyArray_DATA(value), cnp.PyArray_DIM(value, 1), vote
    w.leaf, w.y = NULL if leaf is None else &leaf[0, 0], NULL if y is None else cnp.PyArray_DATA(y)
    start_watch(&watch)
    w.watch = &watch
    with nogil:
        _run(&w, &a, n_nodes)
    return raise_stopped(&watch, "forest: no memory to walk it with rows of {} features", w.n_features)
