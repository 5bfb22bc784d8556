"""Boosted trees of a member (Friedman 2001): a start of hinge trees, and a part of the prediction."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import growth, tree
from ..core import series
from ..core.aliases import FloatArray, Task
from ..tree import Forest
from . import recipe
from .model import Boosted, Member, mixed, of_scores, outputs
from .recipe import CHUNK, Rows, Settings, loss_of

Steps = Callable[[FloatArray], tuple[FloatArray, FloatArray | None]]
"""Returns the negative gradient of a loss with respect to scores, and its second derivative, None for 1, each
(n_samples, n_outputs)."""


def _rounds(
    samples: growth.Samples,
    scores: FloatArray,
    steps_of: Steps,
    weight: FloatArray | None,
    settings: dict[str, Any],
    rng: np.random.Generator,
) -> Iterator[Forest]:
    """Yields one tree after another; values of its leaves are steps, which are added to `scores` (IN OUT).

    The step of a leaf is ``rate * G / (H + l2)``, with the sums of both derivatives over the rows that the
    tree draws, a share of all (Chen and Guestrin 2016, eq. 5). Of several outputs the splits of a tree are
    those of one random combination (Joly et al. 2019). settings: `rate`, `share`, `l2`, and those of
    `growth.grow`.
    """
    n, n_outputs = scores.shape
    rate, share, l2 = (settings.pop(name) for name in ("rate", "share", "l2"))
    while True:
        g, h = steps_of(scores)
        in_bag = np.ones(n, np.int32) if share == 1 else (rng.random(n) < share).astype(np.int32)
        target, counted = g, weight
        if n_outputs > 1:
            target = g @ rng.standard_normal((n_outputs, 1))
        elif h is not None:
            target, counted = g / h, h[:, 0] if weight is None else h[:, 0] * weight
        grown, leaves = growth.grow_with_leaves(
            samples, target, 1, sample_weight=counted, task="regression", rng=rng,
            bootstrap=False if share == 1 else in_bag[None], **settings,
        )  # fmt: skip
        row, drawn = grown.left[leaves[:, 0]], in_bag if weight is None else in_bag * weight
        value = np.empty((len(grown.value), n_outputs))
        for k in range(n_outputs):
            curved = drawn if h is None else drawn * h[:, k]
            total, curvature = (np.bincount(row, a, len(value)) for a in (drawn * g[:, k], curved))
            value[:, k] = rate * total / np.maximum(curvature + l2, recipe.LEAST_CURVATURE)
        grown = grown._replace(value=value.astype(grown.value.dtype))
        scores += grown.value[row]
        yield grown


def start_trees(x: FloatArray, residual: FloatArray, settings: Settings, rng: np.random.Generator) -> Forest:
    """Returns trees boosted on the residual of a forest, with whose splits hinge trees start."""
    samples, scores = growth.samples(x, max_bins=recipe.START_BINS), np.zeros(residual.shape)
    given = {**recipe.START, "max_depth": settings.depth}
    trees = _rounds(samples, scores, lambda f: (residual - f, None), None, given, rng)
    return tree.join([next(trees) for _ in range(settings.n_trees)])


def _derivatives(y: FloatArray, task: Task) -> Steps:
    """Returns the derivatives of half the squared error, or of the negative log probability."""
    if task == "regression":
        return lambda scores: (y - scores, None)

    def steps_of(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        p = of_scores(scores, task)[:, -y.shape[1] :]
        return y - p, np.maximum(p * (1 - p), recipe.LEAST_CURVATURE)

    return steps_of


def _linear(rows: Rows, y: FloatArray) -> FloatArray | None:
    """Returns the slopes (n_encoded, n_outputs), float32, of a ridge regression on all columns.

    None for more than MAX_LINEAR columns. `y` (n_samples, n_outputs) and columns have means of about 0.
    """
    n_features = rows.x.shape[1]
    if n_features > recipe.MAX_LINEAR:
        return None
    square, product = recipe.LINEAR_RIDGE * np.eye(n_features), np.zeros((n_features, y.shape[1]))
    factor = np.ones(len(y)) if rows.weight is None else rows.weight / rows.weight.mean()
    for first in range(0, len(y), CHUNK):
        part = slice(first, first + CHUNK)
        a = rows.x[part].astype(np.float64)
        weighted = (a * factor[part, None]).T
        square += weighted @ a
        product += weighted @ y[part]
    return np.linalg.solve(square, product).astype(np.float32)


def with_boosted(
    member: Member,
    rows: Rows,
    held: Rows,
    settings: Settings,
    report: Callable[[int], bool],
    rng: np.random.Generator,
) -> tuple[Member, bool]:
    """Returns a member with boosted trees, if they reduce the loss of held-out rows, and whether to go on.

    Their number and their share of the prediction are those of the smallest loss of the mixture.
    """
    task = settings.task
    x, x_held = (part.x if part.native is None else part.native for part in (rows, held))
    if task == "regression":
        y = rows.y.astype(np.float64)
    else:
        y = np.eye(settings.n_classes or 1)[rows.y][:, 1 if settings.n_classes == 2 else 0 :]
    mean = np.average(y, axis=0, weights=rows.weight)
    if task == "classification":
        mean = series.log(mean + recipe.SMOOTHING) - (
            series.log(1 - mean + recipe.SMOOTHING) if y.shape[1] == 1 else 0
        )
    linear = _linear(rows, y - mean) if task == "regression" else None
    scores, of_held = np.tile(mean, (len(x), 1)), np.tile(mean, (len(x_held), 1))
    if linear is not None:
        scores, of_held = scores + rows.x @ linear, of_held + held.x @ linear
    n_features = max(1, round(recipe.BOOSTED_FEATURES * x.shape[1]))
    given = {**recipe.BOOSTED, "max_features": n_features}
    samples, trees = growth.samples(x, max_bins=recipe.BOOSTED_BINS), []
    others = outputs(member, held.x, task, held.native)
    least, best, share, going = loss_of(others, held, task), 0, 0.0, True
    rounds = _rounds(samples, scores, _derivatives(y, task), rows.weight, given, rng)
    for n, grown in zip(range(1, settings.n_boosted + 1), rounds, strict=False):
        trees.append(grown)
        of_held += grown.value[grown.left[tree.apply(grown, x_held)[:, 0]]]
        if n % recipe.JUDGE_BOOSTED_EVERY and n < settings.n_boosted:
            continue
        here = of_scores(of_held, task)
        for a in recipe.SHARES[1:]:
            loss = loss_of(mixed(here, others, a), held, task)
            if loss < least:
                least, best, share = loss, n, a
        going = report(n)
        if not going or n - best >= recipe.BOOSTED_PATIENCE:
            break
    if not best:
        return member, going
    forest = tree.join(trees[:best])
    # The mean of trees that `predict` returns is then the sum of their steps from the start.
    value = (best * forest.value + mean).astype(forest.value.dtype)
    whole = tree.join([forest._replace(value=value)])
    return member._replace(boosted=Boosted(whole, np.array(share), linear)), going
