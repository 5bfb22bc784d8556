// Thresholds of pairs. The best threshold of a pair is between adjacent, different keys; of equal scores it is the
// first.
//
//     integer class weights                  keys are sorted and hold label and weight      sums are exact in any order
//         large pairs   runs of RUN keys     count_runs: sums of a run; start_runs: sums before a run;
//                                            score_runs: thresholds of a run; first_best: the first of the best
//         small pairs   one thread           score_runs
//     targets, other weights                 keys have an order                             sums in the CPU's order
//         large pairs   one block            scan_large
//         small pairs   one thread           scan_small

constexpr size RUN = 32;   // samples of a large pair that one thread scans
constexpr int NEAR = 17;   // sums per thread in shared memory; odd, to use different banks
constexpr int TILE = 2560; // sums of a tile of scan_large and sum_up, and
constexpr int ROWS = 1024; // samples of it, at most

// Writes the score of the threshold after n_left samples of node v, and returns whether it is allowed as a split.
__device__ static inline bool scored(
    const Target &y, size criterion, const Limits &limits, const Level &level, size v, const double *sums,
    double left_weight, size n_left, double *score
) {
    const size n_right = level.count[v] - n_left;
    if (n_right < 1 || n_left < limits.min_samples_leaf || n_right < limits.min_samples_leaf) return false;
    const double rest = level.weight[v] - left_weight;
    if (!enough(limits, level, v, left_weight, rest)) return false;
    *score = hf_node_score(criterion, sums, y.n_outputs, left_weight) +
             hf_branch_score(criterion, sums, level.total + v * y.n_outputs, y.n_outputs, rest);
    return true;
}

// A run of a large pair.
struct Run {
    size pair, v, from, to, start; // its places in the pair, whose keys begin at start
};

// Returns run i of the runs of all large pairs; part.run counts the runs of one slot.
__device__ static inline Run run_of(const Level &level, const Part &part, size slots, size i) {
    const size l = segment(part.run, part.n_large, i / slots), in_node = i - part.run[l] * slots;
    const size n_runs = part.run[l + 1] - part.run[l], a = part.large[l], v = part.node[a], n = level.count[v];
    const size from = in_node % n_runs * RUN, slot = in_node / n_runs;
    return {a * slots + slot, v, from, from + RUN < n ? from + RUN : n, part.begin[a] * slots + slot * n};
}

// Adds the sample of a key to sums (n_classes,), and returns its weight.
__device__ static inline double add_key(const Pairs &pairs, uint64_t key, double *sums) {
    const double w = (double)(key & (((uint64_t)1 << pairs.weight_bits) - 1));
    sums[key >> pairs.weight_bits & (((uint64_t)1 << pairs.label_bits) - 1)] += w;
    return w;
}

// Returns the address of the thread's n sums: in shared memory, or `far` if they do not fit.
__device__ static inline double *sums_of_thread(size n, double *far) {
    __shared__ double near[BLOCK * NEAR];
    return n <= NEAR ? near + threadIdx.x * NEAR : far;
}

// start (n_runs * slots, n_classes), OUT: sums of the runs of large pairs. One thread per run.
extern "C" __global__ void count_runs(Target y, Level level, Part part, Pairs pairs, double *__restrict__ start) {
    const size i = thread_number(), K = y.n_outputs;
    if (i >= part.n_runs * pairs.slots) return;
    const Run run = run_of(level, part, pairs.slots, i);
    double *sums = sums_of_thread(K, start + i * K);
    for (size k = 0; k < K; ++k) sums[k] = 0;
    for (size j = run.from; j < run.to; ++j) add_key(pairs, pairs.sorted[run.start + j], sums);
    for (size k = 0; k < K; ++k) start[i * K + k] = sums[k];
}

// start (n_runs * slots, n_classes), IN and OUT: the sums of a run are replaced by the sums of all runs before it. One
// block per large pair.
extern "C" __global__ void start_runs(Target y, Part part, Pairs pairs, double *__restrict__ start) {
    __shared__ double shared[BLOCK];
    const size l = blockIdx.x / pairs.slots, n = part.run[l + 1] - part.run[l], K = y.n_outputs;
    double *__restrict__ mine = start + (part.run[l] * pairs.slots + blockIdx.x % pairs.slots * n) * K;
    const size each = (n + BLOCK - 1) / BLOCK, from = threadIdx.x * each, to = from + each < n ? from + each : n;
    for (size k = 0; k < K; ++k) {
        double sum = 0;
        for (size j = from; j < to; ++j) sum += mine[j * K + k];
        sum = sum_before(sum, shared);
        for (size j = from; j < to; ++j) {
            const double own = mine[j * K + k];
            mine[j * K + k] = sum;
            sum += own;
        }
    }
}

// Writes the best score of each pair and, for small pairs, its place. start (n_runs * slots, n_classes), IN, workspace
// afterwards. best (n_runs * slots,), OUT: the score of a run, as `ordered`; place, OUT: number of samples that go
// left, 0: no split. One thread per run of a large pair or per small pair; each continues n_threads further on.
extern "C" __global__ void score_runs(
    Target y, size criterion, Limits limits, Level level, Part part, Pairs pairs, size n_threads,
    double *__restrict__ start, unsigned long long *__restrict__ best, size *__restrict__ place
) {
    const size K = y.n_outputs, slots = pairs.slots, n_runs = part.n_runs * slots, thread = thread_number();
    const size low_bits = pairs.weight_bits + pairs.label_bits;
    if (thread >= n_threads) return;
    for (size i = thread; i < n_runs + part.n_nodes * slots; i += n_threads) {
        Run run;
        double *sums = sums_of_thread(K, i < n_runs ? start + i * K : pairs.left + thread * K), left_weight = 0, top = 0;
        if (i < n_runs) {
            run = run_of(level, part, slots, i);
            for (size k = 0; k < K; ++k) {
                sums[k] = start[i * K + k];
                left_weight += sums[k];
            }
        } else {
            const size pair = i - n_runs, a = pair / slots, v = part.node[a], n = level.count[v];
            if (n > LARGE) continue;
            run = {pair, v, 0, n, part.begin[a] * slots + pair % slots * n};
            for (size k = 0; k < K; ++k) sums[k] = 0;
        }
        const size n = level.count[run.v];
        const unsigned long long *keys = pairs.sorted + run.start;
        uint64_t next = keys[run.from];
        size found = 0;
        for (size j = run.from; j < run.to && j + 1 < n; ++j) {
            const uint64_t key = next;
            double score;
            next = keys[j + 1];
            left_weight += add_key(pairs, key, sums);
            if (key >> low_bits == next >> low_bits) continue;
            if (!scored(y, criterion, limits, level, run.v, sums, left_weight, j + 1, &score)) continue;
            if (!found || hf_beats(score, top)) {
                top = score;
                found = j + 1;
            }
        }
        if (i < n_runs) {
            best[i] = ordered(top);
            place[i] = found;
            if (found) atomicMax(&pairs.score[run.pair], (unsigned long long)ordered(top));
        } else if (found) {
            pairs.score[run.pair] = ordered(top);
            pairs.n_right[run.pair] = n - found;
        }
    }
}

// Writes the first place at which a large pair has its best score. One thread per run.
extern "C" __global__ void first_best(
    Level level, Part part, Pairs pairs, const unsigned long long *__restrict__ best, const size *__restrict__ place
) {
    const size i = thread_number();
    if (i >= part.n_runs * pairs.slots || place[i] == 0) return;
    const Run run = run_of(level, part, pairs.slots, i);
    if (best[i] == pairs.score[run.pair])
        atomicMax(&pairs.n_right[run.pair], (unsigned long long)(level.count[run.v] - place[i]));
}

// Writes the best split of the pairs whose nodes have at most `most` samples. This is the work of `thread`, whose pairs
// are n_threads apart.
__device__ static inline void scan_pairs(
    const Target &y, size criterion, const Limits &limits, const Level &level, const Part &part, const Pairs &pairs,
    size most, size thread, size n_threads
) {
    const size K = y.n_outputs, slots = pairs.slots;
    if (thread >= n_threads) return;
    double *sums = sums_of_thread(K, pairs.left + thread * K);
    for (size pair = thread; pair < part.n_nodes * slots; pair += n_threads) {
        const size a = pair / slots, v = part.node[a], first = level.first[v], n = level.count[v];
        if (n > most) continue;
        const size start = part.begin[a] * slots + pair % slots * n;
        const size *order = pairs.order + start;
        double left_weight = 0, best = 0, score;
        size found = 0;
        uint64_t next = pairs.key[order[0]];
        if (next == pairs.key[order[n - 1]]) continue;
        for (size k = 0; k < K; ++k) sums[k] = 0;
        for (size i = 0; i + 1 < n; ++i) {
            const size at = first + order[i] - start;
            const uint64_t key = next;
            add(y, level, v, at, sums);
            left_weight += level.sample_weight[at];
            next = pairs.key[order[i + 1]];
            if (key == next || !scored(y, criterion, limits, level, v, sums, left_weight, i + 1, &score)) continue;
            if (!found || hf_beats(score, best)) {
                best = score;
                found = i + 1;
            }
        }
        if (!found) continue;
        pairs.score[pair] = ordered(best);
        pairs.n_right[pair] = n - found;
    }
}

// Writes the best split of the pairs whose nodes have at most `most` samples. One thread per pair; each continues
// n_threads further on.
extern "C" __global__ void scan_small(
    Target y, size criterion, Limits limits, Level level, Part part, Pairs pairs, size most, size n_threads
) {
    scan_pairs(y, criterion, limits, level, part, pairs, most, thread_number(), n_threads);
}

// Replaces n numbers, `width` apart, by their running sums in index order, which start with `sum`; returns the last.
__device__ static inline double add_in_order(double *number, int n, int width, double sum) {
    constexpr int TOGETHER = 8; // loads that are in flight together
    int i = 0;
    for (; i + TOGETHER <= n; i += TOGETHER) {
        double some[TOGETHER];
        for (int j = 0; j < TOGETHER; ++j) some[j] = number[(i + j) * width];
        for (int j = 0; j < TOGETHER; ++j) some[j] = sum += some[j];
        for (int j = 0; j < TOGETHER; ++j) number[(i + j) * width] = some[j];
    }
    for (; i < n; ++i) number[i * width] = sum += number[i * width];
    return sum;
}

// Writes the terms of sample `at` of node v for (n_outputs + 1,) sums: those of `add`, and its weight.
__device__ static inline void write_terms(const Target &y, const Level &level, size v, size at, bool centred, double *out) {
    const size s = level.sample[at], K = y.n_outputs;
    const double w = level.sample_weight[at];
    for (size k = 0; k < K; ++k) {
        if (y.has_labels) out[k] = y.labels[s] == k ? w : 0.0;
        else out[k] = w * (centred ? y.targets[s * K + k] - level.mean[v * K + k] : y.targets[s * K + k]);
    }
    out[K] = w;
}

// Writes the best split of the large pairs. One block per pair: its first warps sum a tile, one thread per sum, while
// the others load the next tile; then all threads score the tile's thresholds.
extern "C" __global__ void scan_large(Target y, size criterion, Limits limits, Level level, Part part, Pairs pairs) {
    __shared__ double tile[2][TILE];
    __shared__ unsigned char differs[2][ROWS];
    __shared__ double best[BLOCK];
    __shared__ size place[BLOCK];
    const size slots = pairs.slots, K = y.n_outputs, a = part.large[blockIdx.x / slots], slot = blockIdx.x % slots;
    const size v = part.node[a], first = level.first[v], n = level.count[v], start = part.begin[a] * slots + slot * n;
    const size *order = pairs.order + start;
    const int width = (int)K + 1, t = (int)threadIdx.x, adders = (width + 31) / 32 * 32;
    const int rows = TILE / width < ROWS ? TILE / width : ROWS;
    if (pairs.key[order[0]] == pairs.key[order[n - 1]]) return;
    double sum = 0, top = 0, score;
    size found = 0;
    int here = 0;
    const auto load = [&](size from, int into, int thread, int n_threads) {
        for (size i = thread; i < rows && from + i < n; i += n_threads) {
            const size e = order[from + i];
            write_terms(y, level, v, first + e - start, true, tile[into] + i * width);
            differs[into][i] = from + i + 1 < n && pairs.key[e] != pairs.key[order[from + i + 1]];
        }
    };
    load(0, 0, t, BLOCK);
    __syncthreads();
    for (size from = 0; from < n; from += rows, here ^= 1) {
        const int count = from + rows < n ? rows : (int)(n - from);
        if (t < width) sum = add_in_order(tile[here] + t, count, width, sum);
        else if (t >= adders) load(from + rows, here ^ 1, t - adders, BLOCK - adders);
        __syncthreads();
        for (int i = t; i < count; i += BLOCK) {
            const double *sums = tile[here] + i * width;
            if (!differs[here][i]) continue;
            if (!scored(y, criterion, limits, level, v, sums, sums[K], from + i + 1, &score)) continue;
            if (!found || hf_beats(score, top)) {
                top = score;
                found = from + i + 1;
            }
        }
        __syncthreads();
    }
    best[t] = top;
    place[t] = found;
    __syncthreads();
    if (t > 0) return;
    for (int i = 1; i < BLOCK; ++i) {
        if (!place[i] || (found && !hf_beats_in_any_order(best[i], top, place[i] < found))) continue;
        top = best[i];
        found = place[i];
    }
    if (!found) return;
    const size pair = a * slots + slot;
    pairs.score[pair] = ordered(top);
    pairs.n_right[pair] = n - found;
}
