"""SHAP values: both games by all sets of features, references, shap, deep trees, refused arguments."""

import itertools
import math
import re

import numpy as np
import pytest
from conftest import entered
from growers import assert_all_same, on_threads

import hforest
from hforest import growth, project, tree
from hforest.core import machine

N, N_FEATURES, N_TREES = 120, 5, 4
KINDS = ["axis", "missing", "categories", "oblique", "oblique, missing"]


@pytest.fixture(params=["reference", "cpu"])
def backend(request):
    """The backends that have SHAP values."""
    with entered(request.param) as backend:
        yield backend


def problem(kind="axis", dtype=np.float64):
    """Samples and two targets that depend on several features; the last feature is categories."""
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(size=(N, N_FEATURES)), 1)
    x[:, -1] = rng.integers(0, 6, N)
    y = np.stack([x[:, 0] * x[:, 1] + (x[:, -1] % 2), x[:, 1] - abs(x[:, 2])], axis=1)
    if "missing" in kind or kind == "categories":
        x[rng.random(x.shape) < 0.2] = np.nan
    return x.astype(dtype), y


def grown(kind="axis", dtype=np.float64, **settings):
    x, y = problem(kind, dtype)
    if kind == "categories":
        x = hforest.samples(x, categorical=[N_FEATURES - 1])
    if "oblique" in kind:
        settings["projections"] = project.sparse_distribution(N_FEATURES)
    return hforest.grow(x, y, N_TREES, task="regression", rng=3, **{"max_depth": 5, **settings})


def outputs(forest, x):
    """Means over trees of leaf values, without predict's rounding."""
    leaf, total = tree.apply(forest, x), np.zeros((len(x), forest.n_classes))
    for m, root in enumerate(forest.tree_start[:-1]):
        total += forest.value[(root + m) // 2 + forest.left[root + leaf[:, m]]]
    return total / forest.n_trees


def shapley(n_players, value):
    """Shapley values by their definition: value(S) for every set of players, as a tuple of bools."""
    of = {s: value(s) for s in itertools.product([False, True], repeat=n_players)}
    phi = np.zeros((n_players, len(next(iter(of.values())))))
    for s, v in of.items():
        for i in range(n_players):
            if not s[i]:
                size = sum(s)
                with_i = of[s[:i] + (True,) + s[i + 1 :]]
                phi[i] += (with_i - v) / (n_players * math.comb(n_players - 1, size))
    return phi


def of_hybrids(forest, row, background, weight):
    """The game of interventional values."""

    def value(known):
        return weight @ outputs(forest, np.where(known, row, background)) / weight.sum()

    return value


def of_covers(forest, row, cover, counts):
    """The game of path-dependent values: numbers of samples are counted on their paths."""

    def mean(root, m, v, known, samples):
        at = root + v
        if forest.feature[at] == -1:
            return forest.value[(root + m) // 2 + forest.left[at]].astype(float)
        sides = np.array([is_right(at, cover[i]) for i in samples], bool)
        left = int(forest.left[at])
        if known[forest.feature[at]]:
            side = is_right(at, row)
            return mean(root, m, left + side, known, samples[sides == side])
        n = counts[m][samples]
        share = n[~sides].sum() / n.sum() if n.sum() else 0.5
        low, high = (mean(root, m, left + side, known, samples[sides == side]) for side in (0, 1))
        return share * low + (1 - share) * high

    def is_right(at, sample):
        return bool(tree.forest.goes_right(forest, at, sample[forest.feature[at]]))

    def value(known):
        every = np.arange(len(cover))
        roots = enumerate(forest.tree_start[:-1])
        return np.mean([mean(int(root), m, 0, known, every) for m, root in roots], axis=0)

    return value


def check_sums(forest, x, shap):
    """Values of a sample add up to its prediction."""
    want = outputs(forest, x)
    np.testing.assert_allclose(
        shap.expected + shap.values.sum(axis=1), want, rtol=0, atol=1e-12 * abs(want).max()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_interventional_values_are_shapley_values_of_hybrid_samples(kind, backend, dtype):
    x, _ = problem(kind, dtype)
    forest = grown(kind, dtype)
    assert bool(forest.indptr.size) == ("oblique" in kind)
    assert bool(forest.category_bits.size) == (kind == "categories")
    rows, background, weight = x[:4], x[4:10], np.array([1, 0, 2, 1, 3, 1.5])
    shap = tree.shap_values(forest, rows, background=background, sample_weight=weight)
    assert shap.values.shape == (4, N_FEATURES, 2)
    assert shap.values.dtype == shap.expected.dtype == np.float64
    for row, values in zip(rows, shap.values, strict=True):
        want = shapley(N_FEATURES, of_hybrids(forest, row, background, weight))
        np.testing.assert_allclose(values, want, rtol=0, atol=1e-13 * abs(forest.value).max())
    check_sums(forest, rows, shap)


@pytest.mark.parametrize("n_cover", [N, 7])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "oblique" not in kind])
def test_path_dependent_values_are_shapley_values_of_covers(kind, n_cover, backend, dtype):
    x, _ = problem(kind, dtype)
    forest, counts = grown(kind, dtype), growth.bootstrap_counts(N, N_TREES, rng=3)[:, :n_cover]
    rows, cover = x[:3], x[:n_cover]  # seven samples leave most nodes empty
    shap = tree.shap_values(forest, rows, cover=cover, counts=counts)
    for row, values in zip(rows, shap.values, strict=True):
        want = shapley(N_FEATURES, of_covers(forest, row, cover, counts))
        np.testing.assert_allclose(values, want, rtol=0, atol=1e-13 * abs(forest.value).max())
    check_sums(forest, rows, shap)


@pytest.mark.parametrize("how", ["background", "cover"])
@pytest.mark.parametrize("kind", KINDS)
def test_values_are_the_references_at_every_number_of_threads(kind, how, threads, dtype):
    if how == "cover" and "oblique" in kind:
        pytest.skip("refused")
    x, _ = problem(kind, dtype)
    forest, rows = grown(kind, dtype, max_depth=None), x[::-1][:30]
    rest = {how: x[: 9 if how == "background" else N]}
    found = on_threads(threads, lambda: tree.shap_values(forest, rows, **rest))
    assert_all_same(found)
    with hforest.using("reference"):
        want = tree.shap_values(forest, rows[:5], **rest)
    np.testing.assert_allclose(found[0].values[:5], want.values, rtol=0, atol=1e-12 * abs(forest.value).max())
    np.testing.assert_array_equal(found[0].expected, want.expected)
    check_sums(forest, rows, found[0])


@pytest.mark.parametrize("path", machine.simd_paths())
@pytest.mark.parametrize("how", ["background", "cover"])
def test_values_of_a_sample_are_bit_identical_alone_and_on_every_vector_path(how, path, simd, dtype):
    x, _ = problem(dtype=dtype)
    forest, rest = grown(dtype=dtype, max_depth=None), {how: x[:80]}
    want = tree.shap_values(forest, x, **rest).values
    simd(path)
    np.testing.assert_array_equal(tree.shap_values(forest, x, **rest).values, want)
    for i in (0, 40, N - 1):
        np.testing.assert_array_equal(tree.shap_values(forest, x[i : i + 1], **rest).values[0], want[i])


@pytest.mark.parametrize("kind", KINDS)
def test_interventional_values_are_linear_in_the_background(kind):
    x, _ = problem(kind)
    forest, weight = grown(kind), np.arange(1.0, N + 1)
    parts = [(a, b, weight[a:b]) for a, b in ((0, 50), (50, 51), (51, N))]  # of one word and of several
    want = sum(
        tree.shap_values(forest, x[:7], background=x[a:b], sample_weight=w).values * w.sum()
        for a, b, w in parts
    )
    found = tree.shap_values(forest, x[:7], background=x, sample_weight=weight)
    scale = abs(forest.value).max()
    np.testing.assert_allclose(found.values, want / weight.sum(), rtol=0, atol=1e-13 * scale)


def chain(depth, dtype=np.float64):
    """A tree of `depth` splits below each other, each by a feature of its own, and its samples."""
    n_nodes = 2 * depth + 1
    v = np.arange(n_nodes)
    is_split = (v % 2 == 0) & (v < n_nodes - 1)
    left = np.where(is_split, v + 1, np.where(v % 2, v // 2, depth))
    forest = tree.Forest(
        n_features=np.array(depth),
        tree_start=np.array([0, n_nodes]),
        feature=np.where(is_split, v // 2, -1).astype(np.int32),
        threshold=np.where(is_split, 0.5, 0).astype(dtype),
        left=left.astype(np.int32),
        value=np.random.default_rng(0).normal(size=(depth + 1, 3)).astype(dtype) * 1000,
        gain=np.zeros(n_nodes, dtype),
        indptr=np.zeros(0, np.int64),
        indices=np.zeros(0, np.int32),
        data=np.zeros(0, dtype),
    )
    x = (np.random.default_rng(1).random((40, depth)) < 0.9).astype(dtype)
    x[:2] = 1
    return tree.check(forest), x


def test_deep_trees_lose_no_digits():
    forest, x = chain(150)
    assert len(tree.splits(forest)) == 150
    shap = tree.shap_values(forest, x, cover=x)
    check_sums(forest, x, shap)
    shap = tree.shap_values(forest, x, background=x[:5])
    check_sums(forest, x, shap)
    forest, x = chain(50)
    shap = tree.shap_values(forest, x, cover=x)
    with hforest.using("reference"):
        want = tree.shap_values(forest, x[:2], cover=x)
    np.testing.assert_allclose(shap.values[:2], want.values, rtol=0, atol=1e-12 * abs(forest.value).max())


def test_values_are_those_of_the_package_shap():
    package = pytest.importorskip("shap")
    x, _ = problem(dtype=np.float32)
    forest = grown(dtype=np.float32, max_depth=4)
    explainer = package.TreeExplainer(tree.to_dict(forest, x))
    shap = tree.shap_values(forest, x, cover=x)
    np.testing.assert_allclose(shap.values, explainer.shap_values(x), rtol=0, atol=1e-6)
    np.testing.assert_allclose(shap.expected, explainer.expected_value, rtol=0, atol=1e-6)
    explainer = package.TreeExplainer(tree.to_dict(forest, x), x[:20], feature_perturbation="interventional")
    shap = tree.shap_values(forest, x, background=x[:20])
    np.testing.assert_allclose(shap.values, explainer.shap_values(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("how", ["background", "cover"])
def test_progress_is_reported_and_stops_a_call(how, backend, monkeypatch):
    monkeypatch.setattr("hforest.tree.shap.STEP", 3)
    monkeypatch.setattr("hforest.tree.shap.get_num_threads", lambda: 1)
    x, _ = problem()
    forest, rest, seen = grown(max_depth=3), {how: x[:9]}, []
    want = tree.shap_values(forest, x[:8], **rest)
    found = tree.shap_values(forest, x[:8], **rest, progress=lambda *at: seen.append(at))
    assert seen == [(3, 8), (6, 8), (8, 8)]
    np.testing.assert_array_equal(found.values, want.values)
    found = tree.shap_values(forest, x[:8], **rest, progress=lambda done, total: done < 6)
    np.testing.assert_array_equal(found.values, want.values[:6])
    np.testing.assert_array_equal(found.expected, want.expected)


def test_sizes_of_zero_and_trees_of_one_node():
    x, y = problem()
    forest = grown()
    for rest in ({"cover": x}, {"background": x[:3]}):
        assert tree.shap_values(forest, x[:0], **rest).values.shape == (0, N_FEATURES, 2)
        leaf = hforest.grow(x, y, 2, task="regression", max_depth=0, rng=0)
        shap = tree.shap_values(leaf, x[:4], **rest)
        assert not shap.values.any()
        check_sums(leaf, x[:4], shap)


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        ("axis", {}, "background: expected either background or cover, got neither"),
        ("axis", {"background": 1, "cover": 1}, "background: expected either background or cover, got both"),
        ("axis", {"background": 1, "counts": 1}, "counts: expected None with background"),
        ("oblique", {"cover": 1}, "forest: expected splits by single features, got projections"),
        ("axis", {"cover": 0}, "cover: expected at least one sample, got 0"),
        ("axis", {"background": 0}, "background: expected at least one sample, got 0"),
    ],
)
def test_refused_arguments(kind, arguments, words, backend):
    x, _ = problem()
    rest = {name: x[: n * 9] for name, n in arguments.items()}
    with pytest.raises(ValueError, match=f"^{re.escape(words)}"):
        tree.shap_values(grown(kind), x, **rest)


def test_work_beyond_the_limit_is_refused(backend, monkeypatch):
    """A sum of forty entries around its median depends on all of them."""
    monkeypatch.setattr("hforest.tree.shap.MAX_BRANCHES", 1 << 10)
    n_entries = 40
    forest = tree.Forest(
        n_features=np.array(n_entries),
        tree_start=np.array([0, 3]),
        feature=np.array([-2, -1, -1], np.int32),
        threshold=np.array([n_entries / 2, 0, 0]),
        left=np.array([1, 0, 1], np.int32),
        value=np.array([[0.0], [1.0]]),
        gain=np.zeros(3),
        indptr=np.array([0, n_entries, n_entries, n_entries]),
        indices=np.arange(n_entries, dtype=np.int32),
        data=np.ones(n_entries),
    )
    zeros, ones = np.zeros((1, n_entries)), np.ones((1, n_entries))
    with pytest.raises(ValueError, match="at most 1024 branches in a tree"):
        tree.shap_values(forest, ones, background=zeros)
    ones[:, 9:] = 0  # nine are too few to pass the threshold
    assert not tree.shap_values(forest, ones, background=zeros).values.any()
    few = forest._replace(threshold=np.array([5.0, 0, 0]))
    values = tree.shap_values(few, ones, background=zeros).values[0, :, 0]
    np.testing.assert_allclose(values, np.repeat([1 / 9, 0], [9, 31]), rtol=0, atol=1e-14)
