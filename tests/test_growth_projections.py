"""Forests on random projections: the reference implementation, windows, sums of patches, views, errors."""

import itertools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse
from conftest import assert_same_bits
from growers import DISTRIBUTIONS, assert_all_same, both, make, on_threads, problem

import hforest
from hforest import project, tree
from hforest.growth import cpu

pytestmark = pytest.mark.kernels

# -------------------------------------------------------------------------------- the reference implementation


@hypothesis.given(
    n=st.integers(1, 50),
    kind=st.sampled_from(list(DISTRIBUTIONS)),
    values=st.sampled_from(["normal", "whole", "half", "huge"]),
    weighted=st.booleans(),
    double=st.booleans(),
    seed=st.integers(0, 1000),
    settings=st.fixed_dictionaries({
        "criterion": st.sampled_from(["gini", "entropy"]),
        "splitter": st.sampled_from(["best", "random"]),
        "bootstrap": st.booleans(),
        "max_depth": st.sampled_from([None, 2]),
        "min_samples_leaf": st.integers(1, 3),
    }),
)  # fmt: skip
def test_projected_trees_equal_the_reference(n, kind, values, weighted, double, seed, settings):
    rng = np.random.default_rng(seed)
    x = {
        "normal": lambda: rng.normal(size=(n, 12)),
        "whole": lambda: rng.integers(-3, 256, (n, 12)),
        "half": lambda: rng.integers(-2, 3, (n, 12)) / 2,
        "huge": lambda: rng.integers(0, 2**23, (n, 12)),
    }[values]().astype(np.float64 if double else np.float32)
    y = rng.integers(0, 3, n).astype(np.int32)
    weight = rng.random(n) + 0.1 if weighted else None
    both(x, y, n_trees=2, projections=DISTRIBUTIONS[kind](12), sample_weight=weight, rng=seed, **settings)


def test_projected_regression_equals_the_reference():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 12)), rng.normal(size=(60, 2))
    both(x, y, n_classes=None, projections=DISTRIBUTIONS["sparse"](12), sample_weight=rng.random(60))


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_projected_forests_partition_their_samples_as_they_were_grown(kind, dtype):
    # A sample that went left while growing goes left in prediction: a tree grown until leaves are pure predicts its labels.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 12)).astype(dtype)
    y = rng.integers(0, 3, 200).astype(np.int32)
    forest = tree.check(make(x, y, projections=DISTRIBUTIONS[kind](12), bootstrap=False, n_trees=5))
    assert (tree.predict(forest, x).argmax(axis=1) == y).all()


@pytest.mark.parametrize("kind", ["image", "views, dense"])
def test_projected_trees_do_not_depend_on_threads_or_their_number(threads, kind):
    x, y = problem(200, 12, dtype=np.float32)
    settings = {"projections": DISTRIBUTIONS[kind](12)}
    found = on_threads(threads, lambda: make(x, y, n_trees=30, **settings))
    assert_all_same(found)
    few = make(x, y, n_trees=2, **settings)
    np.testing.assert_array_equal(few.indptr, found[0].indptr[: len(few.indptr)])


def test_what_follows_from_a_distribution_is_computed_again():
    # Numbers that kernels use to size their memory cannot be set by hand.
    x, y = problem(50, 12, dtype=np.float32)
    for kind in ("image", "dense"):
        made = DISTRIBUTIONS[kind](12)
        got = make(x, y, projections=made._replace(max_entries=1, zero_probability=0.5))
        assert_same_bits(got, make(x, y, projections=made))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"kind": 5}, ValueError, r"^projections\.kind: expected 0 to 4"),
        ({"kind": 1, "density": np.nan}, ValueError, "density: expected a finite number"),
        ({"n_features": 24}, ValueError, r"^projections\.n_features: expected the product of its shape, 12, got 24"),
        ({"patch_max": (9, 9, 9)}, ValueError, r"patch_max\[0\]"),
        ({"shape": (3, 4)}, ValueError, r"^projections\.shape: expected an int or 3"),
        ({"channels": 0}, ValueError, r"shape\[3\]"),
    ],
)  # fmt: skip
def test_bad_distributions(change, error, message):
    patches = project.patch_distribution((3, 4), patch_max=2)
    with pytest.raises(error, match=message):
        make(*problem(20, 12), projections=patches._replace(**change))


# ----------------------------------------------------------------------------------------- windows


def images_of(values, n_rows, n_features, dtype):
    """Returns windows (array, base, offset) of 12 numbers in two rows, with gaps, and a copy of them."""
    rng = np.random.default_rng(3)
    x = {
        "normal": lambda: rng.normal(size=(n_rows, n_features)),
        "bytes": lambda: rng.integers(0, 256, (n_rows, n_features)),
        "whole": lambda: rng.integers(-300, 300, (n_rows, n_features)),
        "huge": lambda: rng.integers(0, 2**23, (n_rows, n_features)),
    }[values]().astype(dtype)
    offset = np.concatenate([np.arange(-6, 6, 2), n_features + np.arange(6)])
    base = rng.integers(6, x.size - n_features - 6, 200)
    return (x, base, offset), x.ravel()[base[:, None] + offset]


@pytest.mark.parametrize("values", ["normal", "bytes", "whole", "huge"])
@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_projected_trees_on_windows_are_those_on_copies(threads, dtype, kind, values):
    windows, copies = images_of(values, 9, 40, dtype)
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, len(copies))
    y[copies[:, 2] > copies[:, 7]] = 2
    for settings in (
        {}, {"splitter": "random"}, {"sample_weight": rng.random(len(y)), "min_samples_leaf": 3},
    ):  # fmt: skip
        settings = {"projections": DISTRIBUTIONS[kind](12), "n_trees": 2, **settings}
        want = make(copies, y, **settings)
        assert_all_same([want, *on_threads(threads, lambda given=settings: make(windows, y, **given))])


@pytest.mark.parametrize("kind", ["dense", "image"])
@pytest.mark.parametrize("values", ["normal", "bytes", "whole"])
def test_projected_trees_on_windows_of_a_large_array(dtype, values, kind):
    # Numbers that a node's samples read are prefetched.
    windows, copies = images_of(values, 900, 1000, dtype)
    y = np.random.default_rng(1).integers(0, 3, len(copies))
    assert_all_same([make(x, y, projections=DISTRIBUTIONS[kind](12)) for x in (windows, copies)])


@pytest.mark.parametrize("splitter", ["best", "random"])
def test_projected_trees_on_windows_equal_the_reference(dtype, splitter):
    (x, base, offset), _ = images_of("normal", 9, 40, dtype)
    both((x, base[:50], offset), np.arange(50) % 3, projections=DISTRIBUTIONS["dense"](12), splitter=splitter)


# ---------------------------------------------------------------------------------- sums of whole numbers


def test_sums_of_whole_numbers_by_table_and_one_by_one_agree():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (150, 64)).astype(np.float32)
    y = rng.integers(0, 4, 150).astype(np.int32)
    # Halves are not whole, so they are added up one by one; the order of values is the same.
    patches = project.patch_distribution((8, 8), patch_max=6)
    by_table, one_by_one = (make(a, y, n_classes=4, n_trees=2, projections=patches) for a in (x, x / 2))
    for name in ("feature", "indices"):
        np.testing.assert_array_equal(getattr(by_table, name), getattr(one_by_one, name))
    np.testing.assert_array_equal(by_table.threshold, 2 * one_by_one.threshold)


@pytest.mark.parametrize("most", [9, 9000])
def test_sums_over_corners_are_sums_of_patches(dtype, most):
    shape, channels = (2, 3, 4), 2
    distribution = project.patch_distribution((*shape, channels), patch_max=shape, channels=True)
    x = np.random.default_rng(0).integers(0, most, (5, 48)).astype(dtype)
    corners = cpu.prepare_projections(x, distribution, False).corners
    assert corners.dtype == (np.uint16 if most < 256 else np.uint32)
    table = corners.reshape(5, channels, 2, 4, 5)
    planes = x.reshape(5, *shape, channels)
    for k, top, left in itertools.product(range(2), range(3), range(4)):
        for bottom, right in itertools.product(range(top + 1, 4), range(left + 1, 5)):
            for channel in range(channels):
                s = table[:, channel, k].astype(np.int64)
                got = s[:, bottom, right] - s[:, top, right] - s[:, bottom, left] + s[:, top, left]
                want = planes[:, k, top:bottom, left:right, channel].sum(axis=(1, 2))
                np.testing.assert_array_equal(got % 2 ** (8 * corners.itemsize), want)


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        ([[0, 255]], 2), ([[0, 256]], 1), ([[-1, 3]], 1), ([[0.5, 1]], 0), ([[2**24, 0]], 1), ([[2**24, 1]], 0),
        ([[2**25, 0]], 0), ([[-(2**23), 2**23]], 1), ([[1, 2], [0, 300]], 1),
    ],
)  # fmt: skip
def test_whole_numbers(dtype, x, kind):
    x = np.array(x, dtype)
    prepared = cpu.prepare_projections(x, project.axis_distribution(x.shape[1]), False)
    assert prepared.whole == (kind > 0)
    assert (prepared.numbers is not None) == (kind == 2)
    if kind == 2:
        np.testing.assert_array_equal(prepared.numbers, x)


# -------------------------------------------------------------------------------------------- views


@pytest.mark.parametrize("base", [project.axis_distribution(40), project.sparse_distribution(40, 3.0)])
def test_a_node_compares_columns_of_one_view(base):
    rng = np.random.default_rng(0)
    x, y = np.where(rng.random((200, 40)) < 0.6, 0, rng.normal(size=(200, 40))), rng.integers(0, 3, 200)
    views = project.grouped_distribution(base, [range(4, 40), [2, 0, 3, 1]], [1, 3])
    forest = hforest.grow(x, y, 20, projections=views, rng=0)
    small = [set((forest.indices[a:b] < 4).tolist()) for a, b in itertools.pairwise(forest.indptr) if b > a]
    assert all(len(kinds) == 1 for kinds in small)
    assert bool(small) == (base.density > 1)  # projections onto single features are features
    of_small = sum(True in kinds for kinds in small) + ((forest.feature >= 0) & (forest.feature < 4)).sum()
    assert of_small > 0.3 * (len(small) + (forest.feature >= 0).sum())
    same = hforest.grow(scipy.sparse.csr_array(x), y, 20, projections=views, n_projections=4, rng=0)
    assert_same_bits(same, forest)
