/* Edges for vectors of samples. simd/paths.h includes this once per instruction set, and defines

   NAME(what)     name of a function
   BYTES          size of a vector, at most that of a group
   CODE           the instruction set for the compiler

   The functions are those of shap_paths.pyx. A lane is a sample, so that all paths are bit-identical. */

#define SPLIT (HF_LANES * (int64_t)sizeof(double) / BYTES) /* vectors of a group */
#define ALL(a) ((a) - (NUMBERS){0})
#define PICK(a1, a0, rest) (NUMBERS)((one & (MASKS)ALL(a1)) | (zero & (MASKS)ALL(a0)) | (other & (MASKS)ALL(rest)))
#define NUMBERS NAME(numbers)
#define MASKS NAME(masks)
/* The vector h of groups is processed at all points: vectors h / SPLIT * n_points * SPLIT + h % SPLIT + q * SPLIT. */
#define FIRST (h / SPLIT * e->n_points * SPLIT + h % SPLIT)
#define READ_MASKS                                  \
    const MASKS one = ((const MASKS *)e->one)[h];   \
    const MASKS above = ((const MASKS *)e->above)[h]; \
    const MASKS zero = above & ~one, other = ~above

typedef double NUMBERS __attribute__((vector_size(BYTES), aligned(8), may_alias));
typedef int64_t MASKS __attribute__((vector_size(BYTES), aligned(8), may_alias));

CODE static void NAME(enter)(const hf_edge *e) {
    HF_COUNT("tree", __func__);
    for (int64_t h = 0; h < e->n_groups * SPLIT; ++h) {
        READ_MASKS;
        const NUMBERS *before = (const NUMBERS *)e->before + FIRST;
        NUMBERS *product = (NUMBERS *)e->product + FIRST;
        for (int64_t q = 0; q < e->n_points; ++q)
            product[q * SPLIT] = before[q * SPLIT] * PICK(e->ratio1[q], e->ratio0[q], e->share);
    }
}

CODE static void NAME(leave)(const hf_edge *e) {
    HF_COUNT("tree", __func__);
    const int64_t n_vectors = e->n_groups * SPLIT;
    for (int64_t k = 0; k < e->n_outputs; ++k)
        for (int64_t h = 0; h < n_vectors; ++h) {
            READ_MASKS;
            const int64_t first = k * n_vectors * e->n_points + FIRST;
            const NUMBERS *below = (const NUMBERS *)e->below + first;
            NUMBERS *of_parent = (NUMBERS *)e->of_parent + first, sum = {0};
            for (int64_t q = 0; q < e->n_points; ++q) {
                sum += below[q * SPLIT] * PICK(e->change1[q], e->change0[q], 0);
                of_parent[q * SPLIT] += below[q * SPLIT];
            }
            ((NUMBERS *)e->values)[k * n_vectors + h] += sum;
        }
}

CODE static void NAME(add_leaf)(const hf_edge *e, const double *v) {
    HF_COUNT("tree", __func__);
    const int64_t n_vectors = e->n_groups * SPLIT;
    for (int64_t h = 0; h < n_vectors; ++h) {
        READ_MASKS;
        const NUMBERS *product = (const NUMBERS *)e->product + FIRST;
        NUMBERS sum = {0};
        for (int64_t q = 0; q < e->n_points; ++q)
            sum += product[q * SPLIT] * PICK(e->change1[q], e->change0[q], 0);
        for (int64_t k = 0; k < e->n_outputs; ++k) {
            if (v[k] == 0) continue;
            NUMBERS *of_parent = (NUMBERS *)e->of_parent + k * n_vectors * e->n_points + FIRST;
            const NUMBERS value = ALL(v[k]);
            ((NUMBERS *)e->values)[k * n_vectors + h] += sum * value;
            for (int64_t q = 0; q < e->n_points; ++q) of_parent[q * SPLIT] += value * product[q * SPLIT];
        }
    }
}

#undef SPLIT
#undef ALL
#undef PICK
#undef NUMBERS
#undef MASKS
#undef FIRST
#undef READ_MASKS
#undef NAME
#undef BYTES
#undef CODE
