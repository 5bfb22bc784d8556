"""Training of shallow neural forests: Algorithm 1 of Zhang 2017 with linear decision functions."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from .. import optim
from ..core import check, class_factors, series, supervised
from ..core.aliases import ArrayLike, ClassWeight, FloatArray, IntArray, Progress, Rng
from ..core.keywords import answered
from ..core.progress import check_progress, reporting
from ..core.units import standardized
from . import units
from .checks import MAX_ITERATIONS
from .gradients import loss_backward
from .leaves import update_leaves
from .linear import (
    Linear,
    empty_decisions,
    labelled,
    tree_decisions,
    tree_input,
    tree_inputs,
    write_decisions,
)


class _Learned(NamedTuple):
    """Training samples."""

    x: FloatArray
    y: IntArray
    weight: FloatArray | None
    """(n_samples,) float64, above 0, of mean 1; None for equal weights."""


def _learned(x: FloatArray, y: IntArray, n_classes: int, sample_weight: Any, class_weight: Any) -> _Learned:
    """Returns the samples whose weight is not 0."""
    target = supervised.Target(y, None, n_classes)
    weight = class_factors.applied(class_weight, target, supervised.sample_weight(sample_weight, y))
    supervised.similar("sample_weight", weight)
    positive = weight > 0
    if not positive.all():
        x, y, weight = x[positive], y[positive], weight[positive]
    return _Learned(x, y, None if bool((weight == weight[0]).all()) else weight / weight.mean())


def _fit_leaves(model: Linear, data: _Learned, n_iter: int) -> None:
    # Tree by tree, for decisions of the whole training set may not fit into memory.
    model.leaves[:] = 1 / model.leaves.shape[2]
    for m in range(len(model.weights)):
        f = tree_decisions(model, m, tree_input(model, m, data.x))[:, None]
        leaves = model.leaves[m : m + 1]
        model.leaves[m] = update_leaves(f, data.y, leaves, n_iter, sample_weight=data.weight)[0]


def _epoch(
    model: Linear, data: _Learned, batch_size: int, lr: float, loss: Any, rng: np.random.Generator
) -> float:
    """Trains the weights for one pass over the samples; returns the mean loss of its batches."""
    x, y, weight = data
    size = min(batch_size, len(x))
    # Every epoch has a new order; the last samples, too few for a batch, are left out.
    batches = rng.permutation(len(x))[: len(x) // size * size].reshape(-1, size)
    m, v, grad = (np.zeros_like(model.weights) for _ in range(3))
    f, grad_f = (empty_decisions(model, size) for _ in range(2))
    losses = []
    for step, picked in enumerate(batches, 1):
        parts = tree_inputs(model, x[picked])
        of_batch = None if weight is None else weight[picked]
        write_decisions(model, parts, f)
        losses.append(adam_step(model, parts, f, y[picked], of_batch, (m, v, grad, grad_f), step, lr, loss))
    return float(np.mean(losses))


def adam_step(
    model: Linear,
    parts: list[FloatArray],
    f: FloatArray,
    y: IntArray,
    weight: FloatArray | None,
    state: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
    step: int,
    lr: float,
    loss: Any,
) -> float:
    """Updates the weights by a batch with inputs `parts` and decision functions f; returns its loss.

    state: moments IN and OUT, then arrays for the gradients with respect to weights and f.
    """
    m, v, grad, grad_f = state
    value, _ = loss_backward(f, model.leaves, y, loss=loss, sample_weight=weight, out=grad_f)
    for tree, part in enumerate(parts):
        grad[tree] = part.T @ grad_f[:, tree]
    if weight is not None:  # a batch counts by its weight: the objective is the mean over all samples
        value *= float(weight.mean())
        grad *= grad.dtype.type(weight.mean())
    optim.adam(model.weights, grad, m, v, step, lr)
    return value


@answered
def fit(
    model: Linear,
    x: ArrayLike,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    class_weight: ClassWeight = None,
    epochs: int = 20,
    batch_size: int = 64,
    lr: float = 0.1,
    last_lr: float = 0.005,
    n_iter: int = 20,
    loss: Literal["tree", "forest"] = "tree",
    standardize: bool = True,
    first_epoch: int = 0,
    history: list[float] | None = None,
    checkpoint: Callable[[Linear], object] | None = None,
    progress: Progress = None,
    rng: Rng = None,
) -> Linear:
    """Returns a model with decision functions and leaves trained alternately (Zhang 2017, Alg. 1).

    Other parameters: see `decisions` and `loss_backward`.

    Parameters
    ----------
    model : Linear
        Initial model: of `linear_init`, or of an earlier epoch. It is not changed.
    sample_weight : (n_samples,) array_like of real numbers, optional
        Weights of the samples, at least 0, not all 0; samples of weight 0 are left out. By default 1.
    epochs : int
        Number of passes over the samples. Before each pass, and after the last, uniform leaves are fitted to
        all samples.
    batch_size : int
        Number of samples per step of Adam, whose state is set to 0 after each epoch.
    lr, last_lr : float
        Learning rates of the first and of the last epoch, with a cosine schedule between them.
    n_iter : int
        Number of iterations of the leaf update, 1 to 2**20; 20 in Kontschieder et al. 2015.
    standardize : bool
        Whether Adam's weights are those of standardised columns of x. The initial and the returned model
        always take x itself.
    first_epoch : int
        Number of epochs for which `model` has been trained. With the same arguments and an int as `rng` the
        result is bit-identical to uninterrupted training.
    history : list, optional
        The weighted mean loss of each epoch is appended.
    checkpoint : callable, optional
        Called as checkpoint(model) after every epoch, with a copy of the model so far.

    Returns
    -------
    Linear
        New arrays. If `progress` stopped the training, the leaves are those of the last epoch.

    Notes
    -----
    Adam's learning rate has the unit of a weight. With `standardize` training does not depend on the units of
    columns, up to rounding, if the initial model does not (`linear_init` with `x`, `from_forest`).

    Cost: for each epoch a forward and a backward pass over all samples, a step of Adam over all weights for
    each batch, and a leaf update.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(500, 4)); y = x[:, 0] * x[:, 1] > 0
    >>> start = hforest.neural.linear_init(5, 4, 4, 2, x=x, rng=0)
    >>> model = hforest.neural.fit(start, x, y, epochs=5, rng=0)
    >>> bool((hforest.neural.predict(model, x).argmax(axis=1) == y).mean() > 0.9)
    True
    """
    check_progress(progress)
    check.function("checkpoint", checkpoint, "model")
    check.history(history)
    x, y = labelled(model, x, y)
    data = _learned(x, y, model.leaves.shape[2], sample_weight, class_weight)
    epochs = check.integer("epochs", epochs, 1, check.MAX_COUNT)
    first_epoch = check.integer("first_epoch", first_epoch, 0, epochs)
    batch_size = check.integer("batch_size", batch_size, 1, check.MAX_COUNT)
    n_iter = check.integer("n_iter", n_iter, 1, MAX_ITERATIONS)
    lr = check.number("lr", lr, 0.0, open_low=True)
    last_lr = check.number("last_lr", last_lr, 0.0, lr, open_low=True)
    check.choice("loss", loss, ("tree", "forest"))
    check.flag("standardize", standardize)
    seed = check.repeatable_seed(rng)
    model = _copy(model)
    of_x = units.of_samples(data.x) if standardize else None
    if of_x is not None:
        data = data._replace(x=standardized(data.x, of_x))
    with reporting(progress, epochs, "epoch") as report:
        for epoch in range(first_epoch, epochs):
            along = epoch / max(epochs - 1, 1)
            rate = last_lr + (lr - last_lr) * (1 + series.cos_of_turns(along / 2)) / 2
            if of_x is not None:
                model = model._replace(weights=units.to_units(model.features, model.weights, of_x))
            _fit_leaves(model, data, n_iter)
            value = _epoch(model, data, batch_size, float(rate), loss, np.random.default_rng([seed, epoch]))
            if epoch + 1 == epochs:
                _fit_leaves(model, data, n_iter)
            if of_x is not None:  # after every epoch, so that training continues from a checkpoint unchanged
                model = model._replace(weights=units.from_units(model.features, model.weights, of_x))
            if history is not None:
                history.append(value)
            if checkpoint is not None:
                checkpoint(_copy(model))
            if not report(epoch + 1):
                break
    return model


def _copy(model: Linear) -> Linear:
    return Linear(*(a.copy() for a in model))
