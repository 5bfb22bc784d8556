/* Settings of Adam and the tables of its missed steps (Kingma & Ba 2015; tables.py). */
#ifndef HFOREST_OPTIM_ADAM_H
#define HFOREST_OPTIM_ADAM_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "optim/missed.h"

typedef struct hf_adam hf_adam;

/* p, m, v: IN, OUT (n,); g: IN (n,). All float or all double. */
typedef struct {
    /* Takes the step whose rate and scale are in a. */
    void (*step)(void *p, const void *g, void *m, void *v, ptrdiff_t n, const hf_adam *a);
    /* Takes the missed steps start + 1 to stop. */
    void (*missed)(void *p, void *m, void *v, ptrdiff_t n, int64_t start, int64_t stop, const hf_adam *a);
} hf_adam_bodies;

struct hf_adam {
    double lr, beta1, beta2, eps;
    double shrink;           /* 1 - lr weight_decay, by which each step multiplies p; 1 without decay */
    double rate;             /* lr / (1 - beta1**step) */
    double scale;            /* 1 / sqrt(1 - beta2**step) */
    const double *powers;    /* (3, n_powers): beta1, beta2 and shrink to the powers 1, 2, 4, ... */
    const double *decay;     /* (4, n_decays): beta1, beta2, sqrt(beta2), shrink to the powers 0, 1, 2, ... */
    const double *tail;      /* (n_steps, n_columns) */
    const int64_t *visible;  /* (n_steps): column of the last coefficient that changes a float32 result */
    ptrdiff_t n_powers, n_decays, n_steps, n_columns;
    int64_t closed;
    const hf_adam_bodies *bodies; /* bodies for the dtype and the vector path, or NULL */
};

/* Returns the base to the power n from its powers 1, 2, 4, 8, ..., bit-identical to the table of decays. */
static double hf_power(const double *squares, int64_t n) {
    double result = 1;
    for (; n > 0; ++squares, n >>= 1)
        if (n & 1) result *= *squares;
    return result;
}

/* Returns beta1, beta2, sqrt(beta2) or shrink (which = 0, 1, 2, 3) to the power n. */
static inline double hf_decay(const hf_adam *a, int which, int64_t n) {
    if (n < a->n_decays) return a->decay[which * a->n_decays + n];
    if (which == 2) return sqrt(hf_power(a->powers + a->n_powers, n));
    return hf_power(a->powers + (which == 3 ? 2 : which) * a->n_powers, n);
}

/* Returns the step, or the last step of the tables. */
static inline int64_t hf_saturated(const hf_adam *a, int64_t step) {
    return step < a->n_steps ? step : a->n_steps - 1;
}

/* Returns the row of a step in the table of tails. */
static inline const double *hf_row(const hf_adam *a, int64_t step) {
    return a->tail + hf_saturated(a, step) * a->n_columns;
}

/* Returns the column of the last coefficient that counts in the dtype. */
static inline ptrdiff_t hf_top(const hf_adam *a, int64_t step, int single) {
    return single ? (ptrdiff_t)a->visible[hf_saturated(a, step)] : a->n_columns - 1;
}

/* Returns the last of the steps start + 1 to stop that are taken one by one: those where the polynomials are not exact
   yet, or all if few are left. */
static inline int64_t hf_middle(const hf_adam *a, int64_t start, int64_t stop) {
    const int64_t middle = start > a->closed ? start : a->closed;
    return stop - middle <= HF_FEW ? stop : middle;
}

#endif
