"""Readers of tables: every column as plain arrays, from any library.

Data frames of pandas, polars and Arrow are read through narwhals; structured arrays, mappings and matrices
without it. The conversion to features is in `columns`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import repeat
from numbers import Integral, Real
from operator import attrgetter, is_not, methodcaller, ne
from typing import Any, NamedTuple

import numpy as np

from ..core import check, extras
from ..core.aliases import IntArray
from ..core.dispatch import is_cupy
from ..core.real import as_given, rows_of
from .library import aside, distinct, is_failure, polars

NUMBERS = ("number", "boolean", "time", "duration")
"""Kinds whose values are numbers; of the last two in days."""
TIMES = ("date", "datetime", "instant")
"""Kinds whose values are dates; an instant has a time zone and is in UTC."""
LEVELS = ("text", "category", "ordered")
"""Kinds whose values are categories; an ordered category has all levels of its dtype."""
MISSING = "missing"
"""The kind of a column without a value."""
WORDS = {
    "number": "numbers",
    "boolean": "booleans",
    "time": "times of day",
    "duration": "durations",
    "date": "dates",
    "datetime": "dates and times without a time zone",
    "instant": "dates and times with a time zone",
    "text": "text",
    "category": "categories",
    "ordered": "ordered categories",
    "missing": "no values",
}
NULL_VALUES = (
    "", "?", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL",
    "null", "None", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN",
)  # fmt: skip
"""Texts that stand for a missing value by default, those of pandas and readr; spaces around them do not
count."""
DAY = np.timedelta64(1, "D")


class Values(NamedTuple):
    """Values of a column of a table."""

    kind: str
    data: Any = None
    """(n_rows,): of numbers any real dtype, of booleans bool, of times of day and durations float64 days, of
    TIMES datetime64[us], of text a polars Series (String or Categorical) or an object array (None where
    missing), of other LEVELS, and of text with `levels`, int64 places in these, -1 where missing."""
    absent: Any = None
    """(n_rows,) bool: where a value is missing; `data` is arbitrary there."""
    levels: tuple[str, ...] = ()
    of_categories: bool = False
    """Whether numbers are categories by the dtype of the column."""


class ColumnError(Exception):
    """Error of one column: expected, got and remedy in one text."""

    def __init__(self, expected: str, got: str, remedy: str, error: type[Exception] = ValueError) -> None:
        super().__init__(f"expected {expected}, got {got}; {remedy}")
        self.error = error

    def alone(self) -> "ColumnError":
        """Returns this error without the frames that raised it, which keep the columns of the table alive."""
        self.__traceback__ = self.__context__ = None
        return self


class Faults:
    """Collects the faults of the columns of a table, so that one error lists them all."""

    def __init__(self, name: str, expected: str, remedy: str) -> None:
        """`name` is that of the table in messages; `expected` and `remedy` head a list of several faults."""
        self._name, self._expected, self._remedy = name, expected, remedy
        self._texts: list[str] = []
        self._errors: set[type[Exception]] = set()

    def add(self, place: str, fault: ColumnError) -> None:
        """Adds a fault at a place such as "column 'age'"."""
        self._texts.append(f"{place}: {fault}")
        self._errors.add(fault.error)

    def check(self) -> None:
        """Raises one error for all faults; ValueError if their types differ."""
        if not self._texts:
            return
        error = self._errors.pop() if len(self._errors) == 1 else ValueError
        if len(self._texts) == 1:
            raise error(f"{self._name}, {self._texts[0]}")
        lines = "".join(f"\n  {text}" for text in self._texts)
        raise error(
            f"{self._name}: expected {self._expected}, got {len(self._texts)} faults; {self._remedy}:{lines}"
        )


def shown(names: Iterable[str], most: int = 8) -> str:
    """Returns names in quotes, only the first few of many."""
    quoted = [repr(name) for name in names]
    return ", ".join(quoted[:most]) + (f", ... ({len(quoted)})" if len(quoted) > most else "")


# ------------------------------------------------------------------------------------------- tables


def is_table(x: object) -> bool:
    """Returns whether a value has named columns: a data frame, a structured array or a mapping."""
    if isinstance(x, np.ndarray):
        return x.dtype.names is not None
    if isinstance(x, Mapping):
        return True
    # This asks the type, because some frames compute their columns.
    return any(hasattr(type(x), name) for name in ("columns", "column_names"))


@dataclass(frozen=True, eq=False)
class File:
    """The columns of a file, as `read` returns them."""

    frame: Any
    """A polars data frame."""
    lines: IntArray | None = None
    """(n_rows,) int64: the line of the file where each row is; None if rows have no lines."""
    decimal: str = "."
    """The decimal sign that the separator of a CSV file suggests."""
    is_text: bool = False
    """Whether all columns are text, as in a CSV file; those of few different texts are Categorical."""

    @property
    def columns(self) -> list[str]:
        """Returns the names of the columns."""
        return list(self.frame.columns)

    @aside
    def __getitem__(self, rows: Any) -> "File":
        """Returns some of the rows, (n,) int64."""
        lines = None if self.lines is None else self.lines[rows]
        return replace(self, frame=self.frame[rows.tolist()], lines=lines)

    @aside
    def without(self, names: Container[str]) -> "File":
        """Returns the columns of other names."""
        kept = [name for name in self.columns if name not in names]
        return replace(self, frame=self.frame.select(kept))

    def place(self, row: int) -> str:
        """Returns where a row is, for messages."""
        return f"row {row}" if self.lines is None else f"line {self.lines[row]}"


def place_of(table: Any) -> Callable[[int], str]:
    """Returns the function that says where a row of a table is."""
    return table.place if isinstance(table, File) else lambda row: f"row {row}"


Reader = Callable[[], Values]


def opened(name: str, table: object) -> tuple[list[str], list[Reader], int]:
    """Returns the names of the columns, a function that reads each, and the number of rows."""
    read = of_series
    if isinstance(table, File):
        read, table = of_series if not table.is_text else _of_text, table.frame
    check.on_cpu(**{name: table})
    check.require(
        not isinstance(table, list | tuple) or not any(isinstance(row, Mapping) for row in table[:1]), name,
        "a table", f"a {type(table).__name__} of mappings",
        f"pass a mapping from names to lists, {{key: [row[key] for row in {name}] for key in {name}[0]}}",
        TypeError,
    )  # fmt: skip
    if not is_table(table):
        a = as_given(name, table)
        rows_of(name, a, ("n_rows", "n_columns"))
        names = [str(j) for j in range(a.shape[1])]
        return names, [partial(of_array, a[:, j]) for j in range(a.shape[1])], len(a)
    if isinstance(table, np.ndarray):
        as_given(name, table)
        remedy = f"pass {name}.ravel()"
        check.require(table.ndim == 1, name, "a structured array with one axis", table.shape, remedy)
        fields = table.dtype.names or ()
        return list(fields), [partial(of_array, table[field]) for field in fields], len(table)
    if isinstance(table, Mapping):
        return _opened_mapping(name, table)
    return _opened_frame(name, table, read)


def _distinct(name: str, names: list[str]) -> list[str]:
    twice = [column for column, count in Counter(names).items() if count > 1]
    check.require(
        not twice, name, "unique column names", f"{shown(twice)} more than once", "rename these columns"
    )
    return names


def _opened_mapping(name: str, table: Mapping[Any, Any]) -> tuple[list[str], list[Reader], int]:
    names = _distinct(name, [str(key) for key in table])
    for key, a in table.items():
        check.require(
            hasattr(a, "__len__") and not isinstance(a, str | bytes), f"{name}[{key!r}]",
            "a list with a value for each row", type(a).__name__, "for one row pass lists of one value",
            TypeError,
        )  # fmt: skip
    arrays = [_column(f"{name}[{key!r}]", a) for key, a in table.items()]
    for column, a in zip(names, arrays, strict=True):
        check.require(
            not is_cupy(a) and a.ndim == 1 and len(a) == len(arrays[0]), f"{name}[{column!r}]",
            f"{len(arrays[0]) if arrays[0].ndim else 'some'} values, as many as in each column",
            f"shape {a.shape}", "pass columns of equal length",
        )  # fmt: skip
    return names, [partial(of_array, a) for a in arrays], len(arrays[0]) if arrays else 0


def _column(name: str, a: Any) -> Any:
    """Returns a column of a mapping as an array; the items of a list keep their Python types."""
    if not isinstance(a, list | tuple):
        return as_given(name, a)
    nested = any(isinstance(value, list | tuple | np.ndarray) for value in a[:1])
    return as_given(name, a) if nested else objects(a)


def objects(values: Sequence[Any]) -> np.ndarray:
    """Returns an array (n,) of Python objects, which keep their types."""
    column = np.empty(len(values), object)
    for i, value in enumerate(values):
        column[i] = value
    return column


@aside
def _opened_frame(
    name: str, table: Any, read: Callable[[Any], Values]
) -> tuple[list[str], list[Reader], int]:
    try:
        import narwhals.stable.v2 as nw
    except ImportError:
        library = "narwhals 2.0 or newer to read a data frame"
        raise extras.missing(name, library, "tables") from None
    other = TypeError(
        f"{name}: expected a data frame of pandas, polars or Arrow in memory, got {type(table).__module__}."
        f"{type(table).__qualname__}; collect it, or pass a structured array"
    )
    if hasattr(type(table), "collect"):  # a lazy one, of which even the names are work
        raise other
    try:
        columns = table.column_names if hasattr(table, "column_names") else table.columns
        names = _distinct(name, [str(column) for column in columns])
        frame = nw.from_native(table, eager_only=True)
    except TypeError:
        raise other from None
    if frame.implementation.is_polars():
        polars(name)
    return names, [partial(read, column) for column in frame.iter_columns()], len(frame)


# ------------------------------------------------------------------------------------------ columns

MAX_YEARS = 250_000
"""Maximum distance of dates from 1970 in years; datetime64[us] can hold such dates."""


def of_array(a: np.ndarray) -> Values:
    """Returns the values of a column, (n_rows,) of any dtype."""
    kind = a.dtype.kind
    if a.ndim != 1:
        raise ColumnError("one value per row", f"arrays of shape {a.shape[1:]}", "pass one column per value")
    if kind in "biuf":
        absent = np.isnan(a) if kind == "f" else np.zeros(len(a), bool)
        return Values("boolean" if kind == "b" else "number", a, absent)
    if kind in "Mm" and np.datetime_data(a.dtype)[0] == "generic":
        raise ColumnError("dates or durations with a unit", f"dtype {a.dtype}", "set a unit", TypeError)
    if kind == "M":
        unit = np.datetime_data(a.dtype)[0]
        return Values("date" if unit in ("Y", "M", "W", "D") else "datetime", _times(a), np.isnat(a))
    if kind == "m":
        if np.datetime_data(a.dtype)[0] in ("Y", "M"):
            raise ColumnError(
                "durations of a fixed length", f"dtype {a.dtype}", "convert them to days", TypeError
            )
        return Values("duration", a / DAY, np.isnat(a))
    if kind == "S":
        try:
            a = np.strings.decode(a, "utf-8")
        except UnicodeDecodeError:
            raise ColumnError("text in UTF-8", "other bytes", "decode them", TypeError) from None
    if kind in "SUTO":
        return _of_objects(a.astype(object))
    raise ColumnError("numbers, text, dates or booleans", f"dtype {a.dtype}", "convert or drop it", TypeError)


def _times(a: np.ndarray) -> np.ndarray:
    years = a[~np.isnat(a)].astype("datetime64[Y]").astype(np.int64)
    far = abs(years) > MAX_YEARS
    if far.any():
        raise ColumnError(
            f"dates within {MAX_YEARS} years of 1970",
            f"the year {years[far][0] + 1970}",
            "correct or drop it",
        )
    return a.astype("datetime64[us]")


def group_of(kind: type) -> str:
    """Returns the kind of the values of a Python type; "" for unknown types."""
    if kind is type(None) or kind.__name__ in ("NAType", "NaTType"):
        return MISSING
    for group, types in (
        ("boolean", bool | np.bool_), ("text", str), ("duration", timedelta | np.timedelta64),
        ("datetime", datetime | np.datetime64), ("date", date), ("time", time), ("number", Real | Decimal),
    ):  # fmt: skip
        if issubclass(kind, types):
            return group
    return ""


def _of_objects(a: np.ndarray) -> Values:
    groups = {kind: group_of(kind) for kind in set(map(type, a))}

    def among(*names: str) -> np.ndarray:
        chosen = {kind for kind, group in groups.items() if group in names}
        return np.fromiter(map(chosen.__contains__, map(type, a)), bool, len(a))

    occurring = set(groups.values())
    present = ~among(MISSING)
    if "number" in occurring and occurring & {"text", "boolean", *TIMES, "time", "duration"}:
        # NaN stands for a missing value in a column of any kind.
        numbers = among("number")
        if all(map(ne, a[numbers], a[numbers])):
            present &= ~numbers
            occurring.discard("number")
    occurring.discard(MISSING)
    if "text" in occurring and len(occurring) > 1:
        texts = among("text")
        if all(value.strip() in NULL_VALUES for value in a[texts]):
            present &= ~texts
            occurring.discard("text")
    for mixture, kind in (({"boolean", "number"}, "number"), ({"date", "datetime"}, "datetime")):
        occurring = {kind} if occurring == mixture else occurring
    if len(occurring) > 1 or "" in occurring:
        raise _mixed(a, groups, occurring)
    if not occurring:
        return missing(len(a))
    kind = occurring.pop()
    try:
        return _of_group(kind, a[present], present)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ColumnError(
            f"{WORDS[kind]} that NumPy can hold",
            f"values outside of its range ({error})",
            "convert or drop it",
        ) from None


def missing(n_rows: int) -> Values:
    """Returns a column without a value."""
    return Values(MISSING, np.full(n_rows, np.nan), np.ones(n_rows, bool))


def _mixed(a: np.ndarray, groups: Mapping[type, str], occurring: set[str]) -> ColumnError:
    first = {group: i for i, group in reversed(list(enumerate(map(groups.__getitem__, map(type, a)))))}
    if occurring == {""}:
        value = a[first[""]]
        return ColumnError(
            "numbers, text, dates or booleans", f"{type(value).__name__} such as {value!r:.80}",
            "convert or drop it", TypeError,
        )  # fmt: skip
    words = WORDS | {"": "other objects"}
    each = " and ".join(
        f"{words[group]} such as {a[first[group]]!r:.80} in row {first[group]}" for group in sorted(occurring)
    )
    return ColumnError("values of one kind", each, "convert the column to one kind", TypeError)


def _of_group(kind: str, values: np.ndarray, present: np.ndarray) -> Values:
    """Returns `Values` of one kind; `values` are those of the rows where `present` (n_rows,) is True."""
    if kind == "text":
        texts = np.full(len(present), None, object)
        texts[present] = values
        return Values(kind, texts, ~present)
    if kind in TIMES:
        moments = list(values)
        zones = map(getattr, values, repeat("tzinfo"), repeat(None))
        zoned = np.fromiter(map(is_not, zones, repeat(None)), bool, len(values))
        if zoned.any():
            if not zoned.all():
                got = "dates with and without a time zone"
                raise ColumnError("dates that all have a time zone, or none", got, "convert them to UTC")
            utc = map(methodcaller("astimezone", UTC), values)
            moments, kind = list(map(methodcaller("replace", tzinfo=None), utc)), "instant"
        times = np.full(len(present), np.datetime64("NaT", "us"), "datetime64[us]")
        times[present] = _times(np.array(moments, "datetime64[us]"))
        return Values(kind, times, np.isnat(times))
    if kind == "time":
        if any(map(attrgetter("tzinfo"), values)):
            got = "times with a time zone"
            raise ColumnError("times of day without a time zone", got, "pass dates and times")
        of_epoch = np.strings.add("1970-01-01T", values.astype(str)).astype("datetime64[us]")
        some = (of_epoch - np.datetime64(0, "us")) / DAY
    elif kind == "duration":
        some = np.array(values.tolist(), "timedelta64[us]") / DAY
    else:
        some = values.astype(bool) if kind == "boolean" else _numbers(values)
    numbers = np.full(len(present), np.nan, some.dtype) if some.dtype.kind == "f" else np.zeros(
        len(present), some.dtype
    )  # fmt: skip
    numbers[present] = some
    absent = ~present | np.isnan(numbers) if some.dtype.kind == "f" else ~present
    return Values(kind, numbers, absent)


def _numbers(values: np.ndarray) -> np.ndarray:
    """Returns numbers as integers where all are such, which NumPy may hold, else as float64."""
    if all(isinstance(value, Integral | np.bool_) for value in values):
        for dtype in (np.int64, np.uint64):
            with suppress(OverflowError):
                return np.array([int(value) for value in values], dtype)
    some = values.astype(np.float64)
    if len(set(values)) > len(np.unique(some)) and len(np.unique(some[abs(some) > 2**53])):
        raise ValueError("float64 merges some of them")
    return some


def encoded(texts: Iterable[str]) -> tuple[tuple[str, ...], IntArray]:
    """Returns distinct texts in order of first occurrence, and the index of each text among them."""
    places: defaultdict[str, int] = defaultdict()
    places.default_factory = places.__len__  # the place of a new text is the number of texts before it
    codes = np.fromiter(map(places.__getitem__, texts), np.int64)
    return tuple(places), codes


def spelling(value: Any) -> str:
    """Returns the text of a category; whole numbers of all types have the same."""
    if isinstance(value, str):
        return value
    number: Any = value
    if isinstance(value, bool | np.bool_ | Integral) or (isinstance(value, Real) and number == int(number)):
        return str(int(number))
    return repr(float(number)) if isinstance(value, Real) else str(value)


def spelt(values: Values) -> tuple[tuple[str, ...], IntArray]:
    """Returns the levels of a column, and the place of each row's value among them, -1 where it is missing.

    Those of numbers are in ascending order and exact; infinity is missing.
    """
    if values.kind in LEVELS and (values.kind != "text" or values.levels):
        return values.levels, values.data
    if values.kind == "text" and isinstance(values.data, np.ndarray):
        codes = np.full(len(values.absent), -1)
        levels, codes[~values.absent] = encoded(values.data[~values.absent])
        return levels, codes
    if values.kind == "text":
        return places_in(*distinct(values.data, always=True))
    present = ~values.absent
    if values.data.dtype.kind == "f":
        present &= np.isfinite(values.data)
    some, places = np.unique(values.data[present], return_inverse=True)
    codes = np.full(len(values.absent), -1)
    codes[present] = places
    return tuple(map(spelling, some.tolist())), codes


def places_in(different: Any, places: IntArray, counts: IntArray) -> tuple[tuple[str, ...], IntArray]:
    """Returns texts and places of `distinct`, -1 for null."""
    levels = tuple(different[:-1].to_list())
    return levels, np.where(places == len(levels), -1, places) if counts[-1] else places


def by_spelling(values: Values) -> Values:
    """Returns text as places in its levels, which are computed once."""
    levels, codes = spelt(values)
    return values._replace(data=codes, levels=levels)


# ------------------------------------------------------------------------------------------- frames


def of_series(series: Any) -> Values:
    """Returns a column of a data frame, as a series of narwhals."""
    try:
        return _of_series(series)
    except (ColumnError, ImportError, MemoryError):
        raise
    except BaseException as error:  # each library raises its own
        if not is_failure(error):
            raise
        text = str(error).partition("\n")[0]
        raise ColumnError(
            "numbers, text, dates or booleans", f"{series.dtype}, of which reading raises {text:.100}",
            "convert or drop it", TypeError,
        ) from None  # fmt: skip


def _of_series(series: Any) -> Values:
    import narwhals.stable.v2 as nw

    dtype = series.dtype
    if series.null_count() == len(series):
        return missing(len(series))
    absent = np.asarray(series.is_null().to_numpy(), bool)
    if dtype in (nw.Categorical, nw.Enum):
        return _of_categories(series, absent)
    if dtype == nw.String:
        if series.implementation.is_polars():
            return _of_text(series)
        texts = objects(series.to_list())
        texts[absent] = None  # pandas gives NaN
        return Values("text", texts, absent)
    if dtype in (nw.List, nw.Array, nw.Struct, nw.Binary):
        raise ColumnError("numbers, text, dates or booleans", str(dtype), "convert or drop it", TypeError)
    if dtype == nw.Boolean or dtype.is_integer():
        filled = series.fill_null(False if dtype == nw.Boolean else 0) if absent.any() else series
        data = np.asarray(filled.to_numpy())
        if data.dtype.kind in "biu":
            return Values("boolean" if dtype == nw.Boolean else "number", data, absent)
        return _of_objects(objects(series.to_list()))
    if dtype.is_float():
        data = np.asarray(series.cast(nw.Float64).to_numpy(), np.float64)
        return Values("number", data, np.isnan(data))
    if dtype in (nw.Unknown, nw.Object, nw.Decimal):
        return _of_objects(objects(series.to_list()))
    values = of_array(np.asarray(series.to_numpy()))
    if dtype == nw.Datetime and dtype.time_zone is not None:
        return values._replace(kind="instant")
    return values


def _of_text(series: Any) -> Values:
    """Returns a column of a CSV file."""
    if series.null_count() == len(series):
        return missing(len(series))
    return Values("text", series.to_native(), np.asarray(series.is_null().to_numpy(), bool))


def _of_categories(series: Any, absent: np.ndarray) -> Values:
    import narwhals.stable.v2 as nw

    of_polars = series.implementation.is_polars()
    # The order of the levels of a polars Enum has no meaning.
    ordered = nw.is_ordered_categorical(series) and not of_polars
    categories = series.cat.get_categories()
    kinds = {group_of(type(value)) for value in categories.to_list()} - {MISSING}
    if kinds == {"text", "number"}:
        raise ColumnError("categories of one kind", "text and numbers", "convert them to text", TypeError)
    named = categories.to_list()
    if series.implementation.is_pandas_like():
        codes = series.to_native().cat.codes.to_numpy(np.int64)
    else:
        texts = objects(series.cast(nw.String).to_list())
        if of_polars and series.dtype == nw.Categorical:
            named = sorted(set(texts[~absent]))  # categories of polars are those of all frames of the process
        place = {str(level): i for i, level in enumerate(named)}
        codes = np.array([-1 if text is None else place[text] for text in texts], np.int64)
    if categories.dtype.is_numeric() and not ordered:
        return Values("number", np.asarray(named)[np.maximum(codes, 0)], codes < 0, of_categories=True)
    return Values("ordered" if ordered else "category", codes, absent, tuple(map(spelling, named)))
