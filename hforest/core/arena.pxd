from libc.stdint cimport int64_t


# What precedes the memory of each block; it keeps malloc's alignment.
cdef struct hf_block:
    hf_block* before
    hf_block* next


# Memory that is given back together, by `release`. One of zeros is empty. One thread at a time changes it.
cdef struct hf_arena:
    hf_block* last
    bint failed       # memory was out once: nothing more is handed out

cdef bint resize(hf_arena* arena, void* array, int64_t n_bytes) noexcept nogil
cdef void* take(hf_arena* arena, int64_t n_bytes) noexcept nogil
cdef void* take_zeros(hf_arena* arena, int64_t n_bytes) noexcept nogil
cdef void release(hf_arena* arena) noexcept nogil
