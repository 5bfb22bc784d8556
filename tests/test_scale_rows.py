"""Forests on rows of several workers are bit-identical to those of one machine, for any partition."""

import contextlib
import itertools
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import row_comms
import row_worker

import hforest
from hforest import growth, project, scale
from hforest.core import check, machine, philox, supervised
from hforest.growth import by_level, unchecked
from hforest.growth.bins import Bins
from hforest.growth.by_level import (
    edges,
    nodes,
    parts,
    planning,
    projected_parts,
    projected_trees,
    units,
)
from hforest.growth.by_level.scorers import best_splits
from hforest.growth.trees import Batch, Objective, Roots, as_forest, joined
from hforest.scale.rows import communicators, workers

N_TREES = 3
PARTITIONS = {
    "one": (1.0,),
    "two": (0.5, 1.0),
    "three": (0.2, 0.3, 1.0),
    "five": (0.01, 0.4, 0.6, 0.9, 1.0),
    "empty": (0.5, 0.5, 1.0),
    "empty first": (0.0, 1.0),
}
partitions = pytest.mark.parametrize("cuts", PARTITIONS.values(), ids=PARTITIONS)
some_partitions = pytest.mark.parametrize(
    "cuts",
    [
        pytest.param(cuts, marks=[pytest.mark.slow] * (name != "three"), id=name)
        for name, cuts in PARTITIONS.items()
    ],
)
"""For large samples: the other partitions are slow."""


def samples(n=200, n_classes=2, missing=False, categories=False, dtype=np.float64, seed=0):
    """Returns samples with columns of few values, of many and of one, and labels that depend on them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 7))
    x[:, 1] = rng.integers(0, 5, n)
    x[:, 2] = 3.5
    x[:, 3] = np.round(x[:, 3], 1)
    x[:, 5] = rng.integers(0, 9, n) * 3
    x[:, 6] = rng.integers(0, 3, n)
    score = x[:, 0] + np.where(x[:, 1] == 2, 1, 0) + (x[:, 5] % 2) + 0.3 * rng.normal(size=n)
    y = np.argsort(np.argsort(score)) * n_classes // n
    if missing:
        x[rng.random(x.shape) < 0.1] = np.nan
        x[:, 2] = np.where(np.isnan(x[:, 2]), np.nan, 3.5)
    settings = {"categorical": [5, 6]} if categories else {}
    return x.astype(dtype), y.astype(np.int32), settings


def divided(cuts, *arrays):
    """Returns the parts of arrays as tuples."""
    n = len(arrays[0])
    at = [0, *(round(n * cut) for cut in cuts)]
    return [tuple(a[i:j] for a in arrays) for i, j in itertools.pairwise(at)]


def grown(cuts, x, y, *, bootstrap="poisson", sample_weight=None, **settings):
    """Returns the forest of the workers, after a check that all are equal."""
    given = divided(cuts, x, y)
    counts = [bootstrap] * len(cuts)
    if isinstance(bootstrap, np.ndarray):
        counts = [a.T for (a,) in divided(cuts, bootstrap.T)]
    weights = [None] * len(cuts)
    if sample_weight is not None:
        weights = [a for (a,) in divided(cuts, sample_weight)]

    def work(comm):
        own = {"bootstrap": counts[comm.rank], "sample_weight": weights[comm.rank], **settings}
        return scale.grow_by_rows(comm, *given[comm.rank], N_TREES, rng=3, **own)

    found = row_comms.run(len(cuts), work)
    for forest in found:
        if isinstance(forest, Exception):
            raise forest
        same(found[0], forest)
    return found[0]


def same(a, b):
    for name in a._fields:
        one, other = getattr(a, name), getattr(b, name)
        assert one.dtype == other.dtype, name
        np.testing.assert_array_equal(one, other, err_msg=name)


def on_one_machine(x, y, *, max_bins=256, categorical=None, **settings):
    """Returns the forest of one machine on the same bins."""
    given = hforest.samples(x, max_bins=max_bins, categorical=categorical)
    return hforest.grow(given, y, N_TREES, rng=3, **settings)


# Name: (samples, settings).
CASES = {
    "2": ({}, {}),
    "10": ({"n_classes": 10}, {}),
    "26, entropy": ({"n_classes": 26}, {"criterion": "entropy"}),
    "2, entropy, float32": ({"dtype": np.float32}, {"criterion": "entropy", "max_features": 4}),
    "missing": ({"missing": True}, {}),
    "missing, 10": ({"missing": True, "n_classes": 10}, {"max_features": 3}),
    "categories": ({"categories": True}, {"max_features": 4}),
    "categories, 10": ({"categories": True, "n_classes": 10}, {"max_features": 4}),
    "all, 26": ({"missing": True, "categories": True, "n_classes": 26}, {"criterion": "entropy"}),
    "all, 2": ({"missing": True, "categories": True}, {"max_features": 3, "max_bins": 8}),
    "bins": ({"n_classes": 10}, {"max_bins": 7, "max_features": 7}),
    "one feature": ({"n_classes": 10}, {"max_features": 1, "max_bins": 3}),
    "limits": ({"missing": True}, {"min_samples_leaf": 7, "min_samples_split": 30, "max_depth": 4}),
    "weights": ({"missing": True, "categories": True}, {"min_weight_fraction_leaf": 0.043}),
    "weights, 3": ({"n_classes": 3}, {"min_weight_fraction_leaf": 0.11, "criterion": "entropy"}),
    "decrease": ({}, {"min_impurity_decrease": 0.01, "max_depth": 9}),
    "all samples": ({"n_classes": 10}, {"bootstrap": False}),
}
LIMITS = pytest.param("limits", marks=pytest.mark.rows)


@pytest.mark.parametrize("max_gathered", [0, 25, None])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.rows] * (name == "limits")) for name in CASES]
)
def test_a_worker_grows_the_trees_of_one_machine(name, max_gathered):
    of_samples, settings = CASES[name]
    x, y, more = samples(**of_samples)
    settings = {"bootstrap": "poisson", **more, **settings}
    forest = scale.grow_by_rows(None, x, y, N_TREES, rng=3, max_gathered=max_gathered, **settings)
    same(on_one_machine(x, y, **settings), forest)
    hforest.tree.check(forest)


@partitions
@pytest.mark.parametrize("max_gathered", [0, 25, None])
@pytest.mark.parametrize("name", ["10", "all, 26", "all, 2", LIMITS, "weights", "one feature"])
def test_no_partition_changes_a_bit(name, max_gathered, cuts):
    of_samples, settings = CASES[name]
    x, y, more = samples(**of_samples)
    settings = {**more, **settings}
    want = on_one_machine(x, y, bootstrap="poisson", **settings)
    same(want, grown(cuts, x, y, max_gathered=max_gathered, **settings))


@partitions
@pytest.mark.parametrize("max_gathered", [0, 25, None])
@pytest.mark.parametrize("name", ["2", "all, 2", LIMITS, "weights"])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_no_partition_changes_a_bit_of_a_regression(name, n_outputs, max_gathered, cuts):
    of_samples, settings = CASES[name]
    x, y, more = samples(**of_samples)
    targets = y[:, None] * 5.0 + np.random.default_rng(1).normal(size=(len(y), n_outputs))
    targets[x[:, 1] == 2] = 0.25  # pure nodes
    settings = {"max_features": 7, **more, **settings, "task": "regression"}
    want = on_one_machine(x, targets, bootstrap="poisson", **settings)
    same(want, grown(cuts, x, targets, max_gathered=max_gathered, **settings))


# Targets of (n, n_outputs) normal numbers z.
TARGETS = {
    "outlier": lambda z: np.where(np.arange(len(z))[:, None] == 7, 1e12, 1 + 0.1 * z),
    "lognormal": lambda z: np.exp(8 * z),
    "constant": lambda z: 0 * z + 0.3,
    "steps": np.round,
    "tiny": lambda z: 1e-30 * z,
    "huge": lambda z: 1e30 * z,
    "offset": lambda z: 1e9 + z,
    "zeros of both signs": lambda z: np.where(z < 1, 0 * z, 1),
}


@pytest.mark.parametrize("max_gathered", [0, 25])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_outputs", [1, 3, 10])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.rows] * (name == "outlier")) for name in TARGETS]
)
def test_targets_of_any_range(name, n_outputs, dtype, max_gathered):
    """Nodes get units of their own, with whole weights and gains out of the range of float32."""
    x, _, settings = samples(n=120, missing=True, categories=max_gathered == 0, dtype=dtype)
    rng = np.random.default_rng(4)
    settings |= {"task": "regression", "sample_weight": rng.integers(0, 2**10, len(x))}
    targets = TARGETS[name](rng.normal(size=(len(x), n_outputs)))
    want = on_one_machine(x, targets, bootstrap="poisson", **settings)
    assert np.isfinite(want.gain).all()
    same(want, grown(PARTITIONS["three"], x, targets, max_gathered=max_gathered, **settings))


def test_nodes_get_units_of_their_own(monkeypatch):
    """A level has a message about its nodes, and six more where nodes need units."""
    x, y, _ = samples(n=120)
    made, measured = [], []
    of_nodes, of_rows = units.made, parts.measured
    monkeypatch.setattr(units, "made", lambda *args: made.append(len(args[2])) or of_nodes(*args))
    monkeypatch.setattr(parts, "measured", lambda *args: measured.append(1) or of_rows(*args))
    settings = {
        "task": "regression",
        "max_depth": 4,
        "max_gathered": 0,
        "bootstrap": False,
        "max_features": 7,
    }
    forest = scale.grow_by_rows(None, x, y + 0.001 * x[:, 0], 1, rng=3, **settings)
    n_leaves = int((forest.feature == -1).sum())
    assert 1 + n_leaves < sum(made) < len(forest.feature)  # the root, leaves, and some other nodes
    assert len(measured) == 5 + 6 * len(made)


@partitions
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("n_threads", [1, 2, 7])
def test_weights_and_counts(threads, n_threads, task, cuts):
    x, y, _ = samples(n_classes=10, dtype=np.float32)
    if task == "regression":
        y = 1e18 * (y + x[:, 0])  # gains are scaled by the greatest in-bag count, too
    weight = np.random.default_rng(2).integers(0, 4, len(y))
    counts = growth.bootstrap_counts(len(y), N_TREES, rng=8)
    counts[1] = weight == 0  # a tree that takes every row, since it draws no row of weight above 0
    settings = {"bootstrap": counts, "sample_weight": weight, "task": task}
    want = on_one_machine(x, y, **settings)
    threads(n_threads)
    same(want, grown(cuts, x, y, max_gathered=20, **settings))


@partitions
def test_a_tree_that_draws_no_row_of_any_part_is_refused(cuts):
    x, y, _ = samples(n_classes=3)
    counts = np.ones((N_TREES, len(y)), int)
    counts[2, : len(y) // 2] = 0  # rows of some parts
    same(on_one_machine(x, y, bootstrap=counts), grown(cuts, x, y, bootstrap=counts))
    counts[2] = 0
    with pytest.raises(
        ValueError, match="^bootstrap: expected at least one sample in each row, got only zeros in row 2"
    ):
        grown(cuts, x, y, bootstrap=counts)


@pytest.mark.rows
@pytest.mark.parametrize("max_gathered", [0, None])
def test_a_column_without_values(max_gathered):
    x, y, _ = samples(missing=True, n_classes=3)
    x[:, 3] = np.nan
    want = on_one_machine(x, y, bootstrap="poisson")
    same(want, grown(PARTITIONS["three"], x, y, max_gathered=max_gathered))


def test_a_range_of_trees():
    x, y, _ = samples()
    whole = scale.grow_by_rows(None, x, y, 7, rng=3)
    some = [scale.grow_by_rows(None, x, y, n, first_tree=a, rng=3) for a, n in ((0, 2), (2, 5))]
    same(whole, hforest.tree.join(some))


@some_partitions
def test_bins_of_sampled_rows_do_not_depend_on_the_partition(monkeypatch, cuts):
    monkeypatch.setattr(planning, "SAMPLED", 400)
    x, y, _ = samples(n=3000, n_classes=3, missing=True)
    want = scale.grow_by_rows(None, x, y, N_TREES, max_bins=16, rng=3)
    same(want, grown(cuts, x, y, max_bins=16))
    same(want, grown(cuts, x, y, max_bins=16, max_gathered=0))


def test_bins_of_sampled_rows(monkeypatch):
    monkeypatch.setattr(planning, "SAMPLED", 400)
    x, y, _ = samples(n=3000, n_classes=3, missing=True)
    want = scale.grow_by_rows(None, x, y, N_TREES, max_bins=16, rng=3)
    # Rows that were not sampled go where their bins went.
    given = parts.RawPart(x, y, None, None)
    settings = by_level.check_settings(N_TREES, max_bins=16, rng=3)
    engine = workers.Workers(communicators.OneWorker())
    known, part = planning.plan(engine, given, settings)
    assert 200 < sum(parts.sampled_rows(3, 0, 3000, 2**32 * 400 // 3000)) < 600
    assert known.edges.n_bins[0] == 15
    one_machine = hforest.samples(x)
    bins = Bins(part.codes, known.edges.low, known.edges.high, x.dtype, missing=known.edges.missing)
    one_machine.once("bins", (), lambda: bins)
    same(hforest.grow(one_machine, y, N_TREES, bootstrap="poisson", rng=3), want)
    # Leaves have the shares of the in-bag rows that reach them.
    counts = growth.poisson_counts(3000, N_TREES, rng=3)
    found = hforest.tree.apply(want, x)
    first_leaf = np.cumsum([0, *np.add.reduceat(want.feature == -1, want.tree_start[:-1])])
    for m in range(N_TREES):
        shares = np.zeros((len(want.value), 3))
        leaf = want.left[want.tree_start[m] + found[:, m]]
        np.add.at(shares, (first_leaf[m] + leaf, y), counts[m])
        drawn = shares.sum(axis=1) > 0
        assert drawn.sum() == first_leaf[m + 1] - first_leaf[m]
        shares[drawn] /= shares[drawn].sum(axis=1, keepdims=True)
        np.testing.assert_allclose(shares[drawn], want.value[drawn], atol=1e-12)


class Parts:
    """An engine whose parts are a list."""

    n_tasks = 2

    def map(self, function, handles, *args, each=()):
        values = enumerate(zip(*handles, strict=True))
        return [function(*value, *args, *each[p : p + 1]) for p, value in values]

    collect = map

    def total(self, function, handles, *args, shape, dtype):
        found = self.map(function, handles, *args)
        assert {(a.shape, a.dtype) for a in found} == {(shape, dtype)}
        return sum(found)

    def exchange(self, send, handles, items, receive, args):
        assert len(items) <= self.n_tasks
        sent = [self.map(send, handles, item) for item in items]
        return [receive(found, *more) for found, more in zip(sent, args, strict=True)]

    def agree(self, go_on):
        return go_on()


@pytest.mark.parametrize("task", ["classification", "regression", "projections"])
def test_an_engine_of_parts_in_a_list(task):
    x, y, _ = samples(n=200, n_classes=3, missing=True)
    settings = {"max_gathered": 30, "max_depth": 6, "rng": 3}
    if task == "regression":
        settings |= {"task": task}
    elif task == "projections":
        settings |= {"projections": project.sparse_distribution(x.shape[1]), "n_projections": 3}
    want = scale.grow_by_rows(None, x, y, N_TREES, **settings)
    ranges = [(0, 20), (20, 120), (120, 200)]
    given = [(x[a:b], y[a:b], None) for a, b in ranges]
    same(want, scale.grow_on_engine(Parts(), given, N_TREES, **settings))
    counts = growth.poisson_counts(len(x), N_TREES, rng=3)
    checked = by_level.check_settings(N_TREES, bootstrap=counts, **settings)
    given = [(*part, counts[:, a:b]) for part, (a, b) in zip(given, ranges, strict=True)]
    same(want, by_level.grow(Parts(), given, checked))


def test_settings_that_no_engine_takes():
    for settings, message in (
        ({"settings": {}}, "settings: expected an argument of grow_on_engine, got another name; use "),
        ({"bootstrap": np.ones((1, 3), int)}, 'bootstrap: expected "poisson" or False, got in-bag counts; pass False'),
        ({"sample_weight": np.ones(3)}, "sample_weight: expected None, got weights; put them into the samples"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"^{message}"):
            scale.grow_on_engine(Parts(), [], 1, **settings)


def test_bins_are_those_of_one_machine():
    rng = np.random.default_rng(0)
    for n, most in ((1000, 256), (1000, 5), (3, 256), (1000, 1)):
        values = np.round(rng.normal(size=n), 1 if n > 3 else 9)
        bins = hforest.samples(values[:, None], max_bins=most).bins()
        low, high = edges.of_sample(values, most)
        np.testing.assert_array_equal(low, bins.low[0])
        np.testing.assert_array_equal(high, bins.high[0])
        table = edges.edges_of([(low, high)], np.zeros(1, bool), None, np.dtype(np.float64))
        np.testing.assert_array_equal(edges.bins_of(values[:, None], table), bins.bins)


@pytest.mark.rows
def test_bins_of_columns_without_values_and_of_many_bins():
    rng = np.random.default_rng(0)
    for n, most, dtype in ((0, 5, np.uint8), (50, 3, np.uint8), (70_000, 70_000, np.uint32)):
        x = rng.normal(size=(n, 3)).astype(np.float32)
        x[:, 1], x[::3, 2] = np.nan, np.nan
        tables = [edges.of_sample(column.astype(np.float64), most) for column in x.T]
        table = edges.edges_of(tables, np.isnan(x).any(axis=0), None, np.dtype(np.float32))
        bins = edges.bins_of(x, table)
        assert bins.dtype == dtype
        for f, (low, high) in enumerate(tables):
            limits = edges.between(high[:-1], low[1:], np.dtype(np.float32))
            expected = np.where(np.isnan(x[:, f]), len(low), np.searchsorted(limits, x[:, f]))
            np.testing.assert_array_equal(bins[f], expected)


def test_a_call_starts_no_threads_of_python(monkeypatch):
    """Ctrl-C inside of their locks would leave these locked, and the call would hang."""

    def start(self):
        raise AssertionError("a thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    x, y, _ = samples(n=60)
    scale.grow_by_rows(None, x, y, 2, n_classes=2, rng=0)


@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_subtrees_grow_from_their_keys(name, dtype):
    """A subtree that is grown alone equals that in the tree."""
    with hforest.using(name) if name == "reference" else contextlib.nullcontext():
        x, y, _ = samples(n=60, n_classes=3, missing=True, categories=True, dtype=dtype)
        given = hforest.samples(x, categorical=[5, 6])
        bins, whole = (
            given.bins(),
            hforest.grow(given, y, 1, bootstrap=False, max_features=3, max_depth=3, rng=3),
        )
        root = philox.keys(philox.philox(check.seed(3), 0, 0))[0]
        side = hforest.tree.apply(whole._replace(**depth_one(whole)), x)[:, 0]
        order = np.argsort(side, kind="stable")
        n_left = int((side == side.min()).sum())
        both = machine.words(root, philox.CHILDREN, 0, 2)
        roots = Roots(np.array([0, n_left, 60]), both, np.full(2, 60.0), np.ones(2, np.int64))
        objective = Objective(
            supervised.Target(y[order], None, 3), np.ones(60), 0, supervised.limits(3, 2, 1)
        )
        part = bins._replace(bins=np.ascontiguousarray(bins.bins[:, order]))
        left, right = unchecked.grow_below(part, objective, roots, max_features=3)
        tree = nodes.Tree()
        first = tree.make_split(
            0, nodes.Split(int(whole.feature[0]), float(whole.threshold[0]), float(whole.gain[0]),
                             int(whole.default_left[0]), whole.category_bits[: whole.category_indptr[1]].tolist())
        )  # fmt: skip
        tree.below = {first: left, first + 1: right}
        dtype = np.dtype(dtype)
        grown = tree.grown(3, dtype, 0, has_defaults=True, projected=False)
        same(whole, as_forest(joined([grown], dtype), 7))
        assert Batch(0, 0, 1, None, []).roots is None


def depth_one(forest):
    """Returns the arrays of only the first split; a leaf's number is its side."""
    return {
        "tree_start": np.array([0, 3]), "feature": np.array([forest.feature[0], -1, -1], np.int32),
        "threshold": forest.threshold[:3], "left": np.array([1, 0, 1], np.int32), "gain": forest.gain[:3],
        "value": forest.value[:2], "default_left": forest.default_left[:3] * np.array([1, 0, 0], np.uint8),
        "category_indptr": np.array([0, forest.category_indptr[1]] + [forest.category_indptr[1]] * 2),
        "category_bits": forest.category_bits[: forest.category_indptr[1]],
    }  # fmt: skip


# -------------------------------------------------------------------------------------- projections

PROJECTIONS = {
    "sparse": (project.sparse_distribution(7, density=2.0), {}),
    "sparse, missing": (project.sparse_distribution(7, density=1.2), {"missing": True, "n_classes": 10}),
    "probes, float32": (project.probe_distribution(7, 0.5), {"dtype": np.float32, "missing": True}),
    "features, 26": (project.axis_distribution(7), {"n_classes": 26}),
    "patches": (project.patch_distribution((7,), patch_max=3), {}),
    "kernels": (project.kernel_distribution((7,), [[0.5, 0, -1.5], [1]]), {"missing": True}),
    "views": (project.grouped_distribution(project.sparse_distribution(7), [[6, 0, 2], [1, 3, 4, 5]], 2), {}),
}


def projected(x, y, distribution, **settings):
    """Returns the forest of one machine."""
    settings |= {"projections": distribution, "n_projections": 4, "bootstrap": "poisson", "rng": 3}
    return hforest.grow(x, y, N_TREES, **settings)


@partitions
@pytest.mark.parametrize("max_gathered", [0, pytest.param(25, marks=pytest.mark.rows), None])
@pytest.mark.parametrize("name", PROJECTIONS)
def test_projections_do_not_depend_on_the_partition(name, max_gathered, cuts):
    """With one bin per value they equal those of one machine."""
    distribution, of_samples = PROJECTIONS[name]
    x, y, _ = samples(n=150, **of_samples)
    want = projected(x, y, distribution)
    settings = {"projections": distribution, "n_projections": 4, "max_gathered": max_gathered}
    same(want, grown(cuts, x, y, **settings))


@pytest.mark.parametrize("max_gathered", [0, 25])
def test_projections_of_a_least_weight(max_gathered):
    distribution, of_samples = PROJECTIONS["sparse, missing"]
    x, y, _ = samples(n=150, **of_samples)
    settings = {"min_weight_fraction_leaf": 0.09}
    want = projected(x, y, distribution, **settings)
    assert len(want.feature) < len(projected(x, y, distribution).feature)
    settings |= {"projections": distribution, "n_projections": 4, "max_gathered": max_gathered}
    same(want, grown(PARTITIONS["three"], x, y, **settings))


@partitions
@pytest.mark.parametrize("max_gathered", [0, 25, None])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_projected_regressions_do_not_depend_on_the_partition(n_outputs, max_gathered, cuts):
    x, y, _ = samples(missing=True)
    targets = y[:, None] * 5.0 + np.random.default_rng(1).normal(size=(len(y), n_outputs))
    settings = {"projections": project.sparse_distribution(7), "n_projections": 4, "task": "regression"}
    targets[17] = 1e12
    want = projected(x, targets, settings["projections"], task="regression")
    same(want, grown(cuts, x, targets, max_gathered=max_gathered, **settings))


@pytest.mark.parametrize("max_gathered", [0, 25, None])
def test_gathered_rows_of_whole_numbers_without_the_missing_values(max_gathered):
    """Some rows have missing values; those of a gathered node are whole numbers."""
    x, y, _ = samples(n=150, n_classes=3)
    x = np.round(4 * x)
    x[:5] = np.nan
    settings = {"projections": project.sparse_distribution(7), "n_projections": 4}
    want = projected(x, y, settings["projections"])
    same(want, grown(PARTITIONS["three"], x, y, max_gathered=max_gathered, **settings))


@some_partitions
def test_projections_of_sampled_rows(monkeypatch, cuts):
    """With bins of sampled rows, leaves have the shares of their in-bag rows, and none could be split."""
    monkeypatch.setattr(projected_trees, "_SAMPLED", 40)
    x, y, _ = samples(n=3000, n_classes=3, missing=True)
    x[:, 3:] = 0
    x[17, 4] = 1  # a value that no sampled row has
    settings = {"projections": project.sparse_distribution(7), "n_projections": 3, "max_bins": 16}
    want = scale.grow_by_rows(None, x, y, N_TREES, rng=3, max_gathered=0, **settings)
    same(want, grown(cuts, x, y, max_gathered=0, **settings))
    counts = growth.poisson_counts(3000, N_TREES, rng=3)
    found = hforest.tree.apply(want, x)
    first_leaf = np.cumsum([0, *np.add.reduceat(want.feature == -1, want.tree_start[:-1])])
    shares = np.zeros((len(want.value), 3))
    for m in range(N_TREES):
        leaf = want.left[want.tree_start[m] + found[:, m]]
        np.add.at(shares, (first_leaf[m] + leaf, y), counts[m])
    assert (shares.sum(axis=1) > 0).all()
    np.testing.assert_allclose(shares / shares.sum(axis=1, keepdims=True), want.value, atol=1e-12)


@pytest.mark.rows
def test_extremes_split_what_samples_show_as_constant(monkeypatch):
    monkeypatch.setattr(projected_trees, "_SAMPLED", 10)
    x, y = np.zeros((500, 2)), np.zeros(500, np.int32)
    x[99], y[99] = 1, 1
    distribution = project.axis_distribution(2)
    forest = scale.grow_by_rows(
        None, x, y, 1, bootstrap=False, projections=distribution, n_projections=2, max_gathered=0, rng=0
    )
    assert forest.threshold[0] == 0.5
    np.testing.assert_array_equal(forest.value, [[1, 0], [0, 1]])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_projections": 3}, "n_projections: expected None without projections"),
        ({"projections": project.axis_distribution(2), "n_projections": 0}, "n_projections: expected"),
        ({"projections": "sparse", "n_projections": 3}, "projections: expected hforest.project.Distribution"),
        ({"projections": project.axis_distribution(9), "n_projections": 3}, "projections: expected n_features = 2"),
        ({"projections": project.axis_distribution(2), "n_projections": 1, "max_features": 2}, "max_features: "),
        ({"projections": project.axis_distribution(2), "n_projections": 1, "categorical": [0]}, "categorical: "),
    ],
)  # fmt: skip
def test_projections_that_are_refused(settings, message):
    with pytest.raises((ValueError, TypeError), match=f"^{message}"):
        scale.grow_by_rows(None, np.arange(6.0).reshape(3, 2), [0, 1, 0], 1, **settings)


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x, y: (np.where(x == x[0], np.inf, x), y), ValueError, "x: expected .*on worker 1"),
        (lambda x, y: (x, y - 1), IndexError, "y: expected .*on worker 1"),
        (lambda x, y: (x, y + 0.5), TypeError, "y: expected .*on worker 1"),
        (lambda x, y: (x[:, :5], y), ValueError, "x: expected the same value on every worker, got 7 on worker 0 and 5 on worker 1"),
        (lambda x, y: (np.full(x.shape, "a"), y), TypeError, "x: expected .*on worker 1"),
        ({"sample_weight": np.full(20, 0.5)}, ValueError, "sample_weight: expected whole numbers.*on worker 1"),
        (lambda x, y: (x, y[1:]), ValueError, "y: expected .*on worker 1"),
        ({"max_depth": 3}, ValueError, "limits: expected the same value on every worker"),
        ({"max_bins": 0}, ValueError, "max_bins: expected .*on worker 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_on_one_worker_is_raised_on_all(change, error, message):
    x, y, _ = samples()
    given = divided(PARTITIONS["three"], x, y)

    def work(comm):
        part, settings = given[comm.rank], {}
        if comm.rank == 1:
            part, settings = (change(*part), {}) if callable(change) else (part, change)
        return scale.grow_by_rows(comm, *part, 2, rng=0, **settings)

    for found in row_comms.run(3, work):
        assert type(found) is error
        assert re.match(message, str(found))


def test_an_error_in_a_level_is_raised_on_all(monkeypatch):
    """The error occurs in each call of a worker's functions in turn."""
    x, y, _ = samples()
    given = divided(PARTITIONS["three"], x, y)
    named = [
        (parts, name)
        for name in ("encode", "start", "root_sums", "histograms", "advance", "gathered", "finish")
    ]
    named += [(projected_parts, name) for name in ("sampled_values", "histograms", "advance")]
    named += [(parts, "measured")]
    for module, name in named:
        function = getattr(module, name)
        settings = {}
        if module is projected_parts:
            settings = {"projections": project.sparse_distribution(7), "n_projections": 3}
        elif name == "measured":
            settings = {"task": "regression"}

        def fails(part, *args, function=function, name=name):
            n = part.codes.shape[1] if isinstance(part, parts.Part) else None
            if n is None and name == "encode":
                n = len(part.x)
            if n == len(given[1][0]) or name == "finish":
                raise MemoryError("no memory")
            return function(part, *args)

        with monkeypatch.context() as patch:
            patch.setattr(module, name, fails)
            found = row_comms.run(
                3,
                lambda comm, settings=settings: scale.grow_by_rows(
                    comm, *given[comm.rank], 2, max_gathered=40, rng=0, **settings
                ),
            )
        assert [type(a) for a in found] == [MemoryError] * 3, name
        assert all("no memory (on worker" in str(a) for a in found)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bootstrap": True}, 'bootstrap: expected "poisson", False'),
        ({"max_bins": None}, "max_bins: expected"),
        ({"n_trees": 0}, "n_trees: expected"),
        ({"min_weight_fraction_leaf": 0.6}, "min_weight_fraction_leaf: expected"),
        ({"y": np.zeros(3, int), "n_classes": None, "labels": (0, 2)}, "y: expected labels 0 to 2 that each"),
        ({"sample_weight": np.zeros(3, int)}, "sample_weight: expected at least one weight above 0"),
        ({"rows": 0}, "x: expected at least 1 sample"),
    ],
)
def test_settings_that_are_refused(settings, message):
    settings = dict(settings)
    x, y = np.arange(6.0).reshape(3, 2), np.array(settings.pop("labels", (0, 1)) * 2)[:3]
    settings.pop("y", None)
    n = settings.pop("rows", 3)
    with pytest.raises((ValueError, TypeError), match=f"^{message}"):
        scale.grow_by_rows(None, x[:n], y[:n], **{"n_trees": 1, **settings})


@pytest.mark.parametrize(
    ("bootstrap", "factor"), [(False, 1), ("poisson", 12), (np.array([[0, 4, 1], [5, 0, 0]], np.int32), None)]
)
def test_the_greatest_weight_of_a_sum_counts_the_bootstrap(bootstrap, factor):
    """Scales of sums depend on it: Poisson counts are at most 12, and counts in arrays are known."""
    settings = by_level.check_settings(2, bootstrap=bootstrap, rng=0)
    given = parts.RawPart(np.zeros((3, 1)), [0, 1, 1], [3, 2, 7], bootstrap if factor is None else None)
    assert parts.describe(given, settings).max_weight == (7 * factor if factor else 15)


def test_no_memory_for_a_level_is_an_error():
    # The widest slot has 2**58 bins, beyond any memory; the node has only another slot.
    cells = np.array([0, 1, 2**58, 1])
    arrays = np.ones((1, 3), np.int64), np.ones((1, 3), np.int64), cells, np.zeros(1, np.int64)
    with pytest.raises(MemoryError, match="grow_by_rows: no memory to score"):
        of_slot = np.zeros(1, np.uint8), np.zeros(1, np.int32)
        best_splits(*arrays, *of_slot, 0, 1, np.zeros(1), True, np.zeros((1, 3)), np.zeros(1, np.int64))


def test_objects_that_are_no_communicator():
    with pytest.raises(TypeError, match="^comm: expected a communicator with rank, got int; pass"):
        scale.grow_by_rows(3, np.zeros((2, 1)), [0, 1], 1)


def test_progress_ends_all_workers(monkeypatch):
    monkeypatch.setattr(planning, "_BATCH", 2)
    x, y, _ = samples()
    given = divided(PARTITIONS["three"], x, y)
    seen = []

    def work(comm):
        def progress(done, total):
            seen.append((comm.rank, done, total))
            return not (comm.rank == 1 and done == 4)

        return scale.grow_by_rows(comm, *given[comm.rank], 10, progress=progress, rng=3)

    found = row_comms.run(3, work)
    want = scale.grow_by_rows(None, x, y, 4, rng=3)
    for forest in found:
        same(want, forest)
    assert sorted(seen) == [(rank, done, 10) for rank in range(3) for done in (2, 4)]


def test_bytes_of_a_level():
    """Sums are int32 if they fit; a root's histogram has n_bins (n_classes + 1) numbers per feature."""
    x, y, _ = samples(n=2000, n_classes=10)
    sent = {}

    def work(comm):
        part = slice(comm.rank, None, 2)
        scale.grow_by_rows(comm, x[part], y[part], 1, max_depth=1, max_features=7, max_gathered=0, rng=0)
        sent[comm.rank] = comm.n_bytes

    row_comms.run(2, work)
    n_cells = sum(min(256, len(np.unique(column))) for column in x.T)
    known = 8 * (2000 // 2) * 2 + 8 * sum(len(np.unique(c)) for c in x.T)  # samples of rows, distinct values
    assert 4 * n_cells * 11 <= sent[0] <= 4 * n_cells * 11 + known + 30_000


# ------------------------------------------------------------------------------------------- processes

WORKER = Path(__file__).with_name("row_worker.py")


def processes(kind, size, case, worker=WORKER):
    """Returns the last line that each worker's process printed, and its exit status."""
    path = os.pathsep.join([str(WORKER.parents[1]), os.environ.get("PYTHONPATH", "")])
    more = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": str(size)}
    command = [sys.executable, str(worker), kind, case]
    if kind == "mpi":
        pytest.importorskip("mpi4py")
        folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        mpiexec = shutil.which("mpiexec", path=folders)
        if mpiexec is None:
            pytest.skip("no mpiexec")
        command = [mpiexec, "-n", str(size), *command]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, env={**os.environ, **more}
        )
        lines = done.stdout.splitlines() or [done.stderr]
        return [(line, done.returncode) for line in lines]
    pytest.importorskip("torch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        more["MASTER_PORT"] = str(free.getsockname()[1])
    started = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **more, "RANK": str(rank)},
        )
        for rank in range(size)
    ]  # fmt: skip
    try:  # Gloo of PyTorch 2.8 prints lines before it
        return [(p.communicate(timeout=120)[0].strip().rpartition("\n")[2], p.returncode) for p in started]
    finally:
        for p in started:
            p.kill()


@pytest.mark.parametrize(
    ("kind", "size", "case"),
    [
        ("torch", 2, "classification"),
        ("torch", 3, "regression"),
        ("mpi", 2, "classification"),
        ("mpi", 3, "regression"),
        ("torch", 2, "projections"),
        ("mpi", 3, "projections"),
    ],
)
def test_processes_grow_one_forest(kind, size, case):
    x, y, settings = row_worker.samples(case)
    want = row_worker.digest(scale.grow_by_rows(None, x, y, 6, rng=5, **settings))
    found = processes(kind, size, case)
    assert found == [(want, 0)] * size


@pytest.mark.parametrize("kind", ["torch", "mpi"])
def test_an_error_of_one_process_is_raised_in_all(kind):
    found = processes(kind, 2, "bad labels")
    assert len(found) == 2
    for line, _ in found:
        assert re.match(r"[\d.]+ IndexError: y: expected .*on worker 1", line), line


def test_a_process_that_is_killed_ends_the_others():
    survivor, killed = processes("torch", 2, "killed")
    assert killed[1] == 7
    seconds, _, message = survivor[0].partition(" ")
    assert float(seconds) < 30
    assert message.startswith("RuntimeError: comm: expected a sum with every worker, got on worker 0: ")


def test_a_process_of_mpi_that_is_killed_ends_all():
    found = processes("mpi", 2, "killed")
    assert all(status != 0 for _, status in found)
