"""Hinge forests in NumPy and in PyTorch, the peers in bench/hinge.py.

Both are vectorised over samples and trees, level by level. They return the outputs summed over trees, and the
gradients with respect to input, thresholds and weights, in PyTorch by autograd. With `torch.compile` routing
and leaf look-up are compiled separately, which was faster than together. Each problem has its own process:
see bench/compiled.py.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from compiled import compiled

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


def torch_step(
    kind: str, arrays: tuple[Any, ...], compiling: bool, threads: int
) -> tuple[Callable[[], Any], Callable[[], Any]] | None:
    """Returns calls of PyTorch's forward, and of its forward and backward; None without PyTorch."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(threads)
    x, t, f, w, grad_y = (torch.from_numpy(np.array(a)) for a in arrays)
    f, depth, fern = f.int(), depth_of(kind, t), kind == "fern"
    n, n_trees, n_vertices, n_leaves = len(x), len(t), t.shape[1], w.shape[1]
    row = torch.arange(n_trees, dtype=torch.int32)
    flat_f = f.reshape(-1)

    def route(x: Any, t: Any) -> tuple[Any, Any]:
        # Tensors of one element per sample and tree, int32 if indexing allows it.
        v = torch.zeros((n, n_trees), dtype=torch.int32)
        leaf, vertex, lowest, flat_t = v, v, None, t.reshape(-1)
        for level in range(depth):
            if fern:
                r, at = x[:, f[:, level]] - t[:, level], torch.full_like(v, level)
            else:
                i, at = row * n_vertices + v, v
                r = x.gather(1, flat_f[i].long()) - flat_t[i]
            size = r.abs()
            if lowest is None:
                lowest, vertex = size, at
            else:
                closer = size < lowest
                lowest, vertex = torch.where(closer, size, lowest), torch.where(closer, at, vertex)
            right = (r > 0).int()
            leaf, v = 2 * leaf + right, 2 * v + 1 + right
        return leaf, vertex

    def size_of(x: Any, t: Any, vertex: Any) -> Any:
        i = row * n_vertices + vertex
        return (x.gather(1, flat_f[i].long()) - t.reshape(-1)[i]).abs()

    def look_up(x: Any, t: Any, w: Any, leaf: Any, vertex: Any) -> Any:
        rows = w.reshape(-1, w.shape[2])[row * n_leaves + leaf]
        return (rows * size_of(x, t, vertex).unsqueeze(-1)).sum(dim=1)

    def look_up_only(x: Any, t: Any, w: Any, leaf: Any, vertex: Any) -> Any:
        # The fastest sum, whose backward is the slowest.
        return torch.nn.functional.embedding_bag(
            row * n_leaves + leaf,
            w.reshape(-1, w.shape[2]),
            mode="sum",
            per_sample_weights=size_of(x, t, vertex),
        )

    parts: list[Any] = [route, look_up, look_up_only]
    routing, adding, adding_only = [compiled(part) for part in parts] if compiling else parts

    def forward() -> Any:
        with torch.no_grad():
            return adding_only(x, t, w, *routing(x, t)).numpy()

    def both() -> Any:
        parameters: list[Any] = [a.detach().requires_grad_() for a in (x, t, w)]
        with torch.no_grad():
            found = routing(x, t)
        y = adding(*parameters, *found)
        y.backward(grad_y)
        return (y.detach().numpy(), *(a.grad.numpy() for a in parameters))

    return forward, both


def add_peers(kind: str, arrays: tuple[Any, ...], jobs: dict[str, Calls], threads: int) -> None:
    """Adds the rungs of the peers, each checked against the results of hforest before it is timed."""
    want = [np.asarray(a) for a in jobs["forward+backward"]["hforest"]()]
    found: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {}
    n_values = len(arrays[0]) * len(arrays[1]) * arrays[3].shape[2]
    if n_values <= 4 * 10**6:
        found["numpy"] = (
            lambda: numpy_traverse(kind, *arrays[:3]),
            lambda: numpy_step(kind, *arrays),
        )
    for name, compiling in (("torch", False), ("torch.compile", True)):
        # Eager autograd keeps (n, trees, outputs) several times.
        calls = torch_step(kind, arrays, compiling, threads) if n_values <= 10**8 else None
        if calls is not None:
            found[name] = calls
    for name, (forward, both) in found.items():
        for a, b in zip(both(), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * abs(b).max(), err_msg=name)
        jobs["traverse" if name == "numpy" else "forward"][name] = forward
        jobs["forward+backward"][name] = both
