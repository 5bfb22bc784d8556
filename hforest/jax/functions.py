"""Hinge and neural forests as functions of JAX arrays."""

import functools
import json
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from .. import hinge, neural, unchecked
from .primitive import Forest, bind

Kind = Literal["tree", "fern"]
MarginName = Literal["column", "projection"]
Aggregate = Literal["sum", "mean"] | None
Task = Literal["classification", "regression"]


def _arrays(**arguments: Any) -> list[jax.Array]:
    """Returns the arguments as JAX arrays; NumPy arrays whose dtype JAX would change are refused."""
    for name, a in arguments.items():
        if not isinstance(a, jax.Array | np.ndarray):
            raise TypeError(
                f"{name}: expected a jax.Array or numpy.ndarray, got {type(a).__name__}; "
                f"convert it with jax.numpy.asarray({name})"
            )
        if isinstance(a, np.ndarray) and jax.dtypes.canonicalize_dtype(a.dtype) != a.dtype:
            dtype = jax.dtypes.canonicalize_dtype(a.dtype)
            switch = ', or call jax.config.update("jax_enable_x64", True)' if a.dtype.kind == "f" else ""
            raise TypeError(
                f"{name}: expected dtype {dtype} while JAX's 64-bit types are off, got {a.dtype}; convert it "
                f"with {name}.astype(numpy.{dtype}){switch}"
            )
    return [jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments.values()]


def _bound(name: str, function: Callable[..., Any], arrays: list[jax.Array], **settings: Any) -> jax.Array:
    """Returns a forest after checks of dtypes, shapes and settings; `function` is the one on NumPy arrays."""
    shapes = tuple((a.shape, a.dtype) for a in arrays)
    # Strings and None are keys of the cache. Other values are errors, or windows with numbers of any type.
    are_words = all(a is None or isinstance(a, str) for a in settings.values())
    find = _forest if are_words else _forest.__wrapped__
    return bind(find(name, function, shapes, tuple(settings.items())), *arrays)


@functools.lru_cache(maxsize=4096)
def _forest(
    name: str, function: Callable[..., Any], shapes: tuple[Any, ...], settings: tuple[tuple[str, Any], ...]
) -> Forest:
    """Returns the forest for arrays of these shapes and dtypes; a call without samples checks them."""
    (shape, dtype), *others = shapes
    parameters = [np.zeros(*other) for other in others]
    named = dict(settings)
    if function is neural.forward and len(parameters) > 1:
        named["index"] = parameters.pop()
    with unchecked():  # values are not checked, since there are none
        try:
            y = function(np.zeros((0, *shape[1:]), dtype), *parameters, **named)
        except (TypeError, ValueError):
            # The same error, with the number of samples in its text.
            function(np.empty(shape, dtype), *parameters, **named)
            raise
    return Forest(name, json.dumps(dict(settings), default=int), y.shape[1:])


def hinge_forest(
    x: jax.Array,
    thresholds: jax.Array,
    features: jax.Array,
    weights: jax.Array,
    *,
    kind: Kind = "tree",
    margin: MarginName = "column",
    windows: hinge.Windows | None = None,
    aggregate: Aggregate = "sum",
) -> jax.Array:
    """Returns outputs of hinge trees or ferns, with gradients (Lay et al. 2018, eq. 9-12).

    Parameters: see `hforest.hinge.forward`.

    Returns
    -------
    y : (n_samples, *outputs) array, or (n_samples, n_trees, *outputs) without `aggregate`
        Dtype of x, in the unit of weights times that of the margin. With `windows` the first axis is
        (n_images, *out).

    Raises
    ------
    ValueError, IndexError
        NaN, or a column outside x, when the program runs. The message is the same, but JAX chooses the
        exception class and the time (at the latest at `jax.block_until_ready`). Other errors come when JAX
        traces the call.

    Notes
    -----
    y and gradients are bit-identical to `hforest.hinge.forward` and `backward`. The forward pass stores its
    route for the backward pass (12 bytes per sample and tree in float32), and x for projections; without
    gradients it stores nothing. `jax.vmap` over x alone is one call with all samples, as is its gradient; a
    batch of parameters is a loop, as is `jax.vmap` of a gradient. The function runs only on the CPU.
    Forward-mode and second derivatives raise an error.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, hforest.jax
    >>> x = jnp.array([[0.5, 2.0]])
    >>> t = jnp.array([[0.0, 9.0, 1.75]]); f = jnp.array([[0, 0, 1]])
    >>> w = jnp.array([[1.0, 2.0, 3.0, 4.0]])
    >>> hforest.jax.hinge_forest(x, t, f, w).tolist()
    [1.0]
    >>> jax.grad(lambda x: hforest.jax.hinge_forest(x, t, f, w).sum())(x).tolist()
    [[0.0, 4.0]]
    >>> hforest.jax.hinge_forest(x, t[:, :2], f[:, ::2], w, kind="fern").tolist()
    [1.5]
    >>> p = jnp.array([[[1.0, 0], [1, 1], [1, 0.5]]])
    >>> loss = lambda p: hforest.jax.hinge_forest(x, t, p, w, margin="projection").sum()
    >>> jax.grad(loss)(p).tolist()
    [[[0.0, 0.0], [0.0, 0.0], [-1.5, -6.0]]]
    """
    arrays = _arrays(x=x, thresholds=thresholds, features=features, weights=weights)
    variant: dict[str, Any] = {"kind": kind, "margin": margin, "windows": windows, "aggregate": aggregate}
    return _bound("hinge_forest", hinge.forward, arrays, **variant)


def neural_forest(
    f: jax.Array,
    leaves: jax.Array,
    *,
    index: jax.Array | None = None,
    task: Task = "classification",
) -> jax.Array:
    """Returns class probabilities of a neural forest, with gradients (Zhang 2017, section 2).

    p(k | x) = mean over trees of sum_l mu_l(x) pi_lk. Errors come as in `hinge_forest`. Parameters: see
    `hforest.neural.forward`.

    Returns
    -------
    p : (n_samples, n_classes) array, dtype of f

    Notes
    -----
    p and the gradient with respect to f are those of `hforest.neural.forward` and `backward` to the bit. The
    gradient with respect to leaves, computed only on request, is a matrix product in float64 over blocks of
    samples: dL/dpi_lk = sum over samples of mu_l dL/dp_k, divided by n_trees. `jax.vmap` as in
    `hinge_forest`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, hforest.jax
    >>> f = jnp.zeros((1, 1, 1)); leaves = jnp.array([[[1.0, 0.0], [0.5, 0.5]]])
    >>> hforest.jax.neural_forest(f, leaves).tolist()
    [[0.75, 0.25]]
    >>> jax.grad(lambda f: hforest.jax.neural_forest(f, leaves)[0, 0])(f).tolist()
    [[[0.125]]]
    """
    arrays = _arrays(f=f, leaves=leaves, **({} if index is None else {"index": index}))
    return _bound("neural_forest", neural.forward, arrays, task=task)
