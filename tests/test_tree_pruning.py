"""Cost-complexity pruning: equal to scikit-learn's, to its definition, and to growth with fewer splits."""

import numpy as np
import pytest
from growers import KINDS, grow

import hforest
from hforest import growth, tree

sklearn_tree = pytest.importorskip("sklearn.tree")

CRITERIA = ["gini", "entropy", "squared_error"]


def problem(criterion, n=300):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(n, 5)).astype(np.float32).astype(np.float64)
    signal = x[:, 0] * x[:, 1] + rng.normal(size=n)
    y = signal if criterion == "squared_error" else np.digitize(signal, [-0.5, 0.5])
    return x, y, rng.random(n) + 0.1


def trees_of(criterion, x, y, weight, **limits):
    """Returns the same tree of both libraries, and a function that fits scikit-learn's."""
    kind = "Regressor" if criterion == "squared_error" else "Classifier"

    def fit(**settings):
        model = getattr(sklearn_tree, f"DecisionTree{kind}")(random_state=0, criterion=criterion, **settings)
        return model.fit(x, y, weight)

    task = "regression" if criterion == "squared_error" else "classification"
    settings = {"bootstrap": False, "max_features": None, "criterion": criterion, "task": task, **limits}
    return hforest.grow(x, y, 1, sample_weight=weight, **settings), fit


def in_order(model):
    """Returns sorted (feature, threshold) of the splits of a tree of scikit-learn."""
    is_split = model.tree_.feature >= 0
    return sorted(zip(model.tree_.feature[is_split], model.tree_.threshold[is_split], strict=True))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_pruned_trees_are_those_of_scikit_learn(criterion, share):
    x, y, weight = problem(criterion)
    limits = {"min_samples_leaf": 8}
    forest, fit = trees_of(criterion, x, y, weight, **limits)
    path = fit(**limits).cost_complexity_pruning_path(x, y, weight).ccp_alphas
    alpha = float(np.quantile(path, share)) + 1e-9
    pruned, other = tree.prune(forest, alpha, x, sample_weight=weight), fit(**limits, ccp_alpha=alpha)
    tree.check(pruned._replace())
    splits = pruned.feature >= 0
    ours = sorted(zip(pruned.feature[splits], pruned.threshold[splits], strict=True))
    np.testing.assert_allclose(np.reshape(ours, (-1, 2)), np.reshape(in_order(other), (-1, 2)), rtol=1e-6)
    alphas = tree.pruning_alphas(forest, x, sample_weight=weight)
    np.testing.assert_array_equal(pruned.gain[splits], forest.gain[alphas > alpha])
    want = other.predict(x)[:, None] if criterion == "squared_error" else other.predict_proba(x)
    np.testing.assert_allclose(tree.predict(pruned, x), want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_alphas_are_the_path_of_scikit_learn(criterion):
    x, y, weight = problem(criterion)
    forest, fit = trees_of(criterion, x, y, weight, max_depth=5, min_samples_leaf=8)
    path = fit(max_depth=5, min_samples_leaf=8).cost_complexity_pruning_path(x, y, weight).ccp_alphas[1:]
    alphas = tree.pruning_alphas(forest, x, sample_weight=weight)
    assert (alphas[forest.feature == -1] == 0).all()
    ours = np.unique(alphas[forest.feature != -1].round(13))
    np.testing.assert_allclose(ours, np.unique(path.round(13)), rtol=0, atol=1e-12)


def weakest_links(left, gain, weight):
    """Returns the alpha at which each split is removed, link by link as Breiman et al. 1984 define them."""
    alpha, splits = {}, {v for v, child in enumerate(left) if child > 0}

    def inside(v):
        return [v, *inside(left[v]), *inside(left[v] + 1)] if v in splits else []

    while splits:
        links = {v: sum(gain[u] for u in inside(v)) / len(inside(v)) / weight for v in splits}
        v = min(links, key=links.get)
        for u in inside(v):
            alpha[u] = links[v]
        splits -= {*alpha}
    return alpha


@pytest.mark.parametrize("kind", KINDS)
def test_alphas_are_those_of_the_weakest_links(kind):
    rng = np.random.default_rng(1)
    x, y, weight = rng.normal(size=(60, 6)), rng.integers(0, 3, 60), rng.random(60)
    counts = growth.bootstrap_counts(60, 3, rng=0)
    counts[2] = 0
    counts[2, 7] = 1
    weight[7] = 0  # the third tree takes every sample
    forest = grow(x, y, 3, kind=kind, sample_weight=weight, bootstrap=counts, rng=3)
    alphas = tree.pruning_alphas(forest, x, sample_weight=weight, counts=counts)
    counts[2] = 1
    for m in range(3):
        nodes = slice(*forest.tree_start[m : m + 2])
        left = np.where(forest.feature[nodes] == -1, 0, forest.left[nodes]).tolist()
        want = weakest_links(left, forest.gain[nodes].tolist(), float(counts[m] @ weight))
        np.testing.assert_allclose(alphas[nodes][[*want]], [*want.values()], rtol=1e-9)
    half = float(np.median(alphas[alphas > 0]))
    pruned = tree.prune(forest, half, x, sample_weight=weight, counts=counts)
    assert np.count_nonzero(pruned.feature != -1) == np.count_nonzero(alphas > half)
    tree.check(pruned._replace())
    assert tree.prune(forest, 0.0, x) is forest
    np.testing.assert_array_equal(np.diff(tree.prune(forest, 1e9, x).tree_start), 1)


def test_new_leaves_have_the_values_of_growth(dtype):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(80, 3)).astype(dtype)
    x[::5, 1] = np.nan
    x[:, 2] = rng.integers(0, 9, 80)
    y, counts = rng.normal(size=(80, 2)), growth.bootstrap_counts(80, 4, rng=0)
    given = hforest.samples(x, categorical=[2])
    forest = hforest.grow(given, y, 4, task="regression", bootstrap=counts, rng=1)
    pruned = tree.prune(forest, 1e9, given, counts=counts)
    want = hforest.grow(given, y, 4, task="regression", bootstrap=counts, rng=1, max_depth=0)
    np.testing.assert_allclose(pruned.value, want.value, rtol=0, atol=1e-6 if dtype == np.float32 else 1e-14)
    assert not pruned.category_bits.size
    np.testing.assert_array_equal(pruned.category_indptr, 0)


@pytest.mark.parametrize("bootstrap", [True, False])
def test_estimators(bootstrap):
    from hforest import sklearn as estimators

    x, y, weight = problem("gini")
    settings = {"bootstrap": bootstrap, "class_weight": "balanced", "random_state": 3}
    whole = estimators.RandomForestClassifier(5, **settings).fit(x, y, weight)
    model = estimators.RandomForestClassifier(5, ccp_alpha=0.01, **settings).fit(x, y, weight)
    counts = growth.bootstrap_counts(300, 5, rng=3) if bootstrap else None
    of_class = np.bincount(y, weight)
    times = weight * (of_class.sum() / 3 / of_class)[y]
    want = tree.prune(whole.forest_, 0.01, x, sample_weight=times, counts=counts)
    for a, b in zip(model.forest_, want, strict=True):
        np.testing.assert_array_equal(a, b)
    leaves = estimators.ExtraTreesRegressor(3, max_leaf_nodes=4, random_state=0).fit(x, y).forest_
    np.testing.assert_array_equal(np.diff(leaves.tree_start), 7)
    honest = estimators.HonestForestClassifier(3, ccp_alpha=0.02, random_state=0).fit(x, y).forest_
    assert len(honest.value) < len(
        estimators.HonestForestClassifier(3, random_state=0).fit(x, y).forest_.value
    )


def test_weights_of_trees_are_those_of_trees_alone():
    x, y, weight = problem("gini")
    forest = hforest.grow(x, y, 3, bootstrap=False, rng=0)
    of_trees = np.stack([weight, np.ones(300), (y != 1) * 1.0])
    alone = [
        tree.pruning_alphas(hforest.grow(x, y, 1, bootstrap=False, first_tree=m, rng=0), x, sample_weight=w)
        for m, w in enumerate(of_trees)
    ]
    np.testing.assert_array_equal(
        tree.pruning_alphas(forest, x, sample_weight=of_trees), np.concatenate(alone)
    )


@pytest.mark.parametrize("bootstrap", [True, False])
@pytest.mark.parametrize("weights", ["multiply", "draw"])
def test_estimators_prune_by_the_weights_of_balanced_trees(bootstrap, weights):
    """Each tree is that of a classifier of its in-bag samples, times their factors."""
    from hforest.sklearn import RandomForestClassifier

    x, y, weight = problem("gini")
    y[y == 2] = 0  # 1 is rarer
    more = {"bootstrap_weights": weights} if bootstrap else {}
    settings = {"class_weight": "balanced_subsample", "bootstrap": bootstrap, "random_state": 3, **more}
    whole = RandomForestClassifier(4, **settings).fit(x, y, weight)
    model = RandomForestClassifier(4, ccp_alpha=0.01, **settings).fit(x, y, weight)
    counts, times = np.ones((4, 300), int), weight
    if bootstrap and weights == "multiply":
        counts = growth.bootstrap_counts(300, 4, rng=3)
    elif bootstrap:
        counts, times = growth.bootstrap_counts(300, 4, sample_weight=weight, rng=3), np.ones(300)
    in_bag = counts * times
    for m in range(4):
        of_class = np.bincount(y, in_bag[m])
        in_bag[m] *= (of_class.sum() / 2 / of_class)[y]
    want = tree.prune(whole.forest_, 0.01, x, sample_weight=in_bag)
    assert len(want.feature) < len(whole.forest_.feature) / 2
    np.testing.assert_array_equal(model.forest_.feature, want.feature)
    np.testing.assert_array_equal(model.forest_.threshold, want.threshold)
    np.testing.assert_allclose(model.forest_.value, want.value, atol=1e-12)
    # The leaves of a pruned tree have the shares of the weights of its samples.
    of_leaves, apart = tree.apply(want, x), want.tree_start
    for m in range(4):
        leaf = want.left[apart[m] + of_leaves[:, m]] + (apart[m] + m) // 2
        shares = np.zeros_like(want.value)
        np.add.at(shares, (leaf, y), in_bag[m])
        reached = np.unique(leaf[in_bag[m] > 0])
        totals = shares[reached].sum(axis=1, keepdims=True)
        np.testing.assert_allclose(want.value[reached], shares[reached] / totals, atol=1e-12)


def test_errors():
    x, y, _ = problem("gini", 9)
    forest = hforest.grow(x, y, 2)
    for alpha in (-1.0, np.nan):
        with pytest.raises(ValueError, match="^ccp_alpha"):
            tree.prune(forest, alpha, x)
    with pytest.raises(ValueError, match="^counts"):
        tree.prune(forest, 0.1, x, counts=np.ones((1, 9), int))
    with pytest.raises(
        ValueError, match=r"^sample_weight: expected shape .* \(n_trees, n_samples\) = \(2, 9\), got \(9, 2\)"
    ):
        tree.prune(forest, 0.1, x, sample_weight=np.ones((9, 2)))
    with pytest.raises(ValueError, match="^sample_weight: expected at least one weight above 0"):
        tree.prune(forest, 0.1, x, sample_weight=np.eye(2, 9)[[0, 0]] * [[0], [1]])
    with pytest.raises(ValueError, match="^sample_weight"):
        tree.prune(forest, 0.1, x, sample_weight=np.ones(4))
