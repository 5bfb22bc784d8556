"""Forests of oblique splits (Norouzi et al. 2015, section 5)."""

from functools import partial
from typing import Any, Literal, Unpack

import numpy as np

from .. import growth
from ..core import check, class_factors, dispatch, machine, supervised
from ..core.aliases import ArrayLike, Bootstrap, ClassWeight, CO2Features, FloatArray
from ..core.in_place import PlacedWindows, rows_of
from ..core.keywords import shared
from ..core.progress import check_progress
from ..core.units import Units, standardized
from ..growth import Samples, TreeSettings, unchecked
from ..growth.bins import Bins
from ..growth.samples import check_dense
from ..growth.settings import Growth, check_bootstrap, check_limits, check_windows
from ..growth.trees import Objective
from ..tree import Forest
from ..tree.forest import marked
from . import checks, units
from .oc1 import search_settings
from .stump import StumpSettings, schedule

_PACKAGE = "hforest.co2"
_SPLITTERS = ("co2", "oc1")


@shared(TreeSettings, growth.grow)
def grow(
    x: ArrayLike | Samples,
    y: ArrayLike,
    n_trees: int = 30,
    *,
    nu: float = 4.0,
    lr: float = 0.1,
    max_rounds: int = 20,
    max_features: CO2Features = "n**0.6",
    stump: StumpSettings = StumpSettings(),  # noqa: B008 (a tuple)
    splitter: Literal["co2", "oc1"] = "co2",
    restarts: int = 0,
    jumps: int = 5,
    min_samples_oblique: int = 10,
    standardize: bool = True,
    bootstrap: Bootstrap = False,
    class_weight: ClassWeight = None,
    **settings: Unpack[TreeSettings],
) -> Forest:
    """Returns a CO2 forest (Norouzi et al. 2015, section 5).

    Other parameters: see `hforest.grow`, `fit_stump` and `fit_oc1`.

    Parameters
    ----------
    x : (n_samples, n_features) array-like of real numbers, or Samples
        At least one sample, finite, without categories; dtypes as in `hforest.grow`. The constant -1 is
        appended. Samples of windows are for classification with the splitter "co2" only.
    nu, lr, max_rounds : float, float, int
        Bound on ``||w||**2``, learning rate (eta in Norouzi et al. 2015) and maximum number of rounds of a
        stump, as in `fit_stump`. Defaults are for standardised columns; the paper tries nu of 0.1 to 100 and
        eta of 0.003 to 0.03 (`search`).
    max_features : "n**0.6", "sqrt", "log2", int, float or None
        Number of features sampled at a node, q in Norouzi et al. 2015: ``n_features**0.6``, rounded; the
        square root; a number; a fraction of all; or all. The stump starts from the best univariate split on
        one of them.
    splitter : "co2" or "oc1"
        Whether stumps are fitted by `fit_stump` or by `fit_oc1`, which alone uses `restarts` and `jumps`.
    min_samples_oblique : int
        With the splitter "co2" a node with fewer samples keeps its univariate split: few samples cannot
        determine one weight per feature.
    standardize : bool
        Whether stumps are fitted to standardised columns, and a regression to standardised targets; means and
        deviations are over the samples of positive weight. The forest is returned in the units of x and y.
        False is the form of Norouzi et al. 2015: scale the features yourself.
    sample_weight : (n_samples,) array-like, optional
        Weights as in `hforest.grow`, but 0 to 1e15, not all below 1e-60; a sample of weight 0 is left out.
    criterion : "entropy", "gini" or "squared_error", optional
        Impurity for the choice of the univariate split; by default "entropy", for a regression
        "squared_error".

    Returns
    -------
    Forest
        Forest with projections as splits; leaf values are shares of the classes, or mean targets.
        `hforest.tree` converts rows to the dtype of the forest.

    Raises
    ------
    TypeError
        CuPy arrays with splitter="oc1".
    ValueError
        Numbers beyond 1e15.

    Notes
    -----
    Each node finds the best of its random univariate splits, fits a stump from there on its samples (in-bag
    counts are weights), and splits by the stump. The univariate split stays if the stump violates
    min_samples_leaf or min_weight_fraction_leaf. Trees grow until leaves are pure. Samples go right where
    ``w.x >= 0``, so the threshold of the projection is the next number below the offset. With `standardize`,
    affine changes of a column or of all targets do not change the forest, up to rounding; targets share one
    deviation, the root of their mean variance. The forest of Norouzi et al. 2015 is ``standardize=False,
    bootstrap=True, min_samples_oblique=1``, with nu and lr searched; docs/co2.md explains the defaults. By
    default every tree has every sample, which gave lower errors than a bootstrap. Results are the same for
    every number of threads. Cost: about 60 reads of x per level of a tree at the defaults; a projection takes
    8 bytes per feature (12 for float64).

    Windows are not copied as a whole. A tree copies those of a node, standardised, into at most 512 MB that
    all threads share; windows beyond are copied again in each pass. The forest is bit-identical to that of a
    copy. The reference implementation and a GPU copy all windows.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(300, 4))
    >>> y = x[:, 0] + x[:, 1] > x[:, 2]
    >>> forest = hforest.co2.grow(x, y, 10, rng=0)
    >>> bool((hforest.tree.predict(forest, x).argmax(axis=1) == y).mean() > 0.97)
    True
    """
    progress, task, sample_weight = settings["progress"], settings["task"], settings["sample_weight"]
    check_progress(progress)
    check.choice("splitter", splitter, _SPLITTERS)
    check.flag("standardize", standardize)
    search = search_settings(restarts, jumps)
    oc1 = search if splitter == "oc1" else None
    if splitter == "oc1":
        check.on_cpu(x=x, y=y, sample_weight=sample_weight)
    rounds = schedule(nu, lr, max_rounds, stump, min_samples_oblique)
    n_trees, first_tree = check.tree_range(n_trees, settings["first_tree"])
    source = growth.samples(x)
    limits = check_limits(settings, len(source))
    check_windows(source, task)
    x = source.matrix() if source.are_windows else check_dense(source)
    numbers: Any = x.x if isinstance(x, PlacedWindows) else x
    backend = dispatch.backend(_PACKAGE, numbers)
    if isinstance(x, PlacedWindows):
        check.require(
            oc1 is None, "splitter", '"co2" for windows', repr(splitter), "copy the windows into an array"
        )
        if not backend.READS_WINDOWS:
            x = numbers = rows_of(x)
    target, weight = checks.target_and_weight(x, y, sample_weight, task, settings["n_classes"])
    if class_weight is not None:
        weight = class_factors.applied(class_weight, target, weight)
        checks.moderate_weight("class_weight", weight)
    number = supervised.criterion(settings["criterion"], task, "entropy")
    n_candidates = checks.candidates(max_features, x.shape[1])
    bootstrap = check_bootstrap(bootstrap, n_trees, x.shape[0], numbers)
    checks.check_gains(weight, target.targets, x.dtype, bootstrap)
    if check.values_checked():
        checks.moderate("x", numbers)
    key = type(x), weight.tobytes() if standardize else None
    of_x, x, bins = source.once("hyperplanes", key, lambda: _encoded(x, weight, standardize))
    of_y = None
    if of_x is not None and target.targets is not None:
        of_y = units.of_targets(target.targets, weight)
        target = target._replace(targets=standardized(target.targets, of_y))
        limits = limits._replace(
            min_impurity_decrease=limits.min_impurity_decrease / float(of_y.deviation[0]) ** 2
        )
    objective, seed = Objective(target, weight, number, limits), check.seed(settings["rng"])
    # Frees the converted arrays, unless the caller keeps them.
    del source
    if bins is not None:
        numbers = x
    checked = Growth(
        growth.Samples(x, numbers, x.dtype),
        objective,
        n_trees,
        first_tree,
        splitter,
        bootstrap,
        seed,
        progress,
    )

    grow_some = partial(backend.grow, x, bins, objective, n_candidates, rounds, oc1)
    # Trees take long: on the CPU a batch has at most one tree per thread, so that an interrupt ends soon.
    batch = machine.get_num_threads() if dispatch.array_module(numbers) is np else None
    trees = unchecked.in_batches(grow_some, checked, batch)
    forest = unchecked.forest(trees, checked, projected=True)
    del trees  # as large as the forest
    return marked(forest if of_x is None else units.with_units(forest, of_x, of_y))


def _encoded(
    x: Any, weight: FloatArray, standardize: bool
) -> tuple[Units | None, FloatArray | units.StandardizedWindows, Bins | None]:
    """Returns the units of the columns, if standardised; the columns in these units; and bins of arrays."""
    of_x = units.of_samples(x, weight) if standardize else None
    if isinstance(x, PlacedWindows):
        as_they_are = Units(np.zeros(x.shape[1]), np.ones(x.shape[1]))
        return of_x, units.StandardizedWindows(x, as_they_are if of_x is None else of_x), None
    x = x if of_x is None else standardized(x, of_x)
    return of_x, x, growth.Samples(x, x, x.dtype).bins()
