"""Communicators of other libraries, with the methods that workers call."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from ...core import check, extras
from ...core.aliases import IntArray

_FIRST_BYTES = 1 << 16  # at most this part of a message travels with its length
_RECENT = 8  # number of recent messages whose longest decides how many bytes travel at once
_MPI_BYTES = 2**31 - 1  # maximum of all messages of a call
_TAG = 2**20  # tag of messages that find out which workers have ended


class Communicator(Protocol):
    """Methods that `grow_by_rows` calls on every worker in the same order; any object with them will do.

    ::

        worker      0        1        2
        allreduce   a        b        c          each gets a + b + c
        allgather   a        b        c          each gets [a, b, c]
        alltoall    [a0 ..]  [b0 ..]  [c0 ..]    worker 1 gets [a1, b1, c1]
    """

    rank: int
    """Number of this worker, from 0."""
    size: int
    """Number of workers."""

    def allreduce(self, a: IntArray) -> IntArray:
        """Returns the sum of all workers' arrays, which have one shape and are int32 or int64."""
        ...

    def allgather(self, data: bytes) -> list[bytes]:
        """Returns the bytes that each worker passed, in the order of ranks."""
        ...

    def alltoall(self, data: Sequence[bytes]) -> list[bytes]:
        """Returns the bytes that each worker passed for this one; data[r] is for worker r."""
        ...


class OneWorker:
    """Communicator of a single worker."""

    rank = 0
    size = 1

    def allreduce(self, a: IntArray) -> IntArray:
        """Returns `a`."""
        return a

    def allgather(self, data: bytes) -> list[bytes]:
        """Returns [data]."""
        return [data]

    def alltoall(self, data: Sequence[bytes]) -> list[bytes]:
        """Returns `data`."""
        return list(data)


@contextmanager
def _lost(rank: int, what: str, ended: Callable[[], list[int]] = list) -> Iterator[None]:
    """Adds to errors of a library the expected message, and the workers that are known to have ended."""
    try:
        yield
    except Exception as error:
        if isinstance(error, RuntimeError) and str(error).startswith("comm: "):
            raise  # an error about a message within this one
        ranks = [str(a) for a in ended()]
        who = f"worker{'s' * (len(ranks) > 1)} {' and '.join(ranks)} ended: " if ranks else ""
        remedy = "read its output" if ranks else "a worker ended or hangs: read its output"
        raise RuntimeError(
            f"comm: expected {what} with every worker, got on worker {rank}: {who}{error}; {remedy}, and "
            "start all workers again"
        ) from error


class TorchComm:
    """The communicator of a process group of torch.distributed.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup, optional
        A group of the backend gloo; by default the group of all processes.

    Raises
    ------
    RuntimeError
        The process group is not initialized, or a worker ended; the error names it. Neighbours of that worker
        raise at once, the others after the `timeout` of the group, as all do if a worker hangs.

    Examples
    --------
    Every process of ``torchrun --nproc-per-node 2 grow.py`` runs::

        torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
        forest = hforest.scale.grow_by_rows(hforest.scale.TorchComm(), x, y, 100, rng=0)
    """

    def __init__(self, group: object | None = None) -> None:
        try:
            import torch
        except ImportError:
            raise extras.missing("TorchComm", "torch", "torch") from None
        self._torch, self._group = torch, group
        check.require(
            torch.distributed.is_initialized(), "group", "an initialized process group", "none",
            'call torch.distributed.init_process_group("gloo")', RuntimeError,
        )  # fmt: skip
        self.rank: int = torch.distributed.get_rank(group)
        self.size: int = torch.distributed.get_world_size(group)
        self._recent = deque([0], maxlen=_RECENT)
        self._sent: list[Any] = []

    def allreduce(self, a: IntArray) -> IntArray:
        """Returns the sum of all workers' arrays."""
        with _lost(self.rank, "a sum", self._ended):
            total = self._torch.from_numpy(np.ascontiguousarray(a).reshape(-1).copy())
            self._torch.distributed.all_reduce(total, group=self._group)
            return np.asarray(total.numpy()).reshape(a.shape)

    def _bytes(self, data: bytes) -> Any:
        return self._torch.from_numpy(np.frombuffer(data, np.uint8).copy())

    def _empty(self, n_bytes: int) -> Any:
        return self._torch.empty(n_bytes, dtype=self._torch.uint8)

    def allgather(self, data: bytes) -> list[bytes]:
        """Returns what each worker gave.

        A first message has the length and the beginning of each worker's bytes, up to the length of the
        longest recent message. Each worker then broadcasts its remaining bytes, if there are any.
        """
        torch, group = self._torch, self._group
        with _lost(self.rank, "messages", self._ended):
            first = max(self._recent)
            sent = np.zeros(8 + first, np.uint8)
            sent[:8] = np.array([len(data)], np.int64).view(np.uint8)
            begin = np.frombuffer(data, np.uint8)[:first]
            sent[8 : 8 + len(begin)] = begin
            parts = [self._empty(8 + first) for _ in range(self.size)]
            torch.distributed.all_gather(parts, torch.from_numpy(sent), group=group)
            sizes = [int(part[:8].numpy().view(np.int64)[0]) for part in parts]
            self._recent.append(min(max(sizes), _FIRST_BYTES))
            messages = [part[8 : 8 + n].numpy().tobytes() for n, part in zip(sizes, parts, strict=True)]
            for rank, size in enumerate(sizes):
                if size > first:
                    end = self._bytes(data[first:]) if rank == self.rank else self._empty(size - first)
                    torch.distributed.broadcast(end, group=group, group_src=rank)
                    messages[rank] += end.numpy().tobytes()
            return messages

    def _ended(self) -> list[int]:
        """Returns the workers with closed connections, to which gloo refuses to send.

        It tries for a tenth of a second until it finds one, since the neighbours of a worker end soon after
        it.
        """
        for _ in range(10):
            closed = [rank for rank in range(self.size) if rank != self.rank and self._is_closed(rank)]
            if closed:
                return closed
            time.sleep(0.01)
        return []

    def _is_closed(self, rank: int) -> bool:
        try:
            byte = self._torch.zeros(1, dtype=self._torch.uint8)
            sent = self._torch.distributed.isend(byte, group=self._group, group_dst=rank, tag=_TAG)
            self._sent.append((byte, sent))
        except Exception as error:
            return "by peer" in str(error)
        return False

    def alltoall(self, data: Sequence[bytes]) -> list[bytes]:
        """Returns what each worker gave for this one."""
        torch, group = self._torch, self._group
        with _lost(self.rank, "messages", self._ended):
            table = np.zeros((self.size, self.size), np.int64)
            table[self.rank] = [len(part) for part in data]
            sizes = self.allreduce(table)[:, self.rank].tolist()
            parts, sent = [self._empty(n) for n in sizes], [self._bytes(part) for part in data]
            waiting = []
            for rank in range(self.size):
                if rank == self.rank:
                    parts[rank] = sent[rank]
                    continue
                if sizes[rank]:
                    waiting.append(torch.distributed.irecv(parts[rank], group=group, group_src=rank))
                if len(data[rank]):
                    waiting.append(torch.distributed.isend(sent[rank], group=group, group_dst=rank))
            for transfer in waiting:
                transfer.wait()
            return [part.numpy().tobytes() for part in parts]


class MpiComm:
    """The communicator of mpi4py.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm, optional
        By default ``mpi4py.MPI.COMM_WORLD``.

    Raises
    ------
    RuntimeError
        MPI reports an error. Where a worker ends, mpiexec ends the others.

    Examples
    --------
    Every process of ``mpiexec -n 2 python grow.py`` runs::

        forest = hforest.scale.grow_by_rows(hforest.scale.MpiComm(), x, y, 100, rng=0)
    """

    def __init__(self, comm: Any = None) -> None:
        if comm is None:
            try:
                from mpi4py import MPI
            except ImportError:
                raise extras.missing("MpiComm", "mpi4py", "mpi") from None
            comm = MPI.COMM_WORLD
        self._comm: Any = comm
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()

    # The methods of mpi4py with lower-case names would pickle the data.

    def allreduce(self, a: IntArray) -> IntArray:
        """Returns the sum of all workers' arrays."""
        with _lost(self.rank, "a sum"):
            part = np.ascontiguousarray(a)
            total = np.empty_like(part)
            self._comm.Allreduce(part, total)
            return total

    def allgather(self, data: bytes) -> list[bytes]:
        """Returns what each worker gave."""
        with _lost(self.rank, "messages"):
            sizes, sent = self._gathered(len(data)), np.frombuffer(data, np.uint8)
            return self._in_steps(
                sizes, int(sizes.max()), lambda some, to: self._comm.Allgatherv(sent[some], to)
            )

    def alltoall(self, data: Sequence[bytes]) -> list[bytes]:
        """Returns what each worker gave for this one."""

        def exchange(some: slice, to: tuple[Any, list[int]]) -> None:
            parts = [part[some] for part in data]
            sent = np.frombuffer(b"".join(parts), np.uint8)
            self._comm.Alltoallv((sent, [len(part) for part in parts]), to)

        with _lost(self.rank, "messages"):
            sizes = np.empty(self.size, np.int64)
            self._comm.Alltoall(np.array([len(part) for part in data], np.int64), sizes)
            most = self._gathered(max(len(part) for part in data))
            return self._in_steps(sizes, int(most.max()), exchange)

    def _gathered(self, n: int) -> IntArray:
        numbers = np.empty(self.size, np.int64)
        self._comm.Allgather(np.array([n], np.int64), numbers)
        return numbers

    def _in_steps(
        self, sizes: IntArray, most: int, send: Callable[[slice, tuple[Any, list[int]]], None]
    ) -> list[bytes]:
        """Receives `sizes` bytes from each worker, in steps of at most as many bytes as MPI counts.

        send(bytes of each message, (buffer, bytes from each worker)) makes a step. `most` is the largest
        message of all workers, so that all make the same number of steps.
        """
        messages, step = [b"" for _ in sizes], _MPI_BYTES // self.size
        for at in range(0, most, step):
            counts = np.clip(sizes - at, 0, step)
            received = np.empty(int(counts.sum()), np.uint8)
            send(slice(at, at + step), (received, counts.tolist()))
            for rank, some in enumerate(np.split(received, np.cumsum(counts)[:-1])):
                messages[rank] += some.tobytes()
        return messages


def as_communicator(comm: Any) -> Communicator:
    """Returns a caller's communicator, or that of a single worker for None; TypeError for other objects."""
    if comm is None:
        return OneWorker()
    for name in ("rank", "size", "allreduce", "allgather", "alltoall"):
        check.require(
            hasattr(comm, name), "comm", f"a communicator with {name}", type(comm).__name__,
            "pass a communicator such as hforest.scale.TorchComm()", TypeError,
        )  # fmt: skip
    return comm
