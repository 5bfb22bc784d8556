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
    HF_STREAM_CHILDREN, HF_TERMS, class_of, hf_bounds, hf_default_left, hf_draw_key, hf_pending, hf_philox,
    hf_scored, hf_split, hf_task, hf_tree, hf_units, hf_workspace, weight_bits,
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
        resize(arena, &tree.entry_at, capacity * 8)
        resize(arena, &tree.entry_count, capacity * 4)
        resize(arena, &tree.default_left, capacity)
        if tree.has_defaults:
            resize(arena, &tree.word_at, capacity * 8)
            resize(arena, &tree.n_words, capacity * 4)
        if tree.is_monotonic:
            resize(arena, &tree.bounds, capacity * sizeof(hf_bounds))
        if arena.failed:
            return False
        tree.node_capacity = capacity
    tree.n_nodes += 1
    tree.feature[v] = -1
    tree.left[v] = 0
    tree.threshold[v] = tree.gain[v] = 0
    tree.default_left[v] = 0
    tree.entry_count[v] = 0
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


cdef bint _write_values(
    const hf_task* t, hf_workspace* r, hf_tree* tree, const hf_pending* node, double weight, int32_t* row
) noexcept nogil:
    # Writes the values of a node as a leaf; returns whether there was memory.
    #
    # weight  IN   0: the leaf has one class or one target, and its sums have not been computed
    # row     OUT  the number of its row, or -1 - class
    cdef int64_t i, j, capacity, n = t.n_outputs, first = tree.n_rows * n * HF_LEAF_VALUES
    cdef int64_t totals[HF_LEAF_TOTALS]
    cdef double values[HF_LEAF_VALUES]
    cdef hf_units unit
    cdef int32_t label
    cdef const hf_bounds* bounds = &tree.bounds[node.at] if t.monotonic != NULL else NULL
    if weight == 0 and t.labels != NULL:
        if r.kind == HF_TERMS:
            label = <int32_t> class_of(t, r, node.first)
        else:
            label = <int32_t> (r.payload[node.first] >> weight_bits(r))
        if t.monotonic == NULL or bounds.lower <= label <= bounds.upper:
            row[0] = -1 - label
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
    if t.monotonic != NULL and not bounds.lower <= values[0] <= bounds.upper:
        values[0] = min(max(values[0], bounds.lower), bounds.upper)
        _put(tree.value, first + n - 1, values[0], t.single)
        if t.labels != NULL:
            _put(tree.value, first, 1 - values[0], t.single)
    row[0] = <int32_t> tree.n_rows
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
    if n < 2 or n < t.min_split or n < 2 * t.min_leaf or node.depth >= t.max_depth:
        return False
    return r.n_leaves != r.max_leaves


cdef bint _write_split(
    const hf_task* t, hf_workspace* r, hf_tree* tree, const hf_pending* node, const hf_split* split,
    double gain, int64_t middle
) noexcept nogil:
    # Writes the split of a node; returns whether there was memory.
    #
    # middle  IN  the first sample of the right child
    cdef int64_t v = node.at
    tree.entry_at[v] = tree.n_entries
    if not t.source.write(t, r, split, tree, v):
        return False
    tree.entry_count[v] = <int32_t> (tree.n_entries - tree.entry_at[v])
    tree.threshold[v] = split.threshold
    if t.has_defaults:
        tree.default_left[v] = <uint8_t> split.default_left
    else:
        tree.default_left[v] = <uint8_t> hf_default_left(-1, middle - node.first, node.last - middle, 0)
    tree.gain[v] = ldexp(gain, t.scale) if gain > 0 else 0.0
    return True


cdef double _value_of_side(
    const hf_task* t, const hf_workspace* r, const hf_pending* node, int64_t first, int64_t last
) noexcept nogil:
    # Returns the mean target, or the share of the second class, of samples first to last - 1 of a node.
    cdef int64_t i, q = 0, u = 0
    for i in range(first, last):
        q += r.term[i].q
        u += r.term[i].u
    return value_of(t, node, q, u)


cdef void _bound_children(
    const hf_task* t, const hf_workspace* r, hf_tree* tree, const hf_pending* node, int64_t middle
) noexcept nogil:
    # Writes the bounds of the children of a node: if its column has a constraint, the middle of their values
    # lies between them.
    #
    # middle  IN  the first sample of the right child
    cdef hf_bounds* left = &tree.bounds[tree.left[node.at]]
    cdef hf_bounds* right = left + 1
    cdef int32_t order = t.monotonic[tree.feature[node.at]]
    cdef double at_left, at_right, between
    left[0] = right[0] = tree.bounds[node.at]
    if order == 0:
        return
    at_left = _value_of_side(t, r, node, node.first, middle)
    at_right = _value_of_side(t, r, node, middle, node.last)
    between = at_left / 2 + at_right / 2
    if order > 0:
        left.upper = right.lower = between
    else:
        left.lower = right.upper = between


cdef bint _add_children(
    const hf_task* t, hf_workspace* r, hf_tree* tree, const hf_pending* node, uint64_t key, int64_t middle
) noexcept nogil:
    # Appends the children of a node as pending nodes; returns whether there was memory.
    #
    # key     IN  of the node
    # middle  IN  the first sample of the right child
    cdef hf_pending left, right
    tree.left[node.at] = <int32_t> tree.n_nodes
    r.n_leaves += 1
    left.first, left.last, left.key, left.depth, left.side = node.first, middle, key, node.depth + 1, 0
    right.first, right.last, right.key, right.depth, right.side = middle, node.last, key, node.depth + 1, 1
    left.unit = right.unit = node.unit
    left.kept = right.kept = -1
    left.at, right.at = tree.n_nodes, tree.n_nodes + 1
    if node.kept >= 0:
        r.keep(t, r, node.kept, &left, &right)
    # The left child is pushed last, so that it is processed first.
    if not (_push(r, tree, right) and _push(r, tree, left)):
        return False
    if t.monotonic != NULL:
        _bound_children(t, r, tree, node, middle)
    return True


cdef void _write_reached(const hf_workspace* r, const hf_tree* tree, const hf_pending* leaf) noexcept nogil:
    # Writes the number of a leaf in the depth-first tree for its samples.
    cdef int64_t i
    for i in range(leaf.first, leaf.last):
        tree.reached[r.sample[i]] = <int32_t> leaf.at


# ------------------------------------------------------------------------------ a maximum number of leaves

# The children of the node of greatest gain are pending; it was split when it was scored:
#
#     scored   | root | left, right | children of one of them, ...       nodes with a split, as they were made
#     heap     those of them without children; at the end they become leaves

cdef inline bint _goes_before(
    const hf_workspace* r, const hf_tree* tree, int32_t a, int32_t b
) noexcept nogil:
    # Returns whether scored node a gets children before b: for its gain; of equal ones the first.
    cdef double here = tree.gain[r.scored[a].node.at], there = tree.gain[r.scored[b].node.at]
    return here > there or (here == there and a < b)


cdef bint _add_scored(
    hf_workspace* r, const hf_tree* tree, const hf_pending* node, uint64_t key, int64_t middle
) noexcept nogil:
    # Appends a node with a split to r.scored and to the heap; returns whether there was memory.
    cdef int64_t capacity, at = r.n_heap, parent
    cdef int32_t number = <int32_t> r.n_scored
    if r.n_scored == r.scored_capacity:
        capacity = 2 * r.n_scored if r.n_scored else 64
        resize(&r.arena, &r.scored, capacity * sizeof(hf_scored))
        if not resize(&r.arena, &r.heap, capacity * 4):
            return False
        r.scored_capacity = capacity
    r.scored[number].node, r.scored[number].key, r.scored[number].middle = node[0], key, middle
    r.n_scored += 1
    r.n_heap += 1
    while at > 0:
        parent = (at - 1) // 2
        if not _goes_before(r, tree, number, r.heap[parent]):
            break
        r.heap[at] = r.heap[parent]
        at = parent
    r.heap[at] = number
    return True


cdef int32_t _take_first(hf_workspace* r, const hf_tree* tree) noexcept nogil:
    # Removes the node of greatest gain from the heap; returns its number.
    cdef int32_t first = r.heap[0], last
    cdef int64_t at = 0, child
    r.n_heap -= 1
    last = r.heap[r.n_heap]
    while 2 * at + 1 < r.n_heap:
        child = 2 * at + 1
        if child + 1 < r.n_heap and _goes_before(r, tree, r.heap[child + 1], r.heap[child]):
            child += 1
        if not _goes_before(r, tree, r.heap[child], last):
            break
        r.heap[at] = r.heap[child]
        at = child
    r.heap[at] = last
    return first


cdef bint _add_next(const hf_task* t, hf_workspace* r, hf_tree* tree) noexcept nogil:
    # Appends the children of the node of greatest gain, if the tree may have more leaves; returns whether
    # there was memory.
    cdef hf_scored* next
    if r.n_heap == 0 or r.n_leaves == r.max_leaves:
        return True
    next = &r.scored[_take_first(r, tree)]
    return _add_children(t, r, tree, &next.node, next.key, next.middle)


cdef bint _finish_scored(const hf_task* t, hf_workspace* r, hf_tree* tree) noexcept nogil:
    # Makes leaves of the nodes without children and, if tree.row is not NULL, writes the rows of the others;
    # returns whether there was memory.
    cdef int64_t i, v, n_steps = 0
    cdef hf_pending* node
    cdef int32_t* row
    cdef double weight
    cdef bint is_leaf
    r.by_class = False  # partitions have changed the order of the samples of these nodes
    for i in range(r.n_scored):
        node = &r.scored[i].node
        v = node.at
        is_leaf = tree.left[v] == 0
        if is_leaf:
            tree.feature[v] = -1
            tree.threshold[v] = tree.gain[v] = 0
            tree.default_left[v] = 0
            tree.n_entries -= tree.entry_count[v]
            if tree.has_defaults:
                tree.n_all_words -= tree.n_words[v]
                tree.n_words[v] = 0
            if tree.reached != NULL:
                _write_reached(r, tree, node)
        if not is_leaf and tree.row == NULL:
            continue
        if hf_stopped_after(t.watch, &n_steps, (node.last - node.first) * t.n_outputs):
            return False
        weight, row = sum_up(t, r, node), &tree.left[v] if is_leaf else &tree.row[v]
        if weight < 0 or not _write_values(t, r, tree, node, weight, row):
            return False
    return True


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
    cdef bint fine, has_all_rows
    memset(&r, 0, sizeof(hf_workspace))
    tree.has_defaults, tree.is_monotonic = t.has_defaults, t.monotonic != NULL
    node.key, node.depth, node.side, node.at, node.kept = 0, 0, 0, 0, -1
    if t.roots.indptr == NULL:
        node.key = tree_key(t.seed, number)
    else:
        first, last = t.roots.indptr[number], t.roots.indptr[number + 1]
        node.key, node.depth = t.roots.key[number], <int32_t> t.roots.depth[number]
        r.root_weight = t.roots.weight[number]
    fine = start_samples(t, &r, counts, order, first, last) and t.source.start(t, &r)
    node.first, node.last = 0, r.n
    fine = fine and start_unit(t, &r, number, &node) and _push(&r, tree, node)
    if fine and tree.is_monotonic:
        tree.bounds[0].lower, tree.bounds[0].upper = -INFINITY, INFINITY
        if t.roots.bounds != NULL:
            tree.bounds[0].lower = t.roots.bounds[2 * number]
            tree.bounds[0].upper = t.roots.bounds[2 * number + 1]
    # A node of another tree may become a leaf when that tree is whole.
    has_all_rows = t.max_leaves and t.roots.indptr != NULL
    r.n_leaves, r.max_leaves = 1, t.max_leaves if t.max_leaves < r.n or has_all_rows else 0
    # Depth-first order keeps the samples of a small subtree in cache.
    while fine and r.n_pending:
        r.n_pending -= 1
        node = r.pending[r.n_pending]
        split.column = -1
        if t.monotonic != NULL:
            r.bounds = &tree.bounds[node.at]
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
            fine = _write_values(t, &r, tree, &node, weight, &tree.left[node.at])
            if node.kept >= 0:
                release_kept(&r, node.kept)
        elif not _write_split(t, &r, tree, &node, &split, gain, middle):
            fine = False
        elif r.max_leaves:
            fine = _add_scored(&r, tree, &node, key, middle)
        else:
            fine = _add_children(t, &r, tree, &node, key, middle)
        if hf_stopped_after(t.watch, &n_steps, (node.last - node.first + t.n_outputs) * (t.n_candidates + 1)):
            fine = False
        if tree.reached != NULL and tree.feature[node.at] == -1:
            _write_reached(&r, tree, &node)
        if fine and r.n_pending == 0:
            fine = _add_next(t, &r, tree)
    if fine and has_all_rows:
        tree.row = <int32_t*> take(&tree.arena, 4 * tree.n_nodes)
        fine = tree.row != NULL
    fine = fine and _finish_scored(t, &r, tree)
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
    cdef int64_t v, k, first, count, known = 1, n_rows = 0, n_entries = 0, n_words = 0
    cdef int64_t width = 4 if single else 8, size = n_outputs * HF_LEAF_VALUES * width
    cdef int32_t old, row
    cdef char* value
    cdef bint is_leaf
    to.left[0] = 0
    for v in range(tree.n_nodes):
        old = to.left[v]
        to.feature[v] = tree.feature[old]
        _put(to.threshold, v, tree.threshold[old], single)
        _put(to.gain, v, tree.gain[old], single and tree.row == NULL)
        if to.indptr != NULL:
            to.indptr[v] = to.first_entry + n_entries
        to.default_left[v] = tree.default_left[old]
        if to.word_indptr != NULL:
            to.word_indptr[v] = to.first_word + n_words
            if tree.n_words[old]:
                memcpy(to.words + n_words, tree.words + tree.word_at[old], 4 * tree.n_words[old])
            n_words += tree.n_words[old]
        is_leaf = tree.feature[old] == -1
        if is_leaf or tree.row != NULL:
            value, row = <char*> to.value + n_rows * size, tree.left[old] if is_leaf else tree.row[old]
            if row >= 0:
                memcpy(value, <char*> tree.value + row * size, size)
            else:
                _write_pure_leaf(value, -1 - row, n_outputs, single)
            to.left[v] = <int32_t> n_rows
            n_rows += 1
            if is_leaf:
                continue
        if tree.feature[old] == -2:
            first, count = tree.entry_at[old], tree.entry_count[old]
            memcpy(to.indices + n_entries, tree.indices + first, 4 * count)
            memcpy(<char*> to.data + n_entries * width, <char*> tree.data + first * width, count * width)
            n_entries += count
        to.left[v] = <int32_t> known
        for k in range(2):
            to.left[known + k] = tree.left[old] + <int32_t> k
        known += 2
