"""Reference scorers: the best threshold of a candidate, and random ones (Geurts, Ernst and Wehenkel 2006)."""

import math

from ...core.philox import THRESHOLD, philox, unit
from ...core.scores import beats


def best_threshold(node, column, value, min_samples_leaf, best, sign=0):
    """Returns the better of `best` and the best split of one candidate (Don't Get Lost in the Forest,
    step 2): thresholds lie between neighbours of different value (or bin).

    sign: of the feature in monotonic constraints.
    """
    order = sorted(node.samples, key=lambda s: value[s])  # stable
    left, left_u = [0] * node.tree.n_outputs, 0
    for i in range(len(order) - 1):
        left = [a + b for a, b in zip(left, node.row(order[i]), strict=True)]
        left_u += node.unit.u[order[i]]
        low, high = (value[order[j]] for j in (i, i + 1))
        if low == high or i + 1 < min_samples_leaf or len(order) - i - 1 < min_samples_leaf:
            continue
        score = node.split_score(left, left_u, sign)
        if beats(score, best[0]):
            best = (score, column, low, high)
    return best


def random_threshold(key, number, least, greatest, dtype):
    """Returns a random threshold of a node's candidate `number` (Geurts, Ernst and Wehenkel 2006).

    It is uniform from the least value to below the greatest.
    """
    threshold = least + unit(philox(key, number, THRESHOLD)) * (greatest - least)
    if not threshold < math.inf:
        threshold = least / 2 + greatest / 2
    threshold = float(dtype.type(threshold))
    return threshold if least <= threshold < greatest else float(least)


def score_left(node, left_side, min_samples_leaf, sign=0):
    """Returns the score of the split whose left side is a set of samples; -inf if it is not allowed."""
    left = [s for s in node.samples if s in left_side]
    if min(len(left), len(node.samples) - len(left)) < min_samples_leaf:
        return -math.inf
    return node.split_score(*node.sums(left), sign)
