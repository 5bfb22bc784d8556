/* Fits one oblique split (p2 Alg. 1): convex-concave steps on the surrogate of eq 10, by mini-batches with momentum.

   The loops that depend on the dtype and the vector path are in simd/stump.h. Losses are summed in double. */
#ifndef HFOREST_CO2_STUMP_H
#define HFOREST_CO2_STUMP_H
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "co2/simd/lanes16.h"
#include "co2/visits.h"
#include "core/series.h"
#include "core/simd.h"
#include "core/watch.h"

enum { HF_TOGETHER = 8 /* rows whose products are summed in one loop */ };

typedef struct {
    const void *x; /* (n, n_features) */
    int64_t n, n_features, n_full, n_blocks; /* blocks of a row: whole ones, and all */
    int offset;                           /* whether a constant -1 is implied after the features */
} hf_rows;

/* The samples of a node, in arrays of their own. */
typedef struct {
    int64_t n;
    const uint32_t *sample;  /* row of x and of the targets */
    const int32_t *label;    /* or NULL for targets */
    const double *targets;
    const double *weight;
    uint32_t *order; /* the order in which they are visited */
    int8_t *sign;    /* of w_old.x */
} hf_members;

typedef struct {
    int64_t n_outputs;
    int squared;
    double *theta[2];
    double *loss[2]; /* log loss of each class */
} hf_losses;

typedef struct {
    double *sum[2];    /* (n_outputs) of each side: weights of the classes, or sums of the targets */
    double weight[2];
} hf_pull;

/* Writes exp(sign * a[k] - shift) to out[k]; compiled for each vector path. */
HF_INLINE void hf_exps_any(const double *a, double sign, double shift, int64_t n, double *out) {
    for (int64_t k = 0; k < n; ++k) out[k] = hf_exp(sign * a[k] - shift);
}
static void hf_exps_plain(const double *a, double sign, double shift, int64_t n, double *out) {
    hf_exps_any(a, sign, shift, n, out);
}
#if HF_X86
HF_AVX2_CODE static void hf_exps_avx2(const double *a, double sign, double shift, int64_t n, double *out) {
    hf_exps_any(a, sign, shift, n, out);
}
HF_AVX512_CODE static void hf_exps_avx512(const double *a, double sign, double shift, int64_t n, double *out) {
    hf_exps_any(a, sign, shift, n, out);
}
#endif

static void hf_exps(int path, const double *a, double sign, double shift, int64_t n, double *out) {
#if HF_X86
    if (path == HF_PATH_AVX512) {
        hf_exps_avx512(a, sign, shift, n, out);
        return;
    }
    if (path == HF_PATH_AVX2) {
        hf_exps_avx2(a, sign, shift, n, out);
        return;
    }
#endif
    (void)path;
    hf_exps_plain(a, sign, shift, n, out);
}

/* Writes the log losses of all classes on both sides (eq 3). */
static void hf_prepare(int path, hf_losses *l) {
    if (l->squared) return;
    for (int side = 0; side < 2; ++side) {
        const double *theta = l->theta[side];
        double high = theta[0], sum = 0;
        for (int64_t k = 1; k < l->n_outputs; ++k) high = theta[k] > high ? theta[k] : high;
        hf_exps(path, theta, 1, high, l->n_outputs, l->loss[side]);
        for (int64_t k = 0; k < l->n_outputs; ++k) sum += l->loss[side][k];
        const double log_sum = high + hf_log2(sum) * HF_LN2;
        for (int64_t k = 0; k < l->n_outputs; ++k) l->loss[side][k] = log_sum - theta[k];
    }
}

HF_INLINE double hf_loss(const hf_losses *l, int side, const hf_members *m, uint32_t at) {
    if (!l->squared) return l->loss[side][m->label[at]];
    const double *y = m->targets + (int64_t)m->sample[at] * l->n_outputs, *theta = l->theta[side];
    double sum = 0;
    for (int64_t k = 0; k < l->n_outputs; ++k) sum += (y[k] - theta[k]) * (y[k] - theta[k]);
    return sum;
}

HF_INLINE void hf_pull_at(const hf_losses *l, hf_pull *pull, int side, const hf_members *m, uint32_t at) {
    const double w = m->weight[at];
    pull->weight[side] += w;
    if (!l->squared) {
        pull->sum[side][m->label[at]] += w;
        return;
    }
    const double *y = m->targets + (int64_t)m->sample[at] * l->n_outputs;
    for (int64_t k = 0; k < l->n_outputs; ++k) pull->sum[side][k] += w * y[k];
}

/* Sum over the samples of a side of the gradient of their loss by theta[k]. */
HF_INLINE double hf_slope_of_theta(const hf_losses *l, const hf_pull *pull, int side, int64_t k) {
    if (l->squared) return 2 * (pull->weight[side] * l->theta[side][k] - pull->sum[side][k]);
    return pull->weight[side] * hf_exp(-l->loss[side][k]) - pull->sum[side][k];
}

/* Scales w onto the ball ||w||**2 <= nu if it is outside, and by one rounding more into it.
   w: IN and OUT (n,), float if `single`, a constant for the compiler, else double */
HF_INLINE void hf_project(int single, void *w, int64_t n, double nu) {
    double lane[HF_LANES] = {0};
    for (int64_t b = 0; b < n; b += HF_LANES)
        for (int i = 0; i < HF_LANES; ++i) {
            const double number = single ? ((const float *)w)[b + i] : ((const double *)w)[b + i];
            lane[i] += number * number;
        }
    for (int width = HF_LANES / 2; width >= 1; width /= 2)
        for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
    if (!(lane[0] > nu)) return;
    const double factor = sqrt(nu / lane[0]) * (1 - (single ? 0x1p-22 : 0x1p-50));
    for (int64_t b = 0; b < n; ++b) {
        if (single) ((float *)w)[b] *= (float)factor;
        else ((double *)w)[b] *= factor;
    }
}

/* The loops over rows of x, a table for each dtype and path. w, v, slope: (n_blocks, HF_LANES) of the dtype. */
typedef struct {
    /* Writes w.x of each sample to product (m->n,), in their order. */
    void (*products)(const hf_rows *rows, const hf_members *m, const void *w, double *product);

    /* Adds to `slope` (by w) and `pull` (by theta) the subgradients of eq 11 of samples order[first] to order[last - 1].
       Returns the weight of these samples. */
    double (*slopes)(
        const hf_rows *rows, const hf_members *m, const hf_losses *losses, const void *w, int64_t first, int64_t last,
        void *slope, hf_pull *pull
    );

    /* v = momentum v - rate slope, w += v; then projects w onto the ball ||w||**2 <= nu. */
    void (*move)(
        const hf_rows *rows, void *w, void *v, const void *slope, double momentum, double rate, double nu
    );
} hf_loops;

#define LOOPS hf_loops_f32_plain
#define NAME(f) hf_stump_##f##_f32_plain
#define REAL float
#define VEC hf_f32x16
#define HF_CODE
#include "co2/simd/stump.h"

#define LOOPS hf_loops_f64_plain
#define NAME(f) hf_stump_##f##_f64_plain
#define REAL double
#define VEC hf_f64x16
#define HF_CODE
#include "co2/simd/stump.h"

#if HF_X86
#define LOOPS hf_loops_f32_avx2
#define NAME(f) hf_stump_##f##_f32_avx2
#define REAL float
#define VEC hf_f32x16
#define HF_CODE HF_AVX2_CODE
#include "co2/simd/stump.h"

#define LOOPS hf_loops_f64_avx2
#define NAME(f) hf_stump_##f##_f64_avx2
#define REAL double
#define VEC hf_f64x16
#define HF_CODE HF_AVX2_CODE
#include "co2/simd/stump.h"

#define LOOPS hf_loops_f32_avx512
#define NAME(f) hf_stump_##f##_f32_avx512
#define REAL float
#define VEC hf_f32x16
#define HF_CODE HF_AVX512_CODE
#include "co2/simd/stump.h"

#define LOOPS hf_loops_f64_avx512
#define NAME(f) hf_stump_##f##_f64_avx512
#define REAL double
#define VEC hf_f64x16
#define HF_CODE HF_AVX512_CODE
#include "co2/simd/stump.h"
#endif

/* Returns the loops of a dtype and a path. */
static const hf_loops *hf_loops_of(int single, int path) {
#if HF_X86
    if (path == HF_PATH_AVX512) return single ? &hf_loops_f32_avx512 : &hf_loops_f64_avx512;
    if (path == HF_PATH_AVX2) return single ? &hf_loops_f32_avx2 : &hf_loops_f64_avx2;
#endif
    (void)path;
    return single ? &hf_loops_f32_plain : &hf_loops_f64_plain;
}

/* Returns the surrogate (eq 10), a sum over samples, from the products w.x; writes the signs of these. */
static double hf_surrogate(const hf_members *m, const hf_losses *losses, const double *product) {
    double total = 0;
    for (int64_t i = 0; i < m->n; ++i) {
        const uint32_t at = m->order[i];
        const double p = product[i], left = hf_loss(losses, 0, m, at), right = hf_loss(losses, 1, m, at);
        const double high = left - p >= right + p ? left - p : right + p;
        m->sign[at] = (int8_t)((p > 0) - (p < 0));
        total += m->weight[at] * (high - fabs(p));
    }
    return total;
}

typedef struct {
    double nu, eta, momentum;
    double decay, tolerance; /* eta is multiplied by decay where rounds lower the surrogate by less than tolerance */
    double smooth;           /* added to the weight of each class before a theta is its logarithm */
    int64_t tau, batch;
    int64_t min_steps; /* steps of a round at least: small nodes have few batches */
    int64_t patience;  /* rounds without progress after which eta is still kept */
    int64_t max_rounds;
    int64_t convex_rounds; /* first rounds, which take the sign of w_old.x as 0 */
    int64_t min_samples;   /* fewer are not fitted: w = 0 */
} hf_schedule;

enum { HF_HALVINGS = 3 /* times that eta is lowered; then the stump is done */ };

/* Share of `smooth` that is added to a class that the node does not hold, so that its logarithm is finite. */
#define HF_ABSENT 0x1p-20

/* Workspace of a stump: w, v, slope and best_w hold n_blocks * 16 numbers, zeros after the last feature. */
typedef struct {
    void *w, *v, *slope, *best_w;
    double *theta[2], *speed[2], *best_theta[2], *loss[2], *pull[2];
    uint32_t *order, *shuffled;
    int8_t *sign;
    double *start; /* w in double, for OC1 */
    double *product; /* w.x of each sample */
} hf_stump_workspace;

static void hf_free_stump(hf_stump_workspace *s) {
    free(s->w), free(s->v), free(s->slope), free(s->best_w), free(s->order), free(s->shuffled), free(s->sign), free(s->start);
    free(s->product);
    for (int side = 0; side < 2; ++side)
        free(s->theta[side]), free(s->speed[side]), free(s->best_theta[side]), free(s->loss[side]), free(s->pull[side]);
}

static int hf_make_stump(hf_stump_workspace *s, int64_t n, int64_t n_blocks, int64_t n_outputs, int single) {
    const size_t size = (size_t)(n_blocks * HF_LANES) * (single ? 4 : 8), capacity = n ? n : 1;
    memset(s, 0, sizeof *s);
    s->w = calloc(size, 1), s->v = calloc(size, 1), s->slope = calloc(size, 1), s->best_w = calloc(size, 1);
    s->order = malloc(capacity * 4), s->shuffled = malloc(capacity * 4), s->sign = malloc(capacity);
    s->start = malloc((size_t)(n_blocks * HF_LANES) * 8);
    s->product = malloc(capacity * sizeof(double));
    int fine = s->product && s->start && s->w && s->v && s->slope && s->best_w && s->order && s->shuffled && s->sign;
    for (int side = 0; side < 2; ++side) {
        s->theta[side] = malloc(n_outputs * 8), s->speed[side] = malloc(n_outputs * 8);
        s->best_theta[side] = malloc(n_outputs * 8), s->loss[side] = malloc(n_outputs * 8);
        s->pull[side] = malloc(n_outputs * 8);
        fine = fine && s->theta[side] && s->speed[side] && s->best_theta[side] && s->loss[side] && s->pull[side];
    }
    return fine;
}

/* Writes the order of an epoch: every sample once, in even strides over `shuffled` from a random start. */
static void hf_order_epoch(uint64_t key, uint64_t epoch, const uint32_t *shuffled, uint32_t *order, int64_t n) {
    const hf_visits visits = hf_draw_visits(key, epoch, n);
    int64_t at = visits.start;
    for (int64_t i = 0; i < n; ++i) {
        order[i] = shuffled[at];
        at += visits.stride;
        at -= at >= n ? n : 0;
    }
}

/* One step of w and theta on the samples order[first] to order[last - 1]. */
static void hf_step(
    int path, int single, const hf_rows *rows, const hf_members *m, const hf_schedule *c, hf_losses *losses,
    double eta, int64_t first, int64_t last, hf_stump_workspace *s
) {
    const hf_loops *const loops = hf_loops_of(single, path);
    hf_pull pull = {{s->pull[0], s->pull[1]}, {0, 0}};
    memset(s->slope, 0, (size_t)(rows->n_blocks * HF_LANES) * (single ? 4 : 8));
    for (int side = 0; side < 2; ++side) memset(s->pull[side], 0, losses->n_outputs * sizeof(double));
    const double rate = eta / loops->slopes(rows, m, losses, s->w, first, last, s->slope, &pull);
    for (int side = 0; side < 2; ++side) {
        double *loss = losses->loss[side]; /* overwritten by the shares of the classes: the losses are not read again */
        if (!losses->squared) hf_exps(path, loss, -1, 0, losses->n_outputs, loss);
        for (int64_t k = 0; k < losses->n_outputs; ++k) {
            const double slope = losses->squared ? hf_slope_of_theta(losses, &pull, side, k)
                                                 : pull.weight[side] * loss[k] - pull.sum[side][k];
            s->speed[side][k] = c->momentum * s->speed[side][k] - rate * slope;
        }
    }
    for (int side = 0; side < 2; ++side)
        for (int64_t k = 0; k < losses->n_outputs; ++k) s->theta[side][k] += s->speed[side][k];
    loops->move(rows, s->w, s->v, s->slope, c->momentum, rate, c->nu);
    hf_prepare(path, losses);
}

/* Writes theta of both sides of w.x, whose signs are set: logarithms of smoothed shares, or means (Alg. 1, line 2). */
static void hf_start_theta(const hf_members *m, const hf_schedule *c, int64_t n_outputs, hf_stump_workspace *s) {
    double weight[2] = {0, 0};
    for (int side = 0; side < 2; ++side) memset(s->pull[side], 0, n_outputs * sizeof(double));
    for (int64_t i = 0; i < m->n; ++i) {
        const int side = m->sign[i] >= 0;
        weight[side] += m->weight[i];
        if (m->label) {
            s->pull[side][m->label[i]] += m->weight[i];
        } else {
            const double *y = m->targets + (int64_t)m->sample[i] * n_outputs;
            for (int64_t k = 0; k < n_outputs; ++k) s->pull[side][k] += m->weight[i] * y[k];
        }
    }
    double added = 0;
    for (int64_t k = 0; k < n_outputs; ++k)
        added += c->smooth * (s->pull[0][k] + s->pull[1][k] > 0 ? 1.0 : HF_ABSENT);
    for (int side = 0; side < 2; ++side)
        for (int64_t k = 0; k < n_outputs; ++k) {
            const double both = s->pull[0][k] + s->pull[1][k], share = c->smooth * (both > 0 ? 1.0 : HF_ABSENT);
            if (m->label)
                s->theta[side][k] = hf_log2((s->pull[side][k] + share) / (weight[side] + added)) * HF_LN2;
            else
                s->theta[side][k] = weight[side] > 0 ? s->pull[side][k] / weight[side] : both / weight[1 - side];
        }
}

/* Alg. 1 from s->w. s->w and s->theta: OUT, the best of the states at the start and after the rounds. `history`, if not
   NULL, takes the surrogate of each of these. Returns the number of rounds. Ends early where `watch` says so. */
static int64_t hf_fit_stump(
    int path, int single, const hf_rows *rows, hf_members *m, const hf_schedule *c, int64_t n_outputs, uint64_t key,
    hf_stump_workspace *s, double *history, hf_watch *watch
) {
    const size_t w_size = (size_t)(rows->n_blocks * HF_LANES) * (single ? 4 : 8), theta_size = (size_t)n_outputs * 8;
    hf_losses losses = {n_outputs, m->label == NULL, {s->theta[0], s->theta[1]}, {s->loss[0], s->loss[1]}};
    const hf_loops *const loops = hf_loops_of(single, path);
    const int64_t batch = c->batch < m->n ? c->batch : m->n, n_steps = (m->n + batch - 1) / batch;
    const int64_t n_epochs = c->tau * n_steps < c->min_steps ? (c->min_steps + n_steps - 1) / n_steps : c->tau;
    double eta = c->eta;
    const int64_t step_size = batch * (rows->n_features + n_outputs) / HF_LANES + 2 * n_outputs;
    int64_t waiting = 0, lowered = 0, round = 0, n_done = 0;
    uint64_t epoch = 0;

    if (m->n < c->min_samples) {
        memset(s->w, 0, w_size);
        return 0;
    }
    hf_shuffle(key, s->shuffled, m->n);
    memcpy(s->order, s->shuffled, m->n * sizeof *s->order);
    m->order = s->order, m->sign = s->sign;
    if (single) hf_project(1, s->w, rows->n_blocks * HF_LANES, c->nu);
    else hf_project(0, s->w, rows->n_blocks * HF_LANES, c->nu);
    memset(s->v, 0, w_size);
    for (int side = 0; side < 2; ++side) {
        memset(s->speed[side], 0, theta_size);
        memset(s->theta[side], 0, theta_size);
    }
    hf_prepare(path, &losses);
    loops->products(rows, m, s->w, s->product);
    hf_surrogate(m, &losses, s->product); /* writes the signs */
    hf_start_theta(m, c, n_outputs, s);
    hf_prepare(path, &losses);
    double value = hf_surrogate(m, &losses, s->product), best = value;
    memcpy(s->best_w, s->w, w_size);
    for (int side = 0; side < 2; ++side) memcpy(s->best_theta[side], s->theta[side], theta_size);
    if (history) history[0] = value;

    while (round < c->max_rounds && lowered < HF_HALVINGS && value > 0) {
        if (round < c->convex_rounds) memset(m->sign, 0, m->n);
        for (int64_t e = 0; e < n_epochs; ++e, ++epoch) {
            hf_order_epoch(key, epoch, s->shuffled, s->order, m->n);
            for (int64_t first = 0; first < m->n; first += batch) {
                const int64_t last = first + batch < m->n ? first + batch : m->n;
                if (hf_stopped_after(watch, &n_done, step_size)) return round;
                hf_step(path, single, rows, m, c, &losses, eta, first, last, s);
            }
        }
        memcpy(s->order, s->shuffled, m->n * sizeof *s->order);
        const double before = value;
        loops->products(rows, m, s->w, s->product);
        value = hf_surrogate(m, &losses, s->product);
        if (history) history[++round] = value;
        else ++round;
        if (value < best) {
            best = value;
            memcpy(s->best_w, s->w, w_size);
            for (int side = 0; side < 2; ++side) memcpy(s->best_theta[side], s->theta[side], theta_size);
        }
        if (round > c->convex_rounds) waiting += !(value < before - c->tolerance * before);
        if (waiting > c->patience) {
            waiting = 0;
            ++lowered;
            eta *= c->decay;
        }
    }
    memcpy(s->w, s->best_w, w_size);
    for (int side = 0; side < 2; ++side) memcpy(s->theta[side], s->best_theta[side], theta_size);
    return round;
}

#endif
