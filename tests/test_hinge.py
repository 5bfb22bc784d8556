"""Hinge trees and ferns: known answers, the reference implementation against its backends, gradients, bad input."""

import itertools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import several_paths

import hforest
from hforest import hinge
from hforest.core import machine

KINDS = ("tree", "fern")
AGGREGATES = (None, "sum", "mean")


def function(kind, name):
    return getattr(hinge, f"{kind}_{name}")


def grid(rng, shape, dtype, step=0.5):
    """Numbers on a coarse grid: ties at thresholds and equal margins are everywhere."""
    return (np.round(rng.normal(size=shape) / step) * step).astype(dtype)


def problem(kind, n, n_features, n_trees, depth, outputs=(), dtype=np.float64, seed=0, coarse=False):
    rng = np.random.default_rng(seed)
    t, f, w = function(kind, "init")(n_trees, depth, n_features, outputs, scale=1.0, dtype=dtype, rng=rng)
    x = rng.normal(size=(n, n_features)).astype(dtype)
    return (grid(rng, x.shape, dtype), grid(rng, t.shape, dtype), f, w) if coarse else (x, t, f, w)


# (samples, features, trees, depth, outputs): 1x1, one tree, depth 1, no sample, K not a power of two,
# trailing axes, more than one tile of samples and of trees.
SHAPES = [
    (1, 1, 1, 1, ()),
    (5, 3, 1, 4, ()),
    (7, 2, 3, 1, 3),
    (0, 4, 2, 3, (3, 2)),
    (33, 5, 17, 6, (3, 2)),
    (130, 9, 4, 5, 7),
]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
kinds = pytest.mark.parametrize("kind", KINDS)
aggregates = pytest.mark.parametrize("aggregate", AGGREGATES)


# -------------------------------------------------------------------------------- known answers


def test_tree_by_hand(backend, dtype):
    # Root x0 > 0; left child x1 > 1, right child x1 > -1.
    t = np.array([[0, 1, -1]], dtype)
    f = np.array([[0, 1, 1]], np.int32)
    x = np.array([[-2, 0], [-2, 3], [0.25, -1], [4, -0.5], [0, 9]], dtype)
    leaf, margin, vertex = hinge.tree_traverse(x, t, f)
    assert leaf.ravel().tolist() == [0, 1, 2, 3, 1]  # x0 = 0 is a tie: left
    assert margin.ravel().tolist() == [-1, -2, 0, 0.5, 0]
    assert vertex.ravel().tolist() == [1, 0, 2, 2, 0]  # |-2| = |2|: the root stays
    assert leaf.dtype == vertex.dtype == np.int32
    assert margin.dtype == dtype


def test_fern_by_hand(backend, dtype):
    t = np.array([[0, 1, 2]], dtype)
    f = np.array([[0, 0, 0]], np.int32)
    x = np.array([[-1], [0.5], [1.75], [2.5], [1]], dtype)
    leaf, margin, vertex = hinge.fern_traverse(x, t, f)
    assert leaf.ravel().tolist() == [0b000, 0b100, 0b110, 0b111, 0b100]
    assert margin.ravel().tolist() == [-1, 0.5, -0.25, 0.5, 0]
    assert vertex.ravel().tolist() == [0, 0, 2, 2, 1]


@kinds
def test_forward_is_equation_10(backend, kind):
    """The sum over all leaves of w_l min over the path of ReLU(d(x - t)), written out (Lay et al. 2018,
    eq. 8-10).
    """
    x, t, f, w = problem(kind, 20, 4, 3, 3, coarse=True)
    depth, want = 3, np.zeros((20, 3))
    for n, m, leaf in itertools.product(range(20), range(3), range(8)):
        v, terms = 0, []
        for level in range(depth):
            right = leaf >> (depth - 1 - level) & 1
            at = level if kind == "fern" else v
            r = x[n, f[m, at]] - t[m, at]
            terms.append(max(r if right else -r, 0.0))
            v = 2 * v + 1 + right
        want[n, m] += w[m, leaf] * min(terms)
    np.testing.assert_allclose(function(kind, "forward")(x, t, f, w), want, rtol=1e-15, atol=0)


def test_fern_of_depth_one_is_tree_of_depth_one(backend, dtype):
    x, t, f, w = problem("tree", 40, 3, 5, 1, (2,), dtype, coarse=True)
    results = []
    for kind in KINDS:
        y, route = function(kind, "forward")(x, t, f, w, return_route=True)
        results.append((y, *route, *function(kind, "backward")(y, *route, f, w, 3)))
    for tree, fern in zip(*results, strict=True):
        np.testing.assert_array_equal(tree, fern)


# ---------------------------------------------------------------------------- backends and the reference implementation


def everything(kind, backend, arrays, n_features, grad_rng, aggregate):
    x, t, f, w = (backend.array(a) for a in arrays)
    y, route = function(kind, "forward")(x, t, f, w, aggregate=aggregate, return_route=True)
    alone = function(kind, "forward")(x, t, f, w, aggregate=aggregate)
    np.testing.assert_array_equal(backend.numpy(y), backend.numpy(alone))
    grad_y = grad_rng.normal(size=y.shape).astype(arrays[0].dtype)
    args = (backend.array(grad_y), *route, f, w, n_features)
    dense = function(kind, "backward")(*args, aggregate=aggregate)
    sparse = function(kind, "backward")(*args, aggregate=aggregate, sparse=True)
    flat = [y, *route, *dense, sparse[0], *sparse[1], *sparse[2]]
    return [backend.numpy(a) for a in flat], grad_y


@kinds
@shapes
@aggregates
@pytest.mark.parametrize("coarse", [False, True], ids=["generic", "ties"])
def test_backend_equals_reference(fast_backend, dtype, kind, shape, aggregate, coarse):
    from conftest import Backend

    n, n_features, n_trees, depth, outputs = shape
    arrays = problem(kind, n, n_features, n_trees, depth, outputs, dtype, coarse=coarse)
    got, _ = everything(kind, fast_backend, arrays, n_features, np.random.default_rng(1), aggregate)
    with hforest.using("reference"):
        want, _ = everything(
            kind, Backend("reference"), arrays, n_features, np.random.default_rng(1), aggregate
        )
    names = [
        "y",
        "leaf",
        "margin",
        "vertex",
        "grad_x",
        "grad_t",
        "grad_w",
        "sparse_grad_x",
        "t_rows",
        "t_values",
        "w_rows",
        "w_values",
    ]
    exact = {"leaf", "margin", "vertex", "t_rows", "w_rows"} | (set() if aggregate else {"y"})
    eps = np.finfo(dtype).eps
    for name, a, b in zip(names, got, want, strict=True):
        assert a.dtype == b.dtype, name
        assert a.shape == b.shape, name
        if name in exact:
            np.testing.assert_array_equal(a, b, err_msg=name)
        else:
            # One rounding of a float64 sum each: two neighbouring numbers at most, relative to the
            # largest term that was added.
            np.testing.assert_allclose(
                a, b, rtol=2 * eps, atol=4 * eps * max(1, abs(b).max(initial=0)), err_msg=name
            )


@kinds
@aggregates
def test_sparse_equals_dense(backend, dtype, kind, aggregate):
    x, t, f, w = problem(kind, 40, 5, 6, 4, (3, 2), dtype, coarse=True)
    y, route = function(kind, "forward")(x, t, f, w, aggregate=aggregate, return_route=True)
    dense = function(kind, "backward")(y, *route, f, w, 5, aggregate=aggregate)
    sparse = function(kind, "backward")(y, *route, f, w, 5, aggregate=aggregate, sparse=True)
    np.testing.assert_array_equal(sparse[0], dense[0])
    for full, (rows, values), index in zip(dense[1:], sparse[1:], (route[2], route[0]), strict=True):
        touched = sorted({m * full.shape[1] + i for line in index.tolist() for m, i in enumerate(line)})
        assert rows.tolist() == touched
        assert rows.dtype == np.int64
        rebuilt = np.zeros((full.shape[0] * full.shape[1], *full.shape[2:]), dtype)
        rebuilt[rows] = values
        np.testing.assert_array_equal(rebuilt.reshape(full.shape), full)


@kinds
@aggregates
@pytest.mark.parametrize("n", [1000, 3000])
def test_threads_change_no_bit(threads, dtype, kind, aggregate, n):
    # 3000 samples and 50 trees exceed one chunk of the forward pass.
    arrays = problem(kind, n, 11, 50, 5, (3,), dtype)
    results = []
    for count in (1, 2, 7):
        threads(count)
        assert hforest.get_num_threads() in (count, 1)  # 1: a build without OpenMP
        from conftest import Backend

        results.append(everything(kind, Backend("cpu"), arrays, 11, np.random.default_rng(1), aggregate)[0])
    for others in results[1:]:
        for a, b in zip(results[0], others, strict=True):
            np.testing.assert_array_equal(a, b)


@several_paths
@kinds
@pytest.mark.parametrize("path", [name for name in machine.simd_paths() if name != "plain"])
@pytest.mark.parametrize("coarse", [False, True], ids=["generic", "ties"])
def test_vector_paths_have_the_bits_of_the_plain_one(simd, dtype, kind, path, coarse):
    # Every depth up to 12 (levels held in registers, packed, gathered), partial tiles and groups of trees,
    # few samples in deep trees (not packed), several blocks, infinite thresholds, zeros of either sign.
    cases = [(40, 9, 17, depth) for depth in range(1, 13)]
    cases += [(8, 3, 5, 12), (31, 4, 33, 3), (33, 17, 16, 7), (300, 40, 3, 9), (700, 5, 50, 6), (64, 1, 2, 8)]
    for n, n_features, n_trees, depth in cases:
        x, t, f, w = problem(kind, n, n_features, n_trees, depth, (3,), dtype, seed=depth, coarse=coarse)
        t[0, ::3] = np.inf
        t[-1, ::5] = -np.inf
        x[::2][x[::2] == 0] = -0.0
        results = []
        for name in ("plain", path):
            simd(name)
            results.append(function(kind, "forward")(x, t, f, w, aggregate="sum", return_route=True))
        (y, route), (y2, route2) = results
        for a, b in zip((y, *route), (y2, *route2), strict=True):
            assert a.tobytes() == b.tobytes(), (n, n_features, n_trees, depth)


@kinds
@aggregates
@pytest.mark.parametrize("depth", [3, 8, 12])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_many_samples_and_deep_trees(dtype, kind, aggregate, depth, n_outputs):
    # More samples than a stretch, leaves than twice the samples, leaves marked by bits and by bytes.
    for n in (2500, 40):
        x, t, f, w = problem(kind, n, 6, 18, depth, (n_outputs,), dtype, seed=depth)
        _, (leaf, margin, vertex) = route = function(kind, "forward")(
            x, t, f, w, aggregate=aggregate, return_route=True
        )
        shape = (n, n_outputs) if aggregate else (n, 18, n_outputs)
        grad_y = np.random.default_rng(2).normal(size=shape).astype(dtype)
        args = (grad_y, *route[1], f, w, 6)
        grad_x, grad_t, grad_w = function(kind, "backward")(*args, aggregate=aggregate)
        sparse = function(kind, "backward")(*args, aggregate=aggregate, sparse=True)
        each = grad_y if aggregate is None else np.broadcast_to(grad_y[:, None], (n, 18, n_outputs))
        each = each.astype(np.float64) / (18 if aggregate == "mean" else 1)
        trees = np.broadcast_to(np.arange(18), leaf.shape)
        slope = np.sign(margin) * (w[trees, leaf].astype(np.float64) * each).sum(axis=2)
        want_x, want_t, want_w = np.zeros((n, 6)), np.zeros(t.shape), np.zeros(w.shape)
        np.add.at(want_x, (np.arange(n)[:, None], f[trees, vertex]), slope)
        np.add.at(want_t, (trees, vertex), -slope)
        np.add.at(want_w, (trees, leaf), abs(margin)[:, :, None] * each)
        eps = 40 * np.finfo(dtype).eps
        for got, want in ((grad_x, want_x), (grad_t, want_t), (grad_w, want_w)):
            np.testing.assert_allclose(got, want, rtol=eps, atol=eps * abs(want).max())
        np.testing.assert_array_equal(sparse[0], grad_x)
        for full, (rows, values), index in zip((grad_t, grad_w), sparse[1:], (vertex, leaf), strict=True):
            assert rows.tolist() == np.unique(trees * full.shape[1] + index).tolist()
            np.testing.assert_array_equal(values, full.reshape(-1, *full.shape[2:])[rows])


@hypothesis.given(
    kind=st.sampled_from(KINDS),
    aggregate=st.sampled_from(AGGREGATES),
    double=st.booleans(),
    n=st.integers(0, 70),
    n_features=st.integers(1, 6),
    n_trees=st.integers(1, 20),
    depth=st.integers(1, 6),
    outputs=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    coarse=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_any_shape(kind, aggregate, double, n, n_features, n_trees, depth, outputs, coarse, seed):
    from conftest import Backend

    dtype = np.float64 if double else np.float32
    arrays = problem(kind, n, n_features, n_trees, depth, outputs, dtype, seed, coarse)
    got, _ = everything(kind, Backend("cpu"), arrays, n_features, np.random.default_rng(1), aggregate)
    with hforest.using("reference"):
        want, _ = everything(
            kind, Backend("reference"), arrays, n_features, np.random.default_rng(1), aggregate
        )
    for a, b in zip(got, want, strict=True):
        scale = max(1, abs(b).max(initial=0)) if b.dtype == dtype else 0
        np.testing.assert_allclose(a, b, rtol=2 * np.finfo(dtype).eps, atol=4 * np.finfo(dtype).eps * scale)


@kinds
def test_float_error_at_most_twice_numpy(backend, kind):
    x, t, f, w = problem(kind, 60, 6, 40, 4, (5,), np.float32)
    y, route = function(kind, "forward")(x, t, f, w, aggregate="sum", return_route=True)
    leaf, margin, vertex = route
    g = np.random.default_rng(2).normal(size=y.shape).astype(np.float32)
    got = function(kind, "backward")(g, *route, f, w, 6, aggregate="sum")

    def plain(real):
        """The same sums by plain NumPy in one dtype."""
        trees = np.arange(40)
        rows, r, grad = w.astype(real)[trees, leaf], margin.astype(real), g.astype(real)
        s = np.sign(r) * (rows * grad[:, None]).sum(axis=2, dtype=real)
        grad_x, grad_t, grad_w = np.zeros(x.shape, real), np.zeros(t.shape, real), np.zeros(w.shape, real)
        samples = np.arange(60)[:, None]
        np.add.at(grad_x, (samples, f[trees, vertex]), s)
        np.add.at(grad_t, (trees, vertex), -s)
        np.add.at(grad_w, (trees, leaf), abs(r)[:, :, None] * grad[:, None])
        return (rows * abs(r)[:, :, None]).sum(axis=1, dtype=real), grad_x, grad_t, grad_w

    for ours, single, double in zip((y, *got), plain(np.float32), plain(np.float64), strict=True):
        assert abs(ours - double).max() <= 2 * abs(single - double).max()


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
    y, route = hinge.tree_forward(x, t, f, w, aggregate="sum", return_route=True)
    assert w.size > 2**31
    assert (y == 6).all()
    _, _, (rows, values) = hinge.tree_backward(y, *route, f, w, 1, aggregate="sum", sparse=True)
    assert rows.tolist() == [2**depth - 1]
    assert (values == 2 * 2 * 6).all()


# ------------------------------------------------------------------------------------ gradients


@kinds
@aggregates
@pytest.mark.parametrize("outputs", [(), (3,), (3, 2)], ids=str)
def test_central_differences(backend, kind, aggregate, outputs):
    x, t, f, w = problem(kind, 6, 4, 5, 3, outputs)
    y, route = function(kind, "forward")(x, t, f, w, aggregate=aggregate, return_route=True)
    g = np.random.default_rng(3).normal(size=y.shape)
    grads = function(kind, "backward")(g, *route, f, w, 4, aggregate=aggregate)
    step = 1e-6
    # Away from kinks: no decision changes and no other margin becomes the least within the step.
    margins = np.sort(abs(x[:, f] - t), axis=2)
    assert margins[..., 0].min() > 2 * step
    assert np.diff(margins, axis=2).min() > 4 * step or kind == "tree"

    def loss():
        return (function(kind, "forward")(x, t, f, w, aggregate=aggregate) * g).sum()

    for parameter, grad in zip((x, t, w), grads, strict=True):
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
    t, f, w = np.zeros((1, 1)), np.zeros((1, 1), np.int32), np.ones((1, 2))
    y, route = function(kind, "forward")(np.zeros((1, 1)), t, f, w, return_route=True)
    assert y.item() == 0
    for grad in function(kind, "backward")(np.ones((1, 1)), *route, f, w, 1):
        assert not grad.any()


def test_backward_never_traverses(backend):
    """The gradient follows the route it is given, not the arrays that made it."""
    w = np.array([[1.0, 2.0, 4.0, 8.0]])
    f = np.array([[0, 1, 2]], np.int32)
    leaf, vertex = np.array([[3]], np.int32), np.array([[2]], np.int32)
    grad_x, grad_t, grad_w = hinge.tree_backward(
        np.array([[10.0]]), leaf, np.array([[-0.5]]), vertex, f, w, 3
    )
    assert grad_x.tolist() == [[0, 0, -80]]
    assert grad_t.tolist() == [[0, 0, 80]]
    assert grad_w.tolist() == [[0, 0, 0, 5]]


# ------------------------------------------------------------------------------ zero samples, out


@kinds
@aggregates
def test_no_samples(backend, dtype, kind, aggregate):
    x, t, f, w = problem(kind, 0, 3, 2, 2, (4,), dtype)
    y, route = function(kind, "forward")(x, t, f, w, aggregate=aggregate, return_route=True)
    assert y.shape == ((0, 2, 4) if aggregate is None else (0, 4))
    dense = function(kind, "backward")(y, *route, f, w, 3, aggregate=aggregate)
    assert [a.shape for a in dense] == [(0, 3), t.shape, w.shape]
    assert not dense[1].any()
    assert not dense[2].any()
    sparse = function(kind, "backward")(y, *route, f, w, 3, aggregate=aggregate, sparse=True)
    assert [a.shape for a in (*sparse[1], *sparse[2])] == [(0,), (0,), (0,), (0, 4)]
    assert hinge.leaf_counts(route[0], 4).sum() == 0
    assert hinge.leaf_rows(route[0], 4).shape == (0,)


@kinds
def test_out(backend, dtype, kind):
    x, t, f, w = problem(kind, 9, 3, 2, 2, (4,), dtype)
    want, route = function(kind, "forward")(x, t, f, w, return_route=True)
    y = np.full_like(want, np.nan)
    assert function(kind, "forward")(x, t, f, w, out=y) is y
    np.testing.assert_array_equal(y, want)
    given = tuple(np.full_like(a, -1) for a in route)
    got = function(kind, "traverse")(x, t, f, out=given)
    assert all(a is b for a, b in zip(got, given, strict=True))
    for a, b in zip(got, route, strict=True):
        np.testing.assert_array_equal(a, b)
    dense = function(kind, "backward")(y, *route, f, w, 3)
    given = tuple(np.full_like(a, np.nan) for a in dense)
    for a, b in zip(function(kind, "backward")(y, *route, f, w, 3, out=given), dense, strict=True):
        np.testing.assert_array_equal(a, b)
    assert hinge.leaf_outputs(route[0], route[1], w, out=y) is y
    np.testing.assert_array_equal(y, want)


def test_inputs_are_left_alone_and_may_be_read_only(backend):
    arrays = problem("tree", 9, 3, 2, 2, (4,))
    copies = [a.copy() for a in arrays]
    for a in arrays:
        a.flags.writeable = False
    x, t, f, w = arrays
    y, route = hinge.tree_forward(x, t, f, w, return_route=True)
    for a in (y, *route):
        a.flags.writeable = False
    hinge.tree_backward(y, *route, f, w, 3)
    hinge.tree_backward(y, *route, f, w, 3, sparse=True)
    for a, b in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(a, b)


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
    x, t, f, _ = problem("tree", 30, 5, 4, 4)
    leaf, _, vertex = hinge.tree_traverse(x, t, f)
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
def test_random_start(dtype, kind):
    t, f, w = function(kind, "init")(200, 6, 10, (3, 2), dtype=dtype, rng=0)
    n_vertices = 63 if kind == "tree" else 6
    assert t.shape == f.shape == (200, n_vertices)
    assert w.shape == (200, 64, 3, 2)
    assert t.dtype == w.dtype == dtype
    assert f.dtype == np.int32
    assert all(a.flags.c_contiguous for a in (t, f, w))
    assert t.min() >= -3
    assert t.max() <= 3
    assert abs(t.std() - 6 / 12**0.5) < 0.05  # of U(-3, 3)
    assert np.unique(f).tolist() == list(range(10))
    assert abs(w.std() - 0.01) < 2e-4
    assert abs(w.mean()) < 2e-4


@kinds
def test_start_follows_the_seed(kind):
    init = function(kind, "init")
    first, same, other = (init(3, 3, 5, rng=seed) for seed in (7, np.random.default_rng(7), 8))
    for a, b, c in zip(first, same, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (a != c).any()
    for a, b in zip(first, init(3, 3, 5, dtype=np.float64, rng=7), strict=True):
        np.testing.assert_array_equal(a, b.astype(a.dtype))


@kinds
def test_sequential_features(kind):
    _, f, _ = function(kind, "init")(4, 3, 5, features="sequential", rng=0)
    np.testing.assert_array_equal(f.ravel(), np.arange(f.size) % 5)


def test_median_thresholds_split_evenly(dtype):
    x = np.random.default_rng(0).normal(size=(64, 6)).astype(dtype)
    _, f, _ = hinge.tree_init(5, 6, 6, dtype=dtype, rng=0)
    t = hinge.tree_median_thresholds(x, f)
    assert t.dtype == dtype
    leaf, _, _ = hinge.tree_traverse(x, t, f)
    assert (hinge.leaf_counts(leaf, 64) == 1).all()
    _, f, _ = hinge.fern_init(5, 3, 6, dtype=dtype, rng=0)
    t = hinge.fern_median_thresholds(x, f)
    right = x[:, f] > t
    assert (right.sum(axis=0) == 32).all()


def test_medians_with_ties_and_empty_vertices(dtype):
    # Three values, the middle one most frequent: no threshold may separate equal values, and both
    # neighbouring splits are equally far from the middle.
    x = np.array([[0], [1], [1], [1], [1], [2]], dtype)
    f = np.zeros((1, 7), np.int32)
    t = hinge.tree_median_thresholds(x, f)
    assert t[0, 0] == 0.5
    assert t[0, 1] == 0.5  # one value only: the nearest ancestor's samples decide
    assert t[0, 2] == 1.5
    leaf, _, _ = hinge.tree_traverse(x, t, f)
    assert len({(v, tuple(ls)) for v, ls in zip(x.ravel(), leaf.tolist(), strict=True)}) == 3
    constant = np.full((4, 1), 5, dtype)
    assert (hinge.tree_median_thresholds(constant, f) == 8).all()
    assert (hinge.fern_median_thresholds(constant, f[:, :2]) == 8).all()


def test_neighbouring_floats_are_split(dtype):
    low = dtype(1)
    high = np.nextafter(low, dtype(2), dtype=dtype)
    t = hinge.fern_median_thresholds(np.array([[low], [high]]), np.zeros((1, 1), np.int32))
    assert low <= t.item() < high
    # The sum of the two overflows, their middle does not.
    big = np.finfo(dtype).max
    t = hinge.fern_median_thresholds(np.array([[big / 2], [big]], dtype), np.zeros((1, 1), np.int32))
    assert big / 2 <= t.item() < big


def test_greedy_start_for_classes():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5))
    y = ((x[:, 1] > 0.3) * 2 + (x[:, 3] > -0.2)).astype(np.int32)
    t, f, w = hinge.tree_greedy_init(x, y, 5, 2, max_features=5, rng=0)
    assert w.shape == (5, 4, 4)
    assert f.dtype == np.int32
    # With every feature on offer the root must be one of the two that matter, and so must its child.
    assert set(np.unique(f)) == {1, 3}
    leaf, _, _ = hinge.tree_traverse(x, t, f)
    for m in range(5):
        assert len({(a, b) for a, b in zip(leaf[:, m], y, strict=True)}) == 4  # leaves are pure
    assert (hinge.tree_forward(x, t, f, w, aggregate="mean").argmax(axis=1) == y).mean() > 0.99
    again = hinge.tree_greedy_init(x, y, 5, 2, max_features=5, rng=0)
    for a, b in zip((t, f, w), again, strict=True):
        np.testing.assert_array_equal(a, b)


def test_greedy_split_is_the_best_one(dtype):
    """The root against all splits of all features, by the Gini impurity as it is defined."""
    rng = np.random.default_rng(4)
    x = grid(rng, (60, 4), dtype)
    y = rng.integers(0, 3, 60).astype(np.int32)
    t, f, _ = hinge.tree_greedy_init(x, y, 1, 1, max_features=4, rng=0)

    def impurity(feature, threshold):
        total = 0.0
        for side in (y[x[:, feature] > threshold], y[~(x[:, feature] > threshold)]):
            p = np.bincount(side, minlength=3) / max(1, len(side))
            total += len(side) * (1 - (p**2).sum())
        return total

    best = min(impurity(j, c) for j in range(4) for c in np.unique(x[:, j])[:-1])
    assert impurity(f[0, 0], t[0, 0]) == pytest.approx(best)


def test_greedy_start_for_regression(dtype):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, 3)).astype(dtype)
    y = np.stack([np.sign(x[:, 0]), 2 * np.sign(x[:, 0])], axis=1)
    t, f, w = hinge.tree_greedy_init(x, y, 3, 1, task="regression", max_features=3, rng=0)
    assert (f == 0).all()
    assert abs(t).max() < 0.1
    assert w.shape == (3, 2, 2)
    p = hinge.tree_forward(x, t, f, w, aggregate="mean")
    assert ((p - (y - y.mean(axis=0))) ** 2).mean() < 0.7 * y.var(axis=0).mean()
    scalar = hinge.tree_greedy_init(x, y[:, 0].copy(), 3, 1, task="regression", max_features=3, rng=0)
    np.testing.assert_allclose(scalar[2], w[:, :, 0], rtol=1e-5)


@pytest.mark.parametrize(
    "labels", [np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.int64, np.uint64, ">i4", list]
)
def test_greedy_labels_of_any_integer_dtype(labels):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 4)), np.arange(200, dtype=np.int32) % 3
    expected = hinge.tree_greedy_init(x, y, 2, 3, rng=0)
    given = y.tolist() if labels is list else y.astype(labels)
    for a, b in zip(hinge.tree_greedy_init(x, given, 2, 3, rng=0), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    strides = np.repeat(y, 2)[::2]
    for a, b in zip(hinge.tree_greedy_init(x, strides, 2, 3, rng=0), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_greedy_bools_and_absent_classes():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    y = x[:, 0] > 0
    expected = hinge.tree_greedy_init(x, y.astype(np.int32), 2, 3, rng=0)
    for a, b in zip(hinge.tree_greedy_init(x, y, 2, 3, rng=0), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    wide = hinge.tree_greedy_init(x, 2 * y, 2, 3, n_classes=4, rng=0)
    np.testing.assert_array_equal(wide.thresholds, expected.thresholds)
    np.testing.assert_array_equal(wide.weights[..., [0, 2]], expected.weights)
    assert not wide.weights[..., [1, 3]].any()
    # The advice of the message works.
    with pytest.raises(ValueError, match="none of class 1") as caught:
        hinge.tree_greedy_init(x, 2 * y, 2, 3, rng=0)
    assert "numpy.unique(y, return_inverse=True)[1]" in str(caught.value)
    again = hinge.tree_greedy_init(x, np.unique(2 * y, return_inverse=True)[1], 2, 3, rng=0)
    np.testing.assert_array_equal(again.weights, expected.weights)


@pytest.mark.parametrize("outputs", [(), (2,), (2, 3)])
def test_greedy_targets_of_any_real_dtype(outputs):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(100, 4)), rng.integers(-9, 9, (100, *outputs))
    expected = hinge.tree_greedy_init(x, y.astype(float), 2, 3, task="regression", rng=0)
    assert expected.weights.shape == (2, 8, *outputs)
    for given in (y, y.astype(np.float16), y.astype(np.int8), y.tolist(), np.asfortranarray(y)):
        for a, b in zip(
            hinge.tree_greedy_init(x, given, 2, 3, task="regression", rng=0), expected, strict=True
        ):
            np.testing.assert_array_equal(a, b)


def test_greedy_with_nothing_to_split():
    x, y = np.ones((5, 2)), np.zeros(5, np.int32)
    t, f, w = hinge.tree_greedy_init(x, y, 2, 3, rng=0)
    assert np.isfinite(t).all()
    assert np.isfinite(w).all()
    assert ((f >= 0) & (f < 2)).all()


def reachable(t, f, v):
    """Brute force: does some x reach each child of v? Candidates lie between and on all thresholds."""
    values = np.unique(t)
    tries = np.concatenate([values, (values[1:] + values[:-1]) / 2, [values[0] - 1, values[-1] + 1]])
    path, child = [], v
    while child:
        path.append(((child - 1) // 2, child % 2 == 0))
        child = (child - 1) // 2
    # Features are independent, so only those ancestors matter that read v's own.
    ok = [x for x in tries if all((x > t[a]) == right for a, right in path if f[a] == f[v])]
    return any(x > t[v] for x in ok) and any(not x > t[v] for x in ok)


def test_consistency_against_brute_force(dtype):
    rng = np.random.default_rng(0)
    t, f, _ = hinge.tree_init(30, 4, 3, dtype=dtype, rng=rng)
    t = grid(rng, t.shape, dtype)
    got = hinge.tree_thresholds_consistent(t, f)
    want = [[reachable(t[m], f[m], v) for v in range(15)] for m in range(30)]
    np.testing.assert_array_equal(got, want)
    assert 0.2 < got.mean() < 0.95


def test_repair(dtype):
    rng = np.random.default_rng(0)
    t, f, _ = hinge.tree_init(30, 6, 3, dtype=dtype, rng=rng)
    t[0, :3] = np.inf, -np.inf, 1
    t[1] = 2.0**26  # adding 1 changes nothing in float32
    before = t.copy()
    repaired = hinge.tree_repair_thresholds(t, f)
    np.testing.assert_array_equal(t, before)
    assert repaired.dtype == dtype
    ok = hinge.tree_thresholds_consistent(t, f)
    assert not ok.all()
    assert hinge.tree_thresholds_consistent(repaired, f).all()
    # From the root down: what was consistent under a path that did not move has not moved.
    np.testing.assert_array_equal(repaired[2:, 0], t[2:, 0])
    assert (repaired != t).mean() < 0.9
    np.testing.assert_array_equal(hinge.tree_repair_thresholds(repaired, f), repaired)


# ------------------------------------------------------------------------------------- named tuples


@kinds
@pytest.mark.parametrize("n", [1, 500])
def test_results_that_belong_together_have_names(backend, kind, n):
    x = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    parameters = function(kind, "init")(5, 3, 4, 2, rng=0)
    assert isinstance(parameters, hinge.Parameters)
    t, f, w = parameters
    assert t is parameters.thresholds
    assert f is parameters.features
    assert w is parameters.weights
    assert t.shape == f.shape
    assert w.shape == (5, 8, 2)
    route = function(kind, "traverse")(x, t, f)
    y, again = function(kind, "forward")(x, t, f, w, return_route=True)
    state = hinge.adam_state(t, w)
    _, trained = function(kind, "adam_forward")(x, t, f, w, state, 1, 0.1)
    for a in (route, again, trained):
        assert type(a) is hinge.Route
        leaf, margin, vertex = a
        assert leaf is a.leaf
        assert margin is a.margin
        assert vertex is a.vertex
        assert (leaf.dtype, margin.dtype, vertex.dtype) == (np.int32, np.float32, np.int32)
        np.testing.assert_array_equal(leaf, route.leaf)
        assert a._replace(leaf=vertex).leaf is vertex
    _, grad_t, grad_w = function(kind, "backward")(y, *route, f, w, 4, sparse=True)
    for a in (grad_t, grad_w):
        assert type(a) is hinge.RowGradient
        assert a.rows is a[0]
        assert a.values is a[1]
        assert len(a.rows) == len(a.values)


# ------------------------------------------------------------------------------------- bad input


def good():
    x, t, f, w = problem("tree", 6, 3, 2, 2, (4,))
    y, (leaf, margin, vertex) = hinge.tree_forward(x, t, f, w, return_route=True)
    return {
        "x": x, "thresholds": t, "features": f, "weights": w,
        "grad_y": y, "leaf": leaf, "margin": margin, "vertex": vertex,
    }  # fmt: skip


def changed(a, index, value):
    a = a.copy()
    a[index] = value
    return a


def strided(a):
    return np.repeat(a, 2, axis=0)[::2]


FORWARD = ("x", "thresholds", "features", "weights")
BACKWARD = ("grad_y", "leaf", "margin", "vertex", "features", "weights")

BAD = [
    # names of the arrays passed, argument, how it is spoilt, error, words of the message
    (FORWARD, "x", lambda a: a.astype(np.float16), TypeError, "float32 or float64, got float16"),
    (FORWARD, "x", lambda a: a.astype(">f8"), TypeError, "float32 or float64"),
    (FORWARD, "x", lambda a: a.astype(object), TypeError, "object"),
    (FORWARD, "x", lambda a: a.tolist(), TypeError, "got list; convert it with numpy.asarray.x, dtype=..., order='C'"),
    (FORWARD, "x", lambda a: np.matrix(a), TypeError, "got matrix"),
    (FORWARD, "x", lambda a: np.ma.masked_array(a), TypeError, "got MaskedArray"),
    (FORWARD, "x", lambda a: a[0], ValueError, r"\(n_samples, n_features\)"),
    (FORWARD, "x", lambda a: a[None], ValueError, r"\(n_samples, n_features\)"),
    (FORWARD, "x", lambda a: a[:, :0].copy(), ValueError, "n_features: expected at least 1"),
    (FORWARD, "x", lambda a: np.asfortranarray(a), ValueError, "C-contiguous.*numpy.ascontiguousarray"),
    (FORWARD, "x", strided, ValueError, "C-contiguous"),
    (FORWARD, "x", lambda a: changed(a, (4, 1), np.nan), ValueError, r"finite numbers, got nan at index \(4, 1\); impute .* or lower the learning rate if layers"),
    (FORWARD, "x", lambda a: changed(a, (5, 2), -np.inf), ValueError, r"got -inf at index \(5, 2\)"),
    (FORWARD, "x", lambda a: a.astype(np.int64), TypeError, "got int64; convert it with x.astype.numpy.float32"),
    (FORWARD, "thresholds", lambda a: a.astype(np.float32), TypeError, "got float32; .*float64., or the others to float32"),
    (FORWARD, "thresholds", lambda a: a[:, :2].copy(), ValueError, r"2\*\*depth - 1"),
    (FORWARD, "thresholds", lambda a: a[:, :0].copy(), ValueError, r"2\*\*depth - 1"),
    (FORWARD, "thresholds", lambda a: a[:0], ValueError, "n_trees"),
    (FORWARD, "thresholds", lambda a: changed(a, (1, 2), np.nan), ValueError, r"no NaN, got one at index \(1, 2\)"),
    (FORWARD, "features", lambda a: a[:1], ValueError, r"\(n_trees, 2\*\*depth - 1\) = \(2, 3\), got \(1, 3\)"),
    (FORWARD, "features", lambda a: a.astype(np.int64), TypeError, "int32, got int64"),
    (FORWARD, "features", lambda a: changed(a, (0, 1), 3), IndexError, r"0 <= index < n_features = 3, got 3"),
    (FORWARD, "features", lambda a: changed(a, (1, 0), -1), IndexError, r"got -1 at index \(1, 0\)"),
    (FORWARD, "weights", lambda a: a[:, :3].copy(), ValueError, r"2\*\*depth"),
    (FORWARD, "weights", lambda a: a[..., :0].copy(), ValueError, "n_outputs: expected at least 1"),
    (FORWARD, "weights", lambda a: a[0, 0], ValueError, r"\(n_trees, 2\*\*depth, \.\.\.\)"),
    (BACKWARD, "grad_y", lambda a: a[:, :, 0].copy(), ValueError, r"\(n_samples, n_trees, 4\) = \(6, 2, 4\)"),
    (BACKWARD, "grad_y", lambda a: a.astype(np.float32), TypeError, "float64, got float32"),
    (BACKWARD, "grad_y", lambda a: changed(a, (1, 0, 2), np.nan), ValueError, r"finite numbers, got nan at index \(1, 0, 2\)"),
    (BACKWARD, "grad_y", lambda a: changed(a, (1, 0, 2), np.inf), ValueError, "finite numbers, got inf"),
    (BACKWARD, "margin", lambda a: changed(a, (5, 1), np.nan), ValueError, r"no NaN, got nan at index \(5, 1\)"),
    (BACKWARD, "leaf", lambda a: changed(a, (3, 1), 4), IndexError, r"0 <= index < 2\*\*depth = 4, got 4"),
    (BACKWARD, "leaf", lambda a: changed(a, (3, 1), -1), IndexError, "got -1"),
    (BACKWARD, "leaf", lambda a: a.astype(np.int64), TypeError, "int32"),
    (BACKWARD, "vertex", lambda a: changed(a, (0, 0), 3), IndexError, r"2\*\*depth - 1 = 3, got 3"),
    (BACKWARD, "vertex", lambda a: a[:5], ValueError, r"\(n_samples, n_trees\) = \(6, 2\), got \(5, 2\)"),
    (BACKWARD, "margin", lambda a: a.astype(np.int32), TypeError, "float32 or float64"),
    (BACKWARD, "features", lambda a: changed(a, (0, 0), 9), IndexError, "n_features = 3"),
    (BACKWARD, "weights", lambda a: a[:1].copy(), ValueError, "n_trees"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize(("names", "name", "spoil", "error", "words"), BAD)
def test_bad_arrays(names, name, spoil, error, words):
    arrays = good()
    arrays[name] = spoil(arrays[name])
    with pytest.raises(error, match=words) as caught:
        if names is FORWARD:
            hinge.tree_forward(*(arrays[n] for n in names))
        else:
            hinge.tree_backward(*(arrays[n] for n in names), 3)
    # Argument, expected, got and remedy, in that order.
    message = str(caught.value)
    assert message.index(": expected") < message.index("got") < message.index(";")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda g: hinge.tree_init(0, 2, 3), ValueError, "n_trees: expected 1 to 2147483647, got 0"),
        (lambda g: hinge.tree_init(2, 0, 3), ValueError, "depth: expected 1 to 30, got 0"),
        (lambda g: hinge.tree_init(2, 40, 3), ValueError, "depth: expected 1 to 30, got 40"),
        (lambda g: hinge.fern_init(2, 40, 3), ValueError, "depth"),
        (lambda g: hinge.tree_init(2.0, 3, 3), TypeError, "n_trees: expected an int, got float"),
        (lambda g: hinge.tree_init(True, 3, 3), TypeError, "n_trees: expected an int, got bool"),
        (lambda g: hinge.tree_init(2, 3, 3, (4, 0)), ValueError, "outputs"),
        (lambda g: hinge.tree_init(2, 3, 3, [4, 0.5]), TypeError, "outputs: expected an int, got float"),
        (lambda g: hinge.tree_init(2, 3, 3, dtype=np.float16), TypeError, "dtype: expected float32 or float64"),
        (lambda g: hinge.tree_init(2, 3, 3, features="best"), ValueError, "features: expected one of"),
        (lambda g: hinge.tree_init(2, 3, 3, rng="seed"), TypeError, "rng: expected None, an int"),
        (lambda g: hinge.tree_init(2, 3, 3, rng=-1), ValueError, "rng"),
        (lambda g: hinge.tree_init(2, 3, 3, scale=-1.0), ValueError, "scale"),
        (lambda g: hinge.tree_forward(*(g[n] for n in FORWARD), aggregate="max"), ValueError, "aggregate"),
        (lambda g: hinge.fern_traverse(g["x"], np.zeros((2, 31)), np.zeros((2, 31), np.int32)), ValueError, "31"),
        (lambda g: hinge.tree_backward(*(g[n] for n in BACKWARD), 0), ValueError, "n_features"),
        (lambda g: hinge.tree_backward(*(g[n] for n in BACKWARD), 2.5), TypeError, "n_features"),
        (lambda g: hinge.leaf_counts(g["leaf"], 1), IndexError, "n_leaves = 1"),
        (lambda g: hinge.leaf_rows(g["leaf"][:, :0].copy(), 4), ValueError, "n_trees"),
        (lambda g: hinge.tree_path(g["leaf"], g["features"][:1].copy()), ValueError, "n_trees"),
        (lambda g: hinge.tree_median_thresholds(g["x"][:0], g["features"]), ValueError, "n_samples"),
        (lambda g: hinge.tree_greedy_init(g["x"], np.full(6, -1, np.int32), 1, 1), IndexError, "y: expected.*at least 0, got -1"),
        (lambda g: hinge.tree_greedy_init(g["x"], np.full(6, 3, np.int32), 1, 1, n_classes=3), IndexError, "got 3"),
        (lambda g: hinge.tree_greedy_init(g["x"], np.zeros(6, np.int32), 1, 1, max_features=9), ValueError, "max_features"),
        (lambda g: hinge.tree_greedy_init(g["x"], np.zeros(6), 1, 1), TypeError, r"y: expected labels.*float64.*unique\(y"),
        (lambda g: hinge.tree_greedy_init(g["x"], list("aabbcc"), 1, 1), TypeError, r"y: .*unique\(y"),
        (lambda g: hinge.tree_greedy_init(g["x"], np.array([0, 0, 2, 2, 2, 3]), 1, 1), ValueError, "none of class 1"),
        (lambda g: hinge.tree_greedy_init(g["x"], np.zeros(5, int), 1, 1), ValueError, r"y: .*\(n_samples,\) = \(6,\)"),
        (lambda g: hinge.tree_greedy_init(g["x"], np.zeros(6), 1, 1, task="regression", n_classes=2), ValueError, "n_cl"),
        (lambda g: hinge.tree_greedy_init(g["x"], np.full(6, np.nan), 1, 1, task="regression"), ValueError, "y: "),
        (lambda g: hinge.tree_greedy_init(g["x"], np.zeros(6, int), 1, 1, task="ranking"), ValueError, "task"),
        (lambda g: hinge.tree_greedy_init(g["x"], np.zeros(6, int), 1, 1, max_features=0), ValueError, "max_features"),
        (lambda g: hinge.tree_repair_thresholds(g["thresholds"], g["features"][:1]), ValueError, "n_trees"),
    ],
)  # fmt: skip
def test_bad_calls(call, error, words):
    with pytest.raises(error, match=words):
        call(good())


def test_outputs_may_be_a_list():
    for init in (hinge.tree_init, hinge.fern_init):
        for a, b in zip(init(3, 2, 5, [2, 4], rng=0), init(3, 2, 5, (2, 4), rng=0), strict=True):
            np.testing.assert_array_equal(a, b)


def test_nan_is_the_callers_affair_when_unchecked():
    g = good()
    g["margin"][5, 1] = g["grad_y"][0, 0, 0] = np.nan
    with hforest.unchecked():
        grad_x, _, _ = hinge.tree_backward(*(g[n] for n in BACKWARD), 3)
    assert np.isnan(grad_x).any()
    with pytest.raises(ValueError, match="^margin"):
        hinge.leaf_outputs(g["leaf"], g["margin"], g["weights"])


def test_bad_out():
    g = good()
    forward = [g[n] for n in FORWARD]
    with pytest.raises(ValueError, match="^out: expected shape"):
        hinge.tree_forward(*forward, out=np.empty((6, 2)))
    with pytest.raises(TypeError, match="^out: expected dtype float64"):
        hinge.tree_forward(*forward, out=np.empty((6, 2, 4), np.float32))
    locked = np.empty((6, 2, 4))
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="^out: expected a writable array"):
        hinge.tree_forward(*forward, out=locked)
    with pytest.raises(ValueError, match="out leaf: expected memory of its own.*overlaps out vertex"):
        both = np.empty((6, 2), np.int32)
        hinge.tree_traverse(*forward[:3], out=(both, np.empty((6, 2)), both))
    with pytest.raises(ValueError, match="out margin: expected memory of its own.*overlaps x"):
        x = np.zeros((6, 2))
        hinge.tree_traverse(
            x, g["thresholds"], np.zeros((2, 3), np.int32),
            out=(np.empty((6, 2), np.int32), x, np.empty((6, 2), np.int32)),
        )  # fmt: skip
    with pytest.raises(TypeError, match="out: expected a tuple of 3 arrays"):
        hinge.tree_traverse(*forward[:3], out=np.empty((6, 2)))
    with pytest.raises(ValueError, match="out: expected None with sparse=True"):
        hinge.tree_backward(*(g[n] for n in BACKWARD), 3, sparse=True, out=())


def test_unaligned_is_refused():
    g = good()
    raw = np.zeros(g["x"].nbytes + 1, np.uint8)
    x = raw[1:].view(np.float64).reshape(g["x"].shape)
    with pytest.raises(ValueError, match="aligned"):
        hinge.tree_forward(x, *(g[n] for n in FORWARD[1:]))


def test_failed_call_changes_nothing():
    g = good()
    y = np.full((6, 2, 4), 7.0)
    with pytest.raises(IndexError):
        hinge.tree_forward(g["x"], g["thresholds"], g["features"] + np.int32(9), g["weights"], out=y)
    assert (y == 7).all()


@pytest.mark.parametrize("kind", ["tree", "fern"])
@pytest.mark.parametrize("value", [np.array(["sum", "mean"]), np.zeros(0), {"sum"}, 3, True, object()])
def test_an_aggregate_that_is_no_word(kind, value):
    t, f, w = getattr(hinge, f"{kind}_init")(2, 2, 3, rng=0)
    with pytest.raises(ValueError, match="^aggregate: expected one of None, 'sum', 'mean', got .*; choose"):
        getattr(hinge, f"{kind}_forward")(np.zeros((1, 3), np.float32), t, f, w, aggregate=value)


def test_labels_of_a_greedy_start_that_are_no_array():
    x = np.zeros((2, 1))
    for y in ([[1], [1, 2]], None, 3, "ab", [0], np.ma.array([0, 1])):
        with pytest.raises((TypeError, ValueError), match="^y: expected .*, got .*; "):
            hinge.tree_greedy_init(x, y, 1, 1)


def test_sizes_of_a_greedy_start():
    x, y = np.array([[0.0], [1.0]]), np.array([0, 1])
    for n_trees, depth in ((1, 25), (1, 30), (2**15, 10)):
        with pytest.raises(
            ValueError, match=r"^n_trees: expected n_trees \* 2\*\*depth of at most 2\*\*24, got .*; choose"
        ):
            hinge.tree_greedy_init(x, y, n_trees, depth)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("dtype", "big"), [(np.float32, 3e38), (np.float64, 1.7e308)])
def test_starts_from_numbers_near_the_largest(dtype, big):
    x, y = np.array([[-big], [-big / 2], [big], [big]], dtype), np.array([0, 0, 1, 1])
    for thresholds in (
        hinge.tree_median_thresholds(x, np.zeros((1, 1), np.int32)),
        hinge.fern_median_thresholds(x, np.zeros((1, 1), np.int32)),
    ):
        assert -big / 2 <= thresholds < big
    with pytest.raises(
        ValueError, match="^x: expected samples and targets whose leaf weights .*, got others; scale"
    ):
        hinge.tree_greedy_init(x, y * 1e99, 1, 1, task="regression")
