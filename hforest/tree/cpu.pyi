from numpy.typing import NDArray

def apply(
    x: NDArray,
    tree_start: NDArray,
    feature: NDArray,
    threshold: NDArray,
    left: NDArray,
    indptr: NDArray,
    indices: NDArray,
    data: NDArray,
    leaf: NDArray,
) -> None: ...
def predict(
    x: NDArray,
    tree_start: NDArray,
    feature: NDArray,
    threshold: NDArray,
    left: NDArray,
    indptr: NDArray,
    indices: NDArray,
    data: NDArray,
    value: NDArray,
    vote: bool,
    y: NDArray,
) -> None: ...
def faults(
    tree_start: NDArray,
    feature: NDArray,
    threshold: NDArray,
    left: NDArray,
    indptr: NDArray,
    indices: NDArray,
    n_features: int,
    found: NDArray,
) -> None: ...
