"""Counts the resources of the CUDA kernels without a GPU: memory, threads, launches, waits, registers.

    python bench/gpu_counts.py [--parts kernels calls resources] [--only JOB ...] [--dtype float32]
        [--all] [--host] [--json FILE]

Each job is a call of a public function. With --json, parts and jobs that are not selected keep the figures of
the record. With an empty `--parts` the tables of the record are printed. Nothing is timed but with --host,
which records nothing: calls that do not wait, on the stub device whose kernels do not run, except CuPy's
sorts. This is the time of Python and CuPy, without that of CUDA's launches. There are three parts:

* kernels: the host build runs the kernels as C++ and counts the memory accesses of each warp
  (tests/host/counts.cpp). Needs GCC 12 or later.
* calls: launches and waits, and copies to and from the device, of CuPy on the stub device (lab/stub). Needs
  HFOREST_STUB and its environment.
* resources: registers, spills and shared memory, as NVRTC's assembler reports them, and the share of the
  threads of a multiprocessor that they allow. Needs NVRTC: pip install -e '.[nvrtc]'.

Columns of jobs and kernels:

busy      number of blocks, and percentage of the launched threads, that access memory
lanes     threads that take part in an access of global memory, in percent of the 32 threads of a warp
asked     bytes used, in percent of the 32-byte sectors that the instructions of a warp request
block     the same if each block reads and writes a sector at most once, as with a perfect cache
least     megabytes that the launch must transfer: distinct bytes read, and distinct bytes written
us        the time of this transfer in microseconds, at the 3.35 TB/s of an H100's memory
sectors   megabytes of the sectors that blocks request, as in block
banks     passes of shared memory, divided by the passes without bank conflicts
atomics   atomic operations, and the largest number on one address in a launch
steps     successive accesses of the warp with the most accesses, summed over launches

Columns of tables, for exact trees of two classes on a million float32 rows, all of whose values differ:

sampled   candidates per node
table     gigabytes of x, of its bins, and of the values of bins
sample    bytes that a growing tree takes per sample
trees     gigabytes of 100 trees, and the number that grow at once in 40 GB, half the memory of an 80 GB GPU

The minimum of a job counts the bytes of its arguments and results once. Launches include kernels of CuPy
(sorts, sums); their memory is not counted.
"""

import argparse
import contextlib
import functools
import importlib
import json
import os
import sys
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from common import labels, numbers, options_of, record

import hforest
from hforest import co2, growth, hinge, layers, neural, optim, project, split, tree
from hforest.core import launch

PARTS = ("kernels", "calls", "resources")
ROOT = Path(__file__).resolve().parents[1]
BYTES_A_SECOND = 3.35e12
ARCHITECTURES = (80, 90, 100)
REGISTERS, MAX_WARPS, MAX_BLOCKS, WARP = 65536, 64, 32, 32
SHARED = {80: 164 << 10, 90: 228 << 10, 100: 228 << 10}
"""Shared memory of a multiprocessor; a block needs 1 KB more than it uses."""
SECTOR = 32


class Job(NamedTuple):
    """A call, and the arrays that it reads."""

    call: Callable[[], Any]
    reads: Any


def flat(values: Any) -> Iterator[Any]:
    """Yields the arrays of nested tuples."""
    if isinstance(values, tuple | list):
        for value in values:
            yield from flat(value)
    elif hasattr(values, "nbytes") and hasattr(values, "dtype"):
        yield values


def n_bytes(values: Any) -> int:
    return sum(a.nbytes for a in flat(values))


def moved(xp: Any, *arrays: Any) -> tuple[Any, ...]:
    return tuple(xp.asarray(a) for a in arrays)


# --------------------------------------------------------------------------------------------------- jobs


def hinge_arrays(xp: Any, dtype: Any, kind: Any = "tree") -> tuple[Any, ...]:
    parameters = hinge.init(100, 8, 784, 10, kind=kind, dtype=dtype, rng=0)
    return moved(xp, numbers(1000, 784, dtype=dtype), *parameters)


def hinge_forward(xp: Any, dtype: Any, kind: Any = "tree") -> Job:
    arrays = hinge_arrays(xp, dtype, kind)
    return Job(lambda: hinge.forward(*arrays, kind=kind, aggregate="sum"), arrays)


def hinge_backward(xp: Any, dtype: Any, kind: Any = "tree") -> Job:
    arrays = hinge_arrays(xp, dtype, kind)
    y, route = hinge.forward_with_route(*arrays, kind=kind, aggregate="sum")
    return Job(
        lambda: hinge.backward(y, route, *arrays, kind=kind, aggregate="sum"), (y, tuple(route), arrays)
    )


def hinge_step(xp: Any, dtype: Any) -> Job:
    """Returns a step of Adam of MNIST's network (Lay et al. 2018): 53 samples, 1000 trees of depth 10."""
    x, t, f, w, y = moved(
        xp,
        numbers(53, 5120, dtype=dtype),
        *hinge.init(1000, 10, 5120, 10, dtype=dtype, rng=0),
        labels(53, 10),
    )
    state, taken = hinge.adam_state(t, w), [0]

    def step() -> Any:
        taken[0] += 1
        return hinge.adam_step(x, y, t, f, w, state, taken[0], 0.005), t, w, tuple(state)

    return Job(step, (x, y, t, f, w, tuple(state)))


def softmax(xp: Any, dtype: Any) -> Job:
    scores, y = moved(xp, numbers(20_000, 10, dtype=dtype), labels(20_000, 10))
    return Job(lambda: layers.softmax_loss(scores, y), (scores, y))


def data(n: int, n_columns: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    x = numbers(n, n_columns, dtype=dtype)
    return x, (x[:, : n_columns // 3].sum(axis=1) > 0).astype(np.int32)


def grown(
    n: int, n_columns: int, xp: Any, dtype: Any, by_level: bool = False, max_bins: int | None = None,
    **settings: Any,
) -> Job:  # fmt: skip
    """A tree; with by_level no block grows a small node to its leaves."""
    small = importlib.import_module("hforest.growth.gpu.small_nodes")
    x, y = data(n, n_columns, dtype)
    x, y = moved(xp, x, x[:, 0] + x[:, 1] if settings.get("task") == "regression" else y)

    def call() -> Any:
        with mock.patch.object(small, "SMALL", 0 if by_level else small.SMALL):
            return tuple(
                growth.grow(
                    growth.samples(x, max_bins=max_bins), y, 1, max_features=n_columns, rng=0, **settings
                )
            )

    return Job(call, (x, y))


def projected_root(xp: Any, dtype: Any) -> Job:
    x, y = moved(xp, *data(50_000, 144, dtype))
    patches = project.patch_distribution((12, 12), patch_max=3)
    return Job(
        lambda: tuple(growth.grow(x, y, 1, n_projections=28, projections=patches, max_depth=1, rng=0)), (x, y)
    )


def best_split(xp: Any, dtype: Any) -> Job:
    values, y = moved(xp, numbers(28, 50_000, dtype=dtype), labels(50_000, 2))
    return Job(lambda: split.best_split(values, y), (values, y))


def applied(xp: Any, dtype: Any) -> Job:
    forest, (x, _) = growth.grow(*data(2000, 30, dtype), 100, rng=0), data(10_000, 30, dtype)
    if xp is not np:
        arrays = {name: xp.asarray(a) for name, a in forest._asdict().items() if isinstance(a, np.ndarray)}
        forest = forest._replace(**arrays)
    x = xp.asarray(x)
    return Job(lambda: tree.apply(forest, x), (tuple(forest), x))


def neural_arrays(xp: Any, dtype: Any) -> tuple[Any, ...]:
    leaves = np.random.default_rng(1).dirichlet(np.ones(10), (10, 64)).astype(dtype)
    return moved(xp, numbers(2000, 10, 63, dtype=dtype), leaves, labels(2000, 10))


def neural_forward(xp: Any, dtype: Any) -> Job:
    f, leaves, _ = neural_arrays(xp, dtype)
    return Job(lambda: neural.forward(f, leaves), (f, leaves))


def neural_backward(xp: Any, dtype: Any) -> Job:
    f, leaves, y = neural_arrays(xp, dtype)
    return Job(lambda: neural.loss_backward(f, leaves, y), (f, leaves, y))


def neural_leaves(xp: Any, dtype: Any) -> Job:
    f, leaves, y = neural_arrays(xp, dtype)
    return Job(lambda: neural.update_leaves(f, y, leaves, 2), (f, leaves, y))


def stump(xp: Any, dtype: Any) -> Job:
    x, y, w = moved(xp, numbers(5000, 64, dtype=dtype), labels(5000, 10), numbers(64, dtype=dtype, seed=2))
    return Job(lambda: tuple(co2.fit_stump(x, y, w, n_classes=10, max_rounds=1, rng=0)), (x, y, w))


def projections(xp: Any, dtype: Any) -> Job:
    some = project.sample(project.patch_distribution((28, 28), patch_max=3), 28, dtype=dtype, rng=0)
    arrays = moved(xp, numbers(10_000, 784, dtype=dtype), *some)
    return Job(lambda: project.project(*arrays), arrays)


def adam(xp: Any, dtype: Any) -> Job:
    param, grad, m, v = moved(xp, *(abs(numbers(1_000_000, dtype=dtype, seed=i)) for i in range(4)))

    def step() -> Any:
        optim.adam(param, grad, m, v, 7, 0.001)
        return param, m, v

    return Job(step, (param, grad, m, v))


def adam_rows(xp: Any, dtype: Any) -> Job:
    param, m, v = moved(xp, *(abs(numbers(100_000, 10, dtype=dtype, seed=i)) for i in range(3)))
    rows, last = moved(xp, np.arange(0, 100_000, 2, dtype=np.int64), np.zeros(100_000, np.int64))
    grad = xp.asarray(numbers(50_000, 10, dtype=dtype, seed=4))
    taken = [0]

    def step() -> Any:
        taken[0] += 1
        optim.adam_rows(param, rows, grad, m, v, last, taken[0], 0.001)
        return tuple(a[:50_000] for a in (param, m, v))

    return Job(step, (grad, rows, last[:50_000], *(a[:50_000] for a in (param, m, v))))


JOBS: dict[str, Callable[[Any, Any], Job]] = {
    "hinge.forward": hinge_forward,
    "hinge.backward": hinge_backward,
    "hinge.forward, ferns": functools.partial(hinge_forward, kind="fern"),
    "hinge.backward, ferns": functools.partial(hinge_backward, kind="fern"),
    "hinge, step of Adam": hinge_step,
    "layers.softmax_loss": softmax,
    "grow, root": functools.partial(grown, 50_000, 28, max_depth=1),
    "grow, root, bins": functools.partial(grown, 50_000, 28, max_depth=1, max_bins=255),
    "grow, root, targets": functools.partial(grown, 50_000, 28, max_depth=1, task="regression"),
    "grow, whole tree": functools.partial(grown, 5000, 28),
    "grow, whole tree, bins": functools.partial(grown, 5000, 28, max_bins=255),
    "grow, whole tree, by level": functools.partial(grown, 5000, 28, by_level=True),
    "grow, whole tree, bins, by level": functools.partial(grown, 5000, 28, max_bins=255, by_level=True),
    "grow, root, projections": projected_root,
    "split.best_split": best_split,
    "tree.apply": applied,
    "neural.forward": neural_forward,
    "neural.loss_backward": neural_backward,
    "neural.update_leaves": neural_leaves,
    "co2.fit_stump": stump,
    "project.project": projections,
    "optim.adam": adam,
    "optim.adam_rows": adam_rows,
}
"""Made of the array module and the element type."""
LEVELS = {
    f"grow, {n} levels{kind}": functools.partial(
        grown, 5000, 28, max_depth=n, max_bins=max_bins, by_level=True
    )
    for kind, max_bins in (("", None), (", bins", 255))
    for n in (5, 6)
}
"""Jobs whose calls are counted, for what a level takes: five levels and six of each kind."""


# ------------------------------------------------------------------------------------------------- counts


def of_tests(name: str) -> Any:
    """Returns a module of the tests, which contain the host build and the stub device."""
    sys.path[:0] = [path for path in (str(ROOT / "tests"), str(ROOT / "lab")) if path not in sys.path]
    return importlib.import_module(name)


def count_kernels(name: str, dtype: Any = np.float32) -> list[dict[str, Any]]:
    """Returns a row for each kernel of a job, over its launches."""
    counts = of_tests("host.counts")
    if not counts.can_count():
        sys.exit(
            "gpu_counts.py: expected GCC 12 or later on Linux for the part kernels; leave it out of --parts"
        )
    job = JOBS[name](np, dtype)
    with hforest.unchecked(), counts.counting() as launches:
        result = job.call()
    least = n_bytes(job.reads) + n_bytes(result)
    rows: dict[str, dict[str, Any]] = {}
    for one in launches:
        row = rows.setdefault(
            one["kernel"],
            {
                "job": name,
                "kernel": one["kernel"],
                "job_bytes": least,
                "launches": 0,
                "block": 0,
                "block_memory": 0,
            }
            | dict.fromkeys(counts.NAMES, 0),
        )
        row["launches"] += 1
        for key in counts.NAMES:
            row[key] = max(row[key], one[key]) if key == "most_atomics" else row[key] + one[key]
        for key in ("block", "block_memory"):
            row[key] = max(row[key], one[key])
    return list(rows.values())


def stub_device() -> tuple[Any, Any]:
    """Returns the module of the stub device, and CuPy on it."""
    if "HFOREST_STUB" not in os.environ:
        sys.exit(
            "gpu_counts.py: expected HFOREST_STUB for calls on the stub device; see lab/stub/__init__.py"
        )
    stub = of_tests("stub")
    stub.install()
    import cupy

    return stub, cupy


def count_calls(name: str, dtype: Any = np.float32) -> dict[str, Any]:
    """Returns launches, waits and copies of a job's second call on the stub device, checked and unchecked."""
    stub, cupy = stub_device()
    job = (JOBS | LEVELS)[name](cupy, dtype)
    job.call()
    row: dict[str, Any] = {"job": name}
    for key, checks in (("checked", contextlib.nullcontext()), ("unchecked", hforest.unchecked())):
        with checks, stub.counted() as n:
            job.call()
            row[key] = {
                what: n(what) for what in ("launches", "waits", "to host", "to device", "allocations")
            }
    return row


def host_time(name: str, dtype: Any = np.float32) -> float | None:
    """Returns the microseconds of a call without its kernels; None for a call that waits."""
    stub, cupy = stub_device()
    job = JOBS[name](cupy, dtype)
    with hforest.unchecked():
        job.call()
        with stub.counted() as n:
            job.call()
        if n("waits"):
            return None
        with stub.idle():
            return 1e6 * min(timeit.repeat(job.call, number=100, repeat=9)) / 100


def a_level(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns a row for each kind of which both jobs are there: what six levels have more than five."""
    of_job, names, found = {row["job"]: row for row in rows}, list(LEVELS), []
    for five, six in zip(names[::2], names[1::2], strict=True):
        if not {five, six} <= of_job.keys():
            continue
        row: dict[str, Any] = {"job": six.replace("6 levels", "a level")}
        for key in ("checked", "unchecked"):
            row[key] = {what: n - of_job[five][key][what] for what, n in of_job[six][key].items()}
        found.append(row)
    return found


def occupancy(architecture: int, registers: int, shared: int, block: int) -> float:
    """Returns the share of a multiprocessor's 64 warps that run at once."""
    warps = -(-block // WARP)
    each = -(-max(registers, 1) * WARP // 256) * 256  # registers of a warp come in units of 256
    by_registers = REGISTERS // 4 // each * 4 // warps  # a quarter of them a scheduler
    by_memory = SHARED[architecture] // (-(-shared // 128) * 128 + 1024)
    return min(MAX_BLOCKS, MAX_WARPS // warps, by_registers, by_memory) * warps / MAX_WARPS


def count_resources(rows: list[dict[str, Any]], dtype: Any = np.float32) -> list[dict[str, Any]]:
    """Returns a row for each kernel, with numbers for ARCHITECTURES; `rows` of kernels have their blocks."""
    nvrtc = of_tests("host.nvrtc")
    if nvrtc.library() is None:
        sys.exit("gpu_counts.py: expected NVRTC for the part resources; run pip install -e '.[nvrtc]'")
    sizes = {row["kernel"]: (row["block"], row["block_memory"]) for row in rows}
    made = []
    for subpackage in of_tests("host.compiler").SUBPACKAGES:
        source = launch.source(launch.PACKAGE / subpackage)
        found = [nvrtc.resources(source, a, dtype) for a in ARCHITECTURES]
        for kernel in sorted(found[0]):
            block, more = sizes.get(kernel, (launch.THREADS, 0))
            row = {key: [of[kernel][key] for of in found] for key in found[0][kernel]}
            each = zip(ARCHITECTURES, row["registers"], row["shared"], strict=True)
            share = [occupancy(a, registers, shared + more, block) for a, registers, shared in each]
            names = {"package": subpackage, "kernel": kernel, "block": block, "block_memory": more}
            made.append(names | row | {"occupancy": share})
    return made


def share(used: int, sectors: int) -> float:
    """Returns the fraction of the bytes of sectors that is used; 1 without sectors."""
    return used / (SECTOR * sectors) if sectors else 1.0


# ------------------------------------------------------------------------------------------------- tables


def markdown(head: list[str], body: list[list[str]]) -> str:
    lines = [f"| {' | '.join(line)} |" for line in (head, *body)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def moves(n: int) -> list[str]:
    """Returns megabytes, and the microseconds that an H100's memory takes for them."""
    return [f"{n / 1e6:.3g}", f"{1e6 * n / BYTES_A_SECOND:.3g}"]


def totals(rows: list[dict[str, Any]], key: str) -> dict[str, int]:
    """Sums over the kernels of each job."""
    found: dict[str, int] = {}
    for row in rows:
        found[row["job"]] = found.get(row["job"], 0) + row[key]
    return found


def jobs(rows: list[dict[str, Any]]) -> str:
    """Returns a table of the accesses of each job, summed over its kernels."""
    least = {row["job"]: row["job_bytes"] for row in rows}
    sectors, steps = totals(rows, "block_sectors"), totals(rows, "steps")
    head = ["job", "least", "sectors", "steps"]
    mb = {name: (moves(n)[0], moves(SECTOR * sectors[name])[0]) for name, n in least.items()}
    body = [[name, *of, str(steps[name])] for name, of in mb.items()]
    return markdown(head, body)


def kernels(rows: list[dict[str, Any]], least_share: float = 0.1) -> str:
    """Returns a table of the kernels with at least a share of the sectors or of the steps of their job."""
    head = ["job", "kernel", "launches", "busy", "lanes", "asked", "block", "least", "us", "banks", "atomics"]
    sums = {key: totals(rows, key) for key in ("block_sectors", "steps")}
    body = []
    for row in rows:
        if all(row[key] < least_share * of[row["job"]] for key, of in sums.items()):
            continue
        body.append([
            row["job"], f"`{row['kernel']}`", str(row["launches"]),
            f"{row['busy_blocks']}, {100 * row['busy_threads'] / row['threads']:.0f}",
            f"{100 * row['lanes'] / (WARP * row['requests']):.0f}" if row["requests"] else "–",
            f"{100 * share(row['bytes'], row['sectors']):.0f}",
            f"{100 * share(row['block_bytes'], row['block_sectors']):.0f}",
            *moves(row["read"] + row["written"]),
            f"{row['passes'] / row['best_passes']:.2f}" if row["best_passes"] else "–",
            f"{row['atomics']}, {row['most_atomics']}" if row["atomics"] else "–", str(row["steps"]),
        ])  # fmt: skip
    return markdown([*head, "steps"], body)


def calls(rows: list[dict[str, Any]]) -> str:
    """Returns a table of the launches and waits of calls."""
    head = ["job", "launches, waits", "the same, unchecked"]
    # Counts of growth on columns are per level.
    of_calls = [row for row in rows if "grow" not in row["job"] or "projections" in row["job"]]
    body = []
    for row in [*of_calls, *a_level(rows)]:
        counts = [f"{row[how]['launches']}, {row[how]['waits']}" for how in ("checked", "unchecked")]
        body.append([row["job"], *counts])
    return markdown(head, body)


def resources(rows: list[dict[str, Any]], below: float = 0.75) -> str:
    """Returns a table of registers and the occupancy that they allow, where it is below `below`."""
    sm = [f"registers, occupancy: sm_{a}" for a in ARCHITECTURES]
    body = []
    for row in rows:
        if min(row["occupancy"]) < below:
            pairs = zip(row["registers"], row["occupancy"], strict=True)
            each = [f"{registers}, {100 * part:.0f}" for registers, part in pairs]
            spills = max(map(sum, zip(row["spill_stores"], row["spill_loads"], strict=True)))
            shared = max(row["shared"]) + row["block_memory"]
            name = f"{row['package']} `{row['kernel']}`"
            body.append([name, str(row["block"]), str(shared), *each, str(spills)])
    return markdown(["kernel", "threads", "shared", *sm, "spills"], body)


def memory(tables: tuple[tuple[int, int], ...] = ((30, 5), (30, 30), (784, 28))) -> str:
    """Returns a table of the memory of growth, by numbers of columns and of candidates. Nothing is run."""
    builder, levels = (
        importlib.import_module(f"hforest.growth.{name}") for name in ("gpu.candidates", "gpu.builder")
    )
    n, real = 1_000_000, np.dtype(np.float32)
    task = builder.Task(np, real, SimpleNamespace(n_outputs=2, has_labels=1, is_whole=1, sign=None), 0, None)
    body = []
    for n_columns, n_sampled in tables:
        columns = builder.Columns(None, None, None, None, None, 4, n, n_columns, n, n_sampled)
        sample = levels.bytes_a_sample(task, builder.ColumnSource(columns, builder.Kinds(None)))
        beside = n * n_columns * (real.itemsize + 4 + 16)
        numbers = (
            f"{beside / 1e9:.1f}",
            str(sample),
            f"{100 * sample * n / 1e9:.0f}, {40e9 // (sample * n):.0f}",
        )
        body.append([str(n_columns), str(n_sampled), *numbers])
    return markdown(["columns", "sampled", "table", "sample", "trees"], body)


def table(rows: list[dict[str, Any]], made: str, *more: float) -> str:
    """Returns a table of rows: jobs, kernels, calls or resources."""
    tables: dict[str, Callable[..., str]] = {
        "jobs": jobs, "kernels": kernels, "calls": calls, "resources": resources
    }  # fmt: skip
    return tables[made](rows, *more)


def with_others(
    old: list[dict[str, Any]], new: list[dict[str, Any]], only: list[str]
) -> list[dict[str, Any]]:
    """Returns the rows of a record with those of the jobs in `only` replaced; all are new if it is empty."""
    rows, names = [row for row in old if only and row["job"] not in only] + new, list(JOBS | LEVELS)
    return sorted(rows, key=lambda row: names.index(row["job"]))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--only", nargs="+", default=[], choices=list(JOBS), metavar="JOB")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    parser.add_argument(
        "--all", action="store_true", help="print every kernel, not only those with most accesses"
    )
    parser.add_argument("--host", action="store_true", help="print the time of calls without kernels")
    parser.add_argument("--json", type=Path)
    options = options_of(parser, "--parts kernels --only hinge.forward")
    dtype = np.dtype(options.dtype).type
    parts: dict[str, Any] = {}
    if options.json is not None and options.json.exists():
        parts = json.loads(options.json.read_text(encoding="utf-8"))
    if "kernels" in options.parts:
        found = [row for name in options.only or JOBS for row in count_kernels(name, dtype)]
        parts["rows"] = with_others(parts.get("rows", []), found, options.only)
    if "resources" in options.parts:
        parts["resources"] = count_resources(parts.get("rows", []), dtype)
    if "calls" in options.parts:
        found = [count_calls(name, dtype) for name in options.only or JOBS | LEVELS]
        parts["calls"] = with_others(parts.get("calls", []), found, options.only)
    parts = {key: parts.get(key, []) for key in ("rows", "calls", "resources")}
    every = options.all
    print(table(parts["rows"], "jobs"), "\n")
    print(table(parts["rows"], "kernels", *[0.0] * every), "\n")
    print(table(parts["calls"], "calls"), "\n")
    print(table(parts["resources"], "resources", *[2.0] * every), "\n")
    print(memory())
    if options.host:
        times = {name: host_time(name, dtype) for name in options.only or JOBS}
        print(markdown(["job", "us"], [[name, f"{t:.0f}"] for name, t in times.items() if t is not None]))
    if options.json is not None and options.parts:
        rows = parts.pop("rows")
        record(options.json, rows, dtype=options.dtype, **parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
