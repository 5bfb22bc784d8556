"""Growth by rows for several labels a sample, by the Poisson deviance, and with monotonic constraints."""

import numpy as np
import pytest
import row_comms
from conftest import assert_same_bits
from test_scale_rows import (
    N_TREES,
    PARTITIONS,
    Parts,
    divided,
    grown,
    on_one_machine,
    partitions,
    projected,
    samples,
)  # fmt: skip

from hforest import project, scale

gathered = pytest.mark.parametrize("max_gathered", [0, 25, None])


def equal(cuts, x, y, *, max_gathered=None, bootstrap="poisson", **settings):
    """Returns the forest of one machine after a comparison with that of workers."""
    want = on_one_machine(x, y, bootstrap=bootstrap, **settings)
    assert_same_bits(grown(cuts, x, y, bootstrap=bootstrap, max_gathered=max_gathered, **settings), want)
    return want


# ------------------------------------------------------------------------------------------ several labels


def three_labels(seed=0, **of_samples):
    """Returns samples with three labels of 2, 3 and 2 classes, and settings."""
    x, y, settings = samples(seed=seed, **of_samples)
    rng = np.random.default_rng(seed)
    return x, np.stack([y, rng.integers(0, 3, len(y)), x[:, 3] > 0.3], axis=1) * 1, settings


@partitions
@gathered
@pytest.mark.parametrize("n_classes", [None, (2, 4, 2), 3])
@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_no_partition_changes_a_bit_of_several_labels(criterion, n_classes, max_gathered, cuts):
    x, y, settings = three_labels(missing=True, categories=True)
    settings |= {"n_classes": n_classes, "max_features": 4, "criterion": criterion}
    forest = equal(cuts, x, y, max_gathered=max_gathered, **settings)
    sizes = {None: (2, 3, 2), 3: (3, 3, 3)}.get(n_classes, n_classes)
    np.testing.assert_array_equal(forest.class_start, np.cumsum([0, *sizes]))


@gathered
@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_several_labels_with_weights_limits_and_projections(criterion, max_gathered):
    x, y, _ = three_labels(dtype=np.float32)
    weight = np.random.default_rng(2).integers(0, 4, len(y))
    settings = {"sample_weight": weight, "min_samples_leaf": 3, "max_leaf_nodes": 9, "bootstrap": False}
    equal(PARTITIONS["three"], x, y, max_gathered=max_gathered, criterion=criterion, **settings)
    settings = {"projections": project.sparse_distribution(7), "n_projections": 4, "criterion": criterion}
    want = projected(x, y, settings["projections"], criterion=criterion)
    assert_same_bits(grown(PARTITIONS["five"], x, y, max_gathered=max_gathered, **settings), want)


def test_an_engine_grows_trees_of_several_labels():
    x, y, _ = three_labels()
    given = [(x[a:b], y[a:b], None) for a, b in ((0, 20), (20, 120), (120, 200))]
    want = scale.grow_by_rows(None, x, y, N_TREES, rng=3)
    assert_same_bits(scale.grow_on_engine(Parts(), given, N_TREES, rng=3), want)


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        (lambda y: y[:, :2], {}, r"y: expected the same number of outputs on every worker, got \[2, 3\]"),
        (lambda y: y - 1, {}, r"y\[:, 0\]: expected .*on worker 1"),
        (lambda y: y, {"n_classes": (2, 3)}, "n_classes: expected an int, or 3 ints, got 2 ints"),
        (lambda y: y, {"n_classes": (2, 2, 2)}, r"y\[:, 1\]: expected 0 <= label < n_classes = 2, got 2"),
        (lambda y: y, {"n_classes": (2, 0, 2)}, "n_classes: expected"),
        (lambda y: np.where(y == 2, 4, y), {}, "y: expected labels 0 to 4 that each occur"),
    ],
)
def test_several_labels_that_are_refused(change, settings, message):
    x, y, _ = three_labels()
    given = divided(PARTITIONS["three"], x, y)

    def work(comm):
        rows, labels = given[comm.rank]
        return scale.grow_by_rows(comm, rows, change(labels) if comm.rank == 1 else labels, 2, **settings)

    for found in row_comms.run(3, work):
        with pytest.raises((ValueError, IndexError), match=f"^{message}"):
            raise found


# ---------------------------------------------------------------------------------- the Poisson deviance


def counts(n_outputs=1, scale=1.0, seed=0, **of_samples):
    """Returns samples with counts whose expectations depend on them, and settings."""
    x, _, settings = samples(seed=seed, **of_samples)
    expected = np.exp(0.5 * np.nan_to_num(x[:, :n_outputs].astype(np.float64)))
    y = np.random.default_rng(seed).poisson(expected) * scale
    return x, y, settings | {"task": "regression", "criterion": "poisson", "max_features": 4}


@partitions
@gathered
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_no_partition_changes_a_bit_of_counts(scale, n_outputs, max_gathered, cuts):
    x, y, settings = counts(n_outputs, scale, missing=True, categories=True)
    forest = equal(cuts, x, y, max_gathered=max_gathered, **settings)
    assert len(forest.feature) > 30


@gathered
@pytest.mark.parametrize("limits", [{"max_leaf_nodes": 9}, {"min_samples_leaf": 5, "max_depth": 4}])
def test_counts_with_weights_limits_and_projections(limits, max_gathered):
    x, y, settings = counts(dtype=np.float32)
    weight = np.random.default_rng(2).integers(0, 4, len(y))
    several = np.stack([y[:, 0], np.zeros(len(y))], axis=1)  # an output that is 0 everywhere
    given = {"sample_weight": weight, "bootstrap": False, **limits}
    equal(PARTITIONS["three"], x, several, max_gathered=max_gathered, **settings, **given)
    given = {"task": "regression", "criterion": "poisson", **limits}
    distribution = project.sparse_distribution(7)
    want = projected(x, y, distribution, **given)
    given |= {"projections": distribution, "n_projections": 4, "max_gathered": max_gathered}
    assert_same_bits(grown(PARTITIONS["five"], x, y, **given), want)


@pytest.mark.parametrize(
    ("change", "message"),
    [(-1, "targets of at least 0 .*, got -1.0; "), (0, "some targets above 0 .*, got only zeros; ")],
)
def test_targets_without_a_poisson_deviance_are_refused(change, message):
    x, y, settings = counts()
    y = np.minimum(y, change)
    with pytest.raises(ValueError, match=f'^y: expected {message}pass criterion="squared_error"'):
        grown(PARTITIONS["two"], x, y, **settings)


# --------------------------------------------------------------------------------- monotonic constraints

SIGNS = [1, -1, 0, 1, -1, 0, 0]
KINDS = {
    "labels": {},
    "targets": {"task": "regression"},
    "counts": {"task": "regression", "criterion": "poisson"},
}


def moving(kind, **of_samples):
    """Returns samples with labels or targets that two features move against SIGNS, and settings."""
    x, _, settings = samples(**of_samples)
    known = np.nan_to_num(x[:, [0, 3, 4]].astype(np.float64))
    noise = np.random.default_rng(1).normal(size=len(x))
    y = known @ [1, -0.7, 0.7] + np.abs(known[:, 1]) + 0.4 * noise
    if kind == "labels":
        y = (y > 0.5).astype(int)
    elif kind == "counts":
        y = np.maximum(np.round(2 * y), 0)
    return x, y, {"max_features": 4, "monotonic_cst": SIGNS} | settings | KINDS[kind]


@partitions
@gathered
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_partition_changes_a_bit_of_monotonic_trees(dtype, kind, max_gathered, cuts):
    x, y, settings = moving(kind, missing=True, categories=True, dtype=dtype)
    forest = equal(cuts, x, y, max_gathered=max_gathered, **settings)
    free = on_one_machine(x, y, bootstrap="poisson", **settings | {"monotonic_cst": None})
    assert len(forest.feature) > 20
    assert not np.array_equal(forest.feature, free.feature)


@gathered
@pytest.mark.parametrize("kind", ["labels", "targets"])
def test_monotonic_trees_with_weights_limits_and_entropy(kind, max_gathered):
    x, y, settings = moving(kind)
    weight = np.random.default_rng(2).integers(0, 4, len(y))
    settings |= {"sample_weight": weight, "bootstrap": False, "max_bins": 17}
    limits = ({"max_leaf_nodes": 9}, {"min_samples_leaf": 5, "max_depth": 4}, {"min_impurity_decrease": 0.02})
    for several in (*limits, {"criterion": "entropy"} if kind == "labels" else {}):
        equal(PARTITIONS["three"], x, y, max_gathered=max_gathered, **settings, **several)


@gathered
def test_missing_values_alone_are_above_all_others(max_gathered):
    x = np.array([[0.0], [1], [2], [3], [np.nan], [np.nan]] * 10)
    for sign, y in ((1, [4.0, 3, 2, 1, 9, 9]), (-1, [1.0, 2, 3, 4, -9, -9]), (1, [4.0, 3, 2, 1, -9, -9])):
        settings = {"task": "regression", "monotonic_cst": [sign], "max_depth": 3}
        forest = equal(PARTITIONS["three"], x, np.tile(y, 10), max_gathered=max_gathered, **settings)
        are_alone = forest.threshold[forest.tree_start[:-1]] == np.finfo(np.float64).max
        assert (are_alone == (sign * y[-1] > 0)).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"monotonic_cst": [1]}, r"expected shape \(n_features,\) = \(7,\), got \(1,\)"),
        ({"monotonic_cst": [[1] * 7]}, r"expected shape \(n_features,\) = \(7,\), got \(1, 7\)"),
        ({"monotonic_cst": 1}, r"expected shape \(n_features,\) = \(7,\), got \(\)"),
        ({"monotonic_cst": [2, *SIGNS[1:]]}, "expected only -1, 0 and 1, got 2"),
        ({"monotonic_cst": "rising"}, "expected"),
        ({"n_classes": 3}, "expected None .* more than two classes, got 3 of them"),
        ({"y": np.ones((200, 2)), "task": "regression"}, "expected None with several targets .*, got 2"),
        ({"y": np.ones((200, 2), int), "n_classes": 2}, "expected None with several targets .*, got 4"),
        ({"categorical": [4, 5, 6]}, "expected 0 for features that are categories, got -1 for feature 4"),
        ({"projections": project.sparse_distribution(7), "max_features": "auto"}, "expected None with projections"),
    ],
)  # fmt: skip
def test_constraints_that_are_refused(settings, message):
    x, y, given = moving("labels", categories=True)
    given |= settings
    with pytest.raises((ValueError, TypeError), match=f"^monotonic_cst: {message}"):
        scale.grow_by_rows(None, np.abs(x).round(), given.pop("y", y), 1, rng=0, **given)


def test_constraints_that_differ_between_workers_are_refused():
    x, y, settings = moving("labels")

    def work(comm):
        return scale.grow_by_rows(comm, x, y, 1, **settings | {"monotonic_cst": np.eye(7)[comm.rank]})

    for found in row_comms.run(2, work):
        with pytest.raises(ValueError, match="^monotonic: expected the same value on every worker"):
            raise found
