"""Candidate source: hyperplanes (Norouzi et al. 2015, section 5).

A node computes the best of its random univariate splits, fits a stump from it, and splits its samples by the
stump. If the stump leaves a side empty, as w = 0 does, the node keeps the univariate split.

Left out, because test errors were higher (docs/results-co2.md): keeping the univariate split wherever its
gain is higher, and moving the offset of the stump to the split of highest gain.
"""

from libc.math cimport INFINITY, nextafter, nextafterf
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from hforest.co2.cpu.losses cimport fill_rows, hf_members
from hforest.co2.cpu.oc1_search cimport hf_oc1_workspace, search_hyperplane, start_oc1
from hforest.co2.cpu.rows cimport HF_LANES, HF_TOGETHER, hf_rows, real
from hforest.co2.cpu.stump_fit cimport fit_hyperplane, hf_stump_workspace, start_stump
from hforest.core.machine cimport hf_has_stopped, hf_stopped
from hforest.core.arena cimport hf_arena, take, take_zeros
from hforest.growth.cpu.builder cimport add_entries
from hforest.growth.cpu.sources.column_source cimport best_column, start_columns
from hforest.growth.cpu.sources.node_orders cimport fill_sides, hf_column_workspace
from hforest.growth.cpu.node_samples cimport score_sides
from hforest.growth.cpu.task cimport class_of, hf_pending, hf_source, hf_split, hf_task, hf_tree, hf_workspace

# The workspace of a tree.
ctypedef struct hf_hyperplane_workspace:
    hf_stump_workspace stump
    hf_oc1_workspace search
    uint32_t* index      # (n_features,): the features of the best hyperplane whose weight is not 0
    double* factor
    int32_t* label       # (n,)  of a node's samples, as is weight
    double* weight
    int64_t n_entries    # 0: the node keeps the univariate split


cdef bint _start_tree(const hf_task* t, hf_workspace* r) noexcept nogil:
    # Allocates the workspace of a tree; returns whether there was memory.
    cdef const hf_hyperplanes* h = <const hf_hyperplanes*> t.source.data
    cdef hf_arena* arena = &r.arena
    cdef hf_hyperplane_workspace* work
    cdef int64_t n_features = h.columns.n_columns
    work = <hf_hyperplane_workspace*> take_zeros(arena, sizeof(hf_hyperplane_workspace))
    r.source, r.best_split = work, _best_split
    if work == NULL or not start_columns(t, r, &h.columns):
        return False
    work.index, work.factor = <uint32_t*> take(arena, n_features * 4), <double*> take(arena, n_features * 8)
    work.label, work.weight = <int32_t*> take(arena, r.n * 4), <double*> take(arena, r.n * 8)
    start_stump(&work.stump, arena, &h.rows, r.n, t.n_outputs, 1, t.watch)
    if h.has_search:
        start_oc1(&work.search, arena, h.rows.x, n_features, True, t.single, r.n, t.n_outputs, 1)
    return not arena.failed


cdef void _fit(
    const hf_task* t, hf_workspace* r, const hf_pending* node, uint64_t key, const hf_split* start, real* w,
    hf_members* m
) noexcept nogil:
    # Writes w (OUT (n_features + 1,)), fitted from x[column] - threshold as the start, and the samples (OUT).
    cdef const hf_hyperplanes* h = <const hf_hyperplanes*> t.source.data
    cdef hf_hyperplane_workspace* work = <hf_hyperplane_workspace*> r.source
    cdef int64_t i, j, n_features = h.columns.n_columns
    cdef double* wide = work.stump.start
    m.n, m.sample, m.targets = node.last - node.first, r.sample + node.first, t.targets
    for i in range(m.n):
        work.label[i] = <int32_t> class_of(t, r, node.first + i)
        work.weight[i] = r.weight[r.payload[node.first + i]]
    m.label = work.label if t.labels != NULL else NULL
    m.weight, m.order, m.sign = work.weight, NULL, NULL
    m.copies, m.n_copied = NULL, 0
    memset(w, 0, h.rows.n_blocks * HF_LANES * sizeof(real))
    w[start.column], w[n_features] = 1, <real> start.threshold
    if h.has_search:
        memset(wide, 0, (n_features + 1) * sizeof(double))
        wide[start.column], wide[n_features] = 1, start.threshold
        search_hyperplane(t, r, node, &h.search, key, &work.search, wide)
        for j in range(n_features + 1):
            w[j] = <real> wide[j]
        return
    fit_hyperplane(m, &h.schedule, key, &work.stump, NULL)


cdef void _fill_sides(
    const hf_rows* rows, const hf_members* m, const hf_hyperplane_workspace* work, real limit,
    uint8_t* goes_right
) noexcept nogil:
    # Writes the sides of samples from projections computed as in tree.predict: sums in float64, in the order
    # of the entries, rounded once.
    cdef const void* row[HF_TOGETHER]
    cdef double sum[HF_TOGETHER]
    cdef int64_t first, e
    cdef int i
    for first in range(0, m.n, 8):
        fill_rows(rows, m, NULL, first, row)
        for i in range(HF_TOGETHER):
            sum[i] = 0
        for e in range(work.n_entries):
            for i in range(HF_TOGETHER):
                sum[i] += work.factor[e] * <double> (<const real*> row[i])[work.index[e]]
        for i in range(<int> min(HF_TOGETHER, m.n - first)):
            goes_right[first + i] = <real> sum[i] > limit


cdef hf_split _split_by(
    const hf_task* t, hf_workspace* r, const hf_pending* node, uint64_t key, double weight, hf_split start,
    real* w
) noexcept nogil:
    # Returns the split by the hyperplane fitted from a univariate split, or the univariate split.
    cdef const hf_hyperplanes* h = <const hf_hyperplanes*> t.source.data
    cdef hf_hyperplane_workspace* work = <hf_hyperplane_workspace*> r.source
    cdef hf_split split = start
    cdef int64_t j, n_features = h.columns.n_columns
    cdef real limit
    cdef hf_members m
    _fit(t, r, node, key, &start, w, &m)
    work.n_entries = 0
    if hf_stopped(t.watch):
        split.column = -1
        return split
    for j in range(n_features):
        work.index[work.n_entries], work.factor[work.n_entries] = <uint32_t> j, w[j]
        work.n_entries += w[j] != 0
    # `value <= limit` is equivalent to `value < w[n_features]`.
    if real is float:
        limit = nextafterf(w[n_features], -INFINITY)
    else:
        limit = nextafter(w[n_features], -INFINITY)
    if work.n_entries:
        _fill_sides(&h.rows, &m, work, limit, r.goes_right)
        split.score, split.threshold = score_sides(t, r, node, weight), limit
        if split.score > -INFINITY:
            return split
    work.n_entries = 0
    fill_sides(t, r, &h.columns, node, &(<hf_column_workspace*> r.columns).orders, &start)
    return start


cdef hf_split _best_split(
    const hf_task* t, hf_workspace* r, hf_pending* node, uint64_t key, double weight
) noexcept nogil:
    cdef hf_hyperplane_workspace* work = <hf_hyperplane_workspace*> r.source
    cdef hf_split start = best_column(t, r, node, key, weight)
    if hf_has_stopped(t.watch):
        start.column = -1
    if start.column < 0:
        return start
    if t.single:
        return _split_by[float](t, r, node, key, weight, start, <float*> work.stump.w)
    return _split_by[double](t, r, node, key, weight, start, <double*> work.stump.w)


cdef bint _write(
    const hf_task* t, hf_workspace* r, const hf_split* split, hf_tree* tree, int64_t v
) noexcept nogil:
    # Writes the hyperplane, or the feature, of a node.
    cdef hf_hyperplane_workspace* work = <hf_hyperplane_workspace*> r.source
    tree.feature[v] = -2 if work.n_entries else <int32_t> split.column
    return add_entries(t, tree, work.index, work.factor, work.n_entries)


cdef hf_source source_of_hyperplanes(const hf_hyperplanes* hyperplanes) noexcept nogil:
    # Returns the source of hyperplanes, which must outlive it.
    cdef hf_source source
    source.data, source.has_short_bins = hyperplanes, False
    source.start, source.write = _start_tree, _write
    return source
