"""Times of boosted trees of XGBoost and LightGBM, applied by hforest and by other libraries.

    python bench/exchange.py [--models xgboost ...] [--rows 1 100000] [--missing 0 0.1] [--json FILE]

    xgboost      500 trees of depth 6, a regression
    lightgbm     1000 trees of 64 leaves, a regression
    multiclass   50 rounds of XGBoost for 7 classes, depth 6

The models are trained on generated samples of 28 float32 features, of which the share --missing is NaN, and
converted by treelite and `hforest.treelite.from_treelite`. Before anything is timed, margins of every library
are compared with those of the library that trained the model. The rungs:

    hforest          in the dtype of the model (float64 of LightGBM)
    hforest prepared the forest of the model prepared (bench/one_row.py times single rows)
    hforest float32  of LightGBM: thresholds rounded down to float32, which changes no leaf here
    xgboost, lightgbm, gtil (of treelite), daal4py (oneDAL), where installed
    lleaves          LightGBM's trees as machine code, with --lleaves FILE. The compilation takes minutes,
                     so FILE keeps the code, for one share of missing values

Single rows are 1000 different rows in turn, because the processor would predict all branches of a repeated
row. gtil is timed on at most 10,000 rows, and its time is multiplied. The default is one thread. A figure is
the time of one call, the median of repeats taken in turn. hforest runs inside `unchecked()`, because checks
of all nodes are for forests of unknown origin. With --json, results are written after each number of rows.
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import machine_text, need, options_of, record, side_by_side, spread

import hforest

N_FEATURES, N_TRAIN, N_CLASSES = 28, 20000, 7
N_SINGLE, MOST_GTIL = 1000, 10000
MODELS = ("xgboost", "lightgbm", "multiclass")
Call = Callable[[Any], Any]


def samples(n: int, missing: float, seed: int) -> tuple[Any, Any]:
    """Returns features, and targets that depend on ten of them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, N_FEATURES)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + np.abs(x[:, 3:10]).sum(axis=1) + rng.normal(0, 0.1, n)
    x[rng.random(x.shape) < missing] = np.nan
    return x, y.astype(np.float32)


def trained(name: str, missing: float) -> tuple[Any, Any]:
    """Returns the model of the library that trains it, and that of treelite."""
    import treelite

    x, y = samples(N_TRAIN, missing, 0)
    if name == "lightgbm":
        import lightgbm

        settings = {"num_leaves": 64, "objective": "regression", "verbose": -1, "seed": 0, "num_threads": 1}
        booster: Any = lightgbm.train(settings, lightgbm.Dataset(x, y), 1000)
        return booster, treelite.frontend.from_lightgbm(booster)
    import xgboost

    common = {"max_depth": 6, "nthread": 1, "seed": 0, "tree_method": "hist"}
    if name == "xgboost":
        settings, rounds = {**common, "objective": "reg:squarederror", "eta": 0.1}, 500
    else:
        settings, rounds = {**common, "objective": "multi:softprob", "num_class": N_CLASSES}, 50
        y = np.searchsorted(np.quantile(y, np.arange(1, N_CLASSES) / N_CLASSES), y)
    booster = xgboost.train(settings, xgboost.DMatrix(x, y), rounds)
    return booster, treelite.frontend.from_xgboost(booster)


def lleaves_call(booster: Any, threads: int, compiled: str) -> Call | None:
    """Returns LightGBM's model compiled by lleaves, if installed; reads it from a file, or writes it."""
    try:
        import lleaves
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.txt"
        booster.save_model(path)
        model = lleaves.Model(model_file=str(path))
        model.compile(cache=compiled)
    return partial(model.predict, n_jobs=threads)


def daal_call(booster: Any, margin: Callable[[Any], Any], x: Any) -> Call | None:
    """Returns the model of oneDAL, if it is installed and its predictions are equal."""
    try:
        from daal4py import mb
    except ImportError:
        return None
    model = mb.convert_model(booster)
    try:
        np.testing.assert_allclose(np.squeeze(model.predict(x)), margin(x), rtol=1e-4, atol=1e-4)
    except (AssertionError, ValueError, RuntimeError) as error:
        print(f"daal4py is left out: {str(error).strip().splitlines()[0]}")
        return None
    return model.predict


def calls_of(
    name: str, booster: Any, model: Any, options: argparse.Namespace, few: Any
) -> tuple[Call, dict[str, Call]]:
    """Returns the function whose margins are right, and the functions of all libraries that return them."""
    import treelite

    from hforest import treelite as exchange

    threads = options.threads
    ensemble = exchange.from_treelite(model)
    prepared = ensemble._replace(forest=hforest.tree.prepare(ensemble.forest))
    calls: dict[str, Call] = {
        "hforest": partial(exchange.predict_margin, ensemble),
        "hforest prepared": partial(exchange.predict_margin, prepared),
    }
    right: Call
    if name == "lightgbm":
        single = exchange.from_treelite(model, dtype=np.float32)
        calls["hforest float32"] = partial(exchange.predict_margin, single)
        right = partial(booster.predict, raw_score=True, num_threads=threads)
        compiled = lleaves_call(booster, threads, options.lleaves) if options.lleaves else None
        if compiled is not None:
            calls["lleaves"] = compiled
    else:
        booster.set_param({"nthread": threads})
        right = partial(booster.inplace_predict, predict_type="margin")
    calls["lightgbm" if name == "lightgbm" else "xgboost"] = right
    # treelite compares in float64 where the model does.
    dtype = np.dtype(model.input_type)

    def gtil(x: Any) -> Any:
        data = x if x.dtype == dtype else x.astype(dtype)
        return treelite.gtil.predict(model, data, nthread=threads, pred_margin=True)

    calls["gtil"] = gtil
    if name != "multiclass":
        daal = daal_call(booster, right, few)
        if daal is not None:
            calls["daal4py"] = daal
    return right, calls


def check(right: Call, calls: dict[str, Call], x: Any) -> None:
    """Checks that margins of every library are those of the library that trained the model."""
    expected = right(x)
    for name, call in calls.items():
        got = np.reshape(call(x), expected.shape)
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5, err_msg=name)


def on_rows(calls: dict[str, Call], x: Any, n: int) -> tuple[dict[str, Callable[[], Any]], dict[str, float]]:
    """Calls without arguments for the first n rows, or one of several in turn, and the shares of n."""
    if n == 1:
        turns = itertools.cycle([x[i : i + 1].copy() for i in range(min(N_SINGLE, len(x)))])

        def single(call: Call) -> Any:
            return call(next(turns))

        return {key: partial(single, call) for key, call in calls.items()}, dict.fromkeys(calls, 1.0)
    parts = {key: x[: min(n, MOST_GTIL) if key == "gtil" else n].copy() for key in calls}
    return (
        {key: partial(call, parts[key]) for key, call in calls.items()},
        {key: len(part) / n for key, part in parts.items()},
    )


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures every model, share of missing values and number of rows."""
    rows: list[dict[str, Any]] = []
    hforest.set_num_threads(options.threads)
    print(
        f"{'model':>12} {'missing':>7} {'rows':>7} {'rung':16} {'us/call':>12} {'spread':>7} {'/hforest':>9}"
    )
    for name in options.models:
        for missing in options.missing:
            booster, model = trained(name, missing)
            x, _ = samples(max(options.rows), missing, 1)
            right, calls = calls_of(name, booster, model, options, x[:200])
            check(right, calls, x[:5000])
            for n in options.rows:
                timed, share = on_rows(calls, x, n)
                with hforest.unchecked():
                    measured = side_by_side(timed, options.repeats)
                times = {key: [one / share[key] for one in taken] for key, taken in measured.items()}
                for rung, taken in times.items():
                    rows.append(
                        {
                            "model": name, "missing": missing, "rows": n, "rung": rung,
                            "seconds": median(taken), "spread": spread(taken),
                            "ratio": median(taken) / median(times["hforest"]), "threads": options.threads,
                        }
                    )  # fmt: skip
                    print(
                        f"{name:>12} {missing:7g} {n:7d} {rung:16} {1e6 * median(taken):12.1f} "
                        f"{100 * spread(taken):6.0f}% {rows[-1]['ratio']:9.2f}",
                        flush=True,
                    )
                if options.json:
                    record(options.json, rows, command=" ".join(sys.argv))
    return rows


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 100000])
    parser.add_argument("--missing", nargs="+", type=float, default=[0.0, 0.1])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--lleaves", metavar="FILE", default="")
    parser.add_argument("--json", metavar="FILE")
    options = options_of(parser, "--models multiclass --rows 1 --missing 0 --repeats 1")
    need("-e '.[bench,treelite]' xgboost lightgbm", "treelite", "xgboost", "lightgbm")
    print(machine_text())
    run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
