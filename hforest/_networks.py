"""`python -m hforest`: the networks of Lay et al. 2018, trained with checkpoints."""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import __version__, demo
from ._output import Bar, echo, model_path
from .core import check
from .core.aliases import Array
from .core.outputs import Output, check_outputs
from .demo.files import is_checkpoint, resumed
from .demo.model import Kind, State
from .tabular.evaluation import pictures

NAMES = {"tree": "random hinge forest", "fern": "random hinge ferns"}
NETWORK = {
    "n_trees": 100, "depth": 10, "n_features": 100, "n_kernels": 0, "optimizer": "adam", "batch_size": 53,
    "steps": 8000, "eval_every": 500, "lr": None, "lr_half_life": 0, "held_out": None,
    "checkpoint_seconds": 5.0,
}  # fmt: skip
LEARNING_RATES = {"adam": 0.005, "adagrad": 0.05}
DIGITS = {"steps": 1000, "eval_every": 50, "lr": 0.04, "lr_half_life": 250}
"""Default settings for Adam on the digits."""
PICTURE = "hforest.png"
HELD_OUT = 10
"""The curve shows the error of one in HELD_OUT training rows."""


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings of a network from the options and the values of --set."""
    values = dict(options.set or [])
    for name in ("n_trees", "steps"):
        if getattr(options, name) is not None:
            values[name] = getattr(options, name)
    unknown = sorted(set(values) - set(NETWORK))
    if unknown:
        raise ValueError(f"--set: expected settings of {', '.join(NETWORK)}, got {unknown[0]!r}; correct it")
    optimizer = values.get("optimizer", "adam")
    check.choice("--set optimizer", optimizer, LEARNING_RATES)
    rates = DIGITS if optimizer == "adam" and not options.data else {"lr": LEARNING_RATES[optimizer]}
    settings = NETWORK | rates | values
    check.number("--set checkpoint_seconds", settings["checkpoint_seconds"], 0.0)
    for name, value in settings.items():
        if isinstance(value, int) and abs(value) > check.MAX_COUNT:
            raise ValueError(
                f"--set {name}: expected at most {check.MAX_COUNT}, got {value}; pass a smaller number"
            )
    return settings


def to_device(device: str) -> Callable[[Array], Array]:
    """Returns the function that moves an array to the device."""
    if device == "cpu":
        return lambda a: a
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except ImportError:
        raise SystemExit(
            "--device cuda needs CuPy: pip install -e '.[cuda12]' or '.[cuda13]' in the checkout"
        ) from None
    except Exception as error:  # CuPy raises classes of its own, which cannot be named without it
        raise SystemExit(f"--device cuda needs a working GPU: {error}") from None
    return lambda a: cupy.asarray(a) if isinstance(a, np.ndarray) and a.dtype.kind in "if" else a


def _begin(options: argparse.Namespace, config: demo.Config, data: demo.Data, path: Path | None) -> State:
    """Returns the state of a new run, or that of the checkpoint."""
    if options.resume and path is not None:
        if path.exists():
            state = resumed(path, config, data)
            done = f"already complete, {state['step']} steps are done; a larger --steps goes on"
            echo(
                f"{path}: "
                + (f"going on from step {state['step']}" if state["step"] < config.steps else done)
            )
            return state
        echo(f"{path}: no checkpoint yet, starting from step 0")
    try:
        return demo.start(config, data.x_train.shape[1], data.n_classes)
    except MemoryError as error:
        raise MemoryError(
            f"--n-trees, depth of --set: expected a model that fits into memory, got {config.n_trees} trees "
            f"of depth {config.depth} for {data.n_classes} classes ({error}); lower --n-trees or depth"
        ) from None


class Trained(NamedTuple):
    """Result of a run of one kind."""

    history: dict[str, np.ndarray]
    error: float
    """Error of the last state on the test rows."""
    steps: int
    seconds: float


def _run(
    options: argparse.Namespace, config: demo.Config, learned: demo.Data, data: demo.Data, path: Path | None
) -> Trained:
    """Trains one kind on `learned`, tests it on `data` and writes its checkpoints."""
    place = to_device(options.device)
    state = _begin(options, config, learned, path)
    first, begun, written = state["step"], time.perf_counter(), time.perf_counter()
    state |= {name: place(a) for name, a in state.items() if not name.startswith("history")}
    bar = Bar(NAMES[config.kind], config.steps) if first < config.steps else None

    def checkpoint(state: State) -> None:
        nonlocal written
        step = state["step"]
        # Not at the last step of a run whose end is no multiple of eval_every: a longer run has no evaluation
        # there.
        due = step == config.steps or time.perf_counter() - written > options.settings["checkpoint_seconds"]
        if path is not None and step % config.eval_every == 0 and due:
            demo.save_checkpoint(path, config, state, learned)
            written = time.perf_counter()

    def progress(done: int, total: int) -> None:
        text = ""
        if len(state.get("history_step", ())):
            loss, error = (state[f"history_{name}"][-1] for name in ("loss", "error"))
            text = f"loss {loss:.4f}, {_measured(options)} {100 * error:.2f} %"
        if bar is not None:
            bar(done, text)

    try:
        # Overflow is reported by the check that follows it.
        with np.errstate(over="ignore", invalid="ignore"):
            x_train, y_train, x_held, y_held = (place(a) for a in learned[:4])
            history = demo.train(
                config, state, x_train, y_train, x_held, y_held, checkpoint=checkpoint, progress=progress
            )
            elapsed = time.perf_counter() - begun
            error = demo.error_rate(config, state, place(data.x_test), place(data.y_test))
    except ValueError as caught:
        raise _overflow(caught, options, config, state["step"]) from None
    finally:
        if bar is not None:
            bar.close()
    if path is not None and first < config.steps:
        demo.save_checkpoint(path, config, state, learned)
    return Trained(history, error, state["step"], elapsed)


def _overflow(caught: ValueError, options: argparse.Namespace, config: demo.Config, step: int) -> ValueError:
    """Returns the error of a run whose numbers overflow."""
    # Options and data are checked before the first step: later errors are those of the numbers, but for a
    # learning rate that the dtype of the state does not hold.
    reason = str(caught).partition(";")[0]
    if reason.startswith("lr: "):
        expected = reason.partition(", got ")[0]
        return ValueError(f"--set {expected}, got {config.lr:g}; lower the learning rate")
    if step == 0:
        return ValueError(
            f"{options.data}: expected samples whose sums are in the range of float32, got numbers that "
            f"overflow at the first step ({reason}); scale the columns"
        )
    return ValueError(
        f"--set lr: expected a learning rate with which training converges, got {config.lr:g}, and numbers "
        f"that overflow at step {step + 1} ({reason}); lower the learning rate"
    )


def _measured(options: argparse.Namespace) -> str:
    return "held-out error" if options.held_out else "test error"


def _show(results: dict[str, Trained]) -> None:
    echo(f"\n{'':<20}{'loss':>8}{'test error':>13}{'steps':>8}{'seconds':>9}")
    for name, (history, error, steps, taken) in results.items():
        loss = history["loss"][-1] if len(history["loss"]) else np.nan
        echo(f"{name:<20}{loss:>8.4f}{100 * error:>11.2f} %{steps:>8}{taken:>9.1f}")


def _draw(path: str | None, histories: Mapping[str, Any], measured: str) -> None:
    """Draws loss and error over the steps; without a path to PICTURE, unless a file of others is there."""
    name = path or PICTURE
    try:
        if path is None:
            check_outputs([Output(name, name, "a picture", pictures.is_picture)], {})
        pictures.history(name, histories, measured)
    except ImportError:
        return echo(f"{name}: not drawn, since Matplotlib is not installed (pip install matplotlib)")
    except (OSError, ValueError) as error:
        return echo(f"no picture was drawn: {error}")
    return echo(f"{name}: loss and {measured} over the steps")


def _show_next() -> None:
    python = shlex.quote(sys.orig_argv[0])
    digits = shlex.quote(os.path.relpath(Path(demo.__file__).with_name("digits.npz")))
    echo(
        f"\nyour own table, here the digits: {python} -m hforest --data {digits} --save model.npz"
        f"\nwhat it predicts: {python} -m hforest predict model.npz {digits} --out out.npz"
        "\nnext page: docs/guide.md, or "
        f"{python} -m pydoc hforest.demo"
    )


def train(options: argparse.Namespace) -> int:
    """Trains networks; prints, draws and writes their results; returns the exit status."""
    options.settings = settings_of(options)
    names = [field.name for field in fields(demo.Config) if field.name in options.settings]
    kinds: tuple[Kind, ...] = (options.kind,) if options.kind else ("tree", "fern")
    of_config = {name: options.settings[name] for name in names}
    configs = {kind: demo.Config(kind, **of_config, seed=options.seed) for kind in kinds}
    echo(
        f"hforest {__version__} trains on {options.data or 'optical digits, 8x8 (UCI)'}: "
        f"{', '.join(NAMES[kind] for kind in kinds)}; each {of_config['n_trees']} of depth "
        f"{of_config['depth']}, in {of_config['steps']} steps"
    )
    paths: dict[Kind, Path | None] = dict.fromkeys(kinds)
    if options.save is not None:
        paths = {kind: model_path(options.save, kind if len(kinds) > 1 else "") for kind in kinds}
    # With --resume the whole file is read and checked before it is used.
    older = None if options.resume else is_checkpoint
    outputs = [Output("--save", path, "a checkpoint", older) for path in paths.values() if path]
    if isinstance(options.plot, str):
        with suppress(ImportError):
            pictures.check_picture(options.plot)
        outputs.append(Output("--plot", options.plot, "a picture", pictures.is_picture))
    check_outputs(outputs, {"--data": options.data})
    data = demo.load_data(options.data, n_train=options.train) if options.data else demo.load_digits()
    held_out = options.settings["held_out"]
    n_held = len(data.x_train) // HELD_OUT if held_out is None else held_out
    options.held_out = check.integer("--set held_out", n_held, 0, len(data.x_train) - 1)
    learned = demo.hold_out(data, options.held_out, rng=options.seed) if options.held_out else data
    # Each run reads its checkpoint itself; one that cannot go on is noticed before the first run.
    for kind, path in list(paths.items())[1:]:
        if options.resume and path is not None and path.exists():
            resumed(path, configs[kind], learned)
    echo(
        f"{len(data.x_train)} training and {len(data.x_test)} test samples, {data.x_train.shape[1]} inputs, "
        f"{data.n_classes} classes; {options.held_out} training samples are held out"
    )
    results = {NAMES[kind]: _run(options, configs[kind], learned, data, paths[kind]) for kind in kinds}
    _show(results)
    if options.plot or (options.plot is None and not options.data):
        _draw(options.plot, {name: run.history for name, run in results.items()}, _measured(options))
    if not options.data:
        _show_next()
    return 0
