"""The sorted scan: the scorer that always applies, and the only one for targets and real weights.

The keys of a candidate are sorted, and each split between two different bins is scored from running sums, in
the order of the reference's sums. Cost: n log n, and n * n_outputs for real sums.
"""

from libc.math cimport ceil
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from hforest.core.machine cimport hf_stopped, hf_stopped_after, hf_watch
from hforest.core.score cimport HF_ENTROPY, hf_beats, hf_node_score, hf_xlogx
from hforest.growth.node_scorer cimport hf_scorer
from hforest.growth.task cimport (
    HF_COUNT, HF_FLOATS, HF_KEYS_32, hf_add, hf_scan, hf_split, hf_task, hf_workspace,
)

cdef enum:
    INSERTION = 48   # keys up to which insertion sort is faster than a radix pass
    DIGIT = 11       # bits per radix pass, at most
    SHORT_DIGIT = 8  # the same for few keys, whose counts would take longer than the keys
    SHORT = 1 << 10  # keys below which this pays
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


cdef inline double _entropy_term(const hf_workspace* r, double a) noexcept nogil:
    # Returns a log2 a, from the table if a is an integer.
    return hf_xlogx(a) if r.term == NULL else r.term[<int64_t> a]


cdef void _scan_entropy(
    const hf_task* t, hf_workspace* r, const uint64_t* key, int64_t n, double weight, hf_split* best
) noexcept nogil:
    # Writes the best split by entropy. A sample changes one term of each side; running sums are over these
    # terms.
    cdef double left_weight = 0, right_weight, left, right, score
    cdef int64_t i, k, at, label, n_steps = 0
    cdef uint32_t low, high
    for k in range(t.n_outputs):
        r.left[k] = r.left_term[k] = 0
        r.right_term[k] = _entropy_term(r, r.total[k])
    for i in range(n - 1):
        if hf_stopped_after(t.watch, &n_steps, t.n_outputs):
            return
        at = <int64_t> <uint32_t> key[i]
        label = r.label[at]
        r.left[label] += r.weight[at]
        left_weight += r.weight[at]
        r.left_term[label] = _entropy_term(r, r.left[label])
        r.right_term[label] = _entropy_term(r, r.total[label] - r.left[label])
        low = <uint32_t> (key[i] >> 32)
        high = <uint32_t> (key[i + 1] >> 32)
        right_weight = weight - left_weight
        if low == high or i + 1 < t.min_leaf or n - i - 1 < t.min_leaf or not right_weight > 0:
            continue
        if left_weight < r.least_weight or right_weight < r.least_weight:
            continue
        left = right = 0
        for k in range(t.n_outputs):
            left += r.left_term[k]
            right += r.right_term[k]
        score = (left - _entropy_term(r, left_weight)) + (right - _entropy_term(r, right_weight))
        if hf_beats(score, best.score):
            best.score, best.low, best.high = score, low, high


cdef void _scan_floats(
    const hf_task* t, hf_workspace* r, const uint64_t* key, int64_t n, double weight, hf_split* best
) noexcept nogil:
    # Writes the best split in float64, O(n_outputs) per split. Payloads are sample numbers in the tree.
    cdef double left_weight = 0, right_weight, score
    cdef int64_t i, k, at, n_steps = 0
    cdef uint32_t low, high
    for k in range(t.n_outputs):
        r.left[k] = 0
    for i in range(n - 1):
        if hf_stopped_after(t.watch, &n_steps, t.n_outputs):
            return
        at = <int64_t> <uint32_t> key[i]
        hf_add(t, r, at, r.left)
        left_weight += r.weight[at]
        low = <uint32_t> (key[i] >> 32)
        high = <uint32_t> (key[i + 1] >> 32)
        right_weight = weight - left_weight
        if low == high or i + 1 < t.min_leaf or n - i - 1 < t.min_leaf or not right_weight > 0:
            continue
        if left_weight < r.least_weight or right_weight < r.least_weight:
            continue
        for k in range(t.n_outputs):
            r.right[k] = r.total[k] - r.left[k]
        score = (
            hf_node_score(t.criterion, r.left, t.n_outputs, left_weight)
            + hf_node_score(t.criterion, r.right, t.n_outputs, right_weight)
        )
        if hf_beats(score, best.score):
            best.score, best.low, best.high = score, low, high


cdef hf_scan scan_of(const hf_task* t, int kind) noexcept nogil:
    # Returns the scan for 64-bit keys of a tree whose sums have a representation `kind`.
    if kind != HF_FLOATS:
        return _scan_counts[uint64_t]
    return _scan_entropy if t.labels != NULL and t.criterion == HF_ENTROPY else _scan_floats


cdef bint score_sorted(
    const hf_task* t, hf_workspace* r, hf_scorer* scorer, const int32_t* bin, hf_split* best
) noexcept nogil:
    # With 32-bit keys, all bins fit in 16 bits.
    cdef const uint32_t* payload = r.payload + scorer.node.first
    cdef uint64_t* key = <uint64_t*> r.key
    cdef uint32_t* short = <uint32_t*> r.key
    cdef uint32_t ordered, lowest = <uint32_t> -1, highest = 0
    cdef int64_t i, n = scorer.node.last - scorer.node.first
    cdef double before = best.score
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
        key[i] = <uint64_t> ordered << 32 | payload[i]
    if lowest == highest:
        return False
    r.scan(t, r, sort_keys(key, <uint64_t*> r.key2, n, lowest, highest, t.watch), n, scorer.weight, best)
    if not hf_beats(best.score, before):
        return False
    best.low, best.high = best.low ^ SIGN, best.high ^ SIGN
    return True
