"""Processes in which another library has set a floating-point state that takes subnormal numbers for 0."""

import ctypes
import platform
import shutil
import subprocess
from contextlib import contextmanager

import numpy as np
import pytest
from conftest import assert_same_bits

import hforest
from hforest import co2, hinge, optim, project, tree

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or shutil.which("cc") is None,
    reason="needs an x86-64 processor and the command cc",
)

CODE = """
unsigned get(void) { return __builtin_ia32_stmxcsr(); }
void set(unsigned state) { __builtin_ia32_ldmxcsr(state); }
"""
FLUSHED = 0x8040
"""Bits of the state by which subnormal results and operands are 0."""
TINY = np.float32(1e-40)


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    folder = tmp_path_factory.mktemp("state")
    (folder / "state.c").write_text(CODE)
    library = folder / "state.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", str(folder / "state.c"), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


@contextmanager
def other(state, bits):
    """Sets bits of the state; checks at the end that they are still set."""
    before = state.get()
    state.set(before | bits)
    try:
        yield
        assert state.get() & 0xFFC0 == (before | bits) & 0xFFC0
    finally:
        state.set(before)


def calls():
    """Returns calls on numbers of which most are subnormal."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 20)).astype(np.float32) * TINY
    t, f, w = hinge.init(20, 4, 20, 3, rng=0)
    t = rng.normal(size=t.shape).astype(np.float32) * TINY
    of_ferns = [np.ascontiguousarray(a[:, :4]) for a in (t, f)]
    y, route = hinge.forward_with_route(x, t, f, w, aggregate="sum")
    grown = hforest.grow(x[:300] / TINY, x[:300, 0] > 0, 10, rng=0)
    small = hforest.grow(x[:300] / TINY, x[:300, 0], 10, task="regression", rng=0)
    scaled = grown._replace(threshold=grown.threshold * TINY)
    values = small._replace(value=small.value * TINY, threshold=small.threshold * TINY)
    prepared = tree.prepare(scaled)
    oblique = project.sample(project.sparse_distribution(20), 50, rng=0)[:3]
    labels, theta = rng.integers(0, 3, 3000), np.zeros((2, 3), np.float32)
    p, g, m = rng.normal(size=(3, 300, 4)).astype(np.float32) * TINY
    v, last = np.zeros((300, 4), np.float32), np.zeros(300, np.int64)
    return {
        "traverse": lambda: hinge.traverse(x, t, f),
        "ferns": lambda: hinge.forward(x, of_ferns[0], of_ferns[1], w, kind="fern"),
        "forward": lambda: hinge.forward(x, t, f, w, aggregate="mean"),
        "backward": lambda: [
            a for a in hinge.backward(y, route, x, t, f, w, aggregate="sum") if a is not None
        ],
        "predict": lambda: tree.predict(scaled, x),
        "predict small values": lambda: tree.predict(values, x),
        "apply": lambda: tree.apply(scaled, x),
        "predict rows one by one": lambda: [tree.predict(scaled, x[i : i + 1]) for i in range(50)],
        "predict prepared rows": lambda: [tree.predict(prepared, x[i : i + 1]) for i in range(50)],
        "forward of a row": lambda: [
            hinge.forward(x[i : i + 1], t, f, w, aggregate="sum") for i in range(20)
        ],
        "project": lambda: project.project(x, *oblique),
        "adam": lambda: moved(optim.adam, p, g, m, v),
        "adam of rows": lambda: moved(optim.adam_rows, p, np.arange(0, 300, 3), g[::3].copy(), m, v, last),
        "co2": lambda: co2.surrogate(x, labels, x[0], theta[0], theta[1]),
        "stump": lambda: co2.fit_stump(x[:500], labels[:500], x[0], max_rounds=2, rng=0)[:3],
    }


def moved(step, *arrays):
    """Returns parameters and moments after a step of Adam."""
    arrays = [a.copy() for a in arrays]
    step(*arrays, 3, 0.1)
    return arrays


NAMES = (
    "traverse", "ferns", "forward", "backward", "apply", "predict", "predict small values", "predict rows one by one",
    "predict prepared rows", "forward of a row", "project", "adam", "adam of rows", "co2", "stump",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_results_do_not_depend_on_the_state_of_the_process(name, state, threads):
    call = calls()[name]
    want = call()
    for count in (1, 3):
        threads(count)
        with other(state, FLUSHED):
            got = call()
        assert_same_bits(got, want)


def test_the_state_of_the_library_would_change_results(state):
    """Otherwise the tests above could not fail."""
    x = np.full(100, TINY)
    with other(state, FLUSHED):
        assert not (x * np.float32(2)).any()
    assert (x * np.float32(2)).all()
