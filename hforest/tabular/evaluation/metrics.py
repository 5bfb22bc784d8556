"""Losses of predictions, with 95 % intervals over rows, and their calibration and confusion."""

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np

from ...core import roc, series
from ...core.aliases import FloatArray, IntArray

Z = 1.959964
"""95 % of the normal distribution lie within Z deviations."""
LEAST = 1e-15
"""Least probability in a log loss."""
N_BINS = 10
"""Number of bins of a calibration."""
MOST_CLASSES = 100
"""Maximum number of classes of an AUC."""


def wilson(k: float, n: float) -> tuple[float, float]:
    """Returns the 95 % interval of a share of which k of n rows were counted (Wilson 1927)."""
    share, z2 = k / n, Z**2 / n
    middle, half = share + z2 / 2, Z * np.sqrt(share * (1 - share) / n + z2 / n / 4)
    return max(0.0, float((middle - half) / (1 + z2))), min(1.0, float((middle + half) / (1 + z2)))


def normal(values: FloatArray) -> tuple[float, float]:
    """Returns the 95 % interval of the mean of values, by the normal distribution."""
    half = Z * values.std() / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


# ------------------------------------------------------------------------------------ losses of rows


def log_losses(p: FloatArray, y: IntArray, least: float = LEAST) -> FloatArray:
    """Returns (n_rows,): minus the logarithm of the probability of each label; `y` are columns of p."""
    return -series.log(np.maximum(p[np.arange(len(y)), y], least))


def squared_errors(p: FloatArray, y: FloatArray) -> FloatArray:
    """Returns (n_rows,): the squared error of each row, the mean over outputs."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(((p.reshape(len(p), -1) - y.reshape(len(p), -1)) ** 2).mean(axis=1))


# --------------------------------------------------------------------------------------- classes


class Calibration(NamedTuple):
    """Probabilities of predicted classes, in bins of equal width, and the shares of right predictions.

    All fields have an entry for each bin that has rows.
    """

    mean: FloatArray
    """Mean probability of the predicted class."""
    share: FloatArray
    """Share of right predictions."""
    low: FloatArray
    """Low end of the 95 % interval of `share`."""
    high: FloatArray
    """High end of the 95 % interval of `share`."""
    n_rows: IntArray
    """Number of rows."""

    @property
    def error(self) -> float:
        """Returns the expected calibration error (Guo et al. 2017, eq. 3): the mean over rows of
        ``|share - mean|``."""
        return float(self.n_rows @ abs(self.share - self.mean) / self.n_rows.sum())


def calibration(p: FloatArray, y: IntArray, n_bins: int = N_BINS) -> Calibration:
    """Returns the calibration of probabilities p (n_rows, n_classes); y < 0 are labels that are no class."""
    sure, right = p.max(axis=1), p.argmax(axis=1) == y
    bins = np.clip(np.nan_to_num(n_bins * sure), 0, n_bins - 1).astype(int)
    n = np.bincount(bins, minlength=n_bins)
    some = n > 0
    mean, share = (np.bincount(bins, a, n_bins)[some] / n[some] for a in (sure, right))
    ends = np.array([wilson(k, m) for k, m in zip(share * n[some], n[some], strict=True)]).reshape(-1, 2)
    return Calibration(mean, share, ends[:, 0], ends[:, 1], n[some])


def confusion(p: FloatArray, y: IntArray) -> IntArray:
    """Returns (n_classes, n_classes) numbers of rows of each true class (a row) and predicted class."""
    n, known = p.shape[1], y >= 0
    return np.bincount(y[known] * n + p[known].argmax(axis=1), minlength=n * n).reshape(n, n)


def auc(p: FloatArray, y: IntArray) -> float:
    """Returns the area under the ROC; of several classes the mean over pairs (Hand and Till 2001, eq. 7).

    The score of a pair of classes is the probability of one of them, among rows of the two; both count half.
    NaN unless two classes occur, at most MOST_CLASSES.
    """
    if p.shape[1] == 2:
        return roc.auc(p[:, 1], y) if 0 < y.sum() < len(y) else np.nan
    labels, places = np.unique(y, return_inverse=True)
    areas = []
    for i, j in combinations(range(len(labels)), 2) if len(labels) <= MOST_CLASSES else ():
        both = np.flatnonzero((places == i) | (places == j))
        first = places[both] == i
        areas += [roc.auc(p[both, labels[i]], first), roc.auc(p[both, labels[j]], ~first)]
    return float(np.mean(areas)) if areas else np.nan


def _auc_interval(score: FloatArray, y: IntArray) -> tuple[float, float]:
    """Returns the 95 % interval of the AUC of two classes (DeLong et al. 1988, eq. 4 to 6)."""
    ones, zeros = np.sort(score[y == 1]), np.sort(score[y == 0])
    area, variance = roc.auc(score, y), 0.0
    for some, others in ((ones, zeros), (zeros, ones)):
        below = np.searchsorted(others, some) + np.searchsorted(others, some, "right")
        variance += (below / (2 * len(others))).var() / len(some)
    half = Z * np.sqrt(variance)
    return max(0.0, area - half), min(1.0, area + half)


# ---------------------------------------------------------------------------------------- metrics


class Metric(NamedTuple):
    """A figure of predictions."""

    name: str
    value: float
    low: float = np.nan
    """Low end of the 95 % interval over rows; NaN if there is none."""
    high: float = np.nan


def of_classes(p: FloatArray, y: IntArray) -> Iterator[Metric]:
    """Yields metrics of probabilities; y (n_rows,) are columns of p, negative for labels that are no class.

    All but the error are of rows whose labels are classes.
    """
    wrong = p.argmax(axis=1) != y
    yield Metric("error", float(wrong.mean()), *wilson(float(wrong.sum()), len(wrong)))
    p, y = p[y >= 0], y[y >= 0]
    if not len(y):
        return
    losses = log_losses(p, y)
    low, high = normal(losses)
    yield Metric("log loss", float(losses.mean()), max(0.0, low), high)
    area = auc(p, y)
    if np.isfinite(area):
        yield Metric("AUC", area, *(_auc_interval(p[:, 1], y) if p.shape[1] == 2 else ()))
    yield Metric("calibration error", calibration(p, y).error)


def of_targets(p: FloatArray, y: FloatArray) -> Iterator[Metric]:
    """Yields metrics of predicted targets; with several outputs means over them."""
    p, y = p.reshape(len(p), -1), y.reshape(len(p), -1)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        squared = squared_errors(p, y)
        low, high = normal(squared)
        mean = float(squared.mean())
        yield Metric("mean squared error", mean, max(0.0, low), high)
        yield Metric("RMSE", mean**0.5, max(0.0, low) ** 0.5, high**0.5)
        away = abs(p - y).mean(axis=1)
        low, high = normal(away)
        yield Metric("mean absolute error", float(away.mean()), max(0.0, low), high)
        yield Metric("R2", float(1 - np.mean(((p - y) ** 2).mean(axis=0) / y.var(axis=0))))
