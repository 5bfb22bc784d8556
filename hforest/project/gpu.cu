// Projections. One thread per value; adjacent threads take adjacent samples of one projection.

__device__ static inline real value_of(
    const real *row, size first, size last, const int *indices, const real *data
) {
    double total = 0;
    for (size j = first; j < last; ++j) total += (double)data[j] * (double)row[indices[j]];
    return (real)total;
}

extern "C" __global__ void project(
    const real *__restrict__ x, const size *__restrict__ indptr, const int *__restrict__ indices,
    const real *__restrict__ data, size n_features, size n, size n_projections, real *__restrict__ values
) {
    const size i = thread_number();
    if (i >= n * n_projections) return;
    const size p = i / n;
    values[i] = value_of(x + i % n * n_features, indptr[p], indptr[p + 1], indices, data);
}

extern "C" __global__ void project_some(
    const real *__restrict__ x, const int *__restrict__ samples, const size *__restrict__ indptr,
    const int *__restrict__ indices, const real *__restrict__ data, size n_features, size n, size n_projections,
    real *__restrict__ values
) {
    const size i = thread_number();
    if (i >= n * n_projections) return;
    const size p = i / n;
    values[i] = value_of(x + samples[i % n] * n_features, indptr[p], indptr[p + 1], indices, data);
}
