"""Hinge trees and ferns: known answers, windows, the reference implementation against its backends.

Tests run over kinds, margins, inputs (rows, or windows of images), aggregates, backends and dtypes.
"""

import itertools
import math
from functools import partial
from typing import Any, NamedTuple

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import Backend, several_paths
from growers import assert_all_same, on_paths, on_threads

import hforest
from hforest import hinge
from hforest.core import dispatch
from hforest.core.windows import geometry
from hforest.hinge import Windows

pytestmark = pytest.mark.kernels

KINDS = ("tree", "fern")
MARGINS = ("column", "projection")
AGGREGATES = (None, "sum", "mean")
kinds = pytest.mark.parametrize("kind", KINDS)
margins = pytest.mark.parametrize("margin", MARGINS)
aggregates = pytest.mark.parametrize("aggregate", AGGREGATES)


class Case(NamedTuple):
    """The shape of x, a forest, and the windows of images that it reads, or None."""

    shape: tuple[int, ...]
    n_trees: int
    depth: int
    outputs: Any = ()
    windows: Windows | None = None

    def __str__(self) -> str:
        read = "rows" if self.windows is None else f"windows {tuple(self.windows)}"
        return f"{read} of {self.shape}, {self.n_trees} trees of depth {self.depth}, {self.outputs}"


# One of each, one tree, depth 1, no sample, outputs that are no power of two, trailing axes, more than one tile of
# samples and of trees; fewer features than partial sums and more, a tree deeper than the samples reach.
ROWS = [
    Case((1, 1), 1, 1),
    Case((5, 3), 1, 4),
    Case((7, 2), 3, 1, 3),
    Case((0, 4), 2, 3, (3, 2)),
    Case((33, 5), 17, 6, (3, 2)),
    Case((130, 9), 4, 5, 7),
    Case((9, 8), 3, 7, 3),
    Case((21, 19), 17, 3, (3, 2)),
    Case((270, 13), 2, 3, 2),
    Case((3, 600), 2, 2),
]
IMAGES = [
    Case((2, 1, 9), 3, 4, (), Windows(3)),  # one axis
    Case((1, 2, 2, 40), 17, 3, 2, Windows((2, 3), 1, (1, 2))),  # rows longer than a tile
    Case((3, 3, 7, 6), 4, 3, 3, Windows(3, 2, 1)),  # stride
    Case((2, 2, 9, 8), 2, 2, (2, 2), Windows((3, 2), (1, 3), (4, 0), (2, 1))),  # windows in the padding alone
    Case((2, 1, 4, 5, 6), 3, 3, (), Windows((2, 1, 3), 1, (0, 1, 1), (1, 1, 2))),  # three axes
    Case((4, 6, 5, 5), 5, 6, 2, Windows(1)),  # a forest at each pixel
    Case((0, 2, 4, 4), 2, 2, 1, Windows(3, 1, 1)),  # no images
    Case((1, 1, 1, 1), 1, 1, (), Windows(1)),  # one number
    Case((2, 40, 6, 6), 1, 2, (), Windows(3, 1, 1)),  # fewer features than numbers of a window
]
images = pytest.mark.parametrize("case", IMAGES, ids=str)
# Small, of either sort.
SMALL = [Case((9, 3), 2, 2, 4), Case((2, 2, 4, 3), 2, 2, 4, Windows(2, 1, 1))]
reads = pytest.mark.parametrize("case", SMALL, ids=["rows", "windows"])


def words_of(kind, margin, case):
    return {"kind": kind, "margin": margin, "windows": case.windows}


def n_columns(case):
    return case.shape[1] if case.windows is None else geometry("x", case.shape, case.windows).n_columns


def grid(rng, shape, dtype=np.float64):
    """Numbers on a coarse grid."""
    return (np.round(rng.normal(size=shape) * 2) / 2).astype(dtype)


def problem(kind, margin, case, dtype=np.float64, seed=0, coarse=False):
    """Returns x, thresholds, features and weights, which are coarse: many ties and equal margins, exact sums."""
    rng = np.random.default_rng(seed)
    settings = {"kind": kind, "margin": margin, "scale": 1.0, "dtype": dtype, "rng": rng}
    t, f, w = hinge.init(case.n_trees, case.depth, n_columns(case), case.outputs, **settings)
    if not coarse:
        return rng.normal(size=case.shape).astype(dtype), t, f, w
    f = grid(rng, f.shape, dtype) if margin == "projection" else f
    return grid(rng, case.shape, dtype), grid(rng, t.shape, dtype), f, grid(rng, w.shape, dtype)


def pushed(grads):
    """Returns the gradients that exist, by name."""
    return {name: a for name, a in grads._asdict().items() if a is not None}


# ------------------------------------------------------------------------------------ windows as rows


def per_axis(a, n):
    return a if isinstance(a, tuple) else (a,) * n


def places(x_shape, windows):
    """Returns slices of padded images by position in a window, the padding, the window counts and the kernel."""
    n_axes = len(x_shape) - 2
    kernel, stride, padding, dilation = (per_axis(a, n_axes) for a in windows)
    size = [x_shape[2 + i] + 2 * padding[i] for i in range(n_axes)]
    out = [(size[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in range(n_axes)]
    at = {}
    for place in itertools.product(*map(range, kernel)):
        first = [p * d for p, d in zip(place, dilation, strict=True)]
        at[place] = tuple(
            slice(f, f + (n - 1) * s + 1, s) for f, n, s in zip(first, out, stride, strict=True)
        )
    return at, padding, tuple(out), kernel


def unfolded(x, windows):
    """(n_images, *out, channels * kernel): the windows, by slices of the padded images; rows as they are."""
    if windows is None:
        return x
    at, padding, out, kernel = places(x.shape, windows)
    padded = np.pad(x, ((0, 0), (0, 0), *((i, i) for i in padding)))
    found = np.empty((x.shape[0], *out, x.shape[1], *kernel), x.dtype)
    for place, part in at.items():
        found[(..., *place)] = np.moveaxis(padded[(slice(None), slice(None), *part)], 1, -1)
    return found.reshape(x.shape[0], *out, -1 if x.size else x.shape[1] * math.prod(kernel))


def folded(grad, x_shape, windows):
    """Returns the sum of the gradients of windows at each number of an image, in float64."""
    at, padding, _, kernel = places(x_shape, windows)
    padded = np.zeros((*x_shape[:2], *(n + 2 * p for n, p in zip(x_shape[2:], padding, strict=True))))
    grad = grad.reshape(*grad.shape[:-1], x_shape[1], *kernel).astype(np.float64)
    for place, part in at.items():
        padded[(slice(None), slice(None), *part)] += np.moveaxis(grad[(..., *place)], -1, 1)
    return padded[(..., *(slice(p, p + n) for p, n in zip(padding, x_shape[2:], strict=True)))]


@kinds
@margins
@images
def test_windows_are_rows(backend, dtype, kind, margin, case):
    """Routes, outputs and gradients of parameters are bit-identical to those of unfolded windows as rows."""
    arrays = x, *parameters = problem(kind, margin, case, dtype, coarse=True)
    got, windows = everything(kind, margin, case, arrays, "sum"), unfolded(x, case.windows)
    rows = np.ascontiguousarray(windows.reshape(-1, windows.shape[-1]))
    of_rows = case._replace(shape=rows.shape, windows=None)
    want = everything(kind, margin, of_rows, (rows, *parameters), "sum")
    assert got["leaf"].shape == (*windows.shape[:-1], case.n_trees)
    grad_x = folded(want.pop("grad_x").reshape(windows.shape), x.shape, case.windows)
    for name, a in want.items():
        assert got[name].reshape(a.shape).tobytes() == a.tobytes(), name
    atol = 64 * np.finfo(dtype).eps * max(1, abs(grad_x).max(initial=0))
    np.testing.assert_allclose(got["grad_x"], grad_x, rtol=0, atol=atol)


@margins
def test_padding_learns_nothing(backend, margin):
    """A window in the padding compares with 0. It has a gradient for its threshold, but none for the image."""
    x, t, w = np.ones((1, 1, 1)), np.array([[0.5]]), np.array([[2.0, 3.0]])
    f = np.array([[0]], np.int32) if margin == "column" else np.array([[[1.0]]])
    words = {"margin": margin, "windows": Windows(1, padding=1), "aggregate": "sum"}
    y, route = hinge.forward_with_route(x, t, f, w, **words)
    assert y.ravel().tolist() == [1.0, 1.5, 1.0]
    grads = hinge.backward(np.ones_like(y), route, x, t, f, w, **words)
    found = {name: a.ravel().tolist() for name, a in pushed(grads).items()}
    want = {"x": [3.0], "thresholds": [2 + 2 - 3.0], "features": [3.0], "weights": [1.0, 0.5]}
    assert found == {name: want[name] for name in found}


@margins
def test_memory_does_not_grow_with_the_kernel(margin):
    """No array of all windows is allocated, which would be 49 times the images here."""
    import tracemalloc

    case = Case((64, 4, 32, 32), 4, 3, (), Windows(7, padding=3))
    x, t, f, w = problem("tree", margin, case, np.float32)
    tracemalloc.start()
    try:
        y = hinge.forward(x, t, f, w, margin=margin, windows=case.windows, aggregate="sum")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < y.nbytes + 8 * x.nbytes


# -------------------------------------------------------------------------------- known answers

# Thresholds, features, weights, samples; leaves, margins, vertices, outputs; gradients of the sum of the outputs.
BY_HAND = {
    # Root x0 > 0; left child x1 > 1, right child x1 > -1.
    ("tree", "column"): (
        [[0, 1, -1]], [[0, 1, 1]], [[1, 10, 100, 1000]], [[-2, 0], [-2, 3], [0.25, -1], [4, -0.5], [0, 9]],
        [0, 1, 2, 3, 1],  # x0 = 0 is a tie: left
        [-1, -2, 0, 0.5, 0],
        [1, 0, 2, 2, 0],  # |-2| = |2|: the vertex remains the root
        [1, 20, 0, 500, 0],
        [[0, -1], [-10, 0], [0, 0], [0, 1000], [0, 0]], [[10, 1, -1000]], None, [[1, 2, 0, 0.5]],
    ),
    ("fern", "column"): (
        [[0, 1, 2]], [[0, 0, 0]], [[1, 2, 3, 4, 5, 6, 7, 8]], [[-1], [0.5], [1.75], [2.5], [1]],
        [0b000, 0b100, 0b110, 0b111, 0b100], [-1, 0.5, -0.25, 0.5, 0], [0, 0, 2, 2, 1], [1, 2.5, 1.75, 4, 0],
        [[-1], [5], [-7], [8], [0]], [[-4, 0, -1]], None, [[1, 0, 0, 0, 0.5, 0, 0.25, 0.5]],
    ),
    # Root x0 + x1 > 1; left child x0 - x1 > 0, right child 2 x0 > 3.
    ("tree", "projection"): (
        [[1, 0, 3]], [[[1, 1], [1, -1], [2, 0]]], [[1, 10, 100, 1000]],
        [[-1, 0], [0.5, -0.25], [1.25, 4], [4, -2], [0.5, 0.5]],
        [0, 1, 2, 3, 0],  # 0.5 + 0.5 = 1 and 0.5 - 0.5 = 0 are ties: left
        [-1, -0.75, -0.5, 1, 0],
        [1, 0, 2, 0, 0],  # the last: of two margins 0 the root's
        [1, 7.5, 50, 1000, 0],
        [[-1, 1], [-10, -10], [-200, 0], [1000, 1000], [0, 0]], [[10 - 1000, 1, 100]],
        [[[4000 - 5, -2000 + 2.5], [1, 0], [-125, -400]]], [[1, 0.75, 0.5, 1]],
    ),
    ("fern", "projection"): (
        [[1, 2]], [[[1, 1], [0, 4]]], [[1, 10, 100, 1000]], [[0, 0.25], [4, 0], [0.25, 1]],
        [0b00, 0b10, 0b11], [-0.75, -2, 0.25], [0, 1, 0], [0.75, 200, 250],
        [[-1, -1], [0, -400], [1000, 1000]], [[1 - 1000, 100]], [[[250, 1000 - 0.25], [-400, 0]]],
        [[0.75, 0, 2, 0.25]],
    ),
}  # fmt: skip


@kinds
@margins
def test_by_hand(backend, dtype, kind, margin):
    t, f, w, x, *want = BY_HAND[kind, margin]
    t, w, x = (np.array(a, dtype) for a in (t, w, x))
    f, words = np.array(f, np.int32 if margin == "column" else dtype), {"kind": kind, "margin": margin}
    y, route = hinge.forward_with_route(x, t, f, w, **words)
    for a, b in zip((*route, y), want, strict=False):
        assert a.ravel().tolist() == b
    assert route.leaf.dtype == route.vertex.dtype == np.int32
    assert route.margin.dtype == y.dtype == dtype
    grads = hinge.backward(np.ones_like(y), route, x, t, f, w, **words)
    assert [None if a is None else a.tolist() for a in grads] == want[4:]
    assert all(a.dtype == dtype for a in pushed(grads).values())


def values(margin, rows, f):
    """Returns the values that vertices compare with thresholds, (n_rows, n_trees, n_vertices)."""
    return rows[:, f] if margin == "column" else np.einsum("nf,mvf->nmv", rows, f)


@kinds
@margins
@reads
def test_forward_is_equation_10(backend, kind, margin, case):
    """The output is the sum over all leaves of w_l min over the path of ReLU(d(x - t)) (Lay et al. 2018, eq.
    8-10).
    """
    case = case._replace(depth=3, outputs=())
    x, t, f, w = problem(kind, margin, case, coarse=True)
    rows = unfolded(x, case.windows).reshape(-1, n_columns(case))
    r, want = values(margin, rows, f) - t, np.zeros((len(rows), case.n_trees))
    for n, m, leaf in itertools.product(range(len(rows)), range(case.n_trees), range(8)):
        v, terms = 0, []
        for level in range(3):
            right = leaf >> (2 - level) & 1
            at = r[n, m, level if kind == "fern" else v]
            terms.append(max(at if right else -at, 0.0))
            v = 2 * v + 1 + right
        want[n, m] += w[m, leaf] * min(terms)
    y = hinge.forward(x, t, f, w, **words_of(kind, margin, case))
    np.testing.assert_allclose(y.reshape(want.shape), want, rtol=1e-15, atol=0)


@margins
@reads
def test_a_fern_of_depth_one_is_a_tree_of_depth_one(backend, dtype, margin, case):
    case = case._replace(depth=1, n_trees=5)
    arrays = problem("tree", margin, case, dtype, coarse=True)
    tree, fern = (everything(kind, margin, case, arrays, None) for kind in KINDS)
    for name, a in tree.items():
        np.testing.assert_array_equal(a, fern[name])


def test_the_sum_of_an_inner_product_has_its_order(backend):
    """Eight partial sums in float64 are added in the order of the reference implementation."""
    rng, words = np.random.default_rng(0), {"kind": "fern", "margin": "projection"}
    for n_features in (1, 7, 8, 9, 40, 77):
        x, p = rng.normal(size=(50, n_features)), rng.normal(size=(50, 1, n_features))
        part = np.zeros((8, 50, 50))
        for k in range(n_features):
            part[k % 8] += x[:, None, k] * p[None, :, 0, k]
        want = ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]))
        margin = hinge.traverse(x, np.zeros((50, 1)), p, **words).margin
        assert margin.tobytes() == want.tobytes()
        x, p = x.astype(np.float32), p.astype(np.float32)
        margin = hinge.traverse(x, np.zeros((50, 1), np.float32), p, **words).margin
        # Rounded once: the sum in float64 is as good as exact.
        np.testing.assert_array_equal(
            margin, (x.astype(np.float64) @ p[:, 0].T.astype(np.float64)).astype(np.float32)
        )


@kinds
@aggregates
@pytest.mark.parametrize("coarse", [False, True], ids=["generic", "ties"])
def test_projections_equal_a_forest_on_a_linear_layer(backend, kind, aggregate, coarse):
    """z = x P', followed by a forest in which each vertex reads its own column of z."""
    x, t, p, w = problem(kind, "projection", Case((40, 11), 5, 4, 3), coarse=coarse)
    flat = p.reshape(-1, 11)
    z, features = np.ascontiguousarray(x @ flat.T), np.arange(t.size, dtype=np.int32).reshape(t.shape)
    words, layer = ({"kind": kind, "margin": margin, "aggregate": aggregate} for margin in MARGINS[::-1])
    y, route = hinge.forward_with_route(x, t, p, w, **words)
    want, plain = hinge.forward_with_route(z, t, features, w, **layer)
    np.testing.assert_array_equal(route.leaf, plain.leaf)
    np.testing.assert_array_equal(route.vertex, plain.vertex)
    np.testing.assert_allclose(route.margin, plain.margin, rtol=0, atol=1e-13)
    np.testing.assert_allclose(y, want, rtol=0, atol=1e-12)
    g = np.random.default_rng(1).normal(size=y.shape)
    got = hinge.backward(g, route, x, t, p, w, **words)
    grad_z, grad_t, _, grad_w = hinge.backward(g, route, z, t, features, w, **layer)
    for a, b in zip(got, (grad_z @ flat, grad_t, (grad_z.T @ x).reshape(p.shape), grad_w), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * abs(b).max())
    assert got.thresholds.tobytes() == grad_t.tobytes()
    assert got.weights.tobytes() == grad_w.tobytes()


# ---------------------------------------------------------------------------- backends and the reference implementation


CPU = Backend("cpu")


def everything(kind, margin, case, arrays, aggregate, backend=CPU):
    """Returns all results of the operators by name. Results that functions share are bit-identical."""
    x, t, f, w = (backend.array(a) for a in arrays)
    words = words_of(kind, margin, case)
    y, route = hinge.forward_with_route(x, t, f, w, **words, aggregate=aggregate)
    grad_y = backend.array(np.random.default_rng(1).normal(size=y.shape).astype(arrays[0].dtype))
    dense = hinge.backward(grad_y, route, x, t, f, w, **words, aggregate=aggregate)
    sparse = hinge.backward_sparse(grad_y, route, x, t, f, w, **words, aggregate=aggregate)
    again = [
        (hinge.forward(x, t, f, w, **words, aggregate=aggregate), y),
        (hinge.leaf_outputs(route.leaf, route.margin, w, aggregate=aggregate), y),
        *zip(hinge.traverse(x, t, f, **words), route, strict=True),
        (sparse.x, dense.x),
    ]
    for a, b in again:
        assert backend.numpy(a).tobytes() == backend.numpy(b).tobytes()
    assert [name for name, a in dense._asdict().items() if a is None] == ["features"] * (margin == "column")
    parts = {"y": y, **route._asdict()} | {f"grad_{name}": a for name, a in pushed(dense).items()}
    for name, gradient in list(pushed(sparse).items())[1:]:
        parts |= {f"rows_{name}": gradient.rows, f"values_{name}": gradient.values}
    return {name: backend.numpy(a) for name, a in parts.items()}


EXACT = {"leaf", "margin", "vertex", "rows_thresholds", "rows_features", "rows_weights"}


def assert_close(got, want, exact, case):
    """Asserts that arrays differ by at most the rounding of a float64 sum, relative to the largest term.

    Sums over many samples, and over windows, have different orders.
    """
    eps = np.finfo(want["margin"].dtype).eps * (1 if case.windows is None and case.shape[0] <= 256 else 4)
    assert got.keys() == want.keys()
    for name, a in got.items():
        b = want[name]
        assert a.dtype == b.dtype, name
        assert a.shape == b.shape, name
        if name in exact:
            assert a.tobytes() == b.tobytes(), name
        else:
            largest = max(1, abs(b).max(initial=0))
            np.testing.assert_allclose(a, b, rtol=2 * eps, atol=4 * eps * largest, err_msg=name)


@kinds
@margins
@pytest.mark.parametrize(
    ("case", "coarse"), [*itertools.product(ROWS, (False, True)), *((case, True) for case in IMAGES)], ids=str
)
@aggregates
def test_backend_equals_reference(fast_backend, dtype, kind, margin, case, coarse, aggregate):
    arrays = problem(kind, margin, case, dtype, coarse=coarse)
    got = everything(kind, margin, case, arrays, aggregate, fast_backend)
    with hforest.using("reference"):
        want = everything(kind, margin, case, arrays, aggregate)
    exact = EXACT | (set() if aggregate else {"y"})
    if margin == "projection" and aggregate is None and np.prod(case.outputs, dtype=int) == 1:
        # A slope is one product, so every sum has the reference's terms in its order.
        exact |= {"grad_x", "grad_features", "values_features"}
    assert_close(got, want, exact, case)


def assert_rows_are_dense(found, n_trees):
    """Asserts that gradients by rows hold the dense ones, in the rows that samples reach."""
    for name in ("thresholds", "features", "weights"):
        if f"grad_{name}" in found:
            full, rows = found[f"grad_{name}"], found[f"rows_{name}"]
            index = found["leaf" if name == "weights" else "vertex"].reshape(-1, n_trees)
            assert rows.tolist() == np.unique(np.arange(n_trees) * full.shape[1] + index).tolist()
            assert rows.dtype == np.int64
            rebuilt = np.zeros((full.shape[0] * full.shape[1], *full.shape[2:]), full.dtype)
            rebuilt[rows] = found[f"values_{name}"]
            np.testing.assert_array_equal(rebuilt.reshape(full.shape), full)


@kinds
@margins
@reads
@aggregates
def test_sparse_equals_dense(backend, dtype, kind, margin, case, aggregate):
    case = case._replace(outputs=(3, 2), depth=4)
    found = everything(kind, margin, case, problem(kind, margin, case, dtype, coarse=True), aggregate)
    assert_rows_are_dense(found, case.n_trees)


# Beyond one chunk of the forward pass; many blocks; few trees, whose columns threads share; few samples, deep trees.
THREADED = [
    ("column", Case((1000, 11), 50, 5, 3)),
    ("column", Case((3000, 11), 50, 5, 3)),
    ("column", Case((9, 4, 20, 21), 40, 5, 2, Windows(3, 1, 1))),
    ("projection", Case((1500, 9), 20, 4, 3)),
    ("projection", Case((700, 300), 2, 3, 3)),
    ("projection", Case((3, 1100), 40, 8, 3)),
    ("projection", Case((300, 530), 1, 6, 3)),
    ("projection", Case((9, 4, 20, 21), 20, 4, 2, Windows(3, 1, 1))),
]


@kinds
@aggregates
@pytest.mark.parametrize(("margin", "case"), THREADED, ids=str)
def test_threads_change_no_bit(threads, dtype, kind, margin, case, aggregate):
    arrays = problem(kind, margin, case, dtype)
    assert_all_same(on_threads(threads, lambda: everything(kind, margin, case, arrays, aggregate)))


# Every depth up to 12 (levels held in registers, packed, gathered), partial tiles and groups of trees, few samples in
# deep trees (not packed), several blocks; every remainder of a vector of outputs, and of products.
VECTORS = {
    "column": [
        *(Case((40, 9), 17, depth, 3) for depth in range(1, 13)), Case((8, 3), 5, 12, 3), Case((31, 4), 33, 3, 3),
        Case((33, 17), 16, 7, 3), Case((300, 40), 3, 9, 3), Case((700, 5), 50, 6, 3), Case((64, 1), 2, 8, 3),
        *(Case((39, 5), 5, 3, n) for n in (*range(1, 18), 40)), *IMAGES,
    ],
    "projection": [*(Case((40, n), 5, 3, 2) for n in (*range(1, 18), 31, 32, 33, 64, 100)), *IMAGES],
}  # fmt: skip


@several_paths
@kinds
@margins
@pytest.mark.parametrize("coarse", [False, True], ids=["generic", "ties"])
def test_vector_paths_have_the_bits_of_the_plain_one(simd, dtype, kind, margin, coarse):
    """This includes infinite thresholds and zeros of either sign."""
    for seed, case in enumerate(VECTORS[margin]):
        x, t, *_ = arrays = problem(kind, margin, case, dtype, seed, coarse)
        t[0, ::3] = np.inf
        t[-1, ::5] = -np.inf
        x[::2][x[::2] < 0 if margin == "projection" else x[::2] == 0] = -0.0
        run = partial(everything, kind, margin, case, arrays, AGGREGATES[seed % 3])
        assert_all_same(on_paths(simd, run))


def by_numpy(margin, arrays, route, each, real):
    """Returns margins, outputs and gradients by plain NumPy in one dtype, from gradients of the trees' outputs."""
    x, t, f, w = (a if a.dtype.kind == "i" else a.astype(real) for a in arrays)
    (leaf, r, vertex), each, trees = route, each.astype(real), np.arange(len(w))
    r, rows, picked, samples = r.astype(real), w[trees, leaf], f[trees, vertex], np.arange(len(x))[:, None]
    s = np.sign(r) * (rows * each).sum(axis=2, dtype=real)
    grad_t, grad_w, grad_x = (np.zeros(a.shape, real) for a in (t, w, x))
    np.add.at(grad_t, (trees, vertex), -s)
    np.add.at(grad_w, (trees, leaf), abs(r)[:, :, None] * each)
    found = {"y": (rows * abs(r)[:, :, None]).sum(axis=1, dtype=real)}
    if margin == "column":
        found["margin"] = x[samples, picked] - t[trees, vertex]
        np.add.at(grad_x, (samples, picked), s)
    else:
        found["margin"] = (picked * x[:, None]).sum(axis=2, dtype=real) - t[trees, vertex]
        grad_x = (s[:, :, None] * picked).sum(axis=1, dtype=real)
        found["grad_features"] = np.zeros(f.shape, real)
        np.add.at(found["grad_features"], (trees, vertex), s[:, :, None] * x[:, None])
    return found | {"grad_x": grad_x, "grad_thresholds": grad_t, "grad_weights": grad_w}


@kinds
@margins
@aggregates
@pytest.mark.parametrize("depth", [3, 8, 12])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_many_samples_and_deep_trees(dtype, kind, margin, aggregate, depth, n_outputs):
    # More samples than a stretch, leaves than twice the samples, leaves marked by bits and by bytes.
    for n in (2500, 40):
        case = Case((n, 6), 18, depth, n_outputs)
        arrays = problem(kind, margin, case, dtype, seed=depth)
        found = everything(kind, margin, case, arrays, aggregate)
        route = hinge.Route(*(found[name] for name in hinge.Route._fields))
        grad_y = np.random.default_rng(1).normal(size=found["y"].shape).astype(dtype)
        each = grad_y if aggregate is None else np.broadcast_to(grad_y[:, None], (n, 18, n_outputs))
        each = each.astype(np.float64) / (18 if aggregate == "mean" else 1)
        want, eps = by_numpy(margin, arrays, route, each, np.float64), 40 * np.finfo(dtype).eps
        for name, b in want.items():
            if name.startswith("grad"):
                np.testing.assert_allclose(found[name], b, rtol=eps, atol=eps * abs(b).max(), err_msg=name)
        assert_rows_are_dense(found, 18)


@st.composite
def any_windows(draw):
    """The shape of images, and windows that fit."""
    axes = []
    for _ in range(draw(st.integers(1, 2))):
        kernel, dilation, padding = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 2))
        least = max(1, dilation * (kernel - 1) + 1 - 2 * padding)
        axes.append((draw(st.integers(least, least + 3)), kernel, draw(st.integers(1, 3)), padding, dilation))
    size, *settings = zip(*axes, strict=True)
    return (draw(st.integers(0, 2)), draw(st.integers(1, 3)), *size), Windows(*settings)


@hypothesis.given(
    kind=st.sampled_from(KINDS),
    margin=st.sampled_from(MARGINS),
    aggregate=st.sampled_from(AGGREGATES),
    double=st.booleans(),
    read=st.tuples(st.tuples(st.integers(0, 70), st.integers(1, 20)), st.none()) | any_windows(),
    n_trees=st.integers(1, 20),
    depth=st.integers(1, 6),
    outputs=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    coarse=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_any_shape(kind, margin, aggregate, double, read, n_trees, depth, outputs, coarse, seed):
    case = Case(read[0], n_trees, depth, outputs, read[1])
    arrays = problem(kind, margin, case, np.float64 if double else np.float32, seed, coarse)
    got = everything(kind, margin, case, arrays, aggregate)
    with hforest.using("reference"):
        want = everything(kind, margin, case, arrays, aggregate)
    assert_close(got, want, EXACT, case)


@kinds
@margins
@reads
@aggregates
def test_parts_of_the_samples_change_no_bit(backend, monkeypatch, kind, margin, case, aggregate):
    case = case._replace(shape=(23, *case.shape[1:]), n_trees=3)
    x, t, f, w = problem(kind, margin, case)
    words = {**words_of(kind, margin, case), "aggregate": aggregate}
    want = hinge.forward(x, t, f, w, **words)
    of = dispatch.backend("hforest.hinge", x)
    monkeypatch.setattr(of, "PAIRS", 12, raising=False)  # four samples
    assert hinge.forward(x, t, f, w, **words).tobytes() == want.tobytes()


@kinds
@pytest.mark.parametrize(
    ("margin", "case"),
    [("column", Case((60, 6), 40, 4, 5)), ("projection", Case((50, 40), 20, 3, 5))],
    ids=MARGINS,
)
def test_float_error_at_most_twice_numpy(backend, kind, margin, case):
    arrays = problem(kind, margin, case, np.float32)
    got = everything(kind, margin, case, arrays, "sum")
    route = hinge.Route(*(got[name] for name in hinge.Route._fields))
    grad_y = np.random.default_rng(1).normal(size=got["y"].shape).astype(np.float32)
    each = np.broadcast_to(grad_y[:, None], (*route.leaf.shape, 5))
    single, double = (by_numpy(margin, arrays, route, each, real) for real in (np.float32, np.float64))
    for name in double:
        assert abs(got[name] - double[name]).max() <= 2 * abs(single[name] - double[name]).max(), name


def test_weights_beyond_32_bits():
    # 2**31 + 64 zero pages of weights, of which two rows are written: offsets must not be 32 bits wide.
    depth, outputs = 22, 513
    try:
        w = np.zeros((1, 2**depth, outputs), np.float32)
    except MemoryError:
        pytest.skip("not enough address space for 8 GB of untouched zeros")
    t = np.full((1, 2**depth - 1), -1.0, np.float32)
    f = np.zeros((1, 2**depth - 1), np.int32)
    w[0, -1] = 3.0
    x = np.ones((2, 1), np.float32)
    y, route = hinge.forward_with_route(x, t, f, w, aggregate="sum")
    assert w.size > 2**31
    assert (y == 6).all()
    rows, found = hinge.backward_sparse(y, route, x, t, f, w, aggregate="sum").weights
    assert rows.tolist() == [2**depth - 1]
    assert (found == 2 * 2 * 6).all()


# ------------------------------------------------------------------------------------- bad input


@kinds
@pytest.mark.parametrize("n_samples", [256, 1500])
def test_routes_with_vertices_in_shared_memory(fast_backend, dtype, kind, n_samples):
    rng = np.random.default_rng(n_samples)
    t, f, _ = hinge.init(37, 3, 6, kind=kind, dtype=dtype, rng=rng)
    x = np.round(rng.normal(size=(n_samples, 6)), 1).astype(dtype)
    t = np.round(t, 1)
    t[::5, 0] = np.inf
    with dispatch.forced("cpu"):
        expected = hinge.traverse(x, t, f, kind=kind)
    got = hinge.traverse(*(fast_backend.array(a) for a in (x, t, f)), kind=kind)
    assert [fast_backend.numpy(a).tobytes() for a in got] == [a.tobytes() for a in expected]


@pytest.mark.parametrize("n_samples", [0, 1, 300])
def test_rows_of_many_leaves(fast_backend, n_samples):
    # More leaves than the marks of a block on the host.
    leaf = np.random.default_rng(0).integers(0, 10_000, (n_samples, 3), np.int32)
    for n_leaves in (10_000, 2**21):
        rows = fast_backend.numpy(hinge.leaf_rows(fast_backend.array(leaf), n_leaves))
        assert np.array_equal(rows, np.unique(leaf + np.arange(3) * n_leaves))
