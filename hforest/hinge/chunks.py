"""Outputs for margins whose backend does not sum outputs while it traverses."""

from types import ModuleType

import numpy as np

from ..core.aliases import Array, FloatArray
from ..core.dispatch import empty
from ..core.windows import Geometry
from .shared import Kind, Route


def forward_in_chunks(
    backend: ModuleType,
    kind: Kind,
    margin: str,
    x: FloatArray,
    thresholds: FloatArray,
    features: Array,
    weights: FloatArray,
    divisor: float,
    y: FloatArray,
    route: Route | None,
    windows: Geometry | None,
) -> None:
    """Writes y by `backend.traverse` and `backend.leaf_outputs`, in chunks if the caller wants no route."""
    if route is not None:
        backend.traverse(kind, margin, x, thresholds, features, route, windows)
        backend.leaf_outputs(route[0], route[1], weights, divisor, y)
        return
    n_rows, n_trees, samples = len(x), len(thresholds), windows.n_positions if windows else 1
    chunk = min(max(1, backend.PAIRS // (n_trees * samples)), n_rows)
    shape, like = (chunk * samples, n_trees), empty(x)
    arrays = [like(shape, dtype) for dtype in (np.int32, x.dtype, np.int32)]
    for start in range(0, n_rows, chunk or 1):
        n = min(chunk, n_rows - start)
        part = Route(*(a[: n * samples] for a in arrays))
        backend.traverse(kind, margin, x[start : start + n], thresholds, features, part, windows)
        rows = y[start * samples : (start + n) * samples]
        backend.leaf_outputs(part.leaf, part.margin, weights, divisor, rows)
