"""Data sets and checkpoints as plain .npz files."""

import json
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core import check, files, models, supervised
from ..core.aliases import FloatArray, IntArray, Rng
from ..core.dispatch import to_numpy
from .model import Config, State, check_model, shapes, start
from .network import HISTORY

FORMAT = 2
"""Number of the checkpoint's format: 2 renamed the settings and added the classes."""


class Data(NamedTuple):
    """A classification task with labels of any kind."""

    x_train: FloatArray
    """(n_samples, n_inputs) float32."""
    y_train: IntArray
    """(n_samples,) int32: places of the labels in `classes`."""
    x_test: FloatArray
    """(n_test, n_inputs) float32."""
    y_test: IntArray
    """(n_test,) int32: places of the labels in `classes`."""
    classes: np.ndarray
    """(n_classes,) the labels as they were given, ascending."""

    @property
    def n_classes(self) -> int:
        """Returns the number of classes."""
        return len(self.classes)

    @property
    def fingerprint(self) -> int:
        """Returns a checksum of samples and labels: a checkpoint stores it to recognise its data."""
        value = 0
        for a in self[:4]:
            value = zlib.crc32(np.ascontiguousarray(a).data, value)
        return value


class Checkpoint(NamedTuple):
    """Contents of a model file."""

    config: Config
    state: State
    """NumPy arrays, and `step`, an int."""
    fingerprint: int
    """`Data.fingerprint` of the data that the run learns from."""
    classes: np.ndarray
    """(n_classes,) `Data.classes` of that data."""


def load_digits() -> Data:
    """Returns the handwritten digits that ship with the package: 3823 training and 1797 test samples.

    Optical Recognition of Handwritten Digits (E. Alpaydin and C. Kaynak, UCI Machine Learning
    Repository, 1998, CC BY 4.0), the official split: 8x8 counts of 0 to 16, ten classes.

    Returns
    -------
    Data

    Examples
    --------
    >>> from hforest.demo import load_digits
    >>> load_digits().x_train.shape, load_digits().n_classes
    ((3823, 64), 10)
    """
    with resources.as_file(resources.files(__package__) / "digits.npz") as path:
        return load_data(path)


def samples(path: str | Path, name: str, x: np.ndarray, dtype: np.dtype | None) -> np.ndarray:
    """Returns samples of a file as rows of a matrix, of a dtype, or of the one that holds their numbers."""
    if x.ndim < 2 or not x.size:
        raise ValueError(
            f"{path}, {name}: expected shape (n_samples, ...) with at least one sample and one column, got "
            f"{x.shape}; store one row per sample"
        )
    return supervised.matrix(f"{path}, {name}", x.reshape(len(x), -1), dtype)


def known(path: str | Path, name: str, y: np.ndarray, n: int, most: int) -> np.ndarray:
    """Returns labels or targets of a file, one for each of n samples, or with `most` = 2 a row of them."""
    if y.shape[:1] != (n,) or y.ndim > most:
        raise ValueError(
            f"{path}, {name}: expected shape (n_samples,) = ({n},), got {y.shape}; store one number per "
            "sample"
        )
    if y.dtype.kind not in "biufSU":
        raise TypeError(f"{path}, {name}: expected real numbers, bools or text, got {y.dtype}; convert them")
    return y


def parts(
    path: str | Path,
    arrays: Mapping[str, np.ndarray],
    n_train: int | None,
    dtype: np.dtype | None,
    labels: Callable[[str | Path, str, np.ndarray, int], np.ndarray],
) -> list[np.ndarray]:
    """Returns x_train, y_train, x_test and y_test of a file, or x and y where nothing says which are to test.

    `labels` checks labels by path, name, array and number of samples.
    """
    names: tuple[str, ...] = ("x_train", "y_train", "x_test", "y_test")
    if not arrays.keys() >= set(names):
        names = ("x", "y")
    if not arrays.keys() >= set(names):
        raise ValueError(
            f"{path}: expected arrays x and y, or x_train, y_train, x_test and y_test, got "
            f"{', '.join(sorted(arrays)) or 'none'}; rename them"
        )
    if len(names) == 4 and n_train is not None:
        raise ValueError(
            f"{path}: expected n_train=None for a file with x_train and x_test, got {n_train}; leave it out "
            "(--train)"
        )
    x, *x_tests = (samples(path, name, arrays[name], dtype) for name in names[::2])
    ys = [
        labels(path, name, arrays[name], len(a)) for name, a in zip(names[1::2], (x, *x_tests), strict=True)
    ]
    if x_tests:
        if x.shape[1] != x_tests[0].shape[1]:
            raise ValueError(
                f"{path}: expected as many columns in x_test as in x_train, got {x_tests[0].shape[1]} and "
                f"{x.shape[1]}; store the same columns"
            )
        return [x, ys[0], x_tests[0], ys[1]]
    if n_train is None:
        return [x, ys[0]]
    if not 0 < n_train < len(x):
        raise _no_rows(path, len(x), n_train)
    return [x[:n_train], ys[0][:n_train], x[n_train:], ys[0][n_train:]]


def _no_rows(path: str | Path, n: int, n_train: int | None) -> ValueError:
    return ValueError(
        f"{path}: expected 0 < n_train < {n} for a file with x and y, got {n_train}; pass the number of rows "
        "to train on (--train N)"
    )


def _labels(path: str | Path, name: str, y: np.ndarray, n: int) -> np.ndarray:
    y = known(path, name, y, n, 1)
    if y.dtype.kind == "f":
        wrong = ~(np.isfinite(y) & (y == np.trunc(y)))
        if wrong.any():
            raise ValueError(
                f"{path}, {name}: expected labels that are whole numbers, got {y[wrong][0]!s}; store class "
                "labels: targets of a regression need --kind table --task regression"
            )
    return y


def other_kind(path: str | Path, y_train: np.ndarray, y_test: np.ndarray) -> TypeError:
    """The error for labels of two kinds, such as numbers and text."""
    return TypeError(
        f"{path}: expected labels of one kind in y_train and y_test, got {y_train.dtype} and "
        f"{y_test.dtype}; convert one of them"
    )


def _encoded(
    path: Path, y_train: np.ndarray, y_test: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # Labels as places in the array of all classes, and that array.
    same_kind = y_train.dtype.kind == y_test.dtype.kind
    if not same_kind and np.result_type(y_train, y_test).kind not in "iu":
        raise other_kind(path, y_train, y_test)
    classes, places = np.unique(np.concatenate([y_train, y_test]), return_inverse=True)
    if len(classes) > supervised.MAX_CLASSES:
        raise ValueError(
            f"{path}: expected labels of at most {supervised.MAX_CLASSES} classes, got {len(classes)}; "
            "store class labels: targets of a regression need --kind table --task regression"
        )
    places = places.reshape(-1).astype(np.int32)
    train, test = np.split(places, [len(y_train)])
    occurs = np.bincount(train, minlength=len(classes)) > 0
    if not occurs.all():
        absent = classes[~occurs]
        named = ", ".join(repr(label.item()) for label in absent[:5]) + (", ..." if len(absent) > 5 else "")
        raise ValueError(
            f"{path}: expected test labels that occur in training, got {named} only in y_test; drop those "
            "samples, or split the data again"
        )
    return train, test, classes


def load_data(path: str | os.PathLike[str], *, n_train: int | None = None) -> Data:
    """Returns the classification task that an .npz file holds.

    Parameters
    ----------
    path : path
        An archive with x_train, y_train, x_test, y_test, or with x and y. Samples are real numbers of any
        dtype and layout. Labels are integers, bools, whole numbers of a float dtype, or text.
    n_train : int, optional
        With x and y: the number of first rows to train on; the others are the test set.

    Returns
    -------
    Data
        x as float32, flattened to (n_samples, n_inputs); y as int32 places in `classes`.

    Raises
    ------
    FileNotFoundError, PermissionError
        No such file; a file that may not be read.
    ValueError
        Missing arrays; samples that float32 cannot hold; test labels that never occur in training; a damaged
        file.

    Examples
    --------
    >>> import numpy as np, os, tempfile
    >>> from hforest.demo import load_data
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "task.npz")
    ...     np.savez(path, x=np.eye(4), y=np.array(["bee", "ant", "bee", "ant"]))
    ...     data = load_data(path, n_train=3)
    >>> data.x_test
    array([[0., 0., 0., 1.]], dtype=float32)
    >>> data.y_train, data.classes
    (array([1, 0, 1], dtype=int32), array(['ant', 'bee'], dtype='<U3'))
    """
    path = Path(check.path("path", path))
    n_train = None if n_train is None else check.integer("n_train", n_train, 0)
    with files.opened(path, "an .npz archive of a data set") as arrays:
        split = parts(path, arrays, n_train, np.dtype(np.float32), _labels)
    if len(split) == 2:
        raise _no_rows(path, len(split[0]), n_train)
    x_train, y_train, x_test, y_test = split
    y_train, y_test, classes = _encoded(path, y_train, y_test)
    return Data(x_train, y_train, x_test, y_test, classes)


def hold_out(data: Data, n_rows: int, *, rng: Rng = None) -> Data:
    """Returns a task whose training rows are divided in two: the second part replaces the test rows.

    Parameters
    ----------
    data : Data
    n_rows : int
        Number of rows of the second part, 1 to n_samples - 1, drawn at random; both parts keep the order of
        rows.

    Returns
    -------
    Data
        Task for `train`, with the classes of `data`; a class may be absent from either part.

    Examples
    --------
    >>> from hforest.demo import hold_out, load_digits
    >>> parts = hold_out(load_digits(), 382, rng=0)
    >>> len(parts.x_train), len(parts.x_test)
    (3441, 382)
    """
    _check_data(data)
    n = len(data.x_train)
    n_rows = check.integer("n_rows", n_rows, 1, n - 1)
    in_test = np.zeros(n, bool)
    in_test[check.generator(rng).permutation(n)[:n_rows]] = True
    x, y = data.x_train, data.y_train
    return Data(x[~in_test], y[~in_test], x[in_test], y[in_test], data.classes)


def _check_data(data: Data) -> None:
    check.instance("data", data, Data, "a Data", "call hforest.demo.load_data")
    with check.fields_of("data"):
        check.same_device(**data._asdict())
        for name, a in data._asdict().items():
            if a.dtype.kind not in ("biuf" if name != "classes" else "biufSU"):
                raise TypeError(f"{name}: expected numbers, got dtype {a.dtype}; call hforest.demo.load_data")
        if data.x_train.ndim != 2 or data.y_train.shape != data.x_train.shape[:1]:
            raise ValueError(
                "x_train: expected rows of features and a class for each row in y_train, got shapes "
                f"{data.x_train.shape} and {data.y_train.shape}; call hforest.demo.load_data"
            )


def save_checkpoint(path: str | os.PathLike[str], config: Config, state: State, data: Data) -> None:
    """Writes the complete state of a run; an older file is replaced only when the new one is complete.

    Other parameters: see `train`. Errors are those of `hforest.tree.save`.

    Parameters
    ----------
    path : path
        The .npz file.
    data : Data
        Its checksum is stored, so that a run is not resumed on other data, and its classes, so that
        predictions can be mapped back to labels.
    """
    path = check.path("path", path)
    check_model(config, state)
    _check_data(data)
    check.require(
        config.task == "classification", "config", "a network for classification, since data has classes",
        config.task,
        "save the arrays of a regression with numpy.savez",
    )  # fmt: skip
    head = {"format": FORMAT, "config": asdict(config), "data": data.fingerprint}
    arrays: dict[str, Any] = {name: to_numpy(a) for name, a in state.items()}
    files.write_npz(path, {"head": np.array(json.dumps(head)), "classes": data.classes, **arrays})


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Returns the checkpoint in a file that `save_checkpoint` wrote, after checks.

    Parameters
    ----------
    path : path

    Returns
    -------
    Checkpoint
        config, state, fingerprint, classes.

    Raises
    ------
    FileNotFoundError, PermissionError, ValueError
        The file does not exist, or may not be read; it is damaged, not a checkpoint, or of another version.
    """
    return models.load(check.path("path", path), _LAYOUT)


def _head(arrays: files.Archive) -> dict[str, Any]:
    head = json.loads(files.text(arrays.small("head")))
    if not isinstance(head, dict):
        raise ValueError(f"the head is {head!r}, not a JSON object")
    return head


def _read(arrays: files.Archive, _: str) -> Checkpoint:
    head = _head(arrays)
    if head["format"] != FORMAT:
        raise models.OtherFormatError(head["format"])
    config, step = Config(**head["config"]), arrays.small("step")
    if step.shape != () or step.dtype.kind not in "iu":
        raise ValueError(f"the step is {step}, not an integer")
    small = start(replace(config, n_trees=1, depth=1, n_features=1, n_kernels=0), 1, 1)
    names = [*small, *(f"history_{name}" for name in (*HISTORY, "pending"))]
    state: State = {name: arrays[name] for name in names if name in arrays} | {"step": int(step)}
    classes = arrays["classes"]
    _check_state(config, state, small, classes)
    return Checkpoint(config, state, int(head["data"]), classes)


_LAYOUT = models.Layout(
    "a checkpoint written by hforest",
    _read,
    "restore it or start again without --resume",
    missing="a file without {}; restore it or start again without --resume",
    other_format=f"a checkpoint written by hforest in format {FORMAT}, got format {{}}; start again "
    "without --resume, or resume with the version of hforest that wrote it",
)


def is_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Returns whether a file starts with the header of a checkpoint of any version."""
    name = check.path("path", path)
    try:
        with files.opened(name, _LAYOUT.what) as arrays:
            return {"format", "config", "data"} <= _head(arrays).keys()
    except (KeyError, ValueError, RecursionError):
        return False


def _check_state(config: Config, state: State, small: State, classes: np.ndarray) -> None:
    # The same arrays, dtypes and shapes as a new run's, and indices in their range. A new state of the same
    # sizes would take the memory of a second model: a small one has the same names and dtypes.
    kernel = state["kernel"]
    if kernel.ndim != (3 if config.n_kernels else 2) or state["weights"].ndim != small["weights"].ndim:
        raise ValueError(f"kernel is of shape {kernel.shape} and weights of shape {state['weights'].shape}")
    last = state["weights" if config.leaves == "vector" else "mixing"].shape[-1:]
    if classes.shape != last:
        raise ValueError(
            f"classes are of shape {classes.shape}, and the outputs of the network of shape {last}"
        )
    # The file does not hold the number of inputs: that of images follows from the features of their windows.
    n_features = state["mean"].size if config.n_kernels else config.n_features or kernel.shape[0]
    sizes = {"n_inputs": kernel.shape[0], "n_classes": len(classes), "n_normalized": n_features}
    for name, axes in shapes(config).items():
        a: Any = state[name]
        shape, like = tuple(sizes.get(str(axis), axis) for axis in axes), small[name]
        dtype = like.dtype if like.dtype.kind == "i" else kernel.dtype
        if a.shape != shape or a.dtype != dtype:
            raise ValueError(f"{name} is of shape {a.shape}, {a.dtype} instead of {shape}, {dtype}")
        # Steps of the last updates.
        if name.endswith("_last") and (a.min() < 0 or a.max() > state["step"]):
            raise ValueError(f"{name} is from {a.min()} to {a.max()} instead of 0 to step {state['step']}")
    if state["step"] < 0:
        raise ValueError(f"step is {state['step']} instead of 0 or more")
    known = [state[f"history_{name}"] for name in HISTORY if f"history_{name}" in state]
    if known and (len(known) != len(HISTORY) or len({a.shape for a in known}) > 1 or known[0].ndim != 1):
        raise ValueError(f"histories are of shapes {', '.join(str(a.shape) for a in known)}")
    f = state["features"]
    if f.min() < 0 or f.max() >= n_features:
        raise ValueError(f"features are from {f.min()} to {f.max()} instead of 0 to {n_features - 1}")


def resumed(path: str | Path, config: Config, data: Data) -> State:
    """Returns the state of a checkpoint of the same run: of equal options, classes and data."""
    checkpoint = load_checkpoint(path)
    wanted, got = asdict(config), asdict(checkpoint.config)
    others = [f"{k} {got[k]} (now {wanted[k]})" for k in wanted if k != "steps" and wanted[k] != got[k]]
    if others:
        raise ValueError(
            f"{path}: expected a run with the same options, got {', '.join(others)}; repeat the options of "
            "that run"
        )
    if not _same(checkpoint.classes, data.classes):
        raise ValueError(
            f"{path}: expected a run on the same classes, got a run on {_shown(checkpoint.classes)} (now "
            f"{_shown(data.classes)}); check --data"
        )
    if checkpoint.fingerprint != data.fingerprint:
        raise ValueError(
            f"{path}: expected a run on the same data, got a run on other data; check --data, --train and "
            "held_out of --set"
        )
    return checkpoint.state


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    # Integers of every dtype are of one kind.
    kinds = {"i" if classes.dtype.kind == "u" else classes.dtype.kind for classes in (a, b)}
    return len(kinds) == 1 and a.tolist() == b.tolist()


def _shown(classes: np.ndarray) -> str:
    first = ", ".join(repr(label.item()) for label in classes[:10])
    return f"{first}, ... ({len(classes)} classes)" if len(classes) > 10 else first
