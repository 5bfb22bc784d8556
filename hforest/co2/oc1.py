"""One oblique split by coordinate-wise search: OC1 (Murthy, Kasif and Salzberg, JAIR 1994), the baseline of
Norouzi et al. 2015.
"""

from typing import NamedTuple

from ..core import check, dispatch, supervised
from ..core.aliases import ArrayLike, Criterion, FloatArray, Rng, Task
from . import checks

_PACKAGE = "hforest.co2"
_MAX_SEARCHES = 2**20


class Search(NamedTuple):
    """Settings of a coordinate-wise search after a local optimum, for the backends."""

    restarts: int
    jumps: int


def search_settings(restarts: int, jumps: int) -> Search:
    """Returns the settings of a search after a check."""
    return Search(
        check.integer("restarts", restarts, 0, _MAX_SEARCHES), check.integer("jumps", jumps, 0, _MAX_SEARCHES)
    )


def fit_oc1(
    x: FloatArray,
    y: ArrayLike,
    w: FloatArray,
    *,
    sample_weight: ArrayLike | None = None,
    criterion: Criterion | None = None,
    min_samples_leaf: int = 1,
    min_weight_fraction_leaf: float = 0.0,
    restarts: int = 0,
    jumps: int = 5,
    task: Task = "classification",
    n_classes: int | None = None,
    rng: Rng = None,
) -> FloatArray:
    """Returns one oblique split of a coordinate-wise search (OC1), the baseline of Norouzi et al. 2015.

    Other parameters: see `fit_stump` and `hforest.growth.Settings`.

    Parameters
    ----------
    criterion : "entropy", "gini" or "squared_error", optional
        Impurity; by default "entropy", for a regression "squared_error".
    restarts : int
        Number of searches from random hyperplanes, besides the one from w.
    jumps : int
        Number of random directions that a search tries in a row to leave a local optimum.

    Returns
    -------
    (n_features,) array, dtype of x
        Best w of the search, scaled so that its largest number is 1. Its impurity is not higher than that of
        the initial w, up to the rounding to the dtype of x.

    Notes
    -----
    With all other weights fixed, a sample changes sides at one value of a weight. The search scans these
    values in order for the least impurity, weight after weight, until no single weight lowers it. Then it
    searches random directions likewise, on the CPU. Sums are in float64.

    A departure from Murthy et al. 1994: here a weight changes only if the impurity falls. If it stays equal,
    they still change the weight with a probability that decreases with the number of such moves
    ("stagnation"). Cost: a sort of n_samples numbers per weight, and n_samples steps of O(n_outputs).

    Examples
    --------
    >>> import numpy as np
    >>> from hforest import co2
    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(size=(200, 2)), -np.ones((200, 1))], axis=1)
    >>> y = x[:, 0] + x[:, 1] > 0
    >>> w = co2.fit_oc1(x, y, np.array([1.0, 0, 0]), rng=0)
    >>> bool(((x @ w >= 0) == y).mean() > 0.97)
    True
    """
    check.on_cpu(x=x, y=y, w=w, sample_weight=sample_weight)
    samples, n_outputs = checks.samples_and_split(x, y, w, sample_weight, task, n_classes)
    number = supervised.criterion(criterion, task, "entropy")
    least = check.integer("min_samples_leaf", min_samples_leaf, 1, check.MAX_COUNT)
    share = check.number("min_weight_fraction_leaf", min_weight_fraction_leaf, 0.0, 0.5)
    search = search_settings(restarts, jumps)
    direction = w.astype("float64")
    least_weight = share * float(samples.weight.sum())
    run = dispatch.backend(_PACKAGE, x).fit_oc1
    run(samples, n_outputs, number, least, least_weight, search, check.seed(rng), direction)
    return direction.astype(x.dtype)
