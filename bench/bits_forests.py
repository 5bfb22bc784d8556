"""Parts of bits.py on grown forests, neural forests, cascades, and components of forests."""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from digests import Results, Task, digest
from scipy import sparse

from hforest import (
    cascade,
    co2,
    demo,
    grow,
    growth,
    layers,
    neural,
    optim,
    project,
    samples,
    scale,
    split,
    tree,
)
from hforest.core import blocks


def of_neural(task: Task) -> Results:
    """Leaves, outputs, losses, gradients and training of neural decision forests."""
    f, y = task.decisions, task.labels
    leaves = neural.uniform_leaves(4, 3, 3, dtype=f.dtype)
    leaves = neural.update_leaves(f, y[:100], leaves, 5)
    yield "neural leaves", digest(leaves)
    p = neural.forward(f, leaves)
    yield "neural forward", digest(p, neural.route(f))
    loss, grad = neural.loss_backward(f, leaves, y[:100])
    yield "neural loss", digest(np.array(loss), grad)
    yield "neural chain rule", digest(neural.backward(p, f, leaves))
    start = neural.linear_init(5, 3, 12, 3, max_features=6, dtype=f.dtype, rng=0)
    model = neural.fit(start, task.x, y, epochs=2, standardize=False, rng=0)
    yield "neural fit", digest(*model, neural.to_hard(model, 12), neural.predict(model, task.x))


PAPER: Any = {"nu": 10.0, "lr": 0.01, "standardize": False, "bootstrap": True, "min_samples_oblique": 1}
"""The paper's plain CO2 forests."""

RANDOM: Any = {"splitter": "random", "max_features": 1, "bootstrap": False}
"""Completely random trees."""


def of_grown_forests(task: Task) -> Results:
    """Yields forests of all kinds, for both tasks and three kinds of weights."""
    x = task.x
    distributions = {
        "sparse": project.sparse_distribution(12),
        "probe": project.probe_distribution(12, 0.0),
        "patch": project.patch_distribution((3, 4), patch_max=3),
    }
    for kind, y in (("classification", task.labels), ("regression", task.targets)):
        for word, weight in task.weights.items():
            more: Any = {"task": kind, "sample_weight": weight, "rng": 0}
            key = f"{kind} {word} weights"
            yield f"{key} exact", digest(grow(x, y, 5, max_features="sqrt", **more))
            yield f"{key} binned", digest(grow(samples(x, max_bins=256), y, 5, max_features="sqrt", **more))
            yield f"{key} random", digest(grow(x, y, 5, **RANDOM, **more))
            for projection, distribution in distributions.items():
                forest = grow(x, y, 5, projections=distribution, n_projections=4, **more)
                yield f"{key} {projection}", digest(forest)
            yield f"{key} co2", digest(co2.grow(x, y, 2, **PAPER, **more))
            yield f"{key} co2, standardized", digest(co2.grow(x, y, 2, **more))
    y = task.labels
    yield "oc1", digest(co2.grow(x, y, 2, splitter="oc1", max_depth=4, **PAPER, rng=0))
    for criterion in ("entropy", "gini"):
        forest = grow(
            x, y, 5, criterion=criterion, class_weight="balanced", max_features=4, min_samples_leaf=3, rng=1
        )
        yield criterion, digest(forest)
    yield "extra", digest(grow(x, y, 5, splitter="random", bootstrap=False, rng=0))
    views = project.grouped_distribution(project.sparse_distribution(12), [range(9, 12), range(9)])
    yield "views", digest(grow(x, y, 5, projections=views, rng=0))
    yield "poisson", digest(grow(x, y, 5, bootstrap="poisson", rng=0))


def of_tables(task: Task) -> Results:
    """Yields forests on tables with missing values, categories and implicit zeros."""
    rng = np.random.default_rng(1)
    x, y = task.x.copy(), task.labels
    x[:, 5] = rng.integers(0, 20, 500)
    categorical = np.arange(12) == 5
    few = np.where(np.abs(x) > 1, x, 0)
    x[rng.random(x.shape) < 0.1] = np.nan
    for word, max_bins in (("exact", None), ("binned", 64)):
        forest = grow(samples(x, max_bins=max_bins, categorical=categorical), y, 5, rng=0)
        yield f"missing and categorical {word}", digest(forest, tree.predict(forest, x))
    yield "missing oblique", digest(grow(x, y, 5, projections=project.sparse_distribution(12), rng=0))
    matrix = sparse.csr_array(few)
    for word, projections in (("columns", None), ("oblique", project.sparse_distribution(12))):
        forest = grow(matrix, y, 5, projections=projections, rng=0)
        yield f"sparse {word}", digest(forest, tree.predict(forest, matrix))
    kinds: Any = (("classification", y), ("regression", task.targets))
    for kind, target in kinds:
        found = scale.grow_by_rows(None, few, target, 5, task=kind, max_gathered=50, rng=0)
        yield f"by rows {kind}", digest(found)


def _memory_map(x: np.ndarray) -> np.ndarray:
    """Returns x in a file that is mapped into memory."""
    with tempfile.TemporaryFile() as file:
        found = np.memmap(file, x.dtype, "w+", shape=x.shape)
    found[...] = x
    return found


def of_samples(task: Task) -> Results:
    """Yields forests on samples of every layout, grown and applied."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from row_comms import run as run_workers  # type: ignore[import-not-found]

    y, few = task.labels, np.where(np.abs(task.x) > 1, task.x, 0)
    whole = np.round(40 * task.x)
    one_by_one: Any = {"some": few, "holes": np.where(few == 0, np.nan, task.x)}
    one_by_one["int8"] = whole.astype(np.int8)
    layouts: dict[str, Any] = {
        "Fortran order": np.asfortranarray(task.x),
        "strides": np.repeat(task.x, 2, axis=1)[::-1, ::2],
        "int8": whole.astype(np.int8),
        "int64": whole.astype(np.int64),
        "half": task.x.astype(np.float16),
        "CSR": sparse.csr_array(few),
        "CSC": sparse.csc_array(few),
        **{f"memory map, {name}": _memory_map(np.asfortranarray(x)) for name, x in one_by_one.items()},
    }
    limit = blocks.CONVERTED
    for word, x in layouts.items():
        if word.startswith("memory map"):
            blocks.CONVERTED = 1000  # numbers above which blocks are converted one after the other
        for max_bins in (None, 16):
            forest = grow(samples(x, max_bins=max_bins), y, 3, rng=0)
            leaves = digest(forest, tree.predict(forest, x), tree.apply(forest, x))
            yield f"samples {word} {max_bins} bins", leaves
        forest = grow(x, y, 3, projections=project.sparse_distribution(12), rng=0)
        yield f"samples {word} oblique", digest(forest, tree.vote_shares(forest, x))
        if "C" not in word[:1] and "holes" not in word:
            yield f"samples {word} co2", digest(co2.grow(x, y, 2, max_depth=3, rng=0))
        blocks.CONVERTED = limit
    images = np.round(4 * task.x[:40])
    base = (12 * np.arange(40)[:, None] + np.arange(6)).ravel()
    for max_bins in (None, 64, 8):
        windows = samples(images, windows=(base, np.arange(7)), max_bins=max_bins)
        forest = grow(windows, np.repeat(y[:40], 6), 3, rng=0)
        yield f"samples windows {max_bins} bins", digest(forest)
        bins = windows.bins()
        yield f"samples windows {max_bins} encoded", digest(bins.bins, bins.low, bins.high)
    parts = np.array_split(np.arange(500), 3)
    kinds: Any = (("classification", y), ("regression", task.targets))
    for kind, target in kinds:
        for projection in (None, project.sparse_distribution(12)):
            settings: Any = {
                "task": kind, "projections": projection, "max_gathered": 40, "rng": 0,
            }  # fmt: skip

            def grow_part(comm: Any, target: Any = target, settings: Any = settings) -> Any:
                rows = parts[comm.rank]
                return scale.grow_by_rows(comm, task.x[rows], target[rows], 3, **settings)

            name = "oblique" if projection else "columns"
            yield f"samples of three workers {kind} {name}", digest(*run_workers(3, grow_part))


def of_applied_forests(task: Task) -> Results:
    """Yields results of functions that take a grown forest."""
    x, y = task.x, task.labels
    forest = grow(x, y, 20, rng=7)
    counts = growth.bootstrap_counts(500, 20, rng=7)
    yield "in-bag counts", digest(counts)
    yield "out of bag", digest(tree.out_of_bag(forest, x, counts))
    found = (tree.apply(forest, x), tree.predict(forest, x), tree.vote_shares(forest, x))
    yield "tree", digest(found, tree.importance(forest), tree.importance(forest, by="gain"))
    near = tree.proximity(forest, x, max_neighbors=9)
    yield "proximity", digest(near.indptr, near.indices, near.data)
    trees = grow(x, task.targets, 10, task="regression", min_samples_leaf=5, rng=3)
    leaves = tree.leaf_targets(trees, x, task.targets)
    yield "quantiles", digest(tree.quantiles(trees, leaves, x, [0.1, 0.5, 0.9]))
    yield "permutation", digest(tree.permutation_importance(forest, x, y, rng=0))
    oblique = grow(x, y, 20, projections=project.sparse_distribution(x.shape[1]), rng=7)
    found = (tree.apply(oblique, x), tree.predict(oblique, x), tree.importance(oblique, by="gain"))
    yield "oblique", digest(found)


def of_co2(task: Task) -> Results:
    """Yields stumps, surrogates and the search of settings."""
    dtype, y = task.x.dtype, task.labels
    x = np.concatenate([task.x, -np.ones((500, 1), dtype)], axis=1)
    w, zeros, ones = np.zeros(13, dtype), np.zeros(3, dtype), np.ones(3, dtype)
    w[0] = 1
    yield "stump", digest(co2.fit_stump(x, y, w, n_classes=3, rng=0))
    settings = co2.StumpSettings(
        tau=3, batch_size=32, momentum=0.5, convex_rounds=1, min_steps=5, patience=2, decay=0.3,
        tolerance=1e-2, smooth=0.1,
    )  # fmt: skip
    stump = co2.fit_stump(x, y, w, n_classes=3, nu=4.0, lr=0.1, max_rounds=7, stump=settings, rng=0)
    yield "stump settings", digest(*stump)
    forest = grow(task.x, y, 2, n_classes=3, rng=0)
    yield "refine", digest(co2.refine(forest, task.x, y, max_rounds=3, rng=0))
    yield "fit oc1", digest(co2.fit_oc1(x, y, w, n_classes=3, rng=0))
    value = co2.surrogate(x, y, w, zeros, ones)
    yield "surrogate", digest(np.array(value), *co2.surrogate_grad(x, y, w, zeros, ones))
    plain: Any = {"nu": [1, 10], "lr": [0.1], "max_features": [2, 4]}
    further = {name: a for name, a in PAPER.items() if name not in ("nu", "lr")}
    trials = co2.search(task.x, y, 2, held_out=0.2, settings=further, rng=3, **plain)
    yield "search", digest(*trials)


def of_cascade(task: Task) -> Results:
    """Yields cascades and scanners."""
    x, y = task.x, task.labels
    growers = [partial(grow, n_trees=5), partial(grow, n_trees=5, **RANDOM)]
    grown = cascade.grow(x, y, growers, rng=0)
    forests = [forest for level in grown.levels for forest in level]
    yield "cascade", digest(cascade.predict(grown, x), np.array(grown.scores), *forests)
    grown = cascade.grow(x, y, [partial(grow, n_trees=9)], class_vectors="out_of_bag", rng=0)
    yield "cascade out of bag", digest(cascade.predict(grown, x), np.array(grown.scores))
    scanner, vectors = cascade.grow_scanner(x, y, (3, 4), 2, [partial(grow, n_trees=3)], rng=0)
    yield "scanner", digest(vectors, cascade.scan_vectors(scanner, x), *scanner.forests)


def of_parts(task: Task) -> Results:
    """Yields projections, splits, simulations, optimisers and layers."""
    x, y = task.x, task.labels
    distributions = {
        "axis": project.axis_distribution(12),
        "sparse": project.sparse_distribution(12),
        "patch": project.patch_distribution((3, 4), patch_max=2),
        "probe": project.probe_distribution(12),
    }
    distributions["views"] = project.grouped_distribution(
        distributions["sparse"], [range(9, 12), range(9)], [1, 3]
    )
    for kind, distribution in distributions.items():
        drawn = project.sample(distribution, 40, dtype=x.dtype, rng=0)
        yield f"project {kind}", digest(*drawn, project.project(x, *drawn))
    values = np.ascontiguousarray(x.T)
    weight = task.weights["whole"]
    found = split.best_split(values, y, sample_weight=weight, n_classes=3, criterion="entropy")
    yield "best split", digest(np.array(found))
    found = split.best_split(values, task.targets, task="regression", max_bins=16)
    yield "best split bins", digest(np.array(found))
    yield "impurity", digest(split.impurity(abs(x), "gini"), split.impurity(abs(x), "entropy"))
    for name in ("circle", "bars", "impulse"):
        yield f"simulate {name}", digest(*getattr(demo, f"simulate_{name}")(20, dtype=x.dtype, rng=0))
    param, grad, h = x.copy(), np.roll(x, 1), np.zeros_like(x)
    optim.adagrad(param, grad, h, 0.1)
    rows = np.array([1, 5, 70])
    m, v, last = np.zeros_like(x), np.zeros_like(x), np.zeros(500, np.int64)
    for step in range(1, 40):
        optim.adam_rows(param, rows + step, grad[:3].copy(), m, v, last, step, 0.01)
    optim.adam_catch_up(param, m, v, last, 60, 0.01)
    yield "optim", digest(param, h, m, v, last)
    loss, grad = layers.softmax_loss(x, y)
    images, kernels = x.reshape(500, 3, 4), np.ones((2, 2, 2), x.dtype)
    yield "layers", digest(np.array(loss), grad, layers.conv2d(images, kernels, 1))


def digits() -> Results:
    """Yields forests and networks on the digits that the package contains."""
    data = demo.load_digits()
    x, y = data.x_train, data.y_train
    patches = project.patch_distribution((8, 8), patch_max=4)
    yield "digits exact", digest(grow(x, y, 10, rng=0))
    yield "digits binned", digest(grow(samples(x, max_bins=256), y, 10, rng=0))
    yield (
        "digits patches",
        digest(grow(x, y, 10, projections=patches, rng=0)),
    )
    yield "digits sparse", digest(grow(x, y, 10, projections=project.sparse_distribution(64), rng=0))
    yield "digits co2", digest(co2.grow(x / 16, y, 3, **PAPER, rng=0))
    looks = ("step", "loss", "error")
    arrays = (data.x_train, data.y_train, data.x_test, data.y_test)
    sizes: Any = {"n_trees": 30, "n_features": 40, "steps": 100, "eval_every": 100}
    for kind in ("tree", "fern"):
        config = demo.Config(kind=kind, **sizes)
        state = demo.start(config, 64, 10)
        history = demo.train(config, state, *arrays)
        states = [state[name] for name in sorted(state) if not name.startswith("history")]
        yield f"digits network {kind}", digest(*[history[name] for name in looks], *states)
    config = demo.Config(kind="tree", optimizer="adagrad", lr=0.05, **sizes)
    history = demo.train(config, demo.start(config, 64, 10), *arrays)
    yield "digits network adagrad", digest(*[history[name] for name in looks])
