"""Cases of `hforest.optim`: a few steps of every optimiser, dense and by rows."""

from collections.abc import Iterator

import numpy as np

from hforest import optim

from .case import Case

# rows, numbers in a row, steps
SHAPES = ((1, 1, 1), (7, 3, 4), (40, 11, 3), (300, 1, 2))
LR = 0.05
NEAR = 16.0  # powers and quotients may round differently in the C library


def _dense(n_rows: int, width: int, n_steps: int, dtype: type) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n_rows)
    param = rng.standard_normal((n_rows, width)).astype(dtype)
    param_adam = param.copy()
    state, m, v = np.zeros_like(param), np.zeros_like(param), np.zeros_like(param)
    for step in range(1, n_steps + 1):
        grad = rng.standard_normal(param.shape).astype(dtype)
        grad[rng.random(n_rows) < 0.5] = 0
        optim.adagrad(param, grad, state, LR)
        optim.adam(param_adam, grad, m, v, step, LR)
    return {"adagrad": param, "state": state, "adam": param_adam, "m": m, "v": v}


def _rows(n_rows: int, width: int, n_steps: int, dtype: type) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n_rows)
    param = rng.standard_normal((n_rows, width)).astype(dtype)
    param_adam = param.copy()
    state, m, v = np.zeros_like(param), np.zeros_like(param), np.zeros_like(param)
    last = np.zeros(n_rows, np.int64)
    for step in range(1, n_steps + 1):
        # Now and then no row at all.
        rows = np.flatnonzero(rng.random(n_rows) < (0 if step == 2 else 0.5)).astype(np.int64)
        grad = rng.standard_normal((rows.size, width)).astype(dtype)
        optim.adagrad_rows(param, rows, grad, state, LR)
        optim.adam_rows(param_adam, rows, grad, m, v, last, step, LR)
    late = {"late_adam": param_adam.copy(), "late_m": m.copy(), "late_v": v.copy(), "late_last": last.copy()}
    optim.adam_catch_up(param_adam, m, v, last, n_steps, LR)
    return late | {"adagrad": param, "state": state, "adam": param_adam, "m": m, "v": v, "last": last}


def cases(dtype: type) -> Iterator[Case]:
    """Both kinds of step on every shape."""
    near = dict.fromkeys(("adagrad", "state", "adam", "m", "v", "late_adam", "late_m", "late_v"), NEAR)
    for shape in SHAPES:
        for steps in (_dense, _rows):
            yield Case(
                f"{steps.__name__[1:]} rows={shape[0]} width={shape[1]} steps={shape[2]}",
                lambda f=steps, s=shape: f(*s, dtype),
                near,
            )
