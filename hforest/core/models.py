"""Models as files: one saver and one loader for all named tuples of arrays, numbers and words.

A package declares a `Layout`: the kind of each field, and the words of the messages. Nothing that a file
holds is executed, and no array is read that is none of the fields.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .check import MAX_COUNT
from .dispatch import to_numpy
from .files import Archive, FilePath, opened, text, write_npz


class Kind(NamedTuple):
    """How a value is stored in arrays whose names begin with that of its field; "" names the whole model."""

    write: Callable[[str, Any], dict[str, np.ndarray]]
    """Returns the arrays of a value by their names."""
    read: Callable[[Archive, str], Any]
    """Returns the value; the text of an exception ends a sentence that begins with "got one in which"."""


class OtherFormatError(Exception):
    """Its argument is the number of a format that this version does not read."""


class Layout(NamedTuple):
    """What the files of a model contain, and what messages say about them."""

    what: str
    """What a file should be: "a forest that save wrote"."""
    kind: Kind
    changed: str
    """The remedy where values contradict each other."""
    missing: str = "none of its arrays called {}; pass a file from save"
    """What was got, and the remedy, where an array is missing; {} is its name."""
    other_format: str = ""
    """What was expected and got, and the remedy, for a file of an unknown format; {} is its number."""


# ---------------------------------------------------------------------------------------------- kinds


def _one(read: Callable[[Archive, str], Any]) -> Kind:
    """The kind of a value that is one array."""
    return Kind(lambda name, value: {name: np.asarray(to_numpy(value))}, read)


def _reals(archive: Archive, name: str) -> tuple[float, ...]:
    return tuple(float(value) for value in archive.small(name))


def _integers(archive: Archive, name: str) -> tuple[int, ...]:
    a = archive.small(name)
    if a.ndim != 1 or not a.size or a.dtype.kind not in "iu" or int(a.min()) < 0:
        raise ValueError(f"{name} is {text(a)}, not a row of integers of at least 0")
    return tuple(int(i) for i in a)


def _word(archive: Archive, name: str) -> str:
    a = archive.small(name)
    if a.shape != () or a.dtype.kind != "U":
        raise ValueError(f"{name} is {text(a)!r}, not a word")
    return text(a)


ARRAY = _one(lambda archive, name: archive[name])
SMALL = _one(Archive.small)
"""An array of a few numbers."""
REALS = _one(_reals)
INTEGERS = _one(_integers)
"""A tuple of at least one integer, none below 0."""
WORD = _one(_word)


def integer(low: int, high: int = MAX_COUNT) -> Kind:
    """Returns the kind of an integer from `low` to `high`."""

    def read(archive: Archive, name: str) -> int:
        a = archive.small(name)
        if a.shape != () or a.dtype.kind not in "iu" or not low <= int(a) <= high:
            raise ValueError(f"{name} is {text(a)}, not an integer from {low} to {high}")
        return int(a)

    return _one(read)


def record(
    cls: Any, check: Callable[[Any], object] | None = None, optional: tuple[str, ...] = (), **kinds: Kind
) -> Kind:
    """Returns the kind of a named tuple, which `check` refuses where fields contradict each other.

    Fields are arrays where `kinds` does not say otherwise. Files may lack `optional` fields, which then have
    their defaults.
    """

    def write(name: str, value: Any) -> dict[str, np.ndarray]:
        prefix = f"{name}/" if name else ""
        return {
            place: a
            for field, part in zip(cls._fields, value, strict=True)
            for place, a in kinds.get(field, ARRAY).write(prefix + field, part).items()
        }

    def read(archive: Archive, name: str) -> Any:
        prefix = f"{name}/" if name else ""
        value = cls(
            **{
                field: kinds.get(field, ARRAY).read(archive, prefix + field)
                for field in cls._fields
                if field not in optional or prefix + field in archive
            }
        )
        if check is not None:
            check(value)
        return value

    return Kind(write, read)


def several(count: str, kind: Kind) -> Kind:
    """Returns the kind of a tuple of at least one value, whose number is the array `count` of a file."""
    number = integer(1)

    def write(name: str, values: Any) -> dict[str, np.ndarray]:
        arrays = number.write(count, len(values))
        for i, value in enumerate(values):
            arrays |= kind.write(f"{name}/{i}", value)
        return arrays

    def read(archive: Archive, name: str) -> tuple[Any, ...]:
        return tuple(kind.read(archive, f"{name}/{i}") for i in range(number.read(archive, count)))

    return Kind(write, read)


def in_format(name: str, newest: int, kind: Kind) -> Kind:
    """Returns a kind beside whose arrays the array `name` holds the number of the format, 1 to `newest`."""

    def write(prefix: str, value: Any) -> dict[str, np.ndarray]:
        return {name: np.array(newest), **kind.write(prefix, value)}

    def read(archive: Archive, prefix: str) -> Any:
        written = archive.small(name)
        if written.shape != () or written.dtype.kind not in "iu" or int(written) < 1:
            raise ValueError(f"{name} is no integer above 0")
        if int(written) > newest:
            raise OtherFormatError(int(written))
        return kind.read(archive, prefix)

    return Kind(write, read)


# ---------------------------------------------------------------------------------------------- files


def save(path: FilePath, layout: Layout, model: Any, **more: np.ndarray) -> None:
    """Writes a model, which the caller has checked, and more arrays. Raises as `files.write_npz`."""
    write_npz(path, layout.kind.write("", model) | more)


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
        return layout.kind.read(archive, "")
    except OtherFormatError as error:
        fault = layout.other_format.format(error)
    except KeyError as error:
        fault = f"{layout.what}, got {layout.missing.format(error)}"
    except (
        TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError,
    ) as error:  # fmt: skip
        fault = f"{layout.what}, got one in which {error}; {layout.changed}"
    raise ValueError(f"{path}: expected {fault}") from None
