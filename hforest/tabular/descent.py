"""Stochastic gradient descent on a hinge forest and the learned features before it (Lay et al. 2018, Alg. 2).

The members of `tabular` and the networks of `demo` are trained by this loop.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, NamedTuple, Protocol

from .. import hinge, optim
from ..core.aliases import FloatArray

Backward = Callable[[FloatArray], FloatArray]
Features = Callable[[FloatArray], tuple[FloatArray, Backward]]
"""Returns what the forest reads of samples, and a function from its gradient to that of the kernel."""
Loss = Callable[[FloatArray], tuple[float, FloatArray]]
"""Returns the loss of a batch's scores, and its gradient with respect to them."""


class Optimizer(Protocol):
    """What moves a forest and the kernel of the features before it, in place."""

    def forward(self, z: FloatArray, step: int, lr: float) -> tuple[FloatArray, hinge.Route]:
        """Returns the scores of a batch, and its route."""

    def backward(
        self, grad: FloatArray, route: hinge.Route, z: FloatArray, step: int, lr: float
    ) -> FloatArray:
        """Moves the forest; returns the gradient with respect to z."""

    def move(self, grad: FloatArray, step: int, lr: float) -> None:
        """Moves the kernel."""


class Adam(NamedTuple):
    """Adam, with fused steps of the forest (Kingma & Ba 2015, Alg. 1)."""

    forest: hinge.Parameters
    state: hinge.AdamState
    kernel: FloatArray
    kernel_m: FloatArray
    kernel_v: FloatArray
    kind: Literal["tree", "fern"] = "tree"
    rate: float = 1.0
    """Learning rate of the kernel against that of the forest."""

    def forward(self, z: FloatArray, step: int, lr: float) -> tuple[FloatArray, hinge.Route]:
        """As `Optimizer` says; weights that the batch reads are brought up to date first."""
        return hinge.adam_forward(z, *self.forest, self.state, step, lr, kind=self.kind)

    def backward(
        self, grad: FloatArray, route: hinge.Route, z: FloatArray, step: int, lr: float
    ) -> FloatArray:
        """As `Optimizer` says."""
        return hinge.adam_backward(grad, route, z, *self.forest, self.state, step, lr, kind=self.kind)

    def move(self, grad: FloatArray, step: int, lr: float) -> None:
        """As `Optimizer` says."""
        if self.kernel.size:
            optim.adam(self.kernel, grad, self.kernel_m, self.kernel_v, step, self.rate * lr)


def steps(
    optimizer: Optimizer,
    features: Features,
    batches: Iterable[tuple[FloatArray, Loss]],
    first: int,
    rate: Callable[[int], float],
    errors: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Iterator[tuple[int, float, float]]:
    """Makes a step on each batch; yields its number, above `first`, its learning rate and the loss before it.

    Batches are samples and a function from scores to the loss. `errors` makes what a step is inside of.
    """
    for step, (x, loss) in enumerate(batches, first + 1):
        lr = rate(step)
        with errors():
            z, backward = features(x)
            scores, route = optimizer.forward(z, step, lr)
            value, grad = loss(scores)
            # Nothing is refused from here on: no error leaves a state that is half changed.
            grad_z = optimizer.backward(grad, route, z, step, lr)
            optimizer.move(backward(grad_z), step, lr)
        yield step, lr, value
