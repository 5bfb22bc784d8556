"""The loops of a stump over rows of x.

A row is divided into blocks of sixteen elements, as drawn in rows.pxd; w and slopes have the same blocks:
(n_blocks, 16). A dot product sums each lane over the blocks, then folds the lanes by halves; a sum of rows
adds them in their order. Every operation is one rounding in the dtype of x.

Left out: vector bodies. A step of a stump was 1.13 times as fast by AVX2 and 1.12 times by AVX-512 (geometric
means over the shapes of bench/co2.py; a Xeon, Sapphire Rapids).
"""

from libc.stdint cimport int64_t, uint32_t

cdef extern from "core/simd.h" nogil:
    void HF_PREFETCH(const void* address)


cdef inline void _copy(const hf_rows* rows, const real* x, const real* after, real* row) noexcept nogil:
    cdef const int64_t* place = rows.place
    cdef const double* mean = rows.mean
    cdef const double* deviation = rows.deviation
    cdef int64_t b, j
    for b in range(0, rows.n_features, 8):
        HF_PREFETCH(after + place[b])
        for j in range(b, min(b + 8, rows.n_features)):
            row[j] = x[place[j]]
    for j in range(rows.n_features):
        row[j] = <real> ((<double> row[j] - mean[j]) / deviation[j])
    for j in range(rows.n_features, rows.n_blocks * HF_LANES):
        row[j] = 0


cdef void copy_window(const hf_rows* rows, uint32_t sample, uint32_t after, void* row) noexcept nogil:
    if rows.single:
        _copy(rows, <const float*> rows.x + sample, <const float*> rows.x + after, <float*> row)
    else:
        _copy(rows, <const double*> rows.x + sample, <const double*> rows.x + after, <double*> row)


cdef inline double _dot(
    const hf_rows* rows, const real* row, const real* after, const real* w
) noexcept nogil:
    # Returns w.x of a row, and prefetches the row `after`.
    cdef real lane[HF_LANES]
    cdef int64_t b, n_after = rows.n_features - rows.n_full * HF_LANES
    cdef int i
    for i in range(HF_LANES):
        lane[i] = 0
    for b in range(0, rows.n_full * HF_LANES, 16):
        HF_PREFETCH(after + b)
        for i in range(HF_LANES):
            lane[i] += row[b + i] * w[b + i]
    b = rows.n_full * HF_LANES
    for i in range(n_after):
        lane[i] += row[b + i] * w[b + i]
    if rows.offset:
        lane[n_after] -= w[b + n_after]
    return fold(lane)


cdef void write_dots(
    const hf_rows* rows, const void* const* row, const void* const* after, const void* w, double* product
) noexcept nogil:
    cdef int r
    for r in range(HF_TOGETHER):
        if rows.single:
            product[r] = _dot(rows, <const float*> row[r], <const float*> after[r], <const float*> w)
        else:
            product[r] = _dot(rows, <const double*> row[r], <const double*> after[r], <const double*> w)


cdef double dot_row(const hf_rows* rows, const void* row, const void* w) noexcept nogil:
    if rows.single:
        return _dot(rows, <const float*> row, <const float*> row, <const float*> w)
    return _dot(rows, <const double*> row, <const double*> row, <const double*> w)


cdef inline void _add_row(const hf_rows* rows, const real* row, real factor, real* sum) noexcept nogil:
    cdef int64_t j
    for j in range(rows.n_features):
        sum[j] += row[j] * factor
    if rows.offset:
        sum[rows.n_features] -= factor


cdef void add_rows(
    const hf_rows* rows, const void* const* row, const double* factor, int n, void* sum
) noexcept nogil:
    cdef int r
    for r in range(n):
        if rows.single:
            _add_row(rows, <const float*> row[r], <float> factor[r], <float*> sum)
        else:
            _add_row(rows, <const double*> row[r], factor[r], <double*> sum)
