"""Scores of splits for the reference implementations, with the operations and the order of score.h."""

import math

ENTROPY = 1
"""The number of the criterion; 0 is Gini, 2 the squared error."""


def log2(a: float) -> float:
    """Returns log2 of a positive number, by the steps of score.h."""
    m, e = math.frexp(a)
    if m < 0.70710678118654752:
        m, e = 2 * m, e - 1
    s = (m - 1) / (m + 1)
    q = s * s
    total = 1.0 / 23
    for k in range(21, 0, -2):
        total = total * q + 1.0 / k
    return e + s * total * 2.8853900817779268


def xlogx(a: float) -> float:
    """Returns a log2 a, 0 for a = 0."""
    return a * log2(a) if a > 0 else 0.0


def node_score(criterion: int, sums: list[float], weight: float) -> float:
    """Returns -W H of a branch of weight W and impurity H, without terms that all splits of a node share."""
    total = 0.0
    if criterion == ENTROPY:
        for c in sums:
            total += xlogx(c)
        return total - xlogx(weight)
    for c in sums:
        total += c * c
    return total / weight
