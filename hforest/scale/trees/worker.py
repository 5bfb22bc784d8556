"""Functions that a worker runs: it keeps the samples of the last call, and grows ranges of trees on them."""

import os
import socket
import threading
from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

from ...core.aliases import Array, Rng


class Samples(NamedTuple):
    """Arguments that all ranges of trees share; a worker receives them once."""

    x: Any
    y: Any


class Range(NamedTuple):
    """Trees first, ..., first + n_trees - 1."""

    first: int
    n_trees: int
    counts: Array | None
    """(n_trees, n_samples) in-bag counts, or None if the caller passed none."""

    def __str__(self) -> str:
        return f"trees {self.first} to {self.first + self.n_trees - 1}"


class Answer(NamedTuple):
    """Result of a worker for a range."""

    worker: str
    """Name of the process."""
    forest: Any
    """Result of the caller's function; None if the worker has no samples yet."""


_held: dict[str, Samples] = {}
"""The samples of one call, by its key."""
_lock = threading.Lock()


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)  # another thread of the parent may have held it


def _hold(key: str, samples: Samples | None) -> Samples | None:
    """Returns the samples of a call, or None if there are none; they replace the samples of the last call."""
    with _lock:
        if key not in _held and samples is not None:
            _held.clear()
            _held[key] = samples
        return _held.get(key)


def forget(key: str) -> None:
    """Drops the samples of a call from this process."""
    with _lock:
        _held.pop(key, None)


def grow_range(key: str, samples: Samples | None, grow: Callable[..., Any], trees: Range, rng: Rng) -> Answer:
    """Returns the trees of a range; `samples` is None if this worker is expected to have those of the key."""
    worker = f"{socket.gethostname()}:{os.getpid()}"
    samples = _hold(key, samples)
    if samples is None:
        return Answer(worker, None)
    counts = {} if trees.counts is None else {"bootstrap": trees.counts}
    rng = deepcopy(rng)  # threads share a Generator, which the function advances
    forest = grow(samples.x, samples.y, n_trees=trees.n_trees, first_tree=trees.first, rng=rng, **counts)
    return Answer(worker, forest)
