"""Prepared forests: bit-identical to the forest for all inputs, and immutable."""

import concurrent.futures
import copy
import pickle
import sys
import types

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse
from test_tree import STUMP, inputs, random_forest

import hforest
from hforest import tree
from hforest.core import blocks
from hforest.tree import Forest, Prepared, prepare, reference, walks
from hforest.tree.cpu import prepared

pytestmark = pytest.mark.kernels

KINDS = ("plain", "missing", "categories", "projections", "projections and missing")
FUNCTIONS = (tree.apply, tree.predict, tree.vote_shares)


def forest_of(kind, dtype, seed, *, n_trees=20, depth=6, n_features=5, n_outputs=3, pure=False):
    """Returns trees of random shape; with `pure` most leaves have one class, the others none."""
    rng = np.random.default_rng(seed)
    forest = random_forest(n_trees, depth, n_features, n_outputs, dtype, seed, "projections" in kind)
    is_split = forest.feature != -1
    if pure:
        value = np.eye(n_outputs, dtype=dtype)[rng.integers(0, n_outputs, len(forest.value))]
        value[::7] = -0.0
        forest = forest._replace(value=value)
    if kind == "plain" or kind == "projections":
        return forest
    directions = np.where(is_split, rng.integers(0, 4, len(is_split)), 0).astype(np.uint8)
    threshold = forest.threshold.copy()
    # Splits between missing values and all numbers.
    threshold[is_split & (rng.random(len(is_split)) < 0.2)] = np.finfo(dtype).max
    forest = forest._replace(default_left=directions, threshold=threshold)
    if kind != "categories":
        return forest
    n_words = np.where(forest.feature >= 0, rng.integers(0, 3, len(is_split)), 0)
    return forest._replace(
        category_indptr=np.concatenate([[0], np.cumsum(n_words)]).astype(np.int64),
        category_bits=rng.integers(0, 2**32, int(n_words.sum()), np.uint32),
        threshold=np.where(n_words > 0, 0, threshold).astype(dtype),
    )


def samples_of(kind, n, n_features, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = inputs(n, n_features, dtype, seed)
    if kind == "categories":
        x = np.where(rng.random(x.shape) < 0.5, rng.integers(0, 70, x.shape), x).astype(dtype)
    if kind not in ("plain", "projections"):
        x[rng.random(x.shape) < 0.2] = np.nan
    return x


def assert_equal(forest, ready, x):
    for function in FUNCTIONS:
        want, got = function(forest, x), function(ready, x)
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        assert got.tobytes() == want.tobytes(), function.__name__


@pytest.mark.parametrize("kind", KINDS)
@hypothesis.given(
    n=st.sampled_from([0, 1, 2, 5, 40]), n_trees=st.integers(1, 40), depth=st.integers(0, 9),
    n_features=st.integers(1, 5), n_outputs=st.integers(1, 4), pure=st.booleans(),
    other=st.booleans(), seed=st.integers(0, 2**16),
)  # fmt: skip
@hypothesis.settings(max_examples=25, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_bits(kind, dtype, n, n_trees, depth, n_features, n_outputs, pure, other, seed):
    sizes = {"n_trees": n_trees, "depth": depth, "n_features": n_features, "n_outputs": n_outputs}
    forest = forest_of(kind, dtype, seed, pure=pure, **sizes)
    x = samples_of(
        kind, n, n_features, (np.float64 if dtype == np.float32 else np.float32) if other else dtype, seed
    )
    assert_equal(forest, prepare(forest), x)


@pytest.mark.parametrize("kind", KINDS)
def test_bits_of_the_reference(kind, dtype):
    forest, x = forest_of(kind, dtype, 1, pure=True), samples_of(kind, 3, 5, dtype)
    ready = prepare(forest)
    for function in FUNCTIONS:
        got = function(ready, x)
        with hforest.using("reference"):
            assert function(forest, x).tobytes() == got.tobytes() == function(ready, x).tobytes()


@pytest.mark.parametrize("n", [3, 2000])
def test_a_block_that_chooses_the_backend_gets_it(n, monkeypatch):
    forest, x = forest_of("plain", np.float32, 1), samples_of("plain", n, 5, np.float32)
    monkeypatch.setattr(reference, "apply", lambda x, forest, leaf: leaf.fill(-7))
    with hforest.using("reference"):
        assert (tree.apply(prepare(forest), x) == -7).all()
    assert (tree.apply(prepare(forest), x) >= 0).all()


@pytest.mark.parametrize("n", [1, 2, 7, 130, 3000, 20000])
@pytest.mark.parametrize("kind", KINDS)
def test_bits_of_any_number_of_rows(threads, kind, dtype, n):
    # One row is walked at once, some share the threads, many have the trees packed for them.
    threads(3)
    forest = forest_of(kind, dtype, 3, n_trees=30, depth=7, pure=True)
    assert_equal(forest, prepare(forest), samples_of(kind, n, 5, dtype))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("kind", ["plain", "missing"])
def test_numbers_that_are_not_finite_inside_unchecked(kind, dtype, value):
    forest, x = forest_of(kind, dtype, 1), samples_of(kind, 4, 5, dtype)
    x[1, 2] = value
    with hforest.unchecked():
        assert_equal(forest, prepare(forest), x)


def chain(n_splits, dtype):
    """Returns one tree of right children, whose splits compare feature 0 with 0, 1, 2, ..."""
    v = np.arange(2 * n_splits + 1)
    split = (v % 2 == 0) & (v < len(v) - 1)
    return Forest(
        n_features=np.array(1), tree_start=np.array([0, len(v)]), feature=np.where(split, 0, -1).astype(np.int32),
        threshold=(v // 2 * split).astype(dtype),
        left=np.where(split, v + 1, np.cumsum(~split) - 1).astype(np.int32),
        value=np.arange(n_splits + 1, dtype=dtype)[:, None], gain=np.zeros(len(v), dtype),
        indptr=np.zeros(0, np.int64), indices=np.zeros(0, np.int32), data=np.zeros(0, dtype),
    )  # fmt: skip


@pytest.mark.parametrize("n_splits", [8, 32766, 32767, 40000])
def test_nodes_of_every_width(dtype, n_splits):
    # Children are 16 bits away in trees of less than 2**16 - 1 nodes.
    forest = chain(n_splits, dtype)
    ready = prepare(forest)
    for at in (0, 1, n_splits // 2, n_splits - 1, n_splits, n_splits + 1):
        x = np.array([[at]], dtype)
        assert tree.predict(ready, x).item() == min(at, n_splits)
        assert_equal(forest, ready, x)


@pytest.mark.parametrize("depth", [14, 15, 16])
def test_far_children(dtype, depth):
    # In full trees of depth 16 children are more than 2**16 places away.
    v = np.arange(2 ** (depth + 1) - 1)
    split, rng = v < len(v) // 2, np.random.default_rng(0)
    forest = Forest(
        n_features=np.array(4), tree_start=np.array([0, len(v)]), feature=np.where(split, v % 4, -1).astype(np.int32),
        threshold=(rng.normal(size=len(v)) * split).astype(dtype),
        left=np.where(split, 2 * v + 1, v - len(v) // 2).astype(np.int32),
        value=v[: len(v) // 2 + 1, None].astype(dtype), gain=np.zeros(len(v), dtype),
        indptr=np.zeros(0, np.int64), indices=np.zeros(0, np.int32), data=np.zeros(0, dtype),
    )  # fmt: skip
    ready = prepare(forest)
    for x in rng.normal(size=(300, 1, 4)).astype(dtype):
        assert_equal(forest, ready, x)


def test_features_of_every_width(dtype):
    for n_features in (2**15 - 1, 2**15 + 8, 2**16 - 1, 2**16 + 8):
        forest = forest_of("plain", dtype, 0)
        feature = np.where(forest.feature >= 0, n_features - 1 - forest.feature, -1).astype(np.int32)
        forest = forest._replace(feature=feature, n_features=np.array(n_features))
        x = np.zeros((2, n_features), dtype)
        x[:, -5:] = inputs(2, 5, dtype)
        assert_equal(forest, prepare(forest), x)
        known = forest._replace(default_left=(feature >= 0).astype(np.uint8))
        x[0, -2] = np.nan
        assert_equal(known, prepare(known), x)


def test_samples_without_features(dtype):
    n = 3
    none = np.zeros(0, np.int64)
    forest = Forest(
        np.array(0), np.array([0, 1, 2]), np.full(2, -1, np.int32), np.zeros(2, dtype), np.zeros(2, np.int32),
        np.array([[0.5], [1.0]], dtype), np.zeros(2, dtype), none, none.astype(np.int32), none.astype(dtype),
    )  # fmt: skip
    assert_equal(forest, prepare(forest), np.zeros((n, 0), dtype))


def test_samples_in_every_form(dtype, tmp_path, monkeypatch):
    forest = forest_of("missing", dtype, 2)
    ready, x = prepare(forest), samples_of("missing", 6, 5, dtype)
    mapped = np.memmap(tmp_path / "x", dtype, "w+", shape=x.shape)
    mapped[:] = x
    unaligned = np.zeros(x.nbytes + 1, np.uint8)[1:].view(dtype).reshape(x.shape)
    unaligned[:] = x
    swapped = x.astype(x.dtype.newbyteorder())
    for some in (x[::-1], np.asfortranarray(x), x[:, ::-1], mapped, unaligned, swapped, x.tolist()):
        assert_equal(forest, ready, some)
    assert_equal(forest, ready, np.ones((2, 5), np.int16))
    assert_equal(forest, ready, scipy.sparse.csr_array(np.nan_to_num(x)))
    monkeypatch.setattr(blocks, "CONVERTED", 4)
    assert_equal(forest, ready, np.asfortranarray(x).astype(np.float16))


def test_out_is_used(dtype):
    forest = forest_of("plain", dtype, 2)
    ready, x = prepare(forest), inputs(1, 5, dtype)
    for function, out in ((tree.predict, np.empty((1, 3), dtype)), (tree.apply, np.empty((1, 20), np.int32))):
        assert function(ready, x, out=out) is out
        assert out.tobytes() == function(forest, x).tobytes()
    with pytest.raises(ValueError, match="out: expected shape"):
        tree.predict(ready, x, out=np.empty((2, 3), dtype))
    frozen = ready.forest.value
    with pytest.raises(ValueError, match="out: expected a writable array"):
        tree.predict(ready, np.zeros((len(frozen), 5), dtype), out=frozen)


def test_path():
    assert tree.path(prepare(STUMP), [9, 0.75]).tolist() == [0, 2]


def test_single_rows_take_the_short_path(dtype, monkeypatch):
    forest, x = forest_of("plain", dtype, 2), inputs(2, 5, dtype)
    ready = prepare(forest)
    for of in (x, x.astype(np.float32), x.astype(np.float64)):
        assert prepared.quick(ready, of, 0) is not None
    for other in (x.tolist(), x[::-1], x[:0], x[0], x[:, :4], x.astype(np.int32), x * np.nan, x + np.inf):
        assert prepared.quick(ready, other, 0) is None

    for other in (np.float32, np.float64):
        for fault in (np.nan, np.inf, -np.inf, 1e300):
            with np.errstate(over="ignore"):
                some = np.full((1, 5), fault, other)
            is_good = dtype == other == np.float64 and fault == 1e300
            assert (prepared.quick(ready, some, 0) is not None) == is_good

    # Nothing reads the whole forest.
    def fail(*arguments):
        raise AssertionError

    for name in ("arrays_of", "check_contents", "check_walk"):
        monkeypatch.setattr(walks, name, fail)
    tree.predict(ready, x)


def test_long_calls_give_the_gil_back(dtype):
    # The bound of `quick` counts depths, features and outputs.
    ready = prepare(chain(40000, dtype))
    assert prepared.quick(ready, np.zeros((1, 1), dtype), 0) is None
    assert prepared.quick(prepare(chain(10, dtype)), np.zeros((2000, 1), dtype), 0) is None


@pytest.mark.parametrize(
    "x",
    [[[0.0]], [0.0, 1.0], [[np.nan, 0]], [[np.inf, 0]], [["a", "b"]], None, np.zeros((1, 3)), [[1e300, 0]]],
)
def test_errors_are_those_of_the_forest(x):
    single = STUMP._replace(
        **{name: getattr(STUMP, name).astype(np.float32) for name in ("threshold", "value", "gain", "data")}
    )
    for function in FUNCTIONS:
        with pytest.raises((TypeError, ValueError)) as want:
            function(single, x)
        with pytest.raises(type(want.value)) as got:
            function(prepare(single), x)
        assert str(got.value) == str(want.value)


# ------------------------------------------------------------------------------------------- the object


def test_changes_of_the_forest_do_not_matter(dtype):
    forest, x = forest_of("missing", dtype, 5), samples_of("missing", 4, 5, dtype)
    forest = Forest(*(a.copy() for a in forest))
    ready, want = prepare(forest), tree.predict(forest, x)
    for a in forest:
        a[...] = 0
    assert tree.predict(ready, x).tobytes() == want.tobytes()


def test_nothing_can_be_changed(dtype):
    x = inputs(1, 5, dtype)
    ready = prepare(forest_of("plain", dtype, 5))
    want = [function(ready, x).tobytes() for function in FUNCTIONS]
    for name, a in ready.forest._asdict().items():
        with pytest.raises(ValueError, match="read-only"):
            a[...] = 0
        with pytest.raises(ValueError, match="WRITEABLE"):
            a.flags.writeable = True
        with pytest.raises(ValueError, match="does not own its data"):
            a.resize(100, refcheck=False)
        if name == "value":
            a.resize((1, a.size), refcheck=False)
    for attribute in ("forest", "anything"):
        with pytest.raises(AttributeError):
            setattr(ready, attribute, None)
    for n in (1, 50, 3000):
        x = np.repeat(x[:1], n, 0)
        for function, bits in zip(FUNCTIONS, want, strict=True):
            assert function(ready, x)[-1].tobytes() == bits


def test_only_a_sound_forest_makes_one():
    for make in (prepare, Prepared):
        with pytest.raises(TypeError, match=r"forest: expected a hforest\.tree\.Forest, got tuple"):
            make(tuple(STUMP))
        with pytest.raises(IndexError, match="a child that does not come after its parent"):
            make(STUMP._replace(left=np.array([0, 0, 1], np.int32)))
        with hforest.unchecked(), pytest.raises(IndexError, match="a feature outside"):
            make(STUMP._replace(feature=np.array([2, -1, -1], np.int32)))
    for fault in (Prepared, lambda: Prepared.__new__(Prepared), lambda: object.__new__(Prepared)):
        with pytest.raises(TypeError):
            fault()
    with pytest.raises(TypeError):
        type("Other", (Prepared,), {})
    for call in (lambda: prepared.quick(None, STUMP.value, 0), lambda: prepared.is_for(None, True)):
        with pytest.raises(TypeError):
            call()
    ready = prepare(STUMP)
    assert prepare(ready) is ready


def test_forests_of_a_gpu_are_refused(monkeypatch):
    cupy = types.ModuleType("cupy")
    cupy.ndarray = type("ndarray", (np.ndarray,), {"data": types.SimpleNamespace(device_id=0)})
    cupy.cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(getDevice=lambda: 0))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    there = Forest(*(a.copy().view(cupy.ndarray) for a in STUMP))
    with pytest.raises(TypeError, match=r"forest\.feature: expected a numpy\.ndarray, got a CuPy array"):
        prepare(there)


def test_functions_that_do_not_walk_say_what_to_pass():
    with pytest.raises(
        TypeError,
        match=r"forest: expected a hforest\.tree\.Forest, got Prepared; pass its attribute .forest.",
    ):
        tree.check(prepare(STUMP))
    assert tree.check(prepare(STUMP).forest)


def test_pickles_and_copies(dtype):
    forest = forest_of("missing", dtype, 5)
    ready, x = prepare(forest), samples_of("missing", 4, 5, dtype)
    assert copy.copy(ready) is copy.deepcopy(ready) is ready
    text = pickle.dumps(ready)
    assert len(text) < 1.1 * len(pickle.dumps(forest)) + 200
    back = pickle.loads(text)
    assert_equal(forest, back, x)
    with pytest.raises(ValueError, match="read-only"):
        back.forest.left[0] = 7
    assert all((a == b).all() for a, b in zip(forest, back.forest, strict=True))


def test_several_threads_use_one():
    forest = hforest.grow(*_letters(), 30, rng=0)
    ready, x = prepare(forest), np.random.default_rng(1).normal(size=(200, 8)).astype(np.float32)
    want = tree.predict(forest, x)

    def work(_):
        return np.concatenate([tree.predict(ready, x[i : i + 1]) for i in range(len(x))]).tobytes()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert set(pool.map(work, range(8))) == {want.tobytes()}


def _letters():
    x = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
    return x, (x[:, 0] > 0) + 2 * (x[:, 1] > 0.3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pure", [False, True])
def test_many_rows_get_a_layout(kind, dtype, pure, threads, simd):
    forest = forest_of(kind, dtype, 3, pure=pure)
    ready = prepare(forest)
    x = samples_of(kind.replace("missing", "plain"), 700, 5, dtype)
    if kind == "categories":
        x[np.isnan(x)] = 3
    elif np.isnan(x).any():
        x = np.nan_to_num(x)
    assert prepared.has_layout(ready, False) == ("projections" in kind)
    for _ in range(4):
        assert_equal(forest, ready, x)
    assert prepared.has_layout(ready, False) == prepared.has_layout(ready, True) == (kind != "categories")
    for n in (63, 64, 65, 129, 699):
        assert_equal(forest, ready, x[:n])
    for n in (1, 2, 7):
        threads(n)
        assert_equal(forest, ready, x)
    simd("plain")
    assert_equal(forest, ready, x)
    if kind not in ("plain", "projections"):
        x[5::7, 1] = np.nan
        assert_equal(forest, ready, x)


def test_a_layout_is_made_by_one_of_several_threads():
    forest = forest_of("plain", np.float32, 5, n_trees=40, depth=9)
    x = samples_of("plain", 500, 5, np.float32)
    want = tree.predict(forest, x)
    ready = prepare(forest)

    def work(_):
        return all(
            tree.predict(ready, x[:n]).tobytes() == want[:n].tobytes() for n in (100, 500, 65, 300) * 10
        )

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))
    assert prepared.has_layout(ready, False)


def with_entries(forest, sizes, n_features, seed=0):
    """Returns a forest whose splits compare projections of these numbers of entries in turn; 0: a feature."""
    rng = np.random.default_rng(seed)
    is_split = forest.feature != -1
    n = np.where(is_split, np.resize(sizes, len(is_split)), 0)
    indptr = np.concatenate([[0], np.cumsum(n)]).astype(np.int64)
    dtype = forest.threshold.dtype
    return forest._replace(
        feature=np.where(n > 0, -2, forest.feature).astype(np.int32), indptr=indptr,
        indices=rng.integers(0, n_features, indptr[-1]).astype(np.int32),
        data=rng.normal(size=indptr[-1]).astype(dtype),
    )  # fmt: skip


@pytest.mark.parametrize(
    "sizes",
    [
        [0],
        [1],
        [2, 0, 1],
        [4, 3],
        [3] * 8 + [5],
        [0, 1, 2, 3, 4, 2, 1, 0, 4, 3, 9],
        [5, 3],
        [7],
        [36],
        [0, 40],
    ],
)
@pytest.mark.parametrize("n_trees", [1, 16, 21])
def test_projections_of_any_number_of_entries(sizes, n_trees, dtype):
    forest = with_entries(random_forest(n_trees, 7, 6, 3, dtype, 1, False), sizes, 6)
    ready = prepare(forest)
    x = inputs(90, 6, dtype, 2)
    with hforest.using("reference"):
        leaf, y = tree.apply(forest, x), tree.predict(forest, x)
    for n in (1, 5, 15, 16, 90):
        for of in (forest, ready):
            assert np.array_equal(tree.apply(of, x[:n]), leaf[:n])
            assert tree.predict(of, x[:n]).tobytes() == y[:n].tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_results_of_few_rows_in_out(kind, dtype):
    forest = forest_of(kind, dtype, 4)
    ready, x = prepare(forest), samples_of(kind, 3, 5, dtype)
    for what, function in enumerate(FUNCTIONS, -1):
        want = function(forest, x)
        out = np.zeros_like(want)
        assert prepared.quick(ready, x, what, out) is out
        assert out.tobytes() == want.tobytes()
        out[...] = 0
        assert function(ready, x, out=out) is out
        assert out.tobytes() == want.tobytes()
        for other in (
            out[:2], np.asfortranarray(out), out.astype(np.float16), out.tolist(), out[0], np.repeat(out, 2, axis=1)[:, ::2],
        ):  # fmt: skip
            assert prepared.quick(ready, x, what, other) is None or np.shares_memory(other, out)
        x[2, 3], out[...] = np.inf, 7
        with pytest.raises(ValueError, match="^x: expected "):
            function(ready, x, out=out)
        assert (out == 7).all()
        x[2, 3] = 0
        out.flags.writeable = False
        with pytest.raises(ValueError, match="^out: expected a writable array"):
            function(ready, x, out=out)
    square = np.zeros((5, 5), dtype)
    with pytest.raises(ValueError, match="^out: expected memory that no other argument uses"):
        tree.predict(ready, square[:3], out=square.ravel()[:9].reshape(3, 3))
