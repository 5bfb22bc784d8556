// The softmax loss and its gradient. A thread has a sample of at most HF_WARP classes, else a warp has one.
//
// Versions, counted by bench/gpu_counts.py for 20,000 samples of ten classes; on record are 98 us for 100,000 samples,
// before both of them. None is timed.
//
//     a warp per sample             5000 blocks, 41 % of the lanes; steps with the mean 160; 16 KB of shared memory
//     a thread per sample           157 blocks, 70 % of the lanes; steps 116; no shared memory but for the mean

#include "layers/softmax.cuh"

// scores (n_samples, n_classes), IN; labels (n_samples,), IN. losses (n_samples,), OUT: log sum_k exp(s_k) - s_y. grad
// (n_samples, n_classes), OUT: (softmax - onehot) / n_samples. If there is only one block, loss (1,), OUT: the mean.
extern "C" __global__ void softmax(
    const real *__restrict__ scores, const int *__restrict__ labels, size n_samples, size n_classes,
    double *losses, double *loss, real *__restrict__ grad
) {
    const bool alone = n_classes <= HF_WARP;
    const size sample = alone ? thread_number() : thread_number() / HF_WARP, at = sample * n_classes;
    if (sample < n_samples) {
        const double own = alone ? softmax_of<One>(scores + at, labels[sample], n_samples, n_classes, grad + at)
                                 : softmax_of<Warp>(scores + at, labels[sample], n_samples, n_classes, grad + at);
        if (alone || threadIdx.x % HF_WARP == 0) losses[sample] = own;
    }
    if (gridDim.x > 1) return;
    __syncthreads();
    const double mean = mean_of(losses, n_samples);
    if (threadIdx.x == 0) *loss = mean;
}

// result (1,), OUT: the mean of numbers (n,), IN. One block of HF_PARTS threads.
extern "C" __global__ void mean(const double *__restrict__ numbers, size n, double *__restrict__ result) {
    const double mean = mean_of(numbers, n);
    if (threadIdx.x == 0) *result = mean;
}
