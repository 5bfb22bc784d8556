"""`Columns`: kinds and categories of the columns of a table, and the features that are made of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..core import check, notebooks
from ..core.aliases import FloatArray, IntArray
from ..core.supervised import MAX_CATEGORY
from .tables import DAY, LEVELS, MISSING, NUMBERS, TIMES, WORDS, shown

MAX_LEVELS = MAX_CATEGORY + 1
"""Maximum number of categories of a column."""
KINDS = (*NUMBERS, *TIMES, *LEVELS, MISSING)

_EPOCH = np.datetime64(0, "us")
MAX_DAYS = 2.0**26
"""Maximum distance of dates from 1970 in days; datetime64[us] can hold such dates."""
_HOUR, _MINUTE = 3_600_000_000, 60_000_000


def _whole(times: np.ndarray, unit: str) -> IntArray:
    return times.astype(f"datetime64[{unit}]").astype(np.int64)


PARTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "days": lambda t: (t - _EPOCH) / DAY,
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
    """(n_columns,) text, as are all arrays of StringDType."""
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
    """(n_levels,) text: categories of a column in the order of their numbers."""
    source: IntArray
    """(n_features,) int64: the column of each feature, ascending."""
    parts: np.ndarray
    """(n_features,) str: the part of its column in a feature: "value", "level" (the number of a category),
    "rank" (of an ordered one), "days", "year", "month", "day", "weekday", "hour" or "minute"."""
    forms: np.ndarray
    """(n_columns,) text: how cells of text were read as other values, such as "date|%d.%m.%Y"; else empty."""
    notes: np.ndarray
    """(n_columns,) text: sentences about the column, for `describe`."""
    null_values: np.ndarray
    """(n_words,) text: words that stand for a missing value."""

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

    @notebooks.shown_by
    def _repr_html_(self) -> notebooks.Rows:
        used = np.bincount(self.source, minlength=len(self.names))
        rows: list[tuple[object, ...]] = [("kind", "columns", "features")]
        for kind in dict.fromkeys(self.kinds.tolist()):
            of_kind = self.kinds == kind
            names = notebooks.counted(self.names[of_kind])
            rows.append((WORDS.get(kind, kind), names, used[of_kind].sum()))
        return [*rows, ("all", len(self.names), len(self.source))]


# ------------------------------------------------------------------------------------------ checks


def check_columns(name: str, columns: Any) -> int:
    """Returns the number of features of a `Columns`, after checking that it is valid."""
    remedy = "pass the result of columns"
    check.instance(name, columns, Columns, "a Columns", remedy)
    check.on_cpu(**{f"{name}.{field}": a for field, a in columns._asdict().items()})
    sizes: check.Sizes = {}
    texts = {
        "names": "n_columns", "kinds": "n_columns", "levels": "n_levels", "parts": "n_features",
        "forms": "n_columns", "notes": "n_columns", "null_values": "n_words",
    }  # fmt: skip
    for field, axis in texts.items():
        a = getattr(columns, field)
        check.instance(f"{name}.{field}", a, np.ndarray, "a numpy.ndarray", remedy)
        check.require(
            a.dtype.kind in "UT" and a.ndim == 1 and sizes.setdefault(axis, len(a)) == len(a),
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
