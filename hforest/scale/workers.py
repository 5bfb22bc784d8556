"""The engine of workers that all run the same program, each with its own rows (SPMD)."""

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.aliases import Array
from .communicators import Communicator

_KINDS = (TypeError, IndexError, ValueError, MemoryError)


def same(name: str, values: Sequence[Any], remedy: str) -> None:
    """Checks that all workers gave the same value."""
    for rank, value in enumerate(values):
        if value != values[0]:
            raise ValueError(
                f"{name}: expected the same on every worker, got {values[0]} on worker 0 and {value} on "
                f"worker {rank}; {remedy}"
            )


class _Failure:
    """An error on a worker, as others are told about it."""

    def __init__(self, rank: int, error: Exception) -> None:
        text = str(error.args[0]) if error.args else type(error).__name__
        self.kind: type[Exception] = next((kind for kind in _KINDS if isinstance(error, kind)), RuntimeError)
        self.message = f"{text} (on worker {rank})"
        if self.kind is RuntimeError:
            self.message = f"{type(error).__name__}: {self.message}"


class Workers:
    """Calls functions of this worker's part, and tells the others.

    An error of a part is kept until the next message, with which every worker raises it.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.n_tasks = comm.size
        self._failure: _Failure | None = None
        self._error: Exception | None = None

    def _try(self, function: Callable[..., Any], *args: Any) -> Any:
        if self._failure is None:
            try:
                return function(*args)
            except Exception as error:
                self._failure, self._error = _Failure(self.comm.rank, error), error
        return self._failure

    def _told(self) -> None:
        """Tells the other workers about a failure; raises the first one."""
        found = [self._failure]
        if self.comm.size > 1:
            found = [pickle.loads(data) for data in self.comm.allgather(pickle.dumps(self._failure))]
        error, self._error = self._error, None  # kept, it would keep the arguments of the call
        try:
            for failure in found:
                if failure is not None and self.comm.size > 1:
                    raise failure.kind(failure.message) from error
            if error is not None:
                raise error
        finally:
            del error

    def map(
        self, function: Callable[..., Any], handles: Sequence[Any], *args: Any, each: Sequence[Any] = ()
    ) -> Any:
        """Returns the value of this worker."""
        own = [each[self.comm.rank]] if len(each) else []
        return self._try(function, *handles, *args, *own)

    def collect(
        self, function: Callable[..., Any], handles: Sequence[Any], *args: Any, each: Sequence[Any] = ()
    ) -> list[Any]:
        """Returns what all workers' calls return."""
        own = self.map(function, handles, *args, each=each)
        if self.comm.size == 1:
            self._told()
            return [own]
        found = [pickle.loads(data) for data in self.comm.allgather(pickle.dumps(own, protocol=5))]
        if any(isinstance(a, _Failure) for a in found):
            self._told()
        return found

    def total(
        self,
        function: Callable[..., Array],
        handles: Sequence[Any],
        *args: Any,
        shape: tuple[int, ...],
        dtype: np.dtype,
    ) -> Array:
        """Returns the sum of all workers' arrays. The last number that is sent says who failed."""
        own = self._try(function, *handles, *args)
        if self.comm.size == 1:
            self._told()
            return own
        sent = np.zeros(int(np.prod(shape)) + 1, dtype)
        if isinstance(own, _Failure):
            sent[-1] = 1
        else:
            sent[:-1] = own.ravel()
        found = self.comm.allreduce(sent)
        if found[-1]:
            self._told()
        return found[:-1].reshape(shape)

    def exchange(
        self,
        send: Callable[..., Any],
        handles: Sequence[Any],
        items: Sequence[Any],
        receive: Callable[..., Any],
        args: Sequence[tuple[Any, ...]],
    ) -> list[Any]:
        """Returns what worker r receives for item r, of each item."""
        sent = [self._try(send, *handles, item) for item in items]
        rank = self.comm.rank
        if self.comm.size == 1:
            self._told()
            return [receive(sent, *args[0])]
        data = [pickle.dumps(a, protocol=5) for a in sent] + [b""] * (self.comm.size - len(sent))
        found = [pickle.loads(a) for a in self.comm.alltoall(data) if a]
        if any(isinstance(a, _Failure) for a in found) or self._failure is not None:
            own = None  # every worker that has a failure tells the others below
        else:
            own = self._try(receive, found, *args[rank]) if rank < len(items) else None
        results = [
            pickle.loads(a) for a in self.comm.allgather(pickle.dumps((own, self._failure), protocol=5))
        ]
        if any(failure is not None for _, failure in results):
            self._told()
        return [result for result, _ in results[: len(items)]]

    def agree(self, go_on: bool) -> bool:
        """Returns whether all workers go on."""
        return not int(self.comm.allreduce(np.array([0 if go_on else 1], np.int64))[0])
