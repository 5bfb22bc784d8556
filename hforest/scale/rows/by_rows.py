"""Forests on rows that are divided among workers."""

from typing import Unpack

from ...core import check
from ...core.aliases import ArrayLike
from ...core.progress import check_progress
from ...growth.by_level import Checked, Engine, Settings, by_rows, check_settings, grow
from ...tree import Forest
from .communicators import Communicator, as_communicator
from .workers import Workers


@by_rows
def grow_by_rows(
    comm: Communicator | None,
    x: ArrayLike,
    y: ArrayLike,
    n_trees: int = 100,
    **settings: Unpack[Settings],
) -> Forest:
    """Returns a random forest on the rows of all workers, the same on each and for any division of rows.

    Other parameters: see `hforest.growth.by_level.Settings` and `hforest.grow`.

    Parameters
    ----------
    comm : Communicator or None
        `TorchComm`, `MpiComm`, or an object with their methods and attributes; None: one worker alone. Every
        worker calls this function, with the same settings. The rng of worker 0 is used.
    x : (n_rows, n_features) array-like of real numbers
        This worker's rows, finite or NaN for missing values; 0 or more. The rows of all workers in the order
        of their ranks are the samples.
    y : (n_rows,) or (n_rows, n_outputs) array-like of labels or targets
        Of these rows, as `hforest.grow` takes them. Labels may be absent on a worker.
    sample_weight : (n_rows,) array-like, optional
        Whole numbers 0 to 2**24, not all 0.
    progress : callable or bool, optional
        Called as progress(done, n_trees) on this worker. If it returns False on one worker, all workers stop
        and return the trees so far.

    Returns
    -------
    Forest
        As from `hforest.grow`.

    Raises
    ------
    ValueError
        Settings or numbers of features that differ between workers. Any error on one worker is raised on all,
        with its number.
    RuntimeError
        A worker ended or does not answer; the text is that of the communicator.

    Notes
    -----
    Trees grow level by level. Each worker counts its rows by class in the bins of the features that each
    pending node samples. Sums of integers over workers are exact, so all workers find the same splits. Small
    nodes are finished by the engine of `hforest.growth`, from the same key. With the same bins, in-bag counts
    and seed trees are bit-identical to those of `hforest.grow` on one machine. Targets of a regression become
    integers as there, in units that are made from extremes and sums of integers over all workers. So do
    indicators of the classes of several labels a sample.

    Cost of a level: each worker reads every row and sampled feature once, and sums over workers ``4 n_bins
    (n_classes + 1)`` or, in a regression, ``8 n_bins (n_outputs + 2)`` bytes per pending node and sampled
    feature. A level of a regression has one more message, and six more where nodes need units, of 16 + 48
    n_outputs bytes per node. Memory: one byte per number of x; 24 bytes, and 8 per output, per row and tree
    in batches of up to 64 trees (at most 512 MB); 256 MB for histograms.

    Examples
    --------
    >>> import numpy as np, hforest, hforest.scale
    >>> x = np.random.default_rng(0).normal(size=(300, 4))
    >>> y = x[:, 0] > x[:, 1]
    >>> forest = hforest.scale.grow_by_rows(None, x, y, 10, rng=0)
    >>> alone = hforest.grow(hforest.samples(x, max_bins=256), y, 10, bootstrap="poisson", rng=0)
    >>> all((a == b).all() for a, b in zip(forest, alone))
    True
    """
    workers = Workers(as_communicator(comm))
    of_this_worker: list[Checked] = []

    def checked() -> tuple[int, tuple[str, ...]]:
        check_progress(settings["progress"])
        of_this_worker.append(check_settings(n_trees, **settings))
        *texts, seed = of_this_worker[0]
        return seed, tuple(repr(setting) for setting in texts)

    seeds, texts = zip(*workers.collect(checked, ()), strict=True)
    for name, *values in zip(Checked._fields[:-1], *texts, strict=True):
        check.same(name, values, "pass the same settings on every worker")
    same = of_this_worker[0]._replace(seed=seeds[0])
    counts = settings["bootstrap"] if same.bootstrap == "counts" else None
    return grow(workers, (x, y, settings["sample_weight"], counts), same, settings["progress"])


@by_rows
def grow_on_engine(
    engine: Engine, samples: object, n_trees: int = 100, **settings: Unpack[Settings]
) -> Forest:
    """Returns the forest of `grow_by_rows` on parts of samples that an engine holds; for authors of engines.

    Other parameters: see `hforest.scale.grow_by_rows`.

    Parameters
    ----------
    engine : Engine
        Calls functions of parts; `hforest.dask` has one.
    samples : object
        A handle of the engine: for each part a tuple (x, y, sample_weight or None).

    Returns
    -------
    Forest
        Bit-identical to ``grow_by_rows(None, ...)`` on all rows in the order of parts.

    Raises
    ------
    TypeError
        Weights or in-bag counts, which belong to the parts.

    Notes
    -----
    The state machine runs in the process of this call. Functions of parts run where the engine holds the
    parts, and may run again. Cost: that of `grow_by_rows`.

    Examples
    --------
    See `hforest.growth.by_level` and the source of `hforest.dask`.
    """
    check_progress(settings["progress"])
    checked = check_settings(n_trees, **settings)
    check.require(
        checked.bootstrap != "counts", "bootstrap", '"poisson" or False', "in-bag counts",
        'pass False or "poisson": each part draws its own counts', TypeError,
    )  # fmt: skip
    check.require(
        settings["sample_weight"] is None, "sample_weight", "None", "weights", "put them into the samples",
        TypeError,
    )  # fmt: skip
    return grow(engine, samples, checked, settings["progress"])
