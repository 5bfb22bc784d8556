"""Checks of the settings of a bootstrap."""

import math
from numbers import Real
from typing import Any

import numpy as np

from . import check

__all__ = ["number_of_draws"]


def number_of_draws(max_samples: Any, total: float) -> int | None:
    """Returns the number of draws for `max_samples`: an int itself, a fraction of `total`, or None."""
    value = check.scalar(max_samples)
    if value is None or check.is_integer(value):
        return None if value is None else check.integer("max_samples", value, 1, check.MAX_COUNT)
    remedy = "pass a number of draws, or a share such as 0.5"
    check.require(
        isinstance(value, Real) and not isinstance(value, bool | np.bool_), "max_samples",
        "None, an int or a float", type(value).__name__, remedy, TypeError,
    )  # fmt: skip
    check.require(0 < value < math.inf, "max_samples", "a finite number > 0", value, remedy)
    n_draws = max(1, int(min(float(value) * total, 2.0**31)))
    return check.integer("max_samples", n_draws, 1, check.MAX_COUNT)
