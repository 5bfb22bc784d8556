/* Grows a tree of oblique splits (p2 section 5) on the engine of univariate ones: a node finds the best of its random
   univariate splits, fits a stump from there, and splits its samples by it. */
#ifndef HFOREST_CO2_OBLIQUE_H
#define HFOREST_CO2_OBLIQUE_H
#include "growth/engine.h"
#include "co2/oc1.h"
#include "co2/stump.h"

typedef struct {
    hf_task univariate; /* its criterion scores oblique splits too */
    hf_rows rows;
    hf_schedule schedule;
    const hf_oc1 *oc1; /* if not NULL: this search in place of a stump */
    int path;
} hf_oblique_task;

/* A tree whose projections have weights of its own dtype. */
typedef struct {
    hf_tree tree;
    void *weight; /* (tree.n_entries) */
} hf_oblique_tree;

static void hf_free_oblique(hf_oblique_tree *o) {
    hf_free_tree(&o->tree);
    free(o->weight);
    o->weight = NULL;
}

/* Writes the projections that tree.predict compares with a threshold: sums in double, in the order of the entries,
   rounded once. Eight samples at a time, because the additions of one sample depend on each other. */
#define HF_VALUES(NAME, REAL)                                                                                   \
    static void NAME(                                                                                            \
        const REAL *x, int64_t n_features, const uint32_t *sample, int64_t n, const uint32_t *index,             \
        const REAL *weight, int64_t n_entries, REAL *value                                                       \
    ) {                                                                                                          \
        for (int64_t first = 0; first < n; first += 8) {                                                         \
            const int count = n - first < 8 ? (int)(n - first) : 8;                                              \
            const REAL *row[8];                                                                                  \
            double sum[8] = {0};                                                                                 \
            for (int r = 0; r < 8; ++r) row[r] = x + (int64_t)sample[first + (r < count ? r : 0)] * n_features;  \
            for (int64_t j = 0; j < n_entries; ++j) {                                                            \
                const double w = weight[j];                                                                      \
                for (int r = 0; r < 8; ++r) sum[r] += w * (double)row[r][index[j]];                              \
            }                                                                                                    \
            for (int r = 0; r < count; ++r) value[first + r] = (REAL)sum[r];                                     \
        }                                                                                                        \
    }
HF_VALUES(hf_values_f32, float)
HF_VALUES(hf_values_f64, double)

/* Returns the score of a split, as the scan of thresholds computes it; -INFINITY if a side is too small. */
static double hf_score_sides(
    const hf_task *t, hf_workspace *r, const hf_pending *node, const int8_t *goes_right, double weight
) {
    double left_weight = 0;
    int64_t count = 0;
    for (int64_t k = 0; k < t->n_outputs; ++k) r->left[k] = 0;
    for (int64_t i = node->first; i < node->last; ++i)
        if (!goes_right[i - node->first]) {
            hf_add(t, r, i, r->left);
            left_weight += r->weight[i];
            ++count;
        }
    const double right_weight = weight - left_weight;
    if (count < t->min_leaf || node->last - node->first - count < t->min_leaf || !(left_weight > 0 && right_weight > 0))
        return -INFINITY;
    for (int64_t k = 0; k < t->n_outputs; ++k) r->right[k] = r->total[k] - r->left[k];
    return hf_node_score(t->criterion, r->left, t->n_outputs, left_weight) +
           hf_node_score(t->criterion, r->right, t->n_outputs, right_weight);
}

/* Partitions the samples of a node, stably: those that go left come first. Returns where the others begin. */
static int64_t hf_part(hf_workspace *r, const hf_pending *node, const int8_t *goes_right) {
    int64_t left = node->first, right = 0;
    for (int64_t i = node->first; i < node->last; ++i) {
        const int side = goes_right[i - node->first];
        r->sample2[right] = r->sample[left] = r->sample[i];
        r->weight2[right] = r->weight[left] = r->weight[i];
        r->label2[right] = r->label[left] = r->label[i];
        left += !side;
        right += side;
    }
    memcpy(r->sample + left, r->sample2, right * sizeof *r->sample);
    memcpy(r->weight + left, r->weight2, right * sizeof *r->weight);
    memcpy(r->label + left, r->label2, right * sizeof *r->label);
    return left;
}

/* Splits node v, or makes it a leaf. Returns 0 if memory is out, or where the call is to end. */
static int hf_split_oblique(
    const hf_oblique_task *o, hf_workspace *r, hf_stump_workspace *s, hf_oc1_workspace *search, int8_t *goes_right,
    void *values, hf_oblique_tree *grown, int64_t v, double *root_weight
) {
    const hf_task *t = &o->univariate;
    hf_tree *tree = &grown->tree;
    const hf_pending node = r->open[v];
    const int64_t n = node.last - node.first, F = t->n_columns;
    const int single = t->single;
    tree->start[v] = tree->n_entries;
    const double weight = hf_sum_up(t, r, &node);
    const int pure = hf_is_pure(t, r, &node);
    if (v == 0) *root_weight = weight;
    if (pure || n < 2 || n < t->min_split || n < 2 * t->min_leaf || node.depth >= t->max_depth)
        return hf_write_leaf(t, r, tree, v, weight);
    const uint64_t key = v ? hf_draw_key(hf_philox(node.key, 0, HF_STREAM_CHILDREN), node.side) : node.key;
    const hf_cut cut = hf_best_cut(t, r, &node, key, weight);
    if (hf_has_stopped(t->watch)) return 0;
    if (cut.column < 0) return hf_write_leaf(t, r, tree, v, weight);
    const double base = hf_node_score(t->criterion, r->total, t->n_outputs, weight);
    const double low = t->high[cut.column * t->n_codes + cut.low], high = t->low[cut.column * t->n_codes + cut.high];
    const double threshold = single ? hf_between_f32(low, high) : hf_between_f64(low, high);

    /* The stump starts at w.x = x[column] - threshold. */
    memset(s->w, 0, (size_t)(o->rows.n_blocks * HF_LANES) * (single ? 4 : 8));
    if (single) {
        ((float *)s->w)[cut.column] = 1;
        ((float *)s->w)[F] = (float)threshold;
    } else {
        ((double *)s->w)[cut.column] = 1;
        ((double *)s->w)[F] = threshold;
    }
    hf_members m = {
        n, r->sample + node.first, t->labels ? r->label + node.first : NULL, t->targets, r->weight + node.first,
        NULL, NULL
    };
    if (o->oc1) {
        double *w = s->start;
        memset(w, 0, (F + 1) * sizeof *w);
        w[cut.column] = 1, w[F] = threshold;
        hf_fit_oc1(t, r, &node, o->oc1, key, search, w);
        for (int64_t j = 0; j <= F; ++j) {
            if (single) ((float *)s->w)[j] = (float)w[j];
            else ((double *)s->w)[j] = w[j];
        }
    } else {
        hf_fit_stump(o->path, single, &o->rows, &m, &o->schedule, t->n_outputs, key, s, NULL, t->watch);
    }
    if (hf_stopped(t->watch)) return 0;

    /* The sides of the split, computed as in a prediction. */
    int64_t n_entries = 0;
    for (int64_t j = 0; j < F; ++j) n_entries += (single ? ((float *)s->w)[j] : ((double *)s->w)[j]) != 0;
    if (tree->n_entries + n_entries > tree->entry_room) {
        const int64_t capacity = 2 * (tree->n_entries + n_entries);
        if (!hf_widen((void **)&tree->index, capacity, 4) || !hf_widen(&grown->weight, capacity, single ? 4 : 8)) return 0;
        tree->entry_room = capacity;
    }
    uint32_t *index = tree->index + tree->n_entries;
    void *factor = (char *)grown->weight + tree->n_entries * (single ? 4 : 8);
    n_entries = 0;
    for (int64_t j = 0; j < F; ++j) {
        const double w = single ? ((float *)s->w)[j] : ((double *)s->w)[j];
        if (w == 0) continue;
        index[n_entries] = (uint32_t)j;
        if (single) ((float *)factor)[n_entries++] = (float)w;
        else ((double *)factor)[n_entries++] = w;
    }
    double limit;
    if (single) {
        limit = nextafterf(((float *)s->w)[F], -INFINITY);
        hf_values_f32(o->rows.x, F, m.sample, n, index, factor, n_entries, values);
        for (int64_t i = 0; i < n; ++i) goes_right[i] = ((float *)values)[i] > (float)limit;
    } else {
        limit = nextafter(((double *)s->w)[F], -INFINITY);
        hf_values_f64(o->rows.x, F, m.sample, n, index, factor, n_entries, values);
        for (int64_t i = 0; i < n; ++i) goes_right[i] = ((double *)values)[i] > limit;
    }
    /* Where the stump leaves a side empty, as w = 0 does, the univariate split stays. */
    double score = n_entries ? hf_score_sides(t, r, &node, goes_right, weight) : -INFINITY;
    if (score == -INFINITY) {
        const int64_t at = cut.column * t->n;
        for (int64_t i = 0; i < n; ++i) goes_right[i] = hf_code(t, at, m.sample[i]) > cut.low;
        score = cut.score;
        limit = threshold;
        n_entries = 0;
    }
    if ((score - base) / *root_weight < t->min_decrease) return hf_write_leaf(t, r, tree, v, weight);
    tree->feature[v] = n_entries ? -2 : (int32_t)cut.column;
    tree->threshold[v] = limit;
    tree->n_entries += n_entries;
    const int64_t middle = hf_part(r, &node, goes_right);
    tree->gain[v] = score > base ? score - base : 0.0;
    tree->left[v] = (int32_t)tree->n_nodes;
    const hf_pending left = {node.first, middle, key, node.depth + 1, 0};
    const hf_pending right = {middle, node.last, key, node.depth + 1, 1};
    return hf_put(r, tree, left) && hf_put(r, tree, right);
}

/* Grows tree number `number`; `counts` counts how often each sample was drawn, NULL for once. Returns 0 if memory is out,
   or where the call is to end. */
static int hf_grow_oblique(const hf_oblique_task *o, int64_t number, const int32_t *counts, hf_oblique_tree *grown) {
    const hf_task *t = &o->univariate;
    hf_workspace r;
    hf_stump_workspace s;
    hf_oc1_workspace search;
    memset(&search, 0, sizeof search);
    memset(&r, 0, sizeof r);
    memset(&s, 0, sizeof s);
    memset(grown, 0, sizeof *grown);
    int fine = hf_start_tree(t, &r, counts);
    if (fine && r.n == 0) { /* only samples without weight were drawn: the tree takes all */
        hf_free_workspace(&r);
        memset(&r, 0, sizeof r);
        fine = hf_start_tree(t, &r, NULL);
    }
    int8_t *goes_right = malloc(r.n + 1);
    void *values = malloc((r.n + 1) * 8);
    fine = fine && goes_right && values && hf_make_stump(&s, r.n, o->rows.n_blocks, t->n_outputs, t->single);
    if (o->oc1) fine = fine && hf_make_oc1(&search, o->rows.x, t->n_columns, 1, t->single, r.n);
    const hf_pending root = {0, r.n, hf_tree_key(t->seed, number), 0, 0};
    double root_weight = 0;
    fine = fine && hf_put(&r, &grown->tree, root);
    for (int64_t v = 0; fine && v < grown->tree.n_nodes; ++v)
        fine = hf_split_oblique(o, &r, &s, &search, goes_right, values, grown, v, &root_weight);
    hf_free_workspace(&r);
    hf_free_stump(&s);
    hf_free_oc1(&search);
    free(goes_right), free(values);
    if (!fine) hf_free_oblique(grown);
    return fine;
}

#endif
