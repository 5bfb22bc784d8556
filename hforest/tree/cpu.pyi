from numpy.typing import NDArray

from ..core.in_place import Windows
from ..core.sparse import Compressed
from .forest import Forest

def apply(x: NDArray | Windows | Compressed, forest: Forest, leaf: NDArray) -> None: ...
def predict(x: NDArray | Windows | Compressed, forest: Forest, vote: bool, y: NDArray) -> None: ...
def faults(
    tree_start: NDArray,
    feature: NDArray,
    threshold: NDArray,
    left: NDArray,
    indptr: NDArray,
    indices: NDArray,
    n_features: int,
    first: NDArray,
) -> None: ...
def group(leaf: NDArray, tree_start: NDArray, indptr: NDArray, member: NDArray) -> None: ...
def quantiles(
    leaf: NDArray,
    tree_start: NDArray,
    indptr: NDArray,
    rank: NDArray,
    weight: NDArray,
    y: NDArray,
    levels: NDArray,
    equal_trees: bool,
    values: NDArray,
) -> None: ...
def count_neighbors(
    leaf: NDArray,
    tree_start: NDArray,
    indptr: NDArray,
    member: NDArray,
    n_members: int,
    least: int,
    most: int,
    size: NDArray,
) -> None: ...
def neighbors(
    leaf: NDArray,
    tree_start: NDArray,
    indptr: NDArray,
    member: NDArray,
    n_members: int,
    least: int,
    most: int,
    row_start: NDArray,
    indices: NDArray,
    data: NDArray,
) -> None: ...
