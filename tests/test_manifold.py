"""Manifold forests: simulations, accuracy on them, and wrong arguments."""

import itertools

import numpy as np
import pytest
import scipy.sparse
from conftest import assert_same_bits, error

from hforest import classic, demo, growth, manifold, project, tree
from hforest.core import check

KINDS = {
    "patch": {"shape": (8, 8), "patch_max": 2},
    "sparse": {"projection": "sparse"},
    "probe": {"projection": "probe"},
}

AXIS = project.axis_distribution(3)


# -------------------------------------------------------------------------------------- simulations


def test_circle():
    x, y = demo.simulate_circle(4000, rng=0)
    assert x.shape == (4000, 100)
    assert set(np.unique(x)) == {0, 1}
    assert (x.sum(axis=1) == 10).all()
    assert abs(y.mean() - 0.5) < 0.03
    for row, label in zip(x, y, strict=True):
        # Lengths of the runs of ones around the circle: two that do not touch.
        start = int(np.argmin(row))
        rolled = np.roll(row, -start)
        runs = np.diff(np.flatnonzero(np.diff(np.concatenate([[0], rolled, [0]]))))[::2]
        assert sorted(runs.tolist()) == ([5, 5] if label == 0 else [4, 6])
    assert (x.mean(axis=0) > 0.07).all()
    assert (x.mean(axis=0) < 0.13).all()


def test_bars():
    x, y = demo.simulate_bars(3000, rng=0)
    images = x.reshape(-1, 28, 28)
    assert set(np.unique(x)) == {0, 1}
    rows = np.where((y == 0)[:, None], images[:, :, 0], images[:, 0, :])
    np.testing.assert_array_equal(
        images[y == 0], np.broadcast_to(rows[y == 0][:, :, None], images[y == 0].shape)
    )
    np.testing.assert_array_equal(
        images[y == 1], np.broadcast_to(rows[y == 1][:, None, :], images[y == 1].shape)
    )
    # Poisson(10) bars with replacement over 28 places leave each empty with probability exp(-10 / 28).
    assert abs((rows == 0).mean() - np.exp(-10 / 28)) < 0.01


def test_impulse():
    x, y = demo.simulate_impulse(20_000, dtype=np.float64, rng=0)
    difference = x[y == 1].mean(axis=0) - x[y == 0].mean(axis=0)
    j = np.arange(100)
    np.testing.assert_allclose(difference, np.where(j < 20, 0, np.exp(-0.1 * (j - 20.0))), atol=0.07)
    np.testing.assert_allclose(x.std(axis=0)[:20], 1, atol=0.03)


@pytest.mark.parametrize("simulate", [demo.simulate_circle, demo.simulate_bars, demo.simulate_impulse])
def test_simulations_are_seeded(simulate):
    for a, b in zip(simulate(20, rng=5), simulate(20, rng=5), strict=True):
        np.testing.assert_array_equal(a, b)
    assert simulate(20, rng=5)[0].tobytes() != simulate(20, rng=6)[0].tobytes()
    assert simulate(0, rng=0)[0].shape[0] == 0
    assert simulate(3, dtype=np.float64, rng=0)[0].dtype == np.float64
    with pytest.raises(ValueError, match="n: expected"):
        simulate(-1)
    with pytest.raises(TypeError, match="dtype: expected float32"):
        simulate(3, dtype=int)


# ---------------------------------------------------------------------------------------- accuracy


def test_patches_separate_bars_that_features_do_not():
    x, y = demo.simulate_bars(50, rng=0)
    x_test, y_test = demo.simulate_bars(2000, rng=1)
    patches = manifold.grow(x, y, 100, shape=(28, 28), patch_max=4, n_projections=28, rng=0)
    plain = classic.grow(x, y, 100, rng=0)
    sparse = manifold.grow(x, y, 100, projection="sparse", rng=0)
    assert error(patches, x_test, y_test) + 0.02 < min(
        error(plain, x_test, y_test), error(sparse, x_test, y_test)
    )


def test_cyclic_patches_separate_segments():
    x, y = demo.simulate_circle(400, rng=0)
    x_test, y_test = demo.simulate_circle(1000, rng=1)
    settings = {"shape": (100,), "patch_max": 15, "n_projections": 40, "rng": 0}
    patches = manifold.grow(x, y, 100, cyclic=True, **settings)
    plain = classic.grow(x, y, 100, max_features=40, rng=0)
    assert error(patches, x_test, y_test) + 0.3 < error(plain, x_test, y_test)


@pytest.mark.parametrize("kind", KINDS)
def test_digits(digits, kind):
    x, y, x_test, y_test = digits
    assert error(manifold.grow(x, y, 60, rng=0, **KINDS[kind]), x_test, y_test) < 0.04


def test_importance_is_where_the_patches_are(digits):
    x, y, _, _ = digits
    forest = manifold.grow(x, y, 40, rng=0, **KINDS["patch"])
    share = tree.importance(forest).reshape(8, 8)
    # The outermost columns of these digits are empty, but large patches reach over them.
    assert share[:, 1:7].sum() > 0.8


def test_regression():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 6))
    y = x[:, 0] - x[:, 1]
    settings = {"task": "regression", "rng": 0}
    probe = manifold.grow(
        x[:400], y[:400], 40, projection="probe", n_projections=10, single_share=0.0, **settings
    )
    plain = classic.grow(x[:400], y[:400], 40, max_features=None, **settings)

    def loss(forest):
        return ((tree.predict(forest, x[400:])[:, 0] - y[400:]) ** 2).mean()

    assert loss(probe) < 0.7 * loss(plain)


@pytest.mark.parametrize("kind", ["sparse", "probe"])
def test_default_number_of_projections_of_a_regression(kind):
    # As many as features, but at most 100 or the square root of their number.
    rng = np.random.default_rng(0)
    for n_features, n_projections in ((2, 2), (7, 7), (99, 99), (100, 100), (101, 100), (10_201, 101)):
        x, y = rng.random((12, n_features)), np.arange(12) % 2
        settings = {"projection": kind, "task": "regression", "rng": 0}
        a = manifold.grow(x, y, 3, **settings)
        b = manifold.grow(x, y, 3, n_projections=n_projections, **settings)
        np.testing.assert_array_equal(a.threshold, b.threshold)


@pytest.mark.parametrize(
    ("projection", "task"),
    [
        ("patch", "classification"),
        ("patch", "regression"),
        ("sparse", "classification"),
        ("probe", "classification"),
    ],
)
def test_default_number_is_the_root(projection, task):
    # Rounded up.
    x, y = demo.simulate_impulse(60, rng=0)
    for n_features, n_projections in ((100, 10), (99, 10), (81, 9), (82, 10), (3, 2)):
        part = x[:, :n_features].copy()
        settings = {"projection": projection, "shape": (n_features,), "task": task, "rng": 0}
        a = manifold.grow(part, y, 3, **settings)
        b = manifold.grow(part, y, 3, n_projections=n_projections, **settings)
        np.testing.assert_array_equal(a.threshold, b.threshold)


def test_default_projection_and_trees():
    x, y = demo.simulate_impulse(60, rng=0)
    tables, signals = manifold.grow(x, y, rng=0), manifold.grow(x, y, shape=(100,), rng=0)
    assert len(tables.tree_start) == len(signals.tree_start) == 101
    want = (
        manifold.grow(x, y, 100, projection="sparse", rng=0),
        manifold.grow(x, y, 100, projection="patch", shape=(100,), rng=0),
    )
    for got, a in zip((tables, signals), want, strict=True):
        np.testing.assert_array_equal(got.threshold, a.threshold)


def test_single_features_see_what_differences_do_not():
    rng = np.random.default_rng(0)
    y = np.arange(800) % 2
    x = rng.normal(size=(800, 2)) * 0.1 + rng.normal(size=(800, 1)) * 0.3 + y[:, None] * 2
    settings = {"projection": "probe", "n_projections": 2, "rng": 0}
    differences = manifold.grow(x[:400], y[:400], 30, single_share=0.0, **settings)
    assert error(differences, x[400:], y[400:]) > 0.4
    assert error(manifold.grow(x[:400], y[:400], 30, **settings), x[400:], y[400:]) < 0.02


def test_bootstrap_weights_and_progress():
    x, y = demo.simulate_impulse(120, rng=0)
    counts = growth.bootstrap_counts(120, 5, rng=3)
    a = manifold.grow(x, y, 5, projection="sparse", rng=3)
    b = manifold.grow(x, y, 5, projection="sparse", bootstrap=counts, rng=3)
    np.testing.assert_array_equal(a.threshold, b.threshold)
    p = tree.out_of_bag(a, x, counts)
    assert np.nanmin(p) >= 0
    weights = np.zeros(120, np.float32)
    weights[:60] = 1
    c = manifold.grow(x, y, 5, projection="sparse", sample_weight=weights, bootstrap=False, rng=3)
    d = manifold.grow(x[:60], y[:60], 5, projection="sparse", bootstrap=False, rng=3)
    np.testing.assert_array_equal(c.threshold, d.threshold)
    few = manifold.grow(x, y, 100, projection="sparse", progress=lambda done, n: False, rng=3)
    assert len(few.tree_start) - 1 < 100


# -------------------------------------------------------------------------------------------- views


@pytest.mark.parametrize("base", [project.axis_distribution(40), project.sparse_distribution(40, 3.0)])
def test_a_node_compares_columns_of_one_view(base):
    rng = np.random.default_rng(0)
    x, y = np.where(rng.random((200, 40)) < 0.6, 0, rng.normal(size=(200, 40))), rng.integers(0, 3, 200)
    views = project.grouped_distribution(base, [range(4, 40), [2, 0, 3, 1]], [1, 3])
    forest = manifold.grow(x, y, 20, distribution=views, rng=0)
    small = [set((forest.indices[a:b] < 4).tolist()) for a, b in itertools.pairwise(forest.indptr) if b > a]
    assert all(len(kinds) == 1 for kinds in small)
    assert bool(small) == (base.density > 1)  # projections onto single features are features
    of_small = sum(True in kinds for kinds in small) + ((forest.feature >= 0) & (forest.feature < 4)).sum()
    assert of_small > 0.3 * (len(small) + (forest.feature >= 0).sum())
    same = manifold.grow(scipy.sparse.csr_array(x), y, 20, distribution=views, n_projections=4, rng=0)
    for a, b in zip(forest, same, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_distribution_takes_the_place_of_a_projection():
    x, y = np.random.default_rng(0).normal(size=(50, 16)), np.arange(50) % 2
    for word in ("sparse", "probe"):
        made = getattr(project, f"{word}_distribution")(16, *([0.5] if word == "probe" else []))
        want = manifold.grow(x, y, 2, projection=word, rng=0)
        for a, b in zip(manifold.grow(x, y, 2, distribution=made, rng=0), want, strict=True):
            np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"projection": "rotation"}, ValueError, "projection: expected one of 'patch', 'sparse', 'probe'"),
        ({"projection": "patch", "shape": None}, ValueError, "shape: expected the shape of a sample"),
        ({"single_share": 2.0}, ValueError, "single_share: expected a finite number"),
        ({"shape": (3, 4)}, ValueError, r"multiply to n_features = 16, got \(3, 4\)"),
        (
            {"patch_max": 5},
            ValueError,
            r"patch_max\[0\]: expected patch_min\[0\] = 1 to shape\[0\] = 4, got 5",
        ),
        ({"patch_min": 3, "patch_max": 2}, ValueError, r"patch_max\[0\]"),
        ({"projection": "sparse", "density": 0.0}, ValueError, "density"),
        ({"n_projections": 0}, ValueError, "n_projections"),
        (
            {"distribution": AXIS},
            TypeError,
            r"shape: expected None with a distribution, got \(4, 4\); pass only one",
        ),
        (
            {"distribution": AXIS, "shape": None, "projection": "patch"},
            TypeError,
            "projection: expected None",
        ),
        ({"distribution": AXIS, "shape": None}, ValueError, "distribution: expected n_features = 16, got 3"),
        ({"distribution": "axis", "shape": None}, TypeError, "distribution: expected hforest.project"),
        ({"y": np.zeros(19, np.int32)}, ValueError, r"y: expected shape \(n_samples,\) = \(20,\)"),
        ({"y": np.zeros(20)}, TypeError, "y: expected labels of an integer or bool dtype, got float64"),
        (
            {"y": np.arange(20) % 2 + 1},
            ValueError,
            "got none of class 0; renumber the classes with numpy.unique",
        ),
        ({"y": np.full(20, -1, np.int32)}, IndexError, "y: expected labels of at least 0, got -1"),
        ({"n_classes": 1}, IndexError, "n_classes = 1, got 1"),
        ({"sample_weight": -np.ones(20)}, ValueError, "sample_weight: expected numbers from 0"),
        ({"sample_weight": np.zeros(20)}, ValueError, "sample_weight: expected at least one weight above 0"),
        ({"class_weight": {5: 1.0}}, ValueError, "class_weight: expected 0 to 1, got 5"),
        ({"class_weight": "even"}, ValueError, "class_weight: expected one of 'balanced'"),
        ({"x": np.full((20, 16), np.inf)}, ValueError, "x: expected finite"),
        ({"x": np.zeros((0, 16)), "y": np.zeros(0, np.int32)}, ValueError, "samples, got 0"),
        ({"task": "ranking"}, ValueError, "task: expected one of"),
        (
            {"task": "regression", "class_weight": "balanced"},
            ValueError,
            "class_weight: expected None with task",
        ),
        ({"x": np.zeros(16)}, ValueError, r"pass \[x\] for one sample"),
        ({"progress": 1}, TypeError, "progress: expected None, True or a function, got int"),
        ({"n_trees": 0}, ValueError, "n_trees"),
    ],
)
def test_bad_input(change, error, message):
    settings = {
        "x": np.random.default_rng(0).normal(size=(20, 16)), "y": np.arange(20, dtype=np.int32) % 2,
        "n_trees": 2, "shape": (4, 4), "rng": 0,
    } | change  # fmt: skip
    with pytest.raises(error, match=message):
        manifold.grow(settings.pop("x"), settings.pop("y"), settings.pop("n_trees"), **settings)


def test_edges():
    x = np.random.default_rng(0).normal(size=(20, 16)).astype(np.float32)
    one_class = manifold.grow(x, np.zeros(20, np.int32), 3, shape=(4, 4), rng=0)
    assert (tree.predict(one_class, x) == 1).all()
    alone = manifold.grow(x[:1], np.zeros(1, np.int32), 2, shape=(4, 4), n_classes=3, rng=0)
    assert tree.predict(alone, x[:1]).tolist() == [[1, 0, 0]]
    constant = manifold.grow(np.ones((20, 16)), np.arange(20, dtype=np.int32) % 2, 3, shape=(4, 4), rng=0)
    assert len(constant.feature) == 3


# ----------------------------------------------------------------------------------- lenient input


@pytest.mark.parametrize("kind", KINDS)
def test_class_weight_multiplies_sample_weight(kind):
    x = np.random.default_rng(0).normal(size=(80, 64))
    y, weight = np.arange(80) % 4 // 3, np.arange(80) % 3 + 1.0
    settings = {"rng": 0, **KINDS[kind]}
    of_class = np.bincount(y, weight)
    balanced = manifold.grow(x, y, 3, sample_weight=weight, class_weight="balanced", **settings)
    factor = of_class.sum() / 2 / of_class
    for class_weight in (factor, factor.tolist(), dict(enumerate(factor))):
        assert_same_bits(
            manifold.grow(x, y, 3, sample_weight=weight, class_weight=class_weight, **settings), balanced
        )
    assert_same_bits(manifold.grow(x, y, 3, sample_weight=weight * factor[y], **settings), balanced)
    assert (
        balanced.value.tobytes() != manifold.grow(x, y, 3, sample_weight=weight, **settings).value.tobytes()
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [bool, np.uint8, np.int64, np.float16, np.float32, np.float64])
def test_dtypes_and_layouts(kind, given):
    x = (9 * abs(np.random.default_rng(0).normal(size=(60, 64)))).astype(given)
    y = np.arange(60) % 2
    dtype = np.float64 if np.dtype(given).itemsize == 8 else np.float32
    want = manifold.grow(x.astype(dtype), y, 3, rng=0, **KINDS[kind])
    assert want.threshold.dtype == dtype
    backwards = np.ascontiguousarray(x[:, ::-1])[:, ::-1]
    for other in (x, np.asfortranarray(x), backwards):
        for labels in (y, y.astype(bool), y.astype(np.uint64), y.tolist()):
            assert_same_bits(manifold.grow(other, labels, 3, rng=0, **KINDS[kind]), want)


def test_samples_are_scanned_once(monkeypatch):
    x, y = np.random.default_rng(0).normal(size=(60, 64)), np.arange(60) % 2
    seen = []
    real = check.finite_or_missing

    def spy(name, a):
        seen.append(name)
        return real(name, a)

    monkeypatch.setattr(check, "finite_or_missing", spy)
    manifold.grow(x, y, 3, rng=0, **KINDS["patch"])
    assert seen == ["x"]


@pytest.mark.parametrize("projection", ["sparse", "probe", "patch"])
@pytest.mark.parametrize("name", ["shape", "patch_min", "patch_max"])
def test_patches_of_another_projection(projection, name):
    x, y = np.zeros((4, 4)), [0, 1, 0, 1]
    for value in (object(), "2", 1.5, (2, "word"), np.zeros(2), {}):
        call = {"shape": (2, 2), "patch_max": 2} | {name: value}
        with pytest.raises(TypeError, match=rf"^{name}(\[[01]\])?: expected .*, got .*; "):
            manifold.grow(x, y, 1, projection=projection, **call)
    if projection != "patch":  # only patches read these values
        manifold.grow(x, y, 1, projection=projection, shape=(7,), patch_min=9, patch_max=(2, 3, 4, 5))


@pytest.mark.parametrize("projection", ["sparse", "probe", "patch"])
@pytest.mark.parametrize("name", ["density", "single_share", "channels", "cyclic"])
def test_settings_of_another_projection(projection, name):
    for value in (None, "2", [1], np.zeros(2), np.zeros(0)):
        with pytest.raises(TypeError, match=f"^{name}: expected .*, got .*; "):
            manifold.grow(
                np.zeros((4, 4)),
                [0, 1, 0, 1],
                1,
                projection=projection,
                shape=(2, 2),
                patch_max=2,
                **{name: value},
            )
