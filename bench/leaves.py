"""Quantiles of quantile regression forests and proximities, compared with the package quantile-forest.

    python bench/leaves.py [--threads 1 2] [--repeats 5] [--proximity]

Quantiles: a forest of quantile-forest (all samples of a leaf kept) is converted, so that both read the same
leaves; results of `method="linear"` are compared before anything is timed. Rows are 5000 samples, levels
three. Calls are timed in turn; figures are the best of the repeats, in milliseconds. --proximity: the matrix
of 10,000 samples in 500 trees grown to purity; some rows are compared with a plain comparison of leaves.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import machine_text, need, options_of, side_by_side

import hforest
from hforest import grow, tree

LEVELS = [0.05, 0.5, 0.95]
SETTINGS: tuple[dict[str, Any], ...] = ({}, {"max_neighbors": 50}, {"min_share": 0.05})


def problem(n: int, n_features: int) -> tuple[Any, Any]:
    """Samples, and targets that depend on three features."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, n_features)).astype(np.float32)
    return x, x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(size=n)


def converted(model: Any, x: Any, y: Any) -> tuple[tree.Forest, tree.LeafTargets]:
    """Returns the trees of a model of quantile-forest, and the targets that each drew."""
    from sklearn.ensemble import RandomForestRegressor

    plain = RandomForestRegressor()
    plain.estimators_, plain.n_features_in_, plain.n_outputs_ = model.estimators_, x.shape[1], 1
    forest = tree.from_sklearn(plain)
    counts = np.array([np.bincount(s, minlength=len(x)) for s in model.estimators_samples_], np.int32)
    return forest, tree.leaf_targets(forest, x, y, counts=counts)


def quantiles(n_rows: int, threads: list[int], repeats: int) -> None:
    """Prints a line for each size of leaves, method and number of threads."""
    from quantile_forest import RandomForestQuantileRegressor

    x, y = problem(n_rows, 10)
    rows = np.random.default_rng(1).normal(size=(5000, 10)).astype(np.float32)
    for least in (1, 5, 20):
        model = RandomForestQuantileRegressor(
            100, max_samples_leaf=None, min_samples_leaf=least, random_state=0
        ).fit(x, y)
        forest, targets = converted(model, x, y)
        want = model.predict(rows, quantiles=LEVELS)
        got = tree.quantiles(forest, targets, rows, LEVELS, method="linear")[:, 0]
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
        for n in threads:
            hforest.set_num_threads(n)
            model.n_jobs = n
            predict = partial(model.predict, rows, quantiles=LEVELS)
            calls: dict[str, Callable[[], Any]] = {
                "linear": partial(tree.quantiles, forest, targets, rows, LEVELS, method="linear"),
                "inverted_cdf": partial(tree.quantiles, forest, targets, rows, LEVELS),
                "quantile-forest": predict,
                "unweighted": partial(predict, weighted_quantile=False),
            }
            best = {name: min(taken) for name, taken in side_by_side(calls, repeats).items()}
            text = "  ".join(f"{name} {1e3 * t:.0f}" for name, t in best.items())
            ratio = best["quantile-forest"] / best["linear"]
            print(f"min_samples_leaf {least:2d}, {n} threads: {text}; ratio {ratio:.1f}", flush=True)


def proximity(n_rows: int) -> None:
    """Prints the time and the stored numbers of a matrix of proximities."""
    x, y = problem(n_rows, 20)
    forest = grow(x, y > 0, 500, rng=0)
    for settings in SETTINGS:
        begin = time.perf_counter()
        p = tree.proximity(forest, x, **settings)
        taken = time.perf_counter() - begin
        print(f"proximity {settings}: {taken:.1f} s, {p.nnz} stored", flush=True)
        if not settings:
            leaf = tree.apply(forest, x)
            want = (leaf[:50, None] == leaf[None]).mean(axis=2).astype(np.float32)
            np.testing.assert_array_equal(p[:50].toarray(), want)


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--proximity", action="store_true")
    options = options_of(parser, "--proximity --rows 300")
    print(machine_text())
    if options.proximity:
        proximity(options.rows)
    else:
        need("-e '.[bench]' quantile-forest", "quantile_forest")
        quantiles(options.rows, options.threads, options.repeats)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
