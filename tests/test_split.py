"""Scores of splits: the example of the blog *Don't Get Lost in the Forest*, brute force over every threshold,
adversarial values, bad input.
"""

import itertools
import os
import subprocess
import sys
import typing
from fractions import Fraction
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from growers import on_threads

import hforest
from hforest import split
from hforest.core import aliases, scores
from hforest.split import best_split, impurity

pytestmark = pytest.mark.kernels

CRITERIA = tuple(scores.numbers())
VALUE = np.arange(1.0, 11.0)
LABEL = np.array([1, 2, 1, 1, 1, 1, 3, 3, 2, 3], np.int32) - 1


def weighted_impurity(y, w, n_classes, criterion):
    """Returns W H of one branch, from the definition."""
    if criterion == "squared_error":
        y = y.reshape(len(y), -1).astype(float)
        mean = (w[:, None] * y).sum(0) / w.sum()
        return (w[:, None] * (y - mean) ** 2).sum()
    p = np.bincount(y, w, n_classes) / w.sum()
    h = 1 - (p**2).sum() if criterion == "gini" else -(p[p > 0] * np.log2(p[p > 0])).sum()
    return w.sum() * h


def brute_force(values, y, weights, n_classes, criterion, min_samples_leaf=1):
    """Returns gains by candidate and threshold, from the definition, without sorting or running sums."""
    heavy = weights > 0
    values, y, weights = values[:, heavy], y[heavy], weights[heavy].astype(float)
    gains = {}
    for c, value in enumerate(values):
        distinct = np.unique(value)
        for low, high in itertools.pairwise(distinct):
            left = value <= low
            if min(left.sum(), (~left).sum()) < min_samples_leaf:
                continue
            gain = weighted_impurity(y, weights, n_classes, criterion)
            for side in (left, ~left):
                gain -= weighted_impurity(y[side], weights[side], n_classes, criterion)
            gains[c, low, high] = gain
    return gains


def goals(criterion, n_classes):
    """Returns the settings of the task."""
    return {"task": "regression"} if criterion == "squared_error" else {"n_classes": n_classes}


def check_against_brute_force(values, y, weights, n_classes, criterion, **limits):
    got = best_split(
        values, y, sample_weight=weights, criterion=criterion, **goals(criterion, n_classes), **limits
    )
    w = np.ones(len(y)) if weights is None else weights
    gains = brute_force(values, y, w, n_classes, criterion, **limits)
    if not gains:
        assert got.candidate == -1
        assert np.isnan(got.threshold)
        assert got.gain == 0
        return
    best = max(gains.values())
    slack = 1e-9 * max(
        1.0, abs(best), weighted_impurity(y[w > 0], w[w > 0].astype(float), n_classes, criterion)
    )
    assert abs(got.gain - max(best, 0)) <= slack
    # The split taken is one of the best, and its threshold separates the neighbours.
    (taken,) = (at for at in gains if at[0] == got.candidate and at[1] <= got.threshold < at[2])
    assert gains[taken] >= best - slack
    first = min(at for at, gain in gains.items() if gain >= best - slack)
    if all(gain >= best or gain < best - slack for gain in gains.values()):
        assert taken == first


# ----------------------------------------------------------------------------------------- impurity


def test_the_worked_example(backend):
    left, right = (
        np.array([np.bincount(LABEL[side], minlength=3)], float) for side in (VALUE <= 1.5, VALUE > 1.5)
    )
    bits = impurity(left, "entropy") * left.sum() + impurity(right, "entropy") * right.sum()
    assert round(bits.item(), 2) == 13.77
    found = best_split(VALUE[None], LABEL, n_classes=3, criterion="entropy")
    assert (found.candidate, found.threshold) == (0, 6.5)
    gains = brute_force(VALUE[None], LABEL, np.ones(10), 3, "entropy")
    assert len(gains) == 9
    assert max(gains, key=gains.get)[1:] == (6, 7)
    assert found.gain == pytest.approx(max(gains.values()))


def test_impurity_by_hand(backend, dtype):
    counts = np.array([[2, 2, 0, 0], [1, 1, 1, 1], [5, 0, 0, 0], [0, 0, 0, 0]], dtype)
    assert impurity(counts, "gini").tolist() == [0.5, 0.75, 0, 0]
    assert impurity(counts, "entropy").tolist() == [1, 2, 0, 0]
    moments = np.array([[4, 8, 20], [3, 3, 3], [0, 0, 0]], dtype)
    assert impurity(moments, "squared_error").tolist() == [1, 0, 0]
    assert impurity(np.zeros((0, 3), dtype), "squared_error").shape == (0,)


@hypothesis.given(counts=st.lists(st.floats(0, 1e6), min_size=1, max_size=9))
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_impurity_is_the_definition(backend, counts):
    counts = np.array([counts])
    p = counts[0] / counts.sum() if counts.sum() > 0 else np.eye(1, counts.size)[0]
    p = p[p > 0]
    np.testing.assert_allclose(impurity(counts, "gini"), 1 - (p**2).sum(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(impurity(counts, "entropy"), -(p * np.log2(p)).sum(), rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------------------------------- splits


@pytest.mark.parametrize("criterion", CRITERIA)
@hypothesis.given(
    n=st.integers(0, 70), n_candidates=st.integers(0, 5), n_values=st.sampled_from([1, 2, 5, 1000]),
    min_samples_leaf=st.sampled_from([1, 3]), kind=st.sampled_from(["none", "whole", "real"]), seed=st.integers(0, 2**16),
)  # fmt: skip
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_best_of_brute_force(
    backend, dtype, criterion, n, n_candidates, n_values, min_samples_leaf, kind, seed
):
    rng = np.random.default_rng(seed)
    values = (rng.integers(-n_values, n_values, (n_candidates, n)) / 7).astype(dtype)
    weights = {
        "none": None,
        "whole": rng.integers(0, 4, n).astype(dtype),
        "real": (rng.random(n) * (rng.random(n) < 0.8)).astype(dtype),
    }[kind]
    if criterion == "squared_error":
        y = rng.normal(size=(n, 2) if seed % 2 else n).astype(dtype)
    else:
        y = rng.integers(0, 4, n, np.int32)
    check_against_brute_force(values, y, weights, 4, criterion, min_samples_leaf=min_samples_leaf)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_backends_agree_on_many_samples(fast_backend, dtype, reference, criterion):
    rng = np.random.default_rng(0)
    n = 1500
    values = rng.normal(size=(4, n)).astype(dtype)
    values[2] = np.round(values[2])
    y = rng.integers(0, 5, n, np.int32)
    y[values[1] > 0.3] = 4
    n_classes = 5
    if criterion == "squared_error":
        # Whole targets: their sums are exact in any order.
        y = y.astype(dtype) - dtype(np.rint(y.mean()))
    w = rng.integers(0, 3, n).astype(dtype)
    settings = {"criterion": criterion, **goals(criterion, n_classes)}
    expected = reference(best_split, values, y, sample_weight=w, **settings)
    values, y, w = (fast_backend.array(a) for a in (values, y, w))
    got = best_split(values, y, sample_weight=w, **settings)
    assert got[:2] == expected[:2]
    assert got.gain == pytest.approx(expected.gain, rel=1e-12)
    assert got.candidate == 1


@pytest.mark.parametrize(
    "pair",
    [
        (1.0, np.nextafter(1.0, 2)), (0.0, 5e-324), (-5e-324, 0.0), (-1e308, 1.7e308), (1e-300, 1e300), (5e-324, 1e-323),
        (np.nextafter(3.0, 0), 3.0), (-2.0, np.nextafter(-2.0, 0)),
    ],
)  # fmt: skip
def test_neighbouring_and_extreme_float64(backend, pair):
    value = np.array([[pair[1], pair[0]] * 3])
    y = np.array([1, 0] * 3, np.int32)
    found = best_split(value, y, n_classes=2)
    assert pair[0] <= found.threshold < pair[1]
    assert found.gain == 3


@pytest.mark.parametrize("low", [1.0, -1.0, 1e-45, -1e-45, 3e38, 16777216.0])
def test_neighbouring_float32(backend, low):
    low = np.float32(low)
    high = np.nextafter(low, np.float32(np.inf))
    found = best_split(np.array([[high, low]], np.float32), np.array([1, 0], np.int32), n_classes=2)
    assert low <= np.float32(found.threshold) < high
    assert found.gain == 1


def test_minus_zero_is_zero(backend, dtype):
    value = np.array([[0.0, -0.0, 0.0, -0.0]], dtype)
    assert best_split(value, np.array([0, 1, 0, 1], np.int32), n_classes=2).candidate == -1
    # More than an insertion sort's worth, the zeros mixed.
    value = np.where(np.arange(200) % 2, dtype(-0.0), dtype(0.0))[None].copy()
    assert best_split(value, (np.arange(200) % 2).astype(np.int32), n_classes=2).candidate == -1


def test_nothing_to_split(backend, dtype):
    y = np.zeros(3, np.int32)
    for values in (np.ones((2, 3), dtype), np.zeros((0, 3), dtype)):
        assert best_split(values, y, n_classes=1).candidate == -1
    assert best_split(np.zeros((2, 1), dtype), y[:1], n_classes=5).candidate == -1
    assert best_split(np.zeros((2, 0), dtype), y[:0], n_classes=1).candidate == -1
    values = np.arange(3, dtype=dtype)[None]
    assert best_split(values, y, sample_weight=np.zeros(3, dtype)).candidate == -1
    assert best_split(np.zeros((1, 0)), np.zeros(0), task="regression").candidate == -1
    assert best_split(values, y, n_classes=1, min_samples_leaf=2).candidate == -1
    # A pure node can be split with gain 0; there may be more classes than samples.
    assert best_split(values, y, n_classes=1000) == (0, 0.5, 0.0)


def test_ties_go_to_the_lowest(backend, dtype):
    values = np.array([[3, 1, 2, 0], [0, 1, 2, 3], [0, 1, 2, 3]], dtype)
    y = np.array([0, 1, 1, 0], np.int32)
    # Separating the first or the last sample is equally good in candidates 1 and 2.
    assert best_split(values[1:].copy(), y, n_classes=2)[:2] == (0, 0.5)
    y = np.array([0, 0, 1, 1], np.int32)
    assert best_split(values, y, n_classes=2)[:2] == (1, 1.5)


def test_exclusive_or_has_gain_zero(backend):
    values = np.array([[0.0, 0, 1, 1], [0, 1, 0, 1]])
    assert best_split(values, np.array([0, 1, 1, 0], np.int32), n_classes=2) == (0, 0.5, 0.0)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_wild_weights(backend, criterion):
    value = np.arange(6.0)[None]
    y = np.array([0, 0, 1, 1, 0, 1])
    weights = np.array([1e-100, 1e100, 1e-100, 1e100, 1e-20, 1e-300])
    y = y.astype(np.float64) if criterion == "squared_error" else y.astype(np.int32)
    found = best_split(value, y, sample_weight=weights, criterion=criterion, **goals(criterion, 2))
    assert found.candidate == 0
    assert found.threshold in (1.5, 2.5)
    assert found.gain == pytest.approx({"gini": 1e100, "entropy": 2e100, "squared_error": 0.5e100}[criterion])


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(("weight", "target"), [(328, 328), (-1000, 0), (328, -400), (-332, -400), (0, 328)])
def test_extreme_weights_and_targets_are_scaled(backend, criterion, weight, target):
    rng = np.random.default_rng(0)
    values, w = rng.normal(size=(3, 30)), rng.integers(1, 5, 30).astype(float)
    y, settings = rng.integers(0, 2, 30, np.int32), goals(criterion, 2)
    if criterion == "squared_error":
        y = y + 0.25 * rng.integers(0, 9, 30)
    usual = best_split(values, y, sample_weight=w, criterion=criterion, **settings)
    if criterion == "squared_error":
        y = np.ldexp(y, target)
        unit = Fraction(2) ** (weight + 2 * target)
    else:
        unit = Fraction(2) ** weight
    found = best_split(values, y, sample_weight=np.ldexp(w, weight), criterion=criterion, **settings)
    assert found[:2] == usual[:2]
    assert found.gain == pytest.approx(float(Fraction(usual.gain) * unit), rel=1e-12)


def test_threads_change_nothing(threads):
    rng = np.random.default_rng(1)
    values, y = rng.normal(size=(30, 400)), rng.integers(0, 3, 400, np.int32)
    values[20:] = values[:10]
    w = rng.random(400)
    results = on_threads(threads, lambda: best_split(values, y, sample_weight=w, n_classes=3))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"values": np.zeros(3)}, ValueError, r"values: expected shape .*; pass \[values\] for one candidate"),
        ({"values": np.zeros((3, 2))}, ValueError, r"y: expected shape \(n_samples,\) = \(2,\)"),
        ({"values": np.array([[0, np.nan, 1]])}, ValueError, "values: expected finite"),
        ({"values": [["a", "b", "c"]]}, TypeError, "values: expected an array of real numbers"),
        ({"y": np.array([0, 1, 2], np.int32)}, IndexError, "n_classes = 2"),
        ({"y": np.array([0, -1, 1])}, IndexError, "y: expected labels of at least 0, got -1"),
        ({"y": np.array([0, -1, 1]), "n_classes": None}, IndexError, "y: expected labels of at least 0, got -1"),
        ({"y": np.array([1, 2, 2]), "n_classes": None}, ValueError, r"none of class 0; .*numpy.unique\(y, "),
        ({"y": np.array([0.0, 1, 1])}, TypeError, "y: expected labels of an integer or bool dtype, got float64"),
        ({"y": np.array(["a", "b", "b"])}, TypeError, r"numpy.unique\(y, return_inverse=True\)\[1\]"),
        ({"y": np.zeros(4, np.int32)}, ValueError, "y: expected shape"),
        ({"sample_weight": np.array([1.0, -1, 1])}, ValueError, "sample_weight: expected numbers from 0"),
        ({"sample_weight": np.array([1.0, np.nan, 1])}, ValueError, "sample_weight: expected finite"),
        ({"sample_weight": np.array([1.0, 1e200, 1])}, ValueError, "sample_weight: expected numbers from 0"),
        ({"sample_weight": np.ones(2)}, ValueError, "sample_weight: expected shape"),
        ({"n_classes": 2.0}, TypeError, "n_classes: expected an int"),
        ({"n_classes": 2**40}, ValueError, "n_classes: expected 1 to"),
        ({"criterion": "hinge"}, ValueError, "criterion: expected one of 'gini', 'entropy'"),
        ({"criterion": "squared_error"}, ValueError, "criterion: expected one of 'gini', 'entropy'"),
        ({"task": "regression"}, ValueError, "n_classes: expected None"),
        ({"task": "regression", "n_classes": None, "criterion": "gini"}, ValueError, "one of 'squared_error'"),
        ({"task": "regression", "n_classes": None, "y": np.array([0, np.inf, 1])}, ValueError, "y: expected finite"),
        ({"task": "regression", "n_classes": None, "y": np.array([0, 1e200, 1])}, ValueError, "y: expected numbers"),
        ({"task": "regression", "n_classes": None, "y": np.zeros((3, 0))}, ValueError, "y: expected shape"),
        ({"task": "ranking"}, ValueError, "task: expected one of"),
        ({"min_samples_leaf": 0}, ValueError, "min_samples_leaf"),
    ],
)  # fmt: skip
def test_bad_input(change, error, message):
    y = np.array([0, 1, 1], np.int32)
    good = {"values": np.zeros((2, 3)), "y": y, "sample_weight": np.ones(3), "n_classes": 2}
    best_split(**good)
    with pytest.raises(error, match=message):
        best_split(**(good | change))


def test_the_advice_about_labels_works():
    y = np.array(["b", "a", "b"])
    with pytest.raises(TypeError, match=r"numpy.unique\(y, return_inverse=True\)\[1\]"):
        best_split([[0, 1, 2]], y)
    gains = [
        best_split([[0, 1, 2]], labels).gain for labels in (np.unique(y, return_inverse=True)[1], [1, 0, 1])
    ]
    assert gains[0] == gains[1]


def test_absent_classes_change_no_split_by_gini(backend):
    rng = np.random.default_rng(2)
    values, y = rng.normal(size=(3, 60)), rng.integers(0, 2, 60)
    want = best_split(values, y)
    assert want.gain > 0
    assert best_split(values, y, n_classes=2) == best_split(values, y * 3, n_classes=7) == want


@pytest.mark.parametrize("criterion", CRITERIA)
def test_values_of_any_layout_and_dtype(backend, dtype, criterion):
    rng = np.random.default_rng(3)
    values = (rng.integers(-9, 9, (3, 50)) / 4).astype(dtype)
    y, w = rng.integers(0, 3, 50), rng.integers(0, 3, 50)
    settings = {"criterion": criterion, **goals(criterion, 3)}
    to_fit = y.astype(np.int32 if "task" not in settings else dtype)
    want = best_split(values, to_fit, sample_weight=w.astype(dtype), **settings)
    assert want.gain > 0

    class Table:
        def __array__(self, dtype=None, copy=None):
            return values

    for given in (
        np.asfortranarray(values), values[:, ::-1].copy()[:, ::-1], np.repeat(values, 2, 1)[:, ::2], Table(),
        values.tolist(), values.astype(np.float16), values.astype(">f8"), values.astype(object),
    ):  # fmt: skip
        for target in (y, y.astype(np.int8), y.tolist()):
            for weight in (w, w.astype(np.float16), w.tolist()):
                assert best_split(given, target, sample_weight=weight, **settings) == want


def test_whole_values(backend):
    values = np.random.default_rng(4).integers(0, 100, (3, 50))
    y = (values[1] > 40).astype(np.int32)
    want = best_split(values.astype(np.float64), y)
    assert want.candidate == 1
    for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"):
        assert best_split(values.astype(kind), y) == want
    assert best_split(values > 40, y) == (1, 0.5, want.gain)


def test_counts_of_any_dtype(backend):
    counts = np.array([[3, 1, 4], [1, 5, 9], [0, 0, 0]])
    for criterion in CRITERIA:
        for dtype in (np.float32, np.float64):
            want = impurity(counts.astype(dtype), criterion)
            kinds = ("i1", "u2", "f2") if dtype is np.float32 else ("i4", "i8", "u8", "f8", "O")
            for kind in kinds:
                got = impurity(np.asfortranarray(counts.astype(kind)), criterion)
                assert got.dtype == dtype
                assert got.tobytes() == want.tobytes()
    assert impurity(counts.tolist()).tobytes() == impurity(counts.astype(float)).tobytes()


def test_bad_counts():
    out = np.empty(2)
    assert split.impurity(np.ones((2, 4), int), out=out) is out
    assert out.tolist() == [0.75, 0.75]
    for error, message, counts, settings in (
        (ValueError, "negative", np.array([[1.0, -1.0]]), {}),
        (ValueError, r"\(n_nodes, 3\)", np.ones((2, 4)), {"criterion": "squared_error"}),
        (ValueError, "n_classes", np.ones((2, 0)), {}),
        (TypeError, "out: expected dtype float64", np.ones((2, 4), int), {"out": np.empty(2, np.float32)}),
        (ValueError, r"counts: expected shape .*; pass \[counts\] for one node", np.ones(4), {}),
    ):
        with pytest.raises(error, match=message):
            impurity(counts, **settings)


def test_unchecked_skips_the_look_at_values():
    with hforest.unchecked():
        assert best_split(np.array([[0.0, np.inf]]), np.array([0, 1], np.int32), n_classes=2).candidate == 0


# --------------------------------------------------------------------------------------------- bins


def bins_of(value, max_bins):
    """Returns bins from the definition: the middle rank of a value's samples, as a share of all samples."""
    distinct, counts = np.unique(value, return_counts=True)
    if len(distinct) <= max_bins:
        return {v: i for i, v in enumerate(distinct)}
    found, before = {}, 0
    for v, count in zip(distinct, counts, strict=True):
        found[v] = (2 * before + int(count)) * max_bins // (2 * len(value))
        before += int(count)
    return found


@pytest.mark.parametrize("criterion", CRITERIA)
@hypothesis.given(
    n=st.integers(1, 60), n_values=st.sampled_from([1, 3, 10, 1000]), max_bins=st.sampled_from([1, 2, 4, 7, 256]),
    kind=st.sampled_from(["none", "whole"]), seed=st.integers(0, 2**16),
)  # fmt: skip
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_bins_are_the_best_of_brute_force_between_bins(
    backend, dtype, criterion, n, n_values, max_bins, kind, seed
):
    rng = np.random.default_rng(seed)
    values = (rng.integers(-n_values, n_values, (3, n)) / 8).astype(dtype)
    weights = rng.integers(0, 3, n).astype(dtype) if kind == "whole" else None
    y = rng.integers(0, 3, n, np.int32)
    n_classes = 3
    if criterion == "squared_error":
        y = y.astype(dtype)
    settings = {"criterion": criterion, "max_bins": max_bins, **goals(criterion, n_classes)}
    got = best_split(values, y, sample_weight=weights, **settings)
    w = np.ones(n) if weights is None else weights
    bins = [bins_of(value[w > 0], max_bins) for value in values]
    gains = {
        (c, low, high): gain
        for (c, low, high), gain in brute_force(values, y, w, n_classes, criterion).items()
        if bins[c][low] != bins[c][high]
    }
    if not gains:
        assert got.candidate == -1
        return
    best = max(gains.values())
    assert got.gain == pytest.approx(max(best, 0), abs=1e-9 * n)
    (taken,) = (at for at in gains if at[0] == got.candidate and at[1] <= got.threshold < at[2])
    assert gains[taken] == pytest.approx(best, abs=1e-9 * n)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_few_whole_numbers_are_split_exactly(backend, dtype, criterion):
    rng = np.random.default_rng(5)
    values = rng.integers(0, 256, (4, 300)).astype(dtype)
    values[1] = np.arange(300) % 256 * 1000
    y = rng.integers(0, 3, 300, np.int32)
    n_classes = 3
    if criterion == "squared_error":
        y = y.astype(dtype)
    settings = {"criterion": criterion, **goals(criterion, n_classes)}
    exact = best_split(values, y, **settings)
    assert best_split(values, y, max_bins=256, **settings) == exact
    coarse = best_split(values, y, max_bins=2, **settings)
    assert coarse.gain <= exact.gain
    assert best_split(values, y, max_bins=1, **settings).candidate == -1


def test_as_many_values_as_bins_are_split_exactly(backend, dtype):
    # By shares of the samples the values 1 and 2 would be in one bin.
    values = np.array([[0] * 8 + [1, 2]], dtype)
    found = best_split(values, np.array([0] * 9 + [1], np.int32), n_classes=2, max_bins=3)
    assert found.candidate == 0
    assert 1 <= found.threshold < 2


def test_bins_are_those_of_samples(dtype):
    rng = np.random.default_rng(6)
    x = (rng.normal(size=(500, 1)) ** 3).round(1).astype(dtype)
    y = (x[:, 0] > 0.3).astype(np.int32)
    bins = hforest.samples(x, max_bins=8).bins()
    found = best_split(np.ascontiguousarray(x.T), y, n_classes=2, max_bins=8)
    stops = [(float(low), float(high)) for low, high in zip(bins.high[0][:-1], bins.low[0][1:], strict=True)]
    assert any(low <= found.threshold < high for low, high in stops)


@pytest.mark.parametrize("max_bins", [0, 257])
def test_bad_bins(max_bins):
    with pytest.raises(ValueError, match="max_bins: expected 1 to 256"):
        best_split(np.zeros((1, 2)), np.zeros(2, np.int32), n_classes=1, max_bins=max_bins)


# -------------------------------------------------------------------------------------- records of criteria


def test_criteria_have_numbers_of_their_own_and_types_name_them():
    known = scores.numbers(grown=True)
    assert {*typing.get_args(aliases.Criterion)} == {*known, *scores.NAMES}
    assert (
        len({c.number for c in scores.CRITERIA}) == len({c.name for c in scores.CRITERIA}) == len(known) + 1
    )
    message = "module: expected the criteria .*'gini': 0.*, got {'gini': 1} of core/"
    with pytest.raises(ImportError, match=message):
        scores.check_criteria({"gini": 1}, "module")


FAULTS = {
    "a word more": ("\nCRITERIA = (\n", '\nCRITERIA = (\n    Criterion("other", 99, "classification"),\n'),
    "another number": ("\nGINI, ENTROPY, ", "\nENTROPY, GINI, "),
}


@pytest.mark.parametrize("module", ["split.cpu", "growth.cpu.cpu", "growth.by_level.scorers"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_criterion_that_a_compiled_module_does_not_know_is_an_error_by_name(fault, module, tmp_path):
    # The package with another core/scores.py, all else by links.
    package, old, new = Path(hforest.__file__).parent, *FAULTS[fault]
    (tmp_path / "hforest" / "core").mkdir(parents=True)
    for path in [*package.iterdir(), *(package / "core").iterdir()]:
        if path not in (package / "core", package / "core" / "scores.py"):
            (tmp_path / "hforest" / path.relative_to(package)).symlink_to(path)
    text = (package / "core" / "scores.py").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "hforest" / "core" / "scores.py").write_text(text.replace(old, new), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", f"import hforest.{module}"], env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    error = done.stderr.splitlines()[-1]
    # Importing the scorers of by_level imports the CPU backend of growth first.
    first = "growth.cpu.cpu" if module == "growth.by_level.scorers" else module
    assert error.startswith(f"ImportError: hforest.{first}: expected the criteria ")
    assert "\nrequire_criteria(__name__)\n" in (package / f"{module.replace('.', '/')}.pyx").read_text(
        "utf-8"
    )
    assert ("'other': 99" in error) == (fault == "a word more")
