"""CO2 forests (p2): oblique splits by continuous optimisation of a bound on the loss.

A split sends a sample right where ``w.x >= 0``, x with a constant -1 appended; w is fitted by the
convex-concave procedure to the surrogate of eq 10, from the best of some random univariate splits. Scale the
features to [0, 1] or to zero mean and unit deviation: the step and the bound on w know no other units. A
forest is a `hforest.tree.Forest`.

Wrong kinds and dtypes raise TypeError, wrong shapes and values ValueError, labels out of range IndexError;
the checks that read whole arrays can be skipped inside `hforest.unchecked()`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import growth, tree
from ..core import check, dispatch, machine
from ..core.dispatch import Array
from ..growth import Progress
from ..growth.trees import joined
from ..tree import Forest

__all__ = ["Trials", "fit_oc1", "fit_stump", "grow", "search", "surrogate", "surrogate_grad"]

_ROOM = __name__
_LOSSES = ("log", "squared")
_TASKS = ("classification", "regression")
_CRITERIA = ("gini", "entropy", "squared_error")
_SPLITTERS = ("co2", "oc1")
_MOST = 2**31 - 1
_MOST_OUTPUTS = 2**20
_LARGEST = 1e15  # of x and w: products of theirs are numbers, their squares too


class Search(NamedTuple):
    """How a coordinate-wise search goes on from a local optimum."""

    restarts: int
    jumps: int


class Schedule(NamedTuple):
    """How a stump is fitted."""

    nu: float
    eta: float
    momentum: float
    decay: float
    tolerance: float
    smooth: float
    tau: int
    batch: int
    min_steps: int
    patience: int
    max_rounds: int
    convex_rounds: int
    min_samples: int


def _schedule(
    nu: float,
    eta: float,
    momentum: float,
    decay: float,
    tolerance: float,
    smooth: float,
    tau: int,
    batch: int,
    min_steps: int,
    patience: int,
    max_rounds: int,
    convex_rounds: int,
    min_samples_oblique: int = 1,
) -> Schedule:
    return Schedule(
        check.number("nu", nu, 0.0, open_low=True),
        check.number("eta", eta, 0.0, open_low=True),
        check.number("momentum", momentum, 0.0, 1.0),
        check.number("decay", decay, 0.0, 1.0, open_low=True),
        check.number("tolerance", tolerance, 0.0, 1.0),
        check.number("smooth", smooth, 0.0, open_low=True),
        check.integer("tau", tau, 1, 2**20),
        check.integer("batch", batch, 1, _MOST),
        check.integer("min_steps", min_steps, 1, 2**20),
        check.integer("patience", patience, 0, 2**20),
        check.integer("max_rounds", max_rounds, 0, 2**20),
        check.integer("convex_rounds", convex_rounds, 0, 2**20),
        check.integer("min_samples_oblique", min_samples_oblique, 1, _MOST),
    )


def _moderate(name: str, a: Array) -> None:
    check.finite(name, a)
    if check.values_checked() and a.size and not float(abs(a).max()) <= _LARGEST:
        raise ValueError(
            f"{name}: expected numbers up to {_LARGEST:g}, got {float(abs(a).max()):g}; scale the features"
        )


def _check_count(sizes: check.Sizes) -> None:
    check.at_least_one(sizes, "n_features")
    if not 1 <= sizes["n"] <= _MOST:
        raise ValueError(f"x: expected 1 to 2**31 - 1 samples, got {sizes['n']}; pass samples to learn from")


class _Samples(NamedTuple):
    labels: Array | None
    targets: Array | None
    weight: Array


def _check_samples(
    x: Array, y: Array, weights: Array | None, n_outputs: int | None, squared: bool, sizes: check.Sizes
) -> tuple[_Samples, int]:
    """Labels or targets and weights in the dtypes of the twins, and the number of outputs."""
    dtype = x.dtype
    labels = targets = None
    if squared:
        check.array("y", y, dtype, ("n",) if y.ndim == 1 else ("n", "n_outputs"), sizes)
        targets = (y[:, None] if y.ndim == 1 else y).astype(np.float64)
        if n_outputs is None:
            n_outputs = targets.shape[1] if y.ndim == 2 else 1
        elif y.ndim == 1 and n_outputs != 1:
            raise ValueError(
                f"y: expected shape (n, n_outputs) = (n, {n_outputs}), got {y.shape}; add an axis"
            )
        _moderate("y", y)
    else:
        check.array("y", y, check.INT32, ("n",), sizes)
        assert n_outputs is not None
        check.indices("y", y, n_outputs, "n_classes")
        labels = y
    n_outputs = check.integer("n_outputs", n_outputs, 1, _MOST_OUTPUTS)
    if weights is None:
        weight = dispatch.array_module(x).ones(len(x))
    else:
        check.array("weights", weights, dtype, ("n",), sizes)
        _moderate("weights", weights)
        if check.values_checked() and bool((weights < 0).any()):
            raise ValueError("weights: expected at least 0, got a negative one; drop such samples")
        weight = weights.astype(np.float64)
    return _Samples(labels, targets, weight), n_outputs


def _check_surrogate(
    w: Array, theta0: Array, theta1: Array, x: Array, y: Array, loss: str, weights: Array | None
) -> tuple[Any, ...]:
    given = {"w": w, "theta0": theta0, "theta1": theta1, "x": x, "y": y}
    check.same_device(**given) if weights is None else check.same_device(**given, weights=weights)
    check.choice("loss", loss, _LOSSES)
    dtype = check.floating("x", x)
    sizes: check.Sizes = {}
    check.array("w", w, dtype, ("n_features",), sizes)
    check.array("theta0", theta0, dtype, ("n_outputs",), sizes)
    check.array("theta1", theta1, dtype, ("n_outputs",), sizes)
    check.array("x", x, dtype, ("n", "n_features"), sizes)
    check.at_least_one(sizes, "n_features", "n_outputs")
    for name, a in (("w", w), ("theta0", theta0), ("theta1", theta1), ("x", x)):
        _moderate(name, a)
    samples, _ = _check_samples(x, y, weights, sizes["n_outputs"], loss == "squared", sizes)
    return (w, theta0.astype(np.float64), theta1.astype(np.float64), x, *samples)


def surrogate(
    w: Array,
    theta0: Array,
    theta1: Array,
    x: Array,
    y: Array,
    *,
    loss: str = "log",
    weights: Array | None = None,
) -> float:
    """The upper bound on the empirical loss of a split.

    Parameters
    ----------
    w : (n_features,) array of float32 or float64
        The split: ``w.x >= 0`` goes right.
    theta0, theta1 : (n_outputs,) array, dtype of w
        Of the left and the right side: unnormalised log-probabilities of the classes, or means of the
        targets.
    x : (n, n_features) array, dtype of w
        Samples as they are; append a constant -1 for an offset.
    y : (n,) array of int32, or (n,) or (n, n_outputs) array, dtype of w
        Labels for the log loss, targets for the squared loss.
    loss : "log" or "squared"
        ``-theta[y] + log sum exp theta`` (eq 3), or ``||y - theta||**2`` (eq 4).
    weights : (n,) array, dtype of w, optional
        Weights of the samples, at least 0; by default 1.

    Returns
    -------
    float
        A sum over samples.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape or layout, another loss, negative weights, NaN, infinity or numbers
        beyond 1e15; a label outside theta.

    Notes
    -----
    eq 10: ``sum max(-w.x + loss(theta0, y), w.x + loss(theta1, y)) - |w.x|``, for every w at least the loss
    of the split (eq 5), and the less the larger w is (eq 8). Products w.x are summed in the dtype of x in
    sixteen lanes, losses in float64. Cost: a read of x.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest import co2
    >>> x = np.array([[0.0, -1], [1, -1]]); y = np.array([0, 1], np.int32)
    >>> w, theta0, theta1 = np.array([4.0, 2.0]), np.array([3.0, 0.0]), np.array([0.0, 3.0])
    >>> round(co2.surrogate(w, theta0, theta1, x, y), 3)
    0.097
    """
    arguments = _check_surrogate(w, theta0, theta1, x, y, loss, weights)
    out = dispatch.array_module(x).empty(1)
    dispatch.twin(_ROOM, x).surrogate(*arguments, out)
    return float(out[0])


def surrogate_grad(
    w: Array,
    theta0: Array,
    theta1: Array,
    x: Array,
    y: Array,
    *,
    loss: str = "log",
    weights: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Its subgradient.

    Parameters
    ----------
    w, theta0, theta1, x, y, loss, weights
        As `surrogate` takes them.

    Returns
    -------
    grad_w : (n_features,) array, dtype of w
    grad_theta0, grad_theta1 : (n_outputs,) array, dtype of w

    Raises
    ------
    TypeError, ValueError, IndexError
        As from `surrogate`.

    Notes
    -----
    With s the sign of w.x (0 at 0): a sample whose left term is at least the right one adds ``-(1 + s) x``
    and the gradient of its loss by theta0, another one ``(1 - s) x`` and that by theta1 (Alg. 1, lines 7-13).
    Exact away from kinks. Slopes are summed in the dtype of x over 1024 samples, then in float64. Cost: two
    reads of x.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest import co2
    >>> x = np.array([[0.0, -1], [1, -1]]); y = np.array([0, 1], np.int32)
    >>> theta = np.array([0.5, 0.0]), np.array([0.0, 0.5])
    >>> co2.surrogate_grad(np.array([0.1, 0.05]), *theta, x, y)[0]
    array([-2.,  0.])
    """
    arguments = _check_surrogate(w, theta0, theta1, x, y, loss, weights)
    xp = dispatch.array_module(x)
    grads = [xp.empty(a.shape) for a in (w, theta0, theta1)]
    dispatch.twin(_ROOM, x).surrogate_grad(*arguments, *grads)
    grad_w, grad_theta0, grad_theta1 = (a.astype(x.dtype) for a in grads)
    return grad_w, grad_theta0, grad_theta1


def fit_stump(
    x: Array,
    y: Array,
    w: Array,
    n_classes: int | None = None,
    *,
    nu: float = 10.0,
    eta: float = 0.01,
    tau: int = 2,
    weights: Array | None = None,
    batch: int = 100,
    momentum: float = 0.9,
    max_rounds: int = 20,
    convex_rounds: int = 0,
    min_steps: int = 20,
    patience: int = 1,
    decay: float = 0.5,
    tolerance: float = 1e-3,
    smooth: float = 0.3,
    history: list[float] | None = None,
    rng: Any = None,
) -> tuple[Array, Array, Array]:
    """One oblique split, fitted by the convex-concave procedure.

    Parameters
    ----------
    x : (n, n_features) array of float32 or float64
        Samples as they are, at least one; append a constant -1 for an offset.
    y : (n,) array of int32, or (n,) or (n, n_outputs) array, dtype of x
        Labels, or targets where n_classes is None (then the loss is the squared one).
    w : (n_features,) array, dtype of x
        Where to start, such as a univariate split. It is not changed.
    n_classes : int or None
        Classes, at most 2**20.
    nu : float
        Bound on ``||w||**2``, above 0.
    eta : float
        Step, above 0.
    tau : int
        Epochs of a round, at least 1; after each w_old is set to w.
    weights : (n,) array, dtype of x, optional
        Weights of the samples, at least 0, not all 0. A sample of weight 0 counts for nothing.
    batch : int
        Samples of a step; all where there are fewer.
    momentum : float
        0 to 1.
    max_rounds : int
        Rounds at most, at least 0.
    convex_rounds : int
        First rounds that take the sign of w_old.x as 0, at least 0.
    min_steps : int
        Steps of a round at least, for nodes of few batches.
    patience, decay, tolerance : int, float, float
        Once more than `patience` rounds have not lowered the surrogate by the share `tolerance`, eta is
        multiplied by `decay`; after the third time the stump is done.
    smooth : float
        Added to the weight of each class on a side before its logarithm is the first theta, above 0.
    history : list, optional
        Takes the surrogate at the start and after every round.
    rng : None, int or numpy.random.Generator
        Where the seed of the batches comes from.

    Returns
    -------
    w : (n_features,) array, dtype of x
    theta0, theta1 : (n_outputs,) array, dtype of x

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape or layout, no sample, a number out of its range, NaN, infinity or
        numbers beyond 1e15, weights that are negative or all 0; a label outside 0 <= y < n_classes.

    Notes
    -----
    p2 Alg. 1 with mini-batches, averaged gradients and momentum, for w and theta alike. Each epoch visits
    every sample once, in an order drawn from the seed. ``||w||**2 <= nu`` after every step. Returned is the
    state of least surrogate at the start or after a round, so the surrogate never ends above its start. A
    node of one class is no error: its w stays good for nothing.

    Where all samples are far from the first split, as with features of two values, no step moves w: the bound
    is flat there. `convex_rounds` leave its concave part out, as if w_old were 0 (where 0 is a tangent of
    -|w.x|); what is left is convex, and leads out. Cost: for each epoch about 1.4 reads of x,
    from memory once.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest import co2
    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(size=(300, 2)), -np.ones((300, 1))], axis=1)
    >>> y = (x[:, 0] + x[:, 1] > 0).astype(np.int32)
    >>> w, theta0, theta1 = co2.fit_stump(x, y, np.array([1.0, 0, 0]), 2, eta=0.1, rng=0)
    >>> bool(((x @ w >= 0) == y).mean() > 0.95)
    True
    """
    given = {"x": x, "y": y, "w": w}
    check.same_device(**given) if weights is None else check.same_device(**given, weights=weights)
    dtype = check.floating("x", x)
    sizes: check.Sizes = {}
    check.array("x", x, dtype, ("n", "n_features"), sizes)
    check.array("w", w, dtype, ("n_features",), sizes)
    _check_count(sizes)
    if n_classes is not None:
        n_classes = check.integer("n_classes", n_classes, 1, _MOST_OUTPUTS)
    _moderate("x", x)
    _moderate("w", w)
    samples, n_outputs = _check_samples(x, y, weights, n_classes, n_classes is None, sizes)
    schedule = _schedule(
        nu,
        eta,
        momentum,
        decay,
        tolerance,
        smooth,
        tau,
        batch,
        min_steps,
        patience,
        max_rounds,
        convex_rounds,
    )
    x, samples = _heavy(x, samples)
    xp = dispatch.array_module(x)
    w = w.copy()
    theta0, theta1 = xp.zeros(n_outputs), xp.zeros(n_outputs)
    values = xp.full(schedule.max_rounds + 1, np.nan)
    dispatch.twin(_ROOM, x).fit_stump(x, *samples, schedule, _seed(rng), w, theta0, theta1, values)
    if history is not None:
        history.extend(float(a) for a in dispatch.to_numpy(values) if a == a)
    return w, theta0.astype(dtype), theta1.astype(dtype)


def _heavy(x: Array, samples: _Samples) -> tuple[Array, _Samples]:
    """The samples that weigh something."""
    heavy = samples.weight > 0
    if bool(heavy.all()):
        return x, samples
    if not bool(heavy.any()):
        raise ValueError("weights: expected some above 0, got none; give the samples weight")
    return x[heavy], _Samples(*(None if a is None else a[heavy] for a in samples))


def _seed(rng: Any) -> int:
    return int(check.generator(rng).integers(2**64, dtype=np.uint64))


def _criterion(criterion: str | None, classes: bool) -> int:
    if criterion is None:
        criterion = "entropy" if classes else "squared_error"
    check.choice("criterion", criterion, _CRITERIA[:2] if classes else _CRITERIA[2:])
    return _CRITERIA.index(criterion)


def _search(restarts: int, jumps: int) -> Search:
    return Search(check.integer("restarts", restarts, 0, 2**20), check.integer("jumps", jumps, 0, 2**20))


def fit_oc1(
    x: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
    n_classes: int | None = None,
    *,
    weights: np.ndarray | None = None,
    criterion: str | None = None,
    min_samples_leaf: int = 1,
    restarts: int = 0,
    jumps: int = 5,
    rng: Any = None,
) -> np.ndarray:
    """One oblique split by coordinate-wise search (OC1), the paper's baseline.

    Parameters
    ----------
    x : (n, n_features) array of float32 or float64
        Samples as they are, at least one; append a constant -1 for an offset.
    y : (n,) array of int32, or (n,) or (n, n_outputs) array, dtype of x
        Labels, or targets where n_classes is None.
    w : (n_features,) array, dtype of x
        Where to start, such as a univariate split. It is not changed.
    n_classes : int or None
        Classes, at most 2**20.
    weights : (n,) array, dtype of x, optional
        Weights of the samples, at least 0, not all 0. A sample of weight 0 counts for nothing.
    criterion : "entropy", "gini" or "squared_error", optional
        Which impurity; by default "entropy", for targets "squared_error".
    min_samples_leaf : int
        Samples that each side must hold at least.
    restarts : int
        Searches from random hyperplanes, besides that from w.
    jumps : int
        Random directions that a search tries in a row to leave a local optimum.
    rng : None, int or numpy.random.Generator
        Where the seed of directions and hyperplanes comes from.

    Returns
    -------
    (n_features,) array, dtype of x
        The best w found; its largest number is 1. It is scored no worse than the one given, up to the
        rounding to the dtype of x.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        Wrong dtype, or CuPy arrays (the search runs on the CPU); wrong shape or layout, no sample, a number
        out of its range, NaN, infinity or numbers beyond 1e15, weights that are negative or all 0; a label
        outside 0 <= y < n_classes; no memory.

    Notes
    -----
    Murthy, Kasif and Salzberg (JAIR 1994): with all other weights held, a sample changes sides at one value
    of a weight; the values in order are swept for the least impurity, weight after weight, until none alone
    does better. Then a random direction is searched likewise. Sums are in float64. Cost: a sort of n numbers
    a weight, and n steps of O(n_outputs).

    Examples
    --------
    >>> import numpy as np
    >>> from hforest import co2
    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(size=(200, 2)), -np.ones((200, 1))], axis=1)
    >>> y = (x[:, 0] + x[:, 1] > 0).astype(np.int32)
    >>> w = co2.fit_oc1(x, y, np.array([1.0, 0, 0]), 2, rng=0)
    >>> bool(((x @ w >= 0) == y).mean() > 0.97)
    True
    """
    growth.on_cpu(x=x, y=y, w=w)
    dtype = check.floating("x", x)
    sizes: check.Sizes = {}
    check.array("x", x, dtype, ("n", "n_features"), sizes)
    check.array("w", w, dtype, ("n_features",), sizes)
    _check_count(sizes)
    if n_classes is not None:
        n_classes = check.integer("n_classes", n_classes, 1, _MOST_OUTPUTS)
    _moderate("x", x)
    _moderate("w", w)
    if weights is not None:
        growth.on_cpu(weights=weights)
    samples, n_outputs = _check_samples(x, y, weights, n_classes, n_classes is None, sizes)
    number = _criterion(criterion, n_classes is not None)
    least = check.integer("min_samples_leaf", min_samples_leaf, 1, _MOST)
    search = _search(restarts, jumps)
    x, samples = _heavy(x, samples)
    found = w.astype(np.float64)
    dispatch.twin(_ROOM, x).fit_oc1(x, *samples, n_outputs, number, least, *search, _seed(rng), found)
    return found.astype(dtype)


def _candidates(q: int | None, n_features: int) -> int:
    if q is None:
        return max(1, round(n_features**0.6))
    return check.integer("q", q, 1, n_features)


def grow(
    x: Array,
    y: Array,
    n_trees: int,
    *,
    nu: float = 10.0,
    eta: float = 0.01,
    q: int | None = None,
    tau: int = 2,
    weights: Array | None = None,
    criterion: str | None = None,
    splitter: str = "co2",
    restarts: int = 0,
    jumps: int = 5,
    bootstrap: bool | Array = True,
    max_depth: int | None = None,
    min_samples_split: int = 2,
    min_samples_leaf: int = 1,
    min_samples_oblique: int = 1,
    min_impurity_decrease: float = 0.0,
    batch: int = 100,
    momentum: float = 0.9,
    max_rounds: int = 20,
    convex_rounds: int = 0,
    min_steps: int = 20,
    patience: int = 1,
    decay: float = 0.5,
    tolerance: float = 1e-3,
    smooth: float = 0.3,
    task: str = "classification",
    n_classes: int | None = None,
    progress: Progress | None = None,
    rng: Any = None,
) -> Forest:
    """A CO2 forest.

    Parameters
    ----------
    x : (n, n_features) array of float32 or float64
        Samples, finite, at least one; the constant -1 is appended here. Scale the features.
    y : (n,) array of int32, or (n,) or (n, n_outputs) array, dtype of x
        Labels 0 to n_classes - 1, or targets for regression.
    n_trees : int
        Trees.
    nu, eta : float
        Bound on ``||w||**2`` and step, as `fit_stump` takes them. The paper tries nu of 0.1 to 100 and eta of
        0.003 to 0.03 (`search`).
    q : int, optional
        Features that a node draws; the best univariate split on one of them is where its stump starts. By
        default ``n_features**0.6``, rounded.
    tau, batch, momentum, max_rounds, convex_rounds, min_steps, patience, decay, tolerance, smooth
        As `fit_stump` takes them.
    weights : (n,) array, dtype of x, optional
        Weights of the samples, at least 0, not all 0.
    criterion : "entropy", "gini" or "squared_error", optional
        What chooses the univariate split; by default "entropy", for regression "squared_error".
    splitter : "co2" or "oc1"
        Fit stumps as `fit_stump` does, or as `fit_oc1` does, whose `restarts` and `jumps` apply then.
    restarts, jumps : int
        As `fit_oc1` takes them.
    min_samples_oblique : int
        A node of fewer samples keeps its univariate split with the splitter "co2": w has a number for each
        feature, and few samples do not tell which are noise.
    bootstrap, max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease, task, n_classes
        As `hforest.classic.grow` takes them.
    progress : callable, optional
        Called as progress(done, n_trees) after every few trees; True ends the growth, with the trees so far.
    rng : None, int or numpy.random.Generator
        Where the seed comes from.

    Returns
    -------
    Forest
        Of the dtype of x. Splits are projections; leaf values are shares of the classes, or mean targets.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        Wrong kind or dtype, or CuPy arrays with splitter="oc1"; wrong shape or layout, no sample, NaN or
        infinity, a number out of its range; labels or multiplicities out of range; no memory.

    Notes
    -----
    p2 section 5: each node finds the best of its random univariate splits, fits a stump from there on its
    samples (bags are weights), and parts them by it; where the stump leaves a side with fewer than
    min_samples_leaf, the univariate split stays. Trees grow until leaves are pure. A split goes right where
    ``w.x >= 0``: here, where the projection exceeds the number below the offset. Results are the same at
    every number of threads. Cost: for each level of a tree about 60 reads of x at the defaults; a projection
    takes 8 bytes a feature (12 for float64).

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(300, 4))
    >>> y = (x[:, 0] + x[:, 1] > x[:, 2]).astype(np.int32)
    >>> forest = hforest.co2.grow(x, y, 10, eta=0.1, rng=0)
    >>> bool((hforest.tree.predict(forest, x).argmax(axis=1) == y).mean() > 0.97)
    True
    """
    check.choice("task", task, _TASKS)
    check.choice("splitter", splitter, _SPLITTERS)
    check.same_device(x=x, y=y)
    if splitter == "oc1":
        growth.on_cpu(x=x)
    dtype = check.floating("x", x)
    sizes: check.Sizes = {}
    check.array("x", x, dtype, ("n", "n_features"), sizes)
    _check_count(sizes)
    _moderate("x", x)
    classes = task == "classification"
    if classes:
        check.array("y", y, check.INT32, ("n",), sizes)
        n_classes = max(0, int(y.max())) + 1 if n_classes is None else n_classes
        n_classes = check.integer("n_classes", n_classes, 1, _MOST_OUTPUTS)
    elif n_classes is not None:
        raise ValueError(f"n_classes: expected None for regression, got {n_classes!r}; leave it out")
    if weights is not None:
        check.same_device(x=x, weights=weights)
    samples, n_outputs = _check_samples(x, y, weights, n_classes, not classes, sizes)
    if not bool((samples.weight > 0).any()):
        raise ValueError("weights: expected some above 0, got none; give the samples weight")
    number = _criterion(criterion, classes)
    oc1 = _search(restarts, jumps) if splitter == "oc1" else None
    n_trees = check.integer("n_trees", n_trees, 1, _MOST)
    limits = (
        _MOST if max_depth is None else check.integer("max_depth", max_depth, 0, _MOST),
        check.integer("min_samples_split", min_samples_split, 2, _MOST),
        check.integer("min_samples_leaf", min_samples_leaf, 1, _MOST),
        check.number("min_impurity_decrease", min_impurity_decrease, 0.0),
    )
    schedule = _schedule(
        nu, eta, momentum, decay, tolerance, smooth, tau, batch, min_steps, patience, max_rounds,
        convex_rounds, min_samples_oblique,
    )  # fmt: skip
    n_drawn = _candidates(q, sizes["n_features"])
    codes = growth.encode(x)
    twin = dispatch.twin(_ROOM, x)

    def grow_some(*part: Any) -> None:
        twin.grow(
            x, *codes[:3], *samples[:2], n_outputs, samples.weight, number, n_drawn, *limits, schedule, oc1,
            *part,
        )  # fmt: skip

    # A tree takes its time: on the CPU no more of them than threads, so that an interrupt is soon heard.
    xp = dispatch.array_module(x)
    trees = growth.grow_batches(
        grow_some, len(x), n_trees, bootstrap, progress, rng, xp=xp,
        batch=machine.get_num_threads() if xp is np else None,
    )  # fmt: skip
    return _forest(trees, n_outputs, sizes["n_features"], dtype)


def _forest(trees: list[tuple[Array, ...]], n_outputs: int, n_features: int, dtype: np.dtype) -> Forest:
    arrays = joined(trees, n_outputs, dtype, True)
    start, index, weight = arrays[6:]
    return Forest(
        n_features=dispatch.array_module(start).array(n_features, np.int64),
        **growth.Trees(*arrays[:6])._asdict(),
        start=start,
        index=index,
        weight=weight,
    )


class Trials(NamedTuple):
    """Settings that were tried, and the error of each on the held-out part."""

    nu: np.ndarray
    """(n_trials,) float64"""
    eta: np.ndarray
    """(n_trials,) float64"""
    q: np.ndarray
    """(n_trials,) int64"""
    error: np.ndarray
    """(n_trials,) float64: share of samples predicted wrongly, or mean squared error."""


def search(
    x: np.ndarray,
    y: np.ndarray,
    n_trees: int = 30,
    *,
    nu: Sequence[float] = (0.1, 1.0, 4.0, 10.0, 43.0, 100.0),
    eta: Sequence[float] = (0.03, 0.01, 0.003),
    q: Sequence[int] | None = None,
    held_out: float = 0.2,
    settings: Mapping[str, Any] | None = None,
    trials: Trials | None = None,
    task: str = "classification",
    n_classes: int | None = None,
    progress: Callable[[int, int, Trials], Any] | None = None,
    rng: int = 0,
) -> Trials:
    """Try settings on a part of the samples that the forests do not see.

    Parameters
    ----------
    x, y, n_trees, task, n_classes
        As `grow` takes them.
    nu, eta : sequence of float
        Bounds and steps to try; by default the paper's.
    q : sequence of int, optional
        Numbers of candidates to try; by default that of `grow` alone.
    held_out : float
        Share of the samples that is kept out of the forests, above 0 and below 1.
    settings : mapping of str, optional
        Further arguments of `grow`, the same in all trials, such as ``{"bootstrap": False}``.
    trials : Trials, optional
        What an earlier search with the same samples, settings and rng returned; it is not tried again.
    progress : callable, optional
        Called as progress(done, n_trials, trials) after each trial; True ends the search, with the trials so
        far.
    rng : int
        Seed of the part that is kept out, and of every forest.

    Returns
    -------
    Trials
        In the order of nu, then eta, then q, behind those given.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        As from `grow`; no setting, or a share of which nothing is left.

    Notes
    -----
    p2 section 5 holds out 20 %, and compares forests of 30 trees over a grid of nu and eta.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = (x.sum(axis=1) > 0).astype(np.int32)
    >>> trials = hforest.co2.search(x, y, 3, nu=[1, 10], eta=[0.1])
    >>> trials.nu, len(trials.error)
    (array([ 1., 10.]), 2)
    """
    growth.on_cpu(x=x, y=y)
    check.floating("x", x)
    sizes: check.Sizes = {}
    check.array("x", x, x.dtype, ("n", "n_features"), sizes)
    check.at_least_one(sizes, "n_features")
    share = check.number("held_out", held_out, 0.0, 1.0, open_low=True)
    n_held = int(share * sizes["n"])
    if not 0 < n_held < sizes["n"]:
        raise ValueError(
            f"held_out: expected a share that leaves samples on both sides, got {held_out} of {sizes['n']}; "
            "pass such as 0.2"
        )
    seed = check.integer("rng", rng, 0)
    if y.ndim < 1 or len(y) != sizes["n"]:
        raise ValueError(
            f"y: expected shape (n,) = ({sizes['n']},), got {y.shape}; pass a label for each sample"
        )
    if task == "classification" and n_classes is None:
        check.array("y", y, check.INT32, ("n",), sizes)
        n_classes = int(y.max(initial=0)) + 1
    grid = [
        (check.number("nu", a, 0.0, open_low=True), check.number("eta", b, 0.0, open_low=True), n_drawn)
        for a in nu
        for b in eta
        for n_drawn in [_candidates(c, sizes["n_features"]) for c in ([None] if q is None else q)]
    ]
    fixed = dict(settings or {})
    known = set(inspect.signature(grow).parameters) - set(inspect.signature(search).parameters)
    for name in fixed:
        if name not in known:
            raise ValueError(
                f"settings: expected names of further arguments of grow, got {name!r}; choose from "
                + ", ".join(sorted(known))
            )
    if not grid:
        raise ValueError("nu, eta, q: expected at least one setting, got none; pass such as nu=[10]")
    rows = [] if trials is None else list(zip(*(np.asarray(a).tolist() for a in trials), strict=True))
    tried = {row[:3] for row in rows}
    order = np.random.default_rng(seed).permutation(sizes["n"])
    kept, held = np.sort(order[n_held:]), np.sort(order[:n_held])
    for setting in grid:
        if setting in tried:
            continue
        forest = grow(
            x[kept], y[kept], n_trees, nu=setting[0], eta=setting[1], q=setting[2], task=task,
            n_classes=n_classes, rng=seed, **fixed,
        )  # fmt: skip
        p = tree.predict(forest, x[held])
        if task == "classification":
            error = float((p.argmax(axis=1) != y[held]).mean())
        else:
            error = float(((p - y[held].reshape(p.shape)) ** 2).mean())
        rows.append((*setting, error))
        done = sum(row[:3] in grid for row in rows)
        if progress is not None and progress(done, len(grid), _trials(rows)) is True:
            break
    return _trials(rows)


def _trials(rows: list[tuple[Any, ...]]) -> Trials:
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    dtypes = (np.float64, np.float64, np.int64, np.float64)
    return Trials(*(np.array(a, dtype) for a, dtype in zip(columns, dtypes, strict=True)))
