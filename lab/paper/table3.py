"""Lay et al. 2018, Table 3 and the 1000-tree experiment: letter, USPS and MNIST with Adam, on real data.

    python lab/paper/table3.py --data DIR [--only mnist-1000-tree ...] [--runs 3] [--threads 2] [--looks 80]

DIR holds letter.npz, usps.npz and mnist.npz. Their keys are x_train, y_train, x_test and y_test; letter has x
and y, of which the first 16 000 rows are the training samples. The protocol is the paper's: 40 000 batches of
53 (USPS 29), Adam with rate 0.005, and no validation set. The paper's figure is the *smallest* test error of
all evaluations, of which a run here has --looks; the authors evaluate letter and USPS 400 times, MNIST
80 times. The table also has the error of the last state, which is not selected on test samples.

A run is one seed. Its result is written when it is finished; an unfinished run has a checkpoint every 2000
steps in --work, from which a restarted script continues.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import numpy as np
from common import RESULTS, Bar, machine_text

import hforest
from hforest import demo

TASKS: dict[str, dict[str, Any]] = {
    f"{data}-{n_trees}-{kind}": {"data": data, "kind": kind, "n_trees": n_trees, **options}
    for data, n_trees, options in (
        ("letter", 100, {"batch_size": 53}),
        ("usps", 100, {"batch_size": 29}),
        ("mnist", 100, {"batch_size": 53, "n_kernels": 80}),
        ("mnist", 1000, {"batch_size": 53, "n_kernels": 80}),
    )
    for kind in ("tree", "fern")
}
PAPER = {
    "letter-100-tree": "2.56 ± 0.11",
    "letter-100-fern": "2.78 ± 0.12",
    "usps-100-tree": "5.53 ± 0.15",
    "usps-100-fern": "5.64 ± 0.24",
    "mnist-100-tree": "2.79 ± 0.11",
    "mnist-100-fern": "2.85 ± 0.13",
    "mnist-1000-tree": "1.81 ± 0.10",
    "mnist-1000-fern": "1.90 ± 0.06",
}
"""Test error in percent, mean and deviation over ten runs."""
CHECKPOINT_STEPS = 2000


def run(name: str, seed: int, steps: int, data: demo.Data, work: Path, looks: int = 80) -> dict[str, Any]:
    """Returns the result of one seed of one task, continued from its checkpoint if there is one."""
    task = TASKS[name]
    options = {key: value for key, value in task.items() if key != "data"}
    config = demo.Config(**options, steps=steps, eval_every=max(1, steps // looks), seed=seed)
    path = work / f"{name}-{seed}-{looks}.npz"
    seconds = 0.0
    if path.exists():
        saved = demo.load_checkpoint(path)
        if saved.config != config or saved.fingerprint != data.fingerprint:
            raise SystemExit(f"{path}: a checkpoint of another run; remove it or use another --work")
        state = saved.state
        seconds = float(state.pop("seconds", 0.0))
    else:
        state = demo.start(config, data.x_train.shape[1], data.n_classes)
    begin = time.perf_counter()

    def checkpoint(state: dict[str, Any]) -> None:
        step = state["step"]
        bar.note(f"step {step}, test error {100 * state['history_error'][-1]:.2f} %")
        if step % CHECKPOINT_STEPS == 0 and step < steps:
            state["seconds"] = np.array(seconds + time.perf_counter() - begin)
            demo.save_checkpoint(path, config, state, data)

    with Bar(f"{name}, seed {seed}", state["step"]) as bar:
        history = demo.train(config, state, *data[:4], checkpoint=checkpoint, progress=bar)
    error = 100 * history["error"]
    path.unlink(missing_ok=True)
    return {
        "task": name,
        **({"looks": looks} if looks != 80 else {}),
        "seed": seed,
        "steps": steps,
        "least": float(error.min()),
        "at": int(history["step"][error.argmin()]),
        "last": float(error[-1]),
        "seconds": seconds + time.perf_counter() - begin,
        "threads": hforest.get_num_threads(),
    }


def table(results: list[dict[str, Any]]) -> str:
    """Returns the table in Markdown: the paper's figures and these."""
    lines = [
        "| data, trees, kind | paper, least | here, least | here, last state | runs |",
        "|---|---|---|---|---|",
    ]
    for name in TASKS:
        runs = [r for r in results if r["task"] == name and "looks" not in r]
        if not runs:
            continue
        cells = []
        for errors in ([r[key] for r in runs] for key in ("least", "last")):
            spread = f" ± {statistics.stdev(errors):.2f}" if len(errors) > 1 else ""
            cells.append(f"{statistics.mean(errors):.2f}{spread}")
        lines.append(f"| {name.replace('-', ', ')} | {PAPER[name]} | {' | '.join(cells)} | {len(runs)} |")
    return "\n".join(lines)


def load(name: str, folder: Path) -> demo.Data:
    return demo.load_data(folder / f"{name}.npz", n_train=16000 if name == "letter" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--only", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--runs", type=int, default=3, help="number of seeds 0, 1, ... per task")
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--looks", type=int, default=80, help="number of evaluations of a run")
    parser.add_argument("--threads", type=int, default=hforest.get_num_threads())
    parser.add_argument("--work", type=Path, default=Path("."), help="folder for checkpoints")
    parser.add_argument("--json", type=Path, default=RESULTS / "table3.json")
    args = parser.parse_args()
    hforest.set_num_threads(args.threads)
    results = json.loads(args.json.read_text())["rows"] if args.json.exists() else []
    for name in args.only:
        data = None
        for seed in range(args.runs):
            key = name, seed, args.steps, args.looks
            if any((r["task"], r["seed"], r["steps"], r.get("looks", 80)) == key for r in results):
                continue
            data = data or load(TASKS[name]["data"], args.data)
            results.append(run(name, seed, args.steps, data, args.work, args.looks))
            args.json.write_text(json.dumps({"machine": machine_text(), "rows": results}, indent=1) + "\n")
    print(table([r for r in results if r["steps"] == args.steps]))


if __name__ == "__main__":
    main()
