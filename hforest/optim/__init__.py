"""Optimisers: AdaGrad without epsilon, and Adam; both dense, and for touched rows with the same result.

A parameter is an array of any shape; the state of its optimiser is a few arrays of that shape. Every function
changes them in place and returns None. The row functions take gradients at some rows of the first axis, such
as the sparse gradients of `hforest.hinge`, whose parameters are viewed as
`weights.reshape(n_trees * n_leaves, *outputs)`. The other rows cost nothing.

AdaGrad does not move a number without gradient, so its row form is bit-identical to the dense one. Adam moves
such a number by its first moment. `adam_rows` takes a row's missed steps when the row next has a gradient;
`adam_catch_up` takes them without a gradient, before rows are read::

    rows = hinge.leaf_rows(leaf, n_leaves)
    optim.adam_catch_up(weights, m, v, last, step - 1, lr, rows=rows)   # as if every step had been taken
    ...forward, backward...
    optim.adam_rows(weights, rows, grad, m, v, last, step, lr)
    ...after the last step...
    optim.adam_catch_up(weights, m, v, last, step, lr)

Wrong kinds and dtypes raise TypeError, wrong shapes and values ValueError, rows out of range IndexError;
the checks that read whole arrays can be skipped inside `hforest.unchecked()`.
"""

import math

import numpy as np

from ..core import check, dispatch
from ..core.aliases import Array, FloatArray, IntArray
from .settings import Visit, check_adam, check_decay, check_rate
from .tables import tables

__all__ = ["adagrad", "adagrad_rows", "adam", "adam_catch_up", "adam_rows"]

_PACKAGE = __name__


# ------------------------------------------------------------------------------- checks


def _check_dense(param: FloatArray, grad: FloatArray, state: dict[str, Array]) -> None:
    check.same_device(param=param, grad=grad, **state)
    dtype = check.floating("param", param)
    shape = tuple(param.shape)
    check.array("param", param, dtype, shape, {})
    for name, a in {"grad": grad, **state}.items():
        check.array(name, a, dtype, shape, {})
    check.outputs({"param": param, **state}, {"grad": grad})


def _check_rows(param: FloatArray, inputs: dict[str, Array], state: dict[str, Array]) -> IntArray:
    # Returns a copy of the rows; inside `unchecked()` the rows. The shape of `param` fixes its axes after the
    # first; the number of rows has a name.
    check.same_device(param=param, **inputs, **state)
    dtype = check.floating("param", param)
    sizes: check.Sizes = {}
    check.array("param", param, dtype, ("n_rows", ...), sizes)
    values = tuple(param.shape[1:])
    check.array("rows", inputs["rows"], check.INT64, ("n_given",), sizes)
    if "grad" in inputs:
        check.array("grad", inputs["grad"], dtype, ("n_given", *values), sizes)
    for name, a in state.items():
        if name == "last":
            check.array(name, a, check.INT64, ("n_rows",), sizes)
        else:
            check.array(name, a, dtype, ("n_rows", *values), sizes)
    check.outputs({"param": param, **state}, inputs)
    rows = check.owned(inputs["rows"]) if check.values_checked() else inputs["rows"]
    check.rows("rows", rows, sizes["n_rows"])
    return rows


def _check_last(last: IntArray, rows: IntArray, reached: int, what: str) -> None:
    # A row cannot return to an earlier step.
    if not check.values_checked() or rows.size == 0:
        return
    at = last[rows]
    bad = (at < 0) | (at > reached)
    if bool(bad.any()):
        i = int(bad.argmax())
        raise ValueError(
            f"last: expected 0 <= last <= {what} = {reached}, got {int(at[i])} at row {int(rows[i])}; "
            "number the steps 1, 2, ... without gaps, and pass the array `last` of this parameter"
        )


def _flat(*arrays: Array) -> list[Array]:
    return [a.reshape(-1) for a in arrays]


def _by_rows(*arrays: Array) -> list[Array]:
    # Returns an array with its trailing axes as one, so that backends see one layout.
    return [a.reshape(a.shape[0], math.prod(a.shape[1:])) for a in arrays]


# ---------------------------------------------------------------------------------------- AdaGrad


def adagrad(param: FloatArray, grad: FloatArray, state: FloatArray, lr: float) -> None:
    """Updates a parameter and its state by one step of AdaGrad without epsilon, in place.

    Other parameters: see `adam`.

    Parameters
    ----------
    state : array, shape and dtype of param
        h, the root of the sum of squared gradients, initially zeros. Changed in place.

    Notes
    -----
    h <- sqrt(h**2 + g**2), then param <- param - lr g / h, without a move where h is 0: Duchi, Hazan, Singer,
    *Adaptive subgradient methods*, 2011, with the diagonal matrix and delta = 0. Lay et al. 2018, section 5,
    train with AdaGrad on UCI data; delta = 0 comes from their program (bleak). Cost: three reads and two
    writes per number.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> p = np.zeros(3); h = np.array([4.0, 0.0, 0.0])
    >>> hforest.optim.adagrad(p, np.array([3.0, -2.0, 0.0]), h, 0.5)
    >>> p, h
    (array([-0.3,  0.5,  0. ]), array([5., 2., 0.]))
    """
    _check_dense(param, grad, {"state": state})
    lr = check_rate(lr, param.dtype)
    dispatch.backend(_PACKAGE, param).adagrad(*_flat(param, grad, state), lr)


def adagrad_rows(param: FloatArray, rows: IntArray, grad: FloatArray, state: FloatArray, lr: float) -> None:
    """Updates rows of a parameter by one step of AdaGrad, bit-identical to the dense step, in place.

    Parameters: see `adam_rows` and `adagrad`.

    Notes
    -----
    Equations as for `adagrad`; other rows have zero gradients. Cost: that of the given rows.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> p = np.zeros((3, 2)); h = np.zeros((3, 2))
    >>> hforest.optim.adagrad_rows(p, np.array([1]), np.array([[2.0, -4.0]]), h, 0.5)
    >>> p
    array([[ 0. ,  0. ],
           [-0.5,  0.5],
           [ 0. ,  0. ]])
    """
    rows = _check_rows(param, {"rows": rows, "grad": grad}, {"state": state})
    lr = check_rate(lr, param.dtype)
    flat, flat_grad, flat_state = _by_rows(param, grad, state)
    dispatch.backend(_PACKAGE, param).adagrad_rows(flat, rows, flat_grad, flat_state, lr)


# ------------------------------------------------------------------------------------------- Adam


def adam(
    param: FloatArray,
    grad: FloatArray,
    m: FloatArray,
    v: FloatArray,
    step: int,
    lr: float,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> None:
    """Updates a parameter and its moments by one step of Adam, in place.

    Parameters
    ----------
    param : array of float32 or float64, any shape
        Changed in place.
    grad : array, shape and dtype of param
        Gradient of the loss with respect to param.
    m, v : arrays, shape and dtype of param
        First and second moment, initially zeros. Changed in place.
    step : int
        Number of this step: 1, 2, ...
    lr : float
        Learning rate alpha, in the unit of param, at least 0.
    beta1 : float
        Decay rate of the first moment, 0 to 0.999999.
    beta2 : float
        Decay rate of the second moment, 0 to 0.999999.
    eps : float
        Added to the root of the corrected second moment, in the unit of the gradients. It is a normal number
        of the parameters' dtype: at least 1.2e-38 for float32.
    weight_decay : float
        Decoupled decay, at least 0: a step first multiplies param by 1 - lr weight_decay, which must be above
        0.

    Notes
    -----
    Kingma & Ba, *Adam*, 2015, Alg. 1::

        m <- beta1 m + (1 - beta1) g,            v <- beta2 v + (1 - beta2) g**2
        param <- param - lr m / (1 - beta1**step) / (sqrt(v / (1 - beta2**step)) + eps)

    in the arithmetic of the dtype. Departure: moments below the smallest normal number of their dtype become
    0. Values are not checked: NaN, or a v below 0, makes param NaN. Cost: four reads and three writes per
    number.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> p = np.array([1.0, 1.0]); m = np.zeros(2); v = np.zeros(2)
    >>> hforest.optim.adam(p, np.array([0.5, 0.0]), m, v, 1, 0.25)
    >>> p.round(6)
    array([0.75, 1.  ])
    """
    _check_dense(param, grad, {"m": m, "v": v})
    step, numbers = check_adam(step, lr, beta1, beta2, eps, param.dtype)
    shrink = check_decay(weight_decay, numbers[0])
    dispatch.backend(_PACKAGE, param).adam(*_flat(param, grad, m, v), step, numbers, shrink)


def adam_rows(
    param: FloatArray,
    rows: IntArray,
    grad: FloatArray,
    m: FloatArray,
    v: FloatArray,
    last: IntArray,
    step: int,
    lr: float,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> None:
    """Updates rows of a parameter by their missed steps of Adam and one step, in place.

    The rows are brought to step - 1 as by `adam_catch_up`, then take the step with their gradient. Up to
    rounding the result is that of `adam` with zero gradients elsewhere. Every call has the same betas, eps
    and weight_decay. Other parameters: see `adam`.

    Parameters
    ----------
    param : (n_rows, ...) array of float32 or float64
        Changed in place at these rows.
    rows : (n_given,) array of int64
        Rows with a gradient, ascending and distinct.
    grad : (n_given, ...) array, dtype of param
        Gradients at these rows, with the trailing axes of param.
    m, v : arrays, shape and dtype of param
        First and second moment, initially zeros. Changed in place at these rows.
    last : (n_rows,) array of int64
        Last step of each row, initially zeros. Becomes `step` at these rows.
    lr : float
        Learning rate, in the unit of param. At least 0. Missed steps use it, too: before you change it, call
        `adam_catch_up` with the old one for all rows.

    Raises
    ------
    ValueError
        A row that is already at `step`; a `step` beyond the tables of the betas (`adam_catch_up`).

    Notes
    -----
    Equations as for `adam`, and for missed steps as for `adam_catch_up`. Without missed steps the result is
    bit-identical to that of `adam`. Cost: four to ten times the dense step for the given rows, if rows of ten
    numbers are scattered in memory, which limits the speed; nothing for the others.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> p = np.zeros((3, 1)); m = np.zeros((3, 1)); v = np.zeros((3, 1)); last = np.zeros(3, np.int64)
    >>> hforest.optim.adam_rows(p, np.array([0, 2]), np.array([[1.0], [-1.0]]), m, v, last, 1, 0.25)
    >>> p.ravel().round(6), last
    (array([-0.25,  0.  ,  0.25]), array([1, 0, 1]))
    """
    rows = _check_rows(param, {"rows": rows, "grad": grad}, {"m": m, "v": v, "last": last})
    step, numbers = check_adam(step, lr, beta1, beta2, eps, param.dtype)
    shrink = check_decay(weight_decay, numbers[0])
    _check_last(last, rows, step - 1, "step - 1")
    *moved, flat_grad = _by_rows(param, m, v, grad)
    missed = tables(param, numbers[1], numbers[2], step, shrink)
    run = dispatch.backend(_PACKAGE, param).adam_rows
    run(Visit._make([*moved, rows, last]), flat_grad, step, numbers, missed)


def adam_catch_up(
    param: FloatArray,
    m: FloatArray,
    v: FloatArray,
    last: IntArray,
    step: int,
    lr: float,
    *,
    rows: IntArray | None = None,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> None:
    """Updates rows of a parameter by their missed steps of Adam up to `step`, in place.

    Up to rounding the result is that of `adam` with zero gradients. Other parameters: see `adam_rows`.

    Parameters
    ----------
    step : int
        Last step to take: 0, 1, 2, ...; at 0 nothing happens.
    lr : float
        Learning rate of the missed steps, in the unit of param, at least 0.
    rows : (n_given,) array of int64, optional
        Rows to bring to `step`, ascending and distinct; by default all.

    Raises
    ------
    ValueError
        A row beyond `step`; a `step` beyond the tables of the betas.

    Notes
    -----
    A row at step s with moments m and v moves by::

        -lr  sum over j = s + 1, ..., step of
             m beta1**(j - s) / (1 - beta1**j) / (sqrt(v beta2**(j - s) / (1 - beta2**j)) + eps)

    (Kingma & Ba 2015, Alg. 1, with g = 0). The sum to infinity is m times a function of the step and of
    sqrt(v) / eps, which a table of polynomials gives up to rounding. The move is the difference of two such
    sums (`hforest/optim/tables.py`). Moments decay by powers. Steps before about step 100 are taken one by
    one, and all steps if beta1**2 is not well below beta2, until the decay of m underflows (after 980 steps
    for float32 and beta1 = 0.9, 6723 for float64). Cost for a row with any number of missed steps: a few
    dense steps, and half of one per step that is taken one by one. Tables take 112 bytes per step, up to 5 MB
    for the default betas; they are bit-identical on every machine. The largest has 2**19 steps, in 59 MB:
    with a beta above 0.9999, whose tables would be larger, `step` is at most 524 287.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> p = np.zeros((2, 1)); m = np.full((2, 1), 0.1); v = np.full((2, 1), 0.001)
    >>> last = np.array([1, 1000])
    >>> hforest.optim.adam_catch_up(p, m, v, last, 1000, 0.01)
    >>> p.ravel().round(6), last
    (array([-0.050055,  0.      ]), array([1000, 1000]))
    """
    xp = dispatch.array_module(param)
    if rows is None:
        check.same_device(param=param)
        rows = xp.arange(param.shape[0] if param.ndim else 0, dtype=np.int64)
    rows = _check_rows(param, {"rows": rows}, {"m": m, "v": v, "last": last})
    step, numbers = check_adam(step, lr, beta1, beta2, eps, param.dtype, first=0)
    shrink = check_decay(weight_decay, numbers[0])
    _check_last(last, rows, step, "step")
    if step == 0:
        return  # before the first step none is missed
    at = Visit._make([*_by_rows(param, m, v), rows, last])
    missed = tables(param, numbers[1], numbers[2], step, shrink)
    dispatch.backend(_PACKAGE, param).adam_catch_up(at, step, numbers, missed)
