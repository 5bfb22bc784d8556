/* Vector instructions for which kernels may be compiled; cpu_features.h detects those of the running processor. A
   function marked HF_AVX512_CODE is compiled for AVX-512 regardless of the flags of the build, and called only if the
   processor has it. */
#ifndef HFOREST_SIMD_H
#define HFOREST_SIMD_H
#include <stddef.h>

/* HF_PATH_VECTOR: the compiler's vector types, in instructions that every processor of the architecture has. */
enum { HF_PATH_PLAIN = 0, HF_PATH_VECTOR = 1, HF_PATH_AVX2 = 2, HF_PATH_AVX512 = 3 };

/* HF_VECTORS: 16-byte vectors fit in registers, and the compiler converts between vectors of different elements. */
#if (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 9)) && (defined(__SSE2__) || defined(__ARM_NEON))
#define HF_VECTORS 1
#else
#define HF_VECTORS 0
#endif

#if HF_VECTORS && defined(__x86_64__)
#define HF_X86 1
#define HF_AVX512_CODE __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq")))
#define HF_AVX2_CODE __attribute__((target("avx2")))
#else
#define HF_X86 0
#endif

#if defined(__GNUC__) || defined(__clang__)
#define HF_INLINE static inline __attribute__((always_inline))
#define HF_APART __attribute__((noinline))
#define HF_PREFETCH(address) __builtin_prefetch(address)
/* GCC removes calls of a function that has no other effect than prefetches; this statement counts as an effect. */
#define HF_EFFECT __asm__ volatile("")
#else
#define HF_INLINE static inline
#define HF_APART
#define HF_PREFETCH(address) ((void)(address))
#define HF_EFFECT ((void)0)
#endif

/* Prefetches the cache lines of a small object. */
static inline void hf_fetch(const void *start, ptrdiff_t n_bytes) {
    const char *at = (const char *)start;
    HF_EFFECT;
    for (ptrdiff_t i = 0; i < n_bytes; i += 64) HF_PREFETCH(at + i);
    HF_PREFETCH(at + n_bytes - 1);
}

#endif
