from hforest.growth.columns cimport hf_columns, hf_reader

cdef hf_reader reader_of(const hf_columns* c) noexcept nogil
