"""The histogram scorer of nodes whose weight is too large for sums of 32 bits.

The same as bounds.pyx, which derives the bounds, with sums in float64: whole numbers, exact below 2**53. The
buckets are few beside the samples of such a node, so that there are no vector bodies but the one that finds a
sample's bucket.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memset

from hforest.growth.bodies cimport bodies_of
from hforest.growth.bounds cimport (
    bucket_of, confirm_alive, count_codes, divide, hf_codes, hf_sums, place_of, start_buckets,
)
from hforest.growth.task cimport HF_COUNT, hf_pending, hf_task, hf_workspace

cdef double ROUNDED = 0.999999999   # what rounding may hide of a bound, and more


cdef bint start_wide(
    const hf_task* t, hf_workspace* r, hf_codes* codes, const hf_pending* node, double weight, bint whole,
    hf_wide* w
) noexcept nogil:
    # As start_buckets.
    cdef int64_t k
    if not start_buckets(t, r, codes, node, weight, whole, &w.buckets):
        return False
    w.all, w.square = weight, 0
    for k in range(w.buckets.n_present):
        w.square += <double> w.buckets.total[k] * w.buckets.total[k]
    return True


cdef inline double _share(double square, double weight) noexcept nogil:
    # Returns g, 0 of nothing.
    return square / weight if weight > 0 else 0


cdef void _sum_up(hf_wide* w, int size) noexcept nogil:
    # Counts the bucket s.own, adds up the counts over the buckets up to each, and writes sums and scores of
    # the splits after them, and the two largest weights of a class in each bucket.
    cdef hf_buckets* s = &w.buckets
    cdef uint32_t sums[32]  # HF_HISTOGRAM_CLASSES
    cdef uint32_t here
    cdef double rest
    cdef int64_t k
    cdef int c, i
    for k in range(s.n_present):
        here = s.total[k]
        for i in range(size):
            here -= s.count[k * size + i]
        s.count[k * size + s.own] = here
    memset(sums, 0, sizeof(sums))
    for c in range(size):
        i = place_of(s, c)
        w.left_weight[c] = w.left_square[c] = w.right_square[c] = 0
        s.inside[i] = s.second[i] = 0
        for k in range(s.n_present):
            here = s.count[k * size + i]
            sums[k] += here
            s.count[k * size + i] = sums[k]
            rest = <double> (s.total[k] - sums[k])
            w.left_weight[c] += sums[k]
            w.left_square[c] += <double> sums[k] * sums[k]
            w.right_square[c] += rest * rest
            if here > s.inside[i]:
                s.inside[i], s.second[i] = here, s.inside[i]
            elif here > s.second[i]:
                s.second[i] = here
        w.score[c] = 0
        if 0 < w.left_weight[c] < w.all:
            w.score[c] = w.left_square[c] / w.left_weight[c] + w.right_square[c] / (w.all - w.left_weight[c])


cdef double _bound(const hf_wide* w, int c, int size) noexcept nogil:
    # Returns what a split in bucket c scores at most.
    cdef const hf_buckets* s = &w.buckets
    cdef int i = place_of(s, c), before = place_of(s, c - 1) if c else 0
    cdef double left = w.left_weight[c - 1] if c else 0, right = w.all - w.left_weight[c]
    cdef double g_left = _share(w.left_square[c - 1] if c else 0, left)
    cdef double g_right = _share(w.right_square[c], right)
    cdef double here = w.left_weight[c] - left, largest = s.inside[i], gain = 0, to_left, to_right
    cdef double left_share = g_left / left if left > 0 else -1
    cdef double left_twice = 2 / left if left > 0 else 0
    cdef double right_share = g_right / right if right > 0 else -1
    cdef double right_twice = 2 / right if right > 0 else 0
    cdef uint32_t below
    cdef int64_t k
    if left > 0:
        gain += here * (largest + here * left_share) / (left + here)
    if right > 0:
        gain += here * (largest + here * right_share) / (right + here)
    for k in range(s.n_present):
        below = s.count[k * size + before] if c else 0
        to_left = below * left_twice - left_share
        to_right = (s.total[k] - s.count[k * size + i]) * right_twice - right_share
        gain += (s.count[k * size + i] - below) * max(to_left, to_right)
    return g_left + g_right + min(gain, largest + s.second[i])


cdef bint _confirm_exact(const hf_wide* w, int size, double* best, int32_t* low) noexcept nogil:
    # Takes the best split where each bucket holds one value.
    cdef int c
    cdef bint found = False
    for c in range(size):
        if w.score[c] > best[0]:
            best[0], low[0] = w.score[c], w.buckets.lowest + c
            found = True
    return found


cdef hf_sums _sums_before(const void* scorer, int bucket) noexcept nogil:
    cdef const hf_wide* w = <const hf_wide*> scorer
    cdef hf_sums sums
    sums.left_square, sums.right_square, sums.left_weight, sums.right_weight = 0, w.square, 0, w.all
    if bucket:
        sums.left_square, sums.right_square = w.left_square[bucket - 1], w.right_square[bucket - 1]
        sums.left_weight = w.left_weight[bucket - 1]
        sums.right_weight = w.all - sums.left_weight
    return sums


cdef int score_wide(
    const hf_task* t, hf_workspace* r, const hf_codes* codes, const int32_t* code, hf_wide* w, double* best,
    int32_t* low
) noexcept nogil:
    # As score_buckets.
    cdef hf_buckets* s = &w.buckets
    cdef int divided = divide(bodies_of(t.path), s, code), size, own, c
    cdef bint any_alive = False
    cdef double limit = best[0]
    if divided <= 0:
        return divided
    size = count_codes(bodies_of(t.path), r, codes, code, s)
    _sum_up(w, size)
    if s.exact:
        HF_COUNT(b"growth", b"wide_exact_histogram")
        return _confirm_exact(w, size, best, low)
    HF_COUNT(b"growth", b"wide_bounds")
    own = bucket_of(s, s.usual)
    for c in range(size):
        limit = max(limit, w.score[c])
    limit *= ROUNDED
    for c in range(size):
        if c == own:  # there is one split, after it
            s.alive[place_of(s, c)] = 0 < w.score[c] >= limit
        else:
            s.alive[place_of(s, c)] = (
                w.left_weight[c] > (w.left_weight[c - 1] if c else 0) and _bound(w, c, size) >= limit
            )
        any_alive |= s.alive[place_of(s, c)]
    return any_alive and confirm_alive(t, r, codes, code, s, own, _sums_before, w, best, low)
