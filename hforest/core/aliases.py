"""Names of argument types, which `help` shows unchanged.

A type checker reads the definitions under TYPE_CHECKING. At run time each name is an empty class, so that a
signature reads ``x: FloatArray`` and not ``x: typing.Any``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
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
    _NAMES = ("Array", "FloatArray", "IntArray", "ArrayLike", "SparseArray", "Table", "DType")
    Array, FloatArray, IntArray, ArrayLike, SparseArray, Table, DType, _Generator = (
        type(name, (), {"__module__": "builtins"}) for name in (*_NAMES, "numpy.random.Generator")
    )
    Rng = int | _Generator | None
    Progress = bool | Callable[[int, int], bool | None] | None

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
Criterion = Literal["gini", "entropy", "log_loss", "squared_error", "friedman_mse", "poisson"]
Splitter = Literal["best", "random"]
MaxFeatures = int | float | Literal["sqrt", "log2"] | None
AutoFeatures = int | float | Literal["auto", "sqrt", "log2"] | None
CO2Features = int | float | Literal["n**0.6", "sqrt", "log2"] | None
Classes: TypeAlias = int | Sequence[int] | None
ClassWeight: TypeAlias = Mapping[int, float] | ArrayLike | Literal["balanced", "balanced_subsample"] | None
Bootstrap: TypeAlias = bool | IntArray | Literal["poisson"]
ClassVectors = Literal["out_of_fold", "out_of_bag"]
Border = Literal["reflect", "symmetric", "edge", "wrap", "constant", "leave_out"]
Scaled = Literal["auto", "deviations", "normal"]
Draw = Literal["fixed", "bootstrap"]
Empty = Literal["prune", "abstain", "uniform", "prior"]
Weighting = Literal["counts", "shares"]
Missing = Literal["error", "omit"]
StatisticName = Literal[
    "information", "accuracy", "mutual_information", "auc", "sensitivity", "partial_auc", "mse"
]
