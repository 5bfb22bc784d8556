"""Files of models: plain arrays."""

import os
from functools import partial
from typing import Any

import numpy as np

from ..core import check, models
from ..tree.files import read_forest
from .columns import text_array
from .encoding import Encoding
from .kinds import Columns
from .levels import Levels
from .model import Boosted, Member, Model, checked
from .scaling import Scaling
from .tables import NULL_VALUES

FORMAT = 4
"""Number of the format: 3 has texts of any length, how cells of text were read, and labels of classes; 4 has
boosted trees, a linear part, the kind of mean and errors of held-out rows."""

_BOOSTED = models.maybe(
    "share", models.record(Boosted, optional=("linear",), forest=read_forest, share=models.small)
)
_MEMBER = models.record(
    Member, optional=("squares",), forest=read_forest, offset=models.small, share=models.small,
    boosted=_BOOSTED,
)  # fmt: skip
_ENCODING = models.record(Encoding, levels=models.maybe("categorical", models.record(Levels)))
_TEXTS: Any = dict.fromkeys(("names", "levels", "forms", "notes", "null_values"), models.texts)
_COLUMNS = models.record(Columns, **_TEXTS)
_OLDER_COLUMNS = models.record(
    Columns, names=models.texts, levels=models.texts, forms=models.empty_texts("names"),
    notes=models.empty_texts("names"), null_values=lambda archive, name: text_array(NULL_VALUES),
)  # fmt: skip


def _labels(archive: Any, name: str) -> Any:
    """Returns the labels of a file: of text, or numbers; None if it has none."""
    if name not in archive:
        return None
    return models.texts(archive, name) if f"{name}_are_text" in archive else archive[name]


_MODEL = partial(
    models.record, Model, partial(checked, "model"), classes=_labels, optional=("mean", "held_out"),
    task=models.word, mean=models.word, members=models.several("n_members", _MEMBER),
    encoding=models.maybe("fill", _ENCODING),
)  # fmt: skip
_SCALING = models.record(Scaling)
_OLDER = {
    1: _MODEL(scaling=models.at("columns", _SCALING), columns=models.maybe("names", _OLDER_COLUMNS)),
    2: _MODEL(scaling=_SCALING, columns=models.maybe("names", _OLDER_COLUMNS)),
}
LAYOUT = models.Layout(
    "a model of a table that save wrote",
    models.in_format(
        "tabular_format", FORMAT, _MODEL(scaling=_SCALING, columns=models.maybe("names", _COLUMNS)), _OLDER
    ),
    "the file was changed: restore it or fit a new model",
    other_format=f"a model of a table that save wrote, in format 1 to {FORMAT}, got format {{}}; the file "
    "was changed, or a newer version of hforest wrote it: restore it, fit a new model or update hforest",
)


def write(file: str, model: Model, **more: Any) -> None:
    """Writes a checked model and further arrays."""
    if model.classes is not None and model.classes.dtype.kind == "T":
        more["classes_are_text"] = np.array(1)
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
