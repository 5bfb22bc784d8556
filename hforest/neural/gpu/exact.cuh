// Likelihoods as float64 logarithms, with the bits of the CPU's exact.pyx; part of gpu.cu. A pair is one sample of the
// chunk in one tree. A block has some pairs at a time, and for each pair two rows of 2 * n_vertices + 1 numbers, in heap
// order: vertices, then leaves. It computes them level by level, and waits after each level.

// The memory of blocks.
struct Rows {
    double* rows;  // of all blocks, or null if they are in block_memory
    size each;     // the most pairs that a block has at a time
};

// Writes log sigmoid(f) and log sigmoid(-f) from one logarithm.
__device__ static inline void log_decisions(double f, double* d, double* c) {
    const double log_sum = hf_log1p(hf_exp(-fabs(f)));
    *d = f < 0 ? f - log_sum : -log_sum;
    *c = f < 0 ? -log_sum : -f - log_sum;
}

// Pairs that a block has: n, from `first` on, of those in `listed`, or of all if it is null.
struct Pairs {
    const Forest& a;
    const int* listed;
    size first, n, step;
    double *logs, *shares;  // rows of n pairs

    __device__ Pairs(const Forest& a, const Rows& r, size first, size n, const int* listed = nullptr)
        : a(a), listed(listed), first(first), n(n), step(2 * a.n_vertices + 1),
          logs(r.rows ? r.rows + blockIdx.x * 2 * r.each * step : block_memory), shares(logs + r.each * step) {}

    // Returns the number of pair i: sample * n_trees + tree.
    __device__ size pair(size i) const { return listed ? (size)listed[first + i] : first + i; }

    // Returns the value of the decision function of vertex v for pair i.
    __device__ double decision(size i, size v) const {
        return function(a, pair(i) / a.n_trees, pair(i) % a.n_trees, v);
    }

    // Calls at(i, v) for each vertex v of each pair i of the block, level by level, upwards or downwards.
    template <class At>
    __device__ void levels(bool upwards, const At& at) const {
        const size n_leaves = a.n_vertices + 1;
        for (size level = 1; level < n_leaves; level *= 2) {
            const unsigned width = (unsigned)(upwards ? n_leaves / 2 / level : level);
            for (unsigned j = threadIdx.x; j < (unsigned)n * width; j += blockDim.x)
                at(j / width, width - 1 + j % width);
            __syncthreads();
        }
    }

    // Writes logs: the logarithm of the likelihood of a sample's label below each vertex; at a leaf, of its probability.
    __device__ void ascend() const {
        const size n_leaves = a.n_vertices + 1;
        __syncthreads();  // the pairs before are done
        for (size j = threadIdx.x; j < n * n_leaves; j += blockDim.x) {
            const size i = j / n_leaves, l = j % n_leaves, sample = pair(i) / a.n_trees, m = pair(i) % a.n_trees;
            const real leaf = a.leaves[(m * n_leaves + l) * a.n_classes + a.y[sample]];
            logs[i * step + a.n_vertices + l] = hf_log((double)leaf);
        }
        __syncthreads();
        levels(true, [&](size i, size v) {
            double d, c, *row = logs + i * step;
            log_decisions(decision(i, v), &d, &c);
            const double left = d + row[2 * v + 1], right = c + row[2 * v + 2];
            const double high = left > right ? left : right, low = left > right ? right : left;
            row[v] = isinf(high) ? high : high + hf_log1p(hf_exp(low - high));
        });
    }

    // Writes shares, from logs: the share A of each vertex and leaf, the sum over the leaves below it, divided by P
    // (Zhang 2017). The share of the root is 1, or 0 if P is 0. Calls at(i, v, slope) with the slope d A_right - c A_left.
    template <class At>
    __device__ void descend(const At& at) const {
        levels(false, [&](size i, size v) {
            const double *row = logs + i * step, here = decision(i, v);
            double log_d, log_c, *share = shares + i * step;
            log_decisions(here, &log_d, &log_c);
            if (v == 0) share[0] = isinf(row[0]) ? 0.0 : 1.0;
            const double own = share[v];
            const double left = own > 0 ? own * hf_exp(log_d + row[2 * v + 1] - row[v]) : 0.0;
            const double right = own > 0 ? own * hf_exp(log_c + row[2 * v + 2] - row[v]) : 0.0;
            share[2 * v + 1] = left;
            share[2 * v + 2] = right;
            const double e = hf_exp(-fabs(here)), high = 1 / (1 + e), low = e / (1 + e);
            at(i, v, (here < 0 ? low : high) * right - (here < 0 ? high : low) * left);
        });
    }
};

// shares (n_pairs, n_leaves), OUT: the shares of the leaves, of the n_listed pairs in `listed`. A block has `each` pairs
// after the other.
extern "C" __global__ void leaf_shares(Forest a, Rows r, const int* n_listed, const int* listed, double* out) {
    const size n_leaves = a.n_vertices + 1;
    for (size first = blockIdx.x * r.each; first < *n_listed; first += gridDim.x * r.each) {
        const Pairs pairs(a, r, first, min(r.each, *n_listed - first), listed);
        pairs.ascend();
        pairs.descend([](size, size, double) {});
        for (size j = threadIdx.x; j < pairs.n * n_leaves; j += blockDim.x) {
            const size i = j / n_leaves, l = j % n_leaves;
            out[pairs.pair(i) * n_leaves + l] = pairs.shares[i * pairs.step + a.n_vertices + l];
        }
    }
}

// The samples that `losses` lists, and their results.
struct Listed {
    const int* n_listed;         // IN (1,)
    const int* samples;          // IN (n_samples,): the first n_listed ones, in any order
    const real* likelihood;      // IN (n_trees, n_samples): by products
    size forest, n_all;
    double* weight;              // scratch (n_blocks, n_trees): logarithms of likelihoods, then weights of trees
    double* loss;                // OUT (n_samples,), of listed samples
    real* grad;                  // OUT (n_samples, n_trees, n_vertices): the gradient of listed samples is added
};

// Writes the losses of listed samples and adds their gradients: with `forest` of all trees, else of the trees whose
// likelihood is below LEAST. A block has one sample after the other.
extern "C" __global__ void exact(Forest a, Rows r, Listed to) {
    const double share = 1 / ((double)to.n_all * (double)a.n_trees);
    double* const weight = to.weight + blockIdx.x * a.n_trees;
    for (size s = blockIdx.x; s < *to.n_listed; s += gridDim.x) {
        const size n = to.samples[s];
        const auto likelihood = [&](size m) { return (double)to.likelihood[m * a.n_samples + n]; };
        const auto fails = [&](size m) { return to.forest || !(likelihood(m) >= LEAST); };
        for (int round = 0; round < (to.forest ? 2 : 1); ++round) {
            for (size m = 0; m < a.n_trees; m += r.each) {
                const Pairs pairs(a, r, n * a.n_trees + m, min(r.each, a.n_trees - m));
                bool some = false;
                for (size i = 0; i < pairs.n; ++i) some = some || fails(m + i);
                if (!some) continue;
                pairs.ascend();
                if (!round && threadIdx.x < pairs.n) weight[m + threadIdx.x] = pairs.logs[threadIdx.x * pairs.step];
                if (to.forest && !round) continue;
                pairs.descend([&](size i, size v, double slope) {
                    const double by = to.forest ? weight[m + i] / (double)to.n_all : share;
                    real* const grad = to.grad + (n * a.n_trees + m + i) * a.n_vertices + v;
                    if (to.forest ? by > 0 : fails(m + i)) *grad += (real)(by * slope);
                });
            }
            __syncthreads();
            if (round || threadIdx.x) continue;
            double total = 0, high = -HF_INFINITY;
            for (size m = 0; m < a.n_trees; ++m) {
                total += fails(m) ? weight[m] : hf_log(likelihood(m));
                high = weight[m] > high ? weight[m] : high;
            }
            to.loss[n] = -total / (double)a.n_trees;
            if (!to.forest) continue;
            total = 0;
            for (size m = 0; m < a.n_trees; ++m) total += weight[m] = isinf(high) ? 0 : hf_exp(weight[m] - high);
            for (size m = 0; m < a.n_trees; ++m) weight[m] /= isinf(high) ? 1 : total;
            to.loss[n] = isinf(high) ? -high : -(high + hf_log(total / (double)a.n_trees));
        }
        __syncthreads();
    }
}
