"""Text columns as numbers, booleans, dates or times, where nearly all of their cells can be read as such.

`typed` tries the readers of READERS in turn, each with the formats that it proposes for a sample of the
cells, and takes the format that reads most cells. `cast` reads the cells of a later table by that format.
Casts are vectorised by polars; a cell that a format cannot read becomes null.
"""

import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ..core import check
from ..core.aliases import IntArray
from .library import distinct, polars
from .tables import NULL_VALUES, ColumnError, File, Values, by_spelling, missing, places_in

MAX_UNREADABLE = 0.1
"""Maximum share of cells that may be unreadable in a column of numbers, booleans, dates or times."""
SAMPLE = 300
"""Maximum number of cells for which formats are proposed."""
EXACT = 2.0**53
"""Magnitude up to which float64 holds each integer."""


class Hints(NamedTuple):
    """What the caller knows about the texts of a table."""

    null_values: tuple[str, ...] = NULL_VALUES
    day_first: bool | None = None
    """Whether 01/02/2020 is in February; None: decided by the cells of the column."""
    decimal: str = "."
    """The decimal sign of a column in which each cell can be read with "." and with ","."""


def hints_of(table: Any, null_values: Any, day_first: bool | None) -> Hints:
    """Returns what is known about the texts of a table, from arguments."""
    words: tuple[str, ...] = NULL_VALUES if null_values is None else _words(null_values)
    if day_first is not None:
        check.flag("day_first", day_first)
    return Hints(words, day_first, table.decimal if isinstance(table, File) else ".")


def _words(null_values: Any) -> tuple[str, ...]:
    remedy = "pass a list of words, or None for those of pandas and readr"
    check.instance("null_values", null_values, list | tuple, "None or a list of words", remedy)
    for word in null_values:
        check.instance("null_values", word, str, "words", remedy)
    return ("", *(word.strip() for word in null_values))


class Typed(NamedTuple):
    """A text column as it was read."""

    values: Values
    form: str
    """Reader and format, for `cast`; empty for text."""
    unreadable: np.ndarray
    """Rows of unreadable cells, which are missing in `values`."""
    faults: tuple[str, ...] = ()
    """Sentences about what may be misread."""
    notes: tuple[str, ...] = ()
    """Sentences about how cells were read."""


def series_of(values: Values) -> Any:
    """Returns a column of text as a polars Series."""
    if not isinstance(values.data, np.ndarray):
        return values.data
    pl = polars("a column of text")
    try:
        return pl.Series(values.data.tolist(), dtype=pl.String)
    except UnicodeEncodeError:
        raise ColumnError("text in UTF-8", "half of a surrogate pair", "correct the text") from None


# ------------------------------------------------------------------------------------------ readers
# A reader proposes formats for a sample of cells, and casts a column of cells by one of them: to a polars
# Series of numbers, booleans or dates, null for unreadable cells.

_CURRENCY = r"\p{Lu}{0,2}\p{Sc}|EUR|USD|GBP|CHF|JPY|CNY|INR|Rs\.?"
_DIGITS = r"(?:\d(?:[\d.,'’\s]*\d)?|[.,]\d+)(?:[eE][+-]?\d+)?"
_SUFFIX = r"(?:\s*(?P<suffix>[^\d\s()+\-.,*|][^\d()*|]*?)|[.,])?"
_PARTS = rf"^\(?[+-]?(?P<prefix>{_CURRENCY})?\s*[+-]?{_DIGITS}{_SUFFIX}\)?-?$"
_CODES = r"^[+-]?0\d+$"
"""Digits that a number would not give back."""
_MINUS = {"−": "-", "–": "-", "－": "-"}


def _number_formats(sample: Any, hints: Hints) -> Iterator[str]:
    """Yields the decimal sign and the unit before and behind the numbers: of the unit of most cells, and
    none."""
    if sample.str.contains(_CODES).any():
        return
    parts = sample.str.replace_many(_MINUS).str.extract_groups(_PARTS).drop_nulls()
    pairs = [(row["prefix"] or "", (row["suffix"] or "").strip()) for row in parts.to_list()]
    units = sorted(set(pairs), key=pairs.count)[-1:] if pairs else []
    for (prefix, suffix), decimal in product(units, ".," if hints.decimal == "." else ",."):
        yield f"{decimal}|{prefix}|{suffix}"


def _literal(text: str) -> str:
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)


def _number(texts: Any, form: str) -> Any:
    pl = polars("text")
    decimal, prefix, suffix = form.split("|")
    group = r"[,'’\s]" if decimal == "." else r"[.'’\s]"
    a = pl.col("a").str.replace_many(_MINUS)
    a = a.str.replace(r"^\((.*)\)$", "-$1").str.replace(r"^(.*\d.*)-$", "-$1")  # as accountants write them
    if prefix or suffix:
        unit = rf"^([+-]?){_literal(prefix)}\s*([+-]?[\d.,].*?)\s*{_literal(suffix)}$"
        a = pl.when(a.str.contains(unit)).then(a.str.replace(unit, "$1$2"))
    grouped = rf"^[+-]?[1-9]\d{{0,2}}(?:{group}\d{{2,3}})*{group}\d{{3}}(?:{_literal(decimal)}\d*)?$"
    a = pl.when(a.str.contains(grouped)).then(a.str.replace_all(group, "")).otherwise(a)
    if decimal == ",":
        a = pl.when(~a.str.contains(".", literal=True)).then(a.str.replace(",", ".", literal=True))
    a = pl.when(~a.str.contains("_", literal=True)).then(a).cast(pl.Float64, strict=False)
    return texts.to_frame("a").select(pl.when(a.is_finite()).then(a))["a"]


def _one_format(sample: Any, hints: Hints) -> Iterator[str]:
    yield ""


def _boolean(texts: Any, form: str) -> Any:
    pl = polars("text")
    return texts.str.to_lowercase().replace_strict(
        {"true": True, "false": False}, default=None, return_dtype=pl.Boolean
    )


DATES = (
    "%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y.%m.%d",
    "%m.%d.%Y", "%d %b %Y", "%d %B %Y", "%d. %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%d-%b-%Y",
    "%d/%b/%Y", "%Y-%m", "%d.%m.%y", "%m/%d/%y", "%d/%m/%y", "%d-%b-%y", "%d %b %y",
)  # fmt: skip
"""Formats of dates in order of preference, each alone or with a time of CLOCKS behind it."""
CLOCKS = ("", " %H:%M:%S%.f", " %H:%M", " %I:%M:%S %p", " %I:%M %p")
YEARS = (1000, 9999)


def day_first(date: str) -> bool | None:
    """Returns whether a format has the day before a month in digits; None if its order is no question."""
    numeric = "%d" in date and "%m" in date and not date.startswith("%Y")
    return date.index("%d") < date.index("%m") if numeric else None


def _date_formats(sample: Any, hints: Hints) -> Iterator[str]:
    pl = polars("text")
    a = _moments(sample).str.replace(r"[+-]\d\d:?\d\d$", "")
    dates = [date for date in DATES if hints.day_first is None or day_first(date) in (None, hints.day_first)]
    # All formats in one call, since a call of polars costs more than the cells of a sample.
    each = [
        pl.coalesce(
            pl.col("a").str.to_datetime(date + clock, strict=False, time_unit="us") for clock in CLOCKS
        )
        for date in dates
    ]
    counts = a.to_frame("a").select(t.count().alias(date) for t, date in zip(each, dates, strict=True)).row(0)
    for date, count in zip(dates, counts, strict=True):
        if 2 * count > len(sample) or date == "%Y-%m":
            yield date


def _moments(texts: Any) -> Any:
    """Returns dates and times with one spelling of zones, and of the sign before fractions of seconds."""
    a = texts.str.replace(r"(\d)T(\d)", "$1 $2").str.replace(r"\s*(?:Z|UTC|GMT)$", "+0000")
    return a.str.replace(r"(\d) ([+-]\d\d:?\d\d)$", "$1$2").str.replace(r"(:\d\d),(\d)", "$1.$2")


def _date(texts: Any, form: str) -> Any:
    pl = polars("text")
    a = _moments(texts)
    if form == "%Y-%m":
        a, form = a + "-01", "%Y-%m-%d"
    read = [a.str.to_datetime(form + clock, strict=False, time_unit="us") for clock in CLOCKS]
    if not sum(t.count() for t in read):
        zoned = [
            a.str.to_datetime(f"{form}{clock}%#z", strict=False, time_unit="us") for clock in CLOCKS[1:3]
        ]
        read = [t.dt.convert_time_zone("UTC") for t in zoned]
    t = pl.select(pl.coalesce(read)).to_series()
    return pl.select(pl.when(t.dt.year().is_between(*YEARS)).then(t)).to_series()


def _compact_formats(sample: Any, hints: Hints) -> Iterator[str]:
    if sample.n_unique() > 10 and sample.str.contains(r"^(?:19|20)\d{6}$").all():
        yield "%Y%m%d"


_CLOCK = r"^(-)?(?:(\d+) days?,? )?(\d+):([0-5]?\d)(?::([0-5]?\d(?:\.\d+)?))?( ?[AaPp]\.?[Mm]\.?)?$"


def _clock(texts: Any, form: str) -> Any:
    """Returns days: of times of day, and of durations such as 25:10."""
    pl = polars("text")
    parts = texts.str.extract_groups(_CLOCK).struct.unnest()
    sign, day, hour, minute, second, half = (pl.col(name) for name in parts.columns)
    hours = hour.cast(pl.Float64)
    hours = pl.when(half.is_null()).then(hours).otherwise(
        hours % 12 + 12 * half.str.to_lowercase().str.contains("p", literal=True)
    )  # fmt: skip
    of_day = hours / 24 + minute.cast(pl.Float64) / 1440 + second.cast(pl.Float64).fill_null(0) / 86400
    days = of_day + day.cast(pl.Float64).fill_null(0)
    return parts.select(pl.when(sign.is_null()).then(days).otherwise(-days).alias("a"))["a"]


class Reader(NamedTuple):
    """A kind of cells."""

    word: str
    pattern: str
    """What most cells contain."""
    formats: Callable[[Any, Hints], Iterator[str]]
    """Formats proposed for a sample of cells, in order of preference."""
    cast: Callable[[Any, str], Any]


READERS = {
    "compact": Reader("dates", r"\d", _compact_formats, _date),
    "number": Reader("numbers", r"\d", _number_formats, _number),
    "boolean": Reader("booleans", "", _one_format, _boolean),
    "date": Reader("dates", r"\d\D+\d", _date_formats, _date),
    "clock": Reader("times", r"\d:\d", _one_format, _clock),
}
"""Readers by name, in the order in which `typed` prefers them."""
DEFAULT_FORMS = {
    "number": "number|.||", "boolean": "boolean|", "date": "date|%Y-%m-%d", "datetime": "date|%Y-%m-%d",
    "instant": "date|%Y-%m-%d", "time": "clock|", "duration": "clock|",
}  # fmt: skip
"""Forms by which text is read as a kind whose column had no text."""


def _values(name: str, a: Any) -> Values:
    """Returns what a reader has cast."""
    absent = a.is_null().to_numpy()
    if name == "number":
        return Values("number", a.fill_null(0.0).to_numpy(), absent)
    if name == "boolean":
        return Values("boolean", a.fill_null(False).to_numpy(), absent)
    if name == "clock":
        days = a.fill_null(0.0).to_numpy()
        return Values("time" if bool(((days >= 0) & (days < 1)).all()) else "duration", days, absent)
    zoned = a.dtype.time_zone is not None
    kind = "instant" if zoned else "date" if (a.dt.truncate("1d") == a).all() else "datetime"
    return Values(kind, a.dt.replace_time_zone(None).to_numpy(), absent)


# ---------------------------------------------------------------------------------------- columns


def cells(texts: Any, null_values: tuple[str, ...]) -> Any:
    """Returns cells without spaces around them, null for words that stand for a missing value."""
    pl = polars("text")
    stripped = texts.str.strip_chars()
    column = pl.col("a")
    return stripped.to_frame("a").select(pl.when(~column.is_in(list(null_values))).then(column))["a"]


def _plain(texts: Any, hints: Hints) -> Any:
    """Returns a column as numbers if all of its cells are plain ones, which needs no other cast; else
    None."""
    pl = polars("text")
    numbers = texts.cast(pl.Float64, strict=False)
    if numbers.null_count() > texts.null_count() or hints.null_values != NULL_VALUES:
        return None
    zero = texts.filter(texts.str.starts_with("0") & ~texts.str.starts_with("0."))
    if len(zero) and zero.str.contains(_CODES).any():
        return None
    low, high = numbers.min(), numbers.max()
    odd = low is None or not -EXACT < low <= high < EXACT or (low >= 19000101 and high < 21000000)
    return None if odd else numbers


def typed(values: Values, hints: Hints) -> Typed:
    """Returns a column of text as what nearly all of its cells are, with what was unreadable."""
    # Different cells are read once. `rows`: for each row, the place of its cell among them.
    different, rows, counts = distinct(series_of(values))
    none = np.zeros(0, np.int64)
    plain = _plain(different, hints)
    if plain is not None:
        numbers = plain.to_numpy()[rows]
        odd = plain.null_count() or plain.is_nan().any()
        absent = np.isnan(numbers) if odd else np.zeros(len(numbers), bool)
        return Typed(Values("number", numbers, absent), "number|.||", none)
    clean = cells(different, hints.null_values)
    is_known = clean.is_not_null().to_numpy()
    known, of_known = clean.drop_nulls(), counts[is_known]
    n = int(of_known.sum())
    if not n:
        return Typed(missing(len(values.absent)), "", none)
    places = np.arange(len(clean))[rows] if isinstance(rows, slice) else rows
    if n < len(places):
        places = places[is_known[places]]
    sample = clean.gather(places[:: max(1, n // SAMPLE)])
    forms: dict[str, int] = {}
    text = polars("text").col("a").str
    contained = {name: text.contains(reader.pattern).sum() for name, reader in READERS.items()}
    n_contained = sample.to_frame("a").select(**contained).row(0, named=True)
    for name, reader in READERS.items():
        if 2 * n_contained[name] <= len(sample):
            continue
        for form in reader.formats(sample, hints):
            if 2 * reader.cast(sample, form).count() > len(sample):
                unread = cast_cells(known, f"{name}|{form}").is_null().to_numpy()
                forms[f"{name}|{form}"] = int(of_known[unread].sum())
        if 0 in forms.values():
            break
    best = min(forms, key=lambda form: forms[form], default="")
    if not best or forms[best] > MAX_UNREADABLE * n:
        return Typed(_text(values, different, rows, counts), "", none, _almost(best, forms, n, known))
    a = cast_cells(clean, best)
    if best.startswith("number") and _merges(clean, a):
        fault = "float64 would round these whole numbers, which are categories"
        return Typed(_text(values, different, rows, counts), "", none, (), (fault,))
    faults = _ambiguous(best, [form for form in forms if forms[form] == forms[best]], known)
    notes = () if best in DEFAULT_FORMS.values() else (_as_read(best),)
    return _read(a, clean, rows, best)._replace(faults=faults, notes=notes)


def _text(values: Values, different: Any, rows: Any, counts: np.ndarray) -> Values:
    """Returns a column of text as places in its texts, which are known if they are few."""
    if isinstance(rows, slice):
        return by_spelling(values)
    levels, places = places_in(different, rows, counts)
    return values._replace(data=places, levels=levels)


def _read(a: Any, clean: Any, rows: Any, form: str) -> Typed:
    """Returns a column whose cells `clean` a form has cast to `a`."""
    values = _values(form.partition("|")[0], a)
    unreadable = np.flatnonzero((a.is_null() & clean.is_not_null()).to_numpy()[rows])
    return Typed(values._replace(data=values.data[rows], absent=values.absent[rows]), form, unreadable)


def cast_cells(texts: Any, form: str) -> Any:
    """Returns cells read by a form, "reader|format"; null where they cannot be."""
    name, _, form = form.partition("|")
    return READERS[name].cast(texts, form)


def cast(values: Values, form: str, null_values: tuple[str, ...]) -> Typed:
    """Returns a column of text read by the form of an earlier one."""
    different, rows, _ = distinct(series_of(values))
    clean = cells(different, null_values)
    return _read(cast_cells(clean, form), clean, rows, form)


def _merges(texts: Any, numbers: Any) -> bool:
    """Returns whether different whole numbers become equal in float64."""
    if not max(abs(numbers.min()), abs(numbers.max())) >= EXACT:
        return False
    whole = texts.filter(texts.str.contains(r"^[+-]?\d+$"))
    return whole.n_unique() > numbers.filter(texts.str.contains(r"^[+-]?\d+$")).n_unique()


# -------------------------------------------------------------------------------------------- notes


def unread(form: str, rows: IntArray, raw: Values, values: Values, place: Any) -> list[str]:
    """Returns a sentence about the unreadable cells of a column of text, if there are any."""
    if not len(rows):
        return []
    n, data = int((~values.absent).sum()) + len(rows), raw.data
    some = ", ".join(f"{data[row].strip()!r:.60} in {place(row)}" for row in rows[:3].tolist())
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    word = READERS[form.partition("|")[0]].word
    return [
        f"{n - len(rows)} of {n} values read as {word}; {some}{more} cannot be read as {word} and are missing"
    ]


def _as_read(form: str) -> str:
    name, *parts = form.split("|")
    if name != "number":
        return f"{READERS[name].word} in the format {parts[0]}"
    decimal, *units = parts
    unit = " ".join(repr(unit) for unit in units if unit)
    return f"numbers with the decimal sign {decimal!r}" + (f" and the unit {unit}" if unit else "")


def _almost(best: str, forms: dict[str, int], n: int, known: Any) -> tuple[str, ...]:
    if not best or 2 * forms[best] > n:
        units = known.filter(known.str.contains(_PARTS)).unique(maintain_order=True)
        if len(units) <= max(20, n / 2):
            return ()
        return (
            f"looks like numbers with different units, such as {units[0]!r} and {units[1]!r}; a column "
            "has one",
        )
    odd = known.filter(cast_cells(known, best).is_null())[0]
    word = READERS[best.partition("|")[0]].word
    return (
        f"looks like {word}, but {forms[best]} of {n} values cannot be read as such, for example {odd!r}; "
        "the values are categories",
    )


def _ambiguous(best: str, equal: list[str], known: Any) -> tuple[str, ...]:
    """Returns a note if another format reads as many cells, and reads them otherwise."""
    a = cast_cells(known, best)
    for form in equal:
        other = cast_cells(known, form) if form.partition("|")[0] == best.partition("|")[0] else a
        if other.dtype == a.dtype and (other != a).any():
            return (
                f"each value can also be read as in {form.partition('|')[2]!r}; pass day_first if it should",
            )
    return ()
