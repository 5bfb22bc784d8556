"""Initialisation of a member: a grown forest, and hinge trees that correct it by ridge regression."""

from itertools import combinations
from typing import NamedTuple

import numpy as np

from .. import growth, hinge, tree
from ..core.aliases import AutoFeatures, FloatArray, IntArray
from ..tree import Forest
from . import recipe
from .boosting import start_trees
from .model import Member, forest_inputs, inputs, offset_of, trees_outputs
from .recipe import Rows, Settings, loss_of


class Start(NamedTuple):
    """A member before training."""

    member: Member
    offset: FloatArray
    """(n_samples, n_outputs) float32: offset of the trees' outputs at the training rows, from the forest's
    out-of-bag predictions."""
    grown: FloatArray | None
    """(n_held_out, n_outputs) float64: the forest's predictions of held-out rows; None without such rows."""


def _random_kernel(x: FloatArray, n_projections: int, rng: np.random.Generator) -> FloatArray:
    """Returns sparse random inner products with a standard deviation of 1 over the rows."""
    n_features = x.shape[1]
    kernel = np.zeros((n_features, n_projections), np.float32)
    for j in range(n_projections):
        chosen = rng.choice(n_features, min(recipe.NONZERO, n_features), replace=False)
        kernel[chosen, j] = rng.standard_normal(len(chosen))
    if n_projections:
        deviation = (x @ kernel).std(axis=0)
        kernel /= np.where(deviation > 1e-4, deviation, 1)
    return kernel


def drawn(rows: Rows, rng: np.random.Generator) -> IntArray:
    """Returns the same number of rows, each repeated by its weight (systematic resampling)."""
    n = len(rows.x)
    if rows.weight is None:
        return np.arange(n)
    share = np.cumsum(rows.weight / rows.weight.sum())
    picked = np.searchsorted(share, (np.arange(n) + rng.random()) / n)
    return np.minimum(picked, n - 1)


class _Grown(NamedTuple):
    forest: Forest
    out_of_bag: FloatArray
    """(n_samples, n_outputs) float64; the mean of all rows for a row that every tree drew."""
    squares: FloatArray | None
    """(n_leaves, n_outputs) float32 in a regression: means of the squared out-of-bag errors in the leaves."""


def _max_features(group: recipe.Group, n_features: int) -> AutoFeatures:
    """Returns the number of features sampled at a node of a kind of trees."""
    if isinstance(group.max_features, str):
        return group.max_features
    return min(max(int(group.max_features * n_features), min(n_features, 3)), recipe.MAX_FEATURES)


def _grown(
    rows: Rows, y: FloatArray, kernel: FloatArray, settings: Settings, rng: np.random.Generator
) -> _Grown:
    """Returns one forest of several kinds of trees, some of which read inner products, too.

    `y` (n_samples, n_outputs) has shares of the classes, or targets. In a regression the leaf values of a
    kind of trees are multiplied so that the mean over the trees is the mean of the kinds by their `_weights`.
    """
    z = forest_inputs(rows.x, kernel, rows.native)
    plain = rows.x if rows.native is None else rows.native
    groups = recipe.GROUPS[settings.task]
    last = np.rint(np.cumsum([group.share for group in groups]) * settings.n_trees).astype(int)
    parts, outputs, seen = [], [], []
    for group, n_trees in zip(groups, np.diff(last, prepend=0).tolist(), strict=True):
        if not n_trees:
            continue
        a = z if group.has_products else plain
        drawn_by = growth.bootstrap_counts(len(a), n_trees, rng=rng)
        grown = growth.grow(
            a, rows.y, n_trees, sample_weight=rows.weight, max_features=_max_features(group, a.shape[1]),
            splitter=group.splitter, bootstrap=drawn_by, task=settings.task, n_classes=settings.n_classes,
            rng=rng,
        )  # fmt: skip
        outputs.append(tree.out_of_bag(grown, a, drawn_by).astype(np.float64))
        seen.append((drawn_by == 0).mean(axis=0))
        parts.append(grown._replace(n_features=np.array(z.shape[1])))
    sizes = np.array([part.n_trees for part in parts], np.float64)
    weights = sizes / sizes.sum()
    if settings.task == "regression":
        weights = _weights(np.array(outputs) - y, rows.weight, weights)
    n_trees = sizes[weights > 0].sum()
    forest = tree.join([
        part if settings.task == "classification"
        else part._replace(value=(w * n_trees / part.n_trees * part.value).astype(part.value.dtype))
        for part, w in zip(parts, weights, strict=True) if w > 0
    ])  # fmt: skip
    # Each tree has the weight of its kind, divided by the number of its trees.
    mass = weights[:, None, None] * np.array(seen)[:, :, None]
    total = (mass * np.nan_to_num(outputs)).sum(axis=0)
    mean = np.average(y, axis=0, weights=rows.weight)
    mass = mass.sum(axis=0)
    out_of_bag = np.where(mass > 0, total / np.where(mass > 0, mass, 1.0), mean)
    if settings.task == "classification":
        return _Grown(forest, out_of_bag, None)
    return _Grown(forest, out_of_bag, tree.refit(forest, z, (y - out_of_bag) ** 2, task="regression").value)


def _weights(errors: FloatArray, weight: FloatArray | None, default: FloatArray) -> FloatArray:
    """Returns weights of predictions, at least 0, whose weighted mean has the least squared error.

    Their sum is 1 (stacking; Breiman 1996). `errors` (n, n_samples, n_outputs) are those of out-of-bag
    predictions, NaN where there is none. With few rows the weights are `default`.
    """
    known = ~np.isnan(errors).any(axis=(0, 2))
    if known.sum() < recipe.MIN_STACKED:
        return default
    some = errors[:, known] if weight is None else errors[:, known] * np.sqrt(weight[known])[:, None]
    some = some.reshape(len(errors), -1)
    square = some @ some.T
    square.flat[:: len(square) + 1] += recipe.STACKING_RIDGE * np.trace(square) / len(square)
    best, least = default, default @ square @ default
    for size in range(1, len(square) + 1):
        # The least error on a set of predictions with the sum 1; the best set has no weight below 0.
        for chosen in map(list, combinations(range(len(square)), size)):
            inner = np.linalg.lstsq(square[np.ix_(chosen, chosen)], np.ones(size), rcond=None)[0]
            here = np.zeros(len(square))
            here[chosen] = inner / max(inner.sum(), np.finfo(float).tiny)
            error = here @ square @ here
            if (here >= 0).all() and error < least:
                best, least = here, error
    return best


def begin(rows: Rows, held: Rows | None, settings: Settings, rng: np.random.Generator) -> Start:
    """Returns a grown forest, and hinge trees fitted to its out-of-bag residuals.

    Their splits are those of trees boosted on the residuals.
    """
    task, classes = settings.task, settings.task == "classification"
    kernel = _random_kernel(rows.x, settings.n_projections, rng)
    y = np.eye(settings.n_classes or 1)[rows.y] if classes else rows.y.astype(np.float64)
    forest, out_of_bag, squares = _grown(rows, y, kernel, settings, rng)
    picked = drawn(rows, rng)
    z = inputs(rows.x[picked], kernel)
    share = np.array(1.0 if settings.share is None else settings.share)
    grown: FloatArray | None = None
    if held is not None:
        grown = tree.predict(forest, forest_inputs(held.x, kernel, held.native)).astype(np.float64)
    residual = (y - out_of_bag)[picked]
    (t, f, w), intercept, _ = hinge.from_forest(
        z,
        residual,
        start_trees(z, residual, settings, rng),
        settings.depth,
        l2=recipe.RIDGE,
        tolerance=recipe.TOLERANCE,
        task="regression",
    )
    factors = (recipe.FACTORS if held is not None else (recipe.DEFAULT_FACTOR,)) if classes else (1.0,)
    best: tuple[float, Member] | None = None
    for factor in factors:
        scale, loss = np.float32(factor), 0.0
        member = Member(
            kernel, t, f, w * scale, intercept * scale, kernel, forest, np.array(1.0), share, squares=squares
        )
        if held is not None:
            loss = loss_of(trees_outputs(member, held.x, grown, task), held, task)
        if best is None or loss < best[0]:
            best = loss, member
    assert best is not None
    return Start(best[1], offset_of(out_of_bag, task), grown)
