# Values of leaves.

from libc.stdint cimport int64_t

cdef extern from "growth/leaf.h" nogil:
    enum:
        HF_LEAF_VALUES
        HF_LEAF_TOTALS
    void hf_add_to_leaf(int64_t* totals, int64_t q, int64_t u)
    void hf_class_totals(int64_t* totals, int64_t q, int64_t u)
    void hf_leaf_values(const int64_t* totals, double c, int k, int m, double* values)
