from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from hforest.growth.cpu.task cimport HF_PREFETCH, hf_pending, hf_task, hf_workspace

cdef enum:
    NEAR_COLUMNS = 1 << 19        # size of all columns up to which they stay in L2
    PREFETCHED_SAMPLES = 512      # samples up to which this pays; hardware prefetches for larger nodes


cdef inline bint is_prefetched(int64_t n, int64_t n_bytes) noexcept nogil:
    # Returns whether columns of n_bytes in all are prefetched for a node of n samples.
    return n <= PREFETCHED_SAMPLES and n_bytes > NEAR_COLUMNS


cdef inline void prefetch_numbers(
    const char* column, int64_t n_all, int size, const uint32_t* sample, int64_t n
) noexcept nogil:
    # Prefetches the elements of n of n_all samples in a column; an element has `size` bytes.
    cdef int64_t i, n_lines = n_all * size // 64 + 1
    for i in range(min(n, n_lines)):
        HF_PREFETCH(column + (<int64_t> sample[i] * size if n < n_lines else 64 * i))


cdef bint start_samples(
    const hf_task* t, hf_workspace* r, const int32_t* counts, const int32_t* order, int64_t first,
    int64_t last
) noexcept nogil
cdef bint is_pure(const hf_task* t, const hf_workspace* r, const hf_pending* node) noexcept nogil
cdef bint start_unit(const hf_task* t, hf_workspace* r, int64_t number, hf_pending* root) noexcept nogil
cdef double sum_up(const hf_task* t, hf_workspace* r, hf_pending* node) noexcept nogil
cdef double score_left(
    const hf_task* t, hf_workspace* r, const hf_pending* node, const uint32_t* left, int64_t n_left,
    double weight
) noexcept nogil
cdef double score_sides(
    const hf_task* t, hf_workspace* r, const hf_pending* node, double weight
) noexcept nogil
cdef int64_t partition(hf_workspace* r, const hf_pending* node) noexcept nogil
cdef int64_t number_classes(
    const hf_task* t, hf_workspace* r, int64_t max_classes, uint32_t* total, uint32_t* square
) noexcept nogil
cdef void place_by_class(
    const hf_workspace* r, const hf_pending* node, int64_t n_present, int32_t* last, uint8_t* place
) noexcept nogil
