"""Arenas: all memory of a call, a thread or a tree, with one check of whether there was enough of it.

    work.value, work.index = <float*> take(arena, 4 * n), <uint32_t*> take(arena, 4 * n)
    if arena.failed:                        checked once, after all allocations
        return False
    ...
    release(arena)

A block holds a single array, so that AddressSanitizer detects accesses beyond it:

    arena.last --> | before, next | array |       `before` and `next`: the arena's other blocks
"""

from libc.stdlib cimport free, realloc
from libc.string cimport memset


cdef bint resize(hf_arena* arena, void* array, int64_t n_bytes) noexcept nogil:
    # Changes the size of an array; returns whether there was memory.
    #
    # array  IN, OUT  the address of a pointer: NULL, or an array of this arena
    cdef void** at = <void**> array
    cdef hf_block* block = <hf_block*> at[0]
    cdef bint is_new = block == NULL
    if arena.failed:
        return False
    block = <hf_block*> realloc(NULL if is_new else block - 1, sizeof(hf_block) + <size_t> n_bytes)
    if block == NULL:
        arena.failed = True
        return False
    if is_new:
        block.before, block.next = arena.last, NULL
    if block.before != NULL:
        block.before.next = block
    if block.next != NULL:
        block.next.before = block
    else:
        arena.last = block
    at[0] = block + 1
    return True


cdef void* take(hf_arena* arena, int64_t n_bytes) noexcept nogil:
    # Returns memory for an array; NULL if this allocation or an earlier one failed.
    cdef void* array = NULL
    resize(arena, &array, n_bytes)
    return array


cdef void* take_zeros(hf_arena* arena, int64_t n_bytes) noexcept nogil:
    cdef void* array = take(arena, n_bytes)
    if array != NULL:
        memset(array, 0, n_bytes)
    return array


cdef void release(hf_arena* arena) noexcept nogil:
    # Frees all memory; the arena is then empty.
    cdef hf_block* block = arena.last
    while block != NULL:
        arena.last = block.before
        free(block)
        block = arena.last
    arena.failed = False
