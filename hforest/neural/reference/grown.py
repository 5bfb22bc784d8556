"""Reference of `from_forest`: predictions of the soft forest, computed from the grown nodes."""

import numpy as np

from ...core import series


def predict(forest, x, samples, depth, scale, p):
    """Writes p (n, n_outputs) of the samples x: means over trees of soft routing (Zhang 2017, section 2).

    `samples` (n_samples, n_features) determine the deviations of the values that splits compare, and the
    weights of leaves below splits at `depth`.
    """
    p[:] = 0
    n_trees = len(forest.tree_start) - 1
    for m in range(n_trees):
        for i, row in enumerate(x):
            p[i] += _output(forest, m, 0, row, samples, np.arange(len(samples)), depth, scale) / n_trees


def _output(forest, m, node, row, samples, here, depth, scale):
    # `here`: the samples that reach the node.
    root = int(forest.tree_start[m])
    at = root + node
    if forest.feature[at] == -1:
        return forest.value[(root + m) // 2 + forest.left[at]].astype(np.float64)
    threshold, left = float(forest.threshold[at]), int(forest.left[at])
    right = _compared(forest, at, samples[here]) > threshold
    children = (left, here[~right]), (left + 1, here[right])
    if depth == 0:
        share = np.count_nonzero(~right) / len(here) if len(here) else 0.5
        values = [_output(forest, m, v, row, samples, part, 0, scale) for v, part in children]
        return share * values[0] + (1 - share) * values[1]
    spread = _compared(forest, at, samples).std() or 1.0
    d = 1 / (1 + series.exp(-scale * (threshold - _compared(forest, at, row[None])[0]) / spread))
    values = [_output(forest, m, v, row, samples, part, depth - 1, scale) for v, part in children]
    return d * values[0] + (1 - d) * values[1]


def _compared(forest, at, x):
    # The value that the split at a node compares, for each row of x.
    if forest.feature[at] >= 0:
        return x[:, forest.feature[at]].astype(np.float64)
    part = slice(forest.indptr[at], forest.indptr[at + 1])
    return x[:, forest.indices[part]].astype(np.float64) @ forest.data[part].astype(np.float64)
