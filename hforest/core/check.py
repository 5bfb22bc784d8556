"""Validation of arguments, for all subpackages. Public functions call it once; backends check nothing.

Every message has four parts: argument, expected, got, remedy. The arrays of a call share names of sizes: the
first array with an axis `n_trees` sets it, and the others must agree.
"""

import inspect
import math
import os
import re
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from types import EllipsisType
from typing import Any

import numpy as np

from . import gpu, machine
from .aliases import Array
from .dispatch import array_module, is_cupy, on_current_device
from .layout import first_bad, first_true, in_parts

MAX_DEPTH = 30
"""Leaves and vertices are numbered in int32."""

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_COMPARED = 1 << 22  # number of entries that are compared at a time

INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)
MAX_COUNT = 2**31 - 1
"""Largest size that kernels count in int32."""
MAX_TREES = 2**20
"""Largest number of trees that a call grows: each takes at least about a kilobyte and ten microseconds."""

Axes = tuple[str | int | EllipsisType, ...]
Sizes = dict[str, int]

# Other subclasses, such as masked arrays and matrices, would lose their meaning.
NUMPY_TYPES = (np.ndarray, np.memmap)

_values_checked: ContextVar[bool] = ContextVar("hforest_values_checked", default=True)


def unchecked() -> AbstractContextManager[None]:
    """Skips the checks that read whole arrays (index ranges, NaN and infinity) inside a `with` block.

    Types, dtypes, shapes and layout are still checked, for that does not read the data. The caller is
    responsible for the values: an index out of range makes a function read or write outside the arrays.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> t, f, w = hforest.hinge.init(3, 2, 5, rng=0)
    >>> with hforest.unchecked():
    ...     y = hforest.hinge.forward(np.zeros((4, 5), np.float32), t, f, w)
    >>> y.shape
    (4, 3)
    """
    return machine.Within(_values_checked, False)


def checked() -> AbstractContextManager[None]:
    """Runs the checks that read whole arrays inside a `with` block, also inside `unchecked()`."""
    return machine.Within(_values_checked, True)


def values_checked() -> bool:
    """Returns whether checks that read whole arrays run, which is False inside `unchecked()`."""
    return _values_checked.get()


def _shape_text(axes: Axes, sizes: Sizes) -> str:
    texts = ["..." if axis is ... else str(axis) for axis in axes]
    numbers = [str(sizes.get(text, text)) for text in texts]
    names, bound = (f"({', '.join(some)}{',' * (len(some) == 1)})" for some in (texts, numbers))
    return names if names == bound else f"{names} = {bound}"


def require(
    holds: object, name: str, expected: str, got: object, remedy: str, error: type[Exception] = ValueError
) -> None:
    """Raises an error about an argument unless a condition holds; the message has its four parts.

    The parts are formatted on every call. Checks on the path of short calls use `if` and `raise`.
    """
    if not holds:
        raise error(f"{name}: expected {expected}, got {got}; {remedy}")


def instance(name: str, value: object, kinds: Any, expected: str, remedy: str) -> None:
    """Checks that a value is an instance of a class, or of one of several."""
    require(isinstance(value, kinds), name, expected, type(value).__name__, remedy, TypeError)


def same_device(**arrays: Any) -> None:
    """Checks that all arguments are NumPy arrays, or all are CuPy arrays of the current device."""
    if {np.ndarray}.issuperset(map(type, arrays.values())):
        return
    first = next(iter(arrays))
    on_gpu = is_cupy(arrays[first])
    for name, a in arrays.items():
        here = is_cupy(a)
        if not here and type(a) not in NUMPY_TYPES:
            raise TypeError(
                f"{name}: expected a numpy.ndarray or cupy.ndarray, got {type(a).__name__}; convert it with "
                f"numpy.asarray({name}, dtype=..., order='C')"
            )
        if here != on_gpu:
            got, like = ("CuPy", "NumPy") if here else ("NumPy", "CuPy")
            raise TypeError(
                f"{name}: expected a {like} array like {first}, got a {got} array; move them to one device "
                "with cupy.asarray or cupy.asnumpy"
            )
    if on_gpu:
        on_current_device(arrays)


def on_cpu(**arrays: object) -> None:
    """Checks that no argument is a CuPy array, for functions that run only on the CPU."""
    for name, a in arrays.items():
        remedy = f"this function runs on the CPU: pass cupy.asnumpy({name})"
        require(not is_cupy(a), name, "a numpy.ndarray", "a CuPy array", remedy, TypeError)


def floating(name: str, a: Array) -> np.dtype:
    """Returns the dtype of `a`, which must be native float32 or float64."""
    dtype = a.dtype
    if dtype not in FLOATS:
        raise TypeError(
            f"{name}: expected dtype float32 or float64, got {dtype}; "
            f"convert it with {name}.astype(numpy.float32)"
        )
    return dtype


def array(
    name: str, a: Array, dtype: np.dtype, axes: Axes, sizes: Sizes, *, last_first: bool = False
) -> None:
    """Checks dtype, axes, sizes (new names are stored in `sizes`), C order and alignment of an array.

    With `last_first` the elements at each index of the last axis of a NumPy array may be in C order instead.
    """
    if (type(a) is np.ndarray or is_cupy(a)) and machine.fits(a, dtype, axes, sizes):
        return
    if not isinstance(a, np.ndarray | np.generic) and not is_cupy(a):
        raise TypeError(
            f"{name}: expected a numpy.ndarray or cupy.ndarray, got {type(a).__name__}; convert it with "
            f"numpy.asarray({name}, dtype=..., order='C')"
        )
    if a.dtype != dtype:
        others = f", or the others to {a.dtype}" if a.dtype in FLOATS and dtype in FLOATS else ""
        raise TypeError(
            f"{name}: expected dtype {dtype}, got {a.dtype}; convert it with {name}.astype(numpy.{dtype})"
            f"{others}"
        )
    shape = a.shape
    fixed: Sequence[Any] = axes
    fits = len(shape) == len(axes)
    if axes and axes[-1] is ...:
        fixed = axes[:-1]
        fits = len(shape) >= len(fixed)
    if fits:
        for axis, size in zip(fixed, shape, strict=False):
            wanted = axis if isinstance(axis, int) else sizes.setdefault(axis, size)
            if wanted != size:
                fits = False
                break
    if not fits:
        one = len(shape) == 1 and axes == ("n_samples", "n_features")
        remedy = f"pass {name}[None] for one sample" if one else "pass arrays whose sizes agree"
        raise ValueError(f"{name}: expected shape {_shape_text(axes, sizes)}, got {tuple(shape)}; {remedy}")
    flags = a.flags
    if not flags.c_contiguous and not (last_first and isinstance(a, np.ndarray) and in_parts(a)):
        raise ValueError(
            f"{name}: expected a C-contiguous array, got strides {a.strides} for shape {tuple(shape)}; "
            f"copy it with numpy.ascontiguousarray({name})"
        )
    if isinstance(a, np.ndarray) and not flags.aligned:
        raise ValueError(f"{name}: expected an aligned array, got an unaligned one; pass {name}.copy()")


def at_least_one(sizes: Sizes, *names: str) -> None:
    """Checks that none of the named sizes is 0."""
    for name in names:
        if sizes[name] < 1:
            raise ValueError(
                f"{name}: expected at least 1, got {sizes[name]}; pass larger arrays: only n_samples may be 0"
            )


def tree_depth(name: str, a: Array) -> int:
    """Returns the depth D of complete trees from an array of shape (n_trees, 2**D - 1)."""
    depth = (a.shape[1] + 1).bit_length() - 1 if a.ndim == 2 else 0
    if not 1 <= depth <= MAX_DEPTH or a.shape[1] != 2**depth - 1:
        raise ValueError(
            f"{name}: expected shape (n_trees, 2**depth - 1) with 1 <= depth <= {MAX_DEPTH}, "
            f"got {tuple(a.shape)}; pass one column per vertex: 7 for depth 3"
        )
    return depth


def fern_depth(name: str, a: Array) -> int:
    """Returns the depth D of ferns from an array of shape (n_ferns, D)."""
    if a.ndim != 2 or not 1 <= a.shape[1] <= MAX_DEPTH:
        raise ValueError(
            f"{name}: expected shape (n_ferns, depth) with 1 <= depth <= {MAX_DEPTH}, "
            f"got {tuple(a.shape)}; pass one column per decision"
        )
    return a.shape[1]


DROP = "impute or drop such samples"
"""Remedy for NaN and infinity in samples."""
OF_LAYERS = f"{DROP}, or lower the learning rate if layers before this one computed them"
"""Remedy if samples may come from other layers of a network."""
DIVERGED = "training has diverged: go back to a checkpoint or lower the learning rate"
"""Remedy for NaN in parameters."""


def _where(a: Array, flat: int) -> tuple[tuple[int, ...], Any]:
    index = tuple(int(i) for i in np.unravel_index(flat, a.shape))
    return index, a[index].item()


_Pending = tuple[tuple[Array, int, int], Callable[[int], None]]
_together: ContextVar[list[_Pending] | None] = ContextVar("hforest_together", default=None)


def together(a: Array) -> AbstractContextManager[None]:
    """Runs the value checks of a `with` block in one kernel, with one wait at its end, if `a` is on a GPU.

    A block inside another block is part of it.
    """
    return nullcontext() if isinstance(a, np.ndarray) or _together.get() is not None else _on_gpu()


@contextmanager
def _on_gpu() -> Iterator[None]:
    token = _together.set([])
    try:
        yield
        pending = _together.get()
    finally:
        _together.reset(token)
    if pending:
        for flat, (_, fail) in zip(gpu.first_bad([a for a, _ in pending]), pending, strict=True):
            if flat >= 0:
                fail(flat)


def values(a: Array, kind: int, fail: Callable[[int], None], stop: int = 0, named: Any = None) -> None:
    """Calls fail with the flat index of the first bad element, at the end of a block of `together`."""
    if not values_checked():
        return
    if isinstance(a, np.ndarray):
        if (first := first_bad(a, kind, stop, named)) >= 0:
            fail(first)
        return
    pending = (a, kind, stop)
    if (block := _together.get()) is not None:
        block.append((pending, fail))
    elif (first := gpu.first_bad([pending])[0]) >= 0:
        fail(first)


def finite(name: str, a: Array, *, remedy: str = DROP, what: str = "numbers") -> None:
    """Checks that all numbers are finite, unless inside `unchecked()`. On a GPU this waits for the device."""

    def fail(flat: int) -> None:
        index, value = _where(a, flat)
        raise ValueError(f"{name}: expected finite {what}, got {value} at index {index}; {remedy}")

    values(a, gpu.FINITE, fail)


def finite_or_missing(name: str, a: Array) -> bool:
    """Returns whether some numbers are NaN; raises if one is infinite. Runs in `unchecked()`, too."""
    is_on_cpu = isinstance(a, np.ndarray)
    if (machine.first_nonfinite(a) if is_on_cpu else gpu.first_bad([(a, gpu.FINITE, 0)])[0]) < 0:
        return False
    xp, flat = array_module(a), a.reshape(-1)
    step = _COMPARED if is_on_cpu else max(1, a.size)
    has_missing = False
    for first in range(0, a.size, step):
        some = flat[first : first + step]
        if values_checked():
            at = first_true(xp.isinf(some))
            if at >= 0:
                index, value = _where(a, first + at)
                raise ValueError(
                    f"{name}: expected finite numbers, or NaN for missing values, got {value} at index "
                    f"{index}; clip or drop such samples"
                )
        has_missing = has_missing or bool(xp.isnan(some).any())
    return has_missing


def owned(a: Array) -> Array:
    """Returns a read-only copy of an array, in C order.

    What kernels index memory with, or count by, belongs to the call, for a caller's array may change between
    its check and its use: in `progress`, in other functions of a caller, or in another thread. Copy first,
    then check the copy.
    """
    return a.copy() if is_cupy(a) else machine.owned(np.asarray(a))


NO_DEFAULTS = tuple(owned(np.zeros(0, dtype)) for dtype in (np.uint8, np.int64, np.uint32))
"""default_left, category_indptr and category_bits of trees grown without missing values and categories."""


def not_nan(name: str, a: Array, *, remedy: str = DIVERGED) -> None:
    """Checks that parameters have no NaN (infinities are allowed), unless inside `unchecked()`."""

    def fail(flat: int) -> None:
        raise ValueError(f"{name}: expected no NaN, got nan at index {_where(a, flat)[0]}; {remedy}")

    values(a, gpu.NOT_NAN, fail)


def indices(name: str, a: Array, stop: int, stop_name: str, named: Array | None = None) -> None:
    """Checks that 0 <= a < stop, on a CPU only for a[j, named[i, j]], unless inside `unchecked()`."""

    def fail(flat: int) -> None:
        index, value = _where(a, flat)
        raise IndexError(
            f"{name}: expected 0 <= index < {stop_name} = {stop}, got {value} at index {index}; "
            "pass arrays that belong together"
        )

    values(a, gpu.INDEX, fail, min(stop, MAX_COUNT), named)


def steps(name: str, a: Array, reached: int, what: str) -> None:
    """Checks that int64 numbers of steps are at most `reached`, unless inside `unchecked()`."""

    def fail(flat: int) -> None:
        index, value = _where(a, flat)
        raise ValueError(
            f"{name}: expected 0 <= last <= {what} = {reached}, got {value} at index {index}; number the "
            "steps 1, 2, ... without gaps, and pass the state of these parameters"
        )

    values(a, gpu.STEP, fail, reached + 1)


def rows(name: str, a: Array, n_rows: int) -> None:
    """Checks that int64 rows strictly increase and 0 <= row < n_rows, unless inside `unchecked()`."""
    if not values_checked() or a.size == 0:
        return
    first, last = int(a[0]), int(a[-1])
    require(
        first >= 0 and last < n_rows, name, f"0 <= row < n_rows = {n_rows}", first if first < 0 else last,
        "pass the rows that belong to this parameter", IndexError,
    )  # fmt: skip
    require(
        (a[1:] > a[:-1]).all(), name, "strictly increasing rows", "rows out of order or repeated",
        "pass numpy.unique(rows), or the rows of a sparse gradient of hforest.hinge",
    )  # fmt: skip


def outputs(written: Mapping[str, Array], read: Mapping[str, Any]) -> None:
    """Checks the arrays that a call writes: each is writable and overlaps no other array of the call.

    `read` has all other arrays of the call before any conversion, or named tuples of them, also nested;
    other values are ignored. The arrays in `written` are C-contiguous.
    """
    others = list(_arrays(read))
    if machine.apart(list(written.values()), [a for _, a in others]):
        return
    for name, a in written.items():
        writable = not isinstance(a, np.ndarray) or a.flags.writeable
        require(writable, name, "a writable array", "a read-only one", f"pass {name}.copy()")
    for name, a in reversed(list(written.items())):
        xp = array_module(a)
        for other, b in others if a.size else ():
            # C-contiguous arrays overlap if their bounds do.
            overlap = xp.may_share_memory(a, b) and b.size
            overlap = overlap and (b.flags.c_contiguous or xp.shares_memory(a, b))
            require(
                not overlap, name, "memory that no other argument uses", f"an array that overlaps {other}",
                "pass a copy",
            )  # fmt: skip
        others.append((name, a))


def _arrays(named: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    for name, a in named.items():
        if isinstance(a, np.ndarray) or is_cupy(a):
            yield name, a
        elif isinstance(a, tuple) and hasattr(a, "_fields"):
            for field, b in zip(a._fields, a, strict=True):
                yield from _arrays({f"{name}.{field}": b})


@contextmanager
def fields_of(owner: str) -> Iterator[None]:
    """Adds the name of an argument to errors about its fields in a `with` block."""
    try:
        yield
    except (TypeError, ValueError, IndexError) as error:
        error.__traceback__ = None  # from Python 3.12 on, a cycle would keep its frames and their arrays
        raise type(error)(f"{owner}.{error}") from None


@contextmanager
def items_of(owner: str, names: Container[str]) -> Iterator[None]:
    """Adds the name of an argument to errors about one of its items, by these names, in a `with` block."""
    try:
        yield
    except (TypeError, ValueError, IndexError) as error:
        name = re.split("[^A-Za-z0-9_]", str(error), maxsplit=1)[0]
        if type(error) not in (TypeError, ValueError, IndexError) or name not in names:
            raise
        error.__traceback__ = None  # see fields_of
        raise type(error)(f"{owner}[{name!r}]{str(error).removeprefix(name)}") from None


@contextmanager
def memory(name: str, what: str, n_bytes: int) -> Iterator[None]:
    """Names the argument that needs `n_bytes` of new arrays in errors of a `with` block.

    ValueError if the size is beyond the address space, MemoryError if the system has less memory.
    """
    message = f"{name}: expected {what} that fit into memory, got {n_bytes} bytes; choose fewer"
    if n_bytes >= 2**62:
        raise ValueError(message)
    try:
        yield
    except MemoryError as error:
        error.__traceback__ = None  # see fields_of
        raise MemoryError(message) from None


def scalar(value: Any) -> Any:
    """Returns the number in an array without axes, or any other value unchanged."""
    return value[()] if type(value) is np.ndarray and not value.ndim else value


def is_integer(value: Any) -> bool:
    """Returns whether `value` is a Python or NumPy integer; bools and durations are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


def integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """Returns a Python or NumPy integer in low <= value (<= high) as an int."""
    value = scalar(value)
    if not is_integer(value):
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}; pass an integer such as {low}")
    if value < low or (high is not None and value > high):
        limits = f"at least {low}" if high is None else f"{low} to {high}"
        raise ValueError(f"{name}: expected {limits}, got {value}; choose a value in that range")
    return int(value)


def first_tree(value: Any, n_trees: int, most: int = MAX_TREES) -> int:
    """Returns the number of the first of n_trees trees as an int; the last one is below `most`."""
    value = integer("first_tree", value, 0)
    require(
        value + n_trees <= most, "first_tree", f"first_tree + n_trees <= {most}", f"{value} + {n_trees}",
        "number the trees of a forest from 0",
    )  # fmt: skip
    return value


def tree_range(n_trees: Any, first: Any) -> tuple[int, int]:
    """Returns the number of trees that a call grows, and that of the first one among all."""
    n_trees = integer("n_trees", n_trees, 1, MAX_TREES)
    return n_trees, first_tree(first, n_trees)


def number(name: str, value: Any, low: float, high: float = np.inf, *, open_low: bool = False) -> float:
    """Returns a finite real number in low <= value <= high (low < value if `open_low`) as a float."""
    value = scalar(value)
    if not is_integer(value) and not isinstance(value, float | np.floating):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}; pass a float")
    try:
        value = float(value)
    except OverflowError:  # an int beyond the largest float
        value = math.copysign(math.inf, value > 0 or -1)
    if not math.isfinite(value) or not low <= value <= high or (open_low and value == low):
        limits = f"{'>' if open_low else '>='} {low:g}" + (f" and <= {high:g}" if high != np.inf else "")
        raise ValueError(
            f"{name}: expected a finite number {limits}, got {value}; choose a value in that range"
        )
    return value


def choice(name: str, value: Any, options: Collection[Any]) -> Any:
    """Returns `value`, which must be one of the options: strings, or None."""
    for option in options:
        if value is option:
            return value
    if not isinstance(value, str) or value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name}: expected one of {listed}, got {value!r}; choose one of them")
    return value


def path(name: str, value: Any) -> str:
    """Returns the path of a file as a str, from a str or a path object."""
    remedy = 'pass a path such as "model.npz"'
    instance(name, value, str | os.PathLike, "a path", remedy)
    text = os.fsdecode(value)
    require(text and "\0" not in text, name, "a path", repr(text), remedy)
    return text


def history(value: Any) -> None:
    """Checks that `value` is None or a list, to which numbers are appended."""
    instance("history", value, list | None, "None or a list", "pass []")


def flag(name: str, value: object) -> None:
    """Checks that a setting is True or False."""
    instance(name, value, bool | np.bool_, "True or False", "pass one of them")


def function(name: str, value: Any, arguments: str) -> None:
    """Checks that `value` is None or a function that takes `arguments`, such as "done, total"."""
    if value is None:
        return
    instance(name, value, Callable, "None or a function", "pass a function")
    called_with(name, value, arguments, f"pass a function of ({arguments})")


def called_with(name: str, value: Callable[..., object], arguments: str, remedy: str) -> None:
    """Checks that a function can be called with `arguments`, such as "x, y, rng=...".

    A function without a readable signature, such as the type int, passes.
    """
    parameters = arguments.split(", ")
    names = [text.removesuffix("=...") for text in parameters if text.endswith("=...")]
    fault = _misfit(value, len(parameters) - len(names), names)
    require(
        not fault, name, f"a function that accepts ({arguments})", f"one that does not ({fault})",
        remedy, TypeError,
    )  # fmt: skip


def _misfit(function: Callable[..., object], n_arguments: int, names: Sequence[str]) -> str:
    """Returns why a call with n_arguments and keywords `names` fails; empty if it may succeed."""
    try:
        # The arguments of a wrapper may differ from those of the function that it wraps.
        signature = inspect.signature(function, follow_wrapped=False)
    except ValueError as error:
        # Raised for functions without a signature, and for partials with keywords that their function lacks.
        return str(error.__cause__) if isinstance(error.__cause__, TypeError) else ""
    except TypeError:
        return ""
    try:
        signature.bind(*(None,) * n_arguments, **dict.fromkeys(names))
    except TypeError as error:
        return str(error)
    return ""


def float_dtype(dtype: Any) -> np.dtype:
    """Returns float32 or float64 from an argument of numpy.dtype."""
    real = np.dtype(object)  # for values that are not dtypes, and for None, which NumPy converts to float64
    with suppress(TypeError, ValueError):
        real = np.dtype(object if dtype is None else dtype)
    require(real in FLOATS, "dtype", "float32 or float64", repr(dtype), "pass numpy.float32", TypeError)
    return real


def same(name: str, values: Sequence[Any], remedy: str) -> None:
    """Checks that all workers passed the same value."""
    for rank, value in enumerate(values):
        got = f"{values[0]} on worker 0 and {value} on worker {rank}"
        require(value == values[0], name, "the same value on every worker", got, remedy)


def seed(rng: Any) -> int:
    """Returns a 64-bit seed for counter-based random numbers, drawn from `generator(rng)`."""
    return int(generator(rng).integers(2**64, dtype=np.uint64))


def repeatable_seed(rng: Any) -> int:
    """Returns a seed for work that can be resumed: `rng` if it is an int, else a new one of 63 bits."""
    drawn = generator(rng)
    rng = scalar(rng)
    return int(rng) if is_integer(rng) else int(drawn.integers(2**63))


def generator(rng: Any) -> np.random.Generator:
    """Returns a numpy.random.Generator from None, an int or a Generator."""
    if isinstance(rng, np.random.Generator):
        return rng
    if rng is None:
        return np.random.default_rng()
    rng = scalar(rng)
    require(
        is_integer(rng), "rng", "None, an int or a numpy.random.Generator", type(rng).__name__,
        "pass numpy.random.default_rng(seed)", TypeError,
    )  # fmt: skip
    require(rng >= 0, "rng", "a seed of at least 0", rng, "pass a non-negative integer")
    return np.random.default_rng(int(rng))
