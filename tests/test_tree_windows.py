"""Forests applied to windows, which are read in place: bit-identical to copies of the windows."""

import numpy as np
import pytest
from test_tree import STUMP, random_forest

import hforest
from hforest import project, tree
from hforest.core import machine
from hforest.tree import Forest

pytestmark = pytest.mark.kernels

FUNCTIONS = (tree.apply, tree.predict, tree.vote_shares)


def windows_of(n, n_columns, dtype, seed=0):
    """Returns overlapping windows with offsets of both signs, and a copy; some begin and end at the ends of x."""
    rng = np.random.default_rng(seed)
    size = 3 * max(n_columns, 20)
    x = (rng.integers(-4, 5, (3, size // 3)) / 4).astype(dtype)
    offset = rng.permutation(size // 2)[:n_columns].astype(np.int64) - size // 4
    least, most = (int(offset.min()), int(offset.max())) if n_columns else (0, 0)
    base = rng.integers(max(0, -least), size - max(0, most), n)
    base[: min(n, 2)] = [max(0, -least), size - 1 - max(0, most)][: min(n, 2)]
    return samples(x, base, offset), x.ravel()[base[:, None] + offset]


def samples(x, base, offset):
    return hforest.samples(x, windows=(np.asarray(base), np.asarray(offset)))


def check(forest, windows, copies):
    for function in FUNCTIONS:
        assert function(forest, windows).tobytes() == function(forest, copies).tobytes()


def test_a_window_by_hand(backend):
    # Feature 1 of a window is compared with 0.5; windows begin at 1, 0 and 2.
    x = np.array([[0.0, 0.5], [np.nextafter(0.5, 1), 7.0]])
    assert tree.apply(STUMP, samples(x, [1, 0, 2], [0, 1])).ravel().tolist() == [2, 1, 2]
    assert tree.apply(STUMP, samples(x, [1, 2, 3], [0, -1])).ravel().tolist() == [1, 1, 2]


@pytest.mark.parametrize("oblique", [False, True])
def test_windows_have_the_bits_of_copies_in_every_backend(fast_backend, dtype, reference, oblique):
    windows, copies = windows_of(23, 9, dtype)
    forest = random_forest(5, 5, 9, 3, dtype, 1, oblique)
    x, *places = map(fast_backend.array, windows.x)
    moved, there = Forest(*map(fast_backend.array, forest)), hforest.samples(x, windows=places)
    for function in FUNCTIONS:
        expected = reference(function, forest, copies).tobytes()
        assert reference(function, forest, windows).tobytes() == expected
        assert fast_backend.numpy(function(moved, there)).tobytes() == expected


def few_entries(forest):
    """Returns the forest with at most two entries in each projection."""
    counts = np.minimum(np.diff(forest.indptr), 2)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    keep = np.concatenate([np.arange(a, a + n) for a, n in zip(forest.indptr, counts, strict=False)])
    keep = keep.astype(np.int64)
    return forest._replace(indptr=indptr, indices=forest.indices[keep], data=forest.data[keep])


def many_entries(forest):
    """Returns the forest with 0 to 60 entries in each projection, and 40 in each root, limited by the features."""
    rng, n_features = np.random.default_rng(3), int(forest.n_features)
    feature = forest.feature.copy()
    inner = forest.tree_start[:-1][feature[forest.tree_start[:-1]] != -1]
    feature[inner] = -2
    counts = np.where(feature == -2, rng.integers(0, 61, len(feature)), 0)
    counts[inner] = 40
    counts = np.minimum(counts, n_features)
    indices = [np.sort(rng.choice(n_features, n, False)) for n in counts]
    indptr = np.concatenate([[0], np.cumsum(counts)])
    data = rng.normal(size=indptr[-1]).astype(forest.data.dtype)
    indices = np.concatenate([*indices, np.zeros(0, int)]).astype(np.int32)
    return tree.check(forest._replace(feature=feature, indptr=indptr, indices=indices, data=data))


KINDS = {
    "axis": lambda *a: random_forest(*a),
    "pairs": lambda *a: few_entries(random_forest(*a, oblique=True)),
    "projections": lambda *a: random_forest(*a, oblique=True),
    "long": lambda *a: many_entries(random_forest(*a, oblique=True)),
    "missing": lambda *a: (f := random_forest(*a))._replace(default_left=(f.feature >= 0).astype(np.uint8)),
}


@pytest.mark.parametrize("path", machine.simd_paths())
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_windows_have_the_bits_of_copies_on_every_path(simd, path, kind, dtype):
    simd(path)
    # Few samples, columns, rows, and more features than 16 bits number.
    for n, n_columns, n_trees, depth in (
        (1, 5, 3, 4), (300, 5, 20, 6), (300, 400, 3, 6), (33, 400, 1, 0), (40, 70000, 2, 4), (2500, 30, 2, 9),
    ):  # fmt: skip
        windows, copies = windows_of(n, n_columns, dtype, seed=n)
        forest = KINDS[kind](n_trees, depth, n_columns, 3, dtype, n)
        if kind == "missing":
            x, base, offset = windows.x
            x = x.copy()
            x[0, 3] = np.nan
            windows, copies = samples(x, base, offset), x.ravel()[base[:, None] + offset]
        check(forest, windows, copies)
        first = tree.apply(forest, copies[:1])  # walked node by node
        assert (tree.apply(forest, windows)[:1] == first).all()


@pytest.mark.parametrize("kind", ["axis", "pairs", "projections", "long"])
def test_threads_change_nothing(threads, kind):
    windows, copies = windows_of(5000, 300, np.float32)
    forest = KINDS[kind](6, 8, 300, 4, np.float32, 0)
    with hforest.using("reference"):
        expected = tree.predict(forest, copies[-40:])
    for n in (1, 2, 7):
        threads(n)
        check(forest, windows, copies)
        assert tree.predict(forest, windows)[-40:].tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", ["pairs", "projections", "long"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_packed_projections_are_those_node_by_node(kind, dtype):
    forest = KINDS[kind](7, 7, 45, 3, dtype, 2)
    x = np.random.default_rng(0).normal(size=(100, 45)).astype(dtype)
    rows = [tree.apply(forest, x[i : i + 1]) for i in range(len(x))]
    assert (tree.apply(forest, x) == np.concatenate(rows)).all()


def test_grown_forests():
    rng = np.random.default_rng(0)
    image = rng.normal(size=(12, 14)).astype(np.float32)
    place = np.arange(image.size).reshape(image.shape)
    base, offset = place[:8, :10].ravel(), place[:5, :5].ravel()
    windows, copies = samples(image, base, offset), image.ravel()[base[:, None] + offset]
    y = (copies[:, 12] > copies[:, 7]).astype(np.int32)
    forest = hforest.grow(windows, y, 5, rng=0)
    check(forest, windows, copies)
    check(tree.prepare(forest), windows, copies)
    for projections in (
        project.probe_distribution(25, 0.5), project.sparse_distribution(25), project.patch_distribution((5, 5), patch_max=3),
    ):  # fmt: skip
        check(hforest.grow(copies, y, 5, projections=projections, rng=0), windows, copies)


def test_x_is_converted_to_the_dtype_of_the_forest():
    windows, copies = windows_of(40, 7, np.float64)
    forest, (x, base, offset) = random_forest(3, 4, 7, 2, np.float32, 0), windows.x
    for given in (x / 3, np.asfortranarray(x / 3), (x / 3).tolist()):
        check(forest, samples(given, base, offset), copies / 3)


def test_out_is_used_and_apart():
    windows, copies = windows_of(5, 3, np.float32)
    x, base, offset = windows.x
    x = x.copy()
    windows, forest = samples(x, base, offset), random_forest(2, 3, 3, 3, np.float32, 0)
    out = np.empty((5, 3), np.float32)
    assert tree.predict(forest, windows, out=out) is out
    assert (out == tree.predict(forest, copies)).all()
    with pytest.raises(ValueError, match="out: expected memory that no other argument uses"):
        tree.predict(forest, windows, out=x.ravel()[:15].reshape(5, 3))


def test_bad_windows():
    windows, _ = windows_of(5, 4, np.float32)
    forest, (x, base, offset) = random_forest(2, 3, 4, 3, np.float32, 0), windows.x
    with pytest.raises(ValueError, match=r"\(n_samples, 4\), got \(5, 3\)"):
        tree.apply(forest, samples(x, base, offset[:3]))
    with pytest.raises(ValueError, match="^x: expected finite"):
        tree.apply(forest, samples(x * np.nan, base, offset))
    with pytest.raises(TypeError, match="forest"):
        tree.apply(windows, forest)
