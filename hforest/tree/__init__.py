"""Grown forests as plain arrays: what they are, and how to apply, inspect, check and convert them.

A `Forest` is a tuple of arrays; it has no methods and no state. The trees' nodes lie one tree after another,
breadth-first within a tree, so that children lie behind their parent and a right child beside its left one.
`numpy.savez(file, **forest._asdict())` writes it, `check(Forest(**numpy.load(file)))` reads it back safely.

Every function looks through a forest's nodes before it walks them (about a nanosecond a node), unless it runs
inside `hforest.unchecked()`. Wrong kinds and dtypes raise TypeError, wrong shapes and values ValueError,
nodes and features out of range IndexError.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core import check as checks
from ..core import dispatch
from ..core.dispatch import Array
from . import permutation
from .convert import from_sklearn

__all__ = [
    "Forest",
    "check",
    "from_sklearn",
    "importance",
    "leaves",
    "path",
    "permutation_importance",
    "predict",
    "to_text",
    "votes",
]

_ROOM = __name__
_FAULTS = {
    1: "a leaf whose row of values lies outside its tree",
    2: "a child that does not lie behind its parent in the same tree",
    3: "a threshold that is NaN",
    4: "a feature outside 0 <= feature < n_features",
    5: "a projection outside index",
    6: "a projection with a feature outside 0 <= index < n_features",
}


class Forest(NamedTuple):
    """Trees as arrays; n_nodes and n_leaves count over all trees, `real` is float32 or float64.

    A node is a leaf where feature is -1. Else it compares feature `feature`, or where that is -2 the
    projection ``sum weight[j] * x[index[j]]`` over ``start[v] <= j < start[v + 1]``, and sends what is
    ``<= threshold`` to node `left` of the tree, the rest to node ``left + 1``. A tree of N nodes has
    (N + 1) / 2 leaves; the rows of `value` are numbered within a tree like nodes.
    """

    n_features: Array
    """() int64: features that x must have."""
    tree_start: Array
    """(n_trees + 1,) int64: first node of each tree; the last number is n_nodes."""
    feature: Array
    """(n_nodes,) int32: feature of a split, -1 of a leaf, -2 of a split by a projection."""
    threshold: Array
    """(n_nodes,) real; 0 in a leaf."""
    left: Array
    """(n_nodes,) int32: left child, numbered within the tree; in a leaf its row of values, likewise."""
    value: Array
    """(n_leaves, n_outputs) real: shares of the classes, or means."""
    gain: Array
    """(n_nodes,) real: by how much a split lowered the weighted impurity; 0 in a leaf."""
    start: Array
    """(n_nodes + 1,) int64: where projections begin; (0,) in a forest of features alone."""
    index: Array
    """(n_entries,) int32: features of the projections."""
    weight: Array
    """(n_entries,) real: their weights."""


# ------------------------------------------------------------------------------- checks of the room


def _check_layout(forest: Forest) -> np.dtype:
    """Kinds, dtypes and shapes: what costs no look at the nodes."""
    if not isinstance(forest, Forest):
        raise TypeError(
            f"forest: expected a hforest.tree.Forest, got {type(forest).__name__}; pass Forest(**arrays)"
        )
    checks.same_device(**{f"forest.{name}": a for name, a in forest._asdict().items()})
    dtype = checks.floating("forest.threshold", forest.threshold)
    sizes: checks.Sizes = {}
    checks.array("forest.n_features", forest.n_features, checks.INT64, (), sizes)
    checks.array("forest.tree_start", forest.tree_start, checks.INT64, ("n_trees + 1",), sizes)
    checks.array("forest.feature", forest.feature, checks.INT32, ("n_nodes",), sizes)
    checks.array("forest.threshold", forest.threshold, dtype, ("n_nodes",), sizes)
    checks.array("forest.left", forest.left, checks.INT32, ("n_nodes",), sizes)
    checks.array("forest.value", forest.value, dtype, ("n_leaves", "n_outputs"), sizes)
    checks.array("forest.gain", forest.gain, dtype, ("n_nodes",), sizes)
    checks.array(
        "forest.start",
        forest.start,
        checks.INT64,
        (sizes["n_nodes"] + 1 if forest.start.size else 0,),
        sizes,
    )
    checks.array("forest.index", forest.index, checks.INT32, ("n_entries",), sizes)
    checks.array("forest.weight", forest.weight, dtype, ("n_entries",), sizes)
    sizes["n_trees"] = sizes["n_trees + 1"] - 1
    checks.at_least_one(sizes, "n_trees", "n_outputs")
    if 2 * sizes["n_leaves"] != sizes["n_nodes"] + sizes["n_trees"]:
        raise ValueError(
            f"forest.value: expected (n_nodes + n_trees) / 2 = {(sizes['n_nodes'] + sizes['n_trees']) / 2:g} "
            f"rows, got {sizes['n_leaves']}; a tree of N nodes has (N + 1) / 2 leaves"
        )
    return dtype


def _check_nodes(forest: Forest) -> None:
    """What a walk trusts: no node leads out of its tree, of x or of the arrays."""
    start = dispatch.to_numpy(forest.tree_start)
    sizes = np.diff(start)
    if start[0] != 0 or start[-1] != forest.feature.size or bool(((sizes < 1) | (sizes % 2 == 0)).any()):
        raise ValueError(
            f"forest.tree_start: expected 0, ..., n_nodes = {forest.feature.size} in steps that are odd and "
            "positive, got others; a tree has one leaf more than splits"
        )
    if bool((sizes >= 2**31).any()):
        raise ValueError(
            "forest.tree_start: expected trees of less than 2**31 nodes, got a larger one; prune it"
        )
    n_features = int(forest.n_features)
    if n_features < 0:
        raise ValueError(f"forest.n_features: expected at least 0, got {n_features}; pass the columns of x")
    found = dispatch.array_module(forest.feature).empty(2, np.int64)
    dispatch.twin(_ROOM, forest.feature).faults(
        forest.tree_start, forest.feature, forest.threshold, forest.left, forest.start, forest.index,
        n_features, found,
    )  # fmt: skip
    node, fault = (int(i) for i in dispatch.to_numpy(found))
    if node >= 0:
        error = ValueError if fault == 3 else IndexError
        tree = int(np.searchsorted(start, node, side="right")) - 1
        raise error(
            f"forest: expected nodes that lead to leaves, got {_FAULTS[fault]} at node {node - start[tree]} "
            f"of tree {tree}; pass arrays of one forest, unchanged"
        )


def check(forest: Forest) -> Forest:
    """Look a forest through, as one should with one from a file.

    Parameters
    ----------
    forest : Forest
        Arrays of any origin.

    Returns
    -------
    Forest
        The same.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong kind or dtype; wrong shape, trees of an even number of nodes, thresholds that are NaN, values
        that are not finite; children that do not lie behind their parent, so that a walk could go round in
        circles, or out of their tree, features or projections out of range.

    Notes
    -----
    A forest that passes can be walked with any x of n_features columns inside `hforest.unchecked()`.
    Cost: one read of the arrays.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> forest = hforest.tree.Forest(
    ...     n_features=np.array(2), tree_start=np.array([0, 3]),
    ...     feature=np.array([1, -1, -1], np.int32), threshold=np.array([0.5, 0, 0]),
    ...     left=np.array([1, 0, 1], np.int32), value=np.array([[0.0], [4.0]]), gain=np.array([8.0, 0, 0]),
    ...     start=np.zeros(0, int), index=np.zeros(0, np.int32), weight=np.zeros(0))
    >>> forest is hforest.tree.check(forest)
    True
    """
    _check_layout(forest)
    _check_nodes(forest)
    for name in ("value", "gain", "weight"):
        checks.finite(f"forest.{name}", getattr(forest, name))
    return forest


def _check(forest: Forest, x: Array) -> np.dtype:
    dtype = _check_layout(forest)
    checks.same_device(**{"forest.feature": forest.feature, "x": x})
    sizes: checks.Sizes = {}
    checks.array("x", x, dtype, ("n_samples", "n_features"), sizes)
    # A number on a GPU is waited for; inside unchecked() the caller vouches for it.
    if isinstance(x, np.ndarray) or checks.values_checked():
        n_features = int(forest.n_features)
        if sizes["n_features"] != n_features:
            raise ValueError(
                f"x: expected shape (n_samples, n_features) = (n_samples, {n_features}), "
                f"got {tuple(x.shape)}; "
                "pass the features that the forest was grown on"
            )
    if checks.values_checked():
        _check_nodes(forest)
        checks.finite("x", x)
    return dtype


def _routing(forest: Forest) -> tuple[Array, ...]:
    return (
        *(forest.tree_start, forest.feature, forest.threshold, forest.left),
        *(forest.start, forest.index, forest.weight),
    )


def _result(x: Array, out: Array | None, dtype: np.dtype, axes: checks.Axes) -> Array:
    if out is None:
        return dispatch.array_module(x).empty(axes, dtype)
    checks.same_device(x=x, out=out)
    checks.array("out", out, dtype, axes, {})
    checks.writable("out", out)
    checks.no_overlap({"out": out}, {"x": x})
    return out


# ------------------------------------------------------------------------------------------- walks


def leaves(forest: Forest, x: Array, *, out: Array | None = None) -> Array:
    """The leaf that each sample reaches in each tree.

    Parameters
    ----------
    forest : Forest
        n_trees trees.
    x : (n_samples, n_features) array, dtype of forest.threshold
        Samples.
    out : (n_samples, n_trees) array of int32, optional
        Where to write the result.

    Returns
    -------
    (n_samples, n_trees) array of int32
        Node numbers within their trees.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong kind, dtype or device; wrong shape or layout, NaN or infinity in x; a forest that `check`
        refuses.

    Notes
    -----
    What is ``<= threshold`` goes left. A projection is summed in float64 in its order and rounded once to the
    dtype of x. Cost: a few nanoseconds a level, sample and tree.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.classic.grow(x, np.array([0, 1, 1], np.int32), 1, bootstrap=False, rng=0)
    >>> hforest.tree.leaves(forest, x).ravel()
    array([1, 2, 2], dtype=int32)
    """
    _check(forest, x)
    leaf = _result(x, out, checks.INT32, (x.shape[0], forest.tree_start.size - 1))
    if leaf.size:
        dispatch.twin(_ROOM, x).leaves(x, *_routing(forest), leaf)
    return leaf


def _predict(forest: Forest, x: Array, vote: bool, out: Array | None) -> Array:
    dtype = _check(forest, x)
    y = _result(x, out, dtype, (x.shape[0], forest.value.shape[1]))
    if y.size:
        dispatch.twin(_ROOM, x).predict(x, *_routing(forest), forest.value, vote, y)
    return y


def predict(forest: Forest, x: Array, *, out: Array | None = None) -> Array:
    """Leaf values, averaged over trees: class probabilities, or regression means.

    Parameters
    ----------
    forest : Forest
        n_outputs classes or targets.
    x : (n_samples, n_features) array, dtype of forest.threshold
        Samples.
    out : (n_samples, n_outputs) array, dtype of x, optional
        Where to write the result.

    Returns
    -------
    (n_samples, n_outputs) array, dtype of x
        Means over trees.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong kind, dtype or device; wrong shape or layout, NaN or infinity in x; a forest that `check`
        refuses.

    Notes
    -----
    Means are summed in float64 in the order of the trees and rounded once. Cost: that of `leaves`, and
    n_outputs additions a sample and tree. For single samples check the forest once and predict inside
    `hforest.unchecked()`: looking a large forest through takes longer than walking it.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.classic.grow(x, np.array([0, 1, 1], np.int32), 1, bootstrap=False, rng=0)
    >>> hforest.tree.predict(forest, x)
    array([[1., 0.],
           [0., 1.],
           [0., 1.]])
    """
    return _predict(forest, x, False, out)


def votes(forest: Forest, x: Array, *, out: Array | None = None) -> Array:
    """Share of the trees that vote for each class (p5's majority vote).

    Parameters
    ----------
    forest : Forest
        A classification forest.
    x : (n_samples, n_features) array, dtype of forest.threshold
        Samples.
    out : (n_samples, n_outputs) array, dtype of x, optional
        Where to write the result.

    Returns
    -------
    (n_samples, n_outputs) array, dtype of x
        Shares; a tree votes for the class with the largest value of its leaf, the lowest of equals.

    Raises
    ------
    TypeError, ValueError, IndexError
        As for `predict`.

    Notes
    -----
    Cost: that of `predict`.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.classic.grow(x, np.array([0, 1, 1], np.int32), 9, max_depth=0, rng=0)
    >>> hforest.tree.votes(forest, x).sum(axis=1)
    array([1., 1., 1.])
    """
    return _predict(forest, x, True, out)


# -------------------------------------------------------------------------------------- inspection


def importance(forest: Forest, *, by: str = "count") -> Array:
    """How much each feature is used.

    Parameters
    ----------
    forest : Forest
        Any forest.
    by : "count" or "gain"
        Count the splits that look at a feature (p3 section 3.2), or add up what they gained.

    Returns
    -------
    (n_features,) array of float64
        Shares; they sum to 1, or are all 0 where nothing splits.

    Raises
    ------
    TypeError, ValueError, IndexError
        As for `check`; another word.

    Notes
    -----
    A projection counts, or gains, for each of its features whose weight is not 0. By gain, every tree's
    features sum to 1 before trees are averaged. For CuPy arrays the sum is made on the host, in
    the order of the nodes. Cost: one read of the nodes.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0]])
    >>> forest = hforest.classic.grow(x, np.array([0, 1, 1], np.int32), 1, bootstrap=False, rng=0)
    >>> hforest.tree.importance(forest)
    array([1., 0.])
    """
    checks.choice("by", by, ("count", "gain"))
    check(forest)
    xp = dispatch.array_module(forest.feature)
    host = Forest(*(dispatch.to_numpy(a) for a in forest))
    node = np.flatnonzero(host.feature >= 0)
    feature = host.feature[node]
    if host.start.size:
        oblique = host.feature == -2
        entries = np.where(oblique, np.diff(host.start), 0)
        which = np.repeat(np.arange(len(oblique)), entries)
        first = np.cumsum(entries) - entries
        entry = host.start[which] + np.arange(len(which)) - first[which]
        entry, which = entry[host.weight[entry] != 0], which[host.weight[entry] != 0]
        node, feature = np.concatenate([node, which]), np.concatenate([feature, host.index[entry]])
    n_features = int(host.n_features)
    if by == "count":
        total: Any = np.bincount(feature, minlength=n_features).astype(np.float64)
    else:
        n_trees = len(host.tree_start) - 1
        tree = np.searchsorted(host.tree_start, node, side="right") - 1
        gain = host.gain[node].astype(np.float64)
        of_tree = np.bincount(tree, gain, n_trees)
        shares = np.divide(gain, of_tree[tree], out=np.zeros(len(gain)), where=of_tree[tree] > 0)
        total = np.bincount(feature, shares, n_features)
    if total.sum() > 0:
        total /= total.sum()
    return xp.asarray(total)


def permutation_importance(
    forest: Forest,
    x: Array,
    y: Array,
    *,
    n_repeats: int = 5,
    progress: Any = None,
    rng: Any = None,
) -> np.ndarray:
    """How much worse a forest predicts with a feature shuffled.

    Parameters
    ----------
    forest : Forest
        Any forest.
    x : (n, n_features) array, dtype of forest.threshold
        Samples, finite, at least one; best those that the forest was not grown on.
    y : (n,) array of int32, or (n,) or (n, n_outputs) array, dtype of x
        Their labels, or targets.
    n_repeats : int
        How often each feature is shuffled.
    progress : callable, optional
        Called as progress(done, n_features) after each feature; True ends it, with the features so far.
    rng : None, int or numpy.random.Generator
        Where the permutations come from.

    Returns
    -------
    (n_features, n_repeats) array of float64
        By how much the share of right labels sinks, or the mean squared error rises. Below 0 where shuffling
        happens to help.

    Raises
    ------
    TypeError, ValueError, IndexError
        As for `predict`; no sample, NaN or infinity in y, n_repeats below 1; a label outside the outputs.

    Notes
    -----
    Breiman 2001, section 10. Features that say the same share their importance, or hide each other's. A
    feature that no split looks at costs nothing. Cost: n_features n_repeats predictions of all samples.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = (x[:, 1] > 0).astype(np.int32)
    >>> forest = hforest.classic.grow(x[:200], y[:200], 20, rng=0)
    >>> lost = hforest.tree.permutation_importance(forest, x[200:], y[200:], rng=0)
    >>> int(lost.mean(axis=1).argmax())
    1
    """
    dtype = _check_layout(forest)
    check(forest)
    rng = permutation.checked(x, y, dtype, forest.value.shape[1], n_repeats, rng)
    return permutation.losses(lambda a: predict(forest, a), x, y, n_repeats, rng, progress)


def path(forest: Forest, x: Array, tree: int = 0) -> np.ndarray:
    """The nodes that one sample passes in one tree, from the root to its leaf.

    Parameters
    ----------
    forest : Forest
        Any forest.
    x : (n_features,) array, dtype of forest.threshold
        One sample.
    tree : int
        Number of the tree.

    Returns
    -------
    (length,) numpy array of int32
        Node numbers within the tree.

    Raises
    ------
    TypeError, ValueError, IndexError
        As for `predict`; no such tree.

    Notes
    -----
    Cost: a Python step a level, after `check`.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.classic.grow(x, np.array([0, 1, 1], np.int32), 1, bootstrap=False, rng=0)
    >>> hforest.tree.path(forest, x[2])
    array([0, 2], dtype=int32)
    """
    checks.same_device(x=x)
    checks.array("x", x, checks.floating("x", x), ("n_features",), {})
    _check(forest, x[None])
    root = _root(forest, tree)
    row, host = dispatch.to_numpy(x), Forest(*(dispatch.to_numpy(a) for a in forest))
    nodes = [0]
    while host.feature[root + nodes[-1]] != -1:
        at = root + nodes[-1]
        f = int(host.feature[at])
        compared = row[f] if f >= 0 else _projected(host, at, row)
        nodes.append(int(host.left[at]) + int(compared > host.threshold[at]))
    return np.array(nodes, np.int32)


def _projected(host: Forest, at: int, row: np.ndarray) -> Any:
    total = 0.0
    for j in range(host.start[at], host.start[at + 1]):
        total += float(host.weight[j]) * float(row[host.index[j]])
    return row.dtype.type(total)


def _root(forest: Forest, tree: int) -> int:
    n_trees = forest.tree_start.size - 1
    tree = checks.integer("tree", tree, 0)
    if tree >= n_trees:
        raise IndexError(f"tree: expected 0 <= tree < n_trees = {n_trees}, got {tree}; choose one of them")
    return int(forest.tree_start[tree])


def to_text(
    forest: Forest, tree: int = 0, *, feature_names: Sequence[str] | None = None, max_depth: int | None = None
) -> str:
    """A tree as indented text, a node a line.

    Parameters
    ----------
    forest : Forest
        Any forest.
    tree : int
        Number of the tree.
    feature_names : sequence of str, optional
        A name for each feature, by default x[0], x[1], ...
    max_depth : int, optional
        Deepest level to print, by default all.

    Returns
    -------
    str
        Lines.

    Raises
    ------
    TypeError, ValueError, IndexError
        As for `check`; another number of names; no such tree.

    Notes
    -----
    Cost: a Python step a node.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.classic.grow(x, np.array([0, 1, 1], np.int32), 1, bootstrap=False, rng=0)
    >>> print(hforest.tree.to_text(forest, feature_names=["length"]))
    length <= 0.5
      yes: 1 0
      no: 0 1
    """
    check(forest)
    root = _root(forest, tree)
    deepest = None if max_depth is None else checks.integer("max_depth", max_depth, 0)
    host = Forest(*(dispatch.to_numpy(a) for a in forest))
    n_features = int(host.n_features)
    if feature_names is None:
        feature_names = [f"x[{f}]" for f in range(n_features)]
    if len(feature_names) != n_features:
        raise ValueError(
            f"feature_names: expected n_features = {n_features} names, got {len(feature_names)}; "
            "name each feature"
        )
    first_row = (root + tree) // 2
    lines: list[str] = []
    stack = [(0, 0, "")]
    while stack:
        v, depth, prefix = stack.pop()
        at = root + v
        if host.feature[at] == -1:
            text = " ".join(f"{a:.6g}" for a in host.value[first_row + host.left[at]])
        else:
            text = f"{_compared(host, at, feature_names)} <= {host.threshold[at]:.6g}"
        hidden = deepest is not None and depth >= deepest and host.feature[at] != -1
        lines.append("  " * depth + prefix + ("..." if hidden else text))
        if host.feature[at] != -1 and not hidden:
            stack += [(int(host.left[at]) + 1, depth + 1, "no: "), (int(host.left[at]), depth + 1, "yes: ")]
    return "\n".join(lines)


def _compared(host: Forest, at: int, names: Sequence[str]) -> str:
    if host.feature[at] >= 0:
        return names[host.feature[at]]
    entries = range(host.start[at], host.start[at + 1])
    return " ".join(f"{host.weight[j]:+.6g} {names[host.index[j]]}" for j in entries) or "0"
