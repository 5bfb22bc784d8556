"""State machine that distributes ranges of trees among the workers of an executor.

The driver does not know which worker takes a task, nor how many there are:

    task without samples --> the worker has them: grows the range, and is done
                         --> it lacks them: says so at once; the range waits, the worker is counted as lacking
    task with samples    --> whatever worker takes it: keeps them, grows the range, and is done

At most as many tasks carry samples at a time as workers are known to lack them, so that samples are shipped
about once a worker.
"""

import uuid
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from heapq import heappop, heappush
from typing import Any

from ...core import check
from ...core.aliases import Rng
from ...core.progress import Report
from ...tree import Forest
from .worker import Answer, Range, Samples, forget, grow_range

SUCH_AS = "pass a function such as hforest.grow"
"""Remedy if a function does not grow forests."""

_OF_ARGUMENTS = (TypeError, ValueError, IndexError)
"""Errors about arguments, which another worker would raise in the same way."""


class Driver:
    """Ranges of trees that have grown, are running or are waiting."""

    def __init__(
        self, executor: Any, samples: Samples, grow: Callable[..., Any], ranges: Sequence[Range], rng: Rng,
        retries: int,
    ) -> None:  # fmt: skip
        self._executor, self._samples, self._grow, self._rng = executor, samples, grow, rng
        self._key = uuid.uuid4().hex
        self._ranges, self._retries = ranges, retries
        self._forests: list[Forest | None] = [None] * len(ranges)
        self._n_failures = [0] * len(ranges)
        self._waiting = list(range(len(ranges)))  # a heap: first trees first
        self._running: dict[Future[Answer], tuple[int, bool]] = {}
        """Number of the range, and whether the task carries the samples."""
        self._lacking: set[str] = set()
        """Workers that have said that they lack the samples."""
        self._unknown = True
        """Whether no worker is known to lack or to have the samples."""
        self._have_some = False
        """Whether some worker is known to have the samples."""

    def run(self, report: Report) -> list[Forest]:
        """Returns the forests of the ranges in order; if `report` ends the growth, those of the first ranges.

        `report` receives the number of finished trees before the first unfinished one.
        """
        n_leading = n_trees = 0
        try:
            while n_leading < len(self._ranges):
                self._submit()
                self._collect_finished()
                before = n_leading
                while n_leading < len(self._ranges) and self._forests[n_leading] is not None:
                    n_trees += self._ranges[n_leading].n_trees
                    n_leading += 1
                if n_leading > before and not report(n_trees):
                    break
        finally:
            for future in self._running:
                future.cancel()
            self._running.clear()
            forget(self._key)  # a thread of this process may have kept the samples
        return [forest for forest in self._forests[:n_leading] if forest is not None]

    def _submit(self) -> None:
        """Submits the tasks that may make progress, by the rules in the docstring of this file."""
        n_carrying = sum(carries for _, carries in self._running.values())
        while self._waiting and n_carrying < len(self._lacking):
            self._submit_range(heappop(self._waiting), True)
            n_carrying += 1
        # Until a worker has the samples, a single task looks for further workers that lack them.
        alone = len(self._running) == n_carrying
        while self._waiting and (self._unknown or self._have_some or alone):
            self._submit_range(heappop(self._waiting), False)
            alone = False

    def _submit_range(self, number: int, carries: bool) -> None:
        trees, samples = self._ranges[number], self._samples if carries else None
        task = grow_range, self._key, samples, self._grow, trees, self._rng
        try:
            with warnings.catch_warnings():
                # Dask advises to scatter large arrays; these are sent about once per worker anyway.
                warnings.filterwarnings("ignore", message="Sending large graph")
                future = self._executor.submit(*task)
        except Exception as error:  # an executor that takes no more tasks raises errors of different types
            raise _lost(trees, error) from error
        check.instance(
            "executor", future, Future, "a method submit that returns a concurrent.futures.Future",
            "pass an executor such as concurrent.futures.ProcessPoolExecutor() or client.get_executor() of "
            "Dask",
        )  # fmt: skip
        self._running[future] = number, carries
        del future  # an error of the task refers to this frame, and would be in a cycle

    def _collect_finished(self) -> None:
        """Waits until a task finishes, and collects all finished tasks; raises if a range cannot grow."""
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        finished = sorted((*self._running.pop(future), future) for future in done)
        del done
        future: Future[Answer] | None = None  # a signal may end the loop before it begins
        try:
            while finished:
                number, _, future = finished.pop(0)
                self._collect(number, future)
        finally:
            del finished, future  # otherwise an error would refer to a future that refers to the error

    def _collect(self, number: int, future: Future[Answer]) -> None:
        trees = self._ranges[number]
        error: BaseException | None
        try:
            error = future.exception()
        except CancelledError as cancelled:
            error = cancelled
        try:
            if isinstance(error, _OF_ARGUMENTS):
                raise error
            if error is not None:  # the worker died, ended, was interrupted, or has no memory
                self._n_failures[number] += 1
                self._lacking.clear()  # the one that died may be among them
                self._have_some, self._unknown = False, True
                if self._n_failures[number] > self._retries:
                    raise _lost(trees, error) from error
                heappush(self._waiting, number)
                return
            worker, forest = future.result()
        finally:
            del future, error
        self._unknown = False
        if forest is None:
            self._lacking.add(worker)
            heappush(self._waiting, number)
            return
        _check_forest(forest, trees)
        self._lacking.discard(worker)
        self._have_some = True
        self._forests[number] = forest


def _lost(trees: Range, error: BaseException) -> RuntimeError:
    cause = f"{type(error).__name__}: {error}".rstrip(": ")
    return RuntimeError(
        f"executor: expected workers that grow {trees}, got {cause}; check that workers have enough memory "
        "and all modules (a script starts them below if __name__ == '__main__'), start new workers, and call "
        "again"
    )


def _check_forest(forest: Any, trees: Range) -> None:
    function, kind = "a function that returns", f"a {type(forest).__name__}"
    is_forest = isinstance(forest, Forest)
    check.require(is_forest, "grow", f"{function} a hforest.tree.Forest", kind, SUCH_AS, TypeError)
    n_trees = forest.tree_start.size - 1
    right = n_trees == trees.n_trees
    check.require(right, "grow", f"{function} n_trees = {trees.n_trees} trees", n_trees, SUCH_AS)
