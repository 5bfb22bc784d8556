"""Errors of out-of-bag estimates of hforest.stats against the true posterior, on the same rows.

    python bench/stats_truth.py --sets 50 --json bench/results/stats_truth.json

Rows have normal columns, and one of two classes, as many of each. In class 1 the mean of the first column is
1; the other columns are noise. So the posterior is known. The estimates are those of honest forests. Each
line has the mean over data sets of an estimate minus the same statistic of the true posterior, and its
standard error. The last table has the mean AUC of labels that do not depend on the columns, with 64 rows and
256 columns, for different draws of rows.

leaf      the minimum number of rows in a leaf, among those that grow the splits; "chosen" has the smallest
          out-of-bag log loss, separately for each data set
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from common import machine_text, options_of, record

from hforest import grow, stats

STATISTICS: dict[str, Callable[..., float]] = {
    "information": stats.information,
    "auc": stats.auc,
    "sensitivity": stats.sensitivity,
    "mutual_information": stats.mutual_information,
}
LEAVES = (1, 5, 20, 80)
COLUMNS = (1, 16, 64)


def rows_of(
    n: int, d: int, effect: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns columns, labels and the true posteriors (n, 2)."""
    y = rng.permutation(np.arange(n) % 2)
    x = rng.normal(size=(n, d))
    x[:, 0] += effect * y
    p = 1 / (1 + np.exp(effect * (effect / 2 - x[:, 0])))
    return x, y, np.stack([1 - p, p], axis=1)


def posteriors(
    x: np.ndarray,
    y: np.ndarray,
    n_trees: int,
    seed: int,
    draw: Literal["fixed", "bootstrap"] = "fixed",
    **settings: Any,
) -> np.ndarray:
    """Returns out-of-bag posteriors of an honest forest."""
    counts = stats.honest_counts(y, n_trees, draw=draw, rng=seed)
    forest = grow(x, y, n_trees, bootstrap=counts.structure, rng=seed, **settings)
    return stats.posterior(forest, x, y, counts).p


def differences(n: int, d: int, n_trees: int, max_features: float, number: int) -> Iterator[dict[str, Any]]:
    """Returns each estimate minus the true value, for one data set."""
    rng = np.random.default_rng([number, d])
    x, y, truth = rows_of(n, d, 1.0, rng)
    seed = int(rng.integers(2**62))
    p = {
        str(leaf): posteriors(
            x, y, n_trees, seed, max_features=max_features, min_samples_leaf=leaf
        )
        for leaf in LEAVES
    }  # fmt: skip
    p["chosen"] = max(p.values(), key=lambda a: stats.information(a, y))
    for leaf, estimate in p.items():
        yield {"d": d, "leaf": leaf} | {
            name: statistic(estimate, y) - statistic(truth, y) for name, statistic in STATISTICS.items()
        }


def null_auc(draw: Any, n_trees: int, number: int) -> float:
    """Returns the AUC of labels that do not depend on the columns."""
    rng = np.random.default_rng([number, 256])
    x, y, _ = rows_of(64, 256, 0.0, rng)
    return stats.auc(posteriors(x, y, n_trees, int(rng.integers(2**62)), draw), y)


def with_error(values: list[float]) -> str:
    """Returns mean and standard error."""
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=1) / len(values) ** 0.5:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=50)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--trees", type=int, default=200)
    parser.add_argument("--max-features", type=float, default=0.3)
    parser.add_argument("--json", type=Path)
    options = options_of(parser, "--sets 2 --rows 200 --trees 60")
    if options.sets < 2:
        parser.error(f"--sets: expected 2 or more, got {options.sets}")
    print(machine_text())
    print(f"| columns | leaf | {' | '.join(STATISTICS)} |\n|---|---|{'---|' * len(STATISTICS)}")
    rows: list[dict[str, Any]] = []
    for d in COLUMNS:
        for number in range(options.sets):
            rows += differences(options.rows, d, options.trees, options.max_features, number)
        for leaf in [*map(str, LEAVES), "chosen"]:
            some = [row for row in rows if (row["d"], row["leaf"]) == (d, leaf)]
            figures = [with_error([row[name] for row in some]) for name in STATISTICS]
            print(f"| {d} | {leaf} | {' | '.join(figures)} |", flush=True)
    print("\n| draw | mean AUC |\n|---|---|")
    auc = {
        draw: [null_auc(draw, options.trees, number) for number in range(options.sets)]
        for draw in ("fixed", "bootstrap")
    }
    for draw, values in auc.items():
        print(f"| {draw} | {with_error(values)} |")
    if options.json:
        settings = {k: v for k, v in vars(options).items() if k != "json"}
        record(options.json, rows, null_auc=auc, options=settings)


if __name__ == "__main__":
    main()
