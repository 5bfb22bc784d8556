"""AdaGrad and Adam on a GPU, equal to reference.py; the kernels are in gpu.cu, with a thread per element."""

from pathlib import Path
from typing import NamedTuple

from ..core.aliases import Array, FloatArray, IntArray
from ..core.launch import launch_each
from .exact import rate_and_scale
from .tables import Tables

_PACKAGE = Path(__file__).parent


# Structs of gpu.cu, which describes their members.


class Adam(NamedTuple):
    """The settings of the optimiser."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    shrink: float = 1.0


class Missed(NamedTuple):
    """The tables of missed steps."""

    powers: Array
    decay: Array
    tail: Array
    visible: Array
    n_powers: int
    n_decays: int
    n_steps: int
    n_columns: int
    closed: int

    @staticmethod
    def of(tables: Tables) -> "Missed":
        """Returns the struct of tables."""
        powers, decay, tail, visible, closed, _ = tables
        n_steps, n_columns = tail.shape
        sizes = powers.shape[1], decay.shape[1], n_steps, n_columns, closed
        return Missed(powers, decay, tail, visible, *sizes)


class Rows(NamedTuple):
    """The rows of a parameter, and of its moments, that a step visits."""

    param: FloatArray
    m: FloatArray
    v: FloatArray
    rows: IntArray
    last: IntArray
    n: int
    width: int


def adagrad(param: FloatArray, grad: FloatArray, state: FloatArray, lr: float) -> None:
    """Sets h = sqrt(h**2 + g**2), and subtracts lr g / h from param."""
    launch_each(_PACKAGE, "adagrad", param.dtype, param.size, (param, grad, state, lr, param.size))


def adagrad_rows(param: FloatArray, rows: IntArray, grad: FloatArray, state: FloatArray, lr: float) -> None:
    """Does the same at `rows`."""
    args = (param, rows, grad, state, lr, grad.size, param.shape[1])
    launch_each(_PACKAGE, "adagrad_rows", param.dtype, grad.size, args)


def _rows(param: FloatArray, m: FloatArray, v: FloatArray, rows: IntArray, last: IntArray) -> Rows:
    width = param.shape[1]
    return Rows(param, m, v, rows, last, rows.size * width, width)


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
) -> None:
    rate, scale = rate_and_scale(step, lr, beta1, beta2)
    args = (param, grad, m, v, rate, scale, Adam(lr, beta1, beta2, eps, shrink), param.size)
    launch_each(_PACKAGE, "adam", param.dtype, param.size, args)


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
) -> None:
    rate, scale = rate_and_scale(step, lr, beta1, beta2)
    visited = _rows(param, m, v, rows, last)
    settings = Adam(lr, beta1, beta2, eps, missed.shrink)
    args = (visited, grad, step, rate, scale, settings, Missed.of(missed))
    launch_each(_PACKAGE, "adam_rows", param.dtype, visited.n, args)
    launch_each(_PACKAGE, "reach", param.dtype, rows.size, (rows, last, step, rows.size))


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
) -> None:
    visited = _rows(param, m, v, rows, last)
    args = (visited, step, Adam(lr, beta1, beta2, eps, missed.shrink), Missed.of(missed))
    launch_each(_PACKAGE, "adam_catch_up", param.dtype, visited.n, args)
    launch_each(_PACKAGE, "reach", param.dtype, rows.size, (rows, last, step, rows.size))
