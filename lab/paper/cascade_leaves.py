"""Minimum number of samples in a leaf on Adult, chosen by the validation accuracy of small cascades.

    python lab/paper/cascade_leaves.py --data DIR [--trees 30]
    python lab/paper/cascade_leaves.py

The script grows nine cascades on adult's training samples; test samples are never used. A cascade has at most
three levels of two random and two completely random forests of 30 trees, 3 folds, seed 0. cascade.py takes
the best pair. Without --data nothing is grown, and the table of the record is printed.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import cascade as script
from common import RESULTS, machine_text

import hforest

LEAVES = (1, 5, 20)


def table(rows: list[dict[str, Any]]) -> str:
    """Returns a table of the highest validation accuracy of a level in percent."""
    lines = [
        "| leaves of random trees | of completely random trees: " + " | ".join(map(str, LEAVES)) + " |",
        "|---|" + "---|" * len(LEAVES),
    ]
    for leaf in LEAVES:
        found = {row["random_leaf"]: max(row["validation"]) for row in rows if row["leaf"] == leaf}
        lines.append(
            f"| {leaf} | " + " | ".join(f"{found[a]:.2f}" if a in found else "–" for a in LEAVES) + " |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of adult.npz; without it the record is printed")
    parser.add_argument("--trees", type=int, default=30)
    parser.add_argument("--levels", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS / "cascade_leaves.json")
    args = parser.parse_args()
    hforest.set_num_threads(args.threads)
    rows: list[dict[str, Any]] = json.loads(args.json.read_text())["rows"] if args.json.exists() else []
    for leaf in LEAVES if args.data else ():
        for random_leaf in LEAVES:
            key = {"leaf": leaf, "random_leaf": random_leaf, "trees": args.trees, "levels": args.levels}
            if any(key.items() <= row.items() for row in rows):
                continue
            x, y = script.load("adult", 0, args.data)[:2]
            begin = time.perf_counter()
            forests = script.level(args.trees, leaf, 2, random_leaf)
            grown = script.grow([x], y, forests, 3, 0, max_levels=args.levels)
            more = {"validation": [100 * score for score in grown.scores], "threads": args.threads}
            rows.append({**key, **more, "seconds": time.perf_counter() - begin})
            args.json.write_text(json.dumps({"machine": machine_text(), "rows": rows}, indent=1) + "\n")
    print(table([row for row in rows if (row["trees"], row["levels"]) == (args.trees, args.levels)]))


if __name__ == "__main__":
    main()
