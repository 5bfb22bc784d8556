// Neural decision forests (Zhang 2017, section 2): soft routing by tiles (subtrees.cuh), and logarithms for samples whose
// products are too small (exact.cuh). Sums are those of the CPU, in its dtype and order. There is no float atomic.
//
// Versions, of 20,000 pairs of depth 6 with ten classes, float32, counted by bench/gpu_counts.py; none is timed. On record
// are 2.25 ms of forward and 7.6 ms of a gradient of a million pairs, by a launch for each level.
//
//   1. A launch took some pairs through all levels, with rows of all vertices and leaves in shared memory, and wrote them;
//      outputs summed products of them in float64, and likelihoods were float64 logarithms. Sectors of forward 80 -> 65
//      MB, of loss_backward 206 -> 98 MB.
//   2. A thread computes a pair from f in shared memory: forward writes sums of leaves alone, and the gradient is one of
//      products, of which `losses` lists those that fail. Arguments and results are 5.1 and 10.1 MB. Sectors of forward
//      65 -> 8.2 MB, of loss_backward 98 -> 18.4 MB: its kernel runs once for the likelihoods of all trees, and once for
//      the gradient. Launches 3 -> 2 and 3 -> 4. No bank conflicts; steps of the longest warp 173 -> 682 and 151 -> 2115,
//      as a warp has 32 pairs through all levels. By shared memory, 28 warps of outputs fit a multiprocessor of an H100,
//      12 of a gradient.
//   3. update_leaves wrote float64 shares of all pairs, by logarithms, and added them sample by sample. It now writes sums
//      of products over ROW samples; only pairs below LEAST_UPDATE have shares. Sectors of two iterations 142 -> 14.8 MB,
//      in float64 152 -> 29 MB; of 5,000 pairs of depth 8, whose f is read twice, 143 -> 41.6 MB. Labels are sorted once in
//      a call, not in each iteration. Launches of 2 iterations 21 -> 32, of 20 iterations 183 -> 104. Steps of an iteration
//      805 -> 774, at depth 8 316 -> 1220, as a thread has a sample.
//   4. Samples came to their groups by 21 small operations of CuPy. Groups now begin where no sum over classes is needed,
//      so that a sort and two kernels do it. Launches of 2 iterations 32 -> 13.

#include "neural/gpu/subtrees.cuh"
#include "neural/gpu/exact.cuh"

// mu (n_samples, n_trees, n_subtrees * n_leaves), OUT: the probability that a sample reaches each leaf. A block a tile.
extern "C" __global__ void route(Forest a, Tiles t, real* mu) {
    const Tile tile(a, t);
    tile.load(a);
    if (tile.has_row()) tile.descend(a, tile.row(), tile.row());
    __syncthreads();
    tile.each([&](unsigned i, unsigned l) {
        const size first = (tile.first + i) * a.n_trees * t.n_subtrees + tile.subtree();
        mu[first * tile.n_leaves + l] = ((real*)block_memory)[i * tile.step + place(tile.n_leaves + l)];
    });
}

// Probabilities of the leaves of a subtree, for CLASSES classes at most; threads read four at once.
struct alignas(16) Four {
    real at[4];
};
constexpr int CLASSES = 12;
__shared__ Four probabilities[CLASSES / 4 << HF_LEVELS];
__shared__ int has_small;  // whether one of them is_below LEAST_LEAF

// Writes sum_l mu_l pi_l of a thread's row for n <= 4 * N classes, to numbers `apart` apart.
template <int N, bool FLUSHES>
__device__ static inline void write_sums(const Tile& tile, int n, size apart, real* sums) {
    const real* const row = tile.row();
    real sum[4 * N] = {};
    for (unsigned l = 0; l < tile.n_leaves; ++l) {
        const real mu = row[place(tile.n_leaves + l)];
        for (int j = 0; j < N; ++j) {
            const Four pi = probabilities[l * N + j];
            for (int i = 0; i < 4; ++i) {
                const real product = mu * pi.at[i];
                sum[4 * j + i] = FLUSHES ? flushed(sum[4 * j + i] + flushed(product)) : sum[4 * j + i] + product;
            }
        }
    }
    for (int k = 0; k < 4 * N; ++k)
        if (k < n) sums[k * apart] = sum[k];
}

template <int N>
__device__ static inline void write_sums(const Tile& tile, bool flushes, int n, size apart, real* sums) {
    if (flushes) write_sums<N, true>(tile, n, apart, sums);
    else write_sums<N, false>(tile, n, apart, sums);
}

// sums (n_trees, n_subtrees, n_classes, n_samples), OUT: sum_l mu_l pi_l over the leaves of a subtree, in `real`, in the
// order of the CPU. A block a tile.
extern "C" __global__ void outputs(Forest a, Tiles t, real* __restrict__ sums) {
    const Tile tile(a, t);
    const size subtree = tile.subtree();
    if (threadIdx.x == 0) has_small = 0;
    tile.load(a);
    const bool small_mu = tile.has_row() && tile.descend(a, tile.row(), tile.row());
    for (size first = 0; first < a.n_classes; first += CLASSES) {
        const int n = (int)min((size)CLASSES, a.n_classes - first), fours = (n + 3) / 4;
        if (first) __syncthreads();
        for (unsigned j = threadIdx.x; j < tile.n_leaves * fours * 4; j += blockDim.x) {
            const int l = (int)j / (4 * fours), k = (int)j % (4 * fours);
            const real pi = k < n ? a.leaves[(subtree * tile.n_leaves + l) * a.n_classes + first + k] : 0;
            probabilities[j / 4].at[j % 4] = pi;
            if (is_below(pi, LEAST_LEAF)) atomicOr(&has_small, 1);
        }
        __syncthreads();
        if (!tile.has_row()) continue;
        real* const to = sums + (subtree * a.n_classes + first) * a.n_samples + tile.first + threadIdx.x;
        const bool flushes = small_mu || has_small;
        if (fours == 1) write_sums<1>(tile, flushes, n, a.n_samples, to);
        else if (fours == 2) write_sums<2>(tile, flushes, n, a.n_samples, to);
        else write_sums<3>(tile, flushes, n, a.n_samples, to);
    }
}

// p (n_samples, n_classes), OUT: the sums of all n_sums subtrees, in float64 in the order of the CPU, divided by n_trees.
// sums (n_sums, n_classes, n_samples), IN. One thread per number.
extern "C" __global__ void means(
    const real* sums, size n_sums, size n_trees, size n_classes, size n_samples, real* p
) {
    const size i = thread_number(), k = i / n_samples, n = i % n_samples;
    if (k >= n_classes) return;
    double total = 0;
    for (size j = 0; j < n_sums; ++j) {
        total += (double)sums[(j * n_classes + k) * n_samples + n];
        if (DIGITS == 53) total = flushed((real)total);
    }
    p[n * n_classes + k] = flushed((real)(total / (double)n_trees));
}

// -------------------------------------------------------------------------------------------- gradients

// The factors of pairs in the gradient, and what gradients write. Samples that `exact` adds have the factor 0.
struct Gradient {
    real* w;         // OUT (n_trees, n_subtrees, n_samples): w of the root of a subtree (Tile::ascend)
    const real* by;  // IN: tree m of sample n has by[m * tree_step + n * sample_step]
    size tree_step, sample_step;
    double share;    // 0 if `by` is the factor; else `by` is the likelihood, and the factor share / by, 0 below LEAST
    size late;       // whether gather_functions multiplies by the factor
    real* grad;      // OUT (n_samples, n_trees, n_vertices), or null
};

__device__ static inline real factor(const Gradient& of, size m, size n) {
    const real by = of.by[m * of.tree_step + n * of.sample_step];
    if (of.share == 0) return by;
    return (double)by >= LEAST ? (real)(of.share / (double)by) : 0;
}

// Writes w of the roots of a tile and the gradient of its vertices. leaf(l, mu) is w of leaf l; mu is not computed
// unless has_mu.
template <class Leaf>
__device__ static inline void write_gradient(
    const Forest& a, const Tiles& t, const Gradient& to, bool has_mu, const Leaf& leaf
) {
    const Tile tile(a, t);
    const size own = tile.first + threadIdx.x;
    tile.load(a);
    if (tile.has_row()) {
        real *const from = tile.row(), *const w = tile.row(t.rows);
        if (has_mu) tile.descend(a, from, w);
        for (unsigned l = 0; l < tile.n_leaves; ++l) {
            const int at = place(tile.n_leaves + l);
            w[at] = leaf(tile.subtree() * tile.n_leaves + l, own, w[at]);
        }
        tile.ascend(from, w);
        to.w[tile.subtree() * a.n_samples + own] = w[0];
        if (to.grad) w[0] = factor(to, tile.m, own);
    }
    if (!to.grad) return;
    __syncthreads();
    tile.each([&](unsigned i, unsigned v) {
        if (!v) return;
        const real *const from = (real*)block_memory + i * tile.step, by = from[t.rows * tile.step];
        const real scaled = by == 0 && to.share == 0 ? 0 : to.late ? from[v] : flushed(by * from[v]);
        to.grad[((tile.first + i) * a.n_trees + tile.m) * a.n_vertices + tile.vertex(v)] = scaled;
    });
}

// The gradient of the labels' loss, d A_right - (1 - d) A_left for the label's part A of P (Zhang 2017).
extern "C" __global__ void gradient_by_labels(Forest a, Tiles t, Gradient to) {
    write_gradient(a, t, to, true, [&](size l, size n, real mu) {
        return flushed(mu * a.leaves[l * a.n_classes + a.y[n]]);
    });
}

// The gradient of any function of the outputs. grad_p (n_classes, n_samples), IN.
extern "C" __global__ void gradient_by_outputs(Forest a, Tiles t, const real* __restrict__ grad_p, Gradient to) {
    write_gradient(a, t, to, true, [&](size l, size n, real mu) {
        real sum = 0;
        for (size k = 0; k < a.n_classes; ++k) {
            const real leaf = flushed(a.leaves[l * a.n_classes + k]), grad = flushed(grad_p[k * a.n_samples + n]);
            sum = flushed(sum + flushed(leaf * grad));
        }
        return flushed(mu * sum);
    });
}

// The gradient of vertices above subtrees. below (n_trees, n_subtrees * n_leaves, n_samples), IN: w of their roots.
extern "C" __global__ void gradient_above(Forest a, Tiles t, const real* __restrict__ below, Gradient to) {
    write_gradient(a, t, to, false, [&](size l, size n, real) { return below[l * a.n_samples + n]; });
}

// Lists the samples whose likelihood, with `forest` summed over trees, is below LEAST, and writes the losses and, with
// `forest`, the factors of the others. likelihood (n_trees, n_samples), IN; loss, by (n_samples,), OUT; count (1,), IN 0;
// samples (n_samples,), OUT. One thread per sample.
extern "C" __global__ void losses(
    const real* likelihood, size n_trees, size forest, size n_samples, size n_all, double* loss, real* by, int* count,
    int* samples
) {
    const size n = thread_number();
    if (n >= n_samples) return;
    bool fails = false;
    double total = 0;
    for (size m = 0; m < n_trees; ++m) {
        const double p = (double)likelihood[m * n_samples + n];
        fails = fails || !(p >= LEAST);
        total += forest ? p : hf_log(p);
    }
    loss[n] = forest ? -hf_log(total / (double)n_trees) : -total / (double)n_trees;
    if (forest) {
        fails = !(total >= LEAST);
        by[n] = fails ? 0 : (real)(1 / ((double)n_all * total));
    }
    if (fails) samples[atomicAdd(count, 1)] = (int)n;
}

// start (n + 1,), OUT: the number of keys below each number from 0 to n. key[order] (n_keys,), IN, is ascending. One
// thread per number.
extern "C" __global__ void starts(const int* key, const size* order, size n_keys, size n, size* start) {
    const size i = thread_number();
    if (i > n) return;
    size low = 0, high = n_keys;
    while (low < high) {
        const size middle = (low + high) / 2;
        if (key[order[middle]] < i) low = middle + 1;
        else high = middle;
    }
    start[i] = low;
}

// grad_f (n_samples, n_functions), OUT: the sum of the gradient over the vertices that use a function, in the order of
// trees and vertices, then of those that `exact` wrote; order[start[j]:start[j + 1]] are the vertices of function j. One
// thread per number.
extern "C" __global__ void gather_functions(Forest a, Gradient of, const size* order, const size* start, real* grad_f) {
    const size i = thread_number(), n = i / a.n_functions, j = i % a.n_functions;
    if (n >= a.n_samples) return;
    const real* const grad = of.grad + n * a.n_trees * a.n_vertices;
    bool some = false;
    real total = 0;
    for (size s = start[j]; s < start[j + 1]; ++s) {
        const bool is_exact = factor(of, order[s] / a.n_vertices, n) == 0;
        some = some || is_exact;
        if (!is_exact) total = flushed(total + grad[order[s]]);
    }
    if (of.late) total = flushed(total * factor(of, 0, n));
    for (size s = start[j]; some && s < start[j + 1]; ++s)
        if (factor(of, order[s] / a.n_vertices, n) == 0) total += grad[order[s]];
    grad_f[i] = total;
}

// ------------------------------------------------------------------------------------------ leaves

// Samples are ordered by class. A group is ROW samples of one class: a tile of the CPU. The last one of a class is filled
// up with samples that count 0 times; after it there may be groups of them. Sums here are of numbers from 0 on, so none
// of them is flushed.
constexpr int ROW = DIGITS == 24 ? HF_ROW_F32 : HF_ROW_F64;
constexpr double LEAST_UPDATE = DIGITS == 24 ? HF_LEAST_UPDATE_F32 : HF_LEAST_UPDATE_F64;

// Returns the first group of class k. start[k] samples are of classes before k: of at most min(k, start[k]) classes, each
// of which fills up a group with at most ROW - 1 samples.
__device__ static inline size first_group(const size* start, size k) {
    return (start[k] + (ROW - 1) * min(k, start[k])) / ROW;
}

// Writes the samples to their groups: of each place the sample, its label and the number of times that it counts, IN 0.
// by_class (n,), IN: the samples in order; weight (n,), IN, is read only if has_weight. One thread per sample.
extern "C" __global__ void fill_groups(
    const int* y, const double* weight, size has_weight, size n, const size* by_class, const size* start, int* order,
    int* labels, double* times
) {
    const size i = thread_number();
    if (i >= n) return;
    const size sample = by_class[i], k = y[sample], place = first_group(start, k) * ROW + i - start[k];
    order[place] = (int)sample;
    labels[place] = (int)k;
    times[place] = has_weight ? weight[sample] : 1;
}

// The pairs whose likelihood is below LEAST_UPDATE, and the factors of the others.
struct Posteriors {
    const double* times;  // IN (n_samples,): the number of times that samples count
    real* factor;         // (n_trees, n_samples): `times` divided by the likelihood, or null if trees are subtrees
    int* n_listed;        // OUT (1,), IN 0
    int* listed;          // OUT (n_pairs,): the first n_listed ones, in any order
    int* which;           // OUT (n_groups, n_trees): a bit for each sample of a group that is listed, IN 0
};

// Returns the factor of a sample with likelihood p in tree m; below LEAST_UPDATE it is 0, and the pair is listed.
__device__ static inline real factor(const Forest& a, const Posteriors& to, size m, size n, double p) {
    const double times = to.times[n];
    if (p >= LEAST_UPDATE) return (real)(flushed(times) / p);  // `posteriors` flushes products of it
    if (times == 0) return 0;
    atomicOr(&to.which[n / ROW * a.n_trees + m], 1 << n % ROW);
    to.listed[atomicAdd(to.n_listed, 1)] = (int)(n * a.n_trees + m);
    return 0;
}

// Returns the likelihood of the label of this thread's sample in a subtree, from mu in its row.
__device__ static inline real likelihood(const Forest& a, const Tile& tile) {
    const real* const row = tile.row();
    const real* leaf = a.leaves + tile.subtree() * tile.n_leaves * a.n_classes + a.y[tile.first + threadIdx.x];
    real even = 0, odd = 0;
    for (unsigned l = 0; l < tile.n_leaves; l += 2, leaf += 2 * a.n_classes) {
        even += flushed(row[place(tile.n_leaves + l)] * leaf[0]);
        odd += flushed(row[place(tile.n_leaves + l + 1)] * leaf[a.n_classes]);
    }
    return even + odd;
}

// parts (n_trees, n_subtrees, n_samples), OUT: the likelihood of the label in a subtree. A block a tile.
extern "C" __global__ void likelihoods(Forest a, Tiles t, real* parts) {
    const Tile tile(a, t);
    tile.load(a);
    if (!tile.has_row()) return;
    tile.descend(a, tile.row(), tile.row());
    parts[tile.subtree() * a.n_samples + tile.first + threadIdx.x] = likelihood(a, tile);
}

// Writes the factors of pairs from the parts of their likelihoods, IN. One thread per pair.
extern "C" __global__ void factors(Forest a, Posteriors to, const real* parts, size n_subtrees) {
    const size i = thread_number(), m = i / a.n_samples, n = i % a.n_samples;
    if (m >= a.n_trees) return;
    double p = 0;
    for (size j = 0; j < n_subtrees; ++j) p += (double)parts[(m * n_subtrees + j) * a.n_samples + n];
    to.factor[i] = factor(a, to, m, n, p);
}

// Returns at(first) + ... of ROW numbers that are APART apart, added by halves.
template <int APART = 1, class At>
__device__ static inline real added(const At& at, int first = 0) {
    if constexpr (APART == ROW) return at(first);
    else return added<2 * APART>(at, first) + added<2 * APART>(at, first + APART);
}

// sums (n_groups, n_trees, n_leaves), OUT: mu times factor, summed over a group. A block a tile of whole groups.
extern "C" __global__ void posteriors(Forest a, Tiles t, Posteriors to, real* sums) {
    const Tile tile(a, t);
    const size own = tile.first + threadIdx.x;
    tile.load(a);
    if (tile.has_row()) {
        real* const row = tile.row();
        tile.descend(a, row, row);
        row[tile.n_leaves] = to.factor ? to.factor[tile.m * a.n_samples + own]
                                       : factor(a, to, tile.m, own, (double)likelihood(a, tile));
    }
    __syncthreads();
    for (unsigned j = threadIdx.x; j < (unsigned)tile.n / ROW << t.levels; j += blockDim.x) {
        const unsigned group = j >> t.levels, l = j & (tile.n_leaves - 1);
        const real* const rows = (real*)block_memory + group * ROW * tile.step;
        const size first = (tile.first / ROW + group) * a.n_trees * t.n_subtrees + tile.subtree();
        sums[first * tile.n_leaves + l] = added([&](int s) {
            const real* const row = rows + s * tile.step;
            return flushed(row[place(tile.n_leaves + l)] * row[tile.n_leaves]);
        });
    }
}

// total (n_trees, n_classes, n_leaves), IN and OUT: adds the groups of the chunk, before which are `before`
// groups. start (n_classes + 1,), IN: where classes start. shares (n_pairs, n_leaves), IN, of listed pairs. One thread
// per number.
extern "C" __global__ void expect(
    Forest a, Posteriors of, const real* __restrict__ sums, const double* __restrict__ shares, const size* start,
    size before, double* total
) {
    const size i = thread_number(), n_leaves = a.n_vertices + 1, l = i % n_leaves, m = i / n_leaves / a.n_classes;
    if (m >= a.n_trees) return;
    const size k = i / n_leaves % a.n_classes, first = first_group(start, k) - before;
    const size stop = min(first + (start[k + 1] - start[k] + ROW - 1) / ROW, a.n_samples / ROW);
    const double leaf = (double)flushed(a.leaves[(m * n_leaves + l) * a.n_classes + k]);
    double sum = total[i];
    for (size g = max(first, (size)0); g < stop; ++g) {
        const size pair = g * a.n_trees + m;
        sum = flushed(sum) + flushed(leaf * (double)sums[pair * n_leaves + l]);
        for (int listed = of.which[pair]; listed; listed &= listed - 1) {
            const size n = g * ROW + __ffs(listed) - 1;
            sum += of.times[n] * shares[(n * a.n_trees + m) * n_leaves + l];
        }
    }
    total[i] = sum;
}

// leaves (n_trees, n_leaves, n_classes), OUT: total (n_trees, n_classes, n_leaves), IN, divided by its sums over classes.
// The row of a leaf that is not reached does not change. One thread per leaf.
extern "C" __global__ void normalise(const double* total, size n_trees, size n_leaves, size n_classes, real* leaves) {
    const size i = thread_number(), m = i / n_leaves, l = i % n_leaves;
    if (m >= n_trees) return;
    const double* const from = total + m * n_classes * n_leaves + l;
    double mass = 0;
    for (size k = 0; k < n_classes; ++k) mass += from[k * n_leaves];
    if (!(mass >= HF_LEAST_MASS) || isinf(mass)) return;
    for (size k = 0; k < n_classes; ++k) leaves[i * n_classes + k] = (real)(from[k * n_leaves] / mass);
}
