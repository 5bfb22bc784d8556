/* The histogram scorer of columns of bins: large nodes, up to 256 bins, whole weights. Weights are counted by class and
   bin, and all splits scored from the counts. Cost: n + n_bins * n_classes / lanes a candidate. Its sums are the
   integers of the sorted scan (sweep.h). */
#ifndef HFOREST_GROWTH_HISTOGRAM_H
#define HFOREST_GROWTH_HISTOGRAM_H
#include "growth/pairwise.h"

#if HF_VECTORS

/* Squares of sums of weights below this fit in 30 bits. */
#define HF_HISTOGRAM_WEIGHT 32768.0

static int hf_is_histogram(const hf_task *t, const hf_workspace *r, int64_t n, double weight) {
    return hf_bodies_of(t->path) && r->kind == HF_INT32_KEYS && t->width == 1 && t->min_leaf == 1 &&
           !t->completely_random && weight < HF_HISTOGRAM_WEIGHT;
}

/* Numbers the classes of a node and writes where each sample's class is counted; 0 if they are too many. */
static int hf_start_histogram(
    const hf_task *t, hf_workspace *r, const hf_pending *node, double weight, const hf_bodies *bodies, hf_histogram *h
) {
    const int lanes = 1 << bodies->log_lanes;
    const uint32_t *payload = r->payload + node->first;
    uint32_t *number = r->count_left, *slot = r->key2;
    h->n_present = 0, h->all = (uint32_t)weight, h->square = 0, h->n_bins = (int)t->n_codes;
    h->n_steps = (h->n_bins + lanes - 1) / lanes;
    for (int64_t k = 0; k < t->n_outputs; ++k) {
        if (!r->count[k]) continue;
        if (h->n_present == HF_HISTOGRAM_CLASSES) return 0;
        h->total[h->n_present] = r->count[k];
        h->square += r->count[k] * r->count[k];
        number[k] = (uint32_t)(h->n_present++ * h->n_steps * lanes);
    }
    for (int c = 0; c < h->n_bins; ++c) h->place[c] = (uint8_t)(c % h->n_steps * lanes + c / h->n_steps);
    for (int64_t i = 0; i < node->last - node->first; ++i)
        slot[i] = number[payload[i] >> 8] << 16 | (payload[i] & 0xff);
    return 1;
}

/* Counts four candidates together: where many samples share a bin, one addition waits for the one before. */
HF_APART static void hf_count_bins(
    const uint8_t *const *code, const uint32_t *sample, const uint32_t *slot, int64_t n, hf_histogram *h
) {
    const uint8_t *a = code[0], *b = code[1], *c = code[2], *d = code[3], *place = h->place;
    uint16_t *count_a = h->counts[0], *count_b = h->counts[1], *count_c = h->counts[2], *count_d = h->counts[3];
    for (int64_t i = 0; i < n; ++i) {
        const int64_t s = sample[i], at = slot[i] >> 16;
        const uint16_t w = (uint16_t)slot[i];
        count_a[at + place[a[s]]] += w;
        count_b[at + place[b[s]]] += w;
        count_c[at + place[c[s]]] += w;
        count_d[at + place[d[s]]] += w;
    }
}

/* Reads the codes of up to HF_TILE_DRAWS candidates from the samples' rows. */
static void hf_fill_tiles(
    const hf_task *t, const uint32_t *sample, int64_t n, const uint32_t *column, int64_t n_left, hf_histogram *h
) {
    int64_t at[HF_TILE_DRAWS];
    const int n_candidates = n_left < HF_TILE_DRAWS ? (int)n_left : HF_TILE_DRAWS;
    for (int c = 0; c < n_candidates; ++c) at[c] = hf_place_in_row(t, column[c]);
    for (int64_t i = 0; i < n; ++i) {
        const uint8_t *row = hf_row(t, sample[i]);
        for (int c = 0; c < n_candidates; ++c) h->tile[c][i] = row[at[c]];
    }
}

/* Whether all samples are in the bin of the first one. */
static int hf_is_one_bin(const hf_histogram *h, int bin, int size) {
    for (int64_t k = 0; k < h->n_present; ++k)
        if (h->count[k * size + h->place[bin]] != h->total[k]) return 0;
    return 1;
}

/* Takes the best split of a candidate where it is better than `best`. */
static void hf_confirm_bins(const hf_histogram *h, uint32_t column, float most, hf_cut *best) {
    float limit = best->score > 0 ? (float)best->score * HF_NEAR : 0.0f;
    if (!(most > limit)) return;
    if (most * HF_NEAR > limit) limit = most * HF_NEAR;
    int found = -1;
    for (int c = 0; c < h->n_bins; ++c) {
        const int i = h->place[c];
        if (!(h->rate.value[i] >= limit)) continue;
        const double score = (double)h->left_square[i] / (double)h->left_weight[i] +
                             (double)h->right_square[i] / (double)(h->all - h->left_weight[i]);
        if (!(score > best->score)) continue;
        best->score = score;
        found = c;
    }
    if (found < 0) return;
    best->column = column;
    best->low = best->high = (uint32_t)found;
    /* Bins that no sample has add nothing to the weight on the left. */
    while (h->left_weight[h->place[best->high]] == h->left_weight[h->place[found]]) ++best->high;
}

/* The best split of n_drawn candidates, those that do not vary score nothing; 0 if the node has too many classes. */
static int hf_best_histogram(
    const hf_task *t, hf_workspace *r, const hf_pending *node, int64_t n_drawn, double weight, hf_cut *best
) {
    hf_histogram h __attribute__((aligned(64)));
    const hf_bodies *bodies = hf_bodies_of(t->path);
    if (!hf_start_histogram(t, r, node, weight, bodies, &h)) return 0;
    const int64_t n = node->last - node->first;
    const int by_rows = n <= HF_TILE_SAMPLES && hf_is_by_rows(t, n);
    const uint32_t *sample = r->sample + node->first;
    for (int64_t i = 0; by_rows && i < n; ++i) h.number[i] = (uint32_t)i;
    int64_t n_steps = 0;
    HF_TAKE(HF_BY_HISTOGRAM);
    for (int64_t first = 0; first < n_drawn; first += 4) {
        if (hf_stopped_after(t->watch, &n_steps, 4 * n)) return 1;
        const uint8_t *code[4];
        if (by_rows && first % HF_TILE_DRAWS == 0) hf_fill_tiles(t, sample, n, r->column + first, n_drawn - first, &h);
        for (int c = 0; c < 4; ++c) {
            const int64_t number = first + c < n_drawn ? first + c : first;
            if (by_rows) code[c] = h.tile[number % HF_TILE_DRAWS];
            else code[c] = (const uint8_t *)t->codes + hf_codes(t, r->column[number]);
            memset(h.counts[c], 0, h.n_present * (h.n_steps << bodies->log_lanes) * sizeof *h.count);
        }
        hf_count_bins(code, by_rows ? h.number : sample, r->key2, n, &h);
        for (int c = 0; c < 4 && first + c < n_drawn; ++c) {
            h.count = h.counts[c];
            if (hf_is_one_bin(&h, code[c][by_rows ? 0 : sample[0]], h.n_steps << bodies->log_lanes)) continue;
            bodies->sum_bins(&h);
            hf_confirm_bins(&h, r->column[first + c], bodies->rate_bins(&h), best);
            if (hf_is_perfect(r, best->score, weight)) return 1;
        }
    }
    return 1;
}
#endif

#endif
