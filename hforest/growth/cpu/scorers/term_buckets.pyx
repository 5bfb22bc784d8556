"""The histogram scorer with bounds of terms: 32-bit bins, targets, and real weights by Gini.

The range of a candidate's bins is divided into buckets, as in bounds.pyx. With d = q - mean u, the vector of
a sample over the targets or classes, a split with the sum D of d on its left gains |D|**2 U / (u (U - u)),
and is scored between buckets from their sums. Inside a bucket with sums D before it and D' after it, and with
a the sum of its |d|,

    |D of the split| <= (|D| + |D'| + a) / 2

since both ways from the split to the ends of the bucket have the length a together; u (U - u) is at least the
smaller of those before and after the bucket. If a side of the split lies inside the bucket, its |D| is also
at most u m, with m the greatest |d| / u of a sample. Samples in buckets that may hold a better split than the
best so far are sorted and scanned. term_cells.h derives the margins for rounding.

Cost: (n + buckets) * outputs / lanes per candidate, and sorting the samples in the buckets that stay alive.
"""

from libc.float cimport DBL_MAX
from libc.math cimport INFINITY, fabs, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from hforest.growth.cpu.scorers.bodies cimport bucket_of, hf_buckets, hf_gains, place_of
from hforest.growth.cpu.scorers.bounds cimport divide
from hforest.growth.cpu.scorers.node_scorer cimport hf_scorer, take_split
from hforest.growth.cpu.scorers.table cimport has_least
from hforest.growth.cpu.scorers.sorted_scan cimport score_sorted, sort_keys
from hforest.growth.cpu.task cimport (
    HF_COUNT, class_of, hf_split, hf_task, hf_term, hf_weighed, hf_workspace, is_pair,
)
from hforest.growth.cpu.scorers.terms cimport (
    HF_DISTANCE_ERROR, HF_GAIN_ERROR, HF_SCORE_ERROR, bound_of, is_better, move_pair, move_sample,
    start_sums,
)

cdef extern from "growth/cpu/scorers/term_cells.h" nogil:
    void hf_add_weighed(void* cell, const hf_weighed* term)

cdef enum:
    HEAD = 4   # numbers of a cell before the sums of several outputs: those of hf_weighed

cdef double COARSE = 4096  # unit of hf_weighed.distance: sums over all samples and outputs are below 2**63
cdef uint32_t SIGN = <uint32_t> 1 << 31


cdef inline int64_t _n_sums(const hf_task* t) noexcept nogil:
    # Returns the number of sums of a cell besides those of hf_weighed.
    return 0 if is_pair(t) else t.n_outputs


cdef inline int _n_buckets(const hf_buckets* s) noexcept nogil:
    return 1 << (s.log_steps + s.log_lanes)


cdef inline hf_weighed* _cell_at(const hf_task* t, const hf_workspace* r, int place) noexcept nogil:
    # Returns the cell of the bucket at a place.
    return <hf_weighed*> (r.cells.number + place * (HEAD + _n_sums(t)))


cdef inline int64_t* _sums_of(hf_weighed* cell) noexcept nogil:
    return <int64_t*> cell + HEAD


cdef double _distance(const hf_task* t, const hf_workspace* r, int64_t i, double norm) noexcept nogil:
    # Returns |d| of sample i of the tree.
    #
    # norm  IN  |mean|**2
    cdef double u = <double> r.term[i].u
    if is_pair(t):
        return fabs(<double> r.term[i].q - r.mean[0] * u)
    if t.labels != NULL:
        return u * sqrt(fabs(1 - 2 * r.mean[class_of(t, r, i)] + norm))
    return sqrt(r.bodies.distances(r.q + r.payload[i] * t.n_outputs, r.mean, u, t.n_outputs))


cdef void start_term_buckets(const hf_task* t, hf_workspace* r, hf_scorer* scorer, bint whole) noexcept nogil:
    # Writes the distances of the samples of the node.
    cdef hf_buckets* s = &scorer.buckets
    cdef const hf_term* term = r.term + scorer.node.first
    cdef double d, most = 0, norm = 0
    cdef int64_t i, k
    s.n, s.whole, s.log_lanes = scorer.node.last - scorer.node.first, whole, r.bodies.log_lanes
    for k in range(t.n_outputs if t.labels != NULL and not is_pair(t) else 0):
        norm += r.mean[k] * r.mean[k]
    for i in range(s.n):
        d = _distance(t, r, scorer.node.first + i, norm) * HF_GAIN_ERROR + HF_DISTANCE_ERROR
        r.weighed[i].q, r.weighed[i].u, r.weighed[i].n = term[i].q, term[i].u, 1
        r.weighed[i].distance = <int64_t> (d / COARSE) + 1
        most = max(most, d / <double> term[i].u)
    r.farthest = most


cdef void _sum_buckets(
    const hf_task* t, hf_workspace* r, const hf_buckets* s, int64_t first
) noexcept nogil:
    # Adds the samples of the node, whose first one is number `first` of the tree, to the cells.
    cdef int64_t i, K = _n_sums(t)
    cdef int64_t* sums
    for i in range(s.n):
        hf_add_weighed(_cell_at(t, r, r.bucket[i]), r.weighed + i)
    for i in range(s.n if K else 0):
        sums = _sums_of(_cell_at(t, r, r.bucket[i]))
        if t.labels != NULL:
            sums[class_of(t, r, first + i)] += r.weighed[i].u
        else:
            r.bodies.add_row(sums, r.q + r.payload[first + i] * K, K)


cdef void _fill_gains(
    const hf_task* t, hf_workspace* r, const hf_buckets* s, hf_gains* g, int* first, int* last
) noexcept nogil:
    # Writes the lengths and products of the splits after the buckets, and the first and the last bucket with
    # samples.
    cdef hf_weighed* cell
    cdef int64_t u = 0, q = 0, K = _n_sums(t), all = r.total_u
    cdef int c, own = -1 if s.exact else bucket_of(s, s.usual)
    memset(r.sum, 0, K * sizeof(int64_t))
    g.length[0] = g.product[0] = 0
    first[0], last[0] = -1, 0
    for c in range(_n_buckets(s)):
        cell = _cell_at(t, r, place_of(s, c))
        g.length[c + 1], g.product[c + 1], g.path[c] = g.length[c], g.product[c], -INFINITY
        if cell.n == 0:
            continue
        first[0], last[0] = c if first[0] < 0 else first[0], c
        u += cell.u
        if cell.n > 1 and c != own and not s.exact:
            g.path[c] = <double> cell.distance * (COARSE * HF_GAIN_ERROR) + 2 * HF_DISTANCE_ERROR
        if u == all:
            g.length[c + 1] = g.product[c + 1] = 0
            continue
        if K:
            r.bodies.add_row(r.sum, _sums_of(cell), K)
            g.length[c + 1] = sqrt(r.bodies.distances(r.sum, r.mean, <double> u, K))
        else:
            q += cell.q
            g.length[c + 1] = fabs(<double> q - r.mean[0] * <double> u) + HF_DISTANCE_ERROR
        g.product[c + 1] = <double> u * <double> (all - u)


cdef bint _find_alive(
    const hf_task* t, hf_workspace* r, const hf_buckets* s, hf_gains* g, double* bound
) noexcept nogil:
    # Marks the buckets in which or after which a split may gain more than `bound`, which is raised to what a
    # split between buckets gains at least; returns whether there is one.
    cdef double total = <double> r.total_u * HF_GAIN_ERROR, most, far
    cdef int64_t any_alive = 0, K = _n_sums(t), u
    cdef int first, last, end, c
    _fill_gains(t, r, s, g, &first, &last)
    if not (s.exact or has_least(t)):
        most = r.bodies.greatest_gain(g, (2 + K) * HF_DISTANCE_ERROR, _n_buckets(s))
        most *= <double> r.total_u / HF_GAIN_ERROR
        if t.labels != NULL:
            most -= 2 * total * HF_SCORE_ERROR
        bound[0] = max(bound[0], most)
    bound[0] = max(bound[0], -DBL_MAX)
    r.bodies.mark_gains(g, total, bound[0], _n_buckets(s))
    for end in range(2):
        c = last if end else first
        far = (g.length[c] + g.length[c + 1] + g.path[c]) / 2
        u = r.total_u - _cell_at(t, r, place_of(s, c)).u
        if first < last and not far * r.farthest * total > bound[0] * <double> u:
            g.alive[c] &= 2
    for c in range(_n_buckets(s)):
        any_alive |= g.alive[c]
    return any_alive != 0


cdef uint64_t* _sort_alive(
    const hf_task* t, hf_workspace* r, const int32_t* bin, const hf_buckets* s, const hf_gains* g
) noexcept nogil:
    # Returns the sorted keys of the samples in buckets that are alive.
    cdef uint64_t* key = <uint64_t*> r.key
    cdef uint32_t ordered, lowest = <uint32_t> -1, highest = 0
    cdef uint8_t[256] inside
    cdef int64_t i, n = 0
    cdef int c
    for c in range(_n_buckets(s)):
        inside[place_of(s, c)] = g.alive[c] & 1
    for i in range(s.n):
        key[n] = <uint64_t> (<uint32_t> bin[i] ^ SIGN) << 32 | <uint32_t> i
        n += inside[r.bucket[i]]
    for i in range(n):
        ordered = <uint32_t> (key[i] >> 32)
        lowest, highest = min(lowest, ordered), max(highest, ordered)
    return key if n == 0 else sort_keys(key, <uint64_t*> r.key2, n, lowest, highest, t.watch)


cdef bint _scan(
    const hf_task* t, hf_workspace* r, hf_scorer* scorer, const int32_t* bin, const hf_gains* g, double bound,
    hf_split* best
) noexcept nogil:
    # Writes the best split inside or after the buckets that are alive, in the order of bins.
    cdef hf_buckets* s = &scorer.buckets
    cdef hf_weighed* cell
    cdef const uint64_t* key = _sort_alive(t, r, bin, s, g)
    cdef int64_t i, u = 0, n = 0, last, K = _n_sums(t)
    cdef int32_t low = 0
    cdef int c, after = -1
    cdef bint found = False
    start_sums(t, r)
    for c in range(_n_buckets(s)):
        cell = _cell_at(t, r, place_of(s, c))
        if cell.n == 0:
            continue
        last = n + cell.n
        if g.alive[c] & 1:
            for i in range(cell.n):
                u += move_sample(t, r, scorer.node.first + <uint32_t> key[i], 1)
                n += 1
                if n == last or key[i] >> 32 == key[i + 1] >> 32 or n < t.min_leaf or s.n - n < t.min_leaf:
                    continue
                if is_better(t, r, u, &bound, best):
                    after, found = -1, True
                    low = <int32_t> (<uint32_t> (key[i] >> 32) ^ SIGN)
            key += cell.n
        else:
            if K:
                r.bodies.add_row(r.sum, _sums_of(cell), K)
            else:
                move_pair(t, r, cell.q, cell.u)
            u += cell.u
        n = last
        if not g.alive[c] & 2 or n == s.n or n < t.min_leaf or s.n - n < t.min_leaf:
            continue
        if is_better(t, r, u, &bound, best):
            after, found = place_of(s, c), True
    if not found:
        return False
    if after >= 0:
        low = -0x7fffffff - 1
        for i in range(s.n):
            if r.bucket[i] == after:
                low = max(low, bin[i])
    take_split(scorer, bin, best.score, low, best)
    return True


cdef bint score_term_buckets(
    const hf_task* t, hf_workspace* r, hf_scorer* scorer, const int32_t* bin, hf_split* best
) noexcept nogil:
    # Bins that no buckets divide are sorted.
    cdef hf_buckets* s = &scorer.buckets
    cdef int64_t n_numbers
    cdef int divided = divide(r.bodies, s, bin)
    cdef double bound = bound_of(t, r, best.score)
    cdef hf_gains g
    cdef bint found
    if divided == 0:
        return False
    n_numbers = _n_buckets(s) * (HEAD + _n_sums(t))
    if divided < 0 or n_numbers > r.cells.n_bins * r.cells.width:
        return score_sorted(t, r, scorer, bin, best)
    HF_COUNT(b"growth", b"term_buckets")
    r.bodies.fill_buckets(s, bin, s.n, r.bucket)
    _sum_buckets(t, r, s, scorer.node.first)
    found = _find_alive(t, r, s, &g, &bound) and _scan(t, r, scorer, bin, &g, bound, best)
    memset(r.cells.number, 0, n_numbers * sizeof(int64_t))
    return found
