"""`report`: one page of HTML about the predictions of a model for a table."""

import os
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import numpy as np

from ...core import check, files, supervised
from ...core.aliases import ArrayLike, FloatArray, IntArray, Progress
from ...core.notebooks import table
from ..columns import converted
from ..describing import describe
from ..model import Model, check_width, checked, goals_of
from ..serving import predict
from . import dependence, errors, importances, metrics, svg

MOST_BARS, MOST_CURVES = 30, 6
"""Maximum numbers of columns with drawn importances, and with partial dependence."""
MOST_OUTPUTS = len(svg.COLOURS)
"""Maximum number of classes or targets with curves."""
MOST_CELLS = 20
"""Maximum number of classes of a confusion matrix."""
MOST_DATES = 4
"""Maximum number of dates on an axis."""
MOST_DOTS = 1000
"""Maximum number of residuals drawn."""
MARK = '<meta name="generator" content="hforest report">'
"""Text that marks a page as a report."""
_STYLE = """
.hforest-report{font:14px/1.4 sans-serif;max-width:900px}
.hforest-report table{border-collapse:collapse;margin:.5em 0}
.hforest-report th,.hforest-report td{padding:2px 8px;text-align:left;border-bottom:1px solid #8884}
.hforest-report td.n,.hforest-report th.n{text-align:right}
.hforest-report figure{display:inline-block;margin:.5em 1em .5em 0;vertical-align:top}
.hforest-report svg{max-width:100%;height:auto}
.hforest-report .wide{overflow-x:auto}
"""


class Report(str):
    """A page of HTML as text, which notebooks show and `save` writes."""

    content: str
    """The page without its head."""

    def _repr_html_(self) -> str:
        return self.content

    def __repr__(self) -> str:
        return f"Report({len(self.encode())} bytes of HTML)"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file, in place of what it held."""
        with files.replacing(path) as stream:
            stream.write(self.encode())


def is_report(path: str | os.PathLike[str]) -> bool:
    """Returns whether a file is a report that `Report.save` wrote."""
    with open(path, "rb") as stream:
        return MARK.encode() in stream.read(1000)


def report(model: Model, x: ArrayLike, y: ArrayLike, *, progress: Progress = None) -> Report:
    """Returns a page about what a model predicts for a table: errors, importances, partial dependence.

    Parameters and errors: see `importance`.

    Returns
    -------
    Report
        Text of HTML, which notebooks show. ``report.save("report.html")`` writes one file without any
        reference to others.

    Notes
    -----
    The page has

    * warnings: unknown categories, numbers outside of the range of training;
    * metrics with 95 % intervals over rows: error (Wilson 1927), log loss, AUC (of two classes with the
      interval of DeLong et al. 1988; of more the mean over pairs, Hand and Till 2001), expected calibration
      error (Guo et al. 2017); or RMSE, mean absolute error and R2;
    * the calibration curve, in ten bins, and the confusion matrix; or residuals;
    * importances (`importance`) on at most 2000 rows;
    * partial dependence (Friedman 2001, section 8.2) on the six most important columns: mean predictions of
      at most 200 rows with the same value of a column;
    * the columns, as `describe` shows them.

    `progress` counts the columns of `importance`; a call that it stops shows the columns so far. Cost:
    predictions of all samples, and for each column those of 5 times the rows of `importance`.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(300, 3))
    >>> model = hforest.tabular.fit(x[:200], x[:200, 0] > 0, n_trees=20, steps=50, rng=0)
    >>> page = hforest.tabular.report(model, x[200:], x[200:, 0] > 0)
    >>> page.startswith("<!doctype html>"), "log loss" in page
    (True, True)
    """
    model, n_features = checked("model", model)
    check.on_cpu(x=x, y=y)
    said: list[str] = []
    numbers = x if model.columns is None else converted("x", model.columns, x, said)
    table, _ = supervised.samples_or_missing("x", numbers)
    check_width(table, n_features)
    return of_numbers(model, table, goals_of(model, y, len(table)), said, progress=progress)


def classes_of(model: Model) -> np.ndarray:
    """Returns the labels of the classes of a model; 0, 1, ... for files of earlier versions."""
    return np.arange(len(model.target_center)) if model.classes is None else model.classes


def of_numbers(
    model: Model,
    x: FloatArray,
    y: FloatArray | IntArray,
    warnings: Sequence[str] = (),
    target: str | None = None,
    progress: Progress = None,
) -> Report:
    """Returns `report` of the features x (n_rows, n_features) of a table.

    `y` are places in the classes of the model or targets, with the marks of `errors.spelt_target`; `target`
    is the name of y, and `warnings` are further ones.
    """
    p = predict(model._replace(columns=None), x)
    classes = classes_of(model) if model.task == "classification" else None
    rows, others = errors.compared(y, classes)
    said = [*warnings, *others, *([] if len(rows) else ["no row can be compared"])]
    title = f"{model.task.capitalize()} of {target or 'a table'}"
    n_columns = x.shape[1] if model.columns is None else len(model.columns.names)
    kinds = "" if classes is None else f", {len(classes)} classes"
    parts = [
        f"<h1>{escape(title)}</h1><p>{len(rows)} of {len(x)} rows compared, {n_columns} columns{kinds}.</p>"
    ]
    if said:
        items = "".join(f"<li>{escape(text)}</li>" for text in said)
        parts.append(f"<h2>Warnings</h2><ul>{items}</ul>")
    if len(rows):
        parts += _errors(p[rows], y[rows], classes)
        found = importances.of_some_rows(model, x[rows], y[rows], progress)
        parts += _importances(found, model, importances.best(found, MOST_BARS))
        parts += _dependence(found, model, x[rows], p[rows], target or "target")
    if model.columns is not None:
        description: Any = describe(model.columns)
        parts.append(f'<h2>Columns of training</h2><div class="wide">{description._repr_html_()}</div>')
    content = f'<div class="hforest-report"><style>{_STYLE}</style>{"".join(parts)}</div>'
    page = Report(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{MARK}'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title></head><body>{content}</body></html>\n"
    )
    page.content = content
    return page


def _figure(chart: str) -> str:
    return f"<figure>{chart}</figure>"


# ------------------------------------------------------------------------------------------ errors


def _errors(p: FloatArray, y: FloatArray | IntArray, classes: np.ndarray | None) -> Iterator[str]:
    found = list(metrics.of_targets(p, y) if classes is None else metrics.of_classes(p, y))
    rows = [
        [
            one.name,
            svg.figure(one.value),
            "" if np.isnan(one.low) else f"{svg.figure(one.low)} to {svg.figure(one.high)}",
        ]
        for one in found
    ]
    if classes is None:
        y = y.reshape(len(y), -1)
        constant = metrics.squared_errors(np.broadcast_to(y.mean(axis=0), y.shape), y).mean() ** 0.5
        rows.append(["RMSE of the mean of these rows", svg.figure(constant), ""])
    else:
        count = np.bincount(y, minlength=len(classes))
        text = f"error of the constant {svg.shortened(str(classes[count.argmax()]), 24)}"
        rows.append([text, svg.figure(1 - count.max() / len(y)), ""])
    yield "<h2>Metrics</h2>" + table(["metric", "value", "95 % interval over rows"], rows, 1)
    if classes is None:
        yield "<h2>Residuals</h2>" + _figure(_residuals(p, y))
        return
    yield "<h2>Calibration</h2>" + _figure(_calibration(p, y))
    if len(classes) <= MOST_CELLS:
        yield "<h2>Confusion</h2>" + _confusion(p, y, classes)


def _calibration(p: FloatArray, y: IntArray) -> str:
    found = metrics.calibration(p, y)
    pairs = ", ".join(f"{a:.2f}: {b:.2f}" for a, b in zip(found.mean, found.share, strict=True))
    return svg.curves(
        [
            svg.Series(np.array([0.0, 1.0]), np.array([0.0, 1.0]), "dash"),
            svg.Series(found.mean, found.share, "line"),
            svg.Series(found.mean, found.share, "dots", "", found.low, found.high),
        ],
        "probability of the predicted class",
        "share of right predictions",
        f"Calibration, probability of the predicted class: share of right predictions. {pairs}",
        x_limits=(0.0, 1.0),
        y_limits=(0.0, 1.0),
    )


def _confusion(p: FloatArray, y: IntArray, classes: np.ndarray) -> str:
    counts, labels = metrics.confusion(p, y), [svg.shortened(str(a), 20) for a in classes.tolist()]
    head = "".join(f'<th class="n">{escape(label)}</th>' for label in labels)
    lines = []
    for label, row in zip(labels, counts, strict=True):
        shares = row / max(1, row.sum())
        cells = "".join(
            f'<td class="n" style="background:rgba(31,119,180,{0.6 * share:.2f})">{n}</td>'
            for n, share in zip(row.tolist(), shares.tolist(), strict=True)
        )
        lines.append(f"<tr><th>{escape(label)}</th>{cells}</tr>")
    return (
        '<div class="wide"><table><caption>Rows: true class; columns: predicted class</caption>'
        f"<tr><th></th>{head}</tr>{''.join(lines)}</table></div>"
    )


def _residuals(p: FloatArray, y: FloatArray) -> str:
    rows = np.random.default_rng(0).permutation(len(y))[:MOST_DOTS]
    predicted = p.reshape(len(p), -1)[rows, 0]
    residual = y[rows, 0] - predicted
    ends = np.array([predicted.min(), predicted.max()])
    return svg.curves(
        [svg.Series(ends, np.zeros(2), "dash"), svg.Series(predicted, residual, "dots")],
        "predicted target",
        "target - predicted target",
        f"Residuals of {len(rows)} rows, from {svg.figure(residual.min())} to {svg.figure(residual.max())}, "
        f"with a standard deviation of {svg.figure(residual.std())}",
    )


# ------------------------------------------------------------------------------------ explanations


def _importances(found: importances.Importance, model: Model, best: IntArray) -> Iterator[str]:
    if not len(best):
        return
    names, values = found.names[best].tolist(), found.mean[best]
    pairs = zip(names[:5], values, strict=False)
    alt = f"Importances: {', '.join(f'{name} {svg.figure(value)}' for name, value in pairs)}"
    yield (
        f"<h2>Importances</h2><p>Rise of the {importances.LOSS[model.task]} when a column is permuted, with "
        "the standard error over permutations.</p>" + _figure(svg.bars(names, values, found.error[best], alt))
    )


def _dependence(
    found: importances.Importance, model: Model, x: FloatArray, p: FloatArray, target: str
) -> Iterator[str]:
    names, sets = importances.names_and_sets(model, x.shape[1])
    p = p.reshape(len(p), -1)
    outputs = np.argsort(-p.mean(axis=0), kind="stable")[:MOST_OUTPUTS]
    labels = [f"target {k}" for k in range(p.shape[1])]
    if model.task == "classification":
        labels = [svg.shortened(str(label), 40) for label in classes_of(model).tolist()]
        outputs = np.array([1]) if len(labels) == 2 else outputs
    what = (
        f"mean probability of {labels[1]}" if len(outputs) == 1 and len(labels) == 2 else "mean probability"
    )
    y_label = what if model.task == "classification" else f"mean prediction of {target}"
    known = [j for j in importances.best(found, MOST_CURVES).tolist() if not np.isnan(x[:, sets[j][0]]).all()]
    drawn = [(names[j], dependence.of_column(model, x, sets[j], model.columns)) for j in known]
    charts, y_limits = list[str](), svg.limits([one.mean[:, outputs] for _, one in drawn])
    for name, one in drawn:
        mark: Any = "dots" if one.is_categorical or len(one.grid) == 1 else "line"
        series = [
            svg.Series(one.grid, one.mean[:, k], mark, labels[k] if len(outputs) > 1 else "")
            for k in outputs.tolist()
        ]
        shown = np.arange(len(one.texts))
        if not one.is_categorical and len(shown) > MOST_DATES:
            shown = np.linspace(0, len(shown) - 1, MOST_DATES).round().astype(int)
        x_ticks = (one.grid[shown], [one.texts[i] for i in shown]) if one.texts else None
        low, high = svg.limits([one.mean[:, outputs[0]]])
        of_first = f" {labels[outputs[0]]}" if len(outputs) > 1 else ""
        alt = (
            f"Partial dependence on {name}: {y_label}{of_first} from {svg.figure(low)} to {svg.figure(high)}"
        )
        chart = svg.curves(series, name, y_label, alt, x_ticks=x_ticks, y_limits=y_limits)
        charts.append(_figure(chart))
    if charts:
        yield (
            "<h2>Partial dependence</h2><p>Mean predictions of rows, all with the same value of a column.</p>"
            + "".join(charts)
        )
