"""Candidate source: columns of bins.

A node samples features without replacement, max_features of them, and on until one of them is not constant in
it. Of equal scores the first feature wins, and its lowest threshold. Each feature has its best threshold, by
a scorer, or one random threshold. Features with missing values, or of categories, are scanned in orders of
their own (node_orders.pyx).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from hforest.core.arena cimport hf_arena, take, take_zeros
from hforest.core.machine cimport hf_stopped_after
from hforest.growth.bounds cimport hf_codes, next_code, start_codes
from hforest.growth.code_scorer cimport hf_code_scorer, score_codes, start_code_scorer, take_codes
from hforest.growth.builder cimport add_words
from hforest.growth.columns cimport (
    codes_at, has_orders, hf_columns, is_by_rows, is_by_values, is_stored, table_at,
)
from hforest.growth.feature_sampling cimport (
    hf_features, hf_sampling, sample_feature, start_features, undo_sampling,
)
from hforest.growth.histogram cimport best_of_histograms
from hforest.growth.node_orders cimport (
    end_orders, fill_order, finish_split, hf_orders, keep_column, keep_order, keep_sides,
    n_orders, random_order, start_orders,
)
from hforest.growth.pairwise cimport best_pairwise
from hforest.growth.random_thresholds cimport split_bins, split_values, write_sides
from hforest.growth.node_samples cimport score_left
from hforest.growth.scorers cimport HISTOGRAM_WEIGHT, PAIRWISE, SORTED_SCAN, scorer_of_bins
from hforest.growth.sorted_scan cimport key_t, scan, sort_keys
from hforest.growth.stored cimport (
    place_samples, start_stored, stored_range, stored_sides,
)
from hforest.growth.stored_columns cimport best_random_stored, score_stored
from hforest.growth.task cimport (
    HF_COUNT, HF_FLOATS, HF_KEYS_32, hf_between_f32, hf_between_f64, hf_largest, hf_pending, hf_source,
    hf_split, hf_task, hf_tree, hf_workspace, is_perfect, no_split,
)

ctypedef fused code_t:
    uint8_t
    uint16_t
    uint32_t

ctypedef fused real:
    float
    double


# The workspace of a tree.
ctypedef struct hf_own:
    hf_features features
    hf_codes codes       # whole weights: of columns with more than 256 bins, and of large nodes
    uint32_t* twice      # (2 n_columns,): the sampled features, those with missing values twice; or NULL
    hf_orders orders     # of columns with missing values, or categories


cdef bint start_columns(const hf_task* t, hf_workspace* r, const hf_columns* c) noexcept nogil:
    # Takes the workspace of a tree; returns whether there was memory.
    cdef hf_arena* arena = &r.arena
    cdef hf_own* own = <hf_own*> take_zeros(arena, sizeof(hf_own))
    cdef uint32_t* column = <uint32_t*> take(arena, c.n_columns * 4)
    cdef uint32_t* swapped = <uint32_t*> take(arena, c.n_columns * 4)
    r.columns = own
    if arena.failed:
        return False
    start_features(&own.features, c.n_columns, column, swapped)
    if r.kind != HF_FLOATS:
        start_codes(&own.codes, arena, r.n)
    if t.has_defaults:
        start_orders(t, r, c, &own.orders)
    if c.twice:
        own.twice = <uint32_t*> take(arena, 2 * c.n_columns * 4)
    if is_stored(c):
        start_stored(t, r, &c.stored.rows)
    return not arena.failed


cdef void _read_keys(
    const code_t* code, const uint32_t* sample, const uint32_t* payload, int64_t n, key_t* key,
    uint32_t* lowest, uint32_t* highest
) noexcept nogil:
    # Writes the keys of n samples, and their least and greatest code.
    cdef int shift = 16 if key_t is uint32_t else 32
    cdef uint32_t c, low = code[sample[0]], high = low
    cdef int64_t i
    for i in range(n):
        c = code[sample[i]]
        low = c if c < low else low
        high = c if c > high else high
        key[i] = <key_t> c << shift | payload[i]
    lowest[0], highest[0] = low, high


cdef void _keys_of(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, uint32_t column,
    key_t* key, uint32_t* lowest, uint32_t* highest
) noexcept nogil:
    cdef const uint32_t* sample = r.sample + node.first
    cdef const uint32_t* payload = r.payload + node.first
    cdef int64_t at = codes_at(c, t, column), n = node.last - node.first
    if c.width == 1:
        _read_keys[uint8_t, key_t](<const uint8_t*> c.codes + at, sample, payload, n, key, lowest, highest)
    elif c.width == 2:
        _read_keys[uint16_t, key_t](<const uint16_t*> c.codes + at, sample, payload, n, key, lowest, highest)
    else:
        _read_keys[uint32_t, key_t](<const uint32_t*> c.codes + at, sample, payload, n, key, lowest, highest)


cdef bint _scan_column(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight,
    uint32_t column, hf_split* best, key_t* key
) noexcept nogil:
    # Scores a candidate by the sorted scan; takes its best split where it is better than `best`. Returns
    # whether its codes differ in the node.
    cdef uint32_t lowest, highest
    cdef int64_t n = node.last - node.first
    cdef double before = best.score
    _keys_of(t, r, c, node, column, key, &lowest, &highest)
    if lowest == highest:
        return False
    scan(t, r, sort_keys(key, <key_t*> r.key2, n, lowest, highest, t.watch), n, weight, best)
    if best.score > before:
        best.column, best.missing = column, -1
    return True


# ------------------------------------------------------------------------------------ codes of 16 and 32 bits

cdef bint _read_codes(
    const code_t* codes, const uint32_t* sample, int64_t n, int32_t* code
) noexcept nogil:
    # Writes the codes of n samples; returns whether they differ.
    cdef int64_t i
    cdef int32_t differ = 0
    for i in range(n):
        code[i] = <int32_t> codes[sample[i]]
        differ |= code[i] ^ code[0]
    return differ != 0


cdef bint _codes_of(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, uint32_t column,
    int32_t* code
) noexcept nogil:
    cdef const uint32_t* sample = r.sample + node.first
    cdef int64_t at = codes_at(c, t, column), n = node.last - node.first
    if c.width == 1:
        return _read_codes[uint8_t](<const uint8_t*> c.codes + at, sample, n, code)
    if c.width == 2:
        return _read_codes[uint16_t](<const uint16_t*> c.codes + at, sample, n, code)
    return _read_codes[uint32_t](<const uint32_t*> c.codes + at, sample, n, code)


cdef bint _scan_orders(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight,
    uint32_t column, hf_code_scorer* scorer, hf_split* best
) noexcept nogil:
    # Scores a candidate with missing values, or of categories; takes its best split where it is better than
    # `best`. Returns whether its codes differ in the node.
    cdef hf_own* own = <hf_own*> r.columns
    cdef hf_orders* o = &own.orders
    cdef int64_t n = node.last - node.first
    cdef int number, count = n_orders(t, r, c, node, weight, column, o)
    cdef double before
    for number in range(count):
        before = best.score
        take_codes(t, r, &own.codes, node, weight, fill_order(t, o, n, number), scorer, best)
        if best.score > before:
            best.column = column
            keep_order(t, o, n, number, best)
            if is_perfect(r, best.score, weight):
                break
    if count:
        end_orders(o)
    return count > 0


cdef void _best_of_candidates(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight,
    hf_sampling* sampling, hf_split* best
) noexcept nogil:
    # Samples features one by one, and takes the best split of them. Small nodes with bins of 8 bits have the
    # sorted scan here; so have codes that no buckets divide.
    cdef hf_own* own = <hf_own*> r.columns
    cdef hf_code_scorer scorer
    cdef int64_t n = node.last - node.first, n_steps = 0
    cdef uint32_t column
    cdef int32_t low = 0
    cdef bint varies = False, started = False
    cdef int found
    scorer.kind = SORTED_SCAN
    if is_stored(c) and not t.has_defaults:
        pass  # it begins where a candidate asks for it
    elif c.width > 1 or weight >= HISTOGRAM_WEIGHT or t.has_defaults:
        start_code_scorer(t, r, &own.codes, node, weight, True, &scorer)
        started = True
    while sampling.n_sampled < c.n_columns and (sampling.n_sampled < t.n_candidates or not varies):
        if hf_stopped_after(t.watch, &n_steps, n + t.n_outputs):
            return
        column = sample_feature(&own.features, sampling)
        found = -1
        if has_orders(c, column):
            varies |= _scan_orders(t, r, c, node, weight, column, &scorer, best)
            if is_perfect(r, best.score, weight):
                return
            continue
        if is_stored(c):
            varies |= score_stored(t, r, c, node, weight, column, &own.codes, &scorer, &started, best)
            if is_perfect(r, best.score, weight):
                return
            continue
        if scorer.kind != SORTED_SCAN:
            if not _codes_of(t, r, c, node, column, own.codes.code):
                continue
            varies = True
            found = score_codes(t, r, &own.codes, own.codes.code, &scorer, &best.score, &low)
            if found > 0:
                best.column, best.low, best.missing = column, <uint32_t> low, -1
                best.high = next_code(own.codes.code, n, low)
        if found < 0:
            HF_COUNT(b"growth", b"sorted_scan")
            if r.kind == HF_KEYS_32:
                varies |= _scan_column[uint32_t](t, r, c, node, weight, column, best, <uint32_t*> r.key)
            else:
                varies |= _scan_column[uint64_t](t, r, c, node, weight, column, best, <uint64_t*> r.key)
        if is_perfect(r, best.score, weight):
            return


# ------------------------------------------------------------------------------------------ random thresholds

cdef void _read_range(
    const code_t* codes, int64_t stride, const uint32_t* sample, int64_t n, uint32_t* code, uint32_t* lowest,
    uint32_t* highest
) noexcept nogil:
    # Writes the codes of n samples, and the least and the greatest of them.
    cdef uint32_t a, low = codes[sample[0] * stride], high = low
    cdef int64_t i
    for i in range(n):
        a = codes[sample[i] * stride]
        low = a if a < low else low
        high = a if a > high else high
        code[i] = a
    lowest[0], highest[0] = low, high


cdef void _range_of(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, uint32_t column,
    uint32_t* code, uint32_t* lowest, uint32_t* highest
) noexcept nogil:
    cdef const uint32_t* sample = r.sample + node.first
    cdef int64_t at = codes_at(c, t, column), n = node.last - node.first
    if is_stored(c):
        stored_range(r, c, node, column, code, lowest, highest)
    elif is_by_rows(c, t, n):
        _read_range[uint8_t](c.rows + column, c.n_columns, sample, n, code, lowest, highest)
    elif c.width == 1:
        _read_range[uint8_t](<const uint8_t*> c.codes + at, 1, sample, n, code, lowest, highest)
    elif c.width == 2:
        _read_range[uint16_t](<const uint16_t*> c.codes + at, 1, sample, n, code, lowest, highest)
    else:
        _read_range[uint32_t](<const uint32_t*> c.codes + at, 1, sample, n, code, lowest, highest)


cdef int64_t _split_codes(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, uint64_t key,
    int64_t number, hf_split* split, uint32_t* left
) noexcept nogil:
    # As split_values, of the codes of split.column.
    cdef uint32_t* code = <uint32_t*> r.key
    cdef uint32_t below, lowest, highest
    cdef int64_t i, n_left = 0, n = node.last - node.first, table = table_at(c, split.column)
    _range_of(t, r, c, node, <uint32_t> split.column, code, &lowest, &highest)
    if lowest == highest:
        return 0
    below = split_bins(t, c.low + table, c.high + table, lowest, highest, key, number, split)
    split.low = below
    for i in range(n):
        left[n_left] = <uint32_t> i
        n_left += code[i] <= below
    return n_left


cdef const real* _values_of(
    const hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t column, real* value
) noexcept nogil:
    # Writes the values of a node's samples; returns `value`.
    cdef const uint32_t* sample = r.sample + node.first
    cdef const real* values = <const real*> c.values + (column if c.offset == NULL else c.offset[column])
    cdef int64_t i, stride = c.n_columns if c.offset == NULL else 1
    for i in range(node.last - node.first):
        value[i] = values[sample[i] * stride]
    return value


cdef int64_t _split_column(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, uint64_t key,
    int64_t number, hf_split* split, uint32_t* left
) noexcept nogil:
    # As split_values, of the values of split.column; of its codes where these are nearer.
    cdef int64_t n = node.last - node.first
    cdef const float* floats
    cdef const double* doubles
    if not is_by_values(c, t, n):
        return _split_codes(t, r, c, node, key, number, split, left)
    if t.single:
        floats = _values_of[float](r, c, node, split.column, <float*> r.key)
        return split_values(t, floats, n, key, number, split, left)
    doubles = _values_of[double](r, c, node, split.column, <double*> r.key)
    return split_values(t, doubles, n, key, number, split, left)


cdef hf_split _best_random_split(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, uint64_t key,
    double weight
) noexcept nogil:
    # Returns the best of one random threshold for each sampled feature that is not constant in the node, and
    # writes the sides of its samples to r.goes_right.
    cdef hf_own* own = <hf_own*> r.columns
    cdef hf_split best = no_split(), split = no_split()
    cdef hf_sampling sampling
    cdef uint32_t* left = <uint32_t*> r.key2   # of a candidate,
    cdef uint32_t* best_left = left + r.n      # and of the best one so far
    cdef int64_t n_left, n_best_left = 0, number = 0, n_steps = 0
    sampling.key, sampling.n_sampled = key, 0
    while sampling.n_sampled < c.n_columns and (sampling.n_sampled < t.n_candidates or number == 0):
        if hf_stopped_after(t.watch, &n_steps, node.last - node.first + t.n_outputs):
            break
        split.column = sample_feature(&own.features, &sampling)
        split.missing = -1
        if has_orders(c, split.column):
            n_left = random_order(t, r, c, node, key, number, &own.orders, &split, left)
        else:
            n_left = _split_column(t, r, c, node, key, number, &split, left)
        if n_left == 0:
            continue
        split.score = score_left(t, r, node, left, n_left, weight)
        number += 1
        if split.score > best.score:
            best, n_best_left = split, n_left
            left, best_left = best_left, left
            keep_sides(&own.orders)
            if is_perfect(r, best.score, weight):
                break
    undo_sampling(&own.features, &sampling)
    if best.column >= 0 and t.has_defaults:
        finish_split(t, r, c, node, &own.orders, &best)
    elif best.column >= 0:
        write_sides(r, node, best_left, n_best_left)
    return best


# ----------------------------------------------------------------------------------------------- best splits

cdef int64_t _list_twice(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, hf_own* own,
    int64_t n_sampled
) noexcept nogil:
    # Lists the sampled columns, those with missing values in the node twice; returns how many these are.
    cdef const uint8_t* code
    cdef const uint32_t* sample = r.sample + node.first
    cdef int64_t f, i, count = 0, n = node.last - node.first
    for f in range(n_sampled):
        own.twice[count] = own.features.column[f]
        count += 1
        if c.missing[own.features.column[f]] < 0:
            continue
        code = <const uint8_t*> c.codes + own.features.column[f] * t.n
        for i in range(n):
            if code[sample[i]] == c.missing[own.features.column[f]]:
                own.twice[count] = own.features.column[f] + <uint32_t> c.n_columns
                count += 1
                break
    return count


cdef bint _best_of_bins(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight, int scorer,
    hf_sampling* sampling, hf_split* best
) noexcept nogil:
    # The best split of the node's first candidates, by the pairwise or the histogram scorer. Returns False,
    # and nothing is sampled, if the node has too many classes.
    cdef hf_own* own = <hf_own*> r.columns
    cdef const uint32_t* column = own.features.column
    cdef int64_t count
    while sampling.n_sampled < t.n_candidates:
        sample_feature(&own.features, sampling)
    count = sampling.n_sampled
    if c.twice:
        column, count = own.twice, _list_twice(t, r, c, node, own, count)
    if scorer == PAIRWISE:
        best_pairwise(t, r, c, node, weight, column, count, best)
        return True
    if best_of_histograms(t, r, c, node, weight, column, count, best):
        return True
    undo_sampling(&own.features, sampling)
    return False


cdef void _fill_sides(
    const code_t* code, int64_t stride, const uint32_t* sample, int64_t n, uint32_t low, uint8_t* goes_right
) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        goes_right[i] = code[sample[i] * stride] > low


cdef void fill_sides(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, const hf_split* split
) noexcept nogil:
    # Writes the sides of a node's samples to r.goes_right.
    cdef const uint32_t* sample = r.sample + node.first
    cdef uint32_t column = <uint32_t> split.column
    cdef int64_t at = codes_at(c, t, column), n = node.last - node.first
    if is_stored(c):
        stored_sides(r, c, node, split, r.goes_right)
    elif is_by_rows(c, t, n):
        _fill_sides[uint8_t](c.rows + column, c.n_columns, sample, n, split.low, r.goes_right)
    elif c.width == 1:
        _fill_sides[uint8_t](<const uint8_t*> c.codes + at, 1, sample, n, split.low, r.goes_right)
    elif c.width == 2:
        _fill_sides[uint16_t](<const uint16_t*> c.codes + at, 1, sample, n, split.low, r.goes_right)
    else:
        _fill_sides[uint32_t](<const uint32_t*> c.codes + at, 1, sample, n, split.low, r.goes_right)


cdef hf_split best_column(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, uint64_t key,
    double weight
) noexcept nogil:
    # Returns the best split of the features that a node samples, with its threshold.
    cdef hf_split best = no_split()
    cdef hf_sampling sampling
    cdef int64_t n = node.last - node.first
    cdef int scorer = SORTED_SCAN
    cdef double low, high
    if c.width == 1 and not is_stored(c) and (c.twice or not t.has_defaults):
        scorer = scorer_of_bins(t, r, n, weight, c.n_codes)
    sampling.key, sampling.n_sampled = key, 0
    if scorer != SORTED_SCAN:
        _best_of_bins(t, r, c, node, weight, scorer, &sampling, &best)
        if c.twice and best.column >= 0:
            keep_column(t, r, c, node, &(<hf_own*> r.columns).orders, &best)
    # Also where all features sampled so far are constant in the node.
    if best.column < 0:
        _best_of_candidates(t, r, c, node, weight, &sampling, &best)
    undo_sampling(&(<hf_own*> r.columns).features, &sampling)
    if best.column < 0 or (c.categorical != NULL and c.categorical[best.column]):
        return best
    if best.missing >= 0 and best.high == c.missing[best.column]:
        best.threshold = hf_largest(t.single)
        return best
    low = c.high[table_at(c, best.column) + best.low]
    high = c.low[table_at(c, best.column) + best.high]
    best.threshold = hf_between_f32(low, high) if t.single else hf_between_f64(low, high)
    return best


# ------------------------------------------------------------------------------------------------- the source

cdef bint _start(const hf_task* t, hf_workspace* r) noexcept nogil:
    return start_columns(t, r, <const hf_columns*> t.source.data)


cdef hf_split _best_split(
    const hf_task* t, hf_workspace* r, const hf_pending* node, uint64_t key, double weight
) noexcept nogil:
    cdef const hf_columns* c = <const hf_columns*> t.source.data
    cdef hf_split best
    if is_stored(c):
        place_samples(t, r, &c.stored.rows, node)
        if c.random_thresholds and r.kind != HF_FLOATS and not t.has_defaults:
            return best_random_stored(t, r, c, node, key, weight, &(<hf_own*> r.columns).features)
    if c.random_thresholds:
        return _best_random_split(t, r, c, node, key, weight)
    best = best_column(t, r, c, node, key, weight)
    if best.column >= 0 and t.has_defaults:
        finish_split(t, r, c, node, &(<hf_own*> r.columns).orders, &best)
    elif best.column >= 0:
        fill_sides(t, r, c, node, &best)
    return best


cdef bint _write(
    const hf_task* t, hf_workspace* r, const hf_split* split, hf_tree* tree, int64_t v
) noexcept nogil:
    cdef const hf_orders* o = &(<hf_own*> r.columns).orders
    tree.feature[v] = <int32_t> split.column
    return not t.has_defaults or add_words(tree, v, o.words, o.n_words)


cdef hf_source source_of_columns(const hf_columns* columns) noexcept nogil:
    # Returns the source of the columns, which must outlive it.
    cdef hf_source source
    source.data, source.has_short_codes = columns, columns.width <= 2
    source.start, source.best_split, source.write = _start, _best_split, _write
    return source
