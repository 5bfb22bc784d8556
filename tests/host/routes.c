/* Compares every vector path of hinge's routing with the plain loop, bit for bit. The argument "spoil" changes one
   result, which must be found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cpu_features.h"
#include "hinge/plain.h"
#include "hinge/route.h"
#include "core/simd.h"

static uint32_t state = 1;

static int draw(int stop) {
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 8) % (uint32_t)stop);
}

/* Returns n_bytes of memory and not one more, so that AddressSanitizer reports an access after its end. */
static void *memory(size_t n_bytes) {
    void *start = NULL;
    if (posix_memalign(&start, 128, n_bytes)) abort();
    return start;
}

/* Returns a coarse value, so that there are ties and zeros of both signs; a threshold is sometimes infinite. */
static double value(int threshold) {
    const int i = draw(41);
    if (threshold && i == 40) return draw(2) ? HUGE_VAL : -HUGE_VAL;
    return i == 20 && draw(2) ? -0.0 : (i - 20) / 8.0;
}

static long compared;

#define AGREE(SUFFIX, REAL)                                                                               \
    static int agree_##SUFFIX(int path, int fern, int depth, int n_features, int n, int packed, int spoil) { \
        const int n_vertices = fern ? depth : (1 << depth) - 1;                                           \
        REAL *x = memory(sizeof(REAL) * n * n_features), *t = memory(sizeof(REAL) * n_vertices);          \
        REAL *tile = memory(sizeof(REAL) * HF_TILE * n_features), *margin = memory(sizeof(REAL) * HF_TILE); \
        REAL *margin_want = memory(sizeof(REAL) * n);                                                     \
        int32_t *f = memory(4 * n_vertices), *words = memory(4 * n_vertices), *leaf = memory(4 * HF_TILE); \
        int32_t *vertex = memory(4 * HF_TILE), *leaf_want = memory(4 * n), *vertex_want = memory(4 * n);  \
        hf_tree tree;                                                                                     \
        int same, i;                                                                                      \
        for (i = 0; i < n * n_features; ++i) x[i] = (REAL)value(0);                                       \
        for (i = 0; i < n_vertices; ++i) t[i] = (REAL)value(1), f[i] = draw(n_features);                  \
        hf_route_plain_##SUFFIX(                                                                          \
            x, n_features, n, t, f, n_vertices, depth, fern, 1, leaf_want, margin_want, vertex_want, 1);  \
        hf_fill_tile_##SUFFIX(path, x, n_features, 0, n_features / 3, n, tile);                           \
        hf_fill_tile_##SUFFIX(path, x, n_features, n_features / 3, n_features, n, tile);                  \
        hf_prepare_##SUFFIX(&tree, n_vertices, depth, t, f, packed ? words : NULL);                       \
        hf_route_##SUFFIX(&tree, path, fern, tile, leaf, margin, vertex);                                 \
        if (spoil) margin[n - 1] = -margin[n - 1];                                                        \
        same = !memcmp(leaf, leaf_want, 4 * n) && !memcmp(vertex, vertex_want, 4 * n) &&                  \
               !memcmp(margin, margin_want, sizeof(REAL) * n);                                            \
        compared += n;                                                                                    \
        free(x), free(t), free(tile), free(margin), free(margin_want), free(f), free(words);              \
        free(leaf), free(vertex), free(leaf_want), free(vertex_want);                                     \
        return same;                                                                                      \
    }

AGREE(f32, float)
AGREE(f64, double)

/* Transposes the results of HF_GROUP trees to rows and back, and returns whether both are right. */
static int transposes(int path, int n, int n_trees, int step) {
    int32_t *in = memory(4 * HF_GROUP * n), *rows = memory(4 * n * step), *back = memory(4 * HF_GROUP * n);
    int same = 1;
    for (int i = 0; i < n_trees * n; ++i) in[i] = draw(1 << 24);
    hf_store_words(path, in, n, n_trees, n, rows, step);
    hf_load_words(path, rows, step, n_trees, n, back, n);
    for (int s = 0; s < n; ++s)
        for (int m = 0; m < n_trees; ++m) same &= rows[s * step + m] == in[m * n + s];
    same &= !memcmp(in, back, 4 * (size_t)(n_trees * n));
    free(in), free(rows), free(back);
    return same;
}

static int check(const char *name, int path, int spoil) {
    const int sizes[][2] = {{1, 1}, {3, 7}, {16, 32}, {50, 21}, {40, 31}, {100, 32}};
    int bad = 0;
    for (int fern = 0; fern < 2; ++fern)
        for (int depth = 1; depth <= (fern ? 30 : 14); ++depth)
            for (int i = 0; i < 6; ++i)
                for (int packed = 0; packed <= !fern; ++packed) {
                    bad += !agree_f32(path, fern, depth, sizes[i][0], sizes[i][1], packed, spoil);
                    bad += !agree_f64(path, fern, depth, sizes[i][0], sizes[i][1], packed, spoil);
                }
    for (int n = 1; n < 70; n += 17) bad += !transposes(path, n, HF_GROUP, 19) + !transposes(path, n, 5, 5);
    printf("%s: %ld samples, %d disagreements\n", name, compared, bad);
    compared = 0;
    return bad;
}

int main(int count, char **words) {
    const int spoil = count > 1 && !strcmp(words[1], "spoil");
    int bad = 0;
    if (!HF_VECTORS) {
        printf("no vector types\n");
        return 2;
    }
    bad += check("vector", HF_PATH_VECTOR, spoil);
    if (hf_cpu_features() & HF_AVX2) bad += check("avx2", HF_PATH_AVX2, spoil);
    if (hf_cpu_features() & HF_AVX512) bad += check("avx512", HF_PATH_AVX512, spoil);
    return bad > 0;
}
