"""Base class of the estimators: parameter names, threads, seeds, argument names in error messages."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from joblib import cpu_count
from numpy.random import RandomState
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state, check_X_y
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import get_num_threads, set_num_threads, tabular
from ..core.aliases import ArrayLike
from ..core.real import fault

MAX_THREADS = 1024


def check_flag(name: str, value: object, other: str = "") -> None:
    """Checks that a parameter is True or False; `other` describes further accepted values in the message."""
    if not isinstance(value, bool | np.bool_):
        expected = f"True, False{other}" if other else "True or False"
        raise TypeError(f"{name}: expected {expected}, got {type(value).__name__}; pass one of them")


def check_choice(name: str, value: object, options: tuple[str, ...]) -> object:
    """Returns the value of a parameter, which must be one of the options."""
    if not isinstance(value, str) or value not in options:
        raise ValueError(
            f"{name}: expected one of {', '.join(map(repr, options))}, got {value!r}; pass one of them"
        )
    return value


def number_of_threads(n_jobs: object) -> int:
    """Returns the number of threads for `n_jobs`: -1 means all processors, -2 all but one, and so on."""
    remedy = "pass None for the number of threads of hforest, or -1 for all processors"
    if not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool):
        raise TypeError(f"n_jobs: expected None or an int, got {type(n_jobs).__name__}; {remedy}")
    n = int(n_jobs)
    if n == 0 or n > MAX_THREADS:
        raise ValueError(f"n_jobs: expected 1 to {MAX_THREADS}, or a negative int, got {n}; {remedy}")
    return n if n > 0 else min(MAX_THREADS, max(1, cpu_count() + 1 + n))


@contextmanager
def threads(n_jobs: object) -> Iterator[None]:
    """Sets the number of threads of hforest in the calling Python thread, and restores it at the end."""
    if n_jobs is None:
        yield
        return
    n, before = number_of_threads(n_jobs), get_num_threads()
    try:
        set_num_threads(n)
        yield
    finally:
        set_num_threads(before)


def units(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns means and standard deviations of columns, float64; a deviation of 1 for a constant column."""
    # In units of powers of two, which are exact, squares neither overflow nor become 0.
    most = np.maximum(abs(a).max(axis=0).astype(np.float64), np.finfo(float).tiny)
    unit = np.ldexp(1.0, np.frexp(most)[1] - 1)
    scaled = a / unit
    deviation = scaled.std(axis=0, dtype=np.float64)
    varies = (a.min(axis=0) < a.max(axis=0)) & (deviation * unit > 0)
    mean = np.where(varies, scaled.mean(axis=0, dtype=np.float64) * unit, a[0])
    return mean, np.where(varies, deviation * unit, 1.0)


def standardised(a: np.ndarray, of: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Returns (a - mean) / deviation in float32, computed in float64."""
    mean, deviation = of
    with np.errstate(over="ignore"):
        return np.clip((a - mean) / deviation, -1e30, 1e30).astype(np.float32)


def of_numbers(X: Any) -> bool:
    """Returns whether X is no table, or one whose columns all have dtypes of numbers or booleans."""
    dtypes = getattr(X, "dtypes", None)
    if dtypes is None and hasattr(X, "schema"):  # of Arrow
        dtypes = getattr(X.schema, "types", None)
    if dtypes is None or not (hasattr(X, "columns") or hasattr(X, "column_names")):
        return True
    return all(map(_is_number, dtypes))


def _is_number(dtype: Any) -> bool:
    kind = getattr(dtype, "kind", None)
    if isinstance(kind, str):
        return kind in "biuf"
    words = ("int", "uint", "float", "double", "halffloat", "bool")
    return str(dtype).lower().startswith(words)


MAX_LEVELS = 2**16
"""Forests take categories 0 to 65535."""
MAX_INDICATED = 32
"""Maximum number of levels of a column with an indicator, for forests without splits by categories."""


def seed_of(random_state: object) -> int:
    """Returns the seed, hforest's `rng`: an int `random_state` itself, or one drawn from it."""
    generator = check_random_state(random_state)
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(generator.randint(np.iinfo(np.int32).max))


@dataclass(kw_only=True, eq=False, repr=False)
class Estimator(BaseEstimator):
    """Base of all estimators, whose parameters are the fields of a dataclass."""

    n_estimators: int = field(default=100, kw_only=False)
    n_jobs: int | None = None
    random_state: int | RandomState | None = None

    _function: ClassVar[Callable[..., Any]]
    """The public function of hforest that fits."""
    _names: ClassVar[Mapping[str, str]] = {
        "n_estimators": "n_trees",
        "random_state": "rng",
        "categorical_features": "categorical",
    }
    """Parameters that hforest has under another name."""

    _finite: ClassVar[bool | str] = True
    """Values of samples: True for numbers alone, "allow-nan" for missing values, too."""

    _several: ClassVar[bool] = False
    """Whether a classifier takes several labels a sample."""

    _sparse: ClassVar[list[str] | bool] = False
    """Formats of sparse matrices that need no conversion."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._finite == "allow-nan"
        tags.input_tags.sparse = bool(self._sparse)
        return tags

    @property
    def _kinds(self) -> dict[str, Any]:
        """Returns keyword arguments of `validate_data` for samples."""
        return {"dtype": "numeric", "ensure_all_finite": self._finite, "accept_sparse": self._sparse}

    def _learner(self) -> Callable[..., Any]:
        """Returns the public function of hforest that fits with the current parameters."""
        return type(self)._function

    def _settings(self, function: Callable[..., Any] | None = None) -> dict[str, Any]:
        """Returns the parameters that a function of hforest accepts, under its names."""
        taken = inspect.signature(function or self._learner()).parameters
        values = {self._names.get(name, name): value for name, value in self.get_params(deep=False).items()}
        settings = {name: value for name, value in values.items() if name in taken and name != "rng"}
        if "categorical" in settings:
            settings["categorical"] = self._categorical(settings["categorical"])
        return settings

    def _splits_by_categories(self) -> bool:
        """Returns whether the model splits by categories with the current parameters."""
        return "categorical" in inspect.signature(self._learner()).parameters

    def _categorical(self, columns: Any) -> Any:
        """Returns categorical columns as hforest accepts them: numbers for names, a mask of typed columns."""
        if self._typed():
            return self.columns_.categorical if self._splits_by_categories() else None
        return self._numbers_of("categorical_features", columns, ', "from_dtype"')

    def _numbers_of(self, parameter: str, columns: Any, others: str = "") -> Any:
        """Returns columns as numbers; names become numbers."""
        names = np.asarray(columns)
        if columns is None or names.dtype.kind not in "UO" or not names.size:
            return columns
        known = getattr(self, "feature_names_in_", np.zeros(0, object)).tolist()
        unknown = [name for name in names.ravel().tolist() if name not in known]
        if unknown:
            raise ValueError(
                f"{parameter}: expected column names of X, got {unknown[0]!r}; pass X as a DataFrame with "
                f"these columns{others}, or column indices"
            )
        return [known.index(name) for name in names.ravel().tolist()]

    def _typed(self) -> bool:
        """Returns whether `fit` has derived the kind of each column from X."""
        return getattr(self, "columns_", None) is not None

    def _named(self, X: Any) -> Any:
        """Returns `categorical_features` as `tabular.columns` takes it."""
        chosen = getattr(self, "categorical_features", None)
        if chosen is None or (isinstance(chosen, str) and chosen == "from_dtype"):
            return "from_dtype"
        names, a = [str(name) for name in X.columns], np.asarray(chosen)
        if a.dtype.kind in "UO":
            return [str(name) for name in a.ravel().tolist()]
        return np.array(names)[a].tolist()

    def _seed(self) -> int:
        return seed_of(self.random_state)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Sets the number of threads to `n_jobs`, and names arguments in errors as the estimator does."""
        try:
            with threads(self.n_jobs):
                yield
        except (TypeError, ValueError, IndexError) as error:
            name, colon, message = str(error).partition(":")
            ours = {theirs: name for name, theirs in self._names.items()} | {"x": "X"}
            if not colon or name not in ours or type(error) not in (TypeError, ValueError, IndexError):
                raise
            error.__traceback__ = None  # see check.fields_of
            raise type(error)(f"{ours[name]}:{message}") from None

    def _forget(self) -> None:
        """Deletes the state that `partial_fit` keeps between calls, since `fit` starts from scratch."""
        for name in ("_state", "t_"):
            self.__dict__.pop(name, None)

    def _validated(self, X: ArrayLike, *y: Any, reset: bool = True, **settings: Any) -> Any:
        """Returns the result of scikit-learn's `validate_data`; columns of a table become numbers.

        A table has other columns than numbers, or is read by `categorical_features="from_dtype"`.
        """
        if reset:
            word = getattr(self, "categorical_features", None)
            self.columns_: Any = None
            if (isinstance(word, str) and word == "from_dtype") or not of_numbers(X):
                return self._validated_columns(X, *y, reset=True, **settings)
        elif self._typed():
            return self._validated_columns(X, *y, reset=False, **settings)
        if issparse(X) and X.format in ("csr", "csc") and not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        try:
            return validate_data(self, X, *y, reset=reset, **settings)
        except (TypeError, ValueError) as error:
            message = "" if issparse(X) else fault("X", X)
            if not message:
                raise
            kind = TypeError if isinstance(error, TypeError) else ValueError
            first_line = str(error).partition("\n")[0]
            raise kind(f"{message} (scikit-learn: {first_line})") from None

    def _validated_columns(self, X: Any, *y: Any, reset: bool, **settings: Any) -> Any:
        """Returns `_validated` of the numbers into which the columns of X are converted."""
        validate_data(self, X, reset=reset, skip_check_array=True)
        try:
            if reset:
                # Kinds and categories of the columns of X.
                self.columns_ = tabular.columns(X, categorical=self._named(X))
            x = tabular.numbers(self.columns_, X)
        except (TypeError, ValueError) as error:
            raise type(error)(f"X{str(error).removeprefix('table')}") from None
        if not self._splits_by_categories():
            x = self._indicated(x, reset)
        elif reset:
            self.complete_ = self.columns_.categorical & ~np.isnan(x).any(axis=0)
        else:  # a forest without missing values takes categories that it has not seen, but no NaN
            sizes = np.diff(self.columns_.level_start)[self.columns_.source]
            x = np.where(self.complete_ & np.isnan(x) & (sizes < MAX_LEVELS), sizes, x)
        return check_X_y(x, *y, **settings) if y else check_array(x, **settings)

    def _indicated(self, x: np.ndarray, reset: bool) -> np.ndarray:
        """Returns numbers with indicators in place of categories: of the most frequent levels of each
        column."""
        if reset:
            self.levels_: list[np.ndarray | None] = []
            for a, is_level in zip(x.T, self.columns_.categorical, strict=True):
                counts = np.bincount(a[~np.isnan(a)].astype(np.int64)) if is_level else np.zeros(0)
                most = np.sort(np.argsort(-counts, kind="stable")[:MAX_INDICATED])
                self.levels_.append(most if is_level else None)
        parts = [
            a[:, None] if levels is None else (a[:, None] == levels).astype(np.float64)
            for a, levels in zip(x.T, self.levels_, strict=True)
        ]
        return np.concatenate(parts, axis=1) if parts else x

    def _of_columns(self, importances: np.ndarray) -> np.ndarray:
        """Returns the importances of the columns of X, summed over the features derived from each."""
        if not self._typed():
            return importances
        source = self.columns_.source
        if not self._splits_by_categories():
            source = np.repeat(source, [1 if levels is None else len(levels) for levels in self.levels_])
        return np.bincount(source, importances, minlength=self.n_features_in_)

    def _samples(self, X: ArrayLike) -> np.ndarray:
        """Returns samples to predict, with the features of the fit."""
        check_is_fitted(self)
        return self._validated(X, reset=False, **self._kinds)
