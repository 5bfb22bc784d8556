"""Rows of `hforest.hinge`."""

import numpy as np

from hforest import hinge

from . import BITS, Row, normal


def traverse(kind, dtype, n):
    t, f, _ = hinge.init(40, 5, 7, kind=kind, dtype=dtype, rng=0)
    hinge.traverse(normal(n, 7, dtype=dtype), t, f, kind=kind)


def traverse_rows():
    for bits, dtype in BITS.items():
        # Trees have no bodies of 64 bytes.
        for name, kind, n, last in (
            ("tile", "tree", 40, "avx2"),
            ("row", "tree", 3, "avx2"),
            ("fern", "fern", 40, "avx512"),
        ):
            body = f"hinge.route_{name}_{bits}_"
            bodies = {"vector": body + "vector", "avx2": body + "avx2", "avx512": body + last}
            yield Row(
                f"hinge.traverse-{kind}-{n}-{bits}", lambda kind=kind, dtype=dtype, n=n: traverse(kind, dtype, n),
                # Numbers of 4 bytes: of the input of a tile, and leaves of a few rows.
                vectors="hinge.transpose" if name == "row" or bits == "f32" else "", paths=bodies,
            )  # fmt: skip


def of_margin(margin, dtype, backward):
    t, f, w = hinge.init(5, 3, 9, outputs=8, margin=margin, dtype=dtype, rng=0)
    x, leaf, r = normal(40, 9, dtype=dtype), np.zeros((40, 5), np.int32), normal(40, 5, dtype=dtype)
    if backward:
        hinge.backward(
            x[:, :8].copy(), hinge.Route(leaf, r, leaf), x, t, f, w, margin=margin, aggregate="sum"
        )
    else:
        hinge.traverse(x, t, f, margin=margin)


def margin_rows():
    # Inner products and gradients have bodies of 32 bytes alone; gradients transpose routes.
    for bits, dtype in BITS.items():
        for name, margin, bodies in (
            ("traverse", "projection", "values"),
            ("backward", "projection", "pull_x pull_features visit take"),
            ("backward", "column", "visit take"),
        ):
            taken, backward = (
                " ".join(f"hinge.{body}_{bits}_avx2" for body in bodies.split()),
                name == "backward",
            )
            yield Row(
                f"hinge.{name}-{margin}-{bits}",
                lambda margin=margin, dtype=dtype, backward=backward: of_margin(margin, dtype, backward),
                vectors="hinge.transpose" if backward else "", paths={"avx2": taken, "avx512": taken},
            )  # fmt: skip


def sums(dtype, known):
    t, f, w = hinge.init(20, 3, 9, outputs=7, dtype=dtype, rng=0)
    x = normal(40, 9, dtype=dtype)
    if known:
        hinge.leaf_outputs(np.zeros((40, 20), np.int32), normal(40, 20, dtype=dtype), w, aggregate="sum")
    else:
        hinge.forward(x, t, f, w, aggregate="sum")


def sum_rows():
    for bits, dtype in BITS.items():
        for name, known in (("forward", False), ("leaf_outputs", True)):
            body, tile = f"hinge.add_{bits}_avx2", "" if known else f" hinge.route_tile_{bits}_"
            yield Row(
                f"hinge.{name}-sum-{bits}", lambda dtype=dtype, known=known: sums(dtype, known),
                vectors="" if known or bits == "f64" else "hinge.transpose",
                paths={
                    **({} if known else {"vector": tile.strip() + "vector"}),
                    "avx2": body + (tile and tile + "avx2"), "avx512": body + (tile and tile + "avx2"),
                },
            )  # fmt: skip


def rows():
    yield from sum_rows()
    yield from traverse_rows()
    yield from margin_rows()
