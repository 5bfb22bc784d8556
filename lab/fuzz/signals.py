"""Signals whose handler raises at a random time in a call: its exception comes, or the right result."""

import contextvars
import random
import signal
import sys
import time
from typing import Any
from unittest import mock

from hforest.core import check

from .bad import FILES
from .damaged import _members
from .oracle import Case, Finding, Outcome, _differs, _states, _unchanged, call, in_place, told
from .trees import copied

SHOTS = 6
"""Signals for a case."""


class Interrupted(KeyboardInterrupt):
    """What the handler raises."""


class Shot:
    """A call in which a signal comes after some seconds; `raised`: whether its handler did."""

    def __init__(self, case: Case, seconds: float) -> None:
        self.raised, self.armed, self.dropped = False, False, False
        self.given = case.make()
        with mock.patch.object(sys, "unraisablehook", self._unraisable):
            before = signal.signal(signal.SIGALRM, self._handler)
            try:
                context = contextvars.copy_context()
                self.outcome = context.run(call, lambda **given: self._call(case, given, seconds), self.given)
                self.checked = context.run(check.values_checked)
            finally:
                signal.signal(signal.SIGALRM, before)

    def _call(self, case: Case, given: dict[str, Any], seconds: float) -> Any:
        try:
            self.armed = True
            signal.setitimer(signal.ITIMER_REAL, max(1e-6, seconds))
            return case.target.function(**given)
        except Interrupted:
            return Interrupted
        finally:
            self.armed = False  # a signal on its way raises nothing from here on
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _handler(self, number: int, frame: Any) -> None:
        if self.armed:
            self.armed, self.raised = False, True
            raise Interrupted

    def _unraisable(self, what: Any) -> None:
        # Python drops what is raised in its own callbacks; compiled functions of hforest may not.
        self.dropped |= not str(what.object).startswith("hforest")


def _judge(case: Case, shot: Shot, before: dict[str, Any], expected: tuple[Outcome, Any]) -> None:
    may = in_place(case.target)
    (plain, states), came = expected, shot.outcome
    if came.error is not None:
        raise Finding(f"another error than that of the handler: {came.text()}")
    if shot.raised and came.value is not Interrupted and not shot.dropped:
        raise Finding("the exception of the handler is lost")
    if not shot.checked:
        raise Finding("the checks stay off")
    _unchanged(before, shot.given, may)
    ends = [(plain.value, states)]
    if came.value is Interrupted:
        if case.target.package != "optim":
            return  # what is written to may be partly written
        ends = [(Interrupted, states), (Interrupted, _states(before, case.target))]
    texts = [_differs((came.value, _states(shot.given, case.target)), end, None) for end in ends]
    if all(texts):
        raise Finding(f"another result than without a signal: {texts[0]}")


def _written(case: Case, given: dict[str, Any]) -> Any:
    # Arrays of the file that the call saves.
    saves = [given[name] for name in FILES & set(given) if case.target.last.startswith("save")]
    return [_members(path.read_bytes()) for path in saves]


def run(case: Case) -> None:
    """Raises Finding if a call that is interrupted at random times neither ends right nor raises what the handler did."""
    given = case.make()
    outcome = call(case.target.function, given)
    if outcome.error is not None:
        return  # judged by cases "good"
    file, expected = _written(case, given), (copied(outcome), copied(_states(given, case.target)))
    begin = time.perf_counter()
    call(case.target.function, case.make())
    seconds = time.perf_counter() - begin
    try:
        for _ in range(SHOTS):
            shot = Shot(case, 1.2 * seconds * random.random())
            _judge(case, shot, case.make(), expected)
            if text := _differs(_written(case, shot.given), file, None):
                raise Finding(f"a file that is not whole: {text}")
        outcome = call(case.target.function, case.make())
        if text := _differs(outcome, expected[0], None):
            raise Finding(f"another result after interrupts: {text}")
    except Finding as finding:
        raise told(finding, case, outcome) from None
