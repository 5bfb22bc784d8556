from libc.stdint cimport int64_t, uint32_t, uint64_t

from hforest.growth.cpu.task cimport hf_draw


# The features of a tree, as a permutation.
ctypedef struct hf_features:
    uint32_t* column     # (n,): the sampled features come first
    uint32_t* swapped    # (n,): the position with which each sampled feature was swapped
    int64_t n


# The features that a node samples: steps of a Fisher-Yates shuffle, which are undone after the node.
ctypedef struct hf_sampling:
    uint64_t key
    hf_draw draw
    int64_t n_sampled

cdef void start_features(hf_features* f, int64_t n, uint32_t* column, uint32_t* swapped) noexcept nogil
cdef uint32_t sample_feature(hf_features* f, hf_sampling* s) noexcept nogil
cdef void undo_sampling(hf_features* f, hf_sampling* s) noexcept nogil
