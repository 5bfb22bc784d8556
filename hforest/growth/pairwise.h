/* The pairwise scorer of columns of bins: small nodes, codes of bytes, whole weights. Every split beside every sample:
   nothing is sorted. Cost: n**2 / HF_BYTES additions of vectors a candidate. Its sums are the integers of the sorted
   scan (sweep.h). Rates are first taken in float32; splits near the best one are scored again in float64. */
#ifndef HFOREST_GROWTH_PAIRWISE_H
#define HFOREST_GROWTH_PAIRWISE_H
#include "growth/bodies.h"

#if HF_VECTORS

/* Samples class by class. */
static void hf_start_pairwise(hf_workspace *r, const hf_pending *node, double weight, hf_pairwise *p) {
    const uint32_t *payload = r->payload + node->first, *sample = r->sample + node->first;
    uint32_t *number = r->count_left;
    int32_t first[HF_PAIRWISE_SAMPLES];
    uint8_t known[HF_PAIRWISE_SAMPLES];
    p->n = node->last - node->first, p->n_present = 0, p->all = (uint32_t)weight, p->square = 0;
    for (int64_t i = 0; i < p->n; ++i) number[payload[i] >> 8] = UINT32_MAX;
    for (int64_t i = 0; i < p->n; ++i) {
        const uint32_t y = payload[i] >> 8;
        if (number[y] == UINT32_MAX) {
            number[y] = (uint32_t)p->n_present;
            p->total[p->n_present] = r->count[y];
            p->square += r->count[y] * r->count[y];
            p->last[p->n_present++] = 0;
        }
        known[i] = (uint8_t)number[y];
        ++p->last[known[i]];
    }
    for (int64_t k = 0, at = 0; k < p->n_present; ++k) {
        first[k] = (int32_t)at;
        at += p->last[k];
        p->last[k] = (int32_t)at;
    }
    for (int64_t i = 0; i < p->n; ++i) {
        const int32_t at = first[known[i]]++;
        p->sample[at] = sample[i];
        p->weight[at] = (uint8_t)payload[i];
    }
}

/* Reads the codes of `per` candidates. */
static void hf_fill_pairwise(const hf_task *t, const uint32_t *column, int per, hf_pairwise *p) {
    int64_t at[HF_PAIRWISE_DRAWS];
    if (hf_is_by_rows(t, p->n)) {
        for (int c = 0; c < per; ++c) at[c] = hf_place_in_row(t, column[c]);
        for (int64_t i = 0; i < p->n; ++i) {
            const uint8_t *row = hf_row(t, p->sample[i]);
            for (int c = 0; c < per; ++c) p->code[i * per + c] = row[at[c]];
        }
    } else {
        for (int c = 0; c < per; ++c) {
            const uint8_t *code = (const uint8_t *)t->codes + hf_codes(t, column[c]);
            for (int64_t i = 0; i < p->n; ++i) p->code[i * per + c] = code[p->sample[i]];
        }
    }
    memset(p->code + p->n * per, 255, 64); /* nothing lies on the right of these */
}

/* Takes the best split of `per` candidates, of which the first is number `first` among those drawn, where it is
   better than `best`. */
static void hf_confirm_pairwise(
    const uint32_t *column, int per, int n_candidates, float most, const hf_pairwise *p, hf_cut *best
) {
    float limit = best->score > 0 ? (float)best->score * HF_NEAR : 0.0f;
    if (!(most > limit)) return;
    if (most * HF_NEAR > limit) limit = most * HF_NEAR;
    int won = -1;
    const int64_t size = p->n * per;
    for (int64_t i = 0; i < size; ++i) {
        if (!(p->rate[i & 1].value[i / 2] >= limit)) continue;
        const int c = (int)(i % per);
        if (c >= n_candidates) continue;
        const uint32_t left_weight = p->left_weight[i];
        const double score = (double)p->left_square[i & 1][i / 2] / (double)left_weight +
                             (double)p->right_square[i & 1][i / 2] / (double)(p->all - left_weight);
        /* Of equal scores the first drawn, and its lowest split. */
        if (score < best->score) continue;
        if (score == best->score && (won < 0 || c > won || (c == won && p->code[i] >= best->low))) continue;
        best->score = score;
        best->column = column[c];
        best->low = p->code[i];
        won = c;
    }
    if (won < 0) return;
    best->high = 256;
    for (int64_t i = won; i < size; i += per)
        if (p->code[i] > best->low && p->code[i] < best->high) best->high = p->code[i];
}

static int hf_is_pairwise(const hf_task *t, const hf_workspace *r, int64_t n, double weight) {
    return hf_bodies_of(t->path) && r->kind == HF_INT32_KEYS && t->width == 1 && t->min_leaf == 1 &&
           !t->completely_random && n <= HF_PAIRWISE_SAMPLES && (n <= 24 || n <= t->n_codes / 2) && weight < 256;
}

/* The best split of n_drawn candidates; those that do not vary score nothing. */
static void hf_best_pairwise(
    const hf_task *t, hf_workspace *r, const hf_pending *node, int64_t n_drawn, double weight, hf_cut *best
) {
    hf_pairwise p __attribute__((aligned(64)));
    const hf_bodies *bodies = hf_bodies_of(t->path);
    HF_TAKE(HF_BY_PAIRS);
    hf_start_pairwise(r, node, weight, &p);
    const int per = p.n > 32 ? 1 : p.n > 16 ? 2 : p.n > 8 ? 4 : 8;
    for (int64_t first = 0; first < n_drawn; first += per) {
        const int n_candidates = n_drawn - first < per ? (int)(n_drawn - first) : per;
        uint32_t column[HF_PAIRWISE_DRAWS];
        for (int c = 0; c < per; ++c) column[c] = r->column[first + (c < n_candidates ? c : 0)];
        hf_fill_pairwise(t, column, per, &p);
        if (!memcmp(p.code, p.code + per, (p.n - 1) * per)) continue; /* none of them varies */
        bodies->sum_pairs(per, &p);
        hf_confirm_pairwise(column, per, n_candidates, bodies->rate_pairs(per, &p), &p, best);
        if (hf_is_perfect(r, best->score, weight)) return;
    }
}
#endif

#endif
