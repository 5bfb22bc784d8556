"""The boosting loop of docs/boosting.md beside LightGBM, XGBoost and scikit-learn: losses, processor seconds.

    python bench/boosting.py --data DIR [DIR ...] [--tables houses magic] [--rows 30000] [--json FILE]
    python bench/boosting.py --table FILE

A fit has 100 rounds of trees of depth 6, a learning rate of 0.1, at most 255 bins per column, all columns and
two thirds of the rows, on one thread. A leaf has at least 20 rows, in XGBoost a weight h of 1 if there are
classes. There are no penalties. Losses on the other rows are compared before anything is timed: that of a
library may differ from that of the loop by 3 standard errors of the difference, or by 2 percent. A time is
that of a whole fit with its bins, the minimum of the repeats, in which libraries take turns. Libraries that
are not installed are left out.
"""

import argparse
import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # read when the libraries are loaded
    for name in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{name}_NUM_THREADS"] = "1"

import numpy as np
from common import machine_text, options_of, record
from tabular_data import Data, find, load

import hforest
from hforest import tree

TABLES = ("houses", "fried", "magic", "coil2000")
"""Two regressions, and two tables of two classes: libraries scale the h of more classes in different ways."""
PAGE = Path(__file__).parents[1] / "docs" / "boosting.md"
ROUNDS, LR, DEPTH, MIN_LEAF, BINS = 100, 0.1, 6, 20, 255

Fit = Callable[[Data], Any]
Scores = Callable[[Any, np.ndarray], np.ndarray]


def page() -> dict[str, Any]:
    """Returns the functions of the page: the code blocks that define them."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)[:2]:
        exec(block, names)
    return names


OF_PAGE = page()


def fit_hforest(data: Data) -> Any:
    share, n_losses = data.y.mean(), count()
    name, start = ("squared", share) if data.n_classes is None else ("logistic", np.log(share / (1 - share)))

    def falling(f: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        # The loop keeps the rounds up to the lowest loss of the validation part, which is one row here.
        _, g, h = OF_PAGE[name](f, y)
        return -next(n_losses), g, h

    return OF_PAGE["boost"](
        data.x, data.y, data.x[:1], data.y[:1], falling, [start], n_rounds=ROUNDS, lr=LR, share=1.0,
        max_depth=DEPTH, min_samples_leaf=MIN_LEAF,
    )  # fmt: skip


def fit_lightgbm(data: Data) -> Any:
    import lightgbm

    settings = {
        "objective": "regression" if data.n_classes is None else "binary", "learning_rate": LR,
        "max_depth": DEPTH, "num_leaves": 2**DEPTH, "max_bin": BINS, "min_data_in_leaf": MIN_LEAF,
        "num_threads": 1, "verbose": -1, "seed": 0,
    }  # fmt: skip
    return lightgbm.train(settings, lightgbm.Dataset(data.x, data.y), ROUNDS)


def fit_xgboost(data: Data) -> Any:
    import xgboost

    settings = {
        "objective": "reg:squarederror" if data.n_classes is None else "binary:logistic", "eta": LR,
        "min_child_weight": MIN_LEAF if data.n_classes is None else 1, "max_depth": DEPTH, "max_bin": BINS,
        "lambda": 0, "tree_method": "hist", "nthread": 1,
    }  # fmt: skip
    matrix = xgboost.QuantileDMatrix(data.x, data.y, max_bin=BINS, nthread=1)
    return xgboost.train(settings, matrix, ROUNDS)


def fit_sklearn(data: Data) -> Any:
    from sklearn import ensemble

    kind = "Regressor" if data.n_classes is None else "Classifier"
    model = getattr(ensemble, f"HistGradientBoosting{kind}")(
        learning_rate=LR, max_iter=ROUNDS, max_depth=DEPTH, max_leaf_nodes=None, min_samples_leaf=MIN_LEAF,
        max_bins=BINS, early_stopping=False, random_state=0,
    )  # fmt: skip
    return model.fit(data.x, data.y)


def scores_of_xgboost(model: Any, x: np.ndarray) -> np.ndarray:
    import xgboost

    return np.asarray(model.predict(xgboost.DMatrix(x), output_margin=True))


def scores_of_sklearn(model: Any, x: np.ndarray) -> np.ndarray:
    return np.asarray(model.decision_function(x) if hasattr(model, "decision_function") else model.predict(x))


LIBRARIES: dict[str, tuple[str, Fit, Scores]] = {
    "hforest": ("hforest", fit_hforest, lambda forest, x: tree.predict(forest, x)),
    "LightGBM": ("lightgbm", fit_lightgbm, lambda model, x: np.asarray(model.predict(x, raw_score=True))),
    "XGBoost": ("xgboost", fit_xgboost, scores_of_xgboost),
    "scikit-learn": ("sklearn", fit_sklearn, scores_of_sklearn),
}
"""Module, fit and scores of each library."""


def losses(scores: np.ndarray, y: np.ndarray, n_classes: int | None) -> np.ndarray:
    """Returns the squared error, or the log loss, of each row."""
    scores = scores.ravel().astype(np.float64)
    return np.asarray((scores - y) ** 2 if n_classes is None else np.logaddexp(0, scores) - y * scores)


def measure(path: Path, rows: int, repeats: int) -> list[dict[str, Any]]:
    """Returns a row of the record for each library on one table."""
    data, x_test, y_test = load(path, rows, 0, False, "raw")
    present = {n: parts for n, parts in LIBRARIES.items() if importlib.util.find_spec(parts[0])}
    of_row = {
        n: losses(scores(fit(data), x_test), y_test, data.n_classes)
        for n, (_, fit, scores) in present.items()
    }
    for name, loss in of_row.items():
        difference = loss - of_row["hforest"]
        noise = difference.std() / np.sqrt(len(difference))
        if abs(difference.mean()) > max(3 * noise, 0.02 * loss.mean()):
            raise SystemExit(
                f"{path.stem}: {name} has a loss of {loss.mean()}, hforest {of_row['hforest'].mean()}"
            )
    seconds = dict.fromkeys(present, np.inf)
    for _ in range(repeats):
        for name, (_, fit, _) in present.items():
            begin = time.process_time()
            fit(data)
            seconds[name] = min(seconds[name], time.process_time() - begin)
    return [
        {
            "table": path.stem, "n": len(data.x), "n_features": data.x.shape[1], "n_classes": data.n_classes,
            "library": name, "loss": float(of_row[name].mean()), "seconds": seconds[name],
        }
        for name in present
    ]  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """Returns milliseconds per round as a Markdown table; of other libraries also their loss / the loop's."""
    of_table: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        of_table.setdefault(row["table"], {})[row["library"]] = row
    lines = [
        f"| table | rows, columns | classes | {' | '.join(LIBRARIES)} |",
        "|---" * (3 + len(LIBRARIES)) + "|",
    ]
    for name, by in of_table.items():
        own, cells = by["hforest"], []
        for library in LIBRARIES:
            cell = f"{1000 * by[library]['seconds'] / ROUNDS:.1f}" if library in by else "–"
            if library in by and library != "hforest":
                cell += f" ({by[library]['loss'] / own['loss']:.3f})"
            cells.append(cell)
        what = f"{name} | {own['n']}, {own['n_features']} | {own['n_classes'] or '–'}"
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--data", type=Path, nargs="+")
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--rows", type=int, default=30000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path)
    options = options_of(parser, "--data {data} --tables magic houses --repeats 1", "magic", "houses")
    if options.table:
        print(table(json.loads(options.table.read_text())["rows"]))
        return
    if not options.data:
        parser.error("--data: expected folders of npz files")
    hforest.set_num_threads(1)
    print(machine_text())
    for name, (module, _, _) in LIBRARIES.items():
        if not importlib.util.find_spec(module):
            print(f"{name} is left out: no module {module}", file=sys.stderr)
    rows: list[dict[str, Any]] = []
    for name in options.tables:
        rows += measure(find(options.data, name), options.rows, options.repeats)
        print(name, file=sys.stderr)
    print(table(rows))
    if options.json:
        record(options.json, rows=rows)


if __name__ == "__main__":
    main()
