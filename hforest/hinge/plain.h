/* Routing in plain C (p1 Alg. 3): the loop whose bits every vector path has. */
#ifndef HFOREST_HINGE_PLAIN_H
#define HFOREST_HINGE_PLAIN_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* n samples of x through `count` trees or ferns, which start at `thresholds` and `features` with n_vertices
   each; results of sample s and tree j at s * step + j. Tree by tree, so that a tree is read from L1. */
#define HF_ROUTE_PLAIN(SUFFIX, REAL, FABS)                                                           \
    static void hf_route_plain_##SUFFIX(                                                             \
        const REAL *x, ptrdiff_t n_features, ptrdiff_t n, const REAL *thresholds,                    \
        const int32_t *features, ptrdiff_t n_vertices, int depth, int fern, ptrdiff_t count,         \
        int32_t *leaf, REAL *margin, int32_t *vertex, ptrdiff_t step) {                              \
        for (ptrdiff_t m = 0; m < count; ++m) {                                                      \
            const REAL *t = thresholds + m * n_vertices;                                             \
            const int32_t *f = features + m * n_vertices;                                            \
            for (ptrdiff_t s = 0; s < n; ++s) {                                                      \
                const REAL *row = x + s * n_features;                                                \
                REAL lowest = row[f[0]] - t[0];                                                      \
                int32_t at = 0, nearest = 0, bits = 0;                                               \
                for (int level = 0; level < depth; ++level) {                                        \
                    const REAL r = row[f[at]] - t[at];                                               \
                    const int right = r > 0;                                                         \
                    /* Strictly closer: on equal margins the vertex nearest the root stays. */       \
                    if (FABS(r) < FABS(lowest)) {                                                    \
                        lowest = r;                                                                  \
                        nearest = at;                                                                \
                    }                                                                                \
                    bits = 2 * bits + right;                                                         \
                    at = fern ? at + 1 : 2 * at + right + 1;                                         \
                }                                                                                    \
                leaf[s * step + m] = bits;                                                           \
                margin[s * step + m] = lowest;                                                       \
                vertex[s * step + m] = nearest;                                                      \
            }                                                                                        \
        }                                                                                            \
    }

HF_ROUTE_PLAIN(f32, float, fabsf)
HF_ROUTE_PLAIN(f64, double, fabs)

#endif
