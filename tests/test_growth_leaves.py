"""Leaves that growth returns beside a forest: those of `hforest.tree.apply`, without a walk where it can."""

import inspect

import numpy as np
import pytest
import scipy.sparse
from growers import KINDS, assert_all_same, assert_same, blobs, on_threads, overlapping, problem

import hforest
from hforest import tree
from hforest.core import dispatch
from hforest.growth import bootstrap_counts, grow_with_leaves, growing
from hforest.growth.reference.leaves import LEAF_VALUES
from hforest.tree.forest import LEAF_FIELDS

pytestmark = pytest.mark.kernels


def test_each_value_of_a_leaf_has_a_field():
    assert len(LEAF_FIELDS) == LEAF_VALUES


@pytest.fixture
def walks(monkeypatch):
    """Returns the list of the samples that a call walks."""
    walked = []

    def apply(forest, x):
        walked.append(x)
        return tree.apply(forest, x)

    monkeypatch.setattr(growing, "apply", apply)
    return walked


def check(x, y, n_trees=3, applied=None, **settings):
    """Fails unless the forest is that of `grow`, and the leaves those of `apply` to x, or to `applied`."""
    settings = {"rng": 1, **settings}
    forest, leaves = grow_with_leaves(x, y, n_trees, **settings)
    assert_same(forest, hforest.grow(x, y, n_trees, **settings))
    want = tree.apply(forest, x if applied is None else applied)
    assert leaves.flags.c_contiguous
    np.testing.assert_array_equal(leaves, want, strict=True)  # of int32, too
    assert (leaves > 0).any()
    return leaves


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bootstrap", [False, True])
def test_leaves_are_those_of_apply(backend, dtype, kind, task, bootstrap):
    x, y = problem(60, 6, dtype=dtype)
    settings = KINDS[kind](6) | {"task": task, "bootstrap": bootstrap, "max_depth": 5}
    check(
        backend.array(x),
        backend.array(y if task == "classification" else x[:, :2] + 0.5 * y[:, None]),
        **settings,
    )


@pytest.mark.parametrize("max_bins", [None, 255])
@pytest.mark.parametrize("criterion", ["gini", "entropy", "squared_error"])
def test_no_sample_is_walked_that_growth_divides(walks, criterion, max_bins):
    x, y = problem(2000, 4, coarse=max_bins is None)
    settings = {
        "task": "regression" if criterion == "squared_error" else "classification",
        "criterion": criterion,
    }
    check(hforest.samples(x, max_bins=max_bins), y, bootstrap=False, **settings)
    assert len(walks) == dispatch.is_reference()


@pytest.mark.parametrize("settings", [
    {"bootstrap": True}, {"bootstrap": "poisson"}, {"bootstrap": bootstrap_counts(300, 3, n_draws=150, rng=5)},
    {"bootstrap": False, "sample_weight": np.arange(300) % 3},
    {"bootstrap": False, "class_weight": {0: 0.0, 1: 2.0, 2: 1.0}},
], ids=["bootstrap", "poisson", "counts", "weights", "class weights"])  # fmt: skip
def test_samples_that_no_tree_takes_have_the_leaf_that_they_reach(walks, settings):
    x, y = blobs(300)
    leaves = check(x, y, **settings)
    assert len(walks) == 1
    assert (leaves >= 0).all()


def test_a_tree_that_draws_only_samples_of_weight_0_divides_them_all(walks):
    x, y = problem(6, 2, 2)
    weights, counts = np.array([1.0, 0, 0, 0, 0, 0]), np.array([[0, 3, 3, 0, 0, 0]], np.int32)
    forest, leaves = grow_with_leaves(x, y, 1, sample_weight=weights, bootstrap=counts, n_classes=2)
    np.testing.assert_array_equal(leaves, tree.apply(forest, x))


@pytest.mark.parametrize("bootstrap", [False, True])
@pytest.mark.parametrize("max_bins", [None, 16])
@pytest.mark.parametrize("categorical", [None, [0, 3]])
@pytest.mark.parametrize("splitter", ["best", "random"])
def test_missing_values_and_categories(dtype, bootstrap, max_bins, categorical, splitter):
    x, y = problem(400, 5, dtype=dtype)
    x[:, [0, 3]] = np.random.default_rng(3).integers(0, 7, (400, 2))
    x[np.random.default_rng(2).random(x.shape) < 0.2] = np.nan
    source = hforest.samples(x, max_bins=max_bins, categorical=categorical)
    check(source, y, applied=x, bootstrap=bootstrap, splitter=splitter)


@pytest.mark.parametrize("bootstrap", [False, True])
@pytest.mark.parametrize("as_samples", [False, True])
@pytest.mark.parametrize("form", [scipy.sparse.csr_array, scipy.sparse.csc_matrix])
def test_sparse_matrices(walks, bootstrap, as_samples, form):
    dense, y = problem(200, 30)
    x = form(np.where(np.random.default_rng(1).random(dense.shape) < 0.8, 0, dense))
    check(hforest.samples(x) if as_samples else x, y, applied=x, bootstrap=bootstrap)
    assert len(walks) == bootstrap


@pytest.mark.parametrize("max_bins", [None, 8])
def test_random_thresholds_within_bins_are_walked(walks, dtype, max_bins):
    x, y = problem(300, 4, dtype=dtype)
    check(hforest.samples(x, max_bins=max_bins), y, applied=x, bootstrap=False, splitter="random")
    assert len(walks) == (max_bins is not None)


@pytest.mark.parametrize("bootstrap", [False, True])
def test_large_samples_that_need_a_conversion(walks, monkeypatch, bootstrap):
    monkeypatch.setattr("hforest.core.blocks.CONVERTED", 100)
    x = np.random.default_rng(0).integers(-50, 50, (300, 5))
    assert type(hforest.samples(x)).__name__ == "UnconvertedSamples"
    check(x, x[:, 0] > x[:, 1], bootstrap=bootstrap)
    assert len(walks) == bootstrap


def test_windows_are_walked(walks):
    (x, base, offset), copies = overlapping(12, 14)
    y = np.arange(len(base)) % 2
    check(hforest.samples(x, windows=(base, offset)), y, applied=copies, bootstrap=False)
    assert len(walks) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bootstrap", [False, True])
def test_threads_do_not_change_leaves(threads, kind, bootstrap):
    x, y = problem(500, 6, dtype=np.float32)
    settings = KINDS[kind](6) | {"bootstrap": bootstrap}
    assert_all_same(on_threads(threads, lambda: [check(x, y, 9, **settings)]))


def test_targets_in_another_order(walks):
    x, y = problem(100, 3, 4)
    order = np.array([np.random.default_rng(m).permutation(100) for m in range(3)])
    check(x, y, y_order=order, bootstrap=False)
    assert not walks


def test_a_stopped_growth_has_the_leaves_of_its_trees(threads):
    threads(1)
    x, y = problem(100, 3)
    settings = {"bootstrap": False, "rng": 0, "progress": lambda done, total: done < 4}
    forest, leaves = grow_with_leaves(x, y, 20, **settings)
    assert forest.n_trees < 20
    np.testing.assert_array_equal(leaves, tree.apply(forest, x), strict=True)


def test_a_range_of_trees():
    x, y = problem(100, 3)
    whole = check(x, y, 8, bootstrap=False)
    part = check(x, y, 3, first_tree=5, bootstrap=False)
    np.testing.assert_array_equal(part, whole[:, 5:])


def test_settings_are_those_of_grow():
    own, other = (inspect.signature(f).parameters for f in (grow_with_leaves, hforest.grow))
    assert {name: (p.default, p.kind) for name, p in own.items()} == {
        name: (p.default, p.kind) for name, p in other.items()
    }
    with pytest.raises(
        TypeError, match=r"^max_dept: expected an argument of grow_with_leaves, .*use max_depth"
    ):
        grow_with_leaves([[0.0]], [0], max_dept=3)
    with pytest.raises(TypeError, match="n_projections: expected None without projections"):
        grow_with_leaves([[0.0]], [0], n_projections=3)
