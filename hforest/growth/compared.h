/* Nodes of few samples, projections, sixteen candidates at a time: a lane is a candidate, and a cut stands behind every
   sample. Its sums are those of the samples whose value is not above that sample's, so that nothing is sorted, and no
   branch depends on a value. As in few.h, rates are first taken in float32, and only cuts near the best are rated in
   full. */
#ifndef HFOREST_GROWTH_COMPARED_H
#define HFOREST_GROWTH_COMPARED_H
#include "growth/buckets.h"

#if HF_X86

enum { HF_MOST_COMPARED = 32 /* samples up to which this beats buckets */ };

/* Of samples with those of a class together: number i * room + c is sample i's of candidate c. A vector so holds all
   candidates of one sample or, if these are few, of two or four. */
typedef struct {
    union {
        __m512i lanes[HF_MOST_COMPARED];
        int32_t whole[16 * HF_MOST_COMPARED];
        float real[16 * HF_MOST_COMPARED];
    } value;
    union {
        __m512i lanes[HF_MOST_COMPARED];
        uint32_t sum[16 * HF_MOST_COMPARED];
    } left_square, right_square, left_weight;
    union {
        __m512 lanes[HF_MOST_COMPARED];
        float rate[16 * HF_MOST_COMPARED];
    } rate;
    int32_t weight[HF_MOST_COMPARED];
    uint8_t place[HF_MOST_COMPARED];                         /* of a sample of the node */
    int32_t total[HF_MOST_COMPARED], last[HF_MOST_COMPARED]; /* of a class: weight, and where it ends */
    int n, n_present, room;                                  /* room: 4, 8 or 16 */
    int32_t all;                                             /* weight of the node */
} hf_compared;

static int hf_is_compared(const hf_task *t, const hf_workspace *r, int64_t n, double weight) {
    return t->path == HF_PATH_AVX512 && r->kind == HF_INT64_KEYS && (t->single || t->whole) && t->min_leaf == 1 &&
           n <= HF_MOST_COMPARED && weight < HF_BINNED_WEIGHT;
}

/* Puts samples of a class together. */
static void hf_start_compared(hf_workspace *r, const hf_pending *node, double weight, hf_compared *c) {
    const uint32_t *payload = r->payload + node->first;
    int first[HF_MOST_COMPARED], known[HF_MOST_COMPARED], n_known[HF_MOST_COMPARED];
    uint32_t *number = r->count_left;
    c->n = (int)(node->last - node->first), c->n_present = 0, c->all = (int32_t)weight;
    for (int i = 0; i < c->n; ++i) number[payload[i] >> 16] = UINT32_MAX;
    for (int i = 0; i < c->n; ++i) {
        const uint32_t y = payload[i] >> 16;
        if (number[y] == UINT32_MAX) {
            number[y] = (uint32_t)c->n_present;
            n_known[c->n_present] = 0;
            c->total[c->n_present++] = (int32_t)r->count[y];
        }
        known[i] = (int)number[y];
        ++n_known[known[i]];
    }
    for (int k = 0, at = 0; k < c->n_present; ++k) {
        first[k] = at;
        at += n_known[k];
        c->last[k] = at;
    }
    for (int i = 0; i < c->n; ++i) {
        const int at = first[known[i]]++;
        c->place[i] = (uint8_t)at;
        c->weight[at] = (int32_t)(payload[i] & 0xffff);
    }
}

/* Sums and rates of all cuts, each behind a sample; the best rate, in float32. */
HF_AVX512_CODE HF_INLINE float hf_compare(int whole, int room, hf_compared *c) {
    const int n_numbers = c->n * room, n_vectors = (n_numbers + 15) / 16;
    const __m512i zero = _mm512_setzero_si512(), all = _mm512_set1_epi32(c->all);
    for (int i = 0; i < n_vectors; ++i) c->left_square.lanes[i] = c->right_square.lanes[i] = c->left_weight.lanes[i] = zero;
    for (int k = 0, first = 0; k < c->n_present; first = c->last[k++]) {
        const __m512i total = _mm512_set1_epi32(c->total[k]);
        for (int i = 0; i < n_vectors; ++i) {
            const __m512i cut = c->value.lanes[i];
            __m512i left = zero;
            for (int j = first; j < c->last[k]; ++j) {
                const int32_t *at = c->value.whole + j * room;
                const __m512i value = room == 4   ? _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)at))
                                      : room == 8 ? _mm512_broadcast_i32x8(_mm256_loadu_si256((const __m256i *)at))
                                                  : _mm512_loadu_si512(at);
                const __mmask16 is_left =
                    whole ? _mm512_cmple_epi32_mask(value, cut)
                          : _mm512_cmp_ps_mask(_mm512_castsi512_ps(value), _mm512_castsi512_ps(cut), _CMP_LE_OQ);
                left = _mm512_mask_add_epi32(left, is_left, left, _mm512_set1_epi32(c->weight[j]));
            }
            const __m512i right = _mm512_sub_epi32(total, left);
            c->left_weight.lanes[i] = _mm512_add_epi32(c->left_weight.lanes[i], left);
            c->left_square.lanes[i] = _mm512_add_epi32(c->left_square.lanes[i], _mm512_madd_epi16(left, left));
            c->right_square.lanes[i] = _mm512_add_epi32(c->right_square.lanes[i], _mm512_madd_epi16(right, right));
        }
    }
    __m512 most = _mm512_setzero_ps();
    for (int i = 0; i < n_vectors; ++i) {
        const int rest = n_numbers - 16 * i;
        const __m512i right_weight = _mm512_sub_epi32(all, c->left_weight.lanes[i]);
        const __mmask16 is_cut = _mm512_test_epi32_mask(right_weight, right_weight) &
                                 _mm512_test_epi32_mask(c->left_weight.lanes[i], c->left_weight.lanes[i]) &
                                 (rest < 16 ? (__mmask16)((1u << rest) - 1) : 0xffff);
        const __m512 left = _mm512_cvtepi32_ps(c->left_weight.lanes[i]), right = _mm512_cvtepi32_ps(right_weight);
        const __m512 rate = _mm512_maskz_add_ps(
            is_cut, _mm512_mul_ps(_mm512_cvtepi32_ps(c->left_square.lanes[i]), _mm512_rcp14_ps(left)),
            _mm512_mul_ps(_mm512_cvtepi32_ps(c->right_square.lanes[i]), _mm512_rcp14_ps(right))
        );
        c->rate.lanes[i] = rate;
        most = _mm512_max_ps(most, rate);
    }
    return _mm512_reduce_max_ps(most);
}

/* Takes the best cut of n_atoms candidates where it is better than `best`, and its values; the candidate, or -1. */
HF_AVX512_CODE static int hf_judge_compared(
    const hf_task *t, hf_workspace *r, hf_compared *c, int n_atoms, hf_cut *best
) {
    const int room = c->room;
    float limit = t->whole ? (room == 4   ? hf_compare(1, 4, c)
                              : room == 8 ? hf_compare(1, 8, c)
                                          : hf_compare(1, 16, c))
                           : (room == 4   ? hf_compare(0, 4, c)
                              : room == 8 ? hf_compare(0, 8, c)
                                          : hf_compare(0, 16, c));
    if (best->score > limit) limit = (float)best->score;
    limit *= HF_NEAR;
    if (!(limit > 0)) return -1;
    int found = -1;
    const __m512 least = _mm512_set1_ps(limit);
    for (int first = 0; first < c->n * room; first += 16) {
        uint32_t near = _mm512_cmp_ps_mask(c->rate.lanes[first / 16], least, _CMP_GE_OQ);
        for (; near; near &= near - 1) {
            const int at = first + __builtin_ctz(near), atom = at & (room - 1);
            if (atom >= n_atoms) continue;
            const uint32_t weight = c->left_weight.sum[at];
            const double score = (double)c->left_square.sum[at] / (double)weight +
                                 (double)c->right_square.sum[at] / (double)((uint32_t)c->all - weight);
            const double value = t->whole ? c->value.whole[at] : c->value.real[at];
            /* Of equal scores the first candidate drawn, in it the lowest cut. */
            const int as_good = score == best->score && found >= 0;
            if (!(score > best->score || (as_good && (atom < found || (atom == found && value < best->below))))) continue;
            best->score = score;
            best->below = value;
            found = atom;
        }
    }
    if (found < 0) return found;
    best->above = INFINITY;
    for (int i = 0; i < c->n; ++i) {
        const int at = c->place[i] * room + found;
        const double value = t->whole ? c->value.whole[at] : c->value.real[at];
        if (value > best->below && value < best->above) best->above = value;
        ((int32_t *)r->best_projected)[i] = c->value.whole[at];
    }
    return found;
}
#endif

#endif
