// Projections: a thread owns a value. Neighbouring threads are neighbouring samples of one projection.

__device__ static inline real value_of(
    const real *row, size first, size last, const int *index, const real *weight
) {
    double total = 0;
    for (size j = first; j < last; ++j) total += (double)weight[j] * (double)row[index[j]];
    return (real)total;
}

extern "C" __global__ void project(
    const real *__restrict__ x, const size *__restrict__ start, const int *__restrict__ index,
    const real *__restrict__ weight, size n_features, size n, size n_projections, real *__restrict__ values
) {
    const size i = thread_number();
    if (i >= n * n_projections) return;
    const size p = i / n;
    values[i] = value_of(x + i % n * n_features, start[p], start[p + 1], index, weight);
}

extern "C" __global__ void project_some(
    const real *__restrict__ x, const int *__restrict__ samples, const size *__restrict__ start,
    const int *__restrict__ index, const real *__restrict__ weight, size n_features, size n, size n_projections,
    real *__restrict__ values
) {
    const size i = thread_number();
    if (i >= n * n_projections) return;
    const size p = i / n;
    values[i] = value_of(x + samples[i % n] * n_features, start[p], start[p + 1], index, weight);
}
