cdef extern from "hinge/cpu/margin.h" nogil:
    ctypedef const void** hf_vectors  # addresses that the callee does not change either
    ctypedef struct hf_margin:
        void (*values)(
            int count, hf_vectors features, hf_vectors samples, Py_ssize_t n,
            double* value) noexcept nogil
        void (*pull_x)(
            int count, hf_vectors features, const void* sample, const double* slope, Py_ssize_t n,
            void* grad) noexcept nogil
        void (*pull_features)(
            int count, hf_vectors samples, const void* features, const double* slope, Py_ssize_t first,
            Py_ssize_t n, double* total) noexcept nogil

# Returns the margin r = f . x - t for elements of itemsize bytes; its functions are those of the vector path.
cdef const hf_margin* projection_margin(int itemsize) noexcept nogil
