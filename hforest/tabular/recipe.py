"""Constants of `fit`, and records that its parts exchange: settings, rows, losses."""

from typing import NamedTuple

import numpy as np

from ..core.aliases import FloatArray, IntArray, Task

# Chosen by errors on held-out rows; docs/tabular.md says on which tables, and bench/tabular_ablation.py shows
# what the parts are worth.
NONZERO = 2
"""Columns that an inner product has at the start."""
PLAIN = 0.5
"""Share of the trees that are grown on the plain columns alone."""
MAX_FEATURES = 40
"""Features sampled at a node of a regression tree, at most."""
RIDGE, TOLERANCE = 1.0, 0.05
"""`l2` and `tolerance` of `hinge.from_forest`."""
OFFSETS = {"classification": (1.0,), "regression": (0.0, 1.0)}
"""Multiples of the forest's predictions that the trees add to; of several that of the least held-out loss."""
SMOOTHING = 0.01
"""Added to shares of classes before logarithms are taken."""
FACTORS = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
"""Scores of classes that fit shares are multiplied by one of these: that of the least held-out loss."""
DEFAULT_FACTOR = 4.0
"""That without held-out rows."""
KERNEL_RATE = 1.0
"""Learning rate of the inner products against that of the trees."""
WARM_UP = 25
"""Steps over which the learning rate rises to its value."""
SAMPLE_EVERY = 10
"""Steps between two states that enter the average."""
LATENESS = 8.0
"""The average over t states gives a late one the weight (LATENESS + 1) / (t + LATENESS)."""
JUDGE_EVERY = 50
"""Steps between two judgements on held-out rows."""
PATIENCE = 2
"""Judgements without a better one after which training ends."""
TEMPERATURES = (0.4, 0.6, 0.8, 1.0)
"""Factors of the scores of trained trees that held-out rows choose from."""
SHARES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares of the hinge trees in the prediction, of which held-out rows choose one."""


class Settings(NamedTuple):
    """Checked settings of `fit`."""

    task: Task
    n_classes: int | None
    n_trees: int
    depth: int
    n_projections: int
    steps: int
    batch_size: int
    lr: float
    average: bool
    share: float | None


class Rows(NamedTuple):
    """Rows of a table with scaled columns."""

    x: FloatArray
    """(n_samples, n_encoded) float32, finite: what hinge trees and inner products read."""
    y: FloatArray | IntArray
    """(n_samples,) int32 labels, or (n_samples, n_outputs) float32 targets in deviations."""
    weight: FloatArray | None
    """(n_samples,) float64, above 0; None for equal weights."""
    native: FloatArray | None = None
    """(n_samples, n_encoded) float32: `x` with NaN for missing values, for grown trees; None for `x`."""

    def part(self, rows: IntArray | slice) -> "Rows":
        """Returns some of the rows."""
        weight, native = (None if a is None else a[rows] for a in (self.weight, self.native))
        return Rows(self.x[rows], self.y[rows], weight, native)


def loss_of(y: FloatArray, rows: Rows, task: Task) -> float:
    """Returns the weighted mean of negative log probabilities of labels, or of squared errors of `y`."""
    if task == "classification":
        losses = -np.log(np.maximum(y[np.arange(len(y)), rows.y], 1e-9))
    else:
        losses = ((y - rows.y) ** 2).sum(axis=1)
    return float(np.average(losses, weights=rows.weight))
