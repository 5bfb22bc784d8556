"""Forests with splits on sparse projections, or on sums over patches."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

from .. import project
from ..core.aliases import Criterion, Splitter
from .grown import BootstrapForest
from .intervals import ForestRegressor
from .targets import Classifier


def patches(estimator: Any, n_features: int) -> project.Distribution:
    """Returns the patches of an estimator that has shape, patch_min, patch_max, channels and cyclic."""
    shape = estimator.shape
    sizes: dict[str, Any] = {"patch_min": estimator.patch_min, "patch_max": estimator.patch_max}
    if shape is None:
        warnings.warn(
            "shape: expected the shape of a sample, such as (28, 28), got None: samples are treated as "
            f"1-D signals; pass shape=({n_features},) if they are, or use an ObliqueForest otherwise",
            UserWarning,
            stacklevel=6,
        )
        shape = (n_features,)
        sizes = {
            name: min(size, n_features) if isinstance(size, Integral) else size
            for name, size in sizes.items()
        }
    result = project.patch_distribution(shape, **sizes, channels=estimator.channels, cyclic=estimator.cyclic)
    if result.n_features != n_features:
        raise ValueError(
            f"shape: expected sizes that multiply to n_features = {n_features}, got {tuple(shape)}; pass "
            "the shape of one sample"
        )
    return result


@dataclass(kw_only=True, eq=False, repr=False)
class _Projected(BootstrapForest):
    """Base class of forests whose nodes sample projections."""

    n_projections: int | None = None
    criterion: Criterion = "gini"
    splitter: Splitter = "best"
    min_impurity_decrease: float = 0.0

    def _splits_by_categories(self) -> bool:
        return False


@dataclass(kw_only=True, eq=False, repr=False)
class _Oblique(_Projected):
    """Base class of forests on sparse projections."""

    density: float = 1.5
    categorical_features: Literal["from_dtype"] | None = None

    def _projections(self, n_features: int) -> dict[str, Any]:
        return {"projections": project.sparse_distribution(n_features, self.density)}


@dataclass(kw_only=True, eq=False, repr=False)
class _Manifold(_Projected):
    """Base class of forests on sums over patches."""

    shape: Sequence[int] | None = None
    patch_min: int | Sequence[int] = 1
    patch_max: int | Sequence[int] = 3
    channels: bool = False
    cyclic: bool = False

    def _projections(self, n_features: int) -> dict[str, Any]:
        return {"projections": patches(self, n_features)}


@dataclass(kw_only=True, eq=False, repr=False)
class ObliqueForestClassifier(Classifier, _Oblique):
    """Sparse projection oblique forest (SPORF) classifier (Perry et al. 2019,
    section 2.3).

    Other parameters and attributes: see `RandomForestClassifier` and `hforest.growth.Settings`.

    Parameters
    ----------
    density : float
        Mean of the Poisson distribution of the number of features in a projection, which is at least 1.
    categorical_features : "from_dtype", optional
        By default X holds numbers. With "from_dtype" `fit` derives the kind of each column (numbers, dates,
        ordered categories) from X by `hforest.tabular.columns` and stores it in `columns_`. Text and
        unordered categories raise an error.

    Examples
    --------
    >>> from hforest.sklearn import ObliqueForestClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> ObliqueForestClassifier(oob_score=True, random_state=0).fit(x, y).oob_score_ > 0.93
    True
    """

    class_weight: Mapping | list | Literal["balanced", "balanced_subsample"] | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class ObliqueForestRegressor(ForestRegressor, _Oblique):
    """Sparse projection oblique forest (SPORF) regressor for one or several targets.

    Parameters: see `ObliqueForestClassifier` and `RandomForestRegressor`, which has the attributes.

    Examples
    --------
    >>> from hforest.sklearn import ObliqueForestRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> ObliqueForestRegressor(oob_score=True, random_state=0).fit(x, y).oob_score_ > 0.4
    True
    """

    criterion: Criterion = "squared_error"


@dataclass(kw_only=True, eq=False, repr=False)
class ManifoldForestClassifier(Classifier, _Manifold):
    """Manifold forest (MORF) for classes of images and signals (Perry et al. 2019,
    section 3).

    A node samples `n_projections` patches. Other parameters and attributes: see `ObliqueForestClassifier` and
    `hforest.project.patch_distribution`.

    Parameters
    ----------
    shape : tuple of 1 to 3 ints, then the number of channels with `channels`, optional
        Shape of one sample, such as (height, width); its product is the number of features. By default a
        sample is a signal, (n_features,); `fit` warns of that.

    Examples
    --------
    >>> from hforest.sklearn import ManifoldForestClassifier
    >>> from sklearn.datasets import load_digits
    >>> x, y = load_digits(return_X_y=True)
    >>> model = ManifoldForestClassifier(shape=(8, 8), random_state=0).fit(x[:1000], y[:1000])
    >>> model.score(x[1000:], y[1000:]) > 0.9
    True
    """

    class_weight: Mapping | list | Literal["balanced", "balanced_subsample"] | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class ManifoldForestRegressor(ForestRegressor, _Manifold):
    """Manifold forest (MORF) for targets of images and signals (Perry et al. 2019,
    section 3).

    Parameters: see `ManifoldForestClassifier` and `RandomForestRegressor`, which has the attributes.

    Examples
    --------
    >>> from hforest.sklearn import ManifoldForestRegressor
    >>> from sklearn.datasets import load_digits
    >>> x, y = load_digits(return_X_y=True)
    >>> model = ManifoldForestRegressor(20, shape=(8, 8), random_state=0).fit(x[:1000], x[:1000, ::8])
    >>> model.predict(x[1000:]).shape
    (797, 8)
    """

    criterion: Criterion = "squared_error"
