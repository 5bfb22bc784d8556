"""Times of calls of hforest.jax and of the NumPy functions that they call: the overhead of JAX and XLA.

    python bench/jax_calls.py [--repeats 200] [--json FILE]

The problem is small, so that calls take the time rather than kernels: 8 samples, 5 trees of depth 3, float32.
JAX's functions are compiled (`jax.jit`) and called with arrays of JAX. Results are compared bit for bit
before anything is timed. Each figure is the minimum of many, measured in turn, in microseconds per call; "JAX
adds" is the difference. A row of two calls (forward and backward) has half of it.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from common import machine_text, need, options_of, record, seconds

from hforest import hinge, neural

N_SAMPLES, N_FEATURES, N_TREES, DEPTH, N_OUTPUTS = 8, 6, 5, 3, 2

Case = tuple[str, int, Callable[[], Any], Callable[[], Any]]


def cases() -> list[Case]:
    """Yields names, numbers of foreign calls, NumPy calls and JAX calls with the same results."""
    import jax
    import jax.numpy as jnp

    import hforest.jax

    rng = np.random.default_rng(0)
    x = rng.normal(size=(N_SAMPLES, N_FEATURES)).astype(np.float32)
    t, f, w = hinge.init(N_TREES, DEPTH, N_FEATURES, (N_OUTPUTS,), rng=0)
    ones = np.ones((N_SAMPLES, N_OUTPUTS), np.float32)
    functions = rng.normal(size=(N_SAMPLES, N_TREES, 2**DEPTH - 1)).astype(np.float32)
    leaves = np.full((N_TREES, 2**DEPTH, N_OUTPUTS), 1 / N_OUTPUTS, np.float32)
    arrays = [jnp.asarray(a) for a in (x, t, f, w)]
    soft = [jnp.asarray(a) for a in (functions, leaves)]

    def backward() -> Any:
        _, route = hinge.forward_with_route(x, t, f, w, aggregate="sum")
        grads = hinge.backward(ones, route, x, t, f, w, aggregate="sum")
        return grads.x, grads.thresholds, grads.weights

    forward = jax.jit(hforest.jax.hinge_forest)
    gradient = jax.jit(jax.grad(lambda *a: hforest.jax.hinge_forest(*a).sum(), (0, 1, 3)))
    shares = jax.jit(hforest.jax.neural_forest)
    by_function = jax.jit(jax.grad(lambda f, leaves: hforest.jax.neural_forest(f, leaves).sum()))
    return [
        (
            "hinge_forest",
            1,
            lambda: hinge.forward(x, t, f, w, aggregate="sum"),
            lambda: jax.block_until_ready(forward(*arrays)),
        ),
        ("hinge_forest, gradients", 2, backward, lambda: jax.block_until_ready(gradient(*arrays))),
        (
            "neural_forest",
            1,
            lambda: neural.forward(functions, leaves),
            lambda: jax.block_until_ready(shares(*soft)),
        ),
        (
            "neural_forest, gradient by f",
            1,
            lambda: neural.backward(ones, functions, leaves),
            lambda: jax.block_until_ready(by_function(*soft)),
        ),
    ]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--json")
    args = options_of(parser, "--repeats 3")
    need("-e '.[bench,jax]'", "jax")
    import jax

    rows, found = [], cases()
    for name, _, ours, theirs in found:
        for a, b in zip(jax.tree.leaves(ours()), jax.tree.leaves(theirs()), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), name
    best = {name: [np.inf, np.inf] for name, *_ in found}
    for _ in range(args.repeats):
        for name, _, *calls in found:
            for i, call in enumerate(calls):
                best[name][i] = min(best[name][i], *seconds(call, repeats=1, least=0.002))
    print(f"{machine_text()}, JAX {jax.__version__}")
    print(f"{'':32s}{'NumPy':>8s}{'JAX':>8s}{'JAX adds, each call':>22s}  microseconds")
    for name, n_calls, *_ in found:
        plain, jitted = (1e6 * taken for taken in best[name])
        rows.append({"name": name, "calls": n_calls, "numpy": plain, "jax": jitted})
        print(f"{name:32s}{plain:8.1f}{jitted:8.1f}{(jitted - plain) / n_calls:22.1f}")
    if args.json:
        record(args.json, rows, jax=jax.__version__)


if __name__ == "__main__":
    main()
