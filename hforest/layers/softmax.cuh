// The softmax loss of a sample and its gradient (Lay et al. 2018, Fig. 2), and means, in float64.

#include "layers/sums.h"

// Returns the numbers of a warp's threads combined by op in the order of the threads. All threads of the warp call it.
template <class Op>
__device__ static inline double of_warp(double number, const Op &op) {
    double result = __shfl_sync(~0u, number, 0);
    for (int i = 1; i < HF_WARP; ++i) result = op(result, __shfl_sync(~0u, number, i));
    return result;
}

__device__ static inline double sum_of_warp(double number) {
    return of_warp(number, [](double a, double b) { return a + b; });
}

// Threads that share a sample: a warp, or one thread, which adds at most HF_WARP classes in the same order.
struct Warp {
    static constexpr int LANES = HF_WARP;
    __device__ static int lane() { return threadIdx.x % HF_WARP; }
    __device__ static double sum(double number) { return sum_of_warp(number); }
    __device__ static double most(double number) {
        return of_warp(number, [](double a, double b) { return max(a, b); });
    }
};

struct One {
    static constexpr int LANES = 1;
    __device__ static int lane() { return 0; }
    __device__ static double sum(double number) { return number; }
    __device__ static double most(double number) { return number; }
};

// Returns log sum_k exp(s_k) - s_y, and writes (softmax - onehot) / n_samples to grad (n_classes,). A label is only
// compared: one that is no class reads no memory.
template <class Threads>
__device__ static inline double
softmax_of(const real *s, int label, size n_samples, size n_classes, real *grad) {
    const int lane = Threads::lane();
    double top = s[0], part = 0, of_label = 0;
    for (size k = lane; k < n_classes; k += Threads::LANES) top = max(top, (double)s[k]);
    top = Threads::most(top);
    for (size k = lane; k < n_classes; k += Threads::LANES) part += hf_exp((double)s[k] - top);
    const double total = Threads::sum(part), share = total * (double)n_samples;
    for (size k = lane; k < n_classes; k += Threads::LANES) {
        const double shifted = (double)s[k] - top, e = hf_exp(shifted);
        if (k == label) of_label = shifted;
        grad[k] = (real)(k == label ? (e / total - 1) / (double)n_samples : e / share);
    }
    return hf_log(total) - Threads::sum(of_label);
}

// Returns the mean of numbers (n,): thread t adds the numbers t, t + n_threads, .. All threads of the
// block call it, whole warps; a block of fewer than HF_PARTS threads has as many as numbers, or more.
__device__ static inline double mean_of(const double *numbers, size n) {
    __shared__ double sums[HF_PARTS / HF_WARP];
    double part = 0;
    for (size i = threadIdx.x; i < n; i += blockDim.x) part += numbers[i];
    part = sum_of_warp(part);
    if (threadIdx.x % HF_WARP == 0) sums[threadIdx.x / HF_WARP] = part;
    __syncthreads();
    part = sums[0];
    for (unsigned i = 1; i < blockDim.x / HF_WARP; ++i) part += sums[i];
    return part / n;
}
