"""Checks and conversion of samples, labels, targets, weights and settings of supervised functions.

Functions that grow or apply forests are lenient: they take what `numpy.asarray` takes, and copy it if
necessary. The rule of dtypes:

===================================================  =========================
dtype of an argument                                 dtype of computations
===================================================  =========================
bool, integers of 8 and 16 bits, float16, float32    float32 (exact)
other integers, float64, longdouble                  float64
x of a forest that exists                            the dtype of the forest
targets, weights of samples and classes              float64
===================================================  =========================

Results are new arrays or the argument itself; no function here writes into an argument.
"""

import math
from numbers import Integral
from typing import Any, NamedTuple, NoReturn

import numpy as np

from . import check, gpu, scores
from .aliases import Array, ArrayLike, Classes, FloatArray, IntArray, Task
from .dispatch import array_module, to_numpy
from .gpu import cast
from .real import as_given as as_given
from .real import real as real
from .real import rows_of

MAX_CLASSES = 2**20
MAX_WEIGHT = 1e100
"""Bound of weights and targets; `scaled_weight` keeps their products and sums from overflowing."""

_SPREAD = 2.0**300
"""Bound of the ratio of two weights above 0: squares of sums of the least must not underflow."""

TASKS = ("classification", "regression")

_FLOAT64 = np.dtype(np.float64)


# ------------------------------------------------------------------------------------------- arrays


def converted_numbers(a: Array, dtype: np.dtype) -> Array:
    """Returns `a` in C order, aligned, of `dtype`; `a` itself if it is so."""
    if isinstance(a, np.ndarray):
        with np.errstate(over="ignore", invalid="ignore"):
            return np.require(a, dtype, ["C", "A"])
    if a.dtype in check.FLOATS and dtype in check.FLOATS:
        return cast(array_module(a).ascontiguousarray(a), dtype)
    return array_module(a).ascontiguousarray(a, dtype)


def owned_numbers(a: Array, dtype: np.dtype) -> Array:
    """Returns `converted_numbers` in memory of its own (`check.owned`)."""
    converted = converted_numbers(a, dtype)
    return check.owned(converted) if array_module(a).may_share_memory(converted, a) else converted


def float_dtype(a: Array) -> np.dtype:
    """Returns the dtype of computations on `a`: float32 if it holds every value of the dtype of `a`."""
    return np.dtype(np.float32) if np.result_type(a.dtype, np.float32) == np.float32 else _FLOAT64


_AXES = ("n_samples", "n_features")


def matrix(
    name: str,
    a: ArrayLike,
    dtype: np.dtype | None = None,
    axes: tuple[str, str] = _AXES,
    *,
    missing: bool = False,
    remedy: str = check.DROP,
) -> FloatArray:
    """Returns a C-contiguous matrix of finite numbers, of `dtype` or by the rule of dtypes.

    `axes` are the names of its axes in messages; `missing` allows NaN; `remedy` is for NaN and infinity.
    """
    return matrix_or_missing(name, a, dtype, missing, remedy, axes)[0]


def matrix_or_missing(
    name: str, a: ArrayLike, dtype: np.dtype | None, missing: bool, remedy: str, axes: tuple[str, str] = _AXES
) -> tuple[FloatArray, bool]:
    """Returns what `matrix` returns, and whether some numbers are missing."""
    numbers = real(name, a)
    rows_of(name, numbers, axes)
    converted = converted_numbers(numbers, float_dtype(numbers) if dtype is None else dtype)
    return converted, check_finite(name, converted, numbers, missing, remedy)


def one_sample(
    name: str, a: ArrayLike, dtype: np.dtype, *, missing: bool = False, remedy: str = check.DROP
) -> FloatArray:
    """Returns one sample as (n_features,) of `dtype`: C-contiguous, finite, or with NaN if `missing`."""
    numbers = real(name, a)
    of_shape = f"pass one of its rows, such as {name}[0]" if numbers.ndim == 2 else "pass one sample"
    check.require(numbers.ndim == 1, name, "shape (n_features,)", tuple(numbers.shape), of_shape)
    converted = converted_numbers(numbers, dtype)
    check_finite(name, converted, numbers, missing, remedy)
    return converted


def check_finite(
    name: str, converted: Array, numbers: Array, missing: bool, remedy: str = check.DROP
) -> bool:
    """Returns whether there are missing values, if allowed; `numbers` are the unconverted values."""
    try:
        if missing:
            return check.finite_or_missing(name, converted)
        check.finite(name, converted, remedy=remedy)
        return False
    except ValueError:
        xp = array_module(numbers)
        fine = ~xp.isinf(numbers) if missing else xp.isfinite(numbers)
        if numbers.dtype != converted.dtype and bool(fine.all()):
            raise ValueError(
                f"{name}: expected numbers in the range of {converted.dtype}, got larger ones in "
                f"{numbers.dtype}; scale the features"
            ) from None
        raise


def samples(name: str, x: ArrayLike) -> FloatArray:
    """Returns training samples as `matrix`, with at least one row and column, fewer than 2**31 of each."""
    x = matrix(name, x)
    check_sizes(name, x.shape)
    return x


def samples_or_missing(name: str, x: ArrayLike) -> tuple[FloatArray, bool]:
    """Returns samples as `samples`, with NaN for missing values, and whether there are any."""
    converted, has_missing = matrix_or_missing(name, x, None, True, check.DROP)
    check_sizes(name, converted.shape)
    return converted, has_missing


def check_sizes(name: str, shape: tuple[int, ...]) -> None:
    """Checks that there are training samples and features."""
    n, n_features = shape
    most = check.MAX_COUNT
    check.require(1 <= n <= most, name, "1 to 2**31 - 1 samples", n, "pass samples to learn from")
    check.require(1 <= n_features <= most, name, "1 to 2**31 - 1 features", n_features, "pass some columns")


def _check_vector(name: str, a: Array, n: int) -> None:
    remedy = f"pass numpy.ravel({name})" if a.size == n else "pass one for each sample"
    check.require(a.shape == (n,), name, f"shape (n_samples,) = ({n},)", tuple(a.shape), remedy)


# ------------------------------------------------------------------------------------------- labels


def labels(
    name: str,
    y: ArrayLike,
    n: int,
    n_classes: Classes = None,
    *,
    or_targets: bool = False,
    kernels_index: bool = True,
) -> tuple[IntArray, int]:
    """Returns labels as int32, and the number of classes.

    Labels are integers or bools from 0 to n_classes - 1. If n_classes is None, each class must occur, and
    their number is the largest label plus 1; otherwise classes may be absent. With `or_targets` the remedy
    for real numbers names the argument `task`. Without `kernels_index`, labels on a GPU, which
    index no memory there, are not copied.
    """
    numbers = integers_of_objects(as_given(name, y))
    if kernels_index or isinstance(numbers, np.ndarray):
        numbers = check.owned(numbers)
    remedy = f"renumber the classes with numpy.unique({name}, return_inverse=True)[1]"
    kind = numbers.dtype.kind
    if kind in ("f", "O") and isinstance(numbers, np.ndarray):
        _labelled(name, numbers)
    regression = ', or pass task="regression" for targets' if or_targets and kind == "f" else ""
    check.require(
        kind in "biu",
        name,
        "labels of an integer or bool dtype",
        numbers.dtype,
        remedy + regression,
        TypeError,
    )
    _check_vector(name, numbers, n)
    if n_classes is not None:
        n_classes = check.integer("n_classes", n_classes, 1, MAX_CLASSES)
        if not check.values_checked():
            return converted_numbers(numbers, check.INT32), n_classes
        if not isinstance(numbers, np.ndarray) and numbers.dtype in (check.INT32, check.INT64):
            _on_gpu(name, numbers, n_classes, remedy)
            return converted_numbers(numbers, check.INT32), n_classes
    low, high = (int(numbers.min()), int(numbers.max())) if n else (0, -1)
    _in_range(name, low, high, n_classes, remedy)
    if n_classes is not None:
        return converted_numbers(numbers, check.INT32), n_classes
    n_classes = max(high + 1, 1)
    check.require(n_classes <= MAX_CLASSES, name, "labels below 2**20", high, remedy)
    converted = converted_numbers(numbers, check.INT32)
    absent = array_module(converted).bincount(converted, minlength=n_classes) == 0
    check.require(
        not n or not absent.any(), name, f"labels 0 to {high} that each occur",
        f"none of class {int(absent.argmax())}",
        f"{remedy}, or pass n_classes={n_classes} if that class exists",
    )  # fmt: skip
    return converted, n_classes


def _labelled(name: str, y: np.ndarray) -> None:
    """Checks that no label is missing, before advice that would make a class of missing labels, or fail."""
    for i, label in enumerate(y.ravel().tolist()):
        if type(label).__name__ in ("NoneType", "NAType", "NaTType") or label != label:
            raise ValueError(
                f"{name}: expected a label of each sample, got {label} at index {i}; drop such samples"
            )


def _in_range(name: str, low: int, high: int, n_classes: int | None, remedy: str) -> None:
    # low and high are the least and the largest label.
    check.require(low >= 0, name, "labels of at least 0", low, remedy, IndexError)
    check.require(
        n_classes is None or high < n_classes, name, f"0 <= label < n_classes = {n_classes}", high,
        f"pass a larger n_classes, or {remedy}", IndexError,
    )  # fmt: skip


def _on_gpu(name: str, y: Array, n_classes: int, remedy: str) -> None:
    # This is one kernel, together with other checks, in place of two reductions.
    def fail(i: int) -> None:
        label = int(y[i])
        _in_range(name, label, label, n_classes, remedy)

    check.values(y, gpu.INDEX if y.dtype == check.INT32 else gpu.STEP, fail, n_classes)


def integers_of_objects(a: Array) -> Array:
    """Returns an array of Python's integers as int64, clipped to its range, and other arrays unchanged."""
    if a.dtype.kind != "O" or not all(isinstance(label, Integral | np.bool_) for label in a.flat):
        return a
    high = np.iinfo(np.int64).max
    return np.array([max(-high, min(int(label), high)) for label in a.flat], np.int64).reshape(a.shape)


def targets(name: str, y: ArrayLike, n: int, most: float = MAX_WEIGHT) -> FloatArray:
    """Returns targets of a regression as (n_samples, n_outputs) float64."""
    numbers = real(name, y)
    check.require(
        numbers.ndim in (1, 2) and len(numbers) == n and numbers.shape[1:] != (0,), name,
        f"shape (n_samples,) or (n_samples, n_outputs) with n_samples = {n}", tuple(numbers.shape),
        "pass a row for each sample",
    )  # fmt: skip
    n_outputs = 1 if numbers.ndim == 1 else numbers.shape[1]
    check.require(n_outputs <= MAX_CLASSES, name, "at most 2**20 outputs", n_outputs, "fit them in parts")
    converted = owned_numbers(numbers, _FLOAT64).reshape(n, n_outputs)
    bounded(name, converted, -most, most)
    return converted


class Target(NamedTuple):
    """Labels or targets of trees."""

    labels: IntArray | None
    """(n_samples,) int32."""
    targets: FloatArray | None
    """(n_samples, n_outputs) float64."""
    n_outputs: int
    """Number of classes or targets."""
    class_start: IntArray | None = None
    """(n_labels + 1,) int64 of several labels a sample: `targets` are indicators of classes, and those of
    label j the columns class_start[j] to class_start[j + 1] - 1. None: one label a sample, or targets."""

    @property
    def y(self) -> Any:
        """The labels, or the targets."""
        return self.targets if self.labels is None else self.labels


def target(y: ArrayLike, n: int, task: Task, n_classes: Classes, most: float = MAX_WEIGHT) -> Target:
    """Returns the labels or targets `y` of `n` samples; `n_classes` is for classification only."""
    check.choice("task", task, TASKS)
    if task == "classification":
        numbers, found = labels("y", y, n, n_classes, or_targets=True)
        return Target(numbers, None, found)
    alone = 'None with task="regression"'
    check.require(n_classes is None, "n_classes", alone, repr(n_classes), "leave it out")
    numbers = targets("y", y, n, most)
    return Target(None, numbers, numbers.shape[1])


# ------------------------------------------------------------------------------------------- weights


def bounded(name: str, a: FloatArray, low: float, high: float) -> None:
    """Returns numbers after a check that they are from low to high, without NaN and infinity."""
    if not check.values_checked() or not a.size:
        return
    least, greatest = float(a.min()), float(a.max())
    if least >= low and greatest <= high:
        return  # NaN fails both comparisons
    check.finite(name, a)
    raise ValueError(
        f"{name}: expected numbers from {low:g} to {high:g}, got {least:g} to {greatest:g}; "
        "scale them, or drop such samples"
    )


def sample_weight(
    weight: ArrayLike | None, y: Array, most: float = MAX_WEIGHT, *, some_above_0: bool = True
) -> FloatArray:
    """Returns weights of the samples of `y` as (n_samples,) float64, by default not all 0; ones for None."""
    if weight is None:
        return array_module(y).ones(len(y))
    numbers = real("sample_weight", weight)
    _check_vector("sample_weight", numbers, len(y))
    check.same_device(y=y, sample_weight=numbers)
    converted = owned_numbers(numbers, _FLOAT64)
    bounded("sample_weight", converted, 0.0, most)
    check_some_weight(not some_above_0 or (converted > 0).any())
    return converted


def check_some_weight(above_0: object) -> None:
    """Checks that some weights of samples are above 0."""
    remedy = "pass a weight above 0 for at least one sample"
    check.require(above_0, "sample_weight", "at least one weight above 0", "only zeros", remedy)


def similar(name: str, weight: FloatArray) -> None:
    """Checks that weights are 0 or within a factor of 2**300 (2e90) of each other."""
    if not check.values_checked() or not weight.size:
        return
    greatest = float(weight.max())
    least = float(array_module(weight).where(weight > 0, weight, greatest).min())
    check.require(
        not greatest / _SPREAD > least, name, f"weights that are 0 or within a factor of {_SPREAD:g} of "
            "each other",
        f"{least:g} and {greatest:g}", "set the small ones to 0",
    )  # fmt: skip


def _exponent(a: FloatArray) -> int:
    """Returns the least e with all numbers below 2**e; 0 if all are 0."""
    return math.frexp(max(float(a.max()), -float(a.min())))[1] if a.size else 0


def scaled_weight(
    weight: FloatArray, targets: FloatArray | None, dtype: np.dtype, n_drawn: int
) -> tuple[FloatArray, int]:
    """Returns `weight` times 2**e, and e, so that sums are in range, and gains in the range of `dtype`.

    e is 0 unless weights, or products of weights and squared targets, are far from 1. A power of two changes
    no bit of a mean, a share or a threshold, and only the exponent of a gain. `n_drawn` is the maximum number
    of samples that a tree draws.
    """
    heavy = _exponent(weight)
    # A gain is at most the entropy or the squared error of the root: n_drawn 2**gain, times log2(n_classes).
    large = 0 if targets is None else 2 * max(-400, min(_exponent(targets), 150))
    gain = heavy + (0 if targets is None else 2 * _exponent(targets))
    spare = n_drawn.bit_length() + (5 if targets is None else 0)
    low, high = (-80, 127 - spare) if dtype.itemsize == 4 else (-300, 600)
    if -100 <= heavy <= 250 and low <= gain <= high:
        return weight, 0
    return array_module(weight).ldexp(weight, -heavy - large), -heavy - large


def in_range(weight: FloatArray) -> tuple[FloatArray, int]:
    """Returns `weight` times 2**e, and e: the largest is in [1, 2), or e is 0 for integers below 2**53."""
    xp, most = array_module(weight), float(weight.max())
    if most < 2.0**53 and bool((weight == xp.floor(weight)).all()):
        return weight, 0
    exponent = 1 - math.frexp(most)[1]
    return xp.ldexp(weight, exponent), exponent


def in_bag_counts(
    name: str, counts: ArrayLike, n_trees: int, n_samples: int, *, owned: bool = False
) -> IntArray:
    """Returns in-bag counts as (n_trees, n_samples) int32, at least 0; a copy if `owned`."""
    numbers, shape = _plain(as_given(name, counts)), (n_trees, n_samples)
    check.require(
        numbers.dtype.kind in "biu", name, "an array of an integer dtype", numbers.dtype,
        "pass the result of bootstrap_counts", TypeError,
    )  # fmt: skip
    check.require(
        numbers.shape == shape, name, f"shape (n_trees, n_samples) = {shape}", tuple(numbers.shape),
        "pass a row for each tree",
    )  # fmt: skip
    if owned:
        numbers = check.owned(numbers)
    if check.values_checked() and numbers.size and numbers.dtype.kind != "b":
        low, high = int(numbers.min()), int(numbers.max())
        check.require(
            low >= 0 and high <= check.MAX_COUNT, name, "counts from 0 to 2**31 - 1", f"{low} to {high}",
            "pass the number of times that a tree draws each sample",
        )  # fmt: skip
    return converted_numbers(numbers, check.INT32)


def check_drawn(name: str, drawn: Any) -> None:
    """Checks that every tree draws a sample; drawn (n_trees,) bool: IN, which trees do."""
    check.require(
        drawn.all(), name, "at least one sample in each row", f"only zeros in row {int((~drawn).argmax())}",
        "draw at least one sample for each tree, or grow fewer trees",
    )  # fmt: skip


def _plain(a: Array) -> Array:
    """Returns an array, with objects that are numbers converted to numbers."""
    return np.array(a.tolist()) if a.dtype.kind == "O" else a


# ------------------------------------------------------------------------------------------- settings


def criterion(value: str | None, task: Task, default: str = "gini", *, grown: bool = False) -> int:
    """Returns the number of a criterion; None is `default`, in a regression "squared_error".

    grown: whether criteria of growth alone are allowed.
    """
    if value is None:
        value = default if task == "classification" else "squared_error"
    numbers = scores.numbers(task, grown=grown)
    names = (*numbers, *(name for name, of_name in scores.NAMES.items() if of_name in numbers))
    refused = isinstance(value, str) and value == "absolute_error" and task == "regression"
    check.require(
        not refused, "criterion", f"one of {', '.join(names)}", value,
        "grow by squared_error, and predict medians by hforest.tree.leaf_targets and quantiles",
    )  # fmt: skip
    return numbers[scores.name_of(check.choice("criterion", value, names))]


class Limits(NamedTuple):
    """Limits of the growth of trees."""

    max_depth: int
    min_samples_split: int
    min_samples_leaf: int
    min_impurity_decrease: float
    min_weight_fraction_leaf: float = 0.0
    max_leaf_nodes: int = 0
    """Maximum number of leaves of a tree; 0: no limit."""


def limits(
    max_depth: int | None,
    min_samples_split: int,
    min_samples_leaf: int,
    min_impurity_decrease: float = 0.0,
    min_weight_fraction_leaf: float = 0.0,
    max_leaf_nodes: int | None = None,
) -> Limits:
    """Returns checked limits; a max_depth or max_leaf_nodes of None is no limit."""
    most = check.MAX_COUNT
    return Limits(
        most if max_depth is None else check.integer("max_depth", max_depth, 0, most),
        check.integer("min_samples_split", min_samples_split, 2, most),
        check.integer("min_samples_leaf", min_samples_leaf, 1, most),
        check.number("min_impurity_decrease", min_impurity_decrease, 0.0),
        check.number("min_weight_fraction_leaf", min_weight_fraction_leaf, 0.0, 0.5),
        0 if max_leaf_nodes is None else check.integer("max_leaf_nodes", max_leaf_nodes, 2, most),
    )


def max_features(value: Any, n_features: int, task: Task | None = None) -> int:
    """Returns the number of features sampled at a node: "sqrt" and "log2" are rounded down, None is all.

    With a task "auto" is allowed: "sqrt", but all in a regression.
    """
    value = check.scalar(value)
    if isinstance(value, str):
        words = {"sqrt": int(n_features**0.5), "log2": n_features.bit_length() - 1}
        if task is not None:
            words["auto"] = n_features if task == "regression" else words["sqrt"]
        return max(1, words[check.choice("max_features", value, tuple(words))])
    if value is None:
        return n_features
    if isinstance(value, float | np.floating):
        return max(1, int(check.number("max_features", value, 0.0, 1.0, open_low=True) * n_features))
    return check.integer("max_features", value, 1, n_features)


def categorical(value: Any, n_features: int, name: str = "categorical") -> np.ndarray | None:
    """Returns a mask of features, such as categories, from a mask or numbers; None if there are none."""
    if value is None:
        return None
    columns = _plain(np.asarray(to_numpy(as_given(name, value))))
    check.require(
        columns.ndim == 1 and (columns.dtype.kind in "biu" or not columns.size), name,
        "a boolean mask or feature indices", f"{columns.dtype} of shape {columns.shape}",
        "pass a list such as [0, 3]", TypeError,
    )  # fmt: skip
    if columns.dtype.kind == "b":
        check.require(
            columns.size == n_features, name, f"a boolean mask of length n_features = {n_features}",
            columns.size, "pass one bool per feature, or feature indices",
        )  # fmt: skip
        mask = columns.copy()
    else:
        low, high = (int(columns.min()), int(columns.max())) if columns.size else (0, -1)
        check.require(
            0 <= low and high < n_features, name,
            f"feature indices below n_features = {n_features}", f"{low} to {high}",
            "feature indices start at 0", IndexError,
        )  # fmt: skip
        mask = np.zeros(n_features, bool)
        mask[columns.astype(np.int64)] = True
    return mask if mask.any() else None


def some_columns(value: Any, n_features: int, name: str = "columns") -> IntArray:
    """Returns numbers of columns, ascending, from a mask, numbers or one number."""
    value = check.scalar(value)
    mask = categorical([value] if check.is_integer(value) else value, n_features, name)
    if mask is None:
        raise ValueError(
            f"{name}: expected the index of at least one column, got none; pass an index or a list such as "
            "[0, 3]"
        )
    return np.flatnonzero(mask)


def column_sets(value: Any, n_features: int) -> list[IntArray]:
    """Returns single columns, ascending, or sets of columns from a list of lists; all columns for None."""
    if value is None:
        return list(np.arange(n_features)[:, None])
    if isinstance(value, tuple | list | np.ndarray) and any(isinstance(a, _SEVERAL) for a in value):
        return [some_columns(a, n_features, f"columns[{i}]") for i, a in enumerate(value)]
    return list(some_columns(value, n_features)[:, None])


_SEVERAL = (tuple, list, range, np.ndarray)
"""Types of a set of columns."""

MAX_CATEGORY = 2**16 - 1


def categories(name: str, x: FloatArray, is_categorical: np.ndarray) -> None:
    """Checks that the columns of categories hold whole numbers 0 to 65535, or NaN."""
    if check.values_checked():
        for f in np.flatnonzero(is_categorical).tolist():
            check_categories(name, x[:, f], f)


def check_categories(name: str, column: FloatArray, f: int) -> None:
    """Checks column f as `categories`, inside `unchecked()`, too."""
    bad = are_no_categories(cast(column, _FLOAT64))
    if bool(bad.any()):
        i = int(bad.argmax())
        refuse_category(name, column[i], i, f)


def are_no_categories(a: FloatArray) -> Array:
    """Returns which numbers are neither NaN nor whole numbers 0 to 65535."""
    return (a < 0) | (a > MAX_CATEGORY) | (a != array_module(a).floor(a)) & (a == a)


def refuse_category(name: str, value: float, i: int, f: int) -> NoReturn:
    """Raises the error about the value of sample i in the column of categories f."""
    raise ValueError(
        f"{name}: expected whole numbers 0 to {MAX_CATEGORY} or NaN in columns of categories, got "
        f"{float(value)} at index ({i}, {f}); number the categories, for example by numpy.unique(column, "
        "return_inverse=True)[1]"
    )


def max_bins(value: int | None) -> int | None:
    """Returns a checked number of bins: None (every distinct value has a bin of its own), or 1 to 256."""
    return None if value is None else check.integer("max_bins", value, 1, 256)
