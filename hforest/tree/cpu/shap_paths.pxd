from libc.stdint cimport int64_t

from hforest.tree.cpu.shap cimport Job

cdef int64_t paths_block(const Job* job, int64_t n_samples, int n_threads) noexcept nogil
cdef void add_paths(const Job* job, int64_t first, int64_t last) noexcept nogil
