"""Reference implementation: forests applied to samples, node by node.

Same functions, parameters and arrays as `cpu` and `gpu`. Node v of tree m is at tree_start[m] + v. A leaf has
feature -1, and `left` is its row among the tree's leaf values. A split has a feature, or feature -2 and the
projection indptr[v]:indptr[v + 1] of (indices, data). A value `<= threshold` goes to node `left`, another to
node `left + 1`.
"""

import itertools
import math

import numpy as np


def _candidate(row, at, feature, indptr, indices, data):
    # p3 section 2.3: a split compares a projection of the sample; a unit vector (a feature) costs no sum.
    if feature[at] >= 0:
        return row[feature[at]]
    total = 0.0
    for j in range(indptr[at], indptr[at + 1]):
        total += float(data[j]) * float(row[indices[j]])
    return row.dtype.type(total)


def apply(x, tree_start, feature, threshold, left, indptr, indices, data, leaf):
    """Writes the leaf that each sample reaches in each tree, numbered within the tree."""
    for i, row in enumerate(x):
        for m, root in enumerate(tree_start[:-1]):
            v = 0
            while feature[root + v] != -1:
                at = root + v
                right = _candidate(row, at, feature, indptr, indices, data) > threshold[at]
                v = int(left[at]) + int(right)
            leaf[i, m] = v


def predict(x, tree_start, feature, threshold, left, indptr, indices, data, value, vote, y):
    """Writes the mean over trees of the leaf values, or the share of the trees that vote for each class."""
    n_trees = len(tree_start) - 1
    leaf = np.empty((len(x), n_trees), np.int32)
    apply(x, tree_start, feature, threshold, left, indptr, indices, data, leaf)
    for i in range(len(x)):
        total = np.zeros(value.shape[1])
        for m, root in enumerate(tree_start[:-1]):
            # A tree of N nodes has (N + 1) / 2 leaves.
            row = value[(root + m) // 2 + left[root + leaf[i, m]]].astype(np.float64)
            total += np.eye(len(row))[row.argmax()] if vote else row
        y[i] = total / n_trees


def faults(tree_start, feature, threshold, left, indptr, indices, n_features, found):
    """found[0] = the first node with a fault, or -1; found[1] = the number of the fault, or 0.

    Faults: a walk could leave the tree or x at this node, or the node has two parents or none.
    """
    found[0], found[1] = -1, 0
    for root, stop in itertools.pairwise(tree_start):
        n_nodes = int(stop - root)
        n_parents = [1] + [0] * (n_nodes - 1)  # The root needs no parent.
        for v in range(n_nodes):
            at = int(root + v)
            found[1] = _fault(at, v, n_nodes, feature, threshold, left, indptr, indices, n_features)
            if not found[1] and n_parents[v] != 1:
                # Parents come before their children: all parents of v have been counted.
                found[1] = 7 if n_parents[v] else 8
            if found[1]:
                found[0] = at
                return
            if feature[at] != -1:
                n_parents[left[at]] += 1
                n_parents[left[at] + 1] += 1


def _fault(at, v, n_nodes, feature, threshold, left, indptr, indices, n_features):
    f, to = int(feature[at]), int(left[at])
    if f == -1:
        return 0 if 0 <= to < (n_nodes + 1) // 2 else 1
    # Children come after their parent: no cycles.
    if not v < to < n_nodes - 1:
        return 2
    if math.isnan(threshold[at]):
        return 3
    if f == -2 and len(indptr):
        first, last = int(indptr[at]), int(indptr[at + 1])
        if not 0 <= first <= last <= len(indices):
            return 5
        return 0 if all(0 <= i < n_features for i in indices[first:last]) else 6
    return 0 if 0 <= f < n_features else 4
