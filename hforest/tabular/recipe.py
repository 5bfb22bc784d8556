"""Constants of `fit`, and records that its parts exchange: settings, rows, losses."""

from typing import Literal, NamedTuple

import numpy as np

from ..core import series
from ..core.aliases import FloatArray, IntArray, Splitter, Task

# These constants were chosen by errors on held-out rows. docs/tabular.md names the tables, and
# bench/tabular_ablation.py measures the effect of each part.
NONZERO = 2
"""Number of columns of an inner product at the start."""
MAX_FEATURES = 40
"""Maximum number of features sampled at a node of a regression tree."""
MIN_STACKED, STACKING_RIDGE = 50, 0.05
"""Minimum number of rows by which kinds of trees are weighted, and a ridge, as a share of the mean square."""
MAX_LINEAR, LINEAR_RIDGE = 1000, 1.0
"""Maximum number of encoded columns of a linear part, and its ridge."""
RIDGE, TOLERANCE = 1.0, 0.05
"""`l2` and `tolerance` of `hinge.from_forest`."""
SMOOTHING = 0.01
"""Added to shares of classes before logarithms are taken."""
FACTORS = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
"""Factors of scores of classes that were fitted to shares; the smallest held-out loss decides."""
DEFAULT_FACTOR = 4.0
"""The factor without held-out rows."""
KERNEL_RATE = 1.0
"""Learning rate of the inner products, divided by that of the trees."""
WARM_UP = 25
"""Number of steps over which the learning rate rises to its value."""
SAMPLE_EVERY = 10
"""Number of steps between two states that enter the average."""
LATENESS = 8.0
"""The average over t states gives a late one the weight (LATENESS + 1) / (t + LATENESS)."""
JUDGE_EVERY = 50
"""Number of steps between two evaluations on held-out rows."""
PATIENCE = 2
"""Number of successive evaluations without an improvement after which training ends."""
TEMPERATURES = (0.4, 0.6, 0.8, 1.0)
"""Factors of the scores of trained trees; the held-out loss selects one."""
SHARES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares of the hinge trees in the prediction; the held-out loss selects one."""
START = {"rate": 0.1, "share": 1.0, "l2": 0.0, "max_features": "sqrt"}
"""Settings of the trees, boosted on the residual of the forest, with whose splits hinge trees start."""
START_BINS = 64
"""Maximum number of bins of a column for them."""
BOOSTED = {"rate": 0.1, "share": 0.7, "l2": 1.0, "max_depth": 4, "min_samples_leaf": 10}
"""Settings of the boosted part of the prediction."""
BOOSTED_FEATURES, BOOSTED_BINS = 0.4, 255
"""Share of the columns that are sampled at a node, and maximum number of bins of a column."""
JUDGE_BOOSTED_EVERY, BOOSTED_PATIENCE = 10, 50
"""Number of boosted trees between two evaluations on held-out rows, and without an improvement at the end."""
CHUNK = 4096
"""Number of rows that are evaluated at a time."""
LEAST_CURVATURE = 1e-6
"""Minimum second derivative of a loss."""
LEAST_PROBABILITY = 1e-6
"""Minimum probability of which a geometric mean is taken."""


class Group(NamedTuple):
    """A kind of the trees of a grown forest."""

    share: float
    """Share of the trees."""
    has_products: bool
    """Whether the trees read inner products besides columns."""
    max_features: Literal["sqrt"] | float
    """`max_features` of `hforest.grow`; a share is at least 3 features and at most MAX_FEATURES."""
    splitter: Splitter = "best"


GROUPS = {
    "classification": (Group(0.5, False, "sqrt"), Group(0.5, True, "sqrt")),
    "regression": (
        Group(0.2, False, 1 / 3),
        Group(0.15, False, 1.0),
        Group(0.15, False, 1.0, "random"),
        Group(0.5, True, 1 / 3),
    ),
}


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
    n_boosted: int


class Rows(NamedTuple):
    """Rows of a table with scaled columns."""

    x: FloatArray
    """(n_samples, n_encoded) float32, finite: input of hinge trees and inner products."""
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
        losses = -series.log(np.maximum(y[np.arange(len(y)), rows.y], 1e-9))
    else:
        losses = ((y - rows.y) ** 2).sum(axis=1)
    return float(np.average(losses, weights=rows.weight))
