"""Class weights that are balanced in each tree: `class_weight="balanced_subsample"`."""

import numpy as np
import pytest
from conftest import assert_same_bits, refused
from growers import DISTRIBUTIONS, both

import hforest
from hforest import co2, growth

N, N_TREES = 90, 4


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 6))
    y = np.digitize(x[:, 0] + rng.normal(size=N), [0.3, 1.4])
    return x, y, rng.integers(0, 4, N) * 0.5


def balanced(y, weight):
    """Returns weights with which the classes that occur have equal weight."""
    of_class = np.bincount(y, weight)
    factor = np.where(of_class > 0, weight.sum() / np.count_nonzero(of_class) / np.maximum(of_class, 1e-9), 0)
    return weight * factor[y]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("drawn", [True, "poisson", "counts"])
def test_trees_have_balanced_samples(problem, drawn, weighted):
    x, y, weight = problem
    counts = growth.bootstrap_counts(N, N_TREES, rng=5)
    if drawn == "poisson":
        counts = growth.poisson_counts(N, N_TREES, rng=5)
    weight = weight if weighted else np.ones(N)
    settings = {"class_weight": "balanced_subsample", "bootstrap": counts if drawn == "counts" else drawn}
    f = hforest.grow(x, y, N_TREES, sample_weight=weight, rng=5, **settings)
    for m, count in enumerate(counts):
        of_tree = balanced(y, weight * count)
        alone = hforest.grow(x, y, 1, sample_weight=of_tree, bootstrap=False, first_tree=m, rng=5)
        some = slice(*f.tree_start[m : m + 2])
        np.testing.assert_array_equal(f.feature[some], alone.feature)
        np.testing.assert_array_equal(f.threshold[some], alone.threshold)
        np.testing.assert_allclose(f.gain[some], alone.gain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"splitter": "random"}, {"criterion": "entropy", "min_weight_fraction_leaf": 0.1},
        {"projections": DISTRIBUTIONS["sparse"](6)},
    ],
)  # fmt: skip
def test_reference(problem, settings, dtype):
    x, y, weight = problem
    for labels, n_classes in ((y, 4), (np.stack([y, x[:, 1] > 0], axis=1), [3, 2])):
        if n_classes == 4 or "criterion" not in settings:
            both(
                x.astype(dtype), labels, n_classes=n_classes, sample_weight=weight,
                class_weight="balanced_subsample", **settings,
            )  # fmt: skip


def test_threads_and_ranges(problem, threads):
    x, y, _ = problem
    settings = {"class_weight": "balanced_subsample", "rng": 3}
    whole = hforest.grow(x, y, 6, **settings)
    threads(2)
    parts = [hforest.grow(x, y, 3, first_tree=first, **settings) for first in (0, 3)]
    assert_same_bits(hforest.tree.join(parts), whole)


def test_trees_without_weight_take_all_samples(problem):
    x, y, _ = problem
    weight, counts = (
        np.r_[np.ones(50), np.zeros(N - 50)],
        np.r_[np.zeros(50, int), np.ones(N - 50, int)][None],
    )
    f = hforest.grow(
        x, y, 1, class_weight="balanced_subsample", sample_weight=weight, bootstrap=counts, rng=0
    )
    g = hforest.grow(x, y, 1, class_weight="balanced", sample_weight=weight, bootstrap=False, rng=0)
    np.testing.assert_array_equal(f.threshold, g.threshold)


def test_without_bootstrap_it_is_balanced(problem):
    x, y, _ = problem
    first, second = (
        hforest.grow(x, y, 2, class_weight=word, bootstrap=False, rng=0)
        for word in ("balanced", "balanced_subsample")
    )
    assert_same_bits(first, second)


def test_refusals(problem):
    x, y, _ = problem
    word = {"class_weight": "balanced_subsample"}
    with refused(ValueError, "class_weight: expected None with task"):
        hforest.grow(x, y * 1.0, 2, task="regression", **word)
    with refused(ValueError, "class_weight: expected None with y_order"):
        hforest.grow(x, y, 2, y_order=np.zeros((2, N), int), **word)
    with refused(ValueError, "class_weight: expected one of 'balanced'"):
        co2.grow(x, y, 2, **word)
