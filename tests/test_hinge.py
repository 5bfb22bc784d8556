"""Hinge trees and ferns: known answers, the reference implementation against its backends, gradients, bad input.

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
from conftest import Backend, assert_same_bits, several_paths, slope
from growers import assert_all_same, on_paths, on_threads

import hforest
from hforest import hinge
from hforest.core import dispatch
from hforest.core.windows import geometry
from hforest.hinge import Windows, gpu, kernels, shared

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


# ------------------------------------------------------------------------------------ gradients


def assert_central_differences(words, arrays, aggregate):
    """Asserts that gradients of a sum of outputs with random signs equal central differences."""
    x, t, f, w = arrays
    y, route = hinge.forward_with_route(x, t, f, w, **words, aggregate=aggregate)
    g, step = np.random.default_rng(3).normal(size=y.shape), 1e-6
    grads = hinge.backward(g, route, x, t, f, w, **words, aggregate=aggregate)
    # Away from points without a derivative: no decision changes, and no other margin becomes the smallest.
    rows = unfolded(x, words["windows"])
    r = np.sort(abs(values(words["margin"], rows.reshape(-1, rows.shape[-1]), f) - t), axis=2)
    assert r[..., 0].min() > 20 * step
    assert np.diff(r, axis=2).min() > 20 * step or (words["kind"], words["margin"]) == ("tree", "column")

    def loss():
        return (hinge.forward(x, t, f, w, **words, aggregate=aggregate) * g).sum()

    parameters = {"x": x, "thresholds": t, "features": f, "weights": w}
    for name, grad in pushed(grads).items():
        want = slope(loss, parameters[name], step).ravel()
        np.testing.assert_allclose(grad.ravel(), want, rtol=1e-6, atol=1e-7 * abs(want).max(), err_msg=name)


# Cases without such points for either margin; with seed 0 there are none.
SMOOTH = [
    Case((5, 4), 3, 2, (3, 2)),
    Case((5, 4), 3, 2),
    Case((2, 2, 4, 3), 2, 2, 2, Windows(2, (1, 2), (0, 1), (2, 1))),
]


@kinds
@margins
@aggregates
@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_central_differences(backend, kind, margin, aggregate, case):
    arrays = problem(kind, margin, case, seed=3)
    assert_central_differences(words_of(kind, margin, case), arrays, aggregate)


@kinds
@margins
def test_margin_zero_has_no_gradient(backend, kind, margin):
    x, t, w = np.ones((1, 2)), np.ones((1, 1)), np.ones((1, 2))
    f = np.zeros((1, 1), np.int32) if margin == "column" else np.array([[[2.0, -1.0]]])
    y, route = hinge.forward_with_route(x, t, f, w, kind=kind, margin=margin)
    assert y.item() == 0
    for grad in pushed(hinge.backward(np.ones((1, 1)), route, x, t, f, w, kind=kind, margin=margin)).values():
        assert not grad.any()


@margins
def test_backward_never_traverses(backend, margin):
    """The gradient follows the route argument, not the arrays from which the route came."""
    t, w = np.full((1, 3), np.nan), np.array([[1.0, 2.0, 4.0, 8.0]])
    route = hinge.Route(np.array([[3]], np.int32), np.array([[-0.5]]), np.array([[2]], np.int32))
    if margin == "column":
        x, f = np.full((1, 3), np.nan), np.array([[0, 1, 2]], np.int32)
        want = [[[0, 0, -80]], [[0, 0, 80]], None, [[0, 0, 0, 5]]]
    else:
        x, f = np.array([[7.0]]), np.array([[[1.0], [3], [5]]])
        want = [[[-400]], [[0, 0, 80]], [[[0], [0], [-560]]], [[0, 0, 0, 5]]]
    grads = hinge.backward(np.array([[10.0]]), route, x, t, f, w, margin=margin)
    assert [None if g is None else g.tolist() for g in grads] == want


@kinds
def test_training_fits_an_oblique_boundary(kind):
    """Two hundred steps of gradient descent on classes that no single column separates."""
    rng, words = np.random.default_rng(0), {"kind": kind, "margin": "projection", "aggregate": "sum"}
    x = rng.normal(size=(300, 6)).astype(np.float32)
    target = np.sign(x @ rng.normal(size=6)).astype(np.float32)
    _, t, p, w = problem(kind, "projection", Case((1, 6), 10, 3), np.float32, seed=1)
    t *= 0
    p *= np.float32(6**0.5)
    w *= np.float32(0.1)
    losses = []
    for _ in range(200):
        y, route = hinge.forward_with_route(x, t, p, w, **words)
        losses.append(float(((y - target) ** 2).mean()))
        grads = hinge.backward((y - target) / 300, route, x, t, p, w, **words)
        for parameter, grad in zip((t, p, w), grads[1:], strict=True):
            parameter -= np.float32(0.1) * grad
    assert losses[-1] < 0.3 < 0.8 < losses[0]


# -------------------------------------------------------------------------------------------- aggregates of one's own


def _pull_maximum(grad_y, outputs):
    return np.where(outputs == outputs.max(axis=1, keepdims=True), grad_y[:, None], 0).astype(outputs.dtype)


SHARES = np.array([[0.5], [-2.0], [1.0]])
ENTRIES = {
    "maximum": shared.Reduction(False, combine=lambda a: a.max(axis=1), pull=_pull_maximum),
    "weighted": shared.Reduction(
        False,
        combine=lambda a: (a * SHARES.astype(a.dtype)).sum(axis=1),
        pull=lambda g, a: g[:, None] * SHARES.astype(a.dtype),
    ),
    "squares": shared.Reduction(
        False, combine=lambda a: (a * a).sum(axis=1), pull=lambda g, a: 2 * g[:, None] * a
    ),
}


@kinds
@margins
@pytest.mark.parametrize("case", SMOOTH, ids=str)
@pytest.mark.parametrize("word", ENTRIES)
def test_an_aggregate_is_an_entry(backend, monkeypatch, dtype, kind, margin, case, word):
    monkeypatch.setitem(shared.REDUCTIONS, word, ENTRIES[word])
    case, words = case._replace(n_trees=3), words_of(kind, margin, case)
    x, t, f, w = arrays = problem(kind, margin, case, dtype, seed=3)
    found = everything(kind, margin, case, arrays, word)
    route = hinge.Route(*(found[name] for name in hinge.Route._fields))
    apart = hinge.forward(x, t, f, w, **words)
    flat = apart.reshape(route.leaf.size // 3, 3, -1)
    want = ENTRIES[word].combine(flat)
    assert found["y"].tobytes() == want.tobytes()
    assert found["y"].shape == (*route.leaf.shape[:-1], *w.shape[2:])
    # The gradients equal those of separate outputs, through the derivative of the aggregate.
    grad_y = np.random.default_rng(1).normal(size=found["y"].shape).astype(dtype)
    pulled = ENTRIES[word].pull(grad_y.reshape(want.shape), flat).reshape(apart.shape)
    for name, a in pushed(hinge.backward(pulled, route, x, t, f, w, **words)).items():
        assert found[f"grad_{name}"].tobytes() == a.tobytes(), name
    if dtype == np.float64:
        assert_central_differences(words, arrays, word)


def test_an_aggregate_that_is_an_entry_is_named(monkeypatch):
    monkeypatch.setitem(shared.REDUCTIONS, "maximum", ENTRIES["maximum"])
    x, t, f, w = problem("tree", "column", SMALL[0])
    with pytest.raises(
        ValueError, match="^aggregate: expected one of None, 'sum', 'mean', 'maximum', got 'least'"
    ):
        hinge.forward(x, t, f, w, aggregate="least")
    with pytest.raises(ValueError, match="^aggregate: expected one of 'sum', 'mean', got 'maximum'"):
        hinge.adam_forward(x, t, f, w, hinge.adam_state(t, w), 1, 0.1, aggregate="maximum")


# ------------------------------------------------------------------------------------------ the unchecked layer


@kinds
@margins
@aggregates
@pytest.mark.parametrize("case", [ROWS[3], ROWS[4], IMAGES[3], IMAGES[4], IMAGES[6]], ids=str)
def test_kernels_have_the_bits_of_the_checked_functions(backend, dtype, kind, margin, aggregate, case):
    x, t, f, w = arrays = problem(kind, margin, case, dtype, coarse=True)
    want, words = everything(kind, margin, case, arrays, aggregate), words_of(kind, margin, case)
    how = {**words, "aggregate": aggregate}

    def fresh(*names):
        return [np.full_like(want[name], -7) for name in names]

    route, alone = (hinge.Route(*fresh(*hinge.Route._fields)) for _ in range(2))
    outputs = fresh("y", "y", "y")
    assert kernels.traverse(x, t, f, **words, out=alone) is None
    assert kernels.forward(x, t, f, w, **how, out=outputs[0]) is None
    assert kernels.forward(x, t, f, w, **how, out=outputs[1], route=route) is None
    assert kernels.leaf_outputs(route.leaf, route.margin, w, aggregate=aggregate, out=outputs[2]) is None
    for name in hinge.Route._fields:
        for found in (route, alone):
            assert getattr(found, name).tobytes() == want[name].tobytes(), name
    for y in outputs:
        assert y.tobytes() == want["y"].tobytes()
    # Thresholds are not read. Neither is x if its shape is enough, which is that of its gradient.
    read = x if margin == "projection" else None
    grad_y = np.random.default_rng(1).normal(size=want["y"].shape).astype(dtype)
    grads = hinge.Gradients(*(
        np.full_like(a, -7) if a.dtype == dtype else None for a in arrays
    ))  # fmt: skip
    assert kernels.backward(grad_y, route, read, None, f, w, **how, out=grads) is None
    grad_x = np.full_like(x, -7)
    sparse = kernels.backward_sparse(grad_y, route, read, None, f, w, **how, out=grad_x)
    assert sparse.x is grad_x
    assert grad_x.tobytes() == want["grad_x"].tobytes()
    for name, a in pushed(grads).items():
        assert a.tobytes() == want[f"grad_{name}"].tobytes(), name
        if name != "x":
            rows, found = getattr(sparse, name)
            assert rows.tobytes() == want[f"rows_{name}"].tobytes(), name
            assert found.tobytes() == want[f"values_{name}"].tobytes(), name
            assert found.shape == want[f"values_{name}"].shape


def test_kernels_are_those_of_their_page():
    names = ["backward", "backward_sparse", "forward", "leaf_outputs", "touched_rows", "traverse"]
    names += ["adam_backward", "adam_forward"]
    assert set(kernels.__all__) == {"MARGINS", "check_changed", *names}
    assert tuple(kernels.MARGINS) == MARGINS
    start, rows = kernels.touched_rows(np.array([[1, 2], [0, 2], [1, 1]], np.int32), 4)
    assert start.tolist() == [0, 2, 4]
    assert rows.tolist() == [0, 1, 5, 6]


# ------------------------------------------------------------------------------ zero samples, out


@kinds
@margins
@aggregates
@pytest.mark.parametrize(
    "case", [Case((0, 3), 2, 2, 4), Case((0, 2, 4, 4), 2, 2, 4, Windows(3, 1, 1))], ids=str
)
def test_no_samples(backend, dtype, kind, margin, aggregate, case):
    x, t, f, w = problem(kind, margin, case, dtype)
    words = {**words_of(kind, margin, case), "aggregate": aggregate}
    y, route = hinge.forward_with_route(x, t, f, w, **words)
    assert y.shape == (*route.leaf.shape[:-1], *(() if aggregate else (2,)), 4)
    assert route.leaf.shape == ((0, 2) if case.windows is None else (0, 4, 4, 2))
    dense = pushed(hinge.backward(y, route, x, t, f, w, **words))
    shapes = {"x": x.shape, "thresholds": t.shape, "features": f.shape, "weights": w.shape}
    assert {name: a.shape for name, a in dense.items()} == {name: shapes[name] for name in dense}
    assert not any(a.any() for a in dense.values())
    given = hinge.Gradients(**{"features": None, **{name: np.full_like(a, 7) for name, a in dense.items()}})
    hinge.backward(y, route, x, t, f, w, **words, out=given)
    assert not any(a.any() for a in pushed(given).values())
    sparse = pushed(hinge.backward_sparse(y, route, x, t, f, w, **words))
    del sparse["x"]
    assert {name: g.values.shape for name, g in sparse.items()} == {
        name: (0, *shapes[name][2:]) for name in sparse
    }
    assert all(g.rows.shape == (0,) for g in sparse.values())
    leaf = route.leaf.reshape(0, 2)
    assert hinge.leaf_counts(leaf, 4).sum() == 0
    assert hinge.leaf_rows(leaf, 4).shape == (0,)


def spoilt(result):
    """Returns the arrays of a result with other numbers."""
    if isinstance(result, tuple):
        return (
            type(result)(*map(spoilt, result)) if hasattr(result, "_fields") else tuple(map(spoilt, result))
        )
    return None if result is None else np.full_like(result, -1)


def leaves(result):
    """Yields the arrays of a result."""
    return [a for part in result for a in leaves(part)] if isinstance(result, tuple) else [result]


@kinds
@margins
@reads
@pytest.mark.parametrize("aggregate", [None, "mean"])
def test_out(backend, dtype, kind, margin, case, aggregate):
    x, t, f, w = problem(kind, margin, case, dtype)
    words = words_of(kind, margin, case)
    how = {**words, "aggregate": aggregate}
    y, route = hinge.forward_with_route(x, t, f, w, **how)
    back = y, route, x, t, f, w
    calls = [
        (hinge.traverse, (x, t, f), words, route),
        (hinge.forward, (x, t, f, w), how, y),
        (hinge.forward_with_route, (x, t, f, w), how, (y, route)),
        (hinge.leaf_outputs, (route.leaf, route.margin, w), {"aggregate": aggregate}, y),
        (hinge.backward, back, how, hinge.backward(*back, **how)),
    ]
    for call, args, settings, want in calls:
        given = spoilt(want)
        got = call(*args, **settings, out=given)
        assert type(got) is type(want)
        for a, b, c in zip(*map(leaves, (got, given, want)), strict=True):
            assert a is b
            np.testing.assert_array_equal(a, c)
    given, want = np.full_like(x, np.nan), hinge.backward_sparse(*back, **how)
    got = hinge.backward_sparse(*back, **how, out=given)
    assert got.x is given
    for a, b in zip(leaves(got), leaves(want), strict=True):
        np.testing.assert_array_equal(a, b)


@margins
@reads
def test_inputs_are_left_alone_and_may_be_read_only(backend, margin, case):
    arrays = problem("tree", margin, case)
    copies = [a.copy() for a in arrays]
    for a in arrays:
        a.flags.writeable = False
    words = words_of("tree", margin, case)
    y, route = hinge.forward_with_route(*arrays, **words)
    for a in (y, *route):
        a.flags.writeable = False
    hinge.backward(y, route, *arrays, **words)
    hinge.backward_sparse(y, route, *arrays, **words)
    for a, b in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(a, b)


@kinds
@margins
def test_infinite_thresholds_and_products_beyond_the_dtype(backend, dtype, kind, margin):
    x, t, f, _ = problem(kind, margin, Case((6, 9), 2, 3, 2), dtype)
    t[0] = np.inf
    t[1] = -np.inf
    leaf, r, _ = hinge.traverse(x, t, f, kind=kind, margin=margin)
    assert (leaf == [0, 7]).all()
    assert (r == [-np.inf, np.inf]).all()
    largest = np.finfo(dtype).max
    x = np.full((2, 9), largest, dtype)
    if margin == "column":
        t[...] = -largest
    else:
        t, f = np.zeros_like(t), np.full(f.shape, 4, dtype)
    with np.errstate(over="ignore"):
        leaf, r, vertex = hinge.traverse(x, t, f, kind=kind, margin=margin)
    assert (leaf == 7).all()
    assert (r == np.inf).all()
    assert (vertex == 0).all()


# -------------------------------------------------------------------------------- looking inside


def test_leaf_counts_and_rows(backend):
    leaf = np.random.default_rng(0).integers(0, 128, (300, 5), np.int32)
    counts = hinge.leaf_counts(leaf, 128)
    assert counts.dtype == np.int64
    for m in range(5):
        np.testing.assert_array_equal(counts[m], np.bincount(leaf[:, m], minlength=128))
    rows = hinge.leaf_rows(leaf, 128)
    np.testing.assert_array_equal(rows, np.flatnonzero(counts))


def test_tree_path(backend):
    x, t, f, _ = problem("tree", "column", Case((30, 5), 4, 4))
    leaf, _, vertex = hinge.traverse(x, t, f)
    path = hinge.tree_path(leaf, f)
    assert path.vertex.shape == path.feature.shape == path.right.shape == (30, 4, 4)
    samples, trees = np.ogrid[:30, :4]
    for level in range(4):
        v = path.vertex[..., level]
        np.testing.assert_array_equal(path.feature[..., level], f[trees, v])
        np.testing.assert_array_equal(path.right[..., level], x[samples, f[trees, v]] > t[trees, v])
    assert (path.vertex == vertex[..., None]).any(axis=2).all()


# ---------------------------------------------------------------------------------------- starts


@kinds
@margins
def test_random_start(dtype, kind, margin):
    t, f, w = hinge.init(200, 6, 10, (3, 2), kind=kind, margin=margin, dtype=dtype, rng=0)
    assert t.shape == (200, 63 if kind == "tree" else 6)
    assert f.shape == (*t.shape, 10)[: 2 if margin == "column" else 3]
    assert w.shape == (200, 64, 3, 2)
    assert t.dtype == w.dtype == dtype
    assert f.dtype == (np.int32 if margin == "column" else dtype)
    assert all(a.flags.c_contiguous for a in (t, f, w))
    assert t.min() >= -3
    assert t.max() <= 3
    assert abs(t.std() - 6 / 12**0.5) < 0.05  # of U(-3, 3)
    if margin == "column":
        assert np.unique(f).tolist() == list(range(10))
    else:
        assert abs(f.std() - 10**-0.5) < 0.01  # of N(0, 1 / n_features)
        assert abs(f.mean()) < 0.01
    assert abs(w.std() - 0.01) < 2e-4
    assert abs(w.mean()) < 2e-4


@kinds
@margins
def test_start_follows_the_seed(kind, margin):
    words = {"kind": kind, "margin": margin}
    first, same, other = (hinge.init(3, 3, 5, **words, rng=seed) for seed in (7, np.random.default_rng(7), 8))
    for a, b, c in zip(first, same, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (a != c).any()
    for a, b in zip(first, hinge.init(3, 3, 5, **words, dtype=np.float64, rng=7), strict=True):
        np.testing.assert_array_equal(a, b.astype(a.dtype))


@kinds
def test_sequential_features(kind):
    _, f, _ = hinge.init(4, 3, 5, kind=kind, features="sequential", rng=0)
    np.testing.assert_array_equal(f.ravel(), np.arange(f.size) % 5)
    with pytest.raises(
        ValueError, match="^features: expected 'random' with margin='projection', got 'sequential'; leave"
    ):
        hinge.init(4, 3, 5, kind=kind, margin="projection", features="sequential", rng=0)


def test_median_thresholds_split_evenly(dtype):
    x = np.random.default_rng(0).normal(size=(64, 6)).astype(dtype)
    _, f, _ = hinge.init(5, 6, 6, dtype=dtype, rng=0)
    t = hinge.median_thresholds(x, f)
    assert t.dtype == dtype
    leaf, _, _ = hinge.traverse(x, t, f)
    assert (hinge.leaf_counts(leaf, 64) == 1).all()
    _, f, _ = hinge.init(5, 3, 6, kind="fern", dtype=dtype, rng=0)
    t = hinge.median_thresholds(x, f, kind="fern")
    right = x[:, f] > t
    assert (right.sum(axis=0) == 32).all()


def test_medians_with_ties_and_empty_vertices(dtype):
    # Three values, the middle one most frequent: no threshold may separate equal values, and both
    # neighbouring splits are equally far from the middle.
    x = np.array([[0], [1], [1], [1], [1], [2]], dtype)
    f = np.zeros((1, 7), np.int32)
    t = hinge.median_thresholds(x, f)
    assert t[0, 0] == 0.5
    assert t[0, 1] == 0.5  # only one value: the samples of the nearest ancestor decide
    assert t[0, 2] == 1.5
    leaf, _, _ = hinge.traverse(x, t, f)
    assert len({(v, tuple(ls)) for v, ls in zip(x.ravel(), leaf.tolist(), strict=True)}) == 3
    constant = np.full((4, 1), 5, dtype)
    assert (hinge.median_thresholds(constant, f) == 8).all()
    assert (hinge.median_thresholds(constant, f[:, :2], kind="fern") == 8).all()


def test_neighbouring_floats_are_split(dtype):
    low = dtype(1)
    high = np.nextafter(low, dtype(2), dtype=dtype)
    t = hinge.median_thresholds(np.array([[low], [high]]), np.zeros((1, 1), np.int32), kind="fern")
    assert low <= t.item() < high
    # The sum of the two overflows, but their midpoint does not.
    big = np.finfo(dtype).max
    t = hinge.median_thresholds(np.array([[big / 2], [big]], dtype), np.zeros((1, 1), np.int32), kind="fern")
    assert big / 2 <= t.item() < big


def reachable(t, f, v):
    """Returns by brute force whether some x reaches each child of v; candidates are between and on all thresholds."""
    values = np.unique(t)
    tries = np.concatenate([values, (values[1:] + values[:-1]) / 2, [values[0] - 1, values[-1] + 1]])
    path, child = [], v
    while child:
        path.append(((child - 1) // 2, child % 2 == 0))
        child = (child - 1) // 2
    # Features are independent, so only ancestors matter that read the feature of v.
    ok = [x for x in tries if all((x > t[a]) == right for a, right in path if f[a] == f[v])]
    return any(x > t[v] for x in ok) and any(not x > t[v] for x in ok)


def test_consistency_against_brute_force(dtype):
    rng = np.random.default_rng(0)
    t, f, _ = hinge.init(30, 4, 3, dtype=dtype, rng=rng)
    t = grid(rng, t.shape, dtype)
    got = hinge.thresholds_consistent(t, f)
    want = [[reachable(t[m], f[m], v) for v in range(15)] for m in range(30)]
    np.testing.assert_array_equal(got, want)
    assert 0.2 < got.mean() < 0.95


def test_repair(dtype):
    rng = np.random.default_rng(0)
    t, f, _ = hinge.init(30, 6, 3, dtype=dtype, rng=rng)
    t[0, :3] = np.inf, -np.inf, 1
    t[1] = 2.0**26  # adding 1 changes nothing in float32
    before = t.copy()
    repaired = hinge.repair_thresholds(t, f)
    np.testing.assert_array_equal(t, before)
    assert repaired.dtype == dtype
    ok = hinge.thresholds_consistent(t, f)
    assert not ok.all()
    assert hinge.thresholds_consistent(repaired, f).all()
    # From the root down: a consistent threshold is unchanged if its path is unchanged.
    np.testing.assert_array_equal(repaired[2:, 0], t[2:, 0])
    assert (repaired != t).mean() < 0.9
    np.testing.assert_array_equal(hinge.repair_thresholds(repaired, f), repaired)


# ------------------------------------------------------------------------------------- named tuples


@kinds
@margins
@pytest.mark.parametrize("n", [1, 500])
def test_results_that_belong_together_have_names(backend, kind, margin, n):
    x = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    words = {"kind": kind, "margin": margin}
    parameters = hinge.init(5, 3, 4, 2, **words, rng=0)
    assert type(parameters) is hinge.Parameters
    assert parameters._fields == FORWARD[1:]
    t, f, w = parameters
    route = hinge.traverse(x, t, f, **words)
    y, again = hinge.forward_with_route(x, t, f, w, **words)
    state = hinge.adam_state(t, w, f if margin == "projection" else None)
    _, trained = hinge.adam_forward(x, t, f, w, state, 1, 0.1, **words)
    for a in (route, again, trained):
        assert type(a) is hinge.Route
        assert a._fields == ("leaf", "margin", "vertex")
        assert [part.dtype for part in a] == [np.int32, np.float32, np.int32]
        np.testing.assert_array_equal(a.leaf, route.leaf)
    grads, sparse = (run(y, route, x, t, f, w, **words) for run in (hinge.backward, hinge.backward_sparse))
    for a in (grads, sparse):
        assert type(a) is hinge.Gradients
        assert a._fields == FORWARD
        assert (a.features is None) == (margin == "column")
    for a in pushed(sparse._replace(x=None)).values():
        assert type(a) is hinge.RowGradient
        assert a._fields == ("rows", "values")
        assert len(a.rows) == len(a.values)


# ------------------------------------------------------------------------------------- bad input

FORWARD = ("x", "thresholds", "features", "weights")
READS = {"rows": Case((6, 3), 2, 2, 4), "windows": Case((2, 3, 5, 6), 2, 2, 4, Windows(3))}


def good(kind="tree", margin="column", read="rows"):
    """Returns arguments of the gradients, including the gradients of the outputs."""
    case = READS[read]
    arrays = problem(kind, margin, case)
    y, route = hinge.forward_with_route(*arrays, **words_of(kind, margin, case))
    return {"grad_y": y, **route._asdict(), **dict(zip(FORWARD, arrays, strict=True))}


def call(function, given, words):
    """Calls an operator with its arguments from `good`."""
    given = {**given, "route": hinge.Route(*(given[name] for name in hinge.Route._fields))}
    names = ("grad_y", "route") if "backward" in function.__name__ else ()
    names += FORWARD[: 3 if function is hinge.traverse else 4]
    return function(*(given[name] for name in names), **words)


def changed(a, index, value):
    a = a.copy()
    a[index] = value
    return a


def strided(a):
    return np.repeat(a, 2, axis=0)[::2]


def unaligned(a):
    return np.zeros(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(a.shape)


OPERATORS = (hinge.traverse, hinge.forward, hinge.forward_with_route, hinge.backward, hinge.backward_sparse)
AHEAD, BACK = OPERATORS[:3], OPERATORS[3:]
operators = pytest.mark.parametrize("function", OPERATORS, ids=lambda function: function.__name__)
NAN, ANY = np.nan, ""
BAD = [
    # margin and input, or any; functions; argument, change that makes it invalid, error, part of the message,
    # in which {V} stands for the number of vertices
    (ANY, "rows", OPERATORS, "x", lambda a: a.astype(np.float16), TypeError, "float32 or float64, got float16"),
    (ANY, "rows", AHEAD, "x", lambda a: a.astype(">f8"), TypeError, "float32 or float64"),
    (ANY, "rows", AHEAD, "x", lambda a: a.astype(object), TypeError, "object"),
    (ANY, "rows", AHEAD, "x", lambda a: a.tolist(), TypeError, "got list; convert it with numpy.asarray.x, dtype=..., order='C'"),
    (ANY, "rows", AHEAD, "x", lambda a: np.matrix(a), TypeError, "got matrix"),
    (ANY, "rows", AHEAD, "x", lambda a: np.ma.masked_array(a), TypeError, "got MaskedArray"),
    (ANY, "rows", AHEAD, "x", lambda a: a.astype(np.int64), TypeError, "got int64; convert it with x.astype.numpy.float32"),
    (ANY, "rows", OPERATORS, "x", lambda a: a[0], ValueError, r"\(n_samples, n_features\)"),
    (ANY, "rows", AHEAD, "x", lambda a: a[None], ValueError, r"\(n_samples, n_features\)"),
    ("column", "rows", OPERATORS, "x", lambda a: a[:, :0].copy(), ValueError, "n_features: expected at least 1"),
    (ANY, "rows", OPERATORS, "x", lambda a: np.asfortranarray(a), ValueError, "C-contiguous.*numpy.ascontiguousarray"),
    (ANY, "rows", AHEAD, "x", strided, ValueError, "C-contiguous"),
    (ANY, "rows", OPERATORS, "x", unaligned, ValueError, "aligned"),
    (ANY, "rows", AHEAD, "x", lambda a: changed(a, (4, 1), NAN), ValueError, r"finite numbers, got nan at index \(4, 1\); impute .* or lower the learning rate if layers"),
    (ANY, "rows", AHEAD, "x", lambda a: changed(a, (5, 2), -np.inf), ValueError, r"got -inf at index \(5, 2\)"),
    (ANY, "rows", AHEAD, "x", lambda a: a.astype(np.float32), TypeError, "thresholds: expected dtype float32, got float64; convert"),
    (ANY, ANY, OPERATORS, "thresholds", lambda a: a.astype(np.float32), TypeError, "got float32; .*float64., or the others to float32"),
    (ANY, ANY, OPERATORS, "thresholds", lambda a: np.zeros((2, 4)), ValueError, "{V}"),
    (ANY, ANY, OPERATORS, "thresholds", lambda a: a[:, :0].copy(), ValueError, "depth"),
    (ANY, ANY, OPERATORS, "thresholds", lambda a: a[:0], ValueError, "n_trees"),
    (ANY, ANY, AHEAD, "thresholds", lambda a: changed(a, (1, 1), NAN), ValueError, r"no NaN, got nan at index \(1, 1\)"),
    ("column", ANY, OPERATORS, "features", lambda a: a[:1], ValueError, r"\(n_trees, {V}\) = \(2, [23]\), got \(1, [23]\)"),
    ("column", ANY, OPERATORS, "features", lambda a: a.astype(np.int64), TypeError, "int32, got int64"),
    ("column", "rows", OPERATORS, "features", lambda a: changed(a, (0, 1), 3), IndexError, r"0 <= index < n_features = 3, got 3"),
    ("column", ANY, OPERATORS, "features", lambda a: changed(a, (1, 0), -1), IndexError, r"got -1 at index \(1, 0\)"),
    ("column", "windows", OPERATORS, "features", lambda a: changed(a, (1, 0), 27), IndexError, r"n_features = 27, got 27"),
    ("projection", ANY, OPERATORS, "features", lambda a: a.astype(np.float32), TypeError, "features: expected dtype float64, got float32; "),
    ("projection", ANY, OPERATORS, "features", lambda a: a[:, :, :2].copy(), ValueError, r"features: expected shape \(n_trees, {V}, n_features\)"),
    ("projection", "windows", OPERATORS, "features", lambda a: a[:, :, :3].copy(), ValueError, r"n_features\) = \(2, [23], 27\), got"),
    ("projection", ANY, OPERATORS, "features", lambda a: a[0], ValueError, r"features: expected shape \(n_trees, {V}, n_features\)"),
    ("projection", ANY, OPERATORS, "features", lambda a: a[:, :, 0].copy(), ValueError, r"features: expected shape \(n_trees, {V}, .*, got \(2, [23]\); pass"),
    ("projection", ANY, OPERATORS, "features", lambda a: a[:1].copy(), ValueError, r"features: expected shape \(n_trees, {V}, n_features\)"),
    ("projection", ANY, OPERATORS, "features", lambda a: a[:, :1].copy(), ValueError, "features: expected shape"),
    ("projection", ANY, OPERATORS, "features", lambda a: a[:, :, ::-1], ValueError, "features: expected a C-contiguous array"),
    ("projection", ANY, AHEAD, "features", lambda a: changed(a, (1, 1, 2), NAN), ValueError, r"features: expected finite numbers, got nan at index \(1, 1, 2\); train"),
    (ANY, ANY, AHEAD[1:], "weights", lambda a: a[:, :3].copy(), ValueError, r"2\*\*depth"),
    (ANY, ANY, AHEAD[1:] + BACK, "weights", lambda a: a[..., :0].copy(), ValueError, "n_outputs: expected at least 1"),
    (ANY, ANY, AHEAD[1:], "weights", lambda a: a[0, 0], ValueError, r"\(n_trees, 2\*\*depth, \.\.\.\)"),
    (ANY, ANY, BACK, "weights", lambda a: a[:1].copy(), ValueError, "n_trees"),
    (ANY, ANY, BACK, "weights", lambda a: a[:, :2].copy(), ValueError, "weights: expected shape"),
    (ANY, "rows", BACK, "grad_y", lambda a: a[:, :, 0].copy(), ValueError, "expected 3 axes, as y has with this aggregate, got 2; .* the aggregate of the forward call"),
    (ANY, ANY, BACK, "grad_y", lambda a: a[..., :3].copy(), ValueError, "grad_y: expected shape"),
    (ANY, ANY, BACK, "grad_y", lambda a: a.astype(np.float32), TypeError, "float64, got float32"),
    (ANY, "rows", BACK, "grad_y", lambda a: changed(a, (1, 0, 2), NAN), ValueError, r"finite numbers, got nan at index \(1, 0, 2\); the loss"),
    (ANY, ANY, BACK, "grad_y", lambda a: changed(a, (1, 0, 1), np.inf), ValueError, "finite numbers, got inf"),
    (ANY, "rows", BACK, "margin", lambda a: changed(a, (5, 1), NAN), ValueError, r"no NaN, got nan at index \(5, 1\)"),
    (ANY, ANY, BACK, "margin", lambda a: a.astype(np.int32), TypeError, "float64, got int32"),
    (ANY, ANY, BACK, "leaf", lambda a: changed(a, (1, 1), 4), IndexError, r"0 <= index < 2\*\*depth = 4, got 4"),
    (ANY, "rows", BACK, "leaf", lambda a: changed(a, (3, 1), -1), IndexError, "got -1"),
    (ANY, ANY, BACK, "leaf", lambda a: a.astype(np.int64), TypeError, "int32"),
    (ANY, ANY, BACK, "vertex", lambda a: changed(a, (0, 0), 3), IndexError, "{V} = [23], got 3"),
    (ANY, "rows", BACK, "vertex", lambda a: a[:5], ValueError, r"\(n_samples, n_trees\) = \(6, 2\), got \(5, 2\)"),
    (ANY, ANY, BACK, "vertex", lambda a: a.astype(np.int64), TypeError, "expected dtype int32"),
    (ANY, "rows", BACK, "x", lambda a: a[:4].copy(), ValueError, r"route.leaf: expected shape \(n_samples, n_trees\) = \(4, 2\)"),
    ("column", "rows", BACK, "x", lambda a: a[:, :1].copy(), IndexError, "features: expected 0 <= index < n_features = 1"),
    (ANY, "windows", OPERATORS, "x", lambda a: a[:, :, 0, 0].copy(), ValueError, "x: expected .*one to three axes in space"),
    (ANY, "windows", OPERATORS, "x", lambda a: a.astype(np.int32), TypeError, "x: expected dtype float32 or float64"),
    (ANY, "windows", OPERATORS, "x", lambda a: a[:, :0].copy(), ValueError, "channels: expected at least 1"),
    (ANY, "windows", AHEAD, "x", lambda a: changed(a, (1, 2, 3, 4), NAN), ValueError, "x: expected finite"),
    (ANY, "windows", OPERATORS, "x", lambda a: a.transpose(0, 1, 3, 2), ValueError, "C-contiguous"),
    (ANY, "windows", BACK, "x", lambda a: np.zeros((2, 3, 5, 7)), ValueError, "leaf: expected shape"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@kinds
@pytest.mark.parametrize(("margin", "read", "functions", "name", "spoil", "error", "words"), BAD)
def test_bad_arrays(kind, margin, read, functions, name, spoil, error, words):
    of = {"tree": r"2\*\*depth - 1", "fern": "depth"}[kind]
    for m, r in itertools.product([margin] if margin else MARGINS, [read] if read else READS):
        given = good(kind, m, r)
        given[name] = spoil(given[name])
        for function in functions:
            with pytest.raises(error, match=words.replace("{V}", of)) as caught:
                call(function, given, words_of(kind, m, READS[r]))
            # Argument, expected, got and remedy, in that order.
            message = str(caught.value)
            assert message.index(": expected") < message.index("got") < message.index(";")


@operators
def test_projections_of_no_features(function):
    given = good("tree", "projection")
    empty = {name: given[name][..., :0].copy() for name in ("x", "features")}
    with pytest.raises(ValueError, match="^n_features: expected at least 1, got 0"):
        call(function, given | empty, {"margin": "projection"})


@kinds
@operators
@pytest.mark.parametrize("read", READS)
def test_features_of_another_margin_name_it(kind, function, read):
    for margin, other in itertools.permutations(MARGINS):
        given, words = good(kind, margin, read), words_of(kind, other, READS[read])
        for features in (given["features"], given["features"].astype("i8" if margin == "column" else "f4")):
            with pytest.raises(
                TypeError, match=rf"^features: expected .* with margin='{other}', got .*; pass"
            ) as caught:
                call(function, {**given, "features": features}, words)
            assert str(caught.value).endswith(f"pass margin='{margin}'")


WORDS = {"kind": "'tree', 'fern'", "margin": "'column', 'projection'", "aggregate": "None, 'sum', 'mean'"}
NO_WORDS = ["max", "Tree", "", np.array(["tree", "sum"]), np.zeros(0), {"sum"}, ["column"], 3, True, object()]


@operators
@pytest.mark.parametrize("name", WORDS)
def test_what_is_no_word_is_refused(function, name):
    for value in NO_WORDS if name == "aggregate" else [*NO_WORDS, None]:
        error, message = ValueError, f"^{name}: expected one of {WORDS[name]}, got .*; choose"
        if (function, name) == (hinge.traverse, "aggregate"):
            error, message = TypeError, "unexpected keyword argument"
        with pytest.raises(error, match=message):
            call(function, good(), {name: value})


@pytest.mark.parametrize("value", NO_WORDS, ids=lambda value: type(value).__name__)
def test_what_is_no_word_is_refused_elsewhere(value):
    g = good()
    x, t, f, w = (g[name] for name in FORWARD)
    state, route = hinge.adam_state(t, w), hinge.traverse(x, t, f)
    steps = [
        lambda **word: hinge.adam_forward(x, t, f, w, state, 1, 0.1, **word),
        lambda **word: hinge.adam_backward(np.zeros((6, 4)), route, x, t, f, w, state, 1, 0.1, **word),
    ]
    start = partial(hinge.init, 2, 2, 3)
    for name, calls in {
        "aggregate": [partial(hinge.leaf_outputs, g["leaf"], g["margin"], w), *steps],
        "kind": [start, partial(hinge.median_thresholds, x, f), *steps],
        "margin": [start, *steps],
    }.items():
        for run in calls:
            with pytest.raises(ValueError, match=f"^{name}: expected one of .*, got .*; choose"):
                run(**{name: value})
    assert not any(a.any() for a in state if a is not None)


@operators
@pytest.mark.parametrize(
    ("windows", "error", "words"),
    [
        (3, TypeError, "windows: expected Windows or None, got int; pass hforest.hinge.Windows"),
        ((3, 1, 0, 1), TypeError, "windows: expected Windows or None, got tuple"),
        (Windows(6), ValueError, "kernel_size: expected kernels inside .* at most 5 .* got 6"),
        (Windows((3,)), ValueError, "kernel_size: expected an int or one int for each of the 2 spatial axes"),
        (Windows(0), ValueError, "kernel_size: expected"),
        (Windows(2.5), TypeError, "kernel_size: expected"),
        (Windows(True), TypeError, "kernel_size: expected"),
        (Windows([3, "3"]), TypeError, "kernel_size: expected"),
        (Windows(3, stride=0), ValueError, "stride: expected"),
        (Windows(3, padding=-1), ValueError, "padding: expected"),
        (Windows(3, dilation=(1, 4)), ValueError, "with dilation 4"),
    ],
)
def test_bad_windows(function, windows, error, words):
    for margin in MARGINS:
        with pytest.raises(error, match=f"^{words}|{words}"):
            call(function, good("tree", margin, "windows"), {"margin": margin, "windows": windows})


@operators
def test_windows_of_another_size(function):
    given = good("tree", "column", "windows")
    with pytest.raises(IndexError, match="^features: expected 0 <= index < n_features = 12"):
        call(function, given, {"windows": Windows(2)})
    with pytest.raises(
        ValueError, match=r"^features: expected shape .* = \(2, 3, 12\), got \(2, 3, 27\); pass"
    ):
        call(function, good("tree", "projection", "windows"), {"margin": "projection", "windows": Windows(2)})
    if function in BACK:  # the route has other places
        with pytest.raises(
            ValueError, match=r"^route.leaf: expected shape \(2, 5, 6, n_trees\) = \(2, 5, 6, 2\), got"
        ):
            call(function, given, {"windows": Windows(3, padding=1)})


def test_more_windows_than_an_int32_counts_are_refused():
    # Without the check, a public function would fill the memory.
    with pytest.raises(ValueError, match="^n_windows: expected 0 to 2147483647, got 4800280004"):
        geometry("x", (1, 1, 2, 2), Windows(1, 1, (30000, 40000)))


@pytest.mark.parametrize("route", [None, 3, [1, 2, 3], (np.zeros((6, 2)),), np.zeros((3, 6, 2))])
def test_what_is_no_route_is_refused(route):
    g = good()
    for function in BACK:
        with pytest.raises(TypeError, match=r"^route: expected \(leaf, margin, vertex\), got .*; pass "):
            function(g["grad_y"], route, *(g[name] for name in FORWARD))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda g: hinge.init(0, 2, 3), ValueError, "n_trees: expected 1 to 2147483647, got 0"),
        (lambda g: hinge.init(2, 0, 3), ValueError, "depth: expected 1 to 30, got 0"),
        (lambda g: hinge.init(2, 40, 3), ValueError, "depth: expected 1 to 30, got 40"),
        (lambda g: hinge.init(2, 40, 3, kind="fern"), ValueError, "depth"),
        (lambda g: hinge.init(2.0, 3, 3), TypeError, "n_trees: expected an int, got float"),
        (lambda g: hinge.init(True, 3, 3), TypeError, "n_trees: expected an int, got bool"),
        (lambda g: hinge.init(2, 3, 0), ValueError, "n_features: expected 1 to"),
        (lambda g: hinge.init(2, 3, 3, (4, 0)), ValueError, "outputs"),
        (lambda g: hinge.init(2, 3, 3, [4, 0.5]), TypeError, "outputs: expected an int, got float"),
        (lambda g: hinge.init(2, 3, 3, dtype=np.float16), TypeError, "dtype: expected float32 or float64"),
        (lambda g: hinge.init(2, 3, 3, features="best"), ValueError, "features: expected one of"),
        (lambda g: hinge.init(2, 3, 3, rng="seed"), TypeError, "rng: expected None, an int"),
        (lambda g: hinge.init(2, 3, 3, rng=-1), ValueError, "rng"),
        (lambda g: hinge.init(2, 3, 3, scale=-1.0), ValueError, "scale"),
        (lambda g: hinge.traverse(g["x"], np.zeros((2, 31)), np.zeros((2, 31), np.int32), kind="fern"), ValueError, "31"),
        (lambda g: hinge.leaf_counts(g["leaf"], 1), IndexError, "n_leaves = 1"),
        (lambda g: hinge.leaf_rows(g["leaf"][:, :0].copy(), 4), ValueError, "n_trees"),
        (lambda g: hinge.tree_path(g["leaf"], g["features"][:1].copy()), ValueError, "n_trees"),
        (lambda g: hinge.median_thresholds(g["x"][:0], g["features"]), ValueError, "n_samples"),
        (lambda g: hinge.repair_thresholds(g["thresholds"], g["features"][:1]), ValueError, "n_trees"),
    ],
)  # fmt: skip
def test_bad_calls(call, error, words):
    with pytest.raises(error, match=words):
        call(good())


def test_outputs_may_be_a_list():
    for kind in KINDS:
        lists, tuples = (hinge.init(3, 2, 5, outputs, kind=kind, rng=0) for outputs in ([2, 4], (2, 4)))
        for a, b in zip(lists, tuples, strict=True):
            np.testing.assert_array_equal(a, b)


def test_nan_is_the_callers_affair_when_unchecked():
    g = good()
    g["margin"][5, 1] = g["grad_y"][0, 0, 0] = np.nan
    with hforest.unchecked():
        assert np.isnan(call(hinge.backward, g, {}).x).any()
    with pytest.raises(ValueError, match="^margin"):
        hinge.leaf_outputs(g["leaf"], g["margin"], g["weights"])


@pytest.mark.parametrize("windows", [None, Windows(3)])
def test_columns_that_changed_after_the_forward_call(windows):
    shape, n_columns = ((2, 5), 5) if windows is None else ((2, 5, 3, 3), 45)

    def checked(column):
        features = np.array([[column]], np.int32)
        kernels.check_changed(np.zeros((2, 1)), np.dtype(np.float64), features, shape, windows=windows)

    checked(n_columns - 1)
    with pytest.raises(IndexError, match=f"^features: expected .*{n_columns}"):
        checked(n_columns)
    with hforest.unchecked():
        checked(n_columns)


@margins
def test_bad_out(margin):
    g, words = good("tree", margin), {"margin": margin}
    locked, y = np.empty((6, 2, 4)), np.empty((6, 2, 4))
    locked.flags.writeable = False
    both, r, x = np.empty((6, 2), np.int32), np.empty((6, 2)), np.zeros((6, 2))
    narrow = {"x": x, "features": np.zeros((2, 3), np.int32) if margin == "column" else np.zeros((2, 3, 2))}
    fresh = hinge.Gradients(*(None if g[name].dtype == np.int32 else g[name].copy() for name in FORWARD))
    for function, out, error, message in (
        (hinge.forward, np.empty((6, 2)), ValueError, "^out: expected shape"),
        (hinge.forward, np.empty((6, 2, 4), np.float32), TypeError, "^out: expected dtype float64"),
        (hinge.forward, locked, ValueError, "^out: expected a writable array"),
        (hinge.traverse, (both, r, both), ValueError, "out leaf: expected memory that no other argument uses.*overlaps out vertex"),
        (hinge.traverse, (both, x, both.copy()), ValueError, "out margin: expected memory that no other argument uses.*overlaps x"),
        (hinge.traverse, r, TypeError, "^out: expected a tuple of 3 arrays"),
        (hinge.forward_with_route, locked, TypeError, r"^out: expected \(y, route\), got ndarray"),
        (hinge.forward_with_route, (locked, r), TypeError, r"^out: expected \(y, route\)"),
        (hinge.forward_with_route, (y, (both, r)), TypeError, r"^out: expected a tuple of 4 arrays \(y, leaf, "),
        (hinge.forward_with_route, (y, (both, r, both)), ValueError, "out leaf: .*overlaps out vertex"),
        (hinge.backward, tuple(g[name] for name in FORWARD[:3]), TypeError, "^out: expected Gradients, got tuple"),
        (hinge.backward, g["x"], TypeError, "^out: expected Gradients, got ndarray"),
        (hinge.backward, fresh._replace(x=g["x"]), ValueError, "^out grad_x: expected memory that no other argument uses"),
        (hinge.backward, fresh._replace(weights=y), ValueError, "^out grad_weights: expected shape"),
        (hinge.backward, fresh._replace(weights=None), TypeError, "^out grad_weights: expected"),
        (hinge.backward_sparse, fresh, TypeError, "^out: expected"),
        (hinge.backward_sparse, np.empty((6, 4)), ValueError, "^out: expected shape"),
        (hinge.backward_sparse, g["x"], ValueError, "^out: .*overlaps x"),
    ):  # fmt: skip
        given = g | narrow if message.endswith("uses.*overlaps x") else g
        with pytest.raises(error, match=message):
            call(function, given, {**words, "out": out})
    images, words = good("tree", margin, "windows"), {"margin": margin, "windows": Windows(3)}
    for function in (hinge.forward, hinge.backward_sparse):
        with pytest.raises(ValueError, match="^out: expected shape"):
            call(function, images, {**words, "out": np.zeros((2, 3, 4))})


def test_failed_call_changes_nothing():
    g = good()
    y = np.full((6, 2, 4), 7.0)
    with pytest.raises(IndexError):
        call(hinge.forward, {**g, "features": g["features"] + np.int32(9)}, {"out": y})
    assert (y == 7).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("dtype", "big"), [(np.float32, 3e38), (np.float64, 1.7e308)])
def test_starts_from_numbers_near_the_largest(dtype, big):
    x = np.array([[-big], [-big / 2], [big], [big]], dtype)
    for kind in KINDS:
        assert -big / 2 <= hinge.median_thresholds(x, np.zeros((1, 1), np.int32), kind=kind) < big


@kinds
@margins
@aggregates
@pytest.mark.parametrize(
    ("n_samples", "outputs", "many"), [(600, 1, 600), (603, 10, 600), (600, 37, 601), (1, 3, 1), (9, 3, 1)]
)
def test_gradients_have_the_bits_of_the_cpu(
    fast_backend, dtype, kind, margin, aggregate, n_samples, outputs, many, monkeypatch
):
    # With at least `many` samples, a GPU transposes routes.
    monkeypatch.setattr(gpu, "MANY", many)
    case = Case((n_samples, 6), 4, 4, outputs)
    arrays = problem(kind, margin, case, dtype)
    with dispatch.forced("cpu"):
        expected = everything(kind, margin, case, arrays, aggregate)
    assert_same_bits(everything(kind, margin, case, arrays, aggregate, fast_backend), expected)


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
