"""Forests inspected: splits, importances, paths and text."""

import itertools

import numpy as np
import pytest
from test_tree import STUMP, inputs, oblique_stump, random_forest

import hforest
from hforest import tree

pytestmark = pytest.mark.kernels


# -------------------------------------------------------------------------------- inspection


def test_splits_of_each_depth():
    x = np.random.default_rng(0).normal(size=(60, 3))
    forest = hforest.grow(x, (x[:, 0] > 0) ^ (x[:, 1] > 0.3), 4, rng=0)
    depth = np.zeros(len(forest.feature), int)
    for start, stop in itertools.pairwise(forest.tree_start):
        for v in range(stop - start):  # children come after their parent
            if forest.feature[start + v] != -1:
                left = start + forest.left[start + v]
                depth[left : left + 2] = depth[start + v] + 1
        assert depth[start] == 0
    levels = tree.splits(forest)
    assert len(levels) == depth.max()
    for d, nodes in enumerate(levels):
        assert sorted(nodes) == np.flatnonzero((depth == d) & (forest.feature != -1)).tolist()
    of_trees = np.maximum.reduceat(depth, forest.tree_start[:-1])
    assert tree.depth(forest).tolist() == of_trees.tolist()
    assert len(np.unique(of_trees)) > 1
    leaves = hforest.grow(x, np.zeros(60, int), 2, n_classes=2, rng=0)
    assert tree.splits(leaves) == []
    assert tree.depth(tree.join([leaves, forest])).tolist() == [0, 0, *of_trees]


def test_importance_by_hand():
    assert tree.importance(STUMP).tolist() == [0, 1]
    oblique = oblique_stump([0, 3, 3, 3], [0, 1, 1], [1.0, -1, 0])
    assert tree.importance(oblique).tolist() == [0.5, 0.5]
    assert tree.importance(oblique, by="gain").tolist() == [0.5, 0.5]


@pytest.mark.parametrize("oblique", [False, True])
def test_importance_is_the_definition(oblique):
    forest = random_forest(7, 5, 6, 2, np.float64, 4, oblique)
    count, gain = np.zeros(6), np.zeros(6)
    for m in range(7):
        nodes = range(forest.tree_start[m], forest.tree_start[m + 1])
        of_tree = np.zeros(6)
        for v in nodes:
            f = forest.feature[v]
            used = (
                [f] if f >= 0 else forest.indices[forest.indptr[v] : forest.indptr[v + 1]] if f == -2 else []
            )
            for i in used:
                count[i] += 1
                of_tree[i] += forest.gain[v]
        gain += of_tree / of_tree.sum()
    np.testing.assert_allclose(tree.importance(forest), count / count.sum())
    np.testing.assert_allclose(tree.importance(forest, by="gain"), gain / gain.sum())


def test_permutation_importance_of_errors_beyond_float64_is_refused():
    x = np.random.default_rng(0).normal(size=(20, 2))
    forest = hforest.grow(x, x[:, 0], 1, task="regression", max_depth=1, rng=0)
    forest = forest._replace(value=np.full_like(forest.value, 1e200))
    with pytest.raises(
        ValueError, match=r"^forest\.value: expected leaf values whose mean .*, got up to 1e\+200"
    ):
        tree.permutation_importance(forest, x, x[:, 0], task="regression", rng=0)


def permuted(forest, x, y, sets, n_repeats):
    """Returns the loss of accuracy by permuted rows of sets of columns, by the draws of the seed 4."""
    draws, found = np.random.default_rng(4), []
    right = (tree.predict(forest, x).argmax(axis=1) == y).mean()
    for columns in sets:
        for _ in range(n_repeats):
            other = x.copy()
            other[:, columns] = x[draws.permutation(len(x))][:, columns]
            found.append(right - (tree.predict(forest, other).argmax(axis=1) == y).mean())
    return np.reshape(found, (len(sets), n_repeats))


def test_permutation_importance_is_the_definition():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    y = (x[:, 2] > 0).astype(np.int32)
    forest = hforest.grow(x[:200], y[:200], 10, rng=0)
    x, y = x[200:], y[200:]
    kept = x.copy()
    lost = tree.permutation_importance(forest, x, y, n_repeats=3, rng=4)
    np.testing.assert_array_equal(x, kept)
    np.testing.assert_array_equal(lost, permuted(forest, x, y, ([0], [1], [2]), 3))
    assert (lost[2] > 0.3).all()
    assert (abs(lost[:2]) < 0.1).all()


def test_permutation_importance_of_sets_of_features():
    """The rows of a set are permuted together; single numbers are sets of one feature."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    y = (x[:, 2] > x[:, 0]).astype(np.int32)
    forest = hforest.grow(x[:100], y[:100], 10, rng=0)
    x, y = x[100:], y[100:]
    lost = tree.permutation_importance(forest, x, y, columns=[(2, 0), range(1, 3)], n_repeats=2, rng=4)
    np.testing.assert_array_equal(lost, permuted(forest, x, y, ([0, 2], [1, 2]), 2))
    settings = {"n_repeats": 2, "rng": 4}
    whole = tree.permutation_importance(forest, x, y, **settings)
    for columns in ([0, 1, 2], [[0], [1], [2]], [True] * 3, np.array([[0], [1], [2]])):
        same = tree.permutation_importance(forest, x, y, columns=columns, **settings)
        assert same.tobytes() == whole.tobytes()
    assert tree.permutation_importance(forest, x, y, columns=1, **settings).shape == (1, 2)
    for columns, error, words in (
        ([[0], [3]], IndexError, r"columns\[1\]: expected feature indices below n_features = 3"),
        ([[]], ValueError, r"columns\[0\]: expected the index of at least one column, got none"),
    ):
        with pytest.raises(error, match=f"^{words}"):
            tree.permutation_importance(forest, x, y, columns=columns)


def test_permutation_importance_of_targets_and_progress():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)).astype(np.float32)
    y = 2 * x[:, 0]
    forest = hforest.grow(x, y, 5, task="regression", max_features=None, rng=0)
    seen = []
    lost = tree.permutation_importance(
        forest, x, y, task="regression", n_repeats=2, rng=0,
        progress=lambda done, total: seen.append((done, total)) or done < 2,
    )  # fmt: skip
    assert seen == [(1, 3), (2, 3)]
    assert lost.shape == (2, 2)
    # Shuffled against itself, the variance of 2 x is 4, and the mean squared difference of two draws 8.
    assert (abs(lost[0] - 8) < 2).all()
    assert (abs(lost[1]) < 0.1).all()
    # Targets have the dtype of the forest, whatever they had before.
    settings = {"task": "regression", "n_repeats": 2, "rng": 0}
    whole = tree.permutation_importance(forest, x, y, **settings)
    assert whole[:2].tobytes() == lost.tobytes()
    for same in (y.astype(np.float64), y[:, None].tolist()):
        assert tree.permutation_importance(forest, x, same, **settings).tobytes() == whole.tobytes()
    labels = {"task": "classification"}
    for bad, error, word in (
        ({"x": x[:, :2].copy()}, ValueError, "x"),
        ({"x": x[:0], "y": y[:0]}, ValueError, "x"),
        ({"y": y[:5]}, ValueError, "y"),
        ({"y": np.stack([y, y], 1)}, ValueError, "y: expected n_outputs = 1 targets"),
        ({"y": np.full(200, np.nan)}, ValueError, "y: expected finite"),
        ({"y": np.full(200, 1e60)}, ValueError, "y: expected numbers from"),
        (labels, TypeError, "y: expected labels of an integer or bool dtype"),
        ({**labels, "y": np.full(200, 1, np.int32)}, IndexError, "y: .*; pass labels of the classes"),
        ({**labels, "y": np.full(200, -1)}, IndexError, "y: expected labels of at least 0, got -1"),
        ({"task": "ranking"}, ValueError, "task"),
        ({"n_repeats": 0}, ValueError, "n_repeats"),
        ({"progress": 3}, TypeError, "progress: expected None, True or a function"),
    ):
        with pytest.raises(error, match=rf"\b{word}\b"):
            tree.permutation_importance(**{"forest": forest, "x": x, "y": y, **settings, **bad})


def test_path_ends_in_the_leaf():
    forest = random_forest(4, 6, 3, 2, np.float64, 6, True)
    for x in inputs(20, 3, np.float64):
        leaf = tree.apply(forest, x[None])[0]
        for m in range(4):
            nodes = tree.path(forest, x, m)
            assert nodes[0] == 0
            assert nodes[-1] == leaf[m]
            assert (np.diff(nodes) > 0).all()
    with pytest.raises(IndexError, match="n_trees = 4"):
        tree.path(forest, x, 4)
    with pytest.raises(
        ValueError, match=r"x: expected shape .*, got \(1, 3\); pass one of its rows, such as x\[0\]"
    ):
        tree.path(forest, x[None], 0)
    with pytest.raises(ValueError, match=r"\(n_samples, 3\)"):
        tree.path(forest, x[:2], 0)
    assert tree.path(forest, x.tolist(), 1).tolist() == tree.path(forest, x, 1).tolist()


def test_text():
    assert tree.to_text(STUMP) == "x[1] <= 0.5\n  yes: 0.25 0.75\n  no: 1 0"
    assert tree.to_text(STUMP, max_depth=0) == "..."
    oblique = oblique_stump([0, 2, 2, 2], [0, 1], [1.0, -1])
    assert tree.to_text(oblique, feature_names=["a", "b"]).startswith("+1 a -1 b <= 0.5")
    with pytest.raises(ValueError, match="n_features = 2 names"):
        tree.to_text(STUMP, feature_names=["a"])


@pytest.mark.parametrize("unknown", [0, 2])
def test_text_has_twelve_categories_of_a_set(unknown):
    first = "x[1] not in {" if unknown else "x[1] in {"
    for n, rest in ((12, "}"), (13, ", ...}")):
        bits = np.array([2**n - 1], np.uint32)
        forest = STUMP._replace(
            threshold=np.zeros(3), default_left=np.array([unknown, 0, 0], np.uint8),
            category_indptr=np.array([0, 1, 1, 1]), category_bits=~bits if unknown else bits,
        )  # fmt: skip
        line = tree.to_text(forest).split("\n")[0]
        assert line == f"{first}{', '.join(map(str, range(12)))}{rest}"


# ---------------------------------------------------------------------------- every way down


@pytest.mark.parametrize(
    "names", [3, None.__class__, "ab", {"a", "b"}, {0: "a", 1: "b"}, (n for n in "ab"), ["a", 3], object()]
)
def test_names_that_are_no_sequence_of_str(names):
    forest = hforest.grow(np.zeros((2, 2)), [0, 1], 1)
    with pytest.raises(TypeError, match=r"^feature_names.*: expected a.*, got .*; pass"):
        tree.to_text(forest, feature_names=names)


def test_names_in_an_array():
    forest = hforest.grow(np.arange(8.0).reshape(4, 2), [0, 0, 1, 1], 1, bootstrap=False, max_features=None)
    assert tree.to_text(forest, feature_names=np.array(["a", "b"])) == tree.to_text(
        forest, feature_names=["a", "b"]
    )


def test_text_does_not_name_the_features_that_it_does_not_show():
    wide = STUMP._replace(n_features=np.array(2**31 - 1))
    assert tree.to_text(wide) == tree.to_text(STUMP)
