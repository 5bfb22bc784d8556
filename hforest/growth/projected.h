/* Candidates that are random projections of x. A value is summed in float64 in the order of
   its entries and rounded once to the type of x, as a walk down the grown tree does it. Where all of x is whole
   numbers and all sums are exact, values are kept as integers, which sort in fewer passes. */
#ifndef HFOREST_GROWTH_PROJECTED_H
#define HFOREST_GROWTH_PROJECTED_H
#include "growth/columns.h"
#include "growth/compared.h"
#include "growth/floats.h"
#include "growth/values.h"

enum {
    HF_ATOMS_FIRST = 4, /* candidates that are drawn at a time for fewer samples than */
    HF_FIRST_BELOW = 8, /* this */
    HF_ADDED = 6        /* entries up to which adding them up is cheaper than four look-ups in a larger table */
};

static int hf_make_room(const hf_task *t, hf_workspace *r, int64_t room) {
    const int64_t most = t->atoms->most, size = t->single || t->whole ? 4 : 8;
    /* A vector writes up to 16 numbers behind the last. */
    r->projected = malloc((room + 16) * size), r->best_projected = malloc((room + 16) * size);
    r->index = malloc(most * 4), r->factor = malloc(most * 4);
    if (!t->single && !t->whole) {
        r->order = malloc(room * 8), r->order2 = malloc(room * 8);
        r->place = malloc(room * 4), r->place2 = malloc(room * 4);
        if (!r->order || !r->order2 || !r->place || !r->place2) return 0;
    }
    if (hf_bodies_of(t->path)) {
        r->slot = malloc(room * 4), r->bucket = malloc(room + 64), r->code = malloc((room + 16) * 4);
        if (!r->slot || !r->bucket || !r->code) return 0;
    }
#if HF_X86
    if (t->path == HF_PATH_AVX512) {
        r->slot = malloc(room * 4), r->bucket = malloc(room + 15), r->place_in_block = malloc(HF_MOST_IN_BLOCK * 4);
        r->present = malloc(((t->n > HF_MOST_IN_BLOCK ? t->n : HF_MOST_IN_BLOCK) / 64 + 1) * 8);
        if (!r->slot || !r->bucket || !r->present || !r->place_in_block || !hf_make_blocks(t, r)) return 0;
    }
#endif
    return r->projected && r->best_projected && r->index && r->factor;
}

/* Values of one candidate for samples of a node. */
#define HF_PROJECT(NAME, ELEMENT, SUM, FACTOR, VALUE)                                                           \
    static void NAME(                                                                                           \
        const ELEMENT *x, int64_t n_features, const uint32_t *sample, int64_t n, const uint32_t *index,         \
        const float *factor, int64_t count, VALUE *value                                                        \
    ) {                                                                                                         \
        for (int64_t i = 0; i < n; ++i) {                                                                       \
            const ELEMENT *row = x + (int64_t)sample[i] * n_features;                                           \
            SUM sum = 0;                                                                                        \
            /* Rows lie far apart, where no processor foresees them. */                                         \
            if (i + HF_ROWS_AHEAD < n) HF_PREFETCH(x + (int64_t)sample[i + HF_ROWS_AHEAD] * n_features + index[0]); \
            for (int64_t e = 0; e < count; ++e) sum += (FACTOR)factor[e] * (SUM)row[index[e]];                  \
            value[i] = (VALUE)sum;                                                                              \
        }                                                                                                       \
    }
HF_PROJECT(hf_project_f32, float, double, double, float)
HF_PROJECT(hf_project_f64, double, double, double, double)
/* Whole numbers: the same sums, without rounding. */
HF_PROJECT(hf_project_whole_f32, float, int32_t, int32_t, int32_t)
HF_PROJECT(hf_project_whole_f64, double, int32_t, int32_t, int32_t)
#undef HF_PROJECT

/* Whether a sample's numbers are whole (1) and below 256 and not negative (2), and no sum of some of them leaves
   float32's whole numbers; 0 otherwise. Fills `small` as far as numbers fit. */
#define HF_WHOLE_ROW(REAL, NAME)                                                                                \
    static int NAME(const REAL *x, int64_t n_features, uint8_t *small) {                                        \
        double size = 0;                                                                                        \
        int fits = 1;                                                                                           \
        for (int64_t i = 0; i < n_features; ++i) {                                                              \
            if (!(x[i] >= -16777216 && x[i] <= 16777216) || x[i] != (REAL)(int32_t)x[i]) return 0;              \
            size += x[i] < 0 ? -x[i] : x[i];                                                                    \
            fits &= x[i] >= 0 && x[i] < 256;                                                                    \
            small[i] = (uint8_t)(int32_t)x[i];                                                                  \
        }                                                                                                       \
        return size > 16777216 ? 0 : 1 + fits;                                                                  \
    }
HF_WHOLE_ROW(float, hf_whole_row_f32)
HF_WHOLE_ROW(double, hf_whole_row_f64)
#undef HF_WHOLE_ROW

/* Fills one sample's table of sums over corners: a plane of (shape[1] + 1, shape[2] + 1) for each channel and plane,
   its first row and column 0. The numbers are whole. Sums are unsigned and may run over: a patch's sum, a difference
   of them, is right if it fits by itself. So 16 bits do for patches whose sums stay below 65536. */
#define HF_FILL_TABLE(REAL, SUM, NAME)                                                                          \
    static void NAME(const hf_atoms *a, const REAL *x, SUM *table) {                                            \
        const int64_t step = a->shape[2] + 1, plane = (a->shape[1] + 1) * step;                                 \
        for (int64_t c = 0; c < a->channels; ++c)                                                               \
            for (int64_t k = 0; k < a->shape[0]; ++k, table += plane) {                                         \
                memset(table, 0, step * sizeof *table);                                                         \
                for (int64_t i = 0; i < a->shape[1]; ++i) {                                                     \
                    const REAL *row = x + (k * a->shape[1] + i) * a->shape[2] * a->channels + c;                \
                    SUM *above = table + i * step, *here = above + step, sum = 0;                               \
                    here[0] = 0;                                                                                \
                    for (int64_t j = 0; j < a->shape[2]; ++j) {                                                 \
                        sum = (SUM)(sum + (SUM)(int32_t)row[j * a->channels]);                                  \
                        here[j + 1] = (SUM)(above[j + 1] + sum);                                                \
                    }                                                                                           \
                }                                                                                               \
            }                                                                                                   \
    }
HF_FILL_TABLE(float, uint16_t, hf_fill_table_f32_16)
HF_FILL_TABLE(float, uint32_t, hf_fill_table_f32_32)
HF_FILL_TABLE(double, uint16_t, hf_fill_table_f64_16)
HF_FILL_TABLE(double, uint32_t, hf_fill_table_f64_32)
#undef HF_FILL_TABLE

/* Sums over a patch: four look-ups a plane. DIFFERENCE is what a patch's sum, modulo the table's range, stands for. */
#define HF_PROJECT_TABLE(SUM, DIFFERENCE, NAME)                                                                 \
    static void NAME(const hf_task *t, hf_patch p, const uint32_t *sample, int64_t n, int32_t *value) {         \
        const hf_atoms *a = t->atoms;                                                                           \
        const int64_t step = a->shape[2] + 1, plane = (a->shape[1] + 1) * step;                                 \
        const int64_t all = a->channels * a->shape[0] * plane, wide = p.size[2];                                \
        const int64_t top = p.corner[1] * step + p.corner[2], bottom = top + p.size[1] * step;                  \
        const SUM *start = (const SUM *)t->table + (p.channel * a->shape[0] + p.corner[0]) * plane;             \
        for (int64_t i = 0; i < n; ++i) {                                                                       \
            const SUM *at = start + (int64_t)sample[i] * all;                                                   \
            int32_t sum = 0;                                                                                    \
            if (i + HF_ROWS_AHEAD < n) {                                                                        \
                const SUM *ahead = start + (int64_t)sample[i + HF_ROWS_AHEAD] * all;                            \
                HF_PREFETCH(ahead + top);                                                                       \
                HF_PREFETCH(ahead + bottom);                                                                    \
            }                                                                                                   \
            for (int64_t k = 0; k < p.size[0]; ++k, at += plane)                                                \
                sum += (DIFFERENCE)(SUM)(at[bottom + wide] - at[bottom] - at[top + wide] + at[top]);            \
            value[i] = sum;                                                                                     \
        }                                                                                                       \
    }
HF_PROJECT_TABLE(uint16_t, uint16_t, hf_project_table_16)
HF_PROJECT_TABLE(uint32_t, int32_t, hf_project_table_32)
#undef HF_PROJECT_TABLE

/* Values of an atom for a node's samples. Entries are written only where they are added up: of most candidates nobody asks for
   them again. */
static void hf_project_atom(const hf_task *t, hf_workspace *r, const hf_pending *node, hf_atom atom, void *value) {
    const uint32_t *sample = r->sample + node->first;
    const int64_t n = node->last - node->first, n_features = t->atoms->n_features;
    int64_t count;
    if (t->table) {
        const hf_patch patch = hf_draw_patch(t->atoms, atom);
        count = patch.size[0] * patch.size[1] * patch.size[2];
        int looked_up = count > HF_ADDED;
#if HF_X86
        looked_up = looked_up && !hf_is_in_order(t, &r->columns, n, count, HF_ADDED);
#endif
        if (looked_up) {
            if (t->narrow) hf_project_table_16(t, patch, sample, n, value);
            else hf_project_table_32(t, patch, sample, n, value);
            return;
        }
        hf_patch_entries(t->atoms, patch, r->index, r->factor);
    } else {
        count = hf_draw_atom(t->atoms, atom, r->index, r->factor);
    }
#if HF_X86
    const int64_t looked_up = t->table && count > HF_ADDED ? HF_ADDED : count;
    if (hf_project_by_vectors(t, r, sample, n, r->index, r->factor, count, looked_up, value)) return;
#endif
    if (t->small)
        hf_sum_bytes(t->small, 1, n_features, sample, n, r->index, r->factor, count, value);
    else if (t->whole && t->single)
        hf_project_whole_f32(t->x, n_features, sample, n, r->index, r->factor, count, value);
    else if (t->whole)
        hf_project_whole_f64(t->x, n_features, sample, n, r->index, r->factor, count, value);
    else if (t->single)
        hf_project_f32(t->x, n_features, sample, n, r->index, r->factor, count, value);
    else
        hf_project_f64(t->x, n_features, sample, n, r->index, r->factor, count, value);
}

/* Keys of the values in r->projected, in order, codes being the values' bits or (float64) ranks; NULL where all are
   equal. */
static const uint64_t *hf_code_values(const hf_task *t, hf_workspace *r, const hf_pending *node) {
    const int64_t n = node->last - node->first;
    const uint32_t *payload = r->payload + node->first;
    uint64_t *key = r->key;
    if (t->single || t->whole) {
        uint32_t lowest = UINT32_MAX, highest = 0;
        for (int64_t i = 0; i < n; ++i) {
            const uint32_t code = hf_code_at(t, r->projected, i);
            lowest = code < lowest ? code : lowest;
            highest = code > highest ? code : highest;
            key[i] = (uint64_t)code << 32 | payload[i];
        }
        return lowest == highest ? NULL : hf_sort_codes_64(key, r->key2, n, lowest, highest);
    }
    const double *value = r->projected;
    for (int64_t i = 0; i < n; ++i) {
        r->order[i] = hf_ordered(value[i]);
        r->place[i] = (uint32_t)i;
    }
    const int swapped = hf_sort(r->order, r->place, r->order2, r->place2, n, t->watch);
    if (swapped < 0) return NULL;
    const uint64_t *order = swapped ? r->order2 : r->order;
    const uint32_t *place = swapped ? r->place2 : r->place;
    r->sorted_place = place;
    uint64_t rank = 0;
    for (int64_t i = 0; i < n; ++i) {
        rank += i && order[i] != order[i - 1];
        key[i] = rank << 32 | payload[place[i]];
    }
    return rank ? key : NULL;
}

/* The value with this code; a rank is looked up among the values in order. */
static double hf_value_of(const hf_task *t, const hf_workspace *r, const uint64_t *sorted, uint32_t code) {
    if (t->whole || t->single) return hf_value_at(t, code);
    int64_t i = code; /* equal values share a rank, so no value lies in front of its rank */
    while ((uint32_t)(sorted[i] >> 32) != code) ++i;
    return ((const double *)r->projected)[r->sorted_place[i]];
}

HF_INLINE int hf_is_above(const hf_task *t, const hf_workspace *r, int64_t i, double below) {
    if (t->whole) return ((const int32_t *)r->best_projected)[i] > below;
    return (t->single ? ((const float *)r->best_projected)[i] : ((const double *)r->best_projected)[i]) > below;
}

/* The best cut of the values in r->projected where it is better than the `best` so far. */
static hf_cut hf_cut_values(const hf_task *t, hf_workspace *r, const hf_pending *node, double weight, const hf_cut *best) {
    const int64_t n = node->last - node->first;
    hf_cut cut = {best->score, -1, 0, 0, 0, 0, 0};
    const uint64_t *sorted = hf_code_values(t, r, node);
    if (!sorted) return cut;
    if (r->kind == HF_FLOATS)
        hf_sweep_floats(t, r, sorted, n, weight, &cut);
    else
        hf_sweep_64(sorted, n, r->count, r->count_left, t->n_outputs, (uint64_t)weight, t->min_leaf, &cut);
    if (cut.score > best->score) {
        cut.below = hf_value_of(t, r, sorted, cut.low);
        cut.above = hf_value_of(t, r, sorted, cut.high);
    }
    return cut;
}

/* The best of the candidates `draws`, n of them, where it is better than `best`; r->best_projected gets its values. */
static void hf_try_atoms(
    const hf_task *t, hf_workspace *r, const hf_pending *node, const hf_atom_draws *draws, int n, double weight, void *bins,
    hf_values *values_of, hf_cut *best
) {
    const int is_large = node->last - node->first > HF_WORK / HF_ATOMS;
    for (int i = 0; i < n; ++i) {
        if (is_large && hf_stopped(t->watch)) return;
        const hf_atom atom = {draws->key[i], draws, i};
        hf_project_atom(t, r, node, atom, r->projected);
        hf_cut cut = {best->score, -1, 0, 0, 0, 0, 0};
        int known = 0;
        if (values_of) known = hf_score_values(t, r, values_of, &cut);
#if HF_X86
        else if (bins) known = hf_cut_buckets(t, r, node, bins, &cut);
#endif
        if (!known) HF_TAKE(HF_BY_SORTING), cut = hf_cut_values(t, r, node, weight, best);
        if (!(cut.score > best->score)) continue;
        *best = cut;
        best->column = 0;
        r->best_atom = atom.key;
        void *values = r->projected;
        r->projected = r->best_projected, r->best_projected = values;
        if (hf_is_perfect(r, best->score, weight)) return;
    }
}

#if HF_X86
/* As hf_try_atoms, for all of them at once. */
HF_AVX512_CODE static void hf_compare_atoms(
    const hf_task *t, hf_workspace *r, const hf_pending *node, const hf_atom_draws *draws, int n, hf_compared *compared,
    hf_cut *best
) {
    int32_t value[HF_MOST_COMPARED + 16]; /* as in hf_make_room */
    compared->room = 1 << draws->log_room;
    for (int c = 0; c < n; ++c) {
        const hf_atom atom = {draws->key[c], draws, c};
        hf_project_atom(t, r, node, atom, value);
        for (int i = 0; i < compared->n; ++i) compared->value.whole[compared->place[i] * compared->room + c] = value[i];
    }
    /* Lanes to spare repeat the first candidate. */
    for (int c = n; c < compared->room; ++c)
        for (int i = 0; i < compared->n; ++i)
            compared->value.whole[i * compared->room + c] = compared->value.whole[i * compared->room];
    const int found = hf_judge_compared(t, r, compared, n, best);
    if (found < 0) return;
    best->column = 0;
    r->best_atom = draws->key[found];
}
#endif

/* The best of n_drawn projections: of equal scores the first drawn, in it the lowest cut. */
static hf_cut hf_best_projection(const hf_task *t, hf_workspace *r, const hf_pending *node, uint64_t key, double weight) {
    hf_cut best = {-INFINITY, -1, 0, 0, 0, 0, 0};
    const int64_t n = node->last - node->first;
    hf_atom_draws draws;
    void *bins = NULL;
    hf_values room_of, *values_of = NULL;
    if (hf_is_valued(t, r, n, weight) && hf_start_values(t, r, node, weight, &room_of)) values_of = &room_of;
#if HF_X86
    hf_bins room __attribute__((aligned(64)));
    hf_compared compared __attribute__((aligned(64)));
    const int few = n > 2 && hf_is_compared(t, r, n, weight);
    hf_find_columns(t, r, node);
    if (few) hf_start_compared(r, node, weight, &compared);
    else if (hf_is_bucketed(t, r, n, weight) && hf_start_buckets(t, r, node, weight, &room)) bins = &room;
#endif
    /* Of few samples one of the first candidates may part all classes; two samples, any that varies. */
    const int64_t most = n == 2 ? 1 : n < HF_FIRST_BELOW ? HF_ATOMS_FIRST : HF_ATOMS;
    const int path = n == 2 ? HF_PATH_PLAIN : t->path;
    int64_t n_steps = 0;
    for (int64_t first = 0; first < t->n_drawn && !hf_is_perfect(r, best.score, weight); first += most) {
        const int n_atoms = t->n_drawn - first < most ? (int)(t->n_drawn - first) : (int)most;
        if (hf_stopped_after(t->watch, &n_steps, n * n_atoms)) break;
        hf_draw_atoms(path, t->atoms, key, (uint64_t)first, n_atoms, &draws);
#if HF_X86
        if (few) {
            hf_compare_atoms(t, r, node, &draws, n_atoms, &compared, &best);
            continue;
        }
#endif
        hf_try_atoms(t, r, node, &draws, n_atoms, weight, bins, values_of, &best);
    }
    return best;
}

/* Writes the best projection into node v, a feature where it is one; 0 if memory is out. */
static int hf_keep_projection(const hf_task *t, hf_workspace *r, hf_tree *tree, int64_t v) {
    const hf_atom atom = {r->best_atom, NULL, 0};
    const int64_t count = hf_draw_atom(t->atoms, atom, r->index, r->factor);
    if (count == 1 && r->factor[0] == 1) {
        tree->feature[v] = (int32_t)r->index[0];
        return 1;
    }
    tree->feature[v] = -2;
    if (tree->n_entries + count > tree->entry_room) {
        const int64_t room = 2 * tree->entry_room + count + 256;
        if (!hf_widen((void **)&tree->index, room, 4) || !hf_widen((void **)&tree->weight, room, 4)) return 0;
        tree->entry_room = room;
    }
    memcpy(tree->index + tree->n_entries, r->index, count * sizeof *tree->index);
    memcpy(tree->weight + tree->n_entries, r->factor, count * sizeof *tree->weight);
    tree->n_entries += count;
    return 1;
}

#endif
