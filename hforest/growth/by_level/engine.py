"""How a state machine reaches the parts of the samples."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ...core.aliases import Array

Handle = Any
"""A value of each part, which stays where the part is."""


class Engine(Protocol):
    """Calls functions of parts. `collect`, `total` and `exchange` raise the errors of all parts."""

    n_tasks: int
    """How many tasks of one kind run beside each other."""

    def map(
        self, function: Callable[..., Any], handles: Sequence[Handle], *args: Any, each: Sequence[Any] = ()
    ) -> Handle:
        """Returns the values function(*values of the part, *args), which stay where they are.

        each: a last argument for each part.
        """
        ...

    def collect(
        self, function: Callable[..., Any], handles: Sequence[Handle], *args: Any, each: Sequence[Any] = ()
    ) -> list[Any]:
        """Returns what the parts' calls return, in the order of parts."""
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
        """Returns receive([send(*values of the part, item) of each part], *args) of each item."""
        ...

    def agree(self, go_on: Callable[[], bool]) -> bool:
        """Returns whether go_on() is True for all state machines; raises what it raises for one of them."""
        ...
