"""The samples of a tree and of its nodes, their sums and scores, in the unit of a node: the reference."""

import math
from typing import Any

from ...core.scores import OF_RATIOS, node_score, score_of_ratios, sum_of_squares
from . import bounds
from .leaves import LEAF_TOTALS, add_to_leaf, leaf_of_classes, leaf_of_targets
from .units import (
    are_whole,
    distance,
    gain_in_unit,
    is_narrow,
    means,
    spread_of,
    sums_of,
    unit_of_labels,
    unit_of_targets,
    value,
)


class Tree:
    """Data that all nodes of a tree share."""

    def __init__(self, bins, labels, targets, n_outputs, weight, criterion):
        self.bins, self.labels, self.n_outputs, self.criterion = bins, labels, n_outputs, criterion
        self.targets = None if targets is None else [[float(t) for t in row] for row in targets]
        self.weight = weight
        self.whole = are_whole([float(w) for w in weight if w > 0])
        self.least_weight = 0.0
        """Minimum weight of a side of a split."""
        self.monotonic: Any = None
        """(n_features,) -1, 0 or 1: the signs of monotonic constraints; or None."""

    @property
    def is_ordered(self):
        """Returns whether an order of categories has their best split (Fisher 1958; Breiman et al. 1984)."""
        return self.n_outputs <= (1 if self.targets is not None else 2)

    def unit_of(self, samples, of_leaf=False):
        """Returns a unit that is made from the samples of a node; its sums are scored, or of a leaf."""
        weight = {s: float(self.weight[s]) for s in samples}
        if self.targets is None:
            return unit_of_labels(weight, self.whole)
        from_0 = self.criterion in OF_RATIOS and not of_leaf
        return unit_of_targets(weight, self.targets, self.n_outputs, self.whole, from_0)

    def is_pure(self, samples):
        """Returns whether all samples have the same class, or the same targets."""
        y = self.labels if self.targets is None else self.targets
        return all(y[s] == y[samples[0]] for s in samples)


class Node:
    """Samples of a node, and their sums in a unit."""

    def __init__(self, tree, samples, unit, within=bounds.FREE):
        self.tree, self.samples, self.bounds = tree, samples, within
        u = {s: unit.u[s] for s in samples}
        spread = 0.0
        if tree.targets is not None:
            q = {s: unit.q[s] for s in samples}
            spread = spread_of(q, u, tree.n_outputs, tree.whole)
        if is_narrow(unit, spread, float(max(u.values()))):
            unit = tree.unit_of(samples)
        self.unit = unit
        self.total, self.u = self.sums(samples)
        self.mean = means(self.total, self.u)
        self.weight = self.weight_of(self.u)

    def weight_of(self, u):
        """Returns a weight, given in the unit."""
        return math.ldexp(float(u), -self.unit.m)

    def row(self, s):
        """Returns the terms of a sample by class or output, in the unit."""
        if self.tree.targets is not None:
            return self.unit.q[s]
        return [self.unit.u[s] * (self.tree.labels[s] == k) for k in range(self.tree.n_outputs)]

    def sums(self, samples):
        """Returns the sums of samples by class or output, and their weight, in the unit."""
        return sums_of(map(self.row, samples), self.tree.n_outputs), sum(self.unit.u[s] for s in samples)

    def terms(self, sums, u):
        """Returns sums of a branch as float64: weights of classes, or distances from the node's means."""
        if self.tree.targets is None:
            return [self.weight_of(a) for a in sums]
        return [distance(a, u, mean) for a, mean in zip(sums, self.mean, strict=True)]

    def branch_score(self, sums, u):
        """Returns the score of a branch."""
        if self.tree.criterion in OF_RATIOS:
            return score_of_ratios(self.tree.criterion, sums, self.mean, u)
        terms = self.terms(sums, u)
        if self.tree.targets is None:
            return node_score(self.tree.criterion, terms, self.weight_of(u))
        return sum_of_squares(terms) / float(u)

    def split_score(self, left, left_u, sign=0):
        """Returns the score of a split, given the sums on the left.

        -inf if a side has too little weight. With a sign, that of the feature in `monotonic`, also if the
        values of the sides are not in its order, or not within the bounds of the node.
        """
        right, right_u = [a - b for a, b in zip(self.total, left, strict=True)], self.u - left_u
        if min(self.weight_of(left_u), self.weight_of(right_u)) < self.tree.least_weight:
            return -math.inf
        if sign:
            lower, upper = self.bounds
            values = self.values_of_sides(left, left_u)
            if min(values) < lower or max(values) > upper or sign * (values[1] - values[0]) < 0:
                return -math.inf
        return self.branch_score(left, left_u) + self.branch_score(right, right_u)

    def gain(self, score):
        """Returns the decrease of the impurity by a split."""
        if self.tree.targets is None:
            return score - self.branch_score(self.total, self.u)
        return gain_in_unit(self.tree.criterion, score, self.unit.k, self.unit.m)

    def values_of_sides(self, left, left_u):
        """Returns the mean targets, or shares of the second class, of both sides of a split."""
        c, k, m = (self.unit.c[0], self.unit.k, self.unit.m) if self.tree.targets is not None else (0.0, 0, 0)
        sides = (left[-1], left_u), (self.total[-1] - left[-1], self.u - left_u)
        return [value(c, k, m, q, u) for q, u in sides]

    def bounds_of_children(self, left_side, sign):
        """Returns the bounds of both children, given the samples on the left."""
        left, right = self.values_of_sides(*self.sums(left_side))
        return bounds.of_children(self.bounds, left, right, sign)

    def leaf_value(self):
        """Returns the row of the leaf, within the bounds of the node."""
        return bounds.clipped(self.unbounded_leaf_value(), self.bounds, of_classes=self.tree.targets is None)

    def unbounded_leaf_value(self):
        """Returns the row of the leaf; the totals of targets are in a unit of its own."""
        if self.tree.targets is None:
            return leaf_of_classes(self.total)
        unit, totals = self.tree.unit_of(self.samples, of_leaf=True), []
        for j in range(self.tree.n_outputs):
            totals.append([0] * LEAF_TOTALS)
            for s in self.samples:
                totals[j] = add_to_leaf(totals[j], unit.q[s][j], unit.u[s])
        return leaf_of_targets(totals, unit.c, unit.k, unit.m)
