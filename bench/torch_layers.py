"""Times of hforest.torch: overhead of its calls over the NumPy functions, and a training step beside PyTorch.

    python bench/torch_layers.py --threads 1 [--parts calls step rows convolution] [--json FILE]

calls: `hinge_forest` on 8 samples, 5 trees of depth 3 (6 features, 2 outputs) and on 53 samples, 100 trees of
depth 7 (10 outputs): forward without gradients, and forward and backward. Beside it are the NumPy functions,
and forward and backward of an autograd function that does nothing. Figures are microseconds, the minimum of
single calls in random order, each after a call of the function that does nothing. The overhead is the
difference from the NumPy functions.

step: a step of the network of Lay et al. 2018 for MNIST (80 convolutions of 5x5 with stride 3, normalisation,
1000 trees of depth 10 with ten classes in a leaf, batch 53, float32): forward, backward and Adam;
milliseconds. Beside it the same network in plain PyTorch (bench/torch_peers.py), eager and compiled, with
PyTorch's Adam: its loop over parameters, its fused kernel, and the step compiled. Each network has its own
process (bench/compiled.py), so that each is compiled once. The first rung is hforest's network with dense
gradients and PyTorch's fused Adam.

rows: forward, backward and step of a layer alone, `RowAdam` with sparse gradients and PyTorch's fused Adam
with dense ones, for layers of 13 thousand to 20 million leaf weights; milliseconds of processor time.

convolution: forward and backward of `HingeConv2d` on 16 images of 32 channels and 32x32, kernel 5, padding
2, 64 trees of depth 7, outputs of each tree apart or 32 summed over the trees; milliseconds, and the peak of
memory above images and parameters (Linux). Beside it `HingeForest` on windows unfolded by PyTorch.

Every part first checks its results: calls must be bit-identical; networks must agree in outputs, gradients
and losses of the first steps. Then calls take turns. The first steps of a network's turn are not counted,
since the caches contain the arrays of another network. Figures are the minimum and the median. With --json
rows of the same part and number of threads are replaced. Run the bench once for each number of threads,
because compiled code has a fixed number of threads.
"""

import argparse
import json
import multiprocessing
import random
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import machine_text, need, options_of, record
from compiled import new_process

import hforest
from hforest import hinge

SAMPLES, TREES, DEPTH, CLASSES, LR = 53, 1000, 10, 10, 0.005
KERNELS, FEATURES, BATCHES = 80, 5120, 40
Rows = list[dict[str, Any]]


# ------------------------------------------------------------------------------- calls


PROBLEMS = ((8, 5, 3, 6, 2), (53, 100, 7, 6, 10))
"""Samples, trees, depth, features and outputs of the small calls."""


def empty_call(tensors: list[Any], ones: Any) -> Callable[[], Any]:
    """Calls forward and backward of an autograd function that does nothing, with the tensors of a forest."""
    import torch

    x, t, _, w = tensors
    grads = [a.detach().clone() for a in (x, t, w)]

    class Empty(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, t: Any, f: Any, w: Any, words: Any, sparse: bool) -> Any:
            return x.new_empty((len(x), w.shape[2]))

        @staticmethod
        def backward(ctx: Any, grad_y: Any) -> Any:
            return grads[0], grads[1], None, grads[2], None, None

    return lambda: torch.autograd.grad(Empty.apply(*tensors, {}, False), [x, t, w], ones)


def in_turn(jobs: dict[str, Callable[[], Any]], before: Callable[[], Any], rounds: int) -> dict[str, float]:
    """Returns the minimum microseconds of each job; a round calls each job once, after `before`."""
    taken: dict[str, list[float]] = {name: [] for name in jobs}
    order, rng = list(jobs.items()), random.Random(0)
    for _ in range(rounds):
        rng.shuffle(order)
        for name, job in order:
            before()
            begin = time.perf_counter()
            kept = job()
            taken[name].append(1e6 * (time.perf_counter() - begin))
            del kept
    return {name: min(times) for name, times in taken.items()}


def calls(threads: int, repeats: int) -> Rows:
    """Measures microseconds of small calls."""
    rows = []
    for problem in PROBLEMS:
        rows += small_calls(threads, 100 * repeats, *problem)
    return rows


def small_calls(threads: int, rounds: int, n: int, trees: int, depth: int, width: int, outputs: int) -> Rows:
    """Returns the calls of one problem."""
    import torch

    import hforest.torch as ht

    t, f, w = hinge.init(trees, depth, width, outputs, rng=0)
    x = np.random.default_rng(0).standard_normal((n, width), np.float32)
    grad = np.ones((n, outputs), np.float32)
    tensors = [torch.from_numpy(a) for a in (x, t, f, w)]
    leaves = [a.clone().requires_grad_() if a.is_floating_point() else a for a in tensors]
    ones = torch.from_numpy(grad)
    empty = empty_call(leaves, ones)

    def plain() -> Any:
        return hinge.forward(x, t, f, w, aggregate="sum")

    def plain_both(sparse: bool) -> Any:
        y, route = hinge.forward_with_route(x, t, f, w, aggregate="sum")
        backward = hinge.backward_sparse if sparse else hinge.backward
        return y, backward(grad, route, x, t, f, w, aggregate="sum")

    def layer() -> Any:
        with torch.no_grad():
            return ht.hinge_forest(*tensors)

    def layer_both(sparse: bool) -> Any:
        y = ht.hinge_forest(*leaves, sparse=sparse)
        return y, torch.autograd.grad(y, [leaves[0], leaves[1], leaves[3]], ones)

    assert np.array_equal(layer().numpy(), plain())
    for sparse in (False, True):
        (y, found), (want, wanted) = layer_both(sparse), plain_both(sparse)
        assert np.array_equal(y.detach().numpy(), want)
        assert np.array_equal(found[0].numpy(), wanted.x)
        for got, of in zip(found[1:], (wanted.thresholds, wanted.weights), strict=True):
            dense = np.zeros_like(got.to_dense().numpy())
            if sparse:
                dense.reshape(-1, *of.values.shape[1:])[of.rows] = of.values
            assert np.array_equal(got.to_dense().numpy(), dense if sparse else of)
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "forward": (layer, plain),
        "forward and backward": (lambda: layer_both(False), lambda: plain_both(False)),
        "forward and backward, sparse": (lambda: layer_both(True), lambda: plain_both(True)),
    }
    jobs = {f"{job} {i}": call for job, pair in pairs.items() for i, call in enumerate(pair)}
    taken = in_turn({**jobs, "empty": empty}, empty, rounds)
    rows = []
    for job in pairs:
        ours, numpy = taken[f"{job} 0"], taken[f"{job} 1"]
        name = f"{n} x {trees}, {job}"
        rows.append({"part": "calls", "threads": threads, "job": name, "least": [ours, numpy]})
        print(
            f"  {name:40} hforest.torch {ours:6.1f}  NumPy {numpy:6.1f}  overhead {ours - numpy:6.1f}  "
            f"empty function {taken['empty']:6.1f}"
        )
    return rows


# -------------------------------------------------------------------------------- step


RUNGS = (
    "hforest, Adam(fused=True)",
    "hforest, RowAdam",
    "hforest, RowAdam, unchecked",
    "torch, Adam",
    "torch, fused Adam",
    "torch, fused Adam, embedding",
    "torch.compile, fused Adam",
    "torch.compile, fused Adam, index",
    "torch.compile, fused Adam, embedding",
    "torch.compile, fused Adam, by trees",
    "torch.compile, compiled Adam",
)
PLAIN: dict[str, tuple[tuple[str, ...], tuple[bool, bool], dict[str, bool]]] = {
    "torch, Adam": (("index",), (False, False), {"foreach": False}),
    "torch, fused Adam": (("index",), (False, False), {"fused": True}),
    "torch, fused Adam, embedding": (("embedding",), (False, False), {"fused": True}),
    "torch.compile, fused Adam": (("bag",), (True, False), {"fused": True}),
    "torch.compile, fused Adam, index": (("index",), (True, False), {"fused": True}),
    "torch.compile, fused Adam, embedding": (("embedding",), (True, False), {"fused": True}),
    "torch.compile, fused Adam, by trees": (("index", "trees", "flat"), (True, False), {"fused": True}),
    "torch.compile, compiled Adam": (("bag",), (True, True), {"foreach": True}),
}
"""Rungs in plain PyTorch: formulation of the forest; compiled network, optimiser; settings of Adam."""

_steps: dict[str, Callable[[int], float]] = {}
"""The rung of which this process takes steps."""


def networks() -> tuple[Any, Callable[..., Any], Callable[..., Any]]:
    """Returns batches, and functions that make hforest's network and plain ones from the same state."""
    import torch
    from torch import nn
    from torch_peers import PlainForest, PlainNorm

    import hforest.torch as ht

    torch.manual_seed(0)
    x, y = torch.rand(BATCHES, SAMPLES, 1, 28, 28), torch.randint(0, CLASSES, (BATCHES, SAMPLES))
    t, f, w = (torch.from_numpy(a) for a in hinge.init(TREES, DEPTH, FEATURES, CLASSES, rng=0))
    kernel = nn.Conv2d(1, KERNELS, 5, 3, bias=False).state_dict()

    def network(norm: Any, forest: Any) -> Any:
        net = nn.Sequential(nn.Conv2d(1, KERNELS, 5, 3, bias=False), nn.Flatten(), norm, forest)
        net[0].load_state_dict(kernel)
        return net

    def ours(sparse: bool = False) -> Any:
        forest = ht.HingeForest(FEATURES, TREES, DEPTH, CLASSES, sparse=sparse)
        forest.load_state_dict({"thresholds": t, "features": f, "weights": w})
        return network(ht.RunningNorm(FEATURES), forest)

    def plain(*form: str) -> Any:
        return network(PlainNorm(FEATURES), PlainForest(t, f, w, *form))

    return (x, y), ours, plain


def stepping(rung: str) -> Callable[[int], float]:
    """Returns a function that takes the i-th step of a rung and returns its loss."""
    import torch
    from torch_peers import stepper

    import hforest.torch as ht

    (x, y), ours, plain = networks()
    if rung in PLAIN:
        form, compiling, settings = PLAIN[rung]
        net = plain(*form)
        return stepper(net, torch.optim.Adam(net.parameters(), lr=LR, **settings), x, y, compiling)
    optimizer_of: Any = partial(torch.optim.Adam, fused=True)
    net = ours(sparse="RowAdam" in rung)
    if "RowAdam" in rung:
        optimizer_of = ht.RowAdam
    step = stepper(net, optimizer_of(net.parameters(), lr=LR), x, y)
    return without_checks(step) if "unchecked" in rung else step


def turn(rung: str, threads: int, steps: range) -> list[tuple[float, float, float]]:
    """Returns loss, milliseconds and processor milliseconds of each step, in the process of this rung."""
    import torch

    if rung not in _steps:
        hforest.set_num_threads(threads)
        torch.set_num_threads(threads)
        _steps[rung] = stepping(rung)
    taken = []
    for i in steps:
        begin, used = time.perf_counter(), time.process_time()
        loss = _steps[rung](i)
        taken.append((loss, 1e3 * (time.perf_counter() - begin), 1e3 * (time.process_time() - used)))
    return taken


def without_checks(step: Callable[[int], float]) -> Callable[[int], float]:
    """Returns the step inside `hforest.unchecked()`."""

    def call(i: int) -> float:
        with hforest.unchecked():
            return step(i)

    return call


def agree(ours: Any, others: list[Any], x: Any, y: Any) -> None:
    """Checks outputs, gradients and running statistics of one batch."""
    from torch.nn import functional
    from torch.testing import assert_close

    found = []
    for net in (ours, *others):
        scores = net(x)
        functional.cross_entropy(scores, y).backward()
        grads = [p.grad.to_dense() for p in net.parameters()]
        found.append([scores.detach(), *grads, net[2].mean.clone(), net[2].var.clone()])
        net.zero_grad()
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert_close(a, b, rtol=1e-3, atol=1e-4 * float(b.abs().max()))


def step(threads: int, repeats: int) -> Rows:
    """Measures milliseconds per training step."""
    (x, y), ours, plain = networks()
    forms = dict.fromkeys(form for form, _, _ in PLAIN.values())
    agree(ours(), [ours(sparse=True), *(plain(*form) for form in forms)], x[0], y[0])
    del ours, plain
    taken: dict[str, list[float]] = {name: [] for name in RUNGS}
    processor: dict[str, list[float]] = {name: [] for name in RUNGS}
    each, warm, i = 8, 2, 6
    with ExitStack() as stack:
        processes = {name: stack.enter_context(new_process()) for name in RUNGS}

        def take(name: str, steps: range) -> list[tuple[float, float, float]]:
            return processes[name].submit(turn, name, threads, steps).result()

        losses = {name: [loss for loss, _, _ in take(name, range(6))] for name in RUNGS}
        for found in losses.values():  # later ones depend on the last bits of early margins
            np.testing.assert_allclose(found[:2], losses[RUNGS[0]][:2], rtol=2e-3)
        for _ in range(repeats):
            for name in RUNGS:
                steps = take(name, range(i, i + each))[warm:]
                taken[name] += [wall for _, wall, _ in steps]
                processor[name] += [used for _, _, used in steps]
            i += each
    rows = []
    for name, times in taken.items():
        row = {
            "part": "step", "threads": threads, "rung": name, "least": min(times),
            "median": statistics.median(times), "processor": statistics.median(processor[name]),
            "losses": losses[name],
        }  # fmt: skip
        rows.append(row)
        print(
            f"  {name:42} least {row['least']:7.1f}  median {row['median']:7.1f}  "
            f"processor {row['processor']:7.1f}"
        )
    return rows


# ------------------------------------------------------------------------------- rows


LAYERS = ((53, 100, 7, 1), (512, 200, 8, 10), (53, 100, 10, 10), (53, 1000, 10, 10), (256, 500, 12, 10))
"""Samples, trees, depth and outputs."""


def rows(threads: int, repeats: int) -> Rows:
    """Measures a step of a layer with `RowAdam` and with PyTorch's fused Adam."""
    import torch

    import hforest.torch as ht

    found = []
    for n, n_trees, depth, outputs in LAYERS:
        torch.manual_seed(0)
        batches, layers = torch.randn(8, n, 40), []
        taken: tuple[list[float], ...] = ([], [])
        for sparse in (True, False):
            layer = ht.HingeForest(
                40, n_trees, depth, outputs, sparse=sparse, generator=torch.Generator().manual_seed(0)
            )
            adam = ht.RowAdam if sparse else partial(torch.optim.Adam, fused=True)
            layers.append((layer, adam(layer.parameters(), lr=LR)))
        for repeat in range(repeats + 1):
            for (layer, optimizer), times in zip(layers, taken, strict=True):
                begin = time.process_time()
                for x in batches:
                    optimizer.zero_grad()
                    layer(x).square().sum().backward()
                    optimizer.step()
                if repeat:
                    times.append(1e3 * (time.process_time() - begin) / len(batches))
            if not repeat:
                ours, plain = (layer(batches[0]).detach() for layer, _ in layers)
                torch.testing.assert_close(ours, plain, rtol=0, atol=1e-3 * float(plain.abs().max()))
        row = {
            "part": "rows", "threads": threads, "job": f"{n} x {n_trees}, depth {depth}, {outputs}",
            "weights": layers[0][0].weights.numel(), "least": [min(times) for times in taken],
        }  # fmt: skip
        found.append(row)
        of_rows, of_all = row["least"]
        print(f"  {row['job']:30} RowAdam {of_rows:7.2f}  fused {of_all:7.2f}  {of_all / of_rows:5.2f}")
    return found


# ------------------------------------------------------------------------------- convolution


FORESTS: dict[str, tuple[tuple[int, ...], Any]] = {
    "trees apart": ((), None),
    "32 outputs, summed": ((32,), "sum"),
}
WAYS = ("HingeConv2d", "unfolded")


def _layer(name: str, way: str, n: int) -> tuple[Callable[[], Any], Any, tuple[Any, ...]]:
    """Returns the forward pass of a convolution, a gradient of its result, and tensors with gradients."""
    import torch

    import hforest.torch as ht

    outputs, aggregate = FORESTS[name]
    torch.manual_seed(0)
    x = torch.randn(n, 32, 32, 32, requires_grad=True)
    layer = ht.HingeConv2d(32, 64, 7, 5, outputs, padding=2, aggregate=aggregate)

    def unfolded() -> Any:
        windows = torch.nn.functional.unfold(x, 5, padding=2).transpose(1, 2)
        t, f, w = layer.thresholds, layer.features, layer.weights
        y = ht.hinge_forest(windows.reshape(-1, 800), t, f, w, aggregate=layer.aggregate)
        return y.unflatten(0, (n, 32, 32)).permute(0, 3, 1, 2)

    forward = unfolded if way == "unfolded" else lambda: layer(x)
    return forward, torch.randn(n, 64 if aggregate is None else 32, 32, 32), (x, *layer.parameters())


def _kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def _peak(name: str, way: str, threads: int) -> float:
    """Returns the peak memory of a call in MB above that before; for a separate process on Linux."""
    import torch

    hforest.set_num_threads(threads)
    torch.set_num_threads(threads)
    forward, grad_y, given = _layer(name, way, 1)
    torch.autograd.grad(forward(), given, grad_y)  # the first call loads libraries
    forward, grad_y, given = _layer(name, way, 16)
    before = _kilobytes("VmRSS")
    torch.autograd.grad(forward(), given, grad_y)
    return (_kilobytes("VmHWM") - before) / 1e3


def convolution(threads: int, repeats: int) -> Rows:
    """Measures milliseconds and memory of a convolution."""
    import torch

    rows = []
    for name in FORESTS:
        ways = {way: _layer(name, way, 16) for way in WAYS}
        (y, grads), (want, wants) = (
            (found := forward(), torch.autograd.grad(found, given, grad_y))
            for forward, grad_y, given in ways.values()
        )
        assert torch.equal(y, want)
        for got, of in zip(grads, wants, strict=True):
            torch.testing.assert_close(got, of, rtol=1e-4, atol=1e-4)
        del y, want, grads, wants
        taken: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(repeats):
            for way, (forward, grad_y, given) in ways.items():
                begin = time.perf_counter()
                torch.autograd.grad(forward(), given, grad_y)
                taken[way].append(1e3 * (time.perf_counter() - begin))
        for way, times in taken.items():
            peak = float("nan")
            if Path("/proc/self/status").exists():
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    peak = pool.apply(_peak, (name, way, threads))
            row = {
                "part": "convolution", "threads": threads, "job": f"{name}, {way}", "least": min(times),
                "median": statistics.median(times), "peak_mb": peak,
            }  # fmt: skip
            rows.append(row)
            print(
                f"  {row['job']:34} least {row['least']:7.1f}  median {row['median']:7.1f} ms  "
                f"peak {peak:7.1f} MB"
            )
    return rows


PARTS: dict[str, Callable[[int, int], Rows]] = {
    "calls": calls,
    "step": step,
    "rows": rows,
    "convolution": convolution,
}


def table(rows: Rows, part: str) -> str:
    """Returns Markdown with one line per job or rung, and columns for each number of threads."""
    rows = [row for row in rows if row["part"] == part]
    counts = sorted({row["threads"] for row in rows})
    key = "rung" if part == "step" else "job"
    names = list(dict.fromkeys(row[key] for row in rows))
    found = {(row[key], row["threads"]): row for row in rows}
    heads = [f"{n} thread{'s' * (n > 1)}" for n in counts]
    titles = ["hforest.torch, NumPy", "overhead"]
    if part == "step":
        titles = ["processor ms", "fastest without RowAdam / this"]
    elif part == "convolution":
        titles = ["median", "peak MB"]
    elif part == "rows":
        titles = ["RowAdam, Adam(fused=True)", "ratio"]
    lines = [f"| {key} | {' | '.join(f'{head}: {title}' for head in heads for title in titles)} |"]
    lines.append("|---" * (1 + len(heads) * len(titles)) + "|")
    for name in names:
        cells = []
        for n in counts:
            row = found.get((name, n))
            if row is None:
                cells += ["–"] * len(titles)
            elif part == "calls":
                ours, numpy = row["least"]
                cells += [f"{ours:.0f}, {numpy:.0f}", f"{ours - numpy:.0f}"]
            elif part == "rows":
                ours, plain = row["least"]
                cells += [f"{ours:.2f}, {plain:.2f}", f"{plain / ours:.2f}"]
            elif part == "convolution":
                cells += [f"{row['median']:.0f}", f"{row['peak_mb']:.0f}"]
            else:
                peers = [r["processor"] for r in rows if r["threads"] == n and "RowAdam" not in r["rung"]]
                cells += [f"{row['processor']:.1f}", f"{min(peers) / row['processor']:.1f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--table", type=Path, metavar="FILE", help="print the tables of a record, without measurements"
    )
    args = options_of(parser, "--parts calls --repeats 1")
    if args.table:
        for part in args.parts:
            print(table(json.loads(args.table.read_text())["rows"], part) + "\n")
        return
    need("-e '.[bench,torch]'", "torch")
    import torch

    hforest.set_num_threads(args.threads)
    torch.set_num_threads(args.threads)
    print(f"{machine_text()}, PyTorch {torch.__version__}, {args.threads} thread(s)")
    rows: Rows = []
    for part in args.parts:
        print(part)
        rows += PARTS[part](args.threads, args.repeats)
    if args.json:
        kept = json.loads(args.json.read_text())["rows"] if args.json.exists() else []
        new = {(row["part"], row["threads"]) for row in rows}
        rows = [row for row in kept if (row["part"], row["threads"]) not in new] + rows
        record(args.json, rows, command=" ".join(sys.argv), torch=torch.__version__)


if __name__ == "__main__":
    main()
