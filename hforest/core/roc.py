"""The ROC of a score of two classes, and the area under it."""

import numpy as np

from .aliases import FloatArray, IntArray


def rates(score: FloatArray, y: IntArray) -> tuple[FloatArray, FloatArray]:
    """Returns false and true positive rates from (0, 0) to (1, 1), a point for each distinct score."""
    order = np.argsort(-score, kind="stable")
    last = np.flatnonzero(np.concatenate([np.diff(score[order]) != 0, [True]]))
    hits = np.concatenate([[0], np.cumsum(y[order])[last]])
    false = np.concatenate([[0], last + 1]) - hits
    return false / false[-1], hits / hits[-1]


def auc(score: FloatArray, y: IntArray) -> float:
    """Returns the probability that a row of class 1 has a higher score than one of class 0, ties counted half
    (Bamber 1975): the area of trapezoids below the ROC.
    """
    false, true = rates(score, y)
    return float((np.diff(false) * (true[1:] + true[:-1])).sum() / 2)
