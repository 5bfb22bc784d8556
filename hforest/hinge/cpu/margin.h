/* A margin: the value that a vertex compares with its threshold, r = value(x, features) - t, and its derivatives.

   x, and features if they are real, are float or double. A sample has n columns, a vertex has one row of features. */
#ifndef HFOREST_HINGE_MARGIN_H
#define HFOREST_HINGE_MARGIN_H
#include <stddef.h>

typedef const void *const *hf_vectors; /* addresses of several vectors */

typedef struct {
    /* Writes value (count,) in double: value[i] is that of features[i] and samples[i]. */
    void (*values)(int count, hf_vectors features, hf_vectors samples, ptrdiff_t n, double *value);
    /* Adds slope[i] dr/dx of one sample at features[i] to grad (n,), in the type of x, in the order of i. */
    void (*pull_x)(
        int count, hf_vectors features, const void *sample, const double *slope, ptrdiff_t n, void *grad
    );
    /* Adds slope[i] dr/df at samples[i] to total (n,) in double, in the order of i, for elements first to
       first + n - 1 of the row of features. NULL if features are not learned. */
    void (*pull_features)(
        int count, hf_vectors samples, const void *features, const double *slope, ptrdiff_t first, ptrdiff_t n,
        double *total
    );
} hf_margin;

#endif
