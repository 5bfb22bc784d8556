"""Forests on the partitions of Dask collections: the driver chooses splits, workers sum over their rows."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from .. import tree
from ..core.aliases import Array, ArrayLike, AutoFeatures, Criterion, Progress, Rng, Task
from ..growth.by_level import check_settings
from ..project import Distribution
from ..scale import grow_on_engine

_KINDS = (TypeError, IndexError, ValueError, MemoryError)


def grow(
    client: object,
    x: ArrayLike,
    y: ArrayLike,
    n_trees: int = 100,
    *,
    sample_weight: ArrayLike | None = None,
    criterion: Criterion | None = None,
    max_features: AutoFeatures = "auto",
    max_bins: int = 256,
    categorical: ArrayLike | None = None,
    bootstrap: Literal[False, "poisson"] = "poisson",
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
) -> tree.Forest:
    """Returns a random forest on the rows of Dask collections, whose partitions stay where they are.

    Parameters
    ----------
    client : distributed.Client
        Client of a local, distributed or adaptive cluster.
    x : dask.array.Array or dask.dataframe.DataFrame
        (n_rows, n_features) real numbers, finite or NaN for missing values.
    y : dask.array.Array, dask.dataframe.Series or DataFrame
        Labels or targets, in partitions with the same rows as x; an array is rechunked like x.
    n_trees : int
        Number of trees, 1 to 2**20.
    sample_weight : dask.array.Array or dask.dataframe.Series, optional
        Whole numbers 0 to 2**24, in the same form as y.
    criterion : "gini", "entropy" or "squared_error", optional
        Impurity; by default "gini", in a regression "squared_error".
    max_features : "auto", "sqrt", int, float or None
        Number of features sampled at a node. A float is a fraction of all features, rounded down, but at
        least one feature; "sqrt" is the square root of their number; "auto" is "sqrt", but all in a
        regression; None is all. If all sampled features are constant in the node, sampling continues until
        one is not.
    max_bins : int
        1 to 256: thresholds lie between at most max_bins bins of each feature, which are the same on all
        workers. A feature of at most max_bins distinct values is exact. Others have bins of about equal
        numbers of rows. Up to 131072 rows all are used to make bins; of more rows about as many are sampled
        by their numbers.
    categorical : (n_features,) array-like of bools, or array-like of feature numbers, optional
        Features that are categories: whole numbers 0 to 65535, or NaN. Their splits send a set of categories
        to one side.
    bootstrap : "poisson" or False
        "poisson" takes the in-bag counts of `hforest.growth.poisson_counts`; False gives every tree each row
        once.
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
        division into ranges. `hforest.tree.join` joins them.
    progress : callable or bool, optional
        Called as progress(done, n_trees) after every few trees. If it returns False, growth stops and the
        trees so far are returned. True shows a bar.
    rng : None, int or numpy.random.Generator
        Source of random numbers; the same int gives the same result in every call.

    Returns
    -------
    Forest
        Bit-identical to ``hforest.scale.grow_by_rows(None, x, y, ...)`` on all rows in the order of
        partitions.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        Errors of `hforest.scale.grow_by_rows`, with the number of the partition; arguments that are not Dask
        collections; partitions that do not match.
    distributed.KilledWorker
        Several workers ended during one task.

    Notes
    -----
    A task computes the histograms of a partition, and further tasks add them; the driver receives the sum. If
    a worker ends, Dask recomputes its results from the collections: the forest is the same. Keep collections
    that are expensive to compute in memory with ``client.persist``. Cost: for each level and partition a few
    tasks of about a millisecond; partitions of 100000 rows and more are best.

    Examples
    --------
    >>> import dask.array, hforest.dask, numpy as np
    >>> from distributed import Client
    >>> with Client(n_workers=1, processes=False, dashboard_address=":0") as client:
    ...     x = dask.array.random.default_rng(0).normal(size=(400, 3), chunks=(100, 3))
    ...     forest = hforest.dask.grow(client, x, x[:, 0] > 0, 5, rng=0)
    >>> forest.tree_start.size
    6
    """
    return _grow(**locals())


def _grow(
    client: object,
    x: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    bootstrap: Any,
    progress: Progress,
    **words: Any,
) -> tree.Forest:
    """Returns the forest of `grow`; `words` are the other arguments of `check_settings`."""
    if not all(callable(getattr(client, name, None)) for name in ("submit", "compute")):
        raise TypeError(
            f"client: expected a distributed.Client, got {type(client).__name__}; pass distributed.Client()"
        )
    if getattr(client, "status", None) in ("closed", "closing"):
        raise ValueError(
            "client: expected a connected client, got a closed one; make a new distributed.Client()"
        )
    if not isinstance(bootstrap, str | bool | np.bool_):
        raise TypeError(
            f'bootstrap: expected "poisson" or False, got {type(bootstrap).__name__}; '
            "hforest.scale.grow_by_rows takes in-bag counts"
        )
    words["bootstrap"] = bootstrap
    engine = _Engine(client)
    samples = engine.parts(x=x, y=y, sample_weight=sample_weight)
    return grow_on_engine(engine, samples, check_settings(**words), progress=progress)


def _blocks(name: str, a: Any, like: Any) -> list[Any]:
    """Returns the partitions of a collection as delayed values."""
    if not callable(getattr(a, "to_delayed", None)):
        raise TypeError(
            f"{name}: expected a Dask array or DataFrame, got {type(a).__name__}; pass an array such as "
            f"dask.array.from_array({name}, chunks=100000), or call hforest.scale.grow_by_rows"
        )
    if hasattr(a, "chunks"):
        if a.ndim > 1 and a.numblocks[1] > 1:
            a = a.rechunk({1: -1})
        has_sizes = like is not None and hasattr(like, "chunks") and not np.isnan(like.chunks[0]).any()
        if has_sizes and not np.isnan(a.chunks[0]).any() and sum(a.chunks[0]) == sum(like.chunks[0]):
            a = a.rechunk({0: like.chunks[0]})
    return list(np.ravel(np.array(a.to_delayed(), dtype=object)))


def _call(function: Callable[..., Any], number: int, *args: Any) -> Any:
    """Returns a function's value for a partition; adds the number of the partition to its errors."""
    try:
        return function(*args)
    except _KINDS as error:
        kind = next(kind for kind in _KINDS if isinstance(error, kind))
        raise kind(f"{error.args[0] if error.args else ''} (in partition {number})") from None


def _sum(*arrays: Array) -> Array:
    return functools.reduce(np.add, arrays)


def _tuple(*values: Any) -> tuple[Any, ...]:
    return values


class _Engine:
    """Engine that calls functions of partitions as tasks; values of all partitions are a list of futures."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.n_tasks = max(1, len(client.nthreads()))

    def parts(self, **collections: Any) -> list[Any]:
        """Returns the partitions as tuples (x, y, sample_weight)."""
        named = {name: a for name, a in collections.items() if name != "sample_weight" or a is not None}
        blocks = {name: _blocks(name, a, collections["x"]) for name, a in named.items()}
        n = len(blocks["x"])
        for name, parts in blocks.items():
            if len(parts) != n:
                raise ValueError(
                    f"{name}: expected the {n} partitions of x, got {len(parts)}; pass collections with "
                    "the same partitions"
                )
        futures = {name: self._client.compute(parts) for name, parts in blocks.items()}
        triples = zip(*(futures.get(name, [None] * n) for name in collections), strict=True)
        return [self._client.submit(_tuple, *triple, pure=False) for triple in triples]

    def map(
        self, function: Callable[..., Any], handles: Sequence[Any], *args: Any, each: Sequence[Any] = ()
    ) -> list[Any]:
        """Returns the futures of function(*values of a partition, *args)."""
        return [
            self._client.submit(_call, function, p, *values, *args, *each[p : p + 1], pure=False)
            for p, values in enumerate(zip(*handles, strict=True))
        ]

    def collect(
        self, function: Callable[..., Any], handles: Sequence[Any], *args: Any, each: Sequence[Any] = ()
    ) -> list[Any]:
        """Returns the results of the calls on all partitions."""
        return list(self._client.gather(self.map(function, handles, *args, each=each)))

    def total(
        self,
        function: Callable[..., Array],
        handles: Sequence[Any],
        *args: Any,
        shape: tuple[int, ...],
        dtype: np.dtype,
    ) -> Array:
        """Returns the sum of the arrays of all partitions; each task adds four of them."""
        sums = self.map(function, handles, *args)
        while len(sums) > 1:
            sums = [self._client.submit(_sum, *sums[i : i + 4], pure=False) for i in range(0, len(sums), 4)]
        return np.asarray(sums[0].result())

    def exchange(
        self,
        send: Callable[..., Any],
        handles: Sequence[Any],
        items: Sequence[Any],
        receive: Callable[..., Any],
        args: Sequence[tuple[Any, ...]],
    ) -> list[Any]:
        """Returns receive([send(*values, item) for each partition], *args) for each item."""
        sent = [self.map(send, handles, item) for item in items]
        results = [
            self._client.submit(receive, futures, *more, pure=False)
            for futures, more in zip(sent, args, strict=True)
        ]
        return list(self._client.gather(results))

    def agree(self, go_on: Callable[[], bool]) -> bool:
        """Returns go_on(), since there is only one driver."""
        return go_on()
