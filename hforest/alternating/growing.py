"""Growth of alternating decision forests (Schulter et al. 2013)."""

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from .. import growth
from ..core import check, dispatch, supervised
from ..core.aliases import ArrayLike, FloatArray
from ..core.keywords import shared
from ..core.progress import reporting
from ..core.projections import check_n_features
from ..growth import Samples, unchecked
from ..growth.growing import walked
from ..growth.settings import check_candidates, check_growth
from ..tree import Forest, apply, predict
from ..tree.forest import marked
from .losses import Loss, Name, Weights, check_loss
from .settings import Settings

if TYPE_CHECKING:
    from . import levels

_PACKAGE = "hforest.alternating"
_NONE: dict[str, Any] = {
    "splitter": "best", "bootstrap": False, "max_samples": None, "y_order": None, "monotonic_cst": None,
    "max_leaf_nodes": None, "first_tree": 0,
}  # fmt: skip
"""Settings of `hforest.grow` that these forests do not have."""


@shared(Settings, growth.grow)
def grow(
    x: ArrayLike | Samples,
    y: ArrayLike,
    n_trees: int = 100,
    *,
    loss: Name | Loss = "exponential",
    min_loss_decrease: float | None = None,
    **settings: Unpack[Settings],
) -> Forest:
    """Returns an alternating decision forest (Schulter et al. 2013).

    Other parameters: see `hforest.grow`.

    Parameters
    ----------
    y : (n_samples,) array-like of integers or bools
        Labels 0 to n_classes - 1.
    loss : "exponential", "logistic", or tuple of two functions
        Convex loss of the margin: ``exp(-m)``, ``log(1 + exp(-m))``, or functions (value, derivative) of a
        float64 array (n_samples,) of margins, which return arrays of its shape. The steeper the loss, the
        more the samples' weights differ.
    min_loss_decrease : float, optional
        Growth ends when a level decreases the forest's mean loss by less; by default levels are not compared,
        and the value of the loss is not computed.

    Returns
    -------
    Forest
        Forest as `hforest.grow` returns it; leaf values are shares of the classes by `sample_weight`. Its
        `gain` is by the weights of each level, which sum to those of the samples.

    Raises
    ------
    ValueError
        Values or slopes of a loss beyond 1e100 or not finite.

    Notes
    -----
    All trees have every sample, and grow level by level. At a level the forest's prediction p of a sample is
    the mean over the trees of the shares in the nodes that it reaches. Its margin is ``m = p[y] - max(p[k], k
    != y)``, -1 to 1. Splits of the next level are scored by the weights

        w_i = sample_weight_i * abs(dL/dm at m_i),

    divided so that their sum is that of `sample_weight`. The first level has `sample_weight` itself. Weights
    are at least 2**-40 of the largest slope, so that leaves are pure for every sample. If all slopes are 0,
    growth ends.

    A constant slope gives the forest of ``hforest.grow(x, y, bootstrap=False)``, bit for bit. What had to be
    decided: the margin of several classes, the first level without weights, values of leaves without them,
    and no bootstrap. Depths of a batch of trees depend on all of them, so ranges of trees cannot be joined.

    Results are the same for every number of threads. Cost: that of `hforest.grow` with fractional weights,
    and two walks of all samples through the trees for each level, ``n_samples n_trees depth**2`` steps.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(300, 4))
    >>> y = x[:, 0] + x[:, 1] > x[:, 2]
    >>> forest = hforest.alternating.grow(x, y, 20, max_depth=6, rng=0)
    >>> bool((hforest.tree.predict(forest, x).argmax(axis=1) == y).mean() > 0.95)
    True
    """
    from . import levels  # loads compiled modules that importing hforest does not need

    pair, least = check_loss(loss), None
    if min_loss_decrease is not None:
        least = check.number("min_loss_decrease", min_loss_decrease, 0.0)
    check.choice("task", settings["task"], ("classification",))
    source = growth.samples(x)
    if np.ndim(y) == 1:
        # Before the check of any growth, which names targets as a remedy.
        supervised.labels("y", y, source.shape[0], settings["n_classes"])
    given: dict[str, Any] = dict(settings)
    projections, n_projections, max_features = (
        given.pop(name) for name in ("projections", "n_projections", "max_features")
    )
    distribution, n_sampled = check_candidates(
        projections, n_projections, max_features, "classification", None
    )
    candidates: Any
    if distribution is not None:
        check_n_features(distribution, source.shape[1])
        candidates = partial(unchecked.on_projections, distribution=distribution, n_projections=n_sampled)
    else:
        n_sampled = supervised.max_features(max_features, source.shape[1], "classification")
        candidates = partial(unchecked.on_bins, max_features=n_sampled)
    checked = check_growth(source, y, n_trees, **_NONE, **given)
    check.require(
        checked.objective.target.class_start is None, "y", "one label a sample", "several labels",
        "grow a forest for each label",
    )  # fmt: skip
    base = dispatch.to_numpy(checked.objective.sample_weight)
    engine = levels.Engine(checked, candidates, distribution is not None, math.fsum(base.tolist()))
    weights = Weights(pair, least, base, dispatch.to_numpy(checked.objective.target.labels))
    if not dispatch.is_reference():
        return marked(_grow(engine, weights))
    trees = dispatch.backend(_PACKAGE, base).grow(checked, weights, distribution, n_sampled)
    return marked(unchecked.forest(trees, checked, projected=distribution is not None))


def _predicted(forest: Forest, x: Any) -> FloatArray:
    """Returns predictions as a NumPy array."""
    return dispatch.to_numpy(predict(forest, x))


def _grow(engine: "levels.Engine", weights: Weights) -> Forest:
    """Returns the forest."""
    from . import levels

    checked, source = engine.growth, engine.growth.samples
    n_trees, projected = checked.n_trees, engine.projected
    x, to_device = walked(source), dispatch.array_module(source.numbers).asarray
    inside = weights.sample_weight > 0
    samples = levels.of_roots(inside, n_trees)
    nodes = levels.roots(checked)
    of_levels, n_samples = [nodes], len(samples.sample)
    host, number = levels.forest_of(of_levels, n_trees, source.shape[1], projected=projected)
    with reporting(checked.progress, n_trees, "tree") as report:
        while True:
            nodes.value[:] = levels.grown(engine, samples, nodes.key, weights.sample_weight, 0).value
            forest = Forest(*map(to_device, levels.with_values(host, number, of_levels)))
            growing = levels.impure(weights.labels, samples)
            if len(of_levels) > checked.objective.limits.max_depth or not len(growing):
                report(n_trees)
                break
            n_pending = int(np.diff(samples.indptr)[growing].sum())
            if not report(n_trees * (n_samples - n_pending) // n_samples):
                break
            weight = weights.of_level(partial(_predicted, forest, x))
            if weight is None:
                break
            trees = levels.grown(engine, samples.of(growing), nodes.key[growing], weight, 1)
            of_levels[-1] = levels.with_splits(nodes, growing, trees)
            nodes = levels.children(of_levels[-1])
            if not len(nodes.tree):
                break
            of_levels.append(nodes)
            host, number = levels.forest_of(of_levels, n_trees, source.shape[1], projected=projected)
            leaf = dispatch.to_numpy(apply(Forest(*map(to_device, host)), x))
            samples = levels.samples_of(leaf, host.tree_start, number, len(nodes.tree), inside)
            check.require(
                bool((np.diff(samples.indptr) > 0).all()), "x", "samples that stay as they are", "others",
                "do not change x during the call",
            )  # fmt: skip
    return forest
