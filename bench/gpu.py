"""Tests and times of the CUDA backend on a GPU: kernels and whole jobs beside the CPU.

    python bench/gpu.py [--minutes 9] [--only "hinge*" ...] [--skip-tests] [--json bench/results/gpu.json]
    python bench/gpu.py --untimed

The first needs CuPy and a GPU. It measures the copy rate of the GPU, runs the tests of the GPU, and then each
job. The result of the GPU must be bit-identical to that of the CPU before anything is timed. The record has a
digest of the PTX of each kernel. --untimed prints the names of the kernels whose digest is another now: they
have never run on a GPU. It needs NVRTC: pip install -e '.[nvrtc]'. Columns:

gpu      microseconds per call, measured on the host: the median over repeats of a loop of calls and one wait
graph    the same calls without Python: replays of a CUDA graph, if a call can be captured (it must not wait)
cpu      the same function on this machine's CPU, with all its threads
share    the time to copy the minimum number of bytes that the call reads and writes, in percent of graph, or
         of gpu without a graph
peers    the same job in other libraries on the same GPU, if installed: compiled PyTorch, XGBoost, cuML,
         nvForest

If a job fails, its error is written to the record, and the next job runs. A job is skipped if the record has
its row of this GPU and these sources. No job begins after --minutes.
"""

import argparse
import fnmatch
import functools
import hashlib
import importlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock
from xml.etree import ElementTree

import numpy as np
from common import RESULTS, labels, machine_text, need, numbers, options_of, record, spread
from gpu_counts import of_tests

import hforest
from hforest import co2, grow, hinge, layers, neural, optim, project, split, tree

ROOT = Path(__file__).resolve().parents[1]
Call = Callable[[], Any]


class Job(NamedTuple):
    """A call, and the minimum number of bytes that it reads and writes."""

    call: Call
    bytes: float = 0.0
    once: bool = False
    """Whether the call is too long for a loop, and timed only a few times."""


# ------------------------------------------------------------------------------------------ hinge forests

MNIST, MANY = (53, 1000, 10, 5120, 10), (10_000, 1000, 10, 784, 10)
"""Samples, trees, depth, columns and outputs of MNIST's network (Lay et al. 2018), and of a large call."""


def hinge_arrays(xp: Any, shape: tuple[int, ...], kind: Any = "tree") -> tuple[Any, ...]:
    n, n_trees, depth, n_columns, n_outputs = shape
    parameters = hinge.init(n_trees, depth, n_columns, n_outputs, kind=kind, rng=0)
    x, grad_y = numbers(n, n_columns), numbers(n, n_outputs, seed=1)
    return tuple(xp.asarray(a) for a in (x, *parameters, grad_y))


def pairs_bytes(shape: tuple[int, ...]) -> float:
    """Returns the bytes of all pairs of sample and tree: path, columns and leaf, four bytes per number."""
    n, n_trees, depth, _, n_outputs = shape
    return 4.0 * n * n_trees * (3 * depth + n_outputs)


def hinge_forward(shape: tuple[int, ...], kind: Any, xp: Any) -> Job:
    *arrays, _ = hinge_arrays(xp, shape, kind)
    least = sum(a.nbytes for a in arrays)
    return Job(lambda: hinge.forward(*arrays, kind=kind, aggregate="sum"), min(least, pairs_bytes(shape)))


def hinge_backward(shape: tuple[int, ...], kind: Any, xp: Any) -> Job:
    *arrays, grad_y = hinge_arrays(xp, shape, kind)
    _, route = hinge.forward_with_route(*arrays, kind=kind, aggregate="sum")
    least = 12.0 * shape[0] * shape[1] + sum(a.nbytes for a in arrays)
    return Job(lambda: hinge.backward(grad_y, route, *arrays, kind=kind, aggregate="sum"), least)


def hinge_step(shape: tuple[int, ...], xp: Any) -> Job:
    """Returns a step: forward, softmax loss, backward and Adam on all parameters."""
    x, t, f, w, _ = hinge_arrays(xp, shape)
    y = xp.asarray(labels(shape[0], shape[4]))
    state, taken = hinge.adam_state(t, w), [0]

    def step() -> Any:
        taken[0] += 1
        return hinge.adam_step(x, y, t, f, w, state, taken[0], 0.005)

    return Job(step, 28.0 * (t.size + w.size))


def torch_step(shape: tuple[int, ...]) -> Call:
    """Returns the same step in PyTorch, compiled, with its kernels launched as one CUDA graph."""
    import torch
    from torch_peers import PlainForest

    torch.set_default_device("cuda")
    x, t, f, w, _ = (torch.as_tensor(a, device="cuda") for a in hinge_arrays(np, shape))
    y = torch.as_tensor(labels(shape[0], shape[4]), device="cuda").long()
    net = PlainForest(t, f, w, "index")
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005, fused=True)
    forward = torch.compile(net, mode="reduce-overhead", fullgraph=True)

    def step() -> float:
        loss = torch.nn.functional.cross_entropy(forward(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    first = step()
    scores = hinge.forward(*hinge_arrays(np, shape)[:4], aggregate="sum")
    expected, _ = layers.softmax_loss(scores, labels(shape[0], shape[4]))
    np.testing.assert_allclose(first, expected, rtol=1e-3)
    return step


# -------------------------------------------------------------------------------------- other algorithms


def softmax(xp: Any) -> Job:
    scores, y = xp.asarray(numbers(100_000, 10)), xp.asarray(labels(100_000, 10))
    return Job(lambda: layers.softmax_loss(scores, y), 2.0 * scores.nbytes + y.nbytes)


def adam(xp: Any) -> Job:
    grad, param, m = (xp.asarray(numbers(10_000_000, seed=i)) for i in range(3))
    v = m**2

    def step() -> Any:
        optim.adam(param, grad, m, v, 7, 0.001)
        return param[:1000]

    return Job(step, 7.0 * grad.nbytes)


def neural_arrays(xp: Any) -> tuple[Any, ...]:
    f = numbers(10_000, 100, 63)
    leaves = np.random.default_rng(1).random((100, 64, 10)).astype(np.float32)
    leaves /= leaves.sum(axis=2, keepdims=True)
    return tuple(xp.asarray(a) for a in (f, leaves, labels(10_000, 10)))


def neural_forward(xp: Any) -> Job:
    f, leaves, _ = neural_arrays(xp)
    return Job(lambda: neural.forward(f, leaves), f.nbytes + leaves.nbytes)


def neural_backward(xp: Any) -> Job:
    f, leaves, y = neural_arrays(xp)
    return Job(lambda: neural.loss_backward(f, leaves, y), 2.0 * f.nbytes + leaves.nbytes)


def neural_leaves(xp: Any) -> Job:
    f, leaves, y = neural_arrays(xp)
    call = functools.partial(neural.update_leaves, f, y, leaves, 5)
    return Job(call, 5.0 * f.nbytes + 2 * leaves.nbytes)


def projections(xp: Any) -> Job:
    x = numbers(10_000, 784)
    some = project.sample(project.patch_distribution((28, 28), patch_max=3), 28, rng=0)
    arrays = tuple(xp.asarray(a) for a in (x, *some))
    least = np.unique(some.indices).size / 784 * x.nbytes + 4.0 * 28 * len(x)
    return Job(lambda: project.project(*arrays), least)


def best_split(xp: Any) -> Job:
    values, y = xp.asarray(numbers(28, 50_000)), xp.asarray(labels(50_000, 2))
    return Job(lambda: split.best_split(values, y), values.nbytes + y.nbytes)


def stump(xp: Any) -> Job:
    x, y, w = numbers(20_000, 256), labels(20_000, 10), numbers(256, seed=2)
    x, y, w = (xp.asarray(a) for a in (x, y, w))
    return Job(lambda: tuple(co2.fit_stump(x, y, w, n_classes=10, max_rounds=3, rng=0)), x.nbytes, once=True)


def refined(xp: Any) -> Job:
    x, y = normal_table(20_000, 30, 10)
    forest = grow(x, y, 10, max_depth=8, rng=0)
    forest = tree.Forest(*map(xp.asarray, forest))
    x, y = xp.asarray(x), xp.asarray(y)
    return Job(lambda: arrays_of(co2.refine(forest, x, y, max_rounds=3, rng=0)), 10.0 * x.nbytes, once=True)


def surrogate_grad(xp: Any) -> Job:
    given = (
        numbers(20_000, 256),
        labels(20_000, 10),
        numbers(256, seed=2),
        numbers(10, seed=3),
        numbers(10, seed=4),
    )
    arrays = tuple(xp.asarray(a) for a in given)
    return Job(lambda: tuple(co2.surrogate_grad(*arrays)), 2.0 * arrays[0].nbytes)


# ------------------------------------------------------------------------------------------------ forests


@functools.cache
def normal_table(n: int, n_columns: int, n_classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Returns normal columns, and classes that depend on a third of the columns and on noise."""
    x = numbers(n, n_columns)
    score = x[:, : n_columns // 3].sum(axis=1) + 2 * numbers(n, seed=5)
    edges = np.quantile(score, np.arange(1, n_classes) / n_classes)
    return x, np.searchsorted(edges, score).astype(np.int32)


def arrays_of(forest: tree.Forest) -> tuple[Any, ...]:
    return tuple(a for a in forest if a is not None and hasattr(a, "dtype"))


def grown(n: int, n_trees: int, xp: Any, by_level: bool = False, **settings: Any) -> Job:
    """Trees; with by_level no block grows a small node to its leaves."""
    small = importlib.import_module("hforest.growth.gpu.small_nodes")
    x, y = normal_table(n, 30)
    if settings.get("task") == "regression":
        y = x[:, :10].sum(axis=1) + numbers(n, seed=6)
    x, y = xp.asarray(x), xp.asarray(y)

    def call() -> tuple[Any, ...]:
        with mock.patch.object(small, "SMALL", 0 if by_level else small.SMALL):
            return arrays_of(grow(x, y, n_trees, rng=0, **settings))

    return Job(call, n_trees * x.nbytes, True)


def projected(n: int, n_trees: int, xp: Any) -> Job:
    x, y = (xp.asarray(a) for a in normal_table(n, 784, 10))
    call = functools.partial(
        grow, x, y, n_trees, n_projections=28, rng=0,
        projections=project.patch_distribution((28, 28), patch_max=3),
    )  # fmt: skip
    return Job(lambda: arrays_of(call()), n_trees * x.nbytes, True)


@functools.cache
def small_forest() -> tree.Forest:
    return grow(*normal_table(50_000, 30), 100, rng=0)


def predicted(n: int, xp: Any) -> Job:
    forest, (x, _) = small_forest(), normal_table(n, 30)
    x = xp.asarray(x)
    if xp is not np:
        forest = forest._replace(**{k: xp.asarray(v) for k, v in forest._asdict().items() if v is not None})
    return Job(lambda: tree.predict(forest, x), x.nbytes + 8.0 * n, n > 100_000)


def xgboost_grow(n: int, n_trees: int) -> Call:
    """Returns a call that grows a random forest of XGBoost: one round of parallel trees, on 256 bins."""
    import xgboost

    x, y = normal_table(n, 30)
    model = xgboost.XGBRFClassifier(
        n_estimators=n_trees, max_depth=0, colsample_bynode=5 / 30, device="cuda", grow_policy="lossguide"
    )
    return lambda: model.fit(x, y)


def cuml_grow(n: int, n_trees: int) -> Call:
    """Returns a call that grows a forest of cuML on 256 quantiles."""
    import cupy
    from cuml.ensemble import RandomForestClassifier

    x, y = (cupy.asarray(a) for a in normal_table(n, 30))
    return lambda: RandomForestClassifier(n_estimators=n_trees, max_features=5, n_bins=256).fit(x, y)


def nvforest_predict(n: int, device: str = "gpu") -> Call:
    """Returns a call that applies the same trees by nvForest, with the layout that it finds the fastest."""
    import cupy
    import nvforest

    from hforest.treelite import to_treelite

    xp = cupy if device == "gpu" else np
    forest, (rows, _) = small_forest(), normal_table(n, 30)
    x, few = xp.asarray(rows), rows[:1000]
    model = nvforest.load_from_treelite_model(to_treelite(forest), device=device)
    model = model.optimize(data=x, predict_method="predict_proba")
    (shares,) = flat(model.predict_proba(xp.asarray(few)))
    np.testing.assert_allclose(shares, tree.predict(forest, few), rtol=1e-4, atol=1e-6)
    return lambda: model.predict_proba(x)


JOBS: dict[str, Callable[[Any], Job]] = {
    "hinge forward 53 x 1000": functools.partial(hinge_forward, MNIST, "tree"),
    "hinge backward 53 x 1000": functools.partial(hinge_backward, MNIST, "tree"),
    "hinge step 53 x 1000": functools.partial(hinge_step, MNIST),
    "hinge forward 10k x 1000": functools.partial(hinge_forward, MANY, "tree"),
    "hinge backward 10k x 1000": functools.partial(hinge_backward, MANY, "tree"),
    "fern forward 10k x 1000": functools.partial(hinge_forward, MANY, "fern"),
    "fern backward 10k x 1000": functools.partial(hinge_backward, MANY, "fern"),
    "softmax loss 100k": softmax,
    "adam 10M": adam,
    "neural forward 10k x 100": neural_forward,
    "neural backward 10k x 100": neural_backward,
    "neural leaves 10k x 100, 5 iterations": neural_leaves,
    "project 10k x 28": projections,
    "best split 28 x 50k": best_split,
    "surrogate gradient 20k x 256": surrogate_grad,
    "stump 20k x 256": stump,
    "refine 20k, 10 trees": refined,
    "predict 50k x 100": functools.partial(predicted, 50_000),
    "predict 1M x 100": functools.partial(predicted, 1_000_000),
    "grow 50k, 10 trees": functools.partial(grown, 50_000, 10),
    "grow 50k, 100 trees": functools.partial(grown, 50_000, 100),
    "grow 50k, 100 trees, by level": functools.partial(grown, 50_000, 100, by_level=True),
    "grow 50k, 100 trees, 255 bins": functools.partial(grown, 50_000, 100, max_bins=255),
    "grow 50k, 20 trees, regression": functools.partial(grown, 50_000, 20, task="regression"),
    "grow 10k x 784, 20 trees, patches": functools.partial(projected, 10_000, 20),
    "grow 1M, 10 trees": functools.partial(grown, 1_000_000, 10),
    "grow 1M, 10 trees, 255 bins": functools.partial(grown, 1_000_000, 10, max_bins=255),
    "grow 1M, 100 trees": functools.partial(grown, 1_000_000, 100),
}

PEERS: dict[str, dict[str, Callable[[], Call]]] = {
    "hinge step 53 x 1000": {"torch": functools.partial(torch_step, MNIST)},
    "predict 50k x 100": {"nvforest": functools.partial(nvforest_predict, 50_000)},
    "predict 1M x 100": {"nvforest": functools.partial(nvforest_predict, 1_000_000)},
    "grow 50k, 100 trees, 255 bins": {
        "xgboost": functools.partial(xgboost_grow, 50_000, 100),
        "cuml": functools.partial(cuml_grow, 50_000, 100),
    },
    "grow 1M, 10 trees, 255 bins": {
        "xgboost": functools.partial(xgboost_grow, 1_000_000, 10),
        "cuml": functools.partial(cuml_grow, 1_000_000, 10),
    },
}


# ---------------------------------------------------------------------------------------------- measuring


def flat(result: Any) -> Iterator[np.ndarray]:
    """Yields the arrays and numbers of a result, on the host."""
    if isinstance(result, tuple | list):
        for part in result:
            yield from flat(part)
    elif result is not None:
        yield np.asarray(result.get() if hasattr(result, "get") else result)


def difference(ours: Any, theirs: Any) -> str:
    """Returns "" if both are bit-identical, otherwise a description of the difference."""
    a, b = list(flat(ours)), list(flat(theirs))
    if [(i.shape, i.dtype) for i in a] != [(i.shape, i.dtype) for i in b]:
        return f"shapes {[i.shape for i in a]}, {[i.shape for i in b]}"
    for i, (left, right) in enumerate(zip(a, b, strict=True)):
        if left.tobytes() != right.tobytes():
            unequal = int((left != right).sum())
            apart = np.abs(left.astype(np.float64) - right.astype(np.float64)).max()
            return f"array {i}: {unequal} of {left.size} differ, by {apart:.3g} at most"
    return ""


def timed(call: Call, wait: Call, once: bool, repeats: int = 5) -> list[float]:
    """Returns microseconds per call, after a first one: loops of about 50 ms and a wait, or single calls."""

    def loop(n: int) -> float:
        begin = time.perf_counter()
        for _ in range(n):
            call()
        wait()
        return time.perf_counter() - begin

    alone = loop(1)
    if once:
        return [1e6 * alone, *(1e6 * loop(1) for _ in range(2 * (alone < 2)))]
    loops = max(1, min(2000, round(0.05 / alone)))
    return [1e6 * loop(loops) / loops for _ in range(repeats)]


def graph_time(call: Call) -> float | None:
    """Returns microseconds per replay of the call as a CUDA graph; None if it cannot be captured."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    try:
        with stream:
            call()
            stream.synchronize()
            stream.begin_capture()
            try:
                kept = call()
            finally:
                graph = stream.end_capture()
            graph.launch(stream)
            stream.synchronize()
            taken = timed(lambda: graph.launch(stream), stream.synchronize, False)
        del kept
    except Exception:  # a wait or a copy to the host within the call
        return None
    return statistics.median(taken)


def bandwidth() -> float:
    """Returns the bytes per second that a copy of 2 GB on the device reads and writes."""
    import cupy

    source = cupy.ones(1 << 28, np.float32)
    target = cupy.empty_like(source)
    wait = cupy.cuda.Device().synchronize
    taken = timed(lambda: cupy.copyto(target, source), wait, False)
    return 1e6 * 2 * source.nbytes / statistics.median(taken)


def run(name: str, copied: float) -> dict[str, Any]:
    """Checks the results of one job, then measures its times."""
    import cupy

    wait = cupy.cuda.Device().synchronize
    theirs, ours = JOBS[name](np), JOBS[name](cupy)
    row: dict[str, Any] = {"job": name, "differs": difference(ours.call(), theirs.call())}
    with hforest.unchecked():
        taken = timed(ours.call, wait, ours.once)
        row |= {"gpu": statistics.median(taken), "spread": spread(taken)}
        row["graph"] = None if ours.once else graph_time(ours.call)
        row["cpu"] = statistics.median(timed(theirs.call, lambda: None, ours.once))
    row |= {"bytes": ours.bytes, "share": 1e6 * ours.bytes / copied / (row["graph"] or row["gpu"])}
    row["checked"] = None if ours.once else statistics.median(timed(ours.call, wait, False))
    for peer, build in PEERS.get(name, {}).items():
        try:
            row[peer] = statistics.median(timed(build(), wait, ours.once))
        except ImportError:
            row[peer] = None
        except Exception as error:  # a peer that fails does not stop the rest
            row[peer] = f"{type(error).__name__}: {error}"[:300]
    return row


def tests(minutes: float) -> dict[str, Any]:
    """Runs the tests of the GPU in separate processes; returns the number of passes, and the failures."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        words = ["-q", "-k", "gpu and not stub and not nvrtc", "-p", "no:benchmark"]
        words += [
            "-n",
            str(min(12, os.cpu_count() or 1)),
            "-m",
            "not nightly",
            f"--junitxml={report}",
            "tests",
        ]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[1:])}
        pytest = subprocess.Popen([sys.executable, "-m", "pytest", *words], cwd=ROOT, env=environment)
        finished = True
        try:
            pytest.wait(60 * minutes)
        except subprocess.TimeoutExpired:
            finished = False
            pytest.send_signal(signal.SIGINT)  # it reports the tests that ran
            try:
                pytest.wait(30)
            except subprocess.TimeoutExpired:
                pytest.kill()
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    failed, skipped = {}, 0
    for case in cases:
        skipped += case.find("skipped") is not None
        for kind in ("failure", "error"):
            found = case.find(kind)
            if found is not None:
                failed[f"{case.get('classname')}.{case.get('name')}"] = (found.text or "")[-1200:]
    return {
        "passed": len(cases) - skipped - len(failed), "skipped": skipped, "failed": failed,
        "finished": finished, "seconds": time.perf_counter() - begin,
    }  # fmt: skip


def sources() -> str:
    """Returns a digest of the sources on which a row depends."""
    paths = sorted(
        p for p in (ROOT / "hforest").rglob("*") if p.suffix in (".py", ".cu", ".cuh", ".h", ".pyx")
    )
    return hashlib.sha256(b"".join(p.read_bytes() for p in paths)).hexdigest()[:12]


def kernels() -> dict[str, Any] | None:
    """Returns the version of NVRTC and the digest of each kernel, or None without NVRTC."""
    nvrtc, ptx = of_tests("host.nvrtc"), of_tests("host.ptx")
    library = nvrtc.library()
    return library and {"nvrtc": nvrtc.version(library), "digests": ptx.digests(np.float32)}


def untimed(known: dict[str, Any], found: dict[str, Any]) -> str:
    """Returns the table of the page: kernels of `found` that are not those of the record `known`."""
    assert known["nvrtc"] == found["nvrtc"], f"the digests on record are of NVRTC {known['nvrtc']}"
    names: dict[str, list[str]] = {}
    for name, text in found["digests"].items():
        subpackage, kernel = name.split("/")
        if known["digests"].get(name) != text:
            names.setdefault(subpackage, []).append(f"`{kernel}`")
    total = [name.split("/")[0] for name in found["digests"]]
    rows = [f"| `{a}` | {len(b)} of {total.count(a)} | {', '.join(sorted(b))} |" for a, b in names.items()]
    return "\n".join(["| subpackage | kernels | names |", "|---|---|---|", *rows])


def shown(microseconds: float | None) -> str:
    """Returns a time with three digits in its unit."""
    if microseconds is None:
        return "–"
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= 0.9995 * size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} µs"


NOT_SHOWN = (
    "softmax loss 100k", "adam 10M", "project 10k x 28", "fern forward 10k x 1000",
    "fern backward 10k x 1000", "neural backward 10k x 100", "best split 28 x 50k",
    "surrogate gradient 20k x 256", "predict 50k x 100", "grow 50k, 10 trees",
    "grow 50k, 100 trees, 255 bins", "grow 1M, 10 trees", "grow 1M, 10 trees, 255 bins",
)  # fmt: skip
"""Jobs of the record that the page does not show."""


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Returns the table of the page: times of jobs, and the CPU's time divided by the GPU's."""
    lines = ["| job | GPU | as a CUDA graph | CPU | CPU / GPU |", "|---|---|---|---|---|"]
    for row in (row for row in rows if row["job"] not in NOT_SHOWN):
        times = " | ".join(shown(row[name]) for name in ("gpu", "graph", "cpu"))
        ratio = float(f"{row['cpu'] / row['gpu']:.2g}")
        lines.append(f"| {row['job']} | {times} | {ratio:g} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--only", nargs="+", metavar="PATTERN", default=["*"])
    parser.add_argument("--skip-tests", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument(
        "--untimed", action="store_true", help="print the kernels that have never run on a GPU"
    )
    options = options_of(parser, "--only project* --skip-tests")
    if options.untimed:
        found = kernels()
        if found is None:
            sys.exit("gpu.py: expected NVRTC, got none; run pip install -e '.[nvrtc]' in the checkout")
        print(untimed(json.loads((RESULTS / "gpu.json").read_text())["kernels"], found))
        return 0
    need("-e '.[cuda13]'", "cupy")
    import cupy

    end = time.perf_counter() + 60 * options.minutes
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    about: dict[str, Any] = {"device": device, "sources": sources(), "cupy": cupy.__version__}
    about["kernels"] = kernels()
    about["cuda"] = cupy.cuda.runtime.runtimeGetVersion()
    path, rows = Path(options.json) if options.json else None, []
    if path is not None and path.exists():
        old = json.loads(path.read_text())
        if all(old.get(key) == about[key] for key in ("device", "sources")):
            about, rows = (
                {k: v for k, v in old.items() if k not in ("machine", "config", "rows")},
                old["rows"],
            )

    def keep() -> None:
        if path is not None:
            record(path, rows, **about)

    print(f"{device}, CUDA {about['cuda']}, CuPy {about['cupy']}; {machine_text()}")
    about["copy"] = bandwidth()
    print(f"copy {about['copy'] / 1e12:.2f} TB/s (read and written)", flush=True)
    if not options.skip_tests and "tests" not in about:
        about["tests"] = tests(0.6 * options.minutes)
        failed = about["tests"].get("failed", {})
        print("tests:", {**about["tests"], "failed": len(failed)}, flush=True)
        for name, text in list(failed.items())[:10]:
            print(f"--- {name}\n{text[-500:]}", flush=True)
        keep()
    done = {row["job"] for row in rows if "error" not in row}
    print(f"{'job':36} {'gpu us':>11} {'graph us':>10} {'cpu us':>12} {'share':>7}  peers; differences")
    for name in JOBS:
        if name in done or not any(fnmatch.fnmatch(name, p) for p in options.only):
            continue
        if time.perf_counter() > end:
            print(f"{name:36} not begun: the time is over")
            continue
        try:
            row = run(name, about["copy"])
            peers = {k: row[k] for k in PEERS.get(name, {})}
            graph = f"{row['graph']:10.1f}" if row["graph"] else f"{'':10}"
            print(
                f"{name:36} {row['gpu']:11.1f} {graph} {row['cpu']:12.1f} {100 * row['share']:6.1f}%  "
                f"{peers or ''} {row['differs']}",
                flush=True,
            )
        except Exception as error:
            row = {"job": name, "error": f"{type(error).__name__}: {error}"[:500]}
            print(f"{name:36} {row['error']}\n{traceback.format_exc()[-800:]}", flush=True)
        rows = [*(r for r in rows if r["job"] != name), row]
        keep()
        cupy.get_default_memory_pool().free_all_blocks()
    return 0


if __name__ == "__main__":
    sys.exit(main())
