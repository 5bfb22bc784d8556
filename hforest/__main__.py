"""`python -m hforest`: trains a random hinge forest and random hinge ferns on handwritten digits.

The network is p1 Fig. 2b (letter, USPS); the data ship with the package, or come from --data.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from . import demo
from .core.aliases import Array
from .demo.network import Kind, State

NAMES = {"tree": "random hinge forest", "fern": "random hinge ferns"}
LEARNING_RATES = {"adam": 0.005, "adagrad": 0.05}


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
    add("--kind", choices=("tree", "fern"), help="train only this kind (both by default)")
    add("--n-trees", "--trees", type=int, metavar="N", default=100, help="trees or ferns (%(default)s)")
    add("--depth", type=int, default=10, help="decisions on a path (%(default)s)")
    add(
        "--n-features",
        "--features",
        type=int,
        metavar="N",
        default=100,
        help="learned inner-product features (%(default)s)",
    )
    add(
        "--n-kernels",
        "--kernels",
        type=int,
        metavar="N",
        default=0,
        help="learned 5x5 convolutions of square images instead of inner products",
    )
    add("--optimizer", choices=("adam", "adagrad"), default="adam", help="(%(default)s)")
    add("--lr", type=float, help="learning rate (0.005 for adam, 0.05 for adagrad)")
    add(
        "--batch-size",
        "--batch",
        type=int,
        metavar="N",
        default=53,
        help="samples of a mini-batch (%(default)s)",
    )
    add("--steps", type=int, default=8000, help="mini-batches (%(default)s)")
    add("--eval-every", type=int, default=500, help="steps between evaluations on the test set (%(default)s)")
    add("--seed", type=int, default=0, help="(%(default)s)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="(%(default)s)")
    add("--save", metavar="MODEL.npz", help="write checkpoints and the final state to this file")
    add("--checkpoint-seconds", type=float, default=5.0, help="least time between checkpoints (%(default)s)")
    add("--resume", action="store_true", help="go on from the file of --save")
    add("--plot", metavar="LOSS.png", help="draw loss and test error (needs matplotlib)")
    options = parser.parse_args(arguments)
    if options.resume and not options.save:
        parser.error("--resume needs --save MODEL.npz, the file to go on from")
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
    return path.with_name(f"{path.stem}.{kind}{path.suffix or '.npz'}") if both else path


def begin(options: argparse.Namespace, config: demo.Config, data: demo.Data, path: Path | None) -> State:
    """Returns a new run's state, or that of the checkpoint."""
    if not options.resume or path is None:
        return demo.start(config, data.x_train.shape[1], data.n_classes)
    if not path.exists():
        print(f"{path}: no checkpoint yet, starting from step 0")
        return demo.start(config, data.x_train.shape[1], data.n_classes)
    saved = demo.load_checkpoint(path)
    wanted, got = asdict(config), asdict(saved.config)
    others = [f"{k} {got[k]} (now {wanted[k]})" for k in wanted if k != "steps" and wanted[k] != got[k]]
    if others:
        raise ValueError(
            f"{path}: expected a run with the same options, got {', '.join(others)}; use the old ones"
        )
    if not _same(saved.classes, data.classes):
        raise ValueError(
            f"{path}: expected a run on the same classes, got one on {_shown(saved.classes)} (now "
            f"{_shown(data.classes)}); check --data"
        )
    if saved.fingerprint != data.fingerprint:
        raise ValueError(
            f"{path}: expected a run on the same data, got one on other data; check --data and --train"
        )
    print(f"{path}: going on from step {saved.state['step']}")
    return saved.state


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
    state |= {name: place(a) for name, a in state.items() if not name.startswith("history")}
    first, begun, saved = state["step"], time.perf_counter(), time.perf_counter()

    def checkpoint(state: State) -> None:
        nonlocal saved
        step = state["step"]
        # Not at the last step of a run whose end is no multiple of eval_every: a longer run has no evaluation
        # there.
        due = step == config.steps or time.perf_counter() - saved > options.checkpoint_seconds
        if path is not None and step % config.eval_every == 0 and due:
            demo.save_checkpoint(path, config, state, data)
            saved = time.perf_counter()

    display = Display(NAMES[config.kind], state, config.steps)
    try:
        x_train, y_train, x_test, y_test = (place(a) for a in data[:4])
        history = demo.train(
            config, state, x_train, y_train, x_test, y_test, checkpoint=checkpoint, progress=display
        )
    finally:
        display.close()
    seconds = time.perf_counter() - begun
    if path is not None:
        demo.save_checkpoint(path, config, state, data)
    best = int(np.argmin(history["error"]))
    print(
        f"{NAMES[config.kind]}: {config.n_trees} of depth {config.depth}, "
        f"test error {100 * history['error'][-1]:.2f} % after {config.steps} steps "
        f"(least of {len(history['error'])} evaluations: {100 * history['error'][best]:.2f} % "
        f"at step {int(history['step'][best])}), "
        f"{seconds:.1f} s, {(config.steps - first) / seconds:.0f} steps/s"
    )
    return history


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
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    print(f"{path}: written")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns 0 when all went well, 2 for bad input, 130 when interrupted."""
    options = parse(arguments)
    try:
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
        print(
            f"{source}: {len(data.x_train)} training and {len(data.x_test)} test samples, "
            f"{data.x_train.shape[1]} inputs, {data.n_classes} classes"
        )
        kinds: tuple[Kind, ...] = (options.kind,) if options.kind else ("tree", "fern")
        histories: dict[Kind, dict[str, np.ndarray]] = {}
        for kind in kinds:
            path = checkpoint_path(options.save, kind, len(kinds) > 1)
            histories[kind] = run(options, replace(config, kind=kind), data, path)
        if options.plot:
            plot(options.plot, histories)
    except (TypeError, ValueError, IndexError, OSError, MemoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "\ninterrupted; "
            + ("--resume goes on from the last checkpoint" if options.save else "nothing was saved")
        )
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
