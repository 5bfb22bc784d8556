"""Times of the parts of tests with forests: many honest trees on few rows and many columns.

    python bench/stats_speed.py --threads 1 2 --json bench/results/stats_speed.json

Rows have normal columns, and one of two classes. A line is measured on at most a tenth of the trees, and its
seconds of wall time are scaled up. Before it is timed, the same call on fewer trees must be bit-identical to
that on one thread.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import machine_text, options_of, projected, record, sparse

from hforest import growth, project, set_num_threads, stats
from hforest.tree import Forest

Grow = Callable[[int], Any]
Line = tuple[str, float, int, int, Callable[[], Grow]]
"""Name, limit of seconds on two threads, all trees, measured trees, and what makes the call."""


def grower(n: int, d: int, grow: Callable[..., Forest], **settings: Any) -> Grow:
    """Returns a function that grows some honest trees on encoded samples."""
    x = np.random.default_rng([n, d]).normal(size=(n, d)).astype(np.float32)
    y = np.arange(n) % 2
    samples = growth.samples(x)

    def grown(n_trees: int) -> Forest:
        structure = stats.honest_counts(y, n_trees, rng=0).structure
        return grow(samples, y, n_trees, bootstrap=structure, rng=0, **settings)

    grown(1)  # makes the encoding
    return grown


def forests(n: int, d: int) -> Grow:
    """Returns a function that grows forests of 100 trees, as permutation tests do."""
    grown = grower(n, d, growth.grow)
    return lambda n_trees: [grown(100) for _ in range(n_trees // 100)]


def lines() -> list[Line]:
    """Returns all lines: rows x columns, and candidates per node."""
    few, many = (1000, 2500), (128, 131072)
    return [
        ("1000 x 2500, 50 candidates", 7, 6000, 600, partial(grower, *few, growth.grow, max_features=50)),
        ("1000 x 2500, 750 candidates", 40, 6000, 100, partial(grower, *few, growth.grow, max_features=750)),
        ("1000 x 2500, 200 forests of 100 trees", 20, 20000, 1000, partial(forests, *few)),
        (
            "128 x 131072, 363 sparse projections", 6, 6000, 600,
            partial(grower, *many, sparse, n_projections=363),
        ),
        (
            "128 x 131072, 3932 sparse projections of three columns", 60, 6000, 60,
            partial(
                grower, *many, projected(project.sparse_distribution, density=3.0), n_projections=3932
            ),
        ),
        (
            "128 x 131072, .3 of all columns", 120, 6000, 20,
            partial(grower, *many, growth.grow, max_features=0.3),
        ),
    ]  # fmt: skip


def same(a: Any, b: Any) -> bool:
    """Returns whether results are bit-identical."""
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(same(*pair) for pair in zip(a, b, strict=True))
    return bool(np.array_equal(a, b))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", default="", metavar="TEXT", help="lines that begin with it")
    parser.add_argument("--json", type=Path)
    options = options_of(parser, "--only '1000 x 2500, 50 ' --threads 1")
    print(machine_text())
    print(f"| what | goal, 2 threads | {' | '.join(f'{n} threads' for n in options.threads)} |")
    print(f"|---|---|{'---|' * len(options.threads)}")
    rows = []
    for name, goal, n_trees, n_measured, make in lines():
        if not name.startswith(options.only):
            continue
        set_num_threads(1)
        call = make()
        expected = call(100)
        row: dict[str, Any] = {"what": name, "goal": goal}
        for n_threads in options.threads:
            set_num_threads(n_threads)
            if not same(call(100), expected):
                raise SystemExit(f"{name}: {n_threads} threads have other bits than one")
            begin = time.perf_counter()
            call(n_measured)
            row[str(n_threads)] = (time.perf_counter() - begin) * n_trees / n_measured
        rows.append(row)
        print(
            f"| {name} | {goal} | {' | '.join(f'{row[str(n)]:.1f}' for n in options.threads)} |", flush=True
        )
    if options.json:
        record(options.json, rows)


if __name__ == "__main__":
    main()
