"""Many columns at once: false decisions, discoveries and times of `importance_test`, and of peers.

    python bench/stats_many.py [--cells "null 100 x 50" ...] [--sets 100] [--json FILE]

Rows have normal columns, and one of two classes, as many of each. In "sparse" cells the first 20 columns are
shifted by 0.8 in class 1; the others, and all columns of "null" cells, are noise. "correlated" columns are an
autoregression of 0.5 from each column to the next. A method decides at the level 0.1.

screen, holm (bh, by)   `importance_test(x, y, screen=..., adjust=...)`, 500 trees
max                     `importance_test(x, y, adjust="max")` of all columns, 500 trees
screen, error, bh       "screen, bh" by the error of one forest
t-tests, bh             Welch's tests of each column, Benjamini and Hochberg 1995
knockoffs               of the true distribution of the columns; differences of the absolute t statistics,
                        threshold "knockoff+" (Barber and Candes 2015)
Boruta                  Kursa and Rudnicki 2010: 50 forests of all columns and permuted copies, 100 trees
                        each; binomial tests of the number of forests in which a column is above all copies

"any" is the share of sets with a false rejection, "false" the mean share of false ones among the rejected
(FDR), "found" the mean number of the 20 shifted columns that are rejected. Standard errors follow. Seconds
are processor time of one set.
"""

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from common import cells_named, machine_text, options_of, parser_of_cells, record
from scipy.stats import binomtest, false_discovery_control, ttest_ind

import hforest
from hforest import stats, tree

LEVEL, SHIFTED, SHIFT, N_TREES, ROUNDS = 0.1, 20, 0.8, 500, 50


class Cell(NamedTuple):
    """Data sets of a kind, and how many columns are tested."""

    kind: str
    n: int
    d: int
    screen: int

    @property
    def name(self) -> str:
        return f"{self.kind} {self.n} x {self.d}"


CELLS = (
    Cell("null", 100, 50, 10), Cell("null, correlated", 100, 50, 10), Cell("null", 200, 2000, 20),
    Cell("sparse", 200, 2000, 20), Cell("sparse, correlated", 200, 2000, 20), Cell("sparse", 200, 2000, 50),
)  # fmt: skip
SHOWN = (CELLS[0], CELLS[2], CELLS[3])
"""Cells of the page's table."""
NOT_SHOWN = ("screen, by", "screen, error, bh")
"""Methods that it does not show."""


def columns(cell: Cell, rng: np.random.Generator) -> np.ndarray:
    """Returns columns without the effect of the labels."""
    noise = rng.normal(size=(cell.n, cell.d))
    if "correlated" not in cell.kind:
        return noise
    for j in range(1, cell.d):
        noise[:, j] = 0.5 * noise[:, j - 1] + np.sqrt(0.75) * noise[:, j]
    return noise


def data(cell: Cell, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns columns and labels."""
    y = rng.permutation(np.arange(cell.n) % 2)
    x = columns(cell, rng)
    if "sparse" in cell.kind:
        x[:, :SHIFTED] += SHIFT * y[:, None]
    return x, y


Decide = Callable[[np.ndarray, np.ndarray, Cell, int], np.ndarray]
"""decide(x, y, cell, seed): which columns are rejected."""


def screened(adjust: Any, by: Any = "mdi_oob") -> Decide:
    """Returns the decision of `importance_test`."""

    def decide(x: np.ndarray, y: np.ndarray, cell: Cell, seed: int) -> np.ndarray:
        settings: dict[str, Any] = {"by": by, "screen": cell.screen, "adjust": adjust}
        test = stats.importance_test(x, y, n_trees=N_TREES, rng=seed, **settings)
        return np.asarray(test.adjusted <= LEVEL)

    return decide


def largest(x: np.ndarray, y: np.ndarray, cell: Cell, seed: int) -> np.ndarray:
    """Returns the decision of `importance_test` by the maximum over columns."""
    test = stats.importance_test(x, y, adjust="max", n_trees=N_TREES, rng=seed)
    return np.asarray(test.adjusted <= LEVEL)


def t_tests(x: np.ndarray, y: np.ndarray, cell: Cell, seed: int) -> np.ndarray:
    """Returns the decision of Welch's tests with the adjustment of Benjamini and Hochberg."""
    p = ttest_ind(x[y == 0], x[y == 1], equal_var=False).pvalue
    return np.asarray(false_discovery_control(p) <= LEVEL)


def knockoffs(x: np.ndarray, y: np.ndarray, cell: Cell, seed: int) -> np.ndarray:
    """Returns the decision by independent knockoffs, for columns that are independent of each other."""
    copies = columns(cell, np.random.default_rng(seed))
    ours, theirs = (abs(ttest_ind(a[y == 0], a[y == 1]).statistic) for a in (x, copies))
    w = ours - theirs
    for least in np.sort(abs(w)):
        if (1 + (w <= -least).sum()) <= LEVEL * max(1, (w >= least).sum()):
            return np.asarray(w >= least)
    return np.zeros(len(w), bool)


def boruta(x: np.ndarray, y: np.ndarray, cell: Cell, seed: int) -> np.ndarray:
    """Returns the decision by the number of forests in which a column is above all permuted copies."""
    rng = np.random.default_rng(seed)
    hits = np.zeros(x.shape[1], int)
    for number in range(ROUNDS):
        copies = rng.permuted(x, axis=0)
        forest = hforest.grow(np.hstack([x, copies]), y, 100, bootstrap=True, rng=seed + number)
        gain = tree.importance(forest, by="gain")
        hits += gain[: x.shape[1]] > gain[x.shape[1] :].max()
    p = np.array([binomtest(int(a), ROUNDS, 0.5, alternative="greater").pvalue for a in hits])
    return np.asarray(p * len(p) <= LEVEL)


METHODS: dict[str, Decide] = {
    "screen, holm": screened("holm"), "screen, bh": screened("bh"), "screen, by": screened("by"),
    "max": largest, "screen, error, bh": screened("bh", "error"), "t-tests, bh": t_tests,
    "knockoffs": knockoffs, "Boruta": boruta,
}  # fmt: skip
SLOW = {"max": 2, "screen, error, bh": 4, "Boruta": 10}
"""Methods of which only one in this many data sets is decided."""


def measure(cell: Cell, method: str, n_sets: int) -> dict[str, Any]:
    """Returns the false and right rejections of each data set, and the mean seconds."""
    n_sets = max(1, n_sets // SLOW.get(method, 1))
    false, found, begin = [], [], time.process_time()
    for number in range(n_sets):
        rng = np.random.default_rng([number, cell.n, cell.d])
        x, y = data(cell, rng)
        rejected = METHODS[method](x, y, cell, int(rng.integers(2**40)))
        shifted = SHIFTED if "sparse" in cell.kind else 0
        found.append(int(rejected[:shifted].sum()))
        false.append(int(rejected[shifted:].sum()))
    seconds = (time.process_time() - begin) / n_sets
    return {**cell._asdict(), "method": method, "false": false, "found": found, "seconds": seconds}


def mean_of(values: Any) -> str:
    """Returns a mean and its standard error."""
    a = np.asarray(values, float)
    return f"{a.mean():.3f} ± {a.std() / np.sqrt(len(a)):.3f}"


def line(row: dict[str, Any]) -> str:
    """Returns a line of Markdown."""
    false, found = np.array(row["false"]), np.array(row["found"])
    share = false / np.maximum(false + found, 1)
    power = f"{found.mean():.1f}" if "sparse" in row["kind"] else "–"
    size = f"{row['n']} x {row['d']}"
    cells = (row["kind"], size, row["screen"], row["method"], len(false), mean_of(false > 0), mean_of(share))
    return f"| {' | '.join(map(str, cells))} | {power} | {row['seconds']:.2f} |"


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the table of the page: a row for each method, with the numbers of sets in brackets."""
    known = {(*(row[key] for key in Cell._fields), row["method"]): row for row in rows}
    names = ["method", *(f"any: {cell.name}" for cell in SHOWN), "false", "found", "s"]
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    for method in METHODS:
        found = [known.get((*cell, method)) for cell in SHOWN]
        if method in NOT_SHOWN or found[-1] is None:
            continue
        false = [np.array(row["false"]) if row else None for row in found]
        shares = ["–" if a is None else f"{mean_of(a > 0)} ({len(a)})" for a in false]
        last = line(found[-1]).strip("| ").split(" | ")[-3:]
        lines.append(f"| {' | '.join([method, *shares, *last])} |")
    return "\n".join(lines)


def main() -> None:
    parser = parser_of_cells(__doc__, 100)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    options = options_of(parser, "--cells 'null 100 x 50' --methods 't-tests, bh' knockoffs --sets 1")
    print(machine_text())
    rows = json.loads(options.json.read_text())["rows"] if options.json and options.json.exists() else []
    known = {tuple(row[key] for key in (*Cell._fields, "method")): row for row in rows}
    for cell in cells_named(parser, CELLS, options.cells):
        for method in options.methods:
            if method == "knockoffs" and "correlated" in cell.kind:
                continue  # they would need the covariance
            row = measure(cell, method, options.sets)
            print(line(row), flush=True)
            known[(*cell, method)] = row
            if options.json:
                record(options.json, list(known.values()), level=LEVEL, shift=SHIFT)


if __name__ == "__main__":
    main()
