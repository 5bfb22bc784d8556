"""Arguments as trees of arrays: tuples, NamedTuples, lists and dicts; their leaves, by path."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Path = tuple[Any, ...]
"""Names and numbers that lead to an array: ("forest", "threshold"), ("out", 1)."""


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    if hasattr(value, "_fields"):
        yield from zip(value._fields, value, strict=True)
    elif isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, tuple | list):
        yield from enumerate(value)


def arrays(value: Any, path: Path = ()) -> Iterator[tuple[Path, np.ndarray]]:
    """Every array of a value with its path."""
    if isinstance(value, np.ndarray):
        yield path, value
    for name, part in _parts(value):
        yield from arrays(part, (*path, name))


def tuples(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every NamedTuple of a value with its path, outer ones first."""
    if hasattr(value, "_fields"):
        yield path, value
    for name, part in _parts(value):
        yield from tuples(part, (*path, name))


def mapped(value: Any, change: Callable[[np.ndarray], Any]) -> Any:
    """A new value with every array changed."""
    if isinstance(value, np.ndarray):
        return change(value)
    if hasattr(value, "_fields"):
        return type(value)(*(mapped(part, change) for part in value))
    if isinstance(value, dict):
        return {name: mapped(part, change) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(mapped(part, change) for part in value)
    return value


def copied(value: Any) -> Any:
    """A copy with C-contiguous arrays of their own memory."""
    return mapped(value, lambda a: a.copy(order="C"))


def at(value: Any, path: Path) -> Any:
    """The part of a value at a path."""
    for name in path:
        value = getattr(value, name) if hasattr(value, "_fields") else value[name]
    return value


def replaced(value: Any, path: Path, new: Any) -> Any:
    """A value with another part at a path; the rest is shared."""
    if not path:
        return new
    name, rest = path[0], path[1:]
    if hasattr(value, "_fields"):
        return value._replace(**{name: replaced(getattr(value, name), rest, new)})
    if isinstance(value, dict):
        return value | {name: replaced(value[name], rest, new)}
    parts = list(value)
    parts[name] = replaced(parts[name], rest, new)
    return type(value)(parts)


def code(value: Any) -> str:
    """Python text that makes a value, where that is possible."""
    if isinstance(value, np.ndarray):
        text = f"np.array({value.tolist()!r}, {value.dtype.str!r})"
        if value.size == 0:
            text = f"np.zeros({value.shape}, {value.dtype.str!r})"
        return text if value.size < 2000 else f"an array of {value.shape} {value.dtype}"
    if isinstance(value, np.dtype):
        return f"np.dtype({value.str!r})"
    if hasattr(value, "_fields"):
        fields = ", ".join(f"{name}={code(part)}" for name, part in _parts(value))
        return f"{type(value).__module__}.{type(value).__name__}({fields})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {code(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(code(part) for part in value) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(code(part) for part in value) + ("," if len(value) == 1 else "") + ")"
    return repr(value)
