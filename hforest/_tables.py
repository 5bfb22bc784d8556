"""The commands for tables: `python -m hforest --data FILE --target NAME` and `predict MODEL.npz FILE`."""

import argparse
import csv
import io
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import __version__, _output, _pictures, _readers, demo, tabular
from .core import check, files, models, supervised
from .core.aliases import Task
from .demo.files import is_checkpoint, known, other_kind, parts, samples
from .tabular import tables
from .tabular.files import LAYOUT, write

HELD_OUT = 5
"""Without test rows, one row in HELD_OUT is held out for an error that no choice of settings has used."""
N_MEMBERS = 3
MANY = 20
"""A column of a file with more distinct numbers than this holds targets."""
HELD, AFTER = "held-out rows that neither training nor selection used", "rows after --train"
_PREDICTIONS = "predictions_format"
"""Array that marks a file of predictions, which may be replaced."""


class Table(NamedTuple):
    """Training rows and test rows."""

    x: Any
    """A matrix, or a table with names."""
    y: np.ndarray
    """Indices into `classes`, or targets."""
    x_test: Any
    y_test: np.ndarray
    classes: np.ndarray | None
    """Labels as in the file; None in a regression."""
    tested_on: str
    """Description of the test rows, in words."""


# --------------------------------------------------------------------------------------------- data


def _labels(path: str | Path, name: str, y: np.ndarray, n: int) -> np.ndarray:
    y = known(path, name, y, n, 2)
    if y.dtype.kind == "f":
        check.finite(f"{path}, {name}", y)
    return y


def _is_regression(task: Task | None, y: np.ndarray, of_column: bool) -> bool:
    # Numbers that are not whole are targets, and so are many distinct ones in a column of a file.
    if task is not None:
        return task == "regression"
    many = of_column and y.dtype.kind in "iuf" and len(np.unique(y)) > MANY
    return many or y.ndim > 1 or (y.dtype.kind == "f" and bool((y != np.trunc(y)).any()))


def _split(path: str, arrays: Mapping[str, np.ndarray], n_train: int | None, seed: int) -> tuple[Any, ...]:
    """Returns training samples and labels, test samples and labels, and a description of the test rows."""
    split = parts(path, arrays, n_train, None, _labels)
    if len(split) == 4:
        return *split, "test rows" if n_train is None else AFTER
    x, y = split
    others, held = _held_out(path, len(x), seed)
    return x[others], y[others], x[held], y[held], HELD


def _held_out(path: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns training rows and test rows."""
    if n < 2:
        raise ValueError(f"{path}: expected at least 2 samples, got {n}; pass a file with more rows")
    order = np.random.default_rng([seed, 1]).permutation(n)
    return np.sort(order[max(1, n // HELD_OUT) :]), np.sort(order[: max(1, n // HELD_OUT)])


def _target(path: str, table: _readers.Table, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows in which the target has a value, and its values there."""
    y = _readers.column_of(table, name)
    present = _readers.present(f"{path}, {name!r}", y)
    rows, y = np.flatnonzero(present), y[present]
    if y.dtype.kind == "O":
        y = y.astype(bool if set(map(type, y)) == {bool} else str)
    if y.dtype.kind not in "biufU" or not len(y):
        raise TypeError(
            f"{path}, {name!r}: expected text, booleans or numbers to predict, got "
            f"{f'dtype {y.dtype}' if len(y) else 'no value'}; choose another --target"
        )
    if len(y) < len(present):
        print(f"{path}: {len(present) - len(y)} rows have no {name!r}, and are left out")
    if y.dtype.kind == "f":
        check.finite(f"{path}, {name!r}", y)
        y = y.astype(np.int64) if bool((abs(y) < 2**53).all() and (y == np.trunc(y)).all()) else y
    return rows, y


def _split_columns(options: argparse.Namespace) -> tuple[Any, ...]:
    """Returns the same as `_split` for a file with named columns."""
    path, target = options.data, options.target
    table = _readers.read(path, header=not options.no_header)
    names = _readers.names_of(table)
    for option, wanted in (("--target", [target]), ("--drop", options.drop or [])):
        for name in wanted:
            if name not in names:
                got = f"{name!r}" if name is not None else "none"
                hint = "" if options.no_header else ", or pass --no-header if these are values"
                raise ValueError(
                    f"{option}: expected the name of a column of {path} ({', '.join(names)}), got {got}; "
                    f"pass one of them{hint}"
                )
    rows, y = _target(path, table, target)
    x = _readers.rows_of(_readers.without(table, {target, *(options.drop or [])}), rows)
    if options.train is None:
        others, held, tested_on = *_held_out(path, len(y), options.seed), HELD
    else:
        n_train = check.integer("--train", options.train, 1, len(y) - 1)
        others, held, tested_on = np.arange(n_train), np.arange(n_train, len(y)), AFTER
    return _readers.rows_of(x, others), y[others], _readers.rows_of(x, held), y[held], tested_on


def load_table(options: argparse.Namespace) -> Table:
    """Returns the table of a file: of an archive x and y, or x_train, y_train, x_test and y_test."""
    path, task, of_column = options.data, options.task, _readers.has_columns(options.data)
    if of_column:
        x, y, x_test, y_test, tested_on = _split_columns(options)
    else:
        if options.target is not None or options.drop or options.no_header:
            raise ValueError(
                f"--target: expected a file with named columns ({', '.join(_readers.SUFFIXES)}), got {path}; "
                "leave --target, --drop and --no-header out for an archive"
            )
        with files.opened(path, "an .npz archive of a data set") as arrays:
            x, y, x_test, y_test, tested_on = _split(path, arrays, options.train, options.seed)
    if _is_regression(task, y, of_column):
        targets = [supervised.targets(f"{path}, y", a, len(a)) for a in (y, y_test)]
        if targets[0].shape[1] != targets[1].shape[1]:
            raise ValueError(
                f"{path}: expected as many targets per sample in y_test as in y_train, got another number; "
                "store the same targets"
            )
        return Table(x, targets[0], x_test, targets[1], None, tested_on)
    if y.ndim > 1 or (y.dtype.kind == "f" and bool((y != np.trunc(y)).any())):
        raise ValueError(
            f"{path}: expected one label per sample for --task classification, got real numbers or several "
            "values per sample; pass --task regression"
        )
    if (y.dtype.kind in "US") != (y_test.dtype.kind in "US"):
        raise other_kind(path, y, y_test)
    classes, places = np.unique(y, return_inverse=True)
    if len(classes) > supervised.MAX_CLASSES:
        raise ValueError(
            f"{path}: expected labels of at most {supervised.MAX_CLASSES} classes, got {len(classes)}; pass "
            "--task regression for targets"
        )
    # A label that occurs only in the test rows counts as an error.
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
        wrong = y.argmax(axis=1) != table.y_test
        low, high = _output.wilson(float(wrong.sum()), len(wrong))
        return f"error {100 * float(wrong.mean()):.2f} % (95 %: {100 * low:.2f} to {100 * high:.2f} %)"
    y = y.reshape(len(y), -1)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        squared = (y - table.y_test) ** 2
        share = np.mean(squared.mean(axis=0) / table.y_test.var(axis=0))
        low, high = _output.normal(squared.mean(axis=1))
    return (
        f"mean squared error {float(squared.mean()):.6g} (95 %: {max(0.0, low):.6g} to {high:.6g}), "
        f"{100 * float(share):.2f} % of the variance"
    )


def _has(path: str | Path, name: str) -> bool:
    # Whether a file is an archive with an array of this name.
    try:
        with files.opened(path, "an .npz archive") as arrays:
            return name in arrays
    except ValueError:
        return False


def train(options: argparse.Namespace) -> int:
    """Fits a table, prints its error on test rows, writes the model; returns the exit status."""
    print(
        f"hforest {__version__} fits the recipe for tables, {N_MEMBERS} members, to {options.data}",
        flush=True,
    )
    if options.save is not None:
        save = _output.Output(
            "--save", _output.model_path(options.save), "a model", partial(_has, name="tabular_format")
        )
        _output.check_outputs([save], {"--data": options.data})
    if options.plot:
        _pictures.check_folder(options.plot, options.data)
    table = load_table(options)
    classes = table.classes
    named = _readers.has_columns(options.data)
    n_columns = len(_readers.names_of(table.x)) if named else table.x.shape[1]
    print(
        f"{options.data}: {len(table.y)} training rows and {len(table.y_test)} {table.tested_on}, "
        f"{n_columns} columns, " + (f"{len(classes)} classes" if classes is not None else "regression")
    )
    if named:
        print(_described(table, options.target), flush=True)
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
        save_model(options.save, model, classes, options.target)
        print(f"{options.save}: written")
    print(f"{table.tested_on}: {_error(tabular.predict(model, table.x_test), table)}, {elapsed:.1f} s")
    if options.plot:
        paths = _pictures.draw(options.plot, model, table.x_test, table.y_test, classes)
        print(f"{', '.join(paths)}: drawn from the {table.tested_on}")
    if progress.stopped:
        print("interrupted; the model is what was learned until then")
        return 130
    return 0


def _described(table: Table, target: str) -> str:
    """Returns a description of the columns and of the target."""
    labels = []
    if table.classes is not None:
        shares = np.bincount(table.y, minlength=len(table.classes)) / len(table.y)
        largest = np.argsort(-shares, kind="stable")[:5].tolist()
        labels = [f"{table.classes[j]} {100 * shares[j]:.1f} %" for j in largest]
        labels += ["..."] if len(shares) > len(labels) else []
    else:
        labels = [f"{table.y.min():.6g} to {table.y.max():.6g}"]
    return f"\n{tabular.describe(tabular.columns(table.x))}\n\ntarget {target}: {', '.join(labels)}"


def save_model(
    path: str, model: tabular.Model, classes: np.ndarray | None, target: str | None = None
) -> None:
    """Writes a model, the labels of its classes and the name of its target; `tabular.load` reads it, too."""
    more = {"classes": classes, "target": None if target is None else np.array(target)}
    write(path, model, **{name: a for name, a in more.items() if a is not None})


# ---------------------------------------------------------------------------------------- prediction


def parse_predict(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of `python -m hforest predict`."""
    parser = argparse.ArgumentParser(
        prog="python -m hforest predict",
        description="Print, or write to a file, what a model predicts for the rows of a table.",
    )
    add = parser.add_argument
    add("model", metavar="MODEL.npz", help="written by --save")
    add(
        "data",
        metavar="DATA",
        help="a CSV or Parquet file with the columns of the first one, or an archive with x or x_test; where "
        "it has the target, or y, the error is printed",
    )
    add("--out", metavar="FILE", help="write labels and probabilities, or targets, to this .csv or .npz file")
    add("--no-header", action="store_true", help="the first line of the CSV file has values")
    return parser.parse_args(arguments)


class _Loaded(NamedTuple):
    """Content of a model file."""

    predict: Callable[[Any], np.ndarray]
    classes: np.ndarray | None
    """Labels; None in a regression."""
    columns: tabular.Columns | None = None
    target: str | None = None


def _load_model(path: str) -> _Loaded:
    """Returns a model and the labels of its classes; for a checkpoint, a function of samples."""
    if is_checkpoint(path):
        checkpoint = demo.load_checkpoint(path)

        def probabilities(x: np.ndarray) -> np.ndarray:
            scores = demo.predict(checkpoint.config, checkpoint.state, x).astype(np.float64)
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            return np.asarray(p / p.sum(axis=1, keepdims=True))

        return _Loaded(probabilities, checkpoint.classes)
    with files.opened(path, "a model written by hforest") as arrays:
        model: tabular.Model = models.read(path, LAYOUT, arrays)
        n_classes = len(model.target_center)
        classes = arrays.get("classes", np.arange(n_classes))
        target = files.text(arrays.small("target")) if "target" in arrays else None
    if model.task == "classification" and classes.shape != (n_classes,):
        raise ValueError(
            f"{path}: expected the labels of {n_classes} classes, got an array of shape {classes.shape}; "
            "the file was changed: restore it or fit a new model"
        )
    of_task = classes if model.task == "classification" else None
    return _Loaded(lambda x: tabular.predict(model, x), of_task, model.columns, target)


def _rows_of_archive(path: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the samples of an archive, and their labels or targets, if it has them."""
    with files.opened(path, "an .npz archive of a data set") as arrays:
        end = "" if "x" in arrays else "_test"
        if f"x{end}" not in arrays:
            raise ValueError(f"{path}: expected an array x or x_test, got none; store the samples as x")
        x, y = arrays[f"x{end}"], arrays.get(f"y{end}")
    return samples(path, f"x{end}", x, None), y


def _rows_of_columns(options: argparse.Namespace, model: _Loaded) -> tuple[Any, np.ndarray | None]:
    """Returns the table of a file with named columns, and its target, if it has one."""
    columns, target = model.columns, model.target
    if columns is None:
        raise ValueError(
            f"{options.data}: expected an .npz archive with x, since {options.model} was fitted on an "
            "archive, got a file with named columns; store the samples in an archive"
        )
    is_text = np.isin(columns.kinds, tables.LEVELS)
    text = set(columns.names[is_text].tolist())
    if target is not None and model.classes is not None and model.classes.dtype.kind == "U":
        text.add(target)
    table = _readers.read(options.data, header=not options.no_header, text=text)
    known = set(columns.names.tolist())
    others = [name for name in _readers.names_of(table) if name not in known]
    y = _readers.column_of(table, target) if target in others else None
    ignored = [name for name in others if name != target]
    if ignored:
        print(f"ignored, since the model does not know them: {tables.shown(ignored)}", file=sys.stderr)
    return _readers.without(table, set(others)), y


def predict(options: argparse.Namespace) -> int:
    """Applies a model to a file and prints or writes the result. Returns the exit status."""
    model = _load_model(options.model)
    classes = model.classes
    if _readers.has_columns(options.data):
        x, y = _rows_of_columns(options, model)
    else:
        x, y = _rows_of_archive(options.data)
    header = [model.target or "target"]
    header = header if classes is None else [model.target or "label", *map(str, classes.tolist())]
    as_csv = options.out is not None and options.out.lower().endswith(".csv")
    if options.out is not None:
        inputs = {"MODEL.npz": options.model, "DATA": options.data}
        is_older = partial(_begins_with, header=header) if as_csv else partial(_has, name=_PREDICTIONS)
        _output.check_outputs([_output.Output("--out", options.out, "predictions", is_older)], inputs)
    p = model.predict(x)
    result = {"targets": p} if classes is None else {"labels": classes[p.argmax(axis=1)], "probabilities": p}
    if options.out is None:
        _show(p, classes)
    elif as_csv:
        with files.replacing(options.out) as stream:
            stream.write(_csv(p, classes, header))
    else:
        files.write_npz(options.out, result | {_PREDICTIONS: np.array(1)})
    if options.out is not None:
        print(f"{options.out}: {', '.join(result)} of {len(p)} rows written")
    if y is not None and y.shape[:1] == (len(p),):
        _show_error(p, y, classes)
    return 0


def _show_error(p: np.ndarray, y: np.ndarray, classes: np.ndarray | None) -> None:
    """Prints the error of predictions to the standard error stream; rows without a target are left out."""
    if y.ndim == 1:
        present = _readers.present("the target", y)
        p, y = p[present], y[present]
    if not len(y):
        return
    if classes is not None and y.ndim == 1:
        wrong = classes[p.argmax(axis=1)] != y
        low, high = _output.wilson(float(wrong.sum()), len(wrong))
        print(
            f"error {100 * wrong.mean():.2f} % (95 %: {100 * low:.2f} to {100 * high:.2f} %)", file=sys.stderr
        )
    elif classes is None and y.shape == p.shape and y.dtype.kind in "biuf":
        print(f"mean squared error {float(((p - y) ** 2).mean()):.6g}", file=sys.stderr)


def _begins_with(path: str | Path, header: list[str]) -> bool:
    """Returns whether a CSV file has this first line, as predictions of the same model have."""
    try:
        with open(path, encoding="utf-8", newline="") as stream:
            return next(csv.reader(stream), None) == header
    except (UnicodeDecodeError, csv.Error):
        return False


def _csv(p: np.ndarray, classes: np.ndarray | None, header: list[str]) -> bytes:
    """Returns a line for each row: the label and the probabilities, or the targets."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    p = p.reshape(len(p), -1)
    writer.writerow(
        header if classes is not None or p.shape[1] == 1 else [f"{header[0]} {k}" for k in range(p.shape[1])]
    )
    if classes is None:
        writer.writerows([f"{value:.9g}" for value in row] for row in p.tolist())
    else:
        labels = classes[p.argmax(axis=1)].tolist()
        rows = zip(labels, p.tolist(), strict=True)
        writer.writerows([label, *(f"{value:.6f}" for value in row)] for label, row in rows)
    return text.getvalue().encode()


def _show(p: np.ndarray, classes: np.ndarray | None) -> None:
    """Prints a line for each row, tab-separated: the label and the probabilities, or the targets."""
    if classes is None:
        for row in p.reshape(len(p), -1):
            print("\t".join(f"{value:.9g}" for value in row))
        return
    print("label\t" + "\t".join(str(label) for label in classes.tolist()))
    for row in p:
        print(f"{classes[row.argmax()]}\t" + "\t".join(f"{value:.6f}" for value in row))
