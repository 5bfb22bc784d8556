# The vector path in force: HF_PATH_PLAIN, HF_PATH_AVX2 or HF_PATH_AVX512 of simd.h.
cdef int simd_path() noexcept nogil
