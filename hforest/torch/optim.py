"""Adam whose step costs what the batch touched: rows of leaf tables are moved when they are next read."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import hforest

from .. import hinge, optim
from . import rows as owners
from .cuda import import_cupy
from .fused import FusedForest, Settings, settings_of

_MOMENTS = ("exp_avg", "exp_avg_sq")
_REFUSED = ("weight_decay", "amsgrad", "maximize")
_OF_ADAM: dict[str, Any] = {
    **dict.fromkeys(_REFUSED, False),
    **dict.fromkeys(("capturable", "differentiable", "decoupled_weight_decay"), False),
    **dict.fromkeys(("foreach", "fused")),
}
"""Settings of torch.optim.Adam that its state has, as those of RowAdam's steps."""


def _array(t: Tensor) -> Any:
    # The memory of a tensor, as a NumPy or a CuPy array.
    t = t.detach()
    if t.is_cpu:
        return t.numpy()
    return import_cupy().from_dlpack(t)


class _Stream:
    """PyTorch's current stream as CuPy's, for a tensor on a GPU; nothing for one on the CPU."""

    def __init__(self, t: Tensor) -> None:
        self._contexts: list[Any] = []
        if t.is_cuda:
            cupy = import_cupy()
            stream = torch.cuda.current_stream(t.device)
            self._contexts = [
                cupy.cuda.Device(t.device.index),
                cupy.cuda.ExternalStream(stream.cuda_stream, t.device.index),
            ]

    def __enter__(self) -> None:
        for context in self._contexts:
            context.__enter__()

    def __exit__(self, *error: object) -> None:
        for context in reversed(self._contexts):
            context.__exit__(*error)


def _by_memory(like: Tensor, *tensors: Tensor) -> list[Any]:
    # Arrays whose axes are in the order of `like` in memory, as in the layout channels_last.
    order = sorted(range(like.ndim), key=like.stride, reverse=True)
    return [_array(t.permute(order) if not t.is_contiguous() else t) for t in tensors]


class RowAdam(torch.optim.Optimizer):
    """Adam for networks with hinge forests: the steps of dense Adam at the cost of the touched rows.

    A parameter whose gradient is a sparse tensor, as `sparse=True` makes that of leaf weights, is a table of
    rows. A step moves the rows that have a gradient; the others take the steps that they have missed when
    they are next read. All other parameters are moved by dense Adam at every step.

    Parameters
    ----------
    params : iterable of Tensor or dict
        Parameters of float32 or float64, or groups of them, as for every optimiser.
    lr : float
        Learning rate, in the unit of the parameters. At least 0.
    betas : (float, float)
        Decay of the first and the second moment, 0 to 0.999999.
    eps : float
        Added to the root of the corrected second moment, in the unit of the gradients. A normal number of the
        parameters' dtype: at least 1.2e-38 for float32.

    Raises
    ------
    TypeError, ValueError
        A setting of another type or out of its range; parameters of another dtype.

    Notes
    -----
    The parameters are those of `torch.optim.Adam` on dense gradients (Kingma & Ba 2015, Alg. 1) to rounding;
    `hforest.optim.adam`, `adam_rows` and `adam_catch_up` compute them. Parameters without gradient (`grad` is
    None) take no step, as there.

    What reads a table through `hforest.torch`'s functions and modules takes the missed steps of the rows that
    it reads first. Everything else sees them only after `flush()`: call it before weights are saved, copied,
    compared or loaded by other code. `state_dict()` calls it. A change of a group's `lr`, `betas` or `eps`
    flushes the group's tables at the next step with the settings of the missed steps, which costs a few dense
    steps: change them once in many steps.

    Cost of a step for a table: that of its touched rows; a dense step for other parameters. Memory: two
    moments, and 8 bytes a row.

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
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters with settings of its own.

        Parameters
        ----------
        param_group : dict
            `params`, and any of `lr`, `betas` and `eps`.

        Raises
        ------
        TypeError, ValueError
            As the constructor.
        """
        super().add_param_group(param_group)
        try:
            self._check(self.param_groups[-1])
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise

    def _check(self, group: dict[str, Any]) -> None:
        # Adam on no numbers raises what a step with these settings would raise.
        lr, beta1, beta2, eps = settings_of(group)
        for p in group["params"]:
            if p.dtype not in (torch.float32, torch.float64):
                raise TypeError(
                    "params: expected parameters of float32 or float64, got "
                    f"{str(p.dtype).removeprefix('torch.')}; "
                    "keep the parameters in float32 and compute in half types inside torch.autocast"
                )
        for dtype in {p.dtype for p in group["params"]}:
            a, b, c, d = np.zeros((4, 0), np.float64 if dtype == torch.float64 else np.float32)
            optim.adam(a, b, c, d, 1, lr, beta1=beta1, beta2=beta2, eps=eps)

    # ------------------------------------------------------------------------------------ steps

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes one step for every parameter that has a gradient.

        Parameters
        ----------
        closure : function, optional
            Called first; computes gradients again and returns the loss.

        Returns
        -------
        Loss of the closure, or None.

        Raises
        ------
        TypeError, ValueError, IndexError
            A gradient of another dtype, device or layout; a row outside the parameter; settings out of their
            range.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                settings = settings_of(group)
                for p in group["params"]:
                    if p.grad is None or not p.numel():
                        continue
                    if "forest" in self.state[p]:
                        raise ValueError(
                            "grad: expected None for parameters that move in the backward pass, got a "
                            "gradient by another way; call step_in_backward(thresholds, weights, on=False)"
                        )
                    if p.grad.layout not in (torch.strided, torch.sparse_coo):
                        raise TypeError(
                            f"grad: expected a dense or sparse COO tensor, got layout {p.grad.layout}; "
                            "convert it with grad.to_dense()"
                        )
                    with _Stream(p):
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
            for name in _MOMENTS:
                state[name] = torch.zeros_like(p, memory_format=torch.preserve_format)
        return state

    def _dense_step(self, p: Tensor, grad: Tensor, settings: Settings) -> None:
        state = self._state(p)
        if "last" in state:
            self.take_missed_steps(p)
        lr, beta1, beta2, eps = settings
        if grad.stride() != p.stride():
            grad = torch.empty_like(p, memory_format=torch.preserve_format).copy_(grad)
        param, g, m, v = _by_memory(p, p, grad, *(state[name] for name in _MOMENTS))
        optim.adam(param, g, m, v, state["step"] + 1, lr, beta1=beta1, beta2=beta2, eps=eps)
        state["step"] += 1
        if "last" in state:
            state["last"].fill_(state["step"])
            state["missed"] = settings

    def _row_step(self, p: Tensor, grad: Tensor, settings: Settings) -> None:
        axes = grad.sparse_dim()
        if not p.is_contiguous():
            raise ValueError(
                "params: expected a contiguous parameter for a sparse gradient, got one with strides "
                f"{p.stride()}; make it with .contiguous()"
            )
        state = self._state(p)
        if "last" not in state:
            n_rows = math.prod(p.shape[:axes])
            state["last"] = torch.full((n_rows,), state["step"], dtype=torch.int64, device=p.device)
            state["missed"] = settings
        if len(state["last"]) != math.prod(p.shape[:axes]):
            raise ValueError(
                f"grad: expected a sparse gradient by {len(state['last'])} rows as before, got one by "
                f"{math.prod(p.shape[:axes])}; keep the number of sparse axes of a parameter's gradient"
            )
        owners.register(p, self)
        if state["missed"] != settings:
            self.take_missed_steps(p)
            state["missed"] = settings
        rows, values = _rows_of(grad)
        table, m, v = self._flat(p, state)
        lr, beta1, beta2, eps = settings
        step = state["step"] + 1
        optim.adam_rows(
            table, _array(rows), _array(values).reshape(len(rows), *table.shape[1:]), m, v,
            _array(state["last"]), step, lr, beta1=beta1, beta2=beta2, eps=eps,
        )  # fmt: skip
        state["step"] = step

    @staticmethod
    def _flat(p: Tensor, state: dict[str, Any]) -> list[Any]:
        n_rows = len(state["last"])
        return [_array(t).reshape(n_rows, -1) for t in (p, *(state[name] for name in _MOMENTS))]

    # ------------------------------------------------------------------------- missed steps

    def take_missed_steps(self, table: Tensor, rows: Tensor | None = None) -> None:
        """Brings rows of a table to the last step.

        Functions and modules of `hforest.torch` do it by themselves for the rows that they read. Call it
        before other code reads some rows, as `torch.nn.Embedding` does.

        Parameters
        ----------
        table : Tensor
            A parameter of this optimiser. One that never had a sparse gradient has missed no step.
        rows : (n_rows,) Tensor of int64, optional
            Rows of the flattened sparse axes of its gradient, ascending, each once; by default all.

        Raises
        ------
        TypeError, ValueError, IndexError
            Rows of another dtype or device; not ascending; outside the table.
        """
        with _Stream(table):
            self._catch_up(table, None if rows is None else _array(rows.contiguous()))

    def _catch_up(self, table: Tensor, rows: Any) -> None:
        state = self.state.get(table)
        if state is None or "last" not in state or not state["step"]:
            return
        if "forest" in state:
            state["forest"].flush()
            return
        lr, beta1, beta2, eps = state["missed"]
        param, m, v = self._flat(table, state)
        optim.adam_catch_up(
            param,
            m,
            v,
            _array(state["last"]),
            state["step"],
            lr,
            rows=rows,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
        )

    def _catch_up_leaves(self, table: Tensor, leaf: Any) -> None:
        # `leaf` (n_samples, n_trees) int32, NumPy or CuPy: leaves that a batch reads.
        state = self.state.get(table)
        if state is not None and "last" in state:
            with hforest.unchecked():  # rows that leaves give are right
                self._catch_up(table, hinge.leaf_rows(leaf, table.shape[1]))

    def _fused(self, table: Tensor) -> FusedForest | None:
        forest = self.state[table].get("forest") if table in self.state else None
        return forest if forest is None or forest.weights is table else None

    def step_in_backward(self, thresholds: Tensor, weights: Tensor, *, on: bool = True) -> None:
        """Lets the backward pass move a forest: the same steps, without its gradients in memory.

        From now on `loss.backward()` moves these thresholds and weights, whose `grad` stays None, and `step`
        the other parameters: `hforest.hinge.tree_adam_forward` and `tree_adam_backward` in place of forward
        and backward.

        Parameters
        ----------
        thresholds : (n_trees, n_vertices) Tensor
        weights : (n_trees, n_leaves, *outputs) Tensor
            Parameters of one `HingeForest`, on the CPU, contiguous, in one group of this optimiser.
        on : bool
            False goes back to gradients and `step`.

        Raises
        ------
        TypeError, ValueError
            Tensors that are not parameters of one group; on a GPU; that have made different numbers of steps.

        Notes
        -----
        For loops of one forward and one backward pass a step: a second backward pass before the next forward
        pass is an error, and gradients cannot be added up, clipped or inspected. Outputs are summed or
        averaged over the trees. The result is that of `step` to rounding (`aggregate` of "sum" or "mean").

        Examples
        --------
        >>> import torch, hforest.torch
        >>> t = torch.nn.Parameter(torch.zeros(1, 1)); f = torch.zeros(1, 1, dtype=torch.int32)
        >>> w = torch.nn.Parameter(torch.ones(1, 2))
        >>> optimizer = hforest.torch.RowAdam([t, w], lr=0.5)
        >>> optimizer.step_in_backward(t, w)
        >>> hforest.torch.hinge_tree(torch.tensor([[2.0]]), t, f, w).sum().backward()
        >>> optimizer.flush(); w.tolist(), w.grad
        ([[1.0, 0.5]], None)
        """
        groups = [
            g for p in (thresholds, weights) for g in self.param_groups if any(p is q for q in g["params"])
        ]
        if len(groups) != 2 or groups[0] is not groups[1]:
            raise ValueError(
                "thresholds: expected parameters of one group of this optimiser, got tensors of "
                f"{'two groups' if len(groups) == 2 else 'another one'}; pass a module's own "
                "thresholds and weights"
            )
        if not (
            thresholds.is_cpu and weights.is_cpu and thresholds.is_contiguous() and weights.is_contiguous()
        ):
            raise ValueError(
                "weights: expected contiguous parameters on the CPU, got others; use step, which moves any"
            )
        pair = (thresholds, weights)
        for p in pair:
            self.take_missed_steps(p)
        states = (self._state(thresholds), self._state(weights))
        if not on:
            for state in states:
                state.pop("forest", None)
            for name in ("last", "missed", "moved"):
                states[0].pop(name, None)
            return
        if states[0]["step"] != states[1]["step"]:
            raise ValueError(
                f"thresholds: expected as many steps as the weights', {states[1]['step']}, got "
                f"{states[0]['step']}; call step_in_backward before the first step"
            )
        forest = FusedForest(thresholds, weights, states, groups[0])
        for p, state in zip(pair, states, strict=True):
            n_rows = math.prod(p.shape[:2])
            state["last"] = torch.full((n_rows,), state["step"], dtype=torch.int64)
            state["missed"], state["moved"], state["forest"] = settings_of(groups[0]), False, forest
        owners.register(weights, self)

    def flush(self) -> None:
        """Takes the missed steps of all rows of all tables.

        Call it before code other than `hforest.torch` reads or writes parameters: before a model is saved,
        copied or loaded. Cost: a few dense steps for rows with missed steps, one reading of the table for the
        others.
        """
        for group in self.param_groups:
            for p in group["params"]:
                self.take_missed_steps(p)

    # -------------------------------------------------------------------------------- state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for p, kept in self.state.items():
            if (
                isinstance(p, Tensor)
                and "missed" in kept
                and ("forest" not in kept or kept["forest"].weights is p)
            ):  # a copy whose tables have missed steps
                owners.register(p, self)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state with all missed steps taken; `torch.optim.Adam` can load it.

        Returns
        -------
        dict
            `state`: for each parameter step (an int), exp_avg and exp_avg_sq. `param_groups`: settings.

        Notes
        -----
        Calls `flush()`, so that the parameters fit to it, those of a `model.state_dict()` taken before it
        included (its tensors share the model's memory), but not those of a file written before it. A run that
        goes on after it and one that is resumed from it have the same bits.
        """
        self.flush()
        whole = super().state_dict()
        for key, state in whole["state"].items():
            kept = {name: value for name, value in state.items() if name in ("step", *_MOMENTS)}
            whole["state"][key] = kept
        for group in whole["param_groups"]:
            group.update(_OF_ADAM)
        return whole

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a state: one of `state_dict()`, or one of `torch.optim.Adam`.

        Load the model's parameters first.

        Parameters
        ----------
        state_dict : dict
            Its tensors are copied.

        Raises
        ------
        TypeError, ValueError
            Another form, other parameters, settings out of range; Adam with weight decay, AMSGrad or
            maximisation.
        """
        for group in state_dict["param_groups"]:
            for name in _REFUSED:
                if group.get(name):
                    raise ValueError(
                        f"state_dict: expected {name}=0, which RowAdam does not have, got {group[name]}; "
                        "load it into torch.optim.Adam"
                    )
        states = {}
        for key, state in state_dict["state"].items():
            states[key] = {"step": int(state["step"])} | {name: state[name].clone() for name in _MOMENTS}
        groups = [{k: v for k, v in g.items() if k not in _OF_ADAM} for g in state_dict["param_groups"]]
        forests = {id(s["forest"]): s["forest"] for s in self.state.values() if "forest" in s}
        super().load_state_dict({"state": states, "param_groups": groups})
        for forest in forests.values():
            self.step_in_backward(forest.thresholds, forest.weights)
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
