"""Outputs for margins whose backend does not sum outputs while it traverses."""

from types import ModuleType

import numpy as np

from ..core.aliases import FloatArray
from ..core.dispatch import empty
from .shared import Route, Trees


def forward_in_chunks(
    backend: ModuleType, trees: Trees, x: FloatArray, y: FloatArray, route: Route | None
) -> None:
    """Writes y by `backend.traverse` and `backend.leaf_outputs`, in chunks if the caller wants no route."""
    if route is not None:
        backend.traverse(trees, x, route)
        backend.leaf_outputs(route.leaf, route.margin, trees.weights, trees.divisor, y)
        return
    n_rows, n_trees, samples = len(x), len(trees.features), trees.windows.n_positions if trees.windows else 1
    chunk = min(max(1, backend.PAIRS // (n_trees * samples)), n_rows)
    shape, like = (chunk * samples, n_trees), empty(x)
    arrays = [like(shape, dtype) for dtype in (np.int32, x.dtype, np.int32)]
    for start in range(0, n_rows, chunk or 1):
        n = min(chunk, n_rows - start)
        part = Route(*(a[: n * samples] for a in arrays))
        rows = y[start * samples : (start + n) * samples]
        forward_in_chunks(backend, trees, x[start : start + n], rows, part)
