"""The surrogate of a split's loss and its subgradients (Norouzi et al. 2015, eq. 3, 4, 10 and 11).

Sums over samples are those of chunks of HF_CHUNK samples, added in order, in float64. Threads share the
chunks of a pass over a node. Rows of x are far apart in memory: HF_TOGETHER of them are read together, while
the next ones are prefetched. Windows are copied. For each node, copies of as many as memory allows are kept;
the others are copied HF_TOGETHER at a time in each pass.
"""

from cython.parallel cimport prange
from libc.math cimport fabs
from libc.stdint cimport int8_t, int64_t, uint32_t
from libc.string cimport memcpy, memset

from hforest.co2.cpu.rows cimport HF_LANES, HF_TOGETHER, add_rows, copy_window, row_bytes, write_dots
from hforest.core.machine cimport hf_begin, hf_end, hf_has_stopped, hf_stopped, hf_units
from hforest.core.series cimport hf_exp, hf_log

# Writes the sums (OUT) over the samples at places first to last - 1 of a pass.
ctypedef void (*hf_visit)(const hf_passes* p, int64_t first, int64_t last, hf_sums* sums) noexcept nogil


cdef void write_log_losses(const double* theta, int64_t n_outputs, double* loss) noexcept nogil:
    # Writes the log losses of all classes (eq. 3, OUT): log sum exp theta - theta[k].
    cdef double high = theta[0], sum = 0, log_sum
    cdef int64_t k
    for k in range(1, n_outputs):
        high = theta[k] if theta[k] > high else high
    for k in range(n_outputs):
        sum += hf_exp(theta[k] - high)
    log_sum = high + hf_log(sum)
    for k in range(n_outputs):
        loss[k] = log_sum - theta[k]


cdef void write_losses(const hf_members* m, const hf_losses* losses) noexcept nogil:
    # Writes the log losses of all classes on both sides.
    cdef int side
    if m.label == NULL:
        return
    for side in range(2):
        write_log_losses(losses.theta[side], losses.n_outputs, losses.loss[side])


cdef inline double _loss_of(
    const hf_members* m, const hf_losses* losses, int side, int64_t at
) noexcept nogil:
    # Returns the loss of sample `at` on a side: eq. 3, or for targets eq. 4, ||y - theta||**2.
    cdef const double* y
    cdef const double* theta = losses.theta[side]
    cdef double sum = 0
    cdef int64_t k
    if m.label != NULL:
        return losses.loss[side][m.label[at]]
    y = m.targets + <int64_t> m.sample[at] * losses.n_outputs
    for k in range(losses.n_outputs):
        sum += (y[k] - theta[k]) * (y[k] - theta[k])
    return sum


cdef void copy_members(const hf_rows* rows, hf_members* m) noexcept nogil:
    # Copies the windows of the first samples, up to rows.room.
    cdef int64_t i
    m.n_copied = 0 if m.copies == NULL else min(m.n, rows.room)
    for i in range(m.n_copied):
        copy_window(rows, m.sample[i], m.sample[min(i + 1, m.n - 1)], m.copies + i * row_bytes(rows))


cdef inline bint _are_copied_here(const hf_members* m) noexcept nogil:
    # Returns whether some rows are copied each time they are read.
    return m.copies != NULL and m.n_copied < m.n


cdef void fill_rows(
    const hf_rows* rows, const hf_members* m, const uint32_t* order, int64_t first, const void** row
) noexcept nogil:
    # Writes the addresses of the rows of samples order[first] to order[first + HF_TOGETHER - 1]; for windows,
    # those of their copies. Places beyond the last sample get the row of the last.
    #
    # order  IN (m.n,), or NULL: samples are in their order
    cdef int64_t size = row_bytes(rows), at, after, i
    cdef int r
    for r in range(HF_TOGETHER):
        at = i = min(first + r, m.n - 1)
        after = min(i + 1, m.n - 1)
        if order != NULL:
            at, after = order[at], order[after]
        if m.copies == NULL:
            row[r] = <const char*> rows.x + m.sample[at] * size
        elif at < m.n_copied:
            row[r] = m.copies + at * size
        else:
            row[r] = m.copies + (m.n_copied + r) * size
            copy_window(rows, m.sample[at], m.sample[after], m.copies + (m.n_copied + r) * size)


cdef inline void _next_rows(
    const hf_rows* rows, const hf_members* m, int64_t first, const void** row, const void** after
) noexcept nogil:
    # Writes the addresses of the rows of samples from order[first] on, and of the next rows, to be
    # prefetched.
    #
    # after  IN, OUT  those of the previous call; only OUT for rows that are copied each time
    if _are_copied_here(m):
        fill_rows(rows, m, m.order, first, row)
        memcpy(after, row, HF_TOGETHER * sizeof(row[0]))
    else:
        memcpy(row, after, HF_TOGETHER * sizeof(row[0]))
        fill_rows(rows, m, m.order, first + HF_TOGETHER, after)


cdef inline void _clear(const hf_passes* p, hf_sums* sums) noexcept nogil:
    cdef int side
    sums.terms = sums.weight = 0
    for side in range(2):
        sums.weights[side] = 0
        memset(sums.outputs[side], 0, p.losses.n_outputs * sizeof(double))
    memset(sums.slope, 0, p.rows.n_blocks * HF_LANES * (4 if p.rows.single else 8))


cdef void _add(const hf_passes* p, const hf_sums* chunk, hf_sums* sums) noexcept nogil:
    # Adds the sums of a chunk to `sums` (IN, OUT), and slopes to p.slope.
    cdef int64_t j, k
    cdef int side
    sums.terms += chunk.terms
    sums.weight += chunk.weight
    for side in range(2):
        sums.weights[side] += chunk.weights[side]
        for k in range(p.losses.n_outputs):
            sums.outputs[side][k] += chunk.outputs[side][k]
    for j in range(p.rows.n_blocks * HF_LANES):
        p.slope[j] += (<float*> chunk.slope)[j] if p.rows.single else (<double*> chunk.slope)[j]


cdef void _sum_chunks(
    const hf_passes* p, hf_visit visit, int64_t first, int64_t last, hf_sums* sums
) noexcept nogil:
    # Writes the sums (OUT) over the places first to last - 1, chunk by chunk, with p.n_threads threads.
    cdef int64_t n = (last - first + HF_CHUNK - 1) // HF_CHUNK, begin, c, j, n_chunks
    if n == 1:
        visit(p, first, last, sums)
        return
    _clear(p, sums)
    memset(p.slope, 0, p.rows.n_blocks * HF_LANES * sizeof(double))
    begin = first
    while begin < last:
        n_chunks = min(p.n_chunks, (last - begin + HF_CHUNK - 1) // HF_CHUNK)
        if p.n_threads == 1:
            for c in range(n_chunks):
                if hf_stopped(p.watch):
                    return
                visit(p, begin + c * HF_CHUNK, min(begin + (c + 1) * HF_CHUNK, last), sums_of_chunk(p, c))
        else:
            for c in prange(
                hf_units(p.watch, n_chunks, p.n_threads), schedule="dynamic", num_threads=p.n_threads
            ):
                if hf_begin(p.watch, c):
                    visit(p, begin + c * HF_CHUNK, min(begin + (c + 1) * HF_CHUNK, last), sums_of_chunk(p, c))
                    hf_end(p.watch)
        if hf_has_stopped(p.watch):
            return
        for c in range(n_chunks):
            _add(p, sums_of_chunk(p, c), sums)
        begin += n_chunks * HF_CHUNK
    for j in range(p.rows.n_blocks * HF_LANES):
        if p.rows.single:
            (<float*> sums.slope)[j] = <float> p.slope[j]
        else:
            (<double*> sums.slope)[j] = p.slope[j]


cdef inline void _add_outputs(
    const hf_members* m, const hf_losses* losses, int side, int64_t at, hf_sums* sums
) noexcept nogil:
    # Adds weight and outputs of sample `at` to the sums of a side.
    cdef const double* y
    cdef double weight = m.weight[at]
    cdef int64_t k
    sums.weights[side] += weight
    if m.label != NULL:
        sums.outputs[side][m.label[at]] += weight
        return
    y = m.targets + <int64_t> m.sample[at] * losses.n_outputs
    for k in range(losses.n_outputs):
        sums.outputs[side][k] += weight * y[k]


cdef void _sum_terms(
    const hf_passes* p, const double* product, int64_t first, int64_t last, hf_sums* sums
) noexcept nogil:
    # Sums the terms of the surrogate, and writes the signs of w.x.
    #
    # product  IN (last - first,)  w.x of the samples
    cdef const hf_members* m = p.m
    cdef const hf_losses* losses = p.losses
    cdef double terms = 0, w_x, left, right
    cdef int64_t i, at
    _clear(p, sums)
    for i in range(first, last):
        at, w_x = m.order[i], product[i - first]
        # eq. 10: max(-w.x + l(theta0, y), w.x + l(theta1, y)) - |w.x|
        left, right = _loss_of(m, losses, 0, at) - w_x, _loss_of(m, losses, 1, at) + w_x
        terms += m.weight[at] * ((left if left >= right else right) - fabs(w_x))
        m.sign[at] = <int8_t> ((w_x > 0) - (w_x < 0))
    sums.terms = terms


cdef void _visit_terms(const hf_passes* p, int64_t first, int64_t last, hf_sums* sums) noexcept nogil:
    _sum_terms(p, p.product + first, first, last, sums)


cdef void _visit_products_and_terms(
    const hf_passes* p, int64_t first, int64_t last, hf_sums* sums
) noexcept nogil:
    # Computes products first, and writes them to p.product.
    cdef const void* row[HF_TOGETHER]
    cdef const void* after[HF_TOGETHER]
    cdef double product[HF_CHUNK]
    cdef int64_t i
    if first < last and not _are_copied_here(p.m):
        fill_rows(p.rows, p.m, p.m.order, first, after)
    for i in range(first, last, 8):
        _next_rows(p.rows, p.m, i, row, after)
        write_dots(p.rows, row, after, p.w, product + i - first)
    _sum_terms(p, product, first, last, sums)
    if p.product != NULL:
        memcpy(p.product + first, product, (last - first) * sizeof(double))


cdef void sum_terms(const hf_passes* p, bint with_products, hf_sums* sums) noexcept nogil:
    # Writes sums.terms (OUT), the surrogate, and the signs of w.x.
    _sum_chunks(p, _visit_products_and_terms if with_products else _visit_terms, 0, p.m.n, sums)


cdef void _visit_sides(const hf_passes* p, int64_t first, int64_t last, hf_sums* sums) noexcept nogil:
    cdef int64_t at
    _clear(p, sums)
    for at in range(first, last):
        _add_outputs(p.m, p.losses, p.m.sign[at] >= 0, at, sums)


cdef void sum_sides(const hf_passes* p, hf_sums* sums) noexcept nogil:
    # Writes weights and outputs (OUT) of the samples that the signs of w.x send to each side.
    _sum_chunks(p, _visit_sides, 0, p.m.n, sums)


cdef void _visit_slopes(const hf_passes* p, int64_t first, int64_t last, hf_sums* sums) noexcept nogil:
    cdef const hf_rows* rows = p.rows
    cdef const hf_members* m = p.m
    cdef const hf_losses* losses = p.losses
    cdef const void* row[HF_TOGETHER]
    cdef const void* after[HF_TOGETHER]
    cdef const void* moving[HF_TOGETHER]
    cdef double product[HF_TOGETHER]
    cdef double factor[HF_TOGETHER]
    cdef double weight = 0, w_x
    cdef int64_t at
    cdef int r, n_moving, right, sign, turn
    _clear(p, sums)
    if first < last and not _are_copied_here(m):
        fill_rows(rows, m, m.order, first, after)
    while first < last:
        _next_rows(rows, m, first, row, after)
        write_dots(rows, row, after, p.w, product)
        n_moving = 0
        for r in range(<int> min(HF_TOGETHER, last - first)):
            at, w_x = m.order[first + r], product[r]
            # Alg. 1, line 8: the side with the larger bound.
            right = not _loss_of(m, losses, 0, at) - w_x >= _loss_of(m, losses, 1, at) + w_x
            _add_outputs(m, losses, right, at, sums)
            weight += m.weight[at]
            # Alg. 1, lines 9 and 12, as a gradient: turn x.
            sign = m.sign[at] if m.sign != NULL else (w_x > 0) - (w_x < 0)
            turn = (1 if right else -1) - sign
            moving[n_moving], factor[n_moving] = row[r], turn * m.weight[at]
            n_moving += turn != 0
        add_rows(rows, moving, factor, n_moving, sums.slope)
        first += HF_TOGETHER
    sums.weight = weight


cdef void sum_slopes(const hf_passes* p, int64_t first, int64_t last, hf_sums* sums) noexcept nogil:
    # Writes weights, outputs and slope (OUT) of eq. 11 for the samples order[first] to order[last - 1].
    _sum_chunks(p, _visit_slopes, first, last, sums)
