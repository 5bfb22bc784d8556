"""docs/gpu.md: functions that run on a GPU, that compute on copies in host memory, and that refuse CuPy arrays."""

import importlib
import inspect
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import hforest
from hforest import cascade, co2, growth, hinge, images, neural, stats, tabular, tree

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gpu.md"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int32)
COUNTS = growth.bootstrap_counts(60, 3, rng=0)
FOREST = hforest.grow(X, Y, 3, bootstrap=COUNTS, rng=0)
TARGETS = tree.leaf_targets(FOREST, X, Y)


class Cupy(np.ndarray):
    """What `is_cupy` takes for an array of a GPU."""


def of_gpu(a):
    return np.asarray(a).view(Cupy)


def moved(arrays):
    return type(arrays)(*map(of_gpu, arrays))


@pytest.fixture
def cupy(monkeypatch):
    module = types.ModuleType("cupy")
    module.ndarray = Cupy
    monkeypatch.setitem(sys.modules, "cupy", module)


def names(row):
    """Returns the functions and subpackages in a row of the page's table, without arguments."""
    line = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {row}"))
    return [name.split("=")[0] for name in re.findall(r"`([^`]*)`", line.split(" | ")[1])]


def found(name):
    """Returns a public function or subpackage by its name on the page."""
    value = hforest
    for part in name.removeprefix("hforest.").split("."):
        value = getattr(value, part, None) or importlib.import_module(f"hforest.{part}")
    return value


REFUSED = {
    "tree.prepare": lambda: tree.prepare(moved(FOREST)),
    "tree.quantiles": lambda: tree.quantiles(FOREST, TARGETS, of_gpu(X), [0.5]),
    "tree.proximity": lambda: tree.proximity(FOREST, of_gpu(X)),
    "tree.refit": lambda: tree.refit(FOREST, of_gpu(X), Y),
    "tree.prune": lambda: tree.prune(FOREST, 0.1, of_gpu(X)),
    "tree.out_of_bag": lambda: tree.out_of_bag(FOREST, of_gpu(X), COUNTS),
    "tree.leaf_targets": lambda: tree.leaf_targets(FOREST, of_gpu(X), Y),
    "tree.shap_values": lambda: tree.shap_values(FOREST, of_gpu(X)),
    "hinge.prepare": lambda: hinge.prepare(*map(of_gpu, hinge.init(3, 3, 4, 2, rng=0))),
    "co2.search": lambda: co2.search(of_gpu(X), Y, rng=0),
    "co2.grow": lambda: co2.grow(of_gpu(X), of_gpu(Y), 2, splitter="oc1", rng=0),
    "neural.fit": lambda: neural.fit(neural.linear_init(4, 2, 3, 2, rng=0), of_gpu(X), Y, rng=0),
    "stats": lambda: stats.permutation_test(of_gpu(X), Y, rng=0),
    "cascade": lambda: cascade.grow(of_gpu(X), Y, rng=0),
    "tabular": lambda: tabular.fit(of_gpu(X), Y, rng=0),
    "images": lambda: images.boxes(of_gpu(X[None, ..., None]), [[0, 0, 1, 1]]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_functions_that_refuse_arrays_of_a_gpu(name, cupy):
    with pytest.raises(TypeError, match="a CuPy array; this function runs on the CPU: pass cupy.asnumpy"):
        REFUSED[name]()


def test_the_row_of_refused_functions_is_tested():
    assert {name for name in names("raise") if "splitter" not in name} == set(REFUSED)


@pytest.mark.parametrize("name", names("compute"))
def test_functions_that_copy_to_the_host(name):
    if name == "plot":
        pytest.importorskip("matplotlib")
    value = found(name)
    module = inspect.getmodule(value)
    files = [module.__file__] if module.__file__.endswith(".py") else []
    if inspect.ismodule(value):
        files = list(Path(value.__file__).parent.glob("*.py"))
    text = "\n".join(Path(file).read_text(encoding="utf-8") for file in files)
    assert re.search(r"\b(?:on_host|to_numpy)\(|\.get\(\)|CuPy arrays are copied", text), name


@pytest.mark.parametrize("name", names("run"))
def test_functions_that_run_on_a_gpu_have_a_backend(name):
    value = found(name)
    package = Path(
        (value if inspect.ismodule(value) else found(value.__module__.split(".")[1])).__file__
    ).parent
    assert (package / "gpu.py").exists() or (package / "gpu").is_dir(), name
