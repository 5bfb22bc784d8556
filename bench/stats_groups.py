"""Levels of tests on repeated measurements, with groups and without, and their power.

    python bench/stats_groups.py [--sets 500] [--json FILE]

24 subjects have four rows each and one of two classes, as many of each. Rows have three normal columns, which
correlate within subjects; classes do not depend on them, or the first column is shifted by 1 in class 1. Each
line has the share of data sets with a p-value of 0.05 or less, and its standard error.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import machine_text, options_of, record

from hforest import stats

LEVEL, SUBJECTS, ROWS, COLUMNS = 0.05, 24, 4, 3
CORRELATIONS = (0.0, 0.3, 0.9)


def data(
    correlation: float, shift: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns columns, labels, and the subject of each row."""
    subject = np.repeat(np.arange(SUBJECTS), ROWS)
    y = rng.permutation(np.arange(SUBJECTS) % 2)[subject]
    common = rng.normal(size=(SUBJECTS, COLUMNS))[subject]
    x = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * rng.normal(size=(len(subject), COLUMNS))
    x[:, 0] += shift * y
    return x, y, subject


def permutation(x: np.ndarray, y: np.ndarray, groups: Any, seed: int) -> float:
    """Returns the p-value of forests that are grown again on permuted labels."""
    settings: dict[str, Any] = {"n_trees": 50, "n_permutations": 39, "max_exceed": 5}
    return stats.permutation_test(x, y, groups=groups, rng=seed, **settings).p_value


def split(x: np.ndarray, y: np.ndarray, groups: Any, seed: int) -> float:
    """Returns the p-value of one forest."""
    return stats.split_test(x, y, n_permutations=99, groups=groups, rng=seed).p_value


def importance(x: np.ndarray, y: np.ndarray, groups: Any, seed: int) -> float:
    """Returns the p-value of the first column."""
    return float(stats.importance_test(x, y, columns=0, n_copies=99, groups=groups, rng=seed).p_value[0])


def conditional(x: np.ndarray, y: np.ndarray, groups: Any, seed: int) -> float:
    """Returns the p-value of the first column given the others."""
    settings: dict[str, Any] = {"n_bootstrap": 99, "groups": groups}
    return stats.conditional_test(x[:, 0], y, x[:, 1:], rng=seed, **settings).p_value


TESTS: dict[str, Callable[..., float]] = {
    "permutation_test": permutation, "split_test": split, "importance_test": importance,
    "conditional_test": conditional,
}  # fmt: skip


def measure(name: str, n_sets: int) -> dict[str, Any]:
    """Returns p-values of a test: of null sets without and with groups, and of shifted ones with groups."""
    row: dict[str, Any] = {"test": name, "p": {}}
    for what, shift, uses in (("none", 0.0, False), ("groups", 0.0, True), ("power", 1.0, True)):
        for correlation in CORRELATIONS:
            p = []
            for number in range(n_sets):
                rng = np.random.default_rng([number, round(100 * correlation)])
                x, y, subject = data(correlation, shift, rng)
                p.append(TESTS[name](x, y, subject if uses else None, int(rng.integers(2**40))))
            row["p"][f"{what} {correlation}"] = p
    return row


def share(p: list[float]) -> str:
    """Returns the share of small p-values and its standard error."""
    a = float((np.array(p) <= LEVEL).mean())
    return f"{a:.3f} ± {np.sqrt(a * (1 - a) / len(p)):.3f}"


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the table of the page."""
    names = {"none": "without", "groups": "`groups`", "power": "`groups`, shift 1"}
    lines = [
        f"| test | {' | '.join(f'{word}, {c}' for word in names.values() for c in CORRELATIONS)} |",
        f"|{'---|' * (1 + len(names) * len(CORRELATIONS))}",
    ]
    for row in rows:
        cells = [share(row["p"][f"{what} {c}"]) for what in names for c in CORRELATIONS]
        lines.append(f"| `{row['test']}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=500)
    parser.add_argument("--tests", nargs="+", choices=list(TESTS), default=list(TESTS))
    parser.add_argument("--json", type=Path, help="the record")
    options = options_of(parser, "--sets 1")
    print(machine_text())
    rows = []
    for name in options.tests:
        rows.append(measure(name, options.sets))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
        if options.json:
            record(options.json, rows, level=LEVEL, subjects=SUBJECTS, rows_each=ROWS, sets=options.sets)


if __name__ == "__main__":
    main()
