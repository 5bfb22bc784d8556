"""In-bag counts: the samples that trees draw."""

from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from hforest.core.machine cimport (
    hf_begin, hf_end, hf_stopped, hf_threads, hf_units, hf_watch, raise_interrupt, start_watch,
)
from hforest.growth.cpu.builder cimport tree_key
from hforest.growth.cpu.task cimport HF_STREAM_BOOTSTRAP, HF_STREAM_POISSON, hf_below, hf_draw, hf_philox

cdef extern from "growth/poisson.h" nogil:
    int hf_poisson(uint32_t word)

cdef enum:
    SMALL = 1 << 15   # counts below which a second thread does not pay
    WATCHED = 1 << 20  # draws between two checks for signals


cdef void _bootstrap(uint64_t key, int64_t n, int32_t* count, hf_watch* watch) noexcept nogil:
    # Writes the number of times that a tree draws each of n samples, in n draws with replacement.
    cdef hf_draw draw
    cdef int64_t i, block
    for block in range((n + WATCHED - 1) // WATCHED):
        if hf_stopped(watch):
            return
        i = block * WATCHED
        memset(count + i, 0, min(WATCHED, n - i) * sizeof(int32_t))
    for i in range(n):
        if i % WATCHED == 0 and hf_stopped(watch):
            return
        if i % 4 == 0:
            draw = hf_philox(key, <uint64_t> (i // 4), HF_STREAM_BOOTSTRAP)
        count[hf_below(draw.word[i % 4], <uint32_t> n)] += 1


cdef void _poisson(
    uint64_t key, int64_t first_row, int64_t n, int32_t* count, hf_watch* watch
) noexcept nogil:
    # Writes the Poisson counts of a tree for rows first_row to first_row + n - 1.
    cdef hf_draw draw
    cdef int64_t i, row
    draw.word[0] = draw.word[1] = draw.word[2] = draw.word[3] = 0
    for i in range(n):
        if i % WATCHED == 0 and hf_stopped(watch):
            return
        row = first_row + i
        if i == 0 or row % 4 == 0:
            draw = hf_philox(key, <uint64_t> (row // 4), HF_STREAM_POISSON)
        count[i] = hf_poisson(draw.word[row % 4])


cdef int count_draws(
    uint64_t seed, int64_t first, int64_t first_row, bint poisson, int32_t[:, ::1] counts
) except -1:
    # Writes to counts[m] (OUT) the number of times that tree first + m has each sample: by a bootstrap, or
    # from a Poisson distribution.
    cdef int64_t n = counts.shape[1], m, n_units
    cdef int threads = 1 if counts.shape[0] * n < SMALL else hf_threads()
    cdef uint64_t key
    cdef hf_watch watch
    if counts.size == 0:
        return 0
    start_watch(&watch)
    n_units = hf_units(&watch, counts.shape[0], threads)
    for m in prange(n_units, schedule="dynamic", num_threads=threads, nogil=True):
        if hf_begin(&watch, m):
            key = tree_key(seed, first + m)
            if poisson:
                _poisson(key, first_row, n, &counts[m, 0], &watch)
            else:
                _bootstrap(key, n, &counts[m, 0], &watch)
            hf_end(&watch)
    return raise_interrupt(&watch)
