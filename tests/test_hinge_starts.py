"""Hinge trees and ferns: random starts, median thresholds, consistency and repair; leaf counts and paths."""

import numpy as np
import pytest
from test_hinge import KINDS, Case, grid, kinds, margins, problem

from hforest import hinge

pytestmark = pytest.mark.kernels


# ---------------------------------------------------------------------------- looking inside


def test_leaf_counts_and_rows(backend):
    leaf = np.random.default_rng(0).integers(0, 128, (300, 5), np.int32)
    counts = hinge.leaf_counts(leaf, 128)
    assert counts.dtype == np.int64
    for m in range(5):
        np.testing.assert_array_equal(counts[m], np.bincount(leaf[:, m], minlength=128))
    rows = hinge.leaf_rows(leaf, 128)
    np.testing.assert_array_equal(rows, np.flatnonzero(counts))


def test_weights_of_random_ferns(backend, dtype):
    """Product over ferns of P(leaf | class), by counting (Ozuysal et al. 2010)."""
    rng = np.random.default_rng(0)
    leaf, y = rng.integers(0, 8, (60, 3), np.int32), rng.integers(0, 4, 60)
    weights = hinge.bayes_weights(leaf, y, 8, prior=0.5, n_classes=5, dtype=dtype)
    assert weights.shape == (3, 8, 5)
    assert weights.dtype == dtype
    want = np.ones((60, 5))
    for i in range(60):
        for c in range(5):
            for m in range(3):
                same = sum(leaf[j, m] == leaf[i, m] for j in range(60) if y[j] == c)
                want[i, c] *= (same + 0.5) / (sum(y == c) + 0.5 * 8)
    scores = hinge.leaf_outputs(leaf, np.ones((60, 3), dtype), weights, aggregate="sum")
    np.testing.assert_allclose(np.exp(scores), want, rtol=30 * np.finfo(dtype).eps)
    np.testing.assert_allclose(np.exp(weights.astype(float)).sum(axis=1), 1, rtol=1e-6)


def test_tree_path(backend):
    x, t, f, _ = problem("tree", "column", Case((30, 5), 4, 4))
    leaf, _, vertex = hinge.traverse(x, t, f)
    path = hinge.tree_path(leaf, f)
    assert path.vertex.shape == path.feature.shape == path.right.shape == (30, 4, 4)
    samples, trees = np.ogrid[:30, :4]
    for level in range(4):
        v = path.vertex[..., level]
        np.testing.assert_array_equal(path.feature[..., level], f[trees, v])
        np.testing.assert_array_equal(path.right[..., level], x[samples, f[trees, v]] > t[trees, v])
    assert (path.vertex == vertex[..., None]).any(axis=2).all()


# ------------------------------------------------------------------------------------ starts


@kinds
@margins
def test_random_start(dtype, kind, margin):
    t, f, w = hinge.init(200, 6, 10, (3, 2), kind=kind, margin=margin, dtype=dtype, rng=0)
    assert t.shape == (200, 63 if kind == "tree" else 6)
    assert f.shape == (*t.shape, 10)[: 2 if margin == "column" else 3]
    assert w.shape == (200, 64, 3, 2)
    assert t.dtype == w.dtype == dtype
    assert f.dtype == (np.int32 if margin == "column" else dtype)
    assert all(a.flags.c_contiguous for a in (t, f, w))
    assert t.min() >= -3
    assert t.max() <= 3
    assert abs(t.std() - 6 / 12**0.5) < 0.05  # of U(-3, 3)
    if margin == "column":
        assert np.unique(f).tolist() == list(range(10))
    else:
        assert abs(f.std() - 10**-0.5) < 0.01  # of N(0, 1 / n_features)
        assert abs(f.mean()) < 0.01
    assert abs(w.std() - 0.01) < 2e-4
    assert abs(w.mean()) < 2e-4


@kinds
@margins
def test_start_follows_the_seed(kind, margin):
    words = {"kind": kind, "margin": margin}
    first, same, other = (hinge.init(3, 3, 5, **words, rng=seed) for seed in (7, np.random.default_rng(7), 8))
    for a, b, c in zip(first, same, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (a != c).any()
    for a, b in zip(first, hinge.init(3, 3, 5, **words, dtype=np.float64, rng=7), strict=True):
        np.testing.assert_array_equal(a, b.astype(a.dtype))


@kinds
def test_sequential_features(kind):
    _, f, _ = hinge.init(4, 3, 5, kind=kind, features="sequential", rng=0)
    np.testing.assert_array_equal(f.ravel(), np.arange(f.size) % 5)
    with pytest.raises(
        ValueError, match="^features: expected 'random' with margin='projection', got 'sequential'; leave"
    ):
        hinge.init(4, 3, 5, kind=kind, margin="projection", features="sequential", rng=0)


def test_median_thresholds_split_evenly(dtype):
    x = np.random.default_rng(0).normal(size=(64, 6)).astype(dtype)
    _, f, _ = hinge.init(5, 6, 6, dtype=dtype, rng=0)
    t = hinge.median_thresholds(x, f)
    assert t.dtype == dtype
    leaf, _, _ = hinge.traverse(x, t, f)
    assert (hinge.leaf_counts(leaf, 64) == 1).all()
    _, f, _ = hinge.init(5, 3, 6, kind="fern", dtype=dtype, rng=0)
    t = hinge.median_thresholds(x, f, kind="fern")
    right = x[:, f] > t
    assert (right.sum(axis=0) == 32).all()


def test_medians_with_ties_and_empty_vertices(dtype):
    # Three values, the middle one most frequent: no threshold may separate equal values, and both
    # neighbouring splits are equally far from the middle.
    x = np.array([[0], [1], [1], [1], [1], [2]], dtype)
    f = np.zeros((1, 7), np.int32)
    t = hinge.median_thresholds(x, f)
    assert t[0, 0] == 0.5
    assert t[0, 1] == 0.5  # only one value: the samples of the nearest ancestor decide
    assert t[0, 2] == 1.5
    leaf, _, _ = hinge.traverse(x, t, f)
    assert len({(v, tuple(ls)) for v, ls in zip(x.ravel(), leaf.tolist(), strict=True)}) == 3
    constant = np.full((4, 1), 5, dtype)
    assert (hinge.median_thresholds(constant, f) == 8).all()
    assert (hinge.median_thresholds(constant, f[:, :2], kind="fern") == 8).all()


def test_neighbouring_floats_are_split(dtype):
    low = dtype(1)
    high = np.nextafter(low, dtype(2), dtype=dtype)
    t = hinge.median_thresholds(np.array([[low], [high]]), np.zeros((1, 1), np.int32), kind="fern")
    assert low <= t.item() < high
    # The sum of the two overflows, but their midpoint does not.
    big = np.finfo(dtype).max
    t = hinge.median_thresholds(np.array([[big / 2], [big]], dtype), np.zeros((1, 1), np.int32), kind="fern")
    assert big / 2 <= t.item() < big


def reachable(t, f, v):
    """Returns by brute force whether some x reaches each child of v; candidates are between and on all thresholds."""
    values = np.unique(t)
    tries = np.concatenate([values, (values[1:] + values[:-1]) / 2, [values[0] - 1, values[-1] + 1]])
    path, child = [], v
    while child:
        path.append(((child - 1) // 2, child % 2 == 0))
        child = (child - 1) // 2
    # Features are independent, so only ancestors matter that read the feature of v.
    ok = [x for x in tries if all((x > t[a]) == right for a, right in path if f[a] == f[v])]
    return any(x > t[v] for x in ok) and any(not x > t[v] for x in ok)


def test_consistency_against_brute_force(dtype):
    rng = np.random.default_rng(0)
    t, f, _ = hinge.init(30, 4, 3, dtype=dtype, rng=rng)
    t = grid(rng, t.shape, dtype)
    got = hinge.thresholds_consistent(t, f)
    want = [[reachable(t[m], f[m], v) for v in range(15)] for m in range(30)]
    np.testing.assert_array_equal(got, want)
    assert 0.2 < got.mean() < 0.95


def test_repair(dtype):
    rng = np.random.default_rng(0)
    t, f, _ = hinge.init(30, 6, 3, dtype=dtype, rng=rng)
    t[0, :3] = np.inf, -np.inf, 1
    t[1] = 2.0**26  # adding 1 changes nothing in float32
    before = t.copy()
    repaired = hinge.repair_thresholds(t, f)
    np.testing.assert_array_equal(t, before)
    assert repaired.dtype == dtype
    ok = hinge.thresholds_consistent(t, f)
    assert not ok.all()
    assert hinge.thresholds_consistent(repaired, f).all()
    # From the root down: a consistent threshold is unchanged if its path is unchanged.
    np.testing.assert_array_equal(repaired[2:, 0], t[2:, 0])
    assert (repaired != t).mean() < 0.9
    np.testing.assert_array_equal(hinge.repair_thresholds(repaired, f), repaired)


# --------------------------------------------------------------------------------- bad input


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("dtype", "big"), [(np.float32, 3e38), (np.float64, 1.7e308)])
def test_starts_from_numbers_near_the_largest(dtype, big):
    x = np.array([[-big], [-big / 2], [big], [big]], dtype)
    for kind in KINDS:
        assert -big / 2 <= hinge.median_thresholds(x, np.zeros((1, 1), np.int32), kind=kind) < big
