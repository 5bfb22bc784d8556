"""Vector paths of routing in plain C: natively, under sanitizers, and for other processors."""

import platform
import shutil

import numpy as np
import pytest
from conftest import HEADERS, built, run

from hforest import hinge
from hforest.core import machine

pytestmark = pytest.mark.skipif(not [*HEADERS.rglob("*.h")], reason="needs the headers beside the tests")


@pytest.mark.parametrize("level", ["-O1", pytest.param("-O3", marks=pytest.mark.slow)])
def test_paths_have_the_bits_of_the_plain_loop(tmp_path, level):
    if "vector" not in machine.simd_paths():
        pytest.skip("the build has no vector types")
    program = built(tmp_path, "routes.c", "cc", level)
    done = run(program)
    assert done.returncode == 0, done.stdout + done.stderr
    checked = [line.split(":")[0] for line in done.stdout.splitlines()]
    assert checked == [*(name for name in machine.simd_paths() if name != "plain"), "64 bytes"]
    assert done.stdout.count(" 0 disagreements") == len(checked)
    # With "spoil" the program changes one result, and the comparison must fail.
    done = run(program, "spoil")
    assert done.returncode == 1
    assert " 0 disagreements" not in done.stdout


@pytest.mark.slow
def test_paths_are_clean_under_sanitizers(tmp_path):
    if "vector" not in machine.simd_paths():
        pytest.skip("the build has no vector types")
    flags = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    done = run(built(tmp_path, "routes.c", "cc", *flags))
    assert done.returncode == 0, done.stdout + done.stderr


def test_neon_has_the_bits_of_the_plain_loop(tmp_path):
    if platform.machine() == "aarch64":
        pytest.skip("this machine is one: the native test has done it")
    if shutil.which("qemu-aarch64") is None:
        pytest.skip("needs qemu-aarch64")
    done = run("qemu-aarch64", built(tmp_path, "routes.c", "aarch64-linux-gnu-gcc", "-O3", "-static"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "vector: " in done.stdout


@pytest.mark.parametrize("path", machine.simd_paths())
@pytest.mark.parametrize("kind", ["tree", "fern"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_share_the_tiles_of_few_samples(simd, threads, dtype, kind, path):
    # Fewer blocks than threads: threads divide the trees, after all of them have transposed the input.
    rng = np.random.default_rng(1)
    for n, n_features, n_trees in ((40, 700, 600), (97, 19, 400)):
        t, f, _ = hinge.init(n_trees, 5, n_features, kind=kind, dtype=dtype, rng=rng)
        x = rng.normal(size=(n, n_features)).astype(dtype)
        results = []
        for name, count in (("plain", 1), (path, 1), (path, 2), (path, 7)):
            simd(name)
            threads(count)
            results.append(hinge.traverse(x, t, f, kind=kind))
        for other in results[1:]:
            for a, b in zip(results[0], other, strict=True):
                assert a.tobytes() == b.tobytes()
