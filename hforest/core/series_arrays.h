/* exp and log of arrays by the functions of series.h, compiled for the instructions of each vector path. Loops are
   vectorised by the compiler; their bits do not depend on it. */
#ifndef HFOREST_SERIES_ARRAYS_H
#define HFOREST_SERIES_ARRAYS_H
#include "core/counting.h"
#include "core/series.h"
#include "core/simd.h"

/* a and out: n numbers, OUT may be IN. Arguments are limited in a loop of their own, because GCC vectorises no loop in
   which it folds a limit into an operation that follows. */
#define HF_SERIES(path, CODE)                                                                        \
    CODE static void hf_exps_##path(const double *a, ptrdiff_t n, double *out) {                     \
        enum { BLOCK = 256 };                                                                        \
        double inside[BLOCK];                                                                        \
        HF_COUNT("core", __func__);                                                                  \
        for (ptrdiff_t first = 0; first < n; first += BLOCK) {                                       \
            const ptrdiff_t count = n - first < BLOCK ? n - first : BLOCK;                           \
            for (ptrdiff_t i = 0; i < count; ++i) inside[i] = hf_exp_argument(a[first + i]);         \
            for (ptrdiff_t i = 0; i < count; ++i) out[first + i] = hf_exp_inside(inside[i]);         \
        }                                                                                            \
    }                                                                                                \
    CODE static void hf_logs_##path(const double *a, ptrdiff_t n, double *out) {                     \
        HF_COUNT("core", __func__);                                                                  \
        for (ptrdiff_t i = 0; i < n; ++i) out[i] = hf_log(a[i]);                                     \
    }

HF_SERIES(plain, )
#if HF_X86
HF_SERIES(avx2, HF_AVX2_CODE)
HF_SERIES(avx512, HF_AVX512_CODE)
/* The function of a path. */
#define HF_OF_PATH(name) (path == HF_PATH_AVX512 ? name##_avx512 : path == HF_PATH_AVX2 ? name##_avx2 : name##_plain)
#else
#define HF_OF_PATH(name) ((void)path, name##_plain)
#endif

static void hf_exps(int path, const double *a, ptrdiff_t n, double *out) { HF_OF_PATH(hf_exps)(a, n, out); }
static void hf_logs(int path, const double *a, ptrdiff_t n, double *out) { HF_OF_PATH(hf_logs)(a, n, out); }

#endif
