"""The settings of Adam (adam_step.pxd): scalars, tables and vector bodies."""

from libc.math cimport sqrt
from libc.stdint cimport int64_t
from libc.string cimport memset

from hforest.core.machine cimport simd_path

cdef extern from "optim/simd/adam.h" nogil:
    const hf_adam_bodies* hf_adam_bodies_of(int single, int path)


cdef hf_adam adam_settings(
    int itemsize, double lr, double beta1, double beta2, double eps, double bias1, double bias2
) noexcept nogil:
    cdef hf_adam a
    memset(&a, 0, sizeof(hf_adam))
    a.lr, a.beta1, a.beta2, a.eps, a.shrink = lr, beta1, beta2, eps, 1
    a.rate = lr / bias1 if bias1 > 0 else 0
    a.scale = 1 / sqrt(bias2) if bias2 > 0 else 0
    a.bodies = hf_adam_bodies_of(itemsize == 4, simd_path())
    return a


cdef int adam_tables(hf_adam* a, missed) except -1:
    cdef const double[:, ::1] powers = missed.powers
    cdef const double[:, ::1] decay = missed.decay
    cdef const double[:, ::1] tail = missed.tail
    cdef const int64_t[::1] visible = missed.visible
    a.powers, a.n_powers = &powers[0, 0], powers.shape[1]
    a.decay, a.n_decays = &decay[0, 0], decay.shape[1]
    a.tail, a.n_steps, a.n_columns = &tail[0, 0], tail.shape[0], tail.shape[1]
    a.visible, a.closed, a.shrink = &visible[0], missed.closed, missed.shrink
    return 0
