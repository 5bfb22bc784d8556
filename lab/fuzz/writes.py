"""Arguments that change during a call: in a callback, by another thread, or after samples or a forest were checked."""

import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from hypothesis import reject

import hforest
from hforest import growth, tabular, tree
from hforest.scale.rows.communicators import OneWorker

from .growing import _x_with_missing
from .oracle import ERRORS, Case, Finding, Outcome, _bytes, call, in_place, told
from .targets import SANITIZED, Target
from .trees import Path, arrays, copied
from .values import Progress, Setting, _Called

OF_ROUTES = ("hinge.backward", "hinge.backward_sparse", "hinge.adam_backward", "hinge.leaf_outputs")
"""Functions whose routes another thread must not write (docs/promises.md)."""

ACTS = 6
"""Most calls of a case, each with an act of its own."""

NUMBERS = (-1, 10**6, 2**31 - 1, np.nan, np.inf, 0, 1, -np.inf, 1e300)
VALUES = ("element", "all", "next")
FLAGS = ("read-only", "shape", "dtype", "strides", "resize")
WRITES = (*VALUES, *FLAGS)
ODD = (
    None,
    object(),
    float("nan"),
    "word",
    10**30,
    -1,
    1j,
    True,
    False,
    (),
    [],
    np.zeros(0),
    np.full(3, np.nan),
)


class Foreign(Exception):
    """What a callback raises."""


class Act(NamedTuple):
    """What is done to an argument, and when."""

    how: str
    path: Path = ()
    """Of the array that is written."""
    when: int = 0
    """In "callbacks" the number of the callback's call, 0 for all; in "threads" after how many thousandths of the
    call's lines, 0 for a thread; in "between" whether there is a call before."""
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.how} {'.'.join(map(str, self.path))}, when={self.when}, seed={self.seed}"


# ------------------------------------------------------------------------------------------ writing


def _all_arrays(value: Any) -> Iterator[tuple[Path, np.ndarray]]:
    """Every array of arguments, those of sparse matrices included."""
    yield from arrays(value)
    for name, part in value.items():
        if scipy.sparse.issparse(part):
            yield from (((name, field), getattr(part, field)) for field in ("data", "indices", "indptr"))


def _copy(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: a.copy() if scipy.sparse.issparse(a) else copied(a) for name, a in arguments.items()}


def write(a: np.ndarray, how: str, seed: int) -> None:
    """Writes an array in place, where it lets itself be written."""
    chance = random.Random(seed)
    with np.errstate(all="ignore"), suppress(ValueError, TypeError, AttributeError, OverflowError):
        number = np.array(chance.choice(NUMBERS)).astype(a.dtype)
        if how == "element" and a.size:
            a.flat[chance.randrange(a.size)] = number
        elif how == "all":
            a[...] = number
        elif how == "next":
            a += np.array(1).astype(a.dtype)
        elif how == "read-only":
            a.flags.writeable = False
        elif how in FLAGS[1:-1]:
            with warnings.catch_warnings():  # of NumPy 2.5
                warnings.simplefilter("ignore", DeprecationWarning)
                if how == "shape":
                    a.shape = chance.choice((a.shape[::-1], (1, *a.shape), (a.size,)))
                elif how == "dtype":
                    a.dtype = chance.choice(("i1", "f2", "i4", "f4", "i8", "f8", "c16"))
                else:
                    a.strides = (0,) * a.ndim
        elif how == "resize":
            a.resize((2 * len(a) + 1, *a.shape[1:]))


class Written:
    """Arguments of a call, and what they are since something wrote them last."""

    def __init__(self, given: dict[str, Any], act: Act) -> None:
        self.given, self.act = given, act
        self.found = dict(_all_arrays(given))
        self.free: set[Path] = set()
        self.raised = False
        self.look()

    def write(self, how: str = "", seed: int | None = None) -> None:
        write(self.found[self.act.path], how or self.act.how, self.act.seed if seed is None else seed)
        self.free.add(self.act.path)

    def look(self) -> None:
        """Takes the arguments as they are now."""
        self.bits = {path: _bytes(a) for path, a in self.found.items()}

    def judge(self, case: Case, outcome: Outcome) -> None:
        """Raises Finding if an outcome is not one that may come."""
        try:
            of_others = case.target.package == "scale" and outcome.message.startswith(
                ("executor: ", "comm: ")
            )
            if outcome.error not in (None, Foreign, *ERRORS) and not of_others:
                raise Finding("an error that is none of the library's")
            if self.raised and outcome.error is None:
                raise Finding("the exception of a callback is lost")
            for path, a in self.found.items():
                may = path in self.free or path[0] in in_place(case.target)
                if not may and _bytes(a) != self.bits[path]:
                    raise Finding(f"the argument {'.'.join(map(str, path))} was changed")
            if outcome.error is None and not self.act.how.startswith(("odd", "passed")):
                _possible(case, outcome.value, [self.found[path] for path in self.free])
        except Finding as finding:
            raise told(finding, case._replace(note=str(self.act)), outcome) from None


_CLASSIFY = {"alternating", "growth", "co2", "scale", "cascade"}


def _forests(value: Any) -> Iterator[tree.Forest]:
    if isinstance(value, tree.Forest):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _forests(part)


def _possible(case: Case, value: Any, written: list[np.ndarray]) -> None:
    """Raises Finding if no arguments have this result: forests are whole, and shares of classes sum to 1."""
    labels = case.arguments.get("task") != "regression" and case.arguments.get("loss") != "squared"
    if case.target.name == "co2.refine":
        labels = labels and case.arguments.get("loss") is None  # otherwise leaves have thetas
    for forest in _forests(value):
        if any(np.may_share_memory(a, b) for _, a in arrays(forest) for b in written):
            continue  # of the caller
        try:
            tree.prepare(tree.Forest(*forest))
        except ERRORS as error:
            raise Finding(f"a forest that contradicts itself: {error}") from None
        shares = forest.value
        sums = np.add.reduceat(shares, forest.class_start[:-1] if forest.class_start.size else [0], axis=1)
        if labels and case.target.package in _CLASSIFY and not np.allclose(sums, 1, atol=1e-4):
            raise Finding(f"leaves whose shares do not sum to 1: {shares.tolist()}")


# ---------------------------------------------------------------------------------------- callbacks


class _Hook:
    """A function that acts when it is called, and returns what another one returns."""

    def __init__(self, function: Callable[..., Any], written: Written, case: Case, n: list[int]) -> None:
        self.function, self.written, self.case, self.n = function, written, case, n

    def __repr__(self) -> str:
        return repr(self.function)

    def __call__(self, *arguments: Any, **words: Any) -> Any:
        act, n = self.written.act, self.n
        n[0] += 1
        when = act.when or int(act.how in ("again", "fork"))  # once: they take long
        if n[1] or when not in (0, n[0]):
            return self.function(*arguments, **words)
        n[1] = 1  # calls within the act are plain
        try:
            if act.how == "odd":
                chance = random.Random(act.seed + n[0])
                return chance.choice((*ODD, _twisted(self.function(*arguments, **words), chance)))
            self._act(arguments, words)
        finally:
            n[1] = 0
        return self.function(*arguments, **words)

    def _act(self, arguments: Any, words: Any) -> None:
        written = self.written
        if written.act.how == "again":
            with suppress(*ERRORS):
                self.case.target.function(**written.given)
        elif written.act.how == "raise":
            written.raised = True
            raise Foreign
        elif written.act.how == "fork":
            _fork()
        elif written.act.how.startswith("passed "):
            for _, a in arrays({"": arguments, "words": words}):
                write(a, written.act.how.removeprefix("passed "), written.act.seed)
            written.look()
        else:
            written.write()


def _twisted(value: Any, chance: random.Random) -> Any:
    """A result with one of its arrays written."""
    new = {"": copied(value)}
    found = list(arrays(new))
    if found:
        write(chance.choice(found)[1], chance.choice(("element", "all", "next")), chance.randrange(99))
    return new[""]


def _fork() -> None:
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(30)
            hforest.grow(np.zeros((5, 2)), np.arange(5) % 2, 2, rng=0)
            status = 0
        finally:
            os._exit(status)
    if status := os.waitpid(child, 0)[1]:
        raise AssertionError(f"a child that a callback forks ends with status {status}")


class _HookedExecutor(Executor):
    def __init__(self, executor: Executor, hook: Callable[..., Any]) -> None:
        self.executor, self.hook = executor, hook(executor.submit)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = self.hook(fn, *args, **kwargs)
        return future


class _HookedWorker(OneWorker):
    def __init__(self, hook: Callable[..., Any]) -> None:
        self.allreduce, self.allgather, self.alltoall = map(  # type: ignore[method-assign]
            hook, (super().allreduce, super().allgather, super().alltoall)
        )


def _hooked(value: Any, hook: Callable[..., Any]) -> Any:
    if isinstance(value, Executor):
        return _HookedExecutor(value, hook)
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        return type(value)(_hooked(part, hook) for part in value)
    return hook(value) if callable(value) and not isinstance(value, type) else value


def calls_back(target: Target) -> bool:
    """Whether a function calls functions or methods that it is given."""
    words = ("Callable", "Executor", "Communicator")
    return any(word in target.annotation(name) for name in target.parameters for word in words)


def _drawn(s: Setting) -> dict[str, Any]:
    """Arguments of a good call, with labels in the dtype that calls use without a copy, or not."""
    s.n_trees = max(s.n_trees, s.choice((2, 9)))
    arguments = s.arguments()
    if s.choice((True, True, False)):
        for name, a in arguments.items():
            if isinstance(a, np.ndarray) and a.dtype == np.int64 and s.target.lenient(name):
                arguments[name] = a.astype(np.int32)
    return arguments


def _case(
    s: Setting, kind: str, arguments: dict[str, Any], paths: list[Path], others: list[str], whens: tuple[int, ...],
    settings: Any = None,
) -> Case:  # fmt: skip
    """A case whose acts write the arrays of some paths, or do something else."""

    def act() -> Act:
        hows = (VALUES, VALUES, others, FLAGS) if paths and others else (VALUES if paths else others,)
        how = s.choice(s.choice(hows))
        path = s.choice(paths) if how in WRITES else ()
        return Act(how, path, s.choice(whens), s.integer(0, 999))

    if not paths and not others:
        reject()
    acts = [act() for _ in range(s.integer(1, ACTS))]
    changed = acts[0].path[0] if acts[0].path else "callback"
    note = "; ".join(map(str, acts)) + f" {settings or ''}"
    return Case(
        s.target, kind, arguments, changed, note, lambda: _copy(arguments), "either", acts=(acts, settings)
    )


def callbacks(s: Setting) -> Case:
    """Callbacks that change an argument, call the library, raise, return odd values, or fork."""
    arguments = _drawn(s)
    for name, function in (("progress", Progress()), ("checkpoint", _Called())):
        if name in arguments and not callable(arguments[name]):
            arguments[name] = function
    others = ["again", "raise", "odd", *(f"passed {how}" for how in WRITES)]
    others += ["fork"] * (hasattr(os, "fork") and not SANITIZED)
    return _case(
        s, "callbacks", arguments, [path for path, _ in _all_arrays(arguments)], others, (1, 0, 2, 3)
    )


def run_callbacks(case: Case) -> None:
    """Raises Finding if what a callback does breaks a promise."""
    for act in case.acts[0]:
        _call_back(case, act)


def _call_back(case: Case, act: Act) -> None:
    given = case.make()
    written, n = Written(given, act), [0, 0]

    def hook(function: Callable[..., Any]) -> _Hook:
        return _Hook(function, written, case, n)

    for name in case.target.parameters:
        if "Communicator" in case.target.annotation(name):
            given[name] = _HookedWorker(hook)
        else:
            given[name] = _hooked(given[name], hook)
    written.judge(case, call(case.target.function, given, warn=True))


# ------------------------------------------------------------------------------------------ threads


def has_arrays(target: Target) -> bool:
    """Whether a function takes arrays."""
    return any(
        "rray" in target.annotation(name) or "Forest" in target.annotation(name) for name in target.parameters
    )


def threads(s: Setting) -> Case:
    """A thread that writes an argument during the call."""
    arguments = _drawn(s)
    paths = [path for path, a in _all_arrays(arguments) if a.size]
    if s.target.name in OF_ROUTES:
        paths = [path for path in paths if path[0] not in ("route", "leaf")]
    return _case(s, "threads", arguments, paths, [], (*range(1, 1001, 3), *[0] * 50))


def _traced(case: Case, given: dict[str, Any], at: int, act: Callable[[], None]) -> tuple[Outcome, int]:
    """A call in which `act` runs before a line of the library: what a thread does at this moment.

    Returns the number of lines, too.
    """
    n = 0

    def line(frame: Any, event: str, argument: Any) -> Any:
        nonlocal n
        n += 1
        if n == at:
            act()
        return line

    def enter(frame: Any, event: str, argument: Any) -> Any:
        return line if "hforest" in frame.f_globals.get("__name__", "") else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        outcome = call(case.target.function, given, warn=True)
    finally:
        sys.settrace(before)
    return outcome, n


def _beside(case: Case, written: Written, chance: random.Random) -> Outcome:
    """A call beside a thread that writes an array and its first numbers in turn."""
    a, end = written.found[written.act.path], threading.Event()
    first = a.copy()

    def work() -> None:
        while not end.is_set():
            written.write(seed=chance.randrange(999))
            with suppress(ValueError, TypeError):
                a[...] = first

    thread, interval = threading.Thread(target=work), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        return call(case.target.function, written.given, warn=True)
    finally:
        end.set()
        thread.join()
        sys.setswitchinterval(interval)


def run_threads(case: Case) -> None:
    """Raises Finding if a thread that writes an argument, at any moment of a call, breaks a promise."""
    n = _traced(case, case.make(), 0, lambda: None)[1]
    for act in case.acts[0]:
        written = Written(case.make(), act)
        if act.when:
            outcome = _traced(case, written.given, 1 + act.when * n // 1000, written.write)[0]
        else:
            outcome = _beside(case, written, random.Random(act.seed))
        written.judge(case, outcome)


# ------------------------------------------------------------------------------------------ between


PREPARE = {"forest": tree.prepare, "model": tabular.prepare}
"""Functions that check these arguments once; the attributes of their results have the same names."""


def takes_checked(target: Target) -> bool:
    """Whether a function takes samples, or a prepared forest or model, that carry what was checked."""
    annotations = {name: target.annotation(name) for name in target.parameters}
    return any("Samples" in a or ("Prepared" in a and name in PREPARE) for name, a in annotations.items())


def between(s: Setting) -> Case:
    """Samples, a prepared forest or a prepared model, whose arrays or attributes change before a call, or between two."""
    arguments = _drawn(s)
    names = [name for name in arguments if "Samples" in s.target.annotation(name)]
    names += ["x"] * isinstance(arguments.get("x"), growth.Samples)
    settings: dict[str, Any] = {}
    if names:
        name, layout = names[0], s.choice(("array", "windows", "csc", "array", "csr", "windows"))
        x = _x_with_missing(s)
        if layout == "windows":
            x = s.numbers(s.n + 1, s.n_features)
            arguments |= {"windows": (np.arange(s.n), np.arange(s.n_features))}
        elif layout != "array":
            x = getattr(scipy.sparse, f"{layout}_array")(x)
        elif x.size and s.choice((True, True, False)):
            x[:, 0] = np.nan_to_num(x[:, 0])
            settings["categorical"] = [0]
        arguments[name] = x
        settings["max_bins"] = s.choice((None, 4))
    sources = {k: a for k, a in arguments.items() if k in ("windows", *PREPARE, *names[:1])}
    paths = [path for path, _ in _all_arrays(sources)]
    return _case(s, "between", arguments, paths, ["attribute"], (0, 1), settings)


def run_between(case: Case) -> None:
    """Raises Finding if samples or a forest that change after they were checked break a promise."""
    for act in case.acts[0]:
        _change_between(case, act, case.acts[1])


def _checked(case: Case, given: dict[str, Any], settings: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Arguments with samples of x and a prepared forest or model, and these."""
    words, checked = dict(given), []
    places = {"windows": words.pop("windows")} if "windows" in words else {}
    for name in case.target.parameters:
        if name in PREPARE and "Prepared" in case.target.annotation(name):
            words[name] = PREPARE[name](getattr(given[name], name, given[name]))
        elif settings and not checked and name in ("x", "z"):
            words[name] = hforest.samples(given[name], **places, **settings)
        else:
            continue
        checked.append(words[name])
    return words, checked


def _change_between(case: Case, act: Act, settings: dict[str, Any]) -> None:
    given = case.make()
    written = Written(given, act)
    try:
        words, checked = _checked(case, given, settings)
    except ERRORS:
        return  # judged by cases of growth.samples and tree.prepare
    if act.when:
        call(case.target.function, words, warn=True)
    if act.how == "attribute":
        _set_attribute(checked[0], random.Random(act.seed))
        written.look()
    else:
        written.write()
    written.judge(case, call(case.target.function, words, warn=True))


def _set_attribute(value: Any, chance: random.Random) -> None:
    """Sets a public attribute, or writes the array that it is."""
    name = chance.choice([name for name in dir(value) if name[0] != "_"])
    old = getattr(value, name)
    if isinstance(old, np.ndarray) and chance.random() < 0.5:
        write(old, chance.choice(WRITES), chance.randrange(999))
        return
    new = chance.choice(
        ((10**6, 10**6), (1, 1), np.ones(1, bool), np.ones(40, bool), 10**6, None, np.float32, True)
    )
    with suppress(AttributeError, TypeError, ValueError):
        setattr(value, name, new)
