"""`python -m hforest`: trains a random hinge forest and random hinge ferns on handwritten digits.

The network is p1 Fig. 2b (letter, USPS); the data ship with the package. With --data it is the recipe for
tables (`hforest.tabular`) that is fitted, or with --kind tree or fern a network. `python -m hforest predict`
applies the model that either has written.
"""

import argparse
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from . import _tables, demo
from .core import check, files
from .core.aliases import Array
from .demo.files import is_checkpoint
from .demo.model import Kind, State

NAMES = {"tree": "random hinge forest", "fern": "random hinge ferns"}
NETWORK = {"n_trees": 100, "depth": 10, "n_features": 100, "batch_size": 53, "steps": 8000}
LEARNING_RATES = {"adam": 0.005, "adagrad": 0.05}


def count(text: str) -> int:
    """A size of an array on the command line; its lower bound is checked where it is used."""
    value = int(text)
    if value > check.MAX_COUNT:
        raise argparse.ArgumentTypeError(
            f"expected at most {check.MAX_COUNT}, got {text}; pass a smaller number"
        )
    return value


def seconds(text: str) -> float:
    """A duration on the command line."""
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
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m hforest",
        description="Train a random hinge forest and random hinge ferns on digits, or on your data.",
    )
    add = parser.add_argument
    add(
        "--data",
        metavar="FILE.npz",
        help="x_train, y_train, x_test, y_test, or x and y with --train; labels of any kind",
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
        help="what y is, for a table (by default regression where y has numbers that are not whole)",
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
    add("--lr", type=float, help="learning rate (0.005 for adam, 0.05 for adagrad, of a table 0.006)")
    add(
        "--batch-size",
        "--batch",
        type=int,
        metavar="N",
        help="samples of a mini-batch (53; of a table 64)",
    )
    add("--steps", type=int, help="mini-batches (8000; of a table by its rows, at most 3000)")
    add("--eval-every", type=int, default=500, help="steps between evaluations on the test set (%(default)s)")
    add("--seed", type=int, default=0, help="(%(default)s)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="(%(default)s)")
    add("--save", metavar="MODEL.npz", help="write checkpoints and the final state to this file")
    add(
        "--checkpoint-seconds", type=seconds, default=5.0, help="least time between checkpoints (%(default)s)"
    )
    add("--resume", action="store_true", help="go on from the file of --save")
    add("--plot", metavar="LOSS.png", help="draw loss and test error (needs matplotlib)")
    options = parser.parse_args(arguments)
    if options.resume and options.save is None:
        parser.error("--resume needs --save MODEL.npz, the file to go on from")
    if options.kind is None and options.data:
        options.kind = "table"
    if options.kind == "table":
        if not options.data:
            parser.error("--kind table needs --data FILE.npz")
        for name in ("resume", "plot", "n_kernels"):
            if getattr(options, name):
                parser.error(f"--{name.replace('_', '-')} belongs to a network: pass --kind tree or fern")
        if options.device != "cpu" or options.optimizer != "adam":
            parser.error("tables are fitted on the CPU by Adam: pass --kind tree or fern for a network")
        return options
    if options.task is not None:
        parser.error("--task belongs to a table: leave it out, or pass --kind table")
    for name, value in NETWORK.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.lr is None:
        options.lr = LEARNING_RATES[options.optimizer]
    return options


def to_device(device: str) -> Callable[[Array], Array]:
    """Returns the function that moves an array to the device."""
    if device == "cpu":
        return lambda a: a
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except ImportError:
        raise SystemExit(
            "--device cuda needs CuPy: pip install 'hforest[cuda12]' or 'hforest[cuda13]'"
        ) from None
    except Exception as error:  # CuPy raises classes of its own, which cannot be named without it
        raise SystemExit(f"--device cuda needs a working GPU: {error}") from None
    return lambda a: cupy.asarray(a) if isinstance(a, np.ndarray) and a.dtype.kind in "if" else a


class Display:
    """Shows progress and the last evaluation, in tqdm's bar or, without tqdm, a line for each evaluation."""

    def __init__(self, name: str, state: State, total: int) -> None:
        self._name, self._state, self._first = name, state, state["step"]
        self._n_shown, self._begin = len(state.get("history_step", ())), time.perf_counter()
        try:
            from tqdm import tqdm

            self._bar = tqdm(total=total, initial=self._first, desc=name, unit="step", mininterval=0.2)
        except ImportError:
            self._bar = None

    def __call__(self, done: int, total: int) -> None:
        """Shows that `done` of `total` steps are finished."""
        n_known = len(self._state.get("history_step", ()))
        if n_known > self._n_shown:
            self._n_shown = n_known
            loss, error = (self._state[f"history_{name}"][-1] for name in ("loss", "error"))
            text = f"loss {loss:.4f}, test error {100 * error:.2f} %"
            if self._bar is not None:
                self._bar.set_postfix_str(text, refresh=False)
            else:
                rate = (done - self._first) / (time.perf_counter() - self._begin)
                print(f"{self._name}: step {done} of {total}, {text}, {rate:.0f} steps/s", flush=True)
        if self._bar is not None:
            self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Ends the bar's line."""
        if self._bar is not None:
            self._bar.close()


def checkpoint_path(save: str | None, kind: str, both: bool) -> Path | None:
    """The model file of a kind: of model.npz, model.tree.npz and model.fern.npz when both are trained."""
    if save is None:
        return None
    path = Path(save)
    if not path.name or save.endswith(os.sep) or path.is_dir():
        raise IsADirectoryError(f"--save: expected the path of a file, got the folder {save!r}; add a name")
    return path.with_name(f"{path.stem}.{kind}{path.suffix or '.npz'}") if both else path


def _same_file(a: str | Path, b: str | Path) -> bool:
    return os.path.realpath(a) == os.path.realpath(b) or (
        os.path.exists(a) and os.path.exists(b) and os.path.samefile(a, b)
    )


def check_outputs(options: argparse.Namespace, saves: list[Path]) -> None:
    """Checks, before any work, that every output can be written and replaces nothing but older output."""
    outputs: list[tuple[str, str | Path]] = [("--save", path) for path in saves]
    if options.plot is not None:
        outputs.append(("--plot", options.plot))
        check_picture(options.plot)
    for name, path in outputs:
        if options.data and _same_file(path, options.data):
            raise ValueError(f"{name}: expected another file than --data, got {path}; choose another path")
    for (name, path), (other, taken) in itertools.combinations(outputs, 2):
        if _same_file(path, taken):
            raise ValueError(
                f"{other}: expected another file than {name} writes, got {taken}; choose another path"
            )
    for name, path in outputs:
        files.check_writable(path)
        # With --resume the whole file is read and checked before it is used.
        if name == "--save" and not options.resume and os.path.exists(path) and not is_checkpoint(path):
            raise ValueError(
                f"--save: expected a new file or a checkpoint written by hforest, got {path}, another or a "
                "damaged file; choose another path, or remove that file"
            )


def check_picture(path: str) -> None:
    """Checks that matplotlib, where it is installed, can draw to a file of that name."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError:
        return
    known = FigureCanvasAgg.get_supported_filetypes()
    if _picture_format(path) not in known:
        raise ValueError(
            f"--plot: expected a picture that ends in .{', .'.join(sorted(known))}, got {path}; rename it"
        )


def _picture_format(path: str) -> str:
    return Path(path).suffix[1:].lower() or "png"


def saved(config: demo.Config, data: demo.Data, path: Path) -> State:
    """Returns the state of a checkpoint of the same run: of equal options, classes and data."""
    found = demo.load_checkpoint(path)
    wanted, got = asdict(config), asdict(found.config)
    others = [f"{k} {got[k]} (now {wanted[k]})" for k in wanted if k != "steps" and wanted[k] != got[k]]
    if others:
        raise ValueError(
            f"{path}: expected a run with the same options, got {', '.join(others)}; use the old ones"
        )
    if not _same(found.classes, data.classes):
        raise ValueError(
            f"{path}: expected a run on the same classes, got one on {_shown(found.classes)} (now "
            f"{_shown(data.classes)}); check --data"
        )
    if found.fingerprint != data.fingerprint:
        raise ValueError(
            f"{path}: expected a run on the same data, got one on other data; check --data and --train"
        )
    return found.state


def begin(options: argparse.Namespace, config: demo.Config, data: demo.Data, path: Path | None) -> State:
    """Returns a new run's state, or that of the checkpoint."""
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


def run(
    options: argparse.Namespace, config: demo.Config, data: demo.Data, path: Path | None
) -> dict[str, np.ndarray]:
    """Trains one kind, prints its line and returns its history."""
    place = to_device(options.device)
    state = begin(options, config, data, path)
    first, begun, written = state["step"], time.perf_counter(), time.perf_counter()
    if first >= config.steps:
        history = {name: state.get(f"history_{name}", np.zeros(0)) for name in ("step", "loss", "error")}
        print(summary(config, history))
        return history
    state |= {name: place(a) for name, a in state.items() if not name.startswith("history")}

    def checkpoint(state: State) -> None:
        nonlocal written
        step = state["step"]
        # Not at the last step of a run whose end is no multiple of eval_every: a longer run has no evaluation
        # there.
        due = step == config.steps or time.perf_counter() - written > options.checkpoint_seconds
        if path is not None and step % config.eval_every == 0 and due:
            demo.save_checkpoint(path, config, state, data)
            written = time.perf_counter()

    display = Display(NAMES[config.kind], state, config.steps)
    try:
        x_train, y_train, x_test, y_test = (place(a) for a in data[:4])
        # Overflow is reported by the check that follows it.
        with np.errstate(over="ignore", invalid="ignore"):
            history = demo.train(
                config, state, x_train, y_train, x_test, y_test, checkpoint=checkpoint, progress=display
            )
    except ValueError as error:
        # Options and data are checked before the first step: later errors are those of the numbers, but for
        # a learning rate that the dtype of the state does not hold.
        found = str(error).partition(";")[0]
        if found.startswith("lr: "):
            raise ValueError(f"--{found}; lower the learning rate") from None
        if state["step"] == 0:
            raise ValueError(
                f"{options.data}: expected samples whose sums float32 can hold, got numbers that overflow at "
                f"the first step ({found}); scale the columns"
            ) from None
        raise ValueError(
            f"--lr: expected a learning rate with which training converges, got {config.lr:g}, and numbers "
            f"that overflow at step {state['step'] + 1} ({found}); lower the learning rate"
        ) from None
    finally:
        display.close()
    elapsed = time.perf_counter() - begun
    if path is not None:
        demo.save_checkpoint(path, config, state, data)
    print(f"{summary(config, history)}, {elapsed:.1f} s, {(config.steps - first) / elapsed:.0f} steps/s")
    return history


def summary(config: demo.Config, history: dict[str, np.ndarray]) -> str:
    """The result of one kind, in words."""
    text = f"{NAMES[config.kind]}: {config.n_trees} of depth {config.depth}"
    if not len(history["step"]):
        return f"{text}, no evaluation yet"
    best = int(np.argmin(history["error"]))
    return (
        f"{text}, test error {100 * history['error'][-1]:.2f} % after {int(history['step'][-1])} steps "
        f"(least of {len(history['error'])} evaluations: {100 * history['error'][best]:.2f} % "
        f"at step {int(history['step'][best])})"
    )


def plot(path: str, histories: dict[Kind, dict[str, np.ndarray]]) -> None:
    """Draws loss and test error over the steps."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        print("--plot: matplotlib is not installed, so no picture was drawn (pip install matplotlib)")
        return
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for kind, history in histories.items():
        left.semilogy(history["step"], history["loss"], label=NAMES[kind])
        right.plot(history["step"], 100 * history["error"], label=NAMES[kind])
    left.set(xlabel="step", ylabel="training loss")
    right.set(xlabel="step", ylabel="test error in %")
    right.legend()
    with files.replacing(path) as stream:
        figure.savefig(stream, dpi=150, format=_picture_format(path))
    pyplot.close(figure)
    print(f"{path}: written")


def open_streams() -> None:
    """Opens the standard streams that the caller has closed: a file must not get their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def drop_output() -> None:
    """Sends what is still to be written to a closed pipe nowhere, so that the exit is quiet."""
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

    Returns 0 when all went well, 2 for bad input, 130 when interrupted, and 141 (like a process that SIGPIPE
    ended) when nobody reads its output any more.
    """
    open_streams()
    try:
        try:
            return work(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
        return 128 + getattr(signal, "SIGPIPE", 13)  # Windows has none
    except OSError as error:  # a full disk
        drop_output()
        print(f"error: {error}", file=sys.stderr)
        return 2


def work(arguments: list[str] | None) -> int:
    """`main` without its care of the standard streams."""
    arguments = sys.argv[1:] if arguments is None else arguments
    predicts = arguments[:1] == ["predict"]
    options = _tables.parse_predict(arguments[1:]) if predicts else parse(arguments)
    try:
        if predicts:
            return _tables.predict(options)
        if options.kind == "table":
            return _tables.train(options)
        kinds: tuple[Kind, ...] = (options.kind,) if options.kind else ("tree", "fern")
        paths = {kind: checkpoint_path(options.save, kind, len(kinds) > 1) for kind in kinds}
        check_outputs(options, [path for path in paths.values() if path is not None])
        data = demo.load_data(options.data, n_train=options.train) if options.data else demo.load_digits()
        source = options.data or "optical digits, 8x8 (UCI)"
        config = demo.Config(
            n_trees=options.n_trees,
            depth=options.depth,
            n_features=options.n_features,
            n_kernels=options.n_kernels,
            optimizer=options.optimizer,
            lr=options.lr,
            batch_size=options.batch_size,
            steps=options.steps,
            eval_every=options.eval_every,
            seed=options.seed,
        )
        configs = {kind: replace(config, kind=kind) for kind in kinds}
        # Each run reads its checkpoint itself; one that cannot go on is noticed before the first run.
        for kind, path in list(paths.items())[1:]:
            if options.resume and path is not None and path.exists():
                saved(configs[kind], data, path)
        print(
            f"{source}: {len(data.x_train)} training and {len(data.x_test)} test samples, "
            f"{data.x_train.shape[1]} inputs, {data.n_classes} classes"
        )
        histories = {kind: run(options, configs[kind], data, paths[kind]) for kind in kinds}
        if options.plot is not None:
            plot(options.plot, histories)
    except BrokenPipeError:
        raise
    except (TypeError, ValueError, IndexError, OverflowError, OSError, MemoryError) as error:
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
    sys.exit(main())
