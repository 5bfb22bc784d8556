"""Losses of the margin, and the sample weights that they give (Schulter et al. 2013)."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from ..core import check, losses, series, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray

Loss = tuple[Callable[[FloatArray], ArrayLike], Callable[[FloatArray], ArrayLike]]
"""Value and derivative, functions of margins (n_samples,)."""

Name = Literal["exponential", "logistic"]

NAMED: dict[str, Loss] = {
    "exponential": (lambda m: series.exp(-m), lambda m: -series.exp(-m)),
    "logistic": (lambda m: series.log1p(series.exp(-m)), lambda m: -1 / (1 + series.exp(m))),
}
"""Losses by name; margins are -1 to 1, so none overflows."""

LEAST = 2.0**-40
"""Least weight of a sample, as a share of the largest: every sample stays in its node."""

_MOST = 1e100
"""Bound of losses and slopes, so that sums of their products with weights do not overflow."""


def check_loss(loss: Name | Loss) -> Loss:
    """Returns the pair of functions of a loss."""
    if isinstance(loss, str):
        return NAMED[str(check.choice("loss", loss, tuple(NAMED)))]
    return losses.pair_of_functions("loss", loss, "margin", f"{', '.join(map(repr, NAMED))} or ")


def margins(predicted: FloatArray, labels: IntArray) -> FloatArray:
    """Returns (n_samples,) float64: the share of each sample's class less the largest other share."""
    if predicted.shape[1] == 1:
        return np.ones(len(labels))
    shares, samples = predicted.astype(np.float64), np.arange(len(labels))
    of_label = shares[samples, labels]
    shares[samples, labels] = -np.inf
    return of_label - shares.max(axis=1)


def _called(loss: Loss, k: int, margin: FloatArray) -> FloatArray:
    """Returns the values (k = 0) or slopes (k = 1) of a loss at margins."""
    name = f"loss[{k}]"
    numbers = supervised.real(name, loss[k](margin.copy()))
    remedy = "return a number for each margin"
    shape = f"shape (n_samples,) = {margin.shape}"
    check.require(numbers.shape == margin.shape, name, shape, numbers.shape, remedy)
    result = supervised.converted_numbers(numbers, np.dtype(np.float64))
    if not (abs(result) <= _MOST).all():
        raise ValueError(
            f"{name}: expected numbers from {-_MOST:g} to {_MOST:g}, got {result.min():g} to "
            f"{result.max():g}; correct the function"
        )
    return result


def mean_loss(loss: Loss, margin: FloatArray, sample_weight: FloatArray) -> float:
    """Returns the mean loss over weighted samples."""
    values = _called(loss, 0, margin)
    return math.fsum((values * sample_weight).tolist()) / math.fsum(sample_weight.tolist())


def weights(loss: Loss, margin: FloatArray, sample_weight: FloatArray) -> FloatArray | None:
    """Returns the weights of a level (Schulter et al. 2013), (n_samples,) float64; None if all slopes are 0.

    They are |slope| times sample_weight, with the sum of sample_weight. Sums are rounded once, so that no
    order of samples changes them.
    """
    slope = abs(_called(loss, 1, margin))
    most = slope[sample_weight > 0].max()
    if most == 0:
        return None
    product = np.clip(slope / most, LEAST, 1.0) * sample_weight
    return product * (math.fsum(sample_weight.tolist()) / math.fsum(product.tolist()))


class Weights:
    """The sample weights of each level of a growing forest."""

    def __init__(self, loss: Loss, least: float | None, sample_weight: FloatArray, labels: IntArray) -> None:
        self.loss, self.sample_weight, self.labels = loss, sample_weight, labels
        self.least = least
        """Least decrease of the mean loss by a level; None: any."""
        self._before: float | None = None
        self._is_first = True

    def of_level(self, predicted: Callable[[], FloatArray]) -> FloatArray | None:
        """Returns the weights (n_samples,) of the next level; None: growth ends.

        predicted: returns shares of the classes (n_samples, n_classes), by the nodes of the levels so far.
        """
        is_first, self._is_first = self._is_first, False
        if is_first and self.least is None:
            return self.sample_weight
        margin = margins(predicted(), self.labels)
        if self.least is not None:
            before, self._before = self._before, mean_loss(self.loss, margin, self.sample_weight)
            if before is not None and before - self._before < self.least:
                return None
        return self.sample_weight if is_first else weights(self.loss, margin, self.sample_weight)
