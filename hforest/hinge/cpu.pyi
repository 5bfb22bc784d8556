from ..core.aliases import FloatArray, IntArray
from .geometry import Windows
from .shared import Arrays, Route, Settings
from .training import AdamState

def tree_traverse(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
    windows: Windows | None = None,
) -> None: ...
def fern_traverse(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
    windows: Windows | None = None,
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
    windows: Windows | None = None,
) -> None: ...
def fern_forward(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    divisor: float,
    y: FloatArray,
    route: Route | None = None,
    windows: Windows | None = None,
) -> None: ...
def backward(
    grad_y: FloatArray,
    route: Route,
    features: IntArray,
    weights: FloatArray,
    divisor: float,
    grad_x: FloatArray,
    grad_thresholds: FloatArray,
    grad_weights: FloatArray,
    windows: Windows | None = None,
) -> None: ...
def backward_sparse(
    grad_y: FloatArray,
    route: Route,
    features: IntArray,
    weights: FloatArray,
    divisor: float,
    vertices: tuple[IntArray, IntArray],
    leaves: tuple[IntArray, IntArray],
    grad_x: FloatArray,
    grad_thresholds: FloatArray,
    grad_weights: FloatArray,
    windows: Windows | None = None,
) -> None: ...
def touched(index: IntArray, n_slots: int, start: IntArray, rows: IntArray) -> None: ...
def leaf_counts(leaf: IntArray, counts: IntArray) -> None: ...
def tree_adam_forward(
    x: FloatArray,
    parameters: Arrays,
    state: AdamState,
    step: int,
    settings: Settings,
    divisor: float,
    route: Route,
    y: FloatArray,
) -> None: ...
def fern_adam_forward(
    x: FloatArray,
    parameters: Arrays,
    state: AdamState,
    step: int,
    settings: Settings,
    divisor: float,
    route: Route,
    y: FloatArray,
) -> None: ...
def adam_backward(
    grad_y: FloatArray,
    route: Route,
    parameters: Arrays,
    state: AdamState,
    step: int,
    settings: Settings,
    divisor: float,
    grad_x: FloatArray,
) -> None: ...
def tree_linear_traverse(
    x: FloatArray,
    thresholds: FloatArray,
    projections: FloatArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
) -> None: ...
def fern_linear_traverse(
    x: FloatArray,
    thresholds: FloatArray,
    projections: FloatArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
) -> None: ...
def linear_backward(
    grad_y: FloatArray,
    route: Route,
    x: FloatArray,
    projections: FloatArray,
    weights: FloatArray,
    divisor: float,
    grad_x: FloatArray,
    grad_thresholds: FloatArray,
    grad_projections: FloatArray,
    grad_weights: FloatArray,
) -> None: ...
def linear_backward_sparse(
    grad_y: FloatArray,
    route: Route,
    x: FloatArray,
    projections: FloatArray,
    weights: FloatArray,
    divisor: float,
    vertices: tuple[IntArray, IntArray],
    leaves: tuple[IntArray, IntArray],
    grad_x: FloatArray,
    grad_thresholds: FloatArray,
    grad_projections: FloatArray,
    grad_weights: FloatArray,
) -> None: ...
