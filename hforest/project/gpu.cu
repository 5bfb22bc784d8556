// Projections. One thread per value; adjacent threads take adjacent samples of one projection. They read different rows,
// so a quarter of the bytes that their warps request is used.

// Returns the projection of a row: entries first to last - 1, summed in double in their order and rounded once.
__device__ static inline real value_of(
    const real *row, size first, size last, const int *indices, const real *data
) {
    double total = 0;
    for (size j = first; j < last; ++j) total += (double)data[j] * (double)row[indices[j]];
    return (real)total;
}

// values (n_projections, n), OUT: projections of x (n, n_features), IN. Entry j of a projection has weight data[j] for
// feature indices[j]; indptr (n_projections + 1,), indices and data, IN.
extern "C" __global__ void project(
    const real *__restrict__ x, const size *__restrict__ indptr, const int *__restrict__ indices,
    const real *__restrict__ data, size n_features, size n, size n_projections, real *__restrict__ values
) {
    const size i = thread_number();
    if (i >= n * n_projections) return;
    const size p = i / n;
    values[i] = value_of(x + i % n * n_features, indptr[p], indptr[p + 1], indices, data);
}

// values (n_projections, n), OUT: as project writes them, of the rows `samples` (n,), IN, of x.
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
