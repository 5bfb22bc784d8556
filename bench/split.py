"""Times of exact best splits beside scikit-learn's stump (the same search over all features of one node).

    python bench/split.py [--shapes n,F,K ...] [--threads 1] [--json FILE]

Before a shape is timed, the split is compared with the reference implementation on its first samples, and its
gain with the stump's. Figures are nanoseconds per number (one sample of one candidate), medians over repeats
taken in turn. The stump gets Fortran-ordered float32, which saves it a copy.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import machine_text, options_of, record, side_by_side, sizes_like, spread

import hforest
from hforest import split

SHAPES = ((200, 10, 3), (2000, 30, 10), (20000, 100, 10), (200000, 10, 2))


def problem(shape: tuple[int, ...]) -> tuple[Any, Any, int]:
    """Returns normal candidates, of which one depends on the label."""
    n, n_candidates, n_classes = shape
    rng = np.random.default_rng(0)
    values = rng.normal(size=(n_candidates, n)).astype(np.float32)
    y = rng.integers(0, n_classes, n, np.int32)
    values[n_candidates // 2] += y
    return values, y, n_classes


def check(values: Any, y: Any, n_classes: int, criterion: Any) -> None:
    """Compares the CPU backend with the reference, on a part of the samples."""
    part = partial(split.best_split, values[:10, :300], y[:300], n_classes=n_classes, criterion=criterion)
    got = part()
    with hforest.using("reference"):
        expected = part()
    assert got == expected, (got, expected)


def stump(values: Any, y: Any, criterion: str) -> Callable[[], Any] | None:
    """Returns scikit-learn's search over one node, or None if it is not installed."""
    try:
        from sklearn.tree import DecisionTreeClassifier
    except ImportError:
        return None
    x = values.T

    def fit() -> Any:
        return DecisionTreeClassifier(max_depth=1, criterion=criterion, random_state=0).fit(x, y)

    return fit


def same_split(found: split.Split, peer: Any) -> None:
    """Checks that the stump decreases impurity as much; of equal splits it may choose another."""
    t = peer.tree_
    weighted = t.impurity * t.weighted_n_node_samples
    np.testing.assert_allclose(found.gain, weighted[0] - weighted[1:].sum(), rtol=1e-6)


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures every shape and criterion."""
    rows: list[dict[str, Any]] = []
    hforest.set_num_threads(options.threads)
    print(f"{'n,F,K':>16} {'criterion':10} {'rung':8} {'ns/number':>10} {'spread':>7} {'peer/hforest':>13}")
    for shape in options.shapes:
        values, y, n_classes = problem(shape)
        for criterion in ("gini", "entropy"):
            check(values, y, n_classes, criterion)
            calls: dict[str, Callable[[], Any]] = {
                "hforest": partial(split.best_split, values, y, n_classes=n_classes, criterion=criterion)
            }
            peer = stump(values, y, criterion)
            if peer is not None:
                same_split(calls["hforest"](), peer())
                calls["sklearn"] = peer
            with hforest.unchecked():
                times = side_by_side(calls, options.repeats)
            for rung, taken in times.items():
                ratio = statistics.median(taken) / statistics.median(times["hforest"])
                ns = 1e9 * statistics.median(taken) / values.size
                rows.append(
                    {
                        "shape": shape, "criterion": criterion, "rung": rung, "ns_per_number": ns,
                        "spread": spread(taken), "ratio": ratio, "threads": hforest.get_num_threads(),
                    }
                )  # fmt: skip
                text = ",".join(map(str, shape))
                print(
                    f"{text:>16} {criterion:10} {rung:8} {ns:10.2f} {100 * spread(taken):6.0f}% {ratio:13.2f}"
                )
    return rows


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shapes", nargs="+", type=sizes_like("2000,30,10"), default=list(SHAPES), metavar="n,F,K"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    options = options_of(parser, "--shapes 200,10,3 --repeats 1")
    print(machine_text())
    rows = run(options)
    if options.json:
        record(options.json, rows, command=" ".join(sys.argv))
    return 0


if __name__ == "__main__":
    sys.exit(main())
