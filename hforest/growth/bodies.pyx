"""The inner loops of the scorers in plain Cython, and the choice of a vector path's.

Each function here has vector bodies of the same signature and results in simd/. Sums are integers; rates are
scores in float32. With l the weight of a class on the left of a split and T the class's total,
sum (T - l)**2 = sum T**2 - 2 sum T l + sum l**2.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

cdef extern from "growth/simd/bodies.h" nogil:
    const hf_bodies* hf_vector_bodies(int path)

cdef hf_bodies plain


cdef const hf_bodies* bodies_of(int path) noexcept nogil:
    cdef const hf_bodies* vector = hf_vector_bodies(path)
    if vector == NULL:
        return &plain
    return vector


cdef void _sum_pairs(int per, hf_pairwise* p) noexcept nogil:
    # Writes the sums of the split after each number, of `per` candidates side by side: number i * per + c is
    # sample i of candidate c, and samples come class by class.
    cdef int64_t j, k, at
    cdef uint8_t left
    cdef uint16_t added, square, product
    for at in range(p.n * per):
        left, square, product, j = 0, 0, 0, 0
        for k in range(p.n_present):
            added = left
            while j < p.last[k]:
                left += p.weight[j] if p.code[j * per + at % per] <= p.code[at] else 0
                j += 1
            added = left - added
            square += added * added
            product += added * <uint16_t> p.total[k]
        p.left_weight[at] = left
        p.left_square[at & 1][at >> 1] = square
        p.right_square[at & 1][at >> 1] = <uint16_t> p.square - 2 * product + square


cdef float _rate_pairs(int per, hf_pairwise* p) noexcept nogil:
    # Writes the rates of all splits, 0 where nothing lies on the right; returns the largest.
    cdef int64_t at
    cdef int32_t left_weight, right_weight
    cdef float rate, most = 0
    for at in range(p.n * per):
        left_weight = p.left_weight[at]
        right_weight = <int32_t> p.all - left_weight
        rate = 0
        if right_weight:
            rate = (
                <float> p.left_square[at & 1][at >> 1] * <float> right_weight
                + <float> p.right_square[at & 1][at >> 1] * <float> left_weight
            ) / (<float> left_weight * <float> right_weight)
        p.rate[at & 1].value[at >> 1] = rate
        most = rate if rate > most else most
    return most


cdef void _sum_values(hf_value_pairs* p) noexcept nogil:
    # As _sum_pairs, of one candidate's codes of 32 bits.
    cdef int64_t i, j, k
    cdef uint32_t left, added, square, product
    for i in range(p.n):
        left, square, product, j = 0, 0, 0, 0
        for k in range(p.n_present):
            added = left
            while j < p.last[k]:
                left += p.weight[j] if p.code[j] <= p.code[i] else 0
                j += 1
            added = left - added
            square += added * added
            product += added * p.total[k]
        p.splits.left_weight[i], p.splits.left_square[i] = left, square
        p.splits.right_square[i] = p.splits.square - 2 * product + square


cdef void _sum_bins(hf_histogram* h) noexcept nogil:
    # Writes the sums of the split after each bin, from weights counted by class and bin.
    cdef uint32_t left[32]  # HF_HISTOGRAM_CLASSES
    cdef uint32_t weight, square, product, sum
    cdef int64_t k
    cdef int b
    for k in range(h.n_present):
        left[k] = 0
    for b in range(h.n_bins):
        weight = square = product = 0
        for k in range(h.n_present):
            sum = left[k] + h.count[k * h.n_bins + b]
            left[k] = sum
            weight += sum
            square += sum * sum
            product += sum * h.total[k]
        h.splits.left_weight[b], h.splits.left_square[b] = weight, square
        h.splits.right_square[b] = h.splits.square - 2 * product + square


cdef float _rate(int n, hf_splits* s) noexcept nogil:
    # Writes the rates of n splits, 0 where a side is empty; returns the largest.
    cdef int i
    cdef int32_t left_weight, right_weight
    cdef float rate, most = 0
    for i in range(n):
        left_weight = <int32_t> s.left_weight[i]
        right_weight = <int32_t> s.all - left_weight
        rate = 0
        if left_weight and right_weight:
            rate = (
                <float> <int32_t> s.left_square[i] * <float> right_weight
                + <float> <int32_t> s.right_square[i] * <float> left_weight
            ) / (<float> left_weight * <float> right_weight)
        s.rate.value[i] = rate
        most = rate if rate > most else most
    return most


cdef void _find_range(const int32_t* code, int64_t n, int32_t* range_) noexcept nogil:
    # Writes the least and the greatest of n codes.
    cdef int64_t i
    range_[0] = range_[1] = code[0]
    for i in range(n):
        range_[0] = min(range_[0], code[i])
        range_[1] = max(range_[1], code[i])


cdef inline float _real(const hf_buckets* s, int32_t code) noexcept nogil:
    # Returns the value of a code.
    return <float> code if s.whole else hf_float_of_code(code)


cdef void _fill_buckets(
    const hf_buckets* s, const int32_t* code, int64_t n, uint8_t* bucket
) noexcept nogil:
    # Writes the places of n codes' buckets.
    cdef int64_t i
    cdef int c
    for i in range(n):
        c = <int> ((_real(s, code[i]) - s.least) * s.scale)
        if not s.exact:
            c += (code[i] >= s.usual) + (code[i] > s.usual)
        bucket[i] = <uint8_t> c


cdef void _sum_buckets(hf_buckets* s) noexcept nogil:
    # Counts the bucket s.own, adds up s.count over the buckets up to each, and writes the sums of the splits
    # after them, and the two largest weights of a class in each bucket.
    cdef int size = 1 << s.log_steps, b
    cdef uint32_t sum, rest, here
    cdef uint32_t* count
    cdef int64_t k
    for b in range(size):
        s.splits.left_weight[b] = s.splits.left_square[b] = s.splits.right_square[b] = 0
        s.inside[b] = s.second[b] = 0
    for k in range(s.n_present):
        count = s.count + k * size
        sum = 0
        for b in range(size):
            sum += count[b]
        count[s.own] = s.total[k] - sum
        sum = 0
        for b in range(size):
            here = count[b]
            sum += here
            count[b] = sum
            rest = s.total[k] - sum
            s.splits.left_weight[b] += sum
            s.splits.left_square[b] += sum * sum
            s.splits.right_square[b] += rest * rest
            if here > s.inside[b]:
                s.inside[b], s.second[b] = here, s.inside[b]
            elif here > s.second[b]:
                s.second[b] = here


cdef float _bound(hf_buckets* s, int b) noexcept nogil:
    # Returns what a split in bucket b scores at most: the second bound that bounds.pyx derives.
    cdef int size = 1 << s.log_steps
    cdef uint32_t left_weight = s.splits.left_weight[b - 1] if b else 0
    cdef float before = <float> left_weight, after = <float> (s.splits.all - s.splits.left_weight[b])
    cdef float w = <float> (s.splits.left_weight[b] - left_weight), largest = <float> s.inside[b]
    cdef float left_square = <float> (s.splits.left_square[b - 1] if b else 0)
    cdef float left_share = -1, right_share = -1, left_twice = 0, right_twice = 0, bound = 0
    cdef float gain = w * <float> 1e-5, left, to_left, to_right
    cdef int64_t k
    if before > 0:
        bound += left_square / before
        left_share, left_twice = left_square / before / before, 2 / before
        bound += w * (largest + w * left_share) / (before + w)
    if after > 0:
        bound += <float> s.splits.right_square[b] / after
        right_share, right_twice = <float> s.splits.right_square[b] / after / after, 2 / after
        bound += w * (largest + w * right_share) / (after + w)
    for k in range(s.n_present):
        left = <float> (s.count[k * size + b - 1] if b else 0)
        to_left = left * left_twice - left_share
        to_right = <float> (s.total[k] - s.count[k * size + b]) * right_twice - right_share
        gain += (<float> s.count[k * size + b] - left) * (to_left if to_left > to_right else to_right)
    return bound + gain


cdef void _find_alive(hf_buckets* s, float limit) noexcept nogil:
    # Writes to s.alive in which buckets a split may score `limit` or more.
    cdef int b
    cdef uint32_t before, before_square
    cdef float apart
    for b in range(1 << s.log_steps):
        before = s.splits.left_weight[b - 1] if b else 0
        before_square = s.splits.left_square[b - 1] if b else 0
        apart = 0
        if before:
            apart += <float> before_square / <float> before
        if s.splits.all - s.splits.left_weight[b]:
            apart += <float> s.splits.right_square[b] / <float> (s.splits.all - s.splits.left_weight[b])
        s.alive[b] = (
            s.splits.left_weight[b] != before and apart + <float> (s.inside[b] + s.second[b]) >= limit
            and _bound(s, b) >= limit
        )


# The plain path scores no bins pairwise (scorers.pxd): the first two say what the vector bodies compute.
plain.log_lanes = 0
plain.sum_pairs, plain.rate_pairs, plain.sum_values = _sum_pairs, _rate_pairs, _sum_values
plain.sum_bins, plain.rate, plain.find_range = _sum_bins, _rate, _find_range
plain.fill_buckets = _fill_buckets
plain.sum_buckets, plain.find_alive = _sum_buckets, _find_alive
