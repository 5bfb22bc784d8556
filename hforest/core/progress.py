"""One protocol for reports of progress: ``progress(done, total)``.

What a function with the argument `progress` does with it:

=====================  =======================================================================================
None, False            nothing
True                   shows a bar (tqdm's where it is installed, else a line on stderr at most once a second)
a function             calls ``progress(done, total)`` after every unit of work; when it returns False, the
                       work stops and what is finished is returned
=====================  =======================================================================================
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from . import check
from .aliases import Progress

Report = Callable[[int], bool]
"""report(done) -> whether to go on."""

_LINE_SECONDS = 1.0


@contextmanager
def reporting(progress: Progress, total: int, unit: str) -> Iterator[Report]:
    """Yields the function that a loop calls with the number of finished units; False means stop.

    `unit` is the word beside the bar, such as "tree". Raises TypeError for a `progress` that is no function.
    """
    check.progress(progress)
    if callable(progress):
        function = progress
        yield lambda done: not _is_false(function(done, total))
    elif progress:
        with _bar(total, unit) as report:
            yield report
    else:
        yield lambda done: True


def _is_false(answer: object) -> bool:
    return isinstance(answer, bool | np.bool_) and not answer


@contextmanager
def _bar(total: int, unit: str) -> Iterator[Report]:
    try:
        from tqdm import tqdm
    except ImportError:
        yield _lines(total, unit)
        return
    with tqdm(total=total, unit=unit) as bar:

        def report(done: int) -> bool:
            bar.update(done - bar.n)
            return True

        yield report


def _lines(total: int, unit: str) -> Report:
    shown = time.perf_counter()

    def report(done: int) -> bool:
        nonlocal shown
        now = time.perf_counter()
        if done == total or now - shown >= _LINE_SECONDS:
            shown = now
            print(f"{unit} {done} of {total}", file=sys.stderr, flush=True)
        return True

    return report
