/* Adds the outputs of a group of trees. simd/sums.h includes this once per element type, and defines

   REAL, NAME(what)           float or double; name of a function
   FOUR, TO_FOUR(x)           a vector of four REALs; four times x
   PRODUCT(from, x)           the four REALs at an address times x, rounded, as doubles
   PRODUCT_LAST(from, x, n)   the same of the first n of them; the others are not read */

/* Adds elements `first` to first + (count - 1) * 4 + n_last - 1 of the outputs; count is a constant. */
HF_AVX2_CODE HF_INLINE void NAME(add_some)(const hf_sums *a, const ptrdiff_t first, const int count, const int n_last) {
    const hf_group g = a->group;
    const ptrdiff_t n_outputs = a->n_outputs, tree = a->n_leaves * n_outputs;
    const ptrdiff_t last_sample = g.n - a->next_samples, last_tree = g.n_trees - a->next_trees;
    const ptrdiff_t ahead = a->next_samples * g.sample_step + a->next_trees * g.tree_step;
    const __m256i mask = HF_MASK(n_last);
    const REAL *margin = (const REAL *)g.margin;
    for (ptrdiff_t s = 0; s < g.n; ++s) {
        double *total = a->total + s * n_outputs + first;
        const REAL *w = (const REAL *)a->weights + first;
        ptrdiff_t at = s * g.sample_step;
        __m256d sums[HF_VECTORS_EACH], last = _mm256_maskload_pd(total + (count - 1) * 4, mask);
        for (int i = 0; i < count - 1; ++i) sums[i] = _mm256_loadu_pd(total + i * 4);
        for (ptrdiff_t j = 0; j < g.n_trees; ++j, at += g.tree_step, w += tree) {
            const REAL *row = w + g.leaf[at] * n_outputs;
            const FOUR size = TO_FOUR((REAL)fabs(margin[at]));
            if (s < last_sample && j < last_tree) {
                const REAL *next = w + a->next_trees * tree + g.leaf[at + ahead] * n_outputs;
                HF_PREFETCH(next);
                HF_PREFETCH(next + (count - 1) * 4 + n_last - 1);
            }
            for (int i = 0; i < count - 1; ++i) sums[i] = _mm256_add_pd(sums[i], PRODUCT(row + i * 4, size));
            last = _mm256_add_pd(last, PRODUCT_LAST(row + (count - 1) * 4, size, n_last));
        }
        for (int i = 0; i < count - 1; ++i) _mm256_storeu_pd(total + i * 4, sums[i]);
        _mm256_maskstore_pd(total + (count - 1) * 4, mask, last);
    }
}

HF_AVX2_CODE static void NAME(add)(const hf_sums *a) {
    HF_COUNT("hinge", __func__);
    const ptrdiff_t most = HF_VECTORS_EACH * 4;
    for (ptrdiff_t first = 0; first < a->n_outputs; first += most) {
        const ptrdiff_t left = a->n_outputs - first, n = left < most ? left : most;
        const int count = (int)((n + 3) / 4), n_last = (int)(n - (count - 1) * 4);
        switch (count) {
        case 1: NAME(add_some)(a, first, 1, n_last); break;
        case 2: NAME(add_some)(a, first, 2, n_last); break;
        case 3: NAME(add_some)(a, first, 3, n_last); break;
        case 4: NAME(add_some)(a, first, 4, n_last); break;
        case 5: NAME(add_some)(a, first, 5, n_last); break;
        case 6: NAME(add_some)(a, first, 6, n_last); break;
        case 7: NAME(add_some)(a, first, 7, n_last); break;
        default: NAME(add_some)(a, first, HF_VECTORS_EACH, n_last);
        }
    }
}

#undef REAL
#undef NAME
#undef FOUR
#undef TO_FOUR
#undef PRODUCT
#undef PRODUCT_LAST
