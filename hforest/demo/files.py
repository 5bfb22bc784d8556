"""Data sets and checkpoints as plain .npz files."""

import json
import os
import zipfile
import zlib
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.dispatch import to_numpy
from .network import WINDOW, Config, State, start

FORMAT = 1


class Data(NamedTuple):
    """A classification task: float32 rows, int32 labels 0 to n_classes - 1."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    @property
    def n_classes(self) -> int:
        """One more than the highest label."""
        return 1 + int(max(self.y_train.max(), self.y_test.max()))

    @property
    def fingerprint(self) -> int:
        """A checksum of the arrays, by which a checkpoint knows its data again."""
        value = 0
        for a in self:
            value = zlib.crc32(np.ascontiguousarray(a).data, value)
        return value


def load_digits() -> Data:
    """The handwritten digits that ship with the package: 3823 to learn from, 1797 to test on.

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


def _read(path: Path, what: str) -> dict[str, np.ndarray]:
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("not a zip archive" if path.stat().st_size else "an empty file")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: expected {what}, got no such file; check the path") from None
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{path}: expected {what}, got an unreadable file ({error}); "
            "it is damaged, cut short or of another kind: restore it or start anew"
        ) from None


def _part(path: Path, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if x.ndim < 2 or y.ndim != 1 or len(x) != len(y) or not len(x):
        raise ValueError(
            f"{path}: expected x of shape (n_samples, ...) and y of shape (n_samples,), "
            f"got {x.shape} and {y.shape}; store them so"
        )
    if x.dtype.kind not in "uif" or y.dtype.kind not in "ui":
        raise TypeError(f"{path}: expected numbers in x and integers in y, got {x.dtype} and {y.dtype}")
    if y.min() < 0 or y.max() >= 2**31 - 1:
        raise ValueError(f"{path}: expected labels of 0 and up, got {y.min()} to {y.max()}; renumber them")
    return x.reshape(len(x), -1).astype(np.float32), y.astype(np.int32)


def load_data(path: str | os.PathLike[str], n_train: int | None = None) -> Data:
    """Read a classification task from an .npz file.

    Parameters
    ----------
    path : path
        An archive with x_train, y_train, x_test, y_test, or with x and y.
    n_train : int, optional
        With x and y: that many first rows to learn from, the others to test on.

    Returns
    -------
    Data
        x as float32, flattened to (n_samples, n_inputs); y as int32.

    Raises
    ------
    FileNotFoundError, TypeError, ValueError
        No such file; not numbers; missing arrays, wrong shapes, a damaged file.

    Examples
    --------
    >>> import numpy as np, os, tempfile
    >>> from hforest.demo import load_data
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "task.npz")
    ...     np.savez(path, x=np.eye(4), y=np.arange(4))
    ...     load_data(path, n_train=3).x_test
    array([[0., 0., 0., 1.]], dtype=float32)
    """
    path = Path(path)
    arrays = _read(path, "an .npz archive of a data set")
    split = ("x_train", "y_train", "x_test", "y_test")
    if all(name in arrays for name in split):
        if n_train is not None:
            raise ValueError(f"{path}: expected no n_train, got {n_train}; the file has a split of its own")
        x_train, y_train = _part(path, arrays["x_train"], arrays["y_train"])
        x_test, y_test = _part(path, arrays["x_test"], arrays["y_test"])
        if x_train.shape[1] != x_test.shape[1]:
            raise ValueError(
                f"{path}: expected as many columns in x_test as in x_train, "
                f"got {x_test.shape[1]} and {x_train.shape[1]}"
            )
        return Data(x_train, y_train, x_test, y_test)
    if not ("x" in arrays and "y" in arrays):
        raise ValueError(
            f"{path}: expected arrays x_train, y_train, x_test, y_test, or x and y, "
            f"got {', '.join(sorted(arrays)) or 'none'}; rename them"
        )
    x, y = _part(path, arrays["x"], arrays["y"])
    if n_train is None or not 0 < n_train < len(x):
        raise ValueError(
            f"{path}: expected 0 < n_train < {len(x)} for a file without a split, got {n_train}; "
            "say how many first rows to train on (--train N)"
        )
    return Data(x[:n_train], y[:n_train], x[n_train:], y[n_train:])


def save_checkpoint(path: str | os.PathLike[str], config: Config, state: State, data: Data) -> None:
    """Write a run's whole state, replacing the file only when the new one is complete.

    Parameters
    ----------
    path : path
        The .npz file.
    config : Config
    state : dict
        As `train` hands it to its callback at a look at the test set.
    data : Data
        Its checksum is stored, so that a run is not resumed on other data.

    Raises
    ------
    OSError
        The file cannot be written; an older one at that place is still whole.
    """
    path = Path(path)
    head = {"format": FORMAT, "config": asdict(config), "data": data.fingerprint}
    temporary = path.with_name(path.name + ".tmp")
    arrays: dict[str, Any] = {name: to_numpy(a) for name, a in state.items()}
    with open(temporary, "wb") as file:
        np.savez(file, head=np.array(json.dumps(head)), **arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load_checkpoint(path: str | os.PathLike[str]) -> tuple[Config, State, int]:
    """Read what `save_checkpoint` wrote, and check that it can be run.

    Parameters
    ----------
    path : path

    Returns
    -------
    config : Config
    state : dict
        NumPy arrays.
    fingerprint : int
        Checksum of the data that the run learns from.

    Raises
    ------
    FileNotFoundError, ValueError
        No such file; a damaged file, or one that is no checkpoint.
    """
    path = Path(path)
    arrays = _read(path, "a checkpoint written by hforest")
    try:
        head = json.loads(str(arrays.pop("head")))
        if head["format"] != FORMAT:
            raise ValueError(f"format {head['format']}, this version reads {FORMAT}")
        config = Config(**head["config"])
        state: State = {**arrays, "step": int(arrays["step"])}
        _check_state(config, state)
        return config, state, int(head["data"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ValueError(
            f"{path}: expected a checkpoint written by hforest, got a file with {error}; "
            "restore it or start anew without --resume"
        ) from None


def _check_state(config: Config, state: State) -> None:
    # The same arrays, dtypes and shapes as a new run's, and indices that stay inside them.
    kernel = state["kernel"]
    if kernel.ndim != (3 if config.kernels else 2) or state["weights"].ndim != 3:
        raise ValueError(f"kernel of shape {kernel.shape} and weights of shape {state['weights'].shape}")
    # A fresh state of the same sizes would cost the memory of a second model: compare shapes of a
    # small one instead, whose large axes are then put in.
    small = start(Config(config.kind, 1, 1, 1, optimizer=config.optimizer), 1, state["weights"].shape[2])
    # The number of inputs is not in the file: images are known by the features that their windows make.
    n_features = state["mean"].size if config.kernels else config.features
    inputs = (WINDOW, WINDOW) if config.kernels else (kernel.shape[0],)
    sizes: dict[str, tuple[int, ...]] = {
        "kernel": (config.kernels, *inputs) if config.kernels else (*inputs, config.features),
        "thresholds": (config.trees, 2**config.depth - 1 if config.kind == "tree" else config.depth),
        "weights": (config.trees, 2**config.depth, state["weights"].shape[2]),
        "mean": (n_features,),
        "var": (n_features,),
    }
    sizes["features"] = sizes["thresholds"]
    for name, like in small.items():
        if name == "step":
            continue
        a: Any = state[name]
        shape = sizes[name.rsplit("_", 1)[0]]
        if name == "weights_last":
            shape = shape[:2]  # of a leaf, not of its outputs
        dtype = like.dtype if like.dtype.kind == "i" else kernel.dtype
        if a.shape != shape or a.dtype != dtype:
            raise ValueError(f"{name} of shape {a.shape}, {a.dtype} instead of {shape}, {dtype}")
    f = state["features"]
    if f.min() < 0 or f.max() >= n_features:
        raise ValueError(f"features from {f.min()} to {f.max()} instead of 0 to {n_features - 1}")
