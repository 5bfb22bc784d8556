"""Estimators with several labels a sample."""

import numpy as np
import pytest
from conftest import assert_same_bits, refused

import hforest
from hforest import growth, tree

pytest.importorskip("sklearn", minversion="1.6", reason="needs scikit-learn 1.6 or newer")

import scipy.sparse

import hforest.sklearn as hs


def several(n=300):
    """Returns samples, and three labels of text each."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 6))
    places = np.stack([x[:, 0] > 0, np.digitize(x[:, 1], [-0.5, 0.5]), x[:, 2] > 0.3], axis=1).astype(int)
    return x, np.stack(
        [np.array(list(names))[at] for names, at in zip(("ba", "uvw", "st"), places.T, strict=True)], axis=1
    )


@pytest.mark.parametrize(
    "kind", [hs.RandomForestClassifier, hs.ExtraTreesClassifier, hs.ObliqueForestClassifier]
)
def test_several_labels(kind):
    x, y = several()
    model = kind(30, random_state=0, bootstrap=True, oob_score=True).fit(x, y.tolist())
    assert (model.n_outputs_, model.n_classes_) == (3, [2, 3, 2])
    assert [list(classes) for classes in model.classes_] == [["a", "b"], ["u", "v", "w"], ["s", "t"]]
    p, predicted = model.predict_proba(x), model.predict(x)
    np.testing.assert_array_equal(np.concatenate(p, axis=1), tree.predict(model.forest_, x))
    for j, logarithm in enumerate(model.predict_log_proba(x)):
        np.testing.assert_array_equal(np.exp(logarithm).argmax(axis=1), p[j].argmax(axis=1))
        np.testing.assert_array_equal(predicted[:, j], model.classes_[j][p[j].argmax(axis=1)])
    assert (predicted == y).all()
    shares = model.oob_decision_function_
    assert shares.shape == (300, 3, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    assert not shares[:, 2, [0, 2]].any()
    right = [
        (known[p.argmax(axis=1)] == a)
        for known, p, a in zip(model.classes_, shares.transpose(2, 0, 1), y.T, strict=True)
    ]
    assert model.oob_score_ == np.all(right, axis=0).mean()
    assert kind(5).fit(x, y[:, 0]).predict(x).ndim == 1


def test_several_labels_have_class_weights():
    x, y = several()
    weight = np.where(y[:, 0] == "a", 2, 1) * np.where(y[:, 2] == "t", 3, 1)
    model = hs.RandomForestClassifier(5, class_weight=[{"a": 2}, None, {"t": 3, "s": 1}], random_state=0)
    want = hs.RandomForestClassifier(5, random_state=0).fit(x, y, weight)
    assert_same_bits(model.fit(x, y).forest_, want.forest_)


@pytest.mark.parametrize(
    "kind", [hs.RandomForestClassifier, hs.RandomForestRegressor, hs.HonestForestClassifier]
)
def test_sparse_labels_are_refused(kind):
    y = scipy.sparse.csr_array(np.eye(30, 2, dtype=int))
    with refused(TypeError, r"^y: expected a dense array, got csr_array; pass y.toarray\(\)"):
        kind(2).fit(np.eye(30), y)


@pytest.mark.parametrize("weights", ["multiply", "draw"])
def test_balanced_subsample(weights):
    x, y = several()
    for labels in (y[:, 1], y):
        model = hs.RandomForestClassifier(
            5, class_weight="balanced_subsample", bootstrap_weights=weights, random_state=0
        )
        weight = np.arange(1.0, 301.0)
        model.fit(x, labels, weight)
        counts = growth.bootstrap_counts(300, 5, sample_weight=weight if weights == "draw" else None, rng=0)
        places = np.stack([np.unique(a, return_inverse=True)[1] for a in labels.reshape(300, -1).T], axis=1)
        want = hforest.grow(
            x, places if labels.ndim == 2 else places[:, 0], 5, class_weight="balanced_subsample", rng=0,
            bootstrap=counts, sample_weight=None if weights == "draw" else weight,
        )  # fmt: skip
        assert_same_bits(model.forest_, want)


def test_drawing_with_class_weights_of_several_labels():
    x, y = several()
    model = hs.RandomForestClassifier(
        5, class_weight=[{"a": 2}, None, {"t": 3, "s": 1}], bootstrap_weights="draw", random_state=0
    )
    weight = np.where(y[:, 0] == "a", 2, 1) * np.where(y[:, 2] == "t", 3, 1)
    want = hs.RandomForestClassifier(5, bootstrap_weights="draw", random_state=0).fit(x, y, weight)
    assert_same_bits(model.fit(x, y).forest_, want.forest_)
