"""The search for findings in one process: properties of hypothesis, one for each function and kind of cases."""

import faulthandler
import os
import random
import signal
import sys
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from .cases import KINDS
from .known import is_known
from .oracle import MADE, Case, Finding
from .targets import Target
from .values import Setting

HANG = 60.0
"""Seconds after which a case counts as hanging."""

Report = Callable[[str], None]


def pairs(only: str = "*", kind: str = "*") -> Iterator[tuple[Target, str]]:
    """Functions and kinds of cases that are for them."""
    from fnmatch import fnmatchcase

    for k, cases in KINDS.items():
        for name, target in cases.targets.items():
            if fnmatchcase(name, only) and fnmatchcase(k, kind) and cases.applies(target):
                yield target, k


def look(
    target: Target, kind: str, seed: int, n: int, counts: Counter[str], *,
    describe: Report | None = None, judge: Callable[[Case], object] | None = None, shrink: bool = True,
    until: float = float("inf"), skip: Callable[[tuple[str, ...]], bool] = is_known,
) -> Finding | None:  # fmt: skip
    """Runs n cases; returns the first finding, shrunk, that `skip` does not skip.

    `describe` is told each call before it is made, `judge` runs a case (by default that of its kind).
    """
    made, last = judge or KINDS[kind].run, None

    @hypothesis.seed(zlib.crc32(f"{target.name} {kind} {seed}".encode()))
    @settings(
        max_examples=n, database=None, deadline=None, derandomize=False, print_blob=False,
        report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
    )  # fmt: skip
    @hypothesis.given(st.data())
    def property_(data: Any) -> None:
        nonlocal last
        if time.monotonic() > until:
            return
        case = KINDS[kind].build(Setting(data.draw, target))
        if describe is not None:
            describe(case.text())
        if judge is None:  # a forked process has no such thread, and waits for it
            faulthandler.dump_traceback_later(HANG, exit=True, file=sys.__stderr__)
        try:
            made(case)
        except Finding as finding:
            counts[f"known: {', '.join(finding.key)}" if skip(finding.key) else "findings"] += 1
            if not skip(finding.key):
                last = finding
                raise
        finally:
            faulthandler.cancel_dump_traceback_later()
        counts[f"{target.name} {kind}"] += 1

    try:
        property_()
    except Finding as finding:
        return finding
    except hypothesis.errors.Unsatisfiable:
        pass  # a kind that no arguments of the function make
    except (hypothesis.errors.Flaky, hypothesis.errors.FlakyFailure):
        counts["flaky"] += 1  # such as memory that grew once
        return last if KINDS[kind].by_chance else None
    return None


def isolated(kind: str, folder: Path) -> Callable[[Case], object]:
    """Returns a `judge` that runs each case in a forked process, so that a crash or a hang is a finding that shrinks."""

    def judge(case: Case) -> None:
        text = folder / "finding"
        text.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            faulthandler.disable()
            signal.alarm(int(HANG))
            try:
                KINDS[kind].run(case)
            except Finding as finding:
                text.write_text(str(finding))
            except BaseException:
                text.write_text(f"an error of the fuzzer itself: {traceback.format_exc()}")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found = None
        if status:
            found = Finding(
                f"the process crashed or hung: {_ending(status)}\n  kind: {kind}\n  call: {case.text()}"
            )
        elif text.exists():
            found = Finding(text.read_text(encoding="utf-8"))
        if found is not None:
            found.key = (case.target.name, kind, case.changed, str(found)[:40])
            raise found

    return judge


def _ending(status: int) -> str:
    return (
        f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit status {os.WEXITSTATUS(status)}"
    )


def rounds(
    seed: int, minutes: float, only: str, kind: str, folder: Path, report: Callable[[Finding], None],
    beat: Callable[[Counter[str]], None],
) -> Counter[str]:  # fmt: skip
    """Looks at every function and kind again and again until the time is over."""
    until = time.monotonic() + 60 * minutes
    counts: Counter[str] = Counter()
    found: set[tuple[str, ...]] = set()
    todo = list(pairs(only, kind))
    cost: dict[str, float] = {}
    number = 0
    slot = min(0.5, 20 * minutes / max(1, len(todo)))  # seconds for each, so that every pair has its turn
    while time.monotonic() < until and todo:
        number += 1
        random.Random(f"{seed} {number}").shuffle(todo)
        for target, k in todo:
            if time.monotonic() > until:
                break
            name = f"{target.name} {k}"
            n = max(2, min(40, int(slot / cost.get(name, 0.05))))
            where = f"{target.name} {k} {seed + 1000 * number} {n}"
            start, before = time.monotonic(), counts[name]
            finding = look(
                target, k, seed + 1000 * number, n, counts, until=until,
                describe=lambda text, where=where: _write(folder / "call", f"{where}\n{text}"),
                skip=lambda key: is_known(key) or key in found,
            )  # fmt: skip
            if finding is not None:
                found.add(finding.key)
                report(finding)
            cost[name] = (time.monotonic() - start) / max(1, counts[name] - before)
            beat(counts | MADE)
    return counts


def _write(path: Path, text: str) -> None:
    with suppress(OSError):
        path.write_text(text, encoding="utf-8")
