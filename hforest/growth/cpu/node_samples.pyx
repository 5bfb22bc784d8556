"""Samples of a tree and of its nodes: their weights, sums over them, and their partition.

A node holds the samples node.first to node.last - 1 of the workspace's arrays, in ascending order:

    sample    | a b c d e f g h |     before the split of node 0..7
    side      | 0 1 1 0 0 1 0 1 |
    sample    | a d e g | b c f h |   after it: 0..3 is the left child, 4..7 the right child

Kept: vector bodies sum and partition the samples (scorers/simd/sums.h). Left out: prefetching all cache lines
of a node, which changed no time.
"""

from libc.math cimport INFINITY, ldexp
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from hforest.core.arena cimport hf_arena, take
from hforest.core.score cimport HF_ENTROPY, HF_GINI, hf_xlogx
from hforest.growth.cpu.leaves cimport HF_LEAF_TOTALS
from hforest.growth.cpu.scorers.bodies cimport bodies_of
from hforest.growth.cpu.task cimport (
    HF_KEYS_32, HF_KEYS_64, HF_TERMS, class_of, hf_pending, hf_task, hf_term, hf_weighed,
    hf_workspace, weight_bits,
)
from hforest.growth.cpu.scorers.term_histogram cimport release_kept, start_cells
from hforest.growth.cpu.scorers.terms cimport base_score, move_sample, score_of_sums, start_sums
from hforest.growth.cpu.units cimport hf_needs_unit, measure, unit_of_node, unit_of_root

cdef enum:
    WHOLE = 1 << 26      # below this, integer weights and squares of their sums are exact in float64
    XLOGX = 1 << 17      # maximum length of a table of a log2 a: 1 MB

cdef double EXACT = 9007199254740992.0   # 2**53: integers below are exact in float64


cdef inline double _weight_of(const hf_task* t, const int32_t* counts, int64_t i) noexcept nogil:
    return t.weight[i] * (1 if counts == NULL else counts[i])


cdef inline int64_t _sample_at(const hf_task* t, int64_t i) noexcept nogil:
    # Returns the sample at place i of those that nodes of other trees have, or sample i.
    return i if t.roots.sample == NULL else t.roots.sample[i]


cdef bint _allocate(const hf_task* t, hf_workspace* r, double weight) noexcept nogil:
    # Arrays have one extra element, to which samples without weight are written.
    cdef hf_arena* arena = &r.arena
    cdef int64_t room = r.n + 1, k = t.n_outputs, a
    cdef bint has_table = t.criterion == HF_ENTROPY and r.kind == HF_TERMS and r.whole and weight < XLOGX
    r.sample, r.sample2 = <uint32_t*> take(arena, room * 4), <uint32_t*> take(arena, room * 4)
    r.payload, r.payload2 = <uint32_t*> take(arena, room * 4), <uint32_t*> take(arena, room * 4)
    r.goes_right = <uint8_t*> take(arena, room)
    r.key, r.key2 = take(arena, room * 8), take(arena, room * 8)
    r.left, r.right = <double*> take(arena, k * 8), <double*> take(arena, k * 8)
    if r.kind != HF_TERMS:
        r.count, r.count_left = <uint32_t*> take(arena, k * 4), <uint32_t*> take(arena, k * 4)
        r.class_number = <uint32_t*> take(arena, k * 4)
        r.slot, r.bucket = <uint32_t*> take(arena, room * 4), <uint8_t*> take(arena, room)
        return not arena.failed
    r.bodies = bodies_of(t.path)
    r.term, r.term2 = <hf_term*> take(arena, room * 16), <hf_term*> take(arena, room * 16)
    r.weight, r.row = <double*> take(arena, room * 8), <uint32_t*> take(arena, room * 4)
    r.total, r.sum = <int64_t*> take(arena, k * 8), <int64_t*> take(arena, k * 8)
    r.mean, r.leaf = <double*> take(arena, k * 8), <int64_t*> take(arena, k * HF_LEAF_TOTALS * 8)
    r.least, r.greatest = <int64_t*> take(arena, k * 8), <int64_t*> take(arena, k * 8)
    r.weighed, r.bucket = <hf_weighed*> take(arena, room * 32), <uint8_t*> take(arena, room)
    if t.targets != NULL and k > 1:
        r.q = <int64_t*> take(arena, room * k * 8)
    if has_table:
        r.xlogx = <double*> take(arena, (<int64_t> weight + 1) * 8)
    if arena.failed or not start_cells(t, r):
        return False
    for a in range(<int64_t> weight + 1 if has_table else 0):
        r.xlogx[a] = hf_xlogx(<double> a)
    return True


cdef inline int64_t _learned_of(const int32_t* order, int64_t i) noexcept nogil:
    # Returns the sample whose label or target sample i has.
    return i if order == NULL else order[i]


cdef bint start_samples(
    const hf_task* t, hf_workspace* r, const int32_t* counts, const int32_t* order, int64_t first,
    int64_t last
) noexcept nogil:
    # Fills a workspace, all zeros before, with the samples at places first to last - 1 that have weight; with
    # all of them if only samples without weight were drawn. Returns whether there was memory. The loop does
    # not branch on the weight, which cannot be predicted.
    #
    # order  IN (t.n,)  the sample whose label or target each sample has; NULL: its own
    cdef int64_t i, s, at = 0
    cdef double w, largest = 0, sum = 0
    cdef bint whole = True, has_keys
    r.n = 0
    for i in range(first, last):
        w = _weight_of(t, counts, _sample_at(t, i))
        r.n += w > 0
        sum += w
        largest = w if w > largest else largest
        whole = whole & (w < EXACT) & (w == <double> <int64_t> w)
    if r.n == 0 and counts != NULL:
        return start_samples(t, r, NULL, order, first, last)
    r.whole = whole and r.n * largest < EXACT
    has_keys = not t.in_terms and t.labels != NULL and t.criterion == HF_GINI and whole and sum < WHOLE
    if has_keys and largest < 256 and t.n_outputs <= 256 and t.source.has_short_bins:
        r.kind = HF_KEYS_32
    elif has_keys and largest < 65536 and t.n_outputs <= 65536:
        r.kind = HF_KEYS_64
    else:
        r.kind = HF_TERMS
    if not _allocate(t, r, sum):
        return False
    for i in range(first, last):
        s = _sample_at(t, i)
        w = _weight_of(t, counts, s)
        # With labels in the payload, the sample number is only used as a position among bins.
        r.sample[at] = <uint32_t> (s if t.base == NULL else t.base[s])
        if r.kind != HF_TERMS:
            r.payload[at] = <uint32_t> t.labels[_learned_of(order, s)] << weight_bits(r) | <uint32_t> w
        else:
            r.payload[at], r.weight[at], r.row[at] = <uint32_t> at, w, <uint32_t> _learned_of(order, s)
            r.term[at].q = t.labels[r.row[at]] if t.labels != NULL else 0
        at += w > 0
    return True


cdef bint start_unit(const hf_task* t, hf_workspace* r, int64_t number, hf_pending* root) noexcept nogil:
    # Writes the unit of the root of tree `number`; returns whether there was memory.
    root.unit = NULL
    if r.kind != HF_TERMS:
        return True
    if t.roots.centre != NULL:
        root.unit = unit_of_root(t, r, number)
    else:
        root.unit = unit_of_node(t, r, root)
    return root.unit != NULL


cdef bint is_pure(const hf_task* t, const hf_workspace* r, const hf_pending* node) noexcept nogil:
    # Returns whether all samples of a node have the same class, or the same targets.
    cdef int64_t i, k, n_outputs = t.n_outputs
    cdef int bits = weight_bits(r)
    cdef const double* first
    cdef const double* row
    if r.by_class and node.first < node.last:
        return r.payload[node.first] >> bits == r.payload[node.last - 1] >> bits
    if t.labels != NULL:
        for i in range(node.first + 1, node.last):
            if r.kind == HF_TERMS:
                if class_of(t, r, i) != class_of(t, r, node.first):
                    return False
            elif r.payload[i] >> bits != r.payload[node.first] >> bits:
                return False
        return True
    first = t.targets + r.row[r.payload[node.first]] * n_outputs
    for i in range(node.first + 1, node.last):
        row = t.targets + r.row[r.payload[i]] * n_outputs
        for k in range(n_outputs):
            if row[k] != first[k]:
                return False
    return True


cdef uint64_t _sum_runs(hf_workspace* r, const hf_pending* node, uint32_t mask) noexcept nogil:
    # Does the work of _sum_counts for samples ordered by class, whose additions would wait for each other.
    cdef int bits = weight_bits(r)
    cdef int64_t i
    cdef uint32_t k, last = 0, run = 0
    cdef uint64_t sum = 0
    for i in range(node.first, node.last):
        k = r.payload[i] >> bits
        run = (run if k == last else 0) + (r.payload[i] & mask)
        sum += r.payload[i] & mask
        r.count[k] = run
        last = k
    return sum


cdef double _sum_counts(const hf_task* t, hf_workspace* r, const hf_pending* node) noexcept nogil:
    cdef int64_t i
    cdef int bits = weight_bits(r)
    cdef uint32_t w, mask = (<uint32_t> 1 << bits) - 1
    cdef uint64_t sum = 0
    memset(r.count, 0, t.n_outputs * sizeof(uint32_t))
    if r.by_class:
        return <double> _sum_runs(r, node, mask)
    for i in range(node.first, node.last):
        w = r.payload[i] & mask
        r.count[r.payload[i] >> bits] += w
        sum += w
    return <double> sum


cdef double sum_up(const hf_task* t, hf_workspace* r, hf_pending* node) noexcept nogil:
    # Writes the weights of a node's classes to r.count, or the sums of its terms to r.total, r.total_u and
    # r.mean, and gives the node a unit of its own if it needs one. Returns the node's weight; -1: no memory.
    cdef double spread, heaviest
    if r.kind != HF_TERMS:
        return _sum_counts(t, r, node)
    measure(t, r, node, &spread, &heaviest)
    if hf_needs_unit(spread, node.unit.spread, heaviest, node.unit.heaviest):
        node.unit = unit_of_node(t, r, node)
        if node.unit == NULL:
            return -1
        if node.kept >= 0:
            release_kept(r, node.kept)
            node.kept = -1
    r.per_weight = ldexp(1, -node.unit.m)
    r.base = base_score(t, r)
    return <double> r.total_u * r.per_weight


cdef double _score_left_counts(
    const hf_task* t, hf_workspace* r, const uint32_t* payload, const uint32_t* left, int64_t n_left,
    double weight
) noexcept nogil:
    # Does the work of score_left for integer weights and Gini, in integers.
    cdef int bits = weight_bits(r)
    cdef uint32_t p, mask = (<uint32_t> 1 << bits) - 1
    cdef uint64_t on_left, on_right, left_weight = 0, left_square = 0, right_square = 0
    cdef const uint32_t* count = r.count
    cdef uint32_t* count_left = r.count_left
    cdef int64_t i, k
    memset(count_left, 0, t.n_outputs * sizeof(uint32_t))
    for i in range(n_left):
        p = payload[left[i]]
        count_left[p >> bits] += p & mask
    for k in range(t.n_outputs):
        on_left, on_right = count_left[k], count[k] - count_left[k]
        left_weight += on_left
        left_square += on_left * on_left
        right_square += on_right * on_right
    if left_weight < r.least_weight or <uint64_t> weight - left_weight < r.least_weight:
        return -INFINITY
    return (
        <double> left_square / <double> left_weight
        + <double> right_square / <double> (<uint64_t> weight - left_weight)
    )


cdef double score_left(
    const hf_task* t, hf_workspace* r, const hf_pending* node, const uint32_t* left, int64_t n_left,
    double weight
) noexcept nogil:
    # Returns the score of a split, as the sorted scan computes it; -INFINITY if a side is too small. sum_up
    # must be called first.
    #
    # left  IN (n_left,)  positions in the node of the samples that go left, in any order
    cdef int64_t i, u = 0
    if n_left < max(t.min_leaf, 1) or node.last - node.first - n_left < max(t.min_leaf, 1):
        return -INFINITY
    if r.kind != HF_TERMS:
        return _score_left_counts(t, r, r.payload + node.first, left, n_left, weight)
    start_sums(t, r)
    for i in range(n_left):
        u += move_sample(t, r, node.first + left[i], 1)
    return score_of_sums(t, r, u)


cdef double score_sides(
    const hf_task* t, hf_workspace* r, const hf_pending* node, double weight
) noexcept nogil:
    # Does the work of score_left for the split in r.goes_right.
    cdef uint32_t* left = <uint32_t*> r.key2
    cdef int64_t i, n_left = 0
    for i in range(node.last - node.first):
        left[n_left] = <uint32_t> i
        n_left += not r.goes_right[i]
    return score_left(t, r, node, left, n_left, weight)


cdef int64_t partition(hf_workspace* r, const hf_pending* node) noexcept nogil:
    # Moves the samples of a node that go left before those that go right, and keeps the order on each side.
    # Returns the position of the first sample on the right.
    cdef int64_t i, left = node.first, right = 0
    cdef uint8_t side
    for i in range(node.first, node.last):
        side = r.goes_right[i - node.first]
        r.sample2[right] = r.sample[left] = r.sample[i]
        r.payload2[right] = r.payload[left] = r.payload[i]
        if r.kind == HF_TERMS:
            r.term2[right] = r.term[left] = r.term[i]
        left += not side
        right += side
    memcpy(r.sample + left, r.sample2, right * sizeof(uint32_t))
    memcpy(r.payload + left, r.payload2, right * sizeof(uint32_t))
    if r.kind == HF_TERMS:
        memcpy(r.term + left, r.term2, right * sizeof(hf_term))
    return left


cdef int64_t number_classes(
    const hf_task* t, hf_workspace* r, int64_t max_classes, uint32_t* total, uint32_t* square
) noexcept nogil:
    # Numbers the classes that a node has, in r.class_number; returns their number, or -1 if it exceeds
    # max_classes. sum_up must be called first.
    #
    # total   OUT (max_classes,)  the weight of each class, by its number
    # square  OUT                 the sum of the squares of these weights
    cdef int64_t k, n_present = 0
    square[0] = 0
    for k in range(t.n_outputs):
        if r.count[k] == 0:
            continue
        if n_present == max_classes:
            return -1
        total[n_present] = r.count[k]
        square[0] += r.count[k] * r.count[k]
        r.class_number[k] = <uint32_t> n_present
        n_present += 1
    return n_present


cdef void place_by_class(
    const hf_workspace* r, const hf_pending* node, int64_t n_present, int32_t* last, uint8_t* place
) noexcept nogil:
    # Assigns places to the samples of a node, at most 256, ordered by class.
    #
    # last   OUT (n_present,)  the end of the samples of each class
    # place  OUT (n,)          the place of each sample of the node
    cdef int64_t i, k, n = node.last - node.first
    cdef int bits = weight_bits(r)
    cdef const uint32_t* payload = r.payload + node.first
    cdef int32_t first = 0, count
    memset(last, 0, n_present * sizeof(int32_t))
    for i in range(n):
        last[r.class_number[payload[i] >> bits]] += 1
    for k in range(n_present):
        count = last[k]
        last[k] = first
        first += count
    for i in range(n):
        k = r.class_number[payload[i] >> bits]
        place[i] = <uint8_t> last[k]
        last[k] += 1
