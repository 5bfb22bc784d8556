"""Coverage of hforest.stats.confidence_intervals of classes, of rows in groups, and of partial dependence.

    python bench/stats_intervals.py --cells "* 200 *" --sets 100 --json bench/results/stats_intervals.json
    python bench/stats_intervals.py --cells "classes 200 *" --sets 50          # some cells

A cell is a kind, rows, a method and a number of trees. Rows have two uniform columns x0 and x1:

classes             two classes, whose probability is 1 / (1 + exp(-4 (x0 - 1/2)))
means               x0 + x1, with noise of deviation 1
subjects            the same; four rows of a subject have about the same x and a common part of the noise, of
                    variance 1/2. Draws and intervals are by groups, or ("rows") ignore them
dependence          partial dependence of "means" on x0, over 100 further rows
class dependence    that of "classes"

"jackknife" is the infinitesimal jackknife, "halves" the variance between halves of the rows with two trees
each. Trees are honest; each side of a split has five rows or more of those that grow splits. Intervals are
for 20 rows with columns in 0.2 to 0.8, or for 20 such values. The record has the share of the intervals of
each set that contain the truth. In the table it has its standard error over sets; the standard error of the
forest (root mean square) and the bias are in units of the true deviation over sets.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from common import cells_named, machine_text, options_of, parser_of_cells, record, rows_by_cell
from scipy.stats import norm

from hforest import grow, stats, tree

LEVELS = (0.9, 0.95)
N_NEW, N_OVER, EACH = 20, 100, 4


class Cell(NamedTuple):
    """A cell of the simulation."""

    kind: str
    n: int
    method: str
    n_trees: int

    @property
    def name(self) -> str:
        return " ".join(map(str, self))


def cells() -> list[Cell]:
    """Returns all cells, the short ones first."""
    kinds = ("classes", "means", "subjects", "subjects as rows", "dependence", "class dependence")
    return [
        Cell(kind, n, method, n_trees)
        for n, n_trees in ((200, 1000), (800, 1000))
        for kind in kinds
        for method in ("jackknife", "halves")
    ]


def means(x: np.ndarray) -> np.ndarray:
    return x[:, 0] + x[:, 1]


def probability(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-4 * (x[:, 0] - 0.5)))


def data(cell: Cell, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns columns, labels or targets, and the subject of each row."""
    subject = np.arange(cell.n) // EACH
    x = rng.uniform(size=(cell.n, 2))
    if cell.kind.startswith("class"):
        return x, (rng.random(cell.n) < probability(x)).astype(int), subject
    noise = rng.normal(size=cell.n)
    if cell.kind.startswith("subjects"):
        x = np.clip(rng.uniform(size=(cell.n, 2))[subject] + 0.02 * rng.normal(size=x.shape), 0, 1)
        noise = (noise + rng.normal(size=cell.n)[subject]) / np.sqrt(2)
    return x, means(x) + noise, subject


def one_set(cell: Cell, number: int) -> dict[str, Any]:
    """Returns shares of intervals that contain the truth; errors, their squares and estimated variances."""
    rng = np.random.default_rng([number, cell.n])
    x, y, subject = data(cell, rng)
    seed = int(rng.integers(2**62))
    half = 2 if cell.method == "halves" else None
    groups = subject if cell.kind == "subjects" else None
    counts = stats.honest_counts(
        cell.n, cell.n_trees, in_bag=0.5, groups=groups, trees_per_half=half, rng=seed
    )
    classes = cell.kind.startswith("class")
    learned: dict[str, Any] = {"n_classes": 2} if classes else {"task": "regression"}
    forest = grow(
        x, y, cell.n_trees, bootstrap=counts.structure, max_features=None, min_samples_leaf=5, rng=seed,
        **learned,
    )  # fmt: skip
    forest = tree.refit(forest, x, y, counts=counts.leaf, **learned)
    function = probability if classes else means
    fixed = np.random.default_rng(1)
    new: np.ndarray = fixed.uniform(0.2, 0.8, size=(N_NEW, 2))
    true = function(new)
    words: dict[str, Any] = {}
    if cell.kind.endswith("dependence"):
        values = np.linspace(0.2, 0.8, N_NEW)
        new = fixed.uniform(size=(N_OVER, 2))
        words = {"feature": 0, "values": values}
        true = np.array([function(np.column_stack([np.full(N_OVER, v), new[:, 1]])).mean() for v in values])
    got = stats.confidence_intervals(forest, counts, new, groups=groups, trees_per_half=half, **words)
    mean, error = got.mean[:, -1], got.standard_error[:, -1]
    held = {str(a): float((abs(mean - true) <= norm.ppf((1 + a) / 2) * error).mean()) for a in LEVELS}
    return {**held, "error": mean - true, "square": (mean - true) ** 2, "variance": error**2}


def share(held: list[float]) -> str:
    """Returns the mean share of intervals that hold, and its standard error over sets."""
    a = np.array(held)
    return f"{a.mean():.3f} ± {a.std(ddof=1) / np.sqrt(len(a)):.3f}"


def table(rows: list[dict[str, Any]], on_page: bool = True) -> str:
    """Returns a table of the cells; on the page of those of 200 rows by halves."""
    lines = ["| kind | rows | method | sets | coverage | error | bias |", "|" + 7 * "---|"]
    for row in (row for row in rows if not on_page or (row["n"], row["method"]) == (200, "halves")):
        n_sets = len(row["0.95"])
        error, square, variance = (np.array(row[key]) / n_sets for key in ("error", "square", "variance"))
        true = np.sqrt((square - error**2).mean() * n_sets / max(1, n_sets - 1))
        ratios = [np.sqrt(variance.mean()) / true, np.sqrt((error**2).mean()) / true]
        texts = [str(row[key]) for key in Cell._fields if key != "n_trees"]
        texts += [str(n_sets), share(row["0.95"]), *(f"{a:.2f}" for a in ratios)]
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines)


def measure(
    chosen: list[Cell], n_sets: int, rows: dict[str, dict[str, Any]], save: Callable[[], None]
) -> None:
    """Adds sets to the rows of the cells until each has as many."""
    for cell in chosen:
        row = rows.setdefault(cell.name, {**cell._asdict(), **{str(a): [] for a in LEVELS}})
        for number in range(len(row["0.95"]), n_sets):
            made = one_set(cell, number)
            for level in map(str, LEVELS):
                row[level].append(round(made[level], 3))
            for key in ("error", "square", "variance"):
                row[key] = (np.array(row.get(key, 0.0)) + made[key]).tolist()
        save()


def main() -> None:
    parser = parser_of_cells(__doc__, 200)
    options = options_of(parser, "--cells 'means 200 *' --sets 2")
    print(machine_text())
    chosen = cells_named(parser, cells(), options.cells)
    rows = rows_by_cell(options.json, Cell)

    def save() -> None:
        if options.json:
            record(options.json, [rows[cell.name] for cell in cells() if cell.name in rows])

    measure(chosen, options.sets, rows, save)
    print(table([rows[cell.name] for cell in chosen], on_page=False))


if __name__ == "__main__":
    main()
