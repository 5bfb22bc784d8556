"""The fused training step: equal to dense gradients and dense Adam, at the cost of the touched rows."""

import contextlib
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from growers import assert_all_same, on_paths, on_threads

import hforest
from hforest import hinge, layers, optim
from hforest.core import dispatch

pytestmark = pytest.mark.kernels

LR = 0.02
kinds = pytest.mark.parametrize("kind", ["tree", "fern"])


class Read(NamedTuple):
    """A margin, the shape of one sample of x, and its windows if it is an image."""

    margin: str
    shape: tuple[int, ...]
    n_features: int
    windows: hinge.Windows | None = None

    def words(self, kind):
        return {"kind": kind, "margin": self.margin, "windows": self.windows}


WINDOWS = hinge.Windows(2, (1, 2), 1)  # twelve places
READS = [
    Read("column", (5,), 5),
    Read("projection", (5,), 5),
    Read("column", (2, 3, 4), 8, WINDOWS),
    Read("projection", (2, 3, 4), 8, WINDOWS),
]
ROWS = READS[0]
reads = pytest.mark.parametrize(
    "read", READS, ids=lambda r: f"{r.margin} {'rows' if r.windows is None else 'windows'}"
)


def forest(kind, read, n_trees, depth, outputs, dtype, seed=0):
    settings = {"kind": kind, "margin": read.margin, "scale": 0.5, "dtype": dtype, "rng": seed}
    return hinge.init(n_trees, depth, read.n_features, outputs, **settings)


def batches(n_steps, n_samples, read, outputs, dtype, seed=1):
    rng = np.random.default_rng(seed)
    for step in range(1, n_steps + 1):
        # Empty batches too; samples come again, so that leaves have several.
        n = 0 if step == 4 else n_samples if read.windows is None else -(-n_samples // 10)
        x = np.round(rng.normal(size=(n, *read.shape)), 1).astype(dtype)
        places = () if read.windows is None else (4, 3)
        yield step, x, rng.normal(size=(n, *places, *outputs)).astype(dtype)


def state_of(t, f, w, margin):
    return hinge.adam_state(t, w, f if margin == "projection" else None)


def fused(kind, read, parameters, stream, aggregate, betas, array=lambda a: a, numpy=lambda a: a):
    """Returns outputs, gradients and parameters of the fused steps."""
    t, f, w = (array(a.copy()) for a in parameters)
    state, seen, step = state_of(t, f, w, read.margin), [], 0
    words = {**read.words(kind), **betas}
    for step, x, goal in stream:
        x = array(x)
        y, route = hinge.adam_forward(x, t, f, w, state, step, LR, **words, aggregate=aggregate)
        grad_y = array((numpy(y) - goal).astype(goal.dtype))
        grad_x = hinge.adam_backward(grad_y, route, x, t, f, w, state, step, LR, **words, aggregate=aggregate)
        seen += [numpy(a) for a in (y, *route, grad_x)]
    hinge.adam_sync(t, w, state, step, LR, **betas)
    return seen, [numpy(a) for a in (t, f, w, *state) if a is not None]


def dense(kind, read, parameters, stream, aggregate, betas):
    """Returns the same by the separate functions, with a step of every parameter."""
    t, f, w = (a.copy() for a in parameters)
    state, seen, step = state_of(t, f, w, read.margin), [], 0
    words = {**read.words(kind), "aggregate": aggregate}
    for step, x, goal in stream:
        y, route = hinge.forward_with_route(x, t, f, w, **words)
        grads = hinge.backward((y - goal).astype(goal.dtype), route, x, t, f, w, **words)
        optim.adam(t, grads.thresholds, state.thresholds_m, state.thresholds_v, step, LR, **betas)
        optim.adam(w, grads.weights, state.weights_m, state.weights_v, step, LR, **betas)
        if grads.features is not None:
            optim.adam(f, grads.features, state.features_m, state.features_v, step, LR, **betas)
        seen += [y, *route, grads.x]
    for last in (state.thresholds_last, state.weights_last):
        last[...] = step
    return seen, [a for a in (t, f, w, *state) if a is not None]


def compare(got, want, dtype):
    close = {"rtol": 1e-3, "atol": 2e-5} if dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-13}
    for a, b in zip(got[0] + got[1], want[0] + want[1], strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, **close)


# Columns of rows have their own step, with bodies for different numbers of outputs.
CELLS = [
    *((ROWS, outputs) for outputs in [(), (1,), (3, 2), (10,), (40,)]),
    *((read, outputs) for read in READS[1:] for outputs in [(), (3, 2)]),
]


@kinds
@pytest.mark.parametrize(("read", "outputs"), CELLS, ids=str)
@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_fused_steps_are_dense_steps(fast_backend, dtype, kind, read, outputs, aggregate):
    parameters = forest(kind, read, 18, 4, outputs, dtype)
    stream = list(batches(25, 7, read, outputs, dtype))
    betas = {"beta1": 0.8, "eps": 1e-6} if aggregate == "mean" else {}
    got = fused(kind, read, parameters, stream, aggregate, betas, fast_backend.array, fast_backend.numpy)
    with hforest.using("reference"):
        want = dense(kind, read, parameters, stream, aggregate, betas)
    compare(got, want, dtype)


@pytest.mark.parametrize("read", READS[:2], ids=str)
def test_a_state_goes_on_in_the_reference_implementation(dtype, read):
    """Rows that no step of the CPU backend has touched lately are brought up to date first."""
    parameters = forest("tree", read, 6, 4, (2,), dtype)
    stream = list(batches(24, 2, read, (2,), dtype))

    def moves():
        yield from stream[:12]
        with hforest.using("reference"):
            yield from stream[12:]

    got = fused("tree", read, parameters, moves(), "sum", {})
    compare(got, dense("tree", read, parameters, stream, "sum", {}), dtype)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "n_samples", "n_steps"),
    [(READS[0], 1, 160), (READS[0], 40, 40), (READS[1], 40, 40)],
    ids=["column, one sample", "column", "projection"],
)
def test_deep_trees(fast_backend, dtype, n_samples, n_steps, read):
    """Below the tenth level vertices wait for samples, where they compare columns."""
    parameters = forest("tree", read, 3, 12, (2,), dtype)
    stream = list(batches(n_steps, n_samples, read, (2,), dtype))
    got = fused("tree", read, parameters, stream, "sum", {}, fast_backend.array, fast_backend.numpy)
    compare(got, dense("tree", read, parameters, stream, "sum", {}), dtype)


@reads
def test_the_reference_of_a_fused_step_is_the_dense_one(dtype, read):
    parameters = forest("tree", read, 2, 2, (2,), dtype)
    stream = list(batches(6, 4, read, (2,), dtype))
    with hforest.using("reference"):
        compare(
            fused("tree", read, parameters, stream, "sum", {}),
            dense("tree", read, parameters, stream, "sum", {}),
            dtype,
        )


@kinds
@reads
def test_paths_and_threads_do_not_change_bits(simd, threads, dtype, kind, read):
    parameters = forest(kind, read, 70, 8, (9,), dtype)
    stream = list(batches(3, 300, read, (9,), dtype))  # enough pairs for every thread
    steps = partial(fused, kind, read, parameters, stream, "sum", {})
    assert_all_same([a for found in on_paths(simd, lambda: on_threads(threads, steps)) for a in found])


@kinds
@reads
@pytest.mark.parametrize("outputs", [(), (3, 2)])
def test_steps_without_checks_are_checked_steps(kind, read, outputs):
    runs, words = [], {**read.words(kind), "aggregate": "mean"}
    for kernels in (False, True):
        t, f, w = forest(kind, read, 6, 4, outputs, np.float32)
        state, seen = state_of(t, f, w, read.margin), []
        for step, x, _ in batches(4, 9, read, outputs, np.float32):
            arrays = t, f, w, state, step, LR
            y, route = hinge.forward_with_route(x, t, f, w, **words)
            grad_x = np.empty_like(x)
            if kernels:
                hinge.kernels.adam_forward(x, *arrays, **words, out=(y, route))
                hinge.kernels.adam_backward(y, route, x, *arrays, **words, out=grad_x)
            else:
                y, route = hinge.adam_forward(x, *arrays, **words)
                grad_x = hinge.adam_backward(y, route, x, *arrays, **words)
            seen += [y, *route, grad_x]
        runs.append(b"".join(a.tobytes() for a in (*seen, t, f, w, *state) if a is not None))
    assert runs[0] == runs[1]


@reads
@pytest.mark.parametrize("depth", [5, 12])
def test_a_step_touches_what_the_batch_reaches(depth, read):
    t, f, w = forest("tree", read, 6, depth, (3,), np.float64)
    state, words = state_of(t, f, w, read.margin), read.words("tree")
    before = [a.copy() for a in (t, f, w)]
    x = np.random.default_rng(2).normal(size=(5, *read.shape))
    y, route = hinge.adam_forward(x, t, f, w, state, 1, LR, **words)
    hinge.adam_backward(y + 1, route, x, t, f, w, state, 1, LR, **words)
    leaves = np.zeros(w.shape[:2], bool)
    vertices = np.zeros(t.shape, bool)
    trees = np.arange(6)
    leaves[trees, route.leaf] = True
    vertices[trees, route.vertex] = True
    np.testing.assert_array_equal((w != before[2]).any(axis=2), leaves)
    np.testing.assert_array_equal(t != before[0], vertices)
    np.testing.assert_array_equal(state.weights_last, leaves.astype(np.int64))
    # Below the tenth level, vertices that compare columns of rows move when they are reached, others at every step.
    moves = vertices if read is ROWS else np.ones_like(vertices)
    np.testing.assert_array_equal(state.thresholds_last[:, 1023:], moves[:, 1023:])
    moved = f != before[1]
    if read.margin == "column":
        assert not moved.any()
    else:
        np.testing.assert_array_equal(moved.any(axis=2), vertices)


@kinds
@reads
def test_it_learns(fast_backend, kind, read):
    rng = np.random.default_rng(3)
    places = (24,) if read.windows is None else (2, 4, 3)
    x, goal = (rng.normal(size=size).astype(np.float32) for size in ((places[0], *read.shape), (*places, 2)))
    t, f, w = (fast_backend.array(a) for a in forest(kind, read, 15, 5, (2,), np.float32))
    state, x, goal = state_of(t, f, w, read.margin), fast_backend.array(x), fast_backend.array(goal)
    losses, words = [], read.words(kind)
    for step in range(1, 61):
        y, route = hinge.adam_forward(x, t, f, w, state, step, LR, **words)
        loss, grad_y = layers.squared_loss(y.reshape(-1, 2), goal.reshape(-1, 2))
        hinge.adam_backward(grad_y.reshape(y.shape), route, x, t, f, w, state, step, LR, **words)
        losses.append(float(loss))
    assert losses[-1] < 0.1 * losses[0]


@kinds
@reads
@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("n", [0, 5])
def test_a_whole_step_has_the_bits_of_its_parts(backend, dtype, kind, read, checks, n):
    start, rng = forest(kind, read, 3, 3, (4,), dtype), np.random.default_rng(0)
    one, parts = ([a.copy() for a in start] for _ in range(2))
    states = [state_of(*p, read.margin) for p in (one, parts)]
    words = {**read.words(kind), "aggregate": "mean", "beta1": 0.8}
    for step in (1, 2, 3):
        x = rng.normal(size=(n, *read.shape)).astype(dtype)
        scores, route = hinge.adam_forward(x, *parts, states[1], step, LR, **words)
        y = rng.integers(0, 4, scores.shape[:-1])
        loss, grad = layers.softmax_loss(scores.reshape(-1, 4), y.reshape(-1))
        grad_x = hinge.adam_backward(
            grad.reshape(scores.shape), route, x, *parts, states[1], step, LR, **words
        )
        with contextlib.nullcontext() if checks else hforest.unchecked():
            got = hinge.adam_step(x, y, *one, states[0], step, LR, **words)
        for a, b in zip((*got, *one, *states[0]), (loss, scores, grad_x, *parts, *states[1]), strict=True):
            assert (a is None) == (b is None)
            assert a is None or np.asarray(a).tobytes() == np.asarray(b).tobytes()


# --------------------------------------------------------------------------------------- bad input


def call(**changes):
    margin = changes.get("margin", "column")
    t, f, w = hinge.init(2, 2, 3, 2, margin=margin, scale=0.5, dtype=np.float64, rng=0)
    a = {"x": np.zeros((4, 3)), "thresholds": t, "features": f, "weights": w}
    a |= {"state": state_of(t, f, w, margin), "step": 1, "lr": LR}
    return a | changes


def state_with(margin="column", **changes):
    return call(margin=margin)["state"]._replace(**changes)


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
    ({"windows": hinge.Windows(2)}, ValueError, "x", "three axes in space"),
]
PROJECTIONS = [
    (changes | {"margin": "projection"}, *words)
    for changes, *words in (
        (
            {"state": state_with()},
            TypeError,
            "state.features_m",
            "adam_state.thresholds, weights, features. for a margin",
        ),
        (
            {"state": state_with("projection", features_v=np.zeros((2, 3, 2)))},
            ValueError,
            "state.features_v",
            "agree",
        ),
        (
            {"state": state_with("projection", features_m=np.zeros((2, 3, 3), np.float32))},
            TypeError,
            "state.features_m",
            "astype",
        ),
        ({"features": np.zeros((2, 3, 2))}, ValueError, "features", "agree"),
        ({"features": np.zeros((2, 3), np.int32)}, TypeError, "features", "margin='column'"),
    )
]
BAD += PROJECTIONS


@pytest.mark.parametrize(("changes", "error", "name", "remedy"), BAD)
def test_bad_forward_input(changes, error, name, remedy):
    with pytest.raises(error, match=f"(?s)^{name}.*{remedy}"):
        hinge.adam_forward(**call(**changes))


def step_call(**changes):
    return call() | {"y": np.array([0, 1, 1, 0])} | changes


BAD_STEP = [
    ({"y": np.zeros(3, int)}, ValueError, "y", "a label for each sample"),
    ({"y": np.zeros((4, 1), int)}, ValueError, "y", "a label for each sample"),
    ({"y": np.zeros(4)}, TypeError, "y", "renumber"),
    ({"y": [0, 1, 2, 1]}, IndexError, "y", "renumber"),
    ({"y": [0, -1, 0, 1]}, IndexError, "y", "renumber"),
    ({"weights": np.zeros((2, 4, 1, 2))}, ValueError, "weights", "agree"),
    ({"x": np.zeros((4, 3), np.float32)}, TypeError, "thresholds", "astype"),
    ({"step": 0}, ValueError, "step", "range"),
    ({"state": None}, TypeError, "state", "adam_state"),
]


@pytest.mark.parametrize(("changes", "error", "name", "remedy"), BAD_STEP)
def test_bad_input_of_a_whole_step(changes, error, name, remedy):
    a = step_call(**changes)
    with pytest.raises(error, match=f"(?s)^{name}.*{remedy}"):
        hinge.adam_step(**a)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_step_whose_scores_are_no_numbers_is_not_taken(value):
    a = step_call(x=np.ones((4, 3)))
    a["weights"][...] = value
    before = [b.copy() for b in (a["thresholds"], *a["state"]) if b is not None]
    with pytest.raises(ValueError, match=r"^weights: expected finite sums of outputs, got .*; scale x, or"):
        hinge.adam_step(**a)
    for b, c in zip(before, (b for b in (a["thresholds"], *a["state"]) if b is not None), strict=True):
        np.testing.assert_array_equal(b, c)


def backward_call(**changes):
    a = call(margin=changes.get("margin", "column"))
    _, route = hinge.adam_forward(**a)
    of_route = {name: changes.pop(name) for name in ("leaf", "vertex") if name in changes}
    return a | {"grad_y": np.ones((4, 2)), "route": route._replace(**of_route)} | changes


BAD_BACKWARD = [case for case in BAD if case[3] != "finite"] + [
    ({"grad_y": np.ones((4, 3))}, ValueError, "grad_y", "agree"),
    ({"leaf": np.full((4, 2), 4, np.int32)}, IndexError, "route.leaf", "belong"),
    ({"vertex": np.full((4, 2), -1, np.int32)}, IndexError, "route.vertex", "belong"),
    ({"x": np.zeros((4, 1))}, IndexError, "features", "belong"),
    ({"x": np.zeros((3, 3))}, ValueError, "route.leaf", "agree"),
]


@pytest.mark.parametrize(("changes", "error", "name", "remedy"), BAD_BACKWARD)
def test_bad_backward_input(changes, error, name, remedy):
    with pytest.raises(error, match=f"(?s)^{name}.*{remedy}"):
        hinge.adam_backward(**backward_call(**changes))


def test_read_only_and_shared_memory():
    for name in ("weights", "features"):
        a = call(margin="projection")
        a[name].flags.writeable = False
        with pytest.raises(ValueError, match=rf"^{name}.*copy"):
            hinge.adam_forward(**a)
    a = call()
    a["features"].flags.writeable = False  # columns are not learned
    hinge.adam_forward(**a)
    a = call()
    a["state"] = a["state"]._replace(thresholds_v=a["state"].thresholds_m)
    with pytest.raises(ValueError, match="expected memory that no other argument uses"):
        hinge.adam_forward(**a)


def test_sync_refuses_rows_beyond_the_step():
    a = call()
    a["state"].weights_last[0, 1] = 7
    with pytest.raises(ValueError, match=r"^state\.weights_last.*7 at index \(0, 1\)"):
        hinge.adam_sync(a["thresholds"], a["weights"], a["state"], 3, LR)


@kinds
@reads
@pytest.mark.parametrize("name", ["thresholds_last", "weights_last"])
@pytest.mark.parametrize("step_of_row", [1, 7, -1, -(2**63)])
def test_a_state_beyond_the_step_is_refused_and_nothing_changes(kind, read, name, step_of_row):
    t, f, w = forest(kind, read, 2, 2, (2,), np.float64)
    state, words = state_of(t, f, w, read.margin), read.words(kind)
    x = np.random.default_rng(0).normal(size=(4, *read.shape))
    y, route = hinge.adam_forward(x, t, f, w, state, 1, LR, **words)
    getattr(state, name)[1, 0] = step_of_row
    arrays = [a for a in (t, f, w, *state) if a is not None]
    before = [a.copy() for a in arrays]
    match = rf"^state\.{name}: expected 0 <= last <= step.*got {step_of_row} at index \(1, 0\); number the"
    with pytest.raises(ValueError, match=match):
        hinge.adam_forward(x, t, f, w, state, 1, LR, **words)
    with pytest.raises(ValueError, match=match):
        hinge.adam_backward(np.ones_like(y), route, x, t, f, w, state, 1, LR, **words)
    with pytest.raises(ValueError, match=match):
        hinge.adam_sync(t, w, state, 0, LR)
    for a, b in zip(before, arrays, strict=True):
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
    arrays = [b for b in (t, w, *state) if b is not None]
    before = [b.copy() for b in arrays]
    if name.endswith("m") and value == -1:
        hinge.adam_sync(t, w, state, 3, LR)
        return
    with pytest.raises(ValueError, match=rf"^state\.{name}: expected .*, got {value:g}.*; "):
        hinge.adam_sync(t, w, state, 3, LR)
    for b, c in zip(before, arrays, strict=True):
        np.testing.assert_array_equal(b, c)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_gradients_that_are_no_numbers_do_not_reach_the_state(value):
    a = backward_call()
    a["grad_y"][2, 1] = value
    with pytest.raises(
        ValueError, match=rf"^grad_y: expected finite.*got {value} at index \(2, 1\); the loss"
    ):
        hinge.adam_backward(**a)
    assert not any(b.any() for b in a["state"] if b is not None)
    a = backward_call()
    a["route"].margin[3, 0] = np.nan
    with pytest.raises(
        ValueError, match=r"^route.margin: expected no NaN, got nan at index \(3, 0\); pass the route"
    ):
        hinge.adam_backward(**a)
    assert not any(b.any() for b in a["state"] if b is not None)


def test_a_state_of_features():
    t, f, w = hinge.init(2, 2, 3, margin="projection", rng=0)
    state = hinge.adam_state(t, w, f)
    assert state.features_m.shape == state.features_v.shape == f.shape
    assert hinge.adam_state(t, w).features_m is None
    for features, error, message in (
        (f.astype(np.float64), TypeError, "^features: expected dtype float32, got float64"),
        (f[:1], ValueError, "^features: expected shape .*, got .*; "),
        (np.zeros((2, 3), np.int32), TypeError, "^features: expected"),
    ):
        with pytest.raises(error, match=message):
            hinge.adam_state(t, w, features)


@pytest.mark.parametrize(
    ("kind", "depth", "outputs", "betas"),
    [
        ("tree", 4, (3,), {}),
        ("tree", 12, (), {"beta1": 0.3}),  # vertices that move when a sample reaches them
        ("fern", 5, (2, 2), {}),
        ("tree", 2, (400,), {"beta2": 0.9}),  # rows that several blocks of the host share
    ],
)
def test_steps_have_the_bits_of_the_cpu(fast_backend, dtype, kind, depth, outputs, betas):
    parameters = forest(kind, ROWS, 3, depth, outputs, dtype)
    stream = list(batches(9, 40, ROWS, outputs, dtype))
    with dispatch.forced("cpu"):
        expected = fused(kind, ROWS, parameters, stream, "mean", betas)
    got = fused(kind, ROWS, parameters, stream, "mean", betas, fast_backend.array, fast_backend.numpy)
    for a, b in zip(got, expected, strict=True):
        assert [part.tobytes() for part in a] == [part.tobytes() for part in b]
