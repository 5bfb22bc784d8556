"""Shallow neural decision forests: linear decision functions, p4's Algorithm 1, and hard trees from them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import optim
from ..core import check
from ..core.dispatch import is_cupy
from ..tree import Forest

_MOST = 2**31 - 1
_BLOCK = 1 << 22  # decision functions computed at a time while predicting


class Linear(NamedTuple):
    """A forest whose decision functions are linear in some features of each tree."""

    columns: np.ndarray
    """(n_trees, n_columns) int32: features of each tree."""
    weights: np.ndarray
    """(n_trees, n_columns + 1, 2**depth - 1) float32 or float64; the last row is added as it is."""
    leaves: np.ndarray
    """(n_trees, 2**depth, n_classes), dtype of weights; rows sum to 1."""


Progress = Callable[[int, float, Linear], Any]


def _check_linear(model: Linear) -> check.Sizes:
    if not isinstance(model, Linear):
        raise TypeError(f"model: expected a Linear, got {type(model).__name__}; call linear_init or fit")
    on_cpu(columns=model.columns, weights=model.weights, leaves=model.leaves)
    dtype = check.floating("weights", model.weights)
    sizes: check.Sizes = {}
    check.array("columns", model.columns, check.INT32, ("n_trees", "n_columns"), sizes)
    check.array("weights", model.weights, dtype, ("n_trees", sizes["n_columns"] + 1, "n_vertices"), sizes)
    depth = (sizes["n_vertices"] + 1).bit_length() - 1
    if depth < 1 or sizes["n_vertices"] != 2**depth - 1:
        raise ValueError(
            f"weights: expected 2**depth - 1 vertices, got {sizes['n_vertices']}; a tree of depth 3 has 7"
        )
    check.array("leaves", model.leaves, dtype, ("n_trees", 2**depth, "n_classes"), sizes)
    check.at_least_one(sizes, "n_trees", "n_columns", "n_classes")
    return sizes


def on_cpu(**arrays: Any) -> None:
    """NumPy arrays."""
    for name, a in arrays.items():
        if is_cupy(a):
            raise TypeError(
                f"{name}: expected a numpy.ndarray, got a CuPy array; this helper works on the CPU: pass "
                f"cupy.asnumpy({name}), or call forward and backward yourself"
            )
    check.same_device(**arrays)


def _check_x(x: np.ndarray, model: Linear) -> int:
    on_cpu(x=x)
    sizes: check.Sizes = {}
    check.array("x", x, model.weights.dtype, ("n_samples", "n_features"), sizes)
    check.finite("x", x)
    check.indices("columns", model.columns, sizes["n_features"], "n_features")
    return sizes["n_samples"]


def linear_init(
    n_trees: int,
    depth: int,
    n_features: int,
    n_classes: int,
    *,
    n_columns: int | None = None,
    scale: float = 2.0,
    dtype: Any = np.float32,
    rng: Any = None,
) -> Linear:
    """Random linear decision functions and uniform leaves.

    Parameters
    ----------
    n_trees, depth, n_features, n_classes : int
        Sizes; depth 1 to 20.
    n_columns : int, optional
        Features that each tree sees, drawn without replacement; by default all.
    scale : float
        Deviation of a decision function on features of mean 0 and deviation 1.
    dtype : float32 or float64
        Of weights and leaves.
    rng : None, int or numpy.random.Generator
        Where the numbers come from.

    Returns
    -------
    Linear
        NumPy arrays.

    Raises
    ------
    TypeError, ValueError
        Not such numbers.

    Examples
    --------
    >>> import hforest
    >>> hforest.neural.linear_init(3, 4, 10, 2, n_columns=5, rng=0).weights.shape
    (3, 6, 15)
    """
    from . import uniform_leaves

    n_features = check.integer("n_features", n_features, 1, _MOST)
    n_columns = n_features if n_columns is None else check.integer("n_columns", n_columns, 1, n_features)
    scale = check.number("scale", scale, 0.0, open_low=True)
    rng = check.generator(rng)
    leaves = uniform_leaves(n_trees, depth, n_classes, dtype=dtype)
    columns = np.array([np.sort(rng.permutation(n_features)[:n_columns]) for _ in range(n_trees)], np.int32)
    weights = rng.standard_normal((n_trees, n_columns + 1, 2**depth - 1)) * (scale / np.sqrt(n_columns))
    return Linear(columns, weights.astype(leaves.dtype), leaves)


def _inputs(model: Linear, m: int, x: np.ndarray) -> np.ndarray:
    part = np.empty((len(x), model.columns.shape[1] + 1), x.dtype)
    part[:, :-1], part[:, -1] = x[:, model.columns[m]], 1
    return part


def _empty_decisions(model: Linear, n: int) -> np.ndarray:
    n_trees, _, n_vertices = model.weights.shape
    return np.empty((n, n_trees, n_vertices), model.weights.dtype)


def _decisions(model: Linear, parts: list[np.ndarray], f: np.ndarray) -> np.ndarray:
    for m, part in enumerate(parts):
        f[:, m] = part @ model.weights[m]
    return f


def decisions(model: Linear, x: np.ndarray) -> np.ndarray:
    """Decision functions of samples: what `forward` and `backward` take.

    Parameters
    ----------
    model : Linear
        From `linear_init` or `fit`.
    x : (n_samples, n_features) array, dtype of the weights
        Samples.

    Returns
    -------
    (n_samples, n_trees, 2**depth - 1) array, dtype of x
        ``f = x[columns] . weights[:-1] + weights[-1]``.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong kind, dtype or device; wrong shape or layout, NaN or infinity; a column outside x.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> model = hforest.neural.linear_init(3, 2, 5, 2, rng=0)
    >>> hforest.neural.decisions(model, np.zeros((4, 5), np.float32)).shape
    (4, 3, 3)
    """
    _check_linear(model)
    n = _check_x(x, model)
    parts = [_inputs(model, m, x) for m in range(len(model.weights))]
    return _decisions(model, parts, _empty_decisions(model, n))


def predict(model: Linear, x: np.ndarray) -> np.ndarray:
    """Class probabilities of samples.

    Parameters
    ----------
    model : Linear
        From `linear_init` or `fit`.
    x : (n_samples, n_features) array, dtype of the weights
        Samples.

    Returns
    -------
    (n_samples, n_classes) array, dtype of x
        The mean over trees.

    Raises
    ------
    TypeError, ValueError, IndexError
        As from `decisions`.

    Notes
    -----
    In blocks of samples, so that extra memory does not grow with their number.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> model = hforest.neural.linear_init(3, 2, 5, 2, rng=0)
    >>> hforest.neural.predict(model, np.zeros((1, 5), np.float32)).round(3)
    array([[0.5, 0.5]], dtype=float32)
    """
    from . import forward

    sizes = _check_linear(model)
    n = _check_x(x, model)
    p = np.empty((n, sizes["n_classes"]), x.dtype)
    step = max(1, _BLOCK // (sizes["n_trees"] * sizes["n_vertices"]))
    for first in range(0, n, step):
        p[first : first + step] = forward(decisions(model, x[first : first + step]), model.leaves)
    return p


def _fit_leaves(model: Linear, x: np.ndarray, y: np.ndarray, n_iter: int) -> None:
    # Tree by tree: all decisions of a training set at once would not fit into memory.
    from . import update_leaves

    model.leaves[:] = 1 / model.leaves.shape[2]
    for m in range(len(model.weights)):
        f = (_inputs(model, m, x) @ model.weights[m])[:, None]
        model.leaves[m] = update_leaves(f, y, model.leaves[m : m + 1], n_iter)[0]


def _epoch(model: Linear, x: np.ndarray, y: np.ndarray, batch: int, lr: float, loss: Any, rng: Any) -> float:
    from . import backward

    size = min(batch, len(x))
    # The samples that do not fill a batch sit out; the order is new in every epoch.
    batches = rng.permutation(len(x))[: len(x) // size * size].reshape(-1, size)
    m1, m2, grad = (np.zeros_like(model.weights) for _ in range(3))
    f, grad_f = (_empty_decisions(model, size) for _ in range(2))
    losses = []
    for step, picked in enumerate(batches, 1):
        parts = [_inputs(model, m, x[picked]) for m in range(len(model.weights))]
        value, _ = backward(_decisions(model, parts, f), model.leaves, y[picked], loss=loss, out=grad_f)
        for m, part in enumerate(parts):
            grad[m] = part.T @ grad_f[:, m]
        optim.adam(model.weights, grad, m1, m2, step, lr)
        losses.append(value)
    return float(np.mean(losses))


def fit(
    model: Linear,
    x: np.ndarray,
    y: np.ndarray,
    *,
    epochs: int = 20,
    batch: int = 64,
    lr: float = 0.1,
    last_lr: float = 0.005,
    n_iter: int = 20,
    loss: str = "tree",
    first_epoch: int = 0,
    progress: Progress | None = None,
    rng: Any = None,
) -> Linear:
    """Train decision functions and leaves in turn (p4 Alg. 1).

    Parameters
    ----------
    model : Linear
        Where to start: from `linear_init`, or from an earlier epoch. It is left as it is.
    x : (n_samples, n_features) array, dtype of the weights
        Samples; features of mean 0 and deviation 1 suit the start.
    y : (n_samples,) array of int32
        Labels 0 to n_classes - 1.
    epochs : int
        Passes through the samples. Before each the leaves are fitted anew, from uniform, to all samples;
        after the last one once more.
    batch : int
        Samples of a step of Adam, whose state is forgotten after an epoch.
    lr, last_lr : float
        Learning rates of the first and the last epoch, a cosine between.
    n_iter : int
        Iterations of the leaf update.
    loss : "tree" or "forest"
        As `backward` takes it.
    first_epoch : int
        Epochs that `model` has had: with the same arguments training goes on to the same bits.
    progress : callable, optional
        Called as progress(epochs done, mean loss, model so far) after every epoch; True ends the training.
    rng : None or int
        Seed of the order of samples.

    Returns
    -------
    Linear
        New arrays.

    Raises
    ------
    TypeError, ValueError, IndexError
        As from `decisions` and `backward`; a number out of its range.

    Notes
    -----
    Cost: for each epoch a forward and backward pass of all samples, a step of Adam over all weights for each
    batch, and a leaf update.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(500, 4)).astype(np.float32); y = (x[:, 0] * x[:, 1] > 0).astype(np.int32)
    >>> start = hforest.neural.linear_init(5, 4, 4, 2, rng=0)
    >>> model = hforest.neural.fit(start, x, y, epochs=5, rng=0)
    >>> bool((hforest.neural.predict(model, x).argmax(axis=1) == y).mean() > 0.9)
    True
    """
    sizes = _check_linear(model)
    n = _check_x(x, model)
    on_cpu(y=y)
    check.array("y", y, check.INT32, ("n_samples",), {"n_samples": n})
    check.indices("y", y, sizes["n_classes"], "n_classes")
    if n == 0:
        raise ValueError("x: expected at least 1 sample, got none; pass samples to learn from")
    epochs = check.integer("epochs", epochs, 1, _MOST)
    first_epoch = check.integer("first_epoch", first_epoch, 0, epochs)
    batch = check.integer("batch", batch, 1, _MOST)
    n_iter = check.integer("n_iter", n_iter, 1, _MOST)
    lr = check.number("lr", lr, 0.0, open_low=True)
    last_lr = check.number("last_lr", last_lr, 0.0, lr, open_low=True)
    check.choice("loss", loss, ("tree", "forest"))
    seed = check.integer("rng", rng, 0) if rng is not None else int(np.random.default_rng().integers(2**31))
    model = Linear(model.columns, model.weights.copy(), model.leaves.copy())
    for epoch in range(first_epoch, epochs):
        along = epoch / max(epochs - 1, 1)
        rate = last_lr + (lr - last_lr) * (1 + np.cos(np.pi * along)) / 2
        _fit_leaves(model, x, y, n_iter)
        value = _epoch(model, x, y, batch, float(rate), loss, np.random.default_rng([seed, epoch]))
        if epoch + 1 == epochs:
            _fit_leaves(model, x, y, n_iter)
        if progress is not None and progress(epoch + 1, value, model) is True:
            break
    return model


def to_hard(model: Linear, n_features: int) -> Forest:
    """The forest that sends a sample the likelier way at every vertex, as grown trees.

    Parameters
    ----------
    model : Linear
        From `fit`.
    n_features : int
        Features of a sample.

    Returns
    -------
    Forest
        For `hforest.tree`: complete trees of splits by projections, the leaves' class probabilities.

    Raises
    ------
    TypeError, ValueError, IndexError
        Not a Linear, or wrong shapes; a column outside n_features.

    Notes
    -----
    A sample goes left where f >= 0, which is ``-weights . x <= weights[-1]``. What is lost is measured on the
    room's page. A sample then visits depth vertices, not 2**depth - 1.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> model = hforest.neural.linear_init(3, 2, 5, 2, rng=0)
    >>> hard = hforest.neural.to_hard(model, 5)
    >>> hforest.tree.predict(hard, np.ones((1, 5), np.float32))
    array([[0.5, 0.5]], dtype=float32)
    """
    sizes = _check_linear(model)
    n_features = check.integer("n_features", n_features, 1, _MOST)
    check.indices("columns", model.columns, n_features, "n_features")
    n_trees, n_columns, n_vertices = (sizes[name] for name in ("n_trees", "n_columns", "n_vertices"))
    n_nodes = 2 * n_vertices + 1
    inner = np.arange(n_nodes) < n_vertices
    left = np.where(inner, 2 * np.arange(n_nodes) + 1, np.arange(n_nodes) - n_vertices)
    threshold = np.zeros((n_trees, n_nodes), model.weights.dtype)
    threshold[:, :n_vertices] = model.weights[:, -1]
    counts = np.tile(np.where(inner, n_columns, 0), n_trees)
    return Forest(
        n_features=np.array(n_features, np.int64),
        tree_start=np.arange(n_trees + 1, dtype=np.int64) * n_nodes,
        feature=np.tile(np.where(inner, -2, -1).astype(np.int32), n_trees),
        threshold=threshold.reshape(-1),
        left=np.tile(left.astype(np.int32), n_trees),
        value=model.leaves.reshape(-1, sizes["n_classes"]).copy(),
        gain=np.zeros(n_trees * n_nodes, model.weights.dtype),
        start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        index=np.repeat(model.columns, n_vertices, axis=0).reshape(-1),
        weight=np.ascontiguousarray(-model.weights[:, :-1].transpose(0, 2, 1)).reshape(-1),
    )
