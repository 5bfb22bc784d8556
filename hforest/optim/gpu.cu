// AdaGrad and Adam, dense and by rows: one thread an element, float64 inside, the operations and their
// order those of the CPU twin, so that the bits are the same.

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
__device__ static inline real moment(double value) {
    const double least = sizeof(real) == 4 ? 1.1754943508222875e-38 : 2.2250738585072014e-308;
    return (real)(fabs(value) < least ? 0.0 : value);
}

// Kingma & Ba 2015, Alg. 1; rate = lr / (1 - beta1**step), scale = 1 / sqrt(1 - beta2**step).
__device__ static inline void adam_one(
    real* p, real g, real* m, real* v, double rate, double scale, double beta1, double beta2, double eps
) {
    double first = beta1 * *m + (1 - beta1) * g;
    double second = beta2 * *v + (1 - beta2) * ((double)g * g);
    *p = (real)(*p - rate * first / (sqrt(second) * scale + eps));
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

// The base to the power n from its powers 1, 2, 4, 8, ...
__device__ static inline double power(const double* squares, size n) {
    double result = 1.0;
    for (; n > 0; ++squares, n >>= 1)
        if (n & 1) result *= *squares;
    return result;
}

// R of tables.py from the row `tail` of its step, whose coefficients end at column `top`.
__device__ static inline double rest(
    double m, double root, double m_factor, double root_factor, const double* tail, size top, double eps
) {
    double h = tail[CENTRE] * root_factor * root;
    double inverse = 1 / (h + eps);
    double x = 2 * (h * inverse) - 1;
    double total = tail[top];
    for (size k = top - 1; k > CENTRE; --k) total = total * x + tail[k];
    return m_factor * m * inverse * total;
}

// Steps start + 1 to stop with zero gradient: one by one while the polynomials are not exact yet or the
// steps are few, the others at once.
__device__ static inline void pass_over(
    real* p, real* m, real* v, size start, size stop, double lr, double beta1, double beta2, double eps,
    const double* powers, size n_powers, const double* tail, size n_steps, size width, size closed
) {
    if (start < 0) start = 0;
    if (start >= stop) return;
    const size last = n_steps - 1;
    const double m_factor = power(powers, stop - start), v_factor = power(powers + n_powers, stop - start);
    const double first = *m, root = sqrt((double)*v), root_beta2 = sqrt(beta2);
    double motion = 0, decay = 1, root_decay = 1;
    size middle = start > closed ? start : closed;
    if (stop - middle <= FEW) middle = stop;
    for (size step = start + 1; step <= middle; ++step) {
        const double* row = tail + (step < last ? step : last) * width;
        decay *= beta1;
        root_decay *= root_beta2;
        motion += decay * row[0] * first / (root_decay * row[1] * root + eps);
    }
    if (middle < stop) {
        motion += rest(
            first, root, decay, root_decay, tail + (middle < last ? middle : last) * width, width - 1, eps
        );
        motion += rest(
            first, root, -m_factor, sqrt(v_factor), tail + (stop < last ? stop : last) * width, width - 1, eps
        );
    }
    *p = (real)(*p - lr * motion);
    *m = moment(first * m_factor);
    *v = moment(*v * v_factor);
}

extern "C" __global__ void adam_rows(
    real* param, const size* rows, const real* grad, real* m, real* v, const size* last, size step, double lr,
    double beta1, double beta2, double eps, double rate, double scale, const double* powers, size n_powers,
    const double* tail, size n_steps, size n_columns, size closed, size n, size width
) {
    size i = thread_number();
    if (i >= n) return;
    size row = rows[i / width], at = row * width + i % width;
    pass_over(
        param + at, m + at, v + at, last[row], step - 1, lr, beta1, beta2, eps, powers, n_powers, tail,
        n_steps, n_columns, closed
    );
    adam_one(param + at, grad[i], m + at, v + at, rate, scale, beta1, beta2, eps);
}

extern "C" __global__ void adam_catch_up(
    real* param, const size* rows, real* m, real* v, const size* last, size step, double lr, double beta1,
    double beta2, double eps, const double* powers, size n_powers, const double* tail, size n_steps,
    size n_columns, size closed, size n, size width
) {
    size i = thread_number();
    if (i >= n) return;
    size row = rows[i / width], at = row * width + i % width;
    pass_over(
        param + at, m + at, v + at, last[row], step, lr, beta1, beta2, eps, powers, n_powers, tail,
        n_steps, n_columns, closed
    );
}

// Apart from the kernels above: there every element of a row still reads where the row was.
extern "C" __global__ void reach(const size* rows, size* last, size step, size n) {
    size i = thread_number();
    if (i < n) last[rows[i]] = step;
}
