"""Random sparse projections, drawn from keys: the law; kernels have atoms.h.

p3 section 2.3 and 3: sparse vectors of +1 and -1, and sums over contiguous patches; p2 section 6.2: the
difference of two features.
"""

import math
from typing import Any, NamedTuple

from . import check
from .philox import below, keys, philox, unit

AXIS, SPARSE, PATCH, PROBES = 0, 1, 2, 3
ATOM, ENTRY = 5, 6
AXES = 3


class Atoms(NamedTuple):
    """What kind of projections to draw."""

    kind: int
    """AXIS, SPARSE, PATCH or PROBES."""
    n_features: int
    rate: float = 1.0
    """SPARSE: mean of the Poisson distribution of the number of non-zeros (which is at least 1)."""
    none: float = 0.0
    """exp(-rate)"""
    shape: tuple[int, int, int] = (1, 1, 1)
    """PATCH: of a sample, axes in front of it filled with 1."""
    channels: int = 1
    """The last axis of a sample; a patch lies in one of them."""
    low: tuple[int, int, int] = (1, 1, 1)
    """Least size of a patch along each axis."""
    high: tuple[int, int, int] = (1, 1, 1)
    """Greatest."""
    cyclic: bool = False
    """Whether patches wrap around the border."""
    most: int = 1
    """Entries of the largest projection."""


def _patch(atoms: Atoms, key: int) -> tuple[list[int], list[float]]:
    # Sizes first, then the corner where the patch fits: independent and uniform.
    sizes, corners = philox(key, 0, ENTRY), philox(key, 1, ENTRY)
    size = [low + below(sizes[i], atoms.high[i] - low + 1) for i, low in enumerate(atoms.low)]
    room = [n if atoms.cyclic else n - s + 1 for n, s in zip(atoms.shape, size, strict=True)]
    corner = [below(corners[i], n) for i, n in enumerate(room)]
    channel = below(sizes[3], atoms.channels)
    index = []
    for i in range(size[0]):
        for j in range(size[1]):
            for k in range(size[2]):
                at = [(c + step) % n for c, step, n in zip(corner, (i, j, k), atoms.shape, strict=True)]
                flat = (at[0] * atoms.shape[1] + at[1]) * atoms.shape[2] + at[2]
                index.append(flat * atoms.channels + channel)
    return index, [1.0] * len(index)


def _sparse(atoms: Atoms, key: int) -> tuple[list[int], list[float]]:
    u, count, p, total = unit(philox(key, 0, ENTRY)), 0, atoms.none, atoms.none
    while u >= total and count < atoms.most:  # Poisson, by inversion
        count += 1
        p *= atoms.rate / count
        total += p
    count = max(count, 1)
    index: list[int] = []
    weight = []
    for i in range(count):  # Floyd's sampling without replacement
        words = philox(key, 1 + i, ENTRY)
        last = atoms.n_features - count + i
        at = below(words[0], last + 1)
        index.append(last if at in index else at)
        weight.append(1.0 if words[1] & 1 else -1.0)
    return index, weight


def draw_atom(atoms: Atoms, key: int) -> tuple[list[int], list[float]]:
    """Features and weights of the projection of a key."""
    if atoms.kind == PATCH:
        return _patch(atoms, key)
    if atoms.kind == SPARSE:
        return _sparse(atoms, key)
    words = philox(key, 0, ENTRY)
    first = below(words[0], atoms.n_features)
    if atoms.kind == AXIS:
        return [first], [1.0]
    second = below(words[1], atoms.n_features - 1)
    return [first, second + (second >= first)], [1.0, -1.0]


def atom_key(key: int, number: int) -> int:
    """Key of candidate `number` of what has a key: a node, or a seed."""
    return keys(philox(key, number, ATOM))[0]


# ------------------------------------------------------------------------------ kinds, from arguments


def axis_atoms(n_features: int) -> Atoms:
    """Projections onto single features.

    Parameters
    ----------
    n_features : int
        Features of a sample.

    Returns
    -------
    Atoms
        For `hforest.growth.grow_projected`.

    Raises
    ------
    TypeError, ValueError
        Not such numbers.

    Examples
    --------
    >>> import hforest
    >>> hforest.growth.axis_atoms(5).n_features
    5
    """
    return Atoms(AXIS, check.integer("n_features", n_features, 1, 2**31 - 1))


def sparse_atoms(n_features: int, density: float) -> Atoms:
    """Sparse vectors of +1 and -1 (p3 section 2.3).

    Parameters
    ----------
    n_features : int
        Features of a sample.
    density : float
        Mean of the Poisson distribution of the number of non-zeros, above 0 to 500.

    Returns
    -------
    Atoms
        For `hforest.growth.grow_projected`.

    Raises
    ------
    TypeError, ValueError
        Not such numbers.

    Examples
    --------
    >>> import hforest
    >>> hforest.growth.sparse_atoms(100, 1.5).rate
    1.5
    """
    n_features = check.integer("n_features", n_features, 1, 2**31 - 1)
    density = check.number("density", density, 0.0, 500.0, open_low=True)
    return Atoms(SPARSE, n_features, rate=density, none=math.exp(-density), most=min(n_features, 4096))


def probe_atoms(n_features: int) -> Atoms:
    """Differences of two features (p2 section 6.2).

    Parameters
    ----------
    n_features : int
        Features of a sample, at least 2.

    Returns
    -------
    Atoms
        For `hforest.growth.grow_projected`.

    Raises
    ------
    TypeError, ValueError
        Not such numbers.

    Examples
    --------
    >>> import hforest
    >>> hforest.growth.probe_atoms(5).most
    2
    """
    return Atoms(PROBES, check.integer("n_features", n_features, 2, 2**31 - 1), most=2)


def _sizes(name: str, value: Any, n_axes: int) -> tuple[int, ...]:
    sizes = tuple(value) if isinstance(value, tuple | list) else (value,) * n_axes
    if len(sizes) != n_axes:
        raise ValueError(
            f"{name}: expected an int or {n_axes} of them, got {value!r}; give one for each axis"
        )
    return tuple(check.integer(f"{name}[{i}]", size, 1, 2**31 - 1) for i, size in enumerate(sizes))


def patch_atoms(
    n_features: int, shape: Any, patch_min: Any, patch_max: Any, channels: bool, cyclic: bool
) -> Atoms:
    """Sums over intervals, rectangles or boxes (p3 section 3).

    Parameters
    ----------
    n_features : int
        Features of a sample: the product of shape.
    shape : tuple of 1 to 3 ints, and the number of channels behind them with `channels`
        Of one sample.
    patch_min, patch_max : int or tuple of ints
        Least and greatest size along each axis.
    channels : bool
        Whether the last axis counts channels.
    cyclic : bool
        Whether patches wrap around the borders.

    Returns
    -------
    Atoms
        For `hforest.growth.grow_projected`.

    Raises
    ------
    TypeError, ValueError
        Not such numbers; a shape that does not multiply to n_features; a patch larger than the sample.

    Examples
    --------
    >>> import hforest
    >>> hforest.growth.patch_atoms(20, (4, 5), 1, (2, 3), False, False).most
    6
    """
    n_axes = len(shape) - bool(channels) if isinstance(shape, tuple | list) else 0
    if not 1 <= n_axes <= AXES:
        raise ValueError(
            f"shape: expected 1 to {AXES} sizes, and then the channels if there are any, got {shape!r}; "
            "pass the shape of one sample"
        )
    sizes = _sizes("shape", shape, len(shape))
    if math.prod(sizes) != n_features:
        raise ValueError(
            f"shape: expected sizes that multiply to n_features = {n_features}, got {sizes}; "
            "pass the shape of one sample"
        )
    low, high = _sizes("patch_min", patch_min, n_axes), _sizes("patch_max", patch_max, n_axes)
    for i, (least, most, room) in enumerate(zip(low, high, sizes, strict=False)):
        if not least <= most <= room:
            raise ValueError(
                f"patch_max[{i}]: expected patch_min[{i}] = {least} to shape[{i}] = {room}, got {most}; "
                "choose patches that fit the sample"
            )
    front = (1,) * (AXES - n_axes)

    def padded(axes: tuple[int, ...]) -> Any:
        return front + axes[:n_axes]

    return Atoms(
        PATCH, n_features, shape=padded(sizes), channels=sizes[-1] if channels else 1, low=padded(low),
        high=padded(high), cyclic=bool(cyclic), most=math.prod(high),
    )  # fmt: skip
