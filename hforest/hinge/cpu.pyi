from ..core.aliases import FloatArray, IntArray
from .shared import Route

def tree_traverse(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
) -> None: ...
def fern_traverse(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
) -> None: ...
def leaf_outputs(
    leaf: IntArray, margin: FloatArray, weights: FloatArray, divisor: float, y: FloatArray
) -> None: ...
def tree_forward(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    divisor: float,
    y: FloatArray,
    route: Route | None = None,
) -> None: ...
def fern_forward(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    divisor: float,
    y: FloatArray,
    route: Route | None = None,
) -> None: ...
def backward(
    grad_y: FloatArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
    features: IntArray,
    weights: FloatArray,
    divisor: float,
    grad_x: FloatArray,
    grad_thresholds: FloatArray,
    grad_weights: FloatArray,
) -> None: ...
def backward_sparse(
    grad_y: FloatArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
    features: IntArray,
    weights: FloatArray,
    divisor: float,
    vertex_start: IntArray,
    vertex_rows: IntArray,
    leaf_start: IntArray,
    leaf_rows: IntArray,
    grad_x: FloatArray,
    grad_thresholds: FloatArray,
    grad_weights: FloatArray,
) -> None: ...
def touched(index: IntArray, n_slots: int, start: IntArray, rows: IntArray) -> None: ...
def leaf_counts(leaf: IntArray, counts: IntArray) -> None: ...
