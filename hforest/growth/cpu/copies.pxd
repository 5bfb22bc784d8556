from libc.stdint cimport int64_t, uint8_t

from hforest.growth.cpu.sources.projections cimport corner_t, hf_distribution, real

cdef int whole_row(const real* x, int64_t n_features, uint8_t* bytes) noexcept nogil
cdef void fill_corners(const hf_distribution* a, const real* x, corner_t* corners) noexcept nogil
