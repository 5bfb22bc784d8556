"""Reference implementation of surrogates, stumps and trees of them in plain loops (Norouzi et al. 2015,
sections 4 and 5).

Functions, parameters and arrays are those of `cpu` and `gpu`. One bit can decide the side of a sample, so
operations and their order are part of the definition. Products w.x are summed in the dtype of x, in sixteen
lanes that are then folded by halves; slopes in the dtype of x, sample after sample; losses in float64, with
an exponential and a logarithm of defined steps. A sum over samples is the sum of chunks of 1024 samples,
added in float64, chunk after chunk.
"""

import itertools
import math

import numpy as np

from ..core.launch import numbers
from ..core.philox import JUMP, RESTART, keys, philox, unit
from ..core.scores import beats
from ..core.series import exp, log
from ..growth.reference.builder import grow_batch
from ..growth.reference.node_samples import Node, Tree
from ..growth.reference.sources import Split, best_column, kinds_of
from . import whole_trees
from .descent import LANES, descend, fold, padded, project, shuffled
from .whole_trees import Slopes

CHUNK, ABSENT = numbers("co2/fit.h", "HF_CHUNK", "HF_ABSENT")
CYCLES = 100

READS_WINDOWS = False


def _dot(w, row):
    lanes = np.zeros(LANES, row.dtype)
    for a, b in zip(padded(row), padded(w), strict=True):
        lanes = lanes + a * b
    return float(fold(lanes))


class _Losses:
    """Losses of samples on either side, or in each leaf: eq. 3 for labels, eq. 4 for targets."""

    def __init__(self, labels, targets, *thetas):
        self.labels, self.targets = labels, targets
        self.theta = [[float(a) for a in theta] for theta in thetas]
        if labels is not None:
            self.table = [self.log_losses(theta) for theta in self.theta]

    def log_losses(self, theta):
        high, total = max(theta), 0.0
        for a in theta:
            total += exp(a - high)
        return [high + log(total) - a for a in theta]

    def loss(self, side, i):
        if self.labels is not None:
            return self.table[side][self.labels[i]]
        total = 0.0
        for a, b in zip(self.targets[i], self.theta[side], strict=True):
            total += (float(a) - b) * (float(a) - b)
        return total

    def outputs(self, i):
        if self.labels is None:
            return [float(a) for a in self.targets[i]]
        return [float(k == self.labels[i]) for k in range(len(self.theta[0]))]

    def gradient(self, side, weight, total):
        """Returns the gradient with respect to theta, for samples with this weight and sum of outputs."""
        if self.labels is None:
            return [2 * (weight * a - b) for a, b in zip(self.theta[side], total, strict=True)]
        return [weight * exp(-a) - b for a, b in zip(self.table[side], total, strict=True)]


def _chunks(n):
    """Returns the ranges of CHUNK numbers below n, over which sums are added first."""
    return [range(first, min(first + CHUNK, n)) for first in range(0, n, CHUNK)]


def _surrogate(w, losses, x, weight, order):
    """Returns eq. 10, and the sign of w.x of every sample."""
    total, sign = 0.0, [0] * len(x)
    for chunk in _chunks(len(order)):
        part = 0.0
        for at in chunk:
            i = order[at]
            p = _dot(w, x[i])
            # eq. 10: max(-w.x + l(theta0, y), w.x + l(theta1, y)) - |w.x|
            high = max(losses.loss(0, i) - p, losses.loss(1, i) + p)
            part += float(weight[i]) * (high - abs(p))
            sign[i] = (p > 0) - (p < 0)
        total += part
    return total, sign


def _sums_of_sides(losses, weight, order, sides):
    """Returns weighted sums of the outputs of the samples on both sides, and weights (left, right, both)."""
    sums, weights = [[0.0] * len(losses.theta[0]) for _ in range(2)], [0.0] * 3
    for chunk in _chunks(len(order)):
        part, part_weights = [[0.0] * len(losses.theta[0]) for _ in range(2)], [0.0] * 3
        for at in chunk:
            i, side = order[at], sides[at]
            unit = float(weight[i])
            part[side] = [a + unit * b for a, b in zip(part[side], losses.outputs(i), strict=True)]
            part_weights[side] += unit
            part_weights[2] += unit
        sums = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(sums, part, strict=True)]
        weights = [a + b for a, b in zip(weights, part_weights, strict=True)]
    return sums, weights


def _slopes(w, losses, x, weight, sign, order):
    """Returns sums over samples of subgradients (eq. 11) for w and both thetas; and their weight."""
    slope, sides = np.zeros(len(w)), []
    for chunk in _chunks(len(order)):
        part = np.zeros(len(w), x.dtype)
        for at in chunk:
            i = order[at]
            p = _dot(w, x[i])
            side = int(not losses.loss(0, i) - p >= losses.loss(1, i) + p)  # Alg. 1, line 8
            sides.append(side)
            # Alg. 1, lines 9 and 12, as a gradient.
            turn = 1 - sign[i] if side else -1 - sign[i]
            if turn != 0:
                part = part + x[i] * x.dtype.type(turn * float(weight[i]))
        slope = slope + part
    sums, weights = _sums_of_sides(losses, weight, order, sides)
    thetas = [losses.gradient(side, weights[side], sums[side]) for side in (0, 1)]
    return slope.astype(x.dtype), thetas, weights[2]


def surrogate(split, samples, out):
    """Writes the surrogate, a sum over samples, to out[0] (eq. 10)."""
    (w, *theta), (x, labels, targets, weight) = split, samples
    out[0], _ = _surrogate(w, _Losses(labels, targets, *theta), x, weight, range(len(x)))


def surrogate_grad(split, samples, grads):
    """Writes the subgradient of the surrogate (eq. 11)."""
    (w, *theta), (x, labels, targets, weight), (grad_w, *grad_theta) = split, samples, grads
    losses, order = _Losses(labels, targets, *theta), range(len(x))
    _, sign = _surrogate(w, losses, x, weight, order)
    (grad_w[:], (grad_theta[0][:], grad_theta[1][:]), _) = _slopes(w, losses, x, weight, sign, order)


def _smoothing(sums, smooth):
    """Returns what is added to the weight of each class, whose weights in the node or tree are `sums`."""
    return [smooth * (1.0 if a > 0 else ABSENT) for a in sums]


def _logarithms(sums, weight, share):
    """Returns the logarithms of the smoothed shares of the classes."""
    added = 0.0
    for a in share:
        added += a
    return [log((a + b) / (weight + added)) for a, b in zip(sums, share, strict=True)]


def _start_theta(labels, targets, weight, sign, smooth, n_outputs):
    # Alg. 1, line 2.
    losses = _Losses(labels, targets, [0.0] * n_outputs, [0.0] * n_outputs)
    sides = [int(s >= 0) for s in sign]
    sums, weights = _sums_of_sides(losses, weight, range(len(sides)), sides)
    both = [a + b for a, b in zip(*sums, strict=True)]
    if labels is None:
        return [
            [(a / weights[side] if weights[side] > 0 else b / weights[1 - side])
             for a, b in zip(sums[side], both, strict=True)]
            for side in (0, 1)
        ]  # fmt: skip
    share = _smoothing(both, smooth)
    return [_logarithms(sums[side], weights[side], share) for side in (0, 1)]


class _Node:
    """Samples of a node, for `descend`."""

    def __init__(self, x, labels, targets, weight):
        self.x, self.labels, self.targets, self.weight = x, labels, targets, weight

    def losses(self, theta):
        return _Losses(self.labels, self.targets, *theta)

    def surrogate(self, w, theta, order):
        return _surrogate(w, self.losses(theta), self.x, self.weight, order)

    def slopes(self, w, theta, sign, order):
        return _slopes(w, self.losses(theta), self.x, self.weight, sign, order)


def fit_stump(samples, schedule, key, split, history):
    """Fits w, in place, and theta (Alg. 1); appends the surrogates of start and rounds to history."""
    (x, labels, targets, weight), (w, theta0, theta1) = samples, split
    if len(x) < schedule.min_samples:
        w[:] = 0  # separates nothing: the univariate split stays
        return
    node, n_outputs = _Node(x, labels, targets, weight), len(theta0)
    _, sign = node.surrogate(project(w, schedule.nu), np.zeros((2, n_outputs)), shuffled(key, len(x)))
    start = _start_theta(labels, targets, weight, sign, schedule.smooth, n_outputs)
    w[:], (theta0[:], theta1[:]) = descend(node, schedule, key, w, np.array(start), history)


class _TreeProblem:
    """Samples and the children of a tree's splits, for `whole_trees.descend`."""

    def __init__(self, samples, child):
        x, self.labels, self.targets, self.weight = samples
        self.n, self.child, self.root = len(x), child, 0 if len(child) else -1
        self.x = np.concatenate([x, np.full((len(x), 1), -1, x.dtype)], axis=1)

    def path(self, w, i, at):
        """Returns the leaf that sample i reaches from a split or leaf; and the splits there, with w.x."""
        visited = []
        while at >= 0:
            visited.append((at, _dot(w[at], self.x[i])))
            at = self.child[at][int(visited[-1][1] >= 0)]
        return -1 - at, visited

    def worst(self, w, losses, i):
        """Returns the loss, the largest term of the bound, its leaf, the split that is flipped and its sign.

        Of equal terms the first is taken: that of the path itself, then those of the splits from the root.
        """
        leaf, visited = self.path(w, i, self.root)
        loss = worst = losses.loss(leaf, i)
        split, sign = -1, 0
        for at, p in visited:
            right = int(p >= 0)
            other, _ = self.path(w, i, self.child[at][1 - right])
            # g differs from h at one split: g.Wx - h.Wx = -2 |p|.
            term = losses.loss(other, i) - 2 * abs(p)
            if term > worst:
                worst, leaf, split, sign = term, other, at, 2 * right - 1
        return loss, worst, leaf, split, sign

    def bound(self, w, theta):
        losses, sums = _Losses(self.labels, self.targets, *theta), (0.0, 0.0)
        for chunk in _chunks(self.n):
            bound = total = 0.0
            for i in chunk:
                loss, worst, *_ = self.worst(w, losses, i)
                bound += float(self.weight[i]) * worst
                total += float(self.weight[i]) * loss
            sums = sums[0] + bound, sums[1] + total
        return sums

    def slopes(self, w, theta, rows):
        losses, total = _Losses(self.labels, self.targets, *theta), 0.0
        of_splits: dict = {}
        of_leaves: dict = {}
        for i in rows:
            _, _, leaf, split, sign = self.worst(w, losses, i)
            weight = float(self.weight[i])
            total += weight
            in_leaf, sums = of_leaves.get(leaf, (0.0, [0.0] * len(theta[0])))
            sums = [a + weight * b for a, b in zip(sums, losses.outputs(i), strict=True)]
            of_leaves[leaf] = in_leaf + weight, sums
            if split >= 0:
                # The gradient of -2 |w.x|.
                slope = of_splits.get(split, np.zeros(w.shape[1], w.dtype))
                of_splits[split] = slope + self.x[i] * w.dtype.type(-2 * sign * weight)
        pulls = [losses.gradient(leaf, *sums) for leaf, sums in of_leaves.items()]
        return Slopes([*of_splits], [*of_splits.values()], [*of_leaves], pulls, total)

    def sums(self, w, n_leaves, n_outputs):
        """Returns weights and weighted outputs of the samples in each leaf, then those of all samples."""
        losses = _Losses(self.labels, self.targets, [0.0] * n_outputs)
        weights, sums = [0.0] * n_leaves, [[0.0] * n_outputs for _ in range(n_leaves)]
        all_weight, all_sums = 0.0, [0.0] * n_outputs
        for i in range(self.n):
            leaf, _ = self.path(w, i, self.root)
            unit, outputs = float(self.weight[i]), losses.outputs(i)
            sums[leaf] = [a + unit * b for a, b in zip(sums[leaf], outputs, strict=True)]
            all_sums = [a + unit * b for a, b in zip(all_sums, outputs, strict=True)]
            weights[leaf] += unit
            all_weight += unit
        return weights, sums, all_weight, all_sums

    def start(self, w, smooth, n_leaves, n_outputs):
        """Returns theta from the samples that reach the leaves."""
        weights, sums, all_weight, all_sums = self.sums(w, n_leaves, n_outputs)
        if self.labels is None:
            return _means(weights, sums, [[a / all_weight for a in all_sums]] * n_leaves)
        share = _smoothing(all_sums, smooth)
        return [_logarithms(total, weight, share) for weight, total in zip(weights, sums, strict=True)]

    def values(self, w, theta):
        """Returns shares of the classes in the leaves, or means; in a leaf without samples those of theta."""
        losses = _Losses(self.labels, self.targets, *theta)
        of_theta = theta if self.labels is None else [[exp(-a) for a in row] for row in losses.table]
        weights, sums, *_ = self.sums(w, *theta.shape)
        return _means(weights, sums, of_theta)


def _means(weights, sums, others):
    """Returns the means of leaves; those of `others` in leaves of weight 0."""
    return [
        [a / weight for a in total] if weight > 0 else other
        for weight, total, other in zip(weights, sums, others, strict=True)
    ]


def refine(trees, samples, judge, schedule, seed, first_tree, history):
    """Writes w, theta and the values of the leaves of some trees, and the bounds of each to its history.

    first_tree: number of the first of these trees in its forest, for its key. history: OUT (n_trees,
    max_rounds + 1).
    """
    n_weights, n_outputs = samples.x.shape[1] + 1, trees.theta.shape[1]
    for m in range(len(trees.first_split) - 1):
        splits, leaves = (slice(*first[m : m + 2]) for first in (trees.first_split, trees.first_leaf))
        child, w, theta = trees.child[splits], trees.w[splits, :n_weights], trees.theta[leaves]
        problem = _TreeProblem(samples, child)
        of_judge = None if judge is None else _TreeProblem(judge, child)
        start = np.array([project(row, schedule.nu) for row in w], w.dtype).reshape(w.shape)
        theta[:] = problem.start(start, schedule.smooth, len(theta), n_outputs)
        key = keys(philox(seed, first_tree + m, 0))[0]
        w[:], theta[:] = whole_trees.descend(problem, of_judge, schedule, key, w, theta, history[m])
        trees.value[leaves] = problem.values(w, theta)


class _Search:
    """Samples of a node, for the coordinate-wise search (Murthy et al. 1994).

    Unlike theirs, a weight does not change if the impurity stays equal.
    """

    def __init__(self, x, node, min_leaf):
        self.x = [[float(a) for a in row] for row in x]
        self.node, self.min_leaf = node, min_leaf

    def values(self, w):
        result = []
        for row in self.x:
            total = 0.0
            for a, b in zip(w, row, strict=True):
                total += a * b
            result.append(total)
        return result

    def score(self, left, left_u, n_left):
        """Returns the score of a split from the sums and the number of samples on the left."""
        if min(n_left, len(self.x) - n_left) < max(self.min_leaf, 1):
            return -math.inf
        return self.node.split_score(left, left_u)

    def left_sums(self, right):
        left = [s for s, side in zip(self.node.samples, right, strict=True) if not side]
        return (*self.node.sums(left), len(left))

    def sides(self, value):
        return self.score(*self.left_sums([a >= 0 for a in value]))

    def best_step(self, value, along):
        """Returns the best score of the sides of value + a along over all a, and that a."""
        right = [b < 0 or (b == 0 and a >= 0) for a, b in zip(value, along, strict=True)]
        left, left_u, n_left = self.left_sums(right)
        turns = sorted(
            ((-a / b + 0.0, i) for i, (a, b) in enumerate(zip(value, along, strict=True)) if b != 0),
            key=lambda turn: turn[0],
        )
        best, step = -math.inf, 0.0
        for (turn, i), (after, _) in itertools.pairwise(turns):
            sign, sample = -1 if along[i] > 0 else 1, self.node.samples[i]
            left = [a + sign * b for a, b in zip(left, self.node.row(sample), strict=True)]
            left_u += sign * self.node.unit.u[sample]
            n_left += sign
            if turn == after:
                continue
            score = self.score(left, left_u, n_left)
            if beats(score, best):
                middle = turn / 2 + after / 2
                best, step = score, middle if turn <= middle < after else turn
        return best, step

    def climb(self, w, value, score):
        idle = cycle = 0
        while cycle < CYCLES and idle < len(w):
            for j in range(len(w)):
                if idle == len(w):
                    break
                along = [row[j] for row in self.x]
                better, step = self.best_step(value, along)
                idle += 1
                if beats(better, score):
                    score, idle = better, 0
                    w[j] += step
                    value = [a + step * b for a, b in zip(value, along, strict=True)]
            cycle += 1
        return value, score

    def fit(self, w, n_restarts, n_jumps, key):
        def drawn(number, stream):
            stream_key = keys(philox(key, number, stream))[0]
            return [2 * unit(philox(stream_key, j, stream)) - 1 for j in range(len(w))]

        best, best_w, jumps = -math.inf, list(w), 0
        for restart in range(n_restarts + 1):
            now = drawn(restart, RESTART) if restart else list(w)
            value = self.values(now)
            value, score = self.climb(now, value, self.sides(value))
            failed = 0
            while failed < n_jumps:
                direction = drawn(jumps, JUMP)
                jumps += 1
                along = self.values(direction)
                better, step = self.best_step(value, along)
                if not beats(better, score):
                    failed += 1
                    continue
                now = [a + step * b for a, b in zip(now, direction, strict=True)]
                value = [a + step * b for a, b in zip(value, along, strict=True)]
                value, score = self.climb(now, value, better)
                failed = 0
            if restart == 0 or beats(score, best):
                best, best_w = score, now
        largest = max(abs(a) for a in best_w)
        return [a / largest if largest > 0 else 0.0 for a in best_w]


def fit_oc1(samples, n_outputs, criterion, min_leaf, least_weight, search, key, w):
    """Writes the best w of coordinate-wise searches from w and from random starts, in place."""
    x, labels, targets, weight = samples
    tree = Tree(None, labels, targets, n_outputs, weight, criterion)
    tree.least_weight = least_weight
    numbers = list(range(len(x)))
    node = Node(tree, numbers, tree.unit_of(numbers))
    w[:] = _Search(x, node, min_leaf).fit([float(a) for a in w], search.restarts, search.jumps, key)


def grow(x, bins, objective, max_features, schedule, search, batch):
    """Appends the trees of a batch to `batch.trees` (OUT), as `grow_projected` of growth does."""
    (labels, targets, n_outputs, _), _, _, limits, *_ = objective
    min_leaf, real = limits.min_samples_leaf, x.dtype.type
    kinds = kinds_of(bins)
    with_offset = np.concatenate([x, np.full((len(x), 1), -1, x.dtype)], axis=1)

    def split(node, key):
        samples = node.samples
        columns = bins.low, bins.high, x.dtype, kinds
        start = best_column(node, key, *columns, max_features, min_leaf, "best")
        if start is None:
            return None
        w = np.zeros(x.shape[1] + 1, x.dtype if search is None else np.float64)
        w[start.column], w[-1] = 1, start.threshold
        if search is None:
            here = (
                with_offset[samples],
                None if labels is None else labels[samples],
                None if targets is None else targets[samples],
                node.tree.weight[samples],
            )
            thetas = np.zeros((2, n_outputs))
            fit_stump(here, schedule, key, (w, *thetas), np.zeros(schedule.max_rounds + 1))
        else:
            start_w = [float(a) for a in w]
            found = _Search(with_offset[samples], node, min_leaf).fit(
                start_w, search.restarts, search.jumps, key
            )
            w = np.array(found).astype(x.dtype)
        index = [int(j) for j in np.flatnonzero(w[:-1])]
        factor = [float(w[j]) for j in index]
        limit = np.nextafter(w[-1], real(-np.inf))
        right = {}
        for s in samples:
            value = 0.0
            for j, a in zip(index, factor, strict=True):
                value += a * float(x[s, j])
            right[s] = bool(real(value) > limit)
        left = [s for s in samples if not right[s]]
        if not index or min(len(left), len(samples) - len(left)) < min_leaf:
            return start
        score = node.split_score(*node.sums(left))
        if score == -math.inf:
            return start
        return Split((index, factor), lambda s: not right[s], node.gain(score), float(limit))

    grow_batch(split, bins.bins, objective, batch, x.dtype, True, False)
