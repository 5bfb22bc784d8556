"""Cases of `hforest.neural`: every function, with own and shared decision functions, in one chunk and in several."""

import itertools
from collections.abc import Iterator
from unittest import mock

import numpy as np

from hforest import neural
from hforest.neural import gpu

from .case import Case

SATURATED = 300.0  # products of samples of class 0 fail, as its probability is small in every leaf
# samples, trees, depth, classes, functions (0: one for each vertex), size of the decisions
SHAPES = (
    (0, 2, 2, 3, 0, 1.0),
    (1, 1, 1, 2, 0, 1.0),
    (7, 2, 3, 2, 0, 2.0),
    (20, 3, 4, 5, 6, 2.0),
    (9, 2, 3, 3, 0, 1e4),
    (5, 1, 7, 40, 3, 30.0),
    (35, 2, 5, 12, 0, 4.0),
    (12, 2, 3, 3, 0, SATURATED),
    (13, 3, 4, 4, 9, SATURATED),
    (4, 2, 8, 13, 0, 8.0),
)
ONE_CLASS = (3, 2, 6, 1, 0, 8.0)  # its gradients are 0 but for roundings, which differ from the reference's
NEAR = 64.0  # the reference computes routes in logarithms; deep products add up


def _outputs(f: np.ndarray, index: np.ndarray | None, leaves: np.ndarray) -> dict[str, np.ndarray]:
    # Products with leaves of any size and sign are subnormal, and so are some of their sums.
    rng = np.random.default_rng(len(f))
    powers = rng.integers(-40 if f.dtype == np.float32 else -310, 3, leaves.shape)
    any_size = (rng.standard_normal(leaves.shape) * 10.0**powers).astype(f.dtype)
    return {
        "mu": neural.route(f, index=index),
        "p": neural.forward(f, leaves, index=index),
        "y": neural.forward(f, any_size, index=index, task="regression"),
    }


def _results(shape: tuple, local: int, dtype: type) -> dict[str, np.ndarray]:
    n, n_trees, depth, n_classes, n_functions, size = shape
    rng = np.random.default_rng(n + depth)
    vertices = (n_trees, 2**depth - 1)
    f = (size * rng.standard_normal((n, n_functions) if n_functions else (n, *vertices))).astype(dtype)
    index = rng.integers(0, n_functions, vertices, dtype=np.int32) if n_functions else None
    leaves = rng.dirichlet(np.ones(n_classes), size=(n_trees, 2**depth))
    if size == SATURATED:
        small = 10.0 ** -rng.uniform(0, 7, leaves.shape)
        small[:, :, 0] *= 1e-30 if dtype == np.float32 else 1e-280
        leaves = small / small.sum(axis=2, keepdims=True)
    leaves = leaves.astype(dtype)
    y = rng.integers(0, n_classes, n, dtype=np.int32)
    results = {}
    # Scratch for a few samples only, so that they go in chunks.
    chunks = mock.patch.multiple(
        gpu, NUMBERS=3 * n_trees * 2 ** (depth + 1), FEWEST=3, LOCAL=local, SHARE=local
    )
    with chunks:
        results |= _outputs(f, index, leaves)
        for loss in ("forest", "tree"):
            value, results[f"grad_{loss}"], results[f"p_{loss}"] = neural.loss_backward(
                f, leaves, y, index=index, loss=loss, return_p=True
            )
            results[f"loss_{loss}"] = np.array([value])
        grad_p = rng.standard_normal((n, n_classes)).astype(dtype)
        results["grad_outputs"] = neural.backward(grad_p, f, leaves, index=index)
        results["leaves"] = neural.update_leaves(f, y, leaves, 2, index=index)
        weight = rng.gamma(0.5, size=n) + (n == 1)
        weight[::3] = 0 if n > 1 else 1
        results["weighted"] = neural.update_leaves(f, y, leaves, 2, index=index, sample_weight=weight)
    return results


# samples, classes, and the classes of samples: the labels of a leaf update are in groups of one class
LABELS = (
    (150, 4, (0, 1, 2, 3)),
    (150, 50, (7, 30, 31)),
    (40, 5, (4,)),
    (64, 1, (0,)),
    (1, 4, (3,)),
)


def _leaves(labels: tuple, n_chunk: int, dtype: type) -> dict[str, np.ndarray]:
    n, n_classes, of = labels
    rng = np.random.default_rng(n + n_classes)
    f = (8 * rng.standard_normal((n, 2, 7))).astype(dtype)
    leaves = rng.dirichlet(np.ones(n_classes), size=(2, 8)).astype(dtype)
    y, weight = rng.choice(np.array(of, np.int32), n), rng.gamma(0.5, size=n)
    with mock.patch.object(gpu, "NUMBERS", 2 * 8 * n_chunk):
        return {
            "leaves": neural.update_leaves(f, y, leaves, 2),
            "weighted": neural.update_leaves(f, y, leaves, 2, sample_weight=weight),
        }


def cases(dtype: type) -> Iterator[Case]:
    """Every shape, and the labels of leaf updates."""
    labels = (f"{name}_{loss}" for name in ("grad", "loss", "p") for loss in ("forest", "tree"))
    names = ("mu", "p", "y", *labels, "grad_outputs", "leaves", "weighted")
    # The rows of pairs in shared memory, and in that of the device.
    for shape, local in itertools.product((*SHAPES, ONE_CLASS), (1, 8)):
        sizes = dict(zip(("n", "trees", "depth", "classes", "functions", "size"), shape, strict=True))
        name = " ".join(f"{key}={value}" for key, value in sizes.items())
        near = dict.fromkeys(names, NEAR)
        # Losses are float64, of sums in dtype.
        roundings = float(np.finfo(dtype).eps / np.finfo(np.float64).eps)
        near |= {key: NEAR * roundings for key in names if key.startswith("loss_")}
        if shape != ONE_CLASS:
            yield Case(f"{name} local={local}", lambda s=shape, m=local: _results(s, m, dtype), near, 32)
        exact = lambda s=shape, m=local: _results(s, m, dtype)  # noqa: E731
        yield Case(f"{name} local={local} as on the CPU", exact, threads=32, beside="cpu")
    for labels, n_chunk in itertools.product(LABELS, (16, 1000)):
        n, n_classes, of = labels
        name = f"n={n} classes={n_classes} labels={of} n_chunk={n_chunk}"
        leaves = lambda a=labels, m=n_chunk: _leaves(a, m, dtype)  # noqa: E731
        yield Case(f"{name} as on the CPU", leaves, threads=32, beside="cpu")
