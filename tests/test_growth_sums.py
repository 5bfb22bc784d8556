"""Splits against exact rational numbers: sums of integers in units pick the best split of a node (docs/growth.md)."""

import math
from fractions import Fraction

import numpy as np
import pytest

import hforest
from hforest.growth.reference import units


def targets_of(kind, rng, n):
    """Returns targets, and weights or None, of a kind that is hard on sums in float64."""
    t, w = rng.normal(size=n), None
    if kind == "tiny":
        t = t * 1e-30
    elif kind == "huge":
        t = t * 1e30
    elif kind == "offset":
        t = t + 1e9
    elif kind == "lognormal":
        t = np.exp(8 * t)
    elif kind == "outlier":
        t = np.where(np.arange(n) == rng.integers(n), 1e12, rng.integers(0, 3, n) + 1.0)
    elif kind == "weights":
        w = 10.0 ** rng.uniform(-6, 6, n)
    elif kind == "outputs":
        t = np.stack([t, np.exp(4 * t), t + 1e6], axis=1)
    return t, w


def exact_gain(left, right):
    """Returns the gain of a split by squared error, from rows (weight, targets) of rationals."""

    def between(rows):
        weight = sum(w for w, _ in rows)
        sums = [sum(w * t[k] for w, t in rows) for k in range(len(rows[0][1]))]
        return sum(s * s for s in sums) / weight

    return between(left) + between(right) - between(left + right)


def exact_score(criterion, left, right):
    """Returns the score of a split of labels: of entropy in float64, from exact weights of classes."""

    def side(rows):
        weight, of_class = Fraction(0), {}
        for w, label in rows:
            weight += w
            of_class[label] = of_class.get(label, 0) + w
        if criterion == "gini":
            return sum(a * a for a in of_class.values()) / weight
        return sum(float(a) * math.log2(a) for a in of_class.values()) - float(weight) * math.log2(weight)

    return side(left) + side(right)


def regrets(forest, x, rows, score):
    """Returns the relative regret of the split of each node: what the best one scores more, by exact scores."""
    found = []
    pending = [(0, np.arange(len(x)))]
    while pending:
        v, samples = pending.pop()
        if forest.feature[v] < 0:
            continue
        right = x[samples, forest.feature[v]] > forest.threshold[v]
        sides = samples[~right], samples[right]
        pending += [(forest.left[v] + k, side) for k, side in enumerate(sides)]
        chosen = score(*([rows[s] for s in side] for side in sides))
        best = chosen
        for f in range(x.shape[1]):
            order = samples[np.argsort(x[samples, f], kind="stable")]
            for i in range(1, len(order)):
                if x[order[i - 1], f] < x[order[i], f]:
                    best = max(best, score([rows[s] for s in order[:i]], [rows[s] for s in order[i:]]))
        found.append(float((best - chosen) / best) if best else 0.0)
    return found


def regression(kind, seed, n=40):
    """Returns the regrets of the splits of one tree."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    t, w = targets_of(kind, rng, n)
    forest = hforest.grow(
        x, t, 1, task="regression", bootstrap=False, max_features=None, sample_weight=w, rng=0
    )
    weights = [Fraction(1)] * n if w is None else [Fraction(float(a)) for a in w]
    rows = [(a, [Fraction(float(b)) for b in row]) for a, row in zip(weights, t.reshape(n, -1), strict=True)]
    return regrets(forest, x, rows, exact_gain)


KINDS = "plain", "tiny", "huge", "offset", "lognormal", "outlier", "weights", "outputs"


@pytest.mark.parametrize("kind", KINDS)
def test_splits_are_the_best_by_exact_sums(kind):
    found = [regret for seed in range(3) for regret in regression(kind, seed)]
    assert len(found) > 60
    assert max(found) <= 1e-12
    assert sum(regret > 0 for regret in found) <= 2


@pytest.mark.parametrize("kind", ["plain", "lognormal", "outlier", "weights"])
def test_splits_with_the_bits_of_large_data(kind, monkeypatch):
    # Sums over 10**8 samples leave 21 bits less for a sample than sums over 40.
    monkeypatch.setattr(units, "UNIT_BITS", units.UNIT_BITS - 21)
    with hforest.using("reference"):
        found = [regret for seed in range(2) for regret in regression(kind, seed, 30)]
    assert max(found) <= 1e-6


@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_weighted_splits_of_labels_are_the_best(criterion):
    found = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, y, w = rng.normal(size=(60, 2)), rng.integers(0, 3, 60), 10.0 ** rng.uniform(-3, 3, 60)
        forest = hforest.grow(
            x, y, 1, bootstrap=False, max_features=None, sample_weight=w, criterion=criterion, rng=0
        )
        rows = [(Fraction(float(a)), int(label)) for a, label in zip(w, y, strict=True)]
        found += regrets(forest, x, rows, lambda left, right: exact_score(criterion, left, right))
    assert len(found) > 60
    assert max(found) <= 1e-12


def test_an_outlier_needs_units_of_nodes(monkeypatch):
    # With the unit of the root alone, an outlier leaves no bits for the others: the test above can fail.
    monkeypatch.setattr(units, "is_narrow", lambda unit, spread, heaviest: False)
    monkeypatch.setattr("hforest.growth.reference.node_samples.is_narrow", units.is_narrow)
    monkeypatch.setattr(units, "UNIT_BITS", 40)
    with hforest.using("reference"):
        found = [regret for seed in range(2) for regret in regression("outlier", seed)]
    assert max(found) > 1e-3
