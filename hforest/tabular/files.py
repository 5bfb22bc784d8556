"""A model as one file of plain arrays."""

import os

import numpy as np

from ..core import check, files
from ..tree.forest import from_arrays
from .columns import Columns
from .model import Member, Model, check_model

FORMAT = 1
_WHAT = "a model of a table that save wrote"


def arrays_of(model: Model) -> dict[str, np.ndarray]:
    """The arrays of a model by their names in a file."""
    arrays = {
        "tabular_format": np.array(FORMAT),
        "task": np.array(model.task),
        "n_members": np.array(len(model.members)),
        "target_center": model.target_center,
        "target_scale": model.target_scale,
    }
    arrays |= {f"columns/{name}": a for name, a in model.columns._asdict().items()}
    for i, member in enumerate(model.members):
        own = member._asdict()
        forest = own.pop("forest")
        arrays |= {f"members/{i}/{name}": a for name, a in own.items()}
        arrays |= {f"members/{i}/forest/{name}": a for name, a in forest._asdict().items()}
    return arrays


def model_of(name: str, found: files.Archive) -> Model:
    """The model that the arrays of the file `name` are, checked."""
    try:
        written = found.small("tabular_format")
        if written.shape != () or written.dtype.kind not in "iu" or int(written) != FORMAT:
            raise ValueError(f"the format is not {FORMAT}")
        n_members = found.small("n_members")
        if n_members.shape != () or n_members.dtype.kind not in "iu" or not 1 <= int(n_members) <= 2**20:
            raise ValueError("n_members is no number of members")
        members = []
        for i in range(int(n_members)):
            own = {field: found[f"members/{i}/{field}"] for field in Member._fields if field != "forest"}
            forest = from_arrays(found, f"members/{i}/forest/")
            members.append(Member(**own, forest=forest))
        columns = Columns(**{field: found[f"columns/{field}"] for field in Columns._fields})
        task = found.small("task")
        if task.shape != () or task.dtype.kind != "U":
            raise ValueError("task is no word")
        model = Model(
            files.text(task), columns, tuple(members), found["target_center"], found["target_scale"]
        )
        check_model("model", model)
    except KeyError as missing:
        raise ValueError(
            f"{name}: expected {_WHAT}, got none of its arrays called {missing}; pass a file from save"
        ) from None
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise ValueError(
            f"{name}: expected {_WHAT}, got one in which {error}; it was changed: restore it or fit anew"
        ) from None
    return model


def save(file: str | os.PathLike[str], model: Model) -> None:
    """Write a model to an .npz file, whole or not at all.

    Parameters
    ----------
    file : path
        Replaced if it exists.
    model : Model
        From `fit`.

    Raises
    ------
    TypeError, ValueError, IndexError
        Something else; a model whose arrays contradict each other.
    OSError
        The file cannot be written; an older one is still there. A folder, a device or another thing that is
        no regular file.

    Notes
    -----
    Plain arrays, no pickles, under the names of the fields: "columns/<name>", "members/<i>/<name>",
    "members/<i>/forest/<name>".

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
    check_model("model", model)
    files.write_npz(file, arrays_of(model))


def load(file: str | os.PathLike[str]) -> Model:
    """Read what `save` wrote.

    Parameters
    ----------
    file : path
        From `save`.

    Returns
    -------
    Model
        Checked.

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
        return model_of(name, found)
