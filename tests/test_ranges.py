"""Forests grown in ranges of trees and joined are bit-identical to those of one call."""

import functools

import numpy as np
import pytest
from conftest import assert_same_bits, entered
from growers import GROWERS, grow

import hforest
from hforest import growth, tree

RANGES = ((0, 1), (1, 1), (2, 2))
N_TREES = 4


def samples(dtype, *, missing=False, n=36, n_features=5):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, n_features)).astype(dtype)
    y = (x[:, 0] + x[:, 1] > 0).astype(np.int32) + (x[:, 2] > 0.7)
    if missing:
        x[rng.random(x.shape) < 0.2] = np.nan
        x[:, 4] = rng.integers(0, 6, n)
    return x, y


def _targets(y):
    return np.stack([y * 0.5, y**2 + 0.25], axis=1)


_FEW = {"max_depth": 2, "max_rounds": 2}

# Name: (kind, settings, whether samples have missing values, whether to fit targets).
GROWN = {
    "features": ("features", {}, False, False),
    "missing values and categories": ("features", {"categorical": [4]}, True, False),
    "regression": ("features", {}, False, True),
    "extra": ("extra", {"bootstrap": True}, False, False),
    "random": ("random", {}, True, False),
    "projections": ("sparse", {}, False, False),
    "projections, missing values": ("sparse", {"n_projections": 3}, True, False),
    "probes, missing values": ("probe", {}, True, True),
    "co2": ("co2", _FEW, False, False),
    "co2, bootstrap, regression": ("co2", {"bootstrap": True, **_FEW}, False, True),
}


def _arguments(name, dtype):
    kind, settings, missing, regression = GROWN[name]
    x, y = samples(dtype, missing=missing)
    settings = dict(settings, task="regression") if regression else dict(settings)
    x = hforest.samples(x, categorical=settings.pop("categorical", None))
    return functools.partial(GROWERS[kind], x, _targets(y) if regression else y, rng=7, **settings)


def _tree(forest, m):
    """Returns the arrays of one tree, independent of its position."""
    a, b = int(forest.tree_start[m]), int(forest.tree_start[m + 1])
    parts = [forest.value[(a + m) // 2 : (b + m + 1) // 2]]
    for name in ("feature", "threshold", "left", "gain", "default_left"):
        parts.append(getattr(forest, name)[a:b])
    sets = forest.category_indptr, forest.category_bits
    for indptr, *arrays in (sets, (forest.indptr, forest.indices, forest.data)):
        if indptr.size and indptr[b] > indptr[a]:  # otherwise a single tree has no such arrays
            parts += [np.diff(indptr[a : b + 1]), *(array[indptr[a] : indptr[b]] for array in arrays)]
    return b"".join(part.tobytes() for part in parts)


@pytest.mark.parametrize("name", list(GROWN))
def test_ranges_are_parts_of_the_forest(name, backend, dtype, tmp_path):
    grown = _arguments(name, dtype)
    whole = grown(N_TREES)
    trees = [_tree(whole, m) for m in range(N_TREES)]
    assert len(set(trees)) > 1  # otherwise first_tree would have no effect
    parts = [grown(count, first_tree=first) for first, count in RANGES]
    for (first, count), part in zip(RANGES, parts, strict=True):
        assert [_tree(part, m) for m in range(count)] == trees[first : first + count], first
    joined = tree.join(parts)
    assert_same_bits(joined, whole)
    assert tree.check(joined) is joined
    tree.save(tmp_path / "forest.npz", joined)
    assert_same_bits(tree.load(tmp_path / "forest.npz"), joined)


@pytest.mark.parametrize("name", list(GROWN))
def test_ranges_are_the_same_in_every_backend(name, dtype):
    grown, found = _arguments(name, dtype), []
    for where in ("reference", "cpu", "host"):
        with entered(where):
            found.append(grown(2, first_tree=1000))
    for other in found[1:]:
        for i, (a, b) in enumerate(zip(found[0], other, strict=True)):
            if a.dtype.kind == "f":
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-9)
            else:
                np.testing.assert_array_equal(a, b, err_msg=str(i))


def test_counts_of_a_range(backend):
    whole = growth.bootstrap_counts(40, N_TREES, rng=3)
    for first, count in RANGES:
        some = growth.bootstrap_counts(40, count, first_tree=first, rng=3)
        np.testing.assert_array_equal(some, whole[first : first + count])
    x, y = samples(np.float64, n=40)
    drawn, given = (
        hforest.grow(x, y, 2, first_tree=2, rng=3, bootstrap=counts) for counts in (True, whole[2:4])
    )
    assert_same_bits(drawn, given)
    of_all = tree.out_of_bag(hforest.grow(x, y, N_TREES, rng=3), x, whole)
    assert of_all.shape == tree.out_of_bag(drawn, x, whole[2:4]).shape


def test_a_generator_gives_the_seed():
    x, y = samples(np.float32)
    a, b = (hforest.grow(x, y, 2, first_tree=1, rng=rng) for rng in (np.random.default_rng(5), 5))
    assert_same_bits(a, b)


@pytest.mark.parametrize("name", GROWERS)
def test_progress_counts_the_trees_of_the_range(name):
    x, y = samples(np.float32)
    seen = []
    forest = GROWERS[name](x, y, 5, first_tree=9, rng=0, progress=lambda *numbers: seen.append(numbers))
    assert seen[-1] == (5, 5)
    assert forest.n_trees == 5


@pytest.mark.parametrize("name", GROWERS)
@pytest.mark.parametrize(
    ("first", "error", "message"),
    [
        (-1, ValueError, "first_tree: expected at least 0, got -1; "),
        (0.0, TypeError, "first_tree: expected an int, got float; "),
        (True, TypeError, "first_tree: expected an int, got bool; "),
        (2**20 - 1, ValueError, "first_tree: expected first_tree + n_trees <= 1048576, got 1048575 + 2; number "),
    ],
)  # fmt: skip
def test_bad_first_tree(name, first, error, message):
    x, y = samples(np.float64)
    with pytest.raises(error) as caught:
        GROWERS[name](x, y, 2, first_tree=first)
    assert str(caught.value).startswith(message)
    with pytest.raises(error):
        growth.bootstrap_counts(4, 2, first_tree=first if first < 2**20 - 1 else 2**31 - 2)


def test_the_last_range():
    x, y = samples(np.float64)
    assert hforest.grow(x, y, 1, first_tree=2**20 - 1, rng=0).tree_start.size == 2
    with hforest.using("reference"):
        assert growth.bootstrap_counts(4, 1, first_tree=2**31 - 2, rng=0).sum() == 4


# -------------------------------------------------------------------------------------------- join


@pytest.mark.parametrize("name", list(GROWN))
def test_a_joined_forest_predicts_the_mean_over_trees(name, dtype):
    grown = _arguments(name, dtype)
    x, _ = samples(dtype, missing=GROWN[name][2])
    parts = [grown(count, first_tree=first) for first, count in RANGES]
    joined = tree.join(parts)
    leaf = np.concatenate([tree.apply(part, x) for part in parts], axis=1)
    np.testing.assert_array_equal(tree.apply(joined, x), leaf)
    mean = sum(n * tree.predict(part, x) for part, (_, n) in zip(parts, RANGES, strict=True)) / N_TREES
    np.testing.assert_allclose(tree.predict(joined, x), mean, rtol=1e-5)
    with hforest.using("reference"):
        np.testing.assert_array_equal(tree.predict(joined, x), tree.predict(tree.join(parts), x))


def test_joined_arrays_are_new():
    forest = _arguments("features", np.float64)(2)
    joined = tree.join([forest])
    assert_same_bits(joined, forest)
    for name, a, b in zip(forest._fields, joined, forest, strict=True):
        assert not np.shares_memory(a, b), name


def test_a_forest_grows_on():
    grown = _arguments("features", np.float64)
    forest = grown(2)
    for n_trees in (3, 4):
        forest = tree.join((forest, grown(1, first_tree=n_trees - 1)))
    assert_same_bits(forest, grown(4))


def _joined_leaves(x, forests):
    """Returns the leaves of forests joined, after a comparison with theirs."""
    leaf = tree.apply(tree.check(tree.join(forests)), x)
    np.testing.assert_array_equal(leaf, np.concatenate([tree.apply(f, x) for f in forests], axis=1))
    return leaf


def test_splits_of_features_and_of_projections():
    axis, oblique = (_arguments(name, np.float64)(3) for name in ("features", "projections"))
    _joined_leaves(samples(np.float64)[0], [axis, oblique, axis])


def test_sets_of_categories_in_some_alone():
    sets = _arguments("missing values and categories", np.float64)(4)
    assert sets.category_bits.size
    x, y = samples(np.float64, missing=True)
    oblique, numbers = (grow(x, y, 3, kind=kind, rng=1) for kind in ("sparse", "features"))
    _joined_leaves(x, [oblique, sets, numbers, sets])


def test_missing_values_that_some_forests_know():
    x, y = samples(np.float64)
    knows = _arguments("random", np.float64)(2)
    plain = hforest.grow(x, y, 2, rng=0)._replace(default_left=np.zeros(0, np.uint8))
    for forests, message in (
        ([knows, plain], r"^forests\[1\].default_left: expected n_nodes numbers as in forests\[0\], got none; "),
        ([plain, plain, knows], r"^forests\[2\].default_left: expected none as in forests\[0\], got n_nodes numbers; "),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            tree.join(forests)
    # The remedy works.
    left = plain._replace(default_left=(plain.feature != -1).astype(np.uint8))
    joined = tree.join([knows, left])
    x, _ = samples(np.float64, missing=True)
    np.testing.assert_array_equal(
        tree.apply(joined, x)[:, 2:], tree.apply(plain, np.nan_to_num(x, nan=-np.finfo(float).max))
    )


def _other(**settings):
    x, y = samples(settings.pop("dtype", np.float64), n_features=settings.pop("n_features", 5))
    return hforest.grow(x, y, 2, rng=0, **settings)


@pytest.mark.parametrize(
    ("forests", "error", "message"),
    [
        ([], ValueError, "forests: expected at least one forest, got none; "),
        (None, TypeError, "forests: expected a sequence of forests, got NoneType; "),
        ("ab", TypeError, "forests: expected a sequence of forests, got str; "),
        (_other(), TypeError, "forests: expected a sequence of forests, got Forest; "),
        ([_other(), 3], TypeError, "forests[1]: expected a hforest.tree.Forest, got int; "),
        ([_other(), _other(dtype=np.float32)], TypeError, "forests[1]: expected dtype = float64 as in forests[0], got float32; "),
        ([_other(), _other(n_features=6)], ValueError, "forests[1]: expected n_features = 5 as in forests[0], got 6; "),
        ([_other(), _other(n_classes=4)], ValueError, "forests[1]: expected n_outputs = 3 as in forests[0], got 4; "),
        ([_other()._replace(left=np.zeros(3, np.int32))], ValueError, "forests[0].left: expected shape "),
        ([_other(), _other()._replace(left=_other().left * 0)], IndexError, "forests[1]: expected nodes that lead to leaves"),
    ],
)  # fmt: skip
def test_forests_that_do_not_fit(forests, error, message):
    with pytest.raises(error) as caught:
        tree.join(forests)
    assert str(caught.value).startswith(message)
