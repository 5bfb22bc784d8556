from libc.stdint cimport int32_t

cimport hforest.core.arrays as cnp

cdef int call_rows(rows, forest, bint vote, int32_t[:, ::1] leaf, cnp.ndarray y) except -1
