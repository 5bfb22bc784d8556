/* Included by engine.h: candidates that are random projections of x. A value is summed in float64 in the order of
   its entries and rounded once to the type of x, as a walk down the grown tree does it. */

static int hf_make_room(const hf_task *t, hf_room *r, int64_t room) {
    const int64_t most = t->atoms->most, size = t->single ? 4 : 8;
    r->projected = malloc(room * size), r->best_projected = malloc(room * size);
    r->index = malloc(most * 4), r->best_index = malloc(most * 4);
    r->factor = malloc(most * 4), r->best_factor = malloc(most * 4);
    if (!t->single) {
        r->order = malloc(room * 8), r->order2 = malloc(room * 8);
        r->place = malloc(room * 4), r->place2 = malloc(room * 4);
        if (!r->order || !r->order2 || !r->place || !r->place2) return 0;
    }
    return r->projected && r->best_projected && r->index && r->best_index && r->factor && r->best_factor;
}

/* Values of one candidate for samples of a node. */
#define HF_PROJECT(REAL, NAME)                                                                                  \
    static void NAME(                                                                                           \
        const REAL *x, int64_t n_features, const uint32_t *sample, int64_t n, const uint32_t *index,            \
        const float *factor, int64_t count, REAL *value                                                         \
    ) {                                                                                                         \
        if (count == 1) {                                                                                       \
            for (int64_t i = 0; i < n; ++i)                                                                     \
                value[i] = (REAL)(0.0 + (double)factor[0] * x[(int64_t)sample[i] * n_features + index[0]]);     \
            return;                                                                                             \
        }                                                                                                       \
        for (int64_t i = 0; i < n; ++i) {                                                                       \
            const REAL *row = x + (int64_t)sample[i] * n_features;                                              \
            double sum = 0;                                                                                     \
            for (int64_t e = 0; e < count; ++e) sum += (double)factor[e] * row[index[e]];                       \
            value[i] = (REAL)sum;                                                                               \
        }                                                                                                       \
    }
HF_PROJECT(float, hf_project_f32)
HF_PROJECT(double, hf_project_f64)
#undef HF_PROJECT

/* Fills one sample's part of that table; 0 where a number is not whole, or sums could leave float32's whole numbers. */
#define HF_FILL_TABLE(REAL, NAME)                                                                               \
    static int NAME(const hf_atoms *a, const REAL *x, int32_t *table) {                                         \
        const int64_t step = a->shape[2] + 1, plane = (a->shape[1] + 1) * step;                                 \
        double size = 0;                                                                                        \
        for (int64_t i = 0; i < a->n_features; ++i) {                                                           \
            if (!(x[i] >= -16777216 && x[i] <= 16777216) || x[i] != (REAL)(int32_t)x[i]) return 0;              \
            size += x[i] < 0 ? -x[i] : x[i];                                                                    \
        }                                                                                                       \
        if (size > 16777216) return 0;                                                                          \
        for (int64_t c = 0; c < a->channels; ++c)                                                               \
            for (int64_t k = 0; k < a->shape[0]; ++k, table += plane) {                                         \
                memset(table, 0, step * sizeof *table);                                                         \
                for (int64_t i = 0; i < a->shape[1]; ++i) {                                                     \
                    const REAL *row = x + (k * a->shape[1] + i) * a->shape[2] * a->channels + c;                \
                    int32_t *above = table + i * step, *here = above + step, sum = 0;                           \
                    here[0] = 0;                                                                                \
                    for (int64_t j = 0; j < a->shape[2]; ++j) {                                                 \
                        sum += (int32_t)row[j * a->channels];                                                   \
                        here[j + 1] = above[j + 1] + sum;                                                       \
                    }                                                                                           \
                }                                                                                               \
            }                                                                                                   \
        return 1;                                                                                               \
    }
HF_FILL_TABLE(float, hf_fill_table_f32)
HF_FILL_TABLE(double, hf_fill_table_f64)
#undef HF_FILL_TABLE

/* Sums over a patch from a table of sums over corners: whole numbers, so nothing is lost. A plane of the table of
   one sample and channel is (shape[1] + 1, shape[2] + 1), its first row and column 0. */
static void hf_project_table(
    const hf_task *t, hf_patch p, const uint32_t *sample, int64_t n, void *value
) {
    const hf_atoms *a = t->atoms;
    const int64_t step = a->shape[2] + 1, plane = (a->shape[1] + 1) * step;
    const int64_t all = a->channels * a->shape[0] * plane;
    const int64_t top = p.corner[1] * step + p.corner[2], bottom = top + p.size[1] * step, wide = p.size[2];
    const int32_t *start = t->table + (p.channel * a->shape[0] + p.corner[0]) * plane;
    for (int64_t i = 0; i < n; ++i) {
        const int32_t *at = start + (int64_t)sample[i] * all;
        int32_t sum = 0;
        for (int64_t k = 0; k < p.size[0]; ++k, at += plane)
            sum += at[bottom + wide] - at[bottom] - at[top + wide] + at[top];
        if (t->single) ((float *)value)[i] = (float)sum;
        else ((double *)value)[i] = sum;
    }
}

/* Draws candidate `number` of a node and computes its values; how many entries it has. */
static int64_t hf_try_atom(const hf_task *t, hf_room *r, const hf_open *node, uint64_t key, int64_t number) {
    const uint64_t atom = hf_atom_key(key, (uint64_t)number);
    const uint32_t *sample = r->sample + node->first;
    const int64_t n = node->last - node->first;
    if (t->table) {
        const hf_patch p = hf_draw_patch(t->atoms, atom);
        hf_project_table(t, p, sample, n, r->projected);
        return hf_patch_entries(t->atoms, p, r->index, r->factor);
    }
    const int64_t count = hf_draw_atom(t->atoms, atom, r->index, r->factor);
    if (t->single) hf_project_f32(t->x, t->atoms->n_features, sample, n, r->index, r->factor, count, r->projected);
    else hf_project_f64(t->x, t->atoms->n_features, sample, n, r->index, r->factor, count, r->projected);
    return count;
}

HF_INLINE uint32_t hf_ordered_32(float a) {
    uint32_t bits;
    a += 0.0f;
    memcpy(&bits, &a, sizeof bits);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}

HF_INLINE float hf_unordered_32(uint32_t code) {
    const uint32_t bits = code >> 31 ? code & ~(1u << 31) : ~code;
    float a;
    memcpy(&a, &bits, sizeof a);
    return a;
}

/* Keys of the values in r->projected, in order, codes being the values' bits (float32) or ranks; NULL where all are
   equal. */
static const uint64_t *hf_code_values(const hf_task *t, hf_room *r, const hf_open *node) {
    const int64_t n = node->last - node->first;
    const uint64_t *payload = (const uint64_t *)r->payload + node->first;
    uint64_t *key = r->key;
    if (t->single) {
        const float *value = r->projected;
        uint32_t lowest = UINT32_MAX, highest = 0;
        for (int64_t i = 0; i < n; ++i) {
            const uint32_t code = hf_ordered_32(value[i]);
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
    const int swapped = hf_sort(r->order, r->place, r->order2, r->place2, n);
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
static double hf_value_of(const hf_task *t, const hf_room *r, const uint64_t *sorted, uint32_t code) {
    if (t->single) return hf_unordered_32(code);
    int64_t i = code; /* equal values share a rank, so no value lies in front of its rank */
    while ((uint32_t)(sorted[i] >> 32) != code) ++i;
    return ((const double *)r->projected)[r->sorted_place[i]];
}

HF_INLINE int hf_is_above(const hf_task *t, const hf_room *r, int64_t i, double below) {
    return (t->single ? ((const float *)r->best_projected)[i] : ((const double *)r->best_projected)[i]) > below;
}

/* The best of n_drawn projections: of equal scores the first drawn, in it the lowest cut. */
static hf_cut hf_best_projection(const hf_task *t, hf_room *r, const hf_open *node, uint64_t key, double weight) {
    const int64_t n = node->last - node->first;
    hf_cut best = {-INFINITY, -1, 0, 0, 0, 0, 0};
    for (int64_t number = 0; number < t->n_drawn; ++number) {
        const int64_t count = hf_try_atom(t, r, node, key, number);
        const uint64_t *sorted = hf_code_values(t, r, node);
        hf_cut cut = {best.score, -1, 0, 0, 0, 0, 0};
        if (!sorted) continue;
        if (r->kind == HF_FLOATS)
            hf_sweep_floats(t, r, sorted, n, weight, &cut);
        else
            hf_sweep_64(sorted, n, r->count, r->count_left, t->n_outputs, (uint64_t)weight, t->min_leaf, &cut);
        if (!(cut.score > best.score)) continue;
        best = cut;
        best.column = 0;
        best.below = hf_value_of(t, r, sorted, cut.low);
        best.above = hf_value_of(t, r, sorted, cut.high);
        r->n_best = count;
        void *values = r->projected;
        r->projected = r->best_projected, r->best_projected = values;
        uint32_t *index = r->index;
        r->index = r->best_index, r->best_index = index;
        float *factor = r->factor;
        r->factor = r->best_factor, r->best_factor = factor;
    }
    return best;
}

/* Writes the best projection into node v, a feature where it is one; 0 if memory is out. */
static int hf_keep_projection(const hf_room *r, hf_tree *tree, int64_t v) {
    if (r->n_best == 1 && r->best_factor[0] == 1) {
        tree->feature[v] = (int32_t)r->best_index[0];
        return 1;
    }
    tree->feature[v] = -2;
    if (tree->n_entries + r->n_best > tree->entry_room) {
        const int64_t room = 2 * tree->entry_room + r->n_best + 256;
        if (!hf_widen((void **)&tree->index, room, 4) || !hf_widen((void **)&tree->weight, room, 4)) return 0;
        tree->entry_room = room;
    }
    memcpy(tree->index + tree->n_entries, r->best_index, r->n_best * sizeof *tree->index);
    memcpy(tree->weight + tree->n_entries, r->best_factor, r->n_best * sizeof *tree->weight);
    tree->n_entries += r->n_best;
    return 1;
}
