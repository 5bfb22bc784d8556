/* Included once per dtype and vector width, with REAL, INT (the integer of its size), HF_BYTES, HF_W(name) and the
   compiler's target HF_W_CODE set. The sixteen lanes of a block are HF_PARTS vectors. Every operation is one rounding
   in REAL, in a fixed order: all paths, the reference and the GPU are bit-identical. */

#define HF_VECTOR (HF_BYTES / (int)sizeof(REAL)) /* lanes of a vector */
#define HF_PARTS (HF_LANES / HF_VECTOR)
#define HF_DOTS (HF_PARTS < 8 ? 8 / HF_PARTS : 1) /* products computed together: their sums take eight registers */

typedef REAL HF_W(hf_vector) __attribute__((vector_size(HF_BYTES)));
typedef INT HF_W(hf_mask) __attribute__((vector_size(HF_BYTES)));
#define VECTOR HF_W(hf_vector)

HF_W_CODE HF_INLINE VECTOR HF_W(hf_load)(const REAL *p) {
    VECTOR a;
    memcpy(&a, p, sizeof a);
    return a;
}

HF_W_CODE HF_INLINE VECTOR HF_W(hf_all)(REAL a) { return a - (VECTOR){0}; }

/* Returns the sum of sixteen lanes, added by halves.

   part   IN (HF_PARTS,), overwritten */
HF_W_CODE HF_INLINE REAL HF_W(hf_fold)(VECTOR *part) {
    for (int n = HF_PARTS / 2; n >= 1; n /= 2)
        for (int p = 0; p < n; ++p) part[p] += part[p + n];
    VECTOR a = part[0];
    for (int n = HF_VECTOR / 2; n >= 1; n /= 2)
        for (int i = 0; i < n; ++i) a[i] += a[i + n];
    return a[0];
}

/* Returns part p of the last block of a row: its features, -1 if the offset is implied, and zeros. It is loaded in
   place or, if the load would leave x (in its last row), from a copy. Copies of windows are whole blocks. */
HF_W_CODE HF_INLINE VECTOR HF_W(hf_tail)(const hf_rows *rows, const REAL *row, int p) {
    static const INT keep[2 * HF_LANES] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    static const REAL none[HF_LANES], minus[2 * HF_LANES] = {[HF_LANES] = -1};
    const int64_t first = rows->n_full * HF_LANES, n = rows->n_features - first, at = HF_LANES - n + p * HF_VECTOR;
    const VECTOR after = HF_W(hf_load)(rows->offset ? minus + at : none);
    HF_W(hf_mask) mask;
    if (n == 0) return after;
    memcpy(&mask, keep + at, sizeof mask);
    if (rows->place != NULL || row + first + HF_LANES <= (const REAL *)rows->x + rows->n * rows->n_features)
        return (VECTOR)(((HF_W(hf_mask))HF_W(hf_load)(row + first + p * HF_VECTOR) & mask) | (HF_W(hf_mask))after);
    REAL lane[HF_LANES] = {0};
    for (int64_t i = 0; i < n; ++i) lane[i] = row[first + i];
    return (VECTOR)((HF_W(hf_mask))HF_W(hf_load)(lane + p * HF_VECTOR) | (HF_W(hf_mask))after);
}

/* Writes w.x of HF_DOTS rows. */
HF_W_CODE HF_INLINE void HF_W(hf_dots_at_once)(
    const hf_rows *rows, const void *const *row, const void *const *after, const REAL *w, double *product
) {
    VECTOR sum[HF_DOTS][HF_PARTS];
    for (int r = 0; r < HF_DOTS; ++r)
        for (int p = 0; p < HF_PARTS; ++p) sum[r][p] = HF_W(hf_all)(0);
    for (int64_t b = 0; b < rows->n_full * HF_LANES; b += HF_LANES)
        for (int r = 0; r < HF_DOTS; ++r) {
            HF_PREFETCH((const REAL *)after[r] + b);
            for (int p = 0; p < HF_PARTS; ++p) {
                const int64_t j = b + p * HF_VECTOR;
                sum[r][p] += HF_W(hf_load)((const REAL *)row[r] + j) * HF_W(hf_load)(w + j);
            }
        }
    const int64_t n_tail = rows->n_features + rows->offset - rows->n_full * HF_LANES;
    for (int r = 0; r < HF_DOTS; ++r)
        for (int p = 0; p < HF_PARTS && p * HF_VECTOR < n_tail; ++p) {
            const int64_t j = rows->n_full * HF_LANES + p * HF_VECTOR;
            sum[r][p] += HF_W(hf_tail)(rows, row[r], p) * HF_W(hf_load)(w + j);
        }
    for (int r = 0; r < HF_DOTS; ++r) product[r] = HF_W(hf_fold)(sum[r]);
}

HF_W_CODE static void HF_W(hf_dots)(
    const hf_rows *rows, const void *const *row, const void *const *after, const void *w, double *product
) {
    HF_COUNT("co2", __func__);
    for (int r = 0; r < HF_TOGETHER; r += HF_DOTS) HF_W(hf_dots_at_once)(rows, row + r, after + r, w, product + r);
}

/* Adds n rows. n is a constant in each call, so that the factors stay in registers. */
HF_W_CODE HF_INLINE void HF_W(hf_add_n_rows)(
    const hf_rows *rows, const void *const *row, const double *factor, int n, REAL *sum
) {
    VECTOR scale[HF_TOGETHER];
    for (int r = 0; r < n; ++r) scale[r] = HF_W(hf_all)((REAL)factor[r]);
    for (int64_t j = 0; j < rows->n_full * HF_LANES; j += HF_VECTOR) {
        VECTOR total = HF_W(hf_load)(sum + j);
        for (int r = 0; r < n; ++r) total += HF_W(hf_load)((const REAL *)row[r] + j) * scale[r];
        memcpy(sum + j, &total, sizeof total);
    }
    const int64_t n_tail = rows->n_features + rows->offset - rows->n_full * HF_LANES;
    for (int p = 0; p < HF_PARTS && p * HF_VECTOR < n_tail; ++p) {
        REAL *last = sum + rows->n_full * HF_LANES + p * HF_VECTOR;
        VECTOR total = HF_W(hf_load)(last);
        for (int r = 0; r < n; ++r) total += HF_W(hf_tail)(rows, row[r], p) * scale[r];
        memcpy(last, &total, sizeof total);
    }
}

HF_W_CODE static void HF_W(hf_add_rows)(
    const hf_rows *rows, const void *const *row, const double *factor, int n, void *sum
) {
    HF_COUNT("co2", __func__);
    for (; n >= 4; n -= 4, row += 4, factor += 4) HF_W(hf_add_n_rows)(rows, row, factor, 4, sum);
    switch (n) {
        case 1: HF_W(hf_add_n_rows)(rows, row, factor, 1, sum); break;
        case 2: HF_W(hf_add_n_rows)(rows, row, factor, 2, sum); break;
        case 3: HF_W(hf_add_n_rows)(rows, row, factor, 3, sum); break;
    }
}

static const hf_row_loops HF_W(hf_row_loops) = {HF_W(hf_dots), HF_W(hf_add_rows)};

#undef VECTOR
#undef HF_VECTOR
#undef HF_PARTS
#undef HF_DOTS
#undef REAL
#undef INT
#undef HF_BYTES
#undef HF_W
#undef HF_W_CODE
