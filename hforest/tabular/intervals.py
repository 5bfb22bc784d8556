"""Prediction intervals from the errors of held-out rows."""

import math

import numpy as np

from .. import tree
from ..core import check
from ..core.aliases import ArrayLike, FloatArray
from ..tree import Forest, Interval
from .model import Member, Model, forest_inputs, outputs
from .recipe import Rows
from .serving import Prepared, encoded, evaluated, given

LEAST_SQUARE = 1e-6
"""Minimum expected squared error, in squared deviations of the target."""


def _expected(forests: list[Forest], samples: list[FloatArray]) -> FloatArray:
    """Returns the expected errors of samples, (n_samples, n_outputs) float64, above 0, in deviations.

    They are the roots of means over members, of forests whose values are `Member.squares`.
    """
    squares = [tree.predict(forest, z) for forest, z in zip(forests, samples, strict=True)]
    return np.sqrt(np.maximum(np.asarray(np.mean(squares, axis=0, dtype=np.float64)), LEAST_SQUARE))


def _forests(members: tuple[Member, ...]) -> list[Forest]:
    """Returns forests whose values are `Member.squares`, of the members that have them."""
    squares = ((member.forest, member.squares) for member in members)
    return [forest._replace(value=a) for forest, a in squares if a is not None]


def held_out_errors(members: tuple[Member, ...], rows: Rows) -> FloatArray:
    """Returns the errors of rows to which no member was fitted, divided by the expected ones."""
    with np.errstate(over="ignore", invalid="ignore"):
        y = np.mean([outputs(member, rows.x, "regression", rows.native) for member in members], axis=0)
    samples = [forest_inputs(rows.x, member.grown_kernel, rows.native) for member in members]
    errors: FloatArray = (rows.y - y) / _expected(_forests(members), samples)
    return errors


def predict_interval(model: Model | Prepared, x: ArrayLike, *, coverage: float = 0.9) -> Interval:
    """Returns intervals that contain the targets of new rows with a given probability.

    The model is one of a regression that was fitted with held-out rows (`validation`). Other parameters: see
    `predict`.

    Parameters
    ----------
    coverage : float
        Share of new targets inside the intervals, above 0 and below 1.

    Returns
    -------
    hforest.tree.Interval
        (low, high), (n_samples,) or (n_samples, n_outputs) arrays of float64 in the units of training.

    Raises
    ------
    ValueError
        A model of classes, or without errors of held-out rows; a coverage for which they are too few.

    Notes
    -----
    Split conformal intervals (Lei et al. 2018, sections 2.2 and 5.2): ``[f(x) + q_low s(x), f(x) + q_high
    s(x)]``. f is `predict`. s(x) is the expected error: the root of the mean of squared out-of-bag errors of
    the rows in the leaves of x. The q are the ``floor((n + 1) (1 - coverage) / 2)``-th least and greatest of
    n errors of held-out rows, each divided by its s. For rows drawn as those of training, and one member, a
    row is inside with at least the given probability on average over x, not for each x. Two
    approximations are tested, not proven: held-out rows also chose the mixture, and the errors are those of
    single members, whose mean is mostly more accurate. Cost: `predict`, and the forests once more.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(900, 3)); y = x[:, 0] + abs(x[:, 1]) * rng.normal(size=900)
    >>> model = hforest.tabular.fit(x[:600], y[:600], task="regression", n_trees=20, steps=100, rng=0)
    >>> low, high = hforest.tabular.predict_interval(model, x[600:], coverage=0.8)
    >>> bool(0.72 < ((low <= y[600:]) & (y[600:] <= high)).mean() < 0.88)
    True
    """
    coverage = check.number("coverage", coverage, 0.0, 1.0, open_low=True)
    ready, table = given(model, x)
    members, scale = ready.model.members, ready.model.target_scale
    check.require(
        ready.model.task == "regression", "model", "a model of a regression", "one of classes",
        "use the probabilities of predict",
    )  # fmt: skip
    errors = ready.model.held_out
    forests = _forests(members)
    if errors is None or len(forests) < len(members):
        raise ValueError(
            "model: expected one with errors of held-out rows, got none; fit a model with validation above 0 "
            "and at least 8 held-out rows"
        )
    # A tenth of 10 errors is one, however their product is rounded.
    outside = math.floor(round((len(errors) + 1) * (1 - coverage) / 2, 9))
    if outside < 1:
        raise ValueError(
            f"coverage: expected at most {1 - 2 / (len(errors) + 1):.4g} with {len(errors)} held-out rows, "
            f"got {coverage:g}; pass a smaller one, or fit to more rows"
        )
    errors = np.sort(errors, axis=0)
    y = evaluated(ready, table)
    low, high = y.copy(), y
    for part, rows, native in encoded(ready, table):
        samples = [parts.grown_inputs(rows, native) for parts in ready.parts]
        expected = _expected(forests, samples) * scale
        low[part] += errors[outside - 1] * expected
        high[part] += errors[-outside] * expected
    return Interval(low[:, 0], high[:, 0]) if len(scale) == 1 else Interval(low, high)
