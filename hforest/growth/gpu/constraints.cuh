// Monotonic constraints: bounds of nodes, splits that they allow, and leaves within them. Trees with constraints have a
// module of their own, compiled with `#define MONOTONIC 1`; in all other modules nothing here remains.
//
//     make_children    the order of the values of two siblings, if the column of their parent has a sign
//     settle           bound_siblings: from this order and their sums, the bounds of both; clip_leaf of labels
//     scorers          is_monotonic: splits that keep the order of a sign and the bounds
//     write_leaves     clip_leaf of targets

#ifndef MONOTONIC
#define MONOTONIC 0
#endif

// Numbers of a node in Level.unit: exponents of targets and weights, spread and heaviest of its unit; with constraints
// then the centre of the target, bounds of the values of leaves below, and the order of the values of the node and its
// sibling, -1 or 1, until settle has bounded both.
constexpr size OF_UNIT = 4, OF_BOUNDS = 4, UNIT = MONOTONIC ? OF_UNIT + OF_BOUNDS : OF_UNIT;
enum { CENTRE = 4, LOWER = 5, UPPER = 6, ORDER = 7 };

// Returns the mean of one target, or the share of the second class, from sums in a unit with a centre.
__device__ static inline double value_of(const Target &y, const double *unit, size q, size u) {
    return y.has_labels ? hf_mean(0, 0, 0, q, u) : hf_mean(unit[CENTRE], (int)unit[0], (int)unit[1], q, u);
}

// Clips the row of leaf v to the bounds of the node. value: the mean target, or the share of the second class.
__device__ static inline void clip_leaf(const Target &y, const Level &level, size v, double value) {
    const double *unit = level.unit + v * UNIT, above = value < unit[LOWER] ? unit[LOWER] : value;
    const double inside = above > unit[UPPER] ? unit[UPPER] : above;
    real *row = level.value + v * HF_LEAF_VALUES * y.n_outputs;
    if (inside == value) return;
    if (y.has_labels) row[0] = (real)(1 - inside);
    row[y.n_outputs - 1] = (real)inside;
}

// Writes the bounds of node v and its sibling v + 1, which have those of their parent: if its column has a constraint,
// the middle of their values lies between them. total (2, n_outputs + 1): their sums.
__device__ static inline void bound_siblings(const Target &y, const Level &level, size v, const size *total) {
    double *left = level.unit + v * UNIT, *right = left + UNIT;
    if (v % 2 == 1 || left[ORDER] == 0) return;
    const size last = y.n_outputs - 1, *others = total + y.n_outputs + 1;
    const double middle =
        value_of(y, left, total[last], total[last + 1]) / 2 + value_of(y, right, others[last], others[last + 1]) / 2;
    left[left[ORDER] > 0 ? UPPER : LOWER] = right[left[ORDER] > 0 ? LOWER : UPPER] = middle;
    left[ORDER] = right[ORDER] = 0;
}

// Returns the sign of the monotonic constraint on the column of a candidate, or 0.
__device__ static inline int sign_of(const Target &y, const Candidates &candidates, size candidate) {
    return MONOTONIC && candidates.column[candidate] >= 0 ? y.sign[candidates.column[candidate]] : 0;
}

// Returns whether the values of both sides of a split of node v are in the order of a sign, and within the bounds of
// the node. sums (n_outputs,) and u: sums of the samples on the left. total (n_outputs + 1,): sums of the node.
__device__ static inline bool
is_monotonic(const Target &y, const Level &level, size v, const size *total, const size *sums, size u, int sign) {
    const size last = y.n_outputs - 1;
    const double *unit = level.unit + v * UNIT, left = value_of(y, unit, sums[last], u);
    const double right = value_of(y, unit, total[last] - sums[last], total[last + 1] - u);
    return min(left, right) >= unit[LOWER] && max(left, right) <= unit[UPPER] && sign * (right - left) >= 0;
}
