/* A margin: what a vertex compares with its threshold, r = value(x, features) - t, and what its slope pulls back.

   x and features of real numbers are float or double. A sample has n columns, a vertex a row of features. */
#ifndef HFOREST_HINGE_MARGIN_H
#define HFOREST_HINGE_MARGIN_H
#include <stddef.h>

typedef struct {
    /* Writes value (count,), in double: of the features and the sample with the same number. */
    void (*values)(int count, const void *const *features, const void *const *samples, ptrdiff_t n, double *value);
    /* Adds slope[i] dr/dx of one sample at features[i] to grad (n,), in the type of x, in the order of i. */
    void (*pull_x)(
        int count, const void *const *features, const void *sample, const double *slope, ptrdiff_t n, void *grad
    );
    /* Adds slope[i] dr/df of samples[i] to total (n,), in double, in the order of i: elements first to first + n - 1
       of the row of features. NULL where features are not learned. */
    void (*pull_features)(
        int count, const void *const *samples, const void *features, const double *slope, ptrdiff_t first, ptrdiff_t n,
        double *total
    );
} hf_margin;

#endif
