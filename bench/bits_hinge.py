"""Parts of bits.py on hinge: operators, training steps, functions of routes, and starts.

Results have the names of cases (kind, margin, windows, aggregate), not of functions. So hashes from before
and after a change of names can be compared. The names of functions occur once, below.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from digests import Results, Task, digest

from hforest import classic, hinge, manifold

Arrays = tuple[np.ndarray, ...]
Aggregate = Literal["sum", "mean"] | None


class Case(NamedTuple):
    """A case of a hinge forest: the kind, the margin, and the windows of images, if any."""

    kind: Literal["tree", "fern"]
    margin: Literal["column", "projection"] = "column"
    windows: Mapping[str, Any] = {}
    """kernel_size, stride, padding, dilation; empty without windows."""


# --------------------------------------------------- names of hinge's functions, and the order of arguments


def _words(case: Case) -> dict[str, Any]:
    windows = hinge.Windows(**case.windows) if case.windows else None
    return {"kind": case.kind, "margin": case.margin, "windows": windows}


def init(case: Case, *sizes: Any, **settings: Any) -> hinge.Parameters:
    """Returns the start of a forest of columns; `parameters` draws vectors for the other margin."""
    return hinge.init(*sizes, kind=case.kind, **settings)


def traverse(case: Case, x: np.ndarray, p: Arrays) -> hinge.Route:
    """Leaves, margins and vertices."""
    return hinge.traverse(x, *p[:2], **_words(case))


def forward(case: Case, x: np.ndarray, p: Arrays, aggregate: Aggregate) -> np.ndarray:
    """Returns outputs."""
    return hinge.forward(x, *p, **_words(case), aggregate=aggregate)


def forward_with_route(
    case: Case, x: np.ndarray, p: Arrays, aggregate: Aggregate
) -> tuple[np.ndarray, hinge.Route]:
    """Returns outputs and the route."""
    return hinge.forward_with_route(x, *p, **_words(case), aggregate=aggregate)


def gradients(
    case: Case, grad_y: np.ndarray, route: hinge.Route, x: np.ndarray, p: Arrays, aggregate: Aggregate,
    sparse: bool,
) -> dict[str, Any]:  # fmt: skip
    """Returns gradients by name of argument: arrays, or with `sparse` rows for all but x."""
    run = hinge.backward_sparse if sparse else hinge.backward
    by = run(grad_y, route, x, *p, **_words(case), aggregate=aggregate)._asdict()
    return {{"features": "vectors"}.get(name, name): a for name, a in by.items() if a is not None}


def adam_step(
    case: Case, x: np.ndarray, target: float, p: Arrays, state: hinge.AdamState, step: int, aggregate: str
) -> tuple[np.ndarray, np.ndarray]:
    """Takes a fused step towards a target; returns y and the gradient with respect to x."""
    words: Any = {**_words(case), "aggregate": aggregate}
    t, f, w = p
    y, route = hinge.adam_forward(x, t, f, w, state, step, 0.01, **words)
    return y, hinge.adam_backward(y - y.dtype.type(target), route, x, t, f, w, state, step, 0.01, **words)


def median_thresholds(case: Case, x: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Returns thresholds at medians of samples."""
    return hinge.median_thresholds(x, features, kind=case.kind)


def from_oblique_forest(*arguments: Any, **settings: Any) -> Any:
    """Returns kernel, parameters and intercept."""
    parameters, intercept, kernel = hinge.from_forest(*arguments, kernel=True, **settings)
    return kernel, parameters, intercept


thresholds_consistent, repair_thresholds = hinge.thresholds_consistent, hinge.repair_thresholds
from_forest = hinge.from_forest
adam_state, adam_sync = hinge.adam_state, hinge.adam_sync
leaf_rows, leaf_counts, leaf_path = hinge.leaf_rows, hinge.leaf_counts, hinge.tree_path
leaf_outputs, fit_weights = hinge.leaf_outputs, hinge.fit_weights


# ----------------------------------------------------------------------------------------------- operators

KINDS: tuple[Literal["tree", "fern"], ...] = ("tree", "fern")
AGGREGATES: tuple[Aggregate, ...] = (None, "sum", "mean")
WINDOWS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "1 axis": ((20, 3, 17), {"kernel_size": 5}),
    "1 axis strided padded dilated": (
        (20, 3, 17),
        {"kernel_size": 4, "stride": 2, "padding": 3, "dilation": 2},
    ),
    "2 axes": ((8, 2, 9, 10), {"kernel_size": (3, 2)}),
    "2 axes strided padded dilated": (
        (8, 2, 9, 10),
        {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 2), "dilation": (1, 3)},
    ),
    "3 axes strided padded": ((3, 2, 5, 4, 6), {"kernel_size": 2, "stride": 2, "padding": 1}),
}
"""The shape of images, and windows on them."""


class Problem(NamedTuple):
    """A forest and its samples."""

    name: str
    case: Case
    x: np.ndarray
    p: Arrays
    """thresholds, columns or vectors, weights."""
    aggregates: tuple[Aggregate, ...] = AGGREGATES


def parameters(case: Case, n_features: int, dtype: Any, n_trees: int, depth: int, *outputs: int) -> Arrays:
    """Returns thresholds, columns or vectors, and weights of a start."""
    t, f, w = init(case, n_trees, depth, n_features, outputs, dtype=dtype, rng=1)
    if case.margin == "column":
        return t, f, w
    return t, np.random.default_rng(2).normal(size=(*t.shape, n_features)).astype(dtype), w


def problems(x: np.ndarray) -> Iterator[Problem]:
    """Yields forests of both kinds and all margins on samples (500, 12), and on images."""
    dtype = x.dtype
    # Margins of 0, equal margins; thresholds that all samples or none pass.
    whole = np.round(2 * x[:101])
    for kind in KINDS:
        for case in (Case(kind), Case(kind, "projection")):
            name = f"hinge {kind} {case.margin}"
            yield Problem(name, case, x, parameters(case, 12, dtype, 20, 6, 3))
            some: tuple[Aggregate, ...] = (None, "sum")
            yield Problem(f"{name} one sample", case, x[:1], parameters(case, 12, dtype, 7, 3), some)
            two = parameters(case, 12, dtype, 3, 1, 2, 5)
            yield Problem(f"{name} matrix outputs", case, x[:37], two, some)
            deep = parameters(case, 12, dtype, 2, 11, 17)
            yield Problem(f"{name} deep", case, x[:61], deep, some)
            t, f, w = parameters(case, 12, dtype, 9, 4, 2)
            t = np.round(t)
            t[::2, 1], t[1::2, 2] = np.inf, -np.inf
            f = f if case.margin == "column" else np.round(f)
            yield Problem(f"{name} ties", case, whole, (t, f, w), some)
        for word, (shape, windows) in WINDOWS.items():
            case = Case(kind, "column", windows)
            images = np.random.default_rng(3).normal(size=shape).astype(dtype)
            size = windows["kernel_size"]
            n_places = np.prod(size) if isinstance(size, tuple) else size ** (len(shape) - 2)
            p = parameters(case, shape[1] * int(n_places), dtype, 6, 4, 3)
            yield Problem(f"hinge {kind} windows {word}", case, images, p)


def of_hinge(task: Task) -> Results:
    """Routes, outputs and gradients of every kind, margin, aggregate and form of gradients."""
    for name, case, x, p, aggregates in problems(task.x):
        route = traverse(case, x, p)
        for field in ("leaf", "margin", "vertex"):
            yield f"{name} route {field}", digest(getattr(route, field))
        for aggregate in aggregates:
            key = f"{name} {aggregate or 'apart'}"
            y = forward(case, x, p, aggregate)
            yield f"{key} forward", digest(y)
            yield f"{key} forward with route", digest(*forward_with_route(case, x, p, aggregate))
            for word in ("dense", "sparse"):
                by = gradients(case, y, route, x, p, aggregate, word == "sparse")
                for of, gradient in by.items():
                    yield f"{key} {word} gradient of {of}", digest(gradient)


# -------------------------------------------------------------------------------------- steps, maps, starts


def of_steps(task: Task) -> Results:
    """Yields fused steps of Adam, before and after the missed steps of all rows."""
    for kind in KINDS:
        case = Case(kind)
        for word, sizes in (("", (20, 6, 3)), (" deep", (3, 11)), (" matrix outputs", (5, 3, 2, 3))):
            for aggregate in ("sum", "mean"):
                p = tuple(a.copy() for a in parameters(case, 12, task.x.dtype, *sizes))
                state = adam_state(p[0], p[2])
                for step in range(1, 30):
                    y, grad_x = adam_step(case, task.x[step : step + 50], 1.0, p, state, step, aggregate)
                key = f"hinge {kind} column{word} {aggregate} fused steps"
                yield f"{key} forward", digest(y)
                yield f"{key} gradient of x", digest(grad_x)
                yield f"{key} parameters and state", digest(p, state[:6])
                adam_sync(p[0], p[2], state, 29, 0.01)
                yield f"{key} parameters and state after missed steps", digest(p, state[:6])


def of_leaf_maps(task: Task) -> Results:
    """Yields functions of routes: rows, counts and paths of leaves, outputs, fitted weights."""
    x = task.x
    for kind in KINDS:
        case, key = Case(kind), f"hinge {kind} leaves"
        p = parameters(case, 12, x.dtype, 20, 6, 3)
        leaf, margin, _ = traverse(case, x, p)
        yield f"{key} rows", digest(leaf_rows(leaf, 64))
        yield f"{key} counts", digest(leaf_counts(leaf, 64))
        if kind == "tree":
            yield f"{key} path", digest(*leaf_path(leaf, p[1]))
        for aggregate in AGGREGATES:
            y = leaf_outputs(leaf, margin, p[2], aggregate=aggregate)
            yield f"{key} outputs {aggregate or 'apart'}", digest(y)
        yield f"{key} weights fitted to labels", digest(*fit_weights(leaf, margin, task.labels, 64))
        more: Any = {"l2": 0.1, "tolerance": 1e-3, "task": "regression"}
        yield f"{key} weights fitted to targets", digest(*fit_weights(leaf, margin, task.targets, 64, **more))


def of_starts(task: Task) -> Results:
    """Starts: drawn, at medians, greedy, repaired, from grown forests."""
    x, y, targets = task.x, task.labels, task.targets
    for kind in KINDS:
        case, key = Case(kind), f"hinge {kind} start"
        for order in ("random", "sequential"):
            drawn = init(case, 20, 6, 12, 3, features=order, scale=0.5, dtype=x.dtype, rng=1)
            yield f"{key} drawn {order}", digest(*drawn)
        for word, samples in (("", x), (" of ties", np.round(x))):
            p = parameters(case, 12, x.dtype, 5, 4)
            yield f"{key} medians{word}", digest(median_thresholds(case, samples, p[1]))
    t, f, _ = parameters(Case("tree"), 3, x.dtype, 20, 5)
    yield "hinge tree thresholds consistent", digest(thresholds_consistent(t, f))
    yield "hinge tree thresholds repaired", digest(repair_thresholds(t, f))
    tasks: dict[Literal["classification", "regression"], np.ndarray]
    tasks = {"classification": y, "regression": targets}
    for task_name, target in tasks.items():
        grow: Any = {"max_depth": 5, "task": task_name, "rng": 0}
        columns = classic.grow(x, target, 5, **grow)
        oblique = manifold.grow(x, target, 5, projection="sparse", **grow)
        for word, goal, depth in (("targets", target, None), ("outputs", None, None), ("top", target, 3)):
            key = f"hinge tree start from forest {task_name} {word}"
            yield f"{key} columns", digest(from_forest(x, goal, columns, depth, task=task_name)[:2])
            yield f"{key} oblique", digest(from_oblique_forest(x, goal, oblique, depth, task=task_name))
