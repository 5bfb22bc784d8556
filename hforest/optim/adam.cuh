// A step of Adam, and missed steps with zero gradient. The operations and their order are those of the CPU backend, so
// that results are bit-identical.

#include "optim/missed.h"

// A subnormal moment becomes 0, as on the CPU.
__device__ static inline real moment(real value) {
    const real least = (real)(sizeof(real) == 4 ? 1.1754943508222875e-38 : 2.2250738585072014e-308);
    return (value < 0 ? -value : value) < least ? (real)0 : value;
}

// The settings of the optimiser.
struct Adam {
    double lr, beta1, beta2, eps;
    double shrink; // 1 - lr weight_decay
};

// Takes a step (Kingma & Ba 2015, Alg. 1); rate = lr / (1 - beta1**step), scale = 1 / sqrt(1 - beta2**step).
__device__ static inline void adam_one(real* p, real g, real* m, real* v, double rate, double scale, const Adam& a) {
    real first = (real)a.beta1 * *m + (real)(1 - a.beta1) * g;
    real second = (real)a.beta2 * *v + (real)(1 - a.beta2) * (g * g);
    *p = (real)a.shrink * *p - (real)rate * first / (sqrt(second) * (real)scale + (real)a.eps);
    *m = moment(first);
    *v = moment(second);
}

// The tables for missed steps; tables.py describes them.
struct Missed {
    const double* powers; // IN  (3, n_powers)
    const double* decay;  // IN  (4, n_decays)
    const double* tail;   // IN  (n_steps, n_columns): 1 / (1 - beta1**s), 1 / sqrt(1 - beta2**s), centre, coefficients
    const size* visible;  // IN  (n_steps,)
    size n_powers, n_decays, n_steps, n_columns, closed;
};

// Returns the row of a table by step for a step; later steps share the last row.
__device__ static inline size saturated(const Missed& t, size step) { return step < t.n_steps ? step : t.n_steps - 1; }

// Returns the row of `tail` for a step.
__device__ static inline const double* tail_of(const Missed& t, size step) {
    return t.tail + saturated(t, step) * t.n_columns;
}

// Returns the column of the last coefficient in that row that can change the result.
__device__ static inline size top_of(const Missed& t, size step) {
    return sizeof(real) == 4 ? t.visible[saturated(t, step)] : t.n_columns - 1;
}

// Returns beta1, beta2, sqrt(beta2) or shrink (which = 0, 1, 2, 3) to the power n; for large n from powers 1, 2, 4, ...
__device__ static inline double decayed(const Missed& t, int which, size n) {
    if (n < t.n_decays) return t.decay[which * t.n_decays + n];
    const double* squares = t.powers + (which == 3 ? 2 : which > 0) * t.n_powers;
    double result = 1.0;
    for (; n > 0; ++squares, n >>= 1)
        if (n & 1) result *= *squares;
    return which == 2 ? sqrt(result) : result;
}

// Returns R of tables.py, given the row of its step, whose coefficients end at column `top`.
__device__ static inline real rest(
    real m, real root, double m_factor, double root_factor, const double* row, size top, real eps
) {
    real h = (real)(row[HF_CENTRE] * root_factor) * root;
    real inverse = (real)1 / (h + eps);
    // If the second moment is infinite, inverse is 0 and z is any finite number.
    const real largest = (real)(sizeof(real) == sizeof(float) ? 3.4028234663852886e38 : 1.7976931348623157e308);
    real z = (h < largest ? h : largest) * inverse, x = z + z - (real)1;
    real total = (real)row[top];
    for (size k = top - 1; k > HF_CENTRE; --k) total = total * x + (real)row[k];
    return (real)m_factor * m * inverse * total;
}

// Takes steps start + 1 to stop with zero gradient. Steps are taken one by one where the polynomials are not exact yet,
// or if there are few; the others are taken together. Single steps are skipped once the decay of m has underflowed to
// 0.
__device__ static inline void take_missed(
    real* p, real* m, real* v, size start, size stop, const Adam& a, const Missed& t
) {
    if (start < 0) start = 0;
    if (start >= stop) return;
    const size gap = stop - start;
    const real first = *m, eps = (real)a.eps, shrunk = (real)decayed(t, 3, gap);
    if (first != 0) {
        const real root = sqrt(*v);
        const double root_beta2 = sqrt(a.beta2);
        real motion = 0;
        double decay = 1, root_decay = 1;
        size middle = start > t.closed ? start : t.closed;
        if (stop - middle <= HF_FEW) middle = stop;
        size step = start;
        while (step < middle) {
            const double* row = tail_of(t, ++step);
            decay *= a.beta1;
            root_decay *= root_beta2;
            const real share = (real)(decay * row[0]);
            // This step and all later ones add 0; subnormal products would round to themselves forever.
            if (share == 0 || decay < 2.2250738585072014e-308) {
                --step;
                break;
            }
            motion = (real)a.shrink * motion + share * first / ((real)(root_decay * row[1]) * root + eps);
        }
        // The steps that follow also shrink the move of the steps taken one by one.
        motion = (real)decayed(t, 3, stop - step) * motion;
        if (middle < stop) {
            const double later = decay * decayed(t, 3, stop - middle);
            motion = motion + rest(first, root, later, root_decay, tail_of(t, middle), top_of(t, middle), eps);
            const double lost = -decayed(t, 0, gap), root_lost = decayed(t, 2, gap);
            motion = motion + rest(first, root, lost, root_lost, tail_of(t, stop), top_of(t, stop), eps);
        }
        *p = shrunk * *p - (real)a.lr * motion;
        *m = moment(first * (real)decayed(t, 0, gap));
    } else {
        *p = shrunk * *p;
    }
    *v = moment(*v * (real)decayed(t, 1, gap));
}
