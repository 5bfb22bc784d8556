from libc.stdint cimport int32_t

# The vector path in force, one of simd.h's HF_PATH_...
cdef int simd_path() noexcept nogil

# Whether loads by a vector of indices are quicker than one by one, where that path has them.
cdef int simd_gathers() noexcept nogil

# Whether n values hold a NaN or an infinity (itemsize 4 or 8), or an index outside 0 <= index < stop.
cdef bint some_nonfinite(const void* start, Py_ssize_t n, int itemsize) noexcept nogil
cdef bint some_outside(const int32_t* start, Py_ssize_t n, Py_ssize_t stop) noexcept nogil
