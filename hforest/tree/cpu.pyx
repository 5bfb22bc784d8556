"""Forests applied on the CPU. A thread owns a block of samples and adds trees up in their order."""

from cython.parallel cimport prange
from libc.math cimport isnan
from libc.stdint cimport int32_t, int64_t, uint32_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

cimport numpy as cnp

from hforest.core.machine cimport (
    hf_begin, hf_end, hf_has_stopped, hf_stop, hf_stopped, hf_stopped_after, hf_threads, hf_units, hf_watch,
    raise_interrupt, start_watch,
)
from hforest.tree.members cimport (
    Members, Neighbors, Quantiles, group_tree, write_neighbors, write_quantiles,
)
from hforest.tree.stored_rows cimport call_rows
from hforest.tree.walk cimport (
    BY_COLUMNS, HF_DOWN, HF_WALKS, Walk, add_leaves, find_leaves, hf_top, make_columns, node_size,
    pack_tree, real, walk_of, write_classes,
)

cnp.import_array()

cdef enum:
    MIN_BLOCK = 128       # samples of a block, at least
    MAX_BLOCK = 2048      # and at most: the more, the longer a tree is used from L1
    ROWS = 1 << 18        # bytes of their rows, which stay in L2 with a tree
    LINE = 64             # bytes of a cache line
    SMALL = 1 << 10       # pairs of a sample and a tree below which a second thread does not pay
    STEPS = 32            # nodes for each walk up to which packing them pays


cdef void _add(
    const Walk* w, int64_t n, int64_t tree, int64_t last, const int32_t* leaf, int64_t tree_stride,
    double* total,
) noexcept nogil:
    cdef const int32_t* class_of
    cdef int64_t i
    if w.has_classes != NULL and w.has_classes[tree]:
        class_of = w.class_of + w.forest.tree_start[tree]
        for i in range(n):
            total[i * w.n_outputs + class_of[leaf[i]]] += 1
    elif w.single:
        add_leaves(w, <const float*> w.value, tree, last, n, leaf, tree_stride, total)
    else:
        add_leaves(w, <const double*> w.value, tree, last, n, leaf, tree_stride, total)


cdef void _apply_block(
    const Walk* w, int64_t first, int64_t n, const char* columns, int32_t* reached, int32_t* leaf
) noexcept nogil:
    # Writes the leaves of n samples from `first`. reached: workspace for a tree's.
    cdef const char* x = <const char*> w.x + first * w.n_features * (4 if w.single else 8)
    cdef int64_t tree = 0, last
    while tree < w.n_trees and not hf_stopped(w.watch):
        last = min(tree + max(w.walks // n // HF_WALKS, 1) * HF_WALKS, w.n_trees)
        find_leaves(w, x, columns, n, tree, last, reached, leaf + first * w.n_trees + tree, w.n_trees, 1)
        tree = last


cdef void _predict_block(
    const Walk* w, int64_t first, int64_t n, const char* columns, int32_t* reached, double* total
) noexcept nogil:
    # Writes sums over trees for n samples from `first`. reached: workspace for HF_WALKS trees' leaves.
    cdef const char* x = <const char*> w.x + first * w.n_features * (4 if w.single else 8)
    cdef int64_t whole = (n + HF_DOWN - 1) // HF_DOWN * HF_DOWN, tree = 0, last, n_steps = 0
    memset(total, 0, n * w.n_outputs * sizeof(double))
    while tree < w.n_trees:
        # One tree if leaves are classes, which stay in cache with it; else several, whose rows are
        # added at once.
        last = tree + 1
        if w.has_classes == NULL or not w.has_classes[tree]:
            while last < min(tree + HF_WALKS, w.n_trees) and (
                w.has_classes == NULL or not w.has_classes[last]
            ):
                last += 1
        find_leaves(w, x, columns, n, tree, last, NULL, reached, 1, whole)
        _add(w, n, tree, last, reached, whole, total)
        n_steps += n * (last - tree)
        tree = last
        if n_steps >= w.walks:
            n_steps = 0
            if hf_stopped(w.watch):
                return


cdef int _block(const Walk* w, int64_t first, int32_t* leaf, void* y) noexcept nogil:
    # Returns 0 if memory is out.
    cdef int64_t n = min(w.block, w.n_samples - first), i
    cdef int64_t n_sums = n * w.n_outputs if y != NULL else 0
    # Whole groups of samples; a column of them begins with a cache line.
    cdef int64_t whole = (n + HF_DOWN - 1) // HF_DOWN * HF_DOWN, n_bytes = 0
    cdef char* workspace
    cdef char* columns
    cdef double* total
    cdef int32_t* reached
    if w.nodes != NULL and w.way == BY_COLUMNS:
        n_bytes = whole * max(w.n_features, <int64_t> 1) * (4 if w.single else 8)
    workspace = <char*> malloc(LINE + n_bytes + n_sums * sizeof(double) + HF_WALKS * whole * sizeof(int32_t))
    if workspace == NULL:
        return 0
    columns = workspace + (-<uintptr_t> workspace) % LINE
    total = <double*> (columns + n_bytes)
    reached = <int32_t*> (total + n_sums)
    if n_bytes and w.single:
        make_columns(<const float*> w.x + first * w.n_features, w.n_features, n, columns)
    elif n_bytes:
        make_columns(<const double*> w.x + first * w.n_features, w.n_features, n, columns)
    if y == NULL:
        _apply_block(w, first, n, columns, reached, leaf)
    else:
        _predict_block(w, first, n, columns, reached, total)
        for i in range(n_sums):
            if w.single:
                (<float*> y)[first * w.n_outputs + i] = <float> (total[i] / w.n_trees)
            else:
                (<double*> y)[first * w.n_outputs + i] = total[i] / w.n_trees
    free(workspace)
    return 1


cdef void _prepare(Walk* w, int64_t tree) noexcept nogil:
    if w.single:
        pack_tree(w, <const float*> w.forest.threshold, tree)
    else:
        pack_tree(w, <const double*> w.forest.threshold, tree)
    if w.has_classes != NULL and w.single:
        w.has_classes[tree] = write_classes(w, <const float*> w.value, tree)
    elif w.has_classes != NULL:
        w.has_classes[tree] = write_classes(w, <const double*> w.value, tree)


cdef int _run(Walk* w, int32_t* leaf, void* y, int64_t n_nodes) noexcept nogil:
    # Returns 0 if memory is out.
    cdef int64_t n_blocks, block, tree, row = w.n_features * (4 if w.single else 8)
    cdef int threads = 1 if w.n_samples * w.n_trees < SMALL else hf_threads()
    cdef char* memory = NULL
    if not w.node_by_node and w.n_samples * w.n_trees * STEPS >= n_nodes:
        # Top levels, nodes, classes of nodes, one byte for each tree.
        memory = <char*> malloc(w.n_trees * (sizeof(hf_top) + 1) + n_nodes * (node_size(w) + sizeof(int32_t)))
        if memory == NULL:
            return 0
        w.tops = <hf_top*> memory
        w.nodes = memory + w.n_trees * sizeof(hf_top)
        w.class_of = <int32_t*> (w.nodes + n_nodes * node_size(w))
        if y != NULL:
            w.has_classes = <char*> (w.class_of + n_nodes)
        for tree in prange(hf_units(w.watch, w.n_trees, threads), schedule="dynamic", num_threads=threads):
            if hf_begin(w.watch, tree):
                _prepare(w, tree)
                hf_end(w.watch)
    # Blocks as large as caches and a fair share of the threads allow.
    w.block = min(MAX_BLOCK, min(ROWS // max(row, 1), w.n_samples // (4 * threads)))
    w.block = max(MIN_BLOCK, w.block) // HF_DOWN * HF_DOWN
    n_blocks = (w.n_samples + w.block - 1) // w.block
    if n_blocks == 1:
        # Without the cost of a parallel region. Trees may have been left unprepared.
        if hf_has_stopped(w.watch) or not _block(w, 0, leaf, y):
            hf_stop(w.watch)
    else:
        for block in prange(hf_units(w.watch, n_blocks, threads), schedule="dynamic", num_threads=threads):
            if hf_begin(w.watch, block):
                if not _block(w, block * w.block, leaf, y):
                    hf_stop(w.watch)
                hf_end(w.watch)
    free(memory)
    return not w.watch.stopped


# ---------------------------------------------------------------------------------------------------- calls

cdef int _call(Walk* w, cnp.ndarray feature, cnp.ndarray leaf, cnp.ndarray y) except -1:
    cdef int32_t* leaves_to = NULL if leaf is None else <int32_t*> cnp.PyArray_DATA(leaf)
    cdef void* y_to = NULL if y is None else cnp.PyArray_DATA(y)
    cdef int64_t n_nodes = cnp.PyArray_DIM(feature, 0)
    cdef hf_watch watch
    cdef int done
    start_watch(&watch)
    w.watch = &watch
    with nogil:
        done = _run(w, leaves_to, y_to, n_nodes)
    raise_interrupt(&watch)
    if not done:
        raise MemoryError("forest: no memory to walk it; pass fewer samples or trees at a time")
    return 0


def apply(x, forest, leaf):
    """Writes the leaf that each sample reaches in each tree, numbered within the tree."""
    cdef Walk w = walk_of(x, forest)
    _call(&w, forest.feature, leaf, None)


def predict(x, forest, bint vote, y):
    """Writes the mean over trees of the leaf values, or the share of the trees that vote for each class."""
    cdef cnp.ndarray value = forest.value
    cdef Walk w = walk_of(x, forest)
    w.value = cnp.PyArray_DATA(value)
    w.n_outputs = cnp.PyArray_DIM(value, 1)
    w.vote = vote
    _call(&w, forest.feature, None, y)


def apply_rows(rows, forest, leaf):
    """As `apply`, of the rows of a sparse matrix."""
    call_rows(rows, forest, False, leaf, None)


def predict_rows(rows, forest, bint vote, y):
    """As `predict`, of the rows of a sparse matrix."""
    call_rows(rows, forest, vote, None, y)


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


# ------------------------------------------------------------------------------------- members of leaves


cdef int _group(
    const int32_t[:, ::1] leaf, const int64_t[::1] tree_start, int64_t* indptr, int32_t* member,
    hf_watch* watch,
) except -1 nogil:
    cdef int64_t n_rows = leaf.shape[0], n_trees = leaf.shape[1], n_nodes = tree_start[n_trees]
    cdef int64_t i, m, v, tree, n_steps = 0, total = 0, own
    cdef int threads = 1 if n_rows * n_trees < SMALL else hf_threads()
    for i in range(n_rows):
        for m in range(n_trees):
            if leaf[i, m] >= 0:
                indptr[tree_start[m] + leaf[i, m]] += 1
        if hf_stopped_after(watch, &n_steps, n_trees):
            return 0
    for v in range(n_nodes + 1):
        own = indptr[v]
        indptr[v] = total
        total += own
    if n_rows == 0:
        return 0
    for tree in prange(hf_units(watch, n_trees, threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, tree):
            group_tree(tree, &leaf[0, 0], n_rows, n_trees, &tree_start[0], indptr, member)
            hf_end(watch)
    return 0


def group(leaf, tree_start, cnp.ndarray indptr, cnp.ndarray member):
    """Writes the samples of each node in ascending order, and where those of each node begin."""
    cdef int64_t* nodes = <int64_t*> cnp.PyArray_DATA(indptr)
    cdef int32_t* members = <int32_t*> cnp.PyArray_DATA(member)
    cdef const int32_t[:, ::1] leaves = leaf
    cdef const int64_t[::1] start = tree_start
    cdef hf_watch watch
    indptr.fill(0)
    start_watch(&watch)
    with nogil:
        _group(leaves, start, nodes, members, &watch)
    raise_interrupt(&watch)


cdef Members _members_of(
    cnp.ndarray leaf, cnp.ndarray tree_start, cnp.ndarray indptr, cnp.ndarray member, int64_t n_members
):
    cdef Members f
    memset(&f, 0, sizeof(Members))
    f.leaf = <const int32_t*> cnp.PyArray_DATA(leaf)
    f.tree_start = <const int64_t*> cnp.PyArray_DATA(tree_start)
    f.indptr = <const int64_t*> cnp.PyArray_DATA(indptr)
    f.member = <const int32_t*> cnp.PyArray_DATA(member)
    f.n_rows = cnp.PyArray_DIM(leaf, 0)
    f.n_trees = cnp.PyArray_DIM(leaf, 1)
    f.n_members = n_members
    return f


def quantiles(
    leaf, tree_start, indptr, rank, cnp.ndarray weight, cnp.ndarray y, cnp.ndarray levels, bint equal_trees,
    cnp.ndarray found,
):
    """Writes the quantiles of the targets that rows reach; those of a row that reaches none stay."""
    cdef Members f
    cdef Quantiles q
    cdef hf_watch watch
    cdef int64_t k, n_outputs = cnp.PyArray_DIM(y, 0)
    cdef int done = 1
    start_watch(&watch)
    for k in range(n_outputs):
        f = _members_of(leaf, tree_start, indptr, rank[k], cnp.PyArray_DIM(y, 1))
        f.weight = <const double*> cnp.PyArray_DATA(weight) if weight.size else NULL
        f.equal_trees = equal_trees
        q.y = <const double*> cnp.PyArray_DATA(y) + k * f.n_members
        q.level = <const double*> cnp.PyArray_DATA(levels)
        q.n_levels = cnp.PyArray_DIM(levels, 0)
        q.stride = n_outputs * q.n_levels
        q.found = <double*> cnp.PyArray_DATA(found) + k * q.n_levels
        if done:
            with nogil:
                done = write_quantiles(&f, &q, &watch)
    raise_interrupt(&watch)
    if not done:
        raise MemoryError("targets: no memory to add up weights of samples; use fewer threads")


cdef int _write_neighbors(const Members* f, Neighbors* p, int64_t least, int64_t most) except -1:
    cdef hf_watch watch
    cdef int done
    p.least = least
    p.most = most
    start_watch(&watch)
    with nogil:
        done = write_neighbors(f, p, &watch)
    raise_interrupt(&watch)
    if not done:
        raise MemoryError("x: no memory to count shared leaves; use fewer threads")
    return 0


def count_neighbors(
    leaf, tree_start, indptr, member, int64_t n_members, int64_t least, int64_t most, cnp.ndarray size
):
    """Writes how many members share at least `least` leaves with each row, but at most `most`."""
    cdef Members f = _members_of(leaf, tree_start, indptr, member, n_members)
    cdef Neighbors p
    memset(&p, 0, sizeof(Neighbors))
    p.size = <int64_t*> cnp.PyArray_DATA(size)
    _write_neighbors(&f, &p, least, most)


def neighbors(
    leaf, tree_start, indptr, member, int64_t n_members, int64_t least, int64_t most, cnp.ndarray row_start,
    cnp.ndarray indices, cnp.ndarray data,
):
    """Writes the members that `count_neighbors` counts, and the share of the trees in which they do."""
    cdef Members f = _members_of(leaf, tree_start, indptr, member, n_members)
    cdef Neighbors p
    memset(&p, 0, sizeof(Neighbors))
    p.row_start = <const int64_t*> cnp.PyArray_DATA(row_start)
    p.indices = <int32_t*> cnp.PyArray_DATA(indices)
    p.data = cnp.PyArray_DATA(data)
    p.single = cnp.PyArray_ITEMSIZE(data) == 4
    _write_neighbors(&f, &p, least, most)
