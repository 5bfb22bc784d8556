"""Files of models: plain arrays."""

import os
from functools import partial
from typing import Any

from ..core import check, models
from ..tree.files import read_forest
from .columns import Columns
from .encoding import Encoding
from .levels import Levels
from .model import Member, Model, checked
from .scaling import Scaling

FORMAT = 2

_MEMBER = models.record(Member, forest=read_forest, offset=models.small, share=models.small)
_ENCODING = models.record(Encoding, levels=models.maybe("categorical", models.record(Levels)))
_MODEL = partial(
    models.record, Model, partial(checked, "model"),
    task=models.word, members=models.several("n_members", _MEMBER),
    encoding=models.maybe("fill", _ENCODING), columns=models.maybe("names", models.record(Columns)),
)  # fmt: skip
_SCALING = models.record(Scaling)
_OLDER = {1: _MODEL(scaling=models.at("columns", _SCALING))}
LAYOUT = models.Layout(
    "a model of a table that save wrote",
    models.in_format("tabular_format", FORMAT, _MODEL(scaling=_SCALING), _OLDER),
    "the file was changed: restore it or fit a new model",
    other_format=f"a model of a table that save wrote, in format 1 to {FORMAT}, got format {{}}; the file "
    "was changed, or a newer version of hforest wrote it: restore it, fit a new model or update hforest",
)


def write(file: str, model: Model, **more: Any) -> None:
    """Writes a checked model and further arrays."""
    models.save(file, model, tabular_format=FORMAT, n_members=len(model.members), **more)


def save(file: str | os.PathLike[str], model: Model) -> None:
    """Writes a model to an .npz file, atomically.

    Other parameters and errors: see `hforest.tree.save`.

    Parameters
    ----------
    model : Model
        From `fit`.

    Notes
    -----
    The file holds plain arrays, no pickles, under the names of the fields: "scaling/<name>",
    "columns/<name>", "members/<i>/<name>", "members/<i>/forest/<name>".

    Examples
    --------
    >>> import numpy as np, hforest, tempfile, os
    >>> x = np.arange(40.0).reshape(-1, 1); y = np.repeat([0, 1], 20)
    >>> model = hforest.tabular.fit(x, y, n_trees=5, steps=50, rng=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hforest.tabular.save(os.path.join(folder, "m.npz"), model)
    ...     back = hforest.tabular.load(os.path.join(folder, "m.npz"))
    >>> bool((hforest.tabular.predict(back, x) == hforest.tabular.predict(model, x)).all())
    True
    """
    file = check.path("file", file)
    checked("model", model)
    write(file, model)


def load(file: str | os.PathLike[str]) -> Model:
    """Returns the model in a file that `save` wrote.

    Parameters and errors: see `hforest.tree.load`.

    Returns
    -------
    Model
        Checked.
    """
    return models.load(check.path("file", file), LAYOUT)
