// Precedes the gpu.cu of every subpackage (launch.py joins them). `real` is float or double: the launcher compiles with
// -Dreal=... Sizes and flat indices are long long, because n_samples * n_trees exceeds 32 bits.

typedef long long size;

// Returns the number of this thread in a one-dimensional launch.
__device__ static inline size thread_number() {
    return (size)blockIdx.x * (size)blockDim.x + (size)threadIdx.x;
}

__device__ static inline real magnitude(real a) { return fabs(a); }

__device__ static inline double sign(real a) { return (double)(a > 0) - (double)(a < 0); }

// ------------------------------------------------------------------------------------------ random numbers

typedef unsigned long long word64;

struct Draw {
    unsigned word[4];
};

// Philox 4x32-10: returns the four words of (key, counter, stream), as in philox.h.
__device__ static inline Draw philox(word64 key, word64 counter, word64 stream) {
    unsigned a = (unsigned)counter, b = (unsigned)(counter >> 32), c = (unsigned)stream, d = (unsigned)(stream >> 32);
    unsigned k0 = (unsigned)key, k1 = (unsigned)(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const word64 p = (word64)0xD2511F53u * a, q = (word64)0xCD9E8D57u * c;
        a = (unsigned)(q >> 32) ^ b ^ k0;
        b = (unsigned)q;
        c = (unsigned)(p >> 32) ^ d ^ k1;
        d = (unsigned)p;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const Draw draw = {{a, b, c, d}};
    return draw;
}

// Returns words 0 and 1 (which = 0), or 2 and 3 (which = 1), as one word of 64 bits, the first one low.
__device__ static inline word64 draw_key(Draw draw, int which) {
    return (word64)draw.word[2 * which + 1] << 32 | draw.word[2 * which];
}

// Returns an integer in 0 <= result < stop.
__device__ static inline size below(unsigned word, size stop) { return (size)((word64)word * (unsigned)stop >> 32); }

// Returns a multiple of 2**-53, uniform in [0, 1).
__device__ static inline double unit(Draw draw) { return (double)(draw_key(draw, 0) >> 11) * 0x1p-53; }

// -------------------------------------------------------------------------------------------------- scores

constexpr int GINI = 0, ENTROPY = 1, SQUARED = 2;

// Returns log2 of a positive number, by the operations of score.h.
__device__ static inline double log2_fixed(double a) {
    int e;
    double m = frexp(a, &e);
    if (m < 0.70710678118654752) {
        m = 2 * m;
        e = e - 1;
    }
    const double s = (m - 1) / (m + 1), q = s * s;
    double sum = 1.0 / 23;
    for (int k = 21; k >= 1; k -= 2) sum = sum * q + 1.0 / k;
    return e + s * sum * 2.8853900817779268;
}

__device__ static inline double xlogx(double a) { return a > 0 ? a * log2_fixed(a) : 0.0; }

// Returns the score of a branch of impurity H (hf_node_score in score.h): -W H plus a term that is the same for all splits
// of a node.
//
// sums     IN (n,)  weights of classes, or sums of targets, of the branch; of the other branch where `from` is given
// from     IN (n,)  the sums of the node, or NULL
// weight   the weight W of the branch
__device__ static inline double node_score(
    size criterion, const double *sums, const double *from, size n, double weight
) {
    double total = 0;
    for (size k = 0; k < n; ++k) {
        const double c = from ? from[k] - sums[k] : sums[k];
        total += criterion == ENTROPY ? xlogx(c) : c * c;
    }
    return criterion == ENTROPY ? total - xlogx(weight) : total / weight;
}
