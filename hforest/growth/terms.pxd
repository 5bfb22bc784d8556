# Running sums of a scan over the samples of a node, as terms in its unit (units.pyx). sum_up must be called first.
#
#     targets   r.sum: q by output
#     labels    r.sum: u by class; r.left, r.right: the terms of the score that the classes have on both sides

from libc.math cimport INFINITY, fabs
from libc.stdint cimport int64_t
from libc.string cimport memset

from hforest.core.score cimport HF_ENTROPY, hf_branch_gain, hf_xlogx
from hforest.growth.task cimport hf_task, hf_workspace

cdef extern from "growth/term_cells.h" nogil:
    double HF_DISTANCE_ERROR, HF_GAIN_ERROR


cdef inline double _class_term(const hf_task* t, const hf_workspace* r, int64_t u) noexcept nogil:
    # Returns what a class of weight u adds to the score of a side.
    cdef double weight
    if r.xlogx != NULL:
        return r.xlogx[u]
    weight = <double> u * r.per_weight
    return hf_xlogx(weight) if t.criterion == HF_ENTROPY else weight * weight


cdef inline double _side_score(const hf_task* t, const hf_workspace* r, double total, int64_t u) noexcept nogil:
    # Returns the score of a side from the sum of the terms of its classes.
    if t.criterion == HF_ENTROPY:
        return total - _class_term(t, r, u)
    return total / (<double> u * r.per_weight)


cdef inline void start_sums(const hf_task* t, hf_workspace* r) noexcept nogil:
    # Starts with all samples on the right.
    cdef int64_t k
    memset(r.sum, 0, t.n_outputs * sizeof(int64_t))
    if t.labels != NULL:
        for k in range(t.n_outputs):
            r.left[k], r.right[k] = 0, _class_term(t, r, r.total[k])


cdef inline void move_class(const hf_task* t, hf_workspace* r, int64_t k, int64_t u) noexcept nogil:
    # Moves the weight u of class k to the left.
    r.sum[k] += u
    r.left[k], r.right[k] = _class_term(t, r, r.sum[k]), _class_term(t, r, r.total[k] - r.sum[k])


cdef inline int64_t move_sample(const hf_task* t, hf_workspace* r, int64_t i, int64_t sign) noexcept nogil:
    # Moves sample i of the tree to the left, or with sign = -1 to the right; returns sign * u.
    cdef const int64_t* q
    cdef int64_t k, u = sign * r.term[i].u
    if t.labels != NULL:
        move_class(t, r, r.term[i].q, u)
    elif t.n_outputs == 1:
        r.sum[0] += sign * r.term[i].q
    else:
        q = r.q + r.payload[i] * t.n_outputs
        for k in range(t.n_outputs):
            r.sum[k] += sign * q[k]
    return u


cdef inline double score_of_sums(const hf_task* t, const hf_workspace* r, int64_t u) noexcept nogil:
    # Returns the score of the split whose left side has the running sums and the weight u; -INFINITY if a side
    # has too little weight.
    cdef int64_t k, right_u = r.total_u - u
    cdef double left = 0, right = 0
    if <double> u * r.per_weight < r.least_weight or <double> right_u * r.per_weight < r.least_weight:
        return -INFINITY
    if t.labels == NULL:
        return (
            hf_branch_gain(r.sum, NULL, r.mean, t.n_outputs, u)
            + hf_branch_gain(r.sum, r.total, r.mean, t.n_outputs, right_u)
        )
    for k in range(t.n_outputs):
        left += r.left[k]
        right += r.right[k]
    return _side_score(t, r, left, u) + _side_score(t, r, right, right_u)


cdef inline bint may_gain(const hf_workspace* r, int64_t q, int64_t u, double best) noexcept nogil:
    # Returns whether the split of one target with these sums on the left may gain more than `best`, by an upper
    # bound that takes no division (term_cells.h).
    cdef double left = <double> u, d = fabs(<double> q - r.mean[0] * left) + HF_DISTANCE_ERROR
    return d * d * (<double> r.total_u * HF_GAIN_ERROR) > best * (left * <double> (r.total_u - u))
