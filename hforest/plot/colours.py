"""Colours of classes and of values."""

import colorsys

import matplotlib
import numpy as np
from numpy.typing import NDArray

LEAST = 0.15
"""Strength of the colour of a class whose share equals those of all other classes."""
DARK = 0.5
"""Luminance below which text is white."""


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
