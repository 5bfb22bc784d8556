"""Calls without enough memory: if any single allocation fails, they raise MemoryError and free all memory."""

import ctypes
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from growers import GROWERS, grow
from memory_in_use import in_use, mallinfo

import hforest
from hforest import co2, scale, split, tree

TESTS = Path(__file__).resolve().parent


def _calls():
    """Returns calls by name: growth of two trees of each kind, then functions of trees."""
    rng = np.random.default_rng(0)
    x, y, z = rng.integers(0, 60, (80, 4)).astype(np.float64), rng.integers(0, 3, 80), rng.normal(size=80)
    few, gaps = scipy.sparse.csr_array(x * (rng.random(x.shape) < 0.3)), np.where(x > 50, np.nan, x)
    sparse, oblique = GROWERS["sparse"], {"max_rounds": 2, "min_samples_oblique": 1, "rng": 0}
    forest, projected = hforest.grow(x, y, 2, rng=0), sparse(x, y, 2, rng=0)
    wide = forest._replace(n_features=np.array(2000))
    targets, columns = tree.leaf_targets(forest, x, z), np.ascontiguousarray(x.T)
    return {
        "numbers": partial(hforest.grow, x, y, 2, rng=0),
        "targets": partial(hforest.grow, x, z, 2, task="regression", rng=0),
        "entropy": partial(hforest.grow, x, y, 2, criterion="entropy", rng=0),
        "random thresholds": partial(grow, x, y, 2, kind="extra", rng=0),
        "missing": partial(hforest.grow, gaps, y, 2, rng=0),
        "categories": lambda: hforest.grow(hforest.samples(gaps, categorical=[0, 1]), y, 2, rng=0),
        "sparse": partial(hforest.grow, few, y, 2, rng=0),
        "projections": partial(sparse, x, y, 2, rng=0),
        "projections of fractions": partial(sparse, x / 7, z, 2, task="regression", rng=0),
        "sparse projections": partial(sparse, few, y, 2, rng=0),
        "hyperplanes": partial(co2.grow, x, y, 2, **oblique),
        "oc1": partial(co2.grow, x, y, 2, splitter="oc1", **oblique),
        "stump": partial(co2.fit_stump, x, y, x[0], n_classes=3, max_rounds=2, rng=0),
        "refine": partial(co2.refine, forest, x, y, max_rounds=2, rng=0),
        "fit oc1": partial(co2.fit_oc1, x, y, x[0], n_classes=3, rng=0),
        "by rows": partial(scale.grow_by_rows, None, x, y, 2, max_gathered=20, rng=0),
        "apply": partial(tree.apply, forest, x),
        "predict": partial(tree.predict, forest, x),
        "predict a row": partial(tree.predict, forest, x[:1]),
        "predict sparse rows": partial(tree.predict, forest, few),
        "prepare": partial(tree.prepare, forest),
        "predict a wide prepared row": partial(tree.predict, tree.prepare(wide), np.zeros((1, 2000))),
        "predict wide prepared rows": partial(tree.predict, tree.prepare(wide), np.zeros((9, 2000))),
        "check": partial(tree.check, tree.Forest(*projected)),
        "quantiles": partial(tree.quantiles, forest, targets, x, [0.5]),
        "proximity": partial(tree.proximity, forest, x),
        "split of classes": partial(split.best_split, columns, y, n_classes=3),
        "split of targets": partial(split.best_split, columns, z, task="regression"),
    }


ALLOCATIONS = {
    "by rows": 11, "apply": 4, "predict": 5, "predict a row": 1, "predict sparse rows": 6, "prepare": 7,
    "predict a wide prepared row": 1, "predict wide prepared rows": 1, "check": 1,
    "quantiles": 6, "proximity": 6, "split of classes": 3, "split of targets": 3,
}  # fmt: skip
"""Minimum number of allocations of a call; other calls have at least 10."""
FAST = ("numbers",)
"""Calls whose tests are in README's command."""


def fail_at_each(kind):
    """Lets each allocation of the arenas fail in turn; prints the number of allocations. Runs under failing.c."""
    shim, run = ctypes.CDLL(None), _calls()[kind]
    shim.fail_at.argtypes = [ctypes.c_char_p, ctypes.c_long]
    hforest.set_num_threads(1)  # other threads have heaps of their own
    run()
    used = []
    for _ in range(3):
        n, failed = 0, True
        while failed:
            message = ""
            shim.fail_at(b"core/arena", n)
            try:
                run()
            except MemoryError as error:
                message = str(error)
            failed = bool(shim.has_failed())
            assert not failed or "no memory" in message
            n += failed
        shim.fail_at(b"", -1)
        used.append(in_use()[1])
    assert used[2] - used[1] < 16 * n  # bytes; the smallest block of the heap has 32
    print(n)


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """Compiles failing.c; returns the library's path."""
    if sys.platform != "linux" or mallinfo is None or shutil.which("cc") is None:
        pytest.skip("needs Linux, mallinfo2 of glibc and a C compiler")
    if "LD_PRELOAD" in os.environ:
        pytest.skip("a sanitizer has an allocator of its own")
    library = tmp_path_factory.mktemp("failing") / "failing.so"
    subprocess.run(
        ["cc", "-O1", "-shared", "-fPIC", str(TESTS / "failing.c"), "-o", str(library), "-ldl"], check=True
    )
    return library


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind not in FAST)) for kind in _calls()]
)
def test_no_memory_is_an_error_and_no_leak(shim, kind):
    done = subprocess.run(
        [sys.executable, "-c", f"import test_failing_memory as t; t.fail_at_each({kind!r})"],
        cwd=TESTS,
        env={**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= ALLOCATIONS.get(kind, 10)
