"""Each scorer and each vector body is taken by a public call on its path, and none on another path."""

import platform
import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from hforest import co2, growth, hinge, neural, optim, project, tree
from hforest.core import machine

if machine._bodies_taken() is None:
    pytest.skip(
        "bodies are counted in bounds-checked builds alone (HFOREST_DEBUG=1)", allow_module_level=True
    )

PATHS = {"plain": "plain", "vector": "v16", "avx2": "v32", "avx512": "v64"}
VECTORS = re.compile(r"_(vector|avx2|avx512|v\d\d)$|transpose$")
BITS = {"f32": np.float32, "f64": np.float64}


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


class Row(NamedTuple):
    """A call and what it takes: on every path, on every path with vectors, and besides on single ones.

    {path} stands for the path, {bytes} for its name in growth.
    """

    id: str
    call: Callable[[], object]
    every: str = ""
    vectors: str = ""
    paths: dict[str, str] | None = None

    def bodies(self, path):
        names = f"{self.every} {self.vectors if path != 'plain' else ''} {(self.paths or {}).get(path, '')}"
        return set(names.format(path=path, bytes=PATHS[path]).split())


# ---------------------------------------------------------------------------------------------- hinge


def traverse(kind, dtype, n):
    t, f, _ = hinge.init(40, 5, 7, kind=kind, dtype=dtype, rng=0)
    hinge.traverse(normal(n, 7, dtype=dtype), t, f, kind=kind)


def hinge_rows():
    for bits, dtype in BITS.items():
        # Trees have no bodies of 64 bytes.
        for name, kind, n, last in (
            ("tile", "tree", 40, "avx2"),
            ("row", "tree", 3, "avx2"),
            ("fern", "fern", 40, "avx512"),
        ):
            body = f"hinge.route_{name}_{bits}_"
            bodies = {"vector": body + "vector", "avx2": body + "avx2", "avx512": body + last}
            yield Row(
                f"hinge.traverse-{kind}-{n}-{bits}", lambda kind=kind, dtype=dtype, n=n: traverse(kind, dtype, n),
                vectors="" if name == "row" else "hinge.transpose", paths=bodies,
            )  # fmt: skip


def of_margin(margin, dtype, backward):
    t, f, w = hinge.init(5, 3, 9, outputs=8, margin=margin, dtype=dtype, rng=0)
    x, leaf, r = normal(40, 9, dtype=dtype), np.zeros((40, 5), np.int32), normal(40, 5, dtype=dtype)
    if backward:
        hinge.backward(
            x[:, :8].copy(), hinge.Route(leaf, r, leaf), x, t, f, w, margin=margin, aggregate="sum"
        )
    else:
        hinge.traverse(x, t, f, margin=margin)


def margin_rows():
    # Inner products and gradients have bodies of 32 bytes alone; gradients transpose routes.
    for bits, dtype in BITS.items():
        for name, margin, bodies in (
            ("traverse", "projection", "values"),
            ("backward", "projection", "pull_x pull_features visit take"),
            ("backward", "column", "visit take"),
        ):
            taken, backward = (
                " ".join(f"hinge.{body}_{bits}_avx2" for body in bodies.split()),
                name == "backward",
            )
            yield Row(
                f"hinge.{name}-{margin}-{bits}",
                lambda margin=margin, dtype=dtype, backward=backward: of_margin(margin, dtype, backward),
                vectors="hinge.transpose" if backward else "", paths={"avx2": taken, "avx512": taken},
            )  # fmt: skip


# ----------------------------------------------------------------------------------------------- tree


@cache
def forest_of(full, n_trees, depth, n_features, n_outputs, dtype):
    """Returns equal trees: full ones, or chains of right children, which samples leave on all levels."""
    v = np.arange((2 << depth) - 1 if full else 2 * depth + 1)
    split = v < len(v) // 2 if full else (v % 2 == 0) & (v < len(v) - 1)
    # Breadth-first: the children of split k are nodes 2 k + 1 and 2 k + 2.
    left = np.where(split, 2 * np.cumsum(split) - 1, np.cumsum(~split) - 1).astype(np.int32)
    feature = np.where(split, v % n_features if full else 0, -1).astype(np.int32)
    threshold = (normal(len(v)) if full else np.linspace(-3, 3, len(v))).astype(dtype) * split
    value = np.random.default_rng(0).dirichlet(np.ones(n_outputs), n_trees * (~split).sum()).astype(dtype)
    none = np.zeros(0, np.int64)
    return tree.Forest(
        np.array(n_features), np.arange(n_trees + 1) * len(v),
        *(np.tile(a, n_trees) for a in (feature, threshold, left)),
        value, np.zeros(n_trees * len(v), dtype), none, none.astype(np.int32), none.astype(dtype),
    )  # fmt: skip


def predict(dtype, full, n_trees, depth, *, n=64, n_features=5, n_outputs=20, gathers=False):
    before = machine.gathers()
    machine.set_gathers(gathers)
    tree.predict(
        forest_of(full, n_trees, depth, n_features, n_outputs, dtype), normal(n, n_features, dtype=dtype)
    )
    machine.set_gathers(before)


def tree_rows():
    for bits, dtype, form, small in (
        ("f32", np.float32, "floats", "small"),
        ("f64", np.float64, "doubles", "doubles"),
    ):
        enter = {path: f"tree.enter_{form}_{path}" for path in ("vector", "avx2", "avx512")}
        if form == "doubles" and platform.machine() in ("x86_64", "AMD64"):
            enter["vector"] = ""  # SSE2 has no comparison of 64 bits
        of_rows = dict.fromkeys(PATHS, "tree.walk_packed")
        if form == "floats":
            of_rows["avx512"] = "tree.walk_small"
        # The places of 8200 features in columns have no 16 bits.
        for name, every, paths, forest, sizes in (
            ("columns", f"tree.advance_group_{small}", enter, (True, 10, 6), {}),
            ("chain", f"tree.advance_group_{small} tree.advance_each_{small}", enter, (False, 1, 100), {}),
            ("wide", f"tree.advance_group_{form} tree.advance_each_{form}", enter, (False, 128, 255), {"n_features": 8200}),
            ("rows", "", of_rows, (True, 1, 3), {"n_features": 40}),
            ("few", "tree.walk_trees", {}, (True, 10, 6), {"n": 3}),
        ):  # fmt: skip
            yield Row(
                f"tree.predict-{name}-{bits}",
                lambda dtype=dtype, forest=forest, sizes=sizes: predict(dtype, *forest, **sizes), every, paths=paths,
            )  # fmt: skip
    columns = {path: f"tree.advance_group_small tree.enter_floats_{path}" for path in ("vector", "avx2")}
    columns["plain"] = "tree.advance_group_small"
    for n_outputs, body in ((2, "two"), (7, "eight"), (13, "more")):
        of_gathers = {**columns, "avx512": f"tree.walk_small tree.add_{body}_avx512"}
        yield Row(
            f"tree.predict-gathers-{n_outputs}",
            lambda n_outputs=n_outputs: predict(
                np.float32, True, 10, 6, n_features=41, n_outputs=n_outputs, gathers=True
            ),
            paths=of_gathers,
        )
    yield Row(
        "tree.predict-gathers-large",
        lambda: predict(np.float32, True, 1, 16, n=4200, gathers=True),
        paths={path: names.replace("small", "floats") for path, names in columns.items()} | {"avx512": "tree.walk_large"},
    )  # fmt: skip


# --------------------------------------------------------------------------------------- neural, optim


def neural_rows():
    for bits, dtype in BITS.items():
        f, y = normal(40, 3, 7, dtype=dtype), np.arange(40) % 4
        leaves, grad = neural.uniform_leaves(3, 3, 4, dtype=dtype), normal(40, 4, dtype=dtype)
        pick = {path: f"neural.pick_{path}" for path in ("avx2", "avx512") if bits == "f32"}
        for name, tile, call, paths in (
            ("route", "route_tile", lambda f=f: neural.route(f), {}),
            ("forward", "forward_tile", lambda f=f, p=leaves: neural.forward(f, p), {}),
            ("loss_backward", "labels_tile", lambda f=f, p=leaves, y=y: neural.loss_backward(f, p, y), pick),
            ("backward", "outputs_tile", lambda f=f, p=leaves, g=grad: neural.backward(g, f, p), {}),
            ("update_leaves", "expect_tile", lambda f=f, p=leaves, y=y: neural.update_leaves(f, y, p, 2), {}),
        ):
            every = f"neural.{tile}_{bits}_{{path}}"
            if name == "loss_backward":
                every += f" neural.multiply_{bits}_{{path}}"
            yield Row(f"neural.{name}-{bits}", call, every, paths=paths)


def catch_up(dtype):
    param, m, v = (np.ones((9, 3), dtype) for _ in range(3))
    optim.adam_catch_up(param, m, v, np.zeros(9, np.int64), 9, 0.1)


def optim_rows():
    for bits, dtype in BITS.items():
        a = normal(20, dtype=dtype)
        step = lambda a=a: optim.adam(a, a.copy(), 0 * a, 0 * a, 1, 0.1)  # noqa: E731
        yield Row(f"optim.adam-{bits}", step, vectors=f"optim.adam_step_{bits}_{{path}}")
        yield Row(
            f"optim.adam_catch_up-{bits}",
            lambda dtype=dtype: catch_up(dtype),
            vectors=f"optim.adam_pass_{bits}_{{path}}",
        )


# --------------------------------------------------------------------------------------------- growth


@cache
def learned(n, whole):
    x, noise = normal(n, 6), np.random.default_rng(1).normal(size=n)
    return np.round(3 * x) if whole else x, (x[:, 0] > 0).astype(int) + (x[:, 1] + noise > 0)


def grow(max_bins, n=800, *, y=None, **settings):
    x, classes = learned(n, False)
    growth.grow(growth.encode(x, max_bins=max_bins), classes if y is None else y, 2, rng=0, **settings)


def grow_projected(n, whole, max_depth=None):
    sparse = project.sparse_distribution(6)
    growth.grow_projected(*learned(n, whole), 2, sparse, n_projections=4, max_depth=max_depth, rng=0)


def growth_rows():
    def vectors(names):
        return " ".join(f"growth.{name}_{{bytes}}" for name in names.split())

    bounded = "find_range fill_buckets sum_buckets rate find_alive"
    sums = "find_range fill_buckets sum_buckets rate"
    of_values = "growth.sorted_scan growth.pairs_of_values"
    yield Row(
        "growth.grow-bins", lambda: grow(64), "growth.histogram",
        "growth.pairs " + vectors("sum_pairs rate_pairs sum_bins rate"), {"plain": "growth.sorted_scan"},
    )  # fmt: skip
    yield Row(
        "growth.grow-exact",
        lambda: grow(None),
        f"growth.bounds {of_values}",
        vectors(bounded + " sum_values"),
    )
    for name, whole, scorer, bodies in (
        ("reals", False, "bounds", bounded),
        ("whole", True, "exact_histogram", sums),
    ):
        yield Row(
            f"growth.grow_projected-{name}", lambda whole=whole: grow_projected(800, whole),
            f"growth.{scorer} {of_values}", vectors(bodies + " sum_values"),
        )  # fmt: skip
        yield Row(
            f"growth.grow_projected-large-{name}", lambda whole=whole: grow_projected(40_000, whole, 1),
            f"growth.wide_{scorer}", vectors("find_range fill_buckets"),
        )  # fmt: skip
    # Real weights and targets are scored in float64, in the order of the samples.
    weights, targets = np.random.default_rng(2).random(800), np.random.default_rng(3).normal(size=800)
    yield Row("growth.grow-weights", lambda: grow(64, sample_weight=weights), "growth.sorted_scan")
    yield Row("growth.grow-targets", lambda: grow(64, y=targets, task="regression"), "growth.sorted_scan")


# ------------------------------------------------------------------------------------------------ co2


def fit_stump(dtype):
    x, y = normal(100, 20, dtype=dtype), np.arange(100) % 3
    co2.fit_stump(x, y, normal(20, dtype=dtype), n_classes=3, rng=0)


def co2_rows():
    for bits, dtype in BITS.items():
        bodies = {
            path: f"co2.dots_{bits}_{name} co2.add_rows_{bits}_{name}"
            for path, name in PATHS.items()
            if path in ("avx2", "avx512")
        }
        yield Row(f"co2.fit_stump-{bits}", lambda dtype=dtype: fit_stump(dtype), paths=bodies)


ROWS = [
    *co2_rows(),
    *hinge_rows(),
    *margin_rows(),
    *tree_rows(),
    *neural_rows(),
    *optim_rows(),
    *growth_rows(),
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_bodies_are_taken(simd, row, path):
    if path not in machine.simd_paths():
        pytest.skip(f"this build and processor have no {path} path")
    simd(path)
    before = machine._bodies_taken()
    row.call()
    taken = {name for name, count in machine._bodies_taken().items() if count > before.get(name, 0)}
    assert taken == row.bodies(path)
    assert path != "plain" or not [name for name in taken if VECTORS.search(name)]
