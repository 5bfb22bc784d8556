"""Predictions of models of tables, and models that are checked and packed once for many calls."""

from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn, Self, final

import numpy as np

from .. import tree
from ..core import check, supervised
from ..core.aliases import ArrayLike, FloatArray
from ..hinge import kernels
from ..tree import Forest
from .cells import Cells
from .cpu import Encoder, Mixture, Products
from .encoding import Encoding
from .kinds import Columns
from .levels import Levels
from .model import (
    FLOAT32,
    FLOAT64,
    Boosted,
    Member,
    Model,
    check_width,
    checked,
    numbers_of,
    raise_large_products,
)
from .recipe import CHUNK, LEAST_PROBABILITY, SMOOTHING
from .scaling import Scaling

_RECORDS = (Model, Member, Boosted, Scaling, Encoding, Levels, Columns)


def _inputs(products: Products, numbers: FloatArray, columns: FloatArray | None) -> FloatArray:
    """Returns columns, of `numbers` if None, followed by inner products of numbers, float32."""
    z, is_finite = products.inputs(numbers, columns)
    if not is_finite and check.values_checked():
        raise_large_products()
    return z


class _Parts(NamedTuple):
    """The parts of a member, as calls take them."""

    member: Member
    forest: Forest | tree.Prepared | None
    """None if the prediction does not need it."""
    grown_products: Products
    products: Products | None
    """None if the prediction does not need the hinge trees."""
    boosted: Forest | tree.Prepared | None

    def scores(self, numbers: FloatArray) -> FloatArray | None:
        """Returns the sums of the hinge trees."""
        if self.products is None:
            return None
        member = self.member
        y = np.empty((len(numbers), member.weights.shape[2]), FLOAT32)
        kernels.forward(
            _inputs(self.products, numbers, None), member.thresholds, member.features, member.weights,
            aggregate="sum", out=y,
        )  # fmt: skip
        return y

    def grown_inputs(self, numbers: FloatArray, native: FloatArray | None) -> FloatArray:
        """Returns the samples of the grown forest."""
        return _inputs(self.grown_products, numbers, native)

    def grown(self, numbers: FloatArray, native: FloatArray | None) -> FloatArray | None:
        """Returns the predictions of the grown forest."""
        return None if self.forest is None else tree.predict(self.forest, self.grown_inputs(numbers, native))

    def outputs(self, numbers: FloatArray, native: FloatArray | None) -> tuple[FloatArray | None, ...]:
        """Returns what `Mixture.mix` takes."""
        boosted = self.boosted
        of_boosted = None if boosted is None else tree.predict(boosted, numbers if native is None else native)
        return self.scores(numbers), self.grown(numbers, native), of_boosted


class Ready(NamedTuple):
    """A checked model whose arrays belong to hforest, and the compiled stages of its predictions."""

    model: Model
    n_features: int
    encoder: Encoder
    parts: tuple[_Parts, ...]
    mixture: Mixture


def _owned(value: Any) -> Any:
    """Returns a record of a model with read-only copies of its arrays; forests as they are."""
    if isinstance(value, np.ndarray):
        return check.owned(value)
    if type(value) in _RECORDS:
        return type(value)._make(map(_owned, value))
    members = type(value) in (tuple, list) and all(type(member) is Member for member in value)
    return tuple(map(_owned, value)) if members else value


def _parts(member: Member, packs: bool) -> _Parts:
    share, offset, boosted = float(member.share), float(member.offset), member.boosted
    packed = tree.prepare if packs else lambda forest: forest
    return _Parts(
        member,
        packed(member.forest) if share < 1 or offset else None,
        Products(member.grown_kernel),
        Products(member.kernel) if share > 0 else None,
        None if boosted is None else packed(boosted.forest),
    )


def _ready(model: Model, packs: bool) -> Ready:
    # Kernels index memory by these arrays: the copies are checked.
    model, n_features = checked("model", _owned(model))
    return Ready(
        model, n_features, Encoder(model.scaling, model.encoding),
        tuple(_parts(member, packs) for member in model.members),
        Mixture(model, SMOOTHING, LEAST_PROBABILITY),
    )  # fmt: skip


def _is_plain(x: Any, n_features: int) -> bool:
    """Returns whether x is a matrix that compiled code reads; its values may be infinite."""
    return (
        type(x) is np.ndarray
        and x.dtype in (FLOAT32, FLOAT64)
        and x.shape[1:] == (n_features,)
        and x.flags.c_contiguous
        and x.flags.aligned
    )


def given(model: "Model | Prepared", x: ArrayLike) -> tuple[Ready, FloatArray]:
    """Returns a checked model, and the rows of a table as numbers; `encoded` checks that they are finite."""
    ready, cells = (
        (model._ready, model._cells) if isinstance(model, Prepared) else (_ready(model, False), None)
    )
    check.on_cpu(x=x)
    numbers = numbers_of(ready.model, x) if cells is None else cells.numbers(x)
    plain = _is_plain(numbers, ready.n_features)
    table: Any = numbers if plain else supervised.matrix("x", numbers, missing=True)
    check_width(table, ready.n_features)
    return ready, table


def evaluated(ready: Ready, table: FloatArray) -> FloatArray:
    """Returns the predictions for rows of numbers, (n_samples, n_outputs) float64."""
    y = np.empty((len(table), len(ready.model.target_center)))
    for part, numbers, native in encoded(ready, table):
        ready.mixture.mix([parts.outputs(numbers, native) for parts in ready.parts], numbers, y[part])
    return y


def encoded(ready: Ready, table: FloatArray) -> Iterator[tuple[slice, FloatArray, FloatArray | None]]:
    """Yields slices of rows, their encoded columns, and those with NaN (None if they are equal)."""
    for first in range(0, len(table), CHUNK):
        part = slice(first, first + CHUNK)
        numbers, native, is_finite = ready.encoder.encode(table[part])
        if not is_finite and check.values_checked():
            supervised.matrix("x", table, missing=True)  # raises the error
        yield part, numbers, native


@final
class Prepared:
    """A checked and packed model, which `predict` takes in place of the model.

    `prepare` makes it. It cannot be changed: arrays of `model` are read-only copies. Several threads may use
    one.

    Parameters
    ----------
    model : Model
        From `fit` or `load`.

    Attributes
    ----------
    model : Model
        The model.
    """

    __slots__ = ("_cells", "_ready", "model")
    _cells: Cells | None
    _ready: Ready
    model: Model

    def __init__(self, model: Model) -> None:
        ready = _ready(model, True)
        object.__setattr__(self, "_ready", ready)
        object.__setattr__(self, "model", ready.model)
        columns = ready.model.columns
        object.__setattr__(self, "_cells", None if columns is None else Cells(columns))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: expected no assignment, got one; prepare another model")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name}: expected no deletion, got one; prepare another model")

    def __reduce__(self) -> tuple[type[Self], tuple[Model]]:
        return type(self), (self.model,)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __repr__(self) -> str:
        return f"<Prepared of {self.model!r}>"


def prepare(model: Model | Prepared) -> Prepared:
    """Returns a checked and packed model, for many calls of `predict`.

    Parameters
    ----------
    model : Model or Prepared
        From `fit` or `load`. A Prepared is returned itself.

    Returns
    -------
    Prepared
        `predict` takes it in place of the model and returns bit-identical results. Its attribute `model` is
        the model.

    Raises
    ------
    TypeError, ValueError
        A model that `fit` did not return.

    Notes
    -----
    A Prepared cannot be changed, and several threads may use it at the same time. Its pickle is that of the
    model, which is checked and packed again when it is read. Small tables (mappings, frames of pandas and
    polars) are read cell by cell where that gives the result of `numbers`. Memory and cost: those of
    `hforest.tree.prepare` for each forest, and about twice the other arrays of the model. A row of an array
    takes tens of microseconds.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.arange(40.0).reshape(-1, 1); y = np.repeat(["low", "high"], 20)
    >>> prepared = hforest.tabular.prepare(hforest.tabular.fit(x, y, n_trees=5, steps=50, rng=0))
    >>> p = hforest.tabular.predict(prepared, [[35.0]])
    >>> str(prepared.model.classes[p.argmax()])
    'high'
    """
    return model if isinstance(model, Prepared) else Prepared(model)


def predict(model: Model | Prepared, x: ArrayLike, *, out: FloatArray | None = None) -> FloatArray:
    """Returns class probabilities, or predicted targets, of the rows of a table.

    Parameters
    ----------
    model : Model or Prepared
        From `fit` or `load`, or `prepare`.
    x : (n_samples, n_features) array_like of real numbers, or a table
        Samples in the units of the training table, finite or NaN for missing values. Numbers outside the
        training range of a column are clipped to it; unknown categories are treated as missing. If the model
        was fitted on a data frame: a table with the same columns, see `numbers`.
    out : array of float64, optional
        Array for the result, C-contiguous. An error leaves it unchanged.

    Returns
    -------
    (n_samples, n_classes) or (n_samples, n_outputs) array of float64
        Probabilities in the order of ``model.classes``, whose rows sum to 1, or targets in the units of
        training; (n_samples,) for a single target.

    Notes
    -----
    The prediction of a member is ``share * trees + (1 - share) * forest``, mixed with that of its boosted
    trees in the same way. The result is the mean over members; of probabilities, the normalised geometric
    mean. If the training rows had no missing values, a missing value is replaced by the mean of its column.
    A row's result does not depend on other rows, the number of threads, or the processor. Cost: a matrix
    product with the learned inner products, and n_trees paths through hinge trees; the same number through
    the grown forest if share is below 1. The model is checked at each call; `prepare` checks it once.
    """
    ready, table = given(model, x)
    y = evaluated(ready, table)
    if ready.model.task == "regression" and y.shape[1] == 1:
        y = y[:, 0]
    if out is None:
        return y
    check.on_cpu(out=out)
    check.array("out", out, FLOAT64, y.shape, {})
    members = {f"model.members[{i}]": a for i, a in enumerate(getattr(model, "members", ()))}
    check.outputs({"out": out}, {"x": x, "model": model} | members)
    out[...] = y
    return out
