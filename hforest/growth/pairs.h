/* Nodes of up to 128 samples, codes of 8 bits: every cut beside every sample, nothing sorted or counted. A lane of a
   vector is a candidate's cut behind the code of one sample, and holds the weight on its left; a sample adds its own to
   the cuts that do not lie below it. Samples come class by class, so that what a class added is squared once. Sums are
   those of hf_sweep, modulo 2**16, which no square reaches. Rates are first taken in float32, as in few.h. */
#ifndef HFOREST_GROWTH_PAIRS_H
#define HFOREST_GROWTH_PAIRS_H
#include "growth/task.h"

#if HF_X86

enum {
    HF_MOST_PAIRED = 128, /* samples up to which this beats counting 256 codes, */
    HF_FEWER = 24,        /* and few codes */
    HF_PAIRED_DRAWS = 16, /* candidates that are read at a time */
    HF_ABREAST = 2        /* vectors that are summed up at a time */
};

/* Squares of weights below this fit in 16 bits. */
#define HF_PAIRED_WEIGHT 256.0

typedef struct {
    /* Codes of candidates, `per` of them side by side: of the first at sample i they are tile[i * per]. */
    uint8_t tile[HF_PAIRED_DRAWS * HF_MOST_PAIRED];
    uint8_t won[HF_MOST_PAIRED]; /* where the best candidate is, */
    int won_lane;
    int64_t won_place;            /* and its place among those drawn */
    uint16_t left_square[64], right_square[64];
    uint8_t left_weight[64];
    float rate[64];
    uint32_t weights[HF_MOST_PAIRED];    /* of a sample, four times */
    uint64_t members[HF_MOST_PAIRED][2]; /* of a class: its samples up to 63, and from 64 on */
    uint32_t total[HF_MOST_PAIRED];
    int64_t n, n_present, size; /* size: bytes of codes of candidates side by side, a multiple of 64 */
    uint32_t weight, square;
} hf_pairs;

/* Samples by class. */
HF_AVX512_CODE static void hf_start_pairs(
    const hf_workspace *r, const uint32_t *payload, int64_t n, double weight, hf_pairs *pairs
) {
    uint8_t label[HF_MOST_PAIRED] __attribute__((aligned(64)));
    pairs->n = n, pairs->n_present = 0, pairs->weight = (uint32_t)weight, pairs->square = 0;
    pairs->won_place = INT64_MAX;
    for (int64_t i = 0; i < n; ++i) {
        label[i] = (uint8_t)(payload[i] >> 8);
        pairs->weights[i] = (payload[i] & 0xff) * 0x01010101u;
    }
    const __m512i low = _mm512_load_si512(label), high = _mm512_load_si512(label + 64);
    uint64_t left = ~UINT64_C(0) >> (n < 64 ? 64 - n : 0), left2 = n > 64 ? ~UINT64_C(0) >> (128 - n) : 0;
    while (left | left2) {
        const uint32_t k = left ? label[__builtin_ctzll(left)] : label[64 + __builtin_ctzll(left2)], total = r->count[k];
        uint64_t *members = pairs->members[pairs->n_present];
        members[0] = _mm512_cmpeq_epi8_mask(low, _mm512_set1_epi8((char)k)) & left;
        members[1] = _mm512_cmpeq_epi8_mask(high, _mm512_set1_epi8((char)k)) & left2;
        left ^= members[0];
        left2 ^= members[1];
        pairs->total[pairs->n_present++] = total;
        pairs->square += total * total;
    }
}

/* Reads the codes of candidates at `place` in the samples' rows. */
HF_AVX512_CODE HF_INLINE void hf_fill_pairs(
    int per, const hf_task *t, const uint32_t *sample, const int64_t *place, int n_lanes, hf_pairs *pairs
) {
    for (int64_t i = 0; i < pairs->n; ++i) {
        const uint8_t *row = hf_row(t, sample[i]);
        uint8_t *to = pairs->tile + i * per;
        for (int lane = 0; lane < n_lanes; lane += per, to += pairs->size)
            for (int l = 0; l < per; ++l) to[l] = row[place[lane + l]];
    }
}

/* All lanes' codes of the sample whose codes begin at `code`. */
HF_AVX512_CODE HF_INLINE __m512i hf_spread(int per, const uint8_t *code) {
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    switch (per) {
    case 1: return _mm512_set1_epi8((char)*code);
    case 2: memcpy(&two, code, 2); return _mm512_set1_epi16((short)two);
    case 4: memcpy(&four, code, 4); return _mm512_set1_epi32((int)four);
    case 8: memcpy(&eight, code, 8); return _mm512_set1_epi64((long long)eight);
    default: return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)code));
    }
}

/* Whether any candidate of a vector varies. */
HF_AVX512_CODE HF_INLINE int hf_some_vary(int per, const hf_pairs *pairs, const uint8_t *tile) {
    const __m512i first = hf_spread(per, tile);
    uint64_t differ = 0;
    for (int64_t at = 0, n = pairs->n * per; at < n; at += 64) {
        const uint64_t here = n - at < 64 ? ~UINT64_C(0) >> (64 - (n - at)) : ~UINT64_C(0);
        differ |= _mm512_cmpneq_epi8_mask(_mm512_loadu_si512(tile + at), first) & here;
    }
    return differ != 0;
}

/* Sums of cuts. */
typedef struct {
    __m512i weight, square[2], product[2]; /* of lanes 0 to 31, and of the others: 32 to 63 if `wide` */
} hf_sides;

/* Sums of the cuts of n_vectors vectors, the codes of whose candidates begin at `tile`, their own at `code`. */
HF_AVX512_CODE HF_INLINE void hf_add_pairs(
    int per, int wide, int n_vectors, const uint8_t *const *tile, const uint8_t *const *code, const hf_pairs *pairs,
    hf_sides *sides
) {
    const __m512i zero = _mm512_setzero_si512();
    __m512i cut[HF_ABREAST], left[HF_ABREAST], before[HF_ABREAST];
    for (int v = 0; v < n_vectors; ++v) {
        cut[v] = _mm512_loadu_si512(code[v]);
        left[v] = sides[v].square[0] = sides[v].square[1] = sides[v].product[0] = sides[v].product[1] = zero;
    }
    for (int64_t k = 0; k < pairs->n_present; ++k) {
        const __m512i total = _mm512_set1_epi16((short)pairs->total[k]);
        for (int v = 0; v < n_vectors; ++v) before[v] = left[v];
        for (int half = 0; half <= (per == 1); ++half)
            for (uint64_t members = pairs->members[k][half]; members; members &= members - 1) {
                const int i = 64 * half + __builtin_ctzll(members);
                const __m512i weight = _mm512_set1_epi32((int)pairs->weights[i]);
                for (int v = 0; v < n_vectors; ++v) {
                    const __mmask64 on_left = _mm512_cmpge_epu8_mask(cut[v], hf_spread(per, tile[v] + i * per));
                    left[v] = _mm512_mask_add_epi8(left[v], on_left, left[v], weight);
                }
            }
        for (int v = 0; v < n_vectors; ++v) {
            const __m512i of_class = _mm512_sub_epi8(left[v], before[v]);
            for (int h = 0; h <= wide; ++h) {
                const __m512i l = _mm512_cvtepu8_epi16(
                    h ? _mm512_extracti64x4_epi64(of_class, 1) : _mm512_castsi512_si256(of_class)
                );
                sides[v].square[h] = _mm512_add_epi16(sides[v].square[h], _mm512_mullo_epi16(l, l));
                sides[v].product[h] = _mm512_add_epi16(sides[v].product[h], _mm512_mullo_epi16(l, total));
            }
        }
    }
    for (int v = 0; v < n_vectors; ++v) sides[v].weight = left[v];
}

/* Takes the best cut of a vector of n_lanes lanes with codes `code` where it is better than `best`. `column` are its
   candidates, `first` is the place of the first among all drawn; `tile` is where they begin. */
HF_AVX512_CODE HF_INLINE void hf_judge_pairs(
    int per, int wide, const uint8_t *tile, const uint8_t *code, const hf_sides *sides, int n_lanes,
    const uint32_t *column, int64_t first, hf_pairs *pairs, hf_cut *best
) {
    const __m512i weight = _mm512_set1_epi32((int)pairs->weight), all = _mm512_set1_epi16((short)pairs->square);
    _mm512_storeu_si512(pairs->left_weight, sides->weight);
    for (int h = 0; h <= wide; ++h) {
        /* (T - l)**2 = T**2 - 2 T l + l**2 */
        const __m512i twice = _mm512_add_epi16(sides->product[h], sides->product[h]);
        _mm512_storeu_si512(pairs->left_square + 32 * h, sides->square[h]);
        _mm512_storeu_si512(
            pairs->right_square + 32 * h, _mm512_add_epi16(_mm512_sub_epi16(all, twice), sides->square[h])
        );
    }
    float limit = best->score > 0 ? (float)best->score * HF_NEAR : 0.0f;
    __m512 most = _mm512_setzero_ps();
    for (int at = 0; at < n_lanes; at += 16) {
        const __mmask16 here = n_lanes - at >= 16 ? 0xffff : (__mmask16)((1u << (n_lanes - at)) - 1);
        const __m512i left_weight = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(pairs->left_weight + at)));
        const __m512i left = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(pairs->left_square + at)));
        const __m512i right = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(pairs->right_square + at)));
        const __mmask16 cut = _mm512_mask_cmpneq_epi32_mask(here, left_weight, weight);
        const __m512 rate = _mm512_maskz_add_ps(
            cut, _mm512_mul_ps(_mm512_cvtepi32_ps(left), _mm512_rcp14_ps(_mm512_cvtepi32_ps(left_weight))),
            _mm512_mul_ps(
                _mm512_cvtepi32_ps(right), _mm512_rcp14_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(weight, left_weight)))
            )
        );
        _mm512_storeu_ps(pairs->rate + at, rate);
        most = _mm512_max_ps(most, rate);
    }
    if (!_mm512_cmp_ps_mask(most, _mm512_set1_ps(limit), _CMP_GT_OQ)) return;
    const float near = _mm512_reduce_max_ps(most) * HF_NEAR;
    if (near > limit) limit = near;
    int better = 0;
    for (int at = 0; at < n_lanes; at += 16) {
        uint32_t found = _mm512_cmp_ps_mask(_mm512_loadu_ps(pairs->rate + at), _mm512_set1_ps(limit), _CMP_GE_OQ);
        for (; found; found &= found - 1) {
            const int lane = at + __builtin_ctz(found);
            const uint32_t left_weight = pairs->left_weight[lane], low = code[lane];
            const int64_t place = first + lane % per;
            const double score = (double)pairs->left_square[lane] / (double)left_weight +
                                 (double)pairs->right_square[lane] / (double)(pairs->weight - left_weight);
            /* Of equal scores the first drawn, and its lowest cut. */
            if (score < best->score) continue;
            if (score == best->score && (place > pairs->won_place || (place == pairs->won_place && low >= best->low))) continue;
            best->score = score;
            best->column = column[lane % per];
            best->low = low;
            pairs->won_place = place;
            pairs->won_lane = lane % per;
            better = 1;
        }
    }
    for (int64_t at = 0; better && at < pairs->size; at += 64)
        _mm512_storeu_si512(pairs->won + at, _mm512_loadu_si512(tile + at));
}

/* Draws candidates and takes the best cut of them, `per` candidates to a vector. */
HF_AVX512_CODE HF_INLINE void hf_try_pairs(
    int per, int wide, const hf_task *t, hf_workspace *r, const uint32_t *sample, uint64_t key, hf_pairs *pairs,
    int64_t *n_drawn, hf_draw *draw, hf_cut *best
) {
    const int64_t size = (pairs->n * per + 63) / 64 * 64;
    pairs->size = size;
    while (*n_drawn < t->n_drawn) {
        const int64_t first = *n_drawn, n = t->n_drawn - first < HF_PAIRED_DRAWS ? t->n_drawn - first : HF_PAIRED_DRAWS;
        int64_t place[HF_PAIRED_DRAWS];
        for (; *n_drawn < first + n; ++*n_drawn)
            place[*n_drawn - first] = hf_place_in_row(t, hf_draw_column(t, r, key, *n_drawn, draw));
        /* The last vector is filled up with the first candidate again, which is never better than itself. */
        const int n_lanes = (int)((n + per - 1) / per * per);
        for (int lane = (int)n; lane < n_lanes; ++lane) place[lane] = place[0];
        hf_fill_pairs(per, t, sample, place, n_lanes, pairs);
        const uint8_t *tile[HF_PAIRED_DRAWS * HF_MOST_PAIRED / 64], *code[HF_PAIRED_DRAWS * HF_MOST_PAIRED / 64];
        int lane_of[HF_PAIRED_DRAWS * HF_MOST_PAIRED / 64], n_vectors = 0;
        for (int lane = 0; lane < n_lanes; lane += per) {
            const uint8_t *from = pairs->tile + lane / per * size;
            if (per <= 2 && !hf_some_vary(per, pairs, from)) continue;
            for (int64_t at = 0; at < size; at += 64, ++n_vectors)
                tile[n_vectors] = from, code[n_vectors] = from + at, lane_of[n_vectors] = lane;
        }
        for (int v = 0; v < n_vectors; v += HF_ABREAST) {
            hf_sides sides[HF_ABREAST];
            const int n_abreast = n_vectors - v < HF_ABREAST ? n_vectors - v : HF_ABREAST;
            if (n_abreast == HF_ABREAST) hf_add_pairs(per, wide, HF_ABREAST, tile + v, code + v, pairs, sides);
            else hf_add_pairs(per, wide, 1, tile + v, code + v, pairs, sides);
            for (int a = 0; a < n_abreast; ++a) {
                const int64_t rest = pairs->n * per - (code[v + a] - tile[v + a]);
                const int lane = lane_of[v + a];
                hf_judge_pairs(
                    per, wide, tile[v + a], code[v + a], sides + a, rest < 64 ? (int)rest : 64, r->column + first + lane,
                    first + lane, pairs, best
                );
            }
            if (hf_is_perfect(r, best->score, pairs->weight)) return;
        }
    }
}

/* The least code of the best candidate above its cut; `per` as it was tried. */
HF_AVX512_CODE static uint32_t hf_next_code(const hf_pairs *pairs, int per, uint32_t low) {
    const uint64_t candidate = ~UINT64_C(0) / ((UINT64_C(1) << per) - 1) << pairs->won_lane;
    __m512i least = _mm512_set1_epi8(-1);
    for (int64_t at = 0, n = pairs->n * per; at < n; at += 64) {
        const __m512i code = _mm512_loadu_si512(pairs->won + at);
        const uint64_t here = n - at < 64 ? candidate & ~UINT64_C(0) >> (64 - (n - at)) : candidate;
        const __mmask64 above = _mm512_mask_cmpgt_epu8_mask(here, code, _mm512_set1_epi8((char)low));
        least = _mm512_mask_min_epu8(least, above, least, code);
    }
    const __m256i half = _mm256_min_epu8(_mm512_castsi512_si256(least), _mm512_extracti64x4_epi64(least, 1));
    const __m128i quarter = _mm_min_epu8(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    return (uint32_t)_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_min_epu8(quarter, _mm_srli_epi16(quarter, 8)))) & 0xff;
}

static int hf_is_paired(const hf_task *t, const hf_workspace *r, int64_t n, double weight) {
    return n <= HF_MOST_PAIRED && (n <= HF_FEWER || n <= t->n_codes / 2) && hf_has_bytes(t, r) && weight < HF_PAIRED_WEIGHT;
}

/* As hf_best_cut, which draws on where none of n_drawn candidates varies. */
HF_AVX512_CODE static void hf_best_of_pairs(
    const hf_task *t, hf_workspace *r, const hf_pending *node, uint64_t key, double weight, int64_t *n_drawn, hf_draw *draw,
    hf_cut *best
) {
    hf_pairs pairs __attribute__((aligned(64)));
    const int64_t n = node->last - node->first;
    const uint32_t *sample = r->sample + node->first;
    if (n == 2) {
        /* They are of two classes, and whatever parts them does so perfectly. */
        const uint8_t *a = hf_row(t, sample[0]), *b = hf_row(t, sample[1]);
        while (*n_drawn < t->n_drawn) {
            const uint32_t column = hf_draw_column(t, r, key, *n_drawn, draw);
            const int64_t at = hf_place_in_row(t, column);
            ++*n_drawn;
            if (a[at] == b[at]) continue;
            best->score = weight, best->column = column;
            best->low = a[at] < b[at] ? a[at] : b[at];
            best->high = a[at] < b[at] ? b[at] : a[at];
            return;
        }
        return;
    }
    hf_start_pairs(r, r->payload + node->first, n, weight, &pairs);
    const int per = n > 32 ? 1 : n > 16 ? 2 : n > 8 || t->n_drawn <= 4 ? 4 : n > 4 || t->n_drawn <= 8 ? 8 : 16;
    const int wide = n * per > 32;
    switch (2 * per + wide) {
    case 3: hf_try_pairs(1, 1, t, r, sample, key, &pairs, n_drawn, draw, best); break;
    case 5: hf_try_pairs(2, 1, t, r, sample, key, &pairs, n_drawn, draw, best); break;
    case 8: hf_try_pairs(4, 0, t, r, sample, key, &pairs, n_drawn, draw, best); break;
    case 9: hf_try_pairs(4, 1, t, r, sample, key, &pairs, n_drawn, draw, best); break;
    case 16: hf_try_pairs(8, 0, t, r, sample, key, &pairs, n_drawn, draw, best); break;
    case 17: hf_try_pairs(8, 1, t, r, sample, key, &pairs, n_drawn, draw, best); break;
    default: hf_try_pairs(16, 1, t, r, sample, key, &pairs, n_drawn, draw, best);
    }
    if (best->column >= 0) best->high = hf_next_code(&pairs, per, best->low);
}
#endif

#endif
