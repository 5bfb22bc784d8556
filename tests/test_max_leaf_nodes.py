"""Growth with max_leaf_nodes: equal on all backends, to a whole tree that is cut back, and to scikit-learn."""

import heapq

import numpy as np
import pytest
from conftest import assert_same_bits, entered
from growers import KINDS, assert_all_same, on_paths, on_threads, overlapping

import hforest
from hforest import co2, scale, tree

pytestmark = pytest.mark.kernels

N = 90


def values(kind, dtype=np.float64):
    """Returns samples of 4 columns of a kind."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, 4)).astype(dtype)
    if kind == "missing":
        x[rng.random(x.shape) < 0.2] = np.nan
    elif kind == "categories":
        x[:, :2] = rng.integers(0, (40, 5), (N, 2))
    elif kind == "coarse":  # with nodes of equal gain
        x = np.round(x)
    return x


def learned(kind):
    """Returns y and the settings of a kind of labels or targets."""
    rng = np.random.default_rng(4)
    if kind in ("labels", "weights", "entropy"):
        settings = {"sample_weight": rng.random(N)} if kind == "weights" else {}
        return rng.integers(0, 3, N), settings | ({"criterion": "entropy"} if kind == "entropy" else {})
    y = rng.normal(size=(N, 3) if kind == "several" else N)
    return y, {"task": "regression"} | ({"sample_weight": rng.integers(0, 4, N)} if kind == "whole" else {})


TARGETS = ["labels", "weights", "entropy", "targets", "several", "whole"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["labels", "several"])
def test_bits_do_not_depend_on_paths_and_threads(kind, dtype, simd, threads):
    (y, settings), x = learned(kind), values("missing", dtype)

    def grown():
        return hforest.grow(x, y, 12, max_leaf_nodes=7, rng=0, **settings)

    assert_all_same(on_paths(simd, grown))
    assert_all_same(on_threads(threads, grown))


def cut_back(forest, m, most):
    """Returns the features of tree m after a search for its first splits, node by node."""
    start = int(forest.tree_start[m])
    feature, left, gain = (a[start:] for a in (forest.feature, forest.left, forest.gain))
    kept, pending, made = set(), [(-gain[0], 0, 0)], 1
    while pending and len(kept) < most - 1:
        v = heapq.heappop(pending)[2]
        if feature[v] == -1:
            continue
        kept.add(v)
        for child in (left[v], left[v] + 1):
            heapq.heappush(pending, (-gain[child], made, child))
            made += 1
    nodes = [0]
    for v in nodes:
        nodes += [left[v], left[v] + 1] if v in kept else []
    return np.array([feature[v] if v in kept else -1 for v in nodes], np.int32)


@pytest.mark.parametrize("most", [2, 7, 30])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["numbers", "missing", "categories", "coarse", "sparse", "extra"])
def test_backends_grow_the_same_trees(kind, target, most, dtype):
    x, (y, settings) = values(kind, dtype), learned(target)
    settings |= KINDS[kind](4) if kind in KINDS else {}
    settings |= {"max_leaf_nodes": most, "rng": 1}
    given = hforest.samples(x, categorical=[0, 1] if kind == "categories" else None)
    forest, leaves = hforest.growth.grow_with_leaves(given, y, 2, **settings)
    np.testing.assert_array_equal(leaves, tree.apply(forest, x))
    assert max(np.diff(forest.tree_start)) <= 2 * most - 1
    tree.check(forest)
    with entered("reference"):
        assert_same_bits(hforest.grow(given, y, 2, **settings), forest)
    with entered("host"):
        given = hforest.samples(x, categorical=[0, 1] if kind == "categories" else None)
        assert_same_bits(hforest.grow(given, y, 2, **settings), forest)


@pytest.mark.parametrize("max_gathered", [0, 20, None])
@pytest.mark.parametrize("target", ["labels", "entropy", "targets", "several", "whole"])
@pytest.mark.parametrize("kind", ["numbers", "missing", "categories", "coarse"])
def test_growth_by_rows_grows_the_same_trees(kind, target, max_gathered, dtype):
    x, (y, settings) = values(kind, dtype), learned(target)
    settings |= {"max_leaf_nodes": 9, "rng": 1}
    columns = [0, 1] if kind == "categories" else None
    given = hforest.samples(x, max_bins=256, categorical=columns)
    forest = scale.grow_by_rows(None, x, y, 2, max_gathered=max_gathered, categorical=columns, **settings)
    assert_same_bits(forest, hforest.grow(given, y, 2, bootstrap="poisson", **settings))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["numbers", "missing", "coarse", "probe"])
def test_trees_are_whole_trees_cut_back(kind, target):
    x, (y, settings) = values(kind), learned(target)
    settings |= KINDS[kind](4) if kind in KINDS else {}
    whole = hforest.grow(x, y, 5, rng=2, **settings)
    for most in (2, 3, 8, N):
        forest = hforest.grow(x, y, 5, rng=2, max_leaf_nodes=most, **settings)
        for m in range(5):
            nodes = slice(*forest.tree_start[m : m + 2])
            np.testing.assert_array_equal(forest.feature[nodes], cut_back(whole, m, most))
    assert_same_bits(forest, whole)


@pytest.mark.parametrize("most", [2, 5, 31])
@pytest.mark.parametrize("task", ["gini", "entropy", "squared_error"])
def test_trees_are_those_of_scikit_learn(task, most):
    sklearn_tree = pytest.importorskip("sklearn.tree")
    rng = np.random.default_rng(5)
    x = rng.normal(size=(400, 5)).astype(np.float32)
    signal = x[:, 0] * x[:, 1] + rng.normal(size=400)
    weight = rng.random(400) + 0.1  # no two gains are equal; few samples have equal splits in two columns
    if task == "squared_error":
        y, kind = signal, sklearn_tree.DecisionTreeRegressor
    else:
        y, kind = np.digitize(signal, [-0.5, 0.5]), sklearn_tree.DecisionTreeClassifier
    limits = {"max_leaf_nodes": most, "min_samples_leaf": 5}
    other = kind(random_state=0, criterion=task, **limits).fit(x, y, weight)
    forest = hforest.grow(
        x, y, 1, bootstrap=False, max_features=None, sample_weight=weight, criterion=task,
        task="regression" if task == "squared_error" else "classification", **limits,
    )  # fmt: skip
    assert len(forest.value) == other.get_n_leaves() == most
    splits = np.sort(other.tree_.threshold[other.tree_.feature >= 0])
    np.testing.assert_allclose(np.sort(forest.threshold[forest.feature >= 0]), splits, rtol=1e-6)
    np.testing.assert_allclose(
        tree.predict(forest, x).ravel(), other.tree_.predict(x).ravel(), rtol=1e-6, atol=1e-6
    )


def test_windows_and_hyperplanes():
    (x, base, offset), copy = overlapping()
    y = np.arange(len(copy)) % 3
    windows = hforest.samples(x, windows=(base, offset))
    assert_same_bits(*(hforest.grow(a, y, 3, rng=0, max_leaf_nodes=5) for a in (windows, copy)))
    x, y = values("numbers"), learned("labels")[0]
    forest = co2.grow(x, y, 2, rng=0, max_leaf_nodes=4)
    np.testing.assert_array_equal(np.diff(forest.tree_start), 7)
    for backend in ("reference", "host"):
        with entered(backend):
            assert_same_bits(co2.grow(x, y, 2, rng=0, max_leaf_nodes=4)[2:5], forest[2:5])


@pytest.mark.parametrize(("value", "error"), [(1, ValueError), (-3, ValueError), (2.5, TypeError)])
def test_errors(value, error):
    with pytest.raises(error, match="^max_leaf_nodes"):
        hforest.grow(np.zeros((3, 1)), [0, 1, 0], max_leaf_nodes=value)
