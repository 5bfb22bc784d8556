"""Rows of `hforest.neural`."""

import numpy as np

from hforest import neural

from . import BITS, Row, normal


def rows():
    for bits, dtype in BITS.items():
        f, y = normal(40, 3, 7, dtype=dtype), np.arange(40) % 4
        leaves, grad = neural.uniform_leaves(3, 3, 4, dtype=dtype), normal(40, 4, dtype=dtype)
        pick = {path: f"neural.pick_{path}" for path in ("avx2", "avx512") if bits == "f32"}
        for name, tile, call, paths in (
            ("route", "route_tile", lambda f=f: neural.route(f), {}),
            ("forward", "forward_tile", lambda f=f, p=leaves: neural.forward(f, p), {}),
            ("loss_backward", "labels_tile", lambda f=f, p=leaves, y=y: neural.loss_backward(f, p, y), pick),
            ("backward", "outputs_tile", lambda f=f, p=leaves, g=grad: neural.backward(g, f, p), {}),
            ("update_leaves", "expect_tile", lambda f=f, p=leaves, y=y: neural.update_leaves(f, y, p, 2), {}),
        ):
            every = f"neural.{tile}_{bits}_{{path}}"
            if name == "loss_backward":
                every += f" neural.multiply_{bits}_{{path}}"
            yield Row(f"neural.{name}-{bits}", call, every, paths=paths)
