"""A worker with its own rows, started by torchrun's environment variables or mpiexec; see test_scale_rows.py.

row_worker.py torch|mpi CASE     prints a hash of the forest, or the error and how long it took
"""

import hashlib
import os
import sys
import time

import numpy as np

from hforest import project, scale


def samples(case):
    """Returns the samples and settings of a case."""
    rng = np.random.default_rng(0)
    n = 400
    x = rng.normal(size=(n, 6))
    x[:, 4] = rng.integers(0, 9, n)
    x[rng.random(x.shape) < 0.05] = np.nan
    score = np.nansum(x[:, :3], axis=1)
    settings = {"categorical": [4], "max_gathered": 30}
    if case == "regression":
        return x, np.exp(8 * score), {**settings, "task": "regression"}
    if case == "projections":
        settings = {"max_gathered": 60, "projections": project.sparse_distribution(6), "n_projections": 3}
    return x, np.argsort(np.argsort(score)) * 10 // n, settings


def part(rank, size, *arrays):
    """Returns the rows of a worker: more on later workers, none on the first of three."""
    n = len(arrays[0])
    first, last = (n * r * r // (size * size) for r in (rank, rank + 1))
    if size == 3:
        first, last = ((0, 0), (0, n // 3), (n // 3, n))[rank]
    return [a[first:last] for a in arrays]


def digest(forest):
    found = hashlib.sha256()
    for name, a in zip(forest._fields, forest, strict=True):
        found.update(f"{name} {a.dtype} {a.shape}".encode() + np.ascontiguousarray(a).tobytes())
    return found.hexdigest()


def communicator(kind):
    if kind == "mpi":
        return scale.MpiComm()
    import datetime

    import torch

    torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
    return scale.TorchComm()


def say(text):
    """Prints a line by one write, since mpiexec mixes the output of processes."""
    os.write(1, f"{text}\n".encode())


def main(kind, case):
    comm = communicator(kind)
    x, y, settings = samples(case)
    x, y = part(comm.rank, comm.size, x, y)
    if case == "bad labels" and comm.rank == 1:
        y = y - 1
    if case == "killed":
        # This worker ends in the middle of a level.
        n_calls, allreduce = 0, comm.allreduce

        def dies(a):
            nonlocal n_calls
            n_calls += 1
            if n_calls == 8 and comm.rank == 1:
                os._exit(7)
            return allreduce(a)

        comm.allreduce = dies
    began = time.monotonic()
    try:
        forest = scale.grow_by_rows(comm, x, y, 6, rng=5, **settings)
        say(digest(forest))
    except Exception as error:
        say(f"{time.monotonic() - began:.1f} {type(error).__name__}: {error}")
    if kind == "torch":
        import torch

        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
