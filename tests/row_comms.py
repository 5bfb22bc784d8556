"""Workers in threads, for tests of forests on rows of several workers."""

import threading


class _Shared:
    def __init__(self, size):
        self.size = size
        self.barrier = threading.Barrier(size, timeout=60)
        self.values = [None] * size


class ThreadComm:
    """The communicator of a thread; counts the bytes that it sends to others."""

    def __init__(self, shared, rank):
        self._shared, self.rank, self.size = shared, rank, shared.size
        self.n_bytes = self.n_calls = 0

    def _all(self, value):
        self.n_calls += 1
        self._shared.values[self.rank] = value
        self._shared.barrier.wait()
        found = list(self._shared.values)
        self._shared.barrier.wait()
        return found

    def allreduce(self, a):
        assert a.dtype.kind == "i"
        self.n_bytes += a.nbytes
        found = self._all(a)
        assert len({(b.shape, b.dtype) for b in found}) == 1
        return sum(found[1:], start=found[0].copy())

    def allgather(self, data):
        self.n_bytes += len(data)
        return self._all(data)

    def alltoall(self, data):
        self.n_bytes += sum(len(part) for part in data)
        return [parts[self.rank] for parts in self._all(list(data))]


def run(size, function):
    """Returns function(comm) for each of `size` threads, or the exception that it raised."""
    shared = _Shared(size)
    results = [None] * size

    def work(rank):
        try:
            results[rank] = function(ThreadComm(shared, rank))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
