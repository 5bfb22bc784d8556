"""Arguments of `hforest.grow`: names, defaults, dtypes and layouts, progress, orders of y, errors."""

import contextlib
import importlib
import inspect
import pydoc
import re

import numpy as np
import pytest
from conftest import assert_same_bits
from growers import GROWERS, KINDS, Table, assert_same, blobs, grow, make, on_threads, problem

import hforest
import hforest.scale
from hforest import growth, project, tree
from hforest.core import check, supervised
from hforest.core.keywords import COUNTERPARTS
from hforest.growth import by_level, cpu

pytestmark = pytest.mark.kernels

# ------------------------------------------------------------------------------------------- names


def keywords(function):
    """Returns the keyword-only parameters of a function by name."""
    parameters = inspect.signature(function).parameters.values()
    assert not [p for p in parameters if p.kind is p.VAR_KEYWORD]
    return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}


def test_settings_are_the_keywords_of_grow():
    hints = {name: repr(p.annotation) for name, p in keywords(hforest.grow).items()}
    assert {name: repr(hint) for name, hint in growth.Settings.__annotations__.items()} == hints
    assert hforest.grow is growth.grow
    assert growth.TreeSettings.__annotations__.items() < growth.Settings.__annotations__.items()


BY_ROWS = {"bootstrap": "poisson", "max_bins": 256, "categorical": None, "max_gathered": None}


@pytest.mark.parametrize(
    ("name", "settings", "others"),
    [
        ("co2.grow", growth.TreeSettings, {}),
        ("scale.grow_by_rows", by_level.Settings, BY_ROWS),
        ("scale.grow_on_engine", by_level.Settings, BY_ROWS),
        pytest.param("dask.grow", by_level.Settings, BY_ROWS, marks=pytest.mark.libraries),
    ],
)
def test_settings_have_the_defaults_of_grow(name, settings, others):
    package, _, function = name.partition(".")
    if package == "dask":
        pytest.importorskip("distributed")
    function = getattr(importlib.import_module(f"hforest.{package}"), function)
    found = {n: (p.default, p.annotation) for n, p in keywords(function).items()}
    defaults = {n: p.default for n, p in keywords(hforest.grow).items()} | others
    want = {n: (defaults[n], hint) for n, hint in settings.__annotations__.items()}
    assert found.items() >= want.items()
    if package == "scale":
        assert found == want
    with pytest.raises(TypeError, match="^max_dept: expected an argument of grow.*; use max_depth$"):
        function(max_dept=3)


def test_help_of_grow_has_the_text_of_each_setting_once():
    text = inspect.getdoc(growth.Settings).partition("Attributes\n----------\n")[2]
    items = re.split(r"\n(?=\w)", text)
    assert {item.partition(" :")[0] for item in items} == keywords(hforest.grow).keys()
    shown = pydoc.plain(pydoc.render_doc(hforest.grow))
    for item in items:
        assert shown.count("\n".join(f"    {line}" for line in item.splitlines())) == 1, item
    assert "settings" not in shown.partition("Returns a forest")[0]
    assert "max_depth: int | None = None" in shown


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        *COUNTERPARTS.items(), ("max_dept", "max_depth"), ("sample_weights", "sample_weight"), ("x_y", "help(grow) for a list of them"),
    ],
)  # fmt: skip
def test_another_name_of_a_setting_has_a_remedy(name, remedy):
    message = f"{name}: expected an argument of grow, got another name; use {remedy}"
    for arguments in ((), ([[0.0], [1.0]], [0, 1], 1)):
        with pytest.raises(TypeError) as caught:
            hforest.grow(*arguments, **{name: 3})
        assert str(caught.value) == message


def test_names_of_remedies_exist():
    assert COUNTERPARTS["n_estimators"] == "n_trees"
    assert COUNTERPARTS["random_state"] == "rng"
    names = {"n_trees", *keywords(hforest.grow), *keywords(hforest.samples)}
    for name, remedy in COUNTERPARTS.items():
        assert name not in keywords(hforest.grow)
        first = re.match(r"[\w.]+", remedy)[0]
        if first.startswith("hforest."):
            assert callable(importlib.import_module("operator").attrgetter(first[8:])(hforest))
        else:
            assert first in names


# ---------------------------------------------------------------------------------------- defaults


@pytest.mark.parametrize("kind", ["features", "extra"])
def test_default_numbers_of_features_and_trees(kind):
    # The square root of the number of features, in a regression all; 100 trees.
    x, y = blobs(40, 9)
    for task, n_sampled in (("classification", 3), ("regression", 9)):
        got = grow(x, y, kind=kind, task=task, rng=0)
        assert got.n_trees == 100
        assert_same_bits(got, grow(x, y, 100, kind=kind, max_features=n_sampled, task=task, rng=0))


@pytest.mark.parametrize("kind", ["sparse", "probe", "patch"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_default_number_of_projections(kind, task):
    # The root of the number of features, rounded up; in a regression on sparse vectors and differences as many
    # as features, but at most 100 or that root.
    rng, roots = (
        np.random.default_rng(0),
        {100: 10, 99: 10, 81: 9, 82: 10, 3: 2, 2: 2, 7: 3, 101: 11, 10_201: 101},
    )
    for n_features, root in roots.items():
        x, y = rng.random((12, n_features)), np.arange(12) % 2
        n = root if task == "classification" or kind == "patch" else max(root, min(n_features, 100))
        settings = {"kind": kind, "task": task, "rng": 0}
        assert_same_bits(grow(x, y, 3, **settings), grow(x, y, 3, n_projections=n, **settings))


@pytest.mark.parametrize(
    ("max_features", "n_sampled"),
    [("auto", 3), ("sqrt", 3), (None, 9), (0.5, 4), (0.01, 1), (7, 7), (np.int64(2), 2)],
)
def test_features_sampled(monkeypatch, max_features, n_sampled):
    seen, real = [], growth.unchecked.on_bins
    monkeypatch.setattr(growth.unchecked, "on_bins", lambda *a, **b: seen.append(b) or real(*a, **b))
    hforest.grow(*blobs(20, 9), 1, max_features=max_features, rng=0)
    assert seen == [{"max_features": n_sampled}]


@pytest.mark.parametrize("kind", KINDS)
def test_samples_and_labels_are_scanned_once(monkeypatch, kind):
    seen = []
    for module, name in (
        (check, "finite"), (check, "finite_or_missing"), (supervised, "bounded"), (supervised, "labels"),
    ):  # fmt: skip
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, _real=real, **b: seen.append(a[0]) or _real(*a, **b))
    grow(*blobs(20), 2, kind=kind, sample_weight=np.ones(20), rng=0)
    assert sorted(seen) == ["sample_weight", "x", "y"]


# ----------------------------------------------------------------------------------- lenient input


def layouts(a):
    """Returns the numbers of a matrix in other layouts."""
    wide = np.zeros((2 * a.shape[0], 2 * a.shape[1]), a.dtype)
    wide[::2, 1::2] = a
    yield np.asfortranarray(a)
    yield wide[::2, 1::2]
    yield np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1]
    yield a.astype(a.dtype.newbyteorder())
    yield Table(a)
    yield Table(np.asfortranarray(a))
    if a.dtype == np.float64:
        yield a.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_layouts_change_nothing(dtype, kind):
    x, y = problem(60, 6, dtype=dtype)
    want = grow(x, y, 3, kind=kind, rng=0)
    assert want.threshold.dtype == want.value.dtype == want.gain.dtype == dtype
    for other in layouts(x):
        for labels in (y, Table(y)):
            assert_same_bits(grow(other, labels, 3, kind=kind, rng=0), want)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "given", [bool, np.int8, np.uint8, np.int16, np.uint16, np.float16, np.int32, np.uint64, "g", ">i8"]
)
def test_dtypes_of_samples(kind, given):
    x, y = problem(60, 6)
    x = (20 * abs(x)).astype(given)
    dtype = np.result_type(given, np.float32)
    dtype = np.float32 if dtype == np.float32 else np.float64
    got = grow(x, y, 3, kind=kind, rng=0)
    assert got.threshold.dtype == dtype
    assert_same_bits(got, grow(x.astype(dtype), y, 3, kind=kind, rng=0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", bool, list, Table])
def test_dtypes_of_labels(kind, given):
    x, y = problem(60, 6, 2, np.float32)
    other = y.tolist() if given is list else Table(y) if given is Table else y.astype(given)
    for class_weight in (None, "balanced"):
        for n_classes in (None, 2):
            settings = {"class_weight": class_weight, "n_classes": n_classes, "rng": 0}
            want = grow(x, y, 3, kind=kind, **settings)
            for labels in (other, np.repeat(y, 2)[::2]):
                assert_same_bits(grow(x, labels, 3, kind=kind, **settings), want)


@pytest.mark.parametrize("kind", KINDS)
def test_dtypes_of_targets_and_weights(kind):
    x, _ = blobs(60)
    target, weight = np.round(8 * x[:, :2]), np.arange(60) % 4
    settings = {"kind": kind, "task": "regression", "rng": 0}
    want = grow(x, target, 3, sample_weight=weight.astype(float), **settings)
    for other in (
        target, target.astype(np.int8), target.astype(np.float16), np.asfortranarray(target), target.tolist(), Table(target),
    ):  # fmt: skip
        for w in (
            weight,
            weight.astype(np.float16),
            weight.astype("f4"),
            weight.tolist(),
            np.repeat(weight, 2)[::2],
        ):
            assert_same_bits(grow(x, other, 3, sample_weight=w, **settings), want)
    one = grow(x, target[:, 0], 3, **settings)
    assert_same_bits(grow(x, target[:, :1], 3, **settings), one)


@pytest.mark.libraries
@pytest.mark.parametrize("kind", KINDS)
def test_data_frames(kind):
    pandas = pytest.importorskip("pandas")
    x, y = blobs(80)
    want = grow(x, y, 3, kind=kind, rng=0)
    frame = pandas.DataFrame(x, columns=list("abcde"))
    assert_same_bits(grow(frame, pandas.Series(y), 3, kind=kind, rng=0), want)
    frame["a"] = np.round(x[:, 0]).astype(np.int64)
    mixed = grow(frame, y, 3, kind=kind, sample_weight=pandas.Series(np.ones(80)), rng=0)
    assert_same_bits(mixed, grow(frame.to_numpy(), y, 3, kind=kind, rng=0))
    frame["a"] = pandas.Series(["red", "blue"] * 40)
    with pytest.raises(TypeError, match="x: expected numbers, got 'red'"):
        grow(frame, y, 3, kind=kind, rng=0)


def test_labels_that_leave_classes_out_or_are_no_numbers():
    x, y = problem(60)
    want = hforest.grow(x, y, 3, rng=0)
    for labels in (y + 1, np.array(["setosa", "versicolor", "virginica"])[y], y * 2.5):
        with pytest.raises((TypeError, ValueError), match=r"numpy\.unique\(y, return_inverse=True\)\[1\]"):
            hforest.grow(x, labels, 3, rng=0)
        assert_same_bits(hforest.grow(x, np.unique(labels, return_inverse=True)[1], 3, rng=0), want)
    with pytest.raises(ValueError, match="got none of class 0; renumber .* or pass n_classes=4"):
        hforest.grow(x, y + 1, 3)
    absent = hforest.grow(x, y + 1, 3, n_classes=5, rng=0)
    assert absent.value.shape[1] == 5
    np.testing.assert_array_equal(absent.value[:, 1:4], want.value)


@pytest.mark.parametrize("kind", KINDS)
def test_class_weight_multiplies_sample_weight(kind):
    x = np.random.default_rng(0).normal(size=(80, 16))
    y, weight = np.arange(80) % 4 // 3, np.arange(80) % 3 + 1.0
    settings = {"kind": kind, "max_depth": 4, "rng": 0}
    balanced = grow(x, y, 3, sample_weight=weight, class_weight="balanced", **settings)
    of_class = np.bincount(y, weight)
    factor = of_class.sum() / 2 / of_class
    for class_weight in (factor, factor.tolist(), dict(enumerate(factor))):
        assert_same_bits(grow(x, y, 3, sample_weight=weight, class_weight=class_weight, **settings), balanced)
    assert_same_bits(grow(x, y, 3, sample_weight=weight * factor[y], **settings), balanced)
    assert balanced.value.tobytes() != grow(x, y, 3, sample_weight=weight, **settings).value.tobytes()


def test_balanced_classes_are_predicted_oftener():
    x, y = blobs(120, n_classes=2)
    y[:100] = 0
    plain, balanced = (
        tree.predict(hforest.grow(x, y, 20, max_depth=2, class_weight=weight, rng=0), x)[:, 1].mean()
        for weight in (None, "balanced")
    )
    assert balanced > 1.5 * plain


# ---------------------------------------------------------------------------------------- progress


@pytest.mark.parametrize("name", GROWERS)
@pytest.mark.parametrize("stop", [False, np.False_])
def test_progress_and_its_end(name, stop):
    x, y = problem(50, dtype=np.float32)
    calls = []

    def progress(done, n_trees):
        calls.append((done, n_trees))
        return stop if done >= 20 else None

    grown = GROWERS[name](x, y, 1000, progress=progress, rng=0)
    assert {n_trees for _, n_trees in calls} == {1000}
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})
    assert 20 <= calls[-1][0] == grown.n_trees < 1000
    calls.clear()
    assert_same_bits(GROWERS[name](x, y, grown.n_trees, rng=0, progress=lambda *n: calls.append(n)), grown)
    assert calls[-1] == (grown.n_trees, grown.n_trees)


def test_small_trees_without_progress_grow_in_one_batch(monkeypatch):
    # Each batch waits for its threads, which takes longer than these trees if other processes run.
    sizes = []
    real = cpu.grow
    monkeypatch.setattr(cpu, "grow", lambda *args: (sizes.append(args[-1].n_trees), real(*args))[1])
    x, y = problem(50, 3)
    for progress in (None, False):
        sizes.clear()
        want = make(x, y, n_trees=2000, progress=progress)
        assert sizes == [2000]
    sizes.clear()
    assert_same_bits(make(x, y, n_trees=2000, progress=lambda done, n_trees: True), want)
    assert max(sizes) == 4 * hforest.get_num_threads()


def test_what_progress_answers_else_goes_on():
    x, y = problem(50)
    for answer in (None, True, 0, ""):
        assert make(x, y, n_trees=40, progress=lambda done, n_trees, answer=answer: answer).n_trees == 40


def test_progress_shows_a_bar(capsys):
    make(*problem(50), n_trees=40, progress=True)
    assert "40" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_progress_is_refused_before_the_work(monkeypatch, kind):
    for name in ("on_bins", "on_projections"):
        monkeypatch.setattr(growth.unchecked, name, None)
    with pytest.raises(TypeError, match="progress: expected None, True or a function, got str"):
        grow(*problem(50), 3, kind=kind, progress="yes")


def test_an_error_in_progress_ends_the_growth():
    def interrupt(done, n_trees):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(*problem(50), n_trees=100, progress=interrupt)


# ------------------------------------------------------------------------------- one y for each tree


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("bootstrap", [True, False])
@pytest.mark.parametrize("kind", ["features", "sparse"])
@pytest.mark.parametrize("to_fit", ["labels", "weighted labels", "a target", "targets"])
def test_trees_learn_y_in_their_own_order(to_fit, kind, bootstrap, backend):
    """Each tree equals that of its number in a call with its y."""
    rng = np.random.default_rng(0)
    x, n, n_trees = rng.normal(size=(40, 4)), 40, 3
    y = {"a target": rng.normal(size=n), "targets": rng.normal(size=(n, 2))}.get(
        to_fit, rng.integers(0, 3, n)
    )
    settings = {"task": "regression"} if "target" in to_fit else {"n_classes": 3}
    settings |= {"kind": kind, "bootstrap": bootstrap, "rng": 5}
    if to_fit == "weighted labels":
        settings["sample_weight"] = rng.uniform(0.5, 2, n)
    order = np.stack([rng.permutation(n) for _ in range(n_trees)])
    order[0, :5] = 7  # no permutation
    with hforest.using(backend) if backend == "reference" else contextlib.nullcontext():
        together = grow(x, y, n_trees, y_order=order, **settings)
        alone = [grow(x, y[order[m]], 1, first_tree=m, **settings) for m in range(n_trees)]
    assert_same_bits(together, tree.join(alone))


def test_orders_of_y_do_not_depend_on_batches_and_threads(threads):
    x, y = problem(50, 3)
    order = np.random.default_rng(0).permuted(np.tile(np.arange(50), (100, 1)), axis=1)
    want = make(x, y, n_trees=100, y_order=order)
    for got in on_threads(
        threads, lambda: make(x, y, n_trees=100, y_order=order, progress=lambda done, n_trees: True)
    ):
        assert_same(got, want)


# --------------------------------------------------------------------------------------- bad input

ORDER = np.tile(np.arange(20), (2, 1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"y": np.zeros(19, np.int32)}, ValueError, r"^y: expected shape \(n_samples,\) = \(20,\), got \(19,\)"),
        ({"y": np.zeros((20, 1), np.int32)}, ValueError, r"^y: expected shape .*; pass numpy.ravel\(y\)"),
        ({"y": np.zeros(20)}, TypeError, "^y: expected labels of an integer or bool dtype, got float64"),
        ({"y": np.array(["a", "b"] * 10)}, TypeError, "number the classes with numpy.unique"),
        ({"y": np.arange(20) % 3 + 1}, ValueError, "got none of class 0; renumber the classes with numpy.unique"),
        ({"y": np.full(20, -1, np.int32)}, IndexError, "^y: expected labels of at least 0, got -1"),
        ({"n_classes": 2}, IndexError, "n_classes = 2, got 2"),
        ({"n_classes": True}, TypeError, "^n_classes: expected an int"),
        ({"sample_weight": -np.ones(20)}, ValueError, "^sample_weight: expected numbers from 0 to 1e\\+100"),
        ({"sample_weight": np.full(20, np.nan)}, ValueError, "^sample_weight: expected finite"),
        ({"sample_weight": np.zeros(20)}, ValueError, "^sample_weight: expected at least one weight above 0"),
        ({"sample_weight": np.ones((20, 1))}, ValueError, "^sample_weight: expected shape"),
        ({"sample_weight": np.ones(19)}, ValueError, "^sample_weight: expected shape"),
        ({"sample_weight": ["1"] * 20}, TypeError, "^sample_weight: expected an array of real numbers"),
        ({"class_weight": np.zeros(3)}, ValueError, "^class_weight: expected at least one sample of weight above 0"),
        ({"class_weight": "even"}, ValueError, "^class_weight: expected one of 'balanced'"),
        ({"class_weight": {7: 1.0}}, ValueError, "^class_weight: expected 0 to 2, got 7"),
        ({"class_weight": {0: -1.0}}, ValueError, "^class_weight"),
        ({"class_weight": np.ones(2)}, ValueError, "^class_weight: expected shape"),
        ({"task": "ranking"}, ValueError, "^task: expected one of"),
        ({"task": np.array(["regression", "ranking"])}, ValueError, "^task: expected one of"),
        ({"task": "regression", "class_weight": "balanced"}, ValueError, "^class_weight: expected None with task"),
        ({"task": "regression", "y": np.full(20, np.nan)}, ValueError, "^y: expected finite"),
        ({"task": "regression", "y": np.full((20, 1), 1e101)}, ValueError, "^y: expected numbers"),
        ({"task": "regression", "y": np.zeros((20, 0))}, ValueError, "n_outputs"),
        ({"task": "regression", "n_classes": 3}, ValueError, "^n_classes: expected None"),
        ({"task": "regression", "criterion": "gini"}, ValueError, "^criterion: expected one of 'squared_error'"),
        ({"criterion": "squared_error"}, ValueError, "^criterion: expected one of 'gini', 'entropy'"),
        ({"criterion": "log"}, ValueError, "^criterion: expected one of 'gini', 'entropy'"),
        ({"splitter": "first"}, ValueError, "^splitter: expected one of 'best', 'random'"),
        ({"n_trees": 0}, ValueError, "^n_trees: expected"),
        ({"max_depth": -1}, ValueError, "^max_depth"),
        ({"min_samples_leaf": 0}, ValueError, "^min_samples_leaf"),
        ({"min_samples_split": 1}, ValueError, "^min_samples_split"),
        ({"min_weight_fraction_leaf": 0.6}, ValueError, "^min_weight_fraction_leaf"),
        ({"min_impurity_decrease": -0.1}, ValueError, "^min_impurity_decrease"),
        ({"bootstrap": "bernoulli"}, ValueError, "^bootstrap: expected one of 'poisson'"),
        ({"bootstrap": -np.ones((2, 20), int)}, ValueError, "^bootstrap: expected counts from 0"),
        ({"bootstrap": np.full((2, 20), 2**31)}, ValueError, "^bootstrap: expected counts from 0"),
        ({"bootstrap": np.ones((1, 20), int)}, ValueError, r"^bootstrap: expected shape \(n_trees, n_samples\)"),
        ({"bootstrap": np.ones((2, 20))}, TypeError, "^bootstrap: expected an array of an integer dtype"),
        ({"y_order": ORDER[:1]}, ValueError, r"^y_order: expected shape \(n_trees, n_samples\) = \(2, 20\), got"),
        ({"y_order": ORDER + 1}, IndexError, "^y_order: expected sample indices below 20, got 1 to 20; sample"),
        ({"y_order": ORDER - 1}, IndexError, "^y_order: expected sample indices below 20, got -1 to 18; sample"),
        ({"y_order": ORDER / 2}, TypeError, "^y_order: expected an array of an integer dtype, got float64; pass"),
        ({"y_order": ORDER, "class_weight": "balanced"}, ValueError, "^class_weight: expected None with y_order, got class weights"),
        ({"progress": 3}, TypeError, "^progress: expected None, True or a function, got int"),
        ({"rng": True}, TypeError, "^rng: expected"),
        ({"rng": "seed"}, TypeError, "^rng: expected None, an int or a numpy.random.Generator"),
    ],
)  # fmt: skip
def test_bad_input(kind, change, error, message):
    x, y = blobs(20, 6)
    with pytest.raises(error, match=message):
        grow(x, **{"y": y, "n_trees": 2, "kind": kind, **change})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"max_features": 7}, ValueError, "^max_features: expected 1 to 6"),
        ({"max_features": True}, TypeError, "^max_features: expected an int"),
        ({"max_features": "log3"}, ValueError, "^max_features: expected one of 'sqrt', 'log2', 'auto'"),
        ({"max_features": 1.5}, ValueError, "^max_features: expected a finite number"),
        ({"n_projections": 2}, TypeError, "^n_projections: expected None without projections, got 2; pass"),
        ({"projections": "axis"}, TypeError, r"^projections: expected hforest\.project\.Distribution, got str"),
        ({"projections": project.axis_distribution(3)}, ValueError, "^projections: expected n_features = 6, got 3"),
        ({"projections": project.axis_distribution(6), "n_projections": 0}, ValueError, "^n_projections: expected 1 to"),
        ({"projections": project.axis_distribution(6), "max_features": 2}, TypeError,
            '^max_features: expected "auto" with projections, got 2; pass n_projections instead'),
        ({"projections": project.axis_distribution(6), "max_features": np.array(["auto", "auto"])}, TypeError,
            '^max_features: expected "auto" with projections'),
    ],
)  # fmt: skip
def test_bad_candidates(change, error, message):
    with pytest.raises(error, match=message):
        hforest.grow(*blobs(20, 6), 2, **change)


@pytest.mark.parametrize("kind", KINDS)
def test_edges(kind):
    x, y = blobs(20, 6)
    one_class = grow(x, np.zeros(20, np.int32), 3, kind=kind, rng=0)
    assert len(one_class.feature) == 3
    assert (tree.predict(one_class, x) == 1).all()
    alone = grow(x[:1], y[:1], 3, kind=kind, n_classes=4, rng=0)
    assert tree.predict(alone, x[:1]).tolist() == [[1, 0, 0, 0]]
    constant = grow(np.ones((20, 6)), y, 3, kind=kind, bootstrap=False, rng=0)
    assert len(constant.feature) == 3
    np.testing.assert_allclose(tree.predict(constant, np.ones((1, 6)))[0], np.bincount(y) / 20)
    many = grow(x[:3], np.array([0, 50, 99]), 5, kind=kind, n_classes=100, bootstrap=False, rng=0)
    assert (tree.predict(many, x[:3]).argmax(axis=1) == [0, 50, 99]).all()


def test_targets_beyond_float32_are_refused():
    x, _ = problem(10, 2, dtype=np.float32)
    y = np.linspace(0, 1e39, 10)
    with pytest.raises(ValueError, match=r"y: expected numbers from -3.40282e\+38 to 3.40282e\+38"):
        make(x, y, n_classes=None)
    assert make(x.astype(np.float64), y, n_classes=None).value.max() > 1e38


@pytest.mark.parametrize("n", [30, 41])
def test_settings_of_scikit_learn_are_other_names(n):
    x, y = blobs(n, 9)
    for theirs, ours in (
        ({"criterion": "log_loss"}, {"criterion": "entropy"}),
        ({"max_features": "log2"}, {"max_features": 3}),
        ({"min_samples_leaf": 0.1}, {"min_samples_leaf": 3 if n == 30 else 5}),
        ({"min_samples_leaf": 1e-9}, {"min_samples_leaf": 1}),
        ({"min_samples_split": 0.5}, {"min_samples_split": 15 if n == 30 else 21}),
        ({"min_samples_split": np.float32(1e-9)}, {"min_samples_split": 2}),
        ({"min_samples_split": 1.0}, {"min_samples_split": n}),
    ):
        a, b = (hforest.grow(x, y, 3, rng=0, **settings) for settings in (theirs, ours))
        assert_same_bits(a, b)
    targets = x[:, :2] + y[:, None]
    for several in (targets, targets[:, 0]):
        a, b = (
            hforest.grow(x, several, 3, criterion=name, task="regression", rng=0)
            for name in ("friedman_mse", "squared_error")
        )
        assert_same_bits(a, b)
    with pytest.raises(
        ValueError,
        match="criterion: expected one of squared_error, poisson, friedman_mse, got absolute_error; gr",
    ):
        hforest.grow(x, targets, 3, task="regression", criterion="absolute_error")
    with pytest.raises(
        ValueError, match="criterion: expected one of 'gini', 'entropy', 'log_loss', got 'mse'"
    ):
        hforest.grow(x, y, 3, criterion="mse")
    for name in ("min_samples_leaf", "min_samples_split"):
        for value in (0.0, 1.5, np.nan):
            with pytest.raises(ValueError, match=f"^{name}: expected a finite number > 0 and <= 1, got"):
                hforest.grow(x, y, 3, **{name: value})
