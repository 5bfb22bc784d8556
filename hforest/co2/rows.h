/* The rows of x on which a stump is fitted, for Cython (rows.pxd) and C, and the table of the loops over them.

   An example: a row of 20 features, with its implied offset and zeros, in blocks of 16 lanes:

       block 0   | x0 x1 ... x15                 |     n_full = 1
       block 1   | x16 x17 x18 x19 -1 0 0 ... 0  |     n_blocks = 2 */
#ifndef HFOREST_CO2_ROWS_H
#define HFOREST_CO2_ROWS_H
#include <stdint.h>

#include "co2/fit.h"

enum { HF_TOGETHER = 8 }; /* rows whose products are summed in one loop */

typedef struct hf_rows hf_rows;

typedef struct {
    void (*dots)(
        const hf_rows *rows, const void *const *row, const void *const *after, const void *w, double *product
    );
    void (*add_rows)(const hf_rows *rows, const void *const *row, const double *factor, int n, void *sum);
} hf_row_loops;

struct hf_rows {
    const hf_row_loops *loops;
    const void *x; /* (n, n_features), float if `single`, else double */
    int64_t n, n_features, n_full, n_blocks; /* blocks of a row: full ones, and all */
    int single, offset;                      /* offset: whether a constant -1 follows the features */
    /* For windows, whose rows are standardized copies (growth/columns.pxd); else NULL and 0. */
    const int64_t *place; /* (n_features,): positions relative to that of a window */
    const double *mean, *deviation;
    int64_t room; /* rows of a node that a tree copies once, at most */
};

#endif
