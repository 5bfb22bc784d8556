"""Scores of labelled pixels."""

from typing import NamedTuple

import numpy as np

from ..core import check, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray
from ..core.real import real
from . import windows


class Scores(NamedTuple):
    """Scores of labels, from 0 to 1. Averages are over the classes that have pixels."""

    jaccard: FloatArray
    """(n_classes,): tp / (tp + fp + fn) of each class; NaN for a class without pixels."""
    recall: FloatArray
    """(n_classes,): share of the pixels of each class that are right; NaN for a class without pixels."""
    mean_jaccard: float
    """Class average of `jaccard`."""
    mean_recall: float
    """Class average of `recall`, often called class average accuracy."""
    pixels: float
    """Share of all pixels that are right."""


def confusion(
    labels: ArrayLike, predicted: ArrayLike, n_classes: int | None = None, *, void: int | None = None
) -> IntArray:
    """Returns the number of pixels for each label and prediction.

    Parameters
    ----------
    labels : array-like of integers or bools, of any shape
        Labels 0 to n_classes - 1, or void.
    predicted : array-like of integers or bools, of the shape of labels
        Such as `predict_labels` returns: 0 to n_classes - 1; n_classes where a pixel has no window.
    n_classes : int, optional
        Number of classes, at most 2**12; by default the largest label plus 1, and every class must occur.
    void : int, optional
        The label of pixels that are left out.

    Returns
    -------
    (n_classes, n_classes) int64 array
        Row: the label; column: the prediction. Pixels of label void or without a window are not counted. The
        sum over images is what `scores` takes.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> hforest.images.confusion([0, 0, 1, 9], [0, 1, 1, 0], void=9)
    array([[1, 1],
           [0, 1]])
    """
    truth, n_classes = windows.check_labels(labels, n_classes, void)
    check.require(n_classes <= 2**12, "n_classes", "at most 2**12", n_classes, "renumber the classes")
    found, _ = windows.check_labels(predicted, n_classes + 1, None, "predicted")
    check.require(
        found.shape == truth.shape, "predicted", f"shape {truth.shape}, as labels", found.shape,
        "pass a prediction for each label",
    )  # fmt: skip
    counted = (truth >= 0) & (found < n_classes)
    pair = truth[counted].astype(np.int64) * n_classes + found[counted]
    return np.bincount(pair, minlength=n_classes * n_classes).reshape(n_classes, n_classes)


def scores(counts: ArrayLike) -> Scores:
    """Returns Jaccard scores, class averages and the share of pixels from a confusion matrix.

    Parameters
    ----------
    counts : (n_classes, n_classes) array-like of whole numbers
        From `confusion`, or a sum of such; some above 0, all below 2**53.

    Returns
    -------
    Scores
        Per class and averaged.

    Notes
    -----
    Norouzi et al. 2015, section 6.2: ``tp / (tp + fp + fn)``, averaged over classes.

    Examples
    --------
    >>> import hforest
    >>> result = hforest.images.scores([[1, 1], [0, 1]])
    >>> result.jaccard, result.mean_jaccard, result.mean_recall, round(result.pixels, 3)
    (array([0.5, 0.5]), 0.5, 0.75, 0.667)
    """
    check.on_cpu(counts=counts)
    numbers = real("counts", counts)
    remedy = "pass the result of confusion, or a sum of such matrices"
    square = numbers.ndim == 2 and numbers.shape[0] == numbers.shape[1] and numbers.size
    check.require(square, "counts", "shape (n_classes, n_classes)", numbers.shape, remedy)
    a = supervised.converted_numbers(numbers, np.dtype(np.float64))
    low, high = a.min(), a.max()  # NaN where one is
    check.require(low >= 0, "counts", "numbers of at least 0 without NaN", low, remedy)
    check.require(high < 2**53, "counts", "numbers below 2**53", high, remedy)
    check.require((a == np.floor(a)).all(), "counts", "whole numbers", "fractions", remedy)
    right, of_class, said = np.diagonal(a), a.sum(axis=1), a.sum(axis=0)
    check.require(a.any(), "counts", "at least one pixel", "none", "count pixels whose label is not void")
    nan = np.full(len(a), np.nan)
    jaccard = np.divide(right, of_class + said - right, out=nan.copy(), where=of_class + said > 0)
    recall = np.divide(right, of_class, out=nan, where=of_class > 0)
    there = of_class > 0
    mean_jaccard, mean_recall = (float(share[there].mean()) for share in (jaccard, recall))
    return Scores(jaccard, recall, mean_jaccard, mean_recall, float(right.sum() / a.sum()))
