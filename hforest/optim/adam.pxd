"""adam.h for Cython: for this backend, and for those that update parameters while they compute gradients."""

from libc.math cimport sqrt
from libc.stdint cimport int64_t


cdef extern from "optim/adam.h" nogil:
    ctypedef struct hf_adam:
        double lr, beta1, beta2, eps, rate, scale
        const double* powers
        const double* decay
        const double* tail
        const int64_t* visible
        Py_ssize_t n_powers, n_decays, n_steps, n_columns
        int64_t closed
    void hf_adam_step_f32(int, float*, const float*, float*, float*, Py_ssize_t, const hf_adam*)
    void hf_adam_step_f64(int, double*, const double*, double*, double*, Py_ssize_t, const hf_adam*)
    void hf_adam_pass_f32(int, float*, float*, float*, Py_ssize_t, int64_t, int64_t, const hf_adam*)
    void hf_adam_pass_f64(int, double*, double*, double*, Py_ssize_t, int64_t, int64_t, const hf_adam*)

ctypedef fused adam_real:
    float
    double


cdef inline void adam_step(
    int path, adam_real* p, const adam_real* g, adam_real* m, adam_real* v, Py_ssize_t n, const hf_adam* a
) noexcept nogil:
    # The step whose rate and scale are in a.
    if adam_real is float:
        hf_adam_step_f32(path, p, g, m, v, n, a)
    else:
        hf_adam_step_f64(path, p, g, m, v, n, a)


cdef inline void adam_pass(
    int path, adam_real* p, adam_real* m, adam_real* v, Py_ssize_t n, int64_t start, int64_t stop,
    const hf_adam* a,
) noexcept nogil:
    # Steps start + 1 to stop, whose gradients were zero.
    if adam_real is float:
        hf_adam_pass_f32(path, p, m, v, n, start, stop, a)
    else:
        hf_adam_pass_f64(path, p, m, v, n, start, stop, a)


cdef inline hf_adam adam_settings(
    double lr, double beta1, double beta2, double eps, double bias1, double bias2
) noexcept:
    # For a step with biases bias1 = 1 - beta1**step and bias2; both 0 where only missed steps count.
    cdef hf_adam a
    a.lr, a.beta1, a.beta2, a.eps = lr, beta1, beta2, eps
    a.rate = lr / bias1 if bias1 > 0 else 0
    a.scale = 1 / sqrt(bias2) if bias2 > 0 else 0
    a.powers = a.decay = a.tail = NULL
    a.visible = NULL
    a.n_powers = a.n_decays = a.n_steps = a.n_columns = 0
    a.closed = 0
    return a


cdef inline int adam_tables(hf_adam* a, missed) except -1:
    # Pointers into arrays of tables.py that `missed` keeps alive.
    cdef const double[:, ::1] powers = missed.powers
    cdef const double[:, ::1] decay = missed.decay
    cdef const double[:, ::1] tail = missed.tail
    cdef const int64_t[::1] visible = missed.visible
    a.powers, a.n_powers = &powers[0, 0], powers.shape[1]
    a.decay, a.n_decays = &decay[0, 0], decay.shape[1]
    a.tail, a.n_steps, a.n_columns = &tail[0, 0], tail.shape[0], tail.shape[1]
    a.visible, a.closed = &visible[0], missed.closed
    return 0
