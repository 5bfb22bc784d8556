"""Settings that Norouzi et al. 2015 do not specify, compared on held-out samples.

    python lab/paper/co2_choices.py --data DIR [--only letter usps] [--runs N]
    python lab/paper/co2_choices.py

Forests have 10 trees, on letter and USPS with 20 % of the training samples held out. Each line changes
settings of `hforest.co2.grow`. Figures are held-out errors in percent, means and deviations over seeds, and
the minimum seconds per forest. Without --data nothing is grown, and the table of the record is printed.
Without --runs the script makes the runs of the record (PLAN). Started again, it continues with the missing
runs. Rows contain all settings, so that runs with different settings are not mixed.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import co2_data
from common import RESULTS

import hforest
from hforest import tree

BASE: dict[str, dict[str, Any]] = {
    "letter": {"nu": 43.0, "lr": 0.1, "max_features": 5},
    "usps": co2_data.SETTINGS["usps"],
}
VARIANTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "`tau=1`": {"tau": 1},
    "`tau=4`": {"tau": 4},
    "`tau=8`": {"tau": 8},
    "the step never falls (`patience=10**6`)": {"patience": 10**6},
    "`patience=4, max_rounds=60`": {"patience": 4, "max_rounds": 60},
    "`decay=0.2`": {"decay": 0.2},
    "`max_rounds=5`": {"max_rounds": 5},
    "`min_steps=1`": {"min_steps": 1},
    "`min_steps=80`": {"min_steps": 80},
    "`momentum=0`": {"momentum": 0.0},
    "`smooth=0.01`": {"smooth": 0.01},
    "`smooth=3`": {"smooth": 3.0},
    "`batch_size=20`": {"batch_size": 20},
    "`max_rounds=0`: univariate splits": {"max_rounds": 0},
}
PLAN = {"letter": (2, list(VARIANTS)[:9]), "usps": (3, list(VARIANTS))}
"""Seeds and variants of each data set."""


def table(rows: list[dict[str, Any]]) -> str:
    """Returns a table of held-out errors in percent and the minimum seconds of a forest."""
    lines = ["| changed | letter | seconds | USPS | seconds |", "|---|---|---|---|---|"]
    for variant, options in VARIANTS.items():
        cells = []
        for name, base in BASE.items():
            of = [row for row in rows if (row["data"], row["settings"]) == (name, {**base, **options})]
            errors = [row["error"] for row in of]
            spread = f" ± {statistics.stdev(errors):.2f}" if len(errors) > 1 else ""
            cells.append(f"{statistics.mean(errors):.2f}{spread}" if of else "–")
            least = min((row["seconds"] for row in of), default=0.0)
            cells.append(f"{least:.{0 if name == 'letter' else 1}f}" if of else "–")
        lines.append(f"| {variant} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Makes every run that the record lacks, then prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the data sets; without it the record is printed")
    parser.add_argument("--only", nargs="+", choices=list(BASE), default=list(BASE))
    parser.add_argument("--runs", type=int, help="number of seeds per variant (default: those of the record)")
    parser.add_argument("--trees", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS / "co2_choices.json")
    args = parser.parse_args()
    hforest.set_num_threads(args.threads)
    record = co2_data.Record(args.json, "runs")
    for name in args.only if args.data else ():
        x, y, *_ = co2_data.load(args.data, name)
        x, y, x_held, y_held = co2_data.held_out(x, y)
        runs, variants = PLAN[name] if args.runs is None else (args.runs, list(VARIANTS))
        for variant in variants:
            settings = {**BASE[name], **VARIANTS[variant]}
            for seed in range(runs):
                key = {"data": name, "seed": seed, "settings": settings}
                if record.find(key):
                    continue
                begin = time.perf_counter()
                forest = co2_data.grow("CO2", x, y, args.trees, settings, seed)
                seconds = time.perf_counter() - begin
                error = co2_data.percent_wrong(tree.predict(forest, x_held), y_held)
                record.add({**key, "error": error, "seconds": seconds})
                print(name, variant, seed, f"{error:.2f} {seconds:.1f} s", file=sys.stderr)
                record.write()
    print(table(record.rows))


if __name__ == "__main__":
    main()
