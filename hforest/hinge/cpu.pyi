from numpy.typing import NDArray

def tree_traverse(
    x: NDArray, thresholds: NDArray, features: NDArray, leaf: NDArray, margin: NDArray, vertex: NDArray
) -> None: ...
def fern_traverse(
    x: NDArray, thresholds: NDArray, features: NDArray, leaf: NDArray, margin: NDArray, vertex: NDArray
) -> None: ...
def leaf_outputs(leaf: NDArray, margin: NDArray, weights: NDArray, divisor: float, y: NDArray) -> None: ...
def tree_forward(
    x: NDArray,
    thresholds: NDArray,
    features: NDArray,
    weights: NDArray,
    divisor: float,
    y: NDArray,
    route: tuple[NDArray, NDArray, NDArray] | None = None,
) -> None: ...
def fern_forward(
    x: NDArray,
    thresholds: NDArray,
    features: NDArray,
    weights: NDArray,
    divisor: float,
    y: NDArray,
    route: tuple[NDArray, NDArray, NDArray] | None = None,
) -> None: ...
def backward(
    grad_y: NDArray,
    leaf: NDArray,
    margin: NDArray,
    vertex: NDArray,
    features: NDArray,
    weights: NDArray,
    divisor: float,
    grad_x: NDArray,
    grad_thresholds: NDArray,
    grad_weights: NDArray,
) -> None: ...
def backward_sparse(
    grad_y: NDArray,
    leaf: NDArray,
    margin: NDArray,
    vertex: NDArray,
    features: NDArray,
    weights: NDArray,
    divisor: float,
    vertex_start: NDArray,
    vertex_rows: NDArray,
    leaf_start: NDArray,
    leaf_rows: NDArray,
    grad_x: NDArray,
    grad_thresholds: NDArray,
    grad_weights: NDArray,
) -> None: ...
def touched(index: NDArray, n_slots: int, start: NDArray, rows: NDArray) -> None: ...
def leaf_counts(leaf: NDArray, counts: NDArray) -> None: ...
