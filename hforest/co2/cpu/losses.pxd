from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t

from hforest.co2.cpu.rows cimport hf_rows
from hforest.core.machine cimport hf_watch
from hforest.core.series cimport hf_exp

cdef extern from "co2/fit.h":
    enum:
        HF_CHUNK


# The samples of a node, with arrays (n,) of their own.
ctypedef struct hf_members:
    int64_t n
    const uint32_t* sample    # row of x and of the targets
    const int32_t* label      # or NULL for targets
    const double* targets     # (n_rows, n_outputs), or NULL
    const double* weight
    uint32_t* order           # the order in which samples are visited
    int8_t* sign              # sign of w_old.x; NULL: w_old = w
    # For windows, copies of rows: of the first n_copied samples, and space for HF_TOGETHER more; else NULL.
    char* copies
    int64_t n_copied

# theta (n_outputs,) of both sides, and the log loss of each class there.
ctypedef struct hf_losses:
    int64_t n_outputs
    double* theta[2]
    double* loss[2]

# Sums over samples.
ctypedef struct hf_sums:
    double terms        # of the surrogate
    double weight       # of all samples
    double weights[2]   # of the samples of each side
    double* outputs[2]  # (n_outputs,) of each side: the weights by class, or the weighted targets
    void* slope         # (n_blocks, 16), with the dtype of x: subgradient with respect to w

# What passes over the samples of a node read and write.
ctypedef struct hf_passes:
    const hf_rows* rows
    const hf_members* m
    const hf_losses* losses
    const void* w       # (n_blocks, 16)
    double* product     # (n,): w.x of the samples, in the order of the pass; or NULL
    # Sums of n_chunks chunks that threads visit at a time, `stride` bytes apart: no two share a cache line.
    char* chunks
    int64_t n_chunks
    int64_t stride
    double* slope       # (n_blocks, 16): sums over chunks
    int n_threads       # 1: the call may be within a parallel loop
    hf_watch* watch

cdef void copy_members(const hf_rows* rows, hf_members* m) noexcept nogil
cdef void fill_rows(
    const hf_rows* rows, const hf_members* m, const uint32_t* order, int64_t first, const void** row
) noexcept nogil
cdef void write_log_losses(const double* theta, int64_t n_outputs, double* loss) noexcept nogil
cdef void write_losses(const hf_members* m, const hf_losses* losses) noexcept nogil
cdef void sum_terms(const hf_passes* p, bint with_products, hf_sums* sums) noexcept nogil
cdef void sum_sides(const hf_passes* p, hf_sums* sums) noexcept nogil
cdef void sum_slopes(const hf_passes* p, int64_t first, int64_t last, hf_sums* sums) noexcept nogil


cdef inline hf_sums* sums_of_chunk(const hf_passes* p, int64_t c) noexcept nogil:
    return <hf_sums*> (p.chunks + c * p.stride)


cdef inline double theta_slope(
    const hf_members* m, const hf_losses* losses, const hf_sums* sums, int side, int64_t k
) noexcept nogil:
    # Returns the derivative of the loss of a side with respect to theta[k], from its weight W and the sum of
    # output k: W softmax(theta)[k] - sum for labels, 2 (W theta[k] - sum) for targets.
    if m.label != NULL:
        return sums.weights[side] * hf_exp(-losses.loss[side][k]) - sums.outputs[side][k]
    return 2 * (sums.weights[side] * losses.theta[side][k] - sums.outputs[side][k])
