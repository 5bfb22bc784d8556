"""Settings of growth: their types and texts, and their checks."""

import math
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

from ..core import bootstraps, check, class_factors, dispatch, scores, several, supervised
from ..core.aliases import (
    Array,
    ArrayLike,
    AutoFeatures,
    Bootstrap,
    Classes,
    ClassWeight,
    Criterion,
    IntArray,
    Progress,
    Rng,
    Splitter,
    Task,
)
from ..core.progress import check_progress
from ..core.projections import Distribution, check_distribution, check_projections
from .samples import Samples
from .trees import Objective

SPLITTERS = ("best", "random")
MAX_POISSON = 12
"""The largest in-bag count of bootstrap="poisson"."""


class Limits(TypedDict, total=False):
    """Limits of trees; see `Settings`."""

    max_depth: int | None
    min_samples_split: int | float
    min_samples_leaf: int | float
    min_weight_fraction_leaf: float
    min_impurity_decrease: float
    max_leaf_nodes: int | None


class TreeSettings(Limits, total=False):
    """Settings of all functions that grow trees; see `Settings`."""

    sample_weight: ArrayLike | None
    criterion: Criterion | None
    task: Task
    n_classes: Classes
    first_tree: int
    progress: Progress
    rng: Rng


class Settings(TreeSettings, total=False):
    """Keyword arguments of `hforest.grow`, for ``**settings: Unpack[Settings]``.

    Attributes
    ----------
    projections : Distribution, optional
        Distribution of the random projections that nodes sample, from a function of `hforest.project`. By
        default nodes sample single features.
    n_projections : int, optional
        Number of projections sampled at a node (d in Perry et al. 2019), 1 to 2**20. If all of them are
        constant in the node, it is a leaf. By default the root of n_features, rounded up. In a regression on
        sparse vectors or differences n_features, but at most 100 or that root, whichever is greater. With
        groups of columns the sum of their numbers.
    max_features : "auto", "sqrt", "log2", int, float or None
        Number of features sampled at a node. A float is a fraction of all features, rounded down, but at
        least one feature; "sqrt" and "log2" are these functions of their number; "auto" is "sqrt", but all in
        a regression; None is all. If all sampled features are constant in the node, sampling continues until
        one is not. "auto" with projections.
    splitter : "best" or "random"
        "best" takes the best threshold of a feature or projection. "random" takes one that is uniform between
        its least and greatest value in the node.
    bootstrap : bool, "poisson" or (n_trees, n_samples) array of integers
        Whether each tree draws n_samples samples with replacement. "poisson" takes the in-bag counts of
        `hforest.growth.poisson_counts`. An array has in-bag counts, such as those of
        `hforest.growth.bootstrap_counts`, with one above 0 in each row.
    max_samples : int or float, optional
        Number of samples that a tree draws with ``bootstrap=True``: an int, or a float as a share of
        n_samples, rounded down, but at least one. It may exceed n_samples, which is the default.
    y_order : (n_trees, n_samples) array of integers, optional
        Numbers of samples, such as permutations: tree m learns ``y[y_order[m]]``, so that sample i has the
        label or target of sample y_order[m, i]. Weights and in-bag counts stay with the samples. Cannot be
        used with class_weight or on a GPU.
    sample_weight : (n_samples,) array-like, optional
        Weights of the samples, 0 to 1e100, not all 0. The largest is at most 2e90 times the smallest above 0.
        A sample of weight 0 does not count.
    class_weight : "balanced", "balanced_subsample", mapping, or (n_classes,) array-like, optional
        Factors of the sample weights of each class, by default 1. "balanced" gives the classes equal weight,
        "balanced_subsample" among the samples that each tree draws. Of several labels a list of such values,
        which are multiplied.
    criterion : "gini", "entropy", "log_loss", "squared_error", "friedman_mse" or "poisson", optional
        Impurity, by default "gini", in a regression "squared_error". "log_loss" is another name of "entropy",
        "friedman_mse" one of "squared_error", also for several targets, as in scikit-learn 1.9. "poisson",
        which CO2 forests lack, is half the Poisson deviance of targets of at least 0, some above 0. Of
        several labels or targets it is the sum of theirs.
    max_depth : int, optional
        Maximum depth of a leaf; 0 is a single leaf. By default trees grow until leaves are pure.
    min_samples_split : int or float
        A node with fewer samples is a leaf. A sample that was drawn more than once counts once. A float is a
        share of n_samples, rounded up; growth by rows takes ints alone.
    min_samples_leaf : int or float
        Minimum number of samples on each side of a split; a float as above. A sample that was drawn more than
        once counts once. A random threshold that leaves fewer on a side is not used.
    min_weight_fraction_leaf : float
        Minimum weight on each side of a split, as a fraction of the tree's weight, 0 to 0.5.
    min_impurity_decrease : float
        Minimum decrease of the impurity by a split: its gain divided by the weight of the tree.
    monotonic_cst : (n_features,) array-like of -1, 0 and 1, optional
        1: the mean, or the share of the second class, does not fall with the feature; -1: it does not rise.
        For at most two classes or one target, and features that are numbers.
    max_leaf_nodes : int, optional
        Maximum number of leaves of a tree, at least 2. Nodes are split in the order of their gains, the
        greatest first; of equal gains the node that was made first, left before right. By default no limit.
    task : "classification" or "regression"
        Whether y holds labels or targets.
    n_classes : int or sequence of ints, optional
        Number of classes in a classification; by default the largest label plus 1, and every class must
        occur. With several labels a sample a sequence has the number of each label.
    first_tree : int
        Number of the first tree, 0 or more; first_tree + n_trees is at most 2**20. Calls with the same
        arguments and the same int as rng grow ranges of one forest: its trees are bit-identical for any
        division into ranges. `hforest.tree.join` joins them. Row m of in-bag counts belongs to tree
        first_tree + m.
    progress : callable or bool, optional
        Called as progress(done, n_trees) after every few trees; False ends the growth with the trees so far,
        and True shows a bar.
    rng : None, int or numpy.random.Generator
        Source of random numbers; the same int gives the same forest in every call.
    """

    projections: Distribution | None
    n_projections: int | None
    max_features: AutoFeatures
    splitter: Splitter
    bootstrap: Bootstrap
    max_samples: int | float | None
    y_order: ArrayLike | None
    class_weight: ClassWeight
    monotonic_cst: ArrayLike | None


class Growth(NamedTuple):
    """Checked samples, objective and settings of a call of `hforest.grow`."""

    samples: Samples
    objective: Objective
    n_trees: int
    first_tree: int
    """Number of the first tree."""
    splitter: str
    bootstrap: Bootstrap
    """A bool, "poisson", or in-bag counts."""
    seed: int
    progress: Progress
    order: IntArray | None = None
    """(n_trees, n_samples) int32: the sample whose label or target each sample of a tree has."""
    reached: IntArray | None = None
    """(n_trees, n_samples) int32, written by the backend: the leaf of each sample in each tree; or None."""
    balances: bool = False
    """Whether the classes have equal weight in each tree."""
    n_draws: int | None = None
    """Number of samples that a tree draws with bootstrap=True; None: n_samples."""


def check_limits(settings: TreeSettings, n_samples: int | None = None) -> supervised.Limits:
    """Returns the checked limits among settings.

    n_samples: the number of which floats in min_samples_split and min_samples_leaf are shares; None: they are
    refused.
    """
    given: dict[str, Any] = dict(settings)
    limits = {name: given[name] for name in Limits.__annotations__}
    for name, least in (("min_samples_split", 2), ("min_samples_leaf", 1)):
        value = check.scalar(limits[name])
        if n_samples is not None and isinstance(value, float | np.floating):
            share = check.number(name, value, 0.0, 1.0, open_low=True)
            limits[name] = max(least, math.ceil(share * n_samples))
    return supervised.limits(**limits)


def check_windows(samples: Any, task: Task) -> None:
    """Checks that trees can grow on windows: no missing values and no targets of a regression."""
    check.choice("task", task, supervised.TASKS)
    if samples.are_windows:
        check.require(
            not samples.has_missing, "x", "windows without NaN", "missing values",
            "copy the windows into an array to grow on missing values",
        )  # fmt: skip
        check.require(
            task == "classification", "task", '"classification" for windows', repr(task),
            "copy the windows into an array for regression",
        )  # fmt: skip


def check_bootstrap(bootstrap: bool | str | Array, n_trees: int, n_samples: int, beside: Array) -> Any:
    """Returns a bool, "poisson", or in-bag counts on the device of the array `beside`."""
    if isinstance(bootstrap, bool | np.bool_):
        return bool(bootstrap)
    if isinstance(bootstrap, str):
        return str(check.choice("bootstrap", bootstrap, ("poisson",)))
    counts = supervised.in_bag_counts("bootstrap", bootstrap, n_trees, n_samples, owned=True)
    check.same_device(x=beside, bootstrap=counts)
    if check.values_checked():
        supervised.check_drawn("bootstrap", counts.any(axis=1))
    return counts


def most_drawn(n_samples: int, bootstrap: Bootstrap) -> int:
    """Returns the maximum number of samples that a tree draws."""
    if isinstance(bootstrap, str):
        return MAX_POISSON * n_samples
    if isinstance(bootstrap, bool) or not bootstrap.size:
        return n_samples
    return n_samples * max(1, int(bootstrap.max()))


def check_order(
    order: ArrayLike | None, n_trees: int, n_samples: int, beside: Array, class_weight: Any
) -> IntArray | None:
    """Returns None, or int32 numbers of samples for each tree, on the CPU like the array `beside`."""
    if order is None:
        return None
    check.on_cpu(y_order=order)
    check.require(
        dispatch.array_module(beside) is np, "y_order", "None with CuPy arrays", "an array",
        "pass NumPy arrays, or call once per tree", TypeError,
    )  # fmt: skip
    numbers = supervised.integers_of_objects(supervised.as_given("y_order", order))
    shape = (n_trees, n_samples)
    check.require(
        numbers.dtype.kind in "iu", "y_order", "an array of an integer dtype", numbers.dtype,
        "pass sample indices, such as permutations", TypeError,
    )  # fmt: skip
    check.require(
        numbers.shape == shape, "y_order", f"shape (n_trees, n_samples) = {shape}", tuple(numbers.shape),
        "pass a row for each tree",
    )  # fmt: skip
    # Backends follow these: they are read inside unchecked(), too.
    numbers = check.owned(numbers)
    low, high = int(numbers.min()), int(numbers.max())
    check.require(
        0 <= low and high < n_samples, "y_order", f"sample indices below {n_samples}", f"{low} to {high}",
        "sample indices start at 0", IndexError,
    )  # fmt: skip
    check.require(
        class_weight is None, "class_weight", "None with y_order", "class weights",
        "multiply them into sample_weight, which stays with the samples",
    )  # fmt: skip
    return supervised.converted_numbers(numbers, check.INT32)


def check_monotonic(constraints: ArrayLike | None, samples: Samples, target: Any) -> IntArray | None:
    """Returns the signs of monotonic constraints as int32; None if there are none."""
    if constraints is None:
        return None
    remedy = "copy the windows into an array"
    check.require(not samples.are_windows, "monotonic_cst", "None with windows", "constraints", remedy)
    of_classes, categorical = target.targets is None, samples.categorical
    return check_signs(constraints, samples.shape[1], categorical, target.n_outputs, of_classes=of_classes)


def check_signs(
    constraints: ArrayLike, n_features: int, categorical: Array | None, n_outputs: int, *, of_classes: bool
) -> IntArray | None:
    """Returns the signs of monotonic constraints as `check_monotonic`; n_outputs classes or targets."""
    name, remedy = "monotonic_cst", "pass 1, 0 or -1 for each feature"
    signs, shape = supervised.real(name, dispatch.to_numpy(constraints)), (n_features,)
    check.require(signs.shape == shape, name, f"shape (n_features,) = {shape}", tuple(signs.shape), remedy)
    for sign in signs:
        check.require(sign in (-1, 0, 1), name, "only -1, 0 and 1", sign, remedy)
    check.require(
        n_outputs <= (2 if of_classes else 1), name, "None with several targets or more than two classes",
        f"{n_outputs} of them", "grow a forest for each target, or for each class against the others",
    )  # fmt: skip
    for f in np.flatnonzero(False if categorical is None else categorical):
        check.require(
            signs[f] == 0, name, "0 for features that are categories", f"{signs[f]} for feature {f}",
            "pass 0 there: categories have no order",
        )  # fmt: skip
    return supervised.owned_numbers(signs, check.INT32) if signs.any() else None


def check_counts(least: float, greatest: float) -> None:
    """Checks that targets have a Poisson deviance: they are at least 0, and some are above 0."""
    name, remedy = "y", 'pass criterion="squared_error" for other targets'
    check.require(least >= 0, name, 'targets of at least 0 with criterion="poisson"', least, remedy)
    expected = 'some targets above 0 with criterion="poisson"'
    check.require(greatest > 0, name, expected, "only zeros", remedy)


def check_objective(
    y: ArrayLike,
    beside: Array,
    n_samples: int,
    *,
    task: Task,
    n_classes: Classes,
    sample_weight: ArrayLike | None,
    class_weight: Any = None,
    criterion: Criterion | None,
    limits: supervised.Limits,
    dtype: np.dtype,
) -> Objective:
    """Returns labels or targets on the device of the array `beside`, sample weights, and settings.

    `dtype` is that of the forest.
    """
    most = min(supervised.MAX_WEIGHT, float(np.finfo(dtype).max))  # leaves hold mean targets
    target = several.target_or_several(y, n_samples, task, n_classes, most)
    check.same_device(x=beside, y=target.y)
    weight = supervised.sample_weight(sample_weight, target.y)
    supervised.similar("sample_weight", weight)
    if class_weight is not None:
        weight = class_factors.applied(class_weight, target, weight)
        supervised.similar("class_weight", weight)
    number = supervised.criterion(criterion, task, grown=True)
    if number == scores.POISSON and target.targets is not None and check.values_checked():
        check_counts(float(target.targets.min()), float(target.targets.max()))
    if target.class_start is not None:
        number = several.CRITERIA[number]
    return Objective(target, weight, number, limits)


def check_growth(
    samples: Samples,
    y: ArrayLike,
    n_trees: int,
    *,
    splitter: Splitter,
    bootstrap: Bootstrap,
    max_samples: int | float | None,
    y_order: ArrayLike | None,
    class_weight: ClassWeight,
    monotonic_cst: ArrayLike | None,
    **settings: Unpack[TreeSettings],
) -> Growth:
    """Returns the checked arguments of `hforest.grow`."""
    check_progress(settings["progress"])
    n_trees, first_tree = check.tree_range(n_trees, settings["first_tree"])
    limits = check_limits(settings, len(samples))
    check_windows(samples, settings["task"])
    check.choice("splitter", splitter, SPLITTERS)
    bootstrap = check_bootstrap(bootstrap, n_trees, len(samples), samples.numbers)
    n_draws = bootstraps.number_of_draws(max_samples, len(samples))
    check.require(
        n_draws is None or bootstrap is True, "max_samples", "None without bootstrap=True", repr(max_samples),
        "pass bootstrap=True, or counts of growth.bootstrap_counts(n_draws=...)",
    )  # fmt: skip
    balances = class_factors.are_of_trees(class_weight)
    if balances and bootstrap is False:  # trees of all samples have the same weights
        balances, class_weight = False, "balanced"
    objective = check_objective(
        y, samples.numbers, len(samples), task=settings["task"], n_classes=settings["n_classes"],
        sample_weight=settings["sample_weight"], class_weight=None if balances else class_weight,
        criterion=settings["criterion"], limits=limits, dtype=samples.dtype,
    )  # fmt: skip
    class_factors.check_labels(class_weight, objective.target)
    check.require(
        not samples.are_windows or objective.target.class_start is None, "y",
        "one label a sample for windows", "several labels", "copy the windows into an array",
    )  # fmt: skip
    # Gains in the dtype must be in range.
    drawn = max(most_drawn(len(samples), bootstrap), n_draws or 0)
    _, scale = supervised.scaled_weight(
        objective.sample_weight, objective.target.targets, samples.dtype, drawn
    )
    weight, exponent = supervised.in_range(objective.sample_weight)
    order = check_order(y_order, n_trees, len(samples), samples.numbers, class_weight)
    seed = check.seed(settings["rng"])
    monotonic = check_monotonic(monotonic_cst, samples, objective.target)
    objective = objective._replace(sample_weight=weight, scale=scale - exponent, monotonic=monotonic)
    return Growth(
        samples, objective, n_trees, first_tree, splitter, bootstrap, seed, settings["progress"], order,
        balances=balances, n_draws=n_draws,
    )  # fmt: skip


def check_candidates(
    projections: Any, n_projections: Any, max_features: Any, task: Task, monotonic: Any
) -> tuple[Distribution | None, int]:
    """Returns the checked distribution, and the number of projections that a node samples; None and 0."""
    check.choice("task", task, supervised.TASKS)
    if projections is None:
        check.require(
            n_projections is None, "n_projections", "None without projections", repr(n_projections),
            "pass, for example, projections=hforest.project.sparse_distribution(n_features)", TypeError,
        )  # fmt: skip
        return None, 0
    distribution = check_distribution(projections, "projections")
    check.require(
        isinstance(max_features, str) and max_features == "auto", "max_features", '"auto" with projections',
        repr(max_features), "pass n_projections instead", TypeError,
    )  # fmt: skip
    check.require(
        monotonic is None, "monotonic_cst", "None with projections", "constraints",
        "leave out projections: constraints are on single features",
    )  # fmt: skip
    return distribution, check_projections(distribution, n_projections, task)
