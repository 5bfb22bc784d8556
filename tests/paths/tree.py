"""Rows of `hforest.tree`."""

from functools import cache

import numpy as np

import hforest
from hforest import tree

from . import Row, normal


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


def predict(dtype, full, n_trees, depth, *, n=64, n_features=5):
    tree.predict(forest_of(full, n_trees, depth, n_features, 20, dtype), normal(n, n_features, dtype=dtype))


def projecting(forest, n_entries, n_features):
    """Returns the forest with projections of that many features in place of its splits."""
    split = forest.feature >= 0
    indptr = np.concatenate([[0], np.cumsum(n_entries * split)])
    indices = (np.arange(indptr[-1]) % n_features).astype(np.int32)
    return forest._replace(
        feature=np.where(split, -2, -1).astype(np.int32), indptr=indptr, indices=indices,
        data=np.ones(len(indices), forest.threshold.dtype),
    )  # fmt: skip


def predict_windows(dtype, n_entries, n_features):
    """Predicts windows of 3 trees of depth 3, by projections of that many features, by features if 0."""
    forest = forest_of(True, 3, 3, n_features, 20, dtype)
    if n_entries:
        forest = projecting(forest, n_entries, n_features)
    x = normal(4, n_features, dtype=dtype)
    tree.predict(forest, hforest.samples(x, windows=(np.arange(64), np.arange(n_features))))


def predict_prepared(dtype, n_trees, depth, n, n_features):
    forest = tree.prepare(forest_of(True, n_trees, depth, n_features, 20, dtype))
    tree.predict(forest, normal(n, n_features, dtype=dtype))


def predict_projected(dtype, n_entries):
    forest = tree.prepare(projecting(forest_of(True, 10, 6, 40, 20, dtype), n_entries, 40))
    tree.predict(forest, normal(1, 40, dtype=dtype))


def shap_values(dtype):
    tree.shap_values(
        forest_of(True, 10, 6, 5, 2, dtype), normal(9, 5, dtype=dtype), cover=normal(3, 5, dtype=dtype)
    )


def rows():
    for bits, dtype in (("f32", np.float32), ("f64", np.float64)):
        yield Row(
            f"tree.shap_values-{bits}", lambda dtype=dtype: shap_values(dtype), "tree.walk_trees",
            "tree.edge_enter_{path} tree.edge_leave_{path} tree.edge_add_leaf_{path}",
        )  # fmt: skip
        # Of 2**16 features and more places in a row have no 16 bits.
        for name, sizes in (("one", (10, 6, 1, 5)), ("some", (10, 9, 40, 5)), ("wide", (2, 3, 1, 1 << 16))):
            yield Row(
                f"tree.predict-prepared-{name}-{bits}",
                lambda dtype=dtype, sizes=sizes: predict_prepared(dtype, *sizes), "tree.walk_row",
            )  # fmt: skip
    for bits, dtype, form, small, n_chains in (
        ("f32", np.float32, "floats", "small", 1300),
        ("f64", np.float64, "doubles", "doubles", 2600),
    ):
        enter = {"avx512": "tree.enter_avx512"} if form == "floats" else {}
        yield Row(
            f"tree.predict-windows-{bits}",
            lambda dtype=dtype: predict_windows(dtype, 0, 40),
            "tree.walk_packed",
        )
        for n_entries, walks in (
            (2, "tree.walk_projections"), (3, "tree.walk_projections"), (5, "tree.walk_projections"), (36, "tree.walk_projections tree.walk_long"),
        ):  # fmt: skip
            yield Row(
                f"tree.predict-windows-{n_entries}-{bits}",
                lambda dtype=dtype, n_entries=n_entries: predict_windows(dtype, n_entries, 40), walks,
            )  # fmt: skip
        for n_entries in (2, 4, 5):
            yield Row(
                f"tree.predict-prepared-projections-{n_entries}-{bits}",
                lambda dtype=dtype, n_entries=n_entries: predict_projected(dtype, n_entries), "tree.project_row",
            )  # fmt: skip
        # The places of 8200 features in columns have no 16 bits.
        for name, every, paths, forest, sizes in (
            ("columns", f"tree.advance_group_{small}", enter, (True, 10, 6), {}),
            ("chain", f"tree.advance_group_{small} tree.advance_each_{small}", enter, (False, 2, 100), {"n": 256}),
            ("wide", f"tree.advance_group_{form} tree.advance_each_{form}", enter, (False, n_chains, 100), {"n": 128, "n_features": 8200}),
            ("rows", "tree.walk_packed", {}, (True, 1, 3), {"n_features": 40}),
            ("few", "tree.walk_trees", {}, (True, 10, 6), {"n": 3}),
        ):  # fmt: skip
            yield Row(
                f"tree.predict-{name}-{bits}",
                lambda dtype=dtype, forest=forest, sizes=sizes: predict(dtype, *forest, **sizes), every, paths=paths,
            )  # fmt: skip
