from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from hforest.growth.cpu.sources.columns cimport hf_columns, hf_range, hf_stored_rows
from hforest.growth.cpu.task cimport hf_pending, hf_split, hf_task, hf_workspace


cdef enum:
    STORED_AHEAD = 16  # columns whose values are prefetched while those of another one are read

# The place of a sample.
ctypedef struct hf_place:
    uint32_t node    # the number of the node in which the sample was last
    uint32_t at      # its position in that node

# A value that a sample of a node stores.
ctypedef struct hf_stored_value:
    int32_t next     # the number of the next value of its column, or -1
    int32_t at       # the position of its sample in the node
    int32_t entry    # the number of the value in the column

# The values of a column that the samples of a node store.
ctypedef struct hf_stored_column:
    uint32_t node    # the number of the last node in which the column stores a value
    int32_t first    # the number of its first value in that node

# The workspace of a tree grown on a sparse matrix: r.stored. A candidate stores k values of a node.
ctypedef struct hf_stored_in_node:
    hf_place* place   # (t.n,)
    int32_t* at       # (n + 1,)  for each of k values: the position of its sample in the node
    int32_t* entry    # (n + 1,)  the number of the value in the column
    int32_t* bin      # (n,)      the bin of the value
    uint32_t node     # the number of the last node
    # For nodes whose samples store few values: these values, in lists by column.
    hf_stored_column* column  # (n_columns,)
    hf_stored_value* value    # (max_values,)
    int64_t max_values
    bint is_by_rows   # whether the lists are those of the last node; else its samples have places
    # For a projection: positions in the node of the samples that store a value of it, and their sums.
    int32_t* touched  # (n,)
    double* sum       # (n,)    by position
    uint8_t* is_touched  # (n,)  by position; 0 between two candidates

# The values of a sparse matrix: feature f has values indptr[f] to indptr[f + 1] - 1.
ctypedef struct hf_stored_numbers:
    const int64_t* indptr    # (n_features + 1,)
    const int32_t* sample    # (n_stored,)  ascending in each feature
    const void* number       # (n_stored,)  float or double
    hf_stored_rows rows

cdef void start_stored(const hf_task* t, hf_workspace* r, const hf_stored_rows* rows) noexcept nogil
cdef void place_samples(
    const hf_task* t, hf_workspace* r, const hf_stored_rows* rows, const hf_pending* node
) noexcept nogil
cdef void prefetch_stored(const hf_workspace* r, const hf_columns* c, int64_t column) noexcept nogil
cdef int64_t find_stored(
    const hf_workspace* r, const hf_pending* node, int64_t column, const int32_t* sample, int64_t n_stored
) noexcept nogil
cdef bint scan_stored(
    const hf_task* t, hf_workspace* r, const hf_pending* node, double weight, const int32_t* at,
    const int32_t* bin, int64_t k, int32_t by_default, hf_split* best
) noexcept nogil
cdef int64_t add_stored(
    hf_workspace* r, const hf_stored_numbers* a, const hf_pending* node, bint single, const uint32_t* index,
    const float* factor, int64_t n_entries
) noexcept nogil
cdef int64_t stored_bins(
    const hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t column
) noexcept nogil
cdef hf_range stored_range(
    const hf_workspace* r, const hf_columns* c, int64_t column, int64_t k, int64_t n
) noexcept nogil
cdef hf_range read_stored(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t column,
    int32_t* bin
) noexcept nogil
cdef bint scan_few(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight,
    int64_t column, bint* varies, hf_split* best
) noexcept nogil
cdef hf_split best_random_stored(
    const hf_task* t, hf_workspace* r, hf_pending* node, uint64_t key, double weight
) noexcept nogil
