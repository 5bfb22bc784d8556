"""Initial hinge trees and ferns: random (Lay et al. 2018, Alg. 1), and sequential."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..core import check
from ..core.aliases import Array, DType, FloatArray, Rng
from ..core.keywords import answered
from .margins import MARGINS, MarginName
from .shared import VERTICES, Kind
from .thresholds import SPREAD

Features = Literal["random", "sequential"]


class Parameters(NamedTuple):
    """The arrays of a hinge forest."""

    thresholds: FloatArray
    """(n_trees, n_vertices)."""
    features: Array
    """(n_trees, n_vertices) int32, or what another margin reads."""
    weights: FloatArray
    """(n_trees, 2**depth, *outputs), dtype of thresholds."""


@answered
def init(
    n_trees: int,
    depth: int,
    n_features: int,
    outputs: int | Sequence[int] = (),
    *,
    kind: Kind = "tree",
    margin: MarginName = "column",
    features: Features = "random",
    scale: float = 0.01,
    dtype: DType = np.float32,
    rng: Rng = None,
) -> Parameters:
    """Returns random hinge trees or ferns (Lay et al. 2018, Alg. 1, InitializeHingeForest).

    Other parameters: see `forward`.

    Parameters
    ----------
    n_trees, depth, n_features : int
        At least 1; depth at most 30.
    outputs : int or sequence of int
        Trailing shape of the leaf weights: () for scalars, K or (K,) for vectors.
    features : "random" or "sequential"
        "random" columns are f ~ U{0, ..., n_features - 1}. "sequential" is the number of the vertex in the
        forest modulo n_features, so that columns are used equally often. Projections are "random".
    scale : float
        Standard deviation of the weights; 0.01 in Lay et al. 2018.

    Returns
    -------
    Parameters
        A NamedTuple of three arrays:
    thresholds : (n_trees, n_vertices) array
        t ~ U(-3, 3), in standard deviations of the normalised input.
    features : (n_trees, n_vertices) array of int32, or (n_trees, n_vertices, n_features) array
        Columns, or projections N(0, 1 / n_features): inner products with columns of deviation 1 have about
        deviation 1.
    weights : (n_trees, 2**depth, *outputs) array
        w ~ N(0, scale**2).

    Notes
    -----
    Cost: one draw per vertex, per weight and per number of a projection. Results are NumPy arrays;
    `cupy.asarray` moves them.

    Examples
    --------
    >>> import hforest
    >>> t, f, w = hforest.hinge.init(10, 3, 16, outputs=26, rng=0)
    >>> t.shape, f.shape, w.shape
    ((10, 7), (10, 7), (10, 8, 26))
    >>> t, f, w = hforest.hinge.init(10, 3, 16, kind="fern", margin="projection", rng=0)
    >>> t.shape, f.shape, w.shape
    ((10, 3), (10, 3, 16), (10, 8))
    """
    check.choice("features", features, ("random", "sequential"))
    check.choice("kind", kind, VERTICES)
    record = MARGINS[check.choice("margin", margin, MARGINS)]
    n_trees = check.integer("n_trees", n_trees, 1, check.MAX_COUNT)
    depth = check.integer("depth", depth, 1, check.MAX_DEPTH)
    n_features = check.integer("n_features", n_features, 1, check.MAX_COUNT)
    outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
    outputs = tuple(check.integer("outputs", size, 1, check.MAX_COUNT) for size in outputs)
    scale = check.number("scale", scale, 0.0)
    dtype = check.float_dtype(dtype)
    rng = check.generator(rng)
    shape = (n_trees, depth if kind == "fern" else 2**depth - 1)
    # Random numbers are drawn in float64.
    numbers = 2**depth * math.prod(outputs) + (shape[1] * n_features if record.learned else 0)
    with check.memory("n_trees", "weights", n_trees * numbers * (8 + dtype.itemsize)):
        w = np.empty((n_trees, 2**depth, *outputs), dtype)
        f = record.start(rng, shape, n_features, features, dtype)
        t = rng.uniform(-SPREAD, SPREAD, shape).astype(dtype)
        w[...] = scale * rng.standard_normal(w.shape)
    return Parameters(t, f, w)
