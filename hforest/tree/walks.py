"""Forests applied to samples: leaves, means of leaf values, votes, and the path of one sample."""

from collections.abc import Callable, Iterator

import numpy as np

from ..core import blocks, dispatch, machine, sparse, supervised
from ..core import check as checks
from ..core.aliases import Array, ArrayLike, FloatArray, IntArray
from ..core.in_place import InPlace, Windows
from .forest import (
    NO_DEFAULTS,
    PACKAGE,
    Forest,
    check_layout,
    check_nodes,
    check_numbers,
    goes_right,
    has_sets,
    knows_missing,
    narrowed,
    on_host,
    root_of,
)
from .prepared import Prepared, arrays_of, is_for, quick, write

_LEAVES, _MEANS, _VOTES = -1, 0, 1
"""Kinds of results of a walk."""

REMEDY = f"{checks.DROP}, or grow the forest on samples with missing values (NaN)"
_AXES = ("n_samples", "n_features")


_STEPS = 2
"""From this number of nodes of a tree per sample, walks node by node are faster than `_widened`."""
_WIDENED = 1 << 22
"""Number of entries of x for which columns with missing values are copied at a time."""


def _check_samples(forest: Forest, x: FloatArray) -> None:
    if knows_missing(forest):
        checks.finite_or_missing("x", x)
    else:
        checks.finite("x", x, remedy=REMEDY)


def _check_layout(forest: Forest | Prepared, x: object) -> np.dtype:
    """Returns the dtype of the forest after `check_layout`."""
    if isinstance(forest, Prepared):
        dtype: np.dtype = arrays_of(forest).threshold.dtype
        return dtype
    return check_layout(forest, x)


def _check_forest(forest: Forest | Prepared, values: bool) -> None:
    if isinstance(forest, Forest) and checks.values_checked():
        check_nodes(forest)
        check_numbers(forest, *(("data", "value") if values else ("data",)))


def checked(forest: Forest | Prepared, x: ArrayLike, *, values: bool = True) -> FloatArray:
    """Returns the samples in the dtype of the forest, after checks of both; of leaf values with `values`."""
    dtype, arrays = _check_layout(forest, x), arrays_of(forest)
    if type(x) is np.ndarray and machine.fits(x, dtype, _AXES, {}):
        # A fast path for rows without conversion, so that single rows take microseconds.
        _check_samples(arrays, x)
    else:
        x = supervised.matrix("x", x, dtype, missing=knows_missing(arrays), remedy=REMEDY)
    if type(arrays.feature) is not np.ndarray or type(x) is not np.ndarray:
        checks.same_device(**{"forest.feature": arrays.feature, "x": x})
    # Reading a number from a GPU waits for it; inside unchecked() it is not checked.
    if isinstance(x, np.ndarray) or checks.values_checked():
        _check_columns(arrays, x.shape)
    _check_forest(forest, values)
    return x


def _check_columns(forest: Forest, shape: tuple[int, ...]) -> None:
    n_features = int(forest.n_features)
    if shape[1] != n_features:
        raise ValueError(
            f"x: expected shape (n_samples, n_features) = (n_samples, {n_features}), got {tuple(shape)}; "
            "pass the features that the forest was grown on"
        )


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


def _walk(forest: Forest, x: FloatArray, run: Callable[[slice, Forest, FloatArray], None]) -> None:
    """Calls run(rows, forest, samples) for all rows of x."""
    if not knows_missing(forest) or has_sets(forest) or dispatch.is_reference():
        run(slice(None), forest, x)
    elif isinstance(x, np.ndarray) and machine.first_nonfinite(x) < 0:
        run(slice(None), forest._replace(default_left=NO_DEFAULTS[0]), x)
    elif forest.indptr.size or len(x) * (forest.tree_start.size - 1) * _STEPS < forest.feature.size:
        run(slice(None), forest, x)
    else:
        for rows, narrow, samples in _widened(forest, x):
            run(rows, narrow, samples)


def _write(forest: Forest | Prepared, x: FloatArray, what: int, result: Array) -> None:
    """Writes leaves, means or vote shares of checked samples."""
    if isinstance(forest, Prepared):
        if isinstance(x, np.ndarray) and is_for(forest, len(x)):
            write(forest, x, what, result)
            return
        forest = arrays_of(forest)
    backend = dispatch.backend(PACKAGE, x)

    def run(rows: slice, forest: Forest, x: FloatArray) -> None:
        if what == _LEAVES:
            backend.apply(x, forest, result[rows])
        else:
            backend.predict(x, forest, what == _VOTES, result[rows])

    _walk(forest, x, run)


def _result(
    forest: Forest,
    x: FloatArray,
    caller_x: ArrayLike | Windows,
    out: Array | None,
    dtype: np.dtype,
    axes: checks.Axes,
) -> Array:
    """Returns a new array, or `out` if it overlaps neither the forest nor the caller's x."""
    if out is None:
        return dispatch.array_module(x).empty(axes, dtype)
    checks.same_device(x=x, out=out)
    checks.array("out", out, dtype, axes, {})
    read: object = caller_x
    if not isinstance(caller_x, Windows):
        read = caller_x.data if sparse.is_sparse(caller_x) else supervised.as_given("x", caller_x)
    checks.outputs({"out": out}, {"x": read, "forest": forest})
    return out


def _in_blocks(
    forest: Forest | Prepared, x: ArrayLike, out: Array | None, dtype: np.dtype, width: int, what: int
) -> Array | None:
    """Returns leaves, means or vote shares of a large x that needs a conversion, in blocks; else None.

    The forest's layout has been checked. After an error `out` is unchanged.
    """
    arrays = arrays_of(forest)
    lazy = blocks.unconverted(x, arrays.threshold.dtype)
    if lazy is None:
        return None
    checks.same_device(**{"forest.feature": arrays.feature, "x": lazy.source})
    _check_columns(arrays, lazy.shape)
    _check_forest(forest, what != _LEAVES)
    shape = (lazy.shape[0], width)
    if out is not None:
        _result(arrays, lazy.source, lazy.source, out, dtype, shape)
    result = np.empty(shape, dtype)
    for part, samples in lazy.rows():
        blocks.check_rows("x", part, samples, lazy.source, knows_missing(arrays), REMEDY)
        _write(forest, samples, what, result[part])
    if out is None:
        return result
    out[...] = result
    return out


def _apply_any(forest: Forest | Prepared, x: ArrayLike, what: int, out: Array | None) -> Array:
    """Returns leaves, means or vote shares of arguments that it checks."""
    if isinstance(x, InPlace):
        return _apply_windows(forest, x.x, what, out)
    if isinstance(forest, Prepared) and out is None:
        result = quick(forest, x, what)
        if result is not None:
            return result
    if sparse.is_sparse(x):
        return _apply_sparse(forest, x, what, out)
    if isinstance(x, np.ndarray) and x.size > blocks.CONVERTED:
        _check_layout(forest, x)
        dtype, width = _kind_of(arrays_of(forest), what)
        result = _in_blocks(forest, x, out, dtype, width, what)
        if result is not None:
            return result
    caller_x, x = x, checked(forest, x, values=what != _LEAVES)
    arrays = arrays_of(forest)
    dtype, width = _kind_of(arrays, what)
    result = _result(arrays, x, caller_x, out, dtype, (x.shape[0], width))
    if result.size:
        _write(forest, x, what, result)
    return result


def _kind_of(forest: Forest, what: int) -> tuple[np.dtype, int]:
    """Returns dtype and number of columns of leaves, means or vote shares."""
    if what == _LEAVES:
        return checks.INT32, forest.tree_start.size - 1
    return forest.threshold.dtype, forest.value.shape[1]


def _apply_windows(forest: Forest | Prepared, windows: Windows, what: int, out: Array | None) -> Array:
    """Returns leaves, means or vote shares of windows, which are read in place."""
    dtype, arrays = _check_layout(forest, windows), arrays_of(forest)
    with checks.fields_of("x"):
        x = supervised.matrix("x", windows.x, dtype, missing=knows_missing(arrays), remedy=REMEDY)
        checks.same_device(**{"forest.feature": arrays.feature, "x": x, "base": windows.base})
        checks.same_device(x=x, offset=windows.offset)
    _check_columns(arrays, windows.shape)
    _check_forest(forest, what != _LEAVES)
    dtype, width = _kind_of(arrays, what)
    result = _result(arrays, x, windows, out, dtype, (windows.shape[0], width))
    if result.size:
        # Missing values are routed node by node, for windows have no place for further columns (`_widened`).
        backend, placed = dispatch.backend(PACKAGE, x), windows._replace(x=x)
        if what == _LEAVES:
            backend.apply(placed, arrays, result)
        else:
            backend.predict(placed, arrays, what == _VOTES, result)
    return result


def _apply_sparse(forest: Forest | Prepared, x: ArrayLike, what: int, out: Array | None) -> Array:
    """Returns leaves, means or vote shares of the rows of a sparse matrix."""
    dtype, arrays = _check_layout(forest, x), arrays_of(forest)
    checks.same_device(**{"forest.feature": arrays.feature, "x": np.zeros(0)})
    rows = sparse.rows("x", x, dtype, missing=knows_missing(arrays), remedy=REMEDY)
    n = len(rows.indptr) - 1
    _check_columns(arrays, (n, rows.n_minor))
    _check_forest(forest, what != _LEAVES)
    dtype, width = _kind_of(arrays, what)
    result = _result(arrays, rows.data, x, out, dtype, (n, width))
    if result.size:
        backend = dispatch.backend(PACKAGE, rows.data)
        if what == _LEAVES:
            backend.apply_rows(rows, arrays, result)
        else:
            backend.predict_rows(rows, arrays, what == _VOTES, result)
    return result


def apply(forest: Forest | Prepared, x: ArrayLike, *, out: IntArray | None = None) -> IntArray:
    """Returns the leaf that each sample reaches in each tree.

    Parameters
    ----------
    forest : Forest or Prepared
        Any forest of n_trees trees.
    x : (n_samples, n_features) array-like, CSR or CSC matrix of SciPy, or Samples
        Samples, finite, of any real dtype; they are converted to the dtype of the forest. A forest that was
        grown with missing values or categories accepts NaN, too. Entries that a sparse matrix does not store
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
    row. Cost: a few nanoseconds per level, sample and tree.

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
    if y.size:
        _write(forest, x, _MEANS, y)
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
    n_outputs additions per sample and tree. For single samples `prepare` the forest, for the check of a large
    one takes longer than its walk.

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


def vote_shares(
    forest: Forest | Prepared, x: ArrayLike | Windows, *, out: FloatArray | None = None
) -> FloatArray:
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
    dtype, arrays = _check_layout(forest, x), arrays_of(forest)
    row = supervised.one_sample("x", x, dtype, missing=knows_missing(arrays), remedy=REMEDY)
    row = dispatch.to_numpy(checked(forest, row[None], values=False)[0])
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
    product: np.floating = row.dtype.type(total)
    return product
