from libc.stdint cimport int64_t


# The header of each block. Its size keeps malloc's alignment for the array after it.
cdef struct hf_block:
    hf_block* before
    hf_block* next


# Memory that is freed together, by `release`. An arena of zeros is empty. Only one thread at a time may
# change it.
cdef struct hf_arena:
    hf_block* last
    bint failed       # an allocation has failed: all later ones fail too

cdef bint resize(hf_arena* arena, void* array, int64_t n_bytes) noexcept nogil
cdef void* take(hf_arena* arena, int64_t n_bytes) noexcept nogil
cdef void* take_zeros(hf_arena* arena, int64_t n_bytes) noexcept nogil
cdef void release(hf_arena* arena) noexcept nogil
