"""The peers in bench/hinge.py: hinge forests in NumPy, PyTorch (eager and compiled) and JAX.

NumPy is vectorised over samples and trees, level by level. Of PyTorch and JAX every formulation of
bench/formulations.py is compared with the results of hforest and timed, and the fastest is the peer: routes
first, then sums and gradients on the fastest route of each order of memory, all forward passes as one graph,
and the fastest one with each of SETTINGS. Results are the outputs summed over trees, and the gradients with
respect to input, thresholds and weights. Each problem has its own process: see bench/compiled.py.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from compiled import FAST, compiled
from formulations import READS, Library, add, again, hand, jax_library, route, torch_library

from hforest import hinge

Calls = dict[str, Callable[[], Any]]


def depth_of(kind: str, thresholds: Any) -> int:
    """Returns the number of levels of a tree or fern."""
    return thresholds.shape[1] if kind == "fern" else (thresholds.shape[1] + 1).bit_length() - 1


def numpy_traverse(kind: str, x: Any, thresholds: Any, features: Any) -> tuple[Any, Any, Any]:
    """Returns the traversal as array expressions compute it."""
    n, m = x.shape[0], thresholds.shape[0]
    trees, samples = np.arange(m), np.arange(n)[:, None]
    v, leaf, vertex = np.zeros((n, m), np.int32), np.zeros((n, m), np.int32), np.zeros((n, m), np.int32)
    margin = None
    for level in range(depth_of(kind, thresholds)):
        at = np.full_like(v, level) if kind == "fern" else v
        r = x[samples, features[trees, at]] - thresholds[trees, at]
        if margin is None:
            margin = r
        else:
            closer = abs(r) < abs(margin)
            margin, vertex = np.where(closer, r, margin), np.where(closer, at, vertex)
        right = (r > 0).astype(np.int32)
        leaf, v = 2 * leaf + right, 2 * v + 1 + right
    return leaf, margin, vertex


def numpy_step(kind: str, x: Any, t: Any, f: Any, w: Any, grad_y: Any) -> tuple[Any, Any, Any, Any]:
    """Returns y, and the gradients with respect to x, thresholds and weights."""
    leaf, margin, vertex = numpy_traverse(kind, x, t, f)
    trees, samples = np.arange(len(t)), np.arange(len(x))[:, None]
    rows = w[trees, leaf]
    y = (rows * abs(margin)[:, :, None]).sum(axis=1)
    slope = np.einsum("nmk,nk->nm", rows, grad_y) * np.sign(margin)
    grad_x, grad_t, grad_w = np.zeros_like(x), np.zeros_like(t), np.zeros_like(w)
    np.add.at(grad_x, (samples, f[trees, vertex]), slope)
    np.subtract.at(grad_t, (np.broadcast_to(trees, vertex.shape), vertex), slope)
    np.add.at(
        grad_w, (np.broadcast_to(trees, leaf.shape), leaf), abs(margin)[:, :, None] * grad_y[:, None, :]
    )
    return y, grad_x, grad_t, grad_w


SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "defaults": ("int32", {}),
    "max-autotune": ("int32", {**FAST, "max_autotune": True}),
    "scalar": ("int32", {**FAST, "cpp.simdlen": 1}),
    "256 bits": ("int32", {**FAST, "cpp.simdlen": 256}),
    "int64": ("int64", FAST),
}
"""Types of indices and settings of torch.compile that are tried on the fastest formulation."""
NARROW = "256 bits"
"""The setting that is also tried on all forward passes with gradients by hand."""
COMPILER_ERRORS = ("InductorError", "BackendCompilerFailed", "CppCompileError")
LARGEST = 10**8
"""Samples times trees times outputs; libraries keep such arrays several times."""


class Runner(NamedTuple):
    """A library with its arrays, and how it calls a part of a formulation."""

    name: str
    lib: Library
    arrays: tuple[Any, ...]
    wrapped: Callable[[Any], Callable[..., Any]]
    """Returns the part as a call without gradients."""
    gradient: Callable[[Any], Callable[..., Any]]
    """Returns a call of (x, t, w, f, rows, vertices, grad_y) for the outputs and gradients of the part."""


class Best(NamedTuple):
    """The fastest formulation: its call, the seconds of every candidate, and candidates without a program."""

    call: Callable[[], Any]
    name: str
    tried: dict[str, float]
    failed: list[str]


class Tried:
    """Candidates that compute the same, with their times; one that PyTorch's compiler fails on has none."""

    def __init__(self, want: tuple[Any, ...], rung: str) -> None:
        self.want, self.rung = want, rung
        self.times: dict[str, float] = {}
        self.calls: dict[str, Callable[[], Any]] = {}
        self.failed: list[str] = []

    def keep(self, name: str, call: Callable[[], Any]) -> None:
        """Compares the results of a candidate with those of hforest, and times it."""
        try:
            self.times[name] = taken(call, self.want, name)
            self.calls[name] = call
        except Exception as error:  # PyTorch's class of errors is found without its private modules
            if self.rung != "torch.compile" or type(error).__name__ not in COMPILER_ERRORS:
                raise
            self.failed.append(name)

    def best(self) -> Best:
        """Returns the fastest."""
        name = fastest(self.times)
        return Best(as_arrays(self.calls[name]), name, self.times, self.failed)


def torch_runner(
    arrays: tuple[Any, ...], compiling: bool, index: str = "int32", options: dict[str, Any] | None = None
) -> Runner:
    """Returns PyTorch, eager or compiled."""
    import torch

    lib = torch_library(index)
    x, t, f, w, grad_y = (torch.from_numpy(np.array(a)) for a in arrays)
    make = partial(compiled, options=FAST if options is None else options) if compiling else lambda part: part

    def wrapped(part: Any) -> Callable[..., Any]:
        return torch.no_grad()(make(part))

    def gradient(part: Any) -> Callable[..., Any]:
        outputs = make(part)

        def call(x: Any, t: Any, w: Any, f: Any, rows: Any, near: Any, grad_y: Any) -> Any:
            parameters = [a.detach().requires_grad_() for a in (x, t, w)]
            y = outputs(*parameters, f, rows, near)
            return y.detach(), *torch.autograd.grad(y, parameters, grad_y)

        return call

    name = "torch.compile" if compiling else "torch"
    return Runner(name, lib, (x, t, f.to(lib.int_type), w, grad_y), wrapped, gradient)


def jax_runner(arrays: tuple[Any, ...], threads: int) -> Runner:
    """Returns JAX, compiled by `jax.jit`; with one thread XLA sees one processor."""
    seen = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if threads == 1 and seen:
        os.sched_setaffinity(0, {min(seen)})
    import jax
    import jax.numpy as jnp

    given = tuple(jnp.asarray(a).block_until_ready() for a in arrays)
    if threads == 1 and seen:
        os.sched_setaffinity(0, seen)

    def wrapped(part: Any) -> Callable[..., Any]:
        return jax.jit(part)

    def gradient(part: Any) -> Callable[..., Any]:
        def call(x: Any, t: Any, w: Any, f: Any, rows: Any, near: Any, grad_y: Any) -> Any:
            y, pull = jax.vjp(lambda x, t, w: part(x, t, w, f, rows, near), x, t, w)
            return y, *pull(grad_y)

        return jax.jit(call)

    return Runner("jax.jit", jax_library(), given, wrapped, gradient)


def runners(arrays: tuple[Any, ...], threads: int) -> list[Runner]:
    """Returns the libraries that are installed."""
    found = []
    with contextlib.suppress(ImportError):
        import torch

        torch.set_num_threads(threads)
        found = [torch_runner(arrays, compiling) for compiling in (False, True)]
    with contextlib.suppress(ImportError):
        found.append(jax_runner(arrays, threads))
    return found


def taken(call: Callable[[], Any], want: tuple[Any, ...], name: str) -> float:
    """Returns the least processor time of a call whose results are first compared with those of hforest."""
    for a, b in zip(call(), want, strict=True):
        a = np.asarray(a)
        a = a.T if a.shape != b.shape else a
        # Where two margins are as small, another order of operations may find another vertex.
        if np.isclose(a, b, rtol=1e-4, atol=1e-4 * abs(b).max()).mean() < 1 - 2e-5:
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * abs(b).max(), err_msg=name)
    least, begin = np.inf, time.process_time()
    for _ in range(20):
        once = time.process_time()
        [np.asarray(a) for a in call()]  # waits for the result
        least = min(least, time.process_time() - once)
        if time.process_time() - begin > 0.1:
            break
    return least


def fastest(tried: dict[str, float]) -> str:
    """Returns the name of the fastest candidate."""
    return min(tried, key=tried.__getitem__)


def as_arrays(call: Callable[[], Any]) -> Callable[[], Any]:
    """Returns the call with results as NumPy arrays."""
    return lambda: tuple(np.asarray(a) for a in call())


class Search:
    """Formulations of one library for one problem, the fastest found in steps."""

    def __init__(
        self,
        kind: str,
        runner: Runner,
        arrays: tuple[Any, ...],
        want: tuple[Any, ...],
        settings: Sequence[str] = tuple(SETTINGS),
    ) -> None:
        self.kind, self.runner, self.want, self.settings = kind, runner, want, settings
        x, t, f, w, _ = arrays
        found = hinge.traverse(x, t, f, kind="fern" if kind == "fern" else "tree")
        trees = np.arange(len(t))
        self.route = (
            found.leaf + trees * w.shape[1], np.asarray(found.margin), found.vertex + trees * t.shape[1]
        )  # fmt: skip
        self.reads: dict[str, dict[str, float]] = {}
        sums = {"samples": ("index", *runner.lib.sums), "trees": ("index",)}
        self.totals = {
            order: {how: runner.wrapped(add(runner.lib, order, how)) for how in ways}
            for order, ways in sums.items()
        }

    def find(self, order: str, read: str, vertices: bool, runner: Runner) -> Callable[[], Any]:
        """Returns the call of a route."""
        x, t, f, _, _ = runner.arrays
        return partial(runner.wrapped(route(runner.lib, self.kind, order, read, vertices)), x, t, f)

    def routes(self) -> dict[str, tuple[str, Callable[[], Any]]]:
        """Returns the fastest read of each order, and its call."""
        best = {}
        for order, read in READS[self.kind]:
            call = self.find(order, read, False, self.runner)
            rows, margins, _ = self.route
            self.reads.setdefault(order, {})[read] = taken(call, (rows, abs(margins)), f"{read} by {order}")
            if fastest(self.reads[order]) == read:
                best[order] = read, call
        return best

    def forward(self) -> Best:
        """Returns the fastest forward pass."""
        tried = Tried(self.want[:1], self.runner.name)
        whole: dict[str, tuple[str, str, str]] = {}

        def in_parts(find: Any, total: Any, runner: Runner) -> Callable[[], Any]:
            w = runner.arrays[3]
            return lambda: (total(w, *find()),)

        for order, (read, find) in self.routes().items():
            for how in self.totals[order]:
                name = f"{read}, {how}, by {order}"
                whole[name] = order, read, how
                tried.keep(name, in_parts(find, self.totals[order][how], self.runner))
        if self.runner.name == "torch":
            return tried.best()
        for order, read in READS[self.kind]:
            for how in self.totals[order]:
                name = f"{read}, {how}, by {order}, one graph"
                whole[name] = order, read, how
                tried.keep(name, self.graph(order, read, how, self.runner))
        if self.runner.name == "torch.compile":
            name = fastest(tried.times)
            order, read, how = whole[name]
            for setting in self.settings:
                index, options = SETTINGS[setting]
                runner = torch_runner(tuple(map(np.asarray, self.runner.arrays)), True, index, options)
                if name.endswith("one graph"):
                    call = self.graph(order, read, how, runner)
                else:
                    total = runner.wrapped(add(runner.lib, order, how))
                    call = in_parts(self.find(order, read, False, runner), total, runner)
                tried.keep(f"{name}, {setting}", call)
        return tried.best()

    def graph(
        self, order: str, read: str, how: str, runner: Runner, vertices: bool = False
    ) -> Callable[[], Any]:
        """Returns the forward pass as one graph; with `vertices` it returns outputs and the route."""
        find, total = route(runner.lib, self.kind, order, read, vertices), add(runner.lib, order, how)

        def both(x: Any, t: Any, f: Any, w: Any) -> Any:
            found = find(x, t, f)
            return (total(w, *found[:2]), *(found if vertices else ()))

        return partial(runner.wrapped(both), *runner.arrays[:4])

    def backward(self) -> Best:
        """Returns the fastest forward and backward pass; call `forward` first."""
        x, t, f, w, grad_y = self.runner.arrays
        lib, wrapped = self.runner.lib, self.runner.wrapped
        tried = Tried(self.want, self.runner.name)
        rows, margins, near = self.route
        for order, reads in self.reads.items():
            read = fastest(reads)
            find = self.find(order, read, True, self.runner)
            taken(find, (rows, margins, near), f"{read} by {order}, vertices")
            scatter = wrapped(hand(lib, order))
            for how, total in self.totals[order].items():
                outputs = self.runner.gradient(again(lib, order, how))

                def by_hand(find: Any = find, total: Any = total, scatter: Any = scatter) -> Any:
                    found = find()
                    return total(w, *found[:2]), *scatter(grad_y, *found, x, t, f, w)

                def by_library(find: Any = find, outputs: Any = outputs) -> Any:
                    rows, _, near = find()
                    return outputs(x, t, w, f, rows, near, grad_y)

                ways: dict[str, Callable[[], Any]] = {
                    "by hand": by_hand,
                    "differentiated": by_library,
                }
                if self.runner.name != "torch":
                    whole = self.graph(order, read, how, self.runner, True)

                    def forward_whole(whole: Any = whole, scatter: Any = scatter) -> Any:
                        y, *found = whole()
                        return y, *scatter(grad_y, *found, x, t, f, w)

                    ways["one graph forward, by hand"] = forward_whole
                for way, call in ways.items():
                    tried.keep(f"{read}, {how}, by {order}, {way}", call)
        if self.runner.name == "torch.compile" and NARROW in self.settings:
            self.narrow(tried)
        return tried.best()

    def narrow(self, tried: "Tried") -> None:
        """Tries gradients by hand after a forward pass of one graph, with vectors of 256 bits."""
        index, options = SETTINGS[NARROW]
        runner = torch_runner(tuple(map(np.asarray, self.runner.arrays)), True, index, options)
        x, t, f, w, grad_y = runner.arrays
        for order in self.totals:
            scatter = runner.wrapped(hand(runner.lib, order))
            for read in [b for a, b in READS[self.kind] if a == order]:
                for how in self.totals[order]:
                    whole = self.graph(order, read, how, runner, True)

                    def call(whole: Any = whole, scatter: Any = scatter) -> Any:
                        y, *found = whole()
                        return y, *scatter(grad_y, *found, x, t, f, w)

                    tried.keep(f"{read}, {how}, by {order}, one graph forward, by hand, {NARROW}", call)


def layer(kind: Any, arrays: tuple[Any, ...], sparse: bool) -> Callable[[], Any]:
    """Returns forward and backward of the operator of hforest.torch, by autograd."""
    import torch

    import hforest.torch as ht

    x, t, f, w, grad_y = (torch.from_numpy(np.array(a)) for a in arrays)
    parameters = [a.requires_grad_() for a in (x, t, w)]

    def call() -> Any:
        y = ht.hinge_forest(x, t, f, w, kind=kind, sparse=sparse)
        return y.detach(), *torch.autograd.grad(y, parameters, grad_y)

    return call


def add_peers(
    kind: str, arrays: tuple[Any, ...], jobs: dict[str, Calls], threads: int, settings: Sequence[str]
) -> dict[tuple[str, str], Best]:
    """Adds the rungs of the peers, each compared with the results of hforest before it is timed.

    Returns the formulations of PyTorch's and JAX's by job and rung.
    """
    want = tuple(np.asarray(a) for a in jobs["forward+backward"]["hforest"]())
    n_values = len(arrays[0]) * len(arrays[1]) * arrays[3].shape[2]
    if n_values <= 4 * 10**6:
        step = partial(numpy_step, kind, *arrays)
        taken(step, want, "numpy")
        jobs["traverse"]["numpy"] = partial(numpy_traverse, kind, *arrays[:3])
        jobs["forward+backward"]["numpy"] = step
    best: dict[tuple[str, str], Best] = {}
    for runner in runners(arrays, threads) if n_values <= LARGEST else ():
        search = Search(kind, runner, arrays, want, settings)
        best["forward", runner.name] = search.forward()
        best["forward+backward", runner.name] = search.backward()
        if runner.name == "torch":
            jobs["forward+backward"] |= {
                f"hforest.torch{', sparse' * sparse}": layer(kind, arrays, sparse) for sparse in (False, True)
            }
    for (job, rung), found in best.items():
        jobs[job][rung] = found.call
    return best
