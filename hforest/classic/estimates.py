"""What a bootstrapped forest predicts for the samples that it was grown on."""

from .. import tree
from ..core import check
from ..core.aliases import ArrayLike, FloatArray
from ..growth.checks import in_bag_counts
from ..tree import Forest
from ..tree.walks import out_of_bag_values


def out_of_bag(forest: Forest, x: ArrayLike, counts: ArrayLike) -> FloatArray:
    """Returns predictions for the samples that a forest was grown on, each by the trees that did not draw it.

    Parameters
    ----------
    forest : Forest
        From `grow`.
    x : (n_samples, n_features) array-like of real numbers
        The samples; converted to the dtype of the forest.
    counts : (n_trees, n_samples) array of integers
        How often each tree drew each sample: the array given as `bootstrap`, or
        ``bootstrap_counts(n_samples, n_trees, rng=seed)`` with the seed that was given as rng.

    Returns
    -------
    (n_samples, n_outputs) array, dtype of the forest
        Means of leaf values; NaN for a sample that every tree drew.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong kind or dtype, or CuPy arrays; wrong shape, NaN or infinity; a forest that `hforest.tree.check`
        refuses.

    Notes
    -----
    Breiman 2001, section 3.1. Means are summed in float64 in the order of the trees. Cost: that of
    `hforest.tree.apply`, and a pass over the leaf values for each tree.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = x[:, 0] > 0
    >>> forest = hforest.classic.grow(x, y, 50, rng=7)
    >>> p = hforest.classic.out_of_bag(forest, x, hforest.classic.bootstrap_counts(300, 50, rng=7))
    >>> bool((p.argmax(axis=1) == y).mean() > 0.95)
    True
    """
    check.on_cpu(x=x, counts=counts)
    leaf = tree.apply(forest, x)
    n, n_trees = leaf.shape
    return out_of_bag_values(forest, leaf, in_bag_counts("counts", counts, n_trees, n))
