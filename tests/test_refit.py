"""Leaf values from other samples: counts of classes, honest shares and means, and trees pruned of empty leaves."""

import numpy as np
import pytest

import hforest
from hforest import classic, co2, growth, manifold, tree

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
    return {
        "classic": classic.grow(x, y, N_TREES, rng=0),
        "float32": classic.grow_extra(x.astype(np.float32), y, N_TREES, rng=0),
        "missing": classic.grow(missing, y, N_TREES, rng=0),
        "categories": classic.grow(x, y, N_TREES, categorical=[3], rng=0),
        "projections": manifold.grow(x, y, N_TREES, projection="sparse", rng=0),
        "hyperplanes": co2.grow(x, y, N_TREES, rng=0),
        "single leaves": classic.grow(x, y, N_TREES, max_depth=0, rng=0),
    }


FORESTS = forests()


def in_leaf(forest, m, node, leaf, counts):
    """Returns the samples of a tree's leaf, each as often as the tree has it."""
    return np.repeat(np.arange(len(leaf)), np.where(leaf[:, m] == node, counts[m], 0))


def held_below(forest, m, node, leaf, counts):
    at = int(forest.tree_start[m]) + node
    if forest.feature[at] == -1:
        return len(in_leaf(forest, m, node, leaf, counts))
    return sum(held_below(forest, m, int(forest.left[at]) + side, leaf, counts) for side in (0, 1))


def reference_shape(forest, m, node, leaf, counts):
    """Returns the tree below a node as nested tuples, without splits that have an empty side."""
    at = int(forest.tree_start[m]) + node
    if forest.feature[at] == -1:
        return tuple(in_leaf(forest, m, node, leaf, counts).tolist())
    children = [int(forest.left[at]) + side for side in (0, 1)]
    full = [held_below(forest, m, child, leaf, counts) > 0 for child in children]
    below = [reference_shape(forest, m, c, leaf, counts) for c, f in zip(children, full, strict=True) if f]
    return below[0] if len(below) == 1 else (float(forest.gain[at]), *below)


def shape(forest, m, node, leaf, counts):
    at = int(forest.tree_start[m]) + node
    if forest.feature[at] == -1:
        return tuple(in_leaf(forest, m, node, leaf, counts).tolist())
    left = int(forest.left[at])
    return (float(forest.gain[at]), *(shape(forest, m, left + side, leaf, counts) for side in (0, 1)))


@pytest.mark.parametrize("kind", FORESTS)
def test_leaf_counts_are_those_of_a_loop(kind):
    forest, (x, y, counts) = FORESTS[kind], problem()
    got = tree.leaf_counts(forest, x, y, counts=counts)
    assert got.dtype == np.int64
    assert got.shape == (len(forest.value), N_CLASSES)
    leaf, want = tree.apply(forest, x), np.zeros_like(got)
    for m in range(N_TREES):
        root = int(forest.tree_start[m])
        for i in range(N):
            want[(root + m) // 2 + forest.left[root + leaf[i, m]], y[i]] += counts[m, i]
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
        want = reference_shape(forest, m, 0, leaf, counts)
        assert shape(honest, m, 0, new_leaf, counts) == want
    held = tree.leaf_counts(honest, x, y, counts=counts)
    assert (held.sum(axis=1) > 0).all()
    np.testing.assert_array_equal(
        honest.value, (held / held.sum(axis=1, keepdims=True)).astype(honest.value.dtype)
    )
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
    votes = [
        [
            total[(forest.tree_start[m] + m) // 2 + forest.left[forest.tree_start[m] + leaf[i, m]]] > 0
            for m in range(N_TREES)
        ]
        for i in range(N)
    ]
    np.testing.assert_allclose(tree.predict(honest, x).sum(axis=1), np.mean(votes, axis=1), atol=1e-6)


def test_a_refit_to_the_bootstrap_is_the_forest_itself():
    x, y, _ = problem()
    counts = growth.bootstrap_counts(N, N_TREES, rng=0)
    forest = classic.grow(x, y, N_TREES, bootstrap=counts, rng=1)
    for empty in ("prune", "abstain"):
        for a, b in zip(tree.refit(forest, x, y, counts=counts, empty=empty), forest, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("n_outputs", [0, 2])
def test_means_of_targets(n_outputs):
    x, _, counts = problem()
    targets = np.random.default_rng(3).normal(size=(N, n_outputs) if n_outputs else N)
    forest = classic.grow(x, targets, N_TREES, task="regression", bootstrap=(counts == 0).astype(int), rng=0)
    honest = tree.refit(forest, x, targets, counts=counts, task="regression")
    leaf = tree.apply(honest, x)
    for m in range(N_TREES):
        root = int(honest.tree_start[m])
        for node in np.flatnonzero(honest.feature[root : honest.tree_start[m + 1]] == -1):
            some = in_leaf(honest, m, node, leaf, counts)
            row = honest.value[(root + m) // 2 + honest.left[root + node]]
            np.testing.assert_allclose(row, np.atleast_1d(targets[some].mean(axis=0)), rtol=1e-12)


def test_another_task_and_other_classes():
    x, y, _ = problem()
    forest = classic.grow(x, x[:, 0], N_TREES, task="regression", max_depth=3, rng=0)
    honest = tree.refit(forest, x, y, n_classes=4)
    assert honest.value.shape == ((len(honest.feature) + N_TREES) // 2, 4)
    np.testing.assert_allclose(honest.value.sum(axis=1), 1)


def test_the_same_bits_at_every_number_of_threads(threads):
    x, _, counts = problem()
    results = []
    for n in (1, 2, 7):
        threads(n)
        results.append(tree.refit(FORESTS["classic"], x, x[:, :2], counts=counts, task="regression"))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert a.tobytes() == b.tobytes()


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


def test_wrong_arguments():
    x, y, counts = problem()
    forest = FORESTS["classic"]
    counts = counts.copy()
    counts[3] = 0
    with pytest.raises(
        ValueError, match="^counts: expected at least one sample in each row, got only zeros in row 3; "
    ):
        tree.refit(forest, x, y, counts=counts)
    with pytest.raises(ValueError, match='^empty: expected "prune" with task="regression", got "abstain"'):
        tree.refit(forest, x, y, task="regression", empty="abstain")
    with pytest.raises(ValueError, match="^empty: expected one of 'prune', 'abstain', got 'drop'"):
        tree.refit(forest, x, y, empty="drop")
    with pytest.raises(ValueError, match="^x: expected 1 to 2.*, got 0; "):
        tree.leaf_counts(forest, x[:0], y[:0])
    with pytest.raises(TypeError, match="^forest: expected a hforest.tree.Forest, got Prepared; "):
        tree.refit(tree.prepare(forest), x, y)
    with pytest.raises(ValueError, match=r"^counts: expected shape \(n_trees, n_samples\) = \(7, 90\)"):
        tree.leaf_counts(forest, x, y, counts=counts[:2])
    with pytest.raises(IndexError, match="^y: expected 0 <= label < n_classes = 2"):
        tree.refit(forest, x, y, n_classes=2)
    with hforest.unchecked():
        assert tree.leaf_counts(forest, x, y, n_classes=3).sum() == N * N_TREES
