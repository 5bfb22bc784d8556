"""Reference implementation: the softmax loss, sample by sample (Lay et al. 2018, Fig. 2)."""

import functools
import operator

import numpy as np

from ..core import series
from ..core.launch import numbers

WARP, PARTS = numbers("layers/sums.h", "HF_WARP", "HF_PARTS")


def _in_lanes(terms, n_lanes):
    """Returns n_lanes sums: that of lane i has the terms i, i + n_lanes, and so on, in order."""
    lanes = [0.0] * n_lanes
    for i, term in enumerate(terms):
        lanes[i % n_lanes] += term
    return lanes


def _sum(terms):
    """Returns the sum of a sample's terms: lanes, then the lanes in order."""
    return functools.reduce(operator.add, _in_lanes(terms, WARP))


def softmax_loss(scores, labels):
    """Returns the mean loss of at least one sample, and its gradient (n_samples, n_classes)."""
    n, losses, grad = len(scores), [], np.empty_like(scores)
    with np.errstate(over="ignore", invalid="ignore"):
        for i, label in enumerate(labels.tolist()):
            shifted = scores[i].astype(np.float64)
            shifted -= shifted.max()
            p = series.exp(shifted)
            total = _sum(p.tolist())
            losses.append(series.log(total) - shifted[label])
            grad[i] = p / (total * n)
            grad[i, label] = (p[label] / total - 1) / n
    parts = _in_lanes(losses, PARTS)
    warps = [_sum(parts[first : first + WARP]) for first in range(0, PARTS, WARP)]
    return float(_sum(warps)) / n, grad
