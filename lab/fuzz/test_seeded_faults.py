"""The fuzzer finds faults that are put into the library, and finds nothing without them."""

import contextlib
import copy
import ctypes
import threading
import time
from collections import Counter

import numpy as np
import pytest

import hforest
from hforest import _networks, _tables
from hforest.core import check, files
from hforest.hinge import cpu

from . import forks, growing, search, writes  # noqa: F401 (growing registers values)
from .cases import KINDS, bads
from .targets import TARGETS

EXAMPLES = 60


def _look(name, kind, function=None, judge=None):
    target = KINDS[kind].targets[name]
    if not KINDS[kind].applies(target):
        pytest.skip(f"no cases {kind} of {name} here")
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
    traverse = cpu.traverse

    def wrong(kind, margin, x, *more):
        return traverse(kind, margin, np.nextafter(x, np.inf, dtype=x.dtype), *more)

    monkeypatch.setattr(cpu, "traverse", wrong)


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
        (_ties_to_the_right, "hinge.traverse", "good", "another result than the reference"),
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

    def keeps(x, thresholds, features, *, out=None, **words):
        kept.append(x)
        return hforest.hinge.traverse(x, thresholds, features, out=out, **words)

    finding = _look("hinge.traverse", "good", keeps)
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


def _loses_interrupts(leaf, n_leaves):
    try:
        for _ in range(100):
            counts = hforest.hinge.leaf_counts(leaf, n_leaves)
    except KeyboardInterrupt:
        return None
    return counts


def _changes_arguments(leaf, n_leaves):
    leaf += 1
    leaf -= 1
    counts = hforest.hinge.leaf_counts(leaf, n_leaves)
    leaf[:1] += 1
    time.sleep(1e-4)
    leaf[:1] -= 1
    return counts


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_loses_interrupts, "the exception of the handler is lost"),
        (_changes_arguments, "the argument leaf was changed"),
    ],
)
def test_what_a_signal_breaks_is_found(function, words):
    assert words in str(_look("hinge.leaf_counts", "signal", function))


def test_a_child_that_hangs_is_found(monkeypatch):
    monkeypatch.setattr(forks, "SECONDS", 0.5)
    lock = threading.Lock()

    def locks(leaf, n_leaves):
        with lock:
            time.sleep(1e-3)
            return hforest.hinge.leaf_counts(leaf, n_leaves)

    assert "ended by signal 14" in str(_look("hinge.leaf_counts", "fork", locks))


def test_foreign_members_that_are_read_are_found(monkeypatch):
    class Reads(files.Archive):
        def __init__(self, archive):
            super().__init__(archive)
            self.all = [archive.read(info) for info in archive.infolist()]

    monkeypatch.setattr(files, "Archive", Reads)
    assert "more memory than three times the fields" in str(_look("tree.load", "foreign"))


def test_a_file_that_is_lost_is_found(monkeypatch):
    assert _look("stories.outputs", "story") is None  # and makes the files
    for module in (_networks, _tables):
        monkeypatch.setattr(module, "check_outputs", lambda outputs, inputs: None)
    assert "AssertionError: status 0" in str(_look("stories.outputs", "story"))


def test_missed_steps_that_are_lost_are_found(monkeypatch):
    pytest.importorskip("torch")
    from hforest.torch import rows

    monkeypatch.setattr(rows.Missed, "take", lambda self, rows=None: None)
    assert "Mismatched elements" in str(_look("stories.torch_lives", "story"))


def test_subnormals_that_become_0_are_found(monkeypatch):
    from hforest.hinge import gpu

    traverse = gpu.traverse

    def flushing(kind, margin, x, *more):
        return traverse(kind, margin, x * x.dtype.type(1), *more)

    monkeypatch.setattr(gpu, "traverse", flushing)
    assert "another result on a GPU" in str(_look("hinge.traverse", "cuda"))


def _trusts_labels(**given):
    before = given["y"].copy()
    forest = hforest.grow(**given | {"y": before})
    if not np.array_equal(given["y"], before):
        ctypes.string_at(0)  # where compiled code has an index
    return forest


@pytest.mark.parametrize("kind", ["callbacks", "threads"])
def test_an_argument_that_is_read_again_is_found(kind, tmp_path):
    finding = _look("growth.grow", kind, _trusts_labels, judge=search.isolated(kind, tmp_path))
    assert "the process crashed or hung: signal 11" in str(finding)


def test_what_a_callback_breaks_is_found():
    def loses(**given):
        with contextlib.suppress(writes.Foreign):
            return hforest.grow(**given)

    def forgets(**given):
        forest = hforest.grow(**given)
        return forest._replace(value=forest.value / 2)

    assert "the exception of a callback is lost" in str(_look("growth.grow", "callbacks", loses))
    assert "leaves whose shares do not sum to 1" in str(_look("growth.grow", "callbacks", forgets))


def test_samples_that_trust_their_source_are_found(monkeypatch):
    samples, source = hforest.samples, []

    def keeps(x, **words):
        source[:] = [x, copy.deepcopy(x)]
        return samples(x, **words)

    def trusts(**given):
        x, before = source
        if isinstance(x, np.ndarray) and x.tobytes() != before.tobytes():
            raise RuntimeError("a category that has no place")
        return hforest.grow(**given)

    monkeypatch.setattr(hforest, "samples", keeps)
    assert "a category that has no place" in str(_look("growth.grow", "between", trusts))
