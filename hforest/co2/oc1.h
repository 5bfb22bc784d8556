/* Oblique splits by coordinate-wise search (Murthy, Kasif and Salzberg, A system for induction of oblique decision
   trees, JAIR 1994): each weight in turn takes the best of all values, the others fixed, by a scan of the values at
   which a sample changes sides; random directions and restarts against local optima. Unlike theirs, a weight does not
   move where the impurity stays equal. Where a call is to end (watch.h), functions return early. */
#ifndef HFOREST_CO2_OC1_H
#define HFOREST_CO2_OC1_H
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/order.h"
#include "core/philox.h"
#include "core/score.h"
#include "growth/task.h"

enum { HF_STREAM_RESTART = 10, HF_STREAM_JUMP = 11, HF_CYCLES = 100 /* through all weights, at most */ };

typedef struct {
    int64_t restarts, jumps;
} hf_oc1;

/* The samples of a node: rows of n_features numbers, followed by a constant -1 if `width` is n_features + 1. */
typedef struct {
    const void *x;
    int64_t n_features, width;
    int single;
    double *value, *along;   /* w.x, and the factor of the number that is searched */
    uint64_t *order, *order2;
    uint32_t *place, *place2;
    double *w, *best, *direction; /* width */
} hf_oc1_workspace;

static void hf_free_oc1(hf_oc1_workspace *o) {
    free(o->value), free(o->along), free(o->order), free(o->place), free(o->w), free(o->best), free(o->direction);
}

static int hf_make_oc1(hf_oc1_workspace *o, const void *x, int64_t n_features, int offset, int single, int64_t n) {
    memset(o, 0, sizeof *o);
    o->x = x, o->n_features = n_features, o->width = n_features + offset, o->single = single;
    o->value = malloc((n + 1) * 8), o->along = malloc((n + 1) * 8);
    o->order = malloc((n + 1) * 16), o->place = malloc((n + 1) * 8);
    o->w = malloc((n_features + 1) * 8), o->best = malloc((n_features + 1) * 8);
    o->direction = malloc((n_features + 1) * 8);
    if (!o->value || !o->along || !o->order || !o->place || !o->w || !o->best || !o->direction) return 0;
    o->order2 = o->order + n, o->place2 = o->place + n;
    return 1;
}

/* The number of a feature, or the constant after the last. */
HF_INLINE double hf_oc1_number(const hf_oc1_workspace *o, int64_t row, int64_t j) {
    if (j == o->n_features) return -1;
    return o->single ? ((const float *)o->x)[row * o->n_features + j] : ((const double *)o->x)[row * o->n_features + j];
}

/* out[i] = w.x of a node's samples. */
static void hf_oc1_values(const hf_oc1_workspace *o, const uint32_t *sample, int64_t n, const double *w, double *out) {
    for (int64_t i = 0; i < n; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < o->width; ++j) sum += w[j] * hf_oc1_number(o, sample[i], j);
        out[i] = sum;
    }
}

HF_INLINE void hf_oc1_move(const hf_task *t, hf_workspace *r, int64_t i, double *from, double *to) {
    const double w = r->weight[i];
    if (t->labels) {
        from[r->label[i]] -= w;
        to[r->label[i]] += w;
        return;
    }
    const double *row = t->targets + r->sample[i] * t->n_outputs;
    for (int64_t k = 0; k < t->n_outputs; ++k) {
        from[k] -= w * (row[k] - r->mean[k]);
        to[k] += w * (row[k] - r->mean[k]);
    }
}

/* *found = the number a for which the sides of value + a along (right where that is at least 0) score best. Returns
   that score, or -INFINITY if no a leaves enough on both sides. */
static double hf_oc1_search(const hf_task *t, hf_workspace *r, const hf_pending *node, hf_oc1_workspace *o, double *found) {
    const int64_t n = node->last - node->first;
    double left_weight = 0, right_weight = 0, best = -INFINITY;
    int64_t n_left = 0, n_moving = 0;
    for (int64_t k = 0; k < t->n_outputs; ++k) r->left[k] = r->right[k] = 0;
    for (int64_t i = 0; i < n; ++i) {
        const double along = o->along[i], weight = r->weight[node->first + i];
        const int right = along < 0 || (along == 0 && o->value[i] >= 0); /* at minus infinity */
        hf_add(t, r, node->first + i, right ? r->right : r->left);
        if (right) right_weight += weight;
        else left_weight += weight;
        n_left += !right;
        if (along == 0) continue;
        o->order[n_moving] = hf_ordered(-o->value[i] / along);
        o->place[n_moving++] = (uint32_t)i;
    }
    const int swapped = hf_sort(o->order, o->place, o->order2, o->place2, n_moving, t->watch);
    if (swapped < 0) return best;
    const uint64_t *order = swapped ? o->order2 : o->order;
    const uint32_t *place = swapped ? o->place2 : o->place;
    const int64_t size = t->n_outputs + 16;
    int64_t n_steps = 0;
    for (int64_t c = 0; c + 1 < n_moving; ++c) {
        const int64_t i = place[c];
        if (hf_stopped_after(t->watch, &n_steps, size)) break;
        const double weight = r->weight[node->first + i];
        if (o->along[i] > 0) {
            hf_oc1_move(t, r, node->first + i, r->left, r->right);
            left_weight -= weight, right_weight += weight, --n_left;
        } else {
            hf_oc1_move(t, r, node->first + i, r->right, r->left);
            left_weight += weight, right_weight -= weight, ++n_left;
        }
        if (order[c] == order[c + 1] || n_left < t->min_leaf || n - n_left < t->min_leaf) continue;
        if (!(left_weight > 0 && right_weight > 0)) continue;
        const double score = hf_node_score(t->criterion, r->left, t->n_outputs, left_weight) +
                             hf_node_score(t->criterion, r->right, t->n_outputs, right_weight);
        if (score > best) {
            const int64_t next = place[c + 1];
            best = score;
            *found = hf_between_f64(-o->value[i] / o->along[i], -o->value[next] / o->along[next]);
        }
    }
    return best;
}

/* Returns the score of the sides of o->value. */
static double hf_oc1_score(const hf_task *t, hf_workspace *r, const hf_pending *node, const hf_oc1_workspace *o) {
    const int64_t n = node->last - node->first;
    double left_weight = 0, right_weight = 0;
    int64_t n_left = 0;
    for (int64_t k = 0; k < t->n_outputs; ++k) r->left[k] = r->right[k] = 0;
    for (int64_t i = 0; i < n; ++i) {
        const int right = o->value[i] >= 0;
        hf_add(t, r, node->first + i, right ? r->right : r->left);
        *(right ? &right_weight : &left_weight) += r->weight[node->first + i];
        n_left += !right;
    }
    if (n_left < t->min_leaf || n - n_left < t->min_leaf || !(left_weight > 0 && right_weight > 0)) return -INFINITY;
    return hf_node_score(t->criterion, r->left, t->n_outputs, left_weight) +
           hf_node_score(t->criterion, r->right, t->n_outputs, right_weight);
}

/* Changes o->w, one weight after another, until no single weight raises the score. `score`: IN, that of o->w. Returns
   the score at the end. */
static double hf_oc1_climb(const hf_task *t, hf_workspace *r, const hf_pending *node, hf_oc1_workspace *o, double score) {
    const int64_t n = node->last - node->first, width = o->width;
    const uint32_t *sample = r->sample + node->first;
    int64_t n_steps = 0;
    for (int64_t cycle = 0, idle = 0; cycle < HF_CYCLES && idle < width; ++cycle)
        for (int64_t j = 0; j < width && idle < width; ++j, ++idle) {
            if (hf_stopped_after(t->watch, &n_steps, n)) return score;
            for (int64_t i = 0; i < n; ++i) o->along[i] = hf_oc1_number(o, sample[i], j);
            double step;
            const double better = hf_oc1_search(t, r, node, o, &step);
            if (!(better > score)) continue;
            score = better;
            o->w[j] += step;
            for (int64_t i = 0; i < n; ++i) o->value[i] += step * o->along[i];
            idle = -1;
        }
    return score;
}

/* w = random numbers from -1 to 1, determined by the key. */
static void hf_oc1_draw(uint64_t key, uint64_t number, uint64_t stream, double *w, int64_t width) {
    const uint64_t own = hf_draw_key(hf_philox(key, number, stream), 0);
    for (int64_t j = 0; j < width; ++j) w[j] = 2 * hf_unit(hf_philox(own, (uint64_t)j, stream)) - 1;
}

/* Searches from `w` and from random starts. w: IN and OUT, the best w found, its largest number 1. */
static void hf_fit_oc1(
    const hf_task *t, hf_workspace *r, const hf_pending *node, const hf_oc1 *c, uint64_t key, hf_oc1_workspace *o, double *w
) {
    const int64_t n = node->last - node->first, width = o->width;
    const uint32_t *sample = r->sample + node->first;
    double best = -INFINITY;
    uint64_t n_jumps = 0;
    int64_t n_steps = 0;
    for (int64_t restart = 0; restart <= c->restarts && !hf_stopped(t->watch); ++restart) {
        if (restart == 0) memcpy(o->w, w, width * 8);
        else hf_oc1_draw(key, (uint64_t)restart, HF_STREAM_RESTART, o->w, width);
        hf_oc1_values(o, sample, n, o->w, o->value);
        double score = hf_oc1_climb(t, r, node, o, hf_oc1_score(t, r, node, o));
        for (int64_t failed = 0; failed < c->jumps;) {
            double step;
            if (hf_stopped_after(t->watch, &n_steps, n * width)) break;
            hf_oc1_draw(key, n_jumps++, HF_STREAM_JUMP, o->direction, width);
            hf_oc1_values(o, sample, n, o->direction, o->along);
            const double better = hf_oc1_search(t, r, node, o, &step);
            if (!(better > score)) {
                ++failed;
                continue;
            }
            for (int64_t j = 0; j < width; ++j) o->w[j] += step * o->direction[j];
            for (int64_t i = 0; i < n; ++i) o->value[i] += step * o->along[i];
            score = hf_oc1_climb(t, r, node, o, better);
            failed = 0;
        }
        if (restart == 0 || score > best) {
            best = score;
            memcpy(o->best, o->w, width * 8);
        }
    }
    double largest = 0;
    for (int64_t j = 0; j < width; ++j) largest = fabs(o->best[j]) > largest ? fabs(o->best[j]) : largest;
    for (int64_t j = 0; j < width; ++j) w[j] = largest > 0 ? o->best[j] / largest : 0;
}

#endif
