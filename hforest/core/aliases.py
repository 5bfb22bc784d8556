"""Names of argument types, which `help` shows unchanged.

A type checker reads the definitions under TYPE_CHECKING. At run time each name is an object whose
representation is its name, so that a signature reads ``x: FloatArray`` and not ``x: typing.Any``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    FloatArray: TypeAlias = NDArray[Any]
    IntArray: TypeAlias = NDArray[Any]
    ArrayLike: TypeAlias = Any
    SparseArray: TypeAlias = Any
    Table: TypeAlias = Any
    DType: TypeAlias = Any
    Rng: TypeAlias = int | np.random.Generator | None
    Progress: TypeAlias = bool | Callable[[int, int], Any] | None
else:

    class _Named:
        """A type whose representation is a text; ``|`` joins texts."""

        def __init__(self, text: str) -> None:
            self.text = text

        def __repr__(self) -> str:
            return self.text

        def __or__(self, other: Any) -> "_Named":
            return _Named(f"{self.text} | {_text(other)}")

        def __ror__(self, other: Any) -> "_Named":
            return _Named(f"{_text(other)} | {self.text}")

    def _text(a: Any) -> str:
        if a is None or a is type(None):
            return "None"
        return a.__qualname__ if isinstance(a, type) else repr(a).replace("typing.Literal", "Literal")

    Array = _Named("Array")
    FloatArray = _Named("FloatArray")
    IntArray = _Named("IntArray")
    ArrayLike = _Named("ArrayLike")
    SparseArray = _Named("SparseArray")
    Table = _Named("Table")
    DType = _Named("DType")
    Rng = _Named("int | numpy.random.Generator | None")
    Progress = _Named("bool | Callable[[int, int], bool | None] | None")

# Array:      numpy.ndarray or cupy.ndarray
# FloatArray: an Array of float32 or float64; one dtype in a call
# IntArray:   an Array of int32, or of int64 where the docstring says so
# ArrayLike:  an argument of numpy.asarray with real numbers, or a cupy.ndarray
# SparseArray: a scipy.sparse.csr_array
# Table:      a data frame, a structured array, a mapping from names to arrays, or a matrix
# DType:      float32 or float64, as numpy.dtype takes it
# Rng:        source of random numbers: None draws a new seed, an int is a seed
# Progress:   see hforest.core.progress

# Words that several functions take.
Task = Literal["classification", "regression"]
Criterion = Literal["gini", "entropy", "squared_error"]
Splitter = Literal["best", "random"]
MaxFeatures = int | float | Literal["sqrt"] | None
AutoFeatures = int | float | Literal["auto", "sqrt"] | None
CO2Features = int | float | Literal["n**0.6", "sqrt"] | None
ClassWeight: TypeAlias = Mapping[int, float] | ArrayLike | Literal["balanced"] | None
Bootstrap: TypeAlias = bool | IntArray | Literal["poisson"]
ClassVectors = Literal["out_of_fold", "out_of_bag"]
Border = Literal["reflect", "symmetric", "edge", "wrap", "constant", "leave_out"]
Scaled = Literal["auto", "deviations", "normal"]
Draw = Literal["fixed", "bootstrap"]
Weighting = Literal["counts", "shares"]
Missing = Literal["error", "omit"]
StatisticName = Literal[
    "information", "accuracy", "mutual_information", "auc", "sensitivity", "partial_auc", "mse"
]
