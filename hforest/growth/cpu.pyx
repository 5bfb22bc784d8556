"""Grows trees on the CPU. A thread owns a tree, or a column to encode."""

import numpy as np

from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

cimport numpy as cnp

from hforest.core.machine cimport simd_path

from ..core import recycle

cnp.import_array()

cdef extern from "cpu_features.h" nogil:
    int omp_get_max_threads()

cdef extern from "order.h" nogil:
    uint64_t hf_ordered(double a)

cdef extern from "encode.h" nogil:
    int64_t hf_encode_bytes(
        const double* value, int64_t n, int64_t n_codes, uint32_t* code, double* low, double* high
    )
    int64_t hf_encode(
        const double* value, int64_t n, int64_t n_codes, uint64_t* key, uint32_t* index, uint64_t* key2,
        uint32_t* index2, uint32_t* code, double* low, double* high,
    )

cdef extern from "atoms.h" nogil:
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

cdef extern from "engine.h" nogil:
    int HF_PATH_AVX512
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


def draw_bags(uint64_t seed, int64_t first, int32_t[:, ::1] counts):
    """counts[m] = how often tree first + m draws each sample, n times with replacement."""
    cdef int64_t m
    if counts.size == 0:
        return
    for m in prange(counts.shape[0], nogil=True, schedule="dynamic"):
        hf_draw_bag(seed, first + m, counts.shape[1], &counts[m, 0])


cdef enum:
    COLUMNS = 16          # columns that are read together: a row of them is a cache line or two


cdef int _encode_columns(
    const real[:, ::1] x, Py_ssize_t first, Py_ssize_t last, uint32_t[:, ::1] codes, double[:, ::1] low,
    double[:, ::1] high, int64_t[::1] n_codes,
) noexcept nogil:
    cdef Py_ssize_t n = x.shape[0], i, f
    cdef char* room = <char*> malloc(n * 32 + (last - first) * n * sizeof(real))
    cdef double* value = <double*> room
    cdef uint64_t* key = <uint64_t*> (room + 8 * n)
    cdef uint64_t* key2 = <uint64_t*> (room + 16 * n)
    cdef uint32_t* index = <uint32_t*> (room + 24 * n)
    cdef real* column = <real*> (room + 32 * n)
    if room == NULL:
        return 0
    for i in range(n):
        for f in range(first, last):
            column[(f - first) * n + i] = x[i, f]
    for f in range(first, last):
        for i in range(n):
            value[i] = column[(f - first) * n + i]
        n_codes[f] = hf_encode_bytes(value, n, low.shape[1], &codes[f, 0], &low[f, 0], &high[f, 0])
        if n_codes[f]:
            continue
        for i in range(n):
            key[i] = hf_ordered(value[i])
            index[i] = <uint32_t> i
        n_codes[f] = hf_encode(
            value, n, low.shape[1], key, index, key2, index + n, &codes[f, 0], &low[f, 0], &high[f, 0]
        )
    free(room)
    return 1


cdef int _encode(
    const real[:, ::1] x, uint32_t[:, ::1] codes, double[:, ::1] low, double[:, ::1] high,
    int64_t[::1] n_codes,
) noexcept nogil:
    cdef Py_ssize_t block
    cdef int failed = 0
    for block in prange((x.shape[1] + COLUMNS - 1) // COLUMNS, schedule="dynamic"):
        failed += not _encode_columns(
            x, block * COLUMNS, min((block + 1) * COLUMNS, x.shape[1]), codes, low, high, n_codes
        )
    return failed


def encode(x, codes, low, high, n_codes):
    """Ranks of the values of each column, or bins where they are more than a row of `low` holds."""
    cdef int failed
    if x.dtype.itemsize == 4:
        failed = _encode[float](x, codes, low, high, n_codes)
    else:
        failed = _encode[double](x, codes, low, high, n_codes)
    if failed:
        raise MemoryError(f"encode: no memory to order {x.shape[0]} values")


cdef class _Grown:
    """A tree as it grew; `joined` writes it in order."""

    cdef hf_tree tree

    def __dealloc__(self):
        hf_free_tree(&self.tree)


cdef void* _at(cnp.ndarray array, int64_t number):
    return <void*> (<char*> cnp.PyArray_DATA(array) + number * cnp.PyArray_ITEMSIZE(array))


def joined(trees, int64_t n_outputs, real, bint projected):
    """Trees that grew here, one after another: see `trees.joined`."""
    cdef int64_t m, n_trees = len(trees)
    cdef hf_arrays part
    cdef hf_arrays* parts = <hf_arrays*> malloc(n_trees * sizeof(hf_arrays))
    cdef hf_tree** tree = <hf_tree**> malloc(n_trees * sizeof(hf_tree*))
    cdef int single = real.itemsize == 4, failed = 0
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
        feature, left = (recycle.empty(nodes[n_trees], np.int32) for _ in range(2))
        threshold, gain = (recycle.empty(nodes[n_trees], real) for _ in range(2))
        value = recycle.empty((leaves[n_trees], n_outputs), real)
        start = index = weight = None
        if projected:
            start = recycle.empty(nodes[n_trees] + 1, np.int64)
            index, weight = recycle.empty(entries[n_trees], np.int32), recycle.empty(entries[n_trees], real)
            start[nodes[n_trees]] = entries[n_trees]
        for m in range(n_trees):
            part.feature, part.left = <int32_t*> _at(feature, nodes[m]), <int32_t*> _at(left, nodes[m])
            part.threshold, part.gain = _at(threshold, nodes[m]), _at(gain, nodes[m])
            part.value = _at(value, leaves[m] * n_outputs)
            part.start, part.first_entry, part.index, part.weight = NULL, entries[m], NULL, NULL
            if projected:
                part.start = <int64_t*> _at(start, nodes[m])
                part.index, part.weight = <int32_t*> _at(index, entries[m]), _at(weight, entries[m])
            parts[m] = part
        for m in prange(n_trees, nogil=True, schedule="dynamic"):
            failed += not hf_order_tree(tree[m], n_outputs, single, parts[m])
        if failed:
            raise MemoryError(f"grow: no memory to order a tree of {n_trees}")
    finally:
        free(parts)
        free(tree)
    arrays = np.asarray(nodes), feature, threshold, left, value, gain
    return (*arrays, start, index, weight) if projected else arrays


cdef hf_task _task(
    const double[::1] weight, labels, targets, n_outputs, criterion, n_drawn, max_depth, min_split, min_leaf,
    min_decrease, seed, bint single,
):
    cdef hf_task t
    t.codes, t.low, t.high, t.atoms, t.x, t.small, t.table = NULL, NULL, NULL, NULL, NULL, NULL, NULL
    t.base, t.offset, t.rows, t.columns, t.path = NULL, NULL, NULL, NULL, simd_path()
    t.whole, t.narrow = 0, 0
    t.width, t.n_columns, t.n_codes = 4, 0, 0
    t.n = weight.shape[0]
    t.single = single
    t.labels, t.targets = NULL, NULL
    if labels is not None:
        t.labels = <const int32_t*> cnp.PyArray_DATA(labels)
    else:
        t.targets = <const double*> cnp.PyArray_DATA(targets)
    t.n_outputs, t.weight, t.criterion = n_outputs, &weight[0], criterion
    t.n_drawn, t.max_depth, t.min_split, t.min_leaf = n_drawn, max_depth, min_split, min_leaf
    t.min_decrease, t.completely_random, t.in_floats, t.seed = min_decrease, 0, 0, seed
    return t


cdef object _grow(const hf_task* t, int64_t first, int64_t n_trees, bags, trees):
    cdef hf_tree* grown = <hf_tree*> calloc(n_trees + 1, sizeof(hf_tree))
    cdef const int32_t* bag = NULL
    cdef int64_t m, bag_size = 0
    cdef int failed = 0
    cdef _Grown one
    if grown == NULL:
        raise MemoryError(f"grow: no memory for {n_trees} trees")
    if bags is not None:
        bag, bag_size = <const int32_t*> cnp.PyArray_DATA(bags), t.n
    try:
        for m in prange(n_trees, nogil=True, schedule="dynamic"):
            failed += not hf_grow(t, first + m, bag + m * bag_size, &grown[m])
        if failed:
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


def rows_of(codes):
    """The codes once more, samples first, for nodes of few samples; None where they would not be used."""
    if simd_path() != HF_PATH_AVX512 or codes.itemsize > 2:
        return None
    return np.ascontiguousarray(codes.T)


def grow(
    codes, rows, const double[:, ::1] low, const double[:, ::1] high, base, offset, real, labels, targets,
    n_outputs, weight, criterion, n_drawn, max_depth, min_split, min_leaf, min_decrease,
    bint completely_random, seed, first, n_trees, bags, trees,
):
    """Appends trees first, ..., first + n_trees - 1 to `trees`."""
    cdef hf_task t = _task(
        weight, labels, targets, n_outputs, criterion, n_drawn, max_depth, min_split, min_leaf, min_decrease,
        seed, real.itemsize == 4,
    )
    t.codes, t.width, t.n_columns = cnp.PyArray_DATA(codes), codes.itemsize, codes.shape[0]
    t.low, t.high, t.n_codes = &low[0, 0], &high[0, 0], low.shape[1]
    if rows is not None:
        t.rows = cnp.PyArray_DATA(rows)
    if base is not None:
        t.base, t.offset = <const int64_t*> cnp.PyArray_DATA(base), <const int64_t*> cnp.PyArray_DATA(offset)
        t.n_columns = offset.shape[0]
    t.completely_random = completely_random
    _grow(&t, first, n_trees, bags, trees)


# ------------------------------------------------------------------------------------- projections

cdef hf_atoms _atoms(atoms):
    cdef hf_atoms a
    cdef int i
    a.kind, a.n_features, a.rate, a.none = atoms.kind, atoms.n_features, atoms.rate, atoms.none
    a.channels, a.cyclic, a.most = atoms.channels, atoms.cyclic, atoms.most
    for i in range(HF_ATOM_AXES):
        a.shape[i], a.low[i], a.high[i] = atoms.shape[i], atoms.low[i], atoms.high[i]
    hf_fill_up_to(&a)
    return a


cdef int _whole_rows(const real[:, ::1] x, uint8_t[:, ::1] small, int32_t[::1] found) noexcept nogil:
    cdef Py_ssize_t n
    cdef int least = 2
    for n in prange(x.shape[0], schedule="static"):
        if real is float:
            found[n] = hf_whole_row_f32(&x[n, 0], x.shape[1], &small[n, 0])
        else:
            found[n] = hf_whole_row_f64(&x[n, 0], x.shape[1], &small[n, 0])
    for n in range(x.shape[0]):
        least = min(least, found[n])
    return least


def whole_numbers(x, small):
    """2 if x is whole numbers 0 to 255, now in `small`; 1 if whole numbers; 0 if not, or sums not exact."""
    found = np.empty(len(x), np.int32)
    if x.dtype.itemsize == 4:
        return _whole_rows[float](x, small, found)
    return _whole_rows[double](x, small, found)


def columns_of(x, whole, small):
    """x, or `small` where there is one, features first; None where it would not be used."""
    if simd_path() != HF_PATH_AVX512 or (small is None and (whole or x.dtype.itemsize == 8)):
        return None
    source = x if small is None else small
    # A vector reads up to 64 numbers behind each.
    columns = np.empty(source.size + 64, source.dtype)
    columns[:source.size].reshape(source.shape[1], source.shape[0])[...] = source.T
    return columns


ctypedef fused corner:
    uint16_t
    uint32_t


cdef void _fill_table(const real[:, ::1] x, const hf_atoms* a, corner[:, ::1] table) noexcept nogil:
    cdef Py_ssize_t n
    for n in prange(x.shape[0], schedule="static"):
        if real is float and corner is uint16_t:
            hf_fill_table_f32_16(a, &x[n, 0], &table[n, 0])
        elif real is float:
            hf_fill_table_f32_32(a, &x[n, 0], &table[n, 0])
        elif corner is uint16_t:
            hf_fill_table_f64_16(a, &x[n, 0], &table[n, 0])
        else:
            hf_fill_table_f64_32(a, &x[n, 0], &table[n, 0])


def corner_table(x, atoms, table):
    """Sums over all corners of the planes of each sample, of whole numbers, modulo the table's range."""
    cdef hf_atoms a = _atoms(atoms)
    cdef bint single = x.dtype.itemsize == 4, narrow = table.itemsize == 2
    if single and narrow:
        _fill_table[float, uint16_t](x, &a, table)
    elif single:
        _fill_table[float, uint32_t](x, &a, table)
    elif narrow:
        _fill_table[double, uint16_t](x, &a, table)
    else:
        _fill_table[double, uint32_t](x, &a, table)


def grow_projected(
    x, whole, small, columns, table, labels, targets, n_outputs, weight, criterion, atoms, n_drawn, max_depth,
    min_split, min_leaf, min_decrease, seed, first, n_trees, bags, trees,
):
    """The same on random projections."""
    cdef hf_task t = _task(
        weight, labels, targets, n_outputs, criterion, n_drawn, max_depth, min_split, min_leaf, min_decrease,
        seed, x.dtype.itemsize == 4,
    )
    cdef hf_atoms a = _atoms(atoms)
    t.atoms, t.x = &a, cnp.PyArray_DATA(x)
    t.whole = whole
    if small is not None:
        t.small = <const uint8_t*> cnp.PyArray_DATA(small)
    if columns is not None:
        t.columns = cnp.PyArray_DATA(columns)
    if table is not None:
        t.table, t.narrow = cnp.PyArray_DATA(table), table.itemsize == 2
    _grow(&t, first, n_trees, bags, trees)
