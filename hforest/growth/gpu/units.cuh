// Sums of nodes, and their units (units.h): weights and targets of a node become integers, so that threads and blocks
// add them in any order and no launch waits for another's sum. A unit is made in stages, each of which needs the sums
// and extremes of those before:
//
//     EXTREMES     extremes of the targets; the greatest weight
//     PRODUCTS     greatest |w (t - c)| about the middle c; sum of u in a first unit
//     MEANS        u, its sum and maximum; sums of q in a first unit, which give c
//     CENTRED      greatest |w (t - c)|
//     SIZES        sums of |q|
//     SUMS         q, its sums and extremes
//     SPREAD       greatest |q - mean u|, where weights are not whole
//     INHERITED    in the unit of the parent: sums and extremes of q and u, and extremes of the targets
//
// Labels have only the stages of weights, up to MEANS. Labels with whole weights have no units: u is the weight. The
// units of a level, like those of roots and of leaves, take seven or eight launches.

enum { EXTREMES = 0, PRODUCTS = 1, MEANS = 2, CENTRED = 3, SIZES = 4, SUMS = 5, SPREAD = 6, INHERITED = 7 };

// The places of the numbers that a stage measures, MEASURES in a row. A node has a row of its weights, then one of each
// output. The row of weights uses T_MOST, FIRST and Q_MOST; its other places have maxima over the outputs, which the
// second enum names. Maxima are of keys, those of _LEAST of ~key.
enum { T_MOST = 0, T_LEAST = 1, FIRST = 2, SIZE_OF_Q = 3, Q_MOST = 4, Q_LEAST = 5 };
enum { PRODUCT = 1, CENTRED_PRODUCT = 3, DISTANCE = 5 };
constexpr size MEASURES = 6;

enum { IS_PENDING = 1, WANTS_UNIT = 2 }; // bits of a node's mark: OUT of settle

constexpr size TILE = 2048; // samples of a block of measure
constexpr size LEAF_SAMPLES = 16; // samples of a thread of sum_leaves

__device__ static inline bool has_units(const Target &y) { return MONOTONIC || !(y.has_labels && y.is_whole); }

__device__ static inline size n_measures(const Target &y) {
    return has_units(y) ? MEASURES * (y.has_labels ? 1 : 1 + y.n_outputs) : 0;
}

__device__ static inline word *measured_of(const Target &y, const Level &level, size v) {
    return level.measured + v * n_measures(y);
}

__device__ static inline size *total_of(const Target &y, const Level &level, size v) {
    return level.total + v * (y.n_outputs + 1);
}

// Returns the exponent of targets (0) or weights (1) of a node's unit.
__device__ static inline int exponent_of(const Target &y, const Level &level, size v, int which) {
    return has_units(y) ? (int)level.unit[v * UNIT + which] : 0;
}

// Returns the q of sample s of node v.
__device__ static inline size *q_of(const Target &y, const Level &level, size v, size s) {
    return y.q + (level.tree[v] * y.n + s) * y.n_outputs;
}

// Adds sample `at` of node v to sums (n_outputs,), and returns its u.
__device__ static inline size add(const Target &y, const Level &level, size v, size at, size *sums) {
    const size s = level.sample[at], u = level.u[at], K = y.n_outputs;
    if (y.has_labels) sums[y.labels[s]] += u;
    else
        for (size k = 0; k < K; ++k) sums[k] += q_of(y, level, v, s)[k];
    return u;
}

__device__ static inline void add_to(size *sum, size a) { atomicAdd((word *)sum, (word)a); }
__device__ static inline double number_of(word key) { return unordered(key, double()); }
__device__ static inline word key_of(size q) { return (word)q ^ 1ull << 63; } // its own inverse

// Writes the values of class or output k to the row of leaf v of value (n_leaves, HF_LEAF_VALUES * n_outputs).
__device__ static inline void
write_leaf(const Target &y, const size *totals, double c, int k_unit, int m, real *__restrict__ value, size v, size k) {
    double values[HF_LEAF_VALUES];
    hf_leaf_values(totals, c, k_unit, m, values);
    for (size i = 0; i < HF_LEAF_VALUES; ++i) value[(v * HF_LEAF_VALUES + i) * y.n_outputs + k] = (real)values[i];
}

// Writes what follows from the total and the unit of node v; of labels the row of the node as a leaf, too.
__device__ static inline void complete(const Target &y, const Level &level, size v) {
    const size *total = total_of(y, level, v), K = y.n_outputs;
    level.weight[v] = hf_weight_of(total[K], exponent_of(y, level, v, 1));
    for (size k = 0; k < K; ++k) {
        size totals[HF_LEAF_TOTALS];
        if (!y.has_labels) {
            level.mean[v * K + k] = (double)total[k] / (double)total[K];
            continue;
        }
        hf_class_totals(totals, total[k], total[K]);
        write_leaf(y, totals, 0, 0, 0, level.value, v, k);
    }
    if (MONOTONIC && y.has_labels) clip_leaf(y, level, v, value_of(y, NULL, total[1], total[2]));
}

// Returns the spread of node v in its unit.
__device__ static inline double spread_of(const Target &y, const Level &level, size v) {
    const word *here = measured_of(y, level, v);
    word most = 0;
    if (y.has_labels) return 0;
    if (!y.whole[level.tree[v]]) return number_of(here[DISTANCE]);
    for (size k = 0; k < y.n_outputs; ++k) {
        const word *own = here + MEASURES * (1 + k);
        most = max(most, own[Q_MOST] - ~own[Q_LEAST]);
    }
    return (double)most;
}

// Returns whether the samples of node v differ in label or target.
__device__ static inline bool is_mixed(const Target &y, const Level &level, size v) {
    const size *total = total_of(y, level, v), K = y.n_outputs;
    bool mixed = false;
    for (size k = 0; k < K; ++k) {
        if (y.has_labels) {
            mixed |= total[k] > 0 && total[k] < total[K];
        } else {
            const word *own = measured_of(y, level, v) + MEASURES * (1 + k);
            mixed |= own[T_MOST] != ~own[T_LEAST];
        }
    }
    return mixed;
}

// Returns whether node v gets a unit of its own.
__device__ static inline bool wants_unit(const Target &y, const Level &level, size v) {
    if (!has_units(y)) return false;
    const double *unit = level.unit + v * UNIT, heaviest = (double)(size)key_of((size)measured_of(y, level, v)[Q_MOST]);
    return hf_needs_unit(spread_of(y, level, v), unit[2], heaviest, unit[3]);
}

// Writes the unit of node v as number i of others.
__device__ static inline void
inherit_unit(const Target &y, const Level &level, size v, double *__restrict__ others, size i) {
    if (has_units(y))
        for (size j = 0; j < UNIT; ++j) others[i * UNIT + j] = level.unit[v * UNIT + j];
}

// Returns the last stage that makes a unit.
__device__ static inline int last_stage(const Target &y) { return y.has_labels ? MEANS : y.is_whole ? SUMS : SPREAD; }

// The exponents of targets (k) and of weights (m) by which a stage scales: powers of 2.
struct Exponents {
    size k, m;
};

__device__ static inline Exponents exponents_of(const Target &y, const Level &level, size v, int stage) {
    const word *here = measured_of(y, level, v);
    const double n = (double)level.count[v];
    Exponents e = {};
    if (!y.whole[level.tree[v]]) {
        e.m = hf_unit_exponent(n, number_of(here[T_MOST]));
        if (stage > PRODUCTS) e.m += hf_spare_bits((size)here[FIRST]);
    }
    if (y.has_labels || stage < MEANS) return e;
    e.k = hf_unit_exponent(n, number_of(here[stage > CENTRED ? CENTRED_PRODUCT : PRODUCT]));
    if (stage < SUMS) return e;
    size most = 0;
    for (size k = 0; k < y.n_outputs; ++k) most = max(most, (size)here[MEASURES * (1 + k) + SIZE_OF_Q]);
    if (most > 0) e.k += hf_spare_bits(most);
    return e;
}

// Returns the centre of output k that a stage uses.
__device__ static inline double centre_of(const Target &y, const Level &level, size v, int stage, size k) {
    const word *here = measured_of(y, level, v), *own = here + MEASURES * (1 + k);
    if (y.from_0) return 0;
    const double middle = hf_middle(number_of(~own[T_LEAST]), number_of(own[T_MOST]));
    if (stage < CENTRED) return middle;
    const Exponents first = exponents_of(y, level, v, MEANS);
    return hf_mean(middle, (int)first.k, (int)first.m, (size)own[FIRST], total_of(y, level, v)[y.n_outputs]);
}

// Returns the in-bag weight of sample s, which is at a place of node v.
__device__ static inline double weight_of(const Target &y, const Level &level, size v, size s, size at) {
    return y.is_whole ? (double)level.u[at] : y.weight[level.tree[v] * y.stride + s];
}

// Measures weights (k = n_outputs) or output k in a stage: samples from, from + BLOCK, .. of node v.
__device__ static inline void
measure_row(const Target &y, const Level &level, int stage, size v, size k, size from, size to) {
    const bool is_weight = k == y.n_outputs, is_made = stage > EXTREMES && stage < SPREAD;
    const bool is_last = stage == (is_weight ? MEANS : SUMS) || stage == INHERITED;
    const bool is_distance = !is_weight && (stage == PRODUCTS || stage == CENTRED || stage == SPREAD);
    word *here = measured_of(y, level, v), *own = here + (is_weight ? 0 : MEASURES * (1 + k)), most = 0, least = 0;
    size *total = total_of(y, level, v), sum = 0;
    const Exponents e = is_made ? exponents_of(y, level, v, stage) : Exponents{};
    const hf_scaling by = hf_scaling_of((int)(is_weight ? e.m : e.k));
    double centre = 0;
    if (stage == SPREAD) centre = (double)total[k] / (double)total[y.n_outputs];
    else if (is_made && !is_weight) centre = centre_of(y, level, v, stage, k);
    for (size at = from; at < to; at += BLOCK) {
        const size s = level.sample[at];
        const double w = is_made || (is_weight && stage == EXTREMES) ? weight_of(y, level, v, s, at) : 0;
        const double t = is_weight ? 0 : stage < SPREAD ? y.targets[s * y.n_outputs + k] : 0;
        size *place = is_weight ? level.u + at : q_of(y, level, v, s) + k, q = 0;
        double number = is_weight ? w : t;
        if (is_distance) number = fabs(stage == SPREAD ? hf_distance(*place, level.u[at], centre) : w * (t - centre));
        else if (stage == INHERITED) q = *place;
        else if (stage > EXTREMES) q = is_weight ? hf_scaled_weight(w, by) : hf_scaled(w * (t - centre), by);
        if (is_last && stage != INHERITED) *place = q;
        if (is_last && is_weight && y.has_labels) add_to(total + y.labels[s], q);
        const word key = is_distance || stage == EXTREMES ? ordered(number) : key_of(q);
        most = max(most, key);
        least = max(least, ~key);
        sum += stage == SIZES && q < 0 ? -q : q;
    }
    if (is_last) add_to(total + k, sum);
    if (!has_units(y)) return;
    if (is_distance)
        atomicMax(here + (stage == SPREAD ? DISTANCE : stage == CENTRED ? CENTRED_PRODUCT : PRODUCT), most);
    else if (is_last || stage == EXTREMES) atomicMax(own + (is_last ? Q_MOST : T_MOST), most);
    else atomicAdd(own + (stage == SIZES ? SIZE_OF_Q : FIRST), (word)sum);
    if (!is_weight && (is_last || stage == EXTREMES)) atomicMax(own + (is_last ? Q_LEAST : T_LEAST), least);
}

// Returns whether all targets of node v are equal, so that its q are 0 and not written; known after stage PRODUCTS.
__device__ static inline bool is_constant(const Target &y, const Level &level, size v) {
    return measured_of(y, level, v)[PRODUCT] == ordered(0.0);
}

// Measures weights and targets of the samples from, from + BLOCK, .. of node v in a stage.
__device__ static inline void measure_run(const Target &y, const Level &level, int stage, size v, size from, size to) {
    const bool from_weights = stage < MEANS ? !y.is_whole : stage == MEANS || stage == INHERITED;
    const bool is_pure = stage > PRODUCTS && stage < INHERITED && is_constant(y, level, v);
    if (from_weights) measure_row(y, level, stage, v, y.n_outputs, from, to);
    for (size k = 0; k < y.n_outputs && !y.has_labels && !is_pure; ++k) {
        if (stage == INHERITED) measure_row(y, level, EXTREMES, v, k, from, to);
        measure_row(y, level, stage, v, k, from, to);
    }
}

// Measures places from, .., to - 1 in a stage, or those of nodes that want a unit (`wants`). The places of n nodes
// begin at begin[a]; with has_parents, those of n parents. A thread takes places that are BLOCK apart, and measures
// those of a node together.
__device__ static inline void measure_tile(
    const Target &y, const Level &level, const size *begin, size n, bool has_parents, const unsigned char *wants,
    int stage, size from, size to
) {
    for (size i = from + threadIdx.x; i < to; i += BLOCK) {
        size v = segment(begin, n, i), j = i - begin[v];
        if (has_parents) {
            v *= 2;
            if (j >= level.count[v]) j -= level.count[v++];
        }
        const size rest = level.count[v] - j, own = rest < to - i ? rest : to - i, at = level.first[v] + j;
        if (j < 0 || rest <= 0) continue; // of a leaf above
        if (!wants || wants[v] & WANTS_UNIT) measure_run(y, level, stage, v, at, at + own);
        i += (own - 1) / BLOCK * BLOCK;
    }
}

// Measures the samples of all nodes, or of `some` that want a unit. A block has a tile.
extern "C" __global__ void measure(
    Target y, Level level, const size *__restrict__ begin, size n, size has_parents,
    const unsigned char *__restrict__ wants, size some, size stage, size n_samples
) {
    const size from = (size)blockIdx.x * TILE, to = from + TILE < n_samples ? from + TILE : n_samples;
    measure_tile(y, level, begin, n, has_parents, some ? wants : NULL, (int)stage, from, to);
}

// Writes the unit of node v, which has been measured in all stages, what follows from it, and the mean targets of a
// leaf.
__device__ static inline void finish_unit(const Target &y, const Level &level, size v) {
    const Exponents e = exponents_of(y, level, v, SUMS);
    double *unit = level.unit + v * UNIT;
    unit[0] = (double)e.k;
    unit[1] = (double)e.m;
    unit[2] = spread_of(y, level, v);
    unit[3] = (double)(size)key_of((size)measured_of(y, level, v)[Q_MOST]);
    if (MONOTONIC && !y.has_labels) unit[CENTRE] = centre_of(y, level, v, SUMS, 0);
    complete(y, level, v);
}

// Writes the units of all nodes, or of `some` that want one. One thread per node.
extern "C" __global__ void finish_units(Target y, Level level, const unsigned char *__restrict__ wants, size some) {
    const size v = thread_number();
    if (v < level.n_nodes && (!some || wants[v] & WANTS_UNIT)) finish_unit(y, level, v);
}

// Adds the samples of leaves of targets, in the units of the leaves, to totals (n_leaves, n_outputs, HF_LEAF_TOTALS),
// OUT, 0 before. The leaves divide the samples, in the order of both. One thread per LEAF_SAMPLES samples.
extern "C" __global__ void sum_leaves(Target y, Level leaves, size *__restrict__ totals) {
    const size K = y.n_outputs, from = thread_number() * LEAF_SAMPLES;
    const size to = from + LEAF_SAMPLES < leaves.n_samples ? from + LEAF_SAMPLES : leaves.n_samples;
    for (size k = 0; k < K; ++k) {
        size at = from;
        while (at < to) {
            const size v = segment(leaves.first, leaves.n_nodes, at);
            const size end = v + 1 < leaves.n_nodes && leaves.first[v + 1] < to ? leaves.first[v + 1] : to;
            const bool is_pure = is_constant(y, leaves, v);
            size own[HF_LEAF_TOTALS] = {};
            for (; at < end; ++at)
                hf_add_to_leaf(own, is_pure ? 0 : q_of(y, leaves, v, leaves.sample[at])[k], leaves.u[at]);
            for (size i = 0; i < HF_LEAF_TOTALS; ++i) add_to(totals + (v * K + k) * HF_LEAF_TOTALS + i, own[i]);
        }
    }
}

// Writes the rows of leaves of targets, which have units, from their totals. One thread per leaf.
extern "C" __global__ void write_leaves(Target y, Level leaves, const size *__restrict__ totals) {
    const size v = thread_number(), K = y.n_outputs;
    if (v >= leaves.n_nodes) return;
    const Exponents e = exponents_of(y, leaves, v, SUMS);
    for (size k = 0; k < K; ++k) {
        const size *own = totals + (v * K + k) * HF_LEAF_TOTALS;
        write_leaf(y, own, centre_of(y, leaves, v, SUMS, k), (int)e.k, (int)e.m, leaves.value, v, k);
    }
    if (!MONOTONIC) return;
    const size *own = totals + v * HF_LEAF_TOTALS;
    clip_leaf(y, leaves, v, hf_mean(centre_of(y, leaves, v, SUMS, 0), (int)e.k, (int)e.m, own[0], own[1]));
}
