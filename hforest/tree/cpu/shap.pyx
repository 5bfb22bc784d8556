"""Shapley values on the CPU. A thread owns a block of samples and adds up their trees in order.

Path-dependent values are integrals of polynomials (Wettenstein, Mitchell and Yu 2026). A path to a leaf of
value v compares features j. Let o_j be 1 if the sample goes to the leaf at all splits by j, else 0, and z_j
the product of the shares of the samples that go there. The leaf adds to the value of feature i

    v (o_i - z_i) integral from 0 to 1 of  prod over j != i of  t o_j + (1 - t) z_j  dt
        = v sum over q of  w_q P(q) c_i(q),     P = prod over j of f_j,  f_j = t o_j + (1 - t) z_j,
                                                c_i = (o_i - z_i) / f_i

with the points t_q and weights w_q of Gauss and Legendre, which are exact. A walk through all nodes keeps
w P of its path, and adds up v w P of the leaves below each edge, so that a tree costs its nodes times its
points, as in Yu et al. 2022. All terms of P are positive: nothing cancels on deep paths.
"""

from cython.parallel cimport prange
from libc.math cimport INFINITY, NAN, fabs, isnan
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.string cimport memset

import numpy as np

cimport hforest.core.arrays as cnp
from hforest.core.arena cimport hf_arena, release, take, take_zeros
from hforest.core.machine cimport (
    hf_begin, hf_end, hf_has_stopped, hf_stop, hf_stopped_after, hf_threads, hf_units, hf_watch,
    raise_stopped, start_watch,
)
from hforest.tree.cpu.walk cimport Walk, hf_forest, walk_of

cnp.import_array()

cdef extern from "tree/route.h" nogil:
    double hf_number(const void* a, int single, int64_t i)
    int hf_goes_right(const hf_forest* f, int64_t v, double threshold, double a)

cdef enum:
    LANES = 4             # points are padded to a multiple of it, with weights of 0
    BLOCK = 64            # samples of a unit of work, at most
    TABLE = 64            # weights of fewer features from x, and of fewer from the background, are in a table
    BRANCH = 2            # neither left nor right: it depends on an undecided feature

# Where a feature of a hybrid sample comes from. Arrays of zeros have no decided feature.
cdef enum:
    UNDECIDED, FROM_X, FROM_BACKGROUND


# ----------------------------------------------------------------------------------------------- sizes

cdef void _count(
    const hf_forest* f, int64_t v, int change, int32_t* n_splits, int64_t* n_players
) noexcept nogil:
    # Adds a split to the path, or takes it off.
    cdef int64_t j, first = 0, last = 1
    cdef int32_t i = f.feature[v]
    if i < 0:
        first, last = f.indptr[v], f.indptr[v + 1]
    for j in range(first, last):
        if f.feature[v] < 0:
            i = f.indices[j]
        if change > 0 and n_splits[i] == 0:
            n_players[0] += 1
        n_splits[i] += change
        if change < 0 and n_splits[i] == 0:
            n_players[0] -= 1


cdef Size _size(const Walk* w, hf_watch* watch) noexcept nogil:
    # Returns the maxima over all paths; on an error the watch has stopped.
    cdef const hf_forest* f = &w.forest
    cdef int64_t tree, root, level, v, n_players = 0, most = 1, n_steps = 0
    cdef Size size
    cdef hf_arena arena
    cdef int64_t* node
    cdef int8_t* n_visited
    cdef int32_t* n_splits
    size.depth = size.n_players = 0
    for tree in range(w.n_trees):
        most = max(most, (f.tree_start[tree + 1] - f.tree_start[tree] + 1) // 2)
    memset(&arena, 0, sizeof(hf_arena))
    node = <int64_t*> take(&arena, (most + 1) * sizeof(int64_t))
    n_visited = <int8_t*> take_zeros(&arena, most + 1)
    n_splits = <int32_t*> take_zeros(&arena, (w.n_features + 1) * sizeof(int32_t))
    if arena.failed:
        hf_stop(watch)
    for tree in range(0 if arena.failed else w.n_trees):
        root, level = f.tree_start[tree], 0
        node[0] = root
        while level >= 0 and not hf_stopped_after(watch, &n_steps, 1):
            v = node[level]
            if f.feature[v] == -1:
                size.depth, size.n_players = max(size.depth, level), max(size.n_players, n_players)
            elif n_visited[level] < 2:
                if n_visited[level] == 0:
                    _count(f, v, 1, n_splits, &n_players)
                node[level + 1] = root + f.left[v] + n_visited[level]
                n_visited[level] += 1
                level += 1
                continue
            else:
                _count(f, v, -1, n_splits, &n_players)
            n_visited[level] = 0
            level -= 1
        if hf_has_stopped(watch):
            break
    release(&arena)
    return size


cdef const char* _row(const Walk* w, const void* x, int64_t i) noexcept nogil:
    return <const char*> x + i * w.n_features * (4 if w.single else 8)


cdef bint _goes_right(const Walk* w, int64_t v, double a) noexcept nogil:
    return hf_goes_right(&w.forest, v, hf_number(w.forest.threshold, w.single, v), a)


cdef int64_t _value_row(const Walk* w, int64_t tree, int64_t v) noexcept nogil:
    # Returns where the value of a leaf begins. A tree of N nodes has (N + 1) / 2 leaves.
    return ((w.forest.tree_start[tree] + tree) // 2 + w.forest.left[v]) * w.n_outputs


# --------------------------------------------------------------------------------- path-dependent values

cdef inline double _dot(const double* a, const double* b, int64_t n) noexcept nogil:
    cdef double s0 = 0, s1 = 0, s2 = 0, s3 = 0
    cdef int64_t q, group
    for group in range(n // LANES):
        q = group * LANES
        s0 += a[q] * b[q]
        s1 += a[q + 1] * b[q + 1]
        s2 += a[q + 2] * b[q + 2]
        s3 += a[q + 3] * b[q + 3]
    return (s0 + s1) + (s2 + s3)


cdef bint _changes(const Job* job, const Paths* p, int64_t level) noexcept nogil:
    # Writes c of an edge less that of the last edge above by the same feature, which the feature has in the
    # leaves below no longer. Returns whether some differ.
    cdef const Level* edge = &p.level[level]
    cdef int64_t n = job.n_points, q
    cdef const double* above = p.factor + edge.above * n
    cdef const double* here = job.cold
    if edge.one:
        here = p.factor + level * n
    if not p.level[edge.above].one:
        return False
    for q in range(n):
        p.change[q] = here[q] - above[q]
    return True


cdef void _enter(const Job* job, const Paths* p, int64_t level, double share, double* product) noexcept nogil:
    # Writes w P below an edge, and for an edge with o = 1 also 1 / f and c.
    cdef const Level* edge = &p.level[level]
    cdef int64_t n = job.n_points, q
    cdef const double* before = p.product + (level - 1) * n
    cdef const double* above = p.inverse + edge.above * n
    cdef double* inverse = p.inverse + level * n
    cdef double* factor = p.factor + level * n
    cdef double zero = edge.zero, f
    if edge.one:
        for q in range(n):
            f = job.point[q] + job.rest[q] * zero
            inverse[q] = 1 / f
            factor[q] = (1 - zero) * inverse[q]
            product[q] = before[q] * above[q] * f
    elif p.level[edge.above].one:
        for q in range(n):
            product[q] = before[q] * above[q] * (job.rest[q] * zero)
    else:
        for q in range(n):
            product[q] = before[q] * share


cdef void _leave(const Job* job, const Paths* p, int64_t level, double* values) noexcept nogil:
    # Adds the leaves below an edge to the value of its feature and to the leaves below the parent.
    cdef int64_t n = job.n_points, q, k, n_below = n * job.n_outputs
    cdef double* row = values + p.level[level].feature * job.n_outputs
    cdef const double* below = p.below + level * n_below
    cdef double* of_parent = p.below + (level - 1) * n_below
    if _changes(job, p, level):
        for k in range(job.n_outputs):
            row[k] += _dot(below + k * n, p.change, n)
    for q in range(n_below):
        of_parent[q] += below[q]


cdef void _add_leaf(
    const Job* job, const Paths* p, int64_t level, int64_t first, double* values
) noexcept nogil:
    # Does the work of _leave for a leaf, whose values begin at `first`.
    cdef int64_t n = job.n_points, q, k
    cdef double* row = values + p.level[level].feature * job.n_outputs
    cdef double* of_parent = p.below + (level - 1) * n * job.n_outputs
    cdef double v, change = 0
    if _changes(job, p, level):
        change = _dot(p.of_leaf, p.change, n)
    for k in range(job.n_outputs):
        v = hf_number(job.walk.value, job.walk.single, first + k)
        if v == 0:
            continue
        row[k] += change * v
        for q in range(n):
            of_parent[k * n + q] += v * p.of_leaf[q]


cdef void _visit(const Job* job, const Paths* p, int64_t level, const char* x) noexcept nogil:
    # Begins with the children of a split.
    cdef const Walk* w = &job.walk
    cdef Level* here = &p.level[level]
    cdef int32_t feature = w.forest.feature[here.node]
    here.n_visited = 0
    here.right = _goes_right(w, here.node, hf_number(x, w.single, feature))
    memset(p.below + level * job.n_outputs * job.n_points, 0, job.n_outputs * job.n_points * sizeof(double))


cdef void _add_tree(
    const Job* job, const Paths* p, int64_t tree, const char* x, double* values
) noexcept nogil:
    # Adds n_trees times the path-dependent values of a sample in a tree. An edge with o = z = 0 is not
    # entered: leaves below it add nothing.
    cdef const Walk* w = &job.walk
    cdef int64_t root = w.forest.tree_start[tree], level = 0, v
    cdef int32_t feature
    cdef Level* here
    cdef Level* edge
    if w.forest.feature[root] == -1:
        return
    p.level[0].node = root
    _visit(job, p, 0, x)
    while True:
        here = &p.level[level]
        if here.n_visited == 2:
            if level == 0:
                return
            _leave(job, p, level, values)
            p.last[here.feature] = here.above
            level -= 1
            continue
        feature, v = w.forest.feature[here.node], root + w.forest.left[here.node] + here.n_visited
        edge = &p.level[level + 1]
        edge.node, edge.feature, edge.above = v, feature, p.last[feature]
        edge.one = here.right == here.n_visited and p.level[edge.above].one
        edge.zero = job.share[v] * p.level[edge.above].zero
        here.n_visited += 1
        if not edge.one and edge.zero == 0:
            continue
        if w.forest.feature[v] == -1:
            _enter(job, p, level + 1, job.share[v], p.of_leaf)
            _add_leaf(job, p, level + 1, _value_row(w, tree, v), values)
        else:
            level += 1
            p.last[feature] = level
            _enter(job, p, level, job.share[v], p.product + level * job.n_points)
            _visit(job, p, level, x)


cdef Paths _paths(const Job* job, hf_arena* arena) noexcept nogil:
    cdef Paths p
    cdef int64_t n = job.n_points, n_levels = job.size.depth + 1, q, n_numbers = n_levels * n
    p.level = <Level*> take(arena, n_levels * sizeof(Level))
    p.last = <int64_t*> take_zeros(arena, (job.walk.n_features + 1) * sizeof(int64_t))
    p.product = <double*> take(arena, (n_numbers * (3 + job.n_outputs) + 2 * n) * sizeof(double))
    if arena.failed:
        return p
    p.inverse = p.product + n_numbers
    p.factor = p.inverse + n_numbers
    p.below = p.factor + n_numbers
    p.of_leaf = p.below + n_numbers * job.n_outputs
    p.change = p.of_leaf + n
    # The root stands for an edge above all others, with o = z = f = 1.
    p.level[0].one, p.level[0].zero = True, 1
    for q in range(n):
        p.product[q], p.inverse[q], p.factor[q] = job.weight[q], 1, 0
    return p


cdef void _add_trees(const Job* job, int64_t first, int64_t last) noexcept nogil:
    # Writes the path-dependent values of a block of samples.
    cdef const Walk* w = &job.walk
    cdef int64_t i, j, tree, n_values = w.n_features * job.n_outputs, n_steps = 0
    cdef double* values
    cdef hf_arena arena
    memset(&arena, 0, sizeof(hf_arena))
    cdef Paths p = _paths(job, &arena)
    if arena.failed:
        hf_stop(w.watch)
        last = first
    for i in range(first, last):
        values = job.values + i * n_values
        for tree in range(w.n_trees):
            _add_tree(job, &p, tree, _row(w, w.x, i), values)
            n_steps += (w.forest.tree_start[tree + 1] - w.forest.tree_start[tree]) * job.n_points
            if hf_stopped_after(w.watch, &n_steps, 0):
                break
        if hf_has_stopped(w.watch):
            break
        for j in range(n_values):
            values[j] /= w.n_trees
    release(&arena)


# --------------------------------------------------------------------------------- interventional values

cdef double _shapley(int64_t a, int64_t n) noexcept nogil:
    # Returns (a - 1)! n! / (a + n)!, the weight of a feature from x in a leaf that needs a features from x
    # and n from the background; 0 if a = 0. Lundberg et al. 2020, algorithm 3.
    cdef double weight
    cdef int64_t j
    if a == 0:
        return 0
    weight = 1.0 / a
    for j in range(1, n + 1):
        weight *= <double> j / (a + j)
    return weight


cdef inline double _weight_of(const Job* job, int64_t a, int64_t n) noexcept nogil:
    return job.table[a * TABLE + n] if a < TABLE and n < TABLE else _shapley(a, n)


cdef int _side_of_projection(
    const Walk* w, const Hybrids* h, int64_t v, const char* x, const char* b, int32_t* branch
) noexcept nogil:
    # Does the work of _side for a projection. Sums in a fixed order do not decrease with their terms, in
    # floating point neither, so that the least and the largest sum bound all hybrid samples.
    cdef const hf_forest* f = &w.forest
    cdef double low = 0, high = 0, of_x, of_b, gap, widest = -1
    cdef bint can_miss = False, misses = False, right
    cdef int32_t i
    cdef int64_t j
    branch[0] = -1
    for j in range(f.indptr[v], f.indptr[v + 1]):
        i = f.indices[j]
        of_x = hf_number(f.data, w.single, j)
        of_b = of_x * hf_number(b, w.single, i)
        of_x *= hf_number(x, w.single, i)
        if h.side[i] == FROM_X:
            of_b = of_x
        elif h.side[i] == FROM_BACKGROUND:
            of_x = of_b
        if isnan(of_x) and isnan(of_b):
            misses = True
            continue
        gap = fabs(of_x - of_b)
        if isnan(of_x):
            can_miss, gap, of_x = True, INFINITY, of_b
        elif isnan(of_b):
            can_miss, gap, of_b = True, INFINITY, of_x
        if h.side[i] == UNDECIDED and (branch[0] < 0 or gap > widest):
            branch[0], widest = i, gap
        low += min(of_x, of_b)
        high += max(of_x, of_b)
    if misses:
        low = high = NAN
    if w.single:
        low, high = <float> low, <float> high
    right = _goes_right(w, v, low)
    if right == _goes_right(w, v, high) and not (can_miss and right != _goes_right(w, v, NAN)):
        return right
    return BRANCH


cdef int _side(
    const Walk* w, const Hybrids* h, int64_t v, const char* x, const char* b, int32_t* branch
) noexcept nogil:
    # Returns whether hybrid samples go right, or BRANCH if that depends on undecided features, of which it
    # writes one.
    cdef int32_t i = w.forest.feature[v]
    cdef bint right = False
    if i < 0:
        return _side_of_projection(w, h, v, x, b, branch)
    if h.side[i] != FROM_BACKGROUND:
        right = _goes_right(w, v, hf_number(x, w.single, i))
        if h.side[i] == FROM_X:
            return right
    if h.side[i] == FROM_BACKGROUND or right == _goes_right(w, v, hf_number(b, w.single, i)):
        return _goes_right(w, v, hf_number(b, w.single, i))
    branch[0] = i
    return BRANCH


cdef int64_t _return(const Job* job, const Hybrids* h, int64_t top, double* values) noexcept nogil:
    # Hands the results of a subtree to the frames that it completes. Returns the frames that are left; the
    # last one goes on with its feature from the background.
    cdef int64_t k, n = job.n_outputs
    cdef Frame* frame
    cdef double* sums
    cdef double* row
    while top > 0:
        frame, sums = &h.frame[top - 1], h.sums + (top - 1) * 2 * n
        row = values + frame.feature * n
        if not frame.second:
            for k in range(n):
                row[k] += h.of_x[k]
                sums[k], sums[n + k] = h.of_x[k], h.of_background[k]
            frame.second = True
            h.side[frame.feature] = FROM_BACKGROUND
            break
        for k in range(n):
            row[k] -= h.of_background[k]
            h.of_x[k] += sums[k]
            h.of_background[k] += sums[n + k]
        h.side[frame.feature] = UNDECIDED
        top -= 1
    return top


cdef int64_t _add_pair(
    const Job* job, const Hybrids* h, int64_t tree, int64_t i, int64_t row, double* values
) noexcept nogil:
    # Adds the values of a sample beside one row of the background in a tree (Lundberg et al. 2020, algorithm
    # 3), or stops. Returns the number of branches.
    cdef const Walk* w = &job.walk
    cdef const char* x = _row(w, w.x, i)
    cdef const char* b = _row(w, job.background, row)
    cdef double scale = job.row_weight[row] / w.n_trees, of_x, of_b, v
    cdef int64_t root = w.forest.tree_start[tree], at = root, top = 0, n_x = 0, n_branches = 0, k, first
    cdef int side
    cdef Frame* frame
    while True:
        while w.forest.feature[at] != -1:
            frame = &h.frame[top]
            side = _side(w, h, at, x, b, &frame.feature)
            if side != BRANCH:
                at = root + w.forest.left[at] + side
                continue
            n_branches += 1
            if n_branches > job.max_branches and w.forest.feature[at] < 0:
                job.too_many[i] = 1
                hf_stop(w.watch)
                return n_branches
            frame.node, frame.second = at, False
            h.side[frame.feature] = FROM_X
            top += 1
            n_x += 1
        if top == 0:
            return n_branches
        of_x, of_b = scale * _weight_of(job, n_x, top - n_x), scale * _weight_of(job, top - n_x, n_x)
        first = _value_row(w, tree, at)
        for k in range(job.n_outputs):
            v = hf_number(w.value, w.single, first + k)
            h.of_x[k], h.of_background[k] = of_x * v, of_b * v
        top = _return(job, h, top, values)
        if top == 0:
            return n_branches
        at = h.frame[top - 1].node
        n_x -= 1


cdef void _add_background(const Job* job, int64_t first, int64_t last) noexcept nogil:
    # Writes the interventional values of a block of samples.
    cdef const Walk* w = &job.walk
    cdef int64_t unit, i, tree, row, n = job.n_outputs, n_frames = job.size.n_players + 1, n_steps = 0
    cdef hf_arena arena
    cdef Hybrids h
    memset(&arena, 0, sizeof(hf_arena))
    h.side = <int8_t*> take_zeros(&arena, w.n_features + 1)
    h.frame = <Frame*> take(&arena, n_frames * sizeof(Frame))
    h.sums = <double*> take(&arena, (2 * n_frames + 2) * n * sizeof(double))
    if arena.failed:
        hf_stop(w.watch)
        last = first
    else:
        h.of_x = h.sums + 2 * n_frames * n
        h.of_background = h.of_x + n
    for unit in range((last - first) * w.n_trees * job.n_background):
        i, row = first + unit // (w.n_trees * job.n_background), unit % job.n_background
        tree = unit // job.n_background % w.n_trees
        n_steps += 16 + _add_pair(job, &h, tree, i, row, job.values + i * w.n_features * n)
        if hf_stopped_after(w.watch, &n_steps, 0) or hf_has_stopped(w.watch):
            break
    release(&arena)


# ---------------------------------------------------------------------------------------------------- calls

cdef void _run(const Job* job) noexcept nogil:
    cdef const Walk* w = &job.walk
    cdef int64_t block
    cdef int threads = hf_threads()
    cdef int64_t n = max(<int64_t> 1, min(<int64_t> BLOCK, w.n_samples // (8 * threads)))
    cdef int64_t n_units = hf_units(w.watch, (w.n_samples + n - 1) // n, threads)
    for block in prange(n_units, schedule="dynamic", num_threads=threads):
        if hf_begin(w.watch, block):
            if job.share != NULL:
                _add_trees(job, block * n, min(block * n + n, w.n_samples))
            else:
                _add_background(job, block * n, min(block * n + n, w.n_samples))
            hf_end(w.watch)


cdef Job _job(x, forest, cnp.ndarray values, hf_watch* watch) except *:
    cdef cnp.ndarray value = forest.value
    cdef Job job
    memset(&job, 0, sizeof(Job))
    job.walk = walk_of(x, forest)
    job.walk.value, job.walk.n_outputs = cnp.PyArray_DATA(value), cnp.PyArray_DIM(value, 1)
    job.walk.watch, job.n_outputs = watch, job.walk.n_outputs
    job.values = <double*> cnp.PyArray_DATA(values)
    with nogil:
        job.size = _size(&job.walk, watch)
    raise_stopped(watch, "forest: no memory to walk it; pass fewer trees at a time")
    return job


def shap_path_dependent(x, forest, const double[::1] share, values):
    """Adds path-dependent SHAP values. share: (n_nodes,), of the samples of the parent in each node."""
    cdef hf_watch watch
    start_watch(&watch)
    cdef Job job = _job(x, forest, values, &watch)
    cdef const double[:, ::1] points = _points(job.size.n_players)
    job.share, job.n_points = &share[0], points.shape[1]
    job.point, job.rest, job.cold, job.weight = &points[0, 0], &points[1, 0], &points[2, 0], &points[3, 0]
    with nogil:
        _run(&job)
    raise_stopped(&watch, "forest: no memory for sums along its deepest path; use fewer threads")


def _points(n_players):
    # Returns t, 1 - t, -1 / (1 - t) and the weights of the points that integrate polynomials of a degree
    # below n_players from 0 to 1.
    from numpy.polynomial.legendre import leggauss

    point, weight = leggauss(max((n_players + 1) // 2, 1))
    padding = (0, (LANES - len(point) % LANES) % LANES)
    point, weight = np.pad(point, padding), np.pad(weight, padding)
    rest = (1 - point) / 2
    return np.array([(1 + point) / 2, rest, -1 / rest, weight / 2])


def shap_interventional(x, forest, background, const double[::1] weight, int64_t max_branches, values):
    """Adds interventional SHAP values. Returns whether no tree needed more branches at projections.

    weight: (n_background,), weights of the rows of the background, sum 1.
    """
    cdef hf_watch watch
    start_watch(&watch)
    cdef Job job = _job(x, forest, values, &watch)
    cdef cnp.ndarray rows = background
    cdef const double[:, ::1] table = np.array([[_shapley(a, n) for n in range(TABLE)] for a in range(TABLE)])
    cdef int8_t[::1] too_many = np.zeros(len(x), np.int8)
    job.background, job.n_background = <const char*> cnp.PyArray_DATA(rows), weight.shape[0]
    job.row_weight, job.table, job.max_branches = &weight[0], &table[0, 0], max_branches
    job.too_many = &too_many[0]
    with nogil:
        _run(&job)
    if np.any(too_many):
        return False
    raise_stopped(&watch, "forest: no memory for sums along its deepest path; use fewer threads")
    return True
