/* Compares every vector body of hinge's routing with a plain loop, bit for bit. The argument "spoil" changes one result,
   which must be found. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cpu_features.h"
#include "hinge/cpu/simd/route.h"
#include "hinge/cpu/simd/transpose.h"

#if HF_VECTORS
/* The bodies of 64 bytes in the instructions that every processor has. */
#define ROUTE_FERN wide_fern_f32
#define LEVELS wide_levels_f32
#define REAL float
#define WORD int32_t
#define REALS hf_f32x16
#define WORDS hf_i32x16
#define INTS hf_i32x16
#define BYTES 64
#define CODE
#define CHOOSE HF_CHOOSE
#define LEAST HF_LEAST
#include "hinge/cpu/simd/route_body.h"

#define ROUTE_FERN wide_fern_f64
#define LEVELS wide_levels_f64
#define REAL double
#define WORD int64_t
#define REALS hf_f64x8
#define WORDS hf_i64x8
#define INTS hf_i32x8
#define BYTES 64
#define CODE
#define CHOOSE HF_CHOOSE
#define LEAST HF_LEAST
#include "hinge/cpu/simd/route_body.h"
#endif

enum { TREE, FERN, ROW };

static uint32_t state = 1;
static long compared;

static int draw(int stop) {
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 8) % (uint32_t)stop);
}

/* Returns n_bytes of memory and not one more, so that AddressSanitizer reports an access after its end. */
static void *memory(size_t n_bytes) {
    void *start = NULL;
    if (posix_memalign(&start, 128, n_bytes)) abort();
    return memset(start, 0, n_bytes);
}

/* Returns a coarse value, so that there are ties and zeros of both signs; a threshold is sometimes infinite. */
static double value(int threshold) {
    const int i = draw(41);
    if (threshold && i == 40) return draw(2) ? HUGE_VAL : -HUGE_VAL;
    return i == 20 && draw(2) ? -0.0 : (i - 20) / 8.0;
}

/* The values and their differences are exact in float. */
static void put(void *array, int itemsize, ptrdiff_t i, double a) {
    if (itemsize == 4) ((float *)array)[i] = (float)a;
    else ((double *)array)[i] = a;
}

static double get(const void *array, int itemsize, ptrdiff_t i) {
    return itemsize == 4 ? ((const float *)array)[i] : ((const double *)array)[i];
}

/* Routes one sample by Lay et al. 2018, Alg. 3, and returns whether leaf, margin and vertex are the given ones; if vertex
   is negative, whether leaf and absolute margin are. */
static int is_route(
    const double *x, const double *t, const int32_t *f, int depth, int fern, int leaf, double margin, int vertex) {
    double lowest = x[f[0]] - t[0];
    int at = 0, nearest = 0, bits = 0;
    for (int level = 0; level < depth; ++level) {
        const double r = x[f[at]] - t[at];
        if (fabs(r) < fabs(lowest)) lowest = r, nearest = at;
        bits = 2 * bits + (r > 0);
        at = fern ? at + 1 : 2 * at + (r > 0) + 1;
    }
    if (vertex < 0) return leaf == bits && margin == fabs(lowest) && !signbit(margin);
    return leaf == bits && vertex == nearest && margin == lowest && signbit(margin) == signbit(lowest);
}

/* Returns whether a body routes n samples of a tile, or one row in n trees, as the plain loop does. */
static int agree(hf_router route, int itemsize, int kind, int depth, int n_features, int n, int spoil) {
    const int n_vertices = kind == FERN ? depth : (1 << depth) - 1, n_trees = kind == ROW ? n : 1;
    const int n_rows = kind == ROW ? 1 : n, n_results = kind == ROW ? HF_WALKS : HF_TILE;
    double *x = memory(8 * (size_t)(n_rows * n_features)), *t = memory(8 * (size_t)(n_trees * n_vertices));
    int32_t *f = memory(4 * (size_t)(n_trees * n_vertices));
    void *input = memory((size_t)itemsize * (size_t)((kind == ROW ? 1 : HF_TILE) * n_features));
    void *thresholds = memory((size_t)itemsize * (size_t)(n_trees * n_vertices));
    void *margin = memory((size_t)(itemsize * n_results));
    int32_t *leaf = memory(4 * (size_t)n_results), *vertex = memory(4 * (size_t)n_results);
    uint32_t *offsets = memory(4 * (size_t)(n_trees * n_vertices)), mask = 0;
    while (mask < (uint32_t)(n_features - 1)) mask = 2 * mask + 1;
    /* Half of the trees of tiles have offsets in place of features. */
    const hf_trees trees = {
        thresholds, f, n_vertices, depth, n_trees, (uint32_t)(n_features - 1), mask, n % 2 ? offsets : NULL};
    int same = 1, i;
    for (i = 0; i < n_rows * n_features; ++i) {
        x[i] = value(0);
        put(input, itemsize, kind == ROW ? i : i % n_features * HF_TILE + i / n_features, x[i]);
    }
    for (i = 0; i < n_trees * n_vertices; ++i) {
        t[i] = value(1), f[i] = draw(n_features), offsets[i] = (uint32_t)f[i] * HF_TILE;
        put(thresholds, itemsize, i, t[i]);
    }
    route(&trees, input, leaf, margin, vertex);
    if (spoil) ++vertex[n - 1];
    for (i = 0; i < n; ++i) {
        const ptrdiff_t first = kind == ROW ? (ptrdiff_t)i * n_vertices : 0;
        same &= is_route(
            kind == ROW ? x : x + i * n_features, t + first, f + first, depth, kind == FERN, leaf[i],
            get(margin, itemsize, i), vertex[i]);
    }
    if (kind != ROW) {
        route(&trees, input, leaf, margin, NULL);
        for (i = 0; i < n; ++i)
            same &= is_route(x + i * n_features, t, f, depth, kind == FERN, leaf[i], get(margin, itemsize, i), -1);
    }
    compared += n;
    free(x), free(t), free(offsets), free(f), free(input), free(thresholds), free(margin), free(leaf), free(vertex);
    return same;
}

/* Returns whether an array is transposed rightly. */
static int transposes(int n_rows, int n_columns, int step) {
    int32_t *in = memory(4 * (size_t)(n_rows * step)), *out = memory(4 * (size_t)(n_rows * n_columns));
    int same = 1;
    for (int i = 0; i < n_rows * step; ++i) in[i] = draw(1 << 24);
    hf_transpose(in, step, n_rows, n_columns, out, n_rows);
    for (int r = 0; r < n_rows; ++r)
        for (int c = 0; c < n_columns; ++c) same &= out[c * n_rows + r] == in[r * step + c];
    free(in), free(out);
    return same;
}

static int check_body(hf_router route, int itemsize, int kind, int spoil) {
    const int sizes[][2] = {{1, 1}, {3, 7}, {16, 16}, {50, 13}, {40, 11}, {100, 16}};
    int bad = 0;
    for (int depth = 1; depth <= (kind == FERN ? 30 : 12); ++depth)
        for (int i = 0; i < 6; ++i)
            bad += !agree(route, itemsize, kind, depth, sizes[i][0], sizes[i][1] * (kind == ROW ? 1 : 2), spoil);
    return bad;
}

static int report(const char *name, int bad) {
    printf("%s: %ld samples, %d disagreements\n", name, compared, bad);
    compared = 0;
    return bad;
}

static int check(const char *name, int path, int spoil) {
    int bad = 0;
    for (int itemsize = 4; itemsize <= 8; itemsize += 4) {
        bad += check_body(hf_tile_router(path, itemsize, 0), itemsize, TREE, spoil);
        bad += check_body(hf_tile_router(path, itemsize, 1), itemsize, FERN, spoil);
        bad += check_body(hf_row_router(path, itemsize), itemsize, ROW, spoil);
    }
    for (int n = 4; n < 80; n += 12)
        bad += !transposes(n, 16, 19) + !transposes(16, n, n) + !transposes(n, 4, 5);
    return report(name, bad);
}

int main(int count, char **words) {
    const int spoil = count > 1 && !strcmp(words[1], "spoil");
    int bad = 0;
    if (!HF_VECTORS || hf_tile_router(HF_PATH_PLAIN, 4, 0) || hf_row_router(HF_PATH_PLAIN, 4)) {
        printf("no vector types, or vectors on the plain path\n");
        return 2;
    }
    bad += check("vector", HF_PATH_VECTOR, spoil);
    if (hf_cpu_features() & HF_AVX2) bad += check("avx2", HF_PATH_AVX2, spoil);
    if (hf_cpu_features() & HF_AVX512) bad += check("avx512", HF_PATH_AVX512, spoil);
#if HF_VECTORS
    bad += report(
        "64 bytes", check_body(wide_fern_f32, 4, FERN, spoil) + check_body(wide_fern_f64, 8, FERN, spoil));
#endif
    return bad > 0;
}
