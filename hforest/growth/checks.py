"""Checks that functions which grow forests share."""

from typing import Any

import numpy as np

from ..core import blocks, check, dispatch, supervised
from ..core.aliases import Array, ArrayLike, Criterion, IntArray, Task
from .trees import Learned

BIN_DTYPES = tuple(np.dtype(t) for t in (np.uint8, np.uint16, np.uint32))
SPLITTERS = ("best", "random")
POISSON = "poisson"


def has_missing_rows(lazy: blocks.Unconverted, is_categorical: np.ndarray | None) -> bool:
    """Returns whether large samples have missing values, after the usual checks."""
    has_missing = False
    for part, rows in lazy.rows():
        has_missing |= blocks.check_rows("x", part, rows, lazy.source, True)
    if is_categorical is not None and check.values_checked():
        for f in np.flatnonzero(is_categorical).tolist():
            supervised.check_categories("x", lazy.columns(slice(f, f + 1))[:, 0], f)
    return has_missing


def check_windows(samples: Any, task: Task) -> None:
    """Checks that trees can grow on windows: no missing values and no targets of a regression."""
    check.choice("task", task, supervised.TASKS)
    if samples.are_windows:
        check.require(
            not samples.has_missing, "x", "windows without NaN", "missing values",
            "copy the windows into an array to grow on missing values",
        )  # fmt: skip
        check.require(
            task == "classification", "task", '"classification" for windows', repr(task),
            "copy the windows into an array for regression",
        )  # fmt: skip


def check_bootstrap(bootstrap: bool | str | Array, n_trees: int, n_samples: int, beside: Array) -> Any:
    """Returns a bool, "poisson", or in-bag counts on the device of the array `beside`."""
    if isinstance(bootstrap, bool | np.bool_):
        return bool(bootstrap)
    if isinstance(bootstrap, str):
        return str(check.choice("bootstrap", bootstrap, (POISSON,)))
    counts = supervised.in_bag_counts("bootstrap", bootstrap, n_trees, n_samples)
    check.same_device(x=beside, bootstrap=counts)
    if check.values_checked():
        supervised.check_drawn("bootstrap", counts.any(axis=1))
    return counts


def check_order(
    order: ArrayLike | None, n_trees: int, n_samples: int, beside: Array, class_weight: Any
) -> IntArray | None:
    """Returns None, or int32 numbers of samples for each tree, on the CPU like the array `beside`."""
    if order is None:
        return None
    check.on_cpu(y_order=order)
    check.require(
        dispatch.array_module(beside) is np, "y_order", "None with CuPy arrays", "an array",
        "pass NumPy arrays, or call once per tree", TypeError,
    )  # fmt: skip
    numbers = supervised.integers_of_objects(supervised.as_given("y_order", order))
    shape = (n_trees, n_samples)
    check.require(
        numbers.dtype.kind in "iu", "y_order", "an array of an integer dtype", numbers.dtype,
        "pass sample indices, such as permutations", TypeError,
    )  # fmt: skip
    check.require(
        numbers.shape == shape, "y_order", f"shape (n_trees, n_samples) = {shape}", tuple(numbers.shape),
        "pass a row for each tree",
    )  # fmt: skip
    # Backends follow these: they are read inside unchecked(), too.
    low, high = int(numbers.min()), int(numbers.max())
    check.require(
        0 <= low and high < n_samples, "y_order", f"sample indices below {n_samples}", f"{low} to {high}",
        "sample indices start at 0", IndexError,
    )  # fmt: skip
    check.require(
        class_weight is None, "class_weight", "None with y_order", "class weights",
        "multiply them into sample_weight, which stays with the samples",
    )  # fmt: skip
    return supervised.converted_numbers(numbers, check.INT32)


def check_learned(
    y: ArrayLike,
    beside: Array,
    n_samples: int,
    *,
    task: Task,
    n_classes: int | None,
    sample_weight: ArrayLike | None,
    class_weight: Any = None,
    criterion: Criterion | None,
    limits: supervised.Limits,
    dtype: np.dtype,
) -> Learned:
    """Returns labels or targets on the device of the array `beside`, sample weights, and settings.

    `dtype` is that of the forest.
    """
    most = min(supervised.MAX_WEIGHT, float(np.finfo(dtype).max))  # leaves hold mean targets
    target = supervised.target(y, n_samples, task, n_classes, most)
    learned: Any = target.targets if target.labels is None else target.labels
    check.same_device(x=beside, y=learned)
    weight = supervised.sample_weight(sample_weight, learned)
    supervised.similar("sample_weight", weight)
    if class_weight is not None:
        weight = supervised.class_weight(class_weight, target, weight)
        supervised.similar("class_weight", weight)
    return Learned(target, weight, supervised.criterion(criterion, task), limits)
