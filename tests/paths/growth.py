"""Rows of `hforest.growth`."""

from functools import cache

import numpy as np

import hforest
from hforest import project

from . import EXPS, Row, normal


@cache
def learned(n, whole):
    x, noise = normal(n, 6), np.random.default_rng(1).normal(size=n)
    return np.round(3 * x) if whole else x, (x[:, 0] > 0).astype(int) + (x[:, 1] + noise > 0)


def grow(max_bins, n=800, *, y=None, **settings):
    x, classes = learned(n, False)
    y = classes if y is None else y
    settings = {"max_features": "sqrt", "rng": 0, **settings}
    hforest.grow(hforest.samples(x, max_bins=max_bins), y, 2, **settings)


DISTRIBUTION = project.sparse_distribution(6)


def grow_projected(n, whole, max_depth=None):
    settings = {"projections": DISTRIBUTION, "n_projections": 4, "max_depth": max_depth}
    hforest.grow(*learned(n, whole), 2, rng=0, **settings)


def rows():
    def vectors(names):
        return " ".join(f"growth.{name}_{{bytes}}" for name in names.split())

    bounded = "find_range fill_buckets sum_buckets rate find_alive"
    sums = "find_range fill_buckets sum_buckets rate"
    of_values = "growth.sorted_scan growth.pairs_of_values"
    yield Row(
        "grow-bins", lambda: grow(64), "growth.histogram",
        "growth.pairs " + vectors("sum_pairs rate_pairs sum_bins rate"), {"plain": "growth.sorted_scan"},
    )  # fmt: skip
    yield Row(
        "grow-exact", lambda: grow(None), f"growth.bounds {of_values}", vectors(bounded + " sum_values")
    )
    for name, whole, scorer, bodies in (
        ("reals", False, "bounds", bounded),
        ("whole", True, "exact_histogram", sums),
    ):
        yield Row(
            f"grow-projections-{name}", lambda whole=whole: grow_projected(800, whole),
            f"growth.{scorer} {of_values}", vectors(bodies + " sum_values"), EXPS,
        )  # fmt: skip
        yield Row(
            f"grow-projections-large-{name}", lambda whole=whole: grow_projected(40_000, whole, 1),
            f"growth.wide_{scorer}", vectors("find_range fill_buckets"), EXPS,
        )  # fmt: skip
    # Real weights, targets and entropy are terms: few samples, more in a histogram, and ranks far apart.
    weights, targets = np.random.default_rng(2).random(800), np.random.default_rng(3).normal(size=800)
    several, of_terms = (
        np.stack([targets, -targets, targets**2], axis=1),
        "growth.few_terms growth.term_histogram",
    )
    regression = {"task": "regression"}
    for name, taken, bodies, max_bins, settings in (
        ("weights", of_terms, vectors("distances"), 64, {"sample_weight": weights}),
        ("entropy", of_terms, "", 64, {"criterion": "entropy"}),
        ("targets", of_terms, "", 64, {"y": targets, **regression}),
        ("outputs", of_terms, vectors("distances"), 64, {"y": several, **regression}),
        ("leaves", of_terms, "", 64, {"y": targets, "min_samples_leaf": 3, **regression}),
        (
            "all-columns",
            f"{of_terms} growth.kept_histogram",
            "",
            64,
            {"y": targets, "max_features": None, **regression},
        ),
        (
            "ranks",
            "growth.term_buckets growth.few_terms",
            vectors("find_range fill_buckets mark_gains"),
            None,
            {"y": targets, **regression},
        ),
    ):
        yield Row(f"grow-{name}", lambda b=max_bins, s=settings: grow(b, **s), taken, bodies)
    # Numbers without bins, and columns that are encoded when a node samples them.
    for dtype in (np.float32, np.float64):
        bits = np.dtype(dtype).itemsize * 8
        x = normal(40, 400, dtype=dtype)
        y = (x[:, 0] > 0).astype(int)
        yield Row(
            f"grow-random-thresholds-{bits}",
            lambda x=x, y=y: hforest.grow(x, y, 2, splitter="random", rng=0),
            "", vectors(f"read_lanes_f{bits} sum_lanes_f{bits}"),
        )  # fmt: skip
        yield Row(
            f"grow-wide-{bits}", lambda x=x, y=y: hforest.grow(x, y, 2, bootstrap=False, rng=0),
            vectors="growth.histogram growth.pairs "
            + vectors(f"count_smaller_f{bits} sum_bins rate sum_pairs rate_pairs"),
            paths={"plain": "growth.sorted_scan"},
        )  # fmt: skip
