"""Checks of arguments, and the axes on which functions draw."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure


def integer(name: str, value: Any, low: int, high: int) -> int:
    """Returns an int within low <= value <= high."""
    if not isinstance(value, Integral) or isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}; pass an integer such as {low}")
    number = int(value)
    if not low <= number <= high:
        raise ValueError(f"{name}: expected {low} to {high}, got {number}; pass a number in that range")
    return number


def positive(name: str, value: Any, high: float) -> float:
    """Returns a number within 0 < value <= high."""
    try:
        number = float(value)
    except OverflowError:  # an int beyond the largest float
        number = np.inf
    except (TypeError, ValueError):
        raise TypeError(
            f"{name}: expected a number, got {type(value).__name__}; pass a number such as 9.0"
        ) from None
    if not 0 < number <= high:
        raise ValueError(
            f"{name}: expected a number above 0, at most {high:g}, got {number}; pass a number such as 9.0"
        )
    return number


def names(name: str, values: Any, n: int, what: str) -> list[str] | None:
    """Returns n strings as a list, from a list, tuple, array or index of a data frame; None for None."""
    if values is None:
        return None
    sequence = values.tolist() if hasattr(type(values), "tolist") else values
    if not isinstance(sequence, list | tuple):
        raise TypeError(
            f"{name}: expected a sequence of str, got {type(values).__name__}; pass a list of names"
        )
    for i, text in enumerate(sequence):
        if not isinstance(text, str):
            raise TypeError(f"{name}[{i}]: expected a str, got {type(text).__name__}; pass str({text!r})")
    if len(sequence) != n:
        raise ValueError(f"{name}: expected {what} = {n} names, got {len(sequence)}; pass one name for each")
    return list(sequence)


def axes(ax: Any, size: Sequence[float] | None = None) -> Axes:
    """Returns `ax`, or for None the axes of a new figure of `size` inches, (width, height)."""
    if ax is None:
        from matplotlib import pyplot

        figure: Figure = pyplot.figure(figsize=None if size is None else tuple(size), layout="constrained")
        return figure.add_subplot()
    if not isinstance(ax, Axes):
        raise TypeError(
            f"ax: expected matplotlib.axes.Axes, got {type(ax).__name__}; pass an element of what "
            "matplotlib.pyplot.subplots returns"
        )
    return ax
