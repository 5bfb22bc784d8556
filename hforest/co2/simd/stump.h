/* The loops of a stump over rows of x; included by co2/stump.h once for each dtype and path, which define

   LOOPS        the name of the table of functions at the end
   NAME(f)      the name of f
   REAL, VEC    a number, and sixteen of them
   HF_CODE      the target attribute

   A row is divided into blocks of sixteen numbers; the last block is padded with the constant -1, if the offset is
   implied, and zeros. A dot product sums lane by lane, block after block, then folds the lanes by halves; a sum of
   rows adds them in their order. Every operation is one rounding in REAL, in one order: all paths, the reference
   and the GPU have the same bits. */

HF_CODE HF_INLINE VEC NAME(load)(const REAL *p) {
    VEC a;
    memcpy(&a, p, sizeof a);
    return a;
}

HF_CODE HF_INLINE void NAME(store)(REAL *p, VEC a) { memcpy(p, &a, sizeof a); }

HF_CODE HF_INLINE VEC NAME(all)(REAL a) {
    REAL lane[HF_LANES];
    for (int i = 0; i < HF_LANES; ++i) lane[i] = a;
    return NAME(load)(lane);
}

/* Returns the last block of a row, padded. It is loaded in place; from a copy where the load would leave x (its last
   row) and where no feature is left. */
HF_CODE HF_INLINE VEC NAME(tail)(const hf_rows *rows, const REAL *row) {
    const int64_t first = rows->n_full * HF_LANES, n = rows->n_features - first;
    if (n > 0 && row + first + HF_LANES <= (const REAL *)rows->x + rows->n * rows->n_features)
        return HF_LANES_CUT_OF(row)(row + first, n, rows->offset);
    REAL lane[HF_LANES] = {0};
    for (int64_t i = 0; i < n; ++i) lane[i] = row[first + i];
    return HF_LANES_CUT_OF(row)(lane, n, rows->offset);
}

/* product[r] = w.x of `count` rows (a compile-time constant). Prefetches the rows `after`. */
HF_CODE HF_INLINE void NAME(dots)(
    const hf_rows *rows, const REAL *const *row, const REAL *const *after, const REAL *w, int count, REAL *product
) {
    VEC sum[HF_TOGETHER];
    const VEC zero = NAME(all)(0);
    for (int r = 0; r < count; ++r) sum[r] = zero;
    for (int64_t b = 0; b < rows->n_full; ++b) {
        const VEC factor = NAME(load)(w + b * HF_LANES);
        for (int r = 0; r < count; ++r) {
            HF_PREFETCH(after[r] + b * HF_LANES);
            sum[r] = HF_LANES_ADD(sum[r], HF_LANES_MUL(NAME(load)(row[r] + b * HF_LANES), factor));
        }
    }
    if (rows->n_blocks > rows->n_full) {
        const VEC factor = NAME(load)(w + rows->n_full * HF_LANES);
        for (int r = 0; r < count; ++r)
            sum[r] = HF_LANES_ADD(sum[r], HF_LANES_MUL(NAME(tail)(rows, row[r]), factor));
    }
    for (int r = 0; r < count; ++r) product[r] = _Generic(sum[r], hf_f32x16: hf_fold_f32x16, hf_f64x16: hf_fold_f64x16)(sum[r]);
}

/* sum += factor[r] x of `count` rows, in their order. */
HF_CODE HF_INLINE void NAME(add_rows)(
    const hf_rows *rows, const REAL *const *row, const REAL *factor, int count, REAL *sum
) {
    VEC scale[HF_TOGETHER];
    for (int r = 0; r < count; ++r) scale[r] = NAME(all)(factor[r]);
    for (int64_t b = 0; b < rows->n_blocks; ++b) {
        VEC total = NAME(load)(sum + b * HF_LANES);
        for (int r = 0; r < count; ++r) {
            const VEC x = b < rows->n_full ? NAME(load)(row[r] + b * HF_LANES) : NAME(tail)(rows, row[r]);
            total = HF_LANES_ADD(total, HF_LANES_MUL(x, scale[r]));
        }
        NAME(store)(sum + b * HF_LANES, total);
    }
}

/* row[r] = address of the row of sample first + r; beyond n, of the last sample. n >= 1. */
HF_CODE HF_INLINE void NAME(rows_of)(
    const hf_rows *rows, const hf_members *m, int64_t first, int64_t n, const REAL **row
) {
    for (int r = 0; r < HF_TOGETHER; ++r) {
        const int64_t i = first + r < n ? first + r : n - 1;
        row[r] = (const REAL *)rows->x + (int64_t)m->sample[m->order[i]] * rows->n_features;
    }
}

/* product[i] = w.x of each sample, in their order. */
HF_CODE static void NAME(products)(const hf_rows *rows, const hf_members *m, const void *w, double *product) {
    const REAL *row[HF_TOGETHER], *after[HF_TOGETHER];
    REAL some[HF_TOGETHER];
    if (m->n == 0) return;
    NAME(rows_of)(rows, m, 0, m->n, after);
    for (int64_t first = 0; first < m->n; first += HF_TOGETHER) {
        memcpy(row, after, sizeof row);
        NAME(rows_of)(rows, m, first + HF_TOGETHER, m->n, after);
        NAME(dots)(rows, row, after, w, HF_TOGETHER, some);
        for (int r = 0; r < HF_TOGETHER && first + r < m->n; ++r) product[first + r] = some[r];
    }
}

/* Adds to `slope` (by w) and `pull` (by theta) the subgradients of eq 11 of samples order[first] to order[last - 1].
   Returns the weight of these samples. */
HF_CODE static double NAME(slopes)(
    const hf_rows *rows, const hf_members *m, const hf_losses *losses, const void *w, int64_t first, int64_t last,
    void *slope, hf_pull *pull
) {
    const REAL *row[HF_TOGETHER], *after[HF_TOGETHER], *moving[HF_TOGETHER];
    REAL product[HF_TOGETHER], factor[HF_TOGETHER];
    double weight = 0;
    if (first == last) return weight;
    NAME(rows_of)(rows, m, first, last, after);
    for (; first < last; first += HF_TOGETHER) {
        int n_moving = 0;
        memcpy(row, after, sizeof row);
        NAME(rows_of)(rows, m, first + HF_TOGETHER, m->n, after);
        NAME(dots)(rows, row, after, w, HF_TOGETHER, product);
        for (int r = 0; r < HF_TOGETHER && first + r < last; ++r) {
            const uint32_t at = m->order[first + r];
            const double p = product[r];
            const int right = !(hf_loss(losses, 0, m, at) - p >= hf_loss(losses, 1, m, at) + p);
            const int turn = right ? 1 - m->sign[at] : -1 - m->sign[at];
            hf_pull_at(losses, pull, right, m, at);
            weight += m->weight[at];
            if (turn != 0) {
                moving[n_moving] = row[r];
                factor[n_moving++] = (REAL)(turn * m->weight[at]);
            }
        }
        switch (n_moving) { /* constants, so that the sums stay in registers */
            case 1: NAME(add_rows)(rows, moving, factor, 1, slope); break;
            case 2: NAME(add_rows)(rows, moving, factor, 2, slope); break;
            case 3: NAME(add_rows)(rows, moving, factor, 3, slope); break;
            case 4: NAME(add_rows)(rows, moving, factor, 4, slope); break;
            case 5: NAME(add_rows)(rows, moving, factor, 5, slope); break;
            case 6: NAME(add_rows)(rows, moving, factor, 6, slope); break;
            case 7: NAME(add_rows)(rows, moving, factor, 7, slope); break;
            case 8: NAME(add_rows)(rows, moving, factor, 8, slope); break;
        }
    }
    return weight;
}

HF_CODE static void NAME(move)(
    const hf_rows *rows, void *w, void *v, const void *slope, double momentum, double rate, double nu
) {
    const VEC keep = NAME(all)((REAL)momentum), step = NAME(all)((REAL)-rate);
    REAL *to = w, *speeds = v;
    for (int64_t b = 0; b < rows->n_blocks * HF_LANES; b += HF_LANES) {
        const VEC push = HF_LANES_MUL(step, NAME(load)((const REAL *)slope + b));
        const VEC speed = HF_LANES_ADD(HF_LANES_MUL(keep, NAME(load)(speeds + b)), push);
        NAME(store)(speeds + b, speed);
        NAME(store)(to + b, HF_LANES_ADD(NAME(load)(to + b), speed));
    }
    hf_project(sizeof(REAL) == 4, w, rows->n_blocks * HF_LANES, nu);
}

static const hf_loops LOOPS = {NAME(products), NAME(slopes), NAME(move)};

#undef LOOPS
#undef NAME
#undef REAL
#undef VEC
#undef HF_CODE
