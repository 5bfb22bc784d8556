"""Interface by which a state machine reaches the parts of the samples."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ...core.aliases import Array

Handle = Any
"""A value of each part, which stays with the part."""


class Engine(Protocol):
    """Calls functions of parts; `collect`, `total` and `exchange` raise the errors of all parts."""

    n_tasks: int
    """Number of tasks of one kind that run in parallel."""

    def map(
        self, function: Callable[..., Any], handles: Sequence[Handle], *args: Any, each: Sequence[Any] = ()
    ) -> Handle:
        """Returns a handle of the values function(*values of the part, *args), which stay with their parts.

        each: a last argument for each part.
        """
        ...

    def collect(
        self, function: Callable[..., Any], handles: Sequence[Handle], *args: Any, each: Sequence[Any] = ()
    ) -> list[Any]:
        """Returns the results of the parts' calls, in the order of parts."""
        ...

    def total(
        self,
        function: Callable[..., Array],
        handles: Sequence[Handle],
        *args: Any,
        shape: tuple[int, ...],
        dtype: np.dtype,
    ) -> Array:
        """Returns the sum of the arrays of integers that the parts' calls return."""
        ...

    def exchange(
        self,
        send: Callable[..., Any],
        handles: Sequence[Handle],
        items: Sequence[Any],
        receive: Callable[..., Any],
        args: Sequence[tuple[Any, ...]],
    ) -> list[Any]:
        """Returns receive([send(*values of the part, item) for each part], *args) for each item."""
        ...

    def agree(self, go_on: Callable[[], bool]) -> bool:
        """Returns whether go_on() is True for all state machines; raises the error of any of them."""
        ...
