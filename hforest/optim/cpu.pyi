from ..core.aliases import FloatArray, IntArray
from .tables import Tables

def adagrad(param: FloatArray, grad: FloatArray, state: FloatArray, lr: float) -> None: ...
def adagrad_rows(
    param: FloatArray, rows: IntArray, grad: FloatArray, state: FloatArray, lr: float
) -> None: ...
def adam(
    param: FloatArray,
    grad: FloatArray,
    m: FloatArray,
    v: FloatArray,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    shrink: float = 1.0,
) -> None: ...
def adam_rows(
    param: FloatArray,
    rows: IntArray,
    grad: FloatArray,
    m: FloatArray,
    v: FloatArray,
    last: IntArray,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    missed: Tables,
) -> None: ...
def adam_catch_up(
    param: FloatArray,
    rows: IntArray,
    m: FloatArray,
    v: FloatArray,
    last: IntArray,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    missed: Tables,
) -> None: ...
