"""The fused step of training: equal to dense gradients and dense Adam, and no dearer than what it touches."""

import numpy as np
import pytest

import hforest
from hforest import hinge, layers, optim
from hforest.core import machine

LR = 0.02
kinds = pytest.mark.parametrize("kind", ["tree", "fern"])


def function(kind, name):
    return getattr(hinge, f"{kind}_{name}")


def forest(kind, n_trees, depth, n_features, outputs, dtype, seed=0):
    init = hinge.tree_init if kind == "tree" else hinge.fern_init
    return init(n_trees, depth, n_features, outputs, scale=0.5, dtype=dtype, rng=seed)


def batches(n_steps, n_samples, n_features, outputs, dtype, seed=1):
    rng = np.random.default_rng(seed)
    for step in range(1, n_steps + 1):
        # Empty batches too; samples come again, so that leaves have several.
        n = 0 if step == 4 else n_samples
        x = np.round(rng.normal(size=(n, n_features)), 1).astype(dtype)
        yield step, x, rng.normal(size=(n, *outputs)).astype(dtype)


def fused(kind, parameters, stream, n_features, aggregate, betas, array=lambda a: a, numpy=lambda a: a):
    """Outputs, gradients and parameters of the fused steps."""
    t, f, w = (array(a.copy()) for a in parameters)
    state, seen, step = hinge.adam_state(t, w), [], 0
    for step, x, goal in stream:
        y, route = function(kind, "adam_forward")(
            array(x), t, f, w, state, step, LR, aggregate=aggregate, **betas
        )
        grad_y = array((numpy(y) - goal).astype(goal.dtype))
        grad_x = function(kind, "adam_backward")(
            grad_y, *route, t, f, w, state, n_features, step, LR, aggregate=aggregate, **betas
        )
        seen += [numpy(a) for a in (y, *route, grad_x)]
    hinge.adam_sync(t, w, state, step, LR, **betas)
    return seen, [numpy(a) for a in (t, w, *state)]


def dense(kind, parameters, stream, n_features, aggregate, betas):
    """The same by the separate functions."""
    t, f, w = (a.copy() for a in parameters)
    t_m, t_v, w_m, w_v = (np.zeros_like(a) for a in (t, t, w, w))
    seen, step = [], 0
    for step, x, goal in stream:
        y, route = function(kind, "forward")(x, t, f, w, aggregate=aggregate, return_route=True)
        grad_y = (y - goal).astype(goal.dtype)
        grad_x, grad_t, grad_w = function(kind, "backward")(
            grad_y, *route, f, w, n_features, aggregate=aggregate
        )
        optim.adam(t, grad_t, t_m, t_v, step, LR, **betas)
        optim.adam(w, grad_w, w_m, w_v, step, LR, **betas)
        seen += [y, *route, grad_x]
    last_t, last_w = np.full(t.shape, step), np.full(w.shape[:2], step)
    return seen, [t, w, t_m, t_v, last_t, w_m, w_v, last_w]


def compare(got, want, dtype):
    close = {"rtol": 1e-3, "atol": 2e-5} if dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-13}
    for a, b in zip(got[0] + got[1], want[0] + want[1], strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, **close)


@kinds
@pytest.mark.parametrize("outputs", [(), (1,), (3, 2), (10,), (40,)], ids=str)
@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_fused_steps_are_dense_steps(fast_backend, dtype, kind, outputs, aggregate):
    parameters = forest(kind, 18, 4, 5, outputs, dtype)
    stream = list(batches(25, 7, 5, outputs, dtype))
    betas = {"beta1": 0.8, "eps": 1e-6} if aggregate == "mean" else {}
    got = fused(kind, parameters, stream, 5, aggregate, betas, fast_backend.array, fast_backend.numpy)
    with hforest.using("reference"):
        want = dense(kind, parameters, stream, 5, aggregate, betas)
    compare(got, want, dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("n_samples", "n_steps"), [(1, 160), (40, 40)])
def test_deep_trees(fast_backend, dtype, n_samples, n_steps):
    """Below the tenth level vertices wait for samples."""
    parameters = forest("tree", 3, 12, 4, (2,), dtype)
    stream = list(batches(n_steps, n_samples, 4, (2,), dtype))
    got = fused("tree", parameters, stream, 4, "sum", {}, fast_backend.array, fast_backend.numpy)
    compare(got, dense("tree", parameters, stream, 4, "sum", {}), dtype)


def test_the_reference_of_a_fused_step_is_the_dense_one(dtype):
    parameters = forest("tree", 2, 2, 3, (2,), dtype)
    stream = list(batches(6, 4, 3, (2,), dtype))
    with hforest.using("reference"):
        compare(
            fused("tree", parameters, stream, 3, "sum", {}),
            dense("tree", parameters, stream, 3, "sum", {}),
            dtype,
        )


@kinds
def test_paths_and_threads_do_not_change_bits(simd, threads, dtype, kind):
    parameters = forest(kind, 70, 8, 6, (9,), dtype)
    stream = list(batches(3, 300, 6, (9,), dtype))  # enough pairs for every thread
    bits = set()
    for path in machine.simd_paths():
        simd(path)
        for n in (1, 2, 7):
            threads(n)
            seen, final = fused(kind, parameters, stream, 6, "sum", {})
            bits.add(b"".join(a.tobytes() for a in seen + final))
    assert len(bits) == 1


@pytest.mark.parametrize("depth", [5, 12])
def test_a_step_touches_what_the_batch_reaches(depth):
    t, f, w = forest("tree", 6, depth, 4, (3,), np.float64)
    state = hinge.adam_state(t, w)
    before = [a.copy() for a in (t, w)]
    x = np.random.default_rng(2).normal(size=(5, 4))
    y, route = hinge.tree_adam_forward(x, t, f, w, state, 1, LR)
    hinge.tree_adam_backward(y + 1, *route, t, f, w, state, 4, 1, LR)
    leaves = np.zeros(w.shape[:2], bool)
    vertices = np.zeros(t.shape, bool)
    trees = np.arange(6)
    leaves[trees, route[0]] = True
    vertices[trees, route[2]] = True
    np.testing.assert_array_equal((w != before[1]).any(axis=2), leaves)
    np.testing.assert_array_equal(t != before[0], vertices)
    np.testing.assert_array_equal(state.weights_last, leaves.astype(np.int64))


@kinds
def test_it_learns(fast_backend, kind):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(64, 4)).astype(np.float32)
    goal = (x[:, :2] * x[:, 2:]).astype(np.float32)
    t, f, w = (fast_backend.array(a) for a in forest(kind, 30, 5, 4, (2,), np.float32))
    state, x, goal = hinge.adam_state(t, w), fast_backend.array(x), fast_backend.array(goal)
    losses = []
    for step in range(1, 61):
        y, route = function(kind, "adam_forward")(x, t, f, w, state, step, LR)
        loss, grad_y = layers.squared_loss(y, goal)
        function(kind, "adam_backward")(grad_y, *route, t, f, w, state, 4, step, LR)
        losses.append(float(loss))
    assert losses[-1] < 0.1 * losses[0]


# --------------------------------------------------------------------------------------- bad input


def call(**changes):
    t, f, w = forest("tree", 2, 2, 3, (2,), np.float64)
    a = {"x": np.zeros((4, 3)), "thresholds": t, "features": f, "weights": w}
    a |= {"state": hinge.adam_state(t, w), "step": 1, "lr": LR}
    return a | changes


def state_with(**changes):
    return call()["state"]._replace(**changes)


BAD = [
    ({"x": np.zeros((4, 3), np.float32)}, TypeError, "thresholds", "astype"),
    ({"x": np.full((4, 3), np.nan)}, ValueError, "x", "finite"),
    ({"state": None}, TypeError, "state", "adam_state"),
    ({"state": tuple(call()["state"])}, TypeError, "state", "adam_state"),
    ({"state": state_with(weights_m=np.zeros((2, 4, 3)))}, ValueError, "state.weights_m", "agree"),
    (
        {"state": state_with(weights_v=np.zeros((2, 4, 2), np.float32))},
        TypeError,
        "state.weights_v",
        "astype",
    ),
    (
        {"state": state_with(weights_last=np.zeros((2, 4), np.int32))},
        TypeError,
        "state.weights_last",
        "int64",
    ),
    ({"state": state_with(thresholds_last=np.zeros((2, 2), np.int64))}, ValueError, "state.thr", "agree"),
    ({"step": 0}, ValueError, "step", "range"),
    ({"lr": -1.0}, ValueError, "lr", "range"),
    ({"beta1": 1.0}, ValueError, "beta1", "range"),
    ({"aggregate": None}, ValueError, "aggregate", "sum"),
    ({"features": np.full((2, 3), 3, np.int32)}, IndexError, "features", "belong"),
]


@pytest.mark.parametrize(("changes", "error", "name", "remedy"), BAD)
def test_bad_forward_input(changes, error, name, remedy):
    with pytest.raises(error, match=f"(?s)^{name}.*{remedy}"):
        hinge.tree_adam_forward(**call(**changes))


def backward_call(**changes):
    a = call()
    _, (leaf, margin, vertex) = hinge.tree_adam_forward(**a)
    del a["x"]
    a |= {"grad_y": np.ones((4, 2)), "leaf": leaf, "margin": margin, "vertex": vertex, "n_features": 3}
    return a | changes


BAD_BACKWARD = [case for case in BAD if "x" not in case[0]] + [
    ({"grad_y": np.ones((4, 3))}, ValueError, "grad_y", "agree"),
    ({"leaf": np.full((4, 2), 4, np.int32)}, IndexError, "leaf", "belong"),
    ({"vertex": np.full((4, 2), -1, np.int32)}, IndexError, "vertex", "belong"),
    ({"n_features": 1}, IndexError, "features", "belong"),
]


@pytest.mark.parametrize(("changes", "error", "name", "remedy"), BAD_BACKWARD)
def test_bad_backward_input(changes, error, name, remedy):
    with pytest.raises(error, match=f"(?s)^{name}.*{remedy}"):
        hinge.tree_adam_backward(**backward_call(**changes))


def test_read_only_and_shared_memory():
    a = call()
    a["weights"].flags.writeable = False
    with pytest.raises(ValueError, match=r"^weights.*copy"):
        hinge.tree_adam_forward(**a)
    a = call()
    a["state"] = a["state"]._replace(thresholds_v=a["state"].thresholds_m)
    with pytest.raises(ValueError, match="expected memory of its own"):
        hinge.tree_adam_forward(**a)


def test_sync_refuses_rows_beyond_the_step():
    a = call()
    a["state"].weights_last[0, 1] = 7
    with pytest.raises(ValueError, match=r"^state\.weights_last.*7 at index \(0, 1\)"):
        hinge.adam_sync(a["thresholds"], a["weights"], a["state"], 3, LR)


@kinds
@pytest.mark.parametrize("name", ["thresholds_last", "weights_last"])
@pytest.mark.parametrize("step_of_row", [1, 7, -1, -(2**63)])
def test_a_state_beyond_the_step_is_refused_and_nothing_changes(kind, name, step_of_row):
    t, f, w = forest(kind, 2, 2, 3, (2,), np.float64)
    state = hinge.adam_state(t, w)
    x = np.random.default_rng(0).normal(size=(4, 3))
    _, route = function(kind, "adam_forward")(x, t, f, w, state, 1, LR)
    getattr(state, name)[1, 0] = step_of_row
    before = [a.copy() for a in (t, w, *state)]
    match = rf"^state\.{name}: expected 0 <= last <= step.*got {step_of_row} at index \(1, 0\); pass"
    with pytest.raises(ValueError, match=match):
        function(kind, "adam_forward")(x, t, f, w, state, 1, LR)
    with pytest.raises(ValueError, match=match):
        function(kind, "adam_backward")(np.ones((4, 2)), *route, t, f, w, state, 3, 1, LR)
    with pytest.raises(ValueError, match=match):
        hinge.adam_sync(t, w, state, 0, LR)
    for a, b in zip(before, (t, w, *state), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("changes", [{"step": -1}, {"eps": 0.0}, {"step": 10**9, "beta2": 0.99999}])
def test_a_sync_that_is_refused_changes_nothing(changes):
    a = call()
    settings = {"step": 3, "lr": LR} | changes
    with pytest.raises(ValueError, match=r"^(step|eps): expected"):
        hinge.adam_sync(a["thresholds"], a["weights"], a["state"], **settings)
    assert not a["state"].thresholds_last.any()


@pytest.mark.parametrize("name", ["thresholds_m", "thresholds_v", "weights_m", "weights_v"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1.0])
def test_a_sync_of_moments_that_are_none(name, value):
    a = call()
    t, w, state = a["thresholds"], a["weights"], a["state"]
    getattr(state, name)[1, 0] = value
    before = [b.copy() for b in (t, w, *state)]
    if name.endswith("m") and value == -1:
        hinge.adam_sync(t, w, state, 3, LR)
        return
    with pytest.raises(ValueError, match=rf"^state\.{name}: expected .*, got {value:g}.*; "):
        hinge.adam_sync(t, w, state, 3, LR)
    for b, c in zip(before, (t, w, *state), strict=True):
        np.testing.assert_array_equal(b, c)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_gradients_that_are_no_numbers_do_not_reach_the_state(value):
    a = backward_call()
    a["grad_y"][2, 1] = value
    with pytest.raises(
        ValueError, match=rf"^grad_y: expected finite.*got {value} at index \(2, 1\); the loss"
    ):
        hinge.tree_adam_backward(**a)
    assert not any(b.any() for b in a["state"])
    a = backward_call()
    a["margin"][3, 0] = np.nan
    with pytest.raises(
        ValueError, match=r"^margin: expected no NaN, got nan at index \(3, 0\); pass the route"
    ):
        hinge.tree_adam_backward(**a)
    assert not any(b.any() for b in a["state"])
