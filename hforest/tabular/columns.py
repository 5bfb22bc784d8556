"""Columns of a table: the kind of each column, and its conversion to numbers.

`columns` returns the kind of each column of a table. `numbers` converts that table, or another one with the
same columns, to a matrix. Columns of text are read by `texts`.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ..core import check
from ..core.aliases import FloatArray, IntArray, Table
from ..core.threads import get_num_threads
from . import texts
from .kinds import MAX_LEVELS, PARTS, Columns, check_columns
from .library import each
from .tables import (
    LEVELS,
    MISSING,
    NUMBERS,
    TIMES,
    WORDS,
    ColumnError,
    Faults,
    Values,
    by_spelling,
    is_table,
    missing,
    opened,
    place_of,
    shown,
    spelt,
)

MAX_DISTINCT = 0.9
"""Share of different texts from which a column holds identifiers or free text, not categories."""
FEW = 20
"""Number of different values up to which any column of text has categories."""


# ---------------------------------------------------------------------------------------- learning


class _Column(NamedTuple):
    kind: str
    missing: float
    low: float = np.nan
    high: float = np.nan
    levels: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


class _Learned(NamedTuple):
    column: _Column
    features: list[FloatArray]
    form: str
    faults: list[str]
    notes: list[str]


MANY_ROWS = 100_000
"""Number of rows from which columns are read at the same time, on all threads."""


def _each_column(function: Callable[[Any], Any], columns: Iterable[Any], n_rows: int) -> list[Any]:
    return each(function, columns, get_num_threads() if n_rows >= MANY_ROWS else 1)


def text_array(texts: Sequence[str]) -> np.ndarray:
    """Returns texts as an array of StringDType, whose size is that of the texts."""
    return np.array(list(texts), np.dtypes.StringDType())


def coded(values: Values, null_values: Sequence[str] = ()) -> tuple[tuple[str, ...], IntArray]:
    """Returns `spelt`; for text without spaces around it, and without words of missing values."""
    levels, codes = spelt(values)
    if values.kind != "text":
        return levels, codes
    place: dict[str, int] = {}
    lookup = [
        -1 if text in null_values else place.setdefault(text, len(place)) for text in map(str.strip, levels)
    ]
    same = lookup == list(range(len(levels)))
    return tuple(place), codes if same else np.array([*lookup, -1])[codes]


def _check_finite(values: Values, place: Callable[[int], str]) -> None:
    infinite = np.isinf(values.data) if values.data.dtype.kind == "f" else np.zeros(1, bool)
    if bool(infinite.any()):
        row = int(infinite.argmax())
        got = f"{values.data[row]} in {place(row)}"
        raise ColumnError("finite numbers, or NaN for missing values", got, "clip or drop it")


def _of_levels(kind: str, levels: tuple[str, ...], codes: IntArray, chosen: bool) -> tuple[Any, list[str]]:
    """Returns levels and features of a column of categories, and faults."""
    counts = np.bincount(codes + 1, minlength=len(levels) + 1)[1:]
    occurring = [level for level, count in zip(levels, counts.tolist(), strict=True) if count]
    n, n_distinct = int(counts.sum()), len(occurring)
    varies = n_distinct > 1 or n < len(codes)
    if kind == "ordered":
        return (levels, ("rank",) if varies else ()), []
    if kind == "text":
        occurring.sort()
    if kind == "text" and not chosen and n_distinct > max(FEW, MAX_DISTINCT * n):
        return ((), ()), [
            f"{n_distinct} different texts in {n} rows are an identifier or free text, which is left out; "
            "name the column in categorical to use it, or make numbers of it by TfidfVectorizer or skrub"
        ]
    if n_distinct > MAX_LEVELS:
        raise ColumnError(
            f"at most {MAX_LEVELS} categories", f"{n_distinct} different values, such as "
            f"{occurring[0]!r:.60}",
            "drop the column if it identifies rows, merge categories, or convert it to numbers",
        )  # fmt: skip
    return (tuple(occurring), ("level",) if varies else ()), []


def _merged(values: Values) -> bool:
    """Returns whether float64 makes different integers equal."""
    a = values.data
    if a.dtype.kind not in "iu" or not a.size or max(int(a.max()), -int(a.min())) <= 2**53:
        return False
    distinct = np.unique(a[~values.absent])
    return len(np.unique(distinct.astype(np.float64))) < len(distinct)


def _learned(
    values: Values, categorical: bool, chosen: bool, null_values: Sequence[str], place: Callable[[int], str]
) -> tuple[_Column, list[str]]:
    """Returns the properties of a column, and faults.

    `categorical`: dtypes decide; `chosen`: the column is categorical.
    """
    share, kind = np.count_nonzero(values.absent) / max(1, len(values.absent)), values.kind
    if kind == MISSING or share == 1:
        return _Column(MISSING, share), []
    if chosen and kind in TIMES:
        raise ColumnError("categories", WORDS[kind], "leave it out of categorical", TypeError)
    if kind in TIMES:
        times = values.data[~values.absent]
        spans = {part: function(times) for part, function in PARTS.items()}
        low, high = float(spans["days"].min()), float(spans["days"].max())
        varying = tuple(part for part, some in spans.items() if some.min() < some.max())
        return _Column(kind, share, low, high, (), varying or (("days",) if share else ())), []
    low = high = np.nan
    if kind in NUMBERS:
        some = values.data[~values.absent] if share else values.data
        low, high = float(some.min()), float(some.max())
        if not np.isfinite([low, high]).all():
            _check_finite(values, place)
        by_levels = chosen or (categorical and values.of_categories) or _merged(values)
        if not by_levels:
            constant = low == high and not share
            return _Column(kind, share, low, high, (), () if constant else ("value",)), []
    elif not (categorical or chosen) and kind != "ordered":
        raise ColumnError(
            "numbers, since categorical is None", f"{WORDS[kind]} such as {spelt(values)[0][0]!r:.60}",
            'pass categorical="from_dtype", or drop the column', TypeError,
        )  # fmt: skip
    levels, codes = coded(values, null_values)
    if not levels:
        return _Column(MISSING, 1.0), []
    kind = "category" if chosen and kind == "ordered" else kind
    (names, parts), faults = _of_levels(kind, levels, codes, chosen)
    return _Column(kind, float((codes < 0).mean()), low, high, names, parts), faults


def _lost(values: Values, null_values: Sequence[str]) -> list[str]:
    """Returns a note on words in a column of text that are missing values."""
    levels = set(map(str.strip, spelt(values)[0])) if values.kind == "text" else set()
    words = sorted(levels & set(null_values) - {""})
    return [f"{shown(words)} read as missing values, which null_values can change"] if words else []


def _common(feature: FloatArray) -> str:
    """Returns a note on a feature of which nearly all values are equal; else ""."""
    middle = np.nanmedian(feature[:: max(1, len(feature) // 1001)]) if len(feature) else np.nan
    if not np.mean(feature[:1000] == middle) > 0.9:
        return ""
    share = float((feature == middle).sum() / max(1, (~np.isnan(feature)).sum()))
    return f"{100 * share:.4g} % of the values are equal" if 0.99 <= share < 1 else ""


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


def learned(
    name: str,
    table: Any,
    categorical: Any,
    null_values: Any = None,
    day_first: bool | None = None,
    with_features: bool = True,
) -> tuple[Columns, list[FloatArray], list[str]]:
    """Returns `columns` and, `with_features`, the features of one table, and faults of what was read.

    Messages use the `name` of the table.
    """
    chosen, hints = set(_names(categorical)), texts.hints_of(table, null_values, day_first)
    words = hints.null_values
    names, readers, n_rows = opened(name, table)
    unknown = sorted(chosen.difference(names))
    known = f"column names of {name}: {shown(names)}"
    check.require(not unknown, "categorical", known, shown(unknown), "correct these names")
    check.require(n_rows > 0, name, "at least one row", "none", "pass rows to learn from")
    place = place_of(table)
    faults = Faults(name, "columns that can be learned", "correct these columns, or drop them")

    def learn(one: tuple[str, Callable[[], Values]]) -> _Learned | ColumnError:
        column, read = one
        try:
            raw = read()
            if raw.kind == "text" and column not in chosen:
                typed = texts.typed(raw, hints)
            else:
                same = by_spelling(raw) if raw.kind == "text" else raw
                typed = texts.Typed(same, "", np.zeros(0, np.int64))
            values = typed.values
            said = [*typed.faults, *texts.unread(typed.form, typed.unreadable, raw, values, place)]
            properties, more = _learned(values, categorical is not None, column in chosen, words, place)
            some = of_values(properties.levels, properties.parts, values)
            notes = [*typed.notes, *_lost(values, words), *filter(None, map(_common, some[:1]))]
        except ColumnError as fault:
            return fault.alone()
        return _Learned(properties, some if with_features else [], typed.form, [*said, *more], notes)

    found: list[_Learned] = []
    results = _each_column(learn, zip(names, readers, strict=True), n_rows)
    for column, one in zip(names, results, strict=True):
        if isinstance(one, ColumnError):
            faults.add(f"column {column!r}", one)
        else:
            found.append(one)
    faults.check()
    table_of = [one.column for one in found]
    levels = [level for one in table_of for level in one.levels]
    result = Columns(
        names=text_array(names),
        kinds=np.array([one.kind for one in table_of], str),
        missing=np.array([one.missing for one in table_of], np.float64),
        low=np.array([one.low for one in table_of], np.float64),
        high=np.array([one.high for one in table_of], np.float64),
        level_start=np.cumsum([0, *(len(one.levels) for one in table_of)], dtype=np.int64),
        levels=text_array(levels),
        source=np.repeat(np.arange(len(names)), np.array([len(one.parts) for one in table_of], np.int64)),
        parts=np.array([part for one in table_of for part in one.parts], str),
        forms=text_array([one.form for one in found]),
        notes=text_array(["; ".join([*one.faults, *one.notes]) for one in found]),
        null_values=text_array(words),
    )
    said = [
        f"column {name!r}: {fault}" for name, one in zip(names, found, strict=True) for fault in one.faults
    ]
    return result, [a for one in found for a in one.features], said


def warn(faults: Sequence[str]) -> None:
    """Warns of what may be misread in a table."""
    if faults:
        warnings.warn("\n".join(faults), UserWarning, stacklevel=3)


def stacked(features: Sequence[FloatArray], n_rows: int) -> FloatArray:
    x = np.empty((n_rows, len(features)))
    for k, a in enumerate(features):
        x[:, k] = a
    return x


# -------------------------------------------------------------------------------------- converting


def of_values(levels: Sequence[str], parts: Sequence[str], values: Values) -> list[FloatArray]:
    """Returns the features of a column, each (n_rows,) float64, for values of this or another table."""
    if values.kind == MISSING:
        return [values.data] * len(parts)
    return [_feature(levels, part, values) for part in parts]


def _feature(levels: Sequence[str], part: str, values: Values) -> FloatArray:
    if part in PARTS or part == "value":
        a = PARTS[part](values.data) if part in PARTS else values.data
        if not values.absent.any():
            return np.asarray(a, np.float64)
        numbers = np.array(a, np.float64)
        numbers[values.absent] = np.nan
        return numbers
    texts, codes = coded(values)
    place = {level: float(i) for i, level in enumerate(levels)}
    lookup = np.array([*(place.get(text, np.nan) for text in texts), np.nan])
    return lookup[codes]


def _check_kind(learned: str, values: Values, of_levels: bool, place: Callable[[int], str]) -> None:
    """Checks that the kind of values is compatible with the kind of the fitted column."""
    kind = values.kind
    groups = (("number", "boolean"), ("date", "datetime"), ("time", "duration"), LEVELS, (learned,))
    alike = next(group for group in groups if learned in group)
    # Categories may be numbers in one table, and those of a dtype in another.
    if kind in (*alike, MISSING) or (of_levels and {learned, kind} == {"number", "category"}):
        if kind in NUMBERS and not of_levels:
            _check_finite(values, place)
        return
    dates = {learned, kind} <= set(TIMES)
    remedy = "set or drop the time zone, as in the first table" if dates else "convert the column"
    got = WORDS[kind]
    if kind in LEVELS and not values.absent.all():
        got += f" such as {spelt(values)[0][0]!r:.60}"
    raise ColumnError(WORDS[learned], got, remedy, TypeError)


def _as_learned(columns: Columns, j: int, read: Callable[[], Values], place: Any) -> tuple[Values, list[str]]:
    """Returns the values of a column as those of the fitted one were read, and faults."""
    values, kind = read(), str(columns.kinds[j])
    if values.kind != "text":
        return values, []
    if kind in LEVELS:
        return by_spelling(values), []
    form = str(columns.forms[j]) or texts.DEFAULT_FORMS[kind]
    words = tuple(columns.null_values.tolist())
    typed = texts.cast(values, form, words)
    n = int((~typed.values.absent).sum()) + len(typed.unreadable)
    if not n:
        return missing(len(values.absent)), []
    if len(typed.unreadable) > texts.MAX_UNREADABLE * n:
        row = int(typed.unreadable[0])
        got = f"text such as {values.data[row].strip()!r:.60}"
        raise ColumnError(WORDS[kind], got, "convert the column", TypeError)
    return typed.values, texts.unread(form, typed.unreadable, values, typed.values, place)


def _unlike(
    columns: Columns, j: int, values: Values, features: Sequence[FloatArray], place: Any
) -> list[str]:
    """Returns sentences about categories and numbers that did not occur in the fitted column."""
    n = int((~values.absent).sum())
    if values.kind == MISSING or not features or not n:
        return []
    first, last = columns.level_start[j : j + 2].tolist()
    if first < last:
        levels, codes = coded(values)
        words = set(columns.null_values.tolist()) if values.kind == "text" else set()
        is_word = np.array([*(level in words for level in levels), True])
        odd = np.flatnonzero(np.isnan(features[0]) & ~is_word[codes])
        what = "unknown categories, read as missing values"
    else:
        low, high = float(columns.low[j]), float(columns.high[j])
        odd = np.flatnonzero((features[0] < low) | (features[0] > high))
        what = f"outside of the range of training, {low:.6g} to {high:.6g}"
    if not len(odd):
        return []
    row = int(odd[0])
    example = levels[codes[row]] if first < last else values.data[row]
    return [f"{len(odd)} of {n} values are {what}, such as {str(example)!r:.60} in {place(row)}"]


def converted(name: str, columns: Columns, table: Any, faults_of: list[str] | None = None) -> FloatArray:
    """Returns `numbers` for checked columns and a table; messages use its `name`.

    Sentences about cells that the columns do not know are added to `faults_of`.
    """
    names, readers, n_rows = opened(name, table)
    wanted, kinds, where = columns.names.tolist(), columns.kinds.tolist(), place_of(table)
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

    def convert(j: int) -> tuple[list[FloatArray], list[str]] | ColumnError:
        column, kind, of_column = wanted[j], kinds[j], parts[first[j] : first[j + 1]]
        levels = columns.levels[start[j] : start[j + 1]].tolist()
        try:
            if column not in place:
                raise ColumnError(
                    f"a column of {WORDS[kind]}", "no column of that name", "add or rename a column"
                )
            values, said = _as_learned(columns, j, readers[place[column]], where)
            _check_kind(kind, values, bool(levels), where)
            some = of_values(levels, of_column, values)
            return some, said if faults_of is None else [*said, *_unlike(columns, j, values, some, where)]
        except ColumnError as fault:
            return fault.alone()

    used = [j for j in range(len(wanted)) if first[j] < first[j + 1]]
    features: list[FloatArray] = []
    for j, one in zip(used, _each_column(convert, used, n_rows), strict=True):
        if isinstance(one, ColumnError):
            faults.add(f"column {wanted[j]!r}", one)
            continue
        features += one[0]
        if faults_of is not None:
            faults_of += [f"column {wanted[j]!r}: {fault}" for fault in one[1]]
    faults.check()
    return stacked(features, n_rows)


# ------------------------------------------------------------------------------------------ public


def columns(
    table: Table,
    *,
    categorical: Literal["from_dtype"] | Sequence[str] | None = "from_dtype",
    null_values: Sequence[str] | None = None,
    day_first: bool | None = None,
) -> Columns:
    """Returns the kind of each column of a table, for `numbers`.

    Parameters
    ----------
    table : data frame, structured array, mapping or matrix
        A data frame of pandas, polars or Arrow in memory (they need narwhals: the extra "tables"), a NumPy
        array with fields, a mapping from names to arrays of one length, or what `read` returns. The
        columns of a matrix (n_rows, n_columns) are called "0", "1", ... At least one row.
    categorical : "from_dtype", None, or sequence of str
        Which columns are categorical. "from_dtype": those of categorical dtypes, and of text that is neither
        numbers, booleans, dates nor free text. None: no column; such text is an error. Names: these columns,
        whose values are categories as they are spelt, and those of "from_dtype".
    null_values : sequence of str, optional
        Texts that stand for a missing value, besides the empty one; by default those of pandas and readr, and
        "?". Spaces around a text do not count.
    day_first : bool, optional
        Whether 01/02/2020 is in February. By default the reading that suits all cells of a column, and of two
        such readings the month first, with a warning.

    Returns
    -------
    Columns
        For `numbers` and `describe`.

    Raises
    ------
    TypeError, ValueError
        Not a table; duplicate column names. One error lists all faulty columns: values of several kinds, text
        with `categorical` None, infinity, more than 65536 categories.
    ImportError
        A data frame or a column of text, if narwhals or polars is not installed.
    RuntimeError
        Such a column in a process that was forked while threads of polars ran.

    Warns
    -----
    UserWarning
        Names columns that may be misread: cells that cannot be read as their column, text that is nearly but
        not quite numbers or dates, dates of which day and month can be exchanged, identifiers and free text.

    Notes
    -----
    ==================================  ===================================================================
    a column of                         features
    ==================================  ===================================================================
    numbers, booleans                   the number; of booleans 0 or 1
    times of day, durations             days
    text                                as the kind that at least 90 % of its cells can be read as: numbers
                                        (also with units, separators of thousands, a decimal comma), booleans,
                                        dates, times; other cells are then missing
    other text, categorical dtypes      0, 1, ... of the categories that occur; those of text are sorted
    free text: more than 20 values,     none, unless `categorical` names the column
    more than 90 % of them different
    ordered categorical dtypes          the rank of the category among all of the dtype
    dates, dates and times              days since 1970-01-01, and of year, month, day, weekday, hour and
                                        minute those that vary; with a time zone in UTC
    one value without gaps, no value    none
    ==================================  ===================================================================

    None, NaN, NaT and pandas.NA are missing values. The kind of an object column is that of all its values.
    Digits with zeros before them are text, and so are whole numbers of text that float64 would make equal;
    such integers of other dtypes are categories. An Enum of polars is an unordered categorical dtype. Cost: a
    pass over the table, and for text a cast of its cells or a hash table.

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
    result, _, faults = learned("table", table, categorical, null_values, day_first, with_features=False)
    warn(faults)
    return result


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


def differences(columns: Columns, table: Table) -> list[str]:
    """Returns what a table has that the rows of `columns` did not have.

    Parameters
    ----------
    columns, table
        As for `numbers`.

    Returns
    -------
    list of str
        A sentence for each column with unreadable cells, unknown categories (`numbers` gives NaN for both),
        or numbers outside of the range of training; empty if there are none.

    Raises
    ------
    TypeError, ValueError
        As `numbers`.

    Examples
    --------
    >>> import hforest
    >>> columns = hforest.tabular.columns({"size": [1, 2, 3]})
    >>> hforest.tabular.differences(columns, {"size": [2, 30]})
    ["column 'size': 1 of 2 values are outside of the range of training, 1 to 3, such as '30' in row 1"]
    """
    check_columns("columns", columns)
    found: list[str] = []
    converted("table", columns, table, found)
    return found
