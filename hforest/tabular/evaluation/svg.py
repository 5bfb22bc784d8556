"""Charts as SVG text for pages of HTML: bars, and curves or points with intervals.

Lengths are pixels. Text and lines have the colour of the page (currentColor), so charts suit light and dark
pages. Each chart has a text for readers who do not see it, and holds no reference to anything outside.
"""

from collections.abc import Callable, Sequence
from html import escape
from typing import Literal, NamedTuple

import numpy as np

from ...core.aliases import FloatArray

COLOURS = ("#1f77b4", "#d95f02", "#1b9e77", "#a0409a", "#8c6d1f")
"""Colours of curves."""
_WIDTH, _HEIGHT = 420, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 34, 12, 46
"""Margins of a chart of curves."""
_ROW, _NAME, _FIGURE = 20, 150, 70
"""Height of a row of bars, and widths of its name and its figure."""


Place = Callable[[FloatArray], FloatArray]
"""A function of coordinates that returns their pixels."""


class Series(NamedTuple):
    """Points of a chart that are drawn in one way."""

    x: FloatArray
    y: FloatArray
    mark: Literal["line", "dots", "dash"] = "line"
    name: str = ""
    """Name in the legend; empty for none."""
    low: FloatArray | None = None
    """Low ends of intervals of y."""
    high: FloatArray | None = None


def figure(number: float) -> str:
    """Returns a number with four digits."""
    return f"{number:.4g}"


def shortened(text: str, most: int) -> str:
    """Returns a text of at most `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _text(x: float, y: float, text: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, colour: str = "currentColor") -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}"/>'


def _svg(width: int, height: int, alt: str, parts: Sequence[str]) -> str:
    text = escape(alt, quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{text}" font-family="sans-serif" font-size="11" '
        f'fill="currentColor">{"".join(parts)}</svg>'
    )


def ticks(low: float, high: float, n: int = 5) -> FloatArray:
    """Returns about n round numbers from low to high: multiples of 1, 2 or 5 times a power of ten."""
    step = (high - low) / n
    unit = 10.0 ** np.floor(np.log10(step))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= step * (1 - 1e-9))
    return step * np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1) + 0.0


def limits(numbers: Sequence[FloatArray]) -> tuple[float, float]:
    """Returns the range of the finite numbers, wider where it is a single number."""
    flat = np.concatenate([np.zeros(0), *map(np.ravel, numbers)])
    flat = flat[np.isfinite(flat)]
    low, high = (float(flat.min()), float(flat.max())) if len(flat) else (0.0, 1.0)
    half = 0.5 * max(abs(high), 1.0) if high - low <= 1e-12 * max(abs(low), abs(high)) else 0.0
    return low - half, high + half


def bars(names: Sequence[str], values: FloatArray, errors: FloatArray, alt: str) -> str:
    """Returns a chart of horizontal bars from 0, the first one on top, with a line for each error."""
    low, high = limits([values - np.nan_to_num(errors), values + np.nan_to_num(errors), np.zeros(1)])
    room = _WIDTH - _NAME - _FIGURE
    places = _NAME + (np.array([values, values - errors, values + errors]) - low) / (high - low) * room
    zero, parts = _NAME + (0 - low) / (high - low) * room, []
    for row, (name, value, at, first, last) in enumerate(zip(names, values, *places, strict=True)):
        y = row * _ROW + _ROW / 2
        parts.append(_text(_NAME - 6, y + 4, shortened(name, 24), "end"))
        parts.append(
            f'<rect x="{min(at, zero):.1f}" y="{y - 6:.1f}" width="{abs(at - zero):.1f}" height="12" '
            f'fill="{COLOURS[0]}"/>'
        )
        if np.isfinite(first):
            parts.append(_line(first, y, last, y))
        parts.append(_text(_WIDTH - _FIGURE + 8, y + 4, figure(value), "start"))
    parts.append(_line(zero, 0, zero, _ROW * len(names)))
    return _svg(_WIDTH, max(1, _ROW * len(names)), alt, parts)


def curves(
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    alt: str,
    *,
    x_ticks: tuple[FloatArray, Sequence[str]] | None = None,
    x_limits: tuple[float, float] | None = None,
    y_limits: tuple[float, float] | None = None,
) -> str:
    """Returns a chart of series; `x_ticks` are places and their texts. By default axes fit the series."""
    ends = [a for one in series for a in (one.low, one.high) if a is not None]
    left, right = x_limits or limits([one.x for one in series])
    low, high = y_limits or limits([*(one.y for one in series), *ends])
    pad = 0.04 * (high - low), 0.04 * (right - left)
    low, high, left, right = low - pad[0], high + pad[0], left - pad[1], right + pad[1]
    legend = [one for one in series if one.name]
    height = _HEIGHT + 16 * len(legend)

    def across(x: FloatArray) -> FloatArray:
        return _LEFT + (x - left) / (right - left) * (_WIDTH - _LEFT - _RIGHT)

    def down(y: FloatArray) -> FloatArray:
        return _HEIGHT - _BOTTOM - (y - low) / (high - low) * (_HEIGHT - _BOTTOM - _TOP)

    floor = _HEIGHT - _BOTTOM
    parts = [_line(_LEFT, floor, _WIDTH - _RIGHT, floor), _line(_LEFT, _TOP, _LEFT, floor)]
    round_x = ticks(left, right)
    places, texts = x_ticks or (round_x, [figure(a) for a in round_x])
    size = max(4, int(1.9 * (_WIDTH - _LEFT) / 11 / max(1, len(places))))
    for x, text in zip(across(places), texts, strict=True):
        parts += [_line(x, floor, x, floor + 4), _text(x, floor + 16, shortened(text, size))]
    round_y = ticks(low, high)
    for y, value in zip(down(round_y), round_y, strict=True):
        parts += [_line(_LEFT - 4, y, _LEFT, y), _text(_LEFT - 7, y + 4, figure(value), "end")]
    middle = (_TOP + floor) / 2
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, shortened(x_label, 60)))
    turned = f' transform="rotate(-90 12 {middle:.1f})"'
    parts.append(_text(12, middle, shortened(y_label, 40), more=turned))
    colour = {one.name: COLOURS[i % len(COLOURS)] for i, one in enumerate(legend)}
    for one in series:
        parts += _marks(one, across, down, colour.get(one.name, COLOURS[0]))
    for i, one in enumerate(legend):
        y = _HEIGHT + 16 * i
        parts.append(f'<circle cx="{_LEFT}" cy="{y}" r="4" fill="{colour[one.name]}"/>')
        parts.append(_text(_LEFT + 10, y + 4, shortened(one.name, 50), "start"))
    return _svg(_WIDTH, height, alt, parts)


def _marks(one: Series, across: Place, down: Place, colour: str) -> list[str]:
    """Returns the line or the dots of a series, and its intervals."""
    some = np.isfinite(one.x) & np.isfinite(one.y)
    points = list(zip(across(one.x[some]), down(one.y[some]), strict=True))
    if one.mark == "dots":
        parts = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
    else:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        style = f'stroke="{colour}" stroke-width="2"'
        style = 'stroke="currentColor" stroke-dasharray="4 4" opacity="0.5"' if one.mark == "dash" else style
        parts = [f'<polyline points="{path}" fill="none" {style}/>']
    if one.low is not None and one.high is not None:
        ends = zip(across(one.x[some]), down(one.low[some]), down(one.high[some]), strict=True)
        parts += [_line(x, first, x, last, colour) for x, first, last in ends]
    return parts
