"""Forests on rows that are divided among workers."""

from typing import Any

import numpy as np

from ... import tree
from ...core import check
from ...core.aliases import ArrayLike, AutoFeatures, Bootstrap, Criterion, Progress, Rng, Task
from ...core.progress import check_progress
from ...growth.by_level import Engine, Settings, check_settings, grow
from ...project import Distribution
from ...tree import Forest
from .communicators import Communicator, as_communicator
from .workers import Workers


def grow_by_rows(
    comm: Communicator | None,
    x: ArrayLike,
    y: ArrayLike,
    n_trees: int = 100,
    *,
    sample_weight: ArrayLike | None = None,
    criterion: Criterion | None = None,
    max_features: AutoFeatures = "auto",
    max_bins: int = 256,
    categorical: ArrayLike | None = None,
    bootstrap: Bootstrap = "poisson",
    max_depth: int | None = None,
    min_samples_split: int = 2,
    min_samples_leaf: int = 1,
    min_weight_fraction_leaf: float = 0.0,
    min_impurity_decrease: float = 0.0,
    task: Task = "classification",
    n_classes: int | None = None,
    distribution: Distribution | None = None,
    n_projections: int | None = None,
    max_gathered: int | None = None,
    first_tree: int = 0,
    progress: Progress = None,
    rng: Rng = None,
) -> Forest:
    """Returns a random forest on the rows of all workers, the same on each and for any division of rows.

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
        Number of trees, 1 to 2**20.
    sample_weight : (n_rows,) array-like, optional
        Whole numbers 0 to 2**24, not all 0.
    criterion : "gini", "entropy" or "squared_error", optional
        Impurity; by default "gini", in a regression "squared_error".
    max_features : "auto", "sqrt", int, float or None
        Number of features sampled at a node. A float is a fraction of all features, rounded down, but at
        least one feature; "sqrt" is the square root of their number; "auto" is "sqrt", but all in a
        regression; None is all. If all sampled features are constant in the node, sampling continues until
        one is not.
    categorical : (n_features,) array-like of bools, or array-like of feature numbers, optional
        Features that are categories: whole numbers 0 to 65535, or NaN. Their splits send a set of categories
        to one side.
    max_bins : int
        1 to 256: thresholds lie between at most max_bins bins of each feature, which are the same on all
        workers. A feature of at most max_bins distinct values is exact. Others have bins of about equal
        numbers of rows. Up to 131072 rows all are used to make bins; of more rows about as many are sampled
        by their numbers.
    bootstrap : "poisson", bool or (n_trees, n_rows) array of integers
        "poisson" takes the in-bag counts of `hforest.growth.poisson_counts`; False gives every tree each row
        once. An array has the in-bag counts of these rows. True is refused: no worker can draw from all rows.
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
    distribution : Distribution, optional
        Distribution of random projections of features, such as `hforest.project.sparse_distribution`, which
        nodes compare in place of single features. Then max_features is "auto" and categorical None.
    n_projections : int, optional
        Number of projections sampled at a node, 1 to 2**20; by default as in `hforest.manifold.grow`.
    max_gathered : int, optional
        Nodes of at most max_gathered rows are gathered on one worker, which finishes them; by default where
        rows cause less traffic than sums. The trees of a classification do not depend on it.
    first_tree : int
        Number of the first tree, 0 or more; first_tree + n_trees is at most 2**20. Calls with the same
        arguments and the same int as rng grow ranges of one forest: its trees are bit-identical for any
        division into ranges. `hforest.tree.join` joins them. Row m of in-bag counts belongs to tree
        first_tree + m.
    progress : callable or bool, optional
        Called as progress(done, n_trees) after some trees, on this worker; if it returns False on one worker,
        all workers stop and return the trees so far. True shows a bar.
    rng : None, int or numpy.random.Generator
        Source of random numbers; the same int gives the same result in every call. The one of worker 0 is
        used.

    Returns
    -------
    Forest
        Forest in the dtype in which x is computed, float32 or float64; leaf values are shares of the classes,
        or mean targets. It predicts rows of any real dtype, which are converted to its own.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        Wrong kind, dtype or device; wrong shape, infinity, a number out of range, categories other than whole
        numbers 0 to 65535, negative weights or none above 0; labels out of range; not enough memory. Settings
        or numbers of features that differ between workers. An error on one worker is raised on all, with its
        number.
    RuntimeError
        A worker ended or does not answer; the text is that of the communicator.

    Notes
    -----
    Trees grow level by level. Each worker counts its rows by class in the bins of the features that each
    pending node samples. Sums of integers over workers are exact, so all workers find the same splits. Small
    nodes are finished by the engine of `hforest.growth`, from the same key. With the same bins, in-bag counts
    and seed the trees of a classification are bit-identical to those of `hforest.growth.grow` on one machine.
    In a regression targets are rounded to multiples of ``2**-e`` in the nodes that are not gathered, where e
    is such that sums fit 62 bits. The error of a mean there is at most ``2**-(e + 1)``. That is less than
    ``max(2**-52, 2**-56 W)`` times the largest absolute target, where W is the sum of the weights of all
    rows.

    Cost of a level: each worker reads every row and sampled feature once, and sums over workers ``4 n_bins
    (n_classes + 1)`` bytes per pending node and sampled feature. Memory: one byte per number of x; 24 bytes
    per row and tree in batches of up to 64 trees (at most 512 MB); 256 MB for histograms.

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
    return _grow_by_rows(**locals())


def _grow_by_rows(
    comm: Communicator | None,
    x: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    bootstrap: Bootstrap,
    progress: Progress,
    **words: Any,
) -> Forest:
    """Returns the forest of `grow_by_rows`; `words` are the other arguments of `check_settings`."""
    workers = Workers(as_communicator(comm))
    of_this_worker: list[Settings] = []

    def checked() -> tuple[int, tuple[str, ...]]:
        check_progress(progress)
        of_this_worker.append(check_settings(bootstrap=bootstrap, **words))
        *settings, seed = of_this_worker[0]
        return seed, tuple(repr(setting) for setting in settings)

    seeds, texts = zip(*workers.collect(checked, ()), strict=True)
    for name, *values in zip(Settings._fields[:-1], *texts, strict=True):
        check.same(name, values, "pass the same settings on every worker")
    settings = of_this_worker[0]._replace(seed=seeds[0])
    samples = x, y, sample_weight, bootstrap if settings.bootstrap == "counts" else None
    return _grown(workers, samples, settings, progress)


def grow_on_engine(
    engine: Engine,
    samples: object,
    settings: Settings,
    *,
    progress: Progress = None,
) -> Forest:
    """Returns the forest of `grow_by_rows` on parts of samples that an engine holds; for authors of engines.

    Parameters
    ----------
    engine : Engine
        Calls functions of parts; `hforest.dask` has one.
    samples : object
        A handle of the engine: for each part a tuple (x, y, sample_weight or None).
    settings : hforest.growth.by_level.Settings
        Result of `hforest.growth.by_level.check_settings`, which takes the arguments of `grow_by_rows`,
        without in-bag counts.
    progress : callable or bool, optional
        Called as progress(done, n_trees) after every few trees. If it returns False, growth stops and the
        trees so far are returned. True shows a bar.

    Returns
    -------
    Forest
        Bit-identical to ``grow_by_rows(None, ...)`` on all rows in the order of parts.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        As from `grow_by_rows`; what the engine raises.

    Notes
    -----
    The state machine runs in the process of this call. Functions of parts run where the engine holds the
    parts, and may run again. Cost: that of `grow_by_rows`.

    Examples
    --------
    See the source of `hforest.dask`.
    """
    remedy = "pass the settings that hforest.growth.by_level.check_settings returned"
    check.instance("settings", settings, Settings, "Settings", remedy)
    check.require(
        settings.bootstrap != "counts", "bootstrap", '"poisson" or False', "in-bag counts",
        'pass False or "poisson": each part draws its own counts', TypeError,
    )  # fmt: skip
    return _grown(engine, samples, settings, progress)


def _grown(engine: Engine, samples: object, settings: Settings, progress: Progress) -> Forest:
    n_features, (trees, indptr, indices, data) = grow(engine, samples, settings, progress=progress)
    forest = Forest(
        np.array(n_features, np.int64), **trees._asdict(), indptr=indptr, indices=indices, data=data
    )
    if engine.n_tasks > 1:
        tree.check(forest)  # subtrees came from other workers
    return tree.join([forest])
