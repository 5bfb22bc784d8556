from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t

from hforest.co2.cpu.rows cimport hf_rows

cdef extern from "core/series.h" nogil:
    double HF_LN2
    double hf_exp(double a)
    double hf_log2(double a)


# The samples of a node, with arrays (n,) of their own.
ctypedef struct hf_members:
    int64_t n
    const uint32_t* sample    # row of x and of the targets
    const int32_t* label      # or NULL for targets
    const double* targets     # (n_rows, n_outputs), or NULL
    const double* weight
    uint32_t* order           # the order in which samples are visited
    int8_t* sign              # sign of w_old.x
    # For windows, copies of rows: of the first n_copied samples, and space for HF_TOGETHER more; else NULL.
    char* copies
    int64_t n_copied

# theta (n_outputs,) of both sides, and the log loss of each class there.
ctypedef struct hf_losses:
    int64_t n_outputs
    double* theta[2]
    double* loss[2]

# Sums over the samples of each side, (n_outputs,): the weights by class, or the weighted targets; and the
# weight of the side.
ctypedef struct hf_pull:
    double* sum[2]
    double weight[2]

cdef void copy_members(const hf_rows* rows, hf_members* m) noexcept nogil
cdef void fill_rows(
    const hf_rows* rows, const hf_members* m, const uint32_t* order, int64_t first, const void** row
) noexcept nogil
cdef void write_losses(const hf_members* m, const hf_losses* losses) noexcept nogil
cdef void write_products(
    const hf_rows* rows, const hf_members* m, const void* w, double* product
) noexcept nogil
cdef double sum_surrogate(
    const hf_members* m, const hf_losses* losses, const double* product
) noexcept nogil
cdef double add_slopes(
    const hf_rows* rows, const hf_members* m, const hf_losses* losses, const void* w, int64_t first,
    int64_t last, void* slope, hf_pull* pull
) noexcept nogil


cdef inline double theta_slope(
    const hf_members* m, const hf_losses* losses, const hf_pull* pull, int side, int64_t k
) noexcept nogil:
    # Returns the derivative of the loss of a side with respect to theta[k]: W softmax(theta)[k] - sum[k] for
    # labels, 2 (W theta[k] - sum[k]) for targets.
    if m.label != NULL:
        return pull.weight[side] * hf_exp(-losses.loss[side][k]) - pull.sum[side][k]
    return 2 * (pull.weight[side] * losses.theta[side][k] - pull.sum[side][k])


cdef inline void add_pull(
    const hf_members* m, const hf_losses* losses, hf_pull* pull, int side, int64_t at
) noexcept nogil:
    # Adds sample `at` to the sums of a side.
    cdef const double* y
    cdef double weight = m.weight[at]
    cdef int64_t k
    pull.weight[side] += weight
    if m.label != NULL:
        pull.sum[side][m.label[at]] += weight
        return
    y = m.targets + <int64_t> m.sample[at] * losses.n_outputs
    for k in range(losses.n_outputs):
        pull.sum[side][k] += weight * y[k]
