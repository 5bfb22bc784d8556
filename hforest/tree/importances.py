"""Importance of features: by splits, and by the error after a permutation of a feature."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from ..core import check as checks
from ..core import dispatch, permuted, supervised
from ..core import progress as progresses
from ..core.aliases import ArrayLike, FloatArray, Progress, Rng, Task
from .forest import Forest, arrays_of, checked, knows_missing, on_host
from .walks import REMEDY, check_walk, outputs


def importance(forest: Forest, *, by: Literal["count", "gain"] = "count") -> FloatArray:
    """Returns the share of each feature in the splits of a forest.

    Parameters
    ----------
    forest : Forest
        Any forest.
    by : "count" or "gain"
        Whether to count the splits that compare a feature (Perry et al. 2019, section 3.2), or to sum their
        gains.

    Returns
    -------
    (n_features,) array of float64
        Shares; they sum to 1, or are all 0 in a forest without splits.

    Notes
    -----
    A projection adds its count or gain to each of its features whose weight is not 0. With "gain" the
    features of each tree sum to 1 before trees are averaged. CuPy arrays are summed on the host, in the order
    of the nodes. Cost: one read of the nodes.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0]])
    >>> forest = hforest.grow(x, np.array([0, 1, 1], np.int32), 1, bootstrap=False, rng=0)
    >>> hforest.tree.importance(forest)
    array([1., 0.])
    """
    checks.choice("by", by, ("count", "gain"))
    forest = checked(forest)
    xp = dispatch.array_module(forest.feature)
    host = on_host(forest)
    node = np.flatnonzero(host.feature >= 0)
    feature = host.feature[node]
    if host.indptr.size:
        oblique = host.feature == -2
        entries = np.where(oblique, np.diff(host.indptr), 0)
        which = np.repeat(np.arange(len(oblique)), entries)
        first = np.cumsum(entries) - entries
        entry = host.indptr[which] + np.arange(len(which)) - first[which]
        entry, which = entry[host.data[entry] != 0], which[host.data[entry] != 0]
        node, feature = np.concatenate([node, which]), np.concatenate([feature, host.indices[entry]])
    n_features = int(host.n_features)
    shares: FloatArray | None = None
    if by == "gain":
        tree = np.searchsorted(host.tree_start, node, side="right") - 1
        gain = host.gain[node].astype(np.float64)
        of_tree = np.bincount(tree, gain, len(host.tree_start) - 1)
        shares = np.divide(gain, of_tree[tree], out=np.zeros(len(gain)), where=of_tree[tree] > 0)
    # A forest may have many more features than it compares: those above the last one are not written.
    with checks.memory("forest.n_features", "features", 8 * n_features):
        compared, total = np.bincount(feature, shares), np.zeros(n_features)
        total[: len(compared)] = compared
    whole = total.sum()
    if whole > 0:
        total[: len(compared)] /= whole
    return xp.asarray(total)


def permutation_importance(
    forest: Forest,
    x: ArrayLike,
    y: ArrayLike,
    *,
    columns: ArrayLike | Sequence[ArrayLike] | None = None,
    task: Task = "classification",
    n_repeats: int = 5,
    progress: Progress = None,
    rng: Rng = None,
) -> FloatArray:
    """Returns the increase of a forest's error after a permutation of a feature's values.

    Parameters
    ----------
    forest : Forest
        Any forest.
    x : (n_samples, n_features) array_like
        Samples, finite, at least one, of any real dtype; converted to the dtype of the forest. Prefer samples
        that the forest was not grown on.
    y : (n_samples,) array_like, or (n_samples, n_outputs)
        Labels of any integer dtype or bool, or targets of any real dtype; targets are converted to the dtype
        of the forest.
    columns : int, (n_sets,) array-like of ints, or list of array-likes of ints, optional
        Features to permute, one at a time, or sets of features, whose rows are permuted together. Sets may
        overlap. By default every feature by itself.
    n_repeats : int
        Number of permutations of each feature or set of features.

    Returns
    -------
    (n_sets, n_repeats) numpy array of float64, of all features (n_features, n_repeats)
        Decrease of the share of correct labels, or increase of the mean squared error. Negative if a
        permutation happens to help.

    Raises
    ------
    ValueError
        Leaf values whose mean squared error is beyond float64.

    Notes
    -----
    Breiman 2001, section 10. Features with the same information share their importance, or hide each other's;
    permute them as a set. `hforest.stats.importance_test` with ``by="error"`` returns p-values. Cost: n_sets
    n_repeats predictions of all samples.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = (x[:, 1] > 0).astype(np.int32)
    >>> forest = hforest.grow(x[:200], y[:200], 20, rng=0)
    >>> lost = hforest.tree.permutation_importance(forest, x[200:], y[200:], rng=0)
    >>> int(lost.mean(axis=1).argmax())
    1
    """
    arrays = arrays_of(forest, x)
    missing = knows_missing(arrays)
    x = supervised.matrix("x", x, arrays.threshold.dtype, missing=missing, remedy=REMEDY)
    check_walk(forest, arrays, {"x": x}, x.shape)
    if len(x) < 1:
        raise ValueError(
            "x: expected at least one sample, got 0; pass samples that the forest was not grown on"
        )
    if x.shape[1] < 1:
        raise ValueError("n_features: expected at least 1, got 0; pass samples with features to permute")
    n_repeats = checks.integer("n_repeats", n_repeats, 1, 2**20)
    checks.choice("task", task, supervised.TASKS)
    sets = supervised.column_sets(columns, x.shape[1])
    score = _accuracy(arrays, x, y) if task == "classification" else _minus_error(arrays, x, y)
    generator = checks.generator(rng)
    with progresses.reporting(progress, len(sets), "feature") as report:
        return permuted.losses(lambda a: score(outputs(arrays, a)), x, sets, n_repeats, generator, report)


def _accuracy(forest: Forest, x: FloatArray, y: ArrayLike) -> Callable[[FloatArray], float]:
    """Returns score(p): the share of correct labels."""
    try:
        labels, _ = supervised.labels("y", y, len(x), forest.value.shape[1])
    except IndexError as error:
        expected = str(error).split("; ")[0]
        raise IndexError(f"{expected}; pass labels of the classes that the forest was grown on") from None
    checks.same_device(x=x, y=labels)
    return lambda p: float((p.argmax(axis=1) == labels).mean())


def _minus_error(forest: Forest, x: FloatArray, y: ArrayLike) -> Callable[[FloatArray], float]:
    """Returns score(p): minus the mean squared error, with differences in the dtype of the forest."""
    dtype, n_outputs = forest.value.dtype, forest.value.shape[1]
    goals = supervised.targets("y", y, len(x), min(supervised.MAX_WEIGHT, float(np.finfo(dtype).max)))
    if goals.shape[1] != n_outputs:
        raise ValueError(
            f"y: expected n_outputs = {n_outputs} targets for each sample, got {goals.shape[1]}; "
            "pass one target per output of the forest"
        )
    checks.same_device(x=x, y=goals)
    # On the host: operations of CuPy make float32 subnormals 0.
    goals = dispatch.to_numpy(goals).astype(dtype)

    def score(p: FloatArray) -> float:
        with np.errstate(over="ignore"):
            wrong = (dispatch.to_numpy(p) - goals).astype(np.float64)
            error = float((wrong * wrong).mean())
        if not np.isfinite(error):
            raise ValueError(
                "forest.value: expected leaf values whose mean squared error is finite, got up to "
                f"{float(abs(forest.value).max())}; scale the targets that the forest is grown on"
            )
        return -error

    return score
