/* Included first by headers that both the C compiler and NVRTC compile. Such a header includes only headers of this
   kind; launch.py replaces the includes by their texts. HF_BOTH precedes functions for both. */
#ifndef HFOREST_BOTH_H
#define HFOREST_BOTH_H

#ifdef __CUDACC_RTC__
typedef unsigned char uint8_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define HF_BOTH __device__ static inline
#define HF_INFINITY ((double)__int_as_float(0x7f800000))
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
#define HF_INFINITY ((double)INFINITY)
#if defined(__GNUC__) || defined(__clang__)
#define HF_BOTH static inline __attribute__((always_inline))
#else
#define HF_BOTH static inline
#endif
#endif

#endif
