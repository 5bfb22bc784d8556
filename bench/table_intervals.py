"""Coverage and widths of 90 % intervals for the targets of ordinary tables.

    python bench/table_intervals.py --data DIR [DIR ...] [--tables NAME ...] [--splits 3]
        [--rows 9000] [--json FILE]

Intervals of `tabular.predict_interval` stand beside quantiles .05 and .95 of a quantile regression forest
(`tree.quantiles`, 100 trees, at least 5 rows in a leaf). A split draws at most `rows` rows with its number as
the seed, two thirds for fitting. Widths and interval scores (Gneiting and Raftery 2007, eq. 43) are in
standard deviations of the test targets; a smaller score is better.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from common import options_of, record
from tabular_data import Data, find, load

from hforest import grow, samples, tabular, tree

COVERAGE = 0.9
TABLES = (
    "houses", "puma8NH", "abalone", "BNG_pwLinear", "pol", "fried", "mv", "503_wind", "215_2dplanes",
    "4544_GeographicalOriginalofMusic", "588_fri_c4_1000_100", "1199_BNG_echoMonths",
)  # fmt: skip


def by_model(data: Data, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bounds of a model of tables."""
    categorical = list(data.categorical) or None
    model = tabular.fit(data.x, data.y, task="regression", categorical=categorical, rng=data.seed)
    return tabular.predict_interval(model, x, coverage=COVERAGE)


def by_quantiles(data: Data, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns quantiles of a forest."""
    a = samples(data.x, categorical=list(data.categorical) or None)
    forest = grow(a, data.y, 100, task="regression", min_samples_leaf=5, rng=data.seed)
    targets = tree.leaf_targets(forest, data.x, data.y)
    low, high = tree.quantiles(forest, targets, x, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2]).reshape(-1, 2).T
    return low, high


METHODS = {"predict_interval": by_model, "quantiles": by_quantiles}


def figures(low: np.ndarray, high: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Returns the share of targets inside, and the mean width and interval score in deviations of y."""
    outside = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    score = high - low + 2 / (1 - COVERAGE) * outside
    return {
        "coverage": float(((low <= y) & (y <= high)).mean()),
        "width": float((high - low).mean() / y.std()),
        "score": float(score.mean() / y.std()),
    }


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Returns lines of Markdown: coverage, width and interval score of each method on each table."""
    head = " | ".join(f"`{name}`: coverage | width | score" for name in METHODS)
    lines = [f"| table | {head} |", "|---|" + "---|" * (3 * len(METHODS))]
    for name in dict.fromkeys(row["table"] for row in rows):
        of = {row["method"]: row for row in rows if row["table"] == name}
        figures = [f"{of[m][key]:.3f}" for m in METHODS for key in ("coverage", "width", "score")]
        lines.append(f"| {name} | {' | '.join(figures)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", type=Path, required=True)
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--rows", type=int, default=9000)
    parser.add_argument("--json", type=Path)
    options = options_of(parser, "--data {data} --tables houses --splits 1", "houses")
    rows = []
    for name in options.tables:
        path = find(options.data, name)
        for method, bounds in METHODS.items():
            found = []
            for split in range(options.splits):
                data, x, y = load(path, options.rows, split, False, "raw", categorical=True)
                found.append(figures(*bounds(data, x), y))
            means = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
            rows.append({"table": name, "method": method, "splits": options.splits, **means})
    if options.json:
        record(options.json, rows)
    print(*table(rows), sep="\n")


if __name__ == "__main__":
    main()
