"""AdaGrad and Adam on a GPU, equal to reference.py; the kernels are in gpu.cu, with a thread per element."""

from pathlib import Path
from typing import Any, NamedTuple

from ..core.aliases import Array, FloatArray, IntArray
from ..core.launch import launch_each
from .exact import rate_and_scale
from .settings import Settings, Visit
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


def adam(
    param: FloatArray,
    grad: FloatArray,
    m: FloatArray,
    v: FloatArray,
    step: int,
    settings: Settings,
    shrink: float = 1.0,
) -> None:
    rate, scale = rate_and_scale(step, *settings[:3])
    args = (param, grad, m, v, rate, scale, Adam(*settings, shrink), param.size)
    launch_each(_PACKAGE, "adam", param.dtype, param.size, args)


def adam_rows(at: Visit, grad: FloatArray, step: int, settings: Settings, missed: Tables) -> None:
    _visit("adam_rows", at, (grad, step, *rate_and_scale(step, *settings[:3])), step, settings, missed)


def adam_catch_up(at: Visit, step: int, settings: Settings, missed: Tables) -> None:
    _visit("adam_catch_up", at, (step,), step, settings, missed)


def _visit(kernel: str, at: Visit, arguments: Any, step: int, settings: Settings, missed: Tables) -> None:
    n, width = at.rows.size, at.param.shape[1]
    args = (Rows(*at, n * width, width), *arguments, Adam(*settings, missed.shrink), Missed.of(missed))
    launch_each(_PACKAGE, kernel, at.param.dtype, n * width, args)
    launch_each(_PACKAGE, "reach", at.param.dtype, n, (at.rows, at.last, step, n))
