"""Samples whose numbers change after their check: growth ends, with a forest or an error, and no process crashes.

Attacks run in child processes, which a crash ends and a time limit stops.
"""

import copy
import pickle
import sys

import numpy as np
import pytest
import scipy.sparse
from conftest import refused, run
from growers import overlapping

import hforest
from hforest.growth import encoding

# NumPy 2.5 still sets shapes, which these tests attack with.
pytestmark = pytest.mark.filterwarnings("ignore:Setting the shape on a NumPy array:DeprecationWarning")

KINDS = ("numbers", "whole numbers", "bins", "categories", "wide", "wide bins", "windows", "sparse")

PROGRAM = """
import faulthandler, sys, threading, time
import numpy as np, scipy.sparse
import hforest
from hforest import tree

kind, seconds = sys.argv[1], float(sys.argv[2])
faulthandler.dump_traceback_later(40, exit=True)
rng = np.random.default_rng(0)
is_sparse, is_wide = kind == "sparse", kind.startswith("wide")
n, n_columns = (50, 400) if is_wide else (200, 8)
given = {
    "bins": {"max_bins": 16}, "wide bins": {"max_bins": 16}, "categories": {"categorical": [0, 2, 5]},
    "windows": {"windows": (np.arange(n) * 4, np.arange(n_columns))},
}.get(kind, {})
sparse_projections = hforest.project.sparse_distribution(n_columns, density=0.4)
SETTINGS = [
    {}, {"criterion": "entropy"}, {"task": "regression"}, {"splitter": "random", "bootstrap": False},
    {"projections": sparse_projections}, {"projections": sparse_projections, "splitter": "random"},
    {"projections": sparse_projections, "task": "regression"},
]

def make(dtype):
    # Returns samples, and the numbers of the caller.
    if is_sparse:
        x = rng.normal(size=(n, n_columns)) * (rng.random((n, n_columns)) < 0.4)
        x = scipy.sparse.csc_array(x.astype(dtype))
        return hforest.samples(x), x.data
    whole = kind in ("whole numbers", "categories")
    x = (rng.integers(0, 9, (n, n_columns)) if whole else rng.normal(size=(n, n_columns))).astype(dtype)
    return hforest.samples(x, **given), x.reshape(-1)

def grow(samples, settings):
    # Returns whether there is a forest, not an error.
    if settings.get("task"):
        y = rng.normal(size=n)
    else:
        y = rng.integers(0, 3, n)
    try:
        forest = hforest.grow(samples, y, 3, rng=0, **settings)
    except ValueError as error:
        assert "make samples of the changed numbers" in str(error), error
        return False
    p = tree.predict(forest, np.zeros((4, n_columns)))
    assert settings.get("task") or np.allclose(p.sum(axis=1), 1)
    return True

def write(numbers, before, stop):
    # Writes numbers that samples refuse, and good ones again.
    rng = np.random.default_rng(1)
    while not stop.is_set():
        at = rng.integers(0, numbers.size, 9)
        numbers[at] = rng.choice([np.nan, np.inf, -np.inf, -1, 0.5, 1e6])
        time.sleep(0)
        numbers[at] = before[at]

n_forests = n_calls = 0
for settings in SETTINGS:
    if kind == "windows" and "task" in settings or kind == "categories" and "projections" in settings:
        continue
    for dtype in (np.float32, np.float64):
        if seconds:
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                samples, numbers = make(dtype)
                stop = threading.Event()
                writer = threading.Thread(target=write, args=(numbers, numbers.copy(), stop))
                writer.start()
                try:
                    for _ in range(20):
                        n_forests += grow(samples, settings)
                finally:
                    stop.set()
                    writer.join()
            continue
        for value in (np.nan, np.inf, -np.inf, -1, 1e6):
            samples, numbers = make(dtype)
            if n_calls % 2:
                grow(samples, settings)
            numbers[:: 1 + n_calls % 3] = value
            n_forests += grow(samples, settings)
            n_calls += 1
print(n_forests, n_calls)
"""


def attacked(kind, seconds=0.0):
    """Returns the numbers that the program prints, after it ended without a crash."""
    done = run(sys.executable, "-c", PROGRAM, kind, str(seconds))
    assert done.returncode == 0, done.stderr[-2000:]
    return [int(number) for number in done.stdout.split()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_change_between_calls_crash_nothing(kind):
    n_forests, n_calls = attacked(kind)
    assert n_calls >= 4 * 2 * 5
    assert n_forests > n_calls / 4  # -1 is a number, and growth reads others only for the first time


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_another_thread_writes_crash_nothing(kind):
    assert attacked(kind, 0.1)[0] > 0


# ------------------------------------------------------------------------------------------------- errors


def labels_of(x):
    return np.arange(len(x)) % 3


@pytest.mark.parametrize("layout", ["array", "windows", "sparse", "Fortran order"])
def test_new_missing_values_are_refused_by_the_first_growth(layout):
    x = np.random.default_rng(0).normal(size=(60, 4))
    if layout == "windows":
        samples = hforest.samples(x, windows=(np.arange(60) * 3, np.arange(4)))
    elif layout == "sparse":
        x = scipy.sparse.csc_array(x)
        samples = hforest.samples(x)
    else:
        samples = hforest.samples(x, max_bins=None if layout == "array" else 16)
    numbers = x.data if layout == "sparse" else x.reshape(-1)
    before, numbers[7] = numbers[7], np.nan
    words = "x: expected the numbers of which samples were made, got NaN, where there was none; make samples"
    with refused(ValueError, words):
        hforest.grow(samples, labels_of(samples), 2, rng=0)
    numbers[7] = before
    assert hforest.grow(samples, labels_of(samples), 2, rng=0).n_trees == 2


@pytest.mark.parametrize("value", [-1, 0.5, 65536, np.inf])
@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csc_array])
def test_new_numbers_that_are_no_categories_are_refused(value, make):
    x = make(np.random.default_rng(0).integers(1, 5, (60, 4)).astype(float))
    samples = hforest.samples(x, categorical=[0])
    numbers = x.data if scipy.sparse.issparse(x) else x[:, 0]
    numbers[3] = value
    with refused(ValueError, "x: .*got numbers that are no categories"):
        hforest.grow(samples, labels_of(samples), 2, rng=0)


def test_missing_values_are_found_in_the_bins():
    # A second read of x could find other missing values than the bins have.
    x = np.random.default_rng(0).normal(size=(60, 4))
    x[::7, 1] = np.nan
    samples = hforest.samples(x, max_bins=8)
    reads = []

    class Once(type(samples)):
        def columns(self, which):
            reads.append(which)
            return x[:, which].copy()

    once = Once(x, x, x.dtype, 8, None, True)
    assert encoding.encode(once).missing.tolist() == samples.bins().missing.tolist() == [-1, 7, -1, -1]
    assert len(reads) == 1


# --------------------------------------------------------------------------------------------- immutable


def some_samples():
    x = np.random.default_rng(0).integers(0, 5, (30, 4)).astype(np.float32)
    wide = np.random.default_rng(0).normal(size=(4, 40))
    return {
        "array": hforest.samples(x, categorical=[1]),
        "wide": hforest.samples(wide),
        "windows": hforest.samples(x, windows=(np.arange(20) * 4, np.arange(4))),
        "sparse": hforest.samples(scipy.sparse.csc_array(x)),
    }


def arrays_in(a):
    """Yields the arrays in nested tuples."""
    if isinstance(a, np.ndarray):
        yield a
    elif isinstance(a, tuple):
        for item in a:
            yield from arrays_in(item)


@pytest.mark.parametrize("name", some_samples())
def test_samples_cannot_be_changed(name):
    source = some_samples()[name]
    for attribute in ("x", "numbers", "shape", "dtype", "has_missing", "categorical", "max_bins", "other"):
        with refused(AttributeError, f"samples.{attribute}: expected no assignment, got one; make other"):
            setattr(source, attribute, getattr(source, attribute, None))
    for one in (source, pickle.loads(pickle.dumps(source)), copy.copy(source)):
        for a in arrays_in((one.x, one.numbers, one.categorical, one.bins(), one.on_demand(tables=False))):
            with pytest.raises(ValueError, match="read-only"):
                a[...] = 0
            if a.size:
                with pytest.raises(ValueError, match="WRITEABLE"):
                    a.flags.writeable = True
    for a in arrays_in((source.x, source.numbers, source.categorical)):
        a.shape = (1, *a.shape)
    for settings in ({}, {"splitter": "random", "bootstrap": False}):
        got, want = (
            hforest.grow(a, labels_of(a), 2, rng=0, **settings) for a in (source, some_samples()[name])
        )
        assert all(map(np.array_equal, got, want))
    with pytest.raises(AttributeError, match="not writable"):
        hforest.tree.prepare(hforest.grow(source, labels_of(source), 1)).forest = None


def test_samples_keep_the_shape_of_an_array_that_is_reshaped():
    x = np.random.default_rng(0).normal(size=(40, 6))
    samples, other = hforest.samples(x), x.copy()
    x.shape = (6, 40)
    for settings in ({}, {"splitter": "random", "bootstrap": False}):
        got, want = (hforest.grow(a, labels_of(other), 2, rng=0, **settings) for a in (samples, other))
        assert all(map(np.array_equal, got, want))


def test_windows_and_sparse_matrices_have_their_own_places():
    (x, base, offset), _ = overlapping()
    a = scipy.sparse.csc_array(np.random.default_rng(0).integers(0, 3, (30, 4)).astype(float))
    a.indptr, a.indices = a.indptr.astype(np.int64), a.indices.astype(np.int32)
    for samples, arrays in (
        (hforest.samples(x, windows=(base, offset)), (base, offset)),
        (hforest.samples(a), (a.indices, a.indptr)),
    ):
        want = hforest.grow(copy.deepcopy(samples), labels_of(samples), 2, rng=0)
        for places in arrays:
            assert not any(np.shares_memory(places, own) for own in arrays_in(samples.x))
            places[:] = 2**30
        assert all(map(np.array_equal, hforest.grow(samples, labels_of(samples), 2, rng=0), want))


def test_moved_windows_are_checked():
    (x, base, offset), _ = overlapping()
    samples = hforest.samples(x, windows=(base, offset))
    with refused(IndexError, "base: expected windows inside"):
        samples.moved(base + x.size)
    moved = samples.moved(base)
    base[:] = 2**30
    assert moved.x.base.max() < x.size
