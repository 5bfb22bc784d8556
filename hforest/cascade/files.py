"""A cascade or scanner as one file of plain arrays."""

import os
from typing import Any

import numpy as np

from .. import tree
from ..tree import Forest
from .levels import Cascade
from .windows import Scanner


def _named(prefix: str, forest: Forest) -> dict[str, np.ndarray]:
    return {f"{prefix}/{name}": a for name, a in forest._asdict().items()}


def _forest(found: Any, prefix: str) -> Forest:
    return tree.check(Forest(**{name: found[f"{prefix}/{name}"] for name in Forest._fields}))


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
    TypeError
        Something else.
    OSError
        The file cannot be written; an older one is still there.

    Notes
    -----
    Plain arrays, no pickles: a forest's arrays under "levels/<level>/<forest>/<name>" or
    "forests/<forest>/<name>", numbers and words under their names.

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
    if isinstance(grown, Cascade):
        arrays: dict[str, Any] = {
            name: np.array(getattr(grown, name))
            for name in ("n_classes", "n_features", "class_vectors", "n_folds", "seed", "scores")
        }
        arrays["n_levels"], arrays["n_forests"] = np.array(len(grown.levels)), np.array(len(grown.levels[0]))
        for level, row in enumerate(grown.levels):
            for i, forest in enumerate(row):
                arrays |= _named(f"levels/{level}/{i}", forest)
    elif isinstance(grown, Scanner):
        arrays = {name: np.array(getattr(grown, name)) for name in ("shape", "window", "stride")}
        arrays["n_forests"] = np.array(len(grown.forests))
        for i, forest in enumerate(grown.forests):
            arrays |= _named(f"forests/{i}", forest)
    else:
        raise TypeError(f"grown: expected a Cascade or Scanner, got {type(grown).__name__}; grow one")
    target = os.fspath(file)
    part = f"{target}.part"
    try:
        with open(part, "wb") as stream:
            np.savez(stream, **arrays)
        os.replace(part, target)
    except BaseException:
        if os.path.exists(part):
            os.remove(part)
        raise


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
    OSError
        No such file.
    ValueError, IndexError
        Not such a file, or one that was changed.

    Examples
    --------
    See `save`.
    """
    with np.load(os.fspath(file), allow_pickle=False) as stream:
        found = {name: stream[name] for name in stream.files}
    try:
        n_forests = int(found["n_forests"])
        if "n_levels" not in found:
            shape, window, stride = (
                tuple(int(i) for i in found[name]) for name in ("shape", "window", "stride")
            )
            return Scanner(
                shape, window, stride, tuple(_forest(found, f"forests/{i}") for i in range(n_forests))
            )
        return Cascade(
            n_classes=int(found["n_classes"]),
            n_features=tuple(int(size) for size in found["n_features"]),
            class_vectors=str(found["class_vectors"]),
            n_folds=int(found["n_folds"]),
            seed=int(found["seed"]),
            scores=tuple(float(score) for score in found["scores"]),
            levels=tuple(
                tuple(_forest(found, f"levels/{level}/{i}") for i in range(n_forests))
                for level in range(int(found["n_levels"]))
            ),
        )
    except KeyError as missing:
        raise ValueError(
            f"file: expected the arrays that save writes, got none called {missing}; pass a file from save"
        ) from None
