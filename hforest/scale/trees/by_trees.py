"""Ranges of trees on the workers of an executor."""

from collections.abc import Callable
from concurrent.futures import Executor
from copy import deepcopy
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ... import growth, tree
from ...core import check, keywords
from ...core.aliases import ArrayLike, Progress, Rng
from ...core.progress import check_progress, reporting
from ...tree import Forest
from .driver import Driver
from .worker import Range, Samples

_TASKS = 16
"""Default number of tasks: enough to balance several workers, few enough that each task pays."""


def grow(
    executor: Executor,
    x: ArrayLike,
    y: ArrayLike,
    n_trees: int = 100,
    *,
    grow: Callable[..., Forest] = growth.grow,
    n_tasks: int | None = None,
    retries: int = 1,
    first_tree: int = 0,
    progress: Progress = None,
    rng: Rng = None,
) -> Forest:
    """Returns the forest that one call of a function returns, grown by the workers of an executor.

    Other parameters: see `hforest.grow`.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        Where tasks are submitted: ProcessPoolExecutor, ThreadPoolExecutor, loky's, Dask's
        ``client.get_executor()``, mpi4py's MPIPoolExecutor, or another object with their method `submit`.
        It is not shut down.
    x, y : array-likes
        As the function takes them; `hforest.samples` says which columns are categories and bins them.
    grow : callable
        `hforest.grow`, `hforest.co2.grow`, or a function that is called as ``grow(x, y, n_trees=...,
        first_tree=..., rng=...)`` and returns these trees as a Forest. Processes must be able to import it.
        Settings are bound by `functools.partial`. In-bag counts, an array bound as "bootstrap", are divided
        among the tasks.
    n_tasks : int, optional
        Number of ranges into which the trees are divided, at most n_trees; by default 16. A few times the
        number of workers balances the load best.
    retries : int
        Number of times that a range is submitted again after its worker died, 0 or more.

    Returns
    -------
    Forest
        Bit-identical to ``grow(x, y, n_trees, first_tree=first_tree, rng=rng)`` for any number of workers and
        tasks.

    Raises
    ------
    TypeError, ValueError
        Errors of `grow`; a functools.partial that binds what this function passes itself; a function that
        does not return n_trees trees.
    RuntimeError
        A range whose workers died, or failed in another way, more than `retries` times, or that the executor
        did not take. The message names the trees and the cause.

    Notes
    -----
    Random numbers are keyed by seed, number of the tree and node (`first_tree`), so a tree is the same
    wherever it grows; `hforest.tree.join` puts them together. Samples are sent about once per worker, not
    with each task. A worker keeps the samples of one call until it ends or serves another call, and its first
    task reports whether it lacks them. Each worker makes the bins of x once.

    `progress` counts the finished trees before the first unfinished one; these are returned if it ends the
    growth. An error, an interrupt (KeyboardInterrupt) and such an end cancel waiting tasks. Running tasks
    finish on their workers, and their trees are dropped. Each task uses all threads of its worker. If workers
    share a machine, divide its threads among them, for example by ``initializer=hforest.set_num_threads,
    initargs=(1,)``. Cost in addition to the growth: per worker the pickled samples; per task a message, a
    check of the samples and the pickled trees.

    Examples
    --------
    >>> import numpy as np, hforest, hforest.scale
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from functools import partial
    >>> x = np.random.default_rng(0).normal(size=(200, 4))
    >>> y = x[:, 0] > x[:, 1]
    >>> shallow = partial(hforest.grow, max_depth=3)
    >>> with ThreadPoolExecutor(2) as executor:
    ...     forest = hforest.scale.grow(executor, x, y, 20, grow=shallow, rng=0)
    >>> whole = shallow(x, y, 20, rng=0)
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
    keywords.grower("grow", grow, "x, y, n_trees=..., first_tree=..., rng=...")
    grow, counts = _counts(grow, n_trees)
    first = [n_trees * i // n_tasks for i in range(n_tasks + 1)]
    ranges = [
        Range(first_tree + a, b - a, None if counts is None else counts[a:b]) for a, b in pairwise(first)
    ]
    # The pickle of a memory-mapped array has all its numbers either way.
    x, y = (np.asarray(a) if isinstance(a, np.memmap) else a for a in (x, y))
    if grow is growth.grow or (isinstance(grow, partial) and grow.func is growth.grow):
        x = growth.samples(x)  # a worker encodes them once for all its tasks
    with reporting(progress, n_trees, "tree") as report:
        driver = Driver(executor, Samples(x, y), grow, ranges, _same_seed(rng), retries)
        forests = driver.run(report)
    return tree.join(forests)


def _counts(grow: Callable[..., Forest], n_trees: int) -> tuple[Callable[..., Forest], Any]:
    """Returns a function without the in-bag counts that its partial binds, and these, or None."""
    if not isinstance(grow, partial) or np.ndim(grow.keywords.get("bootstrap", True)) != 2:
        return grow, None  # other values of bootstrap are left to the function
    keywords = dict(grow.keywords)
    counts = np.asarray(keywords.pop("bootstrap"))
    check.require(
        len(counts) == n_trees, "bootstrap", f"in-bag counts of n_trees = {n_trees} trees", len(counts),
        "pass a row for each tree",
    )  # fmt: skip
    return partial(grow.func, *grow.args, **keywords), counts


def _same_seed(rng: Rng) -> Rng:
    """Returns a source of random numbers from which every worker draws the same seed as grow from `rng`."""
    if isinstance(rng, np.random.Generator):
        copied = deepcopy(rng)
        check.seed(rng)  # a call of grow advances it, too
        return copied
    return check.repeatable_seed(rng)
