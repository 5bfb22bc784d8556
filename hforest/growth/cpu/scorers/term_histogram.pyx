"""The histogram scorer of terms: targets, real weights and entropy.

Terms are summed by bin, and all splits between the bins of the node are scored from running sums. Cells are 0
between two candidates: the scan clears those that it reads.

    one target, two classes   | q u | q u | ...                   or, if leaves have a minimum size, q u n 0
    several targets           | sums of q by output, u, n | ...   n: number of samples
    several classes           | sums of u by class, n | ...

Cost: n + bins of the node, times the numbers of a cell, per candidate.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from hforest.core.arena cimport hf_arena, take, take_zeros
from hforest.core.machine cimport hf_stopped_after
from hforest.core.score cimport HF_ENTROPY, hf_beats
from hforest.growth.cpu.sources.columns cimport bins_at, is_by_rows
from hforest.growth.cpu.sources.node_orders cimport hf_column_workspace
from hforest.growth.cpu.scorers.sorted_scan cimport HF_FEW, score_few
from hforest.growth.cpu.task cimport HF_COUNT, HF_TERMS, class_of, hf_cells, hf_term, is_pair
from hforest.growth.cpu.scorers.terms cimport (
    bound_of, is_better, may_gain, move_class, move_pair, score_of_sums, start_sums,
)

cdef extern from "growth/cpu/scorers/term_cells.h" nogil:
    void hf_add_term(void* cell, const hf_term* term)

cdef enum:
    BYTES = 256            # bins of a byte
    TOGETHER = 4           # candidates that are summed together
    MAX_NUMBERS = 1 << 21  # numbers of all cells, at most: for thousands of classes less than 256 cells
    MAX_KEPT = 24          # nodes that keep histograms, at most: of one target or two classes,
    MAX_COLUMNS = 1 << 8   # in this number of columns, at most: 1 or 2 MB a node,
    MIN_KEPT = 192         # and for this number of samples, at least


cdef inline bint _has_counts(const hf_task* t) noexcept nogil:
    # Returns whether cells of q and u have the number of samples, too.
    return t.min_leaf > 1


cdef bint start_cells(const hf_task* t, hf_workspace* r) noexcept nogil:
    # Allocates the workspace of a tree; returns whether there was memory.
    cdef hf_arena* arena = &r.arena
    cdef hf_cells* a = &r.cells
    a.width = t.n_outputs + (2 if t.labels == NULL else 1)
    a.filled = a.width - 1
    if is_pair(t):
        a.width, a.filled = 4 if _has_counts(t) else 2, 1
    a.n_bins = min(TOGETHER * BYTES, MAX_NUMBERS // a.width)
    a.number = <int64_t*> take_zeros(arena, a.n_bins * a.width * 8)
    a.present = <int32_t*> take(arena, a.n_bins * 4)
    return not arena.failed


# --------------------------------------------------------------------------------------------------- sums

cdef inline void _add(
    const hf_task* t, const hf_workspace* r, const hf_pending* node, const uint8_t* bin, int64_t stride
) noexcept nogil:
    # Adds the samples of a node to the cells of their bins.
    #
    # stride  IN  from the bin of a sample to that of the next
    cdef const hf_cells* a = &r.cells
    cdef const hf_term* term = r.term + node.first
    cdef const uint32_t* sample = r.sample + node.first
    cdef int64_t i, K = t.n_outputs, n = node.last - node.first
    cdef int64_t* cell
    if is_pair(t):
        for i in range(n):
            cell = a.number + bin[sample[i] * stride] * a.width
            hf_add_term(cell, term + i)
            if _has_counts(t):
                cell[2] += 1
    elif t.labels != NULL:
        for i in range(n):
            cell = a.number + bin[sample[i] * stride] * a.width
            cell[class_of(t, r, node.first + i)] += term[i].u
            cell[K] += 1
    else:
        for i in range(n):
            cell = a.number + bin[sample[i] * stride] * a.width
            r.bodies.add_row(cell, r.q + r.payload[node.first + i] * K, K)
            cell[K] += term[i].u
            cell[K + 1] += 1


cdef inline void _add_to(int64_t* cell, uint8_t bin, const hf_term* term, int width) noexcept nogil:
    # Adds a sample to the cell of its bin. `width`, of a cell, is a constant in each call.
    hf_add_term(cell + bin * width, term)
    if width == 4:
        cell[bin * width + 2] += 1


cdef inline void _add_four(
    const hf_workspace* r, const hf_pending* node, const uint8_t** bin, int64_t stride, int64_t* cell,
    int width
) noexcept nogil:
    cdef const hf_term* term = r.term + node.first
    cdef const uint32_t* sample = r.sample + node.first
    cdef const uint8_t* a = bin[0]
    cdef const uint8_t* b = bin[1]
    cdef const uint8_t* c = bin[2]
    cdef const uint8_t* d = bin[3]
    cdef int64_t i, s
    for i in range(node.last - node.first):
        s = sample[i] * stride
        _add_to(cell, a[s], term + i, width)
        _add_to(cell + BYTES * width, b[s], term + i, width)
        _add_to(cell + 2 * BYTES * width, c[s], term + i, width)
        _add_to(cell + 3 * BYTES * width, d[s], term + i, width)


cdef void _add_together(
    const hf_workspace* r, const hf_pending* node, const uint8_t** bin, int64_t stride, int64_t* cell
) noexcept nogil:
    # Adds the samples of a node to the cells of q and u, BYTES each, of TOGETHER candidates.
    #
    # stride  IN  from the bin of a sample to that of the next
    if r.cells.width == 2:
        _add_four(r, node, bin, stride, cell, 2)
    else:
        _add_four(r, node, bin, stride, cell, 4)


cdef int64_t _list_filled(const hf_cells* a, const int64_t* cell, int64_t n_bins) noexcept nogil:
    # Writes the bins that occur to a.present, ascending; returns their number.
    cdef int64_t b, count = 0
    for b in range(n_bins):
        a.present[count] = <int32_t> b
        count += cell[b * a.width + a.filled] != 0
    return count


# --------------------------------------------------------------------------------------------------- scan

cdef inline bint _scan_cells(
    const hf_task* t, hf_workspace* r, int64_t* numbers, int64_t n_present, int64_t n, int width, bint clears,
    hf_split* best
) noexcept nogil:
    cdef const int32_t* present = r.cells.present
    cdef double mean = r.mean[0], total = <double> r.total_u, bound = bound_of(t, r, best.score), score
    cdef int64_t i, q = 0, u = 0, q_moved = 0, u_moved = 0, all = r.total_u, n_left = 0
    cdef int64_t* cell
    cdef bint found = False
    start_sums(t, r)
    for i in range(n_present):
        cell = numbers + present[i] * width
        q += cell[0]
        u += cell[1]
        if width == 4:
            n_left += cell[2]
        if clears:
            memset(cell, 0, width * 8)
        if i + 1 == n_present or not may_gain(mean, total, all, q, u, bound):
            continue
        if width == 4 and (n_left < t.min_leaf or n - n_left < t.min_leaf):
            continue
        move_pair(t, r, q - q_moved, u - u_moved)
        q_moved, u_moved = q, u
        score = score_of_sums(t, r, u)
        if hf_beats(score, best.score):
            bound, best.score, found = bound_of(t, r, score), score, True
            best.low, best.high = <uint32_t> present[i], <uint32_t> present[i + 1]
    return found


cdef bint _scan_pairs(
    const hf_task* t, hf_workspace* r, int64_t* numbers, int64_t n_present, int64_t n, bint clears,
    hf_split* best
) noexcept nogil:
    # Does the work of _scan for cells of q and u, which it clears on request.
    if r.cells.width == 2:
        return _scan_cells(t, r, numbers, n_present, n, 2, clears, best)
    return _scan_cells(t, r, numbers, n_present, n, 4, clears, best)


cdef bint _scan_several(
    const hf_task* t, hf_workspace* r, int64_t* numbers, int64_t n_present, int64_t n, hf_split* best
) noexcept nogil:
    # Does the work of _scan for several targets or classes.
    cdef const hf_cells* a = &r.cells
    cdef int64_t i, k, u = 0, n_left = 0, K = t.n_outputs, n_steps = 0
    cdef int64_t* cell
    cdef double bound = bound_of(t, r, best.score)
    cdef bint found = False
    start_sums(t, r)
    for i in range(n_present):
        if hf_stopped_after(t.watch, &n_steps, K):
            break
        cell = numbers + a.present[i] * a.width
        if t.criterion == HF_ENTROPY:
            for k in range(K):
                if cell[k]:
                    move_class(t, r, k, cell[k])
        else:
            r.bodies.add_row(r.sum, cell, K)
        if t.labels == NULL:
            u += cell[K]
        else:
            for k in range(K):
                u += cell[k]
        n_left += cell[a.width - 1]
        memset(cell, 0, a.width * 8)
        if n_left < t.min_leaf or n - n_left < t.min_leaf or i + 1 == n_present:
            continue
        if is_better(t, r, u, &bound, best):
            best.low, best.high, found = <uint32_t> a.present[i], <uint32_t> a.present[i + 1], True
    return found


cdef bint _scan(
    const hf_task* t, hf_workspace* r, int64_t* numbers, int64_t n_present, int64_t n, hf_split* best
) noexcept nogil:
    # Writes the best split between the n_present bins in r.cells.present to `best` if it is better; returns
    # whether it is. Clears their cells.
    if is_pair(t):
        return _scan_pairs(t, r, numbers, n_present, n, True, best)
    return _scan_several(t, r, numbers, n_present, n, best)


# --------------------------------------------------------------------------------------- histograms of nodes

# Where all columns are candidates, a node keeps its histograms for its children: the samples of the smaller
# child are summed, and the difference is the histogram of the larger one.

cdef bint start_kept(const hf_task* t, hf_workspace* r, const hf_columns* c) noexcept nogil:
    # Allocates the workspace of a tree on columns c; returns whether there was memory.
    cdef hf_arena* arena = &r.arena
    cdef hf_cells* a = &r.cells
    cdef int i
    if not (r.kind == HF_TERMS and is_pair(t) and c.are_bytes and not t.has_defaults):
        return True
    if t.n_candidates < c.n_columns or c.n_columns > MAX_COLUMNS or c.offset != NULL:
        return True
    a.kept, a.free = <int64_t**> take_zeros(arena, MAX_KEPT * 8), <int*> take(arena, MAX_KEPT * sizeof(int))
    if arena.failed:
        return False
    r.keep, a.n_free = _keep_for_children, MAX_KEPT
    for i in range(MAX_KEPT):
        a.free[i] = MAX_KEPT - 1 - i
    return True


cdef int _take_kept(hf_workspace* r, const hf_columns* c) noexcept nogil:
    # Returns the number of a free buffer, -1 if there is none.
    cdef hf_cells* a = &r.cells
    cdef int number
    if a.n_free == 0:
        return -1
    number = a.free[a.n_free - 1]
    if a.kept[number] == NULL:
        a.kept[number] = <int64_t*> take(&r.arena, c.n_columns * BYTES * a.width * 8)
        if a.kept[number] == NULL:
            return -1
    a.n_free -= 1
    return number


cdef void _sum_columns(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t* cell
) noexcept nogil:
    # Writes the histograms of a node in all columns to cell (n_columns, BYTES, width).
    cdef const uint8_t* bin[4]  # TOGETHER
    cdef int64_t* last = r.cells.number
    cdef int64_t first, j, stride = 1, size = BYTES * r.cells.width, n_steps = 0
    cdef bint by_rows = is_by_rows(c, t, node.last - node.first)
    memset(cell, 0, c.n_columns * size * 8)
    for first in range(0, c.n_columns, 4):
        if hf_stopped_after(t.watch, &n_steps, TOGETHER * (node.last - node.first)):
            return
        for j in range(4):
            bin[j] = <const uint8_t*> c.bins + bins_at(c, t, min(first + j, c.n_columns - 1))
            if by_rows:
                bin[j], stride = c.rows + min(first + j, c.n_columns - 1), c.n_columns
        if first + TOGETHER <= c.n_columns:
            _add_together(r, node, bin, stride, cell + first * size)
            continue
        _add_together(r, node, bin, stride, last)
        memcpy(cell + first * size, last, (c.n_columns - first) * size * 8)
        memset(last, 0, TOGETHER * size * 8)


cdef void _keep_for_children(
    const hf_task* t, hf_workspace* r, int kept, hf_pending* left, hf_pending* right
) noexcept nogil:
    cdef const hf_columns* c = (<hf_column_workspace*> r.columns).columns
    cdef hf_pending* small = left if left.last - left.first <= right.last - right.first else right
    cdef hf_pending* large = right if small == left else left
    cdef int64_t* of_small
    cdef int64_t* of_large = r.cells.kept[kept]
    cdef int64_t e
    if (
        large.last - large.first < MIN_KEPT or large.depth >= t.max_depth or r.n_leaves == r.max_leaves
    ):
        release_kept(r, kept)
        return
    small.kept = _take_kept(r, c)
    if small.kept < 0:
        release_kept(r, kept)
        return
    large.kept, of_small = kept, r.cells.kept[small.kept]
    _sum_columns(t, r, c, small, of_small)
    for e in range(c.n_columns * BYTES * r.cells.width):
        of_large[e] -= of_small[e]


cdef bint _best_of_kept(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, const uint32_t* column,
    int64_t n_candidates, hf_split* best
) noexcept nogil:
    # Does the work of best_of_terms for a node with a histogram.
    cdef int64_t* cell
    cdef int64_t j, n_present, n_bins = min(c.n_bins + 1, BYTES)
    cdef bint varies = False
    HF_COUNT(b"growth", b"kept_histogram")
    for j in range(n_candidates):
        cell = r.cells.kept[node.kept] + column[j] * BYTES * r.cells.width
        n_present = _list_filled(&r.cells, cell, n_bins)
        varies |= n_present > 1
        if _scan_pairs(t, r, cell, n_present, node.last - node.first, False, best):
            best.column = column[j]
    return varies


# -------------------------------------------------------------------------------------------------- scorers

cdef bint best_of_terms(
    const hf_task* t, hf_workspace* r, const hf_columns* c, hf_pending* node, const uint32_t* column,
    int64_t n_candidates, hf_split* best
) noexcept nogil:
    # Writes the best split of the candidates `column` (IN, (n_candidates,)) of 8-bit bins to `best`, if there
    # is one; returns whether a candidate varies in the node.
    cdef const hf_cells* a = &r.cells
    cdef const uint8_t* bin[4]  # TOGETHER
    cdef const uint32_t* sample = r.sample + node.first
    cdef int64_t first, count, i, j, n_present, n = node.last - node.first, n_steps = 0, n_bins = c.n_bins + 1
    cdef int64_t* numbers
    cdef int64_t stride = 1
    cdef bint by_rows = is_by_rows(c, t, n), varies = False
    cdef int32_t few[32]  # HF_FEW
    cdef int32_t differ
    n_bins = min(n_bins, BYTES)
    if r.keep != NULL and node.kept < 0 and n >= MIN_KEPT:
        node.kept = _take_kept(r, c)
        if node.kept >= 0:
            _sum_columns(t, r, c, node, r.cells.kept[node.kept])
    if node.kept >= 0:
        return _best_of_kept(t, r, c, node, column, n_candidates, best)
    if n <= HF_FEW:
        for j in range(n_candidates):
            bin[0] = <const uint8_t*> c.bins + bins_at(c, t, column[j])
            if by_rows:
                bin[0], stride = c.rows + column[j], c.n_columns
            differ = 0
            for i in range(n):
                few[i] = bin[0][sample[i] * stride]
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
            if by_rows:
                bin[j], stride = c.rows + column[first + j], c.n_columns
        if count == TOGETHER and is_pair(t):
            _add_together(r, node, bin, stride, a.number)
        for j in range(count):
            numbers = a.number
            if count == TOGETHER and is_pair(t):
                numbers += j * BYTES * a.width
            else:
                _add(t, r, node, bin[j], stride)
            n_present = _list_filled(a, numbers, n_bins)
            varies |= n_present > 1
            if _scan(t, r, numbers, n_present, n, best):
                best.column = column[first + j]
    return varies
