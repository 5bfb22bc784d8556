"""A forest as one file of plain arrays."""

import os

import numpy as np

from ..core import check as checks
from ..core import files
from .forest import Forest, check, from_arrays, on_host

FORMAT = 2
"""2 has the arrays of missing values and categories."""
"""Number of the layout of a file. A file of a larger number is refused."""

_WHAT = "a forest that save wrote"


def save(file: str | os.PathLike[str], forest: Forest) -> None:
    """Write a forest to an .npz file, whole or not at all.

    Parameters
    ----------
    file : path
        Replaced if it exists.
    forest : Forest
        Any forest; CuPy arrays are copied to the host.

    Raises
    ------
    TypeError, ValueError, IndexError
        Something else; a forest that `check` refuses.
    OSError
        The file cannot be written; an older one is still there. A folder, a device or another thing that is
        no regular file.

    Notes
    -----
    Plain arrays, no pickles: the fields of the forest under their names, and "forest_format", the number of
    this layout. The file and its folder are forced to the disk: after a loss of power the path holds the
    older file or the new one. Cost: a check and one write of the arrays.

    Examples
    --------
    >>> import numpy as np, hforest, tempfile, os
    >>> x = np.arange(20.0).reshape(-1, 1); y = np.repeat([0, 1], 10)
    >>> forest = hforest.classic.grow(x, y, 5, rng=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hforest.tree.save(os.path.join(folder, "f.npz"), forest)
    ...     back = hforest.tree.load(os.path.join(folder, "f.npz"))
    >>> all((a == b).all() for a, b in zip(forest, back))
    True
    """
    name = checks.path("file", file)
    arrays = on_host(check(forest))._asdict()
    files.write_npz(name, {"forest_format": np.array(FORMAT), **arrays})


def load(file: str | os.PathLike[str]) -> Forest:
    """Read what `save` wrote.

    Parameters
    ----------
    file : path
        From `save`.

    Returns
    -------
    Forest
        NumPy arrays of the bits that were saved; `check` has passed it.

    Raises
    ------
    FileNotFoundError, PermissionError
        No such file; a file that may not be read.
    ValueError
        Not such a file, a damaged one, one of a newer format, or one whose arrays contradict each other.
    MemoryError
        A sound file with an array that does not fit into memory.

    Notes
    -----
    Cost: one read of the file, with checksums, and a check.

    Examples
    --------
    See `save`.
    """
    name = checks.path("file", file)
    with files.opened(name, _WHAT) as found:
        return _forest(name, found)


def _forest(name: str, found: files.Archive) -> Forest:
    """The forest that the arrays of the file `name` are, checked."""
    try:
        written = found.small("forest_format")
        if written.shape != () or written.dtype.kind not in "iu" or int(written) < 1:
            raise ValueError("forest_format is no integer above 0")
        if int(written) <= FORMAT:
            return check(from_arrays(found))
    except KeyError as missing:
        raise ValueError(
            f"{name}: expected {_WHAT}, got none of its arrays called {missing}; pass a file from save"
        ) from None
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(
            f"{name}: expected {_WHAT}, got one in which {error}; it was changed: restore it or grow anew"
        ) from None
    raise ValueError(
        f"{name}: expected a forest of format 1 to {FORMAT}, got format {int(written)}, which a newer "
        "version of hforest wrote; update hforest"
    )
