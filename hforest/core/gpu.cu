// Operations in which CuPy's own kernels would flush float32 subnormals to 0. One thread per number.

// wide (n,), OUT: number (n,), IN, in float64.
extern "C" __global__ void widen(const real *__restrict__ number, size n, double *__restrict__ wide) {
    const size i = thread_number();
    if (i < n) wide[i] = number[i];
}

// narrow (n,), OUT: wide (n,), IN, rounded to `real`.
extern "C" __global__ void round_numbers(const double *__restrict__ number, size n, real *__restrict__ narrow) {
    const size i = thread_number();
    if (i < n) narrow[i] = (real)number[i];
}

// a (n_rows, width), IN and OUT: each row is multiplied by its factor (n_rows,), IN, rounded to `real`.
extern "C" __global__ void scale_rows(const double *__restrict__ factor, size n_rows, size width, real *__restrict__ a) {
    const size i = thread_number();
    if (i < n_rows * width) a[i] = a[i] * (real)factor[i / width];
}

// Kinds of checks: numbers are finite; no number is NaN; indices, or steps, are in [0, stop).
enum { FINITE = 0, NOT_NAN = 1, INDEX = 2, STEP = 3 };

// An array that first_bad checks.
struct Values {
    const real *numbers;
    const int *indices;
    const long long *steps;
    size n, kind, stop;
};

// Raises `last` to the complement of i if element i of the array is bad.
static __device__ inline void note_bad(Values a, size i, unsigned long long *last) {
    if (i < 0 || i >= a.n) return;
    const bool bad = a.kind == FINITE    ? !isfinite(a.numbers[i])
                     : a.kind == NOT_NAN ? isnan(a.numbers[i])
                     : a.kind == INDEX   ? a.indices[i] < 0 || a.indices[i] >= a.stop
                                         : a.steps[i] < 0 || a.steps[i] >= a.stop;
    if (bad) atomicMax(last, ~(unsigned long long)i);
}

// last (8,), 0 before, OUT: the complement of the index of the first bad element of each array, or 0. One thread per
// element of all arrays.
extern "C" __global__ void first_bad(
    Values a, Values b, Values c, Values d, Values e, Values f, Values g, Values h, unsigned long long *last
) {
    size i = thread_number();
    note_bad(a, i, last);
    note_bad(b, i -= a.n, last + 1);
    note_bad(c, i -= b.n, last + 2);
    note_bad(d, i -= c.n, last + 3);
    note_bad(e, i -= d.n, last + 4);
    note_bad(f, i -= e.n, last + 5);
    note_bad(g, i -= f.n, last + 6);
    note_bad(h, i -= g.n, last + 7);
}
