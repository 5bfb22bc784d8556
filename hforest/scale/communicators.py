"""Communicators of other libraries, with the few methods that workers with rows of their own call."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from ..core.aliases import IntArray


class Communicator(Protocol):
    """What `grow_by_rows` calls on every worker, in the same order: an object with these is one.

    ::

        worker      0        1        2
        allreduce   a        b        c          each gets a + b + c
        allgather   a        b        c          each gets [a, b, c]
        alltoall    [a0 ..]  [b0 ..]  [c0 ..]    worker 1 gets [a1, b1, c1]
    """

    rank: int
    """Number of this worker, from 0."""
    size: int
    """How many workers there are."""

    def allreduce(self, a: IntArray) -> IntArray:
        """Returns the sum of all workers' arrays of int32 or int64, of one shape."""
        ...

    def allgather(self, data: bytes) -> list[bytes]:
        """Returns what each worker gave, in the order of ranks."""
        ...

    def alltoall(self, data: Sequence[bytes]) -> list[bytes]:
        """Returns what each worker gave for this one: data[r] is for worker r."""
        ...


class OneWorker:
    """The communicator of one worker alone."""

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
def _lost(rank: int, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise RuntimeError(
            f"comm: expected {what} with every worker, got on worker {rank}: {error}; a worker ended or "
            "hangs: see its own output, and start all again"
        ) from error


class TorchComm:
    """The communicator of a process group of torch.distributed.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup, optional
        A group of the backend gloo; by default that of all processes.

    Raises
    ------
    ImportError
        torch is not installed.
    RuntimeError
        The process group is not initialized, or a worker ended: then gloo breaks the connection at once, and
        waits for its `timeout` where a worker hangs.

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
            raise ImportError(
                'TorchComm: expected torch, got none; install it with pip install "hforest[torch]"'
            ) from None
        self._torch, self._group = torch, group
        if not torch.distributed.is_initialized():
            raise RuntimeError(
                "group: expected an initialized process group, got none; call "
                'torch.distributed.init_process_group("gloo")'
            )
        self.rank: int = torch.distributed.get_rank(group)
        self.size: int = torch.distributed.get_world_size(group)

    def allreduce(self, a: IntArray) -> IntArray:
        """Returns the sum of all workers' arrays."""
        with _lost(self.rank, "a sum"):
            total = self._torch.from_numpy(np.ascontiguousarray(a).reshape(-1).copy())
            self._torch.distributed.all_reduce(total, group=self._group)
            return np.asarray(total.numpy()).reshape(a.shape)

    def _sizes(self, size: int) -> list[int]:
        found = np.zeros(self.size, np.int64)
        found[self.rank] = size
        return [int(n) for n in self.allreduce(found)]

    def _bytes(self, data: bytes) -> Any:
        return self._torch.from_numpy(np.frombuffer(data, np.uint8).copy())

    def allgather(self, data: bytes) -> list[bytes]:
        """Returns what each worker gave."""
        with _lost(self.rank, "messages"):
            sizes = self._sizes(len(data))
            found = []
            for rank, size in enumerate(sizes):
                part = (
                    self._bytes(data)
                    if rank == self.rank
                    else self._torch.empty(size, dtype=self._torch.uint8)
                )
                if size:
                    self._torch.distributed.broadcast(part, group=self._group, group_src=rank)
                found.append(part.numpy().tobytes())
            return found

    def alltoall(self, data: Sequence[bytes]) -> list[bytes]:
        """Returns what each worker gave for this one."""
        torch, group = self._torch, self._group
        with _lost(self.rank, "messages"):
            table = np.zeros((self.size, self.size), np.int64)
            table[self.rank] = [len(part) for part in data]
            sizes = self.allreduce(table)[:, self.rank].tolist()
            parts = [torch.empty(n, dtype=torch.uint8) for n in sizes]
            parts[self.rank] = self._bytes(data[self.rank])
            sent = [self._bytes(part) for part in data]
            waiting = []
            for rank in range(self.size):
                if rank == self.rank:
                    continue
                if sizes[rank]:
                    waiting.append(torch.distributed.irecv(parts[rank], group=group, group_src=rank))
                if len(data[rank]):
                    waiting.append(torch.distributed.isend(sent[rank], group=group, group_dst=rank))
            for one in waiting:
                one.wait()
            return [part.numpy().tobytes() for part in parts]


class MpiComm:
    """The communicator of mpi4py.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm, optional
        By default ``mpi4py.MPI.COMM_WORLD``.

    Raises
    ------
    ImportError
        mpi4py is not installed.
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
                raise ImportError(
                    'MpiComm: expected mpi4py, got none; install it with pip install "hforest[mpi]"'
                ) from None
            comm = MPI.COMM_WORLD
        self._comm: Any = comm
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()

    def allreduce(self, a: IntArray) -> IntArray:
        """Returns the sum of all workers' arrays."""
        with _lost(self.rank, "a sum"):
            given = np.ascontiguousarray(a)
            total = np.empty_like(given)
            self._comm.Allreduce(given, total)
            return total

    def allgather(self, data: bytes) -> list[bytes]:
        """Returns what each worker gave."""
        with _lost(self.rank, "messages"):
            return list(self._comm.allgather(data))

    def alltoall(self, data: Sequence[bytes]) -> list[bytes]:
        """Returns what each worker gave for this one."""
        with _lost(self.rank, "messages"):
            return list(self._comm.alltoall(list(data)))


def as_communicator(comm: Any) -> Communicator:
    """Returns a caller's communicator, or that of one worker alone for None; TypeError for other objects."""
    if comm is None:
        return OneWorker()
    for name in ("rank", "size", "allreduce", "allgather", "alltoall"):
        if not hasattr(comm, name):
            raise TypeError(
                f"comm: expected a communicator with {name}, got {type(comm).__name__}; pass such as "
                "hforest.scale.TorchComm()"
            )
    return comm
