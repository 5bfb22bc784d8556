"""Prepared models of tables: bit-identical to `tabular.predict`, equal to the steps of training, and immutable."""

import concurrent.futures
import copy
import datetime
import functools
import pickle
import sys

import numpy as np
import pytest
from conftest import refused

import hforest
from hforest import tabular
from hforest.core.machine import simd_paths
from hforest.tabular import cells, encoding, model, serving
from hforest.tabular.columns import converted
from hforest.tabular.cpu import Products
from hforest.tabular.recipe import LEAST_PROBABILITY

pytestmark = pytest.mark.kernels

FAST = {"n_trees": 10, "depth": 3, "n_projections": 70, "steps": 50}
CASES = {
    "two classes": {"n_members": 2, "n_boosted": 30},
    "five classes": {"n_members": 1, "n_boosted": 30},
    "regression": {"n_members": 2, "n_boosted": 30},
    "two targets": {"n_members": 1},
    "missing": {"n_members": 3},
    "missing in a regression": {"n_members": 1, "n_boosted": 30},
    "categories": {"n_members": 2, "n_boosted": 30},
    "categories and missing": {"n_members": 1, "n_boosted": 30},
    "trees alone": {"share": 1.0, "validation": 0.0},
    "forest alone": {"share": 0.0, "validation": 0.0},
    "many columns": {"n_members": 1},
    "no offset": {"n_members": 2},
}


def rows_of(case, n, seed=0):
    """Returns n rows of 8 columns: normal ones, one with a long tail, one of categories, and a constant one."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 60 if case == "many columns" else 8))
    x[:, 5] = np.exp(3 * x[:, 5])
    x[:, 6] = rng.integers(0, 22 if "categories" in case else 3, n)
    x[:, 7] = 7
    if "missing" in case:
        x[rng.random(x.shape) < 0.15] = np.nan
    return x


@functools.cache
def fitted(case):
    """Returns a model that no test changes."""
    x = np.nan_to_num(rows_of(case, 400))
    score = x[:, 0] + abs(x[:, 1]) + x[:, 6] % 3
    settings = {"categorical": [6]} if "categories" in case else {}
    y = (score > 1.5).astype(int)
    if case == "five classes":
        y = np.clip(score, 0, 4).astype(int)
    if case in ("regression", "missing in a regression"):
        settings["task"], y = "regression", 1000 + 50 * score
    if case == "two targets":
        settings["task"], y = "regression", np.stack([score, 1e6 * x[:, 1]], axis=1)
    fit = tabular.fit(rows_of(case, 400), y, rng=0, **FAST, **CASES[case], **settings)
    if case != "no offset":
        return fit
    return fit._replace(
        members=tuple(m._replace(offset=np.array(0.0), share=np.array(0.5)) for m in fit.members)
    )


def by_training(fit, x):
    """Returns the prediction by the steps in NumPy, which training uses."""
    rows, native = encoding.columns(fit.scaling, fit.encoding, np.asarray(x))
    parts = [model.outputs(member, rows, fit.task, native) for member in fit.members]
    if fit.mean == "geometric" and len(parts) > 1:
        return model.probabilities(np.mean([np.log(np.maximum(p, LEAST_PROBABILITY)) for p in parts], axis=0))
    y = np.mean(parts, axis=0)
    if fit.task == "classification":
        return y
    y = y * fit.target_scale + fit.target_center
    return y[:, 0] if y.shape[1] == 1 else y


def test_the_cases_have_all_parts():
    fits = {case: fitted(case) for case in CASES}
    members = [member for fit in fits.values() for member in fit.members]
    assert any(member.boosted is not None and 0 < float(member.boosted.share) < 1 for member in members)
    assert any(0 < float(member.share) < 1 for member in members)
    assert any(float(member.offset) == 0 for member in members)
    assert {fit.mean for fit in fits.values()} == {"arithmetic", "geometric"}
    assert all(fits[case].encoding.imputed.size for case in CASES if "missing" in case)
    assert all(fits[case].encoding.levels is not None for case in CASES if "categories" in case)
    assert any(fit.scaling.knots.size for fit in fits.values())


@pytest.mark.parametrize("case", CASES)
def test_predictions_are_those_of_training(case, dtype):
    fit, x = fitted(case), rows_of(case, 300, 1).astype(dtype)
    p = tabular.predict(fit, x)
    want = by_training(fit, x)
    assert p.dtype == np.float64
    assert p.shape == want.shape
    unit = 1 if fit.task == "classification" else fit.target_scale
    assert (abs(p - want) / unit).max() < 1e-6
    if fit.task == "classification":
        assert abs(p.sum(axis=1) - 1).max() < 1e-6


@pytest.mark.parametrize("case", CASES)
def test_columns_are_encoded_as_in_training(case, dtype):
    fit, x = fitted(case), rows_of(case, 200, 1).astype(dtype)
    x[0, 6], x[1, 6], x[2, 6], x[3] = 99, 0.5, -1, np.nan
    x[4], x[5] = 1e300 if dtype is np.float64 else 1e38, -1e30
    numbers, native, is_finite = serving._ready(fit, False).encoder.encode(x)
    want, of_grown = encoding.columns(fit.scaling, fit.encoding, x)
    assert is_finite
    assert numbers.dtype == np.float32
    if "missing" in case:
        np.testing.assert_allclose(numbers, want, rtol=1e-5, atol=1e-6)
        assert (native.view(np.int32) == of_grown.view(np.int32)).all() or np.array_equal(
            native, of_grown, True
        )
    else:
        assert native is None
        assert of_grown is None
        assert np.array_equal(numbers, want)


@pytest.mark.parametrize("path", simd_paths())
@pytest.mark.parametrize("shape", [(1, 1), (3, 64), (33, 65), (5, 130), (0, 7), (7, 0)])
@pytest.mark.parametrize("n_entries", [1, 2, None])
def test_products_are_sums_in_the_order_of_the_columns(path, shape, n_entries, simd):
    rng = np.random.default_rng(0)
    kernel = rng.normal(size=shape).astype(np.float32)
    if n_entries is not None:
        kernel[rng.permuted(np.tile(np.arange(shape[0])[:, None], shape[1]), axis=0) >= n_entries] = 0
    x = rng.normal(size=(37, shape[0])).astype(np.float32)
    want = np.zeros((37, shape[1]), np.float32)
    for j in range(shape[0]):
        want += x[:, j : j + 1] * kernel[j]
    simd(path)
    products = Products(kernel)
    for n in (0, 1, 2, 5, 37):
        z, is_finite = products.inputs(x[:n].copy(), None)
        assert is_finite
        assert np.array_equal(z, np.hstack([x, want])[:n])
    other = np.full_like(x, np.nan)
    assert np.array_equal(products.inputs(x, other)[0], np.hstack([other, want]), equal_nan=True)


def test_products_beyond_the_range_are_found():
    x = np.full((2, 30), 3e38, np.float32)
    for kernel in (np.ones((30, 3), np.float32), np.eye(30, 3, dtype=np.float32) * 10):
        assert not Products(kernel).inputs(x, None)[1]
    fit = fitted("two classes")
    members = tuple(m._replace(kernel=np.full_like(m.kernel, 3e38)) for m in fit.members)
    ready = tabular.prepare(fit._replace(members=members))
    with refused(ValueError, "model: expected inner products of columns in the range of float32"):
        tabular.predict(ready, np.full((1, 8), 1e6))
    with hforest.unchecked():
        assert tabular.predict(ready, np.full((1, 8), 1e6)).shape == (1, 2)


# --------------------------------------------------------------------------------------- bits


@pytest.mark.parametrize("case", CASES)
def test_bits_of_prepared_models(case, dtype, threads, simd, monkeypatch):
    monkeypatch.setattr(serving, "CHUNK", 256)
    fit, x = fitted(case), rows_of(case, 600, 1).astype(dtype)
    ready = tabular.prepare(fit)
    want = tabular.predict(fit, x)
    for n in (0, 1, 2, 3, 130, 257, 600):
        p = tabular.predict(ready, x[:n])
        assert p.tobytes() == want[:n].tobytes()
        assert p.shape == (n, *want.shape[1:])
    for i in range(0, 600, 41):
        assert tabular.predict(ready, x[i : i + 1]).tobytes() == want[i].tobytes()
    for n in (1, 2, 7):
        threads(n)
        assert tabular.predict(ready, x).tobytes() == want.tobytes()
        assert tabular.predict(fit, x).tobytes() == want.tobytes()
    for path in simd_paths():
        simd(path)
        assert tabular.predict(ready, x).tobytes() == want.tobytes()


def test_bits_of_other_layouts_and_dtypes():
    fit = fitted("two classes")
    ready = tabular.prepare(fit)
    x = np.round(rows_of("two classes", 50, 1))
    want = tabular.predict(fit, x)
    moved = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float64).reshape(x.shape)
    assert not moved.flags.aligned
    for other in (
        x.tolist(),
        np.asfortranarray(x),
        x.astype(np.int64),
        x.astype(">f8"),
        np.repeat(x, 2, axis=0)[::2],
        moved,
    ):
        assert tabular.predict(ready, other).tobytes() == want.tobytes()
    with hforest.using("reference"):
        assert tabular.predict(ready, x).tobytes() == want.tobytes()
    with hforest.unchecked():
        assert tabular.predict(ready, x).tobytes() == want.tobytes()


# ------------------------------------------------------------------------------------ the object


def test_a_prepared_model_is_immutable():
    fit = fitted("categories and missing")
    ready = tabular.prepare(fit)
    assert isinstance(ready, tabular.Prepared)
    assert tabular.prepare(ready) is ready
    assert copy.copy(ready) is ready
    assert copy.deepcopy(ready) is ready
    assert repr(ready) == f"<Prepared of {fit!r}>"
    for name in ("model", "_ready", "other"):
        with refused(AttributeError, f"{name}: expected no assignment, got one; prepare another model"):
            setattr(ready, name, fit)
        with refused(AttributeError, f"{name}: expected no deletion"):
            delattr(ready, name)
    assert not ready.model.scaling.low.flags.writeable
    assert not ready.model.members[0].features.flags.writeable
    assert not ready.model.encoding.levels.codes.flags.writeable


def test_later_changes_of_the_model_have_no_effect():
    fit = pickle.loads(pickle.dumps(fitted("categories and missing")))
    x = rows_of("categories and missing", 50, 1)
    ready = tabular.prepare(fit)
    want = tabular.predict(ready, x)
    for a in (
        fit.scaling.low,
        fit.members[0].features,
        fit.members[0].forest.threshold,
        fit.encoding.predictors,
    ):
        a[...] = 0
    assert tabular.predict(ready, x).tobytes() == want.tobytes()
    assert tabular.predict(fit, x).tobytes() != want.tobytes()


@pytest.mark.parametrize("case", CASES)
def test_pickles(case):
    ready, x = tabular.prepare(fitted(case)), rows_of(case, 20, 1)
    back = pickle.loads(pickle.dumps(ready))
    assert isinstance(back, tabular.Prepared)
    assert tabular.predict(back, x).tobytes() == tabular.predict(ready, x).tobytes()


def test_several_threads_use_one():
    ready = tabular.prepare(fitted("categories and missing"))
    x = rows_of("categories and missing", 400, 1)
    want = tabular.predict(ready, x)

    def work(seed):
        for i in np.random.default_rng(seed).integers(0, 300, 60):
            n = 1 + i % 90
            if tabular.predict(ready, x[i : i + n]).tobytes() != want[i : i + n].tobytes():
                return False
        return True

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            assert all(pool.map(work, range(6)))
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("case", ["five classes", "regression", "two targets"])
@pytest.mark.parametrize("prepares", [False, True])
def test_out(case, prepares):
    fit, x = fitted(case), rows_of(case, 20, 1)
    ready = tabular.prepare(fit) if prepares else fit
    want = tabular.predict(fit, x)
    out = np.full_like(want, 7)
    assert tabular.predict(ready, x, out=out) is out
    assert out.tobytes() == want.tobytes()
    out[...] = 7
    x[3, 2] = np.inf
    with refused(
        ValueError, r"x: expected finite numbers, or NaN for missing values, got inf at index \(3, 2\)"
    ):
        tabular.predict(ready, x, out=out)
    assert (out == 7).all()
    x[3, 2] = 0
    with refused(TypeError, "out: expected dtype float64, got float32"):
        tabular.predict(ready, x, out=out.astype(np.float32))
    with refused(ValueError, "out: expected shape"):
        tabular.predict(ready, x, out=out[1:])
    out.flags.writeable = False
    with refused(ValueError, "out: expected a writable array"):
        tabular.predict(ready, x, out=out)
    square = np.zeros((8, 8))
    if case == "five classes":
        with refused(
            ValueError, "out: expected memory that no other argument uses, got an array that overlaps x"
        ):
            tabular.predict(ready, square[:5], out=square.ravel()[:25].reshape(5, 5))


def test_out_is_no_array_of_the_model():
    fit, x = fitted("regression"), rows_of("regression", 1, 1)
    fit = fit._replace(target_center=np.zeros(1))
    share = np.array(0.5)
    members = (fit.members[0]._replace(share=share), *fit.members[1:])
    overlap = r"out: expected memory that no other argument uses, got an array that overlaps model\."
    with refused(ValueError, overlap + "target_center"):
        tabular.predict(fit, x, out=fit.target_center)
    with refused(ValueError, overlap + r"members\[0\]\.share"):
        tabular.predict(fit._replace(members=members), x, out=share.reshape(1))
    ready = tabular.prepare(fit)  # has copies
    tabular.predict(ready, x, out=fit.target_center)
    assert tabular.predict(ready, x) == fit.target_center


def test_bad_input_has_the_messages_of_models():
    fit = fitted("two classes")
    ready = tabular.prepare(fit)
    for x in (
        np.zeros((3, 7)),
        np.zeros(8),
        "text",
        np.full((2, 8), np.inf),
        [[1, 2], [3]],
        None,
        np.zeros((1, 8), "c8"),
    ):
        texts = []
        for of in (fit, ready):
            with pytest.raises((TypeError, ValueError)) as error:
                tabular.predict(of, x)
            texts.append(f"{type(error.value)} {error.value}")
        assert texts[0] == texts[1]
    for bad in (3, None, (fit,), "model.npz"):
        with refused(TypeError, "model: expected a Model, got "):
            tabular.prepare(bad)
    scaling = fit.scaling._replace(scale=np.zeros(8))
    with refused(ValueError, "model.scaling: expected deviations above 0"):
        tabular.prepare(fit._replace(scaling=scaling))


# ---------------------------------------------------------------------------------------- tables


def frame_of(table):
    return pytest.importorskip("pandas").DataFrame(table)


def polars_of(table):
    pytest.importorskip("pandas")  # and narwhals, by which polars is read
    return pytest.importorskip("polars").DataFrame(table, strict=False)


SOURCES = {"mapping": dict, "pandas": frame_of, "polars": polars_of}


def cells_of(n, seed=0):
    """Returns cells of columns of all kinds."""
    rng = np.random.default_rng(seed)
    return {
        "size": rng.normal(size=n).tolist(),
        "count": rng.integers(0, 9, n).tolist(),
        "flag": (rng.random(n) < 0.5).tolist(),
        "colour": [("red", "blue", "green")[i] for i in rng.integers(0, 3, n)],
        "day": [datetime.date(2024, 1, 1) + datetime.timedelta(int(d)) for d in rng.integers(0, 300, n)],
        "at": [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=int(h)) for h in rng.integers(0, 9999, n)],
        "same": ["x"] * n,
    }  # fmt: skip


@functools.cache
def fitted_table():
    table = cells_of(300)
    y = [a > 0 or colour == "red" for a, colour in zip(table["size"], table["colour"], strict=True)]
    return tabular.fit(table, np.array(y), rng=0, n_members=1, **FAST)


def part_of(table, first, last):
    return {name: cells[first:last] for name, cells in table.items()}


@pytest.mark.parametrize("source", SOURCES)
def test_few_rows_of_tables_are_read_cell_by_cell(source, monkeypatch):
    fit, table = fitted_table(), cells_of(200, 1)
    table["colour"][3], table["size"][4], table["colour"][5] = "pink", None, None
    want = tabular.numbers(fit.columns, table)
    p = tabular.predict(fit, table)
    ready = tabular.prepare(fit)
    monkeypatch.setattr(cells, "converted", None)
    for first, last in ((0, 1), (3, 4), (4, 6), (0, 200)):
        some = SOURCES[source](part_of(table, first, last))
        assert np.array_equal(ready._cells.numbers(some), want[first:last], equal_nan=True)
        assert tabular.predict(ready, some).tobytes() == p[first:last].tobytes()
        other = SOURCES[source](
            {name: part_of(table, first, last)[name] for name in sorted(table, reverse=True)}
        )
        assert tabular.predict(ready, other).tobytes() == p[first:last].tobytes()
    with_gaps = part_of(table, 0, 1) | {"day": [None], "at": [None], "flag": [None], "count": [None]}
    assert np.isnan(ready._cells.numbers(with_gaps)).sum() == want.shape[1] - 2


ODD = {
    "spaces": {"colour": [" red"]},
    "a word of missing values": {"colour": ["NA"]},
    "NaN for text": {"colour": [float("nan")]},
    "a number for text": {"colour": [3]},
    "a list for text": {"colour": [["red"]]},
    "text for a number": {"size": ["3.5"]},
    "unreadable text": {"size": ["many"]},
    "infinity": {"size": [float("inf")]},
    "a large integer": {"count": [2**63 + 1]},
    "a huge integer": {"count": [10**400]},
    "a complex number": {"size": [1j]},
    "a boolean for a number": {"size": [True]},
    "a number for a boolean": {"flag": [2.5]},
    "a number for a date": {"day": [3]},
    "text for a date": {"day": ["2024-02-03"]},
    "a time for a date": {"day": [datetime.datetime(2024, 2, 3, 4)]},
    "a date for a time": {"at": [datetime.date(2024, 2, 3)]},
    "a time zone": {"at": [datetime.datetime(2024, 2, 3, tzinfo=datetime.UTC)]},
    "an early year": {"day": [datetime.date(1, 1, 1)]},
    "an object": {"size": [object()]},
    "another column": {"weight": [3]},
    "two rows": {"size": [1, 2]},
    "a scalar": {"size": 3.0},
    "a column of arrays": {"size": [np.zeros(2)]},
    "an array": {"size": np.array([2.5])},
    "an array of text": {"colour": np.array(["red"])},
    "float32": {"size": np.array([0.1], np.float32)},
    "decimals": {"size": [np.float32(0.1)]},
    "text that is no name": {3: [1]},
}


def outcome(call, *args):
    try:
        return call(*args).tolist()
    except (TypeError, ValueError) as error:
        return f"{type(error)} {error}"


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ODD)
def test_odd_cells_are_read_as_by_numbers(name, source):
    fit = fitted_table()
    try:
        table = SOURCES[source](cells_of(1) | ODD[name])
    except Exception as error:
        pytest.skip(f"{source}: {error}")
    want, got = (
        outcome(converted, "x", fit.columns, table),
        outcome(tabular.prepare(fit)._cells.numbers, table),
    )
    assert repr(got) == repr(want)


@pytest.mark.parametrize("source", SOURCES)
def test_a_missing_column_has_the_message_of_numbers(source):
    ready = tabular.prepare(fitted_table())
    table = cells_of(1)
    del table["size"]
    with refused(ValueError, "x, column 'size': expected a column of numbers, got no column of that name"):
        tabular.predict(ready, SOURCES[source](table))


def test_frames_of_any_dtype_are_read_as_by_numbers():
    pd = pytest.importorskip("pandas")
    ready = tabular.prepare(fitted_table())
    columns = ready.model.columns
    for n in (1, 3, 30):
        frame = pd.DataFrame(cells_of(n, 2))
        frame.loc[0, "colour"] = None
        for name, dtype in (
            ("size", "float32"), ("size", "Float64"), ("size", "object"), ("count", "Int64"), ("count", "uint8"),
            ("count", "category"), ("flag", "boolean"), ("flag", "int8"), ("colour", "category"),
            ("colour", "object"), ("day", "datetime64[ns]"), ("day", "datetime64[s]"), ("at", "datetime64[us]"),
            ("same", "category"), ("size", "Sparse[float]"),
        ):  # fmt: skip
            other = frame.astype({name: dtype})
            assert np.array_equal(ready._cells.numbers(other), converted("x", columns, other), equal_nan=True)
        with_gap = frame.astype({"count": "Int64"})
        with_gap.loc[0, "count"] = pd.NA
        assert np.isnan(ready._cells.numbers(with_gap)[0, 1])
        for other in (pd.concat([frame, frame["size"]], axis=1), frame.rename(columns={"size": 3})):
            assert outcome(ready._cells.numbers, other) == outcome(converted, "x", columns, other)


def test_names_with_spaces_and_equal_texts():
    table = {"colour": ["a", "b"] * 50, "x": list(range(100))}
    pd = pytest.importorskip("pandas")
    spaced = pd.DataFrame({"colour": pd.Categorical([" a", "a"] * 50), "x": range(100)})
    for source, cell in ((table, " a"), (spaced, " a"), (spaced, "a")):
        fit = tabular.fit(source, [0, 1] * 50, rng=0, n_members=1, **FAST)
        ready = tabular.prepare(fit)
        for one in ({"colour": [cell], "x": [1]}, pd.DataFrame({"colour": pd.Categorical([cell]), "x": [1]})):
            want = converted("x", fit.columns, one)
            assert np.array_equal(ready._cells.numbers(one), want, equal_nan=True)


def test_matrices_of_models_of_matrices_with_columns():
    x = rows_of("two classes", 200)
    fit = tabular.fit(x, x[:, 0] > 0, columns=tabular.columns(x), rng=0, n_members=1, **FAST)
    assert len(fit.columns.source) == 7
    ready = tabular.prepare(fit)
    for other in (x, x.astype(np.float32), x.astype(np.int64), x[:1], x[:0], x > 0):
        assert np.array_equal(ready._cells.numbers(other), converted("x", fit.columns, other))
    assert tabular.predict(ready, x).tobytes() == tabular.predict(fit, x).tobytes()
    for bad in (x[:, :7], np.full((2, 8), np.inf), x[0], x.astype(complex)):
        assert outcome(ready._cells.numbers, bad) == outcome(converted, "x", fit.columns, bad)


def test_files_and_structured_arrays(tmp_path):
    pytest.importorskip("polars")
    ready = tabular.prepare(fitted_table())
    table = cells_of(5, 3)
    path = tmp_path / "rows.csv"
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    path.write_text("\n".join(lines), encoding="utf-8")
    rows = tabular.read(path)
    assert np.array_equal(ready._cells.numbers(rows), tabular.numbers(ready.model.columns, rows))
    kinds = {
        "size": "f8",
        "count": "i8",
        "flag": "?",
        "colour": "U5",
        "day": "M8[D]",
        "at": "M8[us]",
        "same": "U1",
    }
    array = np.empty(5, list(kinds.items()))
    for name, values in table.items():
        array[name] = values
    assert tabular.predict(ready, array).tobytes() == tabular.predict(ready, table).tobytes()
