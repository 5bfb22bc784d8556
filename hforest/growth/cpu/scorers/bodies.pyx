"""The inner loops of the scorers in scalar Cython, and the choice of those of a vector path.

Each function here has vector versions of the same signature and results in simd/; the pairwise scorer of
8-bit bins has only vector versions. Sums are integers; rates are scores in float32. With l the weight of a
class on the left of a split and T the total of the class, sum (T - l)**2 = sum T**2 - 2 sum T l + sum l**2.

Versions: without vectors growing takes 1.2 to 2.3 times as long as with AVX-512, with AVX2 at most 1.2 times
(docs/performance.md; one thread of an AMD EPYC, Zen 5).
"""

from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef extern from "growth/cpu/scorers/term_cells.h" nogil:
    double HF_DISTANCE_ERROR

cdef extern from "growth/cpu/scorers/simd/bodies.h" nogil:
    const hf_bodies* hf_vector_bodies(int path)

cdef hf_bodies plain


cdef const hf_bodies* bodies_of(int path) noexcept nogil:
    cdef const hf_bodies* vector = hf_vector_bodies(path)
    if vector == NULL:
        return &plain
    return vector


cdef void _sum_values(hf_value_pairs* p) noexcept nogil:
    # Writes the sums of the split after each value of one candidate; samples are ordered by class.
    cdef int64_t i, j, k
    cdef uint32_t left, added, square, product
    for i in range(p.n):
        left, square, product, j = 0, 0, 0, 0
        for k in range(p.n_present):
            added = left
            while j < p.last[k]:
                left += p.weight[j] if p.bin[j] <= p.bin[i] else 0
                j += 1
            added = left - added
            square += added * added
            product += added * p.total[k]
        p.splits.left_weight[i], p.splits.left_square[i] = left, square
        p.splits.right_square[i] = p.splits.square - 2 * product + square


cdef void _sum_bins(hf_histogram* h) noexcept nogil:
    # Writes the sums of the split after each bin, from weights by class and bin.
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
    # Writes the rates of n splits, 0 if a side is empty; returns the largest.
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


cdef void _find_range(const int32_t* bin, int64_t n, int32_t* range_) noexcept nogil:
    # Writes the least and the greatest of n bins.
    cdef int64_t i
    range_[0] = range_[1] = bin[0]
    for i in range(n):
        range_[0] = min(range_[0], bin[i])
        range_[1] = max(range_[1], bin[i])


cdef void _fill_buckets(
    const hf_buckets* s, const int32_t* bin, int64_t n, uint8_t* bucket
) noexcept nogil:
    # Writes the places of the buckets of n bins.
    cdef int64_t i
    for i in range(n):
        bucket[i] = <uint8_t> place_of(s, bucket_of(s, bin[i]))


# --------------------------------------------------------------------------------- sums and bounds of buckets

ctypedef fused splits_t:
    hf_splits
    hf_wide_splits


cdef void _add_up(hf_buckets* s, splits_t* splits) noexcept nogil:
    # Computes the counts of the bucket at s.usual_place, replaces s.count by running sums over the buckets,
    # and writes the sums of the splits after each bucket, and the two largest weights of a class in each
    # bucket.
    cdef int size = 1 << (s.log_steps + s.log_lanes), c, i
    cdef uint32_t left[32]  # HF_HISTOGRAM_CLASSES
    cdef uint32_t here, inside, second
    cdef int64_t k, right, left_weight, left_square, right_square
    for k in range(s.n_present):
        here = s.total[k]
        for i in range(size):
            here -= s.count[k * size + i]
        s.count[k * size + s.usual_place] = here
        left[k] = 0
    for c in range(size):
        i = place_of(s, c)
        left_weight = left_square = right_square = 0
        inside = second = 0
        for k in range(s.n_present):
            here = s.count[k * size + i]
            left[k] += here
            s.count[k * size + i] = left[k]
            right = s.total[k] - left[k]
            left_weight += left[k]
            left_square += <int64_t> left[k] * left[k]
            right_square += right * right
            if here > inside:
                inside, second = here, inside
            elif here > second:
                second = here
        splits.left_weight[i], splits.left_square[i] = left_weight, left_square
        splits.right_square[i], s.inside[i], s.second[i] = right_square, inside, second


cdef inline double _share(double square, double weight) noexcept nogil:
    # Returns g of bounds.pyx, 0 for an empty set.
    return square / weight if weight > 0 else 0


cdef bint _may_hold(
    const hf_buckets* s, const splits_t* splits, int i, int before, int size, float limit
) noexcept nogil:
    # Returns whether a split in the bucket at place i, which follows that at place `before` (-1: none), may
    # score `limit` or more.
    cdef double left = splits.left_weight[before] if before >= 0 else 0
    cdef double up_to = splits.left_weight[i], here = up_to - left, right = splits.all - up_to
    cdef double g_left = _share(splits.left_square[before] if before >= 0 else 0, left)
    cdef double g_right = _share(splits.right_square[i], right), most = g_left + g_right
    cdef double largest = s.inside[i]
    cdef double left_share = -1, right_share = -1, left_twice = 0, right_twice = 0, below, to_left, to_right
    cdef int64_t k
    if here == 0 or most + largest + s.second[i] < limit:
        return False
    if left > 0:
        left_share, left_twice = g_left / left, 2 / left
        most += here * (largest + here * left_share) / (left + here)
    if right > 0:
        right_share, right_twice = g_right / right, 2 / right
        most += here * (largest + here * right_share) / (right + here)
    for k in range(s.n_present):
        below = s.count[k * size + before] if before >= 0 else 0
        to_left = below * left_twice - left_share
        to_right = (s.total[k] - s.count[k * size + i]) * right_twice - right_share
        most += (s.count[k * size + i] - below) * (to_left if to_left > to_right else to_right)
    return most >= limit


cdef void _mark_alive(hf_buckets* s, const splits_t* splits, float limit) noexcept nogil:
    # Marks in s.alive the buckets in which a split may score `limit` or more; bounds.pyx derives the bounds.
    cdef int size = 1 << (s.log_steps + s.log_lanes), c, i, before = -1
    for c in range(size):
        i = place_of(s, c)
        s.alive[i] = _may_hold(s, splits, i, before, size, limit)
        before = i


cdef void _sum_buckets(hf_buckets* s) noexcept nogil:
    _add_up(s, &s.splits)


cdef void _find_alive(hf_buckets* s, float limit) noexcept nogil:
    _mark_alive(s, &s.splits, limit)


# Sums in float64 have no vector versions: such nodes have many more samples than buckets.

cdef void _sum_wide_buckets(hf_buckets* s) noexcept nogil:
    # Writes the sums and the rates.
    cdef hf_wide_splits* a = &s.wide
    cdef int i
    _add_up(s, a)
    for i in range(1 << (s.log_steps + s.log_lanes)):
        s.splits.rate.value[i] = 0
        if 0 < a.left_weight[i] < a.all:
            s.splits.rate.value[i] = <float> (
                a.left_square[i] / a.left_weight[i] + a.right_square[i] / (a.all - a.left_weight[i])
            )


cdef float _rate_wide(int n, hf_splits* s) noexcept nogil:
    cdef float most = 0
    cdef int i
    for i in range(n):
        most = s.rate.value[i] if s.rate.value[i] > most else most
    return most


cdef void _find_wide_alive(hf_buckets* s, float limit) noexcept nogil:
    _mark_alive(s, &s.wide, limit)


# ------------------------------------------------------------------------------- several targets or classes

cdef void _add_row(int64_t* sum, const int64_t* q, int64_t n) noexcept nogil:
    # Adds n numbers to n sums.
    cdef int64_t k
    for k in range(n):
        sum[k] += q[k]


cdef void _measure_row(
    int64_t* sum, int64_t* least, int64_t* greatest, const int64_t* q, int64_t n
) noexcept nogil:
    # Adds n numbers to n sums, and widens n ranges to them.
    cdef int64_t k
    for k in range(n):
        sum[k] += q[k]
        least[k], greatest[k] = min(least[k], q[k]), max(greatest[k], q[k])


cdef double _distances(const int64_t* sum, const double* mean, double left, int64_t n) noexcept nogil:
    # Returns the sum of (|sum - mean left| + HF_DISTANCE_ERROR)**2 over n outputs: see term_cells.h.
    cdef double total = 0, d
    cdef int64_t k
    for k in range(n):
        d = fabs(<double> sum[k] - mean[k] * left) + HF_DISTANCE_ERROR
        total += d * d
    return total


cdef double _greatest_gain(const hf_gains* g, double margin, int n) noexcept nogil:
    # Returns the greatest square(length - margin) / product of n splits whose product is positive; 0 if
    # there is none.
    cdef double d, most = 0
    cdef int c
    for c in range(1, n + 1):
        d = g.length[c] - margin
        if d > 0 and g.product[c] > 0:
            most = max(most, d * d / g.product[c])
    return most


cdef void _mark_gains(hf_gains* g, double total, double bound, int n) noexcept nogil:
    # Writes whether a split inside (1) and after (2) each of n buckets may gain more than `bound`.
    cdef double far, after
    cdef int c
    for c in range(n):
        far = max((g.length[c] + g.length[c + 1] + g.path[c]) / 2, 0.0)
        after = g.length[c + 1]
        g.alive[c] = far > 0 and far * far * total > bound * min(g.product[c], g.product[c + 1])
        if after * after * total > bound * g.product[c + 1]:
            g.alive[c] |= 2


# ------------------------------------------------------------------------------------------ values of samples

ctypedef fused real:
    float
    double


cdef void _read_lanes_of(real least, hf_lanes* l) noexcept nogil:
    # Reads the values of four candidates, side by side, and their ranges.
    cdef const real* column
    cdef real* value = <real*> l.value
    cdef real greatest
    cdef int64_t i
    cdef int j
    for j in range(4):
        column = <const real*> l.column[j]
        least = greatest = column[l.sample[0] * l.stride]
        for i in range(l.n):
            value[4 * i + j] = column[l.sample[i] * l.stride]
            least = value[4 * i + j] if value[4 * i + j] < least else least
            greatest = value[4 * i + j] if value[4 * i + j] > greatest else greatest
        # -0 becomes 0.
        l.least[j], l.greatest[j] = least + 0.0, greatest + 0.0


cdef void _sum_lanes_of(real threshold, hf_lanes* l) noexcept nogil:
    # Writes the weight of the left side of each candidate, and the sums of the squares of both sides.
    cdef const real* value = <const real*> l.value
    cdef int64_t i, run, added
    cdef double rest
    cdef int j
    for j in range(4):
        threshold = <real> l.threshold[j]
        l.weight[j] = l.left_square[j] = l.right_square[j] = 0
        i = 0
        for run in range(l.n_runs):
            added = 0
            while i < l.last[run]:
                added += l.payload[i] & l.mask if value[4 * i + j] <= threshold else 0
                i += 1
            rest = l.total[run] - <double> added
            l.weight[j] += <double> added
            l.left_square[j] += <double> added * <double> added
            l.right_square[j] += rest * rest


cdef void _count_smaller_of(const real* value, int64_t n, uint32_t* count) noexcept nogil:
    # Writes the number of smaller values of each value.
    cdef int64_t i, j
    cdef uint32_t smaller
    for i in range(n):
        smaller = 0
        for j in range(n):
            smaller += value[j] < value[i]
        count[i] = smaller


cdef void _count_smaller(int single, const void* value, int64_t n, uint32_t* count) noexcept nogil:
    if single:
        _count_smaller_of(<const float*> value, n, count)
    else:
        _count_smaller_of(<const double*> value, n, count)


cdef void _read_lanes(int single, hf_lanes* l) noexcept nogil:
    if single:
        _read_lanes_of[float](0, l)
    else:
        _read_lanes_of[double](0, l)


cdef void _sum_lanes(int single, hf_lanes* l) noexcept nogil:
    if single:
        _sum_lanes_of[float](0, l)
    else:
        _sum_lanes_of[double](0, l)


cdef hf_bodies bodies_of_width(int path, bint is_wide) noexcept nogil:
    cdef hf_bodies bodies = bodies_of(path)[0]
    if is_wide:
        bodies.sum_buckets, bodies.rate, bodies.find_alive = _sum_wide_buckets, _rate_wide, _find_wide_alive
    return bodies


# The plain path never scores 8-bit bins pairwise (table.pxd).
plain.log_lanes = 0
plain.sum_pairs, plain.rate_pairs, plain.sum_values = NULL, NULL, _sum_values
plain.sum_bins, plain.rate, plain.find_range = _sum_bins, _rate, _find_range
plain.fill_buckets = _fill_buckets
plain.sum_buckets, plain.find_alive = _sum_buckets, _find_alive
plain.add_row, plain.measure_row, plain.distances = _add_row, _measure_row, _distances
plain.greatest_gain, plain.mark_gains = _greatest_gain, _mark_gains
plain.read_lanes, plain.sum_lanes, plain.count_smaller = _read_lanes, _sum_lanes, _count_smaller
