/* Soft routing of one tile: ROW samples through one tree. tiles.h includes this once per dtype and vector path, and
   defines what decide.h needs, ROW, and TILES, the name of the table of functions at the end.

   A tile is transposed: row i holds vertex or leaf i for all its samples, 64 bytes, aligned. Each element belongs to
   one sample and undergoes the same operations in the same order for every LANES, so all paths are bit-identical. */

#include "neural/decide.h"

#define VECTORS (ROW / LANES)

#if LANES == 1
typedef REAL T(loose);
#else
typedef REAL T(loose) __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
#endif

CODE HF_INLINE T(vec) T(load)(const REAL *p) { return *(const T(loose) *)p; }
CODE HF_INLINE void T(store)(REAL *p, T(vec) a) { *(T(loose) *)p = a; }

/* Transposes LANES vectors: a[i] lane j <-> a[j] lane i. Each round interleaves the two halves of the array. */
#if LANES > 1
#if defined(__clang__)
#define HF_MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define HF_MIX(a, b, ...) __builtin_shuffle(a, b, (T(bits)){__VA_ARGS__})
#endif
#if LANES == 16
#define HF_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HF_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif LANES == 8
#define HF_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HF_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#elif LANES == 4
#define HF_LOW 0, 4, 1, 5
#define HF_HIGH 2, 6, 3, 7
#elif LANES == 2
#define HF_LOW 0, 2
#define HF_HIGH 1, 3
#endif
#endif

CODE HF_INLINE void T(transpose)(T(vec) *a) {
#if LANES > 1
    T(vec) b[LANES];
    int i, round;
#pragma GCC unroll 4
    for (round = 1; round < LANES; round *= 2) {
#pragma GCC unroll 16
        for (i = 0; i < LANES / 2; ++i) {
            b[2 * i] = HF_MIX(a[i], a[i + LANES / 2], HF_LOW);
            b[2 * i + 1] = HF_MIX(a[i], a[i + LANES / 2], HF_HIGH);
        }
#pragma GCC unroll 16
        for (i = 0; i < LANES; ++i) a[i] = b[i];
    }
#else
    (void)a;
#endif
}
#undef HF_MIX
#undef HF_LOW
#undef HF_HIGH

/* Writes the decision functions of n vertices (by `index` if it is not NULL) of ROW samples to n rows f of the tile,
   and exp(-|f|) to rows e. Prefetches `later` for writing if it is not NULL. The divisions, which depend on exp, are in
   a separate loop (`descend`): the chain of operations of a row would be longer than the reorder buffer. */
CODE static void T(fill)(
    const REAL *const *samples, const int32_t *index, ptrdiff_t n, REAL *f, REAL *e, REAL *const *later) {
    T(vec) a[LANES];
    ptrdiff_t v, i;
    int u, j;
    if (index || n < LANES) {
        for (v = 0; v < n; ++v)
            for (j = 0; j < ROW; ++j) f[v * ROW + j] = samples[j][index ? index[v] : v];
        for (i = 0; i < n * ROW; i += LANES) T(store)(e + i, T(decay)(T(load)(f + i)));
        return;
    }
    for (v = 0; v < n; v += LANES) {
        if (v > n - LANES) v = n - LANES;
        for (u = 0; u < VECTORS; ++u) {
#pragma GCC unroll 16
            for (j = 0; j < LANES; ++j) {
                HF_PREFETCH(samples[u * LANES + j] + v + AHEAD);
                if (later) HF_PREFETCH_TO_WRITE(later[u * LANES + j] + v);
                a[j] = T(load)(samples[u * LANES + j] + v);
            }
            T(transpose)(a);
#pragma GCC unroll 16
            for (j = 0; j < LANES; ++j) T(store)(f + (v + j) * ROW + u * LANES, a[j]);
        }
        for (i = v * ROW; i < (v + LANES) * ROW; i += LANES) T(store)(e + i, T(decay)(T(load)(f + i)));
    }
}

/* Writes the n rows of `tile` to the rows of the first `count` samples, multiplied by each sample's `scale` if it is
   not NULL. With `index`, adds to the rows instead. */
CODE static void T(spread)(
    const REAL *tile, const int32_t *index, ptrdiff_t n, int count, const REAL *scale, REAL *const *samples) {
    T(vec) a[LANES];
    ptrdiff_t v;
    int u, j;
    if (index) {
        for (j = 0; j < count; ++j)
            for (v = 0; v < n; ++v) samples[j][index[v]] += scale ? scale[j] * tile[v * ROW + j] : tile[v * ROW + j];
        return;
    }
    if (n < LANES) {
        for (j = 0; j < count; ++j)
            for (v = 0; v < n; ++v) samples[j][v] = scale ? scale[j] * tile[v * ROW + j] : tile[v * ROW + j];
        return;
    }
    for (v = 0; v < n; v += LANES) {
        if (v > n - LANES) v = n - LANES;
        for (u = 0; u < VECTORS; ++u) {
#pragma GCC unroll 16
            for (j = 0; j < LANES; ++j) a[j] = T(load)(tile + (v + j) * ROW + u * LANES);
            if (scale) {
#pragma GCC unroll 16
                for (j = 0; j < LANES; ++j) a[j] *= T(load)(scale + u * LANES);
            }
            T(transpose)(a);
#pragma GCC unroll 16
            for (j = 0; j < LANES; ++j)
                if (u * LANES + j < count) T(store)(samples[u * LANES + j] + v, a[j]);
        }
    }
}

/* Writes mu of every vertex and leaf, in heap order, from the f and e that `fill` wrote; e may occupy the last
   n_vertices rows of mu. With `keep`, d = sigmoid(f) replaces f and c = 1 - d replaces e. */
CODE HF_INLINE void T(descend)(ptrdiff_t n_vertices, REAL *f, REAL *e, REAL *mu, const int keep) {
    T(vec) d, c, m;
    ptrdiff_t i;
    int u;
    for (u = 0; u < ROW; u += LANES) T(store)(mu + u, T(all)(1));
    for (i = 0; i < n_vertices; ++i)
        for (u = 0; u < ROW; u += LANES) {
            T(decide)(T(load)(f + i * ROW + u), T(load)(e + i * ROW + u), &d, &c);
            if (keep) {
                T(store)(f + i * ROW + u, d);
                T(store)(e + i * ROW + u, c);
            }
            m = T(load)(mu + i * ROW + u);
            T(store)(mu + (2 * i + 1) * ROW + u, m * d);
            T(store)(mu + (2 * i + 2) * ROW + u, m * c);
        }
}

CODE static HF_APART void T(reach)(ptrdiff_t n_vertices, REAL *f, REAL *mu) {
    T(descend)(n_vertices, f, mu + (n_vertices + 1) * ROW, mu, 0);
}

CODE static HF_APART void T(reach_and_keep)(ptrdiff_t n_vertices, REAL *d, REAL *c, REAL *mu) {
    T(descend)(n_vertices, d, c, mu, 1);
}

/* For vertex i and LANES samples from u on: sets w[i] to the sum of its children's w, multiplied by `left` and `right`;
   and replaces d by d w_right - c w_left. */
CODE HF_INLINE void T(join)(ptrdiff_t i, int u, REAL *d, const REAL *c, REAL *w, T(vec) left, T(vec) right) {
    left *= T(load)(w + (2 * i + 1) * ROW + u);
    right *= T(load)(w + (2 * i + 2) * ROW + u);
    T(store)(d + i * ROW + u, T(load)(d + i * ROW + u) * right - T(load)(c + i * ROW + u) * left);
    T(store)(w + i * ROW + u, left + right);
}

/* Calls `join` for every vertex, from the leaves up. */
CODE static HF_APART void T(ascend)(ptrdiff_t n_vertices, REAL *d, const REAL *c, REAL *w) {
    for (ptrdiff_t i = n_vertices - 1; i >= 0; --i)
        for (int u = 0; u < ROW; u += LANES) T(join)(i, u, d, c, w, T(all)(1), T(all)(1));
}

/* Does the work of `ascend` after multiplying each leaf's row of w by leaves[l, label] of each sample. */
CODE static HF_APART void T(ascend_labels)(
    ptrdiff_t n_vertices, const REAL *leaves, ptrdiff_t n_classes, const int32_t *labels, REAL *d, const REAL *c,
    REAL *w) {
    ptrdiff_t l;
    int s;
#ifdef PICK
    if (n_classes <= 32) {
        for (ptrdiff_t i = n_vertices - 1; i >= n_vertices / 2; --i)
            for (s = 0; s < ROW; s += LANES) {
                const REAL *row = leaves + (2 * i + 1 - n_vertices) * n_classes;
                T(join)(i, s, d, c, w, PICK(row, n_classes, labels + s), PICK(row + n_classes, n_classes, labels + s));
            }
        T(ascend)(n_vertices / 2, d, c, w);
        return;
    }
#endif
    for (l = 0; l <= n_vertices; ++l)
        for (s = 0; s < ROW; ++s) w[(n_vertices + l) * ROW + s] *= leaves[l * n_classes + labels[s]];
    T(ascend)(n_vertices, d, c, w);
}

/* Multiplies w[l] by the sum over k of leaves[l, k] grad[k], for each sample. */
CODE static void T(leaf_products)(
    const REAL *leaves, ptrdiff_t n_leaves, ptrdiff_t n_classes, const REAL *grad, REAL *w) {
    T(vec) sum;
    ptrdiff_t l, k;
    int u;
    for (l = 0; l < n_leaves; ++l)
        for (u = 0; u < ROW; u += LANES) {
            sum = T(all)(0);
            for (k = 0; k < n_classes; ++k) sum += T(load)(grad + k * ROW + u) * T(all)(leaves[l * n_classes + k]);
            T(store)(w + l * ROW + u, T(load)(w + l * ROW + u) * sum);
        }
}

/* Adds the lanes of a vector to float64 sums. */
CODE HF_INLINE void T(add_lanes)(T(vec) a, double *total) {
#if LANES > 1 && !defined(__clang__)
    /* GCC converts a loop element by element. */
    typedef double wide __attribute__((vector_size(LANES * sizeof(double)), aligned(sizeof(double)), may_alias));
    *(wide *)total += __builtin_convertvector(a, wide);
#else
    REAL lane[LANES];
    int s;
    memcpy(lane, &a, sizeof lane);
    for (s = 0; s < LANES; ++s) total[s] += (double)lane[s];
#endif
}

/* Adds the sum over l of mu[l] leaves[l, k] to total[k], for n <= CLASSES classes. */
CODE HF_INLINE void T(some_outputs)(
    const REAL *mu, const REAL *leaves, ptrdiff_t n_leaves, ptrdiff_t n_classes, const int n, double *total) {
    T(vec) sum[CLASSES], m;
    ptrdiff_t block, last, l;
    int u, k;
    for (block = 0; block < n_leaves; block += LEAVES) {
        last = block + LEAVES < n_leaves ? block + LEAVES : n_leaves;
        for (u = 0; u < ROW; u += LANES) {
#pragma GCC unroll 16
            for (k = 0; k < n; ++k) sum[k] = T(all)(0);
            for (l = block; l < last; ++l) {
                m = T(load)(mu + l * ROW + u);
#pragma GCC unroll 16
                for (k = 0; k < n; ++k) sum[k] += m * T(all)(leaves[l * n_classes + k]);
            }
#pragma GCC unroll 16
            for (k = 0; k < n; ++k) T(add_lanes)(sum[k], total + k * ROW + u);
        }
    }
}

CODE static void T(outputs)(
    const REAL *mu, const REAL *leaves, ptrdiff_t n_leaves, ptrdiff_t n_classes, double *total) {
    ptrdiff_t parts = (n_classes + CLASSES - 1) / CLASSES, k, stop;
    for (k = 0; k < n_classes; k = stop) {
        stop = k + (n_classes + parts - 1) / parts;
        if (stop > n_classes) stop = n_classes;
        switch (stop - k) {
#define HF_CASE(n) \
    case n: T(some_outputs)(mu, leaves + k, n_leaves, n_classes, n, total + k * ROW); break;
            HF_CASE(1) HF_CASE(2) HF_CASE(3) HF_CASE(4) HF_CASE(5) HF_CASE(6) HF_CASE(7)
            HF_CASE(8) HF_CASE(9) HF_CASE(10) HF_CASE(11) HF_CASE(12) HF_CASE(13)
#undef HF_CASE
        }
    }
}

/* Adds column[l] times the sum over samples of mu[l] * weight to total[l]. The ROW elements of a leaf are added
   pairwise, in the same order on every path. */
CODE static void T(posteriors)(
    const REAL *mu, const REAL *weight, const REAL *column, ptrdiff_t n_leaves, double *total) {
    T(vec) a[LANES], sum[ROW];
    REAL lane[LANES];
    ptrdiff_t l, n;
    int u, j, half;
    for (l = 0; l < n_leaves; l += LANES) {
        n = n_leaves - l < LANES ? n_leaves - l : LANES;
        for (u = 0; u < VECTORS; ++u) {
#pragma GCC unroll 16
            for (j = 0; j < LANES; ++j)
                a[j] = j < n ? T(load)(mu + (l + j) * ROW + u * LANES) * T(load)(weight + u * LANES) : T(all)(0);
            T(transpose)(a);
#pragma GCC unroll 16
            for (j = 0; j < LANES; ++j) sum[u * LANES + j] = a[j];
        }
#pragma GCC unroll 4
        for (half = ROW / 2; half > 0; half /= 2) {
#pragma GCC unroll 16
            for (j = 0; j < half; ++j) sum[j] += sum[j + half];
        }
        memcpy(lane, sum, sizeof lane);
        for (j = 0; j < n; ++j) total[l + j] += (double)column[l + j] * (double)lane[j];
    }
}

/* Writes p[s] = sum over l of mu[l] column[l], summed over blocks of LEAVES in this dtype, then in float64. */
CODE static void T(likelihoods)(const REAL *mu, const REAL *column, ptrdiff_t n_leaves, double *p) {
    T(vec) even, odd;
    ptrdiff_t block, last, l;
    int u;
    for (u = 0; u < ROW; ++u) p[u] = 0;
    for (block = 0; block < n_leaves; block += LEAVES) {
        last = block + LEAVES < n_leaves ? block + LEAVES : n_leaves;
        for (u = 0; u < ROW; u += LANES) {
            /* Two independent chains of additions; n_leaves is even. */
            even = odd = T(all)(0);
            for (l = block; l < last; l += 2) {
                even += T(load)(mu + l * ROW + u) * T(all)(column[l]);
                odd += T(load)(mu + (l + 1) * ROW + u) * T(all)(column[l + 1]);
            }
            T(add_lanes)(even + odd, p + u);
        }
    }
}

CODE static void T(multiply)(void *a, ptrdiff_t n, double factor) {
    HF_COUNT("neural", __func__);
    for (ptrdiff_t i = 0; i < n; ++i) ((REAL *)a)[i] *= (REAL)factor;
}

/* -------------------------------------------------------------------------------------------- tiles */

/* Writes to rows[s] the address of the decision functions of tree m for sample first + s, or for order[first + s] if
   `order` is not NULL. Lanes beyond `count` read the first sample again. */
CODE static void T(samples)(
    const hf_forest *a, const int32_t *order, ptrdiff_t first, int count, ptrdiff_t m, const REAL **rows) {
    for (int s = 0; s < ROW; ++s) {
        ptrdiff_t n = first + (s < count ? s : 0);
        rows[s] = (const REAL *)a->f + (order ? order[n] : n) * a->n_functions + (a->index ? 0 : m * a->n_vertices);
    }
}

/* Does the same as `samples` for the rows of grad_f. */
CODE static void T(targets)(const hf_forest *a, REAL *grad_f, ptrdiff_t first, int count, ptrdiff_t m, REAL **rows) {
    for (int s = 0; s < ROW; ++s)
        rows[s] = grad_f + (first + (s < count ? s : 0)) * a->n_functions + (a->index ? 0 : m * a->n_vertices);
}

CODE static HF_APART void T(route_tile)(
    const hf_forest *a, ptrdiff_t first, int count, ptrdiff_t m, unsigned char *workspace, void *mu_out) {
    HF_COUNT("neural", __func__);
    const ptrdiff_t v = a->n_vertices, n_leaves = v + 1;
    REAL *tile = (REAL *)workspace, *mu = tile + v * ROW, *to[ROW];
    const REAL *rows[ROW];
    T(samples)(a, NULL, first, count, m, rows);
    T(fill)(rows, a->index ? a->index + m * v : NULL, v, tile, mu + (v + 1) * ROW, NULL);
    T(reach)(v, tile, mu);
    for (int s = 0; s < count; ++s) to[s] = (REAL *)mu_out + ((first + s) * a->n_trees + m) * n_leaves;
    T(spread)(mu + v * ROW, NULL, n_leaves, count, NULL, to);
}

/* Writes the sums over trees divided by the number of trees. */
CODE static void T(means)(const hf_forest *a, const double *total, ptrdiff_t first, int count, void *p) {
    for (int s = 0; s < count; ++s)
        for (ptrdiff_t k = 0; k < a->n_classes; ++k)
            ((REAL *)p)[(first + s) * a->n_classes + k] = (REAL)(total[k * ROW + s] / (double)a->n_trees);
}

CODE static HF_APART void T(forward_tile)(
    const hf_forest *a, ptrdiff_t first, int count, unsigned char *workspace, double *total, void *p) {
    HF_COUNT("neural", __func__);
    const ptrdiff_t v = a->n_vertices, n_classes = a->n_classes;
    REAL *tile = (REAL *)workspace, *mu = tile + v * ROW;
    const REAL *rows[ROW];
    int64_t n_steps = 0;
    memset(total, 0, ROW * n_classes * sizeof *total);
    for (ptrdiff_t m = 0; m < a->n_trees; ++m) {
        if (hf_stopped_after(a->watch, &n_steps, v * ROW)) return;
        T(samples)(a, NULL, first, count, m, rows);
        T(fill)(rows, a->index ? a->index + m * v : NULL, v, tile, mu + (v + 1) * ROW, NULL);
        T(reach)(v, tile, mu);
        T(outputs)(mu + v * ROW, (const REAL *)a->leaves + m * (v + 1) * n_classes, v + 1, n_classes, total);
    }
    T(means)(a, total, first, count, p);
}

/* Writes the part of the labels' gradient that plain products yield. likelihood[m, s] = P of tree m. If P of a tree is
   too small for plain products, its gradient is 0 if each tree has a loss of its own, and undefined otherwise. If p is
   not NULL, it receives the result of `forward_tile`, with `total` as workspace for the sums. */
CODE static HF_APART void T(labels_tile)(
    const hf_forest *a, const int32_t *y, int forest, ptrdiff_t first, int count, unsigned char *workspace,
    double *likelihood, double *total, void *grad, void *p) {
    HF_COUNT("neural", __func__);
    const ptrdiff_t v = a->n_vertices, n_classes = a->n_classes;
    const double share = 1.0 / ((double)a->n_samples * (double)a->n_trees);
    REAL *d = (REAL *)workspace, *c = d + v * ROW, *w = c + v * ROW, *to[ROW], scale[ROW], *grad_f = grad;
    const REAL *rows[ROW];
    int32_t labels[ROW];
    int64_t n_steps = 0;
    int s;
    for (s = 0; s < ROW; ++s) labels[s] = y[first + (s < count ? s : 0)];
    if (a->index) memset(grad_f + first * a->n_functions, 0, count * a->n_functions * sizeof *grad_f);
    if (p) memset(total, 0, ROW * n_classes * sizeof *total);
    for (ptrdiff_t m = 0; m < a->n_trees; ++m) {
        if (hf_stopped_after(a->watch, &n_steps, v * ROW)) return;
        const int32_t *index = a->index ? a->index + m * v : NULL;
        const REAL *leaves = (const REAL *)a->leaves + m * (v + 1) * n_classes;
        T(samples)(a, NULL, first, count, m, rows);
        T(targets)(a, grad_f, first, count, m, to);
        T(fill)(rows, index, v, d, c, to);
        T(reach_and_keep)(v, d, c, w);
        if (p) T(outputs)(w + v * ROW, leaves, v + 1, n_classes, total);
        T(ascend_labels)(v, leaves, n_classes, labels, d, c, w);
        for (s = 0; s < ROW; ++s) {
            likelihood[m * ROW + s] = (double)w[s];
            scale[s] = likelihood[m * ROW + s] >= LEAST ? (REAL)(share / likelihood[m * ROW + s]) : 0;
        }
        T(spread)(d, index, v, count, forest ? NULL : scale, to);
    }
    if (p) T(means)(a, total, first, count, p);
}

/* Writes the gradient of any loss, from its gradient grad_p (n_samples, n_classes) with respect to p. */
CODE static HF_APART void T(outputs_tile)(
    const hf_forest *a, const void *by_p, ptrdiff_t first, int count, unsigned char *workspace, void *by_f) {
    HF_COUNT("neural", __func__);
    const ptrdiff_t v = a->n_vertices, n_classes = a->n_classes;
    REAL *d = (REAL *)workspace, *c = d + v * ROW, *w = c + v * ROW, *grad = w + (2 * v + 2) * ROW, *to[ROW];
    REAL scale[ROW], *grad_f = by_f;
    const REAL *rows[ROW], *grad_p = by_p;
    ptrdiff_t m, k;
    int64_t n_steps = 0;
    int s;
    if (a->index) memset(grad_f + first * a->n_functions, 0, count * a->n_functions * sizeof *grad_f);
    for (k = 0; k < n_classes; ++k)
        for (s = 0; s < ROW; ++s) grad[k * ROW + s] = grad_p[(first + (s < count ? s : 0)) * n_classes + k];
    /* The output increases with f on the left side, opposite to the sign in `ascend`. */
    for (s = 0; s < ROW; ++s) scale[s] = (REAL)(-1.0 / (double)a->n_trees);
    for (m = 0; m < a->n_trees; ++m) {
        if (hf_stopped_after(a->watch, &n_steps, v * ROW)) return;
        const int32_t *index = a->index ? a->index + m * v : NULL;
        T(samples)(a, NULL, first, count, m, rows);
        T(targets)(a, grad_f, first, count, m, to);
        T(fill)(rows, index, v, d, c, to);
        T(reach_and_keep)(v, d, c, w);
        T(leaf_products)((const REAL *)a->leaves + m * (v + 1) * n_classes, v + 1, n_classes, grad, w + v * ROW);
        T(ascend)(v, d, c, w);
        T(spread)(d, index, v, count, scale, to);
    }
}

/* Adds the weighted posteriors of tree m's leaves for up to ROW samples of one class, whose probabilities in the leaves
   are `column` (n_leaves,). Samples whose P is too small write their likelihood to p and add nothing. If `memory` is
   not NULL, mu of the leaves is stored there the first time and read afterwards. */
CODE static HF_APART void T(expect_tile)(
    const hf_forest *a, const int32_t *order, int count, ptrdiff_t m, const void *class_column,
    unsigned char *workspace, void *memory, int first_time, double *p, double *total) {
    HF_COUNT("neural", __func__);
    const ptrdiff_t v = a->n_vertices;
    REAL *tile = (REAL *)workspace, *mu = tile + v * ROW, weight[ROW];
    const REAL *rows[ROW], *column = class_column, *leaf = memory ? memory : mu + v * ROW;
    if (!memory || first_time) {
        T(samples)(a, order, 0, count, m, rows);
        T(fill)(rows, a->index ? a->index + m * v : NULL, v, tile, mu + (v + 1) * ROW, NULL);
        T(reach)(v, tile, mu);
        if (memory) memcpy(memory, mu + v * ROW, (v + 1) * ROW * sizeof *mu);
    }
    T(likelihoods)(leaf, column, v + 1, p);
    for (int s = 0; s < ROW; ++s) {
        const double factor = a->weight && s < count ? a->weight[order[s]] : 1.0;
        weight[s] = s < count && p[s] >= LEAST_UPDATE ? (REAL)(factor / p[s]) : 0;
    }
    T(posteriors)(leaf, weight, column, v + 1, total);
}

static const hf_tiles TILES = {
    ROW,          LEAST,          LEAST_UPDATE,   T(route_tile), T(forward_tile),
    T(labels_tile), T(outputs_tile), T(expect_tile), T(multiply),
};

#undef REAL
#undef BITS
#undef INTS
#undef TILES
#undef VECTORS
#undef LANES
#undef CODE
#undef T
#undef PICK
