/* Parts a node's samples by their codes, sixteen at a time. */
#ifndef HFOREST_GROWTH_PART_H
#define HFOREST_GROWTH_PART_H
#include "task.h"

#if HF_X86

/* Which of n <= 16 samples have a code above `cut`; sample s has its code at code + s * stride. */
HF_INLINE uint32_t hf_codes_above(
    int width, const char *code, int64_t stride, const uint32_t *sample, int64_t n, uint32_t cut
) {
    uint32_t above = 0;
    for (int64_t i = 0; i < n; ++i) {
        const char *at = code + sample[i] * stride;
        above |= (uint32_t)((width == 1 ? *(const uint8_t *)at : *(const uint16_t *)at) > cut) << i;
    }
    return above;
}

HF_AVX512_CODE HF_INLINE int64_t hf_part_codes(
    int width, const hf_task *t, hf_room *r, const hf_open *node, int64_t column, uint32_t cut
) {
    uint32_t *sample = r->sample, *payload = r->payload, *sample2 = r->sample2, *payload2 = r->payload2;
    const int by_rows = hf_is_by_rows(t, node->last - node->first);
    const char *code = by_rows ? (const char *)t->rows + column * width : (const char *)t->codes + hf_codes(t, column) * width;
    const int64_t stride = by_rows ? t->n_columns * width : width;
    int64_t left = node->first, right = 0;
    for (int64_t i = node->first; i < node->last; i += 16) {
        const int64_t n = node->last - i < 16 ? node->last - i : 16;
        const __mmask16 here = (__mmask16)((1u << n) - 1);
        /* Samples that stay lie before those that are still to be looked at, or among those just read. */
        const uint32_t goes = n == 16 ? hf_codes_above(width, code, stride, sample + i, 16, cut)
                                      : hf_codes_above(width, code, stride, sample + i, n, cut);
        const __mmask16 stays = (__mmask16)~goes & here;
        const int n_stay = __builtin_popcount(stays);
        const __m512i s = _mm512_maskz_loadu_epi32(here, sample + i), p = _mm512_maskz_loadu_epi32(here, payload + i);
        const __mmask16 keep = (__mmask16)((1u << n_stay) - 1);
        _mm512_mask_storeu_epi32(sample + left, keep, _mm512_maskz_compress_epi32(stays, s));
        _mm512_mask_storeu_epi32(payload + left, keep, _mm512_maskz_compress_epi32(stays, p));
        _mm512_storeu_si512(sample2 + right, _mm512_maskz_compress_epi32((__mmask16)goes, s));
        _mm512_storeu_si512(payload2 + right, _mm512_maskz_compress_epi32((__mmask16)goes, p));
        left += n_stay;
        right += n - n_stay;
    }
    memcpy(sample + left, sample2, right * sizeof *sample);
    memcpy(payload + left, payload2, right * sizeof *payload);
    return left;
}

/* As hf_partition; room for 16 more lies behind sample2 and payload2. */
HF_AVX512_CODE static int64_t hf_part_by_vectors(const hf_task *t, hf_room *r, const hf_open *node, hf_cut found) {
    if (t->width == 1) return hf_part_codes(1, t, r, node, found.column, found.low);
    return hf_part_codes(2, t, r, node, found.column, found.low);
}
#endif

#endif
