// launch.py puts this file before the gpu.cu of each subpackage. It compiles with -Dreal=float or -Dreal=double. Sizes
// and flat indices have 64 bits, because n_samples * n_trees can exceed 32 bits.

#include "core/philox.h"
#include "core/score.h"

typedef int64_t size;

// Shared memory of a block, whose size is an argument of the launch; its address is a multiple of 16.
#ifdef __CUDACC_RTC__
alignas(16) extern __shared__ double block_memory[];
#endif

// Returns the number of this thread in a one-dimensional launch.
__device__ static inline size thread_number() {
    return (size)blockIdx.x * (size)blockDim.x + (size)threadIdx.x;
}

// Returns the part with element `at`: part p has elements first[p] to first[p + 1] - 1. first (n_parts,) or more, IN.
__device__ static inline size part_with(const size *first, size n_parts, size at) {
    size low = 0, high = n_parts;
    while (high - low > 1) {
        const size middle = (low + high) / 2;
        if (first[middle] <= at) low = middle;
        else high = middle;
    }
    return low;
}

// Returns `sum` and the terms term(a), first <= a < last, added in their order, in the type of the terms. AHEAD terms are
// computed before they are added, so that their loads do not wait for sums.
template <int AHEAD = 8, typename Index, typename Term>
__device__ static inline auto sum_ahead(Index first, Index last, Term term, decltype(term(first)) sum = 0) {
    decltype(term(first)) value[AHEAD];
    Index a = first;
    for (; a + AHEAD <= last; a += AHEAD) {
        for (int l = 0; l < AHEAD; ++l) value[l] = term(a + l);
        for (int l = 0; l < AHEAD; ++l) sum = sum + value[l];
    }
    if (a == last) return sum;
    for (int l = 0; l < AHEAD; ++l) value[l] = term(a + l < last ? a + l : last - 1);
    for (int l = 0; l < AHEAD; ++l) sum = a + l < last ? sum + value[l] : sum;
    return sum;
}

__device__ static inline real magnitude(real a) { return fabs(a); }

__device__ static inline double sign(real a) { return (double)(a > 0) - (double)(a < 0); }

// Returns a threshold between two values of `real`, as score.h does.
__device__ static inline double between(double low, double high) {
    return sizeof(real) == 4 ? hf_between_f32(low, high) : hf_between_f64(low, high);
}

// Returns the sum of `own` over the threads of the block before this one, and writes the sum up to and including each
// thread to shared (one element per thread). All threads of the block call it.
template <typename T> __device__ static inline T sum_before(T own, T *shared) {
    const int t = (int)threadIdx.x;
    shared[t] = own;
    __syncthreads();
    for (int step = 1; step < (int)blockDim.x; step *= 2) {
        const T more = t >= step ? shared[t - step] : T{};
        __syncthreads();
        shared[t] = shared[t] + more;
        __syncthreads();
    }
    const T before = t > 0 ? shared[t - 1] : T{};
    __syncthreads();
    return before;
}
