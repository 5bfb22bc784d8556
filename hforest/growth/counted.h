/* Nodes of many samples, codes of 8 bits. The weights of four candidates at a time are counted by class and code, and all
   their cuts rated by vectors: of each candidate a vector has four codes, n_steps apart, so that sums over lower codes are
   sums over earlier vectors, and over lower lanes. All sums are the integers of hf_sweep. */
#ifndef HFOREST_GROWTH_COUNTED_H
#define HFOREST_GROWTH_COUNTED_H
#include "growth/bins.h"

#if HF_X86

enum {
    HF_COUNTED = 4,        /* candidates that are counted together */
    HF_COUNTED_STEPS = 64, /* 256 codes in four lanes */
    HF_TILED = 16,         /* candidates that are read at a time, */
    HF_MOST_TILED = 512    /* and samples, so that their codes stay in L1 */
};

typedef struct {
    uint16_t count[HF_MOST_BINNED * HF_COUNTED_STEPS][16]; /* by class, then step */
    __m512i left[HF_MOST_BINNED];
    __m512i left_square[HF_COUNTED_STEPS], right_square[HF_COUNTED_STEPS], left_weight[HF_COUNTED_STEPS];
    __m512 rate[HF_COUNTED_STEPS];
    uint8_t tile[HF_MOST_TILED][HF_TILED]; /* codes of candidates */
    uint16_t place[256];               /* of a code of the first candidate, those of the others follow */
    uint32_t total[HF_MOST_BINNED];
    int64_t n, n_present;
    int n_steps, log_steps;
    uint32_t weight, square;
    const uint16_t *slot;  /* where the counts of a sample's class begin */
    const uint8_t *weights;
} hf_counts;

/* Codes of candidates at the node's samples; in which lanes they differ. */
HF_AVX512_CODE static uint32_t hf_fill_tile(
    const hf_task *t, const uint32_t *sample, const uint32_t *column, int n_lanes, hf_counts *counts
) {
    int64_t place[HF_TILED];
    for (int lane = 0; lane < n_lanes; ++lane) place[lane] = hf_place_in_row(t, column[lane]);
    for (int64_t i = 0; i < counts->n; ++i) {
        const uint8_t *row = hf_row(t, sample[i]);
        for (int lane = 0; lane < n_lanes; ++lane) counts->tile[i][lane] = row[place[lane]];
    }
    const __m128i first = _mm_loadu_si128((const __m128i *)counts->tile[0]);
    uint32_t varies = 0;
    for (int64_t i = 1; i < counts->n; ++i)
        varies |= _mm_cmpneq_epi8_mask(_mm_loadu_si128((const __m128i *)counts->tile[i]), first);
    return varies & ((1u << n_lanes) - 1);
}

/* Counts four candidates: their codes of sample i are HF_TILED * i bytes behind `code`, or sample[i] where that is given. A
   function of its own, so that all it reads and writes stays in registers. */
HF_APART static void hf_count_codes(
    hf_counts *counts, const uint8_t *const *code, const uint32_t *sample
) {
    const uint16_t *place = counts->place, *slot = counts->slot;
    const uint8_t *weights = counts->weights, *a = code[0], *b = code[1], *c = code[2], *d = code[3];
    const int64_t n = counts->n;
    uint16_t *count = counts->count[0];
    memset(count, 0, counts->n_present * counts->n_steps * sizeof counts->count[0]);
    if (sample)
        for (int64_t i = 0; i < n; ++i) {
            uint16_t *to = count + slot[i];
            const uint16_t w = weights[i];
            const int64_t at = sample[i];
            to[place[a[at]]] += w;
            to[place[b[at]] + 1] += w;
            to[place[c[at]] + 2] += w;
            to[place[d[at]] + 3] += w;
        }
    else
        for (int64_t i = 0; i < n; ++i) {
            uint16_t *to = count + slot[i];
            const uint16_t w = weights[i];
            to[place[a[HF_TILED * i]]] += w;
            to[place[b[HF_TILED * i]] + 1] += w;
            to[place[c[HF_TILED * i]] + 2] += w;
            to[place[d[HF_TILED * i]] + 3] += w;
        }
}

/* Sums over the lanes of the same candidate below each. */
HF_AVX512_CODE HF_INLINE __m512i hf_sums_below_four(__m512i a) {
    const __m512i zero = _mm512_setzero_si512();
    a = _mm512_alignr_epi32(a, zero, 12);
    a = _mm512_add_epi32(a, _mm512_alignr_epi32(a, zero, 12));
    return _mm512_add_epi32(a, _mm512_alignr_epi32(a, zero, 8));
}

/* Rates all cuts of the candidates counted; the best rates of lanes, in float32. */
HF_AVX512_CODE static __m512 hf_rate_codes(hf_counts *counts) {
    const int n_steps = counts->n_steps;
    __m512i left_weight = _mm512_setzero_si512();
    for (int64_t k = 0; k < counts->n_present; ++k) {
        const uint16_t(*count)[16] = counts->count + k * n_steps;
        __m512i sum = _mm512_setzero_si512();
        for (int s = 0; s < n_steps; s += 2) sum = _mm512_add_epi16(sum, _mm512_loadu_si512(count[s]));
        sum = _mm512_add_epi32(
            _mm512_cvtepu16_epi32(_mm512_castsi512_si256(sum)), _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(sum, 1))
        );
        counts->left[k] = hf_sums_below_four(sum);
        left_weight = _mm512_add_epi32(left_weight, counts->left[k]);
    }
    const __m512i weight = _mm512_set1_epi32((int32_t)counts->weight), all = _mm512_set1_epi32((int32_t)counts->square);
    __m512 most = _mm512_setzero_ps();
    for (int first = 0; first < n_steps; first += 4) {
        __m512i square[4], product[4], sum[4];
        for (int s = 0; s < 4; ++s) square[s] = product[s] = sum[s] = _mm512_setzero_si512();
        for (int64_t k = 0; k < counts->n_present; ++k) {
            const __m256i *count = (const __m256i *)counts->count[k * n_steps + first];
            const __m512i total = _mm512_set1_epi32((int32_t)counts->total[k]);
            __m512i left = counts->left[k];
            for (int s = 0; s < 4; ++s) {
                const __m512i some = _mm512_cvtepu16_epi32(_mm256_loadu_si256(count + s));
                left = _mm512_add_epi32(left, some);
                sum[s] = _mm512_add_epi32(sum[s], some);
                square[s] = _mm512_add_epi32(square[s], _mm512_madd_epi16(left, left));
                product[s] = _mm512_add_epi32(product[s], _mm512_madd_epi16(left, total));
            }
            counts->left[k] = left;
        }
        for (int s = 0; s < 4; ++s) {
            left_weight = _mm512_add_epi32(left_weight, sum[s]);
            const __m512i right_weight = _mm512_sub_epi32(weight, left_weight);
            /* (T - l)**2 = T**2 - 2 T l + l**2 */
            const __m512i right_square =
                _mm512_add_epi32(_mm512_sub_epi32(all, _mm512_slli_epi32(product[s], 1)), square[s]);
            const __mmask16 cut = _mm512_test_epi32_mask(sum[s], sum[s]) & _mm512_test_epi32_mask(right_weight, right_weight);
            const __m512 left_rate =
                _mm512_mul_ps(_mm512_cvtepi32_ps(square[s]), _mm512_rcp14_ps(_mm512_cvtepi32_ps(left_weight)));
            const __m512 rate = _mm512_maskz_add_ps(
                cut, left_rate,
                _mm512_mul_ps(_mm512_cvtepi32_ps(right_square), _mm512_rcp14_ps(_mm512_cvtepi32_ps(right_weight)))
            );
            counts->left_square[first + s] = square[s];
            counts->right_square[first + s] = right_square;
            counts->left_weight[first + s] = left_weight;
            counts->rate[first + s] = rate;
            most = _mm512_max_ps(most, rate);
        }
    }
    return most;
}

/* Takes the best cut of the candidates counted, of which n_lanes are to be looked at, where it is better than `best`. */
HF_AVX512_CODE static void hf_judge_codes(hf_counts *counts, const uint32_t *column, int n_lanes, hf_cut *best) {
    const __mmask16 used = (__mmask16)(((1u << n_lanes) - 1) * 0x1111u);
    const __m512 most = hf_rate_codes(counts);
    const uint32_t *weight = (const uint32_t *)counts->left_weight;
    const uint32_t *left = (const uint32_t *)counts->left_square, *right = (const uint32_t *)counts->right_square;
    float limit = best->score > 0 ? (float)best->score * HF_NEAR : 0.0f;
    if (!_mm512_mask_cmp_ps_mask(used, most, _mm512_set1_ps(limit), _CMP_GT_OQ)) return;
    const float near = _mm512_mask_reduce_max_ps(used, most) * HF_NEAR;
    if (near > limit) limit = near;
    int found = -1; /* the best candidate, and which step and lane its cut is */
    int64_t cut = 0;
    for (int s = 0; s < counts->n_steps; ++s) {
        uint32_t lanes = _mm512_mask_cmp_ps_mask(used, counts->rate[s], _mm512_set1_ps(limit), _CMP_GE_OQ);
        for (; lanes; lanes &= lanes - 1) {
            const int at = __builtin_ctz(lanes), candidate = at % HF_COUNTED;
            const int64_t i = 16 * s + at;
            const uint32_t low = (uint32_t)((at / HF_COUNTED << counts->log_steps) + s);
            const double score =
                (double)left[i] / (double)weight[i] + (double)right[i] / (double)(counts->weight - weight[i]);
            /* Of equal scores the first drawn, and its lowest cut. */
            if (score < best->score) continue;
            if (score == best->score && (found < candidate || (found == candidate && low > best->low))) continue;
            best->score = score;
            best->column = column[candidate];
            best->low = low;
            found = candidate;
            cut = i;
        }
    }
    if (found < 0) return;
    /* Codes that no sample has add nothing to the weight on the left. */
    best->high = best->low + 1;
    while (weight[counts->place[best->high] + found] == weight[cut]) ++best->high;
}

static int hf_is_counted(const hf_task *t, const hf_workspace *r, double weight) {
    return hf_has_bytes(t, r) && weight < HF_BINNED_WEIGHT;
}

/* As hf_best_of_few. */
HF_AVX512_CODE static int hf_best_of_counted(
    const hf_task *t, hf_workspace *r, const hf_pending *node, int64_t n_drawn, double weight, hf_cut *best
) {
    hf_counts counts __attribute__((aligned(64)));
    uint32_t number[256];
    const int64_t n = node->last - node->first;
    const uint32_t *sample = r->sample + node->first, *payload = r->payload + node->first;
    /* What sorting would take: n numbers of 32 bits each. */
    uint16_t *slot = (uint16_t *)r->key;
    uint8_t *weights = (uint8_t *)r->key2;
    counts.n = n, counts.n_present = 0, counts.weight = (uint32_t)weight, counts.square = 0;
    counts.slot = slot, counts.weights = weights;
    for (counts.log_steps = 2; t->n_codes > 4 << counts.log_steps;) ++counts.log_steps;
    counts.n_steps = 1 << counts.log_steps;
    if (counts.n_steps > HF_COUNTED_STEPS) return 0;
    for (int64_t k = 0; k < t->n_outputs; ++k) {
        if (!r->count[k]) continue;
        if (counts.n_present == HF_MOST_BINNED) return 0;
        counts.total[counts.n_present] = r->count[k];
        counts.square += r->count[k] * r->count[k];
        number[k] = (uint32_t)(counts.n_present++ * counts.n_steps * 16);
    }
    for (int c = 0; c < 256; ++c)
        counts.place[c] = (uint16_t)((c & (counts.n_steps - 1)) * 16 + (c >> counts.log_steps) % 4 * HF_COUNTED);
    for (int64_t i = 0; i < n; ++i) {
        slot[i] = (uint16_t)number[payload[i] >> 8];
        weights[i] = (uint8_t)payload[i];
    }
    int64_t n_steps = 0;
    for (int64_t first = 0; first < n_drawn; first += HF_TILED) {
        if (hf_stopped_after(t->watch, &n_steps, n * HF_TILED)) return 1;
        const int n_lanes = n_drawn - first < HF_TILED ? (int)(n_drawn - first) : HF_TILED;
        const int by_rows = n <= HF_MOST_TILED && hf_is_by_rows(t, n);
        uint32_t varies = (1u << n_lanes) - 1;
        if (by_rows) varies = hf_fill_tile(t, sample, r->column + first, n_lanes, &counts);
        while (varies) {
            uint32_t column[HF_COUNTED];
            const uint8_t *code[HF_COUNTED];
            int n_counted = 0;
            for (; varies && n_counted < HF_COUNTED; varies &= varies - 1) {
                const int lane = __builtin_ctz(varies);
                column[n_counted] = r->column[first + lane];
                code[n_counted++] = by_rows ? counts.tile[0] + lane
                                            : (const uint8_t *)t->codes + hf_codes(t, r->column[first + lane]);
            }
            for (int i = n_counted; i < HF_COUNTED; ++i) code[i] = code[0];
            hf_count_codes(&counts, code, by_rows ? NULL : sample);
            hf_judge_codes(&counts, column, n_counted, best);
            if (hf_is_perfect(r, best->score, weight)) return 1;
        }
    }
    return 1;
}
#endif

#endif
