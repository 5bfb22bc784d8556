/* The functions that cpu.pyx calls, for one dtype: each runs the tile on the active vector path, then redoes in
   logarithms the samples that need it. */

#if HF_X86
#define HF_ON(path, name, ...)                                                   \
    (path == HF_PATH_AVX512 ? HF_JOIN(hf_, name, HF_DTYPE, avx512)(__VA_ARGS__)  \
     : path == HF_PATH_AVX2 ? HF_JOIN(hf_, name, HF_DTYPE, avx2)(__VA_ARGS__)    \
                            : HF_JOIN(hf_, name, HF_DTYPE, plain)(__VA_ARGS__))
#else
#define HF_ON(path, name, ...) ((void)path, HF_JOIN(hf_, name, HF_DTYPE, plain)(__VA_ARGS__))
#endif

static void X(route)(
    const hf_forest *a, int path, ptrdiff_t first, int count, ptrdiff_t m, unsigned char *workspace, REAL *mu) {
    const unsigned before = hf_flush();
    HF_ON(path, route_tile, a, first, count, m, workspace, mu);
    hf_unflush(before);
}

static void X(forward)(
    const hf_forest *a, int path, ptrdiff_t first, int count, unsigned char *workspace, double *total, REAL *p) {
    const unsigned before = hf_flush();
    HF_ON(path, forward_tile, a, first, count, workspace, total, p);
    hf_unflush(before);
}

static void X(backward)(
    const hf_forest *a, int path, const REAL *grad_p, ptrdiff_t first, int count, unsigned char *workspace,
    REAL *grad_f) {
    const unsigned before = hf_flush();
    HF_ON(path, outputs_tile, a, grad_p, first, count, workspace, grad_f);
    hf_unflush(before);
}

/* Tree m in logarithms for sample n of label y: returns log P. logs: OUT, 4 (n_vertices + 1) numbers. */
static double X(exact)(const hf_forest *a, ptrdiff_t n, ptrdiff_t m, int32_t y, double *logs) {
    const ptrdiff_t v = a->n_vertices;
    return X(log_likelihood)(
        v, (const REAL *)a->f + n * a->n_functions + (a->index ? 0 : m * v), a->index ? a->index + m * v : NULL,
        (const REAL *)a->leaves + m * (v + 1) * a->n_classes + y, a->n_classes, logs);
}

static void X(exact_gradient)(
    const hf_forest *a, ptrdiff_t n, ptrdiff_t m, double weight, double *logs, REAL *grad_f) {
    const ptrdiff_t v = a->n_vertices, at = n * a->n_functions + (a->index ? 0 : m * v);
    const int32_t *index = a->index ? a->index + m * v : NULL;
    double *shares = logs + 2 * v + 2;
    X(log_shares)(v, (const REAL *)a->f + at, index, logs, shares);
    X(log_gradient)(v, (const REAL *)a->f + at, index, shares, weight, grad_f + at);
}

/* Sample n's loss, and its gradient where plain products do not give it. likelihood: P of tree m at
   [m * ROW]. Returns the factor by which the row of grad_f is still to be multiplied. */
static double X(finish)(
    const hf_forest *a, int forest, ptrdiff_t n, int32_t y, double *likelihood, double *logs,
    double *loss, REAL *grad_f) {
    const double n_samples = (double)a->n_samples, n_trees = (double)a->n_trees;
    double total = 0, high = -HUGE_VAL;
    ptrdiff_t m;
    if (!forest) {
        for (m = 0; m < a->n_trees; ++m) {
            double p = likelihood[m * ROW];
            if (p >= LEAST) {
                total += log(p);
            } else {
                total += X(exact)(a, n, m, y, logs);
                X(exact_gradient)(a, n, m, 1 / (n_samples * n_trees), logs, grad_f);
            }
        }
        *loss = -total / n_trees;
        return 1;
    }
    for (m = 0; m < a->n_trees; ++m) total += likelihood[m * ROW];
    if (total >= LEAST) {
        *loss = -log(total / n_trees);
        return 1 / (n_samples * total);
    }
    memset(grad_f + n * a->n_functions, 0, a->n_functions * sizeof *grad_f);
    for (m = 0; m < a->n_trees; ++m) {
        likelihood[m * ROW] = X(exact)(a, n, m, y, logs);
        if (likelihood[m * ROW] > high) high = likelihood[m * ROW];
    }
    *loss = HUGE_VAL;
    if (high == -HUGE_VAL) return 1;
    total = 0;
    for (m = 0; m < a->n_trees; ++m) total += exp(likelihood[m * ROW] - high);
    *loss = -(high + log(total / n_trees));
    for (m = 0; m < a->n_trees; ++m) {
        const double weight = exp(likelihood[m * ROW] - high) / total;
        if (weight > 0) {
            X(exact)(a, n, m, y, logs);
            X(exact_gradient)(a, n, m, weight / n_samples, logs, grad_f);
        }
    }
    return 1;
}

static void X(loss_backward)(
    const hf_forest *a, int path, const int32_t *y, int forest, ptrdiff_t first, int count, unsigned char *workspace,
    double *likelihood, double *total, double *loss, REAL *grad_f, REAL *p) {
    unsigned before = hf_flush();
    HF_ON(path, labels_tile, a, y, forest, first, count, workspace, likelihood, total, grad_f, p);
    hf_unflush(before);
    if (hf_has_stopped(a->watch)) return;
    for (int s = 0; s < count; ++s) {
        const double factor = X(finish)(
            a, forest, first + s, y[first + s], likelihood + s, (double *)workspace, loss + first + s, grad_f);
        if (factor != 1) {
            before = hf_flush();
            HF_ON(path, multiply, grad_f + (first + s) * a->n_functions, a->n_functions, (REAL)factor);
            hf_unflush(before);
        }
    }
}

/* total[l] = sum over the samples of one class of the posterior of leaf l of tree m. `memory`, if it is not NULL,
   holds mu of the leaves for every tile of samples. */
static void X(expect)(
    const hf_forest *a, int path, const int32_t *order, ptrdiff_t n, ptrdiff_t m, int32_t y,
    unsigned char *workspace, unsigned char *memory, int first_time, double *total) {
    const ptrdiff_t v = a->n_vertices, n_leaves = v + 1;
    const REAL *leaves = (const REAL *)a->leaves + m * n_leaves * a->n_classes + y;
    REAL *column = (REAL *)workspace;
    double *logs = (double *)(workspace + ((n_leaves + ROW - 1) / ROW) * 64), p[ROW];
    ptrdiff_t t, l;
    int64_t n_steps = 0;
    for (l = 0; l < n_leaves; ++l) {
        column[l] = leaves[l * a->n_classes];
        total[l] = 0;
    }
    for (t = 0; t < n; t += ROW) {
        if (hf_stopped_after(a->watch, &n_steps, n_leaves * ROW)) return;
        const int count = n - t < ROW ? (int)(n - t) : ROW;
        const unsigned before = hf_flush();
        HF_ON(path, expect_tile, a, order + t, count, m, column, (unsigned char *)logs,
              memory ? (REAL *)memory + t * n_leaves : NULL, first_time, p, total);
        hf_unflush(before);
        for (int s = 0; s < count; ++s) {
            const ptrdiff_t at = (ptrdiff_t)order[t + s] * a->n_functions + (a->index ? 0 : m * v);
            if (p[s] >= LEAST_UPDATE || X(exact)(a, order[t + s], m, y, logs) == -HUGE_VAL) continue;
            X(log_shares)(v, (const REAL *)a->f + at, a->index ? a->index + m * v : NULL, logs, logs + 2 * n_leaves);
            for (l = 0; l < n_leaves; ++l) total[l] += logs[2 * n_leaves + v + l];
        }
    }
}

#undef HF_ON
