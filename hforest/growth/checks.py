"""Checks that functions which grow forests share."""

from typing import Any

import numpy as np

from ..core import blocks, check, dispatch, supervised
from ..core.aliases import Array, ArrayLike, Criterion, FloatArray, IntArray, Task
from ..core.in_place import check_places
from .bins import Bins, Stored
from .trees import Learned

BIN_DTYPES = tuple(np.dtype(t) for t in (np.uint8, np.uint16, np.uint32))
SPLITTERS = ("best", "random")
POISSON = "poisson"
_FLOAT64 = np.dtype(np.float64)
_COMPARED = 1 << 22  # number of entries of tables that are compared at a time


def check_bins(bins: Bins, name: str = "bins") -> None:
    """Checks Bins: their arrays are consistent, and indices are inside the tables."""
    if not isinstance(bins, Bins):
        raise TypeError(f"{name}: expected hforest.growth.Bins, got {type(bins).__name__}; call encode(x)")
    if (bins.base is None) != (bins.offset is None):
        raise TypeError(
            f"{name}.base: expected {name}.base and {name}.offset together, got one without the other; call "
            "encode(x)"
        )
    with check.fields_of(name):
        check.require(
            bins.values is None, "values", "None", type(bins.values).__name__, "call encode(x)", TypeError
        )
        _check_fields(bins)


def _check_stored(bins: Bins) -> None:
    """Checks the bins of a sparse matrix, whose arrays `Stored` divides into columns."""
    stored = bins.stored
    if not isinstance(stored, Stored):
        raise TypeError(
            f"stored: expected hforest.growth.Stored, got {type(stored).__name__}; call encode(x)"
        )
    check.integer("stored.n_samples", stored.n_samples, 1, check.MAX_COUNT)
    check.same_device(
        bins=bins.bins, **{f"stored.{name}": a for name, a in zip(Stored._fields, stored[:4], strict=False)}
    )
    sizes: check.Sizes = {"rows": 1}
    check.array("bins", bins.bins, bins.bins.dtype, ("rows", "n_stored"), sizes)
    check.array("stored.indptr", stored.indptr, check.INT64, ("n_columns + 1",), sizes)
    check.array("stored.indices", stored.indices, check.INT32, ("n_stored",), sizes)
    check.array("stored.table", stored.table, check.INT64, ("n_columns + 1",), sizes)
    sizes["n_columns"] = sizes["n_columns + 1"] - 1
    check.at_least_one(sizes, "n_columns")
    check.array("stored.default", stored.default, check.INT32, ("n_columns",), sizes)
    for name, a in (("low", bins.low), ("high", bins.high)):
        check.array(name, a, _FLOAT64, ("rows", "n_bins"), sizes)
        check.finite(name, a)
    if not isinstance(bins.bins, np.ndarray):
        raise TypeError("bins: expected NumPy arrays of a sparse matrix, got CuPy arrays; grow on the CPU")
    # Backends follow these: they are read inside unchecked(), too.
    _check_ascending("stored.indptr", stored.indptr, sizes["n_stored"], 0)
    _check_ascending("stored.table", stored.table, sizes["n_bins"], 1)
    if not check.values_checked():
        return
    n_bins, first = np.diff(stored.table), np.repeat(np.arange(sizes["n_columns"]), np.diff(stored.indptr))
    if bool((bins.bins[0] >= n_bins[first]).any()) or not bool(
        ((stored.default >= 0) & (stored.default < n_bins)).all()
    ):
        raise IndexError(
            "bins: expected bins below the number of bins of their column in stored.table, got larger "
            "ones; call "
            "encode(x)"
        )
    indices = stored.indices
    starts = np.zeros(len(indices) + 1, bool)
    starts[stored.indptr] = True
    if indices.size and (
        int(indices.min()) < 0
        or int(indices.max()) >= stored.n_samples
        or bool((~starts[1:-1] & (indices[1:] <= indices[:-1])).any())
    ):
        raise IndexError(
            f"stored.indices: expected samples 0 to {stored.n_samples - 1} in ascending order in each "
            "column, got other indices; call encode(x)"
        )
    inside = np.ones(sizes["n_bins"], bool)
    inside[stored.table[1:-1]] = False
    low, high = bins.low[0], bins.high[0]
    apart = (high[:-1] < low[1:]) | (low[:-1] == low[1:]) & (high[:-1] == high[1:])
    if not bool((low <= high).all()) or not bool((apart | ~inside[1:]).all()):
        raise ValueError(
            "low: expected bins in ascending order between low and high, got bins that overlap or are out "
            "of order; call encode(x)"
        )


def _check_ascending(name: str, a: IntArray, last: int, step: int) -> None:
    """Checks that numbers go from 0 to `last` in steps of at least `step`."""
    if int(a[0]) or int(a[-1]) != last or bool((np.diff(a) < step).any()):
        raise IndexError(
            f"{name}: expected 0, ..., {last} in ascending order, got other numbers; call encode(x)"
        )


def _check_fields(bins: Bins) -> None:
    places = {} if bins.base is None else {"base": bins.base, "offset": bins.offset}
    check.same_device(bins=bins.bins, low=bins.low, high=bins.high, **places)
    if bins.bins.dtype not in BIN_DTYPES:
        raise TypeError(
            f"bins: expected dtype uint8, uint16 or uint32, got {bins.bins.dtype}; call encode(x)"
        )
    # The class numpy.float32 equals its dtype, but has no itemsize that backends read.
    if not isinstance(bins.dtype, np.dtype) or bins.dtype not in check.FLOATS:
        raise TypeError(
            f"dtype: expected float32 or float64 as a numpy.dtype, got {bins.dtype!r}; call encode(x)"
        )
    if bins.stored is not None:
        if bins.base is not None:
            raise ValueError("base: expected None for a sparse matrix, got an array; call encode(x)")
        _check_stored(bins)
        if bins.missing is not None or bins.categorical is not None:
            _check_kinds(bins, {"n_columns": len(bins.stored.default)})
        return
    sizes: check.Sizes = {}
    check.array("bins", bins.bins, bins.bins.dtype, ("n_columns", "n_samples"), sizes)
    for name, a in (("low", bins.low), ("high", bins.high)):
        check.array(name, a, _FLOAT64, ("n_columns", "n_bins"), sizes)
        check.finite(name, a)
    check.at_least_one(sizes, "n_columns", "n_bins", "n_samples")
    if max(sizes["n_samples"], sizes["n_columns"]) > check.MAX_COUNT:
        raise ValueError("bins: expected fewer than 2**31 samples and columns, got more; pass fewer")
    if check.values_checked():
        _check_tables(bins.low, bins.high)
    if check.values_checked() and int(bins.bins.max()) >= sizes["n_bins"]:
        raise IndexError(
            f"bins: expected numbers below n_bins = {sizes['n_bins']}, got {int(bins.bins.max())}; "
            "call encode(x)"
        )
    if bins.missing is not None or bins.categorical is not None:
        _check_kinds(bins, sizes)
    if bins.base is None or bins.offset is None:
        return
    if sizes["n_columns"] != 1:
        raise ValueError(
            f"bins: expected one row of bins, which all windows share, got {sizes['n_columns']}; call "
            "encode(x)"
        )
    check_places(bins.base, bins.offset, sizes["n_samples"])


def _check_kinds(bins: Bins, sizes: check.Sizes) -> None:
    """Checks that bins of missing values exist, and that categories fit into sets of bits."""
    if bins.missing is None:
        raise TypeError("missing: expected an array with categorical columns, got None; call encode(x)")
    if bins.base is not None:
        raise ValueError(
            "missing: expected None for windows, got an array; windows have neither missing values nor "
            "categories"
        )
    check.same_device(bins=bins.bins, missing=bins.missing)
    check.array("missing", bins.missing, check.INT64, ("n_columns",), sizes)
    if bins.categorical is not None:
        check.same_device(bins=bins.bins, categorical=bins.categorical)
        check.array("categorical", bins.categorical, np.dtype(bool), ("n_columns",), sizes)
    if not check.values_checked():
        return
    n_bins: Any = sizes.get("n_bins")
    if bins.stored is not None:
        n_bins = np.diff(bins.stored.table)
    if not bool(((bins.missing >= -1) & (bins.missing < n_bins)).all()):
        raise IndexError(
            "missing: expected -1 or bins below the number of bins of their column, got "
            f"{int(bins.missing.min())} to {int(bins.missing.max())}; call encode(x)"
        )
    if bins.categorical is None:
        return
    if bins.stored is None:
        named, last = bins.low[bins.categorical], bins.high[bins.categorical]
    else:
        of_columns = np.repeat(bins.categorical, n_bins)
        named, last = bins.low[0, of_columns], bins.high[0, of_columns]
    whole = (named >= 0) & (named <= supervised.MAX_CATEGORY) & (named == named // 1)
    if not bool((whole & (named == last)).all()):
        raise ValueError(
            f"low: expected categories 0 to {supervised.MAX_CATEGORY}, one per bin, got other numbers; "
            "call encode(x, categorical=...)"
        )


def _check_tables(low: FloatArray, high: FloatArray) -> None:
    """Checks that bins ascend and do not overlap; the last one of a column may be repeated."""
    some = max(1, _COMPARED // low.shape[1])
    for first in range(0, len(low), some):
        least, most = low[first : first + some], high[first : first + some]
        apart = most[:, :-1] < least[:, 1:]
        repeated = (least[:, :-1] == least[:, 1:]) & (most[:, :-1] == most[:, 1:])
        if not bool((least <= most).all()) or not bool((apart | repeated).all()):
            raise ValueError(
                "low: expected bins in ascending order between low and high, got bins that overlap or are "
                "out of order; call encode(x)"
            )


def check_no_categories(categorical: ArrayLike | None) -> None:
    """Checks that windows have no columns of categories."""
    if categorical is not None:
        raise ValueError(
            "categorical: expected None for windows, got columns; copy the windows into an array to grow on "
            "categories"
        )


def has_missing_rows(lazy: blocks.Unconverted, is_categorical: np.ndarray | None) -> bool:
    """Returns whether large samples have missing values, after the usual checks."""
    has_missing = False
    for _, _, some in lazy.rows("x", True):
        has_missing |= some
    if is_categorical is not None and check.values_checked():
        for f in np.flatnonzero(is_categorical).tolist():
            supervised.check_categories("x", lazy.columns(slice(f, f + 1))[:, 0], f)
    return has_missing


def check_windows_task(are_windows: bool, task: Task) -> None:
    """Checks that windows have no regression targets."""
    check.choice("task", task, supervised.TASKS)
    if are_windows and task == "regression":
        raise ValueError(
            'task: expected "classification" for windows, got "regression"; copy the windows into an array '
            "for regression"
        )


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
