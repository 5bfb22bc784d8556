"""One oblique split, fitted by the convex-concave procedure (Norouzi et al. 2015, Alg. 1)."""

from typing import NamedTuple

import numpy as np

from ..core import check, dispatch
from ..core.aliases import ArrayLike, FloatArray, Rng, Task
from ..core.gpu import cast
from . import any_loss, checks
from .any_loss import Loss
from .descent import Schedule, descend

_PACKAGE = "hforest.co2"
_MAX_ROUNDS = 2**20


class StumpSettings(NamedTuple):
    """Further settings of a stump, which Norouzi et al. 2015 fix or leave open."""

    tau: int = 2
    """Epochs of a round, at least 1; after each round w_old is set to w."""
    batch_size: int = 100
    """Number of samples per step, at least 1; all if there are fewer."""
    momentum: float = 0.9
    """Momentum of the steps, 0 to 1."""
    convex_rounds: int = 0
    """Number of first rounds in which the sign of w_old.x counts as 0, at least 0."""
    min_steps: int = 20
    """Minimum number of steps of a round, for nodes of few batches."""
    patience: int = 1
    """Number of rounds without progress after which the learning rate still stays, at least 0."""
    decay: float = 0.5
    """Factor of the learning rate after more such rounds, above 0 and at most 1; after the third time the
    stump is done."""
    tolerance: float = 1e-3
    """Fraction by which a round must lower the surrogate to count as progress, 0 to 1."""
    smooth: float = 0.3
    """Added to the weight of each class on a side before its logarithm is the first theta, above 0."""


class Stump(NamedTuple):
    """Oblique split and the parameters of its sides."""

    w: FloatArray
    """(n_features,), dtype of x: ``w.x >= 0`` goes right."""
    theta0: FloatArray
    """(n_outputs,), dtype of x: unnormalised log-probabilities of classes, or mean targets, on the left."""
    theta1: FloatArray
    """(n_outputs,), dtype of x: the same on the right."""


def schedule(
    nu: float, lr: float, max_rounds: int, stump: StumpSettings, min_samples_oblique: int = 1
) -> Schedule:
    """Returns the settings of a stump after a check."""
    check.instance("stump", stump, StumpSettings, "a StumpSettings", "pass hforest.co2.StumpSettings(tau=2)")
    return Schedule(
        nu=check.number("nu", nu, 0.0, open_low=True),
        eta=check.number("lr", lr, 0.0, open_low=True),
        momentum=check.number("stump.momentum", stump.momentum, 0.0, 1.0),
        decay=check.number("stump.decay", stump.decay, 0.0, 1.0, open_low=True),
        tolerance=check.number("stump.tolerance", stump.tolerance, 0.0, 1.0),
        smooth=check.number("stump.smooth", stump.smooth, 0.0, open_low=True),
        tau=check.integer("stump.tau", stump.tau, 1, _MAX_ROUNDS),
        batch=check.integer("stump.batch_size", stump.batch_size, 1, check.MAX_COUNT),
        min_steps=check.integer("stump.min_steps", stump.min_steps, 1, _MAX_ROUNDS),
        patience=check.integer("stump.patience", stump.patience, 0, _MAX_ROUNDS),
        max_rounds=check.integer("max_rounds", max_rounds, 0, _MAX_ROUNDS),
        convex_rounds=check.integer("stump.convex_rounds", stump.convex_rounds, 0, _MAX_ROUNDS),
        min_samples=check.integer("min_samples_oblique", min_samples_oblique, 1, check.MAX_COUNT),
    )


def check_loss(loss: Loss | None, task: Task, n_classes: int | None = None) -> None:
    """Checks a caller's loss, if any, and that nothing else says what y holds."""
    if loss is None:
        return
    any_loss.check_pair(loss)
    remedy = "leave it out: the loss decides what y holds"
    for name, value, default in (("task", task, "classification"), ("n_classes", n_classes, None)):
        same = type(value) is type(default) and value == default
        check.require(same, name, f"{default!r} with a loss of your own", repr(value), remedy)


def fit_stump(
    x: FloatArray,
    y: ArrayLike,
    w: FloatArray,
    *,
    nu: float = 10.0,
    lr: float = 0.01,
    max_rounds: int = 20,
    stump: StumpSettings = StumpSettings(),  # noqa: B008 (a tuple)
    sample_weight: ArrayLike | None = None,
    task: Task = "classification",
    n_classes: int | None = None,
    loss: Loss | None = None,
    theta: ArrayLike | None = None,
    history: list[float] | None = None,
    rng: Rng = None,
) -> Stump:
    """Returns one oblique split, fitted by the convex-concave procedure (Norouzi et al. 2015, Alg. 1).

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Samples, at least one; append a constant column of -1 for an offset.
    y : (n_samples,) array of integers or bools, or (n_samples,) or (n_samples, n_outputs) array of numbers
        Labels 0 to n_classes - 1, or targets in a regression.
    w : (n_features,) array, dtype of x
        Initial split, such as a univariate one. It is not changed.
    nu, lr, max_rounds : float, float, int
        Bound on ``||w||**2`` and learning rate (eta in Norouzi et al. 2015), above 0; maximum number of
        rounds, at least 0.
    stump : StumpSettings
        Other settings of the procedure.
    sample_weight : (n_samples,) array of real numbers, optional
        Weights of the samples, 0 to 1e15, not all below 1e-60. The largest is at most 2e90 times the smallest
        above 0. A sample of weight 0 is left out.
    task : "classification" or "regression"
        Whether the loss is the log loss (eq. 3) or the squared loss (eq. 4).
    loss : tuple of two functions, optional
        A convex loss in place of that of the task: (value, gradient), as in `surrogate`.
    theta : (2, n_outputs) array of real numbers, optional
        Initial theta0 and theta1; required with `loss`, and only allowed there.
    history : list, optional
        The surrogates at the start and after every round are appended.

    Returns
    -------
    Stump
        (w, theta0, theta1), a NamedTuple.

    Raises
    ------
    ValueError
        Numbers beyond 1e15; losses beyond 1e100.

    Notes
    -----
    Norouzi et al. 2015, Alg. 1, with mini-batches, averaged gradients and momentum, for w and theta alike.
    Each epoch visits every sample once, in an order drawn from the seed. ``||w||**2 <= nu`` holds after every
    step. The result is the state of least surrogate at the start or after a round, so the surrogate never
    ends above its start. A node of one class is allowed: its w separates nothing.

    If all samples are far from the first split, as with features of two values, the bound is flat and no step
    moves w. `convex_rounds` omit its concave part, as if w_old were 0 (where 0 is a tangent of -|w.x|); the
    convex rest has a slope. Cost: about 1.4 reads of x per epoch, from memory once.

    With `loss` the same steps run in NumPy, on the CPU, and y is any array with a row per sample. Rounds end
    when the surrogate is not above 0, so losses should be at least 0: if necessary add a constant.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest import co2
    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(size=(300, 2)), -np.ones((300, 1))], axis=1)
    >>> y = x[:, 0] + x[:, 1] > 0
    >>> w, theta0, theta1 = co2.fit_stump(x, y, np.array([1.0, 0, 0]), lr=0.1, rng=0)
    >>> bool(((x @ w >= 0) == y).mean() > 0.95)
    True
    """
    check.history(history)
    settings = schedule(nu, lr, max_rounds, stump)
    if loss is not None:
        check_loss(loss, task, n_classes)
        node = any_loss.node_and_split(x, y, w, loss, sample_weight)
        start = any_loss.start(theta)
        values = np.full(settings.max_rounds + 1, np.nan)
        fitted, (theta0, theta1) = descend(node, settings, check.seed(rng), w, start, values)
    else:
        remedy = "leave it out, or pass two functions as loss"
        check.require(theta is None, "theta", "None without a loss", type(theta).__name__, remedy)
        samples, n_outputs = checks.samples_and_split(x, y, w, sample_weight, task, n_classes)
        xp = dispatch.array_module(x)
        fitted = w.copy()
        theta0, theta1 = xp.zeros(n_outputs), xp.zeros(n_outputs)
        values = xp.full(settings.max_rounds + 1, np.nan)
        run = dispatch.backend(_PACKAGE, x).fit_stump
        run(samples, settings, check.seed(rng), (fitted, theta0, theta1), values)
    if history is not None:
        history.extend(float(a) for a in dispatch.to_numpy(values) if a == a)
    return Stump(fitted, cast(theta0, x.dtype), cast(theta1, x.dtype))
