"""Hinge trees and ferns with an inner product at each vertex: known answers, backends, the linear layer, gradients."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import Backend, several_paths

import hforest
from hforest import hinge
from hforest.core import machine
from hforest.hinge import linear

KINDS = ("tree", "fern")
AGGREGATES = (None, "sum", "mean")
NAMES = ("x", "thresholds", "projections", "weights")

kinds = pytest.mark.parametrize("kind", KINDS)
aggregates = pytest.mark.parametrize("aggregate", AGGREGATES)

# (samples, features, trees, depth, outputs): one of each, no sample, fewer features than partial sums and more,
# a tree deeper than the samples reach, trailing axes, more than one block of samples and of columns.
SHAPES = [
    (1, 1, 1, 1, ()),
    (5, 3, 1, 4, ()),
    (0, 4, 2, 3, (3, 2)),
    (9, 8, 3, 7, 3),
    (21, 19, 17, 3, (3, 2)),
    (270, 13, 2, 3, 2),
    (3, 600, 2, 2, ()),
]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def function(kind, name):
    return getattr(hinge, f"{kind}_linear_{name}")


def grid(rng, shape, dtype, step=0.5):
    """Numbers on a coarse grid: ties at thresholds and equal margins are everywhere, and sums are exact."""
    return (np.round(rng.normal(size=shape) / step) * step).astype(dtype)


def problem(kind, n, n_features, n_trees, depth, outputs=(), dtype=np.float64, seed=0, coarse=False):
    """x, thresholds, projections and weights."""
    rng = np.random.default_rng(seed)
    t, _, w = getattr(hinge, f"{kind}_init")(n_trees, depth, 1, outputs, scale=1.0, dtype=dtype, rng=rng)
    x, p = rng.normal(size=(n, n_features)), rng.normal(size=(*t.shape, n_features))
    if coarse:
        return (
            grid(rng, x.shape, dtype),
            grid(rng, t.shape, dtype),
            grid(rng, p.shape, dtype),
            grid(rng, w.shape, dtype),
        )
    return x.astype(dtype), t, p.astype(dtype), w


# -------------------------------------------------------------------------------- known answers


def test_tree_by_hand(backend, dtype):
    # Root x0 + x1 > 1; left child x0 - x1 > 0, right child 2 x0 > 3.
    t, p = np.array([[1, 0, 3]], dtype), np.array([[[1, 1], [1, -1], [2, 0]]], dtype)
    w = np.array([[1, 10, 100, 1000]], dtype)
    x = np.array([[-1, 0], [0.5, -0.25], [1.25, 4], [4, -2], [0.5, 0.5]], dtype)
    y, (leaf, margin, vertex) = hinge.tree_linear_forward(x, t, p, w, return_route=True)
    assert leaf.ravel().tolist() == [0, 1, 2, 3, 0]  # 0.5 + 0.5 = 1 and 0.5 - 0.5 = 0 are ties: left
    assert margin.ravel().tolist() == [-1, -0.75, -0.5, 1, 0]
    assert vertex.ravel().tolist() == [1, 0, 2, 0, 0]  # the last: of two margins 0 the root's
    assert y.ravel().tolist() == [1, 7.5, 50, 1000, 0]
    grad_x, grad_t, grad_p, grad_w = hinge.tree_linear_backward(
        np.ones_like(y), leaf, margin, vertex, x, p, w
    )
    assert grad_x.tolist() == [[-1, 1], [-10, -10], [-200, 0], [1000, 1000], [0, 0]]
    assert grad_t.tolist() == [[10 - 1000, 1, 100]]
    assert grad_p.tolist() == [[[4000 - 5, -2000 + 2.5], [1, 0], [-125, -400]]]
    assert grad_w.tolist() == [[1, 0.75, 0.5, 1]]
    assert leaf.dtype == vertex.dtype == np.int32
    assert margin.dtype == y.dtype == grad_p.dtype == dtype


def test_fern_by_hand(backend, dtype):
    t, p = np.array([[1, 2]], dtype), np.array([[[1, 1], [0, 4]]], dtype)
    w = np.array([[1, 10, 100, 1000]], dtype)
    x = np.array([[0, 0.25], [4, 0], [0.25, 1]], dtype)
    y, route = hinge.fern_linear_forward(x, t, p, w, return_route=True)
    assert route.leaf.ravel().tolist() == [0b00, 0b10, 0b11]
    assert route.margin.ravel().tolist() == [-0.75, -2, 0.25]
    assert route.vertex.ravel().tolist() == [0, 1, 0]
    assert y.ravel().tolist() == [0.75, 200, 250]
    grad_x, grad_t, grad_p, grad_w = hinge.fern_linear_backward(np.ones_like(y), *route, x, p, w)
    assert grad_x.tolist() == [[-1, -1], [0, -400], [1000, 1000]]
    assert grad_t.tolist() == [[1 - 1000, 100]]
    assert grad_p.tolist() == [[[250, 1000 - 0.25], [-400, 0]]]
    assert grad_w.tolist() == [[0.75, 0, 2, 0.25]]


def test_the_sum_of_an_inner_product_has_its_order(backend):
    """Eight partial sums in float64, added in the order that the reference writes out."""
    rng = np.random.default_rng(0)
    for n_features in (1, 7, 8, 9, 40, 77):
        x, p = rng.normal(size=(50, n_features)), rng.normal(size=(50, 1, n_features))
        part = np.zeros((8, 50, 50))
        for k in range(n_features):
            part[k % 8] += x[:, None, k] * p[None, :, 0, k]
        want = ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]))
        margin = hinge.fern_linear_traverse(x, np.zeros((50, 1)), p).margin
        assert margin.tobytes() == want.tobytes()
        x, p = x.astype(np.float32), p.astype(np.float32)
        margin = hinge.fern_linear_traverse(x, np.zeros((50, 1), np.float32), p).margin
        # Rounded once: the sum in float64 is as good as exact.
        np.testing.assert_array_equal(
            margin, (x.astype(np.float64) @ p[:, 0].T.astype(np.float64)).astype(np.float32)
        )


# ------------------------------------------------------------------------------ the linear layer


@kinds
@aggregates
@pytest.mark.parametrize("coarse", [False, True], ids=["generic", "ties"])
def test_equals_a_forest_on_a_linear_layer(backend, kind, aggregate, coarse):
    """Lay et al. 2018, Fig. 2: z = x P', then a forest that reads an output of its own at each vertex."""
    x, t, p, w = problem(kind, 40, 11, 5, 4, (3,), coarse=coarse)
    flat = p.reshape(-1, 11)
    z, features = np.ascontiguousarray(x @ flat.T), np.arange(t.size, dtype=np.int32).reshape(t.shape)
    y, route = function(kind, "forward")(x, t, p, w, aggregate=aggregate, return_route=True)
    want, plain = getattr(hinge, f"{kind}_forward")(z, t, features, w, aggregate=aggregate, return_route=True)
    np.testing.assert_array_equal(route.leaf, plain.leaf)
    np.testing.assert_array_equal(route.vertex, plain.vertex)
    np.testing.assert_allclose(route.margin, plain.margin, rtol=0, atol=1e-13)
    np.testing.assert_allclose(y, want, rtol=0, atol=1e-12)
    g = np.random.default_rng(1).normal(size=y.shape)
    got = function(kind, "backward")(g, *route, x, p, w, aggregate=aggregate)
    backward = getattr(hinge, f"{kind}_backward")
    grad_z, grad_t, grad_w = backward(g, *route, features, w, t.size, aggregate=aggregate)
    for a, b in zip(got, (grad_z @ flat, grad_t, (grad_z.T @ x).reshape(p.shape), grad_w), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * abs(b).max())
    assert got[1].tobytes() == grad_t.tobytes()
    assert got[3].tobytes() == grad_w.tobytes()


# ------------------------------------------------------------------------------ backends and the reference


def everything(kind, backend, arrays, aggregate):
    x, t, p, w = (backend.array(a) for a in arrays)
    y, route = function(kind, "forward")(x, t, p, w, aggregate=aggregate, return_route=True)
    alone = function(kind, "forward")(x, t, p, w, aggregate=aggregate)
    assert backend.numpy(y).tobytes() == backend.numpy(alone).tobytes()
    for a, b in zip(function(kind, "traverse")(x, t, p), route, strict=True):
        assert backend.numpy(a).tobytes() == backend.numpy(b).tobytes()
    grad_y = backend.array(np.random.default_rng(1).normal(size=y.shape).astype(arrays[0].dtype))
    dense = function(kind, "backward")(grad_y, *route, x, p, w, aggregate=aggregate)
    sparse = function(kind, "backward")(grad_y, *route, x, p, w, aggregate=aggregate, sparse=True)
    parts = {
        "y": y, **route._asdict(), "grad_x": dense[0], "grad_t": dense[1], "grad_p": dense[2], "grad_w": dense[3],
        "sparse_x": sparse[0],
    }  # fmt: skip
    for name, gradient in zip(("t", "p", "w"), sparse[1:], strict=True):
        parts |= {f"rows_{name}": gradient.rows, f"values_{name}": gradient.values}
    return {name: backend.numpy(a) for name, a in parts.items()}


def assert_close(got, want, exact):
    eps = np.finfo(want["margin"].dtype).eps
    for name, a in got.items():
        b = want[name]
        assert a.dtype == b.dtype, name
        assert a.shape == b.shape, name
        if name in exact:
            assert a.tobytes() == b.tobytes(), name
        else:
            # One rounding of a float64 sum each: two neighbouring numbers at most.
            np.testing.assert_allclose(
                a, b, rtol=2 * eps, atol=4 * eps * max(1, abs(b).max(initial=0)), err_msg=name
            )


EXACT = {"leaf", "margin", "vertex", "rows_t", "rows_p", "rows_w"}


@kinds
@shapes
@aggregates
@pytest.mark.parametrize("coarse", [False, True], ids=["generic", "ties"])
def test_backend_equals_reference(fast_backend, dtype, kind, shape, aggregate, coarse):
    arrays = problem(kind, *shape, dtype, coarse=coarse)
    got = everything(kind, fast_backend, arrays, aggregate)
    with hforest.using("reference"):
        want = everything(kind, Backend("reference"), arrays, aggregate)
    one_output = np.prod(shape[-1], dtype=int) == 1
    exact = EXACT | (set() if aggregate else {"y"})
    if aggregate is None and one_output:
        # A slope is one product, so every sum has the reference's terms in its order.
        exact |= {"grad_x", "sparse_x", "grad_p", "values_p"}
    assert_close(got, want, exact)


@kinds
@aggregates
def test_sparse_equals_dense(backend, dtype, kind, aggregate):
    x, t, p, w = problem(kind, 40, 5, 6, 4, (3, 2), dtype, coarse=True)
    y, route = function(kind, "forward")(x, t, p, w, aggregate=aggregate, return_route=True)
    dense = function(kind, "backward")(y, *route, x, p, w, aggregate=aggregate)
    sparse = function(kind, "backward")(y, *route, x, p, w, aggregate=aggregate, sparse=True)
    assert sparse[0].tobytes() == dense[0].tobytes()
    indices = (route.vertex, route.vertex, route.leaf)
    for full, (rows, values), index in zip(dense[1:], sparse[1:], indices, strict=True):
        touched = sorted({m * full.shape[1] + i for line in index.tolist() for m, i in enumerate(line)})
        assert rows.tolist() == touched
        assert rows.dtype == np.int64
        rebuilt = np.zeros((full.shape[0] * full.shape[1], *full.shape[2:]), dtype)
        rebuilt[rows] = values
        np.testing.assert_array_equal(rebuilt.reshape(full.shape), full)


# (samples, features, trees, depth): many blocks; few trees, whose columns threads share; few samples, deep trees.
THREADED = [(1500, 9, 20, 4), (700, 300, 2, 3), (3, 1100, 40, 8), (300, 530, 1, 6)]


@kinds
@aggregates
@pytest.mark.parametrize("shape", THREADED, ids=str)
def test_threads_change_no_bit(threads, dtype, kind, aggregate, shape):
    arrays = problem(kind, *shape, (3,), dtype)
    results = []
    for count in (1, 2, 7):
        threads(count)
        results.append(everything(kind, Backend("cpu"), arrays, aggregate))
    for others in results[1:]:
        for name, a in others.items():
            assert a.tobytes() == results[0][name].tobytes(), name


@several_paths
@kinds
@pytest.mark.parametrize("path", [name for name in machine.simd_paths() if name != "plain"])
def test_vector_paths_have_the_bits_of_the_plain_one(simd, dtype, kind, path):
    for shape in [(40, n_features, 5, 3) for n_features in (*range(1, 18), 31, 32, 33, 64, 100)]:
        arrays = problem(kind, *shape, (2,), dtype, seed=shape[1])
        arrays[0][::2][arrays[0][::2] < 0] = -0.0
        arrays[1][0, ::2] = np.inf
        results = []
        for name in ("plain", path):
            simd(name)
            results.append(everything(kind, Backend("cpu"), arrays, "sum"))
        for name, a in results[0].items():
            assert a.tobytes() == results[1][name].tobytes(), (name, shape)


@hypothesis.given(
    kind=st.sampled_from(KINDS),
    aggregate=st.sampled_from(AGGREGATES),
    double=st.booleans(),
    n=st.integers(0, 30),
    n_features=st.integers(1, 20),
    n_trees=st.integers(1, 8),
    depth=st.integers(1, 5),
    outputs=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    coarse=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_any_shape(kind, aggregate, double, n, n_features, n_trees, depth, outputs, coarse, seed):
    dtype = np.float64 if double else np.float32
    arrays = problem(kind, n, n_features, n_trees, depth, outputs, dtype, seed, coarse)
    got = everything(kind, Backend("cpu"), arrays, aggregate)
    with hforest.using("reference"):
        want = everything(kind, Backend("reference"), arrays, aggregate)
    assert_close(got, want, EXACT)


@kinds
@aggregates
def test_parts_of_the_samples_change_no_bit(backend, monkeypatch, kind, aggregate):
    x, t, p, w = problem(kind, 23, 4, 3, 3, (2,))
    want = function(kind, "forward")(x, t, p, w, aggregate=aggregate)
    monkeypatch.setattr(linear, "PAIRS", 12)  # four samples
    assert function(kind, "forward")(x, t, p, w, aggregate=aggregate).tobytes() == want.tobytes()


@kinds
def test_float_error_at_most_twice_numpy(backend, kind):
    x, t, p, w = problem(kind, 50, 40, 20, 3, (5,), np.float32)
    y, route = function(kind, "forward")(x, t, p, w, aggregate="sum", return_route=True)
    leaf, margin, vertex = route
    g = np.random.default_rng(2).normal(size=y.shape).astype(np.float32)
    got = function(kind, "backward")(g, *route, x, p, w, aggregate="sum")
    trees = np.arange(20)

    def plain(real):
        """The same sums by plain NumPy in one dtype."""
        rows, vectors, r, grad = (
            w.astype(real)[trees, leaf],
            p.astype(real)[trees, vertex],
            margin.astype(real),
            g.astype(real),
        )
        s = np.sign(r) * (rows * grad[:, None]).sum(axis=2, dtype=real)
        grad_t, grad_p, grad_w = np.zeros(t.shape, real), np.zeros(p.shape, real), np.zeros(w.shape, real)
        np.add.at(grad_t, (trees, vertex), -s)
        np.add.at(grad_p, (trees, vertex), s[:, :, None] * x.astype(real)[:, None])
        np.add.at(grad_w, (trees, leaf), abs(r)[:, :, None] * grad[:, None])
        grad_x = (s[:, :, None] * vectors).sum(axis=1, dtype=real)
        products = (vectors * x.astype(real)[:, None]).sum(axis=2, dtype=real) - t.astype(real)[trees, vertex]
        return products, (rows * abs(r)[:, :, None]).sum(axis=1, dtype=real), grad_x, grad_t, grad_p, grad_w

    for ours, single, double in zip((margin, y, *got), plain(np.float32), plain(np.float64), strict=True):
        assert abs(ours - double).max() <= 2 * abs(single - double).max()


# ------------------------------------------------------------------------------------ gradients


@kinds
@aggregates
@pytest.mark.parametrize("outputs", [(), (3, 2)], ids=str)
def test_central_differences(backend, kind, aggregate, outputs):
    x, t, p, w = problem(kind, 5, 4, 3, 2, outputs, seed=3)
    y, route = function(kind, "forward")(x, t, p, w, aggregate=aggregate, return_route=True)
    g = np.random.default_rng(3).normal(size=y.shape)
    grads = function(kind, "backward")(g, *route, x, p, w, aggregate=aggregate)
    step = 1e-6
    # Away from kinks: no decision changes and no other margin becomes the least within the step.
    margins = np.sort(abs(np.einsum("nf,mvf->nmv", x, p) - t), axis=2)
    assert margins[..., 0].min() > 20 * step
    assert np.diff(margins, axis=2).min() > 20 * step

    def loss():
        return (function(kind, "forward")(x, t, p, w, aggregate=aggregate) * g).sum()

    for parameter, grad in zip((x, t, p, w), grads, strict=True):
        flat, want = parameter.reshape(-1), np.empty(parameter.size)
        for i in range(flat.size):
            value = flat[i]
            flat[i] = value + step
            above = loss()
            flat[i] = value - step
            want[i] = (above - loss()) / (2 * step)
            flat[i] = value
        np.testing.assert_allclose(grad.ravel(), want, rtol=1e-6, atol=1e-7 * abs(want).max())


@kinds
def test_margin_zero_has_no_gradient(backend, kind):
    x, t, p, w = np.ones((1, 2)), np.zeros((1, 1)), np.array([[[1.0, -1.0]]]), np.ones((1, 2))
    y, route = function(kind, "forward")(x, t, p, w, return_route=True)
    assert y.item() == 0
    for grad in function(kind, "backward")(np.ones((1, 1)), *route, x, p, w):
        assert not grad.any()


def test_backward_never_traverses(backend):
    """The gradient follows the route it is given, not the arrays that made it."""
    w, p, x = np.array([[1.0, 2.0, 4.0, 8.0]]), np.array([[[1.0], [3], [5]]]), np.array([[7.0]])
    leaf, vertex = np.array([[3]], np.int32), np.array([[2]], np.int32)
    grads = hinge.tree_linear_backward(np.array([[10.0]]), leaf, np.array([[-0.5]]), vertex, x, p, w)
    assert [g.tolist() for g in grads] == [[[-400]], [[0, 0, 80]], [[[0], [0], [-560]]], [[0, 0, 0, 5]]]


# ------------------------------------------------------------------------------ zero samples, out, bad input


@kinds
@aggregates
def test_no_samples(backend, dtype, kind, aggregate):
    x, t, p, w = problem(kind, 0, 3, 2, 2, (4,), dtype)
    y, route = function(kind, "forward")(x, t, p, w, aggregate=aggregate, return_route=True)
    assert y.shape == ((0, 2, 4) if aggregate is None else (0, 4))
    dense = function(kind, "backward")(y, *route, x, p, w, aggregate=aggregate)
    assert [a.shape for a in dense] == [(0, 3), t.shape, p.shape, w.shape]
    assert not any(a.any() for a in dense)
    given = tuple(np.full_like(a, 7) for a in dense)
    function(kind, "backward")(y, *route, x, p, w, aggregate=aggregate, out=given)
    assert not any(a.any() for a in given)
    sparse = function(kind, "backward")(y, *route, x, p, w, aggregate=aggregate, sparse=True)
    assert [a.shape for g in sparse[1:] for a in g] == [(0,), (0,), (0,), (0, 3), (0,), (0, 4)]


@kinds
def test_out(backend, dtype, kind):
    x, t, p, w = problem(kind, 9, 3, 2, 2, (4,), dtype)
    want, route = function(kind, "forward")(x, t, p, w, return_route=True)
    y = np.full_like(want, np.nan)
    assert function(kind, "forward")(x, t, p, w, out=y) is y
    np.testing.assert_array_equal(y, want)
    given = hinge.Route(*(np.full_like(a, -1) for a in route))
    got = function(kind, "traverse")(x, t, p, out=given)
    assert type(got) is hinge.Route
    assert all(a is b for a, b in zip(got, given, strict=True))
    for a, b in zip(got, route, strict=True):
        np.testing.assert_array_equal(a, b)
    dense = function(kind, "backward")(y, *route, x, p, w)
    given = tuple(np.full_like(a, np.nan) for a in dense)
    got = function(kind, "backward")(y, *route, x, p, w, out=given)
    assert all(a is b for a, b in zip(got, given, strict=True))
    for a, b in zip(got, dense, strict=True):
        np.testing.assert_array_equal(a, b)


def test_inputs_are_left_alone_and_may_be_read_only(backend):
    arrays = problem("tree", 9, 3, 2, 2, (4,))
    copies = [a.copy() for a in arrays]
    for a in arrays:
        a.flags.writeable = False
    x, t, p, w = arrays
    y, route = hinge.tree_linear_forward(x, t, p, w, return_route=True)
    for a in (y, *route):
        a.flags.writeable = False
    hinge.tree_linear_backward(y, *route, x, p, w)
    hinge.tree_linear_backward(y, *route, x, p, w, sparse=True)
    for a, b in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(a, b)


@kinds
def test_infinite_thresholds_and_products_beyond_the_dtype(backend, dtype, kind):
    x, t, p, _ = problem(kind, 6, 9, 2, 3, (2,), dtype)
    t[0] = np.inf
    t[1] = -np.inf
    leaf, margin, _ = function(kind, "traverse")(x, t, p)
    assert (leaf == [0, 7]).all()
    assert (margin == [-np.inf, np.inf]).all()
    x, p = np.full((2, 9), np.finfo(dtype).max), np.full(p.shape, 4, dtype)
    leaf, margin, vertex = function(kind, "traverse")(x, np.zeros_like(t), p)
    assert (leaf == 7).all()
    assert (margin == np.inf).all()
    assert (vertex == 0).all()


def bad_calls(kind):
    """Name -> changed arguments of a traversal, exception, text of the message."""
    x, t, p, _ = problem(kind, 5, 3, 2, 2, (4,))
    nan = p.copy()
    nan[1, 1, 2] = np.nan
    vertices = "2**depth - 1" if kind == "tree" else "depth"
    shape = rf"projections: expected shape \(n_trees, {vertices}, n_features\)".replace("**", r"\*\*")
    return {
        "dtype of x": ({"x": x.astype(np.float32)}, TypeError, "thresholds: expected dtype float32, got float64; convert"),
        "dtype": ({"projections": p.astype(np.float32)}, TypeError, "projections: expected dtype float64, got float32; "),
        "integers": ({"x": x.astype(int)}, TypeError, "x: expected dtype float32 or float64, got int64; "),
        "axes": ({"projections": p[0]}, ValueError, shape),
        "features": ({"projections": p[:, :, :2].copy()}, ValueError, shape),
        "trees": ({"projections": p[:1].copy()}, ValueError, shape),
        "layout": ({"projections": p[:, :, ::-1]}, ValueError, "projections: expected a C-contiguous array"),
        "NaN": (
            {"projections": nan}, ValueError, r"projections: expected finite numbers, got nan at index \(1, 1, 2\); train"
        ),
        "infinite x": ({"x": x + np.inf}, ValueError, "x: expected finite numbers, got inf"),
        "NaN threshold": ({"thresholds": t * np.nan}, ValueError, "thresholds: expected no NaN"),
        "no features": (
            {"x": x[:, :0].copy(), "projections": p[:, :, :0].copy()}, ValueError, "n_features: expected at least 1, got 0"
        ),
    }  # fmt: skip


@kinds
@pytest.mark.parametrize("case", bad_calls("tree"))
def test_bad_input_of_a_traversal(kind, case):
    changed, error, message = bad_calls(kind)[case]
    x, t, p, w = problem(kind, 5, 3, 2, 2, (4,))
    arguments = {"x": x, "thresholds": t, "projections": p} | changed
    with pytest.raises(error, match=message):
        function(kind, "traverse")(**arguments)
    with pytest.raises(error, match=message):
        function(kind, "forward")(**arguments, weights=w)


@kinds
def test_bad_input_of_the_gradients(kind):
    x, t, p, w = problem(kind, 5, 3, 2, 2, (4,))
    y, route = function(kind, "forward")(x, t, p, w, return_route=True)
    backward = function(kind, "backward")
    good = {"grad_y": y, **route._asdict(), "x": x, "projections": p, "weights": w}
    bad = [
        ({"x": x[:4].copy()}, ValueError, "x: expected shape"),
        ({"x": x.astype(np.float32)}, TypeError, "x: expected dtype float64"),
        (
            {"projections": p[:, :1].copy() if kind == "fern" else p[:, :2].copy()},
            ValueError,
            "expected shape",
        ),
        (
            {"projections": p[:, :, 0].copy()},
            ValueError,
            r"projections: expected shape \(n_trees, .*, got \(2, [23]\); pass a row",
        ),
        ({"weights": w[:, :2].copy()}, ValueError, "weights: expected shape"),
        ({"grad_y": y[:, 0].copy()}, ValueError, "grad_y: expected shape"),
        ({"grad_y": y * np.nan}, ValueError, "grad_y: expected finite numbers"),
        ({"margin": route.margin * np.nan}, ValueError, "margin: expected no NaN"),
        ({"leaf": route.leaf + 4}, IndexError, "leaf: "),
        ({"vertex": route.vertex - 4}, IndexError, "vertex: "),
        ({"vertex": route.vertex.astype(np.int64)}, TypeError, "vertex: expected dtype int32"),
        ({"aggregate": "max"}, ValueError, "aggregate: expected"),
        ({"sparse": 1}, TypeError, "sparse: expected"),
        ({"sparse": True, "out": (x, t, p, w)}, ValueError, "out: expected None with sparse=True"),
        ({"out": (x, t, w)}, TypeError, "out: expected a tuple of 4 arrays"),
        ({"out": (x, t.copy(), p.copy(), w.copy())}, ValueError, "out grad_x"),
    ]
    backward(**good)
    for changed, error, message in bad:
        with pytest.raises(error, match=message):
            backward(**good | changed)
    with pytest.raises(TypeError, match="return_route: expected"):
        function(kind, "forward")(x, t, p, w, return_route=1)


@kinds
def test_training_fits_an_oblique_boundary(kind):
    """Two hundred steps of gradient descent on classes that no single column separates."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 6)).astype(np.float32)
    target = np.sign(x @ rng.normal(size=6)).astype(np.float32)
    t, p, w = (a.astype(np.float32) for a in problem(kind, 1, 6, 10, 3, (), seed=1)[1:])
    t *= 0
    w *= np.float32(0.1)
    losses = []
    for _ in range(200):
        y, route = function(kind, "forward")(x, t, p, w, aggregate="sum", return_route=True)
        losses.append(float(((y - target) ** 2).mean()))
        grads = function(kind, "backward")((y - target) / 300, *route, x, p, w, aggregate="sum")
        for parameter, grad in zip((t, p, w), grads[1:], strict=True):
            parameter -= np.float32(0.1) * grad
    assert losses[-1] < 0.3 < 0.8 < losses[0]
