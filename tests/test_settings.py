"""Settings shared by the functions that grow forests: criteria, limits, sampled features, bins; messages."""

import re

import numpy as np
import pytest

from hforest.core import check, progress, supervised


def test_criterion():
    numbers = [supervised.criterion(c, "classification") for c in ("gini", "entropy")]
    assert [*numbers, supervised.criterion("squared_error", "regression")] == [0, 1, 2]
    assert supervised.criterion(None, "classification") == 0
    assert supervised.criterion(None, "classification", "entropy") == 1
    assert supervised.criterion(None, "regression", "entropy") == 2
    for value, task in (
        ("squared_error", "classification"),
        ("gini", "regression"),
        ("mse", "regression"),
        (1, "classification"),
    ):
        with pytest.raises(ValueError, match="^criterion: expected one of '"):
            supervised.criterion(value, task)
    with pytest.raises(ValueError, match="^criterion: expected one of 'gini', 'entropy', got"):
        supervised.criterion(np.array(["gini", "entropy"]), "classification")


def test_limits():
    assert supervised.limits(None, 2, 1) == (check.MAX_COUNT, 2, 1, 0.0, 0.0)
    assert supervised.limits(np.int64(0), np.int8(5), 3, np.float32(0.5), 0.25) == (0, 5, 3, 0.5, 0.25)
    good = {"max_depth": 3, "min_samples_split": 2, "min_samples_leaf": 1, "min_impurity_decrease": 0.0}
    for name, value, error in (
        ("max_depth", -1, ValueError),
        ("max_depth", 2.0, TypeError),
        ("max_depth", True, TypeError),
        ("max_depth", 2**31, ValueError),
        ("min_samples_split", 1, ValueError),
        ("min_samples_split", None, TypeError),
        ("min_samples_leaf", 0, ValueError),
        ("min_samples_leaf", 0.1, TypeError),
        ("min_impurity_decrease", -1e-9, ValueError),
        ("min_impurity_decrease", np.nan, ValueError),
        ("min_impurity_decrease", "0", TypeError),
        ("min_weight_fraction_leaf", -0.1, ValueError),
        ("min_weight_fraction_leaf", 0.51, ValueError),
        ("min_weight_fraction_leaf", None, TypeError),
    ):
        with pytest.raises(error, match=f"^{name}: expected"):
            supervised.limits(**{**good, name: value})


def test_max_features():
    for value, n_features, want in (
        ("sqrt", 10, 3), ("sqrt", 16, 4), ("sqrt", 1, 1), (None, 10, 10), (0.5, 11, 5), (1.0, 11, 11),
        (1e-9, 11, 1), (np.float32(0.25), 8, 2), (7, 10, 7), (np.int16(10), 10, 10),
    ):  # fmt: skip
        assert supervised.max_features(value, n_features) == want
    for value, error in (
        ("log2", ValueError), (0, ValueError), (11, ValueError), (0.0, ValueError), (1.5, ValueError),
        (np.nan, ValueError), (True, TypeError), ([3], TypeError),
    ):  # fmt: skip
        with pytest.raises(error, match="^max_features: expected"):
            supervised.max_features(value, 10)


def test_max_bins():
    assert supervised.max_bins(None) is None
    assert supervised.max_bins(1) == 1
    assert supervised.max_bins(np.uint16(256)) == 256
    for value, error in (
        (0, ValueError),
        (257, ValueError),
        (16.0, TypeError),
        (True, TypeError),
        ("256", TypeError),
    ):
        with pytest.raises(error, match="^max_bins: expected"):
            supervised.max_bins(value)


# ------------------------------------------------------------------------------------------- one rule for messages


def test_messages_have_four_parts():
    calls = [
        lambda: supervised.matrix("x", np.ones(3)),
        lambda: supervised.matrix("x", [["a"]]),
        lambda: supervised.matrix("x", None),
        lambda: supervised.samples("x", np.ones((0, 1))),
        lambda: supervised.labels("x", [1.5], 1),
        lambda: supervised.labels("x", [-1], 1),
        lambda: supervised.labels("x", [4], 1),
        lambda: supervised.targets("x", [1.0], 2),
        lambda: supervised.max_features(0, 1),
        lambda: check.seed("a"),
        lambda: check.float_dtype(int),
        lambda: progress.check_progress(3),
        lambda: check.function("checkpoint", 3, "state"),
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError, IndexError)) as caught:
            call()
        assert re.fullmatch(r"\w+: expected .+, got .+; .+", str(caught.value)), caught.value
