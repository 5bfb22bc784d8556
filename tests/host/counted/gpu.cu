// Kernels whose counts are known: see ../test_counts.py.

// Each thread copies one number.
extern "C" __global__ void copies(const real *__restrict__ x, real *__restrict__ y, size n) {
    const size i = thread_number();
    if (i < n) y[i] = x[i];
}

// Each thread reads a number 128 bytes after that of the thread before.
extern "C" __global__ void strides(const real *__restrict__ x, real *__restrict__ y, size n) {
    const size i = thread_number();
    if (i < n) y[i] = x[i * (128 / sizeof(real))];
}

// Thread i of a warp adds i % 4 numbers for each of four rows but those that it leaves out, then all threads write.
extern "C" __global__ void meets(const real *__restrict__ x, real *__restrict__ y) {
    const size i = thread_number();
    double sum = 0;
    for (int row = 0; row < 4; ++row) {
        if ((i + row) % 2) continue;
        for (int j = 0; j < i % 4; ++j) sum += x[32 * j + i];
        sum += x[i];
    }
    y[i] = (real)sum;
}

// Writes shared memory in columns, which are `width` words apart, and reads it in rows.
extern "C" __global__ void columns(real *y, size width) {
    __shared__ real table[33 * 32];
    const size i = threadIdx.x;
    table[i * width] = (real)i;
    __syncthreads();
    y[i] = table[i];
}

// Every thread adds to one of n numbers.
extern "C" __global__ void adds(int *sums, size n) { atomicAdd(&sums[thread_number() % n], 1); }

// Every thread lowers the one number, most of them in vain.
extern "C" __global__ void lowers(int *least) { atomicMin(least, (int)threadIdx.x); }

// Thread 0 of a block waits for the others, which write before and after.
extern "C" __global__ void waits(real *y) {
    if (threadIdx.x % 2) y[threadIdx.x] = 1;
    __syncwarp();
    y[threadIdx.x] += 1;
}

// Threads add to shared numbers, all to the first and each to one of its own, and write both.
extern "C" __global__ void shared_adds(int *sums) {
    __shared__ int table[65];
    table[threadIdx.x] = 0;
    if (threadIdx.x == 0) table[64] = 0;
    __syncthreads();
    atomicAdd(&table[64], 1);
    atomicAdd(&table[threadIdx.x], 1);
    __syncthreads();
    sums[threadIdx.x] = table[threadIdx.x] + table[64];
}

// Writes numbers of eight bytes `step` apart: half a warp at once uses all banks.
extern "C" __global__ void wide(double *y, size step) {
    __shared__ double table[32 * 16];
    table[threadIdx.x * step] = 1;
    __syncthreads();
    y[threadIdx.x] = table[threadIdx.x];
}
