"""Refined trees: the bound of a whole tree, its gradient, equal bits, losses of the caller, bad input."""

import sys
import types

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import assert_same_bits
from growers import assert_all_same, on_threads
from test_co2 import PAIRS, losses

import hforest
from hforest import co2, tree
from hforest.co2 import StumpSettings, whole_trees
from hforest.co2.any_loss import Node
from hforest.co2.checks import Samples
from hforest.co2.reference import _TreeProblem

pytestmark = pytest.mark.kernels

TASKS = ("classification", "regression")
QUICK = {"stump": StumpSettings(batch_size=16, min_steps=3), "max_rounds": 3, "lr": 0.3, "rng": 3}


def problem(n=120, n_features=4, task="classification", dtype=np.float64, seed=0):
    """Samples, of few distinct values in one column, and labels or two targets of sums of columns."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, n_features)) * [3] + 5
    x[:, 0] = rng.integers(0, 4, n)
    z = x.sum(axis=1) - x.mean() * n_features + rng.normal(size=n)
    y = np.digitize(z, [-3, 2]).astype(np.int32) if task == "classification" else np.stack([z, z**2], axis=1)
    return x.astype(dtype), y


def grown(x, y, task="classification", kind="columns", n_trees=2, **settings):
    """Returns a forest of splits by columns, by hyperplanes, or by sparse projections."""
    settings = {"task": task, "max_depth": 4, "rng": 1} | settings
    if task == "classification":
        settings["n_classes"] = 3
    if kind == "co2":
        return co2.grow(x, y, n_trees, max_rounds=1, **settings)
    if kind == "sparse":
        settings["projections"] = hforest.project.sparse_distribution(x.shape[1])
    return hforest.grow(x, y, n_trees, **settings)


def moved(forest, array):
    """Returns a forest whose arrays went through a function."""
    return tree.Forest(*map(array, forest))


def tree_problem(seed, n=6, n_features=3, task="classification", n_splits=5):
    """Returns a random tree: its problem by the reference, w and theta."""
    rng = np.random.default_rng(seed)
    x, y = problem(n, n_features, task, seed=seed)
    labels, targets = (y, None) if task == "classification" else (None, y)
    child, free = np.zeros((n_splits, 2), np.int32), [(0, 0), (0, 1)]
    for split in range(1, n_splits):
        at = free.pop(int(rng.integers(len(free))))
        child[at] = split
        free += [(split, 0), (split, 1)]
    for leaf, at in enumerate(free):
        child[at] = -1 - leaf
    w = rng.normal(size=(n_splits, n_features + 1))
    theta = rng.normal(size=(n_splits + 1, 3 if task == "classification" else 2))
    weight = rng.integers(1, 4, n).astype(np.float64)
    return _TreeProblem(Samples(x - 5, labels, targets, weight), child), w, theta


def by_definition(problem, w, theta):
    """Returns the bound over all vectors g that differ from the signs h at one split at most, and the loss."""
    bound = total = 0.0
    y = problem.labels if problem.targets is None else problem.targets
    for i in range(problem.n):
        p = w @ problem.x[i]

        def leaf(g):
            at = 0
            while at >= 0:
                at = problem.child[at, int(g[at] > 0)]
            return -1 - at

        h = np.where(p >= 0, 1.0, -1.0)
        near = [h] + [np.where(np.arange(len(h)) == k, -h, h) for k in range(len(h))]
        terms = [g @ p + losses(theta[leaf(g)], y[i : i + 1])[0] for g in near]
        bound += problem.weight[i] * (max(terms) - h @ p)
        total += problem.weight[i] * losses(theta[leaf(h)], y[i : i + 1])[0]
    return bound, total


# ------------------------------------------------------------------------------------ the bound


@hypothesis.given(
    seed=st.integers(0, 2**32 - 1), task=st.sampled_from(TASKS), n_splits=st.integers(1, 9),
    scale=st.sampled_from([1e-3, 0.1, 1.0, 30.0]),
)  # fmt: skip
def test_the_bound_is_the_definition_and_bounds_the_loss(seed, task, n_splits, scale):
    problem, w, theta = tree_problem(seed, task=task, n_splits=n_splits)
    bound, loss = problem.bound(scale * w, theta)
    want, want_loss = by_definition(problem, scale * w, theta)
    assert bound == pytest.approx(want, rel=1e-9, abs=1e-9)
    assert loss == pytest.approx(want_loss, rel=1e-9, abs=1e-9)
    assert bound >= loss
    assert problem.bound(7 * scale * w, theta)[0] <= bound + 1e-9  # tighter as w is scaled up


@pytest.mark.parametrize("task", TASKS)
def test_slopes_are_central_differences(task):
    checked = flipped = 0
    for seed in range(30):
        problem, w, theta = tree_problem(seed, n=1, task=task)
        found = problem.slopes(w, theta, [0])
        want = {"w": np.zeros_like(w), "theta": np.zeros_like(theta)}
        smooth = True
        for name, at in (("w", w), ("theta", theta)):
            for j in np.ndindex(at.shape):
                middle, values = at[j], []
                for step in (-1e-6, 0.0, 1e-6):
                    at[j] = middle + step
                    values.append(problem.bound(w, theta)[0])
                at[j] = middle
                want[name][j] = (values[2] - values[0]) / 2e-6
                smooth &= abs(values[2] - 2 * values[1] + values[0]) < 1e-9
        if not smooth:
            continue  # near a point without a derivative
        checked, flipped = checked + 1, flipped + len(found.splits)
        of_w, of_theta = np.zeros_like(w), np.zeros_like(theta)
        of_w[found.splits], of_theta[found.leaves] = found.of_splits or 0, found.of_leaves
        np.testing.assert_allclose(of_w, want["w"], atol=1e-4)
        np.testing.assert_allclose(of_theta, want["theta"], atol=1e-4)
    assert checked >= 15
    assert flipped >= 5


@pytest.mark.parametrize("loss", ["log", "squared"])
def test_a_pair_of_functions_is_the_loss_of_that_name(loss):
    for seed in range(5):
        named, w, theta = tree_problem(seed, n=40, task=TASKS[loss == "squared"])
        y = named.labels if loss == "log" else named.targets
        node = Node(named.x[:, :-1], y, PAIRS[loss], named.weight)
        pair = whole_trees.OfPair(node, named.child)
        np.testing.assert_allclose(pair.bound(w, theta), named.bound(w, theta), rtol=1e-12)
        rows = np.arange(3, 30)
        got, want = pair.slopes(w, theta, rows), named.slopes(w, theta, rows)
        assert got.weight == want.weight
        for keys, values, others, more in (
            (got.splits, got.of_splits, want.splits, np.array(want.of_splits).reshape(-1, 4)),
            (got.leaves, got.of_leaves, want.leaves, want.of_leaves),
        ):
            order = np.argsort(others)
            np.testing.assert_array_equal(keys, np.array(others)[order])
            np.testing.assert_allclose(values, np.array(more)[order], rtol=1e-9, atol=1e-9)


def _no_flips(problem, w, losses, i):
    leaf, _ = problem.path(w, i, problem.root)
    return (losses.loss(leaf, i),) * 2 + (leaf, -1, 0)


def _root_only(problem, w, losses, i):
    loss, worst, leaf, split, sign = WORST(problem, w, losses, i)
    return (loss, worst, leaf, split, sign) if split <= 0 else _no_flips(problem, w, losses, i)


def _half_margins(problem, w, losses, i):
    loss, worst, leaf, split, sign = WORST(problem, w, losses, i)
    return loss, worst + abs(w[split] @ problem.x[i]) * (split >= 0), leaf, split, sign


WORST = _TreeProblem.worst


@pytest.mark.parametrize("fault", [_no_flips, _root_only, _half_margins])
def test_a_wrong_bound_is_seen(fault, monkeypatch):
    monkeypatch.setattr(_TreeProblem, "worst", fault)
    wrong = 0
    for seed in range(10):
        problem, w, theta = tree_problem(seed)
        wrong += problem.bound(0.03 * w, theta)[0] != pytest.approx(
            by_definition(problem, 0.03 * w, theta)[0]
        )
    assert wrong >= 5


# --------------------------------------------------------------------------------- refined forests


def refined_there(backend, forest, x, y, validation=None, **call):
    """Returns the refined forest of a backend, on the host."""
    if validation is not None:
        call["validation"] = tuple(map(backend.array, validation))
    there = moved(forest, backend.array), backend.array(x), backend.array(y)
    return moved(co2.refine(*there, **call), backend.numpy)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", ["columns", "co2", "sparse"])
def test_refined_trees_equal_the_reference(fast_backend, dtype, task, kind, reference):
    x, y = problem(task=task, dtype=dtype)
    forest = grown(x, y, task, kind)
    weight = np.random.default_rng(2).integers(0, 3, len(x))
    call = {"task": task, "validation": (x[:30], y[:30]), **QUICK}
    got, want = [], []
    refined = refined_there(
        fast_backend, forest, x, y, sample_weight=fast_backend.array(weight), history=got, **call
    )
    expected = reference(co2.refine, forest, x, y, sample_weight=weight, history=want, **call)
    assert_same_bits(refined, expected)
    assert got == want
    assert len(got) == 2
    tree.check(refined)
    assert refined.threshold.dtype == dtype


@pytest.mark.parametrize("task", TASKS)
def test_several_chunks_and_wide_rows_equal_the_reference(fast_backend, task, reference):
    x, y = problem(2100, 17, task)
    forest = grown(x, y, task, n_trees=1, max_depth=2)
    stump = StumpSettings(tau=1, batch_size=1500, min_steps=1)
    call = {"task": task, **QUICK, "max_rounds": 1, "stump": stump}
    assert_same_bits(
        refined_there(fast_backend, forest, x, y, **call), reference(co2.refine, forest, x, y, **call)
    )


def test_trees_end_and_lower_the_rate_each_on_its_own(fast_backend, reference):
    x, y = problem(60)
    y[:2] = 1, 1
    forest = grown(x, y, n_trees=4, max_depth=8)
    call = QUICK | {"max_rounds": 12, "lr": 3.0, "nu": 400.0}
    call["stump"] = StumpSettings(batch_size=16, min_steps=3, patience=0, tolerance=0.2)
    got, want = [], []
    refined = refined_there(fast_backend, forest, x, y, history=got, **call)
    assert_same_bits(refined, reference(co2.refine, forest, x, y, history=want, **call))
    assert got == want
    assert len(set(map(len, got))) > 1


def test_paths_longer_than_what_a_walk_stores(fast_backend, reference):
    """A chain of splits; each thread keeps the products of the first splits of a path alone."""
    depth, x = 70, np.arange(71.0)[:, None]
    n = 2 * depth + 1
    left = np.array([a for k in range(depth) for a in (2 * k + 1, k)] + [depth], np.int32)
    chain = hforest.grow(x, np.arange(71) % 2, 1, bootstrap=False, rng=0)
    feature = np.array([0, -1] * depth + [-1], np.int32)
    # Node 2k splits, node 2k + 1 is the leaf on its left.
    threshold = np.where(feature == 0, np.arange(n) / 2 + 0.5, 0.0)
    chain = tree.Forest(
        n_features=np.array(1), tree_start=np.array([0, n]), feature=feature, threshold=threshold, left=left,
        value=np.full((depth + 1, 2), 0.5), gain=np.zeros(n), indptr=np.zeros(0, np.int64),
        indices=np.zeros(0, np.int32), data=np.zeros(0),
    )  # fmt: skip
    call = QUICK | {"max_rounds": 1}
    got = refined_there(fast_backend, chain, x, np.arange(71) % 2, **call)
    assert_same_bits(got, reference(co2.refine, chain, x, np.arange(71) % 2, **call))


@pytest.mark.parametrize("n_trees", [1, 5])
def test_threads_do_not_change_bits(threads, n_trees):
    x, y = problem(3000, 6)
    forest = grown(x, y, n_trees=n_trees, max_depth=6)
    results = on_threads(threads, lambda: co2.refine(forest, x, y, validation=(x, y), **QUICK))
    assert_all_same(results)


@pytest.mark.parametrize("task", TASKS)
def test_the_bound_falls_and_is_above_the_loss_of_the_values(task):
    x, y = problem(500, task=task)
    forest, history = grown(x, y, task, max_depth=3), []
    more = {"nu": 1.0 if task == "regression" else 10.0, "task": task, "rng": 0, "max_rounds": 8}
    refined = co2.refine(forest, x, y, history=history, **more)
    for m, bounds in enumerate(history):
        assert min(bounds) < 0.9 * bounds[0]
        leaf = tree.apply(refined, x)[:, m]
        rows = (refined.tree_start[m] + m) // 2 + refined.left[refined.tree_start[m] + leaf]
        value = refined.value[rows]
        if task == "classification":
            loss = -np.log(value[np.arange(len(x)), y]).sum()
        else:
            loss = ((value - y) ** 2).sum() / y.var(axis=0).mean()
        assert loss <= min(bounds) * (1 + 1e-9)


def test_oblique_classes_are_found():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 4))
    y = np.digitize(x @ [1, 1, -1, 0.5], [-1, 0, 1])
    forest = hforest.grow(x[:1000], y[:1000], 1, bootstrap=False, max_depth=4, rng=0)

    def error(forest):
        return (tree.predict(forest, x[1000:]).argmax(axis=1) != y[1000:]).mean()

    refined = co2.refine(forest, x[:1000], y[:1000], rng=0)
    assert error(refined) < 0.5 * error(forest)
    paths = tree.depth(refined), refined.left, refined.tree_start
    assert_same_bits(paths, (tree.depth(forest), forest.left, forest.tree_start))


@pytest.mark.parametrize("kind", ["columns", "co2", "sparse"])
def test_without_rounds_routes_stay(dtype, kind):
    x, y = problem(dtype=dtype)
    forest = grown(x, y, kind=kind)
    same = co2.refine(forest, x, y, max_rounds=0)
    leaf = tree.apply(forest, x)
    assert (tree.apply(same, x) == leaf).mean() > 0.999
    shares = tree.refit(forest, x, y, n_classes=3, empty="prior")
    if len(shares.value) == len(same.value):
        assert (same.value.argmax(axis=1) == shares.value.argmax(axis=1)).mean() > 0.9


def test_units_do_not_matter():
    x, y = problem()
    scale, shift = 2.0 ** np.arange(4), np.array([1.0, -64, 32, 0])
    forest, other = grown(x, y), grown(x * scale + shift, y)
    one, two = (co2.refine(f, a, y, **QUICK) for f, a in ((forest, x), (other, x * scale + shift)))
    np.testing.assert_allclose(tree.predict(two, x * scale + shift), tree.predict(one, x), atol=1e-6)


def test_weights_are_repetitions():
    x, y = problem(60)
    weight = np.random.default_rng(0).integers(0, 3, 60)
    forest = grown(x, y)
    batch = {"stump": StumpSettings(batch_size=1000, min_steps=1), "max_rounds": 3, "rng": 0}
    one = co2.refine(forest, x, y, sample_weight=weight, **batch)
    some = weight > 0
    assert_same_bits(co2.refine(forest, x[some], y[some], sample_weight=weight[some], **batch), one)


@pytest.mark.parametrize("of_noise", [False, True])
def test_validation_takes_the_round_of_least_loss(of_noise):
    x, y = problem(300)
    forest = grown(x, y, n_trees=1)
    other, labels = problem(200, seed=1)
    if of_noise:
        labels = np.random.default_rng(0).permutation(labels)
    call = {"nu": 3.0, "lr": 1.0, "loss": PAIRS["log"], "rng": 0}

    def loss(forest):
        theta = tree.predict(forest, other)
        return sum(losses(row, label) for row, label in zip(theta, labels, strict=True))

    best, last = [], []
    for k in range(8):
        best.append(loss(co2.refine(forest, x, y, max_rounds=k, validation=(other, labels), **call)))
        last.append(loss(co2.refine(forest, x, y, max_rounds=k, **call)))
    # The bound falls in these rounds, so without validation the last round is taken.
    np.testing.assert_allclose(best, np.minimum.accumulate(last), rtol=1e-12)
    assert (best[-1] < last[-1]) == of_noise


@pytest.mark.parametrize("loss", ["log", "squared"])
def test_a_pair_refines(loss):
    x, y = problem(300)
    y = y if loss == "log" else np.eye(3)[y]
    forest, history = grown(x, y if loss == "log" else y.argmax(axis=1)), []
    refined = co2.refine(
        forest,
        x,
        y,
        loss=PAIRS[loss],
        validation=(x[:40], y[:40]),
        history=history,
        nu=1.0,
        max_rounds=5,
        rng=0,
    )
    assert all(min(bounds) < bounds[0] for bounds in history)
    labels = y if loss == "log" else y.argmax(axis=1)
    assert (tree.predict(refined, x).argmax(axis=1) == labels).mean() > 0.6
    tree.check(tree.Forest(*refined))


def test_a_tree_of_one_leaf(backend):
    x = np.zeros((20, 2))
    forest = hforest.grow(x, np.arange(20) % 2, 2, rng=0)
    refined = co2.refine(forest, x, np.arange(20) % 4 == 0, rng=0)
    np.testing.assert_array_equal(refined.feature, [-1, -1])
    np.testing.assert_allclose(refined.value, [[0.75, 0.25]] * 2, rtol=1e-3)


def test_progress_stops_with_the_trees_so_far(threads):
    threads(2)
    x, y = problem()
    forest, seen = grown(x, y, n_trees=5), []

    def progress(done, total):
        seen.append((done, total))
        return done < 4

    part = co2.refine(forest, x, y, progress=progress, **QUICK)
    assert seen == [(done, 5) for done in range(0, 5, hforest.get_num_threads()) if done]
    assert part.n_trees == 4
    whole = co2.refine(forest, x, y, **QUICK)
    assert_same_bits(tree.predict(part, x), tree.predict(tree.Forest(*tree.check(part)), x))
    n = int(part.tree_start[-1])
    assert_same_bits(part.threshold, whole.threshold[:n])
    assert_same_bits(part.data, whole.data[: len(part.data)])


def test_missing_values_keep_their_side():
    x, y = problem()
    refined = co2.refine(grown(x, y), x, y, **QUICK)
    assert_same_bits(refined.default_left, grown(x, y).default_left)
    x[::3, 1] = np.nan
    assert np.isfinite(tree.predict(refined, x)).all()


# --------------------------------------------------------------------------------------- bad input


X, Y = problem(30)
FOREST = grown(X, Y)


def bad():
    categorical = hforest.grow(hforest.samples(X[:, :1], categorical=[0]), X[:, 0].astype(int) % 2, 1, rng=0)
    several = hforest.grow(X, np.stack([Y, Y], axis=1), 1, rng=0)
    for name, more, error, word in (
        ("no forest", {"forest": X}, TypeError, "forest"),
        ("categories", {"forest": categorical, "x": X[:, :1]}, ValueError, "forest"),
        ("several labels", {"forest": several, "y": np.stack([Y, Y], axis=1)}, ValueError, "forest"),
        ("columns", {"x": X[:, :2]}, ValueError, "x"),
        ("no samples", {"x": X[:0], "y": Y[:0]}, ValueError, "x"),
        ("missing", {"x": np.where(X > 5, np.nan, X)}, ValueError, "x"),
        ("large", {"x": X * 1e16}, ValueError, "x"),
        ("rows", {"y": Y[:5]}, ValueError, "y"),
        ("class", {"y": Y + 1}, IndexError, "y"),
        ("targets", {"y": X[:, :2], "task": "regression"}, ValueError, "y"),
        ("nu", {"nu": 0}, ValueError, "nu"),
        ("lr", {"lr": -1}, ValueError, "lr"),
        ("rounds", {"max_rounds": -1}, ValueError, "max_rounds"),
        ("weights", {"sample_weight": -np.ones(30)}, ValueError, "sample_weight"),
        ("a number", {"validation": 0.2}, TypeError, "validation"),
        ("three", {"validation": (X, Y, Y)}, ValueError, "validation"),
        ("validation rows", {"validation": (X, Y[:3])}, ValueError, r"validation\.y"),
        ("validation columns", {"validation": (X[:, :1], Y)}, ValueError, r"validation\.x"),
        ("history", {"history": 1}, TypeError, "history"),
        ("loss", {"loss": "log"}, ValueError, "loss"),
        ("task with a loss", {"loss": PAIRS["log"], "task": "regression"}, ValueError, "task"),
        ("progress", {"progress": 1}, TypeError, "progress"),
    ):
        yield pytest.param({"forest": FOREST, "x": X, "y": Y} | more, error, word, id=name)


@pytest.mark.parametrize(("call", "error", "word"), list(bad()))
def test_bad_input(call, error, word):
    with pytest.raises(error, match=rf"^{word}: expected .*, got .*; "):
        co2.refine(**call)


class FakeArray:
    """Replaces an array of CuPy."""


def test_a_loss_of_the_caller_runs_on_the_cpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(ndarray=FakeArray))
    for name, call in (("x", {"x": FakeArray()}), ("y", {"y": FakeArray()})):
        with pytest.raises(
            TypeError, match=f"^{name}: expected a numpy.ndarray, got a CuPy array; .*asnumpy"
        ):
            co2.refine(**({"forest": FOREST, "x": X, "y": Y, "loss": PAIRS["log"]} | call))
