"""Forests as arrays: walks in every backend, errors of `check`, inspection, conversion."""

import functools
import pickle

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import converted
from growers import assert_all_same, on_paths, on_threads
from paths.tree import forest_of

import hforest
from hforest import tree
from hforest.core import blocks, machine
from hforest.tree import Forest

pytestmark = pytest.mark.kernels


def random_forest(n_trees, depth, n_features, n_outputs, dtype, seed, oblique=False, stop=0.2):
    """Returns trees of random shape, breadth-first; thresholds are multiples of 1/4, so that inputs tie with them."""
    rng = np.random.default_rng(seed)
    parts = {"feature": [], "threshold": [], "left": [], "entries": []}
    sizes = []
    for _ in range(n_trees):
        feature, threshold, left, entries = [-1], [0.0], [0], [[]]
        level = [0]
        for _ in range(depth):
            below = []
            for v in level:
                if rng.random() < stop and len(feature) > 1:
                    continue
                use = oblique and rng.random() < 0.7
                feature[v] = -2 if use else int(rng.integers(n_features))
                entries[v] = (
                    sorted(rng.choice(n_features, int(rng.integers(0, min(4, n_features + 1))), False))
                    if use
                    else []
                )
                threshold[v], left[v] = float(rng.integers(-4, 5)) / 4, len(feature)
                below += [len(feature), len(feature) + 1]
                for a, blank in ((feature, -1), (threshold, 0.0), (left, 0), (entries, [])):
                    a += [blank, blank]
            level = below
        rows = np.cumsum(np.array(feature) == -1) - 1
        left = np.where(np.array(feature) == -1, rows, left)
        for name, a in (("feature", feature), ("threshold", threshold), ("left", left), ("entries", entries)):
            parts[name].extend(a)
        sizes.append(len(feature))
    n_nodes, n_leaves = sum(sizes), (sum(sizes) + n_trees) // 2
    feature = np.array(parts["feature"], np.int32)
    counts = [len(e) for e in parts["entries"]]
    value = rng.random((n_leaves, n_outputs))
    return Forest(
        n_features=np.array(n_features), tree_start=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        feature=feature, threshold=np.array(parts["threshold"], dtype), left=np.array(parts["left"], np.int32),
        value=np.round(value / value.sum(1, keepdims=True), 3).astype(dtype),
        gain=np.where(feature == -1, 0, rng.random(n_nodes)).astype(dtype),
        indptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64) if oblique else np.zeros(0, np.int64),
        indices=np.array([i for e in parts["entries"] for i in e] if oblique else [], np.int32),
        data=rng.choice([-1, 1], sum(counts) if oblique else 0).astype(dtype),
    )  # fmt: skip


def inputs(n, n_features, dtype, seed=0):
    return (np.random.default_rng(seed).integers(-4, 5, (n, n_features)) / 4).astype(dtype)


STUMP = Forest(
    n_features=np.array(2), tree_start=np.array([0, 3]), feature=np.array([1, -1, -1], np.int32),
    threshold=np.array([0.5, 0, 0]), left=np.array([1, 0, 1], np.int32), value=np.array([[0.25, 0.75], [1, 0]]),
    gain=np.array([8.0, 0, 0]), indptr=np.zeros(0, np.int64), indices=np.zeros(0, np.int32), data=np.zeros(0),
)  # fmt: skip
X = np.array([[9, 0.5], [9, np.nextafter(0.5, 1)], [0, -1]])


# -------------------------------------------------------------------------------------------- walks


def test_a_stump_by_hand(backend):
    assert tree.apply(STUMP, X).ravel().tolist() == [1, 2, 1]
    assert tree.predict(STUMP, X).tolist() == [[0.25, 0.75], [1, 0], [0.25, 0.75]]
    assert tree.vote_shares(STUMP, X).tolist() == [[0, 1], [1, 0], [0, 1]]


@hypothesis.given(
    n=st.integers(0, 21), n_trees=st.integers(1, 19), depth=st.integers(0, 6), n_features=st.integers(1, 5),
    n_outputs=st.integers(1, 4), oblique=st.booleans(), seed=st.integers(0, 2**16),
)  # fmt: skip
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_backends_agree(
    fast_backend, dtype, reference, n, n_trees, depth, n_features, n_outputs, oblique, seed
):
    forest = random_forest(n_trees, depth, n_features, n_outputs, dtype, seed, oblique)
    x = inputs(n, n_features, dtype, seed)
    moved, there = Forest(*(fast_backend.array(a) for a in forest)), fast_backend.array(x)
    for function in (tree.apply, tree.predict, tree.vote_shares):
        got, want = fast_backend.numpy(function(moved, there)), reference(function, forest, x)
        assert got.dtype == want.dtype
        assert got.tobytes() == want.tobytes(), function.__name__
        assert got.shape == want.shape


@pytest.mark.parametrize("n", [1, 7, 128, 129, 300])
def test_packed_and_plain_walks_agree(reference, dtype, n):
    # Few samples in a large forest are walked unpacked, many packed.
    forest = random_forest(30, 9, 6, 3, dtype, 3)
    x = inputs(n, 6, dtype)
    want = reference(tree.apply, forest, x[:40])
    np.testing.assert_array_equal(tree.apply(forest, x)[:40], want)
    one_by_one = np.concatenate([tree.apply(forest, x[i : i + 1]) for i in range(n)])
    np.testing.assert_array_equal(tree.apply(forest, x), one_by_one)
    rows = np.concatenate([tree.predict(forest, x[i : i + 1]) for i in range(n)])
    assert tree.predict(forest, x).tobytes() == rows.tobytes()


def test_threads_change_nothing(threads):
    forest, x = random_forest(40, 8, 5, 3, np.float32, 1), inputs(700, 5, np.float32)
    assert_all_same(on_threads(threads, lambda: (tree.apply(forest, x), tree.predict(forest, x))))


def test_out_is_used():
    out = np.empty((3, 2))
    assert tree.predict(STUMP, X, out=out) is out
    assert out.tolist() == tree.predict(STUMP, X).tolist()
    leaf = np.empty((3, 1), np.int32)
    assert tree.apply(STUMP, X, out=leaf) is leaf
    with pytest.raises(ValueError, match="out: expected shape"):
        tree.vote_shares(STUMP, X, out=np.empty((2, 2)))
    with pytest.raises(ValueError, match="out: expected memory that no other argument uses"):
        tree.predict(STUMP, X, out=X)


# -------------------------------------------------------------------------------------------- check


@pytest.mark.parametrize("oblique", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 7])
def test_a_sound_forest_passes(backend, dtype, oblique, depth):
    forest = random_forest(5, depth, 4, 2, dtype, 2, oblique)
    assert tree.check(forest) is forest


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("left", [0, 0, 1], IndexError, "a child that does not come after"),
        ("left", [-1, 0, 1], IndexError, "a child that does not come after"),
        ("left", [2, 0, 1], IndexError, "a child that does not come after"),
        ("left", [1, 0, 2], IndexError, "a leaf whose row"),
        ("left", [1, -1, 1], IndexError, "a leaf whose row"),
        ("feature", [2, -1, -1], IndexError, "a feature outside"),
        ("feature", [-2, -1, -1], IndexError, "a feature outside"),
        ("feature", [-7, -1, -1], IndexError, "a feature outside"),
        ("feature", [1, -1], ValueError, "forest.threshold: expected shape"),
        ("threshold", [np.nan, 0, 0], ValueError, "a threshold that is NaN"),
        ("tree_start", [0, 2], ValueError, "forest.tree_start"),
        ("tree_start", [1, 3], ValueError, "forest.tree_start"),
        ("tree_start", [0, 4], ValueError, "forest.tree_start"),
        ("tree_start", [0], ValueError, "n_trees: expected at least 1"),
        ("tree_start", [], ValueError, "n_trees: expected at least 1"),
        ("tree_start", [0, 5, 3], ValueError, "forest.value: expected"),
        ("value", [[0.25, np.inf], [1, 0]], ValueError, "forest.value: expected finite"),
        ("value", [[1.0]], ValueError, "forest.value: expected .* rows"),
        ("value", np.zeros((2, 0)), ValueError, "n_outputs: expected at least 1"),
        ("indptr", [0, 0], ValueError, "forest.indptr: expected shape"),
        ("n_features", -1, ValueError, "forest.n_features"),
    ],
)
def test_a_broken_forest_is_refused(backend, name, value, error, message):
    broken = STUMP._replace(**{name: np.array(value, getattr(STUMP, name).dtype)})
    with pytest.raises(error, match=message):
        tree.check(broken)
    if name not in ("value", "n_features"):  # predictions do not check these
        with pytest.raises(error, match=message):
            tree.predict(broken, X)


def oblique_stump(indptr, indices, data):
    """Returns the stump with a projection at its root."""
    return STUMP._replace(
        feature=np.array([-2, -1, -1], np.int32), indptr=np.array(indptr), indices=np.array(indices, np.int32),
        data=np.array(data),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("start", "index", "message"),
    [
        ([0, 1, 1, 1], [2], "a projection with a feature outside"),
        ([0, 1, 1, 1], [-1], "a projection with a feature outside"),
        ([0, 2, 2, 2], [1], "a projection outside indices"),
        ([-1, 1, 1, 1], [1], "a projection outside indices"),
        ([1, 0, 1, 1], [1], "a projection outside indices"),
    ],
)
def test_a_broken_projection_is_refused(backend, start, index, message):
    broken = oblique_stump(start, index, [1.0])
    with pytest.raises(IndexError, match=message):
        tree.check(broken)
    sound = broken._replace(indptr=np.array([0, 1, 1, 1]), indices=np.array([1], np.int32))
    assert tree.apply(sound, X).ravel().tolist() == [1, 2, 1]


def two_parents(length, dtype):
    # Node 11 is a child of node 5, and of node 7 a level higher, which comes later. As many splits as leaves
    # allow: nodes 9 and 10 have no parent.
    n_nodes = 11 + 2 * length + 2
    feature, left = np.full(n_nodes, -1), np.zeros(n_nodes, int)
    for v, to in ((0, 1), (1, 3), (2, 7), (3, 5), (5, 11), (7, 11)):
        feature[v], left[v] = v % 3, to
    feature[11 : n_nodes - 2 : 2], left[11 : n_nodes - 2 : 2] = 1, np.arange(13, n_nodes, 2)
    return joined([(feature, np.full(n_nodes, 0.25), left)], 3, 2, dtype)


@pytest.mark.parametrize("length", [1, 5, 60])
def test_two_parents_of_a_child_are_refused(backend, dtype, length):
    forest = two_parents(length, dtype)
    both = forest._replace(left=np.where(np.arange(len(forest.left)) == 2, 5, forest.left).astype(np.int32))
    sound = random_forest(2, 4, 3, 2, dtype, 3)
    for bad, message in (
        (forest, "a node without a parent at node 9 of tree 0"),
        (both, "a child of two parents at node 5 of tree 0"),
    ):
        for function in (tree.check, tree.to_text, tree.importance):
            with pytest.raises(IndexError, match=message):
                function(bad)
        x = inputs(3, 3, dtype)
        with pytest.raises(IndexError, match=message):
            tree.predict(bad, x)
        with pytest.raises(IndexError, match=message):
            tree.path(bad, x[0])
        # A tree after others that are sound.
        behind = Forest(
            *(np.concatenate([a, b]) if a.ndim and a.size else a for a, b in zip(sound, bad, strict=True))
        )
        behind = behind._replace(
            tree_start=np.append(sound.tree_start, sound.tree_start[-1] + bad.tree_start[1])
        )
        with pytest.raises(IndexError, match=message.replace("tree 0", "tree 2")):
            tree.check(behind)


def test_a_text_of_exponential_length_is_refused():
    # Both children of a split are splits with the same children: more than 2 ** 40 paths.
    n_nodes = 163
    feature, left = np.full(n_nodes, -1), np.zeros(n_nodes, int)
    feature[:81], left[0] = 0, 1
    left[1:81:2] = left[2:81:2] = np.arange(3, 83, 2)
    forest = joined([(feature, np.zeros(n_nodes), left)], 1, 1, np.float64)
    with pytest.raises(IndexError, match="a child of two parents at node 3 of tree 0"):
        tree.to_text(forest)


@pytest.mark.parametrize(("feature", "node"), [([-1, -1, -1], 1), ([0, -1, -1, -1, -1], 3)])
def test_a_node_without_a_parent_is_refused(backend, feature, node):
    forest = joined([(feature, np.zeros(len(feature)), np.ones(len(feature)))], 1, 1, np.float64)
    left = np.where(np.array(feature) == -1, 0, forest.left).astype(np.int32)
    with pytest.raises(IndexError, match=f"a node without a parent at node {node} of tree 0"):
        tree.check(forest._replace(left=left))


def test_leaves_may_share_a_row(backend):
    shared = STUMP._replace(left=np.array([1, 1, 1], np.int32))
    assert tree.check(shared) is shared
    assert tree.predict(shared, X).tolist() == [[1, 0]] * 3


@hypothesis.given(
    n_trees=st.integers(1, 4), depth=st.integers(0, 5), oblique=st.booleans(), seed=st.integers(0, 2**16),
    n_changed=st.integers(0, 3), swapped=st.booleans(),
)  # fmt: skip
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_backends_find_the_same_fault(
    fast_backend, dtype, reference, n_trees, depth, oblique, seed, n_changed, swapped
):
    forest = random_forest(n_trees, depth, 3, 2, dtype, seed, oblique)
    rng = np.random.default_rng(seed)
    feature, left, threshold = forest.feature.copy(), forest.left.copy(), forest.threshold.copy()
    splits = np.flatnonzero(feature != -1)
    if swapped and len(splits) > 1:
        # The children of two splits change places: sound if both still come after their parent.
        a, b = rng.choice(splits, 2)
        left[[a, b]] = left[[b, a]]
    for at in rng.integers(0, len(feature), n_changed):
        left[at] = rng.integers(-1, 2 * len(feature) // n_trees)
        feature[at] = rng.choice([feature[at], -1, 0, 3])
        threshold[at] = rng.choice([threshold[at], np.nan])
    changed = forest._replace(feature=feature, left=left, threshold=threshold)

    def outcome(a):
        try:
            tree.check(a)
        except (IndexError, ValueError) as error:
            return str(error)
        return None

    assert outcome(Forest(*(fast_backend.array(a) for a in changed))) == reference(outcome, changed)
    if outcome(changed) is None:
        for m, root in enumerate(changed.tree_start[:-1]):
            nodes = slice(root, changed.tree_start[m + 1])
            children = changed.left[nodes][changed.feature[nodes] != -1]
            both = np.sort(np.concatenate([children, children + 1]))
            np.testing.assert_array_equal(both, np.arange(1, changed.tree_start[m + 1] - root))


def test_the_first_fault_is_named(backend):
    forest = random_forest(9, 4, 4, 2, np.float64, 5)
    feature = forest.feature.copy()
    split = np.flatnonzero(feature >= 0)
    feature[split[5:]] = 99
    where = np.searchsorted(forest.tree_start, split[5], side="right") - 1
    with pytest.raises(IndexError, match=rf"node {split[5] - forest.tree_start[where]} of tree {where};"):
        tree.check(forest._replace(feature=feature))


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.zeros((2, 3)), ValueError, r"x: expected shape \(n_samples, n_features\) = \(n_samples, 2\)"),
        (np.zeros(2), ValueError, r"x: expected shape .*; pass \[x\] for one sample"),
        (
            np.zeros((2, 2, 1)),
            ValueError,
            r"x: expected shape .*; pass a row for each sample, x.reshape\(len\(x\), -1\)",
        ),
        (np.array([[0, np.nan]]), ValueError, "x: expected finite"),
        (np.array([[0, np.inf]], np.float32), ValueError, "x: expected finite"),
        ([[0.0, None]], TypeError, "x: expected numbers, got None"),
        ([["a", "b"]], TypeError, "x: expected an array of real numbers"),
        (np.zeros((2, 2), complex), TypeError, "x: expected an array of real numbers"),
        (np.ma.masked_array(np.zeros((2, 2))), TypeError, "x: expected an array without a mask"),
        (None, TypeError, "x: expected an array of real numbers"),
    ],
)
def test_bad_x(x, error, message):
    for function in (tree.apply, tree.predict, tree.vote_shares):
        with pytest.raises(error, match=message):
            function(STUMP, x)


@pytest.mark.parametrize(
    "given",
    [np.asarray, np.asfortranarray, np.float32, np.ndarray.tolist, lambda x: converted(x, "columns apart")],
)
def test_the_remedy_against_nan_is_that_of_the_forest(given, monkeypatch):
    x = given(np.array([[0.0, np.nan], [1.0, 2.0]]))
    message = "x: expected finite .* index .0, 1.; impute or drop such samples, or grow the forest anew"
    for large in (False, True):
        if large:  # converted in blocks
            monkeypatch.setattr(blocks, "CONVERTED", 2)
        for function in (tree.apply, tree.predict, tree.vote_shares):
            with pytest.raises(ValueError, match=message):
                function(STUMP, x)
    with pytest.raises(ValueError, match="other: .* or grow the forest anew"):
        tree.proximity(STUMP, X, x)
    with pytest.raises(ValueError, match=message):
        tree.to_dict(STUMP, x)
    with pytest.raises(ValueError, match="x: .* or grow the forest anew"):
        tree.path(STUMP, x[0])


@pytest.mark.libraries
@pytest.mark.parametrize(
    "name",
    [
        "fortran", "reversed", "rows apart", "columns apart", "table", "frame", "list", ">f8", "object", "float16",
        "float32", "float64", "longdouble",
    ],
)  # fmt: skip
@pytest.mark.parametrize("oblique", [False, True])
def test_rows_are_converted_to_the_dtype_of_the_forest(dtype, name, oblique):
    forest = random_forest(9, 5, 4, 3, dtype, 7, oblique)
    x = inputs(50, 4, dtype, 3)  # multiples of 1/4, which every dtype represents
    other = converted(x, name)
    for function in (tree.apply, tree.predict, tree.vote_shares):
        want, got = function(forest, x), function(forest, other)
        assert got.dtype == (np.int32 if function is tree.apply else dtype)
        assert got.tobytes() == want.tobytes()
    if isinstance(other, np.ndarray):
        assert tree.path(forest, other[7], 2).tolist() == tree.path(forest, x[7], 2).tolist()


@pytest.mark.parametrize(
    "kind", [bool, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
)
def test_rows_of_whole_numbers(dtype, kind):
    forest = random_forest(9, 5, 4, 3, dtype, 7)
    whole = np.random.default_rng(1).integers(0, 2, (40, 4)).astype(kind)
    want = tree.predict(forest, whole.astype(dtype))
    assert np.unique(want).size > 3
    assert tree.predict(forest, whole).tobytes() == want.tobytes()


def test_rows_of_float64_are_rounded_to_a_forest_of_float32():
    # The row above the threshold rounds to the threshold, which goes left; a forest of float64 separates
    # them.
    above = np.array([[0, np.nextafter(0.5, 1)]])
    narrow = Forest(*(a.astype(np.float32) if a.dtype == np.float64 else a for a in STUMP))
    assert tree.apply(STUMP, above).item() == 2
    assert tree.apply(narrow, above).item() == tree.apply(narrow, above.astype(np.float32)).item() == 1
    with pytest.raises(ValueError, match="x: expected numbers in the range of float32"):
        tree.predict(narrow, np.array([[0, 1e300]]))
    # Single precision in a forest of float64 is exact.
    assert (
        tree.apply(STUMP, np.array([[0, np.nextafter(np.float32(0.5), np.float32(1))]], np.float32)).item()
        == 2
    )


def test_out_must_not_overlap_the_forest():
    single = joined([([-1], [0.0], [0])] * 3, 1, 2, np.float64)
    with pytest.raises(
        ValueError,
        match="out: expected memory that no other argument uses, got an array that overlaps forest.left",
    ):
        tree.apply(single, np.zeros((1, 1)), out=single.left.reshape(1, 3))
    with pytest.raises(TypeError, match="out: expected dtype float64"):
        tree.predict(STUMP, X, out=np.empty((3, 2), np.float32))


def test_a_forest_without_features_has_nothing_to_permute():
    single = STUMP._replace(
        n_features=np.array(0), tree_start=np.array([0, 1]), feature=np.array([-1], np.int32), threshold=np.zeros(1),
        left=np.zeros(1, np.int32), value=np.ones((1, 2)), gain=np.zeros(1),
    )  # fmt: skip
    for n in (1, 3, 3000):  # row by row, in blocks
        np.testing.assert_array_equal(tree.predict(single, np.zeros((n, 0))), np.ones((n, 2)))
        np.testing.assert_array_equal(tree.apply(single, np.zeros((n, 0))), np.zeros((n, 1)))
    with pytest.raises(
        ValueError, match="^n_features: expected at least 1, got 0; pass samples with features"
    ):
        tree.permutation_importance(single, np.zeros((3, 0)), np.zeros(3, np.int32))


def test_bad_kinds():
    model = hforest.tabular.fit(X, np.arange(len(X)) % 2, n_members=1, n_trees=1, steps=0, rng=0)
    swapped = "forest: .* got ndarray and the forest as x; swap them: the forest"
    for function, *arguments, words in (
        (tree.apply, tuple(STUMP), X, "forest: expected a hforest.tree.Forest"),
        *(
            (f, X, STUMP, swapped)
            for f in (tree.apply, tree.predict, tree.vote_shares, tree.path, tree.proximity)
        ),
        (tree.predict, model, X, "got Model; apply it by hforest.tabular.predict$"),
        (tree.permutation_importance, X, np.zeros(len(X)), STUMP, "got ndarray; pass the result of grow"),
        (tree.check, STUMP._replace(left=STUMP.left.astype(np.int64)), "forest.left: expected dtype int32"),
        (tree.check, STUMP._replace(n_features=2), "numpy.ndarray"),
    ):
        with pytest.raises(TypeError, match=words):
            function(*arguments)


def test_nan_stays_in_the_tree_unchecked():
    forest = random_forest(20, 6, 4, 2, np.float32, 0)
    with hforest.unchecked():
        for n in (1, 500):
            leaf = tree.apply(forest, np.full((n, 4), np.nan, np.float32))
            assert np.all(np.take(forest.feature, forest.tree_start[:-1] + leaf) == -1)


# ---------------------------------------------------------------------------------- every way down


@pytest.fixture(params=sorted({machine.simd_paths()[0], machine.simd_paths()[-1]}))
def path(request, simd):
    """Runs a test without vectors, and on the best vector path."""
    simd(request.param)


def walked(forest, x):
    """Returns leaves by the definition, level by level."""
    found = np.empty((len(x), len(forest.tree_start) - 1), np.int32)
    for m, root in enumerate(forest.tree_start[:-1]):
        v = np.zeros(len(x), np.int64)
        while True:
            feature = forest.feature[root + v]
            inside = feature >= 0
            if not inside.any():
                break
            value = x[np.arange(len(x)), np.where(inside, feature, 0)]
            v = np.where(inside, forest.left[root + v] + (value > forest.threshold[root + v]), v)
        found[:, m] = v
    return found


def joined(trees, n_features, n_outputs, dtype, seed=0, pure=False):
    """Returns a forest from trees (feature, threshold, left); `left` of leaves is filled in."""
    rng = np.random.default_rng(seed)
    sizes = [len(feature) for feature, _, _ in trees]
    rows = [np.where(np.array(f) < 0, np.cumsum(np.array(f) < 0) - 1, left) for f, _, left in trees]
    n_nodes, n_leaves = sum(sizes), (sum(sizes) + len(trees)) // 2
    value = rng.random((n_leaves, n_outputs))
    return Forest(
        n_features=np.array(n_features), tree_start=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        feature=np.concatenate([t[0] for t in trees]).astype(np.int32),
        threshold=np.concatenate([t[1] for t in trees]).astype(dtype),
        left=np.concatenate(rows).astype(np.int32),
        value=(np.eye(n_outputs)[value.argmax(axis=1)] if pure else value).astype(dtype),
        gain=np.zeros(n_nodes, dtype), indptr=np.zeros(0, np.int64), indices=np.zeros(0, np.int32),
        data=np.zeros(0, dtype),
    )  # fmt: skip


def chain(length, n_features, rng, right):
    """Returns a tree of maximum depth: every split has a leaf on one side."""
    n_nodes = 2 * length + 1
    feature, threshold, left = np.full(n_nodes, -1), np.zeros(n_nodes), np.zeros(n_nodes, int)
    split = 0
    for first in range(1, n_nodes, 2):
        feature[split], threshold[split] = rng.integers(n_features), rng.integers(-4, 5) / 4
        left[split] = first
        split = first + right
    return feature, threshold, left


def walked_by_rows(forest, x):
    """Adds columns that no tree reads: with many features, walks read rows in place of columns."""
    n_nodes, n_trees = len(forest.feature), len(forest.tree_start) - 1
    wide = np.zeros((len(x), max(x.shape[1], 8 * n_trees * (n_nodes // n_trees).bit_length() + 1)), x.dtype)
    wide[:, : x.shape[1]] = x
    return forest._replace(n_features=np.array(wide.shape[1])), wide


def check_ways(forest, x, leaves=None):
    """Checks leaves against the definition, and sums and votes against those of single rows."""
    leaves = walked(forest, x) if leaves is None else leaves
    for same, samples in ((forest, x), walked_by_rows(forest, x)):
        with hforest.unchecked():
            np.testing.assert_array_equal(tree.apply(same, samples), leaves)
            for function in (tree.predict, tree.vote_shares):
                rows = [function(same, samples[i : i + 1]) for i in range(min(len(x), 40))]
                assert function(same, samples)[:40].tobytes() == np.concatenate(rows).tobytes()


@functools.cache
def forest_of_depth(depth, dtype):
    return random_forest(11, depth, 6, 3, dtype, depth, stop=0.1)


@pytest.mark.parametrize("depth", [2, 4, 13])
@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("n", [5, 16, 37, 300, 3000])
def test_vector_paths_have_the_bits_of_the_plain_one(simd, dtype, n, pure, depth):
    # More samples than a block holds, leaves of one class or of several, trees in and out of registers.
    forest = forest_of_depth(depth, dtype)
    if pure:
        forest = forest._replace(value=np.eye(3, dtype=dtype)[forest.value.argmax(axis=1)])
    x = inputs(n, 6, dtype, n)
    functions = (tree.apply, tree.predict, tree.vote_shares)
    assert_all_same(on_paths(simd, lambda: [function(forest, x) for function in functions]))


@pytest.mark.parametrize("n", [1, 15, 16, 17, 33, 127, 129, 512, 513, 700])
def test_numbers_of_samples(path, dtype, n):
    check_ways(random_forest(5, 9, 3, 2, dtype, n), inputs(n, 3, dtype, n))


@pytest.mark.parametrize("n_outputs", [1, 2, 3, 8, 9, 16, 17, 40])
@pytest.mark.parametrize("pure", [False, True])
def test_numbers_of_outputs(path, dtype, n_outputs, pure):
    forest = random_forest(9, 5, 3, n_outputs, dtype, n_outputs)
    if pure:
        forest = forest._replace(value=np.eye(n_outputs, dtype=dtype)[forest.value.argmax(axis=1)])
    check_ways(forest, inputs(70, 3, dtype))


@pytest.mark.parametrize("n_features", [1, 2, 31])
def test_chains_and_single_leaves(path, dtype, n_features):
    # Far deeper than other trees of their size, to either side, and trees without a split.
    rng = np.random.default_rng(n_features)
    leaf = ([-1], [0.0], [0])
    trees = [leaf, chain(300, n_features, rng, True), leaf, chain(257, n_features, rng, False)]
    trees += [chain(k, n_features, rng, bool(k % 2)) for k in (1, 2, 3, 4, 5, 6, 9)]
    forest = tree.check(joined(trees, n_features, 3, dtype))
    x = inputs(300, n_features, dtype, 1)
    x[::3] = 2  # to the right end of chains
    x[1::3] = -2
    check_ways(forest, x)
    check_ways(joined([leaf], n_features, 2, dtype), x[:20])


def test_numbers_at_the_edges(path, dtype):
    # Every kind of number against every kind of threshold: ties, both zeros, denormals, infinities; NaN goes left.
    tiny, large = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    numbers = np.array([0, tiny, 1, 1 + np.finfo(dtype).eps, large, np.inf], dtype)
    numbers = np.concatenate([-numbers, numbers, [np.nan]]).astype(dtype)
    stumps = [([0, -1, -1], [t, 0, 0], [1, 0, 0]) for t in numbers[:-1]]
    deep = [
        ([0, 0, -1, -1, 0, -1, 0, -1, 0, -1, 0, -1, -1], [t, t, 0, 0, t, 0, t, 0, t, 0, t, 0, 0],
         [1, 3, 0, 0, 5, 0, 7, 0, 9, 0, 11, 0, 0])
        for t in numbers[:-1]
    ]  # fmt: skip
    x = np.tile(numbers[:, None], (5, 1))
    check_ways(joined(stumps + deep, 1, 2, dtype), x)


@functools.cache
def large_forests(dtype):
    """Returns forests, inputs and leaves: more nodes than 16 bits count, or too many features for columns to pay."""
    rng = np.random.default_rng(0)
    large = random_forest(2, 17, 3, 2, dtype, 1, stop=0.02)
    assert np.diff(large.tree_start).max() > 2**16
    cases = [(large, rng.normal(scale=0.7, size=(300, 3)).astype(dtype))]
    for n_features, n_trees in ((8191, 1100), (8200, 1100), (9000, 5), (70000, 3)):
        trees = []
        for _ in range(n_trees):
            f = rng.integers(n_features - 5, n_features, 3)
            trees.append(([f[0], f[1], -1, -1, -1], [0.0, 0.5, 0, 0, 0], [1, 3, 0, 0, 0]))
        cases.append((joined(trees, n_features, 2, dtype), inputs(21, n_features, dtype)))
    return [(forest, x, walked(forest, x)) for forest, x in cases]


@pytest.mark.slow
def test_large_trees_and_many_features(path, dtype):
    for forest, x, leaves in large_forests(dtype):
        check_ways(forest, x, leaves)


def test_a_large_tree(path, dtype):
    """More nodes than 16 bits count, and enough samples for packing to pay."""
    forest = forest_of(True, 1, 16, 3, 2, dtype)
    assert len(forest.feature) > 2**16
    check_ways(forest, inputs(4100, 3, dtype))


def test_no_features(path, dtype):
    forest = joined([([-1], [0.0], [0])] * 3, 0, 2, dtype)
    assert tree.apply(forest, np.zeros((40, 0), dtype)).tolist() == [[0, 0, 0]] * 40


def test_trees_of_any_order_are_walked_alike(path, reference):
    # Children after their parents, but depth-first: nodes of the first levels are not the first nodes.
    feature, left = [-1], [0]

    def grow_below(v, levels):
        if levels:
            feature[v], left[v] = levels % 3, len(feature)
            feature.extend([-1, -1])
            left.extend([0, 0])
            grow_below(left[v], levels - 1)
            grow_below(left[v] + 1, levels - 1)

    grow_below(0, 6)
    leaf = np.array(feature) < 0
    rows = np.where(leaf, np.cumsum(leaf) - 1, left)
    n_nodes = len(feature)
    forest = Forest(
        n_features=np.array(3), tree_start=np.array([0, n_nodes]), feature=np.array(feature, np.int32),
        threshold=np.where(leaf, 0, np.random.default_rng(2).integers(-4, 5, n_nodes) / 4).astype(np.float32),
        left=rows.astype(np.int32), value=np.arange(leaf.sum(), dtype=np.float32)[:, None],
        gain=np.zeros(n_nodes, np.float32), indptr=np.zeros(0, np.int64), indices=np.zeros(0, np.int32),
        data=np.zeros(0, np.float32),
    )  # fmt: skip
    x = inputs(60, 3, np.float32, 4)
    want = reference(tree.apply, tree.check(forest), x)
    assert tree.apply(forest, x).tobytes() == want.tobytes()


def test_a_forest_is_pickled_by_its_public_name():
    assert tree.Forest.__module__ == "hforest.tree"
    data = pickle.dumps(STUMP)
    assert b"hforest.tree" in data
    assert b"hforest.tree." not in data
    back = pickle.loads(data)
    assert isinstance(back, tree.Forest)
    assert all(np.array_equal(a, b) for a, b in zip(back, STUMP, strict=True))


def test_more_features_than_int32_counts():
    forest = hforest.grow(np.zeros((2, 2)), [0, 1], 1)._replace(n_features=np.array(2**62))
    for call in (lambda: tree.check(forest), lambda: tree.importance(forest)):
        with pytest.raises(ValueError, match=r"^forest\.n_features: expected 0 to 2\*\*31 - 1, got"):
            call()
