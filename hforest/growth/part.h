/* Parts a node's samples by their codes, or the values of a projection, sixteen at a time. */
#ifndef HFOREST_GROWTH_PART_H
#define HFOREST_GROWTH_PART_H
#include "growth/task.h"

#if HF_X86

/* What parts them: codes of one or two bytes, or values of a projection. */
enum { HF_BY_BYTES = 1, HF_BY_SHORTS, HF_BY_WHOLE, HF_BY_SINGLE };

/* Which of n <= 16 samples have a code above `cut`; sample s has its code at code + s * stride. */
HF_INLINE uint32_t hf_codes_above(
    int by, const char *code, int64_t stride, const uint32_t *sample, int64_t n, uint32_t cut
) {
    uint32_t above = 0;
    for (int64_t i = 0; i < n; ++i) {
        const char *at = code + sample[i] * stride;
        above |= (uint32_t)((by == HF_BY_BYTES ? *(const uint8_t *)at : *(const uint16_t *)at) > cut) << i;
    }
    return above;
}

HF_AVX512_CODE HF_INLINE int64_t hf_part_16(
    int by, const hf_task *t, hf_workspace *r, const hf_pending *node, hf_cut found
) {
    uint32_t *sample = r->sample, *payload = r->payload, *sample2 = r->sample2, *payload2 = r->payload2;
    const int64_t width = by == HF_BY_BYTES ? 1 : 2;
    const char *code = NULL;
    int64_t stride = width;
    if (by <= HF_BY_SHORTS) {
        const int by_rows = hf_is_by_rows(t, node->last - node->first);
        code = by_rows ? (const char *)t->rows + found.column * width
                       : (const char *)t->codes + hf_codes(t, found.column) * width;
        if (by_rows) stride = t->n_columns * width;
    }
    const __m512i whole = _mm512_set1_epi32(by == HF_BY_WHOLE ? (int32_t)found.below : 0);
    const __m512 single = _mm512_set1_ps((float)found.below);
    int64_t left = node->first, right = 0;
    for (int64_t i = node->first; i < node->last; i += 16) {
        const int64_t n = node->last - i < 16 ? node->last - i : 16;
        const __mmask16 here = (__mmask16)((1u << n) - 1);
        uint32_t goes;
        if (by == HF_BY_WHOLE)
            goes = _mm512_mask_cmpgt_epi32_mask(
                here, _mm512_maskz_loadu_epi32(here, (const int32_t *)r->best_projected + i - node->first), whole
            );
        else if (by == HF_BY_SINGLE)
            goes = _mm512_mask_cmp_ps_mask(
                here, _mm512_maskz_loadu_ps(here, (const float *)r->best_projected + i - node->first), single, _CMP_GT_OQ
            );
        else
            goes = n == 16 ? hf_codes_above(by, code, stride, sample + i, 16, found.low)
                           : hf_codes_above(by, code, stride, sample + i, n, found.low);
        /* Samples that stay lie before those that are still to be looked at, or among those just read. */
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

static int hf_is_parted_by_vectors(const hf_task *t, const hf_workspace *r) {
    if (t->path != HF_PATH_AVX512) return 0;
    return r->kind == HF_INT32_KEYS || (r->kind == HF_INT64_KEYS && t->atoms && (t->whole || t->single));
}

/* As hf_partition; room for 16 more lies behind sample2 and payload2. */
HF_AVX512_CODE static int64_t hf_part_by_vectors(const hf_task *t, hf_workspace *r, const hf_pending *node, hf_cut found) {
    if (t->atoms) return t->whole ? hf_part_16(HF_BY_WHOLE, t, r, node, found) : hf_part_16(HF_BY_SINGLE, t, r, node, found);
    return t->width == 1 ? hf_part_16(HF_BY_BYTES, t, r, node, found) : hf_part_16(HF_BY_SHORTS, t, r, node, found);
}
#endif

#endif
