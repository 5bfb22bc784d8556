"""The orders in which a node scans columns."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from hforest.growth.cpu.sources.columns cimport hf_columns
from hforest.growth.cpu.sources.feature_sampling cimport hf_features
from hforest.growth.cpu.sources.on_demand cimport hf_encoder
from hforest.growth.cpu.task cimport hf_pending, hf_split, hf_task, hf_workspace


# The workspace of a tree, and the column that a node scans.
ctypedef struct hf_orders:
    int32_t* bin        # (n,)  the stored bin of each sample
    int32_t* scanned     # (n,)  place of each sample's bin in the order that is scanned
    int32_t* number      # (n_bins,)  group of a category; -1 if absent, and between two columns
    int32_t* present     # (n_bins,)  bins of the node, ascending
    int32_t* place       # (n_bins,)  place of each group in the order
    int32_t* sorted      # (n_bins,)  scratch of hf_place_categories; groups
    double* sums         # (n_bins, n_outputs)  sums of each group by class or output
    double* weight       # (n_bins,)  weight of each group
    double* score        # (n_bins,)  number by which groups are ordered
    double* total        # (n_outputs,)  sums of the node
    int64_t* whole       # (n_bins, n_outputs + 1)  sums of the terms of groups, and of u
    double* axis         # (2, n_outputs)  scratch of hf_score_categories
    uint8_t* side        # (n_bins,)  1: the category goes right, in a random split
    uint8_t* best_side   # (n_bins,)  as `side`, for the best split so far
    uint32_t* words      # the set of categories that the best split sends left
    int64_t n_words
    int64_t n_present    # categories of the node
    int64_t n_groups     # groups of them, of which each has a place (growth/categories.h)
    int32_t missing      # the bin of missing values; -1: the column has none
    bint categorical
    bint has_missing     # the node has missing values


# The workspace of a tree grown on columns of bins: r.columns.
ctypedef struct hf_column_workspace:
    const hf_columns* columns
    hf_features features
    hf_orders orders
    hf_encoder encoder
    uint32_t* twice      # (2 n_columns,): the sampled features, twice if they have missing values; or NULL
    uint32_t* place      # (n,): for float64 windows, to rank their values
    uint32_t* place2

cdef void start_orders(const hf_task* t, hf_workspace* r, const hf_columns* c, hf_orders* o) noexcept nogil
cdef int read_orders(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight,
    int64_t column, hf_orders* o
) noexcept nogil
cdef const int32_t* fill_order(const hf_task* t, hf_orders* o, int64_t n, int number) noexcept nogil
cdef void keep_order(const hf_task* t, hf_orders* o, int64_t n, int number, hf_split* best) noexcept nogil
cdef void keep_column(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, hf_orders* o,
    hf_split* best
) noexcept nogil
cdef int64_t split_randomly(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, uint64_t key,
    int64_t number, hf_orders* o, hf_split* split, uint32_t* left
) noexcept nogil
cdef void keep_sides(hf_orders* o) noexcept nogil
cdef void fill_sides(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, hf_orders* o,
    hf_split* split
) noexcept nogil
