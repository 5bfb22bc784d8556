from libc.stdint cimport int8_t, int64_t, uint32_t, uint64_t

from hforest.co2.cpu.losses cimport hf_losses, hf_members, hf_passes, hf_sums
from hforest.co2.cpu.rows cimport hf_rows
from hforest.core.arena cimport hf_arena
from hforest.core.machine cimport hf_watch


# Schedule of stump.py as a struct.
ctypedef struct hf_schedule:
    double nu
    double eta
    double momentum
    double decay          # factor of eta after rounds that lower the surrogate
    double tolerance      # a round that lowers the surrogate by a smaller share makes no progress
    double smooth         # added to the weight of each class before the logarithm in the first theta
    int64_t tau
    int64_t batch
    int64_t min_steps     # steps per round at least, because small nodes have few batches
    int64_t patience      # rounds without progress after which eta still stays
    int64_t max_rounds
    int64_t convex_rounds   # first rounds, in which the sign of w_old.x is taken as 0
    int64_t min_samples   # nodes with fewer samples are not fitted: w = 0

# w, v and best_w: (n_blocks, 16) with the dtype of x, zeros after the last feature and the offset.
ctypedef struct hf_stump_workspace:
    void* w
    void* v               # the velocity of w
    void* best_w
    hf_losses losses
    hf_passes passes
    hf_sums* sums         # of a step, or of all samples
    double* speed[2]      # (n_outputs,): the velocity of theta
    double* best_theta[2]
    uint32_t* order       # (n,)
    uint32_t* shuffled
    int8_t* sign
    double* start         # (n_blocks, 16): w in float64, for OC1's search
    char* copies          # (room + HF_TOGETHER,) rows of windows; else NULL

cdef size_t w_bytes(const hf_rows* rows) noexcept nogil
# Scales w (IN, OUT (n_blocks, 16)) onto the ball ||w||**2 <= nu if it is outside (Alg. 1, lines 15 and 16).
cdef void project(const hf_rows* rows, void* w, double nu) noexcept nogil
# Sets v (IN, OUT) = momentum v - rate slope and w (IN, OUT) += v, and projects w onto the ball.
cdef void move(
    const hf_rows* rows, void* w, void* v, const void* slope, double momentum, double rate, double nu
) noexcept nogil
# Writes the order of an epoch: each sample once, in equal strides over `shuffled` from a random start.
cdef void order_epoch(
    uint64_t key, uint64_t epoch, const uint32_t* shuffled, uint32_t* order, int64_t n
) noexcept nogil
# Returns the epochs of a round in which n samples take n_steps each.
cdef int64_t epochs_of(const hf_schedule* c, int64_t n_steps) noexcept nogil
cdef void start_stump(
    hf_stump_workspace* s, hf_arena* arena, const hf_rows* rows, int64_t n, int64_t n_outputs, int n_threads,
    hf_watch* watch
) noexcept nogil
cdef void fit_hyperplane(
    hf_members* m, const hf_schedule* c, uint64_t key, hf_stump_workspace* s, double* history
) noexcept nogil
