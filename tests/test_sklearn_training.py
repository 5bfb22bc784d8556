"""Estimators: labels, weights, seeds, threads, and training by steps."""
# ruff: noqa: E402 (modules that need scikit-learn are imported where it is known to be there)

import pickle

import numpy as np
import pytest
from conftest import same_bits

import hforest
from hforest import neural, tree
from hforest.tabular import recipe

sklearn = pytest.importorskip("sklearn", minversion="1.6", reason="needs scikit-learn 1.6 or newer")

import joblib
from estimators import (
    CLASSIFIERS,
    KINDS,
    TARGETS,
    TEXT,
    WEIGHTED,
    X_TARGETS,
    X,
    Y,
    data,
    mixed,
    outputs,
    parts,
    small,
)
from sklearn.exceptions import NotFittedError

import hforest.sklearn as hs

# pytest.warns catches the warning if a test expects it.
pytestmark = pytest.mark.filterwarnings("ignore:shape. expected the shape of a sample:UserWarning")


# --------------------------------------------------------------------------- labels, weights, seeds, threads


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize(
    "labels", [TEXT, TEXT.astype(str), Y - 7, Y == 1], ids=["objects", "text", "negative", "bools"]
)
def test_labels_of_any_kind(name, labels):
    model = small(name).fit(X, labels)
    plain = small(name).fit(X, np.unique(labels, return_inverse=True)[1])
    assert model.classes_.tolist() == np.unique(labels).tolist()
    assert model.predict(X).dtype == model.classes_.dtype
    assert (model.predict(X) == model.classes_[plain.predict(X)]).all()
    assert model.score(X, labels) > 0.85


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_one_class(name):
    model = small(name).fit(X, ["only"] * 150)
    assert (model.predict(X) == "only").all()
    assert model.predict_proba(X) == pytest.approx(1)


@pytest.mark.parametrize("name", sorted({*CLASSIFIERS} & {*WEIGHTED}))
def test_class_weight(name):
    def fitted(weight):
        return mixed(name, class_weight=weight).fit(X[::2], TEXT[::2]).predict_proba(X[1::2])

    plain, equal = fitted(None), fitted({"setosa": 1, "versicolor": 1, "virginica": 1})
    assert same_bits(plain, equal)
    skewed = fitted({"virginica": 50})  # others have 1
    assert skewed[:, 2].sum() > plain[:, 2].sum()
    with pytest.raises(ValueError, match="are not in class_weight"):
        fitted({"virginicaa": 50})
    x, y, x_test = parts(name)
    by_class = small(name, class_weight={0: 1, 1: 2, 2: 4}).fit(x, y)
    by_sample = small(name).fit(x, y, sample_weight=2.0**y)
    assert same_bits(by_class.predict_proba(x_test), by_sample.predict_proba(x_test))


@pytest.mark.parametrize("name", WEIGHTED)
def test_sample_weight(name):
    x, y, x_test = parts(name)
    plain = outputs(mixed(name).fit(x, y), x_test)
    assert same_bits(outputs(mixed(name).fit(x, y, sample_weight=3.0), x_test), plain)
    weight = np.where(np.arange(len(x)) % 2, 1, 1e-6)
    assert not same_bits(outputs(mixed(name).fit(x, y, sample_weight=weight), x_test), plain)
    with pytest.raises(ValueError, match="sample_weight: expected shape"):
        mixed(name).fit(x, y, sample_weight=weight[:-1])


@pytest.mark.parametrize("name", KINDS)
def test_seeds(name):
    x, y, x_test = parts(name)

    def fitted(random_state):
        return outputs(small(name, random_state=random_state).fit(x, y), x_test)

    assert same_bits(fitted(3), fitted(np.int64(3)))
    assert not same_bits(fitted(3), fitted(4))
    assert same_bits(fitted(np.random.RandomState(3)), fitted(np.random.RandomState(3)))
    state = np.random.RandomState(3)
    assert not same_bits(fitted(state), fitted(state))
    with pytest.raises(ValueError, match="cannot be used to seed"):
        fitted("three")


@pytest.mark.skipif(not hforest.show_config("dicts")["openmp"], reason="this build has one thread")
@pytest.mark.parametrize("name", KINDS)
def test_number_of_threads(name, threads):
    x, y = data(name)
    threads(3)
    model = small(name, n_jobs=2)
    seen = []

    class Watching(type(model)):
        def _learned(self, *arrays):
            seen.append(hforest.get_num_threads())
            return super()._learned(*arrays)

        def _outputs(self, x):
            seen.append(hforest.get_num_threads())
            return super()._outputs(x)

    watching = Watching(**model.get_params()).fit(x, y)
    found = outputs(watching, x)
    assert seen == [2, 2]
    assert hforest.get_num_threads() == 3
    with pytest.raises(ValueError, match="n_estimators"):
        watching.set_params(n_estimators=0).fit(x, y)
    assert hforest.get_num_threads() == 3
    assert same_bits(found, outputs(small(name).fit(x, y), x))


def test_numbers_of_threads():
    assert hs.base.number_of_threads(5) == 5
    assert hs.base.number_of_threads(-1) == joblib.cpu_count()
    assert hs.base.number_of_threads(-(10**6)) == 1
    for n_jobs, error in ((0, ValueError), (1025, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="n_jobs: expected .*; pass None"):
            small("RandomForestClassifier", n_jobs=n_jobs).fit(X, Y)


# --------------------------------------------------------------------------- training by steps


@pytest.mark.parametrize("name", ["HingeForestClassifier", "HingeForestRegressor"])
def test_steps_of_hinge_forests(name):
    x, y = data(name)
    assert small(name, n_boosted=0).fit(x, y).n_iter_ == 60
    assert small(name, n_boosted=0, max_iter=0).fit(x, y).n_iter_ == 0
    assert 60 < small(name).fit(x, y).n_iter_ <= 360
    settings = {"n_members": 1, "n_boosted": 0, "max_iter": 1500, "learning_rate": 0.5}
    stopped = small(name, validation_fraction=0.3, **settings).fit(x, y)
    assert recipe.PATIENCE * recipe.JUDGE_EVERY <= stopped.n_iter_ < 1500
    assert stopped.n_iter_ % recipe.JUDGE_EVERY == 0
    assert small(name, validation_fraction=0.0, **settings).fit(x, y).n_iter_ == 1500


def test_early_stopping_of_neural_forests():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 5)), rng.integers(0, 2, 200)  # noise: the loss on held-out samples rises
    settings = {"max_iter": 60, "learning_rate": 0.1, "validation_fraction": 0.25, "n_iter_no_change": 3}
    model = small("NeuralForestClassifier", early_stopping=True, **settings).fit(x, y)
    losses = model.validation_losses_
    best = int(np.argmin(losses))
    assert len(losses) == len(model.loss_curve_) == model.n_iter_ == best + 1 + 3 < 60
    # The final model has the smallest loss, as the held-out samples, drawn again, show.
    from sklearn.model_selection import train_test_split

    _, held, _, labels = train_test_split(x, y, test_size=0.25, stratify=y, random_state=0)
    p = neural.predict(model.model_, held)[np.arange(len(held)), labels]
    assert -np.log(p.astype(float)).mean() == pytest.approx(losses[best])
    for settings, message in (
        ({"n_iter_no_change": 0}, "n_iter_no_change: expected an int of at least 1, got 0"),
        ({"validation_fraction": 1.5}, "validation_fraction: expected a share above 0 and below 1, got 1.5"),
    ):
        with pytest.raises(ValueError, match=message):
            small("NeuralForestClassifier", early_stopping=True, **settings).fit(x, y)
    assert not hasattr(small("NeuralForestClassifier").fit(x, y), "validation_losses_")


STEPPED = ["HingeForestClassifier", "HingeForestRegressor", "NeuralForestClassifier"]


def in_batches(model, x, y, n=5, **settings):
    """Returns the model after `partial_fit` with n batches."""
    for rows in np.array_split(np.arange(len(x)), n):
        model.partial_fit(x[rows], y[rows], **settings)
        settings = {}
    return model


@pytest.mark.parametrize("name", STEPPED)
def test_batches_are_learned(name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 4)) * [1, 10, 1e-3, 1] + [0, 100, 0, 0]
    target = x[:, 0] * (x[:, 1] - 100)
    y = np.where(target > 0, "more", "less") if name in CLASSIFIERS else target * 1e6
    classes = {"classes": ["more", "less"]} if name in CLASSIFIERS else {}
    model = small(name, max_iter=None if name.startswith("Hinge") else 4)
    model.partial_fit(x[:300], y[:300], **classes)

    def quality():
        """Returns the mean logarithm of probabilities of labels, or R2."""
        if name not in CLASSIFIERS:
            return model.score(x[2500:], y[2500:])
        p = model.predict_proba(x[2500:])
        return np.log(p[np.arange(len(p)), np.searchsorted(model.classes_, y[2500:])]).mean()

    early = quality()
    begun = pickle.loads(pickle.dumps(model))
    in_batches(model, x[300:2500], y[300:2500], 10)
    assert quality() > early + 0.005
    assert model.t_ == {"H": 10 * 4, "N": 5 + 10 * 4}[name[0]]
    # The state between calls is pickled, too.
    in_batches(begun, x[300:2500], y[300:2500], 10)
    assert same_bits(outputs(begun, x), outputs(model, x))


@pytest.mark.parametrize("name", STEPPED)
def test_batches_go_on_from_fit_and_fit_begins_anew(name):
    x, y = data(name)
    fitted = small(name).fit(x, y)
    expected, n_iter = outputs(fitted, x), fitted.n_iter_
    fitted.partial_fit(x, y)  # classes are known
    assert not same_bits(outputs(fitted, x), expected)
    assert fitted.t_ == 3
    assert fitted.score(x, y) > 0.6
    assert same_bits(outputs(fitted.fit(x, y), x), expected)
    assert fitted.n_iter_ == n_iter
    assert not hasattr(fitted, "t_")
    fitted.partial_fit(x, y)
    assert fitted.t_ == 3
    first = fitted.fit(x, y).partial_fit(x, y)
    again = small(name).fit(x, y).partial_fit(x, y)
    assert same_bits(outputs(first, x), outputs(again, x))


@pytest.mark.parametrize("name", STEPPED)
def test_weights_of_batches(name):
    order = np.random.default_rng(0).permutation(150)
    x, y = (a[order] for a in data(name))
    classes = {"classes": np.unique(y)} if name in CLASSIFIERS else {}

    def fitted(weight=None, **settings):
        model = small(name, **settings).partial_fit(x[:80], y[:80], sample_weight=weight, **classes)
        model.partial_fit(x[80:], y[80:], sample_weight=weight if np.ndim(weight) == 0 else weight[:70])
        return outputs(model, x)

    plain = fitted()
    assert same_bits(fitted(2.0), plain)
    weight = np.where(y[:80] == y.max(), 16, 1) if name in CLASSIFIERS else np.linspace(0.1, 2, 80)
    assert not same_bits(fitted(weight), plain)
    if name not in CLASSIFIERS:
        return
    heavy = fitted(class_weight={0: 1, 1: 1, 2: 16})
    assert heavy[:, 2].sum() > plain[:, 2].sum()
    with pytest.raises(
        ValueError, match="class_weight: expected None or a mapping in partial_fit, got 'balanced'"
    ):
        fitted(class_weight="balanced")


@pytest.mark.parametrize("name", [name for name in STEPPED if name in CLASSIFIERS])
def test_classes_of_batches(name):
    # The first batch lacks a class.
    first = Y < 2
    model = small(name).partial_fit(X[first], TEXT[first], classes=TEXT)
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert model.predict_proba(X).shape == (150, 3)
    order = np.random.default_rng(0).permutation(150)
    for _ in range(60):
        model.partial_fit(X[order], TEXT[order])
    assert (model.predict(X[Y == 2]) == "virginica").mean() > 0.5
    model.partial_fit(X, TEXT, classes=["virginica", "versicolor", "setosa"])
    for new, x, y, classes, message in (
        (
            model,
            X,
            TEXT,
            ["virginica", "setosa"],
            "classes: expected the classes of the first call, .*; pass None",
        ),
        (
            model,
            X[:1],
            ["rosa"],
            None,
            r"y: expected labels of classes = .*, got \['rosa'\]; pass the labels",
        ),
        (
            small(name),
            X,
            TEXT,
            None,
            "classes: expected labels in the first call of partial_fit, got None; pass",
        ),
        (model, X[:, :2], TEXT, None, "features"),
    ):
        with pytest.raises(ValueError, match=message):
            new.partial_fit(x, y, classes=classes)


def test_several_targets_in_batches():
    y = np.stack([TARGETS, -TARGETS], axis=1)
    model = in_batches(small("HingeForestRegressor"), X_TARGETS, y, 2)
    assert model.n_outputs_ == 2
    assert model.score(X_TARGETS, y) > 0.3
    with pytest.raises(ValueError, match="y: expected the 2 targets of the model, got 1; pass as many"):
        model.partial_fit(X_TARGETS, TARGETS)


@pytest.mark.parametrize("name", ["HingeForestClassifier", "HingeForestRegressor", "CascadeForestClassifier"])
def test_importances_of_grown_starts_and_first_levels(name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5)) * [1, 1e3, 1, 1, 1]
    y = x[:, 1] > 0 if name in CLASSIFIERS else x[:, 1]
    with pytest.raises(NotFittedError):
        small(name).feature_importances_  # noqa: B018
    model = small(name).fit(x, y)
    found = model.feature_importances_
    assert found.shape == (5,)
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
    assert found.argmax() == 1
    if name.startswith("Cascade"):
        first = [tree.importance(forest, by="gain") for forest in model.cascade_.levels[0]]
        assert found == pytest.approx(np.mean(first, axis=0))
        return
    by_hand = np.zeros(5)
    for member in model.model_.members:
        shares = tree.importance(member.forest, by="gain")
        by_hand += shares[:5]
        for j, share in enumerate(shares[5:]):
            size = abs(member.grown_kernel[:, j].astype(float))
            by_hand += share * size / size.sum()
    assert found == pytest.approx(by_hand / len(model.model_.members))


def test_cascades_name_the_class_of_few_samples():
    labels = TEXT.copy()
    labels[:2] = "rare"
    with pytest.raises(
        ValueError, match=r"y: expected at least n_folds = 3 .* 2 sample\(s\) of class rare; lower"
    ):
        small("CascadeForestClassifier").fit(X, labels)
    model = small("CascadeForestClassifier", class_vectors="out_of_bag").fit(X, labels)
    assert model.predict_proba(X).shape == (150, 4)
    for n_forests in (0, 10**30):
        with pytest.raises(
            ValueError, match=f"n_forests: expected an int of 1 to 65536, got {n_forests}; pass"
        ):
            small("CascadeForestClassifier", n_forests=n_forests).fit(X, TEXT)


def test_manifold_forests_take_samples_as_signals_by_default():
    with pytest.warns(
        UserWarning, match=r"^shape: expected the shape .*, got None: .* pass shape=\(4,\) if"
    ) as caught:
        a = small("ManifoldForestClassifier").fit(X, Y)
    assert caught[0].filename == __file__
    b = small("ManifoldForestClassifier", shape=(4,)).fit(X, Y)
    assert same_bits(a.predict_proba(X), b.predict_proba(X))
    assert small("ManifoldForestClassifier").fit(X[:, :1], Y).score(X[:, :1], Y) > 0.6
    with pytest.raises(ValueError, match="shape: expected sizes that multiply to n_features = 4"):
        small("ManifoldForestClassifier", shape=(3, 2), patch_max=2).fit(X, Y)
