"""Times of hinge trees and ferns: traverse, forward, backward; reference, NumPy, threads, GPU.

    python bench/hinge.py [--shapes n,F,M,D,K ...] [--kinds tree fern] [--jobs forward ...] [--threads 1 2]
                          [--dtype float32] [--peers] [--clock wall] [--json FILE [--append]]

Every rung is checked against the reference before it is timed. Figures are nanoseconds per sample and tree,
the median over repeats taken in turn, with the spread (half the range, in percent of the median). With
--peers each shape and kind has its own process, in which PyTorch compiles once (bench/compiled.py).

The floor of a traversal is counted in loads: at each of D levels a tree reads the number of a feature, a
threshold and the input (3 D loads), a fern the input only (D loads; its decisions are the same for every
sample). The bench measures the number of independent loads per second that this machine makes from L1 and
from L2, and prints each rung's share of that. Forward and backward are counted in bytes: a row of K weights
read for each pair (forward), read and a row of gradients added (backward).
"""

import argparse
import importlib.util
import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from common import (
    CLOCKS,
    add_clock,
    ceilings,
    machine_text,
    options_of,
    plainly,
    record,
    seconds,
    side_by_side,
    sizes_like,
    spread,
)
from compiled import new_process
from peers import SETTINGS, add_peers, numpy_traverse

import hforest
from hforest import hinge
from hforest.core import machine

# samples, features, trees, depth, outputs
SHAPES = (
    (1000, 100, 100, 10, 10),
    (53, 5120, 1000, 10, 10),
    (65536, 100, 100, 10, 10),
    (10000, 784, 1000, 10, 1),
    (4096, 256, 512, 7, 1),
)
JOBS = ("traverse", "forward", "backward", "backward sparse", "forward+backward")
REFERENCE_PAIRS = 2000
"""Sample-tree pairs that the reference is timed on; it takes about 20 microseconds for each."""

Calls = dict[str, Callable[[], Any]]


def check(kind: Any, x: Any, t: Any, f: Any, w: Any, grad_y: Any) -> None:
    """Compares the CPU backend and the NumPy rung with the reference, on the first samples and trees."""
    trees = min(len(t), 8)
    n = max(1, min(len(x), REFERENCE_PAIRS // trees))
    part = (x[:n], t[:trees].copy(), f[:trees].copy(), w[:trees].copy())

    def everything() -> list[Any]:
        y, route = hinge.forward_with_route(*part, kind=kind, aggregate="sum")
        grads = hinge.backward(grad_y[:n], route, *part, kind=kind, aggregate="sum")
        return [*route, y, grads.x, grads.thresholds, grads.weights]

    got = everything()
    with hforest.using("reference"):
        want = everything()
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        scale = abs(b).max(initial=0) if i > 2 else 0
        np.testing.assert_allclose(
            a, b, rtol=4 * np.finfo(x.dtype).eps, atol=4 * np.finfo(x.dtype).eps * scale
        )
    for a, b in zip(numpy_traverse(kind, *part[:3]), want, strict=False):
        np.testing.assert_array_equal(a, b)


def rungs(kind: Any, x: Any, t: Any, f: Any, w: Any, grad_y: Any) -> dict[str, Calls]:
    """Returns job -> rung -> call to time."""
    words: dict[str, Any] = {"kind": kind, "aggregate": "sum"}
    route = hinge.traverse(x, t, f, kind=kind)

    def both(backward: Callable[..., Any]) -> Any:
        y, new_route = hinge.forward_with_route(x, t, f, w, **words)
        by = backward(grad_y, new_route, x, t, f, w, **words)
        return y, by.x, by.thresholds, by.weights

    return {
        "traverse": {"hforest": partial(hinge.traverse, x, t, f, kind=kind)},
        "forward": {"hforest": partial(hinge.forward, x, t, f, w, **words)},
        "backward": {"hforest": partial(hinge.backward, grad_y, route, x, t, f, w, **words)},
        "backward sparse": {"hforest": partial(hinge.backward_sparse, grad_y, route, x, t, f, w, **words)},
        "forward+backward": {
            "hforest": partial(both, hinge.backward),
            "hforest sparse": partial(both, hinge.backward_sparse),
        },
    }


def gpu_rungs(kind: Any, arrays: tuple[Any, ...]) -> dict[str, Calls] | None:
    """Returns the same calls on a GPU, synchronised, or None without a GPU."""
    try:
        import cupy

        moved = [cupy.asarray(a) for a in arrays]
    except Exception:
        return None

    def waiting(call: Callable[[], Any]) -> Callable[[], Any]:
        def timed() -> None:
            call()
            cupy.cuda.get_current_stream().synchronize()

        return timed

    return {job: {"gpu": waiting(c["hforest"])} for job, c in rungs(kind, *moved).items()}


def loads_and_bytes(kind: Any, job: str, depth: int, n_outputs: int, itemsize: int) -> tuple[int, int]:
    """Returns the least loads of one sample-tree pair, and its bytes of weights and gradients."""
    loads = 3 * depth if kind == "tree" else depth
    row = n_outputs * itemsize
    return {
        "traverse": (loads, 0),
        "forward": (loads, row),
        "backward": (0, 3 * row),
        "backward sparse": (0, 3 * row),
        "forward+backward": (loads, 4 * row),
    }[job]


def problem(kind: Any, shape: tuple[int, ...], dtype: np.dtype) -> tuple[Any, ...]:
    """Returns x, thresholds, features, weights and a gradient with respect to the summed outputs."""
    n, n_features, n_trees, depth, n_outputs = shape
    rng = np.random.default_rng(0)
    t, f, w = hinge.init(n_trees, depth, n_features, n_outputs, kind=kind, dtype=dtype, rng=rng)
    x = rng.normal(size=(n, n_features)).astype(dtype)
    return x, t, f, w, rng.normal(size=(n, n_outputs)).astype(dtype)


def run_kind(
    kind: Any,
    shape: tuple[int, ...],
    threads: int,
    last: bool,
    best: dict[str, float],
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    """Measures every job and rung of one shape and kind."""
    rows: list[dict[str, Any]] = []
    hforest.set_num_threads(threads)
    dtype = np.dtype(options.dtype)
    arrays = problem(kind, shape, dtype)
    check(kind, *arrays)
    pairs = shape[0] * shape[2]
    with hforest.unchecked():
        jobs = rungs(kind, *arrays)
        if machine.simd() != "plain":
            for calls in list(jobs.values())[:-1]:
                calls["plain"] = plainly(calls["hforest"])
        best_peers = {}
        if options.peers:
            best_peers = add_peers(kind, arrays, jobs, hforest.get_num_threads(), options.settings)
        on_gpu = gpu_rungs(kind, arrays) if last and options.clock == "wall" else None
        for job, calls in (on_gpu or {}).items():
            jobs[job] |= calls
        for job, calls in jobs.items():
            if job not in options.jobs:
                continue
            loads, moved = loads_and_bytes(kind, job, shape[3], shape[4], dtype.itemsize)
            floor = loads / best["gathers_l1"] + moved / best["copy_bytes"]
            for rung, times in side_by_side(calls, options.repeats, CLOCKS[options.clock]).items():
                median = statistics.median(times) / pairs
                row = {
                    "shape": shape,
                    "kind": kind,
                    "job": job,
                    "rung": rung,
                    "dtype": options.dtype,
                    "threads": hforest.get_num_threads(),
                    "ns_per_pair": 1e9 * median,
                    "spread": spread(times),
                    "loads_per_pair": loads,
                    "bytes_per_pair": moved,
                    "floor_ns": 1e9 * floor,
                    "share_of_floor": floor / median,
                }
                if (job, rung) in best_peers:
                    peer = best_peers[job, rung]
                    row["formulation"] = peer.name
                    row["candidates"] = {name: 1e9 * s / pairs for name, s in peer.tried.items()}
                    row["not_compiled"] = peer.failed
                rows.append(row)
                print(
                    f"{','.join(map(str, shape)):>26} {kind:5} {job:16} {rung:10} {1e9 * median:9.2f} "
                    f"{100 * spread(times):6.0f}% {100 * floor / median:8.0f}%",
                    flush=True,
                )
    return rows


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures every number of threads, shape, kind, job and rung."""
    rows: list[dict[str, Any]] = []
    for count in options.threads:
        hforest.set_num_threads(count)
        best = ceilings(CLOCKS[options.clock])
        print(
            f"\n{hforest.get_num_threads()} thread(s): copy {best['copy_bytes'] / 1e9:.1f} GB/s, "
            f"independent loads {best['gathers_l1'] / 1e9:.2f} G/s from L1, "
            f"{best['gathers_l2'] / 1e9:.2f} G/s from L2"
        )
        rows.append({"threads": hforest.get_num_threads(), "ceilings": best})
        print(f"{'shape':>26} {'kind':5} {'job':16} {'rung':10} {'ns/pair':>9} {'spread':>7} {'of floor':>9}")
        for shape in options.shapes:
            for kind in options.kinds:
                cell = kind, shape, count, count == options.threads[-1], best, options
                if options.peers:
                    with new_process() as process:
                        rows += process.submit(run_kind, *cell).result()
                else:
                    rows += run_kind(*cell)
    return rows


def reference_rung(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures the speed of the reference, on a small part of the first shape."""
    n, n_features, n_trees, depth, n_outputs = options.shapes[0]
    n_trees = min(n_trees, 8)
    n = max(1, min(n, REFERENCE_PAIRS // n_trees))
    rows: list[dict[str, Any]] = []
    for kind in options.kinds:
        x, t, f, _, _ = problem(kind, (n, n_features, n_trees, depth, n_outputs), np.dtype(options.dtype))
        with hforest.using("reference"):
            call = partial(hinge.traverse, x, t, f, kind=kind)
            median = statistics.median(seconds(call, 3, clock=CLOCKS[options.clock])) / (n * n_trees)
        print(
            f"reference, {kind} traverse, {n} samples and {n_trees} trees of depth {depth}: "
            f"{1e9 * median:.0f} ns/pair"
        )
        rows.append({"kind": kind, "job": "traverse", "rung": "reference", "ns_per_pair": 1e9 * median})
    return rows


def call_rung(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures a call with almost no work: one sample, one tree of the first shape."""
    _, n_features, _, depth, n_outputs = options.shapes[0]
    rows: list[dict[str, Any]] = []
    for kind in options.kinds:
        x, t, f, w, _ = problem(kind, (1, n_features, 1, depth, n_outputs), np.dtype(options.dtype))
        forward = partial(hinge.forward, x, t, f, w, kind=kind)

        def thousand(call: Callable[[], Any] = forward) -> None:
            for _ in range(1000):
                call()

        def trusting(call: Callable[[], Any] = thousand) -> None:
            with hforest.unchecked():
                call()

        calls: Calls = {"hforest": thousand, "hforest unchecked": trusting}
        for rung, times in side_by_side(calls, options.repeats).items():
            microseconds = 1e3 * statistics.median(times)
            print(f"{kind} forward, one sample and tree, {rung}: {microseconds:.2f} us per call")
            rows.append({"kind": kind, "job": "call", "rung": rung, "microseconds": microseconds})
    return rows


def merged(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns old and new rows; a new measurement replaces the earlier one."""

    def what(row: dict[str, Any]) -> tuple[Any, ...]:
        names = ("shape", "kind", "job", "rung", "dtype", "threads")
        return tuple(tuple(row[name]) if name == "shape" else row[name] for name in names if name in row)

    again = {what(row) for row in new}
    return [row for row in old if what(row) not in again] + new


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shapes",
        nargs="+",
        type=sizes_like("1000,100,100,10,10"),
        default=list(SHAPES),
        metavar="n,F,M,D,K",
    )
    parser.add_argument("--kinds", nargs="+", choices=("tree", "fern"), default=["tree", "fern"])
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, hforest.get_num_threads()])
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--repeats", type=int, default=7)
    add_clock(parser)
    parser.add_argument(
        "--peers", action="store_true", help="also measure NumPy and, if installed, PyTorch and JAX"
    )
    parser.add_argument(
        "--settings",
        nargs="*",
        choices=SETTINGS,
        default=list(SETTINGS),
        help="settings of torch.compile that are tried on its fastest formulation",
    )
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument(
        "--append", action="store_true", help="keep rows of the file unless they are measured again"
    )
    options = options_of(parser, "--shapes 100,10,5,3,2 --threads 1 --repeats 1")
    print(machine_text())
    rows = reference_rung(options) + call_rung(options) + run(options)
    if options.json and options.append:
        rows = merged(json.loads(Path(options.json).read_text())["rows"], rows)
    if options.json:
        peer = {
            name: version(name)
            for name in ("torch", "jax")
            if options.peers and importlib.util.find_spec(name)
        }
        record(options.json, rows, command=" ".join(sys.argv), clock=options.clock, **peer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
