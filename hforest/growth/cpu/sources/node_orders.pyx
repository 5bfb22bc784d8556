"""The orders in which a node scans columns with missing values, and columns of categories.

A scorer takes bins in ascending order and returns the best split between two of them. A column of numbers has
one order. Other columns are scanned in one or several orders of their bins:

    missing values (?) in the node        0 1 2 3 ?      and  ? 0 1 2 3
    categories, two classes or a mean     by the share of the second class, or by the mean
    up to four categories, more classes   {0} {1 2}      and  {1} {0 2}      and  {0 1} {2}
    more categories, more classes         along the first principal direction of the means of the classes

Where a node has more than four categories, those of fewer than four samples have one place (categories.h).
Missing values of a categorical column are one more category. Of equal scores the first order wins, and its
lowest split.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from hforest.core.arena cimport hf_arena, take
from hforest.core.score cimport hf_distance
from hforest.growth.cpu.sources.columns cimport hf_columns, hf_range, table_at
from hforest.growth.cpu.sources.missing_values cimport place_missing
from hforest.growth.cpu.scorers.random_thresholds cimport split_bins
from hforest.growth.cpu.task cimport (
    HF_IS_MISSING, HF_STREAM_DIRECTION, HF_TERMS, class_of, hf_draw, hf_draws_missing_left, hf_largest,
    hf_pending, hf_philox, hf_sends_unknown_left, hf_split, hf_task, hf_workspace, weight_bits,
)

cdef extern from "growth/categories.h" nogil:
    int HF_ALL_DIVISIONS
    uint64_t hf_side_number(int64_t candidate, uint32_t category)
    int hf_side_word(uint32_t category)
    int hf_side_bit(uint32_t category)
    int64_t hf_group_categories(const int32_t* count, int64_t k, int32_t* group)
    void hf_score_categories(
        int is_ordered, double* sums, const double* size, const double* total, double weight, int64_t k,
        int64_t n_outputs, double* axis, double* score
    )
    void hf_place_categories(const double* score, int64_t k, int32_t* order, int32_t* place)

cdef enum:
    WORDS = 1 << 11   # 32-bit words of a set of categories 0 to 65535


cdef void start_orders(const hf_task* t, hf_workspace* r, const hf_columns* c, hf_orders* o) noexcept nogil:
    # Allocates the workspace of a tree.
    cdef hf_arena* arena = &r.arena
    cdef int64_t n = c.n_bins, k
    o.bin = <int32_t*> take(arena, r.n * 4)
    if t.has_defaults:
        o.scanned = <int32_t*> take(arena, r.n * 4)
    if c.categorical == NULL:
        return
    o.number, o.present = <int32_t*> take(arena, n * 4), <int32_t*> take(arena, n * 4)
    o.place, o.sorted = <int32_t*> take(arena, n * 4), <int32_t*> take(arena, n * 4)
    o.weight, o.score = <double*> take(arena, n * 8), <double*> take(arena, n * 8)
    o.sums = <double*> take(arena, n * t.n_outputs * 8)
    o.whole = <int64_t*> take(arena, n * (t.n_outputs + 1) * 8)
    o.total, o.axis = <double*> take(arena, t.n_outputs * 8), <double*> take(arena, 2 * t.n_outputs * 8)
    o.side, o.best_side = <uint8_t*> take(arena, n), <uint8_t*> take(arena, n)
    o.words = <uint32_t*> take(arena, WORDS * 4)
    if not arena.failed:
        for k in range(n):
            o.number[k] = -1


# ----------------------------------------------------------------------------------------- bins of a column

cdef hf_range _read_column(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t column,
    hf_orders* o
) noexcept nogil:
    # Writes the bins of a node's samples; returns their range.
    o.missing = -1 if c.missing == NULL else <int32_t> c.missing[column]
    o.categorical = c.categorical != NULL and c.categorical[column]
    return c.read(t, r, c, node, column, o.bin)


cdef void _sort_present(int32_t* bin, int64_t k) noexcept nogil:
    # Sorts k bins by Shell's method.
    cdef int64_t gap = 1, i, j
    cdef int32_t one
    while gap < k // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, k):
            one, j = bin[i], i
            while j >= gap and bin[j - gap] > one:
                bin[j] = bin[j - gap]
                j -= gap
            bin[j] = one
        gap //= 3


cdef void _find_present(hf_orders* o, int64_t n) noexcept nogil:
    # Writes the categories of the node to `present`, in ascending order, and their indices to `number`: each
    # is a group.
    cdef int64_t i
    for i in range(o.n_present):  # clears the entries of the previous column
        o.number[o.present[i]] = -1
    o.n_present = 0
    for i in range(n):
        if o.number[o.bin[i]] < 0:
            o.number[o.bin[i]] = 0
            o.present[o.n_present] = o.bin[i]
            o.n_present += 1
    _sort_present(o.present, o.n_present)
    for i in range(o.n_present):
        o.number[o.present[i]] = <int32_t> i
    o.n_groups = o.n_present


cdef void _group_rare(hf_orders* o, int64_t n) noexcept nogil:
    # Gives rare categories one group.
    cdef int64_t i
    memset(o.place, 0, o.n_present * sizeof(int32_t))
    for i in range(n):
        o.place[o.number[o.bin[i]]] += 1
    o.n_groups = hf_group_categories(o.place, o.n_present, o.sorted)
    for i in range(o.n_present):
        o.number[o.present[i]] = o.sorted[i]


cdef void _sum_categories(
    const hf_task* t, const hf_workspace* r, const hf_pending* node, hf_orders* o
) noexcept nogil:
    # Writes the sums of the terms of each group: weights of classes, or distances from the mean target.
    cdef int64_t i, j, k, n_outputs = t.n_outputs
    cdef int64_t* sums
    cdef const int64_t* q
    memset(o.whole, 0, o.n_groups * (n_outputs + 1) * sizeof(int64_t))
    for i in range(node.first, node.last):
        sums = o.whole + o.number[o.bin[i - node.first]] * (n_outputs + 1)
        sums[n_outputs] += r.term[i].u
        if t.labels != NULL:
            sums[class_of(t, r, i)] += r.term[i].u
            continue
        q = &r.term[i].q if n_outputs == 1 else r.q + r.payload[i] * n_outputs
        for k in range(n_outputs):
            sums[k] += q[k]
    for j in range(o.n_groups):
        sums = o.whole + j * (n_outputs + 1)
        o.weight[j] = <double> sums[n_outputs] * (1 if t.labels == NULL else r.per_weight)
        for k in range(n_outputs):
            if t.labels == NULL:
                o.sums[j * n_outputs + k] = hf_distance(sums[k], sums[n_outputs], r.mean[k])
            else:
                o.sums[j * n_outputs + k] = <double> sums[k] * r.per_weight
    for k in range(n_outputs):
        o.total[k] = 0 if t.labels == NULL else <double> r.total[k] * r.per_weight


cdef void _place_categories(
    const hf_task* t, const hf_workspace* r, const hf_pending* node, double weight, bint is_ordered,
    hf_orders* o
) noexcept nogil:
    # Writes the places of the node's groups in their order.
    cdef int64_t i, j, k, n_outputs = t.n_outputs, n = node.last - node.first
    cdef int bits = weight_bits(r)
    cdef uint32_t p, w
    if r.kind == HF_TERMS:
        _sum_categories(t, r, node, o)
    else:
        memset(o.sums, 0, o.n_groups * n_outputs * sizeof(double))
        memset(o.weight, 0, o.n_groups * sizeof(double))
        for i in range(n):
            j, p = o.number[o.bin[i]], r.payload[node.first + i]
            w = p & ((<uint32_t> 1 << bits) - 1)
            o.sums[j * n_outputs + (p >> bits)] += w
            o.weight[j] += w
        for k in range(n_outputs):
            o.total[k] = r.count[k]
    hf_score_categories(
        is_ordered, o.sums, o.weight, o.total, weight, o.n_groups, n_outputs, o.axis, o.score
    )
    hf_place_categories(o.score, o.n_groups, o.sorted, o.place)


# ------------------------------------------------------------------------------------------- the best splits

cdef bint _is_ordered(const hf_task* t) noexcept nogil:
    # Returns whether an order of the categories holds their best split (Fisher 1958; Breiman et al. 1984).
    return t.n_outputs <= (2 if t.labels != NULL else 1)


cdef int read_orders(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight,
    int64_t column, hf_orders* o
) noexcept nogil:
    # Reads a column; returns the number of orders in which it is scanned, 0 if the node has a single bin, -1
    # if all its categories are in one group. sum_up must be called first.
    cdef int64_t i
    cdef bint ordered = _is_ordered(t)
    cdef hf_range bins = _read_column(t, r, c, node, column, o)
    o.has_missing = False
    if bins.lowest == bins.highest:
        return 0
    if o.missing >= 0:
        for i in range(node.last - node.first):
            o.has_missing |= o.bin[i] == o.missing
    if not o.categorical:
        return 1 + o.has_missing
    _find_present(o, node.last - node.first)
    if ordered or o.n_present > HF_ALL_DIVISIONS:
        _group_rare(o, node.last - node.first)
        if o.n_groups == 1:
            return -1
        _place_categories(t, r, node, weight, ordered, o)
        return 1
    return (1 << (o.n_present - 1)) - 1


cdef inline int32_t _place(const hf_orders* o, int number, bint divided, int32_t j) noexcept nogil:
    # Returns the place of group j in order `number`.
    return 1 - ((number + 1) >> j & 1) if divided else o.place[j]


cdef inline bint _is_divided(const hf_task* t, const hf_orders* o) noexcept nogil:
    # Returns whether all divisions of the categories into two sets are compared.
    return not _is_ordered(t) and o.n_present <= HF_ALL_DIVISIONS


cdef const int32_t* fill_order(const hf_task* t, hf_orders* o, int64_t n, int number) noexcept nogil:
    # Returns the places of a node's samples in order `number`, counted from 0.
    cdef int64_t i
    cdef bint divided
    if o.categorical:
        divided = _is_divided(t, o)
        for i in range(n):
            o.scanned[i] = _place(o, number, divided, o.number[o.bin[i]])
    elif number == 0:
        return o.bin
    else:
        for i in range(n):
            o.scanned[i] = 0 if o.bin[i] == o.missing else o.bin[i] + 1
    return o.scanned


cdef void keep_order(
    const hf_task* t, hf_orders* o, int64_t n, int number, hf_split* best
) noexcept nogil:
    # Translates a split between places best.low and best.high into bins, and writes the side of missing
    # values.
    cdef int64_t i
    cdef int32_t j, greatest = 0
    cdef bint divided
    best.missing = -1
    if o.categorical:
        divided = _is_divided(t, o)
        for j in range(o.n_present):
            o.best_side[o.present[j]] = (
                _place(o, number, divided, o.number[o.present[j]]) > <int32_t> best.low
            )
        if o.has_missing:
            best.missing = not o.best_side[o.missing]
        return
    if not o.has_missing:
        return
    best.missing = number
    if number == 1 and best.low > 0:
        best.low, best.high = best.low - 1, best.high - 1
    elif number == 1:  # missing values against all others: written as in the first order
        for i in range(n):
            greatest = o.bin[i] if greatest < o.bin[i] != o.missing else greatest
        best.low, best.high, best.missing = <uint32_t> greatest, <uint32_t> o.missing, 0


cdef void keep_column(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, hf_orders* o,
    hf_split* best
) noexcept nogil:
    # Does the work of keep_order for a column whose bins are stored twice.
    cdef int number = best.column >= c.n_columns
    cdef int64_t i, n = node.last - node.first
    best.column -= number * c.n_columns
    _read_column(t, r, c, node, <uint32_t> best.column, o)
    o.has_missing = False
    for i in range(n):
        o.has_missing |= o.bin[i] == o.missing
    keep_order(t, o, n, number, best)


# --------------------------------------------------------------------------------------------- random splits

cdef int64_t _divide_randomly(
    hf_orders* o, uint64_t key, int64_t number, int64_t n, uint32_t* left
) noexcept nogil:
    # Draws the side of each category, and writes the places of the samples that go left; returns their
    # number, 0 if there is only one category.
    cdef int64_t i, n_left = 0, n_right = 0
    cdef uint32_t category
    cdef hf_draw draw
    _find_present(o, n)
    if o.n_present > 1:
        for i in range(o.n_present):
            category = <uint32_t> o.present[i]
            draw = hf_philox(key, hf_side_number(number, category), HF_STREAM_DIRECTION)
            o.side[category] = draw.word[hf_side_word(category)] >> hf_side_bit(category) & 1
            n_right += o.side[category]
        if n_right == 0 or n_right == o.n_present:
            o.side[o.present[0]] ^= 1
        for i in range(n):
            left[n_left] = <uint32_t> i
            n_left += not o.side[o.bin[i]]
    return n_left


cdef int64_t split_randomly(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, uint64_t key,
    int64_t number, hf_orders* o, hf_split* split, uint32_t* left
) noexcept nogil:
    # Writes a random split of split.column, and the places of the samples that go left; returns their number,
    # 0 if the node has one bin. Missing values go left or right by a fair draw.
    cdef int64_t i, n_left = 0, n = node.last - node.first, table = table_at(c, split.column)
    cdef hf_range bins = _read_column(t, r, c, node, split.column, o)
    cdef hf_draw draw
    cdef int32_t below
    split.threshold, split.missing = 0, -1
    if o.categorical:
        n_left = _divide_randomly(o, key, number, n, left)
        if n_left and o.missing >= 0:
            for i in range(n):
                if o.bin[i] == o.missing:
                    split.missing = not o.side[o.missing]
                    break
        return n_left
    if bins.lowest == bins.highest:
        return 0
    o.has_missing = False
    if o.missing >= 0:
        bins.lowest, bins.highest = 0x7fffffff, -1
        for i in range(n):
            if o.bin[i] == o.missing:
                o.has_missing = True
            else:
                bins.lowest, bins.highest = min(bins.lowest, o.bin[i]), max(bins.highest, o.bin[i])
    below = bins.highest
    if bins.lowest == bins.highest:
        split.threshold, split.missing = hf_largest(t.single), 0
    else:
        below = <int32_t> split_bins(t, c.low + table, c.high + table, bins, key, number, split)
        if o.has_missing:
            draw = hf_philox(key, <uint64_t> number, HF_STREAM_DIRECTION)
            split.missing = hf_draws_missing_left(draw.word[0])
    split.low = <uint32_t> below
    for i in range(n):
        left[n_left] = <uint32_t> i
        n_left += o.bin[i] <= below
        if o.has_missing and o.bin[i] == o.missing:
            n_left += split.missing
    return n_left


cdef void keep_sides(hf_orders* o) noexcept nogil:
    # Keeps the sides of the categories in a random split that is the best so far.
    o.side, o.best_side = o.best_side, o.side


# --------------------------------------------------------------------------------------------- the best split

cdef void _write_set(const hf_columns* c, hf_orders* o, int64_t n, const hf_split* split) noexcept nogil:
    # Writes the words of the set of categories that go left. Categories that the node does not have go to the
    # side with more samples. A category is below 32 * WORDS, whatever the table holds.
    cdef int64_t i
    cdef uint32_t category, greatest = 0
    _find_present(o, n)
    for i in range(o.n_present):
        if o.present[i] != o.missing:
            category = <uint16_t> c.low[table_at(c, split.column) + o.present[i]]
            greatest = category if category > greatest else greatest
    o.n_words = greatest // 32 + 1
    memset(o.words, 0xff if hf_sends_unknown_left(split.default_left) else 0, o.n_words * sizeof(uint32_t))
    for i in range(o.n_present):
        if o.present[i] == o.missing:
            continue
        category = <uint16_t> c.low[table_at(c, split.column) + o.present[i]]
        if o.best_side[o.present[i]]:
            o.words[category // 32] &= ~(<uint32_t> 1 << category % 32)
        else:
            o.words[category // 32] |= <uint32_t> 1 << category % 32


cdef void fill_sides(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, hf_orders* o,
    hf_split* split
) noexcept nogil:
    # Writes the sides of a node's samples to r.goes_right, and the sides of values that the split does not
    # compare.
    cdef int64_t i, n = node.last - node.first
    cdef uint8_t* goes_right = r.goes_right
    cdef const int32_t* bin = o.bin
    cdef int32_t low = <int32_t> split.low, missing
    _read_column(t, r, c, node, split.column, o)
    missing = o.missing
    if o.categorical:
        for i in range(n):
            goes_right[i] = o.best_side[bin[i]]
    else:
        for i in range(n):
            goes_right[i] = bin[i] > low
    if split.missing >= 0:
        for i in range(n):
            goes_right[i] = HF_IS_MISSING if bin[i] == missing else goes_right[i]
    place_missing(t, r, node, split)
    o.n_words = 0
    if o.categorical:
        _write_set(c, o, n, split)
