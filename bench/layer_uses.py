"""What hinge layers are for, beside networks of PyTorch: pixels, streams, one sample, and leaves to read.

    python bench/layer_uses.py --data DIR --json bench/results/layer_uses.json
    python bench/layer_uses.py --data DIR --only latency leaves
    python bench/layer_uses.py --quick
    python bench/layer_uses.py

pixels    classes of CamVid's pixels (every fourth image, every second row and column): one `HingeConv2d` with
          a window of 21 x 21 pixels, of which every second is read, beside two convolutions with the same
          window: of as many parameters, and narrower. Seed 0 chooses the rate on validation images.
stream    one sample after the other, each predicted before it trains (prequential error of the second half):
          a mixture of 50 normals of five classes in ten columns, whose centres move (after RandomRBF with
          drift, Bifet et al. 2009). Rates are chosen on another stream. Of the same network the step that
          moves all rows is timed, and of larger ones (1000 trees or ferns) both steps.
leaves    one test digit and the leaves that say most for its class, with their comparisons.
latency   one sample of 16 columns through a network, in evaluation: in PyTorch, in onnxruntime, of arrays.

Times are processor time of one thread, the least of many that take turns; of training, the sum. Without
--data and --quick the record is printed.
"""

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from common import RESULTS, machine_text, need, options_of, record, side_by_side

import hforest
from hforest import demo, hinge, images, layers

Kind = Literal["tree", "fern"]
PARTS = ("pixels", "stream", "leaves", "latency")
SEEDS = (0, 1, 2)


def one_thread() -> None:
    """Sets the threads of both libraries to one."""
    import torch

    hforest.set_num_threads(1)
    torch.set_num_threads(1)


# ------------------------------------------------------------------------------------------------ pixels

KERNEL, DILATION, STRIDE, N_CLASSES, VOID = 11, 2, 2, 11, 11
WIDTHS = {"Conv2d, as many parameters": 80, "Conv2d, narrow": 8}
PIXEL_RATES = {"HingeConv2d": (0.03, 0.1), "Conv2d": (0.003, 0.01)}


def pixel_network(name: str) -> Any:
    """Returns a network from images of five channels to scores of every second pixel."""
    from torch import nn

    import hforest.torch as ht

    window: dict[str, Any] = {"stride": STRIDE, "padding": KERNEL // 2 * DILATION, "dilation": DILATION}
    if name == "HingeConv2d":
        return ht.HingeConv2d(5, 32, 7, KERNEL, N_CLASSES, sparse=False, **window)
    first = nn.Conv2d(5, WIDTHS[name], KERNEL, **window)
    return nn.Sequential(first, nn.ReLU(), nn.Conv2d(WIDTHS[name], N_CLASSES, 1))


def pixel_data(folder: Path | None) -> dict[str, tuple[Any, Any]]:
    """Returns images with the place of each pixel, of unit deviation, and labels; without a folder noise."""
    import torch

    found: dict[str, tuple[Any, Any]] = {}
    if folder is None:
        rng = np.random.default_rng(0)
        arrays = {
            f"x_{part}": rng.integers(0, 255, (4, 24, 32, 3), np.uint8) for part in ("train", "val", "test")
        }
        arrays |= {f"y{k[1:]}": x[..., 0] % 12 for k, x in arrays.items()}
    else:
        with np.load(folder / "camvid.npz") as file:
            arrays = {key: file[key][::4] for key in file.files}
    mean, deviation = arrays["x_train"].mean(axis=(0, 1, 2)), arrays["x_train"].std(axis=(0, 1, 2))
    for part in ("train", "val", "test"):
        x = ((arrays[f"x_{part}"] - mean) / deviation).astype(np.float32)
        x = np.concatenate([x, 3.4 * images.coordinates(x) - 1.7], axis=-1).transpose(0, 3, 1, 2)
        y = arrays[f"y_{part}"][:, ::STRIDE, ::STRIDE].astype(np.int64)
        found[part] = torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(y)
    return found


def pixel_scores(net: Any, x: Any, y: Any) -> dict[str, float]:
    """Returns the error of pixels and the class-average Jaccard score, in percent."""
    import torch

    with torch.no_grad():
        label = torch.cat([net(image[None]).argmax(dim=1) for image in x]).numpy()
    found = images.scores(images.confusion(y.numpy(), label, void=VOID))
    return {"error": 100 * (1 - found.pixels), "jaccard": 100 * found.mean_jaccard}


def train_pixels(name: str, rate: float, seed: int, data: Any, steps: int) -> tuple[Any, float]:
    """Returns the trained network and seconds."""
    import torch

    torch.manual_seed(seed)
    x, y = data["train"]
    net = pixel_network(name)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.2)
    begin = time.process_time()
    batches = (picked for _ in itertools.count() for picked in torch.randperm(len(x)).split(2))
    for picked in itertools.islice(batches, steps):
        loss = torch.nn.functional.cross_entropy(net(x[picked]), y[picked], ignore_index=VOID)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return net.eval(), time.process_time() - begin


def pixels(folder: Path | None, quick: bool) -> list[dict[str, Any]]:
    """Measures each network."""
    import torch

    data, steps = pixel_data(None if quick else folder), 2 if quick else 600
    rows = []
    calls: dict[str, Callable[[], Any]] = {}
    for name in ("HingeConv2d", *WIDTHS):
        rates = PIXEL_RATES[name.split(",")[0]]
        tried = {
            r: pixel_scores(train_pixels(name, r, 0, data, steps)[0], *data["val"])["error"] for r in rates
        }
        rate = min(tried, key=lambda r: tried[r])
        runs = [train_pixels(name, rate, seed, data, steps) for seed in SEEDS[: 1 if quick else None]]
        net = runs[0][0]
        scores = [pixel_scores(net, *data["test"]) for net, _ in runs]
        rows.append(
            {
                "part": "pixels", "network": name, "rate": rate, "validation": tried,
                "parameters": sum(p.numel() for p in net.parameters()),
                "error": [s["error"] for s in scores], "jaccard": [s["jaccard"] for s in scores],
                "seconds": [seconds for _, seconds in runs],
            }
        )  # fmt: skip
        calls[name] = torch.no_grad()(partial(net, data["test"][0][:1]))
        print(rows[-1], flush=True)
    for row, taken in zip(
        rows, side_by_side(calls, 3 if quick else 15, time.process_time).values(), strict=True
    ):
        row["ms"] = 1e3 * min(taken)
    return rows


# ------------------------------------------------------------------------------------------------ streams

COLUMNS, CLASSES, CENTRES, SPEED = 10, 5, 50, 2e-4
DEPTH, TREES = 8, {"trees": 100, "ferns": 200}
HIDDEN = ((256,), (256, 256))
WAYS = ("arrays", "RowAdam", "Adam of all rows")
LEARNERS: list[tuple[tuple[str, ...], tuple[int, ...]]] = [
    *((tuple(f"{of}, {how}" for how in WAYS), ()) for of in TREES),
    (("MLP, NumPy", "MLP, PyTorch"), HIDDEN[0]),
    (("MLP, PyTorch",), HIDDEN[1]),
]
"""Names of learners that take the same steps, and the hidden units of MLPs."""
STREAM_RATES = (0.001, 0.003, 0.01, 0.03)


def stream(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns samples and labels of a mixture whose centres move in the unit cube and turn at its sides."""
    rng = np.random.default_rng(seed)
    centre, width = rng.random((CENTRES, COLUMNS)), 0.3 * rng.random(CENTRES)
    way = rng.standard_normal((CENTRES, COLUMNS))
    way *= SPEED / np.linalg.norm(way, axis=1, keepdims=True) * np.sqrt(COLUMNS)
    label, which = rng.integers(0, CLASSES, CENTRES), rng.integers(0, CENTRES, n)
    x = rng.standard_normal((n, COLUMNS)) * width[which, None] / np.sqrt(COLUMNS)
    for i, k in enumerate(which):
        centre += way
        way[(centre < 0) | (centre > 1)] *= -1
        x[i] += centre[k]
    return ((x - 0.5) / 0.29).astype(np.float32), label[which].astype(np.int64)


def arrays_learner(rate: float, kind: Kind, trees: int, depth: int) -> Callable[[Any, Any], Any]:
    """Returns a function that predicts a batch and then trains on it, of arrays; rows by rows."""
    t, f, w = hinge.init(trees, depth, COLUMNS, CLASSES, kind=kind, rng=0)
    state, count = hinge.adam_state(t, w), itertools.count(1)

    def learn(x: Any, y: Any) -> Any:
        step = next(count)
        scores, route = hinge.adam_forward(x, t, f, w, state, step, rate, kind=kind)
        grad = layers.softmax_loss(scores, y)[1]
        hinge.adam_backward(grad, route, x, t, f, w, state, step, rate, kind=kind)
        return scores

    return learn


def numpy_mlp(rate: float, hidden: int) -> Callable[[Any, Any], Any]:
    """Returns the same of an MLP in NumPy, with Adam."""
    rng = np.random.default_rng(0)
    sizes = ((COLUMNS, hidden), (hidden,), (hidden, CLASSES), (CLASSES,))
    flat = np.zeros(sum(int(np.prod(s)) for s in sizes), np.float32)
    bounds = np.cumsum([int(np.prod(s)) for s in sizes])[:-1]
    grad, m, v = (np.zeros_like(flat) for _ in range(3))
    a, a0, b, b0 = (p.reshape(s) for p, s in zip(np.split(flat, bounds), sizes, strict=True))
    ga, ga0, gb, gb0 = (p.reshape(s) for p, s in zip(np.split(grad, bounds), sizes, strict=True))
    for p, n_in in ((a, COLUMNS), (a0, COLUMNS), (b, hidden), (b0, hidden)):
        p[...] = rng.uniform(-(n_in**-0.5), n_in**-0.5, p.shape)
    count = itertools.count(1)

    def learn(x: Any, y: Any) -> Any:
        step = next(count)
        h = np.maximum(x @ a + a0, 0)
        scores = h @ b + b0
        g = layers.softmax_loss(scores, y)[1]
        gh = (g @ b.T) * (h > 0)
        np.matmul(h.T, g, out=gb)
        np.matmul(x.T, gh, out=ga)
        g.sum(axis=0, out=gb0)
        gh.sum(axis=0, out=ga0)
        hforest.optim.adam(flat, grad, m, v, step, rate)
        return scores

    return learn


def torch_learner(net: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    """Returns the same of a network of PyTorch."""
    import torch

    def learn(x: Any, y: Any) -> Any:
        scores = net(torch.from_numpy(x))
        torch.nn.functional.cross_entropy(scores, torch.from_numpy(y)).backward()
        optimizer.step()
        optimizer.zero_grad()
        return scores.detach().numpy()

    return learn


def learner(name: str, rate: float, width: tuple[int, ...] = (), n: int = 0, depth: int = DEPTH) -> Any:
    """Returns a function that predicts a batch and then trains on it; n is a number of trees or ferns."""
    import torch
    from torch import nn

    import hforest.torch as ht

    torch.manual_seed(0)
    of, how = name.split(", ")
    kind: Kind = "fern" if of == "ferns" else "tree"
    if how == "arrays":
        return arrays_learner(rate, kind, n or TREES[of], depth)
    if name == "MLP, NumPy":
        return numpy_mlp(rate, *width)
    if name == "MLP, PyTorch":
        hidden = [m for a, b in itertools.pairwise((COLUMNS, *width)) for m in (nn.Linear(a, b), nn.ReLU())]
        mlp = nn.Sequential(*hidden, nn.Linear(width[-1], CLASSES))
        return torch_learner(mlp, torch.optim.Adam(mlp.parameters(), lr=rate, fused=True))
    by_rows = how == "RowAdam"
    net = ht.HingeForest(COLUMNS, n or TREES[of], depth, CLASSES, kind=kind, sparse=by_rows)
    if by_rows:
        return torch_learner(net, ht.RowAdam(net.parameters(), lr=rate))
    return torch_learner(net, torch.optim.Adam(net.parameters(), lr=rate, fused=True))


def prequential(learn: Any, x: Any, y: Any, size: int) -> float:
    """Returns the error of the second half of a stream, in percent."""
    wrong = []
    for i in range(0, len(x) - size + 1, size):
        wrong.append((learn(x[i : i + size], y[i : i + size]).argmax(axis=1) != y[i : i + size]).mean())
    return 100 * float(np.mean(wrong[len(wrong) // 2 :]))


def streams(folder: Path | None, quick: bool) -> list[dict[str, Any]]:
    """Measures errors and microseconds of a step."""
    rows: list[dict[str, Any]] = []
    n_of = {1: 400, 16: 1600} if quick else {1: 20_000, 16: 80_000}
    for size, n in n_of.items():
        choice, test = stream(n, 100), [stream(n, seed) for seed in SEEDS[: 1 if quick else None]]
        calls: dict[str, Any] = {}
        # Array functions and PyTorch take the same steps up to rounding: errors are those of the first.
        for (fast, *slow), width in LEARNERS:
            tried = {r: prequential(learner(fast, r, width), *choice, size) for r in STREAM_RATES}
            rate = min(tried, key=lambda r: tried[r])
            errors = [prequential(learner(fast, rate, width), *part, size) for part in test]
            for name in (fast, *slow):
                shown = name.replace("MLP", f"MLP, {' and '.join(map(str, width))} units")
                learn = learner(name, rate, width)
                x, y = (a[: len(a) // size * size].reshape(-1, size, *a.shape[1:]) for a in test[0])
                turns = itertools.cycle(list(zip(x[:200], y[:200], strict=True)))
                calls[shown] = partial(_next, learn, turns)
                row: dict[str, Any] = {"part": "stream", "batch": size, "network": shown, "rate": rate}
                rows.append({**row, "choice": tried, "error": errors})
            print(rows[-1], flush=True)
        taken = side_by_side(calls, 3 if quick else 25, time.process_time)
        for made in rows[-len(taken) :]:
            made["microseconds"] = 1e6 * min(taken[made["network"]])
    return rows if quick else rows + large_steps()


def large_steps() -> list[dict[str, Any]]:
    """Times steps of layers of 1000 trees or ferns: by rows and of all rows."""
    rows = []
    x, y = stream(3200, 0)
    names = [f"{of}, {how}" for of in TREES for how in WAYS]
    for depth, size in itertools.product((8, 10), (1, 16)):
        turns = [(x[i : i + size], y[i : i + size]) for i in range(0, len(x), size)]
        calls: dict[str, Callable[[], Any]] = {
            name: partial(_next, learner(name, 0.01, n=1000, depth=depth), itertools.cycle(turns))
            for name in names
        }
        taken = side_by_side(calls, 7, time.process_time)
        for name in names:
            row = {"part": "large", "batch": size, "depth": depth, "network": name}
            rows.append({**row, "microseconds": 1e6 * min(taken[name])})
    return rows


def _next(learn: Any, turns: Any) -> Any:
    return learn(*next(turns))


# ------------------------------------------------------------------------------------------------- leaves


def leaves(folder: Path | None, quick: bool) -> list[dict[str, Any]]:
    """Returns the five leaves that contribute most to the class of the first test digit."""
    import torch

    import hforest.torch as ht

    digits = demo.load_digits()
    mean, unit = digits.x_train.mean(axis=0), digits.x_train.std(axis=0) + 0.5
    x, x_test = (torch.from_numpy((a - mean) / unit) for a in (digits.x_train, digits.x_test))
    y, y_test = (torch.from_numpy(a).long() for a in (digits.y_train, digits.y_test))
    torch.manual_seed(0)
    forest = ht.HingeForest(64, 100, 5, 10)
    grown = hforest.grow(x.numpy(), y.numpy(), 100, max_depth=5, rng=0)
    intercept = 4 * forest.from_forest(x, y, grown)
    with torch.no_grad():
        forest.weights *= 4  # of shares, for a softmax
    optimizer = torch.optim.Adam(forest.parameters(), lr=0.003)
    for _ in range(50 if quick else 2000):
        batch = torch.randint(len(x), (100,))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(forest(x[batch]) + intercept, y[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        error = 100 * float(((forest(x_test) + intercept).argmax(dim=1) != y_test).double().mean())
        one = x_test[:1]
        tensors = forest.thresholds, forest.features, forest.weights
        parts = ht.hinge_forest(one, *tensors, aggregate=None)[0]  # (n_trees, n_classes)
        label = int((parts.sum(dim=0) + intercept).argmax())
        leaf, column = forest.leaf_map(one)[0], forest.path_map(one)[0]
        counts, of_train = forest.leaf_counts(x), forest.leaf_map(x)
    rows, thresholds = [], forest.thresholds.detach()
    for tree in parts[:, label].argsort(descending=True)[:5].tolist():
        vertex, path = 0, []
        for f in column[tree].tolist():
            value = float(thresholds[tree, vertex]) * unit[f] + mean[f]
            right = bool(one[0, f] > thresholds[tree, vertex])
            path.append([f // 8, f % 8, ">" if right else "≤", round(float(value), 1)])
            vertex = 2 * vertex + 1 + right
        here = of_train[:, tree] == leaf[tree]
        n = int(counts[tree, leaf[tree]])
        rows.append(
            {
                "part": "leaves", "tree": tree, "leaf": int(leaf[tree]), "samples": n,
                "share": float((y[here] == label).double().mean()), "contribution": float(parts[tree, label]),
                "path": path, "label": label, "truth": int(y_test[0]), "test_error": error,
                "score": float(parts[:, label].sum()), "intercept": float(intercept[label]),
            }
        )  # fmt: skip
    return rows


# ------------------------------------------------------------------------------------------------ latency


SINGLE: dict[str, tuple[int, ...]] = {
    "hinge, 50 trees of depth 6": (50, 6),
    "MLP, 256 units": (256,),
    "hinge, 1000 trees of depth 8": (1000, 8),
    "MLP, 2048 and 2048 units": (2048, 2048),
}
"""Heads after a linear map to 64 units and a normalisation: trees and depth, or hidden layers."""


def latency(folder: Path | None, quick: bool) -> list[dict[str, Any]]:
    """Measures microseconds of one sample, each network in a process of its own."""
    from compiled import new_process

    rows = []
    for name in list(SINGLE)[: 2 if quick else None]:
        with new_process() as pool:
            taken, n = pool.submit(_latency_of, name, quick).result()
        rows += [
            {"part": "latency", "network": name, "parameters": n, "how": how, "microseconds": t}
            for how, t in taken.items()
        ]
    return rows


def _latency_of(name: str, quick: bool) -> tuple[dict[str, float], int]:
    import onnxruntime
    import torch
    from compiled import compiled
    from torch import nn

    import hforest.torch as ht
    from hforest.onnx import translations

    one_thread()
    torch.manual_seed(0)
    x = np.random.default_rng(0).standard_normal((200, 1, 16), dtype=np.float32)
    samples = [torch.from_numpy(one) for one in x]
    of_trees = name.startswith("hinge")
    if of_trees:
        n_trees, depth = SINGLE[name]
        net = nn.Sequential(nn.Linear(16, 64), ht.RunningNorm(64), ht.HingeForest(64, n_trees, depth, 26))
    else:
        sizes = itertools.pairwise((64, *SINGLE[name]))
        hidden = [m for a, b in sizes for m in (nn.Linear(a, b), nn.ReLU())]
        net = nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), *hidden, nn.Linear(SINGLE[name][-1], 26))
    net.eval()
    table = translations() if of_trees else None
    program = torch.onnx.export(
        net, (samples[0],), dynamo=True, custom_translation_table=table, verbose=False
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        program.model_proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    p = [np.ascontiguousarray(a.detach().numpy()) for a in net.state_dict().values()]
    calls: dict[str, Callable[[Any], Any]] = {"PyTorch, eager": net}
    if not quick:
        calls["torch.compile"] = compiled(net)
    calls["onnxruntime"] = partial(_of_session, session, session.get_inputs()[0].name)
    calls["NumPy arrays"] = partial(_hinge_arrays if of_trees else _mlp_arrays, p)
    timed: dict[str, Callable[[], Any]] = {}
    with torch.no_grad(), hforest.unchecked():
        for how, call in calls.items():
            turns: Any = x if how in ("onnxruntime", "NumPy arrays") else samples
            expected = net(samples[0]).numpy()
            np.testing.assert_allclose(np.asarray(call(turns[0])), expected, rtol=1e-4, atol=1e-4)
            timed[how] = partial(_one, call, itertools.cycle(turns))
        taken = side_by_side(timed, 3 if quick else 40, time.process_time)
    n = sum(p.numel() for p in net.parameters())
    return {how: 1e6 * min(times) for how, times in taken.items()}, n


def _one(call: Any, turns: Any) -> Any:
    return call(next(turns))


def _of_session(session: Any, name: str, x: Any) -> Any:
    return session.run(None, {name: x})[0]


def _hinge_arrays(p: list[Any], x: Any) -> Any:
    # Weight and bias of the linear map; mean, variance and step of the normalisation; the forest.
    weight, bias, mean, var, _, thresholds, weights, features = p
    z = layers.normalize(x @ weight.T + bias, mean, var)
    return hinge.forward(z, thresholds, features, weights, aggregate="sum")


def _mlp_arrays(p: list[Any], x: Any) -> Any:
    weight, bias, scale, shift, *rest = p
    z = x @ weight.T + bias
    z = z - z.mean()
    z = z / np.sqrt(np.square(z).mean() + np.float32(1e-5)) * scale + shift
    for a, b in zip(rest[:-2:2], rest[1:-2:2], strict=True):
        z = np.maximum(z @ a.T + b, 0)
    return z @ rest[-2].T + rest[-1]


# ------------------------------------------------------------------------------------------------- tables


def _mean(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def _text(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def _pixels_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| network | parameters | error % | class-average Jaccard | s of training | ms per image |",
        "|---|---|---|---|---|---|",
    ]
    for r in rows:
        cells = (_mean(r["error"]), _mean(r["jaccard"]), _text(statistics.mean(r["seconds"])), _text(r["ms"]))
        lines.append(f"| {r['network']} | {r['parameters']} | {' | '.join(cells)} |")
    return lines


def _stream_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| network | error %, 1 sample | µs of a step | error %, 16 samples | µs of a step |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(r["network"] for r in rows):
        cells = [f"{_mean(r['error'])} | {_text(r['microseconds'])}" for r in rows if r["network"] == name]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _large_table(rows: list[dict[str, Any]]) -> list[str]:
    cases = list(dict.fromkeys((r["depth"], r["batch"]) for r in rows))
    words = (f"depth {depth}, {batch} sample{'s' * (batch > 1)}" for depth, batch in cases)
    lines = [f"| µs of a step, 1000 trees or ferns | {' | '.join(words)} |", "|---" * (1 + len(cases)) + "|"]
    for name in dict.fromkeys(r["network"] for r in rows):
        lines.append(
            f"| {name} | {' | '.join(_text(r['microseconds']) for r in rows if r['network'] == name)} |"
        )
    return lines


def _leaves_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| tree | leaf | training digits in it | share of the class | contribution | path |",
        "|---|---|---|---|---|---|",
    ]
    for r in rows:
        path = ", ".join(f"({row}, {column}) {side} {value}" for row, column, side, value in r["path"])
        cells = (r["tree"], r["leaf"], r["samples"], f"{r['share']:.2f}", f"{r['contribution']:.2f}", path)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def _latency_table(rows: list[dict[str, Any]]) -> list[str]:
    ways = list(dict.fromkeys(r["how"] for r in rows))
    lines = [f"| µs of one sample | parameters | {' | '.join(ways)} |", "|---" * (2 + len(ways)) + "|"]
    for name in dict.fromkeys(r["network"] for r in rows):
        mine = [r for r in rows if r["network"] == name]
        cells = (str(mine[0]["parameters"]), *(_text(r["microseconds"]) for r in mine))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def table(rows: list[dict[str, Any]], part: str) -> str:
    """Returns the Markdown of a part."""
    made: dict[str, Callable[[list[dict[str, Any]]], list[str]]] = {
        "pixels": _pixels_table, "stream": _stream_table, "large": _large_table, "leaves": _leaves_table,
        "latency": _latency_table,
    }  # fmt: skip
    return "\n".join(made[part]([row for row in rows if row["part"] == part]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of camvid.npz; without it the record is printed")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path, default=RESULTS / "layer_uses.json")
    args = options_of(parser, "--only leaves")
    rows = json.loads(args.json.read_text())["rows"] if args.json.exists() else []
    if args.data or args.quick:
        need("-e '.[bench,torch,onnx]' onnxruntime onnxscript", "torch", "onnxruntime", "onnxscript")
        import torch

        one_thread()
        runs = {"pixels": pixels, "stream": streams, "leaves": leaves, "latency": latency}
        for part in args.only:
            measured = runs[part](args.data, args.quick)
            rows = [row for row in rows if row["part"] not in {r["part"] for r in measured}] + measured
            record(args.json, rows, torch=torch.__version__, command=" ".join(sys.argv))
    print(machine_text())
    for part in dict.fromkeys(row["part"] for row in rows):
        print(f"\n{table(rows, part)}")


if __name__ == "__main__":
    main()
