"""Times of predicting one row: forest, prepared forest, forest that is checked, and other libraries.

    python bench/one_row.py [--models letter ...] [--data FILE] [--repeats 15] [--json FILE]

    letter       100 trees of `grow` to purity; --data has x and y, else 20,000 rows of letter's shape
    lightgbm     500 trees of 31 leaves, a regression of 28 features
    xgboost      500 trees of depth 6, the same regression
    hinge        100 hinge trees of depth 6 and 10, and 1000 of depth 10, of 100 features, ten summed outputs

The rungs:

    forest       tree.predict(forest, x), hinge.forward(x, *forest)
    by hand      tree.predict(tree.Forest(*forest), x), which checks the forest at each call
    prepared     tree.predict(tree.prepare(forest), x), hinge.forward(x, hinge.prepare(*forest))
    unchecked    hinge.forward inside of hforest.unchecked()
    estimator    RandomForestClassifier.predict_proba of hforest.sklearn, of letter
    others       if they are installed: onnxruntime and treelite's GTIL on the same trees (of boosted trees
                 only treelite), scikit-learn and scikit-learn-intelex on their own, equally large trees,
                 the library that boosted the trees, daal4py on its trees

treelite converts boosted models; LightGBM's is walked in float64. Results are compared first. A time is that
of 200 calls (20 slow calls) on 1000 different rows in turn, divided by the number of calls, on one thread;
of hinge forests processor time.
Figures are the median and the minimum of repeats taken in turn.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from common import machine_text, need, options_of, record, side_by_side, spread
from exchange import daal_call, samples

import hforest
from hforest import grow, hinge, tree

MODELS = ("letter", "lightgbm", "xgboost", "hinge")
HINGE = ((100, 6), (100, 10), (1000, 10))
"""Numbers of trees, and depths."""
N_TRAIN, N_ROWS, N_TREES, N_BOOSTED = 16000, 1000, 100, 500
SLOW = ("by hand", "estimator", "sklearn", "intelex", "lightgbm", "xgboost", "gtil")
Call = Callable[[Any], Any]


def letters(path: str) -> tuple[Any, Any]:
    """Samples and labels."""
    if path:
        with np.load(path) as data:
            return data["x"].astype(np.float32), data["y"].astype(np.int32)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 26, 20000, np.int32)
    centre = rng.normal(size=(26, 16))
    return np.round(3 * (centre[y] + rng.normal(size=(20000, 16)))).astype(np.float32), y


def ours(forest: tree.Forest) -> dict[str, Call]:
    """Returns the rungs of a forest in hforest."""
    forests: dict[str, Any] = {
        "forest": forest,
        "by hand": tree.Forest(*forest),
        "prepared": tree.prepare(forest),
    }
    return {name: partial(tree.predict, of) for name, of in forests.items()}


def same_trees(forest: tree.Forest) -> dict[str, Call]:
    """Returns the rungs of other libraries that walk the trees of a forest of classes."""
    calls: dict[str, Call] = {}
    try:
        import onnxruntime

        from hforest.onnx import to_onnx

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
        text = to_onnx(forest).SerializeToString()
        session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
        calls["onnx"] = lambda x: session.run(None, {"x": x})[0]
    except ImportError:
        pass
    try:
        import treelite

        from hforest.treelite import to_treelite

        model = to_treelite(forest)
        calls["gtil"] = lambda x: treelite.gtil.predict(model, x, nthread=1)[:, 0]
    except ImportError:
        pass
    return calls


def other_trees(x: Any, y: Any) -> dict[str, Call]:
    """Returns the rungs of forests that other libraries grow, and of hforest's estimator."""
    calls: dict[str, Call] = {}
    try:
        from sklearn.ensemble import RandomForestClassifier

        from hforest.sklearn import RandomForestClassifier as Ours
    except ImportError:
        return calls
    calls["estimator"] = Ours(N_TREES, n_jobs=1, random_state=0).fit(x, y).predict_proba
    calls["sklearn"] = RandomForestClassifier(N_TREES, n_jobs=1, random_state=0).fit(x, y).predict_proba
    try:
        from sklearnex.ensemble import RandomForestClassifier as Intel
    except ImportError:
        return calls
    calls["intelex"] = Intel(N_TREES, n_jobs=1, random_state=0).fit(x, y).predict_proba
    return calls


def of_letter(options: argparse.Namespace) -> tuple[dict[str, Call], Any, int]:
    """Calls, rows, and the number of nodes."""
    x, y = letters(options.data)
    forest = grow(x[:N_TRAIN], y[:N_TRAIN], N_TREES, rng=0)
    calls, rows = ours(forest) | same_trees(forest), x[N_TRAIN : N_TRAIN + N_ROWS]
    want = tree.predict(forest, rows)
    for name, call in calls.items():
        np.testing.assert_allclose(np.reshape(call(rows), want.shape), want, atol=1e-5, err_msg=name)
    return calls | other_trees(x[:N_TRAIN], y[:N_TRAIN]), rows, len(forest.feature)


def of_boosted(name: str) -> tuple[dict[str, Call], Any, int]:
    """Returns the same for boosted trees."""
    import treelite

    from hforest import treelite as exchange

    x, y = samples(20000, 0.0, 0)
    rows = samples(N_ROWS, 0.0, 1)[0]
    right: Call
    if name == "lightgbm":
        import lightgbm

        settings = {"num_leaves": 31, "objective": "regression", "verbose": -1, "seed": 0, "num_threads": 1}
        booster: Any = lightgbm.train(settings, lightgbm.Dataset(x, y), N_BOOSTED)
        model = treelite.frontend.from_lightgbm(booster)
        right = partial(booster.predict, raw_score=True, num_threads=1)
    else:
        import xgboost

        boosting = {"max_depth": 6, "nthread": 1, "seed": 0, "tree_method": "hist", "eta": 0.1}
        booster = xgboost.train(boosting, xgboost.DMatrix(x, y), N_BOOSTED)
        model = treelite.frontend.from_xgboost(booster)
        right = partial(booster.inplace_predict, predict_type="margin")
    ensemble = exchange.from_treelite(model)
    forest = ensemble.forest
    assert isinstance(forest, tree.Forest)
    calls = ours(forest)
    ready = ensemble._replace(forest=tree.prepare(forest))
    calls["margin"] = partial(exchange.predict_margin, ready)
    np.testing.assert_allclose(calls["margin"](rows)[:, 0], right(rows), rtol=2e-5, atol=2e-5)
    assert calls["prepared"](rows).tobytes() == calls["forest"](rows).tobytes()
    dtype = np.dtype(model.input_type)
    calls["gtil"] = lambda x: treelite.gtil.predict(model, x.astype(dtype, copy=False), nthread=1)
    calls[name] = right
    daal = daal_call(booster, right, rows)
    return calls | ({"daal4py": daal} if daal else {}), rows, len(forest.feature)


def _hinge_forward(forest: Any, x: Any) -> Any:
    return hinge.forward(x, *forest, aggregate="sum")


def _unchecked(call: Call, x: Any) -> Any:
    with hforest.unchecked():
        return call(x)


def of_hinge(n_trees: int, depth: int) -> tuple[dict[str, Call], Any, int]:
    """Calls, rows, and the number of vertices of a hinge forest."""
    parameters = hinge.init(n_trees, depth, 100, 10, rng=0)
    rows = np.random.default_rng(0).standard_normal((N_ROWS, 100), np.float32)
    calls: dict[str, Call] = {
        "prepared": partial(_hinge_forward, (hinge.prepare(*parameters),)),
        "forest": partial(_hinge_forward, parameters),
    }
    calls["unchecked"] = partial(_unchecked, calls["forest"])
    for name, call in calls.items():
        assert call(rows).tobytes() == calls["prepared"](rows).tobytes(), name
    return calls, rows, parameters.thresholds.size


def in_turn(call: Call, rows: list[Any], n: int) -> Callable[[], None]:
    """Returns a function that makes n calls on rows in turn."""
    turns = itertools.cycle(rows)

    def run() -> None:
        for _ in range(n):
            call(next(turns))

    return run


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures every model."""
    measured: list[dict[str, Any]] = []
    hforest.set_num_threads(1)
    print(f"{'model':>10} {'nodes':>8} {'rung':10} {'us median':>10} {'least':>8} {'/prepared':>10}")
    made: dict[str, Callable[[], tuple[dict[str, Call], Any, int]]] = {}
    for name in options.models:
        if name == "hinge":
            made |= {f"{m}x{depth}": partial(of_hinge, m, depth) for m, depth in HINGE}
        else:
            made[name] = partial(of_letter, options) if name == "letter" else partial(of_boosted, name)
    for name, make in made.items():
        calls, x, n_nodes = make()
        clock = time.perf_counter if name in MODELS else time.process_time
        rows = [x[i : i + 1].copy() for i in range(len(x))]
        often = {rung: 20 if rung in SLOW else 200 for rung in calls}
        times = side_by_side(
            {rung: in_turn(call, rows, often[rung]) for rung, call in calls.items()}, options.repeats, clock
        )
        each = {rung: [one / often[rung] for one in taken] for rung, taken in times.items()}
        for rung, taken in each.items():
            ratio = median(taken) / median(each["prepared"])
            measured.append(
                {
                    "model": name, "nodes": n_nodes, "rung": rung, "seconds": median(taken),
                    "least": min(taken), "spread": spread(taken), "ratio": ratio,
                }
            )  # fmt: skip
            print(
                f"{name:>10} {n_nodes:8d} {rung:10} {1e6 * median(taken):10.2f} {1e6 * min(taken):8.2f} "
                f"{ratio:10.2f}",
                flush=True,
            )
    return measured


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--data", metavar="FILE", default="")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", metavar="FILE")
    options = options_of(parser, "--models hinge --repeats 1")
    if not set(options.models) <= {"letter", "hinge"}:
        need("-e '.[bench,treelite]' xgboost lightgbm", "treelite", "xgboost", "lightgbm")
    print(machine_text())
    measured = run(options)
    if options.json:
        record(options.json, measured, command=" ".join(sys.argv))
    return 0


if __name__ == "__main__":
    sys.exit(main())
