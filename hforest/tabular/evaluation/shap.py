"""`shap_values`: how much each column of a table adds to a prediction, by sampled permutations."""

from collections.abc import Callable, Iterator

import numpy as np

from ...core import check, supervised
from ...core import progress as progresses
from ...core.aliases import ArrayLike, FloatArray, IntArray, Progress, Rng
from ...tree import ShapValues
from ..columns import converted
from ..model import Model, check_width, checked
from ..serving import predict
from .importances import names_and_sets

STEP_ROWS = 1 << 14
"""Number of rows of permutations that are drawn at a time, about."""
STEP_NUMBERS = 1 << 22
"""Maximum number of numbers of the rows that are predicted at a time."""
Predicted = Callable[[FloatArray], FloatArray]
"""A function of rows that returns their predictions (n, n_outputs)."""


def shap_values(
    model: Model,
    x: ArrayLike,
    background: ArrayLike,
    *,
    n_permutations: int = 1,
    progress: Progress = None,
    rng: Rng = None,
) -> ShapValues:
    """Returns how much each column of a table adds to predictions: interventional SHAP values, by sampling.

    Other parameters: see `importance`.

    Parameters
    ----------
    x : (n_samples, n_features) array_like, or a table
        Samples whose predictions are explained, at least one.
    background : (n_background, n_features) array_like of real numbers, or a table
        Samples that stand for the table when columns are unknown, at least one; about a hundred rows of
        training.
    n_permutations : int
        Number of pairs of permutations for each sample and row of the background.

    Returns
    -------
    ShapValues
        `values` (n_samples, n_columns, n_outputs) and `expected` (n_outputs,). The predictions of `predict`,
        probabilities of the classes or targets, are ``expected + values.sum(axis=1)``, up to rounding. A
        column that the model does not read has 0. A call that `progress` stops returns the samples so far.

    Notes
    -----
    The value of column i is its Shapley value: the mean over all orders of the columns of
    ``v(S and i) - v(S)``, where S are the columns before i (Shapley 1953; Lundberg and Lee 2017, eq. 8). v(S)
    is the mean prediction of hybrid samples, which take the columns in S from x and all others from a row of
    the background. All features of a column are taken together.

    The mean is over random permutations (Strumbelj and Kononenko 2014, algorithm 1), each with its reverse
    (Mitchell et al. 2022, section 4.1), the same number for each row of the background. So the sum of the
    values is exact, and the values are exact where at most two columns interact. Otherwise their standard
    error falls with the root of ``n_permutations n_background``. `hforest.tree.shap_values` has exact values
    of a single forest. `progress` counts samples. Cost for each sample: 2 n_permutations n_background
    (n_columns - 1) predictions, fewer where samples have the same values as the background.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = 2 * x[:, 0] - x[:, 1]
    >>> model = hforest.tabular.fit(x, y, task="regression", n_trees=20, steps=50, rng=0)
    >>> shap = hforest.tabular.shap_values(model, x[:5], x[200:220], rng=0)
    >>> p = hforest.tabular.predict(model, x[:5])
    >>> bool(np.allclose(shap.expected[0] + shap.values[:, :, 0].sum(axis=1), p, rtol=1e-12))
    True
    """
    model, n_features = checked("model", model)
    check.on_cpu(x=x, background=background)
    rows, others = (
        supervised.samples_or_missing(
            name, a if model.columns is None else converted(name, model.columns, a)
        )[0]
        for name, a in (("x", x), ("background", background))
    )
    check_width(rows, n_features)
    check.require(
        others.shape[1] == n_features, "background", f"the {n_features} columns of x", others.shape[1],
        "pass the same columns",
    )  # fmt: skip
    n_permutations = check.integer("n_permutations", n_permutations, 1, 2**20)
    seed = check.seed(rng)
    plain, n_outputs = model._replace(columns=None), len(model.target_center)

    def predicted(a: FloatArray) -> FloatArray:
        return predict(plain, a).reshape(len(a), n_outputs)

    names, sets = names_and_sets(model, n_features)
    read = np.array([j for j, features in enumerate(sets) if len(features)])
    player = np.repeat(np.arange(len(read)), [len(sets[j]) for j in read])
    rows, others = rows.astype(np.float64), others.astype(np.float64)
    ends, starts = predicted(rows), predicted(others)
    shape = (len(rows), len(names), n_outputs)
    with check.memory("x", "values of samples, columns and outputs", 8 * int(np.prod(shape, dtype=object))):
        values = np.zeros(shape)
    with progresses.reporting(progress, len(rows), "sample") as report:
        for i, row in enumerate(rows):
            for order, k in _orders(np.random.default_rng([seed, i]), len(read), len(others), n_permutations):
                gains = _gains(predicted, row, others[k], order, player, starts[k], ends[i])
                np.add.at(values[i], read[order], gains)
            values[i] /= 2 * n_permutations * len(others)
            if not report(i + 1):
                values = values[: i + 1]
                break
    return ShapValues(values, starts.mean(axis=0))


def _orders(
    rng: np.random.Generator, n_players: int, n_others: int, n_permutations: int
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yields orders (n, n_players), each followed by its reverse, and their rows of the background (n,)."""
    step = max(1, STEP_ROWS // (2 * n_players))
    for first in range(0, n_others * n_permutations, step):
        k = np.arange(first, min(first + step, n_others * n_permutations)) % n_others
        order = rng.permuted(np.tile(np.arange(n_players), (len(k), 1)), axis=1)
        yield np.stack([order, order[:, ::-1]], axis=1).reshape(-1, n_players), np.repeat(k, 2)


def _gains(
    predicted: Predicted,
    row: FloatArray,
    others: FloatArray,
    order: IntArray,
    player: IntArray,
    starts: FloatArray,
    end: FloatArray,
) -> FloatArray:
    """Returns (n, n_players, n_outputs): rises of the prediction as players get the values of `row`.

    Parameters
    ----------
    predicted : callable
        Predictions (n, n_outputs) of rows.
    row : (n_features,)
        The sample.
    others : (n, n_features)
        Its rows of the background.
    order : (n, n_players)
        Order of the players for each of these.
    player : (n_features,)
        Player of each feature.
    starts, end : (n, n_outputs) and (n_outputs,)
        Predictions of `others` and of `row`.
    """
    n, n_players = order.shape
    place = np.argsort(order, axis=1)[:, player]
    same = (others == row) | (np.isnan(others) & np.isnan(row))
    changes = np.zeros((n, n_players), bool)  # whether the player at a place of the order changes the sample
    at = np.arange(n)[:, None]
    np.logical_or.at(changes, (np.broadcast_to(at, place.shape), place), ~same)
    outputs = np.concatenate([starts[:, None], np.zeros((n, n_players, len(end)))], axis=1)
    k, step = np.nonzero(changes[:, :-1])
    size = max(1, STEP_NUMBERS // len(row))
    for first in range(0, len(k), size):
        i, s = k[first : first + size], step[first : first + size]
        outputs[i, s + 1] = predicted(np.where(place[i] <= s[:, None], row, others[i]))
    # Where nothing changes, the prediction is that of the last change.
    last = np.maximum.accumulate(np.where(changes, np.arange(1, n_players + 1), 0), axis=1)
    outputs[:, 1:] = outputs[at, last]
    outputs[:, -1] = end
    return np.diff(outputs, axis=1)
