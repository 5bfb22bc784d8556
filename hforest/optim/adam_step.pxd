"""Adam for rows of parameters, one step or many missed ones (Kingma & Ba 2015; tables.py), in the arithmetic
of their dtype: memory limits the speed of a step, and a vector has twice as many lanes of float32 as of
float64. Used by this backend, and by backends that update parameters while they compute gradients.
"""

from libc.float cimport DBL_MAX, DBL_MIN, FLT_MAX, FLT_MIN
from libc.math cimport fabs, fabsf, sqrt, sqrtf
from libc.stdint cimport int64_t


cdef extern from "core/simd.h" nogil:
    void hf_fetch(const void* start, Py_ssize_t n_bytes)

cdef extern from "optim/adam.h" nogil:
    ctypedef struct hf_adam
    ctypedef struct hf_adam_bodies:
        void (*step)(void* p, const void* g, void* m, void* v, Py_ssize_t n, const hf_adam* a) noexcept nogil
        void (*missed)(
            void* p, void* m, void* v, Py_ssize_t n, int64_t start, int64_t stop, const hf_adam* a
        ) noexcept nogil
    ctypedef struct hf_adam:
        double lr, beta1, beta2, eps, shrink, rate, scale
        const double* powers
        const double* decay
        const double* tail
        const int64_t* visible
        Py_ssize_t n_powers, n_decays, n_steps, n_columns
        int64_t closed
        const hf_adam_bodies* bodies
    const int HF_CENTRE
    double hf_decay(const hf_adam* a, int which, int64_t n)
    const double* hf_row(const hf_adam* a, int64_t step)
    Py_ssize_t hf_top(const hf_adam* a, int64_t step, int single)
    int64_t hf_middle(const hf_adam* a, int64_t start, int64_t stop)

ctypedef fused adam_real:
    float
    double


cdef inline adam_real flushed(adam_real a) noexcept nogil:
    # Returns a, or 0 if a is subnormal.
    if adam_real is float:
        return <float> 0 if fabsf(a) < <float> FLT_MIN else a
    else:
        return <double> 0 if fabs(a) < DBL_MIN else a


cdef inline adam_real root_of(adam_real a) noexcept nogil:
    if adam_real is float:
        return sqrtf(a)
    else:
        return sqrt(a)


cdef inline void adam_fetch(const adam_real* row, Py_ssize_t n) noexcept nogil:
    # Prefetches a row of n elements up to the end of its last vector of 64 bytes: a masked access waits for
    # the cache lines of all lanes.
    hf_fetch(row, (n * sizeof(adam_real) + 63) // 64 * 64)


cdef inline void adam_step(
    adam_real* p, const adam_real* g, adam_real* m, adam_real* v, Py_ssize_t n, const hf_adam* a
) noexcept nogil:
    # Takes the step whose rate and scale are in a. A vector does not pay for one element.
    cdef adam_real beta1 = <adam_real> a.beta1, rest1 = <adam_real> (1 - a.beta1)
    cdef adam_real beta2 = <adam_real> a.beta2, rest2 = <adam_real> (1 - a.beta2)
    cdef adam_real rate = <adam_real> a.rate, scale = <adam_real> a.scale, eps = <adam_real> a.eps
    cdef adam_real shrink = <adam_real> a.shrink, first, second
    cdef Py_ssize_t i
    if n > 1 and a.bodies != NULL:
        a.bodies.step(p, g, m, v, n, a)
        return
    for i in range(n):
        first = beta1 * m[i] + rest1 * g[i]
        second = beta2 * v[i] + rest2 * (g[i] * g[i])
        p[i] = shrink * p[i] - rate * first / (root_of(second) * scale + eps)
        m[i] = flushed(first)
        v[i] = flushed(second)


cdef inline adam_real _rest(
    const hf_adam* a, int64_t step, adam_real first, adam_real root, double m_factor, double root_factor
) noexcept nogil:
    # Returns R of tables.py for moments m_factor first and (root_factor root)**2 at a step.
    cdef const double* row = hf_row(a, step)
    cdef Py_ssize_t top = hf_top(a, step, sizeof(adam_real) == 4), j
    cdef adam_real h = <adam_real> (row[HF_CENTRE] * root_factor) * root
    cdef adam_real inverse = 1 / (h + <adam_real> a.eps), total = <adam_real> row[top], z, x
    # If the second moment is infinite, inverse is 0 and z is any finite number.
    cdef adam_real largest = <adam_real> (FLT_MAX if sizeof(adam_real) == 4 else DBL_MAX)
    z = (h if h < largest else largest) * inverse
    x = (z + z) - 1
    for j in range(top - 1, HF_CENTRE, -1):
        total = total * x + <adam_real> row[j]
    return <adam_real> m_factor * first * inverse * total


cdef inline void adam_pass(
    adam_real* p, adam_real* m, adam_real* v, Py_ssize_t n, int64_t start, int64_t stop,
    const hf_adam* a,
) noexcept nogil:
    # Takes steps start + 1 to stop, with zero gradients and each with its weight decay. Steps are taken one
    # by one where the polynomials are not exact yet, or if there are few; the others are taken together.
    cdef int64_t middle, s
    cdef double m_factor, v_factor, root_factor, decay, root_decay, later
    cdef adam_real root, motion, share, scale, shrink = <adam_real> a.shrink, shrunk
    cdef Py_ssize_t i
    start = max(start, <int64_t> 0)
    if start >= stop:
        return
    if n > 1 and a.bodies != NULL:
        a.bodies.missed(p, m, v, n, start, stop, a)
        return
    middle = hf_middle(a, start, stop)
    m_factor, v_factor = hf_decay(a, 0, stop - start), hf_decay(a, 1, stop - start)
    root_factor = hf_decay(a, 2, stop - start)
    shrunk = <adam_real> hf_decay(a, 3, stop - start)
    for i in range(n):
        if m[i] != 0:
            root = root_of(v[i])
            motion = 0
            decay = root_decay = 1
            s = start
            while s < middle:
                s += 1
                decay *= a.beta1
                root_decay *= sqrt(a.beta2)
                share = <adam_real> (decay * hf_row(a, s)[0])
                # This step and all later ones add 0; subnormal products would round to themselves forever.
                if share == 0 or decay < DBL_MIN:
                    s -= 1
                    break
                scale = <adam_real> (root_decay * hf_row(a, s)[1])
                motion = shrink * motion + share * m[i] / (scale * root + <adam_real> a.eps)
            # The steps that follow also shrink the move of the steps taken one by one.
            motion = <adam_real> hf_decay(a, 3, stop - s) * motion
            if middle < stop:
                later = hf_decay(a, 3, stop - middle)
                motion += _rest(a, middle, m[i], root, decay * later, root_decay)
                motion += _rest(a, stop, m[i], root, -m_factor, root_factor)
            p[i] = shrunk * p[i] - <adam_real> a.lr * motion
            m[i] = flushed(<adam_real> (m[i] * <adam_real> m_factor))
        else:
            p[i] = shrunk * p[i]
        v[i] = flushed(<adam_real> (v[i] * <adam_real> v_factor))


# Returns the settings for parameters of itemsize bytes and a step with biases bias1 = 1 - beta1**step and
# bias2; both are 0 if only missed steps are taken.
cdef hf_adam adam_settings(
    int itemsize, double lr, double beta1, double beta2, double eps, double bias1, double bias2
) noexcept nogil

# Writes pointers into the arrays of tables.py, which `missed` keeps alive.
cdef int adam_tables(hf_adam* a, missed) except -1
