"""Time, bytes sent and memory of growing by rows on several processes, beside one process with threads.

    python bench/scale.py forest --rows 1000000 --features 30 --classes 2 --trees 10 --json FILE
    python bench/scale.py forest --rows 500000 --projections 6
    python bench/scale.py level --json FILE

`forest` grows one forest by `growth` on one machine, on one worker, and on processes of one thread each that
exchange by torch.distributed (gloo) or MPI. It checks that all hashes are equal, except that of `growth`,
whose bins depend on all rows. `level` measures the time of a level by numbers of rows, features, classes and
workers: the mean of the first six levels, in which no node is gathered, as the minimum of three runs.
"""

import argparse
import hashlib
import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import need, options_of, record
from workers import run_workers

from hforest import growth, project, scale
from hforest.growth.by_level.batches import BatchOfTrees
from hforest.scale.rows.communicators import OneWorker

BLOCK = 50_000
"""Rows that are made together, so that a sample does not depend on who makes it."""


def samples(first: int, last: int, n_features: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows first to last - 1 of an endless sample: float32, and labels."""
    x = np.empty((last - first, n_features), np.float32)
    noise = np.empty(last - first)
    for block in range(first // BLOCK, -(-last // BLOCK)):
        rng = np.random.default_rng([7, block])
        rows = rng.normal(size=(BLOCK, n_features)).astype(np.float32)
        more = rng.normal(size=BLOCK)
        a, b = max(first, block * BLOCK), min(last, (block + 1) * BLOCK)
        x[a - first : b - first] = rows[a - block * BLOCK : b - block * BLOCK]
        noise[a - first : b - first] = more[a - block * BLOCK : b - block * BLOCK]
    score = x[:, 0] * x[:, 1] + x[:, 2] + np.abs(x[:, 3]) + 0.5 * noise
    return x, np.clip((score + 2) / 5 * n_classes, 0, n_classes - 1).astype(np.int32)


class Counted:
    """A communicator that counts the bytes that this worker sends."""

    def __init__(self, comm: scale.Communicator) -> None:
        self._comm, self.rank, self.size = comm, comm.rank, comm.size
        self.n_bytes = self.n_calls = 0

    def _count(self, n: int) -> None:
        self.n_calls += 1
        self.n_bytes += n if self.size > 1 else 0

    def allreduce(self, a: np.ndarray) -> np.ndarray:
        self._count(a.nbytes)
        return self._comm.allreduce(a)

    def allgather(self, data: bytes) -> list[bytes]:
        self._count(len(data))
        return self._comm.allgather(data)

    def alltoall(self, data: Any) -> list[bytes]:
        self._count(sum(len(part) for i, part in enumerate(data) if i != self.rank))
        return self._comm.alltoall(data)


def communicator(kind: str) -> scale.Communicator:
    if kind == "one":
        return OneWorker()
    if kind == "mpi":
        return scale.MpiComm()
    import datetime

    import torch

    torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=300))
    return scale.TorchComm()


def digest(arrays: Any) -> str:
    found = hashlib.sha256()
    for a in arrays:
        found.update(np.ascontiguousarray(a).tobytes())
    return found.hexdigest()[:16]


def timed_levels(comm: Counted) -> list[tuple[float, int, int]]:
    """Returns a list to which each level from now on adds its seconds, bytes and messages."""
    found: list[tuple[float, int, int]] = []
    split = BatchOfTrees._split

    def timed(self: BatchOfTrees, *args: Any) -> Any:
        begin, n_bytes, n_calls = time.perf_counter(), comm.n_bytes, comm.n_calls
        children = split(self, *args)
        found.append((time.perf_counter() - begin, comm.n_bytes - n_bytes, comm.n_calls - n_calls))
        return children

    BatchOfTrees._split = timed  # type: ignore[method-assign, assignment]
    return found


def work(kind: str, case: dict[str, Any]) -> None:
    """Runs the work of a process, and prints a line of json."""
    comm = None if kind == "engine" else Counted(communicator(kind))
    rank, size = (0, 1) if comm is None else (comm.rank, comm.size)
    n = case["rows"]
    x, y = samples(n * rank // size, n * (rank + 1) // size, case["features"], case["classes"])
    settings = {"n_classes": case["classes"], "rng": 0}
    if comm is not None:
        comm.allgather(b"")  # all have their rows
    levels: list[tuple[float, int, int]] = []
    begin = time.perf_counter()
    distribution = project.sparse_distribution(case["features"])
    projections: dict[str, Any] = {"projections": distribution, "n_projections": case.get("projections")}
    if comm is None and "projections" in case:
        grown = growth.grow(x, y, case["trees"], **projections, bootstrap="poisson", **settings)
    elif comm is None:
        grown = growth.grow(
            growth.samples(x, max_bins=256), y, case["trees"], bootstrap="poisson", **settings
        )
    else:
        more: dict[str, Any] = {name: case[name] for name in ("max_depth", "max_gathered") if name in case}
        if "projections" in case:
            more.update(projections)
        levels = timed_levels(comm)
        grown = scale.grow_by_rows(comm, x, y, case["trees"], **settings, **more)
    row = {
        "seconds": time.perf_counter() - begin, "hash": digest(grown),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "bytes": 0 if comm is None else comm.n_bytes, "messages": 0 if comm is None else comm.n_calls,
        "level": np.mean(levels, axis=0).tolist() if levels else [0, 0, 0],
    }  # fmt: skip
    if kind == "torch":
        import torch

        torch.distributed.destroy_process_group()
    os.write(1, (json.dumps(row) + "\n").encode())


def run(kind: str, size: int, threads: int, case: dict[str, Any]) -> dict[str, Any]:
    """Returns the slowest time, the largest sums of bytes, and the memory of all processes."""
    rows = run_workers(kind, size, threads, [__file__, "work", "--kind", kind, "--case", json.dumps(case)])
    return {
        "kind": kind, "workers": size, "threads": threads, **case, "hash": rows[0]["hash"],
        "seconds": max(row["seconds"] for row in rows), "bytes": max(row["bytes"] for row in rows),
        "messages": rows[0]["messages"], "level": max(row["level"] for row in rows),
        "peak_mb": sum(row["peak_mb"] for row in rows),
    }  # fmt: skip


def shown(row: dict[str, Any]) -> dict[str, Any]:
    print(
        f"{row['kind']:7} {row['workers']} workers of {row['threads']} threads, {row['rows']} x "
        f"{row['features']}, {row['classes']} classes, {row['trees']} trees: {row['seconds']:7.2f} s, "
        f"{row['bytes'] / 1e6:9.2f} MB per worker in {row['messages']} messages, {row['peak_mb']} MB memory"
    )
    return row


NAMES = {"engine": "`growth` on one machine", "one": "`comm=None`", "torch": "gloo", "mpi": "MPI"}


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the table of a record in Markdown: the columns in which rows differ."""
    cells = [
        {
            "rows": f"{row['rows']:,}",
            **{name: str(row[name]) for name in ("features", "classes", "trees")},
            "run": NAMES[row["kind"]],
            "seconds": f"{row['seconds']:#.3g}",
            "MB sent per worker": f"{row['bytes'] / 1e6:.1f}",
            "MB of memory, all workers": str(row["peak_mb"]),
        }
        for row in rows
    ]
    heads = [name for name in cells[0] if len({cell[name] for cell in cells}) > 1] or list(cells[0])
    lines = [" | ".join(cell[name] for name in heads) for cell in cells]
    return "\n".join([f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *(f"| {a} |" for a in lines)])


def kinds_of(args: argparse.Namespace) -> list[tuple[str, int, int]]:
    """Returns kinds, numbers of processes and of threads: one process, then those that exchange."""
    more = [(args.comm, args.processes, 1)] if args.comm != "none" else []
    return [("one", 1, args.processes), *more]


def forest(args: argparse.Namespace) -> list[dict[str, Any]]:
    case = {"rows": args.rows, "features": args.features, "classes": args.classes, "trees": args.trees}
    if args.projections:
        case["projections"] = args.projections
    kinds = ([] if args.no_engine else [("engine", 1, args.processes)]) + kinds_of(args)
    rows = [shown(run(*kind, case)) for kind in kinds]
    if len({row["hash"] for row in rows if row["kind"] != "engine"}) != 1:
        raise SystemExit("the forests differ")
    return rows


def level(args: argparse.Namespace) -> list[dict[str, Any]]:
    base = {"rows": 200_000, "features": 30, "classes": 2, "trees": 32}
    cases = [base] + [
        {**base, name: value}
        for name, values in (("rows", (50_000, 400_000)), ("features", (120,)), ("classes", (26,)))
        for value in values
    ]
    rows = []
    for case in cases:
        for kind, size, threads in kinds_of(args):
            found = [run(kind, size, threads, {**case, "max_depth": 6, "max_gathered": 0}) for _ in range(3)]
            row = min(found, key=lambda row: row["level"][0])
            row["seconds"], row["bytes"], row["messages"] = row["level"]
            rows.append(shown(row))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("forest", "level", "work"), default="forest")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=30)
    parser.add_argument("--classes", type=int, default=2)
    parser.add_argument("--trees", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--projections", type=int, default=0, help="number of sparse projections per node; 0: features"
    )
    parser.add_argument("--comm", choices=("torch", "mpi", "none"), default="torch")
    parser.add_argument("--no-engine", action="store_true", help="do not measure `growth` on one machine")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    args = options_of(parser, "--comm none --rows 2000 --features 5 --trees 2")
    if args.what == "work":
        work(args.kind, args.case)
        return
    if args.comm != "none":
        need(f"-e '.[bench,{args.comm}]'", {"torch": "torch", "mpi": "mpi4py"}[args.comm])
    rows = (forest if args.what == "forest" else level)(args)
    if args.json:
        record(args.json, rows)


if __name__ == "__main__":
    main()
