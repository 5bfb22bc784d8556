/* Predictions of a model of a table: the functions of a header that `hforest.tabular.to_c` writes, after its arrays.

   C99, without a library but libm. `model_` and `MODEL_` become the name of the model. The order of operations is
   that of hforest.tabular.predict: columns are scaled and categories encoded, inner products are in float32, sums over
   trees and probabilities in double. */

/* Returns a value of column j in deviations from the mean, or its normal score between the knots of the column. */
static inline float model_scaled(int j, double value) {
    const int n = model_knot_start[j + 1] - model_knot_start[j];
    const double *const knot = model_knots + model_knot_start[j];
    const double *const score = model_scores + model_knot_start[j];
    int low = 0, high = n - 1;
    if (isnan(value)) {
        return NAN;
    }
    if (n == 0) {
        value = value < model_low[j] ? model_low[j] : value > model_high[j] ? model_high[j] : value;
        return (float)((0.5 * value - model_center[j]) / model_scale[j]);
    }
    if (value <= knot[0] || value >= knot[n - 1]) {
        return (float)score[value <= knot[0] ? 0 : n - 1];
    }
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        *(knot[middle] <= value ? &low : &high) = middle;
    }
    return (float)((score[low + 1] - score[low]) / (knot[low + 1] - knot[low]) * (value - knot[low]) + score[low]);
}

/* Returns the place of a category among those of its column; 0 if it is unknown or missing. */
static inline int model_place(int j, double value) {
    const int n = model_level_start[j + 1] - model_level_start[j];
    const int *const level = model_levels + model_level_start[j];
    int low = 0, high = n;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        *(level[middle] <= value ? &low : &high) = middle;
    }
    return level[low] == value ? low : 0;
}

/* Writes columns (MODEL_N_FEATURES,) without missing values: medians, then predictions of ridge regressions. */
static inline void model_fill(const float *z, float *filled) {
    const int n = MODEL_N_PREDICTORS;
    float next[MODEL_N_FEATURES];
    int i, j, k, p;
    for (j = 0; j < MODEL_N_FEATURES; j++) {
        next[j] = filled[j] = isnan(z[j]) ? model_fill_value[j] : z[j];
    }
    for (i = 0; i < MODEL_N_ROUNDS; i++) {
        for (k = 0; k < MODEL_N_IMPUTED; k++) {
            const double *const slope = model_slopes + (i * MODEL_N_IMPUTED + k) * (2 * n + 1);
            double value = slope[2 * n];
            j = model_imputed[k];
            if (!isnan(z[j])) {
                continue;
            }
            for (p = 0; p < n; p++) {
                const int column = model_predictors[k * n + p];
                value += filled[column] * slope[p] + (isnan(z[column]) ? slope[n + p] : 0.0);
            }
            value = value < model_least[j] ? model_least[j] : value > model_most[j] ? model_most[j] : value;
            next[j] = (float)value;
        }
        for (j = 0; j < MODEL_N_FEATURES; j++) {
            filled[j] = next[j];
        }
    }
}

/* Writes the encoded columns (MODEL_N_ENCODED,) without missing values, and with NaN as grown trees read them. */
static inline void model_encode(const double *x, float *encoded, float *native) {
    float z[MODEL_N_FEATURES], filled[MODEL_N_FEATURES];
    int j, k, to = 0;
    for (j = 0; j < MODEL_N_FEATURES; j++) {
        z[j] = model_scaled(j, model_width[j] ? 0.0 : x[j]);
    }
    model_fill(z, filled);
    for (j = 0; j < MODEL_N_FEATURES; j++) {
        if (model_width[j] == 0) {
            encoded[to] = filled[j];
            native[to++] = MODEL_HAS_MISSING ? z[j] : filled[j];
            continue;
        }
        for (k = 0; k < model_width[j]; k++, to++) {
            encoded[to] = native[to] = model_codes[model_code_start[j] + model_place(j, x[j]) * model_width[j] + k];
        }
    }
}

/* Returns sum + a * b, both rounded to float: no compiler can fuse them. */
static inline float model_added(float sum, float a, float b) {
    const float product = (float)((double)a * b);
    return (float)((double)sum + product);
}

/* Writes the inner products of encoded columns behind the columns of z. */
static inline void model_products(const struct model_kernel *kernel, const float *encoded, float *z) {
    float *const y = z + MODEL_N_ENCODED;
    int j, k;
    for (k = 0; k < kernel->n; k++) {
        y[k] = 0;
    }
    for (j = 0; j < MODEL_N_ENCODED && !kernel->start; j++) {
        for (k = 0; k < kernel->n; k++) {
            y[k] = model_added(y[k], encoded[j], kernel->data[j * kernel->n + k]);
        }
    }
    for (k = 0; k < kernel->n && kernel->start; k++) {
        for (j = kernel->start[k]; j < kernel->start[k + 1]; j++) {
            y[k] = model_added(y[k], encoded[kernel->row[j]], kernel->data[j]);
        }
    }
}

/* Writes the means over grown trees. A feature is 2 f + 1 where NaN goes left, 2 f where it goes right, of a leaf -1. */
static inline void model_grown(const struct model_forest *forest, const float *z, float *y) {
    const int n = forest->n_outputs;
    double sum[MODEL_N_OUTPUTS] = {0};
    int t, k;
    for (t = 0; t < forest->n_trees; t++) {
        const int first = forest->start[t];
        int node = first, feature;
        while ((feature = forest->feature[node]) >= 0) {
            const float value = z[feature / 2];
            const int left = isnan(value) ? feature % 2 : value <= forest->threshold[node];
            node = first + forest->left[node] + !left;
        }
        for (k = 0; k < n; k++) {
            sum[k] += forest->value[((first + t) / 2 + forest->left[node]) * (long)n + k];
        }
    }
    for (k = 0; k < n; k++) {
        y[k] = (float)(sum[k] / forest->n_trees);
    }
}

/* Writes sums over hinge trees: the weight of a leaf times the least margin on the path to it. */
static inline void model_hinge(const struct model_member *member, const float *z, float *y) {
    const int n_vertices = (1 << member->depth) - 1;
    double sum[MODEL_N_OUTPUTS] = {0};
    int t, i, k;
    for (t = 0; t < member->n_trees; t++) {
        const int *const feature = member->features + t * n_vertices;
        const float *const threshold = member->thresholds + t * n_vertices;
        const float *weight;
        float least = INFINITY;
        int vertex = 0;
        for (i = 0; i < member->depth; i++) {
            const float margin = z[feature[vertex]] - threshold[vertex];
            least = fabsf(margin) < least ? fabsf(margin) : least;
            vertex = 2 * vertex + 1 + (margin > 0);
        }
        weight = member->weights + (t * (n_vertices + 1L) + vertex - n_vertices) * MODEL_N_OUTPUTS;
        for (k = 0; k < MODEL_N_OUTPUTS; k++) {
            sum[k] += (float)(weight[k] * least);
        }
    }
    for (k = 0; k < MODEL_N_OUTPUTS; k++) {
        y[k] = (float)sum[k] + member->intercept[k];
    }
}

/* Replaces scores by probabilities. */
static inline void model_softmax(double *y) {
    double most = y[0], sum = 0;
    int k;
    for (k = 1; k < MODEL_N_OUTPUTS; k++) {
        most = y[k] > most ? y[k] : most;
    }
    for (k = 0; k < MODEL_N_OUTPUTS; k++) {
        sum += y[k] = exp(y[k] - most);
    }
    for (k = 0; k < MODEL_N_OUTPUTS; k++) {
        y[k] /= sum;
    }
}

/* Writes targets, or the probabilities of scores. */
static inline void model_answers(const float *scores, double *y) {
    int k;
    for (k = 0; k < MODEL_N_OUTPUTS; k++) {
        y[k] = scores[k];
    }
    if (MODEL_IS_CLASSES) {
        model_softmax(y);
    }
}

/* Replaces y by a mean of two predictions, in which `other` has a share. */
static inline void model_mix(const double *other, double share, double *y) {
    int k;
    for (k = 0; k < MODEL_N_OUTPUTS; k++) {
        y[k] = share * other[k] + (1 - share) * y[k];
    }
}

/* Writes the predictions of a member: of its grown forest, hinge trees and boosted trees by their shares. */
static inline void model_of_member(
    const struct model_member *member, const float *encoded, const float *native, double *y
) {
    float z[MODEL_N_ENCODED + MODEL_MAX_PRODUCTS], grown[MODEL_N_OUTPUTS] = {0}, scores[MODEL_N_OUTPUTS] = {0};
    double other[MODEL_N_OUTPUTS];
    int j, k;
    for (j = 0; j < MODEL_N_ENCODED; j++) {
        z[j] = native[j];
    }
    if (member->forest.n_trees) {
        model_products(&member->grown_kernel, encoded, z);
        model_grown(&member->forest, z, grown);
    }
    for (k = 0; k < MODEL_N_OUTPUTS; k++) {
        y[k] = grown[k];
    }
    for (j = 0; j < MODEL_N_ENCODED; j++) {
        z[j] = encoded[j];
    }
    if (member->share > 0) {
        model_products(&member->kernel, encoded, z);
        model_hinge(member, z, scores);
        for (k = 0; k < MODEL_N_OUTPUTS && member->offset != 0; k++) {
            const double smooth = log((grown[k] + MODEL_SMOOTHING) / MODEL_SMOOTHED);
            scores[k] += member->offset * (MODEL_IS_CLASSES ? (float)smooth : grown[k]);
        }
        model_answers(scores, other);
        model_mix(other, member->share, y);
    }
    if (member->boosted.n_trees) {
        scores[0] = 0; /* that of the first of two classes */
        model_grown(&member->boosted, native, scores + MODEL_N_OUTPUTS - member->boosted.n_outputs);
        model_answers(scores, other);
        for (j = 0; j < MODEL_N_ENCODED && member->linear; j++) {
            for (k = 0; k < MODEL_N_OUTPUTS; k++) {
                other[k] += (double)encoded[j] * member->linear[j * MODEL_N_OUTPUTS + k];
            }
        }
        model_mix(other, member->boosted_share, y);
    }
}

/* Writes y (MODEL_N_OUTPUTS,), probabilities of classes or targets, for a row x (MODEL_N_FEATURES,); NaN is missing. */
static inline void model_predict(const double *x, double *y) {
    float encoded[MODEL_N_ENCODED], native[MODEL_N_ENCODED];
    double one[MODEL_N_OUTPUTS];
    int i, k;
    model_encode(x, encoded, native);
    for (k = 0; k < MODEL_N_OUTPUTS; k++) {
        y[k] = 0;
    }
    for (i = 0; i < MODEL_N_MEMBERS; i++) {
        model_of_member(model_members + i, encoded, native, one);
        for (k = 0; k < MODEL_N_OUTPUTS; k++) {
            const double p = one[k] > MODEL_LEAST_PROBABILITY ? one[k] : MODEL_LEAST_PROBABILITY;
            y[k] += MODEL_IS_GEOMETRIC ? log(p) : one[k];
        }
    }
    for (k = 0; k < MODEL_N_OUTPUTS; k++) {
        y[k] /= MODEL_N_MEMBERS;
    }
    if (MODEL_IS_GEOMETRIC) {
        model_softmax(y);
    }
    for (k = 0; k < MODEL_N_OUTPUTS && !MODEL_IS_CLASSES; k++) {
        y[k] = y[k] * model_target_scale[k] + model_target_center[k];
    }
}

/* Returns the number of a category of feature j, spelt as in training; NaN if it is unknown or j has none. */
static inline double model_category(int j, const char *text) {
    int k;
    for (k = model_category_start[j]; k < model_category_start[j + 1]; k++) {
        if (strcmp(model_categories[k], text) == 0) {
            return k - model_category_start[j];
        }
    }
    return NAN;
}
