"""Processes of one machine that communicate by torch.distributed (gloo) or MPI."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import hforest


def run_workers(kind: str, size: int, threads: int, arguments: list[str]) -> list[dict[str, Any]]:
    """Returns the line of json that each process prints: this Python, run with the arguments.

    `kind` is "mpi", or another word for processes that are joined by torch.distributed or not at all. All
    lines must have the same "hash".
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {
        "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "WORLD_SIZE": str(size),
        "PYTHONPATH": str(Path(hforest.__file__).parents[1]),
    }  # fmt: skip
    command = [sys.executable, *arguments]
    if kind == "mpi":
        command = ["mpiexec", "-n", str(size), *command]
    started = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **own, "RANK": str(r)}
        )
        for r in range(1 if kind == "mpi" else size)
    ]
    rows = [json.loads(line) for p in started for line in p.communicate()[0].splitlines()]
    if len(rows) != size or len({row["hash"] for row in rows}) != 1:
        raise SystemExit(f"{kind}, {size} processes: expected one hash from each, got {rows}")
    return rows
