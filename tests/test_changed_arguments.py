"""Arguments that change during a call: by a caller's function that the call calls, or by another thread.

A call owns what it indexes memory with (`core.check.owned`): results are those of the arguments at its start.
Calls that may crash a library without this run in a child process, all of a table in one.
"""

import contextlib
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import hforest
from hforest import alternating, cascade, co2, growth, hinge, images, neural, project, stats, tabular, tree
from hforest.scale import grow_by_rows
from hforest.tree import Forest

N, TREES = 120, 12
X = np.random.default_rng(0).normal(size=(N, 4))
LABELS = (X[:, 0] + X[:, 1] > 0).astype(np.int32)
TARGETS = X[:, :1] + X[:, 1:2]
WEIGHT = np.random.default_rng(1).integers(1, 4, N).astype(np.float64)
COUNTS = growth.bootstrap_counts(N, TREES, rng=0)
ORDER = np.random.default_rng(2).permuted(np.tile(np.arange(N, dtype=np.int32), (TREES, 1)), axis=1)
PIXELS = (X.reshape(1, 12, 40, 1) > 0).astype(np.int32)[..., 0]
GROWN = hforest.grow(X, LABELS, 5, rng=0)


def grower(function, **settings):
    def run(a, progress):
        given = {name: b for name, b in a.items() if name != "y"}
        return function(X, a["y"], TREES, progress=progress, rng=0, **settings, **given)

    return run


def by_rows(*args, **settings):
    return grow_by_rows(None, *args, **settings)


def of_cascade(class_vectors):
    grow = [lambda *a, n_trees=5, **settings: hforest.grow(*a, n_trees, **settings)] * 2
    if class_vectors == "out_of_bag":
        grow = [cascade.default_forests(5)[0]] * 2

    def run(a, progress):
        grown = cascade.grow(
            X, a["y"], grow, max_levels=2, patience=2, class_vectors=class_vectors, progress=progress,
            sample_weight=a["sample_weight"], rng=0,
        )  # fmt: skip
        return [b for level in grown.levels for forest in level for b in forest]

    return run


MORE = {"y": LABELS, "sample_weight": WEIGHT, "bootstrap": COUNTS}
WEIGHTED = {"y": LABELS, "sample_weight": WEIGHT}
WITH_PROGRESS = {
    "grow": (grower(hforest.grow), MORE),
    "grow, order": (grower(hforest.grow), {"y": LABELS, "y_order": ORDER}),
    "grow, random": (grower(hforest.grow, splitter="random"), MORE),
    "grow, entropy": (grower(hforest.grow, criterion="entropy"), MORE),
    "grow, projections": (grower(hforest.grow, projections=project.sparse_distribution(4)), MORE),
    "grow, manifold": (grower(hforest.grow, projections=project.patch_distribution((2, 2))), WEIGHTED),
    "grow, targets": (grower(hforest.grow, task="regression"), {"y": TARGETS, "sample_weight": WEIGHT}),
    "grow_with_leaves": (lambda a, p: grower(growth.grow_with_leaves)(a, p)[0], WEIGHTED),
    "alternating.grow": (grower(alternating.grow), WEIGHTED),
    "co2.grow": (grower(co2.grow, max_depth=3), MORE),
    "co2.refine": (
        lambda a, p: co2.refine(
            GROWN._replace(feature=a["feature"], left=a["left"]), X, a["y"], sample_weight=a["sample_weight"],
            max_rounds=2, progress=p, rng=0,
        ),
        {**WEIGHTED, "feature": GROWN.feature, "left": GROWN.left},
    ),
    "co2.search": (
        lambda a, p: co2.search(X, a["y"], 2, nu=[1, 10], lr=[0.1], progress=p, rng=0), {"y": LABELS},
    ),
    "grow_by_rows": (grower(by_rows), MORE),
    "cascade.grow": (of_cascade("out_of_fold"), WEIGHTED),
    "cascade.grow, out of bag": (of_cascade("out_of_bag"), WEIGHTED),
    "grow_scanner": (
        lambda a, p: [
            cascade.grow_scanner(X, a["y"], (2, 2), 1, cascade.default_forests(3)[3:5], progress=p, rng=0)[1]
        ],
        {"y": LABELS},
    ),
    "neural.fit": (
        lambda a, p: neural.fit(
            neural.linear_init(2, 3, 4, 2, rng=0)._replace(features=a["features"]), X, a["y"],
            sample_weight=a["sample_weight"], epochs=2, progress=p, rng=0,
        )[1:],
        {**WEIGHTED, "features": neural.linear_init(2, 3, 4, 2, rng=0).features},
    ),
    "images.fit": (
        lambda a, p: images.fit(
            X.reshape(1, 12, 40, 1), a["labels"], hforest.grow, window=1, n_trees=3, n_pixels=50, progress=p, rng=0
        ).forest,
        {"labels": PIXELS},
    ),
    "tabular.fit": (
        lambda a, p: [
            tabular.predict(
                tabular.fit(X, a["y"], sample_weight=a["sample_weight"], n_members=2, progress=p, rng=0), X
            )
        ],
        WEIGHTED,
    ),
    "permutation_test": (
        lambda a, p: stats.permutation_test(X, a["y"], n_trees=5, n_permutations=3, progress=p, rng=0)[:3],
        {"y": LABELS},
    ),
    "importance_test": (
        lambda a, p: stats.importance_test(X, a["y"], n_trees=5, n_copies=3, progress=p, rng=0),
        {"y": LABELS},
    ),
    "permutation_importance": (
        lambda a, p: [
            tree.permutation_importance(Forest(**{**GROWN._asdict(), **a}), X, LABELS, progress=p, rng=0)
        ],
        {name: getattr(GROWN, name) for name in ("n_features", "tree_start", "feature", "left")},
    ),
}  # fmt: skip
"""run(arguments, progress) -> arrays, and arguments, each of which `progress` changes."""

VALUES = (10**6, -1)


def changed(run, arguments, name, value):
    """Returns the result of a call during which an argument is filled with a value from the first report on."""
    given = {key: a.copy() for key, a in arguments.items()}

    def progress(done, total):
        given[name][...] = value
        return True

    return run(given, progress)


def check_changed(call):
    """Checks that a call has the same bits if `progress` changes one of its arguments."""
    run, arguments = WITH_PROGRESS[call]
    want = [np.array(a) for a in run(arguments, None)]
    for name in arguments:
        for value in VALUES:
            got = changed(run, arguments, name, value)
            assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(want, got, strict=True)), (
                name,
                value,
            )


def in_child(code, seconds=120):
    """Runs code of this module in a child process; returns the names that it prints."""
    command = [sys.executable, "-c", f"import tests.test_changed_arguments as m\n{code}"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    assert run.returncode == 0, f"{run.returncode}: {run.stdout[-2000:]} {run.stderr[-2000:]}"
    return run.stdout.split("\n")


def check_all():
    """Checks all calls; prints the name of each before it."""
    for call in WITH_PROGRESS:
        print(call, flush=True)
        check_changed(call)


def test_what_progress_changes_changes_no_result():
    in_child("m.check_all()")


def test_a_loss_cannot_write_into_y():
    y = TARGETS[:, 0].copy()

    def value(theta, some):
        some[...] = 0
        return (theta[0] - some) ** 2

    loss = value, lambda theta, some: 2 * (theta[0] - some)[:, None]
    with pytest.raises(ValueError, match="read-only"):
        co2.fit_stump(X, y, np.ones(4), loss=loss, theta=np.zeros((2, 1)), rng=0)
    assert np.array_equal(y, TARGETS[:, 0])


def race_features(n, seconds=0.4):
    """Routes n samples while another thread writes columns that do not exist."""
    t, f, w = hinge.init(50, 8, 4, rng=0, dtype=np.float64)
    x = np.random.default_rng(0).normal(size=(n, 4))
    good, stop = f.copy(), threading.Event()

    def write():
        while not stop.is_set():
            f[...] = 2**31 - 1
            f[...] = good

    _, route = hinge.forward_with_route(x, t, f, w, aggregate="sum")
    writer = threading.Thread(target=write)
    writer.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for call in (
            lambda: hinge.forward(x, t, f, w, aggregate="sum"),
            lambda: hinge.backward(np.ones(n), route, x, t, f, w, aggregate="sum"),
        ):
            with contextlib.suppress(IndexError):
                call()
    stop.set()
    writer.join()


@pytest.mark.slow
@pytest.mark.parametrize("n", [8, 40, 2000])
def test_another_thread_changes_features(n):
    in_child(f"m.race_features({n})")
