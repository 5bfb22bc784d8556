"""Memory of large arrays that is kept for the next ones."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import hforest
from hforest import hinge
from hforest.core import recycle

MB = 1 << 20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is recycled on Linux alone")


@pytest.fixture(autouse=True)
def _fresh():
    recycle.set_limit(0)
    recycle.set_limit(512 * MB)
    yield
    recycle.set_limit(0)
    recycle.set_limit(512 * MB)


def address(a):
    return a.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float64, np.int64])
@pytest.mark.parametrize("shape", [(3 * MB,), (1500, 1000), 5, (0, 7), (100, 200, 300)])
def test_arrays_are_plain_ones(shape, dtype):
    a = recycle.empty(shape, dtype)
    want = np.empty(shape, dtype)
    assert type(a) is np.ndarray
    assert (a.shape, a.dtype, a.strides) == (want.shape, want.dtype, want.strides)
    assert a.flags.carray
    assert isinstance(a.base, recycle.Block) == (a.nbytes >= 4 * MB)
    a[...] = 3
    assert (a == 3).all()


def test_memory_comes_back_where_it_fits():
    a = recycle.empty(16 * MB, np.uint8)
    place = address(a)
    assert recycle.kept() == 0
    del a
    assert recycle.kept() == 16 * MB
    # Neither for more, nor for much less.
    more, less = recycle.empty(17 * MB, np.uint8), recycle.empty(8 * MB, np.uint8)
    assert place not in (address(more), address(less))
    assert address(recycle.empty((1000, 3900), np.float32)) == place
    assert recycle.kept() == 16 * MB


def test_the_limit_holds_and_the_oldest_goes():
    recycle.set_limit(40 * MB)
    arrays = [recycle.empty(n * MB, np.uint8) for n in (10, 12, 14, 16, 50)]
    places = [address(a) for a in arrays]
    while arrays:
        del arrays[0]
        assert recycle.kept() <= 40 * MB
    assert recycle.kept() == 30 * MB  # 14 + 16
    assert address(recycle.empty(14 * MB, np.uint8)) == places[2]
    recycle.set_limit(0)
    assert recycle.kept() == 0
    assert not isinstance(recycle.empty(14 * MB, np.uint8).base, recycle.Block)


def test_many_blocks():
    arrays = [recycle.empty(4 * MB, np.uint8) for _ in range(100)]
    assert len({address(a) for a in arrays}) == 100
    arrays.clear()
    assert 0 < recycle.kept() <= 128 * MB


def test_views_keep_their_memory():
    a = recycle.empty((2048, 1024), np.int32)
    a[...] = np.arange(1024)
    view = a[5:, ::2].T
    place = address(a)
    del a
    assert recycle.kept() == 0
    b = recycle.empty((2048, 1024), np.int32)
    b[...] = -1
    assert address(b) != place
    assert (view[3] == 6).all()
    del view
    assert recycle.kept() == 8 * MB


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("most", [0, 64 * MB])
def test_nothing_leaks(most):
    recycle.set_limit(most)
    before = resident()
    for n in range(60):
        recycle.empty((20 + n % 7) * MB, np.uint8)[...] = n
    assert recycle.kept() <= most
    assert resident() - before < most + 32 * MB


def test_results_of_public_functions_outlive_the_next_calls():
    rng = np.random.default_rng(0)
    t, f, w = hinge.tree_init(300, 4, 10, 2, rng=rng)
    inputs = [rng.normal(size=(5000, 10)).astype(np.float32) for _ in range(2)]
    want = [[a.copy() for a in hinge.tree_traverse(x, t, f)] for x in inputs]
    kept = recycle.kept()
    assert kept >= 3 * 5 * MB
    results = [hinge.tree_traverse(x, t, f) for x in inputs]
    hinge.tree_forward(inputs[0], t, f, w, aggregate="sum", return_route=True)
    for got, expected in zip(results, want, strict=True):
        for a, b in zip(got, expected, strict=True):
            assert a.tobytes() == b.tobytes()
    assert isinstance(results[0][0].base, recycle.Block)


def test_threads_never_share():
    wrong = []

    def work(number):
        rng = np.random.default_rng(number)
        held = []
        for i in range(150):
            a = recycle.empty(int(rng.integers(4, 9)) * MB, np.uint8)
            stamp = (number * 31 + i) % 251
            a[:: 1 << 12] = stamp
            held.append((a, stamp))
            if len(held) > 3:
                b, stamp = held.pop(int(rng.integers(4)))
                if not (b[:: 1 << 12] == stamp).all():
                    wrong.append((number, i))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
    assert recycle.kept() <= 512 * MB


FORK = """
import os, threading, warnings
import numpy as np
from hforest.core import recycle
warnings.simplefilter("ignore")
stop = threading.Event()
def churn():
    while not stop.is_set():
        recycle.empty(5 << 20, np.uint8)[::4096] = 1
workers = [threading.Thread(target=churn) for _ in range(3)]
for worker in workers: worker.start()
mine = recycle.empty(8 << 20, np.uint8)
mine[:] = 7
del_later = recycle.empty(6 << 20, np.uint8)
for _ in range(30):
    child = os.fork()
    if child == 0:
        mine[:] = 9
        for n in range(5):
            a = recycle.empty((4 + n) << 20, np.uint8)
            a[:] = n
        del del_later
        os._exit(0 if (a == 4).all() and (mine == 9).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (mine == 7).all()
stop.set()
for worker in workers: worker.join()
print("all children well")
"""


def test_forked_processes_go_on():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120)
    assert "all children well" in done.stdout, done.stderr


def test_environment_and_switch():
    code = (
        "import numpy as np; from hforest.core import recycle; "
        "recycle.empty(16 << 20, np.uint8); print(recycle.kept() >> 20)"
    )
    for text, kept in (("", "16"), ("0", "0"), ("8", "0"), ("16", "16")):
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True,
            env={**os.environ, "HFOREST_RECYCLE": text},
        )  # fmt: skip
        assert done.stdout.strip() == kept
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True,
        env={**os.environ, "HFOREST_RECYCLE": "lots"},
    )  # fmt: skip
    assert "HFOREST_RECYCLE: expected megabytes" in done.stderr
    recycle.empty(16 * MB, np.uint8)
    assert recycle.kept()
    hforest.keep_memory(0)
    assert recycle.kept() == 0
    with pytest.raises(ValueError, match="n_bytes"):
        hforest.keep_memory(-1)


def test_too_much_is_refused():
    with pytest.raises(MemoryError):
        recycle.empty((1 << 61,), np.uint8)
    with pytest.raises(ValueError, match="negative dimensions"):
        recycle.empty((-3, 1 << 30), np.float32)
