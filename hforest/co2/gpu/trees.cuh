// Trees whose splits and leaves are fitted together (Norouzi, Collins, Johnson, Fleet and Kohli 2015):
//
//     tree_bounds   terms of all samples, summed by chunks   one block per tree and chunk, one thread per sample
//     tree_rounds   the steps of a round                     one block per tree: one thread per sample for the terms,
//                                                            per column for sums over a batch, per split for its step
//
// Results are bit-identical to those of the reference: the samples of a batch are added in their order.

// Products of a path that are kept for a second walk.
constexpr int STORED = 32;

// Numbers of a tree that rounds hand on.
enum { LEAST = 0, ETA = 1, VALUE = 2, WAITING = 3, LOWERED = 4, ENDED = 5, N_STATES = 6 };

// No sample of a batch.
constexpr int NO_SAMPLE = 0x7fffffff;

// Some trees: w, theta, value and the rows of child are those of whole_trees.Trees; the rest is workspace. Splits and
// leaves of all trees follow one another; `batch` is the number of samples of a step.
struct Trees {
    const size *first_split; // IN  (n_trees + 1,)
    const size *first_leaf;  // IN  (n_trees + 1,)
    const int *child;        // IN  (n_splits, 2): a split, or -1 - leaf, numbered within the tree
    real *w;                 // IN, OUT  (n_splits, width); zeros after the n_features + 1 numbers of a row
    double *theta;           // OUT (n_leaves, n_outputs)
    double *value;           // OUT (n_leaves, n_outputs)
    real *v;                 // (n_splits, width), 0 before: velocities of w
    real *best_w;            // (n_splits, width)
    real *slope;             // (n_splits, width), 0 before: sums over a batch
    double *speed;           // (n_leaves, n_outputs), 0 before: velocities of theta
    double *best_theta;      // (n_leaves, n_outputs)
    double *table;           // (n_leaves, n_outputs): log losses
    double *sums;            // (n_leaves + n_trees, n_outputs + 1): outputs and weights in leaves, then in whole trees
    double *low;             // (n_trees, n_outputs): bounds of theta of all leaves
    double *high;            // (n_trees, n_outputs): the same, or of log losses
    double *state;           // (n_trees, N_STATES), 0 before
    int *first_at_split;     // (n_splits,), NO_SAMPLE before: first sample of a batch with slopes there
    int *first_in_leaf;      // (n_leaves,), NO_SAMPLE before: the same of leaves
    int *order;              // (n_trees, n): the shuffled samples
    int *leaf;               // (n_trees, n): leaves of samples; in a step those of its samples' largest terms
    int *sample;             // (n_trees, batch): samples of a step
    int *split;              // (n_trees, batch): the split that is flipped, or -1
    int *moved;              // (n_trees, batch): the same for the first sample of each split, -1 for others
    int *changed;            // (n_trees, batch): the same of leaves
    real *factor;            // (n_trees, batch): factors of x in the slope
    size n_trees, n_splits, n_leaves, width, n, batch;
};

// Loss of a sample and the largest term of its bound: its leaf, the split that is flipped or -1, the sign of w.x there.
struct Largest {
    double loss, worst;
    size leaf, split, sign;
};

// Returns the arrays of a tree, as those of some trees of which it is the first.
__device__ static Trees tree_of(const Samples &s, const Trees &t, size tree) {
    Trees f = t;
    const size at = t.first_split[tree], leaf = t.first_leaf[tree], k = s.n_outputs;
    f.child += 2 * at, f.w += at * t.width, f.v += at * t.width, f.best_w += at * t.width, f.slope += at * t.width;
    f.theta += leaf * k, f.value += leaf * k, f.speed += leaf * k, f.best_theta += leaf * k, f.table += leaf * k;
    f.sums += leaf * (k + 1), f.low += tree * k, f.high += tree * k, f.state += tree * N_STATES;
    f.first_at_split += at, f.first_in_leaf += leaf, f.order += tree * t.n, f.leaf += tree * t.n;
    f.sample += tree * t.batch, f.split += tree * t.batch, f.moved += tree * t.batch, f.changed += tree * t.batch;
    f.factor += tree * t.batch;
    f.n_splits = t.first_split[tree + 1] - at, f.n_leaves = t.first_leaf[tree + 1] - leaf;
    return f;
}

// Returns the sum of the lanes (IN, OUT), by halves.
template <typename T> __device__ static T fold(T *lane) {
    for (int width = LANES / 2; width >= 1; width /= 2)
        for (int l = 0; l < width; ++l) lane[l] = lane[l] + lane[l + width];
    return lane[0];
}

// Returns w.x of sample i. w: (width,), IN.
__device__ static real product_of(const Samples &s, size i, const real *w, size width) {
    real lane[LANES] = {};
    for (size b = 0; b < width; b += LANES)
        for (int l = 0; l < LANES; ++l) lane[l] = lane[l] + number_of(s, i, b + l) * w[b + l];
    return fold(lane);
}

// Projects w (width,), IN and OUT, onto the ball |w|**2 <= nu.
__device__ static void project_row(real *w, size width, double nu) {
    double lane[LANES] = {};
    for (size b = 0; b < width; b += LANES)
        for (int l = 0; l < LANES; ++l) lane[l] += (double)w[b + l] * (double)w[b + l];
    const double square = fold(lane);
    if (!(square > nu)) return;
    const real factor = inside(square, nu);
    for (size j = 0; j < width; ++j) w[j] = w[j] * factor;
}

// Returns the leaf that sample i reaches from a split, or from -1 - leaf.
__device__ static size leaf_from(const Samples &s, const Trees &f, size i, size at) {
    while (at >= 0) at = f.child[2 * at + (product_of(s, i, f.w + at * f.width, f.width) >= 0)];
    return -1 - at;
}

// Returns the root of a tree.
__device__ static size root_of(const Trees &f) { return f.n_splits ? 0 : -1; }

// Returns a number that no loss of sample i in any leaf exceeds.
__device__ static double most_of(const Samples &s, const Trees &f, size i) {
    if (s.has_labels) return f.high[s.labels[i]];
    double sum = 0;
    for (size k = 0; k < s.n_outputs; ++k) {
        const double y = s.targets[i * s.n_outputs + k];
        const double low = (y - f.low[k]) * (y - f.low[k]), high = (y - f.high[k]) * (y - f.high[k]);
        sum += low > high ? low : high;
    }
    return sum;
}

// Returns the largest term of sample i. Of equal ones it is the first: that of its path, then those of flips from the
// root down. A term is a loss less 2 |w.x|; a walk to its leaf is left out where no loss is large enough.
__device__ static Largest largest_of(const Samples &s, const Trees &f, size i) {
    real product[STORED] = {};
    const size root = root_of(f);
    size at = root;
    for (int depth = 0; at >= 0; ++depth) {
        const real p = product_of(s, i, f.w + at * f.width, f.width);
        if (depth < STORED) product[depth] = p;
        at = f.child[2 * at + (p >= 0)];
    }
    const double most = most_of(s, f, i), loss = loss_of(s, f.theta, f.table, (int)(-1 - at), i);
    Largest found = {.loss = loss, .worst = loss, .leaf = -1 - at, .split = -1, .sign = 0};
    at = root;
    for (int depth = 0; at >= 0; ++depth) {
        const double p = depth < STORED ? product[depth] : product_of(s, i, f.w + at * f.width, f.width);
        const int right = p >= 0;
        if (most - 2 * fabs(p) > found.worst) {
            const size leaf = leaf_from(s, f, i, f.child[2 * at + !right]);
            const double term = loss_of(s, f.theta, f.table, (int)leaf, i) - 2 * fabs(p);
            if (term > found.worst)
                found = {.loss = loss, .worst = term, .leaf = leaf, .split = at, .sign = right ? 1 : -1};
        }
        at = f.child[2 * at + right];
    }
    return found;
}

// Widens the bounds of output k so that they hold for a leaf.
__device__ static void include(const Samples &s, const Trees &f, size leaf, size k) {
    const double a = s.has_labels ? f.table[leaf * s.n_outputs + k] : f.theta[leaf * s.n_outputs + k];
    f.high[k] = a > f.high[k] ? a : f.high[k];
    f.low[k] = a < f.low[k] ? a : f.low[k];
}

// Writes the bounds of output k.
__device__ static void include_all(const Samples &s, const Trees &f, size k) {
    f.low[k] = 1e308, f.high[k] = -1e308;
    for (size leaf = 0; leaf < f.n_leaves; ++leaf) include(s, f, leaf, k);
}

// Projects w of all splits. One thread per split.
extern "C" __global__ void start_splits(Trees t, double nu) {
    const size at = thread_number();
    if (at < t.n_splits) project_row(t.w + at * t.width, t.width, nu);
}

// Writes t.order. keys (n_trees,), IN; t.leaf and room (n_trees, n) are workspace. One block per tree.
extern "C" __global__ void shuffle_samples(Trees t, const unsigned long long *__restrict__ keys, int *room) {
    const size at = blockIdx.x * t.n;
    shuffle_together(keys[blockIdx.x], t.order + at, t.leaf + at, room + at, t.n);
}

// Writes t.leaf: the leaf that each sample reaches. One thread per tree and sample.
extern "C" __global__ void find_leaves(Samples s, Trees t) {
    const size a = thread_number();
    if (a >= t.n_trees * t.n) return;
    const Trees f = tree_of(s, t, a / t.n);
    t.leaf[a] = (int)leaf_from(s, f, a % t.n, root_of(f));
}

// Writes t.sums, over the samples in their order. One thread per number of it.
extern "C" __global__ void sum_leaves(Samples s, Trees t) {
    const size a = thread_number(), row = a / (s.n_outputs + 1), k = a % (s.n_outputs + 1);
    if (row >= t.n_leaves + t.n_trees) return;
    const bool whole = row >= t.n_leaves;
    const size tree = whole ? row - t.n_leaves : part_with(t.first_leaf, t.n_trees, row);
    const int *leaf = t.leaf + tree * t.n;
    const size own = row - t.first_leaf[tree];
    t.sums[a] = sum_ahead((size)0, t.n, [&](size i) {
        const double term = k < s.n_outputs ? s.weight[i] * output_of(s, i, k) : s.weight[i];
        return whole || leaf[i] == own ? term : 0.0;
    });
}

// Writes theta of the leaves from t.sums: logarithms of smoothed shares, or means; and the table. One thread per leaf.
extern "C" __global__ void start_leaves(Samples s, Trees t, double smooth) {
    const size leaf = thread_number(), n = s.n_outputs;
    if (leaf >= t.n_leaves) return;
    const double *sums = t.sums + leaf * (n + 1);
    const double *of_all = t.sums + (t.n_leaves + part_with(t.first_leaf, t.n_trees, leaf)) * (n + 1);
    double added = 0;
    for (size k = 0; k < n; ++k) added += smooth * (of_all[k] > 0 ? 1.0 : HF_ABSENT);
    for (size k = 0; k < n; ++k) {
        const double share = smooth * (of_all[k] > 0 ? 1.0 : HF_ABSENT);
        double &theta = t.theta[leaf * n + k];
        if (s.has_labels) theta = hf_log((sums[k] + share) / (sums[n] + added));
        else theta = sums[n] > 0 ? sums[k] / sums[n] : of_all[k] / of_all[n];
    }
    fill_table(s, t.theta + leaf * n, t.table + leaf * n, 0);
}

// Writes the bounds of all trees. One thread per tree and output.
extern "C" __global__ void start_bounds(Samples s, Trees t) {
    const size a = thread_number();
    if (a < t.n_trees * s.n_outputs) include_all(s, tree_of(s, t, a / s.n_outputs), a % s.n_outputs);
}

// part (n_trees, n_chunks), OUT: sums over chunks of samples of the largest terms, or if of_losses of the losses; of trees
// that have not ended. One block per tree and chunk.
extern "C" __global__ void tree_bounds(Samples s, Trees t, size of_losses, size n_chunks, double *__restrict__ part) {
    __shared__ double tile[HF_CHUNK];
    const Trees f = tree_of(s, t, blockIdx.x / n_chunks);
    if (f.state[ENDED] != 0) return;
    const size first = blockIdx.x % n_chunks * HF_CHUNK, last = first + HF_CHUNK < s.n ? first + HF_CHUNK : s.n;
    for (size at = first + threadIdx.x; at < last; at += blockDim.x) {
        const double term = of_losses ? loss_of(s, f.theta, f.table, (int)leaf_from(s, f, at, root_of(f)), at)
                                      : largest_of(s, f, at).worst;
        tile[at - first] = s.weight[at] * term;
    }
    __syncthreads();
    if (threadIdx.x == 0) part[blockIdx.x] = sum_chunks(first, last, [&](size at) { return tile[at - first]; });
}

// Writes column c of the sums over a batch of `count` samples, in their order: those of w of splits, then outputs and
// weights of leaves, then to `weight` that of all samples.
__device__ static void sum_batch(const Samples &s, const Trees &f, size count, size c, double *weight) {
    const size k = c - (s.n_features + 1), n = s.n_outputs;
    if (k < 0) {
        for (size r = 0; r < count; ++r) {
            if (f.split[r] < 0) continue;
            real &slope = f.slope[f.split[r] * f.width + c];
            slope = (f.first_at_split[f.split[r]] == r ? (real)0 : slope) + number_of(s, f.sample[r], c) * f.factor[r];
        }
    } else if (k <= n) {
        for (size r = 0; r < count; ++r) {
            const size i = f.sample[r], leaf = f.leaf[r];
            double &sum = f.sums[leaf * (n + 1) + k];
            sum = (f.first_in_leaf[leaf] == r ? 0.0 : sum) + (k < n ? s.weight[i] * output_of(s, i, k) : s.weight[i]);
        }
    } else {
        double sum = 0;
        for (size r = 0; r < count; ++r) sum += s.weight[f.sample[r]];
        *weight = sum;
    }
}

// Takes a step on the samples at places first to last - 1 of an epoch. walk: start and stride of the epoch.
__device__ static void tree_step(
    const Samples &s, const Trees &f, const Schedule &a, size first, size last, const size *walk, double eta,
    double *weight
) {
    const size count = last - first, n = s.n_outputs;
    for (size r = threadIdx.x; r < count; r += BLOCK) {
        const size i = f.order[(walk[0] + walk[1] * (first + r)) % s.n];
        const Largest found = largest_of(s, f, i);
        f.sample[r] = (int)i, f.leaf[r] = (int)found.leaf, f.split[r] = (int)found.split;
        f.factor[r] = (real)((double)(-2 * found.sign) * s.weight[i]);
        atomicMin(f.first_in_leaf + found.leaf, (int)r);
        if (found.split >= 0) atomicMin(f.first_at_split + found.split, (int)r);
    }
    __syncthreads();
    for (size c = threadIdx.x; c < s.n_features + n + 3; c += BLOCK) sum_batch(s, f, count, c, weight);
    for (size r = threadIdx.x; r < count; r += BLOCK) {
        f.moved[r] = f.split[r] >= 0 && f.first_at_split[f.split[r]] == r ? f.split[r] : -1;
        f.changed[r] = f.first_in_leaf[f.leaf[r]] == r ? f.leaf[r] : -1;
    }
    __syncthreads();
    const double rate = eta / *weight;
    for (size r = threadIdx.x; r < count; r += BLOCK) {
        const size at = f.moved[r], leaf = f.changed[r];
        if (at >= 0) {
            real *w = f.w + at * f.width, *v = f.v + at * f.width;
            for (size j = 0; j < f.width; ++j) {
                v[j] = (real)a.momentum * v[j] + (real)-rate * f.slope[at * f.width + j];
                w[j] = w[j] + v[j];
            }
            project_row(w, f.width, a.nu);
            f.first_at_split[at] = NO_SAMPLE;
        }
        if (leaf < 0) continue;
        const double *sums = f.sums + leaf * (n + 1);
        for (size k = leaf * n; k < (leaf + 1) * n; ++k) {
            const double slope = slope_of_theta(s, f.theta, f.table, k, sums[k - leaf * n], sums[n]);
            f.speed[k] = a.momentum * f.speed[k] - rate * slope;
            f.theta[k] = f.theta[k] + f.speed[k];
        }
        fill_table(s, f.theta, f.table, (int)leaf);
        f.first_in_leaf[leaf] = NO_SAMPLE;
    }
    __syncthreads();
    for (size k = threadIdx.x; k < n; k += BLOCK)
        for (size r = 0; r < count; ++r)
            if (f.changed[r] >= 0) include(s, f, f.changed[r], k);
    __syncthreads();
}

// Writes the bound of a round to the state of a tree, and whether the tree has ended; returns whether the round is the
// best. A single thread of a block calls it. score: the bound, or the loss of validation samples.
__device__ static bool judge(const Schedule &a, size round, double value, double score, double *state) {
    const bool best = round == 0 || hf_beats(-score, -state[LEAST]);
    if (best) state[LEAST] = score;
    if (round == 0) state[ETA] = a.eta;
    else state[WAITING] += !(value < state[VALUE] - a.tolerance * state[VALUE]);
    if (state[WAITING] > (double)a.patience) {
        state[WAITING] = 0;
        state[LOWERED] += 1;
        state[ETA] = state[ETA] * a.decay;
    }
    state[VALUE] = value;
    state[ENDED] = round == a.max_rounds || (int)state[LOWERED] == HF_HALVINGS || !(value > 0);
    return best;
}

// Copies w and theta of a tree to those of the best round, or back.
__device__ static void keep_tree(const Samples &s, const Trees &f, bool back) {
    for (size j = threadIdx.x; j < f.n_splits * f.width; j += BLOCK)
        (back ? f.w : f.best_w)[j] = (back ? f.best_w : f.w)[j];
    for (size k = threadIdx.x; k < f.n_leaves * s.n_outputs; k += BLOCK)
        (back ? f.theta : f.best_theta)[k] = (back ? f.best_theta : f.theta)[k];
}

// Ends a round (0: the start) of the trees that have not ended, and takes the steps of the next one. part (n_trees,
// n_chunks) of tree_bounds, and judged (n_trees, n_judged) of validation samples, if any, IN. history (n_trees,
// max_rounds + 1), OUT: the bounds. keys (n_trees,), IN. One block per tree.
extern "C" __global__ void tree_rounds(
    Samples s, Trees t, Schedule a, size round, const unsigned long long *__restrict__ keys,
    const double *__restrict__ part, size n_chunks, const double *__restrict__ judged, size n_judged,
    double *__restrict__ history
) {
    __shared__ size walk[2];
    __shared__ double weight;
    __shared__ bool best;
    const size tree = blockIdx.x;
    const Trees f = tree_of(s, t, tree);
    const bool ended = f.state[ENDED] != 0;
    __syncthreads();
    if (ended) return;
    if (threadIdx.x == 0) {
        double value = 0, score = 0;
        for (size c = 0; c < n_chunks; ++c) value += part[tree * n_chunks + c];
        for (size c = 0; c < n_judged; ++c) score += judged[tree * n_judged + c];
        history[tree * (a.max_rounds + 1) + round] = value;
        best = judge(a, round, value, n_judged ? score : value, f.state);
    }
    __syncthreads();
    if (best) keep_tree(s, f, false);
    if (f.state[ENDED] != 0) {
        keep_tree(s, f, true);
        return;
    }
    const size batch = f.batch, n_steps = (s.n + batch - 1) / batch;
    const size n_epochs = a.tau * n_steps < a.min_steps ? (a.min_steps + n_steps - 1) / n_steps : a.tau;
    for (size e = round * n_epochs; e < (round + 1) * n_epochs; ++e) {
        if (threadIdx.x == 0) {
            const hf_visits visits = hf_draw_visits(keys[tree], (unsigned long long)e, s.n);
            walk[0] = visits.start;
            walk[1] = visits.stride;
        }
        __syncthreads();
        for (size first = 0; first < s.n; first += batch)
            tree_step(s, f, a, first, first + batch < s.n ? first + batch : s.n, walk, f.state[ETA], &weight);
    }
    for (size k = threadIdx.x; k < s.n_outputs; k += BLOCK) include_all(s, f, k);
}

// Writes the values of leaves from t.sums: shares of the classes of the samples there, or means; in a leaf without
// samples those of theta. One thread per leaf.
extern "C" __global__ void values_of_leaves(Samples s, Trees t) {
    const size leaf = thread_number(), n = s.n_outputs;
    if (leaf >= t.n_leaves) return;
    const double weight = t.sums[leaf * (n + 1) + n];
    fill_table(s, t.theta + leaf * n, t.table + leaf * n, 0);
    for (size k = 0; k < n; ++k) {
        const size at = leaf * n + k;
        if (weight > 0) t.value[at] = t.sums[leaf * (n + 1) + k] / weight;
        else t.value[at] = s.has_labels ? hf_exp(-t.table[at]) : t.theta[at];
    }
}
