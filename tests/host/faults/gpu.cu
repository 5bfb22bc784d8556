// Kernels with one fault each, and one without: what the sanitizers and the host backend must report.

extern "C" __global__ void sound(real *__restrict__ a, size n) {
    __shared__ real shared[32];
    if (threadIdx.x < 32) shared[threadIdx.x] = (real)threadIdx.x;
    __syncthreads();
    if (thread_number() < n) a[thread_number()] = shared[31 - threadIdx.x % 32];
}

// Each warp adds up its threads' numbers by itself, in rounds that it takes alone; then the block reads all sums.
extern "C" __global__ void warps(real *__restrict__ a, size n) {
    __shared__ real shared[128];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    shared[threadIdx.x] = (real)threadIdx.x;
    for (unsigned round = 0; round <= warp; ++round) __syncwarp();
    for (unsigned half = 16; half > 0; half /= 2) {
        __syncwarp();
        if (lane < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    __syncthreads();
    if (thread_number() < n) a[thread_number()] = shared[(threadIdx.x + 32) % blockDim.x / 32 * 32];
}

// Each warp counts its threads below 40; the other of the block's two warps reads the number.
extern "C" __global__ void votes(real *__restrict__ a, size n) {
    double sum = 0;
    for (unsigned some = __ballot_sync(~0u, threadIdx.x < 40); some; some &= some - 1) sum += __ffs(some) > 0;
    block_memory[threadIdx.x] = sum;
    __syncthreads();
    if (thread_number() < n) a[thread_number()] = (real)block_memory[(threadIdx.x + 32) % blockDim.x];
}

// The first of sixteen neighbours writes their sum and 1000 times the third of them; others write 0, the difference from
// a thread beyond the sixteen, in whose place is their own number.
extern "C" __global__ void exchanges(real *__restrict__ a, size n) {
    int sum = (int)threadIdx.x;
    for (int width = 8; width >= 1; width /= 2) {
        const int other = __shfl_down_sync(~0u, sum, width, 16);
        sum += threadIdx.x % 16 + width < 16 ? other : 0;
    }
    const int third = __shfl_sync(~0u, (int)threadIdx.x, 2, 16), own = __shfl_down_sync(~0u, (int)threadIdx.x, 15, 16);
    if (thread_number() < n) a[thread_number()] = (real)(threadIdx.x % 16 ? own - (int)threadIdx.x : sum + 1000 * third);
}

// Two threads of a block meet in shared memory with no barrier between them.
extern "C" __global__ void race_in_shared_memory(real *__restrict__ a, size n) {
    __shared__ real shared[32];
    if (threadIdx.x < 32) shared[threadIdx.x] = (real)threadIdx.x;
    if (thread_number() < n) a[thread_number()] = shared[31 - threadIdx.x % 32];
}

// They meet where all have just come from a barrier: what some read, others write anew.
extern "C" __global__ void race_behind_a_barrier(real *__restrict__ a, size n) {
    __shared__ real shared[32];
    if (threadIdx.x < 32) shared[threadIdx.x] = (real)threadIdx.x;
    __syncthreads();
    if (thread_number() < n) a[thread_number()] = shared[31 - threadIdx.x % 32];
    if (threadIdx.x < 32) shared[threadIdx.x] = 0;
}

// All threads add to one number without an atomic.
extern "C" __global__ void race_in_global_memory(real *__restrict__ a, size n) {
    if (thread_number() < n) a[0] += 1;
}

// The guard lets one thread too many through.
extern "C" __global__ void out_of_bounds(real *__restrict__ a, size n) {
    if (thread_number() <= n) a[thread_number()] = 1;
}

// A size that is 64 bits wide for good reason, squeezed into 32.
extern "C" __global__ void overflow(real *__restrict__ a, size n) {
    const int product = (int)n * 1000000;
    a[0] = (real)product;
}

// Half of the block leaves before the others wait for it.
extern "C" __global__ void divergent_barrier(real *__restrict__ a, size n) {
    if (threadIdx.x >= blockDim.x / 2) return;
    __syncthreads();
    if (thread_number() < n) a[thread_number()] = 1;
}

// The threads wait equally often, but in different blocks.
extern "C" __global__ void divergent_blocks(real *__restrict__ a, size n) {
    if ((threadIdx.x + blockIdx.x) % 2) __syncthreads();
    if (thread_number() < n) a[thread_number()] = 1;
}

extern "C" __global__ void takes_all_kinds(
    const int *__restrict__ i, const size *__restrict__ j, const double *d, real *__restrict__ a, real *b,
    size n, double h
) {
    if (thread_number() < n) a[thread_number()] = (real)(i[0] + (double)j[0] + d[0] + h) + b[0];
}

struct Pointers {
    const int *__restrict__ i; // comment; with a semicolon
    const double *d;           /* or null */
    real *__restrict__ a;
};

struct Numbers {
    size n, m;
    double h;
};

extern "C" __global__ void takes_structs(Pointers p, size k, Numbers s) {
    const size j = thread_number();
    if (j < s.n) p.a[j] = (real)(p.i[0] + (p.d ? p.d[0] : 0.0) + (double)k + (double)s.m + s.h);
}
