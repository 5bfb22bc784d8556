"""Multi-grained scanning: windows as views, forests on windows, class vectors of whole samples."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .. import growth
from ..core import check, supervised
from ..core import progress as progresses
from ..core.aliases import Array, ArrayLike, FloatArray, Progress, Rng
from ..tree import Forest
from ..tree.callers import check_forest, grown, join_any
from . import folds as f
from .folds import Grower

Sizes = tuple[int, ...]

_BLOCK = 1 << 18  # windows per block: each block packs the forest again


class Scanner(NamedTuple):
    """Forests that classify windows."""

    shape: tuple[int, ...]
    """Shape of a sample: (length,), (height, width) or (height, width, channels)."""
    window: tuple[int, ...]
    """Shape of a window, (length,) or (height, width); it has all channels."""
    stride: tuple[int, ...]
    """Distance from a window to the next, along each axis of window."""
    forests: tuple[Forest, ...]
    """Forests whose features are the elements of a window in C order."""


def _axes(name: str, value: Any, n_axes: int) -> tuple[int, ...]:
    value = check.scalar(value)
    if check.is_integer(value):
        value = (value,) * n_axes
    check.instance(name, value, tuple | list, f"an int or a tuple of {n_axes}", "pass one size per axis")
    if len(value) != n_axes:
        raise ValueError(
            f"{name}: expected an int or a tuple of {n_axes}, got a tuple of {len(value)}; "
            "pass one size per axis"
        )
    return tuple(check.integer(f"{name}[{i}]", size, 1, 2**31 - 1) for i, size in enumerate(value))


def _geometry(
    shape: Any, window: Any, stride: Any
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    expected = "(length,), (height, width) or (height, width, channels)"
    check.instance("shape", shape, tuple | list, expected, "pass the shape of one sample")
    if not 1 <= len(shape) <= 3:
        raise ValueError(f"shape: expected {expected}, got {len(shape)} sizes; pass the shape of one sample")
    sizes = _axes("shape", tuple(shape), len(shape))
    n_axes = min(len(sizes), 2)
    frame, step = _axes("window", window, n_axes), _axes("stride", stride, n_axes)
    for i, (size, available) in enumerate(zip(frame, sizes, strict=False)):
        if size > available:
            raise ValueError(
                f"window[{i}]: expected at most shape[{i}] = {available}, got {size}; choose a smaller window"
            )
    return sizes, frame, step


def scan(
    x: Array, shape: Sequence[int], window: int | Sequence[int], stride: int | Sequence[int] = 1
) -> Array:
    """Returns all windows of all samples, as a view.

    Parameters
    ----------
    x : (n_samples, n_features) numpy array of any dtype and strides
        Samples.
    shape : (length,), (height, width) or (height, width, channels)
        Shape of one sample, whose product is n_features.
    window : int or tuple of 1 or 2 ints
        Length, or height and width, at most those of a sample; a window has all channels.
    stride : int or tuple of 1 or 2 ints
        Distance between neighbouring windows.

    Returns
    -------
    (n_samples, *positions, *window[, channels]) array
        A read-only view of x; positions = (shape - window) // stride + 1.

    Notes
    -----
    Zhou and Feng 2017, multi-grained scanning. Nothing is copied, whatever the number of windows.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> windows = hforest.cascade.scan(np.arange(32).reshape(2, 16), (4, 4), 3)
    >>> windows.shape, windows[1, 0, 1, 0].tolist()
    ((2, 2, 2, 3, 3), [17, 18, 19])
    """
    check.on_cpu(x=x)
    check.same_device(x=x)
    sizes, frame, step = _geometry(shape, window, stride)
    if x.ndim != 2:
        raise ValueError(
            f"x: expected shape (n_samples, n_features), got {x.shape}; pass a row for each sample"
        )
    if x.shape[1] != math.prod(sizes):  # exact for any size, unlike numpy.prod
        raise ValueError(
            f"shape: expected sizes that multiply to n_features = {x.shape[1]}, got {sizes}; "
            "pass the shape of one sample"
        )
    samples = x.reshape(len(x), *sizes)
    axes = tuple(range(1, 1 + len(frame)))
    view = np.lib.stride_tricks.sliding_window_view(samples, frame, axis=axes)
    view = view[(slice(None), *(slice(None, None, s) for s in step))]
    # sliding_window_view puts the window last, after the channels.
    return np.moveaxis(view, len(frame) + 1, -1) if len(sizes) == 3 else view


def _default_forests(n_trees: int = 500) -> tuple[Grower, ...]:
    return partial(growth.grow, n_trees=n_trees), partial(f.completely_random, n_trees=n_trees)


def _extent(view: np.ndarray, frame: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Returns the number of positions of a window in a sample, and the number of elements of a window."""
    stop = 1 + len(frame)
    return view.shape[1:stop], int(np.prod(view.shape[stop:]))


def _places(n_features: int, sizes: Sizes, frame: Sizes, step: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Returns the offsets of the windows in a sample, and the offsets of elements in a window."""
    places = scan(np.arange(n_features, dtype=np.int64)[None], sizes, frame, step)[0]
    n_axes = len(frame)
    return places[(..., *(0,) * (places.ndim - n_axes))].ravel(), places[(0,) * n_axes].ravel()


def _vectors(forests: Sequence[Forest], x: np.ndarray, sizes: Sizes, frame: Sizes, step: Sizes) -> np.ndarray:
    """Returns class vectors (n, n_windows, n_forests, n_classes) of windows, which are read in place.

    Forests and samples have been checked.
    """
    n, n_classes = len(x), forests[0].value.shape[1]
    corner, offset = _places(x.shape[1], sizes, frame, step)
    result = np.empty((n, len(corner), len(forests), n_classes), forests[0].value.dtype)
    size = max(1, _BLOCK // max(len(corner), x.shape[1]))
    for first in range(0, n, size):
        some = x[first : first + size]
        base = np.arange(len(some))[:, None] * x.shape[1] + corner
        with check.unchecked():
            windows = growth.samples(some, windows=(base.ravel(), offset))
        for i, forest in enumerate(forests):
            result[first : first + size, :, i] = f.predicted(forest, windows).reshape(*base.shape, n_classes)
    return result


def _sampled(
    n_windows: int, members: np.ndarray, n_sampled: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sample and the number of random windows, n_sampled windows per sample."""
    if n_sampled >= n_windows:
        return np.repeat(members, n_windows), np.tile(np.arange(n_windows), len(members))
    chosen = np.concatenate([rng.permutation(n_windows)[:n_sampled] for _ in members])
    return np.repeat(members, n_sampled), chosen


def _reads_windows(grower: Grower) -> bool:
    """Returns whether a grower reads windows in place; other growers receive copies."""
    return isinstance(grower, partial) and grower.func is growth.grow and "projections" not in grower.keywords


def _in_place(
    x: np.ndarray, sizes: Sizes, frame: Sizes, step: Sizes, sample: np.ndarray, chosen: np.ndarray
) -> growth.Samples:
    """Returns windows as positions in x, without a copy."""
    corner, offset = _places(x.shape[1], sizes, frame, step)
    return growth.samples(x, windows=(sample * x.shape[1] + corner[chosen], offset))


def grow_scanner(
    x: ArrayLike,
    y: ArrayLike,
    shape: Sequence[int],
    window: int | Sequence[int],
    forests: Sequence[Grower] | None = None,
    *,
    stride: int | Sequence[int] = 1,
    n_folds: int = 3,
    max_windows: int | None = None,
    n_classes: int | None = None,
    progress: Progress = None,
    rng: Rng = None,
) -> tuple[Scanner, FloatArray]:
    """Returns forests on the windows of one grain, and the class vectors of the training samples.

    A window has the label of its sample. Other parameters: see `grow` and `scan`.

    Parameters
    ----------
    x : (n_samples, n_features) array_like
        Samples, finite, at least one, of any real dtype; computed in float32 if that holds every number of
        their dtype, else in float64.
    forests : sequence of functions, optional
        As for `grow`; by default a random forest and a completely random one, of 500 trees.
    n_folds : int
        Number of folds, 2 or more. Folds contain samples with all their windows; the class vectors of a
        sample come from trees that were grown without its windows.
    max_windows : int, optional
        Number of windows per sample, sampled at random, on which a forest is grown; by default all.
    progress : callable or bool, optional
        Called as progress(done, n_forests) after every forest. If it returns False, growth ends, and the
        scanner of the forests so far is returned with their class vectors. True shows a bar.

    Returns
    -------
    scanner : Scanner
        For `scan_vectors` and `save`.
    vectors : (n_samples, n_windows * n_forests * n_classes) array of float32 or float64
        Input of `grow`, ordered by window, then forest, then class.

    Notes
    -----
    Zhou and Feng 2017, multi-grained scanning. Prediction reads windows in place, a quarter of a million at a
    time. `hforest.grow` without projections also reads them in place if they have more elements than x, with
    20 bytes per window. For other functions the windows of the training folds are copied: a share ``1 - 1 /
    n_folds`` of n_samples min(max_windows, n_windows) windows.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> from functools import partial
    >>> x = np.random.default_rng(0).normal(size=(60, 16)).astype(np.float32)
    >>> y = np.repeat([0, 1, 2], 20); x[np.arange(60), 5 * y] += 4
    >>> few = [partial(hforest.grow, n_trees=10)]
    >>> scanner, vectors = hforest.cascade.grow_scanner(x, y, (4, 4), 2, few, rng=0)
    >>> vectors.shape
    (60, 27)
    """
    check.on_cpu(x=x)
    x = supervised.samples("x", x)
    y, n_classes = f.labels(y, len(x), n_classes)
    sizes, frame, step = _geometry(shape, window, stride)
    growers = f.check_growers(_default_forests() if forests is None else forests)
    n_folds = check.integer("n_folds", n_folds, 2, 2**20)
    f.check_folds(y, n_classes, n_folds)
    progresses.check_progress(progress)
    view = scan(x, sizes, frame, step)
    grid, size = _extent(view, frame)
    n_windows = n_sampled = int(np.prod(grid))
    if max_windows is not None:
        n_sampled = min(check.integer("max_windows", max_windows, 1, check.MAX_COUNT), n_windows)
    seed = int(check.generator(rng).integers(2**63))
    fold = f.assign(y, n_classes, n_folds, f.key(seed, 0))
    joined: list[Forest] = []
    vectors = np.empty((len(x), n_windows, len(growers), n_classes), x.dtype)
    with progresses.reporting(progress, len(growers), "forest") as report:
        for i, grower in enumerate(growers):
            parts = []
            for k in range(n_folds):
                others, members = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
                sample, chosen = _sampled(n_windows, others, n_sampled, f.key(seed, 1, k))
                windows: np.ndarray | growth.Samples
                # Bins of all of x take more memory than copies of a few windows.
                if _reads_windows(grower) and len(sample) * size > x.size:
                    windows = _in_place(x, sizes, frame, step, sample, chosen)
                else:
                    place = np.unravel_index(chosen, grid)
                    windows = np.ascontiguousarray(view[(sample, *place)]).reshape(-1, size)
                forest = grown(
                    f"forests[{i}]", grower, windows, y[sample], n_classes, rng=f.key(seed, 2, i, k)
                )
                del windows
                parts.append(forest)
                vectors[members, :, i] = _vectors([forest], x[members], sizes, frame, step)[:, :, 0]
            joined.append(join_any(parts))
            if not report(i + 1):
                break
    scanner = Scanner(sizes, frame, step, tuple(joined))
    return scanner, vectors[:, :, : len(joined)].reshape(len(x), -1)


def check_scanner(name: str, scanner: Scanner) -> None:
    """Checks that the forests of a caller's scanner are sound and fit its window."""
    check.instance(name, scanner, Scanner, "a Scanner", "pass a scanner from grow_scanner or load")
    forests = scanner.forests
    check.instance(
        f"{name}.forests",
        forests,
        tuple | list,
        "a tuple of forests",
        "pass a scanner from grow_scanner or load",
    )
    if not forests:
        raise ValueError(
            f"{name}.forests: expected at least one forest, got none; pass a scanner from "
            "grow_scanner or load"
        )
    with check.fields_of(name):
        sizes, frame, _ = _geometry(scanner.shape, scanner.window, scanner.stride)
    size = math.prod(frame + sizes[len(frame) :])
    for i, forest in enumerate(forests):
        check_forest(f"{name}.forests[{i}]", forest)
        n_classes, dtype = forests[0].value.shape[1], forests[0].threshold.dtype
        f.check_fit(f"{name}.forests[{i}]", forest, size, n_classes, dtype)


def scan_vectors(scanner: Scanner, x: ArrayLike) -> FloatArray:
    """Returns the class vectors of all windows of new samples, concatenated.

    Parameters
    ----------
    scanner : Scanner
        From `grow_scanner` or `load`.
    x : (n_samples, n_features) array_like
        Samples, finite, of any real dtype; converted to the dtype of the scanner's forests.

    Returns
    -------
    (n_samples, n_windows * n_forests * n_classes) array, dtype of the forests
        Ordered as the `vectors` of `grow_scanner`; here each comes from all trees.

    Raises
    ------
    ValueError
        A forest that `hforest.tree.check` refuses.

    Notes
    -----
    Memory: the result, and the class vectors of a quarter of a million windows.
    """
    check_scanner("scanner", scanner)
    check.on_cpu(x=x)
    x = supervised.matrix("x", x, scanner.forests[0].threshold.dtype)
    sizes, frame, step = _geometry(scanner.shape, scanner.window, scanner.stride)
    vectors = _vectors(scanner.forests, x, sizes, frame, step)
    return vectors.reshape(len(x), math.prod(vectors.shape[1:]))
