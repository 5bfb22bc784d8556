"""One protocol for reports of progress: ``progress(done, total)``.

Values of the argument `progress`, and their effect:

=====================  =======================================================================================
None, False            nothing
True                   shows a bar (tqdm's where it is installed, else a line on stderr at most once a second)
                       that ends at what was reached, also where work stops early
a function             calls ``progress(done, total)`` after every unit of work; if it returns False, the
                       work stops and what is finished is returned
=====================  =======================================================================================

A function with other arguments is refused before the work begins. A function without a readable signature,
such as the type int, is called; its exception ends the work.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from . import check
from .aliases import Progress

Report = Callable[[int], bool]
"""A function report(done), which returns whether to continue."""

_LINE_SECONDS = 1.0


def check_progress(progress: Progress) -> None:
    """Checks that `progress` is None, a bool or a function to be called with (done, total)."""
    if progress is None or isinstance(progress, bool | np.bool_):
        return
    remedy = "pass True for a bar, or a function of (done, total)"
    check.instance("progress", progress, Callable, "None, True or a function", remedy)
    check.called_with("progress", progress, "done, total", remedy)


@contextmanager
def reporting(progress: Progress, total: int, unit: str) -> Iterator[Report]:
    """Yields the function that a loop calls with the number of finished units; it returns False to stop.

    `unit` is the word next to the bar, such as "tree". Raises TypeError as `check_progress`.
    """
    check_progress(progress)
    if callable(progress):
        function = progress
        yield lambda done: not _is_false(function(done, total))
    elif progress:
        with _bar(total, unit) as report:
            yield report
    else:
        yield unheard


def unheard(done: int) -> bool:
    """Returns True: the report of a call without progress."""
    return True


def _is_false(answer: object) -> bool:
    return isinstance(answer, bool | np.bool_) and not answer


@contextmanager
def _bar(total: int, unit: str) -> Iterator[Report]:
    """Yields the report of a bar; work that stops early makes what it reached the total."""
    try:
        from tqdm import tqdm
    except ImportError:
        yield from _lines(total, unit)
        return
    with tqdm(total=total, unit=unit) as bar:

        def report(done: int) -> bool:
            bar.update(done - bar.n)
            return True

        yield report
        bar.total = bar.n  # closing the bar shows it


def _lines(total: int, unit: str) -> Iterator[Report]:
    reached, written, shown = 0, 0, time.perf_counter()

    def write() -> None:
        nonlocal written
        written = reached
        print(f"{unit} {reached} of {total}", file=sys.stderr, flush=True)

    def report(done: int) -> bool:
        nonlocal reached, shown
        reached, now = done, time.perf_counter()
        if done == total or now - shown >= _LINE_SECONDS:
            shown = now
            write()
        return True

    yield report
    if written < reached:
        write()
