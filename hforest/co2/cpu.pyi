from typing import Any

from numpy.typing import NDArray

def surrogate(
    w: NDArray,
    theta0: NDArray,
    theta1: NDArray,
    x: NDArray,
    labels: NDArray | None,
    targets: NDArray | None,
    weight: NDArray,
    out: NDArray,
) -> None: ...
def surrogate_grad(
    w: NDArray,
    theta0: NDArray,
    theta1: NDArray,
    x: NDArray,
    labels: NDArray | None,
    targets: NDArray | None,
    weight: NDArray,
    grad_w: NDArray,
    grad_theta0: NDArray,
    grad_theta1: NDArray,
) -> None: ...
def fit_stump(
    x: NDArray,
    labels: NDArray | None,
    targets: NDArray | None,
    weight: NDArray,
    schedule: Any,
    key: int,
    w: NDArray,
    theta0: NDArray,
    theta1: NDArray,
    history: NDArray,
) -> None: ...
def fit_oc1(
    x: NDArray,
    labels: NDArray | None,
    targets: NDArray | None,
    weight: NDArray,
    n_outputs: int,
    criterion: int,
    min_leaf: int,
    restarts: int,
    jumps: int,
    key: int,
    w: NDArray,
) -> None: ...
def grow(
    x: NDArray,
    codes: NDArray,
    low: NDArray,
    high: NDArray,
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
    schedule: Any,
    search: Any,
    seed: int,
    first: int,
    n_trees: int,
    bags: NDArray | None,
    trees: list[tuple[Any, ...]],
) -> None: ...
