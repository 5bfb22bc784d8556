"""Nodes in the order in which single rows walk through them.

Some levels below a node follow it directly, so that a walk stays within few cache lines.
"""

from cython.parallel cimport prange
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint32_t, uintptr_t
from libc.string cimport memset

from hforest.core.arena cimport hf_arena, release, take
from hforest.core.machine cimport (
    hf_begin, hf_end, hf_has_stopped, hf_stop, hf_stopped_after, hf_threads_for, hf_units, hf_watch,
)
from hforest.tree.cpu.walk cimport HF_SMALL, hf_double_node, hf_float_node, hf_small_node, only_class, real

cdef enum:
    PAIRS = 8             # pairs of siblings stored together, at most
    LINE = 64             # bytes of a cache line


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


cdef void pack_nodes(
    Packed* p, Splits* splits, bint packs, hf_arena* arena, hf_watch* watch
) noexcept nogil:
    # Computes the depths of trees and the steps of a row, and packs the trees if `packs`.
    cdef int threads = hf_threads_for(<double> PACK_NS * p.n_nodes)
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
