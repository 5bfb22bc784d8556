# Scores of splits, and the criteria.

from libc.stdint cimport int64_t

cdef extern from "core/score.h" nogil:
    int HF_GINI, HF_ENTROPY, HF_SQUARED_ERROR, HF_POISSON, HF_LABEL_ENTROPY
    bint hf_is_of_ratios(int criterion)
    bint hf_beats(double score, double best)
    bint hf_beats_in_any_order(double score, double best, bint is_before)
    double hf_xlogx(double a)
    double hf_branch_score(int criterion, const double* sums, const double* node, int64_t n, double weight)
    double hf_node_score(int criterion, const double* sums, int64_t n, double weight)
    int HF_SQUARES
    double hf_sum_of_squares(const double* partial)
    double hf_distance(int64_t q, int64_t u, double mean)
    double hf_branch_gain(const int64_t* q, const int64_t* node, const double* mean, int64_t n, int64_t u)
    double hf_add_share(int criterion, double total, double p)
    double hf_impurity(int criterion, double total)
    double hf_between_f32(double low, double high)
    double hf_between_f64(double low, double high)


cdef inline int require_criteria(str module) except -1:
    # Checks that the numbers of the criteria are those of scores.py.
    from hforest.core.scores import check_criteria
    check_criteria(
        {
            "gini": HF_GINI, "entropy": HF_ENTROPY, "squared_error": HF_SQUARED_ERROR, "poisson": HF_POISSON,
            "label_entropy": HF_LABEL_ENTROPY,
        },
        module,
    )
    return 0
