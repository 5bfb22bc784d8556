"""Messages between workers: values as bytes in a fixed format, of which nothing is executed.

    bytes 0 to 3      HFM1
    bytes 4 to 11     n, the length of the text, int64 in little-endian order
    n bytes           a text in JSON that describes the value
    the rest          the numbers of its arrays, in C order, one array after the other

In the text None, bools, numbers and strings stand for themselves. Every other value is a list that begins
with a word:

    ["list", ...]   ["tuple", ...]   ["dict", [key, value], ...]
    ["array", dtype, shape]          its numbers follow the text
    ["number", dtype, []]            the same for a NumPy scalar
    [name, ...]                      a record of the table below, with its fields

Sizes are checked against the length of the message: no array is larger than the bytes that were received.
"""

import json
import math
import re
from typing import Any, NamedTuple

import numpy as np

from ... import hinge
from ...growth.by_level import RECORDS

_MAGIC = b"HFM1"
_DTYPE = re.compile(r"[<>|][biuf]\d{1,2}")


class Failure(NamedTuple):
    """An error on a worker, as it is sent to the other workers."""

    kind: str
    message: str


_RECORDS: dict[str, Any] = {
    record.__name__: record
    for record in (
        Failure, *RECORDS,
        hinge.RowGradient, hinge.Parameters, hinge.AdamState,
    )
}  # fmt: skip


def encoded(value: Any) -> bytes:
    """Returns a value as a message; TypeError for types that the format lacks."""
    arrays: list[np.ndarray] = []
    text = json.dumps(_described(value, arrays), separators=(",", ":")).encode()
    head = np.array(len(text), "<i8").tobytes()
    return b"".join([_MAGIC, head, text, *(a.tobytes() for a in arrays)])


def _described(value: Any, arrays: list[np.ndarray]) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        a = np.asarray(value)
        if _DTYPE.fullmatch(a.dtype.str):
            arrays.append(a)
            return ["array" if isinstance(value, np.ndarray) else "number", a.dtype.str, list(a.shape)]
    if type(value) is dict:
        return ["dict", *([_described(a, arrays) for a in pair] for pair in value.items())]
    name = type(value).__name__
    if type(value) in (list, tuple) or type(value) is _RECORDS.get(name):
        return [name, *(_described(a, arrays) for a in value)]
    raise TypeError(
        f"comm: expected numbers, text and arrays of numbers to send, got {name} "
        f"{getattr(value, 'dtype', '')}".rstrip()
        + "; pass arguments of these types"
    )


def decoded(data: bytes) -> Any:
    """Returns the value of a message; ValueError for other bytes."""
    try:
        n = int(np.frombuffer(data, "<i8", 1, len(_MAGIC))[0])
        start = len(_MAGIC) + 8
        if data[: len(_MAGIC)] != _MAGIC or not 0 <= n <= len(data) - start:
            raise ValueError("another header")
        reader = _Reader(data, start + n)
        value = reader.value(json.loads(data[start : start + n]))
        if reader.at != len(data):
            raise ValueError(f"{len(data) - reader.at} bytes after the last array")
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(f"bytes that are not a message ({type(error).__name__}: {error})") from None
    return value


class _Reader:
    """Reads the arrays of a message from byte `at` on."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self.at = data, at

    def value(self, described: Any) -> Any:
        if not isinstance(described, list):
            if isinstance(described, dict):
                raise ValueError("an object of JSON")
            return described
        name, *parts = described
        if name in ("array", "number"):
            a = self._array(*parts)
            return a if name == "array" else a[()]
        if name == "dict":
            return {self.value(key): self.value(value) for key, value in parts}
        values = [self.value(part) for part in parts]
        if name in ("list", "tuple"):
            return values if name == "list" else tuple(values)
        return _RECORDS[name](*values)

    def _array(self, dtype_text: str, shape: list[int]) -> np.ndarray:
        if not _DTYPE.fullmatch(dtype_text) or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"an array of {dtype_text!r} and shape {shape}")
        dtype, count = np.dtype(dtype_text), math.prod(shape)
        if count * dtype.itemsize > len(self._data) - self.at:
            raise ValueError("fewer bytes than its arrays need")
        is_bool = dtype.kind == "b"
        a = (
            np.frombuffer(self._data, np.uint8 if is_bool else dtype, count, self.at)
            if count
            else np.zeros(0, dtype)
        )
        self.at += count * dtype.itemsize
        return (a != 0 if is_bool else a.copy()).reshape(shape)
