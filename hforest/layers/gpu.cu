// The softmax loss and its gradient (Lay et al. 2018, Fig. 2), in float64.

#include "layers/sums.h"

// Returns the numbers of a warp's threads combined by op in the order of the threads. All threads of the warp call it.
template <class Op>
__device__ static inline double of_warp(double number, const Op &op) {
    __shared__ double numbers[HF_PARTS];
    numbers[threadIdx.x] = number;
    __syncwarp();
    const double *const all = numbers + threadIdx.x / HF_WARP * HF_WARP;
    double result = all[0];
    for (int i = 1; i < HF_WARP; ++i) result = op(result, all[i]);
    __syncwarp();
    return result;
}

__device__ static inline double sum_of_warp(double number) {
    return of_warp(number, [](double a, double b) { return a + b; });
}

// scores (n_samples, n_classes), IN; labels (n_samples,), IN. losses (n_samples,), OUT: log sum_k exp(s_k) - s_y. grad
// (n_samples, n_classes), OUT: (softmax - onehot) / n_samples. One warp per sample; a block consists of whole warps.
extern "C" __global__ void softmax(
    const real *__restrict__ scores, const int *__restrict__ labels, size n_samples, size n_classes,
    double *__restrict__ losses, real *__restrict__ grad
) {
    const size sample = thread_number() / HF_WARP;
    if (sample >= n_samples) return;
    const int lane = threadIdx.x % HF_WARP, label = labels[sample];
    const real *const s = scores + sample * n_classes;
    double top = s[0];
    for (size k = lane; k < n_classes; k += HF_WARP) top = max(top, (double)s[k]);
    top = of_warp(top, [](double a, double b) { return max(a, b); });
    double part = 0;
    for (size k = lane; k < n_classes; k += HF_WARP) part += hf_exp((double)s[k] - top);
    const double total = sum_of_warp(part), share = total * (double)n_samples;
    for (size k = lane; k < n_classes; k += HF_WARP) {
        const double e = hf_exp((double)s[k] - top);
        grad[sample * n_classes + k] = (real)(k == label ? (e / total - 1) / (double)n_samples : e / share);
    }
    if (lane == 0) losses[sample] = hf_log(total) - ((double)s[label] - top);
}

// result (1,), OUT: the mean of numbers (n,), IN. One block; thread t sums the numbers t, t + n_threads, ...
extern "C" __global__ void mean(const double *__restrict__ numbers, size n, double *__restrict__ result) {
    __shared__ double sums[HF_PARTS / HF_WARP];
    double part = 0;
    for (size i = threadIdx.x; i < n; i += blockDim.x) part += numbers[i];
    part = sum_of_warp(part);
    if (threadIdx.x % HF_WARP == 0) sums[threadIdx.x / HF_WARP] = part;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (unsigned i = 1; i < blockDim.x / HF_WARP; ++i) part += sums[i];
    *result = part / n;
}
