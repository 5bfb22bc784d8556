"""Forests that have been checked and packed once, for calls on few rows.

A row of a forest of splits by features walks through packed nodes (simd/one_row.h). Their order keeps a walk
within few cache lines: some levels below a node follow it directly. Rows without missing values of a forest
with projections walk through the layout for many samples, which is made with the object. Other forests get
this layout when so many rows have been walked that its cost is a part of theirs. Rows of forests with
categories, and those with missing values of forests with projections, are walked node by node.

Versions: `predict` of one row takes 6.3 microseconds, in place of 44.8 without packed nodes (docs/tree.md has
the forest and the machine).
"""

cimport cython
from cpython.contextvars cimport PyContextVar_Get
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from cython.parallel cimport prange
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cimport hforest.core.arrays as cnp
from hforest.core.arena cimport hf_arena, release, take
from hforest.core.machine cimport (
    hf_begin, hf_end, hf_enter_state, hf_leave_state, hf_stop, hf_threads_for, hf_units, hf_watch,
    raise_stopped, some_nonfinite, start_watch,
)
from hforest.tree.cpu.layouts cimport Layout, layout_of, run_layout
from hforest.tree.cpu.places cimport (
    HF_FLOAT_NODES, HF_DOUBLE_NODES, HF_SMALL_NODES, QUICK, STEP_NS, Packed, Splits, pack_nodes,
)
from hforest.tree.cpu.walk cimport (
    HF_PAIR, HF_QUAD, HF_WALKS, Walk, add_leaves, find_leaves, largest, real, walk_of,
)

import numpy as np

from ...core.defaults import shows_missing
from ...core.dispatch import FORCED
from ..forest import arrays_of, has_sets, narrowed, trusted

cnp.import_array()

cdef extern from "tree/cpu/simd/one_row.h" nogil:
    void hf_walk_row(
        int form, const void* node, const uint32_t* root, int64_t n, const void* row, uint32_t* leaf
    )
    void hf_project_row(
        int single, int width, const void* node, const void* entry, const int64_t* tree_start, int64_t n,
        const void* row, int32_t* leaf
    )

cdef enum:
    ROWS = 4              # rows per unit of work
    LOCAL = 1 << 10       # doubles of a workspace on the stack
    STEPS = 8             # steps per node of many rows after which these get a layout
    MANY = 64             # least number of rows for it


cdef str NO_MEMORY = "forest: no memory to walk it; pass fewer samples at a time"


cdef struct Space:
    # The workspace of one thread.
    char* columns         # (n_columns,): keys of a row
    uint32_t* place       # (n_trees,): places of the leaves that a row reaches
    int32_t* leaf         # the memory of `place`: numbers of the leaves, if rows are walked node by node
    double* total         # (n_outputs,): sums of leaf values of a row


# ---------------------------------------------------------------------------------------------- one row

cdef bint _read_some(
    const Packed* p, const real* x, bint single, char* columns, bint* is_complete
) noexcept nogil:
    # Writes the columns of a row. Returns whether all elements are in the range of the forest's dtype, and
    # finite or, if the forest handles missing values, missing. is_complete: OUT, whether none is missing.
    cdef float* floats = <float*> columns
    cdef double* doubles = <double*> columns
    cdef int64_t n = p.w.n_features, f
    cdef double a, low, high
    cdef bint is_good = True
    for f in range(n):
        a = <double> <float> x[f] if single else <double> x[f]
        low = high = a
        if a - a != 0:
            is_complete[0] = False
            is_good &= p.has_missing and a != a
            if p.is_wide and a != a:
                low, high = -INFINITY, INFINITY
        if single:
            floats[f] = <float> low
        else:
            doubles[f] = low
        if p.is_wide and single:
            floats[n + f] = <float> high
        elif p.is_wide:
            doubles[n + f] = high
    return is_good


cdef const char* _read_row(
    const Packed* p, const char* x, int itemsize, const Space* s, bint* is_good, bint* is_complete
) noexcept nogil:
    # Returns the columns of a row, without a copy if the row has their form. is_good, is_complete: OUT, as
    # _read_some writes them.
    cdef bint single = p.w.single
    is_complete[0] = True
    if itemsize == (4 if single else 8) and not p.has_missing:
        is_good[0] = not some_nonfinite(x, p.w.n_features, itemsize)
        # A walk reads x even at a leaf.
        return x if p.w.n_features else s.columns
    if itemsize == 4:
        is_good[0] = _read_some(p, <const float*> x, single, s.columns, is_complete)
    else:
        is_good[0] = _read_some(p, <const double*> x, single, s.columns, is_complete)
    return s.columns


cdef void _project(const Walk* w, const char* row, int32_t* leaf) noexcept nogil:
    # Writes the leaves that a row reaches in packed trees with projections.
    cdef const int64_t* roots = w.forest.tree_start
    if w.single and w.width == HF_PAIR:
        hf_project_row(1, HF_PAIR, w.nodes, w.entries, roots, w.n_trees, row, leaf)
    elif w.single and w.width == HF_QUAD:
        hf_project_row(1, HF_QUAD, w.nodes, w.entries, roots, w.n_trees, row, leaf)
    elif w.single:
        hf_project_row(1, 0, w.nodes, w.entries, roots, w.n_trees, row, leaf)
    elif w.width == HF_PAIR:
        hf_project_row(0, HF_PAIR, w.nodes, w.entries, roots, w.n_trees, row, leaf)
    elif w.width == HF_QUAD:
        hf_project_row(0, HF_QUAD, w.nodes, w.entries, roots, w.n_trees, row, leaf)
    else:
        hf_project_row(0, 0, w.nodes, w.entries, roots, w.n_trees, row, leaf)


cdef void _find(const Packed* p, const char* row, bint is_complete, const Space* s) noexcept nogil:
    # Writes the leaves that a row reaches to the workspace. Calls pass the form as a constant for the C
    # compiler.
    if p.projected != NULL and is_complete:
        _project(p.projected, row, s.leaf)
    elif p.nodes == NULL:
        find_leaves(&p.w, row, NULL, NULL, 1, 0, p.w.n_trees, NULL, s.leaf, p.w.n_trees, 1)
    elif p.form == HF_SMALL_NODES:
        hf_walk_row(HF_SMALL_NODES, p.nodes, p.root, p.w.n_trees, row, s.place)
    elif p.form == HF_FLOAT_NODES:
        hf_walk_row(HF_FLOAT_NODES, p.nodes, p.root, p.w.n_trees, row, s.place)
    else:
        hf_walk_row(HF_DOUBLE_NODES, p.nodes, p.root, p.w.n_trees, row, s.place)


cdef void _add(const Packed* p, const real* value, bint vote, const Space* s) noexcept nogil:
    # Adds the leaf values, or the votes, of the trees in their order.
    cdef int64_t n_outputs = p.w.n_outputs, tree, k
    cdef double* total = s.total
    cdef const real* row
    cdef int32_t answer
    for tree in range(p.w.n_trees):
        answer = p.answer[s.place[tree]]
        if answer >= 0:
            total[answer] += 1
            continue
        row = value + ((p.w.forest.tree_start[tree] + tree) // 2 - 1 - answer) * n_outputs
        if vote:
            total[largest(row, n_outputs)] += 1
            continue
        for k in range(n_outputs):
            total[k] += <double> row[k]


cdef void _add_node_by_node(const Packed* p, const real* value, bint vote, const Space* s) noexcept nogil:
    cdef Walk w = p.w
    cdef int64_t tree = 0, last
    w.vote = vote
    while tree < w.n_trees:
        last = min(tree + HF_WALKS, w.n_trees)
        add_leaves(&w, value, tree, last, 1, s.leaf + tree, 1, s.total)
        tree = last


cdef void _write_means(
    const Packed* p, const real* value, bint vote, const Space* s, real* y
) noexcept nogil:
    cdef int64_t k
    memset(s.total, 0, p.w.n_outputs * sizeof(double))
    if p.nodes == NULL:
        _add_node_by_node(p, value, vote, s)
    else:
        _add(p, value, vote, s)
    for k in range(p.w.n_outputs):
        y[k] = <real> (s.total[k] / p.w.n_trees)


cdef bint _do_row(
    const Packed* p, const char* x, int itemsize, int vote, const Space* s, char* result
) noexcept nogil:
    # Writes leaves (vote < 0), means or vote shares of a row. Returns what _read_some returns.
    cdef int64_t tree
    cdef bint is_good = True, is_complete = True
    cdef const char* row = _read_row(p, x, itemsize, s, &is_good, &is_complete)
    _find(p, row, is_complete, s)
    if vote < 0:
        for tree in range(p.w.n_trees):
            (<int32_t*> result)[tree] = s.leaf[tree] if p.nodes == NULL else p.number[s.place[tree]]
    elif p.w.single:
        _write_means(p, <const float*> p.w.value, vote, s, <float*> result)
    else:
        _write_means(p, <const double*> p.w.value, vote, s, <double*> result)
    return is_good


# ------------------------------------------------------------------------------------------------- rows

cdef inline int64_t _n_numbers(const Packed* p) noexcept nogil:
    # Returns the size of a workspace in doubles.
    return p.n_columns + 1 + (p.w.n_trees + 1) // 2 + p.w.n_outputs


cdef Space _space_in(const Packed* p, double* numbers) noexcept nogil:
    cdef Space s
    s.total = numbers
    s.columns = <char*> (numbers + p.w.n_outputs)
    s.place = <uint32_t*> (numbers + p.w.n_outputs + p.n_columns + 1)
    s.leaf = <int32_t*> s.place
    return s


cdef bint _do_rows(
    const Packed* p, const char* x, int itemsize, int64_t n, int vote, char* result, int64_t width,
    double* numbers,
) noexcept nogil:
    # Writes the results of n rows; width: bytes of a row's result. Returns whether all rows are good.
    cdef Space s = _space_in(p, numbers)
    cdef int64_t i
    cdef bint is_good = True
    # A walk without features reads this element.
    (<double*> s.columns)[0] = 0
    for i in range(n):
        is_good &= _do_row(p, x + i * p.w.n_features * itemsize, itemsize, vote, &s, result + i * width)
    return is_good


cdef int _do_unit(
    const Packed* p, const char* x, int itemsize, int64_t n, int vote, char* result, int64_t width
) noexcept nogil:
    # Calls _do_rows with its own workspace; returns -1 if there was no memory.
    cdef double local[LOCAL]
    cdef double* numbers = local
    cdef int64_t size = _n_numbers(p)
    cdef int is_good = -1
    cdef hf_arena arena
    memset(&arena, 0, sizeof(hf_arena))
    if size > LOCAL:
        numbers = <double*> take(&arena, size * sizeof(double))
    if not arena.failed:
        is_good = _do_rows(p, x, itemsize, n, vote, result, width, numbers)
    release(&arena)
    return is_good


cdef void _do_units(
    const Packed* p, const char* x, int itemsize, int64_t n, int vote, char* result, int64_t width,
    hf_watch* watch,
) noexcept nogil:
    cdef int threads = hf_threads_for(<double> STEP_NS * n * p.steps)
    cdef int64_t n_units = (n + ROWS - 1) // ROWS, row = ROWS * p.w.n_features * itemsize, unit
    for unit in prange(hf_units(watch, n_units, threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, unit):
            if _do_unit(
                p, x + unit * row, itemsize, min(<int64_t> ROWS, n - unit * ROWS), vote,
                result + unit * ROWS * width, width,
            ) < 0:
                hf_stop(watch)
            hf_end(watch)


cdef bint _is_forced() except -1:
    # Returns whether a block of `hforest.using` selects the backend.
    cdef PyObject* name = NULL
    PyContextVar_Get(FORCED, NULL, &name)
    cdef bint is_none = name == NULL or <object> name is None
    Py_XDECREF(name)
    return not is_none


@cython.final
@cython.no_gc_clear
cdef class Prepared:
    """A checked and packed forest, which every function that applies a `Forest` accepts.

    `prepare` makes it. It cannot be changed: arrays of `forest` are read-only. Several threads may use one.

    Parameters
    ----------
    forest : Forest
        A forest of NumPy arrays.

    Attributes
    ----------
    forest : Forest
        The forest itself if it was grown or loaded, else a copy.
    """

    cdef readonly object forest
    cdef object _forest
    cdef Packed _packed
    cdef hf_arena _arena
    cdef Layout _means, _votes
    cdef double _walked       # steps of many rows without a layout
    cdef bint _is_packing

    def __cinit__(self, forest):
        # Checks the copy, for another thread may change the original meanwhile.
        self.forest = trusted(forest)
        self._forest = arrays_of(self.forest)
        cdef cnp.ndarray value = self._forest.value, column = self._forest.feature
        cdef cnp.ndarray threshold = self._forest.threshold
        cdef Packed* p = &self._packed
        cdef bint is_plain = not has_sets(self._forest) and not self._forest.indptr.size, packs
        cdef Splits splits
        cdef hf_watch watch
        p.w = walk_of(np.zeros((1, int(self._forest.n_features)), value.dtype), self._forest)
        p.w.x = NULL
        p.w.value, p.w.n_outputs = cnp.PyArray_DATA(value), cnp.PyArray_DIM(value, 1)
        p.n_nodes = len(self._forest.feature)
        p.has_missing = shows_missing(
            self._forest.default_left, self._forest.threshold, self._forest.category_bits
        )
        p.is_wide = p.has_missing and is_plain and p.w.n_features < 1 << 30
        p.n_columns = p.w.n_features * (2 if p.is_wide else 1)
        p.steps = p.w.n_trees
        if p.is_wide:
            second = np.arange(p.w.n_features, p.n_columns, dtype=np.int32)
            narrow = narrowed(self._forest, second)
            column, threshold = narrow.feature, narrow.threshold
        splits.column = <const int32_t*> cnp.PyArray_DATA(column)
        splits.threshold = cnp.PyArray_DATA(threshold)
        # Places are 32-bit numbers: larger forests are walked node by node.
        packs = is_plain and p.n_nodes + p.w.n_trees < 1 << 31 and p.n_columns < 1 << 31
        packs = packs and (p.is_wide or not p.has_missing)
        start_watch(&watch)
        with nogil:
            pack_nodes(p, &splits, packs, &self._arena, &watch)
        raise_stopped(&watch, "forest: no memory to prepare it; free 32 bytes for each of its nodes")
        if self._forest.indptr.size and not has_sets(self._forest):
            self._means = layout_of(self._forest, False)
            if self._means is not None:
                p.projected = &self._means.w
        if not is_plain:
            p.steps *= 1 + len(self._forest.data) // p.n_nodes
        p.cost = p.steps + p.n_columns + p.w.n_outputs

    def __dealloc__(self):
        release(&self._arena)

    cdef Layout _layout(self, int64_t n, bint vote):
        # Returns the layout for n rows without missing values; None if they are to be walked one by one.
        cdef Layout layout = self._votes if vote else self._means
        if n < MANY or layout is not None or self._is_packing:
            return layout if n >= MANY else None
        self._walked += n * self._packed.steps
        if self._walked < STEPS * self._packed.n_nodes or has_sets(self._forest):
            return None
        self._is_packing = True
        try:
            layout = layout_of(self._forest, vote)
        except MemoryError:
            self._walked = 0
            return None
        finally:
            self._is_packing = False
        if vote:
            self._votes = layout
        else:
            self._means = layout
        return layout

    def __reduce__(self):
        return Prepared, (self._forest,)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __repr__(self):
        return f"<Prepared of {self._packed.w.n_trees} trees, {self._packed.n_nodes} nodes>"


cdef bint _fits(cnp.ndarray out, cnp.ndarray x, cnp.ndarray result):
    # Returns whether out can take the result of a call on x.
    cdef const char* start = <const char*> cnp.PyArray_DATA(out)
    cdef const char* rows = <const char*> cnp.PyArray_DATA(x)
    cdef int axis
    if cnp.PyArray_NDIM(out) != 2 or cnp.PyArray_TYPE(out) != cnp.PyArray_TYPE(result):
        return False
    for axis in range(2):
        if cnp.PyArray_DIM(out, axis) != cnp.PyArray_DIM(result, axis):
            return False
    if not cnp.PyArray_ISCARRAY_RO(out) or not cnp.PyArray_ISWRITEABLE(out):
        return False
    return start + cnp.PyArray_NBYTES(out) <= rows or rows + cnp.PyArray_NBYTES(x) <= start


def quick(Prepared forest not None, x, int vote, out=None):
    """Returns leaves (vote < 0), means or vote shares of a few rows, in out or a new array, else None.

    None means that another function has to be called: x has many rows or rows that are not good, or is not a
    C-contiguous array of float32 or float64, or out does not fit.
    """
    if not cnp.PyArray_CheckExact(x) or _is_forced():
        return None
    cdef cnp.ndarray a = x, result
    cdef Packed* p = &forest._packed
    cdef int kind = cnp.PyArray_TYPE(a), outcome
    cdef cnp.npy_intp[2] shape
    cdef uint64_t before
    if kind != cnp.NPY_FLOAT and kind != cnp.NPY_DOUBLE or not cnp.PyArray_ISCARRAY_RO(a):
        return None
    if cnp.PyArray_NDIM(a) != 2 or cnp.PyArray_DIM(a, 1) != p.w.n_features:
        return None
    shape[0], shape[1] = cnp.PyArray_DIM(a, 0), p.w.n_trees if vote < 0 else p.w.n_outputs
    if shape[0] == 0 or shape[0] * p.cost > QUICK:
        return None
    result = cnp.PyArray_EMPTY(
        2, shape, cnp.NPY_INT32 if vote < 0 else cnp.NPY_FLOAT if p.w.single else cnp.NPY_DOUBLE, 0
    )
    if out is not None and (not cnp.PyArray_CheckExact(out) or not _fits(out, a, result)):
        return None
    # The call keeps the GIL: if other threads want it, getting it back would take milliseconds.
    before = hf_enter_state()
    outcome = _do_unit(
        p, <const char*> cnp.PyArray_DATA(a), 4 if kind == cnp.NPY_FLOAT else 8, shape[0], vote,
        <char*> cnp.PyArray_DATA(result), shape[1] * cnp.PyArray_ITEMSIZE(result),
    )
    hf_leave_state(before)
    if outcome < 0:
        raise MemoryError(NO_MEMORY)
    if not outcome or out is None:
        return result if outcome else None
    memcpy(cnp.PyArray_DATA(<cnp.ndarray> out), cnp.PyArray_DATA(result), cnp.PyArray_NBYTES(result))
    return out


def is_for(Prepared forest not None, bint has_missing):
    """Returns whether `write` takes such rows and no block of `hforest.using` is active."""
    return not _is_forced() and (forest._packed.has_missing or not has_missing)


def has_layout(Prepared forest not None, bint vote):
    """Returns whether trees have been packed for many rows, with classes of means or of votes; for tests."""
    return (forest._votes if vote else forest._means) is not None


def write(
    Prepared forest not None, cnp.ndarray x not None, int vote, cnp.ndarray result not None, bint has_missing
):
    """Writes leaves (vote < 0), means or vote shares of checked rows, whose dtype is that of the forest."""
    cdef Packed* p = &forest._packed
    cdef Layout layout = None if has_missing else forest._layout(cnp.PyArray_DIM(x, 0), vote > 0)
    cdef hf_watch watch
    cdef int itemsize = 4 if p.w.single else 8
    cdef int64_t n = cnp.PyArray_DIM(x, 0)
    cdef int64_t width = cnp.PyArray_ITEMSIZE(result) * cnp.PyArray_DIM(result, 1)
    cdef const char* rows = <const char*> cnp.PyArray_DATA(x)
    cdef char* to = <char*> cnp.PyArray_DATA(result)
    if layout is not None:
        run_layout(layout, rows, n, to if vote < 0 else NULL, NULL if vote < 0 else to)
        return
    start_watch(&watch)
    with nogil:
        _do_units(p, rows, itemsize, n, vote, to, width, &watch)
    raise_stopped(&watch, NO_MEMORY)
