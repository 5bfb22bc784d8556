"""Good values of arguments: tables and what is learned of their columns."""

from typing import Any

import numpy as np

from hforest import tabular

from .values import Setting, options, value

options("tabular.columns.categorical", "from_dtype", ["number"], ("text",))


def _table(s: Setting, n: int) -> dict[str, np.ndarray]:
    days = np.datetime64("2024-02-28T22:30", "m") + s.random.integers(0, 9999, n)
    return {
        "number": np.where(s.random.random(n) < 0.2, np.nan, s.random.integers(0, 9, n)),
        "text": np.array(["a", "b", ""])[s.random.integers(0, 3, n)],
        "time": days,
        "flag": s.random.random(n) < 0.5,
    }


@value("tabular.table")
def _some_table(s: Setting) -> Any:
    return _table(s, s.n)


@value("tabular.columns")
def _columns(s: Setting) -> tabular.Columns:
    return tabular.columns(_table(s, 40), categorical=s.choice(("from_dtype", ["number"])))
