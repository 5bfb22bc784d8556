"""CO2 forests fit stumps in standard deviations: units of columns and targets do not change a forest."""

import numpy as np
import pytest

from hforest import co2, tree
from hforest.co2 import units

RNG = np.random.default_rng(4)
X = RNG.normal(size=(400, 5))
Y = (X @ [1, -2, 0.5, 0, 1] + 0.3 * RNG.normal(size=400) > 0).astype(int)
TARGETS = X @ [1, -2, 0.5, 0, 1] + 0.3 * RNG.normal(size=400)
UNSEEN = RNG.normal(size=(300, 5))
MEAN, DEVIATION = X.mean(axis=0), X.std(axis=0)


def grow(x, y, **settings):
    return co2.grow(x, y, 5, lr=0.1, rng=0, **settings)


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("splitter", ["co2", "oc1"])
def test_as_on_standardized_columns(task, splitter):
    y = Y if task == "classification" else TARGETS
    ours = grow(X, y, task=task, splitter=splitter)
    targets = y if task == "classification" else (y - y.mean()) / y.std()
    plain = grow((X - MEAN) / DEVIATION, targets, task=task, splitter=splitter, standardize=False)
    for name in ("tree_start", "feature", "left", "indptr", "indices"):
        assert (getattr(ours, name) == getattr(plain, name)).all(), name
    p, q = tree.predict(ours, UNSEEN), tree.predict(plain, (UNSEEN - MEAN) / DEVIATION)
    if task == "classification":
        assert (p == q).all()
        assert (ours.gain == plain.gain).all()
    else:
        assert np.allclose(p, q * y.std() + y.mean(), rtol=1e-12)
        assert np.allclose(ours.gain, plain.gain * y.var(), rtol=1e-12)
    assert (ours.data != plain.data).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_units_of_columns_do_not_matter(dtype):
    x, unseen = X.astype(dtype), UNSEEN.astype(dtype)
    p = tree.predict(grow(x, Y), unseen)
    factor = 2.0 ** np.array([-40, 13, 0, 40, -7])
    scaled = grow((x * factor).astype(dtype), Y)
    # Powers of two change no digit, so that nothing changes but the exponents.
    assert (tree.predict(scaled, (unseen * factor).astype(dtype)) == p).all()
    factor, shift = np.array([1e-12, 3, -1e12, 1e6, 0.1]), np.array([1e-11, -7, 3e12, 0, 1])
    q = tree.predict(grow((x * factor + shift).astype(dtype), Y), (unseen * factor + shift).astype(dtype))
    assert (p.argmax(axis=1) == q.argmax(axis=1)).mean() > 0.95


def test_nodes_are_converted_in_blocks_with_equal_bits(monkeypatch):
    plain, of_x = grow(X, Y, standardize=False), units.of_samples(X, np.ones(len(X)))
    want = units.with_units(plain._replace(data=plain.data.copy()), of_x, None)
    monkeypatch.setattr(units, "_VALUES", 7 * X.shape[1])  # seven nodes
    got = units.with_units(plain._replace(data=plain.data.copy()), of_x, None)
    assert len(plain.feature) % 7  # the last block is smaller
    assert (got.data == want.data).all()
    assert (got.threshold == want.threshold).all()
    assert (want.threshold != plain.threshold).any()


def test_units_of_targets_do_not_matter():
    both = np.column_stack([TARGETS, 3 * X[:, 0]])
    settings = {"task": "regression", "min_samples_leaf": 3}
    for decrease in (0.0, 0.02):
        plain = grow(X, both, min_impurity_decrease=decrease, **settings)
        moved = grow(X, 1024 * both, min_impurity_decrease=decrease * 1024**2, **settings)
        p = tree.predict(plain, UNSEEN)
        # A power of two changes no digit.
        assert np.allclose(1024 * p, tree.predict(moved, UNSEEN), rtol=1e-12), decrease
        assert np.allclose(1024.0**2 * plain.gain, moved.gain, rtol=1e-12)
        moved = grow(X, 1000 * both + [5e4, -3], min_impurity_decrease=decrease * 1000**2, **settings)
        q = (tree.predict(moved, UNSEEN) - [5e4, -3]) / 1000
        assert np.abs(p - q).mean() < 0.1 * p.std(), decrease
    assert len(plain.feature) < len(grow(X, both, **settings).feature)


def test_constant_columns_and_samples_without_weight():
    # Rounding leaves the third column a tiny deviation, which counts as 0.
    constant = np.column_stack([X[:, :2], np.full(400, 0.1), np.zeros(400)])
    forest = grow(constant, Y)
    same = constant.copy()
    same[:, 2:] = 7.5
    assert (tree.predict(grow(same, Y), same) == tree.predict(forest, constant)).all()
    weight = np.where(np.arange(400) < 300, 1.0, 0.0)
    wild = np.where(weight[:, None] > 0, X, 1e9)
    few, all_of = grow(X, Y, sample_weight=weight), grow(wild, Y, sample_weight=weight)
    assert (tree.predict(few, UNSEEN) == tree.predict(all_of, UNSEEN)).all()


def test_constant_targets():
    forest = grow(X, np.full(400, 3.25), task="regression")
    assert (tree.predict(forest, UNSEEN) == 3.25).all()


def test_a_flag_is_checked():
    with pytest.raises(TypeError, match="^standardize: expected True or False, got int; pass one of them"):
        grow(X, Y, standardize=1)
