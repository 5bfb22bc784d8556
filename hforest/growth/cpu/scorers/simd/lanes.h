/* Included once per vector width and type of the samples, with HF_W(name), HF_R(name), HF_REAL and HF_WHOLE, an integer
   of the same size. */

/* Writes the number of smaller values of each of n values; `value` has HF_BYTES more bytes. */
HF_W_CODE static void HF_R(hf_count_smaller)(const HF_REAL *value, int64_t n, uint32_t *count) {
    enum { LANES = HF_BYTES / sizeof(HF_REAL), AT_ONCE = 4 };
    typedef HF_REAL values __attribute__((vector_size(HF_BYTES)));
    typedef HF_WHOLE flags __attribute__((vector_size(HF_BYTES)));
    HF_COUNT("growth", __func__);
    for (int64_t first = 0; first < n; first += AT_ONCE * LANES) {
        values some[AT_ONCE];
        flags sum[AT_ONCE];
        for (int v = 0; v < AT_ONCE; ++v) {
            const int64_t at = first + v * LANES;
            memcpy(&some[v], value + (at < n ? at : first), HF_BYTES);
            sum[v] = (flags){0};
        }
        for (int64_t i = 0; i < n; ++i)
            for (int v = 0; v < AT_ONCE; ++v) sum[v] -= value[i] < some[v];
        for (int64_t i = first; i < n && i < first + AT_ONCE * LANES; ++i)
            count[i] = (uint32_t)sum[(i - first) / LANES][(i - first) % LANES];
    }
}

/* Four candidates with random thresholds, one in each lane. */

typedef HF_REAL HF_R(hf_values) __attribute__((vector_size(4 * sizeof(HF_REAL))));
typedef HF_WHOLE HF_R(hf_flags) __attribute__((vector_size(4 * sizeof(HF_REAL))));

/* Replaces the lanes of `a` by those of b where flags are set. */
HF_W_CODE HF_INLINE void HF_R(hf_take)(HF_R(hf_values) *a, const HF_R(hf_values) *b, const HF_R(hf_flags) *flags) {
    *a = (HF_R(hf_values))(((HF_R(hf_flags))*b & *flags) | ((HF_R(hf_flags))*a & ~*flags));
}

/* Adds values to the ranges of the lanes. */
HF_W_CODE HF_INLINE void HF_R(hf_widen)(
    HF_R(hf_values) *least, HF_R(hf_values) *greatest, const HF_R(hf_values) *low, const HF_R(hf_values) *high
) {
    const HF_R(hf_flags) is_less = *low < *least, is_greater = *high > *greatest;
    HF_R(hf_take)(least, low, &is_less);
    HF_R(hf_take)(greatest, high, &is_greater);
}

HF_W_CODE static void HF_R(hf_read_lanes)(hf_lanes *l) {
    HF_COUNT("growth", __func__);
    const HF_REAL *const column[4] = {l->column[0], l->column[1], l->column[2], l->column[3]};
    const uint32_t *sample = l->sample;
    const int64_t stride = l->stride, last = l->n - 1;
    HF_REAL *values = l->value;
    HF_R(hf_values) value[2], least[2], greatest[2];
    for (int64_t i = 0; i <= last; i += 2) {
        for (int h = 1; h >= 0; --h) { /* an odd last sample is read twice */
            const int64_t at = sample[i + h < last ? i + h : last] * stride;
            value[h] = (HF_R(hf_values)){column[0][at], column[1][at], column[2][at], column[3][at]};
            if (i == 0) least[h] = greatest[h] = value[h];
            memcpy(values + 4 * (i + h), &value[h], sizeof value[h]);
            HF_R(hf_widen)(&least[h], &greatest[h], &value[h], &value[h]);
        }
    }
    HF_R(hf_widen)(&least[0], &greatest[0], &least[1], &greatest[1]);
    for (int j = 0; j < 4; ++j) l->least[j] = least[0][j] + 0.0, l->greatest[j] = greatest[0][j] + 0.0;
}

HF_W_CODE static void HF_R(hf_sum_lanes)(hf_lanes *l) {
    HF_COUNT("growth", __func__);
    const HF_R(hf_values) threshold = {
        (HF_REAL)l->threshold[0], (HF_REAL)l->threshold[1], (HF_REAL)l->threshold[2], (HF_REAL)l->threshold[3]
    };
    const HF_REAL *value = l->value;
    const uint32_t *payload = l->payload;
    const uint32_t mask = l->mask;
    HF_R(hf_flags) sum = {0};
    HF_W(hf_four) left = {0}, right = {0}, weight = {0};
    for (int64_t run = 0, i = 0; run < l->n_runs; ++run) {
        const HF_R(hf_flags) before = sum;
        for (; i < l->last[run]; ++i) {
            HF_R(hf_values) some;
            memcpy(&some, value + 4 * i, sizeof some);
            sum += (some <= threshold) & (HF_WHOLE)(payload[i] & mask);
        }
        const HF_W(hf_four) added = __builtin_convertvector(sum - before, HF_W(hf_four)), rest = l->total[run] - added;
        left += added * added;
        right += rest * rest;
        weight += added;
    }
    memcpy(l->weight, &weight, sizeof weight);
    memcpy(l->left_square, &left, sizeof left);
    memcpy(l->right_square, &right, sizeof right);
}
