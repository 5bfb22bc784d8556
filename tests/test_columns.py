"""Columns of tables: properties that are learned, features made from them, and errors that name columns."""

import datetime as dt
import decimal
import json
import sys
import warnings

import numpy as np
import pytest
from conftest import check_changed

import hforest
from hforest import tabular, tree

FAST = {"n_members": 1, "n_trees": 10, "depth": 3, "n_projections": 10, "steps": 50}

UTC = dt.UTC
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # NumPy 2.5: durations without a unit
    DURATIONS = np.array([1, 2], "m8")
VALUES = {
    "number": [1.5, None, 3.0, -2.0],
    "whole": [1, 2, 3, 4],
    "decimal": [decimal.Decimal("1.5"), None, decimal.Decimal("2"), decimal.Decimal("3")],
    "flag": [True, None, False, True],
    "text": ["b", None, "a", "b"],
    "date": [dt.date(2020, 1, 5), None, dt.date(2021, 2, 3), dt.date(1969, 12, 31)],
    "datetime": [dt.datetime(2020, 1, 5, 3, 4), None, dt.datetime(2021, 2, 3, 5), dt.datetime(1969, 12, 31, 23, 59)],
    "instant": [dt.datetime(2020, 1, 5, 3, 4, tzinfo=UTC), None, dt.datetime(2021, 2, 3, 5, tzinfo=UTC), dt.datetime(2022, 2, 3, 5, 6, tzinfo=UTC)],
    "time": [dt.time(3, 4), None, dt.time(12, 0, 1), dt.time(0)],
    "duration": [dt.timedelta(hours=6), None, dt.timedelta(days=2), dt.timedelta(0)],
    "constant": [7, 7, 7, 7],
    "nothing": [None, None, None, None],
}  # fmt: skip


def of_numpy(values):
    return {name: np.array(column, object) for name, column in values.items()}


def of_fields(values):
    a = np.empty(len(next(iter(values.values()))), [(name, "O") for name in values])
    for name, column in values.items():
        a[name] = column
    return a


def of_pandas(values):
    return pytest.importorskip("pandas").DataFrame(values)


def of_nullable(values):
    with np.errstate(invalid="ignore"):  # of pandas 2, for infinity
        return of_pandas(values).convert_dtypes()


def of_polars(values):
    return pytest.importorskip("polars").DataFrame(values)


def of_arrow(values):
    return pytest.importorskip("pyarrow").table(values)


def of_pandas_and_arrow(values):
    pandas = pytest.importorskip("pandas")
    return of_arrow(values).to_pandas(types_mapper=pandas.ArrowDtype)


FRAMES = [of_pandas, of_nullable, of_polars, of_arrow, of_pandas_and_arrow]
SOURCES = [
    of_numpy, of_fields, *(pytest.param(source, marks=pytest.mark.libraries) for source in FRAMES),
]  # fmt: skip


@pytest.fixture(autouse=True)
def narwhals(request):
    """Skips a test of data frames if narwhals, which reads them, is missing."""
    source = getattr(request.node, "callspec", None)
    if source is not None and source.params.get("source") in FRAMES:
        pytest.importorskip("narwhals")


# ----------------------------------------------------------------------------------------- numbers

EXPECTED = {
    "number": [1.5, np.nan, 3.0, -2.0],
    "whole": [1, 2, 3, 4],
    "decimal": [1.5, np.nan, 2, 3],
    "flag": [1, np.nan, 0, 1],
    "text": [1, np.nan, 0, 1],
    "date, days": [18266, np.nan, 18661, -1],
    "date, year": [2020, np.nan, 2021, 1969],
    "date, month": [1, np.nan, 2, 12],
    "date, day": [5, np.nan, 3, 31],
    "date, weekday": [6, np.nan, 2, 2],
    "datetime, days": [18266 + 184 / 1440, np.nan, 18661 + 5 / 24, -1 / 1440],
    "datetime, year": [2020, np.nan, 2021, 1969],
    "datetime, month": [1, np.nan, 2, 12],
    "datetime, day": [5, np.nan, 3, 31],
    "datetime, weekday": [6, np.nan, 2, 2],
    "datetime, hour": [3, np.nan, 5, 23],
    "datetime, minute": [4, np.nan, 0, 59],
    "instant, days": [18266 + 184 / 1440, np.nan, 18661 + 5 / 24, 19026 + 306 / 1440],
    "instant, year": [2020, np.nan, 2021, 2022],
    "instant, month": [1, np.nan, 2, 2],
    "instant, day": [5, np.nan, 3, 3],
    "instant, weekday": [6, np.nan, 2, 3],
    "instant, hour": [3, np.nan, 5, 5],
    "instant, minute": [4, np.nan, 0, 6],
    "time": [184 / 1440, np.nan, 0.5 + 1 / 86400, 0],
    "duration": [0.25, np.nan, 2, 0],
}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_every_library_gives_the_same_numbers(source):
    table = source(VALUES)
    columns = tabular.columns(table)
    assert columns.names.tolist() == list(VALUES)
    assert columns.feature_names == list(EXPECTED)
    x = tabular.numbers(columns, table)
    assert x.dtype == np.float64
    for name, a in zip(columns.feature_names, x.T, strict=True):
        np.testing.assert_allclose(a, EXPECTED[name], rtol=1e-15, atol=1e-15, err_msg=name)
    assert [name == "text" for name in EXPECTED] == columns.categorical.tolist()
    kinds = dict(zip(columns.names.tolist(), columns.kinds.tolist(), strict=True))
    numbers = dict.fromkeys(("whole", "decimal", "constant"), "number")
    assert kinds == {name: name for name in VALUES} | numbers | {"flag": "boolean", "nothing": "missing"}
    # Properties learned from the table of one library apply to the table of another.
    assert np.array_equal(tabular.numbers(columns, of_numpy(VALUES)), x, equal_nan=True)
    assert np.array_equal(tabular.numbers(tabular.columns(of_numpy(VALUES)), table), x, equal_nan=True)


def test_arrays_of_every_dtype():
    table = {
        "i1": np.array([-3, 4, 4], "i1"), "u8": np.array([2**60, 0, 1], "u8"), "f2": np.array([0.5, np.nan, 1], "f2"),
        "b": np.array([True, False, True]), "U": np.array(["x", "", "x"]), "S": np.array(["ü".encode(), b"z", b"z"]),
        "T": np.array(["q", "p", "q"], np.dtypes.StringDType()), "D": np.array(["2024-02-29", "NaT", "2024-03-01"], "M8[D]"),
        "m": np.array([36, 12, 0], "m8[h]"),
    }  # fmt: skip
    columns = tabular.columns(table)
    x = tabular.numbers(columns, table)
    of = dict(zip(columns.feature_names, x.T.tolist(), strict=True))
    assert of["u8"] == [2.0**60, 0, 1]
    np.testing.assert_array_equal(of["U"], [0, np.nan, 0])
    assert of["S"] == [1, 0, 0]
    assert of["T"] == [1, 0, 1]
    assert of["m"] == [1.5, 0.5, 0]
    assert of["D, day"][::2] == [29, 1]
    assert columns.levels.tolist() == ["x", "z", "ü", "p", "q"]
    assert columns.level_start.tolist() == [0, 0, 0, 0, 0, 1, 3, 5, 5, 5]


def test_a_matrix_has_numbered_columns_and_goes_by_position():
    a = np.array([[1.0, 5, 0], [2, 5, 1], [4, 5, np.nan]])
    columns = tabular.columns(a)
    assert columns.names.tolist() == ["0", "1", "2"]
    assert np.array_equal(tabular.numbers(columns, a), a[:, [0, 2]], equal_nan=True)
    named = tabular.columns({"p": a[:, 0], "q": a[:, 2]})
    assert np.array_equal(tabular.numbers(named, a[:, [0, 2]]), a[:, [0, 2]], equal_nan=True)
    with pytest.raises(ValueError, match="^table: expected 3 columns, got 2; pass the columns in the order"):
        tabular.numbers(columns, a[:, :2])


@pytest.mark.parametrize("source", SOURCES)
def test_columns_are_matched_by_name(source):
    values = {"a": [1, 2, 4], "b": ["x", "y", "x"], "c": [7, 7, 7]}
    columns = tabular.columns(source(values))
    swapped = tabular.numbers(columns, source({"b": ["y", "x"], "c": [1, 2], "a": [8, 9]}))
    assert swapped.tolist() == [[8, 1], [9, 0]]
    # A dropped column may be absent or different.
    assert tabular.numbers(columns, source({"a": [8], "b": ["y"]})).tolist() == [[8, 1]]
    assert tabular.numbers(columns, source({"a": [8], "b": ["y"], "c": ["text"]})).tolist() == [[8, 1]]


@pytest.mark.parametrize("source", SOURCES)
def test_values_that_did_not_occur(source):
    columns = tabular.columns(source({"a": [1, 2], "b": ["x", "y"], "flag": [True, False]}))
    x = tabular.numbers(columns, source({"a": [None, 5.5], "b": ["z", "y"], "flag": [0, 1]}))
    assert np.array_equal(x, [[np.nan, np.nan, 0], [5.5, 1, 1]], equal_nan=True)
    nothing = tabular.numbers(columns, source({name: [None, None] for name in ("a", "b", "flag")}))
    assert np.isnan(nothing).all()
    assert nothing.shape == (2, 3)


def test_no_rows_are_converted():
    days = np.array(["2020-01-01", "2021-02-03"], "M8[D]")
    table = {"a": np.array([1.0, 2]), "b": np.array(["x", "y"]), "d": days}
    columns = tabular.columns(table)
    assert tabular.numbers(columns, {name: a[:0] for name, a in table.items()}).shape == (0, 6)


# -------------------------------------------------------------------------------------- categories


@pytest.mark.libraries
def test_categorical_dtypes_keep_their_order():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("narwhals")
    sizes = ["s", "m", "l", "xl"]
    text = ["m", "s", None, "xl", "m"]
    table = pandas.DataFrame(
        {
            "ordered": pandas.Categorical(text, sizes, ordered=True),
            "plain": pandas.Categorical(text, sizes),
            "whole": pandas.Categorical([20, 3, 3, 100, 20]),
            "cut": pandas.cut([1, 2, 3, 4, 5], 2),
        }
    )
    columns = tabular.columns(table)
    x = tabular.numbers(columns, table)
    assert np.array_equal(x[:, 0], [1, 0, np.nan, 3, 1], equal_nan=True)  # ranks among all categories
    assert np.array_equal(x[:, 1], [1, 0, np.nan, 2, 1], equal_nan=True)  # "l" does not occur
    assert x[:, 2].tolist() == [1, 0, 0, 2, 1]
    assert x[:, 3].tolist() == [0, 0, 0, 1, 1]
    assert columns.categorical.tolist() == [False, True, True, False]
    of_plain, of_whole = (
        columns.levels[columns.level_start[j] : columns.level_start[j + 1]].tolist() for j in (1, 2)
    )
    assert of_plain == ["s", "m", "xl"]
    assert of_whole == ["3", "20", "100"]
    # Text and whole numbers represent the same categories, for example in another file.
    plain = table.assign(ordered=text, plain=text, whole=[20, 3, 3, 100, 4])
    y = tabular.numbers(columns, plain)
    assert np.array_equal(y[:, :2], x[:, :2], equal_nan=True)
    assert np.array_equal(y[:, 2], [1, 0, 0, 2, np.nan], equal_nan=True)


@pytest.mark.libraries
@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_categories_of_other_libraries(library):
    library = pytest.importorskip(library)
    pytest.importorskip("narwhals")
    text = ["m", "s", None, "xl"]
    if library.__name__ == "polars":
        noise = library.Series(["never", "m"], dtype=library.Categorical)
        table = library.DataFrame(
            {
                "a": library.Series(text, dtype=library.Enum(["s", "m", "l", "xl"])),
                "b": library.Series(text, dtype=library.Categorical),
            }
        )
        assert len(noise) == 2
    else:
        codes = library.array([1, 0, None, 3], library.int32())
        encoded = library.DictionaryArray.from_arrays(codes, library.array(["s", "m", "l", "xl"]))
        table = library.table({"a": encoded, "b": library.array(text).dictionary_encode()})
    columns = tabular.columns(table)
    x = tabular.numbers(columns, table)
    assert np.array_equal(x[:, 0], [1, 0, np.nan, 2], equal_nan=True)
    assert columns.categorical.all()
    assert columns.kinds.tolist() == ["category", "category"]
    names = columns.levels[columns.level_start[1] :]
    assert [names[int(code)] for code in x[[0, 1, 3], 1]] == ["m", "s", "xl"]


def test_chosen_columns_are_categories():
    table = {"zip": [10115, 2, 2, None], "flag": np.array([True, False, True, True]), "n": np.arange(4.0)}
    table["zip"] = np.array(table["zip"], object)
    columns = tabular.columns(table, categorical=["zip", "flag"])
    assert columns.categorical.tolist() == [True, True, False]
    assert columns.levels.tolist() == ["2", "10115", "0", "1"]
    x = tabular.numbers(columns, table)
    assert np.array_equal(x[:, 0], [1, 0, 0, np.nan], equal_nan=True)
    new = table | {"zip": np.array([2.0, 10115, 0.5, np.inf])}
    assert np.array_equal(tabular.numbers(columns, new)[:, 0], [0, 1, np.nan, np.nan], equal_nan=True)
    assert tabular.columns(table, categorical=None).categorical.tolist() == [False, False, False]


def test_as_many_categories_as_there_may_be():
    n = 2**16
    most = {"id": np.arange(n).astype(str)}
    columns = tabular.columns(most, categorical=["id"])
    x = tabular.numbers(columns, most)
    assert int(x.max()) == n - 1
    few = hforest.samples(x[:200], categorical=columns.categorical)
    hforest.grow(few, np.arange(200) % 2, 1, rng=0)


# ------------------------------------------------------------------------------------------ faults


def of_objects(values):
    column = np.empty(len(values), object)
    column[:] = values
    return {"a": column}


MIXED = {"zip": np.arange(3), "day": np.arange(3).astype("M8[D]"), "half": np.array([0.5, 1, 2])}
MANY = np.arange(2**16 + 1)


@pytest.mark.parametrize(
    ("table", "settings", "error", "words"),
    [
        (MIXED, {"categorical": ["zap"]}, ValueError, "^categorical: expected column names of table: 'zip', 'day', 'half', got 'zap'"),
        (MIXED, {"categorical": "zip"}, TypeError, '^categorical: expected "from_dtype", None or a list of names, got str'),
        (MIXED, {"categorical": [3]}, TypeError, "^categorical: expected column names, got int"),
        (MIXED, {"categorical": ["day"]}, TypeError, "^table, column 'day': expected categories, got dates; leave it out of categorical"),
        ({"id": MANY.astype(str), "n": MANY}, {"categorical": ["id"]}, ValueError, "^table, column 'id': expected at most 65536 categories, got 65537 different"),
        ({"n": MANY}, {"categorical": ["n"]}, ValueError, "^table, column 'n': expected at most 65536 categories, got 65537"),
        *(
            (of_objects(values), {}, (TypeError, ValueError), f"^table, column 'a': expected .*{words}")
            for values, words in (
                ([1, "two", None], "values of one kind, got numbers such as 1 in row 0 and text such as 'two' in row 1"),
                ([dt.date(2020, 1, 1), 3, 4], "values of one kind, got dates such as datetime.date.2020, 1, 1. in row 0 and numbers such as 3"),
                ([b"x", b"y", b"x"], "numbers, text, dates or booleans, got bytes such as b'x'"),
                ([[1], [2], [3]], "numbers, text, dates or booleans, got list such as .1."),
                ([dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=UTC), None], "all have a time zone, or none, got dates with"),
                ([2**2000, 1, 2], "numbers that NumPy can hold"),
                ([1j, 2j, 3j], "numbers, text, dates or booleans, got complex such as 1j"),
                ([np.inf, 1.0, 2], "finite numbers, or NaN for missing values, got inf in row 0"),
            )
        ),
        (np.zeros(3), {}, ValueError, "^table: expected shape"),
        (3.0, {}, ValueError, "^table: expected shape"),
        (np.zeros((0, 2)), {}, ValueError, "^table: expected at least one row, got none"),
        ({"a": np.zeros(3), "b": np.zeros(2)}, {}, ValueError, "^table\\['b'\\]: expected 3 values"),
        ({"a": np.zeros((2, 2))}, {}, ValueError, "^table\\['a'\\]: expected 2 values"),
        ({"a": 3}, {}, TypeError, "^table\\['a'\\]: expected a list with a value for each row, got int"),
        ({"a": np.array(3)}, {}, ValueError, "^table\\['a'\\]: expected some values"),
        ({1: np.zeros(2), "1": np.zeros(2)}, {}, ValueError, "^table: expected unique column names, got '1' more"),
        (np.zeros((2, 2), [("a", float)]), {}, ValueError, "^table: expected a structured array with one axis"),
        (np.zeros(2, [("a", float, (3,))]), {}, ValueError, "^table, column 'a': expected one value per row"),
        (np.ma.zeros((2, 2)), {}, TypeError, "^table: expected an array without a mask"),
        ({"a": DURATIONS}, {}, TypeError, "^table, column 'a': expected dates or durations with a unit"),
        ({"a": np.array([b"\xff", b"x"])}, {}, TypeError, "^table, column 'a': expected text in UTF-8"),
    ],
)  # fmt: skip
def test_tables_that_are_refused(table, settings, error, words):
    with pytest.raises(error, match=words):
        tabular.columns(table, **settings)


@pytest.mark.parametrize("source", SOURCES)
def test_all_faults_are_listed_at_once(source):
    good = {
        "n": [1.0, 2.0], "t": ["x", "y"], "d": [dt.datetime(2020, 1, 1), dt.datetime(2021, 1, 1)],
        "z": [dt.datetime(2020, 1, 1, tzinfo=UTC), dt.datetime(2021, 1, 1, tzinfo=UTC)], "f": [1.0, 2.0], "gone": [1, 2],
    }  # fmt: skip
    columns = tabular.columns(source(good))
    bad = {"n": ["one", "2"], "t": [1, 2], "d": good["z"], "z": good["d"], "f": [1.0, np.inf], "more": [0, 1]}
    with pytest.raises(ValueError, match="^table: expected the columns that were learned") as error:
        tabular.numbers(columns, source(bad))
    first, *faults = str(error.value).splitlines()
    head = "table: expected the columns that were learned, got 7 faults; pass a table like the first one:"
    assert first == head
    with_zone, without = "dates and times with a time zone", "dates and times without a time zone"
    assert [fault.strip() for fault in faults] == [
        "column 'more': expected a column that was learned, got one that was not; drop it",
        "column 'n': expected numbers, got text such as 'one'; convert the column",
        "column 't': expected text, got numbers; convert the column",
        f"column 'd': expected {without}, got {with_zone}; set or drop the time zone, as in the first table",
        f"column 'z': expected {with_zone}, got {without}; set or drop the time zone, as in the first table",
        "column 'f': expected finite numbers, or NaN for missing values, got inf in row 1; clip or drop it",
        "column 'gone': expected a column of numbers, got no column of that name; add or rename a column",
    ]
    message = "^table, column 'n': expected numbers, got text such as 'one'; convert"
    with pytest.raises(TypeError, match=message):
        tabular.numbers(columns, source(good | {"n": ["one", "2"]}))


def test_mixed_kinds_show_an_example_of_each():
    with pytest.raises(TypeError) as error:
        tabular.columns({"a": np.array([1, "two", None, 2.5], object), "b": np.zeros(4, "c16")})
    assert [line.strip() for line in str(error.value).splitlines()[1:]] == [
        "column 'a': expected values of one kind, got numbers such as 1 in row 0 and text such as 'two' in row 1; convert the column to one kind",
        "column 'b': expected numbers, text, dates or booleans, got dtype complex128; convert or drop it",
    ]


def test_missing_values_of_objects():
    nan = float("nan")
    table = {
        "text": np.array(["x", nan, None, "y"], object),
        "flag": np.array([True, None, nan, False], object),
        "time": np.array([dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 6), nan, np.datetime64("NaT", "D")], object),
        "number": np.array([1, True, decimal.Decimal("NaN"), None], object),
    }  # fmt: skip
    columns = tabular.columns(table)
    assert columns.kinds.tolist() == ["text", "boolean", "datetime", "number"]
    assert columns.missing.tolist() == [0.5, 0.5, 0.5, 0.5]
    x = tabular.numbers(columns, table)
    assert np.isnan(x).sum(axis=0).tolist() == [2] * x.shape[1]


def test_one_row_is_a_list_or_a_mapping_to_lists():
    row = {"age": 30, "job": "cook"}
    columns = tabular.columns({"age": [30, 40], "job": ["cook", "nurse"]})
    message = r"^table\['age'\]: expected a list .*, got int; for one row pass lists of one value$"
    with pytest.raises(TypeError, match=message):
        tabular.numbers(columns, row)
    message = "^table: expected a table, got a list of mappings; pass a map"
    with pytest.raises(TypeError, match=message) as error:
        tabular.numbers(columns, [row, row])
    table = eval(str(error.value).partition("names to lists, ")[2], {"table": [row, row]})
    assert np.array_equal(tabular.numbers(columns, table), [[30, 0], [30, 0]])
    for array in ([30, "cook"], np.array([30, "cook"], object)):
        with pytest.raises(ValueError, match=r"got \(2,\); pass \[table\] for one row$"):
            tabular.numbers(columns, array)


@pytest.mark.libraries
def test_frames_that_cannot_be_read():
    pandas, polars = (pytest.importorskip(name) for name in ("pandas", "polars"))
    pytest.importorskip("narwhals")
    twice = pandas.DataFrame([[1, 2], [3, 4]], columns=["a", "a"])
    with pytest.raises(ValueError, match="^table: expected unique column names, got 'a' more than once"):
        tabular.columns(twice)
    message = "^table: expected a data frame of pandas, polars or Arrow in memory, got polars"
    with pytest.raises(TypeError, match=message):
        tabular.columns(polars.DataFrame({"a": [1, 2]}).lazy())
    message = "^table, column 'l': expected numbers, text, dates or booleans, got List"
    with pytest.raises(TypeError, match=message):
        tabular.columns(polars.DataFrame({"l": [[1], [2]]}))
    numbered = pandas.DataFrame([[1, 2], [3, 4]])
    assert tabular.columns(numbered).names.tolist() == ["0", "1"]


@pytest.mark.libraries
@pytest.mark.parametrize("of", [of_pandas, of_polars])
def test_messages_have_the_first_text_of_a_column(of):
    pytest.importorskip("narwhals")
    columns = tabular.columns({"n": [1.0, 2.0]})
    for first in ("b", "z"):
        texts = of({"n": [first, *(f"a{i}" for i in range(40))]})
        with pytest.raises(TypeError, match=f"expected numbers, got text such as '{first}'; convert"):
            tabular.numbers(columns, texts)


@pytest.mark.libraries
def test_time_zones_are_taken_as_instants():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("narwhals")
    utc = pandas.date_range("2024-03-30", periods=9, freq="7h", tz="UTC")
    columns = tabular.columns(pandas.DataFrame({"t": utc}))
    x = tabular.numbers(columns, pandas.DataFrame({"t": utc}))
    elsewhere = pandas.DataFrame({"t": utc.tz_convert("Europe/Berlin")})
    assert (tabular.numbers(columns, elsewhere) == x).all()


def test_a_frame_without_narwhals_names_the_extra(monkeypatch):
    class Frame:
        columns = ("a",)

    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(
        ImportError,
        match=r"^table: expected narwhals 2.0 or newer to read a data frame, got none; install it with pip install -e "
        r"'.\[tables\]' in the checkout of hforest$",
    ):
        tabular.columns(Frame())
    assert tabular.columns({"a": [1, 2]}).names.tolist() == ["a"]


# ------------------------------------------------------------------------------------- description


def test_a_description_has_a_line_for_each_column():
    columns = tabular.columns(
        of_numpy(VALUES | {"a very long name, longer than thirty letters\n": list("aabb")})
    )
    first, *lines = tabular.describe(columns).splitlines()
    assert first.split() == ["column", "kind", "values", "missing", "features"]
    assert len(lines) == len(VALUES) + 1
    of = {line.split("  ")[0]: " ".join(line.split()) for line in lines}
    assert of["number"] == "number numbers -2 to 3 25 % value"
    assert of["text"] == "text text 2: 'a', 'b' 25 % level"
    assert of["datetime"] == (
        "datetime dates, times 1969-12-31 23:59 to 2021-02-03 05:00 25 % days, year, month, day, weekday, hour, minute"
    )
    assert of["date"].startswith("date dates 1969-12-31 to 2021-02-03 25 %")
    assert of["duration"] == "duration durations 0 to 2 days 25 % value"
    assert of["constant"] == "constant numbers 7 0 % none (one value)"
    assert of["nothing"] == "nothing nothing 100 % none (no value)"
    assert "a very long name, longer th..." in of


# ------------------------------------------------------------------------------------------ models


def small(n=120):
    rng = np.random.default_rng(0)
    table = {
        "b": rng.normal(size=n), "day": np.datetime64("2024-01-01") + rng.integers(0, 60, n), "same": np.full(n, 3),
        "a": rng.normal(size=n),
    }  # fmt: skip
    return table, (table["b"] + table["a"] > 0).astype(int)


@pytest.mark.parametrize("source", SOURCES)
def test_a_model_of_a_table_is_that_of_its_numbers(source, tmp_path):
    table, y = small()
    frame = source({name: a.tolist() for name, a in table.items()})
    model = tabular.fit(frame, y, **FAST, rng=0)
    columns = tabular.columns(table)
    x = tabular.numbers(columns, table)
    plain = tabular.fit(x, y, **FAST, rng=0)
    assert plain.columns is None
    p = tabular.predict(model, frame)
    assert (p == tabular.predict(plain, x)).all()
    other_order = {name: table[name] for name in sorted(table)}
    assert (tabular.predict(model, source({name: a.tolist() for name, a in other_order.items()})) == p).all()
    tabular.save(tmp_path / "m.npz", model)
    back = tabular.load(tmp_path / "m.npz")
    assert back.columns.names.tolist() == list(table)
    assert (tabular.predict(back, table) == p).all()
    more, _ = tabular.partial_fit(model, frame, y)
    assert more.columns is model.columns
    inside = tabular.fit(frame, y, **FAST, validation=(frame, y), rng=0)
    assert inside.scaling.low.tolist() == model.scaling.low.tolist()
    message = "^x, column 'a': expected a column of numbers, got no column of that name"
    with pytest.raises(ValueError, match=message):
        tabular.predict(model, {name: table[name] for name in ("b", "day")})
    message = "^x: expected a column of different values, got columns of one value"
    with pytest.raises(ValueError, match=message):
        tabular.fit({"a": ["red", "red"], "b": [None, None]}, [0, 1])


def mixed(n=300):
    rng = np.random.default_rng(0)
    colour = np.array(["red", "green", "blue"], object)[rng.integers(0, 3, n)]
    size = np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n))
    table = {"colour": colour, "size": size, "zip": rng.integers(0, 4, n) * 1000 + 7}
    return table, ((colour == "red") ^ (table["zip"] == 2007)).astype(int)


@pytest.mark.parametrize("source", SOURCES)
def test_gaps_and_categories_reach_the_model(source, tmp_path):
    table, y = mixed()
    frame = source({name: a.tolist() for name, a in table.items()})
    model = tabular.fit(frame, y, **FAST, categorical=["zip"], rng=0)
    assert model.columns.categorical.tolist() == [True, False, True]
    x = tabular.numbers(model.columns, table)
    plain = tabular.fit(x, y, **FAST, categorical=[0, 2], rng=0)
    p = tabular.predict(model, frame)
    assert (p == tabular.predict(plain, x)).all()
    assert (p.argmax(axis=1) == y).mean() > 0.9
    tabular.save(tmp_path / "m.npz", model)
    new = {"zip": [9, 2007], "size": [None, 0.5], "colour": ["pink", "red"]}
    q = tabular.predict(tabular.load(tmp_path / "m.npz"), source(new))
    assert np.isfinite(q).all()
    assert q[1, 0] > 0.5


def test_a_file_without_columns_is_read(tmp_path):
    table, y = small()
    x = tabular.numbers(tabular.columns(table), table)
    tabular.save(tmp_path / "m.npz", tabular.fit(x, y, **FAST, rng=0))
    assert not any(name.startswith("columns/") for name in np.load(tmp_path / "m.npz"))
    assert tabular.load(tmp_path / "m.npz").columns is None


def as_file(texts):
    return np.frombuffer(json.dumps(texts).encode(), np.uint8)


@pytest.mark.parametrize(
    ("field", "change", "words"),
    [
        ("names", lambda a: as_file(["b"]), "kinds: expected text of shape"),
        ("names", lambda a: as_file(["b"] * 4), "names: expected unique names"),
        ("names", lambda a: a[:-1], "columns/names is not a list of texts"),
        ("kinds", lambda a: np.array(["x"] * len(a)), "kinds: expected words of number"),
        ("kinds", lambda a: a[::-1].copy(), "parts: expected features of a column of"),
        ("parts", lambda a: np.array(["days"] * len(a)), "parts: expected features of a column of numbers"),
        ("parts", lambda a: np.array(["level"] * len(a)), "parts: expected features of a column of numbers"),
        ("parts", lambda a: a[1:], "source: expected shape"),
        ("level_start", lambda a: a + 1, "level_start: expected 0, ..., n_levels"),
        ("level_start", lambda a: a.astype(np.int32), "level_start: expected dtype int64"),
        ("source", lambda a: a + 1, "source: expected 0 <= column < n_columns = 4"),
        ("source", lambda a: a[::-1].copy(), "source: expected 0 <= column < n_columns = 4, in non-decreasing order"),
        ("missing", lambda a: a[1:], "missing: expected shape"),
        ("low", lambda a: a + np.inf, "low: expected NaN or finite ranges"),
        ("high", lambda a: a * 1e9, "low: expected NaN or finite ranges, for dates within datetime64"),
        ("levels", lambda a: np.zeros(3), "columns/levels has dtype float64 and shape .3,., not texts"),
        ("high", None, "a file without the array 'columns/high'"),
    ],
)  # fmt: skip
def test_changed_files_are_refused(field, change, words, tmp_path):
    table, y = small()
    path = tmp_path / "m.npz"
    tabular.save(path, tabular.fit(table, y, **FAST, rng=0))
    words = f"expected a model of a table that save wrote, .*{words}"
    check_changed(path, tabular.load, {f"columns/{field}": change}, words)


def test_columns_of_another_model_are_refused():
    table, y = small()
    model = tabular.fit(table, y, **FAST, rng=0)
    others = tabular.columns({name: table[name] for name in ("a", "b")})
    for columns, words in (
        (others, "model.columns: expected 6 features, as model.scaling has"),
        (3, "model.columns: expected a Columns, got int"),
        (model.columns._replace(names=["a"]), "model.columns.names: expected a numpy.ndarray, got list"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{words}"):
            tabular.predict(model._replace(columns=columns), table)


def test_a_forest_is_grown_on_the_numbers_of_a_table():
    rng = np.random.default_rng(0)
    colour = np.array(["red", "green", "blue", "grey"])[rng.integers(0, 4, 400)]
    size = np.where(rng.random(400) < 0.1, np.nan, rng.normal(size=400))
    table = {"colour": colour, "size": size}
    y = (np.isin(colour, ["red", "blue"]) ^ (size > 0)).astype(int)
    columns = tabular.columns(table)
    x = tabular.numbers(columns, table)
    samples = hforest.samples(x[:300], categorical=columns.categorical)
    forest = hforest.grow(samples, y[:300], 30, rng=0)
    assert (tree.predict(forest, x[300:]).argmax(axis=1) == y[300:]).mean() > 0.95
    assert hforest.tabular.describe(columns).splitlines()[1].split()[:3] == ["colour", "text", "4:"]


def test_columns_without_a_value_are_missing():
    nothing = {"number": np.full(3, np.nan), "time": np.full(3, "NaT", "M8[s]"), "object": [None] * 3}
    found = tabular.columns({**nothing, "b": np.arange(3.0)})
    assert found.kinds.tolist() == ["missing"] * 3 + ["number"]
    assert found.source.tolist() == [3]
    with pytest.raises(TypeError, match=r"^column 'a': expected .* got dtype complex128; convert"):
        tabular.target({"a": np.zeros(3, complex)}, "a")
    classes, _ = tabular.labels(np.array([1, 0, 1], ">i8"))
    assert classes.dtype == np.int64
    assert classes.dtype.isnative
