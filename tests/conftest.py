"""One body over twins: `twin` puts a test into the reference, the CPU twin, the CUDA twin on the host
(compiled as C++), or the CUDA twin on a GPU."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

import hforest
from hforest.core import dispatch, machine

hypothesis.settings.register_profile("hforest", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("hforest")

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@dataclass(frozen=True)
class Twin:
    """Where a test runs: its name, and how arrays get there and back."""

    name: str
    array: Callable[[Any], Any] = lambda a: a
    numpy: Callable[[Any], np.ndarray] = lambda a: a


def _gpu() -> Any:
    """CuPy, if it is installed and finds a device."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception:  # absence shows in many ways: no module, no driver, no device
        return None
    return cupy


@contextlib.contextmanager
def entered(name: str) -> Iterator[Twin]:
    if name == "reference":
        with hforest.using("reference"):
            yield Twin(name)
    elif name == "cpu":
        yield Twin(name)
    elif name == "host":
        from host.backend import have_compiler, host_backend

        if not have_compiler():
            pytest.skip("no C++ compiler to run the CUDA twin on the host")
        with host_backend():
            yield Twin(name)
    else:
        cupy = _gpu()
        if cupy is None:
            pytest.skip("no CuPy with a GPU")
        yield Twin(name, cupy.asarray, cupy.asnumpy)


@pytest.fixture(params=["reference", "cpu", "host"])
def twin(request: pytest.FixtureRequest) -> Iterator[Twin]:
    """A twin that takes NumPy arrays."""
    with entered(request.param) as twin:
        yield twin


@pytest.fixture(params=["cpu", "host", "gpu"])
def fast_twin(request: pytest.FixtureRequest) -> Iterator[Twin]:
    """A twin to hold against the reference; arrays go there by `array` and come back by `numpy`."""
    with entered(request.param) as twin:
        yield twin


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> type:
    return request.param


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of threads, and puts it back."""
    before = hforest.get_num_threads()
    yield hforest.set_num_threads
    hforest.set_num_threads(before)


@pytest.fixture
def simd() -> Iterator[Callable[[str], None]]:
    """Forces a vector path of the CPU twins, and puts it back."""
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
def reference() -> Callable[..., Any]:
    """Calls a door in the reference, whatever twin the test is in."""

    def call(door: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with dispatch.forced("reference"):
            return door(*args, **kwargs)

    return call
