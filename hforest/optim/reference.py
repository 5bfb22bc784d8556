"""Reference implementation: AdaGrad and Adam by their equations, in float64; stored numbers are rounded once.

Functions, parameters and arrays are those of `cpu` and `gpu`. Parameters are flat, or (n_rows, n_values) in
the row functions. Missed steps are taken one by one with a gradient of zero. Of the tables (`missed`), which
other backends read, only the factor of weight decay is used.
"""

import numpy as np


def _adagrad(param, at, grad, state, lr):
    # Duchi et al. 2011, diagonal, without epsilon: h = sqrt(h**2 + g**2), step lr g / h, none where h is 0. A
    # zero gradient does not change h, even if h**2 would underflow.
    g, h = grad.astype(np.float64), state[at].astype(np.float64)
    h = np.where(g == 0, h, np.sqrt(h * h + g * g))
    moving = h != 0
    param[at] = param[at] - lr * np.where(moving, g, 0.0) / np.where(moving, h, 1.0)
    state[at] = h


def adagrad(param, grad, state, lr):
    """Writes h = sqrt(h**2 + g**2), then param after a step of lr g / h."""
    _adagrad(param, slice(None), grad, state, lr)


def adagrad_rows(param, rows, grad, state, lr):
    """Writes the same at `rows`."""
    for i, row in enumerate(rows):
        _adagrad(param, row, grad[i], state, lr)


def _adam_step(p, g, m, v, step, settings, shrink):
    # Kingma & Ba 2015, Alg. 1, with the decoupled weight decay of Loshchilov & Hutter 2019, Alg. 2.
    lr, beta1, beta2, eps = settings
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * (g * g)
    m_hat = m / (1 - beta1**step)
    v_hat = v / (1 - beta2**step)
    return shrink * p - lr * m_hat / (np.sqrt(v_hat) + eps), m, v


def _load(param, m, v, at):
    return tuple(a[at].astype(np.float64) for a in (param, m, v))


def _store(param, m, v, at, new):
    param[at] = new[0]
    for moment, values in ((m, new[1]), (v, new[2])):
        # Subnormal moments become 0 on every device.
        moment[at] = np.where(np.abs(values) < np.finfo(moment.dtype).tiny, 0.0, values)


def adam(param, grad, m, v, step, settings, shrink=1.0):
    """Takes a step (Kingma & Ba 2015, Alg. 1)."""
    at = slice(None)
    p, old_m, old_v = _load(param, m, v, at)
    _store(param, m, v, at, _adam_step(p, grad.astype(np.float64), old_m, old_v, step, settings, shrink))


def _catch_up(param, m, v, last, row, step, settings, shrink):
    _, beta1, beta2, _ = settings
    new = _load(param, m, v, row)
    first = max(int(last[row]), 0) + 1
    for late in range(first, step + 1):
        new = _adam_step(new[0], 0.0, new[1], new[2], late, settings, shrink)
        if not (beta1 * np.abs(new[1]) < np.abs(new[1])).any():
            # m has underflowed: it is 0, or a subnormal number that rounds to itself. Only p and v still
            # decay.
            new = shrink ** (step - late) * new[0], new[1], new[2] * beta2 ** (step - late)
            break
    if first <= step:
        _store(param, m, v, row, new)


def adam_rows(at, grad, step, settings, missed):
    """Takes missed steps up to step - 1 with zero gradient, then the step, at `rows`."""
    param, m, v, rows, last = at
    for i, row in enumerate(rows):
        _catch_up(param, m, v, last, row, step - 1, settings, missed.shrink)
        g = grad[i].astype(np.float64)
        p, old_m, old_v = _load(param, m, v, row)
        _store(param, m, v, row, _adam_step(p, g, old_m, old_v, step, settings, missed.shrink))
        last[row] = step


def adam_catch_up(at, step, settings, missed):
    """Takes missed steps up to `step` with zero gradient, at `rows`."""
    param, m, v, rows, last = at
    for row in rows:
        _catch_up(param, m, v, last, row, step, settings, missed.shrink)
        last[row] = step
