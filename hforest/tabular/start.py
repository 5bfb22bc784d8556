"""Initialisation of a member: a grown forest, and hinge trees that correct it by ridge regression."""

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
    """(n_samples, n_outputs) float64; the mean over the rows where every tree drew a row."""


def _grown(
    rows: Rows, y: FloatArray, kernel: FloatArray, settings: Settings, rng: np.random.Generator
) -> _Grown:
    """Returns one forest: trees on columns, then trees on columns and inner products.

    `y` (n_samples, n_outputs) has shares of the classes, or targets.
    """
    z = forest_inputs(rows.x, kernel, rows.native)
    plain = rows.x if rows.native is None else rows.native
    n_plain = round(recipe.PLAIN * settings.n_trees) if kernel.size else settings.n_trees
    parts, counts = [], []
    for a, n_trees in ((plain, n_plain), (z, settings.n_trees - n_plain)):
        if not n_trees:
            continue
        n_features = a.shape[1]
        max_features: AutoFeatures = "sqrt"
        if settings.task == "regression":
            max_features = min(max(n_features // 3, min(n_features, 3)), recipe.MAX_FEATURES)
        drawn_by = growth.bootstrap_counts(len(a), n_trees, rng=rng)
        grown = growth.grow(
            a, rows.y, n_trees, sample_weight=rows.weight, max_features=max_features, bootstrap=drawn_by,
            task=settings.task, n_classes=settings.n_classes, rng=rng,
        )  # fmt: skip
        grown = grown._replace(n_features=np.array(z.shape[1]))
        parts.append(grown)
        counts.append(drawn_by)
    forest = tree.join(parts)
    outputs = tree.out_of_bag(forest, z, np.concatenate(counts)).astype(np.float64)
    unseen = np.isnan(outputs[:, 0])
    outputs[unseen] = np.average(y, axis=0, weights=rows.weight)
    return _Grown(forest, outputs)


def begin(rows: Rows, held: Rows | None, settings: Settings, rng: np.random.Generator) -> Start:
    """Returns a grown forest, and hinge trees fitted to its out-of-bag residuals.

    Their splits are those of trees boosted on the residuals.
    """
    task, classes = settings.task, settings.task == "classification"
    kernel = _random_kernel(rows.x, settings.n_projections, rng)
    y = np.eye(settings.n_classes or 1)[rows.y] if classes else rows.y.astype(np.float64)
    forest, out_of_bag = _grown(rows, y, kernel, settings, rng)
    picked = drawn(rows, rng)
    z = inputs(rows.x[picked], kernel)
    share = np.array(1.0 if settings.share is None else settings.share)
    best: tuple[float, Start] | None = None
    grown: FloatArray | None = None
    if held is not None:
        grown = tree.predict(forest, forest_inputs(held.x, kernel, held.native)).astype(np.float64)
    for multiple in recipe.OFFSETS[task] if held is not None else recipe.OFFSETS[task][-1:]:
        residual = (y - multiple * out_of_bag)[picked]
        (t, f, w), intercept, _ = hinge.from_forest(
            z,
            residual,
            start_trees(z, residual, settings, rng),
            settings.depth,
            l2=recipe.RIDGE,
            tolerance=recipe.TOLERANCE,
            task="regression",
        )
        offset = np.float32(multiple) * offset_of(out_of_bag, task)
        factors = (recipe.FACTORS if held is not None else (recipe.DEFAULT_FACTOR,)) if classes else (1.0,)
        for factor in factors:
            scale, loss = np.float32(factor), 0.0
            member = Member(
                kernel, t, f, w * scale, intercept * scale, kernel, forest, np.array(multiple), share
            )
            if held is not None:
                loss = loss_of(trees_outputs(member, held.x, grown, task), held, task)
            if best is None or loss < best[0]:
                best = loss, Start(member, offset, grown)
    assert best is not None
    return best[1]
