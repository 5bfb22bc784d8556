/* Philox for vectors of keys. */
#ifndef HFOREST_SIMD_PHILOX_H
#define HFOREST_SIMD_PHILOX_H
#include "core/philox.h"
#include "core/simd.h"

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

#endif
