"""CO2: what is converted, and bad input."""

from functools import partial

import numpy as np
import pytest
from conftest import assert_same_bits, converted
from test_co2 import QUICK, problem

import hforest
from hforest import co2
from hforest.co2 import StumpSettings

pytestmark = pytest.mark.kernels

# More precise than float64 if there is such a type.
WIDEST = np.longdouble("1e400") if np.finfo(np.longdouble).max > np.finfo(np.float64).max else np.inf


# ------------------------------------------------------------------------- what is converted


def whole_problem(dtype):
    """Samples that every dtype holds."""
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 10, (40, 4)).astype(dtype)
    return x, (x[:, 0] + x[:, 1] > x[:, 2]).astype(np.int32)


COMPUTED = {
    "list": np.float64,
    "int8": np.float32,
    "float16": np.float32,
    "int64": np.float64,
    "longdouble": np.float64,
}


@pytest.mark.parametrize("name", ["fortran", "reversed", "rows apart", "table", *COMPUTED])
def test_samples_are_converted(dtype, name):
    x, y = whole_problem(dtype)
    plain, other = x.astype(COMPUTED.get(name, dtype)), converted(x, name)
    call = {"rng": 1, **QUICK}
    want = co2.grow(plain, y, 2, **call)
    assert want.threshold.dtype == plain.dtype
    assert_same_bits(co2.grow(other, y, 2, **call), want)
    oc1 = {"splitter": "oc1", "jumps": 1, "rng": 1}
    assert_same_bits(co2.grow(other, y, 1, **oc1), co2.grow(plain, y, 1, **oc1))
    found = {"nu": [1], "lr": [0.1], "settings": {"max_rounds": 1}, "rng": 0}
    assert_same_bits(co2.search(other, y, 2, **found), co2.search(plain, y, 2, **found))


def test_bools_are_samples():
    x = np.random.default_rng(0).random((50, 5)) < 0.5
    y = x[:, 0] ^ x[:, 1]
    assert_same_bits(co2.grow(x, y, 2, rng=0), co2.grow(x.astype(np.float32), y.astype(np.int32), 2, rng=0))


@pytest.mark.libraries
def test_data_frames():
    pandas = pytest.importorskip("pandas")
    x, y = whole_problem(np.float64)
    frame = pandas.DataFrame(x).astype({0: "float32", 1: "int16"})
    assert_same_bits(co2.grow(frame, pandas.Series(y), 2, rng=0), co2.grow(x, y, 2, rng=0))


@pytest.mark.parametrize("target_dtype", "bhfdg")
def test_targets_and_weights_of_any_real_dtype(target_dtype):
    x, _ = whole_problem(np.float32)
    y = np.asfortranarray(x[:, :2]).astype(target_dtype)
    weight = np.arange(1, 41)
    w, theta = np.array([1, 0, 0, 0], np.float32), np.array([0.3, 0.0], np.float32)
    plain, plain_weight = x[:, :2].copy(), weight.astype(np.float32)
    more = {"task": "regression", "rng": 0, **QUICK}
    for given, given_weight in ((y, weight), (y.tolist(), weight.tolist())):
        value = co2.surrogate(x, given, w, theta, theta, loss="squared", sample_weight=given_weight)
        assert value == co2.surrogate(x, plain, w, theta, theta, loss="squared", sample_weight=plain_weight)
        for function, last in ((co2.fit_stump, w), (co2.grow, 2)):
            got, want = (
                function(x, target, last, sample_weight=of, **more)
                for target, of in ((given, given_weight), (plain, plain_weight))
            )
            assert_same_bits(got, want)


def test_class_weight_is_a_weight_of_samples():
    x, y = whole_problem(np.float32)
    factor = np.array([1.0, 3.0])
    weight = np.random.default_rng(0).integers(1, 3, 40)
    want = co2.grow(x, y, 2, sample_weight=weight * factor[y], rng=0, **QUICK)
    for given in (factor, [1, 3], {1: 3}):
        assert_same_bits(co2.grow(x, y, 2, sample_weight=weight, class_weight=given, rng=0, **QUICK), want)
    balanced = co2.grow(x, y, 2, class_weight="balanced", rng=0, **QUICK)
    assert_same_bits(balanced, co2.grow(x, y, 2, sample_weight=20 / np.bincount(y)[y], rng=0, **QUICK))
    assert balanced.data.tobytes() != co2.grow(x, y, 2, rng=0, **QUICK).data.tobytes()


def test_max_features_is_a_number_a_share_or_the_root():
    x, y, _, _, _ = problem(60, 9)
    for given, number in (("sqrt", 3), (0.5, 4), ("n**0.6", 4), (None, 9), (np.int64(2), 2)):
        assert_same_bits(
            co2.grow(x, y, 1, max_features=given, rng=0, **QUICK),
            co2.grow(x, y, 1, max_features=number, rng=0, **QUICK),
        )


def test_results_are_named_tuples():
    x, y, w, theta0, theta1 = problem(12, 3)
    stump = co2.fit_stump(x, y, w, n_classes=3, max_rounds=1, rng=0)
    assert stump._fields == ("w", "theta0", "theta1")
    assert stump[0] is stump.w
    assert co2.surrogate_grad(x, y, w, theta0, theta1)._fields == ("w", "theta0", "theta1")


# --------------------------------------------------------------------------------- bad input


def bad_calls():
    x, y, w, theta0, theta1 = problem(10, 3)
    at = {"w": w, "theta0": theta0, "theta1": theta1, "x": x, "y": y}
    for name, value, error in (
        ("w", w[None], ValueError),
        ("w", w.astype(np.float32), TypeError),
        ("theta0", theta0[:, None], ValueError),
        ("theta1", np.full(3, np.nan), ValueError),
        ("x", x.astype(int), TypeError),
        ("x", np.asfortranarray(x), ValueError),
        ("x", np.full((10, 3), 1e20), ValueError),
        ("x", x.tolist(), TypeError),
        ("y", y + 3, IndexError),
        ("y", y.astype(float), TypeError),
        ("y", y - 1, IndexError),
        ("y", y[:9], ValueError),
        ("y", np.array(list("abcabcabca")), TypeError),
    ):
        for function in (co2.surrogate, co2.surrogate_grad):
            yield f"{function.__name__} {name}", partial(function, **at | {name: value}), error, name
    yield "loss", lambda: co2.surrogate(**at, loss="hinge"), ValueError, "loss"
    yield "weight", lambda: co2.surrogate(**at, sample_weight=-np.ones(10)), ValueError, "sample_weight"
    yield "targets", lambda: co2.surrogate(**{**at, "y": np.ones((10, 2))}, loss="squared"), ValueError, "y"
    yield "few targets", lambda: co2.surrogate(**{**at, "y": np.ones(10)}, loss="squared"), ValueError, "y"
    settings = (
        ("nu", 0, ValueError), ("nu", -1.0, ValueError), ("nu", np.nan, ValueError), ("nu", "1", TypeError),
        ("lr", 0.0, ValueError), ("lr", -0.1, ValueError), ("max_rounds", -1, ValueError),
        ("max_rounds", 1.5, TypeError), ("stump", (2, 100), TypeError), ("stump", {"tau": 2}, TypeError),
    )  # fmt: skip
    of_stumps = (
        ("momentum", 1.5, ValueError), ("decay", 0.0, ValueError), ("tolerance", -1.0, ValueError),
        ("smooth", 0.0, ValueError), ("tau", 0, ValueError), ("batch_size", 0, ValueError),
        ("min_steps", 0, ValueError), ("patience", -1, ValueError), ("convex_rounds", -1, ValueError),
        ("tau", 1.5, TypeError),
    )  # fmt: skip
    bad_settings = [(name, {name: value}, error) for name, value, error in settings]
    bad_settings += [
        (name, {"stump": StumpSettings(**{name: value})}, error) for name, value, error in of_stumps
    ]
    for name, given, error in bad_settings:
        yield f"stump {name}", lambda a=given: co2.fit_stump(x, y, w, n_classes=3, **a), error, name
        yield f"grow {name}", lambda a=given: co2.grow(x, y, 2, **a), error, name
    none = {"x": np.zeros((0, 3)), "y": np.zeros(0, np.int32)}
    data = {"x": x, "y": y}
    good = {
        "fit_stump": data | {"w": w}, "fit_oc1": data | {"w": w}, "grow": data | {"n_trees": 2}, "search": data
    }  # fmt: skip
    for i, (function, change, error, word) in enumerate((
        ("fit_stump", {"w": w[:2], "n_classes": 3}, ValueError, "w"),
        ("fit_stump", {"n_classes": 2}, IndexError, "y"),
        ("fit_stump", {"n_classes": 0}, ValueError, "n_classes"),
        ("fit_stump", {**none, "n_classes": 3}, ValueError, "x"),
        ("fit_stump", {"sample_weight": np.zeros(10)}, ValueError, "sample_weight"),
        ("fit_stump", {"x": x.astype(int)}, TypeError, "x"),
        ("fit_stump", {"x": np.asfortranarray(x)}, ValueError, "x"),
        ("grow", none, ValueError, "x"),
        ("grow", {"x": np.full((10, 3), np.nan)}, ValueError, "x"),
        ("grow", {"y": y - 1}, IndexError, "y"),
        ("grow", {"n_classes": 2}, IndexError, "y"),
        ("grow", {"n_trees": 0}, ValueError, "n_trees"),
        ("grow", {"max_features": 4}, ValueError, "max_features"),
        ("grow", {"min_samples_oblique": 0}, ValueError, "min_samples_oblique"),
        ("grow", {"sample_weight": np.zeros(10)}, ValueError, "sample_weight"),
        ("grow", {"sample_weight": np.ones(9)}, ValueError, "sample_weight"),
        ("grow", {"x": x * 1e20}, ValueError, "x"),
        ("grow", {"x": np.full((len(x), 1), WIDEST)}, ValueError, "x"),
        ("grow", {"x": x.astype(str)}, TypeError, "x"),
        ("grow", {"x": x[0]}, ValueError, r"pass \[x\] for one sample"),
        ("grow", {"y": np.where(y == 1, 3, y)}, ValueError, "return_inverse"),
        ("grow", {"y": y + 1}, ValueError, "return_inverse"),
        ("grow", {"y": y.astype(str)}, TypeError, "return_inverse"),
        ("grow", {"class_weight": "equal"}, ValueError, "class_weight"),
        ("grow", {"y": x[:, 0], "task": "regression", "class_weight": "balanced"}, ValueError, "class_weight"),
        ("grow", {"progress": 1}, TypeError, "progress"),
        ("grow", {"sample_weight": np.full(10, np.nan)}, ValueError, "sample_weight"),
        ("grow", {"bootstrap": np.ones((1, 10), np.int32)}, ValueError, "bootstrap"),
        ("grow", {"task": "ranking"}, ValueError, "task"),
        ("grow", {"criterion": "squared_error"}, ValueError, "criterion"),
        ("grow", {"y": y[:9], "task": "regression"}, ValueError, "y"),
        ("grow", {"y": x * 1e16, "task": "regression"}, ValueError, "y"),
        ("grow", {"splitter": "oc2"}, ValueError, "splitter"),
        ("grow", {"splitter": "oc1", "jumps": -1}, ValueError, "jumps"),
        ("fit_oc1", {"w": w[:2]}, ValueError, "w"),
        ("fit_oc1", {"n_classes": 2}, IndexError, "y"),
        ("fit_oc1", {"restarts": -1}, ValueError, "restarts"),
        ("fit_oc1", {"min_samples_leaf": 0}, ValueError, "min_samples_leaf"),
        ("fit_oc1", {"min_weight_fraction_leaf": 0.51}, ValueError, "min_weight_fraction_leaf"),
        ("fit_oc1", {"criterion": "gain"}, ValueError, "criterion"),
        ("fit_oc1", {"sample_weight": np.zeros(10)}, ValueError, "sample_weight"),
        ("search", {"held_out": 0.01}, ValueError, "held_out"),
        ("search", {"nu": []}, ValueError, "nu"),
        ("search", {"nu": [0]}, ValueError, "nu"),
        ("search", {"lr": [-1]}, ValueError, "lr"),
        ("search", {"max_features": [9]}, ValueError, "max_features"),
        ("search", {"checkpoint": 1}, TypeError, "checkpoint"),
        ("search", {"progress": "no"}, TypeError, "progress"),
        ("search", {"settings": {"sample_weight": np.ones(10)}}, ValueError, "settings"),
        ("search", {"settings": {"nu": 1}}, ValueError, "settings"),
        ("search", {"y": y[:5]}, ValueError, "y"),
    )):  # fmt: skip
        yield f"{function} {i}", partial(getattr(co2, function), **good[function] | change), error, word


@pytest.mark.parametrize(
    ("call", "error", "word"), [pytest.param(*rest, id=name) for name, *rest in bad_calls()]
)
def test_bad_input_is_told(call, error, word):
    with pytest.raises(error, match=rf"\b{word}"):
        call()


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"max_rounds": "a"}, r"settings\['max_rounds'\]: "),
        ({"stump": 3}, r"settings\['stump'\]: "),
        ({"stump": StumpSettings(tau=0)}, r"settings\['stump'\]\.tau: "),
        ({"bootstrap": np.zeros((1, 2), int)}, r"settings\['bootstrap'\]: "),
        ({"class_weight": [1.0, -1.0, 1.0]}, r"settings\['class_weight'\]: "),
    ],
)
def test_settings_of_a_search_are_named(settings, place):
    x, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 3
    with pytest.raises((TypeError, ValueError), match=f"^{place}expected .*, got .*; "):
        co2.search(x, y, 1, nu=[1], lr=[0.1], settings=settings, rng=0)


def test_unchecked_still_refuses_shapes():
    x, y, w, theta0, theta1 = problem(10, 3)
    with hforest.unchecked():
        assert np.isfinite(co2.surrogate(x, y, w, theta0, theta1))
        with pytest.raises(ValueError, match="expected shape"):
            co2.surrogate(x, y, w[:2], theta0, theta1)


def test_weights_that_leave_the_range_of_numbers_are_refused():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(60, 3)).astype(np.float32), np.ones(3, np.float32)
    labels, targets = (x[:, 0] > 0) * 1, x[:, 0] * 1e14
    tiny, uneven = np.full(60, 1e-200), np.where(labels > 0, 1e10, 1e-95)
    for weight, message in (
        (tiny, "at least one weight of at least 1e-60"),
        (uneven, "weights that are 0 or within a factor"),
    ):
        for call in (
            lambda a: co2.grow(x, labels, 1, sample_weight=a, rng=0, **QUICK),
            lambda a: co2.fit_stump(x, labels, w, sample_weight=a),
            lambda a: co2.fit_oc1(x, labels, w, sample_weight=a, rng=0),
        ):
            with pytest.raises(ValueError, match=f"sample_weight: expected {message}"):
                call(weight)
    with pytest.raises(ValueError, match="class_weight: expected weights that are 0 or within a factor"):
        co2.grow(x, labels, 1, class_weight=[1e-95, 1], rng=0, **QUICK)
    # Gains of 1e45 are beyond float32.
    heavy = {"task": "regression", "sample_weight": np.full(60, 1e15), "rng": 0} | QUICK
    with pytest.raises(ValueError, match=r"sample_weight: expected weights .* in the range of float32"):
        co2.grow(x, targets, 1, **heavy)
    for forest in (
        co2.grow(x.astype(np.float64), targets, 1, **heavy),
        co2.grow(x, targets, 1, **heavy | {"sample_weight": None}),
    ):
        assert hforest.tree.check(forest).gain.max() > 1e27


# ------------------------------------------------------------------ arguments of wrong kinds


@pytest.mark.parametrize("field", StumpSettings._fields)
@pytest.mark.parametrize("value", [None, "2", np.array([2]), np.nan, -1, 10**400, True])
def test_settings_of_a_stump_are_named_by_their_argument(field, value):
    x, y = np.zeros((4, 2)), np.array([0, 1, 0, 1])
    stump = StumpSettings(**{field: value})
    for call in (lambda: co2.grow(x, y, 1, stump=stump), lambda: co2.fit_stump(x, y, x[0], stump=stump)):
        with pytest.raises((TypeError, ValueError), match=rf"^stump\.{field}: expected .*, got .*; "):
            call()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("nu", "lr", "max_features") for value in (3, 1.5, "10", [[1], [1, 2]], np.array(3.0), print, {1})),
        *(("settings", value) for value in (3, "max_depth", [("max_depth", 3)], object())),
        *(("trials", value) for value in (3, "a", [], (1, 2, 3, 4), object())),
    ],
)  # fmt: skip
def test_search_of_settings_of_wrong_kinds(name, value):
    x, y = np.zeros((8, 2)), np.array([0, 1] * 4)
    with pytest.raises((TypeError, ValueError), match=f"^{name}: expected .*, got .*; "):
        co2.search(x, y, 1, **{name: value})


@pytest.mark.parametrize("field", co2.Trials._fields)
def test_trials_made_by_hand(field):
    x, y = np.zeros((8, 2)), np.array([0, 1] * 4)
    good = co2.Trials(np.array([10.0]), np.array([0.01]), np.array([2]), np.array([0.5]))
    for value in (None, [1.0], np.zeros(2, complex), np.zeros((1, 1)), np.array(["a"])):
        with pytest.raises((TypeError, ValueError), match=r"^trials\.\w+: expected .*, got .*; "):
            co2.search(x, y, 1, trials=good._replace(**{field: value}))


@pytest.mark.parametrize("name", ["restarts", "jumps"])
def test_settings_of_the_other_splitter(name):
    for value in (None, 1.5, "2", -1, np.zeros(2)):
        with pytest.raises((TypeError, ValueError), match=f"^{name}: expected .*, got .*; "):
            co2.grow(np.zeros((4, 2)), [0, 1, 0, 1], 1, **{name: value})


def test_a_history_is_a_list():
    for value in ((), np.zeros(2), "a", 3):
        with pytest.raises(TypeError, match="^history: expected None or a list, got .*; pass"):
            co2.fit_stump(np.zeros((2, 1)), [0, 1], np.zeros(1), history=value)
