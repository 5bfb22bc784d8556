from numpy.typing import NDArray

def route(f: NDArray, index: NDArray | None, mu: NDArray) -> None: ...
def forward(f: NDArray, index: NDArray | None, leaves: NDArray, p: NDArray) -> None: ...
def loss_backward(
    f: NDArray,
    index: NDArray | None,
    leaves: NDArray,
    y: NDArray,
    forest: bool,
    loss: NDArray,
    grad_f: NDArray,
    p: NDArray | None,
) -> None: ...
def backward(
    grad_p: NDArray, f: NDArray, index: NDArray | None, leaves: NDArray, grad_f: NDArray
) -> None: ...
def update_leaves(
    f: NDArray, index: NDArray | None, y: NDArray, weight: NDArray | None, n_iter: int, leaves: NDArray
) -> None: ...
