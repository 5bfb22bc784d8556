"""Rows of `hforest.core.series`, and of `hforest.layers`, which uses it."""

import numpy as np

from hforest import layers
from hforest.core import series

from . import PATHS, Row, normal


def rows():
    # Where vectors are those of the compiler for any processor, the body is the plain one.
    body = {path: path if path.startswith("avx") else "plain" for path in PATHS}
    exps, logs = ({path: f"core.{name}_{body[path]}" for path in PATHS} for name in ("exps", "logs"))
    yield Row("series.exp", lambda: series.exp(normal(70)), paths=exps)
    yield Row("series.log", lambda: series.log(abs(normal(70))), paths=logs)
    both = {path: f"{exps[path]} {logs[path]}" for path in PATHS}
    yield Row(
        "layers.softmax_loss",
        lambda: layers.softmax_loss(normal(9, 5), np.zeros(9, np.int32)),
        paths=both,
    )
