"""Small problems, forests of each kind, and comparisons, for tests of growth."""

import math
from functools import partial

import numpy as np
from conftest import assert_same_bits

import hforest
from hforest import co2, project
from hforest.core import machine


def patches(n):
    """Returns the distribution of patches of a square, of two rows or of one, with n pixels."""
    side = math.isqrt(n)
    shape = (side, side) if side**2 == n else (2, n // 2) if n % 2 == 0 and n > 2 else (n,)
    return project.patch_distribution(shape, patch_max=min(2, *shape))


KINDS = {
    "features": lambda n: {},
    "extra": lambda n: {"splitter": "random", "bootstrap": False},
    "random": lambda n: {"splitter": "random", "bootstrap": False, "max_features": 1},
    "sparse": lambda n: {"projections": project.sparse_distribution(n)},
    "probe": lambda n: {"projections": project.probe_distribution(n, 0.5)},
    "patch": lambda n: {"projections": patches(n)},
}
"""Settings of `hforest.grow` for samples of n features."""


def grow(x, y, n_trees=100, *, kind, **settings):
    """Returns a forest of a kind."""
    return hforest.grow(x, y, n_trees, **KINDS[kind](np.shape(x)[1]) | settings)


GROWERS = {
    **{kind: partial(grow, kind=kind) for kind in KINDS},
    "co2": partial(co2.grow, max_depth=3),
    "paper's co2": partial(co2.grow, max_depth=3, standardize=False),
}


def problem(n, n_features=4, n_classes=3, dtype=np.float64, seed=0, coarse=False):
    """Returns samples, of few distinct values if coarse, and labels that do not depend on them."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 3, (n, n_features)) * 0.5 if coarse else rng.normal(size=(n, n_features))
    return x.astype(dtype), rng.integers(0, n_classes, n).astype(np.int32)


def blobs(n=200, n_features=5, n_classes=3, dtype=np.float64):
    """Returns samples of normal numbers around their labels, which take turns."""
    rng = np.random.default_rng(0)
    y = (np.arange(n) % n_classes).astype(np.int32)
    return (rng.normal(size=(n, n_features)) + y[:, None]).astype(dtype), y


class Table:
    """An object of numbers that converts itself to an array."""

    def __init__(self, a):
        self.a = a

    def __array__(self, dtype=None, copy=None):
        return np.array(self.a, dtype)


def windows_of(x, **settings):
    """Returns samples of windows (array, base, offset), and of other arguments as `hforest.samples`."""
    if isinstance(x, tuple):
        return hforest.samples(x[0], windows=x[1:], **settings)
    return hforest.samples(x, **settings)


def overlapping(n_rows=6, n_features=12, dtype=np.float32, seed=0, coarse=True):
    """Returns windows with gaps in the rows of an array: (array, base, offset), and a copy of them."""
    x, _ = problem(n_rows, n_features, 2, dtype, seed, coarse)
    x[0, 0] *= -1
    offset = np.array([0, 1, 3, 4, 6])
    base = (np.arange(n_rows)[:, None] * n_features + np.arange(n_features - 6)).ravel()
    base = np.random.default_rng(seed).permutation(base)[: max(1, 2 * len(base) // 3)]
    return (x, base, offset), np.ascontiguousarray(x.ravel()[base[:, None] + offset])


def make(x, y, *, n_trees=3, n_classes=3, max_bins=None, **settings):
    """Returns a forest on x, an array or windows; with n_classes None that of a regression."""
    x = windows_of(x, max_bins=max_bins)
    task = "regression" if n_classes is None else "classification"
    few = {"n_projections": 4} if "projections" in settings else {"max_features": min(2, x.shape[1])}
    return hforest.grow(x, y, n_trees, task=task, n_classes=n_classes, **{**few, "rng": 1, **settings})


def assert_same(got, want):
    """Fails if forests are not equal; gains to rounding."""
    for name, a, b in zip(got._fields, got, want, strict=True):
        assert a.dtype == b.dtype, name
        if name == "gain":
            np.testing.assert_allclose(a, b, rtol=1e-5 if a.dtype == np.float32 else 1e-9, atol=1e-9)
        else:
            np.testing.assert_array_equal(a, b, err_msg=name)


def both(*args, **settings):
    """Returns the forest of `make` from the CPU backend, after a comparison with the reference."""
    got = make(*args, **settings)
    with hforest.using("reference"):
        assert_same(got, make(*args, **settings))
    return got


def on_paths(simd, call):
    """Returns the results of a call on each vector path, plain first."""
    results = []
    for path in machine.simd_paths():
        simd(path)
        results.append(call())
    return results


def on_threads(threads, call):
    """Returns the results of a call on 1, 2 and 7 threads."""
    results = []
    for count in (1, 2, 7):
        threads(count)
        results.append(call())
    return results


def assert_all_same(results):
    """Fails if results are not bit-identical."""
    for other in results[1:]:
        assert_same_bits(other, results[0])


def of_views(distribution):
    """Returns the same for three views, one of a single column; a node samples four projections."""
    last = distribution.n_features - 1
    views = [[4, 0, 2], [1, 3, *range(5, last)], [last]]
    return project.grouped_distribution(distribution, views, [1, 2, 1])


DISTRIBUTIONS = {
    "axis": project.axis_distribution,
    "sparse": project.sparse_distribution,
    "dense": lambda n: project.sparse_distribution(n, 40.0),
    "probe": project.probe_distribution,
    "probe and single": lambda n: project.probe_distribution(n, 0.4),
    "interval": lambda n: project.patch_distribution((n,), patch_max=min(n, 5)),
    "image": lambda n: project.patch_distribution((n // 6, 6), patch_min=(1, 2), patch_max=(2, 4)),
    "cyclic": lambda n: project.patch_distribution((n // 6, 6), patch_max=(2, 6), cyclic=True),
    "channels": lambda n: project.patch_distribution((n // 6, 3, 2), patch_max=(1, 3), channels=True),
    "box": lambda n: project.patch_distribution((n // 6, 3, 2), patch_max=(2, 2, 2)),
    "coloured box": lambda n: project.patch_distribution(
        (1, n // 6, 3, 2), patch_max=(1, 2, 3), channels=True, cyclic=True
    ),
    "kernels": lambda n: project.kernel_distribution(
        (n // 6, 6), [[[0.5, 0, -0.5]], [[1], [-1]], np.eye(2), [[1]]]
    ),
    "coloured kernels": lambda n: project.kernel_distribution(
        (n // 6, 3, 2), [[[-1, 2]], [[0.1, 0, 1e-3]]], channels=True, cyclic=True
    ),
    "views, axis": lambda n: of_views(project.axis_distribution(n)),
    "views, dense": lambda n: of_views(project.sparse_distribution(n, 40.0)),
    "views, probe": lambda n: of_views(project.probe_distribution(n, 0.4)),
}
"""Distributions of projections of n features, a multiple of 6."""
