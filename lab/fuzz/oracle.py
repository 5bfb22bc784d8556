"""Runs a case and judges its outcome: a right answer, or one of the library's errors."""

import contextlib
import io
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

import numpy as np

import hforest
from hforest.tabular.tables import File

from .targets import Target
from .trees import arrays, at, code, copied, mapped

ERRORS = (TypeError, ValueError, IndexError, MemoryError)
"""What the library raises for wrong arguments: these classes, not subclasses of them."""

FILE_ERRORS = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, OSError)
"""What functions of files raise beside them."""

MESSAGE = re.compile(r"(?s)(?P<name>.+?): expected .*got .*; .")

IN_PLACE = {
    "optim": {"param", "state", "m", "v", "last"},
    "hinge.adam_sync": {"thresholds", "weights", "state"},
    "hinge.adam_forward": {"thresholds", "features", "weights", "state"},
    "hinge.adam_backward": {"thresholds", "features", "weights", "state"},
    "hinge.adam_step": {"thresholds", "features", "weights", "state"},
    "layers.normalize_update": {"mean", "var"},
    "demo.step": {"state"},
    "demo.train": {"state"},
    "demo.predict": {"state"},
    "demo.error_rate": {"state"},
}
"""Arguments that are documented to be changed, beside `out` and `history`."""


STEPS = ("adam_forward", "adam_backward", "adam_step")
"""Functions whose states differ between backends by steps that rows have missed."""


SIZES = {"height", "width", "kernel_height", "kernel_width", "channels", "size0", "size1", "size2"}
"""Names of sizes that messages of shapes may begin with, beside n_samples and other n_...."""

EXTREME = 1e15
"""Calls with larger numbers may overflow in other places than in the reference."""

LARGE = 1 << 19
"""Elements of a result above which the reference, whose loops are plain Python, takes too long."""


MADE = Counter[str]()
"""Calls of this process, the references' and the repeated ones included."""


class Finding(AssertionError):
    """A broken promise: its first line says which. `key` is the same for findings of one cause."""

    key: tuple[str, str, str, str] = ("", "", "", "")


class Case(NamedTuple):
    """A call, and what must come of it."""

    target: Target
    kind: str
    arguments: dict[str, Any]
    """Of the good call that the case was made of."""
    changed: str
    """The argument that is not as in the good call; "" for none."""
    note: str
    """What was changed."""
    make: Callable[[], dict[str, Any]]
    """Arguments of the call, new ones at every call."""
    expect: str
    """"value", "error" or "either"."""
    plain: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Of the arguments of the call: those of a call with the same outcome, in other memory."""
    names: tuple[str, ...] = ()
    """Arguments that an error may name; any if empty."""
    acts: Any = None
    """What changes arguments during the call, see `writes`."""

    def text(self) -> str:
        arguments = ", ".join(f"{name}={code(value)}" for name, value in self.make().items())
        changed = f"  # {self.changed}: {self.note}" if self.changed else ""
        return f"{self.target.full}({arguments}){changed}"


class Rounding(NamedTuple):
    """The numbers that results are computed from."""

    size: float
    eps: float
    least: float
    """Adam divides a gradient that cancels, and is rounding alone, by a number as small."""


class Outcome(NamedTuple):
    """What a call came to."""

    value: Any
    error: type[BaseException] | None
    message: str

    def text(self) -> str:
        if self.error is None:
            return f"the value {code(self.value)[:500]}"
        return f"{self.error.__name__}: {self.message}"


def in_place(target: Target) -> set[str]:
    """Arguments that the function may change."""
    known = IN_PLACE.get(target.name, IN_PLACE.get(target.package, set()))
    return {"out", "history"} | known


@contextlib.contextmanager
def _quiet(warn: bool) -> Any:
    threads = hforest.get_num_threads()
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore" if warn else "error")
        try:
            yield
        finally:
            hforest.set_num_threads(threads)


def call(function: Callable[..., Any], arguments: dict[str, Any], warn: bool = False) -> Outcome:
    """The outcome of a call; warnings are errors unless the function may warn."""
    MADE["calls"] += 1
    with _quiet(warn):
        try:
            value = function(**arguments)
            if isinstance(value, contextlib.AbstractContextManager):
                with value:
                    value = None
        except Exception as error:
            return Outcome(None, type(error), str(error))
        return Outcome(value, None, "")


# ---------------------------------------------------------------------------------------- comparing


def _bytes(a: np.ndarray) -> Any:
    return a.tolist() if a.dtype.hasobject else a.tobytes()


def _differs(a: Any, b: Any, near: Rounding | None) -> str:
    """How two results differ; "" if they don't. They have the same bits, or differ by rounding."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
            return f"{type(a).__name__} and {type(b).__name__}"
        if "T" in a.dtype.kind + b.dtype.kind:  # texts of any length have no byte order
            return "" if a.tolist() == b.tolist() else f"{a!r:.100} and {b!r:.100}"
        if (a.shape, a.dtype.newbyteorder("=")) != (b.shape, b.dtype.newbyteorder("=")):
            return f"{a.dtype} {a.shape} and {b.dtype} {b.shape}"
        return "" if _same_numbers(a, b, near) else f"{a.tolist()} and {b.tolist()}"[:2000]
    if hasattr(a, "tocsr") and hasattr(b, "tocsr"):  # sparse arrays of SciPy
        a, b = ((c.shape, c.indptr, c.indices, c.data) for c in (a, b))
    if isinstance(a, float | np.floating) and isinstance(b, float | np.floating):
        return _differs(np.array(a), np.array(b), near)
    if isinstance(a, hforest.tree.Prepared) and isinstance(b, hforest.tree.Prepared):
        a, b = a.forest, b.forest
    if isinstance(a, hforest.hinge.Prepared) and isinstance(b, hforest.hinge.Prepared):
        a, b = ((*c.parameters, c.kind, c.margin, c.windows) for c in (a, b))
    if isinstance(a, hforest.tabular.Prepared) and isinstance(b, hforest.tabular.Prepared):
        a, b = a.model, b.model
    if isinstance(a, File) and isinstance(b, File):
        a, b = ((c.frame.to_dict(as_series=False), c.lines, c.decimal) for c in (a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        a, b = ([*sorted(d.items())] for d in (a, b))
    forests = isinstance(a, hforest.tree.Forest) and isinstance(b, hforest.tree.Forest)  # also marked ones
    if forests or (isinstance(a, tuple | list) and type(a) is type(b)):
        if len(a) != len(b):
            return f"{len(a)} and {len(b)} parts"
        return next((text for x, y in zip(a, b, strict=True) if (text := _differs(x, y, near))), "")
    return "" if type(a) is type(b) and (a is b or a == b or callable(a)) else f"{a!r} and {b!r}"


def _same_numbers(a: np.ndarray, b: np.ndarray, near: Rounding | None) -> bool:
    if _bytes(a) == _bytes(b):
        return True
    if a.dtype.kind != "f" or a.size == 0:
        return False
    if near is None:
        return bool(np.array_equal(a, b, equal_nan=True))
    wide = 200 * max(near.eps, float(np.finfo(a.dtype).eps))
    return bool(
        np.allclose(a, b, rtol=wide, atol=max(near.least, wide * max(near.size, _size(a))), equal_nan=True)
    )


def _rounding(arguments: dict[str, Any]) -> Rounding:
    dtypes = [a.dtype for _, a in arrays(arguments) if a.dtype.kind == "f"]
    eps = max((float(np.finfo(dtype).eps) for dtype in dtypes), default=0.0)
    size, least = _size(arguments), 0.0
    if "grad_y" in arguments and "lr" in arguments:
        least = 2 * arguments["lr"] * min(1.0, 200 * eps * size / arguments["eps"])
    return Rounding(size, eps, least)


def _size(value: Any) -> float:
    """The largest finite number of all arrays of real numbers."""
    numbers = [np.abs(a[np.isfinite(a)]) for _, a in arrays({"": value}) if a.dtype.kind == "f"]
    return max((float(a.max()) for a in numbers if a.size), default=0.0)


# ------------------------------------------------------------------------------------------ judging


def _judge_error(case: Case, outcome: Outcome, arguments: dict[str, Any]) -> None:
    files = [str(value) for name, value in arguments.items() if name in ("file", "path")]
    of_files = bool(files)
    allowed = ERRORS + (FILE_ERRORS if of_files else ())
    if outcome.error not in allowed:
        raise Finding("an error that is none of the library's")
    match = MESSAGE.match(outcome.message)
    if not match:
        raise Finding("a message without its four parts: argument, expected, got; remedy")
    words = [word.strip() for word in re.split(r", | and ", match["name"])]
    roots = {re.split(r"[.\[( /]", word)[0] for word in words}
    known = set(case.names or case.target.parameters) | {"x" if case.changed == "" else case.changed}
    if case.changed == "windows":
        known |= {"x", "base", "offset"}  # numbers of x, and the places of windows in them
    if not case.names:
        for value in arguments.values():
            known |= set(value if isinstance(value, dict) else getattr(value, "_fields", ()))
    sizes = not case.names and any(root.startswith("n_") or root in SIZES for root in roots)
    if not (roots & known or sizes or any(file in match["name"] for file in files)):
        raise Finding(f"an error about {match['name']!r}, which is not {' or '.join(sorted(known))}")
    # Another dtype of x may be another one than that of the forests to go on from.
    if case.expect == "value" and not outcome.message.startswith("resume.levels"):
        raise Finding("an error where the call is good")


def _unchanged(before: dict[str, Any], after: dict[str, Any], may: set[str]) -> None:
    for name, value in before.items():
        if name in may:
            continue
        for path, a in arrays(value):
            if _bytes(a) != _bytes(at(after[name], path)):
                raise Finding(f"the argument {'.'.join(map(str, (name, *path)))} was changed")


DIVERGED = ("training has diverged", "learned features are finite, got an infinite")

NO_REFERENCE = {
    "",
    "cascade",
    "demo",
    "tabular",
    "tree.from_sklearn",
    "neural.fit",
    "neural.partial_fit",
    "co2.search",
}
"""Packages and functions that are not run in reference implementations: they take minutes there, or rounding grows."""


def has_reference(target: Target) -> bool:
    """Whether a function is compared with the reference implementation."""
    return not {target.package, target.name} & NO_REFERENCE


def _moderate(arguments: dict[str, Any]) -> bool:
    reals = [a for _, a in arrays(arguments) if a.dtype.kind == "f" and a.size]
    return all(bool((np.abs(a.astype(np.float64)) < EXTREME).all()) for a in reals)


def _small(value: Any, arguments: dict[str, Any]) -> bool:
    """Whether a result has at most LARGE elements, times the pixels of a window."""
    windows, pixels = arguments.get("windows"), 1
    if isinstance(windows, hforest.hinge.Windows):
        sides = windows.kernel_size
        pixels = int(np.prod(np.broadcast_to(sides, max(2, np.size(sides)))))
    return pixels * sum(a.size for _, a in arrays({"result": value})) <= LARGE


def _states(arguments: dict[str, Any], target: Target) -> dict[str, Any]:
    return {name: arguments[name] for name in sorted(in_place(target)) if name in arguments}


@contextlib.contextmanager
def _other_threads() -> Iterator[None]:
    before = hforest.get_num_threads()
    hforest.set_num_threads(3 if before == 1 else 1)
    try:
        yield
    finally:
        hforest.set_num_threads(before)


def _check_values(case: Case, outcome: Outcome, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Compares results and changed arguments with those of the plain call and of the reference."""
    others: list[tuple[str, Rounding | None, Any]] = []
    if case.plain is not None:
        # Functions of the package itself report threads.
        where = _other_threads() if case.target.package else contextlib.nullcontext()
        others.append(("the same call on plain arrays, at another number of threads", None, where))
    # The reference reads the state of every row, backends that of rows which samples reach.
    lazy = case.target.last in STEPS and case.changed == "state" and case.kind not in ("layout", "blocks")
    if has_reference(case.target) and _moderate(before) and _small(outcome.value, before) and not lazy:
        others.append(("the reference implementation", _rounding(before), hforest.using("reference")))
    plain = case.plain or (lambda arguments: arguments)
    for who, near, where in others:
        arguments = copied(plain(before))
        with where:
            other = call(case.target.function, arguments, warn=near is not None)
        if other.error is not None:
            raise Finding(f"{who} raises {other.text()}, the call gives a value")
        both = [
            (value, _states(given, case.target))
            for value, given in ((outcome.value, after), (other.value, arguments))
        ]
        if near and case.target.last == "adam_step":
            both = [(value, None) for value, _ in both]  # where slopes cancel, rounding decides a step
        elif near and case.target.last in STEPS:
            both = [(value, _synced(states, case.target.name, before)) for value, states in both]
        if text := _differs(*both, near):
            raise Finding(f"another result than {who}: {text}")


def _synced(states: dict[str, Any], name: str, before: dict[str, Any]) -> Any:
    """States with the missed steps taken: backends take them at other times."""
    states = {k: copied(a) for k, a in states.items() if k != "features"}
    settings = {name: before[name] for name in ("lr", "beta1", "beta2", "eps")}
    step = before["step"] - ("forward" in name)
    if step:
        hforest.hinge.adam_sync(**states, step=step, **settings)
    return [states[name] for name in ("thresholds", "weights")]


def run(case: Case) -> Outcome:
    """Runs a case; raises Finding where a promise is broken."""
    given = case.make()
    before = {name: mapped(value, lambda a: a.copy(order="K")) for name, value in given.items()}
    owned = [a for _, a in arrays(given)]
    counts = [sys.getrefcount(a) for a in owned]
    outcome = call(case.target.function, given)
    try:
        # Where a training diverges, the steps before stay.
        may_change = outcome.error is None or any(text in outcome.message for text in DIVERGED)
        _unchanged(before, given, in_place(case.target) if may_change else set())
        outcome = outcome._replace(value=copied(outcome.value))
        if [sys.getrefcount(a) for a in owned] != counts:
            raise Finding("a reference to an argument is kept")
        if outcome.error is not None:
            _judge_error(case, outcome, given)
        elif case.expect == "error":
            raise Finding("a value where an error must come")
        else:
            _check_values(case, outcome, before, given)
    except Finding as finding:
        raise told(finding, case, outcome) from None
    return outcome


def told(finding: Finding, case: Case, outcome: Outcome) -> Finding:
    """The finding with its call."""
    full = Finding(f"{finding}\n  kind: {case.kind}\n  call: {case.text()}\n  came: {outcome.text()}")
    full.key = (case.target.name, case.kind, case.changed, str(finding)[:40])
    return full
