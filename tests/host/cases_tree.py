"""Cases of `hforest.tree`: trees of every depth, with and without projections, sound and broken."""

from collections.abc import Iterator

import numpy as np

from hforest import tree

from .case import Case, scaled

# samples, trees, depth, features, outputs
SHAPES = ((1, 1, 0, 1, 1), (40, 3, 2, 3, 2), (130, 9, 5, 4, 3))


def _forest(shape: tuple[int, ...], oblique: bool, dtype: type, scale: float = 0.25) -> tree.Forest:
    # Complete trees: in breadth-first order, the children of v are 2 v + 1 and 2 v + 2.
    _, n_trees, depth, n_features, n_outputs = shape
    rng = np.random.default_rng(depth)
    n_nodes, n_leaves = n_trees * (2 ** (depth + 1) - 1), n_trees * 2**depth
    in_tree = np.tile(np.arange(2 ** (depth + 1) - 1), n_trees)
    leaf = in_tree >= 2**depth - 1
    feature = np.where(leaf, -1, -2 if oblique else rng.integers(0, n_features, n_nodes))
    counts = np.where(leaf | (not oblique), 0, rng.integers(0, 4, n_nodes))
    return tree.Forest(
        n_features=np.array(n_features),
        tree_start=np.arange(n_trees + 1) * (2 ** (depth + 1) - 1),
        feature=feature.astype(np.int32),
        threshold=scaled(rng.integers(-4, 5, n_nodes), scale, dtype),
        left=np.where(leaf, in_tree - (2**depth - 1), 2 * in_tree + 1).astype(np.int32),
        value=rng.random((n_leaves, n_outputs)).astype(dtype),
        gain=rng.random(n_nodes).astype(dtype),
        indptr=np.concatenate([[0], np.cumsum(counts)]) if oblique else np.zeros(0, np.int64),
        indices=rng.integers(0, n_features, counts.sum()).astype(np.int32),
        data=rng.choice([-1, 1], counts.sum()).astype(dtype),
    )


def _results(shape: tuple[int, ...], oblique: bool, scale: float, dtype: type) -> dict[str, np.ndarray]:
    forest = _forest(shape, oblique, dtype, scale)
    x = scaled(np.random.default_rng(1).integers(-4, 5, (shape[0], shape[3])), scale, dtype)
    functions = (tree.apply, tree.predict, tree.vote_shares)
    return {function.__name__: function(forest, x) for function in functions}


def _known(shape: tuple[int, ...], oblique: bool, dtype: type) -> dict[str, np.ndarray]:
    # Missing values, and without projections sets of 0 to 2 words at splits.
    rng, forest = np.random.default_rng(2), _forest(shape, oblique, dtype)
    n_nodes = len(forest.feature)
    n_words = np.where((forest.feature >= 0) & (not oblique), rng.integers(0, 3, n_nodes), 0)
    forest = forest._replace(
        default_left=rng.integers(0, 4, n_nodes).astype(np.uint8),
        category_indptr=np.zeros(0, np.int64) if oblique else np.concatenate([[0], np.cumsum(n_words)]),
        category_bits=rng.integers(0, 2**32, 0 if oblique else n_words.sum(), np.uint32),
    )
    x = rng.integers(-4, 80, (shape[0], shape[3])).astype(dtype)
    x[rng.random(x.shape) < 0.3] = np.nan
    return {function.__name__: function(forest, x) for function in (tree.apply, tree.predict)}


def _broken(shape: tuple[int, ...], dtype: type) -> tree.Forest:
    forest = _forest(shape, True, dtype)
    for name in ("left", "indices"):
        getattr(forest, name)[-3:] = 99
    return forest


def _two_parents(shape: tuple[int, ...], dtype: type) -> tree.Forest:
    forest = _forest(shape, False, dtype)
    forest.left[2] = forest.left[1]
    return forest


def _fault(forest: tree.Forest) -> dict[str, np.ndarray]:
    try:
        tree.check(forest)
    except IndexError as error:
        return {"fault": np.frombuffer(str(error).encode(), np.uint8)}
    return {}


def cases(dtype: type) -> Iterator[Case]:
    """Every shape with features and with projections, and two broken forests."""
    for shape in SHAPES:
        for oblique in (False, True):
            name = (
                f"{'projections' if oblique else 'features'} n={shape[0]} trees={shape[1]} depth={shape[2]}"
            )
            for scale in (1 / 4, 0):
                yield Case(
                    f"{name} times {scale:g}", lambda s=shape, o=oblique, f=scale: _results(s, o, f, dtype)
                )
            yield Case(f"missing values, {name}", lambda s=shape, o=oblique: _known(s, o, dtype))
    yield Case("broken", lambda: _fault(_broken(SHAPES[-1], dtype)))
    yield Case("two parents", lambda: _fault(_two_parents(SHAPES[-1], dtype)))
