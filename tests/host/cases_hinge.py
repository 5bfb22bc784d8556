"""Cases of `hforest.hinge`: every function with kernels, on small shapes that leave no kernel's corner out."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

import hforest
from hforest import hinge, layers
from hforest.core.windows import geometry
from hforest.hinge import gpu

from .case import Case, small

MARGINS = ("column", "projection")

# kind, samples, trees, depth, features, outputs
SHAPES = (
    ("tree", 0, 2, 2, 3, ()),
    ("fern", 0, 1, 1, 1, (2,)),
    ("tree", 1, 1, 1, 1, ()),
    ("fern", 7, 1, 1, 2, (1,)),
    ("tree", 50, 4, 3, 5, (3,)),
    ("fern", 40, 8, 4, 6, (3, 2)),
    ("tree", 9, 2, 2, 300, (37,)),  # more features than threads, more outputs than columns of a block
    ("fern", 70, 2, 1, 3, ()),  # long sums
    ("tree", 260, 2, 2, 3, (3,)),  # sums over many samples, and several blocks for every kernel
    ("fern", 3, 130, 1, 4, (11,)),  # more trees than a tile, and features shared by many trees
    ("tree", 4, 130, 1, 3, ()),  # likewise, with slopes that are products: grad_x shows its order
)
MANY = 128
"""Trees of a shape that is run with the margin of columns alone, and without the rows that samples touch: there a
block is a tree, and ThreadSanitizer takes a second for a hundred of them."""

# kind, samples, trees, depth, outputs
STEPS = (
    ("tree", 40, 2, 11, 2),  # vertices that move when a sample reaches them, and rows of several blocks
    ("fern", 70, 2, 3, 100),  # rows of more numbers than a block sums at a time
)

# kind, shape of the images, windows, trees, depth, outputs
IMAGES = (
    ("tree", (0, 2, 5), hinge.Windows(3), 2, 2, ()),
    ("fern", (2, 1, 9), hinge.Windows(3, 2, 1), 3, 3, ()),  # one axis
    ("tree", (1, 3, 1, 1), hinge.Windows(1), 2, 2, (2,)),  # one window
    ("tree", (2, 2, 5, 6), hinge.Windows((2, 3), (2, 1), (0, 1), (2, 1)), 4, 3, (2,)),
    (
        "fern",
        (1, 2, 4, 3),
        hinge.Windows(2, (1, 3), (4, 0), (1, 2)),
        2,
        2,
        (),
    ),  # windows in the padding alone
    ("fern", (2, 1, 3, 4, 5), hinge.Windows((2, 1, 3), 1, (0, 1, 1), (1, 1, 2)), 3, 2, (3,)),  # three axes
    ("tree", (2, 1, 10, 10), hinge.Windows(2), 2, 2, ()),  # sums over many windows
)


def _numbers(rng: np.random.Generator, dtype: type, exact: bool, *size: int, step: float = 0.5) -> np.ndarray:
    # Exact: multiples of 1/4 or 1/2, so that sums round nowhere in float64, and that many margins are 0 or
    # equal, of either sign.
    a = rng.standard_normal(size)
    return (np.round(a / step) * step if exact else a).astype(dtype)


def _arrays(
    kind: str, x: np.ndarray, places: tuple[int, ...], n_features: int, sizes: tuple, dtype: type, exact: bool
) -> dict[str, Any]:
    n_trees, depth, outputs = sizes
    rng = np.random.default_rng(len(x) + n_trees)
    n_vertices = depth if kind == "fern" else 2**depth - 1
    x[::3] = -np.abs(x[::3])  # zeros of both signs
    return {
        "x": x,
        "thresholds": _numbers(rng, dtype, exact, n_trees, n_vertices),
        "column": rng.integers(0, n_features, (n_trees, n_vertices), dtype=np.int32),
        "projection": _numbers(rng, dtype, exact, n_trees, n_vertices, n_features),
        "weights": _numbers(rng, dtype, exact, n_trees, 2**depth, *outputs, step=0.25),
        "each": _numbers(rng, dtype, exact, *places, n_trees, *outputs, step=0.25),
        "aggregate": _numbers(rng, dtype, exact, *places, *outputs, step=0.25),
    }


def _of_rows(shape: tuple, dtype: type, exact: bool) -> dict[str, Any]:
    kind, n, n_trees, depth, n_features, outputs = shape
    x = _numbers(np.random.default_rng(n), dtype, exact, n, n_features)
    return _arrays(kind, x, (n,), n_features, (n_trees, depth, outputs), dtype, exact)


def _of_images(case: tuple, dtype: type, exact: bool) -> dict[str, Any]:
    kind, shape, windows, *sizes = case
    places = geometry("x", shape, windows)
    out = places[19 - (len(shape) - 2) :]
    x = _numbers(np.random.default_rng(shape[-1]), dtype, exact, *shape)
    return _arrays(kind, x, (shape[0], *out), places.n_columns, tuple(sizes), dtype, exact)


def _operators(
    kind: str, margin: str, windows: hinge.Windows | None, a: dict[str, Any], aggregate: str
) -> dict[str, np.ndarray]:
    """The operators of a margin."""
    x, t, f, w = a["x"], a["thresholds"], a[margin], a["weights"]
    words: dict[str, Any] = {"kind": kind, "margin": margin, "windows": windows}
    route = hinge.traverse(x, t, f, **words)
    results = route._asdict()
    # Scratch for a few samples only, so that the forward pass runs in chunks, some with a whole block of outputs.
    with mock.patch.multiple(gpu, PAIRS=64, BUSY=1):
        results["y"] = hinge.forward(x, t, f, w, **words)
        results["y_aggregate"] = hinge.forward(x, t, f, w, **words, aggregate=aggregate)
    results["y_routed"] = hinge.leaf_outputs(route.leaf, route.margin, w)
    for name, how in (("each", None), ("aggregate", aggregate)):
        with mock.patch.object(gpu, "MANY", 9):  # pairs turned over: below, they are not
            dense = hinge.backward(a[name], route, x, t, f, w, **words, aggregate=how)
        results |= {f"{name}_grad_{key}": part for key, part in dense._asdict().items() if part is not None}
        if len(t) > MANY:
            continue
        sparse = hinge.backward_sparse(a[name], route, x, t, f, w, **words, aggregate=how)
        results[f"{name}_sparse_grad_x"] = sparse.x
        for parameter, part in dense._asdict().items():
            if part is not None and parameter != "x":
                rows, values = getattr(sparse, parameter)
                results |= {f"{name}_rows_{parameter}": rows, f"{name}_sparse_grad_{parameter}": values}
    return {f"{margin} {name}": part for name, part in results.items()}


def _leaves(kind: str, a: dict[str, Any]) -> dict[str, np.ndarray]:
    leaf = hinge.traverse(a["x"], a["thresholds"], a["column"], kind=kind).leaf
    n_leaves = a["weights"].shape[1]
    return {"rows": hinge.leaf_rows(leaf, n_leaves), "counts": hinge.leaf_counts(leaf, n_leaves)}


def _steps(kind: str, n: int, n_trees: int, depth: int, outputs: int, dtype: type) -> dict[str, np.ndarray]:
    """Steps of Adam, whose samples reach some of the rows that the steps before have moved."""
    samples = np.random.default_rng(depth).standard_normal((2, n // 2, 5)).astype(dtype)
    t, f, w = hinge.init(n_trees, depth, 5, outputs, kind=kind, dtype=dtype, rng=1)
    state = hinge.adam_state(t, w)
    results = {}
    for step in (1, 2, 3):
        x = np.tile(samples[step % 2], (2, 1))
        y, route = hinge.adam_forward(x, t, f, w, state, step, 0.1, kind=kind)
        results |= {
            f"y {step}": y,
            f"grad_x {step}": hinge.adam_backward(y, route, x, t, f, w, state, step, 0.1, kind=kind),
        }
    hinge.adam_sync(t, w, state, 3, 0.1)
    return results | {"thresholds": t, "weights": w}


def whole_steps(
    kind: str, n: int, n_trees: int, depth: int, outputs: int, dtype: type
) -> dict[str, np.ndarray]:
    """Which results of `adam_step` have the bits of its parts; steps as those of `_steps`."""
    rng = np.random.default_rng(depth)
    samples, y = rng.standard_normal((2, n, 5)).astype(dtype), rng.integers(0, outputs, n, np.int32)
    start = hinge.init(n_trees, depth, 5, outputs, kind=kind, dtype=dtype, rng=1)
    one, parts = (tuple(a.copy() for a in start) for _ in range(2))
    states = hinge.adam_state(*one[::2]), hinge.adam_state(*parts[::2])
    results = {}
    for step in (1, 2, 3):
        x = samples[step % 2]
        with hforest.unchecked():
            got = hinge.adam_step(x, y, *one, states[0], step, 0.1, kind=kind, aggregate="mean")
        scores, route = hinge.adam_forward(x, *parts, states[1], step, 0.1, kind=kind, aggregate="mean")
        loss, grad = layers.softmax_loss(scores, y)
        grad_x = hinge.adam_backward(
            grad, route, x, *parts, states[1], step, 0.1, kind=kind, aggregate="mean"
        )
        pairs = zip((*got, *one, *states[0]), (loss, scores, grad_x, *parts, *states[1]), strict=True)
        results[f"equal {step}"] = np.array([np.array_equal(a, b) for a, b in pairs if b is not None])
    return results


def _small(kind: str, dtype: type) -> dict[str, np.ndarray]:
    """Margins that float32 holds as subnormals."""
    rng = np.random.default_rng(0)
    x, thresholds = (small(rng.integers(-9, 10, shape), dtype) for shape in ((30, 4), (3, 3)))
    features = rng.integers(0, 4, (3, 3), np.int32)
    return hinge.traverse(x, thresholds, features, kind=kind)._asdict()


def _near(a: dict[str, Any], dtype: type, exact: bool) -> dict[str, float]:
    # Equal order of a sum means equal bits. The reference divides before it adds, and its dot product has an
    # order of its own.
    if exact:
        return {}
    parameters = ("x", "thresholds", "features", "weights")
    same = ["weights"]
    if math.prod(a["weights"].shape[2:]) == 1:  # slopes are products, which grad_x adds in the trees' order
        same += ["x", "features", "thresholds"]
    return {
        f"{margin} {which}_{sparse}grad_{parameter}": 4.0 if dtype is np.float32 else 64.0
        for margin in MARGINS
        for which in ("each", "aggregate")
        for sparse in ("", "sparse_")
        for parameter in parameters
        if which == "aggregate" or parameter not in same
    }


def _case(
    name: str, call: Callable[[], dict[str, np.ndarray]], a: dict[str, Any], dtype: type, exact: bool
) -> Case:
    # Small blocks for the most pairs of a sample and a tree, so that blocks loop over them.
    n_pairs = a["each"].size // math.prod(a["weights"].shape[2:])
    return Case(name, call, _near(a, dtype, exact), 32 if n_pairs > 300 else 128)


def cases(dtype: type) -> Iterator[Case]:
    """Every shape with numbers whose sums are exact, and with others.

    Images come first: ThreadSanitizer is slower after a kernel with many threads in a block.
    """
    modes = ((True, "sum"), (False, "mean"))
    for image, (exact, aggregate) in itertools.product(IMAGES, modes):
        kind, size, windows, *sizes = image
        arrays = _of_images(image, dtype, exact)

        def of_images(
            k: str = kind, w: hinge.Windows = windows, a: dict = arrays, g: str = aggregate
        ) -> dict[str, np.ndarray]:
            return _operators(k, "column", w, a, g) | _operators(k, "projection", w, a, g)

        name = f"{kind} of {size}, {windows}, {sizes} {'exact' if exact else 'rounded'} {aggregate}"
        yield _case(name, of_images, arrays, dtype, exact)
    for shape, (exact, aggregate) in itertools.product(SHAPES, modes):
        kind, n, n_trees, depth, n_features, outputs = shape
        arrays = _of_rows(shape, dtype, exact)

        def of_rows(k: str = kind, a: dict = arrays, g: str = aggregate) -> dict[str, np.ndarray]:
            results = _operators(k, "column", None, a, g) | _leaves(k, a)
            if len(a["thresholds"]) <= MANY:
                results |= _operators(k, "projection", None, a, g)
            return results

        sizes = f"n={n} trees={n_trees} depth={depth} features={n_features} outputs={outputs}"
        yield _case(
            f"{kind} {sizes} {'exact' if exact else 'rounded'} {aggregate}", of_rows, arrays, dtype, exact
        )
    for shape in STEPS:
        near = dict.fromkeys(
            ("thresholds", "weights", *(f"{a} {b}" for a in ("y", "grad_x") for b in (1, 2, 3))), 256.0
        )
        yield Case(f"steps of {shape}", lambda s=shape: _steps(*s, dtype), near, 32)
        yield Case(f"steps in one call of {shape}", lambda s=shape: whole_steps(*s, dtype), threads=32)
    for kind in ("tree", "fern"):
        yield Case(f"{kind} small", lambda k=kind: _small(k, dtype))
