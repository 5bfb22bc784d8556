"""The sides of values that a split does not compare: the reference implementation of defaults.h."""

from typing import Any

from .dispatch import array_module
from .launch import numbers

MISSING_LEFT, UNKNOWN_LEFT = numbers("core/defaults.h", "HF_MISSING_LEFT", "HF_UNKNOWN_LEFT")
"""Bits of default_left."""


def draws_missing_left(word: int) -> bool:
    """Returns whether a random split sends the missing values of its node left, from a random word."""
    return not word & 1


def missing_left(seen: int, n_left: int, n_right: int) -> bool:
    """Returns whether missing values go left.

    seen: the side on which the scan, or the draw, of the split had those of its node: 1 left, 0 right, -1: it
    has none. n_left, n_right: samples of the node whose values are known, by side.
    """
    return n_left >= n_right if seen < 0 else seen == 1


def default_left(seen: int, n_left: int, n_right: int, n_missing: int) -> int:
    """Returns default_left of a split: `missing_left`, and the larger side for unknown categories."""
    left = missing_left(seen, n_left, n_right)
    n_more = n_left - n_right + (n_missing if left else -n_missing)
    return MISSING_LEFT * left + UNKNOWN_LEFT * (n_more >= 0)


def larger_left(n_left: Any, n_right: Any) -> Any:
    """Returns `default_left` of splits of nodes without missing values, (n_splits,) uint8."""
    return ((n_left >= n_right) * (MISSING_LEFT | UNKNOWN_LEFT)).astype("uint8")


def shows_missing(default_left: Any, threshold: Any, category_bits: Any) -> bool:
    """Returns whether some split shows that a forest was grown on missing values or categories.

    Without both, all splits send missing values to the side of more samples, like unknown categories. The
    arguments are arrays of a `hforest.tree.Forest`.
    """
    if not default_left.size:
        return False
    differ = sends_missing_left(default_left) != sends_unknown_left(default_left)
    largest = array_module(threshold).finfo(threshold.dtype).max
    return bool(category_bits.size) or bool(differ.any()) or bool((threshold == largest).any())


def sends_missing_left(bits: Any) -> Any:
    """Returns whether nodes send missing values left; bits: default_left of a node, or an array of them."""
    return bits & MISSING_LEFT != 0


def sends_unknown_left(bits: Any) -> Any:
    """Returns whether nodes send unknown categories left, as `sends_missing_left`."""
    return bits & UNKNOWN_LEFT != 0
