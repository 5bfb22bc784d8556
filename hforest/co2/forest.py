"""Forests of oblique splits (Norouzi et al. 2015, section 5)."""

from functools import partial
from typing import Any, Literal

import numpy as np

from ..core import check, dispatch, machine, supervised
from ..core.aliases import (
    ArrayLike,
    Bootstrap,
    ClassWeight,
    CO2Features,
    Criterion,
    FloatArray,
    Progress,
    Rng,
    Task,
)
from ..core.in_place import Windows, rows_of
from ..core.progress import check_progress
from ..core.units import Units, standardized
from ..growth import Bins, Samples, samples, unchecked
from ..growth.checks import check_bootstrap, check_windows_task
from ..growth.samples import check_dense
from ..growth.settings import Growth
from ..growth.trees import Learned
from ..tree import Forest
from ..tree.forest import marked
from . import checks, units
from .oc1 import search_settings
from .stump import StumpSettings, schedule

_PACKAGE = "hforest.co2"
_SPLITTERS = ("co2", "oc1")


def grow(
    x: ArrayLike | Windows | Samples,
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
    sample_weight: ArrayLike | None = None,
    class_weight: ClassWeight = None,
    criterion: Criterion | None = None,
    bootstrap: Bootstrap = False,
    max_depth: int | None = None,
    min_samples_split: int = 2,
    min_samples_leaf: int = 1,
    min_weight_fraction_leaf: float = 0.0,
    min_impurity_decrease: float = 0.0,
    task: Task = "classification",
    n_classes: int | None = None,
    first_tree: int = 0,
    progress: Progress = None,
    rng: Rng = None,
) -> Forest:
    """Returns a CO2 forest (Norouzi et al. 2015, section 5).

    Parameters
    ----------
    x : (n_samples, n_features) array of real numbers, Windows, or Samples
        Samples, or the result of `hforest.growth.samples`; finite, at least one, of any layout. `grow`
        appends the constant -1. Windows (`hforest.growth.Windows`) are for classification with the splitter
        "co2" only. float64 and integers of more than 16 bits are computed in float64, other dtypes in
        float32.
    y : (n_samples,) array of integers or bools, or (n_samples,) or (n_samples, n_outputs) array of numbers
        Labels 0 to n_classes - 1, or targets in a regression.
    n_trees : int
        Number of trees, 1 to 2**20.
    nu, lr, max_rounds : float, float, int
        Bound on ``||w||**2``, learning rate (eta in Norouzi et al. 2015) and maximum number of rounds of a
        stump, as in `fit_stump`. Defaults are for standardised columns; the paper tries nu of 0.1 to 100 and
        eta of 0.003 to 0.03 (`search`).
    max_features : "n**0.6", "sqrt", int, float or None
        Number of features sampled at a node, q in Norouzi et al. 2015: ``n_features**0.6``, rounded; the
        square root; a number; a fraction of all; or all. The stump starts from the best univariate split on
        one of them.
    stump : StumpSettings
        Other settings of a stump.
    splitter : "co2" or "oc1"
        Whether stumps are fitted by `fit_stump` or by `fit_oc1`, which alone uses `restarts` and `jumps`.
    restarts : int
        Number of searches from random hyperplanes, besides the one from w.
    jumps : int
        Number of random directions that a search tries in a row to leave a local optimum.
    min_samples_oblique : int
        With the splitter "co2" a node with fewer samples keeps its univariate split: few samples cannot
        determine one weight per feature.
    standardize : bool
        Whether stumps are fitted to standardised columns, and a regression to standardised targets; means and
        deviations are over the samples of positive weight. The forest is returned in the units of x and y.
        False is the form of Norouzi et al. 2015: scale the features yourself.
    sample_weight : (n_samples,) array of real numbers, optional
        Weights of the samples, 0 to 1e15, not all below 1e-60. The largest is at most 2e90 times the smallest
        above 0. A sample of weight 0 is left out.
    class_weight : "balanced", mapping, or (n_classes,) array-like, optional
        Factors of the sample weights of each class. Classes that a mapping omits have factor 1; "balanced"
        gives all classes that occur the same total weight.
    criterion : "entropy", "gini" or "squared_error", optional
        Impurity for the choice of the univariate split; by default "entropy", for a regression
        "squared_error".
    bootstrap : bool, "poisson" or (n_trees, n_samples) array of int32
        Whether each tree samples n_samples samples with replacement, as in Norouzi et al. 2015, or in-bag
        counts with one above 0 in each row. By default every tree has every sample, which gave lower errors.
    max_depth : int, optional
        Maximum depth of a leaf; 0 is a single leaf. By default trees grow until leaves are pure.
    min_samples_split : int
        A node with fewer samples is a leaf. A sample that was drawn more than once counts once.
    min_samples_leaf : int
        Minimum number of samples on each side of a split. A sample that was drawn more than once counts once.
    min_weight_fraction_leaf : float
        Minimum weight on each side of a split, as a fraction of the tree's weight, 0 to 0.5.
    min_impurity_decrease : float
        Minimum decrease of the impurity by a split: its gain divided by the weight of the tree.
    task : "classification" or "regression"
        Whether y holds labels or targets.
    n_classes : int, optional
        Number of classes, at most 2**20; some of them may be absent. By default it is the largest label plus
        1, and every class must occur. Classification only.
    first_tree : int
        Number of the first tree, 0 or more; first_tree + n_trees is at most 2**20. Calls with the same
        arguments and the same int as rng grow ranges of one forest: its trees are bit-identical for any
        division into ranges. `hforest.tree.join` joins them. Row m of in-bag counts belongs to tree
        first_tree + m.
    progress : callable or bool, optional
        Called as progress(done, n_trees) after every few trees. If it returns False, growth stops and the
        trees so far are returned. True shows a bar.
    rng : None, int or numpy.random.Generator
        Source of random numbers; the same int gives the same result in every call.

    Returns
    -------
    Forest
        Forest with projections as splits; leaf values are shares of the classes, or mean targets.
        `hforest.tree` converts rows to the dtype of the forest.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        Not numbers, or CuPy arrays with splitter="oc1"; wrong shape, no sample, NaN, infinity or numbers
        beyond 1e15, a number out of range; labels or in-bag counts out of range; a `progress` that cannot be
        called; not enough memory.

    Notes
    -----
    Each node finds the best of its random univariate splits, fits a stump from there on its samples (in-bag
    counts are weights), and splits by the stump. The univariate split stays if the stump violates
    min_samples_leaf or min_weight_fraction_leaf. Trees grow until leaves are pure. Samples go right where
    ``w.x >= 0``, so the threshold of the projection is the next number below the offset. With `standardize`,
    affine changes of a column or of all targets do not change the forest, up to rounding; targets share one
    deviation, the root of their mean variance. The forest of Norouzi et al. 2015 is ``standardize=False,
    bootstrap=True, min_samples_oblique=1``, with nu and lr searched; docs/co2.md explains the defaults.
    Results are the same for every number of threads. Cost: about 60 reads of x per level of a tree at the
    defaults; a projection takes 8 bytes per feature (12 for float64).

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
    check_progress(progress)
    check.choice("splitter", splitter, _SPLITTERS)
    check.flag("standardize", standardize)
    search = search_settings(restarts, jumps)
    oc1 = search if splitter == "oc1" else None
    if splitter == "oc1":
        check.on_cpu(x=x, y=y, sample_weight=sample_weight)
    settings = schedule(nu, lr, max_rounds, stump, min_samples_oblique)
    limits = supervised.limits(
        max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease, min_weight_fraction_leaf
    )
    n_trees = check.integer("n_trees", n_trees, 1, check.MAX_TREES)
    first_tree = check.first_tree(first_tree, n_trees)
    source = samples(x)
    check_windows_task(source.are_windows, task)
    x = source.matrix() if source.are_windows else check_dense(source)
    numbers: Any = x.x if isinstance(x, Windows) else x
    backend = dispatch.backend(_PACKAGE, numbers)
    if isinstance(x, Windows):
        check.require(
            oc1 is None, "splitter", '"co2" for windows', repr(splitter), "copy the windows into an array"
        )
        if not backend.READS_WINDOWS:
            x = numbers = rows_of(x)
    target, weight = checks.target_and_weight(x, y, sample_weight, task, n_classes)
    if class_weight is not None:
        weight = supervised.class_weight(class_weight, target, weight)
        checks.moderate_weight("class_weight", weight)
    number = supervised.criterion(criterion, task, "entropy")
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
    learned, seed = Learned(target, weight, number, limits), check.seed(rng)
    # Frees the converted arrays, unless the caller keeps them.
    del source
    if bins is not None:
        numbers = x
    growth = Growth(
        Samples(x, numbers, x.dtype), learned, n_trees, first_tree, splitter, bootstrap, seed, progress
    )

    grow_some = partial(backend.grow, x, bins, learned, n_candidates, settings, oc1)
    # Trees take long: on the CPU a batch has at most one tree per thread, so that an interrupt ends soon.
    batch = machine.get_num_threads() if dispatch.array_module(numbers) is np else None
    trees = unchecked.in_batches(grow_some, growth, batch)
    forest = _forest(trees, target.n_outputs, numbers, x.shape[1])
    del trees  # as large as the forest
    return marked(forest if of_x is None else units.with_units(forest, of_x, of_y))


def _encoded(
    x: Any, weight: FloatArray, standardize: bool
) -> tuple[Units | None, FloatArray | units.StandardizedWindows, Bins | None]:
    """Returns the units of the columns, if standardised; the columns in these units; and bins of arrays."""
    of_x = units.of_samples(x, weight) if standardize else None
    if isinstance(x, Windows):
        as_they_are = Units(np.zeros(x.shape[1]), np.ones(x.shape[1]))
        return of_x, units.StandardizedWindows(x, as_they_are if of_x is None else of_x), None
    x = x if of_x is None else standardized(x, of_x)
    return of_x, x, Samples(x, x, x.dtype).bins()


def _forest(trees: list[Any], n_outputs: int, beside: FloatArray, n_features: int) -> Forest:
    grown, indptr, indices, data = unchecked.joined(trees, n_outputs, beside, beside.dtype)
    return Forest(
        n_features=dispatch.array_module(indptr).array(n_features, np.int64),
        **grown._asdict(),
        indptr=indptr,
        indices=indices,
        data=data,
    )
