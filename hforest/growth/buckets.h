/* Nodes of many samples, projections. A candidate's values fall into buckets of equal width, weights are counted by class
   and bucket, and vectors bound what a cut in each bucket can score. Only buckets that may hold a cut better than the
   best so far are sorted and swept: of most candidates none.

   With g(a) = sum a_k**2 / sum a_k, a cut scores g(left) + g(right). In a bucket behind samples L and before R it parts
   the bucket's weights b into d and e. g is convex and homogeneous, so g(L + d) <= g(L) + g(d), and g(d) <= max d_k:
   no cut there scores more than g(L) + g(R) and the two largest of b. Closer, with p = L / W the shares in L,

       g(L + d) = g(L) + sum d_k (2 p_k - |p|**2) + |d - w p|**2 / (W + w),   w = sum d_k,

   and the last term is at most w (max b_k + w |p|**2) / (W + w), largest where w is all of b; the same for R and e. The
   sum over classes is largest where each goes to the side that it does more for. */
#ifndef HFOREST_GROWTH_BUCKETS_H
#define HFOREST_GROWTH_BUCKETS_H
#include "growth/bins.h"

HF_INLINE uint32_t hf_ordered_32(float a) {
    uint32_t bits;
    a += 0.0f;
    memcpy(&bits, &a, sizeof bits);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}

HF_INLINE float hf_unordered_32(uint32_t code) {
    const uint32_t bits = code >> 31 ? code & ~(1u << 31) : ~code;
    float a;
    memcpy(&a, &bits, sizeof a);
    return a;
}

/* A value's bits in the order of the values. */
HF_INLINE uint32_t hf_code_at(const hf_task *t, const void *value, int64_t i) {
    return t->whole ? ((const uint32_t *)value)[i] ^ 1u << 31 : hf_ordered_32(((const float *)value)[i]);
}

/* The value of a code. */
HF_INLINE double hf_value_at(const hf_task *t, uint32_t code) {
    return t->whole ? (int32_t)(code ^ 1u << 31) : hf_unordered_32(code);
}

#if HF_X86

/* hf_code_at of sixteen values. */
HF_AVX512_CODE HF_INLINE __m512i hf_codes_at(const hf_task *t, __m512i value) {
    const __m512i top = _mm512_set1_epi32((int32_t)(1u << 31));
    if (t->whole) return _mm512_xor_si512(value, top);
    const __m512i bits = _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(value), _mm512_setzero_ps()));
    return _mm512_xor_si512(bits, _mm512_mask_set1_epi32(top, _mm512_movepi32_mask(bits), -1));
}

/* The least code above `low`. */
HF_AVX512_CODE static uint32_t hf_code_above(const hf_task *t, const void *value, int64_t n, uint32_t low) {
    const __m512i least = _mm512_set1_epi32((int32_t)low);
    __m512i above = _mm512_set1_epi32(-1);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 here = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1);
        const __m512i code = hf_codes_at(t, _mm512_maskz_loadu_epi32(here, (const uint32_t *)value + i));
        above = _mm512_mask_min_epu32(above, _mm512_mask_cmpgt_epu32_mask(here, code, least), above, code);
    }
    return _mm512_reduce_min_epu32(above);
}

enum { HF_MOST_SORTED = 10 /* samples up to which sorting them is cheaper */ };

/* Shares of a score that rounding to float32 may hide, and more. */
#define HF_BELOW 0.999999f

/* How a candidate's values fall into 16 * n_steps buckets. Bucket c is counted in vector c % n_steps, lane
   c / n_steps. */
typedef struct {
    int n_steps, log_steps, shift; /* shift: of whole numbers */
    int32_t lowest, often; /* often, usual: a value that has a bucket of its own */
    float least, scale, usual;
    int own;   /* its bucket */
    int exact; /* every bucket holds one value */
} hf_buckets;

HF_INLINE int hf_place(const hf_buckets *b, int c) { return (c & (b->n_steps - 1)) << 4 | c >> b->log_steps; }

/* The bucket of a value, by its code; as hf_fill_buckets has it. */
HF_INLINE int hf_bucket_of(const hf_task *t, const hf_buckets *b, uint32_t code) {
    if (t->whole) {
        const int32_t v = (int32_t)(code ^ 1u << 31);
        return (int)(((uint32_t)v - (uint32_t)b->lowest) >> b->shift) + (b->exact ? 0 : (v >= b->often) + (v > b->often));
    }
    const float v = hf_unordered_32(code);
    return (int)((v - b->least) * b->scale) + (v >= b->usual) + (v > b->usual);
}

/* One of four values that equals another of them, or `otherwise`: pixels have a background, and its bucket is large. */
static int32_t hf_seen_twice(const int32_t *v, int64_t n, int32_t otherwise) {
    const int32_t a = v[0], b = v[n / 4], c = v[n / 2], d = v[3 * n / 4];
    if (a == b || a == c || a == d) return a;
    return b == c || b == d ? b : c == d ? c : otherwise;
}

/* Lays out the buckets of n values; 0 if all are equal, -1 if no width parts them. */
HF_AVX512_CODE static int hf_lay_buckets(const hf_task *t, const void *value, int64_t n, hf_buckets *b) {
    const int most = n < 24 ? 0 : n < 64 ? 1 : n < 320 ? 2 : n < 2048 ? 3 : 4; /* log2 of vectors that pay */
    const __mmask16 rest = (__mmask16)((1u << (n % 16)) - 1);
    int64_t i = 0;
    b->log_steps = most;
    b->exact = 0;
    if (t->whole) {
        const int32_t *v = value;
        __m512i low = _mm512_set1_epi32(v[0]), high = low;
        for (; i + 16 <= n; i += 16) {
            low = _mm512_min_epi32(low, _mm512_loadu_si512(v + i));
            high = _mm512_max_epi32(high, _mm512_loadu_si512(v + i));
        }
        low = _mm512_mask_min_epi32(low, rest, low, _mm512_maskz_loadu_epi32(rest, v + i));
        high = _mm512_mask_max_epi32(high, rest, high, _mm512_maskz_loadu_epi32(rest, v + i));
        b->lowest = _mm512_reduce_min_epi32(low);
        const uint32_t range = (uint32_t)_mm512_reduce_max_epi32(high) - (uint32_t)b->lowest;
        if (!range) return 0;
        b->shift = 0;
        b->exact = range < 16u << most;
        if (b->exact)
            for (b->log_steps = 0; range >= 16u << b->log_steps;) ++b->log_steps;
        else
            while ((range >> b->shift) + 2 >= 16u << most) ++b->shift;
        b->often = hf_seen_twice(v, n, b->lowest);
        b->own = hf_bucket_of(t, b, (uint32_t)b->often ^ 1u << 31);
    } else {
        const float *v = value;
        __m512 low = _mm512_set1_ps(v[0]), high = low;
        for (; i + 16 <= n; i += 16) {
            low = _mm512_min_ps(low, _mm512_loadu_ps(v + i));
            high = _mm512_max_ps(high, _mm512_loadu_ps(v + i));
        }
        low = _mm512_mask_min_ps(low, rest, low, _mm512_maskz_loadu_ps(rest, v + i));
        high = _mm512_mask_max_ps(high, rest, high, _mm512_maskz_loadu_ps(rest, v + i));
        b->least = _mm512_reduce_min_ps(low);
        const float range = _mm512_reduce_max_ps(high) - b->least;
        if (range == 0) return 0;
        b->scale = (float)((16 << most) - 2) * HF_BELOW / range;
        if (!(b->scale > 0 && b->scale < INFINITY && range < INFINITY)) return -1;
        int32_t bits;
        memcpy(&bits, &b->least, sizeof bits);
        bits = hf_seen_twice(value, n, bits);
        memcpy(&b->usual, &bits, sizeof bits);
        b->own = hf_bucket_of(t, b, hf_ordered_32(b->usual));
    }
    b->n_steps = 1 << b->log_steps;
    return 1;
}

/* Places of the values' buckets, for which there is room for 15 more. `other` gets the samples outside the bucket `own`, as in
   `slot`, with the place added to where the class is counted; how many these are. */
HF_AVX512_CODE static int64_t hf_fill_buckets(
    const hf_task *t, const void *value, int64_t n, const hf_buckets *b, const uint32_t *slot, uint8_t *place,
    uint32_t *other
) {
    const __m512i one = _mm512_set1_epi32(1), step = _mm512_set1_epi32(b->n_steps - 1);
    const __m512i own = _mm512_set1_epi32(hf_place(b, b->own));
    const __m128i by = _mm_cvtsi32_si128(b->log_steps), shift = _mm_cvtsi32_si128(b->shift);
    int64_t n_others = 0;
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 here = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1);
        __mmask16 from = 0, above = 0;
        __m512i c;
        if (t->whole) {
            const __m512i v = _mm512_maskz_loadu_epi32(here, (const int32_t *)value + i);
            c = _mm512_srl_epi32(_mm512_sub_epi32(v, _mm512_set1_epi32(b->lowest)), shift);
            if (!b->exact) {
                from = _mm512_cmpge_epi32_mask(v, _mm512_set1_epi32(b->often));
                above = _mm512_cmpgt_epi32_mask(v, _mm512_set1_epi32(b->often));
            }
        } else {
            const __m512 v = _mm512_maskz_loadu_ps(here, (const float *)value + i);
            const __m512 scaled = _mm512_mul_ps(_mm512_sub_ps(v, _mm512_set1_ps(b->least)), _mm512_set1_ps(b->scale));
            c = _mm512_cvttps_epi32(scaled);
            from = _mm512_cmp_ps_mask(v, _mm512_set1_ps(b->usual), _CMP_GE_OQ);
            above = _mm512_cmp_ps_mask(v, _mm512_set1_ps(b->usual), _CMP_GT_OQ);
        }
        c = _mm512_mask_add_epi32(c, from, c, one);
        c = _mm512_mask_add_epi32(c, above, c, one);
        c = _mm512_or_si512(_mm512_slli_epi32(_mm512_and_si512(c, step), 4), _mm512_srl_epi32(c, by));
        _mm_storeu_si128((__m128i *)(place + i), _mm512_cvtepi32_epi8(c));
        const __mmask16 elsewhere = _mm512_mask_cmpneq_epi32_mask(here, c, own);
        const __m512i at = _mm512_add_epi32(_mm512_maskz_loadu_epi32(here, slot + i), _mm512_slli_epi32(c, 16));
        _mm512_storeu_si512(other + n_others, _mm512_maskz_compress_epi32(elsewhere, at));
        n_others += __builtin_popcount(elsewhere);
    }
    return n_others;
}

/* Counts the samples outside the bucket `own`: in it may be most, of few classes, and one count would wait for another. */
HF_AVX512_CODE static void hf_count_buckets(hf_bins *bins, const hf_buckets *b, const uint32_t *other, int64_t n_others) {
    uint32_t *count = (uint32_t *)bins->count;
    for (int64_t k = 0; k < bins->n_present; ++k)
        for (int s = 0; s < b->n_steps; ++s) bins->count[k][s] = _mm512_setzero_si512();
    for (int64_t i = 0; i < n_others; ++i) count[other[i] >> 16] += other[i] & 0xffff;
}

/* Sums over the buckets up to each, and what the cut behind it scores, in bins->rate; 0 where there is none. The bucket at
   place `own` holds what is not counted. Returns what the best of these cuts scores at least. Unless each bucket holds one
   value, leaves the sums of a class in bins->count, and in `inside` the largest weights of a class in a bucket, in `more`
   the second largest. */
HF_AVX512_CODE HF_INLINE float hf_add_buckets(
    int exact, hf_bins *bins, int n_steps, int own, __m512i *inside, __m512i *more
) {
    const __mmask16 own_lane = (__mmask16)(1u << (own & 15)), behind = (__mmask16)(0xfffeu << (own & 15));
    const __m512i last = _mm512_set1_epi32(15);
    __m512i some[HF_MOST_STEPS];
    for (int s = 0; s < n_steps; ++s) {
        bins->left_square[s] = bins->right_square[s] = bins->left_weight[s] = _mm512_setzero_si512();
        some[s] = inside[s] = more[s] = _mm512_setzero_si512();
    }
    for (int64_t k = 0; k < bins->n_present; ++k) {
        __m512i *count = bins->count[k], others = count[0];
        const __m512i total = _mm512_set1_epi32((int32_t)bins->total[k]);
        for (int s = 1; s < n_steps; ++s) others = _mm512_add_epi32(others, count[s]);
        __m512i left = hf_sums_below(others);
        others = _mm512_permutexvar_epi32(last, _mm512_add_epi32(left, others));
        const __m512i rest = _mm512_sub_epi32(total, others);
        left = _mm512_mask_add_epi32(left, behind, left, rest);
        count[own >> 4] = _mm512_mask_mov_epi32(count[own >> 4], own_lane, rest);
        for (int s = 0; s < n_steps; ++s) {
            const __m512i here = count[s];
            left = _mm512_add_epi32(left, here);
            if (exact) {
                some[s] = _mm512_or_si512(some[s], here);
            } else {
                more[s] = _mm512_max_epi32(more[s], _mm512_min_epi32(inside[s], here));
                inside[s] = _mm512_max_epi32(inside[s], here);
                count[s] = left;
            }
            const __m512i right = _mm512_sub_epi32(total, left);
            bins->left_weight[s] = _mm512_add_epi32(bins->left_weight[s], left);
            bins->left_square[s] = _mm512_add_epi32(bins->left_square[s], _mm512_madd_epi16(left, left));
            bins->right_square[s] = _mm512_add_epi32(bins->right_square[s], _mm512_madd_epi16(right, right));
        }
    }
    __m512 most = _mm512_setzero_ps();
    for (int s = 0; s < n_steps; ++s) {
        const __m512i present = exact ? some[s] : inside[s];
        const __m512i right_weight = _mm512_sub_epi32(_mm512_set1_epi32((int32_t)bins->weight), bins->left_weight[s]);
        const __mmask16 cut = _mm512_test_epi32_mask(right_weight, right_weight) & _mm512_test_epi32_mask(present, present);
        const __m512 left = _mm512_maskz_div_ps(
            cut, _mm512_cvtepi32_ps(bins->left_square[s]), _mm512_cvtepi32_ps(bins->left_weight[s])
        );
        bins->rate[s] = _mm512_add_ps(
            left, _mm512_maskz_div_ps(cut, _mm512_cvtepi32_ps(bins->right_square[s]), _mm512_cvtepi32_ps(right_weight))
        );
        most = _mm512_max_ps(most, bins->rate[s]);
    }
    return _mm512_reduce_max_ps(most) * HF_BELOW;
}

/* Sides of the buckets of a vector: what lies before, or behind. */
typedef struct {
    __m512 purity;       /* g, 0 of nothing */
    __m512 twice, share; /* 2 / W and |p|**2; 0 and -1 of nothing: it adds at most its weight */
    __m512 bend;         /* of the last term */
} hf_side;

HF_AVX512_CODE HF_INLINE hf_side hf_side_of(__m512i square, __m512i weight, __m512i bucket, __m512 largest) {
    const __m512 w = _mm512_cvtepi32_ps(weight), b = _mm512_cvtepi32_ps(bucket);
    const __mmask16 some = _mm512_test_epi32_mask(weight, weight);
    hf_side side;
    side.purity = _mm512_maskz_div_ps(some, _mm512_cvtepi32_ps(square), w);
    side.twice = _mm512_maskz_div_ps(some, _mm512_set1_ps(2), w);
    side.share = _mm512_mask_div_ps(_mm512_set1_ps(-1), some, side.purity, w);
    side.bend = _mm512_maskz_div_ps(
        some, _mm512_mul_ps(b, _mm512_add_ps(largest, _mm512_mul_ps(b, side.share))), _mm512_add_ps(w, b)
    );
    return side;
}

/* Vector s of sums up to each bucket, but for the bucket's own. */
HF_AVX512_CODE HF_INLINE __m512i hf_before(const __m512i *sum, int s, int n_steps) {
    return s ? sum[s - 1] : _mm512_alignr_epi32(sum[n_steps - 1], _mm512_setzero_si512(), 15);
}

/* In which buckets a cut may score `limit` or more, a vector's lanes each; whether there are any. */
HF_AVX512_CODE static int hf_find_alive(
    const hf_bins *bins, const hf_buckets *b, const __m512i *inside, const __m512i *more, float limit, __mmask16 *alive
) {
    const int n_steps = b->n_steps;
    const __m512 least = _mm512_set1_ps(limit);
    int any = 0;
    for (int s = 0; s < n_steps; ++s) {
        const __m512i left_weight = hf_before(bins->left_weight, s, n_steps);
        const __m512i right_weight = _mm512_sub_epi32(_mm512_set1_epi32((int32_t)bins->weight), bins->left_weight[s]);
        const __m512i weight = _mm512_sub_epi32(bins->left_weight[s], left_weight);
        const __m512 largest = _mm512_cvtepi32_ps(inside[s]), w = _mm512_cvtepi32_ps(weight);
        const hf_side left = hf_side_of(hf_before(bins->left_square, s, n_steps), left_weight, weight, largest);
        const hf_side right = hf_side_of(bins->right_square[s], right_weight, weight, largest);
        const __m512 apart = _mm512_add_ps(left.purity, right.purity);
        const __m512 loose = _mm512_add_ps(apart, _mm512_cvtepi32_ps(_mm512_add_epi32(inside[s], more[s])));
        alive[s] = _mm512_test_epi32_mask(weight, weight) & _mm512_cmp_ps_mask(loose, least, _CMP_GE_OQ);
        if (!alive[s]) continue;
        __m512 gain = _mm512_setzero_ps();
        for (int64_t k = 0; k < bins->n_present; ++k) {
            const __m512i before = hf_before(bins->count[k], s, n_steps), with = bins->count[k][s];
            const __m512i behind = _mm512_sub_epi32(_mm512_set1_epi32((int32_t)bins->total[k]), with);
            const __m512 to_left = _mm512_fmsub_ps(_mm512_cvtepi32_ps(before), left.twice, left.share);
            const __m512 to_right = _mm512_fmsub_ps(_mm512_cvtepi32_ps(behind), right.twice, right.share);
            const __m512 here = _mm512_cvtepi32_ps(_mm512_sub_epi32(with, before));
            gain = _mm512_fmadd_ps(here, _mm512_max_ps(to_left, to_right), gain);
        }
        /* Rounding of the sum is a share of the bucket's weight. */
        gain = _mm512_fmadd_ps(w, _mm512_set1_ps(1e-5f), gain);
        const __m512 close = _mm512_add_ps(_mm512_add_ps(apart, gain), _mm512_add_ps(left.bend, right.bend));
        alive[s] &= _mm512_cmp_ps_mask(close, least, _CMP_GE_OQ);
        any |= alive[s];
    }
    /* Where one value has a bucket of its own there is one cut. */
    const int own = hf_place(b, b->own);
    const uint16_t lane = (uint16_t)(1u << (own & 15));
    alive[own >> 4] &= (__mmask16)~lane;
    const float rate = ((const float *)bins->rate)[own];
    if (rate > 0 && rate >= limit) alive[own >> 4] |= lane;
    return any || (rate > 0 && rate >= limit);
}

/* Codes of the values in buckets of `alive` above their slots; but one of a bucket's own value. How many they are. */
HF_AVX512_CODE static int64_t hf_collect(
    const hf_task *t, const void *value, int64_t n, const hf_buckets *b, const uint8_t *place, const uint32_t *slot,
    const __mmask16 *alive, uint64_t *key, uint32_t *lowest, uint32_t *highest
) {
    uint16_t mask[32] = {0};
    for (int s = 0; s < b->n_steps; ++s) mask[s] = alive[s];
    const int own = hf_place(b, b->own);
    const int has_own = mask[own >> 4] >> (own & 15) & 1;
    mask[own >> 4] &= (uint16_t)~(1u << (own & 15));
    const __m512i masks = _mm512_loadu_si512(mask);
    __m512i low = _mm512_set1_epi32(-1), high = _mm512_setzero_si512();
    int64_t n_keys = 0;
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 here = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1);
        const __m512i at = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(place + i)));
        const __m512i bits = _mm512_srlv_epi32(
            _mm512_and_si512(_mm512_permutexvar_epi16(_mm512_srli_epi32(at, 4), masks), _mm512_set1_epi32(0xffff)),
            _mm512_and_si512(at, _mm512_set1_epi32(15))
        );
        const __mmask16 taken = _mm512_mask_test_epi32_mask(here, bits, _mm512_set1_epi32(1));
        if (!taken) continue;
        const __m512i code = hf_codes_at(t, _mm512_maskz_loadu_epi32(here, (const uint32_t *)value + i));
        low = _mm512_mask_min_epu32(low, taken, low, code);
        high = _mm512_mask_max_epu32(high, taken, high, code);
        const __m512i payload = _mm512_maskz_loadu_epi32(here, slot + i);
        const __m512i some = _mm512_maskz_compress_epi32(taken, code), with = _mm512_maskz_compress_epi32(taken, payload);
        const __m512i first = _mm512_or_si512(
            _mm512_slli_epi64(_mm512_cvtepu32_epi64(_mm512_castsi512_si256(some)), 32),
            _mm512_cvtepu32_epi64(_mm512_castsi512_si256(with))
        );
        const __m512i second = _mm512_or_si512(
            _mm512_slli_epi64(_mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(some, 1)), 32),
            _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(with, 1))
        );
        const int n_taken = __builtin_popcount(taken);
        const uint32_t lanes = (1u << n_taken) - 1;
        _mm512_mask_storeu_epi64(key + n_keys, (__mmask8)lanes, first);
        if (n_taken > 8) _mm512_mask_storeu_epi64(key + n_keys + 8, (__mmask8)(lanes >> 8), second);
        n_keys += n_taken;
    }
    *lowest = _mm512_reduce_min_epu32(low);
    *highest = _mm512_reduce_max_epu32(high);
    if (has_own) {
        const uint32_t code = t->whole ? (uint32_t)b->often ^ 1u << 31 : hf_ordered_32(b->usual);
        *lowest = code < *lowest ? code : *lowest;
        *highest = code > *highest ? code : *highest;
        key[n_keys++] = (uint64_t)code << 32;
    }
    return n_keys;
}

/* The best cut of the buckets in which a cut may be better than `best`: their values are sorted and swept. */
HF_AVX512_CODE static void hf_sweep_buckets(
    const hf_task *t, hf_workspace *r, const void *value, int64_t n, const hf_bins *bins, const hf_buckets *b,
    const __mmask16 *alive, hf_cut *best
) {
    const uint32_t *before = (const uint32_t *)bins->count;
    uint64_t *key = r->key;
    uint32_t left[HF_MOST_BINNED], lowest, highest;
    const int64_t n_keys = hf_collect(t, value, n, b, r->bucket, r->slot, alive, key, &lowest, &highest);
    key = hf_sort_codes_64(key, r->key2, n_keys, lowest, highest);
    uint32_t left_square = 0, right_square = 0, left_weight = 0;
    int bucket = -2, next = hf_bucket_of(t, b, (uint32_t)(key[0] >> 32));
    for (int64_t i = 0; i < n_keys; ++i) {
        if (next != bucket) {
            /* Sums of what lies before the bucket, and of its own value with it; those of the one just left are at hand. */
            const int known = next == b->own ? next + 1 : next;
            if (known != bucket + 1 || !known) {
                const int at = known ? hf_place(b, known - 1) : 0;
                for (int64_t k = 0; k < bins->n_present; ++k) left[k] = known ? before[k * 16 * HF_MOST_STEPS + at] : 0;
                left_square = known ? ((const uint32_t *)bins->left_square)[at] : 0;
                left_weight = known ? ((const uint32_t *)bins->left_weight)[at] : 0;
                right_square = known ? ((const uint32_t *)bins->right_square)[at] : bins->square;
            }
            bucket = next;
        }
        if (bucket != b->own) {
            const uint32_t k = (uint32_t)key[i] >> 24, w = (uint32_t)key[i] & 0xffff, had = left[k];
            left_square += w * (2 * had + w);
            right_square -= w * (2 * (bins->total[k] - had) - w);
            left[k] = had + w;
            left_weight += w;
        }
        const uint32_t low = (uint32_t)(key[i] >> 32);
        if (i + 1 < n_keys) {
            const uint32_t high = (uint32_t)(key[i + 1] >> 32);
            if (low == high) continue;
            next = hf_bucket_of(t, b, high);
        }
        if (left_weight == bins->weight) continue;
        const double score = (double)left_square / (double)left_weight +
                             (double)right_square / (double)(bins->weight - left_weight);
        if (!(score > best->score)) continue;
        best->score = score;
        best->low = low;
    }
}

/* The best of the cuts behind buckets of one value each. */
HF_AVX512_CODE static void hf_judge_buckets(const hf_bins *bins, const hf_buckets *b, float limit, hf_cut *best) {
    const uint32_t *weight = (const uint32_t *)bins->left_weight;
    const uint32_t *left = (const uint32_t *)bins->left_square, *right = (const uint32_t *)bins->right_square;
    const float *rate = (const float *)bins->rate;
    for (int c = 0; c < 16 * b->n_steps; ++c) {
        const int i = hf_place(b, c);
        if (!(rate[i] >= limit && rate[i] > 0)) continue;
        const double score =
            (double)left[i] / (double)weight[i] + (double)right[i] / (double)(bins->weight - weight[i]);
        if (!(score > best->score)) continue;
        best->score = score;
        best->low = ((uint32_t)b->lowest ^ 1u << 31) + (uint32_t)c;
    }
}

static int hf_is_bucketed(const hf_task *t, const hf_workspace *r, int64_t n, double weight) {
    return t->path == HF_PATH_AVX512 && r->kind == HF_INT64_KEYS && (t->single || t->whole) && t->min_leaf == 1 &&
           n > HF_MOST_SORTED && weight < HF_BINNED_WEIGHT;
}

/* Numbers the classes of a node; 0 if they are too many. */
HF_AVX512_CODE static int hf_start_buckets(
    const hf_task *t, hf_workspace *r, const hf_pending *node, double weight, hf_bins *bins
) {
    uint32_t *number = r->count_left;
    const uint32_t *payload = r->payload + node->first;
    bins->n_present = 0, bins->weight = (uint32_t)weight, bins->square = 0;
    for (int64_t k = 0; k < t->n_outputs; ++k) {
        if (!r->count[k]) continue;
        if (bins->n_present == HF_MOST_BINNED) return 0;
        bins->total[bins->n_present] = r->count[k];
        bins->square += r->count[k] * r->count[k];
        number[k] = (uint32_t)(bins->n_present++ * (16 * HF_MOST_STEPS));
    }
    for (int64_t i = 0; i < node->last - node->first; ++i)
        r->slot[i] = number[payload[i] >> 16] << 16 | (payload[i] & 0xffff);
    return 1;
}

/* Takes the best cut of the values in r->projected where it is better than `best`; 0 if no buckets part them. */
HF_AVX512_CODE static int hf_cut_buckets(
    const hf_task *t, hf_workspace *r, const hf_pending *node, hf_bins *bins, hf_cut *best
) {
    const void *value = r->projected;
    const double score = best->score;
    const int64_t n = node->last - node->first;
    hf_buckets b;
    __m512i inside[HF_MOST_STEPS], more[HF_MOST_STEPS];
    __mmask16 alive[HF_MOST_STEPS];
    const int parted = hf_lay_buckets(t, value, n, &b);
    if (parted <= 0) return parted == 0;
    const int own = hf_place(&b, b.own);
    const int64_t n_others = hf_fill_buckets(t, value, n, &b, r->slot, r->bucket, (uint32_t *)r->key2);
    hf_count_buckets(bins, &b, (uint32_t *)r->key2, n_others);
    float limit = b.exact ? hf_add_buckets(1, bins, b.n_steps, own, inside, more)
                          : hf_add_buckets(0, bins, b.n_steps, own, inside, more);
    if (best->score * HF_BELOW > limit) limit = (float)(best->score * HF_BELOW);
    if (b.exact)
        hf_judge_buckets(bins, &b, limit, best);
    else if (hf_find_alive(bins, &b, inside, more, limit, alive))
        hf_sweep_buckets(t, r, value, n, bins, &b, alive, best);
    if (best->score > score) {
        best->below = hf_value_at(t, best->low);
        best->above = hf_value_at(t, hf_code_above(t, value, n, best->low));
    }
    return 1;
}
#endif

#endif
