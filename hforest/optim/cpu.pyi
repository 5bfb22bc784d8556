from numpy.typing import NDArray

from .tables import Tables

def adagrad(param: NDArray, grad: NDArray, state: NDArray, lr: float) -> None: ...
def adagrad_rows(param: NDArray, rows: NDArray, grad: NDArray, state: NDArray, lr: float) -> None: ...
def adam(
    param: NDArray,
    grad: NDArray,
    m: NDArray,
    v: NDArray,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
) -> None: ...
def adam_rows(
    param: NDArray,
    rows: NDArray,
    grad: NDArray,
    m: NDArray,
    v: NDArray,
    last: NDArray,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    missed: Tables,
) -> None: ...
def adam_catch_up(
    param: NDArray,
    rows: NDArray,
    m: NDArray,
    v: NDArray,
    last: NDArray,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    missed: Tables,
) -> None: ...
