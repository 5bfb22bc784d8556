/* Philox 4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3; SC 2011), a counter-based generator:
   four words are a function of a key, a counter and a stream, and do not depend on earlier draws. philox.py is the
   same in Python, common.cuh in CUDA. */
#ifndef HFOREST_PHILOX_H
#define HFOREST_PHILOX_H
#include <stdint.h>

#include "core/simd.h"

typedef struct {
    uint32_t word[4];
} hf_draw;

/* Returns the four words of (key, counter, stream). */
HF_INLINE hf_draw hf_philox(uint64_t key, uint64_t counter, uint64_t stream) {
    uint32_t a = (uint32_t)counter, b = (uint32_t)(counter >> 32), c = (uint32_t)stream, d = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const uint64_t p = (uint64_t)0xD2511F53u * a, q = (uint64_t)0xCD9E8D57u * c;
        a = (uint32_t)(q >> 32) ^ b ^ k0;
        b = (uint32_t)q;
        c = (uint32_t)(p >> 32) ^ d ^ k1;
        d = (uint32_t)p;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const hf_draw draw = {{a, b, c, d}};
    return draw;
}

/* Returns words 0 and 1 (which = 0), or 2 and 3 (which = 1), as one word of 64 bits, the first one low. */
HF_INLINE uint64_t hf_draw_key(hf_draw draw, int which) {
    return (uint64_t)draw.word[2 * which + 1] << 32 | draw.word[2 * which];
}

#if HF_X86
/* Sixteen draws at once. Lane i of word[w] is word w of hf_philox(key i, counter i, stream); counters are below 2**32,
   key_low and key_high hold the halves of the keys. */
HF_AVX512_CODE HF_INLINE void hf_philox_16(
    __m512i key_low, __m512i key_high, __m512i counter, uint32_t stream, __m512i *word
) {
    const __m512i left = _mm512_set1_epi32((int32_t)0xD2511F53u), right = _mm512_set1_epi32((int32_t)0xCD9E8D57u);
    const __m512i low_step = _mm512_set1_epi32((int32_t)0x9E3779B9u);
    const __m512i high_step = _mm512_set1_epi32((int32_t)0xBB67AE85u);
    __m512i a = counter, b = _mm512_setzero_si512(), c = _mm512_set1_epi32((int32_t)stream), d = b;
    _Pragma("GCC unroll 10") for (int round = 0; round < 10; ++round) {
        const __m512i p_even = _mm512_mul_epu32(a, left), q_even = _mm512_mul_epu32(c, right);
        const __m512i p_odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), left);
        const __m512i q_odd = _mm512_mul_epu32(_mm512_srli_epi64(c, 32), right);
        const __m512i p_high = _mm512_mask_shuffle_epi32(p_odd, 0x5555, p_even, _MM_PERM_DDBB);
        const __m512i q_high = _mm512_mask_shuffle_epi32(q_odd, 0x5555, q_even, _MM_PERM_DDBB);
        a = _mm512_ternarylogic_epi32(q_high, b, key_low, 0x96);
        b = _mm512_mask_shuffle_epi32(q_even, 0xaaaa, q_odd, _MM_PERM_CCAA);
        c = _mm512_ternarylogic_epi32(p_high, d, key_high, 0x96);
        d = _mm512_mask_shuffle_epi32(p_even, 0xaaaa, p_odd, _MM_PERM_CCAA);
        key_low = _mm512_add_epi32(key_low, low_step);
        key_high = _mm512_add_epi32(key_high, high_step);
    }
    word[0] = a, word[1] = b, word[2] = c, word[3] = d;
}
#endif

/* Returns an integer in 0 <= result < stop; the probability of each is 1 / stop within 2**-32. */
HF_INLINE uint32_t hf_below(uint32_t word, uint32_t stop) { return (uint32_t)((uint64_t)word * stop >> 32); }

/* Returns a multiple of 2**-53, uniform in [0, 1). */
HF_INLINE double hf_unit(hf_draw draw) { return (double)(hf_draw_key(draw, 0) >> 11) * 0x1p-53; }

#endif
