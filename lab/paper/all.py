"""Runs the scripts that repeat tables and figures of the papers, and writes a page that compares them.

    python lab/paper/all.py --data DIR [--hours 12] [--only table3 ...] [--results FOLDER] [--work FOLDER]
    python lab/paper/all.py

DIR holds the .npz files that bench/data.py makes. The scripts of TABLES run one after another. Each script
writes a run to its record when the run is finished; started again, it continues with the missing runs. After
--hours the current script is ended. If a script fails, for example because DIR lacks a file, its name is
printed at the end, and the other scripts run. With an empty folder as --results everything is run again, and
bench/results does not change.

Without --data nothing is run. In both cases the page is written from the records: docs/results-papers.md from
those of bench/results, else results-papers.md in the folder. It counts the runs on record, and has a table
for each table of a paper. A row has the paper's figure, the mean of the runs on record, and the difference
(ours - the paper's) with its interval of 95 % by Student's t over the runs. For Lay et al. 2018,
bench/results/lay_runs.json has mean, deviation and number of the authors' own runs, from their logs; the
interval is then that of two samples.
"""

import argparse
import json
import math
import re
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import cascade
import co2_table1
import shallow_neural
import table2
import table3
from common import RESULTS
from scipy import special

PAPER = Path(__file__).parent
PAGE = "results-papers.md"
HELD_OUT = "held out"
Row = dict[str, Any]


class Runs(NamedTuple):
    """Figures of the authors' own runs, in the paper's unit."""

    mean: float
    deviation: float
    runs: int


class Cell(NamedTuple):
    """One figure of a paper and where the record has ours."""

    name: str
    paper: str
    where: Row
    """Values of the rows of the record that have the figure; None stands for a missing key."""
    figure: str = "error"
    """Key of the figure in a row; a dot leads into a dictionary."""
    looks: str = HELD_OUT
    """Use of the test samples before the figure was taken."""
    scale: tuple[float, float] = (0.0, 1.0)
    """a and b of a + b * figure: the figure in the paper's unit."""
    theirs: Runs | None = None


class Table(NamedTuple):
    """A table or figure of a paper."""

    title: str
    commands: tuple[str, ...]
    """Scripts with arguments; {data}, {results} and {work} are folders."""
    page: str
    """The page with settings and departures."""
    cells: Callable[[], Iterable[Cell]] = tuple
    unit: str = "test error, %"
    rows: str = "rows"
    """Key of the rows in the record, a file of the table's name."""


def _lay_runs(data: str, kind: str, n_trees: int, depth: int) -> Runs | None:
    key = {"data": data, "kind": kind, "n_trees": n_trees, "depth": depth}
    rows = json.loads((RESULTS / "lay_runs.json").read_text())["rows"]
    found = [row for row in rows if key.items() <= row.items()]
    return Runs(*(found[0][name] for name in Runs._fields)) if found else None


THEIR_FOLDS = "their folds: by test error"


def _lay_2() -> Iterable[Cell]:
    for name, task in table2.TASKS.items():
        squared = (100.0, -1.0) if "regression" in name else (0.0, 1.0)
        unit = " (100 R²)" if "regression" in name else ""
        paper = re.sub(r"R² 0\.(\d+) ± 0\.0?(\d+)", r"\1 ± \2", task.paper)
        size, plain = (task.kind, task.n_trees, task.depth), f"{table2.label(name)}{unit}"
        data = name.split("-")[0]
        theirs = _lay_runs("iris, folds 1 and 3" if data == "iris" else data, *size)
        where: Row = {"task": name, "as_authors": None, "looks": None}
        looks = HELD_OUT if task.kind == "forest" else f"{HELD_OUT}: the state of least validation error"
        yield Cell(plain, paper, where, looks=looks, scale=squared, theirs=theirs)
        if data == "iris" and task.kind != "forest":
            theirs, where = _lay_runs(data, *size), {**where, "as_authors": ["folds"]}
            yield Cell(f"{plain}, `folds`", paper, where, "by_loss", THEIR_FOLDS, theirs=theirs)
        if name in ("iris-tree", "iris-fern", "abalone-tree"):
            looks = THEIR_FOLDS if data == "iris" else f"{HELD_OUT}: the state of least validation loss"
            where = {**where, "as_authors": list(table2.AUTHORS)}
            words = ", ".join(f"`{word}`" for word in table2.AUTHORS)
            yield Cell(f"{plain}, {words}", paper, where, "by_loss", looks, theirs=_lay_runs(data, *size))


def _lay_grid() -> Iterable[Cell]:
    for name in ("iris-tree", "iris-fern", "abalone-tree", "abalone-fern"):
        data, kind = name.split("-")
        looks = THEIR_FOLDS if data == "iris" else f"{HELD_OUT}: the state of least validation loss"
        for size in table2.GRID:
            task = f"{data}-{kind if size[1] > 1 else 'tree'}"
            where = {"task": task, "size": list(size), "as_authors": list(table2.AUTHORS)}
            label, theirs = f"{table2.label(name)}, {size[0]}/{size[1]}", _lay_runs(data, kind, *size)
            yield Cell(label, "–", where, "by_loss", looks, theirs=theirs)


def _lay_3() -> Iterable[Cell]:
    for name, task in table3.TASKS.items():
        theirs = _lay_runs(task["data"], task["kind"], task["n_trees"], 10)
        for figure, n, looks in (
            ("least", None, "least of 80 looks"),
            ("least", 400, "least of 400 looks"),
            ("last", None, f"{HELD_OUT}: last state"),
        ):
            if n is None or task["data"] != "mnist":
                where = {"task": name, "looks": n}
                yield Cell(_plain(name), table3.PAPER[name], where, figure, looks, theirs=theirs)


OTHERS = {
    ("satimage", "RF"): (10.1, 9.4, 8.9),
    ("satimage", "OC1"): (10.1, 9.9, 9.5),
    ("satimage", "CO2"): (9.6, 9.1, 8.9),
    ("usps", "OC1"): (7.1, 7.1, 6.8),
    ("pendigits", "RF"): (3.9, 3.3, 3.5),
    ("pendigits", "OC1"): (3.2, 2.2, 2.3),
    ("pendigits", "CO2"): (1.8, 1.7, 1.7),
    ("protein", "RF"): (39.9, 35.5, 30.9),
    ("protein", "OC1"): (39.1, 34.6, 30.8),
    ("protein", "CO2"): (33.8, 31.2, 30.3),
    ("sensit", "RF"): (15.5, 14.0, 13.4),
    ("sensit", "CO2"): (14.1, 13.0, 12.5),
    ("covertype", "RF"): (3.2, 2.8, 2.6),
    ("covertype", "CO2"): (3.1, 2.7, 2.6),
}
"""The cells of Norouzi et al. 2015, Table I, that co2_table1.PAPER lacks."""


def _norouzi_1() -> Iterable[Cell]:
    for (name, method), paper in sorted({**OTHERS, **co2_table1.PAPER}.items()):
        more = {"CO2": [f"{name}, no bootstrap"], "OC1": [f"{name}, as published"]}
        variants = [name, *more.get(method, [])]
        for trees, error in zip((10, 30, 1000), paper, strict=True):
            for variant in [a for a in variants if a == name or a in co2_table1.SETTINGS]:
                label, where = f"{variant}: {method}, {trees} trees", {"data": variant, "method": method}
                looks = co2_table1.looks(variant, method)
                yield Cell(label, str(error), where, f"errors.{trees}", looks)


def _kontschieder() -> Iterable[Cell]:
    for name, paper in shallow_neural.PAPER.items():
        yield Cell(name, paper, {"data": name}, looks=f"{shallow_neural.CHOSEN[name]}: last state")


def _zhou() -> Iterable[Cell]:
    for name, trees in cascade.TREES.items():
        paper = f"{cascade.PUBLISHED[name]:.2f}" if name in cascade.PUBLISHED else "–"
        where = {"data": name, "trees": trees, "images": None}
        yield Cell(cascade.LABELS.get(name, name), paper, where, "accuracy")


def _deep() -> Iterable[Cell]:
    for head, paper in (("forest", "0.7"), ("softmax", "0.9")):
        where = {"held_out": 0, "settings.head": head}
        yield Cell(f"MNIST, {head} above the convolutions", paper, where, looks=f"{HELD_OUT}: last state")


FORESTS = ' --only "letter, no bootstrap" "mnist, no bootstrap" "connect4, no bootstrap"'
GRACE = 30.0
"""Seconds in which a script ends after SIGINT."""
PIXELS = "co2_pixels.py --data {data} --pixels 64000 --held-every 3"
MANIFOLD = "manifold.py --data {data} --runs 3"
OTHER_CLASSIFIERS = "LogReg LinSVM SVM kNN MLP"
NOT_HERE = " ".join(co2_table1.NOT_HERE)
TABLE1 = "co2_table1.py --data {data} --trees"
TABLES = {
    "cascade": Table(
        "Zhou and Feng 2017: gcForest",
        ("cascade.py --data {data} --threads 1",),
        "results-cascade",
        _zhou,
        "test accuracy, %",
    ),
    "neural_paper": Table(
        "Kontschieder et al. 2015: shallow neural decision forests",
        ("shallow_neural.py --data {data} --state {work}",),
        "results-neural",
        _kontschieder,
    ),
    "table3": Table(
        "Lay et al. 2018, Table 3",
        (
            "table3.py --data {data} --runs 3 --work {work}",
            "table3.py --data {data} --runs 3 --work {work} --looks 400 --only "
            "letter-100-tree letter-100-fern usps-100-tree usps-100-fern",
        ),
        "results-hinge",
        _lay_3,
    ),
    "table2": Table(
        "Lay et al. 2018, Table 2",
        (
            "table2.py --data {data} --runs 10",
            "table2.py --data {data} --runs 10 --only iris-tree iris-fern --as-authors folds",
            "table2.py --data {data} --runs 10 --only iris-tree iris-fern abalone-tree "
            "--as-authors bias once folds",
        ),
        "results-hinge",
        _lay_2,
    ),
    "table2_grid": Table(
        "Lay et al. 2018, section 5: all configurations on iris and abalone, as the authors ran them",
        (
            "table2.py --data {data} --runs 2 --grid --only iris-tree iris-fern abalone-tree abalone-fern "
            "--as-authors bias once folds",
        ),
        "results-hinge",
        _lay_grid,
    ),
    "fig3": Table(
        "Lay et al. 2018, Fig. 3: loss over the steps",
        ("fig3.py --data {data} --png {results}/fig3.png",),
        "results-hinge",
    ),
    "manifold": Table(
        "Perry et al. 2019, Fig. 1 to 4",
        (
            MANIFOLD,
            f"{MANIFOLD} --only circle bars impulse --methods {OTHER_CLASSIFIERS} CNN",
            f"{MANIFOLD} --only mnist --most 10000 --methods {OTHER_CLASSIFIERS}",
            f"{MANIFOLD} --only mnist --most 3000 --methods CNN",
        ),
        "results-manifold",
    ),
    "co2_fig1": Table(
        "Norouzi et al. 2015, Fig. 1: single trees on MNIST",
        ("co2_fig1.py --data {data} --png {results}/co2_fig1.png",),
        "results-co2",
    ),
    "co2_table1": Table(
        "Norouzi et al. 2015, Table I and Fig. 2",
        (
            f"{TABLE1} 30 --runs 5 --only letter usps mnist connect4 {NOT_HERE}",
            f"{TABLE1} 30 --runs 5 --methods CO2{FORESTS}",
            f'{TABLE1} 30 --runs 3 --methods OC1 --only letter usps "usps, as published"',
            f"{TABLE1} 1000 --runs 1 --votes {{work}}/votes --only letter usps connect4 mnist",
            f"{TABLE1} 1000 --runs 1 --votes {{work}}/votes --methods CO2{FORESTS}",
        ),
        "results-co2",
        _norouzi_1,
        rows="runs",
    ),
    "co2_pixels": Table(
        "Norouzi et al. 2015, Table II: pixels of CamVid in place of faces",
        (
            f"{PIXELS} --most 2 --channels raw --methods 'random forest' two-probe SPORF patches --curves",
            f"{PIXELS} --most 6 --channels raw --methods CO2 --windows 31",
            f"{PIXELS} --most 2 --channels channels context --methods 'random forest' patches",
            f"{PIXELS} --most 1 --channels context 'context 2' --methods patches",
            "pixels_torch.py --data {data} --held-every 3",
        ),
        "images",
    ),
    "deep_neural": Table(
        "Kontschieder et al. 2015: deep neural decision forest",
        (
            "deep_neural.py --data {data} --runs 3",
            "deep_neural.py --data {data} --set head=softmax --runs 3",
        ),
        "results-neural",
        _deep,
    ),
}
"""Tables in the order of the runs: short ones first, those with PyTorch last."""
NO_SCRIPT = {
    "Lay et al. 2018, Table 2, human activity and poker's test file": "no data; isolet and sampled hands",
    "Norouzi et al. 2015, Table I, SatImage, Pendigits, Protein, SensIT, Covertype: fifteen cells of CO2": (
        "no data; co2_table1.py runs those that bench/data.py made, from files of UCI or of LIBSVM's page"
    ),
    "Norouzi et al. 2015, section 6.2, Labeled Faces in the Wild": "no data; CamVid",
    "Zhou and Feng 2017, MNIST with all training images and stride 1": "no script",
}
"""Results that are not repeated, with the reason or a substitute."""
HEAD = """# All tables and figures of the papers

`python lab/paper/all.py` writes this page from the records in `bench/results`. With `--data DIR` ([the data
sets](results.md)) it first runs what the records lack: the tables that `--only` names, by default all, for
`--hours` hours at most.

* *difference*: the mean of our runs minus the paper's figure, in its unit, ± half of its interval of 95 % by
  Student's t over our runs. The paper's figure counts as exact, and all runs have the same test samples:
  neither its deviation nor a finite test set is part of the interval.
* *authors' runs*: mean ± deviation (number) of the runs in the logs of the authors' program, which
  `bench/results/lay_runs.json` cites. Where they are known, the difference is from their mean, and its
  interval is Student's for two samples of one variance, those runs and ours. Of iris on our folds, their runs
  without the third that learns from test samples ([their folds](results-hinge.md#the-authors-runs)).
* *test samples*: `held out` if neither a state nor a setting was chosen by them; else what was chosen. As in
  the paper, `least of 80 looks` is the least of the test errors during training.
* *not run*: no data or no time. The page of settings and departures gives the reason. Figures without cells
  (–) give no numbers that can be compared; ours are on that page.

"""


def _plain(name: str) -> str:
    return name.replace("-", ", ").replace("_", " ")


def value(row: Row, path: str) -> Any:
    """Returns what a row has under a key, or None; a dot leads into a dictionary."""
    found: Any = row
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def figures(cell: Cell, rows: list[Row]) -> list[float]:
    """Returns the figures of all runs of a cell, in the paper's unit."""
    some = [row for row in rows if all(value(row, key) == a for key, a in cell.where.items())]
    found = [value(row, cell.figure) for row in some]
    a, b = cell.scale
    return [a + b * figure for figure in found if figure is not None]


def compared(paper: str, ours: list[float], theirs: Runs | None = None) -> str:
    """Returns ours - the paper's, and half of its interval of 95 % if there are several runs."""
    if theirs:
        n, freedom = len(ours), len(ours) + theirs.runs - 2
        squares = (theirs.runs - 1) * theirs.deviation**2 + (
            statistics.variance(ours) * (n - 1) if n > 1 else 0
        )
        error = math.sqrt(squares / freedom * (1 / n + 1 / theirs.runs))
        apart = round(statistics.mean(ours) - theirs.mean, 2) + 0.0
        return f"{apart:+.2f} ± {special.stdtrit(freedom, 0.975) * error:.2f}"
    plain = re.fullmatch(r"([\d.]+)( ± [\d.]+)?", paper)
    if not plain:
        return "–"
    difference = f"{round(statistics.mean(ours) - float(plain[1]), 2) + 0.0:+.2f}"
    if len(ours) < 2:
        return difference
    half = special.stdtrit(len(ours) - 1, 0.975) * statistics.stdev(ours) / math.sqrt(len(ours))
    return f"{difference} ± {half:.2f}"


def line(cell: Cell, rows: list[Row], looks: bool = True, theirs: bool = True) -> str:
    """Returns the line of a cell, "" where there is no run; with the use of the test samples if looks, and
    with the authors' runs if theirs."""
    ours = figures(cell, rows)
    if not ours:
        return ""
    mean = f"{statistics.mean(ours):.2f}"
    difference, a = compared(cell.paper, ours, cell.theirs), cell.theirs
    runs = f"{a.mean:.2f} ± {a.deviation:.2f} ({a.runs})" if a else "–"
    columns = [
        cell.name,
        cell.paper,
        *[runs] * theirs,
        mean,
        difference,
        str(len(ours)),
        *[cell.looks] * looks,
    ]
    return f"| {' | '.join(columns)} |"


def near(cells: list[Cell], rows: list[Row]) -> list[str]:
    """Returns the line that counts the intervals of two samples that contain 0."""
    found = [
        compared(cell.paper, figures(cell, rows), cell.theirs).split(" ± ") for cell in cells if cell.theirs
    ]
    inside = sum(abs(float(difference)) <= float(half) for difference, half in found)
    return [f"Of {len(found)} intervals of the difference from the authors' runs, {inside} contain 0.", ""]


def read(results: Path) -> dict[str, list[Row]]:
    """Returns the rows of every table's record; empty without a file."""
    found = {}
    for name, table in TABLES.items():
        path = results / f"{name}.json"
        found[name] = json.loads(path.read_text())[table.rows] if path.exists() else []
    return found


def summary(records: dict[str, list[Row]]) -> list[str]:
    """Returns the lines of a table that counts rows of the records, and cells by their numbers of runs."""
    head = ["table or figure", "`--only`", "settings and departures", "rows on record", "hours timed"]
    lines = [f"| {' | '.join([*head, 'cells: several runs', 'one run', 'not run'])} |", "|---" * 8 + "|"]
    for name, table in TABLES.items():
        runs = [len(figures(cell, records[name])) for cell in table.cells()]
        counts = [str(n) for n in (sum(n > 1 for n in runs), runs.count(1), runs.count(0))]
        hours = sum(row.get("seconds", 0.0) for row in records[name]) / 3600
        words = [table.title, f"`{name}`", f"[{table.page}]({table.page}.md)", str(len(records[name]))]
        words += [f"{hours:.1f}" if hours else "–", *(counts if runs else ["–"] * 3)]
        lines.append(f"| {' | '.join(words)} |")
    return lines


def page(records: dict[str, list[Row]]) -> str:
    """Returns the page of all tables in Markdown."""
    lines = ["## What was run", "", *summary(records), ""]
    for name, table in TABLES.items():
        cells = [cell for cell in table.cells() if figures(cell, records[name])]
        looks = sorted({cell.looks for cell in cells})
        if cells:
            theirs = ["authors' runs"] if any(cell.theirs for cell in cells) else []
            head = [table.unit, "paper", *theirs, "ours", "difference", "runs", "test samples"]
            head = head if len(looks) > 1 else head[:-1]
            lines += [f"## {table.title}", ""]
            lines += [] if len(looks) > 1 else [f"Test samples: {looks[0]}.", ""]
            lines += [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
            lines += [line(cell, records[name], len(looks) > 1, bool(theirs)) for cell in cells]
            lines += ["", *(near(cells, records[name]) if theirs else [])]
    lines += ["## Not repeated", "", "| table or figure | reason |", "|---|---|"]
    lines += [f"| {name} | {reason} |" for name, reason in NO_SCRIPT.items()]
    return HEAD + "\n".join(lines) + "\n"


def run(name: str, folders: dict[str, Path], deadline: float) -> bool:
    """Runs a table's scripts; returns False where one failed or time was up."""
    record = folders["results"] / f"{name}.json"
    for command in TABLES[name].commands:
        script, *arguments = shlex.split(command)
        filled = [a.format(**folders) for a in arguments]
        print(f"{script} {shlex.join(filled)}", flush=True)
        if time.monotonic() >= deadline:
            return False
        with subprocess.Popen([sys.executable, PAPER / script, *filled, "--json", record]) as process:
            try:
                process.wait(deadline - time.monotonic())
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(GRACE)
                except subprocess.TimeoutExpired:  # SIGINT is ignored, as under nohup
                    process.terminate()
        if process.returncode:
            return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, help="folder of the data sets; without it only the page is written"
    )
    parser.add_argument("--only", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--hours", type=float, default=12.0)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")
    parser.add_argument("--work", type=Path, default=Path("."), help="folder of checkpoints")
    args = parser.parse_args()
    deadline = time.monotonic() + 3600 * args.hours
    folders = {"data": args.data, "results": args.results, "work": args.work}
    for folder in (args.results, args.work):
        folder.mkdir(parents=True, exist_ok=True)
    unfinished = [name for name in args.only if args.data and not run(name, folders, deadline)]
    docs = PAPER.parents[1] / "docs"
    target = docs if args.results.resolve() == RESULTS.resolve() else args.results
    (target / PAGE).write_text(page(read(args.results)), encoding="utf-8")
    print(f"{target / PAGE}: written" + "".join(f"\n{name}: not finished" for name in unfinished))
    return len(unfinished)


if __name__ == "__main__":
    sys.exit(main())
