"""Models as files: one saver and one loader for all named tuples of arrays, numbers and words.

A model is written as it is built, a field an array. A package declares by a `Layout` how its fields are read.
Nothing that a file holds is executed, and no array is read that is none of the fields.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .check import MAX_COUNT
from .dispatch import to_numpy
from .files import Archive, FilePath, opened, text, write_npz

Reader: TypeAlias = Callable[[Archive, str], Any]
"""Returns a value from the arrays of a file whose names begin with a name, that of its field; "" is the whole
model. The text of an exception ends a sentence that begins with "got one in which"."""


class OtherFormatError(Exception):
    """Its argument is the number of a format that this version does not read."""


class Layout(NamedTuple):
    """How the files of a model are read, and what messages say about them."""

    what: str
    """What a file should be: "a forest that save wrote"."""
    read: Reader
    changed: str
    """The remedy where values contradict each other."""
    missing: str = "none of its arrays called {}; pass a file from save"
    """What was got, and the remedy, where an array is missing; {} is its name."""
    other_format: str = ""
    """What was expected and got, and the remedy, for a file of an unknown format; {} is its number."""


# -------------------------------------------------------------------------------------------- readers


array: Reader = Archive.__getitem__
small: Reader = Archive.small
"""Reads an array of a few numbers."""


def word(archive: Archive, name: str) -> str:
    """Reads a text."""
    a = archive.small(name)
    if a.shape != () or a.dtype.kind != "U":
        raise ValueError(f"{name} is {text(a)!r}, not a word")
    return text(a)


def reals(archive: Archive, name: str) -> tuple[float, ...]:
    """Reads a tuple of real numbers."""
    return tuple(float(value) for value in archive.small(name))


def integers(archive: Archive, name: str) -> tuple[int, ...]:
    """Reads a tuple of at least one integer, none below 0."""
    a = archive.small(name)
    if a.ndim != 1 or not a.size or a.dtype.kind not in "iu" or int(a.min()) < 0:
        raise ValueError(f"{name} is {text(a)}, not a row of integers of at least 0")
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
    """Returns the reader of a named tuple, which `check` refuses where its fields contradict each other.

    Fields are arrays where `readers` does not say otherwise. Files may lack `optional` fields, which then
    have their defaults.
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
    """Returns the reader of a tuple of values, 1 or more, whose number is the array `count` of the file."""

    def read(archive: Archive, name: str) -> tuple[Any, ...]:
        return tuple(reader(archive, f"{name}/{i}") for i in range(integer(1)(archive, count)))

    return read


def maybe(field: str, reader: Reader) -> Reader:
    """Returns the reader of a record that files may lack: None where there is no `field` of it."""

    def read(archive: Archive, name: str) -> Any:
        return reader(archive, name) if f"{name}/{field}" in archive else None

    return read


def at(name: str, reader: Reader) -> Reader:
    """Returns the reader of what older files have under another name."""
    return lambda archive, prefix: reader(archive, name)


def in_format(name: str, newest: int, reader: Reader, older: Mapping[int, Reader] | None = None) -> Reader:
    """Returns a reader of files whose array `name` is the number of their format, from 1 to `newest`.

    Formats that are read in another way than the newest one have readers in `older`.
    """

    def read(archive: Archive, prefix: str) -> Any:
        written = archive.small(name)
        if written.shape != () or written.dtype.kind not in "iu" or int(written) < 1:
            raise ValueError(f"{name} is no integer above 0")
        if int(written) > newest:
            raise OtherFormatError(int(written))
        return (older or {}).get(int(written), reader)(archive, prefix)

    return read


# ---------------------------------------------------------------------------------------------- files


def _arrays(name: str, value: Any) -> dict[str, np.ndarray]:
    """The arrays of a value: of each field, and of each item of a sequence of tuples, under their names.

    None has none.
    """
    if value is None:
        return {}
    if hasattr(value, "_fields"):
        parts = value._asdict()
    elif isinstance(value, tuple | list) and value and isinstance(value[0], tuple | list):
        parts = dict(enumerate(value))
    else:
        return {name: np.asarray(to_numpy(value))}
    named = (_arrays(f"{name}/{part}".lstrip("/"), a) for part, a in parts.items())
    return {place: a for arrays in named for place, a in arrays.items()}


def save(path: FilePath, model: Any, **more: Any) -> None:
    """Writes a model, which the caller has checked, and arrays beside it. Raises as `files.write_npz`."""
    write_npz(path, {**{name: np.asarray(a) for name, a in more.items()}, **_arrays("", model)})


def load(path: FilePath, layout: Layout) -> Any:
    """Returns what `save` wrote, checked. Raises as `files.opened`, and as `read`."""
    with opened(path, layout.what) as archive:
        return read(path, layout, archive)


def read(path: FilePath, layout: Layout, archive: Archive) -> Any:
    """Returns the model of an open file.

    Raises
    ------
    ValueError
        Another file, one whose values contradict each other, or one of an unknown format.
    """
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
