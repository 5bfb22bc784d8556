// The histogram scorer and the pairwise scorer, for columns whose bins have a byte: blocks add up the samples of bins
// in shared memory, or compare bins of a few samples, so that nothing is sorted and there are no keys.
//
//     samples of a node
//     FEW or less     compare_bins, pairwise: a block a node; a thread compares a sample with all, for one candidate
//     up to CHUNK     score_bins: a block a candidate
//     more            count_bins: a block a chunk of the samples of a candidate; then score_bins
//
// A histogram has for each bin the sums of classes, or of outputs and u, and the number of samples:
// (n_bins, counts_of_bin). Its counts have 32 bits for labels whose weights allow it, else 64.
//
// Versions, counted by bench/gpu_counts.py; not timed on a GPU since. 179 ms for ten trees on a million rows were those
// of sorted keys.
//
//     a root of 31,553 different samples, 28 candidates     sorted keys       histograms
//         sectors, megabytes                                48 and 240 *      24
//         requests to global memory                         441,000           162,000
//     all levels of a tree on 5000 rows
//         sectors, megabytes                                64                49
//         steps                                             87,600            46,000
//     launches of a level                                   12                9
//     * of the sort of 884,000 keys, about
//
// 224 blocks count the bins of that root, so that each of 132 multiprocessors has one. A key takes two atomics in
// shared memory. A root of 50,000 samples with targets took 259,350 steps and 94 MB of sectors while a thread added a
// node's targets in order; with integers it takes 4308 and 83 MB.

constexpr int SCORING = MONOTONIC ? 5 : 6; // blocks of score_bins that the registers of a multiprocessor hold, at least

// Return the numbers of sums and of counts of a bin: classes, or outputs and u; then the number of samples, and a pad
// if that makes an odd number, so that bins begin in different banks. Task.n_counts of candidates.py is that of all
// bins.
__device__ static inline size sums_of_bin(const Target &y) { return y.n_outputs + !y.has_labels; }
__device__ static inline size counts_of_bin(const Target &y) { return (sums_of_bin(y) + 1) | 1; }

// Returns the n_outputs sums of this thread, which are in block_memory before the histogram: Task.sum_bytes of
// candidates.py.
__device__ static inline size *own_sums(const Target &y) {
    return (size *)block_memory + threadIdx.x * (y.n_outputs | 1);
}

// The counts of a histogram, of 4 or 8 bytes.
struct Histogram {
    unsigned *array;
    size bytes;
    __device__ size operator[](size i) const { return bytes == 4 ? (size)array[i] : ((const size *)array)[i]; }
    __device__ void set(size i, size a) const {
        if (bytes == 4) array[i] = (unsigned)a;
        else ((size *)array)[i] = a;
    }
    __device__ void add(size i, size a) const {
        if (bytes == 4) atomicAdd(array + i, (unsigned)a);
        else add_to((size *)array + i, a);
    }
};

// Returns the histogram of the block, behind the sums of its threads.
__device__ static inline Histogram histogram(const Target &y, const Pending &pending) {
    return {.array = (unsigned *)(block_memory + BLOCK * (y.n_outputs | 1)), .bytes = pending.counts_bins};
}

// Adds the samples from, .., to - 1 of node v to the histogram of the block.
__device__ static inline void count_samples(
    const Columns &c, const Target &y, const Level &level, const Pending &pending, size column, size v, size from,
    size to
) {
    const size width = counts_of_bin(y), K = y.n_outputs;
    const Histogram counts = histogram(y, pending);
    for (size e = threadIdx.x; e < c.n_bins * width; e += BLOCK) counts.set(e, 0);
    __syncthreads();
    for (size i = from + threadIdx.x; i < to; i += BLOCK) {
        const size s = level.sample[i], u = level.u[i], row = bin_at(c, column, s) * width;
        if (y.has_labels) counts.add(row + y.labels[s], u);
        else {
            for (size k = 0; k < K; ++k) counts.add(row + k, q_of(y, level, v, s)[k]);
            counts.add(row + K, u);
        }
        counts.add(row + sums_of_bin(y), 1);
    }
    __syncthreads();
}

// Writes the histograms of the chunks of nodes to chunks (n_runs, slots, n_bins, counts_of_bin). A block owns a chunk
// and a candidate.
extern "C" __global__ void count_bins(
    Columns c, Target y, Level level, Pending pending, size slots, const int *__restrict__ column,
    unsigned *__restrict__ chunks
) {
    const size run = blockIdx.x / slots, l = segment(pending.run, pending.n_large, run), a = pending.large[l];
    const size own = column[a * slots + blockIdx.x % slots], v = pending.node[a], first = level.first[v],
        n = level.count[v];
    const size number = run - pending.run[l], n_runs = pending.run[l + 1] - pending.run[l];
    const size n_words = c.n_bins * counts_of_bin(y) * pending.counts_bins / 4;
    if (own < 0) return;
    count_samples(c, y, level, pending, own, v, first + n * number / n_runs, first + n * (number + 1) / n_runs);
    for (size e = threadIdx.x; e < n_words; e += BLOCK)
        chunks[blockIdx.x * n_words + e] = histogram(y, pending).array[e];
}

// The best threshold among those that a thread scores, between the bins `below` and `above` of the node. n_left: number
// of samples on its left; 0: no threshold is allowed.
struct Threshold {
    double score;
    size n_left, below, above;
};

// Writes the best threshold of the threads of a group; of equal ones, as hf_beats_in_any_order has it, the first: that
// with the most samples on its right. Thresholds of a group differ in their place. leads: true in one thread of each
// group that has a candidate. All threads of the block call it.
__device__ static inline void write_best(
    const Columns &c, const Candidates &candidates, size candidate, size n, int group,
    bool leads, const Threshold &threshold
) {
    __shared__ unsigned long long top[BLOCK];
    __shared__ unsigned right[BLOCK];
    top[threadIdx.x] = right[threadIdx.x] = 0;
    __syncthreads();
    if (threshold.n_left) atomicMax(&top[group], (unsigned long long)ordered(threshold.score));
    __syncthreads();
    const unsigned n_right = (unsigned)(n - threshold.n_left);
    const bool is_top = threshold.n_left && ordered(threshold.score) == top[group];
    if (is_top) atomicMax(&right[group], n_right);
    __syncthreads();
    if (leads) candidates.n_right[candidate] = right[group];
    if (is_top && right[group] == n_right) {
        const size row = row_of_bins(c, candidates.column[candidate]);
        candidates.score[candidate] = top[group];
        candidates.greatest[candidate] = (unsigned long long)threshold.below;
        candidates.threshold[candidate] = between(c.high[row + threshold.below], c.low[row + threshold.above]);
    }
    __syncthreads();
}

// Writes the best split of a candidate of large node l. chunks, IN: as count_bins writes them. All threads of a block
// call it.
__device__ static inline void score_candidate(
    const Target &y, size criterion, const Limits &limits, const Level &level, const Pending &pending,
    const Candidates &candidates, const Columns &c, unsigned *chunks, size l, size slot
) {
    __shared__ size shared[BLOCK];
    const size K = y.n_outputs, width = counts_of_bin(y), n_counts = c.n_bins * width, last = sums_of_bin(y);
    const size t = threadIdx.x;
    const size run = pending.run[l], last_run = pending.run[l + 1];
    const size a = pending.large[l], candidate = a * candidates.slots + slot, v = pending.node[a], n = level.count[v];
    const Histogram counts = histogram(y, pending), of_chunks = {.array = chunks, .bytes = pending.counts_bins};
    const int sign = sign_of(y, candidates, candidate);
    size *sums = own_sums(y);
    double score;
    if (candidates.column[candidate] < 0) {
        if (t == 0) candidates.n_right[candidate] = 0;
        return;
    }
    if (run == last_run) {
        count_samples(c, y, level, pending, candidates.column[candidate], v, level.first[v], level.first[v] + n);
    } else {
        for (size e = t; e < n_counts; e += BLOCK) {
            size sum = 0;
            for (size r = run; r < last_run; ++r) sum += of_chunks[(r * candidates.slots + slot) * n_counts + e];
            counts.set(e, sum);
        }
        __syncthreads();
    }
    const size each = (c.n_bins + BLOCK - 1) / BLOCK, from = t * each, to = from + each < c.n_bins ? from + each :
        c.n_bins;
    for (size k = 0; k <= last; ++k) {
        size sum = 0;
        for (size b = from; b < to; ++b) sum += counts[b * width + k];
        sum = sum_before(sum, shared);
        for (size b = from; b < to; ++b) counts.set(b * width + k, sum += counts[b * width + k]);
    }
    __syncthreads();
    Threshold best = {};
    for (size b = from; b < to; ++b) {
        const size n_left = counts[b * width + last];
        if (n_left == (b > 0 ? counts[(b - 1) * width + last] : 0)) continue;
        size u = y.has_labels ? 0 : counts[b * width + K];
        for (size k = 0; k < K; ++k) {
            sums[k] = counts[b * width + k];
            if (y.has_labels) u += sums[k];
        }
        if (!scored(y, criterion, limits, level, v, sums, u, n_left, sign, &score)) continue;
        if (!best.n_left || hf_beats(score, best.score)) best = {.score = score, .n_left = n_left, .below = b};
    }
    if (best.n_left) {
        best.above = best.below + 1;
        while (counts[best.above * width + last] == best.n_left) ++best.above;
    }
    write_best(c, candidates, candidate, n, 0, t == 0, best);
}

// Writes the best splits of the candidates of large nodes. A block owns a candidate.
extern "C" __global__ void __launch_bounds__(BLOCK, SCORING) score_bins(
    Target y, size criterion, Limits limits, Level level, Pending pending, Candidates candidates, Columns c,
    unsigned *__restrict__ chunks
) {
    const size l = blockIdx.x / candidates.slots, slot = blockIdx.x % candidates.slots;
    score_candidate(y, criterion, limits, level, pending, candidates, c, chunks, l, slot);
}

// Writes the best splits of the candidates of pending node a, if it has FEW samples or less. A thread owns a sample and
// a candidate. All threads of a block call it.
__device__ static inline void score_pairwise(
    const Target &y, size criterion, const Limits &limits, const Level &level, const Pending &pending,
    const Candidates &candidates, const Columns &c, size a
) {
    __shared__ unsigned char bin[BLOCK];
    const size v = pending.node[a], first = level.first[v], slots = candidates.slots;
    if (level.count[v] > FEW) return;
    const int n = (int)level.count[v], t = (int)threadIdx.x, group = t / n, own = t % n, together = BLOCK / n;
    size *sums = own_sums(y);
    double score;
    for (size slot = group; slot - group < slots; slot += together) {
        const bool works = group < together && slot < slots;
        const size candidate = a * slots + slot;
        const bool has_column = works && candidates.column[candidate] >= 0;
        if (has_column) bin[t] = (unsigned char)bin_at(c, candidates.column[candidate], level.sample[first + own]);
        __syncthreads();
        Threshold threshold = {};
        if (has_column) {
            const unsigned char *bins = bin + group * n;
            const size below = bin[t];
            size above = 256, n_left = 0, u = 0;
            bool is_first = true; // of the samples of its bin
            for (size k = 0; k < y.n_outputs; ++k) sums[k] = 0;
            for (int j = 0; j < n; ++j) {
                const size here = bins[j];
                is_first &= here != below || j >= own;
                if (here > below) {
                    above = here < above ? here : above;
                    continue;
                }
                u += add(y, level, v, first + j, sums);
                ++n_left;
            }
            const int sign = sign_of(y, candidates, candidate);
            if (is_first && scored(y, criterion, limits, level, v, sums, u, n_left, sign, &score))
                threshold = {.score = score, .n_left = n_left, .below = below, .above = above};
        }
        write_best(c, candidates, candidate, n, group, works && own == 0, threshold);
    }
}

// Writes the best splits of the candidates of nodes of FEW samples or less. A block owns a node.
extern "C" __global__ void compare_bins(
    Target y, size criterion, Limits limits, Level level, Pending pending, Candidates candidates, Columns c
) {
    score_pairwise(y, criterion, limits, level, pending, candidates, c, blockIdx.x);
}
