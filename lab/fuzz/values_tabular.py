"""Good values of arguments: tables and what is learned of their columns."""

from typing import Any

import numpy as np

from hforest import tabular

from .growing import folder
from .values import Setting, options, value

options("tabular.columns.categorical", "from_dtype", ["number"], ("text",))
options("tabular.null_values", None, ["a"], ("b", "-9"))
options("tabular.day_first", None, True, False)
options("tabular.fit.columns", None)
options("tabular.fit.n_boosted", 0, 3)
options("tabular.target.column", "text", "number", "flag")
options("tabular.target.task", None, "classification")
options("tabular.header", True, False)


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


@value("tabular.labels.y")
def _labels(s: Setting) -> Any:
    return s.choice((np.arange(s.n) % 3, ["a", "b"] * s.n, np.arange(2 * s.n) % 2 == 0))


@value("tabular.read.path")
def _table_file(s: Setting) -> str:
    path = f"{folder()}/table{s.random.integers(1 << 30)}.csv"
    with open(path, "w", encoding="utf-8") as file:
        file.write("a,b\n" + "".join(f"{i}.5,w{i % 3}\n" for i in range(5)))
    return path
