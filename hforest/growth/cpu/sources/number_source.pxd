from libc.stdint cimport int64_t

from hforest.growth.cpu.task cimport hf_source


# Columns of numbers. Feature f of sample s is number s * stride + place[f] of x; without places, + f.
ctypedef struct hf_number_columns:
    const void* x            # float or double
    int64_t stride
    const int64_t* place     # (n_columns,), or NULL
    int64_t n_columns

cdef hf_source source_of_numbers(const hf_number_columns* columns) noexcept nogil
