"""Forests with splits on optimised hyperplanes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from .. import co2
from ..core.aliases import CO2Features, Criterion
from .grown import BootstrapForest
from .intervals import ForestRegressor
from .targets import Classifier


@dataclass(kw_only=True, eq=False, repr=False)
class _CO2(BootstrapForest):
    """Base class of forests with splits on optimised hyperplanes."""

    _function = staticmethod(co2.grow)
    _finite = True
    _sparse = False
    _several = False
    _names: ClassVar[Mapping[str, str]] = {**BootstrapForest._names, "learning_rate": "lr"}

    n_estimators: int = field(default=30, kw_only=False)
    nu: float = 4.0
    learning_rate: float = 0.1
    max_rounds: int = 20
    max_features: CO2Features = "n**0.6"
    min_samples_oblique: int = 10
    standardize: bool = True
    criterion: Criterion = "entropy"
    min_impurity_decrease: float = 0.0
    bootstrap: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class CO2ForestClassifier(Classifier, _CO2):
    """Forest of continuously optimised oblique splits (CO2) for classes: `hforest.co2.grow`
    (Norouzi et al. 2015, section 5).

    Other parameters and attributes: see `RandomForestClassifier`.

    Parameters
    ----------
    nu : float
        Bound on the squared norm of a split's weights.
    learning_rate : float
        Learning rate of the stochastic gradient descent at a node; `lr` in hforest.
    max_rounds : int
        Maximum number of rounds of a split's optimisation.
    max_features : "n**0.6", "sqrt", "log2", int, float or None
        Number of features sampled at a node. The best univariate split on them is the start of the
        optimisation.
    min_samples_oblique : int
        A node with fewer samples keeps its univariate split.
    standardize : bool
        Whether splits are optimised on standardised columns and targets (mean 0, standard deviation 1).
    criterion : "entropy" or "gini", in a regressor "squared_error"
        Impurity by which the univariate split is chosen.

    Examples
    --------
    >>> from hforest.sklearn import CO2ForestClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> CO2ForestClassifier(10, random_state=0).fit(x[::2], y[::2]).score(x[1::2], y[1::2]) > 0.9
    True
    """

    class_weight: Mapping | Literal["balanced"] | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class CO2ForestRegressor(ForestRegressor, _CO2):
    """Forest of continuously optimised oblique splits (CO2) for one or several targets: `hforest.co2.grow`.

    Parameters: see `CO2ForestClassifier` and `RandomForestRegressor`, which has the attributes.

    Examples
    --------
    >>> from hforest.sklearn import CO2ForestRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> model = CO2ForestRegressor(bootstrap=True, oob_score=True, random_state=0).fit(x, y)
    >>> model.oob_score_ > 0.35
    True
    """

    criterion: Criterion = "squared_error"
