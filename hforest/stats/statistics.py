"""Statistics of posteriors and labels, one number per data set."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core import check, roc, series, supervised
from ..core.aliases import Array, ArrayLike, FloatArray, IntArray, Missing
from .problem import float_numbers

_MISSING = ("error", "omit")
Statistic = Callable[[FloatArray, Array], float]
"""statistic(p, y) of posteriors and labels, or of predictions and targets: a number, larger with more
dependence."""


# ------------------------------------------------------------------------------------------- checks


def _rows(name: str, p: ArrayLike, n_columns: str) -> FloatArray:
    numbers = float_numbers(name, p)
    check.require(
        numbers.ndim == 2 and numbers.shape[0] > 0 and numbers.shape[1] > 0, name,
        f"shape (n_samples, {n_columns})", tuple(numbers.shape), "pass Posterior.p",
    )  # fmt: skip
    return numbers


def _voted(p: FloatArray, missing: Missing) -> np.ndarray:
    """Returns which rows have a vote."""
    check.choice("missing", missing, _MISSING)
    voted: Any = ~np.isnan(p).any(axis=1)
    whole = voted | np.isnan(p).all(axis=1)
    check.require(
        whole.all(), "p", "rows without NaN, or of only NaN where no tree votes",
        f"both in row {int((~whole).argmax())}", "pass Posterior.p",
    )  # fmt: skip
    if missing == "error" and not voted.all():
        raise ValueError(
            f"p: expected a vote for every row, got NaN in {int((~voted).sum())} of {len(p)} rows, the first "
            f'{int((~voted).argmax())}; grow more trees, or leave out such rows with missing="omit"'
        )
    check.require(voted.any(), "p", "a vote for at least one row", "only NaN", "grow more trees")
    return voted


def _shares(p: ArrayLike, y: ArrayLike, missing: Missing) -> tuple[FloatArray, IntArray]:
    """Returns the posteriors and labels of the rows that have votes."""
    numbers = _rows("p", p, "n_classes")
    labels, _ = supervised.labels("y", y, len(numbers), numbers.shape[1])
    voted = _voted(numbers, missing)
    numbers, labels = numbers[voted], labels[voted]
    supervised.bounded("p", numbers, 0.0, 1.0)
    return numbers, labels


def _two_classes(p: ArrayLike, y: ArrayLike, missing: Missing) -> tuple[FloatArray, IntArray]:
    p, y = _shares(p, y, missing)
    check.require(
        p.shape[1] == 2, "p", "two classes", p.shape[1],
        "pass numpy.stack([1 - p[:, k], p[:, k]], axis=1) and y == k for one class against the others",
    )  # fmt: skip
    both = bool((y == 0).any() and (y == 1).any())
    check.require(both, "y", "rows of both classes", f"only class {int(y[0])}", "pass rows of both classes")
    return p, y


# --------------------------------------------------------------------------------------- information


def entropy(y: IntArray) -> float:
    """Returns the entropy of the shares of the labels in nats."""
    share = np.bincount(y) / len(y)
    share = share[share > 0]
    return float(-(share * series.log(share)).sum())


def information_of(p: FloatArray, y: IntArray, least: float = 1e-6) -> float:
    of_label = np.maximum(p[np.arange(len(y)), y], least)
    return entropy(y) + float(series.log(of_label).mean())


def information(p: ArrayLike, y: ArrayLike, *, least: float = 1e-6, missing: Missing = "error") -> float:
    """Returns the information of posteriors about labels, in nats: entropy of the labels minus log loss.

    Parameters
    ----------
    p : (n_samples, n_classes) array-like
        Posteriors, 0 to 1, such as `Posterior.p`; NaN in the rows without a vote.
    y : (n_samples,) array-like of labels
        Labels 0 to n_classes - 1 of any integer or bool dtype.
    least : float
        Lower bound of the probability of a row's label, so that no single row dominates; above 0, at most 1.
    missing : "error" or "omit"
        Whether rows without a vote raise a ValueError or are omitted; one row must have votes.

    Returns
    -------
    float
        At most the entropy; below 0 where the shares of the classes predict better than p.

    Notes
    -----
    ``H(Y) + mean(log p[i, y[i]])``, where H(Y) is the entropy of the label shares in y. Its expectation over
    new rows is at most the mutual information of x and y (Cover and Thomas 2006, theorem 2.6.3). Unlike
    `mutual_information`, it does not reward posteriors that are sharp but wrong.

    Examples
    --------
    >>> import hforest
    >>> round(hforest.stats.information([[0.9, 0.1], [0.2, 0.8]], [0, 1]), 3)
    0.529
    """
    least = check.number("least", least, 0.0, 1.0, open_low=True)
    return information_of(*_shares(p, y, missing), least)


def mutual_information_of(p: FloatArray, y: IntArray) -> float:
    log = series.log(np.where(p > 0, p, 1))
    return entropy(y) + float((p * log).sum(axis=1).mean())


def mutual_information(p: ArrayLike, y: ArrayLike, *, missing: Missing = "error") -> float:
    """Returns the plug-in estimate of mutual information in nats, which measures the sharpness of posteriors.

    Parameters: see `information`.

    Returns
    -------
    float
        The entropy of the labels minus the mean entropy of the rows of p.

    Warnings
    --------
    It does not compare p[i] with y[i]: only label shares enter. Posteriors that are sharp and wrong have the
    same value as correct ones; those of few trees or small leaves have larger values. It estimates mutual
    information only if p is calibrated. `information` needs no such condition.

    Notes
    -----
    ``H(Y) - mean_i H(p[i])``, the estimate of Curtis et al. 2025 and of uncertainty forests (Mehta et al.
    2019).

    Examples
    --------
    >>> import hforest
    >>> p = [[1.0, 0.0], [0.0, 1.0]]
    >>> right, wrong = (hforest.stats.mutual_information(p, y) for y in ([0, 1], [1, 0]))
    >>> right == wrong
    True
    """
    return mutual_information_of(*_shares(p, y, missing))


# ------------------------------------------------------------------------------------------- the ROC


def auc_of(p: FloatArray, y: IntArray) -> float:
    return roc.auc(p[:, 1], y)


def auc(p: ArrayLike, y: ArrayLike, *, missing: Missing = "error") -> float:
    """Returns the area under the ROC curve of two classes.

    Other parameters: see `information`.

    Parameters
    ----------
    p : (n_samples, 2) array-like
        Posteriors, 0 to 1, such as `Posterior.p`; NaN in the rows without a vote. ``p[:, 1]`` is the score.
    y : (n_samples,) array-like of labels
        0 or 1, both of which occur.

    Returns
    -------
    float
        0 to 1; 1/2 by chance.

    Notes
    -----
    The probability that a row of class 1 has a larger score than one of class 0, where equal scores count one
    half (Bamber 1975): the area of trapezoids below the ROC, in which equal scores are one step.

    Examples
    --------
    >>> import hforest
    >>> hforest.stats.auc([[0.9, 0.1], [0.5, 0.5], [0.5, 0.5], [0.1, 0.9]], [0, 0, 1, 1])
    0.875
    """
    return auc_of(*_two_classes(p, y, missing))


def sensitivity_of(p: FloatArray, y: IntArray, specificity: float = 0.98) -> float:
    false, true = roc.rates(p[:, 1], y)
    # A specificity of 0.9 of ten rows lets one pass, whatever 1 - 0.9 is rounded to.
    return float(true[false <= 1 - specificity + 1e-12][-1])


def sensitivity(
    p: ArrayLike, y: ArrayLike, *, specificity: float = 0.98, missing: Missing = "error"
) -> float:
    """Returns the sensitivity at a specificity: the largest true positive rate at that true negative rate.

    Other parameters: see `auc`.

    Parameters
    ----------
    specificity : float
        Minimum true negative rate, 0 to 1.

    Returns
    -------
    float
        0 to 1; about ``1 - specificity`` by chance.

    Notes
    -----
    S@98 of Curtis et al. 2025 with the default. Thresholds are the distinct scores: rows of equal score are
    positive together, as in the ROC curve. A tie with too many rows of class 0 is therefore excluded as a
    whole. There is no interpolation between thresholds.

    Examples
    --------
    >>> import hforest
    >>> p = [[0.9, 0.1], [0.6, 0.4], [0.6, 0.4], [0.1, 0.9]]
    >>> [hforest.stats.sensitivity(p, [0, 0, 1, 1], specificity=s) for s in (0.98, 0.5)]
    [0.5, 1.0]
    """
    specificity = check.number("specificity", specificity, 0.0, 1.0)
    return sensitivity_of(*_two_classes(p, y, missing), specificity)


def partial_auc_of(p: FloatArray, y: IntArray, specificity: float = 0.9) -> float:
    false, true = roc.rates(p[:, 1], y)
    most = 1 - specificity
    at = int(np.searchsorted(false, most, side="right"))
    if at < len(false):
        step = false[at] - false[at - 1]
        end = true[at - 1] + (true[at] - true[at - 1]) * (most - false[at - 1]) / step
        false, true = np.append(false[:at], most), np.append(true[:at], end)
    area = float((np.diff(false) * (true[1:] + true[:-1])).sum() / 2)
    chance = most * most / 2
    return (1 + (area - chance) / (most - chance)) / 2


def partial_auc(p: ArrayLike, y: ArrayLike, *, specificity: float = 0.9, missing: Missing = "error") -> float:
    """Returns the area under the ROC curve at high specificity, scaled: 1/2 by chance, 1 at best.

    Other parameters: see `auc`.

    Parameters
    ----------
    specificity : float
        Minimum true negative rate of the region, 0 or more and below 1.

    Returns
    -------
    float
        ``(1 + (A - m) / (M - m)) / 2`` of the area A, where M = 1 - specificity is the largest possible area,
        and m = M**2 / 2 the area below the diagonal.

    Notes
    -----
    McClish 1989. Equal scores are one step of the ROC, a straight line, which ends where the part ends. With
    a specificity of 0 this is `auc`.

    Examples
    --------
    >>> import hforest
    >>> p = [[0.9, 0.1], [0.6, 0.4], [0.5, 0.5], [0.1, 0.9]]
    >>> hforest.stats.partial_auc(p, [0, 0, 1, 1], specificity=0.5)
    1.0
    """
    specificity = check.number("specificity", specificity, 0.0, 1.0)
    check.require(
        specificity < 1, "specificity", "a number below 1", specificity, "pass a number such as 0.9"
    )
    return partial_auc_of(*_two_classes(p, y, missing), specificity)


# ------------------------------------------------------------------------------------- right and near


def accuracy_of(p: FloatArray, y: IntArray) -> float:
    return float((p.argmax(axis=1) == y).mean())


def accuracy(p: ArrayLike, y: ArrayLike, *, missing: Missing = "error") -> float:
    """Returns the share of the rows whose label has the largest posterior.

    Parameters: see `information`.

    Returns
    -------
    float
        0 to 1.

    Notes
    -----
    Of equal posteriors the lowest class is predicted.

    Examples
    --------
    >>> import hforest
    >>> hforest.stats.accuracy([[0.9, 0.1], [0.5, 0.5]], [0, 1])
    0.5
    """
    return accuracy_of(*_shares(p, y, missing))


def mse_of(p: FloatArray, y: FloatArray) -> float:
    return float(((p - y) ** 2).mean())


def mse(p: ArrayLike, y: ArrayLike, *, missing: Missing = "error") -> float:
    """Returns the mean squared error of predictions.

    Other parameters: see `information`.

    Parameters
    ----------
    p : (n_samples, n_outputs) array-like
        Predictions, such as `Posterior.p` of a regression; NaN in the rows without a vote.
    y : (n_samples,) or (n_samples, n_outputs) array-like
        Targets of any real dtype, of absolute value at most 1e100.

    Returns
    -------
    float
        Mean over rows and outputs, in float64. Tests use its negative, which is larger with more dependence.

    Examples
    --------
    >>> import hforest
    >>> hforest.stats.mse([[1.0], [2.0]], [1.0, 4.0])
    2.0
    """
    numbers = _rows("p", p, "n_outputs")
    targets = supervised.targets("y", y, len(numbers))
    check.require(
        targets.shape == numbers.shape, "y", f"n_outputs = {numbers.shape[1]} targets for each row",
        targets.shape[1], "pass one target per column of p",
    )  # fmt: skip
    voted = _voted(numbers, missing)
    numbers = numbers[voted]
    supervised.bounded("p", numbers, -supervised.MAX_WEIGHT, supervised.MAX_WEIGHT)
    return mse_of(numbers, targets[voted])


# -------------------------------------------------------------------------------------- of a test's choice

_OF_CLASSES: dict[str, Statistic] = {
    "information": information_of,
    "accuracy": accuracy_of,
    "mutual_information": mutual_information_of,
}
_OF_TWO: dict[str, Statistic] = {
    "auc": auc_of,
    "sensitivity": sensitivity_of,
    "partial_auc": partial_auc_of,
}
_OF_TARGETS: dict[str, Statistic] = {"mse": lambda p, y: -mse_of(p, y)}


def chosen(statistic: Any, target: supervised.Target, *others: str) -> Statistic | None:
    """Returns the function of a test's argument `statistic`, which is a word or a function.

    None for `others`, words that this test takes beside these.
    """
    if target.labels is None:
        functions = dict(_OF_TARGETS)
    else:
        functions = _OF_CLASSES | (_OF_TWO if target.n_outputs == 2 else {})
    if statistic is None:
        return next(iter(functions.values()))
    if not isinstance(statistic, str):
        check.instance("statistic", statistic, Callable, "a word or a function", "pass a word such as 'auc'")
        check.called_with("statistic", statistic, "p, y", "pass a function of (p, y)")
        return lambda p, y: _number(statistic(p, y))
    return functions.get(check.choice("statistic", statistic, (*functions, *others)))


def _number(value: Any) -> float:
    value = check.scalar(value)
    if not isinstance(value, int | float | np.integer | np.floating) or not np.isfinite(value):
        raise ValueError(
            f"statistic: expected a function that returns a finite number, got {value!r}; return a float"
        )
    return float(value)


class FewVotesError(ValueError):
    """A statistic is not defined: too few rows have votes, or their labels are equal."""


def of_rows(statistic: Statistic, p: FloatArray, y: Any) -> tuple[float, int]:
    """Returns the statistic of the rows that have votes, and their number."""
    voted = ~np.isnan(p).any(axis=1)
    n_rows = int(voted.sum())
    labels = y[voted]
    few = n_rows < 2 or (labels.ndim == 1 and p.shape[1] > 1 and bool((labels == labels[0]).all()))
    if few:
        raise FewVotesError(
            f"n_trees: expected votes for rows of different labels, got votes for {n_rows} rows; grow more "
            "trees"
        )
    return statistic(p[voted], labels), n_rows
