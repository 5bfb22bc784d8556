"""Adam for sparse gradients: a row of a leaf table takes its missed steps when it is next read."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import optim
from . import rows as tables
from .cuda import as_array, stream_of
from .fused import FusedForest, settings_of
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


class RowAdam(torch.optim.Optimizer):
    """Adam optimiser for networks with hinge forests: the steps of dense Adam at the cost of the rows
    reached.

    A parameter with a sparse gradient (leaf weights with ``sparse=True``) is a table of rows. A step updates
    the rows that have a gradient. The other rows take the steps that they missed when they are next read. All
    other parameters take dense Adam steps.

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

    Every read of a table first takes missed steps. Functions and modules of `hforest.torch` and
    `torch.nn.functional.embedding` take those of the rows that they read. All other functions of PyTorch,
    copies, casts, slices, pickles and `state_dict` take those of all rows, which costs a few dense steps. The
    parameter itself stores the state for this, so it may outlive the optimiser; its class is a subclass of
    Parameter while it has missed steps. If another tensor, array or process shares a table's memory (a view,
    a stored `state_dict`), every step updates all of its rows. Call `flush()` before memory is read without
    PyTorch's Python functions: by TorchScript, by `torch.utils.dlpack.to_dlpack`, or by `torch.func.grad`,
    `vjp` and `functionalize` with respect to a table.

    After a change of a group's `lr`, `betas`, `eps` or `weight_decay` the next step flushes the group's
    tables with the old settings, so change them rarely. With `weight_decay` a change of `lr` also recomputes
    the coefficients of missed steps (half a second).

    Cost of a step: proportional to the rows reached for a table, a dense step for other parameters. Memory:
    two moments, and 8 bytes per row.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> table = torch.nn.Parameter(torch.zeros(3, 4, 2))
    >>> optimizer = hforest.torch.RowAdam([table], lr=0.5)
    >>> rows = torch.tensor([[0, 2], [1, 3]])  # leaf 1 of tree 0, leaf 3 of tree 2
    >>> table.grad = torch.sparse_coo_tensor(rows, torch.ones(2, 2), table.shape, check_invariants=True)
    >>> optimizer.step()
    >>> table[0, 1], table[1, 0]
    (tensor([-0.5000, -0.5000], grad_fn=<SelectBackward0>), tensor([0., 0.], grad_fn=<SelectBackward0>))
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        self._fused: list[tuple[Tensor, Tensor]] = []  # thresholds and weights that move in the backward pass
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
        lr, beta1, beta2, eps, weight_decay = settings_of(group)
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
        with torch.no_grad(), tables.UNWATCHED():
            for group in self.param_groups:
                settings = settings_of(group)
                for p in group["params"]:
                    if p.grad is None or not p.numel():
                        continue
                    pending = tables.missed(p)
                    if pending is not None and pending.state is not self.state.get(p):
                        self._part(p)  # steps of another optimiser, or of a state that has been replaced
                    elif pending is not None and pending.forest is not None:
                        raise ValueError(
                            "grad: expected None for parameters that move in the backward pass, got a "
                            "gradient from elsewhere; call step_in_backward(thresholds, weights, on=False)"
                        )
                    if p.grad.layout not in (torch.strided, torch.sparse_coo):
                        raise TypeError(
                            f"grad: expected a dense or sparse COO tensor, got layout {p.grad.layout}; "
                            "convert it with grad.to_dense()"
                        )
                    with stream_of(p):
                        if p.grad.layout == torch.strided:
                            self._dense_step(p, p.grad, settings)
                        else:
                            self._row_step(p, p.grad, settings)
                    torch.autograd.graph.increment_version(p)
        return loss

    def _state(self, p: Tensor) -> dict[str, Any]:
        state = self.state[p]
        if not state:
            state["step"] = 0
            for name in MOMENTS:
                state[name] = torch.zeros_like(p, memory_format=torch.preserve_format)
        tables.fits(state, p)
        return state

    def _dense_step(self, p: Tensor, grad: Tensor, settings: Settings) -> None:
        state = self._state(p)
        tables.settle(p)
        lr, beta1, beta2, eps, weight_decay = settings
        if grad.stride() != p.stride():
            grad = torch.empty_like(p, memory_format=torch.preserve_format).copy_(grad)
        param, g, m, v = _by_memory(p, p, grad, *(state[name] for name in MOMENTS))
        constants = {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
        optim.adam(param, g, m, v, state["step"] + 1, lr, **constants)
        state["step"] += 1

    def _row_step(self, p: Tensor, grad: Tensor, settings: Settings) -> None:
        if not p.is_contiguous():
            raise ValueError(
                f"params: expected a contiguous parameter for a sparse gradient, got strides {p.stride()}; "
                "create it with .contiguous()"
            )
        n_rows = math.prod(p.shape[: grad.sparse_dim()])
        state = self._state(p)
        pending = tables.missed(p) or tables.Missed(p, state, n_rows, settings)
        if len(pending.last) != n_rows:
            raise ValueError(
                f"grad: expected a sparse gradient with {len(pending.last)} rows as in earlier steps, got "
                f"{n_rows} rows; keep the number of sparse axes of the gradient"
            )
        rows, values = _rows_of(grad)
        with tables.LOCK:
            if pending.settings != settings:
                pending.take()
                pending.settings = settings
            pending.step(as_array(rows), as_array(values))
            if tables.may_miss(p) and tables.alone(pending.data):
                tables.attach(p, pending)
            else:
                pending.take()
                tables.release(p)

    # ------------------------------------------------------------------------- missed steps

    def take_missed_steps(self, table: Tensor, rows: Tensor | None = None) -> None:
        """Takes the missed steps of rows of a table, in place.

        Functions that read a table call it themselves: see the notes of `RowAdam`.

        Parameters
        ----------
        table : Tensor
            A parameter. Without a sparse gradient before, it has no missed steps.
        rows : (n_rows,) Tensor of int64, optional
            Rows of the flattened sparse axes of its gradient, ascending and unique; by default all.
        """
        pending = tables.missed(table)
        if rows is None:
            tables.settle(table)
        elif pending is not None:
            pending.take(as_array(rows.contiguous()))

    def step_in_backward(self, thresholds: Tensor, weights: Tensor, *, on: bool = True) -> None:
        """Makes the backward pass take a forest's steps, without storing its gradients.

        From then on `loss.backward()` updates these thresholds and weights, whose `grad` stays None, by
        `hforest.hinge.adam_forward` and `adam_backward`. `step` updates the other parameters.

        Parameters
        ----------
        thresholds : (n_trees, n_vertices) Tensor
        weights : (n_trees, n_leaves, *outputs) Tensor
            Parameters of one `HingeForest`, or of a convolution, with ``margin="column"``, on the CPU,
            contiguous, in one group of this optimiser.
        on : bool
            False restores gradients and updates by `step`.

        Raises
        ------
        ValueError
            Tensors that are not parameters of one group, are on a GPU, have taken different numbers of steps,
            or are of a subclass of Parameter.

        Notes
        -----
        For training loops with one forward and one backward pass per step. A second backward pass before the
        next forward pass is an error; gradients cannot be accumulated, clipped or inspected. `aggregate` must
        be "sum" or "mean". Up to rounding the result is that of `step`. Frozen parameters are not updated;
        nor are those of a pass that does not require their gradients, such as `torch.autograd.grad(loss, x)`.
        A pass that requires the gradient of only one of the two is an error, as is `torch.autograd.grad` with
        respect to them. Updates end with the lifetime of this optimiser.

        Examples
        --------
        >>> import torch, hforest.torch
        >>> t = torch.nn.Parameter(torch.zeros(1, 1)); f = torch.zeros(1, 1, dtype=torch.int32)
        >>> w = torch.nn.Parameter(torch.ones(1, 2))
        >>> optimizer = hforest.torch.RowAdam([t, w], lr=0.5)
        >>> optimizer.step_in_backward(t, w)
        >>> hforest.torch.hinge_forest(torch.tensor([[2.0]]), t, f, w).sum().backward()
        >>> optimizer.flush(); w.tolist(), w.grad
        ([[1.0, 0.5]], None)
        """
        groups = [
            g for p in (thresholds, weights) for g in self.param_groups if any(p is q for q in g["params"])
        ]
        if len(groups) != 2 or groups[0] is not groups[1]:
            raise ValueError(
                "thresholds: expected parameters in one group of this optimiser, got tensors of "
                f"{'two groups' if len(groups) == 2 else 'another one'}; pass a module's own "
                "thresholds and weights"
            )
        pair = (thresholds, weights)
        with tables.UNWATCHED():
            if not all(tables.may_miss(p) and p.is_cpu and p.is_contiguous() for p in pair):
                raise ValueError(
                    "weights: expected contiguous parameters on the CPU, got other tensors; use step, "
                    "which moves all parameters"
                )
            states = (self._state(thresholds), self._state(weights))
            if on and states[0]["step"] != states[1]["step"]:
                raise ValueError(
                    f"thresholds: expected as many steps as the weights', {states[1]['step']}, got "
                    f"{states[0]['step']}; call step_in_backward before the first step"
                )
            self._part(*pair)
            if on:
                FusedForest(self, settings_of(groups[0]), pair, states)
                self._fused.append(pair)

    def _part(self, *parameters: Tensor) -> None:
        # Takes all missed steps, and leaves the parameters to `step`.
        for p in parameters:
            tables.settle(p)
            tables.release(p)
        self._fused = [pair for pair in self._fused if not any(p is q for p in pair for q in parameters)]

    def flush(self) -> None:
        """Takes the missed steps of all rows of all tables.

        Functions of PyTorch that read a table do so themselves; see the notes of `RowAdam`. Cost: a few dense
        steps for rows with missed steps, one read of the table for the others.
        """
        for group in self.param_groups:
            for p in group["params"]:
                tables.settle(p)

    # -------------------------------------------------------------------------------- state

    def __getstate__(self) -> dict[str, Any]:
        self.flush()
        return {**super().__getstate__(), "_fused": self._fused}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for pair in list(self._fused):
            self.step_in_backward(*pair)

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
