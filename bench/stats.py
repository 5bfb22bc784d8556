"""How often the tests of hforest.stats reject data sets in which nothing depends, at the level 0.05.

    python bench/stats.py --sets 200 --json bench/results/stats.json      # some hours on one core
    python bench/stats.py --cells "permutation 64 *" --sets 50            # some cells

A cell is a test, rows, columns and a statistic, such as "split 256 16 auc". The record has the p-values of
each cell; a run with the same record adds the sets that are missing.

permutation, split      labels of two classes, as many of each, beside normal columns
conditional             z of four normal columns; each column of x is one of them, or its sine, and noise; the
                        labels depend on two columns of z alone
randomization           the same, with draws from the true distribution of x given z
two forests             normal columns; the share is no p-value: the last number is that of the trees
"""

import argparse
import json
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import record

from hforest import stats

LEVEL = 0.05
N_PERMUTATIONS, MAX_EXCEED = 99, 5
"""A p-value is 0.05 or less where at most four of 99 statistics are as large."""
ROWS, COLUMNS = (64, 256), (1, 16, 256)
BATCH = 5
"""Sets of one cell before the next one's."""


class Cell(NamedTuple):
    """What is measured."""

    test: str
    n: int
    d: int
    statistic: str

    @property
    def name(self) -> str:
        return f"{self.test} {self.n} {self.d} {self.statistic}"


def cells() -> list[Cell]:
    """All cells, the short ones first."""
    both = [(n, d) for n in ROWS for d in COLUMNS]
    found = [
        Cell(test, n, d, statistic)
        for n, d in both
        for test in ("split", "permutation")
        for statistic in ("information", "auc")
    ]
    found += [Cell("randomization", n, 1, "information") for n in ROWS]
    found += [Cell("two forests", 128, 16, str(n_trees)) for n_trees in (25, 125, 500)]
    return found + [Cell("conditional", n, d, "covariance") for n, d in both]


def independent(n: int, d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Columns, and labels that do not depend on them."""
    return rng.normal(size=(n, d)), rng.permutation(np.arange(n) % 2)


def explained(z: np.ndarray, d: int) -> np.ndarray:
    """Means of columns given z."""
    column = np.arange(d) % 8
    return np.where(column < 4, z[:, column % 4], np.sin(2 * z[:, column % 4]))


def through_z(n: int, d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns and labels that depend on z alone."""
    z = rng.normal(size=(n, 4))
    x = explained(z, d) + rng.normal(size=(n, d))
    return x, (z[:, 0] + z[:, 1] + rng.normal(size=n) > 0).astype(int), z


def sampler(x: np.ndarray, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return explained(z, x.shape[1]) + rng.normal(size=x.shape)


def p_value(cell: Cell, number: int) -> float:
    """The p-value, or share, of one data set."""
    rng = np.random.default_rng([number, cell.n, cell.d])
    seed = int(rng.integers(2**62))
    settings: dict[str, Any] = {"statistic": cell.statistic, "n_permutations": N_PERMUTATIONS, "rng": seed}
    if cell.test == "permutation":
        return stats.permutation_test(
            *independent(cell.n, cell.d, rng), max_exceed=MAX_EXCEED, **settings
        ).p_value
    if cell.test == "split":
        return stats.split_test(*independent(cell.n, cell.d, rng), **settings).p_value
    if cell.test == "two forests":
        x, y = independent(cell.n + 64, cell.d, rng)
        train, test = slice(cell.n), slice(cell.n, None)
        return stats.two_forest_test(
            x[train], y[train], x[test], y[test], np.arange(cell.d), n_trees=int(cell.statistic),
            n_permutations=N_PERMUTATIONS, rng=seed,
        ).share  # fmt: skip
    x, y, z = through_z(cell.n, cell.d, rng)
    if cell.test == "randomization":
        return stats.conditional_randomization_test(
            x, y, z, sampler, max_exceed=MAX_EXCEED, **settings
        ).p_value
    return stats.conditional_test(x, y, z, n_bootstrap=N_PERMUTATIONS, rng=seed).p_value


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Lines of Markdown: shares of sets with a p-value of 0.05 or less, and their standard errors."""
    yield "| test | rows | columns | statistic | sets | rejected | standard error |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        p = np.array(row["p"])
        share = float((p <= LEVEL).mean())
        error = float(np.sqrt(share * (1 - share) / len(p)))
        name = (row["test"], str(row["n"]), str(row["d"]), row["statistic"])
        yield f"| {' | '.join(name)} | {len(p)} | {share:.3f} | {error:.3f} |"


def measure(
    chosen: list[Cell], n_sets: int, rows: dict[str, dict[str, Any]], save: Callable[[], None]
) -> None:
    """Adds p-values to the rows of the cells until each has as many as there are sets."""
    for done in range(0, n_sets, BATCH):
        for cell in chosen:
            row = rows.setdefault(cell.name, {**cell._asdict(), "p": []})
            missing = range(len(row["p"]), min(done + BATCH, n_sets))
            row["p"] += [p_value(cell, number) for number in missing]
            if missing:
                save()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=200, help="data sets for each cell")
    parser.add_argument("--cells", nargs="+", default=["*"], metavar="PATTERN", help="names, * is any text")
    parser.add_argument("--json", type=Path, help="the record, read first where it is there")
    options = parser.parse_args()
    chosen = [cell for cell in cells() if any(fnmatchcase(cell.name, c) for c in options.cells)]
    if not chosen:
        parser.error(f"--cells: expected the names of some cells, got {' '.join(options.cells)}")
    rows: dict[str, dict[str, Any]] = {}
    if options.json and options.json.exists():
        rows = {
            Cell(*(row[key] for key in Cell._fields)).name: row
            for row in json.loads(options.json.read_text())["rows"]
        }

    def save() -> None:
        if options.json:
            known = [rows[cell.name] for cell in cells() if cell.name in rows]
            record(options.json, known, level=LEVEL, n_permutations=N_PERMUTATIONS, max_exceed=MAX_EXCEED)

    try:
        measure(chosen, options.sets, rows, save)
    except KeyboardInterrupt:
        print("interrupted; the sets so far:")
    print(*table([rows[cell.name] for cell in chosen if rows.get(cell.name, {"p": []})["p"]]), sep="\n")


if __name__ == "__main__":
    main()
