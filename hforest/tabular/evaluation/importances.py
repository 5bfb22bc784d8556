"""`importance`: the rise of the loss of a model when the values of a column are permuted."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...core import check, notebooks, permuted, supervised
from ...core import progress as progresses
from ...core.aliases import ArrayLike, FloatArray, IntArray, Progress, Rng
from ..columns import text_array
from ..model import Model, check_width, checked, goals_of, numbers_of
from ..serving import predict, prepare
from . import metrics

Score = Callable[..., float]
"""A function score(y, p), or score(y, p, sample_weight=w), whose result is greater for better predictions."""


class Importance(NamedTuple):
    """Importances of the columns of a table, in the order of the table."""

    names: np.ndarray
    """(n_columns,) text: names of the columns; those of an array without names are 0, 1, ..."""
    mean: FloatArray
    """(n_columns,) float64: mean rise of the loss over the permutations."""
    error: FloatArray
    """(n_columns,) float64: standard error of `mean` over the permutations, NaN for a single one."""
    rises: FloatArray
    """(n_columns, n_repeats) float64: rise of the loss by each permutation."""

    @notebooks.shown_by
    def _repr_html_(self) -> notebooks.Rows:
        best = notebooks.largest(self.mean)
        return [
            (f"column (of {len(self.names)})", "rise of the loss", "standard error"),
            *zip(self.names[best], self.mean[best], self.error[best], strict=True),
        ]


def names_and_sets(model: Model, n_features: int) -> tuple[list[str], list[IntArray]]:
    """Returns the names of the columns of a table, and the features that are made of each."""
    if model.columns is None:
        return list(map(str, range(n_features))), list(np.arange(n_features)[:, None])
    names, source = model.columns.names.tolist(), model.columns.source
    return names, [np.flatnonzero(source == j) for j in range(len(names))]


def importance(
    model: Model,
    x: ArrayLike,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    n_repeats: int = 5,
    score: Score | None = None,
    progress: Progress = None,
    rng: Rng = None,
) -> Importance:
    """Returns how much the loss of a model rises when the values of a column are permuted.

    Other parameters: see `predict` and `fit`. Prefer samples that the model was not fitted on, at least one.

    Parameters
    ----------
    y : (n_samples,) array_like, or (n_samples, n_outputs)
        Their labels, each one of ``model.classes``, or targets.
    n_repeats : int
        Number of permutations of each column.
    score : callable, optional
        ``score(y, p)``, with weights ``score(y, p, sample_weight=w)``: a number that is greater for better
        predictions. Its decrease is then the importance. y are the places of the labels in
        ``model.classes``, or targets (n_samples,) or (n_samples, n_outputs); p are predictions as of
        `predict`. By default minus the log loss (natural logarithm), in a regression minus the mean squared
        error, the mean over outputs.

    Returns
    -------
    Importance
        In the order of the columns of the table, as scikit-learn's permutation_importance. A call that
        `progress` stops returns the columns so far.

    Raises
    ------
    IndexError
        A label that is none of ``model.classes``.
    ValueError
        A score that is not finite.

    Notes
    -----
    Breiman 2001, section 10. All features of a column are permuted together: the days, months and hours of a
    column of dates, or the indicators of a category. A column that the model does not read has 0. Columns
    with the same information share their importance, or hide each other's. `Importance.error` is the noise
    of the permutations; that of the rows is not in it. `progress` counts columns. Cost: n_columns n_repeats
    predictions of all samples.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> rng = np.random.default_rng(0)
    >>> table = {"noise": rng.normal(size=400), "size": rng.normal(size=400), "unit": ["cm"] * 400}
    >>> model = hforest.tabular.fit(table, table["size"] > 0, n_trees=20, steps=50, rng=0)
    >>> new = {"noise": rng.normal(size=200), "size": rng.normal(size=200), "unit": ["cm"] * 200}
    >>> found = hforest.tabular.importance(model, new, new["size"] > 0, rng=0)
    >>> found.names[found.mean.argmax()], float(found.mean[2])
    ('size', 0.0)
    """
    model, n_features = checked("model", model)
    check.on_cpu(x=x, y=y, sample_weight=sample_weight)
    n_repeats = check.integer("n_repeats", n_repeats, 1, 2**20)
    if score is not None:
        remedy = "pass a function of (y, p), or None"
        check.instance("score", score, Callable, "a function", remedy)
        arguments = "y, p" if sample_weight is None else "y, p, sample_weight=..."
        check.called_with("score", score, arguments, remedy)
    numbers, _ = supervised.samples_or_missing("x", numbers_of(model, x))
    check_width(numbers, n_features)
    goals = goals_of(model, y, len(numbers))
    weight = None if sample_weight is None else supervised.sample_weight(sample_weight, numbers[:, 0])
    return of_numbers(model, numbers, goals, weight, n_repeats, score, progress, check.generator(rng))


def of_numbers(
    model: Model,
    x: FloatArray,
    y: FloatArray | IntArray,
    weight: FloatArray | None = None,
    n_repeats: int = 5,
    score: Score | None = None,
    progress: Progress = None,
    rng: np.random.Generator | None = None,
) -> Importance:
    """Returns `importance` for the features x (n_rows, n_features) of a table, and numbers of classes or
    targets y."""
    plain = prepare(model._replace(columns=None))
    arguments = {} if weight is None else {"sample_weight": weight}
    given = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    loss = metrics.log_losses if model.task == "classification" else metrics.squared_errors
    names, sets = names_and_sets(model, x.shape[1])

    def measured(x: FloatArray) -> float:
        p = predict(plain, x)
        own = score is None
        value = -np.average(loss(p, y), weights=weight) if score is None else score(given, p, **arguments)
        number = check.scalar(value)
        check.require(
            isinstance(number, int | float | np.number) and np.isfinite(number),
            "model" if own else "score", "predictions of finite loss" if own else "a finite number",
            f"{number!s:.60}", "scale the targets" if own else "return such a number",
        )  # fmt: skip
        return float(number)

    generator = np.random.default_rng(0) if rng is None else rng
    with progresses.reporting(progress, len(sets), "column") as report:
        rises = permuted.losses(measured, x, sets, n_repeats, generator, report)
    error = rises.std(axis=1, ddof=1) / n_repeats**0.5 if n_repeats > 1 else np.full(len(rises), np.nan)
    return Importance(text_array(names[: len(rises)]), rises.mean(axis=1), error, rises)


# ---------------------------------------------------------------------------- pictures and reports

MOST_ROWS = 2000
"""Maximum number of rows for the importances of pictures and reports."""
LOSS = {"classification": "log loss", "regression": "mean squared error"}


def of_some_rows(
    model: Model, x: FloatArray, y: FloatArray | IntArray, progress: Progress = None
) -> Importance:
    """Returns `of_numbers` of at most MOST_ROWS rows whose labels are classes, that is at least 0."""
    known = np.flatnonzero(y >= 0) if model.task == "classification" else np.arange(len(y))
    rows = np.random.default_rng(0).permutation(known)[:MOST_ROWS]
    return of_numbers(model, x[rows], y[rows], progress=progress)


def best(found: Importance, most: int) -> IntArray:
    """Returns at most `most` columns that the model reads, by descending importance."""
    order = np.argsort(-found.mean, kind="stable")
    return order[(found.rises[order] != 0).any(axis=1)][:most]
