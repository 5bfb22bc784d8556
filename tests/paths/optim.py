"""Rows of `hforest.optim`."""

import numpy as np

from hforest import optim

from . import BITS, Row, normal


def catch_up(dtype):
    param, m, v = (np.ones((9, 3), dtype) for _ in range(3))
    optim.adam_catch_up(param, m, v, np.zeros(9, np.int64), 9, 0.1)


def rows():
    for bits, dtype in BITS.items():
        a = normal(20, dtype=dtype)
        step = lambda a=a: optim.adam(a, a.copy(), 0 * a, 0 * a, 1, 0.1)  # noqa: E731
        yield Row(f"optim.adam-{bits}", step, vectors=f"optim.adam_step_{bits}_{{path}}")
        yield Row(
            f"optim.adam_catch_up-{bits}",
            lambda dtype=dtype: catch_up(dtype),
            vectors=f"optim.adam_pass_{bits}_{{path}}",
        )
