// The scorer of sorted keys: the best threshold of a candidate is between adjacent, different keys; of equal scores it
// is the first. Threads scan runs of a large candidate at once, from the sums of the runs before; as sums are integers,
// runs give the bits of one scan.
//
//     large candidates   runs of RUN keys     count_runs: sums of a run; start_runs: sums before a run;
//                                        score_runs: thresholds of a run; first_best: the first of the best
//     small candidates   one thread           score_runs
//
// Keys of labels with whole weights are sorted and hold both, so that the scan reads no sample; others have an order.
//
// Versions, by steps of a root of 50,000 samples and 28 candidates, counted by bench/gpu_counts.py; not timed on a GPU:
//
//                              one thread per large node, in float64     runs of integers
//     targets                  260,694                                   4650
//     real weights             164,550                                   3652
//
// Runs read more: exact values take 96 and now 245 MB of sectors, of which a block requests the samples of 4096 keys
// one by one; they fit into the L2 cache. A whole tree on 5000 rows: steps 210,008 and 189,527, real weights 214,704
// and 187,932; sectors 34 and 39 MB, real weights 30 and 33 MB.

constexpr size RUN = 32; // samples of a large candidate that one thread scans
constexpr int NEAR = 17; // sums per thread in shared memory; odd, to use different banks

// A run of a large candidate.
struct Run {
    size candidate, v, from, to, start; // its places in the candidate, whose keys begin at start
};

// Returns run i of the runs of all large candidates; pending.run counts the runs of one slot.
__device__ static inline Run run_of(const Level &level, const Pending &pending, size slots, size i) {
    const size l = segment(pending.run, pending.n_large, i / slots), in_node = i - pending.run[l] * slots;
    const size n_runs = pending.run[l + 1] - pending.run[l], a = pending.large[l], v = pending.node[a],
        n = level.count[v];
    const size from = in_node % n_runs * RUN, slot = in_node / n_runs;
    return {
        .candidate = a * slots + slot, .v = v, .from = from, .to = from + RUN < n ? from + RUN : n,
        .start = pending.begin[a] * slots + slot * n
    };
}

// Adds the sample at place j of a candidate to sums (n_outputs,), and returns its u.
__device__ static inline size
add_place(const Target &y, const Level &level, const Candidates &candidates, const Run &run, size j, size *sums) {
    if (!candidates.sorted) {
        const size at = candidates.near ? candidates.near[run.start + j] : candidates.order[run.start + j] - run.start;
        return add(y, level, run.v, level.first[run.v] + at, sums);
    }
    const uint64_t key = candidates.sorted[run.start + j];
    const size u = (size)(key & (((uint64_t)1 << candidates.weight_bits) - 1));
    sums[key >> candidates.weight_bits & (((uint64_t)1 << candidates.label_bits) - 1)] += u;
    return u;
}

// Returns the address of the thread's n_outputs sums: in shared memory, or `far` if they do not fit.
__device__ static inline size *sums_of_thread(const Target &y, size *far) {
    __shared__ size near[BLOCK * NEAR];
    return y.n_outputs <= NEAR ? near + threadIdx.x * NEAR : far;
}

// start (n_runs * slots, n_outputs + 1), OUT: sums of the runs of large candidates. One thread per run.
extern "C" __global__ void count_runs(
    Target y, Level level, Pending pending, Candidates candidates, size *__restrict__ start
) {
    const size i = thread_number(), K = y.n_outputs;
    if (i >= pending.n_runs * candidates.slots) return;
    const Run run = run_of(level, pending, candidates.slots, i);
    size *mine = start + i * (K + 1), *sums = sums_of_thread(y, mine), u = 0;
    for (size k = 0; k < K; ++k) sums[k] = 0;
    for (size j = run.from; j < run.to; ++j) u += add_place(y, level, candidates, run, j, sums);
    for (size k = 0; k < K; ++k) mine[k] = sums[k];
    mine[K] = u;
}

// start (n_runs * slots, n_outputs + 1), IN and OUT: the sums of a run are replaced by the sums of all runs before it.
// One block per large candidate.
extern "C" __global__ void start_runs(Target y, Pending pending, Candidates candidates, size *__restrict__ start) {
    __shared__ size shared[BLOCK];
    const size l = blockIdx.x / candidates.slots, n = pending.run[l + 1] - pending.run[l], width = y.n_outputs + 1;
    size *__restrict__ mine = start + (pending.run[l] * candidates.slots + blockIdx.x % candidates.slots * n) * width;
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
    const Target &y, size criterion, const Limits &limits, const Level &level, const Candidates &candidates,
    const Run &run, size *sums, size u, double *best
) {
    const size n = level.count[run.v], low_bits = candidates.weight_bits + candidates.label_bits;
    const int sign = sign_of(y, candidates, run.candidate);
    const bool has_missing_first = sign && run.candidate % candidates.slots % candidates.n_orders > 0;
    uint64_t next = key_at(candidates, run.start, run.from) >> low_bits;
    size found = 0;
    *best = 0;
    for (size j = run.from; j < run.to && j + 1 < n; ++j) {
        const uint64_t key = next;
        double score;
        next = key_at(candidates, run.start, j + 1) >> low_bits;
        u += add_place(y, level, candidates, run, j, sums);
        if (key == next || (has_missing_first && (unsigned)key == 0)) continue; // missing values alone go right
        if (!scored(y, criterion, limits, level, run.v, sums, u, j + 1, sign, &score)) continue;
        if (found && !hf_beats(score, *best)) continue;
        *best = score;
        found = j + 1;
    }
    return found;
}

// Writes the best split of a candidate, unless its node is large. sums (n_outputs,), workspace.
__device__ static inline void scan_candidate(
    const Target &y, size criterion, const Limits &limits, const Level &level, const Pending &pending,
    const Candidates &candidates, size candidate, size *sums
) {
    const size a = candidate / candidates.slots, v = pending.node[a], n = level.count[v];
    const size start = first_key(candidates, candidate, pending.begin[a], n);
    const Run run = {.candidate = candidate, .v = v, .from = 0, .to = n, .start = start};
    if (n > LARGE) return;
    for (size k = 0; k < y.n_outputs; ++k) sums[k] = 0;
    double best;
    const size found = scan_run(y, criterion, limits, level, candidates, run, sums, 0, &best);
    if (!found) return;
    candidates.score[candidate] = ordered(best);
    candidates.n_right[candidate] = n - found;
}

// Writes the best score of each candidate and, for small candidates, its place. start (n_runs * slots, n_outputs + 1),
// IN, workspace afterwards. best (n_runs * slots,), OUT: the score of a run, as `ordered`; place, OUT: number of
// samples that go left, 0: no split. One thread per run of a large candidate or per small candidate; each continues
// n_threads further on.
extern "C" __global__ void score_runs(
    Target y, size criterion, Limits limits, Level level, Pending pending, Candidates candidates, size n_threads,
    size *__restrict__ start, unsigned long long *__restrict__ best, size *__restrict__ place
) {
    const size K = y.n_outputs, slots = candidates.slots, n_runs = pending.n_runs * slots, thread = thread_number();
    if (thread >= n_threads) return;
    for (size i = thread; i < n_runs + pending.n_nodes * slots; i += n_threads) {
        size *mine = start + i * (K + 1), *sums = sums_of_thread(y, i < n_runs ? mine : candidates.left + thread * K);
        if (i >= n_runs) {
            scan_candidate(y, criterion, limits, level, pending, candidates, i - n_runs, sums);
            continue;
        }
        const Run run = run_of(level, pending, slots, i);
        for (size k = 0; k < K; ++k) sums[k] = mine[k];
        double score;
        place[i] = scan_run(y, criterion, limits, level, candidates, run, sums, mine[K], &score);
        best[i] = ordered(score);
        if (place[i]) atomicMax(&candidates.score[run.candidate], (unsigned long long)best[i]);
    }
}

// Writes the first place at which a large candidate has its best score. One thread per run.
extern "C" __global__ void first_best(
    Level level, Pending pending, Candidates candidates, const unsigned long long *__restrict__ best,
    const size *__restrict__ place
) {
    const size i = thread_number();
    if (i >= pending.n_runs * candidates.slots || place[i] == 0) return;
    const Run run = run_of(level, pending, candidates.slots, i);
    if (best[i] == candidates.score[run.candidate])
        atomicMax(&candidates.n_right[run.candidate], (unsigned long long)(level.count[run.v] - place[i]));
}
