"""Forests as files of plain arrays."""

import os

from ..core import check as checks
from ..core import models
from ..core.files import Archive
from .forest import OPTIONAL, Forest, check, checked, marked

FORMAT = 3
"""Version of the layout: 2 has the arrays of missing values and categories, 3 has several labels a sample."""

_ARRAYS = models.record(Forest, None, OPTIONAL, n_features=models.small)


def read_forest(archive: Archive, name: str) -> Forest:
    """Reads a forest, for models of forests."""
    return marked(check(_ARRAYS(archive, name)))


_LAYOUT = models.Layout(
    "a forest that save wrote",
    models.in_format("forest_format", FORMAT, read_forest),
    "the file was changed: restore it or grow again",
    other_format=f"a forest of format 1 to {FORMAT}, got format {{}}, which a newer version of hforest "
    "wrote; update hforest",
)


def save(file: str | os.PathLike[str], forest: Forest) -> None:
    """Writes a forest to an .npz file, completely or not at all.

    Parameters
    ----------
    file : path
        File to write; an existing one is replaced.
    forest : Forest
        Any forest; CuPy arrays are copied to the host.

    Raises
    ------
    OSError
        The file cannot be written, or is a folder, a device or another special file. An existing file is
        unchanged.

    Notes
    -----
    The file has plain arrays, no pickles: the fields of the forest under their names, and "forest_format",
    the version of the layout. The file and its folder are flushed to the disk: after a loss of power the path
    holds the old file or the new one. Cost: one write of the arrays.

    Examples
    --------
    >>> import numpy as np, hforest, tempfile, os
    >>> x = np.arange(20.0).reshape(-1, 1); y = np.repeat([0, 1], 10)
    >>> forest = hforest.grow(x, y, 5, rng=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hforest.tree.save(os.path.join(folder, "f.npz"), forest)
    ...     back = hforest.tree.load(os.path.join(folder, "f.npz"))
    >>> all((a == b).all() for a, b in zip(forest, back))
    True
    """
    name = checks.path("file", file)
    arrays = checked(forest)
    # Other forests have a format that earlier versions read.
    models.save(name, arrays, forest_format=FORMAT if arrays.class_start.size else 2)


def load(file: str | os.PathLike[str]) -> Forest:
    """Returns a forest that `save` wrote.

    Parameters
    ----------
    file : path
        File that `save` wrote.

    Returns
    -------
    Forest
        NumPy arrays, bit-identical to those that were saved, read-only; the forest has passed `check`.

    Raises
    ------
    FileNotFoundError, PermissionError
        The file does not exist, or may not be read.
    ValueError
        Another kind of file, a damaged file, a newer format, or arrays that contradict each other.

    Notes
    -----
    Cost: one read of the file, with checksums, and a check.
    """
    return models.load(checks.path("file", file), _LAYOUT)
