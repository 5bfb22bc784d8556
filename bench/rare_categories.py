"""Errors of forests on tables with a column of random categories added.

    python bench/rare_categories.py --data DIR [--tables computers gapminder] [--levels 0 300 1700]

DIR has CSV files of mixed columns (`TARGETS`). Needs pandas.
"""

import argparse
from pathlib import Path
from typing import Literal

import numpy as np
from common import need, options_of

import hforest

TARGETS = {
    "computers": "price", "psid7682": "wage", "gapminder": "life_expectancy", "mplsstops": "problem",
    "wage": "wage", "ofp": "ofp", "medexp": "med", "deliveries": "time_to_delivery",
    "check_times": "check_time", "benefits": "ui", "oj": "Purchase", "nasscds": "dead",
}  # fmt: skip
CLASSES = ("benefits", "mplsstops", "oj", "nasscds")


def load(path: Path) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Returns the columns of a file as numbers, its labels or targets, and which columns are categories."""
    import pandas

    frame = pandas.read_csv(path)
    name = path.name.split(".")[0]
    y = frame.pop(TARGETS[name])
    y = pandas.factorize(y)[0] if name in CLASSES else y.to_numpy(float)
    x, categories = np.empty(frame.shape), []
    for j, column in enumerate(frame):
        if pandas.api.types.is_numeric_dtype(frame[column]) and frame[column].dtype != bool:
            x[:, j] = frame[column]
            continue
        codes = pandas.factorize(frame[column])[0]
        x[:, j] = np.where(codes < 0, np.nan, codes)
        categories.append(j)
    return x, y, categories


def error(x: np.ndarray, y: np.ndarray, categories: list[int], is_regression: bool, seed: int) -> float:
    """Returns the share of wrong labels of held-out rows, or 1 - R2."""
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = np.split(order, [2 * len(y) // 3])
    task: Literal["regression", "classification"] = "regression" if is_regression else "classification"
    forest = hforest.grow(
        hforest.samples(x[train], categorical=categories), y[train], 100, task=task, rng=seed
    )
    found = hforest.tree.predict(forest, x[test])
    if is_regression:
        return float(((found[:, 0] - y[test]) ** 2).mean() / y[test].var())
    return float((found.argmax(axis=1) != y[test]).mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tables", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--levels", nargs="+", type=int, default=[0, 300, 1700], help="0: no column is added")
    options = options_of(parser, "--data {data} --tables oj", "oj.csv.gz")
    need("pandas", "pandas")
    print("errors in percent with a column of", *options.levels, "random categories")
    for name in options.tables:
        x, y, categories = load(options.data / f"{name}.csv.gz")
        errors = []
        for n in options.levels:
            each = []
            for seed in range(2):
                noise = np.random.default_rng(seed + 100).integers(0, max(n, 1), (len(y), min(n, 1)))
                given = np.column_stack([x, noise]) if n else x
                more = [*categories, x.shape[1]] if n else categories
                each.append(error(given, y, more, name not in CLASSES, seed))
            errors.append(f"{100 * np.mean(each):.2f}")
        print(f"{name:12}", *errors, flush=True)


if __name__ == "__main__":
    main()
