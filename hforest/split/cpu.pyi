from numpy.typing import NDArray

def impurity(counts: NDArray, criterion: int, out: NDArray) -> None: ...
def class_splits(
    values: NDArray,
    y: NDArray,
    weights: NDArray,
    n_classes: int,
    criterion: int,
    min_leaf: int,
    max_bins: int,
    threshold: NDArray,
    gain: NDArray,
) -> None: ...
def target_splits(
    values: NDArray,
    y: NDArray,
    weights: NDArray,
    min_leaf: int,
    max_bins: int,
    threshold: NDArray,
    gain: NDArray,
) -> None: ...
