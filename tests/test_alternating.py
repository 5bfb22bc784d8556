"""Alternating decision forests: the reference, forests of constant weights, weights of levels, arguments."""

import math

import numpy as np
import pytest
import scipy.sparse
from conftest import assert_same_bits
from growers import assert_all_same, blobs, on_threads, problem

import hforest
from hforest import alternating, growth, project, tree
from hforest.alternating.losses import LEAST, margins, weights
from hforest.demo import load_digits
from hforest.growth.gpu import builder

CONSTANT = (lambda m: -m, lambda m: -np.ones_like(m))
STEEP = (lambda m: np.logaddexp(0, -4 * m), lambda m: -4 / (1 + np.exp(4 * m)))
RNG = np.random.default_rng(0)
OPTIONS = {
    "exponential": {},
    "logistic, entropy": {"loss": "logistic", "criterion": "entropy"},
    "a pair": {"loss": STEEP, "max_features": None},
    "limits": {"max_depth": 3, "min_samples_leaf": 2, "min_samples_split": 5, "min_impurity_decrease": 0.01},
    "least weight": {"min_weight_fraction_leaf": 0.1},
    "sample weights": {"sample_weight": RNG.integers(0, 3, 60) * 0.37},
    "class weights": {"class_weight": [1.0, 3.0, 0.5]},
    "least decrease": {"min_loss_decrease": 0.05},
    "projections": {"projections": project.sparse_distribution(4), "n_projections": 3},
    "more classes": {"n_classes": 5},
}


def kinds(dtype):
    """Returns samples of each kind with the same labels."""
    x, y = problem(60, dtype=dtype)
    missing = x.copy()
    missing[RNG.random(x.shape) < 0.2] = np.nan
    categories = np.concatenate([np.arange(60)[:, None] * 7 % 11, x[:, 1:]], axis=1).astype(dtype)
    flat = RNG.normal(size=(20, 4)).astype(dtype)
    return y, {
        "numbers": x,
        "missing": missing,
        "categories": hforest.samples(categories, categorical=[0]),
        "bins": hforest.samples(x, max_bins=5),
        "sparse": scipy.sparse.csr_array(np.where(abs(x) < 0.7, 0, x)),
        "windows": hforest.samples(flat, windows=(np.arange(60), np.arange(5) * 3)),
    }


@pytest.mark.parametrize("name", list(OPTIONS))
def test_forests_equal_the_reference(fast_backend, dtype, name, reference):
    x, y = problem(60, dtype=dtype)
    call = {"rng": 5, **OPTIONS[name]}
    there = {k: fast_backend.array(a) if k == "sample_weight" else a for k, a in call.items()}
    got = alternating.grow(fast_backend.array(x), fast_backend.array(y), 3, **there)
    assert_same_bits(tree.Forest(*map(fast_backend.numpy, got)), reference(alternating.grow, x, y, 3, **call))


@pytest.mark.parametrize("kind", ["missing", "categories", "bins", "sparse", "windows"])
def test_samples_of_each_kind_equal_the_reference(dtype, kind, reference):
    y, samples = kinds(dtype)
    got = tree.check(alternating.grow(samples[kind], y, 3, rng=2))
    assert_same_bits(got, reference(alternating.grow, samples[kind], y, 3, rng=2))


def test_parts_of_roots_on_a_gpu_equal_the_reference(dtype, monkeypatch, reference, backend):
    x, y = problem(60, dtype=dtype)
    for size in (1, 1 << 15):
        monkeypatch.setattr(builder, "HOST_MEMORY", size)
        assert_same_bits(alternating.grow(x, y, 3, rng=1), reference(alternating.grow, x, y, 3, rng=1))


@pytest.mark.parametrize("kind", ["numbers", "missing", "categories", "bins", "sparse", "windows"])
@pytest.mark.parametrize("name", ["exponential", "limits", "sample weights", "more classes"])
def test_a_constant_slope_gives_the_forest_of_grow(dtype, kind, name):
    y, samples = kinds(dtype)
    call = {"rng": 3, **OPTIONS[name]}
    if name == "sample weights":  # whole ones: others have another sum when they are divided by it
        call["sample_weight"] = RNG.integers(0, 3, 60)
    got = alternating.grow(samples[kind], y, 4, loss=CONSTANT, **call)
    assert_same_bits(got, hforest.grow(samples[kind], y, 4, bootstrap=False, **call))


def test_a_constant_slope_with_projections_gives_the_forest_of_grow(dtype):
    x, y = problem(60, dtype=dtype)
    call = {"projections": project.sparse_distribution(4), "rng": 3}
    got = alternating.grow(x, y, 4, loss=CONSTANT, **call)
    assert_same_bits(got, hforest.grow(x, y, 4, bootstrap=False, **call))


def test_threads_do_not_change_bits(threads, dtype):
    x, y = problem(300, dtype=dtype)
    assert_all_same(on_threads(threads, lambda: alternating.grow(x, y, 9, rng=1)))


def test_margins_of_a_level_are_those_of_the_forest_that_ends_there(dtype):
    x, y = problem(80, dtype=dtype)
    seen = []

    def slope(m):
        seen.append(m)
        return -np.exp(-m)

    alternating.grow(x, y, 5, loss=(lambda m: np.exp(-m), slope), max_depth=4, rng=7)
    assert len(seen) == 3  # not at the roots, and not below the last level
    for depth, got in enumerate(seen, 1):
        p = tree.predict(alternating.grow(x, y, 5, max_depth=depth, rng=7), x).astype(np.float64)
        want = [p[i, k] - max(p[i, j] for j in range(3) if j != k) for i, k in enumerate(y)]
        np.testing.assert_array_equal(got, want)


def test_weights_are_slopes_with_the_sum_of_the_sample_weights():
    margin = np.array([-1.0, -0.25, 0.5, 1.0])
    given = np.array([1.0, 2.0, 0.0, 4.0])
    want = [w * math.exp(-m) for w, m in zip(given, margin, strict=True)]
    got = weights(alternating.losses.NAMED["exponential"], margin, given)
    np.testing.assert_allclose(got, np.array(want) * 7 / sum(want), rtol=1e-14)
    logistic = weights(alternating.losses.NAMED["logistic"], margin, np.ones(4))
    want = np.array([1 / (1 + math.exp(m)) for m in margin])
    np.testing.assert_allclose(logistic, want * 4 / want.sum(), rtol=1e-14)
    hinge = (lambda m: np.maximum(0, -m), lambda m: -1.0 * (m < 0))
    got = weights(hinge, margin, np.ones(4))
    np.testing.assert_allclose(got, np.array([2, 2, 2 * LEAST, 2 * LEAST]), rtol=1e-10)
    assert weights(hinge, np.ones(3), np.ones(3)) is None


def test_the_margin_of_one_class_is_1():
    assert margins(np.ones((3, 1)), np.zeros(3, np.int32)).tolist() == [1, 1, 1]
    forest = alternating.grow(np.ones((3, 2)), [0, 0, 0], 2, rng=0)
    assert forest.feature.tolist() == [-1, -1]


def test_leaves_have_shares_by_sample_weight(dtype):
    x, y = problem(90, coarse=True, dtype=dtype)
    weight = RNG.uniform(0.1, 2, 90)
    forest = alternating.grow(x, y, 4, sample_weight=weight, max_depth=4, rng=0)
    want = tree.refit(forest, x, y, sample_weight=weight)
    np.testing.assert_allclose(forest.value, want.value, rtol=1e-5, atol=1e-7)


def test_growth_ends_where_the_loss_decreases_little():
    x, y = problem(200)
    means = []

    def value(m):
        means.append(np.exp(-m).mean())
        return np.exp(-m)

    loss = value, lambda m: -np.exp(-m)
    forest = alternating.grow(x, y, 5, loss=loss, min_loss_decrease=0.08, rng=0)
    decreases = -np.diff(means)
    assert (decreases[:-1] >= 0.08).all()
    assert decreases[-1] < 0.08
    assert tree.depth(forest).max() == len(decreases)
    assert tree.depth(alternating.grow(x, y, 5, rng=0)).max() > len(decreases)


def test_growth_ends_where_no_sample_has_a_slope():
    x, y = problem(200)
    flat = (np.zeros_like, np.zeros_like)
    assert tree.depth(alternating.grow(x, y, 5, loss=flat, rng=0)).max() == 1


def test_shallow_forests_have_a_lower_error():
    data = load_digits()
    x, y, x_test, y_test = data[:4]

    def error(grow, **settings):
        forests = [grow(x, y, 30, max_depth=d, rng=seed, **settings) for d in (3, 5) for seed in range(3)]
        return np.mean([(tree.predict(forest, x_test).argmax(axis=1) != y_test).mean() for forest in forests])

    assert error(alternating.grow, loss=STEEP) < 0.93 * error(hforest.grow, bootstrap=False)


def test_progress_counts_trees_and_stops():
    x, y = blobs()
    seen = []
    forest = alternating.grow(x, y, 7, progress=lambda done, total: seen.append((done, total)), rng=0)
    done = [a for a, _ in seen]
    assert done == sorted(done)
    assert (done[0], seen[-1]) == (0, (7, 7))
    assert_same_bits(forest, alternating.grow(x, y, 7, rng=0))
    stopped = tree.check(alternating.grow(x, y, 7, progress=lambda done, total: False, rng=0))
    assert tree.depth(stopped).tolist() == [0] * 7


def test_samples_that_change_during_the_call_are_refused():
    x, y = problem(60)

    def progress(done, total):
        x[:] = 1e6

    with pytest.raises(
        ValueError, match="x: expected samples that stay as they are, got others; do not change"
    ):
        alternating.grow(x, y, 3, progress=progress, rng=0)


def test_labels_and_weights_belong_to_the_call():
    x, y = problem(60)
    weight = np.ones(60)

    def progress(done, total):
        y[:] = 10**6
        weight[:] = np.nan

    want = alternating.grow(x, y.copy(), 3, rng=0)
    assert_same_bits(alternating.grow(x, y, 3, sample_weight=weight, progress=progress, rng=0), want)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"loss": "hinge"}, ValueError, "loss: expected .*'exponential'.*'logistic'.*, got 'hinge'"),
        ({"loss": 3}, TypeError, "loss: expected 'exponential', 'logistic' or a tuple of two functions, got 3; pass"),
        ({"loss": (np.exp,)}, TypeError, "loss: expected .* a tuple of two functions"),
        ({"loss": (np.exp, lambda: 0)}, TypeError, r"loss\[1\]: expected a function that accepts \(margin\)"),
        ({"loss": (np.exp, np.sum)}, ValueError, r"loss\[1\]: expected shape \(n_samples,\) = \(60,\), got \(\)"),
        ({"loss": (np.exp, lambda m: m * np.nan)}, ValueError, r"loss\[1\]: expected numbers from -1e\+100 to"),
        ({"loss": (lambda m: m * 1e200, np.exp), "min_loss_decrease": 0}, ValueError, r"loss\[0\]: expected numb"),
        ({"min_loss_decrease": -1.0}, ValueError, "min_loss_decrease: expected"),
        ({"task": "regression"}, ValueError, "task: expected .*classification.*, got 'regression'"),
        ({"y": np.zeros((60, 2), int)}, ValueError, "y: expected one label a sample, got several labels; grow"),
        ({"bootstrap": True}, TypeError, "bootstrap"),
        ({"max_leaf_nodes": 4}, TypeError, "max_leaf_nodes"),
        ({"max_features": 1, "projections": project.sparse_distribution(4)}, TypeError, "max_features: expected"),
        ({"projections": project.sparse_distribution(5)}, ValueError, "n_features"),
        ({"n_trees": 0}, ValueError, "n_trees: expected"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(call, error, message):
    x, y = problem(60)
    with pytest.raises(error, match=message):
        alternating.grow(x, **{"y": y, "n_trees": 2, "max_depth": 3, "rng": 0, **call})


def test_roots_of_the_engine_may_have_samples_in_any_place():
    # The samples of the nodes of a split are neither neighbours nor all samples.
    x, y = problem(100)
    whole = hforest.grow(x, y, 3, bootstrap=False, rng=1)
    assert_same_bits(alternating.grow(growth.samples(x), y, 3, loss=CONSTANT, rng=1), whole)
