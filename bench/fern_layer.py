"""A fern layer as conditional computation, beside a wide feed-forward layer with as many parameters.

    python bench/fern_layer.py --data DIR [--search] [--json FILE]
    python bench/fern_layer.py

Letter (16 features, 26 classes): a linear map to 64 units, batch normalisation, a layer whose output is added
to its input, batch normalisation, a linear map to the classes. The layer is one of

* dense: 64 -> 2048 -> 64 with ReLU between, 264 256 parameters;
* ferns: `HingeForest` of kind "fern", 64 outputs in a leaf: 64 ferns of depth 6 (262 528 parameters) or 16 of
  depth 8 (262 272). A sample reads one row of 64 weights per fern;
* none: no layer, to show the effect of a layer.

--search trains on samples 1 to 13 000, and measures errors on the next 3000. CHOSEN has the learning rate and
depth with the smallest error. Then layers are trained on the first 16 000 samples and tested once on the last
4000, with three seeds. The optimiser is Adam (for ferns `RowAdam` with sparse gradients), with batches of
128, for 15 epochs. The rate falls by a half cosine to a hundredth.

Multiply-adds are those of one sample in the layer; comparisons of ferns are separate. Milliseconds are those
of 256 samples in evaluation, in the layer and in the whole network, and of a training step with 128 samples:
the minima of many calls that take turns.
"""

import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, machine_text, need, options_of, record

import hforest

UNITS, HIDDEN, BATCH, EPOCHS = 64, 2048, 128, 15
FERNS = {6: 64, 8: 16}
RATES = (0.003, 0.01)
LAYERS = ("dense", "ferns", "none")
CHOSEN: dict[str, dict[str, Any]] = {
    "dense": {"lr": 0.01},
    "ferns": {"lr": 0.01, "depth": 6},
    "none": {"lr": 0.01},
}


def load(folder: Path, test: bool) -> list[Any]:
    """Returns training and test samples of unit deviation; without `test` held-out ones for testing."""
    import torch

    with np.load(folder / "letter.npz") as file:
        x, y = file["x"].astype(np.float32), file["y"].astype(np.int64)
    train, held_out = 4 * len(x) // 5, 3 * len(x) // 20
    first, last = (train, len(x)) if test else (train - held_out, train)
    x = (x - x[:first].mean(axis=0)) / x[:first].std(axis=0)
    return [torch.from_numpy(a) for a in (x[:first], y[:first], x[first:last], y[first:last])]


def layer(name: str, depth: int) -> Any:
    """Returns the layer; without one, the identity."""
    from torch import nn

    import hforest.torch as ht

    if name == "none":
        return nn.Identity()
    if name == "ferns":
        return ht.HingeForest(UNITS, FERNS[depth], depth, UNITS, kind="fern", sparse=True)
    return nn.Sequential(nn.Linear(UNITS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, UNITS))


def build(name: str, depth: int) -> Any:
    """Returns the network."""
    from torch import Tensor, nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Linear(16, UNITS), nn.BatchNorm1d(UNITS))
            self.layer = layer(name, depth)
            self.head = nn.Sequential(nn.BatchNorm1d(UNITS), nn.Linear(UNITS, 26))

        def forward(self, x: Tensor) -> Tensor:
            h = self.stem(x)
            return self.head(h if name == "none" else h + self.layer(h))

    return Network()


def train(name: str, seed: int, data: list[Any], lr: float, depth: int = 6, epochs: int = EPOCHS) -> Any:
    """Returns the trained network, in evaluation."""
    import torch
    from torch.nn import functional

    import hforest.torch as ht

    torch.manual_seed(seed)
    x, y = data[:2]
    net = build(name, depth)
    if name == "ferns":
        with torch.no_grad():
            net.layer.median_thresholds(net.stem(x[:2000]))
    adam = ht.RowAdam if name == "ferns" else torch.optim.Adam
    optimizer = adam(net.parameters(), lr=lr)
    for epoch in range(epochs):
        for group in optimizer.param_groups:  # once an epoch: a change takes the missed steps of all rows
            group["lr"] = lr * max(0.01, 0.5 * (1 + math.cos(math.pi * epoch / epochs)))
        order = torch.randperm(len(x))
        for i in range(0, len(x) - BATCH + 1, BATCH):
            picked = order[i : i + BATCH]
            loss = functional.cross_entropy(net(x[picked]), y[picked])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if name == "ferns":
        optimizer.flush()
    return net.eval()


def error(net: Any, x: Any, y: Any) -> float:
    """Returns the percentage of wrong labels."""
    import torch

    with torch.no_grad():
        return 100 * float((net(x).argmax(dim=1) != y).double().mean())


def search(folder: Path, epochs: int) -> list[dict[str, Any]]:
    """Returns the results of all trials on the held-out samples."""
    data = load(folder, False)
    trials = []
    for name in LAYERS:
        for lr in RATES:
            for depth in FERNS if name == "ferns" else (6,):
                settings = {"lr": lr, "depth": depth} if name == "ferns" else {"lr": lr}
                found = error(train(name, 0, data, lr, depth, epochs), *data[2:])
                trials.append({"layer": name, "settings": settings, "held_out_error": found})
                print(trials[-1], flush=True)
    return trials


def costs(repeats: int) -> dict[str, dict[str, Any]]:
    """Measures for each layer parameters, multiply-adds, comparisons and minimum milliseconds of calls."""
    import torch
    from torch.nn import functional

    import hforest.torch as ht

    rows: dict[str, dict[str, Any]] = {}
    calls: dict[tuple[str, str], Any] = {}
    batch = torch.randn(256, 16)
    for name in LAYERS:
        depth = CHOSEN[name].get("depth", 6)
        net = build(name, depth).eval()
        n = sum(p.numel() for p in net.layer.parameters())
        compared = FERNS[depth] * depth if name == "ferns" else 0
        madds = {"dense": 2 * UNITS * HIDDEN, "ferns": FERNS[depth] * UNITS, "none": 0}[name]
        rows[name] = {"parameters": n, "multiply_adds": madds, "comparisons": compared}
        h = net.stem(batch).detach()
        trained = build(name, depth)
        adam = ht.RowAdam if name == "ferns" else torch.optim.Adam
        optimizer = adam(trained.parameters(), lr=1e-3)
        x, y = torch.randn(BATCH, 16), torch.randint(0, 26, (BATCH,))

        def evaluate(net: Any = net.layer, x: Any = h) -> None:
            with torch.no_grad():
                net(x)

        def whole(net: Any = net) -> None:
            with torch.no_grad():
                net(batch)

        def step(net: Any = trained, optimizer: Any = optimizer, x: Any = x, y: Any = y) -> None:
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

        calls |= {(name, "layer_ms"): evaluate, (name, "network_ms"): whole, (name, "step_ms"): step}
    least = dict.fromkeys(calls, math.inf)
    for _ in range(repeats):
        for key, call in calls.items():
            for _ in range(3):
                begin = time.perf_counter()
                call()
                least[key] = min(least[key], 1e3 * (time.perf_counter() - begin))
    for (name, job), ms in least.items():
        rows[name][job] = ms
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Returns Markdown with one line per layer."""
    lines = [
        "| layer | chosen | error % | parameters | multiply-adds | comparisons "
        "| layer ms | network ms | step ms |",
        "|---" * 9 + "|",
    ]
    for row in rows:
        chosen = ", ".join(f"{key} {value}" for key, value in row["settings"].items())
        mean, deviation = statistics.mean(row["errors"]), statistics.stdev(row["errors"])
        times = " | ".join(f"{row[key]:.2f}" for key in ("layer_ms", "network_ms", "step_ms"))
        lines.append(
            f"| {row['layer']} | {chosen} | {mean:.2f} ± {deviation:.2f} | {row['parameters']} "
            f"| {row['multiply_adds']} | {row['comparisons']} | {times} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of letter.npz; without it the record is printed")
    parser.add_argument("--search", action="store_true", help="make only the trials on the held-out samples")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--repeats", type=int, default=300, help="rounds of three timed calls")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS / "fern_layer.json")
    args = options_of(parser, "--data {data} --seeds 0 1 --epochs 1 --repeats 2", "letter")
    file: dict[str, Any] = json.loads(args.json.read_text()) if args.json.exists() else {"rows": []}
    rows: list[dict[str, Any]] = file["rows"]
    if args.data:
        need("-e '.[bench,torch]'", "torch")
        import torch

        hforest.set_num_threads(args.threads)
        torch.set_num_threads(args.threads)
        trials = file.get("trials", [])
        if args.search:
            trials = search(args.data, args.epochs)
        else:
            data, found = load(args.data, True), costs(args.repeats)
            rows = [
                {
                    "layer": name, "settings": CHOSEN[name], **found[name],
                    "errors": [
                        error(train(name, s, data, epochs=args.epochs, **CHOSEN[name]), *data[2:])
                        for s in args.seeds
                    ],
                }
                for name in LAYERS
            ]  # fmt: skip
        record(args.json, rows, trials=trials, torch=torch.__version__, command=" ".join(sys.argv))
    if rows:
        print(machine_text())
        print(table(rows))


if __name__ == "__main__":
    main()
