"""Oracles that share no code with hforest: CART by recursion over lists, and Algorithm 1 of
Norouzi et al. 2015 on whole arrays.
"""

import itertools

import numpy as np
import pytest

import hforest
from hforest import co2
from hforest.core import machine

# ----------------------------------------------------------------------------------------------- CART


def impurity(criterion, y, weight):
    """Returns the weight of a node times its impurity: Gini, entropy in bits, or variance."""
    total = sum(weight)
    if criterion == "squared_error":
        mean = sum(w * t for w, t in zip(weight, y, strict=True)) / total
        return sum(w * (t - mean) ** 2 for w, t in zip(weight, y, strict=True))
    shares = [sum(w for w, t in zip(weight, y, strict=True) if t == k) / total for k in set(y)]
    if criterion == "gini":
        return total * (1 - sum(p * p for p in shares))
    return -total * sum(p * np.log2(p) for p in shares)


def splits(criterion, x, y, weight, min_samples_leaf):
    """Returns the decrease of the impurity at each split of a node: {(feature, threshold): decrease}."""
    found = {}
    before = impurity(criterion, y, weight)
    for feature in range(len(x[0])):
        values = sorted({row[feature] for row in x})
        for low, high in itertools.pairwise(values):
            threshold = (low + high) / 2
            sides = [[i for i, row in enumerate(x) if (row[feature] <= threshold) == side] for side in (1, 0)]
            if min(map(len, sides)) >= min_samples_leaf:
                after = (impurity(criterion, [y[i] for i in s], [weight[i] for i in s]) for s in sides)
                found[feature, threshold] = before - sum(after)
    return found


def follow(forest, v, criterion, x, y, weight, *, max_depth, min_samples_leaf):
    """Asserts that node v and its descendants are those of CART; returns the number of these nodes."""
    n_outputs = forest.value.shape[1]
    possible = splits(criterion, x, y, weight, min_samples_leaf) if len(set(y)) > 1 and max_depth > 0 else {}
    if not possible:
        assert forest.feature[v] == -1, "a node that CART does not split is split"
        value = forest.value[forest.left[v]]
        if criterion == "squared_error":
            assert value[0] == pytest.approx(np.average(y, weights=weight))
        else:
            want = [sum(w for w, t in zip(weight, y, strict=True) if t == k) for k in range(n_outputs)]
            np.testing.assert_allclose(value, np.array(want) / sum(weight), atol=1e-12)
        return 1
    best = max(possible.values())
    feature, threshold = int(forest.feature[v]), float(forest.threshold[v])
    assert feature >= 0, "a node that CART splits is a leaf"
    # Among splits with equal decrease any feature may be chosen, with its lowest threshold.
    assert possible[feature, threshold] == pytest.approx(best, rel=1e-9, abs=1e-9)
    alike = [t for (f, t), d in possible.items() if f == feature and d > best - 1e-12 * abs(best)]
    assert threshold == min(alike)
    assert forest.gain[v] == pytest.approx(best, rel=1e-9, abs=1e-9)
    count = 1
    for child, side in ((forest.left[v], True), (forest.left[v] + 1, False)):
        some = [i for i, row in enumerate(x) if (row[feature] <= threshold) == side]
        parts = ([a[i] for i in some] for a in (x, y, weight))
        count += follow(
            forest, child, criterion, *parts, max_depth=max_depth - 1, min_samples_leaf=min_samples_leaf
        )
    return count


@pytest.mark.parametrize("values", ["ties", "real"])
@pytest.mark.parametrize("weights", ["none", "whole", "real"])
@pytest.mark.parametrize("criterion", ["gini", "entropy", "squared_error"])
@pytest.mark.parametrize(("n", "max_depth", "min_samples_leaf"), [(60, 99, 1), (150, 5, 4), (12, 99, 2)])
def test_trees_are_those_of_cart(simd, values, weights, criterion, n, max_depth, min_samples_leaf):
    rng = np.random.default_rng(n)
    x = rng.integers(0, 5, (n, 4)) / 2 if values == "ties" else rng.normal(size=(n, 4))
    task = "regression" if criterion == "squared_error" else "classification"
    y = rng.normal(size=n) if task == "regression" else (x[:, 0] + x[:, 1] > 1).astype(int) + (x[:, 2] > 1)
    weight = {"none": np.ones(n), "whole": rng.integers(1, 4, n), "real": rng.random(n) + 0.1}[weights]
    limits = {"max_depth": max_depth, "min_samples_leaf": min_samples_leaf}
    for path in machine.simd_paths():
        simd(path)
        forest = hforest.grow(
            x, y, 1, bootstrap=False, max_features=None, criterion=criterion, task=task, sample_weight=weight,
            n_classes=None if task == "regression" else 3, rng=0, **limits,
        )  # fmt: skip
        count = follow(forest, 0, criterion, x.tolist(), y.tolist(), weight.tolist(), **limits)
        assert count == len(forest.feature)


def test_the_oracle_sees_a_wrong_threshold():
    x, y = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
    forest = hforest.grow(x, y, 1, bootstrap=False, max_features=None, rng=0)
    settings = {"max_depth": 9, "min_samples_leaf": 1}
    follow(forest, 0, "gini", x, y, [1.0] * 4, **settings)
    for threshold in (0.5, 2.5):
        wrong = forest._replace(threshold=np.where(forest.feature >= 0, threshold, 0.0))
        with pytest.raises(AssertionError):
            follow(wrong, 0, "gini", x, y, [1.0] * 4, **settings)


# -------------------------------------------------------------------- Algorithm 1 of Norouzi et al. 2015


def losses(task, theta, y):
    """Returns eq. 3 or eq. 4 for all samples, and the gradients with respect to theta."""
    if task == "regression":
        return ((y - theta) ** 2).sum(axis=1), 2 * (theta - y)
    shares = np.exp(theta - theta.max())
    shares /= shares.sum()
    return -np.log(shares[y]), shares - np.eye(len(theta))[y]


def surrogate(task, w, thetas, x, y, weight):
    """Eq 10."""
    p = x @ w
    sides = [losses(task, theta, y)[0] for theta in thetas]
    return (weight * (np.maximum(sides[0] - p, sides[1] + p) - abs(p))).sum()


def algorithm_1(task, x, y, w, weight, thetas, *, nu, eta, tau, momentum, n_rounds):
    """Returns the values of the surrogate, and w and thetas of the lowest; each step uses all samples."""
    speed, theta_speed = np.zeros_like(w), np.zeros_like(thetas)
    history = [surrogate(task, w, thetas, x, y, weight)]
    best = (w, thetas)
    for _ in range(n_rounds):
        s = np.sign(x @ w)  # line 4: w_old = w
        for _ in range(tau):
            p, (loss0, grad0), (loss1, grad1) = x @ w, *(losses(task, theta, y) for theta in thetas)
            left = loss0 - p >= loss1 + p  # line 8
            slope = np.where(left, -(1 + s), 1 - s) * weight  # lines 9 and 12
            grads = np.stack([(weight * left) @ grad0, (weight * ~left) @ grad1])
            speed = momentum * speed - eta * (slope @ x) / weight.sum()
            theta_speed = momentum * theta_speed - eta * grads / weight.sum()
            w, thetas = w + speed, thetas + theta_speed
            w = w * min(1.0, np.sqrt(nu / (w @ w)))  # lines 15 and 16
        history.append(surrogate(task, w, thetas, x, y, weight))
        if history[-1] == min(history):
            best = (w, thetas)
    return history, *best


def start_thetas(task, x, y, w, weight, smooth, n_classes):
    """Returns the thetas of line 2, from the targets on each side of w."""
    right = x @ w >= 0
    if task == "regression":
        return np.stack([np.average(y[side], axis=0, weights=weight[side]) for side in (~right, right)])
    counts = [np.bincount(y[side], weight[side], n_classes) + smooth for side in (~right, right)]
    return np.log(np.stack([c / c.sum() for c in counts]))


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(("nu", "momentum", "tau"), [(10.0, 0.9, 1), (0.5, 0.0, 4), (3.0, 0.5, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_fit_stump_is_algorithm_1(simd, task, nu, momentum, tau, seed):
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(size=(80, 6)), -np.ones((80, 1))], axis=1)
    y = np.arange(80) % 3 if task == "classification" else x[:, :2] ** 2 + rng.normal(size=(80, 2)) / 5
    weight = rng.random(80) + 0.5
    w = rng.normal(size=7)
    w *= np.sqrt(0.4 / (w @ w))
    # A tolerance of 0 and a patience beyond the rounds keep the learning rate.
    settings = co2.StumpSettings(
        tau=tau, batch_size=80, momentum=momentum, min_steps=1, patience=99, tolerance=0.0, smooth=0.3
    )
    want = algorithm_1(
        task, x, y, w, weight, start_thetas(task, x, y, w, weight, 0.3, 3), nu=nu, eta=0.05, tau=tau,
        momentum=momentum, n_rounds=6,
    )  # fmt: skip
    assert min(want[0]) < want[0][0], "six rounds change nothing: the comparison says little"
    for path in machine.simd_paths():
        simd(path)
        history: list[float] = []
        got = co2.fit_stump(
            x, y, w, nu=nu, lr=0.05, max_rounds=6, stump=settings, sample_weight=weight, task=task,
            history=history, rng=seed,
        )  # fmt: skip
        np.testing.assert_allclose(history, want[0], rtol=1e-9)
        np.testing.assert_allclose(got.w, want[1], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose([got.theta0, got.theta1], want[2], rtol=1e-9, atol=1e-12)
