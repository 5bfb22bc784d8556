"""The vector bodies of growth's scorers and CO2's stumps as C alone: every width on every processor, and NEON."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from hforest.core import machine

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "tests" / "host"
# The widths that every compiler with vector types makes.
WIDTHS = {"bodies.c": ["16 bytes", "64 bytes"], "rows.c": ["64 bytes"]}
HEADERS = ROOT / "hforest"
FLAGS = [
    "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Werror", "-Wno-unused-function", "-Wno-psabi",
]  # fmt: skip
SECONDS = 300

pytestmark = pytest.mark.skipif(
    not (HEADERS / "growth" / "simd" / "bodies.h").exists() or "vector" not in machine.simd_paths(),
    reason="needs the headers beside the tests, and a compiler with vector types",
)


def build(tmp_path, source, compiler, *flags):
    """The program, or a skip where the compiler or what it links with is missing."""
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    program = tmp_path / "bodies"
    command = [compiler, *FLAGS, *flags, f"-I{HEADERS}", str(SOURCES / source), "-o", str(program), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if "cannot find" in done.stderr:
        pytest.skip(f"{compiler} has not what {' '.join(flags)} links with")
    assert done.returncode == 0, done.stderr
    return program


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=SECONDS)


@pytest.mark.parametrize("source", WIDTHS)
@pytest.mark.parametrize(
    "flags", [["-O3"], ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"]]
)
def test_bodies_of_all_widths_have_the_sums_of_loops(tmp_path, source, flags):
    program = build(tmp_path, source, "cc", *flags)
    done = run(program)
    assert done.returncode == 0, done.stdout + done.stderr
    widths = [*WIDTHS[source], *(["32 bytes"] if "avx2" in machine.simd_paths() else [])]
    assert done.stdout.splitlines() == [f"{width}: 0 disagreements" for width in widths]
    done = run(program, "spoil")
    assert done.returncode == len(widths)
    assert " 0 disagreements" not in done.stdout


@pytest.mark.parametrize("source", WIDTHS)
def test_bodies_of_neon_have_the_sums_of_loops(tmp_path, source):
    if platform.machine() == "aarch64":
        pytest.skip("this machine is one: the native test has done it")
    if shutil.which("qemu-aarch64") is None:
        pytest.skip("needs qemu-aarch64")
    done = run("qemu-aarch64", build(tmp_path, source, "aarch64-linux-gnu-gcc", "-O3", "-static"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [f"{width}: 0 disagreements" for width in WIDTHS[source]]
