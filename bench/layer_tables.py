"""Hinge layers beside an MLP, RealMLP and NODE on six tables: error and seconds.

    python bench/layer_tables.py --data DIR DIR/tabular --json bench/results/layer_tables.json
    python bench/layer_tables.py --quick
    python bench/layer_tables.py

`table_networks.py` has the methods. Of at most 9000 rows of a table a half trains, a sixth validates, and a
third is for the test. Columns are scaled robustly and clipped smoothly (Holzmüller et al. 2024), for NODE
mapped to normal quantiles as in its paper; categories are one-hot. Each method has three rates and two forms.
With seed 0 the rates are tried with the first form, then the second form with the best rate; the setting with
the smallest validation error is trained with two more seeds. All train for 25 epochs with batches of 128; the
epoch with the smallest validation error counts. Seconds are processor time of one thread for one training
with its validation.
"""

import argparse
import copy
import json
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, machine_text, need, options_of, record
from scipy.special import ndtri
from tabular_data import find, load

import hforest

TABLES = ("letter", "phoneme", "spambase", "adult", "houses", "puma8NH")
NAMES = ("MLP", "RealMLP", "NODE", "hinge", "hinge, grown start")
ROWS, BATCH, EPOCHS, SEEDS = 9000, 128, 25, (0, 1, 2)


def scaled(x: np.ndarray, of: np.ndarray, scale: str) -> np.ndarray:
    """Returns columns scaled by the samples `of` for training."""
    if scale == "quantiles":
        n = len(of)
        places = [
            (np.searchsorted(s, c, "left") + np.searchsorted(s, c, "right") + 1) / (2 * n + 2)
            for c, s in zip(x.T, np.sort(of, axis=0).T, strict=True)
        ]
        return ndtri(np.stack(places, axis=1)).astype(np.float32)
    low, middle, high = np.quantile(of, (0.25, 0.5, 0.75), axis=0)
    width = np.where(high > low, high - low, np.ptp(of, axis=0) / 2)
    z = (x - middle) / np.where(width > 0, width, np.inf)
    return (z / np.sqrt(1 + (z / 3) ** 2)).astype(np.float32)


def arrays(folders: list[Path], table: str, scale: str, rows: int) -> tuple[list[Any], list[Any], int, float]:
    """Returns samples and targets for training, validation and test, outputs, and the targets' deviation."""
    data, x_test, y_test = load(find(folders, table), rows, 0, False, "raw", categorical=True)
    n = 3 * len(data.x) // 4
    parts = [data.x[:n], data.x[n:], x_test]
    numbers = [f for f in range(data.x.shape[1]) if f not in data.categorical]
    columns = [[scaled(x[:, numbers], parts[0][:, numbers], scale)] for x in parts]
    for f in data.categorical:
        values = np.unique(parts[0][:, f])
        for x, found in zip(parts, columns, strict=True):
            found.append((x[:, f, None] == values).astype(np.float32))
    ys = [data.y[:n], data.y[n:], y_test]
    xs = [np.ascontiguousarray(np.concatenate(c, axis=1)) for c in columns]
    if data.n_classes is not None:
        return xs, [y.astype(np.int64) for y in ys], data.n_classes, 1.0
    mean, deviation = ys[0].mean(), ys[0].std()
    return xs, [((y - mean) / deviation).astype(np.float32) for y in ys], 1, float(deviation)


def error(net: Any, x: Any, y: Any) -> float:
    """Returns the percentage of wrong labels, or of the variance of targets that is not explained."""
    import torch

    with torch.no_grad():
        scores = torch.cat([net(part) for part in x.split(1000)])
        if y.is_floating_point():
            return 100 * float((scores[:, 0] - y).square().mean() / y.var(correction=0))
        return 100 * float((scores.argmax(dim=1) != y).double().mean())


Job = tuple[str, str, float, Any, int]
"""Table, method, rate, form and seed."""


def train(folders: list[Path], job: Job, rows: int, epochs: int) -> dict[str, Any]:
    """Trains a network, and returns its errors of validation and test at the best epoch."""
    import torch
    from table_networks import METHODS, loss_of

    torch.set_num_threads(1)
    hforest.set_num_threads(1)
    table, name, rate, form, seed = job
    method = METHODS[name]
    xs, ys, n_outputs, _ = arrays(folders, table, method.scale, rows)
    (x, x_val, x_test), (y, y_val, y_test) = ([torch.from_numpy(a) for a in of] for of in (xs, ys))
    torch.manual_seed(seed)
    begin = time.process_time()
    network = method.make(x, y, n_outputs, form)
    net = network.module
    groups = [{"params": g["params"], "lr": rate * g["factor"]} for g in network.groups]
    optimizer = torch.optim.Adam(groups, betas=(0.9, network.beta2), fused=True)
    size = min(BATCH, len(x))
    n_steps = epochs * (len(x) // size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: network.schedule(step / n_steps))
    best, best_epoch, kept = float("inf"), 0, None
    for epoch in range(1 + epochs):
        if epoch:  # before the first epoch the start is validated
            net.train()
            for picked in torch.randperm(len(x))[: len(x) // size * size].split(size):
                loss = loss_of(network, net(x[picked]), y[picked])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        found = error(net.eval(), x_val, y_val)
        if found < best:
            best, best_epoch, kept = found, epoch, copy.deepcopy(net.state_dict())
    seconds = time.process_time() - begin
    net.load_state_dict(kept)
    return {
        "table": table, "method": name, "rate": rate, "form": form, "seed": seed, "validation": best,
        "epoch": best_epoch, "error": error(net, x_test, y_test), "seconds": round(seconds, 2),
        "parameters": sum(p.numel() for p in net.parameters()),
    }  # fmt: skip


def chosen(rows: list[dict[str, Any]], table: str, name: str) -> list[dict[str, Any]]:
    """Returns the rows of the setting whose validation error with seed 0 is smallest."""
    mine = [row for row in rows if (row["table"], row["method"]) == (table, name)]
    top = min((row for row in mine if row["seed"] == 0), key=lambda row: row["validation"])
    return [row for row in mine if (row["rate"], row["form"]) == (top["rate"], top["form"])]


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Trains all settings with seed 0, and the chosen ones with the other seeds."""
    from table_networks import METHODS

    tables, seeds, rows_of = (TABLES[:1], (0,), 600) if args.quick else (TABLES, SEEDS, ROWS)
    epochs = 2 if args.quick else EPOCHS
    rows: list[dict[str, Any]] = []

    def rates(name: str) -> tuple[float, ...]:
        return METHODS[name].rates[1:2] if args.quick else METHODS[name].rates

    with ProcessPoolExecutor(args.jobs) as pool:

        def all_of(jobs: list[Job]) -> None:
            waiting = [pool.submit(train, args.data, job, rows_of, epochs) for job in jobs]
            for future in waiting:
                rows.append(future.result())
                print(rows[-1], flush=True)

        all_of([(t, n, r, METHODS[n].forms[0], 0) for t in tables for n in METHODS for r in rates(n)])
        tops = [chosen(rows, t, n)[0] for t in tables for n in METHODS]
        all_of([(t["table"], t["method"], t["rate"], METHODS[t["method"]].forms[1], 0) for t in tops])
        tops = [chosen(rows, t, n)[0] for t in tables for n in METHODS]
        all_of([(t["table"], t["method"], t["rate"], t["form"], s) for t in tops for s in seeds[1:]])
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Returns Markdown of the test: errors by table and method, then their means and the seconds."""
    tables = [name for name in TABLES if any(row["table"] == name for row in rows)]
    lines = ["| | " + " | ".join(NAMES) + " |", "|---" * (1 + len(NAMES)) + "|"]
    best = {name: [chosen(rows, t, name) for t in tables] for name in NAMES}
    means = {name: [statistics.mean(r["error"] for r in of) for of in best[name]] for name in NAMES}
    for i, t in enumerate(tables):
        cells = []
        for name in NAMES:
            errors = [row["error"] for row in best[name][i]]
            spread = f" ± {statistics.stdev(errors):.1f}" if len(errors) > 1 else ""
            cells.append(f"{means[name][i]:.1f}{spread}")
        lines.append(f"| {t} | {' | '.join(cells)} |")
    ratios = (statistics.geometric_mean(np.divide(means[name], means["MLP"])) for name in NAMES)
    lines.append(f"| error / MLP's, geometric mean | {' | '.join(f'{r:.2f}' for r in ratios)} |")
    seconds = (statistics.mean(row["seconds"] for of in best[name] for row in of) for name in NAMES)
    lines.append(f"| seconds of a training, mean | {' | '.join(f'{s:.0f}' for s in seconds)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", nargs="+", type=Path, help="folders of tables; without it the record is printed"
    )
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--json", type=Path, default=RESULTS / "layer_tables.json")
    args = options_of(parser, "--data {data}", "letter")
    if args.data:
        need("-e '.[bench,torch]'", "torch")
        rows = run(args)
        import torch

        record(args.json, rows, torch=torch.__version__, command=" ".join(sys.argv))
    if args.json.exists():
        print(machine_text())
        print(table(json.loads(args.json.read_text())["rows"]))


if __name__ == "__main__":
    main()
