/* Nodes of many samples, codes of 8 bits. A candidate's weights are counted by class and code, and
   all cuts rated by vectors: lane l holds the codes from l * n_steps on, a vector one of them for each lane, so that
   sums over lower codes are sums over earlier vectors, and over lower lanes. All sums are the integers of hf_sweep. */
#ifndef HFOREST_GROWTH_BINS_H
#define HFOREST_GROWTH_BINS_H
#include "task.h"

#if HF_X86

enum {
    HF_MOST_BINNED = 32,   /* classes of a node, at most */
    HF_MOST_STEPS = 16,    /* 256 codes in 16 lanes */
    HF_MOST_BY_ROWS = 1024 /* samples up to which their rows, in L2, are cheaper than columns, in L3 */
};

/* Sums of weights below this have squares that a signed multiplication of 16 bits gives in full. */
#define HF_BINNED_WEIGHT 32768.0

typedef struct {
    __m512i count[HF_MOST_BINNED][HF_MOST_STEPS]; /* by class, then place of the code */
    __m512i left_square[HF_MOST_STEPS], right_square[HF_MOST_STEPS], left_weight[HF_MOST_STEPS];
    __m512 rate[HF_MOST_STEPS];
    uint8_t tile[HF_MOST_BY_ROWS][16]; /* codes of sixteen candidates */
    uint8_t place[256];                /* of a code: its vector, then its lane */
    uint32_t total[HF_MOST_BINNED];
    int64_t n_present;
    int n_steps;
    uint32_t weight, square; /* of the node, and of its classes together (buckets.h) */
} hf_bins;

/* Codes of sixteen candidates at the node's samples; in which lanes they differ. */
HF_AVX512_CODE static __mmask16 hf_fill_tile(
    const hf_task *t, const uint32_t *sample, int64_t n, const uint32_t *column, int n_lanes, hf_bins *bins
) {
    uint32_t place[16];
    for (int lane = 0; lane < 16; ++lane) place[lane] = column[lane < n_lanes ? lane : 0];
    const __m512i at = _mm512_loadu_si512(place);
    const char *rows = t->rows;
    const __m128i first = _mm512_cvtepi32_epi8(_mm512_i32gather_epi32(at, rows + sample[0] * t->n_columns, 1));
    __mmask16 varies = 0;
    for (int64_t i = 0; i < n; ++i) {
        const __m512i zero = _mm512_setzero_si512();
        const __m512i words = _mm512_mask_i32gather_epi32(zero, 0xffff, at, rows + sample[i] * t->n_columns, 1);
        const __m128i code = _mm512_cvtepi32_epi8(words);
        varies |= _mm_cmpneq_epi8_mask(code, first);
        _mm_storeu_si128((__m128i *)bins->tile[i], code);
    }
    return varies & (__mmask16)((1u << n_lanes) - 1);
}

/* Counts n samples: `slot` is where the codes of a sample's class begin. Its code is stride bytes behind the last one's,
   or where `sample` says. */
HF_AVX512_CODE static void hf_count_codes(
    hf_bins *bins, const uint16_t *slot, const uint8_t *weight, int64_t n, const uint8_t *code, int64_t stride,
    const uint32_t *sample
) {
    uint32_t *count = (uint32_t *)bins->count;
    for (int64_t k = 0; k < bins->n_present; ++k)
        for (int s = 0; s < bins->n_steps; ++s) bins->count[k][s] = _mm512_setzero_si512();
    if (sample)
        for (int64_t i = 0; i < n; ++i) count[slot[i] + bins->place[code[sample[i]]]] += weight[i];
    else
        for (int64_t i = 0; i < n; ++i) count[slot[i] + bins->place[code[i * stride]]] += weight[i];
}

/* Sums over the lanes below each. */
HF_AVX512_CODE HF_INLINE __m512i hf_sums_below(__m512i a) {
    const __m512i zero = _mm512_setzero_si512();
    a = _mm512_alignr_epi32(a, zero, 15);
    a = _mm512_add_epi32(a, _mm512_alignr_epi32(a, zero, 15));
    a = _mm512_add_epi32(a, _mm512_alignr_epi32(a, zero, 14));
    a = _mm512_add_epi32(a, _mm512_alignr_epi32(a, zero, 12));
    return _mm512_add_epi32(a, _mm512_alignr_epi32(a, zero, 8));
}

/* Rates all cuts of the codes counted; the best rate, in float32. */
HF_AVX512_CODE static float hf_rate_codes(hf_bins *bins) {
    __m512i some[HF_MOST_STEPS];
    for (int s = 0; s < bins->n_steps; ++s)
        bins->left_square[s] = bins->right_square[s] = bins->left_weight[s] = some[s] = _mm512_setzero_si512();
    for (int64_t k = 0; k < bins->n_present; ++k) {
        const __m512i *count = bins->count[k], total = _mm512_set1_epi32((int32_t)bins->total[k]);
        __m512i left = count[0];
        for (int s = 1; s < bins->n_steps; ++s) left = _mm512_add_epi32(left, count[s]);
        left = hf_sums_below(left);
        for (int s = 0; s < bins->n_steps; ++s) {
            some[s] = _mm512_or_si512(some[s], count[s]);
            left = _mm512_add_epi32(left, count[s]);
            const __m512i right = _mm512_sub_epi32(total, left);
            bins->left_weight[s] = _mm512_add_epi32(bins->left_weight[s], left);
            bins->left_square[s] = _mm512_add_epi32(bins->left_square[s], _mm512_madd_epi16(left, left));
            bins->right_square[s] = _mm512_add_epi32(bins->right_square[s], _mm512_madd_epi16(right, right));
        }
    }
    __m512 most = _mm512_setzero_ps();
    for (int s = 0; s < bins->n_steps; ++s) {
        const __m512i right_weight = _mm512_sub_epi32(_mm512_set1_epi32((int32_t)bins->weight), bins->left_weight[s]);
        const __mmask16 cut = _mm512_test_epi32_mask(some[s], some[s]) & _mm512_test_epi32_mask(right_weight, right_weight);
        const __m512 left = _mm512_cvtepi32_ps(bins->left_weight[s]), right = _mm512_cvtepi32_ps(right_weight);
        bins->rate[s] = _mm512_maskz_add_ps(
            cut, _mm512_mul_ps(_mm512_cvtepi32_ps(bins->left_square[s]), _mm512_rcp14_ps(left)),
            _mm512_mul_ps(_mm512_cvtepi32_ps(bins->right_square[s]), _mm512_rcp14_ps(right))
        );
        most = _mm512_max_ps(most, bins->rate[s]);
    }
    return _mm512_reduce_max_ps(most);
}

/* Takes the best cut of the candidate counted where it is better than `best`. */
HF_AVX512_CODE static void hf_judge_codes(hf_bins *bins, uint32_t column, hf_cut *best) {
    float limit = hf_rate_codes(bins);
    const float most = limit;
    if (best->score > limit) limit = (float)best->score;
    limit *= HF_NEAR;
    if (!(limit > 0) || !(most >= limit)) return;
    const uint32_t *weight = (const uint32_t *)bins->left_weight;
    const uint32_t *left = (const uint32_t *)bins->left_square, *right = (const uint32_t *)bins->right_square;
    const float *rate = (const float *)bins->rate;
    for (uint32_t c = 0; c < 16u * (uint32_t)bins->n_steps; ++c) {
        const int i = bins->place[c];
        if (!(rate[i] >= limit)) continue;
        const double score =
            (double)left[i] / (double)weight[i] + (double)right[i] / (double)(bins->weight - weight[i]);
        if (!(score > best->score)) continue;
        best->score = score;
        best->column = column;
        best->low = c;
        /* Codes that no sample has add nothing to the weight on the left. */
        uint32_t high = c + 1;
        while (weight[bins->place[high]] == weight[i]) ++high;
        best->high = high;
    }
}

static int hf_is_binned(const hf_task *t, const hf_room *r, double weight) {
    return t->path == HF_PATH_AVX512 && r->kind == HF_INT32_KEYS && !t->completely_random && t->rows && t->width == 1 &&
           t->min_leaf == 1 && weight < HF_BINNED_WEIGHT;
}

/* As hf_best_of_few. */
HF_AVX512_CODE static int hf_best_of_binned(
    const hf_task *t, hf_room *r, const hf_open *node, int64_t n_drawn, double weight, hf_cut *best
) {
    hf_bins bins __attribute__((aligned(64)));
    uint32_t number[256];
    const int64_t n = node->last - node->first;
    const uint32_t *sample = r->sample + node->first, *payload = (const uint32_t *)r->payload + node->first;
    /* What sorting would take: n numbers of 32 bits each. */
    uint16_t *slot = (uint16_t *)r->key;
    uint8_t *weights = (uint8_t *)r->key2;
    bins.n_present = 0, bins.weight = (uint32_t)weight;
    bins.n_steps = (int)((t->n_codes + 15) / 16);
    if (bins.n_steps > HF_MOST_STEPS) return 0;
    for (int64_t k = 0; k < t->n_outputs; ++k) {
        if (!r->count[k]) continue;
        if (bins.n_present == HF_MOST_BINNED) return 0;
        bins.total[bins.n_present] = r->count[k];
        number[k] = (uint32_t)bins.n_present++;
    }
    for (int c = 0; c < 16 * bins.n_steps; ++c) bins.place[c] = (uint8_t)(c % bins.n_steps * 16 + c / bins.n_steps);
    for (int64_t i = 0; i < n; ++i) {
        slot[i] = (uint16_t)(number[payload[i] >> 8] * (16 * HF_MOST_STEPS));
        weights[i] = (uint8_t)payload[i];
    }
    for (int64_t first = 0; first < n_drawn; first += 16) {
        const int n_lanes = n_drawn - first < 16 ? (int)(n_drawn - first) : 16;
        const int by_rows = n <= HF_MOST_BY_ROWS;
        uint32_t varies = (1u << n_lanes) - 1;
        if (by_rows) varies = hf_fill_tile(t, sample, n, r->column + first, n_lanes, &bins);
        for (; varies; varies &= varies - 1) {
            const int lane = __builtin_ctz(varies);
            const uint32_t column = r->column[first + lane];
            if (by_rows)
                hf_count_codes(&bins, slot, weights, n, bins.tile[0] + lane, 16, NULL);
            else
                hf_count_codes(&bins, slot, weights, n, (const uint8_t *)t->codes + column * t->n, 0, sample);
            hf_judge_codes(&bins, column, best);
            if (hf_is_perfect(r, best->score, weight)) return 1;
        }
    }
    return 1;
}
#endif

#endif
