"""CPU backend of growth. A thread owns a tree, or a block of columns to encode."""

import numpy as np

from cython.parallel cimport parallel
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

cimport numpy as cnp

from hforest.core.machine cimport (
    hf_share, hf_stop, hf_stopped, hf_take, hf_threads, hf_watch, raise_interrupt, simd_path,
    start_watch,
)


cnp.import_array()

cdef extern from "core/order.h" nogil:
    uint64_t hf_ordered(double a)

cdef extern from "growth/encode.h" nogil:
    int64_t hf_encode_bytes(
        const double* value, int64_t n, int64_t n_codes, uint32_t* code, double* low, double* high
    )
    int64_t hf_encode(
        const double* value, int64_t n, int64_t n_codes, uint64_t* key, uint32_t* index, uint64_t* key2,
        uint32_t* index2, uint32_t* code, double* low, double* high, hf_watch* watch,
    )

cdef extern from "core/atoms.h" nogil:
    int HF_ATOM_AXES
    ctypedef struct hf_atoms:
        int kind
        int64_t n_features
        double rate
        double none
        int64_t shape[3]
        int64_t channels
        int64_t low[3]
        int64_t high[3]
        int cyclic
        int64_t most
    void hf_fill_up_to(hf_atoms* a)

cdef extern from "growth/engine.h" nogil:
    int HF_PATH_AVX512, HF_PATH_PLAIN
    ctypedef struct hf_task:
        const void* codes
        int width
        int64_t n
        int64_t n_columns
        const double* low
        const double* high
        int64_t n_codes
        const void* rows
        int path
        const int64_t* base
        const int64_t* offset
        int single
        const hf_atoms* atoms
        const void* x
        int whole
        const uint8_t* small
        const void* columns
        const void* table
        int narrow
        const int32_t* labels
        const double* targets
        int64_t n_outputs
        const double* weight
        int criterion
        int64_t n_drawn
        int64_t max_depth
        int64_t min_split
        int64_t min_leaf
        double min_decrease
        int completely_random
        int in_floats
        uint64_t seed
        hf_watch* watch
    ctypedef struct hf_tree:
        int32_t* feature
        int32_t* left
        double* threshold
        double* gain
        void* value
        int64_t n_nodes
        int64_t n_leaves
        int64_t n_entries
    ctypedef struct hf_arrays:
        int32_t* feature
        int32_t* left
        void* threshold
        void* value
        void* gain
        int64_t* start
        int64_t first_entry
        int32_t* index
        void* weight
    int hf_order_tree(const hf_tree* tree, int64_t n_outputs, int single, hf_arrays to)
    int hf_grow(const hf_task* t, int64_t number, const int32_t* bag, hf_tree* tree)
    void hf_draw_bag(uint64_t seed, int64_t tree, int64_t n, int32_t* count)
    void hf_free_tree(hf_tree* tree)
    void hf_fill_table_f32_16(const hf_atoms* a, const float* x, uint16_t* table)
    void hf_fill_table_f32_32(const hf_atoms* a, const float* x, uint32_t* table)
    void hf_fill_table_f64_16(const hf_atoms* a, const double* x, uint16_t* table)
    void hf_fill_table_f64_32(const hf_atoms* a, const double* x, uint32_t* table)
    int hf_whole_row_f32(const float* x, int64_t n_features, uint8_t* small)
    int hf_whole_row_f64(const double* x, int64_t n_features, uint8_t* small)

ctypedef fused real:
    float
    double


def bootstrap_counts(uint64_t seed, int64_t first, int32_t[:, ::1] counts):
    """Writes to counts[m] (OUT) how often tree first + m draws each sample, n times with replacement."""
    cdef int64_t m = 0
    cdef hf_watch watch
    if counts.size == 0:
        return
    start_watch(&watch)
    hf_share(&watch, counts.shape[0])
    with nogil, parallel(num_threads=hf_threads()):
        m = hf_take(&watch)
        while m >= 0:
            hf_draw_bag(seed, first + m, counts.shape[1], &counts[m, 0])
            m = hf_take(&watch)
    raise_interrupt(&watch)


cdef enum:
    COLUMNS = 16          # columns that are read together: a row of them is a cache line or two
    ENCODED_ALONE = 1 << 15   # values that one thread encodes before a second one would have begun
    COPIED = 1 << 24      # numbers that NumPy copies between two looks for signals
    ROWS = 1 << 12        # rows of columns that are copied between two looks for signals


cdef int _encode_columns(
    const real[:, ::1] x, Py_ssize_t first, Py_ssize_t last, uint32_t[:, ::1] bins, double[:, ::1] low,
    double[:, ::1] high, int64_t[::1] n_bins, hf_watch* watch,
) noexcept nogil:
    # Returns 0 if memory is out.
    cdef Py_ssize_t n = x.shape[0], i, f
    cdef char* workspace = <char*> malloc(n * 32 + (last - first) * n * sizeof(real))
    cdef double* value = <double*> workspace
    cdef uint64_t* key = <uint64_t*> (workspace + 8 * n)
    cdef uint64_t* key2 = <uint64_t*> (workspace + 16 * n)
    cdef uint32_t* index = <uint32_t*> (workspace + 24 * n)
    cdef real* column = <real*> (workspace + 32 * n)
    if workspace == NULL:
        return 0
    for i in range(n):
        if i % ROWS == 0 and hf_stopped(watch):
            break
        for f in range(first, last):
            column[(f - first) * n + i] = x[i, f]
    for f in range(first, last):
        if hf_stopped(watch):
            break
        for i in range(n):
            value[i] = column[(f - first) * n + i]
        n_bins[f] = hf_encode_bytes(value, n, low.shape[1], &bins[f, 0], &low[f, 0], &high[f, 0])
        if n_bins[f]:
            continue
        for i in range(n):
            key[i] = hf_ordered(value[i])
            index[i] = <uint32_t> i
        n_bins[f] = hf_encode(
            value, n, low.shape[1], key, index, key2, index + n, &bins[f, 0], &low[f, 0], &high[f, 0], watch
        )
    free(workspace)
    return 1


cdef void _encode(
    const real[:, ::1] x, uint32_t[:, ::1] bins, double[:, ::1] low, double[:, ::1] high,
    int64_t[::1] n_bins, hf_watch* watch,
) noexcept nogil:
    cdef int64_t block = 0
    # Threads cost more than they save on few values.
    cdef int threads = 1 if x.shape[0] * x.shape[1] < ENCODED_ALONE else hf_threads()
    hf_share(watch, (x.shape[1] + COLUMNS - 1) // COLUMNS)
    with parallel(num_threads=threads):
        block = hf_take(watch)
        while block >= 0:
            if not _encode_columns(
                x, block * COLUMNS, min((block + 1) * COLUMNS, x.shape[1]), bins, low, high, n_bins, watch
            ):
                hf_stop(watch)
            block = hf_take(watch)


def encode(x, bins, low, high, n_bins):
    """Writes the rank of each value in its column, or its bin where ranks are more than a row of `low` holds.

    x (n, n_columns): IN. bins (n_columns, n) uint32, low and high (n_columns, most) float64 and n_bins
    (n_columns,) int64: OUT.
    """
    cdef hf_watch watch
    start_watch(&watch)
    if x.dtype.itemsize == 4:
        _encode[float](x, bins, low, high, n_bins, &watch)
    else:
        _encode[double](x, bins, low, high, n_bins, &watch)
    raise_interrupt(&watch)
    if watch.stopped:
        raise MemoryError(f"encode: no memory to order {x.shape[0]} values")


cdef class _Grown:
    """A tree in the order of its growth; `joined` writes it breadth-first."""

    cdef hf_tree tree

    def __dealloc__(self):
        hf_free_tree(&self.tree)


cdef void* _at(cnp.ndarray array, int64_t number):
    return <void*> (<char*> cnp.PyArray_DATA(array) + number * cnp.PyArray_ITEMSIZE(array))


def joined(trees, int64_t n_outputs, dtype, bint projected):
    """Returns the arrays of trees that `grow` or `grow_projected` appended: see `trees.joined`."""
    cdef int64_t m, n_trees = len(trees)
    cdef hf_arrays part
    cdef hf_arrays* parts = <hf_arrays*> malloc(n_trees * sizeof(hf_arrays))
    cdef hf_tree** tree = <hf_tree**> malloc(n_trees * sizeof(hf_tree*))
    cdef int single = dtype.itemsize == 4
    cdef hf_watch watch
    cdef int64_t[::1] nodes = np.zeros(n_trees + 1, np.int64), leaves = np.zeros(n_trees + 1, np.int64)
    cdef int64_t[::1] entries = np.zeros(n_trees + 1, np.int64)
    try:
        if parts == NULL or tree == NULL:
            raise MemoryError(f"grow: no memory for {n_trees} trees")
        for m in range(n_trees):
            tree[m] = &(<_Grown?> trees[m]).tree
            nodes[m + 1] = nodes[m] + tree[m].n_nodes
            leaves[m + 1] = leaves[m] + tree[m].n_leaves
            entries[m + 1] = entries[m] + tree[m].n_entries
        feature, left = (np.empty(nodes[n_trees], np.int32) for _ in range(2))
        threshold, gain = (np.empty(nodes[n_trees], dtype) for _ in range(2))
        value = np.empty((leaves[n_trees], n_outputs), dtype)
        indptr = indices = data = None
        if projected:
            indptr = np.empty(nodes[n_trees] + 1, np.int64)
            indices, data = np.empty(entries[n_trees], np.int32), np.empty(entries[n_trees], dtype)
            indptr[nodes[n_trees]] = entries[n_trees]
        for m in range(n_trees):
            part.feature, part.left = <int32_t*> _at(feature, nodes[m]), <int32_t*> _at(left, nodes[m])
            part.threshold, part.gain = _at(threshold, nodes[m]), _at(gain, nodes[m])
            part.value = _at(value, leaves[m] * n_outputs)
            part.start, part.first_entry, part.index, part.weight = NULL, entries[m], NULL, NULL
            if projected:
                part.start = <int64_t*> _at(indptr, nodes[m])
                part.index, part.weight = <int32_t*> _at(indices, entries[m]), _at(data, entries[m])
            parts[m] = part
        start_watch(&watch)
        hf_share(&watch, n_trees)
        with nogil, parallel(num_threads=hf_threads()):
            m = hf_take(&watch)
            while m >= 0:
                if not hf_order_tree(tree[m], n_outputs, single, parts[m]):
                    hf_stop(&watch)
                m = hf_take(&watch)
        raise_interrupt(&watch)
        if watch.stopped:
            raise MemoryError(f"grow: no memory to order a tree of {n_trees}")
    finally:
        free(parts)
        free(tree)
    arrays = np.asarray(nodes), feature, threshold, left, value, gain
    return (*arrays, indptr, indices, data) if projected else arrays


cdef hf_task _task(
    const double[::1] sample_weight, labels, targets, n_outputs, criterion, n_candidates, max_depth,
    min_samples_split, min_samples_leaf, min_impurity_decrease, seed, bint single,
):
    cdef hf_task t
    t.codes, t.low, t.high, t.atoms, t.x, t.small, t.table = NULL, NULL, NULL, NULL, NULL, NULL, NULL
    t.base, t.offset, t.rows, t.columns, t.path = NULL, NULL, NULL, NULL, simd_path()
    t.whole, t.narrow = 0, 0
    t.width, t.n_columns, t.n_codes = 4, 0, 0
    t.n = sample_weight.shape[0]
    t.single = single
    t.labels, t.targets = NULL, NULL
    if labels is not None:
        t.labels = <const int32_t*> cnp.PyArray_DATA(labels)
    else:
        t.targets = <const double*> cnp.PyArray_DATA(targets)
    t.n_outputs, t.weight, t.criterion = n_outputs, &sample_weight[0], criterion
    t.n_drawn, t.max_depth, t.min_split = n_candidates, max_depth, min_samples_split
    t.min_leaf, t.min_decrease = min_samples_leaf, min_impurity_decrease
    t.completely_random, t.in_floats, t.seed, t.watch = 0, 0, seed, NULL
    return t


cdef object _grow(hf_task* t, int64_t first, int64_t n_trees, counts, trees):
    cdef hf_tree* grown = <hf_tree*> calloc(n_trees + 1, sizeof(hf_tree))
    cdef const int32_t* count = NULL
    cdef int64_t m, counts_size = 0
    cdef hf_watch watch
    cdef _Grown one
    if grown == NULL:
        raise MemoryError(f"grow: no memory for {n_trees} trees")
    start_watch(&watch)
    t.watch = &watch
    if counts is not None:
        count, counts_size = <const int32_t*> cnp.PyArray_DATA(counts), t.n
    try:
        hf_share(&watch, n_trees)
        with nogil, parallel(num_threads=hf_threads()):
            m = hf_take(&watch)
            while m >= 0:
                if not hf_grow(t, first + m, count + m * counts_size, &grown[m]):
                    hf_stop(&watch)
                m = hf_take(&watch)
        raise_interrupt(&watch)
        if watch.stopped:
            raise MemoryError(f"grow: no memory for a tree on {t.n} samples")
        for m in range(n_trees):
            one = _Grown()
            one.tree = grown[m]
            memset(&grown[m], 0, sizeof(hf_tree))
            trees.append(one)
    finally:
        for m in range(n_trees):
            hf_free_tree(&grown[m])
        free(grown)


cdef extern from *:
    """
    #ifdef HF_DEBUG
    static int64_t hf_n_taken(int scorer) { return hf_taken[scorer]; }
    #else
    static int64_t hf_n_taken(int scorer) { (void)scorer; return -1; }
    #endif
    """
    int64_t hf_n_taken(int scorer)


def _scorers_taken():
    """Returns how often each scorer was taken in this process; None but in bounds-checked builds."""
    names = ("sorting", "pairs", "histogram", "pairs of values", "histogram of values", "bounds")
    taken = {name: hf_n_taken(scorer) for scorer, name in enumerate(names)}
    return None if -1 in taken.values() else taken


def rows_of(bins):
    """Returns a copy of the bins, samples first, for nodes of few samples; None where none would read it."""
    if simd_path() == HF_PATH_PLAIN or bins.itemsize > (2 if simd_path() == HF_PATH_AVX512 else 1):
        return None
    rows, step = np.empty((bins.shape[1], bins.shape[0]), bins.dtype), max(1, COPIED // bins.shape[0])
    for i in range(0, len(rows), step):
        rows[i : i + step] = bins[:, i : i + step].T
    return rows


def grow(
    bins, rows, const double[:, ::1] low, const double[:, ::1] high, base, offset, dtype, labels, targets,
    n_outputs, sample_weight, criterion, max_features, max_depth, min_samples_split, min_samples_leaf,
    min_impurity_decrease, bint completely_random, seed, first, n_trees, counts, trees,
):
    """Appends trees first, ..., first + n_trees - 1 to `trees` (OUT); `joined` makes arrays of them."""
    cdef hf_task t = _task(
        sample_weight, labels, targets, n_outputs, criterion, max_features, max_depth, min_samples_split,
        min_samples_leaf, min_impurity_decrease, seed, dtype.itemsize == 4,
    )
    t.codes, t.width, t.n_columns = cnp.PyArray_DATA(bins), bins.itemsize, bins.shape[0]
    t.low, t.high, t.n_codes = &low[0, 0], &high[0, 0], low.shape[1]
    if rows is not None:
        t.rows = cnp.PyArray_DATA(rows)
    if base is not None:
        t.base, t.offset = <const int64_t*> cnp.PyArray_DATA(base), <const int64_t*> cnp.PyArray_DATA(offset)
        t.n_columns = offset.shape[0]
    t.completely_random = completely_random
    _grow(&t, first, n_trees, counts, trees)


# ------------------------------------------------------------------------------------- projections

cdef hf_atoms _atoms(distribution):
    """hforest.core.projections.Distribution as the headers know it."""
    cdef hf_atoms a
    cdef int i
    a.kind, a.n_features, a.channels = distribution.kind, distribution.n_features, distribution.channels
    a.rate, a.none = distribution.density, distribution.zero_probability
    a.cyclic, a.most = distribution.cyclic, distribution.max_entries
    for i in range(HF_ATOM_AXES):
        a.shape[i] = distribution.shape[i]
        a.low[i], a.high[i] = distribution.patch_min[i], distribution.patch_max[i]
    hf_fill_up_to(&a)
    return a


cdef void _whole_rows(
    const real[:, ::1] x, uint8_t[:, ::1] small, int32_t[::1] found, hf_watch* watch
) noexcept nogil:
    cdef int64_t block = 0, n = 0
    hf_share(watch, (x.shape[0] + BLOCK - 1) // BLOCK)
    with parallel(num_threads=hf_threads()):
        block = hf_take(watch)
        while block >= 0:
            for n in range(block * BLOCK, min((block + 1) * BLOCK, x.shape[0])):
                if real is float:
                    found[n] = hf_whole_row_f32(&x[n, 0], x.shape[1], &small[n, 0])
                else:
                    found[n] = hf_whole_row_f64(&x[n, 0], x.shape[1], &small[n, 0])
            block = hf_take(watch)


def whole_numbers(x, small):
    """Returns 2 if x is whole numbers 0 to 255, written to `small` (OUT); 1 if x is whole numbers whose sums
    float32 holds exactly; else 0.
    """
    cdef hf_watch watch
    found = np.empty(len(x), np.int32)
    start_watch(&watch)
    if x.dtype.itemsize == 4:
        _whole_rows[float](x, small, found, &watch)
    else:
        _whole_rows[double](x, small, found, &watch)
    raise_interrupt(&watch)
    return int(found.min())


def columns_of(x, whole, small):
    """Returns a copy of x, or of `small` where it is given, features first; None where none would read it."""
    if simd_path() != HF_PATH_AVX512 or (small is None and (whole or x.dtype.itemsize == 8)):
        return None
    source = x if small is None else small
    # A vector reads up to 64 numbers after the last.
    columns = np.empty(source.size + 64, source.dtype)
    by_feature, step = columns[:source.size].reshape(source.T.shape), max(1, COPIED // source.shape[1])
    for i in range(0, len(source), step):
        by_feature[:, i : i + step] = source[i : i + step].T
    return columns


cdef enum:
    BLOCK = 64            # rows of one parallel step


ctypedef fused corner:
    uint16_t
    uint32_t


cdef void _fill_table(
    const real[:, ::1] x, const hf_atoms* a, corner[:, ::1] table, hf_watch* watch
) noexcept nogil:
    cdef int64_t block = 0, n = 0
    hf_share(watch, (x.shape[0] + BLOCK - 1) // BLOCK)
    with parallel(num_threads=hf_threads()):
        block = hf_take(watch)
        while block >= 0:
            for n in range(block * BLOCK, min((block + 1) * BLOCK, x.shape[0])):
                if real is float and corner is uint16_t:
                    hf_fill_table_f32_16(a, &x[n, 0], &table[n, 0])
                elif real is float:
                    hf_fill_table_f32_32(a, &x[n, 0], &table[n, 0])
                elif corner is uint16_t:
                    hf_fill_table_f64_16(a, &x[n, 0], &table[n, 0])
                else:
                    hf_fill_table_f64_32(a, &x[n, 0], &table[n, 0])
            block = hf_take(watch)


def corner_table(x, distribution, table):
    """Writes to `table` (OUT) the sums over all corners of planes of each sample (of whole numbers; modulo
    the table's range).
    """
    cdef hf_atoms a = _atoms(distribution)
    cdef bint single = x.dtype.itemsize == 4, narrow = table.itemsize == 2
    cdef hf_watch watch
    start_watch(&watch)
    if single and narrow:
        _fill_table[float, uint16_t](x, &a, table, &watch)
    elif single:
        _fill_table[float, uint32_t](x, &a, table, &watch)
    elif narrow:
        _fill_table[double, uint16_t](x, &a, table, &watch)
    else:
        _fill_table[double, uint32_t](x, &a, table, &watch)
    raise_interrupt(&watch)


def grow_projected(
    x, whole, small, columns, table, labels, targets, n_outputs, sample_weight, criterion, distribution,
    n_projections, max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease, seed, first,
    n_trees, counts, trees,
):
    """Appends trees on random projections, as `grow`."""
    cdef hf_task t = _task(
        sample_weight, labels, targets, n_outputs, criterion, n_projections, max_depth, min_samples_split,
        min_samples_leaf, min_impurity_decrease, seed, x.dtype.itemsize == 4,
    )
    cdef hf_atoms a = _atoms(distribution)
    t.atoms, t.x = &a, cnp.PyArray_DATA(x)
    t.whole = whole
    if small is not None:
        t.small = <const uint8_t*> cnp.PyArray_DATA(small)
    if columns is not None:
        t.columns = cnp.PyArray_DATA(columns)
    if table is not None:
        t.table, t.narrow = cnp.PyArray_DATA(table), table.itemsize == 2
    _grow(&t, first, n_trees, counts, trees)
