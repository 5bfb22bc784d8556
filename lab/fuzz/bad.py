"""One argument that is wrong: of another kind, or an array of another shape, dtype, range."""

import re
from typing import Any

import numpy as np

from .targets import Target
from .trees import Path, arrays, replaced

Wrong = tuple[str, Any, str]
"""What is wrong, the value, and what must come of it: "error", or "either" where the value may be good."""

ENDLESS = {
    "epochs",
    "n_iter",
    "max_rounds",
    "restarts",
    "jumps",
    "n_repeats",
    "max_levels",
    "steps",
    "eval_every",
    "n_permutations",
    "n_bootstrap",
}
"""Numbers of rounds: a large one is good, and takes for ever."""

_UNBOUNDED = {"bootstrap", "counts", "index"}
"""Arguments for which a number may be too large only for another one that is left out."""

_UNREAD = {"out", "last", "tree_path", "repair_thresholds", "thresholds_consistent"}
"""Arguments, and functions of them, whose numbers are not read, or of some rows alone, or index nothing."""

_NO_MISSING = {"", "co2", "demo", "hinge", "layers", "neural", "optim", "project", "split"}
"""Packages of which no function takes NaN as a missing value in its samples."""

FILES = {"file", "path"}
WORDS = {"feature_names", "groups", *FILES}
"""Arguments that take any text."""


def kinds(target: Target, name: str) -> list[Wrong]:
    """Values of wrong kinds."""
    annotation, error = target.annotation(name), "error"
    may_be_none = target.parameters[name].default is None or re.search(r"None|Optional", annotation)
    found: list[Wrong] = [
        ("an object", object(), error),
        ("a word", "no such word", "either" if name in WORDS else error),
        ("a complex number", 1j, error),
        (
            "a list of a number and a word",
            [1.5, "two"],
            "either" if name == "history" or name in WORDS else error,
        ),
        ("None", None, "either" if may_be_none else error),
        ("a bool", True, "either"),
        ("bytes", b"bytes", "either"),
        ("an empty list", [], "either"),
        ("an empty dict", {}, "either"),
        ("an array of words", np.array(["a", "b"]), error if name not in WORDS else "either"),
        (
            "an array of objects",
            np.array([None, object()], dtype=object),
            error if name not in WORDS else "either",
        ),
    ]
    if not re.search("Callable|bool", annotation):  # what can be called may raise errors of its own
        found += [("a function", len, "either"), ("a type", int, "either")]
    if name == "rng":  # draws a fresh seed
        found = [wrong for wrong in found if wrong[1] is not None]
    if name not in FILES:  # numbers of open files
        found += [
            (f"the number {n}", n, "either") for n in (-1, 0, 1.5, float("nan"), float("inf"), -(2**70))
        ]
        if name not in ENDLESS:
            found.append(("the number 2**70", 2**70, "either"))
    return found


def _element(a: np.ndarray, new: Any, at: int) -> np.ndarray:
    b = a.copy()
    with np.errstate(all="ignore"):
        b.reshape(-1)[at % b.size] = np.array(new).astype(a.dtype)
    return b


def _with_none(a: np.ndarray, at: int) -> np.ndarray:
    b = a.astype(object)
    b.reshape(-1)[at % b.size] = None
    return b


def of_array(target: Target, name: str, a: np.ndarray, at: int, others: bool) -> list[Wrong]:
    """An array of an argument with something wrong; `others`: whether the call has other arrays of numbers."""
    lenient = target.lenient(name)
    any_dtype = not re.search("FloatArray|IntArray|ArrayLike", target.annotation(name))
    with np.errstate(all="ignore"):
        found: list[Wrong] = [
            ("one axis more", a[None].copy(), "either"),
            ("no axis", a.reshape(-1)[:1].reshape(()) if a.size else np.zeros((), a.dtype), "error"),
            ("no elements", np.zeros((0, *a.shape[1:]), a.dtype), "either"),
            (
                "dtype complex",
                a.astype(complex) if a.dtype.kind in "biufc" else np.zeros(a.shape, "c16"),
                "error",
            ),
            ("dtype text", a.astype("U8" if a.dtype.kind != "M" else "U40"), "error" if a.size else "either"),
            ("dtype of dates", np.zeros(a.shape, "M8[s]"), "error"),
        ]
    if a.ndim >= 2:
        found.append(("one axis less", a[0].copy() if len(a) else a.reshape(-1), "either"))
        found.append(("columns missing", np.ascontiguousarray(a[:, :-1]), "either"))
    if a.ndim >= 1 and len(a):
        found.append(("a row more", np.concatenate([a, a[:1]]), "either"))
        found.append(("a row less", a[1:].copy(), "either"))
    if a.size:
        found.append(("None among the objects", _with_none(a, at), "error"))
    if a.dtype.kind == "f":
        if not lenient and others:
            other = np.float32 if a.dtype == np.float64 else np.float64
            found.append(
                ("the other dtype", a.astype(other), "either" if _one_dtype_alone(target, name) else "error")
            )
        if a.size:
            must = "error" if lenient else "either"
            found += [(str(v), _element(a, v, at), must) for v in (np.inf, -np.inf)]
            known = (
                name in ("x", "other", "x_test", "z", "background", "cover")
                and target.package not in _NO_MISSING
            )
            found.append(("nan", _element(a, np.nan, at), "either" if known else must))
            found += [(str(v), _element(a, v, at), "either") for v in (np.finfo(a.dtype).max, -1e30, 0.0)]
    elif a.dtype.kind in "iu":
        if not lenient and a.dtype in (np.int32, np.int64):
            other = np.int64 if a.dtype == np.int32 else np.int32
            found.append(("the other dtype", a.astype(other), "either" if name == "bootstrap" else "error"))
        if a.size:
            read = not _UNREAD & {name, target.last}
            found.append(
                ("the number -1", _element(a, -1, at), "error" if a.dtype.kind == "i" and read else "either")
            )
            largest = np.iinfo(a.dtype).max
            must = "error" if read and name not in _UNBOUNDED and a.ndim else "either"
            found.append((f"the number {largest}", _element(a, largest, at), must))
    return [(note, new, "either") for note, new, _ in found] if any_dtype else found


def _one_dtype_alone(target: Target, name: str) -> bool:
    return sum("FloatArray" in target.annotation(other) for other in target.parameters) < 2


def wrong_arguments(
    target: Target, arguments: dict[str, Any], name: str, at: int
) -> list[tuple[str, Any, str]]:
    """Everything that is wrong with one argument: (what, the argument, "error" or "either")."""
    value = arguments[name]
    found = kinds(target, name)
    others = sum(a.dtype.kind == "f" for _, a in arrays(arguments)) > 1
    path: Path
    for path, a in arrays(value):
        for note, new, expect in of_array(target, name, a, at, others):
            must = expect if not path else "either"
            where = ".".join(map(str, path))
            found.append((f"{where} {note}".strip(), replaced(value, path, new), must))
    return found
