"""Surrogates, oblique stumps and trees of them on the CPU. A thread owns a tree; a stump is fitted by one."""

import numpy as np

from cython.parallel cimport parallel
from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

cimport numpy as cnp

from hforest.core.machine cimport (
    hf_share, hf_stop, hf_stopped, hf_take, hf_threads, hf_watch, raise_interrupt, simd_path, start_watch,
)

cnp.import_array()

cdef extern from "growth/engine.h" nogil:
    ctypedef struct hf_task:
        const void* codes
        int width
        int64_t n
        int64_t n_columns
        const double* low
        const double* high
        int64_t n_codes
        int single
        const int32_t* labels
        const double* targets
        int64_t n_outputs
        const double* weight
        int criterion
        int64_t n_drawn
        int64_t max_depth
        int64_t min_split
        int64_t min_leaf
        double min_decrease
        int in_floats
        uint64_t seed
        hf_watch* watch
    ctypedef struct hf_pending:
        int64_t first
        int64_t last
    ctypedef struct hf_workspace:
        int64_t n
        double* mean
        double* total
    int hf_start_tree(const hf_task* t, hf_workspace* r, const int32_t* bag)
    double hf_sum_up(const hf_task* t, hf_workspace* r, const hf_pending* node)
    void hf_free_workspace(hf_workspace* r)
    ctypedef struct hf_tree:
        int32_t* feature
        int32_t* left
        double* threshold
        double* gain
        void* value
        int64_t n_nodes
        int64_t n_leaves
        int64_t* start
        uint32_t* index
        int64_t n_entries

cdef extern from "co2/stump.h" nogil:
    int HF_LANES
    ctypedef struct hf_rows:
        const void* x
        int64_t n
        int64_t n_features
        int64_t n_full
        int64_t n_blocks
        int offset
    ctypedef struct hf_members:
        int64_t n
        const uint32_t* sample
        const int32_t* label
        const double* targets
        const double* weight
        uint32_t* order
        int8_t* sign
    ctypedef struct hf_losses:
        int64_t n_outputs
        int squared
        double* theta[2]
        double* loss[2]
    ctypedef struct hf_pull:
        double* sum[2]
        double weight[2]
    ctypedef struct hf_schedule:
        double nu
        double eta
        double momentum
        double decay
        double tolerance
        double smooth
        int64_t tau
        int64_t batch
        int64_t min_steps
        int64_t patience
        int64_t max_rounds
        int64_t convex_rounds
        int64_t min_samples
    ctypedef struct hf_stump_workspace:
        void* w
        void* slope
        double* theta[2]
        double* loss[2]
        double* pull[2]
        uint32_t* order
        int8_t* sign
        double* product
    int hf_make_stump(hf_stump_workspace* s, int64_t n, int64_t n_blocks, int64_t n_outputs, int single)
    void hf_free_stump(hf_stump_workspace* s)
    void hf_prepare(int path, hf_losses* losses)
    double hf_surrogate(const hf_members* m, const hf_losses* losses, const double* product)
    ctypedef struct hf_loops:
        void (*products)(
            const hf_rows* rows, const hf_members* m, const void* w, double* product
        ) noexcept nogil
        double (*slopes)(
            const hf_rows* rows, const hf_members* m, const hf_losses* losses, const void* w, int64_t first,
            int64_t last, void* slope, hf_pull* pull,
        ) noexcept nogil
    const hf_loops* hf_loops_of(int single, int path)
    double hf_slope_of_theta(const hf_losses* losses, const hf_pull* pull, int side, int64_t k)
    int64_t hf_fit_stump(
        int path, int single, const hf_rows* rows, hf_members* m, const hf_schedule* c, int64_t n_outputs,
        uint64_t key, hf_stump_workspace* s, double* history, hf_watch* watch,
    )

cdef extern from "co2/oc1.h" nogil:
    ctypedef struct hf_oc1:
        int64_t restarts
        int64_t jumps
    ctypedef struct hf_oc1_workspace:
        double* w
    int hf_make_oc1(hf_oc1_workspace* o, const void* x, int64_t n_features, int offset, int single, int64_t n)
    void hf_free_oc1(hf_oc1_workspace* o)
    void hf_fit_oc1(
        const hf_task* t, hf_workspace* r, const hf_pending* node, const hf_oc1* c, uint64_t key,
        hf_oc1_workspace* o, double* w,
    )

cdef extern from "co2/oblique.h" nogil:
    ctypedef struct hf_oblique_task:
        hf_task univariate
        hf_rows rows
        hf_schedule schedule
        const hf_oc1* oc1
        int path
    ctypedef struct hf_oblique_tree:
        hf_tree tree
        void* weight
    int hf_grow_oblique(
        const hf_oblique_task* o, int64_t number, const int32_t* bag, hf_oblique_tree* grown
    )
    void hf_free_oblique(hf_oblique_tree* o)

cdef enum:
    CHUNK = 1024      # samples whose slopes are summed in the dtype of x


cdef hf_rows _rows(x, bint offset):
    cdef hf_rows rows
    rows.x, rows.n, rows.n_features, rows.offset = cnp.PyArray_DATA(x), x.shape[0], x.shape[1], offset
    rows.n_full = rows.n_features // HF_LANES
    rows.n_blocks = (rows.n_features + offset + HF_LANES - 1) // HF_LANES
    return rows


cdef class _Stump:
    """All samples of x as a node, with the workspace to fit a stump to them."""

    cdef hf_rows rows
    cdef hf_members m
    cdef hf_stump_workspace s
    cdef hf_losses losses
    cdef int single
    cdef object kept

    def __cinit__(self, x, labels, targets, const double[::1] weight, int64_t n_outputs):
        cdef uint32_t[::1] sample = np.arange(len(x) + 1, dtype=np.uint32)
        cdef int64_t i
        cdef int side
        self.rows, self.single = _rows(x, False), x.dtype.itemsize == 4
        if not hf_make_stump(&self.s, len(x), self.rows.n_blocks, n_outputs, self.single):
            raise MemoryError(f"co2: no memory for a stump on {len(x)} samples")
        self.kept = (x, labels, targets, weight, sample)
        self.m.n, self.m.sample = len(x), &sample[0]
        self.m.weight = <const double*> cnp.PyArray_DATA(np.asarray(weight))
        self.m.label, self.m.targets = NULL, NULL
        if labels is not None:
            self.m.label = <const int32_t*> cnp.PyArray_DATA(labels)
        else:
            self.m.targets = <const double*> cnp.PyArray_DATA(targets)
        self.m.order, self.m.sign = self.s.order, self.s.sign
        for i in range(self.m.n):
            self.s.order[i] = <uint32_t> i
        self.losses.n_outputs, self.losses.squared = n_outputs, labels is None
        for side in range(2):
            self.losses.theta[side], self.losses.loss[side] = self.s.theta[side], self.s.loss[side]

    def __dealloc__(self):
        hf_free_stump(&self.s)

    cdef double surrogate(self, w, const double[::1] theta0, const double[::1] theta1):
        memcpy(self.s.w, cnp.PyArray_DATA(w), cnp.PyArray_NBYTES(w))
        memcpy(self.s.theta[0], &theta0[0], theta0.shape[0] * sizeof(double))
        memcpy(self.s.theta[1], &theta1[0], theta1.shape[0] * sizeof(double))
        hf_prepare(simd_path(), &self.losses)
        hf_loops_of(self.single, simd_path()).products(&self.rows, &self.m, self.s.w, self.s.product)
        return hf_surrogate(&self.m, &self.losses, self.s.product)


def surrogate(w, theta0, theta1, x, labels, targets, weight, double[::1] out):
    """out[0] = the surrogate, a sum over samples (eq 10)."""
    out[0] = _Stump(x, labels, targets, weight, len(theta0)).surrogate(w, theta0, theta1)


def surrogate_grad(
    w, theta0, theta1, x, labels, targets, weight, double[::1] grad_w, double[::1] grad_theta0,
    double[::1] grad_theta1,
):
    """Its subgradient."""
    cdef _Stump stump = _Stump(x, labels, targets, weight, len(theta0))
    cdef hf_pull pull
    cdef int64_t first, k, size = stump.rows.n_blocks * HF_LANES * (4 if stump.single else 8)
    cdef double[:, ::1] pulls = np.zeros((2, len(theta0)))
    cdef hf_watch watch
    start_watch(&watch)
    stump.surrogate(w, theta0, theta1)
    pull.sum[0], pull.sum[1] = &pulls[0, 0], &pulls[1, 0]
    pull.weight[0] = pull.weight[1] = 0
    for k in range(grad_w.shape[0]):
        grad_w[k] = 0
    for first in range(0, stump.m.n, CHUNK):
        if hf_stopped(&watch):
            break
        memset(stump.s.slope, 0, size)
        hf_loops_of(stump.single, simd_path()).slopes(
            &stump.rows, &stump.m, &stump.losses, stump.s.w, first, min(first + CHUNK, stump.m.n),
            stump.s.slope, &pull,
        )
        for k in range(grad_w.shape[0]):
            grad_w[k] += (<float*> stump.s.slope)[k] if stump.single else (<double*> stump.s.slope)[k]
    raise_interrupt(&watch)
    for k in range(grad_theta0.shape[0]):
        grad_theta0[k] = hf_slope_of_theta(&stump.losses, &pull, 0, k)
        grad_theta1[k] = hf_slope_of_theta(&stump.losses, &pull, 1, k)


def fit_stump(
    x, labels, targets, weight, schedule, uint64_t key, w, double[::1] theta0, double[::1] theta1,
    double[::1] history,
):
    """Fits w, in place, and theta (Alg. 1); the surrogate at the start and after each round."""
    cdef int64_t n_outputs = theta0.shape[0]
    cdef _Stump stump = _Stump(x, labels, targets, weight, n_outputs)
    cdef hf_schedule c = schedule._asdict()
    cdef hf_watch watch
    start_watch(&watch)
    memcpy(stump.s.w, cnp.PyArray_DATA(w), cnp.PyArray_NBYTES(w))
    with nogil:
        hf_fit_stump(
            simd_path(), stump.single, &stump.rows, &stump.m, &c, n_outputs, key, &stump.s, &history[0],
            &watch,
        )
    raise_interrupt(&watch)
    memcpy(cnp.PyArray_DATA(w), stump.s.w, cnp.PyArray_NBYTES(w))
    memcpy(&theta0[0], stump.s.theta[0], n_outputs * sizeof(double))
    memcpy(&theta1[0], stump.s.theta[1], n_outputs * sizeof(double))


def fit_oc1(
    x, labels, targets, const double[::1] weight, n_outputs, criterion, min_leaf, restarts, jumps,
    uint64_t key, double[::1] w,
):
    """The best of coordinate-wise searches from w and from random starts, in place."""
    cdef hf_task t
    cdef hf_workspace r
    cdef hf_oc1_workspace o
    cdef hf_oc1 c
    cdef hf_pending node
    cdef hf_watch watch
    cdef int fine
    memset(&t, 0, sizeof(hf_task))
    memset(&r, 0, sizeof(hf_workspace))
    memset(&o, 0, sizeof(hf_oc1_workspace))
    memset(&node, 0, sizeof(hf_pending))
    start_watch(&watch)
    t.watch = &watch
    c.restarts, c.jumps = restarts, jumps
    t.n, t.width, t.single, t.in_floats = len(x), 4, x.dtype.itemsize == 4, 1
    if labels is not None:
        t.labels = <const int32_t*> cnp.PyArray_DATA(labels)
    else:
        t.targets = <const double*> cnp.PyArray_DATA(targets)
    t.n_outputs, t.weight, t.criterion, t.min_leaf = n_outputs, &weight[0], criterion, min_leaf
    node.last = t.n
    fine = hf_start_tree(&t, &r, NULL)
    fine = fine and hf_make_oc1(&o, cnp.PyArray_DATA(x), x.shape[1], 0, t.single, t.n)
    if fine:
        with nogil:
            hf_sum_up(&t, &r, &node)
            hf_fit_oc1(&t, &r, &node, &c, key, &o, &w[0])
    hf_free_workspace(&r)
    hf_free_oc1(&o)
    raise_interrupt(&watch)
    if not fine:
        raise MemoryError(f"fit_oc1: no memory for {t.n} samples")


cdef object _array(const void* data, int64_t n, dtype):
    a = np.empty(n, dtype)
    if n:
        memcpy(cnp.PyArray_DATA(a), data, cnp.PyArray_NBYTES(a))
    return a


cdef object _tree(const hf_oblique_tree* grown, int64_t n_outputs, dtype):
    cdef const hf_tree* tree = &grown.tree
    return (
        _array(tree.feature, tree.n_nodes, np.int32),
        _array(tree.threshold, tree.n_nodes, np.float64),
        _array(tree.left, tree.n_nodes, np.int32),
        _array(tree.gain, tree.n_nodes, np.float64),
        _array(tree.value, tree.n_leaves * n_outputs, dtype),
        _array(tree.start, tree.n_nodes, np.int64),
        _array(tree.index, tree.n_entries, np.int32),
        _array(grown.weight, tree.n_entries, dtype),
    )


def grow(
    x, bins, const double[:, ::1] low, const double[:, ::1] high, labels, targets, n_outputs,
    const double[::1] weight, criterion, max_features, max_depth, min_split, min_leaf, min_decrease, schedule,
    search, seed, int64_t first, int64_t n_trees, counts, trees,
):
    """Appends trees first, ..., first + n_trees - 1 to `trees`, as `grow_projected` of growth does."""
    cdef hf_oblique_task o
    cdef hf_oc1 oc1
    cdef hf_task* t = &o.univariate
    cdef hf_oblique_tree* grown = <hf_oblique_tree*> calloc(n_trees + 1, sizeof(hf_oblique_tree))
    cdef const int32_t* bag = NULL
    cdef int64_t m, bag_size = 0
    cdef hf_watch watch
    if grown == NULL:
        raise MemoryError(f"grow: no memory for {n_trees} trees")
    memset(&o, 0, sizeof(hf_oblique_task))
    start_watch(&watch)
    t.watch = &watch
    try:
        t.n, t.n_columns, t.single = x.shape[0], x.shape[1], x.dtype.itemsize == 4
        t.codes, t.width = cnp.PyArray_DATA(bins), bins.itemsize
        t.low, t.high, t.n_codes = &low[0, 0], &high[0, 0], low.shape[1]
        if labels is not None:
            t.labels = <const int32_t*> cnp.PyArray_DATA(labels)
        else:
            t.targets = <const double*> cnp.PyArray_DATA(targets)
        t.n_outputs, t.weight, t.criterion = n_outputs, &weight[0], criterion
        t.n_drawn, t.max_depth, t.min_split, t.min_leaf = max_features, max_depth, min_split, min_leaf
        t.min_decrease, t.in_floats, t.seed = min_decrease, 1, seed
        o.rows, o.path = _rows(x, True), simd_path()
        o.schedule = schedule._asdict()
        if search is not None:
            oc1 = search._asdict()
            o.oc1 = &oc1
        if counts is not None:
            bag, bag_size = <const int32_t*> cnp.PyArray_DATA(counts), t.n
        hf_share(&watch, n_trees)
        with nogil, parallel(num_threads=hf_threads()):
            m = hf_take(&watch)
            while m >= 0:
                if not hf_grow_oblique(&o, first + m, bag + m * bag_size, &grown[m]):
                    hf_stop(&watch)
                m = hf_take(&watch)
        raise_interrupt(&watch)
        if watch.stopped:
            raise MemoryError(f"grow: no memory for a tree on {t.n} samples")
        for m in range(n_trees):
            trees.append(_tree(&grown[m], n_outputs, x.dtype))
            hf_free_oblique(&grown[m])
    finally:
        for m in range(n_trees):
            hf_free_oblique(&grown[m])
        free(grown)
