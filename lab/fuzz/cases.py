"""Kinds of cases: what is called, and what must come of it."""

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hypothesis import reject

from hforest.core import blocks

from . import bad, cuda, forks, growing, layouts, leaks, malformed, signals, stories, writes
from . import damaged as files
from .oracle import Case, in_place, run
from .targets import SANITIZED, TARGETS, Target
from .trees import arrays, at, copied, replaced
from .values import Setting

for _path in sorted(Path(__file__).parent.glob("values_*.py")):
    importlib.import_module(f".{_path.stem}", __package__)


def _no_model(value: Any) -> bool:
    return isinstance(value, growing._NoModel)


def good(s: Setting) -> Case:
    """A good call: the reference's result, the same bits at another number of threads, inputs unchanged."""
    arguments = s.arguments()
    if any(map(_no_model, arguments.values())):
        reject()
    return Case(
        s.target, "good", arguments, "", "", lambda: copied(arguments), "value", plain=lambda given: given
    )


KEEP_DTYPE = {"cascade.scan", "demo.save_checkpoint"}
"""Functions that view or store an array of any dtype, and compute nothing of it."""


def layout(s: Setting) -> Case:
    """One array in another layout or dtype: what the same numbers give in plain arrays, or an error if strict."""
    arguments = s.arguments()
    found = [path for path, a in arrays(arguments)]
    if not found:
        reject()
    path = s.choice(found)
    name = path[0]
    a = dict(arrays(arguments))[path]
    lenient = s.target.lenient(name) and len(path) == 1
    choices = [(how, layouts.LAYOUTS[how]) for how in layouts.layouts_of(a)]
    choices += [(f"dtype {d}", lambda b, d=d: b.astype(d)) for d in layouts.dtypes_of(a)]
    how, change = s.choice(choices)
    if how in ("strided", "negative strides", "a row repeated") and a.ndim == 0:
        reject()
    if how == "sparse" and s.target.name == "growth.samples":  # its bins are stored in another way
        reject()
    if how == "table" and (s.target.name, name) == ("tabular.fit", "x"):  # the model knows its columns
        reject()

    def make() -> dict[str, Any]:
        new: dict[str, Any] = copied(arguments)
        return replaced(new, path, change(a.copy(order="C")))

    def plain(given: dict[str, Any]) -> dict[str, Any]:
        keeps = s.target.name in KEEP_DTYPE or name in in_place(s.target)
        keeps = keeps or (s.target.package, name) == ("tabular", "y")  # classes come back as they were spelt
        return replaced(given, path, layouts.plain(at(given, path), None if keeps else a.dtype))

    # Repeated rows of labels lack classes; masks are refused.
    good_anyhow = (
        lenient and how not in ("masked", "sparse", "a row repeated") and name not in in_place(s.target)
    )
    if (a.dtype.kind in "biu" and np.dtype(how[6:] if how.startswith("dtype ") else a.dtype).kind == "f") or (
        arguments.get("out") is not None and how not in ("strided", "Fortran order", "negative strides")
    ):  # labels are whole; the dtype of `out` follows from the good call
        good_anyhow = False
    if not a.size and how in ("nested lists", "objects", "table"):  # they have no dtype, or no columns
        good_anyhow = False
    if name == "y" and not isinstance(arguments.get("loss", ""), str):  # such a loss judges its labels
        good_anyhow = False
    if (name, how) == ("y_order", "dtype ?"):  # an index is no bool
        good_anyhow = False
    return Case(s.target, "layout", arguments, name, f"{how} {path[1:] or ''}".strip(), make,
                "value" if good_anyhow else "either", plain)  # fmt: skip


def bads(s: Setting, name: str) -> Iterator[Case]:
    """Everything that is wrong with one argument of one call."""
    arguments = s.arguments()
    for note, new, expect in bad.wrong_arguments(s.target, arguments, name, s.integer(0, 99)):
        if (_no_model(arguments.get("model")) and name != "model") or s.target.name == "tabular.labels":
            expect = "either"  # labels are of any kind

        def make(new: Any = new) -> dict[str, Any]:
            return copied(arguments) | {name: copied(new)}

        names = (name,) if expect == "error" and not any(note.endswith(w) for w in _SHARED) else ()
        yield Case(s.target, "bad", arguments, name, note, make, expect, names=names)


_SHARED = ("axis more", "the other dtype", "axis")
"""What other arrays may be blamed for: the first array of a call sets sizes and dtype."""


def one_bad(s: Setting) -> Case:
    """One wrong argument."""
    name = s.choice(list(s.target.parameters))
    return s.choice(list(bads(s, name)))


def overlap(s: Setting) -> Case:
    """An array that is written to overlaps another one: an error, or the same numbers as without."""
    name, note, make = malformed.overlapping(s)
    return Case(s.target, "overlap", s.arguments(), name, note, make, "either", plain=lambda given: given)


def edited(s: Setting) -> Case:
    """Tuples of arrays that contradict themselves: an error, or what the reference makes of them."""
    name, note, value = malformed.edited(s)
    arguments = s.arguments()
    return Case(
        s.target, "malformed", arguments, name, note, lambda: copied(arguments | {name: value}), "either"
    )


def _file_of(s: Setting) -> str:
    return next(name for name in s.target.parameters if name in bad.FILES)


def foreign(s: Setting) -> Case:
    """A file with members that are no fields: the same content; a member that is no array may be an error."""
    name, arguments = _file_of(s), s.arguments()
    note, copy = files.foreign(s, arguments[name])
    return Case(
        s.target, "foreign", arguments, name, note, lambda: arguments | {name: copy},
        "either" if note == "no array" else "value", plain=lambda given: arguments,
    )  # fmt: skip


def damaged(s: Setting) -> Case:
    """A damaged file: an error, or the content where no byte of it is damaged."""
    name, arguments = _file_of(s), s.arguments()
    note, copy, other = files.damaged(s, arguments[name])
    return Case(
        s.target, "damaged", arguments, name, note, lambda: arguments | {name: copy}, "either",
        plain=None if other else lambda given: arguments,
    )  # fmt: skip


def repeated(s: Setting) -> Case:
    """A call that is made many times."""
    case = one_bad(s) if s.target.parameters and s.flag() else good(s)
    if "object" in case.note:  # NumPy keeps a block for each text of an array of objects
        reject()
    return case._replace(kind="leak")


class Kind(NamedTuple):
    """A kind of cases, which functions it is for, and what runs and judges a case."""

    build: Callable[[Setting], Case]
    applies: Callable[[Target], bool]
    run: Callable[[Case], object] = run
    targets: Mapping[str, Target] = TARGETS
    by_chance: bool = False
    """Whether a case depends on time, so that a finding need not come again."""


def _takes(*texts: str) -> Callable[[Target], bool]:
    def applies(target: Target) -> bool:
        found = [target.annotation(name) for name in target.parameters]
        return any(
            text in annotation and "Callable" not in annotation for annotation in found for text in texts
        )

    return applies


_TUPLES = ("Forest", "AdamState", "Linear", "Distribution", "Cascade", "Scanner", "StumpSettings",
           "Trials", "Windows", "Data", "Checkpoint", "tabular.Model", "images.Model", "Columns", "LeafTargets", "OnlineState", "TrainingState", "HonestCounts")  # fmt: skip


def _writes(target: Target) -> bool:
    changed = in_place(target) & set(target.parameters) - {"history"}
    return bool(changed) and target.package not in ("", "demo")


def _good_as(kind: str) -> Callable[[Setting], Case]:
    return lambda s: good(s)._replace(kind=kind)


def _run_in_blocks(case: Case) -> object:
    """As `run`, where matrices of more than 16 numbers are large, and converted by blocks."""
    limit, blocks.CONVERTED = blocks.CONVERTED, 16
    try:
        return run(case)
    finally:
        blocks.CONVERTED = limit


def _loads(target: Target) -> bool:
    return target.last.startswith("load") and bool(bad.FILES & set(target.parameters))


def _interrupted(target: Target) -> bool:
    timer = hasattr(signals.signal, "setitimer")
    return bool(target.package) and timer and stories.possible(target)


def _forked(target: Target) -> bool:
    return _interrupted(target) and hasattr(os, "fork") and not SANITIZED


_CALLS = TARGETS | stories.CALLS

KINDS = {
    "good": Kind(good, lambda target: True),
    "layout": Kind(layout, _takes("ArrayLike", "FloatArray", "IntArray", "Array")),
    "blocks": Kind(
        lambda s: layout(s)._replace(kind="blocks"), lambda target: "x" in target.parameters, _run_in_blocks
    ),
    "bad": Kind(one_bad, lambda target: bool(target.parameters)),
    "overlap": Kind(overlap, _writes),
    "malformed": Kind(edited, lambda target: _takes(*_TUPLES)(target) and target.last != "from_sklearn"),
    "leak": Kind(repeated, lambda target: target.package not in ("cascade", "demo", "tabular"), leaks.run),
    "damaged": Kind(damaged, _loads),
    "foreign": Kind(foreign, _loads, files.run_measured),
    "signal": Kind(_good_as("signal"), _interrupted, signals.run, _CALLS, by_chance=True),
    "fork": Kind(_good_as("fork"), _forked, forks.run, _CALLS, by_chance=True),
    "callbacks": Kind(writes.callbacks, writes.calls_back, writes.run_callbacks),
    "threads": Kind(writes.threads, writes.has_arrays, writes.run_threads, by_chance=True),
    "between": Kind(writes.between, writes.takes_checked, writes.run_between),
    "cuda": Kind(lambda s: cuda.small(s, good(s)), cuda.applies, cuda.run),
    "story": Kind(_good_as("story"), stories.possible, stories.run, stories.STORIES, by_chance=True),
}
