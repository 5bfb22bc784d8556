from typing import Any

import numpy as np

from ..core.aliases import FloatArray, IntArray
from ..core.projections import Distribution

def bootstrap_counts(seed: int, first: int, counts: IntArray) -> None: ...
def encode(x: FloatArray, bins: IntArray, low: FloatArray, high: FloatArray, n_bins: IntArray) -> None: ...
def joined(
    trees: list[Any], n_outputs: int, dtype: np.dtype, projected: bool
) -> tuple[FloatArray | IntArray, ...]: ...
def _scorers_taken() -> dict[str, int] | None: ...
def rows_of(bins: IntArray) -> IntArray | None: ...
def grow(
    bins: IntArray,
    rows: IntArray | None,
    low: FloatArray,
    high: FloatArray,
    base: IntArray | None,
    offset: IntArray | None,
    dtype: np.dtype,
    labels: IntArray | None,
    targets: FloatArray | None,
    n_outputs: int,
    sample_weight: FloatArray,
    criterion: int,
    max_features: int,
    max_depth: int,
    min_samples_split: int,
    min_samples_leaf: int,
    min_impurity_decrease: float,
    completely_random: bool,
    seed: int,
    first: int,
    n_trees: int,
    counts: IntArray | None,
    trees: list[Any],
) -> None: ...
def whole_numbers(x: FloatArray, small: IntArray) -> int: ...
def corner_table(x: FloatArray, distribution: Distribution, table: IntArray) -> None: ...
def columns_of(x: FloatArray, whole: bool, small: IntArray | None) -> FloatArray | IntArray | None: ...
def grow_projected(
    x: FloatArray,
    whole: bool,
    small: IntArray | None,
    columns: FloatArray | IntArray | None,
    table: IntArray | None,
    labels: IntArray | None,
    targets: FloatArray | None,
    n_outputs: int,
    sample_weight: FloatArray,
    criterion: int,
    distribution: Distribution,
    n_projections: int,
    max_depth: int,
    min_samples_split: int,
    min_samples_leaf: int,
    min_impurity_decrease: float,
    seed: int,
    first: int,
    n_trees: int,
    counts: IntArray | None,
    trees: list[Any],
) -> None: ...
