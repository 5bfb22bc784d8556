"""Validation, dispatch, threads, configuration."""

import contextlib
import gc
import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from conftest import assert_same_bits

import hforest
from hforest import co2, demo, hinge, project
from hforest.core import check, dispatch, keywords, launch, machine
from hforest.core.threads import one_blas_thread
from hforest.stats.problem import renamed

pytestmark = pytest.mark.kernels


def python(code, *options, fails=False, **environment):
    """Returns the finished run of code in a new process, with other variables of the environment."""
    done = subprocess.run(
        [sys.executable, *options, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert (done.returncode != 0) == fails, done.stderr
    return done


def routing(n=6, seed=0):
    t, f, _ = hinge.init(2, 2, 3, dtype=np.float64, rng=seed)
    return np.random.default_rng(seed).normal(size=(n, 3)), t, f


@pytest.mark.parametrize("size", [0, 1, 5, 1000, 300_000])
def test_scan_for_nonfinite(dtype, threads, size):
    rng = np.random.default_rng(0)
    for count in (1, 2, 7):
        threads(count)
        a = rng.normal(size=size).astype(dtype)
        assert machine.first_nonfinite(a) == -1
        for value in (np.nan, np.inf, -np.inf):
            for i in {0, size // 2, size - 1} if size else ():
                b = a.copy()
                b[i] = b[-1] = value
                assert machine.first_nonfinite(b) == i
    extremes = np.array(
        [np.finfo(dtype).max, np.finfo(dtype).min, np.finfo(dtype).smallest_subnormal, -0.0], dtype
    )
    assert machine.first_nonfinite(extremes) == -1


@pytest.mark.parametrize("size", [0, 1, 1000, 300_000])
def test_scan_for_indices(size):
    a = np.random.default_rng(0).integers(0, 10, size, np.int32)
    assert machine.first_outside(a, 10) == -1
    for value in (10, -1, 2**31 - 1, -(2**31)):
        for i in {0, size // 2, size - 1} if size else ():
            b = a.copy()
            b[i] = value
            assert machine.first_outside(b, 10) == i


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (40, 70), (3000, 50)])
@pytest.mark.parametrize("turned", [False, True])
def test_scan_for_named_indices(threads, shape, turned):
    n_rows, width, rng = shape[1], 9, np.random.default_rng(0)
    name = rng.integers(0, width - 1, shape, np.int32)
    name = np.ascontiguousarray(name.T).T if turned else name
    table = rng.integers(0, 10, (n_rows, width), np.int32)
    table[:, -1] = -1  # which nothing names
    for count in (1, 2, 7):
        threads(count)
        assert machine.first_named_outside(table, name, 10) == -1
        for value in (10, -1, -(2**31)):
            for j in {0, n_rows // 2, n_rows - 1}:
                bad = table.copy()
                bad[j:, 1:] = value
                named = [(k, i) for k in range(j, n_rows) for i in sorted({*name[:, k].tolist()} - {0})]
                want = np.ravel_multi_index(named[0], table.shape) if named else -1
                assert machine.first_named_outside(bad, name, 10) == want


def test_unchecked_skips_values_only():
    x, t, f = routing()
    bad = x.copy()
    bad[0, 0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        hinge.traverse(bad, t, f)
    with hforest.unchecked():
        hinge.traverse(bad, t, f)
        with pytest.raises(ValueError, match="shape"):
            hinge.traverse(bad[0], t, f)
        with pytest.raises(TypeError, match="dtype"):
            hinge.traverse(bad, t, f.astype(np.int64))
    with pytest.raises(ValueError, match="finite"):
        hinge.traverse(bad, t, f)


def test_unchecked_holds_for_one_thread():
    x, t, f = routing()
    x[0, 0] = np.nan
    with hforest.unchecked(), ThreadPoolExecutor(1) as executor:
        assert isinstance(executor.submit(hinge.traverse, x, t, f).exception(), ValueError)


def test_using():
    seen = []
    x, t, f = routing()
    with hforest.using("reference"):
        seen.append(dispatch.backend("hforest.hinge", x).__name__)
    seen.append(dispatch.backend("hforest.hinge", x).__name__)
    assert seen == ["hforest.hinge.reference", "hforest.hinge.cpu"]
    with pytest.raises(ZeroDivisionError), hforest.using("reference"):
        _ = 1 / 0
    assert dispatch.backend("hforest.hinge", x).__name__ == "hforest.hinge.cpu"
    hinge.traverse(x, t, f)


class FakeCupy:
    """Replaces CuPy, with its own class of arrays."""

    class ndarray:
        dtype = np.dtype(np.float64)


def test_mixed_devices_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy)
    x, t, f = routing()
    message = "thresholds: expected a NumPy array like x, got a CuPy array.*cupy.asarray"
    with pytest.raises(TypeError, match=message):
        hinge.traverse(x, FakeCupy.ndarray(), f)
    with pytest.raises(TypeError, match="thresholds: expected a CuPy array like x, got a NumPy array"):
        hinge.traverse(FakeCupy.ndarray(), t, f)
    with hforest.using("reference"), pytest.raises(TypeError, match="expected NumPy arrays, got CuPy"):
        dispatch.backend("hforest.hinge", FakeCupy.ndarray())


def test_cupy_is_never_imported_for_numpy_arrays():
    code = (
        "import sys, numpy as np, hforest; t, f, w = hforest.hinge.init(2, 2, 3, rng=0);"
        "hforest.hinge.forward(np.zeros((4, 3), np.float32), t, f, w); assert 'cupy' not in sys.modules;"
        "assert 'hforest.hinge.gpu' not in sys.modules and 'hforest.hinge.reference' not in sys.modules"
    )
    python(code)


def test_memory_maps_are_arrays(tmp_path):
    x, t, f = routing()
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.testing.assert_array_equal(hinge.traverse(mapped, t, f)[0], hinge.traverse(x, t, f)[0])


def test_threads(threads):
    threads(3)
    assert hforest.get_num_threads() == (3 if machine.openmp() else 1)


def test_threadpoolctl_is_obeyed():
    threadpoolctl = pytest.importorskip("threadpoolctl")
    if not machine.openmp():
        pytest.skip("built without OpenMP")
    with threadpoolctl.threadpool_limits(limits=1, user_api="openmp"):
        assert hforest.get_num_threads() == 1


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "plain")) for name in machine.simd_paths()],
)
def test_simd_path_can_be_forced(name):
    code = "from hforest.core import machine; print(machine.simd())"
    assert python(code, HFOREST_SIMD=name).stdout.strip() == name
    assert "HFOREST_SIMD: expected one of plain" in python(code, fails=True, HFOREST_SIMD="mmx").stderr


@pytest.mark.parametrize(("number", "threads"), [("3", 3), ("100000", 1024)])
def test_the_environments_number_of_threads_is_obeyed_and_bounded(number, threads):
    done = python("import hforest; print(hforest.get_num_threads())", OMP_NUM_THREADS=number)
    assert int(done.stdout) == (threads if machine.openmp() else 1)


def test_calls_from_several_threads_at_once():
    x, t, f = routing(500)
    want = hinge.traverse(x, t, f)
    with ThreadPoolExecutor(8) as executor:
        for result in executor.map(lambda _: hinge.traverse(x, t, f), range(160)):
            assert_same_bits(result, want)


def test_show_config(capsys):
    report = hforest.show_config("dicts")
    assert report["version"] == hforest.__version__
    assert report["compiler"].split()[0] in ("GCC", "Clang", "MSVC", "unknown")
    assert report["threads"] >= 1
    assert report["simd"] in machine.simd_paths()
    assert report["serial_us"] == 5  # tests/conftest.py
    assert set(report["cpu_features"]) <= {"avx2", "avx512", "neon"}
    assert hforest.show_config() is None
    shown = capsys.readouterr().out
    for word in (hforest.__version__, report["compiler"], "OpenMP", "threads", "CPU features", "CuPy"):
        assert word in shown
    with pytest.raises(ValueError, match="mode: expected one of 'stdout', 'dicts'"):
        hforest.show_config("json")


def test_missing_cupy_is_an_error_of_its_backend():
    try:
        import cupy  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError):
            launch.CupyCompiler().device()
    else:
        pytest.skip("CuPy is installed")


def test_numbers_of_kernel_files(tmp_path, monkeypatch):
    (tmp_path / "a.cuh").write_text(
        "enum { A = 1, HF_B2 = 22 /* C = 5 */ };\nconstexpr int D = 3, E = D + 1; // F = 6\n#define G 0x1p-2\n"
        "constexpr size H = 0x10;\n"
    )
    monkeypatch.setattr(launch, "PACKAGE", tmp_path)
    assert launch.numbers("a.cuh", "HF_B2", "A", "G", "H", "D") == (22, 1, 0.25, 16, 3)
    for name in "CEF":
        with pytest.raises(KeyError, match=name):
            launch.numbers("a.cuh", name)


# -------------------------------------------------------------------------- processes and environment

FORKED = """
import os, signal, sys
import numpy as np
import hforest

x = np.random.default_rng(0).normal(size=(3000, 20)).astype(np.float32)
y = x[:, 0] > 0


def results():
    forest = hforest.grow(x, y, 8, rng=0)
    found = hforest.tree.predict(forest, x).tobytes()
    route = hforest.hinge.traverse(x, *hforest.hinge.init(50, 8, 20, rng=0)[:2])
    return found + b"".join(a.tobytes() for a in route)


before = results()
child = os.fork()
if child == 0:
    signal.alarm(60)  # a child that hangs is ended, which its parent sees
    os._exit(0 if results() == before else 3)
status = os.waitpid(child, 0)[1]
assert results() == before
print("child", os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_computes_the_same():
    done = python(FORKED, "-W", "ignore", OMP_NUM_THREADS="2")
    assert done.stdout == "child 0\n"


RESULTS = """
import sys, threading
import numpy as np
from hforest import co2, growth, hinge, neural, project, split, tree
import hforest

def results():
    rng = np.random.default_rng(0)
    x = rng.random((3000, 20)).astype(np.float32)
    y = (3 * x[:, 0]).astype(int)
    forest = hforest.grow(x, y, 20, rng=0)
    t, f, w = hinge.init(50, 4, 20, outputs=3, rng=0)
    ft, ff, fw = hinge.init(50, 4, 20, kind="fern", rng=0)
    p, route = hinge.forward_with_route(x, t, f, w)
    grads = hinge.backward(p, route, x, t, f, w)
    decisions = rng.normal(size=(500, 5, 15)).astype(np.float32)
    leaves = neural.update_leaves(decisions, y[:500], neural.uniform_leaves(5, 4, 3), 2)
    wide, patches = (100 * x).astype(np.uint8).repeat(2, axis=1), project.patch_distribution((5, 8), patch_max=3)
    return [np.asarray(a).tobytes() for a in (
        tree.predict(forest, x), tree.apply(forest, x), p, *grads, hinge.forward(x, ft, ff, fw, kind="fern"),
        tree.predict(co2.grow(x, y, 2, max_depth=3, rng=0), x), tree.predict(hforest.grow(wide, y, 3, projections=patches, rng=0), wide),
        growth.bootstrap_counts(1000, 5, rng=0), leaves, neural.forward(decisions, leaves),
        project.project(x, *project.sample(project.probe_distribution(20), 10, rng=0)),
        split.best_split(x.T, y).threshold,
    )]
"""

IN_A_THREAD = """
found = []
threads = [threading.Thread(target=lambda: found.append((hforest.get_num_threads(), results()))) for _ in range(2)]
for thread in threads:
    thread.start()
    thread.join()
hforest.set_num_threads(2)
expected = results()
print([(n, part == expected) for n, part in found])
"""

AT_ONCE = """
begin, found = threading.Barrier(6), []

def call():
    begin.wait()
    found.extend(results() for _ in range(3))

threads = [threading.Thread(target=call) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
expected = results()
print(len(found), all(part == expected for part in found), getattr(sys, "_is_gil_enabled", lambda: True)())
"""


SMALL_CALLS = """
import os

before = dict(os.environ)
import numpy as np
import hforest

assert dict(os.environ) == before
tasks = lambda: len(os.listdir("/proc/self/task"))
rng, n = np.random.default_rng(0), tasks()
hforest.set_num_threads(2)
for size in (20, 20000):
    x = rng.normal(size=(size, 5)).astype(np.float32)
    hforest.grow(x, (x[:, 0] > 0).astype(np.int32), 10, rng=0)
    print(tasks() - n, end=" ")
"""


@pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="the system does not list the native threads"
)
@pytest.mark.skipif(not machine.openmp(), reason="a build without OpenMP has one thread")
@pytest.mark.parametrize(("limit", "started"), [("", "0 1"), ("0", "1 1"), ("1e9", "0 0")])
def test_small_calls_have_one_thread(limit, started):
    done = python(SMALL_CALLS, HFOREST_SERIAL_US=limit, OPENBLAS_NUM_THREADS="1")
    assert done.stdout.strip() == started


@pytest.mark.parametrize("limit", ["-1", "fast", "0x10", "e", "1..2", "1_000", "nan"])
def test_the_limit_of_small_calls_is_a_number(limit):
    done = python("import hforest", fails=True, HFOREST_SERIAL_US=limit)
    assert "HFOREST_SERIAL_US: expected a number of microseconds, at least 0, got " in done.stderr


@pytest.mark.slow
def test_the_number_of_threads_is_bounded_in_every_thread():
    # Each native thread has OpenMP's number from the environment; results are those of two threads.
    done = python(RESULTS + IN_A_THREAD, OMP_NUM_THREADS="100000", OPENBLAS_NUM_THREADS="1")
    assert done.stdout.strip() == str([(1024 if machine.openmp() else 1, True)] * 2)


@pytest.mark.slow
def test_first_calls_of_all_kinds_from_several_threads_at_once():
    # An interpreter without GIL keeps running without it.
    with_gil = not sysconfig.get_config_var("Py_GIL_DISABLED") or os.environ.get("PYTHON_GIL") == "1"
    done = python(RESULTS + AT_ONCE, OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="1")
    assert done.stdout.split() == ["18", "True", str(with_gil)]


def test_sources_that_are_not_built_say_what_to_run(tmp_path):
    package = Path(hforest.__file__).parent
    for path in package.rglob("*.py"):
        copy = tmp_path / "hforest" / path.relative_to(package)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import hforest"], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(np.__file__).parents[1])])},
    )  # fmt: skip
    assert done.returncode == 1
    assert "expected compiled extension modules" in done.stderr
    assert "pip install -e ." in done.stderr


# ------------------------------------------------------------------------------------------- kinds of settings


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.array(3), np.array(3, ">i2")])
def test_integers_of_every_kind(value):
    assert check.integer("n", value, 1) == 3
    assert type(check.integer("n", value, 1)) is int
    assert check.repeatable_seed(value) == 3
    assert check.seed(value) == check.seed(3)
    assert check.number("n", value, 1) == 3.0


def test_values_that_are_taken():
    assert check.number("lr", np.float32(0.5), 0.0) == check.number("lr", np.array(0.5), 0.0) == 0.5
    assert check.path("file", "a.npz") == check.path("file", Path("a.npz")) == "a.npz"
    assert check.choice("kind", "tree", ("tree", "fern")) == "tree"
    assert check.choice("kind", None, (None, "sum")) is None
    for value in (None, print, lambda state: None):
        check.function("checkpoint", value, "state")
    for value in (np.float32, "f4", np.dtype("f4"), "float32"):
        assert check.float_dtype(value) is np.dtype(np.float32)
    assert check.float_dtype(float) is np.dtype(np.float64)


def test_seeds():
    drawn = check.seed(5)
    assert drawn == check.seed(np.int32(5)) == check.seed(np.random.default_rng(5))
    assert drawn != check.seed(6)
    assert 0 <= check.seed(None) < 2**64
    assert check.seed(None) != check.seed(None)
    assert check.repeatable_seed(5) == check.repeatable_seed(np.int64(5)) == 5
    assert 0 <= check.repeatable_seed(np.random.default_rng(5)) < 2**63
    assert check.repeatable_seed(None) != check.repeatable_seed(None)
    generator = np.random.default_rng(0)
    assert check.generator(generator) is generator
    assert check.seed(generator) != check.seed(generator)


GROWS = "x, y, n_trees=..., first_tree=..., rng=..."


def test_functions_that_grow_and_leave_settings_to_their_caller_are_taken():
    keywords.grower("grow", lambda x, y, n_trees, first_tree, rng: None, GROWS)
    for function in (hforest.grow, co2.grow):
        keywords.grower("grow", function, GROWS)
        keywords.grower("grow", partial(function, max_depth=3, bootstrap=False), GROWS)
        keywords.grower("grow", partial(function, n_trees=3), "x, y, rng=...")  # this caller does not pass it
        for name in ("n_trees", "first_tree", "progress", "rng"):
            message = (
                f"^grow: .* leaves {name} to its caller, got a functools.partial that binds {name}; leave it"
            )
            with pytest.raises(TypeError, match=message):
                keywords.grower("grow", partial(function, max_depth=3, **{name: None}), GROWS)


# On some systems a long double is a float64.
HAS_WIDE = np.finfo(np.longdouble).max > np.finfo(np.float64).max
HUGE = (10**400, -(10**400), 2**70, -(2**70))
NO_INTEGERS = (
    True, np.True_, 3.0, np.float32(3), "3", np.timedelta64(3, "D"), np.array([3]), np.array("3"), np.ma.masked,
)  # fmt: skip
SEEDS = (check.seed, check.repeatable_seed, check.generator)


@pytest.mark.parametrize(
    ("call", "values", "error", "message"),
    [
        (lambda v: check.integer("n", v, 1), (*NO_INTEGERS, None), TypeError, "^n: expected an int, got .*; pass"),
        (lambda v: check.integer("n", v, 0, 9), HUGE, ValueError, "^n: expected 0 to 9, got .*; choose"),
        (check.generator, NO_INTEGERS, TypeError, "^rng: expected None, an int or .*; pass"),
        *((seed, (-1,), ValueError, "^rng: expected .*, got .*; pass") for seed in SEEDS),
        *((seed, (1.0, True, "1", np.random), TypeError, "^rng: expected .*, got .*; pass") for seed in SEEDS),
        (lambda v: check.number("lr", v, 0.0),
            (True, "1", None, 1j, np.timedelta64(1, "s"), np.array([1.0]), np.array("1"), np.ma.masked), TypeError,
            "^lr: expected a number, got .*; pass a float"),
        (lambda v: check.number("lr", v, 0.0, open_low=True), (-1, 0), ValueError, "^lr: expected a finite number > 0"),
        (lambda v: check.number("lr", v, 0.0, 1.0),
            (*HUGE, np.longdouble("1e400" if HAS_WIDE else "inf"), np.nan, np.inf), ValueError,
            "^lr: expected a finite number .*got.*; choose"),
        (lambda v: check.path("file", v), (None, 3, 1j, ["a"], object(), b"a.npz"), TypeError,
            "^file: expected a path, got .*; pass a path such as"),
        (lambda v: check.path("file", v), ("", "a\0b"), ValueError, "^file: expected a path, got .*; pass a path such as"),
        (lambda v: check.choice("kind", v, ("tree", "fern")), ("Tree", None, 0, np.array(["tree"]), ["tree"], b"tree"),
            ValueError, "^kind: expected one of 'tree', 'fern', got .*; choose one of them"),
        (check.float_dtype,
            (np.float16, int, np.dtype("f4").newbyteorder(), "real", 3, np.longdouble if HAS_WIDE else np.float16, None),
            TypeError, "^dtype: expected float32 or float64, got .*; pass numpy.float32"),
        (lambda v: check.function("checkpoint", v, "state"), (True, 1, "print"), TypeError,
            "^checkpoint: expected None or a function, got .*; pass a function"),
        (lambda v: keywords.grower("grow", v, GROWS), (None, 3, "grow"), TypeError,
            "^grow: expected a function, got .*; pass hforest.grow, or functools"),
        (lambda v: keywords.grower("grow", v, GROWS),
            (lambda x, y: None, lambda x, y, n_trees, rng: None, partial(hforest.grow, n_estimators=3)), TypeError,
            r"^grow: expected a function that accepts \(x, y, n_trees=.*, got one"),
        (hforest.using, (np.array(["reference"] * 2), None, 3, "gpu"), ValueError, "^backend: expected 'reference', got"),
        (hforest.set_num_threads, (0, 1025), ValueError, "^n: expected"),
        (hforest.set_num_threads, (1.5, "2"), TypeError, "^n: expected"),
    ],
)  # fmt: skip
def test_values_that_are_refused(call, values, error, message):
    for value in values:
        with pytest.raises(error, match=message):
            call(value)


def test_memory_that_there_is_not():
    message = "^n: expected weights that fit into memory, got [0-9]+ bytes; choose fewer"
    with pytest.raises(ValueError, match=message), check.memory("n", "weights", 2**62):
        pytest.fail("the block is entered")
    with pytest.raises(MemoryError, match=message), check.memory("n", "weights", 7):
        np.empty(2**60, np.uint8)


def test_fields_of_an_argument():
    for error in (TypeError, ValueError, IndexError):
        with pytest.raises(error, match="^bins.low: expected"), check.fields_of("bins"):
            raise error("low: expected")


def test_items_of_an_argument():
    for error in (TypeError, ValueError, IndexError):
        for text, named in (("low: expected", "bins['low']: expected"), ("low.a: b", "bins['low'].a: b")):
            with pytest.raises(error) as caught, check.items_of("bins", {"low"}):
                raise error(text)
            assert str(caught.value) == named
    for error in (
        ValueError("lower: expected"),
        ValueError(),
        UnicodeError("low: expected"),
        KeyError("low"),
    ):
        with pytest.raises(type(error)) as caught, check.items_of("bins", {"low"}):
            raise error
        assert caught.value is error


@pytest.mark.parametrize(
    ("context", "error"),
    [
        (lambda: check.fields_of("bins"), ValueError),
        (lambda: check.items_of("bins", {"low"}), ValueError),
        (lambda: check.memory("n", "weights", 7), MemoryError),
        (lambda: renamed("low", "high"), ValueError),
    ],
)
def test_an_error_in_place_of_another_keeps_no_arrays(context, error):
    x = np.zeros(3)

    def fails(x):
        with context():
            raise error("low: expected")

    n_references = sys.getrefcount(x)
    gc.disable()
    try:
        with contextlib.suppress(error):
            fails(x)
        assert sys.getrefcount(x) == n_references
    finally:
        gc.enable()


BIG = 2**30
X, LABELS, SPARSE = np.zeros((4, 2)), np.array([0, 1, 0, 1]), project.sparse_distribution(2)
BEYOND_MEMORY = {
    "n_trees": (
        lambda: hforest.growth.bootstrap_counts(2**20, BIG),
        lambda: hforest.grow(X, LABELS, BIG),
        lambda: hforest.grow(X, LABELS, BIG, projections=SPARSE, n_projections=1),
        lambda: co2.grow(X, LABELS, BIG),
        lambda: hforest.cascade.default_forests(BIG),
        lambda: hinge.init(BIG, 30, 2),
        lambda: hinge.init(BIG, 30, 2, kind="fern"),
        lambda: hforest.neural.uniform_leaves(BIG, 20, 9),
        lambda: hforest.neural.linear_init(BIG, 20, 2, 9),
    ),
    "n_projections": (
        lambda: hforest.grow(X, LABELS, 1, projections=SPARSE, n_projections=BIG), lambda: project.sample(SPARSE, BIG),
    ),
    "n_iter": (
        lambda: hforest.neural.update_leaves(
            np.zeros((1, 1, 1)), [0], hforest.neural.uniform_leaves(1, 1, 2, dtype=float), BIG
        ),
    ),
    "n": tuple(
        partial(simulate, BIG, dtype=np.float64)
        for simulate in (demo.simulate_circle, demo.simulate_bars, demo.simulate_impulse)
    ),
}  # fmt: skip
"""Calls with sizes beyond any memory, which raise at once."""


@pytest.mark.parametrize("name", BEYOND_MEMORY)
def test_sizes_beyond_memory_are_refused_at_once(name):
    for call in BEYOND_MEMORY[name]:
        with pytest.raises((ValueError, MemoryError), match=f"^{name}: expected .*, got .*; choose"):
            call()


def test_the_message_about_a_shape_has_the_sizes_that_were_known_before():
    sizes = {"n_trees": 3}
    words = r"^a: expected shape \(n_trees, n_columns\) = \(3, n_columns\), got \(4, 5\); pass"
    with pytest.raises(ValueError, match=words):
        check.array("a", np.zeros((4, 5)), np.dtype(np.float64), ("n_trees", "n_columns"), sizes)


def test_an_array_of_another_library_is_no_array():
    class Like:
        dtype, shape, flags, strides = np.dtype(np.float64), (3,), object(), (8,)

    message = r"^a: expected a numpy\.ndarray or cupy\.ndarray, got Like; convert it"
    with pytest.raises(TypeError, match=message):
        check.array("a", Like(), np.dtype(np.float64), ("n",), {})
    check.array("a", np.float64(1), np.dtype(np.float64), (), {})


def blas_threads():
    threadpoolctl = pytest.importorskip("threadpoolctl")
    return {
        library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"
    }


def test_blas_has_one_thread_in_uses_that_end_in_any_order():
    threadpoolctl = pytest.importorskip("threadpoolctl")
    with threadpoolctl.threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        if before != {2}:
            pytest.skip("this BLAS has no threads")
        first, second = one_blas_thread(), one_blas_thread()
        for use in (first, second):
            use.__enter__()
            assert blas_threads() == {1}
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == before
        seen = set()
        x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
        settings = {"n_members": 1, "n_trees": 2, "steps": 3, "rng": 0}
        hforest.tabular.fit(x, y, **settings, progress=lambda *_: seen.update(blas_threads()))
        assert seen == {1}
        assert blas_threads() == before


def test_a_build_without_a_compiler_ends_at_once():
    pytest.importorskip("Cython")
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "setup.py", "-q", "build_ext"]
    environment = {**os.environ, "CC": "no-such-compiler"}
    build = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert build.returncode == 1
    assert "hforest: expected a C compiler and the headers of Python, got: " in build.stderr
    assert "apt install gcc python3-dev" in build.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_does_not_wait_for_a_lock_of_its_parent():
    code = """
import os
from hforest.core import threads
with threads._blas_lock:
    child = os.fork()
    if child == 0:
        with threads.one_blas_thread():
            os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    python(code)
