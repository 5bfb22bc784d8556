"""A cascade or scanner as one file of plain arrays."""

import math
import os
from typing import Any

import numpy as np

from .. import tree
from ..core import check, files
from ..tree import Forest
from ..tree.forest import from_arrays
from .folds import CLASS_VECTORS
from .levels import Cascade, check_levels
from .windows import Scanner, _geometry, check_scanner

_WHAT = "a cascade or scanner that save wrote"


def _named(prefix: str, forest: Forest) -> dict[str, np.ndarray]:
    return {f"{prefix}/{name}": a for name, a in forest._asdict().items()}


def save(file: str | os.PathLike[str], grown: Cascade | Scanner) -> None:
    """Write a cascade or a scanner to an .npz file, whole or not at all.

    Parameters
    ----------
    file : path
        Replaced if it exists.
    grown : Cascade or Scanner
        What to write.

    Raises
    ------
    TypeError, ValueError
        Something else; a cascade or scanner without forests.
    OSError
        The file cannot be written; an older one is still there. A folder, a device or another thing that is
        no regular file.

    Notes
    -----
    Plain arrays, no pickles: a forest's arrays under "levels/<level>/<forest>/<name>" or
    "forests/<forest>/<name>", numbers and words under their names. The file and its folder are forced to the
    disk: after a loss of power the path holds the older file or the new one.

    Examples
    --------
    >>> import numpy as np, hforest, tempfile, os
    >>> from functools import partial
    >>> x = np.arange(20.0).reshape(-1, 1); y = np.repeat(np.array([0, 1], np.int32), 10)
    >>> cascade = hforest.cascade.grow(x, y, [partial(hforest.classic.grow, n_trees=5)], rng=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hforest.cascade.save(os.path.join(folder, "c.npz"), cascade)
    ...     back = hforest.cascade.load(os.path.join(folder, "c.npz"))
    >>> bool((hforest.cascade.predict(back, x) == hforest.cascade.predict(cascade, x)).all())
    True
    """
    file = check.path("file", file)
    if isinstance(grown, Cascade):
        check_levels("grown", grown)
        if not grown.levels:
            raise ValueError("grown.levels: expected at least one level, got none; grow it on")
        arrays: dict[str, Any] = {
            name: np.array(getattr(grown, name))
            for name in ("n_classes", "n_features", "class_vectors", "n_folds", "seed", "scores")
        }
        arrays["n_levels"], arrays["n_forests"] = np.array(len(grown.levels)), np.array(len(grown.levels[0]))
        for level, row in enumerate(grown.levels):
            for i, forest in enumerate(row):
                arrays |= _named(f"levels/{level}/{i}", forest)
    elif isinstance(grown, Scanner):
        check_scanner("grown", grown)
        arrays = {name: np.array(getattr(grown, name)) for name in ("shape", "window", "stride")}
        arrays["n_forests"] = np.array(len(grown.forests))
        for i, forest in enumerate(grown.forests):
            arrays |= _named(f"forests/{i}", forest)
    else:
        raise TypeError(f"grown: expected a Cascade or Scanner, got {type(grown).__name__}; grow one")
    files.write_npz(file, arrays)


def load(file: str | os.PathLike[str]) -> Cascade | Scanner:
    """Read what `save` wrote.

    Parameters
    ----------
    file : path
        From `save`.

    Returns
    -------
    Cascade or Scanner
        Its forests have been checked by `hforest.tree.check`.

    Raises
    ------
    FileNotFoundError, PermissionError
        No such file; a file that may not be read.
    ValueError
        Not such a file, a damaged one, or one whose arrays contradict each other.

    Examples
    --------
    See `save`.
    """
    name = check.path("file", file)
    with files.opened(name, _WHAT) as found:
        try:
            return _scanner(found) if "n_levels" not in found else _cascade(found)
        except KeyError as missing:
            raise ValueError(
                f"{name}: expected the arrays that save writes, got none called {missing}; pass a file from "
                "save"
            ) from None
        except (TypeError, ValueError, IndexError, OverflowError) as error:
            raise ValueError(
                f"{name}: expected {_WHAT}, got one in which {error}; it was changed: restore it or grow anew"
            ) from None


# What these functions raise ends a sentence that begins with "got one in which".


def _integer(found: files.Archive, name: str, low: int, high: int = check.MAX_COUNT) -> int:
    a = found.small(name)
    if a.shape != () or a.dtype.kind not in "iu" or not low <= int(a) <= high:
        raise ValueError(f"{name} is {files.text(a)}, not an integer from {low} to {high}")
    return int(a)


def _integers(found: files.Archive, name: str) -> tuple[int, ...]:
    a = found.small(name)
    if a.ndim != 1 or not a.size or a.dtype.kind not in "iu" or int(a.min()) < 0:
        raise ValueError(f"{name} is {files.text(a)}, not a row of integers of at least 0")
    return tuple(int(i) for i in a)


def _forests(found: files.Archive, prefix: str, n_forests: int) -> tuple[Forest, ...]:
    return tuple(tree.check(from_arrays(found, f"{prefix}/{i}/")) for i in range(n_forests))


def _check_agree(where: str, forest: Forest, n_features: int, n_classes: int, dtype: np.dtype) -> None:
    """A forest has the features, the classes and the dtype that its place asks for."""
    for name, got, wanted in (
        ("n_features", int(forest.n_features), n_features),
        ("n_classes", forest.value.shape[1], n_classes),
        ("dtype", forest.threshold.dtype, dtype),
    ):
        if got != wanted:
            raise ValueError(f"{name} of {where} is {got}, not {wanted}")


def _scanner(found: files.Archive) -> Scanner:
    n_forests = _integer(found, "n_forests", 1)
    shape, window, stride = _geometry(*(_integers(found, name) for name in ("shape", "window", "stride")))
    forests = _forests(found, "forests", n_forests)
    n_features = math.prod(window) * (shape[2] if len(shape) == 3 else 1)
    for i, forest in enumerate(forests):
        first = forests[0]
        _check_agree(f"forests/{i}", forest, n_features, first.value.shape[1], first.threshold.dtype)
    return Scanner(shape, window, stride, forests)


def _cascade(found: files.Archive) -> Cascade:
    n_forests, n_levels = _integer(found, "n_forests", 1), _integer(found, "n_levels", 1)
    cascade = Cascade(
        n_classes=_integer(found, "n_classes", 1),
        n_features=_integers(found, "n_features"),
        class_vectors=files.text(found.small("class_vectors")),
        n_folds=_integer(found, "n_folds", 1),
        seed=_integer(found, "seed", 0, 2**63 - 1),
        scores=tuple(float(score) for score in found.small("scores")),
        levels=tuple(_forests(found, f"levels/{level}", n_forests) for level in range(n_levels)),
    )
    if cascade.class_vectors not in CLASS_VECTORS:
        raise ValueError(f"class_vectors is {cascade.class_vectors!r}, not one of {CLASS_VECTORS}")
    if (cascade.n_folds == 1) != (cascade.class_vectors == "out_of_bag"):
        raise ValueError(f"class_vectors is {cascade.class_vectors!r} and n_folds is {cascade.n_folds}")
    if len(cascade.scores) != n_levels or not all(0 <= score <= 1 for score in cascade.scores):
        raise ValueError(f"scores are {cascade.scores}, not {n_levels} numbers from 0 to 1")
    dtype = cascade.levels[0][0].threshold.dtype
    for level, row in enumerate(cascade.levels):
        n_features = cascade.n_features[level % len(cascade.n_features)]
        if level:
            n_features += n_forests * cascade.n_classes
        for i, forest in enumerate(row):
            where = f"levels/{level}/{i}"
            _check_agree(where, forest, n_features, cascade.n_classes, dtype)
            n_trees = forest.tree_start.size - 1
            if n_trees % cascade.n_folds:
                raise ValueError(f"{where} has {n_trees} trees and n_folds is {cascade.n_folds}")
    return cascade
