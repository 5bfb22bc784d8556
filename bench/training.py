"""Times of a training step of the MNIST network of Lay et al. 2018: gradients, and exact Adam whose cost is
that of the rows that a batch reaches.

    python bench/training.py [--kinds tree fern] [--depths 6 8 10 12 14] [--threads 1]
        [--clock wall] [--json FILE]

80 convolutions of 5x5, stride 3 (5120 features), normalisation, 1000 trees of depth 10 with ten classes in
a leaf, batch 53, float32. The rungs are the same step by

* fused: `adam_forward` and `adam_backward`;
* rows: traverse, `adam_catch_up`, outputs, sparse gradients, `adam_rows`;
* dense: dense gradients and `optim.adam` on every parameter;
* numpy: dense gradients, and Adam as NumPy expressions.

Before they are timed, all rungs take the same steps from the same start on a smaller forest, and must end
with the same parameters. Figures are milliseconds, medians over steps of rungs that take turns: of the
forest, in which the rungs differ, and of the whole network. The floor of a dense step is a time to copy bytes
at the measured bandwidth: the gradient is written; then gradient, parameter and both moments are read, and
the last three are written. At the end the fused step is measured by depth: its cost grows like D, that of a
dense step like 2**D.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from common import CLOCKS, add_clock, ceilings, machine_text, options_of, record

import hforest
from hforest import hinge, layers, optim

SAMPLES, TREES, CLASSES, LR = 53, 1000, 10, 0.005
KERNELS, FEATURES = (80, 1, 5, 5), 5120
Step = Callable[[Any, Any], Any]


def _numpy_adam(p: Any, g: Any, m: Any, v: Any, step: int) -> None:
    m *= 0.9
    m += 0.1 * g
    v *= 0.999
    v += 0.001 * g * g
    p -= LR / (1 - 0.9**step) * m / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)


def forest_step(rung: str, kind: Any, arrays: tuple[Any, Any, Any]) -> tuple[Step, Callable[[], None]]:
    """Returns a function (features, labels) -> dL/dx that takes a step, and one that ends the training."""
    t, f, w = arrays
    words: dict[str, Any] = {"kind": kind, "aggregate": "sum"}
    state = hinge.adam_state(t, w)
    for a in state[:6]:
        a.fill(0)  # otherwise the first steps would include the cost of new pages
    steps = 0
    rows = (-1, CLASSES)
    flat_w, flat_m, flat_v = (a.reshape(rows) for a in (w, state.weights_m, state.weights_v))
    last = state.weights_last.reshape(-1)
    t_m, t_v = state.thresholds_m, state.thresholds_v

    def fused(x: Any, y: Any) -> Any:
        scores, route = hinge.adam_forward(x, t, f, w, state, steps, LR, **words)
        _, grad = layers.softmax_loss(scores, y)
        return hinge.adam_backward(grad, route, x, t, f, w, state, steps, LR, **words)

    def by_rows(x: Any, y: Any) -> Any:
        route = hinge.traverse(x, t, f, kind=kind)
        touched = hinge.leaf_rows(route.leaf, w.shape[1])
        optim.adam_catch_up(flat_w, flat_m, flat_v, last, steps - 1, LR, rows=touched)
        _, grad = layers.softmax_loss(hinge.leaf_outputs(route.leaf, route.margin, w, aggregate="sum"), y)
        grads = hinge.backward_sparse(grad, route, x, t, f, w, **words)
        grad_t = np.zeros_like(t)
        grad_t.reshape(-1)[grads.thresholds.rows] = grads.thresholds.values
        optim.adam(t, grad_t, t_m, t_v, steps, LR)
        rows, grad_w = grads.weights
        optim.adam_rows(flat_w, rows, grad_w, flat_m, flat_v, last, steps, LR)
        return grads.x

    def dense(x: Any, y: Any, adam: Any = None) -> Any:
        scores, route = hinge.forward_with_route(x, t, f, w, **words)
        _, grad = layers.softmax_loss(scores, y)
        grads = hinge.backward(grad, route, x, t, f, w, **words)
        moments = state.weights_m, state.weights_v
        for p, g, m, v in ((t, grads.thresholds, t_m, t_v), (w, grads.weights, *moments)):
            if adam is None:
                optim.adam(p, g, m, v, steps, LR)
            else:
                adam(p, g, m, v, steps)
        return grads.x

    def numpy(x: Any, y: Any) -> Any:
        return dense(x, y, _numpy_adam)

    step = {"fused": fused, "rows": by_rows, "dense": dense, "numpy": numpy}[rung]

    def counted(x: Any, y: Any) -> Any:
        nonlocal steps
        steps += 1
        return step(x, y)

    def finish() -> None:
        if rung == "fused":
            hinge.adam_sync(t, w, state, steps, LR)
        elif rung == "rows":
            optim.adam_catch_up(flat_w, flat_m, flat_v, last, steps, LR)

    return counted, finish


RUNGS = ("fused", "rows", "dense", "numpy")


def start(kind: Any, n_trees: int, depth: int, n_features: int) -> tuple[Any, Any, Any]:
    return hinge.init(n_trees, depth, n_features, CLASSES, kind=kind, rng=0)


def check(kind: Any) -> None:
    """Checks that all rungs have the same parameters after the same steps from one start."""
    rng = np.random.default_rng(1)
    ends = []
    for rung in RUNGS:
        arrays = start(kind, 30, 6, 40)
        step, finish = forest_step(rung, kind, arrays)
        rng = np.random.default_rng(1)
        for _ in range(30):
            step(
                rng.standard_normal((SAMPLES, 40), np.float32),
                rng.integers(0, CLASSES, SAMPLES).astype(np.int32),
            )
        finish()
        ends.append(arrays)
    for other in ends[1:]:
        for a, b in zip(ends[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5)


def network(images: Any, kernels: Any, moments: list[Any], norm: list[Any], forest: Step) -> Step:
    """Returns the step of the whole network around the step of a forest."""
    steps = 0

    def step(batch: Any, labels: Any) -> Any:
        nonlocal steps
        x = images[batch]
        maps = layers.conv2d(x, kernels, 3)
        inner = maps.reshape(len(x), -1)
        z = layers.normalize(inner, norm[0], norm[1])
        grad = layers.normalize_backward(forest(z, labels), norm[1])
        _, grad_kernels = layers.conv2d_backward(grad.reshape(maps.shape), x, kernels, 3)
        layers.normalize_update(inner, norm[0], norm[1], steps)
        steps += 1
        optim.adam(kernels, grad_kernels, moments[0], moments[1], steps, LR)

    return step


def on_features(step: Step, z: Any, labels: Any) -> Callable[[int], Any]:
    """Returns a function that takes the step on the i-th batch of features."""
    return lambda i: step(z[i % len(z)], labels[i % len(z)])


def on_images(step: Step, labels: Any) -> Callable[[int], Any]:
    """Returns a function that takes the step on the i-th batch of images, passed as a slice."""

    def call(i: int) -> Any:
        i %= len(labels)
        return step(slice(i * SAMPLES, (i + 1) * SAMPLES), labels[i])

    return call


def timed(calls: dict[str, Callable[[int], Any]], steps: int, clock: Callable[[], float]) -> dict[str, float]:
    """Returns median milliseconds of a step.

    The calls take turns of several steps. The first steps of a turn are not counted, since the caches then
    contain the arrays of another call, unlike in training.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    warm, turn, i = 4, 12, 0
    while min(len(values) for values in taken.values()) < steps:
        for name, call in calls.items():
            for j in range(turn):
                begin = clock()
                call(i + j)
                if j >= warm:
                    taken[name].append(1e3 * (clock() - begin))
        i += turn
    return {name: statistics.median(values) for name, values in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kinds", nargs="+", default=["tree", "fern"], choices=["tree", "fern"])
    parser.add_argument("--depths", nargs="+", type=int, default=[6, 8, 10, 12, 14])
    parser.add_argument("--trees", type=int, default=TREES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    add_clock(parser)
    parser.add_argument("--json")
    args = options_of(parser, "--kinds tree --depths 3 --trees 20 --steps 1")
    hforest.set_num_threads(args.threads)
    print(machine_text())
    rng = np.random.default_rng(0)
    images = rng.random((40 * SAMPLES, 1, 28, 28), np.float32)
    z = rng.standard_normal((40, SAMPLES, FEATURES), np.float32)
    labels = rng.integers(0, CLASSES, (40, SAMPLES)).astype(np.int32)
    clock = CLOCKS[args.clock]
    copy = ceilings(clock)["copy_bytes"]
    rows: list[dict[str, Any]] = []
    print(f"{args.threads} thread(s), copy {copy / 1e9:.1f} GB/s; milliseconds of {args.clock} time per step")
    for kind in args.kinds:
        check(kind)
        arrays = start(kind, args.trees, 10, FEATURES)
        numbers = arrays[0].size + arrays[2].size
        floor = 1e3 * 8 * 4 * numbers / copy
        calls: dict[str, Callable[[int], Any]] = {}
        for rung in RUNGS:
            step, _ = forest_step(rung, kind, tuple(a.copy() for a in arrays))
            calls[rung] = on_features(step, z, labels)
            kernels = rng.standard_normal(KERNELS, np.float32)
            moments = [np.zeros_like(kernels), np.zeros_like(kernels)]
            norm = [np.zeros(FEATURES, np.float32), np.ones(FEATURES, np.float32)]
            inner, _ = forest_step(rung, kind, tuple(a.copy() for a in arrays))
            whole = network(images, kernels, moments, norm, inner)
            calls[f"{rung}, network"] = on_images(whole, labels)
        with hforest.unchecked():
            result = timed(calls, args.steps, clock)
        print(f"\n{kind}s, depth 10, {numbers / 1e6:.1f} M parameters; floor of a dense step {floor:.1f} ms")
        for rung in RUNGS:
            ms, whole_ms = result[rung], result[f"{rung}, network"]
            print(
                f"  {rung:6} forest {ms:7.2f}  (dense / this {result['dense'] / ms:5.1f})"
                f"   network {whole_ms:7.2f}  ({result['dense, network'] / whole_ms:5.1f})"
            )
            rows.append(
                {"kind": kind, "rung": rung, "threads": args.threads, "forest_ms": ms, "network_ms": whole_ms}
            )
        rows.append({"kind": kind, "dense_floor_ms": floor, "copy_bytes": copy})
        del calls
        print(f"{kind}s, fused, over the depth")
        for depth in args.depths:
            step, _ = forest_step("fused", kind, start(kind, args.trees, depth, FEATURES))
            with hforest.unchecked():
                ms = timed({"fused": on_features(step, z, labels)}, args.steps, clock)["fused"]
            print(
                f"  depth {depth:2}  {ms:7.2f}   {args.trees * 2**depth * CLASSES / 1e6:7.1f} M leaf weights"
            )
            rows.append(
                {"kind": kind, "rung": "fused", "depth": depth, "forest_ms": ms, "threads": args.threads}
            )
    if args.json:
        record(args.json, rows, command=" ".join(sys.argv), clock=args.clock)


if __name__ == "__main__":
    main()
