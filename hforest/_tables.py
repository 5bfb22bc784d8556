"""The commands for tables: `python -m hforest --data FILE --target NAME` and `predict MODEL.npz FILE`."""

import argparse
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import __version__, _output, demo, tabular
from ._output import echo
from .core import check, files, models, series, supervised
from .core.aliases import Task
from .core.outputs import Output, check_outputs
from .demo.files import is_checkpoint, known, other_kind, parts, samples
from .tabular import c_source, predictions
from .tabular.columns import converted
from .tabular.evaluation import errors, pictures, reporting
from .tabular.files import LAYOUT, write
from .tabular.predictions import Predictions
from .tabular.reading import SUFFIXES, has_columns
from .tabular.tables import File, shown
from .tabular.targets import labels_of, places_of

HELD_OUT = 5
"""Without test rows, one row in HELD_OUT is held out for an error that no choice of settings has used."""
N_MEMBERS = 3
HELD, AFTER = "held-out rows that neither training nor selection used", "rows after --train"
SETTINGS = {"depth": "depth", "n_features": "n_projections", "lr": "lr", "batch_size": "batch_size"}
"""Names of --set, and those of `tabular.fit`."""


class Table(NamedTuple):
    """Training rows and test rows."""

    x: Any
    """A matrix, or the `File` of all columns but the target."""
    y: np.ndarray
    """Labels, or targets."""
    x_test: Any
    y_test: np.ndarray
    is_regression: bool
    tested_on: str | None
    """Description of the test rows, in words; None for those that the file itself calls test rows."""
    whole: Any = None
    """All rows and their labels or targets, if the test rows are some of them."""


def _split(path: str, n: int, options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray, str]:
    """Returns training rows, test rows, and a description of these."""
    if options.train is not None:
        first = check.integer("--train", options.train, 1, n - 1)
        return np.arange(first), np.arange(first, n), AFTER
    if n < 2:
        raise ValueError(f"{path}: expected at least 2 samples, got {n}; pass a file with more rows")
    order = np.random.default_rng([options.seed, 1]).permutation(n)
    return np.sort(order[max(1, n // HELD_OUT) :]), np.sort(order[: max(1, n // HELD_OUT)]), HELD


def _of_file(options: argparse.Namespace) -> Table:
    path, name = options.data, options.target
    table = tabular.read(path, header=not options.no_header)
    for option, wanted in (("--target", [name]), ("--drop", options.drop or [])):
        for one in wanted:
            if one not in table.columns:
                hint = "" if options.no_header else ", or pass --no-header if these are values"
                raise ValueError(
                    f"{option}: expected the name of a column of {path} ({', '.join(table.columns)}), got "
                    f"{'none' if one is None else repr(one)}; pass one of them{hint}"
                )
    hints = {"null_values": options.null_values, "day_first": options.day_first}
    try:
        rows, y, task = tabular.target(table, name, task=options.task, **hints)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}, {error}") from None
    if len(rows) < len(table.frame):
        echo(f"{path}: {len(table.frame) - len(rows)} rows have no {name!r}, and are left out")
    x = table.without({name, *(options.drop or [])})[rows]
    train, test, tested_on = _split(path, len(y), options)
    is_regression = task == "regression"
    return Table(x[train], y[train], x[test], y[test], is_regression, tested_on, (x, y))


def _labels(path: str | Path, name: str, y: np.ndarray, n: int) -> np.ndarray:
    y = known(path, name, y, n, 2)
    if y.dtype.kind == "f":
        check.finite(f"{path}, {name}", y)
    return y


def _of_archive(options: argparse.Namespace) -> Table:
    path, task = options.data, options.task
    if options.target is not None or options.drop or options.no_header:
        raise ValueError(
            f"--target: expected a file with named columns ({', '.join(SUFFIXES)}), got {path}; leave "
            "--target, --drop and --no-header out for an archive"
        )
    with files.opened(path, "an .npz archive of a data set") as arrays:
        x, y, *tests = parts(path, arrays, None, None, _labels)
    fraction = y.dtype.kind == "f" and bool((y != np.trunc(y)).any())
    if task == "classification" and (y.ndim > 1 or fraction):
        raise ValueError(
            f"{path}: expected one label per sample for --task classification, got real numbers or several "
            "values per sample; pass --task regression"
        )
    is_regression = task == "regression" or (task is None and (y.ndim > 1 or fraction))
    if not tests:
        train, test, tested_on = _split(path, len(y), options)
        return Table(x[train], y[train], x[test], y[test], is_regression, tested_on, (x, y))
    if (y.dtype.kind in "US") != (tests[1].dtype.kind in "US") and not is_regression:
        raise other_kind(path, y, tests[1])
    check.require(
        options.train is None, "--train", "none for a file with test rows", options.train, "leave it out"
    )
    return Table(x, y, tests[0], tests[1], is_regression, None)


class _Progress:
    """A bar for the steps of all members. The first interrupt is a clean stop; the second ends the run."""

    def __init__(self, name: str) -> None:
        self._name, self.stopped = name, False
        self._bar: _output.Bar | None = None

    def __call__(self, done: int, total: int) -> bool:
        self._bar = self._bar or _output.Bar(self._name, total)
        self._bar(done)
        return not self.stopped

    def close(self) -> None:
        """Ends the line of the bar."""
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


def _fit(
    options: argparse.Namespace, x: Any, y: np.ndarray, task: Task, what: str
) -> tuple[tabular.Model, bool]:
    """Returns a model, and whether it was stopped."""
    given = dict(options.set or [])
    unknown = sorted(set(given) - set(SETTINGS))
    check.require(not unknown, "--set", f"settings of {', '.join(SETTINGS)}", shown(unknown), "correct it")
    settings = {SETTINGS[name]: value for name, value in given.items()} | {"steps": options.steps}
    if options.n_trees is not None:
        settings["n_trees"] = options.n_trees
    progress = _Progress(what)
    with closing(progress), progress.watching(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # they are in the description of the columns
        if isinstance(x, File):
            hints = {"null_values": options.null_values, "day_first": options.day_first}
            settings["columns"] = tabular.columns(x, categorical=options.categorical or "from_dtype", **hints)
        model = tabular.fit(
            x, y, task=task, n_members=N_MEMBERS, progress=progress, rng=options.seed, **settings
        )
    return model, progress.stopped


def train(options: argparse.Namespace) -> int:
    """Fits a table, prints its error on test rows, writes the model; returns the exit status."""
    echo(f"hforest {__version__} fits the recipe for tables, {N_MEMBERS} members, to {options.data}")
    save = None if options.save is None else _output.model_path(options.save)
    if save is not None:
        older = Output("--save", save, "a model", partial(_output.has, name="tabular_format"))
        check_outputs([older], {"--data": options.data})
    if options.plot:
        pictures.check_folder("--plot", options.plot, options.data)
    named = has_columns(options.data)
    table = _of_file(options) if named else _of_archive(options)
    task: Task = "regression" if table.is_regression else "classification"
    if task == "regression":
        targets = [supervised.targets(f"{options.data}, y", a, len(a)) for a in (table.y, table.y_test)]
        check.require(
            targets[0].shape[1] == targets[1].shape[1], options.data,
            "as many targets in y_test as in y_train", "another number", "store the same targets",
        )  # fmt: skip
        table = table._replace(y=targets[0], y_test=targets[1])
    classes = None if table.is_regression else labels_of(f"{options.data}, y", table.y)[0]
    n_columns = len(table.x.columns) if named else table.x.shape[1]
    tested_on = table.tested_on or "test rows"
    echo(
        f"{options.data}: {len(table.y)} training rows and {len(table.y_test)} {tested_on}, "
        f"{n_columns} columns, " + ("regression" if classes is None else f"{len(classes)} classes")
    )
    begin = time.perf_counter()
    model, stopped = _fit(options, table.x, table.y, task, "training rows")
    elapsed = time.perf_counter() - begin
    if model.columns is not None:
        echo(
            f"\n{tabular.describe(model.columns)}\n\ntarget {options.target}: "
            f"{errors.shares(table.y, classes)}"
        )
    x_test = converted_quietly(model, table.x_test)
    p = tabular.predict(model._replace(columns=None), x_test)
    y_test = table.y_test if classes is None else places_of(classes, table.y_test)
    echo(f"{tested_on}: " + "\n".join(errors.lines(p, y_test, classes, table.y)))
    echo(f"fitted in {elapsed:.1f} s")
    if options.plot:
        paths = pictures.draw(options.plot, model, x_test, y_test)
        echo(f"{', '.join(paths)}: drawn from the {tested_on}")
    if save is not None:
        x, y = table.x, table.y
        if table.whole is not None and not stopped and not options.no_refit:
            x, y = table.whole
            final, stopped = _fit(options, x, y, task, "all rows")
            model = model if stopped else final
            echo("" if stopped else f"{save}: the model is fitted to all {len(y)} rows")
        seen = errors.sketch(converted_quietly(model, x))
        write(str(save), model, target=np.array(options.target or ""), seen=seen)
        echo(f"{save}: written")
    if stopped:
        echo("interrupted; the model is what was learned until then")
        return 130
    return 0


def converted_quietly(model: tabular.Model, x: Any) -> Any:
    """Returns a table as the numbers that a model reads."""
    return x if model.columns is None else converted("x", model.columns, x)


# ---------------------------------------------------------------------------------------- prediction


class _Loaded(NamedTuple):
    """Content of a model file."""

    predict: Callable[[Any], np.ndarray]
    classes: np.ndarray | None
    """Labels; None in a regression."""
    columns: tabular.Columns | None = None
    target: str | None = None
    seen: np.ndarray | None = None
    """`errors.sketch` of the training rows."""
    table: tabular.Model | None = None
    """The model of a table."""


def _load_model(path: str) -> _Loaded:
    """Returns a model and the labels of its classes; for a checkpoint, a function of samples."""
    if is_checkpoint(path):
        checkpoint = demo.load_checkpoint(path)

        def probabilities(x: np.ndarray) -> np.ndarray:
            scores = demo.predict(checkpoint.config, checkpoint.state, x).astype(np.float64)
            p = series.exp(scores - scores.max(axis=1, keepdims=True))
            return np.asarray(p / p.sum(axis=1, keepdims=True))

        return _Loaded(probabilities, checkpoint.classes)
    with files.opened(path, "a model written by hforest") as arrays:
        model: tabular.Model = models.read(path, LAYOUT, arrays)
        target = files.text(arrays.small("target")) if "target" in arrays else ""
        seen = arrays.get("seen")
    classes = np.arange(len(model.target_center)) if model.classes is None else model.classes
    plain = model._replace(columns=None)
    of_task = classes if model.task == "classification" else None
    return _Loaded(lambda x: tabular.predict(plain, x), of_task, model.columns, target or None, seen, model)


def _rows_of_archive(path: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the samples of an archive, and their labels or targets, if it has them."""
    with files.opened(path, "an .npz archive of a data set") as arrays:
        end = "" if "x" in arrays else "_test"
        if f"x{end}" not in arrays:
            raise ValueError(f"{path}: expected an array x or x_test, got none; store the samples as x")
        x, y = arrays[f"x{end}"], arrays.get(f"y{end}")
    return samples(path, f"x{end}", x, None), y


def _rows_of_columns(options: argparse.Namespace, model: _Loaded, said: list[str]) -> tuple[Any, Any]:
    """Returns the numbers of a file with named columns, and its target, if it has one.

    Sentences about unknown values are printed and added to `said`.
    """
    columns, target = model.columns, model.target
    if columns is None:
        raise ValueError(
            f"{options.data}: expected an .npz archive with x, since {options.model} was fitted on an "
            "archive, got a file with named columns; store the samples in an archive"
        )
    table = tabular.read(options.data, header=not options.no_header)
    others = set(table.columns) - set(columns.names.tolist())
    ignored = [name for name in table.columns if name in others and name != target]
    if ignored:
        echo(f"ignored, since the model does not know them: {shown(ignored)}", error=True)
    x = converted(options.data, columns, table.without(others), said)
    for line in said:
        echo(f"warning: {line}", error=True)
    if target not in others:
        return x, None
    words = columns.null_values.tolist()
    return x, errors.spelt_target(table, target, words, None if model.classes is None else model.classes)


def predict(options: argparse.Namespace) -> int:
    """Applies a model to a file and prints or writes the result. Returns the exit status."""
    model = _load_model(options.model)
    classes, out, page, said = model.classes, options.out, options.report, list[str]()
    if page is not None:
        _check_page(options, model)
    if has_columns(options.data):
        x, y = _rows_of_columns(options, model, said)
    else:
        x, y = _rows_of_archive(options.data)
        y = y if y is None or classes is None or y.ndim != 1 else places_of(classes, y)
    p = np.zeros((0, 1 if classes is None else len(classes))) if not len(x) else model.predict(x)
    answers = Predictions(p, classes, model.target)
    if out is None and page is None:
        echo("\n".join("\t".join(row) for row in [answers.header(), *answers.rows()]))
    if out is not None:
        older = None if options.force else answers.is_file
        inputs = {"MODEL.npz": options.model, "DATA": options.data}
        predictions.check_suffix("--out", out)
        check_outputs([Output("--out", out, "predictions", older)], inputs)
        answers.write(out, raw=options.raw)
        echo(f"{out}: {'targets' if classes is None else 'labels, probabilities'} of {len(p)} rows written")
    has_target = y is not None and y.shape[:1] == (len(p),)
    if has_target:
        for line in errors.errors_of(p, y, classes):
            echo(line, error=True)
    known = 0.0 if model.seen is None else errors.share_seen(x, model.seen)
    if known > 0.05:
        said.append(f"about {100 * known:.0f} % of the rows are rows of training, whose error is too low")
        echo(said[-1], error=True)
    if page is not None and model.table is not None:
        check.require(
            y is not None and has_target and len(p), "--report",
            f"rows with the target in {options.data}", "none", "add the target, or leave --report out",
        )  # fmt: skip
        reporting.of_numbers(model.table, np.asarray(x), y, said, model.target).save(page)
        echo(f"{page}: written")
    return 0


def _check_page(options: argparse.Namespace, model: _Loaded) -> None:
    """Checks, before any prediction, that a report can be written."""
    page, remedy = options.report, "choose a path that ends in .html"
    check.require(Path(page).suffix.lower() in (".html", ".htm"), "--report", "a file of HTML", page, remedy)
    known = "a model of a table"
    check.require(model.table is not None, "--report", known, "a network", "leave --report out")
    older = None if options.force else reporting.is_report
    inputs = {"MODEL.npz": options.model, "DATA": options.data, "--out": options.out}
    check_outputs([Output("--report", page, "a report", older)], inputs)


# -------------------------------------------------------------------------------------------- export


EXPORTED = {".h": c_source.FIRST_LINE.encode(), ".onnx": b"\x08\x0a\x12\x07hforest"}
"""Suffixes of exported models, and how the files begin."""


def _is_exported(path: str | Path) -> bool:
    """Returns whether a file is an exported model."""
    with open(path, "rb") as stream:
        return stream.read(64).startswith(tuple(EXPORTED.values()))


def export(options: argparse.Namespace) -> int:
    """Writes a model of a table as a header of C or as an ONNX model. Returns the exit status."""
    path = Path(options.out)
    remedy = "choose one of these suffixes"
    suffix = path.suffix.lower()
    check.require(suffix in EXPORTED, "FILE", "a file that ends in .h or .onnx", str(path), remedy)
    older = None if options.force else _is_exported
    check_outputs([Output("FILE", path, "an exported model", older)], {"MODEL.npz": options.model})
    model = tabular.load(options.model)
    if suffix == ".h":
        content = tabular.to_c(model, name=options.name or c_source.identifier(path.stem)).encode()
    else:
        from .onnx import to_onnx

        content = to_onnx(model).SerializeToString()
    with files.replacing(path) as stream:
        stream.write(content)
    echo(f"{path}: written, {len(content) / 1e6:.1f} MB")
    return 0
