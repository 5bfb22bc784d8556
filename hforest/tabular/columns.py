"""Columns of a table: the kind of each column, and its conversion to numbers.

`columns` returns the kind of each column of a table. `numbers` converts that table, or another one with the
same columns, to a matrix. `describe` returns a text about the columns.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ..core import check
from ..core.aliases import FloatArray, IntArray, Table
from .tables import (
    LEVELS,
    MISSING,
    NUMBERS,
    TIMES,
    WORDS,
    ColumnError,
    Faults,
    Values,
    is_table,
    missing_rows,
    opened,
    shown,
)

MAX_LEVELS = 2**16
"""Forests take categories 0 to 65535."""
MAX_LENGTH = 1000
"""Maximum number of characters of a level; longer texts are not categories."""
KINDS = (*NUMBERS, *TIMES, *LEVELS, MISSING)

_DAY, _EPOCH = np.timedelta64(1, "D"), np.datetime64(0, "us")
MAX_DAYS = 2.0**26
"""Maximum distance of dates from 1970 in days; datetime64[us] can hold such dates."""
_HOUR, _MINUTE = 3_600_000_000, 60_000_000


def _whole(times: np.ndarray, unit: str) -> IntArray:
    return times.astype(f"datetime64[{unit}]").astype(np.int64)


def _days(times: np.ndarray) -> FloatArray:
    return (times - _EPOCH) / _DAY


PARTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "days": _days,
    "year": lambda t: _whole(t, "Y") + 1970,
    "month": lambda t: _whole(t, "M") % 12 + 1,
    "day": lambda t: _whole(t, "D") - _whole(t.astype("datetime64[M]"), "D") + 1,
    "weekday": lambda t: (_whole(t, "D") + 3) % 7,
    "hour": lambda t: _whole(t, "us") // _HOUR % 24,
    "minute": lambda t: _whole(t, "us") // _MINUTE % 60,
}
"""Features of dates: days since 1970 with fractions, and parts of the date; weekday 0 is Monday."""
FEATURES = ("value", "level", "rank", *PARTS)
"""Parts of a column that a feature can hold."""


class Columns(NamedTuple):
    """Kinds and categories of the columns of a table: plain arrays, which `save` stores with a model.

    The features of a column are its columns in the matrix of `numbers`: one for numbers or categories,
    several for dates, none for a constant or empty column.
    """

    names: np.ndarray
    """(n_columns,) str."""
    kinds: np.ndarray
    """(n_columns,) str: "number", "boolean", "time", "duration", "date", "datetime" (without a time zone),
    "instant" (with one), "text", "category", "ordered" or "missing" (no value)."""
    missing: FloatArray
    """(n_columns,) float64: share of the rows without a value."""
    low: FloatArray
    """(n_columns,) float64: least number; times and durations are in days, dates in days since 1970; NaN for
    categories."""
    high: FloatArray
    """(n_columns,) float64: greatest number, in the same units."""
    level_start: IntArray
    """(n_columns + 1,) int64: where the levels of each column begin."""
    levels: np.ndarray
    """(n_levels,) str: categories of a column in the order of their numbers."""
    source: IntArray
    """(n_features,) int64: the column of each feature, ascending."""
    parts: np.ndarray
    """(n_features,) str: the part of its column in a feature: "value", "level" (the number of a category),
    "rank" (of an ordered one), "days", "year", "month", "day", "weekday", "hour" or "minute"."""

    @property
    def categorical(self) -> np.ndarray:
        """Returns (n_features,) bool: which features are categories, for `hforest.samples`."""
        return np.asarray(self.parts == "level")

    @property
    def feature_names(self) -> list[str]:
        """Returns names of the features: those of the columns; for dates with the part, as "pickup, hour"."""
        names = self.names.tolist()
        return [
            f"{names[j]}, {part}" if part in PARTS else names[j]
            for j, part in zip(self.source.tolist(), self.parts.tolist(), strict=True)
        ]


# ---------------------------------------------------------------------------------------- learning


class _Column(NamedTuple):
    kind: str
    missing: float
    low: float
    high: float
    levels: tuple[str, ...]
    parts: tuple[str, ...]


def _plain(text: str) -> str:
    # Arrays of text do not keep zeros at the end.
    return text.rstrip("\0")


def _texts_of(numbers: FloatArray) -> tuple[tuple[str, ...], IntArray]:
    """Returns the distinct numbers of a categorical column in ascending order, and codes."""
    present = ~np.isnan(numbers)
    some, places = np.unique(numbers[present], return_inverse=True)
    codes = np.full(len(numbers), -1)
    codes[present] = places
    return tuple(f"{value + 0.0:.17g}" for value in some.tolist()), codes


def _check_finite(values: Values) -> None:
    infinite = np.isinf(values.numbers)
    if bool(infinite.any()):
        row = int(infinite.argmax())
        got = f"{values.numbers[row]} in row {row}"
        raise ColumnError("finite numbers, or NaN for missing values", got, "clip or drop it")


def _of_levels(values: Values, categorical: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns levels of a column of categories, and its features."""
    assert values.codes is not None
    occurs = np.bincount(values.codes + 1, minlength=len(values.levels) + 1)[1:] > 0
    names = [_plain(level) for level, there in zip(values.levels, occurs.tolist(), strict=True) if there]
    if values.kind == "ordered":
        varies = len(names) > 1 or (names and bool((values.codes < 0).any()))
        names = [_plain(level) for level in values.levels]
        part = "rank"
    else:
        names = sorted(set(names)) if values.kind == "text" else list(dict.fromkeys(names))
        varies = len(names) > 1 or bool((values.codes < 0).any())
        part = "level"
    if len(names) > MAX_LEVELS:
        raise ColumnError(
            f"at most {MAX_LEVELS} categories", f"{len(names)} different values, such as {names[0]!r:.60}",
            "drop the column if it identifies rows, merge categories, or convert it to numbers",
        )  # fmt: skip
    longest = max(map(len, names), default=0)
    if longest > MAX_LENGTH:
        raise ColumnError(
            f"categories of at most {MAX_LENGTH} characters", f"a text of {longest}",
            "drop the column, or convert its text to numbers",
        )  # fmt: skip
    if part == "level" and not categorical:
        raise ColumnError(
            "numbers, since categorical is None", f"{WORDS[values.kind]} such as {names[0]!r:.60}",
            'pass categorical="from_dtype", or drop the column', TypeError,
        )  # fmt: skip
    return tuple(names), (part,) if varies else ()


def _learned(values: Values, n_rows: int, categorical: bool, chosen: bool) -> _Column:
    """Returns the kind of a column; `categorical`: dtypes decide; `chosen`: the column is categorical."""
    absent = missing_rows(values, n_rows)
    share = float(absent.mean())
    kind, low, high = values.kind, np.nan, np.nan
    if absent.all():
        return _Column(MISSING, share, low, high, (), ())
    if kind in LEVELS:
        if chosen and kind == "ordered":
            values = values._replace(kind="category")
        levels, parts = _of_levels(values, categorical or chosen)
        return _Column(values.kind, share, low, high, levels, parts)
    if kind in TIMES:
        if chosen:
            raise ColumnError("categories", WORDS[kind], "leave it out of categorical", TypeError)
        assert values.times is not None
        times = values.times[~absent]
        spans = {part: function(times) for part, function in PARTS.items()}
        low, high = float(spans["days"].min()), float(spans["days"].max())
        varying = tuple(part for part, some in spans.items() if some.min() < some.max())
        return _Column(kind, share, low, high, (), varying or (("days",) if share else ()))
    _check_finite(values)
    low, high = float(values.numbers[~absent].min()), float(values.numbers[~absent].max())
    if low == high and not share:
        return _Column(kind, share, low, high, (), ())
    if chosen or (categorical and values.of_categories):
        fraction = ~absent & (values.numbers != np.trunc(values.numbers))
        if fraction.any():
            got = str(values.numbers[fraction.argmax()])
            raise ColumnError(
                "whole numbers as categories",
                got,
                "convert them to text, or leave the column out of categorical",
            )
        levels, codes = _texts_of(values.numbers)
        levels, parts = _of_levels(Values("category", codes=codes, levels=levels), True)
        return _Column(kind, share, low, high, levels, parts)
    return _Column(kind, share, low, high, (), ("value",))


def _names(categorical: Any) -> list[str]:
    """Returns the names that `categorical` lists; none for "from_dtype"."""
    if categorical is None or (isinstance(categorical, str) and categorical == "from_dtype"):
        return []
    remedy = 'pass "from_dtype", None or a list of names'
    if isinstance(categorical, np.ndarray):
        categorical = categorical.tolist()
    check.instance("categorical", categorical, list | tuple, '"from_dtype", None or a list of names', remedy)
    for value in categorical:
        check.instance("categorical", value, str, "column names", remedy)
    return list(categorical)


def learned(name: str, table: Any, categorical: Any) -> tuple[Columns, FloatArray]:
    """Returns `columns` and `numbers` of one table; messages use its `name`."""
    chosen = set(_names(categorical))
    names, readers, n_rows = opened(name, table)
    unknown = sorted(chosen.difference(names))
    known = f"column names of {name}: {shown(names)}"
    check.require(not unknown, "categorical", known, shown(unknown), "correct these names")
    check.require(n_rows > 0, name, "at least one row", "none", "pass rows to learn from")
    faults = Faults(name, "columns that can be learned", "correct these columns, or drop them")
    table_of, features = [], []
    for column, read in zip(names, readers, strict=True):
        try:
            values = read()
            one = _learned(values, n_rows, categorical is not None, column in chosen)
            table_of.append(one)
            features.append(_features(one.levels, one.parts, values, n_rows))
        except ColumnError as fault:
            faults.add(f"column {column!r}", fault)
    faults.check()
    levels = [level for one in table_of for level in one.levels]
    result = Columns(
        names=np.array(names, str),
        kinds=np.array([one.kind for one in table_of], str),
        missing=np.array([one.missing for one in table_of], np.float64),
        low=np.array([one.low for one in table_of], np.float64),
        high=np.array([one.high for one in table_of], np.float64),
        level_start=np.cumsum([0, *(len(one.levels) for one in table_of)], dtype=np.int64),
        levels=np.array(levels, str),
        source=np.repeat(np.arange(len(names)), np.array([len(one.parts) for one in table_of], np.int64)),
        parts=np.array([part for one in table_of for part in one.parts], str),
    )
    return result, _stacked([a for some in features for a in some], n_rows)


def _stacked(features: Sequence[FloatArray], n_rows: int) -> FloatArray:
    x = np.empty((n_rows, len(features)))
    for k, a in enumerate(features):
        x[:, k] = a
    return x


# -------------------------------------------------------------------------------------- converting


def _features(levels: Sequence[str], parts: Sequence[str], values: Values, n_rows: int) -> list[FloatArray]:
    """Returns the features of a column, each (n_rows,) float64, for values of this or another table."""
    if values.kind == MISSING:
        return [np.full(n_rows, np.nan)] * len(parts)
    return [_feature(levels, part, values) for part in parts]


def _feature(levels: Sequence[str], part: str, values: Values) -> FloatArray:
    if part in PARTS:
        assert values.times is not None
        numbers = np.asarray(PARTS[part](values.times), np.float64)
        numbers[np.isnat(values.times)] = np.nan
        return numbers
    if part == "value":
        return values.numbers
    texts, codes = values.levels, values.codes
    if values.numbers is not None:
        texts, codes = _texts_of(values.numbers)
    place = {level: float(i) for i, level in enumerate(levels)}
    lookup = np.array([*(place.get(_plain(level), np.nan) for level in texts), np.nan])
    return lookup[codes]


def _check_kind(learned: str, values: Values, of_levels: bool) -> None:
    """Checks that the kind of values is compatible with the kind of the fitted column."""
    kind = values.kind
    groups = (("number", "boolean"), ("date", "datetime"), LEVELS, (learned,))
    alike = next(group for group in groups if learned in group)
    if kind in (*alike, MISSING):
        if values.numbers is not None and not of_levels:
            _check_finite(values)
        return
    dates = {learned, kind} <= set(TIMES)
    remedy = "set or drop the time zone, as in the first table" if dates else "convert the column"
    got = WORDS[kind]
    if kind in LEVELS and values.levels:
        got += f" such as {values.levels[0]!r:.60}"
    raise ColumnError(WORDS[learned], got, remedy, TypeError)


def converted(name: str, columns: Columns, table: Any) -> FloatArray:
    """Returns `numbers` for checked columns and a table; messages use its `name`."""
    names, readers, n_rows = opened(name, table)
    wanted, kinds = columns.names.tolist(), columns.kinds.tolist()
    if not is_table(table):
        remedy = "pass the columns in the order of the first table, or a table with column names"
        check.require(len(names) == len(wanted), name, f"{len(wanted)} columns", len(names), remedy)
        names = wanted
    place = {column: i for i, column in enumerate(names)}
    start, parts = columns.level_start, columns.parts.tolist()
    first = np.searchsorted(columns.source, np.arange(len(wanted) + 1))
    faults = Faults(name, "the columns that were learned", "pass a table like the first one")
    for column in sorted(set(names).difference(wanted)):
        faults.add(
            f"column {column!r}", ColumnError("a column that was learned", "one that was not", "drop it")
        )
    features: list[FloatArray] = []
    for j, column in enumerate(wanted):
        of_column = parts[first[j] : first[j + 1]]
        if not of_column:
            continue
        levels, kind = columns.levels[start[j] : start[j + 1]].tolist(), kinds[j]
        try:
            if column not in place:
                raise ColumnError(
                    f"a column of {WORDS[kind]}", "no column of that name", "add or rename a column"
                )
            values = readers[place[column]]()
            _check_kind(kind, values, bool(levels))
            features += _features(levels, of_column, values, n_rows)
        except ColumnError as fault:
            faults.add(f"column {column!r}", fault)
    faults.check()
    return _stacked(features, n_rows)


# ------------------------------------------------------------------------------------------ checks


def check_columns(name: str, columns: Any) -> int:
    """Returns the number of features of a `Columns`, after checking that it is valid."""
    remedy = "pass the result of columns"
    check.instance(name, columns, Columns, "a Columns", remedy)
    check.on_cpu(**{f"{name}.{field}": a for field, a in columns._asdict().items()})
    sizes: check.Sizes = {}
    texts = {"names": "n_columns", "kinds": "n_columns", "levels": "n_levels", "parts": "n_features"}
    for field, axis in texts.items():
        a = getattr(columns, field)
        check.instance(f"{name}.{field}", a, np.ndarray, "a numpy.ndarray", remedy)
        check.require(
            a.dtype.kind == "U" and a.ndim == 1 and sizes.setdefault(axis, len(a)) == len(a),
            f"{name}.{field}", f"text of shape ({axis},)", f"dtype {a.dtype} and shape {a.shape}", remedy,
        )  # fmt: skip
    n, n_features = sizes["n_columns"], sizes["n_features"]
    with check.fields_of(name):
        for field in ("missing", "low", "high"):
            check.array(field, getattr(columns, field), np.dtype(np.float64), ("n_columns",), sizes)
        check.array("level_start", columns.level_start, check.INT64, (n + 1,), sizes)
        check.array("source", columns.source, check.INT64, ("n_features",), sizes)
        start, source = columns.level_start, columns.source
        for field, a, known in (("kinds", columns.kinds, KINDS), ("parts", columns.parts, FEATURES)):
            unknown = set(a.tolist()).difference(known)
            check.require(not unknown, field, f"words of {', '.join(known)}", shown(sorted(unknown)), remedy)
        check.require(len(set(columns.names.tolist())) == n, "names", "unique names", "repeated ones", remedy)
        check.require(
            start[0] == 0 and start[-1] == sizes["n_levels"] and bool((np.diff(start) >= 0).all()),
            "level_start", f"0, ..., n_levels = {sizes['n_levels']}, in non-decreasing order", "other "
                "numbers", remedy,
        )  # fmt: skip
        check.require(
            not n_features or (0 <= source[0] and source[-1] < n and bool((np.diff(source) >= 0).all())),
            "source", f"0 <= column < n_columns = {n}, in non-decreasing order", "other numbers", remedy,
        )  # fmt: skip
        kinds = columns.kinds.tolist()
        low, high = columns.low, columns.high
        bound = np.where([kind in TIMES for kind in kinds], MAX_DAYS, np.finfo(np.float64).max)
        check.require(
            bool((np.isnan(low) | ((abs(low) <= bound) & (abs(high) <= bound))).all()), "low",
            "NaN or finite ranges, for dates within datetime64[us]", "other ranges", remedy,
        )  # fmt: skip
        for j, part in zip(source.tolist(), columns.parts.tolist(), strict=True):
            kind, has_levels = kinds[j], bool(start[j] < start[j + 1])
            fits = {
                "value": kind in NUMBERS, "level": has_levels and kind not in (*TIMES, "time", "duration"),
                "rank": has_levels and kind == "ordered",
            }.get(part, kind in TIMES)  # fmt: skip
            check.require(fits, "parts", f"features of a column of {WORDS[kind]}", repr(part), remedy)
    return n_features


# ------------------------------------------------------------------------------------------ public


def columns(
    table: Table, *, categorical: Literal["from_dtype"] | Sequence[str] | None = "from_dtype"
) -> Columns:
    """Returns the kind of each column of a table, for `numbers`.

    Parameters
    ----------
    table : data frame, structured array, mapping or matrix
        A data frame of pandas, polars or Arrow in memory (they need narwhals: the extra "tables"), a NumPy
        array with fields, or a mapping from names to arrays of one length. The columns of a matrix
        (n_rows, n_columns) are called "0", "1", ... At least one row.
    categorical : "from_dtype", None, or sequence of str
        Which columns are categorical. "from_dtype": those of text and of categorical dtypes. None: no column;
        text is an error. Names: these columns, which may hold integers, and those of "from_dtype".

    Returns
    -------
    Columns
        For `numbers` and `describe`.

    Raises
    ------
    TypeError, ValueError
        Not a table; duplicate column names. One error lists all faulty columns: values of several kinds, text
        with `categorical` None, infinity, more than 65536 categories or one of more than 1000 characters.
    ImportError
        A data frame, if narwhals is not installed.

    Notes
    -----
    ==================================  ===================================================================
    a column of                         features
    ==================================  ===================================================================
    numbers, booleans                   the number; of booleans 0 or 1
    times of day, durations             days
    text, categorical dtypes            0, 1, ... of the categories that occur; those of text are sorted
    ordered categorical dtypes          the rank of the category among all of the dtype
    dates, dates and times              days since 1970-01-01, and of year, month, day, weekday, hour and
                                        minute those that vary; with a time zone in UTC
    one value without gaps, no value    none
    ==================================  ===================================================================

    None, NaN, NaT and pandas.NA are missing values. The kind of an object column is that of all its values.
    An Enum of polars is an unordered categorical dtype. Cost: a pass over the table, and for text a hash
    table of its values.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> table = {"size": [3.0, np.nan, 1.0], "colour": ["red", "blue", "red"], "unit": ["cm", "cm", "cm"]}
    >>> columns = hforest.tabular.columns(table)
    >>> hforest.tabular.numbers(columns, table)
    array([[ 3.,  1.],
           [nan,  0.],
           [ 1.,  1.]])
    >>> columns.categorical
    array([False,  True])
    >>> print(hforest.tabular.describe(columns))
    column  kind     values             missing  features
    size    numbers  1 to 3              33.3 %  value
    colour  text     2: 'blue', 'red'       0 %  level
    unit    text     1: 'cm'                0 %  none (one value)
    """
    return learned("table", table, categorical)[0]


def numbers(columns: Columns, table: Table) -> FloatArray:
    """Returns a table as a matrix of features, NaN where a value is missing.

    Parameters
    ----------
    columns : Columns
        Result of `columns` for this table, or for another one with the same columns.
    table : table
        As for `columns`. Columns are matched by name, in any order; those of a matrix by position. Columns
        without features may be absent.

    Returns
    -------
    (n_rows, n_features) array of float64
        A category that is not in `columns` is NaN. ``columns.categorical`` is the mask of categorical
        features.

    Raises
    ------
    TypeError, ValueError
        One error lists all faulty columns: missing or unknown ones, values of another kind (such as text in
        place of numbers, or a time zone where there was none), infinity.
    """
    check_columns("columns", columns)
    return converted("table", columns, table)


def describe(columns: Columns) -> str:
    """Returns a text with one line per column of a table: its content and its features.

    Parameters
    ----------
    columns : Columns
        Result of `columns`.

    Returns
    -------
    str
        Name, kind, range or categories, share of missing values, and features.
    """
    check_columns("columns", columns)
    rows = [("column", "kind", "values", "missing", "features")]
    kinds, shares = columns.kinds.tolist(), columns.missing.tolist()
    for j, name in enumerate(columns.names.tolist()):
        kind, missing = kinds[j], f"{100 * shares[j]:.3g} %"
        parts = columns.parts[columns.source == j].tolist()
        none = "none (no value)" if kind == MISSING else "none (one value)"
        rows.append(
            (_short(name, 30), _KIND[kind], _values(columns, kind, j), missing, ", ".join(parts) or none)
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        cells[3] = row[3].rjust(widths[3])
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


_KIND = {
    **WORDS, "time": "times", "datetime": "dates, times", "instant": "dates, times UTC", "missing": "nothing",
}  # fmt: skip
_WIDTH = 44
"""Maximum number of characters for the values of a column."""


def _short(text: str, most: int) -> str:
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= most else text[: most - 3] + "..."


def _values(columns: Columns, kind: str, j: int) -> str:
    """Returns the range of a column, or its categories."""
    first, last = columns.level_start[j : j + 2].tolist()
    if first < last:
        some = ", ".join(repr(level) for level in columns.levels[first : min(last, first + 5)].tolist())
        return _short(f"{last - first}: {some}" + ", ..." * (last - first > 5), _WIDTH)
    low, high = float(columns.low[j]), float(columns.high[j])
    if np.isnan(low):
        return ""
    if kind in TIMES:
        seconds = np.round(86400 * np.array([low, high])).astype("datetime64[s]")
        ends = [time[:16].replace("T", " ") for time in np.datetime_as_string(seconds).tolist()]
        if kind == "date":
            ends = [end[:10] for end in ends]
    else:
        unit = " days" if kind in ("time", "duration") else ""
        ends = [f"{low:.6g}", f"{high:.6g}{unit}"]
    return ends[0] if low == high else " to ".join(ends)
