"""The tree builder: grows one tree, depth-first, from a candidate source.

For each node, the builder requests the best split from the source, partitions the node's samples by it, and
appends two pending nodes. The sources are:

    classic, cascade   column_source.pyx     columns of bins
    manifold           projections.pyx       random projections
    co2                co2/cpu/hyperplanes.pyx   hyperplanes, fitted from the best column

The random draws of a node depend only on its key, and its key only on the parent's (Philox). Thus the order
in which nodes grow does not change a tree.

Kept: a leaf of one class is a number, without a row of values, until `order_tree` writes it.
"""

from cython cimport floating
from libc.math cimport INFINITY, ldexp
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from hforest.core.arena cimport hf_arena, release, resize, take
from hforest.core.machine cimport hf_has_stopped, hf_stopped_after
from hforest.core.score cimport hf_node_score
from hforest.growth.cpu.leaves cimport (
    HF_LEAF_TOTALS, HF_LEAF_VALUES, hf_class_totals, hf_leaf_values,
)
from hforest.growth.cpu.node_samples cimport is_pure, partition, start_samples, start_unit, sum_up
from hforest.growth.cpu.task cimport (
    HF_STREAM_CHILDREN, HF_TERMS, class_of, hf_default_left, hf_draw_key, hf_largest, hf_pending, hf_philox,
    hf_split, hf_task, hf_tree, hf_units, hf_workspace, weight_bits,
)
from hforest.growth.cpu.scorers.term_histogram cimport release_kept
from hforest.growth.cpu.scorers.terms cimport value_of
from hforest.growth.cpu.units cimport sum_leaf

cdef extern from "growth/units.h" nogil:
    double hf_gain_in_unit(int criterion, double score, const int64_t* node, int64_t n, int k, int m)


cdef uint64_t tree_key(uint64_t seed, int64_t tree) noexcept nogil:
    # Returns the key of a tree's root, which is also the key of its bootstrap.
    return hf_draw_key(hf_philox(seed, <uint64_t> tree, 0), 0)


cdef bint _add_node(hf_tree* tree) noexcept nogil:
    # Appends a leaf; returns whether there was memory.
    cdef int64_t v = tree.n_nodes, capacity
    cdef hf_arena* arena = &tree.arena
    if v == tree.node_capacity:
        capacity = 2 * v if v else 16
        resize(arena, &tree.feature, capacity * 4)
        resize(arena, &tree.left, capacity * 4)
        resize(arena, &tree.threshold, capacity * 8)
        resize(arena, &tree.gain, capacity * 8)
        resize(arena, &tree.indptr, capacity * 8)
        resize(arena, &tree.default_left, capacity)
        if tree.has_defaults:
            resize(arena, &tree.word_at, capacity * 8)
            resize(arena, &tree.n_words, capacity * 4)
        if arena.failed:
            return False
        tree.node_capacity = capacity
    tree.n_nodes += 1
    tree.feature[v] = -1
    tree.left[v] = 0
    tree.threshold[v] = tree.gain[v] = 0
    tree.default_left[v] = 0
    if tree.has_defaults:
        tree.n_words[v] = 0
    return True


cdef bint _push(hf_workspace* r, hf_tree* tree, hf_pending node) noexcept nogil:
    # Appends a leaf as a pending node; returns whether there was memory.
    cdef int64_t capacity
    if r.n_pending == r.pending_capacity:
        capacity = 2 * r.n_pending if r.n_pending else 256
        if not resize(&r.arena, &r.pending, capacity * sizeof(hf_pending)):
            return False
        r.pending_capacity = capacity
    r.pending[r.n_pending] = node
    r.n_pending += 1
    return _add_node(tree)


cdef inline void _put(void* to, int64_t at, double value, bint single) noexcept nogil:
    if single:
        (<float*> to)[at] = <float> value
    else:
        (<double*> to)[at] = value


cdef bint add_entries(
    const hf_task* t, hf_tree* tree, const uint32_t* index, const floating* factor, int64_t n
) noexcept nogil:
    # Appends the entries of a projection, in the dtype of the samples; returns whether there was memory.
    cdef int64_t e, capacity = 2 * tree.entry_capacity + n + 256
    if tree.n_entries + n > tree.entry_capacity:
        resize(&tree.arena, &tree.indices, capacity * 4)
        resize(&tree.arena, &tree.data, capacity * (4 if t.single else 8))
        if tree.arena.failed:
            return False
        tree.entry_capacity = capacity
    for e in range(n):
        tree.indices[tree.n_entries + e] = index[e]
        _put(tree.data, tree.n_entries + e, factor[e], t.single)
    tree.n_entries += n
    return True


cdef bint add_words(hf_tree* tree, int64_t v, const uint32_t* words, int64_t n) noexcept nogil:
    # Appends the set of categories of node v; returns whether there was memory.
    cdef int64_t capacity = 2 * tree.word_capacity + n + 256
    tree.word_at[v], tree.n_words[v] = tree.n_all_words, <int32_t> n
    if n == 0:
        return True
    if tree.n_all_words + n > tree.word_capacity:
        if not resize(&tree.arena, &tree.words, capacity * 4):
            return False
        tree.word_capacity = capacity
    memcpy(tree.words + tree.n_all_words, words, n * sizeof(uint32_t))
    tree.n_all_words += n
    return True


cdef bint _write_leaf(
    const hf_task* t, hf_workspace* r, hf_tree* tree, const hf_pending* node, double weight
) noexcept nogil:
    # Writes the values of a leaf; returns whether there was memory.
    #
    # weight  0: the leaf has one class or one target, and its sums have not been computed
    cdef int64_t i, j, capacity, n = t.n_outputs, first = tree.n_rows * n * HF_LEAF_VALUES
    cdef int64_t totals[HF_LEAF_TOTALS]
    cdef double values[HF_LEAF_VALUES]
    cdef hf_units unit
    cdef int32_t label
    if weight == 0 and t.labels != NULL:
        if r.kind == HF_TERMS:
            label = <int32_t> class_of(t, r, node.first)
        else:
            label = <int32_t> (r.payload[node.first] >> weight_bits(r))
        if t.monotonic == NULL or node.lower <= label <= node.upper:
            tree.left[node.at] = -1 - label
            tree.n_leaves += 1
            return True
        r.total[label], r.total[1 - label], r.total_u = 1, 0, 1
    if tree.n_rows == tree.row_capacity:
        capacity = 2 * tree.n_rows if tree.n_rows else 8
        if not resize(&tree.arena, &tree.value, capacity * n * HF_LEAF_VALUES * (4 if t.single else 8)):
            return False
        tree.row_capacity = capacity
    if t.labels == NULL:
        sum_leaf(t, r, node, weight == 0, &unit)
    for j in range(n):
        if t.labels == NULL:
            hf_leaf_values(r.leaf + j * HF_LEAF_TOTALS, unit.centre[j], unit.k, unit.m, values)
        else:
            if r.kind == HF_TERMS:
                hf_class_totals(totals, r.total[j], r.total_u)
            else:
                hf_class_totals(totals, r.count[j], <int64_t> weight)
            hf_leaf_values(totals, 0, 0, 0, values)
        for i in range(HF_LEAF_VALUES):
            _put(tree.value, first + i * n + j, values[i], t.single)
    if t.monotonic != NULL and not node.lower <= values[0] <= node.upper:
        values[0] = min(max(values[0], node.lower), node.upper)
        _put(tree.value, first + n - 1, values[0], t.single)
        if t.labels != NULL:
            _put(tree.value, first, 1 - values[0], t.single)
    tree.left[node.at] = <int32_t> tree.n_rows
    tree.n_rows += 1
    tree.n_leaves += 1
    return True


cdef double _gain_of(
    const hf_task* t, hf_workspace* r, const hf_pending* node, double weight, double score
) noexcept nogil:
    # Returns the decrease of the impurity by a split of a node, from its score. sum_up must be called first.
    cdef int64_t k
    if t.labels == NULL:
        return hf_gain_in_unit(t.criterion, score, NULL, 0, node.unit.k, node.unit.m)
    if r.kind == HF_TERMS:
        return score - r.base
    for k in range(t.n_outputs):
        r.right[k] = r.count[k]
    return score - hf_node_score(t.criterion, r.right, t.n_outputs, weight)


cdef bint _may_split(
    const hf_task* t, hf_workspace* r, hf_pending* node, double* weight
) noexcept nogil:
    # Returns whether a node may be split, and computes its sums; writes its weight, 0 if all samples have one
    # class or one target, -1 without memory.
    cdef int64_t n = node.last - node.first
    weight[0] = 0
    if is_pure(t, r, node):
        return False
    weight[0] = sum_up(t, r, node)
    if node.at == 0 and t.roots.indptr == NULL:
        r.root_weight = weight[0]
    r.least_weight = t.min_weight_fraction * r.root_weight
    r.node = node
    if weight[0] < 2 * r.least_weight:
        return False
    return not (n < 2 or n < t.min_split or n < 2 * t.min_leaf or node.depth >= t.max_depth)


cdef void _bound_children(
    const hf_task* t, const hf_workspace* r, const hf_pending* node, const hf_split* split, hf_pending* left,
    hf_pending* right
) noexcept nogil:
    # Writes the bounds of both children: by a constraint, the middle of their values lies between them. A
    # split of missing values from all others orders no values.
    cdef int64_t i, q = 0, u = 0, last = t.n_outputs - 1
    cdef double middle
    cdef hf_pending* low = left if t.monotonic[split.column] > 0 else right
    cdef hf_pending* high = right if t.monotonic[split.column] > 0 else left
    left.lower, left.upper = node.lower, node.upper
    right.lower, right.upper = node.lower, node.upper
    if t.monotonic[split.column] == 0 or split.threshold == hf_largest(t.single):
        return
    for i in range(left.first, left.last):
        q += r.term[i].q
        u += r.term[i].u
    middle = value_of(t, node, q, u) / 2 + value_of(t, node, r.total[last] - q, r.total_u - u) / 2
    low.upper = high.lower = middle


cdef bint _split_node(
    const hf_task* t, hf_workspace* r, hf_tree* tree, const hf_pending* node, uint64_t key,
    const hf_split* split, double gain, int64_t middle
) noexcept nogil:
    # Splits a node and appends its children; returns whether there was memory.
    #
    # key     IN  of the node
    # middle  IN  the first sample of the right child
    cdef int64_t v = node.at
    cdef hf_pending left, right
    if not t.source.write(t, r, split, tree, v):
        return False
    tree.threshold[v] = split.threshold
    if t.has_defaults:
        tree.default_left[v] = <uint8_t> split.default_left
    else:
        tree.default_left[v] = <uint8_t> hf_default_left(-1, middle - node.first, node.last - middle, 0)
    tree.gain[v] = ldexp(gain, t.scale) if gain > 0 else 0.0
    tree.left[v] = <int32_t> tree.n_nodes
    left.first, left.last, left.key, left.depth, left.side = node.first, middle, key, node.depth + 1, 0
    right.first, right.last, right.key, right.depth, right.side = middle, node.last, key, node.depth + 1, 1
    left.unit = right.unit = node.unit
    left.kept = right.kept = -1
    left.at, right.at = tree.n_nodes, tree.n_nodes + 1
    if node.kept >= 0:
        r.keep(t, r, node.kept, &left, &right)
    if t.monotonic != NULL:
        _bound_children(t, r, node, split, &left, &right)
    # The left child is pushed last, so that it is processed first.
    return _push(r, tree, right) and _push(r, tree, left)


cdef void _write_reached(const hf_workspace* r, const hf_tree* tree, const hf_pending* leaf) noexcept nogil:
    # Writes the number of a leaf in the depth-first tree for its samples.
    cdef int64_t i
    for i in range(leaf.first, leaf.last):
        tree.reached[r.sample[i]] = <int32_t> leaf.at


cdef bint _number_leaves(hf_workspace* r, const hf_tree* tree) noexcept nogil:
    # Replaces the numbers in tree.reached by those of `order_tree`; returns whether there was memory.
    cdef int32_t* queue = <int32_t*> take(&r.arena, 4 * tree.n_nodes)
    cdef int32_t* number = <int32_t*> take(&r.arena, 4 * tree.n_nodes)
    cdef int64_t v, i, known = 1
    if r.arena.failed:
        return False
    queue[0] = 0
    for v in range(tree.n_nodes):
        number[queue[v]] = <int32_t> v
        if tree.feature[queue[v]] != -1:
            queue[known], queue[known + 1] = tree.left[queue[v]], tree.left[queue[v]] + 1
            known += 2
    for i in range(r.n):
        tree.reached[r.sample[i]] = number[tree.reached[r.sample[i]]]
    return True


cdef bint grow_tree(
    const hf_task* t, int64_t number, const int32_t* counts, const int32_t* order, hf_tree* tree
) noexcept nogil:
    # Grows tree `number`, or the node that t.roots has for it. Returns False, and leaves a part of the tree,
    # if memory runs out or the call has to stop.
    #
    # counts  IN (t.n,)  number of draws of each sample; NULL: one each
    # order   IN (t.n,)  the sample whose label or target each sample has; NULL: its own
    # tree    OUT        all zeros before, but for `reached`
    cdef hf_workspace r
    cdef hf_pending node
    cdef hf_split split
    cdef double weight, gain
    cdef uint64_t key
    cdef int64_t n_steps = 0, first = 0, last = t.n, middle = 0
    cdef bint fine
    memset(&r, 0, sizeof(hf_workspace))
    tree.has_defaults = t.has_defaults
    node.key, node.depth, node.side, node.at, node.kept = 0, 0, 0, 0, -1
    node.lower, node.upper = -INFINITY, INFINITY
    if t.roots.indptr == NULL:
        node.key = tree_key(t.seed, number)
    else:
        first, last = t.roots.indptr[number], t.roots.indptr[number + 1]
        node.key, node.depth = t.roots.key[number], <int32_t> t.roots.depth[number]
        r.root_weight = t.roots.weight[number]
    fine = start_samples(t, &r, counts, order, first, last) and t.source.start(t, &r)
    node.first, node.last = 0, r.n
    fine = fine and start_unit(t, &r, number, &node) and _push(&r, tree, node)
    # Depth-first order keeps the samples of a small subtree in cache.
    while fine and r.n_pending:
        r.n_pending -= 1
        node = r.pending[r.n_pending]
        tree.indptr[node.at] = tree.n_entries
        split.column = -1
        if _may_split(t, &r, &node, &weight):
            # The key of a child is drawn only here, because most nodes are leaves.
            key = node.key
            if node.at:
                key = hf_draw_key(hf_philox(node.key, 0, HF_STREAM_CHILDREN), node.side)
            split = r.best_split(t, &r, &node, key, weight)
        if split.column >= 0:
            gain = _gain_of(t, &r, &node, weight, split.score)
            middle = partition(&r, &node)
        if weight < 0:
            fine = False
        elif (
            split.column < 0
            or gain / r.root_weight < t.min_decrease
            or not node.first < middle < node.last  # another thread changes x: growth would not end
        ):
            fine = _write_leaf(t, &r, tree, &node, weight)
            if node.kept >= 0:
                release_kept(&r, node.kept)
        else:
            fine = _split_node(t, &r, tree, &node, key, &split, gain, middle)
        if hf_stopped_after(t.watch, &n_steps, (node.last - node.first + t.n_outputs) * (t.n_candidates + 1)):
            fine = False
        if tree.reached != NULL and tree.feature[node.at] == -1:
            _write_reached(&r, tree, &node)
    if fine and tree.reached != NULL:
        fine = _number_leaves(&r, tree)
    release(&r.arena)
    return fine and not hf_has_stopped(t.watch)


cdef void _write_pure_leaf(void* row, int64_t label, int64_t n_classes, bint single) noexcept nogil:
    # Writes the values of a leaf of one class.
    cdef int64_t i, k
    cdef int64_t totals[HF_LEAF_TOTALS]
    cdef double values[HF_LEAF_VALUES]
    for k in range(n_classes):
        hf_class_totals(totals, k == label, 1)
        hf_leaf_values(totals, 0, 0, 0, values)
        for i in range(HF_LEAF_VALUES):
            _put(row, i * n_classes + k, values[i], single)


cdef void order_tree(const hf_arrays* to, int64_t n_outputs, bint single) noexcept nogil:
    # Writes a tree, its leaves and its projections in breadth-first order. Before node v is written,
    # to.left[v] holds the number of the node in the depth-first tree.
    cdef const hf_tree* tree = to.tree
    cdef int64_t v, k, first, count, known = 1, n_leaves = 0, n_entries = 0, n_words = 0
    cdef int64_t width = 4 if single else 8, size = n_outputs * HF_LEAF_VALUES * width
    cdef int32_t old
    cdef char* value
    to.left[0] = 0
    for v in range(tree.n_nodes):
        old = to.left[v]
        to.feature[v] = tree.feature[old]
        _put(to.threshold, v, tree.threshold[old], single)
        _put(to.gain, v, tree.gain[old], single)
        if to.indptr != NULL:
            to.indptr[v] = to.first_entry + n_entries
        to.default_left[v] = tree.default_left[old]
        if to.word_indptr != NULL:
            to.word_indptr[v] = to.first_word + n_words
            if tree.n_words[old]:
                memcpy(to.words + n_words, tree.words + tree.word_at[old], 4 * tree.n_words[old])
            n_words += tree.n_words[old]
        if tree.feature[old] == -1:
            value = <char*> to.value + n_leaves * size
            if tree.left[old] >= 0:
                memcpy(value, <char*> tree.value + tree.left[old] * size, size)
            else:
                _write_pure_leaf(value, -1 - tree.left[old], n_outputs, single)
            to.left[v] = <int32_t> n_leaves
            n_leaves += 1
            continue
        if tree.feature[old] == -2:
            # The left child is processed next, so its first entry follows the last one of this node.
            first = tree.indptr[old]
            count = tree.indptr[tree.left[old]] - first
            memcpy(to.indices + n_entries, tree.indices + first, 4 * count)
            memcpy(<char*> to.data + n_entries * width, <char*> tree.data + first * width, count * width)
            n_entries += count
        to.left[v] = <int32_t> known
        for k in range(2):
            to.left[known + k] = tree.left[old] + <int32_t> k
        known += 2
