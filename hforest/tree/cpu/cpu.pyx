"""Application of forests on the CPU. A thread owns a block of samples and sums over trees in order."""

from cython.parallel cimport prange
from libc.math cimport isnan, log2
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memset

cimport hforest.core.arrays as cnp
from hforest.core.arena cimport hf_arena, release, take, take_zeros
from hforest.core.machine cimport (
    hf_begin, hf_end, hf_enter_state, hf_has_stopped, hf_leave_state, hf_stop, hf_stopped, hf_stopped_after,
    hf_threads_for, hf_units, hf_watch, raise_interrupt, raise_stopped, start_watch,
)
from hforest.core.views cimport start, start_of_rows
from hforest.tree.cpu.members cimport (
    Members, Neighbors, Quantiles, group_tree, write_neighbors, write_quantiles,
)
from hforest.tree.cpu.stored_rows cimport call_rows
from hforest.tree.cpu.walk cimport (
    BY_COLUMNS, BY_PROJECTIONS, HF_DOWN, HF_PAIR, HF_WALKS, Walk, add_leaves, entry_size, find_leaves, hf_top,
    make_columns, node_size, pack_tree, real, walk_of, width_of,
    write_classes,
)

from ...core.sparse import Compressed

cnp.import_array()

cdef enum:
    MIN_BLOCK = 128       # samples per block, at least
    MAX_BLOCK = 2048      # and at most: in larger blocks a tree is used longer from L1
    ROWS = 1 << 18        # bytes of their rows, which stay in L2 together with a tree
    LINE = 64             # bytes of a cache line
    PAIR_NS = 20          # nanoseconds per sample and tree of 100 nodes; the nodes of more levels miss caches
    ROW_NS = 10           # nanoseconds per pair of a row and a tree whose leaf is known
    STEPS = 2             # nodes per walk up to which packing the trees pays
    OBLIQUE = 3           # times as many nodes with projections, whose steps take longer


cdef struct Block:
    # Samples that one thread walks through all trees, and their workspace.
    int64_t first
    int64_t n
    int64_t whole         # n rounded up to a multiple of a group of samples
    const char* x         # rows of the samples, or the array into which `base` points
    const int64_t* base
    char* columns         # keys of the samples (packed.h); aligned to a cache line
    int32_t* reached      # (HF_WALKS, whole): leaves of trees
    double* total         # (n, n_outputs) if y is written


cdef void _add(const Walk* w, const Block* b, int64_t tree, int64_t last) noexcept nogil:
    # Adds the leaf values, or the votes, of trees `tree` to last - 1.
    cdef const int32_t* class_of
    cdef int64_t i
    if w.has_classes != NULL and w.has_classes[tree]:
        class_of = w.class_of + w.forest.tree_start[tree]
        for i in range(b.n):
            b.total[i * w.n_outputs + class_of[b.reached[i]]] += 1
    elif w.single:
        add_leaves(w, <const float*> w.value, tree, last, b.n, b.reached, b.whole, b.total)
    else:
        add_leaves(w, <const double*> w.value, tree, last, b.n, b.reached, b.whole, b.total)


cdef void _apply_block(const Walk* w, const Block* b) noexcept nogil:
    # Writes the leaves of the block's samples.
    cdef int32_t* leaf = w.leaf + b.first * w.n_trees
    cdef int64_t tree = 0, last
    while tree < w.n_trees and not hf_stopped(w.watch):
        last = min(tree + max(w.walks // b.n // HF_WALKS, 1) * HF_WALKS, w.n_trees)
        find_leaves(w, b.x, b.base, b.columns, b.n, tree, last, b.reached, leaf + tree, w.n_trees, 1)
        tree = last


cdef void _predict_block(const Walk* w, const Block* b) noexcept nogil:
    # Writes the means over the trees for the block's samples.
    cdef int64_t tree = 0, last, n_steps = 0, n_sums = b.n * w.n_outputs, i
    memset(b.total, 0, n_sums * sizeof(double))
    while tree < w.n_trees:
        # One tree if its leaves are classes, which stay in cache with it; else several trees, whose rows of
        # values are added together.
        last = tree + 1
        if w.has_classes == NULL or not w.has_classes[tree]:
            while last < min(tree + HF_WALKS, w.n_trees) and (
                w.has_classes == NULL or not w.has_classes[last]
            ):
                last += 1
        find_leaves(w, b.x, b.base, b.columns, b.n, tree, last, NULL, b.reached, 1, b.whole)
        _add(w, b, tree, last)
        n_steps += b.n * (last - tree)
        tree = last
        if n_steps >= w.walks:
            n_steps = 0
            if hf_stopped(w.watch):
                return
    for i in range(n_sums):
        if w.single:
            (<float*> w.y)[b.first * w.n_outputs + i] = <float> (b.total[i] / w.n_trees)
        else:
            (<double*> w.y)[b.first * w.n_outputs + i] = b.total[i] / w.n_trees


cdef void _walk_block(const Walk* w, const Block* b) noexcept nogil:
    if w.nodes != NULL and w.way == BY_COLUMNS and w.single:
        make_columns(w, <const float*> b.x, b.base, b.n, b.columns)
    elif w.nodes != NULL and w.way == BY_COLUMNS:
        make_columns(w, <const double*> b.x, b.base, b.n, b.columns)
    if w.y == NULL:
        _apply_block(w, b)
    else:
        _predict_block(w, b)


cdef void _run_block(const Walk* w, int64_t first) noexcept nogil:
    cdef int64_t n_bytes = 0, n_sums
    cdef hf_arena arena
    cdef Block b
    cdef char* workspace
    b.first, b.n = first, min(w.block, w.n_samples - first)
    b.whole = (b.n + HF_DOWN - 1) // HF_DOWN * HF_DOWN
    b.x, b.base = <const char*> w.x, NULL
    if w.base != NULL:
        b.base = w.base + first
    else:
        b.x += first * w.n_features * (4 if w.single else 8)
    n_sums = b.n * w.n_outputs if w.y != NULL else 0
    if w.nodes != NULL and w.way == BY_COLUMNS:
        n_bytes = b.whole * max(w.n_features, <int64_t> 1) * (4 if w.single else 8)
    memset(&arena, 0, sizeof(hf_arena))
    workspace = <char*> take(
        &arena, LINE + n_bytes + n_sums * sizeof(double) + HF_WALKS * b.whole * sizeof(int32_t)
    )
    if arena.failed:
        hf_stop(w.watch)
        return
    b.columns = workspace + (-<uintptr_t> workspace) % LINE
    b.total = <double*> (b.columns + n_bytes)
    b.reached = <int32_t*> (b.total + n_sums)
    _walk_block(w, &b)
    release(&arena)


cdef void _prepare(Walk* w, int64_t tree) noexcept nogil:
    if w.single:
        pack_tree(w, <const float*> w.forest.threshold, tree)
    else:
        pack_tree(w, <const double*> w.forest.threshold, tree)
    if w.has_classes != NULL and w.single:
        w.has_classes[tree] = write_classes(w, <const float*> w.value, tree)
    elif w.has_classes != NULL:
        w.has_classes[tree] = write_classes(w, <const double*> w.value, tree)


cdef bint packing_pays(const Walk* w, double n_walks, int64_t n_nodes) noexcept nogil:
    # Returns whether n_walks walks through packed trees are faster than others, packing included.
    return w.packs and n_walks * STEPS * (OBLIQUE if w.way == BY_PROJECTIONS else 1) >= n_nodes


cdef void pack(Walk* w, int64_t n_nodes, int threads, hf_arena* arena) noexcept nogil:
    # Packs all trees, if there is memory; otherwise the watch is stopped. Classes of leaves are written if
    # w.value is set.
    cdef int64_t tree
    if w.way == BY_PROJECTIONS:
        w.width = width_of(w, n_nodes)
    w.tops = <hf_top*> take(arena, w.n_trees * sizeof(hf_top))
    w.nodes = <char*> take(arena, n_nodes * node_size(w))
    w.class_of = <int32_t*> take(arena, n_nodes * sizeof(int32_t))
    if w.way == BY_PROJECTIONS and w.width != HF_PAIR:
        w.entries = <char*> take(arena, (w.n_entries + n_nodes) * entry_size(w))
    if w.value != NULL:
        w.has_classes = <char*> take(arena, w.n_trees)
    if arena.failed:
        hf_stop(w.watch)
        return
    for tree in prange(hf_units(w.watch, w.n_trees, threads), schedule="dynamic", num_threads=threads):
        if hf_begin(w.watch, tree):
            _prepare(w, tree)
            hf_end(w.watch)


cdef void run(Walk* w, int64_t n_nodes) noexcept nogil:
    # Writes the results of a call, after packing the trees if they are not packed and that pays.
    cdef int64_t n_blocks, block
    # Windows share most of their elements, unless these are copied to columns.
    cdef int64_t row = (w.n_features if w.base == NULL or w.way == BY_COLUMNS else 1) * (4 if w.single else 8)
    cdef double levels = log2(<double> n_nodes / w.n_trees + 1)
    cdef int threads = hf_threads_for(PAIR_NS * levels * levels / 45 * w.n_samples * w.n_trees)
    cdef hf_arena arena
    cdef uint64_t before
    memset(&arena, 0, sizeof(hf_arena))
    if w.nodes == NULL and packing_pays(w, <double> w.n_samples * w.n_trees, n_nodes):
        pack(w, n_nodes, threads, &arena)
    # The block size is limited by the caches and, of several threads, by a fair share of the work for each.
    w.block = min(MAX_BLOCK, min(ROWS // max(row, 1), w.n_samples // (4 * threads if threads > 1 else 1)))
    w.block = max(MIN_BLOCK, w.block) // HF_DOWN * HF_DOWN
    n_blocks = (w.n_samples + w.block - 1) // w.block
    if n_blocks == 1:
        # This spares the cost of a parallel region. The watch may have stopped while trees were packed.
        if not hf_has_stopped(w.watch):
            before = hf_enter_state()
            _run_block(w, 0)
            hf_leave_state(before)
    else:
        for block in prange(hf_units(w.watch, n_blocks, threads), schedule="dynamic", num_threads=threads):
            if hf_begin(w.watch, block):
                _run_block(w, block * w.block)
                hf_end(w.watch)
    release(&arena)


# ---------------------------------------------------------------------------------------------------- calls

cdef int _call(Walk* w, int64_t n_nodes) except -1:
    cdef hf_watch watch
    start_watch(&watch)
    w.watch = &watch
    with nogil:
        run(w, n_nodes)
    return raise_stopped(&watch, "forest: no memory to walk it; pass fewer samples or trees at a time")


def apply(x, forest, cnp.ndarray leaf):
    """Writes the leaf that each sample reaches in each tree, numbered within the tree."""
    if type(x) is Compressed:
        call_rows(x, forest, False, leaf, None)
        return
    # A memoryview of `leaf` would cost 3 % of a call on one sample.
    cdef Walk w = walk_of(x, forest)
    w.leaf = <int32_t*> cnp.PyArray_DATA(leaf)
    _call(&w, len(forest.feature))


def predict(x, forest, bint vote, cnp.ndarray y):
    """Writes the mean over trees of the leaf values, or the share of the trees that vote for each class."""
    if type(x) is Compressed:
        call_rows(x, forest, vote, None, y)
        return
    cdef cnp.ndarray value = forest.value
    cdef Walk w = walk_of(x, forest)
    w.value, w.n_outputs = cnp.PyArray_DATA(value), cnp.PyArray_DIM(value, 1)
    w.vote, w.y = vote, cnp.PyArray_DATA(y)
    _call(&w, len(forest.feature))


cdef int _fault(
    int64_t at, int64_t v, int64_t n_nodes, const int32_t[::1] feature, const real[::1] threshold,
    const int32_t[::1] left, const int64_t[::1] indptr, const int32_t[::1] indices, int64_t n_features,
) noexcept nogil:
    cdef int64_t f = feature[at], to = left[at], j
    if f == -1:
        return 0 if 0 <= to < (n_nodes + 1) // 2 else 1
    # Children come after their parent, so that there are no cycles.
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


cdef bint _is_plain(
    int64_t root, uint32_t n_nodes, const int32_t[::1] feature, const real[::1] threshold,
    const int32_t[::1] left, int64_t n_features,
) noexcept nogil:
    # Returns whether a tree is sound, breadth-first and without projections: the children of the next split
    # are nodes n_known and n_known + 1, so that each of nodes 1 to n_known - 1 has one parent. The loop has
    # no branches: half of the nodes are leaves, so that branches would be mispredicted often.
    cdef uint32_t n_leaves = (n_nodes + 1) // 2, most = <uint32_t> min(n_features, <int64_t> 1 << 31)
    cdef uint32_t n_known = 1, bad = 0, v, split
    for v in range(n_nodes):
        split = feature[root + v] != -1
        bad |= <uint32_t> left[root + v] - (n_known & (0 - split)) >= (1 if split else n_leaves)
        bad |= (<uint32_t> feature[root + v] + 1 > most) | (v >= n_known)
        bad |= threshold[root + v] != threshold[root + v]
        n_known += 2 * split
    return not bad and n_known == n_nodes


cdef void _check_tree(
    int64_t root, int64_t n_nodes, const int32_t[::1] feature, const real[::1] threshold,
    const int32_t[::1] left, const int64_t[::1] indptr, const int32_t[::1] indices, int64_t n_features,
    int64_t[::1] first, hf_watch* watch,
) noexcept nogil:
    # Writes the first node that has a fault, and the number of the fault, to `first`.
    cdef hf_arena arena
    cdef char* n_parents
    cdef int64_t v, child
    cdef int kind
    if indptr.shape[0] == 0 and _is_plain(root, <uint32_t> n_nodes, feature, threshold, left, n_features):
        return
    # The number of parents of each node: 0, 1, or 2 for two and more. The root needs none.
    memset(&arena, 0, sizeof(hf_arena))
    n_parents = <char*> take_zeros(&arena, n_nodes)
    if arena.failed:
        hf_stop(watch)
        return
    n_parents[0] = 1
    for v in range(n_nodes):
        kind = _fault(root + v, v, n_nodes, feature, threshold, left, indptr, indices, n_features)
        if kind == 0 and n_parents[v] != 1:
            # Parents come before their children, so all parents of v have been counted.
            kind = 7 if n_parents[v] else 8
        if kind:
            first[0], first[1] = root + v, kind
            break
        if feature[root + v] != -1:
            for child in range(left[root + v], left[root + v] + 2):
                n_parents[child] = 2 if n_parents[child] else 1
    release(&arena)


cdef int _check_trees(
    const int64_t[::1] tree_start, const int32_t[::1] feature, const real[::1] threshold,
    const int32_t[::1] left, const int64_t[::1] indptr, const int32_t[::1] indices, int64_t n_features,
    int64_t[::1] first,
) except -1:
    cdef int64_t tree, n_nodes, n_steps = 0
    cdef hf_watch watch
    start_watch(&watch)
    first[0], first[1] = -1, 0
    with nogil:
        for tree in range(tree_start.shape[0] - 1):
            n_nodes = tree_start[tree + 1] - tree_start[tree]
            _check_tree(
                tree_start[tree], n_nodes, feature, threshold, left, indptr, indices, n_features, first,
                &watch,
            )
            if first[1] or hf_stopped_after(&watch, &n_steps, n_nodes) or hf_has_stopped(&watch):
                break
    return raise_stopped(
        &watch, "forest: no memory to check it; free a byte for each node of its largest tree"
    )


def faults(forest, first):
    """Writes first[0], the first node with a fault or -1, and first[1], the number of the fault or 0."""
    roots, feature, threshold, left = forest.tree_start, forest.feature, forest.threshold, forest.left
    indptr, indices, n_features = forest.indptr, forest.indices, int(forest.n_features)
    if threshold.dtype.itemsize == 4:
        _check_trees[float](roots, feature, threshold, left, indptr, indices, n_features, first)
    else:
        _check_trees[double](roots, feature, threshold, left, indptr, indices, n_features, first)


# ------------------------------------------------------------------------------------- members of leaves


def group(
    const int32_t[:, ::1] leaf, const int64_t[::1] tree_start, int64_t[::1] indptr, int32_t[::1] member
):
    """Writes the samples of each node to member in ascending order, and the nodes' positions to indptr."""
    cdef int64_t n_rows = leaf.shape[0], n_trees = leaf.shape[1], i, m, v, n_units, n_steps = 0
    cdef int64_t n_samples, total = 0
    cdef int threads = hf_threads_for(<double> ROW_NS * n_rows * n_trees)
    cdef hf_watch watch
    start_watch(&watch)
    with nogil:
        for v in range(indptr.shape[0]):
            indptr[v] = 0
        for i in range(n_rows):
            for m in range(n_trees):
                if leaf[i, m] >= 0:
                    indptr[tree_start[m] + leaf[i, m]] += 1
            if hf_stopped_after(&watch, &n_steps, n_trees):
                break
        for v in range(indptr.shape[0]):
            n_samples, indptr[v] = indptr[v], total
            total += n_samples
        n_units = hf_units(&watch, n_trees, threads)
        for m in prange(n_units, schedule="dynamic", num_threads=threads):
            if hf_begin(&watch, m):
                group_tree(m, leaf, tree_start, indptr, member)
                hf_end(&watch)
    raise_interrupt(&watch)


cdef Members _members_of(
    const int32_t[:, ::1] leaf, const int64_t[::1] tree_start, const int64_t[::1] indptr,
    const int32_t[::1] member, int64_t n_members,
):
    cdef Members f
    f.leaf, f.tree_start, f.indptr, f.member = &leaf[0, 0], &tree_start[0], &indptr[0], start(member)
    f.n_rows, f.n_trees, f.n_members = leaf.shape[0], leaf.shape[1], n_members
    f.weight, f.equal_trees = NULL, False
    return f


def quantiles(
    const int32_t[:, ::1] leaf, const int64_t[::1] tree_start, const int64_t[::1] indptr,
    const int32_t[:, ::1] rank, const double[::1] weight, const double[:, ::1] y, const double[::1] levels,
    bint equal_trees, double[:, :, ::1] values,
):
    """Writes the quantiles of the targets that rows reach; rows that reach none stay unchanged."""
    cdef Members f
    cdef Quantiles q
    cdef hf_watch watch
    cdef int64_t k
    q.level, q.n_levels, q.stride = &levels[0], levels.shape[0], y.shape[0] * levels.shape[0]
    start_watch(&watch)
    for k in range(y.shape[0]):
        f = _members_of(leaf, tree_start, indptr, rank[k], y.shape[1])
        f.weight, f.equal_trees = start(weight), equal_trees
        q.y, q.quantile = start_of_rows(y) + k * f.n_members, &values[0, k, 0]
        with nogil:
            write_quantiles(&f, &q, &watch)
    raise_stopped(&watch, "targets: no memory to add up weights of samples; use fewer threads")


cdef int _write_neighbors(const Members* f, const Neighbors* p) except -1:
    cdef hf_watch watch
    start_watch(&watch)
    with nogil:
        write_neighbors(f, p, &watch)
    return raise_stopped(&watch, "x: no memory to count shared leaves; use fewer threads")


def count_neighbors(
    const int32_t[:, ::1] leaf, const int64_t[::1] tree_start, const int64_t[::1] indptr,
    const int32_t[::1] member, int64_t n_members, int64_t least, int64_t most, int64_t[::1] size,
):
    """Writes the number of members, up to `most`, that share at least `least` leaves with each row."""
    cdef Members f = _members_of(leaf, tree_start, indptr, member, n_members)
    cdef Neighbors p
    memset(&p, 0, sizeof(Neighbors))
    p.least, p.most, p.size = least, most, &size[0]
    _write_neighbors(&f, &p)


def neighbors(
    const int32_t[:, ::1] leaf, const int64_t[::1] tree_start, const int64_t[::1] indptr,
    const int32_t[::1] member, int64_t n_members, int64_t least, int64_t most, const int64_t[::1] row_start,
    int32_t[::1] indices, cnp.ndarray data,
):
    """Writes the members that `count_neighbors` counts, and their shares of trees with a common leaf."""
    cdef Members f = _members_of(leaf, tree_start, indptr, member, n_members)
    cdef Neighbors p
    p.least, p.most, p.size, p.row_start = least, most, NULL, &row_start[0]
    p.indices, p.data, p.single = &indices[0], cnp.PyArray_DATA(data), cnp.PyArray_ITEMSIZE(data) == 4
    _write_neighbors(&f, &p)
