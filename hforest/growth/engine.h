/* Grows one tree, depth-first, on coded candidates or on random projections.

   Candidates are columns of codes: whole numbers in the order of the values they stand for (ranks, or bins); or
   projections (atoms.h), whose values are computed for a node's samples and coded there and then. A node draws
   candidates, orders its samples' codes, and sweeps all cuts. What a node draws depends on its key alone,
   which is drawn from its parent's (philox.h), so no order of growth can change a tree. Samples of a node stay in
   ascending order. */
#ifndef HFOREST_GROWTH_ENGINE_H
#define HFOREST_GROWTH_ENGINE_H
#include "growth/coded.h"
#include "growth/part.h"
#include "growth/projected.h"

static uint64_t hf_tree_key(uint64_t seed, int64_t tree) { return hf_draw_key(hf_philox(seed, (uint64_t)tree, 0), 0); }

/* How often each sample is drawn, n times with replacement. */
static void hf_draw_bag(uint64_t seed, int64_t tree, int64_t n, int32_t *count) {
    const uint64_t key = hf_tree_key(seed, tree);
    memset(count, 0, n * sizeof *count);
    for (int64_t i = 0; i < n; i += 4) {
        const hf_draw draw = hf_philox(key, (uint64_t)(i / 4), HF_STREAM_BAG);
        for (int64_t j = i; j < n && j < i + 4; ++j) ++count[hf_below(draw.word[j - i], (uint32_t)n)];
    }
}

/* A node of the tree to come, a leaf until it is split; 0 if memory is out. */
static int hf_add_node(hf_tree *tree) {
    if (tree->n_nodes == tree->node_room) {
        const int64_t room = tree->node_room ? 2 * tree->node_room : 256;
        if (!hf_widen((void **)&tree->feature, room, 4) || !hf_widen((void **)&tree->left, room, 4) ||
            !hf_widen((void **)&tree->threshold, room, 8) || !hf_widen((void **)&tree->gain, room, 8) ||
            !hf_widen((void **)&tree->start, room, 8))
            return 0;
        tree->node_room = room;
    }
    const int64_t v = tree->n_nodes++;
    tree->feature[v] = -1;
    tree->left[v] = 0;
    tree->threshold[v] = tree->gain[v] = 0;
    return 1;
}

/* Puts a node off until its turn. */
static int hf_put(hf_workspace *r, hf_tree *tree, hf_pending node) {
    if (r->n_open == r->open_room) {
        const int64_t room = r->open_room ? 2 * r->open_room : 256;
        if (!hf_widen((void **)&r->open, room, sizeof(hf_pending))) return 0;
        r->open_room = room;
    }
    r->open[r->n_open++] = node;
    return hf_add_node(tree);
}

/* Bits of a weight in a payload. */
HF_INLINE int hf_weight_bits(const hf_workspace *r) { return r->kind == HF_INT32_KEYS ? 8 : 16; }

/* The class of sample i of the tree. */
HF_INLINE int32_t hf_label_of(const hf_workspace *r, int64_t i) {
    if (r->kind == HF_FLOATS) return r->label[i];
    return (int32_t)(r->payload[i] >> hf_weight_bits(r));
}

/* Whether all samples of a node are of one class, or have the same targets. */
static int hf_is_pure(const hf_task *t, const hf_workspace *r, const hf_pending *node) {
    if (t->labels) {
        const int32_t first = hf_label_of(r, node->first);
        for (int64_t i = node->first + 1; i < node->last; ++i)
            if (hf_label_of(r, i) != first) return 0;
        return 1;
    }
    const double *first = t->targets + r->sample[node->first] * t->n_outputs;
    for (int64_t i = node->first + 1; i < node->last; ++i) {
        const double *row = t->targets + r->sample[i] * t->n_outputs;
        for (int64_t k = 0; k < t->n_outputs; ++k)
            if (row[k] != first[k]) return 0;
    }
    return 1;
}

/* Sums of a node in r->total (or r->count); its weight. */
static double hf_sum_up(const hf_task *t, hf_workspace *r, const hf_pending *node) {
    const int64_t n = node->last - node->first;
    if (r->kind != HF_FLOATS) {
        const uint32_t *p = r->payload + node->first;
        const int bits = hf_weight_bits(r);
        uint64_t sum = 0;
        memset(r->count, 0, t->n_outputs * sizeof *r->count);
        for (int64_t i = 0; i < n; ++i) {
            const uint32_t w = p[i] & ((1u << bits) - 1);
            r->count[p[i] >> bits] += w;
            sum += w;
        }
        return (double)sum;
    }
    double sum = 0;
    for (int64_t k = 0; k < t->n_outputs; ++k) r->total[k] = 0;
    for (int64_t i = node->first; i < node->last; ++i) {
        const double w = r->weight[i];
        sum += w;
        if (t->labels) {
            r->total[r->label[i]] += w;
        } else {
            const double *row = t->targets + r->sample[i] * t->n_outputs;
            for (int64_t k = 0; k < t->n_outputs; ++k) r->total[k] += w * row[k];
        }
    }
    if (!t->labels) {
        /* Sums from here on are of targets minus their mean: less is lost in squares. */
        for (int64_t k = 0; k < t->n_outputs; ++k) {
            r->mean[k] = r->total[k] / sum;
            r->total[k] = 0;
        }
        for (int64_t i = node->first; i < node->last; ++i)
            for (int64_t k = 0; k < t->n_outputs; ++k)
                r->total[k] += r->weight[i] * (t->targets[r->sample[i] * t->n_outputs + k] - r->mean[k]);
    }
    return sum;
}

static int hf_write_leaf(const hf_task *t, hf_workspace *r, hf_tree *tree, int64_t v, double weight) {
    if (tree->n_rows == tree->row_room) {
        const int64_t room = tree->row_room ? 2 * tree->row_room : 128;
        if (!hf_widen(&tree->value, room, t->n_outputs * (t->single ? 4 : 8))) return 0;
        tree->row_room = room;
    }
    const int64_t at = tree->n_rows * t->n_outputs;
    for (int64_t k = 0; k < t->n_outputs; ++k) {
        const double value = !t->labels ? r->mean[k] : (r->kind == HF_FLOATS ? r->total[k] : r->count[k]) / weight;
        if (t->single) ((float *)tree->value)[at + k] = (float)value;
        else ((double *)tree->value)[at + k] = value;
    }
    tree->left[v] = (int32_t)tree->n_rows++;
    ++tree->n_leaves;
    return 1;
}

/* Moves samples with a code of at most `cut` to the front of the node, in order; how many they are. */
static int64_t hf_partition(const hf_task *t, hf_workspace *r, const hf_pending *node, hf_cut found) {
    const int64_t column = found.column;
    const uint32_t cut = found.low;
#if HF_X86
    if (hf_is_parted_by_vectors(t, r)) return hf_part_by_vectors(t, r, node, found);
#endif
    const int64_t at = t->atoms ? 0 : hf_codes(t, column);
    int64_t left = node->first, right = 0;
    for (int64_t i = node->first; i < node->last; ++i) {
        const uint32_t s = r->sample[i];
        const int goes_right = t->atoms ? hf_is_above(t, r, i - node->first, found.below) : hf_code(t, at, s) > cut;
        r->sample2[right] = r->sample[left] = s;
        if (r->kind == HF_FLOATS) {
            r->weight2[right] = r->weight[left] = r->weight[i];
            r->label2[right] = r->label[left] = r->label[i];
        } else {
            r->payload2[right] = r->payload[left] = r->payload[i];
        }
        left += !goes_right;
        right += goes_right;
    }
    memcpy(r->sample + left, r->sample2, right * sizeof *r->sample);
    if (r->kind == HF_FLOATS) {
        memcpy(r->weight + left, r->weight2, right * sizeof *r->weight);
        memcpy(r->label + left, r->label2, right * sizeof *r->label);
    } else {
        memcpy(r->payload + left, r->payload2, right * sizeof *r->payload);
    }
    return left;
}

/* Gain of a completely random cut, from the sums of its left side. */
static double hf_score_of(const hf_task *t, hf_workspace *r, const hf_pending *node, int64_t middle, double weight) {
    double left_weight = 0;
    for (int64_t k = 0; k < t->n_outputs; ++k) r->left[k] = 0;
    for (int64_t i = node->first; i < middle; ++i) {
        if (r->kind == HF_FLOATS) {
            hf_add(t, r, i, r->left);
            left_weight += r->weight[i];
        } else {
            const uint32_t p = r->payload[i], w = p & ((1u << hf_weight_bits(r)) - 1);
            r->left[p >> hf_weight_bits(r)] += w;
            left_weight += w;
        }
    }
    const double right_weight = weight - left_weight;
    if (!(right_weight > 0 && left_weight > 0)) return -INFINITY;
    for (int64_t k = 0; k < t->n_outputs; ++k)
        r->right[k] = (r->kind == HF_FLOATS ? r->total[k] : r->count[k]) - r->left[k];
    return hf_node_score(t->criterion, r->left, t->n_outputs, left_weight) +
           hf_node_score(t->criterion, r->right, t->n_outputs, right_weight);
}

/* What a sample weighs in a tree. */
HF_INLINE double hf_weight_of(const hf_task *t, const int32_t *bag, int64_t i) {
    return t->weight[i] * (bag ? bag[i] : 1);
}

/* Fills the room with the samples that weigh something; 0 if memory is out. Which do cannot be foreseen: nothing
   branches on it. */
static int hf_start_tree(const hf_task *t, hf_workspace *r, const int32_t *bag) {
    int64_t n = 0;
    double largest = 0, sum = 0;
    int whole = 1;
    for (int64_t i = 0; i < t->n; ++i) {
        const double w = hf_weight_of(t, bag, i);
        n += w > 0;
        sum += w;
        largest = w > largest ? w : largest;
        whole &= w < HF_WHOLE && w == (double)(int64_t)w;
    }
    r->n = n;
    const int integers = !t->in_floats && t->labels && t->criterion == HF_GINI && whole && sum < HF_WHOLE;
    if (integers && largest < 256 && t->n_outputs <= 256 && t->width <= 2 && !t->atoms) r->kind = HF_INT32_KEYS;
    else if (integers && largest < 65536 && t->n_outputs <= 65536) r->kind = HF_INT64_KEYS;
    else r->kind = HF_FLOATS;
    /* A place behind the last takes what samples without weight write. */
    const int64_t size = r->kind == HF_INT32_KEYS ? 4 : 8, room = n + 1, k = t->n_outputs;
    r->sample = malloc(room * 4), r->sample2 = malloc(room * 4 + 64);
    r->payload = malloc(room * 4), r->payload2 = malloc(room * 4 + 64);
    r->key = malloc(room * size), r->key2 = malloc(room * size);
    r->column = malloc(t->n_columns * 4 + 1), r->drawn = malloc(t->n_columns * 4 + 1);
    r->left = malloc(k * 8), r->right = malloc(k * 8);
    if (!r->sample || !r->sample2 || !r->payload || !r->payload2 || !r->key || !r->key2 || !r->column || !r->drawn ||
        !r->left || !r->right)
        return 0;
    if (r->kind == HF_FLOATS) {
        r->weight = malloc(room * 8), r->weight2 = malloc(room * 8);
        r->label = malloc(room * 4), r->label2 = malloc(room * 4);
        r->total = malloc(k * 8), r->mean = malloc(k * 8);
        r->left_term = malloc(k * 8), r->right_term = malloc(k * 8);
        if (!r->weight || !r->weight2 || !r->label || !r->label2 || !r->total || !r->mean || !r->left_term ||
            !r->right_term)
            return 0;
        if (t->labels && t->criterion == HF_ENTROPY && whole && sum < HF_TERMS) {
            r->term = malloc(((size_t)sum + 1) * 8);
            if (!r->term) return 0;
            for (int64_t a = 0; a <= (int64_t)sum; ++a) r->term[a] = hf_xlogx((double)a);
        }
    } else {
        r->count = malloc(k * 4), r->count_left = malloc(k * 4);
        if (!r->count || !r->count_left) return 0;
    }
    if (t->atoms && !hf_make_room(t, r, room)) return 0;
    int64_t at = 0;
    for (int64_t i = 0; i < t->n; ++i) {
        const double w = hf_weight_of(t, bag, i);
        /* With labels in the payload a sample is only ever a place among codes. */
        r->sample[at] = (uint32_t)(t->base ? t->base[i] : i);
        if (r->kind != HF_FLOATS) {
            r->payload[at] = (uint32_t)t->labels[i] << hf_weight_bits(r) | (uint32_t)w;
        } else {
            r->payload[at] = (uint32_t)at;
            r->weight[at] = w;
            r->label[at] = t->labels ? t->labels[i] : 0;
        }
        at += w > 0;
    }
    for (int64_t f = 0; f < t->n_columns; ++f) r->column[f] = (uint32_t)f;
    return 1;
}

static int hf_split_or_leave(
    const hf_task *t, hf_workspace *r, hf_tree *tree, hf_pending node, double root_weight, double *weight_of_root
) {
    const int64_t v = node.at;
    const int64_t n = node.last - node.first;
    tree->start[v] = tree->n_entries;
    const int pure = hf_is_pure(t, r, &node);
    if (pure && t->labels) {
        tree->left[v] = -1 - hf_label_of(r, node.first);
        ++tree->n_leaves;
        return 1;
    }
    const double weight = hf_sum_up(t, r, &node);
    if (v == 0) *weight_of_root = root_weight = weight;
    if (pure || n < 2 || n < t->min_split || n < 2 * t->min_leaf || node.depth >= t->max_depth)
        return hf_write_leaf(t, r, tree, v, weight);
    /* Drawn only now: most nodes are leaves. */
    const uint64_t key = v ? hf_draw_key(hf_philox(node.key, 0, HF_STREAM_CHILDREN), node.side) : node.key;
    hf_cut cut = t->atoms ? hf_best_projection(t, r, &node, key, weight) : hf_best_cut(t, r, &node, key, weight);
    if (cut.column < 0) return hf_write_leaf(t, r, tree, v, weight);
    double base;
    if (r->kind == HF_FLOATS) {
        base = hf_node_score(t->criterion, r->total, t->n_outputs, weight);
    } else {
        for (int64_t k = 0; k < t->n_outputs; ++k) r->right[k] = r->count[k];
        base = hf_node_score(t->criterion, r->right, t->n_outputs, weight);
    }
    if (!t->completely_random && (cut.score - base) / root_weight < t->min_decrease)
        return hf_write_leaf(t, r, tree, v, weight);
    const int64_t middle = hf_partition(t, r, &node, cut);
    if (t->completely_random) {
        cut.score = hf_score_of(t, r, &node, middle, weight);
        if (middle - node.first < t->min_leaf || node.last - middle < t->min_leaf || cut.score == -INFINITY ||
            (cut.score - base) / root_weight < t->min_decrease)
            return hf_write_leaf(t, r, tree, v, weight);
    } else {
        const double low = t->atoms ? cut.below : t->high[hf_table(t, cut.column) + cut.low];
        const double high = t->atoms ? cut.above : t->low[hf_table(t, cut.column) + cut.high];
        cut.threshold = t->single ? hf_between_f32(low, high) : hf_between_f64(low, high);
    }
    tree->feature[v] = (int32_t)cut.column;
    if (t->atoms && !hf_keep_projection(t, r, tree, v)) return 0;
    tree->threshold[v] = cut.threshold;
    tree->gain[v] = cut.score > base ? cut.score - base : 0.0;
    tree->left[v] = (int32_t)tree->n_nodes;
    const hf_pending left = {node.first, middle, key, node.depth + 1, 0, tree->n_nodes};
    const hf_pending right = {middle, node.last, key, node.depth + 1, 1, tree->n_nodes + 1};
    /* The left one is put last, and taken first. */
    return hf_put(r, tree, right) && hf_put(r, tree, left);
}

/* Where a tree goes: its part of the arrays of a forest. */
typedef struct {
    int32_t *feature, *left;
    void *threshold, *value, *gain; /* float or double */
    int64_t *start;                 /* or NULL: no projections; the first entry is number first_entry */
    int64_t first_entry;
    int32_t *index;
    void *weight; /* float or double */
} hf_arrays;

HF_INLINE void hf_put_real(void *to, int64_t at, double value, int single) {
    if (single) ((float *)to)[at] = (float)value;
    else ((double *)to)[at] = value;
}

/* Writes a tree in breadth-first order, and so its leaves and projections; 0 if memory is out. */
static int hf_order_tree(const hf_tree *tree, int64_t n_outputs, int single, hf_arrays to) {
    const int64_t n = tree->n_nodes, size = n_outputs * (single ? 4 : 8);
    int32_t *from = malloc(n * sizeof *from);
    if (!from) return 0;
    int64_t known = 1, n_leaves = 0, n_entries = 0;
    from[0] = 0;
    for (int64_t v = 0; v < n; ++v) {
        const int32_t old = from[v];
        to.feature[v] = tree->feature[old];
        hf_put_real(to.threshold, v, tree->threshold[old], single);
        hf_put_real(to.gain, v, tree->gain[old], single);
        if (to.start) to.start[v] = to.first_entry + n_entries;
        if (tree->feature[old] == -1) {
            char *value = (char *)to.value + n_leaves * size;
            if (tree->left[old] >= 0) {
                memcpy(value, (const char *)tree->value + tree->left[old] * size, size);
            } else {
                memset(value, 0, size);
                hf_put_real(value, -1 - tree->left[old], 1, single);
            }
            to.left[v] = (int32_t)n_leaves++;
            continue;
        }
        if (tree->feature[old] == -2) {
            /* Its left child was the next node to be looked at. */
            const int64_t first = tree->start[old], count = tree->start[tree->left[old]] - first;
            memcpy(to.index + n_entries, tree->index + first, count * sizeof *to.index);
            for (int64_t e = 0; e < count; ++e) hf_put_real(to.weight, n_entries + e, tree->weight[first + e], single);
            n_entries += count;
        }
        to.left[v] = (int32_t)known;
        from[known] = tree->left[old];
        from[known + 1] = tree->left[old] + 1;
        known += 2;
    }
    free(from);
    return 1;
}

/* Grows tree number `number`; `bag` counts how often each sample was drawn, NULL for once. 0 if memory is out, or where
   the call is to end. */
static int hf_grow(const hf_task *t, int64_t number, const int32_t *bag, hf_tree *tree) {
    hf_workspace r;
    memset(&r, 0, sizeof r);
    memset(tree, 0, sizeof *tree);
    int fine = hf_start_tree(t, &r, bag);
    if (fine && r.n == 0) { /* only samples without weight were drawn: the tree takes all */
        hf_free_workspace(&r);
        memset(&r, 0, sizeof r);
        fine = hf_start_tree(t, &r, NULL);
    }
    const hf_pending root = {0, r.n, hf_tree_key(t->seed, number), 0, 0, 0};
    double root_weight = 0;
    fine = fine && hf_put(&r, tree, root);
    /* Depth-first: what a subtree looks at, if small, stays in cache. */
    for (int64_t n_steps = 0; fine && r.n_open;) {
        const hf_pending node = r.open[--r.n_open];
        const int64_t steps = (node.last - node.first) * (t->n_drawn + 1);
        fine = hf_split_or_leave(t, &r, tree, node, root_weight, &root_weight) &&
               !hf_stopped_after(t->watch, &n_steps, steps);
    }
    fine = fine && !hf_has_stopped(t->watch);
    hf_free_workspace(&r);
    if (!fine) hf_free_tree(tree);
    return fine;
}

#endif
