// Numbers as keys: unsigned integers with the same order. The array module sorts keys instead of numbers, because
// CuPy's own kernels flush float32 subnormals to 0, and its sort of numbers orders NaN by sign.

// Returns the key of a number; -0 has the key of 0. `unordered` is the inverse.
__device__ static inline uint64_t ordered(float a) {
    unsigned bits;
    a += 0.0f;
    memcpy(&bits, &a, sizeof bits);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}
__device__ static inline uint64_t ordered(double a) {
    uint64_t bits;
    a += 0.0;
    memcpy(&bits, &a, sizeof bits);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}
__device__ static inline double unordered(uint64_t key, float) {
    const unsigned word = (unsigned)key, bits = word >> 31 ? word & ~(1u << 31) : ~word;
    float a;
    memcpy(&a, &bits, sizeof a);
    return a;
}
__device__ static inline double unordered(uint64_t key, double) {
    const uint64_t bits = key >> 63 ? key & ~(1ull << 63) : ~key;
    double a;
    memcpy(&a, &bits, sizeof a);
    return a;
}

// key (n,), OUT: keys of number (n,), IN; NaN has the greatest key. One thread per number.
extern "C" __global__ void keys_of_numbers(const real *__restrict__ number, size n, unsigned long long *__restrict__ key) {
    const size i = thread_number();
    if (i < n) key[i] = number[i] == number[i] ? ordered(number[i]) : ~0ull;
}

// number (n,), OUT: numbers of key (n,), IN. One thread per number.
extern "C" __global__ void numbers_of_keys(
    const unsigned long long *__restrict__ key, size n, double *__restrict__ number
) {
    const size i = thread_number();
    if (i < n) number[i] = unordered(key[i], real());
}
