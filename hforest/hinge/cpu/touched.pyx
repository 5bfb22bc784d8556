"""Rows that a batch touches: distinct leaves or vertices per tree, and the number of samples in each leaf."""

import numpy as np

from cython.parallel cimport prange, threadid
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memmove, memset

from hforest.core.machine cimport (
    hf_begin, hf_end, hf_has_stopped, hf_units, hf_watch, raise_interrupt, start_watch,
)
from hforest.hinge.cpu.forest cimport GROUP, hf_fetch, threads_for

cdef extern from "hinge/cpu/bits.h" nogil:
    int hf_lowest_bit(uint64_t word)

cdef enum:
    BYTE_SLOTS = 2048     # slots up to which one byte marks each: L1 holds the marks of a group
    BYTES_EACH = 2        # bytes of marks per sample at most: more cost more to scan than to set
    SLOTS_EACH = 4096     # slots per sample at most: a scan of more takes longer than sorting the samples
    AHEAD = 32            # samples between the prefetch of their indices and their use


cdef Py_ssize_t _list_bytes(
    const unsigned char* seen, Py_ssize_t n_slots, int64_t offset, Py_ssize_t capacity, int64_t* rows
) noexcept nogil:
    # Writes offset + slot for each marked slot; returns the number of values written, at most `capacity`.
    cdef Py_ssize_t slot, i = 0
    for slot in range(n_slots):
        if i == capacity:
            break
        # The write is unconditional, so that no branch depends on the data.
        rows[i] = offset + slot
        i += seen[slot]
    return i


cdef Py_ssize_t _list_bits(
    const uint64_t* seen, Py_ssize_t n_words, int64_t offset, int64_t* rows
) noexcept nogil:
    # Writes offset + the position of each set bit, in ascending order; returns the number of values written.
    cdef Py_ssize_t word, i = 0
    cdef uint64_t left
    for word in range(n_words):
        left = seen[word]
        while left:
            rows[i] = offset + 64 * word + hf_lowest_bit(left)
            left &= left - 1
            i += 1
    return i


cdef void _touched_group(
    const int32_t[:, ::1] index, Py_ssize_t n_slots, Py_ssize_t first, bint by_bytes, unsigned char* seen,
    int64_t[::1] start, int64_t[::1] rows,
) noexcept nogil:
    # Writes the rows of tree m from m * capacity on, and their number to start[m + 1].
    cdef Py_ssize_t n_words = (n_slots + 63) // 64, n_samples = index.shape[0], n_trees = index.shape[1], s, j
    cdef Py_ssize_t count = min(<Py_ssize_t> GROUP, n_trees - first), capacity = rows.shape[0] // n_trees
    cdef uint64_t* bits = <uint64_t*> seen
    cdef const int32_t* value
    memset(seen, 0, count * (n_slots if by_bytes else n_words * 8))
    for s in range(n_samples):
        value = &index[s, first]
        if s + AHEAD < n_samples:
            hf_fetch(value + AHEAD * n_trees, count * sizeof(int32_t))
        # Stores of bytes are independent; setting a bit waits for the previous store to the same word.
        if by_bytes:
            for j in range(count):
                seen[j * n_slots + value[j]] = 1
        else:
            for j in range(count):
                bits[j * n_words + (value[j] >> 6)] |= (<uint64_t> 1) << (value[j] & 63)
    for j in range(first, first + count):
        if by_bytes:
            start[j + 1] = _list_bytes(
                seen + (j - first) * n_slots, n_slots, j * n_slots, capacity, &rows[j * capacity]
            )
        else:
            start[j + 1] = _list_bits(bits + (j - first) * n_words, n_words, j * n_slots, &rows[j * capacity])


cdef void _touched(
    const int32_t[:, ::1] index, Py_ssize_t n_slots, bint by_bytes, unsigned char[:, ::1] seen,
    int64_t[::1] start, int64_t[::1] rows, hf_watch* watch,
) noexcept nogil:
    cdef Py_ssize_t n_trees = index.shape[1], capacity = rows.shape[0] // n_trees, group, m
    cdef Py_ssize_t n_groups = (n_trees + GROUP - 1) // GROUP
    cdef int threads = <int> seen.shape[0]
    for group in prange(hf_units(watch, n_groups, threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, group):
            _touched_group(index, n_slots, group * GROUP, by_bytes, &seen[threadid(), 0], start, rows)
            hf_end(watch)
    if hf_has_stopped(watch):
        return
    start[0] = 0
    for m in range(n_trees):
        memmove(&rows[start[m]], &rows[m * capacity], start[m + 1] * sizeof(int64_t))
        start[m + 1] += start[m]


cdef int touched_rows(index, n_slots, start, rows) except -1:
    """Writes the distinct values of each index[:, m] as rows m * n_slots + value, at start[m]:start[m + 1].

    The rows of a tree are in ascending order.
    """
    cdef hf_watch watch
    if index.shape[0] == 0:
        start[...] = 0
        return 0
    if n_slots > SLOTS_EACH * index.shape[0]:
        first = n_slots * np.arange(len(start), dtype=np.int64)
        found = np.unique(index + first[: index.shape[1]])
        rows[: len(found)], start[...] = found, np.searchsorted(found, first)
        return 0
    # One byte or one bit per slot, for each tree of a group.
    by_bytes = n_slots <= min(BYTE_SLOTS, BYTES_EACH * index.shape[0])
    n_bytes = n_slots if by_bytes else (n_slots + 63) // 64 * 8
    seen = np.empty((threads_for(index.size), GROUP * n_bytes), np.uint8)
    start_watch(&watch)
    _touched(index, n_slots, by_bytes, seen, start, rows, &watch)
    return raise_interrupt(&watch)


cdef void _count_tree(const int32_t[:, ::1] leaf, Py_ssize_t m, int64_t[:, ::1] counts) noexcept nogil:
    cdef Py_ssize_t n
    for n in range(leaf.shape[0]):
        counts[m, leaf[n, m]] += 1


cdef void _count(const int32_t[:, ::1] leaf, int64_t[:, ::1] counts, hf_watch* watch) noexcept nogil:
    cdef Py_ssize_t m
    cdef int threads = threads_for(leaf.shape[0] * leaf.shape[1])
    for m in prange(hf_units(watch, leaf.shape[1], threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, m):
            _count_tree(leaf, m, counts)
            hf_end(watch)


cdef int count_leaves(leaf, counts) except -1:
    """Writes the number of samples in each leaf of each tree."""
    cdef hf_watch watch
    counts[...] = 0
    start_watch(&watch)
    _count(leaf, counts, &watch)
    return raise_interrupt(&watch)
