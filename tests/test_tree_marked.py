"""Grown and loaded forests: read-only, checked once; all other forests are checked at each call."""

import concurrent.futures
import copy
import functools
import pickle

import numpy as np
import pytest
from conftest import assert_same_bits
from test_tree import STUMP, X

import hforest
from hforest import cascade, co2, neural, project, tree
from hforest.core import machine
from hforest.tree import Forest, forest

pytestmark = pytest.mark.kernels

rng = np.random.default_rng(0)
ROWS = rng.normal(size=(60, 4))
LABELS = (ROWS[:, 0] > ROWS[:, 1]).astype(np.int32)
GROWN = hforest.grow(ROWS, LABELS, 5, rng=0)


def loaded(folder):
    tree.save(folder / "forest.npz", GROWN)
    return tree.load(folder / "forest.npz")


def of_cascade(folder):
    grow = functools.partial(hforest.grow, n_trees=3)
    levels = cascade.grow(ROWS, LABELS, [grow], max_levels=1, n_folds=2, rng=0)
    cascade.save(folder / "levels.npz", levels)
    return cascade.load(folder / "levels.npz").levels[0][0]


def from_sklearn(folder):
    ensemble = pytest.importorskip("sklearn.ensemble")
    return tree.from_sklearn(ensemble.RandomForestClassifier(3, random_state=0).fit(ROWS, LABELS))


MARKED = {
    "grow": lambda folder: GROWN,
    "grow, missing values": lambda folder: hforest.grow(np.where(ROWS > 1, np.nan, ROWS), LABELS, 3, rng=0),
    "grow, categories": lambda folder: hforest.grow(
        hforest.samples(np.round(abs(ROWS)), categorical=[0]), LABELS, 3, rng=0
    ),
    "grow, random": lambda folder: hforest.grow(ROWS, LABELS, 3, splitter="random", rng=0),
    "grow, projections": lambda folder: hforest.grow(
        ROWS, LABELS, 3, projections=project.sparse_distribution(4), rng=0
    ),
    "co2": lambda folder: co2.grow(ROWS, LABELS, 2, max_depth=2, rng=0),
    "to_hard": lambda folder: neural.to_hard(neural.linear_init(3, 2, 4, 2, rng=0), 4),
    "load": loaded,
    "cascade.load": of_cascade,
    "from_sklearn": from_sklearn,
    "join": lambda folder: tree.join([GROWN, GROWN]),
    "join, by hand": lambda folder: tree.join([Forest(*GROWN), GROWN]),
    "refit": lambda folder: tree.refit(GROWN, ROWS, LABELS),
    "refit, by hand": lambda folder: tree.refit(Forest(*GROWN), ROWS, LABELS),
    "refit, pruned": lambda folder: tree.refit(GROWN, ROWS[:3], LABELS[:3], n_classes=2),
    "prepare": lambda folder: tree.prepare(GROWN).forest,
    "prepare, by hand": lambda folder: tree.prepare(STUMP).forest,
}
PLAIN = {
    "_replace": lambda f: f._replace(value=f.value.copy()),
    "_make": lambda f: f._make(f),
    "Forest": lambda f: Forest(*f),
    "type": lambda f: type(f)(*f),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda f: pickle.loads(pickle.dumps(f)),
    "oldest pickle": lambda f: pickle.loads(pickle.dumps(f, 0)),
    "newest pickle": lambda f: pickle.loads(pickle.dumps(f, pickle.HIGHEST_PROTOCOL)),
    "by hand": lambda f: Forest(**{name: a.copy() for name, a in f._asdict().items()}),
}
CALLS = {
    "apply": lambda f: tree.apply(f, ROWS),
    "predict": lambda f: tree.predict(f, ROWS),
    "vote_shares": lambda f: tree.vote_shares(f, ROWS),
    "path": lambda f: tree.path(f, ROWS[0]),
    "windows": lambda f: tree.predict(f, hforest.samples(ROWS, windows=(np.arange(0, 240, 4), np.arange(4)))),
    "out_of_bag": lambda f: tree.out_of_bag(f, ROWS, np.zeros((5, 60), np.int32)),
    "importance": lambda f: tree.importance(f),
    "permutation_importance": lambda f: tree.permutation_importance(f, ROWS, LABELS, rng=0),
    "to_text": lambda f: tree.to_text(f),
    "splits": lambda f: tree.splits(f),
    "depth": lambda f: tree.depth(f),
    "check": lambda f: tree.check(f),
    "join": lambda f: tree.join([f, f]),
    "to_dict": lambda f: tree.to_dict(f, ROWS),
    "refit": lambda f: tree.refit(f, ROWS, LABELS),
    "leaf_targets": lambda f: tree.leaf_targets(f, ROWS, LABELS),
    "proximity": lambda f: tree.proximity(f, ROWS),
}
CHECKS = ("check_layout", "check_nodes", "check_numbers")


@pytest.fixture
def n_checks(monkeypatch):
    """Returns the number of calls of each check by its name."""
    calls = dict.fromkeys(CHECKS, 0)

    def counted(name, real, *args):
        calls[name] += 1
        return real(*args)

    for name in CHECKS:
        monkeypatch.setattr(forest, name, functools.partial(counted, name, getattr(forest, name)))
    return calls


@pytest.mark.libraries
@pytest.mark.parametrize("name", MARKED)
def test_arrays_cannot_be_written(name, tmp_path):
    made = MARKED[name](tmp_path)
    assert forest.is_marked(made)
    for a in made:
        with pytest.raises(ValueError, match="read-only"):
            a[...] = 0
        with pytest.raises(ValueError, match="WRITEABLE"):
            a.flags.writeable = True
        # The owner of the memory is out of reach.
        assert type(a.base) is machine.Memory
        assert not [name for name in dir(a.base) if not name.startswith("__")]
        with pytest.raises(TypeError, match="pickle"):
            a.base.__reduce_ex__(4)


@pytest.mark.parametrize("call", CALLS)
def test_a_marked_forest_is_not_checked(call, n_checks):
    CALLS[call](GROWN)
    assert not any(n_checks.values())


@pytest.mark.parametrize("call", CALLS)
def test_a_plain_forest_is_checked_at_each_call(call, n_checks):
    plain = Forest(*GROWN)
    for n in (1, 2, 3):
        CALLS[call](plain)
        assert all(count >= n for count in n_checks.values()), n_checks


@pytest.mark.parametrize("way", PLAIN)
def test_what_is_derived_is_plain(way, n_checks):
    plain = PLAIN[way](GROWN)
    assert type(plain) is Forest
    assert not forest.is_marked(plain)
    before = dict(n_checks)
    for n in (1, 2):
        assert_same_bits(tree.apply(plain, ROWS), tree.apply(GROWN, ROWS))
        assert n_checks == {check: before[check] + n for check in CHECKS}
    broken = plain._replace(left=np.zeros_like(plain.left))
    for _ in range(3):
        for function in (tree.apply, tree.predict, tree.vote_shares):
            with pytest.raises(IndexError, match="a child that does not come after its parent"):
                function(broken, ROWS)


def test_a_fault_of_a_later_change_is_found():
    plain = Forest(*(a.copy() for a in GROWN))
    want = tree.predict(plain, ROWS)
    plain.feature[0] = 77
    with pytest.raises(IndexError, match="a feature outside 0 <= feature < n_features at node 0 of tree 0"):
        tree.predict(plain, ROWS)
    plain.feature[0] = GROWN.feature[0]
    assert_same_bits(tree.predict(plain, ROWS), want)


def test_a_change_while_x_is_read_changes_no_result():
    plain = Forest(*(a.copy() for a in STUMP))
    functions = (tree.predict, tree.apply, lambda f, x: tree.permutation_importance(f, x, [0, 1, 0], rng=0))
    want = [function(plain, X) for function in functions]

    class Table:
        def __array__(self, dtype=None, copy=None):
            plain.feature[0] = 77
            return X

    for function, result in zip(functions, want, strict=True):
        plain.feature[0] = 1
        assert_same_bits(function(plain, Table()), result)


def test_a_marked_forest_is_a_forest():
    assert isinstance(GROWN, Forest)
    assert isinstance(GROWN, tuple)
    assert repr(type(GROWN)) == repr(Forest) == "<class 'hforest.tree.Forest'>"
    assert repr(GROWN) == repr(Forest(*GROWN))
    assert (len(GROWN), GROWN._fields, type(GROWN[1:3])) == (14, Forest._fields, tuple)
    assert all(a is b for a, b in zip(GROWN, GROWN._asdict().values(), strict=True))
    for name in ("left", "anything"):
        with pytest.raises(
            AttributeError, match=f"^forest.{name}: expected no assignment, got one; .*_replace"
        ):
            setattr(GROWN, name, None)
    with pytest.raises(AttributeError, match="has no attribute .predict_proba.$"):
        _ = GROWN.predict_proba


def test_arrays_are_those_that_were_grown():
    plain = Forest(*(a.copy() for a in GROWN))
    made = forest.marked(plain)
    for a, b, c in zip(plain, made, forest.arrays_of(made), strict=True):
        assert a.ctypes.data == b.ctypes.data == c.ctypes.data  # no copy
        assert (a.dtype, a.shape, b.flags.aligned) == (b.dtype, b.shape, True)
    assert forest.marked(made) is made
    assert tree.prepare(made).forest is made
    assert tree.check(made) is made


def test_what_python_lets_a_caller_change_does_not_matter():
    made = forest.marked(Forest(*(a.copy() for a in GROWN)))
    want = {name: call(made) for name, call in CALLS.items() if name in ("apply", "predict", "to_text")}
    for a in made:
        a.__setstate__((1, (2,), a.dtype, False, bytes(2 * a.itemsize)))
    assert len(made.left) == 2
    for name, result in want.items():
        np.testing.assert_array_equal(CALLS[name](made), result)


def test_forests_made_inside_unchecked_are_checked_later(n_checks):
    with hforest.unchecked():
        made = [hforest.grow(ROWS, LABELS, 2, rng=0), tree.join([GROWN, GROWN])]
    for plain in made:
        assert type(plain) is Forest
        tree.predict(plain, ROWS)
    assert n_checks["check_nodes"] == 2
    broken = GROWN._replace(value=np.full_like(GROWN.value, np.nan))
    with hforest.unchecked():
        joined = tree.join([broken, GROWN])
    with pytest.raises(ValueError, match=r"forest\.value: expected finite numbers"):
        tree.predict(joined, ROWS)
    with pytest.raises(ValueError, match=r"forests\[1\]\.value: expected finite numbers"):
        tree.join([GROWN, broken])


def test_several_threads_use_one():
    want = tree.predict(GROWN, ROWS).tobytes()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: tree.predict(GROWN, ROWS).tobytes(), range(50)):
            assert got == want
