"""Confidence intervals of subsampled forests: against loops, known variances, recorded bits; bad input."""

import functools
import importlib.util
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import hforest
from hforest import growth, project, stats, tree
from hforest.stats import intervals

N, N_TREES = 40, 60
ROOT = Path(__file__).resolve().parents[1]


def problem(n=N, d=3, n_outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, d))
    return x, (x[:, :n_outputs] + 0.3 * rng.normal(size=(n, n_outputs)))[:, : n_outputs or None]


def honest(x, y, n_trees=N_TREES, grow=hforest.grow, rng=0, **settings):
    counts = stats.honest_counts(len(x), n_trees, rng=rng, **settings)
    forest = grow(x, y, n_trees, task="regression", bootstrap=counts.structure, rng=rng)
    return tree.refit(forest, x, y, counts=counts.leaf, task="regression"), counts


def reference(forest, counts, x):
    """Returns (mean, variance) by loops over new rows, outputs and training rows."""
    in_bag = np.maximum(counts.structure, counts.leaf).astype(float)
    n_trees, n = in_bag.shape
    size = in_bag[0].sum()
    factor = 1 if in_bag.max() > 1 else n * (n - 1) / (n - size) ** 2
    mean, variance = np.zeros((2, len(x), forest.value.shape[1]))
    for i, k in itertools.product(range(len(x)), range(forest.value.shape[1])):
        t = np.array(
            [tree.predict(only(forest, m), x[i : i + 1])[0, k] for m in range(n_trees)],
            float,
        )
        mean[i, k] = t.mean()
        spread = t.var()
        total = -sum(in_bag[:, j].var(ddof=1) * spread / n_trees for j in range(n))
        for j in range(n):
            total += ((in_bag[:, j] - in_bag[:, j].mean()) * (t - t.mean())).mean() ** 2
        variance[i, k] = max(factor * total, 0) + spread / n_trees
    return mean, variance


@functools.cache
def _members():
    return {}


def only(forest, m):
    """Returns a forest of tree m alone."""
    key = id(forest), m
    if key not in _members():
        start, stop = forest.tree_start[m : m + 2]
        leaf = (start + m) // 2
        indptr = forest.indptr
        names = ("feature", "threshold", "left", "gain", "default_left")
        parts = {name: getattr(forest, name)[start:stop] for name in names}
        if indptr.size:
            entries = slice(indptr[start], indptr[stop])
            parts |= {
                "indptr": indptr[start : stop + 1] - indptr[start],
                "indices": forest.indices[entries], "data": forest.data[entries],
            }  # fmt: skip
        _members()[key] = forest, forest._replace(
            tree_start=np.array([0, stop - start]), value=forest.value[leaf : leaf + (stop - start + 1) // 2],
            **parts,
        )  # fmt: skip
    return _members()[key][1]


@pytest.mark.parametrize("kind", ["fixed", "bootstrap", "ordinary", "oblique", "two targets"])
def test_intervals_are_those_of_loops(kind):
    x, y = problem(n_outputs=2 if kind == "two targets" else 1)
    if kind == "ordinary":
        in_bag = growth.bootstrap_counts(N, N_TREES, rng=0)
        forest, counts = (
            hforest.grow(x, y, N_TREES, task="regression", rng=0),
            stats.HonestCounts(in_bag, in_bag),
        )
    else:
        oblique = {"projections": project.sparse_distribution(3)} if kind == "oblique" else {}
        grow = functools.partial(hforest.grow, **oblique)
        draw = "bootstrap" if kind == "bootstrap" else "fixed"
        forest, counts = honest(x, y, grow=grow, draw=draw, in_bag=None if draw == "bootstrap" else 0.5)
    new = problem(5, seed=1)[0]
    mean, variance = reference(forest, counts, new)
    got = stats.confidence_intervals(forest, counts, new, coverage=0.8)
    np.testing.assert_allclose(got.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(got.mean, tree.predict(forest, new), rtol=1e-6)
    np.testing.assert_allclose(got.standard_error, np.sqrt(variance), rtol=1e-6)
    z = norm.ppf(0.9)
    np.testing.assert_allclose(got.high - got.mean, z * got.standard_error)
    np.testing.assert_allclose(got.mean - got.low, z * got.standard_error)
    assert all(a.dtype == np.float64 and a.shape == y[:5].shape for a in got)


def test_variance_of_subsampled_means():
    """Trees of a single leaf are means of rows: the variance of their mean is known."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=60)
    same = np.zeros((60, 1))
    forest, counts = honest(same, y, n_trees=20000, in_bag=0.5)
    got = stats.confidence_intervals(forest, counts, same[:1])
    # Leaves have half of the drawn rows, whose mean has the variance of the mean of all rows, and Monte Carlo.
    share = counts.leaf.sum() / (counts.leaf.sum() + counts.structure.sum())
    assert share == 0.5
    each = forest.value[:, 0]
    expected = y.var(ddof=1) / 60 + each.var() / 20000
    assert got.standard_error[0, 0] ** 2 == pytest.approx(expected, rel=0.03)


def test_units_and_offsets():
    x, y = problem()
    forest, counts = honest(x, y, in_bag=0.5)
    forest = forest._replace(threshold=forest.threshold.astype(float), value=forest.value.astype(float))
    plain = stats.confidence_intervals(forest, counts, x[:7])
    far = stats.confidence_intervals(forest._replace(value=forest.value * 2.0**90), counts, x[:7])
    for a, b in zip(plain, far, strict=True):
        assert (a * 2.0**90 == b).all() or a is plain.noise
    moved = stats.confidence_intervals(forest._replace(value=forest.value + 1e6), counts, x[:7])
    np.testing.assert_allclose(moved.standard_error, plain.standard_error, rtol=1e-6)


def test_bits_of_blocks_and_threads(monkeypatch):
    x, y = problem()
    forest, counts = honest(x, y, in_bag=0.5)
    plain = stats.confidence_intervals(forest, counts, x)
    monkeypatch.setattr(intervals, "_ENTRIES", 3 * N_TREES)  # three rows at a time
    for a, b in zip(plain, stats.confidence_intervals(forest, counts, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    alone = stats.confidence_intervals(forest, counts, x[4:5])
    np.testing.assert_allclose(alone.standard_error[0], plain.standard_error[4], rtol=1e-12)


def test_products_are_exact_in_any_order():
    """Sums of whole numbers below 2**53 are bit-identical in any order of the trees."""
    rng = np.random.default_rng(0)
    predicted = rng.normal(size=(500, 4, 1)) * 10.0 ** np.arange(4)[:, None]
    predicted -= predicted.mean(axis=0)
    in_bag = growth.bootstrap_counts(30, 500, rng=0)
    order = rng.permutation(500)
    spare = np.frexp(500.0 * in_bag.max())[1]
    unit = np.frexp(np.abs(predicted[..., 0]).max(axis=0))[1] - (52 - spare)
    whole = np.rint(np.ldexp(predicted[..., 0], -unit))
    exact = [[sum(int(a) * int(b) for a, b in zip(n, w, strict=True)) for w in whole.T] for n in in_bag.T]
    for rows in (slice(None), order):
        product = in_bag[rows].astype(float).T @ whole[rows]
        assert product.tolist() == exact


def test_few_trees_are_said():
    x, y = problem(300)
    forest, counts = honest(x, y, n_trees=5, in_bag=0.5)
    got = stats.confidence_intervals(forest, counts, x[:50])
    assert 5 < (got.noise > 1).sum() < 45
    t = np.array([tree.predict(only(forest, m), x[:50]) for m in range(5)], float)
    np.testing.assert_allclose(got.standard_error[got.noise > 1], np.sqrt(t.var(axis=0) / 5)[got.noise > 1])
    more, drawn = honest(x, y, n_trees=4000, in_bag=0.5)
    assert (stats.confidence_intervals(more, drawn, x[:50]).noise < 0.8).all()
    same = forest._replace(value=np.ones_like(forest.value))
    assert (stats.confidence_intervals(same, counts, x[:50]).noise == 0).all()


def test_intervals_hold_the_mean():
    """The function is nearly linear in the middle, where forests have little bias."""
    held, z = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x = rng.uniform(size=(150, 2))
        y = 0.5 * x[:, 0] + rng.normal(size=150)
        grow = functools.partial(hforest.grow, min_samples_leaf=5)
        forest, counts = honest(x, y, n_trees=1500, grow=grow, in_bag=0.5, rng=seed)
        mean, error, low, high, _ = stats.confidence_intervals(
            forest, counts, [[0.5, 0.5], [0.4, 0.6]], coverage=0.9
        )
        true = np.array([[0.25], [0.2]])
        held += [(low < true) & (true < high)]
        z += [(mean - true) / error]
    assert 0.78 < np.mean(held) < 0.99  # 60 of which pairs are alike: a standard error of about .05
    assert 0.7 < np.std(z) < 1.4


def test_halves_are_shared():
    for groups in (None, np.arange(N) // 3):
        counts = stats.honest_counts(N, 12, trees_per_half=4, in_bag=0.3, groups=groups, rng=0)
        used = np.stack([(a | b) > 0 for a, b in zip(*counts, strict=True)])
        first = np.arange(N) if groups is None else np.unique(groups, return_index=True)[1]
        halves = used.reshape(3, 4, N)[..., first].any(axis=1)
        assert (halves.sum(axis=1) <= len(first) // 2).all()
        assert (halves.sum(axis=1) > len(first) * 0.3).all()  # trees of a half differ
        assert (halves[0] != halves[1]).any()
        later = stats.honest_counts(N, 7, trees_per_half=4, in_bag=0.3, groups=groups, first_tree=5, rng=0)
        assert all((a == b[5:]).all() for a, b in zip(later, counts, strict=True))
    whole = stats.honest_counts(N, 6, trees_per_half=2, rng=0)
    assert (sum(whole).reshape(3, 2, N).max(axis=1).sum(axis=1) == N // 2).all()  # all of a half


def test_variance_between_halves():
    """Trees of a single leaf: the variance of the mean of all rows; the result is that of loops."""
    y = np.random.default_rng(0).normal(size=61)
    same = np.zeros((61, 1))
    forest, counts = honest(same, y, n_trees=8000, trees_per_half=4)
    got = stats.confidence_intervals(forest, counts, same[:1], trees_per_half=4)
    assert got.standard_error[0, 0] ** 2 == pytest.approx(y.var(ddof=1) / 61, rel=0.1)
    of_half = forest.value[:, 0].astype(float).reshape(2000, 4)
    between = of_half.mean(axis=1).var(ddof=1)
    within = of_half.var(axis=1, ddof=1).mean() / 4
    assert got.noise[0, 0] == pytest.approx(within / between)
    # The difference is many errors above 0, so its mean given that it is above 0 is itself.
    assert got.standard_error[0, 0] ** 2 == pytest.approx(between - within + between / 2000, rel=1e-6)
    mean, error, _ = intervals._between_halves(np.array([0.0, 2.0, 2.0, 0.0])[:, None, None], 2)
    assert mean[0, 0] == 1
    within = 2 / 2  # halves have the same mean: a normal number about -1 of deviation 2**0.5
    deviation = within * 2**0.5
    want = -within + deviation * norm.pdf(-within / deviation) / norm.cdf(-within / deviation)
    assert error[0, 0] ** 2 == pytest.approx(want)


def test_intervals_of_groups_are_those_of_their_means():
    """A forest of groups of equal rows has the intervals of one row for each group."""
    rng = np.random.default_rng(0)
    y, groups = rng.normal(size=40), np.repeat(np.arange(40), 3)
    same = np.zeros((120, 1))
    for half in (None, 2):
        words = {"in_bag": 0.5, "trees_per_half": half}
        forest, counts = honest(same, y[groups], n_trees=4000, groups=groups, **words)
        single, drawn = honest(same[:40], y, n_trees=4000, **words)
        new = same[:1]
        got = stats.confidence_intervals(forest, counts, new, groups=groups, trees_per_half=half)
        want = stats.confidence_intervals(single, drawn, new, trees_per_half=half)
        np.testing.assert_allclose(got.standard_error, want.standard_error, rtol=1e-6)
    rows = stats.honest_counts(120, 4000, in_bag=0.5, rng=0)
    with pytest.raises(ValueError, match="^counts: expected equal counts in each group, got different"):
        stats.confidence_intervals(forest, rows, new, groups=groups)


@pytest.mark.parametrize("half", [None, 2])
def test_partial_dependence_is_that_of_loops(half):
    x, y = problem(n_outputs=2)
    forest, counts = honest(x, y, in_bag=0.5, trees_per_half=half)
    got = stats.confidence_intervals(
        forest, counts, x[:9], feature=1, values=[0.2, 0.7, 0.9], trees_per_half=half
    )
    predicted = np.zeros((N_TREES, 3, 2))
    for m, (k, value) in itertools.product(range(N_TREES), enumerate([0.2, 0.7, 0.9])):
        moved = x[:9].copy()
        moved[:, 1] = value
        predicted[m, k] = tree.predict(only(forest, m), moved).astype(float).mean(axis=0)
    in_bag = np.maximum(*counts)
    of_rows = (
        intervals._of_rows(predicted, in_bag, intervals._factor(in_bag))
        if half is None
        else intervals._between_halves(predicted, half)
    )
    for a, b in zip((got.mean, got.standard_error, got.noise), of_rows, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert stats.confidence_intervals(forest, counts, x, feature=1, values=[]).mean.shape == (0, 2)


def test_intervals_of_classes_hold_the_probability():
    held = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        x = rng.uniform(size=(200, 2))
        p = 0.3 + 0.4 * x[:, 0]
        y = (rng.random(200) < p).astype(int)
        counts = stats.honest_counts(200, 400, trees_per_half=2, rng=seed)
        forest = hforest.grow(
            x, y, 400, bootstrap=counts.structure, min_samples_leaf=10, n_classes=2, rng=seed
        )
        forest = tree.refit(forest, x, y, counts=counts.leaf, n_classes=2)
        new = [[0.5, 0.5], [0.4, 0.6]]
        got = stats.confidence_intervals(forest, counts, new, trees_per_half=2, coverage=0.9)
        np.testing.assert_allclose(got.mean.sum(axis=1), 1, rtol=1e-6)
        true = np.array([0.5, 0.46])
        held += [(got.low[:, 1] < true) & (true < got.high[:, 1])]
    assert 0.75 < np.mean(held) < 0.99  # 50 of which pairs are alike


def test_classes_that_are_drawn_apart_miss_variance():
    """The share of a class does not vary between trees that draw each class separately."""
    y = np.arange(60) % 2
    same = np.zeros((60, 1))
    errors = []
    for goal in (60, y):
        counts = stats.honest_counts(goal, 2000, trees_per_half=2, rng=0)
        forest = hforest.grow(same, y, 2000, bootstrap=counts.structure, rng=0)
        forest = tree.refit(forest, same, y, counts=counts.leaf)
        got = stats.confidence_intervals(forest, counts, same[:1], trees_per_half=2)
        errors.append(got.standard_error[0, 1])
    assert errors[0] == pytest.approx((0.25 / 60) ** 0.5, rel=0.2)
    assert errors[1] < 0.01


def test_wrong_halves_and_values():
    x, y = problem()
    forest, counts = honest(x, y, in_bag=0.5)
    call = functools.partial(stats.confidence_intervals, forest, counts, x)
    with pytest.raises(ValueError, match="^counts: expected trees that draw from halves of the rows"):
        call(trees_per_half=2)
    with pytest.raises(ValueError, match="^forest: expected a multiple of trees_per_half = 7 trees"):
        call(trees_per_half=7)
    with pytest.raises(ValueError, match="^values: expected values with feature"):
        call(feature=1)
    with pytest.raises(ValueError, match=r"^values: expected shape \(n_values,\)"):
        call(feature=1, values=0.5)
    with pytest.raises(ValueError, match="^feature: expected 0 to 2, got 3"):
        call(feature=3, values=[0.5])
    with pytest.raises(ValueError, match="^in_bag: expected"):
        stats.honest_counts(N, 4, trees_per_half=2, in_bag=0.6)
    with pytest.raises(ValueError, match='^trees_per_half: expected None with draw="bootstrap"'):
        stats.honest_counts(N, 4, trees_per_half=2, draw="bootstrap")


def test_bad_input():
    x, y = problem()
    forest, counts = honest(x, y, in_bag=0.5)
    call = functools.partial(stats.confidence_intervals, forest, counts, x)
    for coverage in (1, 1.0, 0, -0.5, np.nan):
        with pytest.raises(ValueError, match="^coverage: expected"):
            call(coverage=coverage)
    with pytest.raises(TypeError, match=r"^counts: expected a hforest.stats.HonestCounts"):
        stats.confidence_intervals(forest, counts.leaf, x)
    ones, many, empty = np.ones_like(counts.leaf), counts.structure * 2**20, np.zeros((N_TREES, 0), int)
    of_poisson = growth.poisson_counts(N, N_TREES, rng=0)
    same_number = "counts: expected the same number of rows in all trees, got"
    for given, message in (
        ([c[1:] for c in counts], r"counts.structure: expected shape \(n_trees, n_samples\)"),
        *(([wrong] * 2, r"counts.structure: expected shape") for wrong in (np.zeros(3, int), 1, np.zeros((2, 2, 2), int))),
        ([ones, ones], "counts: expected different rows in the trees"),
        ([ones, of_poisson], same_number),
        ([empty, empty], f"{same_number}.* 0 to 0"),
        ([0 * ones, 0 * ones], f"{same_number}.* 0 to 0"),
        ([many, many], r"counts: expected counts that sum to less than 2\*\*22"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{message}"):
            stats.confidence_intervals(forest, stats.HonestCounts(*given), x)
    with pytest.raises(ValueError, match="^forest: expected at least 2 trees, got 1"):
        stats.confidence_intervals(only(forest, 0), stats.HonestCounts(*(c[:1] for c in counts)), x)
    assert stats.confidence_intervals(forest, counts, x[:0]).mean.shape == (0, 1)
    with hforest.unchecked():
        assert (call().low == stats.confidence_intervals(forest, counts, x).low).all()


@pytest.fixture
def bench(monkeypatch):
    """The script of coverage."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    spec = importlib.util.spec_from_file_location("bench_intervals", ROOT / "bench" / "intervals.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_on_the_page_is_that_of_the_record(bench):
    rows = json.loads((ROOT / "bench" / "results" / "intervals.json").read_text())["rows"]
    assert {row["function"] for row in rows} == set(bench.FUNCTIONS)
    shown = [row for row in rows if row["function"] == "waves"]
    assert "\n".join(bench.table(shown)) in (ROOT / "docs" / "stats.md").read_text(encoding="utf-8")


def test_the_script_of_coverage(bench, tmp_path, monkeypatch, capsys):
    saved = tmp_path / "intervals.json"
    monkeypatch.setattr(bench.Cell, "n_trees", 100)
    arguments = ["intervals.py", "--cells", "waves 200 2 *", "--json", str(saved)]
    for n_sets in ("2", "3"):
        monkeypatch.setattr("sys.argv", [*arguments, "--sets", n_sets])
        bench.main()
    (row,) = json.loads(saved.read_text())["rows"]
    assert row["sets"] == 3
    assert 0 <= min(row["0.9"]) <= max(row["0.95"]) <= 3
    sets = [bench.one_set(bench.cells()[0], number) for number in range(3)]
    np.testing.assert_allclose(row["error"], np.sum([one["error"] for one in sets], axis=0))
    lines = list(bench.table([row]))
    assert lines[-1] in capsys.readouterr().out
    assert lines[2].startswith("| waves | 200 | 2 | 0.5 | 3 | ")
