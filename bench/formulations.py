"""Formulations of hinge forests as array expressions of PyTorch and JAX, for the peers in bench/peers.py.

A formulation has three parts, which are compiled separately or as one graph: `route` finds the row of leaf
weights, the margin and the nearest vertex of every sample and tree; `add` sums rows times margins over trees;
`hand` has the gradients as scatter-additions, and `again` computes the outputs so that the library
differentiates them. Arrays of a sample and a tree are (n, m) with order "samples", (m, n) with order "trees".
Forests are vectorised over both; levels are unrolled while a library traces the function.

Indices are int32 or int64. Reads of ferns: "levels" (a gather per level), "flat" (one gather for all levels,
bits by shifts), "select" (so by index_select), "matmul" (bits by a product with powers of two). Reads of
trees: "gather", "flat" (an index into the flattened input), "pair" (row and column). Indices of trees are
clipped, so that a compiler need not wrap negative ones.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Part = Callable[..., Any]

READS = {
    "fern": (("samples", "levels"), ("trees", "levels"), ("samples", "flat"), ("samples", "select"),
             ("samples", "matmul")),
    "tree": (("trees", "flat"), ("samples", "gather"), ("trees", "pair")),
}  # fmt: skip
"""Orders and reads of routes."""


class Library(NamedTuple):
    """What PyTorch and JAX write differently; the rest is the same expression in both."""

    xp: Any
    int_type: Any
    """dtype of indices"""
    float_type: Any
    arange: Callable[[int, Any], Any]
    """Returns 0 to size - 1 on the device of an array."""
    cast: Callable[[Any, Any], Any]
    turned: Callable[[Any], Any]
    """Returns the transpose, contiguous where the library has an order of memory."""
    at: Callable[[Any, Any], Any]
    """Returns a[index], whose index is in bounds."""
    gather: Callable[[Any, Any], Any]
    """Returns x[i, columns[i, j]]."""
    select: Callable[[Any, Any], Any]
    """Returns x[:, columns]."""
    add_at: Callable[[int, Any, Any], Any]
    """Returns (size, *) zeros with values added in rows."""
    sums: dict[str, Callable[[Any, Any, Any], Any]]
    """Further sums: of a (rows, k) table, rows (n, m) and factors (n, m), over the second axis."""


def torch_library(index: str = "int32") -> Library:
    """Returns the operations of PyTorch."""
    import torch

    functional = torch.nn.functional

    def add_at(size: int, rows: Any, values: Any) -> Any:
        return values.new_zeros(size, *values.shape[1:]).index_add(0, rows, values)

    dtype = getattr(torch, index)
    return Library(
        xp=torch,
        int_type=dtype,
        float_type=torch.float32,
        arange=lambda size, like: torch.arange(size, dtype=dtype, device=like.device),
        cast=lambda a, dtype: a.to(dtype),
        turned=lambda a: a.t().contiguous(),
        at=lambda a, i: a[i],
        gather=lambda x, columns: x.gather(1, columns.long()),
        select=lambda x, columns: x.index_select(1, columns),
        add_at=add_at,
        sums={
            "embedding": lambda table, rows, by: (functional.embedding(rows, table) * by[..., None]).sum(1),
            "bag": lambda table, rows, by: functional.embedding_bag(
                rows, table, mode="sum", per_sample_weights=by
            ),
        },
    )


def jax_library() -> Library:
    """Returns the operations of JAX."""
    import jax.numpy as jnp

    return Library(
        xp=jnp,
        int_type=jnp.int32,
        float_type=jnp.float32,
        arange=lambda size, like: jnp.arange(size, dtype=jnp.int32),
        cast=lambda a, dtype: a.astype(dtype),
        turned=lambda a: a.T,
        at=lambda a, i: a.at[i].get(mode="promise_in_bounds"),
        gather=lambda x, columns: jnp.take_along_axis(x, columns, 1, mode="promise_in_bounds"),
        select=lambda x, columns: jnp.take(x, columns, 1, mode="clip"),
        add_at=lambda size, rows, values: (
            jnp.zeros((size, *values.shape[1:]), values.dtype).at[rows].add(values)
        ),
        sums={},
    )


def rows_and_columns(lib: Library, order: str, x: Any, t: Any) -> tuple[Any, Any]:
    """Returns numbers of samples and of trees that broadcast to the arrays of this order."""
    samples, trees = (lib.arange(len(a), a) for a in (x, t))
    return (samples, trees[:, None]) if order == "trees" else (samples[:, None], trees)


def nearer(lib: Library, best: Any, r: Any, at: Any) -> Any:
    """Returns the margin of smaller size and its vertex."""
    if best is None:
        return r, at
    closer = abs(r) < abs(best[0])
    return lib.xp.where(closer, r, best[0]), lib.xp.where(closer, at, best[1])


def fern_route(lib: Library, order: str, read: str, vertices: bool) -> Part:
    """Returns the route of ferns: see `route`."""
    xp = lib.xp

    def levels(x: Any, t: Any, f: Any) -> Any:
        depth, tall = t.shape[1], order == "trees"
        trees = rows_and_columns(lib, order, x, t)[1]
        leaf, best = None, None
        x = lib.turned(x) if tall else x
        for level in range(depth):
            r = (
                lib.at(x, f[:, level]) - t[:, level, None]
                if tall
                else lib.at(x, (slice(None), f[:, level])) - t[:, level]
            )
            right = lib.cast(r > 0, lib.int_type)
            leaf = right if leaf is None else 2 * leaf + right
            if vertices:
                best = nearer(lib, best, r, xp.full_like(leaf, level))
            else:
                best = (abs(r) if best is None else xp.minimum(best[0], abs(r)), None)
        assert best is not None
        rows = leaf + trees * 2**depth
        return (rows, *best[:1], best[1] + trees * depth) if vertices else (rows, best[0])

    def flat(x: Any, t: Any, f: Any) -> Any:
        m, depth = t.shape
        columns = f.reshape(-1)
        samples, trees = rows_and_columns(lib, order, x, t)
        r = lib.at(x, (slice(None), columns)) if read == "flat" else lib.select(x, columns)
        r = r.reshape(len(x), m, depth) - t
        powers = depth - 1 - lib.arange(depth, t)
        if read == "matmul":
            bits = lib.cast(r > 0, lib.float_type) @ lib.cast(2**powers, lib.float_type)
            leaf = lib.cast(bits, lib.int_type)
        else:
            leaf = lib.cast((lib.cast(r > 0, lib.int_type) << powers).sum(2), lib.int_type)
        rows = leaf + trees * 2**depth
        if not vertices:
            return rows, xp.amin(abs(r), 2)
        near = lib.cast(xp.argmin(abs(r), 2), lib.int_type) + trees * depth
        return rows, lib.at(x, (samples, lib.at(columns, near))) - lib.at(t.reshape(-1), near), near

    return levels if read == "levels" else flat


def tree_route(lib: Library, order: str, read: str, vertices: bool) -> Part:
    """Returns the route of trees: see `route`."""
    xp = lib.xp

    def route(x: Any, t: Any, f: Any) -> Any:
        (n, width), (m, n_vertices) = x.shape, t.shape
        samples, trees = rows_and_columns(lib, order, x, t)
        v = samples * 0 + trees * 0
        best: Any = None
        for _ in range((n_vertices + 1).bit_length() - 1):
            at = xp.clip(trees * n_vertices + v, 0, m * n_vertices - 1)
            column = xp.clip(lib.at(f.reshape(-1), at), 0, width - 1)
            if read == "gather":
                value = lib.gather(x, column)
            elif read == "pair":
                value = lib.at(x, (samples, column))
            else:
                value = lib.at(x.reshape(-1), xp.clip(column + samples * width, 0, n * width - 1))
            r = value - lib.at(t.reshape(-1), at)
            if vertices:
                best = nearer(lib, best, r, at)
            else:
                best = abs(r) if best is None else xp.minimum(best, abs(r))
            v = 2 * v + 1 + lib.cast(r > 0, lib.int_type)
        rows = v - n_vertices + trees * (n_vertices + 1)
        return (rows, *best) if vertices else (rows, best)

    return route


def route(lib: Library, kind: str, order: str, read: str, vertices: bool) -> Part:
    """Returns a function of (x, t, f) with rows of leaf weights and sizes of margins.

    With `vertices` they are rows, margins with their signs, and vertices of the flattened thresholds.
    """
    return (fern_route if kind == "fern" else tree_route)(lib, order, read, vertices)


def add(lib: Library, order: str, how: str) -> Part:
    """Returns a function of (w, rows, margins) with the outputs summed over trees."""

    def summed(w: Any, rows: Any, margins: Any) -> Any:
        table = w.reshape(-1, w.shape[2])
        if how == "index":
            return (lib.at(table, rows) * abs(margins)[..., None]).sum(0 if order == "trees" else 1)
        return lib.sums[how](table, rows, abs(margins))

    return summed


def again(lib: Library, order: str, how: str) -> Part:
    """Returns a function of (x, t, w, f, rows, vertices) with the outputs, to be differentiated."""
    total = add(lib, order, how)

    def outputs(x: Any, t: Any, w: Any, f: Any, rows: Any, near: Any) -> Any:
        samples, _ = rows_and_columns(lib, order, x, t)
        return total(w, rows, lib.at(x, (samples, lib.at(f.reshape(-1), near))) - lib.at(t.reshape(-1), near))

    return outputs


def hand(lib: Library, order: str) -> Part:
    """Returns a function of (grad_y, rows, margins, vertices, x, t, f, w) with the three gradients."""

    def gradients(grad_y: Any, rows: Any, margins: Any, near: Any, x: Any, t: Any, f: Any, w: Any) -> Any:
        (n, width), k = x.shape, w.shape[2]
        samples, _ = rows_and_columns(lib, order, x, t)
        table, by = w.reshape(-1, k), grad_y if order == "trees" else grad_y[:, None]
        slope = ((lib.at(table, rows) * by).sum(2) * lib.xp.sign(margins)).reshape(-1)
        places = (samples * width + lib.at(f.reshape(-1), near)).reshape(-1)
        leaves = (abs(margins)[..., None] * by).reshape(-1, k)
        return (
            lib.add_at(n * width, places, slope).reshape(x.shape),
            lib.add_at(t.shape[0] * t.shape[1], near.reshape(-1), -slope).reshape(t.shape),
            lib.add_at(len(table), rows.reshape(-1), leaves).reshape(w.shape),
        )

    return gradients
