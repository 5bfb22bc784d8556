# The rows of x on which a stump is fitted, and the loops over them: scalar ones in rows.pyx, vector ones in
# simd/.

from libc.stdint cimport int64_t, uint32_t

ctypedef fused real:
    float
    double

cdef extern from "co2/rows.h" nogil:
    int HF_LANES, HF_TOGETHER
    ctypedef struct hf_rows
    ctypedef struct hf_row_loops:
        void (*dots)(
            const hf_rows* rows, const void* const* row, const void* const* after, const void* w,
            double* product,
        ) noexcept nogil
        void (*add_rows)(
            const hf_rows* rows, const void* const* row, const double* factor, int n, void* sum
        ) noexcept nogil
    ctypedef struct hf_rows:
        const hf_row_loops* loops
        const void* x
        int64_t n
        int64_t n_features
        int64_t n_full
        int64_t n_blocks
        bint single
        bint offset
        const int64_t* place
        const double* mean
        const double* deviation
        int64_t room

# Writes a standardized window to a row (OUT (n_blocks, 16)), and prefetches the window `after`.
cdef void copy_window(const hf_rows* rows, uint32_t sample, uint32_t after, void* row) noexcept nogil

# Returns the loops of a dtype and a vector path.
cdef const hf_row_loops* loops_of(bint single, int path) noexcept nogil


cdef inline int64_t row_bytes(const hf_rows* rows) noexcept nogil:
    # Returns the bytes of a row; for the copy of a window, those of whole blocks.
    return (rows.n_features if rows.place == NULL else rows.n_blocks * HF_LANES) * (4 if rows.single else 8)


cdef inline real fold(real* lane) noexcept nogil:
    # Returns the sum of sixteen lanes (IN, OUT), added by halves; this order is that of all backends.
    cdef int i
    for i in range(8):
        lane[i] += lane[i + 8]
    for i in range(4):
        lane[i] += lane[i + 4]
    return (lane[0] + lane[2]) + (lane[1] + lane[3])
