"""Times of hinge training: letter's network on 1, 2 and 4 processes of one machine, beside hforest.demo.

    python bench/scale_hinge.py --data DIR [--kinds tree fern] [--trees 100] [--steps 1000] [--json FILE]

The network of Lay et al. 2018 for letter (lab/paper/table3.py): 100 inner-product features, normalisation,
trees or ferns of depth 10 with 26 class scores in a leaf, softmax, Adam 0.005, batches of 53. DIR holds
letter.npz, whose first 16 000 rows are the training samples. Each process of one thread owns a range of the
trees (`scale.HingeShards`) and exchanges by torch.distributed (gloo) or MPI. After the last step every
process prints a hash of all that was trained (kernel, normalisation, all trees and their moments); the bench
ends with an error unless all hashes of a kind are equal for every number of processes. "demo" is the fused
step of `hforest.demo` in one process. Times are those of the steps alone.
"""

import argparse
import hashlib
import itertools
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, need, options_of, record
from workers import run_workers

from hforest import demo, hinge, layers, optim, scale

BATCH, LR = 53, 0.005


class Counted:
    """A communicator that counts the messages and bytes that this worker sends."""

    def __init__(self, comm: scale.Communicator) -> None:
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.n_bytes = self.n_messages = 0
        self.allreduce, self.alltoall = comm.allreduce, comm.alltoall

    def allgather(self, data: bytes) -> list[bytes]:
        """Returns the bytes that each worker passed."""
        self.n_messages += 1
        self.n_bytes += len(data)
        return self.comm.allgather(data)


def communicator(kind: str) -> scale.Communicator | None:
    """Returns the communicator of this process."""
    if kind == "one":
        return None
    if kind == "mpi":
        return Counted(scale.MpiComm())
    import datetime

    import torch

    torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=300))
    return Counted(scale.TorchComm())


class Network:
    """Lay et al. 2018, Fig. 2b, on shards: every worker has the kernel and the normalisation, and its own
    trees.
    """

    def __init__(self, comm: Any, config: demo.Config, state: dict[str, Any]) -> None:
        self.kernel, self.mean, self.var = state["kernel"], state["mean"], state["var"]
        self.m, self.v = np.zeros_like(self.kernel), np.zeros_like(self.kernel)
        forest = (state[name] for name in ("thresholds", "features", "weights"))
        self.shards = scale.HingeShards(comm, config.kind, *forest)

    def step(self, x: np.ndarray, labels: np.ndarray) -> float:
        """Makes a step; returns the loss before."""
        inner = x @ self.kernel
        y, route = self.shards.forward(layers.normalize(inner, self.mean, self.var))
        loss, grad_y = layers.softmax_loss(y, labels)
        gradients = self.shards.backward(grad_y, route)
        assert gradients.x is not None
        grad_kernel = x.T @ layers.normalize_backward(gradients.x, self.var)
        layers.normalize_update(inner, self.mean, self.var, self.shards.steps)
        self.shards.step(gradients, LR)
        optim.adam(self.kernel, grad_kernel, self.m, self.v, self.shards.steps, LR)
        return loss

    def error(self, x: np.ndarray, labels: np.ndarray) -> float:
        """Returns the share of wrong classes."""
        y, _ = self.shards.forward(layers.normalize(x @ self.kernel, self.mean, self.var))
        return float((y.argmax(axis=1) != labels).mean())

    def arrays(self) -> list[np.ndarray]:
        """Returns all that was trained, of all workers."""
        forest = [*self.shards.parameters(), *self.shards.adam_state()]
        arrays = [self.kernel, self.m, self.v, self.mean, self.var, *forest]
        return [a for a in arrays if a is not None]


class Demo:
    """The same network in one process, by the steps of `hforest.demo`."""

    def __init__(self, config: demo.Config, state: dict[str, Any]) -> None:
        self.config, self.state = config, state

    def step(self, x: np.ndarray, labels: np.ndarray) -> float:
        """Makes a step; returns the loss before."""
        return demo.step(self.config, self.state, x, labels)

    def error(self, x: np.ndarray, labels: np.ndarray) -> float:
        """Returns the share of wrong classes."""
        return demo.error_rate(self.config, self.state, x, labels)

    def arrays(self) -> list[np.ndarray]:
        """Returns all that was trained."""
        names = ("kernel", "kernel_m", "kernel_v", "mean", "var", "thresholds", "features", "weights")
        every = (*names, *hinge.AdamState._fields)
        return [self.state[name] for name in every if self.state.get(name) is not None]


def digest(arrays: list[np.ndarray]) -> str:
    """Returns a hash of arrays."""
    found = hashlib.sha256()
    for a in arrays:
        found.update(f"{a.dtype} {a.shape}".encode() + np.ascontiguousarray(a).tobytes())
    return found.hexdigest()[:16]


def work(kind: str, case: dict[str, Any], folder: Path) -> None:
    """Runs the work of a process, and prints a line of json."""
    data = demo.load_data(folder / "letter.npz", n_train=case["train"])
    config = demo.Config(kind=case["forest"], n_trees=case["trees"], batch_size=BATCH, lr=LR)
    state = demo.start(config, data.x_train.shape[1], data.n_classes)
    comm: Any = None if kind == "demo" else communicator(kind)
    network: Any = Demo(config, state) if kind == "demo" else Network(comm, config, state)
    x, labels = (np.asarray(a, dtype) for a, dtype in zip(data[:2], (np.float32, np.int32), strict=True))
    counted = comm if isinstance(comm, Counted) else None
    before = (counted.n_bytes, counted.n_messages) if counted else (0, 0)
    taken, losses, n_epoch = [], [], len(x) // BATCH
    for i in range(case["steps"]):
        epoch, part = divmod(i, n_epoch)
        if part == 0:
            order = np.random.default_rng([1, epoch]).permutation(len(x))
        picked = order[part * BATCH : (part + 1) * BATCH]
        begin = time.perf_counter()
        losses.append(network.step(x[picked], labels[picked]))
        taken.append(time.perf_counter() - begin)
    after = (counted.n_bytes, counted.n_messages) if counted else (0, 0)
    x_test, y_test = np.asarray(data.x_test, np.float32), np.asarray(data.y_test, np.int32)
    row = {
        "seconds": sum(taken), "ms_median": 1e3 * statistics.median(taken),
        "bytes": (after[0] - before[0]) / case["steps"], "messages": (after[1] - before[1]) / case["steps"],
        "loss": float(np.mean(losses[-100:])), "error": 100 * network.error(x_test, y_test),
        "hash": digest(network.arrays()),
    }  # fmt: skip
    os.write(1, (json.dumps(row) + "\n").encode())
    if kind == "torch":
        import torch

        torch.distributed.destroy_process_group()


def run(kind: str, size: int, threads: int, case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Returns the slowest time, the most bytes of a worker, and the hash, which must be that of all."""
    rows = run_workers(
        kind, size, threads, [__file__, "--data", str(folder), "--work", kind, "--case", json.dumps(case)]
    )
    row = {"comm": kind, "workers": size, "threads": threads, **case, **rows[0]}
    for name in ("seconds", "ms_median", "bytes"):
        row[name] = max(one[name] for one in rows)
    print(
        f"{kind:5} {size} x {threads} threads, {case['trees']} {case['forest']}s: {row['ms_median']:6.2f} ms "
        f"per step, {row['bytes'] / 1e3:7.1f} KB per worker and step in {row['messages']:.0f} messages, test "
        f"error {row['error']:.2f} %, {row['hash']}",
        flush=True,
    )
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the table in Markdown: milliseconds per step, and the errors of the demo and of the workers."""
    lines = []
    for name, group in itertools.groupby(rows, key=lambda row: f"{row['trees']} {row['forest']}s"):
        of = [row for row in group if row["comm"] != "one"]
        cells = [f"{row['ms_median']:.1f}" for row in of] + [f"{row['error']:.2f}" for row in (of[0], of[-1])]
        lines.append(f"| {' | '.join([name, *cells])} |")
    runs = [
        f"demo, threads: {row['threads']}" if row["comm"] == "demo" else f"processes: {row['workers']}"
        for row in of
    ]
    head = ["forest", *runs, "demo's error", "error"]
    return "\n".join([f"| {' | '.join(head)} |", "|" + "---|" * len(head), *lines])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of letter.npz; without it the record is printed")
    parser.add_argument("--kinds", nargs="+", choices=("tree", "fern"), default=["tree", "fern"])
    parser.add_argument("--trees", type=int, nargs="+", default=[100])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--train", type=int, default=16_000, help="number of training samples")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--comm", choices=("torch", "mpi", "none"), default="torch")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    args = options_of(
        parser, "--data {data} --comm none --kinds tree --trees 5 --steps 3 --train 500", "letter"
    )
    if args.work:
        work(args.work, args.case, args.data)
        return
    if args.data is None:
        print(table(json.loads((args.json or RESULTS / "scale_hinge.json").read_text())["rows"]))
        return
    if args.comm != "none":
        need(f"-e '.[bench,{args.comm}]'", {"torch": "torch", "mpi": "mpi4py"}[args.comm])
    rows = []
    for kind, n_trees in ((kind, n) for n in args.trees for kind in args.kinds):
        case = {"forest": kind, "trees": n_trees, "steps": args.steps, "train": args.train}
        found = [run("demo", 1, threads, case, args.data) for threads in (1, 2)]
        found.append(run("one", 1, 1, case, args.data))
        for size in args.workers if args.comm != "none" else ():
            found.append(run(args.comm, size, 1, case, args.data))
        if len({row["hash"] for row in found[2:]}) != 1:
            raise SystemExit(f"{n_trees} {kind}s: the hashes differ")
        rows += found
    if args.json:
        record(args.json, rows)


if __name__ == "__main__":
    main()
