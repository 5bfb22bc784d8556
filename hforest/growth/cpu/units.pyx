"""Weights and targets as integers, whose sums have no order (docs/growth.md, "Sums").

A unit (c, k, m) is made from the samples of a node, in passes that take extremes and sums of integers alone:

    greatest weight              m, then u and its sum, which raises m
    least and greatest target    their middle c
    greatest |w (t - c)|         k, then sums of q and u: c becomes their mean
    greatest |w (t - c)|         k, then the sum of |q|, which raises k
"""

from libc.math cimport fabs
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset

from hforest.core.arena cimport hf_arena, take
from hforest.core.score cimport hf_distance, hf_is_of_ratios
from hforest.growth.cpu.leaves cimport HF_LEAF_TOTALS, hf_add_to_leaf
from hforest.growth.cpu.task cimport class_of, hf_term, is_pair

cdef extern from "growth/units.h" nogil:
    ctypedef struct hf_scaling:
        pass
    hf_scaling hf_scaling_of(int exponent)
    int64_t hf_scaled(double a, hf_scaling by)
    int64_t hf_scaled_weight(double weight, hf_scaling by)
    int hf_unit_exponent(double n, double a)
    int hf_spare_bits(int64_t sum)
    double hf_middle(double least, double greatest)
    double hf_mean(double c, int k, int m, int64_t q, int64_t u)


cdef inline const double* _targets(const hf_task* t, const hf_workspace* r, int64_t number) noexcept nogil:
    return t.targets + r.row[number] * t.n_outputs


cdef inline int64_t* _q_of(const hf_task* t, hf_workspace* r, int64_t i) noexcept nogil:
    # Returns where the targets of sample i of the tree are, as integers.
    if t.n_outputs == 1:
        return &r.term[i].q
    return r.q + r.payload[i] * t.n_outputs


cdef int64_t _scale_weights(hf_workspace* r, const hf_pending* node, hf_units* unit) noexcept nogil:
    # Writes m, and the u of the node's samples; returns their sum.
    cdef hf_term* term = r.term
    cdef const uint32_t* number = r.payload
    cdef hf_scaling by
    cdef double greatest = 0
    cdef int64_t i, sum = 0
    cdef int pass_number
    unit.m = 0
    if r.whole:
        for i in range(node.first, node.last):
            term[i].u = <int64_t> r.weight[number[i]]
            sum += term[i].u
        return sum
    for i in range(node.first, node.last):
        greatest = max(greatest, r.weight[number[i]])
    unit.m = hf_unit_exponent(<double> (node.last - node.first), greatest)
    for pass_number in range(2):
        by, sum = hf_scaling_of(unit.m), 0
        for i in range(node.first, node.last):
            term[i].u = hf_scaled_weight(r.weight[number[i]], by)
            sum += term[i].u
        if pass_number == 0:
            unit.m += hf_spare_bits(sum)
    return sum


cdef double _greatest_product(
    const hf_task* t, const hf_workspace* r, const hf_pending* node, const double* c
) noexcept nogil:
    # Returns the greatest |w (t - c)| of the node's samples.
    cdef double greatest = 0, w
    cdef const double* targets
    cdef int64_t i, j, number, n_outputs = t.n_outputs
    for i in range(node.first, node.last):
        number = r.payload[i]
        targets, w = _targets(t, r, number), r.weight[number]
        for j in range(n_outputs):
            greatest = max(greatest, fabs(w * (targets[j] - c[j])))
    return greatest


cdef void _scale_targets(
    const hf_task* t, hf_workspace* r, const hf_pending* node, const hf_units* unit, int64_t* sum, bint sizes
) noexcept nogil:
    # Writes the q of the node's samples, and to `sum` their sums by output, or those of their sizes.
    cdef hf_scaling by = hf_scaling_of(unit.k)
    cdef const double* targets
    cdef const double* c = unit.centre
    cdef int64_t* q
    cdef double w
    cdef int64_t i, j, number, n_outputs = t.n_outputs
    memset(sum, 0, n_outputs * sizeof(int64_t))
    for i in range(node.first, node.last):
        number = r.payload[i]
        targets, w, q = _targets(t, r, number), r.weight[number], _q_of(t, r, i)
        for j in range(n_outputs):
            q[j] = hf_scaled(w * (targets[j] - c[j]), by)
            sum[j] += -q[j] if sizes and q[j] < 0 else q[j]


cdef void _scale_node(
    const hf_task* t, hf_workspace* r, const hf_pending* node, bint from_0, hf_units* unit, int64_t* sum
) noexcept nogil:
    # Writes k, m and c of a unit that is made from a node, and its samples as integers.
    #
    # from_0  IN                  whether c is 0
    # sum     OUT (n_outputs,)    sums of q
    cdef int64_t u = _scale_weights(r, node, unit), i, j, most = 0
    cdef const double* targets
    cdef double* c = unit.centre
    cdef double least, greatest
    cdef double n = <double> (node.last - node.first)
    unit.k = 0
    if t.labels != NULL:
        for i in range(node.first, node.last if is_pair(t) else node.first):
            r.term[i].q = r.term[i].u if r.term[i].q else 0
        return
    memset(c, 0, t.n_outputs * sizeof(double))
    if not from_0:
        for j in range(t.n_outputs):
            least = greatest = _targets(t, r, r.payload[node.first])[j]
            for i in range(node.first, node.last):
                targets = _targets(t, r, r.payload[i])
                least, greatest = min(least, targets[j]), max(greatest, targets[j])
            c[j] = hf_middle(least, greatest)
        unit.k = hf_unit_exponent(n, _greatest_product(t, r, node, c))
        _scale_targets(t, r, node, unit, sum, False)
        for j in range(t.n_outputs):
            c[j] = hf_mean(c[j], unit.k, unit.m, sum[j], u)
    unit.k = hf_unit_exponent(n, _greatest_product(t, r, node, c))
    _scale_targets(t, r, node, unit, sum, True)
    for j in range(t.n_outputs):
        most = max(most, sum[j])
    if most:
        unit.k += hf_spare_bits(most)
    _scale_targets(t, r, node, unit, sum, False)


cdef void sum_leaf(
    const hf_task* t, hf_workspace* r, const hf_pending* node, bint pure, hf_units* unit
) noexcept nogil:
    # Writes the unit of a leaf, made from its samples, and to r.leaf the totals of its targets in this unit.
    #
    # pure  IN   whether all targets are equal
    # unit  OUT  k, m and c, for which r.mean is the memory
    cdef int64_t i, j
    cdef const int64_t* q
    unit.centre = r.mean
    memset(r.leaf, 0, t.n_outputs * HF_LEAF_TOTALS * sizeof(int64_t))
    if pure:
        unit.k = unit.m = 0
        for j in range(t.n_outputs):
            unit.centre[j] = _targets(t, r, r.payload[node.first])[j]
            hf_add_to_leaf(r.leaf + j * HF_LEAF_TOTALS, 0, 1)
        return
    _scale_node(t, r, node, False, unit, r.sum)
    for i in range(node.first, node.last):
        q = _q_of(t, r, i)
        for j in range(t.n_outputs):
            hf_add_to_leaf(r.leaf + j * HF_LEAF_TOTALS, q[j], r.term[i].u)


cdef void measure(
    const hf_task* t, hf_workspace* r, const hf_pending* node, double* spread, double* heaviest
) noexcept nogil:
    # Writes the greatest range of q over the outputs and the greatest u of a node, and its sums to r.total,
    # r.total_u and r.mean.
    cdef int64_t i, j, u = 0, most = 0, sum = 0, least, greatest, n_outputs = t.n_outputs
    cdef const hf_term* term = r.term
    cdef const int64_t* q
    cdef double widest = 0
    spread[0] = 0
    if t.labels != NULL:
        memset(r.total, 0, n_outputs * sizeof(int64_t))
        for i in range(node.first, node.last):
            u += term[i].u
            most = max(most, term[i].u)
            r.total[class_of(t, r, i)] += term[i].u
        r.total_u, heaviest[0] = u, <double> most
        if is_pair(t):
            r.mean[0] = <double> r.total[1] / <double> u
            return
        for j in range(n_outputs):
            r.mean[j] = <double> r.total[j] / <double> u
        return
    memset(r.total, 0, n_outputs * sizeof(int64_t))
    for j in range(n_outputs):
        r.least[j] = r.greatest[j] = _q_of(t, r, node.first)[j]
    least = greatest = term[node.first].q
    for i in range(node.first, node.last):
        u += term[i].u
        most = max(most, term[i].u)
        if n_outputs == 1:
            sum += term[i].q
            least, greatest = min(least, term[i].q), max(greatest, term[i].q)
        else:
            r.bodies.measure_row(r.total, r.least, r.greatest, r.q + r.payload[i] * n_outputs, n_outputs)
    if n_outputs == 1:
        r.total[0], r.least[0], r.greatest[0] = sum, least, greatest
    for j in range(n_outputs):
        r.mean[j] = <double> r.total[j] / <double> u
        widest = max(widest, <double> (r.greatest[j] - r.least[j]))
    if not r.whole:
        widest = 0
        for i in range(node.first, node.last):
            q = _q_of(t, r, i)
            for j in range(n_outputs):
                widest = max(widest, fabs(hf_distance(q[j], term[i].u, r.mean[j])))
    r.total_u, spread[0], heaviest[0] = u, widest, <double> most


cdef hf_units* _new_unit(const hf_task* t, hf_workspace* r) noexcept nogil:
    # Returns the memory of a unit, or NULL.
    cdef hf_arena* arena = &r.arena
    cdef hf_units* unit = <hf_units*> take(arena, sizeof(hf_units))
    cdef double* centre = NULL if t.labels != NULL else <double*> take(arena, t.n_outputs * 8)
    if arena.failed:
        return NULL
    unit.centre = centre
    return unit


cdef const hf_units* unit_of_node(const hf_task* t, hf_workspace* r, const hf_pending* node) noexcept nogil:
    # Returns a unit that is made from a node, and writes the node's samples and sums in it; NULL: no memory.
    cdef hf_units* unit = _new_unit(t, r)
    if unit != NULL:
        _scale_node(t, r, node, hf_is_of_ratios(t.criterion), unit, r.sum)
        measure(t, r, node, &unit.spread, &unit.heaviest)
    return unit


cdef const hf_units* unit_of_root(const hf_task* t, hf_workspace* r, int64_t number) noexcept nogil:
    # Returns the unit of t.roots for tree `number`, and writes its samples in it; NULL: no memory.
    cdef hf_units* unit = _new_unit(t, r)
    cdef hf_pending node
    cdef int64_t j
    if unit == NULL:
        return NULL
    node.first, node.last = 0, r.n
    for j in range(t.n_outputs):
        unit.centre[j] = t.roots.centre[number * t.n_outputs + j]
    unit.k = <int> t.roots.k[number]
    unit.spread, unit.heaviest = t.roots.spread[number], t.roots.heaviest[number]
    _scale_weights(r, &node, unit)
    _scale_targets(t, r, &node, unit, r.sum, False)
    return unit
