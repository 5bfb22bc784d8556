"""Fits all splits and leaves of a tree together (Norouzi, Collins, Johnson, Fleet and Kohli 2015).

    terms        loss and largest term of the bound of samples, each on its own        threads share them
    sums         over the samples of a batch, in their order                           one thread
    step         splits and leaves that have sums                                      one thread

A sample has few terms. Most splits of its path are far from it, and a term is a loss less 2 |w.x|: it is left
out, and with it the walk to its leaf, where the largest loss of any leaf is too small. That changes no bit,
for rounding is monotonic.
"""

from cython.parallel cimport prange
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from hforest.co2.cpu.losses cimport HF_CHUNK, write_log_losses
from hforest.co2.cpu.rows cimport add_rows, dot_row, row_bytes
from hforest.co2.cpu.stump_fit cimport epochs_of, hf_schedule, move, order_epoch, project, w_bytes
from hforest.core.arena cimport hf_arena, release, take, take_zeros
from hforest.core.machine cimport (
    hf_begin, hf_end, hf_has_stopped, hf_stopped, hf_stopped_after, hf_units, hf_watch,
)
from hforest.core.score cimport hf_beats
from hforest.core.series cimport hf_exp, hf_log
from hforest.growth.cpu.builder cimport tree_key

cdef extern from "co2/visits.h" nogil:
    void hf_shuffle(uint64_t key, uint32_t* order, int64_t n)

cdef extern from "co2/fit.h" nogil:
    int HF_HALVINGS
    double HF_ABSENT

cdef enum:
    STORED = 64     # splits of a path whose products are kept for a second walk
    TOGETHER = 16   # samples of a step that a thread takes at a time

# Loss of a sample, and the largest term of its bound.
ctypedef struct hf_terms:
    double loss
    double worst
    int32_t leaf     # of the largest term
    int32_t split    # that is flipped, or -1
    int32_t sign     # of w.x there

# A tree with its workspace. Leaves and splits are numbered within the tree.
ctypedef struct hf_tree_fit:
    const hf_samples* samples
    const hf_schedule* schedule
    const int32_t* child
    int64_t root           # 0, or -1: the tree is one leaf
    int64_t n_splits
    int64_t n_leaves
    int64_t n_outputs
    size_t size            # bytes of a row of w
    char* w
    char* v                # velocities
    char* best_w
    double* theta          # (n_leaves, n_outputs)
    double* speed
    double* best_theta
    double* loss           # (n_leaves, n_outputs): log losses; NULL for targets
    double* low            # (n_outputs,): bounds of theta of all leaves
    double* high           # (n_outputs,): the same, or bounds of log losses
    uint32_t* shuffled
    uint32_t* order
    hf_terms* terms        # (batch,)
    double* sums           # (n_chunks, 2): bounds and losses
    int32_t* place_of_split    # (n_splits,): place in the arrays below, or -1
    int32_t* place_of_leaf     # (n_leaves,)
    int32_t* splits            # of the sums of a step; as many as samples of a batch, at most
    int32_t* leaves
    char* slopes               # a row each
    double* weights
    double* outputs            # (., n_outputs)
    int n_threads
    hf_watch* watch


cdef inline const void* _row(const hf_samples* s, int64_t i) noexcept nogil:
    return <const char*> s.rows.x + i * row_bytes(&s.rows)


cdef inline int64_t _leaf_from(
    const hf_tree_fit* f, const hf_samples* s, const void* row, int64_t at
) noexcept nogil:
    # Returns the leaf that a sample reaches from a split, or from a leaf.
    while at >= 0:
        at = f.child[2 * at + (dot_row(&s.rows, row, f.w + at * f.size) >= 0)]
    return -1 - at


cdef inline double _loss_in(
    const hf_tree_fit* f, const hf_samples* s, int64_t leaf, int64_t i
) noexcept nogil:
    # Returns the loss of sample i in a leaf: eq. 3 or 4 of the CO2 paper.
    cdef double sum = 0
    cdef const double* theta
    cdef const double* y
    cdef int64_t k
    if s.label != NULL:
        return f.loss[leaf * f.n_outputs + s.label[i]]
    theta, y = f.theta + leaf * f.n_outputs, s.targets + i * f.n_outputs
    for k in range(f.n_outputs):
        sum += (y[k] - theta[k]) * (y[k] - theta[k])
    return sum


cdef inline double _most(const hf_tree_fit* f, const hf_samples* s, int64_t i) noexcept nogil:
    # Returns a number that no loss of sample i in any leaf exceeds.
    cdef double sum = 0, low, high
    cdef const double* y
    cdef int64_t k
    if s.label != NULL:
        return f.high[s.label[i]]
    y = s.targets + i * f.n_outputs
    for k in range(f.n_outputs):
        low, high = (y[k] - f.low[k]) * (y[k] - f.low[k]), (y[k] - f.high[k]) * (y[k] - f.high[k])
        sum += low if low > high else high
    return sum


cdef void _write_terms(
    const hf_tree_fit* f, const hf_samples* s, int64_t i, hf_terms* out
) noexcept nogil:
    # Writes the terms (OUT) of a sample. Of equal ones the first is taken: that of its path, then those of
    # flips from the root down.
    cdef const void* row = _row(s, i)
    cdef double product[STORED]
    cdef double most = _most(f, s, i), p, term
    cdef int64_t at = f.root, leaf, depth = 0
    while at >= 0:
        p = dot_row(&s.rows, row, f.w + at * f.size)
        if depth < STORED:
            product[depth] = p
        at = f.child[2 * at + (p >= 0)]
        depth += 1
    out.leaf, out.split, out.sign = <int32_t> (-1 - at), -1, 0
    out.loss = out.worst = _loss_in(f, s, out.leaf, i)
    at, depth = f.root, 0
    while at >= 0:
        p = product[depth] if depth < STORED else dot_row(&s.rows, row, f.w + at * f.size)
        if most - 2 * fabs(p) > out.worst:
            leaf = _leaf_from(f, s, row, f.child[2 * at + (not p >= 0)])
            term = _loss_in(f, s, leaf, i) - 2 * fabs(p)
            if term > out.worst:
                out.worst, out.leaf, out.split, out.sign = term, <int32_t> leaf, <int32_t> at, (
                    1 if p >= 0 else -1
                )
        at = f.child[2 * at + (p >= 0)]
        depth += 1


cdef void _sum_chunk(
    const hf_tree_fit* f, const hf_samples* s, bint of_losses, int64_t c, double* sums
) noexcept nogil:
    # Writes the bound, unless only losses are asked for, and the loss (OUT (2,)) of a chunk of samples.
    cdef int64_t i
    cdef hf_terms terms
    sums[0] = sums[1] = 0
    for i in range(c * HF_CHUNK, min((c + 1) * HF_CHUNK, s.rows.n)):
        if of_losses:
            terms.loss = _loss_in(f, s, _leaf_from(f, s, _row(s, i), f.root), i)
            terms.worst = 0
        else:
            _write_terms(f, s, i, &terms)
        sums[0] += s.weight[i] * terms.worst
        sums[1] += s.weight[i] * terms.loss


cdef double _sum(const hf_tree_fit* f, const hf_samples* s, bint of_losses) noexcept nogil:
    # Returns the bound over all samples, or the loss.
    cdef int64_t n_chunks = (s.rows.n + HF_CHUNK - 1) // HF_CHUNK, c
    cdef int n_threads = f.n_threads
    cdef double total = 0
    if n_threads == 1:
        for c in range(n_chunks):
            if hf_stopped(f.watch):
                return 0
            _sum_chunk(f, s, of_losses, c, f.sums + 2 * c)
    else:
        for c in prange(hf_units(f.watch, n_chunks, n_threads), schedule="dynamic", num_threads=n_threads):
            if hf_begin(f.watch, c):
                _sum_chunk(f, s, of_losses, c, f.sums + 2 * c)
                hf_end(f.watch)
    for c in range(n_chunks):
        total += f.sums[2 * c + of_losses]
    return total


cdef inline void _include(hf_tree_fit* f, int64_t leaf) noexcept nogil:
    # Writes the log losses of a leaf, and widens the bounds so that they hold for it.
    cdef double a
    cdef int64_t k, first = leaf * f.n_outputs
    if f.loss != NULL:
        write_log_losses(f.theta + first, f.n_outputs, f.loss + first)
    for k in range(f.n_outputs):
        a = f.theta[first + k] if f.loss == NULL else f.loss[first + k]
        if a > f.high[k]:
            f.high[k] = a
        if a < f.low[k]:
            f.low[k] = a


cdef void _include_all(hf_tree_fit* f) noexcept nogil:
    # Writes the log losses of all leaves, and the bounds.
    cdef int64_t k, leaf
    for k in range(f.n_outputs):
        f.low[k], f.high[k] = 1e308, -1e308
    for leaf in range(f.n_leaves):
        _include(f, leaf)


cdef double _sum_leaves(
    const hf_tree_fit* f, double* weights, double* sums, double* all_sums
) noexcept nogil:
    # Writes sums over the samples; returns the weight of all.
    #
    # weights   OUT (n_leaves,)  of the samples in each leaf
    # sums      OUT (n_leaves, n_outputs)  weights by class, or weighted targets
    # all_sums  OUT (n_outputs,)  the same over all leaves
    cdef const hf_samples* s = f.samples
    cdef double all_weight = 0, part
    cdef int64_t i, k, leaf, n = f.n_outputs, begin, end
    memset(weights, 0, f.n_leaves * sizeof(double))
    memset(sums, 0, f.n_leaves * n * sizeof(double))
    memset(all_sums, 0, n * sizeof(double))
    for i in range(s.rows.n):
        if i % HF_CHUNK == 0 and hf_stopped(f.watch):
            return 1
        leaf = _leaf_from(f, s, _row(s, i), f.root)
        begin = 0 if s.label == NULL else s.label[i]
        end = n if s.label == NULL else begin + 1
        for k in range(begin, end):
            part = s.weight[i] if s.label != NULL else s.weight[i] * s.targets[i * n + k]
            sums[leaf * n + k] += part
            all_sums[k] += part
        weights[leaf] += s.weight[i]
        all_weight += s.weight[i]
    return all_weight


cdef void _start_theta(hf_tree_fit* f) noexcept nogil:
    # Writes theta from the samples that reach the leaves: logarithms of smoothed shares, or means.
    cdef double* weights = f.speed    # (n_leaves,), cleared below
    cdef double* sums
    cdef double* of_all = f.high
    cdef double all_weight = _sum_leaves(f, weights, f.theta, of_all), added = 0
    cdef int64_t k, leaf, n = f.n_outputs
    cdef bint has_labels = f.loss != NULL
    for k in range(n):
        if has_labels:
            of_all[k] = f.schedule.smooth * (1 if of_all[k] > 0 else HF_ABSENT)
            added += of_all[k]
        else:
            of_all[k] /= all_weight
    for leaf in range(f.n_leaves):
        sums = f.theta + leaf * n
        for k in range(n):
            if has_labels:
                sums[k] = hf_log((sums[k] + of_all[k]) / (weights[leaf] + added))
            elif weights[leaf] > 0:
                sums[k] /= weights[leaf]
            else:
                sums[k] = of_all[k]
    memset(f.speed, 0, f.n_leaves * n * sizeof(double))


cdef void _write_values(hf_tree_fit* f, double* value) noexcept nogil:
    # Writes the values of the leaves (OUT (n_leaves, n_outputs)): shares of the classes of the samples there,
    # or means; in a leaf without samples those of theta.
    cdef double* weights = f.speed
    cdef int64_t k, leaf, n = f.n_outputs
    _sum_leaves(f, weights, value, f.low)
    _include_all(f)
    for leaf in range(f.n_leaves):
        for k in range(leaf * n, (leaf + 1) * n):
            if weights[leaf] > 0:
                value[k] /= weights[leaf]
            else:
                value[k] = f.theta[k] if f.loss == NULL else hf_exp(-f.loss[k])


cdef void _terms_of_batch(hf_tree_fit* f, int64_t first, int64_t last) noexcept nogil:
    # Writes f.terms of the samples order[first] to order[last - 1].
    cdef int64_t n_units = (last - first + TOGETHER - 1) // TOGETHER, u, i
    if f.n_threads == 1:
        for i in range(first, last):
            _write_terms(f, f.samples, f.order[i], f.terms + i - first)
        return
    for u in prange(hf_units(f.watch, n_units, f.n_threads), schedule="dynamic", num_threads=f.n_threads):
        if hf_begin(f.watch, u):
            for i in range(first + u * TOGETHER, min(first + (u + 1) * TOGETHER, last)):
                _write_terms(f, f.samples, f.order[i], f.terms + i - first)
            hf_end(f.watch)


cdef inline int64_t _place(int32_t* place_of, int64_t at, int32_t* places, int64_t* n) noexcept nogil:
    # Returns the place of the sums of a split or leaf; -1 - place if it is new.
    if place_of[at] >= 0:
        return place_of[at]
    place_of[at] = <int32_t> n[0]
    places[n[0]] = <int32_t> at
    n[0] += 1
    return -n[0]


cdef void _step(hf_tree_fit* f, double eta, int64_t first, int64_t last) noexcept nogil:
    # Moves the splits and leaves that samples order[first] to order[last - 1] have terms of.
    cdef const hf_samples* s = f.samples
    cdef const hf_schedule* c = f.schedule
    cdef const hf_terms* terms
    cdef const void* row
    cdef double* theta
    cdef double total = 0, factor, rate, slope
    cdef int64_t n_splits = 0, n_leaves = 0, i, k, at, leaf, n = f.n_outputs, r
    _terms_of_batch(f, first, last)
    if hf_has_stopped(f.watch):
        return
    for r in range(first, last):
        i, terms = f.order[r], f.terms + r - first
        total += s.weight[i]
        at = _place(f.place_of_leaf, terms.leaf, f.leaves, &n_leaves)
        if at < 0:
            at = -1 - at
            f.weights[at] = 0
            memset(f.outputs + at * n, 0, n * sizeof(double))
        f.weights[at] += s.weight[i]
        if s.label != NULL:
            f.outputs[at * n + s.label[i]] += s.weight[i]
        else:
            for k in range(n):
                f.outputs[at * n + k] += s.weight[i] * s.targets[i * n + k]
        if terms.split < 0:
            continue
        at = _place(f.place_of_split, terms.split, f.splits, &n_splits)
        if at < 0:
            at = -1 - at
            memset(f.slopes + at * f.size, 0, f.size)
        # The gradient of -2 |w.x|.
        row, factor = _row(s, i), -2 * terms.sign * s.weight[i]
        add_rows(&s.rows, &row, &factor, 1, f.slopes + at * f.size)
    rate = eta / total
    for at in range(n_leaves):
        leaf = f.leaves[at]
        theta = f.theta + leaf * n
        for k in range(n):
            if s.label != NULL:
                slope = f.weights[at] * hf_exp(-f.loss[leaf * n + k]) - f.outputs[at * n + k]
            else:
                slope = 2 * (f.weights[at] * theta[k] - f.outputs[at * n + k])
            f.speed[leaf * n + k] = c.momentum * f.speed[leaf * n + k] - rate * slope
            theta[k] += f.speed[leaf * n + k]
        _include(f, leaf)
        f.place_of_leaf[leaf] = -1
    for r in range(n_splits):
        at = f.splits[r]
        move(&s.rows, f.w + at * f.size, f.v + at * f.size, f.slopes + r * f.size, c.momentum, rate, c.nu)
        f.place_of_split[at] = -1


cdef bint _start(hf_tree_fit* f, hf_arena* arena, int64_t n_chunks) noexcept nogil:
    # Allocates the workspace; returns whether there was memory.
    cdef int64_t n = f.samples.rows.n, batch = min(f.schedule.batch, n), k = f.n_outputs
    cdef int64_t n_splits = min(batch, f.n_splits), n_leaves = min(batch, f.n_leaves)
    cdef int64_t numbers = f.n_leaves * k * 8
    f.v, f.best_w = <char*> take_zeros(arena, f.n_splits * f.size), <char*> take(arena, f.n_splits * f.size)
    f.speed, f.best_theta = <double*> take_zeros(arena, numbers), <double*> take(arena, numbers)
    f.loss = NULL
    if f.samples.label != NULL:
        f.loss = <double*> take(arena, numbers)
    f.low, f.high = <double*> take(arena, k * 8), <double*> take(arena, k * 8)
    f.shuffled, f.order = <uint32_t*> take(arena, n * 4), <uint32_t*> take(arena, n * 4)
    f.terms = <hf_terms*> take(arena, batch * sizeof(hf_terms))
    f.sums = <double*> take(arena, n_chunks * 16)
    f.place_of_split, f.place_of_leaf = (
        <int32_t*> take(arena, f.n_splits * 4), <int32_t*> take(arena, f.n_leaves * 4)
    )
    f.splits, f.leaves = <int32_t*> take(arena, n_splits * 4), <int32_t*> take(arena, n_leaves * 4)
    f.slopes = <char*> take(arena, n_splits * f.size)
    f.weights, f.outputs = <double*> take(arena, n_leaves * 8), <double*> take(arena, n_leaves * k * 8)
    if arena.failed:
        return False
    if f.n_splits:
        memset(f.place_of_split, 255, f.n_splits * 4)
    memset(f.place_of_leaf, 255, f.n_leaves * 4)
    return True


cdef void _keep(hf_tree_fit* f, bint back) noexcept nogil:
    # Copies w and theta to best_w and best_theta, or back.
    cdef size_t of_w = f.n_splits * f.size, of_theta = f.n_leaves * f.n_outputs * sizeof(double)
    if of_w:
        memcpy(f.w if back else f.best_w, f.best_w if back else f.w, of_w)
    memcpy(f.theta if back else f.best_theta, f.best_theta if back else f.theta, of_theta)


cdef void _descend(
    hf_tree_fit* f, const hf_samples* judge, uint64_t key, double* history
) noexcept nogil:
    # Writes the w and theta of the least bound, or with a judge of the least loss there, among those at the
    # start and after each round. history: OUT (max_rounds + 1,).
    cdef const hf_schedule* c = f.schedule
    cdef int64_t n = f.samples.rows.n, batch = min(c.batch, n), n_epochs, first, split, _
    cdef int64_t round = 0, waiting = 0, n_lowered = 0, n_done = 0, work
    cdef uint64_t epoch = 0
    cdef double eta = c.eta, value, before, score, least
    n_epochs = epochs_of(c, (n + batch - 1) // batch)
    work = batch * (f.samples.rows.n_features // 4 + f.n_outputs + 16)
    hf_shuffle(key, f.shuffled, n)
    for split in range(f.n_splits):
        project(&f.samples.rows, f.w + split * f.size, c.nu)
    _start_theta(f)
    _include_all(f)
    value = history[0] = _sum(f, f.samples, False)
    least = value if judge == NULL else _sum(f, judge, True)
    _keep(f, False)
    while round < c.max_rounds and n_lowered < HF_HALVINGS and value > 0:
        for _ in range(n_epochs):
            order_epoch(key, epoch, f.shuffled, f.order, n)
            epoch += 1
            first = 0
            while first < n:
                if hf_stopped_after(f.watch, &n_done, work):
                    return
                _step(f, eta, first, min(first + batch, n))
                first += batch
        _include_all(f)
        before = value
        round += 1
        value = history[round] = _sum(f, f.samples, False)
        score = value if judge == NULL else _sum(f, judge, True)
        if hf_has_stopped(f.watch):
            return
        if hf_beats(-score, -least):
            least = score
            _keep(f, False)
        if not value < before - c.tolerance * before:
            waiting += 1
        if waiting > c.patience:
            waiting = 0
            n_lowered += 1
            eta *= c.decay
    _keep(f, True)


cdef bint fit_tree(const hf_whole_trees* t, int64_t m, int64_t number, int n_threads) noexcept nogil:
    cdef hf_tree_fit f
    cdef hf_arena arena
    cdef int64_t n = t.samples.rows.n
    cdef bint fine
    memset(&arena, 0, sizeof(hf_arena))
    f.samples, f.schedule, f.watch, f.n_threads = t.samples, t.schedule, t.watch, n_threads
    f.n_splits, f.n_leaves = (
        t.first_split[m + 1] - t.first_split[m], t.first_leaf[m + 1] - t.first_leaf[m]
    )
    f.root = 0 if f.n_splits else -1
    f.n_outputs, f.size = t.n_outputs, w_bytes(&t.samples.rows)
    f.child, f.w = t.child + 2 * t.first_split[m], t.w + t.first_split[m] * f.size
    f.theta = t.theta + t.first_leaf[m] * f.n_outputs
    if t.judge != NULL and t.judge.rows.n > n:
        n = t.judge.rows.n
    fine = _start(&f, &arena, (n + HF_CHUNK - 1) // HF_CHUNK)
    if fine:
        _descend(&f, t.judge, tree_key(t.seed, number), t.history + m * (t.schedule.max_rounds + 1))
        _write_values(&f, t.value + t.first_leaf[m] * t.n_outputs)
    release(&arena)
    return fine
