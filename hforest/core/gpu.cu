// What CuPy's own kernels would do with float32 subnormals as 0. A thread owns a number.

// wide (n,), OUT: numbers (n,), IN, in float64.
extern "C" __global__ void widen(const real *__restrict__ number, size n, double *__restrict__ wide) {
    const size i = thread_number();
    if (i < n) wide[i] = number[i];
}

// narrow (n,), OUT: numbers (n,), IN, rounded.
extern "C" __global__ void round_numbers(const double *__restrict__ number, size n, real *__restrict__ narrow) {
    const size i = thread_number();
    if (i < n) narrow[i] = (real)number[i];
}

// a (n_rows, width), IN and OUT: each row times its factor (n_rows,), IN, as a `real`.
extern "C" __global__ void scale_rows(const double *__restrict__ factor, size n_rows, size width, real *__restrict__ a) {
    const size i = thread_number();
    if (i < n_rows * width) a[i] = a[i] * (real)factor[i / width];
}
