"""What p2 leaves open, decided on held-out samples: tau, the fall of eta, when to stop, how thetas start.

    python bench/paper/co2_choices.py --data DIR [--runs 3]

Forests of 10 trees on letter and USPS, of which 20 % of the training samples are held out; each line changes
one setting of `hforest.co2.grow`'s defaults (with the bound and step of co2_table1.py). Figures are held-out
errors in percent, means and deviations over seeds, and seconds a forest. Started again it goes on with the
rest.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from co2_table1 import SETTINGS, load
from common import RESULTS, machine_text

import hforest
from hforest import co2, tree

VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "tau=1": {"tau": 1},
    "tau=4": {"tau": 4},
    "tau=8": {"tau": 8},
    "eta never falls": {"patience": 10**6},
    "patience=4, max_rounds=60": {"patience": 4, "max_rounds": 60},
    "decay=0.2": {"decay": 0.2},
    "max_rounds=5": {"max_rounds": 5},
    "min_steps=1": {"min_steps": 1},
    "min_steps=80": {"min_steps": 80},
    "momentum=0": {"momentum": 0.0},
    "smooth=0.01": {"smooth": 0.01},
    "smooth=3": {"smooth": 3.0},
    "batch=20": {"batch": 20},
    "max_rounds=0 (univariate)": {"max_rounds": 0},
}


def main() -> None:
    """Every run that is not there yet, then the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS / "co2_choices.json")
    args = parser.parse_args()
    hforest.set_num_threads(args.threads)
    rows = json.loads(args.json.read_text())["runs"] if args.json.exists() else []
    for name in ("letter", "usps"):
        x, y, *_ = load(args.data, name)
        order = np.random.default_rng(0).permutation(len(x))
        held, kept = np.sort(order[: len(x) // 5]), np.sort(order[len(x) // 5 :])
        for variant, options in VARIANTS.items():
            for seed in range(args.runs):
                key = {"data": name, "variant": variant, "seed": seed}
                if any(key.items() <= row.items() for row in rows):
                    continue
                begin = time.perf_counter()
                forest = co2.grow(x[kept], y[kept], 10, rng=seed, **{**SETTINGS[name], **options})
                seconds = time.perf_counter() - begin
                error = 100 * float((tree.predict(forest, x[held]).argmax(axis=1) != y[held]).mean())
                rows.append({**key, "error": error, "seconds": seconds})
                print(name, variant, seed, f"{error:.2f} {seconds:.1f} s", file=sys.stderr)
                args.json.write_text(json.dumps({"machine": machine_text(), "runs": rows}, indent=1) + "\n")
    print("| setting | letter | s | USPS | s |\n|---|---|---|---|---|")
    for variant in VARIANTS:
        cells = []
        for name in ("letter", "usps"):
            of = [row for row in rows if (row["data"], row["variant"]) == (name, variant)]
            errors = [row["error"] for row in of]
            spread = f" ± {statistics.stdev(errors):.2f}" if len(errors) > 1 else ""
            cells.append(f"{statistics.mean(errors):.2f}{spread}" if of else "–")
            cells.append(f"{statistics.mean(row['seconds'] for row in of):.1f}" if of else "–")
        print(f"| {variant} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
