"""Stochastic gradient descent on a hinge forest and the learned features that it reads (Lay et al. 2018, Alg.
2).

The members of `tabular` and the networks of `demo` are trained by this loop.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..core.aliases import FloatArray


def steps(
    features: Callable[[FloatArray], tuple[FloatArray, Callable[[FloatArray, int, float], None]]],
    forward: Callable[..., tuple[FloatArray, Any]],
    loss: Callable[..., tuple[float, FloatArray]],
    backward: Callable[..., FloatArray],
    batches: Iterable[tuple[Any, ...]],
    first: int,
    rate: Callable[[int], float],
    errors: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Iterator[tuple[int, float, float]]:
    """Takes a step on each batch; yields its number, above `first`, its learning rate and the loss before it.

    A batch is a tuple of samples and of further arguments of `loss`, which returns loss and gradient of
    scores.

    * ``features(x)`` returns the input z of the forest, and a function of (grad_z, step, lr) that updates the
      parameters of z;
    * ``forward(z, step=, lr=)`` returns scores and a route;
    * ``backward(grad, route, z, step=, lr=)`` updates the forest, and returns grad_z;
    * ``errors()`` returns a context manager for a step.
    """
    for step, (x, *targets) in enumerate(batches, first + 1):
        lr = rate(step)
        with errors():
            z, move_features = features(x)
            scores, route = forward(z, step=step, lr=lr)
            value, grad = loss(scores, *targets)
            # Nothing is refused from here on: no error leaves a state that is half changed.
            move_features(backward(grad, route, z, step=step, lr=lr), step, lr)
        yield step, lr, value
