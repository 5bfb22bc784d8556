from libc.stdint cimport int32_t, int64_t

from hforest.growth.bodies cimport hf_buckets, hf_value_pairs
from hforest.growth.bounds cimport hf_codes
from hforest.growth.task cimport hf_pending, hf_split, hf_task, hf_workspace
from hforest.growth.wide cimport hf_wide


# The scorer of a node's codes of 32 bits.
ctypedef struct hf_code_scorer:
    int kind                # of scorers.pxd
    hf_value_pairs pairs    # PAIRWISE
    hf_buckets buckets      # HISTOGRAM
    hf_wide wide            # WIDE_HISTOGRAM

cdef void start_code_scorer(
    const hf_task* t, hf_workspace* r, hf_codes* codes, const hf_pending* node, double weight, bint whole,
    hf_code_scorer* s
) noexcept nogil
cdef int score_codes(
    const hf_task* t, hf_workspace* r, const hf_codes* codes, const int32_t* code, hf_code_scorer* s,
    double* best, int32_t* low
) noexcept nogil
cdef void take_codes(
    const hf_task* t, hf_workspace* r, const hf_codes* codes, const hf_pending* node, double weight,
    const int32_t* code, hf_code_scorer* s, hf_split* best
) noexcept nogil
