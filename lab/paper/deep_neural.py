"""The deep neural decision forest on MNIST: a convolutional network of LeNet-5's size under a neural forest.

    python lab/paper/deep_neural.py --data DIR --held-out 10000 [--set epochs=2 shift=0 head=softmax]
    python lab/paper/deep_neural.py --data DIR [--set head=softmax] [--runs 3]
    python lab/paper/deep_neural.py

Zhang 2017, section 2, and P. Kontschieder, M. Fiterau, A. Criminisi, S. Rota Bulò, *Deep Neural Decision
Forests*, 2015: the decision functions of the trees are the outputs of a network that is trained end to end.
At the start of every epoch the leaves are fitted to all training samples by the closed-form update. In the
first epoch they are also fitted after 50, 100, 200 and 400 batches, to 10 000 samples: the leaves of a
network that has learned nothing are nearly uniform, and give it small gradients.

The network has two convolutions of 5x5 (20 and 50 maps), each with 2x2 maxima, 500 linear units with dropout,
and a linear map to the decision functions, or with `head=softmax` to the class scores. Training images are
moved by up to `shift` pixels at random. The optimiser is Adam; the rate falls by a half cosine to a
hundredth.

--runs N makes those of the first N seeds that the record lacks. To choose settings, --held-out N trains on
all but the last N training samples, and tests on these. Without it the script reads the test samples after
the last epoch. Errors are those of the last state, in percent. --json names the record of all runs; without
--data the script prints its table.
"""

import argparse
import json
import math
import statistics
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import numpy as np
from common import RESULTS, Bar, changed, machine_text, need

import hforest


@dataclass(frozen=True)
class Settings:
    """Settings of a run."""

    head: str = "forest"
    """ "forest" or "softmax"."""
    n_trees: int = 10
    depth: int = 5
    hidden: int = 500
    dropout: float = 0.5
    shift: int = 1
    batch_size: int = 64
    epochs: int = 12
    lr: float = 0.002
    seed: int = 0


EARLY = (50, 100, 200, 400)
"""Batches of the first epoch after which the leaves are fitted too, to EARLY_SAMPLES samples."""
EARLY_SAMPLES = 10_000


def load(folder: Path, held_out: int) -> tuple[Any, Any, Any, Any]:
    """Returns training and test images (n, 1, 28, 28) and labels, or held-out ones for the test."""
    with np.load(folder / "mnist.npz") as file:
        parts = [file["x_train"], file["y_train"]]
        if held_out:
            parts = [part[some] for some in (slice(-held_out), slice(-held_out, None)) for part in parts]
        else:
            parts += [file["x_test"], file["y_test"]]
    mean, deviation = parts[0].mean(dtype=np.float64), parts[0].std(dtype=np.float64)
    images = [((x.reshape(-1, 1, 28, 28) - mean) / deviation).astype(np.float32) for x in parts[::2]]
    return images[0], parts[1].astype(np.int64), images[1], parts[3].astype(np.int64)


def build(settings: Settings) -> tuple[Any, Any]:
    """Returns the convolutional network, and its head."""
    from torch import channels_last, nn

    import hforest.torch as ht

    body = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(800, settings.hidden), nn.ReLU(), nn.Dropout(settings.dropout),
    )  # fmt: skip
    body = body.to(memory_format=channels_last)  # faster on a CPU
    if settings.head == "forest":
        return body, ht.NeuralForest(settings.hidden, settings.n_trees, settings.depth, 10)
    return body, nn.Linear(settings.hidden, 10)


def moved(x: Any, by: int, low: float) -> Any:
    """Returns images, each moved by -by to by pixels along both axes; `low` enters at the border."""
    import torch

    if not by:
        return x
    n, side = len(x), torch.arange(x.shape[-1])
    padded = torch.nn.functional.pad(x[:, 0], (by,) * 4, value=low)
    down, right = (torch.randint(0, 2 * by + 1, (n, 1)) + side for _ in range(2))
    return padded[torch.arange(n)[:, None, None], down[:, :, None], right[:, None, :]][:, None]


def run(settings: Settings, folder: Path, held_out: int) -> dict[str, Any]:
    """Trains once and returns the row of the record."""
    import torch

    torch.manual_seed(settings.seed)
    x, y, x_test, y_test = (torch.from_numpy(a) for a in load(folder, held_out))
    low = float(x.min())
    body, head = build(settings)
    forest = settings.head == "forest"
    parameters = [*body.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=settings.lr, fused=True)
    n_batches = len(x) // settings.batch_size
    n_steps = settings.epochs * n_batches
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: max(0.01, 0.5 * (1 + math.cos(math.pi * step / n_steps)))
    )

    def features(images: Any) -> Any:
        body.eval()
        with torch.no_grad():
            found = torch.cat([body(images[i : i + 1000]) for i in range(0, len(images), 1000)])
        body.train()
        return found

    wall, processor = time.perf_counter(), time.process_time()
    losses: list[float] = []
    with Bar(f"MNIST, {settings.head}") as bar:
        for epoch in range(settings.epochs):
            if forest:
                head.update_leaves(features(x), y)
            order = torch.randperm(len(x))
            for i in range(n_batches):
                if forest and not epoch and i in EARLY:
                    head.update_leaves(features(x[:EARLY_SAMPLES]), y[:EARLY_SAMPLES])
                picked = order[i * settings.batch_size : (i + 1) * settings.batch_size]
                z = body(moved(x[picked], settings.shift, low))
                loss = (
                    head.loss(z, y[picked])
                    if forest
                    else torch.nn.functional.cross_entropy(head(z), y[picked])
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                losses.append(loss.item())
                bar(epoch * n_batches + i + 1, n_steps)
            bar.note(f"epoch {epoch + 1}: loss {np.mean(losses[-n_batches:]):.4f}")
    if forest:
        head.update_leaves(features(x), y)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    body.eval()
    with torch.no_grad():
        wrong = int((head(features(x_test)).argmax(dim=1) != y_test).sum())
    return {
        "settings": asdict(settings), "held_out": held_out, "samples": len(y_test),
        "error": 100 * wrong / len(y_test),
        "loss": float(np.mean(losses[-n_batches:])), "parameters": sum(p.numel() for p in parameters),
        "seconds": wall, "processor_seconds": processor, "threads": torch.get_num_threads(),
        "torch": torch.__version__, "machine": machine_text(),
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """Returns Markdown with one line for the seeds of each setting."""
    lines = ["| head | tested on | error | each seed | processor seconds |", "|---" * 5 + "|"]
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        settings = {**row["settings"], "seed": 0}
        on = f"{row['held_out']} held-out training samples" if row["held_out"] else "the test samples"
        key = row["held_out"] == 0, settings["head"], json.dumps(settings), on
        groups.setdefault(key, []).append(row)
    for (_, head, _, on), some in sorted(groups.items()):
        errors = [row["error"] for row in sorted(some, key=lambda row: row["settings"]["seed"])]
        spread = f" ± {statistics.stdev(errors):.2f}" if len(errors) > 1 else ""
        each = ", ".join(f"{error:.2f}" for error in errors)
        seconds = statistics.mean(row["processor_seconds"] for row in some)
        lines.append(f"| {head} | {on} | {statistics.mean(errors):.2f}{spread} | {each} | {seconds:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of mnist.npz; without it the record is printed")
    parser.add_argument("--held-out", type=int, default=0, metavar="N")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS / "deep_neural.json")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(args.json.read_text())["rows"] if args.json.exists() else []
    if args.data:
        need("-e '.[bench,torch]'", "torch")
        import torch

        hforest.set_num_threads(args.threads)
        torch.set_num_threads(args.threads)
        first = changed(Settings(), args.set)
        if first.head not in ("forest", "softmax"):
            raise SystemExit(f"--set head={first.head}: expected forest or softmax")
        for seed in range(first.seed, first.seed + args.runs):
            settings = replace(first, seed=seed)
            key = {"settings": asdict(settings), "held_out": args.held_out}
            if not any(key.items() <= row.items() for row in rows):
                rows.append(run(settings, args.data, args.held_out))
                args.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
