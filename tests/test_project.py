"""Projections: distributions of samples, and values."""

import itertools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import assert_same_bits, same_bits
from growers import assert_all_same, on_threads
from scipy import sparse

import hforest
from hforest import project
from hforest.core import projections as distributions
from hforest.core.philox import philox

pytestmark = pytest.mark.kernels


def rows(projections):
    """Returns each projection as a list of (feature, weight)."""
    indptr, indices, data = projections
    return [
        list(zip(indices[a:b].tolist(), data[a:b].tolist(), strict=True))
        for a, b in itertools.pairwise(indptr)
    ]


# ---------------------------------------------------------------------------------------- sampling


def test_sparse_projections_are_what_they_should_be():
    n, n_features, density = 20_000, 30, 2.0
    drawn = rows(project.sample(project.sparse_distribution(n_features, density), n, rng=0))
    counts = np.array([len(row) for row in drawn])
    # Poisson, with 0 replaced by 1.
    expected = np.exp(-density) * np.cumprod([1, density, density / 2, density / 3, density / 4])
    expected[1] += expected[0]
    shares = np.bincount(counts, minlength=20)[:5] / n
    np.testing.assert_allclose(shares[1:], expected[1:5], atol=0.01)
    assert counts.min() == 1
    features = np.concatenate([[f for f, _ in row] for row in drawn])
    assert all(len({f for f, _ in row}) == len(row) for row in drawn)
    uses = np.bincount(features, minlength=n_features) / len(features)
    assert np.abs(uses - 1 / n_features).max() < 0.003
    signs = np.concatenate([[w for _, w in row] for row in drawn])
    assert set(signs.tolist()) == {-1.0, 1.0}
    assert abs(signs.mean()) < 0.02


def test_more_non_zeros_than_features_become_all_of_them():
    for row in rows(project.sample(project.sparse_distribution(3, 40.0), 50, rng=0)):
        assert sorted(f for f, _ in row) == [0, 1, 2]


def test_patches_are_rectangles_where_they_fit():
    height, width = 5, 7
    corners, sizes = [], []
    patches = project.patch_distribution((height, width), patch_min=(1, 2), patch_max=(3, 4))
    drawn = project.sample(patches, 20_000, rng=0)
    for row in rows(drawn):
        at = np.array([divmod(f, width) for f, _ in row])
        assert {w for _, w in row} == {1.0}
        low, high = at.min(axis=0), at.max(axis=0)
        size = high - low + 1
        assert len(row) == size.prod()
        assert [tuple(a) for a in at] == [
            (i, j) for i in range(low[0], high[0] + 1) for j in range(low[1], high[1] + 1)
        ]
        corners.append(low)
        sizes.append(size)
    corners, sizes = np.array(corners), np.array(sizes)
    assert (sizes.min(axis=0) == [1, 2]).all()
    assert (sizes.max(axis=0) == [3, 4]).all()
    for axis, count in enumerate((3, 3)):
        shares = np.bincount(sizes[:, axis] - sizes[:, axis].min()) / len(sizes)
        np.testing.assert_allclose(shares, 1 / count, atol=0.015)
    # Given its size, the corner is uniform over the positions where the patch fits.
    of_size = corners[(sizes == [2, 3]).all(axis=1)]
    places = np.zeros((height - 1, width - 2))
    np.add.at(places, tuple(of_size.T), 1)
    assert places.min() > 0.6 * places.mean()
    assert places.max() < 1.4 * places.mean()


def test_cyclic_patches_wrap_around():
    intervals = project.patch_distribution((10,), patch_min=4, patch_max=4, cyclic=True)
    drawn = rows(project.sample(intervals, 3000, rng=0))
    starts = np.array([row[0][0] for row in drawn])
    assert (np.bincount(starts, minlength=10) > 200).all()
    for row in drawn:
        assert [f for f, _ in row] == [(row[0][0] + i) % 10 for i in range(4)]


def test_patches_lie_in_one_channel():
    coloured = project.patch_distribution((4, 5, 3), patch_max=(2, 3), channels=True)
    drawn = rows(project.sample(coloured, 500, rng=0))
    channels = [{f % 3 for f, _ in row} for row in drawn]
    assert all(len(channel) == 1 for channel in channels)
    assert set().union(*channels) == {0, 1, 2}
    for row in drawn:
        at = np.array([divmod(f // 3, 5) for f, _ in row])
        assert len(row) == np.prod(at.max(axis=0) - at.min(axis=0) + 1)


@pytest.mark.parametrize("cyclic", [False, True])
def test_kernels_lie_where_they_fit(cyclic):
    """Values are those of the cross-correlation of one channel; every kernel, place and channel is drawn."""
    kernels = [np.array([[0.0, 1.5, -1.0], [2.0, 0.0, -0.25]]), np.array([[1], [-1]])]
    edges = project.kernel_distribution((4, 5, 2), kernels, channels=True, cyclic=cyclic)
    drawn = project.sample(edges, 3000, dtype=np.float64, rng=0)
    x = np.random.default_rng(0).normal(size=(4, 5, 2))
    values = project.project(x.reshape(1, -1), *drawn)[:, 0]
    found = {}
    for k, kernel in enumerate(kernels):
        height, width = kernel.shape
        padded = np.pad(x, ((0, height), (0, width), (0, 0)), mode="wrap")
        ends = (4, 5) if cyclic else (5 - height, 6 - width)
        for i, j, c in np.ndindex(*ends, 2):
            product = kernel * padded[i : i + height, j : j + width, c]
            found[k, i, j, c] = product.sum()
    places = np.array(list(found))
    near = np.abs(values[:, None] - np.array(list(found.values())))
    assert near.min(axis=1).max() < 1e-13
    counts = np.bincount(near.argmin(axis=1), minlength=len(found))
    for k in range(2):
        of = counts[places[:, 0] == k]
        assert abs(of.sum() - 1500) < 150  # each kernel half of the time
        assert of.min() > 0.4 * of.mean()
    assert not (drawn.data == 0).any()
    assert drawn.indptr[1:].max() == len(drawn.data)


def test_weights_of_kernels_are_numbers_of_float32():
    edges = project.kernel_distribution((3,), [np.array([0.1, 1 / 3])])
    assert edges.kernels == (((1, 1, 2), (float(np.float32(0.1)), float(np.float32(1 / 3)))),)
    assert edges == project.kernel_distribution((3,), [np.array([0.1, 1 / 3], np.float32)])


def test_boxes():
    boxes = project.patch_distribution((3, 4, 5), patch_min=(1, 2, 1), patch_max=(2, 2, 3))
    for row in rows(project.sample(boxes, 200, rng=0)):
        at = np.array([np.unravel_index(f, (3, 4, 5)) for f, _ in row])
        size = at.max(axis=0) - at.min(axis=0) + 1
        assert len(row) == size.prod()
        assert size[1] == 2


def test_probes_and_axes():
    drawn = rows(project.sample(project.probe_distribution(4), 5000, rng=0))
    pairs = {(row[0][0], row[1][0]) for row in drawn}
    assert pairs == {(i, j) for i in range(4) for j in range(4) if i != j}
    assert all([w for _, w in row] == [1, -1] for row in drawn)
    mixed = rows(project.sample(project.probe_distribution(4, 0.25), 5000, rng=0))
    single = [row for row in mixed if len(row) == 1]
    assert abs(len(single) - 1250) < 5 * (5000 * 0.25 * 0.75) ** 0.5
    assert {row[0] for row in single} == {(i, 1) for i in range(4)}
    assert [row for row in mixed if len(row) == 2] == [
        d for d, m in zip(drawn, mixed, strict=True) if len(m) == 2
    ]
    assert all(len(row) == 1 for row in rows(project.sample(project.probe_distribution(4, 1), 99, rng=0)))
    features = [row[0][0] for row in rows(project.sample(project.axis_distribution(4), 5000, rng=0))]
    assert (np.bincount(features) > 1100).all()


VIEWS = [[3, 1, 7], [0, 2, 4, 5, 6, 8, 9, 10], [11]]
KINDS = {
    "axis": project.axis_distribution(12),
    "sparse": project.sparse_distribution(12, 3.0),
    "probe": project.probe_distribution(12, 0.3),
}


def test_a_small_view_has_its_share_of_the_candidates():
    single = project.axis_distribution(10_005)
    views = project.grouped_distribution(single, [range(5), range(5, 10_005)], 1)
    of_views = project.sample(views, 2000, rng=0).indices
    assert ((of_views < 5) == (np.arange(2000) % 2 == 0)).all()
    assert np.bincount(of_views[::2]).min() > 150  # uniform over its columns
    assert (project.sample(single, 2000, rng=0).indices < 5).sum() < 10  # without groups
    x, y = np.random.default_rng(0).normal(size=(40, 10_005)), np.arange(40) % 2
    settings = {"max_depth": 1, "bootstrap": False, "rng": 0}
    of_views, of_all = (
        hforest.grow(x, y, 300, projections=distribution, n_projections=2, **settings).feature[::3]
        for distribution in (views, single)
    )
    assert abs((of_views < 5).mean() - 1 / 2) < 0.12  # four standard errors
    assert (of_all < 5).mean() < 0.02


@pytest.mark.parametrize("kind", KINDS)
def test_the_columns_of_a_projection_are_of_one_group(kind):
    group_of = np.zeros(12, int)
    for number, columns in enumerate(VIEWS):
        group_of[columns] = number
    views = project.grouped_distribution(KINDS[kind], VIEWS, [2, 1, 1])
    drawn = rows(project.sample(views, 4000, rng=0))
    for number, row in enumerate(drawn):
        assert {group_of[f] for f, _ in row} == {[0, 0, 1, 2][number % 4]}
        assert len({f for f, _ in row}) == len(row)
    uses = np.bincount([f for row in drawn for f, _ in row], minlength=12)
    for columns in VIEWS:  # uniform within a group
        assert np.abs(uses[columns] / uses[columns].mean() - 1).max() < 0.2
    if kind == "sparse":  # Poisson, cut at the columns of the group
        sizes = np.bincount([len(row) for row in drawn[::4]], minlength=4) / 1000
        assert abs(sizes[3] - (1 - np.exp(-3.0) * (1 + 3 + 4.5))) < 0.07
    if kind == "probe":
        assert {len(row) for row in drawn[3::4]} == {1}  # of one column there is no difference
        assert {len(row) for row in drawn[::4]} == {1, 2}


@pytest.mark.parametrize("kind", KINDS)
def test_one_group_of_all_columns_draws_as_no_groups(kind):
    one = project.grouped_distribution(KINDS[kind], [range(12)], 4)
    assert_same_bits(project.sample(one, 50, rng=0), project.sample(KINDS[kind], 50, rng=0))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 12)), rng.integers(0, 3, 60)
    got, want = (
        hforest.grow(x, y, 3, projections=distribution, n_projections=4, rng=0)
        for distribution in (one, KINDS[kind])
    )
    assert len(got.feature) > 10
    assert_same_bits(got, want)


def test_a_node_samples_the_root_of_each_group_by_default():
    groups = [range(3), np.arange(3, 12, dtype=np.uint8)]
    views = project.grouped_distribution(KINDS["axis"], groups)
    assert views.n_projections == (2, 3)
    assert views == project.grouped_distribution(views, groups)  # groups are replaced
    x, y = np.random.default_rng(0).normal(size=(30, 12)), np.arange(30) % 2
    assert_same_bits(*(hforest.grow(x, y, 2, projections=views, n_projections=n, rng=0) for n in (None, 5)))
    with pytest.raises(ValueError, match=r"n_projections: expected None, or the sum .* groups, 5, got 4; "):
        hforest.grow(x, y, 2, projections=views, n_projections=4)


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ([[0, 1], [1, 2]], ValueError, r"groups\[1\]: expected columns that no earlier group has, got column 1 of groups\[0\]"),
        ([[0, 1, 2, 2]], ValueError, r"groups\[0\]: expected columns .* got column 2 of groups\[0\]; put each"),
        ([[0], [1]], ValueError,
            r"groups: expected all of n_features = 3 columns, got no group with column 2, the first of 1 missing"),
        ([[0, 1, 2], []], ValueError, r"groups\[1\]: expected at least one column index, got none; remove"),
        ([], ValueError, "groups: expected at least one group"),
        ([[0, 1], [2, 3]], IndexError, r"groups\[1\]: expected columns 0 to 2, got 3; "),
        ([[0, 1, -1]], IndexError, r"groups\[0\]: expected columns 0 to 2, got -1; "),
        ([[0, 1], 2], TypeError, r"groups\[1\]: expected a list of column indices, got int64 of shape \(\); "),
        ([[0.0, 1.0, 2.0]], TypeError, r"groups\[0\]: expected a list of column indices, got float64"),
        ([[True, True, False]], TypeError, r"groups\[0\]: expected a list of column indices, got bool"),
        ([[0, [1, 2]]], TypeError, r"groups\[0\]: expected an array, got list"),
        ("012", TypeError, "groups: expected a list of groups of column indices, got str; pass a list such as"),
        (None, TypeError, "groups: expected a list of groups of column indices, got NoneType"),
    ],
)  # fmt: skip
def test_bad_groups(groups, error, message):
    single = project.axis_distribution(3)
    with pytest.raises(error, match=message):
        project.grouped_distribution(single, groups)
    by_hand = single._replace(groups=groups, n_projections=(1,) * len(groups or "a"))
    if groups != []:
        with pytest.raises(error, match=rf"^distribution\.{message}"):
            project.sample(by_hand, 2)


def test_the_cost_of_a_draw_is_its_non_zeros(monkeypatch):
    draws = []

    def counted(*args):
        draws.append(args)
        return philox(*args)

    monkeypatch.setattr(distributions, "philox", counted)
    used = []
    for n_features in (500, 50_000):
        draws.clear()
        indptr, _, _ = project.sample(project.sparse_distribution(n_features), 200, rng=0)
        used.append(len(draws))
        assert len(draws) <= 2 * 200 + indptr[-1]
    assert abs(used[0] - used[1]) < 40


def test_seeds():
    for distribution in (project.sparse_distribution(30), project.patch_distribution((5, 6), patch_max=3)):
        same, generated, other = (
            project.sample(distribution, 20, rng=rng) for rng in (3, np.random.default_rng(3), 4)
        )
        assert_same_bits(generated, same)
        assert not same_bits(other, same)


def test_a_growing_tree_draws_from_the_same_distribution():
    # The candidates of a root follow from its key, and a single candidate is taken whatever its score.
    x = np.random.default_rng(0).normal(size=(30, 12))
    y = np.arange(30) % 2
    sparse = project.sparse_distribution(12, 4.0)
    grown = hforest.grow(x, y, 1, projections=sparse, n_projections=1, bootstrap=False, max_depth=1, rng=5)
    seed = int(np.random.default_rng(5).integers(2**64, dtype=np.uint64))
    key = distributions.keys(philox(seed, 0, 0))[0]
    features, weights = distributions.draw_projection(sparse, key, 0)
    assert grown.indices.tolist() == features
    assert grown.data.tolist() == weights


def test_what_follows_from_settings_is_not_read_from_a_distribution():
    patches = project.patch_distribution((3, 4), patch_max=2)
    got, want = (project.sample(a, 9, rng=0) for a in (patches._replace(max_entries=1), patches))
    assert_same_bits(got, want)


# ------------------------------------------------------------------------------------------ values


@hypothesis.given(
    n=st.integers(0, 90),
    n_features=st.integers(2, 9),
    n_projections=st.integers(0, 12),
    density=st.sampled_from([0.5, 2.0, 20.0]),
    some=st.booleans(),
    seed=st.integers(0, 1000),
)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_backends_agree(fast_backend, dtype, reference, n, n_features, n_projections, density, some, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, n_features)).astype(dtype)
    drawn = project.sample(
        project.sparse_distribution(n_features, density), n_projections, dtype=dtype, rng=seed
    )
    samples = rng.integers(0, n, 2 * n).astype(np.int32) if some and n else None
    arrays = {"x": x, **drawn._asdict()} | ({} if samples is None else {"samples": samples})
    want = reference(project.project, **arrays)
    got = project.project(**{name: fast_backend.array(a) for name, a in arrays.items()})
    assert_same_bits(fast_backend.numpy(got), want)


def test_values_are_those_of_a_sparse_matrix():
    x = np.random.default_rng(0).normal(size=(500, 40))
    patches = project.patch_distribution((5, 8), patch_max=4)
    indptr, indices, data = project.sample(patches, 60, dtype=np.float64, rng=0)
    matrix = sparse.csr_matrix((data, indices, indptr), shape=(60, 40))
    np.testing.assert_allclose(
        project.project(x, indptr, indices, data), matrix @ x.T, rtol=1e-13, atol=1e-13
    )


def test_threads_do_not_change_bits(threads):
    x = np.random.default_rng(0).normal(size=(1000, 30)).astype(np.float32)
    drawn = project.sample(project.sparse_distribution(30, 5), 50, rng=0)
    assert_all_same(on_threads(threads, lambda: project.project(x, *drawn)))


def test_out():
    x = np.ones((3, 4))
    drawn = project.sample(project.axis_distribution(4), 2, dtype=np.float64, rng=0)
    out = np.empty((2, 3))
    assert project.project(x, *drawn, out=out) is out
    assert (out == 1).all()
    with pytest.raises(ValueError, match="out: expected shape"):
        project.project(x, *drawn, out=np.empty((3, 2)))
    with pytest.raises(ValueError, match="overlaps x"):
        project.project(x, *drawn, out=x.reshape(-1)[:6].reshape(2, 3))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": np.ones((3, 4), int)}, TypeError, "x: expected dtype"),
        ({"x": np.ones((3, 4), order="F")}, ValueError, "x: expected a C-contiguous array"),
        ({"x": np.full((3, 4), np.inf)}, ValueError, "x: expected finite"),
        ({"indptr": np.array([0, 1, 3])}, ValueError, "indptr: expected 0, ..., n_entries = 2"),
        ({"indptr": np.array([0, 3, 2])}, ValueError, "in non-decreasing order"),
        ({"indptr": np.array([1, 1, 2])}, ValueError, "indptr: expected 0"),
        ({"indptr": np.array([0, 1, 2], np.int32)}, TypeError, "indptr: expected dtype int64"),
        ({"indptr": np.zeros(0, np.int64)}, ValueError, "n_projections"),
        ({"indices": np.array([0, 4], np.int32)}, IndexError, "n_features = 4, got 4"),
        ({"data": np.ones(3)}, ValueError, "data: expected shape"),
        ({"data": np.ones(2, np.float32)}, TypeError, "data: expected dtype float64"),
        ({"samples": np.array([3], np.int32)}, IndexError, "n_samples = 3, got 3"),
        ({"samples": np.array([0])}, TypeError, "samples: expected dtype int32"),
    ],
)
def test_bad_input(change, error, message):
    arrays = {
        "x": np.ones((3, 4)), "indptr": np.array([0, 1, 2]), "indices": np.array([0, 3], np.int32), "data": np.ones(2),
    } | change  # fmt: skip
    with pytest.raises(error, match=message):
        project.project(**arrays)


AXES, SPARSE = project.axis_distribution(3), project.sparse_distribution(3)
PATCHES = project.patch_distribution((3, 4), patch_max=2)
EDGES = project.kernel_distribution((3, 4), [[[1, 0, -1]], [[0.5], [-0.5]]])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: project.sample(AXES, -1), ValueError, "n_projections: expected"),
        (lambda: project.sample(AXES, 1, dtype=int), TypeError, "dtype: expected float32"),
        (lambda: project.sample(AXES, 1, dtype="no"), TypeError, "dtype: expected float32"),
        (lambda: project.sample(AXES, 1, rng=-1), ValueError, "rng: expected a seed"),
        (lambda: project.sample(tuple(AXES), 1), TypeError, r"distribution: expected hforest\.project\.Distribution, got tuple"),
        (lambda: project.sample(SPARSE._replace(density=1e9), 1), ValueError, "density: expected"),
        (lambda: project.sample(PATCHES._replace(n_features=6), 1), ValueError,
            "distribution.n_features: expected the product of its shape, 12, got 6"),
        (lambda: project.sample(PATCHES._replace(groups=((0, 1, 2),), n_projections=(1,)), 2), ValueError,
            r"distribution\.groups: expected \(\) for patches and kernels, got groups; "),
        (lambda: project.grouped_distribution(PATCHES, [range(12)]), ValueError,
            "distribution: expected axis-aligned, .* got patches; "),
        (lambda: project.grouped_distribution(EDGES, [range(12)]), ValueError,
            "distribution: expected axis-aligned, .* got kernels; "),
        (lambda: project.kernel_distribution((3, 4), np.ones(())), TypeError, "kernels: expected a list of arrays, got"),
        (lambda: project.kernel_distribution((3, 4), []), ValueError, "kernels: expected at least one kernel, got none"),
        (lambda: project.kernel_distribution((3, 4), [[1, 2]]), ValueError,
            r"kernels\[0\]: expected 2 axes, of at most 3, 4 numbers, got shape \(2,\)"),
        (lambda: project.kernel_distribution((3, 4), [np.ones((1, 4)), np.ones((4, 1))]), ValueError,
            r"kernels\[1\]: expected 2 axes, of at most 3, 4 numbers, got shape \(4, 1\)"),
        (lambda: project.kernel_distribution((3, 4), [np.ones((0, 1))]), ValueError, r"kernels\[0\]: expected 2 axes"),
        (lambda: project.kernel_distribution((3, 4), [np.zeros((1, 1))]), ValueError,
            r"kernels\[0\]: expected a number other than 0, got zeros"),
        (lambda: project.kernel_distribution((3, 4), [[[np.nan]]]), ValueError, r"kernels\[0\]: expected finite"),
        (lambda: project.kernel_distribution((3, 4), [[[1e300]]]), ValueError, r"kernels\[0\]: expected finite"),
        (lambda: project.kernel_distribution((3, 4), [[["a"]]]), TypeError, r"kernels\[0\]: expected real numbers"),
        (lambda: project.kernel_distribution((3, 4), [[[1j]]]), TypeError, r"kernels\[0\]: expected real numbers"),
        (lambda: project.grouped_distribution(3, [[0, 1, 2]]), TypeError, "distribution: expected hforest"),
        *(
            (lambda n=n: project.grouped_distribution(AXES, [[0, 1], [2]], n), error, message)
            for n, error, message in (
                (0, ValueError, r"n_projections\[0\]: expected 1 to"),
                ([1, 0], ValueError, r"n_projections\[1\]: expected 1 to"),
                ([1], ValueError, r"n_projections: expected an int or 2 ints, got \[1\]; pass one int per group"),
                (1.5, TypeError, r"n_projections\[0\]: expected an int, got float"),
                ([2**19, 2**19 + 1], ValueError, "n_projections: expected a sum of at most 1048576, got 1048577"),
            )
        ),
        (lambda: project.axis_distribution(0), ValueError, "n_features: expected"),
        (lambda: project.axis_distribution(2.0), TypeError, "n_features: expected an int"),
        (lambda: project.probe_distribution(1), ValueError, "n_features: expected 2"),
        (lambda: project.probe_distribution(2, 1.5), ValueError, "single_share: expected a finite number"),
        (lambda: project.sparse_distribution(3, -1), ValueError, "density: expected"),
        (lambda: project.sparse_distribution(12, 0.0), ValueError, "density: expected a finite number > 0"),
        (lambda: project.patch_distribution((3, 4), patch_max=4), ValueError,
            r"patch_max\[0\]: expected patch_min\[0\] = 1 to shape\[0\] = 3, got 4"),
        (lambda: project.patch_distribution((3, 4), patch_max=(3, 5)), ValueError,
            r"patch_max\[1\]: expected patch_min\[1\] = 1 to shape\[1\] = 4, got 5"),
        (lambda: project.patch_distribution((3, 4), patch_min=(3, 1), patch_max=2), ValueError,
            r"patch_max\[0\]: expected patch_min\[0\] = 3"),
        (lambda: project.patch_distribution((3, 4), patch_min=(1, 1, 1), patch_max=2), ValueError,
            "patch_min: expected an int or 2"),
        (lambda: project.patch_distribution(12), TypeError, "shape: expected"),
        (lambda: project.patch_distribution((1, 1, 1, 12)), ValueError, "shape: expected 1 to 3 sizes"),
        (lambda: project.patch_distribution((4,), channels=True), ValueError, "shape: expected"),
        (lambda: project.patch_distribution((2**16, 2**16)), ValueError, r"product is less than 2\*\*31"),
    ],
)  # fmt: skip
def test_bad_draws(call, error, message):
    with pytest.raises(error, match=message):
        call()


WRONG = {
    **dict.fromkeys(("shape", "patch_min", "patch_max"), (object(), "2", 1.5, (2, "word"), np.zeros(2), {})),
    **dict.fromkeys(("density", "single_share"), (None, "2", [1], np.zeros(2), np.zeros(0))),
    **dict.fromkeys(("channels", "cyclic"), (None, 1, "yes", np.array([True, False]), np.zeros(0), {1})),
}
"""Values of wrong kinds of the settings of distributions."""


@pytest.mark.parametrize("name", WRONG)
def test_settings_of_wrong_kinds(name):
    for value in WRONG[name]:
        with pytest.raises(TypeError, match=rf"^{name}(\[[01]\])?: expected .*, got .*; "):
            if name == "density":
                project.sparse_distribution(4, value)
            elif name == "single_share":
                project.probe_distribution(4, value)
            else:
                project.patch_distribution(**{"shape": (2, 2), "patch_max": 2, name: value})


FIELDS = [
    (project.sparse_distribution(4), {
        "kind": (1.0,), "n_features": (2.0, -1), "density": (None, 10**400), "groups": (((0, 1), (2, 3)), np.zeros(2)),
        "n_projections": ((1,), 3),
    }),
    (project.patch_distribution((2, 2), patch_max=2), {
        "n_features": (5, np.zeros(2)), "shape": ((1, 2**40, 2),), "patch_max": ((1, 2, None),), "patch_min": ("a",),
        "channels": (True,), "cyclic": (np.zeros(2),),
    }),
    (project.kernel_distribution((2, 2), [[[1, -1]]]), {
        "n_features": (5,), "shape": ((1, 2**40, 2),), "channels": (True,), "cyclic": (np.zeros(2),),
        "kernels": (
            3, (), (3,), (((1, 1, 3), (1.0, 2.0)),), (((1, 1, 3), (1.0, 2.0, 3.0)),), (((1, 1, 1), (0.0,)),),
            (((1, 1, 1), (float("inf"),)),), (((1, 1, 1), ("a",)),), (((1, 1, 2), (None, 1.0)),),
        ),
    }),
]  # fmt: skip
"""Distributions, and values that their fields cannot have."""


@pytest.mark.parametrize(
    "bad", [made._replace(**{field: value}) for made, values in FIELDS for field in values for value in values[field]]
)  # fmt: skip
def test_fields_of_a_distribution_made_by_hand(bad):
    with pytest.raises((TypeError, ValueError), match=r"^distribution\.\w+.*: expected .*, got .*; "):
        project.sample(bad, 2)
    with pytest.raises((TypeError, ValueError), match=r"^projections\.\w+.*: expected .*, got .*; "):
        hforest.grow(np.zeros((2, 4)), [0, 1], 1, projections=bad, n_projections=1)
