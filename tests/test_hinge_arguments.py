"""Arguments of hinge functions: the unchecked layer, zero samples, out, names of results, bad input."""

import itertools
from functools import partial

import numpy as np
import pytest
from conftest import assert_same_bits
from test_hinge import (
    IMAGES,
    KINDS,
    MARGINS,
    ROWS,
    Case,
    aggregates,
    everything,
    kinds,
    margins,
    problem,
    pushed,
    reads,
    words_of,
)

import hforest
from hforest import hinge
from hforest.core.windows import geometry
from hforest.hinge import Windows, kernels

pytestmark = pytest.mark.kernels


# ----------------------------------------------------------------------- the unchecked layer


@kinds
@margins
@aggregates
@pytest.mark.parametrize("case", [ROWS[3], ROWS[4], IMAGES[3], IMAGES[4], IMAGES[6]], ids=str)
def test_kernels_have_the_bits_of_the_checked_functions(backend, dtype, kind, margin, aggregate, case):
    x, t, f, w = arrays = problem(kind, margin, case, dtype, coarse=True)
    want, words = everything(kind, margin, case, arrays, aggregate), words_of(kind, margin, case)
    how = {**words, "aggregate": aggregate}

    def fresh(*names):
        return [np.full_like(want[name], -7) for name in names]

    route, alone = (hinge.Route(*fresh(*hinge.Route._fields)) for _ in range(2))
    outputs = fresh("y", "y", "y")
    assert kernels.traverse(x, t, f, **words, out=alone) is None
    assert kernels.forward(x, t, f, w, **how, out=outputs[0]) is None
    assert kernels.forward(x, t, f, w, **how, out=outputs[1], route=route) is None
    assert kernels.leaf_outputs(route.leaf, route.margin, w, aggregate=aggregate, out=outputs[2]) is None
    for name in hinge.Route._fields:
        for found in (route, alone):
            assert getattr(found, name).tobytes() == want[name].tobytes(), name
    for y in outputs:
        assert y.tobytes() == want["y"].tobytes()
    # Thresholds are not read. Neither is x if its shape is enough, which is that of its gradient.
    read = x if margin == "projection" else None
    grad_y = np.random.default_rng(1).normal(size=want["y"].shape).astype(dtype)
    grads = hinge.Gradients(*(
        np.full_like(a, -7) if a.dtype == dtype else None for a in arrays
    ))  # fmt: skip
    assert kernels.backward(grad_y, route, read, None, f, w, **how, out=grads) is None
    grad_x = np.full_like(x, -7)
    sparse = kernels.backward_sparse(grad_y, route, read, None, f, w, **how, out=grad_x)
    assert sparse.x is grad_x
    assert grad_x.tobytes() == want["grad_x"].tobytes()
    for name, a in pushed(grads).items():
        assert a.tobytes() == want[f"grad_{name}"].tobytes(), name
        if name != "x":
            rows, found = getattr(sparse, name)
            assert rows.tobytes() == want[f"rows_{name}"].tobytes(), name
            assert found.tobytes() == want[f"values_{name}"].tobytes(), name
            assert found.shape == want[f"values_{name}"].shape


def test_kernels_are_those_of_their_page():
    names = ["backward", "backward_sparse", "forward", "leaf_outputs", "touched_rows", "traverse"]
    names += ["adam_backward", "adam_forward", "adam_step"]
    assert set(kernels.__all__) == {"MARGINS", "check_changed", *names}
    assert tuple(kernels.MARGINS) == MARGINS
    start, rows = kernels.touched_rows(np.array([[1, 2], [0, 2], [1, 1]], np.int32), 4)
    assert start.tolist() == [0, 2, 4]
    assert rows.tolist() == [0, 1, 5, 6]


# ------------------------------------------------------------------------- zero samples, out


@kinds
@margins
@aggregates
@pytest.mark.parametrize(
    "case", [Case((0, 3), 2, 2, 4), Case((0, 2, 4, 4), 2, 2, 4, Windows(3, 1, 1))], ids=str
)
def test_no_samples(backend, dtype, kind, margin, aggregate, case):
    x, t, f, w = problem(kind, margin, case, dtype)
    words = {**words_of(kind, margin, case), "aggregate": aggregate}
    y, route = hinge.forward_with_route(x, t, f, w, **words)
    assert y.shape == (*route.leaf.shape[:-1], *(() if aggregate else (2,)), 4)
    assert route.leaf.shape == ((0, 2) if case.windows is None else (0, 4, 4, 2))
    dense = pushed(hinge.backward(y, route, x, t, f, w, **words))
    shapes = {"x": x.shape, "thresholds": t.shape, "features": f.shape, "weights": w.shape}
    assert {name: a.shape for name, a in dense.items()} == {name: shapes[name] for name in dense}
    assert not any(a.any() for a in dense.values())
    given = hinge.Gradients(**{"features": None, **{name: np.full_like(a, 7) for name, a in dense.items()}})
    hinge.backward(y, route, x, t, f, w, **words, out=given)
    assert not any(a.any() for a in pushed(given).values())
    sparse = pushed(hinge.backward_sparse(y, route, x, t, f, w, **words))
    del sparse["x"]
    assert {name: g.values.shape for name, g in sparse.items()} == {
        name: (0, *shapes[name][2:]) for name in sparse
    }
    assert all(g.rows.shape == (0,) for g in sparse.values())
    leaf = route.leaf.reshape(0, 2)
    assert hinge.leaf_counts(leaf, 4).sum() == 0
    assert hinge.leaf_rows(leaf, 4).shape == (0,)


def spoilt(result):
    """Returns the arrays of a result with other numbers."""
    if isinstance(result, tuple):
        return (
            type(result)(*map(spoilt, result)) if hasattr(result, "_fields") else tuple(map(spoilt, result))
        )
    return None if result is None else np.full_like(result, -1)


def leaves(result):
    """Yields the arrays of a result."""
    return [a for part in result for a in leaves(part)] if isinstance(result, tuple) else [result]


@kinds
@margins
@reads
@pytest.mark.parametrize("aggregate", [None, "mean"])
def test_out(backend, dtype, kind, margin, case, aggregate):
    x, t, f, w = problem(kind, margin, case, dtype)
    words = words_of(kind, margin, case)
    how = {**words, "aggregate": aggregate}
    y, route = hinge.forward_with_route(x, t, f, w, **how)
    back = y, route, x, t, f, w
    calls = [
        (hinge.traverse, (x, t, f), words, route),
        (hinge.forward, (x, t, f, w), how, y),
        (hinge.forward_with_route, (x, t, f, w), how, (y, route)),
        (hinge.leaf_outputs, (route.leaf, route.margin, w), {"aggregate": aggregate}, y),
        (hinge.backward, back, how, hinge.backward(*back, **how)),
    ]
    for call, args, settings, want in calls:
        given = spoilt(want)
        got = call(*args, **settings, out=given)
        assert type(got) is type(want)
        for a, b, c in zip(*map(leaves, (got, given, want)), strict=True):
            assert a is b
            np.testing.assert_array_equal(a, c)
    given, want = np.full_like(x, np.nan), hinge.backward_sparse(*back, **how)
    got = hinge.backward_sparse(*back, **how, out=given)
    assert got.x is given
    for a, b in zip(leaves(got), leaves(want), strict=True):
        np.testing.assert_array_equal(a, b)


@margins
@reads
def test_inputs_are_left_alone_and_may_be_read_only(backend, margin, case):
    arrays = problem("tree", margin, case)
    copies = [a.copy() for a in arrays]
    for a in arrays:
        a.flags.writeable = False
    words = words_of("tree", margin, case)
    y, route = hinge.forward_with_route(*arrays, **words)
    for a in (y, *route):
        a.flags.writeable = False
    hinge.backward(y, route, *arrays, **words)
    hinge.backward_sparse(y, route, *arrays, **words)
    for a, b in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(a, b)


@kinds
@margins
def test_infinite_thresholds_and_products_beyond_the_dtype(backend, dtype, kind, margin):
    x, t, f, _ = problem(kind, margin, Case((6, 9), 2, 3, 2), dtype)
    t[0] = np.inf
    t[1] = -np.inf
    leaf, r, _ = hinge.traverse(x, t, f, kind=kind, margin=margin)
    assert (leaf == [0, 7]).all()
    assert (r == [-np.inf, np.inf]).all()
    largest = np.finfo(dtype).max
    x = np.full((2, 9), largest, dtype)
    if margin == "column":
        t[...] = -largest
    else:
        t, f = np.zeros_like(t), np.full(f.shape, 4, dtype)
    with np.errstate(over="ignore"):
        leaf, r, vertex = hinge.traverse(x, t, f, kind=kind, margin=margin)
    assert (leaf == 7).all()
    assert (r == np.inf).all()
    assert (vertex == 0).all()


# ------------------------------------------------------------------------------ named tuples


@kinds
@margins
@pytest.mark.parametrize("n", [1, 500])
def test_results_that_belong_together_have_names(backend, kind, margin, n):
    x = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    words = {"kind": kind, "margin": margin}
    parameters = hinge.init(5, 3, 4, 2, **words, rng=0)
    assert type(parameters) is hinge.Parameters
    assert parameters._fields == FORWARD[1:]
    t, f, w = parameters
    route = hinge.traverse(x, t, f, **words)
    y, again = hinge.forward_with_route(x, t, f, w, **words)
    state = hinge.adam_state(t, w, f if margin == "projection" else None)
    _, trained = hinge.adam_forward(x, t, f, w, state, 1, 0.1, **words)
    for a in (route, again, trained):
        assert type(a) is hinge.Route
        assert a._fields == ("leaf", "margin", "vertex")
        assert [part.dtype for part in a] == [np.int32, np.float32, np.int32]
        np.testing.assert_array_equal(a.leaf, route.leaf)
    grads, sparse = (run(y, route, x, t, f, w, **words) for run in (hinge.backward, hinge.backward_sparse))
    for a in (grads, sparse):
        assert type(a) is hinge.Gradients
        assert a._fields == FORWARD
        assert (a.features is None) == (margin == "column")
    for a in pushed(sparse._replace(x=None)).values():
        assert type(a) is hinge.RowGradient
        assert a._fields == ("rows", "values")
        assert len(a.rows) == len(a.values)


# --------------------------------------------------------------------------------- bad input

FORWARD = ("x", "thresholds", "features", "weights")

READS = {"rows": Case((6, 3), 2, 2, 4), "windows": Case((2, 3, 5, 6), 2, 2, 4, Windows(3))}


def good(kind="tree", margin="column", read="rows"):
    """Returns arguments of the gradients, including the gradients of the outputs."""
    case = READS[read]
    arrays = problem(kind, margin, case)
    y, route = hinge.forward_with_route(*arrays, **words_of(kind, margin, case))
    return {"grad_y": y, **route._asdict(), **dict(zip(FORWARD, arrays, strict=True))}


def call(function, given, words):
    """Calls an operator with its arguments from `good`."""
    given = {**given, "route": hinge.Route(*(given[name] for name in hinge.Route._fields))}
    names = ("grad_y", "route") if "backward" in function.__name__ else ()
    names += FORWARD[: 3 if function is hinge.traverse else 4]
    return function(*(given[name] for name in names), **words)


def changed(a, index, value):
    a = a.copy()
    a[index] = value
    return a


def strided(a):
    return np.repeat(a, 2, axis=0)[::2]


def unaligned(a):
    return np.zeros(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(a.shape)


OPERATORS = (hinge.traverse, hinge.forward, hinge.forward_with_route, hinge.backward, hinge.backward_sparse)

AHEAD, BACK = OPERATORS[:3], OPERATORS[3:]

operators = pytest.mark.parametrize("function", OPERATORS, ids=lambda function: function.__name__)

NAN, ANY = np.nan, ""

BAD = [
    # margin and input, or any; functions; argument, change that makes it invalid, error, part of the message,
    # in which {V} stands for the number of vertices
    (ANY, "rows", OPERATORS, "x", lambda a: a.astype(np.float16), TypeError, "float32 or float64, got float16"),
    (ANY, "rows", AHEAD, "x", lambda a: a.astype(">f8"), TypeError, "float32 or float64"),
    (ANY, "rows", AHEAD, "x", lambda a: a.astype(object), TypeError, "object"),
    (ANY, "rows", AHEAD, "x", lambda a: a.tolist(), TypeError, "got list; convert it with numpy.asarray.x, dtype=..., order='C'"),
    (ANY, "rows", AHEAD, "x", lambda a: np.matrix(a), TypeError, "got matrix"),
    (ANY, "rows", AHEAD, "x", lambda a: np.ma.masked_array(a), TypeError, "got MaskedArray"),
    (ANY, "rows", AHEAD, "x", lambda a: a.astype(np.int64), TypeError, "got int64; convert it with x.astype.numpy.float32"),
    (ANY, "rows", OPERATORS, "x", lambda a: a[0], ValueError, r"\(n_samples, n_features\)"),
    (ANY, "rows", AHEAD, "x", lambda a: a[None], ValueError, r"\(n_samples, n_features\)"),
    ("column", "rows", OPERATORS, "x", lambda a: a[:, :0].copy(), ValueError, "n_features: expected at least 1"),
    (ANY, "rows", OPERATORS, "x", lambda a: np.asfortranarray(a), ValueError, "C-contiguous.*numpy.ascontiguousarray"),
    (ANY, "rows", AHEAD, "x", strided, ValueError, "C-contiguous"),
    (ANY, "rows", OPERATORS, "x", unaligned, ValueError, "aligned"),
    (ANY, "rows", AHEAD, "x", lambda a: changed(a, (4, 1), NAN), ValueError, r"finite numbers, got nan at index \(4, 1\); impute .* or lower the learning rate if layers"),
    (ANY, "rows", AHEAD, "x", lambda a: changed(a, (5, 2), -np.inf), ValueError, r"got -inf at index \(5, 2\)"),
    (ANY, "rows", AHEAD, "x", lambda a: a.astype(np.float32), TypeError, "thresholds: expected dtype float32, got float64; convert"),
    (ANY, ANY, OPERATORS, "thresholds", lambda a: a.astype(np.float32), TypeError, "got float32; .*float64., or the others to float32"),
    (ANY, ANY, OPERATORS, "thresholds", lambda a: np.zeros((2, 4)), ValueError, "{V}"),
    (ANY, ANY, OPERATORS, "thresholds", lambda a: a[:, :0].copy(), ValueError, "depth"),
    (ANY, ANY, OPERATORS, "thresholds", lambda a: a[:0], ValueError, "n_trees"),
    (ANY, ANY, AHEAD, "thresholds", lambda a: changed(a, (1, 1), NAN), ValueError, r"no NaN, got nan at index \(1, 1\)"),
    ("column", ANY, OPERATORS, "features", lambda a: a[:1], ValueError, r"\(n_trees, {V}\) = \(2, [23]\), got \(1, [23]\)"),
    ("column", ANY, OPERATORS, "features", lambda a: a.astype(np.int64), TypeError, "int32, got int64"),
    ("column", "rows", AHEAD, "features", lambda a: changed(a, (0, 1), 3), IndexError, r"0 <= index < n_features = 3, got 3"),
    ("column", "rows", BACK, "features", lambda a: np.full_like(a, 3), IndexError, r"0 <= index < n_features = 3, got 3"),
    ("column", ANY, OPERATORS, "features", lambda a: changed(a, (1, 0), -1), IndexError, r"got -1 at index \(1, 0\)"),
    ("column", "windows", OPERATORS, "features", lambda a: changed(a, (1, 0), 27), IndexError, r"n_features = 27, got 27"),
    ("projection", ANY, OPERATORS, "features", lambda a: a.astype(np.float32), TypeError, "features: expected dtype float64, got float32; "),
    ("projection", ANY, OPERATORS, "features", lambda a: a[:, :, :2].copy(), ValueError, r"features: expected shape \(n_trees, {V}, n_features\)"),
    ("projection", "windows", OPERATORS, "features", lambda a: a[:, :, :3].copy(), ValueError, r"n_features\) = \(2, [23], 27\), got"),
    ("projection", ANY, OPERATORS, "features", lambda a: a[0], ValueError, r"features: expected shape \(n_trees, {V}, n_features\)"),
    ("projection", ANY, OPERATORS, "features", lambda a: a[:, :, 0].copy(), ValueError, r"features: expected shape \(n_trees, {V}, .*, got \(2, [23]\); pass"),
    ("projection", ANY, OPERATORS, "features", lambda a: a[:1].copy(), ValueError, r"features: expected shape \(n_trees, {V}, n_features\)"),
    ("projection", ANY, OPERATORS, "features", lambda a: a[:, :1].copy(), ValueError, "features: expected shape"),
    ("projection", ANY, OPERATORS, "features", lambda a: a[:, :, ::-1], ValueError, "features: expected a C-contiguous array"),
    ("projection", ANY, AHEAD, "features", lambda a: changed(a, (1, 1, 2), NAN), ValueError, r"features: expected finite numbers, got nan at index \(1, 1, 2\); train"),
    (ANY, ANY, AHEAD[1:], "weights", lambda a: a[:, :3].copy(), ValueError, r"2\*\*depth"),
    (ANY, ANY, AHEAD[1:] + BACK, "weights", lambda a: a[..., :0].copy(), ValueError, "n_outputs: expected at least 1"),
    (ANY, ANY, AHEAD[1:], "weights", lambda a: a[0, 0], ValueError, r"\(n_trees, 2\*\*depth, \.\.\.\)"),
    (ANY, ANY, BACK, "weights", lambda a: a[:1].copy(), ValueError, "n_trees"),
    (ANY, ANY, BACK, "weights", lambda a: a[:, :2].copy(), ValueError, "weights: expected shape"),
    (ANY, "rows", BACK, "grad_y", lambda a: a[:, :, 0].copy(), ValueError, "expected 3 axes, as y has with this aggregate, got 2; .* the aggregate of the forward call"),
    (ANY, ANY, BACK, "grad_y", lambda a: a[..., :3].copy(), ValueError, "grad_y: expected shape"),
    (ANY, ANY, BACK, "grad_y", lambda a: a.astype(np.float32), TypeError, "float64, got float32"),
    (ANY, "rows", BACK, "grad_y", lambda a: changed(a, (1, 0, 2), NAN), ValueError, r"finite numbers, got nan at index \(1, 0, 2\); the loss"),
    (ANY, ANY, BACK, "grad_y", lambda a: changed(a, (1, 0, 1), np.inf), ValueError, "finite numbers, got inf"),
    (ANY, "rows", BACK, "margin", lambda a: changed(a, (5, 1), NAN), ValueError, r"no NaN, got nan at index \(5, 1\)"),
    (ANY, ANY, BACK, "margin", lambda a: a.astype(np.int32), TypeError, "float64, got int32"),
    (ANY, ANY, BACK, "leaf", lambda a: changed(a, (1, 1), 4), IndexError, r"0 <= index < 2\*\*depth = 4, got 4"),
    (ANY, "rows", BACK, "leaf", lambda a: changed(a, (3, 1), -1), IndexError, "got -1"),
    (ANY, ANY, BACK, "leaf", lambda a: a.astype(np.int64), TypeError, "int32"),
    (ANY, ANY, BACK, "vertex", lambda a: changed(a, (0, 0), 3), IndexError, "{V} = [23], got 3"),
    (ANY, "rows", BACK, "vertex", lambda a: a[:5], ValueError, r"\(n_samples, n_trees\) = \(6, 2\), got \(5, 2\)"),
    (ANY, ANY, BACK, "vertex", lambda a: a.astype(np.int64), TypeError, "expected dtype int32"),
    (ANY, "rows", BACK, "x", lambda a: a[:4].copy(), ValueError, r"route.leaf: expected shape \(n_samples, n_trees\) = \(4, 2\)"),
    ("column", "rows", BACK, "x", lambda a: a[:, :1].copy(), IndexError, "features: expected 0 <= index < n_features = 1"),
    (ANY, "windows", OPERATORS, "x", lambda a: a[:, :, 0, 0].copy(), ValueError, "x: expected .*one to three axes in space"),
    (ANY, "windows", OPERATORS, "x", lambda a: a.astype(np.int32), TypeError, "x: expected dtype float32 or float64"),
    (ANY, "windows", OPERATORS, "x", lambda a: a[:, :0].copy(), ValueError, "channels: expected at least 1"),
    (ANY, "windows", AHEAD, "x", lambda a: changed(a, (1, 2, 3, 4), NAN), ValueError, "x: expected finite"),
    (ANY, "windows", OPERATORS, "x", lambda a: a.transpose(0, 1, 3, 2), ValueError, "C-contiguous"),
    (ANY, "windows", BACK, "x", lambda a: np.zeros((2, 3, 5, 7)), ValueError, "leaf: expected shape"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@kinds
@pytest.mark.parametrize(("margin", "read", "functions", "name", "spoil", "error", "words"), BAD)
def test_bad_arrays(kind, margin, read, functions, name, spoil, error, words):
    of = {"tree": r"2\*\*depth - 1", "fern": "depth"}[kind]
    for m, r in itertools.product([margin] if margin else MARGINS, [read] if read else READS):
        given = good(kind, m, r)
        given[name] = spoil(given[name])
        for function in functions:
            with pytest.raises(error, match=words.replace("{V}", of)) as caught:
                call(function, given, words_of(kind, m, READS[r]))
            # Argument, expected, got and remedy, in that order.
            message = str(caught.value)
            assert message.index(": expected") < message.index("got") < message.index(";")


@operators
def test_projections_of_no_features(function):
    given = good("tree", "projection")
    empty = {name: given[name][..., :0].copy() for name in ("x", "features")}
    with pytest.raises(ValueError, match="^n_features: expected at least 1, got 0"):
        call(function, given | empty, {"margin": "projection"})


@kinds
@operators
@pytest.mark.parametrize("read", READS)
def test_features_of_another_margin_name_it(kind, function, read):
    for margin, other in itertools.permutations(MARGINS):
        given, words = good(kind, margin, read), words_of(kind, other, READS[read])
        for features in (given["features"], given["features"].astype("i8" if margin == "column" else "f4")):
            with pytest.raises(
                TypeError, match=rf"^features: expected .* with margin='{other}', got .*; pass"
            ) as caught:
                call(function, {**given, "features": features}, words)
            assert str(caught.value).endswith(f"pass margin='{margin}'")


WORDS = {"kind": "'tree', 'fern'", "margin": "'column', 'projection'", "aggregate": "None, 'sum', 'mean'"}

NO_WORDS = ["max", "Tree", "", np.array(["tree", "sum"]), np.zeros(0), {"sum"}, ["column"], 3, True, object()]


@operators
@pytest.mark.parametrize("name", WORDS)
def test_what_is_no_word_is_refused(function, name):
    for value in NO_WORDS if name == "aggregate" else [*NO_WORDS, None]:
        error, message = ValueError, f"^{name}: expected one of {WORDS[name]}, got .*; choose"
        if (function, name) == (hinge.traverse, "aggregate"):
            error, message = TypeError, "unexpected keyword argument"
        with pytest.raises(error, match=message):
            call(function, good(), {name: value})


@pytest.mark.parametrize("value", NO_WORDS, ids=lambda value: type(value).__name__)
def test_what_is_no_word_is_refused_elsewhere(value):
    g = good()
    x, t, f, w = (g[name] for name in FORWARD)
    state, route = hinge.adam_state(t, w), hinge.traverse(x, t, f)
    steps = [
        lambda **word: hinge.adam_forward(x, t, f, w, state, 1, 0.1, **word),
        lambda **word: hinge.adam_backward(np.zeros((6, 4)), route, x, t, f, w, state, 1, 0.1, **word),
        lambda **word: hinge.adam_step(x, np.zeros(6, int), t, f, w, state, 1, 0.1, **word),
    ]
    start = partial(hinge.init, 2, 2, 3)
    for name, calls in {
        "aggregate": [partial(hinge.leaf_outputs, g["leaf"], g["margin"], w), *steps],
        "kind": [start, partial(hinge.median_thresholds, x, f), *steps],
        "margin": [start, *steps],
    }.items():
        for run in calls:
            with pytest.raises(ValueError, match=f"^{name}: expected one of .*, got .*; choose"):
                run(**{name: value})
    assert not any(a.any() for a in state if a is not None)


@operators
@pytest.mark.parametrize(
    ("windows", "error", "words"),
    [
        (3, TypeError, "windows: expected Windows or None, got int; pass hforest.hinge.Windows"),
        ((3, 1, 0, 1), TypeError, "windows: expected Windows or None, got tuple"),
        (Windows(6), ValueError, "kernel_size: expected kernels inside .* at most 5 .* got 6"),
        (Windows((3,)), ValueError, "kernel_size: expected an int or one int for each of the 2 spatial axes"),
        (Windows(0), ValueError, "kernel_size: expected"),
        (Windows(2.5), TypeError, "kernel_size: expected"),
        (Windows(True), TypeError, "kernel_size: expected"),
        (Windows([3, "3"]), TypeError, "kernel_size: expected"),
        (Windows(3, stride=0), ValueError, "stride: expected"),
        (Windows(3, padding=-1), ValueError, "padding: expected"),
        (Windows(3, dilation=(1, 4)), ValueError, "with dilation 4"),
    ],
)
def test_bad_windows(function, windows, error, words):
    for margin in MARGINS:
        with pytest.raises(error, match=f"^{words}|{words}"):
            call(function, good("tree", margin, "windows"), {"margin": margin, "windows": windows})


@operators
def test_windows_of_another_size(function):
    given = good("tree", "column", "windows")
    of_places = ValueError, r"^route.leaf: expected shape \(2, 4, 5, n_trees\)"
    of_columns = IndexError, "^features: expected 0 <= index < n_features = 12"
    error, words = of_places if function in BACK else of_columns
    with pytest.raises(error, match=words):
        call(function, given, {"windows": Windows(2)})
    with pytest.raises(
        ValueError, match=r"^features: expected shape .* = \(2, 3, 12\), got \(2, 3, 27\); pass"
    ):
        call(function, good("tree", "projection", "windows"), {"margin": "projection", "windows": Windows(2)})
    if function in BACK:  # the route has other places
        with pytest.raises(
            ValueError, match=r"^route.leaf: expected shape \(2, 5, 6, n_trees\) = \(2, 5, 6, 2\), got"
        ):
            call(function, given, {"windows": Windows(3, padding=1)})


@pytest.mark.parametrize("function", BACK)
@pytest.mark.parametrize("by_tree", [False, True])
def test_a_gradient_checks_the_columns_that_the_route_names(function, by_tree):
    given = good()
    n_vertices = given["thresholds"].shape[1]
    vertices = given["vertex"].T
    if by_tree:  # the samples of a tree are contiguous
        given |= {name: given[name].T.copy().T for name in hinge.Route._fields}
    wanted = call(function, given, {}).x
    for m in range(len(vertices)):
        for v in range(n_vertices):
            spoilt = given | {"features": changed(given["features"], (slice(m, None), v), -7)}
            if not (vertices[m:] == v).any():
                assert_same_bits(call(function, spoilt, {}).x, wanted)
                continue
            first = next(i for i in range(m, len(vertices)) if v in vertices[i])
            with pytest.raises(
                IndexError, match=rf"^features: expected .*, got -7 at index \({first}, {v}\); pass"
            ):
                call(function, spoilt, {})
            with hforest.unchecked():
                call(function, spoilt, {})


def test_more_windows_than_an_int32_counts_are_refused():
    # Without the check, a public function would fill the memory.
    with pytest.raises(ValueError, match="^n_windows: expected 0 to 2147483647, got 4800280004"):
        geometry("x", (1, 1, 2, 2), Windows(1, 1, (30000, 40000)))


@pytest.mark.parametrize("route", [None, 3, [1, 2, 3], (np.zeros((6, 2)),), np.zeros((3, 6, 2))])
def test_what_is_no_route_is_refused(route):
    g = good()
    for function in BACK:
        with pytest.raises(TypeError, match=r"^route: expected \(leaf, margin, vertex\), got .*; pass "):
            function(g["grad_y"], route, *(g[name] for name in FORWARD))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda g: hinge.init(0, 2, 3), ValueError, "n_trees: expected 1 to 2147483647, got 0"),
        (lambda g: hinge.init(2, 0, 3), ValueError, "depth: expected 1 to 30, got 0"),
        (lambda g: hinge.init(2, 40, 3), ValueError, "depth: expected 1 to 30, got 40"),
        (lambda g: hinge.init(2, 40, 3, kind="fern"), ValueError, "depth"),
        (lambda g: hinge.init(2.0, 3, 3), TypeError, "n_trees: expected an int, got float"),
        (lambda g: hinge.init(True, 3, 3), TypeError, "n_trees: expected an int, got bool"),
        (lambda g: hinge.init(2, 3, 0), ValueError, "n_features: expected 1 to"),
        (lambda g: hinge.init(2, 3, 3, (4, 0)), ValueError, "outputs"),
        (lambda g: hinge.init(2, 3, 3, [4, 0.5]), TypeError, "outputs: expected an int, got float"),
        (lambda g: hinge.init(2, 3, 3, dtype=np.float16), TypeError, "dtype: expected float32 or float64"),
        (lambda g: hinge.init(2, 3, 3, features="best"), ValueError, "features: expected one of"),
        (lambda g: hinge.init(2, 3, 3, rng="seed"), TypeError, "rng: expected None, an int"),
        (lambda g: hinge.init(2, 3, 3, rng=-1), ValueError, "rng"),
        (lambda g: hinge.init(2, 3, 3, scale=-1.0), ValueError, "scale"),
        (lambda g: hinge.traverse(g["x"], np.zeros((2, 31)), np.zeros((2, 31), np.int32), kind="fern"), ValueError, "31"),
        (lambda g: hinge.leaf_counts(g["leaf"], 1), IndexError, "n_leaves = 1"),
        (lambda g: hinge.leaf_rows(g["leaf"][:, :0].copy(), 4), ValueError, "n_trees"),
        (lambda g: hinge.bayes_weights(g["leaf"], [0] * len(g["leaf"]), 16, prior=0.0), ValueError, "prior: expected a finite"),
        (lambda g: hinge.bayes_weights(g["leaf"], [0], 16), ValueError, "y: expected shape"),
        (lambda g: hinge.bayes_weights(g["leaf"], [0.5] * len(g["leaf"]), 16), TypeError, "y: expected labels"),
        (lambda g: hinge.bayes_weights(g["leaf"], [0] * len(g["leaf"]), 2**30, n_classes=2), ValueError, "n_leaves: expected at most"),
        (lambda g: hinge.bayes_weights(g["leaf"], [0] * len(g["leaf"]), 16, dtype=int), TypeError, "dtype: expected float32"),
        (lambda g: hinge.tree_path(g["leaf"], g["features"][:1].copy()), ValueError, "n_trees"),
        (lambda g: hinge.median_thresholds(g["x"][:0], g["features"]), ValueError, "n_samples"),
        (lambda g: hinge.repair_thresholds(g["thresholds"], g["features"][:1]), ValueError, "n_trees"),
    ],
)  # fmt: skip
def test_bad_calls(call, error, words):
    with pytest.raises(error, match=words):
        call(good())


def test_outputs_may_be_a_list():
    for kind in KINDS:
        lists, tuples = (hinge.init(3, 2, 5, outputs, kind=kind, rng=0) for outputs in ([2, 4], (2, 4)))
        for a, b in zip(lists, tuples, strict=True):
            np.testing.assert_array_equal(a, b)


def test_nan_is_the_callers_affair_when_unchecked():
    g = good()
    g["margin"][5, 1] = g["grad_y"][0, 0, 0] = np.nan
    with hforest.unchecked():
        assert np.isnan(call(hinge.backward, g, {}).x).any()
    with pytest.raises(ValueError, match="^margin"):
        hinge.leaf_outputs(g["leaf"], g["margin"], g["weights"])


@pytest.mark.parametrize("windows", [None, Windows(3)])
def test_columns_that_changed_after_the_forward_call(windows):
    shape, n_columns = ((2, 5), 5) if windows is None else ((2, 5, 3, 3), 45)

    def checked(column):
        features = np.array([[column]], np.int32)
        kernels.check_changed(np.zeros((2, 1)), np.dtype(np.float64), features, shape, windows=windows)

    checked(n_columns - 1)
    with pytest.raises(IndexError, match=f"^features: expected .*{n_columns}"):
        checked(n_columns)
    with hforest.unchecked():
        checked(n_columns)


@margins
def test_bad_out(margin):
    g, words = good("tree", margin), {"margin": margin}
    locked, y = np.empty((6, 2, 4)), np.empty((6, 2, 4))
    locked.flags.writeable = False
    both, r, x = np.empty((6, 2), np.int32), np.empty((6, 2)), np.zeros((6, 2))
    narrow = {"x": x, "features": np.zeros((2, 3), np.int32) if margin == "column" else np.zeros((2, 3, 2))}
    fresh = hinge.Gradients(*(None if g[name].dtype == np.int32 else g[name].copy() for name in FORWARD))
    for function, out, error, message in (
        (hinge.forward, np.empty((6, 2)), ValueError, "^out: expected shape"),
        (hinge.forward, np.empty((6, 2, 4), np.float32), TypeError, "^out: expected dtype float64"),
        (hinge.forward, locked, ValueError, "^out: expected a writable array"),
        (hinge.traverse, (both, r, both), ValueError, "out leaf: expected memory that no other argument uses.*overlaps out vertex"),
        (hinge.traverse, (both, x, both.copy()), ValueError, "out margin: expected memory that no other argument uses.*overlaps x"),
        (hinge.traverse, r, TypeError, "^out: expected a tuple of 3 arrays"),
        (hinge.forward_with_route, locked, TypeError, r"^out: expected \(y, route\), got ndarray"),
        (hinge.forward_with_route, (locked, r), TypeError, r"^out: expected \(y, route\)"),
        (hinge.forward_with_route, (y, (both, r)), TypeError, r"^out: expected a tuple of 4 arrays \(y, leaf, "),
        (hinge.forward_with_route, (y, (both, r, both)), ValueError, "out leaf: .*overlaps out vertex"),
        (hinge.backward, tuple(g[name] for name in FORWARD[:3]), TypeError, "^out: expected Gradients, got tuple"),
        (hinge.backward, g["x"], TypeError, "^out: expected Gradients, got ndarray"),
        (hinge.backward, fresh._replace(x=g["x"]), ValueError, "^out grad_x: expected memory that no other argument uses"),
        (hinge.backward, fresh._replace(weights=y), ValueError, "^out grad_weights: expected shape"),
        (hinge.backward, fresh._replace(weights=None), TypeError, "^out grad_weights: expected"),
        (hinge.backward_sparse, fresh, TypeError, "^out: expected"),
        (hinge.backward_sparse, np.empty((6, 4)), ValueError, "^out: expected shape"),
        (hinge.backward_sparse, g["x"], ValueError, "^out: .*overlaps x"),
    ):  # fmt: skip
        given = g | narrow if message.endswith("uses.*overlaps x") else g
        with pytest.raises(error, match=message):
            call(function, given, {**words, "out": out})
    images, words = good("tree", margin, "windows"), {"margin": margin, "windows": Windows(3)}
    for function in (hinge.forward, hinge.backward_sparse):
        with pytest.raises(ValueError, match="^out: expected shape"):
            call(function, images, {**words, "out": np.zeros((2, 3, 4))})


def test_failed_call_changes_nothing():
    g = good()
    y = np.full((6, 2, 4), 7.0)
    with pytest.raises(IndexError):
        call(hinge.forward, {**g, "features": g["features"] + np.int32(9)}, {"out": y})
    assert (y == 7).all()
