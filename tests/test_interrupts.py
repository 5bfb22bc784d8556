"""Ctrl-C: long calls soon end with KeyboardInterrupt, and the library works afterwards."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import assert_same_bits

import hforest
from hforest import _interrupts, growth, hinge, optim, project, tree
from hforest.core import check, dispatch

# The promise is one second; machines that run tests have other work.
MOST_SECONDS = 3.0
ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that sends signals")


@pytest.fixture
def interrupts(script):
    return script("interrupts")


@pytest.fixture
def two_threads():
    before = hforest.get_num_threads()
    hforest.set_num_threads(2)
    yield
    hforest.set_num_threads(before)


def soon_interrupted(interrupts, call):
    seconds = interrupts.latency(call, 0.25)
    assert seconds is not None, "the call ended before the signal came"
    assert seconds < MOST_SECONDS


@contextlib.contextmanager
def alarms(handler):
    """Handles SIGALRM inside the block, and stops the timer at its end.

    Nothing is collected meanwhile: an exception in a callback of the collector, such as that of hypothesis, would
    not reach the block.
    """
    before = signal.signal(signal.SIGALRM, handler)
    gc.disable()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()


def columns(n, n_features):
    return np.random.default_rng(0).random((n, n_features), dtype=np.float32)


def encode(x):
    """Returns the bins of new samples."""
    return hforest.samples(x).bins()


def some_results():
    x = np.random.default_rng(0).random((200, 5)).astype(np.float32)
    forest = hforest.grow(x, (2 * x[:, 0]).astype(int), 3, rng=0)
    t, f, w = hinge.init(20, 4, 5, rng=0)
    return tree.predict(forest, x).tobytes() + hinge.forward(x, t, f, w).tobytes()


NAMES = [
    "samples, bins", "growth.grow, all columns", "grow, entropy", "grow, regression", "grow, many classes",
    "grow, extra trees", "grow, projections", "grow, projections, float64", "co2.grow", "co2.grow, oc1",
    "co2.fit_stump", "co2.fit_oc1", "co2.refine", "tree.predict", "tree.predict, projections", "tree.apply", "tree.permutation_importance",
    "tree.shap_values, cover", "tree.shap_values, background",
    "hinge.forward", "hinge.forward, trees apart", "hinge.forward, ferns", "hinge.traverse", "hinge.backward",
    "hinge.forward, projections", "hinge.backward, projections",
    "neural.forward", "neural.backward", "neural.update_leaves", "project.project",
    "split.best_split", "cascade.grow",
]  # fmt: skip


def test_every_call_of_the_table_is_tested(interrupts):
    assert list(interrupts.CALLS) == NAMES


# Calls with little preparation: growth, many classes, a loop over trees and one over samples.
QUICK = {"samples, bins", "grow, entropy", "grow, many classes", "neural.backward"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in NAMES]
)
def test_a_long_call_is_interrupted(name, interrupts, two_threads):
    before = some_results()
    soon_interrupted(interrupts, interrupts.CALLS[name](True))
    assert some_results() == before


def test_a_node_with_many_random_projections_is_interrupted(interrupts, two_threads):
    """One node and one thread: the remaining projections are not computed."""
    x = np.random.default_rng(0).normal(size=(100_000, 4)).astype(np.float32)
    settings = {"projections": project.sparse_distribution(4), "n_projections": 20_000, "splitter": "random"}
    soon_interrupted(interrupts, lambda: hforest.grow(x, x[:, 0] > 0, 1, max_depth=1, rng=0, **settings))


class _Interrupted(Exception):
    """Raised by a signal handler of a test."""


@pytest.mark.parametrize("block", [hforest.unchecked, lambda: hforest.using("reference")])
def test_a_block_that_is_interrupted_gives_its_setting_back(block):
    """Also while the exception is referenced, as interactive Python does with the last one."""
    rng, kept, came = np.random.default_rng(0), [], False

    def handler(number, frame):
        nonlocal came
        came = True
        raise _Interrupted  # Python drops it inside of a callback, such as one of a garbage collection

    def blocks():
        # A function, because in Python 3.13 no `except` around a loop covers the loop's own jump back.
        while not came:
            with block():
                pass

    with alarms(handler):
        for seconds in rng.uniform(1e-6, 1e-4, 3000):
            came = False
            try:
                signal.setitimer(signal.ITIMER_REAL, seconds)
                blocks()
            except _Interrupted as error:
                kept = [error]
            assert (check.values_checked(), dispatch.is_reference()) == (True, False)
        assert kept


@pytest.mark.parametrize("kind", ["tree", "fern"])
@pytest.mark.parametrize("margin", ["column", "projection"])
def test_windows_are_interrupted_a_thousand_times(kind, margin, two_threads):
    """Signals come at random times in short calls: most arrive in Python or in the preparation of a call."""
    rng = np.random.default_rng(0)
    x = rng.random((2, 3, 9, 9), dtype=np.float32)
    words = {"kind": kind, "margin": margin}
    parameters = hinge.init(5, 4, 27, outputs=3, **words, rng=0)
    words["windows"] = hinge.Windows(3)

    def call():
        y, route = hinge.forward_with_route(x, *parameters, **words)
        grads = hinge.backward(np.ones_like(y), route, x, *parameters, **words)
        return y, *(a for a in grads if a is not None)

    def handler(number, frame):
        raise _Interrupted

    expected, caught = call(), 0
    start = time.perf_counter()
    for _ in range(50):
        call()
    seconds = (time.perf_counter() - start) / 50
    with alarms(handler):
        while caught < 1000:
            try:
                signal.setitimer(signal.ITIMER_REAL, max(1e-6, rng.random() * seconds))
                found = call()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except _Interrupted:
                caught += 1
            else:
                assert_same_bits(found, expected)
    assert_same_bits(call(), expected)


_EACH_PROPERTY = """
import numpy as np, sys
from hforest import hinge
from hforest.core.windows import Geometry
x = np.random.default_rng(0).random((2, 3, 9, 9), dtype=np.float32)
words = {"margin": sys.argv[1]}
parameters = hinge.init(4, 3, 27, outputs=5, **words, rng=0)
words["windows"] = hinge.Windows(3)
n_reads = last = 0
def counted(f):
    def read(self):
        global n_reads
        n_reads += 1
        if n_reads == last:
            raise KeyboardInterrupt
        return f(self)
    return property(read)
expected = hinge.forward(x, *parameters, **words)
Geometry.n_positions, Geometry.n_columns = (counted(p.fget) for p in (Geometry.n_positions, Geometry.n_columns))
while n_reads >= last:
    n_reads, last = 0, last + 1
    try:
        y = hinge.forward(x, *parameters, **words)
    except KeyboardInterrupt:
        continue
    assert n_reads < last and np.array_equal(y, expected), last
print("interrupted", last - 1)
"""


@pytest.mark.parametrize("margin", ["column", "projection"])
def test_an_exception_in_the_preparation_of_windows_is_raised(margin):
    """A Python property may run a signal handler wherever compiled code reads it."""
    done = subprocess.run(
        [sys.executable, "-c", _EACH_PROPERTY, margin], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert int(done.stdout.split()[1]) >= 2


_DROPPED = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[:], sys.orig_argv[:] = {argv}
import hforest
hforest._interrupts.imported()
class Dropped:
    def __del__(self):
        raise KeyboardInterrupt
try:
    Dropped()
    time.sleep(1)
    print("lost")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "printed"),
    [((["-m"], ["python", "-m", "hforest"]), "interrupted"), ((["-m"], ["python", "-m", "other"]), "lost")],
)
def test_the_command_keeps_an_interrupt_that_python_drops(argv, printed):
    """The import system drops it if Ctrl-C arrives in one of its callbacks; a library must not change hooks."""
    command = [sys.executable, "-c", _DROPPED.format(argv=argv)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.stdout.strip() == printed
    assert ("Exception ignored" in done.stderr) == (printed == "lost")


_SWALLOWED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            try:
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(1000):
                    pass
            except KeyboardInterrupt:
                pass  # as compiled code that clears exceptions
            return None
sys.meta_path.insert(0, Finder())
sys.argv[:], sys.orig_argv[:] = {argv}
import hforest
print("lost")
"""


@pytest.mark.parametrize(
    ("argv", "status"),
    [((["-m"], ["python", "-m", "hforest"]), -signal.SIGINT), ((["other"], ["python"]), 0)],
)
def test_an_interrupt_that_an_import_drops_ends_the_command(argv, status):
    command = [sys.executable, "-c", _SWALLOWED.format(argv=argv)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert (done.returncode, done.stdout.strip()) == (status, "lost" if not status else "")


def test_the_command_raises_interrupts_once_it_runs(monkeypatch):
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        _interrupts.imported()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("draw", "n"), [(growth.bootstrap_counts, 10_000_000), (growth.poisson_counts, 60_000_000)]
)
def test_draws_of_a_single_tree_are_interrupted(draw, n):
    start = time.process_time()
    draw(n, 1, rng=0)
    whole = time.process_time() - start
    before = signal.signal(signal.SIGPROF, signal.default_int_handler)
    try:
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, 0.2 * whole)
        with pytest.raises(KeyboardInterrupt):
            draw(n, 1, rng=0)
        assert time.process_time() - start < 0.8 * whole
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def test_more_draws_than_samples_are_interrupted(interrupts):
    soon_interrupted(interrupts, lambda: growth.bootstrap_counts(6, 1, n_draws=10**9, rng=0))
    weight = np.arange(6.0)
    soon_interrupted(
        interrupts, lambda: growth.bootstrap_counts(6, 1, n_draws=10**9, sample_weight=weight, rng=0)
    )


def test_the_command_leaves_other_exceptions_to_the_hook_before(monkeypatch):
    dropped = []
    monkeypatch.setattr(_interrupts, "_before", dropped.append)
    other = SimpleNamespace(exc_type=ValueError)
    _interrupts._again(other)
    assert dropped == [other]


def test_a_handler_that_returns_changes_nothing(interrupts, two_threads):
    # A signal within the handler may come in its first call of a package, which imports the package's backend.
    x, inside, results = columns(300_000, 20), [], some_results()
    expected = encode(x)

    def handler(number, frame):
        # Handlers may call the library, too.
        inside.append(some_results())

    with alarms(handler):
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        found = encode(x)
    assert inside
    assert set(inside) == {results}
    assert_same_bits(found, expected)


def test_another_exception_of_a_handler_passes(two_threads):
    x = columns(1_000_000, 40)

    def handler(number, frame):
        raise OSError("from the handler")

    with alarms(handler), pytest.raises(OSError, match="from the handler"):
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        encode(x)


@pytest.mark.slow
def test_a_step_in_place_is_finished(interrupts):
    """Adam moves all parameters or none."""
    param, grad = np.zeros(40_000_000, np.float32), np.ones(40_000_000, np.float32)
    m, v = np.zeros_like(param), np.zeros_like(param)
    interrupts.latency(lambda: optim.adam(param, grad, m, v, 1, 0.5), 0.15)
    assert param[0] in (0, -0.5)
    assert (param == param[0]).all()


def test_calls_of_another_thread_go_on(two_threads):
    """Python runs signal handlers only in its main thread, which may be waiting."""
    x, done = columns(200_000, 20), []
    worker = threading.Thread(target=lambda: done.append(encode(x)))
    with alarms(signal.default_int_handler), pytest.raises(KeyboardInterrupt):
        worker.start()
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        time.sleep(0.5)
    worker.join()
    assert len(done) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, where another test has imported it
def test_a_child_of_a_thread_is_interrupted(interrupts):
    """The thread that forks is the child's main thread."""
    x, status = columns(1_000_000, 40), []

    def fork():
        child = os.fork()
        if child == 0:
            seconds = interrupts.latency(lambda: encode(x), 0.3)
            os._exit(0 if seconds is not None and seconds < MOST_SECONDS else 1)
        status.append(os.waitpid(child, 0)[1])

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    assert status == [0]
