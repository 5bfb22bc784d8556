"""Adam for sparse gradients: rows of leaf tables take the steps that they missed when they are next read."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .. import optim
from . import rows as tables
from .cuda import as_array, stream_of
from .rows import MOMENTS, Settings

_REFUSED = ("amsgrad", "maximize")
_OF_ADAM: dict[str, Any] = {
    **dict.fromkeys(_REFUSED, False),
    **dict.fromkeys(("capturable", "differentiable"), False),
    **dict.fromkeys(("foreach", "fused")),
}
"""Settings of torch.optim.Adam that its state has, as those of RowAdam's steps."""


def _by_memory(like: Tensor, *tensors: Tensor) -> list[Any]:
    # Arrays whose axes are in the order of `like` in memory, as in the layout channels_last.
    order = sorted(range(like.ndim), key=like.stride, reverse=True)
    return [as_array((t.permute(order) if not t.is_contiguous() else t).detach()) for t in tensors]


def _settings_of(group: dict[str, Any]) -> Settings:
    # lr, both betas, eps and weight decay of a parameter group.
    betas = group["betas"]
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise TypeError(f"betas: expected two numbers, got {betas!r}; pass (beta1, beta2)")
    if isinstance(group["lr"], Tensor):
        raise TypeError("lr: expected a number, got a Tensor; pass lr.item()")
    return group["lr"], betas[0], betas[1], group["eps"], group.get("weight_decay", 0.0)


def _check_state(state: dict[str, Any], p: Tensor) -> None:
    # Checks that the moments are those of a parameter of this shape, dtype and device.
    for name in MOMENTS:
        m = state[name]
        if (m.shape, m.dtype, m.device) != (p.shape, p.dtype, p.device):
            kind = TypeError if m.shape == p.shape else ValueError
            raise kind(
                f"params: expected {tuple(m.shape)} of {m.dtype} on {m.device} as at the last step, got "
                f"{tuple(p.shape)} of {p.dtype} on {p.device}; create a new optimiser, or load the state of "
                "this one with optimizer.load_state_dict(optimizer.state_dict()) after a cast"
            )


def _before_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    # What another optimiser moves has no missed steps. One that has a RowAdam inside, as
    # ZeroRedundancyOptimizer, sends parameters to other processes after each of its steps.
    if isinstance(optimizer, RowAdam):
        return
    inside, missed = getattr(optimizer, "optim", None), tables.missed_steps()
    if isinstance(inside, RowAdam):
        inside._inside = True
    elif missed:
        for p in (p for group in optimizer.param_groups for p in group["params"] if p in missed):
            missed[p].close()


@cache
def _watch() -> None:
    register_optimizer_step_pre_hook(_before_step)


class RowAdam(torch.optim.Optimizer):
    """Adam optimiser for networks with hinge forests: the steps of dense Adam at the cost of the rows
    reached.

    A leaf table is the `weights` of a layer with ``sparse=True`` (`HingeForest`, `HingeConv1d` to
    `HingeConv3d`), and its leaves are the rows. A step updates the rows that have a gradient. The other rows
    take the steps that they missed when the layer next reads them. All other parameters take dense Adam
    steps.

    Parameters
    ----------
    params : iterable of Tensor or dict
        Parameters of float32 or float64, or parameter groups, as for any optimiser.
    lr : float
        Learning rate, in the unit of the parameters. At least 0.
    betas : (float, float)
        Decay rates of the first and the second moment, 0 to 0.999999.
    eps : float
        As in `hforest.optim.adam`.
    weight_decay : float
        Decoupled weight decay as in `torch.optim.AdamW`: a step first multiplies a parameter by 1 - lr
        weight_decay, which must be above 0. Missed steps apply it in closed form.

    Notes
    -----
    Up to rounding, parameters equal those of `torch.optim.Adam` on dense gradients (Kingma & Ba 2015, Alg.
    1). `hforest.optim.adam`, `adam_rows` and `adam_catch_up` compute them. Parameters whose `grad` is None
    take no step, as in `torch.optim.Adam`.

    A layer takes missed steps before it reads its table: `forward` those of the rows that the batch reads;
    ``layer.weights``, `parameters()` also of an outer module, `state_dict`, copies, casts and pickles those
    of all rows, which costs a few dense steps. A reference to the tensor that is kept outside of the layer
    lags until then, or until `flush()`.

    After a change of a group's `lr`, `betas`, `eps` or `weight_decay` the next step flushes the group's
    tables with the old settings, so change them rarely. With `weight_decay` a change of `lr` also recomputes
    the coefficients of missed steps (half a second).

    Cost of a step: proportional to the rows reached for a table, a dense step for other parameters. Memory:
    two moments, and 8 bytes per row.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> layer = hforest.torch.HingeForest(4, n_trees=3, depth=2, scale=0.0, sparse=True)
    >>> optimizer = hforest.torch.RowAdam(layer.parameters(), lr=0.5)
    >>> layer(torch.ones(1, 4)).sum().backward()
    >>> optimizer.step()
    >>> sorted({round(abs(a), 3) for a in layer.weights.flatten().tolist()})
    [0.0, 0.5]
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        self._missed: dict[Tensor, tables.Missed] = {}
        self._inside = False  # whether another optimiser calls `step`
        _watch()
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a parameter group with its own settings.

        Parameters
        ----------
        param_group : dict
            `params`, and any of `lr`, `betas`, `eps` and `weight_decay`.
        """
        super().add_param_group(param_group)
        try:
            self._check(self.param_groups[-1])
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise

    def _check(self, group: dict[str, Any]) -> None:
        # Adam on no numbers raises what a step with these settings would raise.
        lr, beta1, beta2, eps, weight_decay = _settings_of(group)
        for p in group["params"]:
            if p.dtype not in (torch.float32, torch.float64):
                raise TypeError(
                    "params: expected parameters of float32 or float64, got "
                    f"{str(p.dtype).removeprefix('torch.')}; "
                    "keep the parameters in float32 and compute in half types inside torch.autocast"
                )
        for dtype in {p.dtype for p in group["params"]}:
            a, b, c, d = np.zeros((4, 0), np.float64 if dtype == torch.float64 else np.float32)
            constants = {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
            optim.adam(a, b, c, d, 1, lr, **constants)

    # ------------------------------------------------------------------------------------ steps

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes one step for every parameter that has a gradient.

        Parameters
        ----------
        closure : function, optional
            Called before the step; computes gradients and returns the loss.

        Returns
        -------
        Loss of the closure, or None.

        Raises
        ------
        ValueError
            A parameter whose shape, dtype or device changed since its last step.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            missed = tables.missed_steps()
            for group in self.param_groups:
                settings = _settings_of(group)
                for p in group["params"]:
                    if p.grad is None or not p.numel():
                        continue
                    if p.grad.layout not in (torch.strided, torch.sparse_coo):
                        raise TypeError(
                            f"grad: expected a dense or sparse COO tensor, got layout {p.grad.layout}; "
                            "convert it with grad.to_dense()"
                        )
                    state, before, grad = self._state(p), missed.get(p), p.grad
                    by_rows = grad.layout == torch.sparse_coo
                    if before is not None and not (by_rows and before.state is state):
                        before.close()  # of another optimiser or a former state, or before a dense step
                    with stream_of(p):
                        (self._row_step if by_rows else self._dense_step)(p, grad, state, settings)
                    torch.autograd.graph.increment_version(p)
        return loss

    def _state(self, p: Tensor) -> dict[str, Any]:
        state = self.state[p]
        if not state:
            state["step"] = 0
            for name in MOMENTS:
                state[name] = torch.zeros_like(p, memory_format=torch.preserve_format)
        _check_state(state, p)
        return state

    def _dense_step(self, p: Tensor, grad: Tensor, state: dict[str, Any], settings: Settings) -> None:
        lr, beta1, beta2, eps, weight_decay = settings
        if grad.stride() != p.stride():
            grad = torch.empty_like(p, memory_format=torch.preserve_format).copy_(grad)
        param, g, m, v = _by_memory(p, p, grad, *(state[name] for name in MOMENTS))
        constants = {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
        optim.adam(param, g, m, v, state["step"] + 1, lr, **constants)
        state["step"] += 1

    def _row_step(self, p: Tensor, grad: Tensor, state: dict[str, Any], settings: Settings) -> None:
        missed = self._missed.get(p)
        if missed is None or missed.closed:
            missed = self._missed[p] = tables.attach(p, state, settings)
        if grad.sparse_dim() != 2:
            raise ValueError(
                "grad: expected a sparse gradient with the axes (tree, leaf), got sparse_dim() = "
                f"{grad.sparse_dim()}; leave the gradient as the layer returns it"
            )
        if missed.settings != settings:
            missed.take()
            missed.settings = settings
        missed.step(*map(as_array, _rows_of(grad)))
        if self._inside or p.is_shared():
            missed.close()

    def flush(self) -> None:
        """Takes the missed steps of all rows of all tables.

        For references to tables that are kept outside of their layers. Cost: a few dense steps for rows with
        missed steps.
        """
        for missed in self._missed.values():
            missed.close()
        self._missed = {}

    # -------------------------------------------------------------------------------- state

    def __getstate__(self) -> dict[str, Any]:
        self.flush()
        return {**super().__getstate__(), "_missed": {}, "_inside": self._inside}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        _watch()

    def state_dict(self) -> dict[str, Any]:
        """Returns the state with all missed steps taken; `torch.optim.Adam` can load it (with weight decay
        `torch.optim.AdamW`).

        Returns
        -------
        dict
            `state`: for each parameter step (an int), exp_avg and exp_avg_sq. `param_groups`: settings.

        Notes
        -----
        Calls `flush()`, so the model's parameters match the state. So do the tensors of an earlier
        `model.state_dict()`, which share the model's memory, but not those of a file written earlier. A run
        that continues after this call is bit-identical to one that resumes from its result.
        """
        self.flush()
        whole = super().state_dict()
        for key, state in whole["state"].items():
            whole["state"][key] = {name: state[name] for name in ("step", *MOMENTS) if name in state}
        for group in whole["param_groups"]:
            group.update(_OF_ADAM, decoupled_weight_decay=bool(group["weight_decay"]))
        return whole

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state of `state_dict()`, or of `torch.optim.Adam` or `AdamW`.

        Load the model's parameters first.

        Parameters
        ----------
        state_dict : dict
            State; its tensors are copied.

        Raises
        ------
        ValueError
            A state for other parameters; weight decay that is not decoupled, AMSGrad or maximisation.
        """
        for group in state_dict["param_groups"]:
            for name in _REFUSED:
                if group.get(name):
                    raise ValueError(
                        f"state_dict: expected {name}=0, since RowAdam has no such option, got "
                        f"{group[name]}; "
                        "load it into torch.optim.Adam"
                    )
            if group.get("weight_decay") and not group.get("decoupled_weight_decay"):
                raise ValueError(
                    "state_dict: expected decoupled weight decay as in RowAdam, got "
                    f"weight_decay={group['weight_decay']} that is added to gradients; "
                    "load it into torch.optim.Adam"
                )
        states = {}
        for key, state in state_dict["state"].items():
            states[key] = {"step": int(state["step"])} | {name: state[name].clone() for name in MOMENTS}
        dropped = {*_OF_ADAM, "decoupled_weight_decay"}
        groups = [{k: v for k, v in g.items() if k not in dropped} for g in state_dict["param_groups"]]
        for group in groups:
            group["weight_decay"] = float(group.get("weight_decay") or 0)
        self.flush()
        super().load_state_dict({"state": states, "param_groups": groups})
        for group in self.param_groups:
            self._check(group)


def _rows_of(grad: Tensor) -> tuple[Tensor, Tensor]:
    # Rows of the flattened sparse axes, ascending and each once, and their gradients. Gradients of one
    # backward pass are sorted, though autograd does not mark them so.
    rows = _flat_rows(grad)
    if not grad.is_coalesced() and not bool((rows[1:] > rows[:-1]).all()):
        grad = grad.coalesce()
        rows = _flat_rows(grad)
    return rows, grad._values().contiguous()


def _flat_rows(grad: Tensor) -> Tensor:
    indices = grad._indices()
    rows = indices[0]
    for axis in range(1, grad.sparse_dim()):
        rows = rows * grad.shape[axis] + indices[axis]
    return rows.contiguous()
