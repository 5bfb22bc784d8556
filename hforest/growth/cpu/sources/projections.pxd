from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from hforest.growth.cpu.sources.stored cimport hf_stored_numbers
from hforest.growth.cpu.task cimport hf_draw, hf_source

cdef extern from "core/projections.h" nogil:
    int HF_AXES, HF_KERNELS, HF_PATCH
    ctypedef struct hf_distribution:
        int kind
        int64_t n_features
        double density
        double zero_probability
        int64_t* shape
        int64_t channels
        int64_t* low
        int64_t* high
        bint cyclic
        int64_t max_entries
        const int32_t* table
        int64_t n_candidates
    ctypedef struct hf_candidate:
        uint64_t key
    ctypedef struct hf_patch:
        int64_t* corner
        int64_t* size
        int64_t channel
    hf_patch hf_patch_of(const hf_distribution* a, hf_draw sizes, hf_draw corners)
    int64_t hf_patch_entries(const hf_distribution* a, hf_patch p, uint32_t* index, float* weight)
    int64_t hf_draw_projection(
        const hf_distribution* a, hf_candidate c, hf_draw first, uint32_t* index, float* weight
    )
    hf_candidate hf_candidate_of(const hf_distribution* a, uint64_t key, uint64_t number)

ctypedef fused real:
    float
    double

ctypedef fused corner_t:
    uint16_t
    uint32_t


# The entries of a projection.
ctypedef struct hf_entries:
    uint64_t key       # key that draws the entries
    int64_t n          # 0: not drawn yet
    uint32_t* index    # (max_entries,)
    float* factor
    int64_t* place     # position of the element of x, relative to the sample's


# Random projections of x.
ctypedef struct hf_projections:
    hf_distribution distribution
    const void* x            # (n, n_features), float or double; NULL for a sparse matrix
    const int64_t* offset    # for windows: (n_features,), relative to the position of a window; else NULL
    int64_t n_numbers        # for windows: the size of x
    hf_stored_numbers stored  # for a sparse matrix; else all NULL
    bint single
    bint whole               # x holds integers whose sums are exact: values are int32
    const uint8_t* bytes     # copy of x if all elements fit in bytes, or NULL
    const void* columns      # copy of x, or of bytes, as (n_features, n_samples); NULL for windows
    const void* corners      # (n, planes * (shape[1] + 1) * (shape[2] + 1)) prefix sums in two axes; or NULL
    bint narrow              # the corners have 16 bits, not 32
    bint random_thresholds   # one random threshold per projection instead of the best

cdef hf_source source_of_projections(const hf_projections* projections) noexcept nogil
cdef hf_distribution distribution_of(distribution, const int32_t[::1] table)
