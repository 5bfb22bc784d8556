"""Adam steps within the backward pass, which updates a forest as soon as its gradients are computed."""

import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import hinge
from . import rows
from .library import array
from .operators import gradients
from .rows import Settings


def settings_of(group: dict[str, Any]) -> Settings:
    """Returns lr, both betas, eps and weight decay of a parameter group."""
    betas = group["betas"]
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise TypeError(f"betas: expected two numbers, got {betas!r}; pass (beta1, beta2)")
    if isinstance(group["lr"], Tensor):
        raise TypeError("lr: expected a number, got a Tensor; pass lr.item()")
    return group["lr"], betas[0], betas[1], group["eps"], group.get("weight_decay", 0.0)


def _without_decay(settings: Settings) -> tuple[float, float, float, float]:
    """Returns lr, both betas and eps: steps in the backward pass do not support weight decay."""
    *numbers, weight_decay = settings
    if weight_decay:
        raise ValueError(
            "weight_decay: expected 0 for parameters that move in the backward pass, "
            f"got {weight_decay}; call "
            "step_in_backward(thresholds, weights, on=False), or put them in a group with weight_decay=0"
        )
    lr, beta1, beta2, eps = numbers
    return lr, beta1, beta2, eps


class FusedForest:
    """Thresholds and leaf weights that the backward pass updates, with their Adam state.

    Both parameters refer to it in their `rows.Missed`, so each can take its missed steps by itself.

    Parameters
    ----------
    owner : Optimizer
        Optimiser. While it exists, the backward pass updates the forest.
    settings : rows.Settings
        Settings of the next step.
    tables : (Tensor, Tensor)
        Thresholds and weights.
    state : (dict, dict)
        Optimiser state of each: step, exp_avg and exp_avg_sq. Updated in place.
    """

    def __init__(
        self,
        owner: torch.optim.Optimizer,
        settings: Settings,
        tables: tuple[Tensor, Tensor],
        state: tuple[dict[str, Any], dict[str, Any]],
    ) -> None:
        _without_decay(settings)
        self.owner, self.state, self._memory = weakref.ref(owner), state, rows.Memory()
        self.settings, self.moved = settings, False  # settings of missed steps, and whether there are any
        pending = []
        for p, s in zip(tables, state, strict=True):
            pending.append(rows.Missed(p, s, p.shape[0] * p.shape[1], self.settings, self))
            rows.attach(p, pending[-1])
        self.data, self.last = [k.data for k in pending], [k.last.view(k.data.shape[:2]) for k in pending]

    @property
    def step(self) -> int:
        """Steps taken."""
        return int(self.state[1]["step"])

    def arrays(self) -> tuple[Any, Any, hinge.AdamState]:
        """Returns thresholds, weights and state as arrays that share their memory."""
        tensors = []
        for p, state, last in zip(self.data, self.state, self.last, strict=True):
            rows.fits(state, p)
            tensors += [*(state[name] for name in rows.MOMENTS), last]
        t, w, *moments = self._memory.arrays(*self.data, *tensors)
        return t, w, hinge.AdamState(*moments)

    def flush(self) -> None:
        """Takes all missed steps; does nothing if there was no step since the last call."""
        if self.moved:
            lr, beta1, beta2, eps = _without_decay(self.settings)
            hinge.adam_sync(*self.arrays(), self.step, lr, beta1=beta1, beta2=beta2, eps=eps)
            self.moved = False

    def move(
        self, settings: Settings, grad_y: Any, route: Any, x: Any, features: Any, variant: dict[str, Any]
    ) -> Any:
        """Takes one step and returns the gradient with respect to x."""
        step = self.step + 1
        lr, beta1, beta2, eps = _without_decay(settings)
        with rows.LOCK:
            if settings != self.settings:
                self.flush()
                self.settings = settings
            t, w, state = self.arrays()
            grad_x = hinge.adam_backward(
                grad_y, route, x, t, features, w, state, step, lr,
                **variant, beta1=beta1, beta2=beta2, eps=eps,
            )  # fmt: skip
            for of_table in self.state:
                of_table["step"] = step
            self.moved = True
            if not all(map(rows.alone, self.data)):
                self.flush()
        torch.autograd.graph.increment_version(self.data)
        return grad_x

    def moves(self, learns: list[bool]) -> bool:
        """Returns whether a pass updates (thresholds, weights); an error if it requires only one gradient."""
        if learns[0] != learns[1]:
            raise RuntimeError(
                "step_in_backward: expected gradients of both thresholds and weights, or of neither, got "
                f"only the gradient of the {'weights' if learns[1] else 'thresholds'}; freeze both, "
                "or call "
                "optimizer.step_in_backward(thresholds, weights, on=False)"
            )
        return learns[0]

    def of(self, thresholds: Tensor, weights: Tensor) -> "FusedForest | None":
        """Returns the forest that the next backward pass updates, or None."""
        owner: Any = self.owner()
        if owner is None:  # nobody moves it any more
            rows.settle(thresholds)
            rows.settle(weights)
            return None
        if owner.state.get(weights) is not self.state[1]:  # it starts anew
            owner.step_in_backward(thresholds, weights)
            return rows.forest_of(thresholds, weights)
        return self if self.moves([thresholds.requires_grad, weights.requires_grad]) else None

    def apply(
        self, x: Tensor, thresholds: Tensor, features: Tensor, weights: Tensor, variant: dict[str, Any]
    ) -> Tensor:
        """Returns outputs; the backward pass of this call takes a step."""
        return _Step.apply(x, thresholds, features, weights, self, variant)


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, thresholds: Tensor, features: Tensor, weights: Tensor, forest: FusedForest,
        variant: dict[str, Any],
    ) -> Tensor:  # fmt: skip
        lr, beta1, beta2, eps = _without_decay(forest.settings)
        ctx.step = forest.step + 1
        with rows.LOCK:
            t, w, state = forest.arrays()
            y, route = hinge.adam_forward(
                array("x", x), t, array("features", features), w, state, ctx.step, lr,
                **variant, beta1=beta1, beta2=beta2, eps=eps,
            )  # fmt: skip
        read = x if hinge.kernels.MARGINS[variant["margin"]].gradient_reads_x else None
        ctx.save_for_backward(features, read, *map(torch.from_numpy, route))
        ctx.forest, ctx.x_shape, ctx.variant = forest, x.shape, variant
        return torch.from_numpy(y)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Any, ...]:
        features, x, *route = ctx.saved_tensors
        forest = ctx.forest
        thresholds, weights = (ctx.next_functions[i][0] for i in (1, 3))
        pending, owner = rows.missed(weights.variable), forest.owner()
        current = owner is not None and pending is not None and pending.forest is forest
        if not current or forest.step != ctx.step - 1 or torch.is_grad_enabled():
            raise RuntimeError(
                "backward: expected one forward and one backward pass per step for a forest that moves in "
                "the backward pass, got more, or an optimiser that was deleted or no longer moves the "
                "forest; call "
                "optimizer.step_in_backward(thresholds, weights, on=False)"
            )
        g, f, x = array("grad_y", grad_y), array("features", features), x if x is None else array("x", x)
        route = hinge.Route(*map(array, hinge.Route._fields, route))
        if forest.moves([_asked_for(thresholds), _asked_for(weights)]):
            group = next(a for a in owner.param_groups if any(p is weights.variable for p in a["params"]))
            x = np.empty_like(route.margin, shape=tuple(ctx.x_shape), order="C") if x is None else x
            grad_x = forest.move(settings_of(group), g, route, x, f, ctx.variant)
        else:
            w = forest.data[1].numpy()
            grad_x = gradients(g, route, x, ctx.x_shape, f, w, ctx.variant, sparse=True).x
        return torch.from_numpy(grad_x), *(None,) * 5


def _asked_for(node: Any) -> bool:
    # Whether this backward pass adds up a gradient of the parameter whose node this is.
    if not node.variable.requires_grad:
        return False
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # within torch.autograd.grad that returns this gradient
        raise RuntimeError(
            "step_in_backward: expected no request for gradients of thresholds and weights, which move in "
            "the backward pass, got a call of torch.autograd.grad; call "
            "optimizer.step_in_backward(thresholds, weights, on=False)"
        ) from None
