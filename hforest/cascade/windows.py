"""Multi-grained scanning: windows as views, forests on windows, class vectors of whole samples."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .. import classic, growth, tree
from ..core import check
from ..tree import Forest
from . import folds as f
from .folds import Grower

Sizes = tuple[int, ...]

_BLOCK = 1 << 20  # elements of windows copied at a time: trees are packed anew for each block


class Scanner(NamedTuple):
    """Forests that classify windows."""

    shape: tuple[int, ...]
    """Of a sample: (length,), (height, width) or (height, width, channels)."""
    window: tuple[int, ...]
    """Of a window: (length,) or (height, width); it has all channels."""
    stride: tuple[int, ...]
    """From a window to the next, along each axis of window."""
    forests: tuple[Forest, ...]
    """Their features are a window's elements in C order."""


def _axes(name: str, value: Any, n_axes: int) -> tuple[int, ...]:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        value = (value,) * n_axes
    if not isinstance(value, tuple | list) or len(value) != n_axes:
        raise ValueError(
            f"{name}: expected an int or a tuple of {n_axes}, got {value!r}; give a size for each axis"
        )
    return tuple(check.integer(f"{name}[{i}]", size, 1, 2**31 - 1) for i, size in enumerate(value))


def _geometry(
    shape: Any, window: Any, stride: Any
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    if not isinstance(shape, tuple | list) or not 1 <= len(shape) <= 3:
        raise ValueError(
            f"shape: expected (length,), (height, width) or (height, width, channels), got {shape!r}; "
            "pass the shape of one sample"
        )
    sizes = _axes("shape", tuple(shape), len(shape))
    n_axes = min(len(sizes), 2)
    frame, step = _axes("window", window, n_axes), _axes("stride", stride, n_axes)
    for i, (size, room) in enumerate(zip(frame, sizes, strict=False)):
        if size > room:
            raise ValueError(
                f"window[{i}]: expected at most shape[{i}] = {room}, got {size}; choose a smaller window"
            )
    return sizes, frame, step


def scan(x: np.ndarray, shape: Sequence[int], window: Any, stride: Any = 1) -> np.ndarray:
    """All windows of all samples, as a view.

    Parameters
    ----------
    x : (n, n_features) array of any dtype
        Samples, C-contiguous; n_features is the product of shape.
    shape : (length,), (height, width) or (height, width, channels)
        Of one sample.
    window : int or tuple of 1 or 2 ints
        Length, or height and width; a window has all channels.
    stride : int or tuple of 1 or 2 ints
        From a window to the next.

    Returns
    -------
    (n, *positions, *window[, channels]) array
        A read-only view of x; positions = (shape - window) // stride + 1.

    Raises
    ------
    TypeError, ValueError
        Not an array; a shape that does not multiply to n_features; a window larger than a sample.

    Notes
    -----
    Cost: none, whatever the number of windows.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> windows = hforest.cascade.scan(np.arange(32).reshape(2, 16), (4, 4), 3)
    >>> windows.shape, windows[1, 0, 1, 0].tolist()
    ((2, 2, 2, 3, 3), [17, 18, 19])
    """
    f.check_cpu(x=x)
    sizes, frame, step = _geometry(shape, window, stride)
    check.array("x", x, x.dtype, ("n", "n_features"), {})
    if x.shape[1] != np.prod(sizes):
        raise ValueError(
            f"shape: expected sizes that multiply to n_features = {x.shape[1]}, got {sizes}; "
            "pass the shape of one sample"
        )
    samples = x.reshape(-1, *sizes)
    axes = tuple(range(1, 1 + len(frame)))
    view = np.lib.stride_tricks.sliding_window_view(samples, frame, axis=axes)
    view = view[(slice(None), *(slice(None, None, s) for s in step))]
    # sliding_window_view puts the window last, behind the channels.
    return np.moveaxis(view, len(frame) + 1, -1) if len(sizes) == 3 else view


def _default_forests(n_trees: int = 500) -> tuple[Grower, ...]:
    return partial(classic.grow, n_trees=n_trees), partial(classic.grow_random, n_trees=n_trees)


def _extent(view: np.ndarray, frame: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Positions of a window in a sample, elements of a window."""
    stop = 1 + len(frame)
    return view.shape[1:stop], int(np.prod(view.shape[stop:]))


def _vectors(forests: Sequence[Forest], view: np.ndarray, n_windows: int, size: int) -> np.ndarray:
    """(n, n_windows n_forests n_classes): class vectors of windows, copied some samples at a time."""
    n, n_classes = len(view), forests[0].value.shape[1]
    result = np.empty((n, n_windows, len(forests), n_classes), forests[0].value.dtype)
    step = max(1, _BLOCK // (n_windows * size))
    for first in range(0, n, step):
        block = np.ascontiguousarray(view[first : first + step]).reshape(-1, size)
        for i, forest in enumerate(forests):
            p = tree.predict(forest, block)
            result[first : first + step, :, i] = p.reshape(-1, n_windows, n_classes)
    return result.reshape(n, -1)


def _drawn(
    n_windows: int, members: np.ndarray, most: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Windows of some samples, `most` of each: the sample and the number of each window."""
    if most >= n_windows:
        return np.repeat(members, n_windows), np.tile(np.arange(n_windows), len(members))
    chosen = np.concatenate([rng.permutation(n_windows)[:most] for _ in members])
    return np.repeat(members, most), chosen


def _reads_windows(grower: Grower) -> bool:
    """Whether a grower takes windows where they lie; others are given copies."""
    return isinstance(grower, partial) and grower.func in (classic.grow, classic.grow_random)


def _lying(
    x: np.ndarray, sizes: Sizes, frame: Sizes, step: Sizes, sample: np.ndarray, chosen: np.ndarray
) -> growth.Windows:
    """Windows as places in x."""
    places = scan(np.arange(x.shape[1], dtype=np.int64)[None], sizes, frame, step)[0]
    n_axes = len(frame)
    offset = places[(0,) * n_axes].ravel()
    corner = places[(..., *(0,) * (places.ndim - n_axes))].ravel()
    return growth.Windows(x, sample * x.shape[1] + corner[chosen], offset)


def grow_scanner(
    x: np.ndarray,
    y: np.ndarray,
    shape: Sequence[int],
    window: Any,
    forests: Sequence[Grower] | None = None,
    *,
    stride: Any = 1,
    n_classes: int | None = None,
    folds: int = 3,
    max_windows: int | None = None,
    progress: Any = None,
    rng: Any = None,
) -> tuple[Scanner, np.ndarray]:
    """Forests on the windows of one grain, and the class vectors of the training samples (p4 section 3).

    Parameters
    ----------
    x : (n, n_features) array of float32 or float64
        Samples, finite, at least one.
    y : (n,) array of int32
        Labels 0 to n_classes - 1; a window has its sample's label.
    shape, window, stride
        As `scan` takes them.
    forests : sequence of functions, optional
        As `grow` takes them; by default a random forest and a completely random one, of 500 trees.
    n_classes : int, optional
        By default the largest label and 1.
    folds : int
        2 or more. Samples, with all their windows, are spread over folds; class vectors of a sample come
        from trees that saw none of its windows.
    max_windows : int, optional
        Windows of each sample that a forest learns from, drawn at random; by default all of them.
    progress : callable, optional
        Called as progress(done, n_forests) after every forest; what it raises ends the growth.
    rng : None, int or numpy.random.Generator
        Where the seed comes from.

    Returns
    -------
    scanner : Scanner
        For `scan_vectors` and `save`.
    vectors : (n, n_windows * n_forests * n_classes) array, dtype of x
        For `grow`: window by window, in it forest by forest.

    Raises
    ------
    TypeError, ValueError, IndexError
        As from `scan` and `grow`.

    Notes
    -----
    To be classified windows are copied a million elements at a time. To be learned from by `hforest.classic`
    they are read where they lie, if they have more elements than x, with 20 bytes a window. For other
    functions those of one fold are copied: of n min(max_windows, n_windows) windows a ``1 - 1 / folds`` part.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> from functools import partial
    >>> x = np.random.default_rng(0).normal(size=(60, 16)).astype(np.float32)
    >>> y = np.repeat(np.arange(3, dtype=np.int32), 20); x[np.arange(60), 5 * y] += 4
    >>> few = [partial(hforest.classic.grow, n_trees=10)]
    >>> scanner, vectors = hforest.cascade.grow_scanner(x, y, (4, 4), 2, few, rng=0)
    >>> vectors.shape
    (60, 27)
    """
    n_classes = f.check_samples(x, y, n_classes)
    sizes, frame, step = _geometry(shape, window, stride)
    growers = f.check_growers(_default_forests() if forests is None else forests)
    n_folds = check.integer("folds", folds, 2, 2**20)
    f.check_folds(y, n_classes, n_folds)
    view = scan(x, sizes, frame, step)
    grid, size = _extent(view, frame)
    n_windows = most = int(np.prod(grid))
    if max_windows is not None:
        most = min(check.integer("max_windows", max_windows, 1, 2**31 - 1), n_windows)
    seed = int(check.generator(rng).integers(2**63))
    fold = f.assign(y, n_classes, n_folds, f.key(seed, 0))
    joined: list[Forest] = []
    vectors = np.empty((len(x), n_windows, len(growers), n_classes), x.dtype)
    for i, grower in enumerate(growers):
        name = f"forests[{i}]"
        parts = []
        for k in range(n_folds):
            others, members = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
            sample, chosen = _drawn(n_windows, others, most, f.key(seed, 1, k))
            windows: np.ndarray | growth.Windows
            # Codes of all of x are more than copies of a few windows.
            if _reads_windows(grower) and len(sample) * size > x.size:
                windows = _lying(x, sizes, frame, step, sample, chosen)
            else:
                place = np.unravel_index(chosen, grid)
                windows = np.ascontiguousarray(view[(sample, *place)]).reshape(-1, size)
            forest = f.grown(name, grower, windows, y[sample], n_classes, rng=f.key(seed, 2, i, k))
            del windows
            parts.append(forest)
            # A view of the fold's samples: of `view` itself a fold would be a copy of all its windows.
            found = _vectors([forest], scan(x[members], sizes, frame, step), n_windows, size)
            vectors[members, :, i] = found.reshape(len(members), n_windows, n_classes)
        joined.append(f.join(parts))
        if progress is not None:
            progress(i + 1, len(growers))
    return Scanner(sizes, frame, step, tuple(joined)), vectors.reshape(len(x), -1)


def scan_vectors(scanner: Scanner, x: np.ndarray) -> np.ndarray:
    """Class vectors of all windows of new samples, side by side.

    Parameters
    ----------
    scanner : Scanner
        From `grow_scanner` or `load`.
    x : (n, n_features) array, dtype that the scanner was grown on
        Samples.

    Returns
    -------
    (n, n_windows * n_forests * n_classes) array, dtype of x
        As `grow_scanner` returns them for training samples; here every tree has its say.

    Raises
    ------
    TypeError, ValueError
        Wrong kind, dtype or device; wrong shape or layout, NaN or infinity.

    Notes
    -----
    Memory: the result, and a million elements of windows.

    Examples
    --------
    See `grow_scanner`.
    """
    if not isinstance(scanner, Scanner):
        raise TypeError(f"scanner: expected a Scanner, got {type(scanner).__name__}; grow or load one")
    f.check_cpu(x=x)
    check.array("x", x, scanner.forests[0].threshold.dtype, ("n", "n_features"), {})
    check.finite("x", x)
    sizes, frame, step = _geometry(scanner.shape, scanner.window, scanner.stride)
    view = scan(x, sizes, frame, step)
    grid, size = _extent(view, frame)
    n_windows = int(np.prod(grid))
    return _vectors(scanner.forests, view, n_windows, size)
