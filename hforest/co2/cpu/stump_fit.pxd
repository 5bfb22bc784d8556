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

cdef void start_stump(
    hf_stump_workspace* s, hf_arena* arena, const hf_rows* rows, int64_t n, int64_t n_outputs, int n_threads,
    hf_watch* watch
) noexcept nogil
cdef void fit_hyperplane(
    hf_members* m, const hf_schedule* c, uint64_t key, hf_stump_workspace* s, double* history
) noexcept nogil
