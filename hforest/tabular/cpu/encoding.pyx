"""Columns of a table, scaled, with missing values filled in and categories as numbers."""

cimport cython
from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

cimport hforest.core.arrays as cnp
from hforest.core.arena cimport hf_arena, release, take
from hforest.core.machine cimport (
    hf_begin, hf_end, hf_stop, hf_threads_for, hf_units, hf_watch, raise_stopped, start_watch,
)

import numpy as np

cnp.import_array()

ctypedef fused real:
    float
    double

cdef enum:
    ROWS = 64             # rows per unit of work
    NUMBER_NS = 15        # nanoseconds per number


cdef struct Columns:
    # The arrays of a Scaling, an Encoding and its Levels, and the sizes of their axes.
    int64_t n_features
    int64_t n_encoded
    const double* low
    const double* high
    const double* center
    const double* scale
    const int64_t* start
    const double* knots
    const double* scores
    bint has_encoding     # else missing values are 0, and the following members are not set
    const float* fill
    const float* least
    const float* greatest
    const int64_t* imputed
    int64_t n_imputed
    const int32_t* predictors
    int64_t n_predictors
    const float* slopes
    int64_t n_rounds
    const uint8_t* categorical  # NULL without categories, as the following members
    const int64_t* widths
    const int64_t* level_start
    const int32_t* levels
    const int64_t* code_start   # (n_features,): the first code of each column of categories
    const float* codes


cdef double _interpolated(const double* knots, const double* scores, int64_t n, double a) noexcept nogil:
    # Returns numpy.interp(a, knots, scores).
    cdef int64_t low = 0, high = n - 1, middle
    cdef double slope
    if a != a:
        return a
    if a < knots[0]:
        return scores[0]
    if a >= knots[high]:
        return scores[high]
    # knots[low] <= a < knots[high]
    while high - low > 1:
        middle = (low + high) // 2
        if a >= knots[middle]:
            low = middle
        else:
            high = middle
    if knots[low] == a:
        return scores[low]
    slope = (scores[low + 1] - scores[low]) / (knots[low + 1] - knots[low])
    return slope * (a - knots[low]) + scores[low]


cdef inline float _scaled(const Columns* c, int64_t j, double a) noexcept nogil:
    # Returns a scaled number of column j; NaN stays NaN.
    cdef int64_t first = c.start[j], n = c.start[j + 1] - first
    if n:
        return <float> _interpolated(c.knots + first, c.scores + first, n, a)
    a = c.low[j] if a < c.low[j] else c.high[j] if a > c.high[j] else a
    return <float> ((0.5 * a - c.center[j]) / c.scale[j])


cdef void _impute(const Columns* c, const float* z, float* before, float* filled) noexcept nogil:
    # Replaces missing values of z by the predictions of the regressions, round by round.
    #
    # z        IN (n_features,), NaN for missing values
    # before   workspace (n_features,)
    # filled   IN and OUT (n_features,): z, with medians for missing values
    cdef int64_t n_slopes = 2 * c.n_predictors + 1, round, i, j, k, p
    cdef const float* slopes
    cdef const int32_t* predictors
    cdef double y, low, high
    for round in range(c.n_rounds):
        memcpy(before, filled, c.n_features * sizeof(float))
        for i in range(c.n_imputed):
            j = c.imputed[i]
            if z[j] == z[j]:
                continue
            slopes = c.slopes + (round * c.n_imputed + i) * n_slopes
            predictors = c.predictors + i * c.n_predictors
            y = slopes[n_slopes - 1]
            for k in range(c.n_predictors):
                p = predictors[k]
                y += <double> before[p] * <double> slopes[k]
                if z[p] != z[p]:
                    y += slopes[c.n_predictors + k]
            low, high = c.least[j], c.greatest[j]
            filled[j] = <float> (low if y < low else high if y > high else y)


cdef const float* _codes_of(const Columns* c, int64_t j, double a) noexcept nogil:
    # Returns the codes of a value of column j; those of the first category for unknown ones and NaN.
    cdef const int32_t* known = c.levels + c.level_start[j]
    cdef int64_t n = c.level_start[j + 1] - c.level_start[j], low = 0, high = n, middle
    while low < high:
        middle = (low + high) // 2
        if known[middle] < a:
            low = middle + 1
        else:
            high = middle
    if low == n or known[low] != a:
        low = 0
    return c.codes + c.code_start[j] + low * c.widths[j]


cdef bint _encode_row(
    const Columns* c, const real* x, float* work, float* numbers, float* native
) noexcept nogil:
    # Writes the inputs of a row. Returns whether no number is infinite.
    #
    # work     workspace (3 * n_features,)
    # numbers  OUT (n_encoded,): without missing values
    # native   OUT (n_encoded,): the same with NaN for missing numbers; or NULL
    cdef float* z = work
    cdef float* filled = work + c.n_features
    cdef const float* codes
    cdef int64_t j, n, at = 0
    cdef bint is_good = True, is_complete = True, is_category
    cdef double a
    for j in range(c.n_features):
        a = x[j]
        is_good &= a - a == 0 or a != a
        z[j] = _scaled(c, j, 0 if c.categorical != NULL and c.categorical[j] else a)
        filled[j] = z[j]
        if z[j] != z[j]:
            filled[j] = c.fill[j] if c.has_encoding else 0
            is_complete = False
    if not is_complete and c.has_encoding:
        _impute(c, z, filled + c.n_features, filled)
    for j in range(c.n_features):
        is_category = c.categorical != NULL and c.categorical[j]
        if not is_category:
            numbers[at] = filled[j]
            if native != NULL:
                native[at] = z[j]
            at += 1
            continue
        codes, n = _codes_of(c, j, x[j]), c.widths[j]
        memcpy(numbers + at, codes, n * sizeof(float))
        if native != NULL:
            memcpy(native + at, codes, n * sizeof(float))
        at += n
    return is_good


cdef bint _encode(
    const Columns* c, const real* x, int64_t n, float* numbers, float* native, hf_watch* watch
) noexcept nogil:
    # Writes the inputs of n rows. Returns whether no number is infinite.
    cdef int64_t n_units = (n + ROWS - 1) // ROWS, unit, n_bad = 0
    cdef int threads = hf_threads_for(<double> NUMBER_NS * n * c.n_features)
    for unit in prange(hf_units(watch, n_units, threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, unit):
            n_bad += not _encode_unit(c, x, n, unit, numbers, native, watch)
            hf_end(watch)
    return n_bad == 0


cdef bint _encode_unit(
    const Columns* c, const real* x, int64_t n, int64_t unit, float* numbers, float* native, hf_watch* watch
) noexcept nogil:
    cdef hf_arena arena
    cdef int64_t i
    cdef bint is_good = True
    memset(&arena, 0, sizeof(hf_arena))
    cdef float* work = <float*> take(&arena, 3 * c.n_features * sizeof(float))
    if arena.failed:
        hf_stop(watch)
        return True
    for i in range(unit * ROWS, min(n, (unit + 1) * ROWS)):
        is_good &= _encode_row(
            c, x + i * c.n_features, work, numbers + i * c.n_encoded,
            NULL if native == NULL else native + i * c.n_encoded,
        )
    release(&arena)
    return is_good


@cython.final
cdef class Encoder:
    """The encoding of the columns of a checked model, whose arrays belong to the model."""

    cdef Columns _columns
    cdef bint _has_native
    cdef tuple _arrays

    def __init__(self, scaling, encoding):
        cdef Columns* c = &self._columns
        cdef list kept = []
        c.n_features = c.n_encoded = len(scaling.low)
        c.low, c.high = <double*> _start(kept, scaling.low), <double*> _start(kept, scaling.high)
        c.center, c.scale = <double*> _start(kept, scaling.center), <double*> _start(kept, scaling.scale)
        c.start, c.knots = <int64_t*> _start(kept, scaling.start), <double*> _start(kept, scaling.knots)
        c.scores = <double*> _start(kept, scaling.scores)
        c.has_encoding = encoding is not None
        c.categorical = NULL
        if c.has_encoding:
            c.fill, c.least = <float*> _start(kept, encoding.fill), <float*> _start(kept, encoding.low)
            c.greatest, c.imputed = (
                <float*> _start(kept, encoding.high), <int64_t*> _start(kept, encoding.imputed)
            )
            c.predictors = <int32_t*> _start(kept, encoding.predictors)
            c.slopes = <float*> _start(kept, encoding.slopes)
            c.n_imputed, c.n_predictors = encoding.predictors.shape
            c.n_rounds = len(encoding.slopes)
            if encoding.levels is not None:
                self._take_levels(kept, encoding.levels)
        # Forests that were grown without missing values refuse them.
        self._has_native = c.has_encoding and c.n_imputed > 0
        self._arrays = tuple(kept)

    cdef _take_levels(self, list kept, levels):
        cdef Columns* c = &self._columns
        n_codes = levels.categorical * np.diff(levels.start) * levels.widths
        first = np.cumsum(n_codes, dtype=np.int64) - n_codes
        c.categorical = <uint8_t*> _start(kept, levels.categorical)
        c.widths = <int64_t*> _start(kept, levels.widths)
        c.level_start = <int64_t*> _start(kept, levels.start)
        c.levels, c.code_start = <int32_t*> _start(kept, levels.levels), <int64_t*> _start(kept, first)
        c.codes = <float*> _start(kept, levels.codes)
        c.n_encoded = levels.widths.sum()

    def encode(self, cnp.ndarray x not None):
        """Returns the inputs of hinge trees, those of grown trees (None if they are equal), and whether no
        number of x is infinite.

        x is a C-contiguous matrix of float32 or float64. Both inputs are (n_samples, n_encoded) float32, the
        second ones with NaN for missing values.
        """
        cdef int64_t n = cnp.PyArray_DIM(x, 0)
        cdef cnp.npy_intp[2] shape
        cdef cnp.ndarray numbers, native = None
        cdef float* with_nan = NULL
        cdef bint is_good
        cdef hf_watch watch
        shape[0], shape[1] = n, self._columns.n_encoded
        numbers = cnp.PyArray_EMPTY(2, shape, cnp.NPY_FLOAT, 0)
        if self._has_native:
            native = cnp.PyArray_EMPTY(2, shape, cnp.NPY_FLOAT, 0)
            with_nan = <float*> cnp.PyArray_DATA(native)
        cdef float* to = <float*> cnp.PyArray_DATA(numbers)
        cdef const void* rows = cnp.PyArray_DATA(x)
        cdef bint single = cnp.PyArray_ITEMSIZE(x) == 4
        start_watch(&watch)
        with nogil:
            if single:
                is_good = _encode(&self._columns, <const float*> rows, n, to, with_nan, &watch)
            else:
                is_good = _encode(&self._columns, <const double*> rows, n, to, with_nan, &watch)
        raise_stopped(&watch, "x: no memory to encode it; pass fewer samples at a time")
        return numbers, native, is_good


cdef void* _start(list kept, cnp.ndarray a):
    # Returns the address of an array, and adds the array to a list.
    kept.append(a)
    return cnp.PyArray_DATA(a)
