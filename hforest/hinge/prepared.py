"""Forests that are checked once, for many calls on few samples."""

from typing import Any, NoReturn, Self, final

import numpy as np

from ..core import check, machine
from ..core.aliases import Array, FloatArray
from ..core.windows import Windows, check_images, check_type, geometry, positions
from . import kernels
from .margins import Margin, MarginName, check_features
from .shared import REDUCTIONS, VERTICES, Aggregate, Kind, check_depth, check_weights
from .starts import Parameters

_AXES = ("n_samples", "n_features")


@final
class Prepared:
    """A checked hinge forest, which `forward` takes in place of its arrays.

    `prepare` makes it. It cannot be changed: its arrays are read-only copies. Several threads may use one.

    Attributes
    ----------
    parameters : Parameters
        The read-only copies of thresholds, features and weights.
    kind, margin, windows
        As given.
    """

    __slots__ = ("_dtype", "_n_columns", "_outputs", "_weights", "kind", "margin", "parameters", "windows")
    _dtype: np.dtype
    _n_columns: int
    _outputs: tuple[int, ...]
    _weights: FloatArray
    parameters: Parameters
    kind: Kind
    margin: MarginName
    windows: Windows | None

    def __init__(
        self, parameters: Parameters, kind: Kind, margin: MarginName, windows: Windows | None
    ) -> None:
        given = dict(zip(Parameters._fields, parameters, strict=True))
        check.on_cpu(**given)
        check.same_device(**given)
        if windows is not None:
            check_type(windows)
        _sizes(kind, margin, *parameters)
        # The copies are checked, for another thread may change the originals meanwhile.
        thresholds, features, weights = (machine.read_only(check.owned(a)) for a in parameters)
        sizes, record, outputs = _sizes(kind, margin, thresholds, features, weights)
        dtype = thresholds.dtype
        with check.checked():
            check.not_nan("thresholds", thresholds)
            record.check(features, {"n_features": check.MAX_COUNT} | sizes, None)
        n_columns = sizes["n_features"] if record.learned else int(features.max()) + 1
        values = {
            "parameters": Parameters(thresholds, features, weights), "kind": kind, "margin": margin,
            "windows": windows, "_dtype": np.dtype(dtype.type), "_n_columns": n_columns, "_outputs": outputs,
            "_weights": weights.reshape(*weights.shape[:2], -1),
        }  # fmt: skip
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: expected no assignment, got one; prepare another forest")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name}: expected no deletion, got one; prepare another forest")

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        return type(self), (self.parameters, self.kind, self.margin, self.windows)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __repr__(self) -> str:
        return f"<Prepared of {len(self._weights)} trees, kind={self.kind!r}, margin={self.margin!r}>"


def _sizes(
    kind: Kind, margin: MarginName, thresholds: FloatArray, features: Array, weights: FloatArray
) -> tuple[check.Sizes, Margin, tuple[int, ...]]:
    """Checks dtypes and shapes; returns the sizes, the margin, and the trailing shape of the weights."""
    dtype = check.floating("thresholds", thresholds)
    sizes = check_depth(kind, "thresholds", thresholds)
    check.array("thresholds", thresholds, dtype, ("n_trees", VERTICES[kind]), sizes)
    record = check_features(margin, features, dtype, VERTICES[kind], sizes)
    check.at_least_one(sizes, "n_trees")
    return sizes, record, check_weights(weights, dtype, sizes)


def prepare(
    thresholds: FloatArray,
    features: Array,
    weights: FloatArray,
    *,
    kind: Kind = "tree",
    margin: MarginName = "column",
    windows: Windows | None = None,
) -> Prepared:
    """Returns a checked forest, for many calls of `forward` on few samples.

    Parameters: see `forward`.

    Returns
    -------
    Prepared
        `forward` takes it in place of the three arrays and the three words, and returns bit-identical
        results.

    Raises
    ------
    TypeError
        Arrays of a GPU.

    Notes
    -----
    `forward` reads all thresholds and features to check them, which takes longer than a sample. A Prepared
    has read-only copies, which are checked here once, also inside `hforest.unchecked()`; a call checks its
    samples alone. It cannot be changed, and several threads may use it at the same time. Its pickle is that
    of its arrays, which are checked again when it is read. Memory: a copy of the arrays.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0, 1.75]]); f = np.array([[0, 0, 1]], dtype=np.int32)
    >>> forest = hforest.hinge.prepare(t, f, np.array([[1.0, 2.0, 3.0, 4.0]]))
    >>> hforest.hinge.forward(x, forest)
    array([[1.]])
    """
    return Prepared(Parameters(thresholds, features, weights), kind, margin, windows)


def forward(forest: Prepared, x: Any, aggregate: Aggregate, out: Any) -> FloatArray | None:
    """Returns the outputs of a prepared forest, or None if an argument is not as it should be."""
    dtype, windows = forest._dtype, forest.windows
    if type(x) is not np.ndarray or not isinstance(aggregate, str | None) or aggregate not in REDUCTIONS:
        return None
    if windows is None:
        if not machine.fits(x, dtype, _AXES, {}):
            return None
        places, n_columns = x.shape[:1], x.shape[1]
    else:
        if x.dtype != dtype or check_images("x", x) != dtype:
            return None
        shape = geometry("x", x.shape, windows)
        places, n_columns = (len(x), *positions(shape, x.ndim - 2)), shape.n_columns
    if n_columns < forest._n_columns or (n_columns > forest._n_columns and forest.margin != "column"):
        return None
    if check.values_checked() and machine.first_nonfinite(x) >= 0:
        return None
    trees = (len(forest._weights),) if REDUCTIONS[aggregate].apart else ()
    axes = (*places, *trees, *forest._outputs)
    if out is None:
        out = np.empty(axes, dtype)
    elif (
        type(out) is not np.ndarray or not machine.fits(out, dtype, axes, {}) or not machine.apart([out], [x])
    ):
        return None
    thresholds, features, _ = forest.parameters
    kernels.forward(
        x, thresholds, features, forest._weights, kind=forest.kind, margin=forest.margin, windows=windows,
        aggregate=aggregate, out=out,
    )  # fmt: skip
    return out
