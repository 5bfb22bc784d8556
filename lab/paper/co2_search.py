"""Compares settings of CO2 forests on held-out training samples, which determined those of co2_table1.py.

    python lab/paper/co2_search.py --data DIR [--only letter "letter, 10 trees" usps mnist connect4 ...]
    python lab/paper/co2_search.py [--only ...]

A fifth of the training samples is held out; test samples are never used. For shuttle each fifth is held out
in turn, and errors are summed. A trial is one forest, or one seed of it; its error is written when it is
known. Started again, the script continues with the missing trials. Rows contain all settings. Without --data
nothing is grown, and the tables of the record are printed. Settings have the names of `hforest.co2.grow`;
random forests use only max_features and bootstrap.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import co2_data
from common import RESULTS

import hforest
from hforest import tree


class Trial(NamedTuple):
    """A forest to compare, and its seeds."""

    method: str
    coding: str
    n_trees: int
    settings: dict[str, Any]
    seeds: tuple[int, ...] = (0,)


def co2(
    coding: str, n_trees: int, nu: float, lr: float, max_features: int, seeds: int = 1, **more: Any
) -> Trial:
    """Returns a trial of a CO2 forest, with bootstrap unless `more` says otherwise."""
    settings = {"nu": nu, "lr": lr, "max_features": max_features, "bootstrap": True, **more}
    return Trial("CO2", coding, n_trees, settings, tuple(range(seeds)))


def rf(coding: str, n_trees: int, max_features: int, bootstrap: bool = True) -> Trial:
    """Returns a trial of a random forest."""
    return Trial("RF", coding, n_trees, {"max_features": max_features, "bootstrap": bootstrap})


def oc1(coding: str, max_features: int, seeds: int = 2, **more: Any) -> Trial:
    """Returns a trial of an OC1 forest of 30 trees with bootstrap."""
    settings = {"max_features": max_features, "bootstrap": True, **more}
    return Trial("OC1", coding, 30, settings, tuple(range(seeds)))


def squares(nu: float, lr: float, max_features: int, oblique: int, **more: Any) -> Trial:
    """Returns a trial on connect4: standardised squares, one convex round, univariate small nodes."""
    return co2(KEPT, 30, nu, lr, max_features, convex_rounds=1, min_samples_oblique=oblique, **more)


def grid(coding: str, max_features: int) -> list[Trial]:
    """Returns trials of sixteen bounds and steps, forests of 30 trees."""
    return [
        co2(coding, 30, nu, lr, max_features)
        for nu in (1.0, 4.0, 10.0, 43.0)
        for lr in (0.1, 0.03, 0.01, 0.003)
    ]


S = "standardised"
KEPT = "standardised, kept"
"""Connect4's squares are standardised over the samples that are not held out."""
M = "-1, 0, 1"
ONE: dict[str, Any] = {"convex_rounds": 1}
SHORT: dict[str, Any] = {"min_steps": 1}
RANKED: dict[str, Any] = {"bootstrap": False, "max_rounds": 5}
PLAN: dict[str, list[Trial]] = {
    "letter": grid(S, 5),
    "usps": grid("in [0, 1]", 28),
    # the paper's choice of q, here max_features: p**.5 to p**.9 by the error of random forests (section 5)
    "letter, q": [rf(S, 1000, q) for q in (4, 5, 7, 9, 12)],
    "usps, q": [rf("in [0, 1]", 1000, q) for q in (16, 28, 48, 84, 147)],
    "letter, 10 trees": [
        co2(S, 10, 4.0, 0.1, 5, 3),
        co2(S, 10, 4.0, 0.2, 5, 3),
        co2(S, 10, 4.0, 0.4, 5, 3),
        co2(S, 10, 10.0, 0.2, 5, 3),
        co2(S, 10, 4.0, 0.1, 3, 2),
        co2(S, 10, 4.0, 0.1, 10, 2),
        co2(S, 10, 4.0, 0.1, 5, min_steps=80),
        co2(S, 10, 4.0, 0.1, 5, **ONE),
        co2(S, 10, 4.0, 0.1, 5, 2, min_samples_oblique=20),
        co2(S, 10, 4.0, 0.1, 5, min_samples_oblique=60),
        co2(S, 10, 4.0, 0.1, 5, **ONE, min_samples_oblique=20),
    ],
    # what else could explain the paper's lower errors of bagged trees, with every setting of its grid's ends
    "letter, form": [
        co2(S, 30, 4.0, 0.1, 5, 2),
        co2(S, 30, 4.0, 0.1, 4, 2),
        co2(S, 30, 4.0, 0.1, 9, 2),
        co2(S, 30, 100.0, 0.03, 5, 2),
        co2(S, 30, 4.0, 0.3, 5, 2),
        co2(S, 30, 4.0, 0.1, 5, 2, momentum=0.0),
        co2(S, 30, 4.0, 0.1, 5, 2, batch_size=32),
        co2(S, 30, 4.0, 0.1, 5, 2, patience=3),
        co2("in [0, 1]", 30, 43.0, 0.1, 5, 2),
        co2("in [0, 1]", 30, 100.0, 0.1, 5, 2),
        co2(S, 30, 4.0, 0.1, 5, 2, bootstrap=False),
    ],
    # what could explain the lower errors of the paper's OC1 forests
    "usps, OC1": [
        oc1("in [0, 1]", 28),
        oc1("in [0, 1]", 256),
        oc1("in [0, 1]", 28, jumps=20),
        oc1("in [0, 1]", 28, 1, restarts=20),
        oc1("as published", 28),
        oc1("as published", 256),
        oc1("as published", 28, jumps=20),
        oc1("as published", 28, 1, restarts=20),
        rf("in [0, 1]", 30, 28),
    ],
    "mnist": [
        *(
            co2("in [0, 1]", 10, nu, lr, 54, bootstrap=False, max_rounds=5)
            for nu in (1.0, 4.0, 10.0)
            for lr in (0.03, 0.01, 0.003)
        ),
        co2("in [0, 1]", 10, 4.0, 0.01, 54, max_rounds=5),
        co2("in [0, 1]", 10, 10.0, 0.01, 54, max_rounds=5),
        co2("in [0, 1]", 10, 4.0, 0.01, 54, bootstrap=False),
        co2("in [0, 1]", 10, 10.0, 0.01, 54, bootstrap=False),
        co2("in [0, 1]", 10, 10.0, 0.01, 54),
    ],
    "connect4": [
        rf("0 and 1", 30, 18),
        rf("0 and 1", 30, 48),
        rf("0 and 1", 30, 78),
        rf("0 and 1", 30, 18, False),
        rf("0 and 1", 30, 48, False),
        co2("0 and 1", 10, 0.1, 0.01, 18),
        co2("0 and 1", 10, 0.1, 0.001, 18),
        co2("0 and 1", 10, 0.01, 0.003, 18),
        co2(KEPT, 10, 0.1, 0.003, 18, **ONE),
        co2(KEPT, 10, 1.0, 0.003, 18, **ONE),
        squares(1.0, 0.003, 18, 500),
        squares(1.0, 0.01, 18, 500),
        squares(1.0, 0.03, 18, 500),
        squares(4.0, 0.003, 18, 500),
        squares(4.0, 0.01, 18, 500),
        squares(4.0, 0.003, 18, 2000),
        squares(4.0, 0.003, 18, 500, bootstrap=False),
        squares(4.0, 0.003, 40, 500),
        squares(4.0, 0.003, 48, 700),
        squares(4.0, 0.003, 48, 2000),
        squares(4.0, 0.003, 48, 2000, bootstrap=False),
        squares(1.0, 0.003, 78, 2000),
        squares(4.0, 0.003, 78, 2000),
        squares(10.0, 0.003, 78, 2000),
        squares(4.0, 0.003, 78, 2000, bootstrap=False),
    ],
    "connect4, 5 trees": [
        rf("0 and 1", 5, 50),
        co2("0 and 1", 5, 0.001, 0.001, 18),
        co2("0 and 1", 5, 0.01, 0.03, 18),
        co2("0 and 1", 5, 1.0, 0.1, 18),
        co2("0 and 1", 5, 0.01, 0.003, 50),
        co2("0 and 1", 5, 0.01, 0.003, 18, **SHORT),
        co2("0 and 1", 5, 0.01, 0.003, 50, **SHORT),
        co2("0 and 1", 5, 0.01, 0.003, 18, min_samples_oblique=500),
        co2(M, 5, 0.01, 0.003, 10),
        co2(f"{M}, {S}", 5, 0.1, 0.003, 10),
        co2(f"{M}, {S}", 5, 0.1, 0.003, 10, **ONE),
        co2(f"{M}, {S}", 5, 0.1, 0.003, 10, **ONE, min_samples_oblique=500),
        co2(KEPT, 5, 0.1, 0.003, 18, min_samples_oblique=500),
        co2(KEPT, 5, 0.1, 0.003, 18, **ONE, **SHORT),
        co2(KEPT, 5, 0.1, 0.003, 18, **ONE, max_rounds=1),
        *(co2(KEPT, 5, 0.1, 0.003, 18, **ONE, **SHORT, min_samples_oblique=n) for n in (100, 500, 2000)),
        co2(KEPT, 5, 0.1, 0.003, 50, **ONE, **SHORT, min_samples_oblique=500),
        co2(KEPT, 5, 0.03, 0.001, 18, **ONE, min_samples_oblique=500),
        co2(KEPT, 5, 0.1, 0.003, 18, **ONE, min_samples_oblique=300),
        co2(KEPT, 5, 0.1, 0.003, 18, **ONE, min_samples_oblique=500, bootstrap=False),
        co2(KEPT, 5, 0.1, 0.003, 18, **ONE, min_samples_oblique=1000),
        co2(KEPT, 5, 10.0, 0.01, 18, **ONE, min_samples_oblique=500),
    ],
    "shuttle": [
        rf(S, 30, 4),
        rf("ranked", 30, 4),
        rf(S, 30, 4, False),
        rf("ranked", 30, 4, False),
        co2("ranked", 30, 4.0, 0.03, 4, max_rounds=5, min_samples_oblique=1000),
        *(co2("ranked", 30, 43.0, 0.1, 4, **RANKED, min_samples_oblique=n) for n in (1000, 3000, 10_000)),
    ],
}
DEFAULTS: dict[str, Any] = {
    "max_rounds": 20, "convex_rounds": 0, "min_steps": 20, "min_samples_oblique": 1, "momentum": 0.9,
    "batch_size": 100, "patience": 1, "restarts": 0, "jumps": 5,
}  # fmt: skip
"""Settings that are shown where a trial of the same table changes them."""
FOLDS = {"shuttle": 5}


def number(value: Any) -> str:
    """Returns the text of a number in a table."""
    if value is None:
        return ""
    return f"{value:g}" if not isinstance(value, bool) else "yes" if value else "no"


def keys(group: str, trial: Trial) -> list[dict[str, Any]]:
    """Returns the keys of the rows of a trial, one for each seed and fold."""
    data = group.split(",")[0]
    return [
        {"data": data, "method": trial.method, "coding": trial.coding, "fold": fold, "seed": seed,
         "trees": trial.n_trees, "settings": trial.settings}
        for seed in trial.seeds
        for fold in range(FOLDS.get(group, 1))
    ]  # fmt: skip


def run(x: Any, y: Any, x_held: Any, y_held: Any, trial: Trial, seed: int) -> dict[str, float]:
    """Returns held-out errors in percent by number of trees."""
    if trial.coding == KEPT:
        x, x_held = co2_data.standardised(x, x_held)
    n_trees = trial.n_trees
    forest = co2_data.grow(trial.method, x, y, n_trees, trial.settings, seed)
    errors = {}
    for m in sorted({m for m in (1, 5, 10, 30) if m < n_trees} | {n_trees}):
        p = tree.predict(co2_data.first_trees(forest, m), x_held)
        errors[str(m)] = co2_data.percent_wrong(p, y_held)
    return errors


def cell(group: str, rows: list[dict[str, Any]], n_trees: int) -> str:
    """Returns the errors of the seeds with a number of trees; with folds, the sums of errors."""
    found = [row["errors"][str(n_trees)] for row in rows if str(n_trees) in row["errors"]]
    if not found:
        return "–"
    if group in FOLDS:
        wrong = sum(round(row["errors"][str(n_trees)] * row["held"] / 100) for row in rows)
        return str(wrong)
    return ", ".join(f"{error:.2f}" for error in found)


def table(rows: list[dict[str, Any]], group: str) -> str:
    """Returns a table of held-out errors of one group of trials."""
    trials = PLAN[group]
    found = {i: [row for row in rows if any(key.items() <= row.items() for key in keys(group, t))]
             for i, t in enumerate(trials)}  # fmt: skip
    codings = len({t.coding for t in trials}) > 1
    names = [name for name in ("nu", "lr", "max_features") if any(name in t.settings for t in trials)]
    names += [name for name in DEFAULTS if any(name in t.settings for t in trials)]
    if len({t.settings["bootstrap"] for t in trials}) > 1:
        names.append("bootstrap")
    largest = {t.n_trees for t in trials}
    sizes = sorted((largest | {n for n in (10, 30) if n < max(largest)}) - {1})
    word = "errors" if group in FOLDS else "error"
    head = ["forest", *(["features"] if codings else []), *names, *(f"{word}, {n} trees" for n in sizes)]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for i, t in enumerate(trials):
        shown = {**({} if t.method == "RF" else DEFAULTS), **t.settings}
        cells = [
            t.method,
            *([t.coding.removesuffix(", kept")] if codings else []),
            *(number(shown.get(name)) for name in names),
        ]
        cells += [cell(group, found[i], n) for n in sizes]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Makes every trial that the record lacks, then prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the data sets; without it the record is printed")
    parser.add_argument("--only", nargs="+", choices=list(PLAN), default=list(PLAN))
    parser.add_argument("--trees", type=int, help="fewer trees than planned, to try the script")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path, default=RESULTS / "co2_search.json")
    args = parser.parse_args()
    if args.threads:
        hforest.set_num_threads(args.threads)
    record = co2_data.Record(args.json)
    for group in args.only:
        for trial in PLAN[group] if args.data else ():
            trial = trial._replace(n_trees=min(trial.n_trees, args.trees or trial.n_trees))
            missing = [key for key in keys(group, trial) if record.find(key) is None]
            if not missing:
                continue
            x, y = co2_data.load(args.data, group.split(",")[0], trial.coding)[:2]
            for key in missing:
                parts = co2_data.held_out(x, y, key["fold"])
                errors = run(*parts, trial, key["seed"])
                record.add({**key, "errors": errors, "held": len(parts[3])})
                record.write()
                print(*key.values(), errors, file=sys.stderr)
        print(f"\n{group}:\n\n{table(record.rows, group)}")


if __name__ == "__main__":
    main()
