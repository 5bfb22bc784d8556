/* Transposes arrays of 4-byte words: a square of 4 x 4 words is four vectors, shuffled twice.

       a0 a1 a2 a3      a0 c0 a1 c1      a0 b0 c0 d0
       b0 b1 b2 b3  ->  a2 c2 a3 c3  ->  a1 b1 c1 d1
       c0 c1 c2 c3      b0 d0 b1 d1      a2 b2 c2 d2
       d0 d1 d2 d3      b2 d2 b3 d3      a3 b3 c3 d3  */
#ifndef HFOREST_HINGE_TRANSPOSE_H
#define HFOREST_HINGE_TRANSPOSE_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/counting.h"
#include "core/simd.h"

#if HF_VECTORS
typedef int32_t hf_four_words __attribute__((vector_size(16)));

#if defined(__clang__) || __GNUC__ >= 12
#define HF_SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define HF_SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (hf_four_words){i, j, k, l})
#endif

HF_INLINE void hf_transpose_square(const int32_t *in, ptrdiff_t in_step, int32_t *out, ptrdiff_t out_step) {
    hf_four_words a[4], b[4];
    int i;
    for (i = 0; i < 4; ++i) memcpy(&a[i], in + i * in_step, sizeof a[i]);
    for (i = 0; i < 2; ++i) {
        b[2 * i] = HF_SHUFFLE(a[i], a[i + 2], 0, 4, 1, 5);
        b[2 * i + 1] = HF_SHUFFLE(a[i], a[i + 2], 2, 6, 3, 7);
    }
    for (i = 0; i < 2; ++i) {
        a[2 * i] = HF_SHUFFLE(b[i], b[i + 2], 0, 4, 1, 5);
        a[2 * i + 1] = HF_SHUFFLE(b[i], b[i + 2], 2, 6, 3, 7);
    }
    for (i = 0; i < 4; ++i) memcpy(out + i * out_step, &a[i], sizeof a[i]);
}

/* Writes out[c * out_step + r] = in[r * in_step + c] for r < n_rows and c < n_columns, both multiples of 4. It takes
   sixteen columns at a time: one cache line of each row. */
static void hf_transpose(
    const int32_t *in, ptrdiff_t in_step, ptrdiff_t n_rows, ptrdiff_t n_columns, int32_t *out, ptrdiff_t out_step) {
    HF_COUNT("hinge", __func__);
    for (ptrdiff_t first = 0; first < n_columns; first += 16) {
        const ptrdiff_t last = first + 16 < n_columns ? first + 16 : n_columns;
        for (ptrdiff_t r = 0; r < n_rows; r += 4) {
            /* Rows may be pages apart, a stride that hardware does not prefetch. */
            if (r + 36 <= n_rows)
                for (int i = 0; i < 4; ++i) HF_PREFETCH(in + (r + 32 + i) * in_step + first);
            for (ptrdiff_t c = first; c < last; c += 4)
                hf_transpose_square(in + r * in_step + c, in_step, out + c * out_step + r, out_step);
        }
    }
}

#else
/* Never called: this build has only the plain path. */
static void hf_transpose(
    const int32_t *in, ptrdiff_t in_step, ptrdiff_t n_rows, ptrdiff_t n_columns, int32_t *out, ptrdiff_t out_step) {
    (void)in, (void)in_step, (void)n_rows, (void)n_columns, (void)out, (void)out_step;
}
#endif
#endif
