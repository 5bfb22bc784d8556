"""Readers of tables: every column as plain arrays, from any library.

Data frames of pandas, polars and Arrow are read through narwhals; structured arrays, mappings and matrices
without it. The conversion to features is in `columns`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import repeat
from numbers import Real
from operator import attrgetter, is_not, methodcaller, ne
from typing import Any, NamedTuple

import numpy as np

from ..core import check, extras
from ..core.aliases import IntArray
from ..core.dispatch import is_cupy
from ..core.real import as_given, rows_of

NUMBERS = ("number", "boolean", "time", "duration")
"""Kinds whose values are `Values.numbers`; of the last two in days."""
TIMES = ("date", "datetime", "instant")
"""Kinds whose values are `Values.times`; an instant has a time zone and is in UTC."""
LEVELS = ("text", "category", "ordered")
"""Kinds whose values are places in `Values.levels`; an ordered category has all levels of its dtype."""
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
_DAY = np.timedelta64(1, "D")


class Values(NamedTuple):
    """Values of a column of a table. Only the array of its kind is set."""

    kind: str
    numbers: Any = None
    """(n_rows,) float64, NaN where a value is missing."""
    times: np.ndarray | None = None
    """(n_rows,) datetime64[us], NaT where a value is missing."""
    codes: Any = None
    """(n_rows,) int64: places in `levels`, -1 where a value is missing."""
    levels: tuple[str, ...] = ()
    of_categories: bool = False
    """Whether numbers are categories by the dtype of the column."""


class ColumnError(Exception):
    """Error of one column: expected, got and remedy in one text."""

    def __init__(self, expected: str, got: str, remedy: str, error: type[Exception] = ValueError) -> None:
        super().__init__(f"expected {expected}, got {got}; {remedy}")
        self.error = error


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


Reader = Callable[[], Values]


def opened(name: str, table: object) -> tuple[list[str], list[Reader], int]:
    """Returns the names of the columns, a function that reads each, and the number of rows."""
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
        return names, [_later(of_array, a[:, j]) for j in range(a.shape[1])], len(a)
    if isinstance(table, np.ndarray):
        as_given(name, table)
        remedy = f"pass {name}.ravel()"
        check.require(table.ndim == 1, name, "a structured array with one axis", table.shape, remedy)
        fields = table.dtype.names or ()
        return list(fields), [_later(of_array, table[field]) for field in fields], len(table)
    if isinstance(table, Mapping):
        return _opened_mapping(name, table)
    return _opened_frame(name, table)


def _later(function: Callable[[Any], Values], column: Any) -> Reader:
    return lambda: function(column)


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
    arrays = [as_given(f"{name}[{key!r}]", a) for key, a in table.items()]
    for column, a in zip(names, arrays, strict=True):
        check.require(
            not is_cupy(a) and a.ndim == 1 and len(a) == len(arrays[0]), f"{name}[{column!r}]",
            f"{len(arrays[0]) if arrays[0].ndim else 'some'} values, as many as in each column",
            f"shape {a.shape}", "pass columns of equal length",
        )  # fmt: skip
    return names, [_later(of_array, a) for a in arrays], len(arrays[0]) if arrays else 0


def _opened_frame(name: str, table: Any) -> tuple[list[str], list[Reader], int]:
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
    return names, [_later(_of_series, column) for column in frame.iter_columns()], len(frame)


# ------------------------------------------------------------------------------------------ columns


def of_array(a: np.ndarray) -> Values:
    """Returns the values of a column, (n_rows,) of any dtype."""
    kind = a.dtype.kind
    if a.ndim != 1:
        raise ColumnError("one value per row", f"arrays of shape {a.shape[1:]}", "pass one column per value")
    if kind in "biuf":
        with np.errstate(over="ignore"):
            return Values("boolean" if kind == "b" else "number", a.astype(np.float64))
    if kind in "Mm" and np.datetime_data(a.dtype)[0] == "generic":
        raise ColumnError("dates or durations with a unit", f"dtype {a.dtype}", "set a unit", TypeError)
    if kind == "M":
        is_date = np.datetime_data(a.dtype)[0] in ("Y", "M", "W", "D")
        return Values("date" if is_date else "datetime", times=a.astype("datetime64[us]"))
    if kind == "m":
        return Values("duration", a / _DAY)
    if kind == "S":
        try:
            a = np.strings.decode(a, "utf-8")
        except UnicodeDecodeError:
            raise ColumnError("text in UTF-8", "other bytes", "decode them", TypeError) from None
    if kind in "SUTO":
        return _of_objects(a.astype(object))
    raise ColumnError("numbers, text, dates or booleans", f"dtype {a.dtype}", "convert or drop it", TypeError)


def _group(kind: type) -> str:
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
    groups = {kind: _group(kind) for kind in set(map(type, a))}

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
    for mixture, kind in (({"boolean", "number"}, "number"), ({"date", "datetime"}, "datetime")):
        occurring = {kind} if occurring == mixture else occurring
    if len(occurring) > 1 or "" in occurring:
        raise _mixed(a, groups, occurring)
    if not occurring:
        return Values(MISSING)
    kind = occurring.pop()
    try:
        return _of_group(kind, a[present], present)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ColumnError(
            f"{WORDS[kind]} that NumPy can hold",
            f"values outside of its range ({error})",
            "convert or drop it",
        ) from None


def _mixed(a: np.ndarray, groups: Mapping[type, str], occurring: set[str]) -> ColumnError:
    examples = {groups[type(value)]: value for value in a[::-1]}
    if occurring == {""}:
        return ColumnError(
            "numbers, text, dates or booleans", f"{type(examples['']).__name__} such as {examples['']!r:.80}",
            "convert or drop it", TypeError,
        )  # fmt: skip
    words = WORDS | {"": "other objects"}
    each = " and ".join(f"{words[group]} such as {examples[group]!r:.80}" for group in sorted(occurring))
    return ColumnError("values of one kind", each, "convert the column to one kind", TypeError)


def _of_group(kind: str, values: np.ndarray, present: np.ndarray) -> Values:
    """Returns `Values` of one kind; `values` are those of the rows where `present` (n_rows,) is True."""
    if kind == "text":
        levels, some = encoded(values)
        codes = np.full(len(present), -1)
        codes[present] = some
        return Values(kind, codes=codes, levels=levels)
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
        times[present] = np.array(moments, "datetime64[us]")
        return Values(kind, times=times)
    if kind == "time":
        if any(map(attrgetter("tzinfo"), values)):
            got = "times with a time zone"
            raise ColumnError("times of day without a time zone", got, "pass dates and times")
        of_epoch = np.strings.add("1970-01-01T", values.astype(str)).astype("datetime64[us]")
        some = (of_epoch - np.datetime64(0, "us")) / _DAY
    elif kind == "duration":
        some = np.array(values.tolist(), "timedelta64[us]") / _DAY
    else:
        some = values.astype(np.float64)
    numbers = np.full(len(present), np.nan)
    numbers[present] = some
    return Values(kind, numbers)


def encoded(texts: Iterable[str]) -> tuple[tuple[str, ...], IntArray]:
    """Returns distinct texts in order of first occurrence, and the index of each text among them."""
    places: defaultdict[str, int] = defaultdict()
    places.default_factory = places.__len__  # the place of a new text is the number of texts before it
    codes = np.fromiter(map(places.__getitem__, texts), np.int64)
    return tuple(places), codes


# ------------------------------------------------------------------------------------------- frames


def _of_series(series: Any) -> Values:
    """Returns a column of a data frame, as a series of narwhals."""
    import narwhals.stable.v2 as nw

    dtype = series.dtype
    if series.null_count() == len(series):
        return Values(MISSING)
    if dtype in (nw.Categorical, nw.Enum):
        return _of_categories(series)
    if dtype == nw.String:
        levels, codes = _encoded_series(series)
        return Values("text", codes=codes, levels=levels)
    if dtype in (nw.List, nw.Array, nw.Struct, nw.Binary):
        raise ColumnError("numbers, text, dates or booleans", str(dtype), "convert or drop it", TypeError)
    if dtype == nw.Boolean or dtype.is_numeric():
        numbers = np.asarray(series.cast(nw.Float64).to_numpy(), np.float64)
        return Values("boolean" if dtype == nw.Boolean else "number", numbers)
    values = of_array(np.asarray(series.to_numpy()))
    if dtype == nw.Datetime and dtype.time_zone is not None:
        return values._replace(kind="instant")
    return values


def _encoded_series(series: Any) -> tuple[tuple[str, ...], IntArray]:
    import narwhals.stable.v2 as nw

    levels = series.drop_nulls().unique(maintain_order=True).to_list()
    codes = series.replace_strict(levels, list(range(len(levels))), return_dtype=nw.Int64)
    return tuple(levels), np.asarray(codes.fill_null(-1).to_numpy(), np.int64)


def _of_categories(series: Any) -> Values:
    import narwhals.stable.v2 as nw

    of_polars = series.implementation.is_polars()
    # The order of the levels of a polars Enum has no meaning.
    ordered = nw.is_ordered_categorical(series) and not of_polars
    categories = series.cat.get_categories()
    if categories.dtype.is_numeric() and not ordered:
        return of_array(np.asarray(series.to_numpy()))._replace(of_categories=True)
    levels = [str(level) for level in categories.to_list()]
    kind = "ordered" if ordered else "category"
    if series.implementation.is_pandas_like():
        return Values(kind, codes=series.to_native().cat.codes.to_numpy(np.int64), levels=tuple(levels))
    texts, codes = _encoded_series(series.cast(nw.String))
    if of_polars and series.dtype == nw.Categorical:
        levels = sorted(texts)  # categories of polars are those of all frames of the process
    place = {level: i for i, level in enumerate(levels)}
    lookup = np.array([*(place[text] for text in texts), -1])
    return Values(kind, codes=lookup[codes], levels=tuple(levels))


def missing_rows(values: Values, n_rows: int) -> IntArray:
    """Returns (n_rows,) bool: where a value is missing."""
    if values.numbers is not None:
        return np.isnan(values.numbers)
    if values.times is not None:
        return np.isnat(values.times)
    if values.codes is not None:
        return values.codes < 0
    return np.ones(n_rows, bool)
