"""Reference implementation: alternating decision forests in plain loops (Schulter et al. 2013, Alg. 1)."""

import math

import numpy as np

from ..core.philox import CHILDREN, keys, philox
from ..growth.reference.bounds import FREE
from ..growth.reference.builder import Grown, divided, least_size, tree_key, written
from ..growth.reference.node_samples import Node, Tree
from ..growth.reference.sources import splits_of_columns, splits_of_projections


def grow(growth, weights, distribution, n_sampled):
    """Returns the trees as `growth.trees.GrownTree`.

    n_sampled: number of features, or of projections of the distribution, that a node samples.
    """
    source, objective = growth.samples, growth.objective
    labels, base, limits = objective.target.labels, weights.sample_weight, objective.limits
    n_classes, dtype, bins = objective.target.n_outputs, source.dtype, None
    if distribution is None:
        columns = source.bins()
        split, bins = splits_of_columns(columns, limits.min_samples_leaf, n_sampled, "best")
        has_defaults = columns.missing is not None
    else:
        split = splits_of_projections(
            source.matrix(), distribution, limits.min_samples_leaf, n_sampled, "best"
        )
        has_defaults = source.has_missing
    inside, total = [int(s) for s in np.flatnonzero(base > 0)], math.fsum(base.tolist())

    def with_weights(weight):
        """Returns what all nodes share."""
        tree = Tree(bins, labels, None, n_classes, weight, objective.criterion)
        tree.least_weight = limits.min_weight_fraction_leaf * total
        return tree

    by_base = with_weights(base)

    def grown(samples, key, depth):
        """Returns a leaf."""
        node = Node(by_base, samples, by_base.unit_of(samples), FREE)
        return Grown(samples, key, depth, node)

    def predicted():
        """Returns the mean over the trees of the shares in the nodes that samples reach."""
        sums = np.zeros((len(base), n_classes))
        for nodes in trees:
            for made in nodes:
                if not made.children:
                    sums[made.samples] += np.array(made.node.leaf_value(), dtype).astype(np.float64)
        return (sums / len(trees)).astype(dtype)

    trees = [[grown(inside, tree_key(growth.seed, m), 0)] for m in range(growth.n_trees)]
    frontier = [list(nodes) for nodes in trees]
    for _ in range(limits.max_depth):
        growing = [[made for made in nodes if not by_base.is_pure(made.samples)] for nodes in frontier]
        if not any(growing):
            break
        weight = weights.of_level(predicted)
        if weight is None:
            break
        tree = with_weights(weight)  # of this level
        frontier = []
        for nodes, some in zip(trees, growing, strict=True):
            below = []
            for made in some:
                if len(made.samples) < least_size(limits):
                    continue
                node = Node(tree, made.samples, tree.unit_of(made.samples), FREE)
                best = split(node, made.key)
                if best is None or best.gain / total < limits.min_impurity_decrease:
                    continue
                made.best, made.gain = best, float(np.ldexp(max(best.gain, 0.0), objective.scale))
                *sides, made.default_left = divided(best, made.samples)
                of_children = zip(sides, keys(philox(made.key, 0, CHILDREN)), strict=True)
                made.children = [grown(side, key, made.depth + 1) for side, key in of_children]
                below += made.children
            nodes += below
            frontier.append(below)
        if not any(frontier):
            break
    return [written(nodes, dtype, distribution is not None, has_defaults, False) for nodes in trees]
