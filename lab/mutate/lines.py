"""A plugin of pytest: writes which lines of the package each test ran, to the file that HFOREST_LINES names.

Lines run while tests are collected, or in a fixture that several tests share, are those of every test of the file.
Lines that a test runs in another process are not seen.
"""

import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

PACKAGE = os.path.join(os.getcwd(), "hforest") + os.sep
Line = tuple[str, int]


class Recorder:
    """Records lines in sets; a function whose lines have all been seen runs on without being traced."""

    def __init__(self) -> None:
        self.unseen: dict[int, set[int]] = {}
        self.codes: dict[int, tuple[CodeType, str, set[int]]] = {}  # with the code, whose address is the key

    def enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or code.co_name == "<module>":
            return None
        key = id(code)
        if key not in self.codes:
            file = "hforest/" + Path(code.co_filename).relative_to(PACKAGE).as_posix()
            self.codes[key] = code, file, {line for *_, line in code.co_lines() if line}
        if key not in self.unseen:
            self.unseen[key] = self.codes[key][2] - {code.co_firstlineno}
        return self.step if self.unseen[key] else None

    def step(self, frame: FrameType, event: str, arg: Any) -> Any:
        unseen = self.unseen.get(id(frame.f_code))  # none: it was entered before the last call of take
        if unseen is None:
            return None
        if event == "line":
            unseen.discard(frame.f_lineno)
        return self.step if unseen else None

    def take(self) -> set[Line]:
        """Returns the lines run since the last call."""
        lines = set()
        for key, unseen in self.unseen.items():
            _, file, every = self.codes[key]
            lines.update((file, line) for line in every - unseen)
        self.unseen = {}
        return lines


recorder = Recorder()
shared: set[Line] = set()
lines: dict[str, set[Line]] = defaultdict(set)
seconds: dict[str, float] = defaultdict(float)
failed: list[str] = []


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    threading.settrace(recorder.enter)
    sys.settrace(recorder.enter)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    if fixturedef.scope == "function":
        return (yield)
    lines[request._pyfuncitem.nodeid] |= recorder.take()
    try:
        return (yield)
    finally:
        shared.update(recorder.take())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    shared.update(recorder.take())
    sys.settrace(recorder.enter)  # a test may have set another
    try:
        return (yield)
    finally:
        lines[item.nodeid] |= recorder.take()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seconds[report.nodeid] += report.duration
    if report.failed:
        failed.append(report.nodeid)


def pytest_sessionfinish() -> None:
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]
    tests = [test for test in lines if test not in failed]
    files: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, test in enumerate(tests):
        for file, line in sorted(lines[test] | shared):
            files[file][line].append(number)
    report = {"tests": [[test, round(seconds[test], 3)] for test in tests], "failed": failed, "lines": files}
    Path(os.environ["HFOREST_LINES"]).write_text(json.dumps(report), encoding="utf-8")
