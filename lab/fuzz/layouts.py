"""One array in other layouts and dtypes, of the same numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse


def _strided(a: np.ndarray) -> np.ndarray:
    wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1] + 1), a.dtype)
    wide[..., 1::2] = a
    return wide[..., 1::2]


def _read_only(a: np.ndarray) -> np.ndarray:
    b = a.copy()
    b.flags.writeable = False
    return b


def _unaligned(a: np.ndarray) -> np.ndarray:
    b = np.zeros(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(a.shape)
    b[...] = a
    return b


def _table(a: np.ndarray) -> Any:
    import pandas

    return pandas.DataFrame(a) if a.ndim == 2 else pandas.Series(a)


def _memory_map(a: np.ndarray) -> np.ndarray:
    return a.copy().view(np.memmap)


LAYOUTS: dict[str, Callable[[np.ndarray], Any]] = {
    "Fortran order": np.asfortranarray,
    "read-only": _read_only,
    "unaligned": _unaligned,
    "strided": _strided,
    "negative strides": lambda a: a[::-1].copy()[::-1],
    "byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "a row repeated": lambda a: np.broadcast_to(a[:1], a.shape),
    "memory map": _memory_map,
    "nested lists": lambda a: a.tolist(),
    "table": _table,
    "objects": lambda a: a.astype(object),
    "masked": np.ma.masked_array,
    "sparse": lambda a: scipy.sparse.csr_array(a),
}

DTYPES = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "g")


def layouts_of(a: np.ndarray) -> list[str]:
    """Names of layouts that an array can have."""
    if a.ndim == 0:
        return ["read-only", "byte order", "nested lists", "objects"]
    names = [name for name in LAYOUTS if name != "sparse" or (a.ndim == 2 and a.dtype.kind in "iuf")]
    try:
        import pandas  # noqa: F401
    except ImportError:
        return [name for name in names if name != "table"]
    return [name for name in names if name != "table" or a.ndim <= 2]


def dtypes_of(a: np.ndarray) -> list[str]:
    """Other dtypes that hold the numbers of an array exactly; none for text and dates."""
    if a.dtype.kind not in "biuf":
        return []
    with np.errstate(all="ignore"):
        fits = [
            d for d in DTYPES if np.array_equal(a.astype(d).astype(a.dtype), a, equal_nan=a.dtype.kind == "f")
        ]
    return [d for d in fits if np.dtype(d) != a.dtype]


def plain(a: Any, dtype: np.dtype | None) -> np.ndarray:
    """The numbers of an array as the library documents to read them: C order, a dtype that holds them.

    `dtype` is that of the good call: other integers than labels become float32 or float64, labels what they were. None:
    the dtype stays.
    """
    given = a.toarray() if scipy.sparse.issparse(a) else np.asarray(a)
    if dtype is None:
        return np.array(given, given.dtype.newbyteorder("="), order="C")
    if given.dtype.kind == "O":
        given = given.astype(np.float64 if dtype.kind == "f" else dtype)
    if dtype.kind == "f":
        native = given.dtype.newbyteorder("=")
        wanted = (
            np.dtype(np.float32) if np.result_type(native, np.float32) == np.float32 else np.dtype(np.float64)
        )
    else:
        wanted = dtype
    return np.array(given, wanted, order="C")
