// Thresholds of pairs. The best threshold of a pair is between adjacent, different keys; of equal scores it is the
// first.
//
//     large pairs   runs of RUN keys     count_runs: sums of a run; start_runs: sums before a run;
//                                        score_runs: thresholds of a run; first_best: the first of the best
//     small pairs   one thread           score_runs
//
// Keys of labels and whole weights are sorted and hold both; others have an order.

constexpr size RUN = 32; // samples of a large pair that one thread scans
constexpr int NEAR = 17; // sums per thread in shared memory; odd, to use different banks

// A run of a large pair.
struct Run {
    size pair, v, from, to, start; // its places in the pair, whose keys begin at start
};

// Returns run i of the runs of all large pairs; part.run counts the runs of one slot.
__device__ static inline Run run_of(const Level &level, const Part &part, size slots, size i) {
    const size l = segment(part.run, part.n_large, i / slots), in_node = i - part.run[l] * slots;
    const size n_runs = part.run[l + 1] - part.run[l], a = part.large[l], v = part.node[a], n = level.count[v];
    const size from = in_node % n_runs * RUN, slot = in_node / n_runs;
    return {
        .pair = a * slots + slot, .v = v, .from = from, .to = from + RUN < n ? from + RUN : n,
        .start = part.begin[a] * slots + slot * n
    };
}

// Returns the key at place j of a pair in ascending order.
__device__ static inline uint64_t key_at(const Pairs &pairs, const Run &run, size j) {
    return pairs.sorted ? pairs.sorted[run.start + j] : pairs.key[pairs.order[run.start + j]];
}

// Adds the sample at place j of a pair to sums (n_outputs,), and returns its u.
__device__ static inline size
add_place(const Target &y, const Level &level, const Pairs &pairs, const Run &run, size j, size *sums) {
    if (!pairs.sorted) return add(y, level, run.v, level.first[run.v] + pairs.order[run.start + j] - run.start, sums);
    const uint64_t key = pairs.sorted[run.start + j];
    const size u = (size)(key & (((uint64_t)1 << pairs.weight_bits) - 1));
    sums[key >> pairs.weight_bits & (((uint64_t)1 << pairs.label_bits) - 1)] += u;
    return u;
}

// Returns the address of the thread's n_outputs sums: in shared memory, or `far` if they do not fit.
__device__ static inline size *sums_of_thread(const Target &y, size *far) {
    __shared__ size near[BLOCK * NEAR];
    return y.n_outputs <= NEAR ? near + threadIdx.x * NEAR : far;
}

// start (n_runs * slots, n_outputs + 1), OUT: sums of the runs of large pairs. One thread per run.
extern "C" __global__ void count_runs(Target y, Level level, Part part, Pairs pairs, size *__restrict__ start) {
    const size i = thread_number(), K = y.n_outputs;
    if (i >= part.n_runs * pairs.slots) return;
    const Run run = run_of(level, part, pairs.slots, i);
    size *mine = start + i * (K + 1), *sums = sums_of_thread(y, mine), u = 0;
    for (size k = 0; k < K; ++k) sums[k] = 0;
    for (size j = run.from; j < run.to; ++j) u += add_place(y, level, pairs, run, j, sums);
    for (size k = 0; k < K; ++k) mine[k] = sums[k];
    mine[K] = u;
}

// start (n_runs * slots, n_outputs + 1), IN and OUT: the sums of a run are replaced by the sums of all runs before it.
// One block per large pair.
extern "C" __global__ void start_runs(Target y, Part part, Pairs pairs, size *__restrict__ start) {
    __shared__ size shared[BLOCK];
    const size l = blockIdx.x / pairs.slots, n = part.run[l + 1] - part.run[l], width = y.n_outputs + 1;
    size *__restrict__ mine = start + (part.run[l] * pairs.slots + blockIdx.x % pairs.slots * n) * width;
    const size each = (n + BLOCK - 1) / BLOCK, from = threadIdx.x * each, to = from + each < n ? from + each : n;
    for (size k = 0; k < width; ++k) {
        size sum = 0;
        for (size j = from; j < to; ++j) sum += mine[j * width + k];
        sum = sum_before(sum, shared);
        for (size j = from; j < to; ++j) {
            const size own = mine[j * width + k];
            mine[j * width + k] = sum;
            sum += own;
        }
    }
}

// Returns the number of samples on the left of the best threshold of a run, or 0, and writes its score to best. sums
// (n_outputs,) and u, IN: before the run; workspace afterwards.
__device__ static inline size scan_run(
    const Target &y, size criterion, const Limits &limits, const Level &level, const Pairs &pairs, const Run &run,
    size *sums, size u, double *best
) {
    const size n = level.count[run.v], low_bits = pairs.weight_bits + pairs.label_bits;
    uint64_t next = key_at(pairs, run, run.from) >> low_bits;
    size found = 0;
    *best = 0;
    for (size j = run.from; j < run.to && j + 1 < n; ++j) {
        const uint64_t key = next;
        double score;
        next = key_at(pairs, run, j + 1) >> low_bits;
        u += add_place(y, level, pairs, run, j, sums);
        if (key == next || !scored(y, criterion, limits, level, run.v, sums, u, j + 1, &score)) continue;
        if (found && !hf_beats(score, *best)) continue;
        *best = score;
        found = j + 1;
    }
    return found;
}

// Writes the best split of a pair if its node has at most `most` samples. sums (n_outputs,), workspace.
__device__ static inline void scan_pair(
    const Target &y, size criterion, const Limits &limits, const Level &level, const Part &part, const Pairs &pairs,
    size most, size pair, size *sums
) {
    const size slots = pairs.slots, a = pair / slots, v = part.node[a], n = level.count[v];
    const Run run = {.pair = pair, .v = v, .from = 0, .to = n, .start = part.begin[a] * slots + pair % slots * n};
    if (n > most) return;
    for (size k = 0; k < y.n_outputs; ++k) sums[k] = 0;
    double best;
    const size found = scan_run(y, criterion, limits, level, pairs, run, sums, 0, &best);
    if (!found) return;
    pairs.score[pair] = ordered(best);
    pairs.n_right[pair] = n - found;
}

// Writes the best score of each pair and, for small pairs, its place. start (n_runs * slots, n_outputs + 1), IN,
// workspace afterwards. best (n_runs * slots,), OUT: the score of a run, as `ordered`; place, OUT: number of samples that go
// left, 0: no split. One thread per run of a large pair or per small pair; each continues n_threads further on.
extern "C" __global__ void score_runs(
    Target y, size criterion, Limits limits, Level level, Part part, Pairs pairs, size n_threads,
    size *__restrict__ start, unsigned long long *__restrict__ best, size *__restrict__ place
) {
    const size K = y.n_outputs, slots = pairs.slots, n_runs = part.n_runs * slots, thread = thread_number();
    if (thread >= n_threads) return;
    for (size i = thread; i < n_runs + part.n_nodes * slots; i += n_threads) {
        size *mine = start + i * (K + 1), *sums = sums_of_thread(y, i < n_runs ? mine : pairs.left + thread * K);
        if (i >= n_runs) {
            scan_pair(y, criterion, limits, level, part, pairs, LARGE, i - n_runs, sums);
            continue;
        }
        const Run run = run_of(level, part, slots, i);
        for (size k = 0; k < K; ++k) sums[k] = mine[k];
        double score;
        place[i] = scan_run(y, criterion, limits, level, pairs, run, sums, mine[K], &score);
        best[i] = ordered(score);
        if (place[i]) atomicMax(&pairs.score[run.pair], (unsigned long long)best[i]);
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
