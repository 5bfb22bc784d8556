"""The engine under grown forests: columns as codes, bags, and trees grown on codes, in parallel over trees.

A column of numbers is encoded once for all trees: as ranks of its distinct values, which loses nothing, or as
at most 256 bins. A node then orders small whole numbers. Whoever has other candidates than features (their
projections, say) encodes those. NumPy arrays make trees on the CPU, CuPy arrays the same trees on the GPU.

Wrong kinds and dtypes raise TypeError, wrong shapes and values ValueError, labels and codes out of range
IndexError; the checks that read whole arrays can be skipped inside `hforest.unchecked()`.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ..core import check, dispatch, machine
from ..core.atoms import PATCH, Atoms, axis_atoms, patch_atoms, probe_atoms, sparse_atoms
from ..core.dispatch import Array

__all__ = [
    "Atoms",
    "Codes",
    "Projected",
    "Trees",
    "Windows",
    "axis_atoms",
    "draw_bags",
    "encode",
    "grow",
    "grow_projected",
    "patch_atoms",
    "probe_atoms",
    "sparse_atoms",
]

_ROOM = __name__
_CRITERIA = ("gini", "entropy", "squared_error")
_MOST = 2**31 - 1
_MOST_OUTPUTS = 2**20
_LARGE_PATCH = 7  # entries from which four look-ups are cheaper
_LARGEST = 1e100  # of weights and targets: their products and sums must not overflow
_FLOAT64 = np.dtype(np.float64)
_INT64 = np.dtype(np.int64)
_BLOCK = 1 << 20  # values of windows that are looked up at a time
_ENCODED = 64  # columns that are encoded at a time
_COLUMNS = 8  # columns of windows that are cut into bins at a time
_CODES = tuple(np.dtype(t) for t in (np.uint8, np.uint16, np.uint32))

Progress = Callable[[int, int], Any]


class Windows(NamedTuple):
    """Samples that are parts of the rows of an array, read where they lie.

    Number f of sample i is ``x.ravel()[base[i] + offset[f]]``.
    """

    x: Array
    """(n_rows, n_features) of float32 or float64."""
    base: Array
    """(n,) int64: where a sample begins."""
    offset: Array
    """(n_columns,) int64: how far behind lies each of its numbers."""

    @property
    def shape(self) -> tuple[int, int]:
        """Samples and columns."""
        return len(self.base), len(self.offset)


class Codes(NamedTuple):
    """Columns as whole numbers in the order of the values that they stand for."""

    codes: Array
    """(n_columns, n) of uint8, uint16 or uint32; of windows (1, size of x)."""
    low: Array
    """(n_columns, n_codes) float64: least value of each code; what lies behind a column's last is unused. Of
    windows (1, n_codes)."""
    high: Array
    """As low: the greatest."""
    dtype: np.dtype
    """float32 or float64: of the values, and of thresholds between them."""
    base: Array | None = None
    """Of windows, as in `Windows`."""
    offset: Array | None = None
    """Likewise."""


class Trees(NamedTuple):
    """Grown trees as the arrays of a `hforest.tree.Forest` of features."""

    tree_start: Array
    feature: Array
    threshold: Array
    left: Array
    value: Array
    gain: Array


def on_cpu(**arrays: Array) -> None:
    """Every argument is a NumPy array; for what grows on the CPU alone."""
    for name, a in arrays.items():
        if dispatch.is_cupy(a):
            raise TypeError(
                f"{name}: expected a numpy.ndarray, got a CuPy array; this runs on the CPU: pass "
                f"cupy.asnumpy({name}), and move the forest to the GPU to apply it"
            )
    check.same_device(**arrays)


def _check_places(base: Array, offset: Array, size: int) -> None:
    """Windows that lie inside `size` numbers."""
    sizes: check.Sizes = {}
    check.array("base", base, _INT64, ("n",), sizes)
    check.array("offset", offset, _INT64, ("n_columns",), sizes)
    check.at_least_one(sizes, "n", "n_columns")
    if max(sizes["n"], sizes["n_columns"], size) > _MOST:
        raise ValueError(
            f"base: expected less than 2**31 windows in less than 2**31 numbers, got {sizes['n']} in {size}; "
            "take a part of them"
        )
    if check.values_checked():
        least, first = int(base.min()), int(base.min()) + int(offset.min())
        last = int(base.max()) + int(offset.max())
        if least < 0 or first < 0 or last >= size:
            raise IndexError(
                f"base: expected windows inside the {size} numbers of x, got some from "
                f"{min(least, first)} to {last}; begin them where scan has them"
            )


def check_windows(windows: Windows) -> np.dtype:
    """Windows that lie inside their array; the dtype of their numbers."""
    check.same_device(x=windows.x, base=windows.base, offset=windows.offset)
    dtype = check.floating("x", windows.x)
    check.array("x", windows.x, dtype, ("n_rows", "n_features"), {})
    _check_places(windows.base, windows.offset, windows.x.size)
    return dtype


def _encode_bins(windows: Windows, max_codes: int) -> Codes:
    """As of a copy, but of a few columns at a time."""
    xp, flat = dispatch.array_module(windows.x), windows.x.reshape(-1)
    parts = [
        encode(flat[windows.base[:, None] + windows.offset[f : f + _COLUMNS]], max_codes=max_codes)
        for f in range(0, len(windows.offset), _COLUMNS)
    ]
    most = max(part.low.shape[1] for part in parts)
    low, high = (
        xp.concatenate([xp.pad(table, ((0, 0), (0, most - table.shape[1])), "edge") for table in tables])
        for tables in ([part.low for part in parts], [part.high for part in parts])
    )
    return Codes(xp.concatenate([part.codes for part in parts]), low, high, parts[0].dtype)


def _encode_windows(windows: Windows, max_codes: int | None) -> Codes:
    dtype = check_windows(windows)
    check.finite("x", windows.x)
    xp, flat = dispatch.array_module(windows.x), windows.x.reshape(-1)
    distinct = xp.unique(flat)
    if max_codes is not None and len(distinct) > check.integer("max_codes", max_codes, 1, 256):
        return _encode_bins(windows, max_codes)
    codes = xp.empty((1, flat.size), _fitting(len(distinct)))
    for first in range(0, flat.size, _BLOCK):
        part = slice(first, first + _BLOCK)
        codes[0, part] = xp.searchsorted(distinct, flat[part])
    table = distinct.astype(np.float64)[None] + 0.0
    return Codes(codes, table, table, dtype, windows.base, windows.offset)


def _fitting(n_codes: int) -> np.dtype:
    return next(t for t in _CODES if n_codes <= 256**t.itemsize)


def encode(x: Array | Windows, *, max_codes: int | None = None) -> Codes:
    """Columns of x as ranks of their distinct values, or as bins.

    Parameters
    ----------
    x : (n, n_columns) array of float32 or float64, or Windows
        Samples; finite.
    max_codes : int, optional
        1 to 256: columns of more distinct values are cut into at most so many bins of about as many samples
        each. By default every value keeps a code of its own.

    Returns
    -------
    Codes
        Of the smallest type that holds them.

    Raises
    ------
    TypeError, ValueError
        Wrong dtype; wrong shape or layout, no sample, NaN or infinity.

    Notes
    -----
    Samples of one value share a code: it is in the bin where the middle of its samples lies. -0 is 0. Cost: a
    radix sort of each column, 16 bytes a code for the values. Windows have codes where they lie: each number
    of x is encoded once, however many windows hold it; trees on them are those of a copy, bit for bit. If x
    has more than max_codes values, columns have bins of their own, and codes are copied after all.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> codes = hforest.growth.encode(np.array([[2.5], [-1.0], [2.5]]))
    >>> codes.codes, codes.low
    (array([[1, 0, 1]], dtype=uint8), array([[-1. ,  2.5]]))
    """
    if isinstance(x, Windows):
        return _encode_windows(x, max_codes)
    check.same_device(x=x)
    dtype = check.floating("x", x)
    sizes: check.Sizes = {}
    check.array("x", x, dtype, ("n", "n_columns"), sizes)
    check.at_least_one(sizes, "n_columns")
    if not 1 <= sizes["n"] <= _MOST:
        raise ValueError(f"x: expected 1 to 2**31 - 1 samples, got {sizes['n']}; pass samples to learn from")
    check.finite("x", x)
    room = sizes["n"]
    if max_codes is not None:
        room = min(room, check.integer("max_codes", max_codes, 1, 256))
    n, n_columns = sizes["n"], sizes["n_columns"]
    xp, twin = dispatch.array_module(x), dispatch.twin(_ROOM, x)
    # Some columns at a time on a CPU: how many codes they have is known when they are sorted, and room for as
    # many as samples in all columns would be many times x.
    block = min(n_columns, _ENCODED) if xp is np else n_columns
    wide, low, high = xp.empty((block, n), np.uint32), xp.empty((block, room)), xp.empty((block, room))
    n_codes = np.empty(n_columns, np.int64)
    parts: list[tuple[slice, Array, Array, Array]] = []
    for first in range(0, n_columns, block):
        part = slice(first, min(first + block, n_columns))
        count = part.stop - first
        some = x if count == n_columns else xp.ascontiguousarray(x[:, part])
        twin.encode(some, wide[:count], low[:count], high[:count], n_codes[part])
        most = int(n_codes[part].max())
        tables = (table[:count, :most].copy() for table in (low, high))
        parts.append((part, wide[:count].astype(_fitting(most)), *tables))
    del wide, low, high
    most = int(n_codes.max())
    codes = xp.empty((n_columns, n), _fitting(most))
    low, high = xp.empty((n_columns, most)), xp.empty((n_columns, most))
    for part, some, least, greatest in parts:
        codes[part], low[part, : least.shape[1]], high[part, : least.shape[1]] = some, least, greatest
    for f, used in enumerate(n_codes.tolist()):
        low[f, used:], high[f, used:] = low[f, used - 1], high[f, used - 1]
    return Codes(codes, low, high, dtype)


def draw_bags(n: int, n_trees: int, rng: Any = None) -> np.ndarray:
    """How often each tree draws each sample: n times with replacement.

    Parameters
    ----------
    n : int
        Samples.
    n_trees : int
        Trees.
    rng : None, int or numpy.random.Generator
        Where the seed comes from.

    Returns
    -------
    (n_trees, n) array of int32
        Multiplicities; each row sums to n.

    Raises
    ------
    TypeError, ValueError
        Not such numbers.

    Notes
    -----
    The bags that `grow` draws itself from the same rng. Cost: a Philox round for four draws.

    Examples
    --------
    >>> import hforest
    >>> hforest.growth.draw_bags(5, 2, rng=0).sum(axis=1)
    array([5, 5])
    """
    n = check.integer("n", n, 0, _MOST)
    n_trees = check.integer("n_trees", n_trees, 0, _MOST)
    counts = np.empty((n_trees, n), np.int32)
    dispatch.twin(_ROOM, counts).draw_bags(_seed(rng), 0, counts)
    return counts


def _seed(rng: Any) -> int:
    return int(check.generator(rng).integers(2**64, dtype=np.uint64))


def _check_numbers(name: str, a: Array, low: float) -> None:
    check.finite(name, a)
    if check.values_checked() and a.size and not (float(a.min()) >= low and float(abs(a).max()) <= _LARGEST):
        limits = "-1e100 to 1e100" if low else "0 to 1e100"
        raise ValueError(
            f"{name}: expected numbers from {limits}, got {float(a.min()):g} to {float(a.max()):g}; "
            "scale them, or drop such samples"
        )


def _check_codes(codes: Codes) -> tuple[int, int]:
    """Columns and samples."""
    if not isinstance(codes, Codes):
        raise TypeError(f"codes: expected hforest.growth.Codes, got {type(codes).__name__}; call encode(x)")
    places = (
        {} if codes.base is None or codes.offset is None else {"base": codes.base, "offset": codes.offset}
    )
    check.same_device(codes=codes.codes, low=codes.low, high=codes.high, **places)
    if codes.codes.dtype not in _CODES:
        raise TypeError(
            f"codes: expected dtype uint8, uint16 or uint32, got {codes.codes.dtype}; call encode(x)"
        )
    if codes.dtype not in check.FLOATS:
        raise TypeError(f"codes.dtype: expected float32 or float64, got {codes.dtype}; call encode(x)")
    sizes: check.Sizes = {}
    check.array("codes", codes.codes, codes.codes.dtype, ("n_columns", "n"), sizes)
    for name, a in (("low", codes.low), ("high", codes.high)):
        check.array(name, a, _FLOAT64, ("n_columns", "n_codes"), sizes)
    check.at_least_one(sizes, "n_columns", "n_codes", "n")
    if max(sizes["n"], sizes["n_columns"]) > _MOST:
        raise ValueError("codes: expected less than 2**31 samples and columns, got more; take a part of them")
    if check.values_checked() and int(codes.codes.max()) >= sizes["n_codes"]:
        raise IndexError(
            f"codes: expected codes below n_codes = {sizes['n_codes']}, got {int(codes.codes.max())}; "
            "call encode(x)"
        )
    if codes.base is None and codes.offset is None:
        return sizes["n_columns"], sizes["n"]
    if codes.base is None or codes.offset is None:
        raise TypeError(
            "codes.base: expected it with codes.offset or neither, got one without the other; call encode(x)"
        )
    if sizes["n_columns"] != 1:
        raise ValueError(
            f"codes: expected one row of codes for all windows, got {sizes['n_columns']}; call encode(x)"
        )
    _check_places(codes.base, codes.offset, sizes["n"])
    return len(codes.offset), len(codes.base)


class _Samples(NamedTuple):
    """What trees learn, checked."""

    labels: Array | None
    targets: Array | None
    n_outputs: int
    weights: Array
    criterion: int


def _check_samples(y: Array, weights: Array, n: int, n_classes: int | None, criterion: str) -> _Samples:
    sizes: check.Sizes = {"n": n}
    check.choice("criterion", criterion, _CRITERIA[:2] if n_classes is not None else _CRITERIA[2:])
    labels = targets = None
    if n_classes is not None:
        n_outputs = check.integer("n_classes", n_classes, 1, _MOST_OUTPUTS)
        check.array("y", y, check.INT32, ("n",), sizes)
        check.indices("y", y, n_outputs, "n_classes")
        labels = y
    else:
        check.array("y", y, _FLOAT64, ("n", "n_outputs"), sizes)
        check.at_least_one(sizes, "n_outputs")
        n_outputs = check.integer("n_outputs", sizes["n_outputs"], 1, _MOST_OUTPUTS)
        _check_numbers("y", y, -_LARGEST)
        targets = y
    check.array("weights", weights, _FLOAT64, ("n",), sizes)
    _check_numbers("weights", weights, 0.0)
    if not bool((weights > 0).any()):
        raise ValueError("weights: expected some above 0, got none; give the samples weight")
    return _Samples(labels, targets, n_outputs, weights, _CRITERIA.index(criterion))


def _check_limits(
    max_depth: int | None, min_samples_split: int, min_samples_leaf: int, min_impurity_decrease: float
) -> tuple[int, int, int, float]:
    return (
        _MOST if max_depth is None else check.integer("max_depth", max_depth, 0, _MOST),
        check.integer("min_samples_split", min_samples_split, 2, _MOST),
        check.integer("min_samples_leaf", min_samples_leaf, 1, _MOST),
        check.number("min_impurity_decrease", min_impurity_decrease, 0.0),
    )


def grow_batches(
    grow_some: Callable[..., None],
    n: int,
    n_trees: int,
    bootstrap: bool | Array,
    progress: Progress | None,
    rng: Any,
    *,
    batch: int | None = None,
    xp: ModuleType = np,
) -> list[Any]:
    """Calls grow_some(seed, first, count, bags, trees) until all trees are there, or progress says enough."""
    if not isinstance(bootstrap, bool):
        check.same_device(weights=xp.empty(0), bootstrap=bootstrap)
        check.array("bootstrap", bootstrap, check.INT32, (n_trees, n), {})
        if check.values_checked() and int(bootstrap.min()) < 0:
            raise ValueError(
                "bootstrap: expected multiplicities of at least 0, got a negative one; pass counts"
            )
    seed = _seed(rng)
    # So few at a time that an interrupt is soon heard, so many that threads are busy.
    batch = 4 * machine.get_num_threads() if batch is None else batch
    trees: list[Any] = []
    for first in range(0, n_trees, batch):
        count = min(batch, n_trees - first)
        bags = None
        if bootstrap is True:
            bags = xp.empty((count, n), np.int32)
            dispatch.twin(_ROOM, bags).draw_bags(seed, first, bags)
        elif bootstrap is not False:
            bags = bootstrap[first : first + count]
        grow_some(seed, first, count, bags, trees)
        if progress is not None and progress(len(trees), n_trees) is True:
            break
    return trees


def grow(
    codes: Codes,
    y: Array,
    weights: Array,
    n_trees: int,
    *,
    n_classes: int | None,
    criterion: str,
    n_drawn: int,
    bootstrap: bool | Array = True,
    max_depth: int | None = None,
    min_samples_split: int = 2,
    min_samples_leaf: int = 1,
    min_impurity_decrease: float = 0.0,
    completely_random: bool = False,
    progress: Progress | None = None,
    rng: Any = None,
) -> Trees:
    """Trees on codes.

    Parameters
    ----------
    codes : Codes
        Candidates: one column each.
    y : (n,) array of int32, or (n, n_outputs) array of float64
        Labels, or targets where n_classes is None.
    weights : (n,) array of float64
        Weights of the samples, 0 to 1e100, not all 0. A sample of weight 0 counts for nothing.
    n_trees : int
        Trees.
    n_classes : int or None
        Classes, at most 2**20. Codes of windows are for classes alone.
    criterion : "gini", "entropy" or "squared_error"
        The last for targets alone.
    n_drawn : int
        Candidates that a node draws; it goes on until one of them is not constant.
    bootstrap : bool or (n_trees, n) array of int32
        Whether each tree draws n samples with replacement, or how often it has each (at least 0).
    max_depth : int, optional
        Depth of the deepest leaf; 0 is a leaf alone. By default there is no limit.
    min_samples_split, min_samples_leaf : int
        Samples that a split, and each side of it, must hold at least; a sample drawn twice is one.
    min_impurity_decrease : float
        Gain that a split must have at least, as a share of the tree's weight.
    completely_random : bool
        Draw candidates until one is not constant, and cut it anywhere between its least and greatest value.
    progress : callable, optional
        Called as progress(done, n_trees) after every few trees; True ends the growth, with the trees so far.
    rng : None, int or numpy.random.Generator
        Where the seed comes from.

    Returns
    -------
    Trees
        Arrays of a `hforest.tree.Forest`.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        Wrong kind, dtype or device; wrong shape, a number out of its range; labels, codes or
        multiplicities out of range; no memory for a tree.

    Notes
    -----
    p5 steps 1-4 with weights (bags are multiplicities, not copies). Lower ``sum_b W_b H(b)`` is better; of
    equal cuts the candidate drawn first wins, in it the lowest. What a node draws depends on its key alone,
    which comes from its parent's by a counter-based generator: trees do not depend on threads. A tree whose
    bag holds no weight takes every sample. Cost: for each level, sample and candidate a few nanoseconds.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> codes = hforest.growth.encode(np.array([[0.0], [1.0], [2.0]]))
    >>> trees = hforest.growth.grow(codes, np.array([0, 1, 1], np.int32), np.ones(3), 1, n_classes=2,
    ...     criterion="gini", n_drawn=1, bootstrap=False, rng=0)
    >>> trees.feature, trees.threshold
    (array([ 0, -1, -1], dtype=int32), array([0.5, 0. , 0. ]))
    """
    n_columns, n = _check_codes(codes)
    check.same_device(codes=codes.codes, y=y, weights=weights)
    samples = _check_samples(y, weights, n, n_classes, criterion)
    if codes.base is not None and n_classes is None:
        raise ValueError(
            "n_classes: expected a number for codes of windows, got None; copy them to fit targets"
        )
    n_trees = check.integer("n_trees", n_trees, 1, _MOST)
    n_drawn = check.integer("n_drawn", n_drawn, 1, n_columns)
    limits = _check_limits(max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease)
    xp, twin = dispatch.array_module(weights), dispatch.twin(_ROOM, weights)

    rows = twin.rows_of(codes.codes) if codes.base is None else None
    columns = (codes.codes, rows, codes.low, codes.high, codes.base, codes.offset, codes.dtype)

    def grow_some(*part: Any) -> None:
        twin.grow(*columns, *samples, n_drawn, *limits, completely_random, *part)

    trees = grow_batches(grow_some, n, n_trees, bootstrap, progress, rng, xp=xp)
    return Trees(*twin.joined(trees, samples.n_outputs, codes.dtype, False))


class Projected(NamedTuple):
    """Grown trees on projections, as the arrays of a `hforest.tree.Forest`."""

    trees: Trees
    start: Array
    index: Array
    weight: Array


def grow_projected(
    x: Array,
    y: Array,
    weights: Array,
    n_trees: int,
    atoms: Atoms,
    *,
    n_classes: int | None,
    criterion: str,
    n_drawn: int,
    bootstrap: bool | Array = True,
    max_depth: int | None = None,
    min_samples_split: int = 2,
    min_samples_leaf: int = 1,
    min_impurity_decrease: float = 0.0,
    progress: Progress | None = None,
    rng: Any = None,
) -> Projected:
    """Trees whose nodes draw random projections (p3 Alg. 1).

    Parameters
    ----------
    x : (n, n_features) array of float32 or float64
        Samples; finite.
    y, weights, n_trees, n_classes, criterion
        As `grow` takes them.
    atoms : Atoms
        What projections to draw: `axis_atoms`, `sparse_atoms`, `patch_atoms` or `probe_atoms`.
    n_drawn : int
        Projections that a node draws. Where all of them are constant in the node it is a leaf.
    bootstrap, max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease, progress, rng
        As `grow` takes them.

    Returns
    -------
    Projected
        Arrays of a `hforest.tree.Forest`; a projection onto one feature is stored as a feature.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        As from `grow`; atoms of another number of features.

    Notes
    -----
    A value is summed in float64 in the order of the projection's entries and rounded once to the dtype of x,
    as `hforest.tree` does. Candidate c of a node is drawn from the node's key and c. Whole numbers (of sums
    up to 2**24) are added as integers, from a copy of 1 byte a feature where they are below 256; larger
    patches of them are four look-ups in a table of sums over corners, which loses nothing and takes 2 to 4
    bytes a feature. With AVX-512, bytes and float32 are held once more, features first. Cost: for each
    level, sample and candidate its entries, and a place in a count or a sort.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> from hforest import growth
    >>> x = np.array([[0.0, 1], [1, 2], [0, 2], [1, 3]]); y = np.array([0, 0, 1, 1], np.int32)
    >>> atoms = growth.probe_atoms(2)
    >>> grown = growth.grow_projected(x, y, np.ones(4), 1, atoms, n_classes=2, criterion="gini", n_drawn=1,
    ...     bootstrap=False, rng=0)
    >>> grown.trees.feature, abs(grown.trees.threshold[0])
    (array([-2, -1, -1], dtype=int32), np.float64(1.5))
    """
    check.same_device(x=x, y=y, weights=weights)
    dtype = check.floating("x", x)
    sizes: check.Sizes = {}
    check.array("x", x, dtype, ("n", "n_features"), sizes)
    check.at_least_one(sizes, "n_features")
    n = sizes["n"]
    if not 1 <= n <= _MOST:
        raise ValueError(f"x: expected 1 to 2**31 - 1 samples, got {n}; pass samples to learn from")
    check.finite("x", x)
    if not isinstance(atoms, Atoms):
        raise TypeError(f"atoms: expected Atoms, got {type(atoms).__name__}; call sparse_atoms or the like")
    if atoms.n_features != sizes["n_features"]:
        raise ValueError(
            f"atoms: expected n_features = {sizes['n_features']}, got {atoms.n_features}; make them for x"
        )
    samples = _check_samples(y, weights, n, n_classes, criterion)
    n_trees = check.integer("n_trees", n_trees, 1, _MOST)
    n_drawn = check.integer("n_drawn", n_drawn, 1, _MOST)
    limits = _check_limits(max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease)
    xp, twin = dispatch.array_module(x), dispatch.twin(_ROOM, x)
    # A vector reads four bytes at each number.
    small: Array | None = xp.empty(x.size + 3, np.uint8)[: x.size].reshape(x.shape)
    whole = twin.whole_numbers(x, small)
    if whole < 2:
        small = None
    columns = twin.columns_of(x, whole > 0, small)
    table = None
    if whole and atoms.kind == PATCH and not atoms.cyclic and atoms.most >= _LARGE_PATCH:
        planes = atoms.channels * atoms.shape[0]
        # Modulo 2**16 is enough where no patch's sum, of bytes, reaches that.
        narrow = small is not None and 255 * atoms.most < 2**16
        size = planes * (atoms.shape[1] + 1) * (atoms.shape[2] + 1)
        table = xp.empty((n, size), np.uint16 if narrow else np.uint32)
        twin.corner_table(x, atoms, table)

    def grow_some(*part: Any) -> None:
        twin.grow_projected(x, whole > 0, small, columns, table, *samples, atoms, n_drawn, *limits, *part)

    trees = grow_batches(grow_some, n, n_trees, bootstrap, progress, rng, xp=xp)
    arrays = twin.joined(trees, samples.n_outputs, dtype, True)
    return Projected(Trees(*arrays[:6]), *arrays[6:])
