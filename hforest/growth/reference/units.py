"""Targets and weights as integers (docs/growth.md, "Sums"): the reference implementation of units.h.

A unit (c, k, m) turns the samples i of a node, with in-bag counts b, weights w and targets t, into

    u_i = max(1, round(b_i w_i 2**m))
    q_i = round(b_i w_i (t_i - c) 2**k)

Only extremes and sums of integers make a unit, so no order changes it. All
weights are products b w.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ...core.launch import numbers
from ...core.scores import LABEL_ENTROPY, POISSON

UNIT_BITS, NARROWED = numbers("growth/units.h", "HF_UNIT_BITS", "HF_NARROWED")


class Unit(NamedTuple):
    """A unit, and the samples of the node in which it was made as integers."""

    c: list[float]
    """Centre of each output; empty for classification."""
    k: int
    """Exponent of targets."""
    m: int
    """Exponent of weights."""
    q: dict[int, list[int]]
    """Targets by sample, an integer for each output."""
    u: dict[int, int]
    """Weights by sample."""
    spread: float
    """Greatest range of q over the outputs."""
    heaviest: float
    """Greatest weight u of the samples."""


def are_whole(weights):
    """Returns whether weights are integers whose sums are exact in float64."""
    return all(w == math.floor(w) for w in weights) and len(weights) * max(weights) < 2**53


def middle(least: float, greatest: float) -> float:
    """Returns the middle of the targets of a node; the target itself if all are equal."""
    return least if least == greatest else least / 2 + greatest / 2


def exponent(n: float, a: float) -> int:
    """Returns e with n a 2**e < 2**62; 0 if a is 0."""
    return UNIT_BITS - math.frexp(n * a)[1] if a > 0 else 0


def spare_bits(total: int) -> int:
    """Returns how many bits a sum of absolute values leaves free: what an exponent is raised by."""
    return UNIT_BITS - 1 - total.bit_length()


def to_integer(a, e):
    """Returns a 2**e, rounded to the nearest integer, to the even one of two."""
    return round(math.ldexp(a, e))


def weights_in_unit(weight, m):
    """Returns u of weights by sample."""
    return {s: max(1, to_integer(w, m)) for s, w in weight.items()}


def targets_in_unit(weight, targets, c, k):
    """Returns q of targets by sample."""
    return {
        s: [to_integer(w * (t - centre), k) for t, centre in zip(targets[s], c, strict=True)]
        for s, w in weight.items()
    }


def sums_of(rows, n_outputs):
    """Returns the sum of integers by output."""
    rows = list(rows)
    return [sum(row[j] for row in rows) for j in range(n_outputs)]


def spread_of(q, u, n_outputs, whole):
    """Returns the greatest range of q over the outputs: A of docs/growth.md."""
    samples = list(q)
    if whole:
        columns = ([q[s][j] for s in samples] for j in range(n_outputs))
        return float(max(max(column) - min(column) for column in columns))
    mean = means(sums_of(q.values(), n_outputs), sum(u.values()))
    return max(abs(distance(q[s][j], u[s], mean[j])) for s in samples for j in range(n_outputs))


def means(q, u):
    """Returns the mean of each output in a unit, from sums."""
    return [float(a) / float(u) for a in q]


def distance(q, u, mean):
    """Returns the distance of the targets of a branch from the mean of its node."""
    return float(q) - mean * float(u)


def unit_of_weights(weight, whole):
    """Returns (m, u) of the weights of a node."""
    if whole:
        return 0, weights_in_unit(weight, 0)
    m = exponent(len(weight), max(weight.values()))
    m += spare_bits(sum(weights_in_unit(weight, m).values()))
    return m, weights_in_unit(weight, m)


def unit_of_labels(weight, whole):
    """Returns the unit of a node of labels."""
    m, u = unit_of_weights(weight, whole)
    return Unit([], 0, m, {}, u, 0.0, float(max(u.values())))


def unit_of_targets(weight, targets, n_outputs, whole, from_0=False):
    """Returns the unit of a node of targets, by sample lists of n_outputs numbers.

    from_0: the centre of each output is 0.
    """
    m, u = unit_of_weights(weight, whole)
    n, outputs = len(weight), range(n_outputs)

    def greatest_product(c):
        return max(abs(w * (targets[s][j] - c[j])) for s, w in weight.items() for j in outputs)

    c = [0.0] * n_outputs
    if not from_0:
        c = [middle(*(f(targets[s][j] for s in weight) for f in (min, max))) for j in outputs]
        k = exponent(n, greatest_product(c))
        total = sums_of(targets_in_unit(weight, targets, c, k).values(), n_outputs)
        c = [value(c[j], k, m, total[j], sum(u.values())) for j in outputs]
    k = exponent(n, greatest_product(c))
    q = targets_in_unit(weight, targets, c, k)
    sizes = (sum(abs(row[j]) for row in q.values()) for j in outputs)
    most = max(sizes)
    k += spare_bits(most) if most else 0
    q = targets_in_unit(weight, targets, c, k)
    return Unit(c, k, m, q, u, spread_of(q, u, n_outputs, whole), float(max(u.values())))


def with_samples(unit, weight, targets):
    """Returns a unit that was made from other samples, with the samples of a node, by sample."""
    q = targets_in_unit(weight, targets, unit.c, unit.k)
    return unit._replace(q=q, u=weights_in_unit(weight, unit.m))


def value(c: float, k: int, m: int, q: int, u: int) -> float:
    """Returns the mean of an output from sums in a unit."""
    return c + math.ldexp(float(q) / float(u), m - k)


def gain_in_unit(criterion: int, score: float, k: int, m: int) -> float:
    """Returns the decrease of the impurity of targets by a split, from its score in a unit."""
    if criterion == POISSON:
        return float(np.ldexp(score * math.log(2), -k))
    return float(np.ldexp(score, -k if criterion == LABEL_ENTROPY else m - 2 * k))


def is_narrow(unit: Any, spread: float, heaviest: float) -> bool:
    """Returns whether a node below that of a unit gets a unit of its own."""
    return math.ldexp(spread, NARROWED) < unit.spread or math.ldexp(heaviest, NARROWED) < unit.heaviest
