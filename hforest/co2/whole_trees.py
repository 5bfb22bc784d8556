"""Descent on the bound of a whole tree's loss (Norouzi, Collins, Johnson, Fleet and Kohli 2015, Alg. 1), in
plain NumPy.

The reference implementation and caller's losses use it. The paper's bound of a sample's loss is ``max_g (g.Wx
+ loss(leaf of g, y)) - max_h h.Wx``, where h is the vector of the signs of Wx and g differs from h at one
split at most. With p = w.x at that split it is the larger of ``loss(leaf, y)`` and of ``loss(leaf after the
flip, y) - 2 |p|`` over the splits of the sample's path; others do not change the leaf.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

from ..core.aliases import FloatArray, IntArray
from ..core.scores import beats
from .any_loss import Node
from .descent import HALVINGS, Schedule, epoch_order, project, shuffled

_ROWS = 1024  # samples whose products and losses are kept at a time


class Trees(NamedTuple):
    """Some trees as the backends read and write them; a tree of n leaves has n - 1 splits, the root first."""

    first_split: IntArray
    """(n_trees + 1,) int64: row of w of each root."""
    first_leaf: IntArray
    """(n_trees + 1,) int64: row of theta of the first leaf of each tree."""
    child: IntArray
    """(n_splits, 2) int32: the split on the left and on the right, or -1 - leaf; numbered within the tree."""
    w: FloatArray
    """(n_splits, n_blocks * 16), real: weights of the features, the offset, zeros; IN, OUT."""
    theta: FloatArray
    """(n_leaves, n_outputs) float64: unnormalised log-probabilities, or means; OUT."""
    value: FloatArray
    """(n_leaves, n_outputs) float64: shares of the classes, or means; OUT."""


class Slopes(NamedTuple):
    """Sums over samples of subgradients of the bound, at the splits and leaves that have some."""

    splits: Any
    of_splits: Any
    """(number of splits, n_features + 1), dtype of w."""
    leaves: Any
    of_leaves: Any
    """(number of leaves, n_outputs) float64."""
    weight: float
    """Sum of the weights of all samples."""


class Problem(Protocol):
    """Samples with a loss, and the children of a tree's splits."""

    n: int

    def bound(self, w: FloatArray, theta: FloatArray) -> tuple[float, float]:
        """Returns the bound, and the loss, summed over all samples."""

    def slopes(self, w: FloatArray, theta: FloatArray, rows: IntArray) -> Slopes:
        """Returns the sums over some samples."""


def descend(
    problem: Problem,
    judge: Problem | None,
    schedule: Schedule,
    key: int,
    w: FloatArray,
    theta: FloatArray,
    history: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Returns the best w (n_splits, n_features + 1) and theta (n_leaves, n_outputs) from this start.

    The best have the least bound or, with a judge, the least loss there. Writes the bounds of the start and
    of rounds to history.
    """
    c, n, real = schedule, problem.n, w.dtype.type
    samples = shuffled(key, n)
    size = min(c.batch, n)
    n_epochs = max(c.tau, -(-c.min_steps // -(-n // size)))
    w, theta = np.array([project(row, c.nu) for row in w], w.dtype).reshape(w.shape), theta.copy()
    speed, speeds = np.zeros_like(w), np.zeros_like(theta)
    value = history[0] = problem.bound(w, theta)[0]
    least = value if judge is None else judge.bound(w, theta)[1]
    best = w.copy(), theta.copy()
    eta, waiting, lowered, epoch = c.eta, 0, 0, 0
    for round_ in range(c.max_rounds):
        if lowered == HALVINGS or not value > 0:
            break
        for _ in range(n_epochs):
            order = epoch_order(key, epoch, samples)
            epoch += 1
            for first in range(0, n, size):
                found = problem.slopes(w, theta, order[first : first + size])
                rate = eta / found.weight
                with np.errstate(over="ignore", invalid="ignore"):
                    for leaf, pull in zip(found.leaves, found.of_leaves, strict=True):
                        speeds[leaf] = c.momentum * speeds[leaf] - rate * np.asarray(pull)
                        theta[leaf] += speeds[leaf]
                    for split, slope in zip(found.splits, found.of_splits, strict=True):
                        speed[split] = real(c.momentum) * speed[split] + real(-rate) * slope
                        w[split] = project(w[split] + speed[split], c.nu)
        before = value
        value = history[round_ + 1] = problem.bound(w, theta)[0]
        score = value if judge is None else judge.bound(w, theta)[1]
        if beats(-score, -least):
            least, best = score, (w.copy(), theta.copy())
        waiting += not value < before - c.tolerance * before
        if waiting > c.patience:
            waiting, lowered, eta = 0, lowered + 1, eta * c.decay
    return best


class OfPair:
    """Samples with a caller's loss, a pair of functions, and the children of a tree's splits."""

    def __init__(self, node: Node, child: IntArray) -> None:
        self.node, self.child, self.n = node, child, len(node.x)
        self.root = 0 if len(child) else -1

    def _leaves(self, p: FloatArray, at: IntArray) -> IntArray:
        """Returns the leaves that samples reach from a split or leaf each."""
        at, some = at.copy(), np.flatnonzero(at >= 0)
        while len(some):
            split = at[some]
            at[some] = self.child[split, (p[some, split] >= 0).astype(int)]
            some = some[at[some] >= 0]
        return -1 - at

    def _worst(self, w: FloatArray, theta: FloatArray, rows: IntArray) -> tuple[Any, ...]:
        """Returns losses; the largest terms of the bound, and their leaves and splits (-1: none) and signs.

        All are (n_rows,), in the order of rows.
        """
        # einsum has one order of sums for every number of threads.
        p = (np.einsum("ij,kj->ik", self.node.x[rows], w[:, :-1]) - w[:, -1]).astype(np.float64)
        losses = np.stack([self.node.called(0, leaf, rows) for leaf in theta])
        everyone = np.arange(len(rows))
        at = np.full(len(rows), self.root)
        leaf, split, sign = self._leaves(p, at), np.full(len(rows), -1), np.zeros(len(rows))
        loss = losses[leaf, everyone]
        worst = loss.copy()
        while len(some := everyone[at[everyone] >= 0]):
            here, everyone = at[some], some
            product = p[some, here]
            right = (product >= 0).astype(int)
            at[some] = self.child[here, right]
            other = self._leaves(p[some], self.child[here, 1 - right])
            term = losses[other, some] - 2 * abs(product)
            larger = term > worst[some]
            changed = some[larger]
            worst[changed], leaf[changed], split[changed] = term[larger], other[larger], here[larger]
            sign[changed] = 2 * right[larger] - 1
        return loss, worst, leaf, split, sign

    def bound(self, w: FloatArray, theta: FloatArray) -> tuple[float, float]:
        bound = total = 0.0
        for first in range(0, self.n, _ROWS):
            rows = np.arange(first, min(first + _ROWS, self.n))
            loss, worst, *_ = self._worst(w, theta, rows)
            bound += float((self.node.weight[rows] * worst).sum())
            total += float((self.node.weight[rows] * loss).sum())
        return bound, total

    def slopes(self, w: FloatArray, theta: FloatArray, rows: IntArray) -> Slopes:
        weight = self.node.weight[rows]
        _, _, leaf, split, sign = self._worst(w, theta, rows)
        leaves, splits = np.unique(leaf), np.unique(split[split >= 0])
        pulls = [weight[leaf == k] @ self.node.called(1, theta[k], rows[leaf == k]) for k in leaves]
        slopes = np.zeros((len(splits), w.shape[1]), w.dtype)
        for slope, k in zip(slopes, splits, strict=True):
            some = split == k
            factor = -2 * sign[some] * weight[some]
            slope[:-1] = np.einsum("i,ij->j", factor, self.node.x[rows[some]])
            slope[-1] = -factor.sum()
        return Slopes(splits, slopes, leaves, np.array(pulls), float(weight.sum()))
