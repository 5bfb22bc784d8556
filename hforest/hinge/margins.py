"""Margins of a vertex, r = value(x, features) - t (Lay et al. 2018).

A new margin needs:

margins.py                 the word in MarginName, and a record in MARGINS
reference/__init__.py      in MARGINS the value at a row of x, and the pull: for a slope s the columns of x,
                           what s dr/dx adds to them, and what s dr/df adds to the features, or None
cpu/<margin>.h or .pyx     an hf_margin of margin.h for float and for double: `values`, `pull_x`, and
                           `pull_features` or NULL; a vector body may follow, as in cpu/simd/projection.h
cpu/margin_routes.pyx      the body's name, in _body_of
gpu/gpu.cu, gradients.cuh  a struct with Feature, LANES, width, value, pull_x (and pull_feature); the kernels
                           route_<margin>, pull_x_<margin> (and pull_features_<margin>), each also for
                           _windows
gpu/__init__.py            the threads that share a value, in LANES_OF
tests/test_hinge.py        the word among the margins of its cases
docs/hinge.md              a row of the table
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from ..core import check
from ..core.aliases import Array

MarginName = Literal["column", "projection"]


class Margin(NamedTuple):
    """Properties of a margin outside the backends; their tables have its value and its gradient."""

    features: str
    """Content of `features`, for messages."""
    axes: check.Axes
    """Axes of `features` after trees and vertices, as names of sizes."""
    learned: bool
    """True: `features` have the dtype of x and a gradient. False: they are int32 and have none."""
    check: Callable[[Array, check.Sizes, Array | None], None]
    """Checks the values of `features`: all, or those of vertices (n_samples, n_trees) alone."""
    gradient_reads_x: bool
    """True: the gradient depends on the values of x. False: it needs only the shape of x."""
    start: Callable[[np.random.Generator, tuple[int, int], int, str, np.dtype], Array]
    """Returns random features, of rng, (n_trees, n_vertices), n_features, the word of `init` and a dtype."""


def _columns(features: Array, sizes: check.Sizes, vertex: Array | None = None) -> None:
    check.indices("features", features, sizes["n_features"], "n_features", vertex)


def _projections(features: Array, sizes: check.Sizes, vertex: Array | None = None) -> None:
    check.finite("features", features, remedy=check.DIVERGED)


def _start_columns(
    rng: np.random.Generator, shape: tuple[int, int], n_features: int, features: str, dtype: np.dtype
) -> Array:
    if features == "random":
        return rng.integers(0, n_features, shape, dtype=np.int32)
    return (np.arange(math.prod(shape), dtype=np.int64) % n_features).astype(np.int32).reshape(shape)


def _start_projections(
    rng: np.random.Generator, shape: tuple[int, int], n_features: int, features: str, dtype: np.dtype
) -> Array:
    if features != "random":
        raise ValueError(
            f"features: expected 'random' with margin='projection', got {features!r}; leave it out, or pass "
            "margin='column'"
        )
    return (rng.standard_normal((*shape, n_features)) / math.sqrt(n_features)).astype(dtype)


MARGINS: dict[str, Margin] = {
    "column": Margin("int32 columns of x", (), False, _columns, False, _start_columns),
    "projection": Margin(
        "vectors of n_features", ("n_features",), True, _projections, True, _start_projections
    ),
}
"""Records by the words of `margin`."""


def check_features(name: str, features: Array, dtype: np.dtype, vertices: str, sizes: check.Sizes) -> Margin:
    """Checks the features of vertices; returns the record of the margin called `name`."""
    margin = MARGINS[check.choice("margin", name, MARGINS)]
    expected = dtype if margin.learned else check.INT32
    try:
        check.array("features", features, expected, ("n_trees", vertices, *margin.axes), sizes)
    except (TypeError, ValueError):
        for other, record in MARGINS.items():
            if _fits(record, features) and not _fits(margin, features):
                raise TypeError(
                    f"features: expected {margin.features} with margin={name!r}, got {features.dtype} of "
                    f"shape {tuple(features.shape)}, which are {record.features}; pass margin={other!r}"
                ) from None
        raise
    return margin


def _fits(margin: Margin, features: Any) -> bool:
    # Returns whether features have the right kind; dtype and size may still be wrong.
    return (features.dtype.kind == "f") == margin.learned and features.ndim == 2 + len(margin.axes)
