# Columns of bins, and how the bins of a node are read from them.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from hforest.growth.cpu.node_samples cimport NEAR_COLUMNS
from hforest.growth.cpu.task cimport hf_pending, hf_task, hf_workspace

cdef enum:
    NEAR_SAMPLES = 64      # samples up to which columns that fit in L2 are read from rows


# The values that each sample of a sparse matrix stores.
ctypedef struct hf_stored_rows:
    const int64_t* indptr    # (n + 1,)
    const int32_t* column    # (n_stored,)
    const int32_t* entry     # (n_stored,)  the number of the value in its column
    int64_t n
    int64_t n_columns


# Positions of the bins of a sparse matrix: column f has bins indptr[f] to indptr[f + 1] - 1.
ctypedef struct hf_stored:
    const int64_t* indptr    # (n_columns + 1,)
    const int32_t* sample    # (n_stored,)  ascending in each column
    const int32_t* by_default  # (n_columns,)  the bin of samples that the column does not store
    const int64_t* table     # (n_columns,)  position of the tables of a column
    hf_stored_rows rows


# Standardized columns of windows: feature f is (x[sample + offset[f]] - mean[f]) / deviation[f], computed in
# float64 and rounded once.
ctypedef struct hf_standardized:
    const void* x            # float or double; NULL: the columns have bins
    const int64_t* offset    # (n_columns,)
    const double* mean
    const double* deviation


cdef struct hf_columns


# The least and the greatest bin of some samples.
ctypedef struct hf_range:
    int32_t lowest
    int32_t highest

# Writes the bins of a node's samples in a column to `bin` (OUT (n,)) and returns their range.
ctypedef hf_range (*hf_reader)(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t column,
    int32_t* bin
) noexcept nogil


# Columns of bins. Bin b of column f represents the values from low[f * n_bins + b] to high[f * n_bins + b],
# or the value of each of its samples. Standardized columns of windows have no bins, but codes of their values
# (float32) or ranks in the node (float64).
cdef struct hf_columns:
    const void* bins         # (n_columns, n) of `width` bytes
    int width
    hf_reader read
    # Whether the pairwise and histogram scorers take these 8-bit bins. If there are missing values, each
    # column occurs twice: in column n_columns + f, the missing values of f come first.
    bint are_bytes
    int64_t n_columns
    const double* low        # (n_columns, n_bins); or NULL
    const double* high
    const char* numbers      # float or double (n, n_columns), with these strides in bytes; NULL if low is not
    int64_t[2] strides
    int64_t n_bins
    int32_t* state           # (n_columns,): whether a column is encoded (on_demand.pyx); NULL: all are
    const uint8_t* rows      # copy of 8-bit bins, (n, n_columns); or NULL
    # For windows: one row of bins and tables for all columns; the bin of sample i in column f is number
    # base[i] + offset[f]. NULL for other columns.
    const int64_t* offset
    const int64_t* missing   # (n_columns,): the bin of missing values, or -1; NULL: there are none
    const uint8_t* categorical  # (n_columns,): whether bins are categories; NULL: none are
    bint random_thresholds   # one random threshold per candidate instead of the best
    # For a sparse matrix, whose bins are (n_stored,) and whose tables are (n_all_bins,); else all NULL.
    hf_stored stored
    hf_standardized windows


cdef inline double number_of(
    const hf_standardized* a, bint single, uint32_t sample, int64_t column
) noexcept nogil:
    # Returns the value of a window in a column; -0 becomes 0.
    cdef int64_t at = sample + a.offset[column]
    if single:
        return <float> ((<double> (<const float*> a.x)[at] - a.mean[column]) / a.deviation[column]) + 0.0
    return ((<const double*> a.x)[at] - a.mean[column]) / a.deviation[column] + 0.0


cdef inline bint is_stored(const hf_columns* c) noexcept nogil:
    # Returns whether the columns are those of a sparse matrix.
    return c.stored.indptr != NULL


cdef inline int64_t bins_at(const hf_columns* c, const hf_task* t, int64_t column) noexcept nogil:
    # Returns the position of the first bin of a column.
    return c.offset[column] if c.offset != NULL else column * t.n


cdef inline int64_t table_at(const hf_columns* c, int64_t column) noexcept nogil:
    # Returns the position of a column's row in the tables.
    if is_stored(c):
        return c.stored.table[column]
    return 0 if c.offset != NULL else column * c.n_bins


cdef inline bint has_orders(const hf_columns* c, int64_t column) noexcept nogil:
    # Returns whether a column has missing values, or categories.
    return c.missing != NULL and (
        c.missing[column] >= 0 or (c.categorical != NULL and c.categorical[column])
    )


cdef inline bint is_by_rows(const hf_columns* c, const hf_task* t, int64_t n) noexcept nogil:
    # Returns whether the bins of n samples of a node are read from rows: if this fetches fewer cache lines
    # than the candidates' columns do; or, if all columns stay in cache, for few samples.
    cdef int64_t row = min(c.n_columns // 64 + 1, t.n_candidates), column = t.n // 64 + 1
    if c.rows == NULL:
        return False
    if t.n * c.n_columns <= NEAR_COLUMNS:
        return n <= NEAR_SAMPLES
    if n * row * 64 > NEAR_COLUMNS:
        row = t.n_candidates  # each candidate fetches the cache line again
    return n * row <= t.n_candidates * min(column, n)
