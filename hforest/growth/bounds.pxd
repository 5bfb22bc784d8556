from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from hforest.core.arena cimport hf_arena
from hforest.growth.bodies cimport hf_bodies, hf_buckets
from hforest.growth.task cimport hf_pending, hf_task, hf_workspace


# The workspace of a tree whose candidates have codes of 32 bits.
ctypedef struct hf_codes:
    int32_t* code        # of a candidate, in the order of signed integers
    uint32_t* slot       # of a sample: class << 16 | weight
    uint8_t* bucket      # of a sample: where its code is counted


# Sums of a split, whole numbers.
ctypedef struct hf_sums:
    double left_square
    double right_square
    double left_weight
    double right_weight

# Returns the sums of the split before a bucket.
ctypedef hf_sums (*hf_before)(const void* scorer, int bucket) noexcept nogil

cdef void start_codes(hf_codes* codes, hf_arena* arena, int64_t n) noexcept nogil
cdef bint start_buckets(
    const hf_task* t, hf_workspace* r, hf_codes* codes, const hf_pending* node, double weight, bint whole,
    hf_buckets* s
) noexcept nogil
cdef int score_buckets(
    const hf_task* t, hf_workspace* r, const hf_codes* codes, const int32_t* code, hf_buckets* s,
    double* best, int32_t* low
) noexcept nogil
cdef float real_of(const hf_buckets* s, int32_t code) noexcept nogil
cdef int32_t next_code(const int32_t* code, int64_t n, int32_t low) noexcept nogil

# For wide.pyx.
cdef int divide(const hf_bodies* bodies, hf_buckets* s, const int32_t* code) noexcept nogil
cdef int bucket_of(const hf_buckets* s, int32_t code) noexcept nogil
cdef int place_of(const hf_buckets* s, int c) noexcept nogil
cdef int count_codes(
    const hf_bodies* bodies, hf_workspace* r, const hf_codes* codes, const int32_t* code, hf_buckets* s
) noexcept nogil
cdef bint confirm_alive(
    const hf_task* t, hf_workspace* r, const hf_codes* codes, const int32_t* code, hf_buckets* s, int own,
    hf_before before, const void* scorer, double* best, int32_t* low
) noexcept nogil
