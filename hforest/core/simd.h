/* Which vector instructions a kernel may be compiled for, apart from which the running processor has
   (cpu_features.h). A function marked HF_AVX512_CODE is compiled for AVX-512 whatever the flags of the
   build, and only called where the processor has it. */
#ifndef HFOREST_SIMD_H
#define HFOREST_SIMD_H
#include <stddef.h>

enum { HF_PATH_PLAIN = 0, HF_PATH_AVX2 = 1, HF_PATH_AVX512 = 2 };

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HF_X86 1
#include <immintrin.h>
#define HF_AVX512_CODE __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq")))
#define HF_AVX2_CODE __attribute__((target("avx2")))
#else
#define HF_X86 0
#endif

#if defined(__GNUC__) || defined(__clang__)
#define HF_INLINE static inline __attribute__((always_inline))
#define HF_PREFETCH(address) __builtin_prefetch(address)
#else
#define HF_INLINE static inline
#define HF_PREFETCH(address) ((void)(address))
#endif

/* Ask for the cache lines of a small object that is read later. */
static inline void hf_fetch(const void *start, ptrdiff_t n_bytes) {
    const char *at = (const char *)start;
    for (ptrdiff_t i = 0; i < n_bytes; i += 64) HF_PREFETCH(at + i);
    HF_PREFETCH(at + n_bytes - 1);
}

#endif
