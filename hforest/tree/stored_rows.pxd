cimport numpy as cnp

cdef int call_rows(rows, forest, bint vote, cnp.ndarray leaf, cnp.ndarray y) except -1
