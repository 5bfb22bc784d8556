"""Sparse matrices: growing and applying forests beside scikit-learn's, processor seconds per tree.

    python bench/sparse.py [--shapes 20000x20000 100000x100000] [--per-row 50] [--trees 4] [--json FILE]
    python bench/sparse.py --table FILE

Columns have whole numbers 1 to 8, as frequent as words in texts: the share of rows with a number in column i
falls with i**-0.7. Labels are the sign of a random weighted sum of all columns, with noise. Two thirds of the
rows are for growing. Before anything is timed, forests on 2000 rows must be bit-identical to those on a dense
array. A time is the minimum of two, on one thread. Memory is the peak of a separate process that makes the
matrix, grows and predicts.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # read when the libraries are loaded
    for name in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{name}_NUM_THREADS"] = "1"

import numpy as np
import scipy.sparse
from common import machine_text, options_of, record
from common import sparse as on_sparse

import hforest
from hforest import grow, tree

REPEATS = 2
CHECKED = 2000

Grow = Callable[[Any, np.ndarray, int], Any]
OURS: dict[str, Grow] = {
    "random forest": lambda x, y, n_trees: grow(x, y, n_trees, rng=0),
    "extra trees": lambda x, y, n_trees: grow(x, y, n_trees, splitter="random", bootstrap=False, rng=0),
    "SPORF": lambda x, y, n_trees: on_sparse(x, y, n_trees, rng=0),
}
PEERS = {"random forest": "RandomForestClassifier", "extra trees": "ExtraTreesClassifier"}


def problem(n: int, n_features: int, per_row: int) -> tuple[Any, np.ndarray]:
    """Returns a CSR matrix of float32, and labels."""
    rng = np.random.default_rng(0)
    share = np.arange(1, n_features + 1) ** -0.7
    share = np.cumsum(share / share.sum())
    columns = np.minimum(np.searchsorted(share, rng.random(n * per_row)), n_features - 1)
    rows = np.repeat(np.arange(n), per_row)
    numbers = rng.integers(1, 9, n * per_row).astype(np.float32)
    x = scipy.sparse.csr_array((numbers, (rows, columns)), shape=(n, n_features))
    x.sum_duplicates()
    x.indices, x.indptr = (
        x.indices.astype(np.int32),
        x.indptr.astype(np.int32),
    )  # scikit-learn takes no others
    score = x @ rng.normal(size=n_features)
    return x, (score + score.std() / 3 * rng.normal(size=n) > 0).astype(np.int64)


def timed(call: Callable[[], Any], repeats: int = REPEATS) -> tuple[Any, float]:
    """Returns the result, and the minimum processor seconds."""
    least = np.inf
    for _ in range(repeats):
        begin = time.process_time()
        result = call()
        least = min(least, time.process_time() - begin)
    return result, least


def check(x: Any, y: np.ndarray, grow: Grow) -> None:
    """Checks that trees and leaves on part of the rows equal those on a dense array."""
    used = np.unique(x[:CHECKED].indices)
    part, labels = x[:CHECKED][:, used], y[:CHECKED]
    forest, dense = grow(part, labels, 2), grow(part.toarray(), labels, 2)
    for name, a, b in zip(forest._fields, forest, dense, strict=True):
        assert np.array_equal(a, b), name
    assert np.array_equal(tree.apply(forest, part), tree.apply(forest, part.toarray()))


def measure(n: int, n_features: int, per_row: int, n_trees: int, kind: str) -> dict[str, Any]:
    """Returns one row of the record: one kind of forest on one matrix."""
    x, y = problem(n, n_features, per_row)
    check(x, y, OURS[kind])
    n_fitted = 2 * n // 3
    x, x_test, y, y_test = x[:n_fitted], x[n_fitted:], y[:n_fitted], y[n_fitted:]
    forest, seconds = timed(lambda: OURS[kind](x, y, n_trees))
    p, predicting = timed(lambda: tree.predict(forest, x_test))
    row = {
        "kind": kind, "n": n, "n_features": n_features, "n_stored": int(x.nnz), "n_trees": n_trees,
        "seconds_a_tree": seconds / n_trees, "predict_seconds": predicting,
        "error": float((p.argmax(axis=1) != y_test).mean()),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip
    if kind in PEERS:
        try:
            from sklearn import ensemble
        except ImportError:
            return row
        peer = getattr(ensemble, PEERS[kind])(n_trees, random_state=0)
        _, seconds = timed(lambda: peer.fit(x, y), 1)
        _, predicting = timed(lambda: peer.predict_proba(x_test))
        error = float((peer.predict(x_test) != y_test).mean())
        row |= {"peer_seconds_a_tree": seconds / n_trees, "peer_predict_seconds": predicting}
        row |= {"peer_error": error}
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the record as a Markdown table."""
    lines = [
        "| matrix | forest | seconds per tree | scikit-learn's | predicting | scikit-learn's | error % | "
        "scikit-learn's | peak MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        peer = [row.get(f"peer_{name}") for name in ("seconds_a_tree", "predict_seconds", "error")]
        shown = ["–" if a is None else f"{a:.2f}" for a in peer[:2]]
        error = "–" if peer[2] is None else f"{100 * peer[2]:.1f}"
        cells = [
            f"{row['n']} x {row['n_features']}", row["kind"], f"{row['seconds_a_tree']:.2f}", shown[0],
            f"{row['predict_seconds']:.2f}", shown[1], f"{100 * row['error']:.1f}", error,
            f"{row['peak_mb']:.0f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Runs each kind on each matrix in a separate process."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--shapes", nargs="+", default=["20000x20000", "100000x100000"])
    parser.add_argument("--per-row", type=int, default=50)
    parser.add_argument("--trees", type=int, default=4)
    parser.add_argument("--kinds", nargs="+", choices=OURS, default=list(OURS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = options_of(parser, "--shapes 500x500 --per-row 10 --trees 1 --kinds SPORF")
    if options.table:
        print(table(json.loads(options.table.read_text())["rows"]))
        return
    hforest.set_num_threads(1)
    if options.one:
        shape, kind = options.one
        n, n_features = map(int, shape.split("x"))
        print(json.dumps(measure(n, n_features, options.per_row, options.trees, kind)))
        return
    rows = []
    for shape in options.shapes:
        for kind in options.kinds:
            command = [
                sys.executable, __file__, "--one", shape, kind, "--per-row", str(options.per_row), "--trees",
                str(options.trees),
            ]  # fmt: skip
            run = subprocess.run(command, capture_output=True, text=True, check=True)
            rows.append(json.loads(run.stdout))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    print(machine_text())
    if options.json:
        record(options.json, rows=rows, per_row=options.per_row)


if __name__ == "__main__":
    main()
