from numpy.typing import NDArray

def leaves(
    x: NDArray,
    tree_start: NDArray,
    feature: NDArray,
    threshold: NDArray,
    left: NDArray,
    start: NDArray,
    index: NDArray,
    weight: NDArray,
    leaf: NDArray,
) -> None: ...
def predict(
    x: NDArray,
    tree_start: NDArray,
    feature: NDArray,
    threshold: NDArray,
    left: NDArray,
    start: NDArray,
    index: NDArray,
    weight: NDArray,
    value: NDArray,
    vote: bool,
    y: NDArray,
) -> None: ...
def faults(
    tree_start: NDArray,
    feature: NDArray,
    threshold: NDArray,
    left: NDArray,
    start: NDArray,
    index: NDArray,
    n_features: int,
    found: NDArray,
) -> None: ...
