"""Parts of bits.py on models that contain hinge forests: shards, tables, networks of demo, saved files."""

import io
import tempfile
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bits_frameworks import installed, made, plain, trained
from bits_hinge import KINDS, Case, adam_state, forward_with_route, gradients, parameters
from digests import Results, Task, digest

from hforest import cascade, co2, demo, grow, growth, neural, project, scale, tabular, tree


def of_shards(task: Task) -> Results:
    """Steps of forests in chunks of trees, and sums of gradients of parts of a batch."""
    x = task.x
    for kind in KINDS:
        for aggregate in ("sum", "mean"):
            for n_chunks in (1, 5):
                p = parameters(Case(kind), 12, x.dtype, 12, 5, 3)
                settings: Any = {
                    "aggregate": aggregate,
                    "n_chunks": n_chunks,
                    "state": adam_state(p[0], p[2]),
                }
                shards = scale.HingeShards(None, kind, *p, **settings)
                for step in range(12):
                    y, route = shards.forward(x[7 * step : 7 * step + 20])
                    by = shards.backward(y - 1, route)
                    shards.step(by, 0.01 if step < 6 else 0.005)
                key = f"shards {kind} {aggregate} {n_chunks} chunks"
                yield f"{key} forward", digest(y)
                for name in ("x", "thresholds", "weights"):
                    yield f"{key} gradient of {name}", digest(getattr(by, name))
                yield f"{key} parameters", digest(shards.parameters())
                yield f"{key} state", digest(shards.adam_state())
        case = Case(kind)
        p = parameters(case, 12, x.dtype, 12, 5, 3)
        for form in ("dense", "sparse"):
            parts = []
            for part in (x[:40], x[40:100]):
                y, found_route = forward_with_route(case, part, p, "sum")
                by_name = gradients(case, y, found_route, part, p, "sum", form == "sparse")
                parts.append([by_name[name] for name in ("thresholds", "weights")])
            found = scale.gather_gradients(None, parts)
            yield f"shards {kind} gathered {form} gradients", digest(found)


TABLE: Any = {"n_members": 2, "n_trees": 4, "depth": 4, "n_projections": 9, "steps": 40, "batch_size": 32}
"""Sizes of small models of tables."""


def of_models(task: Task) -> Results:
    """Yields models of tables: fitted, applied, and trained further."""
    x, weight = task.x, task.weights["real"]
    settings: dict[str, Any] = {
        "": {},
        " weights": {"sample_weight": weight},
        " whole": {"validation": 0.0, "average": False, "share": 1.0},
        " deviations": {"scaling": "deviations", "steps": 20},
        " normal": {"scaling": "normal", "steps": 20},
    }
    targets: dict[Any, np.ndarray] = {"classification": task.labels, "regression": task.targets}
    for kind, y in targets.items():
        for word, more in settings.items():
            model = tabular.fit(x, y, task=kind, rng=0, **(TABLE | more))
            key = f"table {kind}{word}"
            yield f"{key} model", digest(model)
            yield f"{key} prediction", digest(tabular.predict(model, x))
        gaps, more = np.where(task.x > np.quantile(task.x, 0.8), np.nan, task.x), {"categorical": [0]}
        gaps[:, 0] = np.arange(len(x)) % 7
        model = tabular.fit(gaps, y, task=kind, rng=0, **(TABLE | more))
        yield f"table {kind} gaps and categories model", digest(model)
        yield f"table {kind} gaps and categories prediction", digest(tabular.predict(model, gaps))
        model = tabular.fit(x, y, task=kind, rng=0, **(TABLE | settings[" normal"]))
        model, state = tabular.partial_fit(model, x[:99], y[:99], batch_size=20)
        model, state = tabular.partial_fit(model, x[99:180], y[99:180], state=state, batch_size=20)
        yield f"table {kind} trained further", digest(model, state)


def network(task: Task, kind: Any, **more: Any) -> tuple[demo.Config, demo.Data, Any, Any]:
    """Trains a small network of demo on images of 36 pixels; returns settings, data, state and history."""
    images = task.x.reshape(-1)[: 166 * 36].reshape(166, 36)
    y = task.labels[:166]
    data = demo.Data(images[:120], y[:120], images[120:], y[120:], np.array(["a", "b", "c"]))
    sizes: Any = {"n_trees": 9, "depth": 5, "n_features": 20, "steps": 30, "eval_every": 15, "batch_size": 17}
    config = demo.Config(kind=kind, **sizes, **more)
    state = demo.start(config, 36, 3, dtype=task.x.dtype)
    history = demo.train(config, state, *data[:4])
    return config, data, state, history


def arrays_of(state: Any, but: str = "seconds") -> list[Any]:
    """Returns the arrays of a dictionary in the order of their names, without times."""
    return [state[name] for name in sorted(state) if but not in name]


def of_networks(task: Task) -> Results:
    """Yields networks of demo with both kinds, first layers and optimisers."""
    words: dict[str, Any] = {
        "columns": {"lr_half_life": 10},
        "kernels": {"n_kernels": 3},
        "adagrad": {"optimizer": "adagrad", "lr": 0.05},
    }
    for kind in KINDS:
        for word, more in words.items():
            config, data, state, history = network(task, kind, **more)
            key = f"network {kind} {word}"
            yield f"{key} state and history", digest(arrays_of(state), arrays_of(history))
            yield f"{key} prediction", digest(demo.predict(config, state, data.x_test))


def archive(path: Path) -> list[Any]:
    """Returns names and arrays of an .npz file, without times."""
    with np.load(path) as found:
        names = sorted(name for name in found.files if "seconds" not in name)
        return [np.array(names), *(found[name] for name in names)]


def of_files(task: Task) -> Results:
    """Yields files that every saver writes, and results of the models read from them."""
    x, y = task.x, task.labels
    missing = np.where(x > 2, np.nan, x)
    missing[:, 5] = np.arange(500) % 7
    forests = {
        "columns": (grow(x, y, 3, rng=0), x),
        "missing": (grow(growth.samples(missing, categorical=np.arange(12) == 5), y, 3, rng=0), missing),
        "sparse": (
            grow(x, task.targets, 3, projections=project.sparse_distribution(12), task="regression", rng=0),
            x,
        ),
        "hyperplanes": (co2.grow(x, y, 2, max_depth=4, rng=0), x),
        "soft": (neural.to_hard(neural.linear_init(3, 3, 12, 3, dtype=x.dtype, rng=0), 12), x),
    }
    growers = [partial(grow, n_trees=3)]
    grown: Any = {"rng": 0, "max_levels": 2}
    scanner, _ = cascade.grow_scanner(x, y, (3, 4), 2, growers, rng=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.npz"
        for word, (forest, samples) in forests.items():
            tree.save(path, forest)
            found = tree.load(path)
            yield f"file forest {word} content", digest(archive(path))
            yield f"file forest {word} read", digest(found, tree.predict(found, samples))
        words: Any = ("out_of_fold", "out_of_bag")
        for word in words:
            cascade.save(path, cascade.grow(x, y, growers, class_vectors=word, **grown))
            levels: Any = cascade.load(path)
            yield f"file cascade {word} content", digest(archive(path))
            yield f"file cascade {word} read", digest(levels, cascade.predict(levels, x))
        cascade.save(path, scanner)
        windows: Any = cascade.load(path)
        yield "file scanner content", digest(archive(path))
        yield "file scanner read", digest(windows, cascade.scan_vectors(windows, x[:50]))
        targets: dict[Any, np.ndarray] = {"classification": y, "regression": task.targets}
        for kind, goal in targets.items():
            tabular.save(path, tabular.fit(x, goal, task=kind, rng=0, **TABLE))
            model = tabular.load(path)
            yield f"file table {kind} content", digest(archive(path))
            yield f"file table {kind} read", digest(model, tabular.predict(model, x))
        for kinds in KINDS:
            config, data, state, _ = network(task, kinds)
            demo.save_checkpoint(path, config, state, data)
            run = demo.load_checkpoint(path)
            yield f"file network {kinds} content", digest(archive(path))
            scores = demo.predict(run.config, run.state, data.x_test)
            read = (astuple(run.config), arrays_of(run.state), run.fingerprint, run.classes, scores)
            yield f"file network {kinds} read", digest(read)
    yield from torch_files(task)


def torch_files(task: Task) -> Results:
    """Yields layers and RowAdam that continue from a file of PyTorch."""
    if not installed("torch"):
        return
    import torch

    import hforest.torch as ht

    x = torch.tensor(task.x[:20])
    for kind in KINDS:
        layer, optimizer = trained(task, kind, "sparse")
        file = io.BytesIO()
        torch.save({"layer": layer.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        found = torch.load(file, weights_only=True)
        yield f"file torch {kind} content", digest(plain([found["layer"], found["optimizer"]["state"]]))
        again = made(task, ht.HingeForest, 12, 5, 6, 3, kind=kind, sparse=True)
        again.load_state_dict(found["layer"])
        steps = ht.RowAdam(again.parameters(), lr=0.01)
        steps.load_state_dict(found["optimizer"])
        again(x).sum().backward()
        steps.step()
        yield f"file torch {kind} trained further", digest(plain([again(x), steps.state_dict()["state"]]))
