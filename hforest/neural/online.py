"""Training by a stream of mini-batches: a step of Adam and a step of on-line EM for each."""

from typing import Any, Literal, NamedTuple

import numpy as np

from ..core import check, series, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray
from ..core.units import Units, standardized
from . import units
from .linear import Linear, empty_decisions, labelled, tree_inputs, write_decisions
from .routing import route
from .training import adam_step

FORGETTING = 0.7
"""The statistics of batch t enter with the weight (t + 1)**-FORGETTING."""
PRIOR = 1e-9
"""Mass of uniform shares in a leaf, of a total of 1 per tree: no class gets probability 0."""


class OnlineState(NamedTuple):
    """State of `partial_fit` between its calls, besides the model."""

    mean: FloatArray
    """(n_features,) float64: means of the columns in the first call; 0 without `standardize`."""
    deviation: FloatArray
    """(n_features,) float64: their deviations; 1 for constant columns, and without `standardize`."""
    m: FloatArray
    """First moments of Adam, shape and dtype of the model's weights."""
    v: FloatArray
    """Second moments."""
    mass: FloatArray
    """(n_trees, 2**depth, n_classes) float64: mean posteriors, late batches weighted most."""
    n_steps: IntArray
    """() int64: number of mini-batches so far."""


def _posteriors(f: FloatArray, y: IntArray, leaves: FloatArray, weight: FloatArray | None) -> FloatArray:
    """Returns (n_trees, 2**depth, n_classes) float64: means over samples of the posteriors of the leaves."""
    mu = route(f)
    shares = mu * leaves[:, :, y].transpose(2, 0, 1)
    total = shares.sum(axis=2, dtype=np.float64, keepdims=True)
    # If products leave the range of the dtype, or a class has probability 0, posteriors are mu alone.
    known = np.isfinite(1 / np.where(total > 0, total, np.inf)) & (total > 0)
    post = np.where(known, shares / np.where(known, total, 1), mu)
    times = np.ones(len(y)) if weight is None else weight
    mass = np.zeros(leaves.shape)
    for k in np.unique(y):
        of_class = y == k
        mass[:, :, k] = np.tensordot(times[of_class], post[of_class], 1)
    return mass / times.sum()


def _check_state(state: Any, model: Linear, n_features: int) -> None:
    check.instance("state", state, OnlineState, "an OnlineState", "pass the state that partial_fit returned")
    real = np.dtype(np.float64)
    with check.fields_of("state"):
        for name, shape, dtype in (
            ("mean", (n_features,), real),
            ("deviation", (n_features,), real),
            ("m", model.weights.shape, model.weights.dtype),
            ("v", model.weights.shape, model.weights.dtype),
            ("mass", model.leaves.shape, real),
            ("n_steps", (), check.INT64),
        ):
            a = getattr(state, name)
            if not hasattr(a, "dtype"):
                raise TypeError(
                    f"{name}: expected an array, got {type(a).__name__}; pass the state that partial_fit "
                    "returned"
                )
            check.on_cpu(**{name: a})
            check.array(name, a, dtype, shape, {})
            if a.ndim:
                check.finite(name, a)
        if not bool((state.deviation > 0).all()) or bool((state.v < 0).any()) or bool((state.mass < 0).any()):
            raise ValueError(
                "deviation: expected deviations above 0, second moments and masses of at least 0, got "
                "other values; pass the state that partial_fit returned"
            )
        check.integer("n_steps", int(state.n_steps), 1, check.MAX_COUNT)


def partial_fit(
    model: Linear,
    x: ArrayLike,
    y: ArrayLike,
    *,
    state: OnlineState | None = None,
    sample_weight: ArrayLike | None = None,
    batch_size: int = 64,
    lr: float = 0.05,
    loss: Literal["tree", "forest"] = "tree",
    standardize: bool = True,
) -> tuple[Linear, OnlineState]:
    """Returns a model after training on more samples, and the state for the next call.

    Each sample is used once, in their order. Other parameters: see `fit`.

    Parameters
    ----------
    model : Linear
        Initial model: of `linear_init` or `fit`, then of the previous call. It is not changed.
    state : OnlineState, optional
        State of the previous call. By default training begins, and this call sets the units of columns.
    lr : float
        Learning rate.
    standardize : bool
        Whether Adam's weights are those of standardised columns, with means and deviations over x of the
        first call. Unused with `state`.

    Returns
    -------
    model : Linear
        New arrays.
    state : OnlineState
        For the next call.

    Raises
    ------
    ValueError
        A state of another model.

    Notes
    -----
    Leaves are fitted by on-line expectation maximisation (Cappé and Moulines 2009, equations 11 and 12). Let
    s be the mean posteriors of leaves and classes in batch t = 1, 2, ..., counted over all calls: the sums of
    `update_leaves` divided by the weight of the batch. They update the statistics by ``S = (1 - a) S + a s``
    with ``a = (t + 1)**-0.7``; a leaf's row is S divided by its sum. Initially S is the leaves of `model`,
    weighted by their mean shares of the first batch. With these leaves Adam takes a step on the batch's mean
    weighted loss.

    Cost: a forward and a backward pass over the samples, and two more operations per leaf and sample. Extra
    memory: 4 batch_size n_trees 2**depth numbers.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(2000, 4)); y = x[:, 0] * x[:, 1] > 0
    >>> model, state = hforest.neural.linear_init(5, 4, 4, 2, x=x[:200], rng=0), None
    >>> for first in range(0, 2000, 200):
    ...     part = slice(first, first + 200)
    ...     model, state = hforest.neural.partial_fit(model, x[part], y[part], state=state, batch_size=20)
    >>> bool((hforest.neural.predict(model, x).argmax(axis=1) == y).mean() > 0.9)
    True
    """
    x, y = labelled(model, x, y)
    batch_size = check.integer("batch_size", batch_size, 1, check.MAX_COUNT)
    lr = check.number("lr", lr, 0.0, open_low=True)
    check.choice("loss", loss, ("tree", "forest"))
    check.flag("standardize", standardize)
    weight = None if sample_weight is None else supervised.sample_weight(sample_weight, y)
    if weight is not None and not weight.all():
        x, y, weight = x[weight > 0], y[weight > 0], weight[weight > 0]
    if state is None:
        n_features = x.shape[1]
        plain = Units(np.zeros(n_features), np.ones(n_features))
        of_x = units.of_samples(x) if standardize else plain
    else:
        _check_state(state, model, x.shape[1])
        of_x = Units(state.mean, state.deviation)
    x = standardized(x, of_x)
    weights = units.to_units(model.features, model.weights, of_x)
    trained = Linear(model.features, weights, model.leaves.copy())
    m, v = (np.zeros_like(weights) for _ in range(2)) if state is None else (state.m.copy(), state.v.copy())
    mass = None if state is None else state.mass
    step = 0 if state is None else int(state.n_steps)
    for first in range(0, len(x), batch_size):
        part = slice(first, first + batch_size)
        step += 1
        mass = _step(
            trained, x[part], y[part], None if weight is None else weight[part], (m, v, mass), step, lr, loss
        )
    assert mass is not None
    raw = units.from_units(model.features, weights, of_x)
    result = OnlineState(of_x.mean, of_x.deviation, m, v, mass, np.array(step))
    return trained._replace(weights=raw), result


def _step(
    model: Linear,
    x: FloatArray,
    y: IntArray,
    weight: FloatArray | None,
    state: tuple[FloatArray, FloatArray, FloatArray | None],
    step: int,
    lr: float,
    loss: Any,
) -> FloatArray:
    """Updates leaves, weights and moments in place; returns the statistics."""
    m, v, mass = state
    parts = tree_inputs(model, x)
    f = write_decisions(model, parts, empty_decisions(model, len(x)))
    posterior = _posteriors(f, y, model.leaves, weight)
    if mass is None:
        mass = model.leaves * posterior.sum(axis=2, keepdims=True)
    late = float(series.exp(-FORGETTING * series.log(step + 1)))  # with the same bits on every processor
    mass = (1 - late) * mass + late * posterior
    rows = mass + PRIOR / mass.shape[2]
    model.leaves[:] = rows / rows.sum(axis=2, keepdims=True)
    space = np.empty_like(model.weights), np.empty_like(f)
    adam_step(model, parts, f, y, weight, (m, v, *space), step, lr, loss)
    return mass
