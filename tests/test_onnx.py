"""Forests as ONNX models, applied by onnxruntime and by the reference evaluator of onnx."""
# ruff: noqa: E402 (modules that need onnx are imported where it is known to be there)

import numpy as np
import pytest

import hforest
from hforest import project, tree

onnx = pytest.importorskip("onnx", minversion="1.16", reason="needs onnx 1.16 or newer")

from onnx.reference import ReferenceEvaluator

import hforest.onnx as exchange

N, N_FEATURES = 2000, 9


def samples(dtype, seed=0):
    """Returns samples and labels of four classes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, N_FEATURES)).astype(dtype)
    return x, np.digitize(x[:, 0] + x[:, 1] * x[:, 2], [-1, 0, 1]).astype(np.int32)


def run(model, x):
    """Returns all outputs of onnxruntime on one thread."""
    runtime = pytest.importorskip("onnxruntime", minversion="1.20", reason="needs onnxruntime 1.20 or newer")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


def of_leaves(forest):
    """Returns the forest with one output per tree, the number of the leaf in that tree."""
    sizes = np.diff(forest.tree_start)
    of = np.repeat(np.arange(len(sizes)), sizes)
    leaf = np.flatnonzero(forest.feature == -1)
    value = np.zeros((len(leaf), len(sizes)), forest.value.dtype)
    value[(forest.tree_start[of[leaf]] + of[leaf]) // 2 + forest.left[leaf], of[leaf]] = (
        leaf - forest.tree_start[of[leaf]]
    )
    return forest._replace(value=value)


def leaves(forest, x, **settings):
    """Returns the leaves (n_samples, n_trees) that samples reach in the ONNX model."""
    means = run(exchange.to_onnx(of_leaves(forest), **settings), x)[0]
    return np.rint(means * (len(forest.tree_start) - 1)).astype(int)


def flipped(a, b):
    """Returns the share of the samples that differ in at least one tree."""
    return float((a != b).any(axis=1).mean())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_leaves_and_values_of_axis_aligned_forests(dtype):
    x, y = samples(dtype)
    forest = hforest.grow(x, y, 12, rng=0)
    np.testing.assert_array_equal(leaves(forest, x), tree.apply(forest, x))
    values = run(exchange.to_onnx(forest), x)[0]
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, tree.predict(forest, x), atol=1e-6)


def test_labels_and_shares():
    x, y = samples(np.float32)
    forest = hforest.grow(x, y, 12, rng=0)
    shares = tree.predict(forest, x)
    names = np.array(["a", "bb", "c", "dd"], object)
    for classes in (names, [7, -1, 3, 9]):
        label, found = run(exchange.to_onnx(forest, classes=classes), x)
        np.testing.assert_allclose(found, shares, atol=1e-6)
        # Leaf values are added in float32 there: labels of nearly equal shares may differ.
        top = np.sort(shares, axis=1)
        clear = top[:, -1] - top[:, -2] > 1e-5
        assert clear.mean() > 0.8
        np.testing.assert_array_equal(
            np.asarray(label)[clear], np.asarray(classes)[shares.argmax(axis=1)][clear]
        )
    assert label.dtype == np.int64


def test_float64_in_float32():
    """Thresholds are rounded down: float32 samples keep their leaves, and others rarely change them."""
    rng = np.random.default_rng(1)
    x, y = samples(np.float64)
    forest = hforest.grow(x, y, 12, rng=0)
    single = x.astype(np.float32)
    found = leaves(forest, single, dtype=np.float32)
    np.testing.assert_array_equal(found, tree.apply(forest, single))
    # Thresholds rounded to nearest would move samples that equal them.
    split = forest.feature == 0
    at = np.zeros((2 * int(split.sum()), N_FEATURES), np.float32)
    at[:, 0] = np.concatenate([forest.threshold[split].astype(np.float32)] * 2)
    at[len(at) // 2 :, 0] = np.nextafter(at[len(at) // 2 :, 0], np.float32(-np.inf))
    np.testing.assert_array_equal(leaves(forest, at, dtype=np.float32), tree.apply(forest, at))
    share = flipped(found, tree.apply(forest, x))
    print(f"share of float64 samples whose leaf flips in float32: {share:.5f}")
    assert share < 0.001
    # Values close to each other show that rounding samples does flip leaves.
    close = 1 + 1e-7 * rng.normal(size=(500, 2))
    fine = hforest.grow(close, (close[:, 0] > 1).astype(np.int32), 4, rng=0)
    rounded = close.astype(np.float32)
    assert flipped(leaves(fine, rounded, dtype=np.float32), tree.apply(fine, close)) > 0.01
    np.testing.assert_array_equal(leaves(fine, rounded, dtype=np.float32), tree.apply(fine, rounded))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_oblique_forests(dtype):
    x, y = samples(dtype)
    forest = hforest.grow(x, y, 12, projections=project.sparse_distribution(N_FEATURES), rng=0)
    assert (forest.feature == -2).any()
    model = exchange.to_onnx(forest)
    share = flipped(leaves(forest, x), tree.apply(forest, x))
    print(f"share of samples of an oblique {np.dtype(dtype)} forest whose leaf flips: {share:.5f}")
    assert share < 0.002
    np.testing.assert_allclose(run(model, x)[0], tree.predict(forest, x), atol=2e-6 if share == 0 else 0.1)
    # One column for each distinct projection.
    (weight,) = (onnx.numpy_helper.to_array(a) for a in model.graph.initializer if a.name == "projections")
    assert len(np.unique(weight, axis=1).T) == weight.shape[1] <= (forest.feature != -1).sum()


def test_oblique_forests_with_missing_values():
    """A projection is missing if one of its features is, and no other is."""
    x, y = samples(np.float32)
    forest = hforest.grow(x, y, 4, projections=project.sparse_distribution(N_FEATURES), rng=0)
    rng = np.random.default_rng(2)
    default_left = np.where(forest.feature == -1, 0, rng.integers(0, 2, len(forest.feature))).astype(np.uint8)
    forest = forest._replace(default_left=default_left)
    x[rng.random(x.shape) < 0.1] = np.nan
    assert flipped(leaves(forest, x), tree.apply(forest, x)) < 0.002


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_missing_values(dtype):
    x, y = samples(dtype)
    forest = hforest.grow(x, y, 6, rng=0)
    rng = np.random.default_rng(2)
    default_left = np.where(forest.feature == -1, 0, rng.integers(0, 2, len(forest.feature))).astype(np.uint8)
    forest = forest._replace(default_left=default_left)
    x[rng.random(x.shape) < 0.2] = np.nan
    np.testing.assert_array_equal(leaves(forest, x), tree.apply(forest, x))


CATEGORIES = np.array([[c, t] for c in (0, 1, 2, 3, 40, 63, 64, 1000, -1, np.nan) for t in (0, 1, np.nan)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("default_left", [0, 1, 2, 3])
def test_categories(default_left, n_outputs, dtype):
    """Two trees: a split by the categories 0, 2 and 63 above one by a number, and a single leaf."""
    bits = np.array([0b101, 1 << 31], np.uint32)
    forest = tree.Forest(
        n_features=np.array(2),
        tree_start=np.array([0, 5, 6]),
        feature=np.array([0, -1, 1, -1, -1, -1], np.int32),
        threshold=np.array([0, 0, 0.5, 0, 0, 0], dtype),
        left=np.array([1, 0, 3, 1, 2, 0], np.int32),
        value=np.array([[1, 10], [2, 20], [3, 30], [5, 50]], dtype)[:, :n_outputs].copy(),
        gain=np.zeros(6, dtype),
        indptr=np.zeros(0, np.int64),
        indices=np.zeros(0, np.int32),
        data=np.zeros(0, dtype),
        default_left=np.array([default_left, 0, 1, 0, 0, 0], np.uint8),
        category_indptr=np.array([0, 2, 2, 2, 2, 2, 2]),
        category_bits=bits,
    )
    x = CATEGORIES.astype(dtype)
    for sets in (bits, np.zeros_like(bits)):
        forest = forest._replace(category_bits=sets)
        expected = tree.predict(forest, x)
        assert len(np.unique(expected)) >= 2
        np.testing.assert_array_equal(run(exchange.to_onnx(forest), x)[0], expected)


def test_the_reference_evaluator_agrees():
    """The operators follow the standard, not one runtime."""
    x, y = samples(np.float32)
    forest = hforest.grow(x, y, 3, max_depth=4, rng=0)
    label, shares = ReferenceEvaluator(exchange.to_onnx(forest, classes=[4, 5, 6, 7])).run(
        None, {"x": x[:50]}
    )
    np.testing.assert_allclose(shares, tree.predict(forest, x[:50]), atol=1e-6)
    np.testing.assert_array_equal(label, 4 + shares.argmax(axis=1))


def test_what_is_refused():
    x, y = samples(np.float32)
    forest = hforest.grow(x, y, 2, max_depth=2, rng=0)
    with pytest.raises(TypeError, match="model: expected a Forest, a tabular.Model or a fitted estimator"):
        exchange.to_onnx("forest")
    with pytest.raises(TypeError, match="classes: expected integers or text, got float64"):
        exchange.to_onnx(forest, classes=[0.5, 1, 2, 3])
    with pytest.raises(
        ValueError, match=r"classes: expected shape \(n_outputs,\) = \(4,\), got \(2,\); pass one label"
    ):
        exchange.to_onnx(forest, classes=["a", "b"])
    with pytest.raises(
        ValueError, match="dtype: expected float32, in which this forest compares, got float64"
    ):
        exchange.to_onnx(forest, dtype=np.float64)
    with pytest.raises(TypeError, match="dtype: expected float32 or float64, got int32"):
        exchange.to_onnx(forest, dtype=np.int32)
