from typing import Any

import numpy as np

from ..core.aliases import IntArray

State = tuple[IntArray, IntArray, IntArray]

def child_keys(keys: IntArray) -> IntArray: ...
def words(seed: int, first_row: int, n: int) -> IntArray: ...
def sampled_features(keys: IntArray, first: int, count: int, n_columns: int) -> IntArray: ...
def histograms(
    codes: IntArray,
    labels: IntArray | None,
    targets: IntArray | None,
    n_outputs: int,
    state: State,
    node: IntArray,
    column: IntArray,
    cells: IntArray,
) -> IntArray: ...
def partitioned(
    codes: IntArray,
    state: State,
    column: IntArray,
    tables: IntArray,
    goes_left: IntArray,
    keeps: np.ndarray[Any, Any],
) -> State: ...
