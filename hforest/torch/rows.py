"""Tables with missed steps of Adam: the parameter holds the state, and every read takes the steps first.

While a table has missed steps, its class is `TableParameter` or `TableTensor` instead of Parameter or Tensor.
Functions of PyTorch that read or write it then call `__torch_function__` first, which takes the missed steps
of all rows and restores the class. Functions of this package take those of the rows that they read.
"""

import copy
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import hforest

from .. import hinge, optim
from .cuda import as_array, stream_of
from .library import Kind, array, disable_compiler, untraced

Settings = tuple[float, float, float, float, float]
"""lr, beta1, beta2, eps, weight_decay."""

MOMENTS = ("exp_avg", "exp_avg_sq")
UNWATCHED = torch._C.DisableTorchFunctionSubclass
"""Inside it functions of PyTorch take a table as it is."""

LOCK = threading.RLock()
"""Held while rows move. A fork waits for it: the child has whole steps, and no lock that nobody releases."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)

_ATTRIBUTE = "_hforest_missed"
_use_count = getattr(torch._C, "_storage_Use_Count", None)


class Memory:
    """Cached arrays that share the memory of tensors; modes and transforms of PyTorch do not see them."""

    def __init__(self) -> None:
        self._places: list[int] = []
        self._arrays: list[Any] = []

    def arrays(self, *tensors: Tensor) -> list[Any]:
        """Returns NumPy or CuPy arrays that share the tensors' memory."""
        places = [t.data_ptr() for t in tensors]
        if places == self._places:
            return self._arrays
        if not untraced():
            raise RuntimeError(
                "params: expected a table that stays at its address, got one that moved during tracing or "
                "a transform; call optimizer.flush() first"
            )
        arrays = [as_array(t) for t in tensors]
        if tensors[0].is_cpu:
            self._places, self._arrays = places, arrays
        return arrays


class Missed:
    """State from which the rows of a table take the steps that they missed.

    Parameters
    ----------
    table : Tensor
        Contiguous.
    state : dict
        step, exp_avg and exp_avg_sq of the optimiser, which its later steps update.
    n_rows : int
        Rows of the flattened sparse axes.
    settings : (lr, beta1, beta2, eps, weight_decay)
        Settings of the missed steps.
    forest : FusedForest, optional
        The forest whose backward pass takes the steps of the table.
    """

    def __init__(
        self, table: Tensor, state: dict[str, Any], n_rows: int, settings: Settings, forest: Any = None
    ) -> None:
        self.data = table.detach()  # the same memory, as a plain tensor
        self.state, self.settings, self.forest = state, settings, forest
        self.last = torch.full((n_rows,), state["step"], dtype=torch.int64, device=table.device)
        self._memory = Memory()
        # PyTorch refuses to swap the contents of tensors that have weak references.
        self.table = weakref.ref(table)

    def arrays(self) -> list[Any]:
        """Returns table and moments as (n_rows, n_values) arrays, and the last step of each row."""
        moments = (self.state[name] for name in MOMENTS)
        *tables, last = self._memory.arrays(self.data, *moments, self.last)
        return [*(a.reshape(len(last), -1) for a in tables), last]

    def step(self, rows: Any, grad: Any) -> None:
        """Takes one step for rows with gradients (n_rows, *values); the others miss it."""
        lr, beta1, beta2, eps, weight_decay = self.settings
        table, m, v, last = self.arrays()
        step = self.state["step"] + 1
        grad = grad.reshape(len(rows), *table.shape[1:])
        optim.adam_rows(
            table, rows, grad, m, v, last, step, lr,
            beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay,
        )  # fmt: skip
        self.state["step"] = step

    def take(self, rows: Any = None) -> None:
        """Takes the missed steps of rows, an ascending array of int64, or of all rows."""
        with LOCK:
            if self.forest is not None:
                self.forest.flush()
            elif self.state["step"]:
                lr, beta1, beta2, eps, weight_decay = self.settings
                with stream_of(self.data):
                    table, m, v, last = self.arrays()
                    optim.adam_catch_up(
                        table, m, v, last, self.state["step"], lr,
                        rows=rows, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay,
                    )  # fmt: skip


def fits(state: dict[str, Any], table: Tensor) -> None:
    """Checks that a state's moments are those of a table of this shape, dtype and device."""
    for name in MOMENTS:
        m = state[name]
        if (m.shape, m.dtype, m.device) != (table.shape, table.dtype, table.device):
            kind = TypeError if m.shape == table.shape else ValueError
            raise kind(
                f"params: expected {tuple(m.shape)} of {m.dtype} on {m.device} as at the last step, got "
                f"{tuple(table.shape)} of {table.dtype} on {table.device}; create a new optimiser, or load "
                "the "
                "state of this one with optimizer.load_state_dict(optimizer.state_dict()) after a cast"
            )


# ------------------------------------------------------------------------------------ what reads tables


class _Watched:
    __slots__ = ()

    @classmethod
    @disable_compiler
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _NO_READING or (func is nn.functional.embedding and _take_embedded(*args, **kwargs)):
            with UNWATCHED():
                return func(*args, **kwargs)
        tables = list(_tables((args, kwargs)))
        for t in tables:
            settle(t)
        moving = [t for t in tables if type(t) in CLASSES]
        if not moving:
            result = func(*args, **kwargs)
        else:
            with UNWATCHED():
                result = func(*args, **kwargs)
                _refresh(moving)
        if func is Tensor.detach and _makes_parameter(sys._getframe(1)):
            return Tensor._make_subclass(type(tables[0]), result)
        return result

    def __repr__(self) -> str:
        return repr(_released(self))

    def __deepcopy__(self, memo: Any) -> Tensor:
        return copy.deepcopy(_released(self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _released(self).__reduce_ex__(protocol)


class TableParameter(_Watched, nn.Parameter):
    """A Parameter with missed steps."""


class TableTensor(_Watched, Tensor):
    """A tensor with missed steps."""


CLASSES: dict[type, type] = {TableParameter: nn.Parameter, TableTensor: Tensor}
_TABLES: dict[type, type] = {plain: table for table, plain in CLASSES.items()} | {c: c for c in CLASSES}
_NO_READING = {
    Tensor.requires_grad_,
    Tensor.register_hook,
    Tensor.register_post_accumulate_grad_hook,
    *(
        getattr(getattr(Tensor, name), method)
        for name in ("grad", "requires_grad")
        for method in ("__get__", "__set__", "__delete__")
    ),
    *(getattr(Tensor, name).__get__ for name in ("is_leaf", "grad_fn", "shape", "dtype", "device", "layout")),
}


def _tables(a: Any) -> Iterator[Any]:
    # The tables among arguments.
    if type(a) in CLASSES:
        yield a
    elif isinstance(a, (list, tuple)):
        for b in a:
            yield from _tables(b)
    elif isinstance(a, dict):
        yield from _tables(list(a.values()))


def _makes_parameter(frame: Any, depth: int = 4) -> bool:
    # Whether the call is that of Parameter(table), which requires that detach() keeps the class.
    if frame is None or not depth:
        return False
    return frame.f_code is nn.Parameter.__new__.__code__ or _makes_parameter(frame.f_back, depth - 1)


def _refresh(tables: list[Tensor]) -> None:
    # After a function that may have given tables other memory.
    for t in tables:
        pending = missed(t)
        if pending is not None and _place(t) != _place(pending.data):
            pending.data = t.detach()
            pending.forest.data[pending.state is pending.forest.state[1]] = pending.data


def _place(t: Tensor) -> tuple[Any, ...]:
    return t.data_ptr(), t.shape, t.dtype, t.device


def _take_embedded(index: Tensor, weight: Tensor, *args: Any, max_norm: Any = None, **kwargs: Any) -> bool:
    # Whether the rows that torch.nn.functional.embedding reads alone have taken their steps.
    pending = missed(weight)
    if pending is None or pending.forest or args or max_norm is not None or type(index) is not Tensor:
        return False
    if not untraced():
        return False
    with torch.no_grad():
        rows = index.reshape(-1).long().unique()
    if len(pending.last) != len(pending.data) or (
        len(rows) and not 0 <= rows[0] <= rows[-1] < len(pending.last)
    ):
        return False
    pending.take(as_array(rows))
    return True


def _released(table: Any) -> Tensor:
    # A table with its steps taken, as an object of the plain class.
    settle(table)
    pending = missed(table)
    if pending is None:
        return table
    plain = pending.data.detach()
    plain = nn.Parameter(plain) if isinstance(table, nn.Parameter) else plain.requires_grad_()
    plain.__dict__.update((k, v) for k, v in table.__dict__.items() if k != _ATTRIBUTE)
    return plain.requires_grad_(table.requires_grad)


# ------------------------------------------------------------------------------------ state of a table


def missed(t: Any) -> Missed | None:
    """Returns the missed steps of a tensor, or None."""
    if type(t) not in CLASSES:
        return None
    pending: Missed | None = t.__dict__.get(_ATTRIBUTE)
    if pending is not None and pending.table() is t:
        return pending
    release(t)
    return None


def plain(t: Tensor) -> Tensor:
    """Returns a plain tensor that shares the memory, without taking missed steps."""
    pending = missed(t)
    return t if pending is None else pending.data


def attach(table: Tensor, pending: Missed) -> None:
    """Marks a table as having missed steps, which every read takes first."""
    table.__dict__[_ATTRIBUTE] = pending
    table.__class__ = _TABLES[type(table)]


def release(table: Tensor) -> None:
    """Restores the plain class of a table."""
    table.__class__ = CLASSES.get(type(table), type(table))
    table.__dict__.pop(_ATTRIBUTE, None)


def settle(t: Tensor) -> None:
    """Takes the missed steps of all rows; then the table is plain unless a backward pass updates it."""
    pending = missed(t)
    if pending is not None:
        with LOCK:
            pending.take()
            if pending.forest is None or pending.forest.owner() is None:
                release(t)


def may_miss(table: Tensor) -> bool:
    """Returns whether the class of a tensor allows reads to be intercepted."""
    return type(table) in _TABLES


def alone(data: Tensor) -> bool:
    """Returns whether no other tensor, array or process shares the memory `Missed.data`."""
    # The table, `Missed.data` and on the CPU the array in `Memory` hold it.
    return _owners(data) == _ONE + 1 + data.is_cpu and not (
        data.is_cpu and data.untyped_storage().is_shared()
    )


def _owners(t: Tensor) -> int:
    # Tensors and arrays that hold the memory.
    return -1 if _use_count is None else int(_use_count(t.untyped_storage()._cdata))


_ONE = _owners(torch.empty(1))
COUNTS = _use_count is not None
"""Whether this PyTorch counts what holds a tensor's memory. Without it rows never miss steps."""


# --------------------------------------------------------------------------------------- forward calls


def forest_of(thresholds: Tensor, weights: Tensor) -> Any:
    """Returns the forest of both parameters that the next backward pass updates, or None."""
    pending, other = missed(weights), missed(thresholds)
    if pending is None or other is None or pending.forest is None or pending.forest is not other.forest:
        return None
    return pending.forest.of(thresholds, weights)


def read_as(thresholds: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Returns plain tensors that share the memory; under a compiler the tensors themselves."""
    tables = type(thresholds) in CLASSES or type(weights) in CLASSES
    if tables and not torch.compiler.is_compiling():
        return plain(thresholds), plain(weights)
    return thresholds, weights


def forward(
    run: Any, x: Tensor, thresholds: Tensor, features: Tensor, weights: Tensor, variant: dict[str, Any]
) -> Any:
    """Returns the result of `hinge.forward` or `forward_with_route` for CPU tensors with missed steps.

    Routes samples, takes the missed steps of the rows that the batch reads, then sums the rows. The result is
    bit-identical to that of the plain function after `flush()`.
    """
    pending = None
    if type(thresholds) in CLASSES or type(weights) in CLASSES:
        settle(thresholds)
        pending = missed(weights)
        if pending is None or not _has_leaves(pending, variant["kind"], thresholds):
            settle(weights)
            pending = None
        thresholds, weights = plain(thresholds), plain(weights)
    arrays = array("x", x), array("thresholds", thresholds), array("features", features)
    if pending is None:
        return run(*arrays, array("weights", weights), **variant)
    route = hinge.traverse(*arrays, **{name: word for name, word in variant.items() if name != "aggregate"})
    n_trees, n_leaves = pending.data.shape[:2]
    with hforest.unchecked():  # rows that leaves give are right
        pending.take(hinge.leaf_rows(route.leaf.reshape(-1, n_trees), n_leaves))
    y = hinge.leaf_outputs(route.leaf, route.margin, pending.data.numpy(), aggregate=variant["aggregate"])
    return y if run is hinge.forward else (y, route)


def _has_leaves(pending: Missed, kind: Kind, thresholds: Tensor) -> bool:
    # Whether the rows of a table are the leaves of trees with these thresholds, and miss steps one by one.
    if pending.forest is not None or thresholds.ndim != 2:
        return False
    n_trees, n_vertices = thresholds.shape
    n_leaves = n_vertices + 1 if kind == "tree" else 1 << min(n_vertices, 31)
    return pending.data.shape[:2] == (n_trees, n_leaves) and len(pending.last) == n_trees * n_leaves
