"""A model of labels as one file of plain arrays."""

import os

import numpy as np

from ..core import check, models
from ..core.files import Archive
from ..tree.files import read_forest
from .model import Model, check_fields, check_model

FORMAT = 1
"""Number of the layout of a file."""


def _float64(archive: Archive, name: str) -> np.ndarray:
    a: np.ndarray = archive[name]
    if a.dtype != np.float64:
        raise TypeError(f"{name} is of {a.dtype}, not of float64")
    return a


_MODEL = models.record(
    Model, check_fields, ("scale",),
    window=models.integers, step=models.integer(1), border=models.word, n_channels=models.integer(1),
    class_factor=_float64, forest=read_forest, scale=_float64,
)  # fmt: skip
_LAYOUT = models.Layout(
    "a model of labels that save wrote",
    models.in_format("images_format", FORMAT, _MODEL),
    "the file was changed: restore it or fit a new model",
    other_format=f"a model of format {FORMAT}, got format {{}}, which a newer version of hforest wrote; "
    "update hforest",
)


def save(file: str | os.PathLike[str], model: Model) -> None:
    """Writes a model to a .npz file.

    Other parameters and errors: see `hforest.tree.save`.

    Parameters
    ----------
    model : Model
        From `fit`.

    Examples
    --------
    >>> import numpy as np, hforest, tempfile, os
    >>> images = np.random.default_rng(0).normal(size=(1, 6, 6, 1)); labels = images[..., 0] > 0
    >>> model = hforest.images.fit(images, labels, hforest.grow, window=1, n_pixels=36, rng=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hforest.images.save(os.path.join(folder, "m.npz"), model)
    ...     back = hforest.images.load(os.path.join(folder, "m.npz"))
    >>> bool((hforest.images.predict(back, images) == hforest.images.predict(model, images)).all())
    True
    """
    file = check.path("file", file)
    check_model(model)
    models.save(file, model, images_format=FORMAT)


def load(file: str | os.PathLike[str]) -> Model:
    """Reads what `save` wrote.

    Parameters and errors: see `hforest.tree.load`.

    Returns
    -------
    Model
        Its forest has been checked by `hforest.tree.check`.
    """
    return models.load(check.path("file", file), _LAYOUT)
