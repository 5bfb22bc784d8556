"""A hinge layer beside an MLP head: error, time per step, learning rate, weight decay, normalisation.

    python bench/mlp_head.py --data DIR --json bench/results/mlp_head.json
    python bench/mlp_head.py --times --json bench/results/mlp_head.json
    python bench/mlp_head.py

Letter (16 features, 26 classes): a linear map to 64 units, a normalisation, a head. The head is an MLP
(64 -> 256 -> 26 with ReLU) or a `HingeForest` of 50 trees of depth 6 with 26 outputs, summed. Training takes
10 epochs of AdamW with batches of 128; the rate falls by a half cosine to a hundredth.

Settings are chosen with samples 1 to 13 000 for training and the next 3000 held out, three seeds per setting.
First the bench compares rates, with `RunningNorm` and no weight decay; then, with the best rate of each head,
decays and normalisations. Networks with the settings of the smallest held-out error are trained on the first
16 000 samples, and tested on the last 4000. Milliseconds are processor time of a training step with 128
samples on one thread, the minimum of many steps that take turns. "RowAdam" is the hinge layer with sparse
gradients.
"""

import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from common import RESULTS, machine_text, need, options_of, record, side_by_side
from fern_layer import load

import hforest

UNITS, BATCH = 64, 128
HEADS = ("MLP", "hinge")
CENTRE: dict[str, Any] = {"decay": 0.0, "norm": "RunningNorm"}
VALUES: dict[str, tuple[Any, ...]] = {
    "rate": (0.003, 0.01, 0.03, 0.1, 0.3),
    "decay": (0.0, 0.01, 0.1, 1.0),
    "norm": ("none", "LayerNorm", "BatchNorm1d", "RunningNorm"),
}


def build(head: str, norm: str, sparse: bool = False) -> Any:
    """Returns the network."""
    from torch import nn

    import hforest.torch as ht

    norms = {
        "none": nn.Identity,
        "LayerNorm": nn.LayerNorm,
        "BatchNorm1d": nn.BatchNorm1d,
        "RunningNorm": ht.RunningNorm,
    }
    layers = (
        [ht.HingeForest(UNITS, 50, 6, 26, sparse=sparse)]
        if head == "hinge"
        else [nn.Linear(UNITS, 256), nn.ReLU(), nn.Linear(256, 26)]
    )
    return nn.Sequential(nn.Linear(16, UNITS), norms[norm](UNITS), *layers)  # fmt: skip


def train(head: str, seed: int, data: list[Any], epochs: int, rate: float, decay: float, norm: str) -> float:
    """Returns the error of the trained network on the last two arrays, in percent."""
    import torch
    from torch.nn import functional

    torch.manual_seed(seed)
    x, y, x_test, y_test = data
    net = build(head, norm)
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=decay)
    n_steps = epochs * (len(x) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: max(0.01, 0.5 * (1 + math.cos(math.pi * step / n_steps)))
    )
    for _ in range(epochs):
        order = torch.randperm(len(x))
        for i in range(0, len(x) - BATCH + 1, BATCH):
            picked = order[i : i + BATCH]
            loss = functional.cross_entropy(net(x[picked]), y[picked])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        return 100 * float((net.eval()(x_test).argmax(dim=1) != y_test).double().mean())


def search(folder: Path, seeds: list[int], epochs: int) -> list[dict[str, Any]]:
    """Measures the held-out errors of all settings."""
    data = load(folder, False)
    trials: list[dict[str, Any]] = []
    for head in HEADS:
        settings = dict(CENTRE)
        for name, values in VALUES.items():
            for value in values:
                tried = settings | {name: value}
                same = [t for t in trials if t["head"] == head and t["settings"] == tried]
                errors = same[0]["errors"] if same else [train(head, s, data, epochs, **tried) for s in seeds]
                trials.append({"head": head, "name": name, "settings": tried, "errors": errors})
                print(trials[-1], flush=True)
            if name == "rate":
                settings["rate"] = best(trials, head)["rate"]
    return trials


def best(trials: list[dict[str, Any]], head: str) -> dict[str, Any]:
    """Returns the settings with the smallest mean held-out error."""
    mine = [t for t in trials if t["head"] == head]
    return dict(min(mine, key=lambda t: statistics.mean(t["errors"]))["settings"])


def steps(repeats: int) -> dict[str, float]:
    """Measures milliseconds per training step."""
    import torch
    from torch.nn import functional

    import hforest.torch as ht

    x, y = torch.randn(BATCH, 16), torch.randint(0, 26, (BATCH,))
    calls: dict[str, Any] = {}
    for name in (*HEADS, "RowAdam"):
        net = build("MLP" if name == "MLP" else "hinge", "RunningNorm", sparse=name == "RowAdam")
        kind: Any = ht.RowAdam if name == "RowAdam" else torch.optim.AdamW
        optimizer = kind(net.parameters(), lr=1e-3)

        def step(net: Any = net, optimizer: Any = optimizer) -> None:
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

        calls[name] = step
    return {name: 1e3 * min(taken) for name, taken in side_by_side(calls, repeats, time.process_time).items()}


def table(rows: list[dict[str, Any]]) -> str:
    """Returns Markdown of held-out errors, one line per setting."""
    lines = ["| setting | MLP, held-out error % | hinge, held-out error % |", "|---|---|---|"]
    words = {"rate": "learning rate", "decay": "weight decay", "norm": "normalisation"}
    of = {(t["head"], t["name"], t["settings"][t["name"]]): t["errors"] for t in rows}
    for name, values in VALUES.items():
        for value in values:
            errors = [of[head, name, value] for head in HEADS]
            cells = [f"{statistics.mean(e):.2f} ± {statistics.stdev(e):.2f}" for e in errors]
            lines.append(f"| {words[name]} {value} | {' | '.join(cells)} |")
    return "\n".join(lines)


def heads_table(rows: list[dict[str, Any]]) -> str:
    """Returns Markdown of the test, one line per head."""
    lines = ["| head | settings | parameters | test error % | ms per step |", "|---|---|---|---|---|"]
    for row in rows:
        chosen = ", ".join(f"{name} {value}" for name, value in row["settings"].items())
        mean, deviation = statistics.mean(row["errors"]), statistics.stdev(row["errors"])
        ms = f"{row['ms']:.2f}" + (f" (RowAdam {row['row_adam_ms']:.2f})" if "row_adam_ms" in row else "")
        lines.append(
            f"| {row['head']} | {chosen} | {row['parameters']} | {mean:.2f} ± {deviation:.2f} | {ms} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of letter.npz; without it the record is printed")
    parser.add_argument(
        "--times", action="store_true", help="measure only the times of steps, and write them to the record"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=60, help="timed calls of a step")
    parser.add_argument("--json", type=Path, default=RESULTS / "mlp_head.json")
    args = options_of(parser, "--data {data} --seeds 0 1 --epochs 1 --repeats 2", "letter")
    if args.data or args.times:
        need("-e '.[bench,torch]'", "torch")
        import torch

        hforest.set_num_threads(1)
        torch.set_num_threads(1)
        if args.times:
            file = json.loads(args.json.read_text())
            trials, rows, command = file["trials"], file["rows"], file["command"]
        else:
            trials, data, command = (
                search(args.data, args.seeds, args.epochs),
                load(args.data, True),
                " ".join(sys.argv),
            )
            rows = []
            for head in HEADS:
                chosen = best(trials, head)
                errors = [train(head, s, data, args.epochs, **chosen) for s in args.seeds]
                n = sum(p.numel() for p in build(head, "none")[2:].parameters())
                rows.append({"head": head, "settings": chosen, "parameters": n, "errors": errors})
        ms = steps(args.repeats)
        for row in rows:
            row["ms"] = ms[row["head"]]
        rows[1]["row_adam_ms"] = ms["RowAdam"]
        record(args.json, rows, trials=trials, torch=torch.__version__, command=command)
    if args.json.exists():
        file = json.loads(args.json.read_text())
        print(machine_text())
        print(table(file["trials"]))
        print()
        print(heads_table(file["rows"]))


if __name__ == "__main__":
    main()
