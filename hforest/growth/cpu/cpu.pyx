"""The CPU backend of growth. A thread owns a tree, or a block of columns to be encoded.

    grow, grow_projected   one task for all trees, one thread each     builder.pyx
    candidate sources      columns of bins, random projections         column_source.pyx, projections.pyx
    scorers                chosen by the table in table.pxd         sorted_scan, pairwise, histogram, bounds
    vector bodies          inner loops of the scorers                  bodies.pyx, simd/
"""

import numpy as np

from cython.parallel cimport prange
from libc.math cimport log2
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

cimport hforest.core.arrays as cnp
from hforest.core.arena cimport hf_arena, release, take
from hforest.core.machine cimport (
    hf_begin, hf_end, hf_stop, hf_stopped, hf_threads_for, hf_units, hf_watch, raise_interrupt,
    raise_stopped, simd_path, start_watch,
)
from hforest.core.score cimport require_criteria
from hforest.core.views cimport start, start_of_reals, start_of_rows
from hforest.growth.cpu.scorers.bodies cimport HF_PATH_PLAIN
from hforest.growth.cpu.builder cimport grow_tree, hf_arrays, order_tree, tree_key
from hforest.growth.cpu.sources.column_source cimport source_of_columns
from hforest.growth.cpu.sources.column_readers cimport reader_of
from hforest.growth.cpu.sources.columns cimport hf_columns, hf_stored_rows
from hforest.growth.cpu.leaves cimport HF_LEAF_VALUES
from hforest.growth.cpu.sources.number_source cimport hf_number_columns, source_of_numbers
from hforest.growth.cpu.sources.projected_values cimport fill_corners, whole_row
from hforest.growth.cpu.sources.projections cimport (
    HF_KERNELS, HF_PATCH, corner_t, distribution_of, hf_distribution, hf_projections, real,
    source_of_projections,
)
from hforest.growth.cpu.sources.ranks cimport hf_column, hf_order, rank_column
from hforest.growth.cpu.task cimport (
    HF_STREAM_BOOTSTRAP, HF_STREAM_POISSON, hf_below, hf_draw, hf_philox, hf_roots, hf_task, hf_tree,
)

from ...core.in_place import PlacedWindows
from ...core.projections import draw_table
from ...core.sparse import Columns
from ..bins import Bins, Prepared
from ..encoding import whole_numbers
from ..trees import NO_DEFAULTS, Trees
from .sources.stored import stored_rows

cdef extern from "growth/poisson.h" nogil:
    int hf_poisson(uint32_t word)

cnp.import_array()
require_criteria(__name__)

cdef enum:
    COLUMNS = 16          # columns that are read together, at most: a row of them is one or two cache lines
    COLUMN_VALUES = 1 << 21   # values of these columns, at most: fewer columns if there are many samples
    COPIED = 1 << 24      # elements that NumPy copies between two checks for signals
    ROWS = 1 << 12        # rows of columns that are copied between two checks for signals
    BLOCK = 64            # rows per unit of work
    JOIN_NS = 10          # nanoseconds per node of a tree that is copied to the arrays of a forest
    ENCODE_NS = 30        # per value of a column, which is sorted
    COUNT_NS = 5          # per in-bag count or draw
    GROW_NS = 5           # per sample, level and column that a node tries
    READ_NS = 1           # per value of a row
    WATCHED = 1 << 20     # draws of a bootstrap between two checks for signals
    LARGE_PATCH = 7       # entries of a patch from which four look-ups are cheaper
    WHOLE = 1 << 24       # float32 holds every integer up to this


# ------------------------------------------------------------------------------------------------- bootstrap

cdef void _bootstrap(
    uint64_t key, int64_t n, int64_t n_draws, int32_t* count, hf_watch* watch
) noexcept nogil:
    # Writes the number of times that a tree draws each of n samples, in n_draws draws with replacement.
    cdef hf_draw draw
    cdef int64_t i, block
    for block in range((n + WATCHED - 1) // WATCHED):
        if hf_stopped(watch):
            return
        i = block * WATCHED
        memset(count + i, 0, min(WATCHED, n - i) * sizeof(int32_t))
    for i in range(n_draws):
        if i % WATCHED == 0 and hf_stopped(watch):
            return
        if i % 4 == 0:
            draw = hf_philox(key, <uint64_t> (i // 4), HF_STREAM_BOOTSTRAP)
        count[hf_below(draw.word[i % 4], <uint32_t> n)] += 1


cdef void _poisson(
    uint64_t key, int64_t first_row, int64_t n, int32_t* count, hf_watch* watch
) noexcept nogil:
    # Writes the Poisson counts of a tree for rows first_row to first_row + n - 1.
    cdef hf_draw draw
    cdef int64_t i, row
    draw.word[0] = draw.word[1] = draw.word[2] = draw.word[3] = 0
    for i in range(n):
        if i % WATCHED == 0 and hf_stopped(watch):
            return
        row = first_row + i
        if i == 0 or row % 4 == 0:
            draw = hf_philox(key, <uint64_t> (row // 4), HF_STREAM_POISSON)
        count[i] = hf_poisson(draw.word[row % 4])


cdef int _count_draws(
    uint64_t seed, int64_t first, int64_t first_row, int64_t n_draws, int32_t[:, ::1] counts
) except -1:
    # Writes to counts[m] (OUT) the number of times that tree first + m has each sample: in n_draws draws, or
    # if they are -1 from a Poisson distribution.
    cdef int64_t n = counts.shape[1], m, n_units
    cdef int threads = hf_threads_for(<double> COUNT_NS * counts.shape[0] * max(n, n_draws))
    cdef uint64_t key
    cdef hf_watch watch
    if counts.size == 0:
        return 0
    start_watch(&watch)
    n_units = hf_units(&watch, counts.shape[0], threads)
    for m in prange(n_units, schedule="dynamic", num_threads=threads, nogil=True):
        if hf_begin(&watch, m):
            key = tree_key(seed, first + m)
            if n_draws < 0:
                _poisson(key, first_row, n, &counts[m, 0], &watch)
            else:
                _bootstrap(key, n, n_draws, &counts[m, 0], &watch)
            hf_end(&watch)
    return raise_interrupt(&watch)


def bootstrap_counts(uint64_t seed, int64_t first, int64_t n_draws, int32_t[:, ::1] counts):
    """Writes to counts[m] (OUT) the number of times that tree first + m draws each sample."""
    _count_draws(seed, first, 0, n_draws, counts)


def poisson_counts(uint64_t seed, int64_t first, int64_t first_row, int32_t[:, ::1] counts):
    """Writes to counts[m] (OUT) the Poisson counts of tree first + m for the rows from first_row on."""
    _count_draws(seed, first, first_row, -1, counts)


# -------------------------------------------------------------------------------------------------- encoding

cdef bint _encode_columns(
    const real[:, :] x, Py_ssize_t first, Py_ssize_t last, uint32_t[:, ::1] bins, double[:, ::1] low,
    double[:, ::1] high, int64_t[::1] n_bins, hf_watch* watch,
) noexcept nogil:
    # Encodes columns first to last - 1; returns whether there was memory.
    cdef Py_ssize_t n = x.shape[0], i, f
    cdef hf_arena arena
    cdef real* copy
    cdef hf_order order
    cdef hf_column column
    cdef bint fine
    memset(&arena, 0, sizeof(hf_arena))
    copy = <real*> take(&arena, (last - first) * n * sizeof(real))
    order.key, order.key2 = <uint64_t*> take(&arena, 8 * n), <uint64_t*> take(&arena, 8 * n)
    if real is double:
        order.index, order.index2 = <uint32_t*> take(&arena, 4 * n), <uint32_t*> take(&arena, 4 * n)
    fine = not arena.failed
    for i in range(n if fine else 0):
        if i % ROWS == 0 and hf_stopped(watch):
            break
        for f in range(first, last):
            copy[(f - first) * n + i] = x[i, f]
    column.n, column.n_bins = n, low.shape[1]
    for f in range(first, last if fine else first):
        if hf_stopped(watch):
            break
        column.bins, column.low, column.high = &bins[f, 0], &low[f, 0], &high[f, 0]
        n_bins[f] = rank_column(copy + (f - first) * n, &column, order, watch)
    release(&arena)
    return fine


cdef void _encode(
    const real[:, :] x, uint32_t[:, ::1] bins, double[:, ::1] low, double[:, ::1] high,
    int64_t[::1] n_bins, hf_watch* watch,
) noexcept nogil:
    cdef int64_t columns = max(1, min(COLUMNS, COLUMN_VALUES // x.shape[0])), block
    cdef int64_t n_blocks = (x.shape[1] + columns - 1) // columns
    cdef int threads = hf_threads_for(<double> ENCODE_NS * x.shape[0] * x.shape[1])
    for block in prange(hf_units(watch, n_blocks, threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, block):
            if not _encode_columns(
                x, block * columns, min((block + 1) * columns, x.shape[1]), bins, low, high, n_bins, watch
            ):
                hf_stop(watch)
            hf_end(watch)


def encode(x, uint32_t[:, ::1] bins, double[:, ::1] low, double[:, ::1] high, int64_t[::1] n_bins):
    """Writes the rank of each value in its column, or its bin if there are more ranks than columns of `low`.

    x: IN (n, n_columns), with any strides. bins: OUT (n_columns, n) uint32. low and high: OUT (n_columns,
    most) float64, which can be one array if most = n. n_bins: OUT (n_columns,) int64. NaN has the bin after
    the last one, which n_bins does not count.
    """
    cdef hf_watch watch
    start_watch(&watch)
    if x.dtype.itemsize == 4:
        _encode[float](x, bins, low, high, n_bins, &watch)
    else:
        _encode[double](x, bins, low, high, n_bins, &watch)
    raise_stopped(&watch, "encode: no memory to order {} values", len(x))


# ------------------------------------------------------------------------------------------------------ trees

cdef class _Grown:
    """A tree in the order of its growth; `joined` writes it breadth-first."""

    def __dealloc__(self):
        release(&self.tree.arena)


cdef void* _at(cnp.ndarray array, int64_t number):
    return <void*> (<char*> cnp.PyArray_DATA(array) + number * cnp.PyArray_ITEMSIZE(array))


def joined(trees, int64_t n_outputs, dtype, bint projected):
    """Returns the trees that `grow` or `grow_projected` has appended in one record; see `trees.Trees`."""
    cdef int64_t m, n_units, n_trees = len(trees)
    cdef hf_arrays part
    cdef cnp.ndarray memory = np.empty(n_trees * sizeof(hf_arrays), np.uint8)
    cdef hf_arrays* parts = <hf_arrays*> cnp.PyArray_DATA(memory)
    cdef const hf_tree* tree
    cdef int single = dtype.itemsize == 4, n_threads
    cdef hf_watch watch
    cdef int64_t[::1] nodes = np.zeros(n_trees + 1, np.int64), leaves = np.zeros(n_trees + 1, np.int64)
    cdef int64_t[::1] entries = np.zeros(n_trees + 1, np.int64), words = np.zeros(n_trees + 1, np.int64)
    for m in range(n_trees):
        tree = &(<_Grown?> trees[m]).tree
        nodes[m + 1] = nodes[m] + tree.n_nodes
        leaves[m + 1] = leaves[m] + tree.n_leaves
        entries[m + 1] = entries[m] + tree.n_entries
        words[m + 1] = words[m] + tree.n_all_words
    feature, left = (np.empty(nodes[n_trees], np.int32) for _ in range(2))
    threshold = np.empty(nodes[n_trees], dtype)
    # Gains decide which nodes of `Roots` stay, and are rounded later.
    gain = np.empty(nodes[n_trees], dtype if (<_Grown> trees[0]).tree.row == NULL else np.float64)
    value = np.empty((leaves[n_trees], n_outputs * HF_LEAF_VALUES), dtype)
    indptr, indices, data = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, dtype)
    if projected:
        indptr = np.empty(nodes[n_trees] + 1, np.int64)
        indices, data = np.empty(entries[n_trees], np.int32), np.empty(entries[n_trees], dtype)
        indptr[nodes[n_trees]] = entries[n_trees]
    default_left = np.empty(nodes[n_trees], np.uint8)
    _, word_indptr, all_words = NO_DEFAULTS
    if (<_Grown> trees[0]).tree.has_defaults:
        word_indptr = np.empty(nodes[n_trees] + 1, np.int64)
        all_words = np.empty(words[n_trees], np.uint32)
        word_indptr[nodes[n_trees]] = words[n_trees]
    for m in range(n_trees):
        part.tree = &(<_Grown> trees[m]).tree
        part.feature, part.left = <int32_t*> _at(feature, nodes[m]), <int32_t*> _at(left, nodes[m])
        part.threshold, part.gain = _at(threshold, nodes[m]), _at(gain, nodes[m])
        part.value = _at(value, leaves[m] * n_outputs * HF_LEAF_VALUES)
        part.indptr, part.first_entry, part.indices, part.data = NULL, entries[m], NULL, NULL
        if projected:
            part.indptr = <int64_t*> _at(indptr, nodes[m])
            part.indices, part.data = <int32_t*> _at(indices, entries[m]), _at(data, entries[m])
        part.default_left = <uint8_t*> _at(default_left, nodes[m])
        part.word_indptr, part.first_word, part.words = NULL, words[m], NULL
        if part.tree.has_defaults:
            part.word_indptr = <int64_t*> _at(word_indptr, nodes[m])
            part.words = <uint32_t*> _at(all_words, words[m])
        parts[m] = part
    start_watch(&watch)
    n_threads = hf_threads_for(<double> JOIN_NS * nodes[n_trees])
    n_units = hf_units(&watch, n_trees, n_threads)
    for m in prange(n_units, schedule="dynamic", num_threads=n_threads, nogil=True):
        if hf_begin(&watch, m):
            order_tree(&parts[m], n_outputs, single)
            hf_end(&watch)
    raise_interrupt(&watch)
    if not words[n_trees]:
        _, word_indptr, all_words = NO_DEFAULTS
    return Trees(
        tree_start=np.asarray(nodes), feature=feature, threshold=threshold, left=left, value=value, gain=gain,
        indptr=indptr, indices=indices, data=data, default_left=default_left, category_indptr=word_indptr,
        category_bits=all_words,
    )


cdef const void* _address_of_bins(a):
    # Returns the address of a matrix of uint8, uint16 or uint32.
    if a.itemsize == 1:
        return start_of_rows[uint8_t](a)
    return <const void*> start_of_rows[uint16_t](a) if a.itemsize == 2 else start_of_rows[uint32_t](a)


cdef hf_roots _roots(roots):
    # Returns trees.Roots as the struct of a task.
    cdef hf_roots a
    indptr, key, weight, depth, unit, bounds, sample = (None,) * 7 if roots is None else roots
    centre, k, spread, heaviest = (None,) * 4 if unit is None else unit
    a.indptr, a.key = start[int64_t](indptr), start[uint64_t](key)
    a.weight, a.depth = start[double](weight), start[int64_t](depth)
    a.centre, a.k = start_of_rows[double](centre), start[int64_t](k)
    a.spread, a.heaviest = start[double](spread), start[double](heaviest)
    a.bounds, a.sample = start_of_rows[double](bounds), start[int32_t](sample)
    return a


cdef hf_task task_of(objective, int64_t n_candidates, batch, bint single):
    # Returns the task of a batch of trees, without its source.
    cdef hf_task t
    labels, targets, n_outputs, _ = objective.target
    t.n, t.single, t.path, t.base = len(objective.sample_weight), single, simd_path(), NULL
    t.weight, t.labels = start[double](objective.sample_weight), start[int32_t](labels)
    t.targets = start_of_rows[double](targets)
    t.n_outputs, t.criterion, t.n_candidates = n_outputs, objective.criterion, n_candidates
    t.monotonic = start[int32_t](objective.monotonic)
    t.in_terms = t.monotonic != NULL
    t.scale = objective.scale
    t.has_defaults, t.roots = False, _roots(batch.roots)
    t.max_depth, t.min_split, t.min_leaf, t.min_decrease, t.min_weight_fraction, t.max_leaves = (
        objective.limits
    )
    t.seed, t.watch = batch.seed, NULL
    return t


cdef hf_stored_rows _stored_rows(rows, shape):
    # Returns the struct of the result of stored_rows, which must outlive it.
    cdef hf_stored_rows a
    indptr, columns, entries = rows
    a.indptr, a.column, a.entry = start[int64_t](indptr), start[int32_t](columns), start[int32_t](entries)
    a.n, a.n_columns = shape
    return a


cdef hf_columns columns_of(bins, workspace, bint random_thresholds):
    # Returns the struct of bins and of the result of prepare_columns, which must outlive it.
    cdef hf_columns c
    cdef const double[:, ::1] low, high
    cdef cnp.ndarray numbers = bins.values  # or None
    c.bins, c.width, c.n_columns = _address_of_bins(bins.bins), bins.bins.itemsize, bins.shape[1]
    c.low, c.high, c.numbers, c.n_bins = NULL, NULL, NULL, bins.low.shape[1]
    c.state = NULL
    if bins.state is not None:
        c.state = <int32_t*> cnp.PyArray_DATA(bins.state)
    if bins.low.size:
        low, high = bins.low, bins.high
        c.low, c.high = &low[0, 0], &high[0, 0]
    if numbers is not None:
        c.numbers = <const char*> cnp.PyArray_DATA(numbers)
        c.strides = [cnp.PyArray_STRIDE(numbers, 0), cnp.PyArray_STRIDE(numbers, 1)]
    c.rows, c.random_thresholds = NULL, random_thresholds
    c.offset, c.missing = start[int64_t](bins.offset), start[int64_t](bins.missing)
    c.categorical = start[uint8_t](None if bins.categorical is None else bins.categorical.view(np.uint8))
    c.stored.indptr, c.stored.sample, c.stored.by_default, c.stored.table = NULL, NULL, NULL, NULL
    c.windows.x = NULL
    if bins.stored is not None:
        pass
    elif bins.missing is not None and workspace is not None:
        c.bins = _address_of_bins(workspace)
    elif workspace is not None:
        c.rows = start_of_rows[uint8_t](workspace)
    if bins.stored is not None:
        c.stored.indptr = start[int64_t](bins.stored.indptr)
        c.stored.sample = start[int32_t](bins.stored.indices)
        c.stored.by_default = start[int32_t](bins.stored.default)
        c.stored.table = start[int64_t](bins.stored.table)
        c.stored.rows = _stored_rows(workspace, bins.shape)
        c.n_bins = int(np.diff(bins.stored.table).max())
    # With missing values, the 8-bit scorers need the columns twice, which is the workspace.
    c.are_bytes = c.width == 1 and bins.stored is None and (bins.missing is None or workspace is not None)
    c.read = reader_of(&c)
    return c


cdef bint _grow_tree(
    const hf_task* t, const double* weight, int64_t number, const int32_t* counts, const int32_t* order,
    hf_tree* tree
) noexcept nogil:
    # Grows a tree; returns whether there was memory.
    #
    # weight  IN (t.n,)  in place of t.weight, or NULL
    cdef hf_task own
    if weight == NULL:
        return grow_tree(t, number, counts, order, tree)
    own = t[0]
    own.weight = weight
    return grow_tree(&own, number, counts, order, tree)


cdef object grow_trees(hf_task* t, batch):
    # Appends the trees of a batch to batch.trees.
    cdef int64_t m, n_units, n_trees = batch.n_trees, first = batch.first
    cdef double steps = log2(<double> t.n + 1) * t.n * t.n_candidates * n_trees
    cdef int threads = <int> min(n_trees, <int64_t> hf_threads_for(GROW_NS * steps))
    cdef Py_ssize_t[::1] at = np.empty(n_trees, np.intp)
    cdef const int32_t* counts = start_of_rows[int32_t](batch.counts)
    cdef const int32_t* order = start_of_rows[int32_t](batch.order)
    cdef const double* weight = start_of_rows[double](batch.weight)
    cdef int64_t counts_size = t.n if counts != NULL else 0, order_size = t.n if order != NULL else 0
    cdef int64_t weight_size = t.n if weight != NULL else 0
    cdef int32_t[:, ::1] reached = batch.reached
    cdef hf_watch watch
    grown = [_Grown() for _ in range(n_trees)]
    for m in range(n_trees):
        at[m] = <Py_ssize_t> &(<_Grown> grown[m]).tree
        (<_Grown> grown[m]).tree.reached = NULL if reached is None else &reached[m, 0]
    start_watch(&watch)
    t.watch = &watch
    n_units = hf_units(&watch, n_trees, threads)
    for m in prange(n_units, schedule="dynamic", num_threads=threads, nogil=True):
        if hf_begin(&watch, m):
            if not _grow_tree(
                t, weight + m * weight_size, first + m, counts + m * counts_size, order + m * order_size,
                <hf_tree*> at[m],
            ):
                hf_stop(&watch)
            hf_end(&watch)
    raise_stopped(&watch, "grow: no memory for a tree on {} samples", t.n)
    batch.trees.extend(grown)


# ---------------------------------------------------------------------------------------------------- columns

def _transposed(a):
    """Returns a transposed copy of a matrix; checks for signals between parts of it."""
    cdef Py_ssize_t step = max(1, COPIED // a.shape[0]), i
    out = np.empty((a.shape[1], a.shape[0]), a.dtype)
    for i in range(0, len(out), step):
        out[i : i + step] = a[:, i : i + step].T
    return out


def columns_read(splitter):
    """Returns what trees read of exact columns of numbers: "numbers", "bins" or bins with "tables"."""
    return "numbers" if splitter == "random" else "bins"


def prepare_columns(bins, splitter):
    """Returns the arrays that `grow` reads besides the bins, or None.

    Nodes of few samples read rows: a transposed copy of 8-bit bins. 8-bit bins with missing values are
    returned twice, with these last and first. A sparse matrix gets the columns that each sample stores.
    """
    columns = bins.bins
    if bins.stored is not None:
        return stored_rows(bins.stored.indptr, bins.stored.indices, bins.stored.n_samples)
    if bins.missing is not None:
        if columns.itemsize > 1 or bins.categorical is not None or splitter == "random":
            return None
        first = np.where(columns == bins.missing[:, None], 0, columns + np.uint8(1))
        return np.concatenate([columns, first.astype(np.uint8, copy=False)])
    if bins.base is not None or bins.state is not None or columns.itemsize > 1:
        return None
    if simd_path() == HF_PATH_PLAIN:
        return None
    return _transposed(columns)


cdef object _grow_on_numbers(x, objective, max_features, batch):
    # Does the work of `grow` for a matrix or windows.
    cdef hf_number_columns columns
    cdef hf_task t
    columns.place, columns.stride, columns.n_columns = NULL, x.shape[1], x.shape[1]
    if isinstance(x, PlacedWindows):
        t = task_of(objective, max_features, batch, x.x.itemsize == 4)
        t.base, columns.place, columns.stride = start[int64_t](x.base), start[int64_t](x.offset), 1
        columns.x = start_of_reals(x.x)
    else:
        t = task_of(objective, max_features, batch, x.itemsize == 4)
        columns.x = start_of_reals(x)
    t.source = source_of_numbers(&columns)
    grow_trees(&t, batch)


def grow(bins, workspace, objective, max_features, splitter, batch):
    """Appends the trees of a batch to `batch.trees` (OUT); `joined` makes arrays of them.

    For random thresholds `bins` may also be x, an array or windows, without a workspace.
    """
    if not isinstance(bins, Bins):
        return _grow_on_numbers(bins, objective, max_features, batch)
    cdef hf_task t = task_of(objective, max_features, batch, bins.dtype.itemsize == 4)
    cdef hf_columns columns = columns_of(bins, workspace, splitter == "random")
    t.source, t.has_defaults = source_of_columns(&columns), bins.missing is not None
    t.base = start[int64_t](bins.base)
    grow_trees(&t, batch)


# ------------------------------------------------------------------------------------------------ projections

cdef void _whole_rows(
    const real[:, ::1] x, uint8_t[:, ::1] numbers, int32_t[::1] kinds, hf_watch* watch
) noexcept nogil:
    cdef int64_t n_blocks = (x.shape[0] + BLOCK - 1) // BLOCK, block, n
    cdef int threads = hf_threads_for(<double> READ_NS * x.shape[0] * x.shape[1])
    for block in prange(hf_units(watch, n_blocks, threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, block):
            for n in range(block * BLOCK, min((block + 1) * BLOCK, x.shape[0])):
                kinds[n] = whole_row(&x[n, 0], x.shape[1], &numbers[n, 0])
            hf_end(watch)


cdef void _fill_corners(
    const real[:, ::1] x, const hf_distribution* a, corner_t[:, ::1] corners, hf_watch* watch
) noexcept nogil:
    cdef int64_t n_blocks = (x.shape[0] + BLOCK - 1) // BLOCK, block, n
    cdef int threads = hf_threads_for(<double> READ_NS * x.shape[0] * x.shape[1])
    for block in prange(hf_units(watch, n_blocks, threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, block):
            for n in range(block * BLOCK, min((block + 1) * BLOCK, x.shape[0])):
                fill_corners(a, &x[n, 0], &corners[n, 0])
            hf_end(watch)


def _corners(x, distribution, bint narrow):
    """Returns prefix sums over the corners of each sample's planes, modulo 2**16 or 2**32."""
    cdef hf_distribution a = distribution_of(distribution, draw_table(distribution))
    cdef hf_watch watch
    planes = distribution.channels * distribution.shape[0]
    size = planes * (distribution.shape[1] + 1) * (distribution.shape[2] + 1)
    corners = np.empty((len(x), size), np.uint16 if narrow else np.uint32)
    start_watch(&watch)
    if x.dtype.itemsize == 4 and narrow:
        _fill_corners[float, uint16_t](x, &a, corners, &watch)
    elif x.dtype.itemsize == 4:
        _fill_corners[float, uint32_t](x, &a, corners, &watch)
    elif narrow:
        _fill_corners[double, uint16_t](x, &a, corners, &watch)
    else:
        _fill_corners[double, uint32_t](x, &a, corners, &watch)
    raise_interrupt(&watch)
    return corners


def prepare_projections(x, distribution, bint has_missing):
    """Returns the arrays that `grow_projected` reads in place of x."""
    cdef hf_watch watch
    # Sums of products with weights other than +1 and -1 are not added up as integers.
    integers = distribution.kind != HF_KERNELS
    if isinstance(x, PlacedWindows) and not integers:
        return Prepared(False, None, None, None, False, draw_table(distribution))
    if isinstance(x, PlacedWindows):
        numbers, kind = whole_numbers(x.x, WHOLE // x.shape[1])
        return Prepared(kind > 0, numbers, None, None, False, draw_table(distribution))
    if isinstance(x, Columns):
        rows = stored_rows(x.stored.indptr, x.stored.indices, len(x))
        return Prepared(False, None, rows, None, has_missing, draw_table(distribution))
    numbers, kinds = np.empty(x.shape, np.uint8), np.empty(len(x), np.int32)
    start_watch(&watch)
    if x.dtype.itemsize == 4:
        _whole_rows[float](x, numbers, kinds, &watch)
    else:
        _whole_rows[double](x, numbers, kinds, &watch)
    raise_interrupt(&watch)
    whole, corners = int(kinds.min()) if integers else 0, None
    if whole < 2:
        numbers = None
    large = distribution.kind == HF_PATCH and distribution.max_entries >= LARGE_PATCH
    if whole and large and not distribution.cyclic:
        # 16 bits are enough if the sum of a patch of bytes cannot reach 2**16.
        corners = _corners(x, distribution, whole == 2 and 255 * distribution.max_entries < 2**16)
    columns = _transposed(x if numbers is None else numbers)
    return Prepared(whole > 0, numbers, columns, corners, has_missing, draw_table(distribution))


def grow_projected(x, workspace, objective, distribution, n_projections, splitter, batch):
    """Appends trees on random projections to `batch.trees`, as `grow` does for columns."""
    cdef hf_task t = task_of(objective, n_projections, batch, x.dtype.itemsize == 4)
    cdef hf_projections p
    p.distribution, p.x, p.single = distribution_of(distribution, workspace.table), NULL, t.single
    p.stored.indptr, p.stored.sample, p.stored.number = NULL, NULL, NULL
    p.offset, p.n_numbers = NULL, 0
    if isinstance(x, PlacedWindows):
        t.base, p.offset, p.n_numbers = start[int64_t](x.base), start[int64_t](x.offset), x.x.size
        p.x = start_of_reals(x.x)
    elif isinstance(x, Columns):
        p.stored.indptr = start[int64_t](x.stored.indptr)
        p.stored.sample = start[int32_t](x.stored.indices)
        if t.single:
            p.stored.number = start[float](x.stored.data)
        else:
            p.stored.number = start[double](x.stored.data)
        p.stored.rows = _stored_rows(workspace.columns, x.shape)
    else:
        p.x = start_of_reals(x)
    p.whole, p.bytes, p.corners, p.narrow = workspace.whole, NULL, NULL, False
    p.random_thresholds = splitter == "random"
    p.columns = NULL
    if workspace.numbers is not None:
        p.bytes = start_of_rows[uint8_t](workspace.numbers)
    if workspace.columns is not None and p.bytes != NULL:
        p.columns = start_of_rows[uint8_t](workspace.columns)
    elif p.x != NULL and p.offset == NULL:
        p.columns = start_of_reals(workspace.columns)
    if workspace.corners is not None:
        p.corners, p.narrow = _address_of_bins(workspace.corners), workspace.corners.itemsize == 2
    t.source, t.has_defaults = source_of_projections(&p), workspace.has_missing
    grow_trees(&t, batch)
