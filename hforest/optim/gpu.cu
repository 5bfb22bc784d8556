// AdaGrad (float64 inside) and Adam (in the dtype), dense and by rows. One thread per element; the operations and their
// order are those of the CPU backend, so that results are bit-identical.

#include "optim/adam.cuh"

// Takes a step of AdaGrad for one element.
__device__ static inline void adagrad_one(real* p, real g, real* state, double lr) {
    double gradient = g, h = *state;
    double root = sqrt(h * h + gradient * gradient);
    if (gradient != 0) h = root;
    if (h != 0) *p = (real)(*p - lr * gradient / h);
    *state = (real)h;
}

// param and state (n,), IN and OUT; grad (n,), IN.
extern "C" __global__ void adagrad(real* param, const real* grad, real* state, double lr, size n) {
    size i = thread_number();
    if (i < n) adagrad_one(param + i, grad[i], state + i, lr);
}

// param and state (n_rows, width), IN and OUT at rows (n_visited,), IN; grad (n_visited, width), IN. n is the number of
// elements of grad.
extern "C" __global__ void adagrad_rows(
    real* param, const size* rows, const real* grad, real* state, double lr, size n, size width
) {
    size i = thread_number();
    if (i >= n) return;
    size at = rows[i / width] * width + i % width;
    adagrad_one(param + at, grad[i], state + at, lr);
}

// param, m and v (n,), IN and OUT; grad (n,), IN.
extern "C" __global__ void adam(
    real* param, const real* grad, real* m, real* v, double rate, double scale, Adam a, size n
) {
    size i = thread_number();
    if (i < n) adam_one(param + i, grad[i], m + i, v + i, rate, scale, a);
}

// The rows of a parameter, and of its moments, that a step visits.
struct Rows {
    real* param;      // IN and OUT (n_rows, width)
    real* m;          // IN and OUT (n_rows, width)
    real* v;          // IN and OUT (n_rows, width)
    const size* rows; // IN  (n_visited,): distinct rows
    const size* last; // IN  (n_rows,): the last step that each row has taken
    size n, width;    // n = n_visited * width
};

// Takes the missed steps of rows, and step `step` with grad (n_visited, width), IN. One thread per element of a row.
extern "C" __global__ void adam_rows(
    Rows r, const real* grad, size step, double rate, double scale, Adam a, Missed missed
) {
    size i = thread_number();
    if (i >= r.n) return;
    size row = r.rows[i / r.width], at = row * r.width + i % r.width;
    take_missed(r.param + at, r.m + at, r.v + at, r.last[row], step - 1, a, missed);
    adam_one(r.param + at, grad[i], r.m + at, r.v + at, rate, scale, a);
}

// Takes the missed steps of rows up to `step`, with zero gradient. One thread per element of a row.
extern "C" __global__ void adam_catch_up(Rows r, size step, Adam a, Missed missed) {
    size i = thread_number();
    if (i >= r.n) return;
    size row = r.rows[i / r.width], at = row * r.width + i % r.width;
    take_missed(r.param + at, r.m + at, r.v + at, r.last[row], step, a, missed);
}

// last (n_rows,), OUT at rows (n,), IN: the step. A kernel of its own, because in the kernels above every element of a
// row reads the row's last step.
extern "C" __global__ void reach(const size* rows, size* last, size step, size n) {
    size i = thread_number();
    if (i < n) last[rows[i]] = step;
}
