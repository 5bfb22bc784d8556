"""Fixtures and the selection of tests. `backend` runs a test with the reference implementation, the CPU
backend, and the CUDA backend on the host (compiled as C++); `fast_backend` also with the CUDA backend on a
GPU if there is one."""

import ast
import contextlib
import functools
import gc
import importlib
import itertools
import os
import re
import shutil
import subprocess

# Before NumPy and hforest load their thread pools: workers of pytest-xdist share the cores. So each uses one
# thread unless a test sets more, and waiting threads yield their core.
# Several threads run small calls too, whose bits tests compare.
os.environ.setdefault("HFOREST_SERIAL_US", "5")
if "PYTEST_XDIST_WORKER" in os.environ:
    for _name, _value in {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "passive",
    }.items():
        os.environ.setdefault(_name, _value)

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis
import numpy as np
import pytest

import hforest
from hforest.core import dispatch, machine

if "HFOREST_STUB" in os.environ:  # the tests of a GPU run on a stub device: see stub/__init__.py
    import stub

    stub.install()

hypothesis.settings.register_profile("all", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.register_profile("some", hypothesis.settings.get_profile("all"), max_examples=15)


def pytest_configure(config: pytest.Config) -> None:
    """Sets the number of examples before tests are imported, fewer if slow tests are left out; checks --for."""
    folder = config.getoption("folder")
    if folder is not None and not (HEADERS / Path(folder).name).is_dir():
        raise pytest.UsageError(
            f"--for: expected a folder of hforest, as hforest/hinge, got {folder}; see ls hforest"
        )
    hypothesis.settings.load_profile("some" if "not slow" in config.getoption("markexpr") else "all")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Returns the number of workers for `-n auto`: the processors this process may use, at most eight."""
    affinity = getattr(os, "sched_getaffinity", None)
    return min(8, len(affinity(0)) if affinity else os.cpu_count() or 1)


def covering(rows: Sequence[tuple]) -> list[int]:
    """Returns ascending indices of rows that together have each pair of values of two columns that occurs in
    a row.

    The choice is greedy: each time the first of the rows that add most pairs.
    """
    pairs = [set(itertools.combinations(enumerate(row), 2)) for row in rows]
    missing = set().union(*pairs)
    kept = []
    while missing:
        best = max(range(len(rows)), key=lambda i: len(pairs[i] & missing))
        missing -= pairs[best]
        kept.append(best)
    return sorted(kept)


def cases(items: Sequence[pytest.Function]) -> list[tuple]:
    """Returns each item's value on each axis of a test function; parameters set together are one axis."""
    together = [mark.args[0] for mark in items[0].iter_markers("parametrize")]
    together = [[a.strip() for a in t.split(",")] if isinstance(t, str) else list(t) for t in together]
    fixtures = set(items[0].callspec.params).difference(*together)
    groups = [*together, *([name] for name in sorted(fixtures))]
    # Objects, of any type, are the same in all items.
    rows = [[tuple(id(item.callspec.params[name]) for name in group) for group in groups] for item in items]
    return list(zip(*(column for column in zip(*rows, strict=True) if len(set(column)) > 1), strict=True))


@pytest.hookimpl(tryfirst=True)  # before -m is applied
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks tests as nightly that are not needed to cover all pairs of values of a function with three or more
    axes, and slow tests of kernels on the host for float64.

    Leaves out tests marked nightly, unless -m names the mark.
    """
    functions = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and not any(map(item.get_closest_marker, ("slow", "nightly"))):
            functions[item.nodeid.partition("[")[0]].append(item)
    for several in functions.values():
        values = cases(several)
        if values and len(values[0]) >= 3:
            kept = set(covering(values))
            for i, item in enumerate(several):
                if i not in kept:
                    item.add_marker("nightly")
    for item in items:
        words = item.callspec.id.split("-") if hasattr(item, "callspec") else []
        if item.get_closest_marker("slow") and {"host", "float64"}.issubset(words):
            item.add_marker("nightly")
    if "nightly" not in config.getoption("markexpr"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("nightly")])
        items[:] = [item for item in items if item.get_closest_marker("nightly") is None]


def pytest_collection_finish() -> None:
    """Takes the tests out of the garbage collector, which otherwise goes through all of them each time."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--for",
        metavar="FOLDER",
        dest="folder",
        help="as --for=hforest/hinge: run the files of tests that import it, and those of all code and pages",
    )


@functools.cache
def imports(path: Path) -> set[str]:
    """Returns the subpackages of hforest that a file imports, by their first names."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "hforest":
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.removeprefix("hforest.").partition(".")[0])
    return names


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    folder = config.getoption("folder")
    if folder is None or not collection_path.match("test_*.py"):
        return None
    always = collection_path.name in ("test_architecture.py", "test_docs.py")
    return None if always or Path(folder).name in imports(collection_path) else True


ROOT = Path(__file__).resolve().parent
BENCH = ROOT / "bench"
HEADERS = Path(hforest.__file__).parent
DATA = Path(__file__).resolve().parents[1] / "shared" / "data"
PAGES_OF_SEVERAL = {"treelite": "exchange", "onnx": "exchange", "dask": "scale"}
"""Pages of subpackages without a page of their name."""

SMALL = [
    "--n-trees",
    "6",
    "--set",
    "depth=4",
    "--set",
    "n_features=12",
    "--steps",
    "60",
    "--set",
    "eval_every=20",
]
SMALL += ["--no-plot"]
"""Options of a short run of the command."""

several_paths = pytest.mark.skipif(
    machine.simd_paths() == ("plain",),
    reason="this build and processor have the plain path alone: it would be compared with itself",
)
"""For tests that compare the vector paths with the plain one."""


def built(tmp_path: Path, source: str, compiler: str, *flags: str) -> Path:
    """Returns a compiled program of tests/host; skips if the compiler or a library is missing."""
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    program = tmp_path / Path(source).stem
    command = [
        compiler, "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Werror", "-Wno-unused-function",
        "-Wno-psabi", *flags, f"-I{HEADERS}", str(ROOT / "tests" / "host" / source), "-o", str(program), "-lm",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if "cannot find" in done.stderr:
        pytest.skip(f"{compiler} has not what {' '.join(flags)} links with")
    assert done.returncode == 0, done.stderr
    return program


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Returns a finished program with its output; fails after five minutes."""
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)


@dataclass(frozen=True)
class Backend:
    """A backend under test: its name, and functions that move arrays there and back."""

    name: str
    array: Callable[[Any], Any] = lambda a: a
    numpy: Callable[[Any], np.ndarray] = lambda a: a


def _gpu() -> Any:
    """Returns CuPy if it is installed and finds a device, else None."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception:  # errors of many classes: no module, no driver, no device
        return None
    return cupy


GPU = _gpu()
ON_GPU = ["gpu"] * (GPU is not None)
"""Names of backends that need a GPU; empty without one."""


def pytest_report_header() -> str | None:
    return None if ON_GPU else "no CuPy with a GPU: no test of the CUDA backend on a GPU, only on the host"


@contextlib.contextmanager
def entered(name: str) -> Iterator[Backend]:
    if name == "reference":
        with hforest.using("reference"):
            yield Backend(name)
    elif name == "cpu":
        yield Backend(name)
    elif name == "host":
        from host import compiler

        if not compiler.have_compiler():
            pytest.skip("no C++ compiler to run the CUDA backend on the host")
        with compiler.host_compiler(), mock.patch("hforest.growth.gpu.small_nodes.SMALL", compiler.SMALL):
            yield Backend(name)
    else:
        yield Backend(name, GPU.asarray, GPU.asnumpy)


@pytest.fixture(params=["reference", "cpu", "host"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A backend that takes NumPy arrays."""
    with entered(request.param) as backend:
        yield backend


@pytest.fixture(params=["cpu", "host", *ON_GPU])
def fast_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A backend to compare with the reference; `array` moves arrays there, `numpy` back."""
    with entered(request.param) as backend:
        yield backend


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> type:
    return request.param


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of threads, and restores it after the test."""
    before = hforest.get_num_threads()
    yield hforest.set_num_threads
    hforest.set_num_threads(before)


@pytest.fixture
def simd() -> Iterator[Callable[[str], None]]:
    """Chooses a vector path of the CPU backends, and restores it after the test."""
    before = machine.simd()
    yield machine.set_simd
    machine.set_simd(before)


@pytest.fixture
def data() -> Callable[[str], Any]:
    """Loads a real data set that does not ship with the package."""

    def load(name: str) -> Any:
        path = DATA / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"needs {name}.npz in {os.path.relpath(DATA)}")
        return np.load(path)

    return load


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports a script of bench or lab/paper by its name."""
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.syspath_prepend(str(ROOT / "lab" / "paper"))
    return importlib.import_module


@pytest.fixture
def reference() -> Callable[..., Any]:
    """Calls a function in the reference implementation, whatever the backend of the test."""

    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with dispatch.forced("reference"):
            return function(*args, **kwargs)

    return call


# ------------------------------------------------------------------------------- what several files of tests use


def slope(loss: Callable[[], float], x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Returns central differences of a number with respect to each element of x, in float64."""
    grad = np.empty_like(x)
    for at in np.ndindex(x.shape):
        old = x[at]
        x[at] = old + step
        above = loss()
        x[at] = old - step
        grad[at] = (above - loss()) / (2 * step)
        x[at] = old
    return grad


FOUR_PARTS = re.compile(r"^.+: expected .+, got .+; .+", re.DOTALL)
"""Parts of a message: argument, expected, got, remedy."""


@contextlib.contextmanager
def refused(error: type[Exception] | tuple[type[Exception], ...], words: str) -> Iterator[None]:
    """Checks that a block raises an error whose message matches words and has all four parts."""
    with pytest.raises(error, match=words) as caught:
        yield
    assert FOUR_PARTS.match(str(caught.value))


def differences(got: Any, want: Any, name: str = "") -> Iterator[str]:
    """Yields names of the parts of nested tuples and dictionaries of arrays that are not bit-identical."""
    if isinstance(want, dict) and got.keys() == want.keys():
        for part in want:
            yield from differences(got[part], want[part], f"{name}.{part}")
    elif isinstance(want, tuple | list) and len(got) == len(want):
        for part, a, b in zip(getattr(want, "_fields", range(len(want))), got, want, strict=True):
            yield from differences(a, b, f"{name}.{part}")
    elif isinstance(want, tuple | list | dict):
        yield f"{name}: other parts"
    else:
        a, b = np.asarray(got), np.asarray(want)
        same = got == want if a.dtype == b.dtype == object else a.tobytes() == b.tobytes()
        if a.dtype != b.dtype or a.shape != b.shape or not same:
            yield name


def same_bits(got: Any, want: Any) -> bool:
    """Returns whether nested tuples and dictionaries of arrays are bit-identical, dtypes and shapes included."""
    return not any(True for _ in differences(got, want))


def assert_same_bits(got: Any, want: Any) -> None:
    """Fails if results are not bit-identical."""
    assert list(differences(got, want)) == []


def check_damage(path: Path, load: Callable[[Path], Any], n_places: int) -> None:
    """Checks that a file, truncated or with a changed byte, is loaded without a difference or refused.

    Most places are in the headers and the directory of the archive.
    """
    whole, want, rng, refused = path.read_bytes(), load(path), np.random.default_rng(0), 0
    directory = whole.index(b"PK\1\2")
    for i in range(n_places):
        content = bytearray(whole)
        if i % 4 == 0:
            content = content[: rng.integers(len(whole))]
        else:
            content[rng.integers(directory if i % 2 else 0, len(whole))] ^= rng.integers(1, 256)
        path.write_bytes(content)
        message = ""
        try:
            got = load(path)
        except ValueError as fault:
            message = str(fault)
        if message:
            refused += 1
            assert FOUR_PARTS.match(message)
            assert str(path) in message
        else:
            assert same_bits(got, want), f"place {i}"
    assert refused > n_places / 2


def check_changed(path: Path, load: Callable[[Path], Any], changes: Any, words: str) -> None:
    """Checks that a file is refused whose arrays are changed: by value, by a function, or left out (None).

    The changes are a dictionary, or a function that makes it of all arrays.
    """
    with np.load(path) as file:
        arrays = dict(file)
    for name, change in (changes(arrays) if callable(changes) else changes).items():
        arrays[name] = change(arrays[name]) if callable(change) else change
    np.savez(path, **{name: a for name, a in arrays.items() if a is not None})
    with refused(ValueError, rf"(?s){re.escape(str(path))}.*{words}"):
        load(path)


class Table:
    """An object that `numpy.asarray` converts to an array, like a data frame."""

    def __init__(self, a: Any) -> None:
        self.a = a

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.a, dtype)


def converted(x: np.ndarray, name: str) -> Any:
    """Returns samples in a layout, of a kind, or of a dtype."""
    kinds: dict[str, Callable[[np.ndarray], Any]] = {
        "fortran": np.asfortranarray, "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
        "rows apart": lambda x: np.repeat(x, 2, 0)[::2], "columns apart": lambda x: np.repeat(x, 2, 1)[:, ::2],
        "table": Table, "frame": lambda x: pytest.importorskip("pandas").DataFrame(x), "list": np.ndarray.tolist,
    }  # fmt: skip
    return kinds[name](x) if name in kinds else x.astype(name)


def error(forest: Any, x: np.ndarray, y: np.ndarray) -> float:
    """Returns the share of labels that a forest does not predict."""
    return float((hforest.tree.predict(forest, x).argmax(axis=1) != y).mean())


@pytest.fixture(scope="session")
def digits() -> tuple[np.ndarray, ...]:
    """Samples and labels of the handwritten digits, for training and for testing."""
    from hforest import demo

    data = demo.load_digits()
    return (
        data.x_train.astype(np.float32), data.y_train.astype(np.int32), data.x_test.astype(np.float32),
        data.y_test.astype(np.int32),
    )  # fmt: skip
