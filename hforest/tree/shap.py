"""SHAP values: how much each feature adds to a prediction."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..core import check as checks
from ..core import dispatch, supervised
from ..core import progress as progresses
from ..core.aliases import ArrayLike, FloatArray, Progress
from ..core.threads import get_num_threads
from .covers import covers, matrix
from .forest import PACKAGE, Forest, trusted
from .walks import apply

MAX_BRANCHES = 1 << 18
"""The most branches in one tree for a sample and a row of the background, if it has projections."""
STEP = 256
"""Samples per thread between two reports of progress."""

Add = Callable[[FloatArray, FloatArray], None]
"""A function add(rows, values), which adds values of samples to zeros."""


class ShapValues(NamedTuple):
    """SHAP values; ``expected + values.sum(axis=1)`` are the predictions."""

    values: FloatArray
    """(n_samples, n_features, n_outputs) float64: what each feature adds to each output."""
    expected: FloatArray
    """(n_outputs,) float64: the prediction when no feature is known."""


def shap_values(
    forest: Forest,
    x: ArrayLike,
    *,
    background: ArrayLike | None = None,
    cover: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    counts: ArrayLike | None = None,
    progress: Progress = None,
) -> ShapValues:
    """Returns exact SHAP values of predictions: interventional or path-dependent (Lundberg et al. 2020).

    Parameters
    ----------
    forest : Forest
        Any forest. With `cover`, one without projections.
    x : (n_samples, n_features) array_like
        Samples whose predictions are explained. Dtypes and missing values: see `apply`.
    background : (n_background, n_features) array_like, optional
        Samples for interventional values, at least one; a few hundred.
    cover : (n_cover, n_features) array_like, optional
        Samples for path-dependent values, at least one: those that the forest was grown on. A Forest does not
        store how many samples reached its nodes, so they are counted here. Pass either `background` or
        `cover`.
    sample_weight : (n_background,) or (n_cover,) array_like, optional
        Weights of their rows, not all 0; by default 1.
    counts : (n_trees, n_cover) array_like of integers, optional
        How often each tree drew each row of `cover`, as `growth.bootstrap_counts` returns it; by default
        once.
    progress : True or callable, optional
        See `grow`; it reports numbers of samples. A call that it stops returns values of the samples so far.

    Returns
    -------
    ShapValues
        `values` and `expected`, float64. Their sum is the mean over trees of leaf values, which `predict`
        rounds to the dtype of the forest.

    Raises
    ------
    ValueError
        Both or neither of `background` and `cover`; `counts` with `background`; a forest with projections and
        `cover`; projections whose values need more than 2**18 branches in a tree.

    Notes
    -----
    The value of feature i is its Shapley value in a game whose players are features:

        phi_i = sum over sets S without i of  |S|! (M - |S| - 1)! / M! (v(S and i) - v(S)).

    Interventional: v(S) is the mean prediction of hybrid samples, which take the features in S from x and
    all others from a row of the background. Each entry of a projection takes its own feature from either; a
    projection is one split whose side may depend on several features. Categories and missing values go where
    `apply` sends them.

    Path-dependent: v(S) follows x at splits by a feature in S. At other splits it is the mean of both
    children, weighted by the samples of `cover` in them, or by 1/2 where there are none. A forest that was
    grown with bootstrap has the covers of its growth with `counts`.

    Cost for each sample and tree of N nodes, whose paths compare at most D features: path-dependent about
    ``N D / 2 n_outputs`` multiplications (Yu et al. 2022), as integrals of polynomials that Gauss's rule with
    D / 2 points makes exact (Wettenstein, Mitchell and Yu 2026); up to 32 samples walk together. All terms
    are positive, so that deep trees lose no digits. Interventional: a visit of each node that some hybrid
    sample reaches, for 64 rows of the background together, and an addition for each of them in each leaf.
    With projections that is exponential in the features on which the side of a split depends: the call
    raises ValueError beyond 2**18 branches. Memory: that of the result. Results are bit-identical at any
    number of threads, on any vector path, and in calls for fewer samples.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> y = np.array([0.0, 0.0, 1.0, 3.0])
    >>> forest = hforest.grow(x, y, 1, task="regression", bootstrap=False, max_features=None, rng=0)
    >>> shap = hforest.tree.shap_values(forest, x[3:], cover=x)
    >>> shap.expected
    array([1.])
    >>> shap.values[0, :, 0]
    array([1.25, 0.75])
    """
    checks.on_cpu(x=x, background=background, cover=cover, sample_weight=sample_weight, counts=counts)
    forest = trusted(forest, x)
    rows = matrix("x", "n_samples", forest, x)
    if background is not None:
        background = matrix("background", "n_background", forest, background)
    if cover is not None:
        cover = matrix("cover", "n_cover", forest, cover)
    if (background is None) == (cover is None):
        kind = "neither" if cover is None else "both"
        raise ValueError(
            f"background: expected either background or cover, got {kind}; pass cover=, the samples that "
            "the forest was grown on, for path-dependent values, or background=, some of them, for "
            "interventional ones"
        )
    shape = (len(rows), rows.shape[1], forest.value.shape[1])
    with checks.memory("x", "values of samples, features and outputs", 8 * int(np.prod(shape, dtype=object))):
        values = np.zeros(shape)
    with progresses.reporting(progress, len(rows), "sample") as report:
        if background is not None:
            if counts is not None:
                raise ValueError(
                    "counts: expected None with background, got an array; pass sample_weight, or cover= in "
                    "place of background="
                )
            add, expected = _interventional(forest, background, sample_weight)
        elif cover is not None:
            add, expected = _path_dependent(forest, cover, sample_weight, counts)
        step = STEP * get_num_threads()
        for first in range(0, len(rows) if values.size else 0, step):
            some = slice(first, first + step)
            add(rows[some], values[some])
            done = min(first + step, len(rows))
            if not report(done):
                return ShapValues(values[:done], expected)
    return ShapValues(values, expected)


def _path_dependent(
    forest: Forest, cover: FloatArray, sample_weight: ArrayLike | None, counts: ArrayLike | None
) -> tuple[Add, FloatArray]:
    """Returns how path-dependent values are added, and the expected values."""
    if bool((forest.feature == -2).any()):
        raise ValueError(
            "forest: expected splits by single features, got projections; pass background= in place of "
            "cover= for their interventional values"
        )
    found = covers("cover", forest, cover, sample_weight, counts)

    def add(rows: FloatArray, values: FloatArray) -> None:
        dispatch.backend(PACKAGE, values).shap_path_dependent(rows, forest, found.share, values)

    return add, found.mean[forest.tree_start[:-1]].mean(axis=0)


def _interventional(
    forest: Forest, background: FloatArray, sample_weight: ArrayLike | None
) -> tuple[Add, FloatArray]:
    """Returns how interventional values are added, and the expected values."""
    if not len(background):
        raise ValueError(
            "background: expected at least one sample, got 0; pass samples that the forest was grown on"
        )
    weight = supervised.sample_weight(sample_weight, background)
    weight, _ = supervised.scaled_weight(weight, None, weight.dtype, len(background))
    weight = weight / weight.sum()

    def add(rows: FloatArray, values: FloatArray) -> None:
        backend = dispatch.backend(PACKAGE, values)
        if not backend.shap_interventional(rows, forest, background, weight, MAX_BRANCHES, values):
            raise ValueError(
                f"forest: expected projections that need at most {MAX_BRANCHES} branches in a tree, got "
                "more: the work is exponential in the features that decide a split; grow the forest on fewer "
                "features, with projections of fewer entries, or to a smaller max_depth"
            )

    leaf, expected = apply(forest, background), np.zeros(forest.value.shape[1])
    for m, root in enumerate(forest.tree_start[:-1]):
        value = forest.value[(root + m) // 2 + forest.left[root + leaf[:, m]]].astype(np.float64)
        expected += (weight[:, None] * value).sum(axis=0)
    return add, expected / forest.n_trees
