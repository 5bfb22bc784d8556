/* The intrinsics of x86-64. Only files that use them include this header, which is slow to compile. */
#ifndef HFOREST_X86_H
#define HFOREST_X86_H
#include "core/simd.h"
#if HF_X86
#include <immintrin.h>
#endif

#endif
