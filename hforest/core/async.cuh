// Copies from global to shared memory that go on while the thread does. GPUs before sm_80 and the host build copy at
// once.

// Numbers that one copy moves, if both addresses are multiples of 16.
struct alignas(16) Sixteen {
    uint32_t word[4];
};

// Begins to copy n elements, of which thread `lane` of n_lanes copies every n_lanes-th. They are there once these
// threads have called wait_for_copies() and a barrier has followed.
template <typename T>
__device__ static inline void copy_ahead(T *to, const T *from, int n, int lane, int n_lanes) {
    for (int i = lane; i < n; i += n_lanes) {
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
        const unsigned place = (unsigned)__cvta_generic_to_shared(to + i);
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(place), "l"(from + i), "n"(sizeof(T)) :
                     "memory");
#else
        to[i] = from[i];
#endif
    }
}

// Waits for all copies that this thread has begun.
__device__ static inline void wait_for_copies() {
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
