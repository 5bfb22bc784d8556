"""Checked settings of a step, for this subpackage and for those that fuse the step."""

from typing import NamedTuple

import numpy as np

from ..core import check
from ..core.aliases import FloatArray, IntArray

_MAX_BETA = 0.999999
_MAX_STEP = 2**62

_NORMAL = {dtype: (float(np.finfo(dtype).tiny), float(np.finfo(dtype).max)) for dtype in check.FLOATS}

Settings = tuple[float, float, float, float]
"""lr, beta1, beta2 and eps."""


class Visit(NamedTuple):
    """The rows of a parameter, and of its moments, that a step of Adam visits; arrays have two axes."""

    param: FloatArray
    m: FloatArray
    v: FloatArray
    rows: IntArray
    """(n_given,) int64, ascending and distinct."""
    last: IntArray
    """(n_rows,) int64, the last step of each row."""


def check_rate(lr: float, dtype: np.dtype, beta1: float = 0.0) -> float:
    """Returns `lr` if the dtype can hold it after the correction of the first step; else raises."""
    return check.number("lr", lr, 0.0, float(np.finfo(dtype).max) * (1 - beta1))


def check_decay(weight_decay: float, lr: float) -> float:
    """Returns 1 - lr weight_decay, the factor of a step; raises TypeError or ValueError."""
    shrink = 1 - lr * check.number("weight_decay", weight_decay, 0.0)
    if not shrink > 0:
        raise ValueError(
            f"weight_decay: expected a number below 1 / lr = {1 / lr:g}, got {weight_decay:g}; "
            "choose a smaller one"
        )
    return shrink


def check_adam(
    step: int, lr: float, beta1: float, beta2: float, eps: float, dtype: np.dtype, first: int = 1
) -> tuple[int, Settings]:
    """Returns `step` (at least `first`), and (lr, beta1, beta2, eps); raises TypeError or ValueError."""
    tiny, largest = _NORMAL[dtype]
    numbers = lr, beta1, beta2, eps
    # A fast path for most calls, in a tenth of the time.
    if (
        type(step) is int and first <= step <= _MAX_STEP and {float}.issuperset(map(type, numbers))
        and 0 <= beta1 <= _MAX_BETA and 0 <= beta2 <= _MAX_BETA and 0 <= lr <= largest * (1 - beta1)
        and tiny <= eps <= largest
    ):  # fmt: skip
        return step, numbers
    step = check.integer("step", step, first, _MAX_STEP)
    beta1 = check.number("beta1", beta1, 0.0, _MAX_BETA)
    beta2 = check.number("beta2", beta2, 0.0, _MAX_BETA)
    lr = check_rate(lr, dtype, beta1)
    eps = check.number("eps", eps, 0.0, open_low=True)
    # A smaller eps is 0 in the dtype or has no reciprocal: numbers without gradient would become NaN.
    if not tiny <= eps <= largest:
        raise ValueError(
            f"eps: expected {tiny:g} to {largest:g}, the normal numbers of {dtype}, got {eps:g}; "
            "choose a value in that range, or pass arrays of float64"
        )
    return step, (lr, beta1, beta2, eps)
