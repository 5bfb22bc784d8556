"""The CUDA backend of growth, on the host and on a GPU if there is one: forests are those of the CPU backend."""

import numpy as np
import pytest
from conftest import ON_GPU, assert_same_bits, entered
from growers import DISTRIBUTIONS, KINDS, grow, make, overlapping, problem
from test_growth_monotonic import data as constrained
from test_growth_monotonic import settings_of, violations

import hforest
from hforest import growth, tree
from hforest.growth.gpu import builder, candidates, small_nodes, structs

pytestmark = pytest.mark.kernels


def moved(a, move):
    """Returns an array, or a tuple with arrays, on another device."""
    if isinstance(a, tuple):
        parts = [moved(part, move) for part in a]
        return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
    return move(a) if hasattr(a, "dtype") else a


@pytest.fixture(params=["host", *ON_GPU])
def cuda(request):
    """Calls a function in the CUDA backend; arguments and results are NumPy arrays."""
    with entered(request.param):
        pass  # skips where it cannot run

    def call(function, *args, **settings):
        with entered(request.param) as backend:
            settings = {name: moved(a, backend.array) for name, a in settings.items()}
            return moved(function(*(moved(a, backend.array) for a in args), **settings), backend.numpy)

    return call


@pytest.fixture
def grown_alike(cuda):
    """Fails if the CUDA and the CPU backend do not grow the same forest, which is returned."""

    def check(*args, function=make, **settings):
        want = function(*args, **settings)
        assert_same_bits(cuda(function, *args, **settings), want)
        return want

    return check


def words(settings):
    return (
        "-".join(f"{name}={getattr(value, 'density', value)}" for name, value in settings.items()) or "plain"
    )


def learned(x, settings):
    """Returns y and the settings of `make`; writes missing values into x."""
    settings, rng, n = dict(settings), np.random.default_rng(1), len(x)
    n_classes, n_outputs = settings.pop("n_classes", 3), settings.pop("task", None)
    y = (n_classes * rng.random(n) ** (1 + (x[:, 0] > 0))).astype(np.int32)
    if n_outputs:
        y, n_classes = rng.normal(size=(n, n_outputs)) + x[:, :1], None
    x[rng.random(x.shape) < 0.2 * settings.pop("missing", False)] = np.nan
    if settings.pop("wide", False):
        y = np.where(rng.random((n, 1)) < 1 / n, 1e12, np.exp(8 * (y - x[:, :1])))
    weights = {
        "one": np.ones(n), "whole": rng.integers(0, 900, n) * 1.0, "real": rng.random(n),
        "wide": 10.0 ** rng.uniform(-12, 0, n),
        "great": rng.integers(0, 2**23, n) * 1.0, "most": np.full(n, 2.0**24), "half": np.full(n, 0.5),
    }  # fmt: skip
    settings["sample_weight"] = weights[settings.pop("weights", "one")]
    return y, {"n_classes": n_classes, "n_trees": 2, **settings}


@pytest.mark.parametrize("sizes", [(0, 2), (1, 3), (7, 0), (1000, 5)])
def test_host_counts(cuda, sizes):
    for seed in range(4):  # seeds of the generator in either half of 64 bits
        for function, more in (
            (growth.bootstrap_counts, {}), (growth.poisson_counts, {"first_row": 2}),
            (growth.poisson_counts, {"first_row": 2**40 + 3, "first_tree": 4}),
        ):  # fmt: skip
            want = function(*sizes, **more, rng=seed)
            np.testing.assert_array_equal(cuda(function, *sizes, **more, rng=seed), want)


@pytest.mark.parametrize("n", [1, 2, 300, 70_000])
@pytest.mark.parametrize("most", [None, 1, 5, 256])
def test_host_bins(cuda, dtype, n, most):
    x = np.concatenate([problem(n, 2, 2, dtype, n, coarse)[0] for coarse in (True, False)], axis=1)
    x[::3] *= -1  # zeros of either sign

    def bins(x):
        return hforest.samples(x, max_bins=most).bins()[:4]

    for a, b in zip(cuda(bins, x), bins(x), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_bins": 9, "max_features": None, "min_samples_leaf": 2},
        {"splitter": "random"},
        KINDS["sparse"](6),
    ],
    ids=words,
)
@pytest.mark.parametrize("weights", ["one", "whole", "real"])
def test_host_trees_by_ratios_of_sums(grown_alike, dtype, settings, weights):
    x, _ = problem(300, 6, dtype=dtype)
    y, settings = learned(x, settings | {"weights": weights, "missing": True, "task": 2})
    y = np.floor(np.exp(y))
    y[:, 1] *= 1e3
    assert (y == 0).any()
    for targets in (y, y[:, 0]):
        forest = grown_alike(x, targets, **settings, criterion="poisson")
        assert len(forest.feature) > 20
    several = np.stack([y[:, 0] > 0, np.minimum(y[:, 1] // 1e3, 3)], axis=1).astype(int)
    forest = grown_alike(x, several, **settings | {"n_classes": [2, 5]}, criterion="entropy")
    assert len(forest.feature) > 20


@pytest.mark.parametrize("memory", [1, 1 << 30])
@pytest.mark.parametrize(
    ("n_outputs", "settings"),
    [
        (None, {}),
        (None, {"criterion": "entropy", "max_features": 5, "bootstrap": False}),
        (None, {"max_bins": 16, "min_samples_leaf": 4, "max_depth": 6}),
        (None, {"splitter": "random", "max_features": 1}),
        (None, {"splitter": "random", "max_features": 4, "criterion": "entropy", "min_samples_leaf": 3}),
        (1, {"min_impurity_decrease": 0.001}),
        (3, {"max_features": 5, "min_samples_split": 9}),
        (2, {"splitter": "random", "bootstrap": False}),
        (1, {"splitter": "random", "max_features": None, "max_bins": 16, "min_impurity_decrease": 0.001}),
    ],
)
@pytest.mark.parametrize("weights", ["one", "whole", "real"])
def test_host_trees_are_those_of_the_cpu(
    grown_alike, monkeypatch, dtype, n_outputs, settings, weights, memory
):
    # Memory limits the number of trees that grow at a time; results do not depend on it.
    monkeypatch.setattr("hforest.growth.gpu.builder.memory", lambda xp: memory)
    rng = np.random.default_rng(0)
    x, y = problem(100, 6, dtype=dtype)
    x[:, 4] = np.round(x[:, 4])
    if n_outputs:
        y = rng.normal(size=(100, n_outputs)) + x[:, :1]
        settings = {"n_classes": None, **settings}
    given = {"one": np.ones(100), "whole": rng.integers(0, 4, 100).astype(float), "real": rng.random(100)}
    grown_alike(x, y, sample_weight=given[weights], **settings)


@pytest.fixture(params=[0, 100, small_nodes.SMALL])
def small(request, monkeypatch):
    """Samples of a node that a block grows to its leaves, at most."""
    for name in ("host.compiler.SMALL", "hforest.growth.gpu.small_nodes.SMALL"):
        monkeypatch.setattr(name, request.param)
    return request.param


@pytest.mark.parametrize("weights", ["one", "real"])
def test_host_levels_of_many_nodes_are_those_of_the_cpu(grown_alike, monkeypatch, dtype, weights):
    # More nodes than one block handles, and more than one block.
    for name in ("host.compiler.SMALL", "hforest.growth.gpu.small_nodes.SMALL"):
        monkeypatch.setattr(name, 0)
    widths, level = [], builder._level
    monkeypatch.setattr(
        builder, "_level", lambda task, nodes, *a: widths.append(len(nodes.first)) or level(task, nodes, *a)
    )  # fmt: skip
    x, y = problem(1500, 3, 2, dtype)
    weight = np.ones(1500) if weights == "one" else np.random.default_rng(0).random(1500)
    grown_alike(x, y, n_trees=40, n_classes=2, max_depth=11, sample_weight=weight)
    assert max(widths) > 2 * builder.NODES


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"n_classes": 20, "criterion": "entropy"},  # sums in global memory
        {"weights": "whole", "min_samples_leaf": 5, "max_bins": 16},
        {"weights": "real", "criterion": "entropy"},
        {"weights": "wide", "n_classes": 90, "max_bins": 256},
        {"task": 1, "min_weight_fraction_leaf": 0.01},
        {"task": 1, "weights": "real", "max_bins": 16},
        {"task": 1, "weights": "wide", "wide": True},
        {"task": 3, "max_bins": 16},
        {"task": 3, "weights": "whole", "wide": True},
        {"task": 80},
        {"splitter": "random"},
        {"task": 1, "splitter": "random"},
        {"missing": True},
        {"missing": True, "task": 1},
        {"columns": "constant"},
    ],
    ids=words,
)
def test_host_trees_of_large_nodes(grown_alike, small, settings):
    """Nodes that blocks share: of more than 256 samples, in several runs, tiles and blocks."""
    x = np.round(np.random.default_rng(1).normal(size=(5000, 6)), 2)
    y, settings = learned(x, settings)
    if settings.pop("columns", None):
        x[:, :4] = 0
        x[4000:, 2] = 1
    grown_alike(x, y, max_depth=5, **settings)


@pytest.fixture
def launched(monkeypatch):
    """Names of the kernels of growth, as they are launched."""
    names, launch = [], candidates.launch
    monkeypatch.setattr(candidates, "launch", lambda *a, **more: names.append(a[1]) or launch(*a, **more))
    return names


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"criterion": "entropy", "weights": "whole", "max_bins": 256},
        # As much shared memory as there may be.
        pytest.param({"n_classes": 20, "max_bins": 180}, marks=pytest.mark.slow),
        pytest.param({"task": 10}, marks=pytest.mark.slow),
        {"min_samples_leaf": 7, "max_features": 5, "min_impurity_decrease": 1e-4},
        {"min_weight_fraction_leaf": 0.01, "weights": "whole"},
        {"coarse": 1, "n_classes": 2},
        {"bootstrap": False, "max_features": 5, "n": 32},
        {"bootstrap": False, "max_features": 5, "n": 33},
        {"bootstrap": False, "max_features": 5, "n": 257},
        {"bootstrap": False, "weights": "great", "n": 400},  # sums of 32 bits
        {"bootstrap": False, "weights": "most", "n": 400},  # sums of more
        {"weights": "half"},
        {"weights": "wide", "criterion": "entropy"},
        {"task": 1},
        {"task": 1, "weights": "whole", "bootstrap": False, "n": 33},
        {"task": 3, "weights": "wide", "wide": True, "min_weight_fraction_leaf": 1e-9},
    ],
    ids=words,
)
def test_host_trees_of_counted_bins(grown_alike, small, launched, dtype, settings):
    """Bins of a byte: nodes of several chunks, of one, and of few samples; nothing is sorted."""
    settings = {"max_bins": 255, "max_depth": 12, **settings}
    n, coarse = settings.pop("n", 9000), settings.pop("coarse", 30)
    rng = np.random.default_rng(n)
    x = np.round(rng.normal(size=(n, 6)) * coarse).astype(dtype)
    x[:, 2] = 1
    x[:, 4] = x[:, 3]
    x[:, 5] = rng.random(n)
    y, settings = learned(x, settings)
    grown_alike(x, y, **settings)
    assert ("grow_counted" in launched) == (small > 0)
    assert ("score_bins" in launched) == (n > small)
    assert "count_bins" in launched or n <= max(small, 4096)
    assert not {"bin_keys", "count_runs", "grow_small"} & {*launched}


@pytest.mark.parametrize(
    "settings",
    [
        {"n_classes": 30},  # more than shared memory holds
        {"n_classes": 20, "weights": "real"},
        {"task": 15},
        {"max_bins": None},
        {"splitter": "random"},
        {"missing": True},
    ],
    ids=words,
)
def test_host_trees_whose_bins_are_not_counted(grown_alike, small, launched, settings):
    x, _ = problem(400, 3)
    y, settings = learned(x, {"max_bins": 255, "max_depth": 3, **settings})
    grown_alike(x, y, **settings)
    assert ("grow_small" if len(x) <= small else "bin_keys") in launched
    assert not {"score_bins", "grow_counted"} & {*launched}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"n_classes": 20, "weights": "real"},  # sums in global memory
        {"task": 2, "weights": "wide"},
        {"missing": True, "criterion": "entropy"},
        {"monotonic_cst": [-1, 1, 0, 1, 0, 1], "n_classes": 2},
        {**KINDS["sparse"](6), "max_features": "auto"},
        {**KINDS["sparse"](6), "max_features": "auto", "missing": True},
    ],
    ids=words,
)
@pytest.mark.parametrize("n_bytes", [0, 20_000])
def test_host_blocks_hold_keys_of_a_part_of_the_slots(grown_alike, monkeypatch, dtype, settings, n_bytes):
    # Keys of one slot of the largest nodes, or of a few slots, and of more below.
    monkeypatch.setattr(small_nodes, "BLOCK_BYTES", n_bytes)
    monkeypatch.setattr("host.compiler.SMALL", small_nodes.SMALL)
    x, _ = problem(500, 6, dtype=dtype)
    x[:, 3:] = np.round(x[:, 3:], 1)
    y, settings = learned(x, settings)
    grown_alike(x, y, **{"max_features": None, "bootstrap": False, **settings})


FILLED = {"place", "default_left", "root_weight", "sample", "u", "other_sample", "other_u"}
"""Members of Workspace that are written before a launch."""


def arrays_in(members):
    """Returns the members that are arrays, by name."""
    return {name: a for name, a in members.items() if isinstance(a, np.ndarray)}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"weights": "real", "n_classes": 20},  # sums in global memory
        {"max_bins": 255},
        {"splitter": "random"},
        {"splitter": "random", "missing": True},
        {"task": 2},
        {"task": 1, "weights": "real", "wide": True, "max_bins": 255},
        {"projections": DISTRIBUTIONS["sparse"](6)},
        {"projections": DISTRIBUTIONS["sparse"](6), "missing": True},
    ],
    ids=words,
)
def test_host_blocks_of_small_nodes_write_to_places_of_their_own(monkeypatch, settings):
    """Blocks run one after the other on the host, so results do not show whether they would disturb each other."""
    launch, n_launches = candidates.launch, 0

    def written(args, b, *call, **more):
        """Writes of block b alone, by member."""
        small = next(a for a in args if isinstance(a, structs.SmallNodes))
        one = small._replace(n_nodes=1, **{k: a[b : b + 1] for k, a in arrays_in(small._asdict()).items()})
        workspace = next(a for a in args if isinstance(a, small_nodes.Workspace))._asdict()
        workspace |= {k: a.copy() for k, a in arrays_in(workspace).items()}
        for name in arrays_in(workspace).keys() - FILLED:
            workspace[name].view(np.uint8).fill(0x5A)
        before = {k: a.copy() for k, a in arrays_in(workspace).items()}
        new = {structs.SmallNodes: one, small_nodes.Workspace: small_nodes.Workspace(**workspace)}
        # Targets, orders, and entries of projections, which are taken one after the other, are shared.
        copied = tuple(
            a._replace(**{k: m.copy() for k, m in arrays_in(a._asdict()).items()})
            if isinstance(a, structs.NodeEntries | structs.Orders | structs.Target)
            else new.get(type(a), a)
            for a in args
        )
        launch(*call, 1, copied, **more)
        return {
            k: set(np.flatnonzero((a.view(np.uint8) != workspace[k].view(np.uint8)).ravel()) // a.itemsize)
            for k, a in before.items()
        }

    def spy(folder, name, real, n_blocks, args, **more):
        nonlocal n_launches
        if name in ("grow_small", "grow_counted"):
            n_launches += 1
            blocks = [written(args, b, folder, name, real, **more) for b in range(n_blocks)]
            assert len(blocks) > 5
            for member in blocks[0]:
                places = [block[member] for block in blocks]
                assert sum(map(len, places)) == len(set().union(*places)), member
        launch(folder, name, real, n_blocks, args, **more)

    monkeypatch.setattr(candidates, "launch", spy)
    x, _ = problem(200, 6)
    y, settings = learned(x, settings)
    with entered("host"):
        make(x, y, **settings)
    assert n_launches


CONSTRAINED = {
    "gini": {"n_classes": 2},
    "entropy": {"n_classes": 2, "criterion": "entropy", "weights": "real"},
    "weights": {"n_classes": 2, "weights": "wide", "min_weight_fraction_leaf": 1e-9},
    "leaves": {"n_classes": 2, "weights": "whole", "min_samples_leaf": 5, "bootstrap": False},
    "counted": {"n_classes": 2, "max_bins": 99, "max_features": None},
    "counted weights": {"n_classes": 2, "max_bins": 255, "weights": "real", "max_leaf_nodes": 20},
    "missing": {"n_classes": 2, "missing": True, "max_leaf_nodes": 12},
    "random": {"n_classes": 2, "splitter": "random", "missing": True},
    "targets": {"task": 1},
    "real targets": {"task": 1, "weights": "real", "max_leaf_nodes": 12},
    "units": {"task": 1, "weights": "wide", "wide": True, "max_features": None, "min_samples_leaf": 4},
    "counted targets": {"task": 1, "max_bins": 99, "weights": "whole", "max_features": None},
    "missing targets": {"task": 1, "missing": True, "bootstrap": False, "max_leaf_nodes": 20},
    "random targets": {"task": 1, "splitter": "random", "min_samples_leaf": 3},
    "poisson": {"task": 1, "criterion": "poisson", "missing": True},
}


@pytest.mark.parametrize("case", CONSTRAINED)
def test_host_trees_with_monotonic_constraints(grown_alike, small, launched, dtype, case):
    x = np.round(np.random.default_rng(2).normal(size=(2000, 4)), 2).astype(dtype)
    y, settings = learned(x, CONSTRAINED[case])
    if settings.get("criterion") == "poisson":
        y = np.floor(np.exp(y))
    free = make(x, y, **settings)
    forest = grown_alike(x, y, **settings, monotonic_cst=[-1, 1, 0, 1])
    assert forest.value.shape != free.value.shape or (forest.value != free.value).any()
    assert ("grow_counted" in launched) == (small > 0 and "counted" in case)


@pytest.mark.parametrize("kind", ["labels", "targets"])
@pytest.mark.parametrize("missing", [0, 0.3])
def test_host_leaves_are_within_the_bounds_of_constraints(grown_alike, dtype, kind, missing):
    # Splits on the free feature leave the bounds, and leaves are clipped to them.
    x, y = constrained(90, kind, dtype=dtype, missing=missing)
    settings = {**settings_of(kind), "max_features": None, "bootstrap": False}
    assert violations(grown_alike(x, y, **settings), x) == 0


@pytest.mark.slow
def test_host_bins_of_many_chunks_are_counted(grown_alike, launched):
    n = 4096 * 66
    x = np.random.default_rng(0).integers(0, 9, (n, 2)).astype(np.float32)
    y = (x[:, 0] > x[:, 1]).astype(np.int32)
    grown_alike(x, y, sample_weight=np.ones(n), n_trees=1, n_classes=2, max_depth=2)
    assert "count_bins" in launched


def test_host_trees_on_wide_bins(grown_alike):
    x = np.arange(66_000.0)[:, None]
    y = (x[:, 0] > 40_000.5).astype(np.int32)
    assert hforest.samples(x).bins().bins.dtype == np.uint32
    grown_alike(x, y, sample_weight=np.ones(66_000), n_trees=1, n_classes=2, max_depth=2)


@pytest.mark.parametrize("kind", ["features", "sparse"])
def test_host_trees_on_windows(cuda, grown_alike, kind):
    windows, copies = overlapping()
    y = np.arange(len(copies), dtype=np.int32) % 3
    settings = {"sample_weight": np.ones(len(y)), **KINDS[kind](5)}
    assert_same_bits(grown_alike(windows, y, **settings), make(copies, y, **settings))


@pytest.mark.parametrize("splitter", ["best", "random"])
def test_host_nodes_sample_on_while_candidates_are_constant(grown_alike, splitter):
    x = np.zeros((20, 9))
    x[:, 5] = np.arange(20)
    y = (np.arange(20) > 9).astype(np.int32)
    grown_alike(x, y, splitter=splitter, sample_weight=np.ones(20), n_classes=2, n_trees=5)


def test_a_host_bootstrap_without_weight_takes_every_sample(grown_alike):
    x, y = problem(6, 2, 2)
    counts = np.array([[0, 3, 3, 0, 0, 0], [1, 0, 0, 0, 0, 1]], np.int32)
    weight = np.array([1.0, 0, 0, 0, 0, 2])
    grown_alike(x, y, sample_weight=weight, n_classes=2, n_trees=2, bootstrap=counts)


@pytest.mark.parametrize("memory", [1, 1 << 30])
@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@pytest.mark.parametrize("values", ["real", "whole"])
@pytest.mark.parametrize("to_fit", ["gini", "entropy", "random", "regression"])
def test_host_projected_trees_are_those_of_the_cpu(
    grown_alike, monkeypatch, dtype, kind, values, to_fit, memory
):
    monkeypatch.setattr("hforest.growth.gpu.builder.memory", lambda xp: memory)
    rng = np.random.default_rng(0)
    y, targets = rng.integers(0, 3, 80).astype(np.int32), rng.normal(size=(80, 2))
    x = rng.normal(size=(80, 12)) if values == "real" else rng.integers(0, 200, (80, 12))
    settings = {
        "gini": {"y": y, "min_samples_leaf": 2, "sample_weight": np.ones(80)},
        "entropy": {"y": y, "criterion": "entropy", "sample_weight": rng.random(80)},
        "random": {"y": y, "splitter": "random", "min_samples_leaf": 2},
        "regression": {"y": targets, "sample_weight": np.ones(80), "n_classes": None, "max_depth": 4},
    }[to_fit]
    grown_alike(x.astype(dtype), n_trees=2, projections=DISTRIBUTIONS[kind](12), **settings)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "settings",
    [
        {"class_weight": "balanced", "sample_weight": np.float32([0.5, 1, 2] * 40)},
        {"class_weight": {0: 2.0}, "criterion": "entropy", "max_bins": 256},
        {"task": "regression", "bootstrap": False},
    ],
    ids=["balanced", "entropy", "regression"],
)
def test_host_forests_are_those_of_the_cpu(grown_alike, dtype, kind, settings):
    x, y = problem(120, 5, dtype=dtype)
    if "task" in settings:
        y = x[:, :2] + 100

    def grown(x, y, max_bins=None, **settings):
        return grow(hforest.samples(x, max_bins=max_bins), y, 3, kind=kind, rng=1, **settings)

    tree.check(grown_alike(x, y, function=grown, **settings))


@pytest.mark.parametrize("weights", ["one", "real"])
@pytest.mark.parametrize("kind", ["features", "extra", "sparse"])
def test_host_several_labels(grown_alike, dtype, weights, kind):
    rng = np.random.default_rng(0)
    x, y = problem(100, 6, dtype=dtype)
    y, weight = np.stack([y, x[:, 0] > 0.2], axis=1), None if weights == "one" else rng.random(len(x))
    f = grown_alike(x, y, n_classes=[3, 2], sample_weight=weight, **KINDS[kind](6))
    np.testing.assert_array_equal(f.class_start, [0, 3, 5])
    grown_alike(x, y, n_classes=[4, 2], class_weight="balanced", **KINDS[kind](6))


@pytest.mark.parametrize("max_samples", [1, 0.4, 250])
def test_host_number_of_draws(grown_alike, max_samples):
    grown_alike(*problem(100, 6), max_samples=max_samples)


@pytest.mark.parametrize("memory", [1, 1 << 30])
@pytest.mark.parametrize("kind", ["features", "sparse"])
def test_host_weights_balanced_in_each_tree(grown_alike, monkeypatch, memory, kind):
    monkeypatch.setattr("hforest.growth.gpu.builder.memory", lambda xp: memory)
    x, y = problem(100, 6)
    weight = np.random.default_rng(0).random(len(x))
    for labels, n_classes in ((y, 3), (np.stack([y, x[:, 0] > 0.2], axis=1), [3, 2])):
        grown_alike(
            x, labels, n_classes=n_classes, sample_weight=weight, class_weight="balanced_subsample",
            **KINDS[kind](6),
        )  # fmt: skip
