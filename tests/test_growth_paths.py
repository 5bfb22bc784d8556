"""Vector paths grow the trees of the plain one, whatever scorers, rows or tables they read."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import several_paths
from growers import assert_all_same, make, on_paths, overlapping

import hforest
from hforest import project

pytestmark = [pytest.mark.kernels, several_paths]


@pytest.mark.parametrize("max_bins", [None, 256, 10])
@pytest.mark.parametrize(
    ("n", "n_classes", "heaviest", "min_samples_leaf"),
    [(40, 2, 1, 1), (900, 3, 4, 1), (900, 40, 1, 1), (3000, 10, 2, 1), (3000, 30, 60, 1), (1200, 5, 3, 4)],
)
def test_vector_paths_grow_the_same_trees(simd, max_bins, n, n_classes, heaviest, min_samples_leaf):
    # Few and many samples, few and too many classes, weights too large for counting, columns without a split.
    rng = np.random.default_rng(n + n_classes)
    x = rng.normal(size=(n, 40)).astype(np.float32)
    x[:, 5:15] = rng.integers(0, 3, (n, 10))
    x[:, 15:35] = rng.random((n, 20)) < 0.01
    x[:, 35:] = 7
    y = ((x[:, 0] > 0) + rng.integers(0, n_classes, n)).astype(np.int32) % n_classes
    x, weights = hforest.samples(x, max_bins=max_bins), rng.integers(1, heaviest + 1, n).astype(np.float64)

    def grown():
        return hforest.grow(
            x, y, 3, sample_weight=weights, n_classes=n_classes, max_features=20, rng=1,
            min_samples_leaf=min_samples_leaf,
        )  # fmt: skip

    found = on_paths(simd, grown)
    assert_all_same(found)
    if n == 40:
        with hforest.using("reference"):
            assert_all_same([found[0], grown()])


@pytest.mark.parametrize("max_bins", [None, 256])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("n_outputs", "settings"),
    [
        (1, {"task": "regression"}), (9, {"task": "regression"}), (2, {"criterion": "entropy"}),
        (17, {"criterion": "gini"}), (1, {"task": "regression", "min_samples_leaf": 4}),
    ],
)  # fmt: skip
def test_vector_paths_sum_terms_alike(simd, max_bins, weighted, n_outputs, settings):
    # Targets of a wide range, real weights, all columns and some, nodes of few and of many samples.
    rng = np.random.default_rng(n_outputs)
    x, noise = rng.normal(size=(700, 12)).astype(np.float32), rng.normal(size=(700, n_outputs))
    y = np.exp(3 * noise + x[:, :1]) if "task" in settings else rng.integers(0, n_outputs, 700)
    weights = rng.random(700) + 0.1 if weighted else None
    x = hforest.samples(x, max_bins=max_bins)
    for max_features in (None, 4):

        def grown(max_features=max_features):
            return hforest.grow(x, y, 2, sample_weight=weights, max_features=max_features, rng=3, **settings)

        assert_all_same(on_paths(simd, grown))


@pytest.mark.parametrize("max_features", [3, 7, 40])
@pytest.mark.parametrize("max_bins", [256, 20])
def test_vector_paths_read_rows_and_columns_alike(simd, max_bins, max_features):
    # More bins than stay in cache, so that nodes of some hundred samples are read by rows; many equal bins and splits.
    rng = np.random.default_rng(max_features)
    x = rng.integers(0, 256, (3000, 200)) * (rng.random((3000, 200)) < 0.4)
    x[:, 100:] *= rng.random(100) < 0.5
    y = ((x[:, :50].sum(axis=1) // 400) % 9).astype(np.int32)
    x = hforest.samples(x.astype(np.float32), max_bins=max_bins)
    assert_all_same(
        on_paths(simd, lambda: hforest.grow(x, y, 2, n_classes=9, max_features=max_features, rng=2))
    )


@pytest.mark.parametrize("coarse", [True, False])
@pytest.mark.parametrize(
    "settings", [{}, {"max_features": 1}, {"min_samples_leaf": 4}, {"splitter": "random"}, {"max_bins": 256}]
)
def test_vector_paths_grow_the_same_trees_on_windows(simd, coarse, settings):
    windows, copies = overlapping(n_rows=300, n_features=30, coarse=coarse, seed=5)
    y = np.random.default_rng(1).integers(0, 5, len(copies)).astype(np.int32)
    y[copies[:, 0] > 0.3] = 1
    settings = {"sample_weight": np.ones(len(y)), "n_trees": 2, "n_classes": 5, "max_features": 3, **settings}
    assert_all_same(on_paths(simd, lambda: make(windows, y, **settings)))


def test_vector_paths_project_the_same(simd, dtype):
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(333, 64)).astype(dtype), rng.integers(0, 3, 333, np.int32)
    patches = project.patch_distribution((8, 8), patch_max=8)
    assert_all_same(on_paths(simd, lambda: make(x, y, projections=patches, n_projections=8)))


def awkward(values, n, rng):
    """Returns samples whose projections fall into few or many, full or empty buckets."""
    x = rng.normal(size=(n, 12))
    if values == "grey":
        x = np.round(20 * x)
    elif values == "whole":
        x = np.round(3000 * x)
    elif values == "background":
        x = np.where(rng.random((n, 12)) < 0.7, -1, x)
    elif values == "whole background":
        x = np.where(rng.random((n, 12)) < 0.7, 0, np.round(900 * abs(x)))
    elif values == "outliers":
        x[rng.random((n, 12)) < 0.01] *= 1e20
    elif values == "huge":
        x = 1e38 * np.clip(x, -3, 3)
    elif values == "tiny":
        x *= 1e-44
    elif values == "zeros":
        x = np.where(rng.random((n, 12)) < 0.5, np.copysign(0, x), x)
    return x.astype(np.float32)


@pytest.mark.parametrize("n_classes", [2, 12, 40])
@pytest.mark.parametrize(
    "values",
    ["normal", "grey", "whole", "background", "whole background", "outliers", "huge", "tiny", "zeros"],
)
def test_buckets_lose_no_split(simd, values, n_classes):
    # Nodes of all sizes, with splits in full and in empty buckets, next to and at a value with a bucket of its own.
    rng = np.random.default_rng(n_classes)
    x = awkward(values, 1500, rng)
    y = ((x[:, 0] > x[:, 1]) + 2 * (x[:, 2] > 0) + rng.integers(0, n_classes, 1500)).astype(int) % n_classes
    weights = rng.integers(1, 20, 1500).astype(np.float64)
    weights[rng.random(1500) < 0.01] = 400
    settings = {"projections": project.sparse_distribution(12), "n_projections": 12, "n_trees": 2}
    assert_all_same(
        on_paths(simd, lambda: make(x, y, n_classes=n_classes, sample_weight=weights, **settings))
    )


@pytest.mark.parametrize("values", ["bytes", "floats"])
@pytest.mark.parametrize("kind", ["patches", "sparse"])
def test_rows_columns_and_tables_hold_the_same_values(simd, values, kind):
    # Nodes that are added up in order, that read columns, and whose rows stay near.
    rng = np.random.default_rng(6)
    n, side = 2000, 14
    x = np.where(rng.random((n, side * side)) < 0.5, 0, rng.integers(0, 256, (n, side * side)))
    x = (x if values == "bytes" else np.sqrt(x) - 3).astype(np.float32)
    y = rng.integers(0, 3, n, np.int32)
    distribution = project.patch_distribution((side, side), patch_max=8)
    if kind == "sparse":
        distribution = project.sparse_distribution(side * side, 3.0)
    assert_all_same(on_paths(simd, lambda: make(x, y, n_trees=2, projections=distribution, n_projections=10)))


SHAPED = {
    "patches": lambda shape, n: project.patch_distribution(shape, patch_max=5),
    "cyclic": lambda shape, n: project.patch_distribution(shape, patch_max=4, cyclic=True),
    "sparse": lambda shape, n: project.sparse_distribution(n, 1.5),
    "dense": lambda shape, n: project.sparse_distribution(n, 7.0),
    "probe": lambda shape, n: project.probe_distribution(n),
    "axis": lambda shape, n: project.axis_distribution(n),
}


@pytest.mark.parametrize("n_projections", [1, 4, 6, 21])
@pytest.mark.parametrize("values", ["bytes", "whole", "floats"])
@pytest.mark.parametrize("distribution", SHAPED)
def test_blocks_and_comparisons_change_no_tree(simd, distribution, values, n_projections):
    # Nodes above, in and below blocks of all sizes, candidates that fill vectors or not, more entries than are
    # drawn at once, samples that are alike, and many features for a few candidates.
    rng = np.random.default_rng(n_projections)
    n, shape = (5000, (6, 9)) if n_projections > 1 else (900, (20, 30))
    n_features = shape[0] * shape[1]
    x = rng.integers(0, 9, (n, n_features)) * (rng.random((n, n_features)) < 0.5)
    x[n // 2 :] = x[: n - n // 2]
    x = {"bytes": x, "whole": 500 * x - 700, "floats": np.sin(x) * (x > 3)}[values].astype(np.float32)
    y = ((x[:, :20].sum(axis=1) > x[:, 20:40].sum(axis=1)) + rng.integers(0, 6, n)).astype(np.int32)
    settings = {
        "projections": SHAPED[distribution](shape, n_features), "n_projections": n_projections, "n_trees": 1,
        "n_classes": 7, "sample_weight": rng.integers(1, 4, n).astype(np.float64),
    }  # fmt: skip
    assert_all_same(on_paths(simd, lambda: make(x, y, **settings)))


@hypothesis.given(
    n=st.integers(2, 400),
    n_classes=st.sampled_from([2, 3, 7, 33]),
    n_values=st.sampled_from([2, 5, 40, 256]),
    heaviest=st.sampled_from([1, 3, 200]),
    max_features=st.integers(1, 19),
    seed=st.integers(0, 2**32),
)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_vector_paths_score_ties_and_weights_alike(
    simd, n, n_classes, n_values, heaviest, max_features, seed
):
    """Trees on bins, and on projections of whole numbers and of floats of either width."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, n_values, (n, 19)).astype(np.float64)
    x[:, rng.integers(0, 19, 4)] = 1  # constant features
    y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n)])[:n]
    common = {"n_classes": n_classes, "sample_weight": rng.integers(1, heaviest + 1, n), "rng": seed}
    oblique = {"projections": project.sparse_distribution(19), "n_projections": max_features}
    bins = hforest.samples(x)
    for a, settings in (
        (bins, {"max_features": max_features}), *((a, oblique) for a in (x, x / 7, (x / 7).astype(np.float32))),
    ):  # fmt: skip
        assert_all_same(on_paths(simd, lambda a=a, given=settings: hforest.grow(a, y, 2, **given, **common)))
