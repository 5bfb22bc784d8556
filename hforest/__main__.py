"""`python -m hforest`: trains a random hinge forest and random hinge ferns on handwritten digits.

The network is that of Lay et al. 2018, Fig. 2b (letter, USPS); the data ship with the package. A tenth of the
training rows is held out: the error on these rows is shown while the network learns from the others. The test
rows are read once, after the last step. Steps and learning rate were chosen on training rows alone
(bench/main_job.py). With --data the recipe for tables (`hforest.tabular`) is fitted, or with --kind tree or
fern a network. `python -m hforest predict` applies the model that either has written.
"""

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import __version__, _interrupts, _output, _readers, _tables, demo
from .core import check
from .core.aliases import Array
from .demo.files import is_checkpoint
from .demo.model import Kind, State

NAMES = {"tree": "random hinge forest", "fern": "random hinge ferns"}
NETWORK = {
    "n_trees": 100, "depth": 10, "n_features": 100, "batch_size": 53, "steps": 8000, "eval_every": 500,
    "lr_half_life": 0,
}  # fmt: skip
LEARNING_RATES = {"adam": 0.005, "adagrad": 0.05}
DIGITS = {"steps": 1000, "eval_every": 50, "lr": 0.04, "lr_half_life": 250}
"""Default settings for Adam on the digits."""
HELD_OUT = 10
"""The curve shows the error of one in HELD_OUT training rows."""

EXAMPLES = """
examples:
  python -m hforest                                           both kinds on the digits
  python -m hforest --data people.csv --target income --save model.npz    your own table
  python -m hforest predict model.npz new.csv --out predicted.csv         its predictions for other rows

`python -m hforest predict --help` describes the last one. Tables are CSV (also .gz), Parquet, or .npz
archives with arrays x and y. In a CSV file empty fields, ?, NA, N/A, #N/A, NaN, nan, null, NULL and None are
missing values.
"""


def count(text: str) -> int:
    """Returns a size of an array from the command line; its lower bound is checked at its use."""
    value = int(text)
    if value > check.MAX_COUNT:
        raise argparse.ArgumentTypeError(
            f"expected at most {check.MAX_COUNT}, got {text}; pass a smaller number"
        )
    return value


def seconds(text: str) -> float:
    """Returns a duration from the command line."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise argparse.ArgumentTypeError(
            f"expected a number of seconds of at least 0, got {text}; 0 writes a checkpoint after every "
            "evaluation"
        )
    return value


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m hforest",
        description="Train a random hinge forest and random hinge ferns on digits, or on your data; with the "
        "word predict first, apply what was trained.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--version", action="version", version=f"hforest {__version__}")
    add(
        "--data",
        metavar="FILE",
        help="a CSV or Parquet file with --target, or an .npz archive: x_train, y_train, x_test, y_test, or "
        "x and y with --train; labels of any kind",
    )
    add("--target", metavar="NAME", help="the column of a CSV or Parquet file that is to be predicted")
    add("--drop", metavar="NAME", nargs="+", help="columns that are left out, such as numbers of rows")
    add(
        "--no-header",
        action="store_true",
        help="the first line of a CSV file has values; columns are called 0, 1, ...",
    )
    add(
        "--train",
        type=int,
        metavar="N",
        help="with x and y: the first N rows to train on, the rest to test on",
    )
    add(
        "--kind",
        choices=("table", "tree", "fern"),
        help="the recipe for tables (the default with --data), or the network with trees or ferns (both by "
        "default without --data)",
    )
    add(
        "--task",
        choices=("classification", "regression"),
        help="what y is, for a table (by default regression where y has numbers that are not whole, or where "
        "a column of a file has more than 20 different numbers)",
    )
    add(
        "--n-trees",
        "--trees",
        type=count,
        metavar="N",
        help="trees or ferns (100; of each of three members of a table 50)",
    )
    add("--depth", type=count, help="decisions on a path (10; of a table 6, in a regression 4)")
    add(
        "--n-features",
        "--features",
        type=count,
        metavar="N",
        help="learned inner-product features (100; of a table 300)",
    )
    add(
        "--n-kernels",
        "--kernels",
        type=count,
        metavar="N",
        default=0,
        help="learned 5x5 convolutions of square images instead of inner products",
    )
    add("--optimizer", choices=("adam", "adagrad"), default="adam", help="(%(default)s)")
    add("--lr", type=float, help="learning rate (0.005, on the digits 0.04; adagrad 0.05; of a table 0.012)")
    add(
        "--lr-half-life",
        type=int,
        metavar="STEPS",
        help="steps in which the learning rate halves; 0: never (on the digits by adam 250, else 0)",
    )
    add(
        "--batch-size",
        "--batch",
        type=int,
        metavar="N",
        help="samples of a mini-batch (53; of a table 128)",
    )
    add(
        "--steps",
        type=int,
        help="mini-batches (8000, on the digits by adam 1000; of each of three members of a table by its "
        "rows, at most 1500)",
    )
    add("--eval-every", type=int, metavar="STEPS", help="steps between evaluations (500, on the digits 50)")
    add(
        "--held-out",
        type=int,
        metavar="N",
        help="training rows that are held out for the curve of the error (a tenth); 0: learn from all, and "
        "look at the test rows at each evaluation",
    )
    add("--seed", type=int, default=0, help="(%(default)s)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="(%(default)s)")
    add("--save", metavar="MODEL.npz", help="write checkpoints and the final state to this file")
    add(
        "--checkpoint-seconds", type=seconds, default=5.0, help="least time between checkpoints (%(default)s)"
    )
    add("--resume", action="store_true", help="go on from the file of --save")
    add(
        "--plot",
        metavar="PLACE",
        help="of a table: draw importances, calibration and confusion, or residuals, in this folder; of a "
        "network: draw loss and error in this file (on the digits hforest.png, if it is new); needs "
        "Matplotlib",
    )
    add("--no-plot", dest="plot", action="store_false", default=None, help="draw nothing")
    options = parser.parse_args(arguments)
    if options.resume and options.save is None:
        parser.error("--resume needs --save MODEL.npz, the checkpoint to continue from")
    if options.kind is None and options.data:
        options.kind = "table"
    if options.kind == "table":
        if not options.data:
            parser.error("--kind table needs --data FILE")
        if isinstance(options.plot, str) and Path(options.plot).suffix.lower() in _output.PICTURE_SUFFIXES:
            parser.error(
                "--plot FILE is for networks: pass --kind tree or fern, or the path of a folder for a table"
            )
        for name in ("resume", "n_kernels", "held_out", "lr_half_life", "eval_every"):
            if getattr(options, name):
                parser.error(f"--{name.replace('_', '-')} is for networks: pass --kind tree or fern")
        if options.device != "cpu" or options.optimizer != "adam":
            parser.error("tables are fitted on the CPU by Adam: pass --kind tree or fern for a network")
        return options
    for name in ("task", "target", "drop", "no_header"):
        if getattr(options, name):
            parser.error(f"--{name.replace('_', '-')} is for tables: leave it out, or pass --kind table")
    defaults = NETWORK | {"lr": LEARNING_RATES[options.optimizer]}
    if options.optimizer == "adam" and not options.data:
        defaults |= DIGITS
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def network(options: argparse.Namespace, kind: Kind) -> demo.Config:
    """Returns the settings of one kind."""
    names = [field.name for field in fields(demo.Config)]
    names = [name for name in names if name not in ("kind", "leaves", "task")]
    return demo.Config(kind, **{name: getattr(options, name) for name in names})


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


def saved(config: demo.Config, data: demo.Data, path: Path) -> State:
    """Returns the state of a checkpoint of the same run: of equal options, classes and data."""
    checkpoint = demo.load_checkpoint(path)
    wanted, got = asdict(config), asdict(checkpoint.config)
    others = [f"{k} {got[k]} (now {wanted[k]})" for k in wanted if k != "steps" and wanted[k] != got[k]]
    if others:
        raise ValueError(
            f"{path}: expected a run with the same options, got {', '.join(others)}; repeat the options of "
            "that run"
        )
    if not _same(checkpoint.classes, data.classes):
        raise ValueError(
            f"{path}: expected a run on the same classes, got a run on {_shown(checkpoint.classes)} (now "
            f"{_shown(data.classes)}); check --data"
        )
    if checkpoint.fingerprint != data.fingerprint:
        raise ValueError(
            f"{path}: expected a run on the same data, got a run on other data; check --data, --train and "
            "--held-out"
        )
    return checkpoint.state


def begin(options: argparse.Namespace, config: demo.Config, data: demo.Data, path: Path | None) -> State:
    """Returns the state of a new run, or that of the checkpoint."""
    if options.resume and path is not None:
        if path.exists():
            state = saved(config, data, path)
            if state["step"] < config.steps:
                print(f"{path}: going on from step {state['step']}")
            else:
                print(
                    f"{path}: already complete, {state['step']} steps are done and --steps is "
                    f"{config.steps}; a larger number goes on"
                )
            return state
        print(f"{path}: no checkpoint yet, starting from step 0")
    try:
        return demo.start(config, data.x_train.shape[1], data.n_classes)
    except MemoryError as error:
        raise MemoryError(
            "--n-trees, --depth: expected a model that fits into memory, got "
            f"{config.n_trees} trees of depth {config.depth} for {data.n_classes} classes "
            f"({error}); lower --n-trees or --depth"
        ) from None


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    # Integers of every dtype are of one kind.
    kinds = {"i" if classes.dtype.kind == "u" else classes.dtype.kind for classes in (a, b)}
    return len(kinds) == 1 and a.tolist() == b.tolist()


def _shown(classes: np.ndarray) -> str:
    first = ", ".join(repr(label.item()) for label in classes[:10])
    return f"{first}, ... ({len(classes)} classes)" if len(classes) > 10 else first


class Trained(NamedTuple):
    """Result of a run of one kind."""

    history: dict[str, np.ndarray]
    error: float
    """Error of the last state on the test rows."""
    steps: int
    seconds: float


def run(
    options: argparse.Namespace, config: demo.Config, learned: demo.Data, data: demo.Data, path: Path | None
) -> Trained:
    """Trains one kind on `learned`, tests it on `data` and writes its checkpoints."""
    place = to_device(options.device)
    state = begin(options, config, learned, path)
    first, begun, written = state["step"], time.perf_counter(), time.perf_counter()
    state |= {name: place(a) for name, a in state.items() if not name.startswith("history")}
    bar = _output.Bar(NAMES[config.kind], config.steps, first) if first < config.steps else None

    def checkpoint(state: State) -> None:
        nonlocal written
        step = state["step"]
        # Not at the last step of a run whose end is no multiple of eval_every: a longer run has no evaluation
        # there.
        due = step == config.steps or time.perf_counter() - written > options.checkpoint_seconds
        if path is not None and step % config.eval_every == 0 and due:
            demo.save_checkpoint(path, config, state, learned)
            written = time.perf_counter()

    def progress(done: int, total: int) -> None:
        text = ""
        if len(state.get("history_step", ())):
            loss, error = (state[f"history_{name}"][-1] for name in ("loss", "error"))
            text = f"loss {loss:.4f}, {measured(options)} {100 * error:.2f} %"
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
        # Options and data are checked before the first step: later errors are those of the numbers, but for
        # a learning rate that the dtype of the state does not hold.
        reason = str(caught).partition(";")[0]
        if reason.startswith("lr: "):
            expected = reason.partition(", got ")[0]
            raise ValueError(f"--{expected}, got {config.lr:g}; lower the learning rate") from None
        if state["step"] == 0:
            raise ValueError(
                f"{options.data}: expected samples whose sums are in the range of float32, got numbers "
                "that overflow at "
                f"the first step ({reason}); scale the columns"
            ) from None
        raise ValueError(
            f"--lr: expected a learning rate with which training converges, got {config.lr:g}, and numbers "
            f"that overflow at step {state['step'] + 1} ({reason}); lower the learning rate"
        ) from None
    finally:
        if bar is not None:
            bar.close()
    if path is not None and first < config.steps:
        demo.save_checkpoint(path, config, state, learned)
    return Trained(history, error, state["step"], elapsed)


def measured(options: argparse.Namespace) -> str:
    """Returns a description of the error in the curve."""
    return "held-out error" if options.held_out else "test error"


def show(results: dict[str, Trained]) -> None:
    """Prints the results, a row for each kind."""
    print(f"\n{'':<20}{'loss':>8}{'test error':>13}{'steps':>8}{'seconds':>9}")
    for name, (history, error, steps, taken) in results.items():
        loss = history["loss"][-1] if len(history["loss"]) else np.nan
        print(f"{name:<20}{loss:>8.4f}{100 * error:>11.2f} %{steps:>8}{taken:>9.1f}")


def show_next() -> None:
    """Prints suggestions for next commands."""
    python = shlex.quote(sys.orig_argv[0])
    digits = shlex.quote(os.path.relpath(Path(demo.__file__).with_name("digits.npz")))
    print(
        f"\nyour own table, here the digits: {python} -m hforest --data {digits} --save model.npz"
        f"\nwhat it predicts: {python} -m hforest predict model.npz {digits} --out out.npz"
        f"\nnext page: docs/guide.md, or {python} -m pydoc hforest.demo"
    )


def open_streams() -> None:
    """Opens the standard streams that the caller has closed, so that files do not get their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def drop_output() -> None:
    """Discards output that is still pending for a closed pipe, so that the exit is quiet."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command.

    Returns 0 on success, 2 for bad input or a full disk, 130 after an interrupt, and 141 (as after SIGPIPE)
    if the reader of its output has closed the pipe.
    """
    open_streams()
    status = 0
    try:
        try:
            status = work(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
        return 128 + getattr(signal, "SIGPIPE", 13)  # Windows has none
    except OSError as error:  # a full disk, which may have stopped the work before
        drop_output()
        if not status:
            print(f"error: {error}", file=sys.stderr)
        return status or 2
    return status


def train(options: argparse.Namespace) -> None:
    """Trains networks; prints, draws and writes their results."""
    kinds: tuple[Kind, ...] = (options.kind,) if options.kind else ("tree", "fern")
    configs = {kind: network(options, kind) for kind in kinds}
    names = ", ".join(NAMES[kind] for kind in kinds)
    print(
        f"hforest {__version__} trains on {options.data or 'optical digits, 8x8 (UCI)'}: {names}; each "
        f"{options.n_trees} of depth {options.depth}, in {options.steps} steps",
        flush=True,
    )
    paths: dict[Kind, Path | None] = dict.fromkeys(kinds)
    if options.save is not None:
        paths = {kind: _output.model_path(options.save, kind if len(kinds) > 1 else "") for kind in kinds}
    # With --resume the whole file is read and checked before it is used.
    older = None if options.resume else is_checkpoint
    outputs = [_output.Output("--save", path, "a checkpoint", older) for path in paths.values() if path]
    if isinstance(options.plot, str):
        _output.check_picture(options.plot)
        outputs.append(_output.Output("--plot", options.plot, "a picture", _output.is_picture))
    _output.check_outputs(outputs, {"--data": options.data})
    data = demo.load_data(options.data, n_train=options.train) if options.data else demo.load_digits()
    if options.held_out is None:
        options.held_out = len(data.x_train) // HELD_OUT
    check.integer("--held-out", options.held_out, 0, len(data.x_train) - 1)
    learned = demo.hold_out(data, options.held_out, rng=options.seed) if options.held_out else data
    # Each run reads its checkpoint itself; one that cannot go on is noticed before the first run.
    for kind, path in list(paths.items())[1:]:
        if options.resume and path is not None and path.exists():
            saved(configs[kind], learned, path)
    print(
        f"{len(data.x_train)} training and {len(data.x_test)} test samples, {data.x_train.shape[1]} inputs, "
        f"{data.n_classes} classes; {options.held_out} training samples are held out"
    )
    results = {NAMES[kind]: run(options, configs[kind], learned, data, paths[kind]) for kind in kinds}
    show(results)
    if options.plot or (options.plot is None and not options.data):
        _output.draw(
            options.plot, {name: result.history for name, result in results.items()}, measured(options)
        )
    if not options.data:
        show_next()


def work(arguments: list[str] | None) -> int:
    """Runs the command without the handling of standard streams in `main`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    predicts = arguments[:1] == ["predict"]
    options = _tables.parse_predict(arguments[1:]) if predicts else parse(arguments)
    try:
        tables = predicts or options.kind == "table"
        if options.data and not (tables and _readers.has_columns(options.data)):
            _output.check_archive(options.data)
        if predicts:
            return _tables.predict(options)
        if options.kind == "table":
            return _tables.train(options)
        train(options)
    except BrokenPipeError:
        raise
    except (TypeError, ValueError, IndexError, OverflowError, OSError, ImportError, MemoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        resumes = not predicts and options.kind != "table" and options.save
        print(
            "\ninterrupted; "
            + ("--resume goes on from the last checkpoint" if resumes else "nothing was saved")
        )
        return 130
    return 0


if __name__ == "__main__":
    _interrupts.imported()
    sys.exit(main())
