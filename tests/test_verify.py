"""`python -m hforest verify`: hashes of results beside those of digests.txt."""

from pathlib import Path

import pytest

import hforest
from hforest import _verify
from hforest.__main__ import main
from hforest.core import machine


@pytest.fixture(scope="module")
def found():
    """The results on one vector path."""
    before = machine.simd()
    try:
        machine.set_simd("plain")
        return dict(_verify.results())
    finally:
        machine.set_simd(before)


def test_the_file_lists_every_result_once(found):
    names = [line.rsplit(" | ", 1)[0] for line in _verify.DIGESTS.read_text(encoding="utf-8").splitlines()]
    assert names == list(found)
    assert len(set(names)) == len(names) > 100
    assert len(set(found.values())) > 0.8 * len(names)  # no result is a constant


@pytest.mark.kernels
def test_results_are_those_of_the_file(capsys):
    """On every vector path."""
    before = machine.simd()
    assert main(["verify"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == list(machine.simd_paths())
    assert all(line.endswith(f"{len(_verify.expected())} results, 0 differ") for line in lines)
    assert machine.simd() == before


def test_results_that_differ_are_named(found, monkeypatch, capsys, tmp_path):
    changed, lost, *_ = found
    known = {**found, changed: "0123456789abcdef", "results of old": "0123456789abcdef"}
    del known[lost]
    file = tmp_path / "digests.txt"
    file.write_text("".join(f"{name} | {value}\n" for name, value in known.items()), encoding="utf-8")
    monkeypatch.setattr(_verify, "DIGESTS", file)
    monkeypatch.setattr(_verify, "results", found.items)
    assert main(["verify"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("plain:")] == [
        f"plain: {changed}: expected 0123456789abcdef, got {found[changed]}",
        "plain: results of old: expected 0123456789abcdef, got None",
        f"plain: {lost}: expected None, got {found[lost]}",
        f"plain: {len(found)} results, 3 differ",
    ]


def test_the_list_is_the_file(found, monkeypatch, capsys):
    monkeypatch.setattr(_verify, "results", found.items)
    assert main(["verify", "--list"]) == 0
    assert capsys.readouterr().out == "".join(f"{name} | {value}\n" for name, value in found.items())


def test_the_file_is_in_the_package():
    """A wheel has it: package-data names *.txt (.ci/smoke.py runs the command of an installed wheel)."""
    assert _verify.DIGESTS.parent == Path(hforest.__file__).parent
