"""Forests with splits on optimised hyperplanes."""

from collections.abc import Mapping
from typing import Literal

from numpy.random import RandomState

from .. import co2
from ..core.aliases import CO2Features, Criterion
from .base import keep, like
from .classic import Metric
from .grown import GrownForest
from .targets import Classifier, Regressor

_NAMES = {**GrownForest._names, "learning_rate": "lr"}


class CO2ForestClassifier(Classifier, GrownForest):
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

    _function = staticmethod(co2.grow)
    _finite = True
    _sparse = False
    _names = _NAMES

    def __init__(
        self,
        n_estimators: int = 30,
        *,
        nu: float = 4.0,
        learning_rate: float = 0.1,
        max_rounds: int = 20,
        max_features: CO2Features | Literal["log2"] = "n**0.6",
        min_samples_oblique: int = 10,
        standardize: bool = True,
        criterion: Criterion = "entropy",
        max_depth: int | None = None,
        min_samples_split: int = 2,
        min_samples_leaf: int = 1,
        min_weight_fraction_leaf: float = 0.0,
        min_impurity_decrease: float = 0.0,
        bootstrap: bool = False,
        max_samples: int | float | None = None,
        bootstrap_weights: Literal["multiply", "draw"] = "multiply",
        oob_score: bool | Metric = False,
        class_weight: Mapping | Literal["balanced"] | None = None,
        n_jobs: int | None = None,
        random_state: int | RandomState | None = None,
    ) -> None:
        keep(locals())


class CO2ForestRegressor(Regressor, GrownForest):
    """Forest of continuously optimised oblique splits (CO2) for one or several targets: `hforest.co2.grow`.

    Parameters: see `CO2ForestClassifier`. Attributes: see `RandomForestRegressor`.

    Examples
    --------
    >>> from hforest.sklearn import CO2ForestRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> model = CO2ForestRegressor(bootstrap=True, oob_score=True, random_state=0).fit(x, y)
    >>> model.oob_score_ > 0.35
    True
    """

    _function = staticmethod(co2.grow)
    _finite = True
    _sparse = False
    _names = _NAMES

    __init__ = like(CO2ForestClassifier.__init__, ("class_weight",), criterion="squared_error")
