"""Norouzi et al. 2015, Fig. 1: training and validation error of single trees on MNIST, over their depth and
the bound nu.

    python lab/paper/co2_fig1.py --data DIR [--runs 3] [--depth 20] [--png FILE]
    python lab/paper/co2_fig1.py

DIR holds mnist.npz; 20 % of its training samples are held out. Trees are grown to purity without bootstrap,
beside trees of univariate splits that sample as many features per node. The first d levels of a tree are the
tree of depth d, because a split does not depend on the splits below it. So one growth yields a curve. The
paper gives neither step nor number of features; they are those of co2_table1.py for MNIST.

The curve of a tree is written when it is finished; started again, the script continues with the next tree.
Without --data nothing is grown, and the table of the record is printed. With it the script also draws the
picture, if matplotlib is installed.
"""

import argparse
import importlib.util
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import co2_data
import numpy as np
from common import RESULTS

from hforest import tree

NUS = (0.1, 1.0, 10.0, 100.0)
TREES = [*(f"nu = {nu:g}" for nu in NUS), "univariate"]
PARTS = ("training", "validation")


def settings(kind: str) -> dict[str, Any]:
    """Returns the settings of one tree, with names as in the records."""
    base = co2_data.SETTINGS["mnist"]
    if kind == "univariate":
        return {"max_features": base["max_features"], "bootstrap": False}
    return {**base, "nu": NUS[TREES.index(kind)], "bootstrap": False}


def by_depth(forest: tree.Forest, depths: int, *parts: tuple[np.ndarray, np.ndarray]) -> list[list[float]]:
    """Returns errors in percent on each part with levels to depth 0, 1, ...; the first part sets labels."""
    inner = np.flatnonzero(forest.feature != -1)
    parent, depth = np.zeros((2, len(forest.feature)), np.int64)
    parent[forest.left[inner]] = parent[forest.left[inner] + 1] = inner
    for v in range(1, len(parent)):  # nodes are in breadth-first order
        depth[v] = depth[parent[v]] + 1
    at = [tree.apply(forest, x)[:, 0] for x, _ in parts]
    curves: list[list[float]] = [[] for _ in parts]
    for d in range(max(depths, int(depth.max())), -1, -1):
        at = [np.where(depth[nodes] > d, parent[nodes], nodes) for nodes in at]
        counts = np.zeros((len(parent), forest.value.shape[1]), np.int64)
        np.add.at(counts, (at[0], parts[0][1]), 1)
        label = counts.argmax(axis=1)
        for curve, nodes, (_, y) in zip(curves, at, parts, strict=True):
            curve.append(100 * float((label[nodes] != y).mean()))
    return [curve[::-1][: depths + 1] for curve in curves]


def mean_curve(rows: list[dict[str, Any]], kind: str, part: str) -> list[float]:
    """Returns the mean over the seeds."""
    return [
        statistics.mean(errors)
        for errors in zip(*(row[part] for row in rows if row["tree"] == kind), strict=True)
    ]


def table(rows: list[dict[str, Any]], depths: list[int]) -> str:
    """Returns a table of mean training and validation errors at some depths, and the number of leaves."""
    lines = [
        "| tree | leaves | " + " | ".join(f"depth {d}" for d in depths) + " |",
        "|---|---|" + "---|" * len(depths),
    ]
    for kind in dict.fromkeys(row["tree"] for row in rows):
        curves = [mean_curve(rows, kind, part) for part in PARTS]
        cells = " | ".join(f"{curves[0][d]:.1f} / {curves[1][d]:.1f}" for d in depths)
        leaves = statistics.mean(row["leaves"] for row in rows if row["tree"] == kind)
        lines.append(f"| {kind} | {leaves:.0f} | {cells} |")
    return "\n".join(lines)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws both halves of the figure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
    for axis, part in zip(axes, PARTS, strict=True):
        for kind in TREES:
            curve = mean_curve(rows, kind, part)
            if curve:
                axis.plot(curve, "--" if kind == "univariate" else "-", label=kind)
        axis.set(title=f"MNIST, {part}", xlabel="depth", ylabel="error, %", xlim=(2, None), ylim=(0, 40))
        axis.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of mnist.npz; without it the record is printed")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--depth", type=int, default=20)
    parser.add_argument("--json", type=Path, default=RESULTS / "co2_fig1.json")
    parser.add_argument("--png", type=Path, default=RESULTS / "co2_fig1.png")
    args = parser.parse_args()
    record = co2_data.Record(args.json)
    keys: list[dict[str, Any]] = [
        {"tree": kind, "seed": seed, "settings": settings(kind)}
        for seed in range(args.runs)
        for kind in TREES
    ]
    missing = [key for key in keys if args.data and not record.find(key)]
    if missing:
        x, y, *_ = co2_data.load(args.data, "mnist")
        x, y, x_held, y_held = co2_data.held_out(x, y)
        for key in missing:
            method = "RF" if key["tree"] == "univariate" else "CO2"
            forest = co2_data.grow(method, x, y, 1, key["settings"], key["seed"])
            curves = dict(zip(PARTS, by_depth(forest, args.depth, (x, y), (x_held, y_held)), strict=True))
            record.add({**key, "leaves": len(forest.value), **curves})
            print(key, len(forest.value), curves["validation"][-1], file=sys.stderr)
            record.write()
    rows = record.rows
    print(table(rows, [d for d in (4, 8, 12, 20) if d <= args.depth]))
    if args.data and importlib.util.find_spec("matplotlib"):
        draw(rows, args.png)


if __name__ == "__main__":
    main()
