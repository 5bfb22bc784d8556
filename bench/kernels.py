"""Times of a call of each kernel without a bench of its own: projections, layers, optimisers, impurities,
counts, windows of images, confusion matrices, checks.

    python bench/kernels.py [--only project conv2d ...] [--threads 1] [--scale 1.0] [--repeats 7]
        [--clock wall] [--json FILE]

Runs on `pip install .` alone. A rung "numpy" is the same in NumPy or SciPy, "reference" the reference
implementation, "plain" hforest without vector instructions. Every rung must return hforest's result before
anything is timed. Figures are microseconds of processor time per call, the median over repeats taken in
turn, with the spread (half the range, in percent of the median) and the time over hforest's. "floor" is the
time to copy in memory the minimum number of bytes that a call reads and writes, in percent of the call. It is
above 100 if the arrays stay in a cache. --scale multiplies the number of rows. Hinge trees, neural forests,
splits, CO2, growth and prediction have benches of their own: hinge.py, neural.py, split.py, co2.py, grow.py
and predict.py; the convolution of a forest, which needs PyTorch, is in torch_layers.py. A test checks that a
bench names every compiled function (tests/test_bench_kernels.py).
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import (
    CLOCKS,
    add_clock,
    ceilings,
    labels,
    machine_text,
    numbers,
    options_of,
    plainly,
    record,
    side_by_side,
    spread,
)
from scipy import sparse, special

import hforest
from hforest import cascade, growth, hinge, images, layers, neural, optim, project, split
from hforest.core import dispatch, machine

Call = Callable[[], Any]
Job = tuple[dict[str, Call], list[Any]]
"""hforest and the rungs beside it, and the arrays, or numbers of bytes, that a call reads and writes."""


SOBEL = np.array([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])


def projections(distribution: project.Distribution, scale: float) -> Job:
    """Returns the rungs of 28 sparse projections of images of 784 pixels."""
    x = numbers(round(10_000 * scale), 784)
    some = project.sample(distribution, 28, rng=0)
    matrix = sparse.csr_matrix((some.data, some.indices, some.indptr), shape=(28, 784))
    calls: dict[str, Call] = {"hforest": partial(project.project, x, *some), "numpy": lambda: matrix @ x.T}
    return calls, [some.data, np.unique(some.indices).size / 784 * x.nbytes, calls["hforest"]()]


def convolution(scale: float) -> Job:
    """Returns the rungs of 80 kernels of 5 x 5, stride 3, on images of 28 x 28 (Lay et al. 2018, Fig. 2)."""
    x, kernels = numbers(round(530 * scale), 28, 28), numbers(80, 5, 5, seed=1)

    def numpy() -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(x, (5, 5), (1, 2))[:, ::3, ::3]
        y = windows.reshape(-1, 25) @ kernels.reshape(80, 25).T
        return np.ascontiguousarray(y.reshape(*windows.shape[:3], 80).transpose(0, 3, 1, 2))

    calls: dict[str, Call] = {"hforest": partial(layers.conv2d, x, kernels, 3), "numpy": numpy}
    return calls, [x, kernels, numpy()]


def convolution_backward(scale: float) -> Job:
    """Returns the rungs of its gradients with respect to the images and the kernels."""
    x, kernels = numbers(round(530 * scale), 28, 28), numbers(80, 5, 5, seed=1)
    grad = numbers(*layers.conv2d(x, kernels, 3).shape, seed=2)

    def numpy() -> tuple[np.ndarray, np.ndarray]:
        windows = np.lib.stride_tricks.sliding_window_view(x, (5, 5), (1, 2))[:, ::3, ::3]
        rows = grad.transpose(0, 2, 3, 1).reshape(-1, 80)
        grad_x, parts = np.zeros_like(x), (rows @ kernels.reshape(80, 25)).reshape(windows.shape)
        for i, j in np.ndindex(5, 5):
            grad_x[:, i : i + 3 * 7 + 1 : 3, j : j + 3 * 7 + 1 : 3] += parts[..., i, j]
        return grad_x, (rows.T @ windows.reshape(-1, 25)).reshape(80, 5, 5)

    calls: dict[str, Call] = {"hforest": partial(layers.conv2d_backward, grad, x, kernels, 3), "numpy": numpy}
    return calls, [x, grad, *numpy()]


def normalisation(scale: float) -> Job:
    """Returns the rungs of a normalisation of 5120 features by running moments."""
    x, mean, var = numbers(round(530 * scale), 5120), numbers(5120, seed=1), 0.1 + numbers(5120, seed=2) ** 2
    calls: dict[str, Call] = {
        "hforest": partial(layers.normalize, x, mean, var),
        "numpy": lambda: (x - mean) / np.sqrt(var + np.float32(1e-7)),
    }
    return calls, [x, x]


def normalisation_backward(scale: float) -> Job:
    """Returns the rungs of its gradient with respect to the features."""
    grad, var = numbers(round(530 * scale), 5120), 0.1 + numbers(5120, seed=2) ** 2
    calls: dict[str, Call] = {
        "hforest": partial(layers.normalize_backward, grad, var),
        "numpy": lambda: grad / np.sqrt(var + np.float32(1e-7)),
    }
    return calls, [grad, grad]


def normalisation_update(scale: float) -> Job:
    """Returns the rungs of the first update of running moments."""
    x = numbers(round(530 * scale), 5120)

    def ours() -> tuple[np.ndarray, ...]:
        moments = np.zeros(5120, np.float32), np.ones(5120, np.float32)
        layers.normalize_update(x, *moments, 0)
        return moments

    def numpy() -> tuple[np.ndarray, ...]:
        return x.mean(0, np.float64).astype(np.float32), x.var(0, np.float64, ddof=1).astype(np.float32)

    return {"hforest": ours, "numpy": numpy}, [x, *numpy()]


def squared(scale: float) -> Job:
    """Returns the rungs of the squared loss of ten outputs and its gradient."""
    prediction, y = numbers(round(100_000 * scale), 10), numbers(round(100_000 * scale), 10, seed=1)

    def numpy() -> tuple[float, np.ndarray]:
        difference = prediction.astype(np.float64) - y
        loss = float((difference**2).sum() / (2 * len(y)))
        return loss, (difference / len(y)).astype(np.float32)

    return {"hforest": partial(layers.squared_loss, prediction, y), "numpy": numpy}, [prediction, y, y]


def softmax(scale: float) -> Job:
    """Returns the rungs of the softmax loss of ten classes and its gradient."""
    scores = numbers(round(100_000 * scale), 10)
    y = labels(len(scores), 10)

    def numpy() -> tuple[float, np.ndarray]:
        p = special.softmax(scores, axis=1)
        loss = -np.log(p[np.arange(len(y)), y]).mean()
        p[np.arange(len(y)), y] -= 1
        return float(loss), p / len(y)

    calls: dict[str, Call] = {"hforest": partial(layers.softmax_loss, scores, y), "numpy": numpy}
    return calls, [scores, y, scores]


def adagrad(scale: float) -> Job:
    """Returns the rungs of one step of AdaGrad on a million numbers."""
    n = round(1_000_000 * scale)
    grad, param, state = numbers(n), numbers(n, seed=1), numbers(n, seed=2) ** 2

    def step(update: Callable[..., None]) -> Call:
        mine = param.copy(), state.copy()
        return lambda: (update(*mine), mine)[1]  # type: ignore[func-returns-value]

    def ours(p: np.ndarray, s: np.ndarray) -> None:
        optim.adagrad(p, grad, s, 0.01)

    def numpy(p: np.ndarray, s: np.ndarray) -> None:
        s[...] = np.sqrt(s * s + grad * grad)
        p -= np.float32(0.01) * grad / s

    return {"hforest": step(ours), "numpy": step(numpy)}, [grad, *4 * [param]]


def adam(scale: float) -> Job:
    """Returns the rungs of step 7 of Adam on a million numbers."""
    n = round(1_000_000 * scale)
    grad, param, m = numbers(n), numbers(n, seed=1), numbers(n, seed=2)

    def step(update: Callable[..., None]) -> Call:
        mine = param.copy(), m.copy(), m * m
        return lambda: (update(*mine), mine)[1]  # type: ignore[func-returns-value]

    def ours(p: np.ndarray, m: np.ndarray, v: np.ndarray) -> None:
        optim.adam(p, grad, m, v, 7, 0.001)

    def numpy(p: np.ndarray, m: np.ndarray, v: np.ndarray) -> None:
        m *= np.float32(0.9)
        m += np.float32(0.1) * grad
        v *= np.float32(0.999)
        v += np.float32(0.001) * grad * grad
        p -= 0.001 * (m / (1 - 0.9**7)) / (np.sqrt(v / (1 - 0.999**7)) + 1e-8)

    return {"hforest": step(ours), "numpy": step(numpy)}, [grad, *6 * [param]]


def row_steps(
    scale: float, adagrad: bool = False, n_all: int = 1_000_000, n_given: int = 50_000, n_sets: int = 8
) -> Job:
    """Returns the rungs of steps from 1000 on, on some rows of ten numbers, beside steps on all rows.

    There are n_sets sets of rows, taken in turn: rows of Adam miss about n_sets - 1 steps.
    """
    n, rng = round(n_all * scale), np.random.default_rng(2)
    sets = [np.sort(rng.choice(n, round(n_given * scale), replace=False)) for _ in range(n_sets)]
    param, m, grad = numbers(n, 10), numbers(n, 10, seed=1), numbers(len(sets[0]), 10, seed=3)
    full = [np.zeros_like(param) for _ in sets]
    for a, rows in zip(full, sets, strict=True):
        a[rows] = grad

    def call(by_rows: bool) -> Call:
        p, first, second, last = param.copy(), m.copy(), m * m, np.full(n, 1000)
        step = [1000]

        def one() -> np.ndarray:
            of_step = step[0] % n_sets
            step[0] += 1
            rows, dense = sets[of_step], full[of_step]
            if adagrad and by_rows:
                optim.adagrad_rows(p, rows, grad, second, 0.001)
            elif adagrad:
                optim.adagrad(p, dense, second, 0.001)
            elif by_rows:
                optim.adam_rows(p, rows, grad, first, second, last, step[0], 0.001)
            else:
                optim.adam(p, dense, first, second, step[0], 0.001)
            return p[rows[:500]]

        return one

    return {"hforest": call(True), "dense": call(False)}, [grad, *(4 if adagrad else 6) * [grad]]


def catch_up(scale: float) -> Job:
    """Returns the rungs of up to 50 missed steps of Adam, on rows of ten numbers."""
    n = round(100_000 * scale)
    param, m, lr, eps = numbers(n, 10), numbers(n, 10, seed=1), 0.001, 1e-8
    last = np.random.default_rng(2).integers(1000, 1050, n)

    def ours() -> np.ndarray:
        p = param.copy()
        optim.adam_catch_up(p, m.copy(), m * m, last.copy(), 1050, lr)
        return p

    def numpy() -> np.ndarray:
        p, first, second = param.astype(np.float64), m.astype(np.float64), (m * m).astype(np.float64)
        for step in range(1001, 1051):
            late = last < step
            first[late] *= 0.9
            second[late] *= 0.999
            mean, var = first[late] / (1 - 0.9**step), second[late] / (1 - 0.999**step)
            p[late] -= lr * mean / (np.sqrt(var) + eps)
        return p.astype(np.float32)

    return {"hforest": ours, "numpy": numpy}, 6 * [param]


def impurities(scale: float) -> Job:
    """Returns the rungs of the Gini impurity of nodes of ten classes."""
    counts = np.random.default_rng(0).integers(1, 100, (round(100_000 * scale), 10)).astype(np.float32)

    def numpy() -> np.ndarray:
        p = counts / counts.sum(1, keepdims=True)
        return 1 - (p * p).sum(1)

    return {"hforest": partial(split.impurity, counts), "numpy": numpy}, [counts, numpy()]


def soft_routes(scale: float) -> Job:
    """Returns the rungs of the probabilities of the leaves of ten neural trees of depth 7."""
    f = numbers(round(1000 * scale), 10, 127)

    def numpy() -> np.ndarray:
        left, mu = special.expit(f), np.ones((*f.shape[:2], 1), np.float32)
        for depth in range(7):
            d = left[..., 2**depth - 1 : 2 ** (depth + 1) - 1]
            mu = np.stack([mu * d, mu * (1 - d)], -1).reshape(*f.shape[:2], -1)
        return mu

    return {"hforest": partial(neural.route, f), "numpy": numpy}, [f, numpy()]


def leaves(scale: float) -> Job:
    """Returns the rungs of the number of samples in each leaf of 100 trees of depth 10."""
    n, rng = round(10_000 * scale), np.random.default_rng(0)
    leaf = rng.integers(0, 1024, (n, 100), np.int32)

    def numpy() -> np.ndarray:
        return np.bincount((leaf + 1024 * np.arange(100)).ravel(), minlength=102_400).reshape(100, 1024)

    return {"hforest": partial(hinge.leaf_counts, leaf, 1024), "numpy": numpy}, [leaf, numpy()]


def first_bad(scale: float) -> Job:
    """Returns the rungs of the check that ten million numbers are finite: -1, or where the first is not."""
    x = numbers(round(10_000_000 * scale))

    def numpy() -> int:
        finite = np.isfinite(x)
        return -1 if finite.all() else int(finite.argmin())

    return {"hforest": partial(machine.first_nonfinite, x), "numpy": numpy}, [x]


def first_outside(scale: float) -> Job:
    """Returns the rungs of the check that ten million indices are in range: -1, or where the first is not."""
    index = labels(round(10_000_000 * scale), 100)

    def numpy() -> int:
        outside = (index < 0) | (index >= 100)
        return int(outside.argmax()) if outside.any() else -1

    return {"hforest": partial(machine.first_outside, index, 100), "numpy": numpy}, [index]


def poisson(scale: float) -> Job:
    """Returns the rungs of Poisson counts of five trees (Oza and Russell 2001)."""
    n = round(4000 * scale)

    def draw(backend: str) -> np.ndarray:
        with dispatch.forced(backend):
            return growth.poisson_counts(n, 5, rng=0)

    return {"hforest": partial(draw, "cpu"), "reference": partial(draw, "reference")}, [draw("cpu")]


def scan(scale: float) -> Job:
    """Returns the rungs of copies of all windows of 10 x 10, stride 3, of images of 28 x 28."""
    x = numbers(round(200 * scale), 784)

    def windows() -> np.ndarray:
        return np.ascontiguousarray(cascade.scan(x, (28, 28), (10, 10), 3))

    def numpy() -> np.ndarray:
        images, result = x.reshape(-1, 28, 28), np.empty((len(x), 7, 7, 10, 10), np.float32)
        for i, j in np.ndindex(7, 7):
            result[:, i, j] = images[:, 3 * i : 3 * i + 10, 3 * j : 3 * j + 10]
        return result

    return {"hforest": windows, "numpy": numpy}, [x, numpy()]


def confusion(scale: float) -> Job:
    """Returns the rungs of the confusion matrix of half a million pixels of eleven classes and void."""
    y = labels(round(500_000 * scale), 12)
    predicted = np.roll(y, 1) % 11

    def numpy() -> np.ndarray:
        counts = np.histogram2d(y[y < 11], predicted[y < 11], 11, ((0, 11), (0, 11)))[0]
        return counts.astype(np.int64)

    return {"hforest": partial(images.confusion, y, predicted, 11, void=11), "numpy": numpy}, [y, predicted]


JOBS: dict[str, Callable[[float], Job]] = {
    "project": partial(projections, project.patch_distribution((28, 28), patch_max=3)),
    "project, kernels": partial(projections, project.kernel_distribution((28, 28), [SOBEL, SOBEL.T])),
    "conv2d": convolution,
    "conv2d_backward": convolution_backward,
    "normalize": normalisation,
    "normalize_backward": normalisation_backward,
    "normalize_update": normalisation_update,
    "squared_loss": squared,
    "softmax_loss": softmax,
    "adagrad": adagrad,
    "adam": adam,
    "adagrad_rows": partial(row_steps, adagrad=True),
    "adam_rows": partial(row_steps, n_all=100_000, n_given=530, n_sets=1),
    "adam_rows 1M": row_steps,
    "adam_catch_up": catch_up,
    "impurity": impurities,
    "route": soft_routes,
    "leaf_counts": leaves,
    "first_nonfinite": first_bad,
    "first_outside": first_outside,
    "poisson_counts": poisson,
    "scan": scan,
    "confusion": confusion,
}


def same(ours: Any, theirs: Any) -> None:
    """Returns whether two results are equal up to rounding."""
    several = isinstance(ours, tuple)
    for a, b in zip(ours, theirs, strict=True) if several else [(ours, theirs)]:
        scale = float(np.abs(b).max())
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * scale)


def run(name: str, options: argparse.Namespace, copied: float) -> list[dict[str, Any]]:
    """Checks every rung of a kernel, then measures its time."""
    calls, arrays = JOBS[name](options.scale)
    expected = calls["hforest"]()
    for rung, call in calls.items():
        if rung != "hforest":
            same(expected, call())
    calls["plain"] = plainly(calls["hforest"])
    with hforest.unchecked():
        times = side_by_side(calls, options.repeats, CLOCKS[options.clock])
    n_bytes = sum(a if isinstance(a, float) else a.nbytes for a in arrays)
    ours = statistics.median(times["hforest"])
    rows = []
    for rung, taken in times.items():
        median = statistics.median(taken)
        row = {
            "job": name, "rung": rung, "us": 1e6 * median, "spread": spread(taken), "ratio": median / ours,
            "floor": n_bytes / copied / median, "bytes": n_bytes, "scale": options.scale,
            "threads": hforest.get_num_threads(),
        }  # fmt: skip
        rows.append(row)
        print(
            f"{name:18} {rung:10} {row['us']:11.1f} {100 * row['spread']:6.0f}% {row['ratio']:8.2f} "
            f"{100 * row['floor']:6.1f}%"
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(JOBS), default=list(JOBS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the numbers of rows")
    parser.add_argument("--repeats", type=int, default=7)
    add_clock(parser)
    parser.add_argument("--json", metavar="FILE")
    options = options_of(parser, "--scale 0.01 --repeats 1")
    hforest.set_num_threads(options.threads)
    print(machine_text())
    print(f"{options.clock} time")
    print(f"{'kernel':18} {'rung':10} {'us':>11} {'spread':>7} {'ratio':>8} {'floor':>7}")
    copied = ceilings(CLOCKS[options.clock])["copy_bytes"]
    rows = [row for name in options.only for row in run(name, options, copied)]
    if options.json:
        record(options.json, rows, command=" ".join(sys.argv), clock=options.clock, copy_bytes=copied)
    return 0


if __name__ == "__main__":
    sys.exit(main())
