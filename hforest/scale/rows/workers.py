"""Engine of workers that all run the same program, each on its own rows (SPMD)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core import check
from ...core.aliases import Array
from .communicators import Communicator
from .messages import Failure, decoded, encoded

_KINDS = (TypeError, IndexError, ValueError, MemoryError)


def _decoded(rank: int, data: bytes) -> Any:
    try:
        return decoded(data)
    except ValueError as error:
        raise RuntimeError(
            f"comm: expected messages of hforest, got from worker {rank} {error}; run the same version of "
            "hforest and the same calls on all workers"
        ) from None


def _failure(rank: int, error: BaseException) -> Failure:
    name = type(error).__name__
    text = str(error.args[0]) if error.args else name
    for kind in _KINDS:
        if isinstance(error, kind):
            return Failure(kind.__name__, f"{text} (on worker {rank})")
    return Failure("RuntimeError", f"{name}: {text} (on worker {rank})")


class Workers:
    """Calls functions of this worker's part, and sends results to the other workers.

    An error or interrupt of a part is kept until the next message, with which every worker raises it.
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

    def _decoded(self, messages: Sequence[bytes]) -> list[Any]:
        """Returns the values that workers sent, by rank; a Failure in place of an unreadable message."""
        return [self._try(_decoded, rank, data) for rank, data in enumerate(messages)]

    def _gathered(self, value: Any) -> list[Any]:
        """Returns the values of all workers, in the order of ranks; raises if one has a failure."""
        values = [value]
        if self.comm.size > 1:
            values = self._decoded(self.comm.allgather(self._encoded(value)))
        if any(isinstance(a, Failure) for a in values):
            self._raise_failures()
        return values

    def _raise_failures(self) -> None:
        """Sends this worker's failure to the others; raises the first failure of all workers."""
        sent = self.comm.allgather(encoded(self._failure))
        failures = [_decoded(rank, data) for rank, data in enumerate(sent)]
        error, self._error = self._error, None  # a stored error keeps arguments alive
        try:
            if error is not None and (self.comm.size == 1 or not isinstance(error, Exception)):
                raise error
            for failure in failures:
                if failure is not None:
                    kinds = {kind.__name__: kind for kind in _KINDS}
                    raise kinds.get(failure.kind, RuntimeError)(failure.message) from error
        finally:
            del error

    def map(
        self, function: Callable[..., Any], handles: Sequence[Any], *args: Any, each: Sequence[Any] = ()
    ) -> Any:
        """Returns the value of this worker."""
        last = [each[self.comm.rank]] if len(each) else []
        return self._try(function, *handles, *args, *last)

    def collect(
        self, function: Callable[..., Any], handles: Sequence[Any], *args: Any, each: Sequence[Any] = ()
    ) -> list[Any]:
        """Returns the results of all workers' calls."""
        return self._gathered(self.map(function, handles, *args, each=each))

    def total(
        self,
        function: Callable[..., Array],
        handles: Sequence[Any],
        *args: Any,
        shape: tuple[int, ...],
        dtype: np.dtype,
    ) -> Array:
        """Returns the sum of all workers' arrays. The last number of a message is 1 if its worker failed."""
        part = self._try(function, *handles, *args)
        if self.comm.size == 1:
            return self._gathered(part)[0]
        sent = np.zeros(int(np.prod(shape)) + 1, dtype)
        if isinstance(part, Failure):
            sent[-1] = 1
        else:
            sent[:-1] = part.ravel()
        total = self._summed(sent)
        if total[-1]:
            self._raise_failures()
        return total[:-1].reshape(shape)

    def _summed(self, sent: Array) -> Array:
        total = self.comm.allreduce(sent)
        check.require(
            isinstance(total, np.ndarray) and (total.shape, total.dtype) == (sent.shape, sent.dtype), "comm",
            f"an array of shape {sent.shape} and dtype {sent.dtype} from allreduce",
            f"{getattr(total, 'dtype', type(total).__name__)} of shape {np.shape(total)}",
            "return the sum of the arrays of all workers",
        )  # fmt: skip
        return total

    def exchange(
        self,
        send: Callable[..., Any],
        handles: Sequence[Any],
        items: Sequence[Any],
        receive: Callable[..., Any],
        args: Sequence[tuple[Any, ...]],
    ) -> list[Any]:
        """Returns for each item r the result of `receive` on worker r."""
        received = [self._try(send, *handles, item) for item in items]
        rank = self.comm.rank
        if self.comm.size > 1:
            sent = [self._encoded(a) for a in received] + [encoded(None)] * (self.comm.size - len(items))
            received = self._decoded(self.comm.alltoall(sent))
        result = self._failure  # every worker that has a failure sends it to the others below
        if result is None and rank < len(items) and not any(isinstance(a, Failure) for a in received):
            result = self._try(receive, received, *args[rank])
        return self._gathered(result)[: len(items)]

    def agree(self, go_on: Callable[[], bool]) -> bool:
        """Returns whether go_on() is True on all workers."""
        answer = self._try(go_on)
        failed = isinstance(answer, Failure)
        n_failed, n_stopped = self._summed(np.array([failed, not answer], np.int64)).tolist()
        if n_failed:
            self._raise_failures()
        return not n_stopped
