"""Cases of `hforest.growth`: every criterion, weights and bootstraps, small leaves, constant columns, every projection."""

from collections.abc import Iterator
from typing import Any

import numpy as np

import hforest
from hforest import alternating, growth, project
from hforest.growth.gpu.small_nodes import SMALL as MOST_OF_GPU

from .case import Case, scaled
from .compiler import SMALL

SETTINGS: dict[str, dict[str, Any]] = {
    "gini": {},
    "entropy": {"criterion": "entropy", "min_samples_leaf": 3},
    "targets": {"criterion": "squared_error", "max_depth": 3},
    "completely random": {"splitter": "random", "max_features": 1, "bootstrap": False},
    "extra": {"splitter": "random", "max_features": None, "bootstrap": False},
    "extra targets": {"criterion": "squared_error", "splitter": "random"},
    "least gain": {"min_impurity_decrease": 0.02, "min_samples_split": 5},
    "least weight": {"min_weight_fraction_leaf": 0.2},
    "least weight of random thresholds": {"splitter": "random", "min_weight_fraction_leaf": 0.2},
    "a leaf alone": {"max_depth": 0},
    "two levels": {"max_depth": 2},
}
UNITS = ((0, "wide", 9), (1, "wide", None), (1, "whole", 9), (10, "wide", 9))
"""Outputs, 0 for labels; weights; max_bins."""
DISTRIBUTIONS = {
    "axis": project.axis_distribution(12),
    "sparse": project.sparse_distribution(12, 3.0),
    "probe": project.probe_distribution(12),
    "probe and single": project.probe_distribution(12, 0.4),
    "image": project.patch_distribution((2, 6), patch_max=(2, 4)),
    "channels": project.patch_distribution((2, 3, 2), patch_max=(1, 3), channels=True, cyclic=True),
    "kernels": project.kernel_distribution((2, 6), [[[1, 0, -1]], [[0.3, 0.7], [0, -1.5]]]),
    "cyclic kernels": project.kernel_distribution((2, 3, 2), [[[0.5], [-1]]], channels=True, cyclic=True),
    "views": project.grouped_distribution(
        project.sparse_distribution(12, 3.0), [[4, 0], [1, 2, 3], range(5, 12)], 1
    ),
}


def _learned(n: int, criterion: str) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    if criterion == "squared_error":
        return {"y": rng.normal(size=(n, 2)), "task": "regression"}
    return {"y": rng.integers(0, 3, n, np.int32), "n_classes": 3, "criterion": criterion}


def _grown(
    x: np.ndarray, name: str, *, max_bins: int | None = None, categorical: list[int] | None = None, sampled: int = 2,
    weight: np.ndarray | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Returns bins and two trees."""
    settings = {"max_features": sampled, "sample_weight": weight, "rng": 1, **SETTINGS[name]}
    learned = _learned(len(x), settings.pop("criterion", "gini"))
    samples = hforest.samples(x, max_bins=max_bins, categorical=categorical)
    forest = hforest.grow(samples, n_trees=2, **learned, **settings)
    bins = samples.bins()._asdict()
    return {**{name: a for name, a in bins.items() if isinstance(a, np.ndarray)}, **forest._asdict()}


def _bins(name: str, n: int, weighted: bool, dtype: type, scale: float = 0.25) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    x = scaled(rng.integers(-9, 10, (n, 5)), scale, dtype)
    x[:, :2] = x[0, 0]  # a node whose candidates are all constant samples on
    weight = rng.random(n) + 0.1 if weighted else None
    return _grown(x, name, max_bins=7 if weighted else None, weight=weight)


def counted_bins(dtype: type) -> dict[str, np.ndarray]:
    """Bins of a byte: a node of two chunks, nodes of hundreds of samples, and of few."""
    rng = np.random.default_rng(5)
    x = rng.integers(0, 40, (4200, 2)).astype(dtype)
    y = ((x[:, 0] > 36) + 2 * (x[:, 1] > 37)).astype(np.int32)
    y[rng.random(4200) < 0.05] = 3
    settings = {"n_classes": 4, "max_features": 2, "max_depth": 4, "bootstrap": False, "rng": 1}
    return hforest.grow(x, y, 1, **settings)._asdict()


def small_nodes(dtype: type) -> dict[str, np.ndarray]:
    """Nodes of hundreds of samples, and of few, each of which a block grows to its leaves."""
    x = np.random.default_rng(6).normal(size=(400, 3)).astype(dtype)
    y = (x[:, 0] + x[:, 1] > x[:, 2]).astype(np.int32)
    settings = {"n_classes": 2, "max_features": 2, "rng": 1}
    return hforest.grow(x, y, 3, **settings)._asdict()


def _units(n_outputs: int, weights: str, max_bins: int | None, dtype: type) -> dict[str, np.ndarray]:
    """Nodes that make units of their own; n_outputs is 0 for labels."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(90, 4)).astype(dtype)
    y = np.exp(8 * rng.normal(size=(90, max(n_outputs, 1))))
    y[5] = 1e12
    learned: dict[str, Any] = {"y": y, "task": "regression"} if n_outputs else _learned(90, "gini")
    weight = rng.integers(0, 5, 90) if weights == "whole" else 10 ** rng.uniform(-12, 0, 90)
    settings = {"min_samples_split": 4, "min_weight_fraction_leaf": 1e-9, "max_features": 2, "rng": 1}
    samples = hforest.samples(x, max_bins=max_bins)
    return hforest.grow(samples, n_trees=2, sample_weight=weight, **learned, **settings)._asdict()


def _constrained(task: Any, max_bins: int | None, missing: float, dtype: type) -> dict[str, np.ndarray]:
    """Monotonic constraints: nodes have bounds, and leaves are clipped to them."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(300, 4)).astype(dtype)
    y = x[:, 0] + 0.7 * x[:, 1] + np.abs(x[:, 2]) - 0.5 * x[:, 3] + 0.5 * rng.normal(size=300)
    x[rng.random(x.shape) < missing] = np.nan
    y = (y > 0.5).astype(np.int32) if task == "classification" else y
    samples = hforest.samples(x, max_bins=max_bins)
    return hforest.grow(
        samples, y, 2, task=task, monotonic_cst=[1, -1, 0, 1], max_features=3, rng=1
    )._asdict()


def _windows(scale: float, dtype: type) -> dict[str, np.ndarray]:
    x = scaled(np.random.default_rng(0).integers(0, 9, (6, 12)), scale, dtype)
    base = (np.arange(6)[:, None] * 12 + np.arange(4)).ravel()
    samples = hforest.samples(x, windows=(base, np.array([0, 1, 5, 8])))
    return hforest.grow(samples, n_trees=2, max_features=2, rng=1, **_learned(24, "gini"))._asdict()


def _projected(x: np.ndarray, kind: str, criterion: str, splitter: Any) -> dict[str, np.ndarray]:
    settings: dict[str, Any] = {"projections": DISTRIBUTIONS[kind], "n_projections": 3, "rng": 1}
    return hforest.grow(x, n_trees=2, splitter=splitter, **settings, **_learned(20, criterion))._asdict()


def _projections(
    kind: str, scale: float, criterion: str, splitter: str, dtype: type
) -> dict[str, np.ndarray]:
    x = scaled(np.random.default_rng(2).integers(-3, 200, (20, 12)), scale, dtype)
    return _projected(x, kind, criterion, splitter)


def _missing(name: str, categories: bool, dtype: type) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    x = (rng.integers(-9, 10, (40, 5)) / 4).astype(dtype)
    x[:, :2] = rng.integers(0, 40, (40, 2))
    x[rng.random(x.shape) < 0.2] = np.nan
    x[rng.random(x.shape) < 0.1] = -np.nan
    return _grown(x, name, categorical=[0, 1] if categories else None, sampled=3)


def _missing_projections(splitter: str, dtype: type) -> dict[str, np.ndarray]:
    x = np.random.default_rng(2).normal(size=(20, 12)).astype(dtype)
    x[::3, ::5] = np.nan
    return _projected(x, "sparse", "gini", splitter)


def _levels(weighted: bool, dtype: type) -> dict[str, np.ndarray]:
    """Roots that are nodes of other trees, with samples in any places."""
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(40, 3)).astype(dtype), rng.integers(0, 3, 40)
    weight = rng.integers(0, 3, 40) * 0.37 if weighted else None
    return alternating.grow(x, y, 2, sample_weight=weight, max_depth=4, n_classes=3, rng=0)._asdict()


def cases(dtype: type) -> Iterator[Case]:
    """All bits agree: sums are integers."""
    yield Case("bootstrap", lambda: {"counts": growth.bootstrap_counts(11, 3, rng=0)})
    yield Case("poisson", lambda: {"counts": growth.poisson_counts(11, 3, first_row=2, rng=0)})
    for n, weightings in ((1, (False,)), (25, (False, True))):
        for name in SETTINGS if n > 1 else ("gini",):
            for weighted in weightings:
                yield Case(
                    f"{name} n={n} {'weighted' if weighted else 'equal'}",
                    lambda s=name, n=n, w=weighted: _bins(s, n, w, dtype),
                )
    for name in ("gini", "targets", "extra"):
        for weighted in (False, True):
            yield Case(
                f"small {name} {'weighted' if weighted else 'equal'}",
                lambda s=name, w=weighted: _bins(s, 40, w, dtype, 0),
            )
    for small in (SMALL, MOST_OF_GPU):
        for name, weighted in (("two levels", False), ("two levels", True), ("targets", True)):
            yield Case(  # nodes of more than 256 samples, which blocks share
                f"large nodes {name} {'weighted' if weighted else 'equal'} small {small}",
                lambda s=name, w=weighted: _bins(s, 700, w, dtype),
                small=small,
            )
        yield Case(f"nodes small {small}", lambda: small_nodes(dtype), small=small)
        yield Case(f"counted bins small {small}", lambda: counted_bins(dtype), small=small)
        for n_outputs, weights, max_bins in UNITS:
            yield Case(
                f"units outputs {n_outputs} {weights} small {small}",
                lambda k=n_outputs, w=weights, b=max_bins: _units(k, w, b, dtype),
                small=small,
            )
        for task in ("classification", "regression"):
            for max_bins, missing in ((None, 0.2), (9, 0)):
                yield Case(
                    f"constraints {task} {'missing values' if missing else 'bins'} small {small}",
                    lambda t=task, b=max_bins, m=missing: _constrained(t, b, m, dtype),
                    small=small,
                )
    yield Case("windows", lambda: _windows(1, dtype))
    yield Case("windows small", lambda: _windows(0, dtype))
    for name in ("gini", "entropy", "targets", "completely random", "extra targets"):
        for categories in (False, True):
            yield Case(
                f"missing values {name} {'and categories' if categories else ''}",
                lambda s=name, c=categories: _missing(s, c, dtype),
            )
    for splitter in ("best", "random"):
        yield Case(
            f"missing values of projections {splitter}", lambda s=splitter: _missing_projections(s, dtype)
        )
    for weighted in (False, True):
        for small in (0, SMALL):
            yield Case(
                f"levels {'weighted' if weighted else 'equal'} small {small}",
                lambda w=weighted: _levels(w, dtype),
                small=small,
            )
    for kind in DISTRIBUTIONS:
        for scale, criterion in ((1, "gini"), (1 / 7, "squared_error"), (0, "gini")):
            for splitter in ("best", "random"):
                yield Case(
                    f"projections {kind} {criterion} {splitter} times {scale:g}",
                    lambda k=kind, f=scale, c=criterion, s=splitter: _projections(k, f, c, s, dtype),
                )
