"""CuPy on the stub device: differences between a GPU and NumPy. HFOREST_STUB runs them, see stub/__init__.py."""

import os

import numpy as np
import pytest
from host.case import small

import hforest
from hforest import co2, hinge, layers, neural, project, split, tree
from hforest.growth.gpu import builder, small_nodes

pytestmark = pytest.mark.skipif(
    "HFOREST_STUB" not in os.environ, reason="no stub device: HFOREST_STUB is not set"
)

FLOAT = np.float32


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


@pytest.fixture
def counted():
    from stub import counted

    with counted() as count:
        yield count


def _numbers(n=40, k=5):
    return small(np.random.default_rng(n).integers(-9, 10, (n, k)), FLOAT)


def _labels(n):
    return np.random.default_rng(1).integers(0, 3, n, np.int32)


def _equal(got, expected):
    for name, a in expected._asdict().items():
        b = getattr(got, name)
        if a is None or isinstance(a, np.dtype | int):
            assert a == b, name
        else:
            b = b.get() if hasattr(b, "get") else b
            assert a.dtype == b.dtype, name
            assert a.tobytes() == b.tobytes(), name


def _on_device(cupy, value):
    return cupy.asarray(value) if isinstance(value, np.ndarray) else value


def _both(cupy, function, *arrays, **settings):
    """Returns the tuple that a function returns on the host, and on the device, after a check that they are equal."""
    expected = function(*arrays, **settings)
    there = {name: _on_device(cupy, value) for name, value in settings.items()}
    got = function(*(_on_device(cupy, a) for a in arrays), **there)
    _equal(got, expected)
    return expected, got


# ------------------------------------------------------------------------------------------- the device itself


def test_operations_of_cupy_make_subnormals_0(cupy):
    a = cupy.asarray(small(np.arange(1, 5), FLOAT))
    assert a.get().all()
    # Not minimum: processors differ in whether it returns 0 or its argument.
    for b in (a + FLOAT(0), a.astype(np.float64), a * FLOAT(1)):
        assert not b.get().any()
    assert not (a != 0).any()
    assert (cupy.asarray(np.full(3, 1e-310)) != 0).all()  # float64


def test_raw_modules_of_cupy_make_subnormals_0(cupy):
    code = 'extern "C" __global__ void sum(const float *a, const float *b, float *c) { *c = *a + *b; }'
    a, b, c = (cupy.asarray(small(np.array([i]), FLOAT)) for i in (3, -1, 5))
    cupy.RawModule(code=code, options=("-ftz=false",)).get_function("sum")((1,), (1,), (a, b, c))
    assert not c.get().any()


def test_cupy_sorts_missing_values_by_their_sign(cupy):
    a = np.array([1, np.nan, -np.nan, -2], FLOAT)
    assert cupy.argsort(cupy.asarray(a)).get().tolist() == [2, 3, 0, 1]
    assert cupy.argsort(cupy.asarray(a[None]), axis=1).get().tolist() == [[3, 0, 1, 2]]


def test_fresh_memory_holds_a_pattern_and_empty_arrays_have_no_address(cupy):
    assert (cupy.empty(100, np.uint8).get() == 0xA5).all()
    assert cupy.empty((0, 3)).data.ptr == 0


def test_a_copy_beyond_an_array_is_refused(cupy):
    a = cupy.zeros(4)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorInvalidValue"):
        cupy.cuda.runtime.memcpy(np.zeros(9).ctypes.data, a.data.ptr, 9 * 8, 2)


def test_parameters_are_copied_by_their_declared_size(cupy):
    """As by the driver: the bytes after a parameter with too few bytes are not 0."""
    code = 'extern "C" __global__ void take(long long *a, long long n) { *a = n; }'
    a = cupy.zeros(1, np.int64)
    cupy.RawModule(code=code).get_function("take")((1,), (1,), (a, np.int64(-5)))
    assert a.get().tolist() == [-5]


# ---------------------------------------------------------------------------------------------------- checks


def test_the_values_of_a_call_are_checked_in_one_kernel_and_one_wait(cupy, counted):
    t, f, w = (cupy.asarray(a) for a in hinge.init(3, 2, 5, dtype=FLOAT, rng=0))
    x = cupy.asarray(np.random.default_rng(0).normal(size=(7, 5)).astype(FLOAT))
    state = hinge.adam_state(t, w)
    y, route = hinge.adam_forward(x, t, f, w, state, 1, 0.1)  # copies tables
    before = counted("waits"), counted("launch first_bad")
    hinge.adam_backward(y, route, x, t, f, w, state, 1, 0.1)
    assert counted("waits") == before[0] + 1
    assert counted("launch first_bad") == before[1] + 1
    before = counted("waits"), counted("launch first_bad")
    with hforest.unchecked():
        hinge.forward(x, t, f, w)
    assert (counted("waits"), counted("launch first_bad")) == before
    state.weights_last[1, 2] = 5
    f[2, 1] = 5
    with pytest.raises(IndexError, match=r"^features: .* < n_features = 5, got 5 at index \(2, 1\)"):
        hinge.adam_backward(y, route, x, t, f, w, state, 2, 0.1)
    f[2, 1] = 4
    with pytest.raises(ValueError, match=r"^state.weights_last: .* <= step - 1 = 1, got 5 at index \(1, 2\)"):
        hinge.adam_backward(y, route, x, t, f, w, state, 2, 0.1)


# --------------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("kind", ["tree", "fern"])
def test_margins_may_be_subnormal(cupy, kind):
    x, t = _numbers(30, 4), small(np.random.default_rng(0).integers(-9, 10, (3, 3)), FLOAT)
    f = np.random.default_rng(0).integers(0, 4, (3, 3), np.int32)
    expected, _ = _both(cupy, hinge.traverse, x, t, f, kind=kind)
    assert (np.abs(expected.margin) < np.finfo(FLOAT).tiny).all()


@pytest.mark.parametrize("max_bins", [None, 7])
@pytest.mark.parametrize("missing", [False, True])
def test_bins_and_trees_of_small_numbers(cupy, max_bins, missing):
    x, y = _numbers(), _labels(40)
    if missing:
        x[::3, 0], x[1::4, 1], x[::7, 0] = np.nan, -np.nan, -np.nan
    samples, there = (hforest.samples(a, max_bins=max_bins) for a in (x, cupy.asarray(x)))
    _equal(there.bins(), samples.bins())
    settings = {"n_trees": 3, "n_classes": 3, "max_features": 2, "rng": 0}
    grown = hforest.grow(samples, y, **settings)
    assert len(grown.feature) > 30
    _equal(hforest.grow(there, cupy.asarray(y), **settings), grown)


@pytest.mark.parametrize(
    ("regression", "projected", "n_values", "most"),
    [(False, False, None, 12), (False, False, 200, 9), (True, False, None, 20), (False, True, None, 12)],
)
def test_launches_and_waits_of_a_level_depend_on_nothing(
    cupy, counted, monkeypatch, regression, projected, n_values, most
):
    """Nor on the number of trees and nodes; the launches of CuPy's sort are not counted. Levels of small nodes
    take none. A level of targets takes 13, and 7 more where some nodes want units of their own."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(900, 6)), rng.normal(size=900) if regression else rng.integers(0, 2, 900)
    if n_values:  # bins of a byte are counted
        x = rng.integers(0, n_values, x.shape)
    x, there = cupy.asarray(x.astype(FLOAT)), cupy.asarray(y)
    samples = x if projected else hforest.samples(x)
    settings = {"task": "regression" if regression else "classification", "rng": 0}
    if projected:
        settings |= {"projections": project.sparse_distribution(6, 3.0), "n_projections": 4}
    monkeypatch.setattr("hforest.growth.gpu.builder._collect", lambda *a: a[-1].append(a[2]))
    monkeypatch.setattr("hforest.growth.unchecked.forest", lambda trees, *more, **settings: trees)
    monkeypatch.setattr("hforest.growth.growing.marked", lambda trees: trees)

    def counts(n_trees, depth):
        before = counted("launches"), counted("waits")
        levels = hforest.grow(samples, there, n_trees, max_depth=depth, **settings)[0]
        assert len(levels) == (depth + 1 if len(x) == 900 else 2)
        return np.array([counted("launches") - before[0], counted("waits") - before[1]])

    small = small_nodes.SMALL
    monkeypatch.setattr(small_nodes, "SMALL", 0)
    counts(1, 1)  # encodes
    for n_trees in (1, 5):
        for depth in (1, 7):
            launches, waits = counts(n_trees, depth + 1) - counts(n_trees, depth)
            assert waits == 1
            assert launches <= most
    monkeypatch.setattr(small_nodes, "SMALL", small)
    x, there = x[:250], there[:250]
    samples = x if projected else hforest.samples(x)
    counts(1, 1)
    assert (counts(5, 2) == counts(5, 9)).all()


@pytest.mark.parametrize("settings", [{"max_features": 2}, {"max_features": 30}, {"splitter": "random"}])
@pytest.mark.parametrize(("regression", "max_bins"), [(False, None), (False, 255), (True, None)])
def test_trees_take_no_more_memory_than_the_setting(cupy, monkeypatch, regression, max_bins, settings):
    from stub import counted

    rng = np.random.default_rng(0)
    samples = hforest.samples(cupy.asarray(rng.normal(size=(2000, 30)).astype(FLOAT)), max_bins=max_bins)
    samples.bins()
    y = cupy.asarray(rng.normal(size=2000) if regression else rng.integers(0, 2, 2000))
    one = []
    bytes_a_sample = builder.bytes_a_sample
    monkeypatch.setattr(builder, "bytes_a_sample", lambda *a: one.append(bytes_a_sample(*a)) or one[-1])
    for n_trees, setting in ((3, 1), (20, 8 << 20)):
        monkeypatch.setattr(builder, "memory", lambda xp, setting=setting: setting)
        with counted() as count:
            task = "regression" if regression else "classification"
            hforest.grow(samples, y, n_trees, task=task, rng=0, **{"max_features": "sqrt", **settings})
            assert 0 < count("bytes") <= max(setting, 2000 * one[-1])


def test_windows_of_small_numbers(cupy):
    x, base, offset = _numbers(6, 12), np.arange(6) * 12, np.array([0, 1, 5, 8])
    here, there = (
        hforest.samples(a, windows=places)
        for a, *places in ((x, base, offset), map(cupy.asarray, (x, base, offset)))
    )
    _equal(there.bins(), here.bins())


@pytest.mark.parametrize("missing", [False, True])
def test_forests_reach_the_same_leaves_by_small_numbers(cupy, missing):
    x, y = _numbers(400), _labels(400)
    if missing:
        x[::9, 0], x[1::7, 1] = np.nan, -np.nan
    forest, there = _both(cupy, hforest.grow, x, y, 5, n_classes=3, rng=0)
    for some in (x, x[:3]):
        assert (tree.apply(there, cupy.asarray(some)).get() == tree.apply(forest, some)).all()


def test_small_numbers_are_converted(cupy):
    """Targets and weights are converted to float64, samples to the dtype of a forest: CuPy would make them 0."""
    x, y, weight = _numbers(70), _numbers(70, 2), small(np.arange(70) % 4, FLOAT)
    forest, there = _both(cupy, hforest.grow, x, y, 3, sample_weight=weight, task="regression", rng=0)
    assert len(forest.feature) > 30
    wide = np.concatenate([x, x * 0.37, -x, [[0.0, -0.0, np.nan, 2.0**-126, 2.0**-150]], x * 1e-5])
    wide = np.where(np.isnan(wide), 0, wide).astype(np.float64)
    assert (tree.apply(there, cupy.asarray(wide)).get() == tree.apply(forest, wide)).all()


@pytest.mark.parametrize("max_bins", [None, 5])
def test_splits_of_small_numbers(cupy, max_bins):
    values, y = _numbers(5, 70), _labels(70)
    expected = split.best_split(values, y, n_classes=3, max_bins=max_bins)
    got = split.best_split(cupy.asarray(values), cupy.asarray(y), n_classes=3, max_bins=max_bins)
    assert got == expected
    assert 0 < abs(got.threshold) < np.finfo(FLOAT).tiny


@pytest.mark.parametrize("standardize", [False, True])
def test_forests_of_co2_on_small_numbers(cupy, standardize):
    x, y = _numbers(30, 4), _labels(30)
    settings = {"n_trees": 2, "min_samples_oblique": 9, "standardize": standardize, "max_rounds": 2, "rng": 0}
    expected, got = _both(cupy, co2.grow, x, y, **settings)
    assert len(expected.feature) > 2
    assert (tree.apply(got, cupy.asarray(x)).get() == tree.apply(expected, x)).all()


def test_the_number_below_an_offset_of_0(cupy):
    x, y = np.array([[-1], [-1], [1], [1]], FLOAT), np.array([0, 0, 1, 1], np.int32)
    settings = {
        "min_samples_oblique": 1,
        "standardize": False,
        "max_rounds": 1,
        "lr": 1e-30,
        "bootstrap": False,
        "rng": 0,
    }
    _both(cupy, co2.grow, x, y, 1, **settings)


@pytest.mark.parametrize("weighted", [False, True])
def test_surrogates_of_small_targets(cupy, weighted):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(30, 3)).astype(FLOAT), np.zeros(3, FLOAT)
    y, theta = _numbers(30, 2), _numbers(2, 2)
    # Weights that float32 holds as subnormals count too.
    weight = np.abs(_numbers(1, 30)[0]) if weighted else np.ones(30, FLOAT)
    arguments, settings = (x, y, w, *theta), {"loss": "squared"}
    expected = co2.surrogate(*arguments, sample_weight=weight, **settings)
    assert expected > 0
    there = tuple(map(cupy.asarray, arguments))
    assert co2.surrogate(*there, sample_weight=cupy.asarray(weight), **settings) == expected
    grads, _ = _both(cupy, co2.surrogate_grad, *arguments, sample_weight=weight, **settings)
    assert weighted or grads.theta0.any()


def test_stumps_of_small_targets(cupy):
    x, y = np.ones((8, 1), FLOAT), _numbers(8, 2)
    w = np.ones(1, FLOAT)
    expected, _ = _both(cupy, co2.fit_stump, x, y, w, lr=0.1, max_rounds=0, task="regression", rng=0)
    assert expected.theta1.all()


def test_trees_of_small_targets(cupy):
    x, y = np.random.default_rng(0).normal(size=(40, 5)).astype(FLOAT), _numbers(40, 2)
    expected, _ = _both(cupy, hforest.grow, x, y, 2, task="regression", rng=0)
    assert len(expected.feature) > 30


def test_importances_by_small_targets(cupy):
    x, y = np.random.default_rng(0).normal(size=(40, 2)).astype(FLOAT), _numbers(40, 1)
    expected, got = (
        tree.permutation_importance(
            hforest.grow(*data, 2, task="regression", rng=0), *data, task="regression", n_repeats=2, rng=0
        )
        for data in ((x, y), (cupy.asarray(x), cupy.asarray(y)))
    )
    assert expected.all()
    # Means over trees may round differently.
    np.testing.assert_allclose(got, expected, rtol=1e-3)


def test_small_numbers_are_no_categories(cupy):
    x = np.abs(_numbers(9, 2))
    for some in (x, cupy.asarray(x)):
        with pytest.raises(ValueError, match="x: expected whole numbers 0 to 65535 or NaN in columns of"):
            hforest.samples(some, categorical=[1])


def test_gradients_of_small_weights(cupy):
    rng = np.random.default_rng(0)
    f, y = rng.normal(size=(20, 2, 3)).astype(FLOAT), _labels(20)
    leaves = rng.dirichlet(np.ones(3), (2, 4)).astype(FLOAT)
    weight = np.where(np.arange(20) % 2, 1, 1e-38)
    expected, grad = neural.loss_backward(f, leaves, y, sample_weight=weight)
    loss, got = neural.loss_backward(*map(cupy.asarray, (f, leaves, y)), sample_weight=cupy.asarray(weight))
    assert (grad != 0).all()
    assert (np.abs(grad[::2]) < np.finfo(FLOAT).tiny).all()
    np.testing.assert_allclose(got.get(), grad, rtol=1e-4, atol=3e-45)
    assert abs(loss - expected) < 1e-6 * expected


def test_losses_of_small_numbers(cupy):
    prediction, y = _numbers(20, 3), _numbers(3, 20).reshape(20, 3)
    expected, grad = layers.squared_loss(prediction, y)
    loss, got = layers.squared_loss(cupy.asarray(prediction), cupy.asarray(y))
    assert grad.any()
    assert got.get().tobytes() == grad.tobytes()
    assert abs(loss - expected) < 1e-12 * expected
    scores = np.where(np.arange(3) == 1, 0, -90 - np.arange(20)[:, None] / 5).astype(FLOAT)
    _, grad = layers.softmax_loss(scores, np.ones(20, np.int32))
    _, got = layers.softmax_loss(cupy.asarray(scores), cupy.ones(20, np.int32))
    assert (grad[:, [0, 2]] > 0).any()
    assert (grad[:, [0, 2]] < np.finfo(FLOAT).tiny).all()
    np.testing.assert_allclose(got.get(), grad, rtol=1e-6, atol=2e-45)


# ---------------------------------------------------------------------------------------- devices and counts


def test_arrays_of_another_device_are_refused(cupy):
    x, t, f = np.ones((2, 3), FLOAT), np.zeros((1, 1), FLOAT), np.zeros((1, 1), np.int32)
    with cupy.cuda.Device(1):
        arrays = [cupy.asarray(a) for a in (x, t, f)]
        leaf = hinge.traverse(*arrays).leaf
    assert leaf.device.id == 1
    with pytest.raises(ValueError, match="x: expected device 0, the current one, got device 1; call inside"):
        hinge.traverse(*arrays)
    with pytest.raises(ValueError, match="thresholds: expected device 0"):
        hinge.traverse(cupy.asarray(x), *arrays[1:])


def test_a_hinge_tree_neither_waits_nor_copies(cupy, counted):
    x, t, f = (
        cupy.asarray(a) for a in (np.ones((9, 3), FLOAT), np.zeros((2, 3), FLOAT), np.zeros((2, 3), np.int32))
    )
    w = cupy.zeros((2, 4, 5), FLOAT)
    with hforest.unchecked():
        hinge.forward(x, t, f, w)
        before = {name: counted(name) for name in ("launches", "waits", "to host", "to device")}
        hinge.forward(x, t, f, w)
    changes = {name: counted(name) - n for name, n in before.items()}
    assert changes.pop("launches") > 0
    assert changes == {"waits": 0, "to host": 0, "to device": 0}
    assert counted("launch route_column") > 0


@pytest.mark.parametrize("missing", [False, True])
def test_importances_wait_for_scores_alone(cupy, counted, missing):
    """Inside unchecked(): a permutation is not searched for missing values."""
    x, y = _numbers(70, 3), _labels(70)
    if missing:
        x[::9, 0], x[1::7, 1] = np.nan, -np.nan
    forest, there = _both(cupy, hforest.grow, x, y, 3, rng=0)
    expected = tree.permutation_importance(forest, x, y, n_repeats=4, rng=0)
    with hforest.unchecked():
        waits = []
        for n_repeats in (1, 4):
            before = counted("waits")
            settings = {"n_repeats": n_repeats, "rng": 0}
            got = tree.permutation_importance(there, cupy.asarray(x), cupy.asarray(y), **settings)
            waits.append(counted("waits") - before)
    assert got.tobytes() == expected.tobytes()
    assert waits[1] - waits[0] == (4 - 1) * x.shape[1]


def test_the_softmax_loss_waits_for_its_checks_alone(cupy, counted):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(70, 3)).astype(FLOAT)
    for y in (rng.integers(0, 3, 70, np.int32), rng.integers(0, 3, 70)):
        expected, grad = layers.softmax_loss(scores, y)
        on_device = cupy.asarray(scores), cupy.asarray(y)
        with hforest.unchecked():
            waits = counted("waits")
            loss, got = layers.softmax_loss(*on_device)
            assert counted("waits") == waits
        assert isinstance(loss, cupy.ndarray)
        assert abs(float(loss) - expected) < 1e-12
        np.testing.assert_allclose(got.get(), grad, rtol=1e-6)
        waits = counted("waits")
        layers.softmax_loss(*on_device)
        assert counted("waits") == waits + 1


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_labels_that_are_no_class_are_refused(cupy, dtype):
    scores = cupy.zeros((3, 2), FLOAT)
    with pytest.raises(IndexError, match="y: expected 0 <= label < n_classes = 2, got 2"):
        layers.softmax_loss(scores, cupy.asarray(np.array([0, 2, 1], dtype)))
    if np.issubdtype(dtype, np.signedinteger):
        with pytest.raises(IndexError, match="y: expected labels of at least 0, got -1"):
            layers.softmax_loss(scores, cupy.asarray(np.array([0, -1, 1], dtype)))


def test_a_step_of_training_is_three_kernels_or_five(cupy, counted):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(53, 4)).astype(FLOAT), rng.integers(0, 3, 53, np.int32)
    t, f, w = hinge.init(6, 3, 4, 3, rng=0)

    def one(x, y, *arrays):
        return hinge.adam_step(x, y, *arrays, 0.01)

    def parts(x, y, *arrays):
        scores, route = hinge.adam_forward(x, *arrays, 0.01)
        loss, grad = layers.softmax_loss(scores, y)
        return loss, scores, hinge.adam_backward(grad, route, x, *arrays, 0.01)

    for step, n_launches in ((one, 3), (parts, 5)):
        here, there = ([move(a.copy()) for a in (x, y, t, f, w)] for move in (np.asarray, cupy.asarray))
        state, state_there = (hinge.adam_state(a[2], a[4]) for a in (here, there))
        for number in range(1, 5):
            expected = step(*here, state, number)
            before = counted("launches"), counted("waits")
            with hforest.unchecked():
                got = step(*there, state_there, number)
            taken = counted("launches") - before[0], counted("waits") - before[1]
            for a, b in zip((*got, *there, *state_there), (*expected, *here, *state), strict=True):
                assert b is None or np.array_equal(a.get(), b)
        assert taken == (n_launches, 0)  # the last one: the first makes the tables of Adam
