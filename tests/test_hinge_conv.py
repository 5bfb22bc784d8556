"""Hinge trees and ferns on windows of images: against the reference, against rows of unfolded windows, bad input."""

import itertools

import numpy as np
import pytest
from conftest import Backend, several_paths

import hforest
from hforest import hinge
from hforest.core import machine
from hforest.hinge import geometry

KINDS = ("tree", "fern")
kinds = pytest.mark.parametrize("kind", KINDS)

# Shape of x, kernel_size, stride, padding, dilation; trees, depth, outputs.
CASES = [
    ((2, 1, 9), 3, 1, 0, 1, 3, 4, ()),  # one axis
    ((1, 2, 5, 40), (2, 3), 1, (1, 2), 1, 17, 3, (2,)),  # rows longer than a tile
    ((3, 3, 7, 6), 3, 2, 1, 1, 4, 3, 3),  # stride
    ((2, 2, 9, 8), (3, 2), (1, 3), (4, 0), (2, 1), 2, 2, (2, 2)),  # windows in the padding alone
    ((2, 1, 4, 5, 6), (2, 1, 3), 1, (0, 1, 1), (1, 1, 2), 3, 3, ()),  # three axes
    ((4, 6, 5, 5), 1, 1, 0, 1, 5, 6, 2),  # a forest at each pixel
    ((0, 2, 4, 4), 3, 1, 1, 1, 2, 2, 1),  # no images
    ((1, 1, 1, 1), 1, 1, 0, 1, 1, 1, ()),  # one number
    ((2, 40, 6, 6), 3, 1, 1, 1, 1, 2, ()),  # fewer features than numbers of a window
]
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: str(case[:5]))


def function(kind, name):
    return getattr(hinge, f"{kind}_{name}")


def per_axis(a, n):
    return a if isinstance(a, tuple) else (a,) * n


def unfolded(x, kernel_size, stride, padding, dilation):
    """(n_images, *out, channels * kernel): the windows, by slices of the padded images."""
    n_axes = x.ndim - 2
    k, s, p, d = (per_axis(a, n_axes) for a in (kernel_size, stride, padding, dilation))
    padded = np.pad(x, ((0, 0), (0, 0), *((i, i) for i in p)))
    out = [(padded.shape[2 + i] - d[i] * (k[i] - 1) - 1) // s[i] + 1 for i in range(n_axes)]
    windows = np.empty((x.shape[0], *out, x.shape[1], *k), x.dtype)
    for at in itertools.product(*(range(i) for i in k)):
        parts = tuple(
            slice(at[i] * d[i], at[i] * d[i] + (out[i] - 1) * s[i] + 1, s[i]) for i in range(n_axes)
        )
        windows[(..., *at)] = np.moveaxis(padded[(slice(None), slice(None), *parts)], 1, -1)
    return windows.reshape(x.shape[0], *out, int(np.prod([x.shape[1], *k])))


def folded(grad, x_shape, kernel_size, stride, padding, dilation):
    """The sum of the gradients of windows at each number of an image, in float64."""
    n_axes = len(x_shape) - 2
    k, s, p, d = (per_axis(a, n_axes) for a in (kernel_size, stride, padding, dilation))
    padded = np.zeros((*x_shape[:2], *(x_shape[2 + i] + 2 * p[i] for i in range(n_axes))))
    out = grad.shape[1:-1]
    grad = grad.reshape(*grad.shape[:-1], x_shape[1], *k).astype(np.float64)
    for at in itertools.product(*(range(i) for i in k)):
        parts = tuple(
            slice(at[i] * d[i], at[i] * d[i] + (out[i] - 1) * s[i] + 1, s[i]) for i in range(n_axes)
        )
        padded[(slice(None), slice(None), *parts)] += np.moveaxis(grad[(..., *at)], -1, 1)
    return padded[(..., *(slice(i, i + size) for i, size in zip(p, x_shape[2:], strict=True)))]


def problem(kind, case, dtype, seed=0):
    shape, kernel_size, _, _, _, n_trees, depth, outputs = case
    rng = np.random.default_rng(seed)
    n_columns = shape[1] * int(np.prod(per_axis(kernel_size, len(shape) - 2)))
    t, f, w = function(kind, "init")(n_trees, depth, n_columns, outputs, scale=1.0, dtype=dtype, rng=rng)
    # Numbers on a coarse grid: ties at thresholds and equal margins occur.
    x = (np.round(2 * rng.normal(size=shape)) / 2).astype(dtype)
    return x, (np.round(2 * t) / 2).astype(dtype), f, w


def words(case):
    return dict(zip(("stride", "padding", "dilation"), case[2:5], strict=True))


def everything(kind, backend, case, dtype, aggregate):
    x, t, f, w = (backend.array(a) for a in problem(kind, case, dtype))
    y, route = function(kind, "conv_forward")(
        x, t, f, w, case[1], **words(case), aggregate=aggregate, return_route=True
    )
    alone = function(kind, "conv_forward")(x, t, f, w, case[1], **words(case), aggregate=aggregate)
    np.testing.assert_array_equal(backend.numpy(alone), backend.numpy(y))
    traversed = function(kind, "conv_traverse")(x, t, f, case[1], **words(case))
    for a, b in zip(traversed, route, strict=True):
        np.testing.assert_array_equal(backend.numpy(a), backend.numpy(b))
    grad_y = np.random.default_rng(1).normal(size=y.shape).astype(dtype)
    args = (backend.array(grad_y), route, f, w, x.shape, case[1])
    dense = function(kind, "conv_backward")(*args, **words(case), aggregate=aggregate)
    sparse = function(kind, "conv_backward")(*args, **words(case), aggregate=aggregate, sparse=True)
    flat = {
        "leaf": route.leaf, "margin": route.margin, "vertex": route.vertex, "y": y, "grad_x": dense[0],
        "grad_t": dense[1], "grad_w": dense[2], "sparse_grad_x": sparse[0], "t_rows": sparse[1].rows,
        "t_values": sparse[1].values, "w_rows": sparse[2].rows, "w_values": sparse[2].values,
    }  # fmt: skip
    return {name: backend.numpy(a) for name, a in flat.items()}, grad_y


@kinds
@cases
@pytest.mark.parametrize("aggregate", [None, "sum", "mean"])
def test_backend_equals_reference(fast_backend, dtype, kind, case, aggregate):
    got, _ = everything(kind, fast_backend, case, dtype, aggregate)
    with hforest.using("reference"):
        want, _ = everything(kind, Backend("reference"), case, dtype, aggregate)
    eps = np.finfo(dtype).eps
    for name, a in got.items():
        b = want[name]
        assert a.dtype == b.dtype, name
        assert a.shape == b.shape, name
        if name in {"leaf", "margin", "vertex", "t_rows", "w_rows"} or (name == "y" and not aggregate):
            np.testing.assert_array_equal(a, b, err_msg=name)
        else:
            # Sums in float64, rounded once.
            largest = max(1, abs(b).max(initial=0))
            np.testing.assert_allclose(a, b, rtol=4 * eps, atol=8 * eps * largest, err_msg=name)


@kinds
@cases
def test_windows_are_rows(backend, dtype, kind, case):
    """Routes, outputs and gradients of the parameters have the bits of the unfolded windows as rows."""
    got, grad_y = everything(kind, Backend(backend.name), case, dtype, "sum")
    x, t, f, w = problem(kind, case, dtype)
    windows = unfolded(x, *case[1:5])
    rows = np.ascontiguousarray(windows.reshape(-1, windows.shape[-1]))
    y, route = function(kind, "forward")(rows, t, f, w, aggregate="sum", return_route=True)
    grad = grad_y.reshape(y.shape)
    grad_x, grad_t, grad_w = function(kind, "backward")(grad, *route, f, w, rows.shape[1], aggregate="sum")
    want = {"y": y, **route._asdict(), "grad_t": grad_t, "grad_w": grad_w}
    for name, a in want.items():
        assert got[name].reshape(a.shape).tobytes() == a.tobytes(), name
    assert got["leaf"].shape == (*windows.shape[:-1], t.shape[0])
    want_x = folded(grad_x.reshape(windows.shape), x.shape, *case[1:5])
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(
        got["grad_x"], want_x, rtol=0, atol=64 * eps * max(1, abs(want_x).max(initial=0))
    )


@kinds
def test_gradients_are_central_differences(kind):
    case = CASES[2]
    x, t, f, w = problem(kind, case, np.float64)
    noise = np.random.default_rng(2)  # no ties: the outputs are differentiable here
    x, t = (a + noise.normal(size=a.shape) / 8 for a in (x, t))
    forward = function(kind, "conv_forward")

    def loss(x, t, w):
        return float((forward(x, t, f, w, case[1], **words(case), aggregate="sum") ** 2).sum()) / 2

    y, route = forward(x, t, f, w, case[1], **words(case), aggregate="sum", return_route=True)
    grads = function(kind, "conv_backward")(y, route, f, w, x.shape, case[1], **words(case), aggregate="sum")
    given, rng, step = [x, t, w], np.random.default_rng(3), 1e-6
    for i, grad in enumerate(grads):
        for at in rng.choice(given[i].size, 25):
            moved = [np.array(a) for a in given]
            moved[i].flat[at] += step
            high = loss(*moved)
            moved[i].flat[at] -= 2 * step
            assert (high - loss(*moved)) / (2 * step) == pytest.approx(grad.flat[at], rel=1e-5, abs=1e-5)


@kinds
@pytest.mark.parametrize("n_threads", [2, 7])
def test_same_bits_at_every_number_of_threads(threads, dtype, kind, n_threads):
    case = ((9, 4, 20, 21), 3, 1, 1, 1, 40, 5, (2,))
    threads(1)
    want, _ = everything(kind, Backend("cpu"), case, dtype, "sum")
    threads(n_threads)
    got, _ = everything(kind, Backend("cpu"), case, dtype, "sum")
    for name, a in got.items():
        assert a.tobytes() == want[name].tobytes(), name


@several_paths
@kinds
@cases
def test_same_bits_on_every_path(simd, dtype, kind, case):
    results = []
    for path in machine.simd_paths():
        simd(path)
        results.append(everything(kind, Backend("cpu"), case, dtype, "mean")[0])
    for name, a in results[0].items():
        assert all(other[name].tobytes() == a.tobytes() for other in results[1:]), name


def test_padding_learns_nothing(backend):
    """A window in the padding compares with 0 and moves its threshold, but no number of the image."""
    x, t, f = np.ones((1, 1, 1)), np.array([[0.5]]), np.array([[0]], np.int32)
    w = np.array([[2.0, 3.0]])
    y, route = hinge.tree_conv_forward(x, t, f, w, 1, padding=1, aggregate="sum", return_route=True)
    assert y.ravel().tolist() == [1.0, 1.5, 1.0]
    grad_x, grad_t, grad_w = hinge.tree_conv_backward(
        np.ones_like(y), route, f, w, x.shape, 1, padding=1, aggregate="sum"
    )
    assert grad_x.ravel().tolist() == [3.0]
    assert grad_t.ravel().tolist() == [2 + 2 - 3.0]
    assert grad_w.ravel().tolist() == [1.0, 0.5]


def test_memory_does_not_grow_with_the_kernel():
    """No array of all windows is made: 49 times the images here."""
    import tracemalloc

    x = np.random.default_rng(0).normal(size=(64, 4, 32, 32)).astype(np.float32)
    t, f, w = hinge.tree_init(4, 3, 4 * 49, rng=0)
    tracemalloc.start()
    try:
        y = hinge.tree_conv_forward(x, t, f, w, 7, padding=3, aggregate="sum")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < y.nbytes + 8 * x.nbytes


# ------------------------------------------------------------------------------------ bad input


def good():
    x = np.ones((2, 3, 5, 6), np.float32)
    t, f, w = hinge.tree_init(2, 2, 3 * 9, (2,), rng=0)
    return x, t, f, w


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": np.ones((2, 3), np.float32)}, ValueError, "x: expected .*one to three axes in space"),
        ({"x": np.ones((2, 3, 5, 6), np.int32)}, TypeError, "x: expected"),
        ({"x": np.ones((2, 0, 5, 6), np.float32)}, ValueError, "channels: expected at least 1"),
        ({"x": np.full((2, 3, 5, 6), np.nan, np.float32)}, ValueError, "x: expected finite"),
        ({"x": np.ones((2, 3, 6, 5), np.float32).transpose(0, 1, 3, 2)}, ValueError, "C-contiguous"),
        ({"kernel_size": 6}, ValueError, "kernel_size: expected kernels inside .* at most 5 .* got 6"),
        ({"kernel_size": (3,)}, ValueError, "kernel_size: expected an int or one int for each of the 2 axes"),
        ({"kernel_size": 0}, ValueError, "kernel_size: expected"),
        ({"kernel_size": 2.5}, TypeError, "kernel_size: expected"),
        ({"kernel_size": 2}, IndexError, "features: expected"),
        ({"stride": 0}, ValueError, "stride: expected"),
        ({"padding": -1}, ValueError, "padding: expected"),
        ({"dilation": (1, 4)}, ValueError, "with dilation 4"),
        ({"thresholds": np.zeros((2, 3))}, TypeError, "thresholds: expected"),
        ({"weights": np.zeros((2, 3, 2), np.float32)}, ValueError, "weights: expected"),
        ({"aggregate": "max"}, ValueError, "aggregate: expected"),
        ({"out": np.zeros((2, 3, 4), np.float32)}, ValueError, "out: expected"),
    ],
)
def test_bad_input_is_refused(change, error, message):
    names = ("x", "thresholds", "features", "weights")
    given = {**dict(zip(names, good(), strict=True)), "kernel_size": 3, **change}
    with pytest.raises(error, match=message):
        hinge.tree_conv_forward(**given)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x_shape": (2, 3, 5, 7)}, ValueError, "leaf: expected shape"),
        ({"x_shape": (2, 3)}, ValueError, "axes in space"),
        ({"x_shape": (2, -3, 5, 6)}, ValueError, "x_shape: expected"),
        ({"grad_y": np.ones((2, 3, 4, 3), np.float32)}, ValueError, "grad_y: expected shape"),
        ({"grad_y": np.full((2, 3, 4, 2), np.inf, np.float32)}, ValueError, "grad_y: expected finite"),
        ({"kernel_size": 2}, ValueError, "leaf: expected shape"),
        ({"sparse": 1}, TypeError, "sparse: expected"),
        ({"sparse": True, "out": ()}, ValueError, "out: expected None with sparse=True"),
    ],
)
def test_bad_gradients_are_refused(change, error, message):
    x, t, f, w = good()
    y, route = hinge.tree_conv_forward(x, t, f, w, 3, aggregate="sum", return_route=True)
    given = {
        "grad_y": y, "route": route, "features": f, "weights": w, "x_shape": x.shape, "kernel_size": 3,
        "aggregate": "sum", **change,
    }  # fmt: skip
    with pytest.raises(error, match=message):
        hinge.tree_conv_backward(**given)
    bad = route._replace(leaf=np.full_like(route.leaf, 9))
    with pytest.raises(IndexError, match="leaf: expected"):
        hinge.tree_conv_backward(y, bad, f, w, x.shape, 3, aggregate="sum")


def test_more_windows_than_an_int32_counts_are_refused():
    # Inside the public functions a missing check would fill the memory.
    with pytest.raises(ValueError, match="^n_windows: expected 0 to 2147483647, got 4800280004"):
        geometry.windows_of("x", (1, 1, 2, 2), 1, 1, (30000, 40000), 1)
