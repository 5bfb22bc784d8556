"""Which tests run: without the slow ones every pair of values of two axes; with --for the files of one folder."""

import itertools
import subprocess
import sys
from types import SimpleNamespace

import pytest
from conftest import ROOT, covering, pytest_ignore_collect

AXES = [(2, 2, 2), (9, 2, 3), (4, 5, 2, 3), (2,) * 7]


def lost(rows, kept):
    """Pairs of values of two columns that rows hold, and kept ones do not."""
    pairs = [
        {((i, row[i]), (j, row[j])) for row in some for i in range(len(row)) for j in range(i)}
        for some in (rows, kept)
    ]
    return pairs[0] - pairs[1]


@pytest.mark.parametrize("sizes", AXES)
@pytest.mark.parametrize("step", [1, 3])  # with 3, some combinations alone
def test_every_pair_is_covered(sizes, step):
    rows = list(itertools.product(*map(range, sizes)))[::step]
    kept = covering(rows)
    assert kept == sorted(set(kept))
    assert kept == covering(rows)
    assert not lost(rows, [rows[i] for i in kept])
    assert step > 1 or len(kept) < len(rows)
    # A pair that no kept row holds is seen.
    (i, a), (j, b) = min(lost(rows, []))
    assert lost(rows, [rows[k] for k in kept if (rows[k][i], rows[k][j]) != (a, b)])


def test_few_rows():
    assert covering([(1, 2, 3)]) == [0]
    assert covering([]) == []


CASES = """
import pytest

@pytest.fixture(params=["p", "q"])
def fixture(request):
    return request.param

@pytest.mark.parametrize(("a", "b"), [(0, 0), (0, 1), (1, 0), pytest.param(1, 1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("c", [0, 1, 2])
def test_three(fixture, a, b, c):
    pass

@pytest.mark.parametrize("a", [0, 1])
@pytest.mark.parametrize("c", [0, 1, 2])
def test_two(a, c):
    pass
"""


def test_every_pair_is_not_slow(tmp_path):
    (tmp_path / "test_cases.py").write_text(CASES)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", "-q"]
    command += ["-p", "conftest", "--collect-only", "-m", "not slow", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "tests", timeout=120)
    assert "15/30 tests collected (15 deselected)" in done.stdout, done.stdout + done.stderr
    names = [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    assert sum("two" in name for name in names) == 6
    # Every pair of the three axes, of which (a, b) is one; the case that says slow of itself stays slow.
    values = [name.partition("[")[2].rstrip("]").split("-") for name in names if "three" in name]
    rows = [(fixture, f"{a}-{b}", c) for fixture, c, a, b in values]
    assert len(rows) == 9
    assert not lost(list(itertools.product("pq", ["0-0", "0-1", "1-0"], "012")), rows)


def test_files_of_a_folder():
    def run(folder):
        config = SimpleNamespace(getoption={"folder": folder}.get)
        files = [*(ROOT / "tests").rglob("test_*.py"), ROOT / "tests"]
        return {path.name for path in files if not pytest_ignore_collect(path, config)}

    of_code = {"test_architecture.py", "test_docs.py", "tests"}
    assert run("hforest/onnx") == {"test_onnx.py"} | of_code
    assert run("hforest/split/") == {"test_split.py", "test_overlap.py"} | of_code
    assert {"test_hinge.py", "test_hinge_paths.py", "test_training.py", "test_seeded_faults.py"} <= run("hinge")
    assert run(None) >= {"test_growth.py", "test_jax.py"}
    with pytest.raises(pytest.UsageError, match=r"^--for: expected a folder of hforest, .*, got hinges; "):
        run("hinges")
