"""Cases of `hforest.hinge`: every function with kernels, on small shapes that leave no kernel's corner out."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np

from hforest import hinge
from hforest.hinge import gpu, linear

from .case import Case, small

# kind, samples, trees, depth, features, outputs
SHAPES = (
    ("tree", 0, 2, 2, 3, ()),
    ("fern", 0, 1, 1, 1, (2,)),
    ("tree", 1, 1, 1, 1, ()),
    ("fern", 7, 1, 1, 2, (1,)),
    ("tree", 50, 4, 3, 5, (3,)),
    ("fern", 40, 8, 4, 6, (3, 2)),
    ("tree", 9, 2, 2, 300, (37,)),  # more features than threads, more outputs than columns of a block
    ("fern", 3, 160, 2, 4, (11,)),  # more trees than a tile, and features shared by many trees
    ("fern", 200, 2, 1, 3, ()),  # long sums that one thread makes
    ("tree", 4, 140, 2, 3, ()),  # likewise, with slopes that are products: grad_x shows its order
    ("tree", 260, 2, 2, 3, (3,)),  # sums over many samples, and several blocks for every kernel
)


def _arrays(shape: tuple, dtype: type, exact: bool) -> dict[str, Any]:
    # Exact: multiples of 1/8 or 1/4, so that sums round nowhere in float64, and that many margins are 0 or
    # equal, of either sign.
    kind, n, n_trees, depth, n_features, outputs = shape
    rng = np.random.default_rng(n + n_trees)

    def numbers(*size: int, step: float) -> np.ndarray:
        a = rng.standard_normal(size)
        return (np.round(a / step) * step if exact else a).astype(dtype)

    n_vertices = depth if kind == "fern" else 2**depth - 1
    x = numbers(n, n_features, step=0.5)
    x[::3] = -np.abs(x[::3])  # zeros of both signs
    return {
        "x": x,
        "thresholds": numbers(n_trees, n_vertices, step=0.5),
        "features": rng.integers(0, n_features, (n_trees, n_vertices), dtype=np.int32),
        "projections": numbers(n_trees, n_vertices, n_features, step=0.5),
        "weights": numbers(n_trees, 2**depth, *outputs, step=0.25),
        "grad_y": numbers(n, n_trees, *outputs, step=0.25),
        "grad_sum": numbers(n, *outputs, step=0.25),
    }


def _public(kind: str, a: dict[str, Any], aggregate: str) -> dict[str, np.ndarray]:
    traverse, forward, backward = (
        getattr(hinge, f"{kind}_{verb}") for verb in ("traverse", "forward", "backward")
    )
    x, t, f, w = a["x"], a["thresholds"], a["features"], a["weights"]
    n_leaves, n_features = w.shape[1], x.shape[1]
    route = traverse(x, t, f)
    results = dict(zip(("leaf", "margin", "vertex"), route, strict=True))
    # Scratch for a few samples only, so that the forward pass runs in chunks.
    with mock.patch.object(gpu, "PAIRS", 64):
        results["y"] = forward(x, t, f, w)
        results["y_aggregate"] = forward(x, t, f, w, aggregate=aggregate)
    results["y_routed"] = hinge.leaf_outputs(route[0], route[1], w)
    for name, grad, how in (("each", a["grad_y"], None), ("aggregate", a["grad_sum"], aggregate)):
        dense = backward(grad, *route, f, w, n_features, aggregate=how)
        sparse = backward(grad, *route, f, w, n_features, aggregate=how, sparse=True)
        results |= {f"{name}_grad_x": dense[0], f"{name}_grad_t": dense[1], f"{name}_grad_w": dense[2]}
        results |= {f"{name}_sparse_grad_x": sparse[0]}
        results |= {f"{name}_rows_t": sparse[1][0], f"{name}_sparse_grad_t": sparse[1][1]}
        results |= {f"{name}_rows_w": sparse[2][0], f"{name}_sparse_grad_w": sparse[2][1]}
    results["rows"] = hinge.leaf_rows(route[0], n_leaves)
    results["counts"] = hinge.leaf_counts(route[0], n_leaves)
    return results


def _linear(kind: str, a: dict[str, Any], aggregate: str) -> dict[str, np.ndarray]:
    """The same with an inner product at each vertex."""
    traverse, forward, backward = (
        getattr(hinge, f"{kind}_linear_{verb}") for verb in ("traverse", "forward", "backward")
    )
    x, t, p, w = a["x"], a["thresholds"], a["projections"], a["weights"]
    route = traverse(x, t, p)
    results = {f"linear_{name}": part for name, part in route._asdict().items()}
    with mock.patch.object(linear, "PAIRS", 64):
        results["linear_y"] = forward(x, t, p, w)
        results["linear_y_aggregate"] = forward(x, t, p, w, aggregate=aggregate)
    for name, grad, how in (("each", a["grad_y"], None), ("aggregate", a["grad_sum"], aggregate)):
        dense = backward(grad, *route, x, p, w, aggregate=how)
        sparse = backward(grad, *route, x, p, w, aggregate=how, sparse=True)
        results |= {f"linear_{name}_grad_{letter}": part for letter, part in zip("xtpw", dense, strict=True)}
        results[f"linear_{name}_sparse_grad_x"] = sparse[0]
        for letter, part in zip("tpw", sparse[1:], strict=True):
            results[f"linear_{name}_rows_{letter}"] = part.rows
            results[f"linear_{name}_sparse_grad_{letter}"] = part.values
    return results


def _small(kind: str, dtype: type) -> dict[str, np.ndarray]:
    """Margins that float32 holds as subnormals."""
    rng = np.random.default_rng(0)
    x, thresholds = (small(rng.integers(-9, 10, shape), dtype) for shape in ((30, 4), (3, 3)))
    features = rng.integers(0, 4, (3, 3), np.int32)
    return getattr(hinge, f"{kind}_traverse")(x, thresholds, features)._asdict()


def cases(dtype: type) -> Iterator[Case]:
    """Every shape with numbers whose sums are exact, and with others."""
    gradients = [
        f"{linear}{g}_{s}grad_{p}"
        for linear in ("", "linear_")
        for g in ("each", "aggregate")
        for s in ("", "sparse_")
        for p in ("xtpw" if linear else "xtw")
    ]
    for shape in SHAPES:
        kind, n, n_trees, depth, n_features, outputs = shape
        for exact, aggregate in ((True, "sum"), (False, "mean")):
            arrays = _arrays(shape, dtype, exact)
            # Equal order of a sum means equal bits. The reference divides before it adds, and its dot
            # product has an order of its own; a long sum is shared between threads.
            near = {} if exact else dict.fromkeys(gradients, 4.0 if dtype is np.float32 else 64.0)
            same = ["w"] if n <= gpu.FEW else []
            if np.prod(outputs) == 1:  # slopes are products, then, and grad_x adds them in the trees' order
                same += ["x", "p", "t"] if n <= gpu.FEW else ["x", "p"]
            for p in same:
                for name in (f"each_grad_{p}", f"each_sparse_grad_{p}"):
                    near.pop(name, None)
                    near.pop(f"linear_{name}", None)
            name = (
                f"{kind} n={n} trees={n_trees} depth={depth} features={n_features} outputs={outputs} "
                f"{'exact' if exact else 'rounded'} {aggregate}"
            )
            yield Case(name, lambda k=kind, a=arrays, g=aggregate: _public(k, a, g) | _linear(k, a, g), near)
    for kind in ("tree", "fern"):
        yield Case(f"{kind} small", lambda k=kind: _small(k, dtype))
