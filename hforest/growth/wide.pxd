from libc.stdint cimport int32_t, int64_t

from hforest.growth.bodies cimport hf_buckets
from hforest.growth.bounds cimport hf_codes
from hforest.growth.task cimport hf_pending, hf_task, hf_workspace


# Sums of the splits after each bucket, in the order of the buckets.
ctypedef struct hf_wide:
    hf_buckets buckets
    double left_weight[256]    # HF_BUCKETS
    double left_square[256]
    double right_square[256]
    double score[256]
    double all                 # weight of the node; sum of the squares of its classes' weights
    double square

cdef bint start_wide(
    const hf_task* t, hf_workspace* r, hf_codes* codes, const hf_pending* node, double weight, bint whole,
    hf_wide* w
) noexcept nogil
cdef int score_wide(
    const hf_task* t, hf_workspace* r, const hf_codes* codes, const int32_t* code, hf_wide* w, double* best,
    int32_t* low
) noexcept nogil
