"""Mutation tests, on a package of one file with one file of tests."""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ROOT
from mutate import __main__ as command
from mutate.copies import Copy, Done
from mutate.mutants import KINDS, Mutant, mutants, valid

TOY = b'''"""Toy: 1 + 1 < 3."""

from typing import Literal


def root(n: Literal[5] = 7, *, exact: bool = False) -> Literal[6]:
    """Returns a root, for n >= 0."""
    if n < 0:
        raise ValueError(f"n: expected {0}, got " + str(n - 1))  # 1 + 1
    low = 0
    while low * low < n:
        low += 1
    print("seen", low)
    return low


class Pair:
    def __repr__(self):
        return "(" + str(1 + 1) + ")"
'''
TESTS = """
import pytest
from hforest.toy import root

def test_root():
    assert [root(n) for n in (0, 4, 9)] == [0, 2, 3]

def test_negative():
    with pytest.raises(ValueError):
        root(-1)
"""
TOYS = {
    "cython": b'''"""1 < 2
    x = 1
"""
from libc.math cimport sqrt  # 1 + 1
cdef int f(int a, const double[::1] x) except -1:
    if a < 2:
        raise ValueError(f"{1 + 1}"
                         f"{1 + 2}")
    total = <double> a * x[1]
    return True
def g(x):
    x[0] = "1 + 1"
''',
    "c": b"""/* 1 < 2
    x = 1;
    */
#define N 5
static inline void add(const double *x, int n) {
    if (n < 2) return; // 1 + 1
    x[0] = x[1] + 0x1p-16 * 1.5f;
}
""",
}


HEADER = "def root(n: Literal[5] = 7, *, exact: bool = False) -> Literal[6]:"
PRINT = 'print("seen", low)'
RAISE = 'raise ValueError(f"n: expected {0}, got " + str(n - 1)) # 1 + 1'


def by_line(text, file="hforest/toy.py"):
    """Returns the changes of a file as 'operator: line => changed line'."""
    return {f"{m.operator}: {' => '.join(m.change(text))}" for m in mutants(file, text)}


def test_operators_of_python():
    loop = "while low * low < n:"
    assert by_line(TOY) == {
        f"constant: {HEADER} => {HEADER.replace('7', '8')}",
        f"constant: {HEADER} => {HEADER.replace('False', 'True')}",
        "relation: if n < 0: => if n <= 0:",
        "constant: if n < 0: => if n < 1:",
        "condition: if n < 0: => if (not (n < 0)):",
        f"deletion: {RAISE} => pass # 1 + 1",
        "return: if n < 0: => return if n < 0:",
        "return: low = 0 => return low = 0",
        "deletion: low = 0 => pass",
        "constant: low = 0 => low = 1",
        f"return: {loop} => return {loop}",
        f"arithmetic: {loop} => while low / low < n:",
        f"relation: {loop} => while low * low <= n:",
        f"condition: {loop} => while (not (low * low < n)):",
        "arithmetic: low += 1 => low -= 1",
        "constant: low += 1 => low += 0",
        "deletion: low += 1 => pass",
        f"return: {PRINT} => return {PRINT}",
        f"deletion: {PRINT} => pass",
    }
    for mutant in mutants("hforest/toy.py", TOY):
        assert valid(mutant, TOY)
        ast.parse(mutant.apply(TOY))
    for new in (b")", b" # the same"):
        assert not valid(Mutant("hforest/toy.py", "relation", len(TOY) - 1, len(TOY) - 1, new), TOY)


def test_operators_of_cython_and_c():
    assert by_line(TOYS["cython"], "hforest/toy.pyx") == {
        "relation: if a < 2: => if a <= 2:",
        "constant: if a < 2: => if a < 3:",
        "condition: if a < 2: => if not (a < 2):",
        "arithmetic: total = <double> a * x[1] => total = <double> a / x[1]",
        "constant: total = <double> a * x[1] => total = <double> a * x[0]",
        "deletion: total = <double> a * x[1] => pass",
        "constant: return True => return False",
        'constant: x[0] = "1 + 1" => x[1] = "1 + 1"',
        'deletion: x[0] = "1 + 1" => pass',
        'return: x[0] = "1 + 1" => return',
    }
    condition, line = "if (n < 2) return; // 1 + 1", "x[0] = x[1] + 0x1p-16 * 1.5f;"
    assert by_line(TOYS["c"], "hforest/toy.h") == {
        f"relation: {condition} => if (n <= 2) return; // 1 + 1",
        f"constant: {condition} => if (n < 3) return; // 1 + 1",
        f"condition: {condition} => if (!(n < 2)) return; // 1 + 1",
        f"constant: {line} => x[1] = x[1] + 0x1p-16 * 1.5f;",
        f"constant: {line} => x[0] = x[0] + 0x1p-16 * 1.5f;",
        f"constant: {line} => x[0] = x[1] + 0x1p-16 * 2.5f;",
        f"arithmetic: {line} => x[0] = x[1] - 0x1p-16 * 1.5f;",
        f"arithmetic: {line} => x[0] = x[1] + 0x1p-16 / 1.5f;",
        f"deletion: {line} => ;",
        f"return: {line} => return;",
    }


def test_mutants_of_the_package():
    """One file of each kind: a mutant of Python parses, and no file is without mutants."""
    for name in ("core/check.py", "split/cpu.pyx", "core/score.h", "split/gpu.cu"):
        file = f"hforest/{name}"
        text = (ROOT / file).read_bytes()
        found = mutants(file, text)
        assert {m.operator for m in found} >= {"relation", "arithmetic", "constant", "condition", "deletion"}
        if KINDS[Path(name).suffix] == "python":
            for mutant in found[::40]:
                ast.parse(mutant.apply(text))


def test_drawn_mutants_stay_when_other_lines_change():
    texts = {"hforest/toy.py": TOY}
    assert len(command.draw(texts, "1", 3)) == 3
    n_lines = len({m.line(TOY) for m in mutants("hforest/toy.py", TOY)})
    drawn = command.draw(texts, "1", 100)
    assert len(drawn) == n_lines
    assert command.draw(texts, "2", 100) != drawn
    moved = b"# more\n\n" + TOY
    # Lines of equal text are drawn separately.
    twice = {"hforest/toy.py": TOY + b"\n\ndef f(a):\n    a += 1\n" + b"    b = 3\n" * 30}
    n_same = [m.change(twice["hforest/toy.py"])[0] == "b = 3" for m in command.draw(twice, "1", 20)]
    assert 0 < sum(n_same) < 20
    again = command.draw({"hforest/toy.py": moved}, "1", 100)
    assert [m.change(moved) for m in again] == [m.change(TOY) for m in drawn]
    assert {m.line(TOY) for m in command.draw(texts, "1", 100, {("hforest/toy.py", 8)})} == {8}


@pytest.fixture
def toy(tmp_path):
    """A checkout of the toy package, with git."""
    root = tmp_path / "checkout"
    files = {
        "hforest/__init__.py": "", "hforest/toy.py": TOY.decode(), "tests/test_toy.py": TESTS,
        "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['slow']\n",
    }  # fmt: skip
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    shutil.copytree(ROOT / "lab" / "mutate", root / "lab" / "mutate")
    return root


REASON = """
[[mutant]]
file = "hforest/toy.py"
line = '{}'
becomes = "pass"
reason = "It prints."
"""


def measured(toy, tmp_path, monkeypatch, changes, reasons):
    """Runs mutants with these changes of lines; returns the exit status."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("HFOREST_LINES", raising=False)  # of a run that records these tests
    found = {m.change(TOY): m for m in mutants("hforest/toy.py", TOY)}
    monkeypatch.setattr(command, "draw", lambda *_: [found[change] for change in changes])
    (tmp_path / "mutants.toml").write_text(reasons)
    options = command._options(["--kinds", "python", "--cache", str(tmp_path / "cache")])
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    return command.measure(options, toy, command.Reasons(tmp_path / "mutants.toml"), folder)


def test_survivors_and_reasons(toy, tmp_path, monkeypatch, capsys):
    """A survivor with a reason and one without, a mutant that is killed, and a reason without a mutant."""
    before = {path: path.read_bytes() for path in toy.rglob("*") if path.is_file()}
    changes = [
        (PRINT, "pass"), (HEADER, HEADER.replace("7", "8")), (RAISE, "pass # 1 + 1"), ("if n < 0:", "if n <= 0:")
    ]  # fmt: skip
    reasons = REASON.format(PRINT) + REASON.format("low = 3")
    assert measured(toy, tmp_path, monkeypatch, changes, reasons) == 1
    assert before == {path: path.read_bytes() for path in toy.rglob("*") if path.is_file()}
    printed = capsys.readouterr().out
    assert re.findall(
        r"^ +(\d/\d) (\w+) .* (\d+) tests  hforest/toy.py:(\d+) (\w+)", printed, re.MULTILINE
    ) == [
        ("1/3", "survived", "2", "6", "constant"),
        ("2/3", "killed", "1", "9", "deletion"),
        ("3/3", "killed", "2", "8", "relation"),
    ]
    assert re.findall(r"^SURVIVOR: (.*)", printed, re.MULTILINE) == ["hforest/toy.py:6, constant"]
    assert f"-{HEADER}\n+{HEADER.replace('7', '8')}\n2 tests ran:\n      2 of tests/test_toy.py\n" in printed
    assert "STALE REASON: hforest/toy.py: no mutant changes 'low = 3' to 'pass'" in printed
    assert (
        "4 mutants, 1 with a reason, 0 that do not compile; of 3 others 2 killed (67 %), 0 of them" in printed
    )
    assert measured(toy, tmp_path, monkeypatch, [*changes[:1], *changes[2:]], REASON.format(PRINT)) == 0


def test_a_test_that_fails_of_itself_kills_nothing(toy, tmp_path, monkeypatch, capsys):
    of_itself = "import os\n\ndef test_second():\n    assert root(1) == 1 and 'HFOREST_LINES' in os.environ\n"
    (toy / "tests" / "test_toy.py").write_text(TESTS + of_itself)
    assert measured(toy, tmp_path, monkeypatch, [(PRINT, "pass")], "") == 0
    printed = capsys.readouterr().out
    assert "kills nothing: tests/test_toy.py::test_second" in printed
    assert "of 0 others 0 killed" in printed
    assert command.failing(["a::b", "a::b[c - d]"], "FAILED a::b[c - d] - of itself\n") == "a::b[c - d]"
    assert command.failing(["a", "a::b"], "ERROR: not found: /tmp/a::b\n") == "a::b"
    assert command.failing(["a", "a::b"], "ended") == "a"


def test_a_hang_is_killed(toy, tmp_path, monkeypatch):
    copy = Copy(toy, tmp_path / "copy", tmp_path / "scratch")
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    begin = time.monotonic()
    assert copy.run("-c", child, limit=1).status is None
    assert time.monotonic() - begin < 60
    assert copy.run("-c", "print(3)") == Done(0, "3\n")
    (hang,) = (m for m in mutants("hforest/toy.py", TOY) if m.change(TOY) == ("low += 1", "low += 0"))
    covered = SimpleNamespace(of_line=lambda _: ["test"], parts=lambda tests: [tests], seconds={"test": 0.0})
    call = "from hforest.toy import root; root(4)"
    monkeypatch.setattr(copy, "tests", lambda tests, limit: copy.run("-c", call, limit=limit))
    assert command.run(hang, TOY, copy, None, covered, 1).verdict == "hang"
    assert (copy.folder / "hforest" / "toy.py").read_bytes() == TOY


def test_an_interrupt_removes_the_copies(toy, tmp_path):
    (scratch := tmp_path / "scratch").mkdir()
    (toy / "tests" / "test_toy.py").write_text("import time\n\ndef test_long():\n    time.sleep(600)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.mutate", "--kinds", "python"],
        cwd=toy,
        env=os.environ | {"TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(scratch.glob("hforest-mutate-*/copy0/names")):  # written where the tests begin
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1].strip() == "stopped"
    assert process.returncode == 1
    assert not list(scratch.iterdir())


def test_changed_lines(toy):
    def git(*arguments):
        user = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *user, *arguments], cwd=toy, check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "All.")
    path = toy / "hforest" / "toy.py"
    path.write_bytes(TOY.replace(b"low = 0", b"low = 00").replace(b"class Pair", b"\n\nclass Pair"))
    assert command.changed_lines(toy, "HEAD") == {("hforest/toy.py", line) for line in (10, 17, 18)}
