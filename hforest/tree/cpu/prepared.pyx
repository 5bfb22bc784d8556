"""Forests that have been checked and packed once, for calls on few rows.

A row of a forest of splits by features walks through packed nodes (simd/one_row.h). Their order keeps a walk
within few cache lines: some levels below a node follow it directly. Other forests are walked node by node,
and only the checks are saved.

Versions: `predict` of one row takes 6.3 microseconds, in place of 44.8 without packed nodes (docs/tree.md has
the forest and the machine).
"""

cimport cython
from cpython.contextvars cimport PyContextVar_Get
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from cython.parallel cimport prange
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint32_t, uintptr_t
from libc.string cimport memset

cimport hforest.core.arrays as cnp
from hforest.core.arena cimport hf_arena, release, take
from hforest.core.machine cimport (
    hf_begin, hf_end, hf_has_stopped, hf_stop, hf_stopped_after, hf_threads, hf_units, hf_watch,
    raise_stopped, some_nonfinite, start_watch,
)
from hforest.tree.cpu.walk cimport (
    HF_SMALL, HF_WALKS, Walk, add_leaves, find_leaves, hf_double_node, hf_float_node, hf_small_node, largest,
    only_class, real, walk_of,
)

import numpy as np

from ...core.defaults import shows_missing
from ...core.dispatch import FORCED
from ..forest import arrays_of, has_sets, narrowed, trusted

cnp.import_array()

cdef extern from "tree/cpu/simd/one_row.h" nogil:
    enum:
        HF_SMALL_NODES, HF_FLOAT_NODES, HF_DOUBLE_NODES
    void hf_walk_row(
        int form, const void* node, const uint32_t* root, int64_t n, const void* row, uint32_t* leaf
    )

cdef enum:
    PAIRS = 8             # pairs of siblings stored together, at most
    QUICK = 1 << 14       # steps of a call that keeps the GIL, at most: about 0.1 milliseconds
    ROWS = 4              # rows per unit of work
    LOCAL = 1 << 10       # doubles of a workspace on the stack
    LINE = 64             # bytes of a cache line
    STEPS = 8             # steps per node from which columns are faster, packing included


cdef str NO_MEMORY = "forest: no memory to walk it; pass fewer samples at a time"


cdef struct Packed:
    # The nodes that rows walk through. A place is the position of a node among the packed nodes of all trees.
    Walk w                # arrays of the forest; members for samples and results are not set
    int form              # node form (simd/one_row.h)
    char* nodes           # (n_places,), or NULL: rows are walked node by node
    uint32_t* root        # (n_trees,): places
    int32_t* number       # (n_places,): the node's number within its tree
    int32_t* answer       # (n_places,), for leaves: the only class, or -1 - the row of values within the tree
    bint has_missing      # shows_missing; otherwise other functions handle rows with missing values
    bint is_wide          # a row has two columns of each feature (`narrowed`)
    int64_t n_columns
    int64_t n_nodes
    double steps          # steps from node to node per row, at most
    double cost           # steps, and elements read and written, per row


cdef struct Splits:
    # The input of packing: the column of each node, negative for none, and the thresholds.
    const int32_t* column  # (n_nodes,): column that a node compares
    const void* threshold  # (n_nodes,): float or double
    int32_t* depth        # OUT (n_trees,): depth of each tree


cdef struct Space:
    # The workspace of one thread.
    char* columns         # (n_columns,): keys of a row
    uint32_t* place       # (n_trees,): places of the leaves that a row reaches
    int32_t* leaf         # the memory of `place`: numbers of the leaves, if rows are walked node by node
    double* total         # (n_outputs,): sums of leaf values of a row


# ---------------------------------------------------------------------------------------------- packing

cdef int32_t _depth_of(
    const int32_t* feature, const int32_t* left, int64_t n_nodes, int32_t* depth
) noexcept nogil:
    # Returns the depth of a tree's deepest leaf. depth: OUT (n_nodes,), the depth of each node.
    cdef int32_t deepest = 0
    cdef int64_t v
    depth[0] = 0
    for v in range(n_nodes):
        deepest = max(deepest, depth[v])
        if feature[v] != -1:
            depth[left[v]] = depth[left[v] + 1] = depth[v] + 1
    return deepest


cdef void _place_tree(
    const int32_t* feature, const int32_t* left, int32_t* place, int32_t* pending
) noexcept nogil:
    # Writes the places of a tree's nodes relative to its root. The root leaves the place of a sibling unused.
    # A pair of siblings is followed by the pairs below it in breadth-first order, up to PAIRS in all. The
    # pairs below these are queued in `pending`.
    cdef int32_t pair[2 * PAIRS + 1]
    cdef int64_t n_pending = 0, begun = 0
    cdef int32_t at = 2, v, side
    cdef int n_pairs = 0, taken = 0
    place[0] = 0
    if feature[0] != -1:
        pair[0], n_pairs = left[0], 1
    while n_pairs or begun < n_pending:
        if n_pairs == 0:
            pair[0], n_pairs = pending[begun], 1
            begun += 1
        taken = 0
        while taken < n_pairs and taken < PAIRS:
            for side in range(2):
                v = pair[taken] + side
                place[v] = at
                at += 1
                if feature[v] != -1:
                    pair[n_pairs] = left[v]
                    n_pairs += 1
            taken += 1
        while taken < n_pairs:
            pending[n_pending] = pair[taken]
            n_pending += 1
            taken += 1
        n_pairs = 0


cdef void _write_node(
    const Packed* p, int64_t at, double threshold, uint32_t column, uint32_t next
) noexcept nogil:
    if p.form == HF_SMALL_NODES:
        (<hf_small_node*> p.nodes)[at].threshold = <float> threshold
        (<hf_small_node*> p.nodes)[at].to = next << 16 | column
    elif p.form == HF_FLOAT_NODES:
        (<hf_float_node*> p.nodes)[at].threshold = <float> threshold
        (<hf_float_node*> p.nodes)[at].feature = <int32_t> column
        (<hf_float_node*> p.nodes)[at].next = <int32_t> next
    else:
        (<hf_double_node*> p.nodes)[at].threshold = threshold
        (<hf_double_node*> p.nodes)[at].feature = <int32_t> column
        (<hf_double_node*> p.nodes)[at].next = <int32_t> next


cdef void _pack_tree(
    const Packed* p, const Splits* splits, const real* threshold, const real* value, int64_t tree,
    int32_t* place, hf_watch* watch,
) noexcept nogil:
    # Writes the nodes, numbers and answers of a tree. place: workspace (2 * n_nodes,).
    cdef int64_t root = p.w.forest.tree_start[tree], n_nodes = p.w.forest.tree_start[tree + 1] - root, v, at
    cdef int64_t first = root + tree, n_outputs = p.w.n_outputs, n_steps = 0, answer
    cdef const real* values = value + first // 2 * n_outputs
    cdef const int32_t* left = p.w.forest.left + root
    cdef const int32_t* column = splits.column + root
    _place_tree(column, left, place, place + n_nodes)
    p.root[tree] = <uint32_t> first
    for v in range(n_nodes):
        at = first + place[v]
        p.number[at] = <int32_t> v
        if column[v] >= 0:
            _write_node(
                p, at, threshold[root + v], <uint32_t> column[v], <uint32_t> (place[left[v]] - place[v])
            )
            continue
        _write_node(p, at, INFINITY, 0, 0)
        # With one output, all leaves would have the same class.
        answer = only_class(values + left[v] * n_outputs, n_outputs) if n_outputs > 1 else -1
        p.answer[at] = <int32_t> (answer if answer >= 0 else -1 - left[v])
        if hf_stopped_after(watch, &n_steps, n_outputs):
            return


cdef bint _prepare_tree(const Packed* p, const Splits* splits, int64_t tree, hf_watch* watch) noexcept nogil:
    # Computes the depth of a tree, and packs the tree if trees are packed; returns whether there was memory.
    cdef int64_t root = p.w.forest.tree_start[tree], n_nodes = p.w.forest.tree_start[tree + 1] - root
    cdef hf_arena arena
    cdef int32_t* workspace
    cdef bint has_memory
    memset(&arena, 0, sizeof(hf_arena))
    workspace = <int32_t*> take(&arena, 2 * n_nodes * sizeof(int32_t))
    has_memory = not arena.failed
    if has_memory:
        splits.depth[tree] = _depth_of(p.w.forest.feature + root, p.w.forest.left + root, n_nodes, workspace)
    if has_memory and p.nodes != NULL:
        if p.w.single:
            _pack_tree(
                p, splits, <const float*> splits.threshold, <const float*> p.w.value, tree, workspace, watch
            )
        else:
            _pack_tree(
                p, splits, <const double*> splits.threshold, <const double*> p.w.value, tree, workspace, watch
            )
    release(&arena)
    return has_memory


cdef void _take_nodes(Packed* p, hf_arena* arena) noexcept nogil:
    # Allocates the packed nodes.
    cdef int64_t most = 0, tree, n_places = p.n_nodes + p.w.n_trees, size
    for tree in range(p.w.n_trees):
        most = max(most, p.w.forest.tree_start[tree + 1] - p.w.forest.tree_start[tree])
    p.form = HF_DOUBLE_NODES
    if p.w.single:
        p.form = HF_SMALL_NODES if most + 1 < HF_SMALL and p.n_columns < HF_SMALL else HF_FLOAT_NODES
    size = 8 if p.form == HF_SMALL_NODES else 12 if p.form == HF_FLOAT_NODES else 16
    p.root = <uint32_t*> take(arena, p.w.n_trees * sizeof(uint32_t))
    p.number = <int32_t*> take(arena, n_places * sizeof(int32_t))
    p.answer = <int32_t*> take(arena, n_places * sizeof(int32_t))
    p.nodes = <char*> take(arena, n_places * size + LINE)
    if p.nodes != NULL:
        p.nodes += (-<uintptr_t> p.nodes) % LINE


cdef void _prepare(Packed* p, Splits* splits, bint packs, hf_arena* arena, hf_watch* watch) noexcept nogil:
    cdef int threads = 1 if p.n_nodes < QUICK else hf_threads()
    cdef int64_t tree
    cdef hf_arena workspace
    memset(&workspace, 0, sizeof(hf_arena))
    splits.depth = <int32_t*> take(&workspace, p.w.n_trees * sizeof(int32_t))
    if packs:
        _take_nodes(p, arena)
    if arena.failed or workspace.failed:
        hf_stop(watch)
    else:
        for tree in prange(hf_units(watch, p.w.n_trees, threads), schedule="dynamic", num_threads=threads):
            if hf_begin(watch, tree):
                if not _prepare_tree(p, splits, tree, watch):
                    hf_stop(watch)
                hf_end(watch)
        for tree in range(0 if hf_has_stopped(watch) else p.w.n_trees):
            p.steps += splits.depth[tree]
    release(&workspace)


# ---------------------------------------------------------------------------------------------- one row

cdef bint _read_some(const Packed* p, const real* x, bint single, char* columns) noexcept nogil:
    # Writes the columns of a row. Returns whether all elements are in the range of the forest's dtype, and
    # finite or, if the forest handles missing values, missing.
    cdef float* floats = <float*> columns
    cdef double* doubles = <double*> columns
    cdef int64_t n = p.w.n_features, f
    cdef double a, low, high
    cdef bint is_good = True
    for f in range(n):
        a = <double> <float> x[f] if single else <double> x[f]
        low = high = a
        if a - a != 0:
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
    const Packed* p, const char* x, int itemsize, const Space* s, bint* is_good
) noexcept nogil:
    # Returns the columns of a row, without a copy if the row has their form. is_good: OUT, as _read_some
    # returns.
    cdef bint single = p.w.single
    if itemsize == (4 if single else 8) and not p.has_missing:
        is_good[0] = not some_nonfinite(x, p.w.n_features, itemsize)
        # A walk reads x even at a leaf.
        return x if p.w.n_features else s.columns
    if itemsize == 4:
        is_good[0] = _read_some(p, <const float*> x, single, s.columns)
    else:
        is_good[0] = _read_some(p, <const double*> x, single, s.columns)
    return s.columns


cdef void _find(const Packed* p, const char* row, const Space* s) noexcept nogil:
    # Writes the leaves that a row reaches to the workspace. Calls pass the form as a constant for the C
    # compiler.
    if p.nodes == NULL:
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
    cdef bint is_good = True
    _find(p, _read_row(p, x, itemsize, s, &is_good), s)
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
    cdef int threads = 1 if n * p.steps < QUICK else hf_threads()
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
        p.is_wide = p.has_missing and is_plain
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
        start_watch(&watch)
        with nogil:
            _prepare(p, &splits, packs, &self._arena, &watch)
        raise_stopped(&watch, "forest: no memory to prepare it; free 32 bytes for each of its nodes")
        if not is_plain:
            p.steps *= 1 + len(self._forest.data) // p.n_nodes
        p.cost = p.steps + p.n_columns + p.w.n_outputs

    def __dealloc__(self):
        release(&self._arena)

    def __reduce__(self):
        return Prepared, (self._forest,)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __repr__(self):
        return f"<Prepared of {self._packed.w.n_trees} trees, {self._packed.n_nodes} nodes>"


def quick(Prepared forest not None, x, int vote):
    """Returns leaves (vote < 0), means or vote shares of a few rows as a new array, else None.

    None means that another function has to be called: x has many rows or rows that are not good, or is not a
    C-contiguous array of float32 or float64.
    """
    if not cnp.PyArray_CheckExact(x) or _is_forced():
        return None
    cdef cnp.ndarray a = x, result
    cdef Packed* p = &forest._packed
    cdef int kind = cnp.PyArray_TYPE(a), outcome
    cdef cnp.npy_intp[2] shape
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
    # The call keeps the GIL: if other threads want it, getting it back would take milliseconds.
    outcome = _do_unit(
        p, <const char*> cnp.PyArray_DATA(a), 4 if kind == cnp.NPY_FLOAT else 8, shape[0], vote,
        <char*> cnp.PyArray_DATA(result), shape[1] * cnp.PyArray_ITEMSIZE(result),
    )
    if outcome < 0:
        raise MemoryError(NO_MEMORY)
    return result if outcome else None


def is_for(Prepared forest not None, int64_t n, bint has_missing):
    """Returns whether `write` is fastest for n rows and no block of `hforest.using` is active."""
    if has_missing and not forest._packed.has_missing:
        return False
    return not _is_forced() and n * forest._packed.steps < max(QUICK, STEPS * forest._packed.n_nodes)


def write(Prepared forest not None, cnp.ndarray x not None, int vote, cnp.ndarray result not None):
    """Writes leaves (vote < 0), means or vote shares of checked rows, whose dtype is that of the forest."""
    cdef Packed* p = &forest._packed
    cdef hf_watch watch
    cdef int itemsize = 4 if p.w.single else 8
    cdef int64_t n = cnp.PyArray_DIM(x, 0)
    cdef int64_t width = cnp.PyArray_ITEMSIZE(result) * cnp.PyArray_DIM(result, 1)
    cdef const char* rows = <const char*> cnp.PyArray_DATA(x)
    cdef char* to = <char*> cnp.PyArray_DATA(result)
    start_watch(&watch)
    with nogil:
        _do_units(p, rows, itemsize, n, vote, to, width, &watch)
    raise_stopped(&watch, NO_MEMORY)
