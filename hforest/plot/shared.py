"""What plots share: checks of arguments, the axes on which functions draw, and colours."""

import colorsys
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

LEAST = 0.15
"""Strength of the colour of a class whose share equals those of all other classes."""
DARK = 0.5
"""Luminance below which text is white."""


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


def of_classes(n_classes: int) -> NDArray[np.float64]:
    """Returns red, green and blue of each class, 0 to 1, as (n_classes, 3)."""
    if n_classes <= 10:
        return np.array(matplotlib.colormaps["tab10"].colors[:n_classes])  # type: ignore[attr-defined]
    if n_classes <= 20:
        return np.array(matplotlib.colormaps["tab20"].colors[:n_classes])  # type: ignore[attr-defined]
    # Hues in equal steps; neighbours differ in saturation and brightness.
    levels = [(0.85, 0.85), (0.5, 0.95), (0.9, 0.55)]
    return np.array([colorsys.hsv_to_rgb(k / n_classes, *levels[k % len(levels)]) for k in range(n_classes)])


def of_shares(shares: NDArray[np.floating]) -> NDArray[np.float64]:
    """Returns (n, 3) colours of the classes with the largest shares, paler for smaller shares."""
    n_classes = shares.shape[1]
    largest = shares.argmax(axis=1)
    share = shares[np.arange(len(shares)), largest].astype(np.float64)
    above = (share - 1 / n_classes) / (1 - 1 / n_classes) if n_classes > 1 else np.ones(len(share))
    strength = LEAST + (1 - LEAST) * np.clip(above, 0, 1)
    return 1 + strength[:, None] * (of_classes(n_classes)[largest] - 1)


def of_values(values: NDArray[np.floating], low: float, high: float) -> NDArray[np.float64]:
    """Returns colours (n, 3) of n values between the limits."""
    range_ = high / 2 - low / 2  # halves: the range itself may exceed float64
    at = np.clip((values / 2 - low / 2) / range_, 0, 1) if range_ > 0 else np.full(len(values), 0.5)
    return matplotlib.colormaps["viridis"](at)[:, :3]


def of_text(background: NDArray[np.floating]) -> str:
    """Returns "black" or "white", which can be read on a background (3,)."""
    return "white" if float(background @ (0.299, 0.587, 0.114)) < DARK else "black"
