"""The values of a leaf, from totals over its samples: the reference implementation of leaf.h."""

from ...core.launch import numbers
from .units import value

LEAF_VALUES, LEAF_TOTALS = numbers("growth/leaf.h", "HF_LEAF_VALUES", "HF_LEAF_TOTALS")
"""Numbers of values and of totals of a leaf for each class or output."""


def add_to_leaf(totals: list[int], q: int, u: int) -> list[int]:
    """Returns the totals of an output with one more sample: target q and weight u in the unit of the leaf."""
    return [totals[0] + q, totals[1] + u]


def class_totals(q: int, u: int) -> list[int]:
    """Returns the totals of a class, from the weights of its samples and of all samples of the leaf."""
    return [q, u]


def leaf_values(totals: list[int], c: float, k: int, m: int) -> list[float]:
    """Returns the values of a class, or of an output whose totals are in the unit (c, k, m)."""
    return [value(c, k, m, totals[0], totals[1])]


def leaf_of_classes(weights: list[int]) -> list[float]:
    """Returns the row of a leaf, from the weights of the classes."""
    return _row([leaf_values(class_totals(q, sum(weights)), 0.0, 0, 0) for q in weights])


def leaf_of_targets(totals: list[list[int]], c: list[float], k: int, m: int) -> list[float]:
    """Returns the row of a leaf, from the totals and centres of the outputs."""
    return _row([leaf_values(*of_output, k, m) for of_output in zip(totals, c, strict=True)])


def _row(values: list[list[float]]) -> list[float]:
    """Returns values by class or output in the order of a row: the first of each, then the second of each."""
    return [a for several in zip(*values, strict=True) for a in several]
