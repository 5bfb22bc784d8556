"""Leaf tables with missed steps of Adam: who owns them; forward calls that take the steps first."""

import threading
import weakref
from collections.abc import Callable
from typing import Any, Literal, Protocol

from torch import Tensor

from .. import hinge

Kind = Literal["tree", "fern"]


class Owner(Protocol):
    """An optimiser that moves rows of a table when they are next read."""

    def take_missed_steps(self, table: Tensor) -> None:
        """Brings all rows to the optimiser's last step."""

    def _catch_up_leaves(self, table: Tensor, leaf: Any) -> None:
        """Brings the rows that leaves (n_samples, n_trees) reach to the optimiser's last step."""

    def _fused(self, table: Tensor) -> Any | None:
        """Returns the forest that the backward pass moves, whose leaf weights the table is, or None."""


# By the address of the first element, which an array of a table has, whatever tensor it comes from.
_owners: dict[int, tuple[weakref.ref[Any], weakref.ref[Tensor]]] = {}
_lock = threading.RLock()


def _address(a: Any) -> int:
    try:
        return int(a.__array_interface__["data"][0])
    except AttributeError:  # CuPy's arrays
        return int(a.data.ptr)


def _owner(address: int, shape: tuple[int, ...]) -> tuple[Any, Tensor] | None:
    # The optimiser and its own tensor of a table; forgets tensors that have gone or have moved.
    entry = _owners.get(address)
    if entry is None:
        return None
    optimizer, table = entry[0](), entry[1]()
    if optimizer is None or table is None or table.data_ptr() != address:
        _owners.pop(address, None)
        return None
    return (optimizer, table) if tuple(table.shape) == shape else None


def fused(weights: Tensor) -> Any | None:
    """Returns the forest with these leaf weights that an optimiser moves in the backward pass, or None."""
    if not _owners or not weights.is_cpu:
        return None
    found = _owner(weights.data_ptr(), tuple(weights.shape))
    return None if found is None else found[0]._fused(found[1])


def register(table: Tensor, owner: Owner) -> None:
    """Makes `owner` the optimiser of a table; a former one takes the missed steps of all rows first."""
    with _lock:
        found = _owner(table.data_ptr(), tuple(table.shape))
        if found is not None and found[0] is owner and found[1] is table:
            return
        if found is not None and found[0] is not owner:
            found[0].take_missed_steps(found[1])
        _owners[table.data_ptr()] = weakref.ref(owner), weakref.ref(table)


def forward(kind: Kind) -> Callable[..., Any]:
    """Returns `hinge.tree_forward` or `fern_forward` for weights of any owner.

    Where an optimiser owns the weights, the function routes, lets the optimiser take the missed steps of the
    rows that the batch reads, and then adds the rows: the same bits as the plain function on weights whose
    steps are taken.
    """
    plain: Any = hinge.tree_forward if kind == "tree" else hinge.fern_forward
    traverse: Any = hinge.tree_traverse if kind == "tree" else hinge.fern_traverse

    def call(
        x: Any,
        thresholds: Any,
        features: Any,
        weights: Any,
        *,
        aggregate: Literal["sum", "mean"] | None = None,
        return_route: bool = False,
    ) -> Any:
        if _owners:
            with _lock:
                found = _owner(_address(weights), weights.shape)
                if found is not None:
                    if found[0]._fused(found[1]) is not None:  # its thresholds may have missed steps too
                        found[0].take_missed_steps(found[1])
                        return plain(
                            x, thresholds, features, weights, aggregate=aggregate, return_route=return_route
                        )
                    route = traverse(x, thresholds, features)
                    found[0]._catch_up_leaves(found[1], route.leaf)
                    y = hinge.leaf_outputs(route.leaf, route.margin, weights, aggregate=aggregate)
                    return (y, route) if return_route else y
        return plain(x, thresholds, features, weights, aggregate=aggregate, return_route=return_route)

    return call
