"""The CPU backend of random hinge trees and ferns (Lay et al. 2018, Random Hinge Forest).

Each output element is computed by one thread, no sum is shared between threads and nothing is atomic: results
are bit-identical at every number of threads. The work is in

route.pyx            routes by columns, Alg. 3, and outputs computed while the routes are in cache
leaf_sums.pyx        outputs of routed samples, eq. 10
gradients.pyx        gradients, eq. 11-12
steps.pyx            training steps
margin_routes.pyx, margin_gradients.pyx  all other margins, by their functions (margin.h)

Calls that only write results stop at a signal (core/watch.h). Adam's steps are in place and do not stop.
"""

import sys

import numpy as np

from cython.parallel cimport prange, threadid
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memmove, memset

from hforest.core.machine cimport (
    hf_begin, hf_end, hf_has_stopped, hf_units, hf_watch, raise_interrupt, start_watch,
)
from hforest.hinge.cpu.gradients cimport Gradients, run_backward
from hforest.hinge.cpu.forest cimport GROUP, forest_of, route_of, start_of, threads_for
from hforest.hinge.cpu.leaf_sums cimport Known, sum_leaves
from hforest.hinge.cpu.margin_gradients cimport MarginGradients, run_margin_backward
from hforest.hinge.cpu.margin_routes cimport MarginCall, margin_call, route_margin
from hforest.hinge.cpu.route cimport Call, call_of, run
from hforest.hinge.cpu.steps cimport catch_up, step_back
from hforest.hinge.cpu.windows cimport windows_of

from ...core.windows import taps, used_taps
from ..shared import forward_in_chunks

cdef extern from "hinge/cpu/bits.h" nogil:
    int hf_lowest_bit(uint64_t word)

cdef enum:
    BYTE_SLOTS = 2048     # slots up to which one byte marks each: L1 holds the marks of a group
    BYTES_EACH = 2        # bytes of marks per sample at most: more cost more to scan than to set
    SLOTS_EACH = 4096     # slots per sample at most: a scan of more takes longer than sorting the samples
    TOGETHER = 128        # samples whose indices in a group of trees are read together: fits in L1

PAIRS = 1 << 20
"""(sample, tree) pairs that are routed before their leaves are summed; bounds the workspace."""


cdef int _route_columns(kind, x, thresholds, features, weights, divisor, y, route, windows) except -1:
    places, features = used_taps(windows, features)
    cdef Call call = call_of(
        kind == "fern", x, thresholds, features, weights, divisor, y, route, windows, places
    )
    if x.itemsize == 4:
        return run(call, <const float*> start_of(x))
    return run(call, <const double*> start_of(x))


def traverse(kind, margin, x, thresholds, features, route, windows=None):
    """Writes routes (Lay et al. 2018, Alg. 3, HingeTreeTraversal); a fern has one decision per level."""
    if margin == "column":
        _route_columns(kind, x, thresholds, features, None, 1, None, route, windows)
        return
    cdef MarginCall call
    if x.shape[0] == 0:
        return
    places = None if windows is None else taps(windows)
    call = margin_call(margin, kind == "fern", x, thresholds, features, None, route, windows, places)
    if x.itemsize == 4:
        route_margin(call, <const float*> start_of(x))
    else:
        route_margin(call, <const double*> start_of(x))


def forward(kind, margin, x, thresholds, features, weights, divisor, y, route=None, windows=None):
    """Writes outputs (Lay et al. 2018, Alg. 3, then eq. 10), and the route unless it is None."""
    if margin == "column":
        _route_columns(kind, x, thresholds, features, weights, divisor, y, route, windows)
        return
    forward_in_chunks(
        sys.modules[__name__], kind, margin, x, thresholds, features, weights, divisor, y, route, windows
    )


def leaf_outputs(leaf, margin, weights, divisor, y):
    """Writes outputs of known routes (Lay et al. 2018, eq. 10): per tree, or summed if y has 2 axes."""
    cdef Known a
    a.n_samples, a.divisor, a.summed = leaf.shape[0], divisor, y.ndim == 2
    a.forest.n_trees, a.forest.n_leaves, a.forest.n_outputs = weights.shape
    a.forest.weights = start_of(weights)
    a.route, a.y = route_of((leaf, margin, None)), start_of(y)
    if y.itemsize == 4:
        sum_leaves[float](a, NULL)
    else:
        sum_leaves[double](a, NULL)


cdef Gradients _gradients(grad_y, route, features, weights, divisor, rows, grads, windows, places):
    # features may be None; grads are grad_x, grad_thresholds, grad_features, grad_weights.
    cdef Gradients a
    a.forest = forest_of(False, None, features, weights)
    a.route, a.divisor, a.shared = route_of(route), divisor, grad_y.ndim == 2
    a.n_samples, a.n_features = route[0].shape[0], grads[0].shape[1]
    a.grad_y, a.grad_x = start_of(grad_y), start_of(grads[0])
    a.grad_thresholds, a.grad_weights = start_of(grads[1]), start_of(grads[3])
    a.vertex_start = a.vertex_rows = a.leaf_start = a.leaf_rows = NULL
    if rows is not None:
        a.vertex_start, a.vertex_rows = <int64_t*> start_of(rows[0][0]), <int64_t*> start_of(rows[0][1])
        a.leaf_start, a.leaf_rows = <int64_t*> start_of(rows[1][0]), <int64_t*> start_of(rows[1][1])
    a.windowed = windows is not None
    if a.windowed:
        a.windows = windows_of(windows, grads[0].shape[0], places)
    return a


def backward(margin, grad_y, route, x, features, weights, divisor, rows, grads, windows=None):
    """Writes gradients (Lay et al. 2018, eq. 11-12), dense or at touched rows.

    rows is None or, for vertices and for leaves, (start, rows) with tree m at start[m]:start[m + 1].
    """
    cdef Gradients a
    cdef MarginGradients b
    if route[0].shape[0] == 0:
        for grad in grads:
            if grad is not None:
                grad[...] = 0
        return
    places = None if windows is None else taps(windows)
    columns = features if margin == "column" else None
    a = _gradients(grad_y, route, columns, weights, divisor, rows, grads, windows, places)
    if margin == "column":
        if weights.itemsize == 4:
            run_backward[float](a, NULL)
        else:
            run_backward[double](a, NULL)
        return
    a.forest.n_trees, a.forest.n_vertices = features.shape[:2]
    call = margin_call(margin, False, grads[0], None, features, weights, None, windows, places)
    b.base, b.body, b.features, b.row_bytes = a, call.body, call.features, call.row_bytes
    b.n_columns, b.width, b.grad_features = call.n_columns, features[0, 0].size, start_of(grads[2])
    if weights.itemsize == 4:
        run_margin_backward(b, <const float*> start_of(x))
    else:
        run_margin_backward(b, <const double*> start_of(x))


cdef inline Py_ssize_t _words(Py_ssize_t n_bits) noexcept nogil:
    return (n_bits + 63) // 64


cdef Py_ssize_t _list_bytes(
    const unsigned char* seen, Py_ssize_t n_slots, int64_t offset, Py_ssize_t capacity, int64_t* rows
) noexcept nogil:
    # Writes offset + slot for each marked slot; returns the number of values written, at most `capacity`.
    cdef Py_ssize_t slot, i = 0
    for slot in range(n_slots):
        if i == capacity:
            break
        # The write is unconditional, so that no branch depends on the data.
        rows[i] = offset + slot
        i += seen[slot]
    return i


cdef Py_ssize_t _list_bits(
    uint64_t* seen, uint64_t* some, Py_ssize_t n_some, int64_t offset, int64_t* rows
) noexcept nogil:
    # Writes offset + the position of each set bit of `seen`, in ascending order; returns the number of values
    # written. The bits of `some` (n_some,) say which words of `seen` are not 0; all are 0 afterwards.
    cdef Py_ssize_t at, word, i = 0
    cdef uint64_t left, words
    for at in range(n_some):
        words = some[at]
        some[at] = 0
        while words:
            word = 64 * at + hf_lowest_bit(words)
            words &= words - 1
            left = seen[word]
            seen[word] = 0
            while left:
                rows[i] = offset + 64 * word + hf_lowest_bit(left)
                left &= left - 1
                i += 1
    return i


cdef void _touched_group(
    const int32_t[:, :] index, Py_ssize_t n_slots, Py_ssize_t first, bint by_bytes, unsigned char* seen,
    int64_t[::1] start, int64_t[::1] rows,
) noexcept nogil:
    # Writes the rows of tree m from m * capacity on, and their number to start[m + 1]. Bits are 0 before.
    cdef Py_ssize_t n_words = _words(n_slots), n_some = _words(n_words), n_samples = index.shape[0], s, j
    cdef Py_ssize_t n_trees = index.shape[1], start_s = 0, stop, slot, word
    cdef Py_ssize_t count = min(<Py_ssize_t> GROUP, n_trees - first), capacity = rows.shape[0] // n_trees
    cdef uint64_t* bits = <uint64_t*> seen
    cdef uint64_t* some = bits + GROUP * n_words
    if by_bytes:
        memset(seen, 0, count * n_slots)
    while start_s < n_samples:
        # Few samples at a time: their cache lines stay in L1 while the trees of the group read them.
        stop = min(start_s + TOGETHER, n_samples)
        for j in range(count):
            # Stores of bytes are independent; setting a bit waits for the previous store to the same word.
            if by_bytes:
                for s in range(start_s, stop):
                    seen[j * n_slots + index[s, first + j]] = 1
            else:
                for s in range(start_s, stop):
                    slot = index[s, first + j]
                    word = slot >> 6
                    if n_some > 1 and bits[j * n_words + word] == 0:
                        some[j * n_some + (word >> 6)] |= (<uint64_t> 1) << (word & 63)
                    bits[j * n_words + word] |= (<uint64_t> 1) << (slot & 63)
        start_s = stop
    for j in range(first, first + count):
        if by_bytes:
            start[j + 1] = _list_bytes(
                seen + (j - first) * n_slots, n_slots, j * n_slots, capacity, &rows[j * capacity]
            )
        else:
            if n_some == 1:
                some[j - first] = ~<uint64_t> 0 >> (64 - n_words)
            start[j + 1] = _list_bits(
                bits + (j - first) * n_words, some + (j - first) * n_some, n_some, j * n_slots,
                &rows[j * capacity],
            )


cdef void _touched(
    const int32_t[:, :] index, Py_ssize_t n_slots, bint by_bytes, unsigned char[:, ::1] seen,
    int64_t[::1] start, int64_t[::1] rows, hf_watch* watch,
) noexcept nogil:
    cdef Py_ssize_t n_trees = index.shape[1], capacity = rows.shape[0] // n_trees, group, m
    cdef Py_ssize_t n_groups = (n_trees + GROUP - 1) // GROUP
    cdef int threads = <int> seen.shape[0]
    for group in prange(hf_units(watch, n_groups, threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, group):
            _touched_group(index, n_slots, group * GROUP, by_bytes, &seen[threadid(), 0], start, rows)
            hf_end(watch)
    if hf_has_stopped(watch):
        return
    start[0] = 0
    for m in range(n_trees):
        memmove(&rows[start[m]], &rows[m * capacity], start[m + 1] * sizeof(int64_t))
        start[m + 1] += start[m]


def touched(index, n_slots, start, rows):
    """Writes the distinct values of index[:, m] to start[m]:start[m + 1], as rows m * n_slots + value.

    These are the rows of leaves or vertices that a batch touches, in ascending order for each tree.
    """
    cdef hf_watch watch
    if index.shape[0] == 0:
        start[...] = 0
        return
    if n_slots > SLOTS_EACH * index.shape[0]:
        first = n_slots * np.arange(len(start), dtype=np.int64)
        found = np.unique(index + first[: index.shape[1]])
        rows[: len(found)], start[...] = found, np.searchsorted(found, first)
        return
    # For each tree of a group one byte per slot; or one bit per slot, and one per word of them, if many.
    by_bytes = n_slots <= min(BYTE_SLOTS, BYTES_EACH * index.shape[0])
    n_bytes = n_slots if by_bytes else 8 * (_words(n_slots) + _words(_words(n_slots)))
    seen = np.zeros((threads_for(index.size), GROUP * n_bytes), np.uint8)
    start_watch(&watch)
    _touched(index, n_slots, by_bytes, seen, start, rows, &watch)
    raise_interrupt(&watch)


cdef void _count_tree(const int32_t[:, :] leaf, Py_ssize_t m, int64_t[:, ::1] counts) noexcept nogil:
    cdef Py_ssize_t n
    for n in range(leaf.shape[0]):
        counts[m, leaf[n, m]] += 1


cdef void _count(const int32_t[:, :] leaf, int64_t[:, ::1] counts, hf_watch* watch) noexcept nogil:
    cdef Py_ssize_t m
    cdef int threads = threads_for(leaf.shape[0] * leaf.shape[1])
    for m in prange(hf_units(watch, leaf.shape[1], threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, m):
            _count_tree(leaf, m, counts)
            hf_end(watch)


def leaf_counts(leaf, counts):
    """Writes the number of samples in each leaf of each tree."""
    cdef hf_watch watch
    counts[...] = 0
    start_watch(&watch)
    _count(leaf, counts, &watch)
    raise_interrupt(&watch)


def adam_forward(kind, x, parameters, state, step, settings, divisor, route, y):
    """Takes the missed steps of the rows read, then writes outputs (Lay et al. 2018, Alg. 3 and eq. 10)."""
    catch_up(kind == "fern", x, parameters, state, step, settings, route)
    leaf_outputs(route[0], route[1], parameters[2], divisor, y)


def adam_backward(grad_y, route, parameters, state, step, settings, divisor, grad_x):
    """Writes grad_x (Lay et al. 2018, eq. 11-12) and takes a step of Adam, tree by tree."""
    step_back(grad_y, route, parameters, state, step, settings, divisor, grad_x)
