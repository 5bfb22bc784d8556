/* The intrinsics of x86-64, for the files that call them: GCC reads their header for longer than most modules. */
#ifndef HFOREST_X86_H
#define HFOREST_X86_H
#include "core/simd.h"
#if HF_X86
#include <immintrin.h>
#endif

#endif
