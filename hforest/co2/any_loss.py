"""Splits with a caller's convex loss, a pair of functions, in plain NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core import check, losses, supervised
from ..core.aliases import ArrayLike, FloatArray
from . import checks

Loss = tuple[Callable[..., ArrayLike], Callable[..., ArrayLike]]
"""Value and gradient, functions of theta and y."""

MOST = 1e100
"""Bound of losses and their gradients, so that sums of their products with weights do not overflow."""


def check_pair(loss: object, others: str = "") -> None:
    """Checks that a loss is a pair of functions of theta and y; `others` names other losses."""
    losses.pair_of_functions("loss", loss, "theta, y", others)


class Node:
    """Samples of a node and their loss, for `descend`."""

    def __init__(
        self,
        x: FloatArray,
        y: ArrayLike,
        loss: Loss,
        sample_weight: ArrayLike | None,
        *,
        some_above_0: bool = True,
    ) -> None:
        check.on_cpu(x=x)
        labels = supervised.as_given("y", y)
        check.on_cpu(y=labels)
        check.require(
            labels.ndim and len(labels) == len(x), "y", f"n_samples = {len(x)} rows", f"shape {labels.shape}",
            "pass a row for each sample",
        )  # fmt: skip
        self.weight = checks.weight_of(labels, sample_weight, some_above_0=some_above_0)
        # The functions of a caller get views of y: they cannot change an array of the caller.
        self.x, self.y, self.loss = x, check.owned(labels), loss

    def called(self, k: int, theta: FloatArray, rows: Any) -> FloatArray:
        """Returns losses (k = 0) of some samples on a side, or (k = 1) gradients with respect to theta."""
        y = self.y[rows]
        shape = (len(y), len(theta))[: k + 1]
        if not len(y):
            return np.zeros(shape)
        name = f"loss[{k}]"
        numbers = supervised.real(name, self.loss[k](theta.copy(), y))
        expected = ("(n_samples,)", "(n_samples, n_outputs)")[k]
        remedy = ("return a number for each row of y", "return an array of the shape of theta")[k]
        check.require(numbers.shape == shape, name, f"shape {expected} = {shape}", numbers.shape, remedy)
        result = supervised.converted_numbers(numbers, np.dtype(np.float64))
        if check.values_checked() and not (abs(result) <= MOST).all():
            raise ValueError(
                f"{name}: expected numbers from {-MOST:g} to {MOST:g}, got {result.min():g} to "
                f"{result.max():g} at theta up to {abs(theta).max():g}; lower lr, or correct the function"
            )
        return result

    def _sides(
        self, w: FloatArray, theta: FloatArray, rows: Any
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Returns products w.x, and the terms of eq. 10 of both sides."""
        # einsum has one order of sums for every number of threads.
        p = np.einsum("ij,j->i", self.x[rows], w).astype(np.float64)
        return p, self.called(0, theta[0], rows) - p, self.called(0, theta[1], rows) + p

    def surrogate(self, w: FloatArray, theta: FloatArray, order: Any) -> tuple[float, FloatArray]:
        """Returns eq. 10 over all samples, and the sign of w.x of each."""
        p, left, right = self._sides(w, theta, slice(None))
        return float((self.weight * (np.maximum(left, right) - abs(p))).sum()), np.sign(p)

    def slopes(
        self, w: FloatArray, theta: FloatArray, sign: FloatArray, order: Any
    ) -> tuple[FloatArray, FloatArray, float]:
        weight = self.weight[order]
        _, left, right = self._sides(w, theta, order)
        goes_left = left >= right  # Alg. 1, line 8
        turn = np.where(goes_left, -1 - sign[order], 1 - sign[order])
        slope = np.einsum("i,ij->j", turn * weight, self.x[order]).astype(w.dtype)
        sides = (goes_left, ~goes_left)
        thetas = [
            np.einsum("i,ij->j", weight * side, self.called(1, a, order))
            for a, side in zip(theta, sides, strict=True)
        ]
        return slope, np.array(thetas), float(weight.sum())


def node_and_split(
    x: FloatArray, y: ArrayLike, w: FloatArray, loss: Loss, sample_weight: ArrayLike | None
) -> Node:
    """Returns the samples of positive weight of a node, and the checked initial w."""
    checks.split(x, w)
    node = Node(x, y, loss, sample_weight)
    heavy = node.weight > 0
    if not heavy.all():
        node.x, node.y, node.weight = x[heavy], check.owned(node.y[heavy]), node.weight[heavy]
    return node


def start(theta: ArrayLike | None) -> FloatArray:
    """Returns the initial thetas of a stump, as (2, n_outputs) float64."""
    remedy = "pass an array such as numpy.zeros((2, n_outputs))"
    check.require(theta is not None, "theta", "an array with a loss of your own", None, remedy)
    numbers = supervised.real("theta", theta)
    check.on_cpu(theta=numbers)
    check.require(
        numbers.ndim == 2 and len(numbers) == 2 and numbers.size, "theta", "shape (2, n_outputs)",
        numbers.shape, remedy,
    )  # fmt: skip
    converted = supervised.converted_numbers(numbers, np.dtype(np.float64))
    checks.moderate("theta", converted)
    return converted
