"""Missing values and categories: in bins, growing, walks, files and conversions, on every backend."""

import itertools
import re

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import ON_GPU, assert_same_bits, entered, several_paths
from growers import assert_all_same, assert_same, grow, on_paths, on_threads

import hforest
from hforest import cascade, hinge, neural, project, tree
from hforest.core import files, machine
from hforest.tree import walks

LARGEST = {np.dtype(t): float(np.finfo(t).max) for t in (np.float32, np.float64)}
FAST = ["cpu", "host", *ON_GPU]


def problem(rng, n, dtype, *, n_outputs, categorical):
    """Returns samples of few distinct values, some of them missing; labels, or targets with n_outputs."""
    d = int(rng.integers(1, 5))
    x = np.round(rng.normal(size=(n, d)), 1).astype(dtype)
    columns = np.flatnonzero(rng.random(d) < 0.6) if categorical else np.zeros(0, int)
    for column in columns:
        x[:, column] = rng.integers(0, int(rng.integers(2, 70)), n)
    x[rng.random((n, d)) < rng.choice([0.0, 0.1, 0.4])] = np.nan
    y = rng.integers(0, int(rng.integers(2, 6)), n) if n_outputs is None else rng.normal(size=(n, n_outputs))
    return x, y, columns


def on_backend(name, function, *arrays, **settings):
    """Returns the forest that a function returns in a backend, and that of the reference."""
    with entered(name) as backend:
        given = [backend.array(a) for a in arrays]
        more = {k: backend.array(a) if isinstance(a, np.ndarray) else a for k, a in settings.items()}
        got = tree.Forest(*map(backend.numpy, function(*given, **more)))
    with hforest.using("reference"):
        return got, function(*arrays, **settings)


def impurity(y, weight, squared):
    """Returns the weighted impurity of a node, from the definition: squared error, or Gini."""
    if not len(y):
        return 0.0
    if squared:
        mean = np.average(y, axis=0, weights=weight)
        return float((weight[:, None] * (y - mean) ** 2).sum())
    shares = np.bincount(y, weights=weight) / weight.sum()
    return float(weight.sum() * (1 - (shares**2).sum()))


# -------------------------------------------------------------------------------------------- bins


@pytest.mark.parametrize("name", ["reference", *FAST])
@pytest.mark.parametrize("max_bins", [None, 3])
def test_missing_values_have_the_bin_after_the_last_one(name, max_bins, dtype):
    nan = np.nan
    x = np.array([[2, 7, nan], [nan, 7, nan], [1, 7, nan], [3, nan, nan], [1, 7, nan]], dtype)
    with entered(name) as backend:
        bins = hforest.samples(backend.array(x), max_bins=max_bins).bins()
        got = [backend.numpy(a) for a in (bins.bins, bins.low, bins.high, bins.missing)]
    n_bins = 3 if max_bins is None else 2
    assert got[3].tolist() == [n_bins, 1, 0]
    assert got[0][:, 1].tolist() == [n_bins, 0, 0]
    assert got[0][1].tolist() == [0, 0, 0, 1, 0]
    assert (got[0][2] == 0).all()
    assert (got[1] <= got[2]).all()
    assert got[2][0].max() == 3


def test_bins_without_missing_values_are_as_before():
    bins = hforest.samples(np.random.default_rng(0).normal(size=(50, 3))).bins()
    assert bins.missing is None
    assert bins.categorical is None


def test_categories_are_exact_whatever_max_bins():
    x = np.stack([np.arange(40) % 20, np.arange(40)], axis=1).astype(np.float32)
    bins = hforest.samples(x, max_bins=4, categorical=[0]).bins()
    assert [len(np.unique(row)) for row in bins.bins] == [20, 4]
    assert bins.categorical.tolist() == [True, False]
    np.testing.assert_array_equal(bins.low[0, bins.bins[0]], x[:, 0])


# ------------------------------------------------------------------------------------------ growing


@pytest.mark.parametrize("name", FAST)
@hypothesis.given(
    n=st.integers(2, 90),
    double=st.booleans(),
    n_outputs=st.sampled_from([None, None, 1, 3]),
    categorical=st.booleans(),
    criterion=st.sampled_from(["gini", "entropy"]),
    weighted=st.booleans(),
    max_bins=st.sampled_from([None, 4]),
    seed=st.integers(0, 10**6),
    settings=st.fixed_dictionaries({
        "splitter": st.sampled_from(["best", "random"]),
        "min_samples_leaf": st.integers(1, 3),
        "min_weight_fraction_leaf": st.sampled_from([0.0, 0.0, 0.1, 0.3]),
    }),
)  # fmt: skip
@hypothesis.settings(max_examples=60, suppress_health_check=[hypothesis.HealthCheck.differing_executors])
def test_trees_equal_the_reference(
    name, n, double, n_outputs, categorical, criterion, weighted, max_bins, seed, settings
):
    rng = np.random.default_rng(seed)
    dtype = np.float64 if double else np.float32
    x, y, columns = problem(rng, n, dtype, n_outputs=n_outputs, categorical=categorical)
    settings |= {"max_features": int(rng.integers(1, x.shape[1] + 1)), "rng": seed}
    settings["sample_weight"] = rng.random(n) + 0.1 if weighted else None
    if n_outputs is None:
        settings |= {"n_classes": int(y.max()) + 1, "criterion": criterion}
    else:
        settings["task"] = "regression"

    def grown(x, y, **settings):
        return hforest.grow(hforest.samples(x, max_bins=max_bins, categorical=columns), y, 2, **settings)

    got, want = on_backend(name, grown, x, y, **settings)
    assert_same(got, want)
    assert got.default_left.shape == got.feature.shape


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("n", [4, 7, 12, 20])
def test_missing_values_are_placed_before_the_numbers(name, n):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.integers(0, 4, (n, 2)).astype(np.float64)
        x[rng.random(x.shape) < 0.4] = np.nan
        y = rng.integers(0, 4, n).astype(np.float64)
        settings = {"n_trees": 1, "task": "regression", "max_features": None, "rng": seed}
        assert_same(*on_backend(name, hforest.grow, x, y, **settings))


PROJECTIONS = {
    "sparse": project.sparse_distribution(4, 0.5),
    "probe": project.probe_distribution(4),
    "axis": project.axis_distribution(4),
    "kernels": project.kernel_distribution((2, 2), [[[0.3], [-0.7]], [[1, 2]]]),
    "views": project.grouped_distribution(project.sparse_distribution(4), [[3, 0], [1, 2]], [1, 2]),
}


@pytest.mark.parametrize("name", FAST)
@hypothesis.given(
    n=st.integers(2, 70),
    double=st.booleans(),
    kind=st.sampled_from(list(PROJECTIONS)),
    splitter=st.sampled_from(["best", "random"]),
    seed=st.integers(0, 10**6),
)
@hypothesis.settings(max_examples=40, suppress_health_check=[hypothesis.HealthCheck.differing_executors])
def test_projections_of_missing_values_are_missing(name, n, double, kind, splitter, seed):
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(n, 4)), 1).astype(np.float64 if double else np.float32)
    x[rng.random(x.shape) < 0.15] = np.nan
    settings = {"projections": PROJECTIONS[kind], "n_projections": 3, "splitter": splitter, "rng": seed}
    y = rng.integers(0, 3, n)
    assert_same(*on_backend(name, hforest.grow, x, y, n_trees=2, n_classes=3, **settings))


@several_paths
@pytest.mark.parametrize("splitter", ["best", "random"])
def test_vector_paths_and_threads_grow_the_same_trees(simd, threads, splitter):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 12)).astype(np.float32)
    x[:, 4:8] = rng.integers(0, 30, (1500, 4))
    y = (x[:, 0] + (x[:, 5] % 3) > 1) * 2 + rng.integers(0, 2, 1500)
    x[rng.random(x.shape) < 0.2] = np.nan
    x = hforest.samples(x, categorical=range(4, 8))
    found = on_paths(
        simd, lambda: on_threads(threads, lambda: hforest.grow(x, y, 4, splitter=splitter, rng=1))
    )
    assert_all_same([forest for forests in found for forest in forests])


@several_paths
@pytest.mark.parametrize(
    ("n", "n_classes", "settings"),
    [
        (1500, 3, {}),
        (60, 2, {}),
        (4000, 26, {"max_features": None, "max_depth": 6}),
        (1500, 3, {"min_samples_leaf": 3}),
    ],
)
def test_bins_of_8_bits_and_of_16_grow_the_same_trees(simd, n, n_classes, settings):
    # Bins of 8 bits have their own scorers, and columns with missing values have two.
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, 20)).astype(np.float32)
    x[:, 5:10] = rng.integers(0, 3, (n, 5))
    y = ((x[:, 0] > 0) + rng.integers(0, n_classes, n)) % n_classes
    x[rng.random(x.shape) < rng.choice([0, 0.02, 0.3], 20)] = np.nan
    narrow, wide = (hforest.samples(x, max_bins=200) for _ in range(2))
    bins = narrow.bins()
    assert bins.bins.dtype == np.uint8
    wide.once("bins", (), lambda: bins._replace(bins=bins.bins.astype(np.uint16)))
    settings = {"n_classes": n_classes, "rng": 1, **settings}
    found = on_paths(simd, lambda: [hforest.grow(a, y, 4, **settings) for a in (narrow, wide)])
    assert_all_same([forest for forests in found for forest in forests])
    assert (found[0][0].threshold == LARGEST[np.dtype(np.float32)]).any() or n == 60


@pytest.mark.parametrize("name", ["reference", *FAST])
def test_what_is_missing_can_decide(name, dtype):
    # Only missing values tell the classes apart: one split between them and all numbers.
    x = np.array([[1], [np.nan], [5], [np.nan], [3]], dtype)
    with entered(name) as backend:
        y = backend.array(np.array([0, 1, 0, 1, 0]))
        forest = hforest.grow(backend.array(x), y, 1, bootstrap=False, rng=0)
        found = [backend.numpy(a) for a in (forest.threshold, forest.default_left, forest.feature)]
        seen = backend.array(np.array([[LARGEST[np.dtype(dtype)]], [-1], [np.nan]], dtype))
        predicted = backend.numpy(tree.predict(forest, seen)).argmax(axis=1)
    assert found[0].tolist() == [LARGEST[np.dtype(dtype)], 0, 0]
    assert found[1].tolist() == [2, 0, 0]
    assert found[2].tolist() == [0, -1, -1]
    assert predicted.tolist() == [0, 0, 1]
    if name == "cpu":
        assert tree.to_text(forest).splitlines()[0] == "x[0] is not missing"


@pytest.mark.parametrize("side", [0, 1])
def test_missing_values_go_where_they_gain_more(side):
    x = np.array([0.0, 1, 2, 3, 4, 5, np.nan, np.nan])[:, None]
    y = np.array([0, 0, 0, 1, 1, 1, side, side])
    forest = hforest.grow(x, y, 1, bootstrap=False, rng=0)
    assert forest.threshold[0] == 2.5
    assert forest.default_left[0] & 1 == 1 - side
    assert len(forest.feature) == 3


def test_a_node_without_missing_values_sends_them_to_the_side_of_more_samples():
    x = np.array([[0.0, np.nan], [1, 0], [2, 0], [3, 0], [4, 0]])
    for y, bit in (([0, 1, 1, 1, 1], 0), ([0, 0, 0, 0, 1], 1)):
        forest = hforest.grow(x, y, 1, bootstrap=False, max_features=None, rng=0)
        assert forest.feature[0] == 0
        assert forest.default_left[0] == 3 * bit


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("n", [30, 700])
def test_forests_grown_without_missing_values_send_them_to_the_side_of_more_samples(name, projected, n):
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, 4)).astype(np.float32)
    y = rng.integers(0, 3, n)
    settings = {"projections": hforest.project.sparse_distribution(4)} if projected else {}

    def grown(x, y):
        return hforest.grow(x, y, 3, bootstrap=False, rng=0, **settings)

    got, want = on_backend(name, grown, x, y)
    assert_same(got, want)
    size = np.zeros(len(got.feature), int)
    for row in x:
        for m, start in enumerate(got.tree_start[:-1]):
            size[start + tree.path(got, row, m)] += 1
    start = np.repeat(got.tree_start[:-1], np.diff(got.tree_start))
    split = np.flatnonzero(got.feature != -1)
    left = start[split] + got.left[split]
    np.testing.assert_array_equal(got.default_left[split], 3 * (size[left] >= size[left + 1]))
    assert not got.default_left[got.feature == -1].any()
    # Every function of every backend follows them, and rows with numbers alone are as before.
    gaps = np.where(rng.random(x.shape) < 0.3, np.float32(np.nan), x)
    leaf = np.array([[tree.path(got, row, m)[-1] for m in range(3)] for row in gaps])
    assert (leaf != tree.apply(got, x)).any()
    for rows in (gaps, gaps[:1]):
        np.testing.assert_array_equal(tree.apply(got, rows), leaf[: len(rows)])
        np.testing.assert_array_equal(tree.apply(tree.prepare(got), rows), leaf[: len(rows)])
    with entered(name) as backend:
        forest = tree.Forest(*map(backend.array, got))
        np.testing.assert_array_equal(backend.numpy(tree.apply(forest, backend.array(gaps))), leaf)
        refusing = forest._replace(default_left=backend.array(np.zeros(0, np.uint8)))
        np.testing.assert_array_equal(
            *(backend.numpy(tree.apply(f, backend.array(x))) for f in (forest, refusing))
        )
    assert "missing" not in tree.to_text(got)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("task", "n_classes"), [("classification", 2), ("classification", 4), ("regression", 1)]
)
def test_the_best_of_all_sets_is_found(seed, task, n_classes):
    # Two classes or one target: Fisher's order contains the best set. More classes: all sets of up to four
    # categories.
    rng = np.random.default_rng(seed)
    k = 7 if n_classes < 3 else 4
    squared = task == "regression"
    category = np.concatenate([np.arange(k), rng.integers(0, k, 60)])
    y = rng.normal(size=(len(category), 1)) + category[:, None] % 3 if squared else None
    if not squared:
        y = np.where(
            rng.random(len(category)) < 0.5, category % n_classes, rng.integers(0, n_classes, len(category))
        )
    weight = rng.integers(1, 4, len(category)).astype(float)
    found = hforest.grow(
        hforest.samples(category[:, None], categorical=[0]), y, 1, max_depth=1, bootstrap=False,
        sample_weight=weight, task=task, n_classes=None if squared else n_classes, rng=0,
    )  # fmt: skip

    def gain(left):
        return impurity(y, weight, squared) - sum(impurity(y[s], weight[s], squared) for s in (left, ~left))

    best = max(gain((mask >> category & 1).astype(bool)) for mask in range(1, 2 ** (k - 1)))
    assert found.gain[0] == pytest.approx(best, rel=1e-5)
    inside = np.unpackbits(found.category_bits.view(np.uint8), bitorder="little")[category].astype(bool)
    assert gain(inside) == pytest.approx(best, rel=1e-9)


def test_the_principal_direction_orders_categories_of_many_classes():
    # Twelve categories in two groups of three classes each: the groups are apart along the first direction.
    rng = np.random.default_rng(0)
    category = np.arange(1200) % 12
    y = np.where(category % 2 == 0, 0, 3) + rng.integers(0, 3, 1200)
    x = hforest.samples(category[:, None], categorical=[0])
    forest = hforest.grow(x, y, 1, max_depth=1, bootstrap=False, rng=0)
    inside = np.unpackbits(forest.category_bits.view(np.uint8), bitorder="little")[:12]
    assert len({tuple(inside[::2]), tuple(inside[1::2])}) == 2
    assert len(set(inside[::2])) == len(set(inside[1::2])) == 1


def test_rare_categories_are_taken_together(simd, dtype):
    rng = np.random.default_rng(0)
    n, settings = 400, {"n_trees": 5, "max_features": None, "bootstrap": False, "rng": 0}
    number, y = rng.normal(size=n), rng.random(n) < 0.3
    for rare in (np.arange(n), np.arange(n) // 3):  # fewer than four samples in each category
        x = hforest.samples(np.column_stack([number, rare]).astype(dtype), categorical=[1])
        for targets in (y.astype(int), rng.normal(size=n), rng.integers(0, 5, n), rng.normal(size=(n, 2))):
            task = "classification" if targets.dtype.kind == "i" else "regression"
            forest = hforest.grow(x, targets, task=task, min_samples_leaf=20, **settings)
            assert set(forest.feature.tolist()) == {-1, 0}
    # A category of four samples has a side of its own; rarer ones go together.
    category = np.concatenate([np.repeat([2, 9], 4), np.arange(20, 60)])
    y = np.isin(category, [2, *range(20, 60, 2)]).astype(int)
    forest = hforest.grow(hforest.samples(category[:, None].astype(dtype), categorical=[0]), y, **settings)
    root = tree.apply(forest, np.arange(60, dtype=dtype)[:, None])[:, 0]
    assert root[2] != root[9]
    assert len(set(root[20:60].tolist())) == 1
    alone = hforest.grow(
        hforest.samples(np.arange(40)[:, None].astype(dtype), categorical=[0]), y[8:], **settings
    )
    assert (alone.feature == -1).all()


def test_unknown_categories_go_to_the_side_of_more_samples():
    x = hforest.samples([[3], [3], [40], [3], [7]], categorical=[0])
    forest = hforest.grow(x, [0, 0, 1, 0, 1], 1, bootstrap=False, rng=0)
    right = tree.apply(forest, np.array([[3], [40], [7], [5], [99], [-1], [3.5], [65535], [1e9]]))[:, 0] != 1
    assert right.tolist() == [False, True, True, False, False, False, False, False, False]


def test_random_splits_send_categories_and_missing_values_left_as_often_as_right():
    x = np.stack([np.arange(200) % 10, np.where(np.arange(200) % 4 == 0, np.nan, np.arange(200))], axis=1)
    x = hforest.samples(x, categorical=[0])
    forest = grow(x, np.arange(200) % 2, 400, kind="random", max_depth=1, rng=0)
    root = forest.tree_start[:-1]
    by_set = np.diff(forest.category_indptr)[root] > 0
    words = forest.category_bits[forest.category_indptr[root[by_set]]]
    share = np.mean([word >> c & 1 for word in words for c in range(10)])
    assert by_set.sum() > 100
    assert 0.46 < share < 0.54
    assert 0.4 < (forest.default_left[root[~by_set]] & 1).mean() < 0.6


@pytest.mark.parametrize("kind", ["features", "extra", "random"])
def test_a_tree_predicts_the_samples_that_it_was_grown_on(kind):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5)).astype(np.float32)
    x[:, 3:] = rng.integers(0, 40, (300, 2))
    x[rng.random(x.shape) < 0.2] = np.nan
    x[:, 0] = np.arange(300)
    y = rng.integers(0, 4, 300)
    given = hforest.samples(x, categorical=[3, 4])
    forest = tree.check(grow(given, y, 5, kind=kind, bootstrap=False, rng=0))
    assert (tree.predict(forest, x).argmax(axis=1) == y).all()


def test_projections_and_cascades_take_missing_values():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 6)).astype(np.float32)
    y = (x[:, 0] > x[:, 1]).astype(int)
    x[rng.random(x.shape) < 0.1] = np.nan
    forest = grow(x, y, 30, kind="sparse", rng=0)
    assert (tree.predict(forest, x).argmax(axis=1) == y).mean() > 0.95
    grown = cascade.grow(x, y, max_levels=1, n_folds=2, rng=0)
    assert (cascade.predict(grown, x).argmax(axis=1) == y).mean() > 0.9


# -------------------------------------------------------------------------------------------- walks


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("seed", range(12))
def test_walks_equal_the_reference(name, seed, dtype):
    rng = np.random.default_rng(seed)
    n = 300 if seed % 2 else 60
    x, y, columns = problem(rng, n, dtype, n_outputs=None, categorical=seed % 3 > 0)
    x[0] = np.nan
    if seed % 4 == 3:
        sparse = project.sparse_distribution(x.shape[1], 0.9)
        forest = hforest.grow(x, y, 3, projections=sparse, n_projections=3, n_classes=6, rng=seed)
    else:
        forest = hforest.grow(hforest.samples(x, categorical=columns), y, 3, n_classes=6, rng=seed)
    tree.check(forest)
    z = np.round(rng.normal(size=x.shape) * 20, 1).astype(dtype)
    z[::2] = x[::2]
    z[rng.random(z.shape) < 0.2] = np.nan
    z[rng.random(z.shape) < 0.05] = 1e6
    with hforest.using("reference"):
        leaf, mean = tree.apply(forest, z), tree.predict(forest, z)
    with entered(name) as backend:
        moved = tree.Forest(*map(backend.array, forest))
        np.testing.assert_array_equal(backend.numpy(tree.apply(moved, backend.array(z))), leaf)
        np.testing.assert_array_equal(backend.numpy(tree.predict(moved, backend.array(z))), mean)
    for i, m in itertools.product(range(0, n, 20), range(3)):
        assert tree.path(forest, z[i], m)[-1] == leaf[i, m]
    text = tree.to_text(forest, 0)
    assert text.count(" in {") == np.count_nonzero(
        np.diff(forest.category_indptr[: forest.tree_start[1] + 1])
    )
    assert text.count("or missing") == np.count_nonzero(forest.default_left[: forest.tree_start[1]] & 1)


def test_rows_are_walked_in_parts(monkeypatch):
    x = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    x[::3, 1] = np.nan
    forest = hforest.grow(x, x[:, 0] > 0, 5, rng=0)
    whole = tree.apply(forest, x)
    monkeypatch.setattr("hforest.tree.walks._WIDENED", 100)
    np.testing.assert_array_equal(tree.apply(forest, x), whole)


@pytest.mark.parametrize("n_trees", [1, 4])
@pytest.mark.parametrize("name", FAST)
def test_few_levels_of_many_columns_are_walked_node_by_node(name, dtype, n_trees, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 21)).astype(dtype), rng.integers(0, 3, 400)
    x[rng.random(x.shape) < 0.2] = np.nan
    forest = hforest.grow(x, y, n_trees, max_depth=5, rng=0)  # up to 63 nodes per tree, 6 levels
    with hforest.using("reference"):
        leaf = tree.apply(forest, x)
    copied = []
    widened = walks._widened
    monkeypatch.setattr(walks, "_widened", lambda *args: copied.append(args) or widened(*args))
    with entered(name) as backend:
        moved = tree.Forest(*map(backend.array, forest))
        np.testing.assert_array_equal(backend.numpy(tree.apply(moved, backend.array(x))), leaf)
    assert len(copied) == (n_trees == 4 and name == "cpu")


@pytest.mark.parametrize("name", FAST)
def test_missing_values_are_not_looked_for_on_a_gpu_inside_unchecked(name, dtype, monkeypatch):
    """A look waits for the device."""
    x, forest = known()
    x = x.astype(dtype)
    forest = hforest.grow(x, x[:, 0] > 0, 3, rng=0)
    leaf, mean = tree.apply(forest, x), tree.predict(forest, x)
    looks = []
    looked = machine.first_nonfinite
    monkeypatch.setattr(machine, "first_nonfinite", lambda a: looks.append(a) or looked(a))
    with entered(name) as backend, hforest.unchecked():
        moved, samples = tree.Forest(*map(backend.array, forest)), backend.array(x)
        np.testing.assert_array_equal(backend.numpy(tree.apply(moved, samples)), leaf)
        np.testing.assert_array_equal(backend.numpy(tree.predict(moved, samples)), mean)
    assert len(looks) == 2 * (name == "cpu")


def test_without_unchecked_samples_a_forest_that_knows_no_missing_values_refuses_them():
    forest = hforest.grow(np.eye(4), [0, 1, 2, 3], 2, rng=0)._replace(default_left=np.zeros(0, np.uint8))
    message = "x: expected finite numbers, got nan .*grow the forest anew"
    with pytest.raises(ValueError, match=message):
        tree.predict(forest, np.full((1, 4), np.nan))
    with hforest.unchecked():
        tree.predict(forest, np.full((1, 4), np.nan))


# ------------------------------------------------------------------------------------- files, conversions


def known():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3)).astype(np.float32)
    x[:, 2] = rng.integers(0, 40, 80)
    x[::5, 1] = np.nan
    return x, hforest.grow(hforest.samples(x, categorical=[2]), rng.integers(0, 3, 80), 4, rng=0)


def test_files_keep_them_and_older_files_load(tmp_path):
    x, forest = known()
    tree.save(tmp_path / "f.npz", forest)
    assert_same_bits(tree.load(tmp_path / "f.npz"), forest)
    plain = hforest.grow(np.nan_to_num(x), np.arange(80) % 2, 2, rng=0)
    tree.save(tmp_path / "g.npz", plain)
    arrays = files.read_npz(tmp_path / "g.npz", "a file")
    for name in ("default_left", "category_indptr", "category_bits"):
        arrays.pop(name, None)
    np.savez(tmp_path / "old.npz", **(arrays | {"forest_format": np.array(1)}))
    assert_same_bits(tree.load(tmp_path / "old.npz"), plain._replace(default_left=np.zeros(0, np.uint8)))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda f: {"default_left": f.default_left + np.uint8(4)}, ValueError, "default_left: expected 0 to 3"),
        (lambda f: {"default_left": f.default_left[1:]}, ValueError, "default_left: expected shape"),
        (lambda f: {"default_left": f.default_left.astype(int)}, TypeError, "default_left: expected dtype uint8"),
        (lambda f: {"default_left": f.default_left[:0]}, ValueError, "default_left: expected shape"),
        (lambda f: {"category_indptr": f.category_indptr[::-1].copy()}, IndexError, "category_indptr: expected 0, ..."),
        (lambda f: {"category_indptr": f.category_indptr[1:]}, ValueError, "category_indptr: expected shape"),
        (lambda f: {"category_bits": f.category_bits[1:]}, IndexError, "category_indptr: expected 0, ..."),
        (lambda f: {"category_bits": f.category_bits.astype(int)}, TypeError, "category_bits: expected dtype uint32"),
        (lambda f: {"feature": np.where(f.feature >= 0, -2, f.feature).astype(np.int32)}, (IndexError, ValueError), "forest"),
    ],
)  # fmt: skip
def test_faults_are_found(change, error, message):
    _, forest = known()
    with pytest.raises(error, match=re.escape(message)):
        tree.check(forest._replace(**change(forest)))


@pytest.mark.libraries
@pytest.mark.parametrize("value", [[], (), None, 0, "word"])
@pytest.mark.parametrize("name", ["default_left", "category_indptr", "category_bits"])
def test_what_is_no_array_is_refused(name, value):
    forest = hforest.grow(np.eye(4), [0, 1, 2, 3], 2, rng=0)
    with pytest.raises(TypeError, match=f"forest.{name}: expected"):
        tree.check(forest._replace(**{name: value}))
    pandas = pytest.importorskip("pandas")
    with pytest.raises(TypeError, match="forest"):
        tree.check(forest._replace(**{name: pandas.Series(getattr(forest, name))}))


def test_categories_may_be_numbered_by_objects():
    x = hforest.samples([[3.0], [4.0]], categorical=np.array([0], dtype=object))
    assert x.categorical.tolist() == x.bins().categorical.tolist() == [True]


def test_a_set_at_a_leaf_is_found():
    _, forest = known()
    indptr = forest.category_indptr.copy()
    leaf = int(np.flatnonzero(forest.feature == -1)[0])
    indptr[leaf + 1 :] = np.minimum(indptr[leaf + 1 :] + 1, forest.category_bits.size)
    with pytest.raises(ValueError, match="sets of categories only at splits by features"):
        tree.check(forest._replace(category_indptr=indptr))


def test_conversions_refuse_what_they_cannot_hold():
    x, forest = known()
    filled = np.nan_to_num(x)
    for convert in (
        lambda f: hinge.from_forest(filled, None, f),
        lambda f: neural.from_forest(filled, f),
        lambda f: tree.to_dict(f, x),
    ):
        with pytest.raises(ValueError, match=r"^forest: expected .*sets of categories"):
            convert(forest)
    alone = hforest.grow(np.where(np.arange(40) % 2, np.nan, 1.0)[:, None], np.arange(40) % 2, 1, rng=0)
    with pytest.raises(ValueError, match="between missing values and all numbers"):
        hinge.from_forest(np.ones((4, 1)), None, alone)


@pytest.mark.libraries
def test_forests_of_scikit_learn_keep_where_missing_values_go():
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4)).astype(np.float32)
    y = (x[:, 0] > 0) ^ (x[:, 1] > 0)
    x[rng.random(x.shape) < 0.2] = np.nan
    for model in (ensemble.RandomForestClassifier, ensemble.ExtraTreesClassifier):
        model = model(10, random_state=0).fit(x, y)
        forest = tree.from_sklearn(model)
        np.testing.assert_array_equal(tree.apply(forest, x[:, :]).shape, (300, 10))
        assert set(forest.default_left[forest.feature >= 0]) == {0, 1}
        assert not forest.default_left[forest.feature == -1].any()
        np.testing.assert_allclose(tree.predict(forest, x), model.predict_proba(x), rtol=1e-6)


# -------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("x", "categorical", "error", "message"),
    [
        ([[np.inf]], None, ValueError, "x: expected finite numbers, or NaN for missing values, got inf"),
        ([[1.5]], [0], ValueError, r"x: expected whole numbers 0 to 65535 or NaN .* got 1.5 at index \(0, 0\)"),
        ([[-1.0]], [0], ValueError, "got -1.0"),
        ([[65536.0]], [0], ValueError, "got 65536.0"),
        ([[1.0]], [1], IndexError, "categorical: expected feature indices below n_features = 1, got 1 to 1"),
        ([[1.0]], [-1], IndexError, "categorical: expected feature indices"),
        ([[1.0]], [True, False], ValueError, "categorical: expected a boolean mask of length n_features = 1, got 2"),
        ([[1.0]], [0.0], TypeError, "categorical: expected a boolean mask or feature indices"),
        ([[1.0]], ["a"], TypeError, "categorical: expected"),
        ([[1.0]], [[0]], TypeError, "categorical: expected"),
        ([[1.0]], np.array([None]), TypeError, "categorical: expected"),
        ([["a"]], None, TypeError, "x: expected an array of real numbers"),
    ],
)  # fmt: skip
def test_bad_input(x, categorical, error, message):
    with pytest.raises(error, match=message):
        hforest.samples(x, categorical=categorical)
