# The inner loops of the scorers: scalar ones in bodies.pyx, vector ones in simd/.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

cdef extern from "core/simd.h" nogil:
    int HF_PATH_PLAIN

cdef extern from "core/order.h" nogil:
    int32_t hf_code_of_float(float a)
    float hf_float_of_code(int32_t code)

cdef extern from "growth/cpu/scorers/bodies.h" nogil:
    int HF_PAIRWISE_SAMPLES, HF_HISTOGRAM_CLASSES, HF_HISTOGRAM_BINS
    int HF_TILE_CANDIDATES, HF_TILE_SAMPLES, HF_VALUE_PAIRS, HF_BUCKETS
    ctypedef union hf_rates:
        float* value
        int32_t* bits
    ctypedef struct hf_splits:
        uint32_t* left_weight
        uint32_t* left_square
        uint32_t* right_square
        hf_rates rate
        uint32_t all
        uint32_t square
    ctypedef struct hf_wide_splits:
        double* left_weight
        double* left_square
        double* right_square
        double all
        double square
    ctypedef struct hf_pairwise:
        uint8_t* bin
        uint8_t* left_weight
        uint16_t** left_square
        uint16_t** right_square
        hf_rates* rate
        uint32_t* sample
        uint8_t* weight
        int32_t* last
        uint32_t* total
        int64_t n
        int64_t n_present
        uint32_t all
        uint32_t square
    ctypedef struct hf_value_pairs:
        hf_splits splits
        int32_t* bin
        uint32_t* weight
        int32_t* last
        uint32_t* total
        uint8_t* place
        int64_t n
        int64_t n_present
    ctypedef struct hf_histogram:
        uint16_t** counts
        uint16_t* count
        hf_splits splits
        uint8_t** tile
        uint32_t* number
        uint8_t* place
        uint32_t* total
        int64_t n_present
        int n_steps
        int n_bins
    ctypedef struct hf_buckets:
        hf_splits splits
        hf_wide_splits wide
        uint32_t* count
        uint32_t* inside
        uint32_t* second
        int32_t* alive
        uint32_t* total
        int64_t n
        int64_t n_present
        int log_steps
        int log_lanes
        bint is_wide
        bint whole
        bint exact
        int32_t lowest
        int32_t usual
        int32_t usual_place
        float least
        float scale
    ctypedef struct hf_lanes:
        const void** column
        int64_t stride
        int64_t n
        const uint32_t* sample
        const uint32_t* payload
        void* value
        const int64_t* last
        const double* total
        int64_t n_runs
        uint32_t mask
        double* least
        double* greatest
        double* threshold
        double* weight
        double* left_square
        double* right_square
    ctypedef struct hf_gains:
        double* length
        double* product
        double* path
        int64_t* alive
    ctypedef struct hf_bodies:
        int log_lanes
        void (*sum_pairs)(int per, hf_pairwise* p) noexcept nogil
        float (*rate_pairs)(int per, hf_pairwise* p) noexcept nogil
        void (*sum_values)(hf_value_pairs* p) noexcept nogil
        void (*sum_bins)(hf_histogram* h) noexcept nogil
        void (*find_range)(const int32_t* bin, int64_t n, int32_t* range_) noexcept nogil
        void (*fill_buckets)(
            const hf_buckets* s, const int32_t* bin, int64_t n, uint8_t* bucket
        ) noexcept nogil
        void (*sum_buckets)(hf_buckets* s) noexcept nogil
        void (*find_alive)(hf_buckets* s, float limit) noexcept nogil
        float (*rate)(int n, hf_splits* s) noexcept nogil
        void (*add_row)(int64_t* sum, const int64_t* q, int64_t n) noexcept nogil
        void (*measure_row)(
            int64_t* sum, int64_t* least, int64_t* greatest, const int64_t* q, int64_t n
        ) noexcept nogil
        double (*distances)(const int64_t* sum, const double* mean, double left, int64_t n) noexcept nogil
        double (*greatest_gain)(const hf_gains* g, double margin, int n) noexcept nogil
        void (*mark_gains)(hf_gains* g, double total, double bound, int n) noexcept nogil
        void (*read_lanes)(int single, hf_lanes* lanes) noexcept nogil
        void (*sum_lanes)(int single, hf_lanes* lanes) noexcept nogil
        void (*count_smaller)(int single, const void* value, int64_t n, uint32_t* count) noexcept nogil

# Return the functions of a vector path; bodies_of_width returns those with float64 sums if is_wide.
cdef hf_bodies bodies_of_width(int path, bint is_wide) noexcept nogil
cdef const hf_bodies* bodies_of(int path) noexcept nogil


cdef inline double score_at(const hf_splits* s, int64_t i) noexcept nogil:
    # Returns the score of split i in float64.
    return (
        <double> s.left_square[i] / <double> s.left_weight[i]
        + <double> s.right_square[i] / <double> (s.all - s.left_weight[i])
    )


cdef inline float real_of(const hf_buckets* s, int32_t bin) noexcept nogil:
    # Returns the value of a bin.
    return <float> bin if s.whole else hf_float_of_code(bin)


cdef inline int bucket_of(const hf_buckets* s, int32_t bin) noexcept nogil:
    # Returns the bucket of a bin.
    cdef int c = <int> ((real_of(s, bin) - s.least) * s.scale)
    return c if s.exact else c + (bin >= s.usual) + (bin > s.usual)


cdef inline int place_of(const hf_buckets* s, int c) noexcept nogil:
    # Returns the place of bucket c.
    return (c & ((1 << s.log_steps) - 1)) << s.log_lanes | c >> s.log_steps
