"""Results from the samples in leaves: quantiles, proximities, intervals, SHAP's dictionary; files of forests."""

import itertools
import math
import re
import types

import numpy as np
import pytest
from conftest import check_changed, check_damage, refused, same_bits
from growers import assert_all_same, on_threads

import hforest
from hforest import growth, project, tree

N, N_TREES = 160, 9
COUNTS = growth.bootstrap_counts(N, N_TREES, rng=3)


def problem(dtype=np.float64, n_outputs=2):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 4)).astype(dtype)
    y = np.round(x[:, :n_outputs] + rng.normal(size=(N, n_outputs)), 1)  # with ties
    return x, y


def grown(kind="axis", dtype=np.float64):
    x, y = problem(dtype)
    if kind == "oblique":
        projections = project.sparse_distribution(4)
        return hforest.grow(x, y[:, 0] > 0, N_TREES, projections=projections, min_samples_leaf=3, rng=3)
    return hforest.grow(x, y, N_TREES, task="regression", min_samples_leaf=4, rng=3)


# -------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("kind", ["axis", "oblique"])
def test_a_file_keeps_every_bit(tmp_path, kind, dtype):
    forest = grown(kind, dtype)
    assert bool(forest.indptr.size) == (kind == "oblique")
    tree.save(tmp_path / "f.npz", forest)
    back = tree.load(str(tmp_path / "f.npz"))
    assert isinstance(back, tree.Forest)
    assert all(map(same_bits, forest, back))
    with np.load(tmp_path / "f.npz", allow_pickle=False) as plain:
        assert set(plain) == {"forest_format", *tree.Forest._fields}
    assert [path.name for path in tmp_path.iterdir()] == ["f.npz"]


def test_an_unsound_forest_is_not_saved(tmp_path):
    with pytest.raises(IndexError, match=r"^forest: "):
        tree.save(tmp_path / "f.npz", (f := grown())._replace(left=f.left + 10**6))
    assert not list(tmp_path.iterdir())


def test_each_damaged_file_is_read_right_or_refused(tmp_path):
    path = tmp_path / "f.npz"
    forest = hforest.grow(problem()[0], np.arange(N) % 3, 2, max_depth=3, rng=0)
    tree.save(path, forest)
    check_damage(path, tree.load, 400)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"forest_format": np.array(4)},
            "got format 4, which a newer version of hforest wrote; update hforest",
        ),
        ({"forest_format": np.array(0)}, "forest_format is not an integer above 0"),
        ({"forest_format": np.array([1, 1])}, "forest_format is not an integer above 0"),
        ({"forest_format": np.array("1")}, "forest_format is not an integer above 0"),
        ({"left": None}, "got a file without the array 'left'; pass a file that save wrote"),
        ({"forest_format": None}, "without the array 'forest_format'"),
        ({"n_features": np.array(1)}, "a feature outside 0 <= feature < n_features"),
        ({"value": np.full((3, 2), np.nan)}, "forest.value"),
        ({"threshold": np.zeros(5, ">f8")}, "dtype"),
    ],
)
def test_altered_files_are_refused(tmp_path, change, words):
    path = tmp_path / "f.npz"
    tree.save(path, hforest.grow(problem()[0], problem()[1][:, 0] > 0, 1, max_depth=2, rng=0))
    check_changed(path, tree.load, change, re.escape(words))


def test_a_pickle_is_not_read(tmp_path):
    np.savez(tmp_path / "f.npz", forest_format=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="Python objects"):
        tree.load(tmp_path / "f.npz")
    with pytest.raises(FileNotFoundError, match="got no such file"):
        tree.load(tmp_path / "none.npz")


# -------------------------------------------------------------------------------------------- quantiles

LEVELS = [0.5, 0.0, 0.1, 0.9, 0.25, 1.0, 0.5]
WEIGHT = np.random.default_rng(1).integers(0, 4, N).astype(np.float64)

TARGETS = {
    "every sample": {},
    "in-bag": {"counts": COUNTS},
    "whole weights": {"sample_weight": WEIGHT},
    "both": {"sample_weight": WEIGHT, "counts": COUNTS},
    "real weights": {"sample_weight": WEIGHT / 7, "counts": COUNTS},
}


@pytest.mark.parametrize("settings", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("kind", ["axis", "oblique"])
def test_quantiles_are_the_references_at_every_number_of_threads(kind, settings, threads, dtype):
    forest, (x, y) = grown(kind, dtype), problem(dtype)
    rows = np.random.default_rng(5).normal(size=(70, 4)).astype(dtype)
    methods = ["inverted_cdf"] + ["linear"] * bool(
        (settings.get("sample_weight", 1) % 1 == 0 + 0 * WEIGHT).all()
    )

    def found():
        targets = tree.leaf_targets(forest, x, y, **settings)
        quantiles = [tree.quantiles(forest, targets, rows, LEVELS, method=m) for m in methods]
        return targets, *quantiles, tree.quantiles(forest, targets, x, LEVELS, counts=COUNTS)

    with hforest.using("reference"):
        want = found()
    assert_all_same([want, *on_threads(threads, found)])


def multiset(forest, x, row, counts):
    """Returns (samples, weights in equal trees, counts) of the leaves of a row, by brute force."""
    leaf, own = tree.apply(forest, x), tree.apply(forest, row[None])[0]
    shares, pooled = np.zeros(len(x)), np.zeros(len(x), int)
    for m in range(N_TREES):
        held = np.where(leaf[:, m] == own[m], counts[m], 0)
        shares += held / max(1, held.sum()) / N_TREES
        pooled += held
    return shares, pooled


@pytest.mark.parametrize("in_bag", [False, True])
def test_quantiles_are_numpys(in_bag):
    """Linear ones are bit-identical to those of pooled targets, inverted ones to NumPy's with Meinshausen's weights."""
    forest, (x, y) = grown(), problem()
    counts = COUNTS if in_bag else np.ones_like(COUNTS)
    targets = tree.leaf_targets(forest, x, y, counts=COUNTS if in_bag else None)
    assert bool(targets.weight.size) == in_bag
    rows, levels = x[:25] + 0.1, [0.033, 0.21, 0.5, 0.777, 1.0, 0.0]
    linear = tree.quantiles(forest, targets, rows, levels, method="linear")
    inverted = tree.quantiles(forest, targets, rows, levels)
    for i, row in enumerate(rows):
        shares, pooled = multiset(forest, x, row, counts)
        for k in range(2):
            assert linear[i, k].tolist() == np.quantile(np.repeat(y[:, k], pooled), levels).tolist()
            used = shares > 0
            want = np.quantile(y[used, k], levels, weights=shares[used], method="inverted_cdf")
            assert inverted[i, k].tolist() == want.tolist()


def test_quantiles_by_hand():
    """Two trees: leaves {1, 2, 9}, and {9} alone. Meinshausen: 1/6, 1/6, 4/6. Pooled: 1, 2, 9, 9."""
    x = np.array([[0.0], [1.0], [2.0]])
    forest = tree.Forest(
        n_features=np.array(1), tree_start=np.array([0, 1, 4]), feature=np.array([-1, 0, -1, -1], np.int32),
        threshold=np.array([0, 1.5, 0, 0]), left=np.array([0, 1, 0, 1], np.int32), value=np.zeros((3, 1)),
        gain=np.zeros(4), indptr=np.zeros(0, np.int64), indices=np.zeros(0, np.int32), data=np.zeros(0),
    )  # fmt: skip
    targets = tree.leaf_targets(forest, x, [2, 1, 9])
    assert targets.y.tolist() == [[1, 2, 9]]
    assert targets.indptr.tolist() == [0, 3, 3, 5, 6]
    assert targets.rank.tolist() == [[1, 0, 2, 1, 0, 2]]
    levels = [0.0, 0.16, 0.17, 0.33, 0.34, 0.5, 1.0]
    assert tree.quantiles(forest, targets, [[5]], levels).ravel().tolist() == [1, 1, 2, 2, 9, 9, 9]
    got = tree.quantiles(forest, targets, [[5]], [0, 1 / 3, 0.5, 1], method="linear").ravel()
    np.testing.assert_allclose(got, [1, 2, 5.5, 9])
    # Out of bag: without the first tree the leaf is {9}, without both there is none.
    drawn = np.array([[1, 1, 0], [0, 1, 0]])
    got = tree.quantiles(forest, targets, [[5]] * 3, [0.2], counts=drawn)
    np.testing.assert_array_equal(got.ravel(), [9, np.nan, 2])
    # The sample of 9 has weight 0, so that the second tree has no sample here.
    targets = tree.leaf_targets(forest, x, [2, 1, 9], sample_weight=[1, 1, 0])
    assert tree.quantiles(forest, targets, [[5]], [0.5, 0.51, 1]).ravel().tolist() == [1, 2, 2]


def test_no_rows_and_no_levels():
    forest, (x, y) = grown(), problem()
    targets = tree.leaf_targets(forest, x, y)
    assert tree.quantiles(forest, targets, x[:0], [0.5]).shape == (0, 2, 1)
    assert tree.quantiles(forest, targets, x, []).shape == (N, 2, 0)


def test_quantiles_cover_what_they_say():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 2, size=(4000, 2))
    y = (0.2 + x[:, 0]) * rng.normal(size=4000)
    forest = hforest.grow(x[:3000], y[:3000], 60, task="regression", min_samples_leaf=30, rng=0)
    targets = tree.leaf_targets(forest, x[:3000], y[:3000])
    for method in ("inverted_cdf", "linear"):
        low, high = tree.quantiles(forest, targets, x[3000:], [0.05, 0.95], method=method)[:, 0].T
        narrow, wide = (x[3000:, 0] < 0.5), (x[3000:, 0] > 1.5)
        inside = (low <= y[3000:]) & (y[3000:] <= high)
        assert 0.85 < inside[narrow].mean() < 0.97
        assert 0.85 < inside[wide].mean() < 0.97
        assert (high - low)[wide].mean() > 2 * (high - low)[narrow].mean()


@pytest.mark.libraries
def test_quantiles_of_quantile_forest():
    """The numbers are equal on the same trees, converted."""
    other = pytest.importorskip("quantile_forest", reason="needs quantile-forest")
    x, y = problem(np.float32, 1)
    model = other.RandomForestQuantileRegressor(
        20, max_samples_leaf=None, min_samples_leaf=3, random_state=0
    ).fit(x, y[:, 0])
    forest = tree.from_sklearn(model_as_forest(model))
    counts = np.array([np.bincount(sampled, minlength=N) for sampled in model.estimators_samples_], np.int32)
    targets = tree.leaf_targets(forest, x, y, counts=counts)
    rows = np.random.default_rng(2).normal(size=(300, 4)).astype(np.float32)
    levels = [0.025, 0.1, 0.5, 0.9, 0.975]
    got = tree.quantiles(forest, targets, rows, levels, method="linear")[:, 0]
    np.testing.assert_allclose(got, model.predict(rows, quantiles=levels), rtol=1e-12, atol=1e-12)


def model_as_forest(model):
    """Returns a forest of quantile-forest as one of scikit-learn with the same trees."""
    from sklearn.ensemble import RandomForestRegressor

    plain = RandomForestRegressor()
    plain.estimators_, plain.n_features_in_, plain.n_outputs_ = model.estimators_, 4, 1
    return plain


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"levels": [1.5]}, ValueError, "levels: expected numbers from 0 to 1, got 1.5"),
        ({"levels": [np.nan]}, ValueError, "levels: expected numbers from 0 to 1"),
        ({"levels": 0.5}, ValueError, "levels: expected shape (n_levels,), got ()"),
        ({"levels": ["a"]}, TypeError, "levels"),
        ({"method": "median"}, ValueError, "method: expected one of"),
        ({"targets": (1, 2)}, TypeError, "targets: expected a hforest.tree.LeafTargets, got tuple"),
        ({"x": np.zeros((3, 2))}, ValueError, "x: expected shape"),
        ({"counts": np.zeros((2, 2), int)}, ValueError, "counts: expected shape"),
        ({"rank": lambda a: a + 1000}, IndexError, "targets.rank: expected 0 <= index < n_train"),
        ({"y": lambda a: a[:, ::-1].copy()}, ValueError, "targets.y: expected ascending"),
        ({"y": lambda a: a[:1].copy()}, ValueError, "targets.rank: expected shape"),
        ({"y": lambda a: a * np.nan}, ValueError, "targets.y: expected finite"),
        ({"indptr": lambda a: a[:-1]}, ValueError, "targets.indptr: expected shape"),
        ({"indptr": lambda a: a + 1}, ValueError, "targets.indptr: expected ascending"),
        ({"indptr": lambda a: np.r_[0, a[-1], a[2:]]}, ValueError, "targets.indptr: expected ascending"),
        ({"weight": lambda a: a[:-1]}, ValueError, "targets.weight: expected shape"),
        ({"weight": lambda a: a * 0}, ValueError, "targets.weight: expected numbers above 0"),
        ({"weight": lambda a: a * np.nan}, ValueError, "targets.weight: expected numbers above 0"),
        ({"weight": lambda a: a / 3, "method": "linear"}, ValueError, "method: expected \"inverted_cdf\" with real"),
    ],
)  # fmt: skip
def test_bad_arguments_of_quantiles(change, error, words):
    forest, (x, y) = grown(), problem()
    targets = tree.leaf_targets(forest, x, y, counts=COUNTS)
    changed = {name: f(getattr(targets, name)) for name, f in change.items() if callable(f)}
    call = {"targets": targets._replace(**changed), "x": x, "levels": [0.5]}
    call |= {name: value for name, value in change.items() if not callable(value)}
    with refused(error, re.escape(words)):
        tree.quantiles(forest, **call)


X, TWO = problem()
NO_FOREST = "forest: expected a hforest.tree.Forest"


@pytest.mark.parametrize(
    ("function", "change", "error", "words"),
    [
        (tree.leaf_targets, {"x": X[:0], "y": np.zeros(0)}, ValueError, "x: expected 1 to 2**31 - 1 samples, got 0"),
        (tree.leaf_targets, {"y": np.zeros(3)}, ValueError, "y: expected shape"),
        (tree.leaf_targets, {"y": np.full(N, np.inf)}, ValueError, "y: expected finite"),
        (tree.leaf_targets, {"sample_weight": np.zeros(N)}, ValueError, "sample_weight: expected at least one weight above 0"),
        (tree.leaf_targets, {"sample_weight": -np.ones(N)}, ValueError, "sample_weight: expected numbers from 0"),
        (tree.leaf_targets, {"counts": COUNTS.T}, ValueError, "counts: expected shape"),
        (tree.leaf_targets, {"counts": -COUNTS}, ValueError, "counts: expected counts from 0"),
        (tree.leaf_targets, {"forest": 3}, TypeError, f"{NO_FOREST}, got int"),
        (tree.proximity, {"min_share": 1.5}, ValueError, "min_share: expected a finite number"),
        (tree.proximity, {"max_neighbors": 0}, ValueError, "max_neighbors: expected at least 1"),
        (tree.proximity, {"other": X[:, :2]}, ValueError, "other: expected shape (n_others, n_features) = (n_others, 4)"),
        (tree.proximity, {"other": X * np.inf}, ValueError, "other: expected finite"),
        (tree.prediction_intervals, {"errors": TWO[:, 0]}, ValueError, "errors: expected shape (n_train, n_outputs) = (n_train, 2)"),
        (tree.prediction_intervals, {"errors": TWO[:0]}, ValueError, "errors: expected at least one row without NaN, got none"),
        (tree.prediction_intervals, {"errors": TWO * np.nan}, ValueError, "errors: expected at least one row without NaN, got none"),
        (tree.prediction_intervals, {"errors": np.where(TWO > 0, np.inf, TWO)}, ValueError, "errors: expected finite numbers, got"),
        (tree.prediction_intervals, {"errors": TWO.astype(int)}, TypeError, "errors: expected dtype float32 or float64"),
        (tree.prediction_intervals, {"errors": TWO.tolist()}, TypeError, "errors: expected a numpy.ndarray"),
        (tree.prediction_intervals, {"coverage": 1.5}, ValueError, "coverage: "),
        (tree.to_dict, {"forest": grown("oblique")}, ValueError, "forest: expected splits by single features, got projections"),
        (tree.to_dict, {"x": X[:0]}, ValueError, "x: expected at least one sample, got 0"),
        (tree.to_dict, {"x": X[:, :1]}, ValueError, "x: expected shape"),
        (tree.to_dict, {"counts": COUNTS[:2]}, ValueError, "counts: expected shape"),
        (tree.to_dict, {"sample_weight": np.zeros(N)}, ValueError, "sample_weight: expected at least one weight above 0"),
        (tree.to_dict, {"forest": None}, TypeError, NO_FOREST),
    ],
)  # fmt: skip
def test_bad_arguments(function, change, error, words):
    more = {tree.leaf_targets: {"y": TWO}, tree.prediction_intervals: {"errors": TWO}}.get(function, {})
    with refused(error, f"^{re.escape(words)}"):
        function(**{"forest": grown(), "x": X, **more} | change)


# -------------------------------------------------------------------------------------------- proximities


def shares(forest, x, other):
    a, b = tree.apply(forest, x), tree.apply(forest, other)
    return (a[:, None] == b[None]).mean(axis=2)


@pytest.mark.parametrize("kind", ["axis", "oblique"])
def test_proximities_by_brute_force(kind, dtype):
    forest, (x, _) = grown(kind, dtype), problem(dtype)
    p, want = tree.proximity(forest, x), shares(forest, x, x).astype(dtype)
    assert p.has_canonical_format
    assert p.dtype == dtype
    np.testing.assert_array_equal(p.toarray(), want)
    assert p.nnz == np.count_nonzero(want)
    assert (p != p.T).nnz == 0
    assert (p.diagonal() == 1).all()
    rows = x[:30] + dtype(0.3)
    got = tree.proximity(forest, rows, x)
    np.testing.assert_array_equal(got.toarray(), shares(forest, rows, x).astype(dtype))
    assert got.shape == (30, N)
    assert tree.proximity(forest, x[:0], x).shape == (0, N)
    assert tree.proximity(forest, x, x[:0]).shape == (N, 0)


@pytest.mark.parametrize("least", [0.0, 0.3, 3 / 9, 1.0])
@pytest.mark.parametrize("most", [None, 1, 5, 10**6])
def test_near_proximities(least, most, threads):
    forest, (x, _) = grown(), problem()
    p = shares(forest, x, x)
    want = np.where(p >= least, p, 0)
    if most is not None:
        # Among equal shares the first columns are taken.
        order = np.argsort(-p, axis=1, kind="stable")[:, most:]
        np.put_along_axis(want, order, 0, axis=1)
    for got in on_threads(threads, lambda: tree.proximity(forest, x, min_share=least, max_neighbors=most)):
        np.testing.assert_array_equal(got.toarray(), want)
        assert got.nnz == np.count_nonzero(want)
    with hforest.using("reference"):
        np.testing.assert_array_equal(
            tree.proximity(forest, x, min_share=least, max_neighbors=most).toarray(), want
        )


# -------------------------------------------------------------------------------------------- intervals


def test_intervals_by_hand():
    forest = hforest.grow([[0.0], [1.0]], [2.0, 4.0], 1, bootstrap=False, task="regression", rng=0)
    errors = np.r_[np.arange(10.0)[::-1], np.nan][:, None]
    low, high = tree.prediction_intervals(forest, [[0], [1]], errors, coverage=0.8)
    assert low.tolist() == [[2], [4]]  # the first of ten errors, 0
    assert high.tolist() == [[2 + 8], [4 + 8]]  # the ninth, 8
    assert low.dtype == np.float64
    low, high = tree.prediction_intervals(forest, [[0]], errors, coverage=1.0)
    assert (low.item(), high.item()) == (2, 11)


def test_intervals_hold_what_they_say():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(7000, 5))
    y = x[:, :2] + rng.normal(size=(7000, 2)) * [1, 3]
    forest = hforest.grow(x[:3000], y[:3000], 40, task="regression", min_samples_leaf=9, rng=1)
    mean = tree.out_of_bag(forest, x[:3000], growth.bootstrap_counts(3000, 40, rng=1))
    for coverage in (0.5, 0.9):
        low, high = tree.prediction_intervals(forest, x[3000:], y[:3000] - mean, coverage=coverage)
        inside = ((low <= y[3000:]) & (y[3000:] <= high)).mean(axis=0)
        np.testing.assert_allclose(inside, coverage, atol=0.03)
        assert ((high - low)[:, 1] > 2 * (high - low)[:, 0]).all()


# -------------------------------------------------------------------------------------------- SHAP


def walk(part, row):
    v = 0
    while part["children_left"][v] != -1:
        right = row[part["features"][v]] > part["thresholds"][v]
        v = part["children_right" if right else "children_left"][v]
    return part["values"][v]


def test_a_dictionary_predicts_as_its_forest(dtype):
    forest, (x, _) = grown(dtype=dtype), problem(dtype)
    model = tree.to_dict(forest, x)
    got = [sum(walk(part, row) for part in model["trees"]) for row in x]
    np.testing.assert_allclose(got, tree.predict(forest, x), rtol=1e-6 if dtype == np.float32 else 1e-14)
    assert model["input_dtype"] is dtype
    assert len(model["trees"]) == N_TREES


def test_weights_and_values_of_nodes():
    """With the bootstrap samples of a tree, its splits have the means of their samples."""
    forest, (x, y) = grown(), problem()
    weight = np.random.default_rng(0).random(N)
    for m, part in enumerate(tree.to_dict(forest, x, counts=COUNTS)["trees"]):
        assert part["node_sample_weight"][0] == N
        np.testing.assert_allclose(part["values"][0] * N_TREES, COUNTS[m] @ y / N)
    for m, part in enumerate(tree.to_dict(forest, x, sample_weight=weight)["trees"]):
        paths = [tree.path(forest, row, m) for row in x]
        want = [
            sum(w for path, w in zip(paths, weight, strict=True) if v in path)
            for v in range(len(part["features"]))
        ]
        np.testing.assert_allclose(part["node_sample_weight"], want, atol=1e-12)
        leaf = part["children_left"] == -1
        for name in ("children_right", "children_default", "features"):
            assert ((part[name] == -1) == leaf).all()


def test_values_of_nodes_do_not_depend_on_the_scale_of_weights():
    forest, (x, _) = grown(), problem()
    weight = np.random.default_rng(0).integers(1, 9, N)
    models = [tree.to_dict(forest, x, sample_weight=weight * scale) for scale in (1.0, 2.0**-20)]
    for one, other in zip(*(model["trees"] for model in models), strict=True):
        assert same_bits(one["values"], other["values"])


@pytest.mark.libraries
def test_a_dictionary_has_the_weights_of_scikit_learn():
    ensemble = pytest.importorskip("sklearn.ensemble", reason="needs scikit-learn")
    x, y = problem(np.float32)
    model = ensemble.ExtraTreesRegressor(5, max_depth=4, random_state=0).fit(x, y)
    for part, estimator in zip(
        tree.to_dict(tree.from_sklearn(model), x)["trees"], model.estimators_, strict=True
    ):
        # Nodes are in another order.
        theirs = estimator.tree_
        both = (
            (part["node_sample_weight"], part["values"] * 5),
            (theirs.weighted_n_node_samples, theirs.value[..., 0]),
        )
        rows = [np.array(sorted(np.c_[w, np.round(v, 5)].tolist())) for w, v in both]
        np.testing.assert_allclose(*rows, atol=2e-5)


def test_values_of_nodes_without_samples():
    forest, (x, _) = grown(), problem()
    model = tree.to_dict(forest, x[:1])
    for part in model["trees"]:
        assert part["node_sample_weight"].sum() > 0
        assert np.isfinite(part["values"]).all()


def shapley(part, row, n_features):
    """Returns the Shapley values of one tree by definition, with SHAP's expectation along paths."""

    def expected(v, known):
        left, right = part["children_left"][v], part["children_right"][v]
        if left == -1:
            return part["values"][v]
        if part["features"][v] in known:
            return expected(right if row[part["features"][v]] > part["thresholds"][v] else left, known)
        weight = part["node_sample_weight"]
        return (weight[left] * expected(left, known) + weight[right] * expected(right, known)) / weight[v]

    found = np.zeros((n_features, part["values"].shape[1]))
    for f in range(n_features):
        others = [g for g in range(n_features) if g != f]
        for size in range(n_features):
            share = math.factorial(size) * math.factorial(n_features - size - 1) / math.factorial(n_features)
            for known in itertools.combinations(others, size):
                found[f] += share * (expected(0, {*known, f}) - expected(0, {*known}))
    return found, expected(0, set())


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")  # of SHAP
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_shap_explains_a_dictionary(task, dtype):
    shap = pytest.importorskip("shap", reason="needs shap")
    x, y = problem(dtype)
    learned = y if task == "regression" else (y[:, 0] > 0).astype(int)
    forest = hforest.grow(x, learned, 3, max_depth=4, task=task, rng=3)
    model = tree.to_dict(forest, x, counts=COUNTS[:3])
    explainer = shap.TreeExplainer(model)
    got = np.asarray(explainer.shap_values(x[:12], check_additivity=False))
    for i in range(12):
        parts = [shapley(part, x[i], 4) for part in model["trees"]]
        np.testing.assert_allclose(got[i], sum(values for values, _ in parts), atol=1e-6)
        np.testing.assert_allclose(explainer.expected_value, sum(mean for _, mean in parts), atol=1e-6)
    total = got.sum(axis=1) + explainer.expected_value
    np.testing.assert_allclose(total, tree.predict(forest, x[:12]), atol=1e-5)
    # The background instead of the weights of nodes.
    background = shap.TreeExplainer(model, x[:50])
    total = np.asarray(background.shap_values(x[:12])).sum(axis=1) + background.expected_value
    np.testing.assert_allclose(total, tree.predict(forest, x[:12]), atol=1e-5)


# -------------------------------------------------------------------------------------------- devices


class FakeArray:
    """Replaces an array of CuPy on device 0."""

    data = types.SimpleNamespace(device_id=0)


def test_arrays_of_a_gpu_are_refused(monkeypatch):
    """The error has the command that copies them."""
    cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(getDevice=lambda: 0))
    module = type("cupy", (), {"ndarray": FakeArray, "cuda": cuda})
    monkeypatch.setitem(__import__("sys").modules, "cupy", module)
    forest, (x, y) = grown(), problem()
    targets = tree.leaf_targets(forest, x, y)
    a = FakeArray()
    calls = {
        "x": [
            lambda: tree.leaf_targets(forest, a, y),
            lambda: tree.quantiles(forest, targets, a, [0.5]),
            lambda: tree.proximity(forest, a),
            lambda: tree.to_dict(forest, a),
            lambda: tree.prediction_intervals(forest, a, y),
        ],
        "other": [lambda: tree.proximity(forest, x, a)],
        "forest.feature": [
            lambda: tree.leaf_targets(forest._replace(feature=a), x, y),
            lambda: tree.quantiles(forest._replace(feature=a), targets, x, [0.5]),
            lambda: tree.proximity(forest._replace(feature=a), x),
            lambda: tree.to_dict(forest._replace(feature=a), x),
        ],
        "errors": [lambda: tree.prediction_intervals(forest, x, a)],
    }
    for name, several in calls.items():
        for call in several:
            with pytest.raises(
                TypeError, match=f"^{re.escape(name)}: expected a numpy.ndarray, got a CuPy array; "
            ) as caught:
                call()
            assert f"pass cupy.asnumpy({name})" in str(caught.value)
