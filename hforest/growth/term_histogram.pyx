"""The histogram scorer of terms: targets, real weights, entropy, and leaves of a minimum size.

Terms are summed by bin, and all splits between the bins of the node are scored from running sums. Cells are 0
between two candidates: the scan clears those that it reads.

    cells of one target           | q u | q u | ...                      16 bytes per bin
    cells of several, of labels   | sums by output or class, u, n | ...  n: number of samples

Cost: n + bins of the node, times the numbers of a cell, per candidate.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from hforest.core.arena cimport hf_arena, take, take_zeros
from hforest.core.machine cimport hf_stopped_after
from hforest.core.score cimport hf_beats
from hforest.growth.columns cimport bins_at
from hforest.growth.sorted_scan cimport HF_FEW, score_few, score_sorted
from hforest.growth.task cimport HF_COUNT, hf_cells, hf_term
from hforest.growth.terms cimport may_gain, move_class, score_of_sums, start_sums

cdef extern from "growth/term_cells.h" nogil:
    void hf_add_term(hf_term* cell, const hf_term* term)

cdef extern from * nogil:
    int __builtin_ctzll(unsigned long long a)

cdef enum:
    BYTES = 256            # bins of a byte
    TOGETHER = 4           # candidates that are summed together
    MAX_NUMBERS = 1 << 21  # numbers of all cells, at most, if they are more than those of bytes
    SPARSE = 16            # bins per sample up to which a histogram is cheaper than sorting
    NEAR = 1 << 26         # bins that are ordered by comparisons, at most
    MARKED = 4             # bins per sample from which the bins that occur are marked in a bit set

ctypedef fused code_t:
    uint8_t
    int32_t


cdef inline bint _is_single(const hf_task* t) noexcept nogil:
    # Returns whether cells have one target.
    return t.labels == NULL and t.n_outputs == 1 and t.min_leaf <= 1


cdef bint start_cells(const hf_task* t, hf_workspace* r) noexcept nogil:
    # Allocates the workspace of a tree; returns whether there was memory.
    cdef hf_arena* arena = &r.arena
    cdef hf_cells* a = &r.cells
    a.width = 2 if _is_single(t) else t.n_outputs + 2
    a.n_bins = max(TOGETHER * BYTES, min(r.n, MAX_NUMBERS // a.width))
    a.number = <int64_t*> take_zeros(arena, a.n_bins * a.width * 8)
    a.present = <int32_t*> take(arena, a.n_bins * 4)
    a.mark = <uint64_t*> take_zeros(arena, (a.n_bins // 64 + 1) * 8)
    return not arena.failed


# --------------------------------------------------------------------------------------------------- sums

cdef inline int64_t _at(const code_t* bin, const uint32_t* place, int64_t i, int32_t lowest) noexcept nogil:
    return bin[place[i]] if code_t is uint8_t else bin[i] - lowest


cdef inline void _add(
    const hf_task* t, const hf_workspace* r, const hf_pending* node, const code_t* bin, const uint32_t* place,
    int32_t lowest, bint marks
) noexcept nogil:
    # Adds the samples of a node to the cells of their bins.
    #
    # marks  whether to mark the bins in r.cells.mark
    cdef const hf_cells* a = &r.cells
    cdef const hf_term* term = r.term + node.first
    cdef const int64_t* q
    cdef int64_t i, b, k, K = t.n_outputs, n = node.last - node.first
    cdef int64_t* cell
    if marks:
        for i in range(n):
            b = _at(bin, place, i, lowest)
            a.mark[b >> 6] |= <uint64_t> 1 << (b & 63)
    if _is_single(t):
        for i in range(n):
            hf_add_term(<hf_term*> a.number + _at(bin, place, i, lowest), term + i)
    elif t.labels != NULL:
        for i in range(n):
            cell = a.number + _at(bin, place, i, lowest) * a.width
            cell[term[i].q] += term[i].u
            cell[K] += term[i].u
            cell[K + 1] += 1
    else:
        for i in range(n):
            cell = a.number + _at(bin, place, i, lowest) * a.width
            q = &term[i].q if K == 1 else r.q + r.payload[node.first + i] * K
            for k in range(K):
                cell[k] += q[k]
            cell[K] += term[i].u
            cell[K + 1] += 1


cdef void _add_together(
    const hf_workspace* r, const hf_pending* node, const uint8_t** bin, const uint32_t* place
) noexcept nogil:
    # Adds the samples of a node to the cells of TOGETHER candidates of one target.
    cdef const hf_term* term = r.term + node.first
    cdef const uint8_t* a = bin[0]
    cdef const uint8_t* b = bin[1]
    cdef const uint8_t* c = bin[2]
    cdef const uint8_t* d = bin[3]
    cdef hf_term* cell = <hf_term*> r.cells.number
    cdef int64_t i, s
    for i in range(node.last - node.first):
        s = place[i]
        hf_add_term(cell + a[s], term + i)
        hf_add_term(cell + BYTES + b[s], term + i)
        hf_add_term(cell + 2 * BYTES + c[s], term + i)
        hf_add_term(cell + 3 * BYTES + d[s], term + i)


cdef int64_t _list_marked(const hf_cells* a, int64_t n_bins) noexcept nogil:
    # Writes the marked bins to a.present, ascending, and clears the marks; returns their number.
    cdef int64_t word, count = 0
    cdef uint64_t bits
    for word in range((n_bins + 63) // 64):
        bits = a.mark[word]
        a.mark[word] = 0
        while bits:
            a.present[count] = <int32_t> (64 * word + __builtin_ctzll(bits))
            count += 1
            bits &= bits - 1
    return count


cdef int64_t _list_filled(const hf_cells* a, const int64_t* cell, int64_t n_bins) noexcept nogil:
    # Does the work of _list_marked for bins whose cells are not 0. The last number of a cell is positive then.
    cdef int64_t b, count = 0
    for b in range(n_bins):
        a.present[count] = <int32_t> b
        count += cell[b * a.width + a.width - 1] != 0
    return count


# --------------------------------------------------------------------------------------------------- scan

cdef bint _scan_single(
    const hf_task* t, hf_workspace* r, hf_term* cell, int64_t n_present, hf_split* best
) noexcept nogil:
    # Does the work of _scan for one target.
    cdef const int32_t* present = r.cells.present
    cdef double score
    cdef int64_t i, q = 0, u = 0
    cdef bint is_better = False
    for i in range(n_present - 1):
        q += cell[present[i]].q
        u += cell[present[i]].u
        cell[present[i]].q = cell[present[i]].u = 0
        if not may_gain(r, q, u, best.score):
            continue
        r.sum[0] = q
        score = score_of_sums(t, r, u)
        if hf_beats(score, best.score):
            best.score, is_better = score, True
            best.low, best.high = <uint32_t> present[i], <uint32_t> present[i + 1]
    cell[present[n_present - 1]].q = cell[present[n_present - 1]].u = 0
    return is_better


cdef bint _scan_several(
    const hf_task* t, hf_workspace* r, int64_t* numbers, int64_t n_present, int64_t n, hf_split* best
) noexcept nogil:
    # Does the work of _scan for several targets, for labels, and with a minimum size of leaves.
    cdef const hf_cells* a = &r.cells
    cdef int64_t i, k, u = 0, n_left = 0, K = t.n_outputs
    cdef int64_t* cell
    cdef double score
    cdef bint is_better = False
    start_sums(t, r)
    for i in range(n_present):
        cell = numbers + a.present[i] * a.width
        for k in range(K):
            if t.labels == NULL:
                r.sum[k] += cell[k]
            elif cell[k]:
                move_class(t, r, k, cell[k])
        u += cell[K]
        n_left += cell[K + 1]
        memset(cell, 0, a.width * 8)
        if n_left < t.min_leaf or n - n_left < t.min_leaf or i + 1 == n_present:
            continue
        score = score_of_sums(t, r, u)
        if hf_beats(score, best.score):
            best.score, is_better = score, True
            best.low, best.high = <uint32_t> a.present[i], <uint32_t> a.present[i + 1]
    return is_better


cdef bint _scan(
    const hf_task* t, hf_workspace* r, int64_t* numbers, int64_t n_present, int64_t n, hf_split* best
) noexcept nogil:
    # Writes the best split between the n_present bins in r.cells.present to `best` if it is better; returns
    # whether it is. Clears their cells.
    if _is_single(t):
        return _scan_single(t, r, <hf_term*> numbers, n_present, best)
    return _scan_several(t, r, numbers, n_present, n, best)


# -------------------------------------------------------------------------------------------------- scorers

cdef bint best_of_terms(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, const uint32_t* column,
    int64_t n_candidates, hf_split* best
) noexcept nogil:
    # Writes the best split of the candidates `column` (IN, (n_candidates,)) of 8-bit bins to `best`, if there is
    # one; returns whether a candidate varies in the node.
    cdef const hf_cells* a = &r.cells
    cdef const uint8_t* bin[4]  # TOGETHER
    cdef const uint32_t* sample = r.sample + node.first
    cdef int64_t first, count, i, j, n_present, n = node.last - node.first, n_steps = 0, n_bins = c.n_bins + 1
    cdef int64_t* numbers
    cdef bint marks = n * MARKED < n_bins, varies = False
    cdef int32_t few[32]  # HF_FEW
    cdef int32_t differ
    n_bins = min(n_bins, BYTES)
    if n <= HF_FEW:
        for j in range(n_candidates):
            bin[0] = <const uint8_t*> c.bins + bins_at(c, t, column[j])
            differ = 0
            for i in range(n):
                few[i] = bin[0][sample[i]]
                differ |= few[i] ^ few[0]
            if not differ:
                continue
            varies = True
            if score_few(t, r, node, few, 0, best):
                best.column = column[j]
            if n == 2 and best.column >= 0:  # all splits of two samples have equal scores
                break
        return varies
    HF_COUNT(b"growth", b"term_histogram")
    for first in range(0, n_candidates, 4):
        if hf_stopped_after(t.watch, &n_steps, TOGETHER * n * a.width):
            break
        count = min(TOGETHER, n_candidates - first)
        for j in range(count):
            bin[j] = <const uint8_t*> c.bins + bins_at(c, t, column[first + j])
        if count == TOGETHER and _is_single(t) and not marks:
            _add_together(r, node, bin, sample)
        for j in range(count):
            numbers = a.number
            if count == TOGETHER and _is_single(t) and not marks:
                numbers += j * BYTES * a.width
            else:
                _add(t, r, node, bin[j], sample, 0, marks)
            n_present = _list_marked(a, n_bins) if marks else _list_filled(a, numbers, n_bins)
            varies |= n_present > 1
            if _scan(t, r, numbers, n_present, n, best):
                best.column = column[first + j]
    return varies


cdef bint score_terms(
    const hf_task* t, hf_workspace* r, hf_scorer* scorer, const int32_t* bin, hf_split* best
) noexcept nogil:
    # Bins that are too far apart are sorted.
    cdef const hf_cells* a = &r.cells
    cdef int64_t i, n = scorer.node.last - scorer.node.first, n_bins, n_present
    cdef int32_t lowest = bin[0], highest = bin[0]
    cdef bint marks
    for i in range(n):
        lowest, highest = min(lowest, bin[i]), max(highest, bin[i])
    n_bins = <int64_t> highest - lowest + 1
    if n_bins == 1:
        return False
    if n <= HF_FEW and n_bins < NEAR:
        return score_few(t, r, scorer.node, bin, lowest, best)
    if n_bins > a.n_bins or n_bins > SPARSE * n:
        return score_sorted(t, r, scorer, bin, best)
    HF_COUNT(b"growth", b"term_histogram_of_bins")
    marks = n * MARKED < n_bins
    _add(t, r, scorer.node, bin, NULL, lowest, marks)
    n_present = _list_marked(a, n_bins) if marks else _list_filled(a, a.number, n_bins)
    if not _scan(t, r, a.number, n_present, n, best):
        return False
    best.low, best.high = best.low + lowest, best.high + lowest
    return True
