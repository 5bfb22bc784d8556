"""A step of Adam in the backward pass: forests whose parameters move as soon as their gradients are known."""

from typing import Any, Literal

import torch
from torch import Tensor

from .. import hinge
from .library import array

Settings = tuple[float, float, float, float]
"""lr, beta1, beta2, eps."""

_FORWARD: dict[str, Any] = {"tree": hinge.tree_adam_forward, "fern": hinge.fern_adam_forward}
_BACKWARD: dict[str, Any] = {"tree": hinge.tree_adam_backward, "fern": hinge.fern_adam_backward}


def settings_of(group: dict[str, Any]) -> Settings:
    """Returns lr, both betas and eps of a group of parameters."""
    betas = group["betas"]
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise TypeError(f"betas: expected two numbers, got {betas!r}; pass (beta1, beta2)")
    if isinstance(group["lr"], Tensor):
        raise TypeError("lr: expected a number, got a Tensor; pass lr.item()")
    return group["lr"], betas[0], betas[1], group["eps"]


class FusedForest:
    """Thresholds and leaf weights that the backward pass moves, and Adam's state of both.

    Parameters
    ----------
    thresholds, weights : Tensor
    state : (dict, dict)
        Of an optimiser, for each of the two: step, exp_avg, exp_avg_sq and last; of the weights also missed,
        the settings of missed steps, and moved, whether there are any. Changed in place.
    group : dict
        The group of both, with the settings of the next step.
    """

    def __init__(
        self,
        thresholds: Tensor,
        weights: Tensor,
        state: tuple[dict[str, Any], dict[str, Any]],
        group: dict[str, Any],
    ) -> None:
        self.thresholds, self.weights, self.state, self.group = thresholds, weights, state, group

    @property
    def step(self) -> int:
        """Steps taken."""
        return int(self.state[1]["step"])

    def arrays(self) -> tuple[Any, Any, hinge.AdamState]:
        """Returns thresholds, weights and the state as arrays of the same memory."""
        t, w = self.thresholds.detach().numpy(), self.weights.detach().numpy()
        kept = []
        for p, state in zip((t, w), self.state, strict=True):
            kept += [state["exp_avg"].numpy(), state["exp_avg_sq"].numpy()]
            kept.append(state["last"].numpy().reshape(p.shape[:2]))
        return t, w, hinge.AdamState(*kept)

    def flush(self) -> None:
        """Takes all missed steps; nothing where none was taken since the last time."""
        if self.state[1]["moved"]:
            lr, beta1, beta2, eps = self.state[1]["missed"]
            hinge.adam_sync(*self.arrays(), self.step, lr, beta1=beta1, beta2=beta2, eps=eps)
            self.state[1]["moved"] = False

    def __call__(self, x: Tensor, features: Tensor, kind: Literal["tree", "fern"], aggregate: Any) -> Tensor:
        """Returns outputs; the backward pass of this call takes a step."""
        return _Step.apply(x, features, self.thresholds, self.weights, self, kind, aggregate)


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, features: Tensor, thresholds: Tensor, weights: Tensor, forest: FusedForest,
        kind: str, aggregate: Any,
    ) -> Tensor:  # fmt: skip
        t, w, state = forest.arrays()
        lr, beta1, beta2, eps = forest.state[1]["missed"]
        ctx.step = forest.step + 1
        y, route = _FORWARD[kind](
            array("x", x), t, array("features", features), w, state, ctx.step, lr,
            aggregate=aggregate, beta1=beta1, beta2=beta2, eps=eps,
        )  # fmt: skip
        ctx.save_for_backward(features, *map(torch.from_numpy, route))
        ctx.forest, ctx.settings = forest, (x.shape[1], kind, aggregate)
        return torch.from_numpy(y)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Any, ...]:
        features, *route = ctx.saved_tensors
        n_features, kind, aggregate = ctx.settings
        forest = ctx.forest
        if forest.step != ctx.step - 1 or torch.is_grad_enabled():
            raise RuntimeError(
                "backward: expected one forward and one backward pass a step for a forest that moves in the "
                "backward pass, got more; call optimizer.step_in_backward(thresholds, weights, on=False)"
            )
        settings = settings_of(forest.group)
        if settings != forest.state[1]["missed"]:
            forest.flush()
            forest.state[1]["missed"] = settings
        t, w, state = forest.arrays()
        lr, beta1, beta2, eps = settings
        grad_x = _BACKWARD[kind](
            array("grad_y", grad_y), *(a.numpy() for a in route), t, array("features", features), w, state,
            n_features, ctx.step, lr, aggregate=aggregate, beta1=beta1, beta2=beta2, eps=eps,
        )  # fmt: skip
        for state in forest.state:
            state["step"] = ctx.step
        forest.state[1]["moved"] = True
        torch.autograd.graph.increment_version((forest.thresholds, forest.weights))
        return torch.from_numpy(grad_x), None, None, None, None, None, None
