"""Columns of wide tables that are encoded on demand, and random thresholds of numbers without bins."""

import os
import threading

import numpy as np
import pytest
from conftest import assert_same_bits, several_paths
from growers import assert_all_same, both, grow, make, on_paths, on_threads, overlapping, problem

import hforest
from hforest import growth
from hforest.core import dispatch
from hforest.growth import encoding

LABELS = [{}, {"sample_weight": "whole"}, {"min_samples_leaf": 3}, {"criterion": "entropy"}]


def wide(n=40, n_columns=600, kind="normal", dtype=np.float32, n_classes=3):
    """Returns samples of many columns, some of them constant or with equal values of both signs of 0."""
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, n_columns)) if kind == "normal" else rng.integers(0, 256, (n, n_columns))
    x = x.astype(dtype)
    x[:, ::7] = np.round(x[:, ::7]) * -1
    x[:, ::5] = 4
    y = rng.integers(0, n_classes, n)
    y[:n_classes] = np.arange(n_classes)
    return x, (y + (x[:, 1] > np.median(x[:, 1]))) % n_classes


def settings_of(settings, n):
    whole = np.random.default_rng(1).integers(1, 5, n)
    return {name: whole if value == "whole" else value for name, value in settings.items()}


@pytest.mark.parametrize("splitter", ["best", "random"])
@pytest.mark.parametrize("max_bins", [None, 16, 256])
@pytest.mark.parametrize("kind", ["normal", "bytes"])
def test_wide_tables_grow_the_trees_of_the_reference(dtype, splitter, max_bins, kind):
    x, y = wide(kind=kind, dtype=dtype)
    assert (x == 0).any()
    both(x, y, max_bins=max_bins, splitter=splitter, max_features=25)
    both(x, x[:, 1] + y, n_classes=None, max_bins=max_bins, splitter=splitter, max_features=25)


@several_paths
@pytest.mark.parametrize("splitter", ["best", "random"])
@pytest.mark.parametrize(("n", "max_bins"), [(40, None), (40, 16), (300, None), (300, 128)])
@pytest.mark.parametrize("settings", LABELS)
def test_wide_tables_grow_the_same_trees_on_all_paths_and_threads(
    simd, threads, dtype, splitter, n, max_bins, settings
):
    x, y = wide(n, 8 * n, dtype=dtype)
    settings = {"splitter": splitter, "n_trees": 9, "max_features": 20} | settings_of(settings, n)
    results = on_paths(simd, lambda: make(x, y, max_bins=max_bins, **settings))
    results += on_threads(threads, lambda: make(x, y, max_bins=max_bins, **settings))
    eager = hforest.samples(x, max_bins=max_bins)
    given = eager.bins(tables=True)
    eager._made["on demand"] = (), given
    results.append(make(eager, y, **settings))
    assert_all_same(results)


def test_columns_are_encoded_when_a_node_samples_them():
    x, y = wide(60, 2000)
    samples = hforest.samples(x)
    forest = hforest.grow(samples, y, 1, rng=0)
    bins = samples.on_demand(tables=False)
    made = bins.state == -1
    assert 0 < made.sum() < 1000
    assert made[forest.feature[forest.feature >= 0]].all()
    assert (bins.state[~made] == 0).all()
    for f in np.flatnonzero(made):
        assert (np.sign(np.subtract.outer(x[:, f], x[:, f])) == np.sign(
            np.subtract.outer(bins.bins[f].astype(int), bins.bins[f].astype(int))
        )).all()  # fmt: skip
    before = bins.state.copy(), bins.bins[made].copy()
    assert_same_bits(hforest.grow(samples, y, 1, rng=0), forest)
    assert_same_bits((bins.state, bins.bins[made]), before)
    hforest.grow(samples, y, 300, rng=0)
    assert (bins.state == -1).all()


def test_python_threads_share_columns():
    x, y = wide(100, 3000)
    want = hforest.grow(x, y, 8, rng=0)
    for _ in range(5):
        samples, forests = hforest.samples(x), [None] * 4

        def run(i, samples=samples, forests=forests):
            forests[i] = hforest.grow(samples, y, 8, rng=0)

        workers = [threading.Thread(target=run, args=(i,)) for i in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert_all_same([want, *forests])


def test_a_column_that_another_process_began_is_encoded():
    # After a fork the child has the claims of the parent's threads, but not the threads.
    x, y = wide(60, 2000)
    samples = hforest.samples(x)
    bins = encoding.on_demand(samples)
    bins.state[:] = os.getpid() + 1
    samples.once("on demand", (), lambda: bins)
    assert_same_bits(hforest.grow(samples, y, 3, rng=0), hforest.grow(x, y, 3, rng=0))


@pytest.mark.parametrize("settings", LABELS)
@pytest.mark.parametrize("n", [1, 2, 3, 70, pytest.param(400, marks=pytest.mark.slow)])
def test_random_thresholds_of_numbers_are_those_of_the_reference(dtype, n, settings):
    x, y = problem(n, 7, 3, dtype, coarse=n % 2 == 0)
    settings = settings_of(settings, n)
    for max_features in (1, 4, 5, 7):
        both(x, y, splitter="random", bootstrap=False, max_features=max_features, **settings)
    both(x, y, splitter="random", **settings)
    both(x, x[:, 0] * y, n_classes=None, splitter="random", **{**settings, "criterion": None})


def test_random_thresholds_need_no_bins(monkeypatch):
    cpu = dispatch.backend("hforest.growth", np.empty(0))
    monkeypatch.setattr(cpu, "encode", None)
    x, y = problem(80, 6, seed=1)
    windows, copies = overlapping()
    for given in (hforest.samples(x), hforest.samples(windows[0], windows=windows[1:])):
        labels = y[: len(given)]
        grow(given, labels, 3, kind="extra", n_classes=3, rng=0)
        assert "bins" not in given._made
    labels = np.arange(len(copies)) % 3
    assert_same_bits(make(windows, labels, splitter="random"), make(copies, labels, splitter="random"))


@several_paths
@pytest.mark.parametrize("bootstrap", [False, True])
def test_random_thresholds_of_large_nodes_are_the_same_on_all_paths(simd, threads, dtype, bootstrap):
    x, y = problem(5000, 9, 30, dtype)
    weight = np.random.default_rng(0).integers(1, 300, 5000)
    for settings in ({}, {"sample_weight": weight}, {"sample_weight": weight / 7}):
        settings |= {"splitter": "random", "bootstrap": bootstrap, "n_trees": 8, "n_classes": 30}
        results = on_paths(simd, lambda settings=settings: make(x, y, **settings))
        results += on_threads(threads, lambda settings=settings: make(x, y, **settings))
        assert_all_same(results)


def test_exact_bins_by_number_of_samples_are_numbers():
    x, y = problem(50, 5)
    assert growth.samples(x, max_bins=50).are_exact_numbers
    assert not growth.samples(x, max_bins=49).are_exact_numbers
    got = (make(x, y, max_bins=most, splitter="random") for most in (50, 256))
    assert_all_same([make(x, y, splitter="random"), *got])
