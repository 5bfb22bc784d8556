// The projection source: draws the entries of the projections that pending nodes compare, and writes a key for each
// value. One thread draws a projection; one thread computes a value, in float64 in the order of the entries, so that
// its bits are those of a prediction.
//
// Versions: a level had 14 launches and has 12, counted on the stub device; 64.8 ms for 20 trees of patches were
// measured with 14. Two more are copies of the entries, where the room for them is more than a megabyte.

// Returns hforest.core.projections.Distribution, given its numbers (kind, n_features, channels, cyclic, max_entries,
// n_candidates of groups, then shape, patch_min and patch_max by axis) and its table.
__device__ static inline hf_distribution
distribution_of(const size *numbers, const int *table, double density, double zero_probability) {
    hf_distribution a;
    a.kind = (int)numbers[0];
    a.n_features = numbers[1];
    a.channels = numbers[2];
    a.cyclic = (int)numbers[3];
    a.max_entries = numbers[4];
    a.n_candidates = numbers[5];
    a.table = table;
    a.density = density;
    a.zero_probability = zero_probability;
    for (int i = 0; i < HF_AXES; ++i) {
        a.shape[i] = numbers[6 + i];
        a.low[i] = numbers[6 + HF_AXES + i];
        a.high[i] = numbers[6 + 2 * HF_AXES + i];
    }
    return a;
}

// Writes the entries of the projection of a candidate.
__device__ static inline void draw_projection(
    const hf_distribution &a, const Level &level, const Pending &pending, size slots, const Orders &o,
    const Entries &entries, size candidate
) {
    const hf_candidate own =
        hf_candidate_of(&a, level.key[pending.node[candidate / slots]], (uint64_t)(candidate % slots / o.n_orders));
    entries.n_entries[candidate] = hf_draw_projection(
        &a, own, hf_philox(own.key, 0, HF_STREAM_ENTRY), (unsigned *)entries.index + candidate * entries.max_entries,
        entries.weight + candidate * entries.max_entries
    );
}

// Draws the projections of all candidates. One thread per candidate.
extern "C" __global__ void draw_projections(
    const size *__restrict__ distribution, const int *__restrict__ table, double density, double zero_probability,
    Level level, Pending pending, size slots, Orders o, Entries entries
) {
    const size candidate = thread_number();
    if (candidate >= pending.n_nodes * slots) return;
    const hf_distribution a = distribution_of(distribution, table, density, zero_probability);
    draw_projection(a, level, pending, slots, o, entries, candidate);
}

// Does the work of bin_key for projections of x (n_samples, n_features): values are summed in float64 in the order of
// the entries and rounded once. Float64 keys have no bits left for the candidate.
__device__ static inline uint64_t value_key(
    const real *x, size n_features, const Target &y, const Level &level, const Pending &pending, size slots,
    const Entries &entries, const Orders &o, const KeyBits &bits, const Place &at
) {
    const real *row = x + at.sample * n_features;
    const size candidate = at.node * slots + at.slot;
    const size entry = candidate * entries.max_entries, end = entry + entries.n_entries[candidate];
    double sum = 0;
    for (size j = entry; j < end; ++j) sum += (double)entries.weight[j] * (double)row[entries.index[j]];
    uint64_t value = ordered((real)sum);
    if (sum != sum) {
        const uint64_t own = level.key[pending.node[at.node]];
        value = missing_place(o, 0, o.random ? draws_left(own, at.slot) : at.slot % o.n_orders > 0);
    }
    return sizeof(real) == 4 ? packed_key(bits, y, level, at, slots, value) : value;
}

// Writes the keys of all candidates, and of float64 keys the candidates to pair_of (n_samples * slots,). One thread per
// key.
extern "C" __global__ void value_keys(
    const real *__restrict__ x, size n_features, Target y, Level level, Pending pending, size slots,
    Entries entries, Orders o, KeyBits bits, unsigned long long *__restrict__ key,
    unsigned *__restrict__ candidate_of
) {
    const size e = thread_number();
    if (e >= pending.n_samples * slots) return;
    const Place at = place_of(level, pending, slots, e);
    key[e] = value_key(x, n_features, y, level, pending, slots, entries, o, bits, at);
    if (sizeof(real) == 8) candidate_of[e] = (unsigned)(at.node * slots + at.slot);
}
