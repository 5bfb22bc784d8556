"""Gradients of batches that are divided among workers, each of which has the whole model."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import hinge
from ...core import check
from ...core.aliases import FloatArray
from ..rows.communicators import Communicator, as_communicator
from ..rows.workers import Workers


def gather_gradients(
    comm: Communicator | None, shards: Sequence[Sequence[hinge.RowGradient | FloatArray]]
) -> list[hinge.RowGradient | FloatArray]:
    """Returns the sums of all workers' gradients, bit-identical on every worker.

    Every worker calls this function. Other parameters and errors: see `HingeShards`.

    Parameters
    ----------
    shards : sequence of sequences
        Gradients of this worker's parts of the batch: for each part those of all parameters in a fixed order,
        as arrays of float32 or float64, or as `hinge.RowGradient` from `hinge.backward_sparse`. Finite. A
        worker may have one part, several or none.

    Returns
    -------
    list
        For each parameter an array, or a RowGradient with every row that occurs in a part.

    Raises
    ------
    ValueError
        Numbers that are not finite; rows not ascending; gradients whose number, kinds, dtypes or shapes
        differ between parts or workers.

    Notes
    -----
    Sums run in float64 in the order of the workers and of their parts, and are rounded once to the dtype of
    the gradients. The bits depend on the division of the batch into parts. With one part per worker they
    depend on the number of workers. With fixed parts they do not, if workers have consecutive parts in the
    order of ranks. Divide the loss by the number of samples in the whole batch, not in a part.

    One message: every worker sends all of its gradients, a RowGradient with ``8 + itemsize n_outputs`` bytes
    per row, and receives those of all others. Every worker then takes the same step of the optimiser:
    `optim.adam` and `optim.adagrad` on arrays, their row forms on RowGradients. With Adam, a worker updates
    only the rows that its own samples read, by `optim.adam_catch_up`. Parameters are still bit-identical on
    all workers after the step, since the sum contains these rows.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest import hinge, scale
    >>> a = hinge.RowGradient(np.array([0, 2]), np.array([[1.0], [2.0]]))
    >>> b = hinge.RowGradient(np.array([2, 5]), np.array([[0.5], [4.0]]))
    >>> (total,) = scale.gather_gradients(None, [[a], [b]])
    >>> total.rows, total.values.ravel()
    (array([0, 2, 5]), array([1. , 2.5, 4. ]))
    """

    def checked() -> list[list[Any]]:
        check.instance("shards", shards, Sequence, "a list", "pass [gradients]")
        return [_checked(f"shards[{i}]", gradients) for i, gradients in enumerate(shards)]

    of_workers = Workers(as_communicator(comm)).collect(checked, ())
    every = [(rank, part) for rank, parts in enumerate(of_workers) for part in parts]
    check.require(every, "shards", "a part on at least one worker", "none", "pass [gradients]")
    first, description = every[0][0], _description(every[0][1])
    for rank, part in every:
        check.require(
            _description(part) == description, "shards", "gradients of the same parameters",
            f"{description} on worker {first} and {_description(part)} on worker {rank}",
            "pass the gradients of all parameters in the same order",
        )  # fmt: skip
    return [_total(of_one) for of_one in zip(*(part for _, part in every), strict=True)]


def check_rows(name: str, gradient: hinge.RowGradient, dtype: np.dtype, axes: check.Axes, n: int) -> None:
    """Checks that a row gradient has ascending rows below `n`, and values with these axes for each row."""
    rows, values = gradient
    check.same_device(**{f"{name}.rows": rows, f"{name}.values": values})
    sizes: check.Sizes = {}
    check.array(f"{name}.rows", rows, check.INT64, ("n_rows",), sizes)
    check.array(f"{name}.values", values, dtype, ("n_rows", *axes), sizes)
    check.rows(f"{name}.rows", rows, n)


def _checked(part: str, gradients: Sequence[Any]) -> list[Any]:
    check.require(
        isinstance(gradients, Sequence) and not isinstance(gradients, hinge.RowGradient), part,
        "a list of gradients", type(gradients).__name__, "pass [[gradient, ...]]", TypeError,
    )  # fmt: skip
    for number, gradient in enumerate(gradients):
        name, values = f"{part}[{number}]", gradient
        if isinstance(gradient, hinge.RowGradient):
            values = gradient.values
            check.on_cpu(**{name: gradient.rows})
            check.same_device(**{f"{name}.values": values})
            check_rows(name, gradient, check.floating(name, values), (...,), check.MAX_COUNT)
        else:
            check.on_cpu(**{name: values})
            check.same_device(**{name: values})
            check.array(name, values, check.floating(name, values), tuple(values.shape), {})
        check.finite(name, values, remedy="the loss has diverged: lower the learning rate")
    return list(gradients)


def _description(gradients: Sequence[Any]) -> str:
    return ", ".join(
        f"{one.values.dtype} rows of {one.values.shape[1:]}"
        if isinstance(one, hinge.RowGradient)
        else f"{one.dtype} {one.shape}"
        for one in gradients
    )


def _total(parts: Sequence[Any]) -> Any:
    """Returns the sum of one parameter's gradients, in their order."""
    if not isinstance(parts[0], hinge.RowGradient):
        total = np.zeros(parts[0].shape)
        for part in parts:
            total += part
        return total.astype(parts[0].dtype)
    rows = np.unique(np.concatenate([part.rows for part in parts]))
    total = np.zeros((len(rows), *parts[0].values.shape[1:]))
    for part in parts:
        total[np.searchsorted(rows, part.rows)] += part.values
    return hinge.RowGradient(rows, total.astype(parts[0].values.dtype))
