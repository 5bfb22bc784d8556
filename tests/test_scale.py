"""Forests that grow on workers: bit-identical to one call, and errors of workers that end."""

import functools
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scale_workers as workers
from conftest import assert_same_bits

import hforest
from hforest import co2, growth, project, scale
from hforest.growth import encoding
from hforest.scale.trees import driver, worker

N_TREES = 7


def samples(dtype=np.float64):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).astype(dtype)
    x[:, 3] = rng.integers(0, 5, 60)
    return x, (x[:, 0] + x[:, 1] > 0).astype(np.int32)


def processes(kind="spawn", n=2):
    """Two processes of one thread each."""
    return ProcessPoolExecutor(
        n, mp_context=multiprocessing.get_context(kind), initializer=hforest.set_num_threads, initargs=(1,)
    )


class AtOnce(Executor):
    """An executor that runs each task at once, in this process."""

    def __init__(self):
        self.carried = []

    def submit(self, fn, /, *args):
        self.carried.append(args[1] is not None)
        future = Future()
        try:
            future.set_result(fn(*args))
        except BaseException as error:
            future.set_exception(error)
        return future


BINS = {"max_bins": 8, "categorical": [3]}
# Name: (function, arguments of hforest.samples).
GROWN = {
    "best": (hforest.grow, {}),
    "8 bins and categories": (functools.partial(hforest.grow, max_depth=3), BINS),
    "random": (functools.partial(hforest.grow, splitter="random", max_features=2), {"max_bins": 16}),
    "random, counts": (
        functools.partial(
            hforest.grow,
            splitter="random",
            max_features=1,
            bootstrap=growth.bootstrap_counts(60, N_TREES, rng=9),
        ),
        {},
    ),
    "sparse": (
        functools.partial(hforest.grow, projections=project.sparse_distribution(4), n_projections=3),
        {},
    ),
    "co2": (functools.partial(co2.grow, max_depth=2, max_rounds=3), {}),
}


@pytest.fixture(scope="module")
def two_processes():
    with processes() as executor:
        yield executor


# ------------------------------------------------------------------------------------- equality


@pytest.mark.parametrize("name", list(GROWN))
def test_processes_grow_the_forest_of_one_call(name, dtype, two_processes):
    grow, of_samples = GROWN[name]
    x, y = samples(dtype)
    x = hforest.samples(x, **of_samples) if of_samples else x
    want = grow(x, y, N_TREES, rng=3)
    assert_same_bits(scale.grow(two_processes, x, y, N_TREES, grow=grow, rng=3), want)


@pytest.mark.parametrize("n_tasks", [None, 1, 2, 3, 100])
@pytest.mark.parametrize("n_workers", [1, 2, 5])
def test_the_number_of_workers_and_tasks_changes_nothing(n_workers, n_tasks):
    x, y = samples()
    with ThreadPoolExecutor(n_workers) as executor:
        got = scale.grow(executor, x, y, N_TREES, n_tasks=n_tasks, rng=3)
    assert_same_bits(got, hforest.grow(x, y, N_TREES, rng=3))
    assert worker._held == {}  # no range is left in this process


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_forked_processes():
    x, y = samples()
    before = hforest.grow(x, y, N_TREES, rng=3)
    with processes("fork") as executor:
        assert_same_bits(scale.grow(executor, x, y, N_TREES, rng=3), before)


def test_missing_values_and_targets(two_processes):
    x, y = samples()
    x[::7, :2] = np.nan
    grow = functools.partial(hforest.grow, task="regression", min_samples_leaf=2)
    want = grow(x, y * 0.3, N_TREES, rng=1)
    assert_same_bits(scale.grow(two_processes, x, y * 0.3, N_TREES, grow=grow, rng=1), want)


def test_samples_windows_lists_and_files(two_processes, tmp_path):
    x, y = samples()
    mapped = np.memmap(tmp_path / "x", x.dtype, "w+", shape=x.shape)
    mapped[:] = x
    windows = hforest.samples(x, windows=(np.arange(60) * 4, np.arange(3)))
    for given in (hforest.samples(x), x.tolist(), np.asfortranarray(x), mapped, windows):
        want = hforest.grow(windows if given is windows else x, y, N_TREES, rng=3)
        assert_same_bits(scale.grow(two_processes, given, y.tolist(), N_TREES, rng=3), want)


def test_generators_and_ranges():
    x, y = samples()
    a, b = np.random.default_rng(5), np.random.default_rng(5)
    for first in (0, 4):
        want = hforest.grow(x, y, 3, first_tree=first, rng=a)
        assert_same_bits(scale.grow(AtOnce(), x, y, 3, first_tree=first, rng=b), want)
    assert a.bit_generator.state == b.bit_generator.state
    forests = [scale.grow(AtOnce(), x, y, 3) for _ in range(2)]
    assert any(not np.array_equal(one, other) for one, other in zip(*forests, strict=True))  # seeds are drawn


# ---------------------------------------------------------------------------------- what is shipped


def test_samples_are_shipped_once_a_worker(tmp_path):
    x, y = samples()
    with processes() as executor:
        for _ in range(2):
            counted = workers.Counted(x, str(tmp_path))
            got = scale.grow(executor, counted, y, 20, grow=workers.grow_counted, n_tasks=20, rng=3)
    assert_same_bits(got, hforest.grow(x, y, 20, rng=3))
    # The second call sends them again. A worker may get them twice if the other one is late.
    assert 2 <= len(workers.notes(tmp_path)) <= 6
    assert len(set(workers.notes(tmp_path))) <= 2


def test_one_task_carries_the_samples_of_one_worker():
    x, y = samples()
    executor = AtOnce()
    scale.grow(executor, x, y, 12, n_tasks=12, rng=3)
    assert sum(executor.carried) == 1
    assert (
        len(executor.carried) == 12 + 12
    )  # each was once submitted without samples, which the worker lacked


def test_samples_are_shipped_without_their_bins(monkeypatch):
    """A worker makes the bins once, even one with several threads."""
    x, y = samples()
    calls, encode, given = [], encoding.encode, hforest.samples(x, max_bins=8, categorical=[3])
    monkeypatch.setattr(encoding, "encode", lambda *args: calls.append(1) or encode(*args))
    given.bins()
    shipped = pickle.loads(pickle.dumps(given))
    assert (shipped.max_bins, shipped.categorical.tolist(), shipped._made) == (
        8,
        [False, False, False, True],
        {},
    )
    for n_threads, held in ((1, given), (1, shipped), (3, x)):
        with ThreadPoolExecutor(n_threads) as executor:
            scale.grow(executor, held, y, 12, n_tasks=12, rng=3)
    assert len(calls) == 3


def test_calls_of_two_threads_share_an_executor():
    x, y = samples()
    want = [hforest.grow(x, y, 12, rng=seed) for seed in range(3)]
    with ThreadPoolExecutor(2) as executor, ThreadPoolExecutor(3) as callers:
        calls = [callers.submit(scale.grow, executor, x, y, 12, n_tasks=6, rng=seed) for seed in range(3)]
        for call, forest in zip(calls, want, strict=True):
            assert_same_bits(call.result(timeout=60), forest)


# ------------------------------------------------------------------------------------------ progress


def test_progress_counts_leading_trees():
    x, y = samples()
    seen = []
    with ThreadPoolExecutor(3) as executor:
        scale.grow(executor, x, y, 9, n_tasks=9, progress=lambda *a: seen.append(a), rng=3)
    assert [total for _, total in seen] == [9] * len(seen)
    done = [done for done, _ in seen]
    assert done == sorted(set(done))
    assert done[-1] == 9


@pytest.mark.parametrize("stop", [1, 4])
def test_false_ends_the_growth(stop):
    x, y = samples()
    seen = []

    def progress(done, total):
        seen.append(done)
        return done < stop

    with ThreadPoolExecutor(1) as executor:
        slowly = functools.partial(workers.grow_slowly, seconds=0.05)
        forest = scale.grow(executor, x, y, 9, grow=slowly, n_tasks=9, progress=progress, rng=3)
    assert seen[-1] == len(forest.tree_start) - 1 < 9
    assert_same_bits(forest, hforest.grow(x, y, seen[-1], rng=3))


def test_an_interrupt_before_the_first_result_is_raised(monkeypatch):
    class Results(list):
        def __bool__(self):  # as a signal handler that raises while the loop begins
            raise KeyboardInterrupt

    monkeypatch.setattr(driver, "sorted", Results, raising=False)
    x, y = samples()
    with ThreadPoolExecutor(1) as executor, pytest.raises(KeyboardInterrupt):
        scale.grow(executor, x, y, 2, rng=3)


def test_an_interrupt_cancels_what_waits():
    x, y = samples()

    def interrupt(done, total):
        raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as executor:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            scale.grow(executor, x, y, 60, grow=workers.grow_slowly, n_tasks=60, progress=interrupt, rng=3)
    assert time.monotonic() - start < 6  # 12 s if all ranges grew
    assert worker._held == {}


# -------------------------------------------------------------------------------------------- faults


def test_a_worker_that_ends_is_an_error_that_names_the_trees():
    x, y = samples()
    before = set(multiprocessing.active_children())
    start = time.monotonic()
    with processes() as executor, pytest.raises(RuntimeError) as caught:
        scale.grow(executor, x, y, 10, grow=workers.end_process, n_tasks=5, rng=3)
    assert time.monotonic() - start < 30
    message = str(caught.value)
    assert message.startswith("executor: expected workers that grow trees ")
    assert "got BrokenProcessPool: " in message
    assert message.endswith("start new workers, and call again")
    assert set(multiprocessing.active_children()) == before  # nothing is left


def test_failed_ranges_are_grown_again(tmp_path):
    x, y = samples()
    grow = functools.partial(workers.fail_once, folder=str(tmp_path))
    with ThreadPoolExecutor(2) as executor:
        forest = scale.grow(executor, x, y, 8, grow=grow, n_tasks=4, rng=3)
    assert len(workers.notes(tmp_path)) >= 1
    assert_same_bits(forest, hforest.grow(x, y, 8, rng=3))


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_range_that_fails_too_often(retries):
    x, y = samples()
    executor = AtOnce()
    message = r"^executor: expected workers that grow trees 0 to 7, got OSError: no space left on device; check that "
    with pytest.raises(RuntimeError, match=message) as caught:
        scale.grow(executor, x, y, 8, grow=workers.fail, n_tasks=1, retries=retries)
    assert isinstance(caught.value.__cause__, OSError)
    assert len(executor.carried) == 2 + 2 * retries - retries  # samples are kept if a range fails


@pytest.mark.parametrize("error", [TypeError, ValueError, IndexError])
def test_errors_of_arguments_come_through(error, two_processes):
    x, y = samples()
    with pytest.raises(error, match="^no space left on device$"):
        scale.grow(two_processes, x, y, 8, grow=functools.partial(workers.fail, error=error), retries=9)
    with pytest.raises(ValueError, match=r"^x: expected finite numbers, or NaN"):
        scale.grow(two_processes, np.full_like(x, np.inf), y, 4)
    with pytest.raises(IndexError, match=r"^y: "):
        scale.grow(two_processes, x, y - 1, 4)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_worker_that_exits_does_not_end_the_program(error):
    x, y = samples()

    def grow(x, y, n_trees, *, first_tree, rng):
        raise error(3)

    message = rf"^executor: expected workers that grow trees 0 to 7, got {error.__name__}: 3; check that "
    with ThreadPoolExecutor(2) as executor, pytest.raises(RuntimeError, match=message):
        scale.grow(executor, x, y, 8, grow=grow, n_tasks=1)


@pytest.mark.parametrize("returned", [None, 3, "its answer"])
def test_an_executor_without_futures(returned):
    class Executor:
        def submit(self, function, *args):
            return returned

    x, y = samples()
    with pytest.raises(
        TypeError, match=r"^executor: expected a method submit that returns a concurrent.futures.Future, got "
    ):
        scale.grow(Executor(), x, y, 8)


def test_functions_that_return_other_trees():
    x, y = samples()
    for grow, error, message in (
        (workers.fewer_trees, ValueError, "n_trees = 4 trees, got 3; pass a function such as hforest.grow$"),
        (workers.no_forest, TypeError, "a hforest.tree.Forest, got a int; "),
    ):
        with pytest.raises(error, match=f"^grow: expected a function that returns {message}"):
            scale.grow(AtOnce(), x, y, 8, grow=grow, n_tasks=2)


def test_an_executor_that_is_shut_down():
    x, y = samples()
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(RuntimeError, match=r"trees 0 to 0, got RuntimeError: cannot schedule new futures"):
        scale.grow(executor, x, y, 8, n_tasks=8)


def bound(**settings):
    """Returns hforest.grow with settings."""
    return functools.partial(hforest.grow, **settings)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"executor": None}, TypeError, "executor: expected an object with the method submit, got NoneType; pass "),
        ({"grow": 3}, TypeError, "grow: expected a function, got int; pass hforest.grow, or functools.partial("),
        ({"grow": lambda x, y: 0}, TypeError, "grow: expected a function that accepts (x, y, n_trees=..., first_tree=..., rng=...), got "),
        *(({"grow": bound(**{name: 1})}, TypeError, f"grow: expected a function that leaves {name} to its caller, got ")
          for name in ("n_trees", "first_tree", "progress", "rng")),
        ({"grow": bound(q=1)}, TypeError, "grow: expected a function that accepts (x, y, n_trees=..., first_tree=..., rng=...), got one that does not (got an unexpected keyword argument 'q'); "),
        ({"grow": bound(bootstrap=np.ones((3, 60), int))}, ValueError, "bootstrap: expected in-bag counts of n_trees = 4 trees, got 3; "),
        ({"n_trees": 0}, ValueError, "n_trees: expected 1 to 1048576, got 0; "),
        ({"n_tasks": 0}, ValueError, "n_tasks: expected at least 1, got 0; "),
        ({"retries": -1}, ValueError, "retries: expected at least 0, got -1; "),
        ({"first_tree": 2**20}, ValueError, "first_tree: expected first_tree + n_trees <= 1048576, got "),
        ({"progress": 3}, TypeError, "progress: expected None, True or a function, got int; "),
        ({"rng": "a"}, TypeError, "rng: expected None, an int or a numpy.random.Generator, got str; "),
        ({"grow": bound(max_depth=-1)}, ValueError, "max_depth: expected "),
    ],
)  # fmt: skip
def test_bad_arguments(change, error, message):
    x, y = samples()
    given = {"executor": AtOnce(), "x": x, "y": y, "n_trees": 4} | change
    with pytest.raises(error) as caught:
        scale.grow(**given)
    assert str(caught.value).startswith(message)


# ------------------------------------------------------------------------------------------- engines


def check_four_kinds(executor):
    x, y = samples()
    for name in ("best", "8 bins and categories", "sparse", "co2"):
        grow, of_samples = GROWN[name]
        given = hforest.samples(x, **of_samples)
        assert_same_bits(
            scale.grow(executor, given, y, N_TREES, grow=grow, rng=3), grow(given, y, N_TREES, rng=3)
        )


def test_loky():
    loky = pytest.importorskip("loky", reason="needs loky")
    executor = loky.ProcessPoolExecutor(2, initializer=hforest.set_num_threads, initargs=(1,))
    try:
        check_four_kinds(executor)
        start = time.monotonic()
        x, y = samples()
        with pytest.raises(
            RuntimeError, match="executor: expected workers that grow trees .*TerminatedWorkerError"
        ):
            scale.grow(executor, x, y, 10, grow=workers.end_process, n_tasks=5, rng=3)
        assert time.monotonic() - start < 30
    finally:
        executor.shutdown(kill_workers=True)


@pytest.fixture(scope="module")
def dask_executor():
    """Two processes of one thread each, which are started again when they end."""
    distributed = pytest.importorskip("distributed", reason="needs dask[distributed]")
    settings = {"dashboard_address": ":0", "memory_limit": None, "silence_logs": 50}
    with (
        distributed.LocalCluster(2, threads_per_worker=1, processes=True, **settings) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        yield executor


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_dask(dask_executor, tmp_path):
    check_four_kinds(dask_executor)
    # The scheduler moves the tasks of a worker that has ended to another worker.
    x, y = samples()
    grow = functools.partial(workers.end_process_once, folder=str(tmp_path))
    start = time.monotonic()
    forest = scale.grow(dask_executor, x, y, 8, grow=grow, n_tasks=8, rng=3)
    assert time.monotonic() - start < 30
    assert len(workers.notes(tmp_path)) >= 1
    assert_same_bits(forest, hforest.grow(x, y, 8, rng=3))


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_dask_takes_samples_of_many_bytes(dask_executor):
    x = np.random.default_rng(0).normal(size=(200_000, 10))  # Dask warns of tasks of more than 10 MB
    y = x[:, 0] > 0
    grow = bound(max_depth=2, projections=project.probe_distribution(10, 0.5), n_projections=1)
    got = scale.grow(dask_executor, x, y, 4, grow=grow, rng=3)
    assert_same_bits(got, grow(x, y, 4, rng=3))


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_dask_gives_up_a_task_that_ends_its_workers(dask_executor):
    x, y = samples()
    start = time.monotonic()
    with pytest.raises(
        RuntimeError, match="^executor: expected workers that grow trees .*, got KilledWorker: "
    ):
        scale.grow(dask_executor, x, y, 8, grow=workers.end_process, n_tasks=4, retries=0, rng=3)
    assert time.monotonic() - start < 30


MPI = """
from mpi4py.futures import MPIPoolExecutor
import hforest, test_scale

if __name__ == "__main__":
    with MPIPoolExecutor(initializer=hforest.set_num_threads, initargs=(1,)) as executor:
        assert executor.num_workers == 2
        test_scale.check_four_kinds(executor)
    print("equal")
"""


def test_mpi(tmp_path):
    pytest.importorskip("mpi4py", reason="needs mpi4py")
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("needs mpiexec, such as of the package mpich")
    script = tmp_path / "grow.py"
    script.write_text(MPI)
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [mpiexec, "-n", "3", sys.executable, "-m", "mpi4py.futures", str(script)],
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=100, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "equal"
