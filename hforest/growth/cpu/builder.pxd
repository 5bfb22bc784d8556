from cython cimport floating
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from hforest.growth.cpu.task cimport hf_task, hf_tree


# A tree and the arrays to which it is copied: its part of the arrays of a forest.
ctypedef struct hf_arrays:
    const hf_tree* tree
    int32_t* feature
    int32_t* left
    void* threshold       # float or double, as are value, gain and data
    void* value
    void* gain
    int64_t* indptr       # or NULL: no projections; the tree's first entry has the number first_entry
    int64_t first_entry
    int32_t* indices
    void* data
    uint8_t* default_left
    int64_t* word_indptr  # or NULL: no categories; the tree's first word has the number first_word
    int64_t first_word
    uint32_t* words

cdef uint64_t tree_key(uint64_t seed, int64_t tree) noexcept nogil
cdef bint grow_tree(
    const hf_task* t, int64_t number, const int32_t* counts, const int32_t* order, hf_tree* tree
) noexcept nogil
cdef bint add_words(hf_tree* tree, int64_t v, const uint32_t* words, int64_t n) noexcept nogil
cdef bint add_entries(
    const hf_task* t, hf_tree* tree, const uint32_t* index, const floating* factor, int64_t n
) noexcept nogil
cdef void order_tree(const hf_arrays* to, int64_t n_outputs, bint single) noexcept nogil
