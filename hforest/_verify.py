"""`python -m hforest verify`: compares hashes of results on this machine with those of digests.txt.

Samples are made of integers, so that no library but hforest computes them. Results that pass through matrix
products of NumPy (docs/promises.md) are left out. bench/bits.py hashes thousands of results with `digest`.
"""

import argparse
import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import (
    alternating,
    cascade,
    co2,
    grow,
    growth,
    hinge,
    layers,
    neural,
    optim,
    project,
    samples,
    scale,
    split,
    stats,
    tree,
)
from ._output import echo
from .core import machine, series

DIGESTS = Path(__file__).with_name("digests.txt")
"""Lines `name | digest` of all results."""

LATER = (
    "missing", "categorical", "default_left", "category_indptr", "category_bits", "class_start", "features_m",
    "features_v", "encoding", "columns",
)  # fmt: skip
"""Fields that were added to tuples: for missing values, categories, moments, columns of tables."""

Results = Iterator[tuple[str, str]]
"""Names and hashes of results."""


def digest(*arrays: Any) -> str:
    """Returns the first 16 digits of the SHA-256 of arrays, nested tuples and None.

    Fields of LATER that are empty or None are left out, so that tuples with new fields keep their digests.
    """
    h = hashlib.sha256()

    def feed(a: Any) -> None:
        if isinstance(a, (tuple, list)):
            names = getattr(a, "_fields", ("",) * len(a))
            for name, b in zip(names, a, strict=True):
                if name not in LATER or isinstance(b, tuple) or (b is not None and np.size(b)):
                    feed(b)
        elif a is None:
            h.update(b"None")
        else:
            a = np.ascontiguousarray(a)
            h.update(str((a.dtype.str, a.shape)).encode())
            h.update(a.tobytes())

    feed(arrays)
    return h.hexdigest()[:16]


# ----------------------------------------------------------------------------------------- samples


def bell(key: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Returns multiples of 2**-15 between -4 and 4, each the sum of four words of 16 bits of Philox."""
    words = machine.words(key, 0, 0, 2 * int(np.prod(shape)))[::2]
    parts = [(words >> np.uint64(16 * i) & np.uint64(65535)).astype(np.int64) for i in range(4)]
    return ((np.sum(parts, axis=0) - 131070) * 2.0**-15).reshape(shape).astype(dtype)


class Task(NamedTuple):
    """Samples of 12 features with labels of three classes, two targets, weights and decisions."""

    x: np.ndarray
    labels: np.ndarray
    targets: np.ndarray
    weight: np.ndarray
    decisions: np.ndarray


def task_of(dtype: Any, n: int = 300) -> Task:
    """Returns n samples."""
    x = bell(1, (n, 12), dtype)
    labels = (x[:, 0] > 0).astype(np.int32) + (x[:, 1] + x[:, 2] > 0.5)
    return Task(x, labels, x[:, :2] * x[:, 1:3], 4 + bell(2, (n,), dtype), 3 * bell(3, (60, 4, 7), dtype))


# ----------------------------------------------------------------------------------------- results


def of_functions(task: Task) -> Results:
    """Yields exp, logarithms and cosines, with subnormal results, and sums of logarithms."""
    x = task.x.astype(np.float64).ravel()
    yield "exp", digest(series.exp(x), series.exp(200 * x), series.exp(task.x))
    yield "log", digest(series.log(abs(x)), series.log(series.exp(200 * x)), series.log(abs(task.x)))
    yield "log1p", digest(series.log1p(abs(x)), series.log1p(series.exp(10 * x)))
    yield "cos", digest(series.cos_of_turns(x))
    yield "softmax loss", digest(*layers.softmax_loss(task.x, task.labels))
    yield "squared loss", digest(*layers.squared_loss(task.x, np.roll(task.x, 1)))


def of_hinge(task: Task) -> Results:
    """Yields routes, outputs, gradients and steps of both kinds of hinge forests."""
    x, dtype = task.x, task.x.dtype
    kinds: Any = (("tree", 31), ("fern", 5))
    for kind, n_vertices in kinds:
        thresholds, weights = bell(4, (20, n_vertices), dtype), bell(5, (20, 32, 3), dtype)
        columns = (np.arange(20 * n_vertices, dtype=np.int32) * 7 % 12).reshape(20, n_vertices)
        vectors = bell(6, (20, n_vertices, 12), dtype)
        margins: Any = (("column", columns), ("projection", vectors))
        for margin, features in margins:
            p, words = (thresholds, features, weights), {"kind": kind, "margin": margin}
            key = f"hinge {kind} {margin}"
            route = hinge.traverse(x, thresholds, features, **words)
            yield f"{key} route", digest(route)
            for aggregate in (None, "sum", "mean"):
                words["aggregate"] = aggregate
                y = hinge.forward(x, *p, **words)
                name = f"{key} {aggregate or 'apart'}"
                yield f"{name} forward", digest(y)
                yield f"{name} gradient", digest(hinge.backward(y, route, x, *p, **words))
        p = (thresholds.copy(), columns, weights.copy())
        state = hinge.adam_state(p[0], p[2])
        words = {"kind": kind, "aggregate": "mean"}
        for step in range(1, 9):
            part = x[20 * step : 20 * step + 20]
            y, route = hinge.adam_forward(part, *p, state, step, 0.01, **words)
            hinge.adam_backward(y, route, part, *p, state, step, 0.01, **words)
        hinge.adam_sync(p[0], p[2], state, 8, 0.01)
        yield f"hinge {kind} steps", digest(p, state[:6])


def of_neural(task: Task) -> Results:
    """Yields routes, leaves, outputs, losses and gradients of soft forests."""
    f, y = task.decisions, task.labels[:60]
    leaves = neural.update_leaves(f, y, neural.uniform_leaves(4, 3, 3, dtype=f.dtype), 4)
    yield "neural route", digest(neural.route(f))
    yield "neural leaves", digest(leaves)
    yield "neural forward", digest(neural.forward(f, leaves))
    losses: Any = ("forest", "tree")
    for loss in losses:
        yield f"neural loss of {loss}", digest(*neural.loss_backward(f, leaves, y, loss=loss))
        yield f"neural small loss of {loss}", digest(*neural.loss_backward(40 * f, leaves, y, loss=loss))
    yield "neural gradient", digest(neural.backward(neural.forward(f, leaves), f, leaves))


def of_parts(task: Task) -> Results:
    """Yields projections, splits and steps of optimisers."""
    x, y = task.x, task.labels
    distributions = {
        "sparse": project.sparse_distribution(12),
        "patch": project.patch_distribution((3, 4), patch_max=2),
        "probe": project.probe_distribution(12),
    }
    for kind, distribution in distributions.items():
        drawn = project.sample(distribution, 40, dtype=x.dtype, rng=0)
        yield f"project {kind}", digest(*drawn, project.project(x, *drawn))
    values = np.ascontiguousarray(x.T)
    for criterion in ("gini", "entropy"):
        best = split.best_split(values, y, sample_weight=task.weight, n_classes=3, criterion=criterion)
        yield f"split {criterion}", digest(np.array(best))
    yield "split targets", digest(np.array(split.best_split(values, task.targets, task="regression")))
    param, h = x.copy(), np.zeros_like(x)
    optim.adagrad(param, np.roll(x, 1), h, 0.1)
    yield "adagrad", digest(param, h)
    param, m, v, last = x.copy(), np.zeros_like(x), np.zeros_like(x), np.zeros(len(x), np.int64)
    for step in range(1, 30):
        optim.adam_rows(param, np.array([1, 5, 70]) + step, x[:3].copy(), m, v, last, step, 0.01)
    optim.adam_catch_up(param, m, v, last, 50, 0.01)
    yield "adam", digest(param, m, v, last)


def of_forests(task: Task) -> Results:
    """Yields grown forests of both tasks, and their predictions."""
    x, kinds = task.x, {"classification": task.labels, "regression": task.targets}
    missing = np.where(x > 2, np.nan, x)
    missing[:, 5] = np.arange(len(x)) % 7
    few = samples(missing, max_bins=16, categorical=np.arange(12) == 5)
    for name, y in kinds.items():
        more: Any = {"task": name, "rng": 0}
        forests = {
            "exact": grow(x, y, 5, max_features="sqrt", **more),
            "weighted": grow(x, y, 5, sample_weight=task.weight, **more),
            "binned": grow(samples(x, max_bins=32), y, 5, **more),
            "random": grow(x, y, 5, splitter="random", bootstrap=False, **more),
            "oblique": grow(x, y, 5, projections=project.sparse_distribution(12), **more),
            "missing": grow(few, y, 5, **more),
            "by rows": scale.grow_by_rows(None, x, y, 5, max_gathered=50, **more),
            "co2": co2.grow(x, y, 2, max_depth=4, **more),
        }
        for word, forest in forests.items():
            p = tree.predict(forest, missing if word == "missing" else x)
            yield f"{name} {word}", digest(forest, p)
    counts = abs(np.round(task.targets))
    yield "poisson", digest(grow(x, counts, 5, task="regression", criterion="poisson", rng=0))
    yield "entropy", digest(grow(x, task.labels, 5, criterion="entropy", class_weight="balanced", rng=0))
    yield "oc1", digest(co2.grow(x, task.labels, 1, splitter="oc1", max_depth=3, rng=0))
    losses: Any = ("exponential", "logistic")
    for loss in losses:
        forest = alternating.grow(x, task.labels, 5, loss=loss, max_depth=4, rng=0)
        yield f"alternating {loss}", digest(forest)
    grown = cascade.grow(x, task.labels, [partial(grow, n_trees=3)], rng=0)
    yield "cascade", digest(cascade.predict(grown, x), np.array(grown.scores))


def of_co2(task: Task) -> Results:
    """Yields stumps, surrogates and their gradients."""
    x = np.concatenate([task.x, -np.ones((len(task.x), 1), task.x.dtype)], axis=1)
    w, zeros, ones = bell(7, (13,), x.dtype), np.zeros(3, x.dtype), np.ones(3, x.dtype)
    yield "stump", digest(co2.fit_stump(x, task.labels, w, n_classes=3, rng=0))
    value = np.array(co2.surrogate(x, task.labels, w, zeros, ones))
    yield "surrogate", digest(value, *co2.surrogate_grad(x, task.labels, w, zeros, ones))


def of_applied(task: Task) -> Results:
    """Yields results of functions that take a grown forest, and statistics."""
    x, y = task.x, task.labels
    forest, counts = grow(x, y, 20, rng=7), growth.bootstrap_counts(len(x), 20, rng=7)
    yield "in-bag counts", digest(counts)
    yield "out of bag", digest(tree.out_of_bag(forest, x, counts))
    yield "votes", digest(tree.apply(forest, x), tree.vote_shares(forest, x))
    yield "importances", digest(tree.importance(forest), tree.importance(forest, by="gain"))
    near = tree.proximity(forest, x, max_neighbors=9)
    yield "proximity", digest(near.indptr, near.indices, near.data)
    yield "permutation importances", digest(tree.permutation_importance(forest, x, y, rng=0))
    yield "shap", digest(tree.shap_values(forest, x[:20], cover=x))
    trees = grow(x, task.targets, 10, task="regression", min_samples_leaf=5, rng=3)
    leaves = tree.leaf_targets(trees, x, task.targets)
    yield "quantiles", digest(tree.quantiles(trees, leaves, x, [0.1, 0.5, 0.9]))
    honest = stats.honest_counts(y, 20, rng=1)
    honest_forest = grow(x, y, 20, bootstrap=honest.structure, rng=0)
    yield "posteriors", digest(honest, stats.posterior(honest_forest, x, y, honest))
    shares = tree.predict(forest, x)
    yield "p-values", digest(stats.importance_test(x, y, n_trees=10, rng=0))
    yield "information", digest(np.array([stats.information(shares, y), stats.mutual_information(shares, y)]))


PARTS: tuple[Callable[[Task], Results], ...] = (
    of_functions, of_hinge, of_neural, of_parts, of_forests, of_co2, of_applied,
)  # fmt: skip


def results() -> Results:
    """Yields names and hashes of the results, in both dtypes, on the vector path in use."""
    for dtype in (np.float32, np.float64):
        task = task_of(dtype)
        for part in PARTS:
            for name, value in part(task):
                yield f"{np.dtype(dtype).name} {name}", value


def expected() -> dict[str, str]:
    """Returns the hashes of digests.txt by name."""
    lines = DIGESTS.read_text(encoding="utf-8").splitlines()
    return dict(line.rsplit(" | ", 1) for line in lines)


def run(options: argparse.Namespace) -> int:
    """Prints results that differ from those of the package. Returns 1 if one does, else 0."""
    if options.list:
        for name, value in results():
            echo(f"{name} | {value}")
        return 0
    known, before, n_different = expected(), machine.simd(), 0
    try:
        for path in machine.simd_paths():
            machine.set_simd(path)
            found = dict(results())
            differ = [name for name in {**known, **found} if known.get(name) != found.get(name)]
            n_different += len(differ)
            for name in differ:
                echo(f"{path}: {name}: expected {known.get(name)}, got {found.get(name)}")
            echo(f"{path}: {len(found)} results, {len(differ)} differ")
    finally:
        machine.set_simd(before)
    return int(n_different > 0)
