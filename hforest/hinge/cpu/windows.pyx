"""Windows of images as the samples of a traversal. Windows are addressed by index arithmetic and never copied
into one array.

A window is the part of an image that the kernel covers at one output position. Routing reads its values from
a tile of 32 windows that stays in cache, as it does for rows:

    image (channels, height, width)         tile (n_taps, 32)
    . . . . . . .                           tap (c, a, b):  x[c, i + a, j + b]  x[c, i + a, j + 1 + b]  ...
    . [a b c] . .   windows at (i, j),
    . [d e f] . .   (i, j + 1), ...         with stride 1, a row of the tile is a contiguous part of a
    . . . . . . .                           row of the image
"""

import numpy as np

from cython.parallel cimport prange, threadid
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from hforest.core.machine cimport hf_begin, hf_end, hf_stopped_after, hf_units, hf_watch
from hforest.hinge.cpu.forest cimport bounded, start_of, transpose

cdef extern from "hinge/cpu/simd/route.h" nogil:
    enum: HF_TILE  # an enum, so that it can be the size of an array

cdef enum:
    TOGETHER = 16         # samples whose slopes are transposed together: one cache line of float32


# Adjacent windows in one row of output positions.
cdef struct Run:
    Py_ssize_t lane, count
    Py_ssize_t base       # index of the first window's corner in x; windows are stride[2] elements apart
    Py_ssize_t corner[3]  # position of that corner along each axis, negative in the padding


cdef Windows windows_of(windows, Py_ssize_t n_images, taps):
    """Returns the struct of `windows`, a Geometry of core/windows.py, and of taps (n_taps, 4) int64."""
    cdef Windows w
    cdef int axis
    for axis in range(3):
        w.size[axis], w.out[axis] = windows[1 + axis], windows[16 + axis]
        w.stride[axis], w.padding[axis] = windows[7 + axis], windows[10 + axis]
    w.n_images, w.image = n_images, windows.channels * w.size[0] * w.size[1] * w.size[2]
    w.n_taps, w.taps = taps.shape[0], <const int64_t*> start_of(taps)
    return w


cdef inline void _corner(const Windows* w, Py_ssize_t sample, Run* run) noexcept nogil:
    # Writes the corner of a sample's window, and the number of windows from it to the end of its row.
    cdef Py_ssize_t at = sample, place[3]
    cdef int axis = 2
    while axis >= 0:
        place[axis] = at % w.out[axis]
        at //= w.out[axis]
        run.corner[axis] = place[axis] * w.stride[axis] - w.padding[axis]
        axis -= 1
    run.base = at * w.image + (run.corner[0] * w.size[1] + run.corner[1]) * w.size[2] + run.corner[2]
    run.count = w.out[2] - place[2]


cdef inline void _copy(
    const Windows* w, const real* x, const Run* run, const int64_t* tap, real* lanes
) noexcept nogil:
    # Writes lanes (run.count,): the tap's value in each window of the run.
    cdef Py_ssize_t i = run.corner[0] + tap[1], j = run.corner[1] + tap[2], k = run.corner[2] + tap[3], lane
    cdef Py_ssize_t low = 0, high = run.count, step = w.stride[2]
    cdef const real* source = x + (run.base + tap[0])
    if i < 0 or i >= w.size[0] or j < 0 or j >= w.size[1]:
        memset(lanes, 0, run.count * sizeof(real))
        return
    # The tap lies inside the image for windows low to high - 1.
    if k < 0:
        low = min(run.count, (step - 1 - k) // step)
    if k + (run.count - 1) * step >= w.size[2]:
        high = max(low, (w.size[2] - k + step - 1) // step)
    if step == 1 and low == 0 and high == HF_TILE:
        memcpy(lanes, source, HF_TILE * sizeof(real))
        return
    for lane in range(low):
        lanes[lane] = 0
    if step == 1:
        memcpy(lanes + low, source + low, (high - low) * sizeof(real))
    else:
        for lane in range(low, high):
            lanes[lane] = source[lane * step]
    for lane in range(high, run.count):
        lanes[lane] = 0


cdef void fill_tile(
    const Windows* w, const real* x, Py_ssize_t sample, Py_ssize_t n, Py_ssize_t first, Py_ssize_t last,
    real* tile,
) noexcept nogil:
    """Writes taps first to last - 1 of the n <= HF_TILE windows that begin at `sample`; unused lanes are 0.

    x     IN (n_images, image)
    tile  OUT (n_taps, HF_TILE)
    """
    cdef Run runs[HF_TILE]
    cdef Py_ssize_t lane = 0, tap
    cdef int n_runs = 0, r
    n = min(n, <Py_ssize_t> HF_TILE)
    while lane < n:
        runs[n_runs].lane = lane
        _corner(w, sample + lane, &runs[n_runs])
        runs[n_runs].count = min(runs[n_runs].count, n - lane)
        lane += runs[n_runs].count
        n_runs += 1
    for tap in range(first, last):
        for r in range(n_runs):
            _copy(w, x, &runs[r], w.taps + 4 * tap, tile + tap * HF_TILE + runs[r].lane)
        for lane in range(n, HF_TILE):
            tile[tap * HF_TILE + lane] = 0


cdef void fill_rows(
    const Windows* w, const real* x, Py_ssize_t sample, Py_ssize_t n, real* rows
) noexcept nogil:
    """Writes rows (n, n_taps) of the n windows that begin at `sample`."""
    cdef Run run
    cdef Py_ssize_t s, tap
    for s in range(n):
        _corner(w, sample + s, &run)
        run.count = 1
        for tap in range(w.n_taps):
            _copy(w, x, &run, w.taps + 4 * tap, rows + s * w.n_taps + tap)


cdef inline Py_ssize_t _place(const Windows* w, const Run* run, const int64_t* tap) noexcept nogil:
    # Returns the index of a window's tap in its image, or -1 in the padding.
    cdef Py_ssize_t i = run.corner[0] + tap[1], j = run.corner[1] + tap[2], k = run.corner[2] + tap[3]
    if i < 0 or i >= w.size[0] or j < 0 or j >= w.size[1] or k < 0 or k >= w.size[2]:
        return -1
    return run.base + tap[0]


cdef void add_row(const Windows* w, Py_ssize_t sample, const real* row, double* image) noexcept nogil:
    """Adds row (n_taps,) of a window to its image (image,), except for the taps in the padding."""
    cdef Run run
    cdef Py_ssize_t tap, at
    _corner(w, sample, &run)
    run.base -= sample // (w.out[0] * w.out[1] * w.out[2]) * w.image
    for tap in range(w.n_taps):
        at = _place(w, &run, w.taps + 4 * tap)
        if at >= 0:
            image[at] += row[tap]


cdef void _image(
    const Windows* w, const Slopes* a, Py_ssize_t image, double* total, real* slope, real* grad_x, int path,
    hf_watch* watch,
) noexcept nogil:
    # Writes grad_x of an image; the caller's workspace total (image,) is 0 before and after the call.
    cdef Py_ssize_t positions = w.out[0] * w.out[1] * w.out[2], first = image * positions, start = 0
    cdef Py_ssize_t n, s, m, at, tap
    cdef int64_t n_steps = 0
    cdef Run run
    cdef const int32_t* vertex
    while start < positions:
        n = min(<Py_ssize_t> TOGETHER, positions - start)
        if hf_stopped_after(watch, &n_steps, n * a.n_trees):
            return
        transpose(path, <const real*> a.slope + first + start, a.n_samples, a.n_trees, n, slope, a.n_trees)
        for s in range(n):
            _corner(w, first + start + s, &run)
            run.base -= image * w.image
            vertex = a.vertex + (first + start + s) * a.sample_step
            for m in range(a.n_trees):
                tap = bounded(a.features[m * a.n_vertices + vertex[m * a.tree_step]], w.n_taps)
                at = _place(w, &run, w.taps + 4 * tap)
                if at >= 0:
                    total[at] += slope[s * a.n_trees + m]
        start += n
    grad_x += image * w.image
    for at in range(w.image):
        grad_x[at] = <real> total[at]
        total[at] = 0


cdef int image_gradients(
    const Windows* w, const Slopes* slopes, real* grad_x, int path, int threads, hf_watch* watch
) except -1:
    """Writes grad_x (n_images, image): the slopes at the taps of their vertices (Lay et al. 2018, eq. 11).

    Sums run in float64, over the windows of an image in order and, for each window, over the trees in order.
    Each thread takes whole images.
    """
    cdef Py_ssize_t unit, n_units
    cdef double[:, ::1] total
    cdef real[:, ::1] slope
    threads = <int> min(<Py_ssize_t> threads, w.n_images)
    total = np.zeros((threads, w.image))
    slope = np.empty((threads, TOGETHER * slopes.n_trees), np.float32 if real is float else np.float64)
    n_units = hf_units(watch, w.n_images, threads)
    for unit in prange(n_units, schedule="dynamic", num_threads=threads, nogil=True):
        if hf_begin(watch, unit):
            _image(w, slopes, unit, &total[threadid(), 0], &slope[threadid(), 0], grad_x, path, watch)
            hf_end(watch)
    return 0
