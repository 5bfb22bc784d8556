"""A level of trees whose rows are in several parts: operations on the rows of one part.

The rows of the pending nodes of a batch of trees, in one part; the entries of a node are in ascending order:

    rows, weight   | node 0      | node 1 | node 2 ...     indptr[v]: position of the first entry of node v

A slot is a node with one of the features that it samples. Its histogram has one cell per bin:

    cells          | slot 0: bins 0, 1, ... | slot 1 ...   cells[s]: position of the first cell of slot s
    channels       classification  weight of each class, number of rows
                   regression      sum of each target in the unit of the node, weight, number of rows

All sums are integers. The owner of a slot or a node writes its sums, so threads change no result.
"""

from cython.parallel cimport prange
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

import numpy as np

from hforest.core.machine cimport (
    hf_begin, hf_end, hf_threads_for, hf_units, hf_watch, raise_interrupt, start_watch,
)
from hforest.growth.cpu.leaves cimport HF_LEAF_TOTALS, hf_add_to_leaf
from hforest.growth.cpu.sources.feature_sampling cimport (
    hf_features, hf_sampling, sample_feature, start_features, undo_sampling,
)
from hforest.growth.cpu.sources.projections cimport (
    distribution_of, hf_candidate, hf_candidate_of, hf_distribution, hf_draw_projection, real,
)
from hforest.growth.cpu.task cimport (
    HF_STREAM_ENTRY, hf_philox,
)

from ...core.projections import draw_table

cdef extern from "growth/units.h" nogil:
    ctypedef struct hf_scaling:
        pass
    hf_scaling hf_scaling_of(int exponent)
    int64_t hf_scaled(double a, hf_scaling by)

ctypedef fused code_t:
    uint8_t
    uint16_t
    uint32_t

cdef enum:
    BLOCK = 1 << 14    # rows whose bins a thread computes together
    BIN_NS = 20        # nanoseconds per value whose bin is searched
    ROW_NS = 4         # nanoseconds per row of a node, and per target or slot of it


# ----------------------------------------------------------------------------- keys

def draw_projections(distribution, const uint64_t[::1] keys, int64_t n_projections):
    """Returns projections 0 to n_projections - 1 of each node: indptr, indices (int32), data (float32).

    distribution: a hforest.project.Distribution. Projection j of node v has the number v n_projections + j.
    """
    cdef const int32_t[::1] table = draw_table(distribution)
    cdef hf_distribution a = distribution_of(distribution, table)
    cdef int64_t v, j, n, used = 0
    cdef hf_candidate candidate
    cdef uint32_t[::1] entry = np.empty(max(1024, a.max_entries), np.uint32)
    cdef float[::1] weight = np.empty(entry.shape[0], np.float32)
    indptr = np.zeros(keys.shape[0] * n_projections + 1, np.int64)
    cdef int64_t[::1] start = indptr
    for v in range(keys.shape[0]):
        for j in range(n_projections):
            if used + a.max_entries > entry.shape[0]:
                n = 2 * entry.shape[0]
                entry = np.concatenate([entry, np.empty(n, np.uint32)])
                weight = np.concatenate([weight, np.empty(n, np.float32)])
            candidate = hf_candidate_of(&a, keys[v], <uint64_t> j)
            used += hf_draw_projection(
                &a, candidate, hf_philox(candidate.key, 0, HF_STREAM_ENTRY), &entry[used], &weight[used]
            )
            start[v * n_projections + j + 1] = used
    return indptr, np.array(entry[:used]).astype(np.int32), np.array(weight[:used])


def sampled_features(const uint64_t[::1] keys, int64_t first, int64_t count, int64_t n_columns):
    """Returns the features that each node samples, from the first-th on: (n, count) int32."""
    cdef int64_t v, i
    cdef uint32_t column
    cdef hf_features features
    cdef hf_sampling sampling
    found = np.empty((keys.shape[0], count), np.int32)
    cdef int32_t[:, ::1] out = found
    cdef uint32_t[:, ::1] places = np.empty((2, n_columns), np.uint32)
    start_features(&features, n_columns, &places[0, 0], &places[1, 0])
    for v in range(keys.shape[0]):
        sampling.key, sampling.n_sampled = keys[v], 0
        for i in range(first + count):
            column = sample_feature(&features, &sampling)
            if i >= first:
                out[v, i - first] = <int32_t> column
        undo_sampling(&features, &sampling)
    return found


# ----------------------------------------------------------------------------- bins of projections

cdef inline int64_t _n_below(const real* limit, int64_t n, real value) noexcept nogil:
    # Returns the number of ascending limits that are below a value; for NaN, all of them.
    cdef int64_t low = 0, half
    while n > 0:
        half = n >> 1
        low = low + (0 if value <= limit[low + half] else n - half)
        n = half
    return low


cdef void _bins(
    const real[:, :] values, const int64_t[::1] start, const real[::1] limits, const int64_t[::1] missing,
    code_t[:, ::1] bins, hf_watch* watch
) noexcept nogil:
    cdef int64_t j, i, n, n_blocks = (values.shape[1] + BLOCK - 1) // BLOCK
    cdef int threads = hf_threads_for(<double> BIN_NS * values.shape[0] * values.shape[1])
    cdef const real* limit
    for j in prange(
        hf_units(watch, values.shape[0] * n_blocks, threads), schedule="dynamic", num_threads=threads
    ):
        if hf_begin(watch, j):
            n = start[j // n_blocks + 1] - start[j // n_blocks]
            limit = &limits[start[j // n_blocks]]
            for i in range(j % n_blocks * BLOCK, min((j % n_blocks + 1) * BLOCK, values.shape[1])):
                bins[j // n_blocks, i] = <code_t> _n_below(limit, n, values[j // n_blocks, i])
                if values[j // n_blocks, i] != values[j // n_blocks, i]:
                    bins[j // n_blocks, i] = <code_t> missing[j // n_blocks]
            hf_end(watch)


def _find_bins(
    const real[:, :] values, const int64_t[::1] start, const real[::1] limits, const int64_t[::1] missing,
    code_t[:, ::1] bins
):
    cdef hf_watch watch
    start_watch(&watch)
    _bins(values, start, limits, missing, bins, &watch)
    raise_interrupt(&watch)


def find_bins(values, start, limits, missing, bins):
    """Writes the number of limits of its slot that are below each value, and for NaN the slot's `missing`.

    values: (n_slots, n_rows). start: (n_slots + 1,): slot j has limits start[j] to start[j + 1] - 1,
    ascending, with the dtype of values. bins: OUT (n_slots, n_rows) of uint8, uint16 or uint32.
    """
    if bins.size:
        limits = np.append(limits, limits.dtype.type(0))  # so that its address exists if no slot has a limit
        _find_bins(values, start, limits, missing, bins)


# ----------------------------------------------------------------------------- sums of rows

cdef void _add_labels(
    const code_t* code, const int32_t* label, int64_t n_classes, const int32_t* row, const int32_t* weight,
    int64_t n, int64_t* cell
) noexcept nogil:
    # Adds the weights of n rows to the cells of a slot, (n_bins, n_classes + 1).
    cdef int64_t i
    cdef int64_t* to
    for i in range(n):
        to = cell + <int64_t> code[row[i]] * (n_classes + 1)
        to[label[row[i]]] += weight[i]
        to[n_classes] += 1


cdef void _add_targets(
    const code_t* code, const int64_t* q, int64_t n_targets, const int32_t* row, const int32_t* weight,
    int64_t n, int64_t* cell
) noexcept nogil:
    # Adds the targets of n rows in the unit of their node, (n, n_targets), to the cells of a slot.
    cdef int64_t i, j
    cdef int64_t* to
    for i in range(n):
        to = cell + <int64_t> code[row[i]] * (n_targets + 2)
        for j in range(n_targets):
            to[j] += q[i * n_targets + j]
        to[n_targets] += weight[i]
        to[n_targets + 1] += 1


cdef void _histograms(
    const code_t[:, ::1] codes, const int32_t* label, const int64_t* q, int64_t k,
    const int32_t[::1] row, const int32_t[::1] weight, const int64_t[::1] indptr,
    const int64_t[::1] node, const int32_t[::1] column, const int64_t[::1] cells, int64_t[:, ::1] out,
    hf_watch* watch
) noexcept nogil:
    cdef int64_t s, first, n
    cdef double slots = <double> node.shape[0] / max(1, indptr.shape[0] - 1)
    cdef int threads = hf_threads_for(ROW_NS * slots * row.shape[0])
    for s in prange(hf_units(watch, node.shape[0], threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, s):
            first = indptr[node[s]]
            n = indptr[node[s] + 1] - first
            if n and label != NULL:
                _add_labels(
                    &codes[column[s], 0], label, k, &row[first], &weight[first], n, &out[cells[s], 0]
                )
            elif n:
                _add_targets(
                    &codes[column[s], 0], q + first * k, k, &row[first], &weight[first], n, &out[cells[s], 0]
                )
            hf_end(watch)


def histograms(
    const code_t[:, ::1] codes, labels, targets, int64_t n_outputs, state, node, column, cells
):
    """Returns the histograms of slots over the rows of a part: (n_cells, n_channels) int64.

    codes: (n_columns, n_rows) of uint8, uint16 or uint32. labels: (n_rows,) int32 or, for regression, None:
    then targets are the result of `in_units`. state: (row, weight, indptr) of the pending nodes. node,
    column: (n_slots,) int64 and int32. cells: (n_slots + 1,) int64.
    """
    cdef hf_watch watch
    cdef const int32_t[::1] label
    cdef const int64_t[:, ::1] target
    cdef const int32_t* first_label = NULL
    cdef const int64_t* first_target = NULL
    out = np.zeros((cells[len(cells) - 1], n_outputs + (1 if targets is None else 2)), np.int64)
    row, weight, indptr = state
    if not len(row) or not len(node):
        return out
    if targets is None:
        label = labels
        first_label = &label[0]
    else:
        target = targets
        first_target = &target[0, 0]
    start_watch(&watch)
    _histograms[code_t](
        codes, first_label, first_target, n_outputs, row, weight, indptr, node, column, cells, out, &watch
    )
    raise_interrupt(&watch)
    return out


# ----------------------------------------------------------------------------- targets in units

cdef void _scale_node(
    const double[:, ::1] target, const int32_t* row, const int32_t* weight, int64_t n, const double* centre,
    int exponent, int64_t* q, double* maxima, int64_t* sums
) noexcept nogil:
    # Writes the targets of n rows as integers, and adds them to the extremes and sums of their node.
    cdef int64_t i, j, k = target.shape[1]
    cdef hf_scaling by = hf_scaling_of(exponent)
    cdef double t, w, a
    for i in range(n):
        w = weight[i]
        maxima[1] = max(maxima[1], w)
        for j in range(k):
            t = target[row[i], j]
            a = w * (t - centre[j])
            q[j] = hf_scaled(a, by)
            maxima[0] = max(maxima[0], fabs(a))
            maxima[2 + j], maxima[2 + k + j] = max(maxima[2 + j], t), max(maxima[2 + k + j], -t)
            sums[j], sums[k + j] = max(sums[j], q[j]), max(sums[k + j], -q[j])
            sums[2 * k + j] += q[j]
            sums[3 * k + j] += -q[j] if q[j] < 0 else q[j]
        q += k


cdef void _scale_nodes(
    const double[:, ::1] target, const int32_t[::1] row, const int32_t[::1] weight, const int64_t[::1] indptr,
    const int64_t[::1] node, const double[:, ::1] centre, const int64_t[::1] exponent, int64_t[:, ::1] q,
    double[:, ::1] maxima, int64_t[:, ::1] sums, hf_watch* watch
) noexcept nogil:
    cdef int64_t v, first, n
    cdef int threads = hf_threads_for(<double> ROW_NS * row.shape[0] * target.shape[1])
    for v in prange(hf_units(watch, node.shape[0], threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, v):
            first = indptr[node[v]]
            n = indptr[node[v] + 1] - first
            if n:
                _scale_node(
                    target, &row[first], &weight[first], n, &centre[v, 0], <int> exponent[v], &q[first, 0],
                    &maxima[v, 0], &sums[v, 0],
                )
            hf_end(watch)


def in_units(targets, state, node, centre, exponent):
    """Returns the targets of nodes in units, with their extremes and sums.

    targets: (n_rows, n_outputs) float64. state: (row, weight, indptr) of the pending nodes. node: (n,) int64.
    centre, exponent: (n, n_outputs) and (n,), the units of these nodes.

    (n_entries, n_outputs) int64: targets in units; entries of other nodes are not written. (n, 2 +
    2 n_outputs) float64: the greatest |weight (target - centre)|, weight, and by output target and negative
    target. (n, 4 n_outputs) int64, of targets in units: the greatest, the greatest negative one, the sum, and
    the sum of absolute values, each by output.
    """
    cdef hf_watch watch
    row, weight, indptr = state
    k = targets.shape[1]
    q, maxima = np.empty((len(row), k), np.int64), np.full((len(node), 2 + 2 * k), -np.inf)
    sums = np.zeros((len(node), 4 * k), np.int64)
    sums[:, : 2 * k] = np.iinfo(np.int64).min
    start_watch(&watch)
    _scale_nodes(targets, row, weight, indptr, node, centre, exponent, q, maxima, sums, &watch)
    raise_interrupt(&watch)
    return q, maxima, sums


cdef void _leaf_totals(
    const int64_t[:, ::1] q, const int32_t[::1] weight, const int64_t[::1] indptr, const int64_t[::1] node,
    int64_t[:, :, ::1] totals, hf_watch* watch
) noexcept nogil:
    cdef int64_t v, i, j
    cdef int threads = hf_threads_for(<double> ROW_NS * q.shape[0] * q.shape[1])
    for v in prange(hf_units(watch, node.shape[0], threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, v):
            for i in range(indptr[node[v]], indptr[node[v] + 1]):
                for j in range(q.shape[1]):
                    hf_add_to_leaf(&totals[v, j, 0], q[i, j], weight[i])
            hf_end(watch)


def leaf_totals(const int64_t[:, ::1] q, state, const int64_t[::1] node):
    """Returns the totals of leaves over the rows of a part: (n_leaves, n_outputs, HF_LEAF_TOTALS) int64.

    q: (n_entries, n_outputs), the result of `in_units`. state: (row, weight, indptr) of the pending nodes.
    node: (n_leaves,).
    """
    cdef hf_watch watch
    _, weight, indptr = state
    totals = np.zeros((node.shape[0], q.shape[1], HF_LEAF_TOTALS), np.int64)
    start_watch(&watch)
    _leaf_totals(q, weight, indptr, node, totals, &watch)
    raise_interrupt(&watch)
    return totals


# ----------------------------------------------------------------------------- partition

cdef void _count_left(
    const code_t[:, ::1] codes, const int32_t[::1] row, const int64_t[::1] indptr, const int32_t[::1] column,
    const int64_t[::1] tables, const uint8_t[::1] goes_left, int64_t[::1] n_left, hf_watch* watch
) noexcept nogil:
    cdef int64_t v, i, count
    cdef int threads = hf_threads_for(<double> ROW_NS * row.shape[0])
    for v in prange(hf_units(watch, column.shape[0], threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, v):
            count = 0
            if column[v] >= 0:
                for i in range(indptr[v], indptr[v + 1]):
                    count = count + goes_left[tables[v] + codes[column[v], row[i]]]
            n_left[v] = count
            hf_end(watch)


cdef void _move(
    const code_t[:, ::1] codes, const int32_t[::1] row, const int32_t[::1] weight, const int64_t[::1] indptr,
    const int32_t[::1] column, const int64_t[::1] tables, const uint8_t[::1] goes_left,
    const int64_t[:, ::1] start, int32_t[::1] new_row, int32_t[::1] new_weight, hf_watch* watch
) noexcept nogil:
    # start[v]: positions of the entries of the left and the right child of node v.
    cdef int64_t v, i, left, right
    cdef int threads = hf_threads_for(<double> ROW_NS * row.shape[0])
    for v in prange(hf_units(watch, column.shape[0], threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, v):
            left, right = start[v, 0], start[v, 1]
            if column[v] >= 0:
                for i in range(indptr[v], indptr[v + 1]):
                    if goes_left[tables[v] + codes[column[v], row[i]]]:
                        new_row[left] = row[i]
                        new_weight[left] = weight[i]
                        left = left + 1
                    else:
                        new_row[right] = row[i]
                        new_weight[right] = weight[i]
                        right = right + 1
            hf_end(watch)


def partitioned(const code_t[:, ::1] codes, state, column, tables, goes_left):
    """Returns (row, weight, indptr) of the children of nodes, in the order of nodes, left before right.

    column: (n_nodes,) int32, the feature of each node's split; -1 drops the rows of the node. tables:
    (n_nodes + 1,) int64: node v sends bin b left if goes_left[tables[v] + b] (uint8).
    """
    cdef hf_watch watch
    row, weight, indptr = state
    n_left = np.zeros(len(column), np.int64)
    start_watch(&watch)
    _count_left[code_t](codes, row, indptr, column, tables, goes_left, n_left, &watch)
    raise_interrupt(&watch)
    sizes = np.stack([n_left, np.diff(indptr) - n_left], axis=1)
    is_split, start = column >= 0, np.zeros((len(column), 2), np.int64)
    new_indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[is_split])])
    n_children = len(new_indptr) - 1
    start[is_split] = new_indptr[:n_children].reshape(-1, 2)
    new_row, new_weight = (np.empty(new_indptr[n_children], np.int32) for _ in range(2))
    start_watch(&watch)
    _move[code_t](codes, row, weight, indptr, column, tables, goes_left, start, new_row, new_weight, &watch)
    raise_interrupt(&watch)
    return new_row, new_weight, new_indptr
