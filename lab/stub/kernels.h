// Precedes a kernel of CuPy, with the headers of CuPy that it includes: what these and it use of CUDA and cuda.h of
// tests/host has not. hforest's own kernels come after kernel.h alone.
#ifndef STUB_KERNELS_H
#define STUB_KERNELS_H
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <vector_types.h>

#include "kernel.h"

static inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
static inline int __clzll(long long a) { return a ? __builtin_clzll(a) : 64; }

template <typename To, typename From>
static inline To bits_as(From a) {
    To b;
    static_assert(sizeof a == sizeof b);
    memcpy(&b, &a, sizeof b);
    return b;
}
static inline float __int_as_float(int a) { return bits_as<float>(a); }
static inline int __float_as_int(float a) { return bits_as<int>(a); }
static inline double __longlong_as_double(long long a) { return bits_as<double>(a); }
static inline long long __double_as_longlong(double a) { return bits_as<long long>(a); }

// Returns the value of another thread of the warp, which all threads of it reach.
template <typename T>
static inline T shuffled(T value, unsigned thread) {
    static T values[host::MAX_THREADS];
    values[threadIdx.x] = value;
    __syncwarp();
    const T other = values[thread < blockDim.x ? thread : threadIdx.x];
    __syncwarp();
    return other;
}
template <typename T>
static inline T __shfl_xor_sync(unsigned, T value, int lanes, int = 32) {
    return shuffled(value, threadIdx.x ^ lanes);
}

template <typename T>
static inline T __shfl_up_sync(unsigned, T value, unsigned lanes, int = 32) {
    return shuffled(value, threadIdx.x % 32 < lanes ? threadIdx.x : threadIdx.x - lanes);
}

#include <cupy/complex.cuh>
#include <cupy/carray.cuh>
#include <cupy/atomics.cuh>
#include <cupy/math_constants.h>
#endif
