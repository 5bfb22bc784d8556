"""Arrays of trees that know neither missing values nor categories: the defaults of the fields for both."""

import numpy as np

from .aliases import Array


def _empty(dtype: type) -> Array:
    a: Array = np.zeros(0, dtype)
    a.flags.writeable = False
    return a


NO_DEFAULT_LEFT = _empty(np.uint8)
"""(0,) uint8: `default_left` of trees that know no missing values."""
NO_CATEGORY_INDPTR = _empty(np.int64)
"""(0,) int64: `category_indptr` of trees without splits by categories."""
NO_CATEGORY_BITS = _empty(np.uint32)
"""(0,) uint32: `category_bits` of trees without splits by categories."""

FIELDS = ("default_left", "category_indptr", "category_bits")
"""The fields of a forest, and of grown trees, that have these defaults."""

MISSING_LEFT = 1
"""Bit of `default_left`: missing values go left."""
UNKNOWN_LEFT = 2
"""Bit of `default_left`: unknown categories go left."""
