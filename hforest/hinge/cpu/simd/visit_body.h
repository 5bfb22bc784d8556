/* Visits the samples of one tree. simd/visit.h includes this once per element type, and defines

   REAL           float or double
   NAME(what)     name of a function
   WIDENED(from)  the four REALs at an address as doubles
   TWO(from)      the two REALs at an address as doubles, and two zeros
   NARROW(to, v)  writes four doubles as REALs */

/* Returns sgn(r) s, with sgn(0) = 0. */
HF_AVX2_CODE HF_INLINE hf_f64 NAME(slopes)(hf_f64 s, hf_f64 r) {
    const hf_i64 sign = (hf_i64)r & hf_signs;
    return (hf_f64)(((hf_i64)s ^ sign) & (hf_i64)(r != 0));
}

/* One output, with the gradients of the samples contiguous. */
HF_AVX2_CODE static void NAME(visit_single)(const hf_visits *a, REAL *slope) {
    const ptrdiff_t n = a->n;
    const int32_t *leaf = a->leaf, *place = a->place, *next = a->next_leaf;
    const REAL *margin = (const REAL *)a->margin, *g = (const REAL *)a->grad_y, *w = (const REAL *)a->weights;
    double *total = a->total;
    const double divisor = a->divisor;
    ptrdiff_t i = 0;
    for (; i + 4 <= n; i += 4) {
        if (next)
            for (int k = 0; k < 4; ++k)
                for (int j = 0; j < a->n_next; ++j) HF_PREFETCH((const REAL *)a->next_rows[j] + next[i + k]);
        const hf_f64 r = WIDENED(margin + i), by = WIDENED(g + i);
        const hf_f64 of = {w[leaf[i]], w[leaf[i + 1]], w[leaf[i + 2]], w[leaf[i + 3]]};
        const hf_f64 size = (hf_f64)((hf_i64)r & ~hf_signs) * by;
        /* Adding +0 gives the sign of zero that a dot product of several outputs has. */
        hf_f64 s = of * by + 0.0;
        if (divisor != 1) s /= divisor;
        NARROW(slope + i, NAME(slopes)(s, r));
        for (int k = 0; k < 4; ++k) total[place[i + k]] += size[k];
    }
    for (; i < n; ++i) {
        const double r = margin[i], by = g[i], s = ((double)w[leaf[i]] * by + 0.0) / divisor;
        total[place[i]] += fabs(r) * by;
        slope[i] = r != 0 ? (REAL)(s * copysign(1.0, r)) : 0;
    }
}

HF_AVX2_CODE static void NAME(visit)(const hf_visits *a, void *slope_) {
    HF_COUNT("hinge", __func__);
    const ptrdiff_t count = a->n, n_outputs = a->n_outputs, step = a->step;
    const ptrdiff_t fours = n_outputs & ~(ptrdiff_t)3, row_bytes = n_outputs * sizeof(REAL);
    const int two = n_outputs >> 1 & 1, one = n_outputs & 1, odd = fours >> 2 & 1;
    const int32_t *leaf = a->leaf, *place = a->place, *next = a->next_leaf;
    const REAL *g = (const REAL *)a->grad_y, *margin = (const REAL *)a->margin, *weights = (const REAL *)a->weights;
    double *totals = a->total;
    const double divisor = a->divisor;
    REAL *slope = (REAL *)slope_;
    if (n_outputs == 1) {
        NAME(visit_single)(a, slope);
        return;
    }
    for (ptrdiff_t n = 0; n < count; ++n, g += step) {
        if (next)
            for (int i = 0; i < a->n_next; ++i) {
                const char *row = (const char *)a->next_rows[i] + next[n] * row_bytes;
                for (ptrdiff_t at = 0; at < row_bytes; at += 64) HF_PREFETCH(row + at);
                HF_PREFETCH(row + row_bytes - 1);
            }
        const double r = margin[n], size = fabs(r);
        const REAL *w = weights + leaf[n] * n_outputs;
        double *total = totals + place[n] * n_outputs;
        /* Element k is added to lane k mod 8: lanes 0 to 3 are `low`, 4 to 7 `high`; `more` has the last 1 to 3. */
        hf_f64 low = {0}, high = {0};
        ptrdiff_t k = 0;
        for (; k + 8 <= fours; k += 8) {
            const hf_f64 by0 = WIDENED(g + k), by1 = WIDENED(g + k + 4);
            low += WIDENED(w + k) * by0;
            high += WIDENED(w + k + 4) * by1;
            *(hf_f64 *)(total + k) += by0 * size;
            *(hf_f64 *)(total + k + 4) += by1 * size;
        }
        if (odd) {
            const hf_f64 by = WIDENED(g + k);
            low += WIDENED(w + k) * by;
            *(hf_f64 *)(total + k) += by * size;
            k += 4;
        }
        if (two | one) {
            /* Adding 0 changes no sum: no sum is -0. */
            hf_f64 more = {0};
            if (two) {
                const hf_f64 by = TWO(g + k);
                more = TWO(w + k) * by;
                const __m128d pair = _mm256_castpd256_pd128((__m256d)by);
                _mm_storeu_pd(total + k, _mm_add_pd(_mm_loadu_pd(total + k), _mm_mul_pd(pair, _mm_set1_pd(size))));
                k += 2;
            }
            if (one) {
                const double by = g[k], product = (double)w[k] * by;
                if (two)
                    more = (hf_f64)_mm256_insertf128_pd((__m256d)more, _mm_set_sd(product), 1);
                else
                    more = (hf_f64)_mm256_zextpd128_pd256(_mm_set_sd(product));
                total[k] += size * by;
            }
            if (odd)
                high += more;
            else
                low += more;
        }
        const hf_f64 s = low + high;
        double dot = (s[0] + s[2]) + (s[1] + s[3]);
        if (divisor != 1) dot /= divisor;
        slope[n] = r != 0 ? (REAL)(dot * copysign(1.0, r)) : 0;
    }
}

/* Writes row (n,) = total / divisor, and sets total to 0. */
HF_AVX2_CODE static void NAME(take)(double *total, ptrdiff_t n, double divisor, void *row_) {
    HF_COUNT("hinge", __func__);
    REAL *row = (REAL *)row_;
    ptrdiff_t k = 0;
    for (; k + 4 <= n; k += 4) {
        hf_f64 v = *(hf_f64 *)(total + k);
        if (divisor != 1) v /= divisor;
        NARROW(row + k, v);
        *(hf_f64 *)(total + k) = (hf_f64){0};
    }
    for (; k < n; ++k) {
        row[k] = (REAL)(total[k] / divisor);
        total[k] = 0;
    }
}

#undef REAL
#undef NAME
#undef WIDENED
#undef TWO
#undef NARROW
