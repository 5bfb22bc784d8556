"""Measurements for docs/promises.md: memory, memory limits, threads and kills.

    python bench/robustness.py                      # all four tables, about three minutes
    python bench/robustness.py --parts memory kills --n-kills 50

memory    the peak memory of a call minus the memory of the process before it, divided by the bytes of its
          inputs and outputs. A call that only makes its output has a ratio below 1.
limits    each call in a process whose address space may grow by a number of megabytes. The call returns a
          result, bit-identical to that without a limit, or raises MemoryError. Anything else is broken.
threads   hashes of the results of every subpackage (bench/bits.py) with other numbers of threads, and from
          several Python threads at once: the number of results that differ from one thread.
kills     a process that saves over one file in a loop is killed: whether the file can be read, and the number
          of parts beside it.

Linux only. The exit status is 1 if anything is broken.
"""

import argparse
import ctypes
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import bits
import numpy as np
from common import machine_text, options_of, sparse
from digests import digest

import hforest
from hforest import cascade, co2, grow, hinge, neural, project, samples, split, tree

Call = Callable[[], Any]
MEGABYTES = (4, 16, 64, 256, 1024)
THREADS = (2, 3, 7, 16)


def calls(n: int) -> dict[str, tuple[tuple[Any, ...], Call]]:
    """Returns, by name, inputs and a call on them, for n samples of 40 float32 features."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 40)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int32)
    p = hinge.init(20, 8, 40, 4, rng=1)
    q = p._replace(features=rng.normal(size=(20, 255, 40)).astype(np.float32))
    route = hinge.traverse(x, p.thresholds, p.features)
    grad_y = np.ones((n, 20, 4), np.float32)
    f = rng.normal(size=(n, 4, 31)).astype(np.float32)
    leaves = neural.uniform_leaves(4, 5, 2)
    grown = grow(x[:2000], y[:2000], 20, max_depth=8, rng=0)
    drawn = project.sample(project.sparse_distribution(40), 60, rng=0)
    values = np.ascontiguousarray(x[:, :8].T)
    return {
        "hinge.traverse": ((x, *p), partial(hinge.traverse, x, *p[:2])),
        "hinge.forward": ((x, *p), partial(hinge.forward, x, *p)),
        "hinge.backward": ((grad_y, *route, x, *p), partial(hinge.backward, grad_y, route, x, *p)),
        "hinge.forward, projections": ((x, *q), partial(hinge.forward, x, *q, margin="projection")),
        "hinge.backward, projections": (
            (grad_y, *route, x, *q),
            partial(hinge.backward, grad_y, route, x, *q, margin="projection"),
        ),
        "neural.forward": ((f, leaves), partial(neural.forward, f, leaves)),
        "neural.loss_backward": ((f, leaves, y), partial(neural.loss_backward, f, leaves, y)),
        "neural.update_leaves": ((f, leaves, y), partial(neural.update_leaves, f, y, leaves, 2)),
        "project.project": ((x, *drawn), partial(project.project, x, *drawn)),
        "split.best_split": ((values, y), partial(split.best_split, values, y)),
        "tree.apply": ((x, *grown), partial(tree.apply, grown, x)),
        "tree.predict": ((x, *grown), partial(tree.predict, grown, x)),
        "grow, exact": ((x, y), partial(grow, x, y, 4, rng=0)),
        "grow, 256 bins": ((x, y), lambda: grow(samples(x, max_bins=256), y, 4, rng=0)),
        "grow, projections": ((x, y), partial(sparse, x, y, 4, rng=0)),
        "co2.grow": ((x[:500], y[:500]), partial(co2.grow, x[:500], y[:500], 1, max_depth=2, rng=0)),
    }


def size_of(arrays: Any) -> int:
    """Returns the bytes of arrays and nested tuples."""
    if isinstance(arrays, (tuple, list)):
        return sum(size_of(a) for a in arrays)
    return int(getattr(arrays, "nbytes", 0))


def kilobytes(name: str) -> int:
    """Returns the number of a line of this process's memory report."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name)))


def child(name: str, n: int, megabytes: int | None) -> None:
    """Prints what a call needs or, under a limit, how it ends."""
    calls(200)[name][1]()  # starts threads, imports modules
    inputs, call = calls(n)[name]
    ctypes.CDLL(None).malloc_trim(0)  # otherwise the call would use memory that making the inputs has freed
    if megabytes is None:
        Path("/proc/self/clear_refs").write_text("5")
        before = kilobytes("VmRSS")
        result = call()
        more = (kilobytes("VmHWM") - before) * 1024
        print(json.dumps({"more": more, "inputs": size_of(inputs), "outputs": size_of(result),
                          "hash": digest(result)}))  # fmt: skip
        return
    import resource

    limit = kilobytes("VmSize") * 1024 + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    try:
        result = call()
    except MemoryError:
        print(json.dumps({"ended": "MemoryError"}))
        return
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(json.dumps({"ended": "answer", "hash": digest(result)}))


def in_child(name: str, n: int, megabytes: int | None = None) -> dict[str, Any]:
    """Returns the output of `child` in a separate process, or the way in which that process ended."""
    words = [sys.executable, __file__, "--child", name, "--n-samples", str(n)]
    words += [] if megabytes is None else ["--megabytes", str(megabytes)]
    run = subprocess.run(words, capture_output=True, text=True)
    if run.returncode or not run.stdout:
        last = (run.stderr.strip() or "nothing").splitlines()[-1]
        return {"ended": f"exit status {run.returncode}: {last}"}
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def memory_and_limits(n: int, limits: Iterable[int]) -> int:
    """Prints one line per call; returns the number that ended neither in an answer nor in MemoryError."""
    limits = list(limits)
    heads = "".join(f"{m:>9} MB" for m in limits)
    print(f"\n{n} samples, 40 features, float32\n{'call':28} inputs  outputs  more MB  of both{heads}")
    broken = 0
    for name in calls(10):
        free = in_child(name, n)
        if "more" not in free:
            print(f"{name:28} {free['ended']}")
            broken += 1
            continue
        both = free["inputs"] + free["outputs"]
        line = (
            f"{name:28} {free['inputs'] / 1e6:6.1f}  {free['outputs'] / 1e6:7.1f}  {free['more'] / 1e6:7.1f}"
        )
        line += f"  {free['more'] / both:7.2f}"
        for megabytes in limits:
            found = in_child(name, n, megabytes)
            ended = found["ended"]
            if ended == "answer" and found["hash"] != free["hash"]:
                ended = "OTHER BITS"
            broken += ended not in ("answer", "MemoryError")
            line += f"{ended:>12}"
        print(line, flush=True)
    return broken


def threads() -> int:
    """Prints and returns the number of results that differ from those of one thread."""

    def hashes(n_threads: int) -> dict[str, str]:
        hforest.set_num_threads(n_threads)
        return dict(bits.results())

    before = hforest.get_num_threads()
    expected = hashes(1)
    n_different = 0
    for n_threads in THREADS:
        found = hashes(n_threads)
        different = sum(found[name] != value for name, value in expected.items())
        print(f"{n_threads:2} threads: {len(found)} results, {different} differ from one thread", flush=True)
        n_different += different
    with ThreadPoolExecutor(4) as pool:
        all_found = list(pool.map(hashes, (1, 2, 3, 4)))
    different = sum(found[name] != value for found in all_found for name, value in expected.items())
    n_results = len(expected) * len(all_found)
    print(f"4 Python threads at once: {n_results} results, {different} differ")
    hforest.set_num_threads(before)
    return n_different + different


def saver(path: str) -> None:
    """Saves two cascades in turn over one file until it is killed."""
    cascades = two_cascades()
    for k in range(1_000_000):
        cascade.save(path, cascades[k % 2])
        if k == 1:
            print("ready", flush=True)


def two_cascades() -> list[Any]:
    """Returns two different cascades of about a megabyte."""
    x, y = np.random.default_rng(0).normal(size=(2000, 10)), np.arange(2000) % 2
    grower = partial(grow, n_trees=10, max_depth=10)
    return [cascade.grow(x, y, [grower], max_levels=1, n_folds=2, rng=seed) for seed in (0, 1)]


def kills(n_kills: int) -> int:
    """Prints the state of files after kills; returns the number that could not be read."""
    whole = [digest([list(f) for level in c.levels for f in level]) for c in two_cascades()]
    unread, beside, rng = 0, 0, random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cascade.npz"
        for _ in range(n_kills):
            words = [sys.executable, __file__, "--saver", str(path)]
            with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as run:
                assert run.stdout is not None
                run.stdout.readline()
                time.sleep(rng.uniform(0, 0.3))
                run.send_signal(signal.SIGKILL)
            try:
                loaded = cascade.load(path)
                assert isinstance(loaded, cascade.Cascade)
                unread += digest([list(f) for level in loaded.levels for f in level]) not in whole
            except (OSError, ValueError) as error:
                print(f"  {error}")
                unread += 1
            beside = max(beside, len(list(Path(folder).iterdir())) - 1)
        cascade.save(path, two_cascades()[0])
        left = len(list(Path(folder).iterdir())) - 1
    print(
        f"{n_kills} kills: {unread} files lost; parts beside the file: at most {beside}, {left} after a save"
    )
    return unread


def main() -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description="Figures of memory, memory limits, threads and kills.")
    parser.add_argument("--parts", nargs="*", default=["memory", "limits", "threads", "kills"])
    parser.add_argument("--n-samples", type=int, default=100_000)
    parser.add_argument("--n-kills", type=int, default=21)
    parser.add_argument("--megabytes", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--saver", help=argparse.SUPPRESS)
    options = options_of(parser, "--parts kills --n-kills 2")
    if options.child:
        child(options.child, options.n_samples, options.megabytes)
        return 0
    if options.saver:
        saver(options.saver)
    print(machine_text())
    broken = 0
    if {"memory", "limits"} & set(options.parts):
        broken += memory_and_limits(options.n_samples, MEGABYTES if "limits" in options.parts else ())
    if "threads" in options.parts:
        broken += threads()
    if "kills" in options.parts:
        broken += kills(options.n_kills)
    print(f"{broken} broken")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
