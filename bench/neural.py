"""Times of neural decision forests: forward, backward, both, leaf update; all backends, NumPy, PyTorch.

    python bench/neural.py [--shapes n,M,D,K ...] [--jobs both ...] [--threads 1 2] [--dtype float32]
                           [--repeats N] [--json FILE]

Every rung is checked before it is timed. Figures are milliseconds per call, the median over repeats taken in
turn, with the minimum and the spread (half the range, in percent of the median). "both" is the part of a
training step: class probabilities, the loss, and its gradient with respect to f.

The floor of a sample is the longer of two times: that of reading f and writing grad_f at the measured copy
bandwidth, and that of its operations (see `operations`) at the rate at which the BLAS issues multiply-adds.
(hforest uses no fused multiply-adds: a multiplication and an addition count two.) Extra memory is the
increase of the resident set by the call, including results. The rungs with "out" write the gradient to an
existing array, as a training loop would. NumPy computes the samples in parts. PyTorch, if installed, computes
the same forest as tensors, level by level, eager and compiled (each shape in its own process,
bench/compiled.py). Its "both" is one forward pass and autograd's backward pass; hforest's is `loss_backward`
with `return_p`. "two calls" is `forward` and `loss_backward`, which routes again.

With --json, an existing file keeps rows of other shapes, jobs and threads.
"""

import argparse
import ctypes
import importlib
import json
import math
import os
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

# hforest's threads and PyTorch's share the processors: those of the one must not spin while the other works.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
from common import (
    CLOCKS,
    add_clock,
    ceilings,
    machine_text,
    need,
    options_of,
    record,
    seconds,
    side_by_side,
    sizes_like,
    spread,
)
from compiled import compiled, new_process

import hforest
from hforest import neural
from hforest.core import machine
from hforest.neural.checks import MAX_DEPTH

# samples, trees, depth, classes
SHAPES = ((1000, 25, 7, 10), (1000, 25, 10, 10), (1000, 100, 7, 10), (1000, 100, 10, 10))
JOBS = ("forward", "backward", "both", "update_leaves")
ITERATIONS = 20
NUMPY_NUMBERS = 3 * 10**6
"""Samples times trees times leaves of a part of the NumPy rung: it holds about ten such arrays."""
REFERENCE = (4, 2)
"""Samples and trees of the reference rung."""

Calls = dict[str, Callable[[], Any]]


# ------------------------------------------------------------------------------------------- rungs


def numpy_route(f: Any) -> tuple[Any, Any]:
    """Returns decisions and mu of every leaf, level by level, as a user of NumPy would compute them."""
    n, n_trees, n_vertices = f.shape
    d = 1 / (1 + np.exp(-f))
    mu, at, width = np.ones((n, n_trees, 1), f.dtype), 0, 1
    while at < n_vertices:
        here = d[:, :, at : at + width]
        mu = np.stack((mu * here, mu * (1 - here)), axis=-1).reshape(n, n_trees, 2 * width)
        at, width = at + width, 2 * width
    return d, mu


def numpy_forward(f: Any, leaves: Any) -> Any:
    """Returns class probabilities, means over trees."""
    n, n_trees = f.shape[:2]
    mu = numpy_route(f)[1].reshape(n, -1)
    return mu @ leaves.reshape(-1, leaves.shape[2]) / f.dtype.type(n_trees)


def numpy_backward(f: Any, leaves: Any, y: Any) -> tuple[float, Any]:
    """Returns the loss of the forest and its gradient, with sums over subtrees level by level."""
    n, _, n_vertices = f.shape
    d, mu = numpy_route(f)
    part = mu * leaves[:, :, y].transpose(2, 0, 1)
    total = part.sum(axis=(1, 2))
    a = part / total[:, None, None]
    grad = np.empty_like(f)
    width = (n_vertices + 1) // 2
    while width:
        left, right = a[:, :, 0::2], a[:, :, 1::2]
        here = slice(width - 1, 2 * width - 1)
        grad[:, :, here] = (d[:, :, here] * right - (1 - d[:, :, here]) * left) / n
        a, width = left + right, width // 2
    return float(-np.log(total / f.shape[1]).mean()), grad


def numpy_parts(f: Any, leaves: Any, y: Any, jobs: tuple[str, ...]) -> None:
    """Computes forward, backward or both for some samples at a time."""
    size = max(1, NUMPY_NUMBERS // (f.shape[1] * f.shape[2]))
    for first in range(0, len(f), size):
        part = slice(first, first + size)
        if "forward" in jobs:
            numpy_forward(f[part], leaves)
        if "backward" in jobs:
            numpy_backward(f[part], leaves, y[part])


def torch_rungs(f: Any, leaves: Any, y: Any, threads: int) -> dict[str, Calls]:
    """Returns job -> rung -> call to time with PyTorch; empty if it is not installed."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return {}
    torch.set_num_threads(threads)
    pi, labels = torch.from_numpy(leaves), torch.from_numpy(y.astype(np.int64))

    def probabilities(x: Any) -> Any:
        n, n_trees, n_vertices = x.shape
        d = torch.sigmoid(x)
        mu, at, width = x.new_ones(n, n_trees, 1), 0, 1
        while at < n_vertices:
            here = d[:, :, at : at + width]
            mu = torch.stack((mu * here, mu * (1 - here)), dim=-1).reshape(n, n_trees, 2 * width)
            at, width = at + width, 2 * width
        return mu.reshape(n, -1) @ pi.reshape(-1, pi.shape[2]) / n_trees

    def gradient(function: Callable[[Any], Any]) -> Any:
        x = torch.from_numpy(f).requires_grad_()
        loss = torch.nn.functional.nll_loss(torch.log(function(x)), labels)
        loss.backward()
        return loss.item(), x.grad.numpy()

    fast = compiled(probabilities)
    for function in (probabilities, fast):
        loss, grad = gradient(function)
        want_loss, want = neural.loss_backward(f, leaves, y)
        np.testing.assert_allclose(loss, want_loss, rtol=1e-4)
        np.testing.assert_allclose(grad, want, atol=1e-4 * abs(want).max())
    return {"both": {"torch": lambda: gradient(probabilities), "torch compiled": lambda: gradient(fast)}}


def plainly(call: Callable[[], Any], path: str) -> Callable[[], Any]:
    """Returns the same call on another vector path."""

    def timed() -> None:
        best = machine.simd()
        machine.set_simd(path)
        try:
            call()
        finally:
            machine.set_simd(best)

    return timed


def rungs(f: Any, leaves: Any, y: Any) -> dict[str, Callable[[], Any]]:
    """Returns job -> rung -> call to time."""
    start = neural.uniform_leaves(
        leaves.shape[0], leaves.shape[1].bit_length() - 1, leaves.shape[2], dtype=f.dtype
    )

    return {
        "forward": lambda: neural.forward(f, leaves),
        "backward": lambda: neural.loss_backward(f, leaves, y),
        "both": lambda: neural.loss_backward(f, leaves, y, return_p=True),
        "update_leaves": lambda: neural.update_leaves(f, y, start, ITERATIONS),
    }


def resident() -> dict[str, int]:
    """Returns the current and the peak memory of this process; empty if the system does not report it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return {}
    words = [line.split() for line in lines if line.startswith(("VmRSS", "VmHWM"))]
    return {name.rstrip(":"): 1024 * int(size) for name, size, _ in words}


def extra_memory(call: Callable[[], Any]) -> float | None:
    """Returns the increase of the resident set in a call; None if the system does not report it."""
    call()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # memory that the allocator keeps would hide the memory of a call
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        return None
    before = resident()["VmRSS"]
    call()
    return resident()["VmHWM"] - before


def gpu_rungs(f: Any, leaves: Any, y: Any) -> Calls:
    """Returns the same calls on a GPU, synchronised; empty without a GPU."""
    try:
        import cupy

        moved = [cupy.asarray(a) for a in (f, leaves, y)]
    except Exception:
        return {}

    def waiting(call: Callable[[], Any]) -> Callable[[], Any]:
        def timed() -> None:
            call()
            cupy.cuda.get_current_stream().synchronize()

        return timed

    return {job: waiting(call) for job, call in rungs(*moved).items() if job != "update_leaves"}


# ----------------------------------------------------------------------------------- check and count


def check(f: Any, leaves: Any, y: Any) -> None:
    """Compares hforest and NumPy with the reference on a few samples and trees, then with each other."""
    n, m = REFERENCE
    part = np.ascontiguousarray(f[:n, :m]), leaves[:m].copy(), y[:n].copy()
    single = f.dtype == np.float32
    close = partial(
        np.testing.assert_allclose, rtol=1e-4 if single else 1e-10, atol=1e-6 if single else 1e-13
    )
    p = neural.forward(*part[:2])
    loss, grad, again = neural.loss_backward(*part, return_p=True)
    np.testing.assert_array_equal(p, again)
    fitted = neural.update_leaves(part[0], part[2], part[1], 2)
    with hforest.using("reference"):
        close(p, neural.forward(*part[:2]))
        want_loss, want = neural.loss_backward(*part)
        close(loss, want_loss)
        close(grad, want)
        close(fitted, neural.update_leaves(part[0], part[2], part[1], 2))
    some = min(len(f), 64)
    part = f[:some], leaves, y[:some]
    close(numpy_forward(*part[:2]), neural.forward(*part[:2]))
    for got, expected in zip(numpy_backward(*part), neural.loss_backward(*part), strict=True):
        close(got, expected)


def operations(job: str, n_classes: int, degree: int) -> float:
    """Returns arithmetic operations per sample and vertex, with as many leaves as vertices."""
    # exp: to reduce 7, the polynomial 2 a degree and 4, the exponent 3; the two decisions 6.
    decide = 2 * degree + 20
    return {
        "forward": decide + 2 + 2 * n_classes,
        "backward": decide + 2 + 5 + 1,
        "both": decide + 2 + 5 + 1 + 2 * n_classes,
        "update_leaves": decide + 2 + ITERATIONS * 4,
    }[job]


def bytes_moved(job: str, itemsize: int) -> float:
    """Returns the bytes of f and grad_f per sample and vertex."""
    return itemsize * {"forward": 1, "backward": 2, "both": 2, "update_leaves": 1}[job]


def vector_rate(dtype: np.dtype) -> float:
    """Returns multiply-adds per second of the BLAS on one thread: vector instructions times their lanes."""
    from threadpoolctl import threadpool_limits

    a, b = (np.ones((512, 512), dtype) for _ in range(2))
    with threadpool_limits(1, user_api="blas"):
        return 512**3 / min(seconds(lambda: a @ b, 5, clock=CLOCKS["processor"]))


# --------------------------------------------------------------------------------------------- runs


def run_shape(
    shape: tuple[int, ...], threads: int, best: dict[str, float], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Measures every job and rung of one shape."""
    hforest.set_num_threads(threads)
    first, last = threads == min(options.threads), threads == max(options.threads)
    n, n_trees, depth, n_classes = shape
    rng = np.random.default_rng(0)
    dtype = np.dtype(options.dtype)
    f = rng.standard_normal((n, n_trees, 2**depth - 1)).astype(dtype)
    leaves = rng.dirichlet(np.ones(n_classes), size=(n_trees, 2**depth)).astype(dtype)
    y = rng.integers(0, n_classes, n, dtype=np.int32)
    check(f, leaves, y)
    rows: list[dict[str, Any]] = []
    with hforest.unchecked():
        jobs: dict[str, Calls] = {job: {"hforest": call} for job, call in rungs(f, leaves, y).items()}
        grad = np.zeros_like(f)

        def apart() -> None:
            neural.forward(f, leaves)
            neural.loss_backward(f, leaves, y, out=grad)

        jobs["both"]["two calls, out"] = apart
        jobs["both"]["hforest, out"] = lambda: neural.loss_backward(f, leaves, y, return_p=True, out=grad)
        jobs["backward"]["hforest, out"] = lambda: neural.loss_backward(f, leaves, y, out=grad)
        for job, calls in jobs.items():
            for path in machine.simd_paths()[:-1]:
                calls[path] = plainly(calls["hforest"], path)
            if first and job != "update_leaves":
                parts = ("forward", "backward") if job == "both" else (job,)
                calls["numpy"] = partial(numpy_parts, f, leaves, y, parts)
        if "both" in options.jobs:
            for job, calls in torch_rungs(f, leaves, y, hforest.get_num_threads()).items():
                jobs[job] |= calls
        for job, call in (gpu_rungs(f, leaves, y) if last and options.clock == "wall" else {}).items():
            jobs[job]["gpu"] = call
        for job, calls in jobs.items():
            if job not in options.jobs:
                continue
            count = n * n_trees * (2**depth - 1)
            flops = count * operations(job, n_classes, 4 if dtype == np.float32 else 9)
            arithmetic = flops / best["operations"]
            memories = {rung: extra_memory(call) for rung, call in calls.items()}
            memory = count * bytes_moved(job, dtype.itemsize) / best["copy_bytes"]
            floor = max(arithmetic, memory)
            for rung, times in side_by_side(calls, options.repeats, CLOCKS[options.clock]).items():
                median = statistics.median(times)
                rows.append(
                    {
                        "shape": shape,
                        "job": job,
                        "rung": rung,
                        "dtype": options.dtype,
                        "threads": hforest.get_num_threads(),
                        "clock": options.clock,
                        "ms": 1e3 * median,
                        "least_ms": 1e3 * min(times),
                        "spread": spread(times),
                        "extra_bytes": memories[rung],
                        "flops": flops,
                        "arithmetic_ms": 1e3 * arithmetic,
                        "memory_ms": 1e3 * memory,
                        "share_of_floor": floor / median,
                    }
                )
                print(
                    f"{','.join(map(str, shape)):>18} {job:14} {rung:14} {1e3 * median:10.2f} "
                    f"{1e3 * min(times):10.2f} {100 * spread(times):6.0f}% {1e3 * arithmetic:8.2f} "
                    f"{1e3 * memory:8.2f} {100 * floor / median:6.0f}% {(memories[rung] or 0) / 1e6:9.0f}",
                    flush=True,
                )
    return rows


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures every number of threads and shape."""
    rows: list[dict[str, Any]] = []
    for count in sorted(set(options.threads)):
        hforest.set_num_threads(count)
        threads = hforest.get_num_threads()
        best = ceilings(CLOCKS[options.clock])
        summed = options.clock == "processor"  # over threads
        best["operations"] = (1 if summed else threads) * vector_rate(np.dtype(options.dtype))
        print(
            f"\n{threads} thread(s): copy {best['copy_bytes'] / 1e9:.1f} GB/s, "
            f"{best['operations'] / 1e9:.1f} G operations/s"
        )
        rows.append({"threads": threads, "clock": options.clock, "ceilings": best})
        print(
            f"{'n,M,D,K':>18} {'job':14} {'rung':14} {'ms':>10} {'least':>10} {'spread':>7} {'arith.':>8} "
            f"{'memory':>8} {'share':>7} {'extra MB':>9}"
        )
        for shape in options.shapes:
            with new_process() as process:
                rows += process.submit(run_shape, shape, count, best, options).result()
    return rows


def reference_rung(options: argparse.Namespace) -> dict[str, Any]:
    """Measures the speed of the reference, on a small part of the first shape."""
    _, _, depth, n_classes = options.shapes[0]
    n, n_trees = REFERENCE
    rng = np.random.default_rng(0)
    f = rng.standard_normal((n, n_trees, 2**depth - 1)).astype(options.dtype)
    leaves = neural.uniform_leaves(n_trees, depth, n_classes, dtype=options.dtype)
    y = np.zeros(n, np.int32)
    call = partial(neural.loss_backward, f, leaves, y)
    with hforest.using("reference"):
        median = statistics.median(seconds(call, 3, clock=CLOCKS[options.clock])) / f.size
    print(f"reference, backward, {n} samples, {n_trees} trees of depth {depth}: {1e9 * median:.0f} ns/vertex")
    row = {"job": "backward", "rung": "reference", "clock": options.clock}
    return row | {"ns_per_vertex": 1e9 * median}


# ------------------------------------------------------------------------------------------ command


def measured(row: dict[str, Any]) -> tuple[Any, ...]:
    """Returns the key of a row; a later measurement with the same key replaces it."""
    return *row.get("shape", ()), *(row.get(name) for name in ("threads", "dtype", "job"))


def store(path: Path | None, rows: list[dict[str, Any]]) -> None:
    """Writes these rows, and those of the file that they do not replace."""
    if path is None:
        return
    mine = {measured(row) for row in rows}
    others = json.loads(path.read_text())["rows"] if path.exists() else []
    record(path, [row for row in others if measured(row) not in mine] + rows, command=" ".join(sys.argv))


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shapes",
        nargs="+",
        type=sizes_like("1000,25,7,10", most=(math.inf, math.inf, MAX_DEPTH, math.inf)),
        default=list(SHAPES),
        metavar="n,M,D,K",
    )
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, hforest.get_num_threads()])
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--repeats", type=int, default=7)
    add_clock(parser)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = options_of(parser, "--shapes 100,3,3,2 --jobs forward backward --threads 1 --repeats 1")
    need("-e '.[bench]'", "threadpoolctl")
    print(machine_text())
    store(options.json, [reference_rung(options), *run(options)])


if __name__ == "__main__":
    main()
