"""Walks of samples through trees; cpu.pyx distributes blocks of samples over threads."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cimport hforest.core.arrays as cnp
from hforest.core.machine cimport hf_watch

cdef extern from "tree/route.h" nogil:
    ctypedef struct hf_forest:
        const int64_t* tree_start
        const int32_t* feature
        const void* threshold
        const int32_t* left
        const int64_t* indptr
        const int32_t* indices
        const void* data
        const uint8_t* default_left
        const int64_t* category_indptr
        const uint32_t* category_bits
        const int64_t* offset
    int64_t hf_place(const hf_forest* f, int32_t feature)
    int32_t hf_leaf_of(const hf_forest* f, int single, int64_t tree, const void* row)

cdef extern from "tree/cpu/packed.h" nogil:
    enum:
        HF_WALKS, HF_DOWN, HF_LEVELS, HF_TOP, HF_SMALL, HF_SMALL_KEYS, HF_FLOAT_KEYS, HF_DOUBLE_KEYS, HF_PAIR,
        HF_QUAD, HF_RARE
    ctypedef struct hf_float_node:
        float threshold
        int32_t feature, next
    ctypedef struct hf_double_node:
        double threshold
        int32_t feature, next
    ctypedef struct hf_small_node:
        float threshold
        uint32_t to
    ctypedef struct hf_float_projection:
        float threshold
        int32_t next
    ctypedef struct hf_double_projection:
        double threshold
        int64_t next
    ctypedef struct hf_entries:
        uint32_t first, n
    ctypedef struct hf_float_entry:
        float weight
        int32_t place
    ctypedef struct hf_double_entry:
        double weight
        int64_t place
    ctypedef struct hf_walked:
        const void* node
        const void* entry
        const void* x
        const int64_t* base
        int64_t n_features
    ctypedef struct hf_float_key_node:
        uint32_t key, column, next
    ctypedef struct hf_double_key_node:
        uint64_t key
        uint32_t column, next
    ctypedef struct hf_small_key_node:
        uint32_t key, column, next
    ctypedef struct hf_top:
        uint32_t key[15]
        uint32_t column[15]
        uint32_t exit[16]
        int32_t depth
    uint32_t hf_float_key(float number)
    uint64_t hf_double_key(double number)

ctypedef fused real:
    float
    double

# How features are read: from rows of x; from columns of keys; or from rows by nodes that compare projections
# (packed.h).
cdef enum:
    BY_ROWS, BY_COLUMNS, BY_PROJECTIONS

cdef struct Walk:
    # The arguments of a call for either dtype: x, thresholds and values are float if `single`, else double.
    hf_forest forest
    const void* x             # (n_samples, n_features), or the array into which `base` points
    const int64_t* base       # (n_samples,): positions of the rows in x, used with forest.offset; or NULL
    const void* value         # (n_leaves, n_outputs)
    int32_t* leaf             # OUT (n_samples, n_trees), or NULL
    void* y                   # OUT (n_samples, n_outputs), or NULL
    bint single
    int64_t n_trees
    int64_t n_features
    int64_t n_samples
    int64_t n_outputs
    int64_t n_entries         # entries of projections
    bint vote
    bint node_by_node         # splits by projections or categories, or missing values
    bint packs                # trees can be packed for many samples
    int path
    int way
    # Packed trees, or NULL: nodes, top levels, classes of the leaves, and the trees whose leaves have
    # classes.
    char* nodes
    int width                 # width of nodes that compare projections (packed.h)
    char* entries             # unless HF_PAIR: n_entries, then one for each node that compares a feature
    hf_top* tops
    int32_t* class_of
    char* has_classes
    # Samples per block; walks between two checks for signals.
    int64_t block
    int64_t walks
    hf_watch* watch


cdef inline int64_t entry_size(const Walk* w) noexcept nogil:
    return sizeof(hf_float_entry) if w.single else sizeof(hf_double_entry)


cdef inline int64_t node_size(const Walk* w) noexcept nogil:
    if w.way == BY_PROJECTIONS:
        return (1 + max(w.width, 1) + (w.width == HF_QUAD)) * entry_size(w)
    return sizeof(hf_float_node) if w.single else sizeof(hf_double_node)


cdef inline int key_form(const Walk* w, int64_t n_nodes) noexcept nogil:
    # Returns the form of a tree's nodes for columns: 8 bytes if columns and nodes have 16-bit numbers.
    if not w.single:
        return HF_DOUBLE_KEYS
    cdef int64_t n_columns = w.n_features * (HF_DOWN // 2)
    return HF_SMALL_KEYS if n_nodes < HF_SMALL and n_columns < HF_SMALL else HF_FLOAT_KEYS


cdef Walk walk_of(samples, forest)
cdef int width_of(const Walk* w, int64_t n_nodes) noexcept nogil
cdef int way_of(const Walk* w, int64_t n_nodes) noexcept nogil
cdef void pack_tree(const Walk* w, const real* threshold, int64_t tree) noexcept nogil
cdef void make_columns(
    const Walk* w, const real* x, const int64_t* base, int64_t n, void* columns
) noexcept nogil
cdef void find_leaves(
    const Walk* w, const char* x, const int64_t* base, const char* columns, int64_t n, int64_t first,
    int64_t last, int32_t* scratch, int32_t* leaf, int64_t row_stride, int64_t tree_stride,
) noexcept nogil
cdef bint write_classes(const Walk* w, const real* value, int64_t tree) noexcept nogil
cdef void add_leaves(
    const Walk* w, const real* value, int64_t first, int64_t last, int64_t n, const int32_t* leaf,
    int64_t tree_stride, double* total,
) noexcept nogil
cdef int64_t largest(const real* row, int64_t n) noexcept nogil
cdef int64_t only_class(const real* row, int64_t n) noexcept nogil
