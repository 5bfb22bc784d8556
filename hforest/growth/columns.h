/* Values of projections by vectors, each the same operations as in projected.h. Rows of x are read for nodes of few
   samples, whose rows stay near. Where they do not, columns are: x once more, features first. There samples of a large
   node lie close together, and all that lie between are added up too, for loads in order cost least. */
#ifndef HFOREST_GROWTH_COLUMNS_H
#define HFOREST_GROWTH_COLUMNS_H
#include "growth/blocks.h"

enum {
    HF_ROWS_AHEAD = 12,      /* samples ahead whose row is asked for */
    HF_NEAR_ROWS = 1 << 17,  /* bytes of rows that stay near */
    HF_MOST_BYTES = 128,     /* bytes whose sums of either sign fit in 16 bits */
    HF_BYTES_IN_ORDER = 20,  /* bytes in order that cost what one does elsewhere, */
    HF_FLOATS_IN_ORDER = 4,  /* and floats, */
    HF_FLOATS_IN_BLOCK = 10  /* and those of a block */
};

/* Adds up to four entries; `n_entries` is known where this is inlined. */
HF_INLINE void hf_sum_some_bytes(
    int n_entries, int add, const uint8_t *const *from, const int32_t *factor, int64_t stride, const uint32_t *sample,
    int64_t n, int32_t *value
) {
    for (int64_t i = 0; i < n; ++i) {
        const int64_t at = sample[i] * stride;
        int32_t sum = add ? value[i] : 0;
        /* Rows lie far apart, where no processor foresees them. */
        if (stride > 1 && !add && i + HF_ROWS_AHEAD < n) HF_PREFETCH(from[0] + sample[i + HF_ROWS_AHEAD] * stride);
        for (int e = 0; e < n_entries; ++e) sum += factor[e] * from[e][at];
        value[i] = sum;
    }
}

/* Sums over entries for n samples: sample s has its number of entry e at x + index[e] * step + s * stride. One load a
   number, which gathers of vectors do not undercut. */
static void hf_sum_bytes(
    const uint8_t *x, int64_t step, int64_t stride, const uint32_t *sample, int64_t n, const uint32_t *index,
    const float *factor, int64_t count, int32_t *value
) {
    for (int64_t e = 0; e < count; e += 4) {
        const uint8_t *from[4];
        int32_t by[4];
        const int n_entries = count - e < 4 ? (int)(count - e) : 4;
        for (int j = 0; j < n_entries; ++j) from[j] = x + (int64_t)index[e + j] * step, by[j] = (int32_t)factor[e + j];
        if (e) {
            hf_sum_some_bytes(n_entries, 1, from, by, stride, sample, n, value);
        } else if (n_entries == 1) {
            hf_sum_some_bytes(1, 0, from, by, stride, sample, n, value);
        } else if (n_entries == 2) {
            hf_sum_some_bytes(2, 0, from, by, stride, sample, n, value);
        } else if (n_entries == 3) {
            hf_sum_some_bytes(3, 0, from, by, stride, sample, n, value);
        } else {
            hf_sum_some_bytes(4, 0, from, by, stride, sample, n, value);
        }
    }
}

#if HF_X86

/* Which of the places from the first to the last of n samples are theirs. */
static void hf_mark_places(const uint32_t *place, int64_t n, uint64_t *present) {
    uint64_t word = 0;
    uint32_t number = 0;
    memset(present, 0, ((place[n - 1] - place[0]) / 64 + 1) * sizeof *present);
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t at = place[i] - place[0];
        word = at / 64 == number ? word : 0;
        word |= (uint64_t)1 << at % 64;
        number = at / 64;
        present[number] = word;
    }
}

/* Writes sums of places that are present, and up to 16 numbers behind; where the next go. */
HF_AVX512_CODE HF_INLINE int32_t *hf_keep_present(int32_t *value, __m256i sum, __mmask16 present) {
    _mm512_storeu_si512(value, _mm512_maskz_compress_epi32(present, _mm512_cvtepi16_epi32(sum)));
    return value + __builtin_popcount(present);
}
HF_AVX512_CODE HF_INLINE float *hf_keep_present_f32(float *value, __m512d sum, __mmask8 present) {
    _mm256_storeu_ps(value, _mm256_maskz_compress_ps(present, _mm512_cvtpd_ps(sum)));
    return value + __builtin_popcount(present);
}

/* Sums over columns at n_places in order from `columns` on, 64 at a time, kept where present; columns to read lie behind
   the last. */
HF_AVX512_CODE static void hf_add_columns_bytes(
    const uint8_t *columns, int64_t step, int64_t n_places, const uint64_t *present, const uint32_t *index,
    const float *factor, int64_t count, int32_t *value
) {
    for (int64_t j = 0; j < n_places; j += 64) {
        const uint64_t here = present[j / 64];
        __m512i low = _mm512_setzero_si512(), high = low;
        for (int64_t e = 0; e < count; ++e) {
            const uint8_t *at = columns + (int64_t)index[e] * step + j;
            const __m512i a = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)at));
            const __m512i b = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(at + 32)));
            low = factor[e] > 0 ? _mm512_add_epi16(low, a) : _mm512_sub_epi16(low, a);
            high = factor[e] > 0 ? _mm512_add_epi16(high, b) : _mm512_sub_epi16(high, b);
        }
        value = hf_keep_present(value, _mm512_castsi512_si256(low), (__mmask16)here);
        value = hf_keep_present(value, _mm512_extracti64x4_epi64(low, 1), (__mmask16)(here >> 16));
        value = hf_keep_present(value, _mm512_castsi512_si256(high), (__mmask16)(here >> 32));
        value = hf_keep_present(value, _mm512_extracti64x4_epi64(high, 1), (__mmask16)(here >> 48));
    }
}

/* Factors are 1 or -1, so that a fused product is the product. */
HF_AVX512_CODE static void hf_add_columns_f32(
    const float *columns, int64_t step, int64_t n_places, const uint64_t *present, const uint32_t *index,
    const float *factor, int64_t count, float *value
) {
    for (int64_t j = 0; j < n_places; j += 32) {
        const uint32_t here = (uint32_t)(present[j / 64] >> j % 64);
        __m512d a = _mm512_setzero_pd(), b = a, c = a, d = a;
        for (int64_t e = 0; e < count; ++e) {
            const float *at = columns + (int64_t)index[e] * step + j;
            const __m512d by = _mm512_set1_pd(factor[e]);
            a = _mm512_fmadd_pd(by, _mm512_cvtps_pd(_mm256_loadu_ps(at)), a);
            b = _mm512_fmadd_pd(by, _mm512_cvtps_pd(_mm256_loadu_ps(at + 8)), b);
            c = _mm512_fmadd_pd(by, _mm512_cvtps_pd(_mm256_loadu_ps(at + 16)), c);
            d = _mm512_fmadd_pd(by, _mm512_cvtps_pd(_mm256_loadu_ps(at + 24)), d);
        }
        value = hf_keep_present_f32(value, a, (__mmask8)here);
        value = hf_keep_present_f32(value, b, (__mmask8)(here >> 8));
        value = hf_keep_present_f32(value, c, (__mmask8)(here >> 16));
        value = hf_keep_present_f32(value, d, (__mmask8)(here >> 24));
    }
}

/* Sums for sixteen samples at a time, or the last eight; places as in hf_sum_bytes. */
HF_AVX512_CODE static void hf_gather_f32(
    const float *x, int64_t step, int64_t stride, const uint32_t *sample, int64_t n, const uint32_t *index,
    const float *factor, int64_t count, float *value
) {
    const __m512i by = _mm512_set1_epi32((int32_t)stride);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 here = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1);
        if (n - i <= 8) {
            const __m256i rows = _mm256_maskz_loadu_epi32((__mmask8)here, sample + i);
            const __m256i last = _mm256_mullo_epi32(rows, _mm512_castsi512_si256(by));
            __m512d sum = _mm512_setzero_pd();
            for (int64_t e = 0; e < count; ++e) {
                const float *from = x + (int64_t)index[e] * step;
                const __m256 values = _mm256_mmask_i32gather_ps(_mm256_setzero_ps(), (__mmask8)here, last, from, 4);
                sum = _mm512_add_pd(sum, _mm512_mul_pd(_mm512_set1_pd(factor[e]), _mm512_cvtps_pd(values)));
            }
            _mm256_mask_storeu_ps(value + i, (__mmask8)here, _mm512_cvtpd_ps(sum));
            return;
        }
        const __m512i at = _mm512_mullo_epi32(_mm512_maskz_loadu_epi32(here, sample + i), by);
        __m512d low = _mm512_setzero_pd(), high = low;
        for (int64_t e = 0; e < count; ++e) {
            const __m512 values =
                _mm512_mask_i32gather_ps(_mm512_setzero_ps(), here, at, x + (int64_t)index[e] * step, 4);
            const __m512d f = _mm512_set1_pd(factor[e]);
            low = _mm512_add_pd(low, _mm512_mul_pd(f, _mm512_cvtps_pd(_mm512_castps512_ps256(values))));
            high = _mm512_add_pd(high, _mm512_mul_pd(f, _mm512_cvtps_pd(_mm512_extractf32x8_ps(values, 1))));
        }
        _mm256_mask_storeu_ps(value + i, (__mmask8)here, _mm512_cvtpd_ps(low));
        _mm256_mask_storeu_ps(value + i + 8, (__mmask8)(here >> 8), _mm512_cvtpd_ps(high));
    }
}

/* Whether adding up columns in order is the cheapest way to sums of `count` numbers for a node's n samples, of which
   `looked_up` take its place elsewhere. */
static int hf_is_in_order(const hf_task *t, const hf_columns *c, int64_t n, int64_t count, int64_t looked_up) {
    if (!c->numbers || (t->small && count > HF_MOST_BYTES)) return 0;
    const int64_t n_places = (int64_t)c->place[n - 1] - c->place[0] + 1;
    const int64_t cheaper = t->small ? HF_BYTES_IN_ORDER : c->is_block ? HF_FLOATS_IN_BLOCK : HF_FLOATS_IN_ORDER;
    return n_places * count <= n * cheaper * (1 + looked_up);
}

/* Sums of one candidate for samples of a node by columns in order. */
static void hf_add_columns(
    hf_workspace *r, int bytes, int64_t n, const uint32_t *index, const float *factor, int64_t count, void *value
) {
    hf_columns *c = &r->columns;
    const int64_t first = c->place[0], n_places = c->place[n - 1] - first + 1;
    if (!c->are_marked) hf_mark_places(c->place, n, r->present);
    c->are_marked = 1;
    if (bytes)
        hf_add_columns_bytes(
            (const uint8_t *)c->numbers + first, c->step, n_places, r->present, index, factor, count, value
        );
    else
        hf_add_columns_f32((const float *)c->numbers + first, c->step, n_places, r->present, index, factor, count, value);
}

/* Values of one candidate for samples of a node; 0 where vectors do not reach. */
static int hf_project_by_vectors(
    const hf_task *t, hf_workspace *r, const uint32_t *sample, int64_t n, const uint32_t *index, const float *factor,
    int64_t count, int64_t looked_up, void *value
) {
    const int64_t n_features = t->atoms->n_features;
    const hf_columns *c = &r->columns;
    if (!c->numbers) return 0;
    if (hf_is_in_order(t, c, n, count, looked_up)) {
        hf_add_columns(r, t->small != NULL, n, index, factor, count, value);
        return 1;
    }
    /* Offsets of rows are numbers of 32 bits. */
    const int by_columns =
        c->is_block || n * n_features * (t->small ? 1 : 4) > HF_NEAR_ROWS || t->n * n_features >> 31;
    const int64_t step = by_columns ? c->step : 1, stride = by_columns ? 1 : n_features;
    const uint32_t *place = by_columns ? c->place : sample;
    if (t->small)
        hf_sum_bytes(by_columns ? c->numbers : t->small, step, stride, place, n, index, factor, count, value);
    else
        hf_gather_f32(by_columns ? c->numbers : t->x, step, stride, place, n, index, factor, count, value);
    return 1;
}
#endif

#endif
