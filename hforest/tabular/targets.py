"""Labels of any kind as class numbers, without a detour by float64 or text that would merge some of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core import check
from ..core.aliases import ArrayLike, IntArray
from ..core.real import as_given
from .tables import WORDS, _group

FEW = 20
"""Number of classes up to which each may have a single row."""


def labels(y: ArrayLike, name: str = "y") -> tuple[np.ndarray, IntArray]:
    """Returns the classes of labels of one kind: text, booleans, integers or other numbers.

    Parameters
    ----------
    y : (n_samples,) array_like
        Labels. The items of a list keep their Python types.
    name : str
        Name of the argument in messages.

    Returns
    -------
    classes : (n_classes,) array
        The labels that occur, in ascending order: text as StringDType, numbers of the dtype of y.
    places : (n_samples,) array of int64
        Places of the labels in `classes`.

    Raises
    ------
    TypeError
        Labels of several kinds, such as 1 and "1", or of another one.
    ValueError
        A missing label; more than 20 classes that are more than half of the rows.

    Examples
    --------
    >>> import hforest
    >>> classes, places = hforest.tabular.labels(["no", "yes", "no"])
    >>> classes.tolist(), places.tolist()
    (['no', 'yes'], [0, 1, 0])
    """
    a = one_kind(name, y)
    check.require(a.ndim == 1, name, "shape (n_samples,)", a.shape, "pass one label for each sample")
    if a.dtype.kind in "UO" and len(a) and isinstance(a[0], str):
        a = np.array(a.tolist(), np.dtypes.StringDType())
    if a.dtype.kind == "f":
        check.finite(name, a, remedy="drop such samples")
    classes, places = np.unique(a, return_inverse=True)
    if len(classes) > max(FEW, len(a) // 2):
        raise ValueError(
            f"{name}: expected classes of several rows each, got {len(classes)} classes in {len(a)} rows; pass "
            'task="regression" for numbers, or merge classes'
        )
    return classes, places.reshape(-1)


def one_kind(name: str, y: Any) -> np.ndarray:
    """Returns labels as an array, after checking that all are of one kind and that none is missing."""
    a = y
    if isinstance(y, list | tuple) and not any(isinstance(item, list | tuple | np.ndarray) for item in y[:1]):
        a = np.empty(len(y), object)
        for i, item in enumerate(y):
            a[i] = item
    a = as_given(name, a)
    if a.dtype.kind == "S":
        a = np.strings.decode(a, "utf-8")
    if a.dtype.kind in "biufUT":
        return a
    check.require(
        a.dtype.kind == "O", name, "text, booleans or numbers", f"dtype {a.dtype}", "convert them", TypeError
    )
    first: dict[str, int] = {}
    for i, item in enumerate(a.ravel().tolist()):
        kind = _group(type(item))
        if kind == "missing" or item != item:
            raise ValueError(
                f"{name}: expected a label of each sample, got {item} at index {i}; drop such samples"
            )
        first.setdefault(kind, i)
    if len(first) > 1 or not first.keys() <= {"text", "boolean", "number"}:
        flat = a.ravel()
        each = " and ".join(
            f"{WORDS.get(kind, 'objects')} such as {flat[i]!r:.60} at index {i}" for kind, i in first.items()
        )
        raise TypeError(f"{name}: expected labels of one kind, got {each}; convert them")
    if "text" in first or not first:
        return a
    if "boolean" in first:
        return a.astype(bool)
    whole = all(item == int(item) for item in a.ravel().tolist())
    try:
        exact = np.array([int(item) for item in a.ravel().tolist()], np.int64) if whole else None
    except OverflowError:
        raise ValueError(
            f"{name}: expected labels in the range of int64, got larger integers; pass them as text"
        ) from None
    if exact is not None and not all(isinstance(item, float) for item in a.ravel().tolist()):
        return exact.reshape(a.shape)
    return a.astype(np.float64)


def places_of(classes: np.ndarray, y: ArrayLike, name: str = "y") -> IntArray:
    """Returns the places (n_samples,) int64 of labels in `classes`, -1 for other labels."""
    place = {label: i for i, label in enumerate(classes.tolist())}
    values = one_kind(name, y).ravel().tolist()
    return np.fromiter((place.get(value, -1) for value in values), np.int64, len(values))


def known_places(name: str, classes: np.ndarray, y: ArrayLike) -> IntArray:
    """Returns `places_of` labels that are all classes; IndexError for others."""
    places = places_of(classes, y, name)
    unknown = np.flatnonzero(places < 0)
    if len(unknown):
        got = f"{one_kind(name, y).ravel()[unknown[0]]!r:.60} at index {unknown[0]}"
        known = ", ".join(map(repr, classes[:8].tolist())) + (", ..." if len(classes) > 8 else "")
        raise IndexError(
            f"{name}: expected labels of the classes {known}, got {got}; drop such samples, or pass n_classes"
        )
    return places


def class_weight_of(class_weight: Any, classes: np.ndarray) -> Any:
    """Returns `class_weight` with class numbers in place of labels."""
    if not isinstance(class_weight, Mapping):
        return class_weight
    place = {label: i for i, label in enumerate(classes.tolist())}
    unknown = [label for label in class_weight if label not in place]
    check.require(
        not unknown, "class_weight", "labels of y", repr(unknown[:1]), "leave out labels that do not occur"
    )
    return {place[label]: weight for label, weight in class_weight.items()}
