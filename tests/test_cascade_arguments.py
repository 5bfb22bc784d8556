"""Cascades: bad input, and tuples made by hand."""

import functools
from functools import partial

import numpy as np
import pytest
from conftest import refused
from test_cascade import FEW, blobs

import hforest
from hforest import cascade

# --------------------------------------------------------------------------------- bad input


def test_bad_input():
    x, y = blobs()
    few = np.array([0] * 7 + [1] * 3, np.int32)
    for arguments, settings, error, message in (
        ((x[:10], few, FEW), {"n_folds": 4}, ValueError, r"n_folds = 4 samples of each class, got 3 of class 1.*; lower n_folds"),
        ((x, y, FEW), {"n_folds": 1}, ValueError, "n_folds"),
        ((x, y.astype(np.float32), FEW), {}, TypeError, "y: expected labels of an integer or bool dtype, got float32"),
        ((x, y.astype(str), FEW), {}, TypeError, r"numpy.unique\(y, return_inverse=True\)\[1\]"),
        ((x, y + 1, FEW), {}, ValueError, r"none of class 0; .*numpy.unique\(y, .*n_classes=4"),
        ((x, y.astype(np.int64) - 1, FEW), {}, IndexError, "y: expected labels of at least 0, got -1"),
        ((x[0], y[:1], FEW), {}, ValueError, r"x: expected shape .*; pass \[x\] for one sample"),
        ((x.astype(str), y, FEW), {}, TypeError, "x: expected an array of real numbers"),
        ((x, y, FEW), {"progress": "bar"}, TypeError, "progress: expected None, True or a function"),
        ((x, y, FEW), {"checkpoint": True}, TypeError, "checkpoint: expected None or a function"),
        ((np.where(x > 2, np.inf, x).astype(np.float32), y, FEW), {}, ValueError, "finite"),
        ((x, y, FEW), {"n_classes": 2}, IndexError, "n_classes = 2"),
        ((x, y, FEW), {"max_bins": 257}, ValueError, "max_bins: expected"),
        ((x, y, []), {}, ValueError, "at least one function"),
        ((x, y, FEW[0]), {}, TypeError, "sequence of functions"),
        ((x, y, [lambda x, y, **more: None]), {"class_vectors": "out_of_bag"}, TypeError, "binds n_trees"),
        ((x, y, FEW), {"class_vectors": "all"}, ValueError, "class_vectors: expected one of 'out_of_fold', 'out_of_bag'"),
        ((x, y, [lambda x, y, **more: hforest.grow(x.astype(np.float64), y, 3, **more)]), {}, TypeError,
         r"forests\[0\]: expected a forest of dtype float32 like the samples"),
        ((x, y, [lambda x, y, **more: None]), {}, TypeError, r"forests\[0\]: expected a function that returns"),
        (((x, x[:-1]), y, FEW), {}, ValueError, r"x\[1\]"),
        (((), y, FEW), {}, ValueError, "expected an array or a sequence"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            cascade.grow(*arguments, max_levels=1, rng=0, **settings)


def never(x, y, **more):
    raise AssertionError("a forest was grown")


NEVER = partial(never, n_trees=3)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        (r"forests\[1\]", {"forests": [NEVER, 3]}),
        (r"forests\[1\]", {"forests": [NEVER, None]}),
        (r"forests\[1\]", {"forests": [NEVER, hforest.samples]}),
        (r"forests\[1\]", {"forests": [NEVER, partial(hforest.grow, n_tree=5)]}),
        *((r"forests\[1\]", {"forests": [NEVER, partial(hforest.grow, **{setting: 1})]}) for setting in ("first_tree", "progress", "rng")),
        (r"forests\[1\]", {"forests": [NEVER, lambda x, y: None]}),
        (r"forests\[1\]", {"forests": [NEVER, lambda: None]}),
        ("forests", {"forests": NEVER}),
        ("forests", {"forests": "grow"}),
        ("forests", {"forests": {NEVER}}),
        ("forests", {"forests": (NEVER for _ in range(2))}),
        (r"forests\[1\]", {"class_vectors": "out_of_bag", "forests": [NEVER, never]}),
        (r"forests\[1\].*n_trees", {"class_vectors": "out_of_bag", "forests": [NEVER, partial(never, n_trees="9")]}),
        (r"forests\[1\].*n_trees", {"class_vectors": "out_of_bag", "forests": [NEVER, partial(never, n_trees=None)]}),
        (
            r"forests\[0\]: .*bootstrap",
            {"class_vectors": "out_of_bag", "forests": [partial(lambda x, y, n_trees, n_classes, rng: 0, n_trees=3)]},
        ),
        ("progress", {"progress": "bar"}),
        ("progress", {"progress": 1}),
        ("progress", {"progress": lambda: True}),
        ("progress", {"progress": lambda done: True}),
        ("checkpoint", {"checkpoint": "c.npz"}),
        ("checkpoint", {"checkpoint": lambda: None}),
        ("checkpoint", {"checkpoint": lambda state, name: None}),
        ("resume", {"resume": "c.npz"}),
        ("resume", {"resume": {"levels": ()}}),
        ("n_folds", {"n_folds": 3.0}),
        ("n_folds", {"n_folds": None}),
        ("n_folds", {"n_folds": "3", "class_vectors": "out_of_bag", "forests": [partial(hforest.grow, n_trees=3)]}),
        ("patience", {"patience": "1"}),
        ("patience", {"patience": 1.5}),
        ("patience", {"patience": None}),
        ("max_levels", {"max_levels": True}),
        ("max_levels", {"max_levels": None}),
        ("n_classes", {"n_classes": "3"}),
        ("rng", {"rng": "seed"}),
        ("rng", {"rng": np.random.RandomState(0)}),
    ],
)  # fmt: skip
def test_settings_of_a_wrong_kind_are_found_before_a_forest_grows(name, settings):
    x, y = blobs(60)
    with refused(TypeError, f"^{name}"):
        cascade.grow(x, y, **{"forests": [NEVER], **settings})
    if settings.keys() & {"class_vectors", "patience", "max_levels", "checkpoint", "resume"}:
        return
    with refused(TypeError, f"^{name}"):
        cascade.grow_scanner(x, y, (5,), 2, **{"forests": [NEVER], **settings})


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("shape", {"shape": "5"}),
        ("shape", {"shape": 5}),
        ("shape", {"shape": None}),
        (r"shape\[0\]", {"shape": (5.0,)}),
        ("window", {"window": 2.0}),
        ("window", {"window": None}),
        ("window", {"window": True}),
        (r"window\[0\]", {"window": ("2",)}),
        ("stride", {"stride": "1"}),
        ("stride", {"stride": {1: 1}}),
        ("max_windows", {"max_windows": 2.0}),
        ("max_windows", {"max_windows": "all"}),
    ],
)
def test_windows_of_a_wrong_kind_are_found_before_a_forest_grows(name, settings):
    x, y = blobs(60)
    with refused(TypeError, f"^{name}: "):
        cascade.grow_scanner(x, y, **{"shape": (5,), "window": 2, "forests": [NEVER], **settings})
    if "max_windows" not in settings:
        with refused(TypeError, f"^{name}: "):
            cascade.scan(x, **{"shape": (5,), "window": 2, **settings})


def test_sizes_whose_product_overflows():
    # 2**64 + 4.
    with pytest.raises(ValueError, match="^shape: expected sizes that multiply to n_features = 4, got"):
        cascade.scan(np.zeros((2, 4)), (769546, 494770, 48448661), 1)


def test_functions_of_other_kinds_are_called():
    x, y = blobs(60)

    class Grower:
        def __call__(self, x, y, *, n_classes, rng):
            return hforest.grow(x, y, 3, n_classes=n_classes, rng=rng)

    @functools.wraps(hforest.grow)  # the arguments of the wrapper count, not those of the wrapped function
    def wrapped(*args, **more):
        return hforest.grow(*args, 3, **more)

    bound = partial(partial(hforest.grow, n_trees=3), n_classes=3)
    growers = [Grower(), Grower().__call__, wrapped, bound]
    states = []
    grown = cascade.grow(x, y, growers, max_levels=1, checkpoint=states.append, progress=max, rng=0)
    assert len(grown.levels[0]) == 4
    assert len(states) == 1


class Strange:
    """Samples whose conversion raises an error of another class."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("not now")


def test_grains_that_cannot_be_read():
    x, y = blobs(60)
    for given in ([Strange(), x], (x, Strange()), Strange(), [x, None]):
        with pytest.raises(TypeError, match=r"^x(\[1\])?: expected .*, got .*; "):
            cascade.grow(given, y, [NEVER])


def first_of(c, **fields):
    """Returns levels whose first forest has other fields."""
    return ((c.levels[0][0]._replace(**fields), *c.levels[0][1:]), *c.levels[1:])


@pytest.mark.parametrize(
    ("change", "error", "name"),
    [
        (lambda c: {"levels": None}, TypeError, r"\w+.levels"),
        (lambda c: {"levels": (3, 3)}, TypeError, r"\w+.levels\[0\]"),
        (lambda c: {"levels": ((), ())}, ValueError, r"\w+.levels\[0\]"),
        (lambda c: {"levels": (c.levels[0], c.levels[1][:1])}, ValueError, r"\w+.levels\[1\]"),
        (lambda c: {"levels": ((None, None), c.levels[1])}, TypeError, r"\w+.levels\[0\]\[0\]: expected a hforest.tree.Forest"),
        (lambda c: {"levels": c.levels[::-1]}, ValueError, r"\w+.levels\[0\]\[0\]: .*n_features"),
        (lambda c: {"n_classes": "3"}, TypeError, r"\w+.n_classes"),
        (lambda c: {"n_classes": 2}, ValueError, r"\w+.levels\[0\]\[0\]: .*n_classes"),
        (lambda c: {"n_features": 5}, TypeError, r"\w+.n_features"),
        (lambda c: {"n_features": (5.0,)}, TypeError, r"\w+.n_features\[0\]"),
        (lambda c: {"n_features": ()}, ValueError, r"\w+.n_features"),
        (lambda c: {"n_features": np.array([5, 5])}, TypeError, r"\w+.n_features"),
        (lambda c: {"class_vectors": np.array(["a", "b"])}, ValueError, r"\w+.class_vectors"),
        (lambda c: {"n_folds": None}, TypeError, r"\w+.n_folds"),
        (lambda c: {"n_folds": 7}, ValueError, r"\w+.levels\[0\]\[0\]: .*trees divisible by n_folds = 7"),
        (lambda c: {"seed": "0"}, TypeError, r"\w+.seed"),
        (lambda c: {"levels": first_of(c, threshold=None)}, TypeError, r"\w+.levels\[0\]\[0\].threshold"),
        (lambda c: {"levels": (c.levels[0], c.levels[1][:1] + folds_of_float64(c))}, ValueError, r"\w+.levels\[1\]\[1\]: .*dtype"),
    ],
)  # fmt: skip
def test_cascades_that_contradict_themselves(change, error, name):
    x, y = blobs(60)
    states = []
    cascade.grow(x, y, FEW, max_levels=2, patience=2, rng=0, checkpoint=states.append)
    wrong = states[-1]._replace(**change(states[-1]))
    with pytest.raises(error, match=f"^{name}"):
        cascade.predict(wrong, x)
    with pytest.raises(error, match=f"^{name}"):
        cascade.grow(x, y, [NEVER] * 2, max_levels=3, patience=2, rng=0, resume=wrong)
    with hforest.unchecked(), pytest.raises(error, match=f"^{name}"):
        cascade.predict(wrong, x)


def folds_of_float64(c):
    forest = c.levels[1][1]
    wide = {name: getattr(forest, name).astype(np.float64) for name in ("threshold", "value", "gain", "data")}
    return (forest._replace(**wide),)


def test_scanners_that_contradict_themselves():
    x, y = blobs(60)
    scanner, _ = cascade.grow_scanner(x, y, (5,), 2, FEW, rng=0)
    first = scanner.forests[0]
    other = hforest.grow(x[:, :2], y, 2, n_classes=4, rng=0)
    for change, error, name in (
        ({"forests": ()}, ValueError, "scanner.forests: expected at least one"),
        ({"forests": None}, TypeError, "scanner.forests: expected a tuple"),
        ({"forests": (first, 3)}, TypeError, r"scanner.forests\[1\]: expected a hforest.tree.Forest"),
        ({"forests": (first, other)}, ValueError, r"scanner.forests\[1\]: .*n_classes = 3 .*got 4"),
        ({"window": (3,)}, ValueError, r"scanner.forests\[0\]: .*n_features = 3 .*got 2"),
        ({"window": None}, TypeError, "scanner.window: expected an int"),
        ({"shape": "5"}, TypeError, "scanner.shape: expected"),
    ):
        with pytest.raises(error, match=f"^{name}"):
            cascade.scan_vectors(scanner._replace(**change), x)


def test_values_that_are_no_probabilities():
    x, y = blobs()

    def doubled(x, y, *, n_classes, rng):
        forest = hforest.grow(x, y, 4, n_classes=n_classes, rng=rng)
        return forest._replace(value=2 * forest.value)

    with pytest.raises(ValueError, match=r"forests\[1\]: .*sum to 1, got a sum of 2"):
        cascade.grow(x, y, [FEW[0], doubled], max_levels=1, rng=0)


def test_bad_resume_and_bad_predictions():
    x, y = blobs()
    grown = cascade.grow(x, y, FEW, max_levels=1, rng=0)
    first, second = grown.levels[0]
    broken = grown._replace(levels=((first._replace(left=first.left - 1), second),))
    for given, error, message in (
        ({"rng": 1}, ValueError, "resume: expected seed"),
        ({"forests": FEW[:1]}, ValueError, "levels of 1 forests"),
        ({"resume": 1}, TypeError, "resume: expected a Cascade"),
        ({"resume": broken}, IndexError, "expected nodes that lead to leaves"),
    ):
        with pytest.raises(error, match=message):
            cascade.grow(x, y, **{"forests": FEW, "max_levels": 1, "rng": 0, "resume": grown, **given})
    for given, rows, error, message in (
        (grown, x[:, :3].copy(), ValueError, "n_features"),
        (grown, x[0], ValueError, r"x: expected shape .*; pass \[x\] for one sample"),
        (grown, np.full((2, 5), np.inf), ValueError, "x: expected finite"),
        (broken, x, IndexError, "expected nodes that lead to leaves"),
        (grown._replace(levels=()), x, ValueError, "expected a number for each of 0 levels"),
        (grown, (x, x), ValueError, "n_features"),
        (1, x, TypeError, "cascade: expected a Cascade"),
    ):
        with pytest.raises(error, match=message):
            cascade.predict(given, rows)
    with pytest.raises(TypeError, match="grown: expected"):
        cascade.save("unused", 1)


def test_no_samples_to_predict():
    x, y = blobs()
    grown = cascade.grow(x, y, FEW, max_levels=2, rng=0)
    assert cascade.predict(grown, x[:0]).shape == (0, 3)
    assert hforest.cascade.Cascade is cascade.Cascade


# ----------------------------------------------------------------------- tuples made by hand


def _grown():
    x, y = np.arange(24.0, dtype=np.float32).reshape(6, 4), np.array([0, 1] * 3)
    growers = [partial(hforest.grow, n_trees=2)]
    return (
        cascade.grow(x, y, growers, n_folds=2, max_levels=1, rng=0),
        cascade.grow_scanner(x, y, (4,), 2, growers, n_folds=2, rng=0)[0],
    )


# Values that a field refuses in addition to those of wrong types.
_REFUSED = {
    "n_classes": (0, 3, 2.0), "n_features": ((), (5,), 4), "class_vectors": ("in_bag",), "n_folds": (0, 3, 1.5),
    "seed": (-1, 2**70, 0.5), "scores": ((), (2.0,), (None,), 0.5), "levels": ((1,), ((),), ((None,),), 3),
    "shape": ((1,), (0,), (), 4), "window": ((5,), (1, 1), 0, 1.5), "stride": ((0,), 2**70, "1"),
    "forests": ((), (None,), [1], 3),
}  # fmt: skip


@pytest.mark.parametrize("field", _REFUSED)
def test_fields_that_do_not_fit_are_not_saved(field, tmp_path):
    grown, scanner = _grown()
    made, use, argument = (
        (grown, cascade.predict, "cascade")
        if hasattr(grown, field)
        else (scanner, cascade.scan_vectors, "scanner")
    )
    for value in (None, object(), "a", np.zeros((2, 2)), np.array(["a"]), {1}, *_REFUSED[field]):
        bad = made._replace(**{field: value})
        with pytest.raises((TypeError, ValueError), match=r"(?s)^grown\.\w+.*: expected .*, got .*; "):
            cascade.save(tmp_path / "a.npz", bad)
        with pytest.raises(
            (TypeError, ValueError), match=rf"(?s)^({argument}|x|shape)\b.*: expected .*, got .*; "
        ):
            use(bad, np.zeros((2, 4), np.float32))
    assert not list(tmp_path.iterdir())


def test_a_damaged_forest_is_named_by_its_place(tmp_path):
    grown, scanner = _grown()
    bad = grown.levels[0][0]._replace(left=grown.levels[0][0].left + 99)
    with pytest.raises(IndexError, match=r"^cascade\.levels\[0\]\[0\]: expected nodes that lead to leaves"):
        cascade.predict(grown._replace(levels=((bad,),)), np.zeros((2, 4), np.float32))
    bad = scanner.forests[0]._replace(left=None)
    wrong = r"^scanner\.forests\[0\]\.left: expected a numpy.ndarray .* numpy.asarray\(scanner\.forests\[0\]\.left,"
    with pytest.raises(TypeError, match=wrong):
        cascade.scan_vectors(scanner._replace(forests=(bad,)), np.zeros((2, 4), np.float32))


def test_vectors_of_no_samples():
    _, scanner = _grown()
    assert cascade.scan_vectors(scanner, np.zeros((0, 4), np.float32)).shape == (0, 3 * 2)


def test_paths_of_wrong_kinds():
    for value in (None, 3, 1j, object(), "a\0b", b"a.npz"):
        with pytest.raises((TypeError, ValueError), match="^file: expected a path, got .*; pass"):
            cascade.load(value)
        with pytest.raises((TypeError, ValueError), match="^file: expected a path, got .*; pass"):
            cascade.save(value, _grown()[0])
