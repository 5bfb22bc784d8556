"""Cascades: windows, folds, levels, files, resumption."""

import tracemalloc
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from conftest import assert_same_bits, converted, same_bits
from growers import assert_all_same, on_threads

import hforest
from hforest import cascade, co2, project, tree
from hforest.cascade import folds, levels
from hforest.demo import load_digits
from hforest.tree.callers import join_any

FEW = (partial(hforest.grow, n_trees=8), partial(folds.completely_random, n_trees=8))


def blobs(n=90, n_features=5, n_classes=3, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % n_classes).astype(np.int32)
    return (rng.normal(size=(n, n_features)) + 1.5 * y[:, None]).astype(dtype), y


# ------------------------------------------------------------------------------------------ windows


@pytest.mark.parametrize(
    ("shape", "window", "stride"),
    [
        ((9,), 4, 1),
        ((9,), (3,), 2),
        ((5, 7), (2, 3), 1),
        ((6, 5), 3, (2, 1)),
        ((4, 5, 2), (2, 2), (1, 2)),
        ((3,), 3, 1),
    ],
)
def test_windows_are_those_of_loops(shape, window, stride):
    x = np.arange(3 * np.prod(shape)).reshape(3, -1)
    view = cascade.scan(x, shape, window, stride)
    assert np.shares_memory(view, x)
    assert not view.flags.writeable
    n_axes = min(len(shape), 2)
    window, stride = np.broadcast_to(window, n_axes), np.broadcast_to(stride, n_axes)
    grid = [(size - w) // s + 1 for size, w, s in zip(shape, window, stride, strict=False)]
    assert view.shape == (3, *grid, *window, *shape[2:])
    for i in range(3):
        sample = x[i].reshape(shape)
        for place in np.ndindex(*grid):
            part = tuple(slice(p * s, p * s + w) for p, s, w in zip(place, stride, window, strict=True))
            np.testing.assert_array_equal(view[(i, *place)], sample[part])
    # Other strides also return views.
    for other in (np.asfortranarray(x), np.repeat(x, 2, 1)[:, ::2], x[::-1, ::-1].copy()[::-1, ::-1]):
        again = cascade.scan(other, shape, *(tuple(map(int, a)) for a in (window, stride)))
        assert np.shares_memory(again, other)
        np.testing.assert_array_equal(again, view)


@pytest.mark.parametrize(
    ("shape", "window", "stride", "message"),
    [
        ((4, 4), (5, 2), 1, r"window\[0\]: expected at most shape\[0\] = 4, got 5"),
        ((4, 5), 2, 1, "multiply to n_features = 16"),
        ((4, 4), (2, 2, 2), 1, "tuple of 2"),
        ((4, 4), 0, 1, r"window\[0\]"),
        ((4, 4), 2, 0, r"stride\[0\]"),
        ((2, 2, 2, 2), 1, 1, "shape: expected"),
    ],
)
def test_bad_windows(shape, window, stride, message):
    with pytest.raises(ValueError, match=message):
        cascade.scan(np.zeros((2, 16)), shape, window, stride)


def test_scanner_vectors_come_from_trees_grown_without_windows_of_the_sample():
    # Trees are grown to purity: if they had seen the windows of a sample, its class would be certain.
    x, _ = blobs(30, 16)
    y = np.random.default_rng(3).integers(0, 3, 30).astype(np.int32)
    sharp = [partial(hforest.grow, n_trees=4, bootstrap=False, max_features=None)]
    scanner, vectors = cascade.grow_scanner(x, y, (4, 4), 3, sharp, rng=0)
    seen = cascade.scan_vectors(scanner, x)
    assert vectors.shape == seen.shape == (30, 4 * 3)
    own = np.arange(30)
    # The trees of two of three folds were grown on the sample; none of them votes in training.
    assert (seen.reshape(30, 4, 3)[own, :, y] >= 2 / 3 - 1e-6).all()
    assert vectors.reshape(30, 4, 3)[own, :, y].mean() < 0.6


@pytest.mark.parametrize("class_vectors", ["out_of_fold", "out_of_bag"])
def test_weights_of_samples(class_vectors):
    x, y = blobs(90, 5)
    settings = {"max_levels": 2, "class_vectors": class_vectors, "rng": 0}
    weights = []

    def seen(x, y, *, n_trees, sample_weight=None, **more):
        weights.append(sample_weight)
        return hforest.grow(x, y, n_trees, sample_weight=sample_weight, min_samples_leaf=5, **more)

    forests = [partial(seen, n_trees=6)]

    def found(**given):
        weights.clear()
        cascade.predict(grown := cascade.grow(x, y, forests, **settings, **given), x)
        return b"".join(a.tobytes() for row in grown.levels for forest in row for a in forest), grown.scores

    plain = found()
    assert weights[0] is None
    assert found(sample_weight=np.full(90, 0.5))[1] == plain[1]
    assert all(np.all(weight == 0.5) for weight in weights)
    heavy = found(class_weight={1: 20})
    assert heavy[0] != plain[0]
    assert found(sample_weight=np.where(y == 1, 20, 1)) == heavy
    assert found(sample_weight=np.where(y == 1, 5, 1), class_weight=[1, 4, 1]) == heavy
    assert found(class_weight="balanced")[1] == plain[1]  # the classes are equally frequent
    # Samples of weight 0 are left out.
    kept = np.arange(90) % 4 > 0
    alone = cascade.grow(
        x[kept], y[kept], forests, n_classes=3, sample_weight=np.ones(kept.sum()), **settings
    )
    grown = cascade.grow(x, y, forests, n_classes=3, sample_weight=kept.astype(float), **settings)
    assert grown.scores == alone.scores
    assert_same_bits(grown.levels[0][0], alone.levels[0][0])


def test_scores_of_levels_are_by_weight():
    x, y = blobs(60, 4)
    y = np.where(np.arange(60) < 20, y, np.random.default_rng(2).integers(0, 3, 60))  # most labels are noise
    weight = np.where(np.arange(60) < 20, 1, 1e-6)
    light = cascade.grow(x, y, FEW, max_levels=1, sample_weight=weight, rng=0)
    assert light.scores[0] > cascade.grow(x, y, FEW, max_levels=1, rng=0).scores[0]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"sample_weight": np.ones(3)}, ValueError, "sample_weight: expected shape"),
        ({"sample_weight": -np.ones(60)}, ValueError, "sample_weight: expected numbers from 0"),
        ({"sample_weight": np.zeros(60)}, ValueError, "sample_weight: expected at least one weight above 0"),
        ({"class_weight": "even"}, ValueError, "class_weight: expected"),
        ({"class_weight": [1, 1]}, ValueError, "class_weight: expected shape"),
        ({"sample_weight": np.ones(60), "forests": [lambda x, y, n_classes, rng: None]}, TypeError, "sample_weight=..., rng"),
    ],
)  # fmt: skip
def test_bad_weights(settings, error, message):
    x, y = blobs(60, 4)
    with pytest.raises(error, match=message):
        cascade.grow(x, y, **{"forests": FEW, **settings})


def test_scanner_windows_in_order():
    x, y = blobs(45, 12)
    scanner, _ = cascade.grow_scanner(x, y, (3, 4), (2, 2), FEW, rng=1, max_windows=4)
    got = cascade.scan_vectors(scanner, x).reshape(45, 2, 3, len(FEW), 3)
    view = cascade.scan(x, (3, 4), (2, 2))
    for a, b in np.ndindex(2, 3):
        windows = np.ascontiguousarray(view[:, a, b]).reshape(45, 4)
        for i, forest in enumerate(scanner.forests):
            np.testing.assert_array_equal(got[:, a, b, i], tree.predict(forest, windows))


# -------------------------------------------------------------------------------------------- folds


@pytest.mark.parametrize(
    ("shape", "window", "stride", "most"),
    [((12,), 4, 1, None), ((6, 5), 3, (2, 1), None), ((4, 5, 2), (2, 3), 1, 3), ((5, 5), 2, 1, 8)],
)
def test_scanners_read_windows_in_place(dtype, shape, window, stride, most):
    """Results are bit-identical to those on copies, which other functions than partials of hforest.grow receive."""
    x, y = blobs(60, int(np.prod(shape)), dtype=dtype)
    readers = (
        partial(hforest.grow, n_trees=4),
        partial(folds.completely_random, n_trees=3),
        partial(hforest.grow, n_trees=2, splitter="random"),
    )
    seen = []

    def copying(grower):
        def grow(z, y, **more):
            seen.append(type(z))
            return grower(z, y, **more)

        return grow

    settings = {"stride": stride, "max_windows": most, "rng": 4}
    got, vectors = cascade.grow_scanner(x, y, shape, window, readers, **settings)
    copies = [copying(grower) for grower in readers]
    want, same = cascade.grow_scanner(x, y, shape, window, copies, **settings)
    assert set(seen) == {np.ndarray}
    assert vectors.tobytes() == same.tobytes()
    assert_same_bits(got.forests, want.forests)


def test_windows_to_learn_from_are_not_copied():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 200, (900, 1024)).astype(np.float32), np.arange(900, dtype=np.int32) % 2
    one = (partial(hforest.grow, n_trees=1, max_depth=1),)
    windows_of_two_folds = 600 * 28 * 28 * 5 * 5 * 4
    tracemalloc.start()
    try:
        cascade.grow_scanner(x, y, (32, 32), 5, one, rng=0)
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert grown < windows_of_two_folds


def test_windows_are_classified_some_at_a_time():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(1200, 1024)).astype(np.float32), np.arange(1200, dtype=np.int32) % 2
    one = (partial(hforest.grow, n_trees=1, max_depth=2),)
    windows_of_a_fold = 400 * 28 * 28 * 5 * 5 * 4
    tracemalloc.start()
    try:
        scanner, vectors = cascade.grow_scanner(x, y, (32, 32), 5, one, max_windows=1, rng=0)
        grown = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        cascade.scan_vectors(scanner, x)
        applied = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    blocks = 10 * 2**20
    assert grown < 1.5 * vectors.nbytes + blocks + x.nbytes < windows_of_a_fold
    assert applied < vectors.nbytes + blocks


def test_folds_spread_every_class():
    y = np.repeat(np.arange(3, dtype=np.int32), (5, 6, 31))
    fold = folds.assign(y, 3, 4, np.random.default_rng(0))
    for k in range(3):
        counts = np.bincount(fold[y == k], minlength=4)
        assert counts.max() - counts.min() <= 1
    counts = np.bincount(fold, minlength=4)
    assert counts.max() - counts.min() <= 1


def test_folds_are_those_of_a_loop_over_classes():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n_classes, n_folds = rng.integers(1, 20), rng.integers(2, 6)
        y = rng.integers(0, n_classes, rng.integers(1, 300)).astype(np.int32)
        draws, same_draws = np.random.default_rng(seed), np.random.default_rng(seed)
        want, first = np.empty(len(y), np.int64), 0
        for k in range(n_classes):
            members = draws.permutation(np.flatnonzero(y == k))
            want[members] = (first + np.arange(len(members))) % n_folds
            first += len(members)
        np.testing.assert_array_equal(folds.assign(y, n_classes, n_folds, same_draws), want)
        assert same_draws.bit_generator.state == draws.bit_generator.state


def test_folds_of_many_classes():
    y = (np.arange(300_000) % 100_000).astype(np.int32)
    fold = folds.assign(y, 100_000, 3, np.random.default_rng(0))
    assert (np.sort(fold.reshape(3, -1), axis=0) == np.arange(3)[:, None]).all()


def test_parts_of_joined_forests():
    x, y = blobs()
    forests = [hforest.grow(x, y, 3, rng=i) for i in range(3)]
    joined = tree.check(join_any(forests))
    for i, forest in enumerate(forests):
        part = tree.check(folds.part(joined, 3 * i, 3 * i + 3))
        assert_same_bits(part, forest)
    mean = np.mean([tree.predict(forest, x) for forest in forests], axis=0)
    np.testing.assert_allclose(tree.predict(joined, x), mean, rtol=1e-6)


def test_parts_with_projections():
    oblique = tree.Forest(
        np.array(2), np.array([0, 3]), np.array([-2, -1, -1], np.int32), np.array([1.0, 0, 0]),
        np.array([1, 0, 1], np.int32), np.array([[1.0, 0], [0, 1]]), np.zeros(3),
        np.array([0, 2, 2, 2]), np.array([0, 1], np.int32), np.array([1.0, -1.0]),
    )  # fmt: skip
    axis = oblique._replace(
        feature=np.array([1, -1, -1], np.int32), indptr=np.zeros(0, np.int64), indices=np.zeros(0, np.int32),
        data=np.zeros(0),
    )  # fmt: skip
    joined = tree.check(join_any([oblique, axis, oblique]))
    x = np.random.default_rng(0).normal(size=(50, 2)) * 2
    for i, forest in enumerate((oblique, axis, oblique)):
        np.testing.assert_array_equal(tree.predict(folds.part(joined, i, i + 1), x), tree.predict(forest, x))


@pytest.mark.parametrize("vectors", ["out_of_fold", "out_of_bag"])
def test_class_vectors_come_from_trees_grown_without_the_sample(vectors):
    # Labels are noise: predictions are at chance level, unless trees to purity were grown on them.
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 4)), rng.integers(0, 2, 300).astype(np.int32)
    grown = cascade.grow(
        x, y, [partial(hforest.grow, n_trees=30)], class_vectors=vectors, max_levels=1, rng=0
    )
    assert 0.35 < grown.scores[0] < 0.65
    assert (cascade.predict(grown, x).argmax(axis=1) == y).mean() > 0.95


# ------------------------------------------------------------------------------------------- levels


@pytest.mark.parametrize("vectors", ["out_of_fold", "out_of_bag"])
def test_threads_do_not_change_bits(threads, dtype, vectors):
    x, y = blobs(dtype=dtype)

    def found():
        grown = cascade.grow(x, y, FEW, class_vectors=vectors, max_levels=2, rng=5)
        return grown.scores, cascade.predict(grown, x)

    assert_all_same(on_threads(threads, found))


def test_levels_read_the_input_and_the_vectors_before():
    x, y = blobs()
    sizes = []

    def spy(x, y, *, n_classes, rng):
        sizes.append(x.shape)
        return hforest.grow(x, y, 4, n_classes=n_classes, rng=rng)

    states = []
    cascade.grow(
        (x, x[:, :2].copy()), y, [spy, spy], max_levels=3, patience=3, checkpoint=states.append, rng=0
    )
    assert [len(state.levels) for state in states] == [1, 2, 3]
    # Two forests of three folds a level; two thirds of the samples; the second grain has two features.
    assert sizes == [(60, 5)] * 6 + [(60, 2 + 6)] * 6 + [(60, 5 + 6)] * 6


@pytest.mark.parametrize("vectors", ["out_of_fold", "out_of_bag"])
def test_a_level_mixes_forests_of_every_kind(tmp_path, vectors):
    def sparse(x, y, **more):  # levels have other numbers of features
        return hforest.grow(x, y, projections=project.sparse_distribution(x.shape[1]), **more)

    x, y = blobs(150, seed=2)
    level = [
        partial(hforest.grow, n_trees=4),
        partial(folds.completely_random, n_trees=4),
        partial(sparse, n_trees=4),
        partial(co2.grow, n_trees=4, lr=0.1, max_rounds=3),
    ]
    grown = cascade.grow(x[:100], y[:100], level, max_levels=2, class_vectors=vectors, rng=0)
    p = cascade.predict(grown, x[100:])
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    assert (p.argmax(axis=1) == y[100:]).mean() > 0.75
    cascade.save(tmp_path / "mixed.npz", grown)
    again = cascade.predict(cascade.load(tmp_path / "mixed.npz"), x[100:])
    assert again.tobytes() == p.tobytes()


@pytest.mark.parametrize("vectors", ["out_of_fold", "out_of_bag"])
def test_bins_of_every_level(vectors):
    def binned(x, y, **more):
        return hforest.grow(hforest.samples(x, max_bins=4), y, **more)

    x, y = blobs()
    settings = {"class_vectors": vectors, "max_levels": 2, "rng": 0}
    exact, few, same_few = (
        cascade.grow(x, y, [partial(grow, n_trees=8)], max_bins=n, **settings)
        for grow, n in ((hforest.grow, None), (hforest.grow, 4), (binned, None))
    )
    assert same(few, same_few)
    assert not same(few, exact)


def test_growth_stops_and_the_best_level_is_kept():
    x, y = blobs(60)
    states = []
    grown = cascade.grow(x, y, FEW, patience=2, max_levels=12, checkpoint=states.append, rng=0)
    scores = states[-1].scores
    assert grown.scores == scores[: int(np.argmax(scores)) + 1]
    assert len(grown.levels) == len(grown.scores)
    assert len(scores) == 12 or len(scores) - 1 - int(np.argmax(scores)) == 2
    last = cascade.predict(states[-1], x)
    assert last.shape == (60, 3)
    np.testing.assert_allclose(last.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("seed", range(12))
def test_every_grain_is_read_before_growth_stops(seed):
    rng = np.random.default_rng(seed)
    y = (np.arange(90) % 2).astype(np.int32)
    noise = [rng.normal(size=(90, 3)).astype(np.float32) for _ in range(2)]
    grains = [*noise, (y[:, None] + rng.uniform(-0.3, 0.3, (90, 2))).astype(np.float32)]
    states = []
    grown = cascade.grow(grains, y, FEW, rng=seed, checkpoint=states.append)
    assert grown.scores[-1] > 0.97
    scores = states[-1].scores
    assert len(scores) % 3 == 0
    # Only the last round has no better score than the rounds before it.
    best = [max(scores[:k]) for k in range(3, len(scores) + 1, 3)]
    assert all(b > a for a, b in pairwise(best[:-1]))
    assert best[-1] == best[-2]


def test_patience_counts_rounds():
    wait = levels._rounds_waited
    rng = np.random.default_rng(0)
    for _ in range(200):
        scores = rng.integers(0, 5, rng.integers(1, 12)).tolist()
        # With one grain, a round is a level.
        assert wait(scores, 1) == len(scores) - 1 - int(np.argmax(scores))
    assert wait((), 1) == wait((), 3) == 0
    # Nothing ends within a round: later grains may be better.
    assert [wait([5, 1, 1, 1, 1, 1, 1, 1, 1][:k], 3) for k in range(1, 10)] == [0, 0, 0, 0, 0, 1, 0, 0, 2]
    # A better score anywhere in a round counts for the round, an equal one does not.
    assert wait([1, 1, 2, 1, 2, 1], 2) == 1
    assert wait([1, 2, 1, 3], 2) == 0


def test_growth_on_one_array_stops_as_it_did_before_rounds():
    few = [partial(hforest.grow, n_trees=3)]
    for seed in range(4):
        x, y = blobs(60, seed=seed)
        states = []
        whole = cascade.grow(x, y, few, patience=6, max_levels=6, checkpoint=states.append, rng=seed)
        every = states[-1].scores
        for patience in (1, 2):
            n = 1
            while n < 6 and n - 1 - int(np.argmax(every[:n])) < patience:
                n += 1
            states.clear()
            grown = cascade.grow(
                x, y, few, patience=patience, max_levels=6, checkpoint=states.append, rng=seed
            )
            assert states[-1].scores == every[:n]
            assert grown.scores == every[: int(np.argmax(every[:n])) + 1]
            assert same(grown, whole._replace(levels=whole.levels[: len(grown.levels)]))


def test_max_levels_counts_levels_of_grains():
    x, y = blobs(60)
    states = []
    cascade.grow([x, x, x], y, FEW, max_levels=4, patience=2, checkpoint=states.append, rng=0)
    assert [len(state.levels) for state in states] == [1, 2, 3, 4]


@pytest.mark.parametrize("vectors", ["out_of_fold", "out_of_bag"])
def test_interrupted_growth_goes_on_to_the_same_bits(tmp_path, vectors):
    x, y = blobs(60, seed=2)
    settings = {"class_vectors": vectors, "patience": 4, "max_levels": 4, "rng": 3}
    states = []
    whole = cascade.grow(x, y, FEW, checkpoint=states.append, **settings)

    def keep(state):
        cascade.save(tmp_path / "state.npz", state)

    stopped = cascade.grow(x, y, FEW, checkpoint=keep, progress=lambda done, total: done < 2, **settings)
    resume = cascade.load(tmp_path / "state.npz")
    again = []
    assert len(resume.levels) == 2
    assert stopped.scores == resume.scores[: len(stopped.levels)]
    calls = []
    settings |= {"checkpoint": again.append, "progress": lambda *numbers: calls.append(numbers)}
    rest = cascade.grow(x, y, FEW, resume=resume, **settings)
    assert calls == [(3, 4), (4, 4)]
    assert [len(state.levels) for state in again] == [3, 4]
    assert again[-1].scores == states[-1].scores
    np.testing.assert_array_equal(cascade.predict(rest, x), cascade.predict(whole, x))
    assert_same_bits(rest.levels[-1][0], whole.levels[-1][0])


def test_digits():
    digits = load_digits()
    x, x_test = digits.x_train.astype(np.float32), digits.x_test.astype(np.float32)
    y, y_test = digits.y_train.astype(np.int32), digits.y_test.astype(np.int32)
    forests = (partial(hforest.grow, n_trees=30), partial(folds.completely_random, n_trees=30))
    grown = cascade.grow(x, y, forests * 2, max_bins=256, rng=0, max_levels=3)
    error = (cascade.predict(grown, x_test).argmax(axis=1) != y_test).mean()
    assert error < 0.035
    # The validation accuracy is near that of the test.
    assert abs(1 - grown.scores[-1] - error) < 0.015


# -------------------------------------------------------------------------------------------- files


def test_files_hold_everything(tmp_path):
    x, y = blobs(45, 12)
    scanner, vectors = cascade.grow_scanner(x, y, (3, 4), 2, FEW, rng=1)
    grown = cascade.grow((vectors, x), y, FEW, max_levels=2, rng=1)
    cascade.save(tmp_path / "scanner.npz", scanner)
    cascade.save(tmp_path / "cascade.npz", grown)
    scanner2, grown2 = cascade.load(tmp_path / "scanner.npz"), cascade.load(tmp_path / "cascade.npz")
    assert scanner2[:3] == scanner[:3]
    assert grown2[:6] == grown[:6]
    grains = (cascade.scan_vectors(scanner2, x), x)
    np.testing.assert_array_equal(
        cascade.predict(grown2, grains), cascade.predict(grown, (cascade.scan_vectors(scanner, x), x))
    )


# ------------------------------------------------------------------------------ arrays of any kind


def same(a, b):
    """Returns whether forests of cascades or scanners are bit-identical."""
    of_a, of_b = (c.levels if isinstance(c, cascade.Cascade) else c.forests for c in (a, b))
    return len(of_a) > 0 and same_bits(of_a, of_b)


@pytest.mark.libraries
@pytest.mark.parametrize(
    "name", ["fortran", "reversed", "columns apart", "table", "frame", "float16", ">f4", "list"]
)
def test_samples_of_any_kind(name):
    given = partial(converted, name=name)
    x, y = blobs(60)
    x = (4 * x).round() / 4  # float16 holds them
    if name == "list":
        x = x.astype(np.float64)  # what a list of floats becomes
    grown = cascade.grow(x, y, FEW, max_levels=2, patience=2, rng=0)
    other = cascade.grow(given(x), y, FEW, max_levels=2, patience=2, rng=0)
    assert other.scores == grown.scores
    assert same(other, grown)
    p = cascade.predict(grown, x)
    assert cascade.predict(grown, given(x)).tobytes() == p.tobytes()
    assert cascade.predict(grown, x.astype(np.longdouble)).tobytes() == p.tobytes()
    few = [partial(hforest.grow, n_trees=2)]
    scanner, vectors = cascade.grow_scanner(x, y, (5,), 3, few, rng=0)
    scanner2, vectors2 = cascade.grow_scanner(given(x), y, (5,), 3, few, rng=0)
    assert same(scanner2, scanner)
    assert vectors2.tobytes() == vectors.tobytes()
    assert cascade.scan_vectors(scanner, given(x)).tobytes() == cascade.scan_vectors(scanner, x).tobytes()


@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", bool, list])
def test_labels_and_samples_of_every_integer_dtype(kind):
    rng = np.random.default_rng(0)
    whole = rng.integers(0, 2 if kind is bool else 9, (40, 6))
    y = (whole[:, 0] > whole[:, 1]).astype(np.int32)
    given = (whole.tolist(), y.tolist()) if kind is list else (whole.astype(kind), y.astype(kind))
    small = kind is bool or (kind is not list and np.dtype(kind).itemsize < 4)
    x = whole.astype(np.float32 if small else np.float64)
    grown = cascade.grow(x, y, FEW, max_levels=1, rng=0)
    assert same(cascade.grow(*given, FEW, max_levels=1, rng=0), grown)
    assert cascade.predict(grown, given[0]).tobytes() == cascade.predict(grown, x).tobytes()
    scanner, vectors = cascade.grow_scanner(x, y, (2, 3), 2, FEW[:1], rng=0)
    scanner2, vectors2 = cascade.grow_scanner(*given, (2, 3), 2, FEW[:1], rng=0)
    assert same(scanner, scanner2)
    assert vectors.tobytes() == vectors2.tobytes()


def test_rows_are_converted_to_the_dtype_of_the_cascade(dtype):
    x, y = blobs(60, dtype=dtype)
    other = np.float64 if dtype == np.float32 else np.float32
    grown = cascade.grow(x, y, FEW, max_levels=1, rng=0)
    rows = np.random.default_rng(1).normal(size=(50, 5)).astype(other)
    p = cascade.predict(grown, rows)
    assert p.dtype == dtype
    assert p.tobytes() == cascade.predict(grown, rows.astype(dtype)).tobytes()
    scanner, _ = cascade.grow_scanner(x, y, (5,), 3, FEW[:1], rng=0)
    found = cascade.scan_vectors(scanner, rows)
    assert found.dtype == dtype
    assert found.tobytes() == cascade.scan_vectors(scanner, rows.astype(dtype)).tobytes()


def test_grains_have_one_dtype():
    x, y = blobs(60)
    wide = x.astype(np.float64)
    settings = {"max_levels": 2, "patience": 2, "rng": 0}
    grown = cascade.grow([x, wide], y, FEW, **settings)
    assert same(grown, cascade.grow([wide, wide], y, FEW, **settings))
    assert cascade.predict(grown, (x, wide)).tobytes() == cascade.predict(grown, (wide, wide)).tobytes()
    # Data frames are grains too; a list of rows is one array.
    frames = [converted(a, "frame") for a in (x, wide)]
    assert same(grown, cascade.grow(frames, y, FEW, **settings))
    one = cascade.grow(wide, y, FEW, max_levels=1, rng=0)
    assert same(one, cascade.grow(list(wide), y, FEW, max_levels=1, rng=0))


def test_classes_may_be_absent():
    x, y = blobs(60)
    grown = cascade.grow(x, y, FEW, n_classes=5, max_levels=1, rng=0)
    p = cascade.predict(grown, x)
    assert p.shape == (60, 5)
    assert (p[:, 3:] == 0).all()
    _, vectors = cascade.grow_scanner(x, y, (5,), 3, FEW[:1], n_classes=5, rng=0)
    assert vectors.shape == (60, 3 * 5)


# ----------------------------------------------------------------------------------------- progress


def test_false_ends_the_growth_of_a_cascade():
    x, y = blobs(60, seed=2)
    order = []
    grown = cascade.grow(
        x, y, FEW, patience=5, max_levels=4, rng=0, checkpoint=lambda state: order.append(len(state.levels)),
        progress=lambda done, total: order.append((done, total)) or done < 2,
    )  # fmt: skip
    assert order == [1, (1, 4), 2, (2, 4)]
    assert same(grown, cascade.grow(x, y, FEW, patience=5, max_levels=2, rng=0))
    # Other return values continue the growth.
    order.clear()
    cascade.grow(x, y, FEW, patience=5, max_levels=3, rng=0, progress=lambda done, total: order.append(done))
    assert order == [1, 2, 3]


def test_false_ends_the_growth_of_a_scanner():
    x, y = blobs(60)
    calls = []
    grow = partial(cascade.grow_scanner, x, y, (5,), 3, rng=0)
    scanner, vectors = grow(FEW * 2, progress=lambda *numbers: calls.append(numbers) or numbers[0] < 3)
    assert calls == [(1, 4), (2, 4), (3, 4)]
    assert len(scanner.forests) == 3
    want, wanted = grow((FEW * 2)[:3])
    assert same(scanner, want)
    assert vectors.tobytes() == wanted.tobytes()
    assert vectors.shape == cascade.scan_vectors(scanner, x).shape == (60, 3 * 3 * 3)
    # At least one forest.
    scanner, vectors = grow(FEW, progress=lambda done, total: False)
    assert len(scanner.forests) == 1
    with pytest.raises(TypeError, match="progress: expected None, True or a function"):
        grow(FEW, progress=1)


def test_bars(capsys):
    x, y = blobs(60)
    want = cascade.grow(x, y, FEW, max_levels=2, rng=0)
    assert same(cascade.grow(x, y, FEW, max_levels=2, rng=0, progress=True), want)
    assert "level" in capsys.readouterr().err
    cascade.grow_scanner(x, y, (5,), 3, FEW, rng=0, progress=True)
    assert "forest" in capsys.readouterr().err
