"""The fuzzer finds faults that are put into the library, and finds nothing without them."""

import ctypes
from collections import Counter

import numpy as np
import pytest

import hforest
from hforest.core import check
from hforest.hinge import cpu

from . import growing, search  # noqa: F401 (growing registers values)
from .cases import KINDS, bads
from .targets import TARGETS

EXAMPLES = 60


def _look(name, kind, function=None, judge=None):
    target = TARGETS[name]
    if function is not None:
        target = target._replace(function=function)
    return search.look(
        target, kind, 1, EXAMPLES, Counter(), judge=judge, shrink=False, skip=lambda key: False
    )


def _bad_leaves(s):
    """An index outside of its range, or, without indices, anything wrong with them."""
    cases = list(bads(s, "leaf"))
    return s.choice([case for case in cases if "the number" in case.note and case.expect == "error"] or cases)


def _bad_kernels(s):
    """Another dtype of the kernels, or, where there is none, anything wrong with them."""
    cases = list(bads(s, "kernels"))
    return s.choice([case for case in cases if "dtype" in case.note] or cases)


def _no_range_check(monkeypatch):
    indices = check.indices
    monkeypatch.setattr(check, "indices", lambda name, *more: name == "leaf" or indices(name, *more))


def _no_overlap_check(monkeypatch):
    monkeypatch.setattr(check, "outputs", lambda written, read: None)


def _no_dtype_check(monkeypatch):
    array = check.array

    def unchecked(name, a, dtype, axes, sizes):
        array(name, a, a.dtype if name == "kernels" else dtype, axes, sizes)

    monkeypatch.setattr(check, "array", unchecked)


def _ties_to_the_right(monkeypatch):
    traverse = cpu.tree_traverse

    def wrong(x, *more):
        return traverse(np.nextafter(x, np.inf, dtype=x.dtype), *more)

    monkeypatch.setattr(cpu, "tree_traverse", wrong)


@pytest.mark.parametrize(
    ("fault", "name", "kind", "words"),
    [
        pytest.param(
            _no_range_check,
            "hinge.leaf_outputs",
            "bad",
            "a value where an error must come|the process crashed",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            _no_overlap_check,
            "project.project",
            "overlap",
            "another result|was changed|the process crashed",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            _no_dtype_check,
            "layers.conv2d",
            "bad",
            "a value where an error must come|an error that is none|without its four parts",
            marks=pytest.mark.slow,
        ),
        (_ties_to_the_right, "hinge.tree_traverse", "good", "another result than the reference"),
    ],
    ids=["range", "overlap", "dtype", "tie"],
)
def test_a_fault_is_found(fault, name, kind, words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    judge = None
    if fault in (_no_range_check, _no_overlap_check):
        judge = search.isolated(kind, tmp_path)  # it reads outside of arrays
    build = {_no_range_check: _bad_leaves, _no_dtype_check: _bad_kernels}.get(fault)
    if build is not None:
        # Few values of one argument show it, and what is drawn depends on versions and on paths.
        monkeypatch.setitem(KINDS, kind, KINDS[kind]._replace(build=build))
    assert _look(name, kind, judge=judge) is None
    fault(monkeypatch)
    finding = _look(name, kind, judge=judge)
    assert finding is not None
    text = str(finding)
    assert any(word in text for word in words.split("|")), text
    assert f"hforest.{name}(" in text


def test_a_reference_that_is_kept_is_found():
    kept = []

    def keeps(x, thresholds, features, *, out=None):
        kept.append(x)
        return hforest.hinge.tree_traverse(x, thresholds, features, out=out)

    finding = _look("hinge.tree_traverse", "good", keeps)
    assert "a reference to an argument is kept" in str(finding)


def test_memory_that_is_lost_is_found():
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p

    def loses(leaf, n_leaves):
        malloc(100)
        return hforest.hinge.leaf_counts(leaf, n_leaves)

    assert search.look(TARGETS["hinge.leaf_counts"], "leak", 1, 3, Counter(), shrink=False) is None
    finding = _look("hinge.leaf_counts", "leak", loses)
    assert "memory is not given back" in str(finding)


def test_a_crash_is_found_and_made_small(tmp_path):
    def crashes(leaf, n_leaves):
        if leaf.size > 2:
            ctypes.string_at(0)
        return hforest.hinge.leaf_counts(leaf, n_leaves)

    finding = search.look(
        TARGETS["hinge.leaf_counts"]._replace(function=crashes), "good", 1, 50, Counter(),
        judge=search.isolated("good", tmp_path),
    )  # fmt: skip
    assert "the process crashed or hung: signal 11" in str(finding)
    assert str(finding).count("], [") <= 2  # three samples of one tree
