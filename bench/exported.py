"""Models of tables that left Python: equality of ONNX and C with `tabular.predict`, and rows per second.

    python bench/exported.py --data FOLDER ... [--tables magic ...] [--timed magic ...] [--json FILE]

Each table is fitted by `tabular.fit` with its defaults, to two thirds of at most --rows rows, with its
columns of categories. From every second table a fifth of the values is removed. The model is exported by
`hforest.onnx.to_onnx` and `tabular.to_c`, which cc compiles with -O2. Predictions of the other rows are
compared first: the largest difference, of targets in units of their range, and the share of rows that differ
by more than 1e-5. Sums of inner products in another order may move a row across a threshold.

For the tables of --timed the processor time of a row is measured, for a row at a time (of 1000 different
ones) and for all rows at once, on one thread, in turn:

    predict      tabular.predict
    onnx         onnxruntime on the model of to_onnx
    c            the function of the header, in a loop of C
    lightgbm, catboost, ydf    boosted trees with the defaults of the library, on their own trees
"""

import argparse
import ctypes
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import machine_text, need, options_of, record, side_by_side
from tabular_data import CHOOSE, JUDGE, PUBLIC, Data, find, load

import hforest
from hforest import tabular
from hforest.core.aliases import Task

N_SINGLE = 1000
Call = Callable[[Any], Any]


def onnx_call(model: tabular.Model) -> tuple[Call, int]:
    """Returns the predictions of onnxruntime on one thread, and the size of the file."""
    import onnxruntime

    from hforest.onnx import to_onnx

    content = to_onnx(model).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    output = ["values" if model.task == "regression" else "shares"]
    return lambda x: session.run(output, {"x": x})[0], len(content)


def c_call(model: tabular.Model, folder: Path) -> tuple[Call, int, float]:
    """Returns the predictions of the compiled header, its size, and the seconds of its compilation."""
    text = tabular.to_c(model, name="m")
    (folder / "m.h").write_text(text)
    (folder / "m.c").write_text(
        '#include "m.h"\nvoid run(long n, const double *x, double *y) {\n    long i;\n'
        "    for (i = 0; i < n; i++) m_predict(x + i * M_N_FEATURES, y + i * M_N_OUTPUTS);\n}\n"
    )
    command = ["cc", "-std=c99", "-Wall", "-Werror", "-O2", "-shared", "-fPIC"]
    begin = time.perf_counter()
    subprocess.run([*command, "-o", str(folder / "m.so"), str(folder / "m.c"), "-lm"], check=True)
    elapsed = time.perf_counter() - begin
    function = ctypes.CDLL(str(folder / "m.so")).run
    n_outputs = len(model.target_center)

    def call(x: Any) -> Any:
        y = np.empty((len(x), n_outputs))
        pointers = (ctypes.c_void_p(a.ctypes.data) for a in (x, y))
        function(ctypes.c_long(len(x)), *pointers)
        return y

    return call, len(text), elapsed


def peers(data: Data) -> dict[str, Call]:
    """Returns the predictions of other libraries, which read the columns as numbers."""
    import catboost
    import lightgbm
    import ydf

    is_classes = data.n_classes is not None
    common: dict[str, Any] = {"random_state": 0, "verbose": -1, "n_jobs": 1}
    boosted = (lightgbm.LGBMClassifier if is_classes else lightgbm.LGBMRegressor)(**common).fit(
        data.x, data.y
    )
    booster = boosted.booster_
    kind = catboost.CatBoostClassifier if is_classes else catboost.CatBoostRegressor
    cat = kind(thread_count=1, verbose=0, allow_writing_files=False, random_seed=0).fit(data.x, data.y)
    cat_predict = cat.predict_proba if is_classes else cat.predict
    ydf.verbose(0)
    task = ydf.Task.CLASSIFICATION if is_classes else ydf.Task.REGRESSION
    learner = ydf.GradientBoostedTreesLearner(label="y", task=task, num_threads=1)
    trained = learner.train({"x": data.x, "y": data.y})
    return {
        "lightgbm": lambda x: booster.predict(x, num_threads=1),
        "catboost": lambda x: cat_predict(x, thread_count=1),
        "ydf": lambda x: trained.predict({"x": x}, num_threads=1),
    }


def differences(found: Any, expected: Any) -> dict[str, float]:
    """Returns the largest difference, and the share of rows that differ by more than 1e-5."""
    expected = expected.reshape(found.shape)
    unit = 1.0 if expected.shape[1] > 1 else max(float(np.ptp(expected)), 1e-30)
    error = (abs(found - expected) / unit).max(axis=1)
    return {"largest": float(error.max()), "share": float((error > 1e-5).mean())}


def _next(call: Call, turns: Iterator[Any]) -> Any:
    return call(next(turns))


def rows_per_second(calls: dict[str, Call], x: Any, repeats: int) -> dict[str, dict[str, float]]:
    """Returns rows per second of processor time: a row at a time, and all at once; from the least times."""
    turns = itertools.cycle([x[i : i + 1].copy() for i in range(min(N_SINGLE, len(x)))])
    result: dict[str, dict[str, float]] = {}
    for name, rows in (("single", 1), ("all", len(x))):
        timed: dict[str, Callable[[], Any]] = {
            key: partial(_next, call, turns) if rows == 1 else partial(call, x) for key, call in calls.items()
        }
        taken = side_by_side(timed, repeats, clock=time.process_time)
        result[name] = {key: rows / min(seconds) for key, seconds in taken.items()}
    return result


def measured(table: str, number: int, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Returns the record of a table."""
    gaps = "random" if number % 2 else None
    path = find(options.data, table)
    data, x, _ = load(path, options.rows, 0, False, "raw", categorical=True, gaps=gaps)
    task: Task = "regression" if data.n_classes is None else "classification"
    settings: dict[str, Any] = {"categorical": list(data.categorical)} if data.categorical else {}
    model = tabular.fit(data.x, data.y, task=task, n_classes=data.n_classes, rng=0, **settings)
    onnx, onnx_size = onnx_call(model)
    c, c_size, seconds = c_call(model, folder)
    x = x.astype(np.float64)
    expected = tabular.predict(model, x)
    row: dict[str, Any] = {
        "table": table, "task": data.task, "rows": len(x), "columns": x.shape[1], "missing": bool(gaps),
        "categories": len(data.categorical), "onnx": differences(onnx(x), expected),
        "c": differences(c(x), expected), "onnx_bytes": onnx_size, "c_bytes": c_size,
        "compile_seconds": round(seconds, 2),
    }  # fmt: skip
    print(
        f"{table[:24]:24} {data.task[:5]} {len(x):6d} x {x.shape[1]:3d} "
        + " ".join(
            f"{key} {row[key]['largest']:8.1e} {100 * row[key]['share']:6.3f} %" for key in ("onnx", "c")
        )
        + f"  {onnx_size / 1e6:5.1f} MB {c_size / 1e6:5.1f} MB {seconds:5.1f} s",
        flush=True,
    )
    if table in options.timed:
        calls = {"predict": lambda x: tabular.predict(model, x), "onnx": onnx, "c": c, **peers(data)}
        row["rows_per_second"] = rows_per_second(calls, x, options.repeats)
        for name, rates in row["rows_per_second"].items():
            text = ", ".join(f"{key} {rate:.0f}" for key, rate in rates.items())
            print(f"    rows per second, {name}: {text}", flush=True)
    return row


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--tables", nargs="+", default=[], metavar="TABLE")
    parser.add_argument("--timed", nargs="+", default=[], metavar="TABLE")
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", metavar="FILE")
    options = options_of(parser, "--data {data} --tables magic --rows 300 --repeats 1", "magic")
    need("-e '.[onnx]' onnxruntime", "onnx", "onnxruntime")
    if options.timed:
        need("lightgbm catboost ydf", "lightgbm", "catboost", "ydf")
    there = [
        name
        for name in (*CHOOSE, *JUDGE, *PUBLIC)
        if any((folder / f"{name}.npz").is_file() for folder in options.data)
    ]
    hforest.set_num_threads(1)
    print(machine_text())
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for table in options.tables or there:
            place = Path(folder) / table
            place.mkdir()
            rows.append(measured(table, there.index(table), options, place))
            if options.json:
                record(options.json, rows, command=" ".join(sys.argv))
    return 0


if __name__ == "__main__":
    sys.exit(main())
