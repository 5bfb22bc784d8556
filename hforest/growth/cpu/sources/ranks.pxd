from cython cimport floating
from libc.stdint cimport int64_t, uint32_t, uint64_t

from hforest.core.machine cimport hf_watch


# A column to be encoded.
ctypedef struct hf_column:
    int64_t n
    int64_t n_bins        # IN  maximum number of bins
    uint32_t* bins        # OUT (n,)  bin of each sample
    double* low           # OUT (n_bins,)  the least value of each bin
    double* high          # OUT (n_bins,)  the greatest value of each bin


# Workspace for sorting a column, (n,) each. Keys of float32 hold the code of the value above the number of
# the sample, keys of float64 only the code.
ctypedef struct hf_order:
    uint64_t* key
    uint64_t* key2
    uint32_t* index       # numbers of the samples, in the order of `key`; only for float64
    uint32_t* index2      # scratch of the sort, as is key2

cdef int64_t rank_column(
    const floating* value, const hf_column* c, hf_order order, hf_watch* watch
) noexcept nogil
