"""Several labels a sample: forests of the reference implementation and of scikit-learn, weights, files."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from conftest import assert_same_bits
from conftest import refused as refuses
from growers import KINDS, both, make

import hforest
from hforest import tree
from hforest.core import check


def data(n=60, seed=0, dtype=np.float64):
    """Returns samples, and three labels of 2, 3 and 2 classes that depend on their columns."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6)).astype(dtype)
    noise = x + 0.5 * rng.normal(size=x.shape)
    return x, np.stack(
        [noise[:, 0] > 0, np.digitize(noise[:, 1], [-0.5, 0.5]), noise[:, 2] > 0.3], axis=1
    ) * 1


def refused(error, words, function, *args, **settings):
    with refuses(error, f"^{words}"):
        function(*args, **settings)


def unequal(f, t, a=0, i=0):
    """Returns the first node at which a tree of hforest and one of scikit-learn differ, or None."""
    feature = int(f.feature[a])
    if feature == -1:
        return None if t.children_left[i] == -1 else a
    if feature != t.feature[i] or abs(f.threshold[a] - t.threshold[i]) > 1e-5:
        return a
    sides = ((f.left[a], t.children_left[i]), (f.left[a] + 1, t.children_right[i]))
    return next((bad for pair in sides if (bad := unequal(f, t, *pair)) is not None), None)


@pytest.mark.parametrize("criterion", ["gini", "entropy"])
@pytest.mark.parametrize("seed", range(4))
def test_trees_are_those_of_scikit_learn(seed, criterion):
    sklearn_tree = pytest.importorskip("sklearn.tree")
    x, y = data(1000, seed, np.float32)
    weight = np.random.default_rng(seed).uniform(0.5, 1.5, len(x))  # no ties
    settings = {"min_samples_leaf": 20, "sample_weight": weight, "criterion": criterion}
    f = hforest.grow(x, y, 1, bootstrap=False, max_features=None, rng=0, **settings)
    model = sklearn_tree.DecisionTreeClassifier(min_samples_leaf=20, criterion=criterion).fit(x, y, weight)
    assert len(f.feature) > 60
    assert unequal(f, model.tree_) is None
    np.testing.assert_array_equal(f.class_start, [0, 2, 5, 7])
    want = np.concatenate(model.predict_proba(x), axis=1)
    np.testing.assert_allclose(tree.predict(f, x), want, atol=1e-6)
    of_all = tree.importance(f, by="gain")
    np.testing.assert_allclose(of_all / of_all.sum(), model.feature_importances_, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", ["one", "real"])
@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_reference(kind, weights, criterion, dtype):
    x, y = data(dtype=dtype)
    weight = np.random.default_rng(1).random(len(x)) if weights == "real" else None
    settings = {"sample_weight": weight, "criterion": criterion}
    f = both(x, y, n_classes=[2, 4, 2], **settings, **KINDS[kind](6))
    assert f.class_start.tolist() == [0, 2, 6, 8]
    for low, high in zip(f.class_start, f.class_start[1:], strict=False):
        np.testing.assert_allclose(f.value[:, low:high].sum(axis=1), 1, rtol=1e-6)
    assert f.value.min() >= 0
    assert not f.value[:, 5].any()  # a class without samples


def test_gains_of_the_entropy_are_sums_over_labels():
    """A label that stands twice has trees of one, with twice the gains."""
    x, y = data(300)
    settings = {"criterion": "entropy", "bootstrap": False, "max_features": None}
    one = make(x, y[:, 1], **settings)
    twice = make(x, y[:, [1, 1]], n_classes=[3, 3], **settings)
    for name in ("feature", "threshold", "left"):
        np.testing.assert_array_equal(getattr(one, name), getattr(twice, name))
    np.testing.assert_allclose(twice.gain, 2 * one.gain, rtol=1e-9)
    np.testing.assert_array_equal(twice.value, np.tile(one.value, 2))
    root = make(x, y, n_classes=[2, 3, 2], max_depth=1, **settings)
    right = x[:, root.feature[0]] > root.threshold[0]
    sides = np.ones_like(right), ~right, right
    of_sides = [sum(entropy(label[side]) for label in y.T) for side in sides]
    np.testing.assert_allclose(root.gain[0], of_sides[0] - of_sides[1] - of_sides[2], rtol=1e-9)


def entropy(labels):
    """Returns the number of labels times their entropy in bits."""
    counts = np.bincount(labels)
    return -sum(n * np.log2(n / len(labels)) for n in counts if n)


def test_missing_values_and_categories():
    x, y = data()
    x[:, 0] = np.floor(3 * x[:, 0]) + 12
    x[::7, 1:3] = np.nan
    samples = hforest.samples(x, categorical=[0])
    for criterion in ("gini", "entropy"):
        f = make_of(samples, y, criterion)
        with hforest.using("reference"):
            assert_same_bits(make_of(samples, y, criterion), f)


def make_of(samples, y, criterion):
    return hforest.grow(samples, y, 3, min_samples_leaf=2, criterion=criterion, rng=2)


def test_threads_and_ranges(threads):
    x, y = data(500)
    whole = hforest.grow(x, y, 6, rng=3)
    threads(2)
    parts = [hforest.grow(x, y, 3, first_tree=first, rng=3) for first in (0, 3)]
    assert_same_bits(tree.join(parts), whole)


def test_files_pickles_and_joins(tmp_path):
    x, y = data()
    f = make(x, y, n_classes=[2, 3, 2])
    tree.save(tmp_path / "f.npz", f)
    assert_same_bits(tree.load(tmp_path / "f.npz"), f)
    assert_same_bits(pickle.loads(pickle.dumps(f)), f)
    assert int(np.load(tmp_path / "f.npz")["forest_format"]) == 3
    other = make(x, y, n_classes=[2, 2 + 1, 2])
    assert tree.join([f, other]).class_start.tolist() == [0, 2, 5, 7]
    refused(ValueError, r"forests\[1\]", tree.join, [f, make(x, y, n_classes=[3, 2 + 1, 1 + 1])])
    single = make(x, y[:, 0] + 2 * y[:, 1], n_classes=7)
    refused(ValueError, r"forests\[1\]: expected class_start", tree.join, [f, single])


@pytest.mark.parametrize("start", [[1, 7], [0, 6], [0, 3, 3, 7], [0, 4, 3, 7], [0]])
def test_forests_with_other_class_starts_are_refused(start):
    x, y = data()
    bad = make(x, y, n_classes=[2, 3, 2])._replace(class_start=np.array(start))
    refused(ValueError, "forest.class_start", tree.check, bad)
    refused(TypeError, "forest.class_start", tree.check, bad._replace(class_start=np.array([0.0, 7.0])))


def test_class_weights():
    x, y = data(200)
    of = [np.bincount(column) for column in y.T]
    weight = np.prod([len(y) / len(n) / n[column] for n, column in zip(of, y.T, strict=True)], axis=0)
    f = hforest.grow(x, y, 2, class_weight="balanced", min_samples_leaf=9, rng=0)
    g = hforest.grow(x, y, 2, sample_weight=weight, min_samples_leaf=9, rng=0)
    np.testing.assert_array_equal(f.feature, g.feature)
    np.testing.assert_allclose(f.value, g.value, atol=1e-12)
    f = hforest.grow(x, y, 2, class_weight=[{1: 4}, None, [0.5, 2]], rng=0)
    weight = np.where(y[:, 0] == 1, 4, 1) * np.where(y[:, 2] == 1, 2, 0.5)
    assert_same_bits(f, hforest.grow(x, y, 2, sample_weight=weight, rng=0))


def test_refit():
    x, y = data(200)
    f = hforest.grow(x[:100], y[:100], 5, rng=0)
    g = tree.refit(f, x[100:], y[100:])
    for j, (low, high) in enumerate(zip(f.class_start, f.class_start[1:], strict=False)):
        alone = tree.refit(f, x[100:], y[100:, j])
        np.testing.assert_array_equal(g.value[:, low:high], alone.value)
        assert not alone.class_start.size


def test_unchecked():
    x, y = data()
    want = make(x, y, n_classes=[2, 3, 2])
    with hforest.unchecked():
        assert_same_bits(make(x, y, n_classes=[2, 3, 2]), want)


def test_refusals():
    x, y = data()

    def grow(y=y, x=x, **settings):
        return hforest.grow(x, y, 2, **settings)

    refused(ValueError, "criterion", grow, criterion="poisson")
    refused(ValueError, "class_weight", grow, class_weight={0: 1.0})
    refused(ValueError, "class_weight", grow, class_weight=[None, None])
    refused(ValueError, "n_classes", grow, n_classes=[2, 3])
    refused(TypeError, "n_classes", lambda: hforest.grow(x, y[:, 0], n_classes=[2]))
    refused(IndexError, r"y\[:, 1\]", grow, n_classes=2)
    refused(ValueError, "y", grow, y[:-1])
    refused(ValueError, "y", grow, y[:, :1])
    refused(TypeError, r"y\[:, 0\]", grow, y * 1.5)
    refused(ValueError, r"y\[:, 0\]", grow, np.where(y == 1, 3, y))
    refused(TypeError, "y", grow, scipy.sparse.csr_array(y))
    windows = hforest.samples(np.arange(20.0)[None], windows=(np.arange(8), np.arange(3)))
    refused(ValueError, "y", grow, y[:8] % 2, windows, n_classes=2)
    assert check.values_checked()
