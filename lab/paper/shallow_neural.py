"""Shallow neural decision forests (linear decision functions) on the data sets of Kontschieder et al. 2015.

    python lab/paper/shallow_neural.py --data DIR [--only g50c letter usps mnist] [--seeds 0 1]
        [--state DIR]
    python lab/paper/shallow_neural.py --data DIR --only mnist --held-out N [--set lr=0.02 n_trees=50]
    python lab/paper/shallow_neural.py

The paper is P. Kontschieder, M. Fiterau, A. Criminisi, S. Rota Bulò, *Deep Neural Decision Forests*, 2015,
column sNDF. Each tree sees a random part of the features, or a random square patch of the images. Features
have mean 0 and deviation 1 over the training samples; images have them over all pixels.

There is no validation set: the error is that of the last state, which was not selected. The table also has
the smallest error of all epochs, and the error of the hard forest from the last state. A run saves its state
after every epoch in --state, and continues from there.

Without --seeds the script makes the runs of the record (SEEDS). Without --data it makes none, and prints the
table of the record. To choose settings, which --set changes, the last N training samples replace the test
samples with --held-out; the latter are not read. Such a run is printed, but not recorded.
"""

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import numpy as np
from common import RESULTS, changed, machine_text

import hforest
from hforest import neural, tree


@dataclass(frozen=True)
class Settings:
    """Settings of a run."""

    n_trees: int
    depth: int
    max_features: int
    """Number of features per tree; for images, the side of its patch."""
    batch_size: int
    epochs: int
    lr: float


SETTINGS = {
    "g50c": Settings(50, 5, 10, 25, 20, 0.02),
    "letter": Settings(70, 10, 16, 64, 10, 0.1),
    "usps": Settings(50, 8, 16, 64, 10, 0.01),
    "mnist": Settings(50, 9, 15, 128, 8, 0.01),
}
SEEDS = {"g50c": range(10), "letter": range(3), "usps": range(3), "mnist": range(3)}
SIDES = {"usps": 16, "mnist": 28}
PAPER = {"g50c": "17.4 ± 1.52", "letter": "2.92 ± 0.17", "usps": "5.01 ± 0.24", "mnist": "2.8 ± 0.12"}
CHOSEN = {
    "g50c": "settings by hand",
    **dict.fromkeys(("letter", "usps"), "settings by test error"),
    "mnist": "held out",
}
"""Settings that were chosen on the test samples before the last states were tested."""
Data = tuple[Any, Any, Any, Any]


def load(name: str, folder: Path, seed: int, held_out: int = 0) -> Data:
    """Returns normalised training and test samples, or held-out training samples for the test."""
    with np.load(folder / f"{name}.npz") as file:
        a = {key: file[key] for key in file.files}
    if name == "letter":
        parts = [a["x"][:16000], a["y"][:16000], a["x"][16000:], a["y"][16000:]]
    elif name == "g50c":
        some, others = (a[key][seed % 10] for key in ("train_idx", "test_idx"))
        parts = [a["x"][some], a["y"][some], a["x"][others], a["y"][others]]
    else:
        parts = [a[key] for key in ("x_train", "y_train", "x_test", "y_test")]
    if held_out:
        parts = [part[some] for some in (slice(-held_out), slice(-held_out, None)) for part in parts[:2]]
    x, y, x_test, y_test = parts
    x, x_test = (part.reshape(len(part), -1) for part in (x, x_test))
    mean, deviation = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    if name in SIDES:  # pixels near the border hardly vary
        mean, deviation = np.full_like(mean, mean.mean()), np.full_like(mean, x.std(dtype=np.float64))
    x, x_test = (((part - mean) / deviation).astype(np.float32) for part in (x, x_test))
    return x, y.astype(np.int32), x_test, y_test.astype(np.int32)


def begin(name: str, settings: Settings, n_features: int, n_classes: int, seed: int) -> neural.Linear:
    """Returns the model before the first epoch; trees on images see a patch."""
    side = SIDES.get(name)
    start = initial(settings, n_features, n_classes, None if side is None else settings.max_features**2, seed)
    if side is None:
        return start
    corner = np.random.default_rng([seed, 1]).integers(
        0, side - settings.max_features + 1, (settings.n_trees, 2)
    )
    grid = np.arange(settings.max_features)[:, None] * side + np.arange(settings.max_features)
    columns = (corner[:, 0] * side + corner[:, 1])[:, None] + grid.ravel()
    return start._replace(features=columns.astype(np.int32))


def initial(
    settings: Settings, n_features: int, n_classes: int, max_features: int | None, seed: int
) -> neural.Linear:
    """Returns the library's random start; `fit` and this are the only calls whose arguments are named."""
    n_columns = min(max_features or settings.max_features, n_features)
    return neural.linear_init(
        settings.n_trees, settings.depth, n_features, n_classes, max_features=n_columns, rng=seed
    )


def fit(
    model: neural.Linear, x: Any, y: Any, settings: Settings, first_epoch: int, report: Any, seed: int
) -> neural.Linear:
    """Trains the model; calls report(loss, model) after every epoch."""
    losses: list[float] = []
    return neural.fit(
        model, x, y, epochs=settings.epochs, batch_size=settings.batch_size, lr=settings.lr,
        last_lr=settings.lr / 20, standardize=False, first_epoch=first_epoch, history=losses,
        checkpoint=lambda model: report(losses[-1], model), rng=seed,
    )  # fmt: skip


def save(path: Path, state: dict[str, Any], model: neural.Linear) -> None:
    """Writes the file; replaces the old one only when the new one is complete."""
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as file:
        np.savez(file, state=np.array(json.dumps(state)), **model._asdict())
    os.replace(part, path)


def run(
    name: str, seed: int, folder: Path, states: Path, held_out: int, settings: Settings
) -> dict[str, Any]:
    """Runs one data set and seed, from its last state on."""
    x, y, x_test, y_test = load(name, folder, seed, held_out)
    path = states / f"neural_{name}_{seed}{'_held_out' if held_out else ''}.npz"
    state: dict[str, Any] = {"settings": asdict(settings), "errors": [], "losses": [], "seconds": 0.0}
    model = begin(name, settings, x.shape[1], 1 + int(y.max()), seed)
    if path.exists():
        with np.load(path, allow_pickle=False) as file:
            known = json.loads(str(file["state"]))
            if known["settings"] != state["settings"]:
                raise SystemExit(f"{path}: a run with other settings; remove it or choose another --state")
            state, model = known, neural.Linear(*(file[key] for key in neural.Linear._fields))
    begun = time.perf_counter()

    def report(loss: float, model: neural.Linear) -> None:
        nonlocal begun
        state["seconds"] += time.perf_counter() - begun
        error = 100 * float((neural.predict(model, x_test).argmax(axis=1) != y_test).mean())
        state["errors"].append(error)
        state["losses"].append(loss)
        save(path, state, model)
        epoch = len(state["errors"])
        print(f"{name}, seed {seed}, epoch {epoch}: loss {loss:.4f}, error {error:.2f} %", flush=True)
        begun = time.perf_counter()

    model = fit(model, x, y, settings, len(state["errors"]), report, seed)
    hard = tree.predict(neural.to_hard(model, x.shape[1]), x_test).argmax(axis=1)
    return {
        "data": name,
        "seed": seed,
        **state,
        "error": state["errors"][-1],
        "least": min(state["errors"]),
        "hard": 100 * float((hard != y_test).mean()),
        "threads": hforest.get_num_threads(),
    }


def spread(values: list[float]) -> str:
    """Returns mean and deviation as text."""
    more = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{more}"


def table(rows: list[dict[str, Any]]) -> str:
    """Returns Markdown of the test error in percent, of the paper and measured."""
    lines = ["| data | paper | last state | least | hard trees | runs | seconds |", "|---" * 7 + "|"]
    for name, paper in PAPER.items():
        mine = [row for row in rows if (row["data"], row["settings"]) == (name, asdict(SETTINGS[name]))]
        if mine:
            cells = [spread([row[key] for row in mine]) for key in ("error", "least", "hard")]
            seconds = statistics.mean(row["seconds"] for row in mine)
            took = f"{seconds:.{0 if seconds >= 1 else 1}f}"
            lines.append(f"| {name} | {paper} | {' | '.join(cells)} | {len(mine)} | {took} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the data sets; without it the record is printed")
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument(
        "--seeds", nargs="+", type=int, help="seeds of the runs (default: those of the record)"
    )
    parser.add_argument("--state", type=Path, default=Path("."), help="folder of the runs' states")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS / "neural_paper.json")
    parser.add_argument("--held-out", type=int, default=0, metavar="N")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings to change, with --held-out"
    )
    args = parser.parse_args()
    if args.set and not args.held_out:
        raise SystemExit("--set: settings of recorded runs are in SETTINGS; add --held-out")
    hforest.set_num_threads(args.threads)
    args.state.mkdir(parents=True, exist_ok=True)
    file: dict[str, Any] = json.loads(args.json.read_text()) if args.json.exists() else {"rows": []}
    rows, machine = file["rows"], machine_text()
    with hforest.unchecked():
        for name in args.only if args.data else ():
            settings = changed(SETTINGS[name], args.set)
            for seed in args.seeds or ([0] if args.held_out else SEEDS[name]):
                if args.held_out:
                    row = run(name, seed, args.data, args.state, args.held_out, settings)
                    print(f"{name}, seed {seed}, held out: {row['error']:.2f} %, {row['seconds']:.0f} s")
                    continue
                key = {"data": name, "seed": seed, "settings": asdict(settings)}
                if any(key.items() <= row.items() for row in rows):
                    continue
                rows.append({**run(name, seed, args.data, args.state, 0, settings), "machine": machine})
                args.json.write_text(
                    json.dumps({"machine": file.get("machine", machine), "rows": rows}) + "\n"
                )
    if not args.held_out:
        print(table(rows))


if __name__ == "__main__":
    main()
