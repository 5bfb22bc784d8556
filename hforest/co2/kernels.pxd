# Stumps (stump.h) and coordinate-wise searches (oc1.h).

from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t, uint64_t

from hforest.core.machine cimport hf_watch
from hforest.growth.task cimport hf_pending, hf_task, hf_workspace

cdef extern from "co2/stump.h" nogil:
    int HF_LANES
    ctypedef struct hf_rows:
        const void* x
        int64_t n
        int64_t n_features
        int64_t n_full
        int64_t n_blocks
        int offset
    ctypedef struct hf_members:
        int64_t n
        const uint32_t* sample
        const int32_t* label
        const double* targets
        const double* weight
        uint32_t* order
        int8_t* sign
    ctypedef struct hf_losses:
        int64_t n_outputs
        int squared
        double* theta[2]
        double* loss[2]
    ctypedef struct hf_pull:
        double* sum[2]
        double weight[2]
    ctypedef struct hf_schedule:
        double nu
        double eta
        double momentum
        double decay
        double tolerance
        double smooth
        int64_t tau
        int64_t batch
        int64_t min_steps
        int64_t patience
        int64_t max_rounds
        int64_t convex_rounds
        int64_t min_samples
    ctypedef struct hf_stump_workspace:
        void* w
        void* slope
        double* theta[2]
        double* loss[2]
        double* pull[2]
        uint32_t* order
        int8_t* sign
        double* product
        double* start
    int hf_make_stump(hf_stump_workspace* s, int64_t n, int64_t n_blocks, int64_t n_outputs, int single)
    void hf_free_stump(hf_stump_workspace* s)
    void hf_prepare(int path, hf_losses* losses)
    double hf_surrogate(const hf_members* m, const hf_losses* losses, const double* product)
    ctypedef struct hf_loops:
        void (*products)(
            const hf_rows* rows, const hf_members* m, const void* w, double* product
        ) noexcept nogil
        double (*slopes)(
            const hf_rows* rows, const hf_members* m, const hf_losses* losses, const void* w, int64_t first,
            int64_t last, void* slope, hf_pull* pull,
        ) noexcept nogil
    const hf_loops* hf_loops_of(int single, int path)
    double hf_slope_of_theta(const hf_losses* losses, const hf_pull* pull, int side, int64_t k)
    int64_t hf_fit_stump(
        int path, int single, const hf_rows* rows, hf_members* m, const hf_schedule* c, int64_t n_outputs,
        uint64_t key, hf_stump_workspace* s, double* history, hf_watch* watch,
    )

cdef extern from "co2/oc1.h" nogil:
    ctypedef struct hf_oc1:
        int64_t restarts
        int64_t jumps
    ctypedef struct hf_oc1_workspace:
        double* w
    int hf_make_oc1(hf_oc1_workspace* o, const void* x, int64_t n_features, int offset, int single, int64_t n)
    void hf_free_oc1(hf_oc1_workspace* o)
    void hf_fit_oc1(
        const hf_task* t, hf_workspace* r, const hf_pending* node, const hf_oc1* c, uint64_t key,
        hf_oc1_workspace* o, double* w,
    )
