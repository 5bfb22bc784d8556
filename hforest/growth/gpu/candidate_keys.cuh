// Keys of candidates: a key for each sample of a pending node and each candidate of the node. A level has the keys of
// all slots in memory, a small node those of some slots at a time (small_nodes.cuh):
//
//     keys        | node 0: slot start | node 0: slot start + 1 | ... | node 1: slot start | ...
//     of a slot   one key of each sample of the node, in the order of the samples
//
// An order has the same parts, and in each the indices of the keys as they ascend.

// Returns the index of the first key of a candidate of a pending node of n samples. begin: its member of Pending.
__device__ static inline size first_key(const Candidates &candidates, size candidate, size begin, size n) {
    const size together = candidates.together;
    return begin * together + (together > 1 ? candidate % candidates.slots - candidates.start : 0) * n;
}

// Returns the key at place e, in ascending order, of a candidate whose keys begin at `first`.
__device__ static inline uint64_t key_at(const Candidates &candidates, size first, size e) {
    if (candidates.sorted) return candidates.sorted[first + e];
    return candidates.key[candidates.near ? first + candidates.near[first + e] : candidates.order[first + e]];
}

// What a key belongs to: a pending node and a slot of it, and a sample with its position in the level.
struct Place {
    size node, slot, sample, at;
};

// Returns the node, slot, sample and position of key e of the pending nodes, each of which has keys of n_slots slots.
__device__ static inline Place place_of(const Level &level, const Pending &pending, size n_slots, size e) {
    const size a = segment(pending.begin, pending.n_nodes, e / n_slots), begin = pending.begin[a];
    const size count = pending.begin[a + 1] - begin, in_node = e - begin * n_slots;
    const size at = level.first[pending.node[a]] + in_node % count;
    return {.node = a, .slot = in_node / count, .sample = level.sample[at], .at = at};
}

// Numbers of bits in a key, from the lowest on: weight and label of the sample, or 0 and 0; then the bin or value.
// Above them is the number of the candidate.
struct KeyBits {
    size weight, label, value;
};

// Returns the key of a sample of a candidate.
__device__ static inline uint64_t
packed_key(const KeyBits &bits, const Target &y, const Level &level, const Place &at, size slots, uint64_t value) {
    const uint64_t key = (uint64_t)(at.node * slots + at.slot) << bits.value | value;
    if (bits.weight == 0) return key;
    return (key << bits.label | (uint64_t)y.labels[at.sample]) << bits.weight | (uint64_t)level.u[at.at];
}
