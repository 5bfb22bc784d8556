"""Distributions of sparse projections, and the reference implementation of draws (kernels: projections.h).

Sparse vectors of +1 and -1, sums over contiguous patches, and kernels (Perry et al. 2019, sections 2.3, 3
and 6); the difference of two features (Norouzi et al. 2015, section 6.2).
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from . import check, series
from .aliases import ArrayLike, Task
from .dispatch import to_numpy
from .launch import numbers
from .philox import ENTRY, PROJECTION, below, keys, philox, unit
from .real import as_given

AXIS, SPARSE, PATCH, PROBE, KERNEL, AXES = numbers(
    "core/projections.h", "HF_AXIS", "HF_SPARSE", "HF_PATCH", "HF_PROBES", "HF_KERNELS", "HF_AXES"
)
"""Kinds of distributions, and the maximum number of axes of a patch or a kernel."""
PLACED = (PATCH, KERNEL)
"""Kinds of which a projection lies at a place of the sample."""
MAX_PROJECTIONS = 2**20
"""Maximum number of projections of a call or a node: a million take seconds."""
_MOST_BY_DEFAULT = 100
MAX_DENSITY = 500.0
MAX_NON_ZEROS = 4096
"""Maximum number of entries of a sparse projection."""


class Distribution(NamedTuple):
    """A distribution of sparse projections.

    Made by `axis_distribution`, `sparse_distribution`, `patch_distribution`, `kernel_distribution`,
    `probe_distribution` or `grouped_distribution` of `hforest.project`.
    """

    kind: int
    """0: single features, 1: sparse vectors, 2: patches, 3: differences of two features, 4: kernels."""
    n_features: int
    """Number of features."""
    density: float = 1.0
    """Sparse vectors: mean of the Poisson distribution of the number of non-zeros, which is at least 1."""
    zero_probability: float = 0.0
    """Sparse vectors: exp(-density), the Poisson probability of a vector without non-zeros. Differences: the
    probability of a single feature in place of a difference."""
    shape: tuple[int, int, int] = (1, 1, 1)
    """Patches and kernels: the shape of a sample, without channels, filled with leading ones."""
    channels: int = 1
    """Size of the last axis of a sample if it counts channels; a patch or kernel lies in one of them."""
    patch_min: tuple[int, int, int] = (1, 1, 1)
    """Smallest size of a patch along each axis."""
    patch_max: tuple[int, int, int] = (1, 1, 1)
    """Largest size of a patch along each axis."""
    cyclic: bool = False
    """Whether patches and kernels wrap around the border."""
    max_entries: int = 1
    """Number of entries of the largest projection."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Columns of each group; a projection has columns of one group. Empty: all features are one group."""
    n_projections: tuple[int, ...] = ()
    """Number of projections of each group that a node samples."""
    kernels: tuple[tuple[tuple[int, int, int], tuple[float, ...]], ...] = ()
    """Size of each kernel along each axis, and its weights in C order, numbers of float32."""


# ------------------------------------------------------------------------------ drawing


def _draw_placed(distribution: Distribution, key: int) -> tuple[list[int], list[float]]:
    # The kernel, or the sizes of a patch, first, then the corner where it fits: independent and uniform.
    shape, least, greatest = distribution.shape, distribution.patch_min, distribution.patch_max
    size_words, corner_words = philox(key, 0, ENTRY), philox(key, 1, ENTRY)
    size = tuple(low + below(size_words[i], greatest[i] - low + 1) for i, low in enumerate(least))
    weights: tuple[float, ...] = ()
    if distribution.kind == KERNEL:
        size, weights = distribution.kernels[below(size_words[0], len(distribution.kernels))]
    n_corners = [n if distribution.cyclic else n - s + 1 for n, s in zip(shape, size, strict=True)]
    corner = [below(corner_words[i], n) for i, n in enumerate(n_corners)]
    channel = below(size_words[3], distribution.channels)
    indices = []
    for steps in np.ndindex(*size):
        at = [(c + step) % n for c, step, n in zip(corner, steps, shape, strict=True)]
        flat = (at[0] * shape[1] + at[1]) * shape[2] + at[2]
        indices.append(flat * distribution.channels + channel)
    weights = weights or (1.0,) * len(indices)
    return [i for i, w in zip(indices, weights, strict=True) if w], [w for w in weights if w]


def _draw_sparse(distribution: Distribution, n_columns: int, key: int) -> tuple[list[int], list[float]]:
    u, count = unit(philox(key, 0, ENTRY)), 0
    p = total = distribution.zero_probability
    while u >= total and count < min(distribution.max_entries, n_columns):  # Poisson, by inversion
        count += 1
        p *= distribution.density / count
        total += p
    count = max(count, 1)
    indices: list[int] = []
    data = []
    for i in range(count):  # Floyd's sampling without replacement
        words = philox(key, 1 + i, ENTRY)
        last = n_columns - count + i
        at = below(words[0], last + 1)
        indices.append(last if at in indices else at)
        data.append(1.0 if words[1] & 1 else -1.0)
    return indices, data


def _draw(distribution: Distribution, n_columns: int, key: int) -> tuple[list[int], list[float]]:
    if distribution.kind in PLACED:
        return _draw_placed(distribution, key)
    if distribution.kind == SPARSE:
        return _draw_sparse(distribution, n_columns, key)
    words = philox(key, 0, ENTRY)
    first = below(words[0], n_columns)
    single = words[2] < distribution.zero_probability * 2.0**32
    if distribution.kind == AXIS or single or n_columns == 1:
        return [first], [1.0]
    second = below(words[1], n_columns - 1)
    return [first, second + (second >= first)], [1.0, -1.0]


def draw_projection(distribution: Distribution, key: int, number: int) -> tuple[list[int], list[float]]:
    """Returns the features and weights of candidate `number` of the node or seed with a key."""
    own = projection_key(key, number)
    if not distribution.groups:
        return _draw(distribution, distribution.n_features, own)
    number %= sum(distribution.n_projections)
    stops = np.cumsum(distribution.n_projections)
    columns = distribution.groups[int(np.searchsorted(stops, number, side="right"))]
    places, data = _draw(distribution, len(columns), own)
    return [columns[place] for place in places], data


def projection_key(key: int, number: int) -> int:
    """Returns the key of candidate `number` of the node or seed with a key."""
    return keys(philox(key, number, PROJECTION))[0]


def draw_table(distribution: Distribution) -> np.ndarray:
    """Returns the groups or kernels as C and CUDA read them (projections.h), int32, empty without either.

    Groups: all columns, group by group (n_features,), then for each candidate the start and the number of the
    columns of its group (sum of n_projections, 2). Kernels: their number; for each its size along each axis
    and the place of its first weight (n_kernels, 4); the bits of all weights.
    """
    if distribution.kind == KERNEL:
        shapes, weights = zip(*distribution.kernels, strict=True)
        counts = [math.prod(size) for size in shapes]
        first = 1 + (AXES + 1) * len(counts) + np.cumsum(counts) - counts
        heads = np.column_stack([np.array(shapes), first]).ravel()
        bits = np.concatenate([np.array(a, np.float32) for a in weights]).view(np.int32)
        return np.concatenate([[len(counts)], heads, bits]).astype(np.int32)
    if not distribution.groups:
        return np.empty(0, np.int32)
    sizes = [len(group) for group in distribution.groups]
    ranges = np.stack([np.cumsum(sizes) - sizes, sizes], axis=1)
    ranges = np.repeat(ranges, distribution.n_projections, axis=0)
    return np.concatenate([*distribution.groups, ranges.ravel()]).astype(np.int32)


# ------------------------------------------------------------------------------ distributions


def axis_distribution(n_features: int) -> Distribution:
    """Returns the uniform distribution of single features.

    Parameters
    ----------
    n_features : int
        Number of features.

    Returns
    -------
    Distribution

    Examples
    --------
    >>> import hforest
    >>> hforest.project.axis_distribution(5).n_features
    5
    """
    return Distribution(AXIS, check.integer("n_features", n_features, 1, check.MAX_COUNT))


def sparse_distribution(n_features: int, density: float = 1.5) -> Distribution:
    """Returns the distribution of sparse vectors of +1 and -1 (SPORF; Perry et al. 2019, section 2.3).

    Parameters
    ----------
    n_features : int
        Number of features.
    density : float
        Mean of the Poisson distribution of the number of non-zeros (lambda in Perry et al. 2019), above 0 to
        500. A projection has 1 to min(n_features, 4096) non-zeros: where the number drawn is 0, it has one,
        so that their mean is density + exp(-density), 1.72 by default.

    Returns
    -------
    Distribution
        Features of a projection are distinct and uniform; its signs are independent, with probability 1/2.

    Examples
    --------
    >>> import hforest
    >>> hforest.project.sparse_distribution(100).density
    1.5
    """
    n_features = check.integer("n_features", n_features, 1, check.MAX_COUNT)
    density = check.number("density", density, 0.0, MAX_DENSITY, open_low=True)
    return Distribution(
        SPARSE, n_features, density, float(series.exp(-density)), max_entries=min(n_features, MAX_NON_ZEROS)
    )


def probe_distribution(n_features: int, single_share: float = 0.0) -> Distribution:
    """Returns the distribution of differences of two uniform features (Norouzi et al. 2015, section 6.2).

    Parameters
    ----------
    n_features : int
        Number of features, at least 2.
    single_share : float
        Probability of a single feature in place of a difference, 0 (Norouzi et al. 2015) to 1. Differences of
        features that vary together do not separate the classes.

    Returns
    -------
    Distribution

    Examples
    --------
    >>> import hforest
    >>> hforest.project.probe_distribution(5).max_entries
    2
    """
    n_features = check.integer("n_features", n_features, 2, check.MAX_COUNT)
    single_share = check.number("single_share", single_share, 0.0, 1.0)
    return Distribution(PROBE, n_features, zero_probability=single_share, max_entries=2)


_ONE_SHAPE = "pass the shape of one sample"


def _sizes(name: str, value: Any, n_axes: int, each: str = "axis") -> tuple[int, ...]:
    sizes = tuple(value) if isinstance(value, tuple | list) else (value,) * n_axes
    fits = len(sizes) == n_axes
    check.require(fits, name, f"an int or {n_axes} ints", repr(value), f"pass one int per {each}")
    return tuple(check.integer(f"{name}[{i}]", size, 1, check.MAX_COUNT) for i, size in enumerate(sizes))


def check_shape(value: Any) -> None:
    """Checks that a sample's shape is a tuple or a list."""
    check.instance("shape", value, tuple | list, "a tuple of ints", _ONE_SHAPE)


def patch_distribution(
    shape: Sequence[int],
    *,
    patch_min: int | Sequence[int] = 1,
    patch_max: int | Sequence[int] = 1,
    channels: bool = False,
    cyclic: bool = False,
) -> Distribution:
    """Returns the distribution of sums over contiguous patches (MORF; Perry et al. 2019, section 3).

    Patches are intervals, rectangles or boxes.

    Parameters
    ----------
    shape : tuple of 1 to 3 ints, then the number of channels with `channels`
        Shape of one sample (a signal, an image, a volume), with features in C order.
    patch_min, patch_max : int or tuple of ints
        Smallest and largest size of a patch along each axis; sizes are independent and uniform.
    channels : bool
        Whether the last axis of `shape` is that of channels; a patch lies within one channel.
    cyclic : bool
        Whether patches wrap around the borders. If not, corners are uniform over all positions where the
        patch fits.

    Returns
    -------
    Distribution
        All weights are 1.

    Examples
    --------
    >>> import hforest
    >>> patches = hforest.project.patch_distribution((4, 5), patch_max=(2, 3))
    >>> patches.n_features, patches.max_entries
    (20, 6)
    """
    base = _of_images(PATCH, shape, channels, cyclic)
    n_axes = len(shape) - bool(channels)
    sizes = base.shape[AXES - n_axes :]
    low, high = _sizes("patch_min", patch_min, n_axes), _sizes("patch_max", patch_max, n_axes)
    for i, (least, greatest, size) in enumerate(zip(low, high, sizes, strict=False)):
        check.require(
            least <= greatest <= size, f"patch_max[{i}]", f"patch_min[{i}] = {least} to shape[{i}] = {size}",
            greatest, "choose patches that fit in a sample",
        )  # fmt: skip
    return base._replace(patch_min=_padded(low), patch_max=_padded(high), max_entries=math.prod(high))


def _padded(axes: tuple[int, ...]) -> tuple[int, int, int]:
    first, second, third = (1,) * (AXES - len(axes)) + axes
    return first, second, third


def _of_images(kind: int, shape: Any, channels: Any, cyclic: Any) -> Distribution:
    # A distribution of projections at places of a signal, an image or a volume.
    check.flag("channels", channels)
    check.flag("cyclic", cyclic)
    check_shape(shape)
    n_axes = len(shape) - bool(channels)
    check.require(
        1 <= n_axes <= AXES, "shape", f"1 to {AXES} sizes, optionally followed by the number of channels",
        repr(shape), _ONE_SHAPE,
    )  # fmt: skip
    sizes = _sizes("shape", shape, len(shape))
    n_features = math.prod(sizes)
    check.require(
        n_features <= check.MAX_COUNT, "shape", "sizes whose product is less than 2**31", sizes, _ONE_SHAPE
    )
    return Distribution(
        kind, n_features, shape=_padded(sizes[:n_axes]), channels=sizes[-1] if channels else 1,
        cyclic=bool(cyclic),
    )  # fmt: skip


def kernel_distribution(
    shape: Sequence[int], kernels: Sequence[ArrayLike], *, channels: bool = False, cyclic: bool = False
) -> Distribution:
    """Returns the distribution of kernels at random places of a sample (Perry et al. 2019, section 6).

    A projection is the inner product of a kernel, such as an edge filter, and the part of a sample that it
    covers: one value of a cross-correlation. Other parameters: see `hforest.project.patch_distribution`.

    Parameters
    ----------
    kernels : list of arrays of real numbers, or an array (n_kernels, ...)
        Each with as many axes as a sample has without channels, no larger than the sample, finite, with a
        number other than 0; rounded to float32. Kernels are drawn with equal probability: a list with one
        twice draws it twice as often.
    channels : bool
        Whether the last axis of `shape` is that of channels; a kernel lies within one channel.
    cyclic : bool
        Whether kernels wrap around the borders. If not, corners are uniform over all positions where the
        kernel fits.

    Returns
    -------
    Distribution
        Entries are the weights of a kernel other than 0, in C order.

    Raises
    ------
    ValueError
        No kernel; one of another number of axes, larger than a sample, or of zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest import project
    >>> edge = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    >>> edges = project.kernel_distribution((8, 8), [edge, edge.T])
    >>> _, indices, data = project.sample(edges, 1, rng=0)
    >>> (indices - indices[0]).tolist(), data.tolist()
    ([0, 1, 2, 16, 17, 18], [-1.0, -2.0, -1.0, 1.0, 2.0, 1.0])
    """
    base = _of_images(KERNEL, shape, channels, cyclic)
    n_axes, remedy = len(shape) - bool(channels), "pass a list such as [[[1, -1]], [[1], [-1]]]"
    kernels = list(kernels) if isinstance(kernels, np.ndarray) and kernels.ndim else kernels
    check.instance("kernels", kernels, tuple | list, "a list of arrays", remedy)
    check.require(len(kernels), "kernels", "at least one kernel", "none", remedy)
    found = [_kernel(f"kernels[{i}]", a, base.shape[AXES - n_axes :]) for i, a in enumerate(kernels)]
    most = max(len(weights) for _, weights in found)
    return base._replace(kernels=tuple(found), max_entries=most)


def _kernel(name: str, kernel: Any, shape: tuple[int, ...]) -> tuple[tuple[int, int, int], tuple[float, ...]]:
    a = to_numpy(as_given(name, kernel))
    check.require(
        a.dtype.kind in "biuf", name, "real numbers", a.dtype, "convert it with numpy.asarray", TypeError
    )
    check.require(
        a.ndim == len(shape) and all(0 < n <= most for n, most in zip(a.shape, shape, strict=False)), name,
        f"{len(shape)} axes, of at most {', '.join(map(str, shape))} numbers", f"shape {a.shape}",
        "choose kernels that fit in a sample",
    )  # fmt: skip
    with np.errstate(over="ignore"):
        a = a.astype(np.float32)
    check.finite(name, a, remedy="pass numbers that float32 holds")
    check.require(a.any(), name, "a number other than 0", "zeros", "leave it out")
    return _padded(a.shape), tuple(a.ravel().tolist())


def _columns_of_groups(groups: Any, n_features: int) -> tuple[tuple[int, ...], ...]:
    remedy = "pass a list such as [[0, 1, 2], [3, 4]]"
    check.instance("groups", groups, tuple | list, "a list of groups of column indices", remedy)
    check.require(len(groups), "groups", "at least one group", "none", remedy)
    arrays = []
    for number, group in enumerate(groups):
        array = np.asarray(to_numpy(as_given(f"groups[{number}]", group)))
        check.require(
            array.ndim == 1 and (array.dtype.kind in "iu" or not array.size), f"groups[{number}]",
            "a list of column indices", f"{array.dtype} of shape {array.shape}", remedy, TypeError,
        )  # fmt: skip
        check.require(
            array.size, f"groups[{number}]", "at least one column index", "none", "remove the empty group"
        )
        arrays.append(array)
    columns, group_of = np.concatenate(arrays), np.repeat(np.arange(len(arrays)), [len(a) for a in arrays])
    outside = np.flatnonzero((columns < 0) | (columns >= n_features))
    if outside.size:
        raise IndexError(
            f"groups[{group_of[outside[0]]}]: expected columns 0 to {n_features - 1}, got "
            f"{columns[outside[0]]}; column indices start at 0"
        )
    uses = np.bincount(columns.astype(np.int64), minlength=n_features)
    if (uses > 1).any():
        twice = int(uses.argmax())
        first, second = group_of[columns == twice][:2]
        raise ValueError(
            f"groups[{second}]: expected columns that no earlier group has, got column {twice} of "
            f"groups[{first}]; put each column into exactly one group"
        )
    left = np.flatnonzero(uses == 0)
    if left.size:
        raise ValueError(
            f"groups: expected all of n_features = {n_features} columns, got no group with column "
            f"{left[0]}, the first of {left.size} missing columns; put them into a group, or remove them "
            "from x"
        )
    return tuple(tuple(array.tolist()) for array in arrays)


def grouped_distribution(
    distribution: Distribution,
    groups: Sequence[ArrayLike],
    n_projections: int | Sequence[int] | None = None,
) -> Distribution:
    """Returns a distribution whose projections keep to groups of columns, such as views of one sample.

    Parameters
    ----------
    distribution : Distribution
        Distribution of single features, sparse vectors or differences, but not of patches or kernels. Its
        groups are replaced.
    groups : list of array-likes of ints
        Columns of each group; every column is in exactly one group.
    n_projections : int or list of ints, optional
        Number of projections of each group that a node samples, at least 1, together at most 2**20; an int
        holds for every group. By default the root of the number of its columns, rounded up.

    Returns
    -------
    Distribution
        A node samples n_projections of each group, in the order of the groups. The columns of a projection
        belong to its group, and are distributed as `distribution` draws them from all features. A difference
        in a group of one column is that column.

    Raises
    ------
    ValueError
        A distribution of patches or kernels; groups that are empty, overlap or leave columns out.

    Notes
    -----
    Without groups a view with few columns is sampled rarely. Groups have consecutive ranges of a node's
    candidates. They restrict single projections: the nodes of a path may compare projections of all groups.
    One group of all columns, in their order, gives draws that are bit-identical to those without groups.
    Cost: a draw costs as much as without groups; each call that takes the distribution checks it, in about
    0.1 ms for 1000 columns.

    Examples
    --------
    >>> from hforest import project
    >>> single = project.axis_distribution(10_005)
    >>> views = project.grouped_distribution(single, [range(5), range(5, 10_005)], [1, 1])
    >>> indices = project.sample(views, 1000, rng=0).indices
    >>> int((indices < 5).sum())
    500
    """
    base = check_distribution(distribution)._replace(groups=(), n_projections=())
    check.require(
        base.kind not in PLACED, "distribution", "axis-aligned, sparse or difference projections",
        "patches" if base.kind == PATCH else "kernels",
        "pass channels=True to the function that made it: each projection then lies in one channel",
    )  # fmt: skip
    return _grouped(base, groups, n_projections)


def _grouped(distribution: Distribution, groups: Any, n_projections: Any) -> Distribution:
    columns = _columns_of_groups(groups, distribution.n_features)
    if n_projections is None:
        n_projections = [_root(len(group)) for group in columns]
    sizes = _sizes("n_projections", n_projections, len(columns), "group")
    check.require(
        sum(sizes) <= MAX_PROJECTIONS, "n_projections", f"a sum of at most {MAX_PROJECTIONS}", sum(sizes),
        "choose fewer",
    )  # fmt: skip
    return distribution._replace(groups=columns, n_projections=sizes)


def _root(n: int) -> int:
    return math.isqrt(n - 1) + 1


def check_projections(distribution: Distribution, n_projections: Any, task: Task) -> int:
    """Returns the number of projections that a node samples.

    By default it is the sum over groups, or without groups the root of the number of features; in a
    regression the number of features, up to a limit (docs/manifold.md).
    """
    if distribution.groups:
        total = sum(distribution.n_projections)
        if n_projections is None or check.integer("n_projections", n_projections, 1) == total:
            return total
        raise ValueError(
            f"n_projections: expected None, or the sum of those of the groups, {total}, got {n_projections}; "
            "choose those of each group in hforest.project.grouped_distribution"
        )
    if n_projections is not None:
        return check.integer("n_projections", n_projections, 1, MAX_PROJECTIONS)
    n_features = distribution.n_features
    if distribution.kind in PLACED or task == "classification":
        return _root(n_features)
    return max(_root(n_features), min(n_features, _MOST_BY_DEFAULT))


def check_n_features(distribution: Distribution, n_features: int) -> None:
    """Checks that a distribution has the number of features of the samples."""
    n = distribution.n_features
    remedy = "make a distribution for the columns of x"
    check.require(n == n_features, "projections", f"n_features = {n_features}", n, remedy)


def check_distribution(value: Distribution, name: str = "distribution") -> Distribution:
    """Returns a new distribution with the same parameters, which checks fields changed by hand."""
    check.instance(
        name, value, Distribution, "hforest.project.Distribution",
        "call a function such as hforest.project.sparse_distribution",
    )  # fmt: skip
    with check.fields_of(name):
        return _remade(value)


def _remade(value: Distribution) -> Distribution:
    anew = _remade_base(value)
    fields = (value.groups, value.n_projections)
    if all(isinstance(field, tuple) and not field for field in fields):
        return anew
    check.require(
        anew.kind not in PLACED, "groups", "() for patches and kernels", "groups",
        "call the function of hforest.project that made the distribution",
    )  # fmt: skip
    check.instance(
        "n_projections", value.n_projections, tuple, "a tuple of ints", "call grouped_distribution"
    )
    return _grouped(anew, value.groups, value.n_projections)


def _remade_base(value: Distribution) -> Distribution:
    kind = check.integer("kind", value.kind, AXIS, KERNEL)
    if kind == AXIS:
        return axis_distribution(value.n_features)
    if kind == PROBE:
        share = check.number("zero_probability", value.zero_probability, 0.0, 1.0)
        return probe_distribution(value.n_features, share)
    if kind == SPARSE:
        return sparse_distribution(value.n_features, value.density)
    shape = (*_sizes("shape", value.shape, AXES), value.channels)
    if kind == KERNEL:
        anew = kernel_distribution(shape, _given_kernels(value.kernels), channels=True, cyclic=value.cyclic)
    else:
        anew = patch_distribution(
            shape, patch_min=value.patch_min, patch_max=value.patch_max, channels=True, cyclic=value.cyclic
        )
    check.require(
        check.integer("n_features", value.n_features, 1) == anew.n_features, "n_features",
        f"the product of its shape, {anew.n_features}", value.n_features,
        "call the function of hforest.project that made the distribution",
    )  # fmt: skip
    return anew


def _given_kernels(kernels: Any) -> list[np.ndarray]:
    try:
        return [np.asarray(weights, np.float32).reshape(size) for size, weights in kernels]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"kernels: expected tuples of 3 sizes and the weights, got {kernels!r}; call "
            "hforest.project.kernel_distribution"
        ) from None
