from libc.stdint cimport int32_t

# Returns the vector path in use, one of simd.h's HF_PATH_...
cdef int simd_path() noexcept nogil

# Returns whether gather instructions are faster than single loads on this processor.
cdef int simd_gathers() noexcept nogil

# Return whether n values include a NaN or an infinity (itemsize 4 or 8), or an index outside
# 0 <= index < stop.
cdef bint some_nonfinite(const void* start, Py_ssize_t n, int itemsize) noexcept nogil
cdef bint some_outside(const int32_t* start, Py_ssize_t n, Py_ssize_t stop) noexcept nogil
