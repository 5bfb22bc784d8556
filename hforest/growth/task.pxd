# What growing a tree works on: see task.h.

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from hforest.core.machine cimport hf_watch

cdef extern from "core/philox.h" nogil:
    ctypedef struct hf_draw:
        uint32_t word[4]
    hf_draw hf_philox(uint64_t key, uint64_t counter, uint64_t stream)
    uint64_t hf_draw_key(hf_draw draw, int which)
    uint32_t hf_below(uint32_t word, uint32_t stop)
    double hf_unit(hf_draw draw)

cdef extern from "core/score.h" nogil:
    int HF_GINI, HF_ENTROPY
    double hf_xlogx(double a)
    double hf_node_score(int criterion, const double* count, int64_t n, double weight)
    double hf_between_f32(double low, double high)
    double hf_between_f64(double low, double high)

cdef extern from "core/counting.h" nogil:
    void HF_COUNT(const char* package, const char* body)  # both constant

cdef extern from "core/simd.h" nogil:
    void HF_PREFETCH(const void* address)

cdef extern from "growth/task.h" nogil:
    int HF_STREAM_BOOTSTRAP, HF_STREAM_CHILDREN, HF_STREAM_CANDIDATES, HF_STREAM_THRESHOLD
    int HF_STREAM_DIRECTION, HF_MISSING_LEFT, HF_UNKNOWN_LEFT
    int HF_KEYS_32, HF_KEYS_64, HF_FLOATS
    ctypedef struct hf_pending:
        int64_t first
        int64_t last
        uint64_t key
        int32_t depth
        int32_t side
        int64_t at
    ctypedef struct hf_split:
        double score
        int64_t column
        uint32_t low
        uint32_t high
        double below
        double above
        double threshold
        int missing
        int default_left
    ctypedef struct hf_tree:
        int32_t* feature
        int32_t* left
        double* threshold
        double* gain
        void* value
        int64_t n_nodes
        int64_t n_leaves
        int64_t n_rows
        int64_t node_capacity
        int64_t row_capacity
        int64_t* indptr
        uint32_t* indices
        double* data
        int64_t n_entries
        int64_t entry_capacity
        uint8_t* default_left
        int64_t* word_at
        int32_t* n_words
        uint32_t* words
        int64_t n_all_words
        int64_t word_capacity
        bint has_defaults
    ctypedef struct hf_task
    ctypedef struct hf_workspace:
        int kind
        int64_t n
        uint32_t* sample
        uint32_t* sample2
        uint32_t* payload
        uint32_t* payload2
        double* weight
        double* weight2
        int32_t* label
        int32_t* label2
        uint8_t* goes_right
        void* key
        void* key2
        double* total
        double* left
        double* right
        double* mean
        double* term
        double* left_term
        double* right_term
        uint32_t* count
        uint32_t* count_left
        uint32_t* class_number
        hf_pending* pending
        int64_t n_pending
        int64_t pending_capacity
        double least_weight
        void* columns
        void* own
        void* stored
    ctypedef struct hf_source:
        const void* data
        bint has_short_codes
        bint (*start)(const hf_task* t, hf_workspace* r) noexcept nogil
        void (*finish)(const hf_task* t, hf_workspace* r) noexcept nogil
        hf_split (*best_split)(
            const hf_task* t, hf_workspace* r, const hf_pending* node, uint64_t key, double weight
        ) noexcept nogil
        bint (*write)(
            const hf_task* t, hf_workspace* r, const hf_split* split, hf_tree* tree, int64_t v
        ) noexcept nogil
    ctypedef struct hf_roots:
        const int64_t* indptr
        const uint64_t* key
        const double* weight
        const int64_t* depth
    ctypedef struct hf_task:
        hf_source source
        hf_roots roots
        int64_t n
        bint single
        int path
        const int32_t* labels
        const double* targets
        const double* weight
        const int64_t* base
        int64_t n_outputs
        int criterion
        bint has_defaults
        bint in_floats
        int64_t n_candidates
        int64_t max_depth
        int64_t min_split
        int64_t min_leaf
        double min_decrease
        double min_weight_fraction
        uint64_t seed
        hf_watch* watch
    double hf_largest(int single)
    void hf_add(const hf_task* t, const hf_workspace* r, int64_t i, double* sum)


cdef inline hf_split no_split() noexcept nogil:
    cdef hf_split split
    split.score, split.column, split.low, split.high = -INFINITY, -1, 0, 0
    split.below = split.above = split.threshold = 0
    split.missing, split.default_left = -1, 0
    return split


cdef inline int defaults_of(int missing, bint heavier_left) noexcept nogil:
    # Returns default_left: missing values of the node go left (1), right (0) or, where it has none (-1), to
    # the side of more samples, as unknown categories do.
    cdef bint left = heavier_left if missing < 0 else missing == 1
    return (HF_MISSING_LEFT if left else 0) | (HF_UNKNOWN_LEFT if heavier_left else 0)


cdef inline int weight_bits(const hf_workspace* r) noexcept nogil:
    # Returns how many bits of a payload hold the weight; the class lies above.
    return 8 if r.kind == HF_KEYS_32 else 16


cdef inline bint is_perfect(const hf_workspace* r, double score, double weight) noexcept nogil:
    # Returns whether no split can be better: sides of one class each score their weight. With whole weights
    # no rounding says so too early, nor lifts another score above it.
    return r.kind != HF_FLOATS and score >= weight
