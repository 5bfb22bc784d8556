"""Units of nodes with rows in several parts, from extremes and sums of integers (docs/growth.md, "Sums")."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...core.aliases import FloatArray, IntArray
from ..reference.units import exponent, middle, spare_bits, value
from ..trees import RootUnits

_NONE = -4096
"""Exponent of a unit in which every target is 0."""


class Unit(NamedTuple):
    """Unit of a node: a row of `RootUnits`."""

    centre: FloatArray
    exponent: int
    spread: float
    heaviest: float


class Measures(NamedTuple):
    """Extremes and sums over the rows of nodes, given centres and exponents."""

    distance: FloatArray
    """(n_nodes,): greatest |weight (target - centre)| over the outputs."""
    heaviest: FloatArray
    """(n_nodes,): greatest weight."""
    least: FloatArray
    """(n_nodes, n_outputs): least target."""
    greatest: FloatArray
    spread: FloatArray
    """(n_nodes,): greatest range over the outputs of targets in units."""
    sums: IntArray
    """(n_nodes, n_outputs): sums of targets in units."""
    sizes: IntArray
    """(n_nodes,): greatest sum over the outputs of their absolute values."""


Measure = Callable[[FloatArray, IntArray], Measures]
"""measure(centre, exponent): measures of some nodes in all parts."""


def no_unit(n_outputs: int) -> Unit:
    """Returns the unit of a node that needs another one."""
    return Unit(np.zeros(n_outputs), _NONE, np.inf, np.inf)


def merged(of_parts: list[tuple[FloatArray, IntArray]]) -> Measures:
    """Returns the measures of nodes from those of each part; see `levels.in_units`."""
    maxima = np.max([maxima for maxima, _ in of_parts], axis=0)
    sums = np.stack([sums for _, sums in of_parts])
    half = sums.shape[2] // 2
    q_greatest, q_least = np.split(sums[:, :, :half].max(axis=0), 2, axis=1)
    total, sizes = np.split(sums[:, :, half:].sum(axis=0), 2, axis=1)
    greatest, least = np.split(maxima[:, 2:], 2, axis=1)
    spread = (q_greatest + q_least).max(axis=1).astype(np.float64)
    return Measures(maxima[:, 0], maxima[:, 1], -least, greatest, spread, total, sizes.max(axis=1))


def _each(function: Callable[..., float], dtype: str, *arrays: IntArray | FloatArray | int) -> FloatArray:
    """Returns the results of a function of numbers for all elements of arrays."""
    results: FloatArray = np.frompyfunc(function, len(arrays), 1)(*arrays).astype(dtype)
    return results


def made(
    measure: Measure, n_outputs: int, n: IntArray, weight: IntArray, from_0: np.ndarray
) -> tuple[RootUnits, IntArray]:
    """Returns units of nodes that are made from their own rows, and the sums of their targets.

    n, weight: (n_nodes,) numbers and weights of their rows. from_0: (n_nodes,) bool, whether centres are 0.
    """
    none = np.full(len(n), _NONE, np.int64)
    seen = measure(np.zeros((len(n), n_outputs)), none)
    centre = _each(middle, "f8", seen.least, seen.greatest)
    k = _each(exponent, "i8", n, measure(centre, none).distance)
    centre = _each(value, "f8", centre, k[:, None], 0, measure(centre, k).sums, weight[:, None])
    centre[from_0] = 0
    k = _each(exponent, "i8", n, measure(centre, none).distance)
    k += [spare_bits(a) if a else 0 for a in measure(centre, k).sizes.tolist()]
    found = measure(centre, k)
    return RootUnits(centre, k, found.spread, found.heaviest), found.sums
