"""Times of the kernels of CO2: the surrogate and its gradient, a step and all of the fit of a stump, OC1's
search, the first split of a node, the refinement of a tree, trees.

    python bench/co2.py [--quick] [--only step tree ...] [--shapes n,F,K ...] [--repeats 5] [--data DIR]
        [--json FILE]

Before anything is timed, NumPy, or the reference implementation, must return the same. Times are processor
times of one thread: the least of repeats taken in turn with the peer's, whose BLAS counts with all its
threads. "of the ceiling" is the time to read the rows of x that a kernel needs, at the copy rate of one
thread, as a share of the time; it is above 100 % if the rows stay in a cache. "two threads" is the wall time
of one over that of two, both the least of repeats; it needs two idle cores.

A step gathers `BATCH` of n rows at random, multiplies them by w, computes losses, sums the slopes, and
updates w and theta; its time is a difference of two fits. "start" is the choice of a split among q sampled
features, in a node of n samples without ties. Beside it is the root of a tree of scikit-learn, if installed;
hforest reads the rows once more, for the first surrogate. "refine" is a round of two epochs over a tree of
depth 8; the log loss as two functions, which runs in NumPy, must have the same bounds. With --data DIR that
holds letter.npz, "tree" grows 100 trees on letter.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import ceilings, machine_text, options_of, record, side_by_side, sizes_like
from scipy import special

import hforest
from hforest import co2, growth, tree
from hforest.co2 import StumpSettings, bound, descent
from hforest.co2.checks import DEFAULT, candidates
from hforest.co2.stump import schedule
from hforest.core import dispatch
from hforest.core.supervised import Limits, Target
from hforest.growth.trees import Batch, Objective

Shape = tuple[int, ...]
"""Samples, features and classes."""

SHAPES = ((100_000, 100, 10), (60_000, 784, 10), (15_000, 17, 26))
BATCH = 100
LR, NU, MOMENTUM = 0.01, 10.0, 0.9


def one_round(x: Any, y: Any, w: Any, n_classes: int, tau: int, **more: Any) -> Any:
    """Returns the stump of one round of `tau` epochs."""
    return co2.fit_stump(
        x, y, w, nu=NU, lr=LR, max_rounds=1, n_classes=n_classes, rng=0,
        stump=StumpSettings(tau=tau, batch_size=BATCH, momentum=MOMENTUM, min_steps=1, patience=1000), **more,
    )  # fmt: skip


def problem(shape: Shape) -> tuple[Any, ...]:
    """Returns classes around random centres in [0, 1], the constant last, and a univariate start."""
    n, n_features, n_classes = shape
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n, np.int32)
    x = rng.random((n_features - 1, n_classes), np.float32).T[y]
    x = np.ascontiguousarray(0.3 * x + 0.7 * rng.random(x.shape, np.float32))
    x = np.concatenate([x, -np.ones((n, 1), np.float32)], axis=1)
    w = np.zeros(n_features, np.float32)
    w[0], w[-1] = 1, 0.5
    return x, y, w


class Numpy:
    """The steps of `fit_stump` written in NumPy."""

    def __init__(self, x: Any, y: Any, w: Any, n_classes: int):
        self.x, self.y, self.w, self.k = x, y, w.copy(), n_classes
        self.v = np.zeros_like(w)
        self.speed = np.zeros((2, n_classes))
        self.project()
        self.sign = np.sign(x @ self.w)
        counts = np.stack([np.bincount(y[(self.sign >= 0) == side], minlength=n_classes) for side in (0, 1)])
        self.theta = np.log((counts + 0.3) / (counts.sum(axis=1) + 0.3 * n_classes)[:, None])

    def project(self) -> None:
        square = float(self.w @ self.w)
        if square > NU:
            self.w *= np.float32(np.sqrt(NU / square))

    def losses(self) -> Any:
        high = self.theta.max(axis=1, keepdims=True)
        return high + np.log(np.exp(self.theta - high).sum(axis=1, keepdims=True)) - self.theta

    def step(self, batch: Any) -> None:
        rows, labels = self.x[batch], self.y[batch]
        p, loss = rows @ self.w, self.losses()
        right = ~(loss[0, labels] - p >= loss[1, labels] + p)
        turn = np.where(right, 1, -1) - self.sign[batch]
        slope = turn.astype(np.float32) @ rows
        rate = LR / len(batch)
        for side in (0, 1):
            here = right == side
            pull = here.sum() * np.exp(-loss[side]) - np.bincount(labels[here], minlength=self.k)
            self.speed[side] = MOMENTUM * self.speed[side] - rate * pull
        self.theta += self.speed
        self.v = np.float32(MOMENTUM) * self.v - np.float32(rate) * slope
        self.w += self.v
        self.project()

    def surrogate(self) -> float:
        p, loss = self.x @ self.w, self.losses()
        return float((np.maximum(loss[0, self.y] - p, loss[1, self.y] + p) - abs(p)).sum())


def numpy_bound(x: Any, y: Any, w: Any, theta: Any) -> tuple[Any, ...]:
    """Returns the surrogate (Norouzi et al. 2015, eq. 10) and its gradient, written in NumPy."""
    p = (x @ w).astype(np.float64)
    left, right = (special.logsumexp(t.astype(np.float64)) - t[y] for t in theta)
    is_left = left - p >= right + p
    slope = (np.where(is_left, -1, 1) - np.sign(p)).astype(np.float32) @ x
    grads = [
        side.sum() * special.softmax(t) - np.bincount(y[side], minlength=len(t))
        for t, side in zip(theta, (is_left, ~is_left), strict=True)
    ]
    return float((np.maximum(left - p, right + p) - abs(p)).sum()), slope, *grads


def same(ours: Any, theirs: Any) -> None:
    """Checks that two results are equal up to rounding."""
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * float(np.abs(b).max()))


def figures(calls: dict[str, Callable[[], Any]], n_bytes: float, repeats: int) -> dict[str, Any]:
    """Returns the times of hforest's call and its peers, and the ratio of one thread to two."""

    def on(threads: int) -> None:
        hforest.set_num_threads(threads)
        calls["hforest"]()

    with hforest.unchecked():
        hforest.set_num_threads(1)
        alone = side_by_side(calls, repeats, time.process_time)
        both = side_by_side({"one": partial(on, 1), "two": partial(on, 2)}, repeats)
    hforest.set_num_threads(1)
    us = {name: 1e6 * min(taken) for name, taken in alone.items()}
    return {
        "us": us.pop("hforest"), **{f"{name}_us": a for name, a in us.items()}, "bytes": n_bytes,
        "two_threads": min(both["one"]) / min(both["two"]),
    }  # fmt: skip


def surrogates(shape: Shape, repeats: int, *, gradient: bool) -> dict[str, Any]:
    """Measures the surrogate, or its gradient, without the checks of a call, beside NumPy."""
    x, y, w = problem(shape)
    theta = np.random.default_rng(1).normal(size=(2, shape[2])).astype(np.float32)
    same((co2.surrogate(x, y, w, *theta), *co2.surrogate_grad(x, y, w, *theta)), numpy_bound(x, y, w, theta))
    split, samples = bound._checked(x, y, (w, *theta), "log", None)
    backend, out, grads = dispatch.backend("hforest.co2", x), np.empty(1), [np.empty(len(a)) for a in split]
    calls: dict[str, Callable[[], Any]] = {
        "hforest": partial(backend.surrogate_grad, split, samples, grads)
        if gradient
        else partial(backend.surrogate, split, samples, out),
        "numpy": partial(numpy_bound, x, y, w, theta),
    }
    return figures(calls, x.nbytes, repeats)


def check(shape: Shape) -> None:
    """Checks that NumPy's surrogate after an epoch equals that of hforest."""
    x, y, w = problem((1000, *shape[1:]))
    peer = Numpy(x, y, w, shape[2])
    key = int(np.random.default_rng(0).integers(2**64, dtype=np.uint64))
    order = descent.epoch_order(key, 0, descent.shuffled(key, len(x)))
    for first in range(0, len(x), BATCH):
        peer.step(order[first : first + BATCH])
    history: list[float] = []
    one_round(x, y, w, shape[2], 1, history=history)
    np.testing.assert_allclose(history[-1], peer.surrogate(), rtol=1e-4)


def step(shape: Shape, repeats: int) -> dict[str, Any]:
    """Measures a step of a fit, beside NumPy."""
    check(shape)
    x, y, w = problem(shape)
    n, n_features, n_classes = shape
    peer = Numpy(x, y, w, n_classes)
    batches = np.random.default_rng(1).permutation(n)[: n // BATCH * BATCH].reshape(-1, BATCH)

    def numpy_steps() -> None:
        for rows in batches[:100]:
            peer.step(rows)

    hforest.set_num_threads(1)
    calls: dict[str, Any] = {f"tau {tau}": partial(one_round, x, y, w, n_classes, tau) for tau in (1, 3)}
    with hforest.unchecked():
        taken = side_by_side(calls | {"numpy": numpy_steps}, repeats, time.process_time)
    us = 1e6 * (min(taken["tau 3"]) - min(taken["tau 1"])) / (2 * -(-n // BATCH))
    return {"us": us, "numpy_us": 1e4 * min(taken["numpy"]), "bytes": 4 * BATCH * n_features}


def fit(shape: Shape, repeats: int) -> dict[str, Any]:
    """Measures the fit of a stump: one round of two epochs. Each pass reads x once."""
    check(shape)
    x, y, w = problem(shape)
    return figures({"hforest": partial(one_round, x, y, w, shape[2], 2)}, 4 * x.nbytes, repeats)


def search(shape: Shape, repeats: int) -> dict[str, Any]:
    """Measures OC1's search, beside the reference implementation, on the first ten features."""
    x, y, w = problem((shape[0], min(shape[1], 11), shape[2]))

    def oc1(n: int) -> Any:
        return co2.fit_oc1(x[:n], y[:n], w, n_classes=shape[2], jumps=2, rng=0)

    with dispatch.forced("reference"):
        expected = oc1(100)
    same([oc1(100)], [expected])
    return figures({"hforest": partial(oc1, shape[0])}, 0, min(repeats, 2))


LOSS = (
    lambda theta, y: special.logsumexp(theta) - theta[y],
    lambda theta, y: special.softmax(theta) - np.eye(len(theta))[y],
)
"""The log loss as a pair of functions."""


def refined(forest: tree.Forest, x: Any, y: Any, **more: Any) -> list[float]:
    """Returns the bounds of a tree before and after a round of two epochs."""
    history: list[list[float]] = []
    settings = StumpSettings(tau=2, batch_size=BATCH, momentum=MOMENTUM, min_steps=1)
    co2.refine(forest, x, y, max_rounds=1, stump=settings, history=history, rng=0, **more)
    return history[0]


def refine(shape: Shape, repeats: int) -> dict[str, Any]:
    """Measures the refinement of a tree. Six passes read x, of which two also multiply rows at random."""
    x, y, _ = problem(shape)
    forest = hforest.grow(x, y, 1, max_depth=8, bootstrap=False, n_classes=shape[2], rng=0)
    some = x[:500], y[:500]
    counts = (
        tree.leaf_counts(forest, *some, n_classes=shape[2]) + 0.3
    )  # where the thetas of a named loss start
    theta = np.log(counts / counts.sum(axis=1, keepdims=True)).astype(np.float32)
    same([refined(forest, *some)], [refined(forest._replace(value=theta), *some, loss=LOSS)])
    return figures({"hforest": partial(refined, forest, x, y)}, 6 * x.nbytes, repeats)


def start(shape: Shape, repeats: int) -> dict[str, Any]:
    """Measures a node's univariate split: a tree of one split, without rounds, minus a tree of none."""
    x, y, _ = problem(shape)
    q = candidates(DEFAULT, shape[1])
    bins = growth.samples(x).bins()
    settings = schedule(NU, LR, 0, StumpSettings(tau=1, min_steps=1))
    target = Target(y, None, shape[2])

    def grow(max_depth: int) -> None:
        objective = Objective(target, np.ones(len(x)), 1, Limits(max_depth, 2, 1, 0.0, 0.0))
        batch = Batch(0, 0, 1, None, [])
        dispatch.backend("hforest.co2", x).grow(x, bins, objective, q, settings, None, batch)

    with hforest.unchecked():
        taken = side_by_side({"none": partial(grow, 0), "one": partial(grow, 1)}, repeats, time.process_time)
    us = 1e6 * (min(taken["one"]) - min(taken["none"]))
    return {"us": us, "q": q, "bytes": 4 * q * len(x), **sklearn_start(x, y, q, min(repeats, 2))}


def sklearn_start(x: Any, y: Any, q: int, repeats: int) -> dict[str, float]:
    """Returns the time of this choice in scikit-learn: a root with q candidates minus one with one."""
    try:
        from sklearn.tree import DecisionTreeClassifier
    except ImportError:
        return {}

    def grow(max_features: int) -> None:
        peer = DecisionTreeClassifier(
            criterion="entropy", max_depth=1, max_features=max_features, random_state=0
        )
        peer.fit(x, y, check_input=False)

    taken = side_by_side({"one": partial(grow, 1), "all": partial(grow, q)}, repeats, time.process_time)
    return {"sklearn_us": 1e6 * (min(taken["all"]) - min(taken["one"]))}


KERNELS: dict[str, Callable[[Shape, int], dict[str, Any]]] = {
    "surrogate": partial(surrogates, gradient=False),
    "surrogate_grad": partial(surrogates, gradient=True),
    "step": step,
    "fit_stump": fit,
    "fit_oc1": search,
    "start": start,
    "refine": refine,
}


def letter(folder: Path) -> dict[str, Any]:
    """Measures the growing of 100 trees on letter, once."""
    file = np.load(folder / "letter.npz")
    x, y = file["x"].astype(np.float32), file["y"].astype(np.int32)
    n = 15_000
    begin = time.process_time()
    forest = co2.grow(x[:n], y[:n], 100, rng=0)
    us = 1e6 * (time.process_time() - begin)
    wrong = tree.predict(forest, x[n:]).argmax(axis=1) != y[n:]
    return {"us": us, "trees": 100, "error": 100 * float(wrong.mean())}


def text_of(row: dict[str, Any]) -> str:
    """Returns a row of the table."""
    peers = [f"{key[:-3]} {row[key] / row['us']:.1f} times" for key in row if key.endswith("_us")]
    if "two_threads" in row:
        peers.append(f"two threads {row['two_threads']:.2f}")
    if row.get("share"):
        peers.append(f"{row['share']:.0%} of the ceiling")
    if "error" in row:
        peers.append(f"test error {row['error']:.2f} %")
    shape = " x ".join(map(str, row["shape"]))
    return f"{row['job']:15} {shape:20} {row['us']:12.1f} us  {', '.join(peers)}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=[*KERNELS, "tree"], default=[*KERNELS, "tree"])
    parser.add_argument("--shapes", nargs="+", type=sizes_like("2000,30,10", (1, 2, 2)), metavar="n,F,K")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", type=Path)
    options = options_of(parser, "--shapes 300,5,3 --repeats 1")
    shapes = options.shapes or SHAPES
    before = hforest.get_num_threads()
    hforest.set_num_threads(1)
    print(machine_text())
    copied = ceilings()["copy_bytes"]
    rows = []
    for shape in shapes:
        for name in [name for name in KERNELS if name in options.only]:
            row = {"job": name, "shape": list(shape), **KERNELS[name](shape, options.repeats)}
            row["share"] = 1e6 * row["bytes"] / copied / row["us"]
            rows.append(row)
            print(text_of(row), flush=True)
    if options.data is not None and "tree" in options.only:
        rows.append({"job": "tree", "shape": [15_000, 16, 26], **letter(options.data)})
        print(text_of(rows[-1]))
    hforest.set_num_threads(before)
    if options.json is not None:
        record(options.json, rows, copy_bytes=copied, command=" ".join(sys.argv), clock="processor")
    return 0


if __name__ == "__main__":
    sys.exit(main())
