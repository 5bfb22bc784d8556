"""The commands for tables: `python -m hforest --data FILE.npz` and `predict MODEL.npz DATA.npz`."""

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import __version__, _output, demo, tabular
from .core import check, files, models, supervised
from .demo.files import is_checkpoint, known, other_kind, parts, samples
from .tabular.files import LAYOUT, write

HELD_OUT = 5
"""Without rows to test on, one in so many is held out to report an error that chose nothing."""
N_MEMBERS = 3
_PREDICTIONS = "predictions_format"
"""Array by which a file of predictions is known: such a file may be replaced."""


class Table(NamedTuple):
    """Rows to learn from and rows to test on."""

    x: np.ndarray
    y: np.ndarray
    """Places in `classes`, or targets."""
    x_test: np.ndarray
    y_test: np.ndarray
    classes: np.ndarray | None
    """Labels as they stand in the file; None in a regression."""
    tested_on: str
    """What the rows to test on are, in words."""


# --------------------------------------------------------------------------------------------- data


def _labels(path: str | Path, name: str, y: np.ndarray, n: int) -> np.ndarray:
    y = known(path, name, y, n, 2)
    if y.dtype.kind == "f":
        check.finite(f"{path}, {name}", y)
    return y


def _is_regression(task: str | None, y: np.ndarray) -> bool:
    # Real numbers that are not whole are targets.
    if task is not None:
        return task == "regression"
    return y.ndim > 1 or (y.dtype.kind == "f" and bool((y != np.trunc(y)).any()))


def _split(path: str, arrays: Mapping[str, np.ndarray], n_train: int | None, seed: int) -> tuple[Any, ...]:
    """Samples and labels to learn from, samples and labels to test on, and what the latter are."""
    split = parts(path, arrays, n_train, None, _labels)
    if len(split) == 4:
        return *split, "test rows" if n_train is None else "rows after --train"
    x, y = split
    if len(x) < 2:
        raise ValueError(f"{path}: expected at least 2 samples, got {len(x)}; store more rows")
    order = np.random.default_rng([seed, 1]).permutation(len(x))
    held, others = np.sort(order[: max(1, len(x) // HELD_OUT)]), np.sort(order[max(1, len(x) // HELD_OUT) :])
    return x[others], y[others], x[held], y[held], "held-out rows that chose nothing"


def load_table(path: str, task: str | None, n_train: int | None, seed: int) -> Table:
    """Returns the table of an .npz file: x and y, or x_train, y_train, x_test and y_test."""
    with files.opened(path, "an .npz archive of a data set") as arrays:
        x, y, x_test, y_test, tested_on = _split(path, arrays, n_train, seed)
    if _is_regression(task, y):
        targets = [supervised.targets(f"{path}, y", a, len(a)) for a in (y, y_test)]
        if targets[0].shape[1] != targets[1].shape[1]:
            raise ValueError(
                f"{path}: expected as many targets in y_test as in y_train, got others; store them"
            )
        return Table(x, targets[0], x_test, targets[1], None, tested_on)
    if y.ndim > 1 or (y.dtype.kind == "f" and bool((y != np.trunc(y)).any())):
        raise ValueError(
            f"{path}: expected one label a sample for --task classification, got real numbers or rows of "
            "them; pass --task regression"
        )
    if (y.dtype.kind in "US") != (y_test.dtype.kind in "US"):
        raise other_kind(path, y, y_test)
    classes, places = np.unique(y, return_inverse=True)
    if len(classes) > supervised.MAX_CLASSES:
        raise ValueError(
            f"{path}: expected labels of at most {supervised.MAX_CLASSES} classes, got {len(classes)}; pass "
            "--task regression for targets"
        )
    # A label that occurs in the rows to test on alone counts as an error.
    at = np.minimum(np.searchsorted(classes, y_test), len(classes) - 1)
    tested = np.where(classes[at] == y_test, at, -1)
    return Table(x, places.reshape(-1).astype(np.int32), x_test, tested, classes, tested_on)


# ------------------------------------------------------------------------------------------- training


class _Progress:
    """A bar for each member. The first interrupt makes a clean stop; the second one ends the process."""

    def __init__(self) -> None:
        self._bar: _output.Bar | None = None
        self._member, self.stopped = -1, False

    def __call__(self, done: int, total: int) -> bool:
        steps = total // N_MEMBERS
        member, step = divmod(done - 1, steps)
        if member != self._member:
            self.close()
            self._member, self._bar = member, _output.Bar(f"member {member + 1} of {N_MEMBERS}", steps)
        if self._bar is not None:
            self._bar(step + 1)
        return not self.stopped

    def close(self) -> None:
        """Ends the line of the last bar."""
        if self._bar is not None:
            self._bar.close()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Turns the first SIGINT inside a `with` block into a stop."""
        before = signal.getsignal(signal.SIGINT)

        def stop(number: int, frame: object) -> None:
            self.stopped = True
            signal.signal(signal.SIGINT, before)

        with suppress(ValueError):  # handlers are set in the main thread alone
            signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            with suppress(ValueError):
                signal.signal(signal.SIGINT, before)


def _error(y: np.ndarray, table: Table) -> str:
    if table.classes is not None:
        wrong = float((y.argmax(axis=1) != table.y_test).mean())
        return f"error {100 * wrong:.2f} %"
    y = y.reshape(len(y), -1)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        squared = ((y - table.y_test) ** 2).mean(axis=0)
        share = np.mean(squared / table.y_test.var(axis=0))
    return f"mean squared error {float(squared.mean()):.6g}, {100 * float(share):.2f} % of the variance"


def _has(path: str | Path, name: str) -> bool:
    # Whether a file is an archive with an array of this name.
    try:
        with files.opened(path, "an .npz archive") as arrays:
            return name in arrays
    except ValueError:
        return False


def train(options: argparse.Namespace) -> int:
    """Fits a table, prints its error on rows that chose nothing, writes the model; returns the status."""
    print(
        f"hforest {__version__} fits the recipe for tables, {N_MEMBERS} members, to {options.data}",
        flush=True,
    )
    if options.save is not None:
        save = _output.Output(
            "--save", _output.model_path(options.save), "a model", partial(_has, name="tabular_format")
        )
        _output.check_outputs([save], {"--data": options.data})
    table = load_table(options.data, options.task, options.train, options.seed)
    classes = table.classes
    print(
        f"{options.data}: {len(table.x)} training rows and {len(table.x_test)} {table.tested_on}, "
        f"{table.x.shape[1]} columns, " + (f"{len(classes)} classes" if classes is not None else "regression")
    )
    settings = {"steps": options.steps, "lr": options.lr, "batch_size": options.batch_size}
    for name in ("n_trees", "depth"):
        if getattr(options, name) is not None:
            settings[name] = getattr(options, name)
    if options.n_features is not None:
        settings["n_projections"] = options.n_features
    begin = time.perf_counter()
    progress = _Progress()
    with closing(progress), progress.watching():
        model = tabular.fit(
            table.x, table.y, task="classification" if classes is not None else "regression",
            n_classes=None if classes is None else len(classes), n_members=N_MEMBERS, progress=progress,
            rng=options.seed, **settings,
        )  # fmt: skip
    elapsed = time.perf_counter() - begin
    if options.save is not None:
        save_model(options.save, model, classes)
        print(f"{options.save}: written")
    print(f"{table.tested_on}: {_error(tabular.predict(model, table.x_test), table)}, {elapsed:.1f} s")
    if progress.stopped:
        print("interrupted; the model is what was learned until then")
        return 130
    return 0


def save_model(path: str, model: tabular.Model, classes: np.ndarray | None) -> None:
    """Writes a model and the labels of its classes; `tabular.load` reads the file, too."""
    write(path, model, **({} if classes is None else {"classes": classes}))


# ---------------------------------------------------------------------------------------- prediction


def parse_predict(arguments: list[str]) -> argparse.Namespace:
    """The options of `python -m hforest predict`."""
    parser = argparse.ArgumentParser(
        prog="python -m hforest predict",
        description="Print, or write to a file, what a model predicts for the rows of a table.",
    )
    parser.add_argument("model", metavar="MODEL.npz", help="written by --save")
    parser.add_argument(
        "data", metavar="DATA.npz", help="an archive with x, or x_test; of y an error is made"
    )
    parser.add_argument(
        "--out", metavar="FILE.npz", help="write labels and probabilities, or targets, to this file instead"
    )
    return parser.parse_args(arguments)


def _load_model(path: str) -> tuple[Any, np.ndarray | None]:
    """A model and the labels of its classes; a function of samples for the network of a checkpoint."""
    if is_checkpoint(path):
        checkpoint = demo.load_checkpoint(path)

        def probabilities(x: np.ndarray) -> np.ndarray:
            scores = demo.predict(checkpoint.config, checkpoint.state, x).astype(np.float64)
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            return np.asarray(p / p.sum(axis=1, keepdims=True))

        return probabilities, checkpoint.classes
    with files.opened(path, "a model written by hforest") as arrays:
        model: tabular.Model = models.read(path, LAYOUT, arrays)
        n_classes = len(model.target_center)
        classes = arrays.get("classes", np.arange(n_classes))
    if model.task == "classification" and classes.shape != (n_classes,):
        raise ValueError(
            f"{path}: expected the labels of {n_classes} classes, got an array of shape {classes.shape}; it "
            "was changed: restore it or fit anew"
        )
    return (lambda x: tabular.predict(model, x)), classes if model.task == "classification" else None


def predict(options: argparse.Namespace) -> int:
    """Applies a model to a file and prints or writes the result. Returns the exit status."""
    function, classes = _load_model(options.model)
    with files.opened(options.data, "an .npz archive of a data set") as arrays:
        end = "" if "x" in arrays else "_test"
        if f"x{end}" not in arrays:
            raise ValueError(
                f"{options.data}: expected an array x or x_test, got none; store the samples as x"
            )
        x, y = arrays[f"x{end}"], arrays.get(f"y{end}")
    if options.out is not None:
        inputs = {"MODEL.npz": options.model, "DATA.npz": options.data}
        out = _output.Output("--out", options.out, "predictions", partial(_has, name=_PREDICTIONS))
        _output.check_outputs([out], inputs)
    p = function(samples(options.data, f"x{end}", x, None))
    result = {"targets": p} if classes is None else {"labels": classes[p.argmax(axis=1)], "probabilities": p}
    if options.out is None:
        _show(p, classes)
    else:
        files.write_npz(options.out, result | {_PREDICTIONS: np.array(1)})
        print(f"{options.out}: {', '.join(result)} of {len(p)} rows written")
    if y is not None and y.shape[:1] == (len(p),):
        if classes is not None and y.ndim == 1:
            wrong = 100 * float((classes[p.argmax(axis=1)] != y).mean())
            print(f"error {wrong:.2f} %", file=sys.stderr)
        elif classes is None and y.shape == p.shape and y.dtype.kind in "biuf":
            print(f"mean squared error {float(((p - y) ** 2).mean()):.6g}", file=sys.stderr)
    return 0


def _show(p: np.ndarray, classes: np.ndarray | None) -> None:
    """Prints a line for each row, tab-separated: the label and the probabilities, or the targets."""
    if classes is None:
        for row in p.reshape(len(p), -1):
            print("\t".join(f"{value:.9g}" for value in row))
        return
    print("label\t" + "\t".join(str(label) for label in classes.tolist()))
    for row in p:
        print(f"{classes[row.argmax()]}\t" + "\t".join(f"{value:.6f}" for value in row))
