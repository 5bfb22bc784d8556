"""Hinge and neural trees that start from grown forests: routes, weights, inner products, soft decisions."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from conftest import error as wrong
from growers import assert_all_same, grow, on_threads

import hforest
from hforest import co2, demo, hinge, layers, neural, project, tree
from hforest.hinge import grown as grown_start
from hforest.hinge import ridge
from hforest.hinge.reference import grown as hinge_reference
from hforest.neural.reference import grown as neural_reference

DEPTHS = {"features": 3, "deep": None, "stumps": 1, "one leaf": 0}
KINDS = (*DEPTHS, "regression")


def samples(n=60, n_features=4, dtype=np.float64, seed=0):
    """Returns numbers with many ties, and labels that depend on them."""
    rng = np.random.default_rng(seed)
    x = (rng.integers(-4, 5, (n, n_features)) / 2).astype(dtype)
    y = (x[:, 0] + x[:, 1] * x[:, 2] > 0.3).astype(np.int32) + (x[:, 3] > 1)
    return x, y


def grown(kind, x, y):
    if kind == "regression":
        return hforest.grow(x, x[:, :2] * x[:, 1:3], 3, task="regression", max_depth=4, rng=0)
    return hforest.grow(x, y, 3, max_depth=DEPTHS[kind], n_classes=3, rng=0)


def on_thresholds(forest, x):
    """Returns the samples, and others in which columns have the values of thresholds."""
    split = forest.feature >= 0
    more = np.repeat(x, 2, axis=0)
    for i, (f, t) in enumerate(zip(forest.feature[split], forest.threshold[split], strict=True)):
        more[i % len(more), f] = t
    return np.concatenate([x, more])


def reference_start(forest, depth):
    n_trees = len(forest.tree_start) - 1
    thresholds = np.empty((n_trees, 2**depth - 1), forest.threshold.dtype)
    features = np.empty(thresholds.shape, np.int32)
    reached = np.empty((n_trees, 2**depth), np.int64)
    hinge_reference.from_forest(forest, depth, thresholds, features, reached)
    return thresholds, features, reached


def in_places(reached, leaf):
    """Returns the entry of each sample's leaf in each tree's row of `reached`."""
    return np.take_along_axis(reached.T, leaf, 0)


def nodes_at(forest, x, depth):
    """Returns the node after `depth` splits on the path of each sample in each tree, or its leaf."""
    paths = [[tree.path(forest, row, m) for m in range(len(forest.tree_start) - 1)] for row in x]
    return np.array([[path[min(depth, len(path) - 1)] for path in row] for row in paths])


# --------------------------------------------------------------------------------------------- routes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [None, 1, 2, 5])
def test_routes_are_those_of_the_forest(backend, dtype, kind, depth):
    x, y = samples(n=12 if backend.name != "cpu" else 60, dtype=dtype)
    forest = grown(kind, x, y)
    if depth is None and kind == "deep":
        depth = 6
    parameters = hinge.from_forest(x, None, forest, depth).parameters
    found = parameters.features.shape[1].bit_length()
    assert depth in (None, found)
    thresholds, features, reached = reference_start(forest, found)
    np.testing.assert_array_equal(parameters.thresholds, thresholds)
    np.testing.assert_array_equal(parameters.features, features)
    assert parameters.thresholds.dtype == dtype
    assert parameters.features.dtype == np.int32
    new = on_thresholds(forest, x)
    route = hinge.traverse(new, parameters.thresholds, parameters.features)
    if kind != "one leaf":
        assert (route.margin == 0).any(), "no sample lies on a threshold"
    np.testing.assert_array_equal(in_places(reached, route.leaf), nodes_at(forest, new, found))


def test_a_wrong_side_of_ties_is_seen(dtype):
    x, y = samples(dtype=dtype)
    forest = grown("features", x, y)
    parameters = hinge.from_forest(x, y, forest).parameters
    lower = np.nextafter(parameters.thresholds, dtype(-np.inf))  # x = t now goes right
    reached = reference_start(forest, 3)[2]
    new = on_thresholds(forest, x)
    leaf = hinge.traverse(new, lower, parameters.features).leaf
    assert (in_places(reached, leaf) != nodes_at(forest, new, 3)).any()


def test_children_in_the_wrong_order_are_seen(monkeypatch):
    x, y = samples()
    forest = grown("features", x, y)
    found = grown_start.places(forest, 3)
    swapped = found._replace(vertex=found.vertex[:, [0, 2, 1, 5, 6, 3, 4]])
    monkeypatch.setattr(grown_start, "places", lambda *_: swapped)
    parameters = hinge.from_forest(x, y, forest).parameters
    assert (parameters.thresholds != reference_start(forest, 3)[0]).any()
    leaf = hinge.traverse(x, *parameters[:2]).leaf
    assert (in_places(found.reached, leaf) != nodes_at(forest, x, 3)).any()


def test_copies_below_leaves_change_neither_margins_nor_vertices():
    x, y = samples(200)
    forest = hforest.grow(x, y, 5, max_depth=3, min_samples_leaf=20, rng=0)
    low = hinge.from_forest(x, y, forest).parameters
    high = hinge.from_forest(x, y, forest, 7).parameters
    assert low.features.shape[1] == 7
    new = on_thresholds(forest, x)
    short, long = (hinge.traverse(new, p.thresholds, p.features) for p in (low, high))
    np.testing.assert_array_equal(short.margin, long.margin)
    np.testing.assert_array_equal(short.vertex, long.vertex)
    # All leaves that represent one grown leaf have its weights, including leaves that no sample reaches.
    reached = reference_start(forest, 7)[2]
    for m, nodes in enumerate(reached):
        for node in np.unique(nodes):
            assert len(np.unique(high.weights[m][nodes == node], axis=0)) == 1
    a, b = (hinge.forward(new, *p, aggregate="sum") for p in (low, high))
    np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.libraries
def test_sklearn_forests_keep_their_routes():
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    model = ensemble.RandomForestClassifier(10, max_depth=4, random_state=0).fit(x, y)
    forest = tree.from_sklearn(model)
    parameters = hinge.from_forest(x, y, forest).parameters
    route = hinge.traverse(x, parameters.thresholds, parameters.features)
    reached = reference_start(forest, 4)[2]
    np.testing.assert_array_equal(in_places(reached, route.leaf), tree.apply(forest, x))


# -------------------------------------------------------------------------------------------- weights


def routes(kind, x, n_trees=3, depth=2):
    t, f, _ = hinge.init(n_trees, depth, x.shape[1], kind=kind, dtype=x.dtype, rng=0)
    return hinge.traverse(x, np.asarray(t / 3, x.dtype), f, kind=kind)


@pytest.mark.parametrize("kind", ["tree", "fern"])
@pytest.mark.parametrize("l2", [1e-3, 0.3, 10])
def test_weights_are_those_of_the_full_matrix(backend, dtype, kind, l2):
    x, y = samples(30, dtype=dtype)
    leaf, margin, _ = routes(kind, x)
    targets = np.random.default_rng(1).normal(size=(30, 2)) + 5
    for task, given, wanted in (
        ("classification", y, np.eye(3)[y]),
        ("regression", targets, targets),
        ("regression", targets[:, 0], targets[:, :1]),
    ):
        fit = hinge.fit_weights(leaf, margin, given, 4, l2=l2, tolerance=1e-12, task=task)
        weights, intercept = np.empty((3, 4, wanted.shape[1])), np.empty(wanted.shape[1])
        hinge_reference.fit_weights(leaf, margin, wanted, 4, l2, weights, intercept)
        assert fit.weights.dtype == fit.intercept.dtype == dtype
        close = {"rtol": 1e-5, "atol": 1e-6} if dtype == np.float32 else {"rtol": 1e-7, "atol": 1e-9}
        np.testing.assert_allclose(fit.weights.reshape(weights.shape), weights, **close)
        np.testing.assert_allclose(np.atleast_1d(fit.intercept), intercept, **close)
        assert fit.weights.shape == (3, 4, *(given.shape[1:] if task == "regression" else (3,)))


def test_known_weights():
    # One leaf: w = (sum of products of what is less its mean) / (sum of squares + a), a = l2 mean(r**2).
    r = np.array([[1.0], [2.0], [-3.0]])
    fit = hinge.fit_weights(np.zeros((3, 1), np.int32), r, [1.0, 3.0, 5.0], 1, l2=0.5, task="regression")
    w = 4 / (2 + 0.5 * 14 / 3)
    np.testing.assert_allclose(fit.weights, [[w]], rtol=1e-12)
    np.testing.assert_allclose(fit.intercept, 3 - 2 * w, rtol=1e-12)


def test_a_lone_sample_is_fitted_by_its_share():
    # Rows without a common leaf, so many that the intercept is their mean: w |r| = y / (1 + l2).
    n = 4000
    leaf = np.stack([np.arange(n), np.arange(n)[::-1]], axis=1).astype(np.int32)
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    fit = hinge.fit_weights(leaf, np.full((n, 2), 3.0), y, n, l2=0.25, tolerance=1e-9, task="regression")
    found = hinge.leaf_outputs(leaf, np.full((n, 2), 3.0), fit.weights, aggregate="sum")
    # Trees 0 and 1 share every leaf between samples n and N - 1 - n, of opposite targets here.
    np.testing.assert_allclose(found, y / 1.25, atol=1e-3)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_outputs_do_not_depend_on_the_unit_of_x(scale):
    x, y = samples(80)
    leaf, margin, _ = routes("tree", x, 5, 3)
    found = [
        hinge.leaf_outputs(leaf, r, hinge.fit_weights(leaf, r, y, 8).weights, aggregate="sum")
        for r in (margin, margin * scale)
    ]
    np.testing.assert_allclose(*found, atol=1e-6)


def test_the_default_tolerance_is_near_enough():
    digits = demo.load_digits()
    x, y = digits.x_train.astype(np.float64), digits.y_train
    start = hinge.from_forest(x, y, hforest.grow(x, y, 20, max_depth=5, rng=0))
    leaf, margin, _ = hinge.traverse(x, *start.parameters[:2])
    loose, tight = (hinge.fit_weights(leaf, margin, y, 32, tolerance=t) for t in (1e-2, 1e-10))
    a, b = (hinge.leaf_outputs(leaf, margin, fit.weights, aggregate="sum") for fit in (loose, tight))
    assert np.sqrt(((a - b) ** 2).mean()) < 0.02
    assert np.abs(a - b).max() > 1e-6, "the tolerance is not obeyed"


def test_weights_have_the_same_bits_at_every_number_of_threads(threads):
    x, y = samples(500)
    leaf, margin, _ = routes("tree", x, 40, 5)
    assert_all_same(on_threads(threads, lambda: hinge.fit_weights(leaf, margin, y, 32).weights))


def test_no_margin_and_one_class():
    leaf = np.zeros((4, 2), np.int32)
    fit = hinge.fit_weights(leaf, np.zeros((4, 2)), [0, 1, 1, 1], 2)
    np.testing.assert_array_equal(fit.weights, 0)
    np.testing.assert_allclose(fit.intercept, [0.25, 0.75])
    fit = hinge.fit_weights(leaf, np.ones((4, 2)), [0, 0, 0, 0], 2)
    np.testing.assert_array_equal(fit.intercept, [1])
    np.testing.assert_array_equal(fit.weights, 0)


def test_constant_targets_take_no_step(monkeypatch):
    products = []
    outputs = ridge.Design.outputs
    monkeypatch.setattr(ridge.Design, "outputs", lambda *of: products.append(of) or outputs(*of))
    x, _ = samples(20)
    leaf, margin, _ = routes("tree", x)
    fit = hinge.fit_weights(leaf, margin, np.full(20, 3.0), 4, task="regression")
    np.testing.assert_array_equal(fit.weights, 0)
    assert fit.intercept == 3
    assert len(products) == 1  # for the intercept


@pytest.mark.parametrize("y", ["labels", None])
def test_weights_of_a_start_are_those_of_its_routes(backend, dtype, y):
    x, labels = samples(40, dtype=dtype)
    forest = grown("features", x, labels)
    parameters, intercept, _ = hinge.from_forest(x, labels if y else None, forest)
    leaf, margin, _ = hinge.traverse(x, *parameters[:2])
    if y:
        fit = hinge.fit_weights(leaf, margin, labels, 8)
    else:
        fit = hinge.fit_weights(leaf, margin, tree.predict(forest, x), 8, task="regression")
    np.testing.assert_array_equal(np.take_along_axis(parameters.weights[0], leaf[:, :1], 0),
                                  np.take_along_axis(fit.weights[0], leaf[:, :1], 0))  # fmt: skip
    np.testing.assert_array_equal(intercept, fit.intercept)


def test_a_start_is_near_its_forest():
    digits = demo.load_digits()
    mean, deviation = digits.x_train.mean(0), digits.x_train.std(0) + 0.1
    x, x_test = (((a - mean) / deviation).astype(np.float32) for a in (digits.x_train, digits.x_test))
    forest = hforest.grow(x, digits.y_train, 50, max_depth=6, rng=0)
    wanted, errors = tree.predict(forest, x_test), []
    for y in (None, digits.y_train):
        parameters, intercept, _ = hinge.from_forest(x, y, forest)
        p = hinge.forward(x_test, *parameters, aggregate="sum") + intercept
        errors.append((p.argmax(axis=1) != digits.y_test).mean())
        if y is None:
            assert ((p - wanted) ** 2).mean() < 0.1 * wanted.var(axis=0).mean()
    assert errors[1] <= errors[0] < wrong(forest, x_test, digits.y_test) + 0.02


# -------------------------------------------------------------------------------------------- oblique


def oblique(kind, x, y):
    settings = {"max_depth": 3, "n_classes": 3, "rng": 0}
    if kind == "co2":
        return co2.grow(x, y, 4, **settings)
    projections = {
        "sparse": project.sparse_distribution(4, 2.0), "patch": project.patch_distribution((2, 2), patch_max=2),
        "columns": None,
    }  # fmt: skip
    return hforest.grow(x, y, 4, projections=projections[kind], **settings)


@pytest.mark.parametrize("kind", ["sparse", "patch", "columns"])
def test_routes_on_inner_products_are_those_of_the_forest(backend, dtype, kind):
    # Halves and small whole sums: x @ kernel has no rounding.
    x, y = samples(40 if backend.name == "cpu" else 12, dtype=dtype)
    x = x * dtype(256)
    forest = oblique(kind, x, y)
    parameters, _, kernel = hinge.from_forest(x, y, forest, kernel=True)
    assert kernel.dtype == dtype
    assert kernel.flags.c_contiguous
    assert kernel.shape == (4, len(np.unique(kernel, axis=1).T)), "kernels are different"
    z = np.concatenate([x, x[::-1] + dtype(64)]) @ kernel
    spread = (x @ kernel).std(axis=0)
    assert (spread[spread > 0] > 0.7).all()
    assert (spread < 1.5).all()
    route = hinge.traverse(z, *parameters[:2])
    depth = parameters.features.shape[1].bit_length()
    reached = reference_start(forest, depth)[2]
    wanted = nodes_at(forest, np.concatenate([x, x[::-1] + dtype(64)]), depth)
    np.testing.assert_array_equal(in_places(reached, route.leaf), wanted)


def test_dense_forests_start_near(dtype):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5)).astype(dtype)
    y = (x @ rng.normal(size=5) > 0.3).astype(int)
    forest = co2.grow(x, y, 5, max_depth=3, rng=0)
    assert (forest.feature == -2).any()
    parameters, intercept, kernel = hinge.from_forest(x, y, forest, kernel=True)
    route = hinge.traverse(x @ kernel, *parameters[:2])
    reached = reference_start(forest, 3)[2]
    same = in_places(reached, route.leaf) == tree.apply(forest, x)
    assert same.mean() > 0.999  # but for rounding
    p = hinge.forward(x @ kernel, *parameters, aggregate="sum") + intercept
    assert (p.argmax(axis=1) != y).mean() < 0.08


def test_training_goes_on_through_the_kernel():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 4))
    y = (x[:, 0] + x[:, 1] > x[:, 2]).astype(int)
    forest = grow(x, y, 3, kind="sparse", max_depth=3, rng=0)
    parameters, intercept, kernel = hinge.from_forest(x, y, forest, kernel=True)

    def loss(k):
        return layers.softmax_loss(hinge.forward(x @ k, *parameters, aggregate="sum") + intercept, y)[0]

    scores, route = hinge.forward_with_route(x @ kernel, *parameters, aggregate="sum")
    _, grad = layers.softmax_loss(scores + intercept, y)
    found = x.T @ hinge.backward(grad, route, x @ kernel, *parameters, aggregate="sum").x
    for at in itertools.product(range(4), range(0, kernel.shape[1], 3)):
        step = np.zeros_like(kernel)
        step[at] = 1e-6
        wanted = (loss(kernel + step) - loss(kernel - step)) / 2e-6
        assert abs(found[at] - wanted) < 1e-6


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_columns_of_any_size(factor):
    x, y = samples(60)
    for a in (x * factor, np.float32(x * factor)):
        forest = hforest.grow(a, y, 5, max_depth=3, rng=0)
        parameters, intercept, kernel = hinge.from_forest(a, y, forest, kernel=True)
        p = hinge.forward(a @ kernel, *parameters, aggregate="sum") + intercept
        assert np.isfinite(p).all()
        assert (p.argmax(axis=1) == y).mean() > 0.8


def test_constant_columns_have_no_unit():
    x, y = samples(60)
    forest = oblique("columns", x, y)
    x[:, 0] = 0.1  # whose mean is not exactly 0.1
    parameters, _, kernel = hinge.from_forest(x, y, forest, kernel=True)
    assert abs(kernel).max() < 4
    model = neural.from_forest(x, forest, 5, rng=0)
    assert abs(model.weights[:, :-1]).max() < 1e3
    assert np.isfinite(parameters.weights).all()


def test_numbers_at_the_end_of_the_range():
    x, y = samples(60)
    forest = oblique("columns", x, y)
    leaf, margin, _ = routes("tree", x)
    plain, large = (hinge.fit_weights(leaf, r, y, 4) for r in (margin, margin * 2.0**1000))
    np.testing.assert_array_equal(plain.weights, large.weights * 2.0**1000)
    with pytest.raises(ValueError, match=r"^margin: expected margins and targets whose leaf weights"):
        hinge.fit_weights(leaf, margin * 1e-300, y * 1e90, 4, task="regression")
    for kernel in (False, True):
        start = hinge.from_forest(x * 1e300, y, forest, kernel=kernel)
        assert np.isfinite(start.parameters.weights).all()
    neural.from_forest(x * 1e300, forest, rng=0)


# --------------------------------------------------------------------------------------------- errors


X, LABELS = samples()
FOREST = grown("features", X, LABELS)
HIGH = FOREST._replace(threshold=FOREST.threshold + np.inf)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: hinge.from_forest(X, LABELS, oblique("sparse", X, LABELS)), ValueError, "forest: expected splits by single columns"),
        (lambda: hinge.from_forest(X.astype("f4"), LABELS, FOREST), TypeError, "x: expected dtype float64"),
        (lambda: hinge.from_forest(X[:, :3], LABELS, FOREST), ValueError, "x: expected shape"),
        (lambda: hinge.from_forest(X[:0], LABELS[:0], FOREST), ValueError, "n_samples: expected at least 1"),
        (lambda: hinge.from_forest(X, LABELS + 1, FOREST), IndexError, "y: expected 0 <= label < n_classes = 3"),
        (lambda: hinge.from_forest(X, LABELS, FOREST, 23), ValueError, "depth: expected at most 30, with"),
        (lambda: hinge.from_forest(X, LABELS, FOREST, 0), ValueError, "depth: expected 1 to 30"),
        (lambda: hinge.from_forest(X, LABELS, FOREST, l2=0), ValueError, "l2: expected a finite number > 0"),
        (lambda: hinge.from_forest(X, LABELS, FOREST, tolerance=2), ValueError, "tolerance: expected"),
        (lambda: hinge.from_forest(X, LABELS, FOREST, task="rank"), ValueError, "task: expected one of"),
        (lambda: hinge.from_forest(X, LABELS, HIGH), ValueError, "forest.threshold: expected finite numbers"),
        (lambda: hinge.from_forest(X, LABELS, None), TypeError, "forest: expected a hforest.tree.Forest"),
        (lambda: hinge.from_forest(X, LABELS, FOREST, kernel=1), TypeError, "kernel: expected"),
        (lambda: neural.from_forest(X, FOREST, 21), ValueError, "depth: expected 1 to 20"),
        (lambda: neural.from_forest(X, FOREST, scale=0), ValueError, "scale: expected a finite number > 0"),
        (lambda: neural.from_forest(X[:, 1:], FOREST), ValueError, "x: expected shape"),
        (lambda: neural.from_forest(X[:0], FOREST), ValueError, "x: expected 1 to"),
        (lambda: hinge.fit_weights(*routes("tree", X)[:2], LABELS, 3), IndexError, "leaf: expected 0 <= index"),
        (lambda: hinge.fit_weights(*routes("tree", X)[:2], LABELS[1:], 4), ValueError, "y: expected shape"),
    ],
)  # fmt: skip
def test_messages(call, error, text):
    with pytest.raises(error, match=f"^{text}.*got .*; ."):
        call()


def test_a_deep_forest_asks_for_a_depth():
    # A chain: node 2 i splits again, its left child is a leaf.
    n = 40
    node = np.arange(2 * n + 1)
    splits = (node % 2 == 0) & (node < 2 * n)
    forest = tree.check(tree.Forest(
        n_features=np.array(1), tree_start=np.array([0, 2 * n + 1]),
        feature=np.where(splits, 0, -1).astype(np.int32), threshold=np.where(splits, node / 2, 0.0),
        left=np.where(splits, node + 1, node // 2).astype(np.int32), value=np.arange(n + 1.0)[:, None],
        gain=np.zeros(2 * n + 1), indptr=np.zeros(0, int), indices=np.zeros(0, np.int32), data=np.zeros(0),
    ))  # fmt: skip
    x = np.arange(n + 1.0)[:, None]
    np.testing.assert_array_equal(tree.predict(forest, x), x)
    with pytest.raises(ValueError, match=r"^depth: expected .* of this forest; pass a smaller depth"):
        hinge.from_forest(x, None, forest)
    parameters = hinge.from_forest(x, None, forest, 4).parameters
    assert parameters.weights.shape == (1, 16, 1)


# --------------------------------------------------------------------------------------------- neural


@pytest.mark.parametrize("kind", [*KINDS, "sparse", "co2"])
@pytest.mark.parametrize("depth", [None, 2])
def test_soft_trees_are_those_of_the_reference(backend, dtype, kind, depth):
    x, y = samples(25 if backend.name == "cpu" else 10, dtype=dtype)
    forest = oblique(kind, x, y) if kind in ("sparse", "co2") else grown(kind, x, y)
    if kind == "deep":
        depth = depth or 5
    model = neural.from_forest(x, forest, depth, scale=3.0, rng=0)
    assert model.weights.dtype == dtype
    new = on_thresholds(forest, x)[:20]
    found = neural.forward(neural.decisions(model, new), model.leaves, task="regression")
    wanted = np.empty((len(new), forest.value.shape[1]))
    neural_reference.predict(forest, new, x, 99 if depth is None else depth, 3.0, wanted)
    np.testing.assert_allclose(found, wanted, atol=1e-5 if dtype == np.float32 else 1e-12, rtol=1e-5)
    if kind not in ("regression",):
        np.testing.assert_array_equal(neural.predict(model, new), found)


def test_soft_trees_tend_to_the_grown_ones_within_the_bound():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    forest = hforest.grow(x, y, 1, max_depth=4, rng=0)
    wanted, errors = tree.predict(forest, x), []
    for scale in (3.0, 30.0, 1e4):
        model = neural.from_forest(x, forest, scale=scale, rng=0)
        f = neural.decisions(model, x)[:, 0]
        found = neural.predict(model, x)
        for i, row in enumerate(x):
            v, kept = 0, 1.0
            for node in tree.path(forest, row)[:-1]:
                kept *= 1 / (1 + np.exp(-abs(f[i, v])))
                v = 2 * v + 1 + int(row[forest.feature[node]] > forest.threshold[node])
            assert abs(found[i] - wanted[i]).max() <= 1 - kept + 1e-12
        errors.append(abs(found - wanted).mean())
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-2


def test_decisions_below_leaves_are_random_and_change_nothing():
    x, y = samples(100)
    forest = hforest.grow(x, y, 4, max_depth=2, rng=0)
    a, b = (neural.from_forest(x, forest, 4, rng=seed) for seed in (0, 1))
    assert (a.weights != b.weights).any()
    np.testing.assert_allclose(neural.predict(a, x), neural.predict(b, x), atol=1e-12)
    np.testing.assert_array_equal(a.weights, neural.from_forest(x, forest, 4, rng=0).weights)


def test_trees_read_the_columns_that_they_compare():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 30))
    y = (x[:, 3] * x[:, 17] > 0).astype(int)
    forest = hforest.grow(x, y, 6, max_depth=3, max_features=10, rng=0)
    model = neural.from_forest(x, forest, rng=0)
    assert model.features.shape[1] <= 7
    assert (np.diff(model.features, axis=1) > 0).all()
    starts = itertools.pairwise(forest.tree_start)
    for (first, last), columns in zip(starts, model.features, strict=True):
        used = forest.feature[first:last]
        assert set(used[used >= 0]) <= set(columns)


def test_training_lowers_the_error_of_a_start():
    digits = demo.load_digits()
    x, x_test = (a.astype(np.float32) / 16 for a in (digits.x_train, digits.x_test))
    forest = hforest.grow(x, digits.y_train, 5, max_depth=4, rng=0)
    start = neural.from_forest(x, forest, scale=5, rng=0)
    model = neural.fit(start, x, digits.y_train, epochs=3, lr=0.05, rng=0)
    errs = (neural.predict(model, x_test).argmax(axis=1) != digits.y_test).mean()
    assert errs < 0.75 * wrong(forest, x_test, digits.y_test)


def test_checks_are_skipped_on_request():
    x, y = samples()
    forest = grown("features", x, y)
    with hforest.unchecked():
        a = hinge.from_forest(x, y, forest)
    b = hinge.from_forest(x, y, forest)
    np.testing.assert_array_equal(a.parameters.weights, b.parameters.weights)


# ------------------------------------------------------------------------------------------------ page

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("page", "name", "kind", "pair", "said"),
    [
        ("hinge", "from_forest", "columns", ("full", "grown"), "without a limit of depth {}, start"),
        ("hinge", "from_forest", "columns", ("y", "grown"), "start {} (with"),
        ("hinge", "from_forest", "columns", ("chosen", "grown"), "held-out rows {}),"),
        ("hinge", "from_forest", "columns", ("own", "grown"), "(`y=None`) has {}, weights"),
        ("hinge", "from_forest", "columns", ("per leaf", "grown"), "in each leaf by itself {},"),
        ("hinge", "from_forest", "sparse", ("y", "grown"), "forests of sparse projections {}."),
        ("hinge", "from_forest_trained", None, ("trained", "grown"), "2000 steps of Adam {}."),
        ("neural", "from_forest", "columns", ("soft", "grown"), "the start has {} times the error"),
        ("neural", "from_forest_trained", None, ("soft", "random"), "depth 7 have {} times the error"),
    ],
)
def test_pages_have_the_means_of_the_records(page, name, kind, pair, said):
    """Geometric means over tables of ratios of mean errors."""
    record = json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    rows = [
        row["splits"] for row in record["rows"] if row.get("kind") == kind and pair[0] in row["splits"][0]
    ]
    means = [[np.mean([split[key] for split in splits]) for key in pair] for splits in rows]
    assert len(means) >= 8
    ratio = np.exp(np.mean([np.log(a / b) for a, b in means]))
    text = " ".join((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").split())
    assert said.format(f"{ratio:.2f}") in text, ratio
