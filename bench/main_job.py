"""Selects steps and learning rate of `python -m hforest` on held-out rows, and measures its test errors.

    python bench/main_job.py [--steps 1000 2000] [--lr 0.01 0.02 0.04] [--halvings 0 2 4] [--json FILE]
    python bench/main_job.py --test [--json FILE]

The first command reads only the training rows. It divides them into five parts. For each number of steps,
first learning rate and number of halvings of the rate it trains each kind on four parts, with the fifth held
out. "Held-out error" is that of the last state, a mean over the parts; "moves" is the standard deviation of
the held-out errors over the last quarter of a run, evaluated every 25 steps, a mean over parts and kinds. The
second command runs what `python -m hforest` does, with seeds 0 to 4, and prints the test error of each last
state.
"""

import argparse
import itertools
import statistics
import sys
import time
from dataclasses import fields
from typing import Any

import numpy as np
from common import Bar, machine_text, options_of, record

import hforest
from hforest import __main__ as command
from hforest import _networks, demo

N_PARTS = N_SEEDS = 5
EVERY = 25
KINDS: tuple[Any, ...] = ("tree", "fern")


def held_out_errors(data: demo.Data, config: demo.Config) -> np.ndarray:
    """Returns the errors on a part of the training rows, picked by the seed, during a run on the others."""
    order = np.random.default_rng(0).permutation(len(data.x_train))
    held = order[config.seed :: N_PARTS]
    kept = np.setdiff1d(order, held)
    x, y = data.x_train, data.y_train
    state = demo.start(config, x.shape[1], data.n_classes)
    return demo.train(config, state, x[kept], y[kept], x[held], y[held])["error"]


def choose(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints and returns the errors of each setting on held-out rows."""
    data, rows = demo.load_digits(), []
    settings = list(itertools.product(options.steps, options.lr, options.halvings))
    print("| steps | lr | half-life | trees | ferns | both | standard error | moves |")
    print("|---|---|---|---|---|---|---|---|")
    with Bar("settings") as bar:
        for i, (steps, lr, halvings) in enumerate(settings):
            half_life = steps // halvings if halvings else 0
            sizes: dict[str, Any] = {"lr": lr, "lr_half_life": half_life, "steps": steps, "eval_every": EVERY}
            errors = [
                [held_out_errors(data, demo.Config(kind, seed=part, **sizes)) for part in range(N_PARTS)]
                for kind in KINDS
            ]
            percent = 100 * np.array(errors)
            last, late = percent[..., -1], percent[..., -(percent.shape[2] // 4) :]
            both = last.mean(axis=0)
            figures = (
                *last.mean(axis=1),
                both.mean(),
                both.std(ddof=1) / N_PARTS**0.5,
                late.std(axis=2).mean(),
            )
            print(
                f"| {steps} | {lr} | {half_life} | " + " | ".join(f"{a:.2f}" for a in figures) + " |",
                flush=True,
            )
            names = ("trees", "ferns", "both", "standard_error", "moves")
            rows.append(
                {"steps": steps, "lr": lr, "lr_half_life": half_life}
                | {name: round(float(a), 3) for name, a in zip(names, figures, strict=True)}
            )
            bar(i + 1, len(settings))
    return rows


def test() -> list[dict[str, Any]]:
    """Prints and returns the test errors of what `python -m hforest` does."""
    data, rows = demo.load_digits(), []
    for kind, seed in itertools.product(KINDS, range(N_SEEDS)):
        settings = _networks.settings_of(command.parse(["--seed", str(seed)]))
        names = [field.name for field in fields(demo.Config) if field.name in settings]
        config = demo.Config(kind, **{name: settings[name] for name in names}, seed=seed)
        held = demo.hold_out(data, len(data.x_train) // _networks.HELD_OUT, rng=seed)
        state = demo.start(config, data.x_train.shape[1], data.n_classes)
        begin = time.perf_counter()
        history = demo.train(config, state, *held[:4])
        taken = time.perf_counter() - begin
        error = demo.error_rate(config, state, data.x_test, data.y_test)
        rows.append(
            {"kind": kind, "seed": seed, "held_out": history["error"][-1], "test": error, "seconds": taken}
        )
        print(f"{kind}, seed {seed}: test error {100 * error:.2f} %, {taken:.2f} s")
    for kind in (*KINDS, "both"):
        found = [100 * row["test"] for row in rows if kind in (row["kind"], "both")]
        print(f"{kind}: mean test error {statistics.mean(found):.2f} %, {min(found):.2f} to {max(found):.2f}")
    return rows


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, nargs="+", default=[1000, 2000])
    parser.add_argument("--lr", type=float, nargs="+", default=[0.01, 0.02, 0.04])
    parser.add_argument("--halvings", type=int, nargs="+", default=[0, 2, 4])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--test", action="store_true", help="read the test rows")
    parser.add_argument("--json", metavar="FILE")
    options = options_of(parser, "--steps 25 --lr 0.01 --halvings 0")
    hforest.set_num_threads(options.threads)
    print(machine_text())
    rows = test() if options.test else choose(options)
    if options.json:
        record(options.json, rows, command=" ".join(sys.argv))


if __name__ == "__main__":
    main()
