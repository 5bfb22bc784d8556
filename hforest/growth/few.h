/* Nodes of few samples, sixteen candidates at a time. A lane is a candidate and a vector holds one
   place in the order of the samples, so that all candidates are sorted by one network and swept together. Rates of cuts
   are first taken in float32; only cuts that come near the best are rated as everywhere else, so that no bit differs. */
#ifndef HFOREST_GROWTH_FEW_H
#define HFOREST_GROWTH_FEW_H
#include "growth/task.h"

#if HF_X86

enum {
    HF_MOST_FEW = 256,   /* samples up to which the network beats a radix sort */
    HF_LANES_16 = 16,
    HF_MOST_PRESENT = 32 /* classes in such a node, at most: their totals lie in two registers */
};

/* Squares of sums below this fit in 30 bits, and products of two of them in a signed multiplication of 16 bits. */
#define HF_FEW_WEIGHT 16384.0

typedef struct {
    __m512i key[HF_MOST_FEW], next[HF_MOST_FEW]; /* keys of candidates to be swept, and of those drawn after them */
    __m512i left_square[HF_MOST_FEW], right_square[HF_MOST_FEW], left_weight[HF_MOST_FEW];
    __m512 rate[HF_MOST_FEW];
    __m512i left[HF_MOST_PRESENT];
    uint16_t code[HF_MOST_FEW][HF_LANES_16];
    uint32_t payload[HF_MOST_FEW]; /* class, numbered among those present, above the weight */
    uint32_t total[HF_MOST_PRESENT];
    int64_t n, n_present, min_leaf;
    uint32_t weight;
    int n_lanes;
    uint32_t column[HF_LANES_16]; /* candidates of the lanes, in the order drawn */
} hf_few;

HF_AVX512_CODE HF_INLINE void hf_exchange(__m512i *a, __m512i *b) {
    const __m512i low = _mm512_min_epu32(*a, *b), high = _mm512_max_epu32(*a, *b);
    *a = low;
    *b = high;
}

/* Batcher's odd-even merge sort of n vectors, lane by lane. Places behind n would hold the largest key: exchanges
   with them are left out. */
HF_AVX512_CODE static void hf_sort_lanes(__m512i *key, int64_t n) {
    for (int64_t p = 1; p < n; p *= 2)
        for (int64_t k = p; k > 0; k /= 2)
            for (int64_t j = k % p; j + k < n; j += 2 * k) {
                if (k < p && (j + k) % (2 * p) == 0) continue; /* the two lie in different runs */
                const int64_t last = j + k < n - k ? j + k : n - k;
                for (int64_t i = j; i < last; ++i) hf_exchange(key + i, key + i + k);
            }
}

/* Keys of sixteen candidates at the node's samples; in which lanes codes differ. */
HF_AVX512_CODE static __mmask16 hf_gather_lanes(
    const hf_task *t, const uint32_t *sample, hf_few *few, const uint32_t *column, int n_lanes, __m512i *key
) {
    int64_t place[HF_LANES_16];
    for (int lane = 0; lane < n_lanes; ++lane) place[lane] = hf_place_in_row(t, column[lane]) * t->width;
    for (int64_t i = 0; i < few->n; ++i) {
        const uint8_t *row = hf_row(t, sample[i]);
        uint16_t *code = few->code[i];
        if (t->width == 1)
            for (int lane = 0; lane < n_lanes; ++lane) code[lane] = row[place[lane]];
        else
            for (int lane = 0; lane < n_lanes; ++lane) code[lane] = *(const uint16_t *)(row + place[lane]);
    }
    __m512i lowest = _mm512_set1_epi32(-1), highest = _mm512_setzero_si512();
    for (int64_t i = 0; i < few->n; ++i) {
        const __m512i code = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)few->code[i]));
        lowest = _mm512_min_epu32(lowest, code);
        highest = _mm512_max_epu32(highest, code);
        key[i] = _mm512_or_si512(_mm512_slli_epi32(code, 16), _mm512_set1_epi32((int32_t)few->payload[i]));
    }
    return _mm512_cmpneq_epi32_mask(lowest, highest) & (__mmask16)((1u << n_lanes) - 1);
}

/* Sweeps all lanes; rates of their best cuts, in float32. */
HF_AVX512_CODE static __m512 hf_sweep_lanes(hf_few *few) {
    const __m512i low_byte = _mm512_set1_epi32(0xff), weight = _mm512_set1_epi32((int32_t)few->weight);
    const __m512i total = _mm512_loadu_si512(few->total), more = _mm512_loadu_si512(few->total + 16);
    const __mmask16 used = (__mmask16)((1u << few->n_lanes) - 1);
    uint32_t square = 0;
    for (int64_t k = 0; k < few->n_present; ++k) {
        square += few->total[k] * few->total[k];
        few->left[k] = _mm512_setzero_si512();
    }
    __m512i left_square = _mm512_setzero_si512(), right_square = _mm512_set1_epi32((int32_t)square);
    __m512i left_weight = _mm512_setzero_si512();
    __m512 most = _mm512_setzero_ps();
    for (int64_t i = 0; i + 1 < few->n; ++i) {
        const __m512i key = few->key[i];
        const __m512i y = _mm512_and_si512(_mm512_srli_epi32(key, 8), low_byte), w = _mm512_and_si512(key, low_byte);
        const __m512i of_class = _mm512_permutex2var_epi32(total, y, more);
        __m512i before = _mm512_setzero_si512();
        for (int64_t k = 0; k < few->n_present; ++k) {
            const __mmask16 is = _mm512_cmpeq_epi32_mask(y, _mm512_set1_epi32((int32_t)k));
            const __m512i sum = few->left[k];
            before = _mm512_mask_mov_epi32(before, is, sum);
            few->left[k] = _mm512_mask_add_epi32(sum, is, sum, w);
        }
        /* As hf_sweep has it; numbers below 2**15, whose products a multiplication of 16 bits gives in full. */
        const __m512i twice = _mm512_add_epi32(before, before), after = _mm512_sub_epi32(of_class, before);
        const __m512i gain = _mm512_madd_epi16(w, _mm512_add_epi32(twice, w));
        const __m512i loss = _mm512_madd_epi16(w, _mm512_sub_epi32(_mm512_add_epi32(after, after), w));
        left_square = _mm512_add_epi32(left_square, gain);
        right_square = _mm512_sub_epi32(right_square, loss);
        left_weight = _mm512_add_epi32(left_weight, w);
        few->left_square[i] = left_square;
        few->right_square[i] = right_square;
        few->left_weight[i] = left_weight;
        few->rate[i] = _mm512_setzero_ps();
        if (i + 1 < few->min_leaf || few->n - i - 1 < few->min_leaf) continue;
        const __mmask16 cut = _mm512_test_epi32_mask(
            _mm512_xor_si512(key, few->key[i + 1]), _mm512_set1_epi32((int32_t)0xffff0000)
        ) & used;
        const __m512 left = _mm512_cvtepi32_ps(left_weight);
        const __m512 right = _mm512_cvtepi32_ps(_mm512_sub_epi32(weight, left_weight));
        const __m512 rate = _mm512_maskz_add_ps(
            cut, _mm512_mul_ps(_mm512_cvtepi32_ps(left_square), _mm512_rcp14_ps(left)),
            _mm512_mul_ps(_mm512_cvtepi32_ps(right_square), _mm512_rcp14_ps(right))
        );
        few->rate[i] = rate;
        most = _mm512_max_ps(most, rate);
    }
    return most;
}

/* Takes the best cut of the lanes where it is better than `best`. */
HF_AVX512_CODE static void hf_judge_lanes(hf_few *few, hf_cut *best) {
    hf_sort_lanes(few->key, few->n);
    const __m512 most = hf_sweep_lanes(few);
    float limit = _mm512_reduce_max_ps(most);
    if (best->score > limit) limit = (float)best->score;
    limit *= HF_NEAR;
    if (!(limit > 0)) return;
    uint32_t near = _mm512_cmp_ps_mask(most, _mm512_set1_ps(limit), _CMP_GE_OQ) & ((1u << few->n_lanes) - 1);
    const uint32_t *key = (const uint32_t *)few->key, *weight = (const uint32_t *)few->left_weight;
    const uint32_t *left = (const uint32_t *)few->left_square, *right = (const uint32_t *)few->right_square;
    const float *rate = (const float *)few->rate;
    for (; near; near &= near - 1) {
        const int lane = __builtin_ctz(near);
        for (int64_t i = lane; i < 16 * (few->n - 1); i += 16) {
            if (!(rate[i] >= limit)) continue;
            const double score =
                (double)left[i] / (double)weight[i] + (double)right[i] / (double)(few->weight - weight[i]);
            if (!(score > best->score)) continue;
            best->score = score;
            best->column = few->column[lane];
            best->low = key[i] >> 16;
            best->high = key[i + 16] >> 16;
        }
    }
}

static int hf_is_few(const hf_task *t, const hf_workspace *r, int64_t n, double weight) {
    return t->path == HF_PATH_AVX512 && r->kind == HF_INT32_KEYS && !t->completely_random && (t->rows || t->offset) &&
           !hf_has_bytes(t, r) && n <= HF_MOST_FEW && weight < HF_FEW_WEIGHT;
}

/* As hf_best_cut, which draws on where no candidate varies; 0 if the node is not for this. */
HF_AVX512_CODE static int hf_best_of_few(
    const hf_task *t, hf_workspace *r, const hf_pending *node, int64_t n_drawn, double weight, hf_cut *best
) {
    hf_few few __attribute__((aligned(64)));
    uint32_t number[256];
    const uint32_t *sample = r->sample + node->first, *payload = r->payload + node->first;
    few.n = node->last - node->first, few.n_present = 0, few.n_lanes = 0;
    few.weight = (uint32_t)weight, few.min_leaf = t->min_leaf;
    for (int64_t k = 0; k < t->n_outputs; ++k) {
        if (!r->count[k]) continue;
        if (few.n_present == HF_MOST_PRESENT) return 0;
        few.total[few.n_present] = r->count[k];
        number[k] = (uint32_t)few.n_present++;
    }
    for (int64_t i = 0; i < few.n; ++i) few.payload[i] = number[payload[i] >> 8] << 8 | (payload[i] & 0xff);
    for (int64_t first = 0; first < n_drawn; first += HF_LANES_16) {
        const int n_lanes = n_drawn - first < HF_LANES_16 ? (int)(n_drawn - first) : HF_LANES_16;
        __m512i *key = few.n_lanes ? few.next : few.key;
        const __mmask16 varies = hf_gather_lanes(t, sample, &few, r->column + first, n_lanes, key);
        const int n_varying = __builtin_popcount(varies);
        if (!n_varying) continue;
        if (few.n_lanes + n_varying > HF_LANES_16) {
            hf_judge_lanes(&few, best);
            if (hf_is_perfect(r, best->score, weight)) return 1;
            few.n_lanes = 0;
        }
        /* Lanes that vary move up behind those that wait. */
        const __mmask16 to = (__mmask16)(((1u << n_varying) - 1) << few.n_lanes);
        for (int64_t i = 0; i < few.n; ++i)
            few.key[i] = _mm512_mask_expand_epi32(few.key[i], to, _mm512_maskz_compress_epi32(varies, key[i]));
        uint32_t left = varies;
        for (; left; left &= left - 1) few.column[few.n_lanes++] = r->column[first + __builtin_ctz(left)];
    }
    if (few.n_lanes) hf_judge_lanes(&few, best);
    return 1;
}
#endif

#endif
