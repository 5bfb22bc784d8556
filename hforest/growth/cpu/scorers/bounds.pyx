"""The histogram scorer with bounds: large nodes, 32-bit bins, integer weights, Gini.

Bins are integers (ranks, or sums of integers), or the bits of float32 in the order of the values. The range
of a candidate's bins is divided into buckets of equal width, and weights are summed by class and bucket:

    bins       | 3 9 9 4 250 ... |     lowest 3, highest 250, 4 buckets
    buckets    | 0 0 0 0 3   ... |     weights counted by class: count[k][bucket]
    alive      | no  no  YES no  |     may contain a split better than the best so far: sorted and scanned

Splits between buckets are scored from the counts. With g(a) = sum a_k**2 / sum a_k, a split scores
g(left) + g(right). A split inside a bucket, with sums L before it and R after it, divides the bucket's
weights b into d and e. g is convex and homogeneous, so g(L + d) <= g(L) + g(d), and g(d) <= max d_k. Hence no
split in the bucket scores more than g(L) + g(R) plus the two largest elements of b. A tighter bound follows,
with p = L / W the class shares in L, from

    g(L + d) = g(L) + sum d_k (2 p_k - |p|**2) + |d - w p|**2 / (W + w),   w = sum d_k.

The last term is at most w (max b_k + w |p|**2) / (W + w), which is largest if w is all of b; the same holds
for R and e. The sum over classes is largest if each class goes to the side where its term is larger.

Sums are 32-bit integers or, in nodes of larger weight, integers in float64.

Cost: n + buckets * classes / lanes per candidate, and sorting the samples in the buckets that stay alive. For
most candidates there are none.

Kept: the bucket of a bin that many samples have, such as the background of an image, is not counted. Its
weights are those of the node minus the others'.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from hforest.core.score cimport hf_beats
from hforest.growth.cpu.scorers.bodies cimport (
    HF_HISTOGRAM_CLASSES, bodies_of_width, bucket_of, hf_bodies, hf_buckets, place_of, real_of,
)
from hforest.growth.cpu.node_samples cimport number_classes
from hforest.growth.cpu.scorers.node_scorer cimport hf_scorer, take_split
from hforest.growth.cpu.scorers.sorted_scan cimport score_sorted, sort_keys
from hforest.growth.cpu.task cimport HF_COUNT, hf_split, hf_task, hf_workspace, weight_bits

cdef float ROUNDED = 0.999999   # a bound on the rounding error of scores in float32
cdef enum:
    SORTED_STEPS = 3            # cost of sorting a sample, in additions to a bucket


# Sums of a split, as integers in float64.
ctypedef struct hf_sums:
    double left_square
    double right_square
    double left_weight
    double right_weight


cdef inline int _log_buckets(int64_t n) noexcept nogil:
    # Returns log2 of the number of buckets that pays for n samples.
    return 5 if n < 64 else 6 if n < 320 else 7 if n < 2048 else 8


cdef bint start_buckets(
    const hf_task* t, hf_workspace* r, hf_scorer* scorer, bint whole, bint is_wide
) noexcept nogil:
    # Numbers the classes of a node; returns False if there are too many, absolutely or for its number of
    # samples.
    #
    # is_wide  whether sums are in float64
    cdef hf_buckets* s = &scorer.buckets
    cdef int64_t i, k, first = scorer.node.first
    cdef int bits = weight_bits(r)
    cdef uint32_t payload, mask = (<uint32_t> 1 << bits) - 1
    scorer.bodies = bodies_of_width(t.path, is_wide)
    s.n, s.splits.all, s.whole, s.is_wide = scorer.node.last - first, <uint32_t> scorer.weight, whole, is_wide
    s.log_lanes = scorer.bodies.log_lanes
    s.n_present = number_classes(t, r, HF_HISTOGRAM_CLASSES, s.total, &s.splits.square)
    # The running sums over the buckets of each class must cost less than sorting the samples.
    if s.n_present < 0 or SORTED_STEPS * s.n < s.n_present << _log_buckets(s.n) >> max(s.log_lanes - 2, 0):
        return False
    s.wide.all, s.wide.square = scorer.weight, 0
    for k in range(s.n_present):
        s.wide.square += <double> s.total[k] * s.total[k]
    for i in range(s.n):
        payload = r.payload[first + i]
        r.slot[i] = r.class_number[payload >> bits] << 16 | (payload & mask)
    return True


cdef int32_t _unordered(uint64_t key) noexcept nogil:
    # Returns the bin of a key.
    return <int32_t> (<uint32_t> (key >> 32) ^ <uint32_t> 1 << 31)


cdef inline uint32_t _ordered(int32_t bin) noexcept nogil:
    # Returns a bin as an unsigned integer in the same order.
    return <uint32_t> bin ^ <uint32_t> 1 << 31


cdef inline int32_t _usual(const int32_t* bin, int64_t n, int32_t otherwise) noexcept nogil:
    # Returns one of four bins that equals another of them, or `otherwise`: pixels often have one background
    # value.
    cdef int32_t a = bin[0], b = bin[n // 4], c = bin[n // 2], d = bin[3 * n // 4]
    if a == b or a == c or a == d:
        return a
    return b if b == c or b == d else c if c == d else otherwise


cdef int divide(const hf_bodies* bodies, hf_buckets* s, const int32_t* bin) noexcept nogil:
    # Divides the range of the bins into buckets. Returns 0 if all bins are equal, -1 if no bucket width fits.
    cdef int32_t[2] ends
    cdef int log_buckets = _log_buckets(s.n)
    cdef float range_
    bodies.find_range(bin, s.n, ends)
    if ends[0] == ends[1]:
        return 0
    s.log_steps, s.lowest = log_buckets - s.log_lanes, ends[0]
    s.least = real_of(s, ends[0])
    range_ = real_of(s, ends[1]) - s.least
    s.exact = s.whole and range_ < 1 << log_buckets
    if s.exact:
        while s.log_steps > 0 and range_ < 1 << (s.log_steps - 1 + s.log_lanes):
            s.log_steps -= 1
        s.scale = 1
    else:
        s.scale = <float> ((1 << log_buckets) - 2) * ROUNDED / range_
    if not (0 < s.scale < INFINITY and range_ < INFINITY):
        return -1
    s.usual = _usual(bin, s.n, s.lowest)
    return 1


cdef int _count_bins(
    const hf_bodies* bodies, hf_workspace* r, const int32_t* bin, hf_buckets* s
) noexcept nogil:
    # Writes the bucket of each bin, and the weights by class in each bucket except that of s.usual. The
    # latter may hold most samples, whose additions to one count would depend on each other. Returns the
    # number of buckets per class.
    cdef int size = 1 << (s.log_steps + s.log_lanes)
    cdef const uint32_t* slot = r.slot
    cdef const uint8_t* bucket = r.bucket
    cdef uint32_t* count = s.count
    cdef uint32_t* other = <uint32_t*> r.key2
    cdef int64_t i, n = s.n, n_others = 0
    s.usual_place = place_of(s, bucket_of(s, s.usual))
    bodies.fill_buckets(s, bin, n, r.bucket)
    memset(count, 0, s.n_present * size * sizeof(uint32_t))
    for i in range(n):
        other[n_others] = ((slot[i] >> 16) * size + bucket[i]) << 16 | (slot[i] & 0xffff)
        n_others += bucket[i] != s.usual_place
    for i in range(n_others):
        count[other[i] >> 16] += other[i] & 0xffff
    return size


cdef hf_sums _sums_after(const hf_buckets* s, int c) noexcept nogil:
    # Returns the sums of the split after bucket c; c = -1: before all buckets.
    cdef hf_sums sums
    cdef int i = place_of(s, c) if c >= 0 else 0
    sums.left_square = sums.left_weight = 0
    if s.is_wide:
        sums.right_square, sums.right_weight = s.wide.square, s.wide.all
        if c >= 0:
            sums.left_square, sums.right_square = s.wide.left_square[i], s.wide.right_square[i]
            sums.left_weight, sums.right_weight = s.wide.left_weight[i], s.wide.all - s.wide.left_weight[i]
    else:
        sums.right_square, sums.right_weight = s.splits.square, s.splits.all
        if c >= 0:
            sums.left_square, sums.right_square = s.splits.left_square[i], s.splits.right_square[i]
            sums.left_weight = s.splits.left_weight[i]
            sums.right_weight = s.splits.all - s.splits.left_weight[i]
    return sums


cdef inline double _score(hf_sums sums) noexcept nogil:
    return sums.left_square / sums.left_weight + sums.right_square / sums.right_weight


cdef bint _confirm_exact(const hf_buckets* s, float limit, double* best, int32_t* low) noexcept nogil:
    # Writes the best split if each bucket holds one value.
    cdef int c, i
    cdef double score
    cdef bint is_better = False
    for c in range(1 << (s.log_steps + s.log_lanes)):
        i = place_of(s, c)
        if not (s.splits.rate.value[i] >= limit and s.splits.rate.value[i] > 0):
            continue
        score = _score(_sums_after(s, c))
        if hf_beats(score, best[0]):
            best[0], low[0], is_better = score, s.lowest + c, True
    return is_better


cdef uint64_t* _sort_alive(
    const hf_task* t, hf_workspace* r, const int32_t* bin, hf_buckets* s, int64_t* n_keys
) noexcept nogil:
    # Returns the sorted keys of the samples in buckets that are alive; the bucket of s.usual has a single
    # key.
    cdef bint has_usual = s.alive[s.usual_place]
    cdef uint64_t* key = <uint64_t*> r.key
    cdef uint32_t ordered, lowest = <uint32_t> -1, highest = 0
    cdef int64_t i, n = 0
    s.alive[s.usual_place] = 0
    for i in range(s.n):
        key[n] = <uint64_t> _ordered(bin[i]) << 32 | r.slot[i]
        n += s.alive[r.bucket[i]]
    if has_usual:
        key[n] = <uint64_t> _ordered(s.usual) << 32
        n += 1
    for i in range(n):
        ordered = <uint32_t> (key[i] >> 32)
        lowest, highest = min(lowest, ordered), max(highest, ordered)
    n_keys[0] = n
    return key if n == 0 else sort_keys(key, <uint64_t*> r.key2, n, lowest, highest, t.watch)


cdef bint _confirm_alive(
    const hf_task* t, hf_workspace* r, const int32_t* bin, hf_buckets* s, double* best, int32_t* low
) noexcept nogil:
    # Writes the best split inside the buckets that are alive, whose bins are sorted and scanned. Sums are
    # integers that are exact in float64.
    cdef uint32_t left[32]  # HF_HISTOGRAM_CLASSES
    cdef uint32_t k, had
    cdef int size = 1 << (s.log_steps + s.log_lanes), usual_bucket = bucket_of(s, s.usual)
    cdef int bucket = -2, at, place
    cdef int64_t i, j, n_keys
    cdef int32_t value
    cdef const uint64_t* key = _sort_alive(t, r, bin, s, &n_keys)
    cdef double weight, score
    cdef hf_sums sums
    cdef bint is_better = False
    for i in range(n_keys):
        value = _unordered(key[i])
        if i == 0 or key[i] >> 32 != key[i - 1] >> 32:
            at = bucket_of(s, value)
            if at != bucket:
                # The sums before the bucket; for the bucket of s.usual, the sums including it.
                bucket = at
                at += at == usual_bucket
                sums = _sums_after(s, at - 1)
                place = place_of(s, at - 1) if at else 0
                for j in range(s.n_present):
                    left[j] = s.count[j * size + place] if at else 0
        if bucket != usual_bucket:
            k, weight = <uint32_t> key[i] >> 16, <double> (<uint32_t> key[i] & 0xffff)
            had = left[k]
            sums.left_square += weight * (2.0 * had + weight)
            sums.right_square -= weight * (2.0 * (s.total[k] - had) - weight)
            sums.left_weight += weight
            sums.right_weight -= weight
            left[k] = had + (<uint32_t> key[i] & 0xffff)
        if (i + 1 < n_keys and key[i] >> 32 == key[i + 1] >> 32) or sums.right_weight == 0:
            continue
        score = _score(sums)
        if hf_beats(score, best[0]):
            best[0], low[0], is_better = score, value, True
    return is_better


cdef inline void _count_call(const hf_buckets* s) noexcept nogil:
    if s.is_wide and s.exact:
        HF_COUNT(b"growth", b"wide_exact_histogram")
    elif s.is_wide:
        HF_COUNT(b"growth", b"wide_bounds")
    elif s.exact:
        HF_COUNT(b"growth", b"exact_histogram")
    else:
        HF_COUNT(b"growth", b"bounds")


cdef bint score_buckets(
    const hf_task* t, hf_workspace* r, hf_scorer* scorer, const int32_t* bin, hf_split* best
) noexcept nogil:
    # Bins that no buckets divide are sorted.
    cdef const hf_bodies* bodies = &scorer.bodies
    cdef hf_buckets* s = &scorer.buckets
    cdef int divided = divide(bodies, s, bin), size, i
    cdef int32_t low = 0
    cdef bint any_alive = False, is_better
    cdef float most, limit
    cdef double score = max(best.score, 0.0)
    if divided == 0:
        return False
    if divided < 0:
        return score_sorted(t, r, scorer, bin, best)
    size = _count_bins(bodies, r, bin, s)
    bodies.sum_buckets(s)
    most = bodies.rate(size, &s.splits)
    limit = max(<float> score, most) * ROUNDED
    _count_call(s)
    if s.exact:
        is_better = _confirm_exact(s, limit, &score, &low)
    else:
        bodies.find_alive(s, limit)
        # The bucket of s.usual has one split, after it.
        s.alive[s.usual_place] = 0 < s.splits.rate.value[s.usual_place] >= limit
        for i in range(size):
            any_alive |= s.alive[i]
        is_better = any_alive and _confirm_alive(t, r, bin, s, &score, &low)
    if is_better:
        take_split(scorer, bin, score, low, best)
    return is_better
