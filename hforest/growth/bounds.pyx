"""The histogram scorer with bounds: large nodes, codes of 32 bits, whole weights, Gini.

Codes are whole numbers (ranks, sums of whole numbers), or the bits of float32 in the order of the values. The
range of a candidate's codes is divided into buckets of equal width, and weights are counted by class and
bucket:

    codes      | 3 9 9 4 250 ... |     lowest 3, highest 250, 4 buckets
    buckets    | 0 0 0 0 3   ... |     weights counted by class: count[k][bucket]
    alive      | no  no  YES no  |     may hold a split better than the best so far: sorted and scanned

Splits between buckets are scored from the counts. With g(a) = sum a_k**2 / sum a_k, a split scores
g(left) + g(right). In a bucket after samples L and before R it divides the bucket's weights b into d and e. g
is convex and homogeneous, so g(L + d) <= g(L) + g(d), and g(d) <= max d_k: no split there scores more than
g(L) + g(R) and the two largest of b. Closer, with p = L / W the shares in L,

    g(L + d) = g(L) + sum d_k (2 p_k - |p|**2) + |d - w p|**2 / (W + w),   w = sum d_k,

and the last term is at most w (max b_k + w |p|**2) / (W + w), largest where w is all of b; the same for R and
e. The sum over classes is largest where each goes to the side that it adds more to.

Cost: n + buckets * classes / lanes a candidate, and sorting the samples of the buckets that stay alive: of
most candidates none.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from hforest.core.arena cimport take
from hforest.growth.bodies cimport (
    HF_HISTOGRAM_CLASSES, bodies_of, hf_bodies, hf_buckets, hf_float_of_code, score_at,
)
from hforest.growth.node_samples cimport number_classes
from hforest.growth.sorted_scan cimport sort_keys
from hforest.growth.task cimport (
    HF_COUNT, hf_pending, hf_task, hf_workspace, weight_bits,
)

cdef float ROUNDED = 0.999999   # what rounding to float32 may hide of a score, and more
cdef enum:
    SORTED_STEPS = 3            # what sorting a sample costs, in additions to a bucket


cdef void start_codes(hf_codes* codes, hf_arena* arena, int64_t n) noexcept nogil:
    # Takes the workspace of a tree on n samples.
    codes.code, codes.slot = <int32_t*> take(arena, n * 4), <uint32_t*> take(arena, n * 4)
    codes.bucket = <uint8_t*> take(arena, n)


cdef inline int _log_buckets(int64_t n) noexcept nogil:
    # Returns log2 of the number of buckets that pay for n samples.
    return 5 if n < 64 else 6 if n < 320 else 7 if n < 2048 else 8


cdef bint start_buckets(
    const hf_task* t, hf_workspace* r, hf_codes* codes, const hf_pending* node, double weight, bint whole,
    hf_buckets* s
) noexcept nogil:
    # Numbers the classes of a node; returns False if they are too many, or too many for its samples.
    cdef int64_t i
    cdef int bits = weight_bits(r)
    cdef uint32_t payload, mask = (<uint32_t> 1 << bits) - 1
    s.n, s.splits.all, s.whole = node.last - node.first, <uint32_t> weight, whole
    s.log_lanes = bodies_of(t.path).log_lanes
    s.n_present = number_classes(t, r, HF_HISTOGRAM_CLASSES, s.total, &s.splits.square)
    # Counts are added up for all buckets, by vectors; samples are sorted, a dozen steps each.
    if s.n_present < 0 or SORTED_STEPS * s.n < s.n_present << _log_buckets(s.n) >> max(s.log_lanes - 2, 0):
        return False
    for i in range(s.n):
        payload = r.payload[node.first + i]
        codes.slot[i] = r.class_number[payload >> bits] << 16 | (payload & mask)
    return True


cdef float real_of(const hf_buckets* s, int32_t code) noexcept nogil:
    # Returns the value of a code.
    return <float> code if s.whole else hf_float_of_code(code)


cdef int32_t next_code(const int32_t* code, int64_t n, int32_t low) noexcept nogil:
    # Returns the least code above `low`.
    cdef int32_t next = 0x7fffffff
    cdef int64_t i
    for i in range(n):
        next = code[i] if low < code[i] < next else next
    return next


cdef int32_t _unordered(uint64_t key) noexcept nogil:
    # Returns the code of a key.
    return <int32_t> (<uint32_t> (key >> 32) ^ <uint32_t> 1 << 31)


cdef inline uint32_t _ordered(int32_t code) noexcept nogil:
    # Returns a code as an unsigned integer in the same order.
    return <uint32_t> code ^ <uint32_t> 1 << 31


cdef int bucket_of(const hf_buckets* s, int32_t code) noexcept nogil:
    # Returns the bucket of a code, as fill_buckets has it.
    cdef int c = <int> ((real_of(s, code) - s.least) * s.scale)
    return c if s.exact else c + (code >= s.usual) + (code > s.usual)


cdef int place_of(const hf_buckets* s, int c) noexcept nogil:
    return (c & ((1 << s.log_steps) - 1)) << s.log_lanes | c >> s.log_steps


cdef inline int32_t _usual(const int32_t* code, int64_t n, int32_t otherwise) noexcept nogil:
    # Returns one of four codes that equals another of them, or `otherwise`: pixels have a background.
    cdef int32_t a = code[0], b = code[n // 4], c = code[n // 2], d = code[3 * n // 4]
    if a == b or a == c or a == d:
        return a
    return b if b == c or b == d else c if c == d else otherwise


cdef int divide(const hf_bodies* bodies, hf_buckets* s, const int32_t* code) noexcept nogil:
    # Divides the range of the codes into buckets. Returns 0 if all are equal, -1 if no width divides them.
    cdef int32_t[2] ends
    cdef int log_buckets = _log_buckets(s.n)
    cdef float range_
    bodies.find_range(code, s.n, ends)
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
    s.usual = _usual(code, s.n, s.lowest)
    return 1


cdef int count_codes(
    const hf_bodies* bodies, hf_workspace* r, const hf_codes* codes, const int32_t* code, hf_buckets* s
) noexcept nogil:
    # Writes the bucket of each code and the weights of the classes in each bucket but s.own, which may hold
    # most samples: their additions to one count would wait for one another. Returns how many buckets the
    # counts of a class have.
    cdef int size = 1 << (s.log_steps + s.log_lanes)
    cdef const uint32_t* slot = codes.slot
    cdef const uint8_t* bucket = codes.bucket
    cdef uint32_t* count = s.count
    cdef uint32_t* other = <uint32_t*> r.key2
    cdef int64_t i, n = s.n, n_others = 0
    s.own = place_of(s, bucket_of(s, s.usual))
    bodies.fill_buckets(s, code, n, codes.bucket)
    memset(count, 0, s.n_present * size * sizeof(uint32_t))
    for i in range(n):
        other[n_others] = ((slot[i] >> 16) * size + bucket[i]) << 16 | (slot[i] & 0xffff)
        n_others += bucket[i] != s.own
    for i in range(n_others):
        count[other[i] >> 16] += other[i] & 0xffff
    return size


cdef bint _confirm_exact(const hf_buckets* s, float limit, double* best, int32_t* low) noexcept nogil:
    # Takes the best split where each bucket holds one value.
    cdef int c, i
    cdef double score
    cdef bint found = False
    for c in range(1 << (s.log_steps + s.log_lanes)):
        i = place_of(s, c)
        if not (s.splits.rate.value[i] >= limit and s.splits.rate.value[i] > 0):
            continue
        score = score_at(&s.splits, i)
        if score > best[0]:
            best[0], low[0] = score, s.lowest + c
            found = True
    return found


cdef uint64_t* _sort_alive(
    const hf_task* t, hf_workspace* r, const hf_codes* codes, const int32_t* code, hf_buckets* s,
    int64_t* n_keys
) noexcept nogil:
    # Returns the keys of the samples in buckets that are alive, in order; of the bucket at s.own, which holds
    # one code, a single key.
    cdef bint has_own = s.alive[s.own]
    cdef uint64_t* key = <uint64_t*> r.key
    cdef uint32_t ordered, lowest = <uint32_t> -1, highest = 0
    cdef int64_t i, n = 0
    s.alive[s.own] = 0
    for i in range(s.n):
        key[n] = <uint64_t> _ordered(code[i]) << 32 | codes.slot[i]
        n += s.alive[codes.bucket[i]]
    if has_own:
        key[n] = <uint64_t> _ordered(s.usual) << 32
        n += 1
    for i in range(n):
        ordered = <uint32_t> (key[i] >> 32)
        lowest, highest = min(lowest, ordered), max(highest, ordered)
    n_keys[0] = n
    return key if n == 0 else sort_keys(key, <uint64_t*> r.key2, n, lowest, highest, t.watch)


cdef bint confirm_alive(
    const hf_task* t, hf_workspace* r, const hf_codes* codes, const int32_t* code, hf_buckets* s, int own,
    hf_before before, const void* scorer, double* best, int32_t* low
) noexcept nogil:
    # Takes the best split within the buckets that are alive: their codes are sorted and scanned. Sums are
    # whole numbers, which double holds.
    #
    # before   returns the sums before a bucket, of what `scorer` points to
    cdef uint32_t left[32]  # HF_HISTOGRAM_CLASSES
    cdef uint32_t k, had
    cdef int size = 1 << (s.log_steps + s.log_lanes), bucket = -2, at, place
    cdef int64_t i, j, n_keys
    cdef int32_t value
    cdef const uint64_t* key = _sort_alive(t, r, codes, code, s, &n_keys)
    cdef double weight, score
    cdef hf_sums sums
    cdef bint found = False
    for i in range(n_keys):
        value = _unordered(key[i])
        if i == 0 or key[i] >> 32 != key[i - 1] >> 32:
            at = bucket_of(s, value)
            if at != bucket:
                # Sums of what lies before the bucket, of the bucket of one code with it.
                bucket = at
                at += at == own
                sums = before(scorer, at)
                place = place_of(s, at - 1) if at else 0
                for j in range(s.n_present):
                    left[j] = s.count[j * size + place] if at else 0
        if bucket != own:
            k, weight = <uint32_t> key[i] >> 16, <double> (<uint32_t> key[i] & 0xffff)
            had = left[k]
            sums.left_square += weight * (2.0 * had + weight)
            sums.right_square -= weight * (2.0 * (s.total[k] - had) - weight)
            sums.left_weight += weight
            sums.right_weight -= weight
            left[k] = had + (<uint32_t> key[i] & 0xffff)
        if (i + 1 < n_keys and key[i] >> 32 == key[i + 1] >> 32) or sums.right_weight == 0:
            continue
        score = sums.left_square / sums.left_weight + sums.right_square / sums.right_weight
        if score > best[0]:
            best[0], low[0] = score, value
            found = True
    return found


cdef hf_sums _sums_before(const void* scorer, int bucket) noexcept nogil:
    cdef const hf_buckets* s = <const hf_buckets*> scorer
    cdef hf_sums sums
    cdef int i
    sums.left_square, sums.right_square = 0, s.splits.square
    sums.left_weight, sums.right_weight = 0, s.splits.all
    if bucket:
        i = place_of(s, bucket - 1)
        sums.left_square, sums.right_square = s.splits.left_square[i], s.splits.right_square[i]
        sums.left_weight = s.splits.left_weight[i]
        sums.right_weight = s.splits.all - s.splits.left_weight[i]
    return sums


cdef int score_buckets(
    const hf_task* t, hf_workspace* r, const hf_codes* codes, const int32_t* code, hf_buckets* s,
    double* best, int32_t* low
) noexcept nogil:
    # Takes the best split of one candidate where it scores more than best[0]; returns whether it does, or -1
    # if no buckets divide the codes.
    #
    # code        IN (n,)
    # best, low   OUT      its score, and the largest code on its left
    cdef const hf_bodies* bodies = bodies_of(t.path)
    cdef int divided = divide(bodies, s, code), size, own, i
    cdef bint any_alive = False
    cdef float most, limit
    if divided <= 0:
        return divided
    size = count_codes(bodies, r, codes, code, s)
    bodies.sum_buckets(s)
    most = bodies.rate(size, &s.splits)
    limit = max(<float> best[0], most) * ROUNDED
    if s.exact:
        HF_COUNT(b"growth", b"exact_histogram")
        return _confirm_exact(s, limit, best, low)
    HF_COUNT(b"growth", b"bounds")
    bodies.find_alive(s, limit)
    # In the bucket of one code there is one split, after it.
    s.alive[s.own] = 0 < s.splits.rate.value[s.own] >= limit
    for i in range(size):
        any_alive |= s.alive[i]
    own = bucket_of(s, s.usual)
    return any_alive and confirm_alive(t, r, codes, code, s, own, _sums_before, s, best, low)
