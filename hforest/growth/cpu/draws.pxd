from libc.stdint cimport int32_t, int64_t, uint64_t

cdef int count_draws(
    uint64_t seed, int64_t first, int64_t first_row, bint poisson, int32_t[:, ::1] counts
) except -1
