"""The sorted scan: the scorer that always applies.

The keys of a candidate are sorted, and each split between two different bins is scored from running sums of
integers. Cost: n log n, and n * n_outputs for terms.

Kept: up to 32 terms are ordered by comparisons, by a vector body, in place of a sort.
"""

from libc.math cimport ceil
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from hforest.core.machine cimport hf_stopped, hf_stopped_after, hf_watch
from hforest.core.score cimport hf_beats
from hforest.growth.cpu.scorers.node_scorer cimport hf_scorer
from hforest.growth.cpu.task cimport (
    HF_COUNT, HF_KEYS_32, HF_TERMS, hf_pending, hf_split, hf_term, hf_task, hf_workspace, is_pair, payload_of,
)
from hforest.growth.cpu.scorers.terms cimport (
    bound_of, is_better, may_gain, move_pair, move_sample, score_of_sums, start_sums,
)

cdef enum:
    INSERTION = 48   # keys up to which insertion sort is faster than a radix pass
    DIGIT = 11       # bits per radix pass, at most
    SHORT_DIGIT = 8  # the same for few keys, whose counts would take longer than the keys
    SHORT = 1 << 10  # keys below which this pays
    NEAR = 1 << 26   # bins that hf_order_few orders, at most
    LONG = 1 << 16   # keys from which each pass checks for signals

cdef uint32_t SIGN = <uint32_t> 1 << 31

cdef extern from * nogil:
    int __builtin_clz(unsigned int a)


cdef key_t* sort_keys(
    key_t* key, key_t* scratch, int64_t n, uint32_t lowest, uint32_t highest, hf_watch* watch
) noexcept nogil:
    # Sorts by bin, stably; returns the array that holds the result, `key` or `scratch`. Stops early if
    # `watch` says that the call has to stop.
    #
    # key, scratch      IN, OUT (n,)
    # lowest, highest   IN  the least and the greatest bin
    cdef int shift = 16 if key_t is uint32_t else 32
    cdef key_t k
    cdef key_t* swap
    cdef int64_t i, j, ordered = 1
    cdef int bits, n_passes, digit, by, pass_number
    cdef uint32_t start[2048]  # 2**DIGIT
    cdef uint32_t d, total, count, mask
    if n <= INSERTION:
        for i in range(1, n):
            k = key[i]
            j = i
            while j > 0 and key[j - 1] >> shift > k >> shift:
                key[j] = key[j - 1]
                j -= 1
            key[j] = k
        return key
    # The keys of a sorted column are in order already.
    while ordered < n and key[ordered - 1] >> shift <= key[ordered] >> shift:
        ordered += 1
    if ordered == n:
        return key
    bits = 32 - __builtin_clz((highest - lowest) | 1)
    digit = SHORT_DIGIT if n < SHORT else DIGIT
    n_passes = (bits + digit - 1) // digit
    digit = (bits + n_passes - 1) // n_passes
    mask = (<uint32_t> 1 << digit) - 1
    for pass_number in range(n_passes):
        if n > LONG and hf_stopped(watch):
            return key
        by = pass_number * digit
        total = 0
        memset(start, 0, sizeof(uint32_t) << digit)
        for i in range(n):
            start[(<uint32_t> (key[i] >> shift) - lowest) >> by & mask] += 1
        for d in range(mask + 1):
            count = start[d]
            start[d] = total
            total += count
        for i in range(n):
            d = (<uint32_t> (key[i] >> shift) - lowest) >> by & mask
            scratch[start[d]] = key[i]
            start[d] += 1
        swap, key = key, scratch
        scratch = swap
    return key


cdef void _scan_counts(
    const hf_task* t, hf_workspace* r, const key_t* key, int64_t n, double weight, hf_split* best
) noexcept nogil:
    # Writes the best split by Gini in O(1) per sample. All sums are integers, so the order of equal bins does
    # not change a bit of the result.
    cdef int shift = 16 if key_t is uint32_t else 32, half = shift // 2
    cdef key_t low_half = (<key_t> 1 << half) - 1
    cdef uint64_t left_square = 0, right_square = 0, left_weight = 0, w, before, all = <uint64_t> weight
    cdef uint64_t least = <uint64_t> ceil(r.least_weight)  # weights are integers
    cdef int64_t i, k
    cdef uint32_t y, low, high
    cdef double score
    for k in range(t.n_outputs):
        r.count_left[k] = 0
        right_square += <uint64_t> r.count[k] * r.count[k]
    for i in range(n - 1):
        y = <uint32_t> (key[i] >> half & low_half)
        w = key[i] & low_half
        before = r.count_left[y]
        left_square += w * (2 * before + w)
        right_square -= w * (2 * (r.count[y] - before) - w)
        r.count_left[y] = <uint32_t> (before + w)
        left_weight += w
        low = <uint32_t> (key[i] >> shift)
        high = <uint32_t> (key[i + 1] >> shift)
        if low == high or i + 1 < t.min_leaf or n - i - 1 < t.min_leaf:
            continue
        if left_weight < least or all - left_weight < least:
            continue
        score = (
            <double> left_square / <double> left_weight
            + <double> right_square / <double> (all - left_weight)
        )
        if hf_beats(score, best.score):
            best.score, best.low, best.high = score, low, high


cdef void _scan_terms(
    const hf_task* t, hf_workspace* r, const uint64_t* key, int64_t n, hf_split* best
) noexcept nogil:
    # Does the work of scan_keys for keys whose payload is the position of a sample in the tree.
    cdef int64_t i, u = 0, n_steps = 0
    cdef uint32_t low, high
    cdef double bound = bound_of(t, r, best.score)
    start_sums(t, r)
    for i in range(n - 1):
        if hf_stopped_after(t.watch, &n_steps, t.n_outputs):
            return
        u += move_sample(t, r, <uint32_t> key[i], 1)
        low = <uint32_t> (key[i] >> 32)
        high = <uint32_t> (key[i + 1] >> 32)
        if low == high or i + 1 < t.min_leaf or n - i - 1 < t.min_leaf:
            continue
        if is_better(t, r, u, &bound, best):
            best.low, best.high = low, high


cdef bint _scan_few_pairs(
    const hf_task* t, hf_workspace* r, const hf_term* term, const int32_t* bin, const uint8_t* order,
    int64_t n, hf_split* best
) noexcept nogil:
    # Does the work of score_few for one target or two classes, from the order of the bins.
    cdef double mean = r.mean[0], total = <double> r.total_u, bound = bound_of(t, r, best.score), score
    cdef int64_t i, q = 0, u = 0, q_moved = 0, u_moved = 0, all = r.total_u
    cdef bint found = False
    start_sums(t, r)
    for i in range(n - 1):
        q += term[order[i]].q
        u += term[order[i]].u
        if bin[order[i]] == bin[order[i + 1]] or i + 1 < t.min_leaf or n - i - 1 < t.min_leaf:
            continue
        if not may_gain(mean, total, all, q, u, bound):
            continue
        move_pair(t, r, q - q_moved, u - u_moved)
        q_moved, u_moved = q, u
        score = score_of_sums(t, r, u)
        if hf_beats(score, best.score):
            bound, best.score, found = bound_of(t, r, score), score, True
            best.low, best.high = <uint32_t> bin[order[i]], <uint32_t> bin[order[i + 1]]
    return found


cdef bint score_few(
    const hf_task* t, hf_workspace* r, const hf_pending* node, const int32_t* bin, int32_t lowest,
    hf_split* best
) noexcept nogil:
    # Does the work of score_sorted for at most HF_FEW samples as terms.
    #
    # bin     IN (n,)  of the node's samples
    # lowest  IN       a bin that is not above them, and not more than 2**26 below
    cdef uint8_t order[32]  # HF_FEW
    cdef int64_t i, u = 0, n = node.last - node.first, n_steps = 0
    cdef int32_t low, high
    cdef double bound = bound_of(t, r, best.score)
    cdef bint found = False
    HF_COUNT(b"growth", b"few_terms")
    hf_order_few(bin, <int> n, lowest, order)
    if is_pair(t):
        return _scan_few_pairs(t, r, r.term + node.first, bin, order, n, best)
    start_sums(t, r)
    for i in range(n - 1):
        if hf_stopped_after(t.watch, &n_steps, t.n_outputs):
            break
        u += move_sample(t, r, node.first + order[i], 1)
        low, high = bin[order[i]], bin[order[i + 1]]
        if low == high or i + 1 < t.min_leaf or n - i - 1 < t.min_leaf:
            continue
        if is_better(t, r, u, &bound, best):
            best.low, best.high, found = <uint32_t> low, <uint32_t> high, True
    return found


cdef void scan_keys(
    const hf_task* t, hf_workspace* r, const uint64_t* key, int64_t n, double weight, hf_split* best
) noexcept nogil:
    # Writes the best split of n sorted keys to `best` if it scores more than best.score; of equal scores the
    # lowest wins. sum_up must be called first.
    if r.kind == HF_TERMS:
        _scan_terms(t, r, key, n, best)
    else:
        _scan_counts(t, r, key, n, weight, best)


cdef bint score_sorted(
    const hf_task* t, hf_workspace* r, hf_scorer* scorer, const int32_t* bin, hf_split* best
) noexcept nogil:
    # With 32-bit keys, all bins fit in 16 bits. A few terms whose bins are near are ordered by comparisons.
    cdef const uint32_t* payload = r.payload + scorer.node.first
    cdef uint64_t* key = <uint64_t*> r.key
    cdef uint32_t* short = <uint32_t*> r.key
    cdef uint32_t ordered, lowest = <uint32_t> -1, highest = 0
    cdef int64_t i, n = scorer.node.last - scorer.node.first
    cdef int32_t least = bin[0], greatest = bin[0]
    cdef double before = best.score
    if r.kind == HF_TERMS and n <= HF_FEW:
        for i in range(n):
            least, greatest = min(least, bin[i]), max(greatest, bin[i])
        if <int64_t> greatest - least < NEAR:
            return least < greatest and score_few(t, r, scorer.node, bin, least, best)
    HF_COUNT(b"growth", b"sorted_scan")
    if r.kind == HF_KEYS_32:
        for i in range(n):
            ordered = <uint32_t> bin[i]
            lowest = ordered if ordered < lowest else lowest
            highest = ordered if ordered > highest else highest
            short[i] = ordered << 16 | payload[i]
        if lowest < highest:
            short = sort_keys(short, <uint32_t*> r.key2, n, lowest, highest, t.watch)
            _scan_counts(t, r, short, n, scorer.weight, best)
        return hf_beats(best.score, before)
    for i in range(n):
        ordered = <uint32_t> bin[i] ^ SIGN
        lowest = ordered if ordered < lowest else lowest
        highest = ordered if ordered > highest else highest
        key[i] = <uint64_t> ordered << 32 | payload_of(r, scorer.node.first + i)
    if lowest == highest:
        return False
    key = sort_keys(key, <uint64_t*> r.key2, n, lowest, highest, t.watch)
    scan_keys(t, r, key, n, scorer.weight, best)
    if not hf_beats(best.score, before):
        return False
    best.low, best.high = best.low ^ SIGN, best.high ^ SIGN
    return True
