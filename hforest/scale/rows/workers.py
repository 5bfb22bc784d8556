"""The engine of workers that all run the same program, each with its own rows (SPMD)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.aliases import Array
from .communicators import Communicator
from .messages import Failure, decoded, encoded

_KINDS = (TypeError, IndexError, ValueError, MemoryError)


def _decoded(rank: int, data: bytes) -> Any:
    try:
        return decoded(data)
    except ValueError as error:
        raise RuntimeError(
            f"comm: expected messages of hforest, got from worker {rank} {error}; run one version of hforest "
            "on all workers, and a program that makes the same calls"
        ) from None


def _failure(rank: int, error: BaseException) -> Failure:
    text = str(error.args[0]) if error.args else type(error).__name__
    kind = next((kind for kind in _KINDS if isinstance(error, kind)), RuntimeError)
    text = text if kind is not RuntimeError else f"{type(error).__name__}: {text}"
    return Failure(kind.__name__, f"{text} (on worker {rank})")


class Workers:
    """Calls functions of this worker's part, and tells the others.

    An error of a part is kept until the next message, with which every worker raises it; so is an interrupt.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.n_tasks = comm.size
        self._failure: Failure | None = None
        self._error: BaseException | None = None

    def _try(self, function: Callable[..., Any], *args: Any) -> Any:
        if self._failure is None:
            try:
                return function(*args)
            except BaseException as error:
                self._failure, self._error = _failure(self.comm.rank, error), error
        return self._failure

    def _encoded(self, value: Any) -> bytes:
        data = self._try(encoded, value)
        return data if isinstance(data, bytes) else encoded(data)

    def _decoded(self, found: Sequence[bytes]) -> list[Any]:
        """The values that workers sent, in their order; of a worker that sent none its failure."""
        return [self._try(_decoded, rank, data) for rank, data in enumerate(found)]

    def _told(self) -> None:
        """Tells the other workers about a failure; raises the first one."""
        found = [self._failure]
        if self.comm.size > 1:
            sent = self.comm.allgather(encoded(self._failure))
            found = [_decoded(rank, data) for rank, data in enumerate(sent)]
        error, self._error = self._error, None  # kept, it would keep the arguments of the call
        try:
            if error is not None and (self.comm.size == 1 or not isinstance(error, Exception)):
                raise error
            for failure in found:
                if failure is not None:
                    kinds = {kind.__name__: kind for kind in _KINDS}
                    raise kinds.get(failure.kind, RuntimeError)(failure.message) from error
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
        found = self._decoded(self.comm.allgather(self._encoded(own)))
        if any(isinstance(a, Failure) for a in found):
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
        if isinstance(own, Failure):
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
        data = [self._encoded(a) for a in sent] + [encoded(None)] * (self.comm.size - len(sent))
        found = self._decoded(self.comm.alltoall(data))
        own = self._failure  # every worker that has a failure tells the others below
        if own is None and rank < len(items) and not any(isinstance(a, Failure) for a in found):
            own = self._try(receive, found, *args[rank])
        results = self._decoded(self.comm.allgather(self._encoded(own)))
        if any(isinstance(a, Failure) for a in results):
            self._told()
        return results[: len(items)]

    def agree(self, go_on: Callable[[], bool]) -> bool:
        """Returns whether go_on() is True on all workers."""
        own = self._try(go_on)
        if self.comm.size == 1:
            self._told()
            return bool(own)
        failed = isinstance(own, Failure)
        n_failed, n_stopped = self.comm.allreduce(np.array([failed, not own], np.int64)).tolist()
        if n_failed:
            self._told()
        return not n_stopped
