"""Vector bodies of the scorers of growth in plain C: every width on every processor, and NEON."""

import platform
import shutil

import pytest
from conftest import HEADERS, built, run

from hforest.core import machine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not [*HEADERS.rglob("*.h")] or "vector" not in machine.simd_paths(),
        reason="needs the headers beside the tests, and a compiler with vector types",
    ),
]


WIDTHS = ["16 bytes", "64 bytes"]
"""The widths that every compiler with vector types makes."""


@pytest.mark.parametrize(
    "flags", [["-O3"], ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"]]
)
def test_bodies_of_all_widths_have_the_sums_of_loops(tmp_path, flags):
    program = built(tmp_path, "bodies.c", "cc", *flags)
    done = run(program)
    assert done.returncode == 0, done.stdout + done.stderr
    widths = [*WIDTHS, *(["32 bytes"] if "avx2" in machine.simd_paths() else [])]
    assert done.stdout.splitlines() == [f"{width}: 0 disagreements" for width in widths]
    done = run(program, "spoil")
    assert done.returncode == len(widths)
    assert " 0 disagreements" not in done.stdout


def test_bodies_of_neon_have_the_sums_of_loops(tmp_path):
    if platform.machine() == "aarch64":
        pytest.skip("this machine is one: the native test has done it")
    if shutil.which("qemu-aarch64") is None:
        pytest.skip("needs qemu-aarch64")
    done = run("qemu-aarch64", built(tmp_path, "bodies.c", "aarch64-linux-gnu-gcc", "-O3", "-static"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [f"{width}: 0 disagreements" for width in WIDTHS]
