"""Conversion of samples, labels, targets, weights and settings: accepted inputs, results and errors."""

import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from conftest import assert_same_bits, refused
from scipy import sparse

import hforest
from hforest import co2, layers, neural, tree
from hforest.core import check, class_factors, progress, supervised
from hforest.core.real import fault

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FOREIGN = "S"  # swaps the byte order
REAL = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "g"]


def foreign(dtype):
    return np.dtype(dtype).newbyteorder(FOREIGN)


class Table:
    """An object that is not an array but converts to one, like a table."""

    def __init__(self, a):
        self.a = a

    def __array__(self, dtype=None, copy=None):
        return self.a if dtype is None else self.a.astype(dtype)


class Subclass(np.ndarray):
    """An array of another type."""


def check_result(out, dtype, values):
    assert type(out) is np.ndarray
    assert out.dtype == np.dtype(dtype)
    assert out.dtype.isnative
    assert out.flags.c_contiguous
    assert out.flags.aligned
    assert out.tolist() == values


# ------------------------------------------------------------------------------------------- samples

RULE = {
    "?": "f4", "i1": "f4", "i2": "f4", "u1": "f4", "u2": "f4", "f2": "f4", "f4": "f4",
    "i4": "f8", "i8": "f8", "u4": "f8", "u8": "f8", "f8": "f8", "g": "f8",
}  # fmt: skip


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("given", REAL)
def test_the_rule_of_dtypes(given, order):
    assert RULE.keys() == set(REAL)
    x = np.array([[1, 0, 1], [0, 1, 1]]).astype(given, order=order)
    for f in (supervised.matrix, supervised.samples):
        check_result(f("x", x), RULE[given], [[1, 0, 1], [0, 1, 1]])
    # An existing forest decides.
    for dtype in (np.float32, np.float64):
        assert supervised.matrix("x", x, np.dtype(dtype)).dtype == dtype


@pytest.mark.parametrize("given", ["i1", "u1", "i2", "u2", "f2"])
def test_small_dtypes_are_exact_in_float32(given):
    info = np.finfo(given) if given[0] == "f" else np.iinfo(given)
    x = np.array([[info.min, info.max]], given)
    assert supervised.matrix("x", x).astype(np.float64).tolist() == x.astype(np.float64).tolist()


def test_what_is_right_is_not_copied(dtype):
    x = np.ones((3, 2), dtype)
    assert supervised.matrix("x", x) is x
    assert supervised.samples("x", x) is x
    x.flags.writeable = False
    assert supervised.matrix("x", x) is x


def test_layouts(dtype):
    x = np.arange(12, dtype=dtype).reshape(4, 3)
    unaligned = np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view(dtype).reshape(4, 3)
    assert not unaligned.flags.aligned
    wide = np.zeros((8, 9), dtype)
    wide[::2, ::3] = x
    for given in (
        np.asfortranarray(x), x[::-1, ::-1].copy()[::-1, ::-1], wide[::2, ::3], x.T.copy().T,
        np.broadcast_to(x, (4, 3)), unaligned, x.astype(foreign(dtype)), Table(x), x.view(Subclass), x.astype(object),
    ):  # fmt: skip
        before = np.array(given).tolist()
        check_result(supervised.matrix("x", given, np.dtype(dtype)), dtype, x.tolist())
        assert np.array(given).tolist() == before


def test_what_is_not_an_array():
    want = [[1.0, 2.0], [3.0, 0.5]]
    for given in (want, ((1, 2), (3, 0.5)), [[1, np.float32(2)], [Fraction(3), 0.5]], Table(np.array(want))):
        check_result(supervised.matrix("x", given), np.float64, want)
    check_result(supervised.matrix("x", [[True, False]]), np.float32, [[1, 0]])
    check_result(supervised.matrix("x", np.array([[np.True_, 2.5]], object)), np.float64, [[1.0, 2.5]])


def test_memory_maps(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    out = supervised.matrix("x", np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert (out == 1).all()


@pytest.mark.libraries
def test_tables_of_pandas():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": [1, 2], "b": [0.5, 1.5]})
    check_result(supervised.matrix("x", table), np.float64, [[1, 0.5], [2, 1.5]])
    assert supervised.matrix("x", table.astype(np.float32)).dtype == np.float32
    assert supervised.matrix("x", pandas.DataFrame({"a": [True], "b": [2]})).tolist() == [[1, 2]]
    assert supervised.matrix("x", table.astype("Int64", errors="ignore")).tolist() == [[1, 0.5], [2, 1.5]]
    assert supervised.labels("y", pandas.Series([0, 2, 1]), 3)[0].tolist() == [0, 2, 1]
    assert supervised.labels("y", pandas.Series([0, 2, 1], dtype="Int64"), 3)[0].tolist() == [0, 2, 1]
    assert supervised.labels("y", pandas.Series([True, False]), 2)[0].tolist() == [1, 0]
    assert supervised.targets("y", pandas.Series([0.5, 2]), 2).tolist() == [[0.5], [2]]
    assert supervised.sample_weight(pandas.Series([1, 2]), np.zeros(2)).tolist() == [1, 2]
    text = pandas.DataFrame({"a": [1], "b": ["u"]})
    missing = pandas.DataFrame({"a": pandas.array([None, 1], dtype="Int64"), "b": ["", ""]})
    labels = pandas.Series(["u", "v"], dtype=object)
    for call, message in (
        (lambda: supervised.matrix("x", text), r"x: expected numbers, got 'u' \(str\) at index \(0, 1\); number the categories"),
        (lambda: supervised.matrix("x", missing), r"x: expected numbers, got <NA> .* at index \(0, 0\); .* missing values"),
        (lambda: supervised.labels("y", labels, 2),
            r"y: expected labels of an integer or bool dtype.*numpy.unique\(y, return_inverse=True\)\[1\]"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=message):
            call()


# A column that is refused, words of the remedy, and the result of the remedy.
COLUMNS = {
    "dates": (
        lambda pd: pd.Series(pd.to_datetime(["2020-01-01", "2020-01-03"])), "convert dates to numbers", "days",
        lambda column: (column - column.min()) / np.timedelta64(1, "D"), [0, 2],
    ),
    "dates of a time zone": (
        lambda pd: pd.Series(pd.to_datetime(["2020-01-01", "2020-01-03"], utc=True)), "convert dates to numbers", "days",
        lambda column: (column - column.min()) / np.timedelta64(1, "D"), [0, 2],
    ),
    "durations": (
        lambda pd: pd.Series(pd.to_timedelta([36, 48], unit="h")), "convert durations to numbers", "days",
        lambda column: column / np.timedelta64(1, "D"), [1.5, 2],
    ),
    "categories": (
        lambda pd: pd.Series(pd.Categorical(["red", "blue"])), "number the categories", "column.astype('category').cat.codes",
        lambda column: column.astype("category").cat.codes, [1, 0],
    ),
    "text": (
        lambda pd: pd.Series(["red", "blue"]), "number the categories", "numpy.unique(column, return_inverse=True)[1]",
        lambda column: np.unique(column, return_inverse=True)[1], [1, 0],
    ),
    "pandas.NA": (
        lambda pd: pd.Series([1.5, None], dtype="Float64"), "replace them by NaN", "to_numpy(float, na_value=numpy.nan)",
        lambda column: column.to_numpy(float, na_value=np.nan), [1.5, np.nan],
    ),
    "NA among objects": (
        lambda pd: pd.Series([1.5, pd.NA], dtype=object), "replace them by NaN", "to_numpy(float, na_value=numpy.nan)",
        lambda column: column.to_numpy(float, na_value=np.nan), [1.5, np.nan],
    ),
}  # fmt: skip


# A table of only Float64 becomes an array with NaN.
@pytest.mark.libraries
@pytest.mark.parametrize(
    ("name", "beside"), [(name, b) for name in COLUMNS for b in (True, False) if b or name != "pandas.NA"]
)
def test_columns_of_tables_have_a_remedy_that_works(name, beside):
    make, words, code, remedy, want = COLUMNS[name]
    pandas = pytest.importorskip("pandas")
    column = make(pandas)
    table = pandas.DataFrame({"a": [0.5, 1.5], "b": column} if beside else {"b": column})
    with pytest.raises(TypeError, match="^x: expected .*, got .*; ") as caught:
        supervised.samples_or_missing("x", table)
    assert words in str(caught.value)
    assert code in str(caught.value)
    np.testing.assert_array_equal(remedy(column), want)
    found, _ = supervised.samples_or_missing("x", table.assign(b=remedy(column)))
    np.testing.assert_array_equal(found[:, -1], want)


def test_what_is_wrong_with_samples():
    assert fault("x", np.ones((2, 3))) == fault("x", [[True, 2]]) == fault("x", np.ones(3)) == ""
    assert fault("X", np.ones((2, 3, 4))).endswith("; pass a row for each sample, X.reshape(len(X), -1)")
    assert fault("X", [["a"]]).startswith("X: expected an array of real numbers, got dtype <U1; number")


class Sparse:
    """numpy.asarray returns an object without axes, as for SciPy's sparse matrices."""

    def toarray(self):
        return np.ones((2, 2))


def test_numbers_out_of_range():
    float32 = np.dtype(np.float32)
    big = np.array([[1.0, -1e39]])
    assert supervised.matrix("x", big) is big
    with hforest.unchecked():
        assert np.isinf(supervised.matrix("x", big, float32)).any()
    if np.finfo(np.longdouble).max > np.finfo(np.float64).max:
        with pytest.raises(ValueError, match="range of float64, got larger ones in"):
            supervised.matrix("x", np.array([["1e400"]]).astype(np.longdouble))
    tiny = supervised.matrix("x", np.array([[1e-60]]), float32)
    assert tiny.tolist() == [[0.0]]


def test_samples_are_some():
    assert supervised.matrix("x", np.ones((0, 3))).shape == (0, 3)
    assert supervised.matrix("x", np.ones((3, 0))).shape == (3, 0)


# ------------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize("n_classes", [None, 3, 7])
@pytest.mark.parametrize("dtype", [*INTEGERS, *(foreign(d) for d in INTEGERS), object], ids=str)
def test_labels_of_every_integer_dtype(dtype, n_classes):
    y = np.array([0, 2, 1, 2]).astype(dtype)
    for given in (y, np.repeat(y, 2)[::2], y[::-1].copy()[::-1], Table(y)):
        out, found = supervised.labels("y", given, 4, n_classes)
        check_result(out, np.int32, [0, 2, 1, 2])
        assert found == (n_classes or 3)


F = np.random.default_rng(0).normal(size=(40, 2, 3))
LEAVES = np.random.default_rng(0).dirichlet(np.ones(3), (2, 4))
X, W, THETA = F[:, 0].copy(), np.array([1.0, 0, 0]), np.array([0.3, 0.0])
QUICK = {"lr": 0.1, "max_rounds": 2, "rng": 0}
LABELLED = {
    "layers.softmax_loss": lambda y: layers.softmax_loss(X, y),
    "neural.loss_backward": lambda y: [neural.loss_backward(F, LEAVES, y, loss=loss) for loss in ("forest", "tree")],
    "neural.update_leaves": lambda y: neural.update_leaves(F, y, LEAVES),
    "split.best_split": lambda y: hforest.split.best_split(X.T.copy(), y),
    "co2.surrogate": lambda y: co2.surrogate(X, y, W, THETA, -THETA),
    "co2.surrogate_grad": lambda y: co2.surrogate_grad(X, y, W, THETA, -THETA),
    "co2.fit_stump": lambda y: co2.fit_stump(X, y, W, **QUICK),
    "co2.fit_oc1": lambda y: co2.fit_oc1(X, y, W, rng=0),
    "co2.grow": lambda y: co2.grow(X, y, 1, **QUICK),
    "tree.permutation_importance": lambda y: tree.permutation_importance(hforest.grow(X, X[:, 0] > 0, 3, rng=0), X, y, rng=1),
}  # fmt: skip


@pytest.mark.parametrize("name", LABELLED)
def test_functions_take_labels_of_every_integer_dtype(name):
    call, y = LABELLED[name], np.random.default_rng(1).integers(0, 2, 40, np.int32)
    want = call(y)
    for dtype in (bool, *INTEGERS, *map(foreign, INTEGERS)):
        given = y.astype(dtype)
        for labels in (given, np.repeat(given, 2)[::2], given.tolist()):
            assert_same_bits(call(labels), want)


def test_labels_belong_to_the_call():
    y = np.array([0, 1, 1], np.int32)
    for n_classes in (None, 5):
        labels, _ = supervised.labels("y", y, 3, n_classes)
        assert (labels == y).all()
        assert not labels.flags.writeable
        assert not np.may_share_memory(labels, y)


@pytest.mark.parametrize("y", [np.array([True, False]), [True, False], np.array([True, False], object)])
def test_labels_that_are_bools(y):
    out, n_classes = supervised.labels("y", y, 2)
    assert (out.dtype, out.tolist(), n_classes) == (np.int32, [1, 0], 2)


def test_one_class_and_no_sample():
    assert supervised.labels("y", np.zeros(3, int), 3)[1] == 1
    assert supervised.labels("y", np.zeros(0, int), 0)[1] == 1
    assert supervised.labels("y", np.zeros(0, int), 0, 4)[1] == 4


@pytest.mark.parametrize("y", [[1, 2, 3], [5, -2, 5], [0.5, 2.0, 0.5], ["b", "a", "b"], [2**40, 0, 7]])
def test_the_advice_works(y):
    with pytest.raises((TypeError, ValueError, IndexError)) as caught:
        supervised.labels("y", y, 3)
    advice = re.search(r"numpy\.unique\(.*\)\[1\]", str(caught.value))[0]
    renumbered = eval(advice, {"numpy": np, "y": y})
    out, n_classes = supervised.labels("y", renumbered, 3)
    assert n_classes == len(set(y))
    assert out.tolist() == [sorted(set(y)).index(label) for label in y]


def test_the_name_of_labels_is_in_the_advice():
    with pytest.raises(TypeError, match=r"^y_test: .*numpy\.unique\(y_test, return_inverse=True\)\[1\]$"):
        supervised.labels("y_test", ["a"], 1)


def test_unchecked_labels():
    with hforest.unchecked():
        assert supervised.labels("y", np.array([0, 9]), 2, 3)[0].tolist() == [0, 9]
        with pytest.raises(ValueError, match="none of class 1"):  # to count classes, labels must be read
            supervised.labels("y", np.array([0, 9]), 2)
        with pytest.raises(TypeError, match="integer or bool"):
            supervised.labels("y", np.array([0.0, 1.0]), 2, 3)


# ------------------------------------------------------------------------------------------- targets


@pytest.mark.parametrize("given", [*REAL, foreign("f4"), object], ids=str)
def test_targets_of_any_real_dtype(given):
    y = np.array([[1, 0], [0, 1], [1, 1]]).astype(given)
    both = [[1, 0], [0, 1], [1, 1]]
    for a, want in ((y, both), (y[:, 0], [[1], [0], [1]]), (np.asfortranarray(y), both)):
        check_result(supervised.targets("y", a, 3), np.float64, want)


def test_target_of_a_task():
    found = supervised.target([1, 0, 1], 3, "classification", None)
    assert found.labels.tolist() == [1, 0, 1]
    assert found.targets is None
    assert found.n_outputs == 2
    assert supervised.target([1, 0, 1], 3, "classification", 5).n_outputs == 5
    found = supervised.target([1, 0, 1], 3, "regression", None)
    assert found.labels is None
    assert found.targets.tolist() == [[1], [0], [1]]
    assert found.n_outputs == 1
    assert supervised.target(np.ones((3, 4)), 3, "regression", None).n_outputs == 4


# ------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("given", [*REAL, foreign("f8"), object], ids=str)
def test_weights_of_any_real_dtype(given):
    out = supervised.sample_weight(np.array([1, 0, 1]).astype(given)[::-1], np.zeros(3))
    check_result(out, np.float64, [1, 0, 1])


def test_no_weights_are_ones():
    check_result(supervised.sample_weight(None, np.zeros((4, 2))), np.float64, [1, 1, 1, 1])


def weighted(class_weight, of_samples=(1.0, 2.0, 3.0, 4.0), y=(0, 0, 2, 2), n_classes=3):
    found = supervised.target(np.array(y), len(y), "classification", n_classes)
    return class_factors.applied(class_weight, found, np.array(of_samples))


def test_class_weight_in_three_forms():
    assert weighted(None).tolist() == [1, 2, 3, 4]
    # Weights of the classes are 3, 0 and 7; the present ones get half of 10 each.
    np.testing.assert_allclose(weighted("balanced"), [5 / 3, 10 / 3, 15 / 7, 20 / 7], rtol=1e-15)
    assert weighted({2: 10}).tolist() == [1, 2, 30, 40]
    assert weighted({np.int8(0): 0, 2: 0.5}).tolist() == [0, 0, 1.5, 2]
    for given in ([2, 9, 3], np.array([2, 9, 3], np.uint8), np.array([2, 9, 3], ">f4")):
        assert weighted(given).tolist() == [2, 4, 9, 12]
    assert weighted({False: 3, True: 1}, y=(0, 1, 0, 1), n_classes=2).tolist() == [3, 2, 9, 4]
    assert weighted({np.False_: 3}, y=(0, 1, 0, 1), n_classes=2).tolist() == [3, 2, 9, 4]


def test_class_weight_does_not_write_into_its_arguments():
    of_samples, factors = np.array([1.0, 2.0]), np.array([2.0, 3.0])
    found = supervised.target([0, 1], 2, "classification", None)
    assert class_factors.applied(factors, found, of_samples).tolist() == [2, 6]
    assert of_samples.tolist() == [1, 2]
    assert factors.tolist() == [2, 3]


def test_class_weight_belongs_to_classification():
    found = supervised.target([0, 1], 2, "regression", None)
    assert class_factors.applied(None, found, np.ones(2)).tolist() == [1, 1]
    for weight in ("balanced", {0: 1}, [1, 2]):
        message = '^class_weight: expected None with task="regression".*pass sample_weight'
        with pytest.raises(ValueError, match=message):
            class_factors.applied(weight, found, np.ones(2))


def test_real_labels_are_told_of_regression():
    with pytest.raises(TypeError, match=r'y: .*got float64; .*, or pass task="regression" for targets'):
        supervised.target(np.zeros(3), 3, "classification", None)
    with pytest.raises(TypeError) as error:
        supervised.labels("y", np.zeros(3), 3)
    assert "regression" not in str(error.value)


def test_in_bag_counts_are_aligned():
    counts = np.array([[1, 0, 2]], np.int32)
    unaligned = np.frombuffer(b"." + counts.tobytes(), np.uint8)[1:].view(np.int32).reshape(1, 3)
    assert not unaligned.flags.aligned
    given = supervised.in_bag_counts("counts", unaligned, 1, 3)
    assert given.flags.aligned
    np.testing.assert_array_equal(given, counts)
    assert supervised.in_bag_counts("counts", counts, 1, 3) is counts


# ------------------------------------------------------------------------------------------- settings


def test_criterion():
    numbers = [supervised.criterion(c, "classification") for c in ("gini", "entropy")]
    assert [*numbers, supervised.criterion("squared_error", "regression")] == [0, 1, 2]
    assert supervised.criterion(None, "classification") == 0
    assert supervised.criterion(None, "classification", "entropy") == 1
    assert supervised.criterion(None, "regression", "entropy") == 2


def test_limits():
    assert supervised.limits(None, 2, 1) == (check.MAX_COUNT, 2, 1, 0.0, 0.0, 0)
    assert supervised.limits(np.int64(0), np.int8(5), 3, np.float32(0.5), 0.25) == (0, 5, 3, 0.5, 0.25, 0)


def test_max_features_and_bins():
    for value, n_features, want in (
        ("sqrt", 10, 3), ("sqrt", 16, 4), ("sqrt", 1, 1), (None, 10, 10), (0.5, 11, 5), (1.0, 11, 11),
        (1e-9, 11, 1), (np.float32(0.25), 8, 2), (7, 10, 7), (np.int16(10), 10, 10),
    ):  # fmt: skip
        assert supervised.max_features(value, n_features) == want
    assert [supervised.max_bins(value) for value in (None, 1, np.uint16(256))] == [None, 1, 256]


# ------------------------------------------------------------------------------------- what is refused


def of(call, *rows):
    return [(call, *row) for row in rows]


FLOAT32, UNIQUE = np.dtype(np.float32), "renumber the classes with numpy.unique(y, return_inverse=True)[1]"
SAMPLES = [
    (np.ones(3), ValueError, r"x: expected shape (n_samples, n_features), got (3,); pass [x] for one sample"),
    ([1, 2], ValueError, r"got (2,); pass [x] for one sample, numpy.array(x)[:, None] for one feature"),
    (np.ones((1, 2, 3)), ValueError, "got (1, 2, 3); pass a row for each sample, x.reshape(len(x), -1)"),
    (3.0, ValueError, "got (); pass a row for each sample"),
    (None, TypeError, "x: expected an array of real numbers, got NoneType"),
    (Sparse(), TypeError, "x: expected an array of real numbers, got Sparse; pass x.toarray()"),
    ({"a": 1}, TypeError, "x: expected an array of real numbers, got dict; pass a list of numbers"),
    ([[1, 2], [3]], TypeError, "x: expected an array, got list"),
    (np.ma.masked_equal([[1, 2]], 2), TypeError,
        "x: expected an array without a mask, got a masked array; fill or drop"),
    (np.ones((2, 2), complex), TypeError, "x: expected an array of real numbers, got dtype complex128; "),
    (np.full((2, 2), "a"), TypeError, "x: expected an array of real numbers, got dtype <U1; number the categories"),
    (np.zeros((2, 2), "M8[s]"), TypeError, "got dtype datetime64[s]; convert dates to numbers"),
    (np.zeros((2, 2), "m8[s]"), TypeError, "got dtype timedelta64[s]; convert durations to numbers"),
    (np.array([[1, None]], object), TypeError, "x: expected numbers, got None (NoneType) at index (0, 1); "),
    (np.array([[Decimal(1)]], object), TypeError, "got Decimal('1') (Decimal) at index (0, 0)"),
    (np.array([[10**400]], object), ValueError, "x: expected numbers in the range of float64, got larger integers"),
    ([[1.0, np.nan]], ValueError, "x: expected finite numbers, got nan at index (0, 1); impute or drop"),
    ([[np.inf], [0.0]], ValueError, "x: expected finite numbers, got inf at index (0, 0)"),
    (sparse.csr_array(np.eye(3)), TypeError, "x: expected an array of real numbers, got csr_array; pass x.toarray()"),
    (sparse.csc_matrix(np.eye(3)), TypeError, "x: expected an array of real numbers, got csc_matrix; pass x.toarray()"),
]  # fmt: skip
GOOD = {"max_depth": 3, "min_samples_split": 2, "min_samples_leaf": 1, "min_impurity_decrease": 0.0}


@pytest.mark.parametrize(
    ("call", "value", "error", "words"),
    [
        *of(lambda x: supervised.matrix("x", x), *SAMPLES),
        *of(
            lambda x: supervised.samples("x", x), *SAMPLES,
            (np.ones((0, 3)), ValueError, "x: expected 1 to 2**31 - 1 samples, got 0; pass samples"),
            (np.ones((3, 0)), ValueError, "x: expected 1 to 2**31 - 1 features, got 0; pass some columns"),
        ),
        *of(
            lambda x: supervised.matrix("x", x, FLOAT32),
            (np.array([[1.0, -1e39]]), ValueError, "x: expected numbers in the range of float32, got larger ones in float64; scale"),
            (np.array([[np.inf, 1e39]]), ValueError, "x: expected finite numbers, got inf at index"),
        ),
        *of(
            lambda y: supervised.labels("y", y[0], 3, y[1]),
            (([1, 2, 3], None), ValueError,
                f"y: expected labels 0 to 3 that each occur, got none of class 0; {UNIQUE}, or pass n_classes=4"),
            (([0, 1, 5], None), ValueError, "labels 0 to 5 that each occur, got none of class 2"),
            (([True] * 3, None), ValueError, "labels 0 to 1 that each occur, got none of class 0"),
            (([0, -1, 1], None), IndexError, f"y: expected labels of at least 0, got -1; {UNIQUE}"),
            (([0, -1, 1], 3), IndexError, "y: expected labels of at least 0, got -1"),
            ((np.array([0, -1, 1], np.int8), 3), IndexError, "y: expected labels of at least 0, got -1"),
            (([0, 1, 3], 3), IndexError, f"y: expected 0 <= label < n_classes = 3, got 3; pass a larger n_classes, or {UNIQUE}"),
            ((np.array([0, 1, 2**64 - 1], np.uint64), 3), IndexError, "got 18446744073709551615"),
            ((np.array([0, 1, 10**30], object), 3), IndexError, "y: expected 0 <= label < n_classes = 3"),
            ((np.array([0, 1, -(10**30)], object), None), IndexError, "y: expected labels of at least 0"),
            (([0, 1, 2**20], None), ValueError, f"y: expected labels below 2**20, got 1048576; {UNIQUE}"),
            ((np.array([0, 1, 2**63], np.uint64), None), ValueError, "y: expected labels below 2**20"),
            (([0.0, 1.0, 2.0], None), TypeError, f"y: expected labels of an integer or bool dtype, got float64; {UNIQUE}"),
            ((["a", "b", "c"], None), TypeError, f"y: expected labels of an integer or bool dtype, got <U1; {UNIQUE}"),
            ((["a", "b", "c"], 3), TypeError, UNIQUE),
            ((np.array(["a", "b", "c"], object), 3), TypeError, f"got object; {UNIQUE}"),
            ((np.array([0, 1.5, 2], object), 3), TypeError, f"got object; {UNIQUE}"),
            ((np.zeros(3, "M8[s]"), None), TypeError, UNIQUE),
            ((np.ma.masked_equal([0, 1, 2], 2), None), TypeError,
                "y: expected an array without a mask, got a masked array; fill or drop"),
            (([0, 1], None), ValueError, "y: expected shape (n_samples,) = (3,), got (2,); pass one for each sample"),
            (([[0], [1], [2]], None), ValueError, "got (3, 1); pass numpy.ravel(y)"),
            (([[0, 1, 2]], None), ValueError, "got (1, 3); pass numpy.ravel(y)"),
            ((0, None), ValueError, "got (); pass one for each sample"),
            ((None, None), TypeError, "y: expected an array of real numbers, got NoneType"),
            (([0, 1, 2], 0), ValueError, "n_classes: expected 1 to 1048576, got 0"),
            (([0, 1, 2], 2**20 + 1), ValueError, "n_classes: expected 1 to 1048576"),
            (([0, 1, 2], 3.0), TypeError, "n_classes: expected an int, got float"),
            (([0.0, np.nan, 1.0], None), ValueError, "y: expected a label of each sample, got nan at index 1; drop"),
            ((["a", None, "b"], None), ValueError, "y: expected a label of each sample, got None at index 1; drop"),
            ((np.array(["a", np.nan, "b"], object), None), ValueError, "y: expected a label of each sample, got nan at index 1; drop"),
        ),
        *of(
            lambda y: supervised.targets("y", y, 3),
            (np.ones(2), ValueError, "y: expected shape (n_samples,) or (n_samples, n_outputs) with n_samples = 3, got (2,)"),
            (np.ones((3, 1, 1)), ValueError, "got (3, 1, 1)"),
            (np.ones((3, 0)), ValueError, "got (3, 0)"),
            (1.0, ValueError, "got ()"),
            (["a", "b", "c"], TypeError, "y: expected an array of real numbers"),
            ([1, np.nan, 2], ValueError, "y: expected finite numbers, got nan at index (1, 0)"),
            ([1, 2e100, 2], ValueError, "y: expected numbers from -1e+100 to 1e+100, got 1 to 2e+100; scale them"),
            ([1, -2e100, 2], ValueError, "got -2e+100 to 2"),
            (np.broadcast_to(0.0, (3, 2**20 + 1)), ValueError,
                "y: expected at most 2**20 outputs, got 1048577; fit them in parts"),
        ),
        *of(
            lambda of_task: supervised.target([1, 0, 6], 3, *of_task),
            (("regression", 2), ValueError, 'n_classes: expected None with task="regression", got 2; leave it out'),
            (("ranking", None), ValueError, "task: expected one of 'classification', 'regression', got 'ranking'"),
            (("regression", None, 5), ValueError, "y: expected numbers from -5 to 5"),
        ),
        *of(
            lambda weight: supervised.sample_weight(weight, np.zeros(3)),
            ([1, 2], ValueError, "sample_weight: expected shape (n_samples,) = (3,), got (2,); pass one for each sample"),
            ([[1], [2], [3]], ValueError, "pass numpy.ravel(sample_weight)"),
            (2.0, ValueError, "got ()"),
            ([1, -1, 2], ValueError, "sample_weight: expected numbers from 0 to 1e+100, got -1 to 2"),
            ([1, 1e101, 2], ValueError, "got 1 to 1e+101"),
            ([1, np.inf, 2], ValueError, "sample_weight: expected finite numbers, got inf at index (1,)"),
            ([0, 0, 0], ValueError,
                "sample_weight: expected at least one weight above 0, got only zeros; pass a weight above 0 for at least one sample"),
            (["a", "b", "c"], TypeError, "sample_weight: expected an array of real numbers"),
        ),
        *of(
            weighted,
            ("even", ValueError, "class_weight: expected one of 'balanced', got 'even'"),
            ([1, 2], ValueError, "class_weight: expected shape (n_classes,) = (3,), got (2,); pass one number for each class"),
            ([1, 2, -3], ValueError, "class_weight: expected numbers from 0 to 1e+100, got -3 to 2"),
            ([1, 2, np.nan], ValueError, "class_weight: expected finite numbers, got nan at index (2,)"),
            ([0, 1, 0], ValueError,
                "class_weight: expected at least one sample of weight above 0, got none; raise the weight of a class"),
            ({3: 1}, ValueError, "class_weight: expected 0 to 2, got 3"),
            ({"a": 1}, TypeError, "class_weight: expected an int, got str"),
            ({0: "a"}, TypeError, "class_weight: expected a number, got str"),
            ({0: -1}, ValueError, "class_weight: expected a finite number >= 0"),
            ({0: np.nan}, ValueError, "class_weight: expected a finite number >= 0"),
            (3, ValueError, "class_weight: expected shape (n_classes,) = (3,), got ()"),
            (["a", "b", "c"], TypeError, "class_weight: expected an array of real numbers"),
        ),
        *of(
            lambda of_task: supervised.criterion(*of_task),
            (("squared_error", "classification"), ValueError, "criterion: expected one of 'gini', 'entropy', 'log_loss', got"),
            (("gini", "regression"), ValueError, "criterion: expected one of '"),
            (("mse", "regression"), ValueError, "criterion: expected one of '"),
            ((1, "classification"), ValueError, "criterion: expected one of 'gini', 'entropy', 'log_loss', got"),
            ((np.array(["gini", "entropy"]), "classification"), ValueError, "criterion: expected one of 'gini', 'entropy', 'log_loss', got"),
        ),
        *(
            (lambda limit: supervised.limits(**GOOD | limit), {name: value}, error, f"{name}: expected")
            for name, error, values in (
                ("max_depth", ValueError, (-1, 2**31)), ("max_depth", TypeError, (2.0, True)),
                ("min_samples_split", ValueError, (1,)), ("min_samples_split", TypeError, (None,)),
                ("min_samples_leaf", ValueError, (0,)), ("min_samples_leaf", TypeError, (0.1,)),
                ("min_impurity_decrease", ValueError, (-1e-9, np.nan)), ("min_impurity_decrease", TypeError, ("0",)),
                ("min_weight_fraction_leaf", ValueError, (-0.1, 0.51)), ("min_weight_fraction_leaf", TypeError, (None,)),
            )
            for value in values
        ),
        *(
            (lambda value: supervised.max_features(value, 10), value, error, "max_features: expected")
            for error, values in ((ValueError, ("log3", 0, 11, 0.0, 1.5, np.nan)), (TypeError, (True, [3])))
            for value in values
        ),
        *(
            (supervised.max_bins, value, error, "max_bins: expected")
            for error, values in ((ValueError, (0, 257)), (TypeError, (16.0, True, "256")))
            for value in values
        ),
        (check.seed, "a", TypeError, "rng: expected"),
        (check.float_dtype, int, TypeError, "dtype: expected"),
        (progress.check_progress, 3, TypeError, "progress: expected"),
        (lambda value: check.function("checkpoint", value, "state"), 3, TypeError, "checkpoint: expected"),
    ],
)  # fmt: skip
def test_what_is_refused(call, value, error, words):
    with refused(error, re.escape(words)):
        call(value)
