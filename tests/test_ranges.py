"""Forests grown in ranges of trees and joined are bit-identical to those of one call."""

import functools

import numpy as np
import pytest
from conftest import entered

import hforest
from hforest import classic, co2, growth, manifold, project, tree

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


def _on_bins(x, y, n_trees, **settings):
    return growth.grow(growth.encode(x), y, n_trees, **settings)


def _projected(x, y, n_trees, **settings):
    distribution = project.sparse_distribution(x.shape[1], 1.5)
    grown = growth.grow_projected(x, y, n_trees, distribution, n_projections=3, **settings)
    return (*grown.trees, *grown[1:])


_FEW = {"max_depth": 2, "max_rounds": 2}

# Name: (function, settings, whether samples have missing values, whether to fit targets).
GROWN = {
    "classic": (classic.grow, {}, False, False),
    "classic, missing values and categories": (classic.grow, {"categorical": [4]}, True, False),
    "classic, regression": (classic.grow, {}, False, True),
    "extra": (classic.grow_extra, {"bootstrap": True}, False, False),
    "random": (classic.grow_random, {}, True, False),
    "manifold": (manifold.grow, {"projection": "sparse"}, False, False),
    "manifold, missing values": (manifold.grow, {"projection": "probe"}, True, True),
    "co2": (co2.grow, _FEW, False, False),
    "co2, bootstrap, regression": (co2.grow, {"bootstrap": True, **_FEW}, False, True),
    "growth.grow": (_on_bins, {}, False, False),
    "growth.grow_projected": (_projected, {}, True, False),
}


def _arguments(name, dtype):
    grow, settings, missing, regression = GROWN[name]
    x, y = samples(dtype, missing=missing)
    more = dict(settings, task="regression") if regression else settings
    return functools.partial(grow, x, _targets(y) if regression else y, rng=7, **more)


def bits(forest):
    return [(a.dtype, a.shape, a.tobytes()) for a in forest]


def _tree(arrays, m):
    """Returns the arrays of one tree, independent of its position, as in a Forest without n_features."""
    (start, feature, threshold, left, value, gain, default, set_start, words, *projections) = arrays
    a, b = int(start[m]), int(start[m + 1])
    rows = slice((a + m) // 2, (b + m + 1) // 2)
    parts = [feature[a:b], threshold[a:b], left[a:b], value[rows], gain[a:b], default[a:b]]
    if set_start.size and set_start[b] > set_start[a]:  # otherwise a single tree has no such arrays
        parts += [np.diff(set_start[a : b + 1]), words[set_start[a] : set_start[b]]]
    if projections and projections[0].size:
        indptr, indices, data = projections
        entries = slice(int(indptr[a]), int(indptr[b]))
        parts += [np.diff(indptr[a : b + 1]), indices[entries], data[entries]]
    return b"".join(part.tobytes() for part in parts)


def _arrays(grown):
    if not isinstance(grown, tree.Forest):
        return grown
    d = grown._asdict()
    names = ("tree_start", "feature", "threshold", "left", "value", "gain", *tree.Forest._fields[-3:])
    return tuple(d[name] for name in (*names, "indptr", "indices", "data"))


@pytest.mark.parametrize("name", list(GROWN))
def test_ranges_are_parts_of_the_forest(name, backend, dtype):
    grow = _arguments(name, dtype)
    whole = _arrays(grow(N_TREES))
    trees = [_tree(whole, m) for m in range(N_TREES)]
    assert len(set(trees)) > 1  # otherwise first_tree would have no effect
    for first, count in RANGES:
        some = _arrays(grow(count, first_tree=first))
        assert [_tree(some, m) for m in range(count)] == trees[first : first + count], first


@pytest.mark.parametrize("name", list(GROWN))
def test_ranges_are_the_same_in_every_backend(name, dtype):
    grow = _arguments(name, dtype)
    found = []
    for where in ("reference", "cpu", "host"):
        with entered(where):
            found.append(_arrays(grow(2, first_tree=1000)))
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
    drawn = classic.grow(x, y, 2, first_tree=2, rng=3)
    given = classic.grow(x, y, 2, first_tree=2, rng=3, bootstrap=whole[2:4])
    assert bits(drawn) == bits(given)
    np.testing.assert_array_equal(
        tree.out_of_bag(classic.grow(x, y, N_TREES, rng=3), x, whole).shape,
        tree.out_of_bag(drawn, x, whole[2:4]).shape,
    )


def test_a_generator_gives_the_seed():
    x, y = samples(np.float32)
    a = classic.grow(x, y, 2, first_tree=1, rng=np.random.default_rng(5))
    assert bits(a) == bits(classic.grow(x, y, 2, first_tree=1, rng=5))


@pytest.mark.parametrize(
    "grow", [classic.grow, classic.grow_extra, classic.grow_random, manifold.grow, co2.grow]
)
def test_progress_counts_the_trees_of_the_range(grow):
    x, y = samples(np.float32)
    seen = []
    forest = grow(x, y, 5, first_tree=9, rng=0, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (5, 5)
    assert forest.tree_start.size == 6


@pytest.mark.parametrize(
    "grow",
    [classic.grow, classic.grow_extra, classic.grow_random, manifold.grow, co2.grow, _on_bins, _projected],
)
@pytest.mark.parametrize(
    ("first", "error", "message"),
    [
        (-1, ValueError, "first_tree: expected at least 0, got -1; "),
        (0.0, TypeError, "first_tree: expected an int, got float; "),
        (True, TypeError, "first_tree: expected an int, got bool; "),
        (
            2**20 - 1,
            ValueError,
            "first_tree: expected first_tree + n_trees <= 1048576, got 1048575 + 2; number ",
        ),
    ],
)
def test_bad_first_tree(grow, first, error, message):
    x, y = samples(np.float64)
    with pytest.raises(error) as caught:
        grow(x, y, 2, first_tree=first)
    assert str(caught.value).startswith(message)
    with pytest.raises(error):
        growth.bootstrap_counts(4, 2, first_tree=first if first < 2**20 - 1 else 2**31 - 2)


def test_the_last_range():
    x, y = samples(np.float64)
    assert classic.grow(x, y, 1, first_tree=2**20 - 1, rng=0).tree_start.size == 2
    with hforest.using("reference"):
        assert growth.bootstrap_counts(4, 1, first_tree=2**31 - 2, rng=0).sum() == 4


# -------------------------------------------------------------------------------------------- join

FORESTS = [name for name in GROWN if not name.startswith("growth.")]


@pytest.mark.parametrize("name", FORESTS)
def test_joined_ranges_are_the_forest(name, backend, dtype, tmp_path):
    grow = _arguments(name, dtype)
    parts = [grow(count, first_tree=first) for first, count in RANGES]
    joined = tree.join(parts)
    assert bits(joined) == bits(grow(N_TREES))
    assert tree.check(joined) is joined
    tree.save(tmp_path / "forest.npz", joined)
    assert bits(tree.load(tmp_path / "forest.npz")) == bits(joined)


@pytest.mark.parametrize("name", FORESTS)
def test_a_joined_forest_predicts_the_mean_over_trees(name, dtype):
    grow = _arguments(name, dtype)
    x, _ = samples(dtype, missing=GROWN[name][2])
    parts = [grow(count, first_tree=first) for first, count in RANGES]
    joined = tree.join(parts)
    leaf = np.concatenate([tree.apply(part, x) for part in parts], axis=1)
    np.testing.assert_array_equal(tree.apply(joined, x), leaf)
    mean = (
        sum(count * tree.predict(part, x) for part, (_, count) in zip(parts, RANGES, strict=True)) / N_TREES
    )
    np.testing.assert_allclose(tree.predict(joined, x), mean, rtol=1e-5)
    with hforest.using("reference"):
        np.testing.assert_array_equal(tree.predict(joined, x), tree.predict(tree.join(parts), x))


def test_joined_arrays_are_new():
    forest = _arguments("classic", np.float64)(2)
    joined = tree.join([forest])
    assert bits(joined) == bits(forest)
    for name, a, b in zip(forest._fields, joined, forest, strict=True):
        assert not np.shares_memory(a, b), name


def test_a_forest_grows_on():
    grow = _arguments("classic", np.float64)
    forest = grow(2)
    for n_trees in (3, 4):
        forest = tree.join((forest, grow(1, first_tree=n_trees - 1)))
    assert bits(forest) == bits(grow(4))


def test_splits_of_features_and_of_projections():
    axis, oblique = (_arguments(name, np.float64)(3) for name in ("classic", "manifold"))
    x, _ = samples(np.float64)
    joined = tree.check(tree.join([axis, oblique, axis]))
    leaf = [tree.apply(forest, x) for forest in (axis, oblique, axis)]
    np.testing.assert_array_equal(tree.apply(joined, x), np.concatenate(leaf, axis=1))


def test_sets_of_categories_in_some_alone():
    sets = _arguments("classic, missing values and categories", np.float64)(4)
    assert sets.category_bits.size
    x, y = samples(np.float64, missing=True)
    oblique = manifold.grow(x, y, 3, projection="sparse", rng=1)
    numbers = classic.grow(x, y, 3, rng=1)
    some = [oblique, sets, numbers, sets]
    joined = tree.check(tree.join(some))
    leaf = [tree.apply(forest, x) for forest in some]
    np.testing.assert_array_equal(tree.apply(joined, x), np.concatenate(leaf, axis=1))


def test_missing_values_that_some_forests_know():
    x, y = samples(np.float64)
    knows = _arguments("random", np.float64)(2)
    plain = classic.grow(x, y, 2, rng=0)
    with pytest.raises(
        ValueError,
        match=r"^forests\[1\].default_left: expected n_nodes numbers as in forests\[0\], got none; ",
    ):
        tree.join([knows, plain])
    with pytest.raises(
        ValueError,
        match=r"^forests\[2\].default_left: expected none as in forests\[0\], got n_nodes numbers; ",
    ):
        tree.join([plain, plain, knows])
    # The remedy works.
    left = plain._replace(default_left=(plain.feature != -1).astype(np.uint8))
    joined = tree.join([knows, left])
    x, _ = samples(np.float64, missing=True)
    np.testing.assert_array_equal(
        tree.apply(joined, x)[:, 2:], tree.apply(plain, np.nan_to_num(x, nan=-np.finfo(float).max))
    )


def _other(**settings):
    x, y = samples(settings.pop("dtype", np.float64), n_features=settings.pop("n_features", 5))
    return classic.grow(x, y, 2, rng=0, **settings)


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
