from typing import Any

import numpy as np

from ...core.aliases import FloatArray, IntArray
from ...core.in_place import PlacedWindows
from ...core.projections import Distribution
from ..bins import Bins, Prepared
from ..trees import Batch, Objective, Trees

def bootstrap_counts(seed: int, first: int, n_draws: int, counts: IntArray) -> None: ...
def poisson_counts(seed: int, first: int, first_row: int, counts: IntArray) -> None: ...
def encode(x: FloatArray, bins: IntArray, low: FloatArray, high: FloatArray, n_bins: IntArray) -> None: ...
def joined(trees: list[Any], n_outputs: int, dtype: np.dtype, projected: bool) -> Trees: ...
def columns_read(splitter: str) -> str: ...
def prepare_columns(bins: Bins, splitter: str) -> IntArray | None: ...
def grow(
    bins: Bins | FloatArray | PlacedWindows,
    workspace: IntArray | None,
    objective: Objective,
    max_features: int,
    splitter: str,
    batch: Batch,
) -> None: ...
def prepare_projections(x: FloatArray, distribution: Distribution, has_missing: bool) -> Prepared: ...
def grow_projected(
    x: FloatArray,
    workspace: Prepared,
    objective: Objective,
    distribution: Distribution,
    n_projections: int,
    splitter: str,
    batch: Batch,
) -> None: ...
