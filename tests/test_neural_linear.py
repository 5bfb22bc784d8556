"""Shallow neural forests: training, resumption, hard trees."""

import numpy as np
import pytest
from conftest import assert_same_bits, converted

from hforest import neural, tree
from hforest.demo import load_digits

pytestmark = pytest.mark.kernels


def blobs(n=120, n_features=6, n_classes=3, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % n_classes).astype(np.int32)
    return (rng.normal(size=(n, n_features)) + y[:, None]).astype(dtype), y


def model_of(n_trees=4, depth=3, dtype=np.float32, max_features=4):
    start = neural.linear_init(n_trees, depth, 6, 3, max_features=max_features, dtype=dtype, rng=0)
    rng = np.random.default_rng(1)
    leaves = rng.dirichlet(np.ones(3), size=(n_trees, 2**depth)).astype(dtype)
    return start._replace(leaves=leaves / leaves.sum(axis=2, keepdims=True))


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    mean, deviation = data.x_train.mean(), data.x_train.std()
    x, x_test = (((a - mean) / deviation).astype(np.float32) for a in (data.x_train, data.x_test))
    return x, data.y_train.astype(np.int32), x_test, data.y_test.astype(np.int32)


def test_decisions_by_hand(dtype):
    model, (x, _) = model_of(dtype=dtype), blobs(dtype=dtype)
    f = neural.decisions(model, x)
    for i, m, v in ((0, 0, 0), (5, 3, 6), (119, 2, 4)):
        want = sum(x[i, c] * w for c, w in zip(model.features[m], model.weights[m, :, v], strict=False))
        assert f[i, m, v] == pytest.approx(want + model.weights[m, -1, v], rel=1e-4, abs=1e-5)
    np.testing.assert_allclose(neural.predict(model, x), neural.forward(f, model.leaves), rtol=1e-5)


def test_features_are_sampled_without_replacement():
    model = neural.linear_init(200, 1, 10, 2, max_features=4, rng=0)
    assert all(len(set(row)) == 4 for row in model.features.tolist())
    assert (np.bincount(model.features.ravel(), minlength=10) > 50).all()
    assert neural.linear_init(2, 1, 10, 2, rng=0).features.tolist() == [list(range(10))] * 2


@pytest.mark.parametrize("loss", ["tree", "forest"])
def test_weights_count_samples(loss):
    """One batch of all samples: a step with weights is one with repeated samples, up to rounding."""
    x, y = blobs(dtype=np.float64)
    times = np.random.default_rng(1).integers(0, 4, 120)
    of = np.repeat(np.arange(120), times)
    start, settings = model_of(dtype=np.float64), {"epochs": 3, "batch_size": 1000, "loss": loss, "rng": 0}
    # Columns keep their units, which are those of samples, not of weights.
    settings["standardize"] = False
    losses: list[float] = []
    more: list[float] = []
    got = neural.fit(start, x, y, sample_weight=times * 0.3, history=losses, **settings)
    want = neural.fit(start, x[of], y[of], history=more, **settings)
    np.testing.assert_allclose(got.weights, want.weights, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(got.leaves, want.leaves, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(losses, more)


def test_weights_of_batches_count(digits):
    x, y = digits[0][::9][:400], digits[1][::9][:400]
    start = neural.linear_init(3, 4, 64, 10, x=x, rng=0)

    def found(**weights):
        model = neural.fit(start, x, y, epochs=4, rng=0, **weights)
        return model.weights.tobytes() + model.leaves.tobytes(), neural.predict(model, x)

    plain, p = found()
    assert found(sample_weight=np.full(400, 7.0))[0] == plain
    assert found(class_weight={})[0] == plain
    heavy, q = found(class_weight={3: 50})
    assert heavy != plain
    assert q[:, 3].sum() > p[:, 3].sum()
    of_samples = np.where(y == 3, 50, 1)
    assert found(sample_weight=of_samples)[0] == heavy
    assert found(sample_weight=np.where(y == 3, 25, 1), class_weight=[1, 1, 1, 2] + [1] * 6)[0] == heavy
    # Samples of weight 0 are left out.
    kept = np.arange(400) % 3 > 0
    alone = neural.fit(start, x[kept], y[kept], epochs=4, rng=0)
    assert found(sample_weight=kept)[0] == alone.weights.tobytes() + alone.leaves.tobytes()


def test_the_loss_of_an_epoch_is_the_mean_by_weight(dtype):
    # With steps of almost no length, weighted batches have the loss of all samples.
    x, y = blobs(dtype=dtype)
    weight = np.where(np.arange(120) % 4, 0.1, 10)
    losses: list[float] = []
    for size in (120, 10):
        neural.fit(
            model_of(dtype=dtype), x, y, sample_weight=weight, epochs=1, batch_size=size, lr=1e-12,
            last_lr=1e-12, history=losses, rng=0,
        )  # fmt: skip
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


# -------------------------------------------------------------------------------- on-line training


def arrays_of(model, state):
    return b"".join(a.tobytes() for a in (*model, *state))


def test_online_training_in_parts_is_that_in_one_call(dtype):
    x, y = blobs(dtype=dtype)
    weight = np.random.default_rng(0).uniform(0.5, 2, 120)
    start = model_of(dtype=dtype)
    before = start.weights.copy(), start.leaves.copy()
    for w in (None, weight):

        def fitted(rows, model, state=None, w=w, standardize=False):
            of_rows = None if w is None else w[rows]
            settings = {"batch_size": 10, "sample_weight": of_rows, "standardize": standardize}
            return neural.partial_fit(model, x[rows], y[rows], state=state, **settings)

        whole = fitted(slice(0, 120), start)
        assert int(whole[1].n_steps) == 12
        parts = fitted(slice(50, 120), *fitted(slice(0, 50), start))
        assert arrays_of(*parts) == arrays_of(*whole)
    np.testing.assert_array_equal(before[0], start.weights)
    np.testing.assert_array_equal(before[1], start.leaves)


def test_an_online_step_by_hand():
    """One batch: the statistics of the leaves, their shares, and a step of Adam with the leaves' gradient."""
    from hforest import optim

    x, y = blobs(40, dtype=np.float64)
    start = model_of(dtype=np.float64)
    weight = np.random.default_rng(0).uniform(0.5, 2, 40)
    model, state = neural.partial_fit(
        start, x, y, batch_size=40, lr=0.02, sample_weight=weight, standardize=False
    )
    f = neural.decisions(start, x)
    mu = neural.route(f)
    mass = np.zeros_like(start.leaves)
    for n in range(40):
        for m in range(4):
            joint = mu[n, m] * start.leaves[m, :, y[n]]
            mass[m, :, y[n]] += weight[n] * joint / joint.sum()
    mass /= weight.sum()
    late = 2**-0.7
    mass = (1 - late) * start.leaves * mass.sum(axis=2, keepdims=True) + late * mass
    np.testing.assert_allclose(state.mass, mass, rtol=1e-12)
    assert state.mass.sum(axis=(1, 2)) == pytest.approx(np.ones(4))
    leaves = mass + 1e-9 / 3
    leaves /= leaves.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(model.leaves, leaves, rtol=1e-12)
    _, grad_f = neural.loss_backward(f, leaves, y, loss="tree", sample_weight=weight)
    weights, (m1, m2) = start.weights.copy(), np.zeros((2, *start.weights.shape))
    inputs = [np.column_stack([x[:, start.features[m]], np.ones(40)]) for m in range(4)]
    grad = np.stack([inputs[m].T @ grad_f[:, m] for m in range(4)]) * weight.mean()
    optim.adam(weights, grad, m1, m2, 1, 0.02)
    np.testing.assert_allclose(model.weights, weights, rtol=1e-9)
    np.testing.assert_allclose(state.m, m1, rtol=1e-9)
    np.testing.assert_allclose(state.v, m2, rtol=1e-9)


def test_online_units_are_those_of_the_first_call():
    x, y = blobs(dtype=np.float64)
    far = x * [1e-3, 1, 10, 1e3, 1, 1] + [0, 5, 0, 0, 100, 0]
    results = []
    for samples in (x, far):
        model = neural.linear_init(4, 3, 6, 3, x=samples[:60], dtype=np.float64, rng=0)
        model, state = neural.partial_fit(model, samples[:60], y[:60])
        np.testing.assert_allclose(state.mean, samples[:60].mean(axis=0))
        np.testing.assert_allclose(state.deviation, samples[:60].std(axis=0))
        model, after = neural.partial_fit(model, samples[60:], y[60:], state=state)
        assert after.mean.tobytes() == state.mean.tobytes()
        results.append(neural.predict(model, samples))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


def test_digits_come_in_batches(digits):
    x, y, x_test, y_test = digits
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    model, state = neural.linear_init(20, 6, 64, 10, max_features=24, x=x[:300], rng=0), None
    losses = []
    for _ in range(3):
        for first in range(0, len(x), 300):
            part = slice(first, first + 300)
            model, state = neural.partial_fit(model, x[part], y[part], state=state)
        p = neural.predict(model, x_test)
        losses.append(-np.log(p[np.arange(len(p)), y_test]).mean())
    assert losses[2] < losses[0]
    assert (p.argmax(axis=1) != y_test).mean() < 0.06
    np.testing.assert_allclose(model.leaves.sum(axis=2), 1, rtol=1e-5)


def test_a_class_that_comes_late_is_learned():
    x, y = blobs(300, dtype=np.float32)
    early, late = y < 2, y == 2
    model, state = neural.partial_fit(neural.linear_init(5, 4, 6, 3, rng=0), x[early], y[early])
    for _ in range(30):
        model, state = neural.partial_fit(model, x[early], y[early], state=state)
    assert neural.predict(model, x)[:, 2].max() < 1e-3
    for _ in range(10):
        model, state = neural.partial_fit(model, x, y, state=state)
    assert (neural.predict(model, x[late]).argmax(axis=1) == 2).mean() > 0.8


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": np.zeros((0, 6)), "y": np.zeros(0, int)}, ValueError, "x: expected at least 1 sample"),
        ({"y": [0, 1, 3]}, IndexError, "y: expected"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"lr": 0.0}, ValueError, "lr"),
        ({"loss": "sum"}, ValueError, "loss"),
        ({"standardize": 1}, TypeError, "standardize"),
        ({"sample_weight": [0, 0, 0]}, ValueError, "sample_weight: expected at least one weight above 0"),
        ({"state": ()}, TypeError, "state: expected an OnlineState, got tuple; pass"),
        ({"state": {"mass": np.zeros((4, 8, 2))}}, ValueError, "state.mass: expected shape"),
        ({"state": {"m": np.zeros((4, 5, 7))}}, TypeError, "state.m: expected"),
        ({"state": {"deviation": np.zeros(6)}}, ValueError, "state.deviation: expected deviations above 0"),
        ({"state": {"n_steps": np.array(0)}}, ValueError, "state.n_steps"),
        ({"state": {"mean": np.full(6, np.nan)}}, ValueError, "state.mean: expected finite"),
    ],
)
def test_wrong_arguments_of_online_training(change, error, message):
    x, y = blobs(3)
    model, state = neural.partial_fit(model_of(), x, y)
    call = {"x": x, "y": y, "state": state, **change}
    if isinstance(call["state"], dict):
        call["state"] = state._replace(**call["state"])
    with pytest.raises(error, match=message):
        neural.partial_fit(model, call.pop("x"), call.pop("y"), **call)


def test_digits(digits):
    x, y, x_test, y_test = digits
    start = neural.linear_init(20, 6, 64, 10, max_features=24, rng=0)
    losses: list[float] = []
    model = neural.fit(start, x, y, epochs=6, lr=0.05, history=losses, rng=0)
    assert len(losses) == 6
    assert losses[-1] < 0.5 * losses[0]
    error = (neural.predict(model, x_test).argmax(axis=1) != y_test).mean()
    assert error < 0.04
    hard = tree.predict(neural.to_hard(model, 64), x_test).argmax(axis=1)
    assert (hard != y_test).mean() < error + 0.06
    assert (start.leaves == np.float32(0.1)).all()


def test_hard_trees_follow_the_signs(dtype):
    model, (x, _) = model_of(dtype=dtype), blobs(dtype=dtype)
    f = neural.decisions(model, x)
    assert abs(f).min() > 1e-6
    forest = tree.check(neural.to_hard(model, 6))
    want = np.zeros((len(x), 3))
    for i in range(len(x)):
        for m in range(4):
            v = 0
            while v < 7:
                v = 2 * v + 1 + (f[i, m, v] < 0)  # the left child is the positive side
            want[i] += model.leaves[m, v - 7] / 4
    np.testing.assert_allclose(tree.predict(forest, x), want, rtol=1e-5)


def test_hard_trees_agree_with_soft_ones_where_decisions_are_sure():
    model, (x, _) = model_of(), blobs()
    sure = model._replace(weights=model.weights * np.float32(1e6))
    np.testing.assert_allclose(
        tree.predict(neural.to_hard(sure, 6), x), neural.predict(sure, x), rtol=1e-4, atol=1e-6
    )


def test_training_goes_on_to_the_same_bits(digits):
    x, y, _, _ = digits
    start = neural.linear_init(3, 4, 64, 10, max_features=16, rng=0)
    settings = {"epochs": 4, "rng": 7}
    whole = neural.fit(start, x, y, **settings)
    half = neural.fit(start, x, y, progress=lambda done, total: done < 2, **settings)
    rest = neural.fit(half, x, y, first_epoch=2, **settings)
    assert_same_bits(rest, whole)


@pytest.mark.parametrize("standardize", [True, False])
def test_the_start_is_a_model_of_x_as_it_is(dtype, standardize):
    # One step of almost no length: the result has the decision functions of the start.
    x, y = blobs(dtype=dtype)
    x = x * np.array([1, 10, 0.01, 1, 3, 1], dtype) + np.array([0, 50, 0, -2, 7, 1], dtype)
    model = model_of(dtype=dtype)
    got = neural.fit(
        model, x, y, epochs=1, batch_size=120, lr=1e-12, last_lr=1e-12, standardize=standardize, rng=0
    )
    f = neural.decisions(model, x)
    np.testing.assert_allclose(neural.decisions(got, x), f, atol=np.finfo(dtype).eps * 2e3)
    assert (np.abs(f) > 10).mean() > 0.1


def test_training_does_not_depend_on_units():
    x, y = blobs(dtype=np.float64)
    factor, shift = 10.0 ** np.array([-9, 6, 0, 3, -2, 9]), np.array([0.0, 3, -5, 40, 1, 2])
    other = (x + shift) * factor

    def trained(x, standardize):
        start = neural.linear_init(4, 3, 6, 3, x=x if standardize else None, dtype=np.float64, rng=0)
        return neural.predict(neural.fit(start, x, y, epochs=3, lr=0.05, standardize=standardize, rng=0), x)

    np.testing.assert_allclose(trained(other, True), trained(x, True), rtol=1e-6, atol=1e-9)
    assert abs(trained(other, False) - trained(x, False)).max() > 0.1


def test_a_start_on_samples_has_their_units(dtype):
    x, _ = blobs(2000, dtype=dtype, n_classes=1)
    x = x * np.array([1, 100, 1e-3, 5, 1, 1], dtype) + np.array([0, 1, 0, -7, 9, 0], dtype)
    x[:, 5] = 3  # a constant column has no influence
    f = neural.decisions(neural.linear_init(50, 3, 6, 3, x=x, scale=2.0, dtype=dtype, rng=0), x)
    assert abs((f**2).mean() ** 0.5 - 2 * (6 / 6) ** 0.5) < 0.2
    with pytest.raises(ValueError, match="x: expected n_features = 5 columns, got 6"):
        neural.linear_init(2, 2, 5, 2, x=x)


def test_checkpoints_are_what_an_ended_training_returns():
    x, y = blobs()
    settings = {"epochs": 3, "rng": 1}
    seen, models, history = [], [], []
    whole = neural.fit(
        model_of(), x, y, checkpoint=models.append, history=history,
        progress=lambda done, total: seen.append((done, total)), **settings,
    )  # fmt: skip
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert len(models) == len(history) == 3
    assert_same_bits(models[-1], whole)
    for epochs in (1, 2):
        part: list[float] = []
        ended = neural.fit(
            model_of(), x, y, history=part, progress=lambda done, total, n=epochs: done < n, **settings
        )
        assert_same_bits(models[epochs - 1], ended)
        assert part == history[:epochs]
    order = []
    neural.fit(
        model_of(), x, y, epochs=1, checkpoint=lambda model: order.append("checkpoint"),
        progress=lambda done, total: order.append("progress"),
    )  # fmt: skip
    assert order == ["checkpoint", "progress"]


def test_progress_that_shows_or_does_nothing(capfd):
    (x, y), call = blobs(), {"epochs": 2, "rng": 0}
    plain = neural.fit(model_of(), x, y, **call)
    assert_same_bits(neural.fit(model_of(), x, y, progress=False, **call), plain)
    assert capfd.readouterr().err == ""
    assert_same_bits(neural.fit(model_of(), x, y, progress=True, **call), plain)
    assert "epoch" in capfd.readouterr().err
    assert_same_bits(neural.fit(model_of(), x, y, progress=lambda done, total: None, **call), plain)


def test_a_seed_from_any_rng():
    x, y = blobs()

    def call(rng):
        return neural.fit(model_of(), x, y, epochs=1, rng=rng)

    assert_same_bits(call(3), call(np.int64(3)))
    assert_same_bits(call(np.random.default_rng(3)), call(np.random.default_rng(3)))
    assert call(None).weights.tobytes() != call(None).weights.tobytes()


@pytest.mark.parametrize(
    "name", ["int64", "int8", "float16", "float64", "fortran", "reversed", "list", "table"]
)
def test_samples_are_converted(dtype, name):
    x, y = blobs(dtype=dtype)
    x = x.round()
    other = converted(x, name)
    model = model_of(dtype=dtype)
    assert_same_bits([neural.decisions(model, other)], [neural.decisions(model, x)])
    assert_same_bits([neural.predict(model, other)], [neural.predict(model, x)])
    want = neural.fit(model, x, y, epochs=1, rng=0)
    assert_same_bits(neural.fit(model, other, y.astype(np.uint8), epochs=1, rng=0), want)


@pytest.mark.libraries
def test_data_frames():
    pandas = pytest.importorskip("pandas")
    (x, y), model = blobs(), model_of()
    frame, series = pandas.DataFrame(x), pandas.Series(y)
    assert_same_bits([neural.predict(model, frame)], [neural.predict(model, x)])
    assert_same_bits(
        neural.fit(model, frame, series, epochs=1, rng=0), neural.fit(model, x, y, epochs=1, rng=0)
    )


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"y": np.zeros(119, np.int32)}, ValueError, "y: expected shape"),
        ({"y": np.full(120, 3, np.int32)}, IndexError, "n_classes = 3, got 3"),
        ({"y": np.zeros(120)}, TypeError, "y: expected labels of an integer or bool dtype"),
        ({"y": -np.ones(120, int)}, IndexError, "y: expected labels of at least 0"),
        ({"x": np.zeros((120, 3), np.float32)}, IndexError, "features: expected"),
        ({"x": np.zeros(6)}, ValueError, r"pass \[x\] for one sample"),
        ({"x": np.full((120, 6), 1e300)}, ValueError, "x: expected numbers in the range of float32"),
        ({"x": np.full((120, 6), "a")}, TypeError, "x: expected an array of real numbers"),
        ({"x": np.full((120, 6), np.nan, np.float32)}, ValueError, "x: expected finite"),
        ({"x": np.zeros((0, 6), np.float32), "y": np.zeros(0, np.int32)}, ValueError, "at least 1 sample"),
        ({"epochs": 0}, ValueError, "epochs"),
        ({"first_epoch": 21}, ValueError, "first_epoch"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"progress": 1}, TypeError, "progress"),
        ({"checkpoint": True}, TypeError, "checkpoint"),
        ({"lr": 0.0}, ValueError, "^lr: expected"),
        ({"last_lr": 1.0}, ValueError, "last_lr"),
        ({"loss": "square"}, ValueError, "loss"),
        ({"model": (1, 2)}, TypeError, "model: expected a Linear"),
        ({"rng": -1}, ValueError, "rng"),
    ],
)
def test_bad_input(change, error, message):
    x, y = blobs()
    settings = {"model": model_of(), "x": x, "y": y} | change
    with pytest.raises(error, match=message):
        neural.fit(settings.pop("model"), settings.pop("x"), settings.pop("y"), **settings)


def test_bad_models():
    model, (x, _) = model_of(), blobs()
    for fields, words in (
        ({"weights": model.weights[:, :-1].copy()}, "weights: expected shape"),
        ({"weights": model.weights[:, :, :-1].copy()}, r"2\*\*depth - 1 vertices, got 6"),
        ({"leaves": model.leaves[:, :-1].copy()}, "leaves: expected shape"),
    ):
        with pytest.raises(ValueError, match=words):
            neural.predict(model._replace(**fields), x)
    with pytest.raises(IndexError, match="features"):
        neural.to_hard(model, 3)
    bad = model.weights.copy()
    bad[0, 1, 0] = np.inf
    with pytest.raises(ValueError, match=r"^model\.weights: expected .*inf at index.*train again"):
        neural.to_hard(model._replace(weights=bad), 6)
    with pytest.raises(ValueError, match="max_features"):
        neural.linear_init(2, 2, 5, 2, max_features=6)
    with pytest.raises(ValueError, match="depth"):
        neural.linear_init(2, 21, 5, 2)


def test_decisions_that_overflow_are_refused():
    model = neural.linear_init(2, 2, 5, 2, rng=0)
    large = np.full((3, 5), 3e38)
    for function in (neural.decisions, neural.predict):
        with pytest.raises(
            ValueError, match=r"^x: expected samples whose decision functions are finite.*scale x"
        ):
            function(model, large)
    with pytest.raises(ValueError, match=r"^x: expected samples whose decision"):
        neural.fit(model, large, [0, 1, 0], epochs=1)
    for bad in (np.array([[1e300], [-1e300]]), np.full((2, 1), 1.7e308)):
        wide = neural.linear_init(1, 1, 1, 2, dtype=np.float64, rng=0)
        with pytest.raises(ValueError, match=r"^x: expected samples whose decision"):
            neural.fit(wide, bad, [0, 1], epochs=1)
        with pytest.raises(ValueError, match=r"^x: expected samples whose decision"):
            neural.linear_init(1, 1, 1, 2, x=bad, dtype=np.float64, rng=0)
    model.weights[1, 0, 0] = np.nan
    with pytest.raises(ValueError, match=r"^model\.weights: expected no NaN"):
        neural.decisions(model, np.zeros((3, 5)))


@pytest.mark.parametrize(
    "value", [None, [1], "a", np.zeros((1, 1)), np.zeros((2, 3, 1), complex), np.zeros(0)]
)
def test_fields_are_named_by_their_argument(value):
    model = neural.linear_init(2, 1, 2, 2, rng=0)
    for field in model._fields:
        bad = model._replace(**{field: value})
        for call in (
            lambda m=bad: neural.decisions(m, np.zeros((1, 2))),
            lambda m=bad: neural.predict(m, np.zeros((1, 2))),
            lambda m=bad: neural.fit(m, np.zeros((1, 2)), [0]),
            lambda m=bad: neural.to_hard(m, 2),
        ):
            with pytest.raises(
                (TypeError, ValueError, IndexError), match=r"^model\.\w+: expected .*, got .*; "
            ):
                call()
