// Shared by every gpu.cu; `real` is float or double, set by the launcher with -Dreal=...
// Sizes and flat indices are long long throughout: n_samples * n_trees exceeds 32 bits in practice.

typedef long long size;

// Flat number of this thread in a one-dimensional launch.
__device__ static inline size thread_number() {
    return (size)blockIdx.x * (size)blockDim.x + (size)threadIdx.x;
}

__device__ static inline real magnitude(real a) { return fabs(a); }

__device__ static inline double sign(real a) { return (double)(a > 0) - (double)(a < 0); }
