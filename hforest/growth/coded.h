/* The best cut of a node among columns of codes. */
#ifndef HFOREST_GROWTH_CODED_H
#define HFOREST_GROWTH_CODED_H
#include "growth/counted.h"
#include "growth/few.h"
#include "growth/floats.h"
#include "growth/pairs.h"
#include "growth/pairwise.h"
#include "growth/histogram.h"

/* Code of key i of a node. */
HF_INLINE uint32_t hf_code_of_key(const hf_workspace *r, int64_t i) {
    return r->kind == HF_INT32_KEYS ? ((const uint32_t *)r->key)[i] >> 16 : (uint32_t)(((const uint64_t *)r->key)[i] >> 32);
}

/* The cut of a completely random tree: uniform between the least and the greatest value of the n keys. */
static void hf_cut_at_random(
    const hf_task *t, const hf_workspace *r, int64_t n, uint64_t key, int64_t column, uint32_t lowest, uint32_t highest,
    hf_cut *best
) {
    const double *low = t->low + hf_table(t, column), *high = t->high + hf_table(t, column);
    const double from = high[lowest], to = low[highest];
    double cut = from + hf_unit(hf_philox(key, 0, HF_STREAM_CUT)) * (to - from);
    if (!(cut < INFINITY)) cut = from / 2 + to / 2;
    if (t->single) cut = (double)(float)cut;
    if (!(cut >= from && cut < to)) cut = from;
    /* A code on the left, up to which all codes of the node lie there, and one on the right. Codes' values lie far apart
       in memory: of few keys, only those of codes that the node has are looked at. */
    uint32_t below = lowest, above = highest;
    while (above - below > 1) {
        const uint32_t middle = below + (above - below) / 2;
        uint32_t probe = middle, least = UINT32_MAX;
        for (int64_t i = 0; n <= HF_FEW && i < n; ++i) {
            const uint32_t code = hf_code_of_key(r, i), distance = code > middle ? code - middle : middle - code;
            if (code <= below || code >= above || distance >= least) continue;
            probe = code, least = distance;
        }
        if (n <= HF_FEW && least == UINT32_MAX) break;
        if (high[probe] <= cut) below = probe;
        else above = probe;
    }
    best->score = 0;
    best->column = column;
    best->low = below;
    best->high = above;
    best->threshold = cut;
}

/* The best cut of a node: candidates are drawn without replacement, n_drawn of them, and on until one of them is not
   constant. Of equal scores the first drawn wins, in it the lowest cut. */
static hf_cut hf_best_cut(const hf_task *t, hf_workspace *r, const hf_pending *node, uint64_t key, double weight) {
    const int64_t n = node->last - node->first;
    hf_cut best = {-INFINITY, -1, 0, 0, 0, 0, 0};
    int64_t n_drawn = 0;
    int varies = 0;
    int64_t n_steps = 0;
    hf_draw draw = {{0, 0, 0, 0}};
#if HF_X86
    if (hf_is_paired(t, r, n, weight)) {
        hf_best_of_pairs(t, r, node, key, weight, &n_drawn, &draw, &best);
        if (best.column >= 0) {
            hf_undraw_columns(r, n_drawn);
            return best;
        }
    }
    const int few = hf_is_few(t, r, n, weight);
    if (n_drawn == 0 && (few || hf_is_counted(t, r, weight))) {
        while (n_drawn < t->n_drawn) {
            hf_draw_column(t, r, key, n_drawn, &draw);
            ++n_drawn;
        }
        const int known = few ? hf_best_of_few(t, r, node, n_drawn, weight, &best)
                              : hf_best_of_counted(t, r, node, n_drawn, weight, &best);
        if (known && best.column >= 0) {
            hf_undraw_columns(r, n_drawn);
            return best;
        }
        /* Or all of them are constant here, and it takes others; or no cut leaves enough on its sides. */
        if (!known || t->min_leaf > 1) {
            hf_undraw_columns(r, n_drawn);
            n_drawn = 0;
        }
    }
#endif
#if HF_VECTORS
    const int pairwise = hf_is_pairwise(t, r, n, weight);
    if (pairwise || hf_is_histogram(t, r, n, weight)) {
        for (; n_drawn < t->n_drawn; ++n_drawn) hf_draw_column(t, r, key, n_drawn, &draw);
        int known = 1;
        if (pairwise) hf_best_pairwise(t, r, node, n_drawn, weight, &best);
        else known = hf_best_histogram(t, r, node, n_drawn, weight, &best);
        /* Else all of them are constant in the node, and it takes others; or its classes are too many. */
        if (best.column >= 0 || !known) hf_undraw_columns(r, n_drawn);
        if (best.column >= 0) return best;
        if (!known) n_drawn = 0;
    }
#endif
    while (n_drawn < t->n_columns && (n_drawn < t->n_drawn || !varies)) {
        if (hf_stopped_after(t->watch, &n_steps, n)) break;
        HF_TAKE(HF_BY_SORTING);
        const uint32_t column = hf_draw_column(t, r, key, n_drawn, &draw);
        ++n_drawn;

        uint32_t lowest, highest;
        hf_cut cut = {best.score, -1, 0, 0, 0, 0, 0};
        if (r->kind == HF_INT32_KEYS) {
            hf_gather_32(
                t->codes, t->width, hf_codes(t, column), r->sample + node->first, r->payload + node->first, n,
                r->key, &lowest, &highest
            );
            if (lowest == highest) continue;
            varies = 1;
            if (!t->completely_random) {
                const uint32_t *sorted = hf_sort_codes_32(r->key, r->key2, n, lowest, highest);
                hf_sweep_32(sorted, n, r->count, r->count_left, t->n_outputs, (uint64_t)weight, t->min_leaf, &cut);
            }
        } else {
            hf_gather_64(
                t->codes, t->width, hf_codes(t, column), r->sample + node->first, r->payload + node->first, n,
                r->key, &lowest, &highest
            );
            if (lowest == highest) continue;
            varies = 1;
            if (!t->completely_random) {
                const uint64_t *sorted = hf_sort_codes_64(r->key, r->key2, n, lowest, highest);
                if (r->kind == HF_FLOATS)
                    hf_sweep_floats(t, r, sorted, n, weight, &cut);
                else
                    hf_sweep_64(sorted, n, r->count, r->count_left, t->n_outputs, (uint64_t)weight, t->min_leaf, &cut);
            }
        }
        if (t->completely_random) {
            hf_cut_at_random(t, r, n, key, column, lowest, highest, &best);
            break;
        }
        if (cut.score > best.score) {
            best = cut;
            best.column = column;
            if (hf_is_perfect(r, best.score, weight)) break;
        }
    }
    hf_undraw_columns(r, n_drawn);
    return best;
}

#endif
