"""Lay et al. 2018, Fig. 3: the loss over the steps, for several depths and numbers of trees.

    python lab/paper/fig3.py --data DIR [--steps 40000] [--only madelon mnist] [--png FILE]

(a) the loss on Madelon's validation samples: the network of Fig. 2a, trees and ferns of depth 1, 5 and 10.
The paper does not give the number of trees; here it is 100.
(b) the loss on MNIST's test samples: the network of Fig. 2c, 100 and 1000 trees and ferns of depth 10.

Each curve is written when it is finished, and a restarted script begins with the next one. matplotlib draws
the picture from the record.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import table2
from common import RESULTS, machine_text, need

from hforest import demo, layers

N_EVALUATIONS = 40
CURVES = [("madelon", kind, size) for kind in ("tree", "fern") for size in (1, 5, 10)]
CURVES += [("mnist", kind, size) for kind in ("tree", "fern") for size in (100, 1000)]


def madelon(kind: Any, depth: int, steps: int, folder: Path) -> dict[str, list[float]]:
    """Returns the validation loss of run 0 for one depth."""
    split = table2.madelon(folder, 0)
    lr = table2.TASKS[f"madelon-{kind}"].lr
    config = demo.Config(
        kind, 100, depth, optimizer="adagrad", lr=lr, steps=steps, eval_every=max(1, steps // N_EVALUATIONS),
        leaves="scalar",
    )  # fmt: skip
    curve: dict[str, list[float]] = {"step": [], "loss": []}

    def evaluate(state: dict[str, Any]) -> None:
        loss, _ = layers.softmax_loss(demo.predict(config, state, split.x_valid), split.y_valid)
        curve["step"].append(state["step"])
        curve["loss"].append(float(loss))

    demo.train(config, demo.start(config, split.x.shape[1], 2), *split[:4], checkpoint=evaluate)
    return curve


def mnist(kind: Any, n_trees: int, steps: int, folder: Path) -> dict[str, list[float]]:
    """Returns the test loss of seed 0 for one number of trees."""
    data = demo.load_data(folder / "mnist.npz")
    every = max(1, steps // N_EVALUATIONS)
    config = demo.Config(kind, n_trees, 10, n_kernels=80, steps=steps, eval_every=every)
    curve: dict[str, list[float]] = {"step": [], "loss": []}

    def evaluate(state: dict[str, Any]) -> None:
        loss, _ = layers.softmax_loss(demo.predict(config, state, data.x_test), data.y_test)
        curve["step"].append(state["step"])
        curve["loss"].append(float(loss))

    demo.train(config, demo.start(config, 784, data.n_classes), *data[:4], checkpoint=evaluate)
    return curve


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws both halves of the figure from the finished curves."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    halves = {"madelon": ("(a) Madelon, validation", "depth"), "mnist": ("(b) MNIST, test", "trees")}
    known = [data for data in halves if any(row["data"] == data for row in rows)]
    if not known:
        return
    figure, axes = pyplot.subplots(
        1, len(known), figsize=(5.5 * len(known), 4), layout="constrained", squeeze=False
    )
    for axis, data in zip(axes[0], known, strict=True):
        title, word = halves[data]
        for row in rows:
            if row["data"] == data:
                style = "-" if row["kind"] == "tree" else "--"
                axis.plot(row["step"], row["loss"], style, label=f"{row['kind']}s, {word} {row['size']}")
        axis.set(title=title, xlabel="step", ylabel="softmax loss", yscale="log")
        axis.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--only", nargs="+", choices=["madelon", "mnist"], default=["madelon", "mnist"])
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--json", type=Path, default=RESULTS / "fig3.json")
    parser.add_argument("--png", type=Path, default=RESULTS / "fig3.png")
    args = parser.parse_args()
    need("-e '.[bench]'", "matplotlib")
    rows = json.loads(args.json.read_text())["rows"] if args.json.exists() else []
    for data, kind, size in CURVES:
        key = {"data": data, "kind": kind, "size": size, "steps": args.steps}
        if data not in args.only or any(key.items() <= row.items() for row in rows):
            continue
        print(f"{data}, {kind}s, {size}", flush=True)
        curve = (madelon if data == "madelon" else mnist)(kind, size, args.steps, args.data)
        rows.append({**key, **curve})
        args.json.write_text(json.dumps({"machine": machine_text(), "rows": rows}) + "\n")
    draw([row for row in rows if row["steps"] == args.steps], args.png)


if __name__ == "__main__":
    main()
