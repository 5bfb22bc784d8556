"""Interventional Shapley values on the CPU (Lundberg et al. 2020, algorithm 3).

A hybrid sample takes each feature from a sample x or from a row b of the background. On the way to a leaf a
feature stays undecided as long as both go the same way. Of the decided features of a leaf, n_x come from x
and n_b from b: the leaf adds v (n_x - 1)! n_b! / (n_x + n_b)! to the value of each of the first, and
subtracts v n_x! (n_b - 1)! / (n_x + n_b)! from that of each of the others.

One walk serves x and 64 rows, the bits of a word. A feature that comes from b does so for all rows that are
in the subtree, but n_x differs from row to row. What the leaves of a subtree add to a feature is the
difference of sums over leaves before and after it.
"""

from libc.math cimport INFINITY, NAN, fabs, isnan
from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t
from libc.string cimport memset

from hforest.core.arena cimport hf_arena, release, take, take_zeros
from hforest.core.machine cimport hf_has_stopped, hf_stop, hf_stopped_after
from hforest.tree.cpu.shap cimport (
    TABLE, Job, columns_of, goes_right, hf_goes_right, hf_number, row_of, value_row,
)
from hforest.tree.cpu.walk cimport Walk, hf_forest

cdef extern from *:
    int __builtin_ctzll(unsigned long long word) noexcept nogil

cdef enum:
    WORD = 64             # rows of the background that are walked at once
    # Samples of a unit of work, which share the work of _route: few if all threads have some, and many if
    # there are enough for several units per thread.
    FEW_SAMPLES = 64
    MANY_SAMPLES = 256
    BRANCH = 2            # neither left nor right: it depends on an undecided feature

# What a frame is about to do.
cdef enum:
    BEFORE_X, IN_X, IN_BACKGROUND


cdef struct Frame:
    # A subtree that is walked later for some rows; with a feature, one in which it comes from the background.
    # Before that, the feature comes from x. Words have a bit for each row of the background.
    int64_t node
    uint64_t rows
    int32_t feature       # or -1
    int8_t phase


cdef struct Rows:
    # Workspace of a walk for a word of rows.
    int64_t first          # number of the first row
    int64_t n              # number of rows
    double* columns        # (n_features, WORD)
    Frame* frame           # (3 (depth + n_players + 1),)
    int64_t n_frames
    uint64_t* right        # (n_nodes,): rows that go right at the nodes of a tree
    uint64_t* from_x       # (n_features,): rows for which a feature comes from x
    int8_t* from_b         # (n_features,): a feature comes from b
    int64_t* n_x           # (WORD,): features from x
    int64_t n_b            # features from b
    int64_t* n_branches    # (WORD,): decisions at projections
    # Sums over the leaves so far of v times the weight of a feature from x, and of one from b.
    double* of_x           # (WORD, n_outputs)
    double* of_b           # (n_outputs,)
    double* v              # (n_outputs,): the value of a leaf


cdef double _shapley(int64_t n_x, int64_t n_b) noexcept nogil:
    # Returns (n_x - 1)! n_b! / (n_x + n_b)!, the weight of a feature from x; 0 if n_x = 0.
    cdef double weight
    cdef int64_t j
    if n_x == 0:
        return 0
    weight = 1.0 / n_x
    for j in range(1, n_b + 1):
        weight *= <double> j / (n_x + j)
    return weight


cdef inline double _weight_of(const Job* job, int64_t n_x, int64_t n_b) noexcept nogil:
    return job.table[n_x * TABLE + n_b] if n_x < TABLE and n_b < TABLE else _shapley(n_x, n_b)


cdef inline void _add_to(double* total, double factor, const double* a, int64_t n) noexcept nogil:
    # Adds n numbers, at least one, times a factor. One output is the most frequent number of them.
    cdef int64_t k
    total[0] += factor * a[0]
    for k in range(1, n):
        total[k] += factor * a[k]


cdef void _route(const Job* job, const Rows* r, int64_t tree) noexcept nogil:
    # Writes which rows go right at the splits of a tree by single features.
    cdef const Walk* w = &job.walk
    cdef int64_t root = w.forest.tree_start[tree], v, b
    cdef int32_t i
    cdef double threshold
    cdef uint64_t right
    for v in range(root, w.forest.tree_start[tree + 1]):
        i, right = w.forest.feature[v], 0
        if i >= 0:
            threshold = hf_number(w.forest.threshold, w.single, v)
            for b in range(WORD):
                right |= <uint64_t> hf_goes_right(&w.forest, v, threshold, r.columns[i * WORD + b]) << b
        r.right[v - root] = right


# -------------------------------------------------------------------------------------------- projections

cdef int _side_of_projection(
    const Walk* w, const Rows* r, int64_t v, const char* x, const char* b, uint64_t row, int32_t* branch
) noexcept nogil:
    # Returns whether hybrid samples of a row, whose bit is `row`, go right, or BRANCH if that depends on
    # undecided features, of which it writes one. Sums in a fixed order do not decrease with their terms, in
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
        if r.from_b[i]:
            of_x = of_b
        elif r.from_x[i] & row:
            of_b = of_x
        if isnan(of_x) and isnan(of_b):
            misses = True
            continue
        gap = fabs(of_x - of_b)
        if isnan(of_x):
            can_miss, gap, of_x = True, INFINITY, of_b
        elif isnan(of_b):
            can_miss, gap, of_b = True, INFINITY, of_x
        if not r.from_b[i] and not r.from_x[i] & row and (branch[0] < 0 or gap > widest):
            branch[0], widest = i, gap
        low += min(of_x, of_b)
        high += max(of_x, of_b)
    if misses:
        low = high = NAN
    if w.single:
        low, high = <float> low, <float> high
    right = goes_right(w, v, low)
    if right == goes_right(w, v, high) and not (can_miss and right != goes_right(w, v, NAN)):
        return right
    return BRANCH


cdef void _wait(Rows* r, int64_t node, uint64_t rows, int32_t feature, int8_t phase) noexcept nogil:
    # Adds a frame, if it has rows.
    cdef Frame* frame = &r.frame[r.n_frames]
    if rows:
        frame.node, frame.rows, frame.feature, frame.phase = node, rows, feature, phase
        r.n_frames += 1


cdef bint _project(
    const Job* job, Rows* r, int64_t v, int64_t left, uint64_t rows, const char* x
) noexcept nogil:
    # Adds frames for the rows at a projection: for those that go to either child, those that depend on one
    # feature, and all others. Returns whether no row has too many branches.
    cdef const Walk* w = &job.walk
    cdef uint64_t row, to_left = 0, to_right = 0, at_branch = 0, others = 0
    cdef int32_t branch, feature = -1
    cdef int64_t b
    cdef int side
    while rows:
        b, row = __builtin_ctzll(rows), rows & (~rows + 1)
        rows ^= row
        side = _side_of_projection(w, r, v, x, row_of(w, job.background, r.first + b), row, &branch)
        if side == BRANCH:
            if feature < 0:
                feature = branch
            if branch == feature:
                at_branch |= row
                r.n_branches[b] += 1
                if r.n_branches[b] > job.max_branches:
                    return False
            else:
                others |= row
        elif side:
            to_right |= row
        else:
            to_left |= row
    _wait(r, v, others, -1, 0)
    _wait(r, left + 1, to_right, -1, 0)
    _wait(r, left, to_left, -1, 0)
    _wait(r, v, at_branch, feature, BEFORE_X)
    return True


# -------------------------------------------------------------------------------------------------- walks

cdef void _take_from_x(
    const Job* job, const Rows* r, int32_t i, uint64_t rows, int sign, double* values
) noexcept nogil:
    # Begins a subtree in which feature i comes from x for some rows, or ends it with sign = -1.
    cdef int64_t b, n = job.n_outputs
    r.from_x[i] ^= rows
    while rows:
        b = __builtin_ctzll(rows)
        rows &= rows - 1
        r.n_x[b] += sign
        _add_to(values + i * n, -sign, r.of_x + b * n, n)


cdef void _take_from_b(const Job* job, Rows* r, int32_t i, int sign, double* values) noexcept nogil:
    # Begins a subtree in which feature i comes from the background, or ends it with sign = -1.
    r.from_b[i] = sign > 0
    r.n_b += sign
    _add_to(values + i * job.n_outputs, sign, r.of_b, job.n_outputs)


cdef void _add_leaf(const Job* job, const Rows* r, uint64_t rows, int64_t first) noexcept nogil:
    # Adds a leaf, whose values begin at `first`, to the sums.
    cdef const Walk* w = &job.walk
    cdef int64_t k, b, n = job.n_outputs
    cdef double weight
    for k in range(n):
        r.v[k] = hf_number(w.value, w.single, first + k)
    while rows:
        b = __builtin_ctzll(rows)
        rows &= rows - 1
        weight = job.row_weight[r.first + b]
        _add_to(r.of_x + b * n, weight * _weight_of(job, r.n_x[b], r.n_b), r.v, n)
        _add_to(r.of_b, weight * _weight_of(job, r.n_b, r.n_x[b]), r.v, n)


cdef bint _next(const Job* job, Rows* r, int64_t* at, uint64_t* rows, double* values) noexcept nogil:
    # Begins with a frame that waits: writes its node and rows. Returns whether there is one.
    cdef Frame* frame
    while r.n_frames:
        frame = &r.frame[r.n_frames - 1]
        at[0], rows[0] = frame.node, frame.rows
        if frame.feature < 0:
            r.n_frames -= 1
            return True
        if frame.phase == BEFORE_X:
            _take_from_x(job, r, frame.feature, frame.rows, 1, values)
            frame.phase = IN_X
            return True
        if frame.phase == IN_X:
            _take_from_x(job, r, frame.feature, frame.rows, -1, values)
            _take_from_b(job, r, frame.feature, 1, values)
            frame.phase = IN_BACKGROUND
            return True
        _take_from_b(job, r, frame.feature, -1, values)
        r.n_frames -= 1
    return False


cdef bint _add_rows(const Job* job, Rows* r, int64_t tree, int64_t i, int64_t* n_steps) noexcept nogil:
    # Adds the values of a sample beside a word of rows in a tree. Returns whether it was walked to the end.
    cdef const Walk* w = &job.walk
    cdef const hf_forest* f = &w.forest
    cdef const char* x = row_of(w, w.x, i)
    cdef double* values = job.values + i * w.n_features * job.n_outputs
    cdef int64_t root = f.tree_start[tree], at = root, left
    cdef uint64_t rows = ~(<uint64_t> 0) >> (WORD - r.n), others
    cdef int32_t feature
    cdef bint right
    memset(r.of_x, 0, (WORD + 1) * job.n_outputs * sizeof(double))
    memset(r.n_branches, 0, WORD * sizeof(int64_t))
    while True:
        feature, left = f.feature[at], root + f.left[at]
        if feature >= 0 and not r.from_b[feature]:
            right = goes_right(w, at, hf_number(x, w.single, feature))
            others = rows & ~r.from_x[feature] & (~r.right[at - root] if right else r.right[at - root])
            at = left + right
            if others:
                _take_from_x(job, r, feature, others, 1, values)
                _wait(r, left + 1 - right, others, feature, IN_X)
            continue
        if feature >= 0:
            others = rows & r.right[at - root]
            _wait(r, left + 1, others, -1, 0)
            _wait(r, left, rows & ~others, -1, 0)
        elif feature < -1:
            if not _project(job, r, at, left, rows, x):
                job.too_many[i] = 1
                hf_stop(w.watch)
                return False
        else:
            _add_leaf(job, r, rows, value_row(w, tree, at))
        if hf_stopped_after(w.watch, n_steps, 16):
            return False
        if not _next(job, r, &at, &rows, values):
            return True


cdef Rows _rows(const Job* job, hf_arena* arena) noexcept nogil:
    cdef Rows r
    cdef int64_t n = job.walk.n_features + 1
    memset(&r, 0, sizeof(Rows))
    r.frame = <Frame*> take(arena, 3 * (job.size.depth + job.size.n_players + 1) * sizeof(Frame))
    r.columns = <double*> take(arena, n * WORD * sizeof(double))
    r.right = <uint64_t*> take(arena, job.size.n_nodes * sizeof(uint64_t))
    r.from_x = <uint64_t*> take_zeros(arena, n * sizeof(uint64_t))
    r.from_b = <int8_t*> take_zeros(arena, n)
    r.n_x = <int64_t*> take_zeros(arena, 2 * WORD * sizeof(int64_t))
    r.of_x = <double*> take(arena, (WORD + 2) * job.n_outputs * sizeof(double))
    if not arena.failed:
        r.n_branches, r.of_b = r.n_x + WORD, r.of_x + WORD * job.n_outputs
        r.v = r.of_b + job.n_outputs
    return r


cdef int64_t background_block(int64_t n_samples, int n_threads) noexcept nogil:
    return max(
        min(<int64_t> FEW_SAMPLES, (n_samples + n_threads - 1) // n_threads),
        min(<int64_t> MANY_SAMPLES, n_samples // (4 * n_threads)),
    )


cdef void add_background(const Job* job, int64_t first, int64_t last) noexcept nogil:
    # Writes the interventional values of a block of samples.
    cdef const Walk* w = &job.walk
    cdef int64_t word, tree, i, n_steps = 0
    cdef hf_arena arena
    memset(&arena, 0, sizeof(hf_arena))
    cdef Rows r = _rows(job, &arena)
    if arena.failed:
        hf_stop(w.watch)
    for word in range((job.n_background + WORD - 1) // WORD):
        r.first, r.n = word * WORD, min(<int64_t> WORD, job.n_background - word * WORD)
        if not hf_has_stopped(w.watch):
            columns_of(w, job.background, r.first, r.n, WORD, r.columns)
        for tree in range(w.n_trees):
            n_steps += (w.forest.tree_start[tree + 1] - w.forest.tree_start[tree]) * WORD // 8
            if hf_stopped_after(w.watch, &n_steps, 0) or hf_has_stopped(w.watch):
                break
            _route(job, &r, tree)
            for i in range(first, last):
                if not _add_rows(job, &r, tree, i, &n_steps):
                    break
    release(&arena)
