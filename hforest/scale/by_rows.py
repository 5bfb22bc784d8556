"""Forests on rows that lie on several workers."""

from typing import Any

import numpy as np

from ..core import check, supervised
from ..core.aliases import ArrayLike, IntArray, Progress, Rng
from ..core.progress import check_progress, reporting
from ..core.projections import MAX_PROJECTIONS, Distribution, check_distribution, default_projections
from ..tree import Forest
from . import planning, state_machine
from .communicators import Communicator, as_communicator
from .engine import Engine, Handle
from .parts import Given, Settings, as_given
from .workers import Workers


def grow_by_rows(
    comm: Communicator | None,
    x: ArrayLike,
    y: ArrayLike,
    n_trees: int = 100,
    *,
    sample_weight: ArrayLike | None = None,
    criterion: str | None = None,
    max_features: int | float | str | None = "auto",
    max_bins: int = 256,
    categorical: ArrayLike | None = None,
    bootstrap: bool | str | IntArray = "poisson",
    max_depth: int | None = None,
    min_samples_split: int = 2,
    min_samples_leaf: int = 1,
    min_weight_fraction_leaf: float = 0.0,
    min_impurity_decrease: float = 0.0,
    task: str = "classification",
    n_classes: int | None = None,
    distribution: Distribution | None = None,
    n_projections: int | None = None,
    max_gathered: int | None = None,
    first_tree: int = 0,
    progress: Progress = None,
    rng: Rng = None,
) -> Forest:
    """Returns a random forest on the rows of all workers: the same on each, however rows are divided.

    Parameters
    ----------
    comm : Communicator or None
        `TorchComm`, `MpiComm`, or an object with their methods and attributes; None: one worker alone. Every
        worker calls this function, with the same settings.
    x : (n_rows, n_features) array-like of real numbers
        This worker's rows, finite or NaN for missing values; 0 or more. The rows of all workers in the order
        of their ranks are the samples.
    y : (n_rows,) array-like of labels, or (n_rows,) or (n_rows, n_outputs) array-like of targets
        Of these rows, as `hforest.classic.grow` takes them. Labels may be absent on a worker.
    n_trees : int
        Trees, 1 to 2**20.
    sample_weight : (n_rows,) array-like, optional
        Whole numbers 0 to 2**24, not all 0.
    criterion, max_features, categorical
        As `hforest.classic.grow` takes them.
    max_bins : int
        1 to 256: thresholds lie between at most so many bins of each feature, the same on all workers. A
        feature of at most max_bins distinct values is exact. Others have bins of about as many rows each:
        of all rows up to 131072 of them, else of about so many, which are sampled by their numbers.
    bootstrap : "poisson", bool or (n_trees, n_rows) array of integers
        Whether trees have each row as often as `hforest.growth.poisson_counts` says, or once (False), or how
        often they have each of these rows. True is refused: no worker can draw from all rows.
    max_depth, min_samples_split, min_samples_leaf, min_weight_fraction_leaf, min_impurity_decrease
        As `hforest.classic.grow` takes them.
    task, n_classes
        As `hforest.classic.grow` takes them.
    distribution : Distribution, optional
        Nodes compare random projections of features, such as of `hforest.project.sparse_distribution`, in
        place of single features; then max_features is "auto" and categorical None.
    n_projections : int, optional
        Projections sampled at a node, 1 to 2**20; by default as many as `hforest.manifold.grow` samples.
    max_gathered : int, optional
        Nodes of at most so many rows are gathered on one worker, which finishes them; by default as many as
        make less traffic than sums do. The trees of a classification do not depend on it.
    first_tree : int
        Number of the first tree, as `hforest.classic.grow` takes it.
    progress : callable or bool, optional
        Called as progress(done, n_trees) after some trees, on this worker; where one worker's returns False,
        all end and return the trees so far. True shows a bar.
    rng : None, int or numpy.random.Generator
        Where the seed comes from; that of worker 0 counts.

    Returns
    -------
    Forest
        As from `hforest.classic.grow`.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        As from `hforest.classic.grow`; settings or numbers of features that differ between workers. What is
        wrong on one worker is raised on all, with its number.
    RuntimeError
        A worker ended, or does not answer: as the communicator says.

    Notes
    -----
    A level at a time: each worker counts its rows by class in the bins of the features that each pending node
    samples; sums of integers over workers are exact, so all find the same splits. Small nodes are finished by
    the engine of `hforest.growth`, from the same key. With the same bins, in-bag counts and seed the trees of
    a classification are those of `hforest.growth.grow` on one machine, bit for bit. In a regression targets
    are rounded to multiples of ``2**-e`` in the nodes that are not gathered, where e is such that sums fit 62
    bits: the error of a mean there is at most ``2**-(e + 1)``, less than ``max(2**-52, 2**-56 W)`` times the
    greatest absolute target, W the sum of the weights of all rows.

    Cost of a level: on each worker a look at each row and sampled feature; for each pending node and sampled
    feature ``4 n_bins (n_classes + 1)`` bytes that are summed. Memory: a byte a number, 24 bytes a row and
    tree of a batch of up to 64 trees (at most 512 MB), 256 MB for histograms.

    Examples
    --------
    >>> import numpy as np, hforest, hforest.scale
    >>> x = np.random.default_rng(0).normal(size=(300, 4))
    >>> y = x[:, 0] > x[:, 1]
    >>> forest = hforest.scale.grow_by_rows(None, x, y, 10, rng=0)
    >>> bins = hforest.growth.encode(x, max_bins=256)
    >>> trees = hforest.growth.grow(bins, y, 10, bootstrap="poisson", rng=0)
    >>> all((a == b).all() for a, b in zip(trees, forest[1:]))
    True
    """
    workers = Workers(as_communicator(comm))

    settings: Settings | None = None

    def checked() -> tuple[int, tuple[str, ...]]:
        nonlocal settings
        check_progress(progress)
        settings = settings_of(
            criterion=criterion, max_features=max_features, max_bins=max_bins, categorical=categorical,
            bootstrap=bootstrap, max_depth=max_depth, min_samples_split=min_samples_split,
            min_samples_leaf=min_samples_leaf, min_weight_fraction_leaf=min_weight_fraction_leaf,
            min_impurity_decrease=min_impurity_decrease, task=task, n_classes=n_classes, n_trees=n_trees,
            first_tree=first_tree, max_gathered=max_gathered, distribution=distribution,
            n_projections=n_projections,
        )  # fmt: skip
        return check.seed(rng), tuple(repr(setting) for setting in settings)

    found = workers.collect(checked, ())
    planning.same_settings([settings for _, settings in found])
    seed = found[0][0]
    assert settings is not None
    given = Given(x, y, sample_weight, bootstrap if settings.bootstrap == "counts" else None)
    with reporting(progress, settings.n_trees, "tree") as report:
        return state_machine.grow(workers, given, settings, seed, report)


def grow_on_engine(
    engine: Engine,
    samples: Handle,
    n_trees: int = 100,
    *,
    criterion: str | None = None,
    max_features: int | float | str | None = "auto",
    max_bins: int = 256,
    categorical: ArrayLike | None = None,
    bootstrap: bool | str = "poisson",
    max_depth: int | None = None,
    min_samples_split: int = 2,
    min_samples_leaf: int = 1,
    min_weight_fraction_leaf: float = 0.0,
    min_impurity_decrease: float = 0.0,
    task: str = "classification",
    n_classes: int | None = None,
    distribution: Distribution | None = None,
    n_projections: int | None = None,
    max_gathered: int | None = None,
    first_tree: int = 0,
    progress: Progress = None,
    rng: Rng = None,
) -> Forest:
    """Returns the forest of `grow_by_rows` on parts of samples that an engine reaches: for engines' authors.

    Parameters
    ----------
    engine : Engine
        Calls functions of parts; `hforest.dask` has one.
    samples : object
        A handle of the engine: of each part a tuple (x, y, sample_weight or None).
    n_trees, criterion, max_features, max_bins, categorical, distribution, n_projections
        As `grow_by_rows` takes them.
    bootstrap : "poisson" or False
        Likewise, without in-bag counts.
    max_depth, min_samples_split, min_samples_leaf, min_weight_fraction_leaf, min_impurity_decrease
        Likewise.
    task, n_classes, max_gathered
        As `grow_by_rows` takes them.
    first_tree, progress, rng
        As `grow_by_rows` takes them.

    Returns
    -------
    Forest
        The bits of ``grow_by_rows(None, ...)`` on all rows in the order of parts.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        As from `grow_by_rows`; what the engine raises.

    Notes
    -----
    The state machine runs where this function is called; functions of parts run where the engine has them,
    and may run again. Cost: that of `grow_by_rows`.

    Examples
    --------
    See the source of `hforest.dask`.
    """
    check_progress(progress)
    settings = settings_of(
        criterion=criterion, max_features=max_features, max_bins=max_bins, categorical=categorical,
        bootstrap=bootstrap, max_depth=max_depth, min_samples_split=min_samples_split,
        min_samples_leaf=min_samples_leaf, min_weight_fraction_leaf=min_weight_fraction_leaf,
        min_impurity_decrease=min_impurity_decrease, task=task, n_classes=n_classes, n_trees=n_trees,
        first_tree=first_tree, max_gathered=max_gathered, distribution=distribution,
        n_projections=n_projections,
    )  # fmt: skip
    if settings.bootstrap == "counts":
        raise TypeError(
            f'bootstrap: expected "poisson" or False, got {type(bootstrap).__name__}; parts draw their own'
        )
    seed = check.seed(rng)
    given = engine.map(as_given, (samples,))
    with reporting(progress, settings.n_trees, "tree") as report:
        return state_machine.grow(engine, given, settings, seed, report)


def _projections(
    distribution: Any, n_projections: Any, max_features: Any, categorical: Any, task: str
) -> tuple[Distribution | None, int]:
    if distribution is None:
        if n_projections is not None:
            raise TypeError(
                "n_projections: expected None without a distribution, got some; pass such as distribution="
                "hforest.project.sparse_distribution(n_features)"
            )
        return None, 0
    distribution = check_distribution(distribution)
    if not (isinstance(max_features, str) and max_features == "auto"):
        raise TypeError(
            'max_features: expected "auto" with a distribution, got another; pass n_projections instead'
        )
    if categorical is not None:
        raise TypeError(
            "categorical: expected None with a distribution, got some; projections add numbers: encode "
            "categories as indicators"
        )
    if n_projections is None:
        return distribution, default_projections(distribution, task)
    return distribution, check.integer("n_projections", n_projections, 1, MAX_PROJECTIONS)


def settings_of(
    *,
    criterion: str | None,
    max_features: Any,
    max_bins: int,
    categorical: Any,
    bootstrap: Any,
    max_depth: int | None,
    min_samples_split: int,
    min_samples_leaf: int,
    min_weight_fraction_leaf: float,
    min_impurity_decrease: float,
    task: str,
    n_classes: int | None,
    n_trees: int,
    first_tree: int,
    max_gathered: int | None,
    distribution: Any,
    n_projections: Any,
) -> Settings:
    """Checked settings, as far as they can be checked without samples."""
    check.choice("task", task, supervised.TASKS)
    n_trees = check.integer("n_trees", n_trees, 1, check.MAX_TREES)
    kind = "counts"
    if isinstance(bootstrap, str):
        kind = str(check.choice("bootstrap", bootstrap, ("poisson",)))
    elif isinstance(bootstrap, bool | np.bool_):
        if bootstrap:
            raise ValueError(
                'bootstrap: expected "poisson", False or in-bag counts, got True; no worker draws from all '
                'rows: pass "poisson"'
            )
        kind = "none"
    if task == "classification" and n_classes is not None:
        n_classes = check.integer("n_classes", n_classes, 1, supervised.MAX_CLASSES)
    distribution, n_projections = _projections(distribution, n_projections, max_features, categorical, task)
    if categorical is not None:
        given = np.asarray(categorical)
        categorical = tuple(given.tolist()) if given.ndim == 1 else categorical
    return Settings(
        task, n_classes, supervised.criterion(criterion, task), check.scalar(max_features),
        check.integer("max_bins", max_bins, 1, 256), categorical, kind,
        supervised.limits(
            max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease, min_weight_fraction_leaf
        ),
        n_trees, check.first_tree(first_tree, n_trees),
        None if max_gathered is None else check.integer("max_gathered", max_gathered, 0, check.MAX_COUNT),
        distribution, n_projections,
    )  # fmt: skip
