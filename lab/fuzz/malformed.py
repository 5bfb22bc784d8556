"""Tuples of arrays that contradict themselves, and arrays that share memory."""

from typing import Any

import numpy as np
from hypothesis import reject

from .oracle import in_place
from .trees import arrays, copied, replaced, tuples
from .values import Setting

# -------------------------------------------------------------------------------------------- tuples

_NUMBERS = (-1, 0, 1, -2, -3, 2, 3, 7, 2**31 - 1, -(2**31))
_REALS = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, 1e-320)
_OTHERS = (None, -1, 0, 1, 2, 100, 2**40, 1.5, float("nan"), "word", True, (), (1,), [], np.zeros(2))


def _edited_numbers(s: Setting, a: np.ndarray) -> Any:
    b = a.copy()
    flat = b.reshape(-1)
    i, j = (s.integer(0, max(0, b.size - 1)) for _ in range(2))
    how = s.choice(("element", "step", "swap", "shorter", "longer", "constant", "dtype", "axis", "reversed"))
    is_text = b.dtype.kind in "UT"
    with np.errstate(all="ignore"):
        if how in ("element", "step", "swap") and not b.size:
            return b
        if how == "element":
            flat[i] = np.array(s.choice(_REALS if b.dtype.kind == "f" else _NUMBERS)).astype(b.dtype)
        elif how == "step" and is_text:
            flat[i] = s.choice(("", "level", "date", "value"))
        elif how == "step":
            flat[i] += np.array(s.choice((1, -1))).astype(b.dtype)
        elif how == "swap":
            flat[[i, j]] = flat[[j, i]]
        elif how == "shorter" and b.ndim:
            b = b[: len(b) - 1].copy()
        elif how == "longer" and b.ndim:
            b = np.concatenate([b, b[-1:]])
        elif how == "constant":
            b[...] = np.array(s.choice((0, 1, -1))).astype(b.dtype)
        elif how == "dtype":
            b = (np.zeros(b.shape) if is_text else b).astype(
                s.choice((np.int32, np.int64, np.float32, np.float64, np.uint8, bool))
            )
        elif how == "axis":
            b = b[None]
        elif how == "reversed" and b.ndim:
            b = b[::-1].copy()
    return b


def _edited(s: Setting, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return s.choice(_OTHERS) if s.integer(0, 9) == 9 else _edited_numbers(s, value)
    if isinstance(value, tuple | list) and value and s.flag():
        parts = list(value)
        how = s.choice(("element", "shorter", "longer"))
        if how == "element":
            i = s.integer(0, len(parts) - 1)
            parts[i] = _edited(s, parts[i])
        elif how == "shorter":
            del parts[-1]
        else:
            parts.append(parts[-1])
        return (
            type(value)(parts)
            if not hasattr(value, "_fields")
            else type(value)._make((parts * 20)[: len(value)])
        )
    if isinstance(value, np.dtype | type):
        return s.choice((np.dtype(np.int32), np.float32, "float32", None))
    return s.choice(_OTHERS)


def edited(s: Setting) -> tuple[str, str, Any]:
    """An argument with one to three fields of its tuples edited: its name, which fields, and the argument."""
    arguments = s.arguments()
    found = list(tuples(arguments))
    if not found:
        reject()
    path, _ = s.choice(found)
    name, notes = path[0], []
    value = arguments[name]
    for _ in range(s.integer(1, 3)):
        paths = [p for p, _ in tuples({name: value}) if p == path]
        if not paths:
            break
        part = next(v for p, v in tuples({name: value}) if p == path)
        field = s.choice(part._fields)
        value = replaced(value, (*path[1:], field), _edited(s, getattr(part, field)))
        notes.append(".".join(map(str, (*path[1:], field))))
    return name, f"edited {', '.join(notes)}", value


# ------------------------------------------------------------------------------------------- overlaps


def overlapping(s: Setting) -> tuple[str, str, Any]:
    """Arguments of which an array that is written to overlaps another one: name, note and a function that makes them."""
    may = in_place(s.target)
    arguments = s.arguments()
    if "out" in arguments and arguments["out"] is None:
        arguments["out"] = s.make("out")
    every = [(path, a) for path, a in arrays(arguments) if a.size]
    written = [(path, a) for path, a in every if path[0] in may]
    if not written or len(every) < 2:
        reject()
    path, a = s.choice(written)
    other_path, b = s.choice([(p, b) for p, b in every if p != path])
    steps = s.choice((0, 1, -1, b.nbytes // a.itemsize - 1))
    offset = max(steps, 0) * a.itemsize, max(-steps, 0) * b.itemsize

    def make() -> dict[str, Any]:
        buffer = np.zeros(max(offset[0] + a.nbytes, offset[1] + b.nbytes), np.uint8)
        here = buffer[offset[0] : offset[0] + a.nbytes].view(a.dtype).reshape(a.shape)
        there = buffer[offset[1] : offset[1] + b.nbytes].view(b.dtype).reshape(b.shape)
        here[...] = a
        there[...] = b
        new: dict[str, Any] = replaced(copied(arguments), path, here)
        return replaced(new, other_path, there)

    where, there = (".".join(map(str, p)) for p in (path, other_path))
    return path[0], f"{where} overlaps {there}, {offset[0]} and {offset[1]} bytes from a common start", make
