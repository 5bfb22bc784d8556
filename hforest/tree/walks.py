"""Forests applied to samples: leaves, means of leaf values, votes, and the path of one sample."""

from collections.abc import Iterator

import numpy as np

from ..core import check as checks
from ..core import dispatch, rows, supervised
from ..core.aliases import Array, ArrayLike, FloatArray, IntArray
from ..core.blocks import Unconverted
from ..core.in_place import PlacedWindows
from ..core.sparse import Compressed
from .cpu.prepared import Prepared, is_for, quick, write
from .forest import (
    NO_DEFAULTS,
    PACKAGE,
    Forest,
    arrays_of,
    check_contents,
    goes_right,
    has_sets,
    knows_missing,
    narrowed,
    on_host,
    root_of,
)

_LEAVES, _MEANS, _VOTES = -1, 0, 1
"""Kinds of results of a walk."""

REMEDY = f"{checks.DROP}, or grow the forest anew, so that it has routes for missing values (NaN)"

_STEPS = 2
"""From this number of nodes of a tree per sample, walks node by node are faster than `_widened`."""
_WIDENED = 1 << 22
"""Number of entries of x for which columns with missing values are copied at a time."""


def check_walk(
    forest: Forest, arrays: Forest, read: dict[str, Array], shape: tuple[int, ...], values: bool = True
) -> None:
    """Checks devices, the columns of x and, of a forest without a mark, nodes and numbers.

    Leaf values are checked with `values`. It is called after x was read, for code of a caller's type may have
    changed the arrays meanwhile.
    """
    checks.same_device(**{"forest.feature": arrays.feature}, **read)
    # Reading a number from a GPU waits for it; inside unchecked() it is not checked.
    if isinstance(arrays.feature, np.ndarray) or checks.values_checked():
        n_features = int(arrays.n_features)
        if shape[1] != n_features:
            raise ValueError(
                f"x: expected shape (n_samples, n_features) = (n_samples, {n_features}), got {tuple(shape)}; "
                "pass the features that the forest was grown on"
            )
    if checks.values_checked():
        check_contents(forest, arrays, *(("data", "value") if values else ("data",)))


def _widened(forest: Forest, x: FloatArray) -> Iterator[tuple[slice, Forest, FloatArray]]:
    """Yields rows, and a forest and samples without missing values that reach the same leaves.

    A column with missing values is copied: they are -inf in the first column, which goes left, and +inf in
    the second one, which goes right. Splits that send them right compare the second one:

        x     1.5  nan        columns     1.5  -inf  +inf        feature 1, left: 1    right: 2
              0.3  2.0                    0.3   2.0   2.0
    """
    xp, n_features = dispatch.array_module(x), x.shape[1]
    step = max(1, _WIDENED // max(1, n_features))
    for first in range(0, len(x), step):
        rows = slice(first, first + step)
        missing = xp.isnan(x[rows])
        columns = xp.flatnonzero(missing.any(axis=0))
        if not columns.size:
            yield rows, forest, x[rows]
            continue
        least, greatest = x.dtype.type(-np.inf), x.dtype.type(np.inf)
        low = xp.where(missing, least, x[rows])
        high = xp.where(missing[:, columns], greatest, x[rows][:, columns])
        second = xp.arange(n_features, dtype=np.int32)
        second[columns] = n_features + xp.arange(columns.size, dtype=np.int32)
        narrow = narrowed(forest, second)
        wide = xp.ascontiguousarray(xp.concatenate([low, high], axis=1).astype(x.dtype, copy=False))
        yield rows, narrow, wide


def _walks_are_few(forest: Forest, x: FloatArray) -> bool:
    """Returns whether walks node by node are faster than `_widened`, which copies and packs."""
    n_trees, n_nodes = forest.tree_start.size - 1, forest.feature.size
    levels = (n_nodes // n_trees).bit_length()
    return len(x) * n_trees * _STEPS < n_nodes or n_trees * levels < x.shape[1]


def _parts(
    forest: Forest, x: FloatArray | PlacedWindows | Compressed, has_missing: bool
) -> Iterator[tuple[slice, Forest, FloatArray | PlacedWindows | Compressed]]:
    """Yields rows, and the forest and the samples with which backends compute their results."""
    if not has_missing and not has_sets(forest):
        yield slice(None), forest._replace(default_left=NO_DEFAULTS[0]), x
    elif (
        not knows_missing(forest)
        or has_sets(forest)
        or forest.indptr.size
        or dispatch.is_reference()
        or dispatch.runs_on_gpu(forest.feature)
        or isinstance(x, PlacedWindows | Compressed)
        or _walks_are_few(forest, x)
    ):
        yield slice(None), forest, x
    else:
        yield from _widened(forest, x)


def _write(
    prepared: Prepared | None,
    forest: Forest,
    x: FloatArray | PlacedWindows | Compressed | Unconverted,
    what: int,
    result: Array,
    has_missing: bool,
) -> None:
    """Writes leaves, means or vote shares of checked samples; a large x is checked here, block by block.

    has_missing: whether some numbers of x may be missing.
    """
    if not result.size:
        return
    if isinstance(x, Unconverted):
        for part, block, some in x.rows("x", knows_missing(forest), REMEDY):
            _write(prepared, forest, block, what, result[part], some)
    elif prepared is not None and isinstance(x, np.ndarray) and is_for(prepared, has_missing):
        write(prepared, x, what, result, has_missing)
    else:
        backend = dispatch.backend(PACKAGE, result)
        for part, arrays, samples in _parts(forest, x, has_missing):
            if what == _LEAVES:
                backend.apply(samples, arrays, result[part])
            else:
                backend.predict(samples, arrays, what == _VOTES, result[part])


def _looks(forest: Forest) -> bool:
    """Returns whether samples are searched for missing values. A search waits for a GPU."""
    return checks.values_checked() or not dispatch.runs_on_gpu(forest.feature)


def _apply_any(forest: Forest | Prepared, x: ArrayLike, what: int, out: Array | None) -> Array:
    """Returns leaves, means or vote shares of arguments that it checks."""
    prepared = forest if isinstance(forest, Prepared) else None
    if prepared is not None and (result := quick(prepared, x, what, out)) is not None:
        return result
    plain = forest.forest if isinstance(forest, Prepared) else forest
    arrays = arrays_of(plain, x)
    dtype = arrays.threshold.dtype
    missing, looks = knows_missing(arrays), _looks(arrays)
    samples, read, has_missing = rows.readable(x, dtype, missing and looks, REMEDY)
    check_walk(plain, arrays, read, samples.shape, what != _LEAVES)
    shape, result = (samples.shape[0], arrays.value.shape[1]), out
    if what == _LEAVES:
        shape, dtype = (samples.shape[0], arrays.tree_start.size - 1), checks.INT32
    if out is not None:
        checks.same_device(**{"forest.feature": arrays.feature, "out": out})
        checks.array("out", out, dtype, shape, {})
        checks.outputs({"out": out}, {**read, "forest": plain})
    if result is None or isinstance(samples, Unconverted):
        result = dispatch.empty(arrays.feature)(shape, dtype)
    _write(prepared, arrays, samples, what, result, has_missing or (missing and not looks))
    if out is None or result is out:
        return result
    out[...] = result  # an error in a block leaves it unchanged
    return out


def apply(forest: Forest | Prepared, x: ArrayLike, *, out: IntArray | None = None) -> IntArray:
    """Returns the leaf that each sample reaches in each tree.

    Parameters
    ----------
    forest : Forest or Prepared
        Any forest of n_trees trees.
    x : (n_samples, n_features) array-like, CSR or CSC matrix of SciPy, or Samples
        Samples, finite, of any real dtype; they are converted to the dtype of the forest. A forest with
        `default_left`, as `grow` returns it, accepts NaN, too. Entries that a sparse matrix does not store
        are 0. Samples of windows are read in place.

    Returns
    -------
    (n_samples, n_trees) array of int32
        Node numbers within their trees.

    Raises
    ------
    ValueError
        Numbers in x beyond the range of the forest's dtype; a forest that `check` refuses.

    Notes
    -----
    A value ``<= threshold`` goes left; `Forest` explains the routes of missing values and categories. A
    projection is summed in float64 in its order and rounded once to the dtype of the forest. A large x of
    another dtype or layout, such as a numpy.memmap, is converted in blocks of at most 2**22 numbers, or one
    row. Cost: a few nanoseconds per level, sample and tree, and `check` of a forest that was neither grown
    nor loaded.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.grow(x, np.array([0, 1, 1], np.int32), 1, bootstrap=False, rng=0)
    >>> hforest.tree.apply(forest, [[0], [1], [2]]).ravel()
    array([1, 2, 2], dtype=int32)
    """
    return _apply_any(forest, x, _LEAVES, out)


def outputs(forest: Forest, x: FloatArray) -> FloatArray:
    """Returns means of leaf values for checked arguments."""
    y = dispatch.array_module(x).empty((x.shape[0], forest.value.shape[1]), forest.threshold.dtype)
    missing = knows_missing(forest) and (not _looks(forest) or checks.finite_or_missing("x", x))
    _write(None, forest, x, _MEANS, y, missing)
    return y


def predict(forest: Forest | Prepared, x: ArrayLike, *, out: FloatArray | None = None) -> FloatArray:
    """Returns leaf values averaged over trees: class probabilities, or means of the targets.

    Parameters: see `apply`.

    Returns
    -------
    (n_samples, n_outputs) array, dtype of the forest
        n_outputs is the number of classes or targets.

    Notes
    -----
    Class probabilities are averaged, as in scikit-learn; for the votes of Breiman 2001 use `vote_shares`.
    Means are summed in float64 in the order of the trees and rounded once. Cost: that of `apply`, and
    n_outputs additions per sample and tree. For single samples `prepare` the forest.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.grow(x, np.array([0, 1, 1], np.int32), 1, bootstrap=False, rng=0)
    >>> hforest.tree.predict(forest, x)
    array([[1., 0.],
           [0., 1.],
           [0., 1.]])
    """
    return _apply_any(forest, x, _MEANS, out)


def vote_shares(forest: Forest | Prepared, x: ArrayLike, *, out: FloatArray | None = None) -> FloatArray:
    """Returns the share of the trees of a classification forest that vote for each class (Breiman 2001).

    Parameters: see `apply`.

    Returns
    -------
    (n_samples, n_outputs) array, dtype of the forest
        Shares; rows sum to 1. A tree votes for the class with the largest value in its leaf, of equal ones
        the lowest. The largest share of a row is the majority vote.

    Notes
    -----
    Cost: that of `predict`.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.grow(x, np.array([0, 1, 1], np.int32), 9, max_depth=0, rng=0)
    >>> hforest.tree.vote_shares(forest, x).sum(axis=1)
    array([1., 1., 1.])
    """
    return _apply_any(forest, x, _VOTES, out)


def path(forest: Forest | Prepared, x: ArrayLike, tree: int = 0) -> IntArray:
    """Returns the nodes that one sample visits in one tree, from the root to its leaf.

    Other parameters: see `apply`.

    Parameters
    ----------
    x : (n_features,) array-like
        One sample.
    tree : int
        Its number, from 0.

    Returns
    -------
    (length,) numpy array of int32
        Node numbers within the tree.

    Notes
    -----
    Cost: `check` and a Python step per level.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.grow(x, np.array([0, 1, 1], np.int32), 1, bootstrap=False, rng=0)
    >>> hforest.tree.path(forest, x[2])
    array([0, 2], dtype=int32)
    """
    plain = forest.forest if isinstance(forest, Prepared) else forest
    arrays = arrays_of(plain, x)
    dtype, missing = arrays.threshold.dtype, knows_missing(arrays)
    row = supervised.one_sample("x", x, dtype, missing=missing, remedy=REMEDY)
    check_walk(plain, arrays, {"x": row}, (1, len(row)), False)
    row = dispatch.to_numpy(row)
    root, host = root_of(arrays, tree), on_host(arrays)
    nodes = [0]
    while host.feature[root + nodes[-1]] != -1:
        at = root + nodes[-1]
        f = int(host.feature[at])
        compared = row[f] if f >= 0 else _projected(host, at, row)
        nodes.append(int(host.left[at]) + int(goes_right(host, at, compared)))
    return np.array(nodes, np.int32)


def _projected(host: Forest, at: int, row: np.ndarray) -> np.floating:
    total = 0.0
    for j in range(host.indptr[at], host.indptr[at + 1]):
        total += float(host.data[j]) * float(row[host.indices[j]])
    return row.dtype.type(total)


def prepare(forest: Forest | Prepared) -> Prepared:
    """Returns a checked and packed forest, for many calls on few rows.

    Parameters
    ----------
    forest : Forest or Prepared
        Any forest of NumPy arrays. A Prepared is returned itself.

    Returns
    -------
    Prepared
        `apply`, `predict`, `vote_shares` and `path` take it in place of the forest, and return bit-identical
        results. Its attribute `forest` is the forest if its arrays are read-only, else a read-only copy.

    Notes
    -----
    A Prepared cannot be changed, and several threads may use it at the same time. Its pickle is that of its
    forest, which is checked and packed again when it is read. Splits by features are packed in 8 to 16 bytes,
    with a few levels of a tree next to each other, and splits by projections with their entries; several
    trees are walked at once. Forests with categories are not packed, but skip their checks. After calls on
    many rows (some eight steps per node) the trees are packed for such rows, too, and this is kept. Memory:
    16 to 24 bytes per node, or 28 to 100 with projections; then 12 to 20 more; and a copy of a forest that
    was neither grown nor loaded. Cost: some tens of nanoseconds per node, and a check of a copy.

    Calls on few rows, of up to about 16,000 steps from node to node, keep the GIL, for waiting for it may
    take longer than the call. All others release it.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.grow(x, np.array([0, 1, 1], np.int32), 10, bootstrap=False, rng=0)
    >>> prepared = hforest.tree.prepare(forest)
    >>> hforest.tree.predict(prepared, x[:1])
    array([[1., 0.]])
    """
    return forest if isinstance(forest, Prepared) else Prepared(forest)
