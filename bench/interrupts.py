"""Latency of Ctrl-C: seconds from the signal to KeyboardInterrupt, for each kind of long call.

    python bench/interrupts.py                   # sizes of tens of seconds; up to 4 GB
    python bench/interrupts.py --small           # those of tests/test_interrupts.py
    python bench/interrupts.py encode grow       # calls whose name contains one of these words
    python bench/interrupts.py --alone           # also the time of each call without an interrupt

A call is interrupted three times, at different moments. Only calls from Python's main thread see signals.
"""

import argparse
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import options_of, sparse

import hforest
from hforest import cascade, co2, grow, hinge, neural, project, samples, split, tree

Call = Callable[[], Any]


def _samples(n: int, n_features: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns float32 samples and five classes; half of the samples are noise."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, n_features), dtype=np.float32)
    y = (5 * x[:, 0]).astype(np.int32)
    return x, np.where(rng.random(n) < 0.5, y, rng.integers(0, 5, n, dtype=np.int32))


def _encode(small: bool) -> Call:
    x, _ = _samples(1_000_000 if small else 3_000_000, 40)
    return lambda: samples(x).bins()


def _grow(small: bool) -> Call:
    x, y = _samples(100_000 if small else 1_000_000, 60)
    binned = samples(x, max_bins=256)
    return lambda: grow(binned, y, 100, max_features=None, rng=0)


def _grow_entropy(small: bool) -> Call:
    x, y = _samples(100_000 if small else 1_000_000, 30)
    return lambda: grow(x, y, 100, criterion="entropy", max_features=None, rng=0)


def _regression(small: bool) -> Call:
    x, y = _samples(100_000 if small else 1_000_000, 30)
    return lambda: grow(x, x[:, 0] + y, 100, task="regression", max_features=None, rng=0)


def _many_classes(small: bool) -> Call:
    rng = np.random.default_rng(0)
    x, y = rng.random((100, 1000), dtype=np.float32), rng.permutation(130_000)[:100]
    return lambda: grow(x, y, 1000, max_features=None, n_classes=130_000, rng=0)


def _extra(small: bool) -> Call:
    x, y = _samples(100_000 if small else 1_000_000, 30)
    return lambda: grow(x, y, 100, splitter="random", bootstrap=False, max_features=None, rng=0)


def _manifold(small: bool) -> Call:
    x, y = _samples(30_000 if small else 100_000, 100)
    return lambda: sparse(x, y, 100, rng=0)


def _manifold_doubles(small: bool) -> Call:
    x, y = _samples(30_000 if small else 100_000, 100)
    return lambda: sparse(x + 1e-9, y, 100, rng=0)


def _co2(small: bool) -> Call:
    x, y = _samples(20_000 if small else 100_000, 100)
    return lambda: co2.grow(x, y, 10, max_rounds=100, rng=0)


def _oc1_forest(small: bool) -> Call:
    x, y = _samples(5_000 if small else 50_000, 30)
    return lambda: co2.grow(x, y, 10, splitter="oc1", rng=0)


def _fit_stump(small: bool) -> Call:
    x, y = _samples(100_000 if small else 300_000, 200)
    settings = co2.StumpSettings(tau=1000)
    return lambda: co2.fit_stump(x, y, np.ones(200, np.float32), stump=settings, rng=0)


def _fit_oc1(small: bool) -> Call:
    x, y = _samples(100_000 if small else 300_000, 100)
    return lambda: co2.fit_oc1(x, y, np.ones(100, np.float32), rng=0)


def _refine(small: bool) -> Call:
    x, y = _samples(100_000 if small else 300_000, 100)
    forest = grow(x[:5000], y[:5000], 1, n_classes=int(y.max()) + 1, rng=0)
    return lambda: co2.refine(forest, x, y, max_rounds=100, rng=0)


def _forest(n: int, n_features: int, n_trees: int) -> Any:
    x, y = _samples(n, n_features, 1)
    return grow(x, y, n_trees, rng=0)


def _predict(small: bool) -> Call:
    x, _ = _samples(2_000_000 if small else 6_000_000, 20)
    forest = _forest(5000, 20, 300)
    return lambda: tree.predict(forest, x)


def _apply(small: bool) -> Call:
    x, _ = _samples(300_000 if small else 600_000, 20)
    forest = _forest(20_000 if small else 50_000, 20, 300)
    return lambda: tree.apply(forest, x)


def _predict_oblique(small: bool) -> Call:
    x, y = _samples(500_000 if small else 2_000_000, 60)
    forest = sparse(x[:3000], y[:3000], 100, rng=0)
    return lambda: tree.predict(forest, x)


def _permutation_importance(small: bool) -> Call:
    x, y = _samples(100_000 if small else 1_000_000, 20)
    forest = _forest(5000, 20, 100)
    return lambda: tree.permutation_importance(forest, x, y, n_repeats=20, rng=0)


def _shap(small: bool, given: str) -> Call:
    x, _ = _samples(20_000 if small else 200_000, 20)
    forest = _forest(20_000 if small else 50_000, 20, 100)
    rest: dict[str, Any] = {given: x[:200]}
    return lambda: tree.shap_values(forest, x, **rest)


def _tree_forward(small: bool) -> Call:
    x, _ = _samples(1_000_000 if small else 3_000_000, 100)
    t, f, w = hinge.init(1000, 8, 100, rng=0)
    return lambda: hinge.forward(x, t, f, w, aggregate="sum")


def _trees_apart(small: bool) -> Call:
    x, _ = _samples(100_000 if small else 200_000, 100)
    t, f, w = hinge.init(100, 10, 100, outputs=20, rng=0)
    return lambda: hinge.forward(x, t, f, w)


def _fern_forward(small: bool) -> Call:
    x, _ = _samples(1_000_000 if small else 3_000_000, 100)
    t, f, w = hinge.init(1000, 10, 100, outputs=20, kind="fern", rng=0)
    return lambda: hinge.forward(x, t, f, w, kind="fern", aggregate="sum")


def _tree_traverse(small: bool) -> Call:
    x, _ = _samples(500_000 if small else 1_500_000, 100)
    t, f, _ = hinge.init(100, 18, 100, rng=0)
    return lambda: hinge.traverse(x, t, f)


def _tree_backward(small: bool) -> Call:
    n = 100_000 if small else 300_000
    x, _ = _samples(n, 50)
    t, f, w = hinge.init(100, 8, 50, outputs=400, rng=0)
    route = hinge.traverse(x, t, f)
    grad = np.ones((n, 400), np.float32)
    return lambda: hinge.backward(grad, route, x, t, f, w, aggregate="sum")


def _projections(n_samples: int, n_trees: int, depth: int) -> tuple[np.ndarray, ...]:
    x, _ = _samples(n_samples, 300)
    rng = np.random.default_rng(0)
    p = rng.random((n_trees, 2**depth - 1, 300), np.float32)
    return x, np.zeros(p.shape[:2], np.float32), p, np.zeros((n_trees, 2**depth), np.float32)


def _projections_forward(small: bool) -> Call:
    x, t, p, w = _projections(50_000 if small else 200_000, 100, 8)
    return lambda: hinge.forward(x, t, p, w, margin="projection", aggregate="sum")


def _projections_backward(small: bool) -> Call:
    x, t, p, w = _projections(50_000 if small else 200_000, 400, 5)
    vertex = np.random.default_rng(0).integers(0, 31, (len(x), 400), np.int32)
    route = hinge.Route(vertex, np.ones(vertex.shape, np.float32), vertex)
    grad = np.ones(len(x), np.float32)
    return lambda: hinge.backward(grad, route, x, t, p, w, margin="projection", aggregate="sum")


def _neural(small: bool, n_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n = 20_000 if small else 100_000
    f = np.random.default_rng(0).normal(size=(n, 20, 63)).astype(np.float32)
    return f, np.arange(n) % n_classes, neural.uniform_leaves(20, 6, n_classes)


def _neural_forward(small: bool) -> Call:
    f, _, leaves = _neural(small, 3000)
    return lambda: neural.forward(f, leaves)


def _neural_backward(small: bool) -> Call:
    f, _, leaves = _neural(small, 1000)
    grad = np.ones((len(f), 1000), np.float32)
    return lambda: neural.backward(grad, f, leaves)


def _update_leaves(small: bool) -> Call:
    f, y, leaves = _neural(small, 10)
    return lambda: neural.update_leaves(f, y, leaves, 2000)


def _project(small: bool) -> Call:
    x, _ = _samples(100_000 if small else 400_000, 1000)
    indptr = np.arange(301) * 1000
    indices = np.random.default_rng(0).integers(0, 1000, 300_000, dtype=np.int32)
    data = np.ones(300_000, np.float32)
    return lambda: project.project(x, indptr, indices, data)


def _best_split(small: bool) -> Call:
    x, _ = _samples(60, 1_000_000 if small else 5_000_000)
    return lambda: split.best_split(x, np.arange(x.shape[1]) % 50)


def _cascade(small: bool) -> Call:
    x, y = _samples(10_000 if small else 50_000, 50)
    return lambda: cascade.grow(x, y, rng=0)


CALLS: dict[str, Callable[[bool], Call]] = {
    "samples, bins": _encode,
    "growth.grow, all columns": _grow,
    "grow, entropy": _grow_entropy,
    "grow, regression": _regression,
    "grow, many classes": _many_classes,
    "grow, extra trees": _extra,
    "grow, projections": _manifold,
    "grow, projections, float64": _manifold_doubles,
    "co2.grow": _co2,
    "co2.grow, oc1": _oc1_forest,
    "co2.fit_stump": _fit_stump,
    "co2.fit_oc1": _fit_oc1,
    "co2.refine": _refine,
    "tree.predict": _predict,
    "tree.predict, projections": _predict_oblique,
    "tree.apply": _apply,
    "tree.permutation_importance": _permutation_importance,
    "tree.shap_values, cover": partial(_shap, given="cover"),
    "tree.shap_values, background": partial(_shap, given="background"),
    "hinge.forward": _tree_forward,
    "hinge.forward, trees apart": _trees_apart,
    "hinge.forward, ferns": _fern_forward,
    "hinge.traverse": _tree_traverse,
    "hinge.backward": _tree_backward,
    "hinge.forward, projections": _projections_forward,
    "hinge.backward, projections": _projections_backward,
    "neural.forward": _neural_forward,
    "neural.backward": _neural_backward,
    "neural.update_leaves": _update_leaves,
    "project.project": _project,
    "split.best_split": _best_split,
    "cascade.grow": _cascade,
}
"""Functions by name that prepare a call; it takes seconds if small, or tens of seconds in full size."""


def latency(call: Call, delay: float) -> float | None:
    """Returns seconds from a signal, sent `delay` seconds after the start of the call, to KeyboardInterrupt.

    None if the call ends before.
    """
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        start = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, delay)
        call()
        signal.setitimer(signal.ITIMER_REAL, 0)
        return None
    except KeyboardInterrupt:
        return time.perf_counter() - start - delay
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def main() -> None:
    """Prints the table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--alone", action="store_true")
    options = options_of(parser, "--small")
    print(f"{hforest.get_num_threads()} threads; seconds")
    words = options.words or ["samples"] * options.quick
    for name, prepare in CALLS.items():
        if words and not any(word in name for word in words):
            continue
        call = prepare(options.small)
        alone = ""
        if options.alone:
            start = time.perf_counter()
            call()
            alone = f"{time.perf_counter() - start:8.1f} alone"
        found = [latency(call, delay) for delay in (0.3, 1.0, 3.0)]
        row = " ".join("  ended" if seconds is None else f"{seconds:7.3f}" for seconds in found)
        print(f"{name:32} {row} {alone}", flush=True)


if __name__ == "__main__":
    main()
