"""Some cases of every public function; `python -m lab.fuzz` runs more, of all kinds."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from . import bad, growing, search, stories  # noqa: F401 (growing registers values)
from .cases import bads
from .known import KNOWN, is_known
from .oracle import Finding, run
from .targets import TARGETS
from .values import Setting, value_of


@pytest.mark.parametrize("name", TARGETS)
def test_every_argument_has_a_value(name):
    target = TARGETS[name]
    for argument in target.parameters:
        assert value_of(target, argument) is not None, (
            f"{name}: no value for the argument {argument!r}; add one to lab/fuzz/values_{target.package}.py"
        )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.libraries] * ("sklearn" in name)) for name in TARGETS]
)
def test_good_arguments(name):
    counts = Counter()
    for target, kind in search.pairs(name):
        if kind == "good":
            finding = search.look(target, kind, 0, 2, counts, shrink=False)
            assert finding is None, finding
    if name == "tree.from_sklearn" and not counts:
        pytest.skip("scikit-learn is not installed")
    assert counts


@pytest.mark.parametrize("name", [*stories.CALLS, *stories.STORIES])
def test_some_stories(name):
    for target, kind in search.pairs(name):
        finding = search.look(target, kind, 0, 5, Counter(), shrink=False)
        assert finding is None, finding


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.parameters])
def test_every_argument_of_a_wrong_kind(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # words are paths to some
    target, found = TARGETS[name], []

    @settings(max_examples=1, database=None)
    @given(st.data())
    def look(data):
        setting = Setting(data.draw, target)
        for argument in target.parameters:
            for case in bads(setting, argument):
                try:
                    if case.expect == "error":
                        run(case)
                except Finding as finding:
                    if not is_known(finding.key):
                        found.append(str(finding))

    look()
    assert not found, "\n\n".join(found[:5])


def test_nothing_is_known_and_not_mended():
    if KNOWN:
        lines = "\n".join("  " + " | ".join(pattern) for pattern in KNOWN)
        pytest.xfail(f"{len(KNOWN)} findings of the fuzzer are not yet mended (lab/fuzz/known.py):\n{lines}")
