"""The features that a node samples, without replacement: a permutation that is made one swap at a time.

`undo_sampling` takes the swaps back. So the cost is the number of sampled features, not of all features, and
the features of a node do not depend on the nodes before it.
"""

from hforest.growth.cpu.task cimport HF_STREAM_CANDIDATES, hf_below, hf_philox


cdef void start_features(hf_features* f, int64_t n, uint32_t* column, uint32_t* swapped) noexcept nogil:
    # Initializes the permutation in the given memory, which must outlive it.
    cdef int64_t i
    f.n, f.column, f.swapped = n, column, swapped
    for i in range(n):
        f.column[i] = <uint32_t> i


cdef uint32_t sample_feature(hf_features* f, hf_sampling* s) noexcept nogil:
    # Returns the next feature that a node samples.
    cdef int64_t other
    cdef uint32_t column
    if s.n_sampled % 4 == 0:
        s.draw = hf_philox(s.key, <uint64_t> (s.n_sampled // 4), HF_STREAM_CANDIDATES)
    other = s.n_sampled + hf_below(s.draw.word[s.n_sampled % 4], <uint32_t> (f.n - s.n_sampled))
    column = f.column[other]
    f.column[other] = f.column[s.n_sampled]
    f.column[s.n_sampled] = column
    f.swapped[s.n_sampled] = <uint32_t> other
    s.n_sampled += 1
    return column


cdef void undo_sampling(hf_features* f, hf_sampling* s) noexcept nogil:
    # Undoes the swaps, so that the samples of the next node do not depend on this node.
    cdef uint32_t other, column
    while s.n_sampled > 0:
        s.n_sampled -= 1
        other, column = f.swapped[s.n_sampled], f.column[s.n_sampled]
        f.column[s.n_sampled] = f.column[other]
        f.column[other] = column
