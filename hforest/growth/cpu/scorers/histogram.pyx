"""The histogram scorer of 8-bit bins: large nodes, integer weights, Gini.

Weights are summed by class and bin, and all splits are scored from these sums, which are the integers of the
sorted scan. Cost: n + n_bins * n_classes / lanes per candidate.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memset

from hforest.core.machine cimport hf_stopped_after
from hforest.core.score cimport hf_beats
from hforest.growth.cpu.scorers.bodies cimport (
    HF_HISTOGRAM_CLASSES, HF_TILE_CANDIDATES, HF_TILE_SAMPLES, bodies_of, hf_bodies, hf_histogram, score_at,
)
from hforest.growth.cpu.sources.columns cimport bins_at, hf_columns, is_by_rows
from hforest.growth.cpu.node_samples cimport number_classes
from hforest.growth.cpu.task cimport (
    HF_COUNT, hf_pending, hf_split, hf_task, hf_workspace, is_perfect,
)

cdef float NEAR = 0.9995   # see pairwise.pyx


cdef bint _write_slots(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight, int lanes,
    hf_histogram* h
) noexcept nogil:
    # Writes the position of each sample's class in the counts, and its weight, to r.key2; returns False if
    # the node has too many classes.
    cdef int64_t i
    cdef int b, lane, size
    cdef uint32_t* slot = <uint32_t*> r.key2
    h.n_present = number_classes(t, r, HF_HISTOGRAM_CLASSES, h.total, &h.splits.square)
    if h.n_present < 0:
        return False
    h.splits.all, h.n_bins = <uint32_t> weight, <int> c.n_bins
    h.n_steps = (h.n_bins + lanes - 1) // lanes
    size = h.n_steps * lanes
    for lane in range(lanes):
        for b in range(lane * h.n_steps, min((lane + 1) * h.n_steps, h.n_bins)):
            h.place[b] = <uint8_t> ((b - lane * h.n_steps) * lanes + lane)
    for i in range(node.last - node.first):
        slot[i] = (
            r.class_number[r.payload[node.first + i] >> 8] * size << 16 | (r.payload[node.first + i] & 0xff)
        )
    return True


cdef void _read_tiles(
    const hf_columns* c, const uint32_t* sample, int64_t n, const uint32_t* column, int64_t n_candidates,
    hf_histogram* h
) noexcept nogil:
    # Reads the bins of up to HF_TILE_CANDIDATES candidates from the samples' rows.
    cdef int64_t i, j, count = min(n_candidates, HF_TILE_CANDIDATES)
    cdef const uint8_t* row
    for i in range(n):
        row = c.rows + sample[i] * c.n_columns
        for j in range(count):
            h.tile[j][i] = row[column[j]]


cdef void _count(
    const uint8_t** bin, const uint32_t* sample, const uint32_t* slot, int64_t n, hf_histogram* h
) noexcept nogil:
    # Sums the weights of four candidates together: if many samples share a bin, additions of one candidate
    # depend on each other.
    cdef const uint8_t* a = bin[0]
    cdef const uint8_t* b = bin[1]
    cdef const uint8_t* c = bin[2]
    cdef const uint8_t* d = bin[3]
    cdef uint16_t* count_a = h.counts[0]
    cdef uint16_t* count_b = h.counts[1]
    cdef uint16_t* count_c = h.counts[2]
    cdef uint16_t* count_d = h.counts[3]
    cdef uint8_t* place = h.place
    cdef int64_t i, s, at
    cdef uint16_t w
    for i in range(n):
        s, at, w = sample[i], slot[i] >> 16, <uint16_t> slot[i]
        count_a[at + place[a[s]]] += w
        count_b[at + place[b[s]]] += w
        count_c[at + place[c[s]]] += w
        count_d[at + place[d[s]]] += w


cdef bint _is_one_bin(const hf_histogram* h, uint8_t bin, int size) noexcept nogil:
    # Returns whether all samples have this bin.
    cdef int64_t k
    for k in range(h.n_present):
        if h.count[k * size + h.place[bin]] != h.total[k]:
            return False
    return True


cdef void _confirm(const hf_histogram* h, uint32_t column, float most, hf_split* best) noexcept nogil:
    # Writes the best split of a candidate to `best` if it is better.
    cdef float limit = <float> best.score * NEAR if best.score > 0 else 0
    cdef int b, best_bin = -1
    cdef double score
    if not most > limit:
        return
    limit = max(limit, most * NEAR)
    for b in range(h.n_bins):
        if not h.splits.rate.value[h.place[b]] >= limit:
            continue
        score = score_at(&h.splits, h.place[b])
        if hf_beats(score, best.score):
            best.score = score
            best_bin = b
    if best_bin < 0:
        return
    best.column, best.low, best.high = column, best_bin, best_bin
    # The next bin with samples is the first after which the weight on the left is larger.
    while h.splits.left_weight[h.place[best.high]] == h.splits.left_weight[h.place[best_bin]]:
        best.high += 1


cdef bint best_of_histograms(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight,
    const uint32_t* column, int64_t n_candidates, hf_split* best
) noexcept nogil:
    # Does the work of best_pairwise; returns False if the node has too many classes.
    cdef hf_histogram h
    cdef const hf_bodies* bodies = bodies_of(t.path)
    cdef const uint8_t* bin[4]
    cdef const uint32_t* sample = r.sample + node.first
    cdef const uint32_t* place = sample   # position of a sample in the bins of a candidate
    cdef int64_t i, first, number, n = node.last - node.first, n_steps = 0
    cdef int j, lanes = 1 << bodies.log_lanes, size
    cdef bint by_rows = n <= HF_TILE_SAMPLES and is_by_rows(c, t, n)
    if not _write_slots(t, r, c, node, weight, lanes, &h):
        return False
    HF_COUNT(b"growth", b"histogram")
    size = h.n_steps * lanes
    if by_rows:
        place = h.number
        for i in range(n):
            h.number[i] = <uint32_t> i
    for first in range(0, n_candidates, 4):
        if hf_stopped_after(t.watch, &n_steps, 4 * n):
            return True
        if by_rows and first % HF_TILE_CANDIDATES == 0:
            _read_tiles(c, sample, n, column + first, n_candidates - first, &h)
        for j in range(4):
            number = first + j if first + j < n_candidates else first
            if by_rows:
                bin[j] = h.tile[number % HF_TILE_CANDIDATES]
            else:
                bin[j] = <const uint8_t*> c.bins + bins_at(c, t, column[number])
            memset(h.counts[j], 0, h.n_present * size * sizeof(uint16_t))
        _count(bin, place, <uint32_t*> r.key2, n, &h)
        for j in range(<int> min(4, n_candidates - first)):
            h.count = h.counts[j]
            if _is_one_bin(&h, bin[j][0 if by_rows else sample[0]], size):
                continue
            bodies.sum_bins(&h)
            _confirm(&h, column[first + j], bodies.rate(size, &h.splits), best)
            if is_perfect(r, best.score, weight):
                return True
    return True
