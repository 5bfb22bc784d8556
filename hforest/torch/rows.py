"""Leaf tables that miss steps of Adam: the layer of a table takes the steps before the table is read."""

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import hforest

from .. import hinge, optim
from .cuda import as_array, stream_of
from .library import Layer, array, disable_compiler, untraced

Settings = tuple[float, float, float, float, float]
"""lr, beta1, beta2, eps, weight_decay."""

MOMENTS = ("exp_avg", "exp_avg_sq")

_LOCK = threading.RLock()
"""Held while rows move. A fork waits for it: the child has whole steps, and no lock that nobody releases."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)

_layers: "weakref.WeakSet[TableLayer]" = weakref.WeakSet()
_open: "weakref.WeakSet[Missed]" = weakref.WeakSet()


class Missed:
    """Steps that rows of a table missed. Its layers and its optimiser hold it until all rows have taken them.

    Parameters
    ----------
    table : (n_trees, n_leaves, *outputs) Tensor
        Contiguous leaf weights.
    state : dict
        step, exp_avg and exp_avg_sq of the optimiser, which its later steps update.
    settings : (lr, beta1, beta2, eps, weight_decay)
        Settings of the missed steps.
    """

    def __init__(self, table: Tensor, state: dict[str, Any], settings: Settings) -> None:
        self.table, self.state, self.settings, self.closed = table, state, settings, False
        n_rows = table.shape[0] * table.shape[1]
        self.last = torch.full((n_rows,), state["step"], dtype=torch.int64, device=table.device)
        self._places: list[int] = []
        self._arrays: list[Any] = []
        _open.add(self)

    def _memory(self) -> list[Any]:
        # Table and moments as (n_rows, n_values) arrays, and the last step of each row. They are kept, since
        # modes and transforms of PyTorch give none.
        tensors = [self.table, *(self.state[name] for name in MOMENTS), self.last]
        places = [t.data_ptr() for t in tensors]
        if places != self._places:
            if not untraced():
                raise RuntimeError(
                    "params: expected a table that stays at its address, got one that moved during tracing "
                    "or a transform; call optimizer.flush() first"
                )
            self._arrays = [as_array(t.detach()).reshape(len(self.last), -1) for t in tensors[:3]]
            self._arrays.append(as_array(self.last))
            self._places = places
        return self._arrays

    def _constants(self) -> tuple[float, dict[str, float]]:
        lr, beta1, beta2, eps, weight_decay = self.settings
        return lr, {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}

    def step(self, rows: Any, grad: Any) -> None:
        """Takes one step for rows with gradients (n_rows, *outputs); the others miss it."""
        with _LOCK:
            step, (lr, constants) = self.state["step"] + 1, self._constants()
            table, m, v, last = self._memory()
            grad = grad.reshape(len(rows), table.shape[1])
            optim.adam_rows(table, rows, grad, m, v, last, step, lr, **constants)
            self.state["step"] = step

    def take(self, rows: Any = None) -> None:
        """Takes the missed steps of rows, an ascending array of int64, or of all rows."""
        with _LOCK, stream_of(self.table):
            if not self.closed:
                (table, m, v, last), (lr, constants) = self._memory(), self._constants()
                optim.adam_catch_up(table, m, v, last, self.state["step"], lr, rows=rows, **constants)

    @disable_compiler
    def close(self) -> None:
        """Takes the missed steps of all rows. A later step of rows needs a new object."""
        with _LOCK:
            self.take()
            self.closed = True
            _open.discard(self)


def missed_steps() -> dict[Tensor, Missed]:
    """Returns the tables that have missed steps."""
    return {missed.table: missed for missed in list(_open)}


def attach(table: Tensor, state: dict[str, Any], settings: Settings) -> Missed:
    """Returns an object for the steps that rows of a table miss from now on, which its layers take."""
    layers = [layer for layer in list(_layers) if layer.table is table]
    if not layers:
        raise ValueError(
            "params: expected weights of a layer of hforest.torch for a sparse gradient, got a tensor of "
            f"shape {tuple(table.shape)} that belongs to none; use HingeForest(sparse=True), a dense "
            "gradient (sparse=False), or torch.optim.SparseAdam"
        )
    if not table.is_contiguous():
        raise ValueError(
            f"params: expected a contiguous parameter for a sparse gradient, got strides {table.stride()}; "
            "create it with .contiguous()"
        )
    missed = Missed(table, state, settings)
    for layer in layers:
        layer.missed = missed
    return missed


class TableLayer(Layer):
    """Base class of the layers whose `weights` may miss steps. All that reads them takes the steps first."""

    missed: Missed | None = None

    def __init__(self) -> None:
        super().__init__()
        _layers.add(self)

    @property
    def table(self) -> Any:
        """The parameter `weights` as it is, or None where something else replaces it (`torch.nn.utils`)."""
        try:
            return super().__getattr__("weights")
        except AttributeError:
            return None

    @property
    def weights(self) -> nn.Parameter:
        # Leaf weights, with the steps of all rows taken. The layers describe them.
        self.take_missed_steps()
        replaced = self.__dict__.get("weights")  # by a tensor of torch.nn.utils.prune, FSDP, ...
        weights: Any = super().__getattr__("weights") if replaced is None else replaced
        return weights

    @weights.setter
    def weights(self, value: Any) -> None:
        self.__dict__["weights"] = value

    @weights.deleter
    def weights(self) -> None:
        del self.__dict__["weights"]

    def take_missed_steps(self) -> None:
        """Takes the steps of `RowAdam` that rows of `weights` missed."""
        missed, self.missed = self.missed, None
        if missed is not None:
            missed.close()

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Adds a parameter; see `torch.nn.Module`."""
        if name == "weights" and param is not None and param in (tables := missed_steps()):
            tables[param].close()
        super().register_parameter(name, param)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Returns names and parameters; see `torch.nn.Module`."""
        self.take_missed_steps()
        return super().named_parameters(prefix, recurse, remove_duplicate)

    def named_modules(self, memo: Any = None, prefix: str = "", remove_duplicate: bool = True) -> Any:
        """Returns names and modules; see `torch.nn.Module`. Parameters of an outer module are read by it."""
        self.take_missed_steps()
        return super().named_modules(memo, prefix, remove_duplicate)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        self.take_missed_steps()
        return super()._apply(fn, recurse)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        self.take_missed_steps()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def __getstate__(self) -> dict[str, Any]:
        self.take_missed_steps()
        return {**self.__dict__, "missed": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        _layers.add(self)


def forward(
    run: Any, x: Tensor, thresholds: Tensor, features: Tensor, weights: Tensor, variant: dict[str, Any],
    missed: Missed | None,
) -> Any:  # fmt: skip
    """Returns the result of `hinge.forward` or `forward_with_route` for CPU tensors.

    With `missed`, routes samples, takes the missed steps of the rows that the batch reads, then sums the
    rows. The result is bit-identical to that of the plain function after `RowAdam.flush()`.
    """
    arrays = array("x", x), array("thresholds", thresholds), array("features", features)
    w = array("weights", weights)
    n_trees, n_leaves = w.shape[:2]
    depths = {"tree": n_leaves - 1, "fern": n_leaves.bit_length() - 1}
    if missed is not None and thresholds.shape != (n_trees, depths.get(variant["kind"])):
        missed.close()  # an error
    if missed is None or missed.closed:
        return run(*arrays, w, **variant)
    route = hinge.traverse(*arrays, **{name: word for name, word in variant.items() if name != "aggregate"})
    with hforest.unchecked():  # rows that leaves give are right
        missed.take(hinge.leaf_rows(route.leaf.reshape(-1, n_trees), n_leaves))
    y = hinge.leaf_outputs(route.leaf, route.margin, w, aggregate=variant["aggregate"])
    return y if run is hinge.forward else (y, route)
