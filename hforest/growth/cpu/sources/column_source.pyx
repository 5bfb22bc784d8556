"""Candidate source: columns of bins.

A node samples max_features features without replacement, and continues until one of them varies in the node.
Of equal scores the first feature wins, and its lowest threshold. Each feature has its best threshold, found
by a scorer, or one random threshold. A reader reads a column (column_readers.pyx); it is scanned in one or
several orders (node_orders.pyx).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from hforest.core.machine cimport hf_stopped_after
from hforest.core.arena cimport hf_arena, take, take_zeros
from hforest.core.score cimport hf_beats, hf_between_f32, hf_between_f64
from hforest.growth.cpu.builder cimport add_words
from hforest.growth.cpu.sources.column_readers cimport prefetch_column
from hforest.growth.cpu.sources.columns cimport hf_columns, is_stored, number_of, table_at
from hforest.growth.cpu.sources.feature_sampling cimport (
    hf_sampling, sample_feature, start_features, undo_sampling,
)
from hforest.growth.cpu.scorers.histogram cimport best_of_histograms
from hforest.growth.cpu.sources.node_orders cimport (
    fill_order, fill_sides, hf_column_workspace, hf_orders, keep_column, keep_order, keep_sides, read_orders,
    split_randomly, start_orders,
)
from hforest.growth.cpu.node_samples cimport score_left
from hforest.growth.cpu.scorers.node_scorer cimport hf_scorer, start_scorer
from hforest.growth.cpu.sources.on_demand cimport prefetch_numbers_of, require_column, start_encoder
from hforest.growth.cpu.scorers.pairwise cimport best_pairwise
from hforest.growth.cpu.scorers.random_thresholds cimport write_sides
from hforest.growth.cpu.scorers.table cimport PAIRWISE, SORTED_SCAN, TERM_HISTOGRAM, scorer_of_bytes
from hforest.growth.cpu.sources.stored cimport (
    STORED_AHEAD, best_random_stored, place_samples, prefetch_stored, scan_few, start_stored,
)
from hforest.growth.cpu.scorers.term_histogram cimport best_of_terms, start_kept
from hforest.growth.cpu.task cimport (
    HF_TERMS, hf_largest, hf_pending, hf_source, hf_split, hf_task, hf_tree, hf_workspace, is_perfect,
    no_split, sign_of,
)

cdef bint start_columns(const hf_task* t, hf_workspace* r, const hf_columns* c) noexcept nogil:
    # Allocates the workspace of a tree; returns whether there was memory.
    cdef hf_arena* arena = &r.arena
    cdef hf_column_workspace* work = <hf_column_workspace*> take_zeros(arena, sizeof(hf_column_workspace))
    cdef uint32_t* column = <uint32_t*> take(arena, c.n_columns * 4)
    cdef uint32_t* swapped = <uint32_t*> take(arena, c.n_columns * 4)
    r.columns = work
    if arena.failed:
        return False
    work.columns = c
    start_features(&work.features, c.n_columns, column, swapped)
    start_encoder(t, r, c, &work.encoder)
    start_orders(t, r, c, &work.orders)
    if c.are_bytes and t.has_defaults:
        work.twice = <uint32_t*> take(arena, 2 * c.n_columns * 4)
    if is_stored(c):
        start_stored(t, r, &c.stored.rows)
    if c.windows.x != NULL and not t.single:
        work.place, work.place2 = <uint32_t*> take(arena, r.n * 4), <uint32_t*> take(arena, r.n * 4)
    return start_kept(t, r, c) and not arena.failed


# ------------------------------------------------------------------------------------------ random thresholds

cdef hf_split _best_random_column(
    const hf_task* t, hf_workspace* r, hf_pending* node, uint64_t key, double weight
) noexcept nogil:
    # Returns the best of one random threshold for each sampled feature that varies in the node, and writes
    # the sides of the node's samples to r.goes_right.
    cdef hf_column_workspace* work = <hf_column_workspace*> r.columns
    cdef const hf_columns* c = work.columns
    cdef hf_split best = no_split(), split = no_split()
    cdef hf_sampling sampling
    cdef uint32_t* left = <uint32_t*> r.key2   # (n_left,)  samples on the left of the candidate
    cdef uint32_t* best_left = left + r.n      # (n_best_left,)  those of the best candidate so far
    cdef int64_t n_left, n_best_left = 0, number = 0, n_steps = 0
    if is_stored(c):
        place_samples(t, r, &c.stored.rows, node)
    sampling.key, sampling.n_sampled = key, 0
    while sampling.n_sampled < c.n_columns and (sampling.n_sampled < t.n_candidates or number == 0):
        if hf_stopped_after(t.watch, &n_steps, node.last - node.first + t.n_outputs):
            break
        split.column = sample_feature(&work.features, &sampling)
        require_column(t, c, &work.encoder, split.column)
        n_left = split_randomly(t, r, c, node, key, number, &work.orders, &split, left)
        if n_left == 0:
            continue
        r.sign = sign_of(t, split.column)
        split.score = score_left(t, r, node, left, n_left, weight)
        number += 1
        if hf_beats(split.score, best.score):
            best, n_best_left = split, n_left
            left, best_left = best_left, left
            keep_sides(&work.orders)
            if is_perfect(r, best.score, weight):
                break
    undo_sampling(&work.features, &sampling)
    if best.column >= 0 and t.has_defaults:
        fill_sides(t, r, c, node, &work.orders, &best)
    elif best.column >= 0:
        write_sides(r, node, best_left, n_best_left)
    return best


# ----------------------------------------------------------------------------------------------- best splits

cdef int64_t _list_twice(
    const hf_task* t, const hf_workspace* r, const hf_pending* node, hf_column_workspace* work,
    int64_t n_sampled
) noexcept nogil:
    # Lists the sampled columns, twice if they have missing values in the node; returns the length of the
    # list.
    cdef const hf_columns* c = work.columns
    cdef const uint8_t* bin
    cdef const uint32_t* sample = r.sample + node.first
    cdef int64_t f, i, count = 0, n = node.last - node.first
    cdef uint32_t column
    for f in range(n_sampled):
        column = work.features.column[f]
        work.twice[count] = column
        count += 1
        if c.missing[column] < 0:
            continue
        bin = <const uint8_t*> c.bins + column * t.n
        for i in range(n):
            if bin[sample[i]] == c.missing[column]:
                work.twice[count] = column + <uint32_t> c.n_columns
                count += 1
                break
    return count


cdef double _number_of(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, const int32_t* bin,
    int64_t column, uint32_t searched
) noexcept nogil:
    # Returns the value of a bin that the node has in a column.
    #
    # bin  IN (n,)  of the node's samples in the column
    cdef int64_t i, at = 0
    cdef const char* number
    for i in range(node.last - node.first):
        if bin[i] == <int32_t> searched:
            at = r.sample[node.first + i]
            break
    if c.windows.x != NULL:
        return number_of(&c.windows, t.single, <uint32_t> at, column)
    number = c.numbers + at * c.strides[0] + column * c.strides[1]
    # -0 becomes 0.
    return ((<const float*> number)[0] if t.single else (<const double*> number)[0]) + 0.0


cdef inline double _threshold_of(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, const int32_t* bin,
    const hf_split* split
) noexcept nogil:
    # Returns the threshold between the bins split.low and split.high.
    #
    # bin  IN (n,)  of the node's samples in the column
    cdef double low, high
    if c.categorical != NULL and c.categorical[split.column]:
        return 0
    if split.missing >= 0 and split.high == c.missing[split.column]:
        return hf_largest(t.single)
    if c.low == NULL:
        low = _number_of(t, r, c, node, bin, split.column, split.low)
        high = _number_of(t, r, c, node, bin, split.column, split.high)
    else:
        low = c.high[table_at(c, split.column) + split.low]
        high = c.low[table_at(c, split.column) + split.high]
    return hf_between_f32(low, high) if t.single else hf_between_f64(low, high)


cdef void _weigh_missing(
    hf_workspace* r, const hf_pending* node, const hf_orders* o, int number
) noexcept nogil:
    # Writes r.missing_u for a column with a monotonic constraint.
    cdef int64_t i
    r.missing_u = 0
    for i in range(node.last - node.first if number == 1 else 0):
        r.missing_u += r.term[node.first + i].u if o.bin[i] == o.missing else 0


cdef hf_split best_column(
    const hf_task* t, hf_workspace* r, hf_pending* node, uint64_t key, double weight
) noexcept nogil:
    # Returns the best split of the features that a node samples, with its threshold, and writes the sides of
    # the node's samples to r.goes_right.
    cdef hf_column_workspace* work = <hf_column_workspace*> r.columns
    cdef const hf_columns* c = work.columns
    cdef hf_split best = no_split()
    cdef hf_sampling sampling
    cdef hf_scorer scorer
    cdef int64_t count, n = node.last - node.first, n_steps = 0, f, column
    cdef int64_t ahead = STORED_AHEAD if is_stored(c) else 2
    cdef int kind = SORTED_SCAN, n_orders, number
    cdef const uint32_t* candidates = work.features.column
    cdef bint varies = False
    sampling.key, sampling.n_sampled = key, 0
    if c.are_bytes:
        kind = scorer_of_bytes(t, r, n, weight, c.n_bins)
    if kind != SORTED_SCAN:  # scores all candidates together
        while sampling.n_sampled < t.n_candidates:
            prefetch_numbers_of(t, c, sample_feature(&work.features, &sampling))
            if sampling.n_sampled > 1:
                require_column(t, c, &work.encoder, candidates[sampling.n_sampled - 2])
        count = sampling.n_sampled
        require_column(t, c, &work.encoder, candidates[count - 1])
        if work.twice != NULL:
            candidates, count = work.twice, _list_twice(t, r, node, work, count)
        if kind == TERM_HISTOGRAM:
            varies = best_of_terms(t, r, c, node, candidates, count, &best)
        elif kind == PAIRWISE:
            best_pairwise(t, r, c, node, weight, candidates, count, &best)
        elif not best_of_histograms(t, r, c, node, weight, candidates, count, &best):
            undo_sampling(&work.features, &sampling)
        if work.twice != NULL and best.column >= 0:
            keep_column(t, r, c, node, &work.orders, &best)
        varies |= best.column >= 0
    if is_stored(c):
        place_samples(t, r, &c.stored.rows, node)
    # Scores features one by one; also if all features sampled so far are constant in the node.
    scorer.score = NULL
    f = sampling.n_sampled
    while f < c.n_columns and (f < t.n_candidates or not varies):
        if is_perfect(r, best.score, weight) or hf_stopped_after(t.watch, &n_steps, n + t.n_outputs):
            break
        # Next columns are prefetched while this one is scored.
        while sampling.n_sampled <= f or sampling.n_sampled < min(f + ahead, t.n_candidates):
            column = sample_feature(&work.features, &sampling)
            if is_stored(c):
                prefetch_stored(r, c, column)
                continue
            require_column(t, c, &work.encoder, column)
            prefetch_column(t, r, c, node, column)
        column = work.features.column[f]
        f += 1
        r.sign = sign_of(t, column)
        if is_stored(c) and scan_few(t, r, c, node, weight, column, &varies, &best):
            continue
        n_orders = read_orders(t, r, c, node, weight, column, &work.orders)
        if n_orders == 0:
            continue
        varies = True
        if n_orders > 0 and scorer.score == NULL:
            start_scorer(t, r, node, weight, True, c.are_bytes and not t.has_defaults, &scorer)
        for number in range(n_orders):
            if r.sign:
                _weigh_missing(r, node, &work.orders, number)
            if scorer.score(t, r, &scorer, fill_order(t, &work.orders, n, number), &best):
                best.column = column
                keep_order(t, &work.orders, n, number, &best)
                if is_perfect(r, best.score, weight):
                    break
        if n == 2 and best.column >= 0:  # all splits of two samples have equal scores
            break
    undo_sampling(&work.features, &sampling)
    if best.column >= 0:
        fill_sides(t, r, c, node, &work.orders, &best)
        best.threshold = _threshold_of(t, r, c, node, work.orders.bin, &best)
    return best


# ------------------------------------------------------------------------------------------------- the source

cdef bint _start_tree(const hf_task* t, hf_workspace* r) noexcept nogil:
    cdef const hf_columns* c = <const hf_columns*> t.source.data
    if not c.random_thresholds:
        r.best_split = best_column
    elif is_stored(c) and r.kind != HF_TERMS and not t.has_defaults:
        r.best_split = best_random_stored
    else:
        r.best_split = _best_random_column
    return start_columns(t, r, c)


cdef bint _write(
    const hf_task* t, hf_workspace* r, const hf_split* split, hf_tree* tree, int64_t v
) noexcept nogil:
    cdef const hf_column_workspace* work = <const hf_column_workspace*> r.columns
    tree.feature[v] = <int32_t> split.column
    return not t.has_defaults or add_words(tree, v, work.orders.words, work.orders.n_words)


cdef hf_source source_of_columns(const hf_columns* columns) noexcept nogil:
    # Returns the source of the columns, which must outlive it.
    cdef hf_source source
    source.data, source.has_short_bins = columns, columns.width <= 2
    source.start, source.write = _start_tree, _write
    return source
