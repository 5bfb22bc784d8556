from libc.stdint cimport int32_t

# The vector path in force: HF_PATH_PLAIN, HF_PATH_AVX2 or HF_PATH_AVX512 of simd.h.
cdef int simd_path() noexcept nogil

# Whether n values hold a NaN or an infinity (itemsize 4 or 8), or an index outside 0 <= index < stop.
cdef bint some_nonfinite(const void* start, Py_ssize_t n, int itemsize) noexcept nogil
cdef bint some_outside(const int32_t* start, Py_ssize_t n, Py_ssize_t stop) noexcept nogil
