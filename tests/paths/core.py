"""Rows of `hforest.core.series`, and of `hforest.layers`, which uses it."""

import numpy as np

from hforest import layers
from hforest.core import series

from . import EXPS, LOGS, Row, normal


def rows():
    yield Row("series.exp", lambda: series.exp(normal(70)), paths=EXPS)
    yield Row("series.log", lambda: series.log(abs(normal(70))), paths=LOGS)
    both = {path: f"{EXPS[path]} {LOGS[path]}" for path in EXPS}
    yield Row(
        "layers.softmax_loss",
        lambda: layers.softmax_loss(normal(9, 5), np.zeros(9, np.int32)),
        paths=both,
    )
