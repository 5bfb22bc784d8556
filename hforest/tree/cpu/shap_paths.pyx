"""Path-dependent Shapley values on the CPU, as integrals of polynomials (Wettenstein, Mitchell and Yu 2026).

A path to a leaf of value v compares features j. Let o_j be 1 if the sample goes to the leaf at all splits by
j, else 0, and z_j the product of the shares of the samples that go there. The leaf adds to the value of
feature i

    v (o_i - z_i) integral from 0 to 1 of  prod over j != i of  t o_j + (1 - t) z_j  dt
        = v sum over q of  w_q P(q) c_i(q),     P = prod over j of f_j,  f_j = t o_j + (1 - t) z_j,
                                                c_i = (o_i - z_i) / f_i

with the points t_q and weights w_q of Gauss and Legendre, which are exact. A walk through all nodes keeps
w P of its path, and adds up v w P of the leaves below each edge, so that a tree costs its nodes times its
points, as in Yu et al. 2022. All terms of P are positive: nothing cancels on deep paths.

A block of samples walks together. At an edge they differ in o alone, so that each f_j has two values for
all of them:

    o_j      f_j             c_j
    1        t + (1 - t) z   (1 - z) / f_j
    0        (1 - t) z       -1 / (1 - t)
"""

from libc.stdint cimport int8_t, int32_t, int64_t
from libc.string cimport memset

from hforest.core.arena cimport hf_arena, release, take, take_zeros
from hforest.core.machine cimport hf_stop, hf_stopped_after
from hforest.tree.cpu.shap cimport Job, columns_of, goes_right, hf_number, value_row
from hforest.tree.cpu.walk cimport Walk

cdef extern from "tree/cpu/paths.h" nogil:
    enum:
        HF_LANES
    ctypedef struct hf_edge:
        int64_t n_groups, n_points, n_outputs
        const int64_t* one
        const int64_t* above
        const double* ratio1
        const double* ratio0
        double share
        const double* change1
        const double* change0
        const double* before
        double* product
        double* below
        double* of_parent
        double* values
    ctypedef struct hf_edge_bodies:
        void (*enter)(const hf_edge* e) noexcept nogil
        void (*leave)(const hf_edge* e) noexcept nogil
        void (*add_leaf)(const hf_edge* e, const double* v) noexcept nogil

cdef extern from "tree/cpu/simd/paths.h" nogil:
    const hf_edge_bodies* hf_edge_bodies_of(int path)

cdef enum:
    GROUPS = 4            # groups of samples in a block, at most
    BLOCK_BYTES = 1 << 22  # of the arrays of a block, if it has several groups

cdef struct Level:
    # A node on the path of a walk, and the edge into it.
    int64_t node
    int64_t above         # level of the last edge above by the same feature; 0 if there is none
    int32_t feature
    int8_t n_visited      # children that were visited
    double zero           # z of the feature of the edge


cdef struct Paths:
    # Workspace of a walk. A level has the arrays of hf_edge for the edge into it. Points stand for 1 / f and
    # c of samples with o = 1, and the factors of an edge.
    int64_t n_lanes
    int64_t n_numbers     # n_lanes * n_points
    Level* level          # (depth + 1,)
    int64_t* last         # (n_features,): level of the last edge by each feature, 0 at the start
    int64_t* one          # (depth + 1, n_lanes)
    int64_t* right        # (depth + 1, n_lanes): the samples go right at the node
    double* x             # (n_features, n_lanes)
    double* inverse       # (depth + 1, n_points): 1 / f
    double* factor        # (depth + 1, n_points): c
    double* change        # (depth + 1, 2, n_points)
    double* ratio         # (2, n_points)
    double* product       # (depth + 1, n_numbers)
    double* below         # (depth + 1, n_outputs, n_numbers)
    double* v             # (n_outputs,): the value of a leaf
    double* values        # (n_features, n_outputs, n_lanes)


# ------------------------------------------------------------------------------------- samples of an edge

cdef inline double _factor(const double* of_one, const double* of_zero, double rest, bint one, bint above,
                           int64_t q) noexcept nogil:
    return of_one[q] if one else of_zero[q] if above else rest


cdef void _enter(const hf_edge* e) noexcept nogil:
    # Writes w P below an edge.
    cdef int64_t g, q, s, at, n_lanes = HF_LANES
    for g in range(e.n_groups):
        for q in range(e.n_points):
            at = (g * e.n_points + q) * n_lanes
            for s in range(n_lanes):
                e.product[at + s] = e.before[at + s] * _factor(
                    e.ratio1, e.ratio0, e.share, e.one[g * n_lanes + s], e.above[g * n_lanes + s], q
                )


cdef void _leave(const hf_edge* e) noexcept nogil:
    # Adds the leaves below an edge to the value of its feature and to the leaves below the parent. The
    # feature has c of the last edge above by the same feature no longer, and that of the edge instead.
    cdef int64_t k, g, q, s, at, n_lanes = HF_LANES
    cdef double total
    for k in range(e.n_outputs):
        for g in range(e.n_groups):
            for s in range(n_lanes):
                total = 0
                for q in range(e.n_points):
                    at = ((k * e.n_groups + g) * e.n_points + q) * n_lanes + s
                    total += e.below[at] * _factor(
                        e.change1, e.change0, 0, e.one[g * n_lanes + s], e.above[g * n_lanes + s], q
                    )
                    e.of_parent[at] += e.below[at]
                e.values[(k * e.n_groups + g) * n_lanes + s] += total


cdef void _add_leaf(const hf_edge* e, const double* v) noexcept nogil:
    # Does the work of _leave for an edge into a leaf with the values v.
    cdef int64_t k, g, q, s, at, n_lanes = HF_LANES, n_numbers = e.n_groups * e.n_points * HF_LANES
    cdef double total
    for g in range(e.n_groups):
        for s in range(n_lanes):
            total = 0
            for q in range(e.n_points):
                total += e.product[(g * e.n_points + q) * n_lanes + s] * _factor(
                    e.change1, e.change0, 0, e.one[g * n_lanes + s], e.above[g * n_lanes + s], q
                )
            for k in range(e.n_outputs):
                if v[k] == 0:
                    continue
                e.values[(k * e.n_groups + g) * n_lanes + s] += total * v[k]
                for q in range(e.n_points):
                    at = (g * e.n_points + q) * n_lanes + s
                    e.of_parent[k * n_numbers + at] += v[k] * e.product[at]


# ------------------------------------------------------------------------------------------------- walks

cdef void _visit(const Job* job, const Paths* p, int64_t level) noexcept nogil:
    # Begins with the children of a split.
    cdef Level* here = &p.level[level]
    cdef const double* x = p.x + job.walk.forest.feature[here.node] * p.n_lanes
    cdef int64_t* right = p.right + level * p.n_lanes
    cdef int64_t s
    here.n_visited = 0
    for s in range(p.n_lanes):
        right[s] = -<int64_t> goes_right(&job.walk, here.node, x[s])
    memset(p.below + level * job.n_outputs * p.n_numbers, 0, job.n_outputs * p.n_numbers * sizeof(double))


cdef void _factors(const Job* job, const Paths* p, int64_t level) noexcept nogil:
    # Writes the numbers of an edge at all points.
    cdef const Level* edge = &p.level[level]
    cdef int64_t n = job.n_points, q
    cdef const double* inverse_above = p.inverse + edge.above * n
    cdef const double* factor_above = p.factor + edge.above * n
    cdef double* inverse = p.inverse + level * n
    cdef double* factor = p.factor + level * n
    cdef double* change = p.change + level * 2 * n
    cdef double zero = edge.zero, f
    for q in range(n):
        f = job.point[q] + job.rest[q] * zero
        inverse[q] = 1 / f
        factor[q] = (1 - zero) * inverse[q]
        p.ratio[q], p.ratio[n + q] = inverse_above[q] * f, inverse_above[q] * (job.rest[q] * zero)
        change[q], change[n + q] = factor[q] - factor_above[q], job.cold[q] - factor_above[q]


cdef hf_edge _edge(const Job* job, const Paths* p, int64_t level, double share) noexcept nogil:
    # Returns the arrays of the edge into a level.
    cdef const Level* edge = &p.level[level]
    cdef int64_t n = job.n_points, n_below = job.n_outputs * p.n_numbers
    cdef hf_edge e
    e.n_groups, e.n_points, e.n_outputs = p.n_lanes // HF_LANES, n, job.n_outputs
    e.one, e.above = p.one + level * p.n_lanes, p.one + edge.above * p.n_lanes
    e.ratio1, e.ratio0, e.share = p.ratio, p.ratio + n, share
    e.change1, e.change0 = p.change + level * 2 * n, p.change + (level * 2 + 1) * n
    e.before, e.product = p.product + (level - 1) * p.n_numbers, p.product + level * p.n_numbers
    e.below, e.of_parent = p.below + level * n_below, p.below + (level - 1) * n_below
    e.values = p.values + edge.feature * job.n_outputs * p.n_lanes
    return e


cdef bint _descend(const Job* job, const Paths* p, int64_t level, int64_t root) noexcept nogil:
    # Makes the next child of a node the node of the level below. Returns False if o = z = 0 for all samples:
    # leaves below it add nothing.
    cdef Level* here = &p.level[level]
    cdef Level* edge = &p.level[level + 1]
    cdef const int64_t* right = p.right + level * p.n_lanes
    cdef const int64_t* above
    cdef int64_t* one = p.one + (level + 1) * p.n_lanes
    cdef int64_t side = here.n_visited, s, flip = side - 1, some = 0
    edge.feature = job.walk.forest.feature[here.node]
    edge.node, edge.above = root + job.walk.forest.left[here.node] + side, p.last[edge.feature]
    edge.zero = job.share[edge.node] * p.level[edge.above].zero
    above = p.one + edge.above * p.n_lanes
    for s in range(p.n_lanes):
        one[s] = above[s] & (right[s] ^ flip)
        some |= one[s]
    here.n_visited += 1
    return some or edge.zero != 0


cdef void _add_tree(
    const Job* job, const Paths* p, const hf_edge_bodies* bodies, int64_t tree
) noexcept nogil:
    # Adds n_trees times the path-dependent values of a block of samples in a tree.
    cdef const Walk* w = &job.walk
    cdef int64_t root = w.forest.tree_start[tree], level = 0, k, first
    cdef Level* here
    cdef hf_edge e
    if w.forest.feature[root] == -1:
        return
    p.level[0].node = root
    _visit(job, p, 0)
    while True:
        here = &p.level[level]
        if here.n_visited == 2:
            if level == 0:
                return
            e = _edge(job, p, level, 0)
            bodies.leave(&e)
            p.last[here.feature] = here.above
            level -= 1
        elif _descend(job, p, level, root):
            _factors(job, p, level + 1)
            here = &p.level[level + 1]
            e = _edge(job, p, level + 1, job.share[here.node])
            bodies.enter(&e)
            if w.forest.feature[here.node] != -1:
                level += 1
                p.last[here.feature] = level
                _visit(job, p, level)
                continue
            first = value_row(w, tree, here.node)
            for k in range(job.n_outputs):
                p.v[k] = hf_number(w.value, w.single, first + k)
            bodies.add_leaf(&e, p.v)


cdef int64_t paths_block(const Job* job, int64_t n_samples, int n_threads) noexcept nogil:
    # Returns the number of samples that walk together: fewer, if there are few or paths are long.
    cdef int64_t n_groups = min(<int64_t> GROUPS, (n_samples - 1) // (n_threads * HF_LANES) + 1)
    cdef int64_t group_bytes = (job.size.depth + 1) * (1 + job.n_outputs) * job.n_points * HF_LANES * 8
    return max(<int64_t> 1, min(n_groups, BLOCK_BYTES // group_bytes)) * HF_LANES


cdef Paths _paths(const Job* job, hf_arena* arena) noexcept nogil:
    cdef Paths p
    cdef int64_t n = job.n_points, n_levels = job.size.depth + 1, n_features = job.walk.n_features, g, q, s
    p.n_lanes, p.n_numbers = job.block, job.block * n
    p.level = <Level*> take(arena, n_levels * sizeof(Level))
    p.last = <int64_t*> take_zeros(arena, (n_features + 1) * sizeof(int64_t))
    p.one = <int64_t*> take(arena, 2 * n_levels * p.n_lanes * sizeof(int64_t))
    p.x = <double*> take(arena, (n_features + 1) * p.n_lanes * sizeof(double))
    p.inverse = <double*> take(arena, (4 * n_levels + 2) * n * sizeof(double))
    p.product = <double*> take(arena, n_levels * (1 + job.n_outputs) * p.n_numbers * sizeof(double))
    p.v = <double*> take(arena, job.n_outputs * sizeof(double))
    p.values = <double*> take_zeros(arena, (n_features * p.n_lanes * job.n_outputs + 1) * sizeof(double))
    if arena.failed:
        return p
    p.right = p.one + n_levels * p.n_lanes
    p.factor = p.inverse + n_levels * n
    p.change = p.factor + n_levels * n
    p.ratio = p.change + 2 * n_levels * n
    p.below = p.product + n_levels * p.n_numbers
    # The root stands for an edge above all others, with o = z = f = 1.
    p.level[0].zero = 1
    for s in range(p.n_lanes):
        p.one[s] = -1
    for q in range(n):
        p.inverse[q], p.factor[q] = 1, 0
        for g in range(p.n_lanes // HF_LANES):
            for s in range(HF_LANES):
                p.product[(g * n + q) * HF_LANES + s] = job.weight[q]
    return p


cdef void add_paths(const Job* job, int64_t first, int64_t last) noexcept nogil:
    # Writes the path-dependent values of a block of samples.
    cdef const Walk* w = &job.walk
    cdef int64_t i, j, tree, n_values = w.n_features * job.n_outputs, n_steps = 0
    cdef hf_edge_bodies plain
    cdef const hf_edge_bodies* bodies = hf_edge_bodies_of(w.path)
    cdef hf_arena arena
    memset(&arena, 0, sizeof(hf_arena))
    cdef Paths p = _paths(job, &arena)
    plain.enter, plain.leave, plain.add_leaf = _enter, _leave, _add_leaf
    if bodies == NULL:
        bodies = &plain
    if arena.failed:
        hf_stop(w.watch)
    else:
        columns_of(w, w.x, first, last - first, p.n_lanes, p.x)
        for tree in range(w.n_trees):
            _add_tree(job, &p, bodies, tree)
            n_steps += (w.forest.tree_start[tree + 1] - w.forest.tree_start[tree]) * job.n_points
            if hf_stopped_after(w.watch, &n_steps, 0):
                break
        for i in range(first, last):
            for j in range(n_values):
                job.values[i * n_values + j] = p.values[j * p.n_lanes + i - first] / w.n_trees
    release(&arena)
