"""Leaf values from other samples: counts of classes, honest shares and means, and trees pruned of empty leaves."""

import itertools

import numpy as np
import pytest
from conftest import assert_same_bits
from growers import assert_all_same, grow, on_threads

import hforest
from hforest import co2, growth, tree

N, N_TREES, N_CLASSES = 90, 7, 3


def problem(seed=0, n=N):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    x[:, 3] = rng.integers(0, 6, n)
    y = (x[:, 0] + rng.normal(size=n) > 0).astype(int) + (x[:, 3] > 3)
    counts = growth.bootstrap_counts(n, N_TREES, rng=seed)
    counts[:, rng.random(n) < 0.75] = 0  # most leaves are empty
    return x, y, counts


def forests():
    x, y, _ = problem(5)
    missing = x.copy()
    missing[::7, 1] = np.nan
    categories = hforest.samples(x, categorical=[3])
    return {
        "features": hforest.grow(x, y, N_TREES, rng=0),
        "float32": grow(x.astype(np.float32), y, N_TREES, kind="extra", rng=0),
        "missing": hforest.grow(missing, y, N_TREES, rng=0),
        "categories": hforest.grow(categories, y, N_TREES, rng=0),
        "projections": grow(x, y, N_TREES, kind="sparse", rng=0),
        "hyperplanes": co2.grow(x, y, N_TREES, rng=0),
        "single leaves": hforest.grow(x, y, N_TREES, max_depth=0, rng=0),
    }


FORESTS = forests()


def in_leaf(forest, m, node, leaf, counts):
    """Returns the samples of a tree's leaf, each as often as the tree has it."""
    return np.repeat(np.arange(len(leaf)), np.where(leaf[:, m] == node, counts[m], 0))


def shape(forest, m, node, leaf, counts, prune=False):
    """Returns the tree below a node as nested tuples; with `prune` without splits that have an empty side."""
    at = int(forest.tree_start[m]) + node
    if forest.feature[at] == -1:
        return tuple(in_leaf(forest, m, node, leaf, counts).tolist())
    below = [shape(forest, m, int(forest.left[at]) + side, leaf, counts, prune) for side in (0, 1)]
    full = [part for part in below if part or not prune]
    return (float(forest.gain[at]), *below) if len(full) == 2 else full[0] if full else ()


def value_row(forest, m, node):
    """Returns the row of a leaf's values."""
    root = int(forest.tree_start[m])
    return (root + m) // 2 + forest.left[root + node]


@pytest.mark.parametrize("kind", FORESTS)
def test_leaf_counts_are_those_of_a_loop(kind):
    forest, (x, y, counts) = FORESTS[kind], problem()
    got = tree.leaf_counts(forest, x, y, counts=counts)
    assert got.dtype == np.int64
    assert got.shape == (len(forest.value), N_CLASSES)
    leaf, want = tree.apply(forest, x), np.zeros_like(got)
    for m, i in itertools.product(range(N_TREES), range(N)):
        want[value_row(forest, m, leaf[i, m]), y[i]] += counts[m, i]
    np.testing.assert_array_equal(got, want)
    whole = tree.leaf_counts(forest, x, y, n_classes=5)
    assert whole.shape[1] == 5
    assert whole.sum() == N * N_TREES


@pytest.mark.parametrize("kind", FORESTS)
def test_pruned_trees_lack_the_splits_with_an_empty_side(kind):
    forest, (x, y, counts) = FORESTS[kind], problem()
    if kind == "missing":
        x[::5, 1] = np.nan
    honest = tree.check(tree.refit(forest, x, y, counts=counts))
    leaf, new_leaf = tree.apply(forest, x), tree.apply(honest, x)
    for m in range(N_TREES):
        assert shape(honest, m, 0, new_leaf, counts) == shape(forest, m, 0, leaf, counts, prune=True)
    held = tree.leaf_counts(honest, x, y, counts=counts)
    assert (held.sum(axis=1) > 0).all()
    shares = (held / held.sum(axis=1, keepdims=True)).astype(honest.value.dtype)
    np.testing.assert_array_equal(honest.value, shares)
    if kind != "single leaves":
        assert len(honest.feature) < len(forest.feature)
    np.testing.assert_allclose(tree.predict(honest, x).sum(axis=1), 1, rtol=1e-6)
    tree.to_text(honest)
    assert int(tree.join([honest, forest]).tree_start[-1]) == len(honest.feature) + len(forest.feature)


@pytest.mark.parametrize("kind", FORESTS)
def test_trees_that_abstain(kind):
    forest, (x, y, counts) = FORESTS[kind], problem()
    honest = tree.check(tree.refit(forest, x, y, counts=counts, empty="abstain"))
    for name, a, b in zip(forest._fields, honest, forest, strict=True):
        assert name == "value" or a.ctypes.data == b.ctypes.data  # no copy
    held = tree.leaf_counts(forest, x, y, counts=counts)
    total = held.sum(axis=1)
    assert (honest.value[total == 0] == 0).all()
    np.testing.assert_allclose(honest.value[total > 0].sum(axis=1), 1, rtol=1e-6)
    # The rows of `predict` sum to the share of trees that vote.
    leaf = tree.apply(forest, x)
    votes = [[total[value_row(forest, m, leaf[i, m])] > 0 for m in range(N_TREES)] for i in range(N)]
    np.testing.assert_allclose(tree.predict(honest, x).sum(axis=1), np.mean(votes, axis=1), atol=1e-6)


@pytest.mark.parametrize("weight", [None, 0.0, 0.3])
@pytest.mark.parametrize("empty", ["uniform", "prior"])
def test_empty_leaves_with_a_prior(empty, weight):
    x, y, counts = problem()
    if weight is not None:
        weight = np.maximum(weight, np.arange(N) % 4 / 2)
    forest = FORESTS["features"]
    honest = tree.refit(forest, x, y, counts=counts, sample_weight=weight, empty=empty)
    held = tree.leaf_counts(forest, x, y, counts=counts * (True if weight is None else weight > 0))
    of_class = np.bincount(y, weight)
    want = np.full(3, 1 / 3) if empty == "uniform" else of_class / of_class.sum()
    np.testing.assert_allclose(
        honest.value[held.sum(axis=1) == 0], np.tile(want, (sum(held.sum(axis=1) == 0), 1))
    )
    targets = np.eye(3)[y]
    if empty == "prior":
        as_targets = tree.refit(
            forest, x, targets, counts=counts, sample_weight=weight, empty=empty, task="regression"
        )
        np.testing.assert_allclose(as_targets.value, honest.value, atol=1e-15)
    several = tree.refit(
        forest, x, np.stack([y, y > 1], axis=1), counts=counts, sample_weight=weight, empty=empty
    )
    np.testing.assert_allclose(several.value[:, :3], honest.value, atol=1e-15)
    np.testing.assert_allclose(several.value[:, 3:].sum(axis=1), 1)


@pytest.mark.parametrize("empty", ["prune", "abstain"])
def test_whole_weights_are_samples_repeated(empty):
    x, y, counts = problem()
    weight = np.arange(N) % 4
    repeated = tree.refit(FORESTS["features"], x, y, counts=counts * weight, empty=empty)
    weighted = tree.refit(FORESTS["features"], x, y, counts=counts, sample_weight=weight, empty=empty)
    assert_same_bits(weighted, repeated)
    scaled = tree.refit(FORESTS["features"], x, y, counts=counts, sample_weight=weight * 1e99, empty=empty)
    np.testing.assert_allclose(scaled.value, repeated.value)


def test_a_refit_to_the_bootstrap_is_the_forest_itself():
    x, y, _ = problem()
    counts = growth.bootstrap_counts(N, N_TREES, rng=0)
    forest = hforest.grow(x, y, N_TREES, bootstrap=counts, rng=1)
    for empty in ("prune", "abstain"):
        assert_same_bits(tree.refit(forest, x, y, counts=counts, empty=empty), forest)


@pytest.mark.parametrize("n_outputs", [0, 2])
def test_means_of_targets(n_outputs):
    x, _, counts = problem()
    targets = np.random.default_rng(3).normal(size=(N, n_outputs) if n_outputs else N)
    forest = hforest.grow(x, targets, N_TREES, task="regression", bootstrap=counts == 0, rng=0)
    honest = tree.refit(forest, x, targets, counts=counts, task="regression")
    leaf = tree.apply(honest, x)
    for m in range(N_TREES):
        root = int(honest.tree_start[m])
        for node in np.flatnonzero(honest.feature[root : honest.tree_start[m + 1]] == -1):
            some = in_leaf(honest, m, node, leaf, counts)
            row = honest.value[value_row(honest, m, node)]
            np.testing.assert_allclose(row, np.atleast_1d(targets[some].mean(axis=0)), rtol=1e-12)


def test_another_task_and_other_classes():
    x, y, _ = problem()
    forest = hforest.grow(x, x[:, 0], N_TREES, task="regression", max_depth=3, rng=0)
    honest = tree.refit(forest, x, y, n_classes=4)
    assert honest.value.shape == ((len(honest.feature) + N_TREES) // 2, 4)
    np.testing.assert_allclose(honest.value.sum(axis=1), 1)


def test_the_same_bits_at_every_number_of_threads(threads):
    x, _, counts = problem()
    settings = {"counts": counts, "task": "regression"}
    assert_all_same(on_threads(threads, lambda: tree.refit(FORESTS["features"], x, x[:, :2], **settings)))


def test_leaves_that_share_a_row_hold_samples_together():
    forest = tree.Forest(
        np.array(1), np.array([0, 5]), np.array([0, -1, 0, -1, -1], np.int32), np.array([0.5, 0, 1.5, 0, 0]),
        np.array([1, 0, 3, 1, 0], np.int32), np.zeros((3, 1)), np.zeros(5), np.zeros(0, int), np.zeros(0, np.int32),
        np.zeros(0),
    )  # fmt: skip
    held = tree.leaf_counts(forest, [[0.0], [1.0], [2.0]], [0, 1, 1])
    assert held.tolist() == [[1, 1], [0, 1], [0, 0]]
    honest = tree.check(tree.refit(forest, [[0.0], [2.0]], [0, 1]))
    assert honest.feature.tolist() == [0, -1, -1]
    assert honest.value.tolist() == [[0.5, 0.5], [0.5, 0.5]]


X, LABELS, COUNTS = problem()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda f: tree.refit(f, X, LABELS, counts=COUNTS * (np.arange(7) != 3)[:, None]), ValueError,
            "^counts: expected at least one sample in each row, got only zeros in row 3; "),
        (lambda f: tree.refit(f, X, LABELS, task="regression", empty="abstain"), ValueError,
            '^empty: expected "prune" or "prior" with task="regression", got "abstain"'),
        (lambda f: tree.refit(f, X, LABELS, counts=COUNTS, sample_weight=(COUNTS[2] == 0) * 1.0), ValueError,
            "^counts: expected at least one sample in each row, got only zeros in row 2; "),
        (lambda f: tree.refit(f, X, LABELS, empty="drop"), ValueError,
            "^empty: expected one of 'prune', 'abstain', 'uniform', 'prior', got 'drop'"),
        (lambda f: tree.leaf_counts(f, X[:0], LABELS[:0]), ValueError, "^x: expected 1 to 2.*, got 0; "),
        (lambda f: tree.refit(tree.prepare(f), X, LABELS), TypeError,
            "^forest: expected a hforest.tree.Forest, got Prepared; "),
        (lambda f: tree.leaf_counts(f, X, LABELS, counts=COUNTS[:2]), ValueError,
            r"^counts: expected shape \(n_trees, n_samples\) = \(7, 90\)"),
        (lambda f: tree.refit(f, X, LABELS, n_classes=2), IndexError, "^y: expected 0 <= label < n_classes = 2"),
    ],
)  # fmt: skip
def test_wrong_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call(FORESTS["features"])
    with hforest.unchecked():
        assert tree.leaf_counts(FORESTS["features"], X, LABELS, n_classes=3).sum() == N * N_TREES
