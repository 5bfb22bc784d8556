"""Coverage of hforest.stats.confidence_intervals for the mean of targets, in simulated regressions.

    python bench/intervals.py --sets 40 --json bench/results/intervals.json      # an hour on one core
    python bench/intervals.py --cells "waves 200 *" --sets 100                   # some cells

A cell is a function of two of d uniform columns, rows, d, and the share of the rows that a tree draws:

waves       2 sin(pi x0) + x1
steps       s(x0) s(x1) with s(t) = 1 + 1 / (1 + exp(-20 (t - 1/3))), as in Wager and Athey 2018

and noise of standard deviation 1. Trees are honest; their number is five times that of rows, at most 5000.
Intervals are computed for 60 rows: 30 "inside", with all columns in [.2, .8], and 30 at the "boundary", whose
first two columns are .02 or .98. The record has sums over sets for each cell; a run with the same record adds
the missing sets. In the table the standard error (root mean square) and the bias are in units of the true
standard deviation over sets.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from common import cells_named, options_of, parser_of_cells, record, rows_by_cell
from scipy.stats import norm

from hforest import grow, stats, tree

LEVELS = (0.9, 0.95)
N_NEW = 30


def waves(x: np.ndarray) -> np.ndarray:
    return 2 * np.sin(np.pi * x[:, 0]) + x[:, 1]


def steps(x: np.ndarray) -> np.ndarray:
    return np.prod(1 + 1 / (1 + np.exp(-20 * (x[:, :2] - 1 / 3))), axis=1)


FUNCTIONS = {"waves": waves, "steps": steps}


class Cell(NamedTuple):
    """A cell of the simulation."""

    function: str
    n: int
    d: int
    in_bag: float

    @property
    def name(self) -> str:
        return " ".join(map(str, self))

    @property
    def n_trees(self) -> int:
        return min(5 * self.n, 5000)


def cells() -> list[Cell]:
    """Returns all cells, the short ones first."""
    found = [Cell(function, n, d, 0.5) for n in (200, 800, 3200) for d in (2, 10) for function in FUNCTIONS]
    return found + [Cell("waves", 800, 2, in_bag) for in_bag in (0.1, 0.2, 0.8)]


def new_rows(d: int) -> np.ndarray:
    """Returns rows inside, then rows near the boundary."""
    rng = np.random.default_rng(d)
    inside = rng.uniform(0.2, 0.8, size=(N_NEW, d))
    boundary = rng.uniform(0.2, 0.8, size=(N_NEW, d))
    boundary[:, :2] = np.where(rng.random((N_NEW, 2)) < 0.5, 0.02, 0.98)
    return np.concatenate([inside, boundary])


def one_set(cell: Cell, number: int) -> dict[str, Any]:
    """Returns which intervals of one data set contain the mean, and means and variances of all new rows."""
    rng = np.random.default_rng([number, cell.n, cell.d])
    x = rng.uniform(size=(cell.n, cell.d))
    y = FUNCTIONS[cell.function](x) + rng.normal(size=cell.n)
    seed = int(rng.integers(2**62))
    counts = stats.honest_counts(cell.n, cell.n_trees, in_bag=cell.in_bag, rng=seed)
    forest = grow(
        x, y, cell.n_trees, task="regression", max_features=None, bootstrap=counts.structure, rng=seed
    )
    forest = tree.refit(forest, x, y, counts=counts.leaf, task="regression")
    new = new_rows(cell.d)
    true = FUNCTIONS[cell.function](new)
    mean, error, *_ = (a[:, 0] for a in stats.confidence_intervals(forest, counts, new))
    held = {str(level): 1.0 * (abs(mean - true) <= norm.ppf((1 + level) / 2) * error) for level in LEVELS}
    return {**held, "error": mean - true, "square": (mean - true) ** 2, "variance": error**2}


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Returns lines of Markdown: coverage at 95 %, and standard errors and biases over the true deviation."""
    yield (
        "| function | rows | columns | in_bag | sets | inside: coverage | error | bias "
        "| boundary: coverage | error | bias |"
    )
    yield "|" + 11 * "---|"
    for row in rows:
        cell, n_sets = Cell(*(row[key] for key in Cell._fields)), row["sets"]
        of = {key: np.array(row[key]) / n_sets for key in (*map(str, LEVELS), "error", "square", "variance")}
        cells = [*map(str, cell), str(n_sets)]
        for part in (slice(N_NEW), slice(N_NEW, None)):
            true = np.sqrt((of["square"] - of["error"] ** 2)[part].mean() * n_sets / max(1, n_sets - 1))
            bias = np.sqrt(np.mean(of["error"][part] ** 2))
            error = np.sqrt(of["variance"][part].mean())
            cells += [f"{a:.2f}" for a in (of[str(LEVELS[-1])][part].mean(), error / true, bias / true)]
        yield f"| {' | '.join(cells)} |"


def measure(
    chosen: list[Cell], n_sets: int, rows: dict[str, dict[str, Any]], save: Callable[[], None]
) -> None:
    """Adds sets to the rows of the cells until each has as many."""
    for cell in chosen:
        row = rows.setdefault(cell.name, {**cell._asdict(), "sets": 0})
        for number in range(row["sets"], n_sets):
            for key, numbers in one_set(cell, number).items():
                row[key] = (np.array(row.get(key, 0.0)) + numbers).tolist()
            row["sets"] += 1
            save()


def main() -> None:
    parser = parser_of_cells(__doc__, 40)
    options = options_of(parser, "--cells 'waves 200 2 *' --sets 2")
    chosen = cells_named(parser, cells(), options.cells)
    rows = rows_by_cell(options.json, Cell)

    def save() -> None:
        if options.json:
            record(options.json, [rows[cell.name] for cell in cells() if cell.name in rows])

    try:
        measure(chosen, options.sets, rows, save)
    except KeyboardInterrupt:
        print("interrupted; the sets so far:")
    print(*table([rows[cell.name] for cell in chosen if rows.get(cell.name, {"sets": 0})["sets"]]), sep="\n")


if __name__ == "__main__":
    main()
