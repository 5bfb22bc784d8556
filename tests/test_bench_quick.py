"""bench/*.py with --quick, the option of `options_of` in bench/common.py: no error, and no changed record."""

import subprocess
import sys

import pytest
from conftest import BENCH

NOTHING_MEASURED = {"counts": [], "data": ["--list"], "performance": []}
"""Scripts without --quick, and the words with which they run here."""
KERNELS = ("co2", "grow", "hinge", "kernels", "neural", "predict", "split", "stats", "windows")
SCRIPTS = sorted(path.stem for path in BENCH.glob("*.py") if "\ndef main(" in path.read_text())


def test_every_script_has_a_quick_form():
    assert len(SCRIPTS) > 50
    without = [name for name in SCRIPTS if "= options_of(" not in (BENCH / f"{name}.py").read_text()]
    assert without == sorted(NOTHING_MEASURED)


@pytest.mark.parametrize(
    "name",
    [pytest.param(a, marks=pytest.mark.slow if a in KERNELS else pytest.mark.nightly) for a in SCRIPTS],
)
def test_a_script_runs_with_small_sizes(name, tmp_path):
    def records():
        return {path.name: path.read_bytes() for path in (BENCH / "results").iterdir()}

    before = records()
    command = [sys.executable, BENCH / f"{name}.py", *NOTHING_MEASURED.get(name, ["--quick"])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.strip()
    assert records() == before
    assert list(tmp_path.iterdir()) == []
