"""Files of cascades and scanners, which contain plain arrays."""

import math
import os

import numpy as np

from ..core import check, files, models
from ..tree import Forest
from ..tree.files import read_forest
from .folds import CLASS_VECTORS
from .levels import Cascade, check_levels
from .windows import Scanner, _geometry, check_scanner


def _check_agree(where: str, forest: Forest, n_features: int, n_classes: int, dtype: np.dtype) -> None:
    """Checks that a forest has the features, the classes and the dtype of its position."""
    for name, got, wanted in (
        ("n_features", int(forest.n_features), n_features),
        ("n_classes", forest.value.shape[1], n_classes),
        ("dtype", forest.threshold.dtype, dtype),
    ):
        if got != wanted:
            raise ValueError(f"{name} of {where} is {got}, not {wanted}")


def _check_scanner(scanner: Scanner) -> None:
    shape, window, _ = _geometry(*scanner[:3])
    n_features = math.prod(window) * (shape[2] if len(shape) == 3 else 1)
    first = scanner.forests[0]
    for i, forest in enumerate(scanner.forests):
        _check_agree(f"forests/{i}", forest, n_features, first.value.shape[1], first.threshold.dtype)


def _check_cascade(cascade: Cascade) -> None:
    n_levels, n_forests = len(cascade.levels), len(cascade.levels[0])
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


_FORESTS = models.several("n_forests", read_forest)
_CASCADE = models.record(
    Cascade, _check_cascade,
    n_classes=models.integer(1), n_features=models.integers, class_vectors=models.word,
    n_folds=models.integer(1), seed=models.integer(0, 2**63 - 1), scores=models.reals,
    levels=models.several("n_levels", _FORESTS),
)  # fmt: skip
_SCANNER = models.record(
    Scanner, _check_scanner,
    shape=models.integers, window=models.integers, stride=models.integers, forests=_FORESTS,
)  # fmt: skip


def _read(archive: files.Archive, name: str) -> Cascade | Scanner:
    models.integer(1)(archive, "n_forests")
    return (_CASCADE if "n_levels" in archive else _SCANNER)(archive, name)


_LAYOUT = models.Layout(
    "a cascade or scanner that save wrote", _read, "the file was changed: restore it or grow again"
)


def save(file: str | os.PathLike[str], grown: Cascade | Scanner) -> None:
    """Writes a cascade or a scanner to an .npz file, atomically.

    Other parameters and errors: see `hforest.tree.save`.

    Parameters
    ----------
    grown : Cascade or Scanner
        Cascade or scanner to write.

    Notes
    -----
    Plain arrays, no pickles: a forest's arrays under "levels/<level>/<forest>/<name>" or
    "forests/<forest>/<name>", numbers and words under their names.

    Examples
    --------
    >>> import numpy as np, hforest, tempfile, os
    >>> from functools import partial
    >>> x = np.arange(20.0).reshape(-1, 1); y = np.repeat(np.array([0, 1], np.int32), 10)
    >>> cascade = hforest.cascade.grow(x, y, [partial(hforest.grow, n_trees=5)], rng=0)
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
            raise ValueError("grown.levels: expected at least one level, got none; continue growing")
        models.save(file, grown, n_levels=len(grown.levels), n_forests=len(grown.levels[0]))
    elif isinstance(grown, Scanner):
        check_scanner("grown", grown)
        models.save(file, grown, n_forests=len(grown.forests))
    else:
        raise TypeError(
            f"grown: expected a Cascade or Scanner, got {type(grown).__name__}; pass one that was grown"
        )


def load(file: str | os.PathLike[str]) -> Cascade | Scanner:
    """Returns the cascade or scanner in a file that `save` wrote.

    Parameters and errors: see `hforest.tree.load`.

    Returns
    -------
    Cascade or Scanner
        Its forests have been checked by `hforest.tree.check`.
    """
    return models.load(check.path("file", file), _LAYOUT)
