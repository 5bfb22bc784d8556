"""Times of applying forests, and of scikit-learn on the same trees.

    python bench/predict.py [--shapes n,F,M,D,K ...] [--threads 1 2] [--clock processor] [--json FILE]

scikit-learn, if installed, grows a forest of depth at most D (0: to purity), which is converted, so that both
libraries walk the same nodes. Without scikit-learn, hforest grows it. Before anything is timed, probabilities
are compared, and the leaves of some samples are compared with the reference implementation. onnxruntime, if
installed, walks the same trees. For two classes, xgboost and lightgbm apply their own forests, with the same
number and depth of trees, to the same samples; their leaves have one number, not several classes. Figures are
thousands of rows per second, the maximum of repeats taken in turn. The second line of a shape is the time of
a single row inside `unchecked()`.
"""

import argparse
import itertools
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import forest_peers
import numpy as np
from common import CLOCKS, add_clock, machine_text, options_of, record, side_by_side, sizes_like, spread

import hforest
from hforest import grow, tree

SHAPES = (
    (20000, 100, 100, 10, 10), (20000, 100, 100, 10, 2), (20000, 100, 100, 0, 10), (20000, 100, 100, 0, 2),
    (5000, 16, 100, 0, 26),
)  # fmt: skip


def problem(shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Returns classes around random centres, so that trees find splits."""
    n, n_features, _, _, n_classes = shape
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n, np.int32)
    centre = rng.normal(size=(n_classes, n_features))
    return (0.5 * centre[y] + rng.normal(size=(n, n_features))).astype(np.float32), y


def grown(shape: tuple[int, ...], x: Any, y: Any) -> tuple[tree.Forest, Any]:
    """Returns the forest, and scikit-learn's model of it or None."""
    _, _, n_trees, depth, n_classes = shape
    try:
        from sklearn.ensemble import RandomForestClassifier
    except ImportError:
        depth_given = depth or None
        return grow(x, y, n_trees, n_classes=n_classes, max_depth=depth_given, rng=0), None
    model = RandomForestClassifier(n_trees, max_depth=depth or None, random_state=0).fit(x, y)
    return tree.check(tree.from_sklearn(model)), model


def check(forest: tree.Forest, model: Any, x: Any) -> None:
    """Leaves against the reference, probabilities against scikit-learn."""
    few = x[:20]
    got = tree.apply(forest, few)
    with hforest.using("reference"):
        np.testing.assert_array_equal(got, tree.apply(forest, few))
    if model is not None:
        np.testing.assert_allclose(tree.predict(forest, x), model.predict_proba(x), atol=1e-6)


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures every shape, with all rows at once and with one row."""
    rows: list[dict[str, Any]] = []
    print(
        f"{'n,F,M,D,K':>22} {'threads':>7} {'rung':10} {'krows/s':>10} {'us/row':>10} {'spread':>7} "
        f"{'peer/hforest':>13}"
    )
    for shape in options.shapes:
        x, y = problem(shape)
        half = len(x) // 2
        forest, model = grown(shape, x[:half], y[:half])
        nodes = {"hforest": int(forest.feature.size)}
        booster = lighter = None
        if shape[4] == 2:
            booster = forest_peers.xgboosts(x[:half], y[:half], shape[2], shape[3])
            lighter = forest_peers.lightgbms(x[:half], y[:half], shape[2], shape[3])
        if booster is not None:
            nodes["xgboost"] = sum(tree.count("\n") for tree in booster.get_dump())
        if lighter is not None:
            leaves = (one["num_leaves"] for one in lighter.dump_model()["tree_info"])
            nodes["lightgbm"] = sum(2 * n - 1 for n in leaves)
        for threads, n in itertools.product(options.threads, (half, 1)):
            hforest.set_num_threads(threads)
            check(forest, model, x)
            part = x[half : half + n].copy()
            calls: dict[str, Callable[[], Any]] = {"hforest": partial(tree.predict, forest, part)}
            if model is not None:
                model.n_jobs = None if threads == 1 else threads
                calls["sklearn"] = partial(model.predict_proba, part)
                session = forest_peers.onnx_session(model, x.shape[1], threads)
                if session is not None:
                    np.testing.assert_allclose(session(part), model.predict_proba(part), atol=1e-5)
                    calls["onnx"] = partial(session, part)
            if booster is not None:
                booster.set_param({"nthread": threads})
                calls["xgboost"] = partial(booster.inplace_predict, part)
            if lighter is not None:
                calls["lightgbm"] = partial(lighter.predict, part, num_threads=threads)
            with hforest.unchecked():
                times = side_by_side(calls, options.repeats, CLOCKS[options.clock])
            for rung, taken in times.items():
                best = min(taken)
                rows.append(
                    {
                        "shape": shape, "rows": n, "rung": rung, "seconds_per_row": best / n,
                        "nodes": nodes.get(rung, nodes["hforest"]), "spread": spread(taken),
                        "ratio": best / min(times["hforest"]), "threads": threads,
                    }
                )  # fmt: skip
                text = ",".join(map(str, (n, *shape[1:])))
                print(
                    f"{text:>22} {threads:7d} {rung:10} {n / best / 1e3:10.2f} {1e6 * best / n:10.2f} "
                    f"{100 * spread(taken):6.0f}% {best / min(times['hforest']):13.2f}",
                    flush=True,
                )
    return rows


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shapes",
        nargs="+",
        type=sizes_like("20000,100,100,10,10", least=(1, 1, 1, 0, 2)),
        default=list(SHAPES),
        metavar="n,F,M,D,K",
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    add_clock(parser, "wall")
    options = options_of(parser, "--shapes 500,10,5,5,3 --repeats 1")
    print(machine_text())
    rows = run(options)
    if options.json:
        record(options.json, rows, command=" ".join(sys.argv))
    return 0


if __name__ == "__main__":
    sys.exit(main())
