"""Power of the tests of hforest.stats, and of a t-test of the relevant column, at the level 0.05.

    python bench/stats_power.py --sets 200 --json bench/results/stats_power.json --plot FILE

Rows have normal columns, and one of two classes, as many of each. In class 1, the effect is the mean of the
first column; with "deviation", its standard deviation is 1 plus the effect, which a t-test does not detect.
The other columns are noise. Each line has the share of data sets with a p-value of 0.05 or less and the
processor milliseconds per test.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import machine_text, options_of, record
from scipy.stats import ttest_ind

from hforest import stats

LEVEL = 0.05
N_PERMUTATIONS = 99
CELLS = [
    *((64, d, "mean", effect) for d in (1, 16, 256) for effect in (0.0, 0.5, 1.0, 1.5)),
    *((64, d, "deviation", 2.0) for d in (1, 16)),
    *((256, d, "mean", 0.5) for d in (1, 16, 256)),
]
"""Rows, columns, what depends on the class, and the effect."""


def data(n: int, d: int, kind: str, effect: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns columns and labels."""
    y = rng.permutation(np.arange(n) % 2)
    x = rng.normal(size=(n, d))
    x[:, 0] = x[:, 0] + effect * y if kind == "mean" else x[:, 0] * (1 + effect * y)
    return x, y


Test = Callable[[np.ndarray, np.ndarray, int], float]
"""A p-value of columns and labels, from a seed."""


def permutation(statistic: str) -> Test:
    """Returns the p-value of forests that are grown again on permuted labels."""
    settings: dict[str, Any] = {"statistic": statistic, "n_permutations": N_PERMUTATIONS, "max_exceed": 5}
    return lambda x, y, seed: stats.permutation_test(x, y, rng=seed, **settings).p_value


def split(statistic: str, structure_share: float) -> Test:
    """Returns the p-value of one forest."""
    settings: dict[str, Any] = {"statistic": statistic, "structure_share": structure_share}
    settings["n_permutations"] = N_PERMUTATIONS
    return lambda x, y, seed: stats.split_test(x, y, rng=seed, **settings).p_value


def importance(by: str) -> Test:
    """Returns the p-value of the first column, whose index the test receives."""
    settings: dict[str, Any] = {"columns": 0, "by": by, "n_copies": N_PERMUTATIONS}
    return lambda x, y, seed: float(stats.importance_test(x, y, rng=seed, **settings).p_value[0])


TESTS: dict[str, Test] = {
    "t-test": lambda x, y, seed: float(ttest_ind(x[y == 0, 0], x[y == 1, 0]).pvalue),
    "permutation, auc": permutation("auc"),
    "permutation, information": permutation("information"),
    "split, auc": split("auc", 0.5),
    "split, distance correlation": split("distance_correlation", 0.5),
    "no labels, auc": split("auc", 0.0),
    "importance, copies": importance("mdi_oob"),
    "importance, error": importance("error"),
}


def measure(cell: tuple[int, int, str, float], n_sets: int, known: list[dict[str, Any]]) -> dict[str, Any]:
    """Measures the p-values of a cell's data sets, and the seconds of a test, unless the record has them."""
    n, d, kind, effect = cell
    row: dict[str, Any] = {"n": n, "d": d, "kind": kind, "effect": effect}
    row |= next((a for a in known if all(a[key] == row[key] for key in row)), {})
    for name, test in TESTS.items():
        if name in row and len(row[name]["p"]) == n_sets:
            continue
        begin, p = time.process_time(), []
        for number in range(n_sets):
            rng = np.random.default_rng([number, n, d, round(100 * effect)])
            p.append(test(*data(n, d, kind, effect, rng), int(rng.integers(2**62))))
        row[name] = {"p": p, "seconds": (time.process_time() - begin) / n_sets}
    return row


def text(row: dict[str, Any]) -> str:
    """Returns a line of Markdown."""
    shares = [
        f"{np.mean(np.array(row[name]['p']) <= LEVEL):.2f} ({1e3 * row[name]['seconds']:.0f})"
        for name in TESTS
    ]
    return f"| {row['n']} | {row['d']} | {row['kind']} {row['effect']:g} | {' | '.join(shares)} |"


def figure(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws the power by effect, with a picture for each number of columns."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    some = [row for row in rows if row["n"] == 64 and row["kind"] == "mean"]
    columns = sorted({row["d"] for row in some})
    fig, axes = plt.subplots(1, len(columns), figsize=(4 * len(columns), 3.6), sharey=True)
    for ax, d in zip(np.atleast_1d(axes), columns, strict=True):
        at = [row for row in some if row["d"] == d]
        for name, style in zip(TESTS, ("k:", "o-", "s-", "^-", "v-", "d-", "*-", "+-"), strict=True):
            power = [np.mean(np.array(row[name]["p"]) <= LEVEL) for row in at]
            ax.plot([row["effect"] for row in at], power, style, label=name)
        ax.axhline(LEVEL, color="grey", linewidth=0.8)
        ax.set(title=f"64 rows, {d} columns", xlabel="shift of the first column's mean")
    np.atleast_1d(axes)[0].set_ylabel(f"share of p-values of {LEVEL} or less")
    np.atleast_1d(axes)[0].legend(fontsize=8)
    fig.tight_layout()
    fig.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--columns", type=int, nargs="+", default=[1, 16, 256])
    parser.add_argument("--json", type=Path, help="the record; its cells are not measured again")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="file of a picture of the cells with 64 rows"
    )
    options = options_of(parser, "--sets 1 --columns 1")
    print(machine_text())
    print(f"| rows | columns | effect | {' | '.join(TESTS)} |\n|---|---|---|{'---|' * len(TESTS)}")
    known = json.loads(options.json.read_text())["rows"] if options.json and options.json.exists() else []
    rows = []
    for cell in (cell for cell in CELLS if cell[1] in options.columns):
        rows.append(measure(cell, options.sets, known))
        print(text(rows[-1]), flush=True)
        if options.json:
            record(options.json, rows, level=LEVEL, n_permutations=N_PERMUTATIONS, sets=options.sets)
    if options.plot:
        figure(rows, options.plot)


if __name__ == "__main__":
    main()
