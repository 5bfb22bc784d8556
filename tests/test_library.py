"""polars in other threads than the caller's: exceptions of signal handlers, forks, places of texts."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

from hforest import tabular
from hforest.tabular import library

pytestmark = pytest.mark.libraries
polars = pytest.importorskip("polars")
has_timer = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that sends signals")
has_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


class Interrupted(Exception):
    """Raised by the handler of a test."""


def interrupted(function, seconds):
    """Returns whether the exception of a handler that runs after some seconds reaches the caller."""
    came = False

    def handler(number, frame):
        nonlocal came
        came = True
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        function()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupted:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not came, "the exception of the handler is lost"
    return False


@has_timer
def test_exceptions_of_handlers_reach_the_caller():
    table = {"text": ["a", "b", ""] * 30, "number": ["1.5", "2", "x"] * 30}
    columns = tabular.columns(table, categorical=["number"])
    begin = time.perf_counter()
    tabular.columns(table, categorical=["number"])
    seconds = time.perf_counter() - begin
    calls = [lambda: tabular.columns(table, categorical=["number"]), lambda: tabular.numbers(columns, table)]
    ends = [interrupted(calls[i % 2], seconds * (i + 1) / 200) for i in range(200)]
    assert sum(ends) > 20
    assert tabular.columns(table, categorical=["number"]).levels.tolist() == columns.levels.tolist()


@has_timer
def test_a_handler_does_not_wait_for_the_call():
    """The call ends at once, and not when the function that it waits for ends."""
    started, end = threading.Event(), threading.Event()

    def work(item):
        started.set()
        end.wait()

    begin = time.perf_counter()
    assert interrupted(lambda: library.each(work, range(3)), 0.1)
    assert time.perf_counter() - begin < 5
    assert started.is_set()
    end.set()


def test_each_keeps_the_order_and_raises():
    def half(item):
        if item == 7:
            raise ValueError("seven")
        return item / 2

    for n_threads in (1, 3):
        assert library.each(half, range(5), n_threads) == [0, 0.5, 1, 1.5, 2]
        with pytest.raises(ValueError, match="seven"):
            library.each(half, range(20), n_threads)
    assert library.each(half, []) == []


@pytest.mark.parametrize("in_thread", [False, True])
def test_errors_keep_no_column(in_thread):
    """Also without the garbage collector: no frame of an error refers to the columns of the table."""
    good, bad = np.arange(3.0), np.zeros(3, complex)
    columns, kept = tabular.columns({"good": good, "bad": good.copy()}), []
    calls = [
        lambda: tabular.columns({"good": good, "bad": bad}),
        lambda: tabular.numbers(columns, {"good": good, "bad": bad}),
        lambda: tabular.target({"good": good, "bad": bad}, "bad"),
    ]

    def check():
        for call in calls:
            before = sys.getrefcount(good), sys.getrefcount(bad)
            with pytest.raises((TypeError, ValueError), match="complex"):
                call()
            kept.append((sys.getrefcount(good), sys.getrefcount(bad)) != before)

    gc.disable()
    try:
        if in_thread:
            thread = threading.Thread(target=check)
            thread.start()
            thread.join()
        else:
            check()
    finally:
        gc.enable()
    assert kept == [False] * 3


def test_a_process_ends_after_work_that_was_left_behind():
    code = (
        "import os, signal, threading, time\n"
        "from hforest.tabular import library\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may have it ignored
        "def work(item): time.sleep(0.5); print('done', item, flush=True)\n"
        "threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "try: library.each(work, range(9))\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["interrupted", "done 0", ""]


CHILD = """
import os, sys, time
import numpy as np, polars
from hforest import tabular
table = {"text": np.array(["1,5", "2"]), "number": [1.5, 2.0]}
{before}
child = os.fork()
if not child:
    numbers = tabular.columns({"number": np.array([1.5, 2.0])})
    try:
        print(*tabular.columns(table).kinds, flush=True)
    except RuntimeError as error:
        print(str(error)[:91], flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
REFUSED = "a column of text: expected a process in which polars can run, got one that was forked while"


@has_fork
@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("", "number number"),
        ("tabular.columns(table)", REFUSED),
        ("polars.DataFrame({'a': [1], 'b': [2]}).select(polars.all() + 1); time.sleep(0.5)", REFUSED),
    ],
)
def test_a_forked_child_reads_text_or_says_why_not(before, words):
    if before.startswith("polars") and not os.path.isdir("/proc/self/task"):
        pytest.skip("threads of other code are seen on Linux only")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD.replace("{before}", before)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == words, done.stderr


CELLS = {
    "few": ["1.5", "2", "", "x", "2"],
    "text": ["red", " red", "blue", "NA", ""],
    "codes": ["001", "010", "001", "", "010"],
    "dates": ["2024-02-29", "2024-03-01", "", "2024-03-01", "no"],
    "clock": ["06:30", "25:10", "", "06:30", "-"],
    "money": ["$3", "$4", "", "$3", "4"],
    "flag": ["true", "FALSE", "", "true", "?"],
    "empty": ["", "NA", "", "?", ""],
}


@pytest.mark.parametrize("of", ["file", "frame", "mapping"])
def test_few_texts_are_read_as_many(of, tmp_path, monkeypatch):
    """Columns of few different texts, which are stored as places in these, are what all their cells are."""
    rows = [(*row, f"w{i}") for i, row in enumerate(zip(*CELLS.values(), strict=True))] * 40
    names = [*CELLS, "many"]

    def made():
        if of == "file":
            path = tmp_path / "t.csv"
            path.write_text("\n".join(map(",".join, [names, *rows])))
            return tabular.read(path)
        values = dict(zip(names, zip(*rows, strict=True), strict=True))
        return polars.DataFrame(values) if of == "frame" else values

    results, kinds = [], []
    for share in (0.0, 0.1):
        monkeypatch.setattr(library, "MAX_LEVELS", share)
        table = made()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            columns = tabular.columns(table)
            chosen = tabular.columns(table, categorical=["few", "dates"])
        if of == "file":
            kinds.append(str(table.frame.dtypes[0]))
        new = tabular.numbers(columns, table), tabular.numbers(chosen, table)
        targets = [tabular.target(table, name, task="classification") for name in ("text", "codes", "few")]
        results.append((columns, chosen, new, targets, [str(one.message) for one in said]))
    if of == "file":
        assert [kind.split("(")[0] for kind in kinds] == ["String", "Categorical"]
    for few, many in zip(*results, strict=True):
        np.testing.assert_equal(few, many)
    kinds = dict(zip(columns.names.tolist(), columns.kinds.tolist(), strict=True))
    assert kinds["text"] == kinds["codes"] == "text"
    assert kinds["empty"] == "missing"


def test_places_of_texts():
    texts = polars.Series(["b", None, "a", "b"])
    for column in (texts, texts.cast(polars.Categorical)):
        different, places, counts = library.distinct(column, always=True)
        assert different.to_list() == ["b", "a", None]
        assert places.tolist() == [0, 2, 1, 0]
        assert counts.tolist() == [2, 1, 1]
    assert library.distinct(texts)[0] is texts
