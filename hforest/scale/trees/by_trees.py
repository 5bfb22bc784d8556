"""Ranges of trees on the workers of an executor."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from copy import deepcopy
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ... import classic, growth, tree
from ...core import check
from ...core.aliases import ArrayLike, Progress, Rng
from ...core.progress import check_progress, reporting
from ...tree import Forest
from .driver import SUCH_AS, Driver
from .worker import Range, Samples

_TASKS = 16
"""Default number of tasks: enough to balance several workers, few enough that each task pays."""
_OURS = ("x", "y", "n_trees", "first_tree", "progress", "rng")
"""Arguments of `grow` that are passed by `grow_by_trees` or by its tasks, not as settings."""
_ENCODES = (classic.grow, classic.grow_extra, classic.grow_random)
"""Functions that grow on bins of x."""


def grow_by_trees(
    executor: Executor,
    grow: Callable[..., Forest],
    x: ArrayLike,
    y: ArrayLike,
    n_trees: int,
    *,
    settings: Mapping[str, object] | None = None,
    n_tasks: int | None = None,
    retries: int = 1,
    first_tree: int = 0,
    progress: Progress = None,
    rng: Rng = None,
) -> Forest:
    """Returns the forest that one call of `grow` returns, grown by the workers of an executor.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        Where tasks are submitted: ProcessPoolExecutor, ThreadPoolExecutor, loky's, Dask's
        ``client.get_executor()``, mpi4py's MPIPoolExecutor, or another object with their method `submit`.
        It is not shut down.
    grow : callable
        `hforest.classic.grow`, `grow_extra`, `grow_random`, `hforest.manifold.grow`, `hforest.co2.grow`, or
        a function that is called as ``grow(x, y, n_trees=..., first_tree=..., rng=..., **settings)`` and
        returns these trees as a Forest. Processes must be able to import it. Settings may also be bound by
        `functools.partial`.
    x, y : array-likes
        As `grow` takes them.
    n_trees : int
        Number of trees, 1 to 2**20.
    settings : mapping of str, optional
        Further keyword arguments of `grow`, such as ``{"max_features": 3}``. In-bag counts, an array as
        "bootstrap", are divided among the tasks.
    n_tasks : int, optional
        Number of ranges into which the trees are divided, at most n_trees; by default 16. A few times the
        number of workers balances the load best.
    retries : int
        Number of times that a range is submitted again after its worker died, 0 or more.
    first_tree : int
        Number of the first tree, 0 or more; first_tree + n_trees is at most 2**20. Calls with the same
        arguments and the same int as rng grow ranges of one forest: its trees are bit-identical for any
        division into ranges. `hforest.tree.join` joins them.
    progress : callable or bool, optional
        Called as progress(done, n_trees) whenever the number of finished trees before the first unfinished
        one has grown; False ends the growth and returns these trees. True shows a bar.
    rng : None, int or numpy.random.Generator
        Source of random numbers; the same int gives the same result in every call. The seed is drawn once for
        all workers.

    Returns
    -------
    Forest
        Bit-identical to ``grow(x, y, n_trees, first_tree=first_tree, rng=rng, **settings)`` for any number of
        workers and tasks.

    Raises
    ------
    TypeError, ValueError, IndexError
        Errors of `grow`; no executor; settings that `grow` does not take or that this function passes itself;
        a function that does not return n_trees trees.
    RuntimeError
        A range whose workers died, or failed in another way, more than `retries` times, or that the executor
        did not take. The message names the trees and the cause.

    Notes
    -----
    Random numbers are keyed by seed, number of the tree and node (`first_tree`), so a tree is the same
    wherever it grows; `hforest.tree.join` puts them together. Samples are sent about once per worker, not
    with each task. A worker keeps the samples of one call until it ends or serves another call, and its first
    task reports whether it lacks them. For `hforest.classic` with max_bins, this process makes the bins and
    sends one byte per number. Without max_bins each worker makes them. Pass ``hforest.growth.encode(x)`` as x
    to make exact bins here.

    An error, an interrupt (KeyboardInterrupt) and the end by `progress` cancel waiting tasks. Running tasks
    finish on their workers, and their trees are dropped. Each task uses all threads of its worker. If workers
    share a machine, divide its threads among them, for example by ``initializer=hforest.set_num_threads,
    initargs=(1,)``. Cost in addition to the growth: per worker the pickled samples; per task a message, a
    check of the samples and the pickled trees.

    Examples
    --------
    >>> import numpy as np, hforest, hforest.scale
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> x = np.random.default_rng(0).normal(size=(200, 4))
    >>> y = x[:, 0] > x[:, 1]
    >>> with ThreadPoolExecutor(2) as executor:
    ...     forest = hforest.scale.grow_by_trees(
    ...         executor, hforest.classic.grow, x, y, 20, settings={"max_depth": 3}, rng=0)
    >>> whole = hforest.classic.grow(x, y, 20, max_depth=3, rng=0)
    >>> all((a == b).all() for a, b in zip(forest, whole))
    True
    """
    check_progress(progress)
    check.require(
        callable(getattr(executor, "submit", None)), "executor", "an object with the method submit",
        type(executor).__name__, "pass an executor such as concurrent.futures.ProcessPoolExecutor()",
        TypeError,
    )  # fmt: skip
    n_trees, first_tree = check.tree_range(n_trees, first_tree)
    n_tasks = min(n_trees, _TASKS if n_tasks is None else check.integer("n_tasks", n_tasks, 1))
    retries = check.integer("retries", retries, 0)
    function, bound = _bound(grow, settings)
    counts = _counts(bound, n_trees)
    first = [n_trees * i // n_tasks for i in range(n_tasks + 1)]
    ranges = [
        Range(first_tree + a, b - a, None if counts is None else counts[a:b]) for a, b in pairwise(first)
    ]
    samples = _samples(function, x, y, bound)
    with reporting(progress, n_trees, "tree") as report:
        driver = Driver(executor, samples, function, ranges, _same_seed(rng), retries)
        forests = driver.run(report)
    return tree.join(forests)


def _bound(
    grow: Callable[..., Forest], settings: Mapping[str, object] | None
) -> tuple[Callable[..., Forest], dict[str, Any]]:
    """Returns the function without its partial, and all its settings."""
    remedy = 'pass a mapping such as {"max_depth": 8}'
    check.instance("settings", settings, Mapping | None, "None or a mapping", remedy)
    bound = dict(settings or {})
    for name in bound:
        further = "other arguments of grow"
        check.require(name not in _OURS, "settings", further, repr(name), "pass it to grow_by_trees directly")
    check.instance("grow", grow, Callable, "a function", SUCH_AS)
    names = ["n_trees", "first_tree", "rng", *bound]
    check.called_with("grow", grow, ", ".join(["x", "y", *(f"{name}=..." for name in names)]), SUCH_AS)
    while isinstance(grow, partial) and not grow.args:
        bound = {**grow.keywords, **bound}
        grow = grow.func
    return grow, {name: value for name, value in bound.items() if name not in _OURS}


def _counts(settings: dict[str, Any], n_trees: int) -> Any:
    """Returns in-bag counts and removes them from the settings; None if `bootstrap` is absent or a bool."""
    bootstrap = settings.get("bootstrap")
    if bootstrap is None or np.ndim(bootstrap) != 2:  # passed on to grow, which accepts or refuses it
        return None
    counts = np.asarray(settings.pop("bootstrap"))
    check.require(
        len(counts) == n_trees, "bootstrap", f"in-bag counts of n_trees = {n_trees} trees", len(counts),
        "pass a row for each tree",
    )  # fmt: skip
    return counts


def _samples(function: Callable[..., Forest], x: Any, y: Any, settings: dict[str, Any]) -> Samples:
    """Returns the samples to send: bins if they are smaller than x."""
    # The pickle of a memory-mapped array has all its numbers either way.
    x, y = (np.asarray(a) if isinstance(a, np.memmap) else a for a in (x, y))
    if function not in _ENCODES or isinstance(x, growth.Bins | growth.Samples | growth.Windows):
        return Samples(x, y, settings, None)
    encoding: dict[str, Any] = {
        name: settings.pop(name) for name in ("max_bins", "categorical") if name in settings
    }
    if encoding.get("max_bins") is None:
        return Samples(x, y, settings, encoding)
    return Samples(growth.encode(x, **encoding), y, settings, None)


def _same_seed(rng: Rng) -> Rng:
    """Returns a source of random numbers from which every worker draws the same seed as grow from `rng`."""
    if isinstance(rng, np.random.Generator):
        copied = deepcopy(rng)
        check.seed(rng)  # a call of grow advances it, too
        return copied
    return check.repeatable_seed(rng)
