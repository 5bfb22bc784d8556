"""Surrogates, oblique stumps, trees of stumps and their refinement on the CPU.

One thread grows a tree, or refines one of several. Threads share the passes of `surrogate`, `surrogate_grad`
and `fit_stump` over a large node, the lines of `fit_oc1`, and the samples of a tree that `refine` has alone.
"""

import numpy as np

cimport cython
from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from hforest.co2.cpu.hyperplanes cimport hf_hyperplanes, source_of_hyperplanes
from hforest.co2.cpu.losses cimport (
    hf_members, hf_sums, sum_slopes, sum_terms, theta_slope, write_losses,
)
from hforest.co2.cpu.oc1_search cimport hf_oc1, hf_oc1_workspace, search_hyperplane, start_oc1
from hforest.co2.cpu.rows cimport HF_LANES, hf_rows, real, row_bytes
from hforest.co2.cpu.stump_fit cimport fit_hyperplane, hf_schedule, hf_stump_workspace, start_stump
from hforest.co2.cpu.tree_fit cimport fit_tree, hf_samples, hf_whole_trees
from hforest.core.arena cimport hf_arena, release
from hforest.core.machine cimport (
    hf_begin, hf_end, hf_enter_state, hf_leave_state, hf_stop, hf_threads, hf_threads_for, hf_units, hf_watch,
    raise_interrupt, raise_stopped, start_watch,
)
from hforest.core.views cimport start, start_of_reals, start_of_rows
from hforest.growth.cpu.sources.column_readers cimport columns_of_windows
from hforest.growth.cpu.sources.columns cimport hf_standardized
from hforest.growth.cpu.cpu cimport columns_of, grow_trees, task_of
from hforest.growth.cpu.node_samples cimport start_samples, start_unit, sum_up
from hforest.growth.cpu.task cimport hf_pending, hf_task, hf_workspace

cdef enum:
    PASS = 4                # numbers of a node per nanosecond of a pass
    FIT = 8                 # the same in a fit: between its passes the threads fall asleep
    SEARCH_NS = 30          # nanoseconds per sample of OC1's search along a line
    LINES = 16              # maximum number of lines that OC1 searches at a time
    REFINE = 2              # numbers of a batch per nanosecond of a step, for one split of a path

COPIED = 1 << 29
"""Bytes of windows of which all threads together keep copies at a time."""
READS_WINDOWS = True
"""Whether `grow` reads windows in place instead of copying them to rows."""


cdef hf_rows _rows(x, bint offset):
    # Returns the rows of a matrix of float32 or float64, which must outlive them.
    cdef hf_rows rows
    rows.x, rows.n, rows.n_features, rows.offset = start_of_reals(x), x.shape[0], x.shape[1], offset
    rows.single = x.itemsize == 4
    rows.n_full = rows.n_features // HF_LANES
    rows.n_blocks = (rows.n_features + offset + HF_LANES - 1) // HF_LANES
    rows.place, rows.mean, rows.deviation, rows.room = NULL, NULL, NULL, 0
    return rows


cdef hf_rows _rows_of_windows(x, const hf_standardized* windows):
    # Returns the rows of units.StandardizedWindows, with an offset.
    cdef hf_rows rows = _rows(x.windows.x, True)
    rows.n, rows.n_features = x.shape
    rows.n_full, rows.n_blocks = rows.n_features // HF_LANES, rows.n_features // HF_LANES + 1
    rows.place, rows.mean, rows.deviation = windows.offset, windows.mean, windows.deviation
    rows.room = COPIED // hf_threads() // row_bytes(&rows)
    return rows


cdef int _read(const real[::1] a, real* out) except -1:
    memcpy(out, &a[0], a.shape[0] * sizeof(real))


cdef int _write(const real* a, real[::1] out) except -1:
    memcpy(&out[0], a, out.shape[0] * sizeof(real))


cdef class _Stump:
    """All samples of x as a node, with the workspace to fit a stump to them."""

    cdef hf_rows rows
    cdef hf_members m
    cdef hf_arena arena
    cdef hf_stump_workspace s
    cdef hf_watch watch
    # Own the arrays to which `rows` and `m` point.
    cdef object x
    cdef const int32_t[::1] labels
    cdef const double[:, ::1] targets
    cdef const double[::1] weight
    cdef uint32_t[::1] sample

    @cython.boundscheck(False)  # there may be no samples
    def __cinit__(
        self, x, const int32_t[::1] labels, const double[:, ::1] targets, const double[::1] weight, split,
        int64_t per_ns
    ):
        cdef const double[::1] theta0 = split[1], theta1 = split[2]
        cdef int64_t n = x.shape[0], size = n * (x.shape[1] + theta0.shape[0])
        self.x, self.labels, self.targets, self.weight = x, labels, targets, weight
        self.sample = np.arange(n, dtype=np.uint32)
        self.rows = _rows(x, False)
        start_watch(&self.watch)
        start_stump(
            &self.s, &self.arena, &self.rows, n, theta0.shape[0], hf_threads_for(<double> size / per_ns),
            &self.watch,
        )
        if self.arena.failed:
            raise MemoryError(f"co2: no memory for a stump on {n} samples")
        self.m.n, self.m.sample, self.m.weight = n, &self.sample[0], &weight[0]
        self.m.label, self.m.targets, self.m.copies, self.m.n_copied = NULL, NULL, NULL, 0
        if labels is not None:
            self.m.label = &labels[0]
        else:
            self.m.targets = &targets[0, 0]
        self.m.order, self.m.sign, self.s.passes.m = &self.sample[0], self.s.sign, &self.m
        if self.rows.single:
            _read[float](split[0], <float*> self.s.w)
        else:
            _read[double](split[0], <double*> self.s.w)
        _read[double](theta0, self.s.losses.theta[0])
        _read[double](theta1, self.s.losses.theta[1])

    def __dealloc__(self):
        release(&self.arena)


def surrogate(split, samples, double[::1] out):
    """Writes out[0]: the surrogate, a sum over samples (eq. 10)."""
    cdef _Stump stump = _Stump(*samples, split, PASS)
    cdef uint64_t before = hf_enter_state()
    stump.s.passes.product = NULL
    with nogil:
        write_losses(&stump.m, &stump.s.losses)
        sum_terms(&stump.s.passes, True, stump.s.sums)
    hf_leave_state(before)
    raise_interrupt(&stump.watch)
    out[0] = stump.s.sums.terms


def surrogate_grad(split, samples, grads):
    """Writes the subgradients of the surrogate with respect to w, theta0 and theta1 (eq. 11)."""
    cdef double[::1] grad_w = grads[0], grad_theta0 = grads[1], grad_theta1 = grads[2]
    cdef _Stump stump = _Stump(*samples, split, PASS)
    cdef hf_sums* sums = stump.s.sums
    cdef uint64_t before = hf_enter_state()
    cdef int64_t k
    stump.m.sign = NULL
    with nogil:
        write_losses(&stump.m, &stump.s.losses)
        sum_slopes(&stump.s.passes, 0, stump.m.n, sums)
        for k in range(grad_w.shape[0]):
            grad_w[k] = (<float*> sums.slope)[k] if stump.rows.single else (<double*> sums.slope)[k]
        for k in range(grad_theta0.shape[0]):
            grad_theta0[k] = theta_slope(&stump.m, &stump.s.losses, sums, 0, k)
            grad_theta1[k] = theta_slope(&stump.m, &stump.s.losses, sums, 1, k)
    hf_leave_state(before)
    raise_interrupt(&stump.watch)


def fit_stump(samples, schedule, uint64_t key, split, double[::1] history):
    """Fits w and theta in place (Alg. 1); history: OUT, the surrogate at the start and after each round."""
    cdef double[::1] theta0 = split[1], theta1 = split[2]
    cdef _Stump stump = _Stump(*samples, split, FIT)
    cdef hf_schedule c = schedule._asdict()
    cdef uint64_t before = hf_enter_state()
    with nogil:
        fit_hyperplane(&stump.m, &c, key, &stump.s, &history[0])
    hf_leave_state(before)
    raise_interrupt(&stump.watch)
    if stump.rows.single:
        _write[float](<const float*> stump.s.w, split[0])
    else:
        _write[double](<const double*> stump.s.w, split[0])
    _write[double](stump.s.losses.theta[0], theta0)
    _write[double](stump.s.losses.theta[1], theta1)


def fit_oc1(
    samples, n_outputs, criterion, min_leaf, double least_weight, search, uint64_t key, double[::1] w
):
    """Replaces w by the best of coordinate-wise searches from w and from random starts."""
    x = samples[0]
    cdef const int32_t[::1] labels = samples[1]
    cdef const double[:, ::1] targets = samples[2]
    cdef const double[::1] weight = samples[3]
    cdef hf_task t
    cdef hf_workspace r
    cdef hf_oc1_workspace o
    cdef hf_oc1 c = search._asdict()
    cdef hf_pending node
    cdef hf_watch watch
    cdef bint fine
    cdef uint64_t before
    cdef int n_lines = min(hf_threads_for(<double> SEARCH_NS * weight.shape[0]), LINES)
    memset(&t, 0, sizeof(hf_task))
    memset(&r, 0, sizeof(hf_workspace))
    memset(&node, 0, sizeof(hf_pending))
    start_watch(&watch)
    t.watch = &watch
    t.n, t.single, t.in_terms = len(x), x.dtype.itemsize == 4, True
    t.labels, t.targets = start(labels), start_of_rows(targets)
    t.n_outputs, t.weight, t.criterion, t.min_leaf = n_outputs, &weight[0], criterion, min_leaf
    node.last = t.n
    fine = start_samples(&t, &r, NULL, NULL, 0, t.n) and start_unit(&t, &r, 0, &node)
    start_oc1(&o, &r.arena, start_of_reals(x), x.shape[1], False, t.single, t.n, t.n_outputs, n_lines)
    r.least_weight = least_weight
    if not fine or r.arena.failed:
        hf_stop(&watch)
    else:
        before = hf_enter_state()
        with nogil:
            sum_up(&t, &r, &node)
            search_hyperplane(&t, &r, &node, &c, key, &o, &w[0])
        hf_leave_state(before)
    release(&r.arena)
    raise_stopped(&watch, "fit_oc1: no memory for {} samples", t.n)


def grow(x, bins, objective, max_features, schedule, search, batch):
    """Appends the trees of a batch to `batch.trees` (OUT), as `grow_projected` of growth does.

    x and bins may also be units.StandardizedWindows and None.
    """
    cdef hf_task t = task_of(objective, max_features, batch, x.dtype.itemsize == 4)
    cdef hf_hyperplanes h
    t.in_terms = True
    cdef hf_standardized windows
    if bins is None:
        windows.x, windows.offset = start_of_reals(x.windows.x), start[int64_t](x.windows.offset)
        windows.mean, windows.deviation = start[double](x.units.mean), start[double](x.units.deviation)
        h.columns, h.rows = columns_of_windows(&windows, x.shape[1], t.single), _rows_of_windows(x, &windows)
        t.base = start[int64_t](x.windows.base)
    else:
        h.columns, h.rows = columns_of(bins, None, False), _rows(x, True)
    h.schedule = schedule._asdict()
    h.has_search = search is not None
    if h.has_search:
        h.search = search._asdict()
    t.source = source_of_hyperplanes(&h)
    grow_trees(&t, batch)


cdef hf_samples _samples(samples):
    # Returns the struct of checks.Samples, which must outlive it.
    cdef hf_samples s
    s.rows, s.label = _rows(samples.x, True), start[int32_t](samples.labels)
    s.targets, s.weight = start_of_rows[double](samples.targets), start[double](samples.weight)
    return s


def refine(trees, samples, judge, schedule, uint64_t seed, int64_t first_tree, double[:, ::1] history):
    """Writes w, theta and the values of the leaves of some trees, and the bounds of each to its history.

    first_tree: number of the first of these trees in its forest. history: OUT (n_trees, max_rounds + 1).
    """
    cdef hf_samples s = _samples(samples), j
    cdef hf_schedule c = schedule._asdict()
    cdef hf_whole_trees t
    cdef hf_watch watch
    cdef double[:, ::1] theta = trees.theta, value = trees.value
    cdef int64_t m, n_units, n_trees = len(trees.first_split) - 1, batch = min(c.batch, s.rows.n)
    cdef int64_t work = batch * s.rows.n_features * <int64_t> len(bin(len(trees.child) // n_trees))
    cdef int n_threads = hf_threads_for(<double> work / REFINE)
    cdef uint64_t before
    t.samples, t.judge, t.schedule, t.watch = &s, NULL, &c, &watch
    if judge is not None:
        j = _samples(judge)
        t.judge = &j
    t.first_split, t.first_leaf = start[int64_t](trees.first_split), start[int64_t](trees.first_leaf)
    t.child, t.w = start_of_rows[int32_t](trees.child), <char*> start_of_reals(trees.w)
    t.theta, t.value, t.n_outputs = &theta[0, 0], &value[0, 0], theta.shape[1]
    t.seed, t.history = seed, &history[0, 0]
    start_watch(&watch)
    if n_trees == 1:
        before = hf_enter_state()
        with nogil:
            if not fit_tree(&t, 0, first_tree, n_threads):
                hf_stop(&watch)
        hf_leave_state(before)
    else:
        n_threads = <int> min(n_trees, <int64_t> hf_threads())
        n_units = hf_units(&watch, n_trees, n_threads)
        for m in prange(n_units, schedule="dynamic", num_threads=n_threads, nogil=True):
            if hf_begin(&watch, m):
                if not fit_tree(&t, m, first_tree + m, 1):
                    hf_stop(&watch)
                hf_end(&watch)
    raise_stopped(&watch, "refine: no memory for the trees of {} samples", s.rows.n)
