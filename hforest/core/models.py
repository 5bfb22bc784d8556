"""Models as files: one saver and one loader for all named tuples of arrays, numbers and words.

Each field of a model is written as an array. A package declares by a `Layout` how fields are read. Content of
a file is never executed, and arrays that are not fields are not read.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .check import MAX_COUNT
from .dispatch import to_numpy
from .files import Archive, FilePath, opened, text, write_npz

Reader: TypeAlias = Callable[[Archive, str], Any]
"""Returns a value from the arrays of a file whose names begin with that of its field; "" is the whole model.
The text of an exception completes a sentence that begins with "got one in which"."""


class OtherFormatError(Exception):
    """Error about a format that this version cannot read; its argument is the number of the format."""


class Layout(NamedTuple):
    """Reader of the files of a model, and texts of its messages."""

    what: str
    """Expected kind of file: "a forest that save wrote"."""
    read: Reader
    changed: str
    """Remedy if values contradict each other."""
    missing: str = "a file without the array {}; pass a file that save wrote"
    """The parts "got" and remedy if an array is missing; {} is its name."""
    other_format: str = ""
    """The parts "expected", "got" and remedy for a file of an unknown format; {} is its number."""


# -------------------------------------------------------------------------------------------- readers


array: Reader = Archive.__getitem__
small: Reader = Archive.small
"""Reads an array of a few numbers."""


def word(archive: Archive, name: str) -> str:
    """Returns a text of a file."""
    a = archive.small(name)
    if a.shape != () or a.dtype.kind != "U":
        raise ValueError(f"{name} is {text(a)!r}, not one string")
    return text(a)


def texts(archive: Archive, name: str) -> np.ndarray:
    """Returns a 1-D array of StringDType, which files hold as the UTF-8 of a list in JSON, or in fixed
    width."""
    a = archive[name]
    if a.dtype == np.uint8 and a.ndim == 1:
        try:
            values = json.loads(a.tobytes())
        except ValueError:  # of JSON, and of UTF-8
            values = None
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise ValueError(f"{name} is not a list of texts")
    elif a.dtype.kind == "U" and a.ndim == 1:
        values = a.tolist()
    else:
        raise ValueError(f"{name} has dtype {a.dtype} and shape {a.shape}, not texts")
    return np.array(values, np.dtypes.StringDType())


def empty_texts(axis: str) -> Reader:
    """Returns the reader of texts that older files lack: empty ones, as many as the array `axis` of the
    record."""

    def read(archive: Archive, name: str) -> np.ndarray:
        n = len(texts(archive, f"{name.rpartition('/')[0]}/{axis}"))
        return np.full(n, "", np.dtypes.StringDType())

    return read


def reals(archive: Archive, name: str) -> tuple[float, ...]:
    """Returns a tuple of real numbers of a file."""
    return tuple(float(value) for value in archive.small(name))


def integers(archive: Archive, name: str) -> tuple[int, ...]:
    """Returns a tuple of at least one integer, none below 0."""
    a = archive.small(name)
    if a.ndim != 1 or not a.size or a.dtype.kind not in "iu" or int(a.min()) < 0:
        raise ValueError(f"{name} is {text(a)}, not a 1-D array of integers of at least 0")
    return tuple(int(i) for i in a)


def integer(low: int, high: int = MAX_COUNT) -> Reader:
    """Returns the reader of an integer from `low` to `high`."""

    def read(archive: Archive, name: str) -> int:
        a = archive.small(name)
        if a.shape != () or a.dtype.kind not in "iu" or not low <= int(a) <= high:
            raise ValueError(f"{name} is {text(a)}, not an integer from {low} to {high}")
        return int(a)

    return read


def record(
    cls: Any,
    check: Callable[[Any], object] | None = None,
    optional: tuple[str, ...] = (),
    **readers: Reader,
) -> Reader:
    """Returns the reader of a named tuple; `check` refuses fields that contradict each other.

    Fields without an entry in `readers` are arrays. Files may lack `optional` fields, which then have their
    defaults.
    """

    def read(archive: Archive, name: str) -> Any:
        places = {field: f"{name}/{field}".lstrip("/") for field in cls._fields}
        there = (field for field in places if field not in optional or places[field] in archive)
        value = cls(**{field: readers.get(field, array)(archive, places[field]) for field in there})
        if check is not None:
            check(value)
        return value

    return read


def several(count: str, reader: Reader) -> Reader:
    """Returns the reader of a tuple of one or more values; the array `count` of the file is their number."""

    def read(archive: Archive, name: str) -> tuple[Any, ...]:
        return tuple(reader(archive, f"{name}/{i}") for i in range(integer(1)(archive, count)))

    return read


def maybe(field: str, reader: Reader) -> Reader:
    """Returns the reader of an optional record, which is None in files without its `field`."""

    def read(archive: Archive, name: str) -> Any:
        return reader(archive, name) if f"{name}/{field}" in archive else None

    return read


def at(name: str, reader: Reader) -> Reader:
    """Returns the reader of a value that older files store under another name."""
    return lambda archive, prefix: reader(archive, name)


def in_format(name: str, newest: int, reader: Reader, older: Mapping[int, Reader] | None = None) -> Reader:
    """Returns a reader of files with formats 1 to `newest`, whose number is the array `name`.

    Formats that need other readers than the newest one have them in `older`.
    """

    def read(archive: Archive, prefix: str) -> Any:
        written = archive.small(name)
        if written.shape != () or written.dtype.kind not in "iu" or int(written) < 1:
            raise ValueError(f"{name} is not an integer above 0")
        if int(written) > newest:
            raise OtherFormatError(int(written))
        return (older or {}).get(int(written), reader)(archive, prefix)

    return read


# ---------------------------------------------------------------------------------------------- files


def _arrays(name: str, value: Any) -> dict[str, np.ndarray]:
    """Returns the arrays of a value by name: those of fields, and of items of sequences of tuples.

    None has no arrays.
    """
    if value is None:
        return {}
    if hasattr(value, "_fields"):
        parts = value._asdict()
    elif isinstance(value, tuple | list) and value and isinstance(value[0], tuple | list):
        parts = dict(enumerate(value))
    else:
        a = np.asarray(to_numpy(value))
        # Its size is that of the texts; an array of fixed width has that of the longest, times their number.
        return {name: np.frombuffer(json.dumps(a.tolist()).encode(), np.uint8) if a.dtype.kind == "T" else a}
    named = (_arrays(f"{name}/{part}".lstrip("/"), a) for part, a in parts.items())
    return {place: a for arrays in named for place, a in arrays.items()}


def save(path: FilePath, model: Any, **more: Any) -> None:
    """Writes a checked model, and further arrays, to a file. Raises as `files.write_npz`."""
    write_npz(path, {**{name: np.asarray(a) for name, a in more.items()}, **_arrays("", model)})


def load(path: FilePath, layout: Layout) -> Any:
    """Returns a model that `save` wrote, after checks. Raises as `files.opened` and `read`."""
    with opened(path, layout.what) as archive:
        return read(path, layout, archive)


def read(path: FilePath, layout: Layout, archive: Archive) -> Any:
    """Returns the model of an open file; ValueError for another kind of file or contradictory values."""
    try:
        return layout.read(archive, "")
    except OtherFormatError as error:
        fault = layout.other_format.format(error)
    except KeyError as error:
        fault = f"{layout.what}, got {layout.missing.format(error)}"
    except (
        TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError,
    ) as error:  # fmt: skip
        fault = f"{layout.what}, got one in which {error}; {layout.changed}"
    raise ValueError(f"{path}: expected {fault}") from None
