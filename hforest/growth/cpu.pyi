from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.atoms import Atoms

def draw_bags(seed: int, first: int, counts: NDArray) -> None: ...
def encode(x: NDArray, codes: NDArray, low: NDArray, high: NDArray, n_codes: NDArray) -> None: ...
def joined(trees: list[Any], n_outputs: int, real: np.dtype, projected: bool) -> tuple[NDArray, ...]: ...
def rows_of(codes: NDArray) -> NDArray | None: ...
def grow(
    codes: NDArray,
    rows: NDArray | None,
    low: NDArray,
    high: NDArray,
    base: NDArray | None,
    offset: NDArray | None,
    real: np.dtype,
    labels: NDArray | None,
    targets: NDArray | None,
    n_outputs: int,
    weight: NDArray,
    criterion: int,
    n_drawn: int,
    max_depth: int,
    min_split: int,
    min_leaf: int,
    min_decrease: float,
    completely_random: bool,
    seed: int,
    first: int,
    n_trees: int,
    bags: NDArray | None,
    trees: list[Any],
) -> None: ...
def whole_numbers(x: NDArray, small: NDArray) -> int: ...
def corner_table(x: NDArray, atoms: Atoms, table: NDArray) -> None: ...
def columns_of(x: NDArray, whole: bool, small: NDArray | None) -> NDArray | None: ...
def grow_projected(
    x: NDArray,
    whole: bool,
    small: NDArray | None,
    columns: NDArray | None,
    table: NDArray | None,
    labels: NDArray | None,
    targets: NDArray | None,
    n_outputs: int,
    weight: NDArray,
    criterion: int,
    atoms: Atoms,
    n_drawn: int,
    max_depth: int,
    min_split: int,
    min_leaf: int,
    min_decrease: float,
    seed: int,
    first: int,
    n_trees: int,
    bags: NDArray | None,
    trees: list[Any],
) -> None: ...
