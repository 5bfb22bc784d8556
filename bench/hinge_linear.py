"""Times of hinge trees with an inner product at each vertex, beside a matrix product below the same trees.

    python bench/hinge_linear.py [--shapes n,F,M,D,K ...] [--kinds tree fern] [--dtype float32] [--json FILE]

The layer is ``z = x @ features.reshape(-1, F).T``, then `forward` with a column of z for each vertex; back,
`backward` and two products with its gradient with respect to z. The fused functions compute only the inner
products on the paths of the samples, and update one row of projections for each sample and tree. All run on
one thread, including NumPy's products. Both are checked against each other, and the fused ones against the
reference, before they are timed. Figures are milliseconds per call, the minimum of repeats taken in turn.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # before NumPy is loaded

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import machine_text, options_of, plainly, record, side_by_side, sizes_like, spread

import hforest
from hforest import hinge

# samples, features, trees, depth, outputs
SHAPES = ((128, 64, 100, 7, 10), (1000, 784, 100, 5, 10), (1000, 784, 100, 10, 10))

Calls = dict[str, Callable[[], Any]]


def problem(kind: Any, shape: tuple[int, ...], dtype: np.dtype) -> tuple[np.ndarray, ...]:
    """Returns x, thresholds, projections, weights and a gradient with respect to the summed outputs."""
    n, n_features, n_trees, depth, n_outputs = shape
    rng = np.random.default_rng(0)
    t, _, w = hinge.init(n_trees, depth, 1, n_outputs, kind=kind, dtype=dtype, rng=rng)
    p = rng.standard_normal((*t.shape, n_features), dtype) / dtype.type(n_features) ** dtype.type(0.5)
    x, grad_y = (rng.standard_normal((n, size), dtype) for size in (n_features, n_outputs))
    return x, t, p, w, grad_y


def fused(kind: Any, arrays: tuple[np.ndarray, ...]) -> tuple[hinge.Route, Calls]:
    """Returns the route, and the calls of the fused functions."""
    x, t, p, w, grad_y = arrays
    words: dict[str, Any] = {"kind": kind, "margin": "projection", "aggregate": "sum"}
    _, route = hinge.forward_with_route(x, t, p, w, **words)
    return route, {
        "forward": partial(hinge.forward_with_route, x, t, p, w, **words),
        "backward": partial(hinge.backward, grad_y, route, x, t, p, w, **words),
        "backward sparse": partial(hinge.backward_sparse, grad_y, route, x, t, p, w, **words),
    }


def layered(kind: Any, arrays: tuple[np.ndarray, ...], route: hinge.Route) -> Calls:
    """Returns the same by a matrix product and trees on its columns; gradients use the same route."""
    x, t, p, w, grad_y = arrays
    words: dict[str, Any] = {"kind": kind, "aggregate": "sum"}
    flat, features = p.reshape(-1, x.shape[1]), np.arange(t.size, dtype=np.int32).reshape(t.shape)
    z = np.empty((len(x), t.size), x.dtype)  # gradients read its shape alone

    def down() -> Any:
        return hinge.forward_with_route(x @ flat.T, t, features, w, **words)

    def up() -> Any:
        grads = hinge.backward(grad_y, route, z, t, features, w, **words)
        return grads.x @ flat, grads.thresholds, (grads.x.T @ x).reshape(p.shape), grads.weights

    return {"forward": down, "backward": up}


def check(kind: Any, arrays: tuple[np.ndarray, ...], calls: Calls, layer: Calls, route: hinge.Route) -> None:
    """Raises if the two differ by more than rounding, or if some routes differ from the reference."""
    x, t, p, *_ = arrays
    y, _ = calls["forward"]()
    other, plain = layer["forward"]()
    # A product that rounds otherwise may send a sample to the other side.
    same = (route.leaf == plain.leaf).all(axis=1)
    assert same.mean() > 0.9, "routes"
    assert (route.leaf == plain.leaf).mean() > 0.999, "routes"
    np.testing.assert_allclose(y[same], other[same], rtol=1e-3, atol=1e-3 * abs(y).max())
    dense = calls["backward"]()
    for a, b in zip(dense, layer["backward"](), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * abs(b).max())
    for a, (rows, values) in zip(dense[1:], calls["backward sparse"]()[1:], strict=True):
        np.testing.assert_array_equal(a.reshape(-1, *a.shape[2:])[rows], values)
    trees = min(8, len(t))
    with hforest.using("reference"):
        want = hinge.traverse(x[:5], t[:trees].copy(), p[:trees].copy(), kind=kind, margin="projection")
    for a, b in zip(want, route, strict=True):
        np.testing.assert_array_equal(a, b[:5, :trees])


def run(kind: Any, shape: tuple[int, ...], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures every job and rung of one shape and kind."""
    arrays = problem(kind, shape, np.dtype(options.dtype))
    rows: list[dict[str, Any]] = []
    with hforest.unchecked():
        route, calls = fused(kind, arrays)
        layer = layered(kind, arrays, route)
        check(kind, arrays, calls, layer, route)
        for job, call in calls.items():
            rungs = {"fused": call, "fused plain": plainly(call), "layer": layer[job.split()[0]]}
            for rung, times in side_by_side(rungs, options.repeats).items():
                least = 1e3 * min(times)
                rows.append(
                    {
                        "shape": shape, "kind": kind, "dtype": options.dtype, "job": job, "rung": rung,
                        "milliseconds": least, "spread": spread(times),
                    }
                )  # fmt: skip
                text = ",".join(map(str, shape))
                print(
                    f"{text:>20} {kind:5} {job:16} {rung:12} {least:10.2f} {100 * spread(times):6.0f}%",
                    flush=True,
                )
    return rows


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shapes", nargs="+", type=sizes_like("128,64,100,7,10"), default=list(SHAPES), metavar="n,F,M,D,K"
    )
    parser.add_argument("--kinds", nargs="+", choices=("tree", "fern"), default=["tree", "fern"])
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    options = options_of(parser, "--shapes 100,10,5,3,2 --repeats 1")
    hforest.set_num_threads(1)
    print(machine_text())
    print(f"{'n,F,M,D,K':>20} {'kind':5} {'job':16} {'rung':12} {'ms':>10} {'spread':>7}")
    rows = [row for shape in options.shapes for kind in options.kinds for row in run(kind, shape, options)]
    if options.json:
        record(options.json, rows, command=" ".join(sys.argv))
    return 0


if __name__ == "__main__":
    sys.exit(main())
