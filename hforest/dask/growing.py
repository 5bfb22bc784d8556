"""Forests on the partitions of Dask collections: the driver chooses splits, workers sum over their rows."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

from .. import tree
from ..core.aliases import Array, ArrayLike
from ..growth.by_level import Settings, by_rows
from ..scale import grow_on_engine

_KINDS = (TypeError, IndexError, ValueError, MemoryError)


@by_rows
def grow(
    client: object, x: ArrayLike, y: ArrayLike, n_trees: int = 100, **settings: Unpack[Settings]
) -> tree.Forest:
    """Returns a random forest on the rows of Dask collections, whose partitions stay where they are.

    Other parameters: see `hforest.scale.grow_by_rows`.

    Parameters
    ----------
    client : distributed.Client
        Client of a local, distributed or adaptive cluster.
    x : dask.array.Array or dask.dataframe.DataFrame
        (n_rows, n_features) real numbers, finite or NaN for missing values.
    y : dask.array.Array, dask.dataframe.Series or DataFrame
        Labels or targets, in partitions with the same rows as x; an array is rechunked like x.
    sample_weight : dask.array.Array or dask.dataframe.Series, optional
        Whole numbers 0 to 2**24, in the same form as y.
    bootstrap : "poisson" or False
        As in `hforest.scale.grow_by_rows`, without in-bag counts.

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
    if not all(callable(getattr(client, name, None)) for name in ("submit", "compute")):
        raise TypeError(
            f"client: expected a distributed.Client, got {type(client).__name__}; pass distributed.Client()"
        )
    if getattr(client, "status", None) in ("closed", "closing"):
        raise ValueError(
            "client: expected a connected client, got a closed one; make a new distributed.Client()"
        )
    bootstrap = settings["bootstrap"]
    if not isinstance(bootstrap, str | bool | np.bool_):
        raise TypeError(
            f'bootstrap: expected "poisson" or False, got {type(bootstrap).__name__}; '
            "hforest.scale.grow_by_rows takes in-bag counts"
        )
    engine = _Engine(client)
    samples = engine.parts(x=x, y=y, sample_weight=settings.pop("sample_weight"))
    return grow_on_engine(engine, samples, n_trees, **settings)


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
