"""A forked process beside a thread that makes the same call: it ends, with the same result."""

import os
import signal
import threading
import time
import warnings
from contextlib import suppress

from .oracle import Case, Finding, Outcome, _differs, call, told

FORKS = 2
SECONDS = 30.0
"""After which a child counts as hanging."""

OUTCOMES = {1: "another result than its parent's", 2: "an error, its parent's call none", 3: "an exception"}


def _child(case: Case, expected: Outcome) -> int:
    """Exit status of a forked process that makes the call; a signal ends it where it hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork beside threads
        child = os.fork()
    if not child:
        status = 3
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            outcome = call(case.target.function, case.make())
            # polars, which reads text, cannot run in a child, and hforest says so.
            refused = outcome.error is RuntimeError and "while the threads of polars ran" in outcome.message
            status = (
                0 if refused else 2 if outcome.error else bool(_differs(outcome.value, expected.value, None))
            )
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(case: Case) -> None:
    """Raises Finding if a child that is forked beside a running call does not end with the same bits."""
    expected = call(case.target.function, case.make())
    if expected.error is not None:
        return  # judged by cases "good"
    end = threading.Event()

    def work() -> None:
        while not end.is_set():
            with suppress(Exception):
                case.target.function(**case.make())

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(FORKS):
            time.sleep(1e-3)
            if status := _child(case, expected):
                what = (
                    f"ended by signal {-status}, after {SECONDS:g} s if it hung"
                    if status < 0
                    else OUTCOMES.get(status, f"exit status {status}")
                )
                raise told(Finding(f"a child that was forked beside a running call: {what}"), case, expected)
    finally:
        end.set()
        thread.join()
