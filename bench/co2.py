"""Times of fitting oblique stumps: a mini-batch step beside NumPy, the start of a node, a tree.

    python bench/co2.py [--shapes n,F,K,batch ...] [--threads 1] [--data DIR] [--json FILE]

A step gathers `batch` of n rows at random, multiplies them by w, computes losses, sums the slopes, and
updates w and theta. NumPy does the same on the same batches; its surrogate must agree before anything is
timed. The floor of a step is the time to read its rows at the measured copy rate. "start" is the choice of a
split among q sampled features, in a node of n samples without ties. Beside it is the root of a tree of
scikit-learn, if installed; hforest reads the rows once more, for the first surrogate. With --data DIR that
holds mnist.npz, the bench also measures the root of MNIST, and grows trees on it.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import ceilings, machine_text, record, side_by_side, spread

import hforest
from hforest import co2, growth
from hforest.co2 import StumpSettings, descent
from hforest.co2.checks import candidates
from hforest.co2.stump import schedule
from hforest.core import dispatch
from hforest.core.supervised import Limits, Target
from hforest.growth.trees import Batch, Objective

SHAPES = ((60000, 784, 10, 100), (20000, 256, 10, 100), (15000, 17, 26, 100))
LR, NU, MOMENTUM = 0.01, 10.0, 0.9


def one_round(x: Any, y: Any, w: Any, n_classes: int, batch: int, tau: int, **more: Any) -> None:
    """Runs one round of `tau` epochs."""
    co2.fit_stump(
        x, y, w, nu=NU, lr=LR, max_rounds=1, n_classes=n_classes, rng=0,
        stump=StumpSettings(tau=tau, batch_size=batch, momentum=MOMENTUM, min_steps=1, patience=1000), **more,
    )  # fmt: skip


def problem(shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Returns classes around random centres in [0, 1], the constant last, and a univariate start."""
    n, n_features, n_classes, _ = shape
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


def check(shape: tuple[int, ...]) -> None:
    """Checks that NumPy's surrogate after an epoch equals that of hforest."""
    x, y, w = problem((1000, *shape[1:]))
    peer = Numpy(x, y, w, shape[2])
    key = int(np.random.default_rng(0).integers(2**64, dtype=np.uint64))
    order = descent._epoch_order(key, 0, descent.shuffled(key, len(x)))
    for first in range(0, len(x), shape[3]):
        peer.step(order[first : first + shape[3]])
    history: list[float] = []
    one_round(x, y, w, shape[2], shape[3], 1, history=history)
    np.testing.assert_allclose(history[-1], peer.surrogate(), rtol=1e-4)


def steps(shape: tuple[int, ...], repeats: int) -> dict[str, Any]:
    """Measures the time of a step in hforest and in NumPy, in one run."""
    x, y, w = problem(shape)
    n, n_features, n_classes, batch = shape
    peer = Numpy(x, y, w, n_classes)
    batches = np.random.default_rng(1).permutation(n)[: n // batch * batch].reshape(-1, batch)
    epochs = 3

    def fit(tau: int) -> None:
        one_round(x, y, w, n_classes, batch, tau)

    def numpy_steps() -> None:
        for rows in batches[:100]:
            peer.step(rows)

    with hforest.unchecked():
        taken = side_by_side(
            {"one": lambda: fit(1), "more": lambda: fit(1 + epochs), "numpy": numpy_steps}, repeats
        )
    count = epochs * -(-n // batch)
    ours = [(b - a) / count for a, b in zip(taken["one"], taken["more"], strict=True)]
    theirs = [a / 100 for a in taken["numpy"]]
    return {
        "job": "step",
        "shape": list(shape),
        "us": 1e6 * statistics.median(ours),
        "numpy_us": 1e6 * statistics.median(theirs),
        "ratio": statistics.median(theirs) / statistics.median(ours),
        "spread": spread(ours),
        "bytes": 4 * batch * n_features,
    }


def start(x: Any, y: Any, n_classes: int, q: int, repeats: int) -> dict[str, Any]:
    """Measures a node's univariate split: a tree of one split, without rounds, minus a tree of none."""
    bins = growth.samples(x).bins()
    settings = schedule(NU, LR, 0, StumpSettings(tau=1, min_steps=1))
    target = Target(y, None, n_classes)

    def grow(max_depth: int) -> None:
        objective = Objective(target, np.ones(len(x)), 1, Limits(max_depth, 2, 1, 0.0, 0.0))
        dispatch.backend("hforest.co2", x).grow(
            x, bins, objective, q, settings, None, Batch(0, 0, 1, None, [])
        )

    with hforest.unchecked():
        taken = side_by_side({"none": lambda: grow(0), "one": lambda: grow(1)}, repeats)
    ours = [b - a for a, b in zip(taken["none"], taken["one"], strict=True)]
    row = {"job": "start", "shape": [*x.shape, n_classes], "q": q, "ms": 1e3 * statistics.median(ours)}
    return row | sklearn_start(x, y, q, repeats)


def sklearn_start(x: Any, y: Any, q: int, repeats: int) -> dict[str, float]:
    """Returns the time of this choice in scikit-learn: a root with q candidates minus one with one."""
    try:
        from sklearn.tree import DecisionTreeClassifier
    except ImportError:
        return {}

    def fit(max_features: int) -> None:
        peer = DecisionTreeClassifier(
            criterion="entropy", max_depth=1, max_features=max_features, random_state=0
        )
        peer.fit(x, y, check_input=False)

    taken = side_by_side({"one": lambda: fit(1), "all": lambda: fit(q)}, repeats)
    theirs = [b - a for a, b in zip(taken["one"], taken["all"], strict=True)]
    return {"sklearn_ms": 1e3 * statistics.median(theirs)}


def start_text(row: dict[str, Any]) -> str:
    peer = f", scikit-learn {row['sklearn_ms']:.2f} ms" if "sklearn_ms" in row else ""
    return f"{row['ms']:.2f} ms for {row['q']} candidates{peer}"


def mnist(folder: Path) -> tuple[Any, Any]:
    """Returns the training samples of MNIST, pixels in [0, 1]."""
    file = np.load(folder / "mnist.npz")
    x = np.ascontiguousarray(file["x_train"].reshape(60_000, -1), np.float32) / 255
    return x, file["y_train"].astype(np.int32)


def trees(x: Any, y: Any) -> dict[str, Any]:
    """Measures the growing of trees on MNIST."""
    count = hforest.get_num_threads()
    begin = time.perf_counter()
    forest = co2.grow(x, y, count, rng=0)
    seconds = time.perf_counter() - begin
    return {"job": "tree at the defaults", "shape": [60_000, 784], "trees": count, "seconds": seconds,
            "nodes": len(forest.feature), "entries": len(forest.indices)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shapes", nargs="*", type=lambda a: tuple(int(b) for b in a.split(",")), default=SHAPES
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    hforest.set_num_threads(options.threads)
    print(machine_text())
    ceiling = ceilings()
    rows = []
    for shape in options.shapes:
        check(shape)
        row = steps(shape, options.repeats)
        floor = 1e6 * row["bytes"] / ceiling["copy_bytes"]
        row["floor_us"] = floor
        print(
            f"step  {shape}: {row['us']:.1f} us, NumPy {row['numpy_us']:.1f} us, {row['ratio']:.1f} times; "
            f"its rows read from memory {floor:.1f} us; spread {row['spread']:.0%}"
        )
        x, y, _ = problem(shape)
        rows += [row, start(x, y, shape[2], candidates(None, shape[1]), options.repeats)]
        print(f"start {shape}: {start_text(rows[-1])}")
    if options.data is not None:
        x, y = mnist(options.data)
        rows.append(start(x, y, 10, 28, options.repeats))
        print(f"start on MNIST: {start_text(rows[-1])}")
        rows.append(trees(x, y))
        print(
            "tree  {shape}: {trees} trees in {seconds:.1f} s, {nodes} nodes, {entries} weights".format(
                **rows[-1]
            )
        )
    if options.json is not None:
        record(options.json, rows, threads=options.threads)


if __name__ == "__main__":
    main()
