/* Inner products and sums of rows. simd/projection.h includes this once per element type, and defines

   REAL           float or double
   NAME(what)     name of a function, and of the table at the end
   WIDENED(from)  the four REALs at an address as doubles */

#define TOGETHER 4 /* rows whose sums stay in registers */
#define LANES (32 / (int)sizeof(REAL))
#define REALS NAME(reals)

typedef REAL REALS __attribute__((vector_size(32), aligned(sizeof(REAL)), may_alias));

HF_AVX2_CODE HF_INLINE void NAME(some_products)(
    const int count, const REAL *const *a, const REAL *const *b, ptrdiff_t n, double *product
) {
    hf_wide sum[TOGETHER][2];
    ptrdiff_t k = 0;
#pragma GCC unroll 4
    for (int i = 0; i < count; ++i) sum[i][0] = sum[i][1] = (hf_wide){0};
    for (; k + 8 <= n; k += 8)
#pragma GCC unroll 4
        for (int i = 0; i < count; ++i) {
            sum[i][0] += WIDENED(a[i] + k) * WIDENED(b[i] + k);
            sum[i][1] += WIDENED(a[i] + k + 4) * WIDENED(b[i] + k + 4);
        }
#pragma GCC unroll 4
    for (int i = 0; i < count; ++i) {
        if (k < n) {
            double p[8];
            memcpy(p, sum[i], sizeof p);
            for (int j = 0; j < n - k; ++j) p[j] += (double)a[i][k + j] * (double)b[i][k + j];
            memcpy(sum[i], p, sizeof p);
        }
        const hf_wide s = sum[i][0] + sum[i][1];
        product[i] = (s[0] + s[2]) + (s[1] + s[3]);
    }
}

HF_AVX2_CODE static void NAME(values)(
    int count, hf_vectors features, hf_vectors samples, ptrdiff_t n, double *value
) {
    HF_COUNT("hinge", __func__);
    const REAL *const *a = (const REAL *const *)features, *const *b = (const REAL *const *)samples;
    int i = 0;
    for (; i + TOGETHER <= count; i += TOGETHER) NAME(some_products)(TOGETHER, a + i, b + i, n, value + i);
    for (; i < count; ++i) NAME(some_products)(1, a + i, b + i, n, value + i);
}

HF_AVX2_CODE HF_INLINE void NAME(some_wide)(
    const int count, const REAL *const *rows, const double *scale, ptrdiff_t first, ptrdiff_t n, double *total
) {
    ptrdiff_t k = 0;
    for (; k + 4 <= n; k += 4) {
        hf_wide sum = *(hf_wide *)(total + k);
#pragma GCC unroll 4
        for (int i = 0; i < count; ++i) sum += WIDENED(rows[i] + first + k) * scale[i];
        *(hf_wide *)(total + k) = sum;
    }
    for (; k < n; ++k)
        for (int i = 0; i < count; ++i) total[k] += scale[i] * (double)rows[i][first + k];
}

HF_AVX2_CODE static void NAME(pull_features)(
    int count, hf_vectors samples, const void *features, const double *slope, ptrdiff_t first, ptrdiff_t n,
    double *total
) {
    HF_COUNT("hinge", __func__);
    const REAL *const *rows = (const REAL *const *)samples;
    int i = 0;
    for (; i + TOGETHER <= count; i += TOGETHER) NAME(some_wide)(TOGETHER, rows + i, slope + i, first, n, total);
    for (; i < count; ++i) NAME(some_wide)(1, rows + i, slope + i, first, n, total);
    (void)features;
}

HF_AVX2_CODE HF_INLINE void NAME(some_rows)(
    const int count, const REAL *const *rows, const double *scale, ptrdiff_t n, REAL *total
) {
    ptrdiff_t k = 0;
    for (; k + LANES <= n; k += LANES) {
        REALS sum = *(REALS *)(total + k);
#pragma GCC unroll 4
        for (int i = 0; i < count; ++i) sum += *(const REALS *)(rows[i] + k) * (REAL)scale[i];
        *(REALS *)(total + k) = sum;
    }
    for (; k < n; ++k)
        for (int i = 0; i < count; ++i) total[k] += (REAL)scale[i] * rows[i][k];
}

HF_AVX2_CODE static void NAME(pull_x)(
    int count, hf_vectors features, const void *sample, const double *slope, ptrdiff_t n, void *grad
) {
    HF_COUNT("hinge", __func__);
    const REAL *const *rows = (const REAL *const *)features;
    int i = 0;
    for (; i + TOGETHER <= count; i += TOGETHER) NAME(some_rows)(TOGETHER, rows + i, slope + i, n, grad);
    for (; i < count; ++i) NAME(some_rows)(1, rows + i, slope + i, n, grad);
    (void)sample;
}

static const hf_margin NAME(projection) = {NAME(values), NAME(pull_x), NAME(pull_features)};

#undef TOGETHER
#undef LANES
#undef REALS
#undef REAL
#undef NAME
#undef WIDENED
