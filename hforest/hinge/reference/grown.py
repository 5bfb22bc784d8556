"""Reference of `from_forest`: nodes one by one, and ridge regression by a full matrix."""

import numpy as np


def from_forest(forest, depth, thresholds, features, reached):
    """Writes thresholds, features (n_trees, 2**depth - 1) and the node of each leaf, within its tree.

    `forest` is a `hforest.tree.Forest` of splits by single columns.
    """
    for m, root in enumerate(forest.tree_start[:-1]):
        place(forest, int(root), 0, 0, depth, (0.0, 0), thresholds[m], features[m], reached[m])


def place(forest, root, node, v, depth, above, thresholds, features, reached):
    """Puts `node` at vertex v, which has `depth` levels below, and its descendants below.

    `above` is the threshold and the feature of the parent, which vertices below a leaf copy.
    """
    if depth == 0:
        reached[v - len(thresholds)] = node
        return
    at = root + node
    left = right = node
    if forest.feature[at] != -1:
        above = forest.threshold[at], forest.feature[at]
        left, right = int(forest.left[at]), int(forest.left[at]) + 1
    thresholds[v], features[v] = above
    place(forest, root, left, 2 * v + 1, depth - 1, above, thresholds, features, reached)
    place(forest, root, right, 2 * v + 2, depth - 1, above, thresholds, features, reached)


def fit_weights(leaf, margin, targets, n_leaves, l2, weights, intercept):
    """Writes the weights (n_trees, n_leaves, n_outputs) and the intercept of the ridge regression.

    Row n of the matrix A has |r_nm| in the column of leaf_nm of tree m (Lay et al. 2018, eq. 10: y = A w).
    With columns and targets less their means, (A'A + a) w = A'y, where a is l2 times the mean squared length
    of the rows.
    """
    n_samples, n_trees = leaf.shape
    rows = np.zeros((n_samples, n_trees * n_leaves))
    for n in range(n_samples):
        for m in range(n_trees):
            rows[n, m * n_leaves + leaf[n, m]] = abs(np.float64(margin[n, m]))
    ridge = l2 * np.mean([np.dot(row, row) for row in rows])
    mean, target_mean = rows.mean(axis=0), targets.mean(axis=0)
    centred = rows - mean
    square = centred.T @ centred + ridge * np.eye(rows.shape[1])
    slopes = np.linalg.solve(square, centred.T @ (targets - target_mean)) if ridge > 0 else 0.0
    weights.reshape(rows.shape[1], -1)[:] = slopes
    intercept[:] = target_mean - mean @ weights.reshape(rows.shape[1], -1)
