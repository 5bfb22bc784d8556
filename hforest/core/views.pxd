"""Addresses of typed memoryviews, for structs that hold pointers."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

ctypedef fused number:
    uint8_t
    uint16_t
    int32_t
    uint32_t
    int64_t
    uint64_t
    float
    double


cdef inline const number* start(const number[::1] a) noexcept nogil:
    # Returns the address of an array, which must outlive it; NULL for None or an empty array.
    return &a[0] if a is not None and a.shape[0] else NULL


cdef inline const number* start_of_rows(const number[:, ::1] a) noexcept nogil:
    # Returns the address of a matrix, which must outlive it; NULL for None or an empty matrix.
    return &a[0, 0] if a is not None and a.shape[0] and a.shape[1] else NULL


cdef inline const void* start_of_reals(a):
    # Returns the address of a matrix of float32 or float64, which must outlive it.
    return <const void*> start_of_rows[float](a) if a.itemsize == 4 else start_of_rows[double](a)
