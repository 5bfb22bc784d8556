"""polars, which reads files and text, in threads beside that of the caller.

polars loses exceptions of signal handlers that run inside of its functions. Python runs handlers in the main
thread only, so `each` and `aside` call these functions in other threads, while the main thread waits. A
forked child lacks polars' threads, for which polars would wait for ever: there, `polars` raises an error.
"""

import atexit
import os
import re
import sys
import threading
import time
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import copy_context
from functools import wraps
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..core import extras

P = ParamSpec("P")
T = TypeVar("T")

# ---------------------------------------------------------------------------------------- processes

_started = False
"""Whether polars' threads run in this process, or ran in the one that forked it."""
_forked = False
"""Whether this process was forked while they ran."""


def _before_fork() -> None:
    """Notes whether polars' threads run, also if other code than hforest started them."""
    global _started
    if "polars" not in sys.modules or _started or not os.path.isdir("/proc/self/task"):
        return
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError), open(f"/proc/self/task/{task}/comm") as name:
            _started |= re.match(r"polars-\d", name.read()) is not None


def _after_fork() -> None:
    global _forked
    _forked = _started
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def polars(name: str) -> Any:
    """Returns the module polars; ImportError names the extra that installs it.

    RuntimeError in a process that was forked after polars had started threads.
    """
    global _started
    if _forked:
        raise RuntimeError(
            f"{name}: expected a process in which polars can run, got one that was forked while the threads "
            'of polars ran; start processes by "spawn" or "forkserver", or before the first table is read'
        )
    try:
        import polars
    except ImportError:
        raise extras.missing(name, "polars 1.0 or newer to read text", "tables") from None
    _started = True
    return polars


def is_failure(error: BaseException) -> bool:
    """Returns whether an error is one of a library, and no interrupt; the panic of polars is no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


# ------------------------------------------------------------------------------------------ threads

_running: set[int] = set()
"""Threads of `each` that have not ended."""


@atexit.register
def _wait() -> None:
    """Waits for threads that an interrupt left behind: Python cannot end them inside of polars."""
    while _running:
        time.sleep(0.001)


def each(function: Callable[[Any], T], items: Iterable[Any], n_threads: int = 1) -> list[T]:
    """Returns `function` of each item, in their order, computed in other threads than the main one.

    An exception of a signal handler is raised at once; the threads then end after their current item.
    """
    if n_threads == 1 and threading.get_ident() != threading.main_thread().ident:
        return list(map(function, items))
    places = list(enumerate(items))
    todo, done = deque(places), SimpleQueue[Any]()

    def work() -> None:
        _running.add(threading.get_ident())
        with suppress(IndexError):
            while True:
                i, item = todo.popleft()
                try:
                    done.put((i, function(item), None))
                except BaseException as error:
                    done.put((i, None, error))
        _running.discard(threading.get_ident())

    found: list[Any] = [None] * len(places)
    result = error = None
    try:
        # No Thread or Event: an exception of a handler inside of their methods would leave them locked.
        for _ in range(min(n_threads, len(places))):
            start_new_thread(copy_context().run, (work,))
        for _ in places:
            result = None
            while result is None:
                with suppress(Empty):  # in a wait without an end no handler runs on Windows
                    result = done.get(timeout=0.1)
            i, found[i], error = result
            if error is not None:
                raise error
        return found
    finally:
        todo.clear()
        result = error = None  # the traceback of an error has this frame


def aside(function: Callable[P, T]) -> Callable[P, T]:
    """Returns a function that computes `function` as `each` does."""

    @wraps(function)
    def call(*args: P.args, **settings: P.kwargs) -> T:
        return each(lambda _: function(*args, **settings), [None])[0]

    return call


# -------------------------------------------------------------------------------------------- cells

HEAD = 10_000
"""Number of first rows that decide whether a column of text is stored as places in its texts."""
MAX_LEVELS = 0.1
"""Maximum number of different texts per row in such a column."""


def is_repeated(texts: Any) -> bool:
    """Returns whether the first texts of a column are few."""
    head = texts[:HEAD]
    return bool(head.n_unique() <= MAX_LEVELS * len(head))


def distinct(texts: Any, *, always: bool = False) -> tuple[Any, Any, np.ndarray]:
    """Returns different texts of a column of String or Categorical, their places, and numbers of rows.

    The texts are in order of first occurrence, then null; a place (n_rows,) for each row. If the texts are
    many, and not `always`: the column itself, a slice of all rows, and ones.
    """
    pl = polars("text")
    if texts.dtype == pl.String and not (always or is_repeated(texts)):
        return texts, slice(None), np.ones(len(texts), np.int64)
    a = texts.cast(pl.Categorical)
    levels = a.unique(maintain_order=True).drop_nulls()
    n, codes = len(levels), levels.to_physical().to_numpy()
    place = np.full(int(codes.max(initial=0)) + 2, n)
    place[codes] = np.arange(n)
    places = place[a.to_physical().fill_null(len(place) - 1).to_numpy()]
    names = pl.concat([levels.cast(pl.String), pl.Series(levels.name, [None], pl.String)])
    return names, places, np.bincount(places, minlength=n + 1)
