"""Common parts of the tests: checked rows and targets, the caller's forests, sequential p-values."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from .. import growth, tree
from ..core import check, keywords, notebooks, sparse, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray, Progress, SparseArray, Task
from ..core.progress import reporting
from ..growth import Samples
from ..tree import Forest
from ..tree.callers import trusted

Grower = Callable[..., Forest]
"""grow(x, y, n_trees, *, bootstrap, rng, and n_classes or task) -> Forest: such as `hforest.grow`,
settings bound by functools.partial."""

MAX_PERMUTATIONS = 2**31 - 1


class PermutationTest(NamedTuple):
    """P-value from the statistics of the data and of drawn data, which are exchangeable under the null
    hypothesis.
    """

    p_value: float
    """The p-value, above 0 and at most 1."""
    statistic: float
    """Statistic of the observed data; larger values are evidence against the null hypothesis."""
    null: FloatArray
    """(n_drawn,) float64: the statistics of the drawn data, in their order."""
    n_rows: int
    """Number of rows with a vote, from which the observed statistic is computed."""

    @notebooks.shown_by
    def _repr_html_(self) -> notebooks.Rows:
        return [
            ("PermutationTest", ""),
            ("p-value", self.p_value),
            ("statistic", self.statistic),
            ("statistics under the null hypothesis", notebooks.span(self.null)),
            ("their number", len(self.null)),
            ("rows", self.n_rows),
        ]


def outputs(target: supervised.Target) -> FloatArray:
    """Returns (n_samples, n_outputs) float64: indicators of classes, or targets."""
    if target.targets is not None:
        return target.targets
    labels: Any = target.labels
    with check.memory("n_classes", "indicators", 9 * len(labels) * target.n_outputs):
        return (labels[:, None] == np.arange(target.n_outputs)).astype(np.float64)


def rows_of(target: supervised.Target, rows: Any) -> supervised.Target:
    """Returns some rows of labels or targets."""
    some = {name: a[rows] for name, a in target._asdict().items() if isinstance(a, np.ndarray)}
    return target._replace(**some)


class Problem(NamedTuple):
    """Checked rows, and their labels or targets."""

    samples: Samples
    """The samples, encoded once for all forests."""
    rows: Any
    """The samples as `hforest.tree.apply` takes them."""
    target: supervised.Target


def problem(x: ArrayLike | Samples, y: ArrayLike, task: Task, *, name: str = "x") -> Problem:
    """Returns the checked arguments x (with its name in messages) and y of a test."""
    check.on_cpu(**{name: x, "y": y})
    with renamed("x", name):
        samples = growth.samples(x)
    rows = x if sparse.is_sparse(x) else samples.numbers
    check.require(
        sparse.is_sparse(rows) or (rows.shape == samples.shape and not samples.are_windows), name,
        "samples of an array", repr(samples), "pass hforest.samples of an array, or the sparse matrix",
        TypeError,
    )  # fmt: skip
    target = supervised.target(y, len(samples), task, None)
    check.require(
        target.labels is None or target.n_outputs > 1, "y", "labels of at least two classes", "one class",
        "pass rows of several classes",
    )  # fmt: skip
    return Problem(samples, rows, target)


@contextmanager
def renamed(old: str, new: str) -> Iterator[None]:
    """Replaces the argument name in errors of a `with` block."""
    try:
        yield
    except (TypeError, ValueError, IndexError) as error:
        if old == new or not str(error).startswith(f"{old}: "):
            raise
        error.__traceback__ = None  # see check.fields_of
        raise type(error)(str(error).replace(old, new, 1)) from None


def encoded_as(data: Problem, rows: Any, columns: Any = slice(None)) -> Samples:
    """Returns new values of some columns of a problem, with its categories and bins."""
    mask = data.samples.categorical
    categorical = None if mask is None else mask[columns]
    return growth.samples(rows, categorical=categorical, max_bins=data.samples.max_bins)


def dense_rows(data: Problem) -> FloatArray:
    """Returns the rows of a problem, as an array."""
    dense = isinstance(data.rows, np.ndarray)
    check.require(dense, "x", "an array", "a sparse matrix", "pass x.toarray()", TypeError)
    return data.rows


def settings_of(target: supervised.Target) -> dict[str, Any]:
    """Returns the keyword arguments n_classes or task of a function that grows forests."""
    return {"task": "regression"} if target.labels is None else {"n_classes": target.n_outputs}


def grown(grow: Grower | None, x: Any, target: supervised.Target, n_trees: int, **settings: Any) -> Forest:
    """Returns the forest of a caller's function, after checks of type and size, or a random forest."""
    function = growth.grow if grow is None else grow
    forest = function(x, target.y.copy(), n_trees=n_trees, **settings, **settings_of(target))
    check.instance(
        "grow", forest, Forest, "a function that returns a hforest.tree.Forest",
        "pass a subpackage's grow, its settings bound by functools.partial",
    )  # fmt: skip
    check.require(
        len(forest.tree_start) == n_trees + 1, "grow", f"a forest of n_trees = {n_trees} trees",
        len(forest.tree_start) - 1, "grow as many trees as the argument n_trees says",
    )  # fmt: skip
    return trusted(forest)


def check_grower(grow: Any, target: supervised.Target, *names: str) -> None:
    """Checks that `grow` is None or a function that accepts the arguments for growing, and these names."""
    settings = ["n_trees", *names, *settings_of(target)]
    if grow is not None:
        keywords.grower("grow", grow, ", ".join(["x", "y", *(f"{name}=..." for name in settings)]))


def applied(
    forest: Forest, x: ArrayLike, y: ArrayLike, task: Task, n_classes: int | None
) -> tuple[Forest, IntArray, supervised.Target]:
    """Returns the forest, (n_samples, n_trees) leaves of rows, and their labels or targets, all checked."""
    check.on_cpu(y=y)
    forest, leaf = leaves(forest, x)
    return forest, leaf, supervised.target(y, len(leaf), task, n_classes)


def leaves(forest: Forest, x: ArrayLike) -> tuple[Forest, IntArray]:
    """Returns the forest, which nobody changes, and (n_samples, n_trees) leaves of rows; both are checked."""
    check.on_cpu(x=x)
    forest = trusted(forest)
    return forest, tree.apply(forest, x)


def float_numbers(name: str, a: ArrayLike) -> FloatArray:
    """Returns real numbers of any shape, as float64."""
    check.on_cpu(**{name: a})
    return supervised.converted_numbers(supervised.real(name, a), np.dtype(np.float64))


def leaf_values(forest: Forest, leaf: IntArray) -> FloatArray:
    """Returns the predictions of each tree, (n_samples, n_trees, n_outputs) float64."""
    start = forest.tree_start[:-1]
    row = (start + np.arange(len(start))) // 2 + forest.left[start + leaf]
    return forest.value[row].astype(np.float64)


def members(forest: Forest, leaf: IntArray, counts: IntArray | None = None) -> SparseArray:
    """Returns (n_samples, n_nodes): counts of each row in each leaf of all trees, by default 1.

    Products with it add up in the order of the trees, those with its transpose in that of the rows.
    """
    import scipy.sparse

    node = forest.tree_start[:-1] + leaf
    often = np.ones(node.size) if counts is None else counts.T.ravel().astype(np.float64)
    first = np.arange(len(leaf) + 1) * leaf.shape[1]
    return scipy.sparse.csr_array((often, node.ravel(), first), shape=(len(leaf), len(forest.feature)))


def sums_of_leaves(
    forest: Forest, leaf: IntArray, counts: IntArray, values: FloatArray, weight: FloatArray | None = None
) -> FloatArray:
    """Returns (n_nodes, 1 + n_values): number of rows in each leaf, and sums of their values; 0 in splits.

    With weights of rows it is their sum, and values are multiplied by them.
    """
    weight = np.ones(len(values)) if weight is None else weight
    with check.memory("n_classes", "sums of leaves", 8 * len(forest.feature) * (1 + values.shape[1])):
        return members(forest, leaf, counts).T @ np.column_stack([weight, weight[:, None] * values])


Draw = Callable[[int], tuple[float, int]]
"""draw(b): the statistic of drawn data number b, of the observed data for 0, and the rows with a vote."""


def sequential(
    draw: Draw, n_permutations: int, max_exceed: int | None, progress: Progress
) -> PermutationTest:
    """Returns a p-value (Besag and Clifford 1991): draws end when max_exceed of them reach the observed one.

    With h of them after l draws the p-value is h / l. If all draws were made, or a report ended them, it is
    (1 + g) / (1 + n), where g of n draws reach the observed one.
    """
    n_permutations = checked_draws(n_permutations)
    if max_exceed is not None:
        max_exceed = check.integer("max_exceed", max_exceed, 1, MAX_PERMUTATIONS)
    statistic, n_rows = draw(0)
    null: list[float] = []
    exceed = 0
    with reporting(progress, n_permutations, "permutation") as report:
        for b in range(1, n_permutations + 1):
            null.append(draw(b)[0])
            exceed += null[-1] >= statistic
            if exceed == max_exceed:
                report(b)
                return PermutationTest(exceed / b, statistic, np.array(null), n_rows)
            if not report(b):
                break
    return PermutationTest((1 + exceed) / (1 + len(null)), statistic, np.array(null), n_rows)


def checked_draws(n_permutations: Any) -> int:
    """Returns the checked number of permutations."""
    return check.integer("n_permutations", n_permutations, 1, MAX_PERMUTATIONS)


def reached(observed: Any, null: FloatArray) -> np.ndarray:
    """Returns which statistics reach the observed one of their row, up to rounding of the largest."""
    unit = np.maximum(abs(observed), abs(null).max(axis=-1))
    return null >= (observed - 1e-12 * unit)[..., None]


def in_blocks(
    observed: float, draw: Callable[[range], list[float]], n: int, step: int, progress: Progress
) -> tuple[float, FloatArray]:
    """Returns the share of statistics, with the observed one, that reach it, and the drawn ones.

    draw(numbers) makes at most `step` of the n statistics at a time. A report may end them.
    """
    null: list[float] = []
    with reporting(progress, n, "permutation") as report:
        for done in range(0, n, step):
            null += draw(range(done, min(done + step, n)))
            if not report(len(null)):
                break
    drawn = np.array(null)
    exceed = int(reached(observed, drawn).sum())
    return (1 + exceed) / (1 + len(drawn)), drawn
