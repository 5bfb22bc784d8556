"""Rows of `hforest.growth`."""

from functools import cache

import numpy as np

from hforest import growth, project

from . import Row, normal


@cache
def learned(n, whole):
    x, noise = normal(n, 6), np.random.default_rng(1).normal(size=n)
    return np.round(3 * x) if whole else x, (x[:, 0] > 0).astype(int) + (x[:, 1] + noise > 0)


def grow(max_bins, n=800, *, y=None, **settings):
    x, classes = learned(n, False)
    growth.grow(growth.encode(x, max_bins=max_bins), classes if y is None else y, 2, rng=0, **settings)


def grow_projected(n, whole, max_depth=None):
    sparse = project.sparse_distribution(6)
    growth.grow_projected(*learned(n, whole), 2, sparse, n_projections=4, max_depth=max_depth, rng=0)


def rows():
    def vectors(names):
        return " ".join(f"growth.{name}_{{bytes}}" for name in names.split())

    bounded = "find_range fill_buckets sum_buckets rate find_alive"
    sums = "find_range fill_buckets sum_buckets rate"
    of_values = "growth.sorted_scan growth.pairs_of_values"
    yield Row(
        "growth.grow-bins", lambda: grow(64), "growth.histogram",
        "growth.pairs " + vectors("sum_pairs rate_pairs sum_bins rate"), {"plain": "growth.sorted_scan"},
    )  # fmt: skip
    yield Row(
        "growth.grow-exact",
        lambda: grow(None),
        f"growth.bounds {of_values}",
        vectors(bounded + " sum_values"),
    )
    for name, whole, scorer, bodies in (
        ("reals", False, "bounds", bounded),
        ("whole", True, "exact_histogram", sums),
    ):
        yield Row(
            f"growth.grow_projected-{name}", lambda whole=whole: grow_projected(800, whole),
            f"growth.{scorer} {of_values}", vectors(bodies + " sum_values"),
        )  # fmt: skip
        yield Row(
            f"growth.grow_projected-large-{name}", lambda whole=whole: grow_projected(40_000, whole, 1),
            f"growth.wide_{scorer}", vectors("find_range fill_buckets"),
        )  # fmt: skip
    # Real weights and targets are scored in float64, in the order of the samples.
    weights, targets = np.random.default_rng(2).random(800), np.random.default_rng(3).normal(size=800)
    yield Row("growth.grow-weights", lambda: grow(64, sample_weight=weights), "growth.sorted_scan")
    yield Row("growth.grow-targets", lambda: grow(64, y=targets, task="regression"), "growth.sorted_scan")
