"""Arrays of real numbers from a caller's arrays, lists and tables, and messages about other contents."""

from datetime import date, timedelta
from numbers import Real

import numpy as np

from .aliases import Array, ArrayLike
from .dispatch import is_cupy
from .in_place import InPlace

__all__ = ["as_given", "fault", "real", "rows_of"]

_WHOLE = ", or convert the whole table by hforest.tabular.numbers"
_NUMBERED = (
    "number the categories of a column with numpy.unique(column, return_inverse=True)[1], or in pandas "
    f"column.astype('category').cat.codes{_WHOLE}"
)
_REMEDIES = {
    "M": "convert dates to numbers, for example to days: (column - column.min()) / numpy.timedelta64(1, 'D')"
    + _WHOLE,
    "m": "convert durations to numbers, for example to days: column / numpy.timedelta64(1, 'D')",
    "U": _NUMBERED,
    "S": _NUMBERED,
    "T": _NUMBERED,
    "c": "pass the real parts, the imaginary parts or the magnitudes",
    "NA": "fill or drop missing values, or replace them by NaN: in pandas by {name}.to_numpy(float, "
    "na_value=numpy.nan)",
}
"""Remedies by the kind of a dtype; "NA" stands for None and pandas.NA."""


def _remedy(name: str, kind: str) -> str:
    return _REMEDIES.get(kind, "convert it with {name}.astype(float)").format(name=name)


def _kind(value: object) -> str:
    """Returns the key of `_REMEDIES` for an object; dates of pandas count as those of Python."""
    if isinstance(value, timedelta | np.timedelta64):
        return "m"
    if isinstance(value, date | np.datetime64):
        return "M"
    if value is None or type(value).__name__ == "NAType":
        return "NA"
    return "U" if isinstance(value, str | bytes) else ""


def as_given(name: str, a: ArrayLike) -> Array:
    """Returns a NumPy or CuPy array of any layout and dtype."""
    if is_cupy(a):
        return a
    # numpy.ma takes a tenth of a second to load: only possible masked arrays need it.
    if type(a) is not np.ndarray and isinstance(a, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: expected an array without a mask, got a masked array; fill or drop the masked elements"
        )
    if isinstance(a, InPlace):
        raise TypeError(
            f"{name}: expected an array, got samples of windows; copy them: x.ravel()[base[:, None] + offset]"
        )
    try:
        array = np.asarray(a)
    except Exception as error:
        remedy = "pass the numbers themselves" if hasattr(a, "__array__") else "pass rows of equal length"
        raise TypeError(f"{name}: expected an array, got {type(a).__name__} ({error}); {remedy}") from None
    if array.dtype.kind == "O" and not array.ndim:
        remedy = f"pass {name}.toarray()" if hasattr(type(a), "toarray") else "pass a list of numbers"
        raise TypeError(f"{name}: expected an array of real numbers, got {type(a).__name__}; {remedy}")
    return array


def real(name: str, a: ArrayLike) -> Array:
    """Returns a NumPy or CuPy array of numbers, of any layout and real dtype."""
    array = as_given(name, a)
    if array.dtype.kind == "O":
        array = _from_objects(name, array)
    kind = array.dtype.kind
    if kind not in "biuf":
        raise TypeError(
            f"{name}: expected an array of real numbers, got dtype {array.dtype}; {_remedy(name, kind)}"
        )
    return array


def _from_objects(name: str, a: np.ndarray) -> np.ndarray:
    # Tables with columns of several types give such arrays.
    for i, value in enumerate(a.flat):
        if not isinstance(value, Real | np.bool_) or isinstance(value, np.timedelta64):
            place = tuple(int(k) for k in np.unravel_index(i, a.shape))
            raise TypeError(
                f"{name}: expected numbers, got {value!r} ({type(value).__name__}) at index {place}; "
                f"{_remedy(name, _kind(value))}"
            )
    try:
        return a.astype(np.float64)
    except OverflowError:
        raise ValueError(
            f"{name}: expected numbers in the range of float64, got larger integers; scale the features"
        ) from None


def rows_of(name: str, a: Array, axes: tuple[str, str]) -> None:
    """Checks that an array has two axes; messages call them `axes`."""
    if a.ndim == 2:
        return
    row = axes[0].removeprefix("n_").removesuffix("s")
    remedy = f"pass a row for each {row}"
    if a.ndim == 1:
        # `a` may have been a list, or a column or row of a data frame.
        remedy = f"pass {name}[None] for one {row}" if is_cupy(a) else f"pass [{name}] for one {row}"
        if row == "sample":
            remedy += f", numpy.array({name})[:, None] for one feature"
    elif a.ndim > 2:
        remedy += f", {name}.reshape(len({name}), -1)"
    raise ValueError(f"{name}: expected shape ({', '.join(axes)}), got {tuple(a.shape)}; {remedy}")


def fault(name: str, a: ArrayLike) -> str:
    """Returns the message about an array without real numbers, or with three or more axes; else ""."""
    try:
        array = real(name, a)
        if array.ndim > 2:
            rows_of(name, array, ("n_samples", "n_features"))
    except (TypeError, ValueError) as error:
        return str(error)
    return ""
