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
        "max_samples": "n_draws",
    }
    """Parameters that hforest has under another name."""

    _finite: ClassVar[bool | str] = True
    """Values of samples: True for numbers alone, "allow-nan" for missing values, too."""

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
        """Returns categorical columns as hforest accepts them: numbers for names, a mask for "from_dtype"."""
        if self._reads_dtypes():
            return self.columns_.categorical
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

    def _reads_dtypes(self) -> bool:
        """Returns whether `fit` derives the kind of each column from X."""
        word = getattr(self, "categorical_features", None)
        return isinstance(word, str) and word == "from_dtype"

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

    def _validated(self, X: ArrayLike, *y: Any, **settings: Any) -> Any:
        """Returns the result of scikit-learn's `validate_data`; errors say how to convert X to numbers."""
        if self._reads_dtypes():
            return self._validated_columns(X, *y, **settings)
        try:
            return validate_data(self, X, *y, **settings)
        except (TypeError, ValueError) as error:
            message = "" if issparse(X) else fault("X", X)
            if not message:
                raise
            kind = TypeError if isinstance(error, TypeError) else ValueError
            first_line = str(error).partition("\n")[0]
            if hasattr(X, "columns") and self._splits_by_categories():
                message += ', or pass categorical_features="from_dtype"'
            raise kind(f"{message} (scikit-learn: {first_line})") from None

    def _validated_columns(self, X: Any, *y: Any, reset: bool = True, **settings: Any) -> Any:
        """Returns `_validated` of the numbers into which the columns of X are converted."""
        validate_data(self, X, reset=reset, skip_check_array=True)
        try:
            if reset:
                # Kinds and categories of the columns of X.
                self.columns_: tabular.Columns = tabular.columns(X)
            x = tabular.numbers(self.columns_, X)
        except (TypeError, ValueError) as error:
            raise type(error)(f"X{str(error).removeprefix('table')}") from None
        categories = self.columns_.source[self.columns_.categorical]
        if len(categories) and not self._splits_by_categories():
            raise ValueError(
                "X: expected columns of numbers or dates, since these forests have no splits by "
                "categories, got "
                f"{self.columns_.names[categories].tolist()}; encode them as indicators, for example with "
                "OneHotEncoder"
            )
        return check_X_y(x, *y, **settings) if y else check_array(x, **settings)

    def _of_columns(self, importances: np.ndarray) -> np.ndarray:
        """Returns the importances of the columns of X, summed over the features derived from each."""
        if not self._reads_dtypes():
            return importances
        return np.bincount(self.columns_.source, importances, minlength=self.n_features_in_)

    def _samples(self, X: ArrayLike) -> np.ndarray:
        """Returns samples to predict, with the features of the fit."""
        check_is_fitted(self)
        return self._validated(X, reset=False, **self._kinds)
