"""The surrogate of a split's loss and its subgradients (Norouzi et al. 2015, eq. 3, 4, 10 and 11).

Losses are summed in float64. Rows of x are far apart in memory: HF_TOGETHER of them are read together, while
the next ones are prefetched. Windows are copied. For each node, copies of as many as memory allows are kept;
the others are copied HF_TOGETHER at a time in each pass.
"""

from libc.math cimport fabs
from libc.stdint cimport int8_t, int64_t, uint32_t
from libc.string cimport memcpy

from hforest.co2.cpu.rows cimport HF_TOGETHER, add_rows, copy_window, row_bytes, write_dots


cdef void write_losses(const hf_members* m, const hf_losses* losses) noexcept nogil:
    # Writes the log losses of all classes on both sides (eq. 3): log sum exp theta - theta[k].
    cdef int64_t k
    cdef int side
    cdef double high, sum, log_sum
    cdef const double* theta
    cdef double* loss
    if m.label == NULL:
        return
    for side in range(2):
        theta, loss = losses.theta[side], losses.loss[side]
        high, sum = theta[0], 0
        for k in range(1, losses.n_outputs):
            high = theta[k] if theta[k] > high else high
        for k in range(losses.n_outputs):
            sum += hf_exp(theta[k] - high)
        log_sum = high + hf_log2(sum) * HF_LN2
        for k in range(losses.n_outputs):
            loss[k] = log_sum - theta[k]


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


cdef void write_products(
    const hf_rows* rows, const hf_members* m, const void* w, double* product
) noexcept nogil:
    # Writes w.x of each sample to `product` (OUT (m.n,)), in their order.
    cdef const void* row[HF_TOGETHER]
    cdef const void* after[HF_TOGETHER]
    cdef double some[HF_TOGETHER]
    cdef int64_t first
    if m.n and not _are_copied_here(m):
        fill_rows(rows, m, m.order, 0, after)
    for first in range(0, m.n, 8):
        _next_rows(rows, m, first, row, after)
        write_dots(rows, row, after, w, some)
        memcpy(product + first, some, min(HF_TOGETHER, m.n - first) * sizeof(double))


cdef double sum_surrogate(
    const hf_members* m, const hf_losses* losses, const double* product
) noexcept nogil:
    # Returns the surrogate, a sum over samples; writes the signs of w.x.
    cdef double total = 0, p, left, right
    cdef int64_t i, at
    for i in range(m.n):
        at, p = m.order[i], product[i]
        # eq. 10: max(-w.x + l(theta0, y), w.x + l(theta1, y)) - |w.x|
        left, right = _loss_of(m, losses, 0, at) - p, _loss_of(m, losses, 1, at) + p
        total += m.weight[at] * ((left if left >= right else right) - fabs(p))
        m.sign[at] = <int8_t> ((p > 0) - (p < 0))
    return total


cdef double add_slopes(
    const hf_rows* rows, const hf_members* m, const hf_losses* losses, const void* w, int64_t first,
    int64_t last, void* slope, hf_pull* pull
) noexcept nogil:
    # Adds the subgradients (eq. 11) of samples order[first] to order[last - 1]; returns their weight.
    #
    # w       IN (n_blocks, 16)
    # slope   IN, OUT (n_blocks, 16), with respect to w
    # pull    IN, OUT, with respect to theta
    cdef const void* row[HF_TOGETHER]
    cdef const void* after[HF_TOGETHER]
    cdef const void* moving[HF_TOGETHER]
    cdef double product[HF_TOGETHER]
    cdef double factor[HF_TOGETHER]
    cdef double weight = 0, p
    cdef int64_t at
    cdef int r, n_moving, right, turn
    if first == last:
        return weight
    if not _are_copied_here(m):
        fill_rows(rows, m, m.order, first, after)
    while first < last:
        _next_rows(rows, m, first, row, after)
        write_dots(rows, row, after, w, product)
        n_moving = 0
        for r in range(<int> min(HF_TOGETHER, last - first)):
            at, p = m.order[first + r], product[r]
            # Alg. 1, line 8: the side with the larger bound.
            right = not _loss_of(m, losses, 0, at) - p >= _loss_of(m, losses, 1, at) + p
            add_pull(m, losses, pull, right, at)
            weight += m.weight[at]
            # Alg. 1, lines 9 and 12, as a gradient: turn x.
            turn = (1 if right else -1) - m.sign[at]
            moving[n_moving], factor[n_moving] = row[r], turn * m.weight[at]
            n_moving += turn != 0
        add_rows(rows, moving, factor, n_moving, slope)
        first += HF_TOGETHER
    return weight
