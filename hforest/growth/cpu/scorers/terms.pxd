# Running sums of a scan over the samples of a node, as terms in its unit (units.pyx). sum_up must be called
# first.
#
#     targets   r.sum: q by output
#     labels    r.sum: u by class; for entropy r.left, r.right: what classes add to the scores of both sides

from libc.math cimport INFINITY, fabs
from libc.stdint cimport int64_t
from libc.string cimport memset

from hforest.core.score cimport HF_ENTROPY, hf_beats, hf_branch_gain, hf_is_of_ratios, hf_xlogx
from hforest.growth.cpu.task cimport (
    class_of, has_bounds, hf_pending, hf_split, hf_task, hf_workspace, is_pair,
)

cdef extern from "growth/units.h" nogil:
    double hf_mean(double c, int k, int m, int64_t q, int64_t u)
    double hf_score_in_unit(
        int criterion, const int64_t* sums, const int64_t* node, const double* mean, int64_t n, int64_t u,
        int m
    )

cdef extern from "growth/cpu/scorers/term_cells.h" nogil:
    double HF_DISTANCE_ERROR, HF_GAIN_ERROR, HF_SCORE_ERROR


cdef inline double _class_term(const hf_task* t, const hf_workspace* r, int64_t u) noexcept nogil:
    # Returns what a class of weight u adds to the score of a side.
    cdef double weight
    if r.xlogx != NULL and 0 <= u <= r.total_u:  # another thread that writes x may make sums inconsistent
        return r.xlogx[u]
    weight = <double> u * r.per_weight
    return hf_xlogx(weight) if t.criterion == HF_ENTROPY else weight * weight


cdef inline double _side_score(
    const hf_task* t, const hf_workspace* r, double total, int64_t u
) noexcept nogil:
    # Returns the score of a side from the sum of the terms of its classes.
    if t.criterion == HF_ENTROPY:
        return total - _class_term(t, r, u)
    return total / (<double> u * r.per_weight)


cdef inline double base_score(const hf_task* t, const hf_workspace* r) noexcept nogil:
    # Returns the score of the node as a leaf.
    cdef double total = 0
    cdef int64_t k
    if t.labels == NULL:
        return 0
    for k in range(t.n_outputs):
        total += _class_term(t, r, r.total[k])
    return _side_score(t, r, total, r.total_u)


cdef inline void start_sums(const hf_task* t, hf_workspace* r) noexcept nogil:
    # Starts with all samples on the right.
    cdef int64_t k
    memset(r.sum, 0, t.n_outputs * sizeof(int64_t))
    if t.criterion == HF_ENTROPY:
        for k in range(t.n_outputs):
            r.left[k], r.right[k] = 0, _class_term(t, r, r.total[k])


cdef inline void move_class(const hf_task* t, hf_workspace* r, int64_t k, int64_t u) noexcept nogil:
    # Moves the weight u of class k to the left.
    r.sum[k] += u
    if t.criterion == HF_ENTROPY:
        r.left[k], r.right[k] = _class_term(t, r, r.sum[k]), _class_term(t, r, r.total[k] - r.sum[k])


cdef inline void move_pair(const hf_task* t, hf_workspace* r, int64_t q, int64_t u) noexcept nogil:
    # Moves sums of q and u to the left: of one target, or of two classes.
    if t.labels == NULL:
        r.sum[0] += q
        return
    move_class(t, r, 0, u - q)
    move_class(t, r, 1, q)


cdef inline int64_t move_sample(const hf_task* t, hf_workspace* r, int64_t i, int64_t sign) noexcept nogil:
    # Moves sample i of the tree to the left, or with sign = -1 to the right; returns sign * u.
    cdef const int64_t* q
    cdef int64_t k, u = sign * r.term[i].u
    if t.labels != NULL:
        move_class(t, r, class_of(t, r, i), u)
    elif t.n_outputs == 1:
        r.sum[0] += sign * r.term[i].q
    else:
        q = r.q + r.payload[i] * t.n_outputs
        if sign == 1:
            r.bodies.add_row(r.sum, q, t.n_outputs)
            return u
        for k in range(t.n_outputs):
            r.sum[k] -= q[k]
    return u


cdef inline double value_of(const hf_task* t, const hf_pending* node, int64_t q, int64_t u) noexcept nogil:
    # Returns the mean of one target, or the share of the second class, from sums in the unit of a node.
    if t.labels == NULL:
        return hf_mean(node.unit.centre[0], node.unit.k, node.unit.m, q, u)
    return hf_mean(0, 0, 0, q, u)


cdef inline bint is_monotonic(const hf_task* t, const hf_workspace* r, int64_t u) noexcept nogil:
    # Returns whether the values of both sides of the split with the running sums are within the bounds of the
    # node, and in the order of the sign of the column. Missing values alone are the right side.
    cdef int64_t last = t.n_outputs - 1
    cdef double left = value_of(t, r.node, r.sum[last], u)
    cdef double right = value_of(t, r.node, r.total[last] - r.sum[last], r.total_u - u)
    return (
        u != r.missing_u and min(left, right) >= r.bounds.lower and max(left, right) <= r.bounds.upper
        and r.sign * (right - left) >= 0
    )


cdef inline double score_of_sums(const hf_task* t, const hf_workspace* r, int64_t u) noexcept nogil:
    # Returns the score of the split whose left side has the running sums and the weight u; -INFINITY if a
    # side has too little weight, or if a monotonic constraint forbids the split.
    cdef int64_t k, right_u = r.total_u - u
    cdef double left = 0, right = 0
    if <double> u * r.per_weight < r.least_weight or <double> right_u * r.per_weight < r.least_weight:
        return -INFINITY
    if r.sign and not is_monotonic(t, r, u):
        return -INFINITY
    if hf_is_of_ratios(t.criterion):
        return (
            hf_score_in_unit(t.criterion, r.sum, NULL, r.mean, t.n_outputs, u, 0)
            + hf_score_in_unit(t.criterion, r.sum, r.total, r.mean, t.n_outputs, right_u, 0)
        )
    if t.labels == NULL:
        return (
            hf_branch_gain(r.sum, NULL, r.mean, t.n_outputs, u)
            + hf_branch_gain(r.sum, r.total, r.mean, t.n_outputs, right_u)
        )
    if t.criterion == HF_ENTROPY:
        for k in range(t.n_outputs):
            left += r.left[k]
            right += r.right[k]
    else:
        for k in range(t.n_outputs):
            left += _class_term(t, r, r.sum[k])
            right += _class_term(t, r, r.total[k] - r.sum[k])
    return _side_score(t, r, left, u) + _side_score(t, r, right, right_u)


# ------------------------------------------------------------------------------- upper bounds (term_cells.h)

cdef inline double bound_of(const hf_task* t, const hf_workspace* r, double best) noexcept nogil:
    # Returns the gain, in the unit, that a split must exceed to score more than `best`; -INFINITY where no
    # upper bound is known.
    if not has_bounds(t):
        return -INFINITY
    if t.labels == NULL:
        return best
    # Gini: the score is the base and the gains of all classes; of two classes they are equal.
    cdef double gain = (best - r.base) / (2 * r.per_weight if is_pair(t) else r.per_weight)
    return gain - <double> r.total_u * HF_SCORE_ERROR


cdef inline bint may_gain(
    double mean, double total, int64_t all, int64_t q, int64_t u, double bound
) noexcept nogil:
    # Returns whether the split with sums q and u on the left may gain more than `bound`.
    #
    # mean, all  IN  mean of q per u, and sum of u, of the node
    # total      IN  `all` as float64
    cdef double left = <double> u, d = fabs(<double> q - mean * left) + HF_DISTANCE_ERROR
    return d * d * (total * HF_GAIN_ERROR) > bound * (left * <double> (all - u))


cdef inline bint sums_may_gain(
    const hf_task* t, const hf_workspace* r, int64_t u, double bound
) noexcept nogil:
    # Does the work of may_gain for the running sums of several targets or classes.
    cdef double left = <double> u, square
    if bound == -INFINITY:
        return True
    if is_pair(t):
        return may_gain(r.mean[0], <double> r.total_u, r.total_u, r.sum[t.n_outputs - 1], u, bound)
    square = r.bodies.distances(r.sum, r.mean, left, t.n_outputs)
    return square * (<double> r.total_u * HF_GAIN_ERROR) > bound * (left * <double> (r.total_u - u))


cdef inline bint is_better(
    const hf_task* t, const hf_workspace* r, int64_t u, double* bound, hf_split* best
) noexcept nogil:
    # Returns whether the split whose left side has the running sums and the weight u scores more than
    # best.score; then writes its score to it, and raises `bound`, of bound_of.
    cdef double score
    if not sums_may_gain(t, r, u, bound[0]):
        return False
    score = score_of_sums(t, r, u)
    if not hf_beats(score, best.score):
        return False
    bound[0], best.score = max(bound[0], bound_of(t, r, score)), score
    return True
