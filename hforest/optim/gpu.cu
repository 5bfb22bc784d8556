// AdaGrad (float64 inside) and Adam (in the dtype), dense and by rows: one thread an element, the operations
// and their order those of the CPU backend, so that the bits are the same.

// Columns of the tail table: 1 / (1 - beta1**s), 1 / sqrt(1 - beta2**s), the centre, the coefficients.
#define CENTRE 2
// Missed steps that are cheaper taken one by one.
#define FEW 4

__device__ static inline void adagrad_one(real* p, real g, real* state, double lr) {
    double gradient = g, h = *state;
    double root = sqrt(h * h + gradient * gradient);
    if (gradient != 0) h = root;
    if (h != 0) *p = (real)(*p - lr * gradient / h);
    *state = (real)h;
}

extern "C" __global__ void adagrad(real* param, const real* grad, real* state, double lr, size n) {
    size i = thread_number();
    if (i < n) adagrad_one(param + i, grad[i], state + i, lr);
}

extern "C" __global__ void adagrad_rows(
    real* param, const size* rows, const real* grad, real* state, double lr, size n, size width
) {
    size i = thread_number();
    if (i >= n) return;
    size at = rows[i / width] * width + i % width;
    adagrad_one(param + at, grad[i], state + at, lr);
}

// A subnormal moment becomes 0, as on the CPU.
__device__ static inline real moment(real value) {
    const real least = (real)(sizeof(real) == 4 ? 1.1754943508222875e-38 : 2.2250738585072014e-308);
    return (value < 0 ? -value : value) < least ? (real)0 : value;
}

// Kingma & Ba 2015, Alg. 1; rate = lr / (1 - beta1**step), scale = 1 / sqrt(1 - beta2**step).
__device__ static inline void adam_one(
    real* p, real g, real* m, real* v, double rate, double scale, double beta1, double beta2, double eps
) {
    real first = (real)beta1 * *m + (real)(1 - beta1) * g;
    real second = (real)beta2 * *v + (real)(1 - beta2) * (g * g);
    *p = *p - (real)rate * first / (sqrt(second) * (real)scale + (real)eps);
    *m = moment(first);
    *v = moment(second);
}

extern "C" __global__ void adam(
    real* param, const real* grad, real* m, real* v, double rate, double scale, double beta1, double beta2,
    double eps, size n
) {
    size i = thread_number();
    if (i < n) adam_one(param + i, grad[i], m + i, v + i, rate, scale, beta1, beta2, eps);
}

// The tables of missed steps (tables.py) and the settings of the optimiser.
struct Missed {
    double lr, beta1, beta2, eps;
    const double* powers;
    const double* decay;
    const double* tail;
    const size* visible;
    size n_powers, n_decays, n_steps, n_columns, closed;

    __device__ size saturated(size step) const { return step < n_steps ? step : n_steps - 1; }
    __device__ const double* row(size step) const { return tail + saturated(step) * n_columns; }
    __device__ size top(size step) const {
        return sizeof(real) == 4 ? visible[saturated(step)] : n_columns - 1;
    }
    // beta1, beta2 or sqrt(beta2) to the power n; of large n from the powers 1, 2, 4, 8, ...
    __device__ double decayed(int which, size n) const {
        if (n < n_decays) return decay[which * n_decays + n];
        const double* squares = powers + (which > 0 ? n_powers : 0);
        double result = 1.0;
        for (; n > 0; ++squares, n >>= 1)
            if (n & 1) result *= *squares;
        return which == 2 ? sqrt(result) : result;
    }
};

// R of tables.py from the row of its step, whose coefficients end at column `top`.
__device__ static inline real rest(
    real m, real root, double m_factor, double root_factor, const double* row, size top, real eps
) {
    real h = (real)(row[CENTRE] * root_factor) * root;
    real inverse = (real)1 / (h + eps);
    // Where the second moment is infinite, inverse is 0 and z is any finite number.
    const real largest = (real)(sizeof(real) == sizeof(float) ? 3.4028234663852886e38 : 1.7976931348623157e308);
    real z = (h < largest ? h : largest) * inverse, x = z + z - (real)1;
    real total = (real)row[top];
    for (size k = top - 1; k > CENTRE; --k) total = total * x + (real)row[k];
    return (real)m_factor * m * inverse * total;
}

// Steps start + 1 to stop with zero gradient: one by one while the polynomials are not exact yet or the
// steps are few, the others at once. Of those one by one, the ones after the decay of m has underflowed to 0
// are left out.
__device__ static inline void pass_over(real* p, real* m, real* v, size start, size stop, const Missed& a) {
    if (start < 0) start = 0;
    if (start >= stop) return;
    const size gap = stop - start;
    const real first = *m, eps = (real)a.eps;
    if (first != 0) {
        const real root = sqrt(*v);
        const double root_beta2 = sqrt(a.beta2);
        real motion = 0;
        double decay = 1, root_decay = 1;
        size middle = start > a.closed ? start : a.closed;
        if (stop - middle <= FEW) middle = stop;
        for (size step = start + 1; step <= middle; ++step) {
            const double* row = a.row(step);
            decay *= a.beta1;
            root_decay *= root_beta2;
            const real share = (real)(decay * row[0]);
            // This step and all later ones add 0. Subnormal products would round to themselves for ever.
            if (share == 0 || decay < 2.2250738585072014e-308) break;
            motion = motion + share * first / ((real)(root_decay * row[1]) * root + eps);
        }
        if (middle < stop) {
            motion = motion + rest(first, root, decay, root_decay, a.row(middle), a.top(middle), eps);
            motion = motion + rest(first, root, -a.decayed(0, gap), a.decayed(2, gap), a.row(stop), a.top(stop), eps);
        }
        *p = *p - (real)a.lr * motion;
        *m = moment(first * (real)a.decayed(0, gap));
    }
    *v = moment(*v * (real)a.decayed(1, gap));
}

extern "C" __global__ void adam_rows(
    real* param, const size* rows, const real* grad, real* m, real* v, const size* last, size step, double lr,
    double beta1, double beta2, double eps, double rate, double scale, const double* powers, size n_powers,
    const double* decay, size n_decays, const double* tail, const size* visible, size n_steps,
    size n_columns, size closed, size n, size width
) {
    size i = thread_number();
    if (i >= n) return;
    const Missed missed = {lr, beta1, beta2, eps, powers, decay, tail, visible,
                           n_powers, n_decays, n_steps, n_columns, closed};
    size row = rows[i / width], at = row * width + i % width;
    pass_over(param + at, m + at, v + at, last[row], step - 1, missed);
    adam_one(param + at, grad[i], m + at, v + at, rate, scale, beta1, beta2, eps);
}

extern "C" __global__ void adam_catch_up(
    real* param, const size* rows, real* m, real* v, const size* last, size step, double lr, double beta1,
    double beta2, double eps, const double* powers, size n_powers, const double* decay, size n_decays,
    const double* tail, const size* visible, size n_steps, size n_columns, size closed, size n, size width
) {
    size i = thread_number();
    if (i >= n) return;
    const Missed missed = {lr, beta1, beta2, eps, powers, decay, tail, visible,
                           n_powers, n_decays, n_steps, n_columns, closed};
    size row = rows[i / width], at = row * width + i % width;
    pass_over(param + at, m + at, v + at, last[row], step, missed);
}

// A kernel of its own: in the kernels above every element of a row reads the step that the row had reached.
extern "C" __global__ void reach(const size* rows, size* last, size step, size n) {
    size i = thread_number();
    if (i < n) last[rows[i]] = step;
}
