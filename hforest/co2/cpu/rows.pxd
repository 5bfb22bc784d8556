# The rows of x on which a stump is fitted, and the loops over them.
#
# An example: a row of 20 features, with its implied offset and zeros, in blocks of 16 lanes:
#
#     block 0   | x0 x1 ... x15                 |     n_full = 1
#     block 1   | x16 x17 x18 x19 -1 0 0 ... 0  |     n_blocks = 2

from libc.stdint cimport int64_t, uint32_t

ctypedef fused real:
    float
    double

cdef extern from "co2/fit.h":
    enum:
        HF_LANES          # partial sums of a product w.x

cdef enum:
    HF_TOGETHER = 8       # rows that are read together, since rows are far apart in memory

cdef struct hf_rows:
    const void* x         # (n, n_features), float if `single`, else double
    int64_t n
    int64_t n_features
    int64_t n_full        # full blocks of a row
    int64_t n_blocks      # all blocks of a row
    bint single
    bint offset           # whether a constant -1 follows the features
    # For windows, whose rows are standardized copies (growth/cpu/sources/columns.pxd); else NULL and 0.
    const int64_t* place  # (n_features,): positions relative to that of a window
    const double* mean
    const double* deviation
    int64_t room          # rows of a node that a tree copies once, at most

# Writes a standardized window to a row (OUT (n_blocks, 16)), and prefetches the window `after`.
cdef void copy_window(const hf_rows* rows, uint32_t sample, uint32_t after, void* row) noexcept nogil

# Writes w.x of HF_TOGETHER rows to `product` (OUT), and prefetches the HF_TOGETHER rows `after`.
cdef void write_dots(
    const hf_rows* rows, const void* const* row, const void* const* after, const void* w, double* product
) noexcept nogil

# Returns w.x of one row.
cdef double dot_row(const hf_rows* rows, const void* row, const void* w) noexcept nogil

# Adds factor[r] row[r] of n rows to sum (IN, OUT), in the order of r.
cdef void add_rows(
    const hf_rows* rows, const void* const* row, const double* factor, int n, void* sum
) noexcept nogil


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
