"""Bounds of the values below a node with monotonic constraints, as pairs (least, greatest)."""

import math

Bounds = tuple[float, float]

FREE: Bounds = (-math.inf, math.inf)
"""Bounds of a root."""


def of_children(bounds: Bounds, left: float, right: float, sign: int) -> tuple[Bounds, Bounds]:
    """Returns the bounds of both children of a node: with a sign, the middle of their values lies between."""
    (lower, upper), middle = bounds, left / 2 + right / 2
    if sign > 0:
        return (lower, middle), (middle, upper)
    return ((middle, upper), (lower, middle)) if sign < 0 else (bounds, bounds)


def clipped(row: list[float], bounds: Bounds, *, of_classes: bool) -> list[float]:
    """Returns the row of a leaf of one target or two classes, with its last value within bounds; other rows
    have none."""
    last = min(max(row[-1], bounds[0]), bounds[1])
    if last == row[-1]:
        return row
    return [1 - last, last] if of_classes else [last]
