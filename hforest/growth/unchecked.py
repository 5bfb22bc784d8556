"""Encoding and growth without checks: for functions that have checked their arguments.

Whatever is public calls these once it knows that arrays fit each other.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dispatch, machine, supervised
from ..core.aliases import Array, FloatArray, IntArray, Progress
from ..core.blocks import Unconverted
from ..core.progress import reporting, unheard
from ..core.projections import Distribution
from ..core.sparse import Columns
from . import sparse
from .bins import Bins, Windows
from .checks import BIN_DTYPES
from .trees import Batch, Learned, Projected, Roots, Trees

if TYPE_CHECKING:
    from .settings import Growth

PACKAGE = __package__

_ENCODED_VALUES = 1 << 22  # values that are encoded at a time, but at least two columns a thread
_WINDOW_COLUMNS = 8  # columns of windows that get bins of their own at a time
MAX_POISSON = 12  # the greatest count
_TREES_A_THREAD = 4  # of a batch: reports come soon, and threads are busy
_BATCH_SAMPLES = 1 << 18  # of the trees of a batch without reports: few waits for threads, little memory

GrowSome = Callable[[Batch], None]
"""Appends the trees of a batch to `batch.trees`."""


# ------------------------------------------------------------------------------------------ encoding


def _smallest_dtype(n_bins: int) -> np.dtype:
    return next(t for t in BIN_DTYPES if n_bins <= 256**t.itemsize)


def _encode_copies(windows: Windows, max_bins: int) -> Bins:
    """As of a copy, but of a few columns at a time."""
    xp, flat = dispatch.array_module(windows.x), windows.x.reshape(-1)
    parts = [
        _encode_columns(flat[windows.base[:, None] + windows.offset[f : f + _WINDOW_COLUMNS]], max_bins)
        for f in range(0, len(windows.offset), _WINDOW_COLUMNS)
    ]
    n_bins = max(part.low.shape[1] for part in parts)
    low, high = (
        xp.concatenate([xp.pad(table, ((0, 0), (0, n_bins - table.shape[1])), "edge") for table in tables])
        for tables in ([part.low for part in parts], [part.high for part in parts])
    )
    return Bins(xp.concatenate([part.bins for part in parts]), low, high, parts[0].dtype)


def _encode_windows(windows: Windows, max_bins: int | None) -> Bins:
    exact = _encode_columns(windows.x.reshape(-1, 1), None)
    if max_bins is not None and exact.low.shape[1] > max_bins:
        return _encode_copies(windows, max_bins)
    return exact._replace(base=windows.base, offset=windows.offset)


def _encode_columns(
    x: FloatArray | Unconverted,
    max_bins: int | None,
    has_missing: bool = False,
    which: IntArray | None = None,
) -> Bins:
    """Bins of all columns of x, or of those that `which` (n_columns,) numbers."""
    n, n_columns = x.shape[0], x.shape[1] if which is None else len(which)
    if has_missing and max_bins is not None:
        max_bins = max(1, max_bins - 1)  # missing values have a bin too
    n_entries = n if max_bins is None else min(n, max_bins)  # of a column's table, at most
    given = x.given if isinstance(x, Unconverted) else x
    xp, backend = dispatch.array_module(given), dispatch.backend(PACKAGE, given)
    # Some columns at a time on a CPU: how many bins they have is known when they are sorted, and tables with
    # as many entries as samples, for all columns, would be many times x.
    block = n_columns
    if xp is np:
        block = min(n_columns, max(2 * machine.get_num_threads(), _ENCODED_VALUES // n))
    wide = xp.empty((block, n), np.uint32)
    # A bin of one value has it as its least and its greatest: one table holds both.
    tables = [xp.empty((block, n_entries)) for _ in range(1 if max_bins is None else 2)]
    n_bins = np.empty(n_columns, np.int64)
    some_missing = xp.zeros(n_columns, bool)
    parts: list[tuple[slice, Array, list[Array]]] = []
    for first in range(0, n_columns, block):
        part = slice(first, min(first + block, n_columns))
        count = part.stop - first
        at = part if which is None else xp.asarray(which[part])
        columns = x.columns(at) if isinstance(x, Unconverted) else x[:, at]
        backend.encode(columns, wide[:count], tables[0][:count], tables[-1][:count], n_bins[part])
        if has_missing:
            some_missing[part] = xp.isnan(columns).any(axis=0)
        del columns
        widest = int(n_bins[part].max())
        copies = [table[:count, :widest].copy() for table in tables]
        parts.append((part, wide[:count].astype(_smallest_dtype(widest + has_missing)), copies))
    del wide, tables
    widest = int(n_bins.max()) + has_missing
    bins = xp.empty((n_columns, n), _smallest_dtype(widest))
    joined = [xp.empty((n_columns, widest)) for _ in copies]
    while parts:  # each is freed when it is copied
        part, some, copies = parts.pop()
        bins[part] = some
        for table, copy in zip(joined, copies, strict=True):
            table[part, : copy.shape[1]] = copy
    for f, used in enumerate(n_bins.tolist()):
        for table in joined:
            table[f, used:] = table[f, used - 1] if used else 0.0
    found = Bins(bins, joined[0], joined[-1], x.dtype)
    if not has_missing:
        return found
    return found._replace(missing=xp.where(some_missing, xp.asarray(n_bins), -1))


def _encode_kinds(
    x: FloatArray | Unconverted, max_bins: int | None, categorical: np.ndarray, has_missing: bool
) -> Bins:
    """As of columns of numbers, and of columns of categories, whose bins are exact."""
    xp = dispatch.array_module(x.given if isinstance(x, Unconverted) else x)
    numbers, named = np.flatnonzero(~categorical), np.flatnonzero(categorical)
    parts = [(named, _encode_columns(x, None, has_missing, named))]
    if numbers.size:
        parts.append((numbers, _encode_columns(x, max_bins, has_missing, numbers)))
    widest = max(part.low.shape[1] for _, part in parts)
    bins = xp.empty((x.shape[1], x.shape[0]), _smallest_dtype(widest))
    low, high = (xp.empty((x.shape[1], widest)) for _ in range(2))
    missing = xp.full(x.shape[1], -1, np.int64)
    for columns, part in parts:
        at = xp.asarray(columns)
        bins[at] = part.bins
        for table, of_part in ((low, part.low), (high, part.high)):
            table[at, : of_part.shape[1]] = of_part
            table[at, of_part.shape[1] :] = of_part[:, -1:]
        if part.missing is not None:
            missing[at] = part.missing
    return Bins(bins, low, high, x.dtype, missing=missing, categorical=xp.asarray(categorical))


def encode(
    x: FloatArray | Unconverted | Columns | Windows,
    max_bins: int | None,
    categorical: np.ndarray | None = None,
    has_missing: bool = False,
) -> Bins:
    """Bins of the columns of x (no infinity, not empty) or of fitting windows."""
    if isinstance(x, Columns):
        return sparse.encode(x, max_bins, categorical, has_missing)
    if isinstance(x, Windows):
        return _encode_windows(x, max_bins)
    if categorical is None:
        return _encode_columns(x, max_bins, has_missing)
    return _encode_kinds(x, max_bins, categorical, has_missing)


# -------------------------------------------------------------------------------------------- growth


def in_batches(
    grow_some: GrowSome, growth: "Growth", progress: Progress, batch: int | None = None
) -> list[Any]:
    """Calls grow_some until all trees have grown, or a report ends the growth; returns the trees.

    `batch` is how many trees grow between reports.
    """
    n_samples, n_trees, bootstrap = len(growth.samples), growth.n_trees, growth.bootstrap
    xp = dispatch.array_module(growth.samples.numbers)
    trees: list[Any] = []
    with reporting(progress, n_trees, "tree") as report:
        if batch is None:
            batch = _TREES_A_THREAD * machine.get_num_threads()
            if report is unheard:
                batch = max(batch, _BATCH_SAMPLES // n_samples)
        for first in range(0, n_trees, batch):
            count = min(batch, n_trees - first)
            number, counts = growth.first_tree + first, None
            if bootstrap is True:
                counts = xp.empty((count, n_samples), np.int32)
                dispatch.backend(PACKAGE, counts).bootstrap_counts(growth.seed, number, counts)
            elif isinstance(bootstrap, str):
                counts = xp.empty((count, n_samples), np.int32)
                dispatch.backend(PACKAGE, counts).poisson_counts(growth.seed, number, 0, counts)
            elif not isinstance(bootstrap, bool):
                counts = bootstrap[first : first + count]
            grow_some(Batch(growth.seed, number, count, counts, trees))
            if not report(len(trees)):
                break
    return trees


def most_drawn(n_samples: int, bootstrap: bool | str | IntArray) -> int:
    """How many samples a tree draws at most."""
    if isinstance(bootstrap, str):
        return MAX_POISSON * n_samples
    if isinstance(bootstrap, bool) or not bootstrap.size:
        return n_samples
    return n_samples * max(1, int(bootstrap.max()))


def _scaled(learned: Learned, dtype: np.dtype, bootstrap: bool | str | IntArray) -> Learned:
    """With weights scaled so that sums, and gains in `dtype`, are in range."""
    n_drawn = most_drawn(len(learned.sample_weight), bootstrap)
    weight, _ = supervised.scaled_weight(learned.sample_weight, learned.target.targets, dtype, n_drawn)
    return learned._replace(sample_weight=weight)


def grow(growth: "Growth", *, max_features: int, progress: Progress) -> Trees:
    """Trees on bins."""
    samples, splitter = growth.samples, growth.splitter
    learned = _scaled(growth.learned, samples.dtype, growth.bootstrap)
    backend = dispatch.backend(PACKAGE, learned.sample_weight)
    bins = samples.bins()
    workspace = samples.workspace(
        "columns", backend, splitter, lambda: backend.prepare_columns(bins, splitter)
    )

    def grow_some(batch: Batch) -> None:
        backend.grow(bins, workspace, learned, max_features, splitter, batch)

    trees = in_batches(grow_some, growth, progress)
    return Trees(*backend.joined(trees, learned.target.n_outputs, bins.dtype, False))


def grow_projected(
    growth: "Growth", distribution: Distribution, *, n_projections: int, progress: Progress
) -> Projected:
    """Trees on projections of a distribution."""
    samples, x = growth.samples, growth.samples.matrix()
    backend = dispatch.backend(PACKAGE, samples.numbers)
    learned = _scaled(growth.learned, samples.dtype, growth.bootstrap)
    workspace = samples.workspace(
        "projections", backend, distribution,
        lambda: backend.prepare_projections(x, distribution, samples.has_missing),
    )  # fmt: skip

    def grow_some(batch: Batch) -> None:
        backend.grow_projected(x, workspace, learned, distribution, n_projections, growth.splitter, batch)

    trees = in_batches(grow_some, growth, progress)
    return joined(trees, learned.target.n_outputs, samples.numbers)


def joined(trees: list[Any], n_outputs: int, x: FloatArray) -> Projected:
    """Trees on projections of x, which a backend has grown."""
    arrays = dispatch.backend(PACKAGE, x).joined(trees, n_outputs, x.dtype, True)
    return Projected(Trees(*arrays[:9]), *arrays[9:])


def grow_below(bins: Bins, learned: Learned, roots: Roots, *, max_features: int) -> list[Trees]:
    """The subtrees that grow from nodes of other trees, each by itself; NumPy arrays alone."""
    weight = learned.sample_weight
    backend = dispatch.backend(PACKAGE, weight)
    batch = Batch(0, 0, len(roots.key), None, [], roots)
    backend.grow(bins, backend.prepare_columns(bins, "best"), learned, max_features, "best", batch)
    joined = Trees(*backend.joined(batch.trees, learned.target.n_outputs, bins.dtype, False))
    return [_tree(joined, m, first) for m, first in enumerate(_first_leaves(joined))]


def grow_projected_below(
    x: FloatArray,
    learned: Learned,
    roots: Roots,
    distribution: Distribution,
    *,
    has_missing: bool,
    n_projections: int,
) -> list[Projected]:
    """As `grow_below`, on projections of x (C-contiguous, no infinity)."""
    backend = dispatch.backend(PACKAGE, x)
    batch = Batch(0, 0, len(roots.key), None, [], roots)
    workspace = backend.prepare_projections(x, distribution, has_missing)
    backend.grow_projected(x, workspace, learned, distribution, n_projections, "best", batch)
    trees, indptr, indices, data = joined(batch.trees, learned.target.n_outputs, x)
    found = []
    for m, first in enumerate(_first_leaves(trees)):
        starts = indptr[trees.tree_start[m] : trees.tree_start[m + 1] + 1]
        entries = slice(starts[0], starts[-1])
        found.append(Projected(_tree(trees, m, first), starts - starts[0], indices[entries], data[entries]))
    return found


def _first_leaves(trees: Trees) -> list[int]:
    """Where the values of each tree begin."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(trees.feature == -1)])
    return [int(n) for n in before[trees.tree_start[:-1]]]


def _tree(trees: Trees, m: int, first_leaf: int) -> Trees:
    """One of some trees, as views."""
    nodes = slice(int(trees.tree_start[m]), int(trees.tree_start[m + 1]))
    feature = trees.feature[nodes]
    n_leaves = (len(feature) + 1) // 2
    indptr, bits = trees.category_indptr, trees.category_bits
    if len(indptr):
        indptr = indptr[nodes.start : nodes.stop + 1]
        indptr, bits = indptr - indptr[0], bits[indptr[0] : indptr[-1]]
    return Trees(
        np.array([0, len(feature)]), feature, trees.threshold[nodes], trees.left[nodes],
        trees.value[first_leaf : first_leaf + n_leaves], trees.gain[nodes], trees.default_left[nodes],
        indptr, bits,
    )  # fmt: skip
